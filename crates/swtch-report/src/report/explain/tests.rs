//! Findings and pages of hand-made traces, short enough to see in the test why a rule must speak or
//! not.

mod chains;
mod locks;
mod turns;

use super::*;
use crate::report::drawn::{after, head, names, prices, row, seen, woken_by};
use crate::report::filter::{Filter, Selection};
use crate::report::filtered_trace::counted_rows;
use crate::report::spans::ReadSpans;
use std::path::Path;
use swtch_core::rules::rule_named;
use swtch_core::{
    Class, Coverage, CpuId, Ender, Frame, Nanos, Reason, Stack, StackKind, Switch, TaskEvent,
    TaskKey, Tid, Timestamp, Wait, WakerKind,
};
use swtch_store::{
    DiskCounts, DiskFacts, MemoryLimitFacts, QuotaFacts, SpanRow, WaitingWorkersRow,
};

/// Rows of a small machine, which are added one after the other on its CPUs.
struct DrawnMachine {
    names: Names,
    /// The path of the cgroup in which all tasks are.
    cgroup: String,
    rows: Vec<Switch>,
    quotas: Vec<QuotaFacts>,
    disks: Vec<DiskFacts>,
    memory_limits: Vec<MemoryLimitFacts>,
    symbols: Option<Symbols>,
    workers: Vec<WaitingWorkersRow>,
    spans: Vec<SpanRow>,
}

impl DrawnMachine {
    fn new() -> Self {
        Self {
            names: names(),
            ..Self::of(&[])
        }
    }

    /// As [`Self::new`], but `hog` (key 3) was not recorded.
    fn beside_a_stranger() -> Self {
        let hog = TaskEvent {
            in_scope: false,
            ..seen(3, 30, 30, "hog")
        };
        Self::of(&[seen(1, 10, 10, "server"), seen(2, 10, 11, "worker"), hog])
    }

    fn of(events: &[TaskEvent]) -> Self {
        Self {
            names: Names::new(events),
            cgroup: "/limited/inner".to_owned(),
            rows: Vec::new(),
            quotas: Vec::new(),
            disks: Vec::new(),
            memory_limits: Vec::new(),
            symbols: None,
            workers: Vec::new(),
            spans: Vec::new(),
        }
    }

    /// A run of `task` on CPU 0 for `ran_ns` after the last run there; `next` runs after it.
    fn run(&mut self, mut row: Switch, ran_ns: u64, next: u32) -> &mut Self {
        let last = self.rows.last().map_or(1_000_000, |row| row.ts.as_ns());
        row.ts = Timestamp::from_ns(last + ran_ns);
        row.ran = Some(Nanos::from_ns(ran_ns));
        row.cpu = CpuId::new(0);
        row.next_task = Some(TaskKey::new(next));
        self.rows.push(row);
        self
    }

    /// Stack 0 has these functions with their modules, the innermost first; those of runtimes, whose modules are in
    /// brackets, may have a file and a line.
    fn in_functions(&mut self, functions: &[(&str, &str)], source: Option<(&str, u32)>) {
        let frame = |(id, (name, module)): (u32, &(&str, &str))| Frame {
            id,
            symbol: Some((*name).to_owned()),
            module: Some((*module).to_owned()),
            file: source
                .filter(|_| module.starts_with('['))
                .map(|(file, _)| file.to_owned()),
            line: source
                .filter(|_| module.starts_with('['))
                .map(|(_, line)| line),
            ..Frame::default()
        };
        let frames: Vec<_> = (0..).zip(functions).map(frame).collect();
        let stack = Stack {
            kind: StackKind::User,
            frames: frames.iter().map(|frame| frame.id).collect(),
            ..Stack::default()
        };
        self.symbols = Some(Symbols::new(vec![stack], &frames));
    }

