//! Axes: the place of a value, which values are marked, and how they are written.
//!
//! Marks are numbers that a person would choose: 1, 2 or 5 times a power of ten, powers of two for
//! sizes, whole numbers for counts. Of several such sets, the finest is taken whose names have
//! room.

use swtch_output::text::grouped;

use super::content::{Measure, Scale};

/// A span of values on an axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AxisSpan {
    scale: Scale,
    low: f64,
    high: f64,
}

impl AxisSpan {
    /// The span that holds all `values`, with `margin` of its length added at both ends; a linear
    /// scale starts at 0 unless something is below. Values without a place on the scale are left
    /// out; `None` if no other is there.
    pub fn around(
        scale: Scale,
        values: impl IntoIterator<Item = f64>,
        margin: f64,
    ) -> Option<Self> {
        let on_axis = values.into_iter().filter(|value| scale.has_place(*value));
        let ends = on_axis.fold(None, |ends: Option<(f64, f64)>, value| {
            let (low, high) = ends.unwrap_or((value, value));
            Some((low.min(value), high.max(value)))
        });
        let (low, high) = ends?;
        Some(match scale {
            Scale::Linear => Self::evenly(low.min(0.0), high.max(0.0), margin),
            Scale::Logarithmic => Self::by_logarithm(low, high, margin),
        })
    }

    /// A linear span from 0 to `high`, exactly.
    pub const fn up_to(high: f64) -> Self {
        Self {
            scale: Scale::Linear,
            low: 0.0,
            high,
        }
    }

    /// A span for an axis without values.
    pub const fn of_nothing(scale: Scale) -> Self {
        Self {
            scale,
            low: 1.0,
            high: 10.0,
        }
    }

    fn evenly(low: f64, high: f64, margin: f64) -> Self {
        let length = if high > low { high - low } else { 1.0 };
        Self {
            scale: Scale::Linear,
            low: if low < 0.0 {
                low - length * margin
            } else {
                0.0
            },
            high: if high > 0.0 || low == high {
                low + length * (1.0 + margin)
            } else {
                0.0
            },
        }
    }

    fn by_logarithm(low: f64, high: f64, margin: f64) -> Self {
        // A single value gets an axis too: half of it to twice it.
        let ratio = (high / low).max(4.0);
        let middle = (low.ln() + high.ln()) / 2.0;
        let half = ratio.ln() * (0.5 + margin);
        Self {
            scale: Scale::Logarithmic,
            low: (middle - half).exp(),
            high: (middle + half).exp(),
        }
    }

    /// The span with its low end times `factor` (below 1), for room on a logarithmic axis.
    #[must_use]
    pub fn with_room_below(self, factor: f64) -> Self {
        Self {
            low: self.low * factor,
            ..self
        }
    }

    /// The same span, but not beyond `high`.
    #[must_use]
    pub fn at_most(self, high: f64) -> Self {
        Self {
            high: self.high.min(high),
            ..self
        }
    }

    /// Upper end of the span, as a value.
    pub const fn high(self) -> f64 {
        self.high
    }

    /// Returns true if `value` lies on it, but not at one of its ends.
    pub fn contains_strictly(self, value: f64) -> bool {
        self.low < value && value < self.high
    }

