//! Indirect cost: the most that a task can have lost because others used its caches meanwhile.
//!
//! ```text
//! net ns per hop                              ╭── largest working set that fits the L2
//!    │                                   ╭────╯ ▲
//!    │                          ╭────────╯      │ the most that one absence can cost
//!    │──────────────────────────╯               ▼
//!    └──────────────────────────────────────────── working set
//! ```
//!
//! Only bounds hold for every program. A program may touch no memory, so the least is 0. The most:
//!
//! ```text
//!        away               run             away            run
//! ──┤ displaces ├──┤ loses what it needs ├┤ displaces ├──┤ loses …
//! ```
//!
//! - While a task is away, no more is displaced than the time allows: data cannot be displaced
//!   faster than the data that displaces it is loaded.
//! - At no moment is more displaced than a private cache full of data. Programs with more data than
//!   that displace their own, with or without a switch.
//! - A run loses no more than has been displaced, and no more than it lasts. Data that it did not
//!   need stays displaced for the next run.
//!
//! So the amount displaced is kept for each task, from run to run.

use crate::cost::price::{Curve, Point, PriceFact, PriceList};
use crate::units::Nanos;

/// The curve used: random reads and writes over memory that the members do not share.
pub(super) const CURVE: &str = "working-set-random-private";

/// The fact that holds the size of the private cache.
pub(super) const L2: &str = "cache_l2_bytes";

/// The size limit of a private cache where the list does not give it: 2 MiB, the largest L2 of the
/// cores in common use (Intel Golden Cove and later).
const LARGEST_L2_BYTES: f64 = 2.0 * 1024.0 * 1024.0;

/// A way in which a task came back to a CPU after a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Return {
    /// To its CPU, which had only been idle meanwhile.
    Undisturbed,
    /// To its CPU, after this time, in which other tasks can have used it.
    SameCpu(Nanos),
    /// To another CPU, or CPU or time are not known: all of its data may have to be fetched again.
    Elsewhere,
}

/// The bound on what one absence can cost.
#[derive(Clone, Debug, PartialEq)]
pub struct Displacement {
    most: Nanos,
    source: String,
}

impl Displacement {
    /// Takes the bound from the list's curve.
    ///
    /// # Errors
    ///
    /// The list has no such curve, or not enough of it; the text says why.
    pub(super) fn new(list: &PriceList) -> Result<Self, String> {
        let curve = list.curves.iter().find(|curve| curve.name == CURVE);
        let curve = curve
            .ok_or_else(|| format!("the list has no curve {CURVE} (a quick list measures none)"))?;
        let limit = l2_bytes(&list.facts).unwrap_or(LARGEST_L2_BYTES);
        let (smallest, largest) = ends(curve, limit).ok_or_else(|| {
            format!("the list's curve {CURVE} has no two points that fit the private cache")
        })?;
        Ok(Self {
            most: Nanos::from_rounded(largest.net_ns.high - smallest.net_ns.low),
            source: format!(
                "{CURVE} of {:.0} less {:.0} bytes",
                largest.size, smallest.size
            ),
        })
    }

    /// The most that any absence costs.
    pub const fn most(&self) -> Nanos {
        self.most
    }

    /// The points that the bound comes from, in words.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// The most that a task loses in the run after it came back in this way. `displaced` is what it
    /// still missed when it left, and becomes what it still misses when it leaves again; `ran` is
    /// the length of the run, `None` when it is not known.
    pub fn lost_in_run(&self, displaced: &mut Nanos, back: Return, ran: Option<Nanos>) -> Nanos {
        let missing = match back {
            Return::Undisturbed => *displaced,
            Return::SameCpu(away) => self.most.min(*displaced + away),
            Return::Elsewhere => self.most,
        };
        let lost = ran.map_or(missing, |ran| missing.min(ran));
        *displaced = missing.saturating_sub(lost);
        lost
    }
}

fn l2_bytes(facts: &[PriceFact]) -> Option<f64> {
    let fact = facts.iter().find(|fact| fact.name == L2)?;
    let bytes: f64 = fact.value.as_deref()?.parse().ok()?;
    (bytes > 0.0).then_some(bytes)
}

/// The smallest point of the curve, and the largest up to the limit; `None` if they are the same.
fn ends(curve: &Curve, limit: f64) -> Option<(&Point, &Point)> {
    let known = |point: &&Point| point.net_ns.low.is_finite() && point.net_ns.high.is_finite();
    let by_size = |a: &&Point, b: &&Point| a.size.total_cmp(&b.size);
    let fitting = curve
        .points
        .iter()
        .filter(known)
        .filter(|point| point.size <= limit);
    let smallest = fitting.clone().min_by(by_size)?;
    let largest = fitting.max_by(by_size)?;
    (largest.size > smallest.size).then_some((smallest, largest))
}

