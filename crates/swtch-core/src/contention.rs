//! Splits each run-queue wait of a task among those that had the CPU meanwhile.
//!
//! A row says how long its task waited in a run queue and where. The runs that other tasks had
//! there in the meantime are rows of their own, and they come earlier: rows are in order of
//! switch-out, and any task that ran during the wait left before the waiting task came.
//!
//! ```text
//!              waits in the queue of cpu 0        runs
//!  T   ····────┬───────────────────────────────┬────────┬──▶
//!              from                          start      ts (this row)
//!  cpu 0 ──A───────┤├────B────┤   idle   ├──C──┤├──T────┤
//!              └ A ─┘└── B ──┘└─ idle ──┘└─ C ─┘           the parts sum to the wait
//! ```
//!
//! A task that was moved to another queue while it waited has two parts. The row of the run that
//! was in progress on the first CPU when the task was moved may come much later; such a wait is
//! kept until then. When the task was moved more than once, only the last move is known, and all
//! time before it is taken to have passed on the first CPU.
//!
//! Time that no recorded run covers is **idle** where the rows allow no other reading, and
//! **unaccounted** where they do: near a [`Gap`], beyond the memory kept here, and after a row that
//! names a successor whose run is not in the trace.
//!
//! [`Contention`] divides one wait after the other. [`ContentionSums`] gives the sums over all waits
//! and does not look at each run for each wait.
//!
//! Limit: a task whose cgroup was throttled while it slept counts as waiting from its wakeup,
//! although it could not have run, and the tasks that used the CPU count as those it waited for.

mod sums;

use std::collections::VecDeque;

pub use sums::{ContentionSums, GroupSplit, HeldWaits, HolderTotals};

use crate::ids::{CpuId, TaskKey};
use crate::reason::Reason;
use crate::switch::{Gap, Switch};
use crate::units::{Nanos, Timestamp};

/// Runs remembered over all CPUs together: 48 bytes each, 100 ms of history at 10 M switches/s.
/// With more than 256 CPUs, [`FEWEST_RUNS`] per CPU makes it more.
const RUNS_IN_MEMORY: usize = 1 << 20;

/// Runs remembered on each CPU at least, however many CPUs there are.
const FEWEST_RUNS: usize = 4096;

/// The most waits kept back on one CPU until its next row. Each is a task that was moved, so a
/// hundred would do; more than this means that the CPU has stopped reporting.
const MOST_KEPT_BACK: usize = 4096;

/// Task keys beyond this come from damaged data; their last CPU is not remembered.
const MOST_TASKS: usize = 1 << 24;

/// The holder of the CPU while a task waited for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Holder {
    /// This task ran on the CPU.
    Task(TaskKey),
    /// Interrupts ran, on top of some task.
    Interrupts,
    /// The hypervisor gave the CPU to another guest.
    Steal,
    /// No CPU could have run the task: its CPU quota or budget was used up.
    Throttle,
    /// The CPU was idle: it was still leaving idle, or the task had not been placed yet.
    Idle,
    /// Not known: lost records, or more history than is kept.
    Unaccounted,
}

impl Holder {
    /// The holders that are not tasks.
    pub const OTHERS: [Self; 5] = [
        Self::Interrupts,
        Self::Steal,
        Self::Throttle,
        Self::Idle,
        Self::Unaccounted,
    ];
}

/// A part of a wait, with one holder of the CPU.
#[derive(Clone, Copy, Debug)]
struct WaitPart {
    holder: Holder,
    time: Nanos,
}

/// A wait in a run queue, and what the CPU was used for meanwhile.
#[derive(Clone, Copy, Debug)]
pub struct Contended<'a> {
    /// The task that waited.
    pub task: TaskKey,
    /// The reason for which the task had left its CPU before; `None` when that switch-out was not recorded.
    pub reason: Option<Reason>,
    /// Length of the wait.
    pub runq: Nanos,
    split: WaitSplit<'a>,
}