    fn page<'p>(&self, worth: Option<SwitchPricing<'p>>) -> ExplainPage<'p> {
        let names = &self.names;
        let selection = Selection::new(&Filter::default(), names, Timestamp::default());
        let contention = Contention::new(Coverage::EveryTask, 1, &[]);
        let mut page = ExplainPage::new(
            names,
            contention,
            Details::new(
                names,
                PartFacts {
                    arch: Some(Arch::X86_64),
                    ..PartFacts::default()
                },
            ),
            worth,
        );
        let mut spans = ReadSpans::new(names, |_| true);
        self.spans.iter().for_each(|span| spans.add(span));
        page.details.spans = spans.by_thread();
        let mut visitors = page.visitors(names);
        let mut parts = Vec::new();
        for visit in &mut visitors {
            visit(counted_rows(&self.rows, names, &selection, &mut parts));
        }
        drop(visitors);
        page.finish(names);
        self.workers.iter().for_each(|row| page.workers.add(row));
        page.objects.finish_chains(&[], &[], names);
        page
    }

    fn explained(&self) -> Explanation {
        self.explained_of(Nanos::ZERO)
    }

    /// For a recording of this length.
    fn explained_of(&self, wall: Nanos) -> Explanation {
        self.explained_on(wall, None)
    }

    /// For a recording of this length, of a machine that was busy for this share of it.
    fn explained_on(&self, wall: Nanos, busy_pct: Option<f64>) -> Explanation {
        let (page, names) = (self.page(None), &self.names);
        let cgroups = [(CgroupId::new(1), self.cgroup.clone())]
            .into_iter()
            .collect();
        let machine = RecordedMachine {
            cpus: 2,
            busy_pct,
            wall,
            recorder: Some(Pid::new(40)),
            quotas: &self.quotas,
            disks: &self.disks,
            memory_limits: &self.memory_limits,
        };
        let symbols = self.symbols.as_ref();
        page.conclude(names, Some(Arch::X86_64), &cgroups, machine, symbols, None)
    }

    /// The page with a bill, for a recording of `wall_ms` ms.
    fn billed(&self, wall_ms: u64) -> Explanation {
        let (meta, list) = (head().meta, prices());
        let prices = Prices::new(&list, &meta);
        let names = &self.names;
        let page = self.page(Some(SwitchPricing::new(&prices, names, true)));
        let bill = BillContext {
            prices: &prices,
            wall: Nanos::from_ns(wall_ms * MS),
            lost: None,
        };
        let arch = Some(Arch::X86_64);
        let machine = RecordedMachine {
            cpus: 2,
            busy_pct: None,
            wall: Nanos::from_ns(wall_ms * MS),
            recorder: None,
            quotas: &[],
            disks: &[],
            memory_limits: &[],
        };
        page.conclude(
            names,
            arch,
            &FxHashMap::default(),
            machine,
            None,
            Some(&bill),
        )
    }

    fn findings(&self) -> Vec<Finding> {
        self.explained().findings
    }

    fn names_of_findings(&self) -> Vec<&'static str> {
        self.findings().iter().map(|finding| finding.name).collect()
    }

    fn verdict(&self) -> String {
        self.explained().verdict_text()
    }
}

fn by_rule(mut row: Switch, rule: &str) -> Switch {
    row.rule = rule_named(rule).unwrap();
    row
}

fn in_call(mut row: Switch, number: u32) -> Switch {
    row.evidence.syscall = Some(number);
    row
}

fn on(mut row: Switch, key: u64) -> Switch {
    row.evidence.wait_key = Some(key);
    row
}

const MS: u64 = 1_000_000;

#[test]
fn who_only_sleeps_is_told_nothing_to_change() {
    let mut drawing = DrawnMachine::new();
    drawing.run(row(1, Reason::Sleep), 10 * MS, 0);
    drawing.run(
        after(row(1, Reason::Sleep), Reason::Sleep, 50 * MS, 1_000),
        10 * MS,
        0,
    );
    assert_eq!(drawing.names_of_findings(), ["sleeps"]);
    assert_eq!(drawing.findings()[0].advice, None);
}

/// A worker of an async runtime takes a job, and sleeps in the middle of it.
#[test]
fn who_serves_others_and_sleeps_meanwhile_is_told_so() {
    let first = |ender: u64| {
        let mut drawing = DrawnMachine::new();
        for turn in 0..100_u64 {
            drawing.run(
                after(row(1, Reason::Sleep), Reason::Sleep, 300 * MS, 0),
                100_000,
                2,
            );
            if turn % 5 < ender {
                let job = after(row(1, Reason::Sleep), Reason::Futex, 100_000, 0);
                drawing.run(woken_by(job, 2), 10_000, 2);
            }
        }
        drawing.findings().remove(0)
    };
    let at_work = first(1);
    assert_eq!(
        (at_work.name, at_work.kind),
        ("sleeps_at_work", FindingKind::Frequent)
    );
    assert!(
        at_work.places[0].contains("30.0 s in threads that at other times wait for others"),
        "{at_work:?}"
    );
    assert_eq!(first(0).name, "sleeps");
}

#[test]
fn an_empty_trace_has_a_verdict_and_no_finding() {
    let expected = "\nverdict\nNothing stands out: no reason makes 10 % of the switches or 10 % of the \
        blocked time.\n";
    assert_eq!(DrawnMachine::new().verdict(), expected);
}

