//! Finds processes that have a user-mode scheduler, by a process of its own.
//!
//! ```text
//! recorder (no rights)                     swtch find-schedulers (CAP_SYS_PTRACE, no new ones)
//!  task events ─ hints: these processes ─▶ a few looks at each one's open files
//!  Page ◀─ handle of the process, memory file (SCM_RIGHTS) ─┘
//! ```
//!
//! To look at processes of others takes a right, and the thread that reads what all others wrote
//! shall have none; threads of one process could lend it to each other. It takes some microseconds a
//! file that a process holds open, too, and the rings must not wait for that. The finder ends with
//! the recorder, however that ends: its socket is closed then, and the kernel sends it SIGKILL.
//!
//! A scheduler's page comes with the threads of its runtime. So a process is looked at when the
//! capture first names it, and for half a second after each thread that it starts, program that it
//! executes, or name that it takes: 6 looks, and none at a process that does none of this. For `-a` that
//! is every process that runs at all, once. In a tenth of a second 64 get their look; where more wait,
//! they take turns, and the half second becomes longer.

mod search;
mod turns;
mod wire;

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use nix::time::{ClockId, clock_getcpuclockid};
use rustc_hash::FxHashMap;
use swtch_core::{Nanos, Pid, TaskEvent, TaskEventKind};
use swtch_fiber::observe::Page;

use wire::{Answer, Hint, Patience};

pub use search::find_schedulers;

/// The verb that starts it, which nobody needs to type.
const VERB: &str = "find-schedulers";

/// What the search came to.
pub(super) enum Met {
    /// A process has a page.
    Page(Box<Page>),
    /// Something is not watched, in words.
    Refused(String),
}

/// The search, as the recorder sees it. Dropping it ends the process.
#[derive(Debug)]
pub struct Finder {
    process: Child,
    /// `None` when the process is gone.
    socket: Option<OwnedFd>,
    /// Hints that were not sent yet, and whether the process is another program now.
    hints: FxHashMap<Pid, bool>,
}

impl Finder {
    /// Starts it: to be called while there are rights that it can inherit.
    ///
    /// # Errors
    /// When no process can be started.
    pub fn start() -> io::Result<Self> {
        let (socket, theirs) = wire::pair()?;
        // This very program, even where its file has been replaced meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("swtch").arg(VERB);
        // It says nothing on stdout, and /dev/null may be missing.
        let stderr = io::stderr().as_fd().try_clone_to_owned()?;
        command.stdin(theirs).stdout(stderr);
        // Ctrl-C on the terminal is for the recorder, which may still have to find schedulers.
        command.process_group(0);
        Ok(Self {
            process: command.spawn()?,
            socket: Some(socket),
            hints: FxHashMap::default(),
        })
    }

    /// Takes notice of what a task's event hints at.
    pub(super) fn meet(&mut self, task: &TaskEvent) {
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

    /// Passes on what was noticed. What finds no room now is kept for the next time.
    pub(super) fn pass_on(&mut self) {
        let Some(socket) = &self.socket else {
            return self.hints.clear();
        };
        while !self.hints.is_empty() {
            let hint = |(pid, is_exec): (&Pid, &bool)| Hint {
                pid: pid.get(),
                is_exec: *is_exec,
            };
            let batch: Vec<Hint> = self.hints.iter().map(hint).take(wire::MOST_HINTS).collect();
            // That it is gone is seen, and told, where its answers are read.
            if wire::send(socket, &batch, &[], Patience::DoNotWait).is_err() {
                return;
            }
            for hint in batch {
                self.hints.remove(&Pid::new(hint.pid));
            }
        }
    }

    /// What was found since this was last asked.
    pub(super) fn found(&mut self) -> Vec<Met> {
        let mut found = Vec::new();
        while let Some(socket) = &self.socket {
            let why = match wire::receive(socket, Patience::DoNotWait) {
                Ok(Some((answer, descriptors))) => {
                    found.push(met(answer, descriptors));
                    continue;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Ok(None) => "it has ended".to_owned(),
                Err(error) => error.to_string(),
            };
            self.socket = None;
            let what = "user-mode schedulers are not looked for any more";
            found.push(Met::Refused(format!("{what}: {why}")));
        }
        found
    }

    /// CPU time that it used; nothing once it has ended.
    pub fn cpu_time(&self) -> Nanos {
        let pid = i32::try_from(self.process.id()).unwrap_or(0);
        let clock = clock_getcpuclockid(nix::unistd::Pid::from_raw(pid));
        let used = clock.and_then(ClockId::now).map_or(0, |used| {
            u64::try_from(std::time::Duration::from(used).as_nanos()).unwrap_or(0)
        });
        Nanos::from_ns(used)
    }

    /// Its number.
    pub fn pid(&self) -> Pid {
        Pid::new(self.process.id())
    }
}

impl Drop for Finder {
    fn drop(&mut self) {
        // Its own sign to end, where it cannot be killed: it belongs to root until it has begun.
        self.socket = None;
        // It may be in the middle of a round, and nobody wants its answers any more.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An answer, with the page that came along. The page is checked here again: what it says of itself
/// may have changed meanwhile, and one process must not rely on another for what it reads.
fn met(answer: Answer, descriptors: Vec<OwnedFd>) -> Met {
    match (answer, <[OwnedFd; 2]>::try_from(descriptors)) {
        (Answer::Page { pid }, Ok(descriptors)) => match Page::from_descriptors(pid, descriptors) {
            Ok(page) => Met::Page(Box::new(page)),
            Err(error) => Met::Refused(format!("{:#}", anyhow::Error::from(error))),
        },
        (Answer::Page { pid }, Err(_)) => {
            Met::Refused(format!("the page of process {pid} came without its file"))
        }
        (Answer::Refused(why), _) => Met::Refused(why),
    }
}
