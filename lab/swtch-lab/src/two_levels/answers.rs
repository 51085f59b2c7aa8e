//! The answers to the claims A7 to A9.

use swtch_core::Nanos;
use swtch_output::text;

use super::exact::{EventCounts, SchedulerEvent};
use super::script::{HogPhase, LevelCounts, ScannerKind, WaitTypeTotals};
use super::{TwoLevelsResults, mode_name};
use crate::claim::{Answer, Verdict, all_of};
use crate::measured::{LabNumber, STOPPED, cannot_be_tested, rate_in_words};
use swtch_core::stats::EventRate;

/// How far the median run may be from the quantum, as a share: a thread that sleeps until then
/// notices the end of a quantum, and the worker acts on it at the next yield point.
const OFF_QUANTUM: f64 = 0.20;

/// Beside a hog that wants as much, a thread is switched at least this many times as often.
const LARGE: f64 = 2.0;

impl TwoLevelsResults {
    /// A7: alone, the kernel switches less often than the scheduler, so some switches of the
    /// scheduler are none of the kernel's; a hog multiplies the kernel's switches and not the
    /// scheduler's.
    pub fn a7(&self) -> Answer {
        let rate = |phase, count| self.rate(ScannerKind::Workers, phase, count);
        let user = [HogPhase::Alone, HogPhase::Hog].map(|phase| rate(phase, |counts| counts.user));
        let os = [HogPhase::Alone, HogPhase::Hog].map(|phase| rate(phase, LevelCounts::os));
        let over = |a: &EventRate, b| LabNumber::of_counts(a.over(b));
        let each = over(&os[0], &user[0]);
        let os_grew = over(&os[1], &os[0]);
        let user_grew = over(&user[1], &user[0]);
        let (Some(each), Some(os_grew), Some(user_grew)) = (each, os_grew, user_grew) else {
            return answer(
                "A7",
                "nothing was run".to_owned(),
                cannot_be_tested(STOPPED),
            );
        };
        let ours = format!(
            "alone {} user switches and {} OS switches of the same thread, {} OS switches a user switch; beside a \
             hog {} and {}: {} times as many OS switches, {} times as many user switches",
            rate_in_words(&user[0]),
            rate_in_words(&os[0]),
            each.ratio(),
            rate_in_words(&user[1]),
            rate_in_words(&os[1]),
            os_grew.ratio(),
            user_grew.ratio()
        );
        let verdict = all_of([
            each.is_within(0.0, 1.0),
            os_grew.is_within(LARGE, f64::INFINITY),
            user_grew.is_within(0.0, LARGE / 1.5),
        ]);
        answer("A7", ours, verdict)
    }

    /// A8: a yield with no other worker runnable is no context switch. Counts must match exactly.
    pub fn a8(&self) -> Answer {
        let alone = self.counted.iter();
        let alone: Vec<&EventCounts> = alone
            .filter(|counted| counted.event == SchedulerEvent::YieldAlone)
            .collect();
        let words = alone.iter().map(|counted| {
            format!(
                "{} of {} alone: {} yields, {} context switches, {} times itself",
                text::counted(counted.made, "yield"),
                mode_name(counted),
                text::grouped(counted.counts.yields),
                text::grouped(counted.counts.switches),
                text::grouped(counted.counts.reselects),
            )
        });
        let verdict = match alone.is_empty() {
            true => cannot_be_tested(STOPPED),
            false => Verdict::of(alone.iter().all(|counted| counted.is_as_expected())),
        };
        answer("A8", words.collect::<Vec<_>>().join("; "), verdict)
    }

    /// A9: the median run is a quantum long, and all waits are for the turn.
    pub fn a9(&self) -> Answer {
        let Some(run) = LabNumber::of(&self.runs(HogPhase::Alone)) else {
            return answer(
                "A9",
                "nothing was run".to_owned(),
                cannot_be_tested(STOPPED),
            );
        };
        let quantum = self.quantum.as_ns() as f64;
        let low = quantum * (1.0 - OFF_QUANTUM);
        let verdict = run.is_within(low, quantum * (1.0 + OFF_QUANTUM));
        let verdict = match verdict {
            Verdict::Undecided(_) => Verdict::Undecided(
                "the middle run is partly further than 20 % from the quantum".to_owned(),
            ),
            verdict => verdict,
        };
        let waits = self.workers.iter().flat_map(|scan| &scan.waits);
        let (turn, other): (Vec<_>, Vec<_>) =
            waits.partition(|waited| waited.wait_type == "SOS_SCHEDULER_YIELD");
        let sum =
            |pick: fn(&WaitTypeTotals) -> u64| turn.iter().map(|waited| pick(waited)).sum::<u64>();
        let (count, wait_ns, signal_ns) = (
            sum(|waited| waited.count),
            sum(|waited| waited.wait_ns),
            sum(|waited| waited.signal_ns),
        );
        let others: u64 = other.iter().map(|waited| waited.count).sum();
        let ours = format!(
            "the middle run took {} of a quantum of {}; {} of SOS_SCHEDULER_YIELD, {} in all and {} of it for the \
             turn; {} of any other type",
            within(&run),
            self.quantum,
            text::counted(count, "wait"),
            Nanos::from_ns(wait_ns),
            Nanos::from_ns(signal_ns),
            text::counted(others, "wait"),
        );
        // Read one after the other, from ticks: they may differ in the last digits.
        let only_the_turn = others == 0 && wait_ns.abs_diff(signal_ns) <= wait_ns / 1_000;
        answer("A9", ours, all_of([verdict, Verdict::of(only_the_turn)]))
    }
}

fn answer(claim: &'static str, ours: String, verdict: Verdict) -> Answer {
    Answer {
        claim,
        ours,
        verdict,
    }
}

/// A length with its interval.
fn within(run: &LabNumber) -> String {
    let length = |ns: f64| Nanos::from_rounded(ns).to_string();
    match run.ends() {
        Some((low, high)) => format!("{} ({} … {})", length(run.point), length(low), length(high)),
        None => length(run.point),
    }
}
