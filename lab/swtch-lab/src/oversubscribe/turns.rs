//! How threads that share a CPU take turns: why each switch from one to the other happened, and
//! what share of the CPU each had while all of them wanted it.

use std::collections::BTreeMap;

use swtch_bench::load::PlayedMember;
use swtch_core::Reason;
use swtch_report::report::{Cell, Sheet};

use crate::claim::Verdict;
use crate::evidence::{LoadRuns, NextTask};
use crate::findings::FindingsTable;
use crate::measured::LabNumber;
use crate::quantities::Quantities;
use swtch_core::stats::share;

/// The turns of threads that share a CPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Turns {
    /// Switches from one of them to another, by reason.
    mutual: BTreeMap<Reason, u64>,
    /// Switches from one of them to any other task, by reason.
    others: BTreeMap<Reason, u64>,
    /// CPU time of the first of two threads that share a CPU, and of both, in ns.
    first_and_both_ns: Option<(u64, u64)>,
}

impl Turns {
    /// Reads the turns of members that share their CPU with another member, from when all of them
    /// had begun to when the first of them had ended.
    pub fn of(evidence: &LoadRuns, members: &[PlayedMember]) -> Self {
        let mut turns = Self::default();
        let mut by_cpu: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (place, member) in members.iter().enumerate() {
            if let Some(cpu) = member.cpu {
                by_cpu.entry(cpu).or_default().push(place);
            }
        }
        for sharers in by_cpu.values().filter(|sharers| sharers.len() > 1) {
            turns.add(evidence, sharers);
        }
        turns
    }

    fn add(&mut self, evidence: &LoadRuns, sharers: &[usize]) {
        let shared = || sharers.iter().map(|place| &evidence.members[*place]);
        let from = shared().map(|member| member.began_ns).max().unwrap_or(0);
        let to = shared().map(|member| member.ended_ns).min().unwrap_or(0);
        for run in shared().flat_map(|member| &member.runs) {
            // Spinning makes no calls. Reading the clock of CPU time before and after it does, and
            // there the kernel may find the slice used up (`update_curr`, seen on 6.18): that is no
            // turn.
            if run.in_call || !(from..to).contains(&run.to_ns) {
                continue;
            }
            let is_mutual =
                matches!(&run.next_task, NextTask::Member(place) if sharers.contains(place));
            let counts = if is_mutual {
                &mut self.mutual
            } else {
                &mut self.others
            };
            *counts.entry(run.reason).or_default() += 1;
        }
        if let [first, second] = sharers {
            let ran = |place: usize| evidence.members[place].ran_between(from, to).as_ns();
            self.first_and_both_ns = Some((ran(*first), ran(*first) + ran(*second)));
        }
    }

    /// The turns of two plays together.
    pub fn plus(mut self, other: Self) -> Self {
        for (reason, count) in other.mutual {
            *self.mutual.entry(reason).or_default() += count;
        }
        for (reason, count) in other.others {
            *self.others.entry(reason).or_default() += count;
        }
        self.first_and_both_ns = match (self.first_and_both_ns, other.first_and_both_ns) {
            (Some((a, b)), Some((c, d))) => Some((a + c, b + d)),
            (one, other) => one.or(other),
        };
        self
    }

    /// The share of the first of two that share a CPU; `None` where no two do.
    pub fn share_of_first(&self) -> Option<f64> {
        let (first, both) = self.first_and_both_ns?;
        (both > 0).then(|| first as f64 / both as f64)
    }

    /// Adds what A4 asks of the switches from one to the other.
    pub fn add_to(&self, quantities: &mut Quantities) {
        let all: u64 = self.mutual.values().sum();
        let of = |reason| self.mutual.get(&reason).copied().unwrap_or(0);
        quantities.number(
            "slices",
            LabNumber::of_counts(share(of(Reason::Slice), all)),
        );
        quantities.exact("priority", of(Reason::Class) as f64);
        quantities.words("slice", of(Reason::Slice));
        quantities.words("mutual", all);
        if all == 0 {
            let why = "no switch from one to the other was seen".to_owned();
            quantities.answer_with("A4", why.clone(), Verdict::Undecided(why));
        }
    }

