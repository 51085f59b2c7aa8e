//! Makes up a trace of any size, to see how time and memory depend on the size: `make bench-view`
//! and the browser tests use it. No number in it was measured.
//!
//! ```text
//! make_trace NAME.swtch [--switches N] [--threads N] [--cpus N] [--seconds N] [--crowded N]
//!                       [--nodes N] [--smt N] [--spans N] [--prices FILE]
//! ```
//!
//! Each CPU simulates a queue of threads: the one that was woken first runs for a random time,
//! leaves for a random reason, and is woken again after a random wait by the thread that runs then.
//! The CPUs are idle for half of the time, or, with `--crowded N`, N threads wait in the run queue of
//! each CPU on average, as they do in `perf bench sched messaging`.
//! With `--nodes N` the CPUs are on N NUMA nodes, and with `--smt N` as many share a core; the
//! numbers are dealt as Xeons have them, siblings furthest apart.
//! With `--spans N` each of the first threads has N spans `request`.
//! `--prices FILE` makes up a price list, too.
//! As in a real trace, the rows of a thread and the runs of a CPU do not overlap. The same
//! arguments give the same trace.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use swtch_core::rules::all_rules;
use swtch_core::{
    CgroupId, CpuId, CpuTopology, Evidence, EvidenceBits, Frame, Level, Nanos, Pid, Reason, Stack,
    StackEnd, StackKind, StackNumbers, Switch, TaskEvent, TaskKey, Timestamp, UntoldSpans,
    UserSide, Wait, WakerKind, Wakeup,
};
use swtch_fixtures::{prices, seen};
use swtch_report::price_file;
use swtch_store::{Counts, Meta, RecordingState, SpanRow, TraceHost, Writer};

const START_NS: u64 = 1_000_000_000;

const THREADS_PER_PROCESS: u32 = 8;

const THREADS_WITH_SPANS: u32 = 4;

/// Each reason with its share of all switches, in percent.
const REASONS: [(Reason, u32); 8] = [
    (Reason::Futex, 30),
    (Reason::Net, 15),
    (Reason::Poll, 15),
    (Reason::Sleep, 10),
    (Reason::Io, 10),
    (Reason::Wakeup, 10),
    (Reason::Slice, 6),
    (Reason::Yield, 4),
];

/// The share of switches in which the thread blocks, as [`REASONS`] has it.
const BLOCKING_SHARE: f64 = 0.8;

/// The functions of a made-up program in which threads wait.
const FUNCTIONS: [&str; 6] = [
    "main",
    "serve",
    "handle_request",
    "lock",
    "read_page",
    "commit",
];

struct Size {
    switches: u64,
    threads: u32,
    cpus: u16,
    seconds: u64,
    /// Threads that wait in each run queue on average; 0 for CPUs that are idle for half of the
    /// time.
    crowded: u32,
    /// NUMA nodes that the CPUs are on.
    nodes: u16,
    /// CPUs that share a core.
    smt: u16,
    /// Spans of each of the first threads.
    spans: u64,
    /// The file to write a price list to.
    prices: Option<PathBuf>,
}

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    match size_of(&words) {
        Ok((path, size)) => match make_all(Path::new(path), &size) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("error: {error:#}");
                ExitCode::from(2)
            }
        },
        Err(problem) => {
            eprintln!(
                "{problem}\nusage: make_trace NAME.swtch [--switches N] [--threads N] [--cpus N] [--seconds N] [--crowded N] [--nodes N] [--smt N] [--spans N] [--prices FILE]"
            );
            ExitCode::from(2)
        }
    }
}

