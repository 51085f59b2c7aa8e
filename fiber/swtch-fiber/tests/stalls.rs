//! Deliberate faults, and the verdict that each must get, in both modes.
//!
//! On a busy machine the OS may really not schedule a thread at that moment, and the verdict says
//! so. Hence a fault is repeated until its verdict comes.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use swtch_fiber::stall::{Stall, StallVerdict};
use swtch_fiber::{Mode, Runtime, WaitType, check_quantum, preemptive, sleep, spawn, yield_now};

const MODES: [Mode; 2] = [Mode::Fiber, Mode::Thread];

/// A verdict that has not come by then does not come.
const PATIENCE: Duration = Duration::from_secs(120);

/// The time for which a fault lasts: several times the threshold.
const FAULT: Duration = Duration::from_millis(120);

/// Faults use up CPUs, so only one runs at a time.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A runtime with one scheduler on one CPU, and its reported stalls.
fn one_scheduler(mode: Mode) -> (Runtime, mpsc::Receiver<Stall>) {
    let (send, receive) = mpsc::channel();
    let runtime = Runtime::builder()
        .schedulers(1)
        .pinned(true)
        .mode(mode)
        .on_stall(move |stall| {
            // The test may have ended already.
            let _ = send.send(stall.clone());
        })
        .build()
        .expect("a runtime");
    (runtime, receive)
}

/// Repeats a fault until its verdict comes; returns the stall.
fn assert_verdict(expected: StallVerdict, mode: Mode, fault: impl Fn(&Runtime)) -> Stall {
    assert_stall(expected, mode, fault, |_| true)
}

/// As [`assert_verdict`], until the stall also has the required contents. On a busy machine a
/// thread may not run in time to give its backtrace, and the report says so.
fn assert_stall(
    expected: StallVerdict,
    mode: Mode,
    fault: impl Fn(&Runtime),
    is_expected: impl Fn(&Stall) -> bool,
) -> Stall {
    let mut last = format!("no stall at all in {mode:?} mode");
    let end = Instant::now() + PATIENCE;
    while Instant::now() < end {
        let (runtime, stalls) = one_scheduler(mode);
        fault(&runtime);
        // A report may still be on its way, since its thread runs on its own.
        drop(runtime);
        for stall in stalls {
            if stall.verdict == expected && is_expected(&stall) {
                return stall;
            }
            last = stall.to_string();
        }
    }
    panic!("never {expected} in {mode:?} mode, but: {last}");
}

fn spin(span: Duration) {
    let end = Instant::now() + span;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

fn gettid() -> i32 {
    // SAFETY: reads a number.
    unsafe { libc::gettid() }
}

#[inline(never)]
fn a_loop_that_never_yields() {
    spin(FAULT);
    std::hint::black_box(());
}

/// Fault 1: an endless loop. Its report names the task and the loop.
#[test]
fn a_user_loop_is_named() {
    let _turn = turn();
    for mode in MODES {
        let fault = |runtime: &Runtime| {
            let task = swtch_fiber::TaskBuilder::new().name("greedy");
            let task = runtime.spawn_with(task, a_loop_that_never_yields).unwrap();
            task.join().unwrap();
        };
        let has_backtrace = |stall: &Stall| stall.backtrace.missing.is_none();
        let stall = assert_stall(StallVerdict::UserLoop, mode, fault, has_backtrace);
        assert_eq!(stall.offender.as_ref().unwrap().name, "greedy");
        let text = stall.to_string();
        assert!(text.contains("a_loop_that_never_yields"), "{text}");
    }
}

/// Fault 2: the CPU time is spent in the kernel.
#[test]
fn a_loop_of_system_calls_is_inside_the_kernel() {
    let _turn = turn();
    for mode in MODES {
        assert_verdict(StallVerdict::InsideKernel, mode, |runtime| {
            let body = || {
                let end = Instant::now() + FAULT;
                let mut bytes = [0_u8; 4096];
                while Instant::now() < end {
                    // SAFETY: the bytes are writable.
                    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
                }
            };
            runtime.run(body).unwrap();
        });
    }
}

/// Fault 3: a call that blocks the thread, and is not disturbed by the samples.
#[test]
fn a_blocking_call_is_named() {
    let _turn = turn();
    for mode in MODES {
        let stall = assert_verdict(StallVerdict::BlockedInCall, mode, |runtime| {
            let body = || {
                let time = libc::timespec {
                    tv_sec: 0,
                    tv_nsec: FAULT.subsec_nanos().into(),
                };
                // SAFETY: the time is readable; what would be left of it is not wanted.
                unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) }
            };
            assert_eq!(runtime.run(body).unwrap(), 0);
        });
        let text = stall.to_string();
        assert!(text.contains("nanosleep("), "{text}");
    }
}

