//! Draws a chart: lines over two axes.
//!
//! ```text
//!   time        L1d      L2            L3
//!    1 µs ┤──────┼────────┼─────────────┼──○── ○ label of a line, at its end
//!  100 ns ┤──────┼────────┼─────────────┼──□── □ another
//!         └──────┴────────┴─────────────┴────
//!          4 KiB    64 KiB     1 MiB   size
//! ```
//!
//! A measured value that is not above 0 has no place on a logarithmic axis: it is drawn hollow at
//! the lower edge. A bar that would flatten all the rest ends at the edge, without a cap.

use anyhow::Result;
use plotters::prelude::DrawingBackend;

use super::content::{Axis, Chart, Dot, Mark, Measure, Scale, Style};
use super::layout::{MARGIN, SMALL, TEXT, WIDTH};
use super::palette::{FADED, GRID, INK, MARK};
use super::pen::{FigurePoint, Pen, TextAnchor, width_of};
use super::scale::AxisSpan;

mod lines;

/// Height of a chart with its axes, in points.
pub const HEIGHT: f64 = 476.0;

/// Distance from the end of the axis to the text of a label, in points; the label's sample is
/// between.
const LABEL_INDENT: f64 = 38.0;
/// Widest label in points; a longer one is cut.
const LABEL_WIDTH: f64 = 270.0;
/// Height below the lower edge for ticks and the axis' name, in points.
const BELOW: f64 = 48.0;
/// Height for the name above the vertical axis, in points.
const NAME_HEIGHT: f64 = 24.0;
/// Height of a row of names of marks, in points.
const MARK_HEIGHT: f64 = 17.0;

/// Draws a chart between two heights.
///
/// # Errors
/// The backend cannot draw.
pub fn draw<B: DrawingBackend>(chart: &Chart, between: (f64, f64), pen: &Pen<'_, B>) -> Result<()> {
    let Some(frame) = ChartFrame::of(chart, between)? else {
        let middle = (WIDTH / 2.0, f64::midpoint(between.0, between.1));
        return pen.text("no value to show", middle, TextAnchor::Middle, TEXT, INK);
    };
    frame.draw_upright_axis(pen)?;
    frame.draw_level_axis(pen)?;
    frame.draw_marks(pen)?;
    lines::draw(&frame, pen)
}

impl Chart {
    /// Notes on points and bars that are not drawn at their values.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let placed = || self.dots().filter(|dot| self.has_place(dot));
        if placed().any(|dot| !self.is_above(&dot)) {
            notes.push("hollow points at the lower edge: 0 or less".to_owned());
        }
        let is_cut_low = |dot: Dot| match dot.interval {
            Some((low, high)) => low <= 0.0 && high > 0.0,
            None => false,
        };
        if self.y.scale == Scale::Logarithmic && placed().any(is_cut_low) {
            notes.push(
                "bars down to the lower edge: the interval holds 0 or ends near it".to_owned(),
            );
        }
        let heights = self.heights();
        let is_cut = |dot: Dot| match dot.interval {
            Some((low, high)) => !heights.contains(low) || !heights.contains(high),
            None => false,
        };
        if self.y.scale == Scale::Linear && placed().any(is_cut) {
            notes.push("bars without a cap go further".to_owned());
        }
        match self.dots().filter(|dot| !self.has_place(dot)).count() {
            0 => {}
            1 => notes.push("1 point without a place on the axes is not shown".to_owned()),
            count => notes.push(format!(
                "{count} points without a place on the axes are not shown"
            )),
        }
        notes
    }

    fn dots(&self) -> impl Iterator<Item = Dot> + Clone {
        self.lines
            .iter()
            .flat_map(|line| line.points.iter().copied())
    }

    /// Returns true if a point can be drawn, if only at the lower edge.
    fn has_place(&self, dot: &Dot) -> bool {
        self.x.scale.has_place(dot.x) && dot.y.is_finite()
    }

    /// Returns true if a point's value has a place on the vertical axis.
    fn is_above(&self, dot: &Dot) -> bool {
        self.y.scale.has_place(dot.y)
    }

    /// The span of the vertical axis: all points, and their intervals as far as they do not flatten
    /// the rest.
    fn heights(&self) -> AxisSpan {
        let placed = self.dots().filter(|dot| self.has_place(dot));
        let above: Vec<f64> = placed
            .clone()
            .filter(|dot| self.is_above(dot))
            .map(|dot| dot.y)
            .collect();
        let lowest = above.iter().copied().fold(f64::INFINITY, f64::min);
        let highest = above.iter().copied().fold(0.0, f64::max);
        let scale = self.y.scale;
        let is_shown = |value: &f64| match scale {
            Scale::Logarithmic => above.is_empty() || *value >= lowest / 10.0,
            Scale::Linear => value.abs() <= 1.5 * lowest.abs().max(highest),
        };
        let ends = placed.clone().flat_map(|dot| {
            let (low, high) = dot.interval.unwrap_or((dot.y, dot.y));
            [low, high]
        });
        let values = above.iter().copied().chain(ends.filter(is_shown));
        let margin = if scale == Scale::Linear { 0.05 } else { 0.03 };
        let span =
            AxisSpan::around(scale, values, margin).unwrap_or_else(|| AxisSpan::of_nothing(scale));
        if self.y.measure == Measure::Percent && highest <= 100.0 && highest > 80.0 {
            return span.at_most(100.0);
        }
        // If some points are not above 0, there is room below, so that the lower edge is not taken
        // for a value.
        let has_hollow = placed.clone().any(|dot| !self.is_above(&dot));
        if has_hollow {
            span.with_room_below(0.6)
        } else {
            span
        }
    }
}

