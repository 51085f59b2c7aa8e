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

use std::collections::VecDeque;
use std::num::Wrapping;

use super::{Contended, Contention, CpuHistory, CpuRun, Holder, Hole, Stretch, length};
use crate::ids::TaskKey;
use crate::reason::Reason;
use crate::switch::Switch;
use crate::units::{Nanos, Timestamp};

/// Runs in the window of a CPU when it has grown for the first time: 4 kB.
const FIRST_WINDOW: usize = 64;

/// For each run of a CPU, waits that reach beyond its window may span this many runs before the
/// window grows.
const SPANNED_PER_RUN: usize = 8;

/// Waits may span so many runs more before the window grows.
const SPANNED_AT_FIRST: usize = 2048;

/// What a holder of CPUs had of the waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldWaits {
    /// How long it had the CPU while others were runnable.
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

/// What was summed up.
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

    /// What each task had, by its place.
    pub fn tasks(&self) -> &[HeldWaits] {
        &self.tasks
    }

    /// What a holder that is not a task had.
    pub fn other(&self, holder: Holder) -> HeldWaits {
        place_of_other(holder).map_or_else(HeldWaits::default, |place| self.others[place])
    }

    /// Which holders had the CPU during the waits for a reason.
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

/// What is known of the task at one place.
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
        let (Some(runq), Some(ran)) = (row.wait.runq, row.ran) else {
            return true;
        };
        if runq == Nanos::ZERO {
            return true;
        }
        if self.cpus[cpu].window == 0 {
            return false;
        }
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

    /// What a wait on one CPU has of its first run, at offset `first` of the CPU's history, and of the
    /// holes at both ends.
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

/// What one wait has of its holders; tasks are summed up.
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

/// The sums of one CPU. Runs are numbered from 0.
#[derive(Debug)]
struct CpuSums {
    /// Number of the first run of the window.
    first: usize,
    /// The window: the last runs of the CPU's history.
    runs: VecDeque<RunSums>,
    /// Runs in the window at most.
    window: usize,
    /// Number of runs that divided waits may still span before the window grows.
    may_span: usize,
    /// Number of the last run that is not all after the run before it. A wait that reaches
    /// back beyond it is divided run by run.
    orderly_from: usize,
    /// Times up to the last run.
    times: RunTimes,
    /// Time of tasks up to the last run that left the window.
    dropped_tasks: Wrapping<u64>,
    groups: Vec<GroupTimes>,
    /// Number of the last run of the task at each place, while it is in the window: 16 bytes for each
    /// task on each CPU.
    last_run: Vec<Option<usize>>,
    /// For each run, the number of waits of which it is the first inner run.
    starts: RunCounts,
    /// Number of waits with inner runs so far.
    waits: u64,
    /// Of these, waits whose first inner run has left the window.
    dropped_starts: u64,
}

/// What is kept of a run.
#[derive(Clone, Copy, Debug)]
struct RunSums {
    /// Place of the row's task, which had the CPU unless that is not known.
    place: u32,
    group: u32,
    /// [`CpuSums::waits`] when the run was added.
    waits: u64,
    /// Times of all runs up to this one, and of the holes between them.
    times: RunTimes,
}

/// Sums of times from the first run on. They may wrap, because runs of damaged traces overlap: only
/// differences between runs that follow each other in order are used.
#[derive(Clone, Copy, Debug, Default)]
struct RunTimes {
    tasks: Wrapping<u64>,
    rest: [Wrapping<u64>; Holder::OTHERS.len()],
}

impl RunTimes {
    fn add(&mut self, holder: Holder, time: Nanos) {
        let sum = match place_of_other(holder) {
            Some(place) => &mut self.rest[place],
            None => &mut self.tasks,
        };
        *sum += time.as_ns();
    }
}

/// Places and groups fit 32 bits: a trace with so many tasks does not fit memory.
fn narrow(place: usize) -> u32 {
    u32::try_from(place).expect("fewer than 2³² tasks")
}

fn widen(place: u32) -> usize {
    usize::try_from(place).expect("an address has 32 bits at least")
}

fn since(now: Wrapping<u64>, then: Wrapping<u64>) -> Nanos {
    Nanos::from_ns((now - then).0)
}

impl Default for CpuSums {
    fn default() -> Self {
        Self {
            first: 0,
            runs: VecDeque::new(),
            window: 0,
            may_span: SPANNED_AT_FIRST,
            orderly_from: 0,
            times: RunTimes::default(),
            dropped_tasks: Wrapping(0),
            groups: Vec::new(),
            last_run: Vec::new(),
            starts: RunCounts::default(),
            waits: 0,
            dropped_starts: 0,
        }
    }
}

impl CpuSums {
    /// Number of the run that comes next.
    fn next_run(&self) -> usize {
        self.first + self.runs.len()
    }

