//! Sums over all run-queue waits of a trace: how long each holder had the CPU, and in how many
//! waits.
//!
//! [`Contention`] divides one wait among the runs that it spans. On a crowded CPU each wait spans
//! the runs of hundreds of tasks, so dividing every wait costs rows × waiting tasks. The sums do not
//! need the parts of each wait. A wait that ends now spans the *last* runs of its CPU:
//!
//! ```text
//!                        first     inner runs of the wait
//!  runs of a CPU  ──A────┤├──B──┤├──C──┤├──B──┤├──D──┤├─ T, which waited ─▶
//!                           └──────── wait of T ──────┘
//!                           from
//! ```
//!
//! - Only the first run and the holes at both ends may be covered in part; they are looked at one by
//!   one.
//! - All inner runs are covered whole. Sums that count up from run to run give their time as one
//!   difference: that of all tasks, of the waiter's own group, of interrupts, of idle.
//! - How long a *task* had the CPU is the length of each of its runs times the number of waits that
//!   cover it. A wait is counted at its first inner run and at its own; when a run leaves the window
//!   (below), all waits that cover it are known.
//! - In how many waits a task had the CPU: its latest run stands for it. A wait that covers an
//!   earlier run of the task and ends before its next one is counted at that next one; so no wait is
//!   counted twice.
//!
//! So a row costs the same however many tasks wait. Not every wait is like this: the task may have
//! been moved to another CPU, or clocks differ and runs overlap. Such a wait is divided run by run,
//! with the same result.
//!
//! Where waits span a few runs only, dividing them is faster. So sums are kept of the last runs of a
//! CPU, the *window*, which has none at first. A wait that reaches back beyond it is divided, and when
//! such waits span more than a few runs for each row, the window grows.

mod cpu;

use super::{Contended, Contention, Holder, Hole, Stretch, length};
use crate::ids::TaskKey;
use crate::reason::Reason;
use crate::switch::Switch;
use crate::units::{Nanos, Timestamp};
use cpu::CpuSums;

/// Runs in the window of a CPU when it has grown for the first time: 4 kB.
const FIRST_WINDOW: usize = 64;

/// For each run of a CPU, waits that reach beyond its window may span this many runs before the
/// window grows.
const SPANNED_PER_RUN: usize = 8;

/// Waits may span so many runs more before the window grows.
const SPANNED_AT_FIRST: usize = 2048;

/// The share of one holder of CPUs in the waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldWaits {
    /// The time for which it had the CPU while others were runnable.
    pub time: Nanos,
    /// Number of waits in which it had the CPU.
    pub waits: u64,
}

/// Run-queue time of several waits, by the holder of the CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupSplit {
    /// Time of tasks of the waiter's own group.
    pub own: Nanos,
    /// Time of tasks of other groups.
    pub others: Nanos,
    /// Time of holders that are not tasks.
    pub rest: Nanos,
}

/// The sums over all waits, by holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HolderTotals {
    tasks: Vec<HeldWaits>,
    others: [HeldWaits; Holder::OTHERS.len()],
    splits: Vec<GroupSplit>,
    waits: u64,
    runq: Nanos,
}

impl HolderTotals {
    fn new(tasks: usize) -> Self {
        Self {
            tasks: vec![HeldWaits::default(); tasks],
            others: [HeldWaits::default(); Holder::OTHERS.len()],
            splits: vec![GroupSplit::default(); Reason::ALL.len()],
            waits: 0,
            runq: Nanos::ZERO,
        }
    }

    /// Returns the share of each task, by its place.
    pub fn tasks(&self) -> &[HeldWaits] {
        &self.tasks
    }

    /// Returns the share of a holder that is not a task.
    pub fn other(&self, holder: Holder) -> HeldWaits {
        place_of_other(holder).map_or_else(HeldWaits::default, |place| self.others[place])
    }

