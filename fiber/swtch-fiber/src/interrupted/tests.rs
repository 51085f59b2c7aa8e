use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{InterruptSource, Marker, involuntary_switches};
use crate::scheduler::worker::{self, WorkerCell};
use crate::{Mode, Runtime, spawn, yield_now};

thread_local! {
    /// Further switches in runs that were already counted as interrupted.
    static FURTHER: Cell<i64> = const { Cell::new(0) };
}

/// A busy machine may take the CPU away again before the thread is back in user mode: that makes
/// two switches in one run.
pub(super) fn note_switches_of_one_run(switches: i64) {
    FURTHER.set(FURTHER.get() + (switches - 1).max(0));
}

/// Binds the calling thread to the last CPU that it may use.
fn pin() {
    // SAFETY: a set of bits, for which zeros are valid.
    let mut allowed: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is writable and as long as said.
    unsafe { libc::sched_getaffinity(0, size_of_val(&allowed), &raw mut allowed) };
    let last = (0..libc::CPU_SETSIZE as usize)
        // SAFETY: the number lies in the set.
        .rfind(|cpu| unsafe { libc::CPU_ISSET(*cpu, &allowed) })
        .expect("a thread may run somewhere");
    // SAFETY: as above.
    let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the number lies in the set.
    unsafe { libc::CPU_SET(last, &mut one) };
    // SAFETY: the set is readable and as long as said.
    unsafe { libc::sched_setaffinity(0, size_of_val(&one), &raw const one) };
}

/// Uses the CPU of the calling thread until the flag is set.
fn hog(stop: Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        pin();
        while !stop.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    })
}

/// Calls `act` until the kernel counts no involuntary switch meanwhile; returns its count then.
fn at_one_moment(mut act: impl FnMut()) -> i64 {
    loop {
        let before = involuntary_switches();
        act();
        if involuntary_switches() == before {
            return before;
        }
    }
}

/// With a second busy thread on the same CPU, each involuntary switch that the kernel counts must
/// be noticed.
#[test]
fn each_interruption_is_noticed_once() {
    pin();
    let mut marker = Marker::for_this_thread();
    if !marker.has_the_word() {
        swtch_test::skip!("no rseq area here, or somebody else uses it");
    }
    let stop = Arc::new(AtomicBool::new(false));
    let hog = hog(Arc::clone(&stop));
    let before = at_one_moment(|| {
        marker.begin_after_a_sleep();
        FURTHER.set(0);
    });
    let mut noticed = 0_i64;
    while involuntary_switches() - before < 50 {
        for _ in 0..1000 {
            noticed += i64::from(marker.was_interrupted());
        }
    }
    let counted = at_one_moment(|| noticed += i64::from(marker.was_interrupted())) - before;
    stop.store(true, Ordering::Relaxed);
    hog.join().unwrap();
    let further = FURTHER.get();
    let apart = (noticed + further - counted).abs();
    assert!(
        apart <= 1,
        "noticed {noticed} and {further} in the same runs, the kernel counted {counted}"
    );
}

impl Marker {
    /// Returns true if the marker uses `rseq`, so that each answer costs one load.
    fn has_the_word(&self) -> bool {
        matches!(self.source, InterruptSource::Rseq { .. })
    }
}

/// The kernel also clears the word when a thread blocks, although its CPU was not taken away. On a
/// busy machine that may happen just after the wakeup; then the kernel counts it.
#[test]
fn a_blocking_call_is_no_interruption() {
    // Before the marker's own first reading: an interruption between the two is counted, then.
    let before = involuntary_switches();
    let mut marker = Marker::for_this_thread();
    let mut noticed = 0;
    for _ in 0..50 {
        std::thread::sleep(Duration::from_micros(100));
        noticed += i64::from(marker.was_interrupted());
    }
    let counted = involuntary_switches() - before;
    assert!(noticed <= counted, "noticed {noticed}, counted {counted}");
}

/// A signal clears the word as well, and is no interruption either.
#[test]
fn a_signal_is_no_interruption() {
    extern "C" fn nothing(_signal: i32) {}
    // SAFETY: a plain structure, for which zeros are valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as *const () as usize;
    action.sa_flags = libc::SA_ONSTACK;
    // SAFETY: the handler has one argument, as these flags promise it.
    unsafe { libc::sigaction(libc::SIGWINCH, &raw const action, std::ptr::null_mut()) };
    // Before the marker's own first reading: an interruption between the two is counted, then.
    let before = involuntary_switches();
    let mut marker = Marker::for_this_thread();
    let (mut noticed, mut cleared) = (0, 0);
    for _ in 0..200 {
        // SAFETY: the signal has a handler.
        unsafe { libc::raise(libc::SIGWINCH) };
        if let InterruptSource::Rseq { word, .. } = &marker.source {
            cleared += u32::from(word.load(Ordering::Relaxed) == 0);
        }
        noticed += i64::from(marker.was_interrupted());
    }
    let counted = involuntary_switches() - before;
    assert!(noticed <= counted, "noticed {noticed}, counted {counted}");
    assert!(
        cleared == 200 || !marker.has_the_word(),
        "cleared {cleared}"
    );
}

