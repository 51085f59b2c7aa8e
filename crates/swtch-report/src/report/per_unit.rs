//! What one unit of work took, where somebody counted them: requests, jobs, frames.

use std::num::NonZeroU64;

use serde_json::{Value, json};
use swtch_core::{AwaitedThing, LostTime, Nanos, Reason, Tally};
use swtch_output::text::{counted, grouped};

use super::screen::{in_hundredths, per_second};
use super::verdict::in_words;

/// Reasons below this number of switches a unit are not told.
const LEAST_HUNDREDTHS: u64 = 1;

/// The most reasons in the sentence.
const REASONS: usize = 3;

/// Sums of programs, without kernel threads and the recorder, over the units that were done while they were recorded.
#[derive(Clone, Copy, Debug)]
pub struct PerUnit<'a> {
    pub units: NonZeroU64,
    /// Switches of programs, the most frequent first.
    pub reasons: &'a [(Reason, Tally)],
    pub lost: &'a LostTime,
    pub wall: Nanos,
}

/// ` (0.12 waited in epoll, …)`: the most frequent reasons of the switches of each unit, which come in this order.
pub fn reasons_of_each(reasons: impl Iterator<Item = (Reason, u64)>, units: u64) -> String {
    let often = reasons.filter(|(_, switches)| {
        u128::from(*switches) * 100 >= u128::from(units) * u128::from(LEAST_HUNDREDTHS)
    });
    let told = often.take(REASONS).map(|(reason, switches)| {
        format!("{} {}", in_hundredths(switches, units), in_words(reason))
    });
    let told: Vec<_> = told.collect();
    match told.is_empty() {
        true => String::new(),
        false => format!(" ({})", told.join(", ")),
    }
}

impl PerUnit<'_> {
    /// `Each of 240,000 units (80,000 a second): 0.19 switches (0.12 waited in epoll, …), 8.30 µs on a CPU, …`
    pub fn words(self) -> String {
        let units = self.units.get();
        let reasons = self.reasons.iter();
        let reasons = reasons.map(|(reason, tally)| (*reason, tally.switches));
        let reasons = reasons_of_each(reasons, units);
        format!(
            "Each of {} ({} a second), of all that was recorded: {} switches{reasons}; {} on a CPU, {} without one, {} blocked in the middle of work.",
            counted(units, "unit"),
            grouped(per_second(units, self.wall).unwrap_or(0)),
            in_hundredths(self.switches(), units),
            self.each(self.lost.ran),
            self.each(self.lost.no_cpu),
            self.each(self.lost.blocked(AwaitedThing::Work)),
        )
    }

    fn switches(self) -> u64 {
        self.reasons.iter().map(|(_, tally)| tally.switches).sum()
    }

    fn each(self, time: Nanos) -> Nanos {
        Nanos::from_ns(time.as_ns() / self.units)
    }

    /// The same for programs: what sums are divided by is there, so that nothing is rounded.
    pub fn to_json(self) -> Value {
        json!({
            "units": self.units,
            "switches": self.switches(),
            "ran_ns": self.lost.ran.as_ns(),
            "no_cpu_ns": self.lost.no_cpu.as_ns(),
            "in_work_ns": self.lost.blocked(AwaitedThing::Work).as_ns(),
        })
    }
}
