//! The layout of a figure.
//!
//! ```text
//!   title                                          what is shown
//!   subtitle                                       where and when it was measured
//!   what a point is
//!   time        L1d      L2            L3
//!    1 µs ┤──────┼────────┼─────────────┼──○── ○ label of a line, at its end
//!  100 ns ┤──────┼────────┼─────────────┼──□── □ another
//!         └──────┴────────┴─────────────┴────
//!          4 KiB    64 KiB     1 MiB   size
//!   notes                                          what could not be drawn in its place
//! ```

use anyhow::Result;
use plotters::prelude::DrawingBackend;
use swtch_core::cost::{Curve, Point};

use super::palette::{FADED, GRID, INK, Look, MARK, look};
use super::pen::{Anchor, Pen, Place};
use super::scale::{Span, Unit, time_text};
use super::{Figure, spread};

/// Width of a figure in points.
pub const WIDTH: u32 = 960;
/// Height of a figure in points.
pub const HEIGHT: u32 = 600;

const TITLE: f64 = 23.0;
const TEXT: f64 = 15.0;
const SMALL: f64 = 13.5;
/// Margin of everything.
const MARGIN: f64 = 24.0;
/// From the end of the axis to the text of a label; its point lies between.
const LABEL_INDENT: f64 = 34.0;
/// Widest label; a longer one is cut.
const LABEL_WIDTH: f64 = 290.0;
/// From label to label.
const LABEL_GAP: f64 = 19.0;
/// Most marked sizes on the axis.
const MOST_TICKS: usize = 11;

/// Draws a figure.
///
/// # Errors
/// When the backend cannot draw.
pub fn draw<B: DrawingBackend>(figure: &Figure, pen: &Pen<'_, B>) -> Result<()> {
    pen.clear()?;
    write_head(figure, pen)?;
    let Some(frame) = Frame::of(figure, pen)? else {
        let middle = (f64::from(WIDTH) / 2.0, f64::from(HEIGHT) / 2.0);
        return pen.text("no size above 0 to show", middle, Anchor::Middle, TEXT, INK);
    };
    frame.draw_axes(figure, pen)?;
    frame.draw_marks(figure, pen)?;
    for (index, curve) in figure.curves().iter().enumerate() {
        frame.draw_curve(curve, look(index), pen)?;
    }
    frame.write_labels(figure, pen)?;
    write_notes(figure, pen)
}

fn write_head<B: DrawingBackend>(figure: &Figure, pen: &Pen<'_, B>) -> Result<()> {
    let width = f64::from(WIDTH) - 2.0 * MARGIN;
    let lines = [
        (figure.title(), TITLE, INK, 32.0),
        (figure.subtitle().to_owned(), TEXT, FADED, 58.0),
        (figure.explanation(), SMALL, FADED, 79.0),
    ];
    for (text, size, colour, height) in lines {
        let text = pen.cut_to(&text, size, width)?;
        pen.text(&text, (MARGIN, height), Anchor::Left, size, colour)?;
    }
    Ok(())
}

fn write_notes<B: DrawingBackend>(figure: &Figure, pen: &Pen<'_, B>) -> Result<()> {
    let height = f64::from(HEIGHT) - 17.0;
    let notes = figure.notes().join("; ");
    pen.text(&notes, (MARGIN, height), Anchor::Left, SMALL, FADED)
}

/// Where values lie.
#[derive(Debug)]
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    sizes: Span,
    times: Span,
}