/// Two threads of one process take turns on one CPU.
#[test]
fn own_threads_that_crowd_a_cpu_are_told_to_be_fewer() {
    let mut drawing = DrawnMachine::new();
    drawing.run(row(1, Reason::Slice), 3 * MS, 2);
    drawing.run(row(2, Reason::Slice), 3 * MS, 1);
    for turn in 0..6 {
        let (task, next) = if turn % 2 == 0 { (1, 2) } else { (2, 1) };
        let taken = after(row(task, Reason::Slice), Reason::Slice, 0, 3 * MS);
        drawing.run(taken, 3 * MS, next);
    }
    let expected = "
verdict
Most switches: slice 100.0 % (8).
Longest time waiting for a CPU came after: slice 100.0 % (18.0 ms).

1. More threads want to run than there are CPUs: threads that could run waited for a CPU for 18.0 ms, all for CPU 0 of 2 (bound by affinity, or a cpuset?): \
42.9 % of the time in which its threads had work, 0.7 times as long as they ran.
   had the CPU: its own threads 100.0 % (18.0 ms)
   took the CPU: server/10 from worker/11 4 times, worker/11 from server/10 4 times
   to change it: run no more busy threads than the 1 CPU it uses (the size of a pool, -j, -threads, \
OMP_NUM_THREADS), or let it use more CPUs
   unless only how much it does in all matters, and not how long one piece takes: with fewer threads \
the pieces are done sooner, but hardly more of them
";
    assert_eq!(drawing.verdict(), expected);
}

/// Short waits in each of thirty windows, one thread on each of the two CPUs. These were busy for less than a half of
/// that time, or there was so much to do for two thirds of the recording only, and they were busy then. In a longer one
/// such short waits are no cause.
#[test]
fn cpus_that_are_idle_meanwhile_are_not_too_few() {
    let hog = |key| TaskEvent {
        in_scope: false,
        ..seen(key, 30, 27 + key, "hog")
    };
    let own = [seen(1, 10, 10, "server"), seen(2, 10, 11, "worker")];
    let mut drawing = DrawnMachine::of(&[&own[..], &[hog(3), hog(4)]].concat());
    for turn in 0..300_u64 {
        for (task, cpu) in [(1, 0), (2, 1)] {
            let mut row = after(row(task, Reason::Poll), Reason::Poll, 100_000, 200_000);
            row.ts = Timestamp::from_ns((turn + 2) * MS);
            row.cpu = CpuId::new(cpu);
            row.ran = Some(Nanos::from_ns(400_000));
            drawing.rows.push(row);
            let mut other = row;
            (other.task, other.wait) = (TaskKey::new(2 + task), Wait::default());
            other.ts = row.ts.before(Nanos::from_ns(400_000));
            other.ran = Some(Nanos::from_ns(200_000));
            drawing.rows.push(other);
        }
    }
    drawing.rows.sort_by_key(|row| row.ts);
    let first = |wall, busy| {
        drawing
            .explained_on(Nanos::from_ns(wall * MS), Some(busy))
            .findings
            .remove(0)
    };
    let placed = first(300, 45.0);
    assert_eq!(placed.name, "placement");
    assert!(
        placed
            .places
            .iter()
            .any(|place| place.contains("idle meanwhile for 55 %")),
        "{placed:?}"
    );
    assert_eq!(first(450, 66.0).name, "neighbour");
    assert_ne!(first(1_200, 25.0).kind, FindingKind::Lost);
}

/// Whatever a thread is blocked for in the middle of work is a cause that can be numbered.
#[test]
fn no_loss_of_time_is_without_a_cause() {
    let is_lost =
        |reason: &&Reason| AwaitedThing::of(**reason, Ender::Interrupt) == AwaitedThing::Work;
    for reason in Reason::ALL.iter().filter(is_lost) {
        let mut drawing = DrawnMachine::new();
        for _ in 0..200 {
            drawing.run(after(row(1, *reason), *reason, 2 * MS, 0), 10_000, 0);
        }
        let first = drawing.findings().remove(0);
        assert_eq!(
            (first.reason, first.kind),
            (Some(*reason), FindingKind::Lost),
            "{first:?}"
        );
        assert_eq!(first.time.as_ns(), 400 * MS, "{first:?}");
    }
}

#[test]
fn a_hog_of_another_process_is_named_and_not_the_program() {
    let mut drawing = DrawnMachine::beside_a_stranger();
    drawing.run(row(1, Reason::Slice), 3 * MS, 3);
    drawing.run(row(3, Reason::Slice), 9 * MS, 1);
    drawing.run(
        after(row(1, Reason::Sleep), Reason::Slice, 0, 9 * MS),
        3 * MS,
        3,
    );
    let findings = drawing.findings();
    assert_eq!(findings[0].name, "neighbour");
    assert_eq!(findings[0].time, Nanos::from_ns(9 * MS));
    assert_eq!(
        findings[0].places[0],
        "had the CPU: hog (cgroup /limited/inner) 100.0 % (9.00 ms)"
    );
    let advice = findings[0].change().unwrap();
    assert!(
        advice.contains("a greater share of them than hog has"),
        "{advice}"
    );
}

