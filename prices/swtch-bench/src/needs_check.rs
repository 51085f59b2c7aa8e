//! Checks whether this machine and this user meet what a workload needs. It is apart from
//! [`Needs`], because errors hold a need, and what is asked here may fail with an error.

use crate::cpu;
use crate::cpu_group::CgroupHierarchy;
use crate::needs::Needs;
use crate::scratch::Scratch;

impl Needs {
    /// Returns true if this machine and this user meet the need.
    pub fn are_met(self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Root => is_root(),
            Self::TwoCpus => cpu::allowed().is_ok_and(|cpus| cpus.len() >= 2),
            Self::CpuController => is_root() && CgroupHierarchy::find().is_some(),
            Self::Disk => Scratch::new().is_ok(),
        }
    }
}

fn is_root() -> bool {
    // SAFETY: geteuid has no arguments and cannot fail.
    unsafe { libc::geteuid() == 0 }
}