fn size_of(words: &[String]) -> Result<(&str, Size), String> {
    if words.first().is_none_or(|path| path.starts_with('-')) {
        return Err("which trace?".to_owned());
    }
    let mut size = Size {
        switches: 100_000,
        threads: 16,
        cpus: 2,
        seconds: 10,
        crowded: 0,
        nodes: 1,
        smt: 1,
        spans: 0,
        prices: None,
    };
    let [path, options @ ..] = words else {
        return Err("which trace?".to_owned());
    };
    for pair in options.chunks(2) {
        let [option, number] = pair else {
            return Err(format!("{} needs a number", pair[0]));
        };
        let wrong = |_| format!("{option}: {number} is no number it can have");
        match option.as_str() {
            "--switches" => size.switches = number.parse().map_err(wrong)?,
            "--threads" => size.threads = number.parse().map_err(wrong)?,
            "--cpus" => size.cpus = number.parse().map_err(wrong)?,
            "--seconds" => size.seconds = number.parse().map_err(wrong)?,
            "--crowded" => size.crowded = number.parse().map_err(wrong)?,
            "--nodes" => size.nodes = number.parse().map_err(wrong)?,
            "--smt" => size.smt = number.parse().map_err(wrong)?,
            "--spans" => size.spans = number.parse().map_err(wrong)?,
            "--prices" => size.prices = Some(PathBuf::from(number)),
            _ => return Err(format!("there is no {option}")),
        }
    }
    if size.threads == 0 || size.cpus == 0 || size.seconds == 0 {
        return Err("threads, CPUs and seconds must be at least 1".to_owned());
    }
    let cores = size.cpus.checked_div(size.smt).unwrap_or(0);
    if cores * size.smt != size.cpus || size.nodes == 0 || size.nodes > cores {
        return Err("each core must have as many CPUs, and each node a core".to_owned());
    }
    match size.crowded < (size.threads / u32::from(size.cpus)).max(1) {
        true => Ok((path, size)),
        false => Err("fewer threads must wait in a run queue than a CPU has".to_owned()),
    }
}

fn make_all(path: &Path, size: &Size) -> anyhow::Result<()> {
    make(path, size)?;
    match &size.prices {
        Some(file) => price_file::write(&prices(), file),
        None => Ok(()),
    }
}

fn make(path: &Path, size: &Size) -> Result<(), swtch_store::Error> {
    let meta = meta_of(size);
    let mut writer = Writer::create(path, &meta)?;
    for key in 1..=size.threads {
        writer.push_task(&thread(key))?;
    }
    push_stacks(&mut writer)?;
    writer.push_cgroup(CgroupId::new(1), &format!("/docker/{}", "3f2a".repeat(16)))?;
    let mut cpus: Vec<_> = (0..size.cpus)
        .map(|cpu| SimulatedCpu::new(cpu, size))
        .collect();
    let mut queue: BinaryHeap<_> = (0..cpus.len()).map(|cpu| Reverse((0, cpu))).collect();
    let mut last_on = vec![1; cpus.len()];
    for _ in 0..size.switches {
        let Some(Reverse((_, place))) = queue.pop() else {
            break;
        };
        let Some(row) = cpus[place].next_row(&last_on) else {
            continue;
        };
        last_on[place] = row.task.get();
        queue.push(Reverse((row.ts.as_ns(), place)));
        writer.push_switch(&row)?;
    }
    push_spans(&mut writer, size)?;
    writer.finish(&meta, &mut |_, _| ())
}

/// Spans at equal distances, each as long as a third of that.
fn push_spans(writer: &mut Writer, size: &Size) -> Result<(), swtch_store::Error> {
    let apart_ns = size.seconds * 1_000_000_000 / (size.spans + 1);
    for key in 1..=size.threads.min(THREADS_WITH_SPANS) {
        let TaskEvent { pid, tid, .. } = thread(key);
        for number in 1..=size.spans {
            let begin = START_NS + number * apart_ns + u64::from(key);
            writer.push_span(&SpanRow {
                begin: Timestamp::from_ns(begin),
                end: Timestamp::from_ns(begin + apart_ns / 3),
                pid,
                tid,
                name: "request".to_owned(),
                ..SpanRow::default()
            })?;
        }
    }
    Ok(())
}

/// One CPU and its threads.
struct SimulatedCpu {
    number: u16,
    now_ns: u64,
    mean_run_ns: f64,
    /// The mean of the time that a thread is blocked.
    mean_blocked_ns: f64,
    /// True if a thread that is runnable comes at once when another leaves.
    is_crowded: bool,
    random: fastrand::Rng,
    /// Threads that wait, by the moment they are woken.
    waiting: BinaryHeap<Reverse<(u64, u32)>>,
    /// The moment and the reason of each thread's last switch.
    left: HashMap<u32, (u64, Reason)>,
}

