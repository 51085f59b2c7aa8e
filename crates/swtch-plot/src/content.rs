//! The content of a picture, before it has places and colours: lines over two axes, lanes over time, or dots beside
//! names.

use plotters::style::RGBColor;

use super::palette::Fill;

/// A picture with all its text.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// Its name, which can serve as a file name: `turnaround-one-cpu`.
    pub name: String,
    /// Its title, one line.
    pub title: String,
    /// Says where and when it was measured.
    pub subtitle: String,
    /// Says what a point, a bar or a colour is.
    pub explanation: String,
    /// Notes for the reader, shown below the picture.
    pub notes: Vec<String>,
    /// The values that are drawn.
    pub content: Content,
}

/// The content of a picture, by its kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Lines over two axes.
    Chart(Chart),
    /// Lanes that show what threads or CPUs did over time.
    Lanes(Lanes),
    /// Rows of values with their intervals.
    Dots(Dots),
}

/// A chart of lines over two axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// The horizontal axis, which grows to the right.
    pub x: Axis,
    /// The vertical axis, which grows upwards.
    pub y: Axis,
    /// The lines, named at their ends.
    pub lines: Vec<Line>,
    /// Values of the horizontal axis that mean something.
    pub marks: Vec<Mark>,
}

/// An axis with its name, unit and scale.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Names what it counts: `threads`.
    pub name: String,
    /// The way in which its ticks are written.
    pub measure: Measure,
    /// The way in which values are placed on it.
    pub scale: Scale,
}

impl Axis {
    /// An axis of this name.
    pub fn new(name: &str, measure: Measure, scale: Scale) -> Self {
        Self {
            name: name.to_owned(),
            measure,
            scale,
        }
    }
}

/// The kind of an axis's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// A count of things, grouped by thousands.
    Count,
    /// A length of time in nanoseconds.
    Time,
    /// A size in bytes, written with binary prefixes.
    Size,
    /// A percentage; 100 is the whole.
    Percent,
    /// A number without a unit.
    Plain,
}

/// The way in which values are placed on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly, from 0 on unless a value is below.
    Linear,
    /// By their logarithm; a value that is not above 0 is drawn hollow at the edge.
    Logarithmic,
}

/// A line of a chart, with its name.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its name, written at its end.
    pub label: String,
    /// The way in which the points are joined.
    pub style: Style,
    /// Its colour if that means something; `None` for the next of the palette.
    pub colour: Option<RGBColor>,
    /// Its points, from left to right.
    pub points: Vec<Dot>,
}

impl Line {
    /// A line in the next colour of the palette.
    pub fn new(
        label: impl Into<String>,
        style: Style,
        points: impl IntoIterator<Item = Dot>,
    ) -> Self {
        Self {
            label: label.into(),
            style,
            colour: None,
            points: points.into_iter().collect(),
        }
    }
}

/// The way in which a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Points with their intervals, joined by lines.
    Measured,
    /// Dashed, without points: what should be.
    Ideal,
    /// In steps, without points: a cumulative distribution.
    Steps,
    /// Points alone, for single observations.
    Scattered,
}

/// A point with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dot {
    /// Value on the horizontal axis.
    pub x: f64,
    /// Value on the vertical axis.
    pub y: f64,
    /// Low and high end of its interval; `None` when it has none.
    pub interval: Option<(f64, f64)>,
}

/// A value of the horizontal axis that means something, marked by a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// The value at which the line is drawn.
    pub at: f64,
    /// The name above the line.
    pub label: String,
}

/// Lanes that show what threads or workers did over time, one each.
#[derive(Clone, Debug, PartialEq)]
pub struct Lanes {
    /// The lanes from top to bottom.
    pub lanes: Vec<Lane>,
    /// The kinds of spans; a span names its kind by its index.
    pub kinds: Vec<SpanKind>,
    /// Length of the time axis, in ns.
    pub length_ns: u64,
    /// Names of the lanes of other pictures, above or below this one, whose time axes begin at the
    /// same place.
    pub aligned_with: Vec<String>,
}

/// A kind of span: its name in the legend, and its fill.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanKind {
    /// Its name in the legend; `None` where another kind's name stands for it.
    pub name: Option<String>,
    /// Colour, height and texture of its spans.
    pub fill: Fill,
}

impl SpanKind {
    /// One that the legend names.
    pub fn named(name: &str, fill: Fill) -> Self {
        Self {
            name: Some(name.to_owned()),
            fill,
        }
    }
}

/// One lane with its name and spans.
#[derive(Clone, Debug, PartialEq)]
pub struct Lane {
    /// Name to the left of the lane.
    pub label: String,
    /// Spans of what it did, in order, without overlaps.
    pub spans: Vec<LaneSpan>,
}

/// A stretch of time of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneSpan {
    /// Its begin, in ns after the start.
    pub from_ns: u64,
    /// Its end, in ns after the start.
    pub to_ns: u64,
    /// Its kind, an index into [`Lanes::kinds`].
    pub kind: usize,
}

/// A value beside each name.
#[derive(Clone, Debug, PartialEq)]
pub struct Dots {
    /// The axis of all values.
    pub axis: Axis,
    /// The rows from top to bottom.
    pub rows: Vec<NamedDot>,
}

/// A row: a name and its value; rows of one `series` have one colour.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedDot {
    /// Name to the left of the row.
    pub label: String,
    /// Which series it belongs to; `None` when there is only one.
    pub series: Option<String>,
    /// The value, in the unit of the axis.
    pub value: f64,
    /// Low and high end of its interval; `None` when it has none.
    pub interval: Option<(f64, f64)>,
}
