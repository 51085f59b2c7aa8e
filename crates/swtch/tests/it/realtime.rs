//! Recordings under real-time load. Every load ends by itself: `timeout`, `-t`, a watchdog.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::machine::{SOON, TestProcess, alone, beside_others, wait_until};
use crate::recording::{Recording, SWTCH, TraceContents, TraceDir, start_recorder, stderr};
use swtch_store::Trace;

/// Busy loops of `SCHED_FIFO`, one per CPU, which end after this many seconds whatever happens to
/// the test: the kernel kills a real-time task that has used its CPU for that long without a pause.
fn hogs(priority: u32, seconds: u32) -> Vec<TestProcess> {
    let cpus = std::thread::available_parallelism().unwrap().get();
    let hog = |cpu: usize| {
        let limit = format!("--rttime={}", u64::from(seconds) * 1_000_000);
        let mut command = Command::new("prlimit");
        command.args([&limit, "taskset", "-c", &cpu.to_string(), "chrt", "-f"]);
        command.args([&priority.to_string(), "sh", "-c", "while :; do :; done"]);
        TestProcess::start(command.stdin(Stdio::null()))
    };
    (0..cpus).map(hog).collect()
}

/// Runs a program that changes a thread (`taskset -p`, `chrt -p`).
fn change(program: &str, words: &[&str]) {
    let output = Command::new(program).args(words).output();
    let output = output.expect("it is part of util-linux");
    assert!(
        output.status.success(),
        "{program} {words:?}: {}",
        stderr(&output)
    );
}

/// Switches per second of the storm on all CPUs together.
const STORM_RATE: u64 = 1_000_000;

/// Yields as often as this thread's share of the storm's rate requires, and spins otherwise.
fn yield_at_a_rate(threads: usize, length: Duration) {
    let begun = Instant::now();
    let mut yields = 0;
    while begun.elapsed() < length {
        let micros = u64::try_from(begun.elapsed().as_micros()).unwrap();
        let due = micros * STORM_RATE / 1_000_000 / u64::try_from(threads).unwrap();
        if yields < due {
            std::thread::yield_now();
            yields += 1;
        } else {
            std::hint::spin_loop();
        }
    }
}

/// Two threads of this process with `SCHED_FIFO` yield to each other on each CPU, for this long.
fn storm(length: Duration) {
    let cpus = std::thread::available_parallelism().unwrap().get();
    let (tell, told) = std::sync::mpsc::channel();
    let gate = std::sync::Arc::new(std::sync::Barrier::new(2 * cpus + 1));
    let threads: Vec<_> = (0..2 * cpus)
        .map(|number| {
            let (tell, gate) = (tell.clone(), std::sync::Arc::clone(&gate));
            std::thread::spawn(move || {
                let tid = nix::unistd::gettid().to_string();
                change("taskset", &["-p", "-c", &(number / 2).to_string(), &tid]);
                tell.send(tid).unwrap();
                gate.wait();
                yield_at_a_rate(2 * cpus, length);
            })
        })
        .collect();
    for tid in told.iter().take(2 * cpus) {
        change("chrt", &["-f", "-p", "50", &tid]);
    }
    gate.wait();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
}

/// Pairs of threads yield to each other, with a real-time priority above the hogs on every CPU. An
/// ordinary task gets a twentieth of a CPU, and the rings would be full after half a second.
#[test]
#[ignore = "needs root"]
fn root_nothing_is_lost_of_a_realtime_storm_above_hogs_on_every_cpu() {
    let _machine = alone();
    let _quiet = swtch_test::depends_on_quiet();
    let place = TraceDir::new();
    let own = std::process::id().to_string();
    let mut recorder = start_recorder(&place, &["--no-children", "-p", &own]);
    let hogs = hogs(10, 5);
    storm(Duration::from_secs(3));
    drop(hogs);
    recorder.signal(libc::SIGINT);
    recorder.ends_within(Duration::from_secs(120));
    let recorded = TraceContents::new(Trace::open(&place.trace()).unwrap());
    let (counts, guard) = (recorded.counts(), recorded.meta.guard.clone().unwrap());
    println!(
        "{} switches, {} lost, {guard:?}",
        counts.stored, counts.lost
    );
    recorded.assert_balanced();
    assert!(counts.stored > 500_000, "{counts:?}");
    assert_eq!(guard.policy, "deadline");
    assert!(
        guard.lent_times > 0,
        "without the guard it would have lost: {guard:?}"
    );
}

