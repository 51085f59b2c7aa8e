//! Stacks of a runtime's workers: whose overflow is told by the name of the task, and what becomes of
//! a worker that forks. Each ends the process, so it is lived through in a child: this program again,
//! with the name of a play in its environment.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use swtch_fiber::stack::Guards;
use swtch_fiber::{Error, Runtime, TaskBuilder, sleep, yield_now};

const PLAY: &str = "STACK_WORKERS_PLAY";
const WORKERS: usize = 100_000;
const OVERFLOWING: usize = 54_321;

/// Workers that have begun their task.
static STARTED: AtomicUsize = AtomicUsize::new(0);
/// The one that is to run over may begin.
static ALL_SLEEP: AtomicBool = AtomicBool::new(false);

#[inline(never)]
fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 32]);
    if depth == u64::MAX {
        0
    } else {
        recurse(depth + 1) + frame[7]
    }
}

fn runtime() -> Runtime {
    Runtime::builder().schedulers(1).build().unwrap()
}

/// How the child of `fork` ended, to the worker that forked.
fn forked(child: impl FnOnce()) -> i32 {
    // SAFETY: what the children here do before they end is what the plays are about.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        child();
        // SAFETY: ends the process.
        unsafe { libc::_exit(0) }
    }
    let mut status = 0;
    // SAFETY: `status` is an integer of this frame.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .count()
}

/// Bytes in memory of mappings that huge pages are kept from: stacks, and nothing else here.
fn bytes_of_stacks() -> usize {
    let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let (mut bytes, mut present) = (0, 0);
    for line in smaps.lines() {
        if let Some(size) = line.strip_prefix("Rss:") {
            present = 1024
                * size
                    .trim()
                    .trim_end_matches(" kB")
                    .parse::<usize>()
                    .unwrap();
        } else if line.starts_with("VmFlags:") && line.contains(" nh") {
            bytes += present;
        }
    }
    bytes
}

/// All workers sleep; one of them wakes up and runs over.
fn play_many() {
    let runtime = Runtime::builder()
        .schedulers(1)
        .workers(WORKERS + 1)
        .build()
        .unwrap();
    let before = mappings();
    let body = move || {
        for number in 0..WORKERS {
            let sleeper = move || {
                STARTED.fetch_add(1, Ordering::Relaxed);
                while number != OVERFLOWING || !ALL_SLEEP.load(Ordering::Relaxed) {
                    sleep(Duration::from_millis(if number == OVERFLOWING {
                        1
                    } else {
                        100_000
                    }));
                }
                black_box(recurse(1));
            };
            let name = format!("sleeper {number}");
            drop(TaskBuilder::new().name(&name).spawn(sleeper).unwrap());
        }
        while STARTED.load(Ordering::Relaxed) < WORKERS {
            yield_now();
        }
        println!("bytes_each {}", bytes_of_stacks() / WORKERS);
        println!("mappings_more {}", mappings() - before);
        ALL_SLEEP.store(true, Ordering::Relaxed);
        sleep(Duration::from_secs(100));
    };
    runtime.run(body).unwrap();
}

fn play(name: &str) {
    match name {
        "many" => play_many(),
        "overflow" => {
            let task = TaskBuilder::new().name("endless\nsum");
            let runtime = runtime();
            let handle = runtime.spawn_with(task, || black_box(recurse(1))).unwrap();
            let _ = handle.join();
        }
        "fork" => {
            let statuses = runtime().run(|| {
                let waits = swtch_fiber::spawn(yield_now).unwrap();
                let ends = forked(|| {});
                let yields = forked(yield_now);
                waits.join().unwrap();
                (ends, yields)
            });
            let (ends, yields) = statuses.unwrap();
            assert_eq!(ends, 0, "a child that ends by itself is left alone");
            assert!(libc::WIFSIGNALED(yields) && libc::WTERMSIG(yields) == libc::SIGABRT);
        }
        other => panic!("no play {other}"),
    }
}

/// The way in for children; does nothing in the program that starts them.
#[test]
fn child() {
    if let Ok(name) = std::env::var(PLAY) {
        play(&name);
    }
}

fn lived_through(name: &str) -> (Output, String) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(PLAY, name)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said)
}

/// Who reads the message knows his tasks, not our workers. A name cannot start a line of its own.
#[test]
fn overflow_of_a_worker_names_its_task() {
    let (output, said) = lived_through("overflow");
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
    assert!(
        said.contains("\"endless\\nsum\" (worker 0) has overflowed its stack"),
        "{said}"
    );
}

/// The promise of the crate, with all that a worker keeps on its stack while it waits: one page.
#[test]
fn a_hundred_thousand_workers_have_small_stacks_and_an_overflow_is_named() {
    if Guards::of_this_kernel() != Guards::Markers {
        println!("this kernel has no guard markers: 32,000 stacks are all that it can guard");
        return;
    }
    let (output, last_words) = lived_through("many");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    println!("{said}");
    let figure = |word: &str| -> usize {
        let rest = said.split_once(word).unwrap().1;
        rest.split_whitespace().next().unwrap().parse().unwrap()
    };
    // A sanitizer makes every frame larger, and maps memory of its own.
    if std::env::var_os("ASAN_OPTIONS").is_none() {
        assert!((4096..=4300).contains(&figure("bytes_each")), "{said}");
        assert!(figure("mappings_more") <= 64, "{said}");
    }
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{last_words}");
    let named = format!("\"sleeper {OVERFLOWING}\" (worker ");
    assert!(
        last_words.contains(&named) && last_words.contains("has overflowed"),
        "{last_words}"
    );
}

/// The parent goes on; a child that would schedule is told why it cannot.
#[test]
fn worker_may_fork_but_the_child_may_not_schedule() {
    let (output, said) = lived_through("fork");
    assert!(output.status.success(), "{said}");
    assert_eq!(
        said.matches("a child of fork called into the scheduler")
            .count(),
        1,
        "{said}"
    );
}

/// A size that makes no sense is refused when the runtime is built, not when a worker faults.
#[test]
fn stack_size_that_makes_no_sense_is_refused() {
    let built = |bytes| Runtime::builder().schedulers(1).stack_size(bytes).build();
    assert!(matches!(
        built(4096),
        Err(Error::Setting {
            setting: "stack_size",
            ..
        })
    ));
    let error = built(1 << 40).unwrap_err();
    assert!(error.to_string().contains("too large"), "{error}");
}
