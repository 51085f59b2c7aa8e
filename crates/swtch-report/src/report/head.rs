//! The first lines of every report: which machine, how long, how many switches, how many were
//! lost, and what the recording itself cost.
//!
//! ```text
//! host   db1 · Linux 6.18.0 x86_64 · 2 CPUs
//! trace  run.swtch · 1.25 s · perf bench sched pipe
//! 400,123 context switches · 0 lost · recorder: 0.12 s CPU, 45 MB
//! ```
//!
//! Below follows what would mislead if it were left out: an unfinished trace, gaps, missing hooks.

mod json;
mod losses;

pub use losses::{lost_names_in_words, lost_records};

use std::path::PathBuf;

use crate::report::{LeastWait, Selection};
use swtch_core::{Gap, Nanos, Timestamp};
use swtch_output::built::{LIGHT_IN_WORDS, is_light};
use swtch_output::host::HostWords;
use swtch_output::message;
use swtch_output::sheet::percent;
use swtch_output::text::{counted, escaped, grouped};
use swtch_store::{Imported, Meta, RecordingBackend, RecordingState, RingFacts, TraceHost};

/// The facts about a trace apart from its rows.
#[derive(Clone, Debug, Default)]
pub struct TraceHead {
    /// The directory that holds the trace.
    pub path: PathBuf,
    /// Contents of its file `meta.json`.
    pub meta: Meta,
    /// Rows of `switch` that can be read.
    pub rows: u64,
    /// The filter, in the words of the command line; `None` when everything is counted.
    pub filter: Option<String>,
    /// The shortest wait that counts.
    pub min_wait: Option<LeastWait>,
    /// The reason why the trace is incomplete; `None` for a finished one.
    pub incomplete: Option<String>,
    /// The places and times at which records were lost.
    pub gaps: Vec<Gap>,
    /// Time from the start to the last row, for a trace whose `meta.json` does not tell the end.
    pub duration: Nanos,
}

/// Sums numbers from a file, which may be damaged: the sum saturates.
fn sum(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// Number of lost records, and of switches that were not traced, for the line of a head that counts
/// switches: `0 lost`, `0 lost, 426 not traced`.
pub fn lost_in_words(lost: u64, untraced: u64) -> String {
    let untraced = match untraced {
        0 => String::new(),
        some => format!(", {} not traced", grouped(some)),
    };
    format!("{} lost{untraced}", grouped(lost))
}

/// Says what it means that the kernel made switches and did not report them to tracing, `in_scope` of them away from
/// recorded tasks where that is known; `None` if there were none.
pub fn untraced_in_words(untraced: u64, in_scope: Option<u64>) -> Option<String> {
    let (of, meaning) = match in_scope {
        _ if untraced == 0 => return None,
        Some(0) => (
            ", as far as is known all of tasks that are not recorded",
            "who had the CPU then is not known".to_owned(),
        ),
        Some(some) if some < untraced => (
            "",
            format!(
                "{} of them are of recorded tasks and in no row, so counts and sums are lower bounds",
                grouped(some)
            ),
        ),
        _ => (
            "",
            "they are in no row, so counts and sums are lower bounds".to_owned(),
        ),
    };
    let switches = counted(untraced, "context switch");
    Some(format!(
        "the kernel made {switches} that it did not report to tracing{of}: {meaning}"
    ))
}

/// Switches of the report, which the head names beside those of the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportedSwitches {
    /// Switches that the report counts.
    pub counted: u64,
    /// Switches of tasks that the capture was not asked for: they had the CPU while others waited.
    pub out_of_scope: u64,
}

impl TraceHead {
    /// Lost records: by the gaps, or by the recorder's own count where it is higher.
    pub fn lost(&self) -> u64 {
        let in_gaps = sum(self.gaps.iter().map(|gap| gap.lost));
        let counts = &self.meta.counts;
        let lost = in_gaps.max(counts.lost);
        sum([lost, counts.unnamed, counts.storage_failed].into_iter())
    }

    /// Length of the recording, or until its last row if it did not end.
    pub fn duration(&self) -> Nanos {
        told_length(&self.meta).unwrap_or(self.duration)
    }

