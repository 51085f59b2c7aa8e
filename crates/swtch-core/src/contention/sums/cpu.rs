//! The runs of one CPU, and sums over any part of them.

use std::collections::VecDeque;
use std::num::Wrapping;

use super::super::{CpuHistory, CpuRun, Holder, Stretch, length};
use super::{FIRST_WINDOW, HolderTotals, SPANNED_AT_FIRST, SummedParts, place_of_other};
use crate::units::Nanos;

/// The sums of one CPU. Runs are numbered from 0.
#[derive(Debug)]
pub struct CpuSums {
    /// Number of the first run of the window.
    pub first: usize,
    /// The window: the last runs of the CPU's history.
    pub runs: VecDeque<RunSums>,
    /// Runs in the window at most.
    pub window: usize,
    /// Number of runs that divided waits may still span before the window grows.
    pub may_span: usize,
    /// Number of the last run that is not all after the run before it. A wait that reaches
    /// back beyond it is divided run by run.
    pub orderly_from: usize,
    /// Times up to the last run.
    pub times: RunTimes,
    /// Time of tasks up to the last run that left the window.
    pub dropped_tasks: Wrapping<u64>,
    pub groups: Vec<GroupTimes>,
    /// Number of the last run of the task at each place, while it is in the window: 16 bytes for each
    /// task on each CPU.
    pub last_run: Vec<Option<usize>>,
    /// For each run, the number of waits of which it is the first inner run.
    pub starts: RunCounts,
    /// Number of waits with inner runs so far.
    pub waits: u64,
    /// Number of the waits with inner runs whose first inner run has left the window.
    pub dropped_starts: u64,
}

/// A run, as it is kept.
#[derive(Clone, Copy, Debug)]
pub struct RunSums {
    /// Place of the row's task, which had the CPU unless that is not known.
    pub place: u32,
    pub group: u32,
    /// [`CpuSums::waits`] when the run was added.
    pub waits: u64,
    /// Times of all runs up to this one, and of the holes between them.
    pub times: RunTimes,
}

/// Sums of times from the first run on. They may wrap, because runs of damaged traces overlap: only
/// differences between runs that follow each other in order are used.
#[derive(Clone, Copy, Debug, Default)]
pub struct RunTimes {
    pub tasks: Wrapping<u64>,
    pub rest: [Wrapping<u64>; Holder::OTHERS.len()],
}

impl RunTimes {
    pub fn add(&mut self, holder: Holder, time: Nanos) {
        let sum = match place_of_other(holder) {
            Some(place) => &mut self.rest[place],
            None => &mut self.tasks,
        };
        *sum += time.as_ns();
    }
}

/// Places and groups fit 32 bits: a trace with so many tasks does not fit memory.
pub fn narrow(place: usize) -> u32 {
    u32::try_from(place).expect("fewer than 2³² tasks")
}

pub fn widen(place: u32) -> usize {
    usize::try_from(place).expect("an address has 32 bits at least")
}

pub fn since(now: Wrapping<u64>, then: Wrapping<u64>) -> Nanos {
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
    pub fn next_run(&self) -> usize {
        self.first + self.runs.len()
    }

    /// Returns true if a run must leave the window before the next one comes.
    pub fn is_full(&self, most: usize) -> bool {
        self.runs.len() >= self.window.min(most)
    }

    /// Offset in the CPU's history of the first run that a wait spans, and the number of runs there if
    /// it spans none. `None` if the wait must be divided: runs overlap, or it reaches back beyond the
    /// window, or does not end after the last run.
    pub fn first_spanned(&self, history: &CpuHistory, wait: Stretch) -> Option<usize> {
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
    pub fn count_divided(&mut self, parts: usize) {
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
    pub fn add_wait(
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
    pub fn add_run(&mut self, run: &CpuRun, place: usize, group: usize, totals: &mut HolderTotals) {
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
    pub fn waits_over(&self, number: usize) -> u64 {
        let ended_since = self.waits - self.runs[number - self.first].waits;
        match ended_since {
            0 => 0,
            _ => ended_since - self.starts.after(number),
        }
    }

    /// Drops the first run from the window, and counts what the waits that span it had of it.
    pub fn forget_first(&mut self, totals: &mut HolderTotals) {
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
pub struct GroupTimes {
    /// The group's runs in the window: number of the run, and time up to it.
    pub runs: VecDeque<(usize, Wrapping<u64>)>,
    dropped: Wrapping<u64>,
}

impl GroupTimes {
    pub fn total(&self) -> Wrapping<u64> {
        self.runs.back().map_or(self.dropped, |run| run.1)
    }

    pub fn add(&mut self, number: usize, time: Nanos) {
        let total = self.total() + Wrapping(time.as_ns());
        self.runs.push_back((number, total));
    }

    /// Time of the runs after the run with this number.
    pub fn since(&self, number: usize) -> Nanos {
        let is_before = |offset: usize| self.runs[offset].0 <= number;
        let first = first_without(is_before, 0, self.runs.len());
        let before = first.checked_sub(1).map(|last| self.runs[last].1);
        since(self.total(), before.unwrap_or(self.dropped))
    }

    pub fn forget_first(&mut self) {
        if let Some((_, total)) = self.runs.pop_front() {
            self.dropped = total;
        }
    }
}

/// The first place from `begin` to `end` for which `holds` is false, and `end` if there is none; it
/// holds for no place after that one. The search begins at the end: most waits are short.
pub fn first_without(holds: impl Fn(usize) -> bool, begin: usize, end: usize) -> usize {
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
pub struct RunCounts {
    /// Number of the first run.
    pub first: usize,
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
    pub fn push(&mut self) {
        for (level, counts) in self.levels.iter_mut().enumerate() {
            let bits = level * Self::BLOCK_BITS;
            if counts.len() == (self.next >> bits) - (self.first >> bits) {
                counts.push_back(0);
            }
        }
        self.next += 1;
    }

    /// Removes the first run, and returns its count.
    pub fn pop(&mut self) -> u64 {
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

    pub fn add_one(&mut self, run: usize) {
        for (level, counts) in self.levels.iter_mut().enumerate() {
            let bits = level * Self::BLOCK_BITS;
            counts[(run >> bits) - (self.first >> bits)] += 1;
        }
    }

    /// The sum of the counts after a run.
    pub fn after(&self, run: usize) -> u64 {
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
