//! `swtch lake`: answered by the Python package `swtch`, since the engine that answers SQL is one of Python's. This
//! process becomes Python's.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Error, Result, anyhow};
use swtch_capture::limits::hand_limits_down;

/// The code that Python runs. It does not import from the directory that the user happens to be in: what lies there may
/// be somebody else's. `sys.exit` with a text would end with 1, which means something else.
const BEGIN: &str = "\
import sys
if sys.path and sys.path[0] == '':
    del sys.path[0]
try:
    from swtch.query import main
except ModuleNotFoundError as missing:
    print(f'error: Python ({sys.executable}) lacks the module {missing.name}: the package swtch with its '
          'dependencies answers this; pip install swtch (from a clone: PYTHONPATH=python, '
          'pip install duckdb)', file=sys.stderr)
    sys.exit(2)
sys.exit(main(sys.argv[1:], 'swtch lake'))
";

/// Hands these words on to the Python package. Returns only if that cannot be started.
///
/// # Errors
/// When there is no Python.
pub fn answer(words: &[OsString]) -> Result<u8> {
    let mut command = Command::new(interpreter());
    command.args(["-c", BEGIN]).args(words);
    hand_limits_down(&mut command);
    // What Python asks the program for, it asks this one.
    if env::var_os("SWTCH").is_none()
        && let Ok(own) = env::current_exe()
    {
        command.env("SWTCH", own);
    }
    let refusal = Error::from(command.exec());
    Err(refusal).with_context(|| {
        anyhow!(
            "`swtch lake` is answered by Python, and {} cannot be started (package python3)",
            interpreter().display()
        )
    })
}

/// The Python beside this program, as a wheel installs both; otherwise that of PATH.
fn interpreter() -> PathBuf {
    let beside = env::current_exe()
        .ok()
        .map(|own| own.with_file_name("python3"));
    let beside = beside.filter(|python| python.exists());
    beside.unwrap_or_else(|| PathBuf::from("python3"))
}
