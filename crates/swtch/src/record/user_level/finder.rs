//! Finds processes that have a user-mode scheduler, on a thread of its own: to look at a process
//! takes some microseconds a file that it holds open, and the rings must not wait for that.
//!
//! A scheduler's page comes with the threads of its runtime. So a process is looked at when the
//! capture first names it, and for half a second after each thread that it starts, program that it
//! executes, or name that it takes: 6 looks, and none at a process that does none of this. For `-a` that
//! is every process that runs at all, once.
//!
//! The thread keeps the right to look at other users' processes (`CAP_SYS_PTRACE`), as symbolising
//! stacks does; the thread that records keeps nothing.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};
use swtch_capture::{Kept, drop_privileges, kernel_version};
use swtch_core::{Pid, TaskEvent, TaskEventKind};
use swtch_fiber::observe::{Error, Page};

use super::EVERY;

/// Looks at a process after it has done something that a new scheduler would.
const LOOKS: u8 = 6;

/// Processes that are looked at in one round, so that a machine that starts thousands keeps its CPU.
const MOST_A_ROUND: usize = 64;

/// A process that may have a scheduler now.
#[derive(Clone, Copy, Debug)]
struct Hint {
    pid: Pid,
    /// It is another program now: what was known of it is not true any more.
    is_exec: bool,
}

/// What the search came to.
pub(super) enum Met {
    /// A process has a page.
    Page(Box<Page>),
    /// A process has one that cannot be used, in words.
    Refused(String),
}

/// The search.
pub(super) struct Finder {
    hints: Sender<Hint>,
    found: Receiver<Met>,
}

impl Finder {
    /// Starts it. Dropping it ends the thread within a round.
    pub(super) fn start() -> io::Result<Self> {
        let (hints, heard) = channel();
        let (tell, found) = channel();
        let search = move || {
            // Where nothing can be given up, there was nothing to keep.
            let _ = drop_privileges(Kept::ReadMaps, kernel_version());
            Search::default().run(&heard, &tell);
        };
        thread::Builder::new()
            .name("swtch-finder".into())
            .spawn(search)?;
        Ok(Self { hints, found })
    }

    /// Passes on what a task's event hints at.
    pub(super) fn meet(&self, task: &TaskEvent) {
        let is_new_thread = task.tid.get() != task.pid.get();
        let is_hint = match task.kind {
            TaskEventKind::Fork => is_new_thread,
            TaskEventKind::Exit => false,
            TaskEventKind::Seen | TaskEventKind::Exec | TaskEventKind::Rename => true,
        };
        if is_hint && task.in_scope && !task.is_kthread {
            // A search that has ended finds nothing more.
            let _ = self.hints.send(Hint {
                pid: task.pid,
                is_exec: task.kind == TaskEventKind::Exec,
            });
        }
    }

    /// What was found since this was last asked.
    pub(super) fn found(&self) -> Vec<Met> {
        self.found.try_iter().collect()
    }
}

/// What the searching thread knows.
#[derive(Default)]
struct Search {
    looks_left: FxHashMap<Pid, u8>,
    known: FxHashSet<Pid>,
}

impl Search {
    fn run(&mut self, hints: &Receiver<Hint>, tell: &Sender<Met>) {
        loop {
            if !self.hear(hints) {
                return;
            }
            for met in self.round() {
                if tell.send(met).is_err() {
                    return;
                }
            }
        }
    }

    /// Waits for a round's time, or for the first hint when nobody is to be looked at. False when
    /// the recording has ended.
    fn hear(&mut self, hints: &Receiver<Hint>) -> bool {
        let until = Instant::now() + EVERY;
        if self.looks_left.is_empty() {
            match hints.recv() {
                Ok(hint) => self.note(hint),
                Err(_) => return false,
            }
        }
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match hints.recv_timeout(left.max(Duration::from_millis(1))) {
                Ok(hint) => self.note(hint),
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
            if left.is_zero() {
                break;
            }
        }
        loop {
            match hints.try_recv() {
                Ok(hint) => self.note(hint),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn note(&mut self, hint: Hint) {
        if hint.is_exec {
            self.known.remove(&hint.pid);
        }
        if !self.known.contains(&hint.pid) {
            self.looks_left.insert(hint.pid, LOOKS);
        }
    }

    /// Looks at those whose turn it is.
    fn round(&mut self) -> Vec<Met> {
        let turn: Vec<Pid> = self.looks_left.keys().copied().take(MOST_A_ROUND).collect();
        let looks = turn.into_iter().filter_map(|pid| self.look(pid));
        looks.collect()
    }

    fn look(&mut self, pid: Pid) -> Option<Met> {
        let met = match Page::of_process(pid.get()) {
            Ok(page) => Met::Page(Box::new(page)),
            Err(Error::NoScheduler { .. }) => {
                let left = self.looks_left.get(&pid).copied().unwrap_or(0);
                match left.checked_sub(1).filter(|left| *left > 0) {
                    Some(left) => self.looks_left.insert(pid, left),
                    None => self.looks_left.remove(&pid),
                };
                return None;
            }
            // Of processes that may not be looked at, most have no scheduler: nothing is said.
            Err(Error::NoProcess { .. } | Error::NotPermitted { .. }) => {
                self.looks_left.remove(&pid);
                return None;
            }
            Err(error) => Met::Refused(in_words(&error)),
        };
        self.looks_left.remove(&pid);
        self.known.insert(pid);
        Some(met)
    }
}

/// An error with its causes.
fn in_words(error: &Error) -> String {
    let mut words = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        words += &format!(": {cause}");
        source = cause.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn hint(pid: u32, is_exec: bool) -> Hint {
        Hint {
            pid: Pid::new(pid),
            is_exec,
        }
    }

    /// A process that has none costs a few looks and is then left alone.
    #[test]
    fn a_process_without_scheduler_is_looked_at_a_few_times() {
        // Other tests of this process make schedulers.
        let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
        let mut search = Search::default();
        search.note(hint(sleeper.id(), false));
        for _ in 0..LOOKS {
            assert!(!search.looks_left.is_empty());
            assert!(search.round().is_empty());
        }
        assert!(search.looks_left.is_empty());
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
    }

    #[test]
    fn a_process_that_is_gone_is_not_looked_at_again() {
        let mut search = Search::default();
        search.note(hint(u32::MAX - 1, false));
        assert!(search.round().is_empty());
        assert!(search.looks_left.is_empty());
    }

    /// One page a program: the same page twice would be two streams of the same switches.
    #[test]
    fn a_known_process_is_looked_at_again_only_when_it_is_another_program() {
        let mut search = Search::default();
        search.known.insert(Pid::new(7));
        search.note(hint(7, false));
        assert!(search.looks_left.is_empty());
        search.note(hint(7, true));
        assert_eq!(search.looks_left.len(), 1);
    }
}
