//! A switch-out together with what followed it, which is recorded in the next row of the task.
//!
//! ```text
//! row of T:      wait │ run │ out: reason, successor   ◀─ the switch that is billed
//! next row of T:             wait: how long, where │ run │ out
//! ```
//!
//! How a task comes back decides how much its caches can have lost, and the stack of its wait is in
//! the row of the next run. So a switch-out is kept until its task's next row, and handed out then.
//! A task that does not come back in the rows that are read has lost nothing yet.

use swtch_core::cost::{Billing, Case, Displacement, Return, Successor};
use swtch_core::{Nanos, Switch, TaskKey};

use super::filter::CountedParts;
use super::names::Names;
use super::stack::Stacks;
use super::wait::{Object, object_of};

/// A switch-out, with what the task's next row says about it.
#[derive(Clone, Copy, Debug)]
pub struct Departure {
    /// Index of the task that left.
    pub task: usize,
    /// Index of the task that ran next; `None` if it is not known or has no name.
    pub next: Option<usize>,
    /// Reason and successor, which decide the price.
    pub case: Case,
    /// Length of the run that it ended; `None` if its start is not known.
    pub ran: Option<Nanos>,
    /// The object that the task began to wait for.
    pub object: Option<Object>,
    /// User and kernel stack of the wait; none after a lost switch.
    pub stacks: Stacks,
    /// Upper bound for the time that cold caches cost in the next run; `None` if no bound is known.
    pub indirect_high: Option<Nanos>,
}

/// A switch-out whose task has no later row yet.
#[derive(Clone, Copy, Debug)]
struct OpenDeparture {
    departure: Departure,
    cpu: usize,
    counts: bool,
}

/// Joins each switch-out of a trace with the next row of its task. Rows must come in order of time.
#[derive(Debug)]
pub struct Departures {
    /// The last switch-out of each task, by the task's index.
    away: Vec<Option<OpenDeparture>>,
    /// Time that refilling displaced data may still cost each task, by index.
    displaced: Vec<Nanos>,
    displacement: Option<Displacement>,
    /// Index of the task that left each CPU last.
    last_on: Vec<Option<usize>>,
    /// True if every run on every CPU has a row.
    is_complete: bool,
}

impl Departures {
    /// For a trace with these tasks. `is_complete` says that every run on every CPU has a row.
    pub fn new(names: &Names, is_complete: bool, billing: &Billing) -> Self {
        Self {
            away: vec![None; names.thread_count()],
            displaced: vec![Nanos::ZERO; names.thread_count()],
            displacement: billing.displacement().ok().cloned(),
            last_on: Vec::new(),
            is_complete,
        }
    }

    /// Takes the next row of a task, and hands out the task's previous switch-out if that counts.
    /// Rows that do not count are needed, too.
    pub fn add(
        &mut self,
        row: &Switch,
        task: usize,
        counted: CountedParts,
        names: &Names,
        each: &mut impl FnMut(&Departure),
    ) {
        let cpu = usize::from(row.cpu.get());
        if let Some(away) = self.away[task].take() {
            let departure = self.joined(row, task, &away);
            if away.counts {
                each(&departure);
            }
        }
        if cpu >= self.last_on.len() {
            self.last_on.resize(cpu + 1, None);
        }
        self.last_on[cpu] = Some(task);
        let away = OpenDeparture {
            departure: departure_of(row, task, names),
            cpu,
            counts: counted.switch,
        };
        if task != Names::nameless() {
            self.away[task] = Some(away);
        } else if away.counts {
            // Several tasks share this index, so the next row may be another task's: nothing is
            // known but the most that any absence costs.
            each(&Departure {
                indirect_high: self.displacement.as_ref().map(Displacement::most),
                ..away.departure
            });
        }
    }

    /// Hands out the switch-outs whose tasks had no further row.
    pub fn finish(&mut self, each: &mut impl FnMut(&Departure)) {
        let indirect_high = self.displacement.as_ref().map(|_| Nanos::ZERO);
        let left = self.away.iter_mut().filter_map(Option::take);
        for away in left.filter(|away| away.counts) {
            each(&Departure {
                indirect_high,
                ..away.departure
            });
        }
    }

    /// The departure, completed from the next row of its task.
    fn joined(&mut self, row: &Switch, task: usize, away: &OpenDeparture) -> Departure {
        let back = self.back(row, away);
        let displaced = &mut self.displaced[task];
        let bound = self.displacement.as_ref();
        // Without a reason, the row in which the wait began is not in the trace.
        let is_next = row.wait.reason.is_some();
        Departure {
            indirect_high: bound.map(|bound| bound.lost_in_run(displaced, back, row.ran)),
            stacks: if is_next {
                (row.wait.stacks.user, row.wait.stacks.kernel)
            } else {
                (None, None)
            },
            ..away.departure
        }
    }

