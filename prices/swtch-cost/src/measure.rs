//! Measures a menu: every group in fresh process trees, one tree of each group after the other, so
//! that a change of the machine's speed affects all of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use swtch_bench::cost::{Ended, Tree};
use swtch_output::progress::ProgressLine;

use super::machine::MachineCounters;
use super::menu::{ArmGroup, Menu};

/// A group and the trees that were measured of it.
#[derive(Debug)]
pub struct MeasuredGroup {
    /// The group, as the menu has it.
    pub group: ArmGroup,
    /// One for each run of its processes.
    pub trees: Vec<Tree>,
}

/// The measurements of all groups.
#[derive(Debug)]
pub struct Measurements {
    /// The groups, in the order of the menu; without those that have too few trees.
    pub measured: Vec<MeasuredGroup>,
    /// Names of groups that were not finished.
    pub unfinished: Vec<String>,
    /// Wall time of the whole session.
    pub took: Duration,
    /// The counters of what else happened on the machine during the session.
    pub counters: MachineCounters,
}

/// Measures all groups, or keeps what is done when `stop` is set. A group that `is_resolved` does
/// not accept after its trees gets as many again, as long as `budget` lasts: a busy host takes
/// longer.
///
/// # Errors
///
/// A process cannot be started, or one that measures failed.
pub fn measure(
    menu: &Menu,
    budget: Duration,
    stop: &AtomicBool,
    is_resolved: impl Fn(&MeasuredGroup) -> bool,
) -> Result<Measurements> {
    let start = Instant::now();
    let before = MachineCounters::read(menu.cpu);
    let mut field = Field::new(menu, stop);
    field.run_all(|_| true, None)?;
    field.run_all(|measured| !is_resolved(measured), Some(start + budget))?;
    field.progress.line.clear();
    let least = match stop.load(Ordering::Relaxed) {
        true => LEAST_TREES_WHEN_STOPPED,
        false => LEAST_TREES,
    };
    let is_whole =
        |measured: &MeasuredGroup| measured.trees.len() >= least.min(measured.group.trees);
    let (measured, unfinished): (Vec<_>, Vec<_>) = field.measured.into_iter().partition(is_whole);
    Ok(Measurements {
        measured,
        unfinished: unfinished.into_iter().map(|one| one.group.name).collect(),
        took: start.elapsed(),
        counters: MachineCounters::read(menu.cpu).since(before),
    })
}

/// The state of a session, with what it has measured so far.
struct Field<'a> {
    cpu: u32,
    seed: u64,
    stop: &'a AtomicBool,
    progress: MeasureProgress,
    measured: Vec<MeasuredGroup>,
}

impl<'a> Field<'a> {
    fn new(menu: &Menu, stop: &'a AtomicBool) -> Self {
        let bare = |group: &ArmGroup| MeasuredGroup {
            group: group.clone(),
            trees: Vec::new(),
        };
        Self {
            cpu: menu.cpu,
            seed: menu.seed,
            stop,
            progress: MeasureProgress::new(menu),
            measured: menu.groups.iter().map(bare).collect(),
        }
    }

    /// Measures the planned number of trees of each group that is wanted; begins none after `end`.
    fn run_all(
        &mut self,
        is_wanted: impl Fn(&MeasuredGroup) -> bool,
        end: Option<Instant>,
    ) -> Result<()> {
        let wanted: Vec<usize> = (0..self.measured.len())
            .filter(|index| is_wanted(&self.measured[*index]))
            .collect();
        let trees = |index: &usize| self.measured[*index].group.trees;
        let most = wanted.iter().map(trees).max().unwrap_or_default();
        for number in 0..most {
            for index in &wanted {
                let is_late = end.is_some_and(|end| Instant::now() > end);
                if number < self.measured[*index].group.trees && !is_late {
                    self.grow(*index)?;
                }
            }
        }
        Ok(())
    }

    fn grow(&mut self, index: usize) -> Result<()> {
        if self.stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        let measured = &mut self.measured[index];
        self.progress.show(&measured.group);
        // Every tree of every session has another order: an order that happens to favour an arm
        // must not recur.
        let number = u64::try_from(measured.trees.len()).unwrap_or_default();
        let seed = self.seed.wrapping_add(number);
        let plan = measured.group.plan(self.cpu);
        let tree = plan
            .time(seed, self.stop, |_| {})
            .with_context(|| format!("measuring {}", measured.group.name))?;
        self.progress.done(&measured.group);
        if tree.ended != Ended::Stopped {
            measured.trees.push(tree);
        }
        Ok(())
    }
}

/// With six trees the lowest and the highest median bound the true one with 96.9 %.
const LEAST_TREES: usize = 6;

/// The groups take turns tree by tree, so none is complete before the end. A session that is
/// stopped earlier keeps every group of two trees or more: the intervals of two trees claim no more
/// than two trees can say ([`swtch_core::cost::Estimate`]).
const LEAST_TREES_WHEN_STOPPED: usize = 2;

/// The part that is measured now and the time left, on the progress line.
#[derive(Debug)]
struct MeasureProgress {
    left: Duration,
    planned_done: Duration,
    start: Instant,
    line: ProgressLine,
}

impl MeasureProgress {
    fn new(menu: &Menu) -> Self {
        let length =
            |group: &ArmGroup| group.tree_length() * u32::try_from(group.trees).unwrap_or(1);
        Self {
            left: menu.groups.iter().map(length).sum(),
            planned_done: Duration::ZERO,
            start: Instant::now(),
            line: ProgressLine::on_stderr(),
        }
    }

    /// Time left at the pace so far: a busy host takes longer than planned.
    fn time_left(&self) -> Duration {
        let elapsed = self.start.elapsed();
        if elapsed < Duration::from_secs(1) || self.planned_done.is_zero() {
            return self.left;
        }
        let pace = elapsed.as_secs_f64() / self.planned_done.as_secs_f64();
        self.left.mul_f64(pace)
    }

    fn show(&self, group: &ArmGroup) {
        self.line.show(|| {
            let left = self.time_left().as_secs() + 1;
            let name = &group.name;
            format!("measuring {name}, about {left} s left (Ctrl-C keeps what is done)")
        });
    }

    fn done(&mut self, group: &ArmGroup) {
        let length = group.tree_length();
        self.left = self.left.saturating_sub(length);
        self.planned_done += length;
    }
}
