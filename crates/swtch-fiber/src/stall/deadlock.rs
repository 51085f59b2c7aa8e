//! Workers that wait for each other, or for nobody.
//!
//! A wait for a resource that has an owner is an edge to that owner; each worker waits for one
//! thing at a time, so a walk along the edges either ends or runs into a circle. A circle will
//! never resolve by itself, whatever else runs. Without one it can still be that all workers
//! wait and no timer, no I/O and no preemptive work is left that could wake one: then only a
//! thread from outside can.

use std::collections::HashMap;
use std::fmt;

/// One worker that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// Number of the worker.
    pub worker: u32,
    /// Name of its task.
    pub task: String,
    /// Name of the wait type.
    pub wait_type: String,
    /// What it waits for: an address or a number that means something to the wait type.
    pub resource: u64,
    /// The worker that owns the resource, where it has an owner.
    pub owner: Option<u32>,
}

impl Waiting {
    /// A worker that waits.
    pub fn new(
        worker: u32,
        task: impl Into<String>,
        wait_type: impl Into<String>,
        resource: u64,
        owner: Option<u32>,
    ) -> Self {
        Self {
            worker,
            task: task.into(),
            wait_type: wait_type.into(),
            resource,
            owner,
        }
    }
}

/// Who else could still wake a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// A worker runs or is runnable or preemptive, a timer or an I/O is pending: or it is not known.
    Active,
    /// Nothing of that.
    Quiet,
}

/// Why workers will wait for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deadlock {
    /// Each waits for what the next one owns, and the last for what the first owns.
    Cycle(Vec<Waiting>),
    /// All wait, and nobody inside the runtime can wake them.
    AllWait(Vec<Waiting>),
}

/// Workers named in a report at most.
const NAMED: usize = 16;

/// Looks for a deadlock among the workers that wait.
pub fn find(waiting: Vec<Waiting>, others: Others) -> Option<Deadlock> {
    if let Some(cycle) = cycle(&waiting) {
        return Some(Deadlock::Cycle(cycle));
    }
    (others == Others::Quiet && !waiting.is_empty()).then_some(Deadlock::AllWait(waiting))
}

/// The first circle of owners, if there is one. Takes as many steps as there are workers.
fn cycle(waiting: &[Waiting]) -> Option<Vec<Waiting>> {
    let places: HashMap<u32, usize> = waiting
        .iter()
        .enumerate()
        .map(|(place, waiting)| (waiting.worker, place))
        .collect();
    let owner = |place: usize| places.get(&waiting[place].owner?).copied();
    // The walk on which a place was first met.
    let mut met = vec![None; waiting.len()];
    for first in 0..waiting.len() {
        let mut next = Some(first);
        while let Some(place) = next.filter(|place| met[*place].is_none()) {
            met[place] = Some(first);
            next = owner(place);
        }
        let Some(closed) = next.filter(|place| met[*place] == Some(first)) else {
            continue;
        };
        let circle = std::iter::successors(Some(closed), |place| {
            owner(*place).filter(|next| *next != closed)
        });
        return Some(circle.map(|place| waiting[place].clone()).collect());
    }
    None
}

impl fmt::Display for Deadlock {
    /// A line a worker.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cycle(circle) => {
                writeln!(f, "deadlock: {} workers wait for each other", circle.len())?;
                for (waiting, owner) in circle.iter().zip(circle.iter().cycle().skip(1)) {
                    writeln!(f, "  {waiting}, held by {}", Who(owner))?;
                }
                Ok(())
            }
            Self::AllWait(all) => {
                writeln!(
                    f,
                    "deadlock: all {} workers with a task wait, and no timer, no I/O and no \
                     preemptive work is left to wake one; only a thread from outside could",
                    all.len()
                )?;
                for waiting in all.iter().take(NAMED) {
                    writeln!(f, "  {waiting}")?;
                }
                match all.len().saturating_sub(NAMED) {
                    0 => Ok(()),
                    more => writeln!(f, "  and {more} more"),
                }
            }
        }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wait_type = self.wait_type.escape_debug();
        write!(
            f,
            "{} waits for {wait_type} {:#x}",
            Who(self),
            self.resource
        )
    }
}

