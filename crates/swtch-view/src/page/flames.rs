//! A differential flame graph as SVG: frames are as wide as the time of one side, and coloured by
//! how B differs from A.
//!
//! ```text
//! ┌───────────────── all ─────────────────┐  row 0
//! ├─────── server ───────┬───── hog ──────┤
//! ├───── lock ────┬──────┘                │  what was called, and at last why it waited
//! ```
//!
//! The outermost frames are on top, as in `swtch view`. There is no script: a browser shows the
//! `<title>` of the frame that the pointer rests on. Times come from [`FrameDiff`]; nothing is
//! computed here but places.

use anyhow::Result;
use maud::{Markup, html};
use plotters::style::RGBColor;
use swtch_plot::palette::{CHANGES, INK};
use swtch_plot::{FONT_FAMILY, PLOTTERS_FONT_SCALE, cut_to};
use swtch_report::html::shown;
use swtch_report::report::{FrameChange, FrameDiff, Per};

/// Width of the graph, in points: that of other pictures.
const WIDTH: f64 = 960.0;

/// Height of a row, in points.
const ROW_HEIGHT: f64 = 19.0;

/// Size of the font, in points.
const FONT_SIZE: f64 = 12.0;

/// Room between the edge of a frame and its name, in points.
const PADDING: f64 = 4.0;

/// A frame with less room for its name has none, in points.
const LEAST_FOR_NAME: f64 = 24.0;

/// Frames that would be narrower are left out, in points: they could not be seen.
const NARROWEST: f64 = 0.5;

/// More frames would make the page too large to be sent. The narrowest are left out first.
const MOST_FRAMES: usize = 5000;

/// The side whose times the widths are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WidthSide {
    /// Before.
    A,
    /// After.
    B,
}

impl WidthSide {
    /// The letter of the side.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::A => "A",
            Self::B => "B",
        }
    }

    /// The time of a frame in this side.
    pub const fn ns(self, frame: &FrameDiff) -> f64 {
        match self {
            Self::A => frame.a_ns,
            Self::B => frame.b_ns,
        }
    }
}

/// A graph, and what is not in it.
#[derive(Debug)]
pub struct FlameGraph {
    /// The drawing.
    pub svg: Markup,
    /// Frames with a smaller share of the width are left out, in percent.
    pub narrowest_pct: f64,
}

impl FlameGraph {
    /// Draws the frames of one side; `None` if nothing was blocked there.
    ///
    /// # Errors
    /// The font cannot be measured.
    pub fn of(root: &FrameDiff, side: WidthSide, per: Per) -> Result<Option<Self>> {
        if side.ns(root) <= 0.0 {
            return Ok(None);
        }
        let layout = FlameLayout::of(root, side);
        let rows = layout.boxes.iter().map(|one| one.row + 1).max();
        let height = as_f64(rows.unwrap_or(0)) * ROW_HEIGHT;
        let boxes = layout.boxes.iter().map(|one| one.draw(per));
        let boxes = boxes.collect::<Result<Vec<_>>>()?;
        let name = format!(
            "Flame graph of blocked time, with the widths of {}",
            side.as_str()
        );
        Ok(Some(Self {
            svg: html! {
                svg width=(WIDTH) height=(height) viewBox={ "0 0 " (WIDTH) " " (height) } role="img"
                    aria-label=(name) font-family=(FONT_FAMILY) font-size=(FONT_SIZE) fill=(hex(INK)) {
                    @for one in &boxes { (one) }
                }
            },
            narrowest_pct: layout.narrowest * 100.0 / WIDTH,
        }))
    }
}

/// Explains what the colours mean.
pub fn legend() -> Markup {
    html! {
        p { @for change in FrameChange::ALL {
            span.shade style={ "background: " (hex(colour_of(change))) } { (change.in_words()) }
        } }
    }
}

const fn colour_of(change: FrameChange) -> RGBColor {
    CHANGES[change.index()]
}

fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// A frame with its place, in points.
#[derive(Debug)]
struct FlameBox<'d> {
    frame: &'d FrameDiff,
    row: usize,
    x: f64,
    width: f64,
}

/// The places of all frames that can be seen.
#[derive(Debug)]
struct FlameLayout<'d> {
    boxes: Vec<FlameBox<'d>>,
    narrowest: f64,
}

impl<'d> FlameLayout<'d> {
    fn of(root: &'d FrameDiff, side: WidthSide) -> Self {
        let mut layout = Self {
            boxes: Vec::new(),
            narrowest: NARROWEST,
        };
        let points_per_ns = WIDTH / side.ns(root);
        loop {
            layout.place(root, side, points_per_ns, (0, 0.0));
            if layout.boxes.len() <= MOST_FRAMES {
                return layout;
            }
            layout.boxes.clear();
            layout.narrowest *= 2.0;
        }
    }

    /// Places a frame at a row and a distance from the left, and what it called below it.
    fn place(
        &mut self,
        frame: &'d FrameDiff,
        side: WidthSide,
        points_per_ns: f64,
        (row, x): (usize, f64),
    ) {
        let width = side.ns(frame) * points_per_ns;
        if width < self.narrowest {
            return;
        }
        self.boxes.push(FlameBox {
            frame,
            row,
            x,
            width,
        });
        let mut x = x;
        for child in &frame.children {
            self.place(child, side, points_per_ns, (row + 1, x));
            x += side.ns(child) * points_per_ns;
        }
    }
}

