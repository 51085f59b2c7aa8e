//! Measures what storing a switch costs. Run in release, alone on the machine:
//! `cargo test --release -p swtch-store --test budget -- --ignored --nocapture --test-threads 1`
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

use common::{messaging, pipe};
use parquet::file::reader::{FileReader, SerializedFileReader};
use swtch_core::{Nanos, Switch};
use swtch_store::{Columns, Meta, Trace, Writer};

const ROWS: usize = 2_000_000;

fn ns_per_row(time: Duration, rows: usize) -> f64 {
    time.as_secs_f64() * 1e9 / rows as f64
}

/// CPU time of this process so far, all threads; the kernel counts it in ticks of 10 ms.
fn cpu_time() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").expect("Linux has it");
    let (_, after_name) = stat.rsplit_once(')').expect("the name is in brackets");
    let fields = after_name.split_whitespace();
    let ticks = fields
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse::<u64>().expect("a number"));
    Duration::from_millis(10 * ticks.sum::<u64>())
}

/// Resets the peak (`Documentation/filesystems/proc.rst`, `clear_refs`).
fn forget_peak_rss() {
    fs::write("/proc/self/clear_refs", "5").expect("Linux has it");
}

fn peak_rss_mb() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux has it");
    let line = status.lines().find(|line| line.starts_with("VmHWM"));
    let kb = line.and_then(|line| line.split_whitespace().nth(1));
    kb.and_then(|kb| kb.parse::<u64>().ok()).expect("a number") / 1024
}

/// Prints the bytes per row of the largest columns.
fn print_largest_columns(path: &Path, rows: usize) {
    let file = File::open(path).unwrap();
    let reader = SerializedFileReader::new(file).unwrap();
    let mut sizes = BTreeMap::new();
    for group in reader.metadata().row_groups() {
        for column in group.columns() {
            *sizes.entry(column.column_path().string()).or_default() += column.compressed_size();
        }
    }
    let mut sizes: Vec<(i64, String)> =
        sizes.into_iter().map(|(name, size)| (size, name)).collect();
    sizes.sort_unstable();
    for (size, name) in sizes.iter().rev().take(14) {
        println!("  {name:24} {:6.3}", *size as f64 / rows as f64);
    }
}

fn measure(name: &str, switches: &[Switch]) -> (f64, f64, f64) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.swtch");
    let mut writer = Writer::create(&path, &Meta::default()).unwrap();
    let begin = cpu_time();
    for row in switches {
        writer.push_switch(row).unwrap();
    }
    writer.flush().unwrap();
    let append = ns_per_row(cpu_time() - begin, switches.len());
    let stream = writer.bytes_written() as f64 / switches.len() as f64;
    let begin = cpu_time();
    writer.finish(&Meta::default(), &mut |_, _| ()).unwrap();
    let finish = ns_per_row(cpu_time() - begin, switches.len());
    let size = fs::metadata(path.join("switch.parquet")).unwrap().len();
    let bytes = size as f64 / switches.len() as f64;
    println!(
        "{name}: append and write {append:.0} ns, stream {stream:.0} B, finish {finish:.0} ns, \
         Parquet {bytes:.2} B a switch"
    );
    print_largest_columns(&path.join("switch.parquet"), switches.len());
    (append, finish, bytes)
}

#[test]
#[ignore = "release only"]
fn a_switch_costs_little_to_store() {
    for (name, switches, most_bytes) in [
        ("pipe", pipe(1).take(ROWS).collect::<Vec<_>>(), 12.0),
        // Waits of 400 tasks are spread over 50 ms: off-CPU and run-queue time alone hold 24 bits
        // each, which no encoding of single columns can remove.
        ("messaging", messaging(1).take(ROWS).collect(), 20.0),
    ] {
        let (append, finish, bytes) = measure(name, &switches);
        assert!(bytes <= most_bytes, "{name}: {bytes} bytes");
        assert!(append <= 300.0, "{name}: {append} ns");
        assert!(finish <= 500.0, "{name}: {finish} ns");
    }
}

#[test]
#[ignore = "release only"]
fn ten_million_switches_are_scanned_in_less_than_one_and_a_half_seconds() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.swtch");
    let mut writer = Writer::create(&path, &Meta::default()).unwrap();
    for row in messaging(7).take(10_000_000) {
        writer.push_switch(&row).unwrap();
    }
    writer.finish(&Meta::default(), &mut |_, _| ()).unwrap();
    forget_peak_rss();
    let begin = Instant::now();
    let trace = Trace::open(&path).unwrap();
    let columns =
        Columns::REASON | Columns::RAN | Columns::OFF_REASON | Columns::OFF | Columns::RUNQ;
    let (mut by_reason, mut off) = ([0u64; 32], Nanos::ZERO);
    trace
        .scan(columns, None, &mut |row| {
            by_reason[row.rule.reason.index()] += 1;
            off += row.wait.off.unwrap_or_default();
        })
        .unwrap();
    let took = begin.elapsed();
    println!(
        "open and scan: {took:?}, peak {} MB, off {off}",
        peak_rss_mb()
    );
    assert_eq!(by_reason.iter().sum::<u64>(), 10_000_000);
    assert!(took < Duration::from_millis(1500));
    assert!(peak_rss_mb() < 300);
}
