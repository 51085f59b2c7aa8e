//! The counts that only the verdict needs: of threads, of rules, of limits, and of where time went.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use swtch_core::{
    Arch, AwaitedThing, CgroupId, Class, CpuId, Ender, LostTime, Nanos, Open, Pid, Reason, Rule,
    RunsTogether, Switch, Tally, TaskKey, Timestamp,
};
use swtch_output::sheet::percent;

use super::super::ends::{WaitEnds, ended_by};
use super::super::filter::CountedParts;
use super::super::group::RowSyscall;
use super::super::names::{Names, Thread, families};
use super::super::reason::ByReason;
use super::super::spans::SpansByThread;
use super::super::turns::TurnsByThread;
use super::super::waker::Waker;
use super::blocked::BlockedLoops;
use super::lock_stacks::StackLockTime;
use super::locks::TimeAtLocks;
use super::no_cpu::QueueTime;
use super::serial::SerialWork;
use super::{LOST_PCT, OFTEN_PCT};

/// Counts that only the verdict needs.
#[derive(Debug)]
pub struct Details {
    /// The moment at which the part of the recording began that is read.
    began: Option<Timestamp>,
    /// Architecture, for the names of system calls.
    arch: Option<Arch>,
    /// The moment at which the last task that was seen on each CPU left it.
    left_at: Vec<Option<Timestamp>>,
    /// The number of times that each rule decided, in the order in which they were met first.
    pub(super) rules: Vec<(&'static Rule, u64)>,
    /// The place in `rules` of the rule that decided last for each reason.
    pub(super) recent_rules: Vec<usize>,
    /// Switches for the reason `throttle` and the waits after them, by [`CpuLimit::index`].
    pub(super) limits: [Tally; 3],
    /// Run-queue time of tasks whose cgroup had used up its quota.
    pub(super) throttled: FxHashMap<CgroupId, Nanos>,
    /// The kind of each task, by index.
    kinds: Vec<TaskKind>,
    /// The counts of kernel threads, and of the recorder, by reason.
    pub(super) kernel: Vec<Tally>,
    pub(super) recorder: Vec<Tally>,
    /// Counts of how the waits of programs began and ended, by reason; the tasks that ended them only after
    /// [`Self::finish`].
    pub(super) ends: Vec<WaitEnds>,
    /// Number of waits that each task ended, by reason and the task's index; empty for a reason that
    /// no task has ended a wait for.
    pub(super) woken_by: Vec<Vec<u64>>,
    /// The longest waits of programs, by reason.
    pub(super) longest: Vec<Option<LongestWait>>,
    /// The time of programs, by where it went, before it is known which objects are locks.
    pub(super) time: LostTime,
    /// Waits of programs for a CPU.
    pub(super) queue: QueueTime,
    /// Waits of programs for others, for work or an answer; and until others had read what they wrote.
    pub(super) for_others: WaitsForOthers,
    pub(super) for_room: WaitsForOthers,
    /// Waits of programs for processes of the same program.
    pub(super) for_processes: WaitsForOthers,
    /// Waits of programs until a time they chose: asleep, and at what did not come before. An event loop's timer is no
    /// such time.
    pub(super) asleep: WaitSum,
    pub(super) timed_out: WaitSum,
    /// A number for the family of each task, by index.
    pub(super) families: Vec<usize>,
    /// Of each task, by index: whether it was a real-time or deadline task, and in which cgroup.
    pub(super) seen: Vec<SeenTask>,
    /// The time for which programs ran on each CPU.
    pub(super) ran_on: Vec<Nanos>,
    /// The runs of each program, at the number of its family.
    pub(super) together: Vec<RunsTogether>,
    /// The turns of programs.
    pub turns: TurnsByThread,
    /// Spans of threads, if some were asked for.
    pub spans: SpansByThread,
}

/// Facts about the part of a recording that is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct PartFacts {
    /// The moment at which it began, as far as a file tells.
    pub began: Option<Timestamp>,
    /// Architecture, for the names of system calls.
    pub arch: Option<Arch>,
    /// Process id of the recorder.
    pub recorder: Option<Pid>,
}

/// The kind of a task, which tells whose its time is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TaskKind {
    Program,
    Kernel,
    /// The recorder, whose time is told apart, also if the machine is recorded, and it with that.
    Recorder,
}

impl TaskKind {
    fn of(task: usize, names: &Names, recorder: Option<Pid>) -> Self {
        if names.process_of(task).is_kernel {
            Self::Kernel
        } else if is_recorder(task, names, recorder) {
            Self::Recorder
        } else {
            Self::Program
        }
    }
}

