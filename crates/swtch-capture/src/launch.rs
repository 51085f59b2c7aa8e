//! Starts the command to be recorded and holds it until the probes are attached, so that its first
//! switch is seen.
//!
//! ```text
//! recorder            child
//!    │  fork ───────────▶│ writes its pid
//!    │◀── pid ───────────│ waits on the gate
//!    │  load, attach     │
//!    │  opens the gate ─▶│ exec
//!    │◀── it was executed, or why not
//! ```
//!
//! If the recorder dies first, the gate closes and the child ends without having run the command.

use std::cell::OnceCell;
use std::ffi::OsString;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::thread::{self, JoinHandle};

use swtch_core::Pid;

use crate::confine::forbid_new_privileges;
use crate::error::Error;
use crate::limits::hand_limits_down;
use crate::privilege::{KeptPrivileges, MAPS_READ_FREELY, drop_privileges, empty_bounding_set};
use crate::signals::hand_signals_down;

/// Time between two looks whether the command has ended: of the thread that waits for it, while it may still be
/// ordered to give up its rights, and of the caller of [`HeldCommand::wait`].
const WAIT_STEP: std::time::Duration = std::time::Duration::from_millis(5);

/// Exit code of a child whose recorder ended before it let the command run: the one that a shell
/// gives for a command that could not be run.
const NEVER_RAN: i32 = 126;

/// A command that could not be started.
#[derive(Debug, thiserror::Error)]
#[error("starting {program:?} failed")]
pub struct LaunchError {
    /// The program that was to be started.
    pub program: OsString,
    /// Error of fork or exec.
    pub source: io::Error,
}

impl LaunchError {
    /// The exit code that a shell gives: 127 for a command that does not exist, 126 otherwise.
    pub fn exit_code(&self) -> u8 {
        if self.source.kind() == io::ErrorKind::NotFound {
            127
        } else {
            126
        }
    }
}

/// A started command, held before `exec` until [`HeldCommand::release`].
#[derive(Debug)]
pub struct HeldCommand {
    pid: Pid,
    program: OsString,
    gate: Option<PipeWriter>,
    parent: Option<Parent>,
    ended: OnceCell<ExitStatus>,
    /// Closed at the other end when the command has ended.
    ending_notice: PipeReader,
}

/// The thread that starts the command and waits for it. It lives as long as the command: a command
/// that asked to end with its parent (`PR_SET_PDEATHSIG`) gets its signal when the thread that
/// created it ends, and not when the process does (prctl(2)).
#[derive(Debug)]
struct Parent {
    thread: JoinHandle<()>,
    executed: Receiver<io::Result<()>>,
    /// Orders the thread to give up its rights. Until then it keeps them.
    order: Sender<()>,
    obeyed: Receiver<Result<(), Error>>,
    ending: Receiver<io::Result<ExitStatus>>,
}

/// The thread's ends of the channels of a [`Parent`]. Nobody listens to it any more when the recorder is about
/// to end, so an answer that cannot be sent is not an error.
struct ParentThread {
    executed: Sender<io::Result<()>>,
    orders: Receiver<()>,
    obeyed: Sender<Result<(), Error>>,
    ending: Sender<io::Result<ExitStatus>>,
    /// Closed when the command has ended.
    notice: PipeWriter,
}

impl ParentThread {
    /// Starts the command, and waits until it has ended. `spawn` returns only after exec, so it blocks
    /// while the child is held. When it has returned, this closes `held`, the thread's copies of the
    /// child's ends: the other ends then tell that the child is gone. It closes `notice` after it has
    /// sent how the command ended.
    fn run(self, mut spawn: Command, held: (PipeWriter, PipeReader)) {
        let spawned = spawn.spawn();
        drop(held);
        // The command has its own bounding set by now.
        empty_bounding_set();
        let child = match spawned {
            Ok(child) => child,
            Err(error) => return drop(self.executed.send(Err(error))),
        };
        drop(self.executed.send(Ok(())));
        let ending = self.wait_for(child);
        drop(self.ending.send(ending));
        // Only now: who sees it closed finds the answer.
        drop(self.notice);
    }

