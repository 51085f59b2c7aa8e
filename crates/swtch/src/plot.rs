//! Pictures of the curves of a price list: what a switch costs against the size of something.
//!
//! ```text
//! PriceList ──figures──▶ Figure ──draw──▶ pen ──▶ SVG (text stays text)
//!            by figure     │               └────▶ PNG (twice as many pixels, smoothed)
//!                          └ marks: cache sizes and the like, from the facts
//! ```
//!
//! Both axes are logarithmic: sizes and costs span decades. A cost of 0 or less has no place on
//! such an axis and is drawn hollow at the lower edge instead of being left out: it is a result.
//! Colours and shapes both tell the lines apart ([`palette`]), the names stand at their ends
//! ([`spread`]), and the font is within the program, because machines that measure often have none.
//!
//! What it does not do: measure, judge, or choose what is shown.

use std::path::Path;

use anyhow::Result;
use swtch_core::cost::{Curve, Origin, Point, PriceList};

use crate::text::escaped;

mod draw;
#[cfg(test)]
pub mod made_up;
mod palette;
mod pen;
mod picture;
mod scale;
mod spread;

pub use picture::check_path;

use scale::Unit;

/// Facts that are sizes in a figure: the figure, the fact, what its line is called.
const MARKS: &[(&str, &str, &str)] = &[
    ("working-set", "cache_l1d_bytes", "L1d"),
    ("working-set", "cache_l2_bytes", "L2"),
    ("working-set", "cache_l3_bytes", "L3"),
    ("tlb", "tlb_cliff_at", "TLB cliff"),
];

/// Curves that belong into one picture.
#[derive(Clone, Debug)]
pub struct Figure {
    name: String,
    size_is: String,
    curves: Vec<Curve>,
    marks: Vec<Mark>,
    subtitle: String,
}

/// A size that means something.
#[derive(Clone, Debug, PartialEq)]
struct Mark {
    size: f64,
    label: String,
}

/// The figures of a price list, in the order in which their first curves stand in it. Curves of one
/// figure against different sizes are different pictures.
pub fn figures(prices: &PriceList) -> Vec<Figure> {
    let mut figures: Vec<Figure> = Vec::new();
    for curve in &prices.curves {
        let place = figures
            .iter()
            .position(|known| known.name == curve.figure && known.size_is == curve.size_is);
        let place = place.unwrap_or_else(|| {
            figures.push(Figure::empty(prices, &curve.figure, &curve.size_is));
            figures.len() - 1
        });
        figures[place].add(curve);
    }
    figures
}

impl Figure {
    fn empty(prices: &PriceList, name: &str, size_is: &str) -> Self {
        Self {
            name: name.to_owned(),
            size_is: size_is.to_owned(),
            curves: Vec::new(),
            marks: marks(prices, name, Unit::of(size_is)),
            subtitle: subtitle(&prices.origin),
        }
    }

    fn add(&mut self, curve: &Curve) {
        let mut curve = curve.clone();
        curve.label = escaped(&curve.label).into_owned();
        curve
            .points
            .sort_by(|one, other| one.size.total_cmp(&other.size));
        self.curves.push(curve);
    }

    /// Its name, which may serve as that of a file: `working-set`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes it as SVG or PNG, by the end of the file's name.
    ///
    /// # Errors
    /// When the name ends otherwise, or the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        picture::write(self, path)
    }

    /// What the picture shows, in one line.
    fn title(&self) -> String {
        format!("What a switch costs, by {}", self.size_words())
    }

    /// Where and when it was measured.
    fn subtitle(&self) -> &str {
        &self.subtitle
    }

    /// What a point and its bar are.
    fn explanation(&self) -> String {
        let bars = match self.confidence() {
            Some(confidence) => format!("{} % intervals", short_percent(confidence)),
            None => "intervals of their confidence".to_owned(),
        };
        format!("time per hop, less that of the same work hot and alone; bars are {bars}")
    }

    /// The confidence of all intervals; `None` when they differ.
    fn confidence(&self) -> Option<f64> {
        let mut all = self.points().map(|point| point.net_ns.confidence);
        let first = all.next()?;
        all.all(|other| (other - first).abs() < 5e-4)
            .then_some(first)
    }

    /// What must be said about points that are not where their numbers are.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut placed = self.points().filter(|point| draw::has_a_place(point));
        if placed.clone().any(|point| !draw::is_above_zero(point)) {
            notes.push("hollow points at the lower edge: 0 ns or less".to_owned());
        }
        if placed.any(|Point { net_ns, .. }| net_ns.low <= 0.0 && net_ns.high > 0.0) {
            notes.push(
                "bars down to the lower edge: the interval holds 0 or ends near it".to_owned(),
            );
        }
        let nowhere = self.points().filter(|point| !draw::has_a_place(point));
        match nowhere.count() {
            0 => {}
            1 => notes.push("1 point at size 0 is not shown".to_owned()),
            count => notes.push(format!("{count} points at size 0 are not shown")),
        }
        notes
    }

    fn points(&self) -> impl Iterator<Item = &Point> + Clone {
        self.curves.iter().flat_map(|curve| &curve.points)
    }

    fn curves(&self) -> &[Curve] {
        &self.curves
    }

    fn marks(&self) -> &[Mark] {
        &self.marks
    }

    fn size_is(&self) -> &str {
        &self.size_is
    }

    /// The size in words: `working set` for `working_set_bytes`.
    fn size_words(&self) -> String {
        let name = self.size_is.strip_suffix("_bytes");
        escaped(name.unwrap_or(&self.size_is)).replace('_', " ")
    }

    /// All sizes at which something was measured, each once.
    fn measured_sizes(&self) -> Vec<f64> {
        let placed = self.points().filter(|point| draw::has_a_place(point));
        let mut sizes: Vec<f64> = placed.map(|point| point.size).collect();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        sizes
    }
}