    /// Returns which holders had the CPU during the waits for a reason.
    pub fn split(&self, reason: Reason) -> GroupSplit {
        self.splits[reason.index()]
    }

    /// Number of all waits.
    pub const fn waits(&self) -> u64 {
        self.waits
    }

    /// Run-queue time of all waits.
    pub const fn runq(&self) -> Nanos {
        self.runq
    }
}

fn place_of_other(holder: Holder) -> Option<usize> {
    Holder::OTHERS.iter().position(|other| *other == holder)
}

/// Sums up the run-queue waits of a trace, row by row.
///
/// Tasks have a *place* here, a small number that the caller chooses. Several tasks may share one;
/// then they are one holder.
#[derive(Debug)]
pub struct ContentionSums {
    contention: Contention,
    cpus: Vec<CpuSums>,
    tasks: Vec<TaskSums>,
    totals: HolderTotals,
    /// Number of waits that were divided run by run.
    divided: u64,
}

/// The task at one place, as far as its rows have come.
#[derive(Clone, Copy, Debug)]
struct TaskSums {
    group: usize,
    /// End of its last run on any CPU.
    last_end: Timestamp,
    /// End of the last hole that began with a switch to this task. The hole counts as idle only in
    /// waits of this task.
    hole_after_naming: Timestamp,
    /// Number of the wait that was divided last in which it had the CPU.
    last_wait: u64,
}

impl ContentionSums {
    /// For the waits that `contention` splits. `groups` has a number for each place of a task: tasks
    /// with the same number are a group.
    pub fn new(contention: Contention, groups: &[usize]) -> Self {
        let task = |group: &usize| TaskSums {
            group: *group,
            last_end: Timestamp::default(),
            hole_after_naming: Timestamp::default(),
            last_wait: 0,
        };
        Self {
            contention,
            cpus: Vec::new(),
            tasks: groups.iter().map(task).collect(),
            totals: HolderTotals::new(groups.len()),
            divided: 0,
        }
    }

    /// Takes the next row, in order of switch-out. Its wait is summed up if `counts_wait`; its run is
    /// needed in any case, because other tasks waited for it. `place_of` gives the place of a task.
    pub fn push(&mut self, row: &Switch, counts_wait: bool, place_of: &impl Fn(TaskKey) -> usize) {
        let place = place_of(row.task);
        let cpu = self.contention.cpu_index(row.cpu);
        if cpu >= self.cpus.len() {
            self.cpus.resize_with(cpu + 1, CpuSums::default);
        }
        if counts_wait && !self.sum_up_wait(row, place, cpu) {
            self.divided += 1;
            let (tasks, totals) = (&mut self.tasks, &mut self.totals);
            let mut parts = 0;
            self.contention.split_wait(row, &mut |wait| {
                parts += add_divided(tasks, totals, wait, place_of);
            });
            self.cpus[cpu].count_divided(parts);
        }
        self.cpus[cpu].may_span += SPANNED_PER_RUN;
        if self.cpus[cpu].is_full(self.contention.runs_per_cpu) {
            self.cpus[cpu].forget_first(&mut self.totals);
        }
        let (tasks, totals) = (&mut self.tasks, &mut self.totals);
        self.contention.push_run(row, &mut |wait| {
            add_divided(tasks, totals, wait, place_of);
        });
        self.add_run(row, place, cpu, place_of);
    }

    /// Sums up what is left, because no further row comes.
    pub fn finish(&mut self, place_of: &impl Fn(TaskKey) -> usize) {
        let (tasks, totals) = (&mut self.tasks, &mut self.totals);
        self.contention.finish(&mut |wait| {
            add_divided(tasks, totals, wait, place_of);
        });
        for cpu in &mut self.cpus {
            while !cpu.runs.is_empty() {
                cpu.forget_first(&mut self.totals);
            }
        }
    }

