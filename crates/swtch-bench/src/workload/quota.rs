//! A hog in a cgroup that may use 20 ms of every 100 ms.
//!
//! ```text
//! period    │ 20 ms run │ throttled 80 ms │ 20 ms run │ throttled …
//! ```

use std::mem;
use std::ptr;
use std::time::Duration;

use swtch_core::reason::Reason;

use super::Workload;
use crate::cast::start_process;
use crate::clock;
use crate::cpu::{Policy, Stage};
use crate::error::{Error, checked};
use crate::needs::Needs;
use crate::outcome::{Expect, Outcome};
use crate::quota_group::{CpuController, QuotaGroup};

const QUOTA: Duration = Duration::from_millis(20);
const PERIOD: Duration = Duration::from_millis(100);

pub(super) const QUOTA_USED: Workload = Workload {
    name: "quota",
    about: "a hog uses up its cgroup's CPU quota in every period",
    needs: Needs::CpuController,
    default_count: 10,
    count_is: "periods of 100 ms",
    play,
};

fn play(periods: u64) -> Result<Outcome, Error> {
    let controller = CpuController::find().ok_or(Error::Missing {
        workload: QUOTA_USED.name,
        needs: QUOTA_USED.needs,
    })?;
    let _held = SignalsHeld::hold()?;
    let _stage = Stage::at_home(Policy::Other)?;
    let group = QuotaGroup::new(&controller, QUOTA, PERIOD)?;
    let length = PERIOD * u32::try_from(periods).unwrap_or(u32::MAX);
    let hog = start_process("hog-on-quota", || {
        clock::spin(length);
        Ok(0)
    })?;
    group.admit(hog.pid())?;
    let hog = hog.finish()?;
    let throttled = group.throttled_periods()?;
    // The kernel counts a period when it ends: the one in which the hog ends may be missing.
    let throttles = Expect::between(
        Reason::Throttle,
        throttled.saturating_sub(1),
        throttled + 1,
        "the kernel counted that many periods without quota left (nr_throttled)",
    );
    Ok(Outcome {
        threads: vec![hog.expecting(vec![throttles])],
    })
}

/// Holds back the signals that end a program, so that the cgroup is removed first.
struct SignalsHeld(libc::sigset_t);

impl SignalsHeld {
    fn hold() -> Result<Self, Error> {
        // SAFETY: an all-zero sigset_t may be passed to sigemptyset, which makes it valid.
        let mut ends: libc::sigset_t = unsafe { mem::zeroed() };
        // SAFETY: the set is ours.
        unsafe { libc::sigemptyset(&mut ends) };
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            // SAFETY: the set is ours and the signal exists.
            unsafe { libc::sigaddset(&mut ends, signal) };
        }
        let mut before = ends;
        // SAFETY: both sets are ours and live across the call.
        checked("sigprocmask", unsafe {
            libc::sigprocmask(libc::SIG_BLOCK, &ends, &mut before)
        })?;
        Ok(Self(before))
    }
}

impl Drop for SignalsHeld {
    fn drop(&mut self) {
        // SAFETY: the set is the one that held before; the old one is not asked for.
        unsafe { libc::sigprocmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) };
    }
}
