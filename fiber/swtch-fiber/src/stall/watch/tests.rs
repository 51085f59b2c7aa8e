//! Plain threads play the part of schedulers here, to test that real measurements lead to the right
//! verdict. On a busy machine the OS may really not schedule a thread, and that verdict is then
//! right too. So stalls are looked for until the expected verdict comes.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, mpsc};

use super::*;

/// A thread that does some work until this is dropped.
struct WorkingThread {
    tid: i32,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl WorkingThread {
    fn start(work: impl Fn() + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let tid = Arc::new(AtomicI32::new(0));
        let (theirs, their_tid) = (stop.clone(), tid.clone());
        let thread = std::thread::spawn(move || {
            // SAFETY: reads a number.
            their_tid.store(unsafe { libc::gettid() }, Ordering::Release);
            while !theirs.load(Ordering::Relaxed) {
                work();
            }
        });
        while tid.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        Self {
            tid: tid.load(Ordering::Relaxed),
            stop,
            thread: Some(thread),
        }
    }

    /// Binds the thread to the first CPU that this process may use.
    fn pin(self) -> Self {
        // SAFETY: a set of bits, for which zeros are valid.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is writable and as long as said.
        unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
        let first = (0..1024)
            // SAFETY: the number lies in the set.
            .find(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) })
            .unwrap();
        // SAFETY: as above.
        let mut one: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the number lies in the set.
        unsafe { libc::CPU_SET(first, &mut one) };
        // SAFETY: the set is readable and as long as said.
        unsafe { libc::sched_setaffinity(self.tid, size_of_val(&one), &raw const one) };
        self
    }

    /// Lets the thread run only when no other wants the CPU.
    fn idle_class(self) -> Self {
        let parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: the parameters are readable.
        unsafe { libc::sched_setscheduler(self.tid, libc::SCHED_IDLE, &raw const parameters) };
        self
    }
}

impl Drop for WorkingThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn spin() {
    for _ in 0..1000 {
        std::hint::spin_loop();
    }
}

fn subject(tid: i32, preemptive: &[i32]) -> SuspectedScheduler<'static> {
    SuspectedScheduler {
        scheduler: 0,
        tid,
        offender: None,
        preemptive: preemptive.to_vec(),
        switched_out: Box::new(std::iter::empty()),
        task_name: Box::new(|worker| format!("task of {worker}")),
    }
}

/// The first stall of a subject whose progress does not change.
fn next_stall<'a>(duty: SchedulerDuty, subject: impl Fn() -> SuspectedScheduler<'a>) -> Stall {
    let mut watch = ProgressWatch::new(ProgressWatch::DEFAULT_THRESHOLD);
    loop {
        if let Some(stall) = watch.look(Instant::now(), 1, duty, &subject) {
            return stall;
        }
        std::thread::sleep(Duration::from_millis(4));
    }
}

/// The first stall with this verdict.
fn stall_with<'a>(
    expected: StallVerdict,
    duty: SchedulerDuty,
    subject: impl Fn() -> SuspectedScheduler<'a>,
) -> Stall {
    let end = Instant::now() + Duration::from_secs(120);
    loop {
        let stall = next_stall(duty, &subject);
        if stall.verdict == expected {
            return stall;
        }
        assert!(Instant::now() < end, "never {expected}, but\n{stall}");
    }
}

/// Asserts that the verdict comes.
fn assert_verdict(expected: StallVerdict, duty: SchedulerDuty, tid: i32, preemptive: &[i32]) {
    stall_with(expected, duty, || subject(tid, preemptive));
}

/// Row "mostly in user mode" of the table.
#[test]
fn a_loop_is_a_user_loop() {
    let load = WorkingThread::start(spin);
    assert_verdict(
        StallVerdict::UserLoop,
        SchedulerDuty::Running,
        load.tid,
        &[],
    );
}

/// Row "mostly in the kernel".
#[test]
fn a_loop_of_system_calls_is_inside_the_kernel() {
    let load = WorkingThread::start(|| {
        let mut bytes = [0_u8; 4096];
        // SAFETY: the bytes are writable.
        unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    });
    assert_verdict(
        StallVerdict::InsideKernel,
        SchedulerDuty::Running,
        load.tid,
        &[],
    );
}

