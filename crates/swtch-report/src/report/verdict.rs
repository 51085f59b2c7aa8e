//! What a person should know first, in plain words: where the time of threads was lost, to whom, and what
//! could be changed.
//!
//! The measure is lost time ([`LostTime`]): a cause is numbered if threads that could have worked lost at
//! least 3 % of their time to it, and causes stand in the order of that time. How often a program
//! switches is another question. It is answered after that, without numbers: by reasons that make 10 % of the
//! switches or of the blocked time; unless switching itself takes as much of the CPU ([`super::worth`]), or
//! nobody lost time. A reason that stands out and has no rule of its own gets a plain sentence. Advice
//! follows from a number that is shown with it, never from the name of a reason alone.
//!
//! - [`advice`]: what to do about each cause, and when not to.
//! - [`no_cpu`]: tasks that could run, and had no CPU.
//! - [`preempted`]: limits of CPU time, moves, and tasks that gave the CPU away.
//! - [`locks`]: threads that waited for each other.
//! - [`serial`]: threads of which only one works at a time.
//! - [`nothing`]: what is said where no time is lost.
//! - [`blocked`]: tasks that blocked for anything else.
//! - [`who`]: the programs, threads, calls and wakers that a sentence names.

mod advice;
mod blocked;
mod locks;
mod no_cpu;
mod nothing;
mod preempted;
mod serial;
mod who;

pub use advice::AdviceText;
pub use blocked::BlockedLoops;
pub use locks::TimeAtLocks;
pub use nothing::BusiestThread;
pub use serial::SerialWork;

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use swtch_core::{
    Arch, AwaitedThing, Category, CgroupId, Class, Distribution, Ender, LostTime, Nanos, Open, Pid,
    Reason, Rule, RunsTogether, Switch, TaskKey, Timestamp,
};
use swtch_output::sheet::percent;
use swtch_output::text::grouped;
use swtch_store::QuotaFacts;

use super::ends::{WaitEnds, ended_by};
use super::group::Groups;
use super::names::{Names, Thread, families};
use super::preemptor::Preemptors;
use super::programs::Programs;
use super::reason::ByReason;
use super::stack::Symbols;
use super::wait::{Object, Objects};
use super::waker::Waker;
use super::worth::Saving;
use advice::Advice;
use no_cpu::QueueTime;
use swtch_core::Tally;
use who::main_of;

/// From this share of the switches on, a reason stands out by number.
const OFTEN_PCT: f64 = 10.0;

/// Fewer switches than this are not "often", whatever their share.
const FEWEST_SWITCHES: u64 = 100;

/// From this share of the time in which there was work on, a cause is numbered.
const LOST_PCT: f64 = 3.0;

/// From this share of all blocked time on, a reason stands out by blocked time.
const LONG_PCT: f64 = 10.0;

/// A program that hardly has any work may lose much of that little, in moments that nobody notices: from this share of
/// the recording on it is.
const MUCH_PCT: f64 = 5.0;

/// Less than that is noticed where one wait lasts so long.
const NOTICED_PCT: f64 = 2.0;
const LONG_WAIT: Nanos = Nanos::from_ns(20_000_000);

/// Less time than this is not costly, whatever its share.
const LEAST_TIME: Nanos = Nanos::from_ns(1_000_000);

/// From this share on, one of several is called the main one.
const MOST_PCT: f64 = 50.0;

/// From this share of the switches on, unknown reasons are mentioned.
const UNKNOWN_PCT: f64 = 1.0;

/// The rule for kernel threads that slept.
const KERNEL_THREAD: &str = "kernel_thread";

/// How many threads, calls or pairs a finding names.
pub const NAMED: usize = 3;

/// If even the first has a smaller share, names would mislead, and only their number is given.
const SPREAD_PCT: f64 = 5.0;

