//! Compares what is recorded without root with what root records of the same run by eBPF programs.
//!
//! ```text
//! swtch record (root, eBPF) ─▶ swtch record (nobody, perf events) ─▶ workload
//!        └▶ root.swtch                └▶ own.swtch         the same threads in both
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use swtch_core::{EvidenceBits, Reason, Switch};
use swtch_store::{RecordingBackend, Trace};

use crate::machine::{TestProcess, alone, beside_others};
use crate::recording::{Ids, Recording, SWTCH, TraceContents, TraceDir, stderr, stdout, swtch};
use crate::stranger::Stranger;

/// Moments of one switch in both traces: the record of perf is written a little after the
/// tracepoint.
const MOST_APART_NS: u64 = 200_000;

/// As long as a hypervisor takes a CPU away, between the two recorders' looks at the clock.
const MOST_STOLEN_NS: u64 = 20_000_000;

/// As long as the teardown of a task may take between the record of its exit and its last switch.
const MOST_EXIT_NS: u64 = 100_000_000;

/// `TASK_DEAD` (`include/linux/sched.h`).
const TASK_DEAD: u32 = 0x80;

fn is_last(row: &Switch) -> bool {
    row.evidence.state & TASK_DEAD != 0
}

/// Returns true if two rows of a thread are of one switch. The record of an exit stands for the last switch-out, before
/// which a task may still wait until its address space is taken down.
fn is_same(of_root: &Switch, own: &Switch) -> bool {
    let apart = of_root.ts.as_ns().abs_diff(own.ts.as_ns());
    match is_last(own) {
        true => is_last(of_root) && apart < MOST_EXIT_NS,
        false => of_root.cpu == own.cpu && apart < MOST_APART_NS,
    }
}

/// Returns true if they may be of one switch all the same: the hypervisor may have taken the CPU in between.
fn is_same_but_late(of_root: &Switch, own: &Switch) -> bool {
    let apart = of_root.ts.as_ns().abs_diff(own.ts.as_ns());
    let is_able = |row: &Switch| row.evidence.state == 0;
    of_root.cpu == own.cpu && apart < MOST_STOLEN_NS && is_able(of_root) == is_able(own)
}

/// The rows of each thread, by its ids.
fn rows(recorded: &TraceContents) -> BTreeMap<Ids, Vec<&Switch>> {
    recorded.by_thread()
}

/// Records a workload without root, and root records all of it.
fn record_both(load: &[&str]) -> (TraceContents, TraceContents) {
    let stranger = Stranger::new();
    let place = TraceDir::new();
    let own = stranger.dir().join("own.swtch");
    let mut command = swtch(["record", "-o"]);
    command.arg(place.trace()).args(["--", "setpriv"]);
    command.args(Stranger::words(&[])).arg(stranger.program());
    command.args(["record", "-o"]).arg(&own).arg("--");
    let program = stranger.program().to_str().unwrap();
    command.args(
        load.iter()
            .map(|word| if *word == SWTCH { program } else { word }),
    );
    let output = command.current_dir(stranger.dir()).output().unwrap();
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("by perf events"), "{said}");
    let open = |path| TraceContents::new(Trace::open(path).unwrap());
    (open(&place.trace()), open(&own))
}