/// A worker by number and task.
struct Who<'a>(&'a Waiting);

impl fmt::Display for Who<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Waiting { worker, task, .. } = self.0;
        write!(f, "worker {worker} (task \"{}\")", task.escape_debug())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker that waits for a mutex of `owner`.
    fn mutex(worker: u32, owner: u32) -> Waiting {
        let task = format!("t{worker}");
        Waiting::new(
            worker,
            task,
            "MUTEX",
            0x1000 + u64::from(owner),
            Some(owner),
        )
    }

    /// A worker that waits for something without an owner.
    fn event(worker: u32) -> Waiting {
        Waiting::new(worker, format!("t{worker}"), "EVENT", 0x50, None)
    }

    fn circle(deadlock: Option<Deadlock>) -> Vec<u32> {
        match deadlock {
            Some(Deadlock::Cycle(circle)) => circle.iter().map(|w| w.worker).collect(),
            other => panic!("{other:?}"),
        }
    }

    /// The classic: two locks in two orders. It is one even while others run.
    #[test]
    fn two_that_wait_for_each_other_are_a_circle() {
        let waiting = vec![event(9), mutex(1, 2), mutex(2, 1)];
        assert_eq!(circle(find(waiting, Others::Active)), [1, 2]);
    }

    /// A worker that locks its own mutex again.
    #[test]
    fn one_that_waits_for_itself_is_a_circle() {
        assert_eq!(circle(find(vec![mutex(4, 4)], Others::Active)), [4]);
    }

    /// 7 and 8 wait for the circle but are not in it: unlocking them would not help.
    #[test]
    fn who_only_waits_for_a_circle_is_not_in_it() {
        let waiting = vec![
            mutex(7, 8),
            mutex(8, 1),
            mutex(1, 2),
            mutex(2, 3),
            mutex(3, 1),
        ];
        assert_eq!(circle(find(waiting, Others::Quiet)), [1, 2, 3]);
    }

    /// A chain that ends with somebody who runs will resolve.
    #[test]
    fn a_chain_is_no_deadlock() {
        let waiting = vec![mutex(1, 2), mutex(2, 3), mutex(5, 3)];
        assert_eq!(find(waiting, Others::Active), None);
    }

    /// Nobody owns an event; all waiting for one is a deadlock only when all is quiet.
    #[test]
    fn all_waiting_is_a_deadlock_when_nobody_can_wake() {
        let waiting = vec![event(1), event(2)];
        assert_eq!(find(waiting.clone(), Others::Active), None);
        assert_eq!(
            find(waiting.clone(), Others::Quiet),
            Some(Deadlock::AllWait(waiting))
        );
        assert_eq!(find(Vec::new(), Others::Quiet), None);
    }

    /// The report names the whole chain, and no name writes to the terminal.
    #[test]
    fn the_report_names_the_chain() {
        let mut first = mutex(1, 2);
        first.task = "a\u{1b}[2J".into();
        let text = find(vec![first, mutex(2, 1)], Others::Quiet)
            .unwrap()
            .to_string();
        assert_eq!(
            text,
            "deadlock: 2 workers wait for each other\n  \
             worker 1 (task \"a\\u{1b}[2J\") waits for MUTEX 0x1002, held by worker 2 (task \"t2\")\n  \
             worker 2 (task \"t2\") waits for MUTEX 0x1001, held by worker 1 (task \"a\\u{1b}[2J\")\n"
        );
        let many: Vec<_> = (0..20).map(event).collect();
        let text = find(many, Others::Quiet).unwrap().to_string();
        assert!(text.ends_with("  and 4 more\n"), "{text}");
    }

    /// 100,000 workers in one chain: the walk must not start anew for each.
    #[test]
    fn a_long_chain_is_walked_once() {
        let mut waiting: Vec<_> = (0..100_000)
            .map(|worker| mutex(worker, worker + 1))
            .collect();
        assert_eq!(find(waiting.clone(), Others::Active), None);
        waiting[99_999].owner = Some(0);
        assert_eq!(circle(find(waiting, Others::Active)).len(), 100_000);
    }
}