/// What the reports of one trace found, from which the verdict is drawn.
#[derive(Debug)]
pub struct VerdictInput<'a> {
    pub reasons: &'a ByReason,
    pub processes: &'a Groups,
    pub threads: &'a Groups,
    pub calls: &'a Groups,
    /// Who had the CPU during run-queue waits.
    pub preemptors: &'a Preemptors,
    /// The objects that tasks waited for.
    pub objects: &'a Objects,
    /// Which rules decided, and which cgroups were throttled.
    pub details: &'a Details,
    pub names: &'a Names,
    /// Which processes belong to one program.
    pub programs: &'a Programs,
    /// Functions of the stacks, where the recording has stacks.
    pub symbols: Option<&'a Symbols>,
    /// Architecture, for the names of system calls.
    pub arch: Option<Arch>,
    /// Paths of the cgroups, by id.
    pub cgroups: &'a FxHashMap<CgroupId, String>,
    /// Number of CPUs of the machine.
    pub cpus: u32,
    /// For which share of the time they were busy, with whatever; `None` if it is not known.
    pub busy_pct: Option<f64>,
    /// Quotas of CPU time of these cgroups and of those above them, where the recording tells them.
    pub quotas: &'a [QuotaFacts],
    /// Where the time of programs went.
    pub lost: LostTime,
    /// The part of it at locks, and what those did that had them.
    pub at_locks: TimeAtLocks,
    /// Threads of which one works at a time.
    pub serial: Option<SerialWork>,
    /// Event loops that block.
    pub loops: BlockedLoops,
    /// A thread that ran nearly all the time.
    pub busiest: Option<BusiestThread>,
    /// Length of the recording.
    pub wall: Nanos,
    /// Process id of the recorder.
    pub recorder: Option<Pid>,
}

/// The machine on which a trace was recorded.
#[derive(Clone, Copy, Debug)]
pub struct RecordedMachine<'a> {
    /// Number of its CPUs.
    pub cpus: u32,
    /// As in [`VerdictInput`].
    pub busy_pct: Option<f64>,
    /// How long it was recorded.
    pub wall: Nanos,
    /// Process id of the recorder.
    pub recorder: Option<Pid>,
    /// As in [`VerdictInput`].
    pub quotas: &'a [QuotaFacts],
}

/// Counts that only the verdict needs.
#[derive(Debug)]
pub struct Details {
    /// How often each rule decided, in the order in which they were met first.
    rules: Vec<(&'static Rule, u64)>,
    /// The place in `rules` of the rule that decided last for each reason.
    recent_rules: Vec<usize>,
    /// Switches for the reason `throttle` and the waits after them, by [`CpuLimit::index`].
    limits: [Tally; 3],
    /// Run-queue time of tasks whose cgroup had used up its quota.
    throttled: FxHashMap<CgroupId, Nanos>,
    /// What was counted of kernel threads, by reason.
    kernel: Vec<Tally>,
    /// How the waits of programs began and ended, by reason; the tasks that ended them only after
    /// [`Self::finish`].
    ends: Vec<WaitEnds>,
    /// Number of waits that each task ended, by reason and the task's index; empty for a reason that
    /// no task has ended a wait for.
    woken_by: Vec<Vec<u64>>,
    /// The longest waits of programs, by reason.
    longest: Vec<Option<LongestWait>>,
    /// Where the time of programs went, before it is known which objects are locks.
    time: LostTime,
    /// Waits of programs for a CPU.
    queue: QueueTime,
    /// How long programs waited for others, by the task that ended it, and for interrupts.
    for_others: Vec<Nanos>,
    for_interrupts: Nanos,
    /// A number for the family of each task, by index.
    families: Vec<usize>,
    /// Of each task, by index: whether it was a real-time or deadline task, and in which cgroup.
    seen: Vec<SeenTask>,
    /// How long programs ran on each CPU.
    ran_on: Vec<Nanos>,
    /// The runs of each program, at the number of its family.
    together: Vec<RunsTogether>,
}

/// What rows tell of a task, whether its switches count or not.
#[derive(Clone, Copy, Debug, Default)]
struct SeenTask {
    is_real_time: bool,
    cgroup: Option<CgroupId>,
    /// How long it ran, as far as that counts.
    ran: Nanos,
    /// Its waits that were counted, and those of them that others ended.
    waits: u64,
    ended_by_others: u64,
    /// How long it was asleep until a time that it chose.
    asleep: Nanos,
    /// How often it left to wait in a call as epoll, and the last such call.
    polls: u64,
    poll_call: Option<u32>,
    /// Its waits at one socket or pipe, how many, and the longest.
    at_one: Nanos,
    waits_at_one: u64,
    longest_at_one: Nanos,
}

impl Details {
    /// For a trace with these tasks.
    pub fn new(names: &Names) -> Self {
        Self {
            rules: Vec::new(),
            recent_rules: vec![0; Reason::ALL.len()],
            limits: <[Tally; 3]>::default(),
            throttled: FxHashMap::default(),
            kernel: vec![Tally::default(); Reason::ALL.len()],
            ends: vec![WaitEnds::default(); Reason::ALL.len()],
            woken_by: vec![Vec::new(); Reason::ALL.len()],
            longest: vec![None; Reason::ALL.len()],
            time: LostTime::default(),
            queue: QueueTime::default(),
            for_others: vec![Nanos::ZERO; names.thread_count()],
            for_interrupts: Nanos::ZERO,
            families: families(names),
            seen: (0..names.thread_count())
                .map(|task| SeenTask::of(names.thread(task)))
                .collect(),
            ran_on: Vec::new(),
            together: Vec::new(),
        }
    }

