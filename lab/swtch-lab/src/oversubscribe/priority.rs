//! The variant with a real-time thread: what real preemption looks like beside the turns of equals.

use std::collections::BTreeMap;

use anyhow::Result;
use swtch_core::Reason;
use swtch_output::text;
use swtch_report::report::{Cell, Sheet};

use super::ThreadCount;
use crate::context::RecordingChoice;
use crate::evidence::{LoadRuns, NextTask};
use crate::findings::{Findings, FindingsTable};
use crate::load_experiment::{LoadExperiment, PlayResult};

/// The index of the group `urgent` in the variant `with-priority` of
/// `experiments/oversubscribe.toml`.
const URGENT: usize = 1;

/// Plays the variant and adds its table, or a note where it cannot be recorded.
pub fn add(
    experiment: &mut LoadExperiment<'_>,
    threads: ThreadCount,
    findings: &mut Findings,
) -> Result<()> {
    if experiment.was_interrupted() {
        return Ok(());
    }
    let Some(result) = experiment.play(
        "with-priority",
        &threads.parameter(),
        RecordingChoice::Wanted,
    )?
    else {
        return Ok(());
    };
    let Some(evidence) = &result.evidence else {
        findings
            .notes
            .push("what a real-time thread does to the others can only be recorded".to_owned());
        return Ok(());
    };
    let counts = PreemptionCounts::of(&result, evidence);
    findings.sentences.push(counts.sentence());
    findings.tables.push(counts.table());
    Ok(())
}

/// Preemptions of the equal threads by reason: by each other, by the real-time thread, by others.
#[derive(Debug, Default)]
struct PreemptionCounts(BTreeMap<Reason, [u64; 3]>);

impl PreemptionCounts {
    fn of(result: &PlayResult, evidence: &LoadRuns) -> Self {
        let mut counts = Self::default();
        let members = &result.played.members;
        for (member, member_runs) in members.iter().zip(&evidence.members) {
            if member.group == URGENT {
                continue;
            }
            for run in member_runs.preemptions() {
                let column = match &run.next_task {
                    NextTask::Member(place) if members[*place].group == URGENT => 1,
                    NextTask::Member(_) => 0,
                    _ => 2,
                };
                counts.0.entry(run.reason).or_default()[column] += 1;
            }
        }
        counts
    }

    fn by_urgent(&self) -> u64 {
        self.0.values().map(|counts| counts[1]).sum()
    }

    fn sentence(&self) -> String {
        let count = |reason| self.0.get(&reason).map_or(0, |counts: &[u64; 3]| counts[1]);
        let taken = text::counted(self.by_urgent(), "time");
        format!(
            "Beside them a real-time thread took the CPU {taken}: {} by its class, {} by its wakeup as an \
             equal, {} by a slice. Equals take it from each other by slice.",
            count(Reason::Class),
            count(Reason::Wakeup),
            count(Reason::Slice),
        )
    }

    fn table(&self) -> FindingsTable {
        let mut sheet = Sheet::new(
            "with_priority",
            &["reason", "by_equals", "by_real_time", "by_others"],
        );
        for (reason, counts) in &self.0 {
            let mut row = vec![Cell::text(reason.as_str())];
            row.extend(counts.map(Cell::Count));
            sheet.rows.push(row);
        }
        let sum = |column: usize| Cell::Count(self.0.values().map(|counts| counts[column]).sum());
        sheet.total = Some(vec![Cell::text("total"), sum(0), sum(1), sum(2)]);
        FindingsTable::new(
            "preemptions of the equal threads beside a real-time thread, one play",
            sheet,
        )
    }
}
