//! Draws what threads or workers did over time: a lane each, all over one time axis.
//!
//! ```text
//!   ■ on CPU 0  ■ on CPU 1
//!   worker 1  ████▒▒▒▒████▒▒▒▒
//!   worker 2  ▒▒▒▒████▒▒▒▒████
//!             └────┴────┴────┴
//!             0  10 ms  20 ms
//! ```
//!
//! A recording holds thousands of spans that are narrower than a point. Such neighbours are drawn
//! as one column in which each kind has its share of the time as its share of the height, so that
//! the picture stays true and small.

use anyhow::Result;
use plotters::prelude::DrawingBackend;

use super::chart::level_ticks;
use super::content::{Axis, Lane, LaneSpan, Lanes, Measure, Scale};
use super::layout::{MARGIN, SMALL, TEXT, WIDTH};
use super::legend::{Legend, LegendSample};
use super::palette::{FADED, GRID, GROUND, INK};
use super::pen::{Pen, TextAnchor, cut_to, width_of};
use super::scale;

/// Height below the lanes for ticks and the axis' name, in points.
const BELOW: f64 = 52.0;
/// Widest name of a lane in points; a longer one is cut.
const NAME_WIDTH: f64 = 220.0;
/// Most lanes that are drawn; a note says how many there are.
const MOST_LANES: usize = 100;
/// A span that is narrower, in points, is merged with its neighbours.
const NARROW: f64 = 1.2;
/// Width of the columns that narrow spans are merged to, in points.
const COLUMN: f64 = 2.5;

/// Height of the drawing, in points.
///
/// # Errors
/// The font cannot be measured.
pub fn height(lanes: &Lanes) -> Result<f64> {
    let legend = legend(lanes)?.height();
    Ok(legend + pitch(lanes) * as_f64(shown(lanes).len()) + BELOW)
}

/// Draws lanes between two heights.
///
/// # Errors
/// The backend cannot draw.
pub fn draw<B: DrawingBackend>(lanes: &Lanes, between: (f64, f64), pen: &Pen<'_, B>) -> Result<()> {
    let legend = legend(lanes)?;
    legend.draw(between.0, pen)?;
    let frame = LanesFrame::of(lanes, between.0 + legend.height())?;
    frame.draw_ground(pen)?;
    for (index, lane) in shown(lanes).iter().enumerate() {
        frame.draw_lane(index, lane, pen)?;
    }
    frame.draw_axis(pen)
}

fn legend(lanes: &Lanes) -> Result<Legend> {
    let named = lanes.kinds.iter().filter_map(|kind| {
        let name = kind.name.as_deref()?;
        Some((name, LegendSample::Area(kind.fill)))
    });
    Legend::of(named)
}

fn shown(lanes: &Lanes) -> &[Lane] {
    &lanes.lanes[..lanes.lanes.len().min(MOST_LANES)]
}

/// Height of a lane with its gap, in points: many are drawn thinner.
const fn pitch(lanes: &Lanes) -> f64 {
    match lanes.lanes.len() {
        0..=12 => 32.0,
        13..=30 => 22.0,
        _ => 16.0,
    }
}

impl Lanes {
    /// Notes on lanes and spans that are not drawn as they are.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.lanes.len() > MOST_LANES {
            notes.push(format!(
                "the first {MOST_LANES} of {} lanes are shown",
                self.lanes.len()
            ));
        }
        if self.has_mixed_bars() {
            notes.push(
                "where changes lie too close to be told apart, a colour's share of the height is its share of the time"
                    .to_owned(),
            );
        }
        notes
    }

    /// Returns true if columns of several colours are wide enough to be seen.
    fn has_mixed_bars(&self) -> bool {
        const SEEN: f64 = 0.005;
        let length = as_ns(self.length_ns.max(1));
        let ns_per_point = length / (WIDTH - 2.0 * MARGIN);
        shown(self).iter().any(|lane| {
            let bars = bars(&lane.spans, self.kinds.len(), ns_per_point);
            let mixed = bars.iter().filter(|bar| bar.shares.len() > 1);
            mixed.map(|bar| bar.to - bar.from).sum::<f64>() > SEEN * length
        })
    }
}

/// The rectangle and the axis, which give times and lanes their places.
#[derive(Debug)]
struct LanesFrame<'a> {
    lanes: &'a Lanes,
    left: f64,
    right: f64,
    top: f64,
    pitch: f64,
    time: scale::AxisSpan,
}

impl<'a> LanesFrame<'a> {
    fn of(lanes: &'a Lanes, top: f64) -> Result<Self> {
        let mut name_width = 0.0_f64;
        let labels = shown(lanes).iter().map(|lane| &lane.label);
        for label in labels.chain(&lanes.aligned_with) {
            name_width = name_width.max(width_of(label, SMALL)?);
        }
        Ok(Self {
            lanes,
            left: MARGIN + name_width.min(NAME_WIDTH) + 12.0,
            right: WIDTH - MARGIN - 12.0,
            top,
            pitch: pitch(lanes),
            time: scale::AxisSpan::up_to(as_ns(lanes.length_ns.max(1))),
        })
    }

