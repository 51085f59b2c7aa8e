//! The results, as a table for people and as JSON for programs.

use std::fmt::Write;

use swtch_core::cost::CONFIDENCE;
use swtch_core::stats::{median, quantile, sign_interval};

use crate::arms::{OperationGroup, SENTINEL};
use crate::child::BlockResult;
use crate::measure::{ArmMeasurements, MeasurementPlan};

/// The machine, and the CPU that was used.
#[derive(Debug)]
pub struct BenchHost {
    /// Model name of the processor.
    pub model: String,
    /// Release of the kernel, for the header.
    pub kernel: String,
    /// The CPU to which all arms were bound.
    pub cpu: usize,
}

/// One row: the results per operation of an arm.
#[derive(Debug)]
struct ArmRow<'a> {
    record: &'a ArmMeasurements,
    /// CPU time, ns: the median of the starts.
    ns: f64,
    /// The middle half of all blocks: lower and upper quartile.
    quartiles: (f64, f64),
    wall_ns: f64,
    user: f64,
    voluntary: f64,
    involuntary: f64,
    /// Ratio to the first arm of the group, within the same round: median of the starts, and its
    /// interval.
    ratio: Option<(f64, Option<(f64, f64)>)>,
}

/// The rows of the complete arms, in the order of the list.
fn rows(records: &[ArmMeasurements]) -> Vec<ArmRow<'_>> {
    let whole = |record: &&ArmMeasurements| record.failed.is_none();
    records
        .iter()
        .filter(whole)
        .filter_map(|record| {
            let first = records
                .iter()
                .find(|other| other.arm.group == record.arm.group);
            let first = first
                .filter(whole)
                .filter(|_| record.arm.group != OperationGroup::Primitive);
            row(record, first)
        })
        .collect()
}

fn row<'a>(record: &'a ArmMeasurements, first: Option<&ArmMeasurements>) -> Option<ArmRow<'a>> {
    let each = |of: fn(&BlockResult) -> f64| -> Vec<f64> {
        let per_operation = |block: &BlockResult| of(block) / block.operations as f64;
        record.blocks.iter().flatten().map(per_operation).collect()
    };
    let all = each(|block| block.cpu_ns);
    Some(ArmRow {
        record,
        ns: median(&by_start(record, cpu_ns))?,
        quartiles: (quantile(&all, 0.25)?, quantile(&all, 0.75)?),
        wall_ns: median(&each(|block| block.wall_ns))?,
        user: median(&each(|block| block.user))?,
        voluntary: median(&each(|block| block.voluntary))?,
        involuntary: median(&each(|block| block.involuntary))?,
        ratio: first.and_then(|first| ratio(record, first)),
    })
}

fn cpu_ns(block: &BlockResult) -> f64 {
    block.cpu_ns / block.operations as f64
}

/// The median of each start.
fn by_start(record: &ArmMeasurements, of: fn(&BlockResult) -> f64) -> Vec<f64> {
    let one = |blocks: &Vec<BlockResult>| median(&blocks.iter().map(of).collect::<Vec<_>>());
    record.blocks.iter().filter_map(one).collect()
}

/// The ratio to `first` within the same rounds.
fn ratio(record: &ArmMeasurements, first: &ArmMeasurements) -> Option<(f64, Option<(f64, f64)>)> {
    let starts: Vec<f64> = (record.blocks.iter().zip(&first.blocks))
        .filter_map(|(own, other)| {
            let pairs = own.iter().zip(other);
            median(
                &pairs
                    .map(|(own, other)| cpu_ns(own) / cpu_ns(other))
                    .collect::<Vec<_>>(),
            )
        })
        .collect();
    let interval = sign_interval(&starts, CONFIDENCE, None).map(|found| found.interval);
    Some((median(&starts)?, interval.map(|ends| (ends.low, ends.high))))
}

/// Formats all rows as a table, by group.
pub fn table(records: &[ArmMeasurements], host: &BenchHost, plan: MeasurementPlan) -> String {
    let mut out = String::new();
    let rows = rows(records);
    header(&mut out, host, plan);
    for group in OperationGroup::ALL {
        let of_group = |row: &&ArmRow<'_>| row.record.arm.group == group;
        if !rows.iter().any(|row| of_group(&row)) {
            continue;
        }
        let word = group.as_str();
        writeln!(out, "\n{word}: {}", group.operation()).ok();
        writeln!(
            out,
            "  {:33} {:>8} {:>17} {:>8} {:>7} {:>15} {:>6} {:>8} {:>8}  what",
            "arm", "ns", "quartiles", "wall ns", "÷ first", "95 %", "user", "OS vol", "OS invol",
        )
        .ok();
        for row in rows.iter().filter(of_group) {
            line(&mut out, row);
        }
    }
    footer(&mut out, records, &rows);
    out
}

