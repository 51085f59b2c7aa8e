//! Which processes publish what their threads work on: looked for again and again, since processes begin, and load
//! libraries later.

use std::fs::{self, File};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use swtch_core::Pid;

use super::ContextPlace;
use super::place::{ContextVariable, place_in};
use crate::code::{CodeFile, CodeMap, CodeMapping};
use crate::scope::start_ticks;

/// A process in which nothing was found is looked at again when twice the time has passed that it has been known, at
/// least after the one and at most after the other.
const SHORTEST: Duration = Duration::from_millis(200);
const LONGEST: Duration = Duration::from_secs(60);

/// The most files, and processes, of which something is remembered. Then all is looked up anew.
const MOST_KNOWN: usize = 1 << 16;

/// A process that publishes contexts, or has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextChange {
    /// The process.
    pub pid: Pid,
    /// Where its threads have the variable; `None` if it has ended.
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
    since: Instant,
    /// When it is looked at next; `None` once the variable was found.
    next: Option<Instant>,
}

impl ContextProcesses {
    /// Looks at the processes that there are, and returns those that are new, and those that have ended.
    pub fn look(&mut self) -> Vec<ContextChange> {
        let now = Instant::now();
        if self.known.len().max(self.files.len()) > MOST_KNOWN {
            self.known.clear();
            self.files.clear();
        }
        let pids = pids();
        let mut changes = Vec::new();
        self.known.retain(|pid, known| {
            let is_there = pids.contains_key(pid);
            if !is_there && known.next.is_none() {
                changes.push(ContextChange {
                    pid: *pid,
                    place: None,
                });
            }
            is_there
        });
        for (pid, started) in pids {
            if !self.is_due(pid, started, now) {
                continue;
            }
            let place = self.place_of(pid);
            if place.is_some() {
                changes.push(ContextChange { pid, place });
            }
            let known = self.known.entry(pid).or_insert(KnownProcess {
                started,
                since: now,
                next: None,
            });
            let again = || now + (now - known.since).clamp(SHORTEST, LONGEST);
            known.next = place.is_none().then(again);
        }
        changes
    }

    fn is_due(&mut self, pid: Pid, started: u64, now: Instant) -> bool {
        let known = self.known.get(&pid);
        if known.is_some_and(|known| known.started != started) {
            self.known.remove(&pid);
            return true;
        }
        known.is_none_or(|known| known.next.is_some_and(|next| next <= now))
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

/// The processes that there are, and when each began.
fn pids() -> FxHashMap<Pid, u64> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Some((Pid::new(pid), start_ticks(&stat)?))
    });
    pids.collect()
}
