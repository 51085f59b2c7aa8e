//! Judges claims E3, E4 and E5 of E. Bradford, "Runtime: Context switching", 2002 (texts in
//! docs/LAB.md). `swtch_bench::cost::lock_ring` says what a spare lock is.

use anyhow::Result;
use swtch_bench::cost::LockKind;
use swtch_core::cost::{Estimate, Policy};
use swtch_output::text;

use super::proof::{self, Proof};
use super::{ARTICLE_MAX_THREADS, CpuChoice, RingParameters, RingResult, RingSize, group_name};
use crate::claim::{Answer, Verdict, all_of};
use crate::context::ExperimentContext;
use crate::timed::{self, Timed, is_within, ratio};
use swtch_cost::series::{ArmOperation, Blocks};

/// Ratios of times that count as "barely depend": by up to a quarter, while the threads are 64
/// times as many.
const BARELY: std::ops::Range<f64> = 0.75..1.25;

/// E3: the time per switch barely depends on the number of threads. Only rings with one spare lock
/// are compared, in which each hand-over is a switch.
pub fn size_matters_little(parameters: &RingParameters, timed: &Timed) -> Option<Answer> {
    let (lock, setting) = (parameters.locks.first()?, parameters.settings.first()?);
    let blocks = Blocks::of(timed.group(&group_name(*lock, *setting))?);
    let sizes = parameters.sizes().into_iter().enumerate();
    let mut rings_with_one_spare = sizes.filter(|(_, size)| size.spare == 1);
    let (smallest, RingSize { threads: least, .. }) = rings_with_one_spare.next()?;
    let over_smallest = |(arm, size): (usize, RingSize)| -> Option<(u32, Estimate)> {
        let contrast = blocks.contrast(ArmOperation::of(smallest), ArmOperation::of(arm))?;
        Some((size.threads, contrast.ratio))
    };
    let ratios: Vec<(u32, Estimate)> = rings_with_one_spare.filter_map(over_smallest).collect();
    let (threads, article_ratio) = ratios
        .iter()
        .rfind(|(threads, _)| *threads <= ARTICLE_MAX_THREADS)
        .or(ratios.first())?;
    let beyond = ratios.last().filter(|(largest, _)| largest > threads);
    let beyond = beyond.map_or_else(String::new, |(largest, of_it)| {
        format!("; with {largest} threads {} of it", ratio(of_it))
    });
    Some(Answer {
        claim: "E3",
        ours: format!(
            "a switch with {threads} threads takes {} of the time with {least}{beyond}",
            ratio(article_ratio)
        ),
        verdict: is_within(article_ratio, BARELY),
    })
}

/// Ratios of hand-over times that count as unchanged: within a tenth.
const UNCHANGED: std::ops::Range<f64> = 0.9..1.1;

/// E4: with more spare locks several threads run at once, and the picture changes.
pub fn several_run_at_once(
    parameters: &RingParameters,
    timed: &Timed,
    results: &[RingResult],
    context: &ExperimentContext,
) -> Result<Option<Answer>> {
    let spare = &parameters.spare;
    let (Some(lock), Some(least), Some(most)) =
        (parameters.locks.first(), spare.first(), spare.last())
    else {
        return Ok(None);
    };
    let mut threads = parameters.threads.iter();
    let largest_in_article = threads.rfind(|threads| **threads <= ARTICLE_MAX_THREADS);
    let threads = *largest_in_article.unwrap_or(&parameters.threads[0]);
    let sizes = [*least, *most].map(|spare| RingSize { threads, spare });
    let Some(hand_over) = unpinned_ratio(parameters, timed, *lock, sizes) else {
        return Ok(None);
    };
    let busy_cpus = |size| proof::busy_cpus(&parameters.ring(*lock, UNPINNED, size), context);
    let (Some(few), Some(many)) = (busy_cpus(sizes[0])?, busy_cpus(sizes[1])?) else {
        return Ok(None);
    };
    let on_one_cpu = results
        .iter()
        .filter(|one| one.is_of(*lock, parameters.settings[0]) && one.size.threads == threads)
        .map(|one| format!("{:.4} with {}", one.counted(), one.size.spare));
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
        verdict: all_of([more_at_once(&few, &many, *least), has_changed(&hand_over)]),
    }))
}