    /// After [`Self::finish`]: takes the runs that were open when the trace ended, as rows that end then,
    /// and divides the waits that were open, which are no part of the sums.
    pub fn split_open(
        &mut self,
        runs: &[Switch],
        waits: &[Switch],
        each: &mut impl FnMut(Holder, Nanos),
    ) {
        let mut sink = |wait: Contended<'_>| wait.for_each_part(&mut *each);
        for run in runs {
            self.contention.push_run(run, &mut sink);
        }
        for wait in waits {
            self.contention.split_wait(wait, &mut sink);
        }
        self.contention.finish(&mut sink);
    }

    /// The sums, complete after [`Self::finish`].
    pub const fn totals(&self) -> &HolderTotals {
        &self.totals
    }

    /// As [`Contention::beyond_memory`].
    pub const fn beyond_memory(&self) -> u64 {
        self.contention.beyond_memory()
    }

    /// Sums up the wait of a row. Returns `false`, and adds nothing, if the wait must be divided run by
    /// run.
    fn sum_up_wait(&mut self, row: &Switch, place: usize, cpu: usize) -> bool {
        let Some(runq) = row.wait.runq.filter(|runq| *runq > Nanos::ZERO) else {
            return true;
        };
        let Some(ran) = row.ran.filter(|_| self.cpus[cpu].window > 0) else {
            return false;
        };
        let (stretch, elsewhere) = self.contention.stretches(row, ran, runq);
        let task = self.tasks[place];
        let may_span_own_run = task.last_end > stretch.from;
        let may_span_own_hole = task.hole_after_naming > stretch.from;
        let is_throttled = row.wait.reason == Some(Reason::Throttle);
        if elsewhere.is_some() || is_throttled || may_span_own_run || may_span_own_hole {
            return false;
        }
        let history = &self.contention.cpus[cpu];
        let Some(first) = self.cpus[cpu].first_spanned(history, stretch) else {
            return false;
        };
        let reaches_back = first == 0
            && history
                .runs
                .front()
                .is_some_and(|run| run.start > stretch.from)
            && history.forgotten.is_some_and(|end| end > stretch.from);
        self.contention.beyond_memory += u64::from(reaches_back);
        let mut parts = self.parts_at_the_ends(row.task, stretch, cpu, first);
        let missing = runq.saturating_sub(length(stretch.from, stretch.to));
        parts.add(Holder::Unaccounted, missing);
        let sums = &mut self.cpus[cpu];
        let from_end = self.contention.cpus[cpu].runs.len() - first;
        let first = sums.next_run() - from_end;
        sums.add_wait(first, task.group, &mut parts, &mut self.totals);
        parts.add_to(&mut self.totals, row.wait.reason, runq);
        true
    }