/// `95` for 0.95, `98.4` for 0.984.
fn short_percent(share: f64) -> String {
    let text = format!("{:.1}", share * 100.0);
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// Host, kernel and day.
fn subtitle(origin: &Origin) -> String {
    let day = origin.measured_at.split('T').next().unwrap_or_default();
    let line = format!(
        "{} · Linux {} · {day} · swtch {}",
        origin.cpu_model, origin.kernel_release, origin.swtch_version
    );
    escaped(&line).into_owned()
}

/// The sizes that mean something in the figure `name`, smallest first.
fn marks(prices: &PriceList, name: &str, unit: Unit) -> Vec<Mark> {
    let mut marks: Vec<Mark> = MARKS
        .iter()
        .filter(|(figure, ..)| *figure == name)
        .filter_map(|(_, fact, word)| {
            let fact = prices.facts.iter().find(|known| known.name == *fact)?;
            let size: f64 = fact.value.as_deref()?.parse().ok()?;
            let label = format!("{word} {}", unit.text(size));
            Some(Mark { size, label })
        })
        .collect();
    marks.sort_by(|one, other| one.size.total_cmp(&other.size));
    marks
}

#[cfg(test)]
mod tests {
    use super::made_up::{prices, worst_case};
    use super::*;

    #[test]
    fn curves_of_one_figure_share_a_picture() {
        let figures = figures(&prices());
        let names: Vec<_> = figures.iter().map(Figure::name).collect();
        assert_eq!(names, ["working-set", "tlb", "branches"]);
        assert_eq!(figures[0].curves.len(), 4);
    }

    #[test]
    fn cache_sizes_are_marked_where_the_facts_have_them() {
        let figure = &figures(&prices())[0];
        let labels: Vec<_> = figure
            .marks
            .iter()
            .map(|mark| mark.label.as_str())
            .collect();
        assert_eq!(labels, ["L1d 48 KiB", "L2 2 MiB", "L3 36 MiB"]);
        let mut unknown = prices();
        unknown.facts.clear();
        assert!(super::figures(&unknown)[0].marks.is_empty());
    }

    #[test]
    fn head_says_what_where_and_when() {
        let figure = &figures(&prices())[0];
        assert_eq!(figure.title(), "What a switch costs, by working set");
        assert_eq!(
            figure.subtitle(),
            "Intel(R) Core(TM) i7-13700K · Linux 6.18.5-generic · 2026-03-02 · swtch 0.1.0"
        );
        assert!(figure.explanation().ends_with("95 % intervals"));
    }

    /// A cost that is not resolved is a result: it is neither dropped nor moved in silence.
    #[test]
    fn what_cannot_be_placed_is_told_in_a_note() {
        let figure = &figures(&worst_case())[0];
        assert_eq!(
            figure.notes(),
            [
                "hollow points at the lower edge: 0 ns or less",
                "bars down to the lower edge: the interval holds 0 or ends near it",
                "1 point at size 0 is not shown"
            ]
        );
        assert!(figures(&prices())[1].notes().is_empty());
    }

    #[test]
    fn text_of_an_svg_stays_text_and_is_escaped() {
        let mut list = prices();
        list.curves[0].label = "<b>&\u{1b}".to_owned();
        let svg = picture::to_svg(&figures(&list)[0]).unwrap();
        assert!(svg.contains("What a switch costs, by working set"));
        assert!(svg.contains("&lt;b&gt;&amp;\\x1b"), "hostile label");
        assert!(svg.starts_with(r#"<svg width="960" height="600""#));
    }

    #[test]
    fn files_of_both_formats_are_written() {
        let dir = tempfile::tempdir().unwrap();
        for list in [prices(), worst_case()] {
            for figure in figures(&list) {
                for (end, magic) in [("svg", b"<svg".as_slice()), ("png", b"\x89PNG")] {
                    let path = dir.path().join(format!("{}.{end}", figure.name()));
                    figure.write(&path).unwrap();
                    assert!(std::fs::read(&path).unwrap().starts_with(magic));
                }
            }
        }
    }

    /// For the eye: `SWTCH_PICTURES=DIR cargo test -p swtch pictures_to_look_at`.
    #[test]
    fn pictures_to_look_at_are_left_where_the_environment_says() {
        let Some(dir) = std::env::var_os("SWTCH_PICTURES") else {
            return;
        };
        for (name, list) in [("good", prices()), ("worst", worst_case())] {
            for figure in figures(&list) {
                for end in ["png", "svg"] {
                    let file = format!("{name}-{}.{end}", figure.name());
                    figure.write(&Path::new(&dir).join(file)).unwrap();
                }
            }
        }
    }
}