#[cfg(test)]
mod tests {
    use super::super::drawn::{list, with_curve, with_l2};
    use super::*;

    const KIB: f64 = 1024.0;

    /// Costs of 1 µs at 4 kiB, 21 µs at 512 kiB, 500 µs at 4 MiB.
    fn drawn() -> PriceList {
        let points = [
            (4096.0 * KIB, [499e3, 500e3, 501e3]),
            (4.0 * KIB, [900.0, 1000.0, 1100.0]),
            (512.0 * KIB, [20e3, 21e3, 22e3]),
        ];
        with_curve(list(&[]), &points)
    }

    fn high(list: &PriceList, back: Return) -> u64 {
        let bound = Displacement::new(list).unwrap();
        let mut displaced = Nanos::ZERO;
        bound.lost_in_run(&mut displaced, back, None).as_ns()
    }

    /// High end of the larger less the low end of the smaller point: 22,000 − 900.
    #[test]
    fn the_bound_is_the_private_cache_full_of_data() {
        let list = with_l2(drawn(), "1048576");
        assert_eq!(high(&list, Return::Elsewhere), 21_100);
        let source = Displacement::new(&list).unwrap().source().to_owned();
        assert_eq!(
            source,
            "working-set-random-private of 524288 less 4096 bytes"
        );
    }

    #[test]
    fn without_the_size_of_the_cache_two_mebibytes_are_the_limit() {
        assert_eq!(high(&drawn(), Return::Elsewhere), 21_100);
        assert_eq!(
            high(&with_l2(drawn(), "unknown"), Return::Elsewhere),
            21_100
        );
        assert_eq!(
            high(&with_l2(drawn(), "8388608"), Return::Elsewhere),
            500_100
        );
    }

    /// ```text
    /// A leaves ──B for 3 µs── A: 3 µs at most
    /// A leaves ──B for 9 ms── A: a cache full
    /// ```
    #[test]
    fn nothing_is_displaced_faster_than_it_can_be_loaded() {
        let away = |ns| high(&drawn(), Return::SameCpu(Nanos::from_ns(ns)));
        assert_eq!(away(3_000), 3_000);
        assert_eq!(away(9_000_000), 21_100);
        assert_eq!(away(0), 0);
    }

    /// ```text
    /// ──9 ms away── run 3 µs ──1 µs away── run 1 ms
    /// ```
    /// The first run has no time to miss more than 3 of 21.1 µs; the second may miss the rest, and
    /// what was displaced meanwhile.
    #[test]
    fn a_run_loses_no_more_than_it_lasts_and_leaves_the_rest_to_the_next() {
        let bound = Displacement::new(&drawn()).unwrap();
        let mut displaced = Nanos::ZERO;
        let mut lose = |away, ran| {
            let away = Return::SameCpu(Nanos::from_ns(away));
            let lost = bound.lost_in_run(&mut displaced, away, Some(Nanos::from_ns(ran)));
            lost.as_ns()
        };
        assert_eq!(lose(9_000_000, 3_000), 3_000);
        assert_eq!(lose(1_000, 1_000_000), 19_100);
        assert_eq!(lose(500, 1_000_000), 500);
    }

    #[test]
    fn an_idle_cpu_brings_nothing_back() {
        let bound = Displacement::new(&drawn()).unwrap();
        let mut displaced = Nanos::from_ns(5_000);
        let lost = bound.lost_in_run(&mut displaced, Return::Undisturbed, None);
        assert_eq!((lost.as_ns(), displaced), (5_000, Nanos::ZERO));
    }

    #[test]
    fn a_task_that_finds_its_cpu_as_it_left_it_loses_nothing() {
        assert_eq!(high(&drawn(), Return::Undisturbed), 0);
    }

    #[test]
    fn a_list_without_the_curve_has_no_bound_and_says_so() {
        let why = Displacement::new(&list(&[])).unwrap_err();
        assert!(why.contains("a quick list"), "{why}");
        let one_point = with_curve(list(&[]), &[(4096.0, [1.0, 2.0, 3.0])]);
        let why = Displacement::new(&one_point).unwrap_err();
        assert!(why.contains("no two points"), "{why}");
        assert!(Displacement::new(&with_l2(drawn(), "1024")).is_err());
    }

    /// A noisy curve may fall; a loss below 0 counts as 0.
    #[test]
    fn a_falling_curve_bounds_at_zero() {
        let falling = [(4.0 * KIB, [900.0; 3]), (8.0 * KIB, [100.0; 3])];
        let list = with_curve(list(&[]), &falling);
        assert_eq!(high(&list, Return::Elsewhere), 0);
    }
}
