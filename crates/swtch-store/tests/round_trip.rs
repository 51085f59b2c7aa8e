//! Rows are read as they were written: every column, both forms of a trace, any order of arrival.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;

use common::{End, Others, messaging, odd_switch, pipe, record, rows, said};
use swtch_core::rules::rule_named;
use swtch_core::{Certainty, Gap, Level, Reason, Rule, Switch, Timestamp, UserSide};
use swtch_store::{Columns, Completeness, Meta, PieceReader, RecordingState, Trace, Writer};
use tempfile::TempDir;

fn place() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.swtch");
    (dir, path)
}

fn mixed() -> Vec<Switch> {
    let mut switches: Vec<_> = messaging(3).take(700).chain(pipe(4).take(300)).collect();
    switches.push(odd_switch(1 << 40));
    switches.sort_by_key(|row| row.ts);
    switches
}

#[test]
fn every_column_is_exact_in_both_forms() {
    for end in [End::Killed, End::Finished] {
        let (_dir, path) = place();
        let written = mixed();
        record(&path, &written, 100, end);
        let trace = Trace::open(&path).unwrap();
        let read = rows(&trace).unwrap();
        assert_eq!(trace.row_count(), 1_001);
        for (written, read) in written.iter().zip(&read) {
            assert_eq!(said(read), said(written));
        }
        assert_eq!(read.len(), written.len());
        assert_eq!(Others::of(&trace).unwrap(), Others::sample());
    }
}

#[test]
fn an_empty_trace_is_a_trace() {
    for end in [End::Killed, End::Finished] {
        let (_dir, path) = place();
        record(&path, &[], 1, end);
        let trace = Trace::open(&path).unwrap();
        assert_eq!((trace.row_count(), rows(&trace).unwrap().len()), (0, 0));
    }
}

#[test]
fn a_finished_trace_says_so_and_leaves_no_streams() {
    let (_dir, path) = place();
    record(&path, &mixed(), 100, End::Finished);
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.completeness(), Completeness::Finished);
    assert_eq!(trace.meta().state, RecordingState::Finished);
    let names = fs::read_dir(&path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    let expected = "cgroup.parquet checksums.csv command.parquet frame.parquet gap.parquet meta.json \
                    open.parquet span.parquet stack.parquet switch.parquet task.parquet \
                    wait_type.parquet worker.parquet";
    assert_eq!(names.join(" "), expected);
}

#[test]
fn a_killed_recorders_trace_says_so() {
    let (_dir, path) = place();
    record(&path, &mixed(), 100, End::Killed);
    let Completeness::Unfinished {
        why,
        unreadable_bytes,
    } = Trace::open(&path).unwrap().completeness()
    else {
        panic!("it was killed");
    };
    assert_eq!(why, "the recording goes on, or its recorder was killed");
    assert_eq!(unreadable_bytes, 0);
}

/// Records from several CPUs sometimes arrive late.
#[test]
fn late_rows_are_read_in_order_of_time() {
    for end in [End::Killed, End::Finished] {
        let (_dir, path) = place();
        let mut late = mixed();
        late.swap(150, 420);
        late.swap(10, 900);
        record(&path, &late, 100, end);
        let read = rows(&Trace::open(&path).unwrap()).unwrap();
        let expected: Vec<_> = mixed().iter().map(said).collect();
        assert!(read.iter().map(said).eq(expected));
    }
}

#[test]
fn a_growing_trace_shows_what_is_flushed_and_stays_as_it_was_opened() {
    let (_dir, path) = place();
    let switches = mixed();
    let mut writer = Writer::create(&path, &Meta::default()).unwrap();
    for row in &switches[..100] {
        writer.push_switch(row).unwrap();
    }
    assert_eq!(Trace::open(&path).unwrap().row_count(), 0);
    writer.flush().unwrap();
    let early = Trace::open(&path).unwrap();
    for row in &switches[100..] {
        writer.push_switch(row).unwrap();
    }
    writer.finish(&Meta::default(), &mut |_, _| ()).unwrap();
    assert_eq!(rows(&early).unwrap().len(), 100);
    assert_eq!(Trace::open(&path).unwrap().row_count(), 1_001);
}