    /// Returns what a wait on one CPU has of its first run, at offset `first` of the CPU's history, and of the holes at
    /// both ends.
    fn parts_at_the_ends(
        &self,
        waiter: TaskKey,
        stretch: Stretch,
        cpu: usize,
        first: usize,
    ) -> SummedParts {
        let history = &self.contention.cpus[cpu];
        let runs = &history.runs;
        let mut parts = SummedParts::default();
        let add_hole = |parts: &mut SummedParts, hole: Hole<'_>, time: Nanos| {
            if time > Nanos::ZERO {
                let coverage = self.contention.coverage;
                let holder = history.holder_of_hole(hole, stretch, coverage, waiter);
                parts.add(holder, time);
            }
        };
        let last_hole = Hole {
            before: runs.back(),
            after: None,
        };
        let Some(run) = runs.get(first) else {
            let wait = length(stretch.from, stretch.to);
            add_hole(&mut parts, last_hole, wait);
            return parts;
        };
        let end = runs.back().map_or(run.end, |last| last.end);
        add_hole(&mut parts, last_hole, length(end, stretch.to));
        let first_hole = Hole {
            before: first.checked_sub(1).map(|before| &runs[before]),
            after: Some(run),
        };
        add_hole(&mut parts, first_hole, length(stretch.from, run.start));
        let covered = length(run.start.max(stretch.from), run.end);
        run.give_to_holders(covered, Some(waiter), &mut |holder, time| {
            parts.add(holder, time);
        });
        parts
    }

    /// Takes the run that the history of this CPU has taken last.
    fn add_run(
        &mut self,
        row: &Switch,
        place: usize,
        cpu: usize,
        place_of: &impl Fn(TaskKey) -> usize,
    ) {
        let history = &self.contention.cpus[cpu];
        let sums = &mut self.cpus[cpu];
        let Some(run) = history.runs.back().filter(|_| sums.window > 0) else {
            return;
        };
        let before = history
            .runs
            .len()
            .checked_sub(2)
            .map(|place| &history.runs[place]);
        if let Some(before) = before.filter(|before| before.end < run.start) {
            let hole = Hole {
                before: Some(before),
                after: Some(run),
            };
            // For a wait of any task that covers all of the hole.
            let stretch = Stretch {
                cpu: row.cpu,
                from: before.end,
                to: run.start,
                ends_in_run: true,
            };
            let coverage = self.contention.coverage;
            let holder = history.holder_of_hole(hole, stretch, coverage, TaskKey::IDLE);
            sums.times.add(holder, length(before.end, run.start));
            if let (Holder::Unaccounted, Some(named)) = (holder, before.next) {
                let named = &mut self.tasks[place_of(named)];
                named.hole_after_naming = named.hole_after_naming.max(run.start);
            }
        }
        // A row that came too late gives a run that ends before it begins.
        let begin = run.start.min(run.end);
        if before.is_some_and(|before| begin < before.end) {
            sums.orderly_from = sums.next_run();
        }
        let task = &mut self.tasks[place];
        task.last_end = task.last_end.max(row.ts);
        sums.add_run(run, place, task.group, &mut self.totals);
    }
}

/// Adds a wait that was divided run by run; returns the number of its parts.
fn add_divided(
    tasks: &mut [TaskSums],
    totals: &mut HolderTotals,
    wait: Contended<'_>,
    place_of: &impl Fn(TaskKey) -> usize,
) -> usize {
    let group = tasks[place_of(wait.task)].group;
    let number = totals.waits + 1;
    let mut parts = SummedParts::default();
    let mut count = 0;
    wait.for_each_part(|holder, time| {
        count += 1;
        let Holder::Task(task) = holder else {
            parts.add(holder, time);
            return;
        };
        let place = place_of(task);
        let (task, held) = (&mut tasks[place], &mut totals.tasks[place]);
        parts.add_task(task.group == group, time);
        held.time += time;
        held.waits += u64::from(task.last_wait != number);
        task.last_wait = number;
    });
    parts.add_to(totals, wait.reason, wait.runq);
    count
}

/// The parts of one wait, by holder; tasks are summed up.
#[derive(Clone, Copy, Debug, Default)]
struct SummedParts {
    own: Nanos,
    others: Nanos,
    /// Time of the first task that was added by [`Self::add`].
    first_task: Nanos,
    rest: [Nanos; Holder::OTHERS.len()],
}

impl SummedParts {
    fn add(&mut self, holder: Holder, time: Nanos) {
        match place_of_other(holder) {
            Some(place) => self.rest[place] += time,
            None => self.first_task += time,
        }
    }

    fn add_task(&mut self, is_own: bool, time: Nanos) {
        match is_own {
            true => self.own += time,
            false => self.others += time,
        }
    }

    fn add_to(self, totals: &mut HolderTotals, reason: Option<Reason>, runq: Nanos) {
        totals.waits += 1;
        totals.runq += runq;
        let split = &mut totals.splits[reason.unwrap_or(Reason::Unknown).index()];
        split.own += self.own;
        split.others += self.others;
        for (sum, time) in totals.others.iter_mut().zip(self.rest) {
            split.rest += time;
            sum.time += time;
            sum.waits += u64::from(time > Nanos::ZERO);
        }
    }
}

#[cfg(test)]
mod tests;