/// Returns true if the task is of the recorder, or of a helper that it started: not of the command whose parent it is.
pub fn is_recorder(task: usize, names: &Names, recorder: Option<Pid>) -> bool {
    let process = names.process_of(task);
    let is_it = |pid: Option<Pid>| pid.is_some() && pid == recorder;
    let may_be_helper = names.is_of_the_machine() || !names.thread(task).in_scope;
    is_it(process.pid) || is_it(process.parent) && may_be_helper
}

/// The time for which programs waited for others, by who ended that.
#[derive(Debug)]
pub(super) struct WaitsForOthers {
    /// By the index of the task.
    pub(super) by_task: Vec<Nanos>,
    pub(super) by_interrupts: Nanos,
    pub(super) longest: Nanos,
}

impl WaitsForOthers {
    fn new(names: &Names) -> Self {
        Self {
            by_task: vec![Nanos::ZERO; names.thread_count()],
            by_interrupts: Nanos::ZERO,
            longest: Nanos::ZERO,
        }
    }

    fn add(&mut self, blocked: Nanos, waker: Option<Waker>) {
        match waker {
            Some(Waker::Task(waker)) => self.by_task[waker] += blocked,
            _ => self.by_interrupts += blocked,
        }
        self.longest = self.longest.max(blocked);
    }

    /// All of the time waited.
    pub(super) fn sum(&self) -> Nanos {
        self.by_interrupts + self.by_task.iter().copied().sum()
    }
}

/// The last time that a task left the CPU.
#[derive(Clone, Copy, Debug, Default)]
struct LastLeaving {
    /// The moment, and the CPU.
    at: Option<(Timestamp, CpuId)>,
    /// The call in which it left.
    call: Option<u32>,
    /// The task that took the CPU, if that task was just woken.
    to: Option<usize>,
    /// The task that had woken it to the run that ended so.
    woken_by: Option<usize>,
}

impl LastLeaving {
    fn of(row: &Switch, waker: Option<Waker>, names: &Names) -> Self {
        Self {
            at: Some((row.ts, row.cpu)),
            call: match RowSyscall::of(row) {
                RowSyscall::Number(number) => Some(number),
                _ => None,
            },
            to: row
                .next_task
                .filter(|_| row.rule.reason == Reason::Wakeup)
                .map(|next| names.index(next)),
            woken_by: match waker {
                Some(Waker::Task(waker)) => Some(waker),
                _ => None,
            },
        }
    }
}

/// The blocked time of waits, and their number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WaitSum {
    pub(super) blocked: Nanos,
    pub(super) waits: u64,
}

impl WaitSum {
    fn add(&mut self, blocked: Nanos) {
        self.blocked += blocked;
        self.waits += 1;
    }
}

/// The facts that rows tell of a task, whether its switches count or not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SeenTask {
    pub(super) is_real_time: bool,
    pub(super) cgroup: Option<CgroupId>,
    /// True if a row of it was seen.
    is_seen: bool,
    /// After its first row: since when it had run at least, if that row does not tell.
    began: Option<Timestamp>,
    /// The last time that it left the CPU.
    left: LastLeaving,
    /// The time for which it ran, as far as that counts.
    pub(super) ran: Nanos,
    /// Its waits that were counted, and those of them that others ended.
    pub(super) waits: u64,
    pub(super) ended_by_others: u64,
    /// The time for which it was asleep until a moment that it chose.
    pub(super) asleep: Nanos,
    /// The number of times that it left to wait in a call as epoll, and the last such call.
    pub(super) polls: u64,
    pub(super) poll_call: Option<u32>,
    /// Its waits at one socket or pipe, how many, and the longest.
    pub(super) at_one: Nanos,
    pub(super) waits_at_one: u64,
    pub(super) longest_at_one: Nanos,
}