/// The rectangle and the axes, which give values their places.
#[derive(Debug)]
struct ChartFrame<'a> {
    chart: &'a Chart,
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    x: AxisSpan,
    y: AxisSpan,
    /// The marks on the axis, each with the row of its name, counted from below.
    marks: Vec<(&'a Mark, usize)>,
}

impl<'a> ChartFrame<'a> {
    /// The frame that holds all of a chart; `None` when no point has a place.
    fn of(chart: &'a Chart, between: (f64, f64)) -> Result<Option<Self>> {
        let placed = chart.dots().filter(|dot| chart.has_place(dot));
        let Some(x) = AxisSpan::around(chart.x.scale, placed.map(|dot| dot.x), 0.025) else {
            return Ok(None);
        };
        let mut label_width = 0.0_f64;
        for line in &chart.lines {
            label_width = label_width.max(width_of(&line.label, TEXT)?);
        }
        let mut frame = Self {
            chart,
            left: MARGIN,
            right: WIDTH - MARGIN - label_width.min(LABEL_WIDTH) - LABEL_INDENT,
            top: between.0 + NAME_HEIGHT,
            bottom: between.1 - BELOW,
            x,
            y: chart.heights(),
            marks: Vec::new(),
        };
        for (_, text) in frame.upright_ticks() {
            frame.left = frame.left.max(MARGIN + width_of(&text, SMALL)? + 10.0);
        }
        frame.stack_marks()?;
        Ok(Some(frame))
    }

    fn x(&self, value: f64) -> f64 {
        self.left + self.x.place(value) * (self.right - self.left)
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom - self.y.place(value) * (self.bottom - self.top)
    }

    /// Returns where a point is drawn.
    fn place(&self, dot: &Dot) -> FigurePoint {
        let y = if self.chart.is_above(dot) {
            self.y(dot.y)
        } else {
            self.bottom
        };
        (self.x(dot.x), y)
    }

    /// Values marked on the vertical axis and their names.
    fn upright_ticks(&self) -> Vec<(f64, String)> {
        let Axis { measure, scale, .. } = self.chart.y;
        let room = self.bottom - self.top;
        // Decades are few and may be close; a linear scale reads better with fewer ticks.
        let gap = match scale {
            Scale::Linear => 42.0,
            Scale::Logarithmic => 30.0,
        };
        let fit = |ticks: &[f64]| {
            let places = ticks.iter().map(|tick| self.y.place(*tick) * room);
            are_apart(&places.collect::<Vec<_>>(), gap)
        };
        let ticks = self.y.ticks(measure, &[], fit);
        let texts = measure.tick_texts(scale, &ticks);
        ticks.into_iter().zip(texts).collect()
    }

    fn draw_upright_axis<B: DrawingBackend>(&self, pen: &Pen<'_, B>) -> Result<()> {
        for (value, text) in self.upright_ticks() {
            let y = self.y(value);
            pen.line(&[(self.left, y), (self.right, y)], GRID, 1.0)?;
            pen.text(&text, (self.left - 8.0, y), TextAnchor::Right, SMALL, FADED)?;
        }
        let at = (MARGIN, self.name_y());
        pen.text(&self.chart.y.name, at, TextAnchor::Left, TEXT, INK)
    }

    /// Height of the vertical axis' name, above all names of marks.
    fn name_y(&self) -> f64 {
        let rows = self.marks.iter().map(|(_, row)| row + 1).max();
        let rows = rows.unwrap_or(0);
        self.top - NAME_HEIGHT + 8.0 - MARK_HEIGHT * as_f64(rows)
    }

