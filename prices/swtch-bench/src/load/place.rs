//! Puts a member on its CPU and under its policy. A policy that is not permitted is no failure: the
//! member runs without it, and its slot says so.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::control::ResultSlot;
use super::{Class, Cpus, Group};
use crate::cpu::{self, SchedAttr};
use crate::error::Error;

impl Cpus {
    /// CPU of the member with this number; `None` if it is free.
    pub fn of(&self, index: u32) -> Option<u32> {
        match self {
            Self::Free => None,
            Self::Dealt(cpus) => cpus
                .iter()
                .cycle()
                .nth(index as usize % cpus.len().max(1))
                .copied(),
        }
    }
}

impl Class {
    /// Returns true if it is a real-time policy, which precedes all ordinary tasks.
    pub const fn is_real_time(self) -> bool {
        matches!(self, Self::Fifo { .. } | Self::RoundRobin { .. })
    }

    fn attributes(self, slice_ns: u64) -> SchedAttr {
        let (policy, nice, priority) = match self {
            Self::Other { nice } => (libc::SCHED_OTHER, nice, 0),
            Self::Batch { nice } => (libc::SCHED_BATCH, nice, 0),
            Self::Idle => (libc::SCHED_IDLE, 0, 0),
            Self::Fifo { priority } => (libc::SCHED_FIFO, 0, priority),
            Self::RoundRobin { priority } => (libc::SCHED_RR, 0, priority),
        };
        SchedAttr {
            policy: policy.unsigned_abs(),
            nice,
            priority,
            runtime_ns: slice_ns,
            ..SchedAttr::default()
        }
    }

    /// Returns what is left of the class without permission: nice 0, and `SCHED_OTHER` in place of a real-time policy.
    const fn without_right(self) -> Self {
        match self {
            Self::Batch { .. } => Self::Batch { nice: 0 },
            Self::Idle => Self::Idle,
            _ => Self::Other { nice: 0 },
        }
    }
}

/// Puts the calling thread on its CPU, and under its class.
pub(super) fn adopt_cpu_and_class(
    group: &Group,
    index: u32,
    limit: Duration,
    slot: &ResultSlot,
) -> Result<(), Error> {
    if let Some(cpu) = group.cpus.of(index) {
        cpu::move_to(0, cpu as usize)?;
    }
    if group.class.is_real_time() {
        cpu::bound_real_time(limit)?;
    }
    let slice = group.slice.map_or(0, swtch_core::Nanos::as_ns);
    match group.class.attributes(slice).adopt() {
        Err(Error::Call { source, .. }) if source.raw_os_error() == Some(libc::EPERM) => {
            let errno = libc::EPERM.unsigned_abs();
            slot.class_refused.store(errno, Ordering::Relaxed);
            group.class.without_right().attributes(slice).adopt()?;
        }
        adopted => adopted?,
    }
    if group.slice.is_some() {
        let own = SchedAttr::of_calling_thread()?;
        slot.slice_ns.store(own.runtime_ns, Ordering::Relaxed);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_dealt_round_robin() {
        let cpus = Cpus::Dealt(vec![3, 1]);
        let dealt: Vec<_> = (0..5).map(|index| cpus.of(index)).collect();
        assert_eq!(dealt, [3, 1, 3, 1, 3].map(Some));
        assert_eq!(Cpus::Free.of(7), None);
    }
}