/// The server sleeps, wakes behind a hog, and waits: it lost the CPU to nobody, and time all the same.
#[test]
fn a_wait_for_a_cpu_after_a_sleep_is_time_lost() {
    let mut drawing = DrawnMachine::beside_a_stranger();
    drawing.run(row(1, Reason::Sleep), MS, 3);
    for _ in 0..10 {
        drawing.run(row(3, Reason::Slice), 4 * MS, 1);
        let back = after(row(1, Reason::Sleep), Reason::Sleep, 2 * MS, 3 * MS);
        drawing.run(back, MS, 3);
    }
    let findings = drawing.findings();
    assert_eq!(
        (findings[0].name, findings[0].kind),
        ("neighbour", FindingKind::Lost)
    );
    assert_eq!(findings[0].time, Nanos::from_ns(30 * MS));
    assert!(
        findings[0].seen.contains("2.7 times as long as they ran"),
        "{}",
        findings[0].seen
    );
}

/// Perf events of one's own processes do not tell who had the CPU: then nobody is blamed.
#[test]
fn who_is_not_seen_is_not_blamed() {
    let mut drawing = DrawnMachine::new();
    drawing.run(row(1, Reason::Preempted), 10 * MS, 0);
    drawing.run(row(2, Reason::Preempted), 2 * MS, 0);
    let mut back = after(row(1, Reason::Sleep), Reason::Preempted, 0, 90 * MS);
    back.ts = Timestamp::from_ns(0);
    drawing.run(back, 5 * MS, 0);
    let rows = &mut drawing.rows;
    rows[2].ts = Timestamp::from_ns(rows[1].ts.as_ns() + 95 * MS);
    // The run before names another one as next, which has no row.
    rows[1].next_task = Some(TaskKey::new(99));
    let first = drawing.findings().remove(0);
    assert_eq!((first.name, first.change()), ("no_cpu", None));
    assert!(
        first.places[0].ends_with("of that is not told"),
        "{:?}",
        first.places
    );
}

/// The recorder had the CPU for as long as the hog, and is no cause.
#[test]
fn what_the_recorder_takes_is_told_apart() {
    let stranger = |key, pid, comm: &str| TaskEvent {
        in_scope: false,
        ..seen(key, pid, pid, comm)
    };
    let mut drawing = DrawnMachine::of(&[
        seen(1, 10, 10, "server"),
        stranger(3, 30, "hog"),
        stranger(4, 40, "swtch"),
    ]);
    drawing.run(row(1, Reason::Sleep), MS, 3);
    for hog in [3, 4] {
        drawing.run(row(hog, Reason::Slice), 4 * MS, 1);
        let back = after(row(1, Reason::Sleep), Reason::Sleep, 2 * MS, 4 * MS);
        drawing.run(back, MS, 3);
    }
    let first = drawing.findings().remove(0);
    assert_eq!(first.time, Nanos::from_ns(4 * MS));
    assert!(
        first.places[0].starts_with("had the CPU: hog "),
        "{:?}",
        first.places
    );
    assert_eq!(first.places[1], "besides, the recorder had it for 4.00 ms");
}

/// A consumer takes the CPU at each message of the producer.
#[test]
fn a_woken_task_that_takes_the_cpu_is_named_with_its_count() {
    let mut drawing = DrawnMachine::new();
    for _ in 0..100 {
        let producer = after(row(1, Reason::Wakeup), Reason::Wakeup, 0, 1_000);
        drawing.run(in_call(producer, 1), 2_000, 2);
        let consumer = woken_by(after(row(2, Reason::Pipe), Reason::Pipe, 2_000, 0), 1);
        drawing.run(in_call(consumer, 0), 1_000, 1);
    }
    let names = drawing.names_of_findings();
    assert_eq!(names, ["pipe_conversation", "reason"]);
    let findings = drawing.findings();
    let expected = "took the CPU: worker/11 from server/10 100 times";
    assert_eq!(findings[1].places[0], expected);
    // Waits of 100 µs in all are not worth a word.
    assert!(findings.iter().all(|one| one.kind == FindingKind::Frequent));
    assert_eq!(
        findings[0].places,
        [
            "threads: worker/11 100.0 %",
            "in: read 100.0 %",
            "woken by: server/10 100.0 %",
        ]
    );
}

/// Each thread waits for the word and wakes the other one.
#[test]
fn a_word_whose_waiters_wake_each_other_is_contended() {
    let mut drawing = DrawnMachine::new();
    for turn in 0..200 {
        let (task, other) = if turn % 2 == 0 { (1, 2) } else { (2, 1) };
        let wait = after(row(task, Reason::Futex), Reason::Futex, 5_000, 0);
        drawing.run(on(woken_by(wait, other), 0xf00), 1_000, other);
    }
    let findings = drawing.findings();
    assert_eq!(findings[0].name, "futex_contention");
    let seen = &findings[0].seen;
    assert!(
        seen.contains("0xf00 in server/10: 200 context switches"),
        "{seen}"
    );
    assert!(seen.contains("by 2 threads"), "{seen}");
}

