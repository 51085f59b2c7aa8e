//! Workers that wait for each other, or for nobody.
//!
//! A wait for a mutex, a read-write lock or the end of a task is an edge to each worker that has to act
//! first. Such a wait needs all of them, so whoever stands in a circle of edges waits for ever,
//! whatever else runs. Without a circle it can still be that all workers wait and nothing is left that
//! could wake one.
//!
//! Here is what can be said of edges and told to a person; `waits` reads them.

use std::fmt;
use std::time::Duration;

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
    /// The worker that has to act first, where one is known that waits as well.
    pub blocker: Option<Blocker>,
}

/// A worker that another one waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Blocker {
    /// Number of the worker.
    pub worker: u32,
    /// Name of its task.
    pub task: String,
    /// What it has to do first.
    pub has_to: HasTo,
}

/// What a worker has to do before another one can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HasTo {
    /// Unlock what it holds.
    Unlock,
    /// End its task.
    End,
    /// Have its turn: it stands before the other one in the line of a read-write lock.
    GoFirst,
}

/// Why workers will wait for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deadlock {
    /// Each waits for the next one, and the last for the first.
    Cycle(Vec<Waiting>),
    /// All wait, and nobody is left who could wake them: no timer, no I/O, no preemptive work, and
    /// every other thread of the process waits itself.
    #[non_exhaustive]
    AllWait {
        /// The workers that wait.
        waiting: Vec<Waiting>,
        /// Tasks that wait for a worker to be free.
        queued: u64,
    },
    /// Preemptive sections wait for a helper thread, and none has become free for long: a deadlock if
    /// those that run wait for those that do not.
    #[non_exhaustive]
    NoHelper {
        /// Helper threads, as many as the runtime may have.
        helpers: usize,
        /// Sections that wait for one.
        queued: usize,
        /// How long none has become free.
        lasted: Duration,
    },
}

/// Workers named in a report at most.
const NAMED: usize = 16;

/// Circles of edges, no place in two of them. Takes as many steps as there are edges.
pub(super) fn circles(edges: &[Vec<usize>]) -> Vec<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Met {
        Not,
        /// It lies on the path at hand, at this depth.
        OnPath(usize),
        Done,
    }
    let mut met = vec![Met::Not; edges.len()];
    let mut found = Vec::new();
    for first in 0..edges.len() {
        if met[first] != Met::Not {
            continue;
        }
        // Places, and how many edges of each have been followed.
        let mut path = vec![(first, 0)];
        met[first] = Met::OnPath(0);
        while let Some((place, followed)) = path.last_mut() {
            let Some(next) = edges[*place].get(*followed).copied() else {
                met[*place] = Met::Done;
                path.pop();
                continue;
            };
            *followed += 1;
            match met[next] {
                Met::Not => {
                    met[next] = Met::OnPath(path.len());
                    path.push((next, 0));
                }
                Met::OnPath(depth) => {
                    found.push(path[depth..].iter().map(|(place, _)| *place).collect());
                    for (place, _) in path.drain(..) {
                        met[place] = Met::Done;
                    }
                }
                Met::Done => {}
            }
        }
    }
    found
}

