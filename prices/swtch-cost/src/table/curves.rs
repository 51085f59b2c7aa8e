//! Curves as tables: a row per size, a column per curve.

use swtch_core::cost::{Curve, Point, PriceList};
use swtch_output::text::{self, CellAlignment, grouped, nanos};

/// The tables of all figures, as lines.
pub fn lines(list: &PriceList) -> Vec<String> {
    let mut figures: Vec<&str> = Vec::new();
    for curve in &list.curves {
        if !figures.contains(&curve.figure.as_str()) {
            figures.push(&curve.figure);
        }
    }
    figures
        .iter()
        .flat_map(|figure| {
            let curves = list.curves.iter().filter(|curve| curve.figure == **figure);
            figure_lines(figure, &curves.collect::<Vec<_>>())
        })
        .collect()
}

fn figure_lines(figure: &str, curves: &[&Curve]) -> Vec<String> {
    let mut sizes: Vec<f64> = curves
        .iter()
        .flat_map(|curve| curve.points.iter().map(|point| point.size))
        .collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    let (title, size_head) = heads(figure);
    let mut head = vec![(size_head.to_owned(), CellAlignment::Right)];
    head.extend(
        curves
            .iter()
            .map(|curve| (curve.label.clone(), CellAlignment::Right)),
    );
    let row = |size: &f64| {
        let mut cells = vec![size_words(curves, *size)];
        cells.extend(curves.iter().map(|curve| cell(curve, *size)));
        cells
    };
    let rows: Vec<Vec<String>> = sizes.iter().map(row).collect();
    let mut lines = vec![String::new(), title.to_owned()];
    lines.extend(text::columns(&head, &rows, None));
    lines
}

fn heads(figure: &str) -> (&'static str, &'static str) {
    match figure {
        "working-set" => (
            "What a switch costs afterwards: memory to fetch again (net ns per hop)",
            "walked each turn",
        ),
        "tlb" => (
            "Rings of growing size: address spaces and pages to look up again (net ns per hop)",
            "members",
        ),
        "branches" => (
            "Branches that must be learned again (net ns per hop)",
            "branches",
        ),
        _ => ("Cost against size (net ns per hop)", "size"),
    }
}

/// The net price with how far its interval reaches.
fn cell(curve: &Curve, size: f64) -> String {
    let is_here = |point: &&Point| point.size.total_cmp(&size).is_eq();
    let Some(point) = curve.points.iter().find(is_here) else {
        return "-".to_owned();
    };
    let net = &point.net_ns;
    let reach = (net.high - net.point).max(net.point - net.low);
    format!("{} ±{}", nanos(net.point), nanos(reach))
}

fn size_words(curves: &[&Curve], size: f64) -> String {
    let is_bytes = curves.iter().any(|curve| curve.size_is.ends_with("_bytes"));
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "sizes are whole and far below 2^53"
    )]
    let whole = size as u64;
    match whole {
        _ if !is_bytes => grouped(whole),
        0..1_048_576 => format!("{} KiB", whole / 1024),
        _ => format!("{} MiB", whole / 1_048_576),
    }
}
