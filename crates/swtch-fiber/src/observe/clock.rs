//! From the ticks of a target to `CLOCK_MONOTONIC`.
//!
//! The page holds two moments in both clocks. The line through them is the clock: lengths by its
//! slope, moments from the later of the two, so that what is near now is off by little.
//!
//! The anchors of a young process lie milliseconds apart, and those of an idle one in the past. An
//! observer on the same machine reads the same counter, so it takes a moment of its own for the
//! later anchor, when that one lies where the line says.

use std::sync::atomic::{Ordering, fence};

use crate::clock::{Moment, moment, rate};
use crate::page::layout::Header;

/// By so much may a line through anchors be wrong: they are read to within microseconds, and the
/// first two lie milliseconds apart.
const TOLERANCE: u64 = 1_000;

/// Besides, by so much anyway.
const SLACK_NS: u64 = 100_000;

/// Looks at the anchors before they count as always in motion.
const TRIES: usize = 1_000;

/// A target's clock, as its anchors say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    later_ticks: u64,
    later_ns: u64,
    span_ticks: u64,
    span_ns: u64,
}

impl Clock {
    /// The clock of a page; `None` while its anchors are being set, or when they are none.
    pub(super) fn read(header: &Header) -> Option<Self> {
        for _ in 0..TRIES {
            let before = header.anchor_sequence.load(Ordering::Acquire);
            let [first, second] = &header.anchors;
            let moments = [first, second].map(|anchor| {
                let ticks = anchor.ticks.load(Ordering::Relaxed);
                (ticks, anchor.monotonic_ns.load(Ordering::Relaxed))
            });
            fence(Ordering::Acquire);
            let after = header.anchor_sequence.load(Ordering::Relaxed);
            if before == after && before.is_multiple_of(2) {
                return Self::through(moments[0], moments[1]);
            }
            std::hint::spin_loop();
        }
        None
    }

    /// The clock through two moments, each ticks and ns; `None` when they are one, or when one
    /// clock went backwards.
    pub fn through(one: (u64, u64), other: (u64, u64)) -> Option<Self> {
        let (earlier, later) = if one <= other {
            (one, other)
        } else {
            (other, one)
        };
        let span_ticks = later.0.checked_sub(earlier.0).filter(|span| *span > 0)?;
        let span_ns = later.1.checked_sub(earlier.1).filter(|span| *span > 0)?;
        Some(Self {
            later_ticks: later.0,
            later_ns: later.1,
            span_ticks,
            span_ns,
        })
    }

    /// The line with its later end moved to now, when our own counter is on it: then it is the
    /// target's, too.
    pub(super) fn sharpened(self) -> Self {
        // Decides which counter is read here, as it did in the target.
        rate();
        self.through_moment(moment())
    }

    fn through_moment(self, now: Moment) -> Self {
        let distance = now.monotonic_ns.saturating_sub(self.later_ns);
        let off = self.monotonic_ns(now.ticks).abs_diff(now.monotonic_ns);
        if off > distance / TOLERANCE + SLACK_NS {
            return self;
        }
        let first = (
            self.later_ticks - self.span_ticks,
            self.later_ns - self.span_ns,
        );
        Self::through(first, (now.ticks, now.monotonic_ns)).unwrap_or(self)
    }

    /// The moment in `CLOCK_MONOTONIC`, ns; at the ends of the range where it lies outside.
    pub fn monotonic_ns(&self, ticks: u64) -> u64 {
        match ticks.checked_sub(self.later_ticks) {
            Some(after) => self.later_ns.saturating_add(self.length_ns(after)),
            None => self
                .later_ns
                .saturating_sub(self.length_ns(self.later_ticks - ticks)),
        }
    }

    /// The tick at a moment of `CLOCK_MONOTONIC`.
    pub fn ticks(&self, monotonic_ns: u64) -> u64 {
        match monotonic_ns.checked_sub(self.later_ns) {
            Some(after) => self.later_ticks.saturating_add(self.length_ticks(after)),
            None => self
                .later_ticks
                .saturating_sub(self.length_ticks(self.later_ns - monotonic_ns)),
        }
    }

    /// A length in ns.
    pub fn length_ns(&self, ticks: u64) -> u64 {
        scaled(ticks, self.span_ns, self.span_ticks)
    }

    /// A length in ticks.
    pub fn length_ticks(&self, ns: u64) -> u64 {
        scaled(ns, self.span_ticks, self.span_ns)
    }
}

/// `value * by / over`, saturated.
fn scaled(value: u64, by: u64, over: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(by) / u128::from(over);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// Now, in `CLOCK_MONOTONIC`.
pub(super) fn now_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: fills one timespec; this clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two ticks a nanosecond: both directions, on both sides of the anchors.
    #[test]
    fn moments_lie_on_the_line_through_the_anchors() {
        let clock = Clock::through((1_000, 10_000), (3_000, 11_000)).unwrap();
        for (ticks, ns) in [
            (3_000, 11_000),
            (3_200, 11_100),
            (1_000, 10_000),
            (800, 9_900),
        ] {
            assert_eq!(clock.monotonic_ns(ticks), ns);
            assert_eq!(clock.ticks(ns), ticks);
        }
        assert_eq!((clock.length_ns(6), clock.length_ticks(3)), (3, 6));
    }

    /// A second after two anchors 2 ms apart that were read 100 ns wrong, the line is 50 µs off.
    #[test]
    fn a_moment_of_our_own_makes_a_young_clock_exact() {
        let young = Clock::through((0, 0), (4_000_000, 2_000_100)).unwrap();
        let now = Moment {
            ticks: 2_000_000_000,
            monotonic_ns: 1_000_000_000,
        };
        assert_eq!(young.monotonic_ns(now.ticks), 1_000_050_000);
        let sharp = young.through_moment(now);
        assert_eq!(sharp.monotonic_ns(now.ticks), now.monotonic_ns);
        assert_eq!(sharp.monotonic_ns(1_000_000_000), 500_000_000);
    }

    /// A target in another time namespace, or one that reads another counter.
    #[test]
    fn a_counter_that_is_not_the_target_s_is_not_used() {
        let clock = Clock::through((0, 0), (4_000_000, 2_000_000)).unwrap();
        let now = Moment {
            ticks: 77,
            monotonic_ns: 1_000_000_000,
        };
        assert_eq!(clock.through_moment(now), clock);
    }

    /// Whoever writes the page chooses the anchors.
    #[test]
    fn anchors_that_lie_give_wrong_numbers_and_no_panic() {
        assert_eq!(Clock::through((5, 5), (5, 5)), None);
        assert_eq!(Clock::through((5, 9), (6, 8)), None);
        let clock = Clock::through((0, 0), (1, u64::MAX)).unwrap();
        assert_eq!(clock.monotonic_ns(u64::MAX), u64::MAX);
        assert_eq!(clock.ticks(0), 0);
        let clock = Clock::through((0, 0), (u64::MAX, 1)).unwrap();
        assert_eq!(clock.ticks(u64::MAX), u64::MAX);
    }
}
