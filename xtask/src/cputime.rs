//! Runs a command and writes the CPU time, switches and memory that it used to a file.
//!
//! A tool that records a command is its parent, so the kernel's account of the tool's children
//! mixes both. With this program between the two, the benchmark is accounted separately:
//!
//! ```text
//! bench-record ── tool ── cputime FILE -- benchmark
//!     └ tool and all below      └ the benchmark and all below
//! ```
//!
//! The account is `getrusage(RUSAGE_CHILDREN)` (getrusage(2)): every descendant that was waited
//! for. A command that leaves children running is therefore not measured completely.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitCode, ExitStatus};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use serde_json::{Value, json};

/// The resources that a command and its descendants used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuTime {
    /// User and system time together, in ns.
    pub cpu_ns: u64,
    /// Wall time from start to end, in ns.
    pub wall_ns: u64,
    /// Switch-outs as the kernel counted them (`ru_nvcsw` + `ru_nivcsw`).
    pub switches: u64,
    /// The most memory that the command or one of its descendants had at a time (`ru_maxrss`).
    pub peak_bytes: u64,
}

impl CpuTime {
    /// Reads the file that [`run`] wrote.
    ///
    /// # Errors
    /// When the file is missing (the command was never run) or has another form.
    pub fn read(path: &Path) -> Result<Self> {
        let text =
            fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let json: Value = serde_json::from_str(&text)?;
        let field = |name: &str| {
            json[name]
                .as_u64()
                .with_context(|| format!("no {name} in {text}"))
        };
        Ok(Self {
            cpu_ns: field("cpu_ns")?,
            wall_ns: field("wall_ns")?,
            switches: field("switches")?,
            peak_bytes: field("peak_bytes")?,
        })
    }

    fn write(self, path: &Path) -> Result<()> {
        let Self {
            cpu_ns,
            wall_ns,
            switches,
            peak_bytes,
        } = self;
        let json = json!({
            "cpu_ns": cpu_ns,
            "wall_ns": wall_ns,
            "switches": switches,
            "peak_bytes": peak_bytes,
        });
        fs::write(path, json.to_string()).with_context(|| format!("writing {}", path.display()))
    }
}

/// User and system time in ns of all descendants waited for so far.
pub fn cpu_ns_of_children() -> Result<u64> {
    Ok(cpu_ns(&children()?))
}

/// Switch-outs of all descendants waited for so far, as the kernel counted them.
pub fn switches_of_children() -> Result<u64> {
    Ok(switches(&children()?))
}

fn children() -> Result<Usage> {
    getrusage(UsageWho::RUSAGE_CHILDREN).context("getrusage")
}

fn cpu_ns(usage: &Usage) -> u64 {
    nanoseconds(usage.user_time()) + nanoseconds(usage.system_time())
}

fn nanoseconds(time: TimeVal) -> u64 {
    u64::try_from(time.num_nanoseconds()).expect("the kernel reports no negative CPU time")
}

fn switches(usage: &Usage) -> u64 {
    let both = usage.voluntary_context_switches() + usage.involuntary_context_switches();
    u64::try_from(both).expect("the kernel reports no negative count of switches")
}

fn peak_bytes(usage: &Usage) -> u64 {
    let kilobytes = u64::try_from(usage.max_rss()).expect("the kernel reports no negative memory");
    kilobytes * 1024
}

/// `cputime FILE -- CMD…`: runs the command and returns its exit code.
///
/// # Errors
/// When the arguments do not have this form, the command cannot be started, or the file not
/// written.
pub fn run(words: &[String]) -> Result<ExitCode> {
    let [file, dashes, program, arguments @ ..] = words else {
        bail!("usage: cputime FILE -- CMD…");
    };
    if dashes != "--" {
        bail!("usage: cputime FILE -- CMD… (found {dashes:?} instead of --)");
    }
    let start = Instant::now();
    let status = Command::new(program)
        .args(arguments)
        .status()
        .with_context(|| format!("starting {program}"))?;
    let wall = start.elapsed();
    let usage = children()?;
    CpuTime {
        cpu_ns: cpu_ns(&usage),
        wall_ns: u64::try_from(wall.as_nanos()).expect("shorter than 584 years"),
        switches: switches(&usage),
        peak_bytes: peak_bytes(&usage),
    }
    .write(Path::new(file))?;
    Ok(exit_code(status))
}

/// The exit code as a shell gives it: 128 + the signal for a command that was killed.
fn exit_code(status: ExitStatus) -> ExitCode {
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    ExitCode::from(
        code.and_then(|code| u8::try_from(code).ok())
            .unwrap_or(u8::MAX),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(of: &[&str]) -> Vec<String> {
        of.iter().map(|&word| word.to_owned()).collect()
    }

    /// A busy loop uses CPU time, which is counted; a sleep of the same wall time uses none.
    #[test]
    fn cpu_time_of_the_command_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("used.json");
        let path = file.to_str().unwrap();
        let busy = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done";
        run(&words(&[path, "--", "sh", "-c", busy])).unwrap();
        let used = CpuTime::read(&file).unwrap();
        assert!(used.cpu_ns > 5_000_000, "{used:?}");
        assert!(used.cpu_ns <= 2 * used.wall_ns, "{used:?}");
        assert!(used.peak_bytes > 100_000, "{used:?}");
    }

    #[test]
    fn exit_code_of_the_command_is_passed_on() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("used.json");
        let code = run(&words(&[
            file.to_str().unwrap(),
            "--",
            "sh",
            "-c",
            "exit 7",
        ]))
        .unwrap();
        assert_eq!(format!("{code:?}"), format!("{:?}", ExitCode::from(7)));
    }

    #[test]
    fn a_command_that_does_not_exist_is_an_error() {
        let error = run(&words(&["/dev/null", "--", "/no/such/program"])).unwrap_err();
        assert!(
            format!("{error:#}").contains("starting /no/such/program"),
            "{error:#}"
        );
    }

    #[test]
    fn words_without_dashes_are_refused() {
        assert!(run(&words(&["file", "sh", "-c", "true"])).is_err());
    }
}