#[test]
fn only_the_asked_for_columns_are_known() {
    for end in [End::Killed, End::Finished] {
        let (_dir, path) = place();
        let written = mixed();
        record(&path, &written, 100, end);
        let trace = Trace::open(&path).unwrap();
        let mut read = Vec::new();
        let columns = Columns::RAN | Columns::REASON;
        trace
            .scan(columns, None, &mut |row| read.push(*row))
            .unwrap();
        for (written, read) in written.iter().zip(&read) {
            assert_eq!(read.ran, written.ran);
            assert_eq!(read.rule.reason, written.rule.reason);
            assert_eq!(
                (read.rule.name, read.wait.off, read.next_task),
                ("", None, None)
            );
        }
        assert_eq!(read.len(), written.len());
    }
}

/// A scan without columns still counts rows.
#[test]
fn a_scan_of_no_columns_counts_rows() {
    for end in [End::Killed, End::Finished] {
        let (_dir, path) = place();
        record(&path, &mixed(), 100, end);
        let mut count = 0;
        let trace = Trace::open(&path).unwrap();
        trace
            .scan(Columns::NONE, None, &mut |_| count += 1)
            .unwrap();
        assert_eq!(count, 1_001);
    }
}

#[test]
fn a_span_includes_both_its_ends() {
    for end in [End::Killed, End::Finished] {
        let (_dir, path) = place();
        let written = mixed();
        record(&path, &written, 100, end);
        let (since, until) = (written[300].ts, written[600].ts);
        let expected = written
            .iter()
            .filter(|row| (since..=until).contains(&row.ts))
            .count();
        let mut count = 0;
        let trace = Trace::open(&path).unwrap();
        let span = Some((since, until));
        trace
            .scan(Columns::NONE, span, &mut |_| count += 1)
            .unwrap();
        assert_eq!(count, expected);
        let never = Some((Timestamp::from_ns(1), Timestamp::from_ns(2)));
        trace
            .scan(Columns::all(), never, &mut |_| panic!("too early"))
            .unwrap();
    }
}

/// In a finished trace only the pages that overlap a span are read: at their edges no row may be
/// missed, rows must be complete, and moments may repeat across pages.
#[test]
fn a_span_is_the_same_however_many_pages_it_cuts() {
    let (_dir, path) = place();
    let mut written: Vec<_> = messaging(7).take(130_000).collect();
    let repeated = written[41_500].ts;
    for row in &mut written[39_000..41_500] {
        row.ts = repeated;
    }
    record(&path, &written, 10_000, End::Finished);
    let trace = Trace::open(&path).unwrap();
    let all = rows(&trace).unwrap();
    let last = all.len() - 1;
    for (first, end) in [
        (0, 0),
        (19_999, 20_001),
        (39_500, 39_501),
        (60_000, 125_000),
        (last, last),
    ] {
        let span = (all[first].ts, all[end].ts);
        let expected = all
            .iter()
            .filter(|row| span.0 <= row.ts && row.ts <= span.1);
        let expected: Vec<_> = expected.map(said).collect();
        let mut read = Vec::new();
        trace
            .scan(Columns::all(), Some(span), &mut |row| read.push(said(row)))
            .unwrap();
        assert!(
            read == expected,
            "{first}..={end}: {} of {}",
            read.len(),
            expected.len()
        );
    }
}

/// A trace can be made from another, and rules are added and removed.
#[test]
fn a_rule_of_another_version_keeps_its_name_and_verdict() {
    static GONE: Rule = Rule::foreign("gone", Reason::Net, Certainty::Inferred);
    for end in [End::Killed, End::Finished] {
        let (_dir, path) = place();
        let mut switches = mixed();
        switches[500].rule = &GONE;
        record(&path, &switches, 100, end);
        let read = rows(&Trace::open(&path).unwrap()).unwrap();
        for (written, read) in switches.iter().zip(&read) {
            assert_eq!(said(read), said(written));
        }
    }
}