    /// Whether a run must leave the window before the next one comes.
    fn is_full(&self, most: usize) -> bool {
        self.runs.len() >= self.window.min(most)
    }

    /// Offset in the CPU's history of the first run that a wait spans, and the number of runs there if
    /// it spans none. `None` if the wait must be divided: runs overlap, or it reaches back beyond the
    /// window, or does not end after the last run.
    fn first_spanned(&self, history: &CpuHistory, wait: Stretch) -> Option<usize> {
        let runs = &history.runs;
        let Some(last) = runs.back() else {
            return Some(0);
        };
        if wait.from >= wait.to || last.end > wait.to {
            return None;
        }
        let window = runs.len() - self.runs.len();
        let orderly = window + self.orderly_from.saturating_sub(self.first);
        let ended_before = |offset: usize| runs[offset].end <= wait.from;
        let first = first_without(ended_before, orderly, runs.len());
        let earliest = runs.get(first).filter(|_| first == orderly);
        let is_odd = earliest.is_some_and(|run| {
            let reaches_beyond = orderly > 0 && run.start > wait.from;
            reaches_beyond || run.end < run.start
        });
        (!is_odd).then_some(first)
    }

    /// Counts a wait of so many parts that was divided, and lets the window grow when there are too
    /// many.
    fn count_divided(&mut self, parts: usize) {
        let is_filled = self.runs.len() >= self.window;
        if parts <= self.may_span || !is_filled {
            self.may_span = self.may_span.saturating_sub(parts);
            return;
        }
        self.window = (2 * self.window).max(FIRST_WINDOW);
        self.may_span = SPANNED_AT_FIRST;
    }

    /// Adds a wait of a task of `group`. The run with number `first` is covered as `parts` says, all
    /// later ones whole.
    fn add_wait(
        &mut self,
        first: usize,
        group: usize,
        parts: &mut SummedParts,
        totals: &mut HolderTotals,
    ) {
        let Some(run) = self.runs.get(first - self.first) else {
            return;
        };
        if parts.first_task > Nanos::ZERO {
            let place = widen(run.place);
            let held = &mut totals.tasks[place];
            held.time += parts.first_task;
            // Where the task had a later run, that run stands for it.
            let ran_later = self.last_run.get(place).copied().flatten();
            let ran_later = ran_later.is_some_and(|last| last > first);
            held.waits += u64::from(!ran_later);
            parts.add_task(widen(run.group) == group, parts.first_task);
        }
        if first + 1 == self.next_run() {
            return;
        }
        self.waits += 1;
        self.starts.add_one(first + 1);
        let tasks = since(self.times.tasks, run.times.tasks);
        let of_group = self.groups.get(group);
        let own = of_group.map_or(Nanos::ZERO, |times| times.since(first));
        parts.add_task(true, own);
        parts.add_task(false, tasks.saturating_sub(own));
        let rest = self.times.rest.iter().zip(run.times.rest);
        for (sum, (now, then)) in parts.rest.iter_mut().zip(rest) {
            *sum += since(*now, then);
        }
    }

    /// Adds the next run, of the task at this place.
    fn add_run(&mut self, run: &CpuRun, place: usize, group: usize, totals: &mut HolderTotals) {
        let number = self.next_run();
        let before = self.times.tasks;
        run.give_to_holders(length(run.start, run.end), None, &mut |holder, time| {
            self.times.add(holder, time);
        });
        let held = since(self.times.tasks, before);
        if held > Nanos::ZERO {
            if place >= self.last_run.len() {
                self.last_run.resize(place + 1, None);
            }
            if let Some(earlier) = self.last_run[place].replace(number) {
                totals.tasks[place].waits += self.waits_over(earlier);
            }
            if group >= self.groups.len() {
                self.groups.resize_with(group + 1, GroupTimes::default);
            }
            self.groups[group].add(number, held);
        }
        self.starts.push();
        self.runs.push_back(RunSums {
            place: narrow(place),
            group: narrow(group),
            waits: self.waits,
            times: self.times,
        });
    }

    /// Number of waits so far that have this run as an inner one: they have ended since it, and have
    /// not begun after it.
    fn waits_over(&self, number: usize) -> u64 {
        let ended_since = self.waits - self.runs[number - self.first].waits;
        match ended_since {
            0 => 0,
            _ => ended_since - self.starts.after(number),
        }
    }

    /// Drops the first run from the window, and counts what the waits that span it had of it.
    fn forget_first(&mut self, totals: &mut HolderTotals) {
        let Some(run) = self.runs.pop_front() else {
            return;
        };
        self.dropped_starts += self.starts.pop();
        let waits = self.dropped_starts - run.waits;
        let time = since(run.times.tasks, self.dropped_tasks);
        self.dropped_tasks = run.times.tasks;
        if time > Nanos::ZERO {
            let place = widen(run.place);
            let held = &mut totals.tasks[place];
            let all = time.as_ns().saturating_mul(waits);
            held.time += Nanos::from_ns(all);
            if self.last_run[place] == Some(self.first) {
                self.last_run[place] = None;
                held.waits += waits;
            }
            self.groups[widen(run.group)].forget_first();
        }
        self.first += 1;
    }
}

