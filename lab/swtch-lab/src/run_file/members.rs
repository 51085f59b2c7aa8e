//! A row for each member: the kernel's counters, and the reasons of its switches if recorded.
//!
//! Switch-outs are counted between a member's begin and end, as its own counters are.

use swtch_bench::load::{Load, LoadResults};
use swtch_core::{Nanos, Reason};
use swtch_report::report::{Cell, Sheet};

use crate::evidence::{LoadRuns, MemberRuns};

/// Switch-outs of one member, by the index of their reason.
type Counts = [u64; Reason::ALL.len()];

/// Rows of the members of all plays so far.
#[derive(Debug, Default)]
pub struct Members {
    rows: Vec<MemberRow>,
}

#[derive(Debug)]
struct MemberRow {
    /// The cells before those of the reasons.
    cells: Vec<Cell>,
    /// `None` when it was not recorded.
    reasons: Option<Counts>,
}

/// Columns before those of the reasons.
const COLUMNS: [&str; 8] = [
    "variant",
    "member",
    "cpu",
    "began_ns",
    "took_ns",
    "cpu_time_ns",
    "voluntary",
    "involuntary",
];

impl Members {
    /// Adds a row for each member of a play.
    pub fn add(
        &mut self,
        variant: &str,
        load: &Load,
        played: &LoadResults,
        evidence: Option<&LoadRuns>,
    ) {
        for (number, member) in played.members.iter().enumerate() {
            let since = |earlier: u64, later: u64| Cell::Time(Nanos::from_ns(later - earlier));
            let variant = match variant {
                "" => Cell::Missing,
                name => Cell::text(name),
            };
            let name = load.groups[member.group].name_of(member.index);
            self.rows.push(MemberRow {
                cells: vec![
                    variant,
                    Cell::text(name),
                    member.cpu.map_or(Cell::Missing, |cpu| Cell::Id(cpu.into())),
                    since(played.started_ns, member.began_ns),
                    since(member.began_ns, member.ended_ns),
                    Cell::Time(member.cpu_time),
                    Cell::Count(member.voluntary),
                    Cell::Count(member.involuntary),
                ],
                reasons: evidence.map(|evidence| reasons(&evidence.members[number])),
            });
        }
    }

    /// The table, with a column for each reason that occurs.
    pub fn sheet(&self) -> Sheet {
        let occurs = |reason: &&Reason| {
            let mut counts = self.rows.iter().filter_map(|row| row.reasons);
            counts.any(|counts| counts[reason.index()] > 0)
        };
        let reasons: Vec<&Reason> = Reason::ALL.iter().filter(occurs).collect();
        let names = reasons.iter().map(|reason| reason.as_str());
        let columns: Vec<_> = COLUMNS.into_iter().chain(names).collect();
        let mut sheet = Sheet::new("members", &columns);
        let row = |row: &MemberRow| {
            let counts = reasons.iter().map(|reason| {
                row.reasons
                    .map_or(Cell::Missing, |counts| Cell::Count(counts[reason.index()]))
            });
            row.cells.iter().cloned().chain(counts).collect()
        };
        sheet.rows = self.rows.iter().map(row).collect();
        sheet
    }
}

/// Counts by reason the switch-outs of a member during its body.
fn reasons(runs: &MemberRuns) -> Counts {
    let mut counts = [0; Reason::ALL.len()];
    for run in runs.switch_outs() {
        counts[run.reason.index()] += 1;
    }
    counts
}
