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

/// Who got the CPU when threads of a ring left it, while all of them were in the ring: from when the
/// last had begun until the first ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingOrder {
    /// Switches to the thread behind, which has to be next.
    to_behind: u64,
    /// Switches to another thread of the ring.
    to_others: u64,
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
    /// Plays a ring of each number of threads that is [`MANY`] or more. It ends early when the user
    /// interrupts the experiment.
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
                    NextTask::Member(next) if next == behind => order.to_behind += 1,
                    NextTask::Member(_) => order.to_others += 1,
                    _ => {}
                }
            }
        }
        order
    }

    fn in_words(self) -> String {
        let preemptions = text::counted(self.preempted, "preemption");
        let others = match (self.to_others, self.explained()) {
            (0, _) => String::new(),
            (_, true) => format!("; the others follow from {preemptions}"),
            (_, false) => format!("; the others are more than follow from {preemptions}"),
        };
        format!(
            "with {MANY} and more, {} of {} recorded switches between threads were to the one behind{others}",
            text::grouped(self.to_behind),
            text::grouped(self.to_behind + self.to_others)
        )
    }

    /// Whether preemptions explain all switches to another thread. Each makes two: the thread
    /// behind comes too early and waits for the preempted one, and that one still has to wait.
    const fn explained(self) -> bool {
        self.to_others <= 2 * self.preempted
    }

    /// Whether the CPU goes round in the order of the ring, as far as nobody is preempted.
    const fn verdict(self) -> Verdict {
        Verdict::of(self.to_behind > 0 && self.explained())
    }
}

/// Ratios of times that count as "barely depend": up to a quarter less or more. In the article the
/// largest ring has 64 times as many threads as the smallest.
const BARELY: std::ops::Range<f64> = 0.75..1.25;

/// Ratios of hand-over times that count as unchanged: within a tenth.
const UNCHANGED: std::ops::Range<f64> = 0.9..1.1;

/// The CPUs that a ring keeps busy at least where nobody else takes them, since one of its threads
/// can always move.
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
        let larger: Vec<(usize, u64)> = self
            .settings
            .iter()
            .enumerate()
            .skip(1)
            .filter(|(_, ring)| ring.is_like(&first))
            .map(|(index, ring)| (index, ring.threads))
            .collect();
        let in_article = larger.iter().rfind(|(_, n)| *n <= ARTICLE_MAX_THREADS);
        let (compared, threads) = *in_article.or(larger.first())?;
        let over_first = |setting| LabNumber::of(&self.rounds.ratios(setting, 0, PER_SWITCH));
        let ratio = over_first(compared)?;
        let largest = larger.last().filter(|(_, most)| *most > threads);
        let beyond = largest.and_then(|(setting, most)| {
            let times = over_first(*setting)?.in_unit("");
            Some(format!("; with {most} threads {times} of it"))
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

    /// E5: 1024 threads and more go round today. Rings whose threads may preempt, or run on other
    /// CPUs, do not count: no number of switches follows from how they are built.
    fn many_work(&self) -> Option<Answer> {
        let counted: Vec<(u64, Verdict)> = self
            .settings
            .iter()
            .enumerate()
            .filter(|(_, ring)| ring.threads >= MANY)
            .filter_map(|(index, ring)| {
                let due = ring.expected()?;
                let blocks = self.number(index, BLOCKS)?;
                let verdict = blocks.is_within(due * (1.0 - EXACT), due * (1.0 + EXACT));
                Some((ring.threads, verdict))
            })
            .collect();
        let largest = counted.iter().map(|(threads, _)| *threads).max()?;
        let orders = self.large.iter();
        let orders = orders.filter_map(|ring| *ring.order.as_ref().ok()?);
        let order = orders.reduce(|one, other| RingOrder {
            to_behind: one.to_behind + other.to_behind,
            to_others: one.to_others + other.to_others,
            preempted: one.preempted + other.preempted,
        });
        let unseen = || "which thread came next was not recorded".to_owned();
        let seen = order.map_or_else(unseen, RingOrder::in_words);
        let verdicts = counted.iter().map(|(_, verdict)| verdict.clone());
        Some(Answer {
            claim: "E5",
            ours: format!(
                "rings of up to {} threads work; {seen}",
                text::grouped(largest)
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
    use crate::load_experiment::Rounds;
    use crate::lock_ring::{RingPlay, compared_at, settings};
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
        assert_eq!((right.to_behind, right.verdict()), (3, Verdict::Holds));
        let wrong = order([1, 0, 1], Reason::Futex);
        assert_eq!(
            (wrong.to_others, wrong.verdict()),
            (1, Verdict::DoesNotHold)
        );
        assert_eq!(order([1, 0, 1], Reason::Slice).verdict(), Verdict::Holds);
    }

    /// The words must not explain what the verdict does not take for explained.
    #[test]
    fn words_and_verdict_agree_on_what_preemptions_explain() {
        let words = |next, reason| {
            let sentence = order(next, reason).in_words();
            let rest = sentence.strip_prefix("with 1024 and more, ").unwrap();
            rest.replace(
                " recorded switches between threads were to the one behind",
                "",
            )
        };
        assert_eq!(words([2, 0, 1], Reason::Futex), "3 of 3");
        assert_eq!(
            words([1, 0, 1], Reason::Futex),
            "2 of 3; the others are more than follow from 0 preemptions"
        );
        assert_eq!(
            words([1, 0, 1], Reason::Slice),
            "2 of 3; the others follow from 3 preemptions"
        );
    }

    /// Of rings of every place only those count of which the number of switches is known, and the
    /// largest is not the last of them.
    #[test]
    fn rings_that_owe_no_number_of_switches_do_not_count() {
        let threads = [1024, 4096];
        let settings = settings(&threads, &[1, 2]);
        let play = |ring: &RingSetting| RingPlay {
            hand_overs: 1000.0,
            wall_ns: 1e6,
            cpu_ns: 1e6,
            voluntary: 1000.0 * ring.expected().unwrap_or(3.0),
            involuntary: 0.0,
        };
        let rounds = settings.iter().map(|ring| vec![Some(play(ring)); 6]);
        let plays = RingPlays {
            rounds: Rounds::of_plays(rounds.collect()),
            compared_at: compared_at(&threads),
            large: Vec::new(),
            settings,
        };
        let answer = plays.many_work().unwrap();
        assert_eq!(answer.verdict, Verdict::Holds);
        assert!(
            answer.ours.starts_with("rings of up to 4,096 threads work"),
            "{}",
            answer.ours
        );
    }
}
