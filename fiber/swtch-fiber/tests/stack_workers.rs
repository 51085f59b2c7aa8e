//! Stacks of a runtime's workers: an overflow is reported with the name of the task, and a worker
//! may fork. Each case ends the process, so it runs in a child: this program again, with the name
//! of the case in its environment.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod child;

use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use child::{end_with_parent, run_case, said_until};
use swtch_fiber::internals::Guards;
use swtch_fiber::observe::Page;
use swtch_fiber::{Error, Mode, Runtime, TaskBuilder, WaitType, preemptive, sleep, yield_now};

const WORKERS: usize = 100_000;
const OVERFLOWING: usize = 54_321;

/// Number of workers that have begun their task.
static STARTED: AtomicUsize = AtomicUsize::new(0);
/// Set when the worker that is to overflow may begin.
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

/// Forks, runs `child` in the child, and returns its wait status.
fn forked(child: impl FnOnce()) -> i32 {
    // SAFETY: what the children here do before they end is what the cases test.
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

extern "C" fn nothing(_: libc::c_int) {}

fn install(signal: libc::c_int, flags: libc::c_int) {
    // SAFETY: a plain structure, for which zeros are valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as *const () as usize;
    action.sa_flags = flags;
    // SAFETY: the handler has one argument, as these flags promise it.
    unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) };
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps")
        .unwrap()
        .lines()
        .count()
}

/// Bytes in memory of the mappings without huge pages: stacks, and nothing else here.
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

/// Resident memory of this process, in bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let size = line.unwrap().trim().trim_end_matches(" kB");
    1024 * size.parse::<usize>().unwrap()
}

/// Bytes in total that a sleeping worker may take: its page of stack, and 700 for block, record, name,
/// timer, packet and the queues that they are in.
const MOST_BYTES: usize = 4900;

/// Resident memory of this process when it stays, in bytes: the first look at which it is `wanted` or
/// less, or the least of ten seconds. The scheduler has been idle then, so that its queues have given
/// memory back, and the monitor's search for cycles of waiters, for which it lists all 100,000, has
/// ended.
fn settled(wanted: usize) -> usize {
    let mut least = usize::MAX;
    for _ in 0..50 {
        sleep(Duration::from_millis(200));
        least = least.min(resident());
        if least <= wanted {
            break;
        }
    }
    least
}

/// All workers sleep; one of them wakes up and overflows its stack.
fn many() {
    // What is freed goes back to the kernel at once. By default the allocator keeps more the larger the
    // blocks are that it has seen, here up to 20 MB of such a search: nothing of a worker's.
    // SAFETY: the call has no precondition.
    let answer = unsafe { libc::mallopt(libc::M_TRIM_THRESHOLD, 128 << 10) };
    assert_eq!(answer, 1);
    let runtime = Runtime::builder()
        .schedulers(1)
        .workers(WORKERS + 1)
        .build()
        .unwrap();
    let (before, resident_before) = (mappings(), resident());
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
        let settled = settled(resident_before + MOST_BYTES * WORKERS);
        println!("resident_each {}", (settled - resident_before) / WORKERS);
        ALL_SLEEP.store(true, Ordering::Relaxed);
        sleep(Duration::from_secs(100));
    };
    runtime.run(body).unwrap();
}

