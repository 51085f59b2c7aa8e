//! Exports are read back by readers other than their writers, and compared with `swtch report`.
//!
//! ```text
//! made-up rows ─▶ trace ─┬▶ swtch export ─▶ csv, parquet, JSON, … ─▶ read back ─┬▶ same sums
//!                        └▶ swtch report --format json ─────────────────────────┘
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use parquet::file::reader::{FileReader as _, SerializedFileReader};
use parquet::record::RowAccessor as _;
use serde_json::Value;
use swtch_core::rules::rule_named;
use swtch_core::{
    CgroupId, CpuId, Evidence, EvidenceBits, Gap, Level, Nanos, Switch, TaskEvent, TaskKey,
    Timestamp, UserSide, Wait, WakerKind, Wakeup,
};
use swtch_fixtures::seen;
use swtch_store::{ClockSample, Counts, Meta, RecordingState, TraceHost, Writer};

use crate::recording::{TraceDir, stderr, swtch};

pub const FORMATS: [&str; 8] = [
    "perfetto",
    "firefox",
    "folded",
    "perf-script",
    "pprof",
    "otlp-profile",
    "csv",
    "parquet",
];
const START: u64 = 5_000_000_000;
pub const HOSTILE: &str = "<svg onload=a>;b 12,\"\n\u{1b}[2J";

/// Two CPUs, two threads each, 500 runs a thread: one blocks on a futex and is woken by the other
/// CPU's, one is preempted, one is woken while it is still leaving the CPU.
pub struct SyntheticTrace {
    pub place: TraceDir,
}

impl SyntheticTrace {
    pub fn new() -> Self {
        Self::changed(|_| {})
    }

    /// The synthetic trace after `change` was applied to its rows, which are in order of time.
    pub fn changed(change: impl FnOnce(&mut Vec<Switch>)) -> Self {
        let place = TraceDir::new();
        let meta = meta();
        let mut writer = Writer::create(&place.trace(), &meta).unwrap();
        for (key, pid, tid, comm) in [
            (1, 10, 10, "server"),
            (2, 10, 11, HOSTILE),
            (3, 30, 30, "Web Content"),
            (4, 40, 40, "=cmd()"),
        ] {
            writer.push_task(&task(key, pid, tid, comm)).unwrap();
        }
        let mut rows: Vec<Switch> = (0..2).flat_map(rows_of_cpu).collect();
        rows.push(worker(&rows[3]));
        rows.sort_by_key(|row| row.ts);
        change(&mut rows);
        rows.iter().for_each(|row| writer.push_switch(row).unwrap());
        writer.push_gap(&gap()).unwrap();
        writer.finish(&meta, &mut |_, _| ()).unwrap();
        Self { place }
    }

    pub fn export(&self, to: &str, words: &[&str]) -> (PathBuf, Output) {
        let path = self.place.dir().join(format!("out.{to}"));
        let output = self.exporting(to, words).arg("-o").arg(&path).output();
        (path, output.unwrap())
    }

    fn exporting(&self, to: &str, words: &[&str]) -> Command {
        let mut command = swtch(["export"]);
        command
            .arg(self.place.trace())
            .args(["--to", to])
            .args(words);
        command
    }

    /// The bytes of an export, which must succeed.
    pub fn exported(&self, to: &str, words: &[&str]) -> Vec<u8> {
        let (path, output) = self.export(to, words);
        assert!(output.status.success(), "{to}: {}", stderr(&output));
        fs::read(path).unwrap()
    }

