//! Pictures of the curves of a price list: what a switch costs over the size of something.
//!
//! Both axes are logarithmic: sizes and costs span decades. A cost of 0 or less has no place on
//! such an axis and is drawn hollow at the lower edge instead of being left out: it is a result.

use swtch_core::cost::{Curve, Origin, Point, PriceList};
use swtch_output::text::escaped;

use super::content::{Axis, Chart, Content, Dot, Line, Mark, Measure, Picture, Scale, Style};

/// Facts that are sizes in a figure: the figure, the fact, what its line is called.
const MARKS: &[(&str, &str, &str)] = &[
    ("working-set", "cache_l1d_bytes", "L1d"),
    ("working-set", "cache_l2_bytes", "L2"),
    ("working-set", "cache_l3_bytes", "L3"),
    ("tlb", "tlb_cliff_at", "TLB cliff"),
];

/// The figures of a price list, in the order of their first curves. Curves of one figure over
/// different sizes are different pictures.
pub fn figures(prices: &PriceList) -> Vec<Picture> {
    let mut groups: Vec<Vec<&Curve>> = Vec::new();
    for curve in &prices.curves {
        let is_of = |group: &&mut Vec<&Curve>| {
            group[0].figure == curve.figure && group[0].size_is == curve.size_is
        };
        match groups.iter_mut().find(is_of) {
            Some(group) => group.push(curve),
            None => groups.push(vec![curve]),
        }
    }
    groups.iter().map(|group| picture(prices, group)).collect()
}

fn picture(prices: &PriceList, curves: &[&Curve]) -> Picture {
    let Curve {
        figure, size_is, ..
    } = curves[0];
    let axis = |name, measure| Axis {
        name,
        measure,
        scale: Scale::Logarithmic,
    };
    let size = size_words(size_is);
    Picture {
        name: figure.clone(),
        title: format!("What a switch costs, by {size}"),
        subtitle: subtitle(&prices.origin),
        explanation: explanation(curves),
        notes: Vec::new(),
        content: Content::Chart(Chart {
            x: axis(size, measure_of(size_is)),
            y: axis("time per hop".to_owned(), Measure::Time),
            lines: curves.iter().map(|curve| line(curve)).collect(),
            marks: marks(prices, figure, measure_of(size_is)),
        }),
    }
}

fn line(curve: &Curve) -> Line {
    let mut points: Vec<Dot> = curve.points.iter().map(dot).collect();
    points.sort_by(|one, other| one.x.total_cmp(&other.x));
    Line {
        label: escaped(&curve.label).into_owned(),
        style: Style::Measured,
        colour: None,
        points,
    }
}

const fn dot(point: &Point) -> Dot {
    Dot {
        x: point.size,
        y: point.net_ns.point,
        interval: Some((point.net_ns.low, point.net_ns.high)),
    }
}

/// The size in words: `working set` for `working_set_bytes`.
fn size_words(size_is: &str) -> String {
    let name = size_is.strip_suffix("_bytes");
    escaped(name.unwrap_or(size_is)).replace('_', " ")
}

/// The measure of a quantity, by the unit at the end of its name ([`Curve::size_is`]).
fn measure_of(size_is: &str) -> Measure {
    if size_is.ends_with("_bytes") {
        Measure::Size
    } else {
        Measure::Count
    }
}

/// Processor, kernel, day and version of swtch, in one line.
pub fn subtitle(origin: &Origin) -> String {
    let day = origin.measured_at.split('T').next().unwrap_or_default();
    let line = format!(
        "{} · Linux {} · {day} · swtch {}",
        origin.cpu_model, origin.kernel_release, origin.swtch_version
    );
    escaped(&line).into_owned()
}

/// Says what a point and its bar are.
fn explanation(curves: &[&Curve]) -> String {
    let bars = match confidence(curves) {
        Some(confidence) => format!("{} % intervals", short_percent(confidence)),
        None => "intervals of their confidence".to_owned(),
    };
    format!("time per hop, less that of the same work hot and alone; bars are {bars}")
}

/// The confidence of all intervals; `None` when they differ.
fn confidence(curves: &[&Curve]) -> Option<f64> {
    let points = curves.iter().flat_map(|curve| &curve.points);
    let mut all = points.map(|point| point.net_ns.confidence);
    let first = all.next()?;
    all.all(|other| (other - first).abs() < 5e-4)
        .then_some(first)
}

/// `95` for 0.95, `98.4` for 0.984.
fn short_percent(share: f64) -> String {
    let text = format!("{:.1}", share * 100.0);
    text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
}

/// The sizes that mean something in the figure `name`, smallest first.
fn marks(prices: &PriceList, name: &str, measure: Measure) -> Vec<Mark> {
    let mut marks: Vec<Mark> = MARKS
        .iter()
        .filter(|(figure, ..)| *figure == name)
        .filter_map(|(_, fact, word)| {
            let fact = prices.facts.iter().find(|known| known.name == *fact)?;
            let at: f64 = fact.value.as_deref()?.parse().ok()?;
            let label = format!("{word} {}", measure.text(at));
            Some(Mark { at, label })
        })
        .collect();
    marks.sort_by(|one, other| one.at.total_cmp(&other.at));
    marks
}

#[cfg(test)]
mod tests {
    use swtch_fixtures::curves::{prices, worst_case};

    use super::*;

    fn chart(picture: &Picture) -> &Chart {
        let Content::Chart(chart) = &picture.content else {
            panic!("a chart")
        };
        chart
    }

    #[test]
    fn curves_of_one_figure_share_a_picture() {
        let figures = figures(&prices());
        let names: Vec<_> = figures.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["working-set", "tlb", "branches"]);
        assert_eq!(chart(&figures[0]).lines.len(), 4);
    }

    #[test]
    fn cache_sizes_are_marked_where_the_facts_have_them() {
        let figure = &figures(&prices())[0];
        let marks = chart(figure).marks.iter();
        let labels: Vec<_> = marks.map(|mark| mark.label.as_str()).collect();
        assert_eq!(labels, ["L1d 48 KiB", "L2 2 MiB", "L3 36 MiB"]);
        let mut unknown = prices();
        unknown.facts.clear();
        assert!(chart(&super::figures(&unknown)[0]).marks.is_empty());
    }

    #[test]
    fn head_says_what_where_and_when() {
        let figure = &figures(&prices())[0];
        assert_eq!(figure.title, "What a switch costs, by working set");
        assert_eq!(
            figure.subtitle,
            "Intel(R) Core(TM) i7-13700K · Linux 6.18.5-generic · 2026-03-02 · swtch 0.1.0"
        );
        assert!(figure.explanation.ends_with("95 % intervals"));
    }

    /// A cost that is not resolved is a result: it is neither dropped nor moved in silence.
    #[test]
    fn what_cannot_be_placed_is_told_in_a_note() {
        let notes = |picture: &Picture| chart(picture).notes();
        assert_eq!(
            notes(&figures(&worst_case())[0]),
            [
                "hollow points at the lower edge: 0 or less",
                "bars down to the lower edge: the interval holds 0 or ends near it",
                "1 point without a place on the axes is not shown"
            ]
        );
        assert!(notes(&figures(&prices())[1]).is_empty());
    }

    #[test]
    fn the_unit_is_the_end_of_the_name() {
        assert_eq!(measure_of("working_set_bytes"), Measure::Size);
        assert_eq!(measure_of("branches"), Measure::Count);
    }
}
