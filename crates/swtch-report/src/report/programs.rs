//! Groups processes that do the same into programs: twelve of PostgreSQL's backends are one
//! program, and its checkpointer is another.
//!
//! A program's label comes from the command lines of its processes:
//!
//! ```text
//! postgres: alice shop [local] UPDATE   a title that the process set itself: its first two words
//! python3 worker.py, python3 web.py     different command lines of one program: each its own
//! cc1 -o a.o, cc1 -o b.o, …             too many of them, or one only: the program's name
//! kworker/0:1, kworker/1:2, …           the kernel's threads, by their kind: [kworker]
//! ```

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use swtch_output::text;

use super::group::{GroupKey, Groups};
use super::names::{Names, Process};
use swtch_core::Tally;

/// Most columns of a label that is taken from a command line.
const WIDEST: usize = 40;

/// If a program has more different command lines than this, its processes are one.
const MOST_COMMANDS: usize = 4;

/// The program that each process of a trace belongs to.
#[derive(Debug)]
pub struct Programs {
    of: Vec<usize>,
    labels: Vec<String>,
    /// Processes that were not recorded and have the name of one that was.
    namesakes: BTreeSet<usize>,
}

/// The counts of one program.
#[derive(Clone, Debug)]
pub struct ProgramCounts {
    pub label: String,
    /// The number of its processes that were counted.
    pub processes: u64,
    /// Places of these processes in [`Names::process`].
    pub places: Vec<usize>,
    /// All that was counted of them.
    pub tally: Tally,
}

impl ProgramCounts {
    /// The label, with the number of processes if there are several.
    pub fn words(&self) -> String {
        match self.processes {
            0 | 1 => self.label.clone(),
            many => format!("{} ({})", self.label, text::counted(many, "process")),
        }
    }
}

impl Programs {
    /// Assigns each process of a trace to a program.
    pub fn new(names: &Names) -> Self {
        let processes = names.processes();
        let namesakes = namesakes(names);
        let mut commands: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for process in processes {
            let label = own_title(process).unwrap_or_else(|| process.title(WIDEST));
            commands.entry(&process.comm).or_default().insert(label);
        }
        let mut places: BTreeMap<String, usize> = BTreeMap::new();
        let mut labels = Vec::new();
        let mut of = Vec::with_capacity(processes.len());
        for process in processes {
            let different = commands[process.comm.as_str()].len();
            let label = own_title(process).unwrap_or_else(|| match different {
                _ if process.is_kernel => of_kernel(&process.comm),
                2..=MOST_COMMANDS => process.title(WIDEST),
                _ => process.comm.clone(),
            });
            let label = if namesakes.contains(&of.len()) {
                format!("another {}", process.comm)
            } else {
                label
            };
            let place = *places.entry(label.clone()).or_insert_with(|| {
                labels.push(label);
                labels.len() - 1
            });
            of.push(place);
        }
        Self {
            of,
            labels,
            namesakes,
        }
    }

    /// Returns true if a process was not recorded and has the name of one that was.
    pub fn is_namesake(&self, process: usize) -> bool {
        self.namesakes.contains(&process)
    }

    /// The label of the program of a process.
    pub fn label(&self, process: usize) -> &str {
        &self.labels[self.of[process]]
    }

    /// Tallies by process, summed up: most of `count` first. Programs without any are left out.
    pub fn ranked(&self, by_process: &Groups, count: impl Fn(&Tally) -> u64) -> Vec<ProgramCounts> {
        let mut programs: BTreeMap<usize, ProgramCounts> = BTreeMap::new();
        for (key, tally) in by_process.ranked() {
            let GroupKey::Process(place) = *key else {
                unreachable!("these groups are processes");
            };
            if count(tally) == 0 {
                continue;
            }
            let program = programs
                .entry(self.of[place])
                .or_insert_with(|| ProgramCounts {
                    label: self.label(place).to_owned(),
                    processes: 0,
                    places: Vec::new(),
                    tally: Tally::default(),
                });
            program.processes += 1;
            program.places.push(place);
            program.tally.add(tally);
        }
        let mut ranked: Vec<_> = programs.into_values().collect();
        ranked.sort_by_key(|program| (Reverse(count(&program.tally)), program.label.clone()));
        ranked
    }
}

