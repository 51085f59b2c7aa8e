//! `swtch fiber`: shows the user-mode schedulers of another process, beside the kernel's counters.
//!
//! ```text
//! shared page of the process ─▶ Snapshot ─┬─▶ views: schedulers, workers, tasks, threads, waits
//! /proc/PID/task/TID         ─▶ counters ─┴─▶ rates of both levels, side by side, every second
//! ```
//!
//! The target neither stops nor answers: its page is mapped ([`swtch_observe`]), and the
//! kernel's counters are read from procfs. Columns are named as in SQL Server's views
//! (`sys.dm_os_schedulers` and its like), with the unit added. Single switches are not recorded
//! here; `swtch record` does that.

use std::fs;
use std::io::stdout;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use swtch_observe::{Mode, Page};
use swtch_output::answer;
use swtch_output::format::{Format, write_answer};
use swtch_report::report::Sheet;

mod head;
mod kernel;
mod lines;
mod list;
mod live;
mod price;
mod rates;
mod views;

use head::FiberHead;
use kernel::KernelCounters;
pub use views::View;

/// A request of `swtch fiber`.
#[derive(Clone, Copy, Debug)]
pub struct FiberRequest {
    /// The process to look at; `None` lists all processes that have schedulers.
    pub pid: Option<u32>,
    /// The view to show; `None` shows the rates of both levels.
    pub view: Option<View>,
    /// The format on stdout.
    pub format: Format,
    /// Time between two readings of the rates.
    pub interval: Duration,
    /// The number of readings that are shown; `None` goes on until the target ends.
    pub count: Option<u64>,
    /// Measures what a switch of a scheduler in a mode costs here, in ns.
    pub user_switch_ns: fn(Mode) -> Option<f64>,
}

/// Answers one `swtch fiber` command and returns its exit code.
///
/// # Errors
/// If the process does not exist, has no scheduler or may not be inspected, or if stdout cannot be
/// written.
pub fn run(request: &FiberRequest) -> Result<u8> {
    let Some(pid) = request.pid else {
        let (sheet, head) = list::processes();
        write(&sheet, &head, request.format)?;
        return Ok(0);
    };
    let page = open(pid)?;
    match request.view {
        Some(view) => show_once(&page, view, request.format)?,
        None => live::show(&page, request)?,
    }
    Ok(0)
}

/// Opens the page of a process. A thread id is refused here with its own message: the search for a
/// page would only report that there is no scheduler.
fn open(pid: u32) -> Result<Page> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let owner = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    let owner = owner.and_then(|owner| owner.trim().parse::<u32>().ok());
    match owner {
        Some(owner) if owner != pid => bail!("{pid} is a thread of process {owner}: give {owner}"),
        _ => Ok(Page::of_process(pid)?),
    }
}

fn show_once(page: &Page, view: View, format: Format) -> Result<()> {
    let snapshot = page.snapshot()?;
    let threads = KernelCounters::read(page.pid(), &snapshot);
    let head = FiberHead::of(page.pid(), &head::name(page.pid()), &snapshot);
    write(&view.sheet(&snapshot, &threads), &head, format)
}

/// Writes a sheet with its head, in one of the three formats.
fn write(sheet: &Sheet, head: &FiberHead, format: Format) -> Result<()> {
    answer::write(&head.above(sheet), format, &mut stdout())
}

fn tell(answer: &[u8]) -> Result<()> {
    write_answer(&mut stdout(), answer).context("writing the answer")
}