impl SimulatedCpu {
    fn new(number: u16, size: &Size) -> Self {
        let own = (1..=size.threads)
            .filter(|key| key % u32::from(size.cpus) == u32::from(number) % u32::from(size.cpus));
        let waiting: BinaryHeap<_> = own
            .map(|key| Reverse((START_NS + u64::from(key) * 1000, key)))
            .collect();
        let per_cpu = size.switches as f64 / f64::from(size.cpus);
        let between_ns = size.seconds as f64 * 1e9 / per_cpu.max(1.0);
        let threads = waiting.len() as f64;
        let (mean_run_ns, mean_blocked_ns) = match size.crowded {
            0 => (between_ns / 2.0, between_ns * threads),
            // The CPU is never idle. A thread that blocks is away while the others have their runs.
            crowded => {
                let blocked = (threads - 1.0 - f64::from(crowded)).max(1.0);
                (between_ns, between_ns * blocked / BLOCKING_SHARE)
            }
        };
        Self {
            number,
            now_ns: START_NS,
            mean_run_ns,
            mean_blocked_ns,
            is_crowded: size.crowded > 0,
            random: fastrand::Rng::with_seed(u64::from(number) + 1),
            waiting,
            left: HashMap::new(),
        }
    }

    /// A random length with this mean, exponentially distributed and at least 200 ns.
    fn drawn(&mut self, mean_ns: f64) -> u64 {
        let ns = -mean_ns * (1.0 - self.random.f64()).ln();
        Nanos::from_rounded(ns).as_ns().max(200)
    }

    fn drawn_reason(&mut self) -> Reason {
        let mut number = self.random.u32(0..100);
        for (reason, share) in REASONS {
            if number < share {
                return reason;
            }
            number -= share;
        }
        Reason::Futex
    }

    fn next_row(&mut self, last_on: &[u32]) -> Option<Switch> {
        let Reverse((woken_ns, key)) = self.waiting.pop()?;
        let start_ns = self.now_ns.max(woken_ns);
        let ran_ns = self.drawn(self.mean_run_ns);
        let reason = self.drawn_reason();
        let end_ns = start_ns + ran_ns;
        self.now_ns = end_ns + 300;
        let blocked_ns = match is_blocking(reason) {
            true => self.drawn(self.mean_blocked_ns),
            false => 0,
        };
        self.waiting.push(Reverse((end_ns + blocked_ns, key)));
        let next = self.successor(end_ns);
        if next.is_some() {
            self.now_ns = end_ns;
        }
        let left = self.left.insert(key, (end_ns, reason));
        let waker = last_on[self.random.usize(0..last_on.len())];
        Some(Switch {
            ts: Timestamp::from_ns(end_ns),
            cpu: CpuId::new(self.number),
            task: TaskKey::new(key),
            ran: Some(Nanos::from_ns(ran_ns)),
            irq: Nanos::ZERO,
            stolen: Nanos::ZERO,
            rule: all_rules().find(|rule| rule.reason == reason)?,
            evidence: evidence(reason, key),
            next_task: Some(next.unwrap_or(TaskKey::IDLE)),
            user_task: None,
            level: Level::Os,
            user: UserSide::default(),
            cgroup: CgroupId::new(1),
            wait: self.wait(left, woken_ns, start_ns, waker, key),
        })
    }

    /// The thread that comes at this moment, when the CPU does not become idle.
    fn successor(&self, now_ns: u64) -> Option<TaskKey> {
        let Reverse((woken_ns, key)) = self.waiting.peek()?;
        (self.is_crowded && *woken_ns <= now_ns).then(|| TaskKey::new(*key))
    }

