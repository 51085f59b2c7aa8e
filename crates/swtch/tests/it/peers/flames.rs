//! Flame graphs: Brendan Gregg's `flamegraph.pl`, his `stackcollapse-perf.pl`, and speedscope must show the
//! off-CPU time of the report, whatever the names of threads are.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{reader, script};
use crate::exports::SyntheticTrace;
use crate::recording::stderr;

/// The hostile name of the generated trace, as a folded frame holds it.
const HARMLESS: &str = "<svg onload=a>:b 12,\"\\x0a\\x1b[2J";

#[test]
fn a_flame_graph_is_as_wide_as_the_report_is_long() {
    let Some(flamegraph) = reader("SWTCH_FLAMEGRAPH") else {
        return;
    };
    let drawn = SyntheticTrace::new();
    let (folded, _) = drawn.export("folded", &[]);
    let output = Command::new("perl")
        .arg(flamegraph)
        .args(["--countname", "ns", "--minwidth", "0"])
        .arg(folded)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let svg = String::from_utf8(output.stdout).unwrap();
    let frames: Vec<(&str, u64)> = svg.split("<title>").skip(1).map(frame).collect();
    let off = drawn.sums(&[]).off;
    assert!(frames.contains(&("all", off)), "{off}: {frames:?}");
    let reasons = frames.iter().filter(|(name, _)| name.starts_with('['));
    assert_eq!(reasons.map(|(_, ns)| ns).sum::<u64>(), off);
    let name = HARMLESS
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;");
    assert!(frames.iter().any(|frame| frame.0 == name), "{frames:?}");
    assert!(!svg.contains("<svg onload"));
}

/// His script folds what `perf script` prints: it takes periods for counts.
#[test]
fn samples_as_of_perf_fold_to_the_off_cpu_time_of_the_report() {
    let Some(flamegraph) = reader("SWTCH_FLAMEGRAPH") else {
        return;
    };
    let drawn = SyntheticTrace::new();
    let (samples, _) = drawn.export("perf-script", &[]);
    let collapse = Path::new(&flamegraph).with_file_name("stackcollapse-perf.pl");
    let output = Command::new("perl").arg(collapse).arg(samples).output();
    let output = output.unwrap();
    assert_eq!(stderr(&output), "");
    let folded = String::from_utf8(output.stdout).unwrap();
    let lines = folded.lines().map(|line| line.rsplit_once(' ').unwrap());
    let sums: Vec<(&str, u64)> = lines.map(|(at, ns)| (at, ns.parse().unwrap())).collect();
    let total = sums.iter().map(|(_, ns)| ns).sum::<u64>();
    assert_eq!(total, drawn.sums(&[]).off);
    let web = drawn.sums(&["--comm", "Web Content"]).off;
    assert!(sums.contains(&("Web_Content;[futex]", web)), "{folded}");
}

/// Name and width of a frame: `NAME (1,234 ns, 5.67%)`.
fn frame(title: &str) -> (&str, u64) {
    let title = title.split("</title>").next().unwrap();
    let (name, width) = title.rsplit_once(" (").unwrap();
    let digits = width.split(' ').next().unwrap().replace(',', "");
    (name, digits.parse().unwrap())
}

/// Returns what speedscope reads from an export: a list of profiles.
fn ask_speedscope(bundle: &OsString, export: &Path) -> Value {
    let output = Command::new("node")
        .arg(script("speedscope.js"))
        .args([bundle.as_os_str(), export.as_os_str()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn speedscope_comes_to_the_off_cpu_time_of_the_report() {
    let Some(speedscope) = reader("SWTCH_SPEEDSCOPE") else {
        return;
    };
    let drawn = SyntheticTrace::new();
    let (folded, _) = drawn.export("folded", &[]);
    let profiles = ask_speedscope(&speedscope, &folded);
    let off = drawn.sums(&[]).off;
    assert_eq!(profiles[0]["total"], off);
    let frames = profiles[0]["frames"].as_object().unwrap();
    let own: u64 = frames.values().map(|own| own.as_u64().unwrap()).sum();
    assert_eq!(own, off);
    assert_eq!(frames.get(HARMLESS), Some(&Value::from(0)), "{frames:?}");
}
