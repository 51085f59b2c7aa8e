//! Signals as this process inherited them, and as a command inherits them from it.
//!
//! The parent of a program decides which signals it ignores: `nohup` ignores SIGHUP, a shell script
//! ignores SIGINT for its background jobs, some service managers ignore SIGCHLD. An ignored signal
//! stays ignored across `execve(2)`. A command that is started through this program must inherit
//! the same signals as without it, and this program itself must be able to wait for its children.
//!
//! ```text
//! parent ──▶ before `main`: note SIGPIPE ──▶ Rust's runtime ignores SIGPIPE
//!            `main`: note SIGCHLD, take its default ──▶ fork ──▶ hand both down ──▶ exec
//! ```

use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// True if SIGPIPE was ignored when this process began.
static IGNORED_PIPE: AtomicBool = AtomicBool::new(false);

/// True if SIGCHLD was ignored when [`wait_for_children`] was called.
static IGNORED_CHILD: AtomicBool = AtomicBool::new(false);

/// Runs before Rust's runtime, which ignores SIGPIPE and does not record its former action.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = note_pipe;

extern "C" fn note_pipe() {
    IGNORED_PIPE.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
}

/// Returns what this process does on a signal: a handler, or one of the words of signal(3).
fn action(signal: i32) -> Option<libc::sighandler_t> {
    let mut now = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: with no new action the call only fills the struct, which is one.
    let known = unsafe { libc::sigaction(signal, ptr::null(), now.as_mut_ptr()) } == 0;
    // SAFETY: read only when the call has filled it.
    known.then(|| unsafe { now.assume_init() }.sa_sigaction)
}

/// Returns true if a signal is ignored by this process.
pub fn is_ignored(signal: i32) -> bool {
    action(signal) == Some(libc::SIG_IGN)
}

/// The signals of these that are not ignored and so may be caught. Catching an ignored one would
/// undo `nohup`, for this process and for the programs that it starts.
pub fn not_ignored(signals: &[i32]) -> Vec<i32> {
    let signals = signals.iter().copied();
    signals.filter(|signal| !is_ignored(*signal)).collect()
}

/// A flag that Ctrl-C, SIGTERM and SIGHUP set, except those that are ignored. What was done until
/// then can be kept.
///
/// # Errors
/// When signals cannot be caught.
pub fn stop_on_signals() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in not_ignored(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP]) {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(|error| io::Error::new(error.kind(), format!("catching signals: {error}")))?;
    }
    Ok(stop)
}

/// Passes over SIGUSR1 and SIGUSR2 for good, unless something is done about them already; the first that
/// comes is told on stderr. Their default action would end a recording without a word.
pub fn pass_over_user_signals() {
    extern "C" fn tell(signal: i32) {
        static TOLD: AtomicBool = AtomicBool::new(false);
        let text: &[u8] = match signal {
            libc::SIGUSR1 => b"swtch: SIGUSR1 has no meaning here: it is passed over\n",
            _ => b"swtch: SIGUSR2 asks a recording with --ring for a dump, and here is none: it is passed over\n",
        };
        if !TOLD.swap(true, Ordering::Relaxed) {
            // SAFETY: the address is that of a number of this thread, which the call in between may
            // change, and at which the interrupted code may be about to look.
            unsafe {
                let errno = libc::__errno_location();
                let before = *errno;
                libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
                *errno = before;
            }
        }
    }
    let mut signals = vec![libc::SIGUSR1, libc::SIGUSR2];
    signals.retain(|signal| action(*signal) == Some(libc::SIG_DFL));
    catch(&signals, tell);
}

/// Catches signals for good, by a handler that is async-signal-safe. Unlike one that is ignored, a signal that
/// is caught has its default action in programs that this process starts.
pub(crate) fn catch(signals: &[i32], handler: extern "C" fn(i32)) {
    for signal in signals {
        // SAFETY: callers pass handlers that are async-signal-safe. signal(2) of the C libraries for
        // Linux has calls begin again after them.
        unsafe { libc::signal(*signal, handler as libc::sighandler_t) };
    }
}

/// Gives SIGCHLD its default action. While it is ignored the kernel reaps children by itself, and
/// their exit status is lost (`wait(2)`, notes).
pub fn wait_for_children() {
    if is_ignored(libc::SIGCHLD) {
        IGNORED_CHILD.store(true, Ordering::Relaxed);
        // SAFETY: the default action runs no code of ours.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }
}

/// Makes a command start with the signals that this process was started with: SIGCHLD and SIGPIPE
/// ignored if they were, and the blocked signals of the calling thread. The standard library would
/// reset SIGPIPE to its default and block nothing.
pub fn hand_signals_down(command: &mut Command) {
    let mut blocked = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: with no new set the call only fills the old one.
    let known =
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, ptr::null(), blocked.as_mut_ptr()) };
    // SAFETY: read only when the call has filled it.
    let blocked = (known == 0).then(|| unsafe { blocked.assume_init() });
    let hand_down = move || -> io::Result<()> {
        for (signal, was_ignored) in [
            (libc::SIGPIPE, &IGNORED_PIPE),
            (libc::SIGCHLD, &IGNORED_CHILD),
        ] {
            if was_ignored.load(Ordering::Relaxed) {
                // SAFETY: ignoring a signal runs no code of ours.
                unsafe { libc::signal(signal, libc::SIG_IGN) };
            }
        }
        if let Some(blocked) = &blocked {
            // SAFETY: the set is a filled one, and no old one is asked for.
            unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, blocked, ptr::null_mut()) };
        }
        Ok(())
    };
    // SAFETY: between fork and exec only signal(2) and pthread_sigmask(3) are called, which are
    // async-signal-safe, and atomics are read.
    unsafe { command.pre_exec(hand_down) };
}
