//! Divides off-CPU time among the places where threads were seen to wait.
//!
//! How long each wait was is known. Where it was is known of the waits that a look met: of each that was longer than
//! the time between two looks, and of a part of the shorter ones, the larger the longer they are.
//!
//! ```text
//! waits of a thread   ├───── A ─────┤ ├B┤ ├C┤ ├B┤ ├─── A ───┤ ├C┤
//! looks                   ▲        ▲         ▲        ▲        ▲
//!                     seen: its own length    seen: stands for the time between two looks
//! ```
//!
//! So the time of a group of waits that have much in common (thread, reason) is divided exactly: what was seen and long
//! counts with its length, and the rest is shared out as the short waits stand that were seen. A short wait of length L
//! is seen with chance L/T where looks are T apart, and counts with T: on average that is L, whatever the lengths are
//! (the estimator of Horvitz and Thompson, JASA 47, 1952). Time of groups of which nothing short was seen has no place.
//!
//! Intervals hold if looks and program do not keep step; looks come at random distances.

use std::collections::BTreeMap;

use crate::stats::wilson;
use crate::units::Nanos;

/// A wait that a look met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenWait<Place> {
    /// Where it was.
    pub place: Place,
    /// The time that it stands for: its own length, or that between two looks if that is longer.
    pub stands_for: Nanos,
}

/// Sums of waits by group and place. Each wait has `N` lengths: its off-CPU time, and parts of that.
#[derive(Clone, Debug)]
pub struct PlaceSums<Group, Place, const N: usize> {
    groups: BTreeMap<Group, GroupSums<Place, N>>,
}

#[derive(Clone, Debug)]
struct GroupSums<Place, const N: usize> {
    /// Of waits that are not certain: those that were not seen, and short ones that were.
    rest: [Nanos; N],
    unseen: u64,
    places: BTreeMap<Place, SeenSums<N>>,
}

/// What was seen at a place.
#[derive(Clone, Copy, Debug)]
struct SeenSums<const N: usize> {
    waits: u64,
    /// Waits that were longer than the time between two looks.
    certain: [Nanos; N],
    /// Short waits: the time that they stand for, and its squares.
    weight: u64,
    squares: f64,
}

/// The time at a place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlaceTime<const N: usize> {
    /// Number of waits that were seen there.
    pub seen: u64,
    /// The times of all waits there, as far as can be told.
    pub times: [Nanos; N],
    /// How much shorter the first may be, in ns (95 %).
    pub less: f64,
    /// How much longer it may be, in ns.
    pub more: f64,
}

/// Off-CPU time by place. All times together are that of all waits, to the nanosecond.
#[derive(Clone, Debug, PartialEq)]
pub struct DividedTime<Place, const N: usize> {
    /// Time that has a place.
    pub places: BTreeMap<Place, PlaceTime<N>>,
    /// Time of which nothing was seen.
    pub without: [Nanos; N],
    /// Number of waits that were not seen, of all groups.
    pub waits_without: u64,
}

impl<const N: usize> Default for PlaceTime<N> {
    fn default() -> Self {
        Self {
            seen: 0,
            times: [Nanos::ZERO; N],
            less: 0.0,
            more: 0.0,
        }
    }
}

impl<const N: usize> Default for SeenSums<N> {
    fn default() -> Self {
        Self {
            waits: 0,
            certain: [Nanos::ZERO; N],
            weight: 0,
            squares: 0.0,
        }
    }
}

impl<Group, Place, const N: usize> Default for PlaceSums<Group, Place, N> {
    fn default() -> Self {
        Self {
            groups: BTreeMap::new(),
        }
    }
}

