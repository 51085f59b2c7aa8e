//! Faults end the process, so each test runs in a child: this program again, with the name of a
//! case in its environment.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod child;

use std::fmt::{self, Write};
use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::panic;

use child::run_case;
use corosensei::{Coroutine, Yielder};
use swtch_fiber::internals::{
    DEFAULT_STACK_SIZE, Guards, SMALLEST_STACK_SIZE, StackPool, overflow,
};

/// Endless recursion, the usual cause of stack overflows.
#[inline(never)]
fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 32]);
    if depth == u64::MAX {
        0
    } else {
        recurse(depth + 1) + frame[7]
    }
}

fn overflow_it() {
    black_box(recurse(1));
}

fn describe(worker: u32, out: &mut dyn Write) -> fmt::Result {
    write!(out, "task \"sum of {worker}\"")
}

fn coroutine_that(guards: Guards, owner: u32, body: impl FnOnce() + 'static) {
    let _guard = overflow::guard_this_thread().unwrap();
    let pool = StackPool::with_guards(DEFAULT_STACK_SIZE, guards).unwrap();
    let others: Vec<_> = (0..9).map(|_| pool.take().unwrap()).collect();
    let stack = pool.take().unwrap();
    stack.set_owner(owner);
    Coroutine::<(), (), (), _>::with_stack(stack, move |_, ()| body()).resume(());
    drop(others);
}

fn null() -> *mut u32 {
    black_box(std::ptr::null_mut())
}

fn write_to_null() {
    // SAFETY: it is not safe: the fault is what this case tests.
    unsafe { null().write_volatile(1) };
}

extern "C" fn leave_with_42(_: libc::c_int) {
    // SAFETY: ends the process.
    unsafe { libc::_exit(42) }
}

fn install(handler: libc::sighandler_t) {
    // SAFETY: the handler has one argument, as `signal` promises it.
    unsafe { libc::signal(libc::SIGSEGV, handler) };
}

fn run(name: &str) {
    match name {
        "coroutine" => {
            overflow::set_describe(describe);
            coroutine_that(Guards::of_this_kernel(), 17, overflow_it);
        }
        "mprotect" => {
            coroutine_that(Guards::Mappings, 18, overflow_it);
        }
        "locked" => {
            assert_eq!(Guards::of_this_kernel(), Guards::Markers);
            // SAFETY: the call has no precondition.
            if unsafe { libc::mlockall(libc::MCL_FUTURE | libc::MCL_ONFAULT) } == 0 {
                coroutine_that(Guards::Markers, 23, overflow_it);
            }
            println!("may not lock memory");
        }
        "smallest" => {
            let stack = StackPool::of_size(SMALLEST_STACK_SIZE)
                .unwrap()
                .take()
                .unwrap();
            let body = |_: &Yielder<(), ()>, ()| panic::catch_unwind(|| panic!("on a small stack"));
            let mut coroutine = Coroutine::with_stack(stack, body);
            assert!(coroutine.resume(()).as_return().unwrap().is_err());
        }
        "thread" => {
            let thread = std::thread::Builder::new().name("plain".into());
            let body = || {
                let _guard = overflow::guard_this_thread().unwrap();
                black_box(recurse(1))
            };
            let _ = thread.spawn(body).unwrap().join();
        }
        "null" => coroutine_that(Guards::of_this_kernel(), 19, write_to_null),
        "stray" => {
            let _guard = overflow::guard_this_thread().unwrap();
            let stack = StackPool::of_size(DEFAULT_STACK_SIZE)
                .unwrap()
                .take()
                .unwrap();
            stack.set_owner(20);
            // SAFETY: it is not safe: the fault is what this case tests.
            unsafe { ((stack.handle().low() - 8) as *mut u64).write_volatile(1) };
        }
        "default" => {
            install(libc::SIG_DFL);
            coroutine_that(Guards::of_this_kernel(), 21, write_to_null);
        }
        "ignored" => {
            install(libc::SIG_IGN);
            let _guard = overflow::guard_this_thread().unwrap();
            // SAFETY: the call has no precondition.
            unsafe { libc::raise(libc::SIGSEGV) };
            write_to_null();
        }
        "sent" => {
            install(libc::SIG_DFL);
            let _guard = overflow::guard_this_thread().unwrap();
            // SAFETY: the call has no precondition.
            unsafe { libc::raise(libc::SIGSEGV) };
        }
        "plain handler" => {
            install(leave_with_42 as *const () as usize);
            coroutine_that(Guards::of_this_kernel(), 22, write_to_null);
        }
        other => panic!("no case {other}"),
    }
}

