//! Deadlocks: workers that wait for each other, or that nothing can wake.
//!
//! A wait for a mutex, a read-write lock or the end of a task is an edge to each worker that has to
//! act first. Such a wait needs all of them, so a worker in a cycle of edges waits for ever,
//! whatever else runs. Even without a cycle it is possible that all workers wait and nothing is
//! left that could wake one.
//!
//! This file finds cycles of edges and describes deadlocks; `waits` reads the edges.

use std::fmt;
use std::time::Duration;

/// One worker that waits, and its wait object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitingWorker {
    /// Number of the worker in the page.
    pub worker: u32,
    /// Name of its task, or `#` and the task's id.
    pub task: String,
    /// Name of the wait type.
    pub wait_type: String,
    /// The wait object: an address or a number whose meaning depends on the wait type.
    pub resource: u64,
    /// The worker that has to act first, if one is known that waits as well.
    pub blocker: Option<Blocker>,
}

/// A worker that another one waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Blocker {
    /// Number of the worker in the page.
    pub worker: u32,
    /// Name of its task, or `#` and the task's id.
    pub task: String,
    /// The step that it has to take first.
    pub has_to: BlockedOn,
}

/// The step that a worker has to take before another one can continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BlockedOn {
    /// Unlock the lock that it holds.
    Unlock,
    /// End the task that it runs.
    End,
    /// Have its turn first: it is before the other one in the queue of a read-write lock.
    GoFirst,
}

/// The reason why workers will wait for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deadlock {
    /// Each waits for the next one, and the last for the first.
    Cycle(Vec<WaitingWorker>),
    /// All wait, and nothing is left that could wake one: no timer, no I/O, no preemptive work, and
    /// every other thread of the process waits itself.
    #[non_exhaustive]
    AllWait {
        /// The workers that wait, with their wait objects.
        waiting: Vec<WaitingWorker>,
        /// Number of tasks that wait for a free worker.
        queued: u64,
    },
    /// Preemptive sections wait for a helper thread, and none has become free for long. This is a
    /// deadlock if the running sections wait for the queued ones.
    #[non_exhaustive]
    NoHelper {
        /// Number of helper threads, as many as the runtime may have.
        helpers: usize,
        /// Number of sections that wait for a helper.
        queued: usize,
        /// For how long no helper has become free.
        lasted: Duration,
    },
}

/// Most workers named in a report.
const NAMED: usize = 16;

/// Finds cycles of edges; no node is in two of them. Takes as many steps as there are edges.
pub(super) fn cycles(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Visit {
        Not,
        /// The node lies on the present path, at this depth.
        OnPath(usize),
        Done,
    }
    let mut visits = vec![Visit::Not; edges.len()];
    let mut found = Vec::new();
    for first in 0..edges.len() {
        if visits[first] != Visit::Not {
            continue;
        }
        // The nodes of the path, and how many edges of each have been followed.
        let mut path = vec![(first, 0)];
        visits[first] = Visit::OnPath(0);
        while let Some((place, followed)) = path.last_mut() {
            let Some(next) = edges[*place].get(*followed).copied() else {
                visits[*place] = Visit::Done;
                path.pop();
                continue;
            };
            *followed += 1;
            match visits[next] {
                Visit::Not => {
                    visits[next] = Visit::OnPath(path.len());
                    path.push((next, 0));
                }
                Visit::OnPath(depth) => {
                    found.push(path[depth..].iter().map(|(place, _)| *place).collect());
                    for (place, _) in path.drain(..) {
                        visits[place] = Visit::Done;
                    }
                }
                Visit::Done => {}
            }
        }
    }
    found
}

impl fmt::Display for Deadlock {
    /// A headline, and one line per worker.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cycle(cycle) => {
                match cycle.len() {
                    1 => writeln!(f, "deadlock: a worker waits for itself")?,
                    workers => writeln!(f, "deadlock: {workers} workers wait for each other")?,
                }
                lines(f, cycle)
            }
            Self::AllWait { waiting, queued } => {
                writeln!(
                    f,
                    "deadlock: all {} workers with a task wait, and nothing is left to wake one: no timer, \
                     no I/O, no preemptive work, no other thread that runs",
                    waiting.len()
                )?;
                lines(f, waiting)?;
                match queued {
                    0 => Ok(()),
                    tasks => writeln!(f, "  tasks that wait for a worker: {tasks}"),
                }
            }
            Self::NoHelper {
                helpers,
                queued,
                lasted,
            } => writeln!(
                f,
                "perhaps a deadlock: preemptive sections that wait for a helper thread: {queued}; all \
                 {helpers} have been busy for {:.0} s\n  if those that run wait for those that do not, \
                 let the runtime have more: Builder::helpers",
                lasted.as_secs_f64()
            ),
        }
    }
}