    /// The length of the part of the recording that is selected.
    pub fn duration_of(&self, selection: &Selection) -> Nanos {
        let start = Timestamp::from_ns(self.meta.start_ns);
        let end = start.as_ns().saturating_add(self.duration().as_ns());
        let from = selection.from().max(start);
        let to = selection.to().min(Timestamp::from_ns(end));
        to.since(from).unwrap_or(Nanos::ZERO)
    }

    /// Returns when the recording began; `None` if a file does not tell.
    pub fn began(&self) -> Option<Timestamp> {
        told_length(&self.meta).map(|_| Timestamp::from_ns(self.meta.start_ns))
    }

    /// Returns for which share of the recording all CPUs of the machine together were busy, with whatever; `None` if
    /// it is not known.
    pub fn busy_pct(&self) -> Option<f64> {
        let cpus = u64::from(self.meta.host.cpus);
        let all = self.duration().as_ns().saturating_mul(cpus);
        percent(self.meta.load.busy_ns()?.min(all), all)
    }

    /// The number of switches that the kernel did not report, with the sentence on them, if all were of tasks that were
    /// not recorded and nothing else is missing; `None` otherwise.
    pub fn untraced_of_others(&self) -> Option<(u64, String)> {
        let counts = &self.meta.counts;
        let words = untraced_in_words(counts.untraced, counts.untraced_in_scope)?;
        let is_all = counts.untraced_in_scope == Some(0) && self.is_complete_of(0);
        is_all.then_some((counts.untraced, words))
    }

    /// Returns true if every switch of the recorded tasks is in a row: known only of a recording that has ended as it
    /// was asked to.
    pub fn is_complete(&self) -> bool {
        self.is_complete_of(self.meta.counts.untraced)
    }

    fn is_complete_of(&self, untraced: u64) -> bool {
        let counts = &self.meta.counts;
        let is_told = self.meta.state == RecordingState::Finished && self.incomplete.is_none();
        let is_balanced = counts.switches_seen == sum([counts.stored, counts.filtered].into_iter());
        is_told
            && is_balanced
            && self.lost() == 0
            && counts.storage_refused == 0
            && counts.lost_names == 0
            && untraced == 0
            && counts.uncaught == 0
            && self.meta.tree.is_none_or(|tree| tree.missed == 0)
            && self.meta.imported.is_none()
    }

    /// The lines for people, and an empty one.
    pub fn to_text(&self, rows: ReportedSwitches) -> String {
        let host = host_words(&self.meta.host).to_line();
        let path = self.path.to_string_lossy();
        let trace = format!("{path} · {} · {}", self.duration(), self.what());
        let mut lines = vec![
            format!("host   {}", escaped(&host)),
            format!("trace  {}", escaped(&trace)),
            format!(
                "{} · {} · recorder: {}",
                counted(rows.counted, "context switch"),
                lost_in_words(self.lost(), self.meta.counts.untraced),
                self.overhead(),
            ),
        ];
        let warnings = self.warnings(rows);
        lines.extend(
            warnings
                .iter()
                .map(|line| format!("note: {}", escaped(line))),
        );
        lines.join("\n") + "\n\n"
    }

    /// Says in words what was traced.
    pub fn what(&self) -> String {
        let Meta { command, scope, .. } = &self.meta;
        if command.is_empty() {
            scope.clone()
        } else {
            command.join(" ")
        }
    }

    /// Says in words what the recording cost.
    pub fn overhead(&self) -> String {
        let overhead = &self.meta.overhead;
        if self.meta.state == RecordingState::Recording {
            return "not told (the recording did not end)".to_owned();
        }
        if self.meta.imported.is_some() {
            return "not told (imported)".to_owned();
        }
        let cpu = Nanos::from_ns(overhead.recorder_cpu_ns);
        let megabytes = overhead.recorder_peak_rss_bytes.div_ceil(1_000_000);
        let in_kernel = overhead.in_kernel();
        let in_kernel = in_kernel.map_or_else(String::new, |cost| format!(", {cost}"));
        format!("{cpu} CPU, {megabytes} MB{in_kernel}")
    }