/// A system call that does not block is no interruption. On a busy machine other threads may
/// interrupt in between, hence the comparison with the kernel's count.
#[test]
fn a_plain_system_call_is_no_interruption() {
    // Before the marker's own first reading: an interruption between the two is counted, then.
    let before = involuntary_switches();
    let mut marker = Marker::for_this_thread();
    let mut noticed = 0;
    for _ in 0..1000 {
        // SAFETY: reads a number.
        unsafe { libc::getppid() };
        noticed += i64::from(marker.was_interrupted());
    }
    assert!(
        noticed <= involuntary_switches() - before,
        "noticed {noticed}"
    );
}

/// `rseq_cs` has one user per thread: a second marker must not overwrite it, and gets it when the
/// first one is dropped.
#[test]
fn the_word_has_one_user_at_a_time() {
    let first = Marker::for_this_thread();
    if !first.has_the_word() {
        swtch_test::skip!("no rseq area here, or somebody else uses it");
    }
    // The kernel may clear the word just here, hence several tries.
    let taken = (0..100).any(|_| {
        let mut second = Marker::for_this_thread();
        let refused = !second.has_the_word();
        if let InterruptSource::Rseq { word, .. } = second.source {
            second.source = InterruptSource::counter();
            word.store(super::parked(), Ordering::Relaxed);
        }
        refused
    });
    assert!(taken);
    drop(first);
    assert!((0..100).any(|_| Marker::for_this_thread().has_the_word()));
}

/// If other code begins to use the word later, it keeps it, and the marker uses the kernel's count.
#[test]
fn a_word_taken_by_another_is_left_alone() {
    let mut marker = Marker::for_this_thread();
    let InterruptSource::Rseq { word, .. } = marker.source else {
        swtch_test::skip!("no rseq area here, or somebody else uses it");
    };
    let theirs = super::RseqCriticalSection {
        version: 0,
        flags: 0,
        ..super::SECTION
    };
    // The kernel may clear the word before it is read, hence several tries.
    let fell_back = (0..100).any(|_| {
        word.store((&raw const theirs).addr(), Ordering::Relaxed);
        marker.was_interrupted();
        !marker.has_the_word()
    });
    let left = word.load(Ordering::Relaxed);
    word.store(0, Ordering::Relaxed);
    assert!(fell_back);
    assert!(left == (&raw const theirs).addr() || left == 0);
}

/// Without `rseq` the kernel's count is used, once in many runs.
#[test]
fn the_count_answers_for_many_runs_at_once() {
    pin();
    let stop = Arc::new(AtomicBool::new(false));
    let hog = hog(Arc::clone(&stop));
    let mut marker = Marker::for_this_thread();
    marker.source = InterruptSource::counter();
    let before = involuntary_switches();
    while involuntary_switches() < before + 3 {
        std::hint::spin_loop();
    }
    stop.store(true, Ordering::Relaxed);
    hog.join().unwrap();
    let answers: Vec<bool> = (0..super::RUNS_PER_READ)
        .map(|_| marker.was_interrupted())
        .collect();
    let place = answers.iter().position(|answer| *answer);
    assert_eq!(
        place,
        Some(super::RUNS_PER_READ as usize - 1),
        "{answers:?}"
    );
}

/// A scheduler counts, without privilege, the runs that the kernel interrupted: in both modes, for
/// a single worker (which never leaves), and for several. The two counts may differ by one between
/// two readings.
#[test]
fn a_scheduler_counts_the_runs_that_the_os_interrupted() {
    for (mode, workers) in [(Mode::Fiber, 1), (Mode::Fiber, 3), (Mode::Thread, 1)] {
        let builder = Runtime::builder().schedulers(1).pinned(true).mode(mode);
        let runtime = builder.build().unwrap();
        let body = move || {
            let stop = Arc::new(AtomicBool::new(false));
            let hog = hog(Arc::clone(&stop));
            pin();
            let mut interrupted = 0;
            let before = at_one_moment(|| {
                yield_now();
                interrupted = interrupted_runs();
                FURTHER.set(0);
            });
            let scan = move || {
                while involuntary_switches() - before < 20 {
                    (0..100).for_each(|_| yield_now());
                }
            };
            let others: Vec<_> = (1..workers).map(|_| spawn(scan).unwrap()).collect();
            scan();
            others.into_iter().for_each(|other| other.join().unwrap());
            let mut noticed = 0;
            let counted = at_one_moment(|| {
                yield_now();
                noticed = interrupted_runs() - interrupted;
            }) - before;
            stop.store(true, Ordering::Relaxed);
            hog.join().unwrap();
            (
                counted,
                noticed,
                FURTHER.get(),
                super::rseq_word().is_none(),
            )
        };
        let (counted, noticed, further, is_absent) = runtime.run(body).unwrap();
        if is_absent {
            swtch_test::skip!("no rseq area here");
        }
        let apart = (noticed.cast_signed() + further - counted).abs();
        assert!(
            apart <= 1,
            "{mode:?}, {workers} workers: noticed {noticed} and {further} in the same runs, the kernel \
             counted {counted}"
        );
    }
}

/// The interrupted runs that the calling worker's scheduler has counted.
fn interrupted_runs() -> u64 {
    let scheduler = worker::current().and_then(WorkerCell::scheduler).unwrap();
    // SAFETY: the calling worker holds the scheduler.
    let record = unsafe { scheduler.core() }.accounts.record();
    record.os_interrupted_quanta_count.load(Ordering::Relaxed)
}