/// A thread that uses up the CPU on which it is started, until this is dropped.
struct CpuHog(Arc<AtomicBool>, Option<std::thread::JoinHandle<()>>);

impl CpuHog {
    /// Starts it on the CPU of the calling thread, which must be bound to that CPU.
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = stop.clone();
        let thread = std::thread::spawn(move || {
            while !theirs.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        Self(stop, Some(thread))
    }
}

impl Drop for CpuHog {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        let thread = self.1.take().expect("taken here only");
        thread.join().expect("it only spins");
    }
}

/// Lets thread `tid` run only when no other wants its CPU, or normally again.
fn set_policy(tid: i32, policy: i32) {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameters are readable.
    unsafe { libc::sched_setscheduler(tid, policy, &raw const parameters) };
}

/// Fault 4: another program's thread uses the CPU.
#[test]
fn a_starved_scheduler_is_not_scheduled() {
    let _turn = turn();
    for mode in MODES {
        assert_verdict(StallVerdict::NotScheduled, mode, |runtime| {
            let body = || {
                let hog = CpuHog::start();
                set_policy(0, libc::SCHED_IDLE);
                spin(FAULT);
                set_policy(0, libc::SCHED_OTHER);
                drop(hog);
            };
            runtime.run(body).unwrap();
        });
    }
}

/// Fault 5: preemptive work of the scheduler itself uses the CPU.
#[test]
fn preemptive_work_that_starves_its_scheduler_is_named() {
    let _turn = turn();
    for mode in MODES {
        assert_verdict(StallVerdict::StarvedByPreemptive, mode, |runtime| {
            let body = || {
                let wait_type = WaitType::named("PREEMPTIVE_HOG").unwrap();
                let hog = spawn(move || preemptive(wait_type, || spin(FAULT * 2))).unwrap();
                yield_now();
                set_policy(0, libc::SCHED_IDLE);
                spin(FAULT);
                set_policy(0, libc::SCHED_OTHER);
                hog.join().unwrap();
            };
            runtime.run(body).unwrap();
        });
    }
}

/// The handler of fault 6, which sleeps for long.
extern "C" fn doze(_signal: i32) {
    std::thread::sleep(FAULT);
}

/// Fault 6: an idle scheduler does not run a queued task, because a signal handler keeps its
/// thread.
#[test]
fn a_queue_that_is_not_served_is_stalled() {
    let _turn = turn();
    // SAFETY: a plain structure, for which zeros are valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = (doze as extern "C" fn(i32)) as usize;
    action.sa_flags = libc::SA_ONSTACK;
    // SAFETY: the handler calls nothing but `nanosleep`.
    unsafe { libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()) };
    for mode in MODES {
        assert_verdict(StallVerdict::QueueStalled, mode, |runtime| {
            let tid = runtime.run(gettid).unwrap();
            std::thread::sleep(Duration::from_millis(10));
            // SAFETY: a thread of this process, which has a handler.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, libc::SIGUSR2) };
            std::thread::sleep(Duration::from_millis(10));
            runtime.run(|| ()).unwrap();
        });
    }
}