impl Frame {
    /// The frame that holds all of a figure; `None` when no size has a place on a logarithmic axis.
    fn of<B: DrawingBackend>(figure: &Figure, pen: &Pen<'_, B>) -> Result<Option<Self>> {
        let mut label_width = 0.0_f64;
        for curve in figure.curves() {
            label_width = label_width.max(pen.width_of(&curve.label, TEXT)?);
        }
        let points = || figure.curves().iter().flat_map(|curve| &curve.points);
        let Some(sizes) = Span::around(points().map(|point| point.size), 0.025) else {
            return Ok(None);
        };
        let times = times_of(points());
        let label_width = label_width.min(LABEL_WIDTH);
        Ok(Some(Self {
            left: 84.0,
            right: f64::from(WIDTH) - MARGIN - label_width - LABEL_INDENT,
            top: if figure.marks().is_empty() {
                112.0
            } else {
                136.0
            },
            bottom: f64::from(HEIGHT) - 84.0,
            sizes,
            times,
        }))
    }

    fn x(&self, size: f64) -> f64 {
        self.left + self.sizes.place(size) * (self.right - self.left)
    }

    fn y(&self, ns: f64) -> f64 {
        self.bottom - self.times.place(ns) * (self.bottom - self.top)
    }

    fn place(&self, point: &Point) -> Place {
        (self.x(point.size), self.y(point.net_ns.point))
    }

    fn draw_axes<B: DrawingBackend>(&self, figure: &Figure, pen: &Pen<'_, B>) -> Result<()> {
        for ns in self.times.time_ticks() {
            let y = self.y(ns);
            pen.line(&[(self.left, y), (self.right, y)], GRID, 1.0)?;
            let at = (self.left - 8.0, y);
            pen.text(&time_text(ns), at, Anchor::Right, SMALL, FADED)?;
        }
        let corner = (self.left, self.bottom);
        pen.line(&[corner, (self.right, self.bottom)], FADED, 1.0)?;
        let unit = Unit::of(figure.size_is());
        for size in self.sizes.size_ticks(&figure.measured_sizes(), MOST_TICKS) {
            let x = self.x(size);
            let ends = [(x, self.bottom), (x, self.bottom + 5.0)];
            pen.line(&ends, FADED, 1.0)?;
            let at = (x, self.bottom + 16.0);
            pen.text(&unit.text(size), at, Anchor::Middle, SMALL, FADED)?;
        }
        let middle = (self.left + self.right) / 2.0;
        let name = figure.size_words();
        pen.text(
            &name,
            (middle, self.bottom + 38.0),
            Anchor::Middle,
            TEXT,
            INK,
        )
    }

    /// Lines at sizes that mean something. A name that would lie on the one before goes a line lower.
    fn draw_marks<B: DrawingBackend>(&self, figure: &Figure, pen: &Pen<'_, B>) -> Result<()> {
        let mut taken_to = f64::NEG_INFINITY;
        let mut lower = 0.0;
        for mark in figure.marks() {
            if !self.sizes.contains(mark.size) {
                continue;
            }
            let x = self.x(mark.size);
            let half = pen.width_of(&mark.label, SMALL)? / 2.0 + 5.0;
            lower = if x - half < taken_to && lower == 0.0 {
                15.0
            } else {
                0.0
            };
            taken_to = x + half;
            let height = self.top - 24.0 + lower;
            pen.line(&[(x, height + 9.0), (x, self.bottom)], MARK, 1.0)?;
            pen.text(&mark.label, (x, height), Anchor::Middle, SMALL, FADED)?;
        }
        Ok(())
    }

    /// Intervals first, then the line, then the points on top. The line breaks where a point has no
    /// place on it.
    fn draw_curve<B: DrawingBackend>(
        &self,
        curve: &Curve,
        look: Look,
        pen: &Pen<'_, B>,
    ) -> Result<()> {
        let shown = || curve.points.iter().filter(|point| has_a_place(point));
        for point in shown() {
            self.draw_interval(point, look, pen)?;
        }
        for pair in curve.points.windows(2) {
            if pair
                .iter()
                .all(|point| has_a_place(point) && is_above_zero(point))
            {
                let ends = [self.place(&pair[0]), self.place(&pair[1])];
                pen.line(&ends, look.colour, 1.8)?;
            }
        }
        for point in shown() {
            if is_above_zero(point) {
                pen.point(self.place(point), look, true)?;
            } else {
                pen.point((self.x(point.size), self.bottom), look, false)?;
            }
        }
        Ok(())
    }