impl FlameBox<'_> {
    fn draw(&self, per: Per) -> Result<Markup> {
        let top = as_f64(self.row) * ROW_HEIGHT;
        // Neighbours of one colour are told apart by a gap, where there is room for one.
        let gap = if self.width > 3.0 { 1.0 } else { 0.0 };
        let label = self.label()?;
        let tenths = |points: f64| format!("{points:.1}");
        Ok(html! {
            g {
                title { (shown(&self.frame.words(per))) }
                rect x=(tenths(self.x)) y=(top) width=(tenths(self.width - gap)) height=(ROW_HEIGHT - 1.0)
                    fill=(hex(colour_of(self.frame.change()))) {}
                @if !label.is_empty() {
                    text x=(tenths(self.x + PADDING)) y=(tenths(top + 13.0)) { (label) }
                }
            }
        })
    }

    /// The name of the frame and, where there is room, its change: colours are not seen by all.
    fn label(&self) -> Result<String> {
        let room = self.width - 2.0 * PADDING;
        if room < LEAST_FOR_NAME {
            return Ok(String::new());
        }
        let name = shown(&self.frame.label());
        if self.frame.change() != FrameChange::Similar {
            let both = format!("{name} {}", self.frame.change_words());
            if cut_to(&both, FONT_SIZE * PLOTTERS_FONT_SCALE, room)? == both {
                return Ok(both);
            }
        }
        cut_to(&name, FONT_SIZE * PLOTTERS_FONT_SCALE, room)
    }
}

#[expect(clippy::cast_precision_loss, reason = "some hundred rows")]
const fn as_f64(rows: usize) -> f64 {
    rows as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use swtch_report::report::FrameKind;

    fn frame(name: &str, a_ns: f64, b_ns: f64, children: Vec<FrameDiff>) -> FrameDiff {
        FrameDiff {
            name: name.to_owned(),
            kind: FrameKind::User,
            a_ns,
            b_ns,
            children,
        }
    }

    /// ```text
    /// A                        B
    /// all 100                  all 200
    /// ├ lock 60                ├ lock 50
    /// └ old 40                 └ new 150
    /// ```
    fn root() -> FrameDiff {
        let children = vec![
            frame("new", 0.0, 150.0, Vec::new()),
            frame("lock", 60.0, 50.0, Vec::new()),
            frame("old", 40.0, 0.0, Vec::new()),
        ];
        frame("all", 100.0, 200.0, children)
    }

    fn drawn(side: WidthSide) -> String {
        let graph = FlameGraph::of(&root(), side, Per::Run).unwrap();
        graph.unwrap().svg.into_string()
    }

    /// A frame that the change removed has no time in B, so it would not be seen in a graph of B alone.
    #[test]
    fn frames_of_one_side_are_drawn_in_the_graph_of_that_side() {
        let places = |side| {
            let root = root();
            let layout = FlameLayout::of(&root, side);
            let place = |one: &FlameBox<'_>| {
                format!("{} {} {} {}", one.row, one.frame.name, one.x, one.width)
            };
            layout.boxes.iter().map(place).collect::<Vec<_>>()
        };
        assert_eq!(
            places(WidthSide::B),
            ["0 all 0 960", "1 new 0 720", "1 lock 720 240"]
        );
        assert_eq!(
            places(WidthSide::A),
            ["0 all 0 960", "1 lock 0 576", "1 old 576 384"]
        );
    }

    #[test]
    fn a_frame_has_its_colour_its_name_and_its_numbers() {
        let page = drawn(WidthSide::B);
        let colour = |change| format!("fill=\"{}\"", hex(colour_of(change)));
        let of = |name: &str| {
            let frames = page.split("<g>");
            let found = frames
                .skip(1)
                .find(|frame| frame.contains(&format!("<title>{name}: ")));
            found.unwrap_or_else(|| panic!("{name}: {page}")).to_owned()
        };
        assert!(of("new").contains(&colour(FrameChange::Doubled)));
        assert!(of("new").contains(">new only in B</text>"), "{}", of("new"));
        assert!(of("lock").contains(&colour(FrameChange::Less)));
        assert!(of("lock").contains("A 60 ns a run, B 50 ns a run, -10 ns a run (-16.7 %)"));
        assert!(drawn(WidthSide::A).contains(">old only in A</text>"));
    }

    /// Names of functions come from files of others.
    #[test]
    fn names_cannot_become_markup() {
        let mut root = root();
        root.children[0].name = "</svg><script>alert(1)</script>\u{1b}\u{202e}".to_owned();
        let page = FlameGraph::of(&root, WidthSide::B, Per::Second)
            .unwrap()
            .unwrap();
        let page = page.svg.into_string();
        assert!(
            !page.contains("<script") && !page.contains(['\u{1b}', '\u{202e}']),
            "{page}"
        );
        assert!(
            page.contains("&lt;/svg&gt;&lt;script&gt;alert(1)&lt;/script&gt;\\x1b"),
            "{page}"
        );
    }

    #[test]
    fn a_side_that_was_never_blocked_has_no_graph() {
        let root = frame("all", 0.0, 10.0, Vec::new());
        assert!(
            FlameGraph::of(&root, WidthSide::A, Per::Run)
                .unwrap()
                .is_none()
        );
    }

    /// A page has to be small enough to be sent, however many functions a program has.
    #[test]
    fn the_narrowest_of_too_many_frames_are_left_out() {
        let stack = |_| {
            let deep = |below, _| frame("f", 1.0, 1.0, vec![below]);
            (0..40).fold(frame("f", 1.0, 1.0, Vec::new()), deep)
        };
        let root = frame("all", 1000.0, 1000.0, (0..1000).map(stack).collect());
        let layout = FlameLayout::of(&root, WidthSide::B);
        assert!(layout.boxes.len() <= MOST_FRAMES, "{}", layout.boxes.len());
        assert!(layout.narrowest > NARROWEST);
    }
}
