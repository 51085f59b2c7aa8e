//! What rings of locks say about the claims of E. Bradford's article.

use anyhow::Result;
use swtch_bench::cost::LockKind;
use swtch_core::cost::{Contrast, Estimate, Policy};
use swtch_output::text;

use super::proof::{self, Proof};
use super::{ARTICLE_MOST, CpuChoice, RingParameters, RingResult, RingSize, group_name};
use crate::cost::series::{ArmOperation, Blocks};
use crate::lab::claim::{Answer, Verdict, all_of};
use crate::lab::room::ExperimentContext;
use crate::lab::timed::{self, Timed, is_within, ratio};

/// Ratios of times that count as "barely depend": by up to a quarter, while the threads are 64
/// times as many.
const BARELY: std::ops::Range<f64> = 0.75..1.25;

/// E3: the time per switch barely depends on the number of threads. Only rings with one spare lock
/// are compared, in which each hand-over is a switch.
pub fn size_matters_little(asked: &RingParameters, timed: &Timed) -> Option<Answer> {
    let measured = timed.group(&group_name(*asked.locks.first()?, *asked.settings.first()?))?;
    let blocks = Blocks::of(measured);
    let shapes = asked.shapes();
    let with_one: Vec<(usize, u32)> = (shapes.iter().enumerate())
        .filter(|(_, shape)| shape.spare == 1)
        .map(|(arm, shape)| (arm, shape.threads))
        .collect();
    let (first, least) = *with_one.first()?;
    let against = |(arm, threads): &(usize, u32)| -> Option<(u32, Contrast)> {
        let contrast = blocks.contrast(ArmOperation::of(first), ArmOperation::of(*arm))?;
        (*arm != first).then_some((*threads, contrast))
    };
    let all: Vec<(u32, Contrast)> = with_one.iter().filter_map(against).collect();
    let of_article = all
        .iter()
        .rfind(|(threads, _)| *threads <= ARTICLE_MOST)
        .or(all.first())?;
    let beyond = all.last().filter(|(threads, _)| *threads > of_article.0);
    let beyond = beyond.map_or_else(String::new, |(threads, contrast)| {
        format!("; with {threads} threads {} of it", ratio(&contrast.ratio))
    });
    Some(Answer {
        claim: "E3",
        ours: format!(
            "a switch with {} threads takes {} of the time with {least}{beyond}",
            of_article.0,
            ratio(&of_article.1.ratio)
        ),
        verdict: is_within(&of_article.1.ratio, BARELY),
    })
}

/// Ratios of hand-over times that count as unchanged: within a tenth.
const UNCHANGED: std::ops::Range<f64> = 0.9..1.1;

/// E4: with more spare locks several threads run at once, and the picture changes.
pub fn several_run_at_once(
    asked: &RingParameters,
    timed: &Timed,
    rows: &[RingResult],
    room: &ExperimentContext,
) -> Result<Option<Answer>> {
    let (Some(lock), Some(least), Some(most)) =
        (asked.locks.first(), asked.spare.first(), asked.spare.last())
    else {
        return Ok(None);
    };
    let small = asked
        .threads
        .iter()
        .rfind(|threads| **threads <= ARTICLE_MOST);
    let threads = *small.unwrap_or(&asked.threads[0]);
    let shapes = [*least, *most].map(|spare| RingSize { threads, spare });
    let Some(hand_over) = free_contrast(asked, timed, *lock, shapes) else {
        return Ok(None);
    };
    let busy = |shape| proof::busy_cpus(&asked.ring(*lock, FREE, shape), room);
    let (Some(few), Some(many)) = (busy(shapes[0])?, busy(shapes[1])?) else {
        return Ok(None);
    };
    let on_one_cpu = rows
        .iter()
        .filter(|row| row.is_of(*lock, asked.settings[0]) && row.shape.threads == threads)
        .map(|row| format!("{:.4} with {}", row.counted(), row.shape.spare));
    Ok(Some(Answer {
        claim: "E4",
        ours: format!(
            "{threads} threads, {most} spare locks instead of {least}: {} CPUs busy instead of {}, a \
             hand-over takes {} of the time; on one CPU, switches a hand-over: {} spare",
            ratio(&many),
            ratio(&few),
            ratio(&hand_over),
            on_one_cpu.collect::<Vec<_>>().join(", ")
        ),
        verdict: all_of([more_at_once(&few, &many), has_changed(&hand_over)]),
    }))
}

