//! Tables and figures of the footprint of switches.

use swtch_core::cost::{Estimate, NamedContrast};
use swtch_plot::Picture;
use swtch_plot::content::{Axis, Chart, Content, Dots, Line, Mark, Measure, Scale, Style};
use swtch_report::report::{Cell, Sheet};

use super::{IndirectCost, LINE, PlaceCost, WorkingSetCosts};
use crate::findings::FindingsTable;
use crate::parameters::ParameterValue;
use crate::timed::{self, WHISKERS, cell, cells, dot, named_dot, scaled, subtitle};

pub fn sets_table(sets: &WorkingSetCosts) -> FindingsTable {
    let mut sheet = Sheet::new(
        "footprint",
        &[
            "working_set",
            "working_set_bytes",
            "walk_ns",
            "random_ns",
            "random_half_width_ns",
            "random_low_ns",
            "random_high_ns",
            "per_line_ns",
            "sequential_ns",
            "sequential_half_width_ns",
            "sequential_low_ns",
            "sequential_high_ns",
            "shared_ns",
            "shared_half_width_ns",
            "shared_low_ns",
            "shared_high_ns",
        ],
    );
    sheet.not_in_tables = &[
        "working_set_bytes",
        "random_low_ns",
        "random_high_ns",
        "sequential_low_ns",
        "sequential_high_ns",
        "shared_low_ns",
        "shared_high_ns",
    ];
    let controls = sets.sequential.iter().zip(&sets.shared);
    let row = |(random, (sequential, shared)): (&IndirectCost, (&IndirectCost, &IndirectCost))| {
        let mut all = vec![
            size_cell(random.size),
            Cell::Count(random.size),
            cell(random.walk.as_ref()),
        ];
        all.extend(cells(random.indirect.as_ref()));
        all.push(cell(random.per_line(random.size / LINE).as_ref()));
        all.extend(cells(sequential.indirect.as_ref()));
        all.extend(cells(shared.indirect.as_ref()));
        all
    };
    sheet.rows = sets.random.iter().zip(controls).map(row).collect();
    let title = "What a switch costs afterwards, by memory that each process walks over: at random, by \
                 address, and over memory that both share";
    FindingsTable::new(title, sheet)
}

impl IndirectCost {
    /// The indirect cost of each of so many lines.
    fn per_line(&self, lines: u64) -> Option<Estimate> {
        let indirect = self.indirect.as_ref()?;
        Some(scaled(indirect, 1.0 / lines as f64))
    }
}

fn size_cell(bytes: u64) -> Cell {
    Cell::text(ParameterValue::Size(bytes).to_string())
}

pub fn sets_picture(sets: &WorkingSetCosts) -> Picture {
    let spot = |cost: &IndirectCost| Some(dot(cost.size as f64, cost.indirect.as_ref()?));
    let line = |label: &str, costs: &[IndirectCost]| {
        Line::new(label, Style::Measured, costs.iter().filter_map(spot))
    };
    let mut lines = vec![
        line("private, at random", &sets.random),
        line("private, by address", &sets.sequential),
        line("shared (control)", &sets.shared),
    ];
    lines.extend(sets.direct.map(|direct| {
        let sizes = sets.random.iter();
        let points = sizes.map(|cost| dot(cost.size as f64, &direct));
        Line::new("the switch itself", Style::Ideal, points)
    }));
    Picture {
        name: "footprint".to_owned(),
        title: "What a switch costs afterwards, by memory".to_owned(),
        subtitle: subtitle(),
        explanation: format!(
            "Net of the walk itself, hot and alone, and of a switch without memory. {WHISKERS}"
        ),
        notes: Vec::new(),
        content: Content::Chart(Chart {
            x: sizes_axis("memory that each process walks over"),
            y: time_axis("time per switch"),
            lines,
            marks: cache_marks(),
        }),
    }
}

fn sizes_axis(name: &str) -> Axis {
    Axis::new(name, Measure::Size, Scale::Logarithmic)
}

fn time_axis(name: &str) -> Axis {
    Axis::new(name, Measure::Time, Scale::Logarithmic)
}

/// The sizes of the caches, where the kernel shows them.
fn cache_marks() -> Vec<Mark> {
    let caches = [
        ("cache_l1d_bytes", "L1d"),
        ("cache_l2_bytes", "L2"),
        ("cache_l3_bytes", "L3"),
    ];
    let mark = |(fact, label): (&str, &str)| {
        Some(Mark {
            at: timed::fact_value(fact)?.parse().ok()?,
            label: label.to_owned(),
        })
    };
    caches.into_iter().filter_map(mark).collect()
}

