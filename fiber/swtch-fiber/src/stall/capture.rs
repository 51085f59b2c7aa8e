//! Registers and a copy of the stack of a running thread, taken by the thread itself.
//!
//! The monitor sends the thread a directed signal. The handler copies the interrupted state into
//! memory that was allocated before, and the monitor does the rest: unwinding walks tables of
//! loaded files and finding names opens files, and neither may be done in a signal handler
//! (signal-safety(7)). So the handler takes no lock and allocates nothing. The kernel copies the
//! stack and stops at the first page that is not mapped, so the bounds of the stack need not be
//! known.
//!
//! ```text
//! monitor                           thread
//! FREE → asked(tid)  ── tgkill ──▶  asked(tid) → FILLING, copies, → FILLED
//! polls ◀───────────────────────────────────────────────────────────┘
//! asked(tid) → FREE, when it does not run and so does not answer
//! ```
//!
//! The effect on the thread: a blocking system call is interrupted. With `SA_RESTART` the kernel
//! restarts most calls unnoticed. [`restarts`] knows which; threads in other calls are not
//! signalled.
//!
//! The signal is the highest real-time signal without a handler when the first stall is suspected;
//! in a process without a free one, none is used. The handler runs on the thread's alternate stack,
//! if it has one, because workers' stacks are small.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use super::memory;
use crate::arch::{self, SYSTEM_CALL};
use swtch_unwind::{REGISTERS, Registers};

/// Most bytes of stack that are copied, from the innermost frame on.
pub const STACK_BYTES: usize = 64 * 1024;

/// The time between two checks by the monitor whether the thread has answered.
const POLL: Duration = Duration::from_micros(100);

/// The state of a thread when the signal interrupted it.
#[derive(Debug)]
pub struct ThreadSnapshot {
    /// Registers of the interrupted code.
    pub registers: Registers,
    /// Address at which the copy of the stack begins.
    pub stack_start: usize,
    /// The copy, from the innermost frame on; empty if `process_vm_readv` is forbidden.
    pub stack: Vec<u8>,
    /// CPU time of the thread, measured by itself.
    pub usage: Usage,
}

/// Data that only the thread itself can read quickly and precisely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// CPU time in user mode, ns.
    pub user_ns: u64,
    /// CPU time in the kernel, ns.
    pub kernel_ns: u64,
    /// True if the instruction before the interrupted one is a system call: the signal was delivered on the way out of
    /// the kernel.
    pub behind_call: bool,
}

const FREE: u64 = 0;
const FILLING: u64 = 1;
const FILLED: u64 = 2;

/// The state of the slot in which thread `tid` is asked.
fn asked(tid: i32) -> u64 {
    u64::from(tid.unsigned_abs()) << 2 | 3
}

/// The only slot for an answer; the monitors of several runtimes take turns.
struct CaptureSlot {
    state: AtomicU64,
    answer: UnsafeCell<CapturedThread>,
}

struct CapturedThread {
    registers: Registers,
    stack_start: usize,
    stack_len: usize,
    stack: [u8; STACK_BYTES],
    usage: Usage,
}

// SAFETY: `answer` belongs to the monitor that holds `TURN`, except from `asked` to `FILLED`, when
// it belongs to the handler of the asked thread that moved `state` to `FILLING`.
unsafe impl Sync for CaptureSlot {}

static SLOT: CaptureSlot = CaptureSlot {
    state: AtomicU64::new(FREE),
    answer: UnsafeCell::new(CapturedThread {
        registers: Registers::new(0, [None; REGISTERS]),
        stack_start: 0,
        stack_len: 0,
        stack: [0; STACK_BYTES],
        usage: Usage {
            user_ns: 0,
            kernel_ns: 0,
            behind_call: false,
        },
    }),
};

/// Held by the monitor that is asking.
static TURN: Mutex<()> = Mutex::new(());

/// The signal, once it is installed; `None` if no real-time signal was free.
static SIGNAL: OnceLock<Option<i32>> = OnceLock::new();

/// Installs the handler at the first call. Returns the number of the signal.
pub fn install() -> Option<i32> {
    *SIGNAL.get_or_init(|| {
        let free = (libc::SIGRTMIN()..=libc::SIGRTMAX())
            .rev()
            .find(|signal| is_free(*signal))?;
        // SAFETY: a plain structure, for which zeros are valid: no flags, an empty mask.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = (on_signal as extern "C" fn(_, _, _)) as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        // SAFETY: the handler has the signature that SA_SIGINFO asks for, and is async-signal-safe.
        let result = unsafe { libc::sigaction(free, &raw const action, std::ptr::null_mut()) };
        (result == 0).then_some(free)
    })
}

/// The signal, if it was ever installed.
pub(super) fn signal() -> Option<i32> {
    SIGNAL.get().copied().flatten()
}

