//! A user without rights.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::recording::{SWTCH, TraceDir};

/// A user without rights, in a directory of their own.
pub struct Stranger {
    place: TraceDir,
    program: PathBuf,
}

impl Stranger {
    pub fn new() -> Self {
        let place = TraceDir::new();
        fs::set_permissions(place.dir(), fs::Permissions::from_mode(0o777)).unwrap();
        // The build directory may be closed to other users. A link avoids a copy of 200 MB, but
        // needs the same file system.
        let program = place.dir().join("swtch");
        fs::hard_link(SWTCH, &program)
            .or_else(|_| fs::copy(SWTCH, &program).map(drop))
            .unwrap();
        Self { place, program }
    }

    pub fn dir(&self) -> &Path {
        self.place.dir()
    }

    /// Runs `swtch` as the stranger; `granted` are options of setpriv(1).
    pub fn run(&self, granted: &[&str], words: &[&str]) -> Output {
        let mut command = Command::new("setpriv");
        command
            .args(Self::words(granted))
            .arg(&self.program)
            .args(words);
        let output = command.current_dir(self.dir()).output();
        output.expect("setpriv is part of util-linux")
    }

    /// The words that make setpriv(1) run a program as the stranger.
    pub fn words<'a>(granted: &[&'a str]) -> Vec<&'a str> {
        let nobody = [
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--no-new-privs",
        ];
        let granted = match granted {
            [] => &["--inh-caps=-all", "--bounding-set=-all"],
            _ => granted,
        };
        [&nobody[..], granted].concat()
    }

    /// Returns true if these words, before a command, let the stranger run it.
    pub fn may(&self, words: &[&str]) -> bool {
        let mut command = Command::new("setpriv");
        command.args(Self::words(&[])).args(words).arg("true");
        command.output().is_ok_and(|output| output.status.success())
    }

    /// The program, where the stranger may run it.
    pub fn program(&self) -> &Path {
        &self.program
    }
}
