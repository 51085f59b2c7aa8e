//! OpenTelemetry's own messages must read an OTLP profile, and come to the times of the report.

use std::collections::BTreeMap;
use std::process::Command;

use serde_json::{Value, json};

use super::{reader, report_by_thread, script};
use crate::exports::SyntheticTrace;
use crate::recording::stderr;

#[test]
fn opentelemetry_comes_to_the_times_of_the_report() {
    let Some(reader) = reader("SWTCH_OTLP") else {
        return;
    };
    let drawn = SyntheticTrace::new();
    let (profile, _) = drawn.export("otlp-profile", &[]);
    let output = Command::new("python3")
        .env("PYTHONPATH", reader)
        .arg(script("otlp.py"))
        .arg(profile)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let read: Value = serde_json::from_slice(&output.stdout).unwrap();
    let columns = ["off_ns", "blocked_ns", "runq_ns"];
    let expected = report_by_thread(&drawn.place.trace(), &[], columns);
    for (place, kind) in ["off_cpu", "blocked", "run_queue"].iter().enumerate() {
        let threads = expected.iter().map(|(tid, sums)| (tid, sums[place]));
        let threads = threads.filter(|(_, sum)| *sum > 0);
        let threads: BTreeMap<String, u64> =
            threads.map(|(tid, sum)| (tid.to_string(), sum)).collect();
        assert!(!threads.is_empty());
        assert_eq!(read["sums"][kind], json!(threads), "{kind}");
    }
    let resource = json!({"host.name": "db1", "os.type": "linux"});
    assert_eq!(read["resource"], resource);
    assert_eq!(read["began"], 1_700_000_000_000_000_000_u64);
    let texts = read["texts"].as_array().unwrap();
    let is_harmless = |text: &Value| !text.as_str().unwrap().contains(char::is_control);
    assert!(texts.iter().all(is_harmless), "{texts:?}");
}
