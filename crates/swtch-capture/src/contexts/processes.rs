//! Which processes publish what their threads work on: looked for again and again, since processes begin, and load
//! libraries later.

use std::fs::{self, File};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use swtch_core::{Pid, ProcessStat};

use super::ContextPlace;
use super::place::{ContextVariable, place_in};
use crate::code::{CodeFile, CodeMap, CodeMapping};

/// A process is looked at again when twice the time has passed that it has been known by its name, at least after the one
/// and at most after the other: it may load a library. One that executes another program has another name then.
const SHORTEST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(10);

/// The most files, and processes, of which something is remembered. Then all is looked up anew.
const MOST_KNOWN: usize = 1 << 16;

/// What is known of a process that publishes contexts, or does not any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextChange {
    /// The process.
    pub pid: Pid,
    /// Where its threads have the variable; `None` if it has ended, or executed a program without it.
    pub place: Option<ContextPlace>,
}

/// The processes that are known.
#[derive(Debug, Default)]
pub struct ContextProcesses {
    known: FxHashMap<Pid, KnownProcess>,
    /// What each file says; `None` if it has no such variable.
    files: FxHashMap<CodeFile, Option<ContextVariable>>,
}

/// What is known of a process.
#[derive(Debug)]
struct KnownProcess {
    /// Another process that gets its id began later.
    started: u64,
    name: Vec<u8>,
    since: Instant,
    /// When it is looked at next.
    next: Instant,
    /// Where it has the variable.
    place: Option<ContextPlace>,
}

impl ContextProcesses {
    /// Looks at the processes whose turn it is, and returns those that have the variable, or have it no more.
    pub fn look(&mut self) -> Vec<ContextChange> {
        let now = Instant::now();
        if self.known.len() > MOST_KNOWN {
            self.known.retain(|_, known| known.place.is_some());
        }
        if self.files.len() > MOST_KNOWN {
            self.files.clear();
        }
        let pids = pids();
        let mut changes = Vec::new();
        self.known.retain(|pid, known| {
            let is_same = pids
                .get(pid)
                .is_some_and(|(started, _)| *started == known.started);
            if !is_same && known.place.is_some() {
                changes.push(ContextChange {
                    pid: *pid,
                    place: None,
                });
            }
            is_same
        });
        for (pid, (started, name)) in pids {
            let known = self.known.get(&pid);
            let before = known.and_then(|known| known.place);
            let known = known.filter(|known| known.name == name);
            if known.is_some_and(|known| known.next > now) {
                continue;
            }
            let since = known.map_or(now, |known| known.since);
            let place = self.place_of(pid);
            // Told again each time: the kernel's side does not follow a process into another program, which may be the
            // same once more.
            if place.is_some() || before.is_some() {
                changes.push(ContextChange { pid, place });
            }
            let next = now + (now - since).clamp(SHORTEST, LONGEST);
            let known = KnownProcess {
                started,
                name,
                since,
                next,
                place,
            };
            self.known.insert(pid, known);
        }
        changes
    }

    fn place_of(&mut self, pid: Pid) -> Option<ContextPlace> {
        let map = CodeMap::of(pid).ok()?;
        place_in(pid, &map, |mapping| self.variable_of(pid, mapping))
    }

    /// What a file that a process maps says, and the file, if it has the variable.
    fn variable_of(&mut self, pid: Pid, mapping: &CodeMapping) -> Option<(ContextVariable, File)> {
        let file = mapping.file.as_ref()?;
        if let Some(known) = self.files.get(file) {
            return Some(((*known)?, file.open(pid).ok()?));
        }
        let opened = file.open(pid).ok()?;
        let variable = ContextVariable::of(&opened);
        self.files.insert(file.clone(), variable);
        Some((variable?, opened))
    }
}

/// The processes that there are, when each began, and its name.
fn pids() -> FxHashMap<Pid, (u64, Vec<u8>)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
        let stat = ProcessStat::parse(&stat)?;
        let began = (stat.start_ticks()?, stat.name().to_vec());
        Some((Pid::new(pid), began))
    });
    pids.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_process_without_the_variable_nothing_is_told_and_it_is_looked_at_again() {
        let own = Pid::new(std::process::id());
        let mut processes = ContextProcesses::default();
        let of_own = |changes: &[ContextChange]| changes.iter().any(|change| change.pid == own);
        assert!(!of_own(&processes.look()));
        let known = &processes.known[&own];
        assert_eq!((known.place, known.next - known.since), (None, SHORTEST));
        // Another process has got the id of one that had the variable.
        let place = ContextPlace {
            module: 0,
            offset: 8,
        };
        let known = processes.known.get_mut(&own).unwrap();
        (known.place, known.started) = (Some(place), 0);
        let gone = ContextChange {
            pid: own,
            place: None,
        };
        assert!(processes.look().contains(&gone));
        assert_eq!(processes.known[&own].place, None);
    }
}
