//! The first lines of a verdict: which reasons are the main ones, by switches and by time.

use std::cmp::Reverse;

use serde_json::{Map, Value, json};
use swtch_core::{Nanos, Reason};
use swtch_output::text::grouped;

use super::reason::ByReason;
use super::verdict::{NAMED, share};
use swtch_core::Tally;

/// Reasons by number and by time, as the verdict's first lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Reasons with the most switches.
    pub by_switches: Vec<(Reason, u64)>,
    /// Reasons after which tasks waited longest in run queues.
    pub by_runq: Vec<(Reason, Nanos)>,
    /// Reasons for which tasks were blocked longest.
    pub by_blocked: Vec<(Reason, Nanos)>,
    /// True if any switch has an unknown reason. If none has, waits without a known reason are those of new tasks.
    has_unknown: bool,
}

impl Summary {
    /// The three main reasons of each kind.
    pub fn new(reasons: &ByReason) -> Self {
        let tally = |reason| &reasons.of(reason).tally;
        Self {
            by_switches: largest(|reason| tally(reason).switches),
            by_runq: largest(|reason| tally(reason).runq),
            by_blocked: largest(|reason| tally(reason).blocked),
            has_unknown: tally(Reason::Unknown).switches > 0,
        }
    }

    /// Returns what a wait began with: a reason or, for a new task, its start.
    fn word(&self, reason: Reason) -> &'static str {
        match reason {
            Reason::Unknown if !self.has_unknown => "their start",
            known => known.as_str(),
        }
    }

    /// The first lines of the verdict.
    pub fn lines(&self, total: &Tally) -> Vec<String> {
        let switches = self.by_switches.iter().map(|(reason, count)| {
            format!(
                "{reason} {} ({})",
                share(*count, total.switches),
                grouped(*count)
            )
        });
        let time = |times: &[(Reason, Nanos)], all: Nanos| {
            let times = times.iter();
            let words = times.map(|(reason, time)| {
                let share = share(time.as_ns(), all.as_ns());
                format!("{} {share} ({time})", self.word(*reason))
            });
            words.collect::<Vec<_>>().join(", ")
        };
        let mut lines = Vec::new();
        if total.switches > 0 {
            let switches: Vec<_> = switches.collect();
            lines.push(format!("Most switches: {}.", switches.join(", ")));
        }
        if total.runq > Nanos::ZERO {
            let runq = time(&self.by_runq, total.runq);
            lines.push(format!(
                "Longest time waiting for a CPU came after: {runq}."
            ));
        }
        if total.blocked > Nanos::ZERO {
            let blocked = time(&self.by_blocked, total.blocked);
            lines.push(format!("Most time blocked, for: {blocked}."));
        }
        lines
    }

    /// The summary as a JSON object.
    pub fn to_json(&self) -> Value {
        let count = |pairs: &[(Reason, u64)]| -> Value {
            pairs
                .iter()
                .map(|(r, n)| (r.to_string(), Value::from(*n)))
                .collect::<Map<_, _>>()
                .into()
        };
        let time = |pairs: &[(Reason, Nanos)]| -> Value {
            let pairs: Vec<_> = pairs.iter().map(|(r, time)| (*r, time.as_ns())).collect();
            count(&pairs)
        };
        json!({
            "switches_by_reason": count(&self.by_switches),
            "runq_ns_by_reason": time(&self.by_runq),
            "blocked_ns_by_reason": time(&self.by_blocked),
        })
    }
}

/// The three reasons with the largest number, without those that have none.
fn largest<N: Ord + Copy + Default>(number: impl Fn(Reason) -> N) -> Vec<(Reason, N)> {
    let numbers = Reason::ALL.iter().map(|reason| (*reason, number(*reason)));
    let mut numbers: Vec<_> = numbers.filter(|one| one.1 > N::default()).collect();
    numbers.sort_by_key(|(reason, number)| (Reverse(*number), *reason));
    numbers.truncate(NAMED);
    numbers
}
