//! What the claims A7 to A9 ask.

use swtch_core::Nanos;
use swtch_output::text;

use super::exact::{EventCounts, SchedulerEvent};
use super::script::{HogPhase, LevelCounts, ScannerKind, WaitTypeTotals};
use super::{TwoLevelsResults, mode_name};
use crate::measured::{LabNumber, rate_in_words};
use crate::quantities::Quantities;
use swtch_core::stats::EventRate;

impl TwoLevelsResults {
    pub fn quantities(&self) -> Quantities {
        let mut all = Quantities::of_loads();
        self.add_rates(&mut all);
        self.add_yields_alone(&mut all);
        self.add_runs_and_waits(&mut all);
        all
    }

    /// A7: alone, the kernel switches less often than the scheduler, so some switches of the
    /// scheduler are none of the kernel's; a hog multiplies the kernel's switches and not the
    /// scheduler's.
    fn add_rates(&self, all: &mut Quantities) {
        let rate = |phase, count| self.rate(ScannerKind::Workers, phase, count);
        let [user, user_beside] =
            [HogPhase::Alone, HogPhase::Hog].map(|phase| rate(phase, |counts| counts.user));
        let [os, os_beside] =
            [HogPhase::Alone, HogPhase::Hog].map(|phase| rate(phase, LevelCounts::os));
        let over = |a: &EventRate, b| LabNumber::of_counts(a.over(b));
        all.number("each", over(&os, &user));
        all.number("os-grew", over(&os_beside, &os));
        all.number("user-grew", over(&user_beside, &user));
        all.words("user-alone", rate_in_words(&user));
        all.words("os-alone", rate_in_words(&os));
        all.words("user-beside", rate_in_words(&user_beside));
        all.words("os-beside", rate_in_words(&os_beside));
    }

    /// A8: a yield with no other worker runnable is no context switch. Counts must match exactly.
    fn add_yields_alone(&self, all: &mut Quantities) {
        let alone = self.counted.iter();
        let alone: Vec<&EventCounts> = alone
            .filter(|counted| counted.event == SchedulerEvent::YieldAlone)
            .collect();
        if alone.is_empty() {
            return;
        }
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
        all.words("counted", words.collect::<Vec<_>>().join("; "));
        let wrong = alone.iter().filter(|counted| !counted.is_as_expected());
        all.exact("miscounted", wrong.count() as f64);
    }

    /// A9: the median run is a quantum long, and all waits are for the turn.
    fn add_runs_and_waits(&self, all: &mut Quantities) {
        let run = LabNumber::of(&self.runs(HogPhase::Alone));
        all.number("run", run);
        all.number(
            "quanta",
            run.map(|run| run.scaled(1.0 / self.quantum.as_ns() as f64, 0.0)),
        );
        all.words("quantum", self.quantum);
        let waits = self.workers.iter().flat_map(|scan| &scan.waits);
        let (turn, other): (Vec<_>, Vec<_>) =
            waits.partition(|waited| waited.wait_type == "SOS_SCHEDULER_YIELD");
        let sum =
            |pick: fn(&WaitTypeTotals) -> u64| turn.iter().map(|waited| pick(waited)).sum::<u64>();
        let (wait_ns, signal_ns) = (sum(|waited| waited.wait_ns), sum(|waited| waited.signal_ns));
        all.words("waits", text::counted(sum(|waited| waited.count), "wait"));
        all.words("waited", Nanos::from_ns(wait_ns));
        all.words("for-turn", Nanos::from_ns(signal_ns));
        // Read one after the other, from ticks: they may differ in the last digits.
        all.exact(
            "not-for-turn",
            wait_ns.abs_diff(signal_ns) as f64 / wait_ns.max(1) as f64,
        );
        all.exact(
            "others",
            other.iter().map(|waited| waited.count).sum::<u64>() as f64,
        );
    }
}
