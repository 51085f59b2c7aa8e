//! Runs one task on each CPU that does nothing but use it: load beside a measurement.

use std::fs;
use std::hint::black_box;
use std::os::unix::process::parent_id;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::command::ChildGroup;

/// Hogs that are running. Dropping this ends them.
#[derive(Debug)]
pub struct Hogs {
    _running: Vec<ChildGroup>,
}

impl Hogs {
    /// Starts one on each of `cpus`. They end by themselves after `limit`.
    ///
    /// # Errors
    /// When one cannot be started.
    pub fn start(cpus: &[u32], limit: Duration) -> Result<Self> {
        let myself = std::env::current_exe()?.to_string_lossy().into_owned();
        let hog = |cpu: &u32| {
            let (cpu, limit) = (cpu.to_string(), limit.as_secs().to_string());
            let words = ["taskset", "-c", &cpu, &myself, "hog", &limit];
            ChildGroup::start_silent(&words.map(str::to_owned))
        };
        Ok(Self {
            _running: cpus.iter().map(hog).collect::<Result<_>>()?,
        })
    }
}

/// `hog SECONDS`: uses a CPU for that time, or until its parent has ended.
///
/// # Errors
/// When the arguments do not have this form.
pub fn run(words: &[String]) -> Result<ExitCode> {
    let [seconds] = words else {
        bail!("usage: hog SECONDS");
    };
    let limit = Duration::from_secs(seconds.parse().context("hog takes a number of seconds")?);
    let (start, parent) = (Instant::now(), parent_id());
    while start.elapsed() < limit && parent_id() == parent {
        for number in 0..1_000_000_u32 {
            black_box(number);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The CPUs that this process may use.
///
/// # Errors
/// When `/proc/self/status` cannot be read or does not list them.
pub fn allowed_cpus() -> Result<Vec<u32>> {
    let status = fs::read_to_string("/proc/self/status").context("reading /proc/self/status")?;
    parse_allowed(&status).context("/proc/self/status names no CPUs")
}

/// Parses `Cpus_allowed_list` (`man 5 proc_pid_status`), such as `0-3,8`.
fn parse_allowed(status: &str) -> Option<Vec<u32>> {
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let mut cpus = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_cpus_are_ranges_and_singles() {
        let status = "Name:\tx\nCpus_allowed_list:\t0-2,8\nMems_allowed_list:\t0\n";
        assert_eq!(parse_allowed(status), Some(vec![0, 1, 2, 8]));
        assert_eq!(parse_allowed("Name:\tx\n"), None);
    }

    #[test]
    fn a_hog_ends_when_its_time_is_up() {
        assert!(run(&["0".to_owned()]).is_ok());
        assert!(run(&["soon".to_owned()]).is_err());
    }
}
