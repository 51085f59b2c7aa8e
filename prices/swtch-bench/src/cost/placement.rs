//! Puts the members of a ring on their CPUs, and under their policy.

use swtch_core::cost::Policy;

use super::ring_spec::RingSpec;
use crate::cpu;
use crate::error::Error;

/// Sets CPU and policy of the calling member.
pub(super) fn adopt_cpu_and_policy(spec: &RingSpec, member: usize) -> Result<(), Error> {
    match spec.cpus {
        Some((leader, _)) if member == 0 => cpu::move_to(0, leader as usize)?,
        Some((_, others)) => cpu::move_to(0, others as usize)?,
        None => cpu::unpin()?,
    }
    adopt_policy(spec.policy)
}

/// Makes `policy` the policy of the calling thread.
pub(super) fn adopt_policy(policy: Policy) -> Result<(), Error> {
    match policy {
        Policy::Default => cpu::Policy::Other,
        Policy::Batch => cpu::Policy::Batch,
        Policy::Fifo => {
            cpu::bound_real_time(cpu::LONGEST_REAL_TIME_RUN)?;
            cpu::Policy::Fifo
        }
    }
    .adopt()
}
