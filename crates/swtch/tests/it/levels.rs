//! Both levels in one trace: the kernel's switches and those of a user-mode scheduler, each
//! compared with its own counters.
//!
//! The load (`examples/two_levels_load.rs`) prints on stdout what its schedulers and the kernel
//! counted between two moments; a trace must hold as many rows between them.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use swtch_core::{EvidenceBits, Level, Switch, TaskKey};
use swtch_report::opening;
use swtch_store::{Columns, Trace};

use crate::machine::{SOON, TestProcess, wait_until};
use crate::recording::{Recording, TraceContents, TraceDir, example, start_recorder, stdout};

/// Lines of `key=value`, as numbers.
fn numbers(answer: &str) -> Vec<BTreeMap<&str, u64>> {
    let pair = |word: &'_ str| {
        let at = word.find('=').unwrap();
        (at, word[at + 1..].parse().unwrap())
    };
    answer
        .lines()
        .map(|line| {
            line.split(' ')
                .map(|word| (&word[..pair(word).0], pair(word).1))
                .collect()
        })
        .collect()
}

/// A recording of the load, with its rows.
struct TwoLevels {
    recording: Recording,
    rows: Vec<Switch>,
    recorded: TraceContents,
}

impl TwoLevels {
    fn of(arguments: &[&str]) -> Self {
        Self::of_caller(arguments, None)
    }

    /// A recording of the load, as if `caller` had called `sudo`.
    fn of_caller(arguments: &[&str], caller: Option<&str>) -> Self {
        let load = example("two_levels_load");
        let mut words = vec!["--", load.to_str().unwrap()];
        words.extend(arguments);
        let place = caller.map_or_else(TraceDir::new, |caller| {
            TraceDir::of(caller.parse().unwrap())
        });
        let mut record = place.record(&words);
        let numbers = ["SUDO_UID", "SUDO_GID"].into_iter();
        record.envs(numbers.filter_map(|name| Some((name, caller?))));
        let output = record.output().unwrap();
        let recording = Recording { place, output };
        let trace = Trace::open(&recording.place.trace()).unwrap();
        let mut rows = Vec::new();
        trace
            .scan_levels(Columns::all(), None, &mut |row| rows.push(*row))
            .unwrap();
        Self {
            recorded: recording.read(),
            rows,
            recording,
        }
    }

    fn rows(&self, level: Level) -> impl Iterator<Item = &Switch> {
        self.rows.iter().filter(move |row| row.level == level)
    }

    /// Checks that there are as many rows of each level as the schedulers and the kernel counted.
    fn assert_counts(&self) {
        let answer = stdout(&self.recording.output);
        let answer = numbers(&answer);
        let (said, threads) = answer.split_first().unwrap();
        let is_between = |row: &&Switch| (said["from_ns"]..said["to_ns"]).contains(&row.ts.as_ns());
        let user = self.rows(Level::User).filter(is_between).count();
        assert_eq!(
            u64::try_from(user).unwrap(),
            said["context_switches"],
            "{said:?}"
        );
        let keys: BTreeMap<u64, TaskKey> = self
            .recorded
            .tasks
            .iter()
            .map(|task| (u64::from(task.tid.get()), task.task))
            .collect();
        for thread in threads {
            let of_thread = self
                .rows(Level::Os)
                .filter(|row| row.task == keys[&thread["tid"]]);
            let between: Vec<_> = of_thread.filter(is_between).collect();
            let voluntary = between
                .iter()
                .filter(|row| row.evidence.bits.has(EvidenceBits::VOLUNTARY));
            let (rows, voluntary) = (between.len() as u64, voluntary.count() as u64);
            // The load reads the kernel's counters some microseconds after the moment that it
            // prints.
            let counted = thread["voluntary"] + thread["involuntary"];
            assert!(rows.abs_diff(counted) <= 2, "{rows} rows: {thread:?}");
            assert!(
                (rows - voluntary).abs_diff(thread["involuntary"]) <= 2,
                "{thread:?}"
            );
        }
    }