/// Versions 1 to 5 of the rules called a request at a wakeup the end of a slice. The row, the wait after it
/// and what was open at the end are read as today's; a span that begins later knows the rows in it only.
#[test]
fn an_older_trace_is_judged_by_the_rules_of_today() {
    static THEN: Rule = Rule::foreign(
        "protection_lapsed_at_wakeup",
        Reason::Slice,
        Certainty::Certain,
    );
    let meta = Meta {
        rules_version: 5,
        ..Meta::default()
    };
    let row = |ts, rule, wait| {
        let mut row = odd_switch(1);
        (row.ts, row.rule, row.level) = (Timestamp::from_ns(ts), rule, Level::Os);
        row.wait.reason = wait;
        row
    };
    let slice = rule_named("tick_slice_end").unwrap();
    let written = [
        row(10, slice, None),
        row(20, &THEN, Some(Reason::Slice)),
        row(30, slice, Some(Reason::Slice)),
        row(40, &THEN, Some(Reason::Slice)),
    ];
    for end in [End::Killed, End::Finished] {
        let (_dir, path) = place();
        let mut writer = Writer::create(&path, &meta).unwrap();
        for row in &written {
            writer.push_switch(row).unwrap();
        }
        let open = swtch_core::Open {
            reason: Some(Reason::Slice),
            ..Others::sample().opens[0]
        };
        let open = swtch_core::Open {
            task: written[0].task,
            ..open
        };
        writer.push_open(&open).unwrap();
        match end {
            End::Killed => {
                writer.flush().unwrap();
                drop(writer);
            }
            End::Finished => writer.finish(&meta, &mut |_, _| ()).unwrap(),
        }
        let trace = Trace::open(&path).unwrap();
        let judged = |columns, span| {
            let mut rows = Vec::new();
            let mut take = |row: &Switch| rows.push((row.rule.reason, row.wait.reason));
            trace.scan(columns, span, &mut take).unwrap();
            rows
        };
        let (slice, wakeup) = (Reason::Slice, Reason::Wakeup);
        let all = [
            (slice, None),
            (wakeup, Some(slice)),
            (slice, Some(wakeup)),
            (wakeup, Some(slice)),
        ];
        assert_eq!(judged(Columns::all(), None), all);
        assert_eq!(judged(Columns::REASON | Columns::OFF_REASON, None), all);
        let late = (Timestamp::from_ns(30), Timestamp::from_ns(40));
        assert_eq!(judged(Columns::all(), Some(late))[1], (wakeup, Some(slice)));
        assert_eq!(trace.opens().unwrap()[0].reason, Some(wakeup));
    }
}

#[test]
fn finishing_tells_its_progress() {
    let (_dir, path) = place();
    let mut writer = Writer::create(&path, &Meta::default()).unwrap();
    for row in pipe(1).take(20_000) {
        writer.push_switch(&row).unwrap();
    }
    let mut heard = Vec::new();
    let mut hear = |done, all| heard.push((done, all));
    writer.finish(&Meta::default(), &mut hear).unwrap();
    assert_eq!(heard, [(8_192, 20_000), (16_384, 20_000), (20_000, 20_000)]);
}

#[test]
fn meta_is_as_it_was_given_at_the_end() {
    let (_dir, path) = place();
    let writer = Writer::create(&path, &Meta::default()).unwrap();
    let mut meta = Meta {
        state: RecordingState::StoppedEarly,
        stop_reason: Some("disk full".into()),
        ..Meta::default()
    };
    meta.counts.lost = 7;
    writer.finish(&meta, &mut |_, _| ()).unwrap();
    assert_eq!(Trace::open(&path).unwrap().meta(), &meta);
}

/// Every third row is of a user-mode scheduler; a reader that does not ask for these gets only the
/// kernel's.
#[test]
fn levels_are_never_mixed_unless_asked_for() {
    for end in [End::Killed, End::Finished] {
        let (_dir, path) = place();
        let mut written: Vec<_> = pipe(4).take(300).collect();
        for row in written.iter_mut().step_by(3) {
            row.level = Level::User;
        }
        record(&path, &written, 70, end);
        let trace = Trace::open(&path).unwrap();
        assert_eq!((trace.row_count(), trace.user_row_count()), (200, 100));
        let os = rows(&trace).unwrap();
        assert_eq!(os.len(), 200);
        assert!(os.iter().all(|row| row.level == Level::Os));
        let mut both = Vec::new();
        let mut take = |row: &Switch| both.push((row.ts, row.level));
        trace
            .scan_levels(Columns::TS | Columns::LEVEL, None, &mut take)
            .unwrap();
        assert_eq!(both.len(), 300);
        let expected: Vec<_> = written.iter().map(|row| (row.ts, row.level)).collect();
        assert_eq!(both, expected);
    }
}