    /// A row for each reason.
    pub fn table(&self) -> FindingsTable {
        let mut sheet = Sheet::new(
            "turns",
            &["reason", "to_each_other", "to_each_other_pct", "to_others"],
        );
        let all: u64 = self.mutual.values().sum();
        let count =
            |counts: &BTreeMap<Reason, u64>, reason| counts.get(reason).copied().unwrap_or(0);
        for reason in Reason::ALL {
            let (mutual, others) = (count(&self.mutual, reason), count(&self.others, reason));
            if mutual + others > 0 {
                sheet.rows.push(vec![
                    Cell::text(reason.as_str()),
                    Cell::Count(mutual),
                    Cell::share(mutual, all),
                    Cell::Count(others),
                ]);
            }
        }
        sheet.total = Some(vec![
            Cell::text("total"),
            Cell::Count(all),
            Cell::share(all, all),
            Cell::Count(self.others.values().sum()),
        ]);
        FindingsTable::new(
            "why those that share a CPU left it, one thread more than CPUs, all rounds",
            sheet,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Answer;
    use crate::evidence::{MemberRuns, Run};
    use swtch_core::{Nanos, Pid, Tid};

    fn member(place: u32, cpu: u32) -> PlayedMember {
        PlayedMember {
            group: 0,
            index: place,
            pid: Pid::new(1),
            tid: Tid::new(place),
            cpu: Some(cpu),
            began_ns: 0,
            ended_ns: 0,
            cpu_time: Nanos::ZERO,
            voluntary: 0,
            involuntary: 0,
            gaps: Vec::new(),
        }
    }

    fn run(from_ns: u64, to_ns: u64, reason: Reason, next_task: NextTask) -> Run {
        Run {
            from_ns,
            to_ns,
            reason,
            next_task,
            in_call: false,
            runnable: None,
        }
    }

    /// ```text
    /// first   ▓▓▓▓▓    ▓▓▓▓▓  kworker   ▓▓ ended at 60
    /// second       ▓▓▓▓             ▓▓▓▓  ▓▓▓▓▓ alone: does not count
    ///        0    10  20   30      40   50   60
    /// ```
    fn drawn() -> Turns {
        let first = MemberRuns {
            began_ns: 0,
            ended_ns: 60,
            runs: vec![
                run(0, 10, Reason::Slice, NextTask::Member(1)),
                run(
                    20,
                    30,
                    Reason::Wakeup,
                    NextTask::Other("kworker".to_owned()),
                ),
                Run {
                    in_call: true,
                    ..run(50, 59, Reason::Other, NextTask::Member(1))
                },
                run(60, 61, Reason::Exit, NextTask::Member(1)),
            ],
        };
        let second = MemberRuns {
            began_ns: 0,
            ended_ns: 90,
            runs: vec![
                run(10, 20, Reason::Slice, NextTask::Member(0)),
                run(40, 50, Reason::Class, NextTask::Member(0)),
                run(61, 90, Reason::Exit, NextTask::Idle),
            ],
        };
        let evidence = LoadRuns {
            members: vec![first, second],
            lost: 0,
        };
        Turns::of(&evidence, &[member(0, 3), member(1, 3)])
    }

    #[test]
    fn only_switches_between_them_while_both_spin_are_turns() {
        let turns = drawn();
        assert_eq!(
            turns.mutual,
            BTreeMap::from([(Reason::Slice, 2), (Reason::Class, 1)])
        );
        assert_eq!(turns.others, BTreeMap::from([(Reason::Wakeup, 1)]));
        assert_eq!(turns.share_of_first(), Some(29.0 / 49.0));
    }

    #[test]
    fn a_switch_for_priority_is_no_turn() {
        let answer = |turns: Turns, first: f64| {
            let mut all = Quantities::of_loads();
            all.number("first", LabNumber::of(&[first; 6]));
            turns.add_to(&mut all);
            all.answer("A4")
        };
        let Answer { ours, verdict, .. } = answer(drawn(), 0.5);
        assert!(ours.starts_with("2 of 3 switches"), "{ours}");
        assert_eq!(verdict, Verdict::DoesNotHold);
        let slices = Turns {
            mutual: BTreeMap::from([(Reason::Slice, 600)]),
            ..Turns::default()
        };
        assert_eq!(answer(slices.clone(), 0.5).verdict, Verdict::Holds);
        assert_eq!(answer(slices, 0.7).verdict, Verdict::DoesNotHold);
    }

    #[test]
    fn threads_on_cpus_of_their_own_take_no_turns() {
        let evidence = LoadRuns {
            members: vec![MemberRuns::default(), MemberRuns::default()],
            lost: 0,
        };
        let turns = Turns::of(&evidence, &[member(0, 0), member(1, 1)]);
        assert_eq!(turns, Turns::default());
    }
}