    fn report(&self, by: &str, words: &[&str]) -> Value {
        let mut command = swtch(["report", "--format", "json", "--by", by]);
        let output = command
            .arg(self.place.trace())
            .args(words)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Number of switches, and time running, off the CPU, blocked and runnable.
    pub fn sums(&self, words: &[&str]) -> SwitchTotals {
        let total = &self.report("reason", words)["total"];
        let get = |name: &str| total[name].as_u64().unwrap();
        SwitchTotals {
            switches: get("switches"),
            ran: get("ran_ns"),
            off: get("off_ns"),
            blocked: get("blocked_ns"),
            runq: get("runq_ns"),
        }
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
pub struct SwitchTotals {
    pub switches: u64,
    pub ran: u64,
    pub off: u64,
    pub blocked: u64,
    pub runq: u64,
}

fn meta() -> Meta {
    Meta {
        state: RecordingState::Finished,
        host: TraceHost {
            hostname: "db1".into(),
            kernel_release: "6.18.0".into(),
            machine: "x86_64".into(),
            cpus: 2,
            ..TraceHost::default()
        },
        clock: ClockSample {
            monotonic_ns: START,
            boottime_ns: START + 7_000,
            realtime_ns: 1_700_000_000_000_000_000,
        },
        scope: "whole system".into(),
        start_ns: START,
        end_ns: START + 1_000_000_000,
        counts: Counts {
            switches_seen: 2_000,
            stored: 2_000,
            ..Counts::default()
        },
        ..Meta::default()
    }
}

fn gap() -> Gap {
    Gap {
        cpu: CpuId::new(1),
        start: Timestamp::from_ns(START + 900_000_000),
        end: Timestamp::from_ns(START + 900_001_000),
        lost: 5,
        level: Level::User,
    }
}

fn task(key: u32, pid: u32, tid: u32, comm: &str) -> TaskEvent {
    TaskEvent {
        ts: Timestamp::from_ns(START),
        ..seen(key, pid, tid, comm)
    }
}

/// ```text
/// first   ├ run ┤───── futex ─────┊ runq ├ run ┤
/// second        ├ run ┤ idle             └─ waited in the run queue: preempted ─┤ run ┤
/// ```
fn rows_of_cpu(cpu: u16) -> Vec<Switch> {
    let first = u32::from(cpu) * 2 + 1;
    let mut rows: Vec<Switch> = Vec::new();
    let mut now = START + 1_000 * u64::from(cpu);
    for round in 0..500_u64 {
        for key in [first, first + 1] {
            let is_blocker = key == first;
            let ran = 10_000 + round % 97 * 13;
            let before = rows.iter().rev().find(|row| row.task == TaskKey::new(key));
            let runq = round % 7 * 100;
            let wait = before.map_or_else(Wait::default, |before| {
                wait(before, now, is_blocker.then_some(runq), cpu)
            });
            now += ran;
            let other = if is_blocker { first + 1 } else { 0 };
            rows.push(row(now, cpu, key, ran, other, wait));
        }
        // Idle until the first thread is woken; in some rounds the CPU is not idle at all.
        now += round % 5 * 1_000;
    }
    rows
}

/// A wait that ends now: blocked, then `runq` in the run queue. Without `runq` the thread had
/// stayed runnable.
fn wait(before: &Switch, now: u64, runq: Option<u64>, cpu: u16) -> Wait {
    let off = now - before.ts.as_ns();
    let known = Wait {
        reason: Some(before.rule.reason),
        off: Some(Nanos::from_ns(off)),
        runq: Some(Nanos::from_ns(off)),
        ..Wait::default()
    };
    match runq {
        None => known,
        Some(runq) => Wait {
            // Every seventh was woken while it was still leaving: all of its wait is run-queue
            // time.
            runq: Some(Nanos::from_ns(if runq == 600 {
                off
            } else {
                runq.min(off)
            })),
            wakeup: Wakeup {
                waker: Some(TaskKey::new(u32::from(1 - cpu) * 2 + 1)),
                kind: Some(WakerKind::Task),
                cpu: Some(CpuId::new(cpu)),
                ..Wakeup::default()
            },
            ..known
        },
    }
}

fn row(ts: u64, cpu: u16, key: u32, ran: u64, next: u32, wait: Wait) -> Switch {
    let is_blocker = key % 2 == 1;
    let rule = match is_blocker {
        true => "futex_call",
        false => "tick_slice_end",
    };
    Switch {
        ts: Timestamp::from_ns(ts),
        cpu: CpuId::new(cpu),
        task: TaskKey::new(key),
        ran: Some(Nanos::from_ns(ran)),
        irq: Nanos::ZERO,
        stolen: Nanos::ZERO,
        rule: rule_named(rule).unwrap(),
        evidence: Evidence {
            state: u32::from(is_blocker),
            bits: match is_blocker {
                true => EvidenceBits::VOLUNTARY,
                false => EvidenceBits::default(),
            },
            syscall: is_blocker.then_some(202),
            ..Evidence::RUNNABLE
        },
        next_task: Some(TaskKey::new(next)),
        user_task: None,
        level: Level::Os,
        user: UserSide::default(),
        cgroup: CgroupId::new(1),
        wait,
    }
}

/// A worker of a user-mode scheduler, within a run of its thread.
fn worker(of: &Switch) -> Switch {
    Switch {
        ts: of.ts.before(Nanos::from_ns(1_000)),
        ran: Some(Nanos::from_ns(2_000)),
        level: Level::User,
        user_task: Some(7),
        next_task: Some(of.task),
        wait: Wait::default(),
        ..*of
    }
}

#[test]
fn csv_and_parquet_come_to_the_sums_of_the_report() {
    let drawn = SyntheticTrace::new();
    for words in [
        &[][..],
        &["--comm", "server"],
        &["--since", "1ms", "--until", "9ms"],
    ] {
        let expected = drawn.sums(words);
        assert!(expected.switches > 100, "{expected:?}");
        assert_eq!(
            csv_sums(&drawn.exported("csv", words)),
            expected,
            "csv {words:?}"
        );
        drawn.exported("parquet", words);
        let parquet = parquet_sums(&drawn.place.dir().join("out.parquet"));
        assert_eq!(parquet, expected, "parquet {words:?}");
    }
}

/// Parses records strictly by RFC 4180: a name holds a comma, quotes and a line break.
fn records(csv: &[u8]) -> Vec<Vec<String>> {
    let text = String::from_utf8(csv.to_vec()).unwrap();
    let (mut records, mut record, mut field) = (Vec::new(), Vec::new(), String::new());
    let (mut is_quoted, mut letters) = (false, text.chars().peekable());
    while let Some(letter) = letters.next() {
        match letter {
            '"' if is_quoted && letters.peek() == Some(&'"') => field.extend(letters.next()),
            '"' => is_quoted = !is_quoted,
            ',' if !is_quoted => record.push(std::mem::take(&mut field)),
            '\r' if !is_quoted => {}
            '\n' if !is_quoted => {
                record.push(std::mem::take(&mut field));
                records.push(std::mem::take(&mut record));
            }
            _ => field.push(letter),
        }
    }
    records
}

fn csv_sums(csv: &[u8]) -> SwitchTotals {
    let mut records = records(csv).into_iter();
    let header = records.next().unwrap();
    let mut sums = SwitchTotals::default();
    for record in records {
        assert_eq!(record.len(), header.len());
        let of = |name: &str| &record[header.iter().position(|column| column == name).unwrap()];
        let number = |name: &str| of(name).parse::<u64>().unwrap_or(0);
        if of("level") == "os" {
            sums.switches += 1;
            sums.ran += number("ran_ns");
            sums.off += number("off_ns");
            sums.blocked += number("blocked_ns");
            sums.runq += number("runq_ns");
        }
    }
    sums
}

fn parquet_sums(path: &Path) -> SwitchTotals {
    let reader = SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let place = |name: &str| {
        let mut columns = schema.columns().iter();
        columns.position(|column| column.name() == name).unwrap()
    };
    let mut sums = SwitchTotals::default();
    for row in reader.get_row_iter(None).unwrap() {
        let row = row.unwrap();
        let number = |name| u64::try_from(row.get_long(place(name)).unwrap_or(0)).unwrap();
        if row.get_string(place("level")).unwrap() == "os" {
            sums.switches += 1;
            sums.ran += number("ran_ns");
            sums.off += number("off_ns");
            sums.blocked += number("blocked_ns");
            sums.runq += number("runq_ns");
        }
    }
    sums
}

#[test]
fn firefoxs_markers_come_to_the_sums_of_the_report() {
    let drawn = SyntheticTrace::new();
    let expected = drawn.sums(&[]);
    let profile: Value = serde_json::from_slice(&drawn.exported("firefox", &[])).unwrap();
    let threads = profile["threads"].as_array().unwrap();
    assert_eq!(threads.len(), 4);
    let mut sums = SwitchTotals::default();
    for thread in threads {
        let data = thread["markers"]["data"].as_array().unwrap();
        let ns = |fields: &Value, name| {
            fields[name]
                .as_f64()
                .map_or(Nanos::ZERO, Nanos::from_rounded)
        };
        let sum = |name| {
            data.iter()
                .map(|fields| ns(fields, name))
                .sum::<Nanos>()
                .as_ns()
        };
        sums.off += sum("off_ns");
        sums.blocked += sum("blocked_ns");
        sums.runq += sum("runq_ns");
    }
    let (switches, ran) = (expected.switches, expected.ran);
    assert_eq!(
        SwitchTotals {
            switches,
            ran,
            ..sums
        },
        expected
    );
    let schema = &profile["meta"]["markerSchema"];
    let names = schema
        .as_array()
        .unwrap()
        .iter()
        .map(|schema| &schema["name"]);
    assert!(
        names.into_iter().any(|name| name == "swtch.wait"),
        "{schema}"
    );
    assert!(
        profile["meta"]["preprocessedProfileVersion"]
            .as_u64()
            .unwrap()
            >= 40
    );
}

#[test]
fn folded_lines_come_to_the_off_cpu_time_of_the_report() {
    let drawn = SyntheticTrace::new();
    let text = String::from_utf8(drawn.exported("folded", &[])).unwrap();
    let sum: u64 = text
        .lines()
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
        .sum();
    assert_eq!(sum, drawn.sums(&[]).off);
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(text.contains("Web Content;Web Content;[futex] "), "{text}");
}

/// Each wait is a sample whose period is its length, and nothing in a name makes a line of its own.
#[test]
fn samples_as_of_perf_come_to_the_off_cpu_time_of_the_report() {
    let drawn = SyntheticTrace::new();
    let text = String::from_utf8(drawn.exported("perf-script", &[])).unwrap();
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for sample in text.split_terminator("\n\n") {
        let (head, frames) = sample.split_once('\n').unwrap();
        let words: Vec<_> = head.split_whitespace().collect();
        let [comm, _, _, _, period, "offcpu-time:"] = words[..] else {
            panic!("{head}")
        };
        assert!(frames.ends_with("] ([swtch])"), "{frames}");
        *sums.entry(comm).or_default() += period.parse::<u64>().unwrap();
    }
    assert_eq!(sums.values().sum::<u64>(), drawn.sums(&[]).off);
    let web = drawn.sums(&["--comm", "Web Content"]).off;
    assert_eq!(sums["Web_Content"], web);
}

/// The times of its samples come to those of the report, and texts of others are escaped.
#[test]
fn a_profile_comes_to_the_times_of_the_report() {
    let drawn = SyntheticTrace::new();
    let (path, output) = drawn.export("pprof", &[]);
    assert!(output.status.success(), "{}", stderr(&output));
    let mut gzip = Command::new("gzip");
    let gzip = gzip.arg("-dc").stdin(File::open(path).unwrap());
    let unpacked = gzip.output().unwrap();
    assert!(unpacked.status.success(), "{}", stderr(&unpacked));
    let mut texts = Vec::new();
    let mut sums = [0; 3];
    for (number, field) in fields(&unpacked.stdout) {
        match (number, field) {
            (2, ProtoField::Bytes(sample)) => {
                for (number, field) in fields(sample) {
                    if let (2, ProtoField::Bytes(mut values)) = (number, field) {
                        sums.iter_mut().for_each(|sum| *sum += varint(&mut values));
                    }
                }
            }
            (6, ProtoField::Bytes(text)) => texts.push(String::from_utf8_lossy(text)),
            _ => {}
        }
    }
    let totals = drawn.sums(&[]);
    assert_eq!(sums, [totals.off, totals.blocked, totals.runq]);
    assert_eq!(texts[0], "");
    assert!(texts.iter().any(|text| text == "Web Content"), "{texts:?}");
    assert!(
        texts.iter().any(|text| text.contains("x1b[2J")),
        "{texts:?}"
    );
    assert!(
        !texts.iter().any(|text| text.contains(char::is_control)),
        "{texts:?}"
    );
}

/// The fields of a protobuf message: number, and bytes or number.
fn fields(mut bytes: &[u8]) -> Vec<(u64, ProtoField<'_>)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let field = match tag & 7 {
            0 => ProtoField::Number(varint(&mut bytes)),
            2 => {
                let length = usize::try_from(varint(&mut bytes)).unwrap();
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                ProtoField::Bytes(value)
            }
            other => panic!("wire type {other}"),
        };
        found.push((tag >> 3, field));
    }
    found
}

#[derive(Clone, Copy, Debug)]
enum ProtoField<'b> {
    Number(u64),
    Bytes(&'b [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (byte, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        value |= u64::from(byte & 127) << shift;
        if byte & 128 == 0 {
            break;
        }
    }
    value
}