impl Details {
    /// For a trace with these tasks.
    pub fn new(names: &Names, part: PartFacts) -> Self {
        Self {
            began: part.began,
            arch: part.arch,
            left_at: Vec::new(),
            rules: Vec::new(),
            recent_rules: vec![0; Reason::ALL.len()],
            limits: <[Tally; 3]>::default(),
            throttled: FxHashMap::default(),
            kinds: (0..names.thread_count())
                .map(|task| TaskKind::of(task, names, part.recorder))
                .collect(),
            kernel: vec![Tally::default(); Reason::ALL.len()],
            recorder: vec![Tally::default(); Reason::ALL.len()],
            ends: vec![WaitEnds::default(); Reason::ALL.len()],
            woken_by: vec![Vec::new(); Reason::ALL.len()],
            longest: vec![None; Reason::ALL.len()],
            time: LostTime::default(),
            queue: QueueTime::default(),
            for_others: WaitsForOthers::new(names),
            for_room: WaitsForOthers::new(names),
            for_processes: WaitsForOthers::new(names),
            asleep: WaitSum::default(),
            timed_out: WaitSum::default(),
            families: families(names),
            seen: (0..names.thread_count())
                .map(|task| SeenTask::of(names.thread(task)))
                .collect(),
            ran_on: Vec::new(),
            together: Vec::new(),
            turns: TurnsByThread::default(),
            spans: SpansByThread::default(),
        }
    }

    /// Adds what counts of a row of the task with this index. Rows that do not count are needed, too: others may have
    /// waited for their runs.
    pub fn add(&mut self, row: &Switch, task: usize, counted: CountedParts, names: &Names) {
        let waker = Waker::of(row, names);
        self.see(row, task);
        self.spans.add(row, task, names);
        if counted.switch && self.kinds[task] == TaskKind::Program {
            self.turns.add(row, task, self.arch, names);
        }
        if counted.switch {
            self.add_switch(row, task);
        }
        if counted.wait {
            self.add_wait(row, task, waker, names);
        }
        self.seen[task].left = LastLeaving::of(row, waker, names);
    }

    /// Adds any row of the task with this index, also one that does not count.
    fn see(&mut self, row: &Switch, task: usize) {
        let cpu = usize::from(row.cpu.get());
        if cpu >= self.left_at.len() {
            self.left_at.resize(cpu + 1, self.began);
        }
        let left_at = self.left_at[cpu].replace(row.ts);
        let seen = &mut self.seen[task];
        // Only the first row of a task may end a run that began before.
        seen.began = left_at.filter(|_| !std::mem::replace(&mut seen.is_seen, true));
        seen.is_real_time |= matches!(row.evidence.class, Class::RealTime | Class::Deadline);
        seen.cgroup = Some(row.cgroup);
    }

    /// Adds a switch that counts, of the task with this index.
    fn add_switch(&mut self, row: &Switch, task: usize) {
        let reason = row.rule.reason;
        if let Some(apart) = self.apart(task) {
            apart[reason.index()].add_switch(row);
            return;
        }
        let place = self.place_of(row.rule);
        self.rules[place].1 += 1;
        if reason == Reason::Throttle {
            self.limits[CpuLimit::of(row).index()].add_switch(row);
        }
        let ran = self.run_of(row, task);
        self.time.add_run(ran);
        self.seen[task].add_switch(row, ran);
        let family = self.families[task];
        self.together_mut(family)
            .add_run(row.ts.before(ran), row.ts);
        let cpu = usize::from(row.cpu.get());
        if cpu >= self.ran_on.len() {
            self.ran_on.resize(cpu + 1, Nanos::ZERO);
        }
        self.ran_on[cpu] += ran;
    }

    /// Returns how long of the wait before a row's run the CPU was kept by the task that had woken this one; or by one
    /// that this task had woken itself, and that took the CPU from it.
    fn in_turn(&self, row: &Switch, task: usize, waker: Option<Waker>) -> Nanos {
        let in_turn = || {
            let began = row.ts.before(row.ran?);
            let runnable = began.before(row.wait.runq?);
            let other = match (row.wait.reason, waker) {
                (Some(Reason::Wakeup), _) => {
                    let taker = self.seen[task].left.to?;
                    Some(taker).filter(|taker| self.seen[*taker].left.woken_by == Some(task))?
                }
                (_, Some(Waker::Task(waker))) => waker,
                _ => return None,
            };
            let (left, cpu) = self.seen[other].left.at?;
            let is_its_cpu = cpu == row.cpu && left <= began;
            is_its_cpu.then(|| left.since(runnable)).flatten()
        };
        in_turn().unwrap_or(Nanos::ZERO)
    }

    /// Returns the counts that this task has apart; `None` if it is of a program.
    fn apart(&mut self, task: usize) -> Option<&mut [Tally]> {
        match self.kinds[task] {
            TaskKind::Program => None,
            TaskKind::Kernel => Some(&mut self.kernel),
            TaskKind::Recorder => Some(&mut self.recorder),
        }
    }