fn run(name: &str) {
    match name {
        "many" => many(),
        "overflow" => {
            let task = TaskBuilder::new().name("endless\nsum");
            let runtime = runtime();
            let handle = runtime.spawn_with(task, || black_box(recurse(1))).unwrap();
            let _ = handle.join();
        }
        "thread" => {
            let builder = Runtime::builder().schedulers(1).mode(Mode::Thread);
            let runtime = builder.stack_size(256 << 10).build().unwrap();
            let task = TaskBuilder::new().name("endless thread");
            let handle = runtime.spawn_with(task, || black_box(recurse(1))).unwrap();
            let _ = handle.join();
        }
        "helper" => {
            let task = TaskBuilder::new().name("endless section");
            let body = || preemptive(WaitType::PREEMPTIVE_OTHER, || black_box(recurse(1)));
            let runtime = runtime();
            let handle = runtime.spawn_with(task, body).unwrap();
            let _ = handle.join();
        }
        "null in a thread" => {
            let builder = Runtime::builder().schedulers(1).mode(Mode::Thread);
            let null = || {
                let null: *mut u32 = black_box(std::ptr::null_mut());
                // SAFETY: it is not safe: the fault is what this case tests.
                unsafe { null.write_volatile(1) };
            };
            let _ = builder.build().unwrap().run(null);
        }
        "handlers" => {
            let runtime = runtime();
            install(libc::SIGUSR1, libc::SA_ONSTACK);
            let busy_for = |span| move || sleep(span);
            runtime.run(busy_for(Duration::from_millis(1200))).unwrap();
            eprintln!("now");
            install(libc::SIGUSR2, 0);
            end_with_parent();
            loop {
                runtime.run(busy_for(Duration::from_millis(100))).unwrap();
            }
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

/// The reader of the message knows the tasks, not our workers. A name cannot start a line of its
/// own.
#[test]
fn overflow_of_a_worker_names_its_task() {
    let (output, said) = run_case("overflow");
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
    assert!(
        said.contains("\"endless\\nsum\" (worker 0) has overflowed its stack of 64 KiB"),
        "{said}"
    );
}

/// A worker may be a thread, or its task may run on a helper thread. The task is named in each
/// case, with the size that was asked for.
#[test]
fn overflow_of_a_thread_that_runs_a_task_names_the_task() {
    for (case, words) in [
        (
            "thread",
            "\"endless thread\" (worker 0) has overflowed its stack of 256 KiB",
        ),
        (
            "helper",
            "\"endless section\" (worker 0), in a preemptive section, has overflowed its stack of",
        ),
    ] {
        let (output, said) = run_case(case);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
        assert!(said.contains(words), "{said}");
    }
}

/// A signal that comes while a worker runs would use its stack: the program is warned of such
/// handlers, once.
#[test]
fn a_handler_that_would_run_on_small_stacks_is_warned_of() {
    const WARNING: &str = "handlers without SA_ONSTACK";
    // The monitor looks once a second.
    let again = Duration::from_millis(1500);
    let said = said_until("child", &[child::with_case("handlers")], &[WARNING], again);
    let (before, after) = said.split_once("now").unwrap();
    assert!(!before.contains("SA_ONSTACK"), "{said}");
    assert_eq!(after.matches(WARNING).count(), 1, "{said}");
    assert!(
        after.contains(&format!("signal {}.", libc::SIGUSR2)),
        "{said}"
    );
}

/// A null pointer in such a thread is no overflow.
#[test]
fn other_faults_of_a_thread_keep_their_default_action() {
    let (output, said) = run_case("null in a thread");
    assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{said}");
    assert!(!said.contains("swtch-fiber"), "{said}");
}

/// A worker that waits needs one page of stack, with everything that it keeps there.
#[test]
fn a_hundred_thousand_workers_have_small_stacks_and_an_overflow_is_named() {
    if Guards::of_this_kernel() != Guards::Markers {
        swtch_test::skip!(
            "this kernel has no guard markers: 32,000 stacks are all that it can guard"
        );
    }
    let (output, last_words) = run_case("many");
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
        assert!(figure("resident_each") <= MOST_BYTES, "{said}");
    }
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{last_words}");
    let named = format!("\"sleeper {OVERFLOWING}\" (worker ");
    assert!(
        last_words.contains(&named) && last_words.contains("has overflowed"),
        "{last_words}"
    );
}

/// The parent continues; a child that enters the scheduler is ended with the reason.
#[test]
fn worker_may_fork_but_the_child_may_not_schedule() {
    let (output, said) = run_case("fork");
    assert!(output.status.success(), "{said}");
    assert_eq!(
        said.matches("a child of fork called into the scheduler")
            .count(),
        1,
        "{said}"
    );
}

/// A bad size is refused when the runtime is built, not when a worker faults.
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

/// Uses a large part of a stack, and returns.
#[inline(never)]
fn use_a_stack_deeply() -> u8 {
    // The compiler may keep a copy of it: there is room for two.
    let deep = black_box([7_u8; DEEP]);
    deep[black_box(DEEP / 2)]
}

/// The least that [`use_a_stack_deeply`] uses, in bytes.
const DEEP: usize = 24 << 10;

/// Observers can see how deeply stacks are used, in both modes: the monitor measures once a second.
#[test]
fn views_show_how_deep_a_stack_was_used() {
    for mode in [Mode::Fiber, Mode::Thread] {
        let runtime = Runtime::builder().schedulers(1).mode(mode).build().unwrap();
        let (shallow, deep) = (format!("shallow {mode:?}"), format!("deep {mode:?}"));
        let start = |name: &str, depth: fn() -> u8| {
            let body = move || {
                black_box(depth());
                sleep(Duration::from_secs(3600));
            };
            drop(
                runtime
                    .spawn_with(TaskBuilder::new().name(name), body)
                    .unwrap(),
            );
        };
        start(&shallow, || 0);
        start(&deep, use_a_stack_deeply);
        let used = |name: &str| {
            let snapshot = Page::of_process(std::process::id()).unwrap().snapshot();
            let row = snapshot.unwrap().workers.into_iter();
            let mut row = row.filter(|row| row.task_name.as_deref() == Some(name));
            row.next().and_then(|row| row.stack_bytes_used)
        };
        let end = Instant::now() + child::PATIENCE;
        while used(&shallow).is_none() || used(&deep).is_none() {
            assert!(Instant::now() < end, "the monitor does not look");
            std::thread::sleep(Duration::from_millis(50));
        }
        let (shallow, deep) = (used(&shallow).unwrap(), used(&deep).unwrap());
        assert!(
            deep as usize >= DEEP && shallow < deep,
            "{mode:?}: {shallow}, {deep}"
        );
    }
}
