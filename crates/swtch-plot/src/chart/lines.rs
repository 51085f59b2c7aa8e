//! Draws the lines of a chart, each in its style, and their names.

use anyhow::Result;
use plotters::prelude::DrawingBackend;

use super::super::content::{Dot, Line, Style};
use super::super::layout::TEXT;
use super::super::palette::{FADED, GRID, INK, LineAppearance, appearance_of};
use super::super::pen::{FigurePoint, Pen, TextAnchor, cut_to};
use super::super::spread;
use super::{ChartFrame, LABEL_INDENT, LABEL_WIDTH};

/// Distance from label to label, in points.
const LABEL_GAP: f64 = 19.0;

/// A line and how it is drawn.
#[derive(Debug)]
struct StyledLine<'a> {
    frame: &'a ChartFrame<'a>,
    line: &'a Line,
    look: LineAppearance,
    /// The distance to the right of its place at which it is drawn, in points.
    shift: f64,
}

/// Draws all lines, then their names.
///
/// # Errors
/// The backend cannot draw.
pub(super) fn draw<B: DrawingBackend>(frame: &ChartFrame<'_>, pen: &Pen<'_, B>) -> Result<()> {
    let lines = &frame.chart.lines;
    let looks = looks(lines);
    let shifts = shifts(frame);
    let drawn = lines.iter().zip(looks).zip(shifts);
    let mut drawn: Vec<StyledLine<'_>> = drawn
        .map(|((line, look), shift)| StyledLine {
            frame,
            line,
            look,
            shift,
        })
        .collect();
    write_labels(frame, &drawn, pen)?;
    drawn.sort_by_key(|drawn| depth(drawn.line.style));
    drawn.iter().try_for_each(|drawn| drawn.draw(pen))
}

/// Drawing order: what is later lies on top, so single observations are below what sums them up.
const fn depth(style: Style) -> u8 {
    match style {
        Style::Scattered => 0,
        Style::Ideal => 1,
        Style::Steps => 2,
        Style::Measured => 3,
    }
}

/// Colour and shape of each line. Ideal lines all have one faded colour, so that the palette is
/// left to what was measured.
fn looks(lines: &[Line]) -> Vec<LineAppearance> {
    let mut measured = 0;
    let looks = lines.iter().map(|line| match line.style {
        Style::Ideal => LineAppearance {
            colour: FADED,
            ..appearance_of(0)
        },
        _ => {
            measured += 1;
            let next = appearance_of(measured - 1);
            LineAppearance {
                colour: line.colour.unwrap_or(next.colour),
                ..next
            }
        }
    });
    looks.collect()
}

/// Returns how far each line is moved to the side, in points: a little, where intervals would overlap. Where places are
/// close nothing is moved, because it would be taken for another place.
fn shifts(frame: &ChartFrame<'_>) -> Vec<f64> {
    /// Largest and smallest step from line to line, in points.
    const MOST: f64 = 6.0;
    const LEAST: f64 = 3.0;
    /// Share of the room between two places that all lines together may take.
    const SHARE: f64 = 0.2;
    let lines = &frame.chart.lines;
    let is_measured = |line: &&Line| line.style == Style::Measured;
    let measured: Vec<&Line> = lines.iter().filter(is_measured).collect();
    let hides = measured.iter().enumerate().any(|(index, one)| {
        measured[..index]
            .iter()
            .any(|other| hide(frame, one, other))
    });
    let count = as_f64(measured.len());
    let step = MOST.min(SHARE * narrowest_gap(frame) / count);
    if !hides || step < LEAST {
        return vec![0.0; lines.len()];
    }
    let mut number = 0.0;
    let shift = |line: &Line| match line.style {
        Style::Measured => {
            number += 1.0;
            (number - f64::midpoint(count, 1.0)) * step
        }
        Style::Ideal | Style::Steps | Style::Scattered => 0.0,
    };
    lines.iter().map(shift).collect()
}

/// The least distance between two places at which something was measured, in points.
fn narrowest_gap(frame: &ChartFrame<'_>) -> f64 {
    let places: Vec<f64> = frame.measured().into_iter().map(|x| frame.x(x)).collect();
    let gaps = places.windows(2).map(|pair| pair[1] - pair[0]);
    gaps.fold(f64::INFINITY, f64::min)
}