impl Contended<'_> {
    /// Calls `each` with what the CPU was used for and how long, latest first; one holder may come
    /// more than once. The times sum to `runq`.
    ///
    /// On a crowded CPU a wait spans the runs of hundreds of tasks, so they are handed out while
    /// they are looked at, and not collected before.
    #[inline(always)]
    pub fn for_each_part(&self, mut each: impl FnMut(Holder, Nanos)) {
        match self.split {
            WaitSplit::Throttled => each(Holder::Throttle, self.runq),
            WaitSplit::AtUnknownTime => each(Holder::Unaccounted, self.runq),
            WaitSplit::OnOneCpu {
                history,
                stretch,
                coverage,
                missing,
            } => {
                history.walk(stretch, self.task, coverage, &mut each);
                give(&mut each, Holder::Unaccounted, missing);
            }
            WaitSplit::Collected(parts) => {
                parts.iter().for_each(|part| each(part.holder, part.time))
            }
        }
    }
}

/// A way in which a wait is split.
#[derive(Clone, Copy, Debug)]
enum WaitSplit<'a> {
    /// All of the wait is the throttle's.
    Throttled,
    /// The moments of the wait are not known, so nobody can be named.
    AtUnknownTime,
    /// All of the wait was spent in the queue of one CPU.
    OnOneCpu {
        history: &'a CpuHistory,
        stretch: Stretch,
        coverage: Coverage,
        /// Length of the wait beyond the stretch.
        missing: Nanos,
    },
    /// The parts are known: those of a wait that was kept back.
    Collected(&'a [WaitPart]),
}

/// The tasks whose runs the trace holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// The runs of every task.
    EveryTask,
    /// The runs of the recorded tasks, and those of other tasks that ended while a recorded task
    /// waited on that CPU.
    RecordedTasks,
    /// The runs of the recorded tasks only, as perf events without root tell them: who else had a CPU,
    /// or whether it was idle, is not known.
    OwnTasks,
}

/// A run on a CPU; `task` is `None` where the user of the CPU is not known.
#[derive(Clone, Copy, Debug)]
struct CpuRun {
    start: Timestamp,
    end: Timestamp,
    task: Option<TaskKey>,
    next: Option<TaskKey>,
    /// Time that interrupts took out of the run: at most all of it.
    irq: Nanos,
    /// Time that the hypervisor took out of the run: at most what interrupts left.
    stolen: Nanos,
}

/// A stretch of time on one CPU.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    cpu: CpuId,
    from: Timestamp,
    to: Timestamp,
    /// True if the waiting task started to run on this CPU at `to`.
    ends_in_run: bool,
}

/// A wait whose first part lies on a CPU of which no later row has come yet.
#[derive(Debug)]
struct KeptBack {
    wait: RunQueueWait,
    stretch: Stretch,
    parts: Vec<WaitPart>,
}

/// A wait in a run queue, before it is split.
#[derive(Clone, Copy, Debug)]
struct RunQueueWait {
    task: TaskKey,
    reason: Option<Reason>,
    runq: Nanos,
}

impl RunQueueWait {
    const fn with<'a>(&self, split: WaitSplit<'a>) -> Contended<'a> {
        Contended {
            task: self.task,
            reason: self.reason,
            runq: self.runq,
            split,
        }
    }
}

#[derive(Debug, Default)]
struct CpuHistory {
    runs: VecDeque<CpuRun>,
    /// End of the last run that was dropped from memory.
    forgotten: Option<Timestamp>,
    kept_back: VecDeque<KeptBack>,
    gaps: Vec<Gap>,
}

/// Splits the run-queue waits of a trace, row by row.
#[derive(Debug)]
pub struct Contention {
    coverage: Coverage,
    runs_per_cpu: usize,
    cpus: Vec<CpuHistory>,
    last_cpu: Vec<Option<CpuId>>,
    beyond_memory: u64,
}