    /// If a user run covers an OS switch of its thread, the switch must carry that run or the one
    /// before. A run begins at the clock reading that ended the one before, and a switch in the
    /// scheduler's own code in between, such as when it wakes another thread, still carries the one
    /// before. Those are few, since that code is short; [`Self::assert_own_code`] knows them
    /// exactly.
    fn assert_attribution(&self) {
        let mut runs: BTreeMap<TaskKey, Vec<&Switch>> = BTreeMap::new();
        for row in self.rows(Level::User) {
            runs.entry(row.task).or_default().push(row);
        }
        let (mut covered, mut between, mut wrong) = (0, 0, Vec::new());
        for row in self.rows(Level::Os) {
            let of_thread = runs.get(&row.task).map_or(&[][..], Vec::as_slice);
            let next = of_thread.partition_point(|run| run.ts < row.ts);
            let Some(run) = of_thread.get(next) else {
                continue;
            };
            let start = run.ts.as_ns() - run.ran.unwrap().as_ns();
            let Some(into) = row.ts.as_ns().checked_sub(start) else {
                continue;
            };
            covered += 1;
            let before = next.checked_sub(1).map(|before| of_thread[before]);
            let is_carried =
                |run: &Switch| (row.user_task, row.user.run) == (run.user_task, run.user.run);
            if before.is_some_and(is_carried) {
                between += 1;
            } else if !is_carried(run) {
                wrong.push((row.ts, into, row.user_task, run.user_task));
            }
        }
        assert!(covered > 20, "only {covered} OS switches inside user runs");
        assert!(
            between * 50 <= covered,
            "{between} of {covered} between two runs"
        );
        assert!(wrong.is_empty(), "of {covered}: {wrong:?}");
        println!("{covered} OS switches inside user runs, {between} between two, none wrong");
    }

    /// While a worker was in its own code, by its own clock, every switch must carry that worker. A
    /// switch at any other time is in the scheduler's own code, between two workers, and carries
    /// the one that left or the one that comes next; or it is in the task that started the workers
    /// and waits for them, which records no times.
    fn assert_own_code(&self, own_code: &str) {
        let stays = numbers(own_code);
        let mut by_thread: BTreeMap<u64, TaskKey> = BTreeMap::new();
        for row in self.rows(Level::User) {
            by_thread.insert(row.user_task.unwrap(), row.task);
        }
        let workers: BTreeSet<u64> = stays.iter().map(|stay| stay["task"]).collect();
        let mut of_thread: BTreeMap<TaskKey, Vec<(u64, u64, u64)>> = BTreeMap::new();
        for stay in &stays {
            let thread = by_thread[&stay["task"]];
            let stay = (stay["from_ns"], stay["to_ns"], stay["task"]);
            of_thread.entry(thread).or_default().push(stay);
        }
        let (mut inside, mut between, mut wrong) = (0, 0, Vec::new());
        for stays in of_thread.values_mut() {
            stays.sort_unstable();
        }
        for row in self.rows(Level::Os) {
            let stays = of_thread.get(&row.task).map_or(&[][..], Vec::as_slice);
            let ns = row.ts.as_ns();
            let next = stays.partition_point(|stay| stay.0 <= ns);
            let here = next.checked_sub(1).map(|last| stays[last]);
            let carried = row.user_task;
            match (here, stays.get(next)) {
                (Some((_, to, task)), _) if ns < to => {
                    inside += 1;
                    if carried != Some(task) {
                        wrong.push((ns, carried, task));
                    }
                }
                (Some((_, _, before)), Some((_, _, after))) => {
                    between += 1;
                    let is_worker = carried.is_none_or(|task| workers.contains(&task));
                    if is_worker && ![Some(before), Some(*after)].contains(&carried) {
                        wrong.push((ns, carried, before));
                    }
                }
                _ => {}
            }
        }
        assert!(
            inside > 100,
            "only {inside} OS switches in workers' own code"
        );
        assert!(wrong.is_empty(), "{wrong:?}");
        println!("{inside} OS switches in workers' own code, {between} between, none wrong");
    }

    fn assert_balanced(&self) {
        self.recorded.assert_balanced();
        let user = self.recorded.meta.user.as_ref().unwrap();
        let went = user.stored + user.idle + user.lost + user.unnamed + user.storage_failed;
        assert_eq!((user.written, user.lost), (went, 0), "{user:?}");
        assert_eq!(user.stored, self.rows(Level::User).count() as u64);
        assert_eq!((user.words_unread, user.refused.len()), (0, 0), "{user:?}");
    }
}

/// Two busy processes that compete for the CPUs: on a quiet machine the kernel rarely switches. Beside many more a worker
/// has too few turns on a CPU for a hundred switches.
fn others() -> (swtch_test::QuietReading, [TestProcess; 2]) {
    let quiet = swtch_test::depends_on_quiet();
    let busy = || TestProcess::start(Command::new("sh").args(["-c", "while :; do :; done"]));
    (quiet, [busy(), busy()])
}

/// A run in fiber mode, and the times at which its workers were in their own code.
fn with_own_code(schedulers: &str, workers: &str, ms: &str) -> (TwoLevels, String) {
    let place = TraceDir::new();
    let own_code = place.dir().join("own-code");
    let run = TwoLevels::of(&["fiber", schedulers, workers, ms, own_code.to_str().unwrap()]);
    (run, std::fs::read_to_string(own_code).unwrap())
}

/// The finder runs as the caller then, and the schedulers belong to a command that runs as root.
#[test]
#[ignore = "needs root"]
fn root_under_sudo_the_switches_of_a_scheduler_are_recorded_too() {
    let _machine = crate::machine::alone();
    let run = TwoLevels::of_caller(&["fiber", "1", "4", "600"], Some("65534"));
    run.assert_counts();
}