/// Under this load, real-time policies on mutexes, two fifths of the switches were once lost.
#[test]
#[ignore = "needs root"]
fn root_nothing_is_lost_of_realtime_mutexes() {
    let has_stress = Command::new("stress-ng").arg("--version").output().is_ok();
    if !has_stress {
        swtch_test::skip!("stress-ng is not installed (apt install stress-ng)");
    }
    let _machine = alone();
    let _quiet = swtch_test::depends_on_quiet();
    let recording = Recording::of(&["--", "stress-ng", "--mutex", "2", "-t", "2"]);
    let recorded = recording.read();
    let counts = recorded.counts();
    println!(
        "{} switches, {} lost, {:?}",
        counts.stored, counts.lost, recorded.meta.guard
    );
    recorded.assert_balanced();
    assert!(counts.stored > 100_000, "{counts:?}");
}

/// Recorded tasks keep their priority, and the recorder gets its own back.
#[test]
#[ignore = "needs root"]
fn root_no_thread_but_the_guard_has_a_realtime_priority() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let script = "chrt -p $$ > policy; sleep 1";
    let recorder = TestProcess::start(&mut place.record(&["--", "sh", "-c", script]));
    let policies = || {
        let threads = std::fs::read_dir(format!("/proc/{}/task", recorder.pid()));
        let policy = |stat: &str| {
            let name = stat.split_once('(')?.1.rsplit_once(')')?.0.to_owned();
            let fields = stat.rsplit(')').next()?;
            Some((name, fields.split_whitespace().nth(38)?.to_owned()))
        };
        let stats = threads.into_iter().flatten().flatten();
        let stats = stats.filter_map(|t| std::fs::read_to_string(t.path().join("stat")).ok());
        stats.filter_map(|stat| policy(&stat)).collect::<Vec<_>>()
    };
    // The number of SCHED_DEADLINE is 6, that of SCHED_OTHER 0.
    let guard = ("swtch-guard".to_owned(), "6".to_owned());
    wait_until("the guard runs", || policies().contains(&guard));
    for (name, policy) in policies() {
        let expected = if name == guard.0 { "6" } else { "0" };
        assert_eq!(policy, expected, "{name}");
    }
    wait_until("the command tells its policy", || {
        std::fs::read_to_string(place.dir().join("policy"))
            .is_ok_and(|text| text.contains("SCHED_OTHER"))
    });
}

/// A borrowed priority must not starve the machine: ordinary work goes on meanwhile.
#[test]
#[ignore = "needs root"]
fn root_a_guarded_recorder_leaves_time_to_others() {
    let _machine = alone();
    let _quiet = swtch_test::depends_on_quiet();
    let place = TraceDir::new();
    let storm = [
        "--", SWTCH, "workload", "storm", "--quiet", "--count", "2000",
    ];
    let mut recorder = TestProcess::start(&mut place.record(&storm));
    let begun = Instant::now();
    let ran = Command::new("sh")
        .args(["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"])
        .status();
    let took = begun.elapsed();
    assert!(ran.unwrap().success());
    recorder.ends_within(SOON);
    let recorded = TraceContents::new(Trace::open(&place.trace()).unwrap());
    println!("20,000 turns in {took:?}, {:?}", recorded.meta.guard);
    assert!(took < Duration::from_secs(5), "{took:?}");
}