    /// Adds any row of the task with this index, also one that does not count.
    pub fn see(&mut self, row: &Switch, task: usize) {
        let seen = &mut self.seen[task];
        seen.is_real_time |= matches!(row.evidence.class, Class::RealTime | Class::Deadline);
        seen.cgroup = Some(row.cgroup);
    }

    /// Adds a switch that counts, of the task with this index.
    pub fn add_switch(&mut self, row: &Switch, task: usize, names: &Names) {
        let place = self.place_of(row.rule);
        self.rules[place].1 += 1;
        if row.rule.reason == Reason::Throttle {
            self.limits[CpuLimit::of(row).index()].add_switch(row);
        }
        if names.process_of(task).is_kernel {
            self.kernel[row.rule.reason.index()].add_switch(row);
            return;
        }
        self.time.add_run(row);
        self.seen[task].add_switch(row);
        let family = self.families[task];
        self.together_mut(family).add(row);
        let cpu = usize::from(row.cpu.get());
        if cpu >= self.ran_on.len() {
            self.ran_on.resize(cpu + 1, Nanos::ZERO);
        }
        self.ran_on[cpu] += row.ran.unwrap_or(Nanos::ZERO);
    }

    /// Adds a wait that counts, of the task with this index.
    pub fn add_wait(&mut self, row: &Switch, task: usize, names: &Names) {
        let is_kernel = names.process_of(task).is_kernel;
        if !is_kernel {
            let ended = ended_by(row, task, &self.families, names);
            self.time.add_wait(row, ended.ender);
            self.queue.add(row);
            self.seen[task].add_wait(row, ended.ender);
            self.add_for_others(row, ended.ender, names);
        }
        let Some(reason) = row.wait.reason else {
            return;
        };
        if reason == Reason::Throttle {
            let limit = CpuLimit::of(row);
            self.limits[limit.index()].add_wait(row);
            if limit == CpuLimit::Quota {
                let runq = row.wait.runq.unwrap_or(Nanos::ZERO);
                *self.throttled.entry(row.cgroup).or_default() += runq;
            }
        }
        if is_kernel {
            self.kernel[reason.index()].add_wait(row);
            return;
        }
        self.keep_longest(reason, row);
        match Waker::of(row, names) {
            Some(Waker::Task(waker)) => {
                let woken_by = &mut self.woken_by[reason.index()];
                if woken_by.is_empty() {
                    woken_by.resize(names.thread_count(), 0);
                }
                woken_by[waker] += 1;
                self.ends[reason.index()].add_stacks(row);
            }
            _ => self.ends[reason.index()].add(row, names),
        }
    }