/// One thread waits, and another that never waits wakes it: this is not a lock and not called one.
#[test]
fn a_word_that_others_wake_is_a_hand_over() {
    let mut drawing = DrawnMachine::new();
    for _ in 0..200 {
        let wait = after(row(1, Reason::Futex), Reason::Futex, 5_000, 0);
        drawing.run(on(woken_by(wait, 2), 0xf00), 1_000, 0);
    }
    let findings = drawing.findings();
    assert_eq!(findings[0].name, "futex_hand_over");
    assert_eq!(findings[0].time, Nanos::ZERO);
    assert!(!findings[0].change().unwrap().contains("split"));
}

/// Forty pairs of threads, each seen a few times: naming one of them would be arbitrary.
#[test]
fn preemptions_spread_over_many_pairs_name_no_thread() {
    let events: Vec<_> = (1..=80).map(|key| seen(key, 10, 9 + key, "w")).collect();
    let mut drawing = DrawnMachine::of(&events);
    for turn in 0..400 {
        let pair = turn % 40 * 2;
        let from = after(row(pair + 1, Reason::Wakeup), Reason::Wakeup, 0, 1_000);
        drawing.run(from, 1_000, pair + 2);
        drawing.run(row(pair + 2, Reason::Sleep), 1_000, 0);
    }
    let findings = drawing.findings();
    assert_eq!(
        findings[0].places[..2],
        [
            "took the CPU: threads of w from each other 400 times",
            "threads: spread over 40, none above 2.5 %",
        ]
    );
}

#[test]
fn a_used_up_quota_is_named_with_its_cgroup_and_time() {
    let mut drawing = DrawnMachine::new();
    drawing.run(by_rule(row(1, Reason::Throttle), "quota_used"), 20 * MS, 0);
    drawing.run(
        after(row(1, Reason::Sleep), Reason::Throttle, 0, 80 * MS),
        5 * MS,
        0,
    );
    let findings = drawing.findings();
    assert_eq!(findings[0].name, "throttle");
    assert_eq!(findings[0].time, Nanos::from_ns(80 * MS));
    assert!(
        findings[0]
            .places
            .contains(&"throttled: /limited/inner 80.0 ms".to_owned())
    );
    assert!(
        findings[0]
            .change()
            .unwrap()
            .contains("up to 80.0 ms of waiting")
    );
}

/// ```text
/// /limited   40 ms of 100 ms, used up        /limited/inner   90 ms, not used up: its tasks waited
/// ```
#[test]
fn the_cgroup_whose_quota_was_used_up_is_named() {
    let mut drawing = DrawnMachine::new();
    drawing.run(by_rule(row(1, Reason::Throttle), "quota_used"), 20 * MS, 0);
    drawing.run(
        after(row(1, Reason::Sleep), Reason::Throttle, 0, 80 * MS),
        5 * MS,
        0,
    );
    let quota = |cgroup: &str, quota_us, throttled_ns| QuotaFacts {
        cgroup: cgroup.to_owned(),
        quota_us,
        period_us: 100_000,
        throttled_periods: 1,
        throttled_ns,
    };
    drawing.quotas = vec![
        quota("/lim", 10_000, 200 * MS),
        quota("/limited", 40_000, 80 * MS),
        quota("/limited/inner", 90_000, 0),
    ];
    let findings = drawing.findings();
    let throttled = "throttled: /limited/inner 80.0 ms by the quota of /limited, 40.0 ms in 100 ms";
    assert!(
        findings[0].places.contains(&throttled.to_owned()),
        "{:?}",
        findings[0].places
    );
    let advice = findings[0].change().unwrap();
    assert!(
        advice.starts_with("raise the quota of /limited (cpu.max;"),
        "{advice}"
    );
}

/// A path of a container is too long for a sentence. That of its pod may have the quota.
#[test]
fn a_container_is_named_in_place_of_its_path() {
    let pod = "/kubepods/burstable/pod9f1c0d2e-3b4a-4c5d-8e6f-7a8b9c0d1e2f";
    let mut drawing = DrawnMachine::beside_a_stranger();
    drawing.cgroup = format!("{pod}/crio-{}", "3f2a".repeat(16));
    drawing.run(row(1, Reason::Slice), 3 * MS, 3);
    drawing.run(row(3, Reason::Slice), 9 * MS, 1);
    let waited = |reason| after(row(1, Reason::Sleep), reason, 0, 9 * MS);
    drawing.run(waited(Reason::Slice), 3 * MS, 3);
    let places = drawing.findings().remove(0).places;
    assert_eq!(
        places[0],
        "had the CPU: hog (cgroup cri-o:3f2a3f2a3f2a) 100.0 % (9.00 ms)"
    );
    drawing.rows.clear();
    drawing.run(by_rule(row(1, Reason::Throttle), "quota_used"), 20 * MS, 0);
    drawing.run(waited(Reason::Throttle), 5 * MS, 0);
    drawing.quotas = vec![QuotaFacts {
        cgroup: pod.to_owned(),
        quota_us: 40_000,
        period_us: 100_000,
        throttled_periods: 1,
        throttled_ns: 80 * MS,
    }];
    let finding = drawing.findings().remove(0);
    let pod = "pod:9f1c0d2e-3b4a-4c5d-8e6f-7a8b9c0d1e2f";
    let throttled =
        format!("throttled: cri-o:3f2a3f2a3f2a 9.00 ms by the quota of {pod}, 40.0 ms in 100 ms");
    assert!(finding.places.contains(&throttled), "{:?}", finding.places);
    let advice = finding.change().unwrap();
    assert!(
        advice.starts_with(&format!("raise the quota of {pod} (cpu.max;")),
        "{advice}"
    );
}

