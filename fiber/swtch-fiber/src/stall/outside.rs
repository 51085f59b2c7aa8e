//! Finds out whether any thread outside of a runtime could wake one of its workers.
//!
//! A thread outside may hold one end of a channel, or the handle of an event, and this cannot be
//! found out. But a thread that waits for another thread wakes no worker by itself. So when each
//! thread of the process waits in a private futex without a time limit, and no signal handler could
//! run, nothing is left that could wake a worker. A thread whose state cannot be read counts as one
//! that could.

use std::sync::atomic::Ordering;

use swtch_observe::layout::{scheduler_status, thread_kind};

use super::capture;
use super::evidence::{self, Call};
use crate::page::WritablePage;

/// Returns true if any thread could. `runtime` is the one that waits; its own threads do not count.
///
/// All threads are read twice: a thread that was blocked both times and was not switched in between
/// was blocked the whole time, so there was a moment at which all were.
pub(crate) fn could_wake(page: &WritablePage, runtime: u32) -> bool {
    if other_runtimes(page, runtime) || a_handler_could_run() {
        return true;
    }
    let own = own_threads(page);
    let (first, second) = (blocked(&own), blocked(&own));
    first.is_none() || first != second
}

/// Returns true if the process has another runtime, whose workers may hold any of these.
fn other_runtimes(page: &WritablePage, runtime: u32) -> bool {
    let used = page.header().schedulers.used.load(Ordering::Acquire);
    (0..used).map(|index| page.scheduler(index)).any(|record| {
        let status = record.status.load(Ordering::Acquire);
        let runs = matches!(status, scheduler_status::FIBER | scheduler_status::THREAD);
        runs && record.runtime.load(Ordering::Relaxed) != runtime
    })
}

/// The threads that work for schedulers, which the caller has checked already.
fn own_threads(page: &WritablePage) -> Vec<i32> {
    let used = page.header().threads.used.load(Ordering::Acquire);
    // SAFETY: reads a number.
    let this = unsafe { libc::gettid() };
    (0..used)
        .map(|index| page.thread(index))
        .filter(|thread| thread.kind.load(Ordering::Acquire) != thread_kind::UNUSED)
        .map(|thread| thread.tid.load(Ordering::Relaxed).cast_signed())
        .chain([this])
        .collect()
}

/// The other threads with their numbers of switches so far, if each of them is blocked for good.
fn blocked(own: &[i32]) -> Option<Vec<(i32, Option<u64>)>> {
    let threads = std::fs::read_dir("/proc/self/task").ok()?;
    let mut others = Vec::new();
    for thread in threads {
        let tid: i32 = thread.ok()?.file_name().to_str()?.parse().ok()?;
        if own.contains(&tid) {
            continue;
        }
        let call = evidence::call_of(tid);
        others.push((tid, evidence::switches_of(tid)));
        if !waits_for_a_thread(call) {
            return None;
        }
    }
    others.sort_unstable();
    Some(others)
}

/// Returns true if only another thread of this process can end the call.
fn waits_for_a_thread(call: Call) -> bool {
    let Call::Inside {
        number: libc::SYS_futex,
        arguments: [_, operation, _, limit, ..],
        ..
    } = call
    else {
        return false;
    };
    let Ok(operation) = i32::try_from(operation) else {
        return false;
    };
    let command = operation & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME);
    let waits = matches!(command, libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET);
    waits && operation & libc::FUTEX_PRIVATE_FLAG != 0 && limit == 0
}

/// Signals for fatal errors, which crash reporters and sanitizers handle.
const FAULTS: [i32; 7] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGABRT,
    libc::SIGSYS,
];

/// Returns true if the program handles a signal whose handler could wake a worker. These do not count: signals for
/// fatal errors, our own, and those that libc keeps for itself (from 32 to before `SIGRTMIN`; glibc handles 33 once a
/// program has a second thread and changes its user).
fn a_handler_could_run() -> bool {
    let Ok(status) = std::fs::read_to_string("/proc/self/status") else {
        return true;
    };
    let ours = FAULTS.into_iter().chain(capture::signal());
    let ours = ours.chain(32..libc::SIGRTMIN());
    caught(&status).is_none_or(|caught| {
        let others = ours.fold(caught, |left, signal| left & !(1 << (signal - 1)));
        others != 0
    })
}

/// The signals that have a handler, one bit each.
fn caught(status: &str) -> Option<u64> {
    let line = |line: &str| u64::from_str_radix(line.strip_prefix("SigCgt:")?.trim(), 16).ok();
    status.lines().find_map(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn futex(operation: i32, limit: u64) -> Call {
        Call::Inside {
            number: libc::SYS_futex,
            arguments: [0x1000, operation.unsigned_abs().into(), 0, limit, 0, 0],
            stack_pointer: 0,
            pc: 0,
        }
    }

    /// A time limit passes by itself, and a futex in shared memory may be woken by another process.
    #[test]
    fn only_an_endless_private_wait_is_for_a_thread() {
        let private = libc::FUTEX_PRIVATE_FLAG;
        let bitset = libc::FUTEX_WAIT_BITSET | libc::FUTEX_CLOCK_REALTIME;
        assert!(waits_for_a_thread(futex(libc::FUTEX_WAIT | private, 0)));
        assert!(waits_for_a_thread(futex(bitset | private, 0)));
        assert!(!waits_for_a_thread(futex(bitset | private, 0x7fff)));
        assert!(!waits_for_a_thread(futex(libc::FUTEX_WAIT, 0)));
        assert!(!waits_for_a_thread(futex(libc::FUTEX_WAKE | private, 0)));
        assert!(!waits_for_a_thread(Call::Running));
        assert!(!waits_for_a_thread(Call::Unknown));
    }

    /// Bit 0 stands for signal 1.
    #[test]
    fn handlers_are_read_from_the_status() {
        assert_eq!(
            caught("SigIgn:\t0001\nSigCgt:\t0000000000000440\n"),
            Some(0x440)
        );
        assert_eq!(caught("SigIgn:\t0001\n"), None);
    }
}
