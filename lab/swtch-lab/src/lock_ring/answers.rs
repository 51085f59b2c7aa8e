//! Judges claims E3, E4 and E5 of E. Bradford, "Runtime: Context switching", 2002 (texts in
//! `claims.toml`), and reads from a recording whether the CPU goes round in the order of the ring.

use anyhow::Result;
use swtch_core::Category;
use swtch_output::text;

use super::{
    ARTICLE_MAX_THREADS, BLOCKS, BUSY_CPUS, HAND_OVER, PER_SWITCH, RingPlace, RingPlays,
    RingSetting,
};
use crate::claim::{Answer, Verdict, all_of};
use crate::context::RecordingChoice;
use crate::evidence::{LoadRuns, NextTask};
use crate::load_experiment::LoadExperiment;
use crate::measured::{LabNumber, cannot_be_tested};

/// More threads than Linux could run when the article was written.
const MANY: u64 = 1024;

/// Who got the CPU after threads of a ring, between the begin of the last and the end of the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingOrder {
    /// Switches to the thread behind, which has to be next.
    right: u64,
    /// Switches to another thread of the ring.
    wrong: u64,
    /// Preemptions of threads of the ring.
    preempted: u64,
}

/// A large ring, played once before all others.
pub struct LargeRing {
    pub threads: u64,
    /// Its order, if it was recorded; or why it cannot be played here.
    pub order: Result<Option<RingOrder>>,
}

impl LargeRing {
    /// Plays each large ring, until told to stop.
    pub fn play_all(experiment: &mut LoadExperiment<'_>, threads: &[u64]) -> Vec<Self> {
        let mut rings = Vec::new();
        for threads in threads.iter().copied().filter(|one| *one >= MANY) {
            let ring = RingSetting::new(RingPlace::Batch, threads, 1);
            let order = match ring.play(0, RecordingChoice::Wanted, experiment) {
                Ok(None) => break,
                Ok(Some(played)) => Ok(played.evidence.as_ref().map(RingOrder::of)),
                Err(why) => Err(why),
            };
            rings.push(Self { threads, order });
        }
        rings
    }
}

impl RingOrder {
    /// The order in a ring whose members are those of a trace.
    fn of(evidence: &LoadRuns) -> Self {
        let members = &evidence.members;
        let from = members.iter().map(|one| one.began_ns).max().unwrap_or(0);
        let to = members.iter().map(|one| one.ended_ns).min().unwrap_or(0);
        let mut order = Self::default();
        for (place, member) in members.iter().enumerate() {
            let behind = (place + members.len() - 1) % members.len();
            for run in member
                .runs
                .iter()
                .filter(|run| (from..to).contains(&run.to_ns))
            {
                order.preempted += u64::from(run.reason.category() == Category::Preemption);
                match run.next_task {
                    NextTask::Member(next) if next == behind => order.right += 1,
                    NextTask::Member(_) => order.wrong += 1,
                    _ => {}
                }
            }
        }
        order
    }

    fn in_words(self) -> String {
        let rest = text::counted(self.preempted, "preemption");
        let rest = format!("; the others follow from {rest}");
        format!(
            "with {MANY} and more, {} of {} recorded switches between threads were to the one behind{}",
            text::grouped(self.right),
            text::grouped(self.right + self.wrong),
            if self.wrong > 0 { &rest } else { "" }
        )
    }

    /// Whether preemptions explain all switches to another thread. Each makes two: the thread
    /// behind comes too early and waits for the preempted one, and that one still has to wait.
    const fn verdict(self) -> Verdict {
        Verdict::of(self.right > 0 && self.wrong <= 2 * self.preempted)
    }
}

/// Ratios of times that count as "barely depend": by up to a quarter, while the threads are 64
/// times as many.
const BARELY: std::ops::Range<f64> = 0.75..1.25;

/// Ratios of hand-over times that count as unchanged: within a tenth.
const UNCHANGED: std::ops::Range<f64> = 0.9..1.1;

