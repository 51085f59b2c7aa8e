//! Finds processes that have a user-mode scheduler, in a separate process.
//!
//! ```text
//! recorder (no rights)                     swtch find-schedulers (CAP_SYS_PTRACE, no new ones)
//!  task events ─ hints: these processes ─▶ a few looks at each one's open files
//!  Page ◀─ handle of the process, memory file (SCM_RIGHTS) ─┘
//! ```
//!
//! Inspecting processes of other users takes a right. The thread that reads what all processes
//! wrote must have none, and threads of one process could lend it to each other, so the finder is a
//! separate process. Inspection also takes some microseconds for each file that a process holds
//! open, and draining the rings must not wait for that. The finder ends with the recorder, however
//! that ends: its socket is closed then, and the kernel sends it SIGKILL.
//!
//! A scheduler's page is created with the threads of its runtime. So a process is inspected when
//! the capture first names it, and for half a second after each thread that it starts, program that
//! it executes, or name that it takes: 6 looks, and none at a process that does none of this. With
//! `-a` every process that runs at all is inspected at first. 64 processes get a look in a tenth of
//! a second; if more wait, they take turns, and the half second becomes longer.

mod messages;
mod search;
mod turns;

use std::io;
use std::os::fd::OwnedFd;

use rustc_hash::FxHashMap;
use swtch_core::{Pid, TaskEvent, TaskEventKind};
use swtch_observe::Page;

use messages::{FinderReply, Hint, MOST_HINTS};

use crate::helper::HelperProcess;
use crate::packets::{self, Blocking};

pub use search::find_schedulers;

/// The hidden command that runs the finder.
const VERB: &str = "find-schedulers";

/// A report of the finder about a process.
#[derive(Debug)]
pub enum FinderReport {
    /// The page of a process that has a scheduler.
    Page(Box<Page>),
    /// The reason why something is not watched.
    Refused(String),
}

/// Handle of the finder's process. Dropping it ends the process.
#[derive(Debug)]
pub struct Finder {
    process: HelperProcess,
    /// Hints that were not sent yet; true if the process has executed a new program.
    hints: FxHashMap<Pid, bool>,
}

impl Finder {
    /// Starts the finder. Must be called while there are rights that it can inherit.
    ///
    /// # Errors
    /// When no process can be started.
    pub fn start() -> io::Result<Self> {
        Ok(Self {
            process: HelperProcess::start(VERB)?,
            hints: FxHashMap::default(),
        })
    }

    /// Notes a process if the event hints at a new scheduler.
    pub fn meet(&mut self, task: &TaskEvent) {
        let is_new_thread = task.tid.get() != task.pid.get();
        let is_hint = match task.kind {
            TaskEventKind::Fork => is_new_thread,
            TaskEventKind::Exit => false,
            TaskEventKind::Seen | TaskEventKind::Exec | TaskEventKind::Rename => true,
        };
        if is_hint && task.in_scope && !task.is_kthread {
            *self.hints.entry(task.pid).or_default() |= task.kind == TaskEventKind::Exec;
        }
    }

    /// Sends the hints that were noted. Those that find no room in the socket are kept for the next
    /// call.
    pub fn pass_on(&mut self) {
        let Some(socket) = &self.process.socket else {
            return self.hints.clear();
        };
        while !self.hints.is_empty() {
            let hint = |(pid, is_exec): (&Pid, &bool)| Hint {
                pid: pid.get(),
                is_exec: *is_exec,
            };
            let batch: Vec<Hint> = self.hints.iter().map(hint).take(MOST_HINTS).collect();
            // If the finder is gone, reading its answers notices and reports that.
            if packets::send(socket, &batch, &[], Blocking::DoNotWait).is_err() {
                return;
            }
            for hint in batch {
                self.hints.remove(&Pid::new(hint.pid));
            }
        }
    }

    /// The answers of the finder since the last call.
    pub fn found(&mut self) -> Vec<FinderReport> {
        let mut found = Vec::new();
        while let Some(socket) = &self.process.socket {
            let why = match packets::receive(socket, Blocking::DoNotWait) {
                Ok(Some((answer, descriptors))) => {
                    found.push(met(answer, descriptors));
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(None) => "it has ended".to_owned(),
                Err(error) => error.to_string(),
            };
            self.process.socket = None;
            let what = "user-mode schedulers are not looked for any more";
            found.push(FinderReport::Refused(format!("{what}: {why}")));
        }
        found
    }

    /// The finder's process, whose cost is part of the overhead.
    pub const fn process(&self) -> &HelperProcess {
        &self.process
    }
}

/// Converts an answer, with the descriptors of a page if there is one. The page is checked again
/// here: its contents may have changed meanwhile, and one process must not rely on another's
/// checks.
fn met(answer: FinderReply, descriptors: Vec<OwnedFd>) -> FinderReport {
    match (answer, <[OwnedFd; 2]>::try_from(descriptors)) {
        (FinderReply::Page { pid }, Ok(descriptors)) => {
            match Page::from_descriptors(pid, descriptors) {
                Ok(page) => FinderReport::Page(Box::new(page)),
                Err(error) => FinderReport::Refused(format!("{:#}", anyhow::Error::from(error))),
            }
        }
        (FinderReply::Page { pid }, Err(_)) => {
            FinderReport::Refused(format!("the page of process {pid} came without its file"))
        }
        (FinderReply::Refused(why), _) => FinderReport::Refused(why),
    }
}