fn bytes_of(message: &[u8], number: u64) -> Vec<&[u8]> {
    let found = fields(message)
        .into_iter()
        .filter(|field| field.0 == number);
    found
        .map(|(_, field)| match field {
            ProtoField::Bytes(bytes) => bytes,
            ProtoField::Number(_) => panic!("field {number} is a number"),
        })
        .collect()
}

fn number_of(message: &[u8], number: u64) -> Option<u64> {
    let found = fields(message)
        .into_iter()
        .find(|field| field.0 == number)?;
    match found.1 {
        ProtoField::Number(value) => Some(value),
        ProtoField::Bytes(_) => panic!("field {number} is bytes"),
    }
}

/// Switches and time of each thread, from nothing but the chain of `sched_switch` on each CPU.
#[test]
fn perfettos_switches_are_one_chain_a_cpu_and_come_to_the_sums_of_the_report() {
    let drawn = SyntheticTrace::new();
    let trace = drawn.exported("perfetto", &[]);
    let mut runs: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let mut cpus: BTreeMap<u64, Vec<(u64, u64, u64)>> = BTreeMap::new();
    for bundle in bytes_of(&trace, 1)
        .into_iter()
        .flat_map(|packet| bytes_of(packet, 1))
    {
        let cpu = number_of(bundle, 1).unwrap();
        for event in bytes_of(bundle, 2) {
            for switch in bytes_of(event, 4) {
                let number = |field| number_of(switch, field).unwrap_or(0);
                let switch = (number_of(event, 1).unwrap(), number(2), number(6));
                cpus.entry(cpu).or_default().push(switch);
            }
        }
    }
    for (cpu, switches) in cpus {
        for pair in switches.windows(2) {
            let [(began, _, came), (ended, left, _)] = pair else {
                unreachable!()
            };
            assert_eq!(came, left, "CPU {cpu} at {ended}");
            let run = runs.entry(*came).or_default();
            *run = (run.0 + 1, run.1 + (ended - began));
        }
    }
    let report = drawn.report("thread", &[]);
    for row in report["rows"].as_array().unwrap() {
        let get = |name: &str| row[name].as_u64().unwrap();
        assert_eq!(runs[&get("tid")], (get("switches"), get("ran_ns")), "{row}");
    }
}

