//! The result of a recording, and how it is told.

use swtch_core::Nanos;
use swtch_output::exit_code::FAILED;
use swtch_output::message;
use swtch_output::text::escaped;
use swtch_report::report::{
    is_failure, lost_in_words, lost_names_in_words, untraced_in_words, why_empty,
};
use swtch_store::{Directory, DirectoryState, Meta, RecordingState};

use super::{megabytes, priority};

/// The result of a recording.
#[derive(Debug)]
pub struct RecordingResult {
    /// The trace. Its path may not be usable for this process any more.
    pub directory: Directory,
    /// False if the trace was removed while it was recorded.
    pub is_there: bool,
    /// The facts that were written to `meta.json`.
    pub meta: Meta,
    /// Switches of the tasks that were asked for, which is what reports count.
    pub(super) in_scope: u64,
    /// The exit code of the command; `None` if there was no command, or it still runs.
    pub(super) exit_code: Option<u8>,
}

impl RecordingResult {
    /// Reports how many switches there are, and what may be missing.
    pub(super) fn tell_counts(&self) {
        match why_empty(&self.meta, self.in_scope) {
            // An empty trace must not end with "0 switches, 0 lost", which reads like an answer. One that
            // stopped early says below why it did.
            Some(why) if self.is_failure() && !self.has_stopped_early() => {
                message!("error: {}", escaped(&why));
            }
            Some(why) if !self.has_stopped_early() => {
                self.tell_how_many();
                message!("swtch: {}", escaped(&why));
                self.tell_doubts();
            }
            _ => {
                self.tell_how_many();
                self.tell_doubts();
            }
        }
    }

    fn has_stopped_early(&self) -> bool {
        self.meta.state == RecordingState::StoppedEarly
    }

    /// True if no switch in scope was stored because of a failure, such as lost records.
    fn is_failure(&self) -> bool {
        is_failure(&self.meta, self.in_scope)
    }

    fn tell_how_many(&self) {
        let (counts, overhead) = (&self.meta.counts, &self.meta.overhead);
        let in_trace = match self.not_stored() {
            0 => format!("{} switches", self.in_scope),
            not_stored => format!("{} switches stored, {not_stored} not stored", self.stored()),
        };
        message!(
            "swtch: {in_trace}, {}; recorder: {} CPU, {:.0} MB memory{}",
            lost_in_words(counts.lost, counts.untraced),
            Nanos::from_ns(overhead.recorder_cpu_ns),
            megabytes(overhead.recorder_peak_rss_bytes),
            overhead
                .in_kernel()
                .map_or_else(String::new, |cost| format!(", {cost}")),
        );
        if let Some(ring) = &self.meta.ring {
            let since = |start_ns| Nanos::from_ns(self.meta.end_ns.saturating_sub(start_ns));
            message!(
                "swtch: these are of the last {}, which the ring kept; in {} there were {} switches, {}",
                since(self.meta.start_ns),
                since(ring.began_ns),
                ring.switches,
                lost_in_words(ring.lost, ring.untraced)
            );
        }
        let others = counts.stored.saturating_sub(self.in_scope);
        if others > 0 && self.not_stored() == 0 {
            message!("swtch: {others} more are those of others, which had the CPU meanwhile");
        }
    }

    /// Reports what may be missing, and what was left out.
    fn tell_doubts(&self) {
        let counts = &self.meta.counts;
        let guard = self.meta.guard.as_ref();
        if let Some(untraced) = untraced_in_words(counts.untraced, counts.untraced_in_scope) {
            message!("swtch: {untraced}");
        }
        if let Some(lost) = lost_names_in_words(counts.lost_names) {
            message!("swtch: {lost}");
        }
        if let Some(hint) = guard.and_then(|guard| priority::hint(guard, counts.lost)) {
            message!("swtch: {hint}");
        }
        let missed = self.meta.tree.map_or(0, |tree| tree.missed);
        if missed > 0 {
            message!(
                "swtch: processes below those of -p may be missing: too many ended while they were \
                 looked for ({missed} not looked at)"
            );
        }
        if let Some(user) = &self.meta.user {
            message!(
                "swtch: {} switches of user-mode schedulers, {} lost (report --by level)",
                user.stored,
                user.lost
            );
            for refusal in &user.refused {
                message!("swtch: {}", escaped(refusal));
            }
        }
    }

    fn stored(&self) -> u64 {
        if self.is_there {
            self.meta.counts.stored
        } else {
            0
        }
    }

    /// Switches that were recorded but did not reach the trace.
    fn not_stored(&self) -> u64 {
        let counts = &self.meta.counts;
        (counts.stored + counts.storage_failed).saturating_sub(self.stored())
    }

    /// The exit code of the command if it is not 0; otherwise 2 if the recording failed, or 0.
    pub fn exit_code(&self) -> u8 {
        let own = match self.has_stopped_early() || self.is_failure() {
            true => FAILED,
            false => 0,
        };
        self.exit_code.filter(|code| *code != 0).unwrap_or(own)
    }

    /// Reports where the trace is, and why it does not hold all that was asked for.
    pub fn tell_path(&self) {
        let path = self.directory.path().to_string_lossy();
        match self.directory.state() {
            _ if !self.is_there => message!("swtch: there is no trace"),
            DirectoryState::InPlace | DirectoryState::Removed => {
                message!("swtch: the trace is {}", escaped(&path));
            }
            DirectoryState::Moved(to) => message!(
                "swtch: the trace was moved while it was recorded: it is {}",
                escaped(&to.to_string_lossy())
            ),
        }
        if let Some(reason) = &self.meta.stop_reason {
            message!("swtch: the recording stopped early: {}", escaped(reason));
            match self.stored() {
                0 => message!("swtch: no switch of it is stored"),
                stored => {
                    message!(
                        "swtch: the {stored} switches that were stored before are in the trace"
                    )
                }
            }
        }
    }
}
