//! What colours mean, in rows below the words of a picture: for lanes and dots, which have no lines at
//! whose ends a name could stand.

use anyhow::Result;
use plotters::prelude::DrawingBackend;

use super::layout::{MARGIN, SMALL, WIDTH};
use super::palette::{INK, area_colour, look};
use super::pen::{Anchor, Pen, cut_to, width_of};

/// Height of a row.
const ROW: f64 = 22.0;
/// From a sample to its name.
const INDENT: f64 = 20.0;
/// From a name to the next sample.
const GAP: f64 = 26.0;

/// What stands beside a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// An area of its colour.
    Area,
    /// A point of its colour and shape.
    Point,
}

/// Names in rows.
#[derive(Debug, Default)]
pub struct Legend {
    /// Each name with its place: from the left, and the row.
    names: Vec<(String, f64, u8)>,
}

impl Legend {
    /// Sets names in rows; the index of a name says its colour.
    ///
    /// # Errors
    /// The font cannot be measured.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let right = WIDTH - MARGIN;
        let mut placed = Vec::new();
        let (mut x, mut row) = (MARGIN, 0);
        for name in names {
            let name = cut_to(name, SMALL, right - MARGIN - INDENT)?;
            let width = INDENT + width_of(&name, SMALL)?;
            if x > MARGIN && x + width > right {
                (x, row) = (MARGIN, row + 1);
            }
            placed.push((name, x, row));
            x += width + GAP;
        }
        Ok(Self { names: placed })
    }

    /// How high it is; 0 without names.
    pub fn height(&self) -> f64 {
        let last = self.names.last();
        last.map_or(0.0, |(_, _, row)| (f64::from(*row) + 1.0) * ROW + 6.0)
    }

    /// Draws it below `top`.
    ///
    /// # Errors
    /// The backend cannot draw.
    pub fn draw<B: DrawingBackend>(
        &self,
        sample: Sample,
        top: f64,
        pen: &Pen<'_, B>,
    ) -> Result<()> {
        for (index, (name, x, row)) in self.names.iter().enumerate() {
            let y = top + (f64::from(*row) + 0.5) * ROW;
            match sample {
                Sample::Area => {
                    pen.fill((*x, y - 6.0), (*x + 13.0, y + 6.0), area_colour(index))?
                }
                Sample::Point => pen.point((*x + 7.0, y), look(index), true)?,
            }
            pen.text(name, (*x + INDENT, y), Anchor::Left, SMALL, INK)?;
        }
        Ok(())
    }
}