/// Every switch that the stranger sees is one of root's, at the same moment, on the same CPU, and
/// of the same side: asleep, or able to run on.
#[test]
#[ignore = "needs root"]
fn root_without_root_the_same_switches_are_seen_and_none_is_called_wrongly() {
    let _machine = alone();
    // Two recorders read the clock one after the other: whoever has the CPU between them moves them apart.
    let _quiet = swtch_test::depends_on_quiet();
    for load in ["futex", "sampler", "yield", "wait4", "hogs", "forks"] {
        let words = [SWTCH, "workload", load];
        let (roots, own) = record_both(&words);
        assert_eq!(own.meta.backend, RecordingBackend::Perf);
        assert_eq!(own.meta.counts.lost, 0, "{load}");
        own.assert_balanced();
        // Switches that the kernel did not report to root's recorder, on machines that have such.
        let untraced = roots.meta.counts.untraced_in_scope.unwrap();
        let (roots, own) = (rows(&roots), rows(&own));
        let (mut seen, mut there, mut missing, mut late) = (0, 0, 0, 0);
        for (ids, own) in &own {
            let all = &roots[ids];
            let first = own[0].ts.as_ns().saturating_sub(MOST_APART_NS);
            // Root has recorded the thread before the stranger's recording began, and sees what it
            // does in its own end, between the record of its exit and its last switch.
            let end = own.last().map_or(0, |row| row.ts.as_ns());
            let is_seen = |row: &&&Switch| {
                let ts = row.ts.as_ns();
                ts >= first && (ts <= end || is_last(row))
            };
            let all: Vec<_> = all.iter().filter(is_seen).collect();
            there += all.len();
            seen += own.len();
            let mut all = all.into_iter();
            for row in own {
                let found = |is_it: fn(&Switch, &Switch) -> bool| {
                    let mut later = all.clone();
                    let same = later.find(|of_root| is_it(of_root, row))?;
                    Some((same, later))
                };
                let Some((same, later)) = found(is_same).or_else(|| {
                    late += 1;
                    found(is_same_but_late)
                }) else {
                    missing += 1;
                    assert!(missing <= untraced, "{load}, {ids:?}: root has no {row:?}");
                    continue;
                };
                all = later;
                let reason = match same.evidence.state {
                    // Preempted inside the kernel, on its way to sleep.
                    _ if same.evidence.bits.has(EvidenceBits::KERNEL_PREEMPT) => Reason::Preempted,
                    0 => Reason::Preempted,
                    _ if is_last(same) => Reason::Exit,
                    _ => Reason::Blocked,
                };
                assert_eq!(row.rule.reason, reason, "{load}, {ids:?}: {same:?}");
            }
        }
        println!("{load}: {seen} switches seen without root, {there} by root");
        assert!(seen > 100, "{load}: {seen}");
        assert!(seen * 100 >= there * 99, "{load}: {seen} of {there}");
        assert!(late * 100 <= seen, "{load}: {late} of {seen} are late");
    }
}

/// A running process with threads, taken by -p; the answer says what it lacks and how to get it.
#[test]
#[ignore = "needs root"]
fn root_without_root_a_running_process_is_recorded_and_the_answer_says_what_it_lacks() {
    let _machine = alone();
    let stranger = Stranger::new();
    let script = "./swtch workload sampler >&2 & sleep 0.2; ./swtch explain --no-bill -o own.swtch -d 1 -p $!; wait";
    let mut command = std::process::Command::new("setpriv");
    command
        .args(Stranger::words(&[]))
        .args(["sh", "-c", script]);
    let output = command.current_dir(stranger.dir()).output().unwrap();
    let (said, answer) = (stderr(&output), stdout(&output));
    assert!(said.contains("run it with sudo"), "{said}");
    assert!(answer.contains("recorded by perf events"), "{answer}");
    assert!(!answer.contains("complete: 0"), "{answer}");
    let own = TraceContents::new(Trace::open(&stranger.dir().join("own.swtch")).unwrap());
    own.assert_balanced();
    assert!(
        own.by_thread().len() >= 2,
        "its threads: {:?}",
        own.identities()
    );
}

/// The words that make a user without root the root of a namespace of processes and users of their own, as in a
/// container.
const NAMESPACE: [&str; 6] = [
    "unshare",
    "--user",
    "--map-root-user",
    "--pid",
    "--fork",
    "--mount-proc",
];

/// Voluntary and involuntary switches.
type SwitchCounts = [u64; 2];

/// By perf events and by counters, inside and outside of a namespace: as many switches as root
/// records of the same program. (Of short processes perf events miss those preemptions that come
/// while they end.)
#[test]
#[ignore = "needs root"]
fn root_without_root_as_many_switches_are_counted_as_root_records() {
    let _machine = alone();
    for surroundings in [&[][..], &NAMESPACE] {
        let stranger = Stranger::new();
        if !stranger.may(surroundings) {
            swtch_test::skip!("unshare(1) may not make namespaces here");
        }
        fs::hard_link(stranger.program(), stranger.dir().join("load")).unwrap();
        for (backend, load) in [("perf", "futex"), ("proc", "futex"), ("proc", "forks")] {
            let (roots, own) = count_both(&stranger, surroundings, backend, load);
            let [apart, all] = [
                roots[0].abs_diff(own[0]) + roots[1].abs_diff(own[1]),
                roots[0] + roots[1],
            ];
            println!("{surroundings:?} {backend} {load}: {own:?}, root {roots:?}");
            assert!(all > 1_000, "{load}: {roots:?}");
            assert!(
                apart * 100 <= all,
                "{backend} {load}: {own:?}, root {roots:?}"
            );
        }
    }
}