    /// Adds a run or a wait that no row tells, of the task with this index.
    pub fn add_open(&mut self, open: &Open, task: usize, names: &Names) {
        match (names.process_of(task).is_kernel, open.reason) {
            (true, Some(reason)) => self.kernel[reason.index()].add_open(open),
            (true, None) => {}
            (false, _) => self.time.add_open(open),
        }
        if open.reason.is_none() {
            self.seen[task].ran += open.lasted;
            let family = self.families[task];
            let end = Timestamp::from_ns(open.since.as_ns() + open.lasted.as_ns());
            self.together_mut(family).add_run(open.since, end);
        }
    }

    /// Adds the wait before a row's run, if it was for others.
    fn add_for_others(&mut self, row: &Switch, ender: Ender, names: &Names) {
        let reason = row.wait.reason.unwrap_or(Reason::Unknown);
        if AwaitedThing::of(reason, ender) != AwaitedThing::Others {
            return;
        }
        let blocked = row.wait.blocked().unwrap_or(Nanos::ZERO);
        match Waker::of(row, names) {
            Some(Waker::Task(waker)) => self.for_others[waker] += blocked,
            _ => self.for_interrupts += blocked,
        }
    }

    fn together_mut(&mut self, family: usize) -> &mut RunsTogether {
        if family >= self.together.len() {
            self.together.resize_with(family + 1, RunsTogether::default);
        }
        &mut self.together[family]
    }

    /// The number of CPUs on which programs ran for more than a moment.
    fn cpus_used(&self) -> u64 {
        let all: Nanos = self.ran_on.iter().copied().sum();
        let is_used =
            |ran: &&Nanos| percent(ran.as_ns(), all.as_ns()).is_some_and(|share| share >= LOST_PCT);
        let used = self.ran_on.iter().filter(is_used).count();
        u64::try_from(used).unwrap_or(u64::MAX)
    }

    /// Where the time of programs went.
    pub fn lost_time(
        &self,
        at_locks: &TimeAtLocks,
        serial: Option<&SerialWork>,
        loops: &BlockedLoops,
    ) -> LostTime {
        let mut time = self.time;
        time.was_for_a_lock(at_locks.lost());
        time.was_for_a_lock(serial.map_or(Nanos::ZERO, |serial| serial.waited));
        time.was_in_work(loops.time, &[AwaitedThing::Others]);
        time
    }

    /// Counts what can be told only after the last row.
    pub fn finish(&mut self) {
        for (ends, woken_by) in self.ends.iter_mut().zip(&mut self.woken_by) {
            for (waker, count) in woken_by.iter_mut().enumerate() {
                let count = std::mem::take(count);
                if count > 0 {
                    *ends.wakers.entry(Waker::Task(waker)).or_default() += count;
                }
            }
        }
    }

