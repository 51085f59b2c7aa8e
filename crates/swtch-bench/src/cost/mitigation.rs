//! Mitigations of CPU bugs that a task can ask for itself (`PR_SET_SPECULATION_CTRL`,
//! `Documentation/userspace-api/spec_ctrl.rst`), and that switches then pay for.
//!
//! Compare a ring of processes with a mitigation with one without. A ring of threads is the control:
//! the barrier for indirect branches stands where the address space changes, so threads of one
//! process must not pay for it (`cond_mitigation`, `arch/x86/mm/tlb.c`).

use serde::{Deserialize, Serialize};

use crate::error::{Error, checked};

/// A mitigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Mitigation {
    /// Indirect branches of one task do not steer those of the next: a barrier (IBPB) between
    /// address spaces.
    IndirectBranch,
    /// Loads do not pass older stores (SSBD): a register of the CPU that changes with the task.
    StoreBypass,
    /// The first data cache is emptied when the task leaves the CPU; the kernel must have been
    /// booted with `l1d_flush=on`.
    L1dFlush,
}

/// Members that have it on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protected {
    /// All of them.
    All,
    /// One of the peers, so that every switch from or to it changes the setting.
    One,
}

/// A ring's mitigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct MitigationSpec {
    /// Which.
    pub mitigation: Mitigation,
    /// Of whom.
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
    /// Switches it on for the calling member where it is meant to have it. Threads and processes
    /// started later inherit it, so it is a peer that has it alone, never the leader.
    pub(super) fn apply(self, member: usize) -> Result<(), Error> {
        match self.members {
            Protected::One if member != 1 => Ok(()),
            _ => self.mitigation.switch_on(),
        }
    }
}

impl Mitigation {
    /// Whether a task may switch it.
    ///
    /// # Errors
    ///
    /// The kernel does not know it, or has decided for all tasks; the error says so.
    pub fn check(self) -> Result<(), Error> {
        let state = self.state()?;
        if state & PR_SPEC_PRCTL == 0 {
            return Err(self.not_here(self.decided(state)));
        }
        Ok(())
    }

    /// What the kernel has decided for all tasks.
    const fn decided(self, state: libc::c_int) -> &'static str {
        let is_disabled = state & (PR_SPEC_DISABLE | PR_SPEC_FORCE_DISABLE) != 0;
        match self {
            _ if state == 0 => "this CPU does not need it",
            Self::L1dFlush if is_disabled => "the kernel was not booted with l1d_flush=on",
            Self::IndirectBranch | Self::StoreBypass if is_disabled => "on for all tasks",
            _ => "off for all tasks",
        }
    }

    /// Switches it on for the calling thread.
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

    /// The name of the speculation.
    const fn number(self) -> libc::c_ulong {
        match self {
            Self::StoreBypass => 0,
            Self::IndirectBranch => 1,
            Self::L1dFlush => 2,
        }
    }

    /// The first two are said as "no such speculation", the last as "do flush".
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

    /// Whatever the kernel offers: it can be switched on, or there is a reason.
    #[test]
    fn each_is_switched_on_or_said_to_be_missing() {
        let all = [
            Mitigation::IndirectBranch,
            Mitigation::StoreBypass,
            Mitigation::L1dFlush,
        ];
        // In a thread of its own: the setting is a thread's, and cannot always be taken back.
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