    fn wait(
        &mut self,
        left: Option<(u64, Reason)>,
        woken_ns: u64,
        start_ns: u64,
        waker: u32,
        key: u32,
    ) -> Wait {
        let runq = Some(Nanos::from_ns(start_ns - woken_ns));
        let Some((left_ns, reason)) = left else {
            return Wait {
                runq,
                ..Wait::default()
            };
        };
        let is_woken = is_blocking(reason) && waker != key;
        let stack = self.random.usize(1..FUNCTIONS.len());
        let has_stack = is_blocking(reason) && self.random.bool();
        Wait {
            reason: Some(reason),
            off: Some(Nanos::from_ns(start_ns - left_ns)),
            runq,
            wakeup: Wakeup {
                waker: is_woken.then_some(TaskKey::new(waker)),
                kind: Some(match is_woken {
                    true => WakerKind::Task,
                    false => WakerKind::None,
                }),
                cpu: Some(CpuId::new(self.number)),
                ..Wakeup::default()
            },
            moved: None,
            stacks: StackNumbers {
                kernel: None,
                user: has_stack.then(|| u32::try_from(stack).expect("a handful")),
            },
            seen_for: None,
            holder_stack: None,
        }
    }
}

fn is_blocking(reason: Reason) -> bool {
    use swtch_core::Category;
    !matches!(reason.category(), Category::Preemption | Category::Yield)
}

fn evidence(reason: Reason, key: u32) -> Evidence {
    if !is_blocking(reason) {
        return Evidence::RUNNABLE;
    }
    Evidence {
        state: 1,
        bits: EvidenceBits::VOLUNTARY,
        // On x86-64: futex, with four words that the threads contend for.
        syscall: (reason == Reason::Futex).then_some(202),
        args: [0x7f00_0000_0000 + u64::from(key % 4) * 64, 0, 0],
        ..Evidence::RUNNABLE
    }
}

fn thread(key: u32) -> TaskEvent {
    let leader = (key - 1) / THREADS_PER_PROCESS * THREADS_PER_PROCESS + 1000;
    TaskEvent {
        ts: Timestamp::from_ns(START_NS),
        ..seen(key, leader, key + 999, &format!("worker-{key}"))
    }
}

/// Writes stacks of increasing depth, each with the innermost frame first.
fn push_stacks(writer: &mut Writer) -> Result<(), swtch_store::Error> {
    for (frame, symbol) in (0..).zip(FUNCTIONS) {
        writer.push_frame(&Frame {
            id: frame,
            address: 0x1000 + u64::from(frame),
            symbol: Some(symbol.to_owned()),
            module: Some("/usr/bin/made-up".to_owned()),
            ..Frame::default()
        })?;
        writer.push_stack(&Stack {
            id: frame,
            kind: StackKind::User,
            pid: Some(Pid::new(1000)),
            frames: (0..=frame).rev().collect(),
            end: Some(StackEnd::Start),
        })?;
    }
    Ok(())
}

/// As the kernel would list them on such a machine.
fn topology_of(size: &Size) -> CpuTopology {
    let cores = size.cpus / size.smt;
    let node_of = |cpu: u16| u32::from(cpu % cores) * u32::from(size.nodes) / u32::from(cores);
    let nodes = (0..u32::from(size.nodes)).map(|node| {
        (
            node,
            listed((0..size.cpus).filter(|cpu| node_of(*cpu) == node)),
        )
    });
    let siblings = (0..cores).map(|core| listed((0..size.smt).map(|nth| core + nth * cores)));
    CpuTopology::of_lists(nodes, siblings)
}

/// A list as the kernel writes it: `0-3,8`.
fn listed(cpus: impl Iterator<Item = u16>) -> String {
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    for cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let words = ranges.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    words.collect::<Vec<_>>().join(",")
}

fn meta_of(size: &Size) -> Meta {
    Meta {
        state: RecordingState::Finished,
        host: TraceHost {
            hostname: "made-up".into(),
            kernel_release: "6.18.0".into(),
            machine: "x86_64".into(),
            cpus: size.cpus.into(),
            topology: Some(topology_of(size)),
            ..TraceHost::default()
        },
        command: vec!["made".into(), "up".into()],
        start_ns: START_NS,
        end_ns: START_NS + size.seconds * 1_000_000_000,
        counts: Counts {
            switches_seen: size.switches,
            stored: size.switches,
            ..Counts::default()
        },
        stacks: Some(swtch_store::StackSettings::default()),
        spans: (size.spans > 0).then(UntoldSpans::default),
        ..Meta::default()
    }
}