/// Row "blocked" of the table.
#[test]
fn a_sleep_is_blocking() {
    let load = WorkingThread::start(|| std::thread::sleep(Duration::from_millis(500)));
    assert_verdict(
        StallVerdict::BlockedInCall,
        SchedulerDuty::Running,
        load.tid,
        &[],
    );
}

/// Rows "waited for a CPU": the same busy thread, once of another program, once the scheduler's
/// own.
#[test]
fn a_starved_thread_is_not_scheduled_and_its_own_hog_is_named() {
    let hog = WorkingThread::start(spin).pin();
    let load = WorkingThread::start(spin).pin().idle_class();
    assert_verdict(
        StallVerdict::NotScheduled,
        SchedulerDuty::Running,
        load.tid,
        &[],
    );
    assert_verdict(
        StallVerdict::StarvedByPreemptive,
        SchedulerDuty::Running,
        load.tid,
        &[hog.tid],
    );
}

/// Row "no worker ran, though one is runnable".
#[test]
fn a_sleeping_scheduler_with_work_is_a_queue_stall() {
    let load = WorkingThread::start(|| std::thread::sleep(Duration::from_millis(500)));
    assert_verdict(
        StallVerdict::QueueStalled,
        SchedulerDuty::Queued,
        load.tid,
        &[],
    );
}

/// A thread that waits for a `std` lock leads to the stack with the guard.
#[test]
fn the_holder_of_a_std_lock_is_named() {
    let mutex = Arc::new(Mutex::new(0));
    let guard = mutex.lock().unwrap();
    let theirs = mutex.clone();
    let (send, receive) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        // SAFETY: reads a number.
        send.send(unsafe { libc::gettid() }).unwrap();
        drop(theirs.lock());
    });
    let tid = receive.recv().unwrap();
    let start = (&raw const guard).addr();
    let range = start..start + size_of_val(&guard);
    let (blocked, running) = (StallVerdict::BlockedInCall, SchedulerDuty::Running);
    let stall = stall_with(blocked, running, || SuspectedScheduler {
        switched_out: Box::new([(6, 0..0), (7, range.clone())].into_iter()),
        ..subject(tid, &[])
    });
    drop(guard);
    thread.join().unwrap();
    let text = stall.to_string();
    assert!(
        text.contains("worker 7 (task \"task of 7\") probably holds"),
        "{text}"
    );
    assert!(text.contains("futex("), "{text}");
}

/// No sample is taken while there is progress, while the scheduler is idle, or after the report.
#[test]
fn only_a_suspect_is_looked_at_and_a_stall_is_told_once() {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let looked = std::cell::Cell::new(0);
    // SAFETY: reads a number.
    let own = unsafe { libc::gettid() };
    let mut watch = ProgressWatch::new(Duration::from_millis(25));
    let mut look = |ms, progress, duty| {
        let stall = watch.look(at(ms), progress, duty, || {
            looked.set(looked.get() + 1);
            subject(own, &[])
        });
        (stall.is_some(), looked.get())
    };
    assert_eq!(look(0, 1, SchedulerDuty::Running), (false, 0));
    assert_eq!(look(12, 1, SchedulerDuty::Running), (false, 0));
    assert_eq!(look(24, 2, SchedulerDuty::Running), (false, 0));
    assert_eq!(look(36, 2, SchedulerDuty::Running), (false, 0));
    assert_eq!(look(37, 2, SchedulerDuty::Running), (false, 1));
    assert_eq!(look(48, 2, SchedulerDuty::Running), (false, 1));
    assert_eq!(look(49, 2, SchedulerDuty::Running), (true, 2));
    assert_eq!(look(900, 2, SchedulerDuty::Running), (false, 2));
    assert_eq!(look(901, 3, SchedulerDuty::Idle), (false, 2));
    assert_eq!(look(2000, 3, SchedulerDuty::Idle), (false, 2));
    // A monitor that comes late still takes two samples.
    assert_eq!(look(2001, 3, SchedulerDuty::Queued), (false, 2));
    assert_eq!(look(3000, 3, SchedulerDuty::Queued), (false, 3));
    assert_eq!(look(3001, 3, SchedulerDuty::Queued), (false, 3));
    assert_eq!(look(3007, 3, SchedulerDuty::Queued), (true, 4));
}
