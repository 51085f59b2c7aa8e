//! Compares the number of rows with the switches that the kernel counted: for a command, the whole
//! machine, running processes and a cgroup.

use std::thread;
use std::time::Duration;

use swtch_core::TaskEventKind;
use swtch_store::Trace;

use crate::machine::{SOON, TestCgroup, TestProcess, alone, wait_until};
use crate::recording::{
    Ids, Recording, SWTCH, TraceContents, TraceDir, least_buffer, start_recorder, stderr, stdout,
    swtch,
};

/// Allowed difference between a thread's rows and the kernel's count, in thousandths.
const TOLERATED_PER_THOUSAND: u64 = 1;

/// Compares the rows of every thread that ended with the kernel's own counters of it. Returns the
/// sums of the rows and of the counts.
fn assert_as_counted(recorded: &TraceContents) -> (u64, u64) {
    let mut sums = (0, 0);
    let mut threads = 0;
    for (ids, rows) in recorded.by_thread() {
        let Some((rows, counted)) = recorded.rows_and_kernel_count(ids, &rows) else {
            continue;
        };
        let tolerated = counted * TOLERATED_PER_THOUSAND / 1000;
        assert!(
            rows.abs_diff(counted) <= tolerated,
            "{ids:?}: {rows} rows, the kernel counted {counted}: {:?}",
            recorded.life_of(ids).collect::<Vec<_>>()
        );
        threads += 1;
        sums = (sums.0 + rows, sums.1 + counted);
    }
    assert!(threads > 0, "some thread ended");
    sums
}

#[test]
#[ignore = "needs root"]
fn root_rows_of_a_pipe_benchmark_are_as_the_kernel_counts() {
    let _machine = alone();
    // On one CPU each read blocks; across two, one read in some thousands finds its byte there
    // already.
    let one_cpu = ["--", "taskset", "-c", "0"];
    let bench = ["perf", "bench", "sched", "pipe", "-l", "20000"];
    let words = [&one_cpu[..], &bench[..]].concat();
    let recording = Recording::of(&words);
    if recording.output.status.code() == Some(127) {
        swtch_test::skip!("perf or taskset is not installed");
    }
    let recorded = recording.read();
    recorded.assert_balanced();
    let (rows, counted) = assert_as_counted(&recorded);
    println!("perf bench sched pipe: {rows} rows, {counted} by the kernel");
    assert!(counted >= 40_000, "two switches a round: {counted}");
}

/// With the least memory that is accepted, what does not fit is lost, and counted as such.
#[test]
#[ignore = "needs root"]
fn root_a_buffer_too_small_for_a_load_loses_switches_and_counts_them() {
    let _machine = alone();
    let load = ["--", SWTCH, "workload", "yield", "--count", "30000"];
    let least = least_buffer();
    let recording = Recording::of(&[&["--buffer", &least], &load[..]].concat());
    let recorded = recording.read();
    recorded.assert_accounted();
    let counts = recorded.counts();
    println!("with {least}: {counts:?}");
    assert!(counts.stored > 500 && counts.stored + counts.lost >= 30_000);
}

#[test]
#[ignore = "needs root"]
fn root_rows_of_futex_players_are_as_the_kernel_counts() {
    let _machine = alone();
    let recording = Recording::of(&["--", SWTCH, "workload", "condvar", "--count", "20000"]);
    let recorded = recording.read();
    recorded.assert_balanced();
    let (rows, counted) = assert_as_counted(&recorded);
    println!("condvar: {rows} rows, {counted} by the kernel");
    assert!(counted >= 39_990, "two switches a round: {counted}");
}

/// `/proc/stat` counts on all CPUs, with switches of idle. Attaching and detaching probes takes
/// place between its readings and the first and last record.
#[test]
#[ignore = "needs root"]
fn root_the_whole_machine_is_counted_as_proc_stat_counts() {
    let _machine = alone();
    let _quiet = swtch_test::depends_on_quiet();
    let _load = TestProcess::start(&mut swtch(["workload", "pipe", "--count", "1000000"]));
    let recording = Recording::of(&["-a", "-d", "1"]);
    let recorded = recording.read();
    let counts = recorded.counts();
    assert_eq!(counts.filtered, 0);
    let kernel = &recorded.meta.kernel;
    let counted = kernel.ctxt_after.unwrap() - kernel.ctxt_before.unwrap();
    let seen = counts.switches_seen + counts.idle;
    println!("-a -d 1: {seen} seen, {counted} by the kernel");
    let apart = seen.abs_diff(counted);
    assert!(apart * 100 <= counted, "{seen} seen, {counted} counted");
}

#[test]
#[ignore = "needs root"]
fn root_a_running_process_is_recorded_with_its_threads() {
    let _machine = alone();
    let mut running = TestProcess::start(&mut swtch(["workload", "hogs", "--count", "60000"]));
    wait_until("it has threads", || threads_of(running.pid()) > 3);
    let place = TraceDir::new();
    let pid = running.pid().to_string();
    let mut recorder = start_recorder(&place, &["-p", &pid]);
    thread::sleep(Duration::from_millis(500));
    running.signal(libc::SIGTERM);
    running.ends_within(SOON);
    assert!(recorder.ends_within(SOON).success());
    let recorded = TraceContents::new(Trace::open(&place.trace()).unwrap());
    recorded.assert_balanced();
    let threads = recorded.by_thread();
    let own = threads.keys().filter(|ids| ids.0 == running.pid()).count();
    assert!(own > 3, "threads that were there before: {threads:?}");
    let (rows, counted) = assert_as_counted(&recorded);
    println!("hogs: {rows} rows, {counted} by the kernel");
}