    /// The place of a rule in `rules`. A rule of another version may be there several times under
    /// one name.
    fn place_of(&mut self, rule: &'static Rule) -> usize {
        let recent = &mut self.recent_rules[rule.reason.index()];
        let is_it = |known: &(&'static Rule, u64)| std::ptr::eq(known.0, rule);
        if !self.rules.get(*recent).is_some_and(is_it) {
            *recent = self.rules.iter().position(is_it).unwrap_or_else(|| {
                self.rules.push((rule, 0));
                self.rules.len() - 1
            });
        }
        *recent
    }

    fn keep_longest(&mut self, reason: Reason, row: &Switch) {
        let (Some(length), Some(ran)) = (row.wait.length(), row.ran) else {
            return;
        };
        let longest = LongestWait {
            length,
            task: row.task,
            ended: row.ts.before(ran),
        };
        let kept = &mut self.longest[reason.index()];
        if kept.is_none_or(|kept| kept.length < length) {
            *kept = Some(longest);
        }
    }

    /// The longest wait for a reason.
    pub fn longest(&self, reason: Reason) -> Option<LongestWait> {
        self.longest[reason.index()]
    }

    /// How the waits of programs for a reason began and ended.
    pub fn ends_of(&self, reason: Reason) -> &WaitEnds {
        &self.ends[reason.index()]
    }

    /// Rules that decided for a reason, most often first.
    fn rules_of(&self, reason: Reason) -> Vec<(&'static Rule, u64)> {
        let mut by_name: FxHashMap<&str, (&'static Rule, u64)> = FxHashMap::default();
        for (rule, count) in &self.rules {
            by_name.entry(rule.name).or_insert((rule, 0)).1 += count;
        }
        let rules = by_name.into_values();
        let mut rules: Vec<_> = rules.filter(|rule| rule.0.reason == reason).collect();
        rules.sort_by_key(|(rule, count)| (Reverse(*count), rule.name));
        rules
    }

    fn count_of(&self, rule: &str) -> u64 {
        let of_name = self.rules.iter().filter(|known| known.0.name == rule);
        of_name.map(|known| known.1).sum()
    }
}

impl SeenTask {
    fn add_wait(&mut self, row: &Switch, ender: Ender) {
        self.waits += 1;
        self.ended_by_others += u64::from(matches!(
            ender,
            Ender::Own | Ender::Other | Ender::Interrupt
        ));
        let blocked = row.wait.blocked().unwrap_or(Nanos::ZERO);
        match (row.wait.reason, ender) {
            (Some(Reason::Sleep), _) => self.asleep += blocked,
            (Some(Reason::Net | Reason::Pipe), Ender::Other | Ender::Interrupt) => {
                self.at_one += blocked;
                self.waits_at_one += 1;
                self.longest_at_one = self.longest_at_one.max(blocked);
            }
            _ => {}
        }
    }

    fn add_switch(&mut self, row: &Switch) {
        self.ran += row.ran.unwrap_or(Nanos::ZERO);
        if row.rule.reason == Reason::Poll {
            self.polls += 1;
            self.poll_call = row.evidence.syscall;
        }
    }

    /// Whether it waits for others, too, as an event loop does, or a worker.
    fn serves_others(&self) -> bool {
        percent(self.ended_by_others, self.waits).is_some_and(|share| share >= OFTEN_PCT)
    }

    /// What is known of a task without a row.
    fn of(thread: &Thread) -> Self {
        Self {
            is_real_time: thread.is_real_time,
            cgroup: thread.cgroup,
            ..Self::default()
        }
    }
}

/// Whose limit of CPU time a task had used up. Only fair tasks have a cgroup's quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CpuLimit {
    /// Of its cgroup.
    Quota,
    /// Its own, as a `SCHED_DEADLINE` task.
    Budget,
    /// Of all real-time tasks together.
    RealTime,
}

impl CpuLimit {
    const fn of(row: &Switch) -> Self {
        match row.evidence.class {
            Class::Deadline => Self::Budget,
            Class::RealTime | Class::Stop => Self::RealTime,
            Class::Idle | Class::Ext | Class::Fair => Self::Quota,
        }
    }

    const fn index(self) -> usize {
        self as usize
    }
}

/// Which switches a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// All switches for this reason.
    Reason(Reason),
    /// Switches into waits for this object.
    Object(Object),
    /// No switches: time that passed without one.
    Time,
}

/// Why a finding is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// Threads lost time to it that they could have worked.
    Lost,
    /// It happens often, or for long, and nothing says that it costs time.
    Frequent,
}

impl FindingKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Frequent => "frequent",
        }
    }
}

/// One cause that stands out.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// A stable name, such as `oversubscribed`.
    pub name: &'static str,
    /// Why it is told.
    pub kind: FindingKind,
    /// The reason that it is about.
    pub reason: Option<Reason>,
    /// The switches that it is about.
    pub subject: Subject,
    /// Number of switches that it explains.
    pub switches: u64,
    /// Time that threads lost by it; 0 unless [`FindingKind::Lost`].
    pub time: Nanos,
    /// What was seen, with its numbers.
    pub seen: String,
    /// Where it comes from, and which tasks took the CPU.
    pub places: Vec<String>,
    /// What a person could change; `None` if the numbers suggest nothing.
    pub advice: Option<AdviceText>,
}

