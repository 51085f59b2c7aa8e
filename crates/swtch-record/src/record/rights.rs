//! The end of all rights that recording does not need.

use anyhow::{Context as _, Result};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{Signal, raise};
use swtch_capture::{
    ConfinedWork, HeldCommand, KeptPrivileges, drop_privileges, empty_bounding_set,
    forbid_new_privileges, kernel_version, refuse_system_calls,
};
use swtch_core::Pid;
use swtch_output::caller::Caller;

use super::AfterRecording;

/// The work that this process still has to do, which decides what it keeps of its rights.
#[derive(Clone, Copy, Debug)]
pub struct WorkAhead<'a> {
    /// The user who called sudo, whose rights are enough from now on.
    pub caller: Option<&'a Caller>,
    /// The command that is recorded: it may run as root, and gets signals.
    pub command: Option<&'a HeldCommand>,
    /// True if functions of other processes are looked up.
    pub names_functions: bool,
    /// The work after the recording.
    pub afterwards: AfterRecording,
}

impl WorkAhead<'_> {
    /// Drops every right that is not needed, so that none can be regained. `start_helpers` is called while
    /// the last of them are there.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn give_up_rights(self, start_helpers: impl FnOnce() -> Result<()>) -> Result<()> {
        empty_bounding_set();
        if let Some(caller) = self.caller {
            caller.switch_to_user()?;
        }
        let kept = KeptPrivileges {
            rings: true,
            look_at_processes: self.names_functions,
            // Root would be allowed to read the programs whose symbols are looked up; this user is not.
            open_files_of_others: self.caller.is_some() && self.names_functions,
            // The command may run as root, or change its user.
            signal_others: self.command.is_some(),
            change_user: false,
        };
        if let Some(command) = self.command {
            command.give_up_rights()?;
        }
        start_helpers()?;
        drop_privileges(kept, kernel_version())?;
        forbid_new_privileges()?;
        if self.afterwards == AfterRecording::Tells {
            refuse_system_calls(ConfinedWork::ReadsMaps)?;
        }
        Ok(())
    }
}

/// Asks the kernel for SIGTERM when the parent ends. Dropping privileges clears that (prctl(2)), so
/// this comes after it.
///
/// # Errors
/// When the system refuses.
pub fn end_with(parent: Pid) -> Result<()> {
    set_pdeathsig(Signal::SIGTERM).context("asking to end with the parent")?;
    // The command runs by now, and the parent may have ended already: then no signal arrives.
    if nix::unistd::getppid().as_raw().unsigned_abs() != parent.get() {
        raise(Signal::SIGTERM).context("ending with the parent")?;
    }
    Ok(())
}
