//! The legend of a picture, in rows below its words: for lanes and dots, which have no lines that
//! could carry a name at their end.

use anyhow::Result;
use plotters::prelude::DrawingBackend;

use super::layout::{MARGIN, SMALL, WIDTH};
use super::palette::{Fill, INK, appearance_of};
use super::pen::{Pen, TextAnchor, cut_to, width_of};

/// Height of a row, in points.
const ROW: f64 = 22.0;
/// Distance from a sample to its name, in points.
const INDENT: f64 = 20.0;
/// Distance from a name to the next sample, in points.
const GAP: f64 = 26.0;

/// The sample beside a name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LegendSample {
    /// An area with the fill that it explains.
    Area(Fill),
    /// The point of the line with this index.
    Point(usize),
}

/// Names with their samples, in rows.
#[derive(Debug, Default)]
pub struct Legend {
    entries: Vec<Entry>,
}

/// A name and its sample, with the distance from the left in points, and the row.
#[derive(Debug)]
struct Entry {
    name: String,
    sample: LegendSample,
    x: f64,
    row: u8,
}

impl Legend {
    /// Sets names in rows.
    ///
    /// # Errors
    /// The font cannot be measured.
    pub fn of<'a>(names: impl IntoIterator<Item = (&'a str, LegendSample)>) -> Result<Self> {
        let right = WIDTH - MARGIN;
        let mut entries = Vec::new();
        let (mut x, mut row) = (MARGIN, 0);
        for (name, sample) in names {
            let name = cut_to(name, SMALL, right - MARGIN - INDENT)?;
            let width = INDENT + width_of(&name, SMALL)?;
            if x > MARGIN && x + width > right {
                (x, row) = (MARGIN, row + 1);
            }
            entries.push(Entry {
                name,
                sample,
                x,
                row,
            });
            x += width + GAP;
        }
        Ok(Self { entries })
    }

    /// Height in points; 0 without names.
    pub fn height(&self) -> f64 {
        let last = self.entries.last();
        last.map_or(0.0, |entry| (f64::from(entry.row) + 1.0) * ROW + 6.0)
    }

    /// Draws it below `top`.
    ///
    /// # Errors
    /// The backend cannot draw.
    pub fn draw<B: DrawingBackend>(&self, top: f64, pen: &Pen<'_, B>) -> Result<()> {
        for Entry {
            name,
            sample,
            x,
            row,
        } in &self.entries
        {
            let y = top + (f64::from(*row) + 0.5) * ROW;
            match sample {
                LegendSample::Area(fill) => {
                    let (upper, lower) = (y - 6.0, y + 6.0);
                    let upper = lower - fill.height * (lower - upper);
                    pen.area((*x, upper), (*x + 13.0, lower), *fill)?;
                }
                LegendSample::Point(index) => {
                    pen.point((*x + 7.0, y), appearance_of(*index), true)?
                }
            }
            pen.text(name, (*x + INDENT, y), TextAnchor::Left, SMALL, INK)?;
        }
        Ok(())
    }
}