/// CPUs that are kept busy at least by a ring in which a thread can always move.
const NEARLY_ONE: f64 = 0.95;

/// How far a count of switches may be from what the ring must make, as a share.
const EXACT: f64 = 0.01;

impl RingPlays {
    /// The answers to the claims for which there are rings.
    pub fn answers(&self) -> Vec<Answer> {
        let answers = [
            self.size_matters_little(),
            self.several_run_at_once(),
            self.many_work(),
        ];
        answers.into_iter().flatten().collect()
    }

    /// E3: the time of a switch barely depends on the number of threads.
    fn size_matters_little(&self) -> Option<Answer> {
        let first = *self.settings.first()?;
        let more = self.settings.iter().enumerate().skip(1);
        let more: Vec<(usize, u64)> = more
            .filter(|(_, ring)| ring.is_like(&first))
            .map(|(index, ring)| (index, ring.threads))
            .collect();
        let in_article = more.iter().rfind(|(_, n)| *n <= ARTICLE_MAX_THREADS);
        let (index, threads) = *in_article.or(more.first())?;
        let over_first = |index| LabNumber::of(&self.rounds.ratios(index, 0, PER_SWITCH));
        let ratio = over_first(index)?;
        let beyond = more.last().filter(|(_, largest)| *largest > threads);
        let beyond = beyond.and_then(|(index, largest)| {
            let ratio = over_first(*index)?.in_unit("");
            Some(format!("; with {largest} threads {ratio} of it"))
        });
        Some(Answer {
            claim: "E3",
            ours: format!(
                "a switch with {threads} threads takes {} of the time with {}{}",
                ratio.in_unit(""),
                first.threads,
                beyond.unwrap_or_default()
            ),
            verdict: ratio.is_within(BARELY.start, BARELY.end),
        })
    }

    /// E4: with more spare locks several threads run at once, and the picture changes.
    fn several_run_at_once(&self) -> Option<Answer> {
        let threads = self.compared_at?;
        let spare = self.settings.iter().map(|ring| ring.spare);
        let (least, most) = (spare.clone().min()?, spare.max()?);
        let few = self.index(RingPlace::AllCpus, threads, least)?;
        let many = self.index(RingPlace::AllCpus, threads, most)?;
        if few == many {
            return None;
        }
        let hand_over = LabNumber::of(&self.rounds.ratios(many, few, HAND_OVER))?;
        let [few, many] = [few, many].map(|index| self.number(index, BUSY_CPUS));
        let (few, many) = (few?, many?);
        let on_one_cpu = [least, most].map(|spare| {
            let switches = self.switches(self.index(RingPlace::Batch, threads, spare)?)?;
            Some(format!("{switches:.4} with {spare}"))
        });
        let on_one_cpu = match on_one_cpu {
            [Some(few), Some(many)] => {
                format!("; on one CPU, switches a hand-over: {few}, {many} spare")
            }
            _ => String::new(),
        };
        Some(Answer {
            claim: "E4",
            ours: format!(
                "{threads} threads, {most} spare locks instead of {least}: {} CPUs busy instead of {}, a hand-over \
                 takes {} of the time{on_one_cpu}",
                many.in_unit(""),
                few.in_unit(""),
                hand_over.in_unit("")
            ),
            verdict: all_of([
                more_at_once(crate::timed::cpus(), few, many),
                has_changed(hand_over),
            ]),
        })
    }