    /// Says which part of a recording this is, and why it was written down.
    fn of_ring(&self, ring: &RingFacts) -> Vec<String> {
        let mut lines = Vec::new();
        lines.extend(
            ring.dumped_because
                .as_ref()
                .map(|why| format!("dumped because: {why}")),
        );
        if self.meta.end_ns > 0 {
            let all = Nanos::from_ns(self.meta.end_ns.saturating_sub(ring.began_ns));
            lines.push(format!(
                "the last {} of {all} that were recorded (record --ring {}); in all of it: {}, {}",
                self.duration(),
                ring.kept,
                counted(ring.switches, "switch"),
                lost_in_words(ring.lost, ring.untraced),
            ));
        }
        lines
    }

    /// Says what a reader must know before reading the numbers.
    pub fn warnings(&self, rows: ReportedSwitches) -> Vec<String> {
        let mut lines = Vec::new();
        lines.extend(self.meta.ring.iter().flat_map(|ring| self.of_ring(ring)));
        lines.extend(self.meta.imported.as_ref().map(|imported| {
            format!(
                "imported from {} ({}): that tells neither the system call nor who asked for a reschedule, so \
                 most reasons are only blocked or preempted",
                imported.file, imported.format
            )
        }));
        lines.extend(self.meta.backend.not_told().map(str::to_owned));
        let imported = self.meta.imported.as_ref();
        let unstarted = imported.map_or(0, |imported| imported.runs_without_start);
        if unstarted > 0 {
            lines.push(format!(
                "run times are lower bounds: the file does not tell when {} began",
                counted(unstarted, "run")
            ));
        }
        if is_light(&self.meta.swtch_version) {
            lines.push(format!("recorded {LIGHT_IN_WORDS}"));
        }
        lines.extend(self.missing());
        if !self.meta.hooks.missing.is_empty() {
            let missing = self.meta.hooks.missing.join(", ");
            lines.push(format!(
                "this kernel lacks {missing}: reasons that need it are inferred"
            ));
        }
        if !self.meta.hooks.left_out.is_empty() {
            let left_out = self.meta.hooks.left_out.join(", ");
            lines.push(format!(
                "{left_out} was left out, because eBPF on it can crash this kernel: reasons that need it \
                 are inferred"
            ));
        }
        let has_all = self.min_wait.is_some() && rows.counted == self.rows;
        if let Some(filter) = self.filter.as_ref().filter(|_| !has_all) {
            let (reported, all) = (grouped(rows.counted), grouped(self.rows));
            lines.push(format!(
                "only {filter}: {reported} of the trace's {all} rows"
            ));
        }
        if let Some(least) = &self.min_wait {
            lines.push(format!(
                "waits shorter than {least} are left out (--min-wait); the switches around them are counted all the same"
            ));
        }
        lines
    }

    /// The sentences on what the rows lack; empty if nothing. Every output says these sentences: tables and pages above
    /// their numbers, and outputs without room for them on stderr.
    pub fn missing(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if let Some(why) = &self.incomplete {
            let rows = counted(self.rows, "row");
            let length = self.duration();
            lines.push(format!("{why}; {rows} can be read, which span {length}"));
        }
        if let Some(reason) = &self.meta.stop_reason {
            lines.push(format!("the recording stopped early: {reason}"));
        }
        let imported = self.meta.imported.as_ref();
        lines.extend(imported.and_then(Imported::incomplete));
        lines.extend(self.losses());
        lines
    }

    /// Prints [`Self::missing`] on stderr, for formats that hold rows only.
    pub fn tell_missing(&self) {
        for line in self.missing() {
            message!("swtch: note: {}", escaped(&line));
        }
    }

    /// Says where every switch went: seen = stored + filtered + lost, and what the kernel counted. Of a recording by
    /// perf events the lost ones are an estimate, and so are those that were seen.
    pub fn balance(&self) -> String {
        if self.meta.state == RecordingState::Recording {
            let rows = counted(self.rows, "row");
            return format!("not known, the recording did not end; {rows} can be read");
        }
        let counts = &self.meta.counts;
        let lost = match self.meta.backend {
            RecordingBackend::Perf if counts.lost > 0 => "lost at most",
            _ => "lost",
        };
        let parts = [
            (counts.stored, "stored"),
            (counts.filtered, "of others (filtered)"),
            (counts.lost, lost),
            (counts.unnamed, "unnamed"),
            (counts.storage_failed, "not written"),
        ];
        let sum = sum(parts.iter().map(|part| part.0));
        let is_shown = |part: &&(u64, &str)| part.0 > 0 || part.1 == lost || part.1 == "stored";
        let shown: Vec<_> = parts
            .iter()
            .filter(is_shown)
            .map(|(count, word)| format!("{} {word}", grouped(*count)))
            .collect();
        let seen = grouped(counts.switches_seen);
        let balance = format!("{seen} seen = {}", shown.join(" + "));
        if sum == counts.switches_seen {
            format!("{balance}{}", self.kernel_count())
        } else {
            let missing = counts.switches_seen.abs_diff(sum);
            format!("{balance}: DOES NOT BALANCE by {}", grouped(missing))
        }
    }

