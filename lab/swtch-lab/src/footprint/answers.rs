//! What the footprint of switches says about claims B3 and B4 (texts in docs/LAB.md).

use swtch_core::cost::{Estimate, NamedContrast, Place};

use super::{PlaceCost, WorkingSetCosts, second_level_cache};
use crate::claim::{Answer, Verdict, all_of};
use crate::parameters::ParameterValue;
use crate::timed::{self, adds, is_within, time, unpaired_difference};

/// A sentence that sets the control beside the walk that it controls.
pub fn control(sets: &WorkingSetCosts) -> Option<String> {
    let walks = sets.random.iter().zip(&sets.shared).rev();
    // Only what fits into a CPU's own cache: beyond it, the result also depends on others.
    let mut fitting = walks.filter(|(walk, _)| walk.size <= second_level_cache());
    let (size, random, shared) =
        fitting.find_map(|(walk, control)| Some((walk.size, walk.indirect?, control.indirect?)))?;
    Some(format!(
        "A switch alone costs {}; after it, walking over {} costs {} more than without a switch, and {} more \
         where the memory is shared.",
        time(sets.direct.as_ref()?),
        ParameterValue::Size(size),
        time(&random),
        time(&shared)
    ))
}

/// B4: the indirect cost can exceed the switch itself, and processes that have a CPU each lose
/// less. `places` is `None` if places were not measured.
pub fn afterwards(sets: &WorkingSetCosts, places: Option<&[PlaceCost]>) -> Option<Answer> {
    let direct = sets.direct?;
    let spots = sets.random.iter();
    let known: Vec<(u64, Estimate)> = spots
        .filter_map(|spot| Some((spot.size, spot.indirect?)))
        .collect();
    let (_, largest) = known.last()?;
    let exceeds =
        |lost: &Estimate| is_within(&unpaired_difference(lost, &direct), 0.0..f64::INFINITY);
    let first = known
        .iter()
        .find(|(_, lost)| exceeds(lost) == Verdict::Holds);
    let (where_lost, lost) = match first {
        Some((bytes, lost)) => (format!("at {}:", ParameterValue::Size(*bytes)), lost),
        None => ("at most".to_owned(), largest),
    };
    let (by_place, verdict_on_places) = match places {
        Some(places) => on_a_cpu_each(places),
        None => (
            "places were not compared".to_owned(),
            Verdict::Undecided("it was ended before places were compared".to_owned()),
        ),
    };
    Some(Answer {
        claim: "B4",
        ours: format!(
            "{where_lost} {} afterwards, {} the switch itself; {by_place}",
            time(lost),
            time(&direct)
        ),
        verdict: all_of([exceeds(lost), verdict_on_places]),
    })
}

/// What two processes lose on one CPU, on a CPU each, and where the kernel places them, and whether
/// they lose less on a CPU each.
fn on_a_cpu_each(places: &[PlaceCost]) -> (String, Verdict) {
    let lost = |is_there: fn(Place) -> bool| {
        let cost = places.iter().find(|cost| is_there(cost.place))?;
        cost.indirect
    };
    let together = lost(|place| place == Place::SameCpu);
    let apart = lost(|place| place != Place::SameCpu && place != Place::Free);
    let free = lost(|place| place == Place::Free);
    let (Some(together), Some(apart)) = (together, apart) else {
        return (
            "a CPU of one's own could not be tried".to_owned(),
            match timed::cpus() {
                1 => Verdict::CannotBeTested("this process may use one CPU only".to_owned()),
                _ => Verdict::Undecided("too few blocks counted".to_owned()),
            },
        );
    };
    let free = free.map_or_else(String::new, |free| format!(", {} free", time(&free)));
    (
        format!(
            "half the second-level cache each: {} afterwards on one CPU, {} on a CPU each{free}",
            time(&together),
            time(&apart)
        ),
        is_within(&unpaired_difference(&together, &apart), 0.0..f64::INFINITY),
    )
}

/// B3: vector registers in use add to the switch. The widest that this machine has decide.
pub fn registers_add(contrasts: &[NamedContrast]) -> Answer {
    let vectors = || contrasts.iter().filter(|one| one.name.starts_with("avx"));
    let words: Vec<String> = vectors()
        .map(|one| format!("{} adds {}", one.name, time(&one.difference_ns)))
        .collect();
    Answer {
        claim: "B3",
        ours: words.join(", "),
        verdict: match vectors().next_back() {
            None => Verdict::CannotBeTested(
                "this CPU has no vector registers that can be cleared".to_owned(),
            ),
            Some(widest) => adds(widest),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::super::IndirectCost;
    use super::*;

    /// An estimate without any spread.
    fn exact(ns: f64) -> Estimate {
        Estimate::of_trees(&[ns; 6].map(|ns| vec![ns])).unwrap()
    }

    /// A switch of 700 ns, and what it costs after walks over 4 KiB and over 1 MiB.
    fn sets(small_ns: f64, large_ns: f64) -> WorkingSetCosts {
        let costs = |ns: [f64; 2]| {
            let sizes = [4 << 10, 1 << 20].into_iter().zip(ns);
            let cost = sizes.map(|(size, ns)| IndirectCost {
                size,
                walk: None,
                indirect: Some(exact(ns)),
            });
            cost.collect()
        };
        WorkingSetCosts {
            direct: Some(exact(700.0)),
            random: costs([small_ns, large_ns]),
            sequential: costs([1.0, 1.0]),
            shared: costs([2.0, 2.0]),
        }
    }

    fn places(together_ns: f64, apart_ns: f64) -> Vec<PlaceCost> {
        let cost = |(place, ns)| PlaceCost {
            place,
            direct: None,
            indirect: Some(exact(ns)),
        };
        let both = [(Place::SameCpu, together_ns), (Place::SameCache, apart_ns)];
        both.into_iter().map(cost).collect()
    }

    #[test]
    fn the_smallest_set_that_costs_more_than_the_switch_is_named() {
        let apart = places(900.0, 100.0);
        let larger = afterwards(&sets(100.0, 9_000.0), Some(&apart)).unwrap();
        assert_eq!(larger.verdict, Verdict::Holds);
        assert!(larger.ours.starts_with("at 1MiB: 9000 ns"), "{larger:?}");
        let smaller = afterwards(&sets(100.0, 600.0), Some(&apart)).unwrap();
        assert_eq!(smaller.verdict, Verdict::DoesNotHold);
        assert!(smaller.ours.starts_with("at most 600 ns"), "{smaller:?}");
    }

    #[test]
    fn the_claim_needs_both_parts() {
        let sets = sets(100.0, 9_000.0);
        let no_better_apart = afterwards(&sets, Some(&places(100.0, 900.0))).unwrap();
        assert_eq!(no_better_apart.verdict, Verdict::DoesNotHold);
        let not_compared = afterwards(&sets, None).unwrap();
        assert!(matches!(not_compared.verdict, Verdict::Undecided(_)));
    }
}
