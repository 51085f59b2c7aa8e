use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32};

use super::*;
use crate::stall::backtrace::{self, Backtrace};
use crate::stall::evidence::{Call, ThreadSample};

/// The time after which nothing more will come.
const PATIENCE: Duration = Duration::from_secs(120);

/// A thread that works until it is told to stop.
struct BusyThread {
    tid: i32,
    stop: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<u64>,
}

impl BusyThread {
    fn start(work: impl FnOnce(&AtomicBool) -> u64 + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let tid = Arc::new(AtomicI32::new(0));
        let (theirs, their_tid) = (stop.clone(), tid.clone());
        let thread = std::thread::spawn(move || {
            // SAFETY: reads a number.
            their_tid.store(unsafe { libc::gettid() }, Ordering::Release);
            work(&theirs)
        });
        while tid.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        Self {
            tid: tid.load(Ordering::Relaxed),
            stop,
            thread,
        }
    }

    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }

    /// Takes backtraces until one is good, because the machine may be busy.
    fn backtrace(&self, is_good: impl Fn(&ThreadSample, &str) -> bool) -> (Backtrace, String) {
        let end = Instant::now() + PATIENCE;
        loop {
            let sample = ThreadSample::take(self.tid, &[]);
            let (backtrace, _) = backtrace::take(self.tid, &sample);
            let text = backtrace.to_string();
            if is_good(&sample, &text) {
                return (backtrace, text);
            }
            assert!(Instant::now() < end, "{text}");
        }
    }
}

#[inline(never)]
fn innermost_loop(stop: &AtomicBool) -> u64 {
    let mut rounds = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        rounds = std::hint::black_box(rounds.wrapping_add(1));
    }
    std::hint::black_box(rounds)
}

#[inline(never)]
fn outer_frame(stop: &AtomicBool) -> u64 {
    std::hint::black_box(innermost_loop(stop)) + 1
}

/// The name of the function that stalls is what a reader wants first.
#[test]
fn a_loop_and_its_callers_are_named() {
    let worker = BusyThread::start(outer_frame);
    let (backtrace, text) = worker.backtrace(|_, text| text.contains("innermost_loop"));
    worker.end();
    let inner = text.find("innermost_loop").unwrap();
    let outer = text.find("outer_frame").unwrap();
    assert!(inner < outer, "{text}");
    assert!(text.contains("tests.rs:"), "{text}");
    assert_eq!(backtrace.missing, None, "{text}");
}

/// Calls its first argument with its second, as code compiled with `-mbranch-protection` does: the
/// return address on the stack is signed, and the tables say so.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
unsafe extern "C" fn call_with_signed_return(
    work: unsafe extern "C" fn(*const AtomicBool),
    stop: *const AtomicBool,
) {
    std::arch::naked_asm!(
        ".cfi_startproc",
        "hint #25", // paciasp
        ".cfi_negate_ra_state",
        "stp x29, x30, [sp, #-16]!",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset x29, -16",
        ".cfi_offset x30, -8",
        "mov x2, x0",
        "mov x0, x1",
        "blr x2",
        "ldp x29, x30, [sp], #16",
        ".cfi_def_cfa_offset 0",
        ".cfi_restore x29",
        ".cfi_restore x30",
        "hint #29", // autiasp
        ".cfi_negate_ra_state",
        "ret",
        ".cfi_endproc",
    )
}

/// Distributions compile their C libraries so, and a stack that ends there does not name its caller.
#[cfg(target_arch = "aarch64")]
#[test]
fn callers_of_code_that_signs_are_named() {
    unsafe extern "C" fn work(stop: *const AtomicBool) {
        // SAFETY: the caller of `call_with_signed_return` passes a reference.
        std::hint::black_box(innermost_loop(unsafe { &*stop }));
    }
    #[inline(never)]
    fn frame_before_the_signed_one(stop: &AtomicBool) -> u64 {
        // SAFETY: `work` takes what is passed.
        unsafe { call_with_signed_return(work, stop) };
        std::hint::black_box(1)
    }
    let worker = BusyThread::start(frame_before_the_signed_one);
    let (backtrace, text) = worker.backtrace(|_, text| text.contains("innermost_loop"));
    worker.end();
    assert!(text.contains("frame_before_the_signed_one"), "{text}");
    assert_eq!(backtrace.missing, None, "{text}");
}

