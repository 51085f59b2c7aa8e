//! `api/states`: how much of a span a thread ran, waited for a CPU, and was blocked, and why.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::{Value, json};
use swtch_core::TaskKey;

use super::lanes::open_piece;
use super::loaded::Loaded;
use super::query::Span;
use super::timeline::{StateTimes, ThreadState};

/// The time of a thread in each state between two moments. Unknown time, such as before the thread
/// was started, is in no state.
pub fn states(loaded: &Loaded, task: TaskKey, span: Span) -> Value {
    let mut times = Vec::new();
    if let Some(track) = loaded.levels.os.track(task) {
        let mut shares = StateTimes::default();
        let timeline = &loaded.levels.os;
        timeline.add_shares(track, span.from_ns, span.to_ns, &mut shares);
        shares.drain(|state, ns| times.push((state, ns)));
    }
    // A wait or run that was open when the trace ended has no row.
    if let Some(open) = loaded.open(task) {
        let piece = open_piece(loaded, open);
        let (from, to) = (piece.from_ns.max(span.from_ns), piece.to_ns.min(span.to_ns));
        times.push((piece.state, to.saturating_sub(from)));
    }
    json!({"schema": "swtch.view.states/1", "by_state": longest_first(times)})
}

/// Times summed by state, the longest first.
pub fn longest_first(times: impl IntoIterator<Item = (ThreadState, u64)>) -> Vec<Value> {
    let mut sums: BTreeMap<u8, u64> = BTreeMap::new();
    for (state, ns) in times {
        *sums.entry(state.number()).or_default() += ns;
    }
    let mut sums: Vec<_> = sums.into_iter().filter(|(_, ns)| *ns > 0).collect();
    sums.sort_by_key(|(state, ns)| (Reverse(*ns), *state));
    let told = sums
        .iter()
        .map(|(state, ns)| json!({"state": state, "ns": ns}));
    told.collect()
}

#[cfg(test)]
mod tests {
    use swtch_report::report::{By, Filter};

    use super::*;
    use crate::drawn::{handed_round, printed};

    /// Over the whole trace, the sums equal those of the report.
    #[test]
    fn states_of_the_whole_trace_are_those_of_the_report() {
        let (loaded, _dir) = handed_round();
        let report = printed(&loaded, By::Thread, &Filter::default());
        let rows = report["rows"].as_array().unwrap();
        assert!(!rows.is_empty());
        let span = Span {
            from_ns: 0,
            to_ns: loaded.duration_ns() + 1,
        };
        let mut compared = 0;
        for row in rows {
            let tid_of = |task| loaded.names.thread(loaded.names.index(task)).tid;
            let is_row = |task| tid_of(task).is_some_and(|tid| row["tid"] == tid.get());
            let mut tracks = loaded.levels.os.tracks().iter();
            let Some(track) = tracks.find(|track| is_row(track.task)) else {
                continue; // the sum of threads that the capture was not asked for
            };
            let answer = states(&loaded, track.task, span);
            let times = answer["by_state"].as_array().unwrap().iter();
            let running = times.filter(|one| one["state"] == ThreadState::Running.number());
            let ran_ns: u64 = running.map(|one| one["ns"].as_u64().unwrap()).sum();
            // The very first run ended when the trace began, before any span.
            let before_ns = if row["tid"] == 10 { 600 } else { 0 };
            assert_eq!(row["ran_ns"], ran_ns + before_ns, "{answer}");
            compared += 1;
        }
        assert_eq!(compared, 2);
    }
}
