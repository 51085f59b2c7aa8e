//! The tasks that took the CPU from the threads of a load, by name, and the intervals between.

use std::collections::BTreeMap;

use swtch_core::Nanos;
use swtch_core::stats::{EventRate, quantile, share};
use swtch_report::report::{Cell, Sheet};

use crate::evidence::{MemberRuns, NextTask};
use crate::findings::FindingsTable;
use crate::measured::{LabNumber, rate_in_words};
use crate::quantities::Quantities;

/// Preemptors that an answer names.
const NAMED: usize = 3;

/// Rows of the table; the others are one row.
const ROWS: usize = 12;

/// The name that [`NextTask::Other`] has for a task without a name.
const UNNAMED: &str = "(unnamed)";

/// Preemptions by the name of the preemptor.
#[derive(Clone, Debug, Default)]
pub struct PreemptionsByName {
    by_name: BTreeMap<String, ByPreemptor>,
    /// Seconds of the lives of all threads.
    life_s: f64,
}

/// The preemptions by one preemptor.
#[derive(Clone, Debug, Default)]
struct ByPreemptor {
    count: u64,
    /// Times from one preemption of a thread by it to the next, in ns.
    intervals: Vec<f64>,
}

impl PreemptionsByName {
    /// Adds a thread that lived this long. Preemptions by other threads of the load and by the
    /// recorder are left out.
    pub fn add(&mut self, member: &MemberRuns, life_s: f64) {
        self.life_s += life_s;
        let mut last: BTreeMap<&str, u64> = BTreeMap::new();
        for run in member.preemptions() {
            let Some(name) = name_of(&run.next_task) else {
                continue;
            };
            let taken = self.by_name.entry(name.to_owned()).or_default();
            taken.count += 1;
            if let Some(before) = last.insert(name, run.to_ns) {
                taken.intervals.push((run.to_ns - before) as f64);
            }
        }
    }

    /// Both together: counts are added, intervals are joined.
    pub fn plus(mut self, other: Self) -> Self {
        self.life_s += other.life_s;
        for (name, taken) in other.by_name {
            let mine = self.by_name.entry(name).or_default();
            mine.count += taken.count;
            mine.intervals.extend(taken.intervals);
        }
        self
    }

    fn total(&self) -> u64 {
        self.by_name.values().map(|taken| taken.count).sum()
    }

    /// The preemptors by count, the most frequent first.
    fn ranked(&self) -> Vec<(&str, &ByPreemptor)> {
        let mut ranked: Vec<_> = self
            .by_name
            .iter()
            .map(|(name, taken)| (name.as_str(), taken))
            .collect();
        ranked.sort_by(|a, b| b.1.count.cmp(&a.1.count).then(a.0.cmp(b.0)));
        ranked
    }

    /// Adds what C7 asks: how many have a name, and who is the most frequent.
    pub fn add_to(&self, quantities: &mut Quantities) {
        let all = self.total();
        let named = all - self.by_name.get(UNNAMED).map_or(0, |taken| taken.count);
        quantities.number("named", LabNumber::of_counts(share(named, all)));
        quantities.words("named-count", named);
        quantities.words("preemptions", all);
        let first = self.ranked().into_iter().take(NAMED).map(|(name, taken)| {
            let share = 100.0 * taken.count as f64 / all as f64;
            let rate = rate_in_words(&self.rate(taken));
            format!("{name} {share:.0} % ({rate}{})", taken.period())
        });
        quantities.words("preemptors", first.collect::<Vec<_>>().join(", "));
    }

    /// A sentence on the most frequent preemptor.
    pub fn sentence(&self) -> Option<String> {
        let (name, taken) = self.ranked().into_iter().next()?;
        Some(format!(
            "The one that takes the CPU most often, swtch's own recorder aside, is {name}: {} of {} \
             preemptions, {} of a thread's life{}.",
            taken.count,
            self.total(),
            rate_in_words(&self.rate(taken)),
            taken.period()
        ))
    }

    const fn rate(&self, taken: &ByPreemptor) -> EventRate {
        EventRate {
            count: taken.count,
            seconds: self.life_s,
            dispersion: 0.0,
        }
    }