impl fmt::Display for Deadlock {
    /// A line a worker.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cycle(circle) => {
                match circle.len() {
                    1 => writeln!(f, "deadlock: a worker waits for itself")?,
                    workers => writeln!(f, "deadlock: {workers} workers wait for each other")?,
                }
                lines(f, circle)
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

fn lines(f: &mut fmt::Formatter<'_>, all: &[Waiting]) -> fmt::Result {
    for waiting in all.iter().take(NAMED) {
        writeln!(f, "  {waiting}")?;
    }
    match all.len().saturating_sub(NAMED) {
        0 => Ok(()),
        more => writeln!(f, "  and {more} more"),
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (wait_type, resource) = (self.wait_type.escape_debug(), self.resource);
        who(f, self.worker, &self.task)?;
        write!(f, " waits for {wait_type} {resource:#x}")?;
        let Some(blocker) = &self.blocker else {
            return Ok(());
        };
        f.write_str(match blocker.has_to {
            HasTo::Unlock => ", held by ",
            HasTo::End => ", the end of ",
            HasTo::GoFirst => ", behind ",
        })?;
        who(f, blocker.worker, &blocker.task)
    }
}

/// A worker by number and task.
fn who(f: &mut fmt::Formatter<'_>, worker: u32, task: &str) -> fmt::Result {
    write!(f, "worker {worker} (task \"{}\")", task.escape_debug())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The classic: two locks in two orders.
    #[test]
    fn two_that_wait_for_each_other_are_a_circle() {
        assert_eq!(circles(&[vec![], vec![2], vec![1]]), [[1, 2]]);
    }

    /// A worker that reads what it reads already, behind a writer that waits for it.
    #[test]
    fn one_that_waits_for_itself_is_a_circle() {
        assert_eq!(circles(&[vec![0]]), [[0]]);
    }

    /// 0 and 1 wait for the circle but are not in it: unlocking them would not help.
    #[test]
    fn who_only_waits_for_a_circle_is_not_in_it() {
        let edges = [vec![1], vec![2], vec![3], vec![4], vec![2]];
        assert_eq!(circles(&edges), [[2, 3, 4]]);
    }

    /// A chain that ends with somebody who runs will resolve, also where it branches and meets again.
    #[test]
    fn a_chain_is_no_deadlock() {
        assert!(circles(&[vec![1, 2], vec![3], vec![3], vec![]]).is_empty());
    }

    /// A writer waits for all readers: one of them in a circle is enough.
    #[test]
    fn one_of_several_holders_closes_a_circle() {
        assert_eq!(circles(&[vec![1, 2, 3], vec![], vec![0], vec![]]), [[0, 2]]);
    }

    /// Two deadlocks at the same time are two reports.
    #[test]
    fn each_circle_is_found() {
        let edges = [vec![1], vec![0], vec![3], vec![2], vec![0, 2]];
        assert_eq!(circles(&edges), [[0, 1], [2, 3]]);
    }

    /// 100,000 workers in one chain: the walk must not start anew for each, nor use the stack.
    #[test]
    fn a_long_chain_is_walked_once() {
        let mut edges: Vec<_> = (1..=100_000).map(|next| vec![next]).collect();
        edges.push(vec![]);
        assert!(circles(&edges).is_empty());
        edges[100_000].push(0);
        assert_eq!(circles(&edges)[0].len(), 100_001);
    }

    fn waiting(worker: u32, blocker: u32, wait_type: &str, has_to: HasTo) -> Waiting {
        Waiting {
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

    /// The report names the whole chain, and no name writes to the terminal.
    #[test]
    fn the_report_names_the_chain() {
        let circle = vec![
            waiting(1, 2, "MUTEX", HasTo::Unlock),
            waiting(2, 3, "JOIN", HasTo::End),
            waiting(3, 1, "RWLOCK_SHARED", HasTo::GoFirst),
        ];
        assert_eq!(
            Deadlock::Cycle(circle).to_string(),
            "deadlock: 3 workers wait for each other\n  \
             worker 1 (task \"t1\\u{1b}\") waits for MUTEX 0x1002, held by worker 2 (task \"t2\")\n  \
             worker 2 (task \"t2\\u{1b}\") waits for JOIN 0x1003, the end of worker 3 (task \"t3\")\n  \
             worker 3 (task \"t3\\u{1b}\") waits for RWLOCK_SHARED 0x1001, behind worker 1 (task \"t1\")\n"
        );
    }

    /// A hundred thousand lines help nobody.
    #[test]
    fn a_long_report_is_cut() {
        let all = (0..20).map(|worker| waiting(worker, 99, "MUTEX", HasTo::Unlock));
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