/// A thread in `sleep` must not be woken, because the call ends early when a signal interrupts it.
/// Its stack is read from outside.
#[test]
fn a_sleeping_thread_is_not_disturbed() {
    let worker = BusyThread::start(|stop| {
        let time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 20_000_000,
        };
        let mut interrupted = 0;
        while !stop.load(Ordering::Relaxed) {
            // SAFETY: the time is readable; what would be left of it is not wanted.
            let result = unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
            interrupted += u64::from(result.unsigned_abs());
        }
        interrupted
    });
    let (backtrace, _) = worker.backtrace(|sample, text| {
        matches!(sample.call, Call::Inside { .. }) && text.contains("nanosleep")
    });
    assert!(!backtrace.addresses.is_empty());
    assert_eq!(worker.end(), 0);
}

/// A `read` that is interrupted is restarted, so the signal is not noticed.
#[test]
fn a_blocked_read_is_restarted() {
    let (read, write) = std::io::pipe().unwrap();
    let worker = BusyThread::start(move |_| {
        let fd = std::os::fd::AsRawFd::as_raw_fd(&read);
        let mut byte = 0_u8;
        // SAFETY: the byte is writable, and the pipe is open.
        let result = unsafe { libc::read(fd, (&raw mut byte).cast(), 1) };
        u64::from(result == 1 && byte == 7)
    });
    worker.backtrace(|sample, text| {
        matches!(sample.call, Call::Inside { .. }) && text.contains("read")
    });
    for _ in 0..20 {
        capture(worker.tid, Duration::from_millis(8));
    }
    std::io::Write::write_all(&mut &write, &[7]).unwrap();
    assert_eq!(worker.end(), 1);
}

/// The thread may be interrupted anywhere: in the allocator, in the loader, while it unwinds a
/// panic. It must not crash, and its results must not change.
#[test]
fn captures_disturb_no_work() {
    let worker = BusyThread::start(|stop| {
        let mut sum = 0_u64;
        while !stop.load(Ordering::Relaxed) {
            let text = vec![format!("{sum}"); 10].join(",");
            let caught = std::panic::catch_unwind(|| std::panic::resume_unwind(Box::new(text)));
            let text = caught.unwrap_err().downcast::<String>().unwrap();
            assert!(text.starts_with(&sum.to_string()));
            // SAFETY: looks up a name.
            assert!(!unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"read".as_ptr()) }.is_null());
            sum += 1;
        }
        sum
    });
    let end = Instant::now() + PATIENCE;
    let mut answers = 0;
    let mut frames = 0;
    while answers < 500 || frames <= 3 {
        assert!(Instant::now() < end, "{answers} answers, {frames} frames");
        let sample = ThreadSample::take(worker.tid, &[]);
        let (backtrace, usage) = backtrace::take(worker.tid, &sample);
        answers += u32::from(usage.is_some());
        frames = frames.max(backtrace.addresses.len());
    }
    assert!(worker.end() > 0);
}

/// The monitor must not wait for ever, and a late answer must not be taken for the next one.
#[test]
fn a_thread_that_blocks_the_signal_is_given_up() {
    let signal = install().unwrap();
    let deaf = BusyThread::start(move |stop| {
        // SAFETY: a set of signals, for which zeros are valid.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: the set is writable.
        unsafe { libc::sigaddset(&raw mut set, signal) };
        // SAFETY: blocks a signal of this thread.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
        innermost_loop(stop)
    });
    // It may be asked before it blocks the signal.
    let end = Instant::now() + PATIENCE;
    while capture(deaf.tid, Duration::from_millis(5)).is_some() {
        assert!(Instant::now() < end, "it answers");
    }
    let other = BusyThread::start(outer_frame);
    other.backtrace(|_, text| text.contains("innermost_loop"));
    other.end();
    deaf.end();
    assert!(capture(i32::MAX, Duration::from_millis(5)).is_none());
}
