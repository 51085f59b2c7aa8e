//! Starts the command to be recorded and holds it until the probes are attached, so that its first
//! switch is seen.
//!
//! ```text
//! recorder            child
//!    │  fork ───────────▶│ writes its pid
//!    │◀── pid ───────────│ waits on the gate
//!    │  load, attach     │
//!    │  opens the gate ─▶│ exec
//! ```
//!
//! If the recorder dies first, the gate closes and the child ends without having run the command.

use std::cell::OnceCell;
use std::ffi::OsString;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

use swtch_core::Pid;

use crate::privilege::drop_all_privileges;

/// How often a waiting caller looks again.
const WAIT_STEP: std::time::Duration = std::time::Duration::from_millis(5);

/// Exit code of a child whose recorder ended before it let the command run: a shell's for a command
/// that could not be run.
const NEVER_RAN: i32 = 126;

/// A command that could not be started.
#[derive(Debug, thiserror::Error)]
#[error("starting {program:?} failed")]
pub struct LaunchError {
    /// What was to be started.
    pub program: OsString,
    /// Why it was not.
    pub source: io::Error,
}

impl LaunchError {
    /// The exit code that a shell gives: 127 for a command that is not there, 126 otherwise.
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
    ending: Receiver<io::Result<ExitStatus>>,
    ended: OnceCell<ExitStatus>,
}

impl HeldCommand {
    /// Forks; the child waits.
    ///
    /// # Errors
    /// When the pipes or the process cannot be made.
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
        let mut spawn = Command::new(program);
        spawn.args(arguments);
        hold_before_exec(&mut spawn, &pid_writer, &gate_reader, gate.as_raw_fd());
        let (sender, ending) = channel();
        // `spawn` returns after exec, so it needs a thread of its own while the child is held.
        thread::spawn(move || {
            let result = spawn.spawn();
            // Capabilities belong to a thread. The command has its own by now, and waiting needs none.
            drop_all_privileges();
            drop((pid_writer, gate_reader));
            // The receiver is gone only when the recorder is ending anyway.
            let _ = sender.send(result.and_then(|mut child: Child| child.wait()));
        });
        let mut pid = [0; 4];
        match pid_reader.read_exact(&mut pid) {
            Ok(()) => Ok(Self {
                pid: Pid::new(u32::from_ne_bytes(pid)),
                program: program.clone(),
                gate: Some(gate),
                ending,
                ended: OnceCell::new(),
            }),
            Err(error) => Err(failed(match ending.recv() {
                Ok(Err(spawn_error)) => spawn_error,
                _ => error,
            })),
        }
    }

    /// Its process id.
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// Lets it run the command.
    ///
    /// # Errors
    /// When it is gone already.
    pub fn release(&mut self) -> Result<(), LaunchError> {
        let Some(mut gate) = self.gate.take() else {
            return Ok(());
        };
        gate.write_all(&[1]).map_err(|source| LaunchError {
            program: self.program.clone(),
            source,
        })
    }

    /// How it ended; `None` while it runs.
    ///
    /// # Errors
    /// When the command could not be executed. That is told once.
    pub fn ended(&self) -> Result<Option<ExitStatus>, LaunchError> {
        if let Some(status) = self.ended.get() {
            return Ok(Some(*status));
        }
        match self.ending.try_recv() {
            Ok(Ok(status)) => Ok(Some(*self.ended.get_or_init(|| status))),
            Ok(Err(source)) => Err(LaunchError {
                program: self.program.clone(),
                source,
            }),
            Err(TryRecvError::Empty) => Ok(None),
            Err(TryRecvError::Disconnected) => Err(LaunchError {
                program: self.program.clone(),
                source: io::Error::other("the thread that waits for it is gone"),
            }),
        }
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// As [`Self::ended`].
    pub fn wait(&self) -> Result<ExitStatus, LaunchError> {
        loop {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            thread::sleep(WAIT_STEP);
        }
    }

    /// Passes a signal on to it.
    pub fn signal(&self, signal: i32) {
        let Ok(pid) = libc::pid_t::try_from(self.pid.get()) else {
            return;
        };
        // SAFETY: kill has no memory effects. The child is ours and is reaped only by our thread,
        // so at worst the id is that of a zombie.
        unsafe { libc::kill(pid, signal) };
    }
}

/// Makes the child tell its pid and wait for a byte before `exec`.
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

    #[test]
    fn a_command_that_is_not_there_gives_127() {
        let mut command = HeldCommand::start(&["/no/such/program".into()]).expect("fork works");
        command.release().expect("it waits");
        assert_eq!(command.wait().expect_err("nothing to run").exit_code(), 127);
    }
}
