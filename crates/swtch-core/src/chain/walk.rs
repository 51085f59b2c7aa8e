//! One way along a chain, from the end of a wait back to its begin.

use super::life::{ChainTask, length};
use super::{Meanwhile, Parts, SHORTEST_NS, Spent};
use crate::units::Nanos;

/// A stretch of a task's life for which others waited.
#[derive(Clone, Copy, Debug)]
pub(super) struct AwaitedStretch {
    pub(super) task: usize,
    pub(super) from: u64,
    pub(super) to: u64,
}

/// One way along a chain.
pub(super) struct ChainWalk<'a> {
    tasks: &'a [ChainTask],
    /// Priority of the task that waits.
    prio: i16,
    /// True if no further row comes.
    is_over: bool,
    sum: Meanwhile,
    pub(super) stretches: Vec<AwaitedStretch>,
    /// Looks that may be taken, at most.
    most: u32,
    /// Looks that may still be taken.
    left: u32,
    /// Looks at priorities, of which there may be as many.
    compared: u32,
}

impl<'a> ChainWalk<'a> {
    /// `stretches` is a list to use again.
    pub(super) fn new(
        tasks: &'a [ChainTask],
        prio: i16,
        is_over: bool,
        most: u32,
        mut stretches: Vec<AwaitedStretch>,
    ) -> Self {
        stretches.clear();
        Self {
            tasks,
            prio,
            is_over,
            sum: Meanwhile::default(),
            stretches,
            most,
            left: most,
            compared: 0,
        }
    }

    /// Looks that were taken.
    pub(super) const fn looks(&self) -> u32 {
        self.most - self.left + self.compared
    }

    /// Returns what was found of a wait of this length; what is missing of it is untold.
    pub(super) fn sum(&self, length: Nanos) -> Meanwhile {
        let mut sum = self.sum;
        sum.parts[Spent::Untold as usize] = Nanos::ZERO;
        sum.parts[Spent::Untold as usize] = length.saturating_sub(sum.whole());
        sum
    }

    /// Adds what a task did from then to then. The error is the task of which a row is missing.
    pub(super) fn along(
        &mut self,
        task: usize,
        (from, to): (u64, u64),
        hops: u32,
    ) -> Result<(), usize> {
        let known = &self.tasks[task];
        if !self.is_over && known.end().is_none_or(|end| end < to) {
            return Err(task);
        }
        if self.left == 0 {
            return Ok(());
        }
        self.left -= 1;
        self.stretches.push(AwaitedStretch { task, from, to });
        if known.was_below(self.prio) {
            self.add_inverted(known, (from, to));
        }
        let mut place = known.before(to, known.steps().len());
        while place > 0 && self.left > 0 {
            place -= 1;
            let step = &known.steps()[place];
            if step.end <= from {
                break;
            }
            if step.out >= from && step.end <= to && known.is_settled(place) {
                let first = known.before(from, place);
                self.add(known.sum(first, place));
                place = first;
            } else {
                self.left -= 1;
                self.add_part(known, place, (from, to), hops)?;
            }
        }
        Ok(())
    }

    /// Adds what a step was from then to then.
    fn add_part(
        &mut self,
        known: &ChainTask,
        place: usize,
        (from, to): (u64, u64),
        hops: u32,
    ) -> Result<(), usize> {
        let step = &known.steps()[place];
        let within = |begin: u64, end: u64| (begin.max(from), end.min(to));
        self.give(Spent::Ran, within(step.start, step.end));
        self.give(step.queued, within(step.woken, step.start));
        let (from, to) = within(step.out, step.woken);
        let is_whole = (from, to) == (step.out, step.woken);
        if let Some(parts) = known.wait_at(place).filter(|_| is_whole) {
            self.add(parts);
            return Ok(());
        }
        match step.followed() {
            Some(third) if hops > 0 && to.saturating_sub(from) >= SHORTEST_NS => {
                self.along(third, (from, to), hops - 1)?;
            }
            _ => self.give(step.blocked, (from, to)),
        }
        Ok(())
    }

    /// Adds the time for which the task had no CPU and a lower priority.
    fn add_inverted(&mut self, known: &ChainTask, (from, to): (u64, u64)) {
        for step in known.steps().range(known.within((from, to))).rev() {
            if self.compared >= self.most {
                return;
            }
            self.compared += 1;
            self.sum.inverted += step.inverted(self.prio, (from, to));
        }
    }

    fn add(&mut self, parts: Parts) {
        let inverted = Nanos::ZERO;
        self.sum.add(&Meanwhile { parts, inverted });
    }

    fn give(&mut self, spent: Spent, (from, to): (u64, u64)) {
        self.sum.parts[spent as usize] += length(from, to);
    }
}
