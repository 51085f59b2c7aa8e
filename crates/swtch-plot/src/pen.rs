//! Draws lines, shapes and text on any of the backends. Places are given in points of the figure.
//!
//! The backends of plotters take whole pixels. A pen scales, so that a figure keeps its proportions
//! and lines lie within half a point of where they belong.

use std::sync::Once;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::drawing::DrawingArea;
use plotters::element::{Circle, PathElement, Polygon, Rectangle};
use plotters::prelude::DrawingBackend;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{
    Color, FontStyle, IntoFont, RGBColor, ShapeStyle, TextStyle, WHITE, register_font,
};
use swtch_output::text::escaped;

use super::palette::{Fill, LineAppearance, Shape, Texture};

/// The fonts that an SVG names: ours or, where it is missing, one with nearly the same widths.
pub const FONT_FAMILY: &str = "DejaVu Sans, Verdana, sans-serif";

/// `DejaVu` Sans 2.37, Latin part: machines that measure often have no fonts.
const FONT: &[u8] = include_bytes!("../assets/DejaVuSans-latin.ttf");

/// The part of a text that its place refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextAnchor {
    Left,
    Middle,
    Right,
}

/// Draws on a backend, in points of the figure.
pub struct Pen<'a, B: DrawingBackend> {
    area: &'a DrawingArea<B, Shift>,
    scale: f64,
    text_drop: f64,
}

