//! A hundred thousand workers: how much memory and how many mappings they need, and that each stack
//! is guarded.
//!
//! Run with `--nocapture` to see the figures.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use corosensei::{Coroutine, Yielder};
use swtch_fiber::internals::{DEFAULT_STACK_SIZE, Guards, PooledStack, StackPool, overflow};

const CASE: &str = "STACK_MANY_CASE";
const WORKERS: usize = 100_000;
const OVERFLOWING: u32 = 54_321;

type Worker = Coroutine<(), (), u64, PooledStack>;

#[inline(never)]
fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 32]);
    if depth == u64::MAX {
        0
    } else {
        recurse(depth + 1) + frame[7]
    }
}

fn worker(index: u32, stack: PooledStack) -> Worker {
    stack.set_owner(index);
    Worker::with_stack(stack, move |yielder: &Yielder<(), ()>, ()| {
        yielder.suspend(());
        if index == OVERFLOWING {
            black_box(recurse(1))
        } else {
            u64::from(index)
        }
    })
}

/// Pages of this process that are in memory.
fn resident_pages() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse().unwrap()
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .count()
}

/// Suspends all workers, prints what they cost, and lets one of them overflow its stack.
fn many() {
    let _guard = overflow::guard_this_thread().unwrap();
    let pool = StackPool::of_size(DEFAULT_STACK_SIZE).unwrap();
    let mut workers: Vec<Worker> = Vec::with_capacity(WORKERS);
    let (pages_before, mappings_before) = (resident_pages(), mappings());
    for index in 0..WORKERS {
        let mut worker = worker(u32::try_from(index).unwrap(), pool.take().unwrap());
        assert!(worker.resume(()).as_yield().is_some());
        workers.push(worker);
    }
    // SAFETY: the call has no precondition.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap();
    let structs = size_of::<Worker>() * WORKERS;
    let bytes = (resident_pages() - pages_before) * page - structs;
    println!("bytes_each {}", bytes / WORKERS);
    println!("mappings_more {}", mappings() - mappings_before);
    println!("stacks {}", pool.stacks());
    workers[OVERFLOWING as usize].resume(());
}

/// Limits the address space to a quarter of a gigabyte more than it has, and takes stacks until
/// that is used up.
fn out_of_address_space() {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    let most = pages * 4096 + (256 << 20);
    let limit = libc::rlimit {
        rlim_cur: most,
        rlim_max: most,
    };
    // SAFETY: `limit` is a value of this frame.
    let answer = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
    assert_eq!(answer, 0);
    take_until_refused(StackPool::of_size(DEFAULT_STACK_SIZE).unwrap());
}

/// Takes stacks until the kernel refuses, and continues with those it has.
fn take_until_refused(pool: &'static StackPool) {
    let mut stacks = Vec::new();
    let error = loop {
        match pool.take() {
            Ok(stack) => stacks.push(stack),
            Err(error) => break error,
        }
    };
    println!("taken {}", stacks.len());
    println!("refusal {error}; {}", error.advice());
    drop(stacks.pop());
    println!("after_return {}", pool.take().is_ok());
}

/// Entry point for children; does nothing in the program that starts them.
#[test]
fn child() {
    match std::env::var(CASE).as_deref() {
        Ok("many") => many(),
        Ok("out of mappings") => take_until_refused(
            StackPool::with_guards(DEFAULT_STACK_SIZE, Guards::Mappings).unwrap(),
        ),
        Ok("out of address space") => out_of_address_space(),
        _ => {}
    }
}

/// Runs the child, and returns how it ended and its output on both streams.
fn run_case(name: &str) -> (Option<i32>, String, String) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(CASE, name)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (
        output.status.signal(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

/// The rest of the line that begins with `word`.
fn line<'a>(text: &'a str, word: &str) -> &'a str {
    text.lines()
        .find_map(|line| line.split_once(word))
        .unwrap()
        .1
        .trim()
}

/// A hundred thousand workers must be possible on kernels with guard markers, and each guard must
/// fault.
#[test]
fn a_hundred_thousand_workers_are_small_few_mappings_and_guarded() {
    if Guards::of_this_kernel() != Guards::Markers {
        swtch_test::skip!(
            "this kernel has no guard markers: 32,000 stacks are all that it can guard"
        );
    }
    let (signal, said, last_words) = run_case("many");
    println!("{said}");
    let bytes: usize = line(&said, "bytes_each").parse().unwrap();
    let mappings: usize = line(&said, "mappings_more").parse().unwrap();
    // A sanitizer makes every frame larger, and has memory of its own.
    if std::env::var_os("ASAN_OPTIONS").is_none() {
        assert!((4096..=4300).contains(&bytes), "{said}");
    }
    assert!(mappings <= 64, "{said}");
    assert_eq!(signal, Some(libc::SIGABRT), "{last_words}");
    let owner = format!("worker {OVERFLOWING} has overflowed its stack");
    assert!(last_words.contains(&owner), "{last_words}");
}

/// Running out of mappings is an error that explains itself, and the pool goes on.
#[test]
fn running_out_of_mappings_is_an_error_with_a_remedy() {
    let (signal, said, last_words) = run_case("out of mappings");
    assert_eq!(signal, None, "{last_words}");
    let refusal = line(&said, "refusal");
    println!("{refusal}");
    assert!(
        refusal.contains(&format!("{} stacks exist", line(&said, "taken"))),
        "{refusal}"
    );
    assert!(refusal.contains("vm.max_map_count"), "{refusal}");
    assert_eq!(line(&said, "after_return"), "true");
}

/// If large slabs no longer fit, smaller ones use the rest; then it is an error as well.
#[test]
fn running_out_of_address_space_is_an_error_with_a_remedy() {
    let (signal, said, last_words) = run_case("out of address space");
    assert_eq!(signal, None, "{last_words}");
    let refusal = line(&said, "refusal");
    println!("{refusal}");
    let taken: usize = line(&said, "taken").parse().unwrap();
    assert!(taken > 1500, "{taken} stacks of 84 KiB in 256 MiB");
    assert!(
        refusal.contains(&format!("{taken} stacks exist")),
        "{refusal}"
    );
    assert!(refusal.contains("ulimit -v"), "{refusal}");
    assert_eq!(line(&said, "after_return"), "true");
}
