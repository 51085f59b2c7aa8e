//! Goroutines. Two of them pass a turn to and fro in a child process that runs Go's runtime.
//!
//! ```text
//! leader ── block N\n ─▶ runtime: warms up, does N hops, reads its own clock and counters
//!        ◀─ OPS NS VOLUNTARY INVOLUNTARY\n
//! ```
//!
//! When the arm starts, the program is compiled, in a directory that is removed before the first block. The switches
//! are those of all threads of the runtime.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use swtch_core::units::Nanos;
use tempfile::TempDir;

use super::timed_operation::{TimedOperation, Timing};
use crate::error::Error;
use crate::outcome::SwitchCounts;

/// Starts two goroutines with unbuffered channels, on one thread (`GOMAXPROCS=1`). One operation is one hop.
pub(super) fn timed_operation() -> Result<Box<dyn TimedOperation>, Error> {
    Ok(Box::new(goroutine()?))
}

fn goroutine() -> Result<RuntimeProcess, Error> {
    let directory = directory_with("hops.go", include_str!("goroutine/hops.go"))?;
    let program = directory.path().join("hops");
    let mut build = Command::new("go");
    build.args(["build", "-o"]).arg(&program);
    build.arg(directory.path().join("hops.go"));
    // A missing toolchain must not be downloaded.
    build.env("GOTOOLCHAIN", "local").env("GO111MODULE", "auto");
    let built = output_of(&mut build, "go")?;
    if !built.status.success() {
        let said = String::from_utf8_lossy(&built.stderr);
        let said = said.lines().collect::<Vec<_>>().join("; ");
        return Err(Error::NotHere(format!("go build failed: {said}")));
    }
    RuntimeProcess::start(Command::new(&program).env("GOMAXPROCS", "1"), "go")
}

/// A directory with one file, removed with all its contents when dropped.
fn directory_with(name: &str, content: &str) -> Result<TempDir, Error> {
    let directory = tempfile::Builder::new().prefix("swtch-").tempdir();
    let directory = directory.map_err(|source| in_file(&std::env::temp_dir(), source))?;
    let path = directory.path().join(name);
    fs::write(&path, content).map_err(|source| in_file(&path, source))?;
    Ok(directory)
}

fn in_file(path: &Path, source: io::Error) -> Error {
    Error::File {
        path: path.to_owned(),
        source,
    }
}

fn output_of(command: &mut Command, program: &str) -> Result<std::process::Output, Error> {
    command
        .stdin(Stdio::null())
        .output()
        .map_err(not_found(program))
}

fn not_found(program: &str) -> impl Fn(io::Error) -> Error {
    move |source| match source.kind() {
        io::ErrorKind::NotFound => Error::NotHere(format!("needs {program} in PATH")),
        _ => Error::calling("execve")(source),
    }
}

/// A runtime process that performs blocks on request. Dropping it ends the process and waits for
/// it.
struct RuntimeProcess {
    child: Child,
    /// `None` only while the value is being dropped.
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
}

impl RuntimeProcess {
    /// Starts the process and waits until it says `ready`.
    fn start(command: &mut Command, program: &str) -> Result<Self, Error> {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().map_err(not_found(program))?;
        let from = child.stdout.take();
        let from = BufReader::new(from.expect("invariant: it was asked for a pipe"));
        let to = child.stdin.take();
        let mut conversation = Self { child, to, from };
        conversation.line()?;
        Ok(conversation)
    }

    fn ask(&mut self, operations: u64) -> Result<(), Error> {
        let to = self.to.as_mut().ok_or(Error::PeerGone("runtime"))?;
        to.write_all(format!("block {operations}\n").as_bytes())
            .map_err(Error::calling("write"))
    }

    fn line(&mut self) -> Result<String, Error> {
        let mut line = String::new();
        match self.from.read_line(&mut line) {
            Ok(0) => Err(Error::PeerGone("runtime")),
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(error) => Err(Error::calling("read")(error)),
        }
    }
}

impl TimedOperation for RuntimeProcess {
    fn block(&mut self, operations: u64) -> Result<Timing, Error> {
        self.ask(operations)?;
        let line = self.line()?;
        let numbers: Vec<u64> = line.split(' ').flat_map(str::parse).collect();
        let [operations, ns, voluntary, involuntary] = numbers[..] else {
            return Err(Error::Member(format!("a runtime says {line:?}")));
        };
        Ok(Timing {
            live: None,
            operations,
            counted_over: operations,
            elapsed: Nanos::from_ns(ns),
            counted: SwitchCounts {
                voluntary,
                involuntary,
            },
        })
    }
}

impl Drop for RuntimeProcess {
    fn drop(&mut self) {
        // The end of its input asks the runtime to end.
        self.to = None;
        let deadline = Instant::now() + Duration::from_secs(1);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        // An error does not matter here: either way the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Go that is installed answers; if it is not, the error names what is missing.
    #[test]
    fn go_answers_or_is_not_here() {
        match timed_operation() {
            Ok(mut operation) => {
                let timing = operation.block(1000).unwrap();
                assert_eq!(timing.operations, 1000);
                assert!(timing.elapsed > Nanos::from_ns(1000));
            }
            Err(Error::NotHere(what)) => assert!(!what.is_empty()),
            Err(error) => panic!("{error}"),
        }
    }
}