impl Contention {
    /// For a trace of a machine with `cpus` CPUs, whose lost records are in `gaps`.
    pub fn new(coverage: Coverage, cpus: usize, gaps: &[Gap]) -> Self {
        let runs_per_cpu = (RUNS_IN_MEMORY / cpus.max(1)).max(FEWEST_RUNS);
        Self::with_memory(coverage, runs_per_cpu, gaps)
    }

    fn with_memory(coverage: Coverage, runs_per_cpu: usize, gaps: &[Gap]) -> Self {
        let mut contention = Self {
            coverage,
            runs_per_cpu,
            cpus: Vec::new(),
            last_cpu: Vec::new(),
            beyond_memory: 0,
        };
        for gap in gaps {
            contention.cpu_mut(gap.cpu).add_gap(*gap);
        }
        contention
    }

    /// Takes the next row, in order of switch-out. Hands to `sink` each wait that is complete with
    /// it: the row's own, unless it is kept back, and earlier ones that were kept back.
    pub fn push(&mut self, row: &Switch, sink: &mut impl FnMut(Contended<'_>)) {
        self.split_wait(row, sink);
        self.push_run(row, sink);
    }

    /// As [`Self::push`], but only the row's run is used: its own wait is not split.
    pub fn push_run(&mut self, row: &Switch, sink: &mut impl FnMut(Contended<'_>)) {
        self.remember(row);
        self.settle(row.cpu, row.ts, sink);
    }

    /// Hands on the waits that are still kept back, because no further row comes.
    pub fn finish(&mut self, sink: &mut impl FnMut(Contended<'_>)) {
        for cpu in 0..self.cpus.len() {
            while let Some(wait) = self.cpus[cpu].kept_back.pop_front() {
                self.complete(wait, sink);
            }
        }
    }

    /// Number of waits that reach back beyond the runs kept in memory; that part of them is
    /// [`Holder::Unaccounted`].
    pub const fn beyond_memory(&self) -> u64 {
        self.beyond_memory
    }

    fn split_wait(&mut self, row: &Switch, sink: &mut impl FnMut(Contended<'_>)) {
        let Some(runq) = row.wait.runq.filter(|runq| *runq > Nanos::ZERO) else {
            return;
        };
        let wait = RunQueueWait {
            task: row.task,
            reason: row.wait.reason,
            runq,
        };
        if row.wait.reason == Some(Reason::Throttle) {
            sink(wait.with(WaitSplit::Throttled));
            return;
        }
        // Without the length of the run it is not known when the wait ended.
        let Some(ran) = row.ran else {
            sink(wait.with(WaitSplit::AtUnknownTime));
            return;
        };
        let (stretch, elsewhere) = self.stretches(row, ran, runq);
        self.count_beyond_memory(stretch, row.task);
        // A wait longer than the time since boot is a clock fault.
        let here = elsewhere.map_or(runq, |_| row.wait.moved.unwrap_or(runq));
        let index = self.cpu_index(stretch.cpu);
        let contended = wait.with(WaitSplit::OnOneCpu {
            history: &self.cpus[index],
            stretch,
            coverage: self.coverage,
            missing: here.saturating_sub(length(stretch.from, stretch.to)),
        });
        let Some(elsewhere) = elsewhere else {
            sink(contended);
            return;
        };
        let mut parts = Vec::new();
        contended.for_each_part(|holder, time| parts.push(WaitPart { holder, time }));
        let kept = KeptBack {
            wait,
            stretch: elsewhere,
            parts,
        };
        self.keep_back(kept, sink);
    }

    /// The part of the wait on the row's CPU, and the part that was spent elsewhere before, if the
    /// task was moved.
    fn stretches(&self, row: &Switch, ran: Nanos, runq: Nanos) -> (Stretch, Option<Stretch>) {
        let start = row.ts.before(ran);
        let first_cpu = row.wait.wakeup.cpu.or_else(|| self.last_cpu_of(row.task));
        let moved = match (row.wait.moved, first_cpu) {
            (Some(moved), Some(first)) if first != row.cpu && moved < runq => Some((moved, first)),
            _ => None,
        };
        let here = moved.map_or(runq, |moved| moved.0);
        let stretch = Stretch {
            cpu: row.cpu,
            from: start.before(here),
            to: start,
            ends_in_run: true,
        };
        let elsewhere = moved.map(|(moved, cpu)| Stretch {
            cpu,
            from: start.before(runq),
            to: start.before(moved),
            ends_in_run: false,
        });
        (stretch, elsewhere)
    }

    fn keep_back(&mut self, kept: KeptBack, sink: &mut impl FnMut(Contended<'_>)) {
        let stretch = kept.stretch;
        let cpu = self.cpu_mut(stretch.cpu);
        cpu.kept_back.push_back(kept);
        let overflow = cpu.kept_back.len() > MOST_KEPT_BACK;
        let newest = cpu.runs.back().map(|run| run.end);
        let evicted = if overflow {
            cpu.kept_back.pop_front()
        } else {
            None
        };
        if let Some(evicted) = evicted {
            self.complete(evicted, sink);
        }
        if let Some(newest) = newest {
            self.settle(stretch.cpu, newest, sink);
        }
    }

    /// Completes the waits kept back on a CPU whose rows have come up to `until`.
    fn settle(&mut self, cpu: CpuId, until: Timestamp, sink: &mut impl FnMut(Contended<'_>)) {
        let index = usize::from(cpu.get());
        let is_due = |kept: &KeptBack| kept.stretch.to <= until;
        if !self.cpus[index].kept_back.iter().any(is_due) {
            return;
        }
        // Each goes once round the queue, so that those that stay keep their order.
        for _ in 0..self.cpus[index].kept_back.len() {
            match self.cpus[index].kept_back.pop_front() {
                Some(kept) if is_due(&kept) => self.complete(kept, sink),
                Some(kept) => self.cpus[index].kept_back.push_back(kept),
                None => break,
            }
        }
    }

    fn complete(&mut self, mut kept: KeptBack, sink: &mut impl FnMut(Contended<'_>)) {
        let (wait, stretch) = (kept.wait, kept.stretch);
        self.count_beyond_memory(stretch, wait.task);
        let index = self.cpu_index(stretch.cpu);
        let parts = &mut kept.parts;
        let mut keep = |holder, time| parts.push(WaitPart { holder, time });
        self.cpus[index].walk(stretch, wait.task, self.coverage, &mut keep);
        let told: Nanos = kept.parts.iter().map(|part| part.time).sum();
        let mut keep = |holder, time| kept.parts.push(WaitPart { holder, time });
        give(
            &mut keep,
            Holder::Unaccounted,
            wait.runq.saturating_sub(told),
        );
        sink(wait.with(WaitSplit::Collected(&kept.parts)));
    }

    /// Counts a stretch that reaches back beyond the runs in memory.
    fn count_beyond_memory(&mut self, stretch: Stretch, waiter: TaskKey) {
        let index = self.cpu_index(stretch.cpu);
        let cpu = &self.cpus[index];
        if cpu.forgotten.is_some_and(|end| end > stretch.from) {
            let reaches_back = cpu.walk(stretch, waiter, self.coverage, &mut |_, _| ());
            self.beyond_memory += u64::from(reaches_back);
        }
    }

    fn remember(&mut self, row: &Switch) {
        let task = usize::try_from(row.task.get()).unwrap_or(usize::MAX);
        if task < MOST_TASKS {
            if task >= self.last_cpu.len() {
                self.last_cpu.resize(task + 1, None);
            }
            self.last_cpu[task] = Some(row.cpu);
        }
        let most = self.runs_per_cpu;
        let cpu = self.cpu_mut(row.cpu);
        let run = CpuRun::of(row, cpu.runs.back());
        if cpu.runs.len() == most {
            cpu.forgotten = cpu.runs.pop_front().map(|run| run.end);
        }
        cpu.runs.push_back(run);
    }

    fn last_cpu_of(&self, task: TaskKey) -> Option<CpuId> {
        let index = usize::try_from(task.get()).unwrap_or(usize::MAX);
        self.last_cpu.get(index).copied().flatten()
    }

    fn cpu_index(&mut self, cpu: CpuId) -> usize {
        let index = usize::from(cpu.get());
        if index >= self.cpus.len() {
            self.cpus.resize_with(index + 1, CpuHistory::default);
        }
        index
    }

    fn cpu_mut(&mut self, cpu: CpuId) -> &mut CpuHistory {
        let index = self.cpu_index(cpu);
        &mut self.cpus[index]
    }
}

/// Time between two runs on a CPU; an end is `None` where no run is in memory.
#[derive(Clone, Copy)]
struct Hole<'a> {
    before: Option<&'a CpuRun>,
    after: Option<&'a CpuRun>,
}

impl CpuHistory {
    /// Splits a stretch among the holders of this CPU, from its end back to its start. Returns
    /// whether it begins before the first run in memory.
    ///
    /// This loop is where most of the time of a report on crowded CPUs goes. It is inlined together
    /// with `each`, so that the sums of a wait stay in registers.
    #[inline(always)]
    fn walk(
        &self,
        stretch: Stretch,
        waiter: TaskKey,
        coverage: Coverage,
        each: &mut impl FnMut(Holder, Nanos),
    ) -> bool {
        let mut to = stretch.to;
        let mut after: Option<&CpuRun> = None;
        let (older, newer) = self.runs.as_slices();
        for runs in [newer, older] {
            for run in runs.iter().rev() {
                if to <= stretch.from {
                    return false;
                }
                let hole_from = run.end.max(stretch.from);
                if hole_from < to {
                    let hole = Hole {
                        before: Some(run),
                        after,
                    };
                    let holder = self.holder_of_hole(hole, stretch, coverage, waiter);
                    give(each, holder, length(hole_from, to));
                    to = hole_from;
                }
                let run_from = run.start.max(stretch.from);
                if run_from < to {
                    run.give_to_holders(length(run_from, to), Some(waiter), each);
                    to = run_from;
                }
                after = Some(run);
            }
        }
        if to <= stretch.from {
            return false;
        }
        let hole = Hole {
            before: None,
            after,
        };
        let holder = self.holder_of_hole(hole, stretch, coverage, waiter);
        give(each, holder, length(stretch.from, to));
        true
    }

    /// Rarely called, and kept out of the loop that calls it.
    #[cold]
    fn holder_of_hole(
        &self,
        hole: Hole<'_>,
        wait: Stretch,
        coverage: Coverage,
        waiter: TaskKey,
    ) -> Holder {
        let is_told = !self.has_gap_in(hole, wait) && !self.is_beyond_memory(hole, wait);
        if is_told && hole.is_idle(wait, coverage, waiter) {
            Holder::Idle
        } else {
            Holder::Unaccounted
        }
    }

    /// Returns true if records were lost near the hole. A lost row leaves its run as a hole, and its switch-out lies in
    /// the gap, so a gap that only touches the hole makes it doubtful.
    fn has_gap_in(&self, hole: Hole<'_>, wait: Stretch) -> bool {
        let from = hole.before.map_or(wait.from, |run| run.end.max(wait.from));
        let to = match hole.after {
            Some(run) => run.start,
            None if wait.ends_in_run => wait.to,
            None => Timestamp::from_ns(u64::MAX),
        };
        let first = self.gaps.partition_point(|gap| gap.end < from);
        self.gaps.get(first).is_some_and(|gap| gap.start <= to)
    }

    fn is_beyond_memory(&self, hole: Hole<'_>, wait: Stretch) -> bool {
        hole.before.is_none() && self.forgotten.is_some_and(|end| end > wait.from)
    }

    /// Adds a gap. Gaps are kept in order, and gaps that touch are joined.
    fn add_gap(&mut self, gap: Gap) {
        self.gaps.push(gap);
        self.gaps.sort_by_key(|gap| gap.start);
        self.gaps.dedup_by(|later, earlier| {
            let touches = later.start <= earlier.end;
            if touches {
                earlier.end = earlier.end.max(later.end);
            }
            touches
        });
    }
}

impl Hole<'_> {
    /// Returns true if the rows around the hole allow no other reading than an idle CPU.
    fn is_idle(self, wait: Stretch, coverage: Coverage, waiter: TaskKey) -> bool {
        if coverage == Coverage::OwnTasks {
            return false;
        }
        let successor = self.before.map(|run| run.next);
        if wait.ends_in_run {
            // A task that left this CPU during the wait has a row, so a hole that begins with the
            // wait is idle; a hole that begins with a switch is what that switch names as next.
            let begins_in_wait = self.before.is_some_and(|run| run.end >= wait.from);
            let allowed = [Some(TaskKey::IDLE), Some(waiter)];
            return !begins_in_wait || successor.is_some_and(|next| allowed.contains(&next));
        }
        // After the task was moved away, other tasks may have left without a row, unless every task
        // is recorded: then a hole after a switch to idle, or before any switch, is idle.
        let is_after_idle = successor.is_none_or(|next| next == Some(TaskKey::IDLE));
        coverage == Coverage::EveryTask && is_after_idle
    }
}

impl CpuRun {
    fn of(row: &Switch, previous: Option<&Self>) -> Self {
        let (start, task) = match (row.ran, previous) {
            (Some(ran), _) => (row.ts.before(ran), Some(row.task)),
            // The capture began inside this run: nothing else ran here before.
            (None, None) => (Timestamp::default(), Some(row.task)),
            (None, Some(previous)) => {
                let is_successor = previous.next == Some(row.task);
                (previous.end, is_successor.then_some(row.task))
            }
        };
        let ran = length(start, row.ts);
        let irq = row.irq.min(ran);
        Self {
            start,
            end: row.ts,
            task,
            next: row.next_task,
            irq,
            stolen: row.stolen.min(ran.saturating_sub(irq)),
        }
    }

    /// Splits `time` of this run among the task, interrupts and steal, in proportion to the whole
    /// run. It is a part of a wait of `waiter`, if there is one.
    #[inline(always)]
    fn give_to_holders(
        &self,
        time: Nanos,
        waiter: Option<TaskKey>,
        each: &mut impl FnMut(Holder, Nanos),
    ) {
        let Some(task) = self.task.filter(|task| Some(*task) != waiter) else {
            // The task's own run cannot be a part of its wait; it looks so where the clocks of two
            // CPUs differ.
            give(each, Holder::Unaccounted, time);
            return;
        };
        // Most runs have neither, and a wait may span hundreds of runs.
        if self.irq == Nanos::ZERO && self.stolen == Nanos::ZERO {
            give(each, Holder::Task(task), time);
            return;
        }
        let ran = length(self.start, self.end);
        let irq = in_proportion(self.irq, time, ran);
        let stolen = in_proportion(self.stolen, time, ran);
        give(each, Holder::Interrupts, irq);
        give(each, Holder::Steal, stolen);
        let rest = time.saturating_sub(irq).saturating_sub(stolen);
        give(each, Holder::Task(task), rest);
    }
}

fn give(each: &mut impl FnMut(Holder, Nanos), holder: Holder, time: Nanos) {
    if time > Nanos::ZERO {
        each(holder, time);
    }
}

fn length(from: Timestamp, to: Timestamp) -> Nanos {
    to.since(from).unwrap_or(Nanos::ZERO)
}

/// `amount × part / whole`, rounded down, so that parts never exceed the whole.
fn in_proportion(amount: Nanos, part: Nanos, whole: Nanos) -> Nanos {
    if amount == Nanos::ZERO || part == whole {
        return amount;
    }
    let product = u128::from(amount.as_ns()) * u128::from(part.as_ns());
    let share = product / u128::from(whole.as_ns().max(1));
    Nanos::from_ns(u64::try_from(share).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