    /// Returns true if `value` lies on it.
    pub fn contains(self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// The place of `value`, from 0 at the low end to 1 at the high end; values outside are
    /// clamped.
    pub fn place(self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        match self.scale {
            Scale::Linear => (value - self.low) / (self.high - self.low),
            Scale::Logarithmic => (value / self.low).ln() / (self.high / self.low).ln(),
        }
    }

    /// Values to mark: the finest of the sets that suit the measure for which `fit` says that there
    /// is room. On a logarithmic axis of sizes or counts, `measured` is tried first.
    pub fn ticks(
        self,
        measure: Measure,
        measured: &[f64],
        fit: impl Fn(&[f64]) -> bool,
    ) -> Vec<f64> {
        let sets: Box<dyn Iterator<Item = Vec<f64>>> = match (self.scale, measure) {
            (Scale::Linear, Measure::Size) => Box::new(self.steps_of_two()),
            (Scale::Linear, _) => Box::new(self.steps_of_ten(measure)),
            (Scale::Logarithmic, Measure::Size) => Box::new(
                std::iter::once(measured.to_vec())
                    .chain((1..16).map(move |step| self.powers_of_two(step))),
            ),
            (Scale::Logarithmic, Measure::Count) if !measured.is_empty() => Box::new(
                std::iter::once(measured.to_vec())
                    .chain((1..16).map(move |step| self.powers_of_two(step))),
            ),
            (Scale::Logarithmic, _) => Box::new(self.decades()),
        };
        let mut sets = sets.filter(|set| !set.is_empty());
        sets.find(|set| fit(set)).unwrap_or_default()
    }

    /// Multiples of 1, 2 and 5 times a power of ten; for counts, whole numbers only.
    fn steps_of_ten(self, measure: Measure) -> impl Iterator<Item = Vec<f64>> {
        let least = match measure {
            Measure::Count => 0,
            _ => -12,
        };
        let steps =
            (least..19).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power)));
        self.multiples(steps)
    }

    fn steps_of_two(self) -> impl Iterator<Item = Vec<f64>> {
        self.multiples((0..60).map(|power| 2_f64.powi(power)))
    }

    /// For each step all its multiples on the axis; steps with too many are left out.
    fn multiples(self, steps: impl Iterator<Item = f64>) -> impl Iterator<Item = Vec<f64>> {
        const CROWD: f64 = 100.0;
        let wide_enough = steps.filter(move |step| (self.high - self.low) / step < CROWD);
        wide_enough.map(move |step| {
            let first = (self.low / step).ceil();
            let all = (0_u32..).map(|count| (first + f64::from(count)) * step);
            all.take_while(|value| *value <= self.high * (1.0 + 1e-9))
                .collect()
        })
    }

    /// 1, 2 and 5 times each power of ten; each power of ten; each second one …
    fn decades(self) -> impl Iterator<Item = Vec<f64>> {
        let of = move |digits: &'static [f64], every: usize| -> Vec<f64> {
            (-12..19)
                .step_by(every)
                .flat_map(|power| digits.iter().map(move |digit| digit * 10_f64.powi(power)))
                .filter(|value| self.contains(*value))
                .collect()
        };
        let is_short = (self.high / self.low).log10() <= 3.0;
        let fine = is_short.then(|| of(&[1.0, 2.0, 5.0], 1));
        fine.into_iter()
            .chain((1..12).map(move |every| of(&[1.0], every)))
    }

    fn powers_of_two(self, step: usize) -> Vec<f64> {
        (0..60)
            .step_by(step)
            .map(|power| 2_f64.powi(power))
            .filter(|value| self.contains(*value))
            .collect()
    }
}

impl Scale {
    /// Returns true if a value has a place on an axis of this scale.
    pub fn has_place(self, value: f64) -> bool {
        match self {
            Self::Linear => value.is_finite(),
            Self::Logarithmic => value.is_finite() && value > 0.0,
        }
    }
}

impl Measure {
    /// A value as a person writes it, in the unit that fits it.
    pub fn text(self, value: f64) -> String {
        match self {
            Self::Count => count_text(value),
            Self::Time => with_prefix(value, 1000.0, &TIMES),
            Self::Size => with_prefix(value, 1024.0, &SIZES),
            Self::Percent => format!("{} %", short(value)),
            Self::Plain => short(value),
        }
    }

    /// The names of ticks. On a linear scale, times all have the unit of the largest, so that they
    /// can be compared.
    pub fn tick_texts(self, scale: Scale, ticks: &[f64]) -> Vec<String> {
        let largest = ticks
            .iter()
            .fold(0.0_f64, |most, tick| most.max(tick.abs()));
        match (scale, self) {
            (Scale::Linear, Self::Time) => in_one_unit(ticks, largest, 1000.0, &TIMES),
            _ => ticks.iter().map(|tick| self.text(*tick)).collect(),
        }
    }
}

const TIMES: [&str; 4] = [" ns", " µs", " ms", " s"];
const SIZES: [&str; 5] = [" B", " KiB", " MiB", " GiB", " TiB"];

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "whole numbers of a length that people read"
)]
fn count_text(count: f64) -> String {
    if count.fract() == 0.0 && (1e3..1e15).contains(&count) {
        grouped(count as u64)
    } else {
        short(count)
    }
}

fn with_prefix(value: f64, step: f64, units: &[&str]) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let (divisor, unit) = unit_of(value, step, units);
    format!("{}{unit}", short(value / divisor))
}

fn in_one_unit(values: &[f64], largest: f64, step: f64, units: &[&str]) -> Vec<String> {
    let (divisor, unit) = unit_of(largest, step, units);
    let text = |value: &f64| match *value {
        0.0 => "0".to_owned(),
        value => format!("{}{unit}", short(value / divisor)),
    };
    values.iter().map(text).collect()
}

/// The largest unit in which the value is at least 1, and the divisor for it.
fn unit_of<'a>(value: f64, step: f64, units: &[&'a str]) -> (f64, &'a str) {
    let mut divisor = 1.0;
    let mut units = units.iter().peekable();
    loop {
        let unit = units.next().copied().unwrap_or_default();
        // 999.9999… is 1 of the next unit: three digits are shown.
        if value.abs() / divisor < step * (1.0 - 5e-4) || units.peek().is_none() {
            return (divisor, unit);
        }
        divisor *= step;
    }
}

