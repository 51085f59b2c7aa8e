//! Draws values beside names, over one axis.
//!
//! ```text
//!   ● threads  ■ processes
//!   futex      ├●┤              410 ns
//!                  ├■┤          560 ns
//!   pipe           ├─●─┤        620 ns
//!              └────┴────┴────
//! ```
//!
//! A name that is the same as the one above is written once.

use anyhow::Result;
use plotters::prelude::DrawingBackend;

use super::chart::level_ticks;
use super::content::{Dots, NamedDot, Scale};
use super::layout::{MARGIN, SMALL, TEXT, WIDTH};
use super::legend::{Legend, LegendSample};
use super::palette::{FADED, GRID, INK, LineAppearance, appearance_of};
use super::pen::{Pen, TextAnchor, cut_to, width_of};
use super::scale::AxisSpan;

/// Distance from row to row, in points.
const PITCH: f64 = 24.0;
/// Extra space before a row with another name than the one above, in points.
const NAME_GAP: f64 = 4.0;
/// Height below the rows for ticks and the axis' name, in points.
const BELOW: f64 = 52.0;
/// Widest name in points; a longer one is cut.
const NAME_WIDTH: f64 = 330.0;

/// Height of the drawing, in points.
///
/// # Errors
/// The font cannot be measured.
pub fn height(dots: &Dots) -> Result<f64> {
    let legend = legend(dots)?.height();
    Ok(legend + places(&dots.rows).1 + BELOW)
}

/// Draws dots between two heights.
///
/// # Errors
/// The backend cannot draw.
pub fn draw<B: DrawingBackend>(dots: &Dots, between: (f64, f64), pen: &Pen<'_, B>) -> Result<()> {
    let legend = legend(dots)?;
    legend.draw(between.0, pen)?;
    let Some(frame) = DotsFrame::of(dots, between.0 + legend.height())? else {
        let middle = (WIDTH / 2.0, f64::midpoint(between.0, between.1));
        return pen.text("no value to show", middle, TextAnchor::Middle, TEXT, INK);
    };
    frame.draw_axis(pen)?;
    let (heights, _) = places(&dots.rows);
    for (index, (row, height)) in dots.rows.iter().zip(heights).enumerate() {
        let y = frame.top + height;
        if index == 0 || dots.rows[index - 1].label != row.label {
            let name = cut_to(&row.label, SMALL, NAME_WIDTH)?;
            pen.text(&name, (frame.left - 10.0, y), TextAnchor::Right, SMALL, INK)?;
        }
        frame.draw_row(row, y, appearance_of(series_of(dots, row)), pen)?;
    }
    Ok(())
}

/// The names of the series, each once.
fn series(dots: &Dots) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for name in dots.rows.iter().filter_map(|row| row.series.as_deref()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

fn series_of(dots: &Dots, row: &NamedDot) -> usize {
    let names = series(dots);
    let own = names
        .iter()
        .position(|name| Some(*name) == row.series.as_deref());
    own.unwrap_or(0)
}

fn legend(dots: &Dots) -> Result<Legend> {
    let points = (0..).map(LegendSample::Point);
    Legend::of(series(dots).into_iter().zip(points))
}

/// The distance of each row from the top, and the height of all rows.
fn places(rows: &[NamedDot]) -> (Vec<f64>, f64) {
    let mut y = 0.0;
    let mut places = Vec::new();
    let mut above: Option<&NamedDot> = None;
    for row in rows {
        if above.is_some_and(|above| above.label != row.label) {
            y += NAME_GAP;
        }
        places.push(y + PITCH / 2.0);
        y += PITCH;
        above = Some(row);
    }
    (places, y)
}

impl Dots {
    /// Notes on values and bars that are not drawn at their place.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let finite = self.rows.iter().filter(|row| row.value.is_finite());
        let is_hollow = |row: &NamedDot| !self.axis.scale.has_place(row.value);
        if finite.clone().any(is_hollow) {
            notes.push("hollow points at the left edge: 0 or less".to_owned());
        }
        let span = self.span();
        let is_cut = |row: &NamedDot| match (row.interval, span) {
            (Some((low, high)), Some(span)) => !span.contains(low) || !span.contains(high),
            _ => false,
        };
        if finite.clone().any(is_cut) {
            notes.push("bars without a cap go further".to_owned());
        }
        match self.rows.len() - finite.count() {
            0 => {}
            1 => notes.push("1 value is no number and is not shown".to_owned()),
            count => notes.push(format!("{count} values are no numbers and are not shown")),
        }
        notes
    }

    /// The span of the axis: all values, and their intervals unless they flatten the rest.
    fn span(&self) -> Option<AxisSpan> {
        let scale = self.axis.scale;
        let values = self.rows.iter().map(|row| row.value);
        let placed = values.clone().filter(|value| scale.has_place(*value));
        let lowest = placed.clone().fold(f64::INFINITY, f64::min);
        let highest = placed.clone().fold(0.0, f64::max);
        let is_shown = |value: &f64| match scale {
            Scale::Logarithmic => (lowest / 10.0..=highest * 10.0).contains(value),
            Scale::Linear => value.abs() <= 3.0 * lowest.abs().max(highest.abs()),
        };
        let ends = self.rows.iter().filter_map(|row| row.interval);
        let ends = ends.flat_map(|(low, high)| [low, high]).filter(is_shown);
        AxisSpan::around(scale, placed.chain(ends), 0.04)
    }
}