/// Threads of the default policy, on the CPUs that the kernel chooses.
const FREE: (Policy, CpuChoice) = (Policy::Default, CpuChoice::All);

/// Time of a hand-over of the second ring over one of the first, both on all CPUs; `None` when they
/// were not measured, or are the same ring.
fn free_contrast(
    asked: &RingParameters,
    timed: &Timed,
    lock: LockKind,
    [few, many]: [RingSize; 2],
) -> Option<Estimate> {
    let blocks = Blocks::of(timed.group(&group_name(lock, FREE))?);
    let shapes = asked.shapes();
    let arm = |shape: RingSize| shapes.iter().position(|one| *one == shape);
    let (few, many) = (arm(few)?, arm(many)?);
    let contrast = blocks.contrast(ArmOperation::of(few), ArmOperation::of(many))?;
    (few != many).then_some(contrast.ratio)
}

/// Whether the second ring keeps more CPUs busy than the first, and more than one: CPU time beyond
/// wall time proves it. Fewer do not disprove it where even the first ring, in which one thread can
/// always move, did not keep one CPU busy: others had the CPUs, or threads were waking up.
fn more_at_once(few: &Estimate, many: &Estimate) -> Verdict {
    match timed::cpus() {
        1 => Verdict::CannotBeTested("this process may use one CPU only".to_owned()),
        _ => match is_within(many, few.high.max(1.0)..f64::INFINITY) {
            Verdict::DoesNotHold if few.point < NEARLY_ONE => Verdict::Undecided(format!(
                "only {:.2} CPUs were busy with one thread",
                few.point
            )),
            verdict => verdict,
        },
    }
}

/// CPUs that are kept busy at least by a thread that always has something to do.
const NEARLY_ONE: f64 = 0.95;

fn has_changed(hand_over: &Estimate) -> Verdict {
    match is_within(hand_over, UNCHANGED) {
        Verdict::Holds => Verdict::DoesNotHold,
        Verdict::DoesNotHold => Verdict::Holds,
        other => other,
    }
}

/// More threads than Linux could run when the article was written.
pub const MANY: u32 = 1024;

/// E5: 1024 threads and more work today: they were timed, and their order is proved. `None` when no
/// such ring was asked for.
pub fn many_work(rows: &[RingResult], proofs: &[Proof]) -> Option<Answer> {
    let is_many = |threads: u32| threads >= MANY;
    rows.iter().find(|row| is_many(row.shape.threads))?;
    let largest = rows
        .iter()
        .filter(|row| row.hand_over.is_some())
        .map(|row| row.shape.threads)
        .max()?;
    let proved: Vec<&Proof> = proofs
        .iter()
        .filter(|proof| is_many(proof.ring.count))
        .collect();
    let hand_overs: u64 = proved.iter().map(|proof| proof.hand_overs).sum();
    let verdict = match (is_many(largest), proved.is_empty()) {
        (true, false) => Verdict::of(proved.iter().all(|proof| proof.violation.is_none())),
        _ => Verdict::Undecided(format!("no ring of {MANY} threads was measured")),
    };
    Some(Answer {
        claim: "E5",
        ours: format!(
            "rings of up to {} threads work; with {MANY} and more the order was proved over {} hand-overs",
            text::grouped(u64::from(largest)),
            text::grouped(hand_overs)
        ),
        verdict,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn busy(cpus: f64) -> Estimate {
        let runs = [cpus; 6].map(|cpus| vec![cpus]);
        Estimate::of_trees(&runs).unwrap()
    }

    /// A process that may use one CPU only can neither prove nor disprove it.
    #[test]
    fn a_busy_machine_disproves_nothing() {
        let verdict = |few, many| more_at_once(&busy(few), &busy(many));
        if timed::cpus() > 1 {
            assert_eq!(verdict(1.0, 1.9), Verdict::Holds);
            assert_eq!(verdict(0.7, 1.2), Verdict::Holds);
            assert_eq!(verdict(1.0, 0.99), Verdict::DoesNotHold);
            assert!(matches!(verdict(0.7, 0.7), Verdict::Undecided(_)));
        } else {
            assert!(matches!(verdict(1.0, 1.9), Verdict::CannotBeTested(_)));
        }
    }

    #[test]
    fn a_time_within_a_tenth_is_the_same_picture() {
        assert_eq!(has_changed(&busy(1.05)), Verdict::DoesNotHold);
        assert_eq!(has_changed(&busy(0.5)), Verdict::Holds);
    }
}
