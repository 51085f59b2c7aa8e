//! `swtch workload`: makes switches on purpose, for the tests and for a first look.

mod range_scan;

use std::io::stdout;

use anyhow::{Context as _, Result, bail};
use swtch_bench::{Workload, workload_named, workloads};
use swtch_output::format::write_answer;

/// Lists the workloads, or runs one and writes as JSON what a trace of it must hold, unless
/// `quiet`.
///
/// # Errors
/// When there is no such workload, or it failed.
pub fn run(name: Option<&str>, count: Option<u64>, quiet: bool) -> Result<u8> {
    let Some(name) = name else {
        let mut lines = workloads().iter().map(line_of).collect::<String>();
        let (about, seconds) = (range_scan::ABOUT, range_scan::DEFAULT_SECONDS);
        lines.push_str(&format!("{:<18} {about} ({seconds} s)\n", range_scan::NAME));
        write_answer(&mut stdout(), lines.as_bytes())?;
        return Ok(0);
    };
    if name == range_scan::NAME {
        range_scan::run(count.unwrap_or(range_scan::DEFAULT_SECONDS))?;
        return Ok(0);
    }
    let Some(workload) = workload_named(name) else {
        bail!("no workload is called {name}; `swtch workload` lists them");
    };
    let outcome = workload.run(count.unwrap_or(workload.default_count))?;
    if quiet {
        return Ok(0);
    }
    let json = serde_json::to_string(&outcome).context("writing what must be found")?;
    write_answer(&mut stdout(), format!("{json}\n").as_bytes())?;
    Ok(0)
}

fn line_of(workload: &Workload) -> String {
    let Workload {
        name,
        about,
        default_count,
        count_is,
        ..
    } = workload;
    format!("{name:<18} {about} ({default_count} {count_is})\n")
}