/// Waits of 10 ms in a machine with a busy disk, and with one that has hardly anything to do.
#[test]
fn a_disk_that_is_idle_is_not_what_held_up_who_waits_for_it() {
    let place = |busy_ms: u64, memory_limits: Vec<MemoryLimitFacts>, reason| {
        let mut drawing = DrawnMachine::new();
        for _ in 0..100 {
            drawing.run(after(row(1, reason), reason, 10 * MS, 0), 10_000, 0);
        }
        let counts = |requests, taken_ms, busy_ms| DiskCounts {
            requests,
            taken_ns: taken_ms * MS,
            busy_ns: busy_ms * MS,
        };
        drawing.disks = vec![
            DiskFacts {
                name: "sdb".to_owned(),
                before: counts(5, 1, 1),
                after: Some(counts(6, 2, 2)),
            },
            DiskFacts {
                name: "sda".to_owned(),
                before: counts(100, 100, 100),
                after: Some(counts(300, 300, 100 + busy_ms)),
            },
            DiskFacts {
                name: "cut".to_owned(),
                before: counts(5, 1, 1),
                after: None,
            },
        ];
        drawing.memory_limits = memory_limits;
        drawing
            .explained_of(Nanos::from_ns(1_000 * MS))
            .findings
            .remove(0)
    };
    let busy = place(900, Vec::new(), Reason::Io).places.join("; ");
    assert!(
        busy.contains(
            "disk sda was busy for 90.0 % of the time: 200 requests, 1.00 ms each (mean)"
        ),
        "{busy}"
    );
    assert!(!busy.contains("held them back"), "{busy}");
    let idle = place(100, Vec::new(), Reason::Io).places.join("; ");
    assert!(
        idle.contains("took 10.0 ms (mean), so something else held them back"),
        "{idle}"
    );
    let limit = |after| MemoryLimitFacts {
        cgroup: "/web".to_owned(),
        bytes: 32 << 20,
        reached_before: 4,
        reached_after: after,
    };
    let elsewhere = MemoryLimitFacts {
        cgroup: "/lim".to_owned(),
        ..limit(Some(900))
    };
    let own = MemoryLimitFacts {
        cgroup: "/limited".to_owned(),
        ..limit(Some(5))
    };
    let memory = place(100, vec![elsewhere, own], Reason::Fault)
        .places
        .join("; ");
    assert!(
        memory.contains("cgroup /limited reached its limit of memory, 32 MB, 1 time"),
        "{memory}"
    );
    let memory = place(100, vec![limit(None), limit(Some(11))], Reason::Fault);
    let places = memory.places.join("; ");
    assert!(
        places.contains("cgroup /web reached its limit of memory, 32 MB, 7 times"),
        "{places}"
    );
    assert!(
        memory.change().unwrap().contains("raise its limit"),
        "{memory:?}"
    );
}

fn of_class(mut row: Switch, class: Class) -> Switch {
    row.evidence.class = class;
    row
}

/// A task that was stopped for 80 ms after a run of 20 ms, by this rule.
fn stopped_by(rule: &str, class: Class) -> Vec<Finding> {
    let mut drawing = DrawnMachine::new();
    let stopped = by_rule(row(1, Reason::Throttle), rule);
    drawing.run(of_class(stopped, class), 20 * MS, 0);
    let waited = after(row(1, Reason::Sleep), Reason::Throttle, 0, 80 * MS);
    drawing.run(of_class(waited, class), 5 * MS, 0);
    drawing.findings()
}

/// Real-time throttling is a throttle, and no cgroup quota would change it.
#[test]
fn no_quota_is_blamed_that_was_not_used_up() {
    let findings = stopped_by("lower_class", Class::RealTime);
    assert_eq!(findings[0].name, "real_time_limit");
    assert_eq!(findings[0].time, Nanos::from_ns(80 * MS));
    assert_eq!(findings[0].advice, None);
    assert!(!findings[0].seen.contains("quota"), "{}", findings[0].seen);
}

