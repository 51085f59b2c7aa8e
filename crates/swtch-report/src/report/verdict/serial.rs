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

use swtch_core::{Nanos, Reason, RunsTogether, Tally};
use swtch_output::sheet::percent;
use swtch_output::text::counted;

use super::advice;
use super::{Finding, Subject, VerdictInput};

/// From this share of the recording on in which one of its threads ran, a program is busy. One that waits for
/// requests has threads that wait for work.
const BUSY_PCT: f64 = 80.0;

/// From this share on, one thread does the work, and the others wait for more of it.
const ONE_PCT: f64 = 80.0;

/// Threads with a smaller share take no part in the turns.
const LEAST_PCT: f64 = 1.0;

impl VerdictInput<'_> {
    /// Threads that work in turns, one at a time, and wait for each other meanwhile.
    pub(super) fn serialised(&self, total: &Tally) -> Option<Finding> {
        let served = self.served_by_family();
        let (tasks, serial) = served
            .iter()
            .filter_map(|(family, tasks)| {
                let together = self.details.together.get(family)?;
                Some((tasks, self.serial(together, tasks)?))
            })
            .max_by_key(|(_, serial)| *serial)?;
        let (kind, time) = self.weighed(serial, 0, total)?;
        // A lock that is known is told by its name.
        if self.at_locks.lost() >= serial {
            return None;
        }
        let all: Nanos = tasks.iter().map(|(_, time)| *time).sum();
        let takes_part = |time: Nanos| percent(time.as_ns(), all.as_ns()) >= Some(LEAST_PCT);
        let parts = tasks.iter().filter(|(_, time)| takes_part(*time)).count();
        let family = self.details.families[tasks.first()?.0];
        let served = |task: usize| match self.details.families[task] == family {
            true => self.objects.served_in_turn(task),
            false => Nanos::ZERO,
        };
        Some(Finding {
            name: "serialised",
            kind,
            reason: Some(Reason::Futex),
            subject: Subject::Time,
            switches: 0,
            time,
            seen: format!(
                "Threads work in turns, one at a time: one of {} ran alone while others waited for it, for {}.",
                counted(u64::try_from(parts).unwrap_or(u64::MAX), "thread"),
                self.lost_words(serial),
            ),
            places: self
                .longest(served, "ran while others waited: ")
                .into_iter()
                .chain(self.course(self.details.ends_of(Reason::Futex)))
                .collect(),
            advice: Some(advice::SERIAL.told_with(&[("stacks", self.how_to_name_it())])),
        })
    }

    /// The threads of each program that ran while others waited for them, those that did so longest first.
    fn served_by_family(&self) -> BTreeMap<usize, Vec<(usize, Nanos)>> {
        let mut served: BTreeMap<usize, Vec<(usize, Nanos)>> = BTreeMap::new();
        for task in 0..self.names.thread_count() {
            let time = self.objects.served_in_turn(task);
            if time > Nanos::ZERO {
                let family = self.details.families[task];
                served.entry(family).or_default().push((task, time));
            }
        }
        for tasks in served.values_mut() {
            tasks.sort_by_key(|(task, time)| (Reverse(*time), *task));
        }
        served
    }

    /// How long at least one thread of a busy program ran alone while others waited for it, if they take turns.
    fn serial(&self, together: &RunsTogether, served: &[(usize, Nanos)]) -> Option<Nanos> {
        let is_busy = percent(together.any().as_ns(), self.wall.as_ns());
        let all: Nanos = served.iter().map(|(_, time)| *time).sum();
        let most = served.first().map_or(Nanos::ZERO, |(_, time)| *time);
        let is_one = percent(most.as_ns(), all.as_ns()).is_none_or(|share| share >= ONE_PCT);
        // All of this may have been while another one ran, too.
        let not_alone = together.ran().saturating_sub(together.alone());
        (is_busy? >= BUSY_PCT && !is_one).then(|| all.saturating_sub(not_alone))
    }
}