    /// E5: 1024 threads and more go round today.
    fn many_work(&self) -> Option<Answer> {
        let rings = self.settings.iter().enumerate();
        let rings = rings.filter(|(_, ring)| ring.threads >= MANY);
        let counted: Vec<(u64, Verdict)> = rings
            .filter_map(|(index, ring)| {
                let due = 1.0 / ring.spare as f64;
                let blocks = self.number(index, BLOCKS)?;
                let verdict = blocks.is_within(due * (1.0 - EXACT), due * (1.0 + EXACT));
                Some((ring.threads, verdict))
            })
            .collect();
        let (largest, _) = counted.last()?;
        let orders = self.large.iter();
        let orders = orders.filter_map(|ring| *ring.order.as_ref().ok()?);
        let order = orders.reduce(|one, other| RingOrder {
            right: one.right + other.right,
            wrong: one.wrong + other.wrong,
            preempted: one.preempted + other.preempted,
        });
        let unseen = || "which thread came next was not recorded".to_owned();
        let seen = order.map_or_else(unseen, RingOrder::in_words);
        let verdicts = counted.iter().map(|(_, verdict)| verdict.clone());
        Some(Answer {
            claim: "E5",
            ours: format!(
                "rings of up to {} threads work; {seen}",
                text::grouped(*largest)
            ),
            verdict: all_of(verdicts.chain(order.map(RingOrder::verdict))),
        })
    }
}

/// Whether a ring keeps more CPUs busy with `many` spare locks than with `few`, and more than one:
/// CPU time beyond wall time proves it. Fewer do not disprove it where even the first ring, in
/// which one thread can always move, did not keep one CPU busy: others had the CPUs, or threads
/// were waking up.
fn more_at_once(cpus: usize, few: LabNumber, many: LabNumber) -> Verdict {
    if cpus == 1 {
        return cannot_be_tested("this process may use one CPU only");
    }
    let least = few.ends().map_or(1.0, |(_, high)| high.max(1.0));
    match many.is_within(least, f64::INFINITY) {
        Verdict::DoesNotHold if few.point < NEARLY_ONE => Verdict::Undecided(format!(
            "only {:.2} CPUs were busy with the fewest spare locks",
            few.point
        )),
        verdict => verdict,
    }
}

fn has_changed(hand_over: LabNumber) -> Verdict {
    match hand_over.is_within(UNCHANGED.start, UNCHANGED.end) {
        Verdict::Holds => Verdict::DoesNotHold,
        Verdict::DoesNotHold => Verdict::Holds,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::{MemberRuns, Run};
    use swtch_core::Reason;

    fn exact(value: f64) -> LabNumber {
        LabNumber::of(&[value; 6]).unwrap()
    }

    #[test]
    fn a_busy_machine_disproves_nothing() {
        let verdict = |few, many| more_at_once(2, exact(few), exact(many));
        assert_eq!(verdict(1.0, 1.9), Verdict::Holds);
        assert_eq!(verdict(0.7, 1.2), Verdict::Holds);
        assert_eq!(verdict(1.0, 0.99), Verdict::DoesNotHold);
        assert!(matches!(verdict(0.7, 0.7), Verdict::Undecided(_)));
        let one_cpu = more_at_once(1, exact(1.0), exact(1.9));
        assert!(matches!(one_cpu, Verdict::CannotBeTested(_)));
    }

    #[test]
    fn a_time_within_a_tenth_is_the_same_picture() {
        assert_eq!(has_changed(exact(1.05)), Verdict::DoesNotHold);
        assert_eq!(has_changed(exact(0.5)), Verdict::Holds);
    }

    /// Three threads, of which each has to be followed by the one behind: 2, 1, 0, 2.
    fn order(next: [usize; 3], reason: Reason) -> RingOrder {
        let member = |next| {
            let run = Run {
                from_ns: 10,
                to_ns: 20,
                reason,
                next_task: NextTask::Member(next),
                in_call: true,
                runnable: None,
            };
            MemberRuns {
                began_ns: 5,
                ended_ns: 30,
                runs: vec![run],
            }
        };
        RingOrder::of(&LoadRuns {
            members: next.map(member).into(),
            lost: 0,
        })
    }

    #[test]
    fn the_cpu_goes_to_the_thread_behind() {
        let right = order([2, 0, 1], Reason::Futex);
        assert_eq!((right.right, right.verdict()), (3, Verdict::Holds));
        let wrong = order([1, 0, 1], Reason::Futex);
        assert_eq!((wrong.wrong, wrong.verdict()), (1, Verdict::DoesNotHold));
        assert_eq!(order([1, 0, 1], Reason::Slice).verdict(), Verdict::Holds);
    }
}