/// Returns true if intervals of two lines overlap so far that they cannot be told apart.
fn hide(frame: &ChartFrame<'_>, one: &Line, other: &Line) -> bool {
    const SEEN: f64 = 12.0;
    let ends = |dot: &Dot| {
        let (low, high) = dot.interval?;
        Some((frame.y(high), frame.y(low)))
    };
    one.points.iter().any(|dot| {
        let mut beside = other.points.iter().filter(|beside| beside.x == dot.x);
        beside.any(|beside| match (ends(dot), ends(beside)) {
            (Some(one), Some(other)) => one.1.min(other.1) - one.0.max(other.0) > SEEN,
            _ => false,
        })
    })
}

impl StyledLine<'_> {
    fn draw<B: DrawingBackend>(&self, pen: &Pen<'_, B>) -> Result<()> {
        match self.line.style {
            Style::Measured => self.draw_measured(pen),
            Style::Ideal => self
                .stretches()
                .iter()
                .try_for_each(|stretch| pen.dashed_line(&thinned(stretch), self.look.colour, 1.4)),
            Style::Steps => self.draw_steps(pen),
            Style::Scattered => self.draw_scattered(pen),
        }
    }

    /// Intervals first, then the line, then the points on top. The line breaks where a point has no
    /// place on it.
    fn draw_measured<B: DrawingBackend>(&self, pen: &Pen<'_, B>) -> Result<()> {
        for dot in self.placed() {
            self.draw_interval(dot, pen)?;
        }
        for stretch in self.stretches() {
            pen.line(&stretch, self.look.colour, 1.8)?;
        }
        for dot in self.placed() {
            let is_filled = self.frame.chart.is_above(dot);
            pen.point(self.place(dot), self.look, is_filled)?;
        }
        Ok(())
    }

    fn draw_interval<B: DrawingBackend>(&self, dot: &Dot, pen: &Pen<'_, B>) -> Result<()> {
        const HALF_CAP: f64 = 4.0;
        let frame = self.frame;
        let Some((low, high)) = dot.interval else {
            return Ok(());
        };
        if !frame.chart.y.scale.has_place(high) {
            return Ok(());
        }
        let (x, _) = self.place(dot);
        let bar = [(x, frame.y(low)), (x, frame.y(high))];
        pen.line(&bar, self.look.colour, 1.2)?;
        for end in [low, high] {
            if frame.y.contains(end) {
                let y = frame.y(end);
                let cap = [(x - HALF_CAP, y), (x + HALF_CAP, y)];
                pen.line(&cap, self.look.colour, 1.2)?;
            }
        }
        Ok(())
    }

    fn draw_steps<B: DrawingBackend>(&self, pen: &Pen<'_, B>) -> Result<()> {
        for stretch in self.stretches() {
            pen.line(&thinned(&in_steps(&stretch)), self.look.colour, 2.0)?;
        }
        match self.middle_of_steps() {
            Some(place) => pen.point(place, self.look, true),
            None => Ok(()),
        }
    }

    fn draw_scattered<B: DrawingBackend>(&self, pen: &Pen<'_, B>) -> Result<()> {
        let mut places: Vec<FigurePoint> = self.placed().map(|dot| self.place(dot)).collect();
        places.sort_by(|one, other| one.0.total_cmp(&other.0).then(one.1.total_cmp(&other.1)));
        places.dedup_by(|one, other| is_near(*one, *other));
        places
            .iter()
            .try_for_each(|place| pen.small_point(*place, self.look))
    }

    /// The points that can be drawn.
    fn placed(&self) -> impl DoubleEndedIterator<Item = &Dot> {
        let points = self.line.points.iter();
        points.filter(|dot| self.frame.chart.has_place(dot))
    }

    fn place(&self, dot: &Dot) -> FigurePoint {
        let (x, y) = self.frame.place(dot);
        (x + self.shift, y)
    }

    /// The parts of a line whose points all have a place, two or more together.
    fn stretches(&self) -> Vec<Vec<FigurePoint>> {
        let chart = self.frame.chart;
        let is_placed = |dot: &Dot| chart.has_place(dot) && chart.is_above(dot);
        let parts = self.line.points.split(|dot| !is_placed(dot));
        let parts = parts.filter(|part| part.len() > 1);
        parts
            .map(|part| part.iter().map(|dot| self.place(dot)).collect())
            .collect()
    }

    /// Returns the point where a line of steps passes half of its height, which is the median of a distribution. Its
    /// shape is drawn there, for those who see no colours.
    fn middle_of_steps(&self) -> Option<FigurePoint> {
        let top = self.placed().map(|dot| dot.y).reduce(f64::max)?;
        let dot = self.placed().find(|dot| dot.y >= top / 2.0)?;
        Some((self.place(dot).0, self.frame.y(top / 2.0)))
    }

    /// Place of its last point that can be drawn.
    fn end(&self) -> FigurePoint {
        let last = self.placed().next_back();
        last.map_or((self.frame.right, self.frame.bottom), |dot| self.place(dot))
    }
}

