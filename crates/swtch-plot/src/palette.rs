//! Tells lines apart: by colour, and by the shape of their points for those who see no colours.

use plotters::style::RGBColor;
use swtch_core::{Category, Reason};

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

/// Colour of titles, names and values.
pub const INK: RGBColor = RGBColor(0x22, 0x22, 0x22);
/// Colour of what matters less: subtitle, ticks, notes.
pub const FADED: RGBColor = RGBColor(0x5a, 0x5a, 0x5a);
/// Colour of the grid's lines.
pub const GRID: RGBColor = RGBColor(0xe6, 0xe6, 0xe6);
/// Colour of vertical lines at sizes that mean something.
pub const MARK: RGBColor = RGBColor(0xae, 0xae, 0xae);

/// Grounds of frames by how their time changed: much less, less, about the same, more, much more.
/// Pale, because names stand on them in [`INK`]. The blue and the red differ for colour-blind eyes,
/// too.
pub const CHANGES: [RGBColor; 5] = [
    RGBColor(0x7f, 0xb6, 0xe6),
    RGBColor(0xc9, 0xe1, 0xf5),
    RGBColor(0xe2, 0xe2, 0xe0),
    RGBColor(0xf9, 0xd0, 0xbf),
    RGBColor(0xf0, 0x8b, 0x6c),
];

/// Colour of the ground under lanes.
pub const GROUND: RGBColor = RGBColor(0xf3, 0xf3, 0xf3);

/// The shape of a line's points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A disc.
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
pub struct LineAppearance {
    /// The colour of line and points.
    pub colour: RGBColor,
    /// The shape of its points.
    pub shape: Shape,
}

/// The way in which an area is filled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fill {
    /// The colour of the area, or of its lines.
    pub colour: RGBColor,
    /// Share of its lane's height that it takes, from 0 to 1.
    pub height: f64,
    /// The texture that tells it from other areas of its colour.
    pub texture: Texture,
}

/// A texture, which tells areas of one colour apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Texture {
    /// One even colour.
    Plain,
    /// Lines over a paler ground.
    Hatched,
    /// The colour mixed with white.
    Pale,
}

/// Height of waits as a share of the lane's, as in `swtch view` (`web/src/timeline/palette.ts`).
const WAIT_HEIGHT: f64 = 0.6;

impl Fill {
    /// All of the height in one colour.
    pub const fn plain(colour: RGBColor) -> Self {
        Self {
            colour,
            height: 1.0,
            texture: Texture::Plain,
        }
    }

    /// The fill of a thread that has a CPU.
    pub const RUNNING: Self = Self::plain(RUNNING);

    /// The fill of a user-mode worker that has its turn. Its thread has a lane of its own.
    pub const WORKER: Self = Self::plain(WORKER);

    /// The fill of a thread that could run while another task has the CPU.
    pub const QUEUED: Self = Self::wait(category_colour(Category::Preemption), Texture::Hatched);

    /// The fill of a thread that is blocked, where its reason is not told.
    pub const BLOCKED: Self = Self::wait(category_colour(Category::Unknown), Texture::Plain);

    /// The fill of a thread that waits, with the colour of its reason.
    pub const fn wait(colour: RGBColor, texture: Texture) -> Self {
        Self {
            colour,
            height: WAIT_HEIGHT,
            texture,
        }
    }

    /// The ground between the lines of a hatched one.
    pub fn between_lines(self) -> RGBColor {
        mixed(self.colour, WHITE, 0.7)
    }

    /// Its colour where it is too small for a texture.
    pub fn blended_colour(self) -> RGBColor {
        match self.texture {
            Texture::Plain => self.colour,
            Texture::Hatched => mixed(self.colour, WHITE, 0.45),
            Texture::Pale => mixed(self.colour, WHITE, 0.55),
        }
    }
}

const WHITE: RGBColor = RGBColor(0xff, 0xff, 0xff);

