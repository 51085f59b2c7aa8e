//! A trace without a single switch of what was asked for: why that is so, and what to type instead.
//!
//! "Nothing stands out" after 0 switches would read as "all is well". Where nothing was recorded, the
//! recording's own counts tell which of these it was:
//!
//! ```text
//! the rows were lost, or could not be written     ─▶ the losses are the answer
//! the kernel counted switches, no row came        ─▶ a fault of the recording
//! the kernel counted none, either                 ─▶ these processes made no switch
//! neither of both is known (a cgroup, an import)  ─▶ nothing of the scope switched
//! ```

use swtch_store::{Counts, Meta, State, TreeCounts};

use super::head::told_length;
use crate::text::counted;

/// Why a trace of these facts, with `rows` switches of what was asked for, is empty; `None` when it is
/// not. Whole sentences; names in them are not escaped.
pub fn why_empty(meta: &Meta, rows: u64) -> Option<String> {
    if rows > 0 {
        return None;
    }
    let sentences = [what_happened(meta), others(meta), what_to_type(meta)];
    Some(
        sentences
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(" "),
    )
}

/// The same for a filter that leaves nothing of a trace that has rows.
pub fn why_filtered(filter: &str, all: u64) -> String {
    let rows = counted(all, "row");
    format!("No switch passes the filter ({filter}); without it the trace has {rows}.")
}

fn what_happened(meta: &Meta) -> Option<String> {
    let Counts {
        lost,
        unnamed,
        storage_failed,
        ..
    } = meta.counts;
    let missing = lost + unnamed + storage_failed;
    if meta.state == State::Recording {
        return Some("No switch can be read of this trace: its recording did not end.".to_owned());
    }
    if missing > 0 {
        let switches = counted(missing, "switch-out");
        return Some(format!(
            "No switch is in this trace, because {switches} were lost."
        ));
    }
    let time = told_length(meta).map_or_else(String::new, |time| format!(" in {time}"));
    Some(match meta.tree {
        Some(tree) if tree.processes == 0 => format!(
            "The kernel did not keep what the recorder needs to know about {}: nothing of it was \
             recorded{time}, and this trace is no answer.",
            meta.scope
        ),
        Some(tree) if tree.switches > 0 => {
            let switches = counted(tree.switches, "switch-out");
            format!(
                "The kernel counted {switches} of what was recorded{time}, and none came to the \
                 recorder: this is a fault of swtch or of this kernel, and this trace is no answer."
            )
        }
        Some(tree) => no_switch_of(tree.processes, &meta.scope, &time),
        None => format!(
            "No task of this recording ({}) left a CPU{time}.",
            meta.scope
        ),
    })
}

fn no_switch_of(processes: u64, scope: &str, time: &str) -> String {
    let (whose, they) = match processes {
        1 => (capital(scope), "it"),
        several => (format!("{} ({scope})", counted(several, "process")), "they"),
    };
    format!(
        "{whose} made no switch{time}, by the kernel's own count: {they} slept, stood still, or ran \
         all the time."
    )
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}

/// Whose switches were seen instead.
fn others(meta: &Meta) -> Option<String> {
    let filtered = meta.counts.filtered;
    (filtered > 0).then(|| {
        let switches = counted(filtered, "switch-out");
        format!("{switches} of other tasks were seen and left out.")
    })
}

fn what_to_type(meta: &Meta) -> Option<String> {
    let is_fault = |tree: &TreeCounts| tree.switches > 0 || tree.processes == 0;
    if meta.imported.is_some() || meta.tree.as_ref().is_some_and(is_fault) {
        return None;
    }
    Some(match meta.tree {
        Some(_) => {
            "Record while they work (-d SECONDS gives them time), or everything: swtch explain \
                    -a -d 5 names the processes that switch."
                .to_owned()
        }
        None => "swtch explain -a -d 5 names the processes that switch on this machine.".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A finished recording of process 7 and those below, of two seconds.
    fn recording(tree: Option<TreeCounts>, filtered: u64) -> Meta {
        Meta {
            state: State::Finished,
            scope: "process 7 and those below".to_owned(),
            start_ns: SECOND,
            end_ns: 3 * SECOND,
            tree,
            counts: Counts {
                switches_seen: filtered,
                filtered,
                ..Counts::default()
            },
            ..Meta::default()
        }
    }

    const fn tree(processes: u64, switches: u64) -> Option<TreeCounts> {
        Some(TreeCounts {
            processes,
            switches,
            missed: 0,
        })
    }

    #[test]
    fn a_trace_with_rows_needs_no_explanation() {
        assert_eq!(why_empty(&recording(tree(1, 0), 0), 1), None);
    }

    #[test]
    fn processes_that_slept_are_said_to_have_slept() {
        let why = why_empty(&recording(tree(12, 0), 1_234), 0).unwrap();
        let expected = "12 processes (process 7 and those below) made no switch in 2.00 s, by the \
            kernel's own count: they slept, stood still, or ran all the time. 1,234 switch-outs of \
            other tasks were seen and left out. Record while they work (-d SECONDS gives them time), \
            or everything: swtch explain -a -d 5 names the processes that switch.";
        assert_eq!(why, expected);
    }

    #[test]
    fn one_process_is_no_crowd() {
        let why = why_empty(&recording(tree(1, 0), 0), 0).unwrap();
        let expected = "Process 7 and those below made no switch in 2.00 s, by the kernel's own \
            count: it slept,";
        assert!(!why.contains("other tasks"), "{why}");
        assert!(why.starts_with(expected), "{why}");
    }

    /// A recording that says "slept" of busy processes would be the worst of all answers.
    #[test]
    fn switches_that_only_the_kernel_counted_are_a_fault() {
        let why = why_empty(&recording(tree(3, 40), 9), 0).unwrap();
        assert!(why.contains("The kernel counted 40 switch-outs"), "{why}");
        assert!(why.contains("no answer") && !why.contains("slept"), "{why}");
    }

    #[test]
    fn processes_that_the_kernel_side_could_not_keep_are_not_called_asleep() {
        let why = why_empty(&recording(tree(0, 0), 9), 0).unwrap();
        assert!(why.contains("no answer") && !why.contains("slept"), "{why}");
    }

    #[test]
    fn losses_are_not_called_sleep() {
        let mut meta = recording(tree(3, 40), 9);
        meta.counts.lost = 40;
        let why = why_empty(&meta, 0).unwrap();
        assert!(why.contains("40 switch-outs were lost"), "{why}");
        assert!(!why.contains("slept") && !why.contains("fault"), "{why}");
    }

    #[test]
    fn a_cgroup_without_switches_is_told_by_its_name() {
        let mut meta = recording(None, 5);
        meta.scope = "cgroup /sys/fs/cgroup/x".to_owned();
        let why = why_empty(&meta, 0).unwrap();
        assert!(
            why.starts_with("No task of this recording (cgroup /sys/fs/cgroup/x)"),
            "{why}"
        );
        assert!(why.contains("swtch explain -a"), "{why}");
    }

    #[test]
    fn a_trace_that_did_not_end_claims_no_sleep() {
        let mut meta = recording(None, 0);
        meta.state = State::Recording;
        assert!(why_empty(&meta, 0).unwrap().contains("did not end"));
    }

    #[test]
    fn a_filter_that_leaves_nothing_is_named() {
        let why = why_filtered("--pid 9", 1_300);
        assert!(
            why.contains("--pid 9") && why.contains("1,300 rows"),
            "{why}"
        );
    }
}