/// Returns true if the signal has its default action.
fn is_free(signal: i32) -> bool {
    // SAFETY: as above.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: only asks; `action` is writable.
    let result = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    result == 0 && action.sa_sigaction == libc::SIG_DFL
}

/// Asks thread `tid` of this process for its state. `None` when it does not answer in time, because
/// it does not run, or blocks the signal, or has ended.
pub fn capture(tid: i32, patience: Duration) -> Option<ThreadSnapshot> {
    let signal = install()?;
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    SLOT.state.store(asked(tid), Ordering::Release);
    // SAFETY: reads its own number.
    let process = unsafe { libc::getpid() };
    // SAFETY: a number that is no longer a thread of this process gives an error.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, process, tid, signal) } == 0;
    let end = Instant::now() + patience;
    while SLOT.state.load(Ordering::Acquire) != FILLED {
        if sent && Instant::now() < end {
            std::thread::sleep(POLL);
            continue;
        }
        // If this fails, the thread has begun to answer, and will be done soon.
        let withdrawn =
            SLOT.state
                .compare_exchange(asked(tid), FREE, Ordering::Acquire, Ordering::Acquire);
        if withdrawn.is_ok() {
            return None;
        }
        std::thread::sleep(POLL);
    }
    // SAFETY: this monitor has the turn; the slot is filled, and the handler has left it.
    let answer = unsafe { &*SLOT.answer.get() };
    let mut usage = answer.usage;
    usage.behind_call = is_behind_call(answer.registers.pc);
    let capture = ThreadSnapshot {
        registers: answer.registers,
        stack_start: answer.stack_start,
        stack: answer.stack[..answer.stack_len].to_vec(),
        usage,
    };
    SLOT.state.store(FREE, Ordering::Release);
    Some(capture)
}

/// The handler. Runs on the asked thread, which may have been interrupted anywhere.
extern "C" fn on_signal(_signal: i32, _info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: reads its own number; async-signal-safe.
    let own = asked(unsafe { libc::gettid() });
    let begun = SLOT
        .state
        .compare_exchange(own, FILLING, Ordering::Acquire, Ordering::Relaxed);
    if begun.is_err() {
        // The monitor gave up meanwhile.
        return;
    }
    // SAFETY: the address of the thread's `errno`, always valid.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let saved = unsafe { *errno };
    // SAFETY: the kernel hands a handler with SA_SIGINFO its context.
    let registers = arch::registers(unsafe { &*context.cast::<libc::ucontext_t>() });
    // SAFETY: the handler that moves the state to FILLING owns the answer until FILLED.
    fill(unsafe { &mut *SLOT.answer.get() }, registers);
    // SAFETY: as above.
    unsafe { *errno = saved };
    SLOT.state.store(FILLED, Ordering::Release);
}

/// Fills in registers, stack and CPU times.
fn fill(answer: &mut CapturedThread, registers: Registers) {
    let start = registers
        .stack_pointer()
        .and_then(|start| usize::try_from(start).ok());
    let start = start.unwrap_or(0);
    answer.registers = registers;
    answer.stack_start = start;
    answer.stack_len = memory::read(start, &mut answer.stack);
    // SAFETY: a plain structure of numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is writable; a bare system call.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    answer.usage = Usage {
        user_ns: nanoseconds(usage.ru_utime),
        kernel_ns: nanoseconds(usage.ru_stime),
        behind_call: false,
    };
}

fn nanoseconds(time: libc::timeval) -> u64 {
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_usec.unsigned_abs() * 1000
}

/// Returns true if the instruction before `pc` is a system call.
fn is_behind_call(pc: u64) -> bool {
    let mut before = SYSTEM_CALL.map(|byte| !byte);
    usize::try_from(pc)
        .ok()
        .and_then(|pc| pc.checked_sub(before.len()))
        .is_some_and(|start| memory::read(start, &mut before) == before.len())
        && before == SYSTEM_CALL
}

/// Returns true if the kernel restarts a system call after a handler that was installed with `SA_RESTART`, so that the
/// program does not notice. The list is that of signal(7), without the calls on sockets, which are not restarted when
/// the socket has a timeout.
pub fn restarts(number: i64) -> bool {
    const RESTARTED: &[i64] = &[
        libc::SYS_read,
        libc::SYS_readv,
        libc::SYS_pread64,
        libc::SYS_preadv,
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_pwrite64,
        libc::SYS_pwritev,
        libc::SYS_ioctl,
        libc::SYS_openat,
        libc::SYS_wait4,
        libc::SYS_waitid,
        libc::SYS_flock,
        libc::SYS_fcntl,
        libc::SYS_mq_timedreceive,
        libc::SYS_mq_timedsend,
        libc::SYS_futex,
        libc::SYS_getrandom,
        libc::SYS_fsync,
        libc::SYS_fdatasync,
    ];
    RESTARTED.contains(&number)
}

#[cfg(test)]
mod tests;