/// A thread that has a CPU: `--running` of the page's style sheet
/// (`web/src/style/colours.css`, light), like the colours of the categories.
const RUNNING: RGBColor = RGBColor(0x0a, 0x8f, 0x69);
/// A worker that has its turn: `--worker` there.
const WORKER: RGBColor = RGBColor(0x54, 0x70, 0x8f);

/// The colour of a category, as `swtch view` has it in its light theme.
pub const fn category_colour(category: Category) -> RGBColor {
    match category {
        Category::Preemption => RGBColor(0xd5, 0x5e, 0x00),
        Category::Yield => RGBColor(0x97, 0x76, 0x0a),
        Category::Synchronization => RGBColor(0xb0, 0x45, 0x8c),
        Category::Io => RGBColor(0x1c, 0x7f, 0xc0),
        Category::Sleep => RGBColor(0x85, 0x8d, 0x9a),
        Category::Memory => RGBColor(0x8c, 0x1c, 0x3e),
        Category::Wait => RGBColor(0x5b, 0x4f, 0xc4),
        Category::Exit => RGBColor(0x34, 0x3a, 0x46),
        Category::Unknown => RGBColor(0x6e, 0x6a, 0x64),
    }
}

/// Share of white in the colours of a category's reasons, one after the other; as on the page
/// (`web/src/panels/colours.ts`).
const SHADES: [f64; 8] = [0.0, 0.3, 0.5, 0.15, 0.4, 0.6, 0.22, 0.7];

/// The colour of a reason: its category's, the reasons of one category in shades.
pub fn reason_colour(reason: Reason) -> RGBColor {
    let category = reason.category();
    let alike = Reason::ALL.iter().filter(|one| one.category() == category);
    let place = alike.take_while(|one| **one != reason).count();
    mixed(
        category_colour(category),
        WHITE,
        SHADES[place % SHADES.len()],
    )
}

/// `share` of the way from one colour to another.
fn mixed(from: RGBColor, to: RGBColor, share: f64) -> RGBColor {
    let part = |from: u8, to: u8| {
        let (from, to) = (f64::from(from), f64::from(to));
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between two bytes"
        )]
        let part = (from + (to - from) * share).round() as u8;
        part
    };
    RGBColor(part(from.0, to.0), part(from.1, to.1), part(from.2, to.2))
}

/// Colour and shape of the line at `index`; no two of the first 35 lines have both in common.
pub fn appearance_of(index: usize) -> LineAppearance {
    LineAppearance {
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

    /// A reader of pictures and of the page must not have to learn colours twice.
    #[test]
    fn colours_are_those_of_the_page() {
        let sheet = include_str!("../../../web/src/style/colours.css");
        let light = sheet.split("data-theme=\"dark\"").next().unwrap();
        let of_page = |name: &str| {
            let variable = format!("--{name}: #");
            let at = light.find(&variable).unwrap_or_else(|| panic!("{name}"));
            let digits = &light[at + variable.len()..][..6];
            let number = u32::from_str_radix(digits, 16).unwrap();
            let [_, r, g, b] = number.to_be_bytes();
            RGBColor(r, g, b)
        };
        assert_eq!(Fill::RUNNING.colour, of_page("running"));
        assert_eq!(Fill::WORKER.colour, of_page("worker"));
        for category in Category::ALL {
            assert_eq!(
                category_colour(*category),
                of_page(category.as_str()),
                "{category}"
            );
        }
        let panels = include_str!("../../../web/src/panels/colours.ts");
        let shades = SHADES.map(|shade| shade.to_string()).join(", ");
        assert!(panels.contains(&format!("SHADES = [{shades}]")), "{shades}");
    }

    #[test]
    fn reasons_of_one_category_differ() {
        for one in Reason::ALL {
            for other in Reason::ALL {
                assert!(one == other || reason_colour(*one) != reason_colour(*other));
            }
        }
    }

    #[test]
    fn no_two_lines_of_a_figure_look_alike() {
        for one in 0..35 {
            assert!(
                (0..one).all(|other| appearance_of(one) != appearance_of(other)),
                "{one}"
            );
        }
    }
}
