//! Logarithmic axes: from a value to its place, which values are marked, and what they are called.

use crate::text::grouped;

/// What sizes are counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes: 4 KiB, 64 MiB.
    Bytes,
    /// Things: 4, 512, 32,768.
    Count,
}

impl Unit {
    /// The unit of a quantity named as [`swtch_core::cost::Curve::size_is`] names it.
    pub fn of(size_is: &str) -> Self {
        if size_is.ends_with("_bytes") {
            Self::Bytes
        } else {
            Self::Count
        }
    }

    /// A size as a person writes it.
    pub fn text(self, size: f64) -> String {
        match self {
            Self::Bytes => with_prefix(size, 1024.0, &[" B", " KiB", " MiB", " GiB", " TiB"]),
            Self::Count => count_text(size),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "whole numbers of a length that people read"
)]
fn count_text(size: f64) -> String {
    if size.fract() == 0.0 && (1e3..1e9).contains(&size) {
        grouped(size as u64)
    } else {
        short(size)
    }
}

/// A time in nanoseconds in the unit that fits.
pub fn time_text(ns: f64) -> String {
    with_prefix(ns, 1000.0, &[" ns", " µs", " ms", " s"])
}

fn with_prefix(value: f64, step: f64, units: &[&str]) -> String {
    let mut value = value;
    let mut units = units.iter().peekable();
    loop {
        let unit = units.next().unwrap_or(&"");
        if value < step || units.peek().is_none() {
            return format!("{}{unit}", short(value));
        }
        value /= step;
    }
}

/// Three digits, no zeros at the end.
fn short(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// A span of values above 0 on a logarithmic axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    low: f64,
    high: f64,
}

impl Span {
    /// From 1 to 10, for want of anything to show.
    pub const ONE_TO_TEN: Self = Self {
        low: 1.0,
        high: 10.0,
    };

    /// The span that holds all `values`, with `margin` of its length added at both ends. Values that
    /// are not above 0 have no place on it; without any other there is no span.
    pub fn around(values: impl IntoIterator<Item = f64>, margin: f64) -> Option<Self> {
        let on_axis = values
            .into_iter()
            .filter(|value| *value > 0.0 && value.is_finite());
        let (low, high) = on_axis.fold((f64::INFINITY, 0.0_f64), |(low, high), value| {
            (low.min(value), high.max(value))
        });
        if high == 0.0 {
            return None;
        }
        // A single value gets an axis too: half of it to twice it.
        let ratio = (high / low).max(4.0);
        let middle = (low.ln() + high.ln()) / 2.0;
        let half = ratio.ln() * (0.5 + margin);
        Some(Self {
            low: (middle - half).exp(),
            high: (middle + half).exp(),
        })
    }

    /// The same, begun at `factor` of its low end: room below.
    #[must_use]
    pub fn with_room_below(self, factor: f64) -> Self {
        Self {
            low: self.low * factor,
            ..self
        }
    }

    /// Whether `value` has a place on it.
    pub fn contains(self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Where `value` lies between the low end, 0, and the high end, 1; held within them.
    pub fn place(self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        (value / self.low).ln() / (self.high / self.low).ln()
    }

    /// Values of time to mark: each power of ten, with 2 and 5 between where the span is short.
    pub fn time_ticks(self) -> Vec<f64> {
        let decades = (self.high / self.low).log10();
        let leading: &[f64] = if decades > 3.0 {
            &[1.0]
        } else {
            &[1.0, 2.0, 5.0]
        };
        (-3..12)
            .flat_map(|power| leading.iter().map(move |digit| digit * 10_f64.powi(power)))
            .filter(|value| self.contains(*value))
            .collect()
    }

    /// Sizes to mark, at most about `most`: those that were measured if they are few and apart,
    /// else every power of two, of four, of eight …
    pub fn size_ticks(self, measured: &[f64], most: usize) -> Vec<f64> {
        let room = 0.8 / f64::from(u32::try_from(most.max(1)).unwrap_or(u32::MAX));
        let places: Vec<f64> = measured.iter().map(|size| self.place(*size)).collect();
        let are_apart = places.windows(2).all(|pair| pair[1] - pair[0] >= room);
        if measured.len() <= most && are_apart {
            return measured.to_vec();
        }
        (1..16)
            .map(|step| self.powers_of_two(step))
            .find(|ticks| ticks.len() <= most)
            .unwrap_or_default()
    }

    fn powers_of_two(self, step: usize) -> Vec<f64> {
        (0..60)
            .step_by(step)
            .map(|power| 2_f64.powi(power))
            .filter(|value| self.contains(*value))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_are_written_as_a_person_writes_them() {
        let bytes = |size| Unit::Bytes.text(size);
        assert_eq!(bytes(4096.0), "4 KiB");
        assert_eq!(bytes(64.0 * 1024.0 * 1024.0), "64 MiB");
        assert_eq!(bytes(1.25 * 1024.0 * 1024.0), "1.25 MiB");
        assert_eq!(Unit::Count.text(12.0), "12");
        assert_eq!(Unit::Count.text(32_768.0), "32,768");
        assert_eq!(time_text(0.5), "0.5 ns");
        assert_eq!(time_text(20_000.0), "20 µs");
        assert_eq!(time_text(1e6), "1 ms");
    }

    #[test]
    fn the_unit_is_the_end_of_the_name() {
        assert_eq!(Unit::of("working_set_bytes"), Unit::Bytes);
        assert_eq!(Unit::of("branches"), Unit::Count);
    }

    /// Zero and negative numbers have no place on a logarithmic axis.
    #[test]
    fn a_span_is_made_of_what_is_above_zero() {
        let span = Span::around([-5.0, 0.0, 10.0, 1000.0], 0.0).unwrap();
        assert!((span.place(100.0) - 0.5).abs() < 1e-9);
        assert!(span.place(-1.0).abs() < 1e-9);
        assert_eq!(Span::around([-5.0, f64::NAN], 0.0), None);
    }

    #[test]
    fn a_single_value_still_has_an_axis() {
        let span = Span::around([100.0], 0.0).unwrap();
        assert!(span.contains(51.0) && span.contains(199.0) && !span.contains(201.0));
    }

    #[test]
    fn times_are_marked_in_decades_or_finer() {
        let long = Span::around([1.0, 1e6], 0.01).unwrap().time_ticks();
        assert_eq!(long.len(), 7);
        let short = Span::around([90.0, 1100.0], 0.0).unwrap().time_ticks();
        assert_eq!(short, [100.0, 200.0, 500.0, 1000.0]);
    }

    #[test]
    fn sizes_are_marked_where_they_were_measured_or_at_powers_of_two() {
        let ring = [2.0, 3.0, 4.0, 6.0, 8.0];
        let span = Span::around(ring, 0.02).unwrap();
        assert_eq!(span.size_ticks(&ring, 12), ring);
        let many: Vec<f64> = (12..=28).map(|power| 2_f64.powi(power)).collect();
        let span = Span::around(many.iter().copied(), 0.01).unwrap();
        let ticks = span.size_ticks(&many, 10);
        assert_eq!(ticks.len(), 9);
        assert!((ticks[0] - 4096.0).abs() < 1e-9);
    }
}
