//! Lists the processes of this machine that have user-mode schedulers.

use std::fs;

use swtch_core::Nanos;
use swtch_observe::{Error, Mode, Page};
use swtch_output::text::counted;
use swtch_report::report::{Cell, Sheet};

use super::head::{FiberHead, name};

const COLUMNS: [&str; 7] = [
    "pid",
    "comm",
    "mode",
    "schedulers",
    "workers",
    "context_switches_count",
    "age_ns",
];

/// One row for each process that has a page, and the head of the answer.
pub fn processes() -> (Sheet, FiberHead) {
    let mut sheet = Sheet::new("processes", &COLUMNS);
    let mut closed = 0;
    let mut refused = Vec::new();
    for pid in pids() {
        match Page::of_process(pid) {
            Ok(page) => sheet.rows.extend(row(&page)),
            Err(Error::NotPermitted { .. }) => closed += 1,
            // This process has no scheduler, or has ended meanwhile.
            Err(Error::NoScheduler { .. } | Error::NoProcess { .. }) => {}
            Err(error) => refused.push(error.to_string()),
        }
    }
    if closed > 0 {
        sheet.notes.push(format!(
            "{} may not be looked at: CAP_SYS_PTRACE (sudo) shows the processes of all users",
            counted(closed, "other")
        ));
    }
    sheet.notes.extend(refused);
    (sheet, FiberHead::of_machine())
}

/// The ids of all processes, in ascending order.
fn pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    let mut pids: Vec<u32> = names
        .filter_map(|name| name.to_str()?.parse().ok())
        .collect();
    pids.sort_unstable();
    pids
}

fn row(page: &Page) -> Option<Vec<Cell>> {
    let snapshot = page.snapshot().ok()?;
    let all = &snapshot.schedulers;
    let of_living = all.iter().filter(|row| row.mode != Mode::Ended);
    let mut modes: Vec<Mode> = of_living.clone().map(|row| row.mode).collect();
    modes.sort_unstable();
    modes.dedup();
    let modes = modes.into_iter().map(|mode| mode.as_str().to_owned());
    let switches = all.iter().map(|row| row.context_switches_count);
    let oldest = all.iter().map(|row| row.age_ns).max();
    Some(vec![
        Cell::Id(page.pid().into()),
        Cell::text(name(page.pid())),
        Cell::List(modes.collect()),
        Cell::Count(of_living.count() as u64),
        Cell::Count(snapshot.workers.len() as u64),
        Cell::Count(switches.sum()),
        Cell::time(oldest.map(Nanos::from_ns)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_with_a_scheduler_is_listed() {
        let runtime = swtch_fiber::Runtime::builder()
            .schedulers(1)
            .build()
            .unwrap();
        let (sheet, _) = processes();
        let own = Cell::Id(std::process::id().into());
        assert!(sheet.rows.iter().any(|row| row[0] == own), "{sheet:?}");
        drop(runtime);
    }
}