/// Anybody may choose a name, and an export is opened on another machine.
#[test]
fn no_text_export_holds_a_hostile_character() {
    let drawn = SyntheticTrace::new();
    for to in ["firefox", "folded", "csv"] {
        let text = String::from_utf8(drawn.exported(to, &[])).unwrap();
        let control = text
            .chars()
            .find(|c| c.is_control() && !"\r\n".contains(*c));
        assert_eq!(control, None, "{to}");
        assert!(text.contains("x1b[2J"), "{to}: the name is shown, escaped");
    }
}

#[test]
fn every_format_goes_to_stdout_too_and_to_nothing_but_whole_files() {
    let drawn = SyntheticTrace::new();
    for to in FORMATS {
        let output = drawn.exporting(to, &[]).output().unwrap();
        assert!(output.status.success(), "{to}: {}", stderr(&output));
        assert_eq!(output.stdout, drawn.exported(to, &[]), "{to}");
    }
    let left = fs::read_dir(drawn.place.dir()).unwrap().flatten();
    let partial = left.filter(|entry| entry.path().extension().is_some_and(|end| end == "partial"));
    assert_eq!(partial.count(), 0);
}

/// Decompressed with a gzip reader that is not ours.
#[test]
fn a_name_that_ends_in_gz_is_compressed_where_readers_take_it() {
    let drawn = SyntheticTrace::new();
    let written_to = |to: &str, name: &str| {
        let path = drawn.place.dir().join(name);
        let output = drawn.exporting(to, &[]).arg("-o").arg(&path).output();
        (output.unwrap(), path)
    };
    let (output, path) = written_to("perfetto", "x.pftrace.gz");
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("ui.perfetto.dev"),
        "{}",
        stderr(&output)
    );
    let unpacked = Command::new("gzip").arg("-dc").arg(&path).output().unwrap();
    assert!(unpacked.status.success(), "{}", stderr(&unpacked));
    assert!(unpacked.stdout == drawn.exported("perfetto", &[]));
    for to in ["folded", "parquet"] {
        let (output, path) = written_to(to, &format!("x.{to}.gz"));
        assert_eq!(output.status.code(), Some(2), "{to}");
        assert!(
            stderr(&output).contains("without .gz"),
            "{}",
            stderr(&output)
        );
        assert!(!path.exists(), "{to}");
    }
}

