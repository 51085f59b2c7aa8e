//! Command lines of processes: `postgres: checkpointer` says more than `postgres`, twelve times.
//!
//! The kernel's events bring names of 15 bytes. The command line is in the process, so it is read from
//! `/proc/PID/cmdline` (proc(5)), as ps does:
//!
//! ```text
//! executed              in the next round: a short-lived program is gone soon
//! seen, forked, renamed at the next flush: a fork has its parent's words until it sets its own
//! at the end            once more, of all that are alive: servers write there what they do
//! ```
//!
//! A process that is gone, or that this user may not look at, has no command line here: it goes by its
//! name.

use std::fs::File;
use std::io::Read as _;

use rustc_hash::{FxHashMap, FxHashSet};
use swtch_capture::monotonic_ns;
use swtch_core::{Pid, TaskEvent, TaskEventKind, Timestamp};
use swtch_store::CommandRow;

use crate::text::from_bytes;

/// The longest that is kept of a command line: any program may write megabytes there.
const MOST_BYTES: u64 = 1024;

/// Reads in one round: each takes some 10 µs, in which nobody empties the rings.
const MOST_A_ROUND: usize = 100;

/// Command lines that were read, and processes whose line is still to be read.
#[derive(Debug, Default)]
pub struct Commands {
    /// Of processes that are alive.
    known: FxHashMap<Pid, Option<String>>,
    soon: FxHashSet<Pid>,
    later: FxHashSet<Pid>,
    fresh: Vec<CommandRow>,
}

impl Commands {
    /// Takes note of what happened to a task.
    pub fn meet(&mut self, task: &TaskEvent) {
        let is_leader = task.pid.get() == task.tid.get();
        if task.is_kthread || !is_leader {
            return;
        }
        match task.kind {
            TaskEventKind::Exec => {
                self.soon.insert(task.pid);
            }
            TaskEventKind::Exit => {
                // Its id may come to another process.
                self.known.remove(&task.pid);
                self.soon.remove(&task.pid);
                self.later.remove(&task.pid);
            }
            _ => {
                self.later.insert(task.pid);
            }
        }
    }

    /// Reads those that may be gone soon.
    pub fn round(&mut self) {
        for pid in take(&mut self.soon, MOST_A_ROUND) {
            self.read(pid);
        }
    }

    /// What is new since the last time. The rest of those to be read comes in the next rounds.
    pub fn flush(&mut self) -> Vec<CommandRow> {
        for pid in take(&mut self.later, MOST_A_ROUND) {
            self.read(pid);
        }
        self.soon.extend(self.later.drain());
        std::mem::take(&mut self.fresh)
    }

    /// Reads all of them again: what is new.
    pub fn end(&mut self) -> Vec<CommandRow> {
        let mut pids: Vec<_> = self.known.keys().copied().collect();
        pids.extend(self.soon.drain());
        pids.extend(self.later.drain());
        for pid in pids {
            self.read(pid);
        }
        std::mem::take(&mut self.fresh)
    }

    fn read(&mut self, pid: Pid) {
        let command = command_line(pid);
        let known = self.known.entry(pid).or_default();
        if command.is_none() || *known == command {
            return;
        }
        self.fresh.extend(command.iter().map(|command| CommandRow {
            ts: Timestamp::from_ns(monotonic_ns()),
            pid,
            command: command.clone(),
        }));
        *known = command;
    }
}

/// At most `most` of them, which leave the set.
fn take(pids: &mut FxHashSet<Pid>, most: usize) -> Vec<Pid> {
    let taken: Vec<_> = pids.iter().copied().take(most).collect();
    for pid in &taken {
        pids.remove(pid);
    }
    taken
}

/// `None` of a process that is gone, has no command line, or does not show it.
fn command_line(pid: Pid) -> Option<String> {
    let file = File::open(format!("/proc/{pid}/cmdline")).ok()?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    in_words(&bytes)
}

/// Words end in NUL bytes. A program that writes a line of its own there pads it with NULs or spaces.
fn in_words(bytes: &[u8]) -> Option<String> {
    let words = bytes.split(|byte| *byte == 0).map(from_bytes);
    let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    let line = words.join(" ").trim().to_owned();
    (!line.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_spaces_between_them() {
        let line = |bytes| in_words(bytes).unwrap_or_default();
        assert_eq!(line(b"sleep\x00100\x00"), "sleep 100");
        assert_eq!(
            line(b"postgres: checkpointer  \x00\x00\x00"),
            "postgres: checkpointer"
        );
        assert_eq!(line(b"a\x1b[2J\xff\x00"), "a\x1b[2J\\xff");
        assert_eq!(in_words(b"\x00\x00"), None);
        assert_eq!(in_words(b""), None);
    }

    #[test]
    fn a_process_is_read_once_unless_it_changes() {
        let own = Pid::new(std::process::id());
        let mut commands = Commands::default();
        commands.later.insert(own);
        let first = commands.flush();
        assert_eq!(first.len(), 1);
        assert!(!first[0].command.is_empty());
        commands.soon.insert(own);
        commands.round();
        assert_eq!(commands.end(), []);
    }

    #[test]
    fn what_is_gone_has_no_command_line() {
        let mut commands = Commands::default();
        commands.soon.insert(Pid::new(u32::MAX));
        commands.round();
        assert_eq!(commands.flush(), []);
    }

    #[test]
    fn many_are_read_in_many_rounds() {
        let mut commands = Commands::default();
        let most = u32::try_from(MOST_A_ROUND).expect("a small number");
        commands
            .later
            .extend((0..3 * most).map(|pid| Pid::new(u32::MAX - pid)));
        commands.flush();
        assert_eq!(commands.soon.len(), 2 * MOST_A_ROUND);
        commands.round();
        assert_eq!(commands.soon.len(), MOST_A_ROUND);
    }
}
