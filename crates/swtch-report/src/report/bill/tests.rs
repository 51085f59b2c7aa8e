//! Tests of bills: hand-made traces, at round prices.

use super::*;
use crate::report::drawn::{after, head, prices, prices_with_curve, row, seen};
use crate::report::explain;
use crate::report::filter::{Filter, Moment};
use serde_json::Value;
use swtch_core::{CpuId, Gap, Nanos, Switch, TaskKey, Timestamp};
use swtch_output::format::Format;
use swtch_store::{Meta, StackSettings as StacksMeta, Writer};

/// A recording of 1 ms, in which the runs of all tasks are rows.
fn meta() -> Meta {
    let mut meta = head().meta;
    meta.end_ns = meta.start_ns + 1_000_000;
    meta.counts.filtered = 0;
    meta.stacks = Some(StacksMeta::default());
    meta
}

/// The row of a task that leaves the CPU to `next`, `us` µs after the start.
fn to(next: u32, us: u64, row: Switch) -> Switch {
    Switch {
        ts: Timestamp::from_ns(1_000_000_000 + us * 1000),
        next_task: Some(TaskKey::new(next)),
        ..row
    }
}

/// ```text
/// CPU 0: server ─pipe─▶ hog ─slice─▶ server ─futex─▶ worker ─sleep─▶ idle
///          ▲                          ▲
///          └─── away for 40 µs ───────┘
/// ```
fn rows() -> Vec<Switch> {
    let mut back = after(row(1, Reason::Futex), Reason::Pipe, 30_000, 10_000);
    back.wait.stacks.user = Some(7);
    vec![
        to(3, 100, row(1, Reason::Pipe)),
        to(1, 200, row(3, Reason::Slice)),
        to(2, 300, back),
        to(0, 400, row(2, Reason::Sleep)),
    ]
}

fn trace(meta: &Meta, rows: &[Switch], gaps: &[Gap]) -> (Trace, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.swtch");
    let mut writer = Writer::create(&path, meta).unwrap();
    let tasks = [
        seen(1, 10, 10, "server\u{1b}[31m"),
        seen(2, 10, 11, "worker"),
        seen(3, 30, 30, "hog"),
    ];
    tasks
        .iter()
        .for_each(|task| writer.push_task(task).unwrap());
    rows.iter().for_each(|row| writer.push_switch(row).unwrap());
    gaps.iter().for_each(|gap| writer.push_gap(gap).unwrap());
    writer.finish(meta, &mut |_, _| ()).unwrap();
    (Trace::open(&path).unwrap(), dir)
}

