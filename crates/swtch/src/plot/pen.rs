//! Lines, shapes and text at places in points of the figure, on any of the backends.
//!
//! The backends of plotters take whole pixels. A pen scales, so that a figure keeps its proportions
//! and lines lie within half a point of where they belong.

use std::sync::Once;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::drawing::DrawingArea;
use plotters::element::{Circle, PathElement, Polygon};
use plotters::prelude::DrawingBackend;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    Color, FontStyle, IntoFont, RGBColor, ShapeStyle, TextStyle, WHITE, register_font,
};

use super::palette::{Look, Shape};

/// The font, as an SVG names it: ours, else what has much the same widths.
const FAMILY: &str = "DejaVu Sans, Verdana, sans-serif";

/// `DejaVu` Sans 2.37, Latin part: machines that measure often have no fonts.
const FONT: &[u8] = include_bytes!("../../assets/DejaVuSans-latin.ttf");

/// What a text's place is of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// Its left end.
    Left,
    /// Its middle.
    Middle,
    /// Its right end.
    Right,
}

/// Draws on a backend.
pub struct Pen<'a, B: DrawingBackend> {
    area: &'a DrawingArea<B, Shift>,
    scale: f64,
    text_drop: f64,
}

/// A place, in points from the top left corner.
pub type Place = (f64, f64);

impl<'a, B: DrawingBackend> Pen<'a, B> {
    /// A pen for an area of which `scale` pixels are a point.
    pub fn new(area: &'a DrawingArea<B, Shift>, scale: f64) -> Self {
        make_font_known();
        Self {
            area,
            scale,
            text_drop: 0.0,
        }
    }

    /// The same for a backend that writes text `drop` of its size too high.
    #[must_use]
    pub fn with_text_drop(self, drop: f64) -> Self {
        Self {
            text_drop: drop,
            ..self
        }
    }

    /// Makes everything white.
    pub fn clear(&self) -> Result<()> {
        told(self.area.fill(&WHITE))
    }

    /// Draws straight lines from place to place.
    pub fn line(&self, places: &[Place], colour: RGBColor, width: f64) -> Result<()> {
        let style = self.stroke(colour, width);
        let places: Vec<_> = places.iter().map(|place| self.pixel(*place)).collect();
        told(self.area.draw(&PathElement::new(places, style)))
    }

    /// Draws the point of a line: filled, or an outline on white.
    pub fn point(&self, at: Place, look: Look, is_filled: bool) -> Result<()> {
        const RADIUS: f64 = 3.8;
        const OUTLINE: f64 = 1.4;
        if is_filled {
            return self.shape(at, look.shape, RADIUS, look.colour);
        }
        self.shape(at, look.shape, RADIUS + OUTLINE / 2.0, look.colour)?;
        self.shape(at, look.shape, RADIUS - OUTLINE, WHITE)
    }

    fn shape(&self, at: Place, shape: Shape, radius: f64, colour: RGBColor) -> Result<()> {
        if shape == Shape::Circle {
            let radius = self.length(radius);
            let circle = Circle::new(self.pixel(at), radius, colour.filled());
            return told(self.area.draw(&circle));
        }
        let corners: Vec<_> = shape
            .corners(radius)
            .into_iter()
            .map(|(x, y)| self.pixel((at.0 + x, at.1 + y)))
            .collect();
        told(self.area.draw(&Polygon::new(corners, colour.filled())))
    }

    /// Writes one line of text; `at` is half way up its letters.
    pub fn text(
        &self,
        text: &str,
        at: Place,
        anchor: Anchor,
        size: f64,
        colour: RGBColor,
    ) -> Result<()> {
        let side = match anchor {
            Anchor::Left => HPos::Left,
            Anchor::Middle => HPos::Center,
            Anchor::Right => HPos::Right,
        };
        let style = self
            .font(size)
            .color(&colour)
            .pos(Pos::new(side, VPos::Center));
        let at = self.pixel((at.0, at.1 + self.text_drop * size));
        told(self.area.draw_text(text, &style, at))
    }

    /// How wide a text is.
    pub fn width_of(&self, text: &str, size: f64) -> Result<f64> {
        let (width, _) = told(self.area.estimate_text_size(text, &self.font(size)))?;
        Ok(f64::from(width) / self.scale)
    }

    /// The beginning of a text that is at most `width` wide, with dots for what was cut off.
    pub fn cut_to(&self, text: &str, size: f64, width: f64) -> Result<String> {
        if self.width_of(text, size)? <= width {
            return Ok(text.to_owned());
        }
        let mut kept: Vec<char> = text.chars().collect();
        while kept.pop().is_some() {
            let cut = format!("{}…", kept.iter().collect::<String>().trim_end());
            if self.width_of(&cut, size)? <= width {
                return Ok(cut);
            }
        }
        Ok(String::new())
    }

    fn font(&self, size: f64) -> TextStyle<'static> {
        (FAMILY, size * self.scale).into_font().into()
    }

    fn stroke(&self, colour: RGBColor, width: f64) -> ShapeStyle {
        colour.stroke_width(self.length(width).unsigned_abs())
    }

    #[expect(clippy::cast_possible_truncation, reason = "places on a small area")]
    fn pixel(&self, (x, y): Place) -> (i32, i32) {
        (
            (x * self.scale).round() as i32,
            (y * self.scale).round() as i32,
        )
    }

    #[expect(clippy::cast_possible_truncation, reason = "a few pixels")]
    fn length(&self, points: f64) -> i32 {
        (points * self.scale).round().max(1.0) as i32
    }
}

/// plotters keeps a table of fonts by name; one time is enough.
fn make_font_known() {
    static KNOWN: Once = Once::new();
    KNOWN.call_once(|| {
        let registered = register_font(FAMILY, FontStyle::Normal, FONT);
        assert!(registered.is_ok(), "the embedded font is a font");
    });
}

/// The backends' errors cannot be sent between threads, which `anyhow` wants; their words can.
fn told<T, E: std::fmt::Display>(result: Result<T, E>) -> Result<T> {
    result.map_err(|error| anyhow!("{error}"))
}