/// Returns what root records of a load, and what the stranger counts of it.
fn count_both(
    stranger: &Stranger,
    surroundings: &[&str],
    backend: &str,
    load: &str,
) -> (SwitchCounts, SwitchCounts) {
    let place = stranger.dir();
    let script = format!(
        "exec ./swtch explain --no-bill --backend {backend} {} --format json -- ./load workload --quiet {load} > answer",
        if backend == "perf" {
            "-o own.swtch"
        } else {
            ""
        }
    );
    let roots = TraceDir::new();
    let mut command = swtch(["record", "-o"]);
    command.arg(roots.trace()).args(["--", "setpriv"]);
    command.args(Stranger::words(&[])).args(surroundings);
    let output = command
        .args(["sh", "-c", &script])
        .current_dir(place)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let roots = TraceContents::new(Trace::open(&roots.trace()).unwrap());
    // The load has a name by which it is told from the recorder, which is the same program.
    let mut processes = BTreeSet::new();
    for event in &roots.tasks {
        if event.comm == b"load" || processes.contains(&event.parent_pid.get()) {
            processes.insert(event.pid.get());
        }
    }
    let ids = roots.identities();
    let of_load = |row: &&Switch| processes.contains(&ids[&row.task].0);
    let of_root = count(roots.switches.iter().filter(of_load));
    let own = match backend {
        "perf" => {
            let own = TraceContents::new(Trace::open(&place.join("own.swtch")).unwrap());
            fs::remove_dir_all(place.join("own.swtch")).unwrap();
            count(own.switches.iter())
        }
        _ => {
            let answer = fs::read(place.join("answer")).unwrap();
            let answer: serde_json::Value = serde_json::from_slice(&answer).unwrap();
            ["voluntary", "involuntary"].map(|kind| answer["trace"][kind].as_u64().unwrap())
        }
    };
    (of_root, own)
}

fn count<'a>(rows: impl Iterator<Item = &'a Switch>) -> SwitchCounts {
    let mut counts = [0, 0];
    for row in rows {
        let is_voluntary = row.evidence.bits.has(EvidenceBits::VOLUNTARY);
        counts[usize::from(!is_voluntary)] += 1;
    }
    counts
}

/// A shell that is recorded has started the recorder, whose own switches are none of the shell's.
#[test]
#[ignore = "needs root"]
fn root_the_recorder_is_not_part_of_the_shell_that_started_it() {
    let _machine = beside_others();
    let stranger = Stranger::new();
    for (user, backend) in [("root", "ebpf"), ("nobody", "perf")] {
        let trace = format!("{backend}.swtch");
        let script = format!(
            "(./swtch record --backend {backend} -o {trace} -d 1 -p $$; touch {backend}-done) & \
             while [ ! -e {backend}-done ]; do sleep 0.01; done; wait"
        );
        let mut command = match user {
            "root" => std::process::Command::new("sh"),
            _ => {
                let mut command = std::process::Command::new("setpriv");
                command.args(Stranger::words(&[])).arg("sh");
                command
            }
        };
        let output = command
            .args(["-c", &script])
            .current_dir(stranger.dir())
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let recorded = Trace::open(&stranger.dir().join(&trace)).unwrap();
        let recorded = TraceContents::new(recorded);
        // Others are named where they had the CPU while the shell waited for it.
        let in_scope = recorded.tasks.iter().filter(|event| event.in_scope);
        let names: BTreeSet<_> = in_scope
            .map(|event| String::from_utf8_lossy(&event.comm).into_owned())
            .collect();
        println!("{backend}: {names:?}");
        assert!(names.contains("sleep"), "{backend}: {names:?}");
        let of_recorder = names.iter().find(|name| name.starts_with("swtch"));
        assert_eq!(of_recorder, None, "{backend}");
    }
}