/// A place `(x, y)` in a figure, in points from its top left corner.
pub type FigurePoint = (f64, f64);

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

    /// The pen for a backend that writes text too high by `drop` of its size.
    #[must_use]
    pub fn with_text_drop(self, drop: f64) -> Self {
        Self {
            text_drop: drop,
            ..self
        }
    }

    /// Makes the whole area white.
    pub fn clear(&self) -> Result<()> {
        told(self.area.fill(&WHITE))
    }

    /// Draws straight lines from place to place.
    pub fn line(&self, places: &[FigurePoint], colour: RGBColor, width: f64) -> Result<()> {
        let style = self.stroke(colour, width);
        let places: Vec<_> = places.iter().map(|place| self.pixel(*place)).collect();
        told(self.area.draw(&PathElement::new(places, style)))
    }

    /// Draws straight lines from place to place in dashes: one pattern runs along all of them.
    pub fn dashed_line(&self, places: &[FigurePoint], colour: RGBColor, width: f64) -> Result<()> {
        for dash in dashes(places) {
            self.line(&dash, colour, width)?;
        }
        Ok(())
    }

    /// Fills a rectangle, given by two opposite corners.
    pub fn fill(&self, from: FigurePoint, to: FigurePoint, colour: RGBColor) -> Result<()> {
        let corners = [self.pixel(from), self.pixel(to)];
        told(self.area.draw(&Rectangle::new(corners, colour.filled())))
    }

    /// Fills a rectangle with a texture.
    pub fn area(&self, from: FigurePoint, to: FigurePoint, fill: Fill) -> Result<()> {
        /// Distance from line to line, along the edge.
        const STEP: f64 = 5.0;
        let ((left, top), (right, bottom)) = (from, to);
        if fill.texture != Texture::Hatched || right - left < STEP {
            return self.fill(from, to, fill.blended_colour());
        }
        self.fill(from, to, fill.between_lines())?;
        // On each line x + y is a multiple of STEP, wherever the rectangle is, so that the lines
        // of neighbouring rectangles join.
        let height = bottom - top;
        let mut sum = ((left + top) / STEP).ceil() * STEP;
        while sum < right + bottom {
            let low = (sum - bottom).max(left);
            let high = (sum - top).min(right);
            if low < high && height > 0.0 {
                self.line(&[(low, sum - low), (high, sum - high)], fill.colour, 1.6)?;
            }
            sum += STEP;
        }
        Ok(())
    }

    /// Draws the point of a line: filled, or an outline on white.
    pub fn point(&self, at: FigurePoint, look: LineAppearance, is_filled: bool) -> Result<()> {
        const RADIUS: f64 = 3.8;
        const OUTLINE: f64 = 1.4;
        if is_filled {
            return self.shape(at, look.shape, RADIUS, look.colour);
        }
        self.shape(at, look.shape, RADIUS + OUTLINE / 2.0, look.colour)?;
        self.shape(at, look.shape, RADIUS - OUTLINE, WHITE)
    }

    /// Draws one of very many observations.
    pub fn small_point(&self, at: FigurePoint, look: LineAppearance) -> Result<()> {
        self.shape(at, look.shape, 2.2, look.colour)
    }

    fn shape(&self, at: FigurePoint, shape: Shape, radius: f64, colour: RGBColor) -> Result<()> {
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

    /// Writes one line of text with hostile characters escaped; `at` is half way up its letters.
    pub fn text(
        &self,
        text: &str,
        at: FigurePoint,
        anchor: TextAnchor,
        size: f64,
        colour: RGBColor,
    ) -> Result<()> {
        let side = match anchor {
            TextAnchor::Left => HPos::Left,
            TextAnchor::Middle => HPos::Center,
            TextAnchor::Right => HPos::Right,
        };
        let style = self
            .font(size)
            .color(&colour)
            .pos(Pos::new(side, VPos::Center));
        let at = self.pixel((at.0, at.1 + self.text_drop * size));
        told(self.area.draw_text(&escaped(text), &style, at))
    }

    fn font(&self, size: f64) -> TextStyle<'static> {
        (FONT_FAMILY, size * self.scale).into_font().into()
    }

    fn stroke(&self, colour: RGBColor, width: f64) -> ShapeStyle {
        colour.stroke_width(self.length(width).unsigned_abs())
    }

    #[expect(clippy::cast_possible_truncation, reason = "places on a small area")]
    fn pixel(&self, (x, y): FigurePoint) -> (i32, i32) {
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

/// More characters than a line of a picture can show: this many of the narrowest, in the smallest
/// size, would be a hundred points wider than a picture.
const MOST_CHARACTERS: usize = 1_000;

/// Most lines of one text on a picture. A command line may have a hundred thousand words.
const MOST_LINES: usize = 6;

/// The factor by which sizes are larger here than the `font-size` that an SVG gets: plotters takes a size as the height
/// of a line (plotters-svg 0.3.7, `draw_text` in svg.rs).
pub const PLOTTERS_FONT_SCALE: f64 = 1.24;

/// Measures how wide a text is, in points.
pub fn width_of(text: &str, size: f64) -> Result<f64> {
    /// Font widths come in whole pixels, so they are measured at a larger size.
    const MAGNIFIED: f64 = 4.0;
    make_font_known();
    let font = (FONT_FAMILY, size * MAGNIFIED).into_font();
    let (width, _) = told(font.box_size(&escaped(text)))?;
    Ok(f64::from(width) / MAGNIFIED)
}

/// The beginning of a text that is at most `width` wide, with dots for what was cut off. Sizes are
/// in points.
///
/// # Errors
/// The font cannot be measured.
pub fn cut_to(text: &str, size: f64, width: f64) -> Result<String> {
    let end_of = |characters: usize| {
        let end = text.char_indices().nth(characters);
        end.map_or(text.len(), |(end, _)| end)
    };
    let is_short = end_of(MOST_CHARACTERS) == text.len();
    if is_short && width_of(text, size)? <= width {
        return Ok(text.to_owned());
    }
    let cut_after = |characters: usize| format!("{}…", text[..end_of(characters)].trim_end());
    // The longest beginning that fits, by bisection: a name or a command may have a million
    // characters.
    let (mut fits, mut too_wide) = (0, MOST_CHARACTERS.min(text.chars().count()) + 1);
    while too_wide - fits > 1 {
        let middle = fits.midpoint(too_wide);
        match width_of(&cut_after(middle), size)? <= width {
            true => fits = middle,
            false => too_wide = middle,
        }
    }
    Ok(match fits {
        0 => String::new(),
        fits => cut_after(fits),
    })
}

/// The text in lines that are at most `width` wide, broken between words; a word that is wider than
/// that is cut. There are at most [`MOST_LINES`]; where more would be needed, the last one ends in
/// dots.
pub fn wrapped_to(text: &str, size: f64, width: f64) -> Result<Vec<String>> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let word = cut_to(word, size, width)?;
        if let Some(line) = lines.last_mut() {
            let longer = format!("{line} {word}");
            if width_of(&longer, size)? <= width {
                *line = longer;
                continue;
            }
        }
        if lines.len() == MOST_LINES {
            let last = lines.last_mut().expect("there are as many");
            // It is wider than a line, as was just found, so it is cut.
            *last = cut_to(&format!("{last} {word}"), size, width)?;
            break;
        }
        lines.push(word);
    }
    Ok(lines)
}

