//! Mitigations of CPU bugs that a task can request for itself (`PR_SET_SPECULATION_CTRL`,
//! `Documentation/userspace-api/spec_ctrl.rst`), and that then make switches more expensive.
//!
//! Compare a ring of processes with a mitigation with one without. A ring of threads is the
//! control: the barrier for indirect branches is issued when the address space changes, so threads
//! of one process must not pay for it (`cond_mitigation`, `arch/x86/mm/tlb.c`).

use serde::{Deserialize, Serialize};

use crate::error::{Error, checked};

/// A mitigation that a task can request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Mitigation {
    /// Indirect branches of one task do not steer those of the next: a barrier (IBPB) between
    /// address spaces.
    IndirectBranch,
    /// Loads do not bypass older stores (SSBD): a CPU register whose value changes with the task.
    StoreBypass,
    /// The L1 data cache is flushed when the task leaves the CPU; the kernel must have been booted
    /// with `l1d_flush=on`.
    L1dFlush,
}

/// Which members request the mitigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protected {
    /// All members of the ring request it.
    All,
    /// One of the peers, so that every switch from or to it changes the setting.
    One,
}

/// The mitigation of a ring, and the members that request it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MitigationSpec {
    /// The mitigation that is requested.
    pub mitigation: Mitigation,
    /// The members that request it.
    pub members: Protected,
}

// include/uapi/linux/prctl.h; libc has these for few targets.
const PR_SPEC_PRCTL: libc::c_int = 1;
const PR_SPEC_ENABLE: libc::c_int = 1 << 1;
const PR_SPEC_DISABLE: libc::c_int = 1 << 2;
const PR_SPEC_FORCE_DISABLE: libc::c_int = 1 << 3;
const PR_GET_SPECULATION_CTRL: libc::c_int = 52;
const PR_SET_SPECULATION_CTRL: libc::c_int = 53;

impl MitigationSpec {
    /// Enables it for the calling member, if that member should have it. With `Protected::One` that
    /// is a peer and never the leader, because threads and processes inherit the setting from the
    /// task that starts them.
    pub(super) fn apply(self, member: usize) -> Result<(), Error> {
        match self.members {
            Protected::One if member != 1 => Ok(()),
            _ => self.mitigation.switch_on(),
        }
    }
}

impl Mitigation {
    /// Checks that a task may enable it.
    ///
    /// # Errors
    ///
    /// The kernel does not know it, or has decided for all tasks; the error says which.
    pub fn check(self) -> Result<(), Error> {
        let state = self.state()?;
        if state & PR_SPEC_PRCTL == 0 {
            return Err(self.not_here(self.decided(state)));
        }
        Ok(())
    }

    /// The kernel's decision for all tasks, as text.
    const fn decided(self, state: libc::c_int) -> &'static str {
        let is_disabled = state & (PR_SPEC_DISABLE | PR_SPEC_FORCE_DISABLE) != 0;
        match self {
            _ if state == 0 => "this CPU does not need it",
            Self::L1dFlush if is_disabled => "the kernel was not booted with l1d_flush=on",
            Self::IndirectBranch | Self::StoreBypass if is_disabled => "on for all tasks",
            _ => "off for all tasks",
        }
    }

    /// Enables it for the calling thread.
    fn switch_on(self) -> Result<(), Error> {
        self.check()?;
        // SAFETY: the request carries numbers and no memory.
        let result =
            unsafe { libc::prctl(PR_SET_SPECULATION_CTRL, self.number(), self.on(), 0, 0) };
        checked("prctl", result).map_err(|error| self.not_here(&error.to_string()))?;
        if self.state()? & self.on() == 0 {
            return Err(self.not_here("the kernel took the order and did not follow it"));
        }
        Ok(())
    }

    fn state(self) -> Result<libc::c_int, Error> {
        // SAFETY: the request carries numbers and no memory.
        let result = unsafe { libc::prctl(PR_GET_SPECULATION_CTRL, self.number(), 0, 0, 0) };
        checked("prctl", result).map_err(|error| self.not_here(&error.to_string()))
    }

    fn not_here(self, why: &str) -> Error {
        Error::NotHere(why.to_owned())
    }

    /// The kernel's number of the speculation control.
    const fn number(self) -> libc::c_ulong {
        match self {
            Self::StoreBypass => 0,
            Self::IndirectBranch => 1,
            Self::L1dFlush => 2,
        }
    }

    /// The value that asks for the mitigation: the first two disable a speculation, the last one
    /// enables the flush.
    const fn on(self) -> libc::c_int {
        match self {
            Self::IndirectBranch | Self::StoreBypass => PR_SPEC_DISABLE,
            Self::L1dFlush => PR_SPEC_ENABLE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each mitigation can be enabled, or the error gives a reason.
    #[test]
    fn each_is_switched_on_or_said_to_be_missing() {
        let all = [
            Mitigation::IndirectBranch,
            Mitigation::StoreBypass,
            Mitigation::L1dFlush,
        ];
        // In a thread of its own: the setting belongs to a thread, and cannot always be undone.
        let tried = std::thread::spawn(move || all.map(|one| (one, one.switch_on())));
        for (mitigation, switched) in tried.join().unwrap() {
            if let Err(error) = switched {
                let why = error.to_string();
                let said = why.strip_prefix("not here: ").unwrap_or_default();
                assert!(!said.is_empty(), "{mitigation:?}: {why}");
            }
        }
    }
}