/// Whatever cannot be had without root is refused with the way to it, and nothing is left behind.
#[test]
#[ignore = "needs root"]
fn root_without_root_the_whole_machine_is_refused() {
    let _machine = beside_others();
    let stranger = Stranger::new();
    for (words, says) in [
        (
            &["record", "--backend", "perf", "-a", "-d", "1"][..],
            "sudo",
        ),
        (
            &["record", "--backend", "proc", "--", "true"],
            "explain --backend proc",
        ),
    ] {
        let output = stranger.run(&[], words);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains(says), "{words:?}: {said}");
        let left: Vec<_> = fs::read_dir(stranger.dir()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1, "only the program: {left:?}");
    }
}

/// Blocked time by thread name and reason.
type BlockedTimes = BTreeMap<String, BTreeMap<String, u64>>;

/// In [`BlockedTimes`] of a recording: time in the run queue.
const RUN_QUEUE: &str = "(run queue)";

/// Looks without privilege against a recording by root of the same run: no look names a reason that
/// the thread's recorded waits do not have, and shares of the blocked time agree.
#[test]
#[ignore = "needs root"]
fn root_what_looks_without_root_see_is_what_was_recorded() {
    let _machine = alone();
    // Beside others the looks have to wait for a CPU as well, and nothing can be compared.
    let _quiet = swtch_test::depends_on_quiet();
    let compared = see_what_was_recorded();
    assert!(compared > 0, "no thread had enough looks to be compared");
}

/// Others keep all CPUs busy, so that looks come late, when threads have just gone to sleep.
#[test]
#[ignore = "needs root"]
fn root_looks_of_a_busy_machine_add_up_to_the_time_that_threads_were_blocked() {
    let _machine = alone();
    let hog =
        || TestProcess::start(std::process::Command::new("sh").args(["-c", "while :; do :; done"]));
    let _hogs: Vec<_> = (0..2 * std::thread::available_parallelism().unwrap().get())
        .map(|_| hog())
        .collect();
    see_what_was_recorded();
}

/// Returns how many threads had enough looks for their shares to be compared.
fn see_what_was_recorded() -> usize {
    let mut compared = 0;
    // On a busy machine there are some twenty looks a second: eight seconds give the hundred that the
    // comparison of shares needs.
    for load in [
        "mutex --count 3000",
        "nanosleep --count 4000",
        "sampler --count 8000",
    ] {
        let stranger = Stranger::new();
        let answer = stranger.dir().join("answer.json");
        let program = stranger.program().display();
        let script = format!(
            "exec {program} explain --backend proc --format json -- {program} workload --quiet {load} > {}",
            answer.display()
        );
        let mut words = vec!["--", "setpriv"];
        words.extend(Stranger::words(&[]));
        words.extend(["sh", "-c", &script]);
        let recorded = recorded_waits(&Recording::of(&words).read());
        let answer: serde_json::Value = serde_json::from_slice(&fs::read(answer).unwrap()).unwrap();
        let looked = looked_waits(&answer["waits"]);
        assert!(!looked.is_empty(), "{answer}");
        if load.starts_with("sampler") {
            see_objects_and_callers(&answer["waits"]);
        }
        let gap = |of: &str| answer[of]["longest_gap_ns"].as_u64().unwrap();
        let (between_samples, between_looks) = (gap("trace"), gap("waits"));
        println!("{load}: samples {between_samples} ns apart at most, looks {between_looks} ns");
        for (comm, looked) in &looked {
            // The recorder's own first thread has the name of the workload's first one.
            if comm == "swtch" {
                continue;
            }
            let of = format!("{load}, {comm}");
            println!("{of}: looked {looked:?}, recorded {:?}", recorded[comm]);
            compare_sums(&of, looked, &recorded[comm], between_samples);
            compared += usize::from(compare_shares(&of, looked, &recorded[comm], between_looks));
        }
    }
    compared
}

