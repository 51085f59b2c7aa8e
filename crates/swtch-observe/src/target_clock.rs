//! Converts the ticks of a target to `CLOCK_MONOTONIC`.
//!
//! The page holds two moments in both clocks, the anchors, and the line through them is the clock.
//! Lengths are converted by its slope. Moments are measured from the later anchor, so that the
//! error of moments near the present is small.
//!
//! The anchors of a young process lie milliseconds apart, and those of an idle one lie far in the
//! past. An observer on the same machine reads the same counter. It therefore uses a moment of its
//! own as the later anchor, if that moment lies on the line.

use std::sync::atomic::{Ordering, fence};

use crate::clock::{ClockReading, moment, rate};
use crate::layout::Header;

/// A line through the anchors may be wrong by one part in this many: the anchors are read to within
/// microseconds, and the first two lie milliseconds apart.
const TOLERANCE: u64 = 1_000;

/// Error that is always tolerated, whatever the distance.
const SLACK_NS: u64 = 100_000;

/// Attempts to read the anchors, before they are taken as always changing.
const TRIES: usize = 1_000;

/// A target's clock, given by its anchors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    later_ticks: u64,
    later_ns: u64,
    span_ticks: u64,
    span_ns: u64,
}

impl Clock {
    /// The clock of a page; `None` while its anchors are being set, or when they do not make a
    /// line.
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

    /// The clock through two moments, each in ticks and ns; `None` when they are the same, or when
    /// one clock went backwards.
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

    /// Moves the later end of the line to the present, if our own counter lies on the line, which
    /// shows that it is the target's counter.
    pub(super) fn sharpened(self) -> Self {
        // Decides which counter is read here, as the target did for itself.
        rate();
        self.through_moment(moment())
    }

    fn through_moment(self, now: ClockReading) -> Self {
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

    /// Converts a moment to `CLOCK_MONOTONIC`, ns; clamped to the range of `u64`.
    pub fn monotonic_ns(&self, ticks: u64) -> u64 {
        match ticks.checked_sub(self.later_ticks) {
            Some(after) => self.later_ns.saturating_add(self.length_ns(after)),
            None => self
                .later_ns
                .saturating_sub(self.length_ns(self.later_ticks - ticks)),
        }
    }

    /// The tick at a moment of `CLOCK_MONOTONIC`; clamped to the range of `u64`.
    pub fn ticks(&self, monotonic_ns: u64) -> u64 {
        match monotonic_ns.checked_sub(self.later_ns) {
            Some(after) => self.later_ticks.saturating_add(self.length_ticks(after)),
            None => self
                .later_ticks
                .saturating_sub(self.length_ticks(self.later_ns - monotonic_ns)),
        }
    }

    /// Converts a length from ticks to ns.
    pub fn length_ns(&self, ticks: u64) -> u64 {
        scaled(ticks, self.span_ns, self.span_ticks)
    }

    /// Converts a length from ns to ticks.
    pub fn length_ticks(&self, ns: u64) -> u64 {
        scaled(ns, self.span_ticks, self.span_ns)
    }
}

/// Computes `value * by / over`; at most the largest `u64`.
fn scaled(value: u64, by: u64, over: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(by) / u128::from(over);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// Reads the clock `CLOCK_MONOTONIC`, in nanoseconds.
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

    /// Both directions, on both sides of the anchors, at two ticks a nanosecond.
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

    /// The anchors lie 2 ms apart and were read 100 ns wrong: a second later the line is 50 µs off.
    #[test]
    fn a_moment_of_our_own_makes_a_young_clock_exact() {
        let young = Clock::through((0, 0), (4_000_000, 2_000_100)).unwrap();
        let now = ClockReading {
            ticks: 2_000_000_000,
            monotonic_ns: 1_000_000_000,
        };
        assert_eq!(young.monotonic_ns(now.ticks), 1_000_050_000);
        let sharp = young.through_moment(now);
        assert_eq!(sharp.monotonic_ns(now.ticks), now.monotonic_ns);
        assert_eq!(sharp.monotonic_ns(1_000_000_000), 500_000_000);
    }

    /// The target may be in another time namespace, or read another counter.
    #[test]
    fn a_counter_that_is_not_the_target_s_is_not_used() {
        let clock = Clock::through((0, 0), (4_000_000, 2_000_000)).unwrap();
        let now = ClockReading {
            ticks: 77,
            monotonic_ns: 1_000_000_000,
        };
        assert_eq!(clock.through_moment(now), clock);
    }

    /// The anchors are chosen by the process that writes the page.
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