/// Writes the name of each line at its end. Names that would overlap are moved apart, and a thin
/// line leads back.
fn write_labels<B: DrawingBackend>(
    frame: &ChartFrame<'_>,
    lines: &[StyledLine<'_>],
    pen: &Pen<'_, B>,
) -> Result<()> {
    let ends: Vec<FigurePoint> = lines.iter().map(StyledLine::end).collect();
    let wanted: Vec<f64> = ends.iter().map(|(_, y)| *y).collect();
    let heights = spread::apart(&wanted, LABEL_GAP, (frame.top + 6.0, frame.bottom));
    for ((drawn, end), y) in lines.iter().zip(ends).zip(heights) {
        let style = drawn.line.style;
        let at = (frame.right + LABEL_INDENT - 14.0, y);
        // Distributions all end at the top, where such lines would cross them.
        if matches!(style, Style::Measured | Style::Ideal) {
            let from = (end.0 + 6.0, end.1);
            pen.line(&[from, (at.0 - 10.0, at.1)], GRID, 1.0)?;
        }
        draw_sample(style, at, drawn.look, pen)?;
        let label = cut_to(&drawn.line.label, TEXT, LABEL_WIDTH)?;
        let at = (frame.right + LABEL_INDENT, y);
        pen.text(&label, at, TextAnchor::Left, TEXT, INK)?;
    }
    Ok(())
}

/// Draws what a line looks like, beside its name.
fn draw_sample<B: DrawingBackend>(
    style: Style,
    at: FigurePoint,
    look: LineAppearance,
    pen: &Pen<'_, B>,
) -> Result<()> {
    let stroke = [(at.0 - 8.0, at.1), (at.0 + 8.0, at.1)];
    match style {
        Style::Measured => pen.point(at, look, true),
        Style::Scattered => pen.small_point(at, look),
        Style::Ideal => {
            pen.line(&[stroke[0], (at.0 - 2.0, at.1)], look.colour, 1.4)?;
            pen.line(&[(at.0 + 2.0, at.1), stroke[1]], look.colour, 1.4)
        }
        Style::Steps => {
            pen.line(&stroke, look.colour, 2.0)?;
            pen.point(at, look, true)
        }
    }
}

/// The corners of a line that keeps its height until the next point.
fn in_steps(places: &[FigurePoint]) -> Vec<FigurePoint> {
    let mut corners: Vec<FigurePoint> = places.first().copied().into_iter().collect();
    for pair in places.windows(2) {
        corners.push((pair[1].0, pair[0].1));
        corners.push(pair[1]);
    }
    corners
}

/// The places without those that cannot be told from the one before; the last stays.
fn thinned(places: &[FigurePoint]) -> Vec<FigurePoint> {
    let mut kept: Vec<FigurePoint> = Vec::new();
    for (index, place) in places.iter().enumerate() {
        let is_last = index + 1 == places.len();
        if is_last || kept.last().is_none_or(|last| !is_near(*last, *place)) {
            kept.push(*place);
        }
    }
    kept
}

fn is_near(one: FigurePoint, other: FigurePoint) -> bool {
    (one.0 - other.0).abs() < 0.4 && (one.1 - other.1).abs() < 0.4
}

#[expect(clippy::cast_precision_loss, reason = "a few lines")]
const fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_keep_their_height_until_the_next_point() {
        let corners = in_steps(&[(0.0, 9.0), (4.0, 5.0)]);
        assert_eq!(corners, [(0.0, 9.0), (4.0, 9.0), (4.0, 5.0)]);
    }

    #[test]
    fn a_line_of_ten_thousand_points_is_small_when_drawn() {
        let places: Vec<FigurePoint> = (0..10_000).map(|n| (f64::from(n) / 20.0, 7.0)).collect();
        let kept = thinned(&places);
        assert!(kept.len() < 1_300, "{}", kept.len());
        assert_eq!(kept.last(), places.last());
    }
}