impl Finding {
    /// What a person could change.
    pub fn change(&self) -> Option<&str> {
        self.advice.as_ref().map(|advice| advice.change.as_str())
    }

    /// The finding as a JSON object, with the saving, and the longest wait for its reason.
    pub fn to_json(
        &self,
        number: Option<usize>,
        all: u64,
        lost: &LostTime,
        saving: Option<&Saving>,
        longest: Value,
    ) -> Value {
        json!({
            "name": self.name,
            "number": number,
            "kind": self.kind.as_str(),
            "reason": self.reason.map(Reason::as_str),
            "switches": self.switches,
            "share_pct": percent(self.switches, all),
            "time_ns": self.time.as_ns(),
            "time_share_pct": percent(self.time.as_ns(), lost.at_work().as_ns()),
            "seen": self.seen,
            "places": self.places,
            "advice": self.change(),
            "advice_unless": self.advice.as_ref().map(|advice| advice.unless),
            "worth": saving.map(Saving::to_json),
            "longest": longest,
        })
    }
}

/// The longest wait for a reason: its length, its task, and when it ended.
#[derive(Clone, Copy, Debug)]
pub struct LongestWait {
    length: Nanos,
    task: TaskKey,
    ended: Timestamp,
}

impl LongestWait {
    /// The wait as JSON, in ns since the start of the trace.
    pub fn to_json(self, start: Timestamp) -> Value {
        let to = self.ended.since(start).unwrap_or(Nanos::ZERO);
        json!({
            "task": self.task.get(),
            "from_ns": to.saturating_sub(self.length).as_ns(),
            "to_ns": to.as_ns(),
        })
    }
}

/// The findings about all causes that stand out: those by which time was lost, the dearest first, and then
/// those that happen often.
pub fn findings(input: &VerdictInput<'_>) -> Vec<Finding> {
    let rules = [
        VerdictInput::no_cpu,
        VerdictInput::throttle,
        VerdictInput::deadline_budget,
        VerdictInput::real_time_limit,
        VerdictInput::migrate,
        VerdictInput::yields,
        VerdictInput::priority_inversion,
        VerdictInput::one_lock,
        VerdictInput::serialised,
        VerdictInput::parked,
        VerdictInput::tokens,
        VerdictInput::pipe,
        VerdictInput::blocked_loop,
        VerdictInput::net,
        VerdictInput::ipc,
        VerdictInput::poll,
        VerdictInput::sleep,
        VerdictInput::io,
        VerdictInput::fault,
        VerdictInput::kernel_lock,
        VerdictInput::stopped,
        VerdictInput::child,
        VerdictInput::exit,
        VerdictInput::kernel_threads,
        VerdictInput::idle,
        VerdictInput::interrupts,
        VerdictInput::steal,
        VerdictInput::unknown,
    ];
    let total = input.reasons.total();
    let mut findings: Vec<_> = rules
        .iter()
        .filter_map(|rule| rule(input, &total))
        .collect();
    let is_told = |reason| {
        let is_about = |finding: &Finding| finding.reason == Some(reason);
        findings.iter().any(is_about)
    };
    let untold: Vec<_> = Reason::ALL
        .iter()
        .filter(|reason| !is_told(**reason))
        .collect();
    findings.extend(
        untold
            .iter()
            .filter_map(|reason| input.plain(**reason, &total)),
    );
    findings.sort_by_key(|finding| {
        let is_lost = finding.kind == FindingKind::Lost;
        (!is_lost, Reverse(finding.time), Reverse(finding.switches))
    });
    findings
}

/// The sentence for a trace in which no rule finds anything.
pub fn nothing_stands_out() -> String {
    format!(
        "Nothing stands out: no reason makes {OFTEN_PCT} % of the switches or {LONG_PCT} % of the \
         blocked time."
    )
}

