//! Explains why a trace has no switch of what was asked for, and what to type instead.
//!
//! After 0 switches, "nothing stands out" would read as "all is well". If nothing was recorded, the
//! recording's own counts tell which of these cases it is:
//!
//! ```text
//! its recording did not end                       ─▶ nothing can be said
//! there was no room for the states of tasks        ─▶ a failure, with its cause
//! the rows were lost, or could not be written     ─▶ a failure: the losses are the answer
//! the kernel counted switches, none was reported  ─▶ a failure of swtch or of the kernel
//! the kernel counted no switches                  ─▶ these processes made no switch
//! neither count is known (a cgroup, an import)    ─▶ nothing of the scope switched
//! ```

use swtch_output::text::{counted, grouped};
use swtch_store::{Counts, Meta, RecordingState};

use super::head::told_length;

/// Says why a trace of these facts, with `rows` switches of what was asked for, is empty; `None` if it is not. The text
/// is whole sentences; names in it are not escaped.
pub fn why_empty(meta: &Meta, rows: u64) -> Option<String> {
    if rows > 0 {
        return None;
    }
    let empty = Empty::of(meta);
    let sentences = [Some(empty.told(meta)), others(meta), empty.advice(meta)];
    let sentences: Vec<_> = sentences.into_iter().flatten().collect();
    Some(sentences.join(" "))
}

/// Returns true if a trace of these facts is empty although something switched, which is a failure.
pub fn is_failure(meta: &Meta, rows: u64) -> bool {
    rows == 0 && Empty::of(meta).is_failure()
}

/// Explains a filter that leaves none of the `all` rows of a trace.
pub fn why_filtered(filter: &str, all: u64) -> String {
    let rows = counted(all, "row");
    format!("No switch passes the filter ({filter}); without it the trace has {rows}.")
}

/// The reason why a recording has no rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Empty {
    /// The recorder was killed, or is still running.
    NotEnded,
    /// So often there was no room for the state of a task, without which nothing about it is known.
    Refused(u64),
    /// So many rows had no room, had no name, or could not be written.
    Lost(u64),
    /// The kernel counted so many switches on this machine, while its tracepoint reported none.
    Silent(u64),
    /// The kernel counted so many switches of the processes, while none of them was delivered.
    Undelivered(u64),
    /// So many processes made no switch, by the kernel's own count.
    Slept(u64),
    /// No task switched, as far as is known.
    NothingSeen,
}

impl Empty {
    fn of(meta: &Meta) -> Self {
        let Counts {
            lost,
            unnamed,
            storage_failed,
            storage_refused,
            switches_seen,
            ..
        } = meta.counts;
        let missing = lost + unnamed + storage_failed;
        let by_kernel = meta.kernel.switches().unwrap_or(0);
        // A single refusal that the next event made good does not explain an empty recording of
        // processes that slept.
        let is_refused = storage_refused > 0
            && meta.tree.map_or(storage_refused >= switches_seen, |tree| {
                tree.processes == 0 || tree.switches > 0
            });
        match meta.tree {
            _ if meta.state == RecordingState::Recording => Self::NotEnded,
            _ if is_refused => Self::Refused(storage_refused),
            _ if missing > 0 => Self::Lost(missing),
            _ if switches_seen == 0 && by_kernel > 0 && meta.imported.is_none() => {
                Self::Silent(by_kernel)
            }
            Some(tree) if tree.switches > 0 => Self::Undelivered(tree.switches),
            Some(tree) => Self::Slept(tree.processes),
            None => Self::NothingSeen,
        }
    }

    const fn is_failure(self) -> bool {
        match self {
            Self::Refused(_) | Self::Lost(_) | Self::Silent(_) | Self::Undelivered(_) => true,
            Self::NotEnded | Self::Slept(_) | Self::NothingSeen => false,
        }
    }

    fn told(self, meta: &Meta) -> String {
        let switches = |count| counted(count, "context switch");
        let time = told_length(meta).map_or_else(String::new, |time| format!(" in {time}"));
        let scope = &meta.scope;
        match self {
            Self::NotEnded => {
                "No switch can be read of this trace: its recording did not end.".to_owned()
            }
            Self::Refused(times) => format!(
                "Nothing was recorded: {} there was no room for what the recorder keeps of a task.",
                counted(times, "time")
            ),
            Self::Lost(missing) => format!(
                "No switch is in this trace: {} were lost ({} had no room in the rings, {} no name, {} could not \
                 be written).",
                switches(missing),
                grouped(meta.counts.lost),
                grouped(meta.counts.unnamed),
                grouped(meta.counts.storage_failed)
            ),
            Self::Silent(moved) => format!(
                "Nothing was recorded: the kernel counted {} on this machine{time}, and its tracepoint \
                 sched_switch reported none of them to the recorder.",
                switches(moved)
            ),
            Self::Undelivered(counted) => format!(
                "Nothing was recorded: the kernel counted {} of what was asked for{time}, and none came to \
                 the recorder.",
                switches(counted)
            ),
            Self::Slept(processes) => no_switch_of(processes, scope, &time),
            Self::NothingSeen => format!("No task of this recording ({scope}) left a CPU{time}."),
        }
    }