/// Time of the tasks of one group on one CPU.
#[derive(Debug, Default)]
struct GroupTimes {
    /// The group's runs in the window: number of the run, and time up to it.
    runs: VecDeque<(usize, Wrapping<u64>)>,
    dropped: Wrapping<u64>,
}

impl GroupTimes {
    fn total(&self) -> Wrapping<u64> {
        self.runs.back().map_or(self.dropped, |run| run.1)
    }

    fn add(&mut self, number: usize, time: Nanos) {
        let total = self.total() + Wrapping(time.as_ns());
        self.runs.push_back((number, total));
    }

    /// Time of the runs after the run with this number.
    fn since(&self, number: usize) -> Nanos {
        let is_before = |offset: usize| self.runs[offset].0 <= number;
        let first = first_without(is_before, 0, self.runs.len());
        let before = first.checked_sub(1).map(|last| self.runs[last].1);
        since(self.total(), before.unwrap_or(self.dropped))
    }

    fn forget_first(&mut self) {
        if let Some((_, total)) = self.runs.pop_front() {
            self.dropped = total;
        }
    }
}

/// The first place from `begin` to `end` for which `holds` is false, and `end` if there is none; it
/// holds for no place after that one. The search begins at the end: most waits are short.
fn first_without(holds: impl Fn(usize) -> bool, begin: usize, end: usize) -> usize {
    let (mut low, mut high, mut step) = (begin, end, 1);
    while high > begin {
        let probe = high.saturating_sub(step).max(begin);
        if holds(probe) {
            low = probe + 1;
            break;
        }
        high = probe;
        step *= 2;
    }
    while low < high {
        let middle = low + (high - low) / 2;
        match holds(middle) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    high
}

/// A count for each run in the window, and the sum of those after a run.
///
/// Sums of blocks of 64 counts, of 64 of these blocks, and so on, make that a matter of a few
/// hundred additions at most, and of one block in most cases.
#[derive(Debug, Default)]
struct RunCounts {
    /// Number of the first run.
    first: usize,
    /// Number of the next run.
    next: usize,
    /// Counts of runs, then of blocks, then of blocks of blocks: each begins with what holds the
    /// first run.
    levels: [VecDeque<u32>; Self::LEVELS],
}

impl RunCounts {
    /// Enough for all runs that fit memory: the last level has one count for 262,144 of them.
    const LEVELS: usize = 4;

    /// Each block holds two to the power of this many counts.
    const BLOCK_BITS: usize = 6;

    /// Adds a run with the count 0.
    fn push(&mut self) {
        for (level, counts) in self.levels.iter_mut().enumerate() {
            let bits = level * Self::BLOCK_BITS;
            if counts.len() == (self.next >> bits) - (self.first >> bits) {
                counts.push_back(0);
            }
        }
        self.next += 1;
    }

    /// Removes the first run, and returns its count.
    fn pop(&mut self) -> u64 {
        let count = self.levels[0].front().copied().unwrap_or_default();
        for (level, counts) in self.levels.iter_mut().enumerate() {
            let bits = level * Self::BLOCK_BITS;
            if self.first >> bits != (self.first + 1) >> bits {
                counts.pop_front();
            } else if let Some(block) = counts.front_mut() {
                *block -= count;
            }
        }
        self.first += 1;
        u64::from(count)
    }

    fn add_one(&mut self, run: usize) {
        for (level, counts) in self.levels.iter_mut().enumerate() {
            let bits = level * Self::BLOCK_BITS;
            counts[(run >> bits) - (self.first >> bits)] += 1;
        }
    }

    /// The sum of the counts after a run.
    fn after(&self, run: usize) -> u64 {
        let mut from = run + 1;
        let mut sum = 0;
        for (level, counts) in self.levels.iter().enumerate() {
            let offset = from - (self.first >> (level * Self::BLOCK_BITS));
            // The rest of the block; the blocks after it are counted one level up.
            let rest = from.next_multiple_of(1 << Self::BLOCK_BITS) - from;
            let is_last = level + 1 == Self::LEVELS;
            let to = if is_last {
                counts.len()
            } else {
                (offset + rest).min(counts.len())
            };
            sum += counts
                .range(offset.min(to)..to)
                .map(|count| u64::from(*count))
                .sum::<u64>();
            from = (from + rest) >> Self::BLOCK_BITS;
        }
        sum
    }
}

#[cfg(test)]
mod tests;