    /// Returns true if the wait before a row's run was for room in a pipe or a socket: in a call that hands over data.
    fn is_for_room(&self, row: &Switch, task: usize) -> bool {
        let call = self.seen[task].left.call;
        matches!(row.wait.reason, Some(Reason::Pipe | Reason::Net))
            && call.is_some_and(|call| self.arch.is_some_and(|arch| arch.hands_over(call)))
    }

    /// Length of the run that a row ends. If that began before the recording, the part in the recording: the first row
    /// of a thread tells no length then, and on its CPU nobody else was seen to run.
    fn run_of(&self, row: &Switch, task: usize) -> Nanos {
        let since = self.seen[task].began.filter(|_| row.ran.is_none());
        let since = since.and_then(|began| row.ts.since(began));
        row.ran.or(since).unwrap_or(Nanos::ZERO)
    }

    /// Adds a wait that counts, of the task with this index.
    fn add_wait(&mut self, row: &Switch, task: usize, waker: Option<Waker>, names: &Names) {
        if let Some(apart) = self.apart(task) {
            if let Some(reason) = row.wait.reason {
                apart[reason.index()].add_wait(row);
            }
            return;
        }
        let ended = ended_by(waker, task, &self.families);
        self.time.add_wait(row, ended.ender);
        self.queue.add(row, self.in_turn(row, task, waker));
        let is_for_room = self.is_for_room(row, task);
        self.seen[task].add_wait(row, ended.ender, is_for_room);
        let process = |task: usize| names.thread(task).process;
        let is_between = ended.own.is_some_and(|own| process(own) != process(task));
        self.add_awaited(row, ended.ender, waker, (is_for_room, is_between));
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
        self.keep_longest(reason, row);
        match waker {
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
    pub fn add_open(&mut self, open: &Open, task: usize) {
        if let Some(apart) = self.apart(task) {
            if let Some(reason) = open.reason {
                apart[reason.index()].add_open(open);
            }
            return;
        }
        self.time.add_open(open);
        if open.reason.is_none() {
            self.seen[task].ran += open.lasted;
            let family = self.families[task];
            self.together_mut(family).add_run(open.since, open.end());
        }
    }

    /// Adds the wait before a row's run, if it was for others, or until a chosen time.
    /// Told besides is whether it was for room, and for another process of the program.
    fn add_awaited(
        &mut self,
        row: &Switch,
        ender: Ender,
        waker: Option<Waker>,
        (is_for_room, is_between): (bool, bool),
    ) {
        let reason = row.wait.reason.unwrap_or(Reason::Unknown);
        let blocked = row.wait.blocked().unwrap_or(Nanos::ZERO);
        match AwaitedThing::of(reason, ender) {
            AwaitedThing::Own if is_between => self.for_processes.add(blocked, waker),
            AwaitedThing::Others if is_for_room => self.for_room.add(blocked, waker),
            AwaitedThing::Others => self.for_others.add(blocked, waker),
            AwaitedThing::Clock if reason == Reason::Sleep => self.asleep.add(blocked),
            AwaitedThing::Clock if reason != Reason::Poll => self.timed_out.add(blocked),
            _ => {}
        }
    }

    pub(super) fn together_mut(&mut self, family: usize) -> &mut RunsTogether {
        if family >= self.together.len() {
            self.together.resize_with(family + 1, RunsTogether::default);
        }
        &mut self.together[family]
    }

    /// The number of CPUs on which programs ran for more than a moment.
    pub(super) fn cpus_used(&self) -> u64 {
        let all: Nanos = self.ran_on.iter().copied().sum();
        let is_used =
            |ran: &&Nanos| percent(ran.as_ns(), all.as_ns()).is_some_and(|share| share >= LOST_PCT);
        let used = self.ran_on.iter().filter(is_used).count();
        u64::try_from(used).unwrap_or(u64::MAX)
    }

    /// Returns where the time of programs went.
    pub fn lost_time(
        &self,
        at_locks: &TimeAtLocks,
        stack_locks: &StackLockTime,
        serial: Option<&SerialWork>,
        loops: &BlockedLoops,
    ) -> LostTime {
        let mut time = self.time;
        time.was_for_a_lock(at_locks.lost() + stack_locks.sum());
        time.was_in_work(
            at_locks.in_calls,
            &[AwaitedThing::Own, AwaitedThing::Others],
        );
        // What is known to be for locks is a part of that.
        let known = at_locks.lost() + stack_locks.sum();
        let serial = serial.map_or(Nanos::ZERO, |serial| serial.waited);
        time.was_for_a_lock(serial.saturating_sub(known));
        let in_work = loops.time + self.for_room.sum();
        time.was_in_work(in_work, &[AwaitedThing::Others]);
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
    pub(super) fn place_of(&mut self, rule: &'static Rule) -> usize {
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

    pub(super) fn keep_longest(&mut self, reason: Reason, row: &Switch) {
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

    /// Returns what was counted for a reason, without the recorder and without kernel threads, which have a finding of
    /// their own.
    pub fn of_programs(&self, reasons: &ByReason, reason: Reason) -> Tally {
        let mut tally = reasons.of(reason).tally.clone();
        tally.subtract(&self.kernel[reason.index()]);
        tally.subtract(&self.recorder[reason.index()]);
        tally
    }

    /// The same for all reasons that there were, the most frequent first.
    pub fn all_of_programs(&self, reasons: &ByReason) -> Vec<(Reason, Tally)> {
        let counted = Reason::ALL.iter();
        let counted = counted.map(|reason| (*reason, self.of_programs(reasons, *reason)));
        let mut counted: Vec<_> = counted.filter(|(_, tally)| tally.switches > 0).collect();
        counted.sort_by_key(|(reason, tally)| (Reverse(tally.switches), *reason));
        counted
    }

    /// Returns how the waits of programs for a reason began and ended.
    pub fn ends_of(&self, reason: Reason) -> &WaitEnds {
        &self.ends[reason.index()]
    }

    /// Rules that decided for a reason, most often first.
    pub(super) fn rules_of(&self, reason: Reason) -> Vec<(&'static Rule, u64)> {
        let mut by_name: FxHashMap<&str, (&'static Rule, u64)> = FxHashMap::default();
        for (rule, count) in &self.rules {
            by_name.entry(rule.name).or_insert((rule, 0)).1 += count;
        }
        let rules = by_name.into_values();
        let mut rules: Vec<_> = rules.filter(|rule| rule.0.reason == reason).collect();
        rules.sort_by_key(|(rule, count)| (Reverse(*count), rule.name));
        rules
    }

    pub(super) fn count_of(&self, rule: &str) -> u64 {
        let of_name = self.rules.iter().filter(|known| known.0.name == rule);
        of_name.map(|known| known.1).sum()
    }
}

impl SeenTask {
    pub(super) fn add_wait(&mut self, row: &Switch, ender: Ender, is_for_room: bool) {
        self.waits += 1;
        self.ended_by_others += u64::from(matches!(
            ender,
            Ender::Own | Ender::Other | Ender::Interrupt
        ));
        let blocked = row.wait.blocked().unwrap_or(Nanos::ZERO);
        match (row.wait.reason, ender) {
            (Some(Reason::Sleep), Ender::Timer | Ender::Unseen) => self.asleep += blocked,
            (Some(Reason::Net | Reason::Pipe), Ender::Other | Ender::Interrupt) if !is_for_room => {
                self.at_one += blocked;
                self.waits_at_one += 1;
                self.longest_at_one = self.longest_at_one.max(blocked);
            }
            _ => {}
        }
    }

    pub(super) fn add_switch(&mut self, row: &Switch, ran: Nanos) {
        self.ran += ran;
        if row.rule.reason == Reason::Poll {
            self.polls += 1;
            self.poll_call = row.evidence.syscall;
        }
    }

    /// Returns true if it waits for others, too, as an event loop does, or a worker.
    pub(super) fn serves_others(&self) -> bool {
        percent(self.ended_by_others, self.waits).is_some_and(|share| share >= OFTEN_PCT)
    }

    /// Returns what is known of a task without a row.
    pub(super) fn of(thread: &Thread) -> Self {
        Self {
            is_real_time: thread.is_real_time,
            cgroup: thread.cgroup,
            ..Self::default()
        }
    }
}

/// The limit of CPU time that a task had used up, by whose it is. Only fair tasks have a cgroup's quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CpuLimit {
    /// The quota of its cgroup.
    Quota,
    /// The budget of its own, as a `SCHED_DEADLINE` task.
    Budget,
    /// The limit of all real-time tasks together.
    RealTime,
}

impl CpuLimit {
    pub(super) const fn of(row: &Switch) -> Self {
        match row.evidence.class {
            Class::Deadline => Self::Budget,
            Class::RealTime | Class::Stop => Self::RealTime,
            Class::Idle | Class::Ext | Class::Fair => Self::Quota,
        }
    }

    pub(super) const fn index(self) -> usize {
        self as usize
    }
}

/// The longest wait for a reason: its length, its task, and when it ended.
#[derive(Clone, Copy, Debug)]
pub struct LongestWait {
    pub(super) length: Nanos,
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