/// A lock is told by its address, and a stack is followed from the system call to where the thread
/// began.
fn see_objects_and_callers(waits: &serde_json::Value) {
    let of = |comm: &str, reason: &str| {
        let mut rows = waits["rows"].as_array().unwrap().iter();
        let found = rows.find(|row| row["comm"] == comm && row["reason"] == reason);
        found.unwrap_or_else(|| panic!("no {reason} of {comm}: {waits}"))
    };
    let lock = of("locker-1", "futex")["on"][0]["object"].as_str().unwrap();
    assert!(lock.starts_with("word 0x"), "{lock}");
    let server = &of("server", "net")["waited_in"][0]["frames"];
    let server: Vec<_> = server
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one.as_str().unwrap())
        .collect();
    assert!(server[0].contains("recv"), "{server:?}");
    if cfg!(target_arch = "x86_64") {
        assert!(server.last().unwrap().contains("clone"), "{server:?}");
    }
}

/// The looks that met a thread in a wait for one reason.
#[derive(Clone, Copy, Debug, Default)]
struct LookedWait {
    looks: u64,
    about_ns: u64,
}

/// By thread name and reason.
fn looked_waits(waits: &serde_json::Value) -> BTreeMap<String, BTreeMap<String, LookedWait>> {
    let mut found: BTreeMap<String, BTreeMap<String, LookedWait>> = BTreeMap::new();
    for row in waits["rows"].as_array().unwrap() {
        let text = |key: &str| row[key].as_str().unwrap().to_owned();
        let thread = found.entry(text("comm")).or_default();
        let looked = thread.entry(text("reason")).or_default();
        looked.looks += row["looks"].as_u64().unwrap();
        looked.about_ns += row["about_ns"].as_u64().unwrap();
    }
    found
}

fn recorded_waits(recorded: &TraceContents) -> BlockedTimes {
    let names: BTreeMap<_, _> = recorded
        .tasks
        .iter()
        .map(|event| {
            let comm = String::from_utf8_lossy(&event.comm).into_owned();
            (event.task, comm)
        })
        .collect();
    let mut times = BlockedTimes::new();
    for row in &recorded.switches {
        let thread = times.entry(names[&row.task].clone()).or_default();
        if let (Some(reason), Some(blocked)) = (row.wait.reason, row.wait.blocked()) {
            *thread.entry(reason.to_string()).or_default() += blocked.as_ns();
        }
        let runq = row.wait.runq.map_or(0, |runq| runq.as_ns());
        *thread.entry(RUN_QUEUE.to_owned()).or_default() += runq;
        // The last wait is seen only at its start.
        thread.entry(row.rule.reason.to_string()).or_default();
    }
    times
}

fn compare_sums(
    of: &str,
    looked: &BTreeMap<String, LookedWait>,
    recorded: &BTreeMap<String, u64>,
    between_samples: u64,
) {
    let all: u64 = looked.values().map(|one| one.about_ns).sum();
    let blocked = recorded.values().sum::<u64>() - recorded[RUN_QUEUE];
    // A thread is known from its first sample to its last one.
    assert!(
        all.abs_diff(blocked) < blocked / 10 + 2 * between_samples,
        "{of}: looks add up to {all} ns of {blocked} ns blocked, and samples were at most \
         {between_samples} ns apart"
    );
    for reason in looked.keys() {
        assert!(
            recorded.contains_key(reason) || reason == "unknown",
            "{of}: it never waited for {reason}: {looked:?}, recorded {recorded:?}"
        );
    }
}

/// False when there were not enough looks: at 100 and more, 15 points are three standard deviations,
/// and one look that came late is 10 points at most.
fn compare_shares(
    of: &str,
    looked: &BTreeMap<String, LookedWait>,
    recorded: &BTreeMap<String, u64>,
    between_looks: u64,
) -> bool {
    let runq = recorded[RUN_QUEUE];
    let blocked = recorded.values().sum::<u64>() - runq;
    let known = || looked.iter().filter(|(reason, _)| *reason != "unknown");
    let looks: u64 = known().map(|(_, one)| one.looks).sum();
    let all: u64 = known().map(|(_, one)| one.about_ns).sum();
    // Where the thread had to wait for a CPU, so had the looks, which then do not come at any time.
    if looks < 100 || between_looks > all / 10 || runq > blocked / 10 {
        return false;
    }
    for (reason, one) in known() {
        let shares = [one.about_ns * 100 / all, recorded[reason] * 100 / blocked];
        assert!(
            shares[0].abs_diff(shares[1]) <= 25,
            "{of}, {reason}: {shares:?} %"
        );
    }
    true
}