/// Threads of the default policy, on the CPUs that the kernel chooses.
const UNPINNED: (Policy, CpuChoice) = (Policy::Default, CpuChoice::All);

/// Time of a hand-over of the second ring over one of the first, both on all CPUs; `None` when they
/// were not measured, or are the same ring.
fn unpinned_ratio(
    parameters: &RingParameters,
    timed: &Timed,
    lock: LockKind,
    [few, many]: [RingSize; 2],
) -> Option<Estimate> {
    let blocks = Blocks::of(timed.group(&group_name(lock, UNPINNED))?);
    let sizes = parameters.sizes();
    let arm = |size: RingSize| sizes.iter().position(|one| *one == size);
    let (few, many) = (arm(few)?, arm(many)?);
    let contrast = blocks.contrast(ArmOperation::of(few), ArmOperation::of(many))?;
    (few != many).then_some(contrast.ratio)
}

/// Whether the ring with `many` busy CPUs keeps more of them busy than the ring with `few`, and
/// more than one: CPU time beyond wall time proves it. Fewer do not disprove it where even the
/// first ring, in which one thread can always move, did not keep one CPU busy: others had the CPUs,
/// or threads were waking up. `least_spare` is the number of spare locks of the first ring.
fn more_at_once(few: &Estimate, many: &Estimate, least_spare: u32) -> Verdict {
    match timed::cpus() {
        1 => Verdict::CannotBeTested("this process may use one CPU only".to_owned()),
        _ => match is_within(many, few.high.max(1.0)..f64::INFINITY) {
            Verdict::DoesNotHold if few.point < NEARLY_ONE => Verdict::Undecided(format!(
                "only {:.2} CPUs were busy with {}",
                few.point,
                text::counted(u64::from(least_spare), "spare lock")
            )),
            verdict => verdict,
        },
    }
}

/// CPUs that are kept busy at least by a ring in which a thread can always move.
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
pub fn many_work(results: &[RingResult], proofs: &[Proof]) -> Option<Answer> {
    let is_many = |threads: u32| threads >= MANY;
    results.iter().find(|result| is_many(result.size.threads))?;
    let largest = results
        .iter()
        .filter(|result| result.hand_over.is_some())
        .map(|result| result.size.threads)
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

    /// An estimate without any spread.
    fn exact(value: f64) -> Estimate {
        let runs = [value; 6].map(|value| vec![value]);
        Estimate::of_trees(&runs).unwrap()
    }

    /// With one CPU the claim cannot be tested.
    #[test]
    fn a_busy_machine_disproves_nothing() {
        let verdict = |few, many| more_at_once(&exact(few), &exact(many), 2);
        if timed::cpus() > 1 {
            assert_eq!(verdict(1.0, 1.9), Verdict::Holds);
            assert_eq!(verdict(0.7, 1.2), Verdict::Holds);
            assert_eq!(verdict(1.0, 0.99), Verdict::DoesNotHold);
            let why = "only 0.70 CPUs were busy with 2 spare locks".to_owned();
            assert_eq!(verdict(0.7, 0.7), Verdict::Undecided(why));
        } else {
            assert!(matches!(verdict(1.0, 1.9), Verdict::CannotBeTested(_)));
        }
    }

    #[test]
    fn a_time_within_a_tenth_is_the_same_picture() {
        assert_eq!(has_changed(&exact(1.05)), Verdict::DoesNotHold);
        assert_eq!(has_changed(&exact(0.5)), Verdict::Holds);
    }
}