/// More rows than the queues between the threads hold, so that fast readers wait for slow ones.
#[test]
fn each_of_several_readers_gets_every_row_in_order() {
    for end in [End::Killed, End::Finished] {
        let (_dir, path) = place();
        let written: Vec<_> = messaging(5).take(40_000).collect();
        record(&path, &written, 5_000, end);
        let trace = Trace::open(&path).unwrap();
        let expected: Vec<_> = rows(&trace).unwrap().iter().map(|row| row.ts).collect();
        let (mut first, mut second, mut third) = (Vec::new(), Vec::new(), Vec::new());
        let mut take = |rows: &[Switch]| {
            first.extend(rows.iter().map(|row| row.ts));
            ControlFlow::Continue(())
        };
        let further: Vec<PieceReader<'_>> = vec![
            Box::new(|rows| second.extend(rows.iter().map(|row| row.ts))),
            Box::new(|rows| {
                std::thread::yield_now();
                third.extend(rows.iter().map(|row| row.ts));
            }),
        ];
        trace
            .scan_together(Level::ALL, Columns::TS, None, &mut take, further)
            .unwrap();
        assert_eq!(expected.len(), 40_000);
        for read in [first, second, third] {
            assert!(read == expected, "{} of {}", read.len(), expected.len());
        }
    }
}

/// A reader that fails must neither be waited for nor be passed over in silence.
#[test]
#[should_panic(expected = "a scoped thread panicked")]
fn a_panic_of_a_further_reader_is_passed_on() {
    let (_dir, path) = place();
    let written: Vec<_> = messaging(5).take(40_000).collect();
    record(&path, &written, 5_000, End::Finished);
    let trace = Trace::open(&path).unwrap();
    let further: Vec<PieceReader<'_>> = vec![Box::new(|_| panic!("this reader cannot"))];
    let mut take = |_: &[Switch]| ControlFlow::Continue(());
    let _ = trace.scan_together(Level::ALL, Columns::TS, None, &mut take, further);
}

/// A reader that wants no more rows does not wait for the rest of the trace to be read.
#[test]
fn a_first_reader_that_breaks_ends_the_pass_for_all() {
    let (_dir, path) = place();
    let written: Vec<_> = messaging(5).take(40_000).collect();
    record(&path, &written, 5_000, End::Finished);
    let trace = Trace::open(&path).unwrap();
    let (mut first, mut second) = (0, 0);
    let mut take = |rows: &[Switch]| {
        first += rows.len();
        ControlFlow::Break(())
    };
    let further: Vec<PieceReader<'_>> = vec![Box::new(|rows| second += rows.len())];
    let scanned = trace.scan_together(Level::ALL, Columns::TS, None, &mut take, further);
    scanned.unwrap();
    assert!(first > 0 && first < 5_000, "{first} rows");
    assert!(second < 40_000, "{second} rows");
}

/// Records lost in a user-mode scheduler's ring are no gap in the kernel's switches.
#[test]
fn gaps_of_one_level_are_not_those_of_the_other() {
    let (_dir, path) = place();
    let mut writer = Writer::create(&path, &Meta::default()).unwrap();
    for level in [Level::Os, Level::User, Level::User] {
        let gap = Gap {
            level,
            ..Others::sample().gaps[0]
        };
        writer.push_gap(&gap).unwrap();
    }
    writer.finish(&Meta::default(), &mut |_, _| ()).unwrap();
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.gaps().unwrap().len(), 1);
    assert_eq!(trace.gaps_of(Level::User).unwrap().len(), 2);
}

/// A real trace, recorded by the first version: it lacks a table and some columns.
#[test]
fn a_trace_of_format_1_still_opens() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/format-1.swtch");
    let trace = Trace::open(&path).unwrap();
    assert_eq!(trace.meta().format_version, 1);
    let rows = rows(&trace).unwrap();
    assert_eq!(
        u64::try_from(rows.len()).unwrap(),
        trace.meta().counts.stored
    );
    assert!(
        rows.iter()
            .all(|row| row.level == Level::Os && row.user == UserSide::default())
    );
    assert!(
        rows.iter()
            .all(|row| row.wait.wakeup.waker_stacks.kernel.is_none())
    );
    assert_eq!(
        (trace.user_row_count(), trace.wait_types().unwrap().len()),
        (0, 0)
    );
    assert!(!trace.tasks().unwrap().is_empty());
    assert!(trace.gaps().unwrap().is_empty());
}