impl<Group: Ord, Place: Ord + Copy, const N: usize> PlaceSums<Group, Place, N> {
    /// Adds a wait of these lengths, and where it was seen.
    pub fn add(&mut self, group: Group, lengths: [Nanos; N], seen: Option<SeenWait<Place>>) {
        let group = self.groups.entry(group).or_insert_with(|| GroupSums {
            rest: [Nanos::ZERO; N],
            unseen: 0,
            places: BTreeMap::new(),
        });
        let Some(seen) = seen else {
            add(&mut group.rest, lengths);
            group.unseen += 1;
            return;
        };
        let place = group.places.entry(seen.place).or_default();
        place.waits += 1;
        if seen.stands_for > lengths[0] {
            add(&mut group.rest, lengths);
            let weight = seen.stands_for.as_ns();
            place.weight = place.weight.saturating_add(weight);
            place.squares += (weight as f64).powi(2);
        } else {
            add(&mut place.certain, lengths);
        }
    }

    /// Divides the time of each group among its places.
    pub fn divide(&self) -> DividedTime<Place, N> {
        let mut divided = DividedTime::nothing();
        for group in self.groups.values() {
            group.divide_into(&mut divided);
        }
        divided.finished()
    }

    /// The time of each group, divided among its places.
    pub fn by_group(&self) -> impl Iterator<Item = (&Group, DividedTime<Place, N>)> {
        self.groups.iter().map(|(group, sums)| {
            let mut divided = DividedTime::nothing();
            sums.divide_into(&mut divided);
            (group, divided.finished())
        })
    }
}

impl<Place, const N: usize> DividedTime<Place, N> {
    /// Each place with the number of waits that were seen there and their times, and at last, without a place, what
    /// nobody saw.
    pub fn into_parts(self) -> impl Iterator<Item = (Option<Place>, u64, [Nanos; N])> {
        let placed = self.places.into_iter();
        let placed = placed.map(|(place, time)| (Some(place), time.seen, time.times));
        placed.chain([(None, self.waits_without, self.without)])
    }

    const fn nothing() -> Self {
        Self {
            places: BTreeMap::new(),
            without: [Nanos::ZERO; N],
            waits_without: 0,
        }
    }

    /// After all groups are added.
    fn finished(mut self) -> Self {
        for place in self.places.values_mut() {
            // Groups err independently of each other.
            (place.less, place.more) = (place.less.sqrt(), place.more.sqrt());
        }
        self
    }
}

impl<Place: Ord + Copy, const N: usize> GroupSums<Place, N> {
    /// Adds the group's time by place. Until all groups are added, `less` and `more` are squares.
    fn divide_into(&self, divided: &mut DividedTime<Place, N>) {
        let weights = self.places.values().map(|seen| seen.weight);
        let weight = weights.fold(0, u64::saturating_add);
        let squares: f64 = self.places.values().map(|seen| seen.squares).sum();
        divided.waits_without += self.unseen;
        if weight == 0 {
            add(&mut divided.without, self.rest);
        }
        let mut before: u64 = 0;
        for (place, seen) in &self.places {
            let time = divided.places.entry(*place).or_default();
            time.seen += seen.waits;
            add(&mut time.times, seen.certain);
            if weight == 0 {
                continue;
            }
            // Shares are rounded so that they are the whole together.
            let shares = self.rest.map(|rest| {
                let up_to = |weight_so_far| share_of(rest, weight_so_far, weight);
                Nanos::from_ns(up_to(before.saturating_add(seen.weight)) - up_to(before))
            });
            before = before.saturating_add(seen.weight);
            add(&mut time.times, shares);
            let whole = weight as f64;
            let equal_waits = whole.powi(2) / squares;
            let part = seen.weight as f64 / whole;
            let rest = self.rest[0].as_ns() as f64;
            let interval = wilson(part, equal_waits);
            time.less += ((part - interval.low).max(0.0) * rest).powi(2);
            time.more += ((interval.high - part).max(0.0) * rest).powi(2);
        }
    }
}

fn add<const N: usize>(sums: &mut [Nanos; N], more: [Nanos; N]) {
    for (sum, more) in sums.iter_mut().zip(more) {
        *sum += more;
    }
}