    /// Returns how the task came back to the CPU for the run of this row.
    fn back(&self, row: &Switch, away: &OpenDeparture) -> Return {
        let cpu = usize::from(row.cpu.get());
        if row.wait.reason.is_none() || cpu != away.cpu {
            return Return::Elsewhere;
        }
        let was_idle = away.departure.case.successor == Successor::Idle;
        let is_next_row = self.last_on.get(cpu) == Some(&Some(away.departure.task));
        if self.is_complete && was_idle && is_next_row {
            return Return::Undisturbed;
        }
        row.wait.off.map_or(Return::Elsewhere, Return::SameCpu)
    }
}

fn departure_of(row: &Switch, task: usize, names: &Names) -> Departure {
    let next = row.next_task.map(|next| names.index(next));
    Departure {
        task,
        next: next.filter(|next| *next != Names::nameless()),
        case: Case {
            reason: row.rule.reason,
            successor: successor(row.next_task, task, names),
        },
        ran: row.ran,
        object: object_of(row, names.thread(task).process),
        stacks: (None, None),
        indirect_high: None,
    }
}

/// The kind of task that runs after the task with this index.
pub fn successor(next: Option<TaskKey>, task: usize, names: &Names) -> Successor {
    let Some(next) = next else {
        return Successor::Unknown;
    };
    if next.is_idle() {
        return Successor::Idle;
    }
    let next = names.index(next);
    if next == Names::nameless() || task == Names::nameless() {
        Successor::Unknown
    } else if names.thread(next).process == names.thread(task).process {
        Successor::SameProcess
    } else {
        Successor::OtherProcess
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn::{after, names, prices_with_curve, row};
    use swtch_core::{CpuId, Reason};

    const COUNTS: CountedParts = CountedParts {
        switch: true,
        wait: true,
    };

    /// The row of a task that leaves the CPU to another.
    fn to(next: u32, row: Switch) -> Switch {
        Switch {
            next_task: Some(TaskKey::new(next)),
            ..row
        }
    }

    fn on_cpu(cpu: u16, row: Switch) -> Switch {
        Switch {
            cpu: CpuId::new(cpu),
            ..row
        }
    }

    fn departures(is_complete: bool, rows: &[Switch]) -> Vec<Departure> {
        let (names, billing) = (names(), Billing::new(&prices_with_curve()));
        let mut departures = Departures::new(&names, is_complete, &billing);
        let mut all = Vec::new();
        let mut keep = |departure: &Departure| all.push(*departure);
        for row in rows {
            departures.add(row, names.index(row.task), COUNTS, &names, &mut keep);
        }
        departures.finish(&mut keep);
        all
    }

    /// The bound on what is lost after each switch, in ns. A full cache takes 10 µs to refill; runs
    /// last 100 µs.
    fn losses(is_complete: bool, rows: &[Switch]) -> Vec<u64> {
        let departures = departures(is_complete, rows);
        let losses = departures.iter().map(|one| one.indirect_high.unwrap());
        losses.map(Nanos::as_ns).collect()
    }

    /// server/10 and worker/11 are of one process, hog/30 is of another.
    #[test]
    fn the_successor_is_told_by_its_process() {
        let unnamed = Switch {
            next_task: None,
            ..row(1, Reason::Pipe)
        };
        let rows = [
            to(2, row(1, Reason::Pipe)),
            to(3, row(1, Reason::Pipe)),
            to(0, row(1, Reason::Pipe)),
            to(99, row(1, Reason::Pipe)),
            unnamed,
        ];
        let departures = departures(true, &rows);
        let successors: Vec<_> = departures.iter().map(|one| one.case.successor).collect();
        let expected = [
            Successor::SameProcess,
            Successor::OtherProcess,
            Successor::Idle,
            Successor::Unknown,
            Successor::Unknown,
        ];
        assert_eq!(successors, expected);
    }

    /// ```text
    /// CPU 0: 1 ─▶ 3 ─▶ 1 ─▶
    /// ```
    #[test]
    fn a_task_that_comes_back_was_away_for_its_wait() {
        let rows = [
            to(3, row(1, Reason::Pipe)),
            to(1, row(3, Reason::Sleep)),
            to(0, after(row(1, Reason::Exit), Reason::Pipe, 700, 300)),
        ];
        assert_eq!(losses(true, &rows), [1000, 0, 0]);
    }

    /// ```text
    /// CPU 0: 1 ─▶ idle ─▶ 1 ─▶          nobody else: nothing is lost
    /// CPU 0: 1 ─▶ idle ─▶ 3 ─▶ 1 ─▶     another came before it
    /// ```
    #[test]
    fn a_cpu_that_was_only_idle_is_found_as_it_was_left() {
        let back = after(row(1, Reason::Pipe), Reason::Pipe, 700, 300);
        let quiet = [row(1, Reason::Pipe), back];
        assert_eq!(losses(true, &quiet)[0], 0);
        let visited = [row(1, Reason::Pipe), row(3, Reason::Sleep), back];
        assert_eq!(losses(true, &visited)[0], 1000);
        // Another CPU's rows do not matter.
        let beside = [row(1, Reason::Pipe), on_cpu(1, row(3, Reason::Sleep)), back];
        assert_eq!(losses(true, &beside)[0], 0);
    }

    /// Runs of other tasks may have no row, so the CPU may have been used in between.
    #[test]
    fn in_a_trace_of_some_tasks_nobody_knows_who_came_between() {
        let rows = [
            row(1, Reason::Pipe),
            after(row(1, Reason::Pipe), Reason::Pipe, 700, 300),
        ];
        assert_eq!(losses(false, &rows)[0], 1000);
    }

    #[test]
    fn a_task_on_another_cpu_may_have_lost_all() {
        let rows = [
            row(1, Reason::Pipe),
            on_cpu(1, after(row(1, Reason::Pipe), Reason::Pipe, 1, 1)),
        ];
        assert_eq!(losses(true, &rows)[0], 10_000);
    }

    /// The second row comes after a lost switch: its wait does not belong to the first row.
    #[test]
    fn after_a_lost_switch_neither_time_nor_stack_is_believed() {
        let mut lost = after(row(1, Reason::Pipe), Reason::Pipe, 1, 1);
        lost.wait.reason = None;
        lost.wait.stacks.user = Some(7);
        let departures = departures(true, &[row(1, Reason::Pipe), lost]);
        assert_eq!(departures[0].indirect_high, Some(Nanos::from_ns(10_000)));
        assert_eq!(departures[0].stacks, (None, None));
    }

    #[test]
    fn the_place_that_waited_is_in_the_next_row() {
        let mut back = after(row(1, Reason::Exit), Reason::Futex, 1, 1);
        (back.wait.stacks.user, back.wait.stacks.kernel) = (Some(7), Some(8));
        let departures = departures(true, &[row(1, Reason::Futex), back]);
        assert_eq!(departures[0].stacks, (Some(7), Some(8)));
        assert_eq!(departures[0].case.reason, Reason::Futex);
        assert_eq!(departures[1].stacks, (None, None));
    }

    /// The first row is before the span that was asked for, so the switch in it is not billed.
    #[test]
    fn what_does_not_count_is_not_handed_out() {
        let (names, billing) = (names(), Billing::new(&prices_with_curve()));
        let mut departures = Departures::new(&names, true, &billing);
        let mut handed = 0;
        let counted = CountedParts {
            switch: false,
            wait: true,
        };
        let mut count = |_: &Departure| handed += 1;
        departures.add(
            &row(1, Reason::Pipe),
            names.index(TaskKey::new(1)),
            counted,
            &names,
            &mut count,
        );
        departures.finish(&mut count);
        assert_eq!(handed, 0);
    }

    /// A full cache takes 10 µs to refill: a run of 4 µs loses 4, the next one the 6 that are left
    /// and the 2 that were displaced meanwhile.
    #[test]
    fn what_a_run_does_not_miss_the_next_one_may() {
        let back = |away_ns, ran_ns| Switch {
            ran: Some(Nanos::from_ns(ran_ns)),
            ..after(to(3, row(1, Reason::Pipe)), Reason::Pipe, away_ns, 0)
        };
        let rows = [
            to(3, row(1, Reason::Pipe)),
            back(90_000, 4_000),
            back(2_000, 50_000),
        ];
        let departures = departures(true, &rows);
        let lost = departures
            .iter()
            .map(|one| one.indirect_high.unwrap().as_ns());
        assert_eq!(lost.collect::<Vec<_>>(), [4_000, 8_000, 0]);
    }

    #[test]
    fn tasks_without_a_name_are_not_taken_for_one() {
        let rows = [
            row(99, Reason::Pipe),
            after(row(98, Reason::Pipe), Reason::Pipe, 1, 1),
        ];
        assert_eq!(losses(true, &rows), [10_000; 2]);
    }
}