/// The strokes of a dashed line, with its corners where they fall within one.
fn dashes(places: &[FigurePoint]) -> Vec<Vec<FigurePoint>> {
    /// Lengths of a stroke and of the blank after it, in points.
    const PATTERN: [f64; 2] = [7.0, 4.5];
    let mut strokes = Vec::new();
    let mut stroke: Vec<FigurePoint> = places.first().copied().into_iter().collect();
    let (mut phase, mut left) = (0, PATTERN[0]);
    for pair in places.windows(2) {
        let (mut from, to) = (pair[0], pair[1]);
        let mut length = (to.0 - from.0).hypot(to.1 - from.1);
        while length > left {
            let share = left / length;
            from = (
                from.0 + (to.0 - from.0) * share,
                from.1 + (to.1 - from.1) * share,
            );
            length -= left;
            stroke.push(from);
            if phase == 0 {
                strokes.push(std::mem::take(&mut stroke));
            }
            phase = 1 - phase;
            left = PATTERN[phase];
            stroke = vec![from];
        }
        left -= length;
        stroke.push(to);
    }
    if phase == 0 && stroke.len() > 1 {
        strokes.push(stroke);
    }
    strokes
}

/// Registers the font once: plotters keeps a table of fonts by name.
fn make_font_known() {
    static KNOWN: Once = Once::new();
    KNOWN.call_once(|| {
        let registered = register_font(FONT_FAMILY, FontStyle::Normal, FONT);
        assert!(registered.is_ok(), "the embedded font is a font");
    });
}

/// Turns a backend's error into text: it cannot be sent between threads, as `anyhow` requires.
fn told<T, E: std::fmt::Display>(result: Result<T, E>) -> Result<T> {
    result.map_err(|error| anyhow!("{error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_broken_between_words_and_never_too_wide() {
        let text = "bars are 95 % intervals of the mean time of a hop";
        let lines = wrapped_to(text, 13.0, 120.0).unwrap();
        assert!(lines.len() > 1);
        assert_eq!(lines.join(" "), text);
        for line in &lines {
            assert!(width_of(line, 13.0).unwrap() <= 120.0);
        }
        let cut = wrapped_to(&"x".repeat(500), 13.0, 120.0).unwrap();
        assert!(cut.len() == 1 && cut[0].ends_with('…'));
    }

    /// A Java class path is a word of 40,000 characters; a command line can hold 2 MB.
    #[test]
    fn a_text_of_any_length_takes_a_few_lines_and_no_time() {
        let began = std::time::Instant::now();
        let word = cut_to(&"x".repeat(2_000_000), 13.0, 120.0).unwrap();
        assert!(word.ends_with('…') && width_of(&word, 13.0).unwrap() <= 120.0);
        let one_more = word.replace('…', "x…");
        assert!(width_of(&one_more, 13.0).unwrap() > 120.0);
        let lines = wrapped_to(&"word ".repeat(400_000), 13.0, 120.0).unwrap();
        assert_eq!(lines.len(), MOST_LINES);
        assert!(lines[MOST_LINES - 1].ends_with('…'), "{lines:?}");
        assert!(
            lines[..MOST_LINES - 1]
                .iter()
                .all(|line| !line.contains('…'))
        );
        assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
    }

    /// Text that others write into an SVG is measured here.
    #[test]
    fn an_svg_has_smaller_numbers_for_sizes() {
        use plotters::backend::SVGBackend;
        use plotters::drawing::IntoDrawingArea as _;
        use plotters::style::BLACK;
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, (100, 100)).into_drawing_area();
            let at = (50.0, 50.0);
            let pen = Pen::new(&area, 1.0);
            pen.text("x", at, TextAnchor::Left, 10.0 * PLOTTERS_FONT_SCALE, BLACK)
                .unwrap();
            area.present().unwrap();
        }
        assert!(svg.contains(r#"font-size="10""#), "{svg}");
    }

    /// Two pieces of 10 points: strokes of 7, blanks of 4.5.
    #[test]
    fn dashes_run_around_corners() {
        let strokes = dashes(&[(0.0, 0.0), (10.0, 0.0), (10.0, 10.0)]);
        assert_eq!(strokes[0], [(0.0, 0.0), (7.0, 0.0)]);
        assert_eq!(strokes[1], [(10.0, 1.5), (10.0, 8.5)]);
        assert_eq!(strokes.len(), 2);
    }
}