#[test]
#[ignore = "needs root"]
fn root_threads_that_start_later_are_recorded() {
    let _machine = alone();
    let running = TestProcess::start(&mut swtch([
        "workload",
        "thread-exits",
        "--count",
        "1000000",
    ]));
    let recorded = record_for_a_moment(&running);
    let born = recorded
        .tasks
        .iter()
        .filter(|event| event.kind == TaskEventKind::Fork && event.pid.get() == running.pid());
    assert!(born.count() > 20, "threads start all the time");
    assert_as_counted(&recorded);
}

#[test]
#[ignore = "needs root"]
fn root_children_of_a_running_process_are_recorded() {
    let _machine = alone();
    let place = TraceDir::new();
    let done = place.dir().join("done");
    let script = format!(
        "while :; do sh -c 'sleep 0.01'; echo >> {}; done",
        done.display()
    );
    let running = TestProcess::start(std::process::Command::new("sh").args(["-c", &script]));
    let pid = running.pid().to_string();
    let mut recorder = start_recorder(&place, &["-p", &pid]);
    let slept = || std::fs::read(&done).map_or(0, |lines| lines.len());
    let before = slept();
    wait_until("some have slept", || slept() > before + 5);
    recorder.signal(libc::SIGINT);
    assert!(recorder.ends_within(SOON).success());
    let recorded = TraceContents::new(Trace::open(&place.trace()).unwrap());
    assert_eq!(recorded.imbalance(), [""; 0]);
    let sleepers = recorded
        .tasks
        .iter()
        .filter(|event| event.kind == TaskEventKind::Exec && event.comm == b"sleep");
    // The children, and theirs if the shell forks once more.
    assert!(sleepers.count() > 3, "{:?}", recorded.tasks);
    assert_as_counted(&recorded);
}

fn record_for_a_moment(running: &TestProcess) -> TraceContents {
    thread::sleep(Duration::from_millis(50));
    let place = TraceDir::new();
    let pid = running.pid().to_string();
    let output = place.record(&["-d", "0.5", "-p", &pid]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let recorded = TraceContents::new(Trace::open(&place.trace()).unwrap());
    assert_eq!(recorded.imbalance(), [""; 0]);
    recorded
}

#[test]
#[ignore = "needs root"]
fn root_a_cgroup_is_recorded_and_nothing_beside_it() {
    let _machine = alone();
    let Some(cgroup) = TestCgroup::new() else {
        swtch_test::skip!("no cgroup hierarchy with the cpu controller");
    };
    let path = cgroup.path().to_string_lossy().into_owned();
    let join = format!("echo $$ > {path}/cgroup.procs; exec \"$@\"");
    let words = [
        "-c",
        &join,
        "sh",
        SWTCH,
        "workload",
        "pipe-processes",
        "--count",
        "1000000",
    ];
    let inside = TestProcess::start(std::process::Command::new("sh").args(words));
    let mut beside = swtch(["workload", "nanosleep", "--count", "100000"]);
    let _outside = TestProcess::start(&mut beside);
    wait_until("it has joined and forked", || members(&cgroup).len() >= 3);
    let inside_before = members(&cgroup);
    let recording = Recording::that_succeeds(&["-d", "0.5", "--cgroup", &path]);
    let recorded = recording.read();
    recorded.assert_balanced();
    let threads: Vec<Ids> = recorded.by_thread().into_keys().collect();
    assert!(threads.len() >= 2, "{threads:?}");
    assert!(
        threads.iter().all(|ids| inside_before.contains(&ids.0)),
        "{threads:?}"
    );
    assert!(recorded.counts().filtered > 0, "the others ran, too");
    drop(inside);
}

/// Several cgroups are one scope; what runs in another one is left out.
#[test]
#[ignore = "needs root"]
fn root_several_cgroups_are_recorded_and_nothing_beside_them() {
    let _machine = alone();
    let cgroups = [0; 3].map(|_| TestCgroup::new());
    if cgroups.iter().any(Option::is_none) {
        swtch_test::skip!("no cgroup hierarchy with the cpu controller");
    }
    let cgroups: Vec<TestCgroup> = cgroups.into_iter().flatten().collect();
    let paths: Vec<_> = cgroups.iter().map(|one| one.path().to_str()).collect();
    let paths: Vec<&str> = paths.into_iter().flatten().collect();
    let naps = |path: &&str| {
        let script = format!("echo $$ > {path}/cgroup.procs; while :; do sleep 0.01; done");
        TestProcess::start(std::process::Command::new("sh").args(["-c", &script]))
    };
    let running: Vec<TestProcess> = paths.iter().map(naps).collect();
    wait_until("all have joined", || {
        let joined = cgroups.iter().zip(&running);
        joined
            .into_iter()
            .all(|(cgroup, one)| members(cgroup).contains(&one.pid()))
    });
    let words = ["-d", "0.5", "--cgroup", paths[0], "--cgroup", paths[1]];
    let recording = Recording::that_succeeds(&words);
    let recorded = recording.read();
    recorded.assert_balanced();
    let threads: Vec<Ids> = recorded.by_thread().into_keys().collect();
    let is_seen = |one: &TestProcess| threads.iter().any(|ids| ids.0 == one.pid());
    let seen: Vec<bool> = running.iter().map(is_seen).collect();
    assert_eq!(seen, [true, true, false]);
    let said = stdout(&recording.report(&[]));
    let scope = format!("cgroups {}, {}", paths[0], paths[1]);
    assert!(said.contains(&scope), "{said}");
}

fn members(cgroup: &TestCgroup) -> Vec<u32> {
    let list = std::fs::read_to_string(cgroup.path().join("cgroup.procs")).unwrap();
    list.lines().map(|pid| pid.parse().unwrap()).collect()
}

fn threads_of(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count)
}
