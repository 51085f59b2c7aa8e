//! Processes of this program that help a recorder with work for which it must not have the rights itself.
//!
//! ```text
//! recorder (no rights)                    swtch VERB (the rights that its work needs, no new ones)
//!  HelperProcess ◀──────── packets ────────▶ HelperWork
//! ```
//!
//! The thread that reads what all processes wrote must have no rights, and threads of one process could lend theirs to
//! each other: so a helper is a process of its own. It ends with the recorder, however that ends: its socket is closed
//! then, and the kernel sends it SIGKILL.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::sys::prctl::{set_name, set_pdeathsig};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{SigSet, Signal};
use nix::time::{ClockId, clock_getcpuclockid};
use swtch_capture::{
    ConfinedWork, KeptPrivileges, drop_privileges, empty_bounding_set, forbid_new_privileges,
    kernel_version, raise_priority, refuse_system_calls, take_ordinary_priority,
};
use swtch_core::{Nanos, Pid};
use swtch_output::caller::Caller;

use crate::packets;

/// The most memory that a helper maps, its program included.
const MOST_MEMORY: u64 = 2 << 30;

/// The longest that a helper is waited for when it is killed.
const LONGEST_END: Duration = Duration::from_secs(1);

/// The recorder's handle of a helper. Dropping it ends the process.
#[derive(Debug)]
pub struct HelperProcess {
    process: Child,
    /// `None` once the process is gone.
    pub socket: Option<OwnedFd>,
}

impl HelperProcess {
    /// Starts the hidden command `verb`. Must be called while there are rights that it can inherit.
    ///
    /// # Errors
    /// When no process can be started.
    pub fn start(verb: &str) -> io::Result<Self> {
        let (socket, theirs) = packets::pair()?;
        // This very program, even if its file has been replaced meanwhile.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("swtch").arg(verb);
        // A helper prints nothing on stdout, and /dev/null may be missing.
        let stderr = io::stderr().as_fd().try_clone_to_owned()?;
        command.stdin(theirs).stdout(stderr);
        // Ctrl-C on the terminal is meant for the recorder, which may still need the helper.
        command.process_group(0);
        Ok(Self {
            process: command.spawn()?,
            socket: Some(socket),
        })
    }

    /// CPU time of the process; 0 once it has ended.
    pub fn cpu_time(&self) -> Nanos {
        let pid = i32::try_from(self.process.id()).unwrap_or(0);
        let clock = clock_getcpuclockid(nix::unistd::Pid::from_raw(pid));
        let used = clock.and_then(ClockId::now).map_or(0, |used| {
            u64::try_from(std::time::Duration::from(used).as_nanos()).unwrap_or(0)
        });
        Nanos::from_ns(used)
    }

    /// Stops the process, which goes on to exist.
    pub fn hold(&self) {
        let pid = i32::try_from(self.process.id()).unwrap_or(0);
        // One that has ended already does nothing any more, either.
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGSTOP);
    }

    /// The id of the process.
    pub fn pid(&self) -> Pid {
        Pid::new(self.process.id())
    }
}

impl Drop for HelperProcess {
    fn drop(&mut self) {
        // Closing the socket ends the helper also where it cannot be killed: it belongs to root
        // until it has dropped its rights, and this process may belong to another user by now.
        self.socket = None;
        // It may be in the middle of a round, whose answers are not needed any more.
        let _ = self.process.kill();
        // The kernel may wait for memory that somebody else hands out: then it ends when it can.
        for _ in 0..LONGEST_END.as_millis() {
            if !matches!(self.process.try_wait(), Ok(None)) {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What a helper is about to do.
#[derive(Clone, Copy, Debug)]
pub struct HelperWork {
    /// The name of its thread.
    pub name: &'static CStr,
    /// What it asks `bpf(2)` for.
    pub bpf: ConfinedWork,
}

impl HelperWork {
    /// Makes this process a helper: what it does not need is dropped, so that it cannot be regained, before anything
    /// that other users made is looked at. Returns the socket to the recorder, which is its stdin.
    ///
    /// # Errors
    /// When a right cannot be dropped, or stdin is not there.
    pub fn begin(self) -> Result<OwnedFd> {
        let socket = io::stdin().as_fd().try_clone_to_owned();
        let socket = socket.context("taking the recorder's socket")?;
        leave_signals_to_recorder().context("blocking signals")?;
        match self.bpf {
            ConfinedWork::ReadsMaps => take_ordinary_priority(),
            // While the kernel copies the stack of a thread, nothing can be mapped in its process: who wants to waits
            // until this has had its CPU. It takes a small part of one.
            ConfinedWork::LooksAtTasks => raise_priority(),
        }
        // It parses files of other users: what they make it ask for is refused from here on.
        limit_memory().context("limiting memory")?;
        empty_bounding_set();
        let caller = Caller::of_sudo()?;
        if let Some(caller) = &caller {
            caller.switch_to_user()?;
        }
        let kept = KeptPrivileges {
            rings: self.bpf == ConfinedWork::LooksAtTasks,
            look_at_processes: true,
            // The command that sudo started belongs to root. As root we could open its files; now we
            // cannot. And root itself gets into the home of no user without this right.
            open_files_of_others: caller.is_some() || self.bpf == ConfinedWork::LooksAtTasks,
            ..KeptPrivileges::default()
        };
        drop_privileges(kept, kernel_version())?;
        forbid_new_privileges()?;
        refuse_system_calls(self.bpf)?;
        // The end of the socket tells it as well, but not while a round is running. Dropping privileges
        // clears this setting (prctl(2)), so it comes after that.
        set_pdeathsig(Signal::SIGKILL).context("asking to end with the recorder")?;
        set_name(self.name).context("taking a name")?;
        Ok(socket)
    }
}

fn limit_memory() -> nix::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_AS)?;
    let most = MOST_MEMORY.min(most);
    setrlimit(Resource::RLIMIT_AS, most, most)
}

/// A service manager and a terminal send signals to all processes of a recording: to end it, or for a dump.
/// They are for the recorder, and this process ends with it.
fn leave_signals_to_recorder() -> nix::Result<()> {
    let signals = [
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGTERM,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ];
    signals.into_iter().collect::<SigSet>().thread_block()
}
