//! Flame graphs: Brendan Gregg's `flamegraph.pl` and speedscope must show the off-CPU time of the
//! report, whatever the names of threads are.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use swtch_core::Nanos;

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

/// Name and width of a frame: `NAME (1,234 ns, 5.67%)`.
fn frame(title: &str) -> (&str, u64) {
    let title = title.split("</title>").next().unwrap();
    let (name, width) = title.rsplit_once(" (").unwrap();
    let digits = width.split(' ').next().unwrap().replace(',', "");
    (name, digits.parse().unwrap())
}

/// What speedscope reads from an export: a list of profiles.
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

/// speedscope reads times as doubles. It took adjacent slices for nested ones while they were
/// written with lengths.
#[test]
fn speedscope_nests_no_slice_of_the_chrome_export() {
    let Some(speedscope) = reader("SWTCH_SPEEDSCOPE") else {
        return;
    };
    let drawn = SyntheticTrace::new();
    let (export, _) = drawn.export("chrome", &[]);
    // By the export's own name it would be read as a timeline of Chrome's own tools.
    let json = export.with_extension("json");
    fs::rename(export, &json).unwrap();
    let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
    let profiles = ask_speedscope(&speedscope, &json);
    for profile in profiles.as_array().unwrap() {
        for (frame, own) in profile["frames"].as_object().unwrap() {
            let name = frame.split([' ', '{']).next().unwrap();
            *sums.entry(name).or_default() += own.as_f64().unwrap();
        }
    }
    let expected = drawn.sums(&[]);
    let ns = |name| Nanos::from_rounded(sums[name] * 1e3).as_ns();
    assert_eq!(
        [ns("running"), ns("runnable"), ns("futex")],
        [expected.ran, expected.runq, expected.blocked]
    );
}