    fn bottom(&self) -> f64 {
        self.top + self.pitch * as_f64(shown(self.lanes).len())
    }

    fn x(&self, ns: f64) -> f64 {
        self.left + self.time.place(ns) * (self.right - self.left)
    }

    fn axis() -> Axis {
        Axis {
            name: "time since the start".to_owned(),
            measure: Measure::Time,
            scale: Scale::Linear,
        }
    }

    fn ticks(&self) -> Result<Vec<(f64, String)>> {
        level_ticks(&Self::axis(), self.time, self.right - self.left, &[])
    }

    /// Draws the ground of all lanes, which shows where a lane has no span, with names and grid.
    fn draw_ground<B: DrawingBackend>(&self, pen: &Pen<'_, B>) -> Result<()> {
        for (index, lane) in shown(self.lanes).iter().enumerate() {
            let (upper, lower) = self.edges(index);
            pen.fill((self.left, upper), (self.right, lower), GROUND)?;
            let name = cut_to(&lane.label, SMALL, NAME_WIDTH)?;
            let at = (self.left - 10.0, f64::midpoint(upper, lower));
            let size = if self.pitch < 20.0 { 12.0 } else { SMALL };
            pen.text(&name, at, TextAnchor::Right, size, INK)?;
        }
        for (ns, _) in self.ticks()? {
            let x = self.x(ns);
            pen.line(&[(x, self.top), (x, self.bottom())], GRID, 1.0)?;
        }
        Ok(())
    }

    /// Upper and lower edge of a lane.
    fn edges(&self, index: usize) -> (f64, f64) {
        let upper = self.top + self.pitch * as_f64(index);
        (upper + self.pitch * 0.1, upper + self.pitch * 0.9)
    }

    fn draw_lane<B: DrawingBackend>(
        &self,
        index: usize,
        lane: &Lane,
        pen: &Pen<'_, B>,
    ) -> Result<()> {
        let (upper, lower) = self.edges(index);
        let ns_per_point = self.time.high() / (self.right - self.left);
        for bar in bars(&lane.spans, self.lanes.kinds.len(), ns_per_point) {
            let (from, to) = (self.x(bar.from), self.x(bar.to));
            // A bar narrower than half a point would vanish, and may be what matters.
            let to = to.max(from + 0.5).min(self.right);
            if let [(kind, _)] = bar.shares[..] {
                let fill = self.lanes.kinds[kind].fill;
                let upper = lower - fill.height * (lower - upper);
                pen.area((from, upper), (to, lower), fill)?;
                continue;
            }
            let mut y = lower;
            for (kind, share) in bar.shares {
                let above = y - share * (lower - upper);
                let colour = self.lanes.kinds[kind].fill.blended_colour();
                pen.fill((from, above), (to, y), colour)?;
                y = above;
            }
        }
        Ok(())
    }

    fn draw_axis<B: DrawingBackend>(&self, pen: &Pen<'_, B>) -> Result<()> {
        let y = self.bottom() + 2.0;
        pen.line(&[(self.left, y), (self.right, y)], FADED, 1.0)?;
        for (ns, text) in self.ticks()? {
            let x = self.x(ns);
            pen.line(&[(x, y), (x, y + 5.0)], FADED, 1.0)?;
            pen.text(&text, (x, y + 15.0), TextAnchor::Middle, SMALL, FADED)?;
        }
        let at = (f64::midpoint(self.left, self.right), y + 36.0);
        pen.text(&Self::axis().name, at, TextAnchor::Middle, TEXT, INK)
    }
}

/// A bar for one span or for several narrow ones; times are in ns.
#[derive(Clone, Debug, PartialEq)]
struct Bar {
    from: f64,
    to: f64,
    /// Kinds and their shares of the time, from below.
    shares: Vec<(usize, f64)>,
}

/// Bars for the spans of a lane: wide ones as they are, narrow neighbours together.
fn bars(spans: &[LaneSpan], kinds: usize, ns_per_point: f64) -> Vec<Bar> {
    let mut bars: Vec<Bar> = Vec::new();
    let mut crowd: Vec<LaneSpan> = Vec::new();
    for span in spans {
        let length = as_ns(span.to_ns.saturating_sub(span.from_ns));
        let is_wide = length >= NARROW * ns_per_point;
        let is_full = crowd.first().is_some_and(|first| {
            as_ns(span.to_ns.saturating_sub(first.from_ns)) > COLUMN * ns_per_point
        });
        if is_wide || is_full {
            push_crowd(&mut crowd, kinds, &mut bars);
        }
        if is_wide {
            bars.push(Bar {
                from: as_ns(span.from_ns),
                to: as_ns(span.to_ns),
                shares: vec![(span.kind, 1.0)],
            });
        } else {
            crowd.push(*span);
        }
    }
    push_crowd(&mut crowd, kinds, &mut bars);
    bars
}

