//! Waiting for a timer and nothing else, in three ways.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::thread;
use std::time::Duration;

use super::Workload;
use crate::cpu::{CpuPolicyGuard, Policy};
use crate::error::{Error, checked};
use crate::needs::Needs;
use crate::outcome::{Expect, SleepCounts, WorkloadOutcome};
use crate::workers::{slept_in, start};

/// Long enough that a timer rarely expires before its task has blocked.
const NAP: Duration = Duration::from_millis(1);

macro_rules! sleeps {
    ($($constant:ident = $name:literal, $about:literal, $sleep:expr;)+) => {
        $(pub(super) const $constant: Workload = Workload {
            name: $name,
            about: $about,
            needs: Needs::Nothing,
            default_count: 500,
            count_is: "sleeps of 1 ms",
            run: |sleeps| run(sleeps, $sleep),
        };)+
    };
}

sleeps! {
    NANOSLEEP = "nanosleep", "a thread sleeps in nanosleep", nap;
    POLL_SLEEP = "poll-sleep", "a thread sleeps in poll without files", poll_nothing;
    TIMERFD = "timerfd", "a thread reads a timerfd", timer()?;
}

fn run(
    sleeps: u64,
    mut nap: impl FnMut() -> Result<(), Error> + Send,
) -> Result<WorkloadOutcome, Error> {
    let _policy = CpuPolicyGuard::on_workload_cpu(Policy::Batch)?;
    thread::scope(|scope| {
        let sleeper = start(scope, "sleeper", || {
            (0..sleeps)
                .map(|_| slept_in(&mut nap))
                .sum::<Result<SleepCounts, _>>()
        })?;
        let sleeper = sleeper.finish()?;
        let expect = Expect::sleeps(sleeps, sleeper.value, sleeper.counted.involuntary).into();
        Ok(WorkloadOutcome {
            threads: vec![sleeper.expecting(expect)],
        })
    })
}

fn nap() -> Result<(), Error> {
    thread::sleep(NAP);
    Ok(())
}

fn poll_nothing() -> Result<(), Error> {
    let ms = i32::try_from(NAP.as_millis()).expect("invariant: 1 ms fits");
    // SAFETY: no files are passed, so no memory is touched.
    checked("poll", unsafe { libc::poll(ptr::null_mut(), 0, ms) }).map(drop)
}

/// A timer that is set anew for every read: a periodic one could expire before the read.
fn timer() -> Result<impl FnMut() -> Result<(), Error> + Send, Error> {
    // SAFETY: no memory is involved.
    let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC) };
    let fd = checked("timerfd_create", fd)?;
    // SAFETY: the descriptor was just opened and nothing else owns it.
    let mut file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
    let once = libc::itimerspec {
        it_interval: libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        },
        it_value: libc::timespec {
            tv_sec: 0,
            tv_nsec: NAP.subsec_nanos().into(),
        },
    };
    Ok(move || {
        // SAFETY: the descriptor is open, `once` lives across the call, the old time is not asked
        // for.
        let set = unsafe { libc::timerfd_settime(file.as_raw_fd(), 0, &once, ptr::null_mut()) };
        checked("timerfd_settime", set)?;
        file.read_exact(&mut [0; 8]).map_err(Error::calling("read"))
    })
}
