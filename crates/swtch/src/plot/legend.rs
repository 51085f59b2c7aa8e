//! What colours mean, in rows below the words of a picture: for lanes and dots, which have no lines at
//! whose ends a name could stand.

use anyhow::Result;
use plotters::prelude::DrawingBackend;

use super::layout::{MARGIN, SMALL, WIDTH};
use super::palette::{Fill, INK, look};
use super::pen::{Anchor, Pen, cut_to, width_of};

/// Height of a row.
const ROW: f64 = 22.0;
/// From a sample to its name.
const INDENT: f64 = 20.0;
/// From a name to the next sample.
const GAP: f64 = 26.0;

/// What stands beside a name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sample {
    /// An area that is filled like what it stands for.
    Area(Fill),
    /// The point of the line with this index.
    Point(usize),
}

/// Names in rows.
#[derive(Debug, Default)]
pub struct Legend {
    entries: Vec<Entry>,
}

/// A name, its sample, and where it stands: from the left, and the row.
#[derive(Debug)]
struct Entry {
    name: String,
    sample: Sample,
    x: f64,
    row: u8,
}

impl Legend {
    /// Sets names in rows.
    ///
    /// # Errors
    /// The font cannot be measured.
    pub fn of<'a>(names: impl IntoIterator<Item = (&'a str, Sample)>) -> Result<Self> {
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

    /// How high it is; 0 without names.
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
                Sample::Area(fill) => {
                    let (upper, lower) = (y - 6.0, y + 6.0);
                    let upper = lower - fill.height * (lower - upper);
                    pen.area((*x, upper), (*x + 13.0, lower), *fill)?;
                }
                Sample::Point(index) => pen.point((*x + 7.0, y), look(*index), true)?,
            }
            pen.text(name, (*x + INDENT, y), Anchor::Left, SMALL, INK)?;
        }
        Ok(())
    }
}