pub fn strides_table(strides: &[IndirectCost], reach: u64) -> FindingsTable {
    let mut sheet = Sheet::new(
        "footprint-stride",
        &[
            "stride",
            "stride_bytes",
            "lines",
            "walk_ns",
            "indirect_ns",
            "indirect_half_width_ns",
            "indirect_low_ns",
            "indirect_high_ns",
            "per_line_ns",
        ],
    );
    sheet.not_in_tables = &["stride_bytes", "indirect_low_ns", "indirect_high_ns"];
    let row = |cost: &IndirectCost| {
        let lines = reach / cost.size;
        let mut all = vec![
            size_cell(cost.size),
            Cell::Count(cost.size),
            Cell::Count(lines),
            cell(cost.walk.as_ref()),
        ];
        all.extend(cells(cost.indirect.as_ref()));
        all.push(cell(cost.per_line(lines).as_ref()));
        all
    };
    sheet.rows = strides.iter().map(row).collect();
    FindingsTable::new(
        format!(
            "What a switch costs afterwards, by the distance of the lines over {}",
            ParameterValue::Size(reach)
        ),
        sheet,
    )
}

pub fn strides_picture(strides: &[IndirectCost], reach: u64) -> Picture {
    let point = |cost: &IndirectCost| {
        let lost = cost.per_line(reach / cost.size)?;
        Some(dot(cost.size as f64, &lost))
    };
    Picture {
        name: "footprint-stride".to_owned(),
        title: "What a switch costs afterwards for each line, by their distance".to_owned(),
        subtitle: subtitle(),
        explanation: format!(
            "Lines at random over {} of each process. {WHISKERS}",
            ParameterValue::Size(reach)
        ),
        notes: Vec::new(),
        content: Content::Chart(Chart {
            x: sizes_axis("from line to line"),
            y: time_axis("time per line and switch"),
            lines: vec![Line::new(
                "private, at random",
                Style::Measured,
                strides.iter().filter_map(point),
            )],
            marks: Vec::new(),
        }),
    }
}

pub fn registers_table(contrasts: &[NamedContrast]) -> FindingsTable {
    let mut sheet = Sheet::new(
        "footprint-registers",
        &[
            "registers",
            "adds_ns",
            "adds_half_width_ns",
            "adds_low_ns",
            "adds_high_ns",
            "ratio",
            "seen",
        ],
    );
    sheet.not_in_tables = &["adds_low_ns", "adds_high_ns"];
    let row = |contrast: &NamedContrast| {
        let mut all = vec![Cell::text(contrast.about.as_str())];
        all.extend(cells(Some(&contrast.difference_ns)));
        all.push(Cell::Ratio(contrast.ratio.point));
        let proof = contrast.proof.as_deref();
        all.push(proof.map_or(Cell::Missing, Cell::text));
        all
    };
    sheet.rows = contrasts.iter().map(row).collect();
    FindingsTable::new(
        "What register state adds to a switch: in use instead of cleared",
        sheet,
    )
}

pub fn registers_picture(contrasts: &[NamedContrast]) -> Picture {
    let row = |contrast: &NamedContrast| named_dot(&contrast.name, None, &contrast.difference_ns);
    Picture {
        name: "footprint-registers".to_owned(),
        title: "What register state adds to a switch".to_owned(),
        subtitle: subtitle(),
        explanation: "In use at the switch instead of cleared, by the same ring in turn. Bars: intervals over fresh process \
             trees, 95 % for all of them together.".to_owned(),
        notes: Vec::new(),
        content: Content::Dots(Dots {
            axis: Axis::new("time added to a switch", Measure::Time, Scale::Linear),
            rows: contrasts.iter().map(row).collect(),
        }),
    }
}

pub fn places_table(places: &[PlaceCost]) -> FindingsTable {
    let mut sheet = Sheet::new(
        "footprint-place",
        &[
            "place",
            "hand_over_ns",
            "hand_over_half_width_ns",
            "hand_over_low_ns",
            "hand_over_high_ns",
            "indirect_ns",
            "indirect_half_width_ns",
            "indirect_low_ns",
            "indirect_high_ns",
        ],
    );
    sheet.not_in_tables = &[
        "hand_over_low_ns",
        "hand_over_high_ns",
        "indirect_low_ns",
        "indirect_high_ns",
    ];
    let row = |cost: &PlaceCost| {
        let mut all = vec![Cell::text(cost.place.as_str())];
        all.extend(cells(cost.direct.as_ref()));
        all.extend(cells(cost.indirect.as_ref()));
        all
    };
    sheet.rows = places.iter().map(row).collect();
    let title =
        "Two processes, each walking over half the second-level cache, on one CPU and elsewhere";
    FindingsTable::new(title, sheet)
}