/// Three digits, no zeros at the end.
fn short(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.0995 || size == 0.0 => 2,
        size if size >= 0.00995 => 3,
        size if size >= 1e-6 => 6,
        _ => 9,
    };
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logarithmic(values: &[f64], margin: f64) -> AxisSpan {
        AxisSpan::around(Scale::Logarithmic, values.iter().copied(), margin).unwrap()
    }

    fn even(values: &[f64]) -> AxisSpan {
        AxisSpan::around(Scale::Linear, values.iter().copied(), 0.0).unwrap()
    }

    const fn at_most(most: usize) -> impl Fn(&[f64]) -> bool {
        move |ticks| ticks.len() <= most
    }

    #[test]
    fn sizes_and_times_are_written_as_a_person_writes_them() {
        let bytes = |size| Measure::Size.text(size);
        assert_eq!(bytes(4096.0), "4 KiB");
        assert_eq!(bytes(64.0 * 1024.0 * 1024.0), "64 MiB");
        assert_eq!(bytes(1.25 * 1024.0 * 1024.0), "1.25 MiB");
        assert_eq!(Measure::Count.text(12.0), "12");
        assert_eq!(Measure::Count.text(32_768.0), "32,768");
        let time = |ns| Measure::Time.text(ns);
        assert_eq!(time(0.5), "0.5 ns");
        assert_eq!(time(20_000.0), "20 µs");
        assert_eq!(time(1e6), "1 ms");
        assert_eq!(time(-2_500.0), "-2.5 µs");
        assert_eq!(Measure::Plain.text(0.0025), "0.0025");
    }

    /// Zero and negative numbers have no place on a logarithmic axis.
    #[test]
    fn a_span_is_made_of_what_has_a_place() {
        let span = logarithmic(&[-5.0, 0.0, 10.0, 1000.0], 0.0);
        assert!((span.place(100.0) - 0.5).abs() < 1e-9);
        assert!(span.place(-1.0).abs() < 1e-9);
        let nothing = AxisSpan::around(Scale::Logarithmic, [-5.0, f64::NAN], 0.0);
        assert_eq!(nothing, None);
    }

    #[test]
    fn an_even_axis_starts_at_nothing() {
        assert!((even(&[50.0, 100.0]).place(25.0) - 0.25).abs() < 1e-9);
        assert!((even(&[-100.0, 100.0]).place(0.0) - 0.5).abs() < 1e-9);
        assert!(even(&[0.0]).contains(1.0), "one value still has an axis");
        assert!(even(&[-5.0, -1.0]).contains(0.0));
    }

    #[test]
    fn a_single_value_still_has_an_axis() {
        let span = logarithmic(&[100.0], 0.0);
        assert!(span.contains(51.0) && span.contains(199.0) && !span.contains(201.0));
    }

    #[test]
    fn times_are_marked_in_decades_or_finer() {
        let long = logarithmic(&[1.0, 1e6], 0.01);
        assert_eq!(long.ticks(Measure::Time, &[], at_most(12)).len(), 7);
        let short = logarithmic(&[90.0, 1100.0], 0.0);
        assert_eq!(
            short.ticks(Measure::Time, &[], at_most(12)),
            [100.0, 200.0, 500.0, 1000.0]
        );
    }

    #[test]
    fn sizes_are_marked_where_they_were_measured_or_at_powers_of_two() {
        let ring = [2.0, 3.0, 4.0, 6.0, 8.0];
        let span = logarithmic(&ring, 0.02);
        assert_eq!(span.ticks(Measure::Count, &ring, at_most(12)), ring);
        let many: Vec<f64> = (12..=28).map(|power| 2_f64.powi(power)).collect();
        let ticks = logarithmic(&many, 0.01).ticks(Measure::Size, &many, at_most(10));
        assert_eq!(ticks.len(), 9);
        assert!((ticks[0] - 4096.0).abs() < 1e-9);
    }

    #[test]
    fn counts_are_marked_at_whole_numbers_and_the_rest_at_round_ones() {
        let few = even(&[4.0]).ticks(Measure::Count, &[], at_most(11));
        assert_eq!(few, [0.0, 1.0, 2.0, 3.0, 4.0]);
        let many = even(&[1030.0]).ticks(Measure::Count, &[], at_most(10));
        assert_eq!(many, [0.0, 200.0, 400.0, 600.0, 800.0, 1000.0]);
        let time = even(&[2.37e9]);
        let ticks = time.ticks(Measure::Time, &[], at_most(6));
        let texts = Measure::Time.tick_texts(Scale::Linear, &ticks);
        assert_eq!(texts, ["0", "0.5 s", "1 s", "1.5 s", "2 s"]);
    }
}
