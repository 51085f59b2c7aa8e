//! Tables for a terminal and in Markdown, made from the same cells.

use super::summary::{Bound, Spread, TargetNumber, ToolSummary};

/// Stands where a column does not apply or was not measured.
pub const NOTHING: &str = "–";

/// A table: a header, and rows with as many cells.
#[derive(Debug)]
pub struct TextTable {
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A table with this header and no rows.
    pub fn new(header: &[&str]) -> Self {
        Self {
            rows: vec![header.iter().map(|&cell| cell.to_owned()).collect()],
        }
    }

    /// Adds a row of as many cells as the header has.
    pub fn push(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    /// The table with its columns aligned by spaces.
    pub fn to_text(&self) -> String {
        let widths = self.widths();
        let mut text = String::new();
        for row in &self.rows {
            let cells = row
                .iter()
                .zip(&widths)
                .map(|(cell, &width)| format!("{cell:<width$}"));
            text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
            text.push('\n');
        }
        text
    }

    /// The table in the syntax of Markdown.
    pub fn to_markdown(&self) -> String {
        let mut text = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            text.push_str(&format!("| {} |\n", row.join(" | ")));
            if number == 0 {
                text.push_str(&format!("|{}\n", "---|".repeat(row.len())));
            }
        }
        text
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self.rows.first().map_or(0, Vec::len);
        let width = |column: usize| {
            self.rows
                .iter()
                .map(|row| row[column].chars().count())
                .max()
        };
        (0..columns)
            .map(|column| width(column).unwrap_or(0))
            .collect()
    }
}

/// The table of what each tool costs.
pub fn costs(summaries: &[ToolSummary]) -> TextTable {
    let mut table = TextTable::new(&[
        "benchmark",
        "under",
        "CPU, ratio to bare",
        "extra ns/switch",
        "switches/s",
        "own CPU, ms",
        "own cores at 100k/s",
        "peak MB",
        "bytes/switch",
        "recorded, %",
        "lost",
    ]);
    for one in summaries {
        let lost = one.lost.map(|lost| format!("{} {}", lost.count, lost.unit));
        table.rows.push(vec![
            one.benchmark.to_string(),
            one.tool.to_string(),
            spread(one.cpu_ratio, 2),
            spread(one.extra_ns_per_switch, 0),
            format!("{:.0}", one.switches_per_s.median),
            spread(Some(one.tool_cpu_ms), 0),
            format!("{:.3}", one.tool_cores_per_100k.median),
            one.tool_peak_rss_mb
                .map_or(NOTHING.to_owned(), |peak| format!("{:.0}", peak.max)),
            one.bytes_per_switch
                .map_or(NOTHING.to_owned(), |size| format!("{:.1}", size.median)),
            one.recorded_pct
                .map_or(NOTHING.to_owned(), |share| format!("{:.2}", share.median)),
            lost.unwrap_or_else(|| NOTHING.to_owned()),
        ]);
    }
    table
}

/// The table of targets beside the measured numbers.
pub fn targets(targets: &[TargetNumber]) -> TextTable {
    let mut table = TextTable::new(&["to beat", "target", "measured", "holds"]);
    for target in targets {
        let bound = match target.bound {
            Bound::AtMost(most) => format!("≤ {most}"),
            Bound::AtLeast(least) => format!("≥ {least}"),
        };
        let measured = target.measured.map(|measured| format!("{measured:.3}"));
        let holds = target
            .holds()
            .map_or(NOTHING, |holds| if holds { "yes" } else { "no" });
        table.rows.push(vec![
            target.what.to_owned(),
            bound,
            measured.unwrap_or_else(|| NOTHING.to_owned()),
            holds.to_owned(),
        ]);
    }
    table
}

/// The median, followed by the extremes.
pub fn spread(spread: Option<Spread>, digits: usize) -> String {
    match spread {
        Some(Spread { min, median, max }) => {
            format!("{median:.digits$} ({min:.digits$}–{max:.digits$})")
        }
        None => NOTHING.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> TextTable {
        let mut table = TextTable::new(&["under", "n"]);
        table
            .rows
            .push(vec!["perf".to_owned(), "1.5 (1–2)".to_owned()]);
        table
    }

    #[test]
    fn text_is_aligned_without_trailing_spaces() {
        assert_eq!(table().to_text(), "under  n\nperf   1.5 (1–2)\n");
    }

    #[test]
    fn markdown_has_a_rule_under_the_header() {
        assert_eq!(
            table().to_markdown(),
            "| under | n |\n|---|---|\n| perf | 1.5 (1–2) |\n"
        );
    }

    #[test]
    fn quantity_that_does_not_apply_is_a_dash() {
        assert_eq!(spread(None, 1), NOTHING);
        assert_eq!(spread(Spread::of([1.0, 2.0]), 1), "1.5 (1.0–2.0)");
    }
}
