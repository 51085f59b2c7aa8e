//! `swtch lake` is answered by the Python package `swtch`: `DuckDB`, which answers the SQL, is used through its Python
//! package. This process becomes Python's.

use std::env;
use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Error;
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
          'dependencies answers this; pip install swtch-*.whl (from a clone: PYTHONPATH=python, '
          'pip install duckdb)', file=sys.stderr)
    sys.exit(2)
sys.exit(main(sys.argv[1:], 'swtch lake'))
";

/// Hands the arguments of `swtch lake` on to the Python package. Returns only if Python cannot be started, with the reason.
pub fn answer(arguments: &[OsString]) -> Error {
    let interpreter = interpreter();
    let mut command = Command::new(&interpreter);
    command.args(["-c", BEGIN]).args(arguments);
    // Python gets the limits that this program was started with.
    hand_limits_down(&mut command);
    // The package runs `swtch` for some answers. It runs this program, unless the user has named another.
    if env::var_os("SWTCH").is_none()
        && let Ok(own) = env::current_exe()
    {
        command.env("SWTCH", own);
    }
    Error::from(command.exec()).context(format!(
        "`swtch lake` is answered by Python, and {} cannot be started (package python3)",
        interpreter.display()
    ))
}

/// The Python of the environment that this program is installed in; otherwise that of PATH.
fn interpreter() -> PathBuf {
    let beside = env::current_exe()
        .ok()
        .map(|own| own.with_file_name("python3"));
    let beside = beside.filter(|python| python.exists());
    beside.unwrap_or_else(|| PathBuf::from("python3"))
}