/// The trap of `std` locks: a worker yields while it holds a guard, and the next one blocks the
/// thread that both need. Only in fiber mode this lasts for ever; here the lock is opened from
/// outside.
#[test]
fn who_holds_a_std_lock_over_a_yield_is_named() {
    let _turn = turn();
    static LOCK: Mutex<()> = Mutex::new(());
    let (send, stalls) = mpsc::channel();
    let opened = Arc::new(AtomicI32::new(0));
    let theirs = opened.clone();
    let runtime = Runtime::builder()
        .schedulers(1)
        .on_stall(move |stall| {
            if !stall.holders.is_empty() {
                // Set the lock's word to unlocked, and wake its waiter.
                open(stall.numbers.call);
                theirs.store(1, Ordering::SeqCst);
            }
            let _ = send.send(stall.clone());
        })
        .build()
        .unwrap();
    let holder = swtch_fiber::TaskBuilder::new().name("holder");
    let holder = runtime.spawn_with(holder, move || {
        let guard = LOCK.lock().unwrap();
        while opened.load(Ordering::SeqCst) == 0 {
            yield_now();
        }
        // The lock was opened by force, so the guard must not unlock it again.
        std::mem::forget(guard);
    });
    let victim = runtime.spawn(|| std::mem::forget(LOCK.lock().unwrap()));
    victim.unwrap().join().unwrap();
    holder.unwrap().join().unwrap();
    drop(runtime);
    let text: Vec<_> = stalls.iter().map(|stall| stall.to_string()).collect();
    let text = text.join("\n");
    assert!(
        text.contains("(task \"holder\") probably holds that std lock over a yield"),
        "{text}"
    );
}

/// Unlocks by force the lock that a thread waits for.
fn open(call: swtch_fiber::stall::Call) {
    let address = swtch_fiber::internals::waited_at(call).expect("a lock");
    let address = usize::try_from(address).expect("an address");
    let word = std::ptr::with_exposed_provenance_mut::<u32>(address);
    // SAFETY: the word of a lock that lives for ever, which all use atomically.
    let word = unsafe { std::sync::atomic::AtomicU32::from_ptr(word) };
    word.store(0, Ordering::SeqCst);
    let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: wakes who waits there.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), wake, 1) };
}

/// Twice as many busy schedulers as CPUs, with workers that yield, wait and sleep: the OS switches
/// threads all the time, and that is no stall. Seconds: `SWTCH_STALL_SECONDS`, 3 by default.
///
/// On a machine that is busy with other work too, a thread may lack a CPU for longer than the
/// threshold. A report that says so is right, and any other is not.
#[test]
fn oversubscription_alone_is_no_stall() {
    let _turn = turn();
    let seconds = std::env::var("SWTCH_STALL_SECONDS");
    let seconds = seconds.map_or(3, |text| text.parse().unwrap());
    let cpus = std::thread::available_parallelism().unwrap().get();
    for mode in MODES {
        let (send, stalls) = mpsc::channel();
        let runtime = Runtime::builder()
            .schedulers(cpus * 2)
            .mode(mode)
            .on_stall(move |stall| drop(send.send(stall.clone())))
            .build()
            .unwrap();
        let end = Instant::now() + Duration::from_secs(seconds) / 2;
        let workers: Vec<_> = (0..cpus * 8)
            .map(|number| {
                let body = move || {
                    while Instant::now() < end {
                        for _ in 0..1000 {
                            std::hint::black_box(number);
                        }
                        check_quantum();
                        if number % 4 == 0 {
                            sleep(Duration::from_millis(1));
                        }
                    }
                };
                runtime.spawn(body).unwrap()
            })
            .collect();
        for worker in workers {
            worker.join().unwrap();
        }
        drop(runtime);
        let mut others = 0;
        for stall in stalls {
            others += u32::from(stall.verdict == StallVerdict::NotScheduled);
            assert_eq!(stall.verdict, StallVerdict::NotScheduled, "{stall}");
        }
        eprintln!("{mode:?}: {others} times others used the CPU for 25 ms");
    }
}