    fn draw_interval<B: DrawingBackend>(
        &self,
        point: &Point,
        look: Look,
        pen: &Pen<'_, B>,
    ) -> Result<()> {
        const HALF_CAP: f64 = 4.0;
        let (low, high) = (point.net_ns.low, point.net_ns.high);
        if high <= 0.0 {
            return Ok(());
        }
        let x = self.x(point.size);
        let (lower, upper) = (self.y(low), self.y(high));
        pen.line(&[(x, lower), (x, upper)], look.colour, 1.2)?;
        pen.line(
            &[(x - HALF_CAP, upper), (x + HALF_CAP, upper)],
            look.colour,
            1.2,
        )?;
        if self.times.contains(low) {
            pen.line(
                &[(x - HALF_CAP, lower), (x + HALF_CAP, lower)],
                look.colour,
                1.2,
            )?;
        }
        Ok(())
    }

    /// Names each line at its end; where they would lie on each other they part, and a thin line leads
    /// back.
    fn write_labels<B: DrawingBackend>(&self, figure: &Figure, pen: &Pen<'_, B>) -> Result<()> {
        let ends: Vec<Place> = figure
            .curves()
            .iter()
            .map(|curve| self.end(curve))
            .collect();
        let wanted: Vec<f64> = ends.iter().map(|(_, y)| *y).collect();
        let heights = spread::apart(&wanted, LABEL_GAP, (self.top, self.bottom));
        let curves = figure.curves().iter().zip(ends).zip(heights);
        for (index, ((curve, end), height)) in curves.enumerate() {
            let look = look(index);
            let at = (self.right + LABEL_INDENT - 12.0, height);
            pen.line(&[(end.0 + 6.0, end.1), (at.0 - 6.0, at.1)], GRID, 1.0)?;
            pen.point(at, look, true)?;
            let label = pen.cut_to(&curve.label, TEXT, LABEL_WIDTH)?;
            let at = (self.right + LABEL_INDENT, height);
            pen.text(&label, at, Anchor::Left, TEXT, INK)?;
        }
        Ok(())
    }

    /// The right end of a curve.
    fn end(&self, curve: &Curve) -> Place {
        let last = curve.points.iter().rev().find(|point| has_a_place(point));
        last.map_or((self.right, self.bottom), |point| {
            if is_above_zero(point) {
                self.place(point)
            } else {
                (self.x(point.size), self.bottom)
            }
        })
    }
}

/// The span of times: all points, and their intervals as far as they do not flatten the rest. With
/// points that are not above 0 there is room below, so that the lower edge is not taken for a value.
fn times_of<'a>(points: impl Iterator<Item = &'a Point> + Clone) -> Span {
    let all_above = points.clone().all(is_above_zero);
    let above_zero = points.clone().filter(|point| is_above_zero(point));
    let lowest = above_zero
        .map(|point| point.net_ns.point)
        .fold(f64::INFINITY, f64::min);
    let shown = |ns: &f64| lowest.is_infinite() || *ns >= lowest / 10.0;
    let values = points.flat_map(|Point { net_ns, .. }| [net_ns.low, net_ns.point, net_ns.high]);
    let span = Span::around(values.filter(shown), 0.03).unwrap_or(Span::ONE_TO_TEN);
    if all_above {
        span
    } else {
        span.with_room_below(0.6)
    }
}

/// Whether its size and its value are numbers that a logarithmic axis of sizes can take.
pub(super) fn has_a_place(point: &Point) -> bool {
    point.size > 0.0 && point.size.is_finite() && point.net_ns.point.is_finite()
}

/// Whether its value has a place on a logarithmic axis of times.
pub(super) fn is_above_zero(point: &Point) -> bool {
    point.net_ns.point > 0.0
}
