//! What the footprint of switches says about claims B3 and B4 (texts in docs/LAB.md).

use swtch_core::cost::{Estimate, NamedContrast, Place};

use super::{PlaceCost, WorkingSetCosts, second_level_cache};
use crate::claim::Verdict;
use crate::parameters::ParameterValue;
use crate::quantities::Quantities;
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
pub fn add_afterwards(all: &mut Quantities, sets: &WorkingSetCosts, places: Option<&[PlaceCost]>) {
    let known = sets.random.iter();
    let known = known.filter_map(|spot| Some((spot.size, spot.indirect?)));
    let known: Vec<(u64, Estimate)> = known.collect();
    let (Some(direct), Some((_, largest))) = (sets.direct, known.last()) else {
        return;
    };
    let excess = |lost: &Estimate| unpaired_difference(lost, &direct);
    let mut sizes = known.iter();
    let first =
        sizes.find(|(_, lost)| is_within(&excess(lost), 0.0..f64::INFINITY) == Verdict::Holds);
    let (place, lost) = match first {
        Some((bytes, lost)) => (format!("at {}:", ParameterValue::Size(*bytes)), lost),
        None => ("at most".to_owned(), largest),
    };
    all.words("where", place);
    all.number("lost", Some(*lost));
    all.number("direct", Some(direct));
    all.number("excess", Some(excess(lost)));
    add_places(all, places.unwrap_or_default());
}

/// What two processes lose on one CPU, on a CPU each, and where the kernel places them.
fn add_places(all: &mut Quantities, places: &[PlaceCost]) {
    let lost = |is_there: fn(Place) -> bool| {
        let cost = places.iter().find(|cost| is_there(cost.place))?;
        cost.indirect
    };
    let together = lost(|place| place == Place::SameCpu);
    let apart = lost(|place| place != Place::SameCpu && place != Place::Free);
    all.optional("together", together);
    all.optional("apart", apart);
    all.optional("free", lost(|place| place == Place::Free));
    let both = together.zip(apart);
    let spared = both.map(|(together, apart)| unpaired_difference(&together, &apart));
    all.optional("spared", spared);
    if spared.is_none() {
        all.judge(
            "B4",
            match timed::cpus() {
                1 => Verdict::CannotBeTested("this process may use one CPU only".to_owned()),
                _ => Verdict::Undecided(
                    "places were not compared, or too few blocks counted".to_owned(),
                ),
            },
        );
    }
}

/// B3: vector registers in use add to the switch. The widest that this machine has decide.
pub fn add_registers(all: &mut Quantities, contrasts: &[NamedContrast]) {
    let vectors = || contrasts.iter().filter(|one| one.name.starts_with("avx"));
    let words = vectors().map(|one| format!("{} adds {}", one.name, time(&one.difference_ns)));
    all.words("registers", words.collect::<Vec<_>>().join(", "));
    match vectors().next_back() {
        Some(widest) => all.judge("B3", adds(widest)),
        None => all.cannot(
            "B3",
            "nothing",
            "this CPU has no vector registers that can be cleared",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::IndirectCost;
    use super::*;
    use crate::claim::Answer;

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

    fn answer(sets: &WorkingSetCosts, places: Option<&[PlaceCost]>) -> Answer {
        let mut all = Quantities::of_arms();
        add_afterwards(&mut all, sets, places);
        all.answer("B4")
    }

    #[test]
    fn the_smallest_set_that_costs_more_than_the_switch_is_named() {
        let apart = places(900.0, 100.0);
        let larger = answer(&sets(100.0, 9_000.0), Some(&apart));
        assert_eq!(larger.verdict, Verdict::Holds);
        assert!(larger.ours.starts_with("at 1MiB: 9000 ns"), "{larger:?}");
        let smaller = answer(&sets(100.0, 600.0), Some(&apart));
        assert_eq!(smaller.verdict, Verdict::DoesNotHold);
        assert!(smaller.ours.starts_with("at most 600 ns"), "{smaller:?}");
    }

    #[test]
    fn the_claim_needs_both_parts() {
        let sets = sets(100.0, 9_000.0);
        let no_better_apart = answer(&sets, Some(&places(100.0, 900.0)));
        assert_eq!(no_better_apart.verdict, Verdict::DoesNotHold);
        let not_compared = answer(&sets, None);
        assert!(matches!(not_compared.verdict, Verdict::Undecided(_)));
    }
}
