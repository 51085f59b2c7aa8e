//! User-level tasks of other languages: goroutines, asyncio coroutines, greenlets, virtual threads
//! of Java. Two of them pass a turn to and fro in a child process that runs their own runtime.
//!
//! ```text
//! leader ── block N\n ─▶ runtime: warms up, does N hops, reads its own clock and counters
//!        ◀─ OPS NS VOLUNTARY INVOLUNTARY\n
//! ```
//!
//! When the arm starts, it looks for what is needed (a compiler, an interpreter, a module) and
//! builds what must be built, in a directory that is removed before the first block. The switches
//! are those of all threads of the runtime.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use swtch_core::units::Nanos;
use tempfile::TempDir;

use super::timed_operation::{TimedOperation, Timing};
use crate::error::Error;
use crate::outcome::SwitchCounts;

/// The language runtime whose tasks are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum LanguageRuntime {
    /// Two goroutines and unbuffered channels, on one thread (`GOMAXPROCS=1`).
    Goroutine,
    /// Two tasks of Python's asyncio that complete each other's futures.
    Asyncio,
    /// Two greenlets of Python's module `greenlet`.
    Greenlet,
    /// Two virtual threads of Java on one carrier, which park and unpark each other.
    JavaVirtualThread,
}

/// The first JDK in which virtual threads are no longer a preview (JEP 444).
const JDK: u32 = 21;

impl LanguageRuntime {
    /// All variants, in the order of their declaration.
    pub const ALL: &'static [Self] = &[
        Self::Goroutine,
        Self::Asyncio,
        Self::Greenlet,
        Self::JavaVirtualThread,
    ];

    /// Starts the runtime. One operation is one hop.
    pub(super) fn timed_operation(self) -> Result<Box<dyn TimedOperation>, Error> {
        let process = match self {
            Self::Goroutine => goroutine(),
            Self::Asyncio => python(include_str!("runtime/asyncio_hops.py")),
            Self::Greenlet => python(include_str!("runtime/greenlet_hops.py")),
            Self::JavaVirtualThread => java_virtual_thread(),
        };
        Ok(Box::new(process?))
    }
}

fn goroutine() -> Result<RuntimeProcess, Error> {
    let directory = directory_with("hops.go", include_str!("runtime/hops.go"))?;
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

fn python(source: &str) -> Result<RuntimeProcess, Error> {
    RuntimeProcess::start(
        Command::new("python3").args(["-u", "-c", source]),
        "python3",
    )
}

fn java_virtual_thread() -> Result<RuntimeProcess, Error> {
    let answer = output_of(Command::new("java").arg("-version"), "java")?;
    let found = java_version(&String::from_utf8_lossy(&answer.stderr));
    if found.is_none_or(|found| found < JDK) {
        let found = found.map_or_else(|| "none".to_owned(), |found| found.to_string());
        return Err(Error::NotHere(format!("needs JDK {JDK}, found {found}")));
    }
    let source = include_str!("runtime/VirtualThreadHops.java");
    let directory = directory_with("VirtualThreadHops.java", source)?;
    let mut java = Command::new("java");
    java.arg("-Djdk.virtualThreadScheduler.parallelism=1");
    java.arg("-Djdk.virtualThreadScheduler.maxPoolSize=1");
    java.arg(directory.path().join("VirtualThreadHops.java"));
    RuntimeProcess::start(&mut java, "java")
}

/// Parses `openjdk version "17.0.15" 2025-04-15`; before Java 9 the version was `"1.8.0_…"`.
fn java_version(text: &str) -> Option<u32> {
    let version = text.split('"').nth(1)?;
    let mut numbers = version.split(['.', '-', '_', '+']);
    match numbers.next()?.parse().ok()? {
        1 => numbers.next()?.parse().ok(),
        number => Some(number),
    }
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
    /// Starts the process and waits until it says `ready`, or `missing` and what is missing.
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
        match conversation.line()?.split_once(' ') {
            Some(("missing", what)) => Err(Error::NotHere(format!("{program} has no {what}"))),
            _ => Ok(conversation),
        }
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

    /// A runtime that is installed answers; for one that is not, the error names what is missing.
    #[test]
    fn runtime_answers_or_is_not_here() {
        for which in LanguageRuntime::ALL {
            match which.timed_operation() {
                Ok(mut operation) => {
                    let timing = operation.block(1000).unwrap();
                    assert_eq!(timing.operations, 1000, "{which:?}");
                    assert!(timing.elapsed > Nanos::from_ns(1000), "{which:?}");
                }
                Err(Error::NotHere(what)) => assert!(!what.is_empty(), "{which:?}"),
                Err(error) => panic!("{which:?}: {error}"),
            }
        }
    }

    #[test]
    fn java_tells_its_version_in_two_ways() {
        assert_eq!(
            java_version("openjdk version \"17.0.15\" 2025-04-15"),
            Some(17)
        );
        assert_eq!(java_version("java version \"1.8.0_402\""), Some(8));
        assert_eq!(java_version("openjdk version \"22-ea\" 2024"), Some(22));
        assert_eq!(java_version("no such thing"), None);
    }
}
