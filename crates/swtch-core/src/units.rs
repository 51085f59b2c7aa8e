//! Quantities that must not mix: a moment on the trace clock and a length of time.

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign};

use serde::{Deserialize, Serialize};

/// A moment on the trace clock: ns since boot without suspend, `CLOCK_MONOTONIC`
/// (`bpf_ktime_get_ns`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The moment `ns` nanoseconds after boot.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// The moment, or `None` for 0, which the wire uses for "not known".
    pub const fn from_wire(ns: u64) -> Option<Self> {
        if ns == 0 { None } else { Some(Self(ns)) }
    }

    /// Nanoseconds since boot, without suspend.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// Time since `earlier`; `None` if the clock went backwards between CPUs.
    #[inline]
    pub fn since(self, earlier: Self) -> Option<Nanos> {
        self.0.checked_sub(earlier.0).map(Nanos)
    }

    /// The moment `span` earlier, not before boot.
    #[inline]
    pub fn before(self, span: Nanos) -> Self {
        Self(self.0.saturating_sub(span.0))
    }

    /// The moment `span` later.
    #[inline]
    pub fn after(self, span: Nanos) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

/// A length of time in nanoseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Nanos(u64);

impl Nanos {
    /// A length of zero nanoseconds.
    pub const ZERO: Self = Self(0);

    /// A length of `ns` nanoseconds.
    pub const fn from_ns(ns: u64) -> Self {
        Self(ns)
    }

    /// A length with a unit, as people write it: `0`, `800ns`, `50us`, `1.5ms`, `2s`, `5m` (minutes),
    /// `1h`; `None` for anything else.
    pub fn from_words(words: &str) -> Option<Self> {
        let digits = words.trim_end_matches(|c: char| c.is_alphabetic());
        let unit = match &words[digits.len()..] {
            "ns" => 1.0,
            "us" | "µs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" | "min" => 60e9,
            "h" => 3_600e9,
            "" if digits == "0" => 1.0,
            _ => return None,
        };
        let number: f64 = digits.parse().ok()?;
        let length = std::time::Duration::try_from_secs_f64(number * unit / 1e9).ok()?;
        u64::try_from(length.as_nanos()).ok().map(Self)
    }

    /// The nearest whole number of nanoseconds. Values below 0 and NaN give 0.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast keeps to the range of u64"
    )]
    pub fn from_rounded(ns: f64) -> Self {
        Self(ns.max(0.0).round() as u64)
    }

    /// The length as a number of nanoseconds.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// `self - other`, or zero when `other` is longer.
    #[inline]
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Nanos {
    type Output = Self;
    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Nanos {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Nanos {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::ZERO, Add::add)
    }
}

/// Shows the length in the unit a person would choose: `870 ns`, `12.3 µs`, `4.00 ms`, `1.25 s`.
impl fmt::Display for Nanos {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (value, unit) = match self.0 {
            0..1_000 => return f.pad(&format!("{} ns", self.0)),
            1_000..1_000_000 => (self.0 as f64 / 1e3, "µs"),
            1_000_000..1_000_000_000 => (self.0 as f64 / 1e6, "ms"),
            _ => (self.0 as f64 / 1e9, "s"),
        };
        let digits = if value < 10.0 {
            2
        } else if value < 100.0 {
            1
        } else {
            0
        };
        f.pad(&format!("{value:.digits$} {unit}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_steps_back_gives_no_length() {
        let (early, late) = (Timestamp::from_ns(10), Timestamp::from_ns(25));
        assert_eq!(late.since(early), Some(Nanos::from_ns(15)));
        assert_eq!(early.since(late), None);
    }

    #[test]
    fn a_rounded_length_is_never_negative() {
        let rounded = |ns| Nanos::from_rounded(ns).as_ns();
        assert_eq!([rounded(1.5), rounded(-3.0), rounded(f64::NAN)], [2, 0, 0]);
        assert_eq!(rounded(1e300), u64::MAX);
    }

    #[test]
    fn lengths_show_three_digits_and_a_unit() {
        let shown = |ns| Nanos::from_ns(ns).to_string();
        assert_eq!(shown(870), "870 ns");
        assert_eq!(shown(1_234), "1.23 µs");
        assert_eq!(shown(12_345_678), "12.3 ms");
        assert_eq!(shown(123_456_789_012), "123 s");
    }
}
