//! The finding about threads of which only one works at a time, although it is not known what they wait for.
//!
//! ```text
//!  A  ├─ ran ─┤ · · · waits for others · · · ├─ ran ─┤
//!  B          ├─ ran ─┤ · · · · · · · · · · · · · · · ├─ ran ─┤
//!  C                  ├──── ran ─────┤ · · · · · · · ·
//! ```
//!
//! A monitor of Java, a lock of Go, a queue through which all has to go: each waiter has a futex word of its own,
//! and nothing tells a lock from a hand-over of work. But if one thread runs at any time, and others wait for it,
//! no second CPU is of use, whichever it is.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use swtch_core::{Nanos, Reason, Tally};
use swtch_output::sheet::percent;
use swtch_output::text::counted;

use super::super::names::Names;
use super::super::wait::Objects;

use super::advice;
use super::locks::is_collector;
use super::{Details, Finding, MOST_PCT, VerdictInput};

/// From this share of the recording on in which one of its threads ran, a program is busy. One that waits for
/// requests has threads that wait for work.
const BUSY_PCT: f64 = 80.0;

/// For so much of the recording at least one thread has to run alone while others wait for it.
const SERIAL_PCT: f64 = 40.0;

/// From this share on, one thread does the work, and the others wait for it.
const ONE_PCT: f64 = 80.0;

/// If one thread works, the others have to run for this share of the time themselves, or they are a pool that has
/// nothing to do.
const OTHERS_PCT: f64 = 10.0;

/// Threads with a smaller share take no part.
const LEAST_PCT: f64 = 1.0;

/// Threads of one program of which one works at a time.
#[derive(Debug)]
pub struct SerialWork {
    family: usize,
    /// The time for which at least one ran alone while others waited for it.
    alone: Nanos,
    /// The time for which others waited for one that ran alone, in sum.
    pub(super) waited: Nanos,
    /// The threads that take part.
    threads: Vec<usize>,
    /// The thread that did nearly all of the work, if there is such a one.
    one: Option<usize>,
    /// Of Java's threads that collect garbage, the one that did most of it, if they did most.
    collector: Option<usize>,
}

impl SerialWork {
    /// The program with the most of it; `None` if there is none, or if at locks that are known as much was waited.
    pub fn of(
        details: &Details,
        objects: &Objects,
        at_locks: Nanos,
        names: &Names,
        wall: Nanos,
    ) -> Option<Self> {
        let mut families: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for task in 0..names.thread_count() {
            families
                .entry(details.families[task])
                .or_default()
                .push(task);
        }
        let found = families.iter().filter_map(|(family, tasks)| {
            Self::of_family(*family, tasks, details, objects, names, wall)
        });
        let most = found.max_by_key(|serial| (serial.waited, Reverse(serial.family)))?;
        (at_locks < most.waited).then_some(most)
    }

    fn of_family(
        family: usize,
        tasks: &[usize],
        details: &Details,
        objects: &Objects,
        names: &Names,
        wall: Nanos,
    ) -> Option<Self> {
        let together = details.together.get(family)?;
        let ran = |task: usize| details.seen[task].ran;
        let share = |part: Nanos, whole: Nanos| percent(part.as_ns(), whole.as_ns()).unwrap_or(0.0);
        let served: Nanos = tasks.iter().map(|task| objects.served_in_turn(*task)).sum();
        let is_of_it = |task: &usize| details.families[*task] == family;
        let turns = objects.turns().iter().filter(|turn| is_of_it(&turn.0));
        let alone = together.alone_in(turns.map(|(_, from, to)| (*from, *to)));
        if share(together.any(), wall) < BUSY_PCT || share(alone, wall) < SERIAL_PCT {
            return None;
        }
        let most = *tasks
            .iter()
            .max_by_key(|task| objects.served_in_turn(**task))?;
        let is_one = share(objects.served_in_turn(most), served) >= ONE_PCT;
        let by_others = together.ran().saturating_sub(ran(most));
        let served_by = |task: &usize| objects.served_in_turn(*task);
        let collects = |task: &&usize| is_collector(&names.thread(**task).comm);
        let collectors = tasks.iter().filter(collects);
        let by_collectors: Nanos = collectors.clone().map(served_by).sum();
        let is_collected = share(by_collectors, served) >= MOST_PCT;
        let collector = collectors.max_by_key(|task| served_by(task));
        if is_one && share(by_others, together.ran()) < OTHERS_PCT {
            return None;
        }
        let takes_part = |task: &usize| share(ran(*task), together.ran()) >= LEAST_PCT;
        let threads: Vec<_> = tasks.iter().copied().filter(takes_part).collect();
        Some(Self {
            family,
            alone,
            waited: threads
                .iter()
                .map(|task| objects.waited_in_turn(*task))
                .sum(),
            threads,
            one: is_one.then_some(most),
            collector: collector.copied().filter(|_| is_collected),
        })
    }
}

impl VerdictInput<'_> {
    /// Threads of which one works at a time, while others wait for it.
    pub(super) fn serialised(&self, total: &Tally) -> Option<Finding> {
        let serial = self.serial.as_ref()?;
        let (kind, time) = self.weighed(serial.waited, serial.alone, 0, total)?;
        let (alone, waited) = (serial.alone, self.lost_words(serial.waited));
        let stacks = ("stacks", self.how_to_name_it());
        let (name, seen, advice) = match (serial.collector, serial.one) {
            (Some(collector), _) => (
                "collector",
                format!(
                    "Threads wait for Java's garbage collector, most for {}: one thread ran alone for {alone}, and \
                     others waited for it for {waited}.",
                    self.names.label(collector),
                ),
                advice::COLLECTOR.told(),
            ),
            (None, Some(one)) => (
                "one_works",
                format!(
                    "One thread works while others wait for it: {} ran alone for {alone}, and they waited {waited}.",
                    self.names.label(one),
                ),
                advice::ONE_WORKS.told_with(&[stacks]),
            ),
            (None, None) => (
                "serialised",
                format!(
                    "Threads work in turns, one at a time: one of {} ran alone for {alone}, and others waited for it \
                     for {waited}.",
                    counted(
                        u64::try_from(serial.threads.len()).unwrap_or(u64::MAX),
                        "thread"
                    ),
                ),
                advice::SERIAL.told_with(&[stacks]),
            ),
        };
        let is_of_it = |task: usize| self.details.families[task] == serial.family;
        let served = |task: usize| {
            if is_of_it(task) {
                self.objects.served_in_turn(task)
            } else {
                Nanos::ZERO
            }
        };
        let waited = |task: usize| {
            if serial.threads.contains(&task) {
                self.objects.waited_in_turn(task)
            } else {
                Nanos::ZERO
            }
        };
        Some(Finding {
            reason: Some(Reason::Futex),
            places: self
                .longest(served, "ran while others waited: ")
                .into_iter()
                .chain(self.longest(waited, "waited: "))
                .chain(self.course(self.details.ends_of(Reason::Futex)))
                .collect(),
            advice: Some(advice),
            ..Finding::of_time(name, (kind, time), seen)
        })
    }
}