/// The rectangle and the axis, which give values and rows their places.
#[derive(Debug)]
struct DotsFrame<'a> {
    dots: &'a Dots,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    span: AxisSpan,
}

impl<'a> DotsFrame<'a> {
    /// The frame that holds all values; `None` when no value has a place.
    fn of(dots: &'a Dots, top: f64) -> Result<Option<Self>> {
        let Some(span) = dots.span() else {
            return Ok(None);
        };
        let (mut name_width, mut value_width) = (0.0_f64, 0.0_f64);
        for row in &dots.rows {
            name_width = name_width.max(width_of(&row.label, SMALL)?);
            value_width = value_width.max(width_of(&value_text(dots, row), SMALL)?);
        }
        Ok(Some(Self {
            dots,
            left: MARGIN + name_width.min(NAME_WIDTH) + 12.0,
            right: WIDTH - MARGIN - value_width - 16.0,
            top,
            bottom: top + places(&dots.rows).1,
            span,
        }))
    }

    fn x(&self, value: f64) -> f64 {
        self.left + self.span.place(value) * (self.right - self.left)
    }

    fn draw_axis<B: DrawingBackend>(&self, pen: &Pen<'_, B>) -> Result<()> {
        let ticks = level_ticks(&self.dots.axis, self.span, self.right - self.left, &[])?;
        let y = self.bottom + 2.0;
        for (value, text) in ticks {
            let x = self.x(value);
            pen.line(&[(x, self.top), (x, self.bottom)], GRID, 1.0)?;
            pen.line(&[(x, y), (x, y + 5.0)], FADED, 1.0)?;
            pen.text(&text, (x, y + 15.0), TextAnchor::Middle, SMALL, FADED)?;
        }
        pen.line(&[(self.left, y), (self.right, y)], FADED, 1.0)?;
        if self.span.contains_strictly(0.0) {
            let x = self.x(0.0);
            pen.line(&[(x, self.top), (x, self.bottom)], FADED, 1.0)?;
        }
        let at = (f64::midpoint(self.left, self.right), y + 36.0);
        pen.text(&self.dots.axis.name, at, TextAnchor::Middle, TEXT, INK)
    }

    fn draw_row<B: DrawingBackend>(
        &self,
        row: &NamedDot,
        y: f64,
        look: LineAppearance,
        pen: &Pen<'_, B>,
    ) -> Result<()> {
        const HALF_CAP: f64 = 4.0;
        pen.line(&[(self.left, y), (self.right, y)], GRID, 0.6)?;
        if !row.value.is_finite() {
            return Ok(());
        }
        if let Some((low, high)) = row.interval {
            pen.line(&[(self.x(low), y), (self.x(high), y)], look.colour, 1.4)?;
            for end in [low, high] {
                if self.span.contains(end) {
                    let x = self.x(end);
                    let cap = [(x, y - HALF_CAP), (x, y + HALF_CAP)];
                    pen.line(&cap, look.colour, 1.4)?;
                }
            }
        }
        let is_placed = self.dots.axis.scale.has_place(row.value);
        let x = if is_placed {
            self.x(row.value)
        } else {
            self.left
        };
        pen.point((x, y), look, is_placed)?;
        let at = (WIDTH - MARGIN, y);
        pen.text(
            &value_text(self.dots, row),
            at,
            TextAnchor::Right,
            SMALL,
            INK,
        )
    }
}

fn value_text(dots: &Dots, row: &NamedDot) -> String {
    dots.axis.measure.text(row.value)
}

#[cfg(test)]
mod tests {
    use super::super::content::{Axis, Measure};
    use super::*;

    fn dots(rows: &[(&str, Option<&str>, f64)]) -> Dots {
        let row = |(label, series, value): &(&str, Option<&str>, f64)| NamedDot {
            label: (*label).to_owned(),
            series: series.map(str::to_owned),
            value: *value,
            interval: Some((value - 1.0, value * 100.0)),
        };
        Dots {
            axis: Axis {
                name: "time".to_owned(),
                measure: Measure::Time,
                scale: Scale::Logarithmic,
            },
            rows: rows.iter().map(row).collect(),
        }
    }

    #[test]
    fn rows_of_one_series_look_alike() {
        let dots = dots(&[
            ("a", Some("threads"), 1.0),
            ("a", Some("processes"), 2.0),
            ("b", Some("threads"), 3.0),
        ]);
        let looks: Vec<usize> = dots.rows.iter().map(|row| series_of(&dots, row)).collect();
        assert_eq!(looks, [0, 1, 0]);
    }

    /// An interval of a hundred times its value would leave the rest of the rows one point wide.
    #[test]
    fn a_wide_interval_does_not_flatten_the_rest() {
        let span = dots(&[("a", None, 10.0), ("b", None, 20.0)])
            .span()
            .unwrap();
        assert!(!span.contains(2000.0) && span.contains(20.0));
        let notes = dots(&[("a", None, 10.0), ("b", None, 20.0)]).notes();
        assert_eq!(notes, ["bars without a cap go further"]);
    }

    #[test]
    fn values_without_a_place_are_told_of() {
        let notes = dots(&[("a", None, -1.0), ("b", None, f64::NAN)]).notes();
        assert_eq!(
            notes,
            [
                "hollow points at the left edge: 0 or less",
                "1 value is no number and is not shown"
            ]
        );
    }
}
