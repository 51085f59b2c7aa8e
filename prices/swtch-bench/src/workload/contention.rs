//! Two tasks that want the same lock and hold it while they sleep, so that the other has to wait.
//!
//! ```text
//! locker-1  │ holds: sleeps 400 µs │ without: 50 µs │ waits for the lock … │ holds
//! locker-2  … waits for the lock   │ holds: sleeps 400 µs                  │ without
//! ```
//!
//! The number of waits is what the kernel counted around the lock call. That nearly every lock call
//! waits follows from the two lengths.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use swtch_core::reason::Reason;

use super::Workload;
use crate::cpu::{CpuPolicyGuard, Policy};
use crate::error::{Error, checked};
use crate::needs::Needs;
use crate::outcome::{Expect, SleepCounts, ThreadOutcome, WorkloadOutcome};
use crate::scratch::Scratch;
use crate::workers::{WorkerResult, blocks_in, sleep, start, start_process};

const WITH_LOCK: Duration = Duration::from_micros(400);
const WITHOUT_LOCK: Duration = Duration::from_micros(50);

pub(super) const MUTEX: Workload = Workload {
    name: "mutex",
    about: "two threads contend for a mutex whose holder sleeps",
    needs: Needs::Nothing,
    default_count: 500,
    count_is: "rounds",
    run: mutex,
};

pub(super) const FILE_LOCK: Workload = Workload {
    name: "file-lock",
    about: "two processes contend for a file lock (F_SETLKW) whose holder sleeps",
    needs: Needs::Disk,
    default_count: 500,
    count_is: "rounds",
    run: file_lock,
};

fn mutex(rounds: u64) -> Result<WorkloadOutcome, Error> {
    let _policy = CpuPolicyGuard::on_workload_cpu(Policy::Batch)?;
    let mutex = Mutex::new(());
    let work = || {
        contend(rounds, |waited, slept| {
            let mut guard = None;
            *waited += blocks_in(|| {
                guard = Some(mutex.lock().unwrap_or_else(PoisonError::into_inner));
                Ok(())
            })?;
            *slept += sleep(WITH_LOCK)?;
            drop(guard);
            Ok(())
        })
    };
    thread::scope(|scope| {
        let first = start(scope, "locker-1", work)?;
        let second = start(scope, "locker-2", work)?;
        Ok(outcome(
            [first.finish()?, second.finish()?],
            rounds,
            Reason::Futex,
        ))
    })
}

fn file_lock(rounds: u64) -> Result<WorkloadOutcome, Error> {
    let _policy = CpuPolicyGuard::on_workload_cpu(Policy::Batch)?;
    let scratch = Scratch::new()?;
    let work = || {
        contend(rounds, |waited, slept| {
            *waited += blocks_in(|| set_lock(&scratch.file, libc::F_WRLCK))?;
            *slept += sleep(WITH_LOCK)?;
            set_lock(&scratch.file, libc::F_UNLCK)
        })
    };
    let first = start_process("locker-1", work)?;
    let second = start_process("locker-2", work)?;
    Ok(outcome(
        [first.finish()?, second.finish()?],
        rounds,
        Reason::Ipc,
    ))
}

/// The counts of one that contends for the lock: blocks in the lock call, sleeps in which it blocked, and blocks in its
/// sleeps. Numbers only, as a process hands them to its parent.
type Contended = [u64; 3];

/// Acquires and releases the lock `rounds` times.
fn contend(
    rounds: u64,
    mut hold: impl FnMut(&mut u64, &mut SleepCounts) -> Result<(), Error>,
) -> Result<Contended, Error> {
    let (mut waited, mut slept) = (0, SleepCounts::default());
    for _ in 0..rounds {
        hold(&mut waited, &mut slept)?;
        slept += sleep(WITHOUT_LOCK)?;
    }
    Ok([waited, slept.blocked, slept.blocks])
}

fn outcome(workers: [WorkerResult<Contended>; 2], rounds: u64, reason: Reason) -> WorkloadOutcome {
    let expecting = |locker: WorkerResult<Contended>| -> ThreadOutcome {
        let [waited, blocked, blocks] = locker.value;
        let slept = SleepCounts { blocked, blocks };
        let because = "the kernel counted that many blocks in the lock call";
        let waits = Expect::exactly(reason, waited, because);
        let because = "the holder sleeps longer than the other stays away";
        let contends = Expect::at_least(reason, rounds / 10, because);
        let [sleeps, mostly] = Expect::sleeps(2 * rounds, slept, locker.counted.involuntary);
        locker.expecting(vec![waits, contends, sleeps, mostly])
    };
    WorkloadOutcome {
        threads: workers.map(expecting).into(),
    }
}

/// Sets or releases the lock of the whole file, and waits for other holders. Such a lock belongs to
/// the process, so two threads would not contend for it.
fn set_lock(file: &File, kind: libc::c_int) -> Result<(), Error> {
    // SAFETY: an all-zero flock is a valid one: from the start of the file to its end.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = i16::try_from(kind).expect("invariant: lock kinds are 0 to 2");
    // SAFETY: the descriptor is open and `lock` lives across the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLKW, &raw const lock) };
    checked("fcntl(F_SETLKW)", result).map(drop)
}