/// Adds a bar for the spans in `crowd`, or extends the last bar where the two look alike.
fn push_crowd(crowd: &mut Vec<LaneSpan>, kinds: usize, bars: &mut Vec<Bar>) {
    /// Shares that differ less look the same.
    const SAME: f64 = 0.04;
    let (Some(first), Some(last)) = (crowd.first(), crowd.last()) else {
        return;
    };
    let (from, to) = (as_ns(first.from_ns), as_ns(last.to_ns));
    let share_of = |kind| {
        let of_kind = crowd.iter().filter(|span| span.kind == kind);
        let time: f64 = of_kind.map(|span| as_ns(span.to_ns - span.from_ns)).sum();
        if to > from { time / (to - from) } else { 0.0 }
    };
    let shares: Vec<(usize, f64)> = (0..kinds)
        .map(|kind| (kind, share_of(kind)))
        .filter(|(_, share)| *share > 0.0)
        .collect();
    crowd.clear();
    if let Some(before) = bars.last_mut() {
        let touches = (from - before.to).abs() < 0.05 * (to - from);
        let looks_alike = before.shares.len() == shares.len()
            && before
                .shares
                .iter()
                .zip(&shares)
                .all(|(one, other)| one.0 == other.0 && (one.1 - other.1).abs() < SAME);
        if touches && looks_alike {
            before.to = to;
            return;
        }
    }
    bars.push(Bar { from, to, shares });
}

#[expect(clippy::cast_precision_loss, reason = "times of a picture")]
const fn as_ns(ns: u64) -> f64 {
    ns as f64
}

#[expect(clippy::cast_precision_loss, reason = "at most a hundred lanes")]
const fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::super::content::SpanKind;
    use super::super::palette::Fill;
    use super::*;

    fn spans(length_ns: u64, count: u64) -> Vec<LaneSpan> {
        let span = |number: u64| LaneSpan {
            from_ns: number * length_ns,
            to_ns: (number + 1) * length_ns,
            kind: usize::from(number.is_multiple_of(4)),
        };
        (0..count).map(span).collect()
    }

    #[test]
    fn wide_spans_are_drawn_as_they_are() {
        let bars = bars(&spans(4000, 8), 2, 1000.0);
        assert_eq!(bars.len(), 8);
        assert_eq!(bars[1].shares, [(0, 1.0)]);
        assert!((bars[1].from - 4000.0).abs() < 1e-9 && (bars[1].to - 8000.0).abs() < 1e-9);
    }

    /// A hundred thousand spans become some hundred bars, and the time of each kind stays.
    #[test]
    fn narrow_spans_are_merged_and_keep_their_shares() {
        let bars = bars(&spans(10, 100_000), 2, 1000.0);
        assert!(bars.len() < 450, "{}", bars.len());
        let shown: f64 = bars
            .iter()
            .map(|bar| {
                bar.shares.iter().find(|(kind, _)| *kind == 1).unwrap().1 * (bar.to - bar.from)
            })
            .sum();
        assert!((shown - 250_000.0).abs() < 25_000.0, "{shown}");
    }

    /// One preemption of a microsecond in a second is still drawn.
    #[test]
    fn a_single_narrow_span_does_not_vanish() {
        let lone = [LaneSpan {
            from_ns: 500,
            to_ns: 501,
            kind: 0,
        }];
        let bars = bars(&lone, 1, 1e6);
        assert_eq!(bars.len(), 1);
        assert_eq!(bars[0].shares, [(0, 1.0)]);
    }

    #[test]
    fn columns_of_several_colours_are_explained_where_there_are_some() {
        let lanes = |length_ns, count| Lanes {
            lanes: vec![Lane {
                label: "a".to_owned(),
                spans: spans(length_ns, count),
            }],
            kinds: vec![
                SpanKind::named("running", Fill::RUNNING),
                SpanKind::named("waiting", Fill::QUEUED),
            ],
            length_ns: length_ns * count,
            aligned_with: Vec::new(),
        };
        assert_eq!(lanes(1_000_000, 50).notes(), [""; 0]);
        assert_eq!(lanes(1000, 50_000).notes().len(), 1);
    }

    /// Two timelines, one above the other, are compared by eye.
    #[test]
    fn aligned_pictures_have_one_place_for_each_moment() {
        let lanes = |label: &str, other: &str| Lanes {
            lanes: vec![Lane {
                label: label.to_owned(),
                spans: spans(1000, 8),
            }],
            kinds: Vec::new(),
            length_ns: 8000,
            aligned_with: vec![other.to_owned()],
        };
        let (short, long) = ("a/1", "a-thread-with-a-name/2");
        let (upper, lower) = (lanes(short, long), lanes(long, short));
        let place = |lanes| LanesFrame::of(lanes, 0.0).unwrap().x(4000.0);
        assert!((place(&upper) - place(&lower)).abs() < 1e-9);
        let alone = lanes(short, "");
        assert!(place(&alone) < place(&upper) - 10.0);
    }

    #[test]
    fn a_gap_is_not_painted_over() {
        let apart = [0, 500_000].map(|from_ns| LaneSpan {
            from_ns,
            to_ns: from_ns + 10,
            kind: 0,
        });
        assert_eq!(bars(&apart, 1, 1000.0).len(), 2);
    }
}