    /// Says how many switches the kernel counted on the whole machine meanwhile, those from idle included.
    fn kernel_count(&self) -> String {
        let Some(by_kernel) = self.meta.kernel.switches() else {
            return String::new();
        };
        let counts = &self.meta.counts;
        format!(
            "; on all CPUs the kernel counted {} ({} with idle's {} here)",
            grouped(by_kernel),
            grouped(counts.switches_seen + counts.idle),
            grouped(counts.idle),
        )
    }
}

/// Returns what lines say about the machine of a trace.
pub fn host_words(host: &TraceHost) -> HostWords<'_> {
    HostWords {
        hostname: &host.hostname,
        kernel_release: &host.kernel_release,
        machine: Some(&host.machine),
        cpu_model: None,
        cpus: (host.cpus > 0).then(|| host.cpus.into()),
        // A note says it, of the recording.
        is_light: false,
    }
}

/// Length of a recording by its own facts; `None` if it did not end.
pub fn told_length(meta: &Meta) -> Option<Nanos> {
    let length = meta.end_ns.checked_sub(meta.start_ns);
    length.filter(|_| meta.end_ns > 0).map(Nanos::from_ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn::head;
    use serde_json::json;
    use swtch_core::{CpuId, Timestamp};
    use swtch_store::TreeCounts;

    fn lines(head: &TraceHead, rows: ReportedSwitches) -> String {
        head.to_text(rows)
    }

    const TEN: ReportedSwitches = ReportedSwitches {
        counted: 10,
        out_of_scope: 3,
    };

    #[test]
    fn the_head_says_machine_length_losses_and_cost() {
        let expected = "\
host   db1 · Linux 6.18.0 x86_64 · 2 CPUs
trace  run.swtch · 2.00 s · perf bench
10 context switches · 0 lost · recorder: 120 ms CPU, 45 MB, 172 ns a switch in the kernel

";
        assert_eq!(lines(&head(), TEN), expected);
    }

    /// Perf events tell how many records were lost. How many of them were switch-outs is an estimate.
    #[test]
    fn losses_of_perf_events_are_told_as_an_estimate() {
        let mut head = head();
        head.meta.backend = RecordingBackend::Perf;
        head.meta.counts.lost = 2;
        head.meta.counts.switches_seen += 2;
        head.gaps = vec![Gap {
            cpu: CpuId::new(1),
            start: Timestamp::from_ns(10),
            end: Timestamp::from_ns(10),
            lost: 2,
            level: swtch_core::Level::Os,
        }];
        let lines = lines(&head, TEN);
        let note = "note: at most 2 context switches lost in 1 gap";
        assert!(lines.contains(note), "{lines}");
        assert!(
            head.balance().contains("+ 2 lost at most"),
            "{}",
            head.balance()
        );
        head.meta.counts.lost = 0;
        assert!(head.balance().contains("0 lost"), "{}", head.balance());
    }

    #[test]
    fn what_would_mislead_is_said_first() {
        let mut head = head();
        head.incomplete = Some("unfinished: the recorder was killed".into());
        head.meta.hooks.missing = vec!["sched_exit_tp".into()];
        head.meta.hooks.left_out = vec!["sched_set_need_resched_tp".into()];
        head.gaps = vec![Gap {
            cpu: CpuId::new(1),
            start: Timestamp::from_ns(10),
            end: Timestamp::from_ns(2010),
            lost: 7,
            level: swtch_core::Level::Os,
        }];
        head.filter = Some("--pid 10".into());
        let expected = "\
10 context switches · 7 lost · recorder: 120 ms CPU, 45 MB, 172 ns a switch in the kernel
note: unfinished: the recorder was killed; 13 rows can be read, which span 2.00 s
note: 7 records lost in 1 gap (2.00 µs of CPU time): counts and sums are lower bounds
note: this kernel lacks sched_exit_tp: reasons that need it are inferred
note: sched_set_need_resched_tp was left out, because eBPF on it can crash this kernel: reasons that need it are inferred
note: only --pid 10: 10 of the trace's 13 rows
";
        assert!(
            lines(&head, TEN).contains(expected),
            "{}",
            lines(&head, TEN)
        );
    }

    #[test]
    fn a_command_with_escapes_is_harmless_in_the_head() {
        let mut head = head();
        head.meta.command = vec!["sh".into(), "\u{1b}[2Jx".into()];
        assert!(lines(&head, TEN).contains("sh \\x1b[2Jx"));
    }

    #[test]
    fn a_balance_that_does_not_close_is_said_loudly() {
        let mut head = head();
        assert_eq!(
            head.balance(),
            "15 seen = 13 stored + 2 of others (filtered) + 0 lost"
        );
        head.meta.counts.switches_seen = 20;
        assert!(
            head.balance().ends_with("DOES NOT BALANCE by 5"),
            "{}",
            head.balance()
        );
    }

    #[test]
    fn complete_is_only_what_balances_without_a_loss() {
        assert!(head().is_complete());
        let incomplete: [fn(&mut TraceHead); 9] = [
            |head| head.meta.counts.lost = 1,
            |head| head.meta.counts.switches_seen = 20,
            |head| head.meta.counts.storage_refused = 1,
            |head| head.meta.counts.lost_names = 1,
            |head| head.meta.counts.untraced = 1,
            |head| head.meta.counts.uncaught = 1,
            |head| {
                head.meta.tree = Some(TreeCounts {
                    missed: 1,
                    ..TreeCounts::default()
                });
            },
            |head| head.meta.state = RecordingState::Recording,
            |head| head.incomplete = Some("unfinished".into()),
        ];
        for change in incomplete {
            let mut head = head();
            change(&mut head);
            assert!(!head.is_complete(), "{:?}", head.meta.counts);
        }
    }

    /// A thread of a sandbox, whose switches its kernel hides from tracing: 426 in 5 s were in no row,
    /// and the trace was called complete.
    #[test]
    fn switches_that_were_not_traced_are_said_in_the_first_line_and_what_they_mean() {
        let mut head = head();
        head.meta.counts.untraced = 426;
        for (in_scope, note) in [
            (
                Some(426),
                "note: the kernel made 426 context switches that it did not report to tracing: they are \
                 in no row, so counts and sums are lower bounds\n",
            ),
            (
                Some(20),
                "note: the kernel made 426 context switches that it did not report to tracing: 20 of them \
                 are of recorded tasks and in no row, so counts and sums are lower bounds\n",
            ),
            (
                Some(0),
                "note: the kernel made 426 context switches that it did not report to tracing, as far as \
                 is known all of tasks that are not recorded: who had the CPU then is not known\n",
            ),
        ] {
            head.meta.counts.untraced_in_scope = in_scope;
            let lines = lines(&head, TEN);
            let first = "10 context switches · 0 lost, 426 not traced · recorder";
            assert!(lines.contains(first) && lines.contains(note), "{lines}");
            let json = head.to_json_trace(TEN);
            assert_eq!(
                (&json["complete"], &json["untraced"]),
                (&json!(false), &json!(426))
            );
        }
    }

    #[test]
    fn what_the_kernel_counted_beyond_losses_is_said() {
        let mut head = head();
        (head.meta.counts.lost, head.meta.counts.uncaught) = (5, 7);
        let note = "the kernel's own count 2 context switches of recorded tasks are missing";
        assert!(lines(&head, TEN).contains(note));
        head.meta.counts.uncaught = 5;
        assert!(!lines(&head, TEN).contains("own count"));
    }

    /// The counters of a killed recorder were never written, so their zeros are not what it saw.
    #[test]
    fn a_recording_that_did_not_end_claims_no_balance() {
        let mut head = head();
        head.meta.state = RecordingState::Recording;
        let expected = "not known, the recording did not end; 13 rows can be read";
        assert_eq!(head.balance(), expected);
        assert!(lines(&head, TEN).contains("recorder: not told"));
    }
}