/// Seen: `throttled: / 2.13 s` of a task that `sched_setattr` had given 4 ms of 20.
#[test]
fn a_deadline_task_used_up_its_own_budget_and_no_cgroups_quota() {
    let findings = stopped_by("deadline_budget_used", Class::Deadline);
    let budget = &findings[0];
    assert_eq!(budget.name, "deadline_budget");
    assert_eq!(budget.time, Nanos::from_ns(80 * MS));
    let told = format!("{} {:?}", budget.seen, budget.places);
    assert!(
        !told.contains("quota") && !told.contains("throttled:"),
        "{told}"
    );
    let advice = budget.change().unwrap();
    assert!(
        advice.contains("sched_runtime") && advice.contains("80.0 ms"),
        "{advice}"
    );
    let of_throttle = |finding: &&Finding| finding.reason == Some(Reason::Throttle);
    assert_eq!(findings.iter().filter(of_throttle).count(), 1);
}

/// Two hundred waits of 1 ms for a lock of the kernel, as this rule says.
fn waits_for_a_lock(rule: &str) -> Finding {
    let mut drawing = DrawnMachine::new();
    for _ in 0..200 {
        let wait = after(row(1, Reason::Lock), Reason::Lock, MS, 0);
        drawing.run(by_rule(woken_by(wait, 2), rule), 1_000, 0);
    }
    drawing.findings().swap_remove(0)
}

/// Larger writes, as for a wait for the disk, would hold a file's lock for longer.
#[test]
fn a_lock_of_the_kernel_is_told_by_what_it_is_of() {
    let file = waits_for_a_lock("inode_lock");
    assert_eq!(file.name, "file_lock");
    assert!(file.change().unwrap().contains("files of their own"));
    assert_eq!(file.time, Nanos::from_ns(200 * MS));
    for rule in ["address_space_lock", "memory_call"] {
        let memory = waits_for_a_lock(rule);
        assert_eq!(memory.name, "address_space_lock");
        assert!(memory.change().unwrap().contains("mprotect"));
    }
    let other = waits_for_a_lock("kernel_lock");
    assert_eq!(other.name, "kernel_lock");
    assert!(other.change().unwrap().contains("--by stack"));
}

#[test]
fn a_real_time_task_that_has_the_cpu_is_named() {
    let mut drawing = DrawnMachine::beside_a_stranger();
    drawing.run(row(1, Reason::Class), 5 * MS, 3);
    drawing.run(of_class(row(3, Reason::Sleep), Class::RealTime), 5 * MS, 1);
    drawing.run(
        after(row(1, Reason::Sleep), Reason::Class, 0, 5 * MS),
        5 * MS,
        0,
    );
    let findings = drawing.findings();
    assert_eq!(findings[0].name, "real_time");
    assert_eq!(
        findings[0].places[1],
        "took the CPU: hog from server 1 time"
    );
    assert!(
        findings[0]
            .change()
            .unwrap()
            .starts_with("keep hog/30 and those that wait on different CPUs")
    );
}

#[test]
fn unknown_reasons_are_said_with_the_rule_that_gave_up() {
    let mut drawing = DrawnMachine::new();
    drawing.run(by_rule(row(1, Reason::Unknown), "call_without_rule"), MS, 0);
    drawing.run(row(1, Reason::Sleep), MS, 0);
    let findings = drawing.findings();
    assert_eq!(findings[0].name, "unknown");
    assert!(findings[0].places[0].starts_with("1 call_without_rule: blocked in a system call"));
}

#[test]
fn interrupts_and_steal_are_told_by_their_time() {
    let mut drawing = DrawnMachine::new();
    let mut hog = row(3, Reason::Sleep);
    (hog.irq, hog.stolen) = (Nanos::from_ns(2 * MS), Nanos::from_ns(4 * MS));
    drawing.run(hog, 8 * MS, 1);
    drawing.run(
        after(row(1, Reason::Sleep), Reason::Sleep, 0, 8 * MS),
        MS,
        0,
    );
    assert_eq!(
        drawing.names_of_findings(),
        ["steal", "oversubscribed", "interrupts"]
    );
}

#[test]
fn a_hostile_name_is_harmless_in_the_verdict() {
    let mut drawing =
        DrawnMachine::of(&[seen(1, 10, 10, "\u{1b}[31m\nroot"), seen(2, 11, 11, "b")]);
    drawing.run(row(1, Reason::Class), 5 * MS, 2);
    drawing.run(row(2, Reason::Sleep), 5 * MS, 1);
    drawing.run(
        after(row(1, Reason::Sleep), Reason::Class, 0, 5 * MS),
        5 * MS,
        0,
    );
    let verdict = drawing.verdict();
    assert!(verdict.contains("b from \\x1b[31m\\x0aroot"), "{verdict}");
}

#[test]
fn the_page_is_the_same_each_time_and_balances() {
    let mut drawing = DrawnMachine::new();
    drawing.run(row(1, Reason::Slice), 3 * MS, 2);
    drawing.run(
        after(row(2, Reason::Slice), Reason::Futex, MS, 3 * MS),
        3 * MS,
        1,
    );
    let page = || {
        let rows = ReportedSwitches {
            counted: 2,
            out_of_scope: 0,
        };
        drawing.explained().to_text(&head(), rows, ROWS)
    };
    assert_eq!(page(), page());
    assert!(
        page().contains("\nbalance: 15 seen = 13 stored"),
        "{}",
        page()
    );
}