impl VerdictInput<'_> {
    fn unknown(&self, total: &Tally) -> Option<Finding> {
        let tally = self.of_programs(Reason::Unknown);
        percent(tally.switches, total.switches).filter(|share| *share >= UNKNOWN_PCT)?;
        let rules = self.details.rules_of(Reason::Unknown);
        let of_programs = rules.iter().filter(|(rule, _)| rule.name != KERNEL_THREAD);
        let words = of_programs.take(NAMED);
        let words =
            words.map(|(rule, count)| format!("{} {}: {}", grouped(*count), rule.name, rule.help));
        let mut places: Vec<String> = words.collect();
        places.extend(self.places(Reason::Unknown));
        let blocked = self.details.count_of("call_without_rule");
        let advice = percent(blocked, tally.switches).filter(|share| *share >= MOST_PCT);
        let advice = advice.map(|_| advice::STACKS.told());
        Some(Finding {
            name: "unknown",
            kind: FindingKind::Frequent,
            reason: Some(Reason::Unknown),
            subject: Subject::Reason(Reason::Unknown),
            switches: tally.switches,
            time: Nanos::ZERO,
            seen: format!("The reason is not known: {}.", self.switches(&tally, total)),
            places,
            advice,
        })
    }

    /// Kernel threads sleep until there is work for them, which costs nothing; those that block in
    /// the middle of their work wait uninterruptibly.
    fn kernel_threads(&self, total: &Tally) -> Option<Finding> {
        let mut sum = Tally::default();
        for tally in &self.details.kernel {
            sum.add(tally);
        }
        if !is_often(sum.switches, total) {
            return None;
        }
        let is_kernel = |place: &usize| self.names.process(*place).is_kernel;
        let mut programs = self.programs.ranked(self.processes, |tally| tally.switches);
        programs.retain(|program| program.places.iter().all(is_kernel));
        let named = programs.iter().map(|program| {
            let count = program.tally.switches;
            (
                format!("{} {}", program.words(), share(count, sum.switches)),
                count,
            )
        });
        Some(Finding {
            name: "kernel_threads",
            kind: FindingKind::Frequent,
            reason: None,
            subject: Subject::Time,
            switches: sum.switches,
            time: Nanos::ZERO,
            seen: format!(
                "Threads of the kernel itself: {}, on the CPU for {} in all. They sleep until there is work \
                 for them.",
                self.switches(&sum, total),
                sum.ran,
            ),
            places: main_of(named, sum.switches)
                .map(|words| format!("threads: {words}"))
                .into_iter()
                .collect(),
            advice: Some(advice::KERNEL_THREADS.told()),
        })
    }

    /// The finding for a reason that stands out and has no rule of its own.
    fn plain(&self, reason: Reason, total: &Tally) -> Option<Finding> {
        let one = self.reasons.of(reason);
        let tally = self.of_programs(reason);
        let is_preempted = reason.category() == Category::Preemption;
        if !is_often(tally.switches, total) && (is_preempted || !self.is_long(tally.blocked)) {
            return None;
        }
        let places = match is_preempted {
            true => self.preemption_places(reason),
            false => self.places_and_wakers(reason),
        };
        Some(Finding {
            name: "reason",
            kind: FindingKind::Frequent,
            reason: Some(reason),
            subject: Subject::Reason(reason),
            switches: tally.switches,
            time: Nanos::ZERO,
            seen: format!(
                "{}: {}, {} each (median).",
                capitalised(in_words(reason)),
                self.switches(&tally, total),
                typical(&one.lengths.off)
            ),
            places,
            advice: untold(reason).map(Advice::told),
        })
    }

    /// How a cause is told by which so much time was lost, with the time that counts: not at all if neither
    /// the time nor the number of switches stands out. `longest` is the longest of these waits.
    fn weighed(
        &self,
        time: Nanos,
        longest: Nanos,
        switches: u64,
        total: &Tally,
    ) -> Option<(FindingKind, Nanos)> {
        let is_much = |least: f64, whole: Nanos| {
            percent(time.as_ns(), whole.as_ns()).is_none_or(|share| share >= least)
        };
        let noticed = if longest >= LONG_WAIT {
            NOTICED_PCT
        } else {
            MUCH_PCT
        };
        let is_lost = is_much(LOST_PCT, self.lost.at_work()) && is_much(noticed, self.wall);
        let decides = self.busiest.as_ref().is_some_and(BusiestThread::decides);
        if time >= LEAST_TIME && is_lost && !decides {
            return Some((FindingKind::Lost, time));
        }
        is_often(switches, total).then_some((FindingKind::Frequent, Nanos::ZERO))
    }

    /// The longest wait for one of these reasons.
    fn longest_of(&self, reasons: &[Reason]) -> Nanos {
        let longest = reasons
            .iter()
            .filter_map(|reason| self.details.longest(*reason));
        longest
            .map(|longest| longest.length)
            .max()
            .unwrap_or_default()
    }

    /// `1.20 s: 34.0 % of the time in which there was work`
    fn lost_words(&self, time: Nanos) -> String {
        let share = share(time.as_ns(), self.lost.at_work().as_ns());
        format!("{time}: {share} of the time in which its threads had work")
    }

    /// Whether this is a large part of the time that programs were blocked.
    fn is_long(&self, blocked: Nanos) -> bool {
        let all: Nanos = Reason::ALL
            .iter()
            .map(|reason| self.of_programs(*reason).blocked)
            .sum();
        let share = percent(blocked.as_ns(), all.as_ns());
        blocked >= LEAST_TIME && share.is_some_and(|share| share >= LONG_PCT)
    }
}

