//! What a picture shows, before it has places and colours: lines over two axes, lanes over time, or
//! dots beside names.

use plotters::style::RGBColor;

use super::palette::Fill;

/// A picture with all words around it.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// Its name, which may serve as that of a file: `turnaround-one-cpu`.
    pub name: String,
    /// What it shows, in one line.
    pub title: String,
    /// Where and when it was measured.
    pub subtitle: String,
    /// What a point, a bar or a colour is.
    pub explanation: String,
    /// What must be said about values that are not where their numbers are.
    pub notes: Vec<String>,
    /// What is drawn.
    pub content: Content,
}

/// What is drawn.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Lines over two axes.
    Chart(Chart),
    /// Who did what when.
    Lanes(Lanes),
    /// A value beside each name.
    Dots(Dots),
}

/// Lines over two axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// The lines, named at their ends.
    pub lines: Vec<Line>,
    /// Sizes to the right that mean something.
    pub marks: Vec<Mark>,
}

/// An axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// What it counts, in words: `threads`.
    pub name: String,
    /// How its ticks are written.
    pub measure: Measure,
    /// How values are placed.
    pub scale: Scale,
}

/// What the numbers of an axis are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// How many.
    Count,
    /// Nanoseconds.
    Time,
    /// Bytes.
    Size,
    /// Percent.
    Percent,
    /// A number without a unit.
    Plain,
}

/// How values are placed on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Evenly, from 0 on.
    Linear,
    /// By their logarithm; what is not above 0 is drawn hollow at the edge.
    Logarithmic,
}

/// A line.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its name.
    pub label: String,
    /// How it is drawn.
    pub style: Style,
    /// Its colour, where it means something; else it is the next of the palette.
    pub colour: Option<RGBColor>,
    /// Its points, from left to right.
    pub points: Vec<Dot>,
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Points with intervals, joined.
    Measured,
    /// Dashed, without points: what should be.
    Ideal,
    /// In steps, without points: a cumulative distribution.
    Steps,
    /// Points alone: single observations.
    Scattered,
}

/// A point with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dot {
    /// To the right.
    pub x: f64,
    /// Upwards.
    pub y: f64,
    /// From where to where the true value may lie.
    pub interval: Option<(f64, f64)>,
}

/// A place to the right that means something.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// Where.
    pub at: f64,
    /// What.
    pub label: String,
}

/// Who did what when: a lane each.
#[derive(Clone, Debug, PartialEq)]
pub struct Lanes {
    /// From top to bottom.
    pub lanes: Vec<Lane>,
    /// What spans can be; they say which by its index.
    pub kinds: Vec<Kind>,
    /// How long it is shown, in ns.
    pub length_ns: u64,
}

/// What a span of a lane can be.
#[derive(Clone, Debug, PartialEq)]
pub struct Kind {
    /// What the legend calls it; `None` where another kind's name stands for it.
    pub name: Option<String>,
    /// How it is drawn.
    pub fill: Fill,
}

impl Kind {
    /// One that the legend names.
    pub fn named(name: &str, fill: Fill) -> Self {
        Self {
            name: Some(name.to_owned()),
            fill,
        }
    }
}

/// One lane.
#[derive(Clone, Debug, PartialEq)]
pub struct Lane {
    /// Whose.
    pub label: String,
    /// What it did, in order, without overlaps.
    pub spans: Vec<Span>,
}

/// A stretch of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// From where, in ns after the start.
    pub from_ns: u64,
    /// To where.
    pub to_ns: u64,
    /// Index into [`Lanes::kinds`].
    pub kind: usize,
}

/// A value beside each name.
#[derive(Clone, Debug, PartialEq)]
pub struct Dots {
    /// The axis of all values.
    pub axis: Axis,
    /// From top to bottom.
    pub rows: Vec<NamedDot>,
}

/// A row: a name and its value; rows of one `series` have one colour.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedDot {
    /// Its name.
    pub label: String,
    /// Which series it belongs to; `None` when there is only one.
    pub series: Option<String>,
    /// Its value.
    pub value: f64,
    /// From where to where the true value may lie.
    pub interval: Option<(f64, f64)>,
}
