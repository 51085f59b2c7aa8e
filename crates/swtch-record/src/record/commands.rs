//! Reads the command lines of processes: `postgres: checkpointer` says more than `postgres`, which
//! twelve processes are called.
//!
//! The kernel's events contain names of up to 15 bytes. The command line is in the memory of the
//! process, so it is read from `/proc/PID/cmdline` (proc(5)), as ps does:
//!
//! ```text
//! executed               at once: a short-lived program is gone soon
//! seen, forked, renamed  a second later: a fork has its parent's words until it sets its own
//! at the end             once more, of all that are alive: servers write there what they do
//! ```
//!
//! A thread of its own reads them. To read a command line, the kernel takes the lock of that
//! process's address space, which a stuck process may hold for ever; the thread that empties the
//! rings must not wait for that. A process that is gone, or that this user may not inspect, has no
//! command line and is known by its name.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustc_hash::FxHashMap;
use swtch_capture::{
    KeptPrivileges, drop_privileges, forbid_new_privileges, kernel_version, monotonic_ns,
    take_ordinary_priority,
};
use swtch_core::{Pid, TaskEvent, TaskEventKind, Timestamp};
use swtch_output::text::from_bytes;
use swtch_store::CommandRow;

/// Bytes of a command line that are kept: a program may write megabytes there.
const MOST_BYTES: u64 = 1024;

/// By this time after its start, a forked process has set its own command line.
const SETTLED: Duration = Duration::from_secs(1);

/// The time for which the end of a recording waits for the last command lines.
const PATIENCE: Duration = Duration::from_secs(2);

/// Requests to the reading thread.
enum ReaderRequest {
    Read(Pid),
    ReadSoon(Pid),
    /// The same, unless it is known.
    Meet(Pid),
    Forget(Pid),
    ReadAll,
}

/// Handle of the thread that reads command lines. The default has no thread and reads none.
#[derive(Debug, Default)]
pub struct Commands {
    thread: Option<CommandReader>,
}

#[derive(Debug)]
struct CommandReader {
    asks: Sender<ReaderRequest>,
    read: Receiver<CommandRow>,
}

impl Commands {
    /// Starts the thread, and waits until it has dropped its rights. Must be called before this
    /// process forbids itself to drop rights, and after it has changed to its final user.
    ///
    /// # Errors
    /// When the thread cannot be started, or the kernel refuses to drop its rights.
    pub fn start() -> Result<Self> {
        let (asks, asked) = channel();
        let (tell, read) = channel();
        let (tell_ready, ready) = channel();
        let run = move || {
            // This thread is not urgent, unlike the recorder that starts it.
            take_ordinary_priority();
            let confined = drop_privileges(KeptPrivileges::default(), kernel_version())
                .and_then(|()| forbid_new_privileges());
            let is_confined = confined.is_ok();
            // `start` waits for this answer, so sending cannot fail.
            let _ = tell_ready.send(confined);
            if is_confined {
                Reader::new(tell).run(&asked);
            }
        };
        thread::Builder::new()
            .name("swtch-commands".to_owned())
            .spawn(run)
            .context("starting the thread that reads command lines")?;
        ready
            .recv()
            .context("the thread that reads command lines is gone")??;
        let thread = Some(CommandReader { asks, read });
        Ok(Self { thread })
    }

    /// Asks for the command line of a task's process, or forgets it, as the event requires.
    pub fn meet(&self, task: &TaskEvent) {
        if task.is_kthread {
            return;
        }
        let is_leader = task.pid.get() == task.tid.get();
        let ask = match task.kind {
            TaskEventKind::Exit if !is_leader => return,
            // The first thread of Java only waits, and may never be met itself.
            _ if !is_leader => ReaderRequest::Meet(task.pid),
            TaskEventKind::Exec => ReaderRequest::Read(task.pid),
            // The id may be given to another process.
            TaskEventKind::Exit => ReaderRequest::Forget(task.pid),
            _ => ReaderRequest::ReadSoon(task.pid),
        };
        self.ask(ask);
    }

    /// The command lines that were read since the last call.
    pub fn take(&self) -> Vec<CommandRow> {
        let rows = self.thread.iter().flat_map(|thread| thread.read.try_iter());
        rows.collect()
    }

    /// Has all command lines read again, and returns the new ones. Waits at most [`PATIENCE`],
    /// since a process may be stuck.
    pub fn end(&mut self) -> Vec<CommandRow> {
        self.ask(ReaderRequest::ReadAll);
        let Some(CommandReader { asks, read }) = self.thread.take() else {
            return Vec::new();
        };
        drop(asks);
        let deadline = Instant::now() + PATIENCE;
        let next = || read.recv_timeout(deadline.saturating_duration_since(Instant::now()));
        std::iter::from_fn(|| next().ok()).collect()
    }

