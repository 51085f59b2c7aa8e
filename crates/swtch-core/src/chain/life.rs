//! The life of one task: its waits and runs in order, and sums along them.

use std::collections::VecDeque;

use super::counted::CountedTime;
use super::walk::AwaitedStretch;
use super::{AskedWait, EndedBy, FEWEST_STEPS, Parts, SHORTEST_NS, Spent};
use crate::lost::Ender;
use crate::reason::Reason;
use crate::switch::{Open, Switch};
use crate::units::Nanos;

/// One wait and the run after it; moments are in ns on the trace clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct ChainStep {
    pub(super) out: u64,
    pub(super) woken: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    /// The task of the program that ended the wait.
    by: Option<u32>,
    pub(super) prio: i16,
    pub(super) blocked: Spent,
    pub(super) queued: Spent,
    /// True if it is known what the wait was for: not before a wait for another task is divided.
    is_known: bool,
    /// The parts of the step, as far as known; once the task is settled up to it, those of all steps up to this one.
    sum: Parts,
}

impl ChainStep {
    pub(super) fn of(row: &Switch, ended: EndedBy) -> Self {
        // If the length of the run is not known, it is not known either when the wait was.
        let is_placed = row.ran.is_some();
        let placed = |time: Option<Nanos>| match time {
            Some(time) if is_placed => time.as_ns(),
            _ => 0,
        };
        let end = row.ts.as_ns();
        let start = end.saturating_sub(placed(row.ran));
        let woken = start.saturating_sub(placed(row.wait.runq));
        let reason = row.wait.reason.unwrap_or(Reason::Unknown);
        Self {
            by: ended.own.and_then(|task| u32::try_from(task).ok()),
            prio: row.evidence.prio,
            blocked: match row.wait.runq {
                Some(_) => Spent::blocked(reason, ended.ender),
                None => Spent::Untold,
            },
            queued: Spent::queued(reason),
            ..Self::blank([
                start.saturating_sub(placed(row.wait.length())),
                woken,
                start,
                end,
            ])
        }
    }

    pub(super) fn of_open(open: &Open) -> Self {
        let out = open.since.as_ns();
        let end = open.end().as_ns();
        let runq = open.runq.unwrap_or(Nanos::ZERO).as_ns();
        let reason = open.reason.unwrap_or(Reason::Unknown);
        let (woken, start) = match open.reason {
            Some(_) => (end.saturating_sub(runq), end),
            None => (out, out),
        };
        Self {
            // Nobody is above it: its priority is not told.
            prio: i16::MIN,
            blocked: Spent::blocked(reason, Ender::Unseen),
            queued: Spent::queued(reason),
            ..Self::blank([out, woken, start, end])
        }
    }

    fn blank([out, woken, start, end]: [u64; 4]) -> Self {
        Self {
            out,
            woken,
            start,
            end,
            by: None,
            prio: 0,
            blocked: Spent::Untold,
            queued: Spent::NoCpu,
            is_known: false,
            sum: Parts::default(),
        }
    }

    /// The task that is looked up to know what the wait was for, if it is worth that.
    pub(super) fn followed(&self) -> Option<usize> {
        let by = self
            .by
            .filter(|_| self.woken.saturating_sub(self.out) >= SHORTEST_NS)?;
        usize::try_from(by).ok()
    }

    /// Puts it after the task's steps up to then, and its moments in order. A wait that began before the end of those
    /// contradicts them: what it was for is not told.
    fn put_after(&mut self, end: u64) {
        if self.out < end {
            self.by = None;
            self.blocked = Spent::Untold;
        }
        let mut least = end;
        for moment in [
            &mut self.out,
            &mut self.woken,
            &mut self.start,
            &mut self.end,
        ] {
            *moment = least.max(*moment);
            least = *moment;
        }
        self.is_known = self.followed().is_none();
        self.sum = self.after_the_wait();
        if self.is_known {
            self.sum[self.blocked as usize] += length(self.out, self.woken);
        }
    }

    /// Returns the parts of the step from when the task was woken.
    fn after_the_wait(&self) -> Parts {
        let mut parts = Parts::default();
        parts[Spent::Ran as usize] += length(self.start, self.end);
        parts[self.queued as usize] += length(self.woken, self.start);
        parts
    }

    /// Returns how long in that time it had no CPU and a lower priority than the task that waits.
    pub(super) fn inverted(&self, prio: i16, (from, to): (u64, u64)) -> Nanos {
        match prio < self.prio && self.queued == Spent::NoCpu {
            true => length(self.woken.max(from), self.start.min(to)),
            false => Nanos::ZERO,
        }
    }
}

/// A task with its steps, and sums along them.
#[derive(Debug, Default)]
pub(super) struct ChainTask {
    steps: VecDeque<ChainStep>,
    /// Number of steps that are no longer in memory.
    dropped: usize,
    dropped_sum: Parts,
    /// Number of steps, from the first, of which it is known what they were for.
    settled: usize,
    /// The lowest priority (the highest number) of any step.
    lowest: Option<i16>,
    /// Waits that cannot be divided before the task's next row.
    pub(super) kept: Vec<AskedWait>,
    /// The time for which it ran while others waited for it with [`super::ServedAs::Turn`].
    pub(super) served_in_turn: Nanos,
    served: CountedTime,
    /// The time for which it had no CPU while a task of higher priority waited for it.
    pub(super) held_back: Nanos,
    held: CountedTime,
    /// The time for which it waited for one of lower priority that had no CPU.
    pub(super) inverted: Nanos,
    /// The time for which it waited for others that ran, with [`super::ServedAs::Turn`].
    pub(super) waited_in_turn: Nanos,
}