    fn draw_level_axis<B: DrawingBackend>(&self, pen: &Pen<'_, B>) -> Result<()> {
        let corners = [(self.left, self.bottom), (self.right, self.bottom)];
        if self.y.contains_strictly(0.0) {
            let y = self.y(0.0);
            pen.line(&[(self.left, y), (self.right, y)], FADED, 1.0)?;
        }
        pen.line(&corners, FADED, 1.0)?;
        for (value, text) in level_ticks(
            &self.chart.x,
            self.x,
            self.right - self.left,
            &self.measured(),
        )? {
            let x = self.x(value);
            pen.line(&[(x, self.bottom), (x, self.bottom + 5.0)], FADED, 1.0)?;
            let at = (x, self.bottom + 16.0);
            pen.text(&text, at, TextAnchor::Middle, SMALL, FADED)?;
        }
        let at = (f64::midpoint(self.left, self.right), self.bottom + 37.0);
        pen.text(&self.chart.x.name, at, TextAnchor::Middle, TEXT, INK)
    }

    /// The horizontal values at which something was measured, ascending, each once.
    fn measured(&self) -> Vec<f64> {
        let lines = self.chart.lines.iter();
        let measured = lines.filter(|line| line.style == Style::Measured);
        let dots = measured.flat_map(|line| &line.points);
        let placed = dots.filter(|dot| self.chart.has_place(dot));
        let mut places: Vec<f64> = placed.map(|dot| dot.x).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        places
    }

    /// Gives each mark the lowest row in which its name has room, and makes room above for the
    /// rows.
    fn stack_marks(&mut self) -> Result<()> {
        let mut taken: Vec<f64> = Vec::new();
        let chart = self.chart;
        for mark in chart.marks.iter().filter(|mark| self.x.contains(mark.at)) {
            let x = self.x(mark.at);
            let half = width_of(&mark.label, SMALL)? / 2.0 + 6.0;
            let row = taken.iter().position(|taken_to| *taken_to <= x - half);
            let row = row.unwrap_or(taken.len());
            if row == taken.len() {
                taken.push(x + half);
            } else {
                taken[row] = x + half;
            }
            self.marks.push((mark, row));
        }
        self.top += MARK_HEIGHT * as_f64(taken.len());
        Ok(())
    }

    /// Draws lines at sizes that mean something, such as caches.
    fn draw_marks<B: DrawingBackend>(&self, pen: &Pen<'_, B>) -> Result<()> {
        for (mark, row) in &self.marks {
            let x = self.x(mark.at);
            let y = self.top - MARK_HEIGHT * (as_f64(*row) + 0.6);
            pen.line(&[(x, y + 9.0), (x, self.bottom)], MARK, 1.0)?;
            pen.text(&mark.label, (x, y), TextAnchor::Middle, SMALL, FADED)?;
        }
        Ok(())
    }
}

/// Values marked on a horizontal axis that is `length` long, and their names, which do not touch.
pub fn level_ticks(
    axis: &Axis,
    span: AxisSpan,
    length: f64,
    measured: &[f64],
) -> Result<Vec<(f64, String)>> {
    // Space between two names; a linear scale reads better with fewer ticks.
    let blank = match axis.scale {
        Scale::Linear => 26.0,
        Scale::Logarithmic => 14.0,
    };
    let width = |text: &String| width_of(text, SMALL);
    let fit = |ticks: &[f64]| {
        let texts = axis.measure.tick_texts(axis.scale, ticks);
        let widths: Result<Vec<f64>> = texts.iter().map(width).collect();
        let Ok(widths) = widths else { return false };
        let places: Vec<f64> = ticks
            .iter()
            .map(|tick| span.place(*tick) * length)
            .collect();
        let pairs = places.windows(2).zip(widths.windows(2));
        pairs.into_iter().all(|(places, widths)| {
            places[1] - places[0] >= f64::midpoint(widths[0], widths[1]) + blank
        })
    };
    let ticks = span.ticks(axis.measure, measured, fit);
    let texts = axis.measure.tick_texts(axis.scale, &ticks);
    Ok(ticks.into_iter().zip(texts).collect())
}

fn are_apart(places: &[f64], gap: f64) -> bool {
    places.windows(2).all(|pair| pair[1] - pair[0] >= gap)
}

#[expect(clippy::cast_precision_loss, reason = "a few rows")]
const fn as_f64(count: usize) -> f64 {
    count as f64
}
