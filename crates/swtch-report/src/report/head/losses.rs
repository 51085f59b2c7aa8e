//! The sentences on what a recording lost.

use swtch_core::Nanos;
use swtch_output::text::counted;
use swtch_store::{Counts, Meta, RecordingBackend};

use super::{TraceHead, sum, untraced_in_words};

/// What is counted as lost, in words. By perf events that is an estimate: the kernel counts records, and not all are of
/// switch-outs.
pub fn lost_records(meta: &Meta, lost: u64) -> String {
    match (meta.backend, &meta.imported) {
        (RecordingBackend::Perf, None) => format!("at most {}", counted(lost, "context switch")),
        _ => counted(lost, "record"),
    }
}

/// Says what it means that records of tasks were lost; `None` if none were.
pub fn lost_names_in_words(lost: u64) -> Option<String> {
    (lost > 0).then(|| {
        let records = counted(lost, "record");
        format!("{records} of tasks lost: some threads have no name, or an old one")
    })
}

impl TraceHead {
    /// Says what was lost, where and when.
    pub(super) fn losses(&self) -> Vec<String> {
        let Counts {
            unnamed,
            storage_failed,
            storage_refused,
            untraced,
            untraced_in_scope,
            uncaught,
            lost_names,
            ..
        } = self.meta.counts;
        let mut lines = Vec::new();
        if !self.gaps.is_empty() {
            let lost = sum(self.gaps.iter().map(|gap| gap.lost));
            let lengths = self.gaps.iter().filter_map(|gap| gap.end.since(gap.start));
            let time: Nanos = lengths.sum();
            let gaps = counted(u64::try_from(self.gaps.len()).unwrap_or(u64::MAX), "gap");
            let lost = lost_records(&self.meta, lost);
            lines.push(format!(
                "{lost} lost in {gaps} ({time} of CPU time): counts and sums are lower bounds"
            ));
        }
        if unnamed > 0 {
            let switches = counted(unnamed, "context switch");
            lines.push(format!(
                "{switches} of tasks that could not be named are in no row"
            ));
        }
        if storage_failed > 0 {
            let rows = counted(storage_failed, "row");
            lines.push(format!("{rows} could not be written to disk"));
        }
        lines.extend(untraced_in_words(untraced, untraced_in_scope));
        let unexplained = uncaught.saturating_sub(sum([self.lost(), untraced].into_iter()));
        if unexplained > 0 {
            lines.push(format!(
                "by the kernel's own count {} of recorded tasks are missing between their rows",
                counted(unexplained, "context switch")
            ));
        }
        if let Some(missed) = self
            .meta
            .tree
            .map(|tree| tree.missed)
            .filter(|missed| *missed > 0)
        {
            let tasks = counted(missed, "task");
            lines.push(format!(
                "{tasks} could not be looked at when the recording began: processes below those of -p may be \
                 missing"
            ));
        }
        if storage_refused > 0 {
            let times = counted(storage_refused, "time");
            lines.push(format!(
                "the kernel refused {times} to keep what is known of a task: wakers and lengths of waits \
                 are missing there, and rows may be"
            ));
        }
        lines.extend(lost_names_in_words(lost_names));
        lines
    }
}