impl ChainTask {
    /// Takes its next step, of which `most` are remembered; returns the number of it, counted from the first.
    pub(super) fn push(&mut self, mut step: ChainStep, most: usize) -> usize {
        step.put_after(self.end().unwrap_or(0));
        self.lowest = self.lowest.max(Some(step.prio));
        if self.steps.len() >= most {
            self.forget_the_oldest();
        } else if self.steps.len() == self.steps.capacity() {
            let room = self.steps.len().max(FEWEST_STEPS);
            self.steps.reserve_exact(room.min(most - self.steps.len()));
        }
        self.steps.push_back(step);
        self.settle();
        self.dropped + self.steps.len() - 1
    }

    /// Up to when its life is known.
    pub(super) fn end(&self) -> Option<u64> {
        self.steps.back().map(|step| step.end)
    }

    /// Takes what a step's wait was for.
    pub(super) fn know(&mut self, step: usize, parts: &Parts) {
        let place = step.checked_sub(self.dropped);
        if let Some(step) = place.and_then(|place| self.steps.get_mut(place))
            && !step.is_known
        {
            step.is_known = true;
            add(&mut step.sum, parts);
            self.settle();
        }
    }

    /// The steps in memory.
    pub(super) const fn steps(&self) -> &VecDeque<ChainStep> {
        &self.steps
    }

    /// Number of steps in memory, of the first so many, that begin before that moment. It is mostly one of the last: so
    /// these are looked at first, in strides that double.
    pub(super) fn before(&self, moment: u64, of: usize) -> usize {
        let begins_before = |place: usize| self.steps[place].out < moment;
        let (mut high, mut stride) = (of, 1);
        let mut low = loop {
            match high.checked_sub(stride) {
                Some(place) if begins_before(place) => break place + 1,
                Some(place) => high = place,
                None => break 0,
            }
            stride *= 2;
        };
        while low < high {
            let middle = usize::midpoint(low, high);
            match begins_before(middle) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// Returns what the steps from the first place up to the last one were for; the task is settled up to there.
    pub(super) fn sum(&self, first: usize, last: usize) -> Parts {
        let mut sum = self.steps[last].sum;
        subtract(&mut sum, self.sum_before(first));
        sum
    }

    /// Returns what the wait of the step at this place was for, if that is known.
    pub(super) fn wait_at(&self, place: usize) -> Option<Parts> {
        let step = &self.steps[place];
        let mut parts = match self.is_settled(place) {
            true => self.sum(place, place),
            false if step.is_known => step.sum,
            false => return None,
        };
        subtract(&mut parts, &step.after_the_wait());
        Some(parts)
    }

    /// Returns true if it is known what the steps up to this place were for.
    pub(super) const fn is_settled(&self, place: usize) -> bool {
        self.dropped + place < self.settled
    }

    /// Returns true if it ever had a lower priority (a higher number) than this one.
    pub(super) fn was_below(&self, prio: i16) -> bool {
        self.lowest > Some(prio)
    }

    /// Counts the runs of a stretch in which another waited for it; `sink` gets those that are new.
    pub(super) fn count_served(
        &mut self,
        stretch: &AwaitedStretch,
        mut sink: impl FnMut(u64, u64),
    ) {
        for gap in self.served.add(stretch.from, stretch.to) {
            for step in self.steps.range(self.within(gap)) {
                let (from, to) = (step.start.max(gap.0), step.end.min(gap.1));
                if from < to {
                    self.served_in_turn += length(from, to);
                    sink(from, to);
                }
            }
        }
    }

    /// Counts the time without a CPU of a stretch in which a task of this priority waited for it.
    pub(super) fn count_held_back(&mut self, stretch: &AwaitedStretch, prio: i16) {
        for gap in self.held.add(stretch.from, stretch.to) {
            for step in self.steps.range(self.within(gap)) {
                self.held_back += step.inverted(prio, gap);
            }
        }
    }

    /// The places of the steps that have a part in that time.
    pub(super) fn within(&self, (from, to): (u64, u64)) -> std::ops::Range<usize> {
        let end = self.before(to, self.steps.len());
        // The step before the first that begins then may last until then.
        let first = self.before(from, end).saturating_sub(1);
        first..end
    }

    fn sum_before(&self, place: usize) -> &Parts {
        match place.checked_sub(1) {
            Some(before) => &self.steps[before].sum,
            None => &self.dropped_sum,
        }
    }

    fn forget_the_oldest(&mut self) {
        if let Some(oldest) = self.steps.pop_front() {
            if self.settled > self.dropped {
                self.dropped_sum = oldest.sum;
            }
            self.dropped += 1;
            self.settled = self.settled.max(self.dropped);
        }
    }

    /// Sums up the steps of which all is known by now.
    fn settle(&mut self) {
        let mut place = self.settled - self.dropped;
        while self.steps.get(place).is_some_and(|step| step.is_known) {
            let before = *self.sum_before(place);
            add(&mut self.steps[place].sum, &before);
            place += 1;
        }
        self.settled = self.dropped + place;
    }
}

fn add(sum: &mut Parts, more: &Parts) {
    for (part, more) in sum.iter_mut().zip(more) {
        *part += *more;
    }
}

fn subtract(sum: &mut Parts, less: &Parts) {
    for (part, less) in sum.iter_mut().zip(less) {
        *part = part.saturating_sub(*less);
    }
}

/// The time from then to then; none if that is not later.
pub(super) const fn length(from: u64, to: u64) -> Nanos {
    Nanos::from_ns(to.saturating_sub(from))
}
