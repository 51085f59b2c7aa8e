//! Reports a stack overflow with the name of its worker, instead of a bare `SIGSEGV`.
//!
//! The fault address decides. If it lies in the guard of one of our stacks, the handler reports
//! whose stack that is, how large, and what to do, and aborts. The same happens for a fault below
//! the stack of a thread that runs a task (`threads`). Any other fault is passed on to the handler
//! that was installed before, with everything that `sigaction` promises to it. Rust's own message
//! for ordinary threads is kept that way.
//!
//! ```text
//!  SIGSEGV, SIGBUS ─▶ in a guard of ours? ─yes─▶ message, abort
//!   (alternate stack)        └─no─▶ handler before us ─▶ … ─▶ default action: the fault again
//! ```
//!
//! The handler takes no lock and allocates nothing: it reads the list of slabs and the owner of the
//! slot, and calls [`set_describe`]'s function for the name of the worker's task.

use std::cell::UnsafeCell;
use std::fmt::{self, Write};
use std::io;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use super::alternate::AlternateStack;
use super::geometry::SlotPart;
use super::slab::Slot;
use super::threads;
use crate::arch::stack_pointer;
use crate::last_words::{LastWords, abort_with};

/// Writes the task of a worker, which is given by its index. Runs in a signal handler: it must
/// neither allocate nor lock.
pub type Describe = fn(worker_index: u32, out: &mut dyn Write) -> fmt::Result;

/// The function that describes workers; unset before [`set_describe`].
static DESCRIBE: OnceLock<Describe> = OnceLock::new();

/// Signals of faults. A guard of ours raises only the first, but both are handled and passed on.
const SIGNALS: [libc::c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// The actions that were installed before ours, for each of [`SIGNALS`].
static PREVIOUS: [Previous; 2] = [Previous::new(), Previous::new()];

/// Sets the function that describes workers in messages; only the first call has an effect.
pub fn set_describe(describe: Describe) {
    let _ = DESCRIBE.set(describe);
}

/// While this lives, an overflow of a pooled stack on this thread is reported.
#[derive(Debug)]
#[must_use = "the thread is guarded only as long as this lives"]
pub struct OverflowGuard {
    _alternate: AlternateStack,
}

/// Prepares the calling thread for overflows: installs the handler, once per process, and gives the
/// thread an alternate signal stack if its own is small.
///
/// # Errors
///
/// When the kernel has no memory for the alternate stack.
pub fn guard_this_thread() -> io::Result<OverflowGuard> {
    guard_with(AlternateStack::of_this_thread()?)
}

/// As [`guard_this_thread`], for one of many threads that run tasks on their own stacks.
pub(crate) fn guard_one_of_many() -> io::Result<OverflowGuard> {
    guard_with(AlternateStack::of_one_of_many()?)
}

fn guard_with(alternate: AlternateStack) -> io::Result<OverflowGuard> {
    static INSTALLED: Mutex<bool> = Mutex::new(false);
    let mut installed = INSTALLED.lock().unwrap_or_else(PoisonError::into_inner);
    if !*installed {
        for (signal, previous) in SIGNALS.into_iter().zip(&PREVIOUS) {
            previous.install_after(signal)?;
        }
        *installed = true;
    }
    Ok(OverflowGuard {
        _alternate: alternate,
    })
}

/// Signals with handlers that were installed without `SA_ONSTACK` and would run on the stack of the
/// worker that they interrupt. On small stacks such a handler can cause an overflow.
pub fn handlers_without_onstack() -> Vec<libc::c_int> {
    (1..=libc::SIGRTMAX())
        .filter(|signal| {
            action_of(*signal).is_ok_and(|action| {
                !matches!(action.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN)
                    && action.sa_flags & libc::SA_ONSTACK == 0
            })
        })
        .collect()
}

/// A warning about such handlers, the first time that there are any.
pub(crate) fn warning_of_handlers() -> Option<String> {
    static WARNED: AtomicBool = AtomicBool::new(false);
    if WARNED.load(Ordering::Relaxed) {
        return None;
    }
    let signals: Vec<_> = handlers_without_onstack()
        .into_iter()
        .map(|signal| signal.to_string())
        .collect();
    if signals.is_empty() || WARNED.swap(true, Ordering::Relaxed) {
        return None;
    }
    Some(format!(
        "swtch-fiber: handlers without SA_ONSTACK run on the small stack of whatever worker they \
         interrupt, and may overflow it: signal {}. Install them with SA_ONSTACK, or take a larger \
         `stack_size`.\n",
        signals.join(", ")
    ))
}

/// A signal's previous action: written once, before our handler can run, and only read after that.
struct Previous(UnsafeCell<mem::MaybeUninit<libc::sigaction>>);

// SAFETY: `install_after` writes, under a lock and before the handler that reads is installed.
unsafe impl Sync for Previous {}

impl Previous {
    const fn new() -> Self {
        Self(UnsafeCell::new(mem::MaybeUninit::uninit()))
    }

    /// Stores the present action of `signal` and installs our handler in front of it.
    fn install_after(&self, signal: libc::c_int) -> io::Result<()> {
        let before = action_of(signal)?;
        // SAFETY: our handler is not installed yet, so no code reads it (see `Sync` above).
        unsafe { (*self.0.get()).write(before) };
        // The previous handler's mask, SA_NODEFER and SA_RESTART hold for ours as well, which calls
        // it.
        let inherited = before.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART);
        set_action(
            signal,
            &libc::sigaction {
                sa_sigaction: on_fault as *const () as usize,
                sa_flags: libc::SA_SIGINFO | libc::SA_ONSTACK | inherited,
                ..before
            },
        )
    }

    /// The previous action. Only for the handler, which runs after [`Previous::install_after`].
    fn action(&self) -> &libc::sigaction {
        // SAFETY: written before the handler was installed, and never again.
        let slot = unsafe { &*self.0.get() };
        // SAFETY: as above: it was written.
        unsafe { slot.assume_init_ref() }
    }
}

extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid `siginfo_t`.
    let code = unsafe { (*info).si_code };
    if code > 0 {
        // SAFETY: a positive code means that the kernel saw a fault and filled in its address.
        let address = unsafe { (*info).si_addr() } as usize;
        if let Some((slot, SlotPart::Guard(_))) = Slot::at(address) {
            // SAFETY: with SA_SIGINFO the third argument is the `ucontext_t` of the interrupted
            // code.
            let stack_pointer = stack_pointer(unsafe { &*context.cast::<libc::ucontext_t>() });
            abort_with(|words| tell(words, slot, address, stack_pointer));
        }
        // SAFETY: as above.
        let stack_pointer = stack_pointer(unsafe { &*context.cast::<libc::ucontext_t>() });
        if let Some(overflow) = threads::overflow_here(address, stack_pointer) {
            abort_with(|words| overflow.tell(words));
        }
    }
    pass_on(signal, code, info, context);
}

/// The message: whose stack, which addresses, what to do.
fn tell(words: &mut LastWords, slot: Slot, address: usize, stack_pointer: usize) -> fmt::Result {
    words.write_str("\nswtch-fiber: ")?;
    match (slot.owner(), DESCRIBE.get()) {
        (Some(worker), Some(describe)) => describe(worker, words)?,
        (Some(worker), None) => write!(words, "worker {worker}")?,
        (None, _) => words.write_str("a coroutine without a worker")?,
    }
    let size = slot.asked() / 1024;
    let (low, base) = (slot.low(), slot.base());
    if (slot.limit()..slot.high()).contains(&stack_pointer) {
        write!(words, " has overflowed its stack of {size} KiB\n  ")?;
    } else {
        write!(
            words,
            ": something else touched the guard of its stack of {size} KiB: a stray pointer, or a \
             stack frame larger than the guard\n  stack pointer {stack_pointer:#x}, "
        )?;
    }
    write!(
        words,
        "fault at {address:#x}, stack from {low:#x} to {base:#x}\n  "
    )?;
    words.write_str(
        "remedy: a larger `stack_size` for this runtime (only touched pages cost memory), or less \
         on the stack: large values in a Box, recursion with a bound",
    )
}

/// Passes a signal that is not ours on to the action that it would have reached without us.
fn pass_on(
    signal: libc::c_int,
    code: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let at = usize::from(signal != SIGNALS[0]);
    let previous = PREVIOUS[at].action();
    match previous.sa_sigaction {
        libc::SIG_IGN if code <= 0 => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // After the return the instruction faults again, now without our handler (the kernel
            // does not ignore faults). A signal that was sent would not come again, so it is raised
            // again.
            let _ = set_action(signal, previous);
            if code <= 0 {
                // SAFETY: raise(3) may be called in a handler; it takes effect after its return.
                unsafe { libc::raise(signal) };
            }
        }
        handler => {
            if previous.sa_flags & libc::SA_RESETHAND != 0 {
                let default = libc::sigaction {
                    sa_sigaction: libc::SIG_DFL,
                    ..*previous
                };
                let _ = set_action(signal, &default);
            }
            call(handler, previous.sa_flags, signal, info, context);
        }
    }
}

/// Calls the previous handler as the kernel would.
fn call(
    handler: libc::sighandler_t,
    flags: libc::c_int,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    type Plain = extern "C" fn(libc::c_int);
    type Full = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    if flags & libc::SA_SIGINFO != 0 {
        // SAFETY: installed with SA_SIGINFO, so it takes three arguments.
        let handler = unsafe { mem::transmute::<libc::sighandler_t, Full>(handler) };
        handler(signal, info, context);
    } else {
        // SAFETY: installed without SA_SIGINFO, so it takes one argument.
        let handler = unsafe { mem::transmute::<libc::sighandler_t, Plain>(handler) };
        handler(signal);
    }
}

/// The action that is installed for `signal` now.
fn action_of(signal: libc::c_int) -> io::Result<libc::sigaction> {
    let mut action = mem::MaybeUninit::uninit();
    // SAFETY: without a new action the call only writes the present one to `action`.
    let answer = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    if answer != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has succeeded, so it has written.
    Ok(unsafe { action.assume_init() })
}

fn set_action(signal: libc::c_int, action: &libc::sigaction) -> io::Result<()> {
    // SAFETY: `action` holds a handler of the signature that its flags announce.
    let answer = unsafe { libc::sigaction(signal, action, ptr::null_mut()) };
    if answer == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