/// Entry point for children; does nothing in the program that starts them.
#[test]
fn child() {
    if let Some(name) = child::case() {
        run(&name);
    }
}

/// Never a silent SIGSEGV: the message tells whose stack, how large, and what to do.
#[test]
fn overflow_of_a_coroutine_names_its_task_and_aborts() {
    let (output, said) = run_case("coroutine");
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
    assert!(
        said.contains("task \"sum of 17\" has overflowed its stack of"),
        "{said}"
    );
    assert!(said.contains("stack_size"), "{said}");
}

/// On kernels before 6.13 the guard is of the other kind, and the message is the same. Without a
/// scheduler that knows names, the message has the worker's number.
#[test]
fn overflow_into_an_mprotect_guard_names_the_worker() {
    let (output, said) = run_case("mprotect");
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
    assert!(
        said.contains("worker 18 has overflowed its stack"),
        "{said}"
    );
}

/// Programs that lock their memory get no markers from the kernel (madvise(2)), but are still
/// guarded.
#[test]
fn overflow_in_locked_memory_names_the_worker() {
    if Guards::of_this_kernel() == Guards::Markers {
        let (output, said) = run_case("locked");
        let may_lock = !String::from_utf8_lossy(&output.stdout).contains("may not lock memory");
        assert_eq!(output.status.signal().is_some(), may_lock, "{said}");
        assert_eq!(
            said.contains("worker 23 has overflowed its stack"),
            may_lock,
            "{said}"
        );
    }
}

/// The smallest stack must be large enough for the most that a worker needs by itself: the first
/// panic of a process, which reads debug information to print its location.
#[test]
fn smallest_stack_holds_a_panic_with_its_backtrace() {
    let (output, said) = run_case("smallest");
    assert!(output.status.success(), "{said}");
    assert!(
        said.contains("on a small stack") && said.contains("stack backtrace"),
        "{said}"
    );
}

/// Rust's library has its own message for threads, although our handler comes first.
#[test]
fn overflow_of_an_ordinary_thread_is_still_reported_by_rust() {
    let (output, said) = run_case("thread");
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
    assert!(
        said.contains("thread 'plain'") && said.contains("has overflowed its stack"),
        "{said}"
    );
    assert!(!said.contains("swtch-fiber"), "{said}");
}

/// A fault at a null pointer is no overflow and must not be reported as one.
#[test]
fn other_faults_keep_their_default_action() {
    for name in ["null", "default", "ignored", "sent"] {
        let (output, said) = run_case(name);
        assert_eq!(
            output.status.signal(),
            Some(libc::SIGSEGV),
            "{name}: {said}"
        );
        assert!(!said.contains("swtch-fiber"), "{name}: {said}");
    }
}

/// A crash reporter that was installed before us must keep working.
#[test]
fn other_faults_reach_the_handler_installed_before() {
    let (output, said) = run_case("plain handler");
    assert_eq!(output.status.code(), Some(42), "{said}");
}

/// A guard can be touched by other code; the worker that owns the stack may have done nothing
/// wrong.
#[test]
fn stray_access_to_a_guard_is_not_called_an_overflow() {
    let (output, said) = run_case("stray");
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
    assert!(
        said.contains("worker 20: something else touched the guard"),
        "{said}"
    );
}

/// Handlers that would run on a worker's small stack are found, and no others.
#[test]
fn handlers_that_would_run_on_small_stacks_are_listed() {
    extern "C" fn nothing(_: libc::c_int) {}
    let before = overflow::handlers_without_onstack();
    assert!(!before.contains(&libc::SIGUSR2), "{before:?}");
    // SAFETY: the handler has one argument, as `signal` promises it.
    unsafe { libc::signal(libc::SIGUSR2, nothing as *const () as usize) };
    assert!(overflow::handlers_without_onstack().contains(&libc::SIGUSR2));
    let _guard = overflow::guard_this_thread().unwrap();
    assert!(
        !overflow::handlers_without_onstack().contains(&libc::SIGSEGV),
        "ours has SA_ONSTACK"
    );
}