fn header(out: &mut String, host: &BenchHost, plan: MeasurementPlan) {
    writeln!(
        out,
        "{} · Linux {} · all arms on CPU {}\n\
         {} starts of {} rounds, an arm once in each, blocks of {:.0} ms\n\
         ns: CPU time an operation (median of starts; quartiles of blocks); ÷ first: within a round,\n\
         interval over starts; user, OS: switches an operation, counted by the tasks and by the kernel",
        host.model,
        host.kernel,
        host.cpu,
        plan.starts,
        plan.rounds,
        plan.block_ns / 1e6,
    )
    .ok();
}

fn line(out: &mut String, row: &ArmRow<'_>) {
    let (low, high) = row.quartiles;
    let ratio = row
        .ratio
        .map_or("–".to_owned(), |(ratio, _)| format!("{ratio:.3}"));
    let ends = row.ratio.and_then(|(_, ends)| ends);
    let ends = ends.map_or("–".to_owned(), |(low, high)| {
        format!("{low:.3}–{high:.3}")
    });
    writeln!(
        out,
        "  {:33} {:>8.2} {:>17} {:>8.2} {ratio:>7} {ends:>15} {:>6.3} {:>8.4} {:>8.4}  {}",
        row.record.arm.name,
        row.ns,
        format!("{low:.2}–{high:.2}"),
        row.wall_ns,
        row.user,
        row.voluntary,
        row.involuntary,
        row.record.about,
    )
    .ok();
}

/// Writes what is missing, and how quiet the machine was.
fn footer(out: &mut String, records: &[ArmMeasurements], rows: &[ArmRow<'_>]) {
    let missing = |record: &ArmMeasurements| Some((record.arm.name, record.failed.clone()?));
    let missing: Vec<_> = records.iter().filter_map(missing).collect();
    if !missing.is_empty() {
        writeln!(out, "\nmissing").ok();
    }
    for (name, reason) in missing {
        writeln!(out, "  {name:33} {reason}").ok();
    }
    let sentinel = rows.iter().find(|row| row.record.arm.name == SENTINEL);
    if let Some(row) = sentinel {
        let (low, high) = row.quartiles;
        let spread = (high - low) / row.ns * 100.0;
        let waited = (row.wall_ns / row.ns - 1.0) * 100.0;
        writeln!(
            out,
            "\nnoise: the same arithmetic spread by {spread:.1} % (middle half of all blocks) and \
             waited {waited:.1} % of its time"
        )
        .ok();
    }
}

/// All rows in raw units.
pub fn json(records: &[ArmMeasurements], host: &BenchHost, plan: MeasurementPlan) -> String {
    let mut out = format!(
        "{{\"schema\": \"swtch-fiber-bench/1\",\n \"host\": {{\"model\": {}, \"kernel\": {}, \
         \"cpu\": {}}},\n \"starts\": {}, \"rounds\": {}, \"block_ns\": {},\n \"rows\": [",
        quoted(&host.model),
        quoted(&host.kernel),
        host.cpu,
        plan.starts,
        plan.rounds,
        plan.block_ns,
    );
    let rows: Vec<String> = rows(records).iter().map(json_row).collect();
    out.push_str(&rows.join(","));
    out.push_str("],\n \"missing\": [");
    let missing: Vec<String> = (records.iter())
        .filter_map(|record| {
            let reason = quoted(record.failed.as_ref()?);
            let arm = quoted(record.arm.name);
            Some(format!("\n  {{\"arm\": {arm}, \"reason\": {reason}}}"))
        })
        .collect();
    out.push_str(&missing.join(","));
    out.push_str("]}\n");
    out
}

fn json_row(row: &ArmRow<'_>) -> String {
    let number = |value: Option<f64>| value.map_or("null".to_owned(), |value| value.to_string());
    let ends = row.ratio.and_then(|(_, ends)| ends);
    format!(
        "\n  {{\"arm\": {}, \"group\": {}, \"about\": {}, \"ns\": {}, \"q1_ns\": {}, \"q3_ns\": {}, \
         \"wall_ns\": {}, \"ratio\": {}, \"ratio_low\": {}, \"ratio_high\": {}, \
         \"user_per_operation\": {}, \"os_voluntary_per_operation\": {}, \
         \"os_involuntary_per_operation\": {}, \"ns_by_start\": {:?}}}",
        quoted(row.record.arm.name),
        quoted(row.record.arm.group.as_str()),
        quoted(&row.record.about),
        row.ns,
        row.quartiles.0,
        row.quartiles.1,
        row.wall_ns,
        number(row.ratio.map(|(ratio, _)| ratio)),
        number(ends.map(|(low, _)| low)),
        number(ends.map(|(_, high)| high)),
        row.user,
        row.voluntary,
        row.involuntary,
        by_start(row.record, cpu_ns),
    )
}

/// A JSON string; text from outside may contain any character.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if letter.is_control() => {
                write!(out, "\\u{:04x}", u32::from(letter)).ok();
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}