/// 200 switches of 1 µs ± 10 % in 20 ms.
#[test]
fn a_finding_says_what_its_change_would_save() {
    let mut drawing = DrawnMachine::new();
    for turn in 0..200 {
        let (task, other) = if turn % 2 == 0 { (1, 2) } else { (2, 1) };
        let wait = after(row(task, Reason::Futex), Reason::Futex, 5_000, 0);
        drawing.run(on(woken_by(wait, other), 0xf00), 1_000, other);
    }
    let explained = drawing.billed(20);
    let rows = ReportedSwitches::default();
    let page = explained.to_text(&head(), rows, ROWS);
    let worth = "\n   costs: the futex at 0xf00 of server/10: 10,000 switches a second, which take 1.0 % ± \
                 0.1 % of one CPU\n";
    assert!(page.contains(worth), "{page}");
    assert!(page.contains("\nwhat the switches cost\nreason"), "{page}");
    let json = explained.to_json(&head(), rows, None);
    assert_eq!(json["bill"][0]["direct_ns"], 200_000);
    assert_eq!(json["bill_total"]["switches"], 200);
    assert_eq!(
        json["findings"][0]["worth"]["direct_share_of_wall_pct"],
        1.0
    );
    assert_eq!(json["prices"]["origin"]["hostname"], "db1");
}

#[test]
fn without_prices_the_page_has_no_bill() {
    let mut drawing = DrawnMachine::new();
    drawing.run(row(1, Reason::Slice), 3 * MS, 2);
    let json = drawing
        .explained()
        .to_json(&head(), ReportedSwitches::default(), None);
    assert!(json["bill"].is_null() && json["prices"].is_null());
}

#[test]
fn json_holds_findings_with_their_numbers() {
    let mut drawing = DrawnMachine::new();
    drawing.run(row(1, Reason::Slice), 3 * MS, 3);
    drawing.run(row(3, Reason::Slice), 9 * MS, 1);
    drawing.run(
        after(row(1, Reason::Sleep), Reason::Slice, 0, 9 * MS),
        3 * MS,
        3,
    );
    let json = drawing
        .explained()
        .to_json(&head(), ReportedSwitches::default(), None);
    assert_eq!(json["schema"], "swtch.explain/1");
    assert_eq!(json["findings"][0]["name"], "oversubscribed");
    assert_eq!(json["findings"][0]["kind"], "lost");
    assert_eq!(json["findings"][0]["time_ns"], 9 * MS);
    assert_eq!(json["findings"][0]["time_share_pct"], 37.5);
    assert_eq!(json["lost"]["ran_ns"], 15 * MS);
    assert_eq!(json["lost"]["no_cpu_ns"], 9 * MS);
    assert_eq!(json["preemptors_total"]["runq_ns"], 9 * MS);
    assert_eq!(json["summary"]["runq_ns_by_reason"]["slice"], 9 * MS);
}

/// ```text
/// 0 s          5 s  ├─ 1 ms ─┤ disk 18 ms ├─ 1 ms ─┤          10 s
/// ```
/// Of ten seconds 18 ms are nothing; of the 20 ms that a person looks at, they are nearly all.
#[test]
fn a_part_of_a_recording_is_judged_by_its_own_length() {
    let mut meta = head().meta;
    meta.end_ns = meta.start_ns + 10_000 * MS;
    let at = |ms: u64, row: Switch| Switch {
        ts: Timestamp::from_ns(meta.start_ns + ms * MS),
        ran: Some(Nanos::from_ns(MS)),
        ..row
    };
    let disk = at(5001, row(1, Reason::Io));
    let back = at(5020, after(row(1, Reason::Futex), Reason::Io, 18 * MS, 0));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.swtch");
    let mut writer = swtch_store::Writer::create(&path, &meta).unwrap();
    writer.push_task(&seen(1, 10, 10, "server")).unwrap();
    for row in [disk, back] {
        writer.push_switch(&row).unwrap();
    }
    writer.finish(&meta, &mut |_, _| ()).unwrap();
    let trace = swtch_store::Trace::open(&path).unwrap();
    let found = |filter: &str| {
        let moment = |word: &str| Some(word.parse().unwrap());
        let filter = match filter.split_once(' ') {
            Some((since, until)) => Filter {
                since: moment(since),
                until: moment(until),
                ..Filter::default()
            },
            None => Filter::default(),
        };
        let findings = parts(&trace, &filter, None).unwrap().findings;
        let lost = findings.into_iter().filter(|told| told.number.is_some());
        lost.map(|told| told.seen).collect::<Vec<_>>().join("\n")
    };
    let told = found("5 5.025");
    assert!(told.contains("18.0 ms: 90.0 % of the time"), "{told}");
    assert_eq!(found(""), "");
}