#[test]
fn a_full_disk_is_said_and_leaves_no_export() {
    let drawn = SyntheticTrace::new();
    for to in FORMATS {
        let full = drawn.exporting(to, &["-o", "/dev/full"]).output().unwrap();
        assert_eq!(full.status.code(), Some(2), "{to}");
        assert!(
            stderr(&full).contains("No space left"),
            "{to}: {}",
            stderr(&full)
        );
    }
}

#[test]
fn a_reader_that_goes_away_is_said() {
    let drawn = SyntheticTrace::new();
    let mut child = drawn
        .exporting("firefox", &[])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("went away"), "{}", stderr(&output));
}

#[test]
fn what_cannot_be_exported_is_refused_before_a_file_is_made() {
    let drawn = SyntheticTrace::new();
    let (path, output) = drawn.export("csv", &["--since", "soon"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(!path.exists());
    let output = swtch(["export", "/no/such.swtch", "--to", "csv"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let nowhere = drawn
        .exporting("csv", &["-o", "/no/such/place/a.csv"])
        .output()
        .unwrap();
    assert!(
        stderr(&nowhere).contains("no such directory"),
        "{}",
        stderr(&nowhere)
    );
}

/// A trace may have no switch at all.
#[test]
fn a_trace_of_no_switch_has_exports() {
    let place = TraceDir::new();
    let meta = meta();
    let writer = Writer::create(&place.trace(), &meta).unwrap();
    writer.finish(&meta, &mut |_, _| ()).unwrap();
    let drawn = SyntheticTrace { place };
    for to in FORMATS {
        let bytes = drawn.exported(to, &[]);
        let has_no_head = ["folded", "perf-script"].contains(&to);
        assert!(has_no_head || !bytes.is_empty(), "{to}");
    }
}