fn of(trace: &Trace, list: &PriceList, by: BillBy, format: Format, filter: Filter) -> String {
    let request = ReportRequest {
        by: By::Reason,
        format,
        filter,
        top: None,
    };
    let mut out = Vec::new();
    bill(trace, by, &request, list, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn written(by: BillBy, format: Format) -> String {
    let (trace, _dir) = trace(&meta(), &rows(), &[]);
    of(&trace, &prices_with_curve(), by, format, Filter::default())
}

fn json_of(meta: &Meta, rows: &[Switch], gaps: &[Gap], list: &PriceList) -> Value {
    let (trace, _dir) = trace(meta, rows, gaps);
    let json = of(
        &trace,
        list,
        BillBy::Reason,
        Format::Json,
        Filter::default(),
    );
    serde_json::from_str(&json).unwrap()
}

fn json(by: BillBy) -> Value {
    serde_json::from_str(&written(by, Format::Json)).unwrap()
}

fn notes(json: &Value) -> String {
    let notes = json["notes"].as_array().unwrap().iter();
    notes
        .map(|note| note.as_str().unwrap())
        .collect::<Vec<_>>()
        .join("\n")
}

/// ```text
/// server   1 µs ├── 50 µs ──┤ 1 µs │ 0.1 µs │ 1 µs │ 0.1 µs │ 1 µs
///                                  └─ the span begins here
/// ```
/// Its caches lost 10 µs when it came back, and it made up for 1 µs in each run. So inside the span
/// it still pays for what it had lost before. The page that explains the span says the same.
#[test]
fn what_was_lost_before_a_span_is_missed_in_it() {
    let short = |us, off_ns| {
        let row = after(to(2, us, row(1, Reason::Pipe)), Reason::Pipe, off_ns, 0);
        let ran = Some(Nanos::from_ns(1000));
        Switch { ran, ..row }
    };
    let rows = [
        short(100, 0),
        short(151, 50_000),
        short(152, 100),
        short(153, 100),
    ];
    let (trace, _dir) = trace(&meta(), &rows, &[]);
    let filter = Filter {
        since: Some("151500ns".parse::<Moment>().unwrap()),
        ..Filter::default()
    };
    let prices = prices_with_curve();
    let page = explain::parts(&trace, &filter, Some(&prices)).unwrap();
    let json = of(&trace, &prices, BillBy::Reason, Format::Json, filter);
    let alone: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(alone["rows"][0]["indirect_high_ns"], 1000, "{alone}");
    let on_page = page.tables.iter().find(|(title, _)| title.contains("cost"));
    assert_eq!(
        alone["rows"],
        Value::from(on_page.unwrap().1.to_json_rows())
    );
}

/// Pipe between processes 2 µs, futex between threads 1 µs, the sleep as a futex, the slice as
/// a yield between processes, 0.7 µs; all ± 10 %. Each run took 100 µs. The server was away
/// for 40 µs: its 10 µs of cache may be gone.
#[test]
fn each_reason_is_billed_at_its_tariff() {
    let table = written(BillBy::Reason, Format::Table);
    let lines: Vec<Vec<&str>> = table
        .lines()
        .skip_while(|line| !line.starts_with("reason"))
        .filter(|line| !line.starts_with('─') && !line.starts_with("note"))
        .map(|line| line.split_whitespace().collect())
        .collect();
    let expected = [
        "reason category switches direct direct low direct high indirect high share of wall % \
         share of CPU % measured %",
        "pipe io 1 2.00 µs 1.80 µs 2.20 µs 10.0 µs 0.2 2.0 100.0",
        "futex synchronization 1 1.00 µs 900 ns 1.10 µs 0 ns 0.1 1.0 100.0",
        "sleep sleep 1 1.00 µs 900 ns 1.10 µs 0 ns 0.1 1.0 0.0",
        "slice preemption 1 700 ns 630 ns 770 ns 0 ns 0.1 0.7 0.0",
        "total 4 4.70 µs 4.23 µs 5.17 µs 10.0 µs 0.5 1.2 63.8",
    ];
    let lines: Vec<_> = lines.iter().map(|line| line.join(" ")).collect();
    assert_eq!(lines, expected);
}

#[test]
fn every_bill_has_every_format_and_shows_nothing_hostile() {
    for by in BillBy::ALL {
        for format in Format::ALL {
            let text = written(by, format);
            let is_plain = |c: char| c == '\n' || c == '\r' || !swtch_output::text::is_hostile(c);
            assert!(text.chars().all(is_plain), "{by:?} {format:?}: {text}");
        }
        let json = json(by);
        assert_eq!(
            json["schema"],
            format!("swtch.report.bill.{}/1", by.as_str())
        );
        assert_eq!(json["total"]["switches"], 4);
        assert_eq!(json["total"]["direct_ns"], 4700);
    }
}

#[test]
fn what_is_billed_is_named_with_its_tariff_and_basis() {
    let json = json(BillBy::Reason);
    let tariffs = json["prices"]["tariffs"].as_array().unwrap();
    let of = |reason: &str| tariffs.iter().find(|one| one["reason"] == reason).unwrap();
    assert_eq!(
        of("pipe")["source"],
        "pipe between processes, same CPU, batch"
    );
    assert_eq!(of("pipe")["estimated_because"], Value::Null);
    assert_eq!(of("slice")["successor"], "other-process");
    assert_eq!(
        of("sleep")["estimated_because"].as_array().unwrap().len(),
        2
    );
    let notes = notes(&json);
    let named = "estimated: 1 context switch (slice): preemptions are priced as";
    assert!(notes.contains(named), "{notes}");
    assert!(
        notes.contains("prices of db1 (drawn, Linux 6.18.0)"),
        "{notes}"
    );
    assert!(notes.contains("measured 2026-01-01"), "{notes}");
}

/// The stack is in the row after the switch.
#[test]
fn a_switch_is_billed_to_the_stack_of_the_wait_that_followed() {
    let json = json(BillBy::Stack);
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2);
    let with = rows
        .iter()
        .find(|row| row["folded"] != "(no stack)")
        .unwrap();
    assert_eq!(
        (&with["switches"], &with["direct_ns"]),
        (&1.into(), &2000.into())
    );
    let table = written(BillBy::Stack, Format::Table);
    assert!(
        table.contains("1 switches  direct 2.00 µs (1.80 µs to 2.20 µs)"),
        "{table}"
    );
    assert!(table.contains("\n  (no stack)\n"), "{table}");
    assert!(table.contains("\ntotal: 4 switches"), "{table}");
}

#[test]
fn a_trace_without_stacks_says_how_to_get_them() {
    let meta = Meta {
        stacks: None,
        ..meta()
    };
    let (trace, _dir) = trace(&meta, &rows(), &[]);
    let table = of(
        &trace,
        &prices(),
        BillBy::Stack,
        Format::Table,
        Filter::default(),
    );
    assert!(
        table.contains("record again, without --no-stacks"),
        "{table}"
    );
}

#[test]
fn a_pair_is_who_left_and_who_came() {
    let json = json(BillBy::Pair);
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    assert_eq!(
        (&rows[0]["tid"], &rows[0]["next_tid"]),
        (&10.into(), &30.into())
    );
    assert_eq!(rows[0]["next"], "hog");
    let to_idle = rows.iter().find(|row| row["next"] == "(idle)").unwrap();
    assert_eq!(
        (&to_idle["tid"], &to_idle["next_tid"]),
        (&11.into(), &Value::Null)
    );
}

#[test]
fn a_filter_bills_only_what_it_takes_and_a_span_is_the_whole() {
    let (trace, _dir) = trace(&meta(), &rows(), &[]);
    let at = |words: &str| Some(words.parse::<Moment>().unwrap());
    let filter = Filter {
        since: at("150us"),
        until: at("350us"),
        ..Filter::default()
    };
    let json = of(&trace, &prices(), BillBy::Reason, Format::Json, filter);
    let json: Value = serde_json::from_str(&json).unwrap();
    // The slice and the futex: 1.7 µs of 200 µs.
    assert_eq!(json["total"]["direct_ns"], 1700);
    assert_eq!(json["total"]["share_of_wall_pct"], 0.85);
    let filter = Filter {
        reasons: vec![Reason::Pipe],
        ..Filter::default()
    };
    let csv = of(
        &trace,
        &prices_with_curve(),
        BillBy::Reason,
        Format::Csv,
        filter,
    );
    let line = "pipe,io,1,2000,1800,2200,10000,0.2000,2.0000,100.0000,100000,0";
    assert_eq!(csv.lines().nth(1), Some(line));
}

#[test]
fn a_list_without_a_curve_bills_no_indirect_cost_and_says_so() {
    let json = json_of(&meta(), &rows(), &[], &prices());
    assert_eq!(json["total"]["indirect_high_ns"], Value::Null);
    assert!(notes(&json).contains("(indirect) is not known: the list has no curve"));
}

#[test]
fn what_has_no_price_makes_a_lower_bound() {
    let mut list = prices();
    list.prices.retain(|price| price.kind != "yield");
    let json = json_of(&meta(), &rows(), &[], &list);
    let rows = json["rows"].as_array().unwrap();
    let slice = rows.iter().find(|row| row["reason"] == "slice").unwrap();
    assert_eq!(
        (&slice["direct_ns"], &slice["unpriced"]),
        (&Value::Null, &1.into())
    );
    assert_eq!(json["total"]["direct_ns"], 4000);
    let notes = notes(&json);
    let said = "not in the bill, which is a lower bound: 1 context switch (slice): the list holds";
    assert!(notes.contains(said), "{notes}");
}

#[test]
fn lost_records_make_a_lower_bound() {
    let gap = Gap {
        cpu: CpuId::new(0),
        start: Timestamp::from_ns(1),
        end: Timestamp::from_ns(2),
        lost: 5,
        level: swtch_core::Level::Os,
    };
    let json = json_of(&meta(), &rows(), &[gap], &prices());
    assert!(notes(&json).contains("5 records lost: the bill is a lower bound"));
}

/// A run of 1 µs, ended by a switch of 2 µs ± 10 %.
#[test]
fn a_bill_that_cannot_be_is_said() {
    let mut short = to(3, 100, row(1, Reason::Pipe));
    short.ran = Some(Nanos::from_ns(1000));
    let said = "the prices do not hold for this trace";
    assert!(notes(&json_of(&meta(), &[short], &[], &prices())).contains(said));
    assert!(!notes(&json(BillBy::Reason)).contains(said));
}

#[test]
fn a_trace_of_another_kernel_is_billed_with_a_warning() {
    let mut list = prices();
    list.origin.kernel_release = "6.1.0".into();
    let json = json_of(&meta(), &rows(), &[], &list);
    let warning = "the prices may not hold for this trace: the kernel was 6.1.0, and is 6.18.0";
    assert_eq!(json["prices"]["warnings"][0], warning);
    assert!(notes(&json).contains(warning));
}

#[test]
fn a_trace_without_switches_costs_nothing() {
    let json = json_of(&meta(), &[], &[], &prices());
    assert_eq!(json["rows"], Value::Array(Vec::new()));
    assert_eq!(json["total"]["direct_ns"], 0);
    let (trace, _dir) = trace(&meta(), &[], &[]);
    for by in BillBy::ALL {
        let table = of(&trace, &prices(), by, Format::Table, Filter::default());
        assert!(table.contains("\nno rows\n"), "{by:?}: {table}");
    }
}

/// A recording that was cut right at its start, and a run that began before it.
#[test]
fn lengths_that_are_not_known_give_no_shares() {
    let cut = Meta {
        end_ns: 0,
        ..meta()
    };
    let mut first = to(3, 0, row(1, Reason::Pipe));
    first.ran = None;
    let json = json_of(&cut, &[first], &[], &prices());
    assert_eq!(json["total"]["direct_ns"], 2000);
    assert_eq!(json["total"]["share_of_wall_pct"], Value::Null);
    assert_eq!(json["total"]["share_of_cpu_pct"], Value::Null);
    let notes = notes(&json);
    assert!(notes.contains("no share of wall time"), "{notes}");
    assert!(notes.contains("1 run with unknown start"), "{notes}");
}