    /// Waits until the command has ended, and gives up the thread's rights when it is ordered to. The order may never
    /// come, and the command may end before it does.
    fn wait_for(&self, mut child: Child) -> io::Result<ExitStatus> {
        loop {
            match self.orders.recv_timeout(WAIT_STEP) {
                Ok(()) => {
                    let dropped = drop_privileges(KeptPrivileges::default(), MAPS_READ_FREELY);
                    let obeyed = dropped.and_then(|()| forbid_new_privileges());
                    drop(self.obeyed.send(obeyed));
                    return child.wait();
                }
                Err(RecvTimeoutError::Disconnected) => return child.wait(),
                Err(RecvTimeoutError::Timeout) => match child.try_wait() {
                    Ok(None) => {}
                    ended => return ended.and_then(|status| status.ok_or_else(gone)),
                },
            }
        }
    }
}

impl Parent {
    /// Starts the thread. It closes `held` when the child has executed the command or has ended, and `notice`
    /// after [`Self::ending`] has the answer.
    fn start(
        spawn: Command,
        held: (PipeWriter, PipeReader),
        notice: PipeWriter,
    ) -> io::Result<Self> {
        let (tell_executed, executed) = channel();
        let (order, orders) = channel();
        let (tell_obeyed, obeyed) = channel();
        let (tell_ending, ending) = channel();
        let started = ParentThread {
            executed: tell_executed,
            orders,
            obeyed: tell_obeyed,
            ending: tell_ending,
            notice,
        };
        let thread = thread::Builder::new().spawn(move || started.run(spawn, held))?;
        Ok(Self {
            thread,
            executed,
            order,
            obeyed,
            ending,
        })
    }

    /// Waits until the command is executed.
    fn executed(&self) -> io::Result<()> {
        self.executed.recv().unwrap_or_else(|_| Err(gone()))
    }
}

fn gone() -> io::Error {
    io::Error::other("the thread that waits for it is gone")
}

impl HeldCommand {
    /// Forks a child, which waits before `exec`.
    ///
    /// # Errors
    /// When the pipes or the process cannot be created.
    ///
    /// # Panics
    /// When `command` is empty.
    pub fn start(command: &[OsString]) -> Result<Self, LaunchError> {
        let (program, arguments) = command.split_first().expect("a command has a program");
        let failed = |source| LaunchError {
            program: program.clone(),
            source,
        };
        let (gate_reader, gate) = io::pipe().map_err(failed)?;
        let (mut pid_reader, pid_writer) = io::pipe().map_err(failed)?;
        let (ending_notice, notice) = io::pipe().map_err(failed)?;
        let mut spawn = Command::new(program);
        spawn.args(arguments);
        hand_signals_down(&mut spawn);
        hand_limits_down(&mut spawn);
        hold_before_exec(&mut spawn, &pid_writer, &gate_reader, gate.as_raw_fd());
        // `spawn` returns after exec, so it needs a thread of its own while the child is held.
        let parent = Parent::start(spawn, (pid_writer, gate_reader), notice).map_err(failed)?;
        let mut pid = [0; 4];
        match pid_reader.read_exact(&mut pid) {
            Ok(()) => Ok(Self {
                pid: Pid::new(u32::from_ne_bytes(pid)),
                program: program.clone(),
                gate: Some(gate),
                parent: Some(parent),
                ended: OnceCell::new(),
                ending_notice,
            }),
            Err(error) => Err(failed(match parent.executed() {
                Err(spawn_error) => spawn_error,
                Ok(()) => error,
            })),
        }
    }

    /// Process id of the held child.
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// Lets the child run the command, and waits until it is executed. After an error the command
    /// did not run; after success it did, whatever happens then.
    ///
    /// # Errors
    /// When the child has already ended, or the command cannot be executed.
    pub fn release(&mut self) -> Result<(), LaunchError> {
        let Some(mut gate) = self.gate.take() else {
            return Ok(());
        };
        let opened = gate.write_all(&[1]);
        drop(gate);
        let executed = self.parent.as_ref().map_or(Ok(()), Parent::executed);
        opened.and(executed).map_err(|source| LaunchError {
            program: self.program.clone(),
            source,
        })
    }

