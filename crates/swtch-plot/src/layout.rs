//! Places the parts of a picture: the words above, the drawing, the notes below.
//!
//! ```text
//!   title                            what is shown
//!   subtitle                         where and when it was measured
//!   explanation                      what a point, a bar or a colour is
//!   ┌──────────────────────────────┐ top
//!   │ chart, lanes or dots         │
//!   └──────────────────────────────┘ bottom
//!   notes                            what is not where its number is
//! ```
//!
//! All lengths are points from the top left corner. Words that are too wide continue on the next
//! line, and the picture becomes higher.

use anyhow::Result;
use plotters::prelude::DrawingBackend;

use super::content::{Content, Picture};
use super::palette::{FADED, INK};
use super::pen::{Pen, TextAnchor, wrapped_to};
use super::{chart, dots, lanes};
use plotters::style::RGBColor;

/// Width of a picture in points.
pub const WIDTH: f64 = 960.0;
/// Margin on all sides, in points.
pub const MARGIN: f64 = 24.0;
/// Font size of names, in points.
pub const TEXT: f64 = 15.0;
/// Font size of what matters less, such as ticks and notes, in points.
pub const SMALL: f64 = 13.5;

const TITLE: f64 = 23.0;

/// The places of the parts of a picture.
#[derive(Debug)]
pub struct Layout {
    words: Vec<PlacedText>,
    /// Upper edge of the drawing, in points.
    pub top: f64,
    /// Lower edge of the drawing, in points.
    pub bottom: f64,
    /// Height of the whole, in whole points.
    pub height: u32,
}

#[derive(Debug)]
struct PlacedText {
    text: String,
    /// Height of the middle of its letters, from the top.
    y: f64,
    size: f64,
    colour: RGBColor,
}

impl Layout {
    /// Places all parts of a picture.
    ///
    /// # Errors
    /// The font cannot be measured.
    pub fn of(picture: &Picture) -> Result<Self> {
        let mut column = TextColumn {
            words: Vec::new(),
            y: 16.0,
        };
        column.push(&picture.title, TITLE, INK, 31.0)?;
        column.push(&picture.subtitle, TEXT, FADED, 22.0)?;
        column.push(&picture.explanation, SMALL, FADED, 19.0)?;
        let top = column.y + 10.0;
        let bottom = top + height_of(&picture.content)?;
        column.y = bottom + 4.0;
        for note in notes(picture) {
            column.push(&note, SMALL, FADED, 19.0)?;
        }
        Ok(Self {
            words: column.words,
            top,
            bottom,
            height: whole(column.y + 14.0),
        })
    }

    /// Draws the picture.
    ///
    /// # Errors
    /// The backend cannot draw.
    pub fn draw<B: DrawingBackend>(&self, picture: &Picture, pen: &Pen<'_, B>) -> Result<()> {
        pen.clear()?;
        for words in &self.words {
            let at = (MARGIN, words.y);
            pen.text(&words.text, at, TextAnchor::Left, words.size, words.colour)?;
        }
        let between = (self.top, self.bottom);
        match &picture.content {
            Content::Chart(chart) => chart::draw(chart, between, pen),
            Content::Lanes(lanes) => lanes::draw(lanes, between, pen),
            Content::Dots(dots) => dots::draw(dots, between, pen),
        }
    }
}

/// Words one below the other.
struct TextColumn {
    words: Vec<PlacedText>,
    y: f64,
}

impl TextColumn {
    fn push(&mut self, text: &str, size: f64, colour: RGBColor, line_height: f64) -> Result<()> {
        for text in wrapped_to(text, size, WIDTH - 2.0 * MARGIN)? {
            self.words.push(PlacedText {
                text,
                y: self.y + line_height / 2.0,
                size,
                colour,
            });
            self.y += line_height;
        }
        Ok(())
    }
}

fn height_of(content: &Content) -> Result<f64> {
    match content {
        Content::Chart(_) => Ok(chart::HEIGHT),
        Content::Lanes(lanes) => lanes::height(lanes),
        Content::Dots(dots) => dots::height(dots),
    }
}

/// The picture's own notes, and those that drawing it adds.
fn notes(picture: &Picture) -> Vec<String> {
    let mut notes = picture.notes.clone();
    notes.extend(match &picture.content {
        Content::Chart(chart) => chart.notes(),
        Content::Lanes(lanes) => lanes.notes(),
        Content::Dots(dots) => dots.notes(),
    });
    // A note that ends in a full stop is a sentence and gets a line of its own.
    let (sentences, words): (Vec<_>, Vec<_>) =
        notes.into_iter().partition(|note| note.ends_with('.'));
    let words = words.join("; ");
    sentences
        .into_iter()
        .chain((!words.is_empty()).then_some(words))
        .collect()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "heights of pictures are some hundreds of points"
)]
fn whole(height: f64) -> u32 {
    height.ceil() as u32
}
