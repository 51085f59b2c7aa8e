//! How lines are told apart: by colour, and by the shape of their points for those who see no
//! colours.

use plotters::style::RGBColor;

/// The colours of Okabe and Ito (2008, `jfly.uni-koeln.de/color`) that stand out on white, the most
/// different first. Their yellow is too faint for a thin line.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0x00, 0x00, 0x00),
];

/// Text and axes.
pub const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
/// What matters less: subtitle, ticks, notes.
pub const FADED: RGBColor = RGBColor(0x5a, 0x5a, 0x5a);
/// Lines of the grid.
pub const GRID: RGBColor = RGBColor(0xe6, 0xe6, 0xe6);
/// Vertical lines at sizes that mean something.
pub const MARK: RGBColor = RGBColor(0xae, 0xae, 0xae);

/// What lies under lanes.
pub const GROUND: RGBColor = RGBColor(0xf3, 0xf3, 0xf3);

/// The shape of a line's points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A circle.
    Circle,
    /// A square on its side.
    Square,
    /// A triangle that points up.
    Triangle,
    /// A square on its corner.
    Diamond,
    /// A triangle that points down.
    Wedge,
}

const SHAPES: [Shape; 5] = [
    Shape::Circle,
    Shape::Square,
    Shape::Triangle,
    Shape::Diamond,
    Shape::Wedge,
];

/// Colour and shape of one line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Look {
    /// Its colour.
    pub colour: RGBColor,
    /// The shape of its points.
    pub shape: Shape,
}

/// Colours of areas, which are wide: the loud ones come late. From the same source, and a grey.
const AREAS: [RGBColor; 9] = [
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0xe6, 0x9f, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0x56, 0xb4, 0xe9),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0xf0, 0xe4, 0x42),
    RGBColor(0x8c, 0x8c, 0x8c),
    RGBColor(0x00, 0x00, 0x00),
];

/// The colour of areas of one kind: nine differ.
pub fn area_colour(kind: usize) -> RGBColor {
    AREAS[kind % AREAS.len()]
}

/// The look of the line at `index`: 35 differ.
pub fn look(index: usize) -> Look {
    Look {
        colour: COLOURS[index % COLOURS.len()],
        shape: SHAPES[index % SHAPES.len()],
    }
}

impl Shape {
    /// Its corners around `(0, 0)`, for a circle of radius `r` of about the same area; a circle is
    /// drawn by other means and has none.
    pub fn corners(self, r: f64) -> Vec<(f64, f64)> {
        let side = r * 0.89;
        let (tip, base, half) = (r * 1.35, r * 0.75, r * 1.25);
        match self {
            Self::Circle => Vec::new(),
            Self::Square => vec![(-side, -side), (side, -side), (side, side), (-side, side)],
            Self::Triangle => vec![(0.0, -tip), (half, base), (-half, base)],
            Self::Diamond => vec![(0.0, -tip), (tip, 0.0), (0.0, tip), (-tip, 0.0)],
            Self::Wedge => vec![(0.0, tip), (half, -base), (-half, -base)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_lines_of_a_figure_look_alike() {
        for one in 0..35 {
            assert!((0..one).all(|other| look(one) != look(other)), "{one}");
        }
    }
}
