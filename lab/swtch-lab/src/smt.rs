//! Switches SMT off for an experiment, and on again even if this process is killed.
//!
//! ```text
//! we ──pipe──▶ guardian: sleeps until the pipe's other end is gone, then writes `on`
//!   └ done, failed, killed (even by SIGKILL): the kernel closes our end
//! ```
//!
//! The guardian is a shell that ignores the signals of a terminal and has a process group of its
//! own. We wait for it when we are done, so that SMT is on again before we go on.
//!
//! Sources: `Documentation/ABI/testing/sysfs-devices-system-cpu` (v6.18), `kernel/cpu.c`.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use swtch_output::message;

/// The file that tells whether SMT is on, and by which root changes it.
const CONTROL: &str = "/sys/devices/system/cpu/smt/control";

/// The guardian's script. `$1` is the control file, `$2` its former content. All signals are
/// ignored, in children too, so that none can keep the last command from running.
const GUARD: &str = "trap '' INT TERM HUP QUIT PIPE; cat >/dev/null; printf %s \"$2\" >\"$1\"";

/// SMT is off while this lives.
#[derive(Debug)]
pub struct SmtOff {
    control: PathBuf,
    before: String,
    guardian: Child,
}

impl SmtOff {
    /// Switches SMT off, after the guardian was started.
    ///
    /// # Errors
    /// SMT is absent or not on, it may not be changed, or the guardian cannot be started.
    pub fn begin() -> Result<Self> {
        Self::begin_at(Path::new(CONTROL))
    }

    fn begin_at(control: &Path) -> Result<Self> {
        let shown = control.display();
        let before =
            fs::read_to_string(control).with_context(|| format!("SMT: reading {shown}"))?;
        let before = before.trim().to_owned();
        anyhow::ensure!(
            before == "on",
            "SMT is not on here: {shown} says `{before}`"
        );
        // The guardian is started first, so that SMT cannot stay off.
        let guardian = Command::new("sh")
            .args(["-c", GUARD, "guardian"])
            .arg(control)
            .arg(&before)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .context("starting a shell that switches SMT on again")?;
        let off = Self {
            control: control.to_owned(),
            before,
            guardian,
        };
        fs::write(control, "off").with_context(|| format!("SMT: writing {shown} (root may)"))?;
        Ok(off)
    }
}

impl Drop for SmtOff {
    fn drop(&mut self) {
        drop(self.guardian.stdin.take());
        let ended = self.guardian.wait();
        let now = fs::read_to_string(&self.control).unwrap_or_default();
        if now.trim() != self.before {
            message!(
                "swtch: {} says `{}` ({ended:?}); write `{}` to it",
                self.control.display(),
                now.trim(),
                self.before
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn control(says: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control");
        fs::write(&path, says).unwrap();
        (dir, path)
    }

    #[test]
    fn it_is_off_while_it_lives_and_on_afterwards() {
        let (_dir, path) = control("on\n");
        let off = SmtOff::begin_at(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "off");
        drop(off);
        assert_eq!(fs::read_to_string(&path).unwrap(), "on");
    }

    /// As after SIGKILL: nothing of ours runs, only the pipe is closed.
    #[test]
    fn the_guardian_needs_nobody_to_put_it_back() {
        let (_dir, path) = control("on\n");
        let mut off = SmtOff::begin_at(&path).unwrap();
        drop(off.guardian.stdin.take());
        std::mem::forget(off);
        let until = Instant::now() + Duration::from_secs(10);
        while fs::read_to_string(&path).unwrap() != "on" {
            assert!(Instant::now() < until, "nobody put it back");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn what_is_not_on_is_left_alone() {
        let (_dir, path) = control("notsupported\n");
        let error = SmtOff::begin_at(&path).unwrap_err().to_string();
        assert!(error.contains("says `notsupported`"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "notsupported\n");
    }
}