    /// Says what can be done, or typed instead.
    fn advice(self, meta: &Meta) -> Option<String> {
        let advice = match self {
            Self::NotEnded => return None,
            Self::Refused(_) => {
                "The room is taken at the start: for 65,536 threads, or four times as many as there are \
                 then. Record again, now that there are more (/proc/loadavg counts them)."
            }
            Self::Lost(_) => {
                "Rings run full when the recorder gets no CPU or a slow disk holds it up: record where both \
                 are free."
            }
            Self::Silent(_) | Self::Undelivered(_) => {
                "This is a fault of swtch with this kernel: please report it, with what uname -r and \
                 swtch doctor say."
            }
            _ if meta.imported.is_some() => return None,
            Self::Slept(_) => {
                "Record while they work (-d SECONDS gives them time), or everything: swtch explain -a \
                 -d 5 names the processes that switch."
            }
            Self::NothingSeen => {
                "swtch explain -a -d 5 names the processes that switch on this machine."
            }
        };
        Some(advice.to_owned())
    }
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

/// Says how many switches of other tasks were seen instead.
fn others(meta: &Meta) -> Option<String> {
    let filtered = meta.counts.filtered;
    (filtered > 0).then(|| {
        let switches = counted(filtered, "context switch");
        format!("{switches} of other tasks were seen and left out.")
    })
}

#[cfg(test)]
mod tests {
    use swtch_store::TreeCounts;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// A finished recording of process 7 and those below, of two seconds.
    fn recording(tree: Option<TreeCounts>, filtered: u64) -> Meta {
        Meta {
            state: RecordingState::Finished,
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
            kernel's own count: they slept, stood still, or ran all the time. 1,234 context switches of \
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

    /// To say of busy processes that they slept would be wrong.
    #[test]
    fn switches_that_only_the_kernel_counted_are_a_fault() {
        let why = why_empty(&recording(tree(3, 40), 9), 0).unwrap();
        assert!(
            why.contains("the kernel counted 40 context switches"),
            "{why}"
        );
        assert!(why.contains("report it") && !why.contains("slept"), "{why}");
        assert!(is_failure(&recording(tree(3, 40), 9), 0));
    }

    /// Seen while the kernel could refuse it: 1,072 switches seen, all called those of others.
    #[test]
    fn room_that_was_refused_throughout_is_a_failure_with_its_cause() {
        for tree in [None, tree(0, 0), tree(1, 1_014)] {
            let mut meta = recording(tree, 1_072);
            meta.counts.storage_refused = 3_000;
            let why = why_empty(&meta, 0).unwrap();
            assert!(why.contains("3,000 times there was no room"), "{why}");
            assert!(
                why.contains("65,536 threads") && !why.contains("slept"),
                "{why}"
            );
            assert!(is_failure(&meta, 0));
        }
    }

    /// One refusal that was healed must not condemn a recording of an idle process.
    #[test]
    fn a_refusal_that_was_healed_leaves_processes_asleep() {
        for tree in [tree(1, 0), None] {
            let mut meta = recording(tree, 5_000);
            meta.counts.storage_refused = 1;
            assert!(!is_failure(&meta, 0));
        }
    }

    #[test]
    fn a_tracepoint_that_reports_nothing_is_a_failure() {
        for tree in [tree(1, 0), None] {
            let mut meta = recording(tree, 0);
            meta.kernel.ctxt_before = Some(1_000);
            meta.kernel.ctxt_after = Some(1_300);
            let why = why_empty(&meta, 0).unwrap();
            assert!(why.contains("counted 300 context switches"), "{why}");
            assert!(is_failure(&meta, 0));
            assert!(!is_failure(&meta, 1), "with rows it is none");
        }
    }

    #[test]
    fn losses_are_not_called_sleep() {
        let mut meta = recording(tree(3, 40), 9);
        meta.counts.lost = 40;
        let why = why_empty(&meta, 0).unwrap();
        assert!(why.contains("40 context switches were lost"), "{why}");
        assert!(!why.contains("slept") && !why.contains("fault"), "{why}");
        assert!(is_failure(&meta, 0));
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
        meta.state = RecordingState::Recording;
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