    /// If the thread has ended, the request is dropped: a missing command line is no loss of
    /// switches.
    fn ask(&self, ask: ReaderRequest) {
        if let Some(thread) = &self.thread {
            let _ = thread.asks.send(ask);
        }
    }
}

/// The state of the reading thread.
struct Reader {
    tell: Sender<CommandRow>,
    /// The last command line that was read, for each process that is alive.
    known: FxHashMap<Pid, Option<String>>,
    /// Processes to be read later, with the moment to do so, in order of time.
    later: VecDeque<(Instant, Pid)>,
}

impl Reader {
    fn new(tell: Sender<CommandRow>) -> Self {
        Self {
            tell,
            known: FxHashMap::default(),
            later: VecDeque::new(),
        }
    }

    /// Answers requests until the sender is dropped.
    fn run(mut self, asked: &Receiver<ReaderRequest>) {
        loop {
            let now = Instant::now();
            let pause = self
                .later
                .front()
                .map_or(SETTLED, |(at, _)| at.saturating_duration_since(now));
            match asked.recv_timeout(pause) {
                Ok(ReaderRequest::Read(pid)) => self.read(pid),
                Ok(ReaderRequest::ReadSoon(pid)) => self.read_soon(pid),
                Ok(ReaderRequest::Meet(pid)) => {
                    if !self.known.contains_key(&pid) {
                        self.read_soon(pid);
                    }
                }
                Ok(ReaderRequest::Forget(pid)) => drop(self.known.remove(&pid)),
                Ok(ReaderRequest::ReadAll) => {
                    let pids: Vec<_> = self.known.keys().copied().collect();
                    pids.into_iter().for_each(|pid| self.read(pid));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.read_due();
        }
    }

    /// The process is known from now on, so that it is read at the end even if that comes at once.
    fn read_soon(&mut self, pid: Pid) {
        self.known.entry(pid).or_default();
        self.later.push_back((Instant::now() + SETTLED, pid));
    }

    fn read_due(&mut self) {
        let now = Instant::now();
        while let Some((at, pid)) = self.later.front().copied()
            && at <= now
        {
            self.later.pop_front();
            if self.known.contains_key(&pid) {
                self.read(pid);
            }
            // It has ended, or its first thread has, and another may be given the id.
            if !Path::new(&format!("/proc/{pid}")).exists() {
                self.known.remove(&pid);
            }
        }
    }

    fn read(&mut self, pid: Pid) {
        let command = command_line(pid);
        let known = self.known.entry(pid).or_default();
        if command.is_none() || *known == command {
            return;
        }
        for command in command.iter().cloned() {
            let ts = Timestamp::from_ns(monotonic_ns());
            // A receiver that is gone means that the recording has ended.
            let _ = self.tell.send(CommandRow { ts, pid, command });
        }
        *known = command;
    }
}

/// The command line; `None` if the process is gone, has none, or does not show it.
fn command_line(pid: Pid) -> Option<String> {
    let file = File::open(format!("/proc/{pid}/cmdline")).ok()?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes).ok()?;
    in_words(&bytes)
}

/// Words end in NUL bytes. A program that overwrites its command line pads it with NULs or spaces.
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

    /// A process is read even if the end comes at once, and reported again only if its line
    /// changes.
    #[test]
    fn a_process_that_is_alive_is_read_by_the_end() {
        let own = Pid::new(std::process::id());
        let mut commands = Commands::start().unwrap();
        commands.ask(ReaderRequest::ReadSoon(own));
        commands.ask(ReaderRequest::Read(own));
        let rows = commands.end();
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert_eq!(rows[0].pid, own);
        assert!(!rows[0].command.is_empty());
    }

    /// Its first thread may never be met: it only waits.
    #[test]
    fn a_process_is_met_by_any_of_its_threads() {
        let own = Pid::new(std::process::id());
        let thread = |kind| TaskEvent {
            kind,
            ..swtch_fixtures::seen(1, own.get(), own.get() + 1, "worker")
        };
        let mut commands = Commands::start().unwrap();
        commands.meet(&thread(TaskEventKind::Seen));
        commands.meet(&thread(TaskEventKind::Exit));
        let rows = commands.end();
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert_eq!(rows[0].pid, own);
    }

    #[test]
    fn what_is_gone_has_no_command_line() {
        let mut commands = Commands::start().unwrap();
        commands.ask(ReaderRequest::Read(Pid::new(u32::MAX)));
        commands.ask(ReaderRequest::ReadSoon(Pid::new(std::process::id())));
        commands.ask(ReaderRequest::Forget(Pid::new(std::process::id())));
        assert_eq!(commands.end(), []);
        assert_eq!(Commands::default().end(), []);
    }
}