    /// A row for each of the most frequent preemptors, and one for all others.
    pub fn table(&self) -> FindingsTable {
        let mut sheet = Sheet::new(
            "preemptors",
            &[
                "preemptor",
                "preemptions",
                "share_pct",
                "per_life_s",
                "interval_p25_ns",
                "interval_p50_ns",
                "interval_p75_ns",
            ],
        );
        let ranked = self.ranked();
        let (shown, rest) = ranked.split_at(ranked.len().min(ROWS));
        for (name, taken) in shown.iter().copied() {
            let at = |share| Cell::time(quantile(&taken.intervals, share).map(Nanos::from_rounded));
            sheet.rows.push(vec![
                Cell::text(name),
                Cell::Count(taken.count),
                Cell::share(taken.count, self.total()),
                self.rate(taken)
                    .per_second()
                    .map_or(Cell::Missing, Cell::Ratio),
                at(0.25),
                at(0.5),
                at(0.75),
            ]);
        }
        if !rest.is_empty() {
            let count = rest.iter().map(|(_, taken)| taken.count).sum();
            sheet.rows.push(vec![
                Cell::text(format!("({} others)", rest.len())),
                Cell::Count(count),
                Cell::share(count, self.total()),
                Cell::Missing,
                Cell::Missing,
                Cell::Missing,
                Cell::Missing,
            ]);
        }
        FindingsTable::new(
            "who took the CPU, all variants together, the recorder left out",
            sheet,
        )
    }
}

impl ByPreemptor {
    /// The median interval, in words.
    fn period(&self) -> String {
        quantile(&self.intervals, 0.5).map_or_else(String::new, |interval| {
            format!(", every {} in the middle", Nanos::from_rounded(interval))
        })
    }
}

/// The name of a preemptor; `None` for a member and for the recorder.
fn name_of(next_task: &NextTask) -> Option<&str> {
    match next_task {
        NextTask::Member(_) | NextTask::Recorder => None,
        NextTask::Idle => Some("(idle)"),
        NextTask::Player => Some("swtch (the player)"),
        NextTask::Other(name) => Some(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Verdict;
    use crate::evidence::Run;
    use crate::measured::{STOPPED, cannot_be_tested};
    use swtch_core::Reason;

    fn preempted(by: &[(u64, &str)]) -> PreemptionsByName {
        let run = |(to_ns, name): &(u64, &str)| Run {
            from_ns: to_ns - 1,
            to_ns: *to_ns,
            reason: Reason::Wakeup,
            next_task: NextTask::Other((*name).to_owned()),
            in_call: false,
            runnable: None,
        };
        let member = MemberRuns {
            began_ns: 0,
            ended_ns: 10_000_000,
            runs: by.iter().map(run).collect(),
        };
        let mut preemptors = PreemptionsByName::default();
        preemptors.add(&member, 2.0);
        preemptors
    }

    #[test]
    fn the_periodic_one_is_named_with_its_interval() {
        let preemptors = preempted(&[
            (1_000_000, "kworker"),
            (2_000_000, "sshd"),
            (5_000_000, "kworker"),
            (9_000_000, "kworker"),
        ]);
        let sentence = preemptors.sentence().unwrap();
        assert_eq!(
            sentence,
            "The one that takes the CPU most often, swtch's own recorder aside, is kworker: 3 of 4 \
             preemptions, 1.50/s of a thread's life, every 4.00 ms in the middle."
        );
    }

    #[test]
    fn those_without_a_name_do_not_count_as_named() {
        let many = |name| -> Vec<(u64, &str)> { (1..=200).map(|ns| (ns, name)).collect() };
        let verdict = |by: &[(u64, &str)]| {
            let mut all = Quantities::of_loads();
            preempted(by).add_to(&mut all);
            all.answer("C7").verdict
        };
        assert_eq!(verdict(&many("kworker")), Verdict::Holds);
        assert_eq!(verdict(&many(UNNAMED)), Verdict::DoesNotHold);
        assert_eq!(verdict(&[]), cannot_be_tested(STOPPED));
    }
}