/// One thread runs all workers: its current worker changes some hundred times, which the kernel
/// does not know.
#[test]
#[ignore = "needs root"]
fn root_os_switches_of_a_scheduler_carry_the_worker_and_user_rows_are_its_counters() {
    let _others = others();
    let (run, own_code) = with_own_code("1", "4", "1500");
    run.assert_balanced();
    run.assert_counts();
    run.assert_attribution();
    run.assert_own_code(&own_code);
}

/// The worker reads the clock itself, independently of the scheduler.
#[test]
#[ignore = "needs root"]
fn root_a_switch_in_a_worker_s_own_code_carries_that_worker_always() {
    let _others = others();
    let (run, own_code) = with_own_code("2", "8", "2000");
    run.assert_balanced();
    run.assert_own_code(&own_code);
}

/// Two schedulers are two rings and two threads.
#[test]
#[ignore = "needs root"]
fn root_each_scheduler_has_its_own_rows() {
    let _others = others();
    let (run, own_code) = with_own_code("2", "8", "2000");
    run.assert_balanced();
    run.assert_counts();
    run.assert_attribution();
    run.assert_own_code(&own_code);
    let threads: BTreeSet<_> = run.rows(Level::User).map(|row| row.task).collect();
    assert_eq!(threads.len(), 2);
}

/// Workers are threads here: a user switch is an OS switch, too, and both are counted separately.
#[test]
#[ignore = "needs root"]
fn root_thread_mode_has_the_same_counters() {
    let run = TwoLevels::of(&["thread", "1", "4", "1000"]);
    run.assert_balanced();
    run.assert_counts();
}

/// Reports that do not ask for levels count the kernel's switches only.
#[test]
#[ignore = "needs root"]
fn root_reports_never_mix_the_levels() {
    let run = TwoLevels::of(&["fiber", "1", "4", "600"]);
    let os = run
        .recorded
        .by_thread()
        .values()
        .map(Vec::len)
        .sum::<usize>();
    let total = |by: &str| {
        let answer = run.recording.report(&["--by", by, "--format", "json"]);
        let json: Value = serde_json::from_str(&stdout(&answer)).unwrap();
        json["total"]["switches"].as_u64()
    };
    for by in ["reason", "process", "thread", "syscall", "cpu", "cgroup"] {
        assert_eq!(total(by), Some(os as u64), "{by}");
    }
    let answer = run.recording.report(&["--by", "level", "--format", "json"]);
    let json: Value = serde_json::from_str(&stdout(&answer)).unwrap();
    let user = run.rows(Level::User).count();
    assert_eq!(json["rows"][0]["switches"], os);
    assert_eq!(json["rows"][1]["switches"], user);
    let parts = [
        "os_switches_in_user_run",
        "user_switches_in_os_run",
        "reasons",
    ];
    assert!(
        parts
            .iter()
            .all(|part| !json[part].as_array().unwrap().is_empty())
    );
    let carried = &json["attribution"];
    assert!(carried["with_worker"].as_u64().unwrap() > 0, "{carried}");
}

/// The program runs already when recording begins, and ends while it is recorded.
#[test]
#[ignore = "needs root"]
fn root_a_running_scheduler_is_found_and_its_end_is_no_error() {
    let load = TestProcess::start(
        Command::new(example("two_levels_load")).args(["fiber", "1", "4", "60000"]),
    );
    std::thread::sleep(Duration::from_millis(100));
    let place = TraceDir::new();
    let mut recorder = start_recorder(&place, &["-p", &load.pid().to_string()]);
    wait_until("switches of the scheduler are recorded", || {
        opening::open(&place.trace()).is_ok_and(|trace| trace.user_row_count() > 20)
    });
    load.signal(libc::SIGTERM);
    assert!(recorder.ends_within(SOON).success());
    let trace = Trace::open(&place.trace()).unwrap();
    assert!(trace.user_row_count() > 20, "{:?}", trace.meta().user);
    let names: Vec<_> = trace
        .wait_types()
        .unwrap()
        .into_iter()
        .map(|row| row.name)
        .collect();
    assert!(
        names.iter().any(|name| name == "SOS_SCHEDULER_YIELD"),
        "{names:?}"
    );
}

/// A trace of a program without a scheduler has no rows of the user level.
#[test]
#[ignore = "needs root"]
fn root_a_program_without_scheduler_has_one_level() {
    let recording = Recording::of(&["--", "sleep", "0.2"]);
    let recorded = recording.read();
    recorded.assert_balanced();
    assert_eq!(recorded.meta.user, None);
    assert!(recorded.switches.iter().all(|row| row.user.run.is_none()));
    let answer = stdout(&recording.report(&["--by", "level"]));
    assert!(
        answer.contains("no user-mode scheduler was met"),
        "{answer}"
    );
}