    /// Gives up the rights of the thread that waits for the command. Call this after this process
    /// has changed its user: the C library changes the user of all threads, and each must be
    /// allowed to.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn give_up_rights(&self) -> Result<(), Error> {
        let Some(parent) = &self.parent else {
            return Ok(());
        };
        // If the command has already ended, so has the thread that waits for it.
        if parent.order.send(()).is_err() {
            return Ok(());
        }
        parent.obeyed.recv().unwrap_or(Ok(()))
    }

    /// Exit status of the command; `None` while it runs or is held.
    ///
    /// # Errors
    /// When the command could not be executed, so that none ends; [`Self::release`] has said so. Or when the kernel
    /// does not report the end: then the command was executed all the same.
    pub fn ended(&self) -> io::Result<Option<ExitStatus>> {
        if let Some(status) = self.ended.get() {
            return Ok(Some(*status));
        }
        let Some(parent) = &self.parent else {
            return Ok(None);
        };
        match parent.ending.try_recv() {
            Ok(status) => status.map(|status| Some(*self.ended.get_or_init(|| status))),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(gone()),
        }
    }

    /// A descriptor that can be read (its end has come: `POLLHUP`) once [`Self::ended`] has an
    /// answer, for a caller that waits for other things, too.
    pub fn ending_notice(&self) -> BorrowedFd<'_> {
        self.ending_notice.as_fd()
    }

    /// Waits for the end of the command, which comes only after [`Self::release`].
    ///
    /// # Errors
    /// As [`Self::ended`].
    pub fn wait(&self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            thread::sleep(WAIT_STEP);
        }
    }

    /// Passes a signal on to the command, unless it has ended.
    pub fn signal(&self, signal: i32) {
        let (Ok(pid), Ok(None)) = (libc::pid_t::try_from(self.pid.get()), self.ended()) else {
            return;
        };
        // A window is left. Another thread reaps the command, which frees its id, and says so only afterwards: a signal
        // that is sent in between would reach whoever got the id meanwhile. The kernel gives ids out in order, so that
        // takes as many new processes as there are ids, in that short time.
        // SAFETY: kill takes numbers only, and touches no memory of this process.
        unsafe { libc::kill(pid, signal) };
    }
}

impl Drop for HeldCommand {
    /// Ends a command that was never released: it exits when the gate closes, and is waited for.
    fn drop(&mut self) {
        if self.gate.take().is_some()
            && let Some(parent) = self.parent.take()
        {
            drop(parent.order);
            // Only the end of the thread matters here.
            let _ = parent.thread.join();
        }
    }
}

/// Makes the child write its pid and wait for a byte before `exec`.
fn hold_before_exec(
    command: &mut Command,
    pid_writer: &PipeWriter,
    gate_reader: &PipeReader,
    gate_writer: RawFd,
) {
    let (pid_fd, gate_fd) = (pid_writer.as_raw_fd(), gate_reader.as_raw_fd());
    let hold = move || {
        // The child's copy of the writing end would keep the gate from closing.
        // SAFETY: closes the child's own copy, which nothing in the child uses.
        unsafe { libc::close(gate_writer) };
        let pid = std::process::id().to_ne_bytes();
        // SAFETY: writes four bytes of a local array to an open pipe.
        if unsafe { libc::write(pid_fd, pid.as_ptr().cast(), pid.len()) } != 4 {
            return Err(io::Error::last_os_error());
        }
        let mut byte = 0u8;
        loop {
            // SAFETY: reads one byte into a local.
            match unsafe { libc::read(gate_fd, (&raw mut byte).cast(), 1) } {
                1 => return Ok(()),
                // The recorder ended before it was ready. An error would be told to it, and std
                // aborts with words of its own when nobody listens.
                // SAFETY: ends this process without running anything of it.
                0 => unsafe { libc::_exit(NEVER_RAN) },
                _ => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
            }
        }
    };
    // SAFETY: between fork and exec only close, write, read, getpid and _exit are called, which are
    // async-signal-safe; nothing is allocated unless it fails.
    unsafe { command.pre_exec(hold) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_does_not_run_before_it_is_released() {
        let mut command = HeldCommand::start(&["true".into()]).expect("fork works");
        let name = std::fs::read_to_string(format!("/proc/{}/comm", command.pid())).expect("alive");
        assert_ne!(name.trim(), "true");
        command.release().expect("it waits");
        assert!(command.wait().expect("it ran").success());
    }

    /// The id of a command that was reaped may be somebody else's.
    #[test]
    fn who_sends_a_signal_asks_first_whether_the_command_has_ended() {
        let mut command = HeldCommand::start(&["true".into()]).expect("fork works");
        command.release().expect("it waits");
        let closed = command.ending_notice.read(&mut [0]);
        assert_eq!(closed.expect("it is open"), 0);
        assert_eq!(command.ended.get(), None, "nobody has asked");
        command.signal(libc::SIGCONT);
        assert!(command.ended.get().is_some());
    }

    #[test]
    fn a_command_that_is_not_there_gives_127() {
        let mut command = HeldCommand::start(&["/no/such/program".into()]).expect("fork works");
        let refused = command.release().expect_err("nothing to run");
        assert_eq!(refused.exit_code(), 127);
    }
}