fn lines(f: &mut fmt::Formatter<'_>, all: &[WaitingWorker]) -> fmt::Result {
    for waiting in all.iter().take(NAMED) {
        writeln!(f, "  {waiting}")?;
    }
    match all.len().saturating_sub(NAMED) {
        0 => Ok(()),
        more => writeln!(f, "  and {more} more"),
    }
}

impl fmt::Display for WaitingWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (wait_type, resource) = (self.wait_type.escape_debug(), self.resource);
        who(f, self.worker, &self.task)?;
        write!(f, " waits for {wait_type} {resource:#x}")?;
        let Some(blocker) = &self.blocker else {
            return Ok(());
        };
        f.write_str(match blocker.has_to {
            BlockedOn::Unlock => ", held by ",
            BlockedOn::End => ", the end of ",
            BlockedOn::GoFirst => ", behind ",
        })?;
        who(f, blocker.worker, &blocker.task)
    }
}

/// Writes a worker by its number and its task.
fn who(f: &mut fmt::Formatter<'_>, worker: u32, task: &str) -> fmt::Result {
    write!(f, "worker {worker} (task \"{}\")", task.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The classic case: two locks in two orders.
    #[test]
    fn two_that_wait_for_each_other_are_a_cycle() {
        assert_eq!(cycles(&[vec![], vec![2], vec![1]]), [[1, 2]]);
    }

    /// A worker takes a second read lock, behind a writer that waits for the first one.
    #[test]
    fn one_that_waits_for_itself_is_a_cycle() {
        assert_eq!(cycles(&[vec![0]]), [[0]]);
    }

    /// 0 and 1 wait for the cycle but are not in it: unlocking them would not help.
    #[test]
    fn who_only_waits_for_a_cycle_is_not_in_it() {
        let edges = [vec![1], vec![2], vec![3], vec![4], vec![2]];
        assert_eq!(cycles(&edges), [[2, 3, 4]]);
    }

    /// A chain that ends at a worker that runs will resolve, also where it branches and joins
    /// again.
    #[test]
    fn a_chain_is_no_deadlock() {
        assert!(cycles(&[vec![1, 2], vec![3], vec![3], vec![]]).is_empty());
    }

    /// A writer waits for all readers: one of them in a cycle is enough.
    #[test]
    fn one_of_several_holders_closes_a_cycle() {
        assert_eq!(cycles(&[vec![1, 2, 3], vec![], vec![0], vec![]]), [[0, 2]]);
    }

    /// Two deadlocks at the same time make two reports.
    #[test]
    fn each_cycle_is_found() {
        let edges = [vec![1], vec![0], vec![3], vec![2], vec![0, 2]];
        assert_eq!(cycles(&edges), [[0, 1], [2, 3]]);
    }

    /// 100,000 workers in one chain: the search must neither restart for each nor recurse.
    #[test]
    fn a_long_chain_is_walked_once() {
        let mut edges: Vec<_> = (1..=100_000).map(|next| vec![next]).collect();
        edges.push(vec![]);
        assert!(cycles(&edges).is_empty());
        edges[100_000].push(0);
        assert_eq!(cycles(&edges)[0].len(), 100_001);
    }

    fn waiting(worker: u32, blocker: u32, wait_type: &str, has_to: BlockedOn) -> WaitingWorker {
        WaitingWorker {
            worker,
            task: format!("t{worker}\u{1b}"),
            wait_type: wait_type.into(),
            resource: 0x1000 + u64::from(blocker),
            blocker: Some(Blocker {
                worker: blocker,
                task: format!("t{blocker}"),
                has_to,
            }),
        }
    }

    /// The report names the whole chain, and no name writes control characters to the terminal.
    #[test]
    fn the_report_names_the_chain() {
        let cycle = vec![
            waiting(1, 2, "MUTEX", BlockedOn::Unlock),
            waiting(2, 3, "JOIN", BlockedOn::End),
            waiting(3, 1, "RWLOCK_SHARED", BlockedOn::GoFirst),
        ];
        assert_eq!(
            Deadlock::Cycle(cycle).to_string(),
            "deadlock: 3 workers wait for each other\n  \
             worker 1 (task \"t1\\u{1b}\") waits for MUTEX 0x1002, held by worker 2 (task \"t2\")\n  \
             worker 2 (task \"t2\\u{1b}\") waits for JOIN 0x1003, the end of worker 3 (task \"t3\")\n  \
             worker 3 (task \"t3\\u{1b}\") waits for RWLOCK_SHARED 0x1001, behind worker 1 (task \"t1\")\n"
        );
    }

    /// A report with a hundred thousand lines would not help.
    #[test]
    fn a_long_report_is_cut() {
        let all = (0..20).map(|worker| waiting(worker, 99, "MUTEX", BlockedOn::Unlock));
        let text = Deadlock::AllWait {
            waiting: all.collect(),
            queued: 3,
        }
        .to_string();
        assert!(text.starts_with("deadlock: all 20 workers"), "{text}");
        assert!(
            text.ends_with("  and 4 more\n  tasks that wait for a worker: 3\n"),
            "{text}"
        );
    }
}