/// How to learn what an import or a recording without root does not tell of a reason.
const fn untold(reason: Reason) -> Option<&'static Advice> {
    match reason {
        Reason::Blocked => Some(&advice::RECORD_BLOCKED),
        Reason::Preempted => Some(&advice::RECORD_PREEMPTED),
        _ => None,
    }
}

/// Why threads left the CPU, in a few words.
pub const fn in_words(reason: Reason) -> &'static str {
    match reason {
        Reason::Slice => "time slice used up",
        Reason::Wakeup => "preempted by a woken thread",
        Reason::Class => "preempted by a real-time task",
        Reason::Throttle => "CPU quota or budget used up",
        Reason::Migrate => "moved to another CPU",
        Reason::Other => "preempted for a rare reason",
        Reason::Yield => "called sched_yield",
        Reason::Futex => "waited for another thread (lock)",
        Reason::Ipc => "waited for a semaphore or eventfd",
        Reason::Io => "waited for a file or disk",
        Reason::Pipe => "waited for a pipe",
        Reason::Net => "waited for a socket",
        Reason::Poll => "waited in epoll, poll or select",
        Reason::Sleep => "slept, or waited for a signal",
        Reason::Fault => "waited for memory",
        Reason::Child => "waited for a child process",
        Reason::Stop => "stopped (debugger, job control)",
        Reason::Exit => "ended",
        Reason::Unknown => "not known",
        Reason::Preemptive => "left its user-mode scheduler",
        Reason::Policy => "changed its own priority",
        Reason::Blocked => "blocked (not told on what)",
        Reason::Preempted => "preempted (not told why)",
        Reason::Lock => "waited for a lock of the kernel",
    }
}

fn capitalised(words: &str) -> String {
    let mut letters = words.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).collect()
}

fn is_often(switches: u64, total: &Tally) -> bool {
    let share = percent(switches, total.switches);
    switches >= FEWEST_SWITCHES && share.is_some_and(|share| share >= OFTEN_PCT)
}

pub fn share(part: u64, whole: u64) -> String {
    percent(part, whole).map_or_else(|| "-".to_owned(), |share| format!("{share:.1} %"))
}

fn typical(lengths: &Distribution) -> String {
    let median = lengths.percentile(50.0);
    median.map_or_else(|| "unknown length".to_owned(), |median| median.to_string())
}