/// This part of a time, rounded down.
fn share_of(time: Nanos, part: u64, whole: u64) -> u64 {
    let share = u128::from(time.as_ns()) * u128::from(part) / u128::from(whole);
    u64::try_from(share).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(time: u64) -> Nanos {
        Nanos::from_ns(time * 1_000_000)
    }

    fn seen(place: char, stands_for: Nanos) -> Option<SeenWait<char>> {
        Some(SeenWait { place, stands_for })
    }

    #[test]
    fn a_long_wait_counts_with_its_length() {
        let mut sums = PlaceSums::default();
        sums.add(1, [ms(50)], seen('a', ms(50)));
        sums.add(1, [ms(30)], seen('b', ms(30)));
        let divided = sums.divide();
        let time = |place| divided.places[&place];
        assert_eq!((time('a').times, time('a').more), ([ms(50)], 0.0));
        assert_eq!(
            (time('b').times, divided.without),
            ([ms(30)], [Nanos::ZERO])
        );
    }

    #[test]
    fn short_waits_are_shared_out_as_they_were_seen() {
        let mut sums = PlaceSums::default();
        for _ in 0..97 {
            sums.add(1, [ms(1)], None);
        }
        sums.add(1, [ms(1)], seen('a', ms(20)));
        sums.add(1, [ms(1)], seen('a', ms(20)));
        sums.add(1, [ms(1)], seen('b', ms(20)));
        let divided = sums.divide();
        let times = ['a', 'b'].map(|place| divided.places[&place].times[0].as_ns());
        assert_eq!(times, [66_666_666, 33_333_334]);
    }

    #[test]
    fn what_nobody_saw_has_no_place() {
        let mut sums = PlaceSums::default();
        sums.add(1, [ms(1)], None);
        sums.add(2, [ms(30)], seen('a', ms(30)));
        sums.add(2, [ms(2)], None);
        let divided = sums.divide();
        assert_eq!(
            (divided.without, divided.places[&'a'].times),
            ([ms(3)], [ms(30)])
        );
    }

    /// A thread that waits in three places, for lengths from microseconds to beyond the time between two looks, and
    /// looks at random distances: who takes every stack knows the truth.
    fn drawn(random: &mut fastrand::Rng) -> (PlaceSums<u8, char, 1>, BTreeMap<char, Nanos>) {
        let (mut sums, mut truth) = (PlaceSums::default(), BTreeMap::new());
        let mut now = 0;
        let (mut look_before, mut look) = (0, random.u64(10_000..30_000));
        while now < 20_000_000 {
            let (place, length) = match random.u8(0..10) {
                0..=5 => ('a', random.u64(5..400)),
                6..=8 => ('b', random.u64(100..3_000)),
                _ => ('c', random.u64(1_000..60_000)),
            };
            let end = now + length;
            let mut seen = None;
            while look < end {
                if look >= now && seen.is_none() {
                    let stands_for = Nanos::from_ns(length.max(look - look_before));
                    seen = Some(SeenWait { place, stands_for });
                }
                look_before = look;
                look += random.u64(10_000..30_000);
            }
            sums.add(0, [Nanos::from_ns(length)], seen);
            *truth.entry(place).or_insert(Nanos::ZERO) += Nanos::from_ns(length);
            // It runs for a while.
            now = end + random.u64(10..200);
        }
        (sums, truth)
    }

    #[test]
    fn intervals_hold_what_is_true_and_times_add_up() {
        let mut random = fastrand::Rng::with_seed(36);
        let (mut held, mut asked) = (0, 0);
        let mut error = 0.0;
        for _ in 0..200 {
            let (sums, truth) = drawn(&mut random);
            let divided = sums.divide();
            let found: Nanos = divided.places.values().map(|place| place.times[0]).sum();
            let whole: Nanos = truth.values().copied().sum();
            assert_eq!(found + divided.without[0], whole);
            for (place, truth) in truth {
                let found = divided.places.get(&place).copied().unwrap_or_default();
                let (truth, time) = (truth.as_ns() as f64, found.times[0].as_ns() as f64);
                asked += 1;
                held += u32::from(time - found.less <= truth && truth <= time + found.more);
                error += (time - truth) / truth;
            }
        }
        assert!(held * 100 >= asked * 90, "{held} of {asked}");
        // No place is favoured: the errors are of both signs.
        assert!(f64::abs(error / f64::from(asked)) < 0.01, "{error}");
    }
}
