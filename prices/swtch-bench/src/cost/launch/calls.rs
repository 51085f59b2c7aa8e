//! The calls that start a task and wait for its end. The child does next to nothing: it reads the
//! clock, stores a number and ends. Only `posix_spawn` runs a program, one that ends immediately.

use std::ffi::{CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::Builder;

use super::StartStamp;
use crate::error::{Error, checked, returned};
use crate::shared::Shared;

/// A small stack for the child, already touched so that it causes no page faults.
#[repr(align(64))]
pub(super) struct SmallStack([u8; 16 * 1024]);

impl SmallStack {
    /// Allocates a warm stack, filled with ones.
    pub(super) fn new() -> Box<Self> {
        Box::new(Self([1; 16 * 1024]))
    }

    fn top(&mut self) -> *mut c_void {
        self.0.as_mut_ptr_range().end.cast()
    }
}

/// Starts a thread with the C library, by way of `std`, and waits for its end.
pub(super) fn run_std_thread(stamp: &StartStamp) -> Result<(), Error> {
    std::thread::scope(|scope| {
        let builder = Builder::new().stack_size(256 * 1024);
        let thread = builder.spawn_scoped(scope, || stamp.record());
        let joined = thread.map_err(Error::calling("pthread_create"))?.join();
        joined.map_err(|_panic| Error::Panicked {
            name: "child".to_owned(),
        })
    })
}

/// The only function of a child that `clone` starts: records the time and ends.
extern "C" fn child_entry(stamp: *mut c_void) -> c_int {
    // SAFETY: the argument is the parent's `StartStamp`, which lives until the child has ended.
    unsafe { &*stamp.cast::<StartStamp>() }.record();
    0
}

/// Starts a thread with `clone`, and waits for its end: the kernel then clears `alive`, and wakes
/// whoever waits for that.
pub(super) fn run_bare_thread(
    stamp: &StartStamp,
    stack: &mut SmallStack,
    alive: &Shared<AtomicU32>,
) -> Result<(), Error> {
    let flags = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_CHILD_CLEARTID;
    let argument = ptr::from_ref(stamp).cast_mut().cast::<c_void>();
    let none = ptr::null_mut::<c_void>();
    alive.store(1, Ordering::Release);
    // SAFETY: nothing else uses the stack, which outlives the thread: it is waited for below. The
    // thread has the thread-local memory of its parent, and touches none of it: it reads the clock
    // and stores a number.
    let tid = unsafe {
        libc::clone(
            child_entry,
            stack.top(),
            flags,
            argument,
            none,
            none,
            alive.as_ptr(),
        )
    };
    checked("clone", tid)?;
    while alive.load(Ordering::Acquire) != 0 {
        // Not FUTEX_PRIVATE_FLAG: the kernel's wake-up at the end of a thread is without it.
        // SAFETY: the word lives across the call. An error means that it has changed, or a signal.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                alive.as_ptr(),
                libc::FUTEX_WAIT,
                1,
                ptr::null::<libc::timespec>(),
            )
        };
    }
    Ok(())
}

/// Starts a process with `fork`, and waits for its end.
pub(super) fn run_fork(stamp: &StartStamp) -> Result<(), Error> {
    // SAFETY: the child reads the clock, stores a number and leaves by _exit.
    let pid = checked("fork", unsafe { libc::fork() })?;
    if pid == 0 {
        end_after_stamp(stamp);
    }
    join(pid)
}

/// Starts a process with `clone3`, as a fork, and waits for its end.
pub(super) fn run_clone3(stamp: &StartStamp) -> Result<(), Error> {
    // SAFETY: an all-zero clone_args asks for nothing.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.exit_signal = libc::SIGCHLD.unsigned_abs().into();
    // SAFETY: the arguments live across the call and their size is passed. The child, with a copy
    // of all memory, reads the clock, stores a number and leaves by _exit.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            &raw const arguments,
            size_of::<libc::clone_args>(),
        )
    };
    if checked("clone3", pid)? == 0 {
        end_after_stamp(stamp);
    }
    join(libc::pid_t::try_from(pid).expect("invariant: the kernel gives a pid_t"))
}

fn end_after_stamp(stamp: &StartStamp) -> ! {
    stamp.record();
    // SAFETY: _exit ends the process; what the parent's exit handlers would do stays undone.
    unsafe { libc::_exit(0) }
}

/// Starts a process with `clone`, as a vfork, and waits for its end.
pub(super) fn run_vfork(stamp: &StartStamp, stack: &mut SmallStack) -> Result<(), Error> {
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    let argument = ptr::from_ref(stamp).cast_mut().cast();
    // SAFETY: nothing else uses the stack, and the parent is suspended until the child has ended.
    let pid = unsafe { libc::clone(child_entry, stack.top(), flags, argument) };
    join(checked("clone", pid)?)
}

/// Starts a program with `posix_spawn`, and waits for its end.
pub(super) fn run_posix_spawn(program: &CString) -> Result<(), Error> {
    let arguments = [program.as_ptr().cast_mut(), ptr::null_mut()];
    let environment = [ptr::null_mut()];
    let mut pid = 0;
    // SAFETY: program, arguments and environment live across the call, and both lists end in null.
    returned("posix_spawn", unsafe {
        libc::posix_spawn(
            &mut pid,
            program.as_ptr(),
            ptr::null(),
            ptr::null(),
            arguments.as_ptr(),
            environment.as_ptr(),
        )
    })?;
    join(pid)
}

fn join(pid: libc::pid_t) -> Result<(), Error> {
    let mut status = 0;
    // SAFETY: `status` is ours to be written to.
    checked("waitpid", unsafe { libc::waitpid(pid, &mut status, 0) })?;
    match status {
        0 => Ok(()),
        status => Err(Error::ProcessFailed {
            name: "child".to_owned(),
            status,
        }),
    }
}

/// The first program with this name in `PATH`.
pub(super) fn program_in_path(name: &str) -> Result<CString, Error> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|program| program.is_file());
    let found = found.ok_or_else(|| Error::NotHere(format!("needs the program {name} in PATH")))?;
    Ok(CString::new(found.as_os_str().as_bytes())
        .expect("invariant: a path that was found holds no NUL"))
}