/// Processes that were not recorded and have the name of one that was: nothing but the name is the same.
fn namesakes(names: &Names) -> BTreeSet<usize> {
    let processes = names.processes();
    let recorded = names.recorded();
    let of_recorded: BTreeSet<&str> = (0..processes.len())
        .filter(|place| recorded[*place])
        .map(|place| processes[place].comm.as_str())
        .collect();
    (0..processes.len())
        .filter(|place| !recorded[*place] && processes[*place].pid.is_some())
        .filter(|place| of_recorded.contains(processes[*place].comm.as_str()))
        .collect()
}

/// Kernel threads of one kind in brackets, as ps has them: `[kworker]` for `kworker/0:1-events`.
pub fn of_kernel(comm: &str) -> String {
    let kind = comm.split(['/', ':']).next().unwrap_or(comm);
    format!("[{kind}]")
}

/// The first two words of a title that a process has set for itself, as setproctitle(3) makes them:
/// `postgres: checkpointer`, `nginx: worker process`. The name of the server among several
/// (`postgres: 15/main: checkpointer`, by `cluster_name`) is skipped, because it would hide what
/// the process does.
fn own_title(process: &Process) -> Option<String> {
    let command = process.command.as_deref()?;
    let (program, role) = command.split_once(": ")?;
    let is_name = !program.is_empty() && !program.contains([' ', '/']);
    let mut words = role.split_whitespace().filter(|_| is_name);
    let first = words.next()?;
    let role = if first.ends_with(':') {
        words.next().unwrap_or(first)
    } else {
        first
    };
    let label = text::escaped(&format!("{program}: {role}")).into_owned();
    (text::width(&label) <= WIDEST).then_some(label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn::seen;
    use swtch_core::{Pid, TaskKey, Timestamp};
    use swtch_store::CommandRow;

    fn labels(processes: &[(&str, &str)]) -> Vec<String> {
        let numbered = || processes.iter().zip(1..);
        let events: Vec<_> = numbered()
            .map(|((comm, _), key)| seen(key, 10 * key, 10 * key, comm))
            .collect();
        let commands: Vec<_> = numbered()
            .map(|((_, command), key)| CommandRow {
                ts: Timestamp::from_ns(1),
                pid: Pid::new(10 * key),
                command: (*command).to_owned(),
            })
            .collect();
        let names = Names::with_commands(&events, &commands);
        let programs = Programs::new(&names);
        let label = |key| {
            let process = names.thread(names.index(TaskKey::new(key))).process;
            programs.label(process).to_owned()
        };
        numbered().map(|(_, key)| label(key)).collect()
    }

    #[test]
    fn backends_of_a_server_are_one_and_its_checkpointer_another() {
        let told = labels(&[
            ("postgres", "postgres: bench bench [local] UPDATE"),
            (
                "postgres",
                "postgres: bench bench [local] idle in transaction",
            ),
            ("postgres", "postgres: checkpointer"),
            ("postgres", "postgres: 15/main: walwriter "),
            (
                "postgres",
                "/usr/lib/postgresql/15/bin/postgres -D /var/lib/x",
            ),
        ]);
        let expected = [
            "postgres: bench",
            "postgres: bench",
            "postgres: checkpointer",
            "postgres: walwriter",
            "postgres -D /var/lib/x",
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn scripts_are_told_apart_and_a_hundred_compilers_are_not() {
        let told = labels(&[
            ("python3", "python3 web.py"),
            ("python3", "python3 worker.py"),
        ]);
        assert_eq!(told, ["python3 web.py", "python3 worker.py"]);
        let lines: Vec<_> = (0..9).map(|file| format!("cc1 -o {file}.o")).collect();
        let compilers: Vec<_> = lines.iter().map(|line| ("cc1", line.as_str())).collect();
        assert_eq!(labels(&compilers), ["cc1"; 9]);
    }

    /// A busy loop is recorded, and another one is not.
    #[test]
    fn a_stranger_of_the_same_name_is_told_apart() {
        let stranger = swtch_core::TaskEvent {
            in_scope: false,
            ..seen(2, 20, 20, "hog")
        };
        let names = Names::new(&[seen(1, 10, 10, "hog"), stranger]);
        let programs = Programs::new(&names);
        let label = |key| programs.label(names.thread(names.index(TaskKey::new(key))).process);
        assert_eq!([label(1), label(2)], ["hog", "another hog"]);
    }

    #[test]
    fn a_colon_alone_makes_no_title() {
        assert_eq!(labels(&[("sh", "sh -c echo a: b")]), ["sh"]);
        assert_eq!(labels(&[("a", "a: ")]), ["a"]);
        assert_eq!(labels(&[("a", ": b")]), ["a"]);
    }
}
