//! Imports of perf's recordings: refusals that help, and the same numbers as perf's own.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde_json::Value;
use swtch_core::{EvidenceBits, Nanos, Reason};
use swtch_store::Trace;

use crate::forged::{AUXTRACE, Forged, compressed, lost, lost_samples, record, switch};
use crate::machine::{alone, beside_others};
use crate::recording::{SWTCH, TraceContents, TraceDir, report, stderr, stdout, swtch};

fn import(place: &TraceDir, file: &str) -> std::process::Output {
    let mut command = swtch(["import", file, "-o"]);
    let output = command.arg(place.trace()).current_dir(place.dir()).output();
    output.unwrap()
}

#[test]
fn what_is_no_whole_file_of_perfs_is_refused_and_leaves_no_trace() {
    let place = TraceDir::new();
    let head = [&b"PERFILE2"[..], &[0; 40]].concat();
    for (name, bytes, said) in [
        ("text", &b"hello"[..], "no perf.data file"),
        ("empty", b"", "no perf.data file"),
        ("cut", &head, "cut short"),
    ] {
        fs::write(place.dir().join(name), bytes).unwrap();
        let output = import(&place, name);
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(
            stderr(&output).contains(said),
            "{name}: {}",
            stderr(&output)
        );
        assert!(!place.trace().exists(), "{name}");
    }
    let output = import(&place, "missing");
    assert!(
        stderr(&output).contains("No such file"),
        "{}",
        stderr(&output)
    );
}

/// Imports these bytes and checks that the exit code is 0, or 2 with a message. Returns message and
/// code.
fn import_bytes(place: &TraceDir, bytes: &[u8], what: &str) -> (i32, String) {
    fs::write(place.dir().join("forged.data"), bytes).unwrap();
    let output = import(place, "forged.data");
    let said = stderr(&output);
    let code = output.status.code();
    let code = code.unwrap_or_else(|| panic!("{what}: {}: {said}", output.status));
    assert!(!said.contains("panicked"), "{what}: {said}");
    match code {
        0 => {
            assert!(said.contains("the trace is"), "{what}: {said}");
            fs::remove_dir_all(place.trace()).unwrap();
        }
        2 => {
            assert!(said.starts_with("error: reading "), "{what}: {said}");
            assert!(!place.trace().exists(), "{what}");
        }
        other => panic!("{what}: exit code {other}: {said}"),
    }
    (code, said)
}

/// The crate that reads the format would allocate as much as a damaged length says, and be killed.
#[test]
fn lengths_that_cannot_be_are_said_before_they_are_believed() {
    let place = TraceDir::new();
    let whole = Forged::new(&[]);
    assert_eq!(import_bytes(&place, &whole.bytes, "whole").0, 0);
    let long = u64::to_le_bytes;
    let trace = Forged::new(&[record(AUXTRACE, &[1 << 50, 0, 0, 0, 0])]);
    for (what, bytes, sentence) in [
        (
            "a part of 2^60 bytes",
            whole.with(whole.table + 8, &long(1 << 60)),
            "damaged",
        ),
        ("attributes of 0 bytes", whole.with(16, &long(0)), "damaged"),
        (
            "attributes of 2^62 bytes",
            whole.with(32, &long(1 << 62)),
            "damaged",
        ),
        (
            "data beyond the end of numbers",
            whole.with(48, &long(u64::MAX)),
            "damaged",
        ),
        ("no data", whole.with(48, &long(0)), "perf was killed"),
        (
            "no description of events",
            whole.with(72, &long(1 << 1)),
            "perf was killed",
        ),
        (
            "2^32 events",
            whole.with(whole.events, &[0xff; 4]),
            "damaged",
        ),
        (
            "2^32 ids",
            whole.with(whole.events + 72, &[0xff; 4]),
            "damaged",
        ),
        (
            "2^32 words",
            whole.with(whole.command, &[0xff; 4]),
            "damaged",
        ),
        ("a hardware trace of 2^50 bytes", trace.bytes, "damaged"),
        (
            "a file that claims to be a pipe",
            whole.with(8, &long(16)),
            "there is no data",
        ),
    ] {
        let (code, said) = import_bytes(&place, &bytes, what);
        assert_eq!(code, 2, "{what}: {said}");
        assert!(said.contains(sentence), "{what}: {said}");
    }
}

/// As after a bit flip on a disk: every byte of the head and the table, and a share of the rest.
#[test]
fn a_flipped_byte_neither_panics_nor_aborts() {
    let place = TraceDir::new();
    let whole = Forged::new(&[lost(2)]);
    let table = whole.table..whole.table + 48;
    let chosen = |at: &usize| *at < 104 || table.contains(at) || at.is_multiple_of(5);
    for at in (0..whole.bytes.len()).filter(chosen) {
        let byte = whole.bytes[at] ^ if at % 2 == 0 { 0xff } else { 0x81 };
        import_bytes(&place, &whole.with(at, &[byte]), &format!("byte {at}"));
    }
}

/// As after a copy that ended early.
#[test]
fn a_file_that_is_cut_anywhere_is_refused() {
    let place = TraceDir::new();
    let whole = Forged::new(&[]).bytes;
    for cut in (0..whole.len()).step_by(13) {
        let (code, said) = import_bytes(&place, &whole[..cut], &format!("{cut} bytes"));
        assert_eq!(code, 2, "{cut} bytes: {said}");
    }
}

/// perf reports a loss in the stream, and again at its end.
#[test]
fn records_that_are_told_as_lost_twice_count_once() {
    for (records, expected) in [
        (vec![lost(10), lost_samples(10)], 10),
        (vec![lost_samples(10), lost(10)], 10),
        (vec![lost_samples(3), lost_samples(4)], 7),
        (vec![lost(u64::MAX), lost(u64::MAX)], 1 << 48),
    ] {
        let place = TraceDir::new();
        fs::write(place.dir().join("forged.data"), Forged::new(&records).bytes).unwrap();
        let output = import(&place, "forged.data");
        assert!(output.status.success(), "{}", stderr(&output));
        let recorded = TraceContents::new(Trace::open(&place.trace()).unwrap());
        assert_eq!(recorded.meta.counts.lost, expected);
        assert!(
            stderr(&output).contains("records lost"),
            "{}",
            stderr(&output)
        );
        let page = stdout(&report(&place.trace(), &["--format", "json"]));
        let json: Value = serde_json::from_str(&page).unwrap();
        let gaps = json["trace"]["gaps"].as_array().unwrap();
        let in_gaps: u64 = gaps.iter().map(|gap| gap["lost"].as_u64().unwrap()).sum();
        assert_eq!(in_gaps, expected);
    }
}

/// Returns what an import left out, as it prints it and as the trace says it.
fn left_out(records: &[Vec<u8>]) -> (String, String) {
    let place = TraceDir::new();
    fs::write(place.dir().join("forged.data"), Forged::new(records).bytes).unwrap();
    let output = import(&place, "forged.data");
    assert!(output.status.success(), "{}", stderr(&output));
    (stderr(&output), stdout(&report(&place.trace(), &[])))
}

/// A switch that is in no row must be reported.
#[test]
fn records_that_cannot_be_understood_are_counted_and_said() {
    let unknown_kind = record(40, &[0; 5]);
    let unknown_kind_of_perf = record(120, &[0; 2]);
    // A tracepoint whose number is not described in the file: it is behind head (8), thread, time,
    // CPU (24) and the length of its bytes (4).
    let mut unknown_tracepoint = switch(15_000, true);
    unknown_tracepoint[36..38].copy_from_slice(&999_u16.to_le_bytes());
    // The length field of its raw bytes is larger than the record.
    let mut torn = switch(15_100, false);
    torn[32..36].copy_from_slice(&60_000_u32.to_le_bytes());
    for (records, count) in [
        (vec![], 0),
        (vec![unknown_kind.clone()], 1),
        (vec![unknown_kind_of_perf.clone()], 1),
        (vec![unknown_tracepoint.clone()], 1),
        (vec![torn.clone()], 1),
        (
            vec![unknown_kind, unknown_kind_of_perf, unknown_tracepoint, torn],
            4,
        ),
    ] {
        let (said, page) = left_out(&records);
        let expected = match count {
            0 => {
                assert!(
                    !said.contains("understood") && !page.contains("understood"),
                    "{said}"
                );
                continue;
            }
            1 => "note: 1 record of the file could not be understood".to_owned(),
            many => format!("note: {many} records of the file could not be understood"),
        };
        assert!(said.contains(&expected), "{count}: {said}");
        assert!(page.contains(&expected), "{count}: {page}");
    }
}

/// A pipe has the same records, in another order of parts.
#[test]
fn what_came_through_a_pipe_is_read_as_the_file() {
    let place = TraceDir::new();
    let forged = Forged::new(&[lost(2)]);
    fs::write(place.dir().join("file"), &forged.bytes).unwrap();
    let pipe = forged.to_pipe();
    fs::write(place.dir().join("pipe"), &pipe).unwrap();
    let (file, _) = imported_rows(&place, "file");
    let (piped, _) = imported_rows(&place, "pipe");
    let debug = |rows: &TraceContents| format!("{:?}", rows.switches);
    assert_eq!(debug(&file), debug(&piped));
    assert_eq!(file.meta.counts.lost, piped.meta.counts.lost);
    for cut in (0..pipe.len()).step_by(13) {
        import_bytes(&place, &pipe[..cut], &format!("{cut} bytes of a pipe"));
    }
}

/// Two tasks on one CPU, as the kernel's file `trace` and as `trace-cmd report` prints them.
#[test]
fn text_of_ftrace_is_read_in_both_of_its_forms() {
    let place = TraceDir::new();
    let kernels = "# tracer: nop\n\
        #           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION\n\
        \x20         <idle>-0       [000] d..2.     1.000000: sched_switch: prev_comm=swapper/0 prev_pid=0 \
        prev_prio=120 prev_state=R ==> next_comm=my app next_pid=7 next_prio=120\n\
        \x20         my app-7       [000] d..2.     1.000010: sched_switch: prev_comm=my app prev_pid=7 \
        prev_prio=120 prev_state=S ==> next_comm=b next_pid=8 next_prio=120\n\
        \x20              b-8       [000] d.h2.     1.000030: sched_waking: comm=my app pid=7 prio=120 \
        target_cpu=000\n\
        \x20              b-8       [000] d..2.     1.000040: sched_switch: prev_comm=b prev_pid=8 prev_prio=120 \
        prev_state=R+ ==> next_comm=my app next_pid=7 next_prio=120\n\
        \x20         my app-7       [000] d..2.     1.000050: sched_switch: prev_comm=my app prev_pid=7 \
        prev_prio=120 prev_state=Z ==> next_comm=swapper/0 next_pid=0 next_prio=120\n";
    let trace_cmds = "cpus=1\n\
        <idle>-0 [000] 1.000000: sched_switch: swapper/0:0 [120] R ==> my app:7 [120]\n\
        my app-7 [000] 1.000010: sched_switch: my app:7 [120] S ==> b:8 [120]\n\
        b-8 [000] 1.000030: sched_waking: comm=my app pid=7 prio=120 target_cpu=000\n\
        b-8 [000] 1.000040: sched_switch: b:8 [120] R+ ==> my app:7 [120]\n\
        my app-7 [000] 1.000050: sched_switch: my app:7 [120] Z ==> swapper/0:0 [120]\n";
    for text in [kernels, trace_cmds] {
        fs::write(place.dir().join("trace.txt"), text).unwrap();
        let (rows, _) = imported_rows(&place, "trace.txt");
        let told: Vec<_> = rows
            .switches
            .iter()
            .map(|row| {
                let us = |length: Option<Nanos>| length.map(|length| length.as_ns() / 1000);
                (
                    row.rule.reason,
                    us(row.ran),
                    us(row.wait.off),
                    us(row.wait.runq),
                )
            })
            .collect();
        let expected = [
            (Reason::Blocked, Some(10), None, None),
            (Reason::Preempted, Some(30), None, None),
            (Reason::Exit, Some(10), Some(30), Some(10)),
        ];
        assert_eq!(told, expected, "{text}");
        assert!(rows.tasks.iter().any(|task| task.comm == b"my app"));
    }
}

/// The number at the torn end would be another priority, and a CPU cannot go back in time.
#[test]
fn a_text_that_is_cut_or_goes_back_in_time_is_said() {
    let place = TraceDir::new();
    let line = |us: u32, prev: &str, next: &str| {
        format!(
            "{} [000] 1.{us:06}: sched_switch: {prev} [120] S ==> {next} [120]\n",
            prev.replace(':', "-")
        )
    };
    let whole = [
        line(10, "a:0", "b:7"),
        line(30, "b:7", "a:0"),
        line(20, "a:0", "b:7"),
    ]
    .concat();
    fs::write(place.dir().join("t.txt"), &whole).unwrap();
    let (rows, said) = imported_rows(&place, "t.txt");
    assert_eq!(rows.switches.len(), 1);
    assert_eq!(rows.meta.imported.unwrap().unreadable_records, 1);
    assert!(
        said.contains("1 record of the file could not be understood"),
        "{said}"
    );
    assert!(import(&place, "t.txt").status.success());
    let page = stdout(&report(&place.trace(), &["--min-wait", "1ms"]));
    assert!(page.starts_with("host   not told\n"), "{page}");
    assert!(
        page.contains("waits shorter than 1ms are left out"),
        "{page}"
    );
    fs::remove_dir_all(place.trace()).unwrap();
    fs::write(place.dir().join("t.txt"), &whole[..whole.len() - 1]).unwrap();
    let (_, said) = imported_rows(&place, "t.txt");
    assert!(
        said.contains("cut short, in the middle of a line"),
        "{said}"
    );
}

/// The trace of this place, before and after an export to Perfetto that is imported again.
fn around_perfetto(place: &TraceDir) -> [TraceContents; 2] {
    let written = swtch(["export", "--to", "perfetto", "-o"])
        .arg(place.dir().join("t.pftrace"))
        .arg(place.trace())
        .output();
    assert!(written.unwrap().status.success());
    let before = TraceContents::new(Trace::open(&place.trace()).unwrap());
    fs::remove_dir_all(place.trace()).unwrap();
    let (after, _) = imported_rows(place, "t.pftrace");
    [before, after]
}

/// An export of an import is imported again: no row is lost, no length of a run changes.
#[test]
fn a_trace_of_perfetto_has_the_rows_that_were_exported() {
    let place = TraceDir::new();
    fs::write(place.dir().join("perf.data"), Forged::new(&[]).bytes).unwrap();
    assert!(import(&place, "perf.data").status.success());
    let [before, after] = around_perfetto(&place);
    // What the export writes where nothing is known of a CPU becomes a run without a beginning. Nothing in the file tells
    // who woke a thread, so the export does not tell its waits.
    let lengths = |rows: &TraceContents| -> Vec<_> {
        let rows = rows.switches.iter().filter(|row| row.ran.is_some());
        rows.map(|row| (row.ts, row.ran, row.wait.runq, row.rule.reason))
            .collect()
    };
    assert_eq!(lengths(&after), lengths(&before));
}

/// What our export writes for time of which it has no row becomes neither a thread nor the length of a wait.
#[test]
fn what_an_export_does_not_tell_is_not_told_again() {
    let place = TraceDir::new();
    // c left CPU 0 without having come, and b came to CPU 1 without having left CPU 0.
    let text = "<idle>-0 [000] 1.000010: sched_switch: idle:0 [120] R ==> b:7 [120]\n\
        b-7 [000] 1.000020: sched_switch: b:7 [120] R ==> a:6 [120]\n\
        c-8 [000] 1.000040: sched_switch: c:8 [120] S ==> b:7 [120]\n\
        b-7 [001] 1.000060: sched_switch: b:7 [120] S ==> idle:0 [120]\n\
        b-7 [000] 1.000070: sched_switch: b:7 [120] S ==> idle:0 [120]\n\
        <idle>-0 [002] 1.000080: sched_switch: idle:0 [120] R ==> d:9 [120]\n\
        d-9 [002] 1.000081: sched_switch: d:9 [120] S ==> idle:0 [120]\n\
        <idle>-0 [002] 1.000085: sched_waking: comm=d pid=9 prio=120 target_cpu=002\n\
        <idle>-0 [002] 1.000087: sched_switch: idle:0 [120] R ==> d:9 [120]\n\
        d-9 [002] 1.000089: sched_switch: d:9 [120] S ==> idle:0 [120]\n";
    fs::write(place.dir().join("t.txt"), text).unwrap();
    assert!(import(&place, "t.txt").status.success());
    let [before, after] = around_perfetto(&place);
    let told = |rows: &TraceContents| -> Vec<_> {
        let rows = rows.switches.iter();
        rows.map(|row| (row.ts, row.cpu, row.wait.off)).collect()
    };
    assert_eq!(told(&after), told(&before));
    let told = after.switches.iter().filter_map(|row| row.wait.off);
    assert_eq!(told.collect::<Vec<_>>(), [Nanos::from_ns(6_000)]);
}

/// Perfetto's usual form: switches in columns, of which each says only who comes.
#[test]
fn compact_sched_is_read() {
    let field = |number: u8, body: &[u8]| {
        [&[number << 3 | 2, u8::try_from(body.len()).unwrap()], body].concat()
    };
    // Times are differences; 0 is idle. Thread 7 runs from 10 to 20 and from 50 to 60, and is woken at 40.
    let columns = [
        field(1, &[10, 10, 30, 10]),
        field(2, &[0, 1, 0, 1]),
        field(3, &[7, 0, 7, 0]),
        field(4, &[120, 120, 120, 120]),
        field(5, b"swapper"),
        field(5, b"app"),
        field(6, &[1, 0, 1, 0]),
        field(7, &[40]),
        field(8, &[7]),
        field(9, &[0]),
        field(10, &[120]),
        field(11, &[1]),
    ];
    let packet = field(
        1,
        &field(
            1,
            &[&[1 << 3, 0][..], &field(4, &columns.concat())].concat(),
        ),
    );
    let place = TraceDir::new();
    fs::write(place.dir().join("t.pftrace"), packet).unwrap();
    let (rows, _) = imported_rows(&place, "t.pftrace");
    let ns = |length: Option<Nanos>| length.map(Nanos::as_ns);
    let told: Vec<_> = rows
        .switches
        .iter()
        .map(|row| (ns(row.ran), ns(row.wait.off), ns(row.wait.runq)))
        .collect();
    assert_eq!(
        told,
        [(Some(10), None, None), (Some(10), Some(30), Some(10))]
    );
}

/// The refusal says which command makes something that can be imported.
#[test]
fn a_trace_dat_is_refused_with_the_way_to_its_text() {
    let place = TraceDir::new();
    let (code, said) = import_bytes(&place, b"\x17\x08\x44tracing6\0\0\x08", "trace.dat");
    assert!(code == 2 && said.contains("trace-cmd report"), "{said}");
    let line = "a-1 [000] 1.000000: sched_stat_runtime: comm=a pid=1\n";
    let (code, said) = import_bytes(&place, line.as_bytes(), "no switch");
    assert!(
        code == 2 && said.contains("trace-cmd record -e sched_switch"),
        "{said}"
    );
}

/// As `perf record -z` writes them.
#[test]
fn compressed_records_are_read() {
    let plain = [switch(15_000, true), switch(15_100, false)];
    let rows = |records: &[Vec<u8>]| {
        let place = TraceDir::new();
        fs::write(place.dir().join("forged.data"), Forged::new(records).bytes).unwrap();
        let output = import(&place, "forged.data");
        assert!(output.status.success(), "{}", stderr(&output));
        TraceContents::new(Trace::open(&place.trace()).unwrap())
            .switches
            .len()
    };
    let without = rows(&[]);
    assert_eq!(rows(&plain), without + 1);
    assert_eq!(rows(&[compressed(&plain.concat())]), without + 1);
}

/// A record of 20 kB can decompress to 500 MB, and a file has room for many of them.
#[test]
fn what_would_fill_the_memory_when_it_is_decompressed_is_refused() {
    let place = TraceDir::new();
    let bomb = compressed(&vec![0; 500 << 20]);
    assert!(bomb.len() < 64_000);
    let (code, said) = import_bytes(&place, &Forged::new(&[bomb]).bytes, "a bomb");
    assert_eq!(code, 2, "{said}");
    assert!(
        said.contains("compressed records hold more than 268 MB"),
        "{said}"
    );
}

/// Records a workload with perf; `None` if perf is not installed.
fn recorded_by_perf(place: &TraceDir, words: &[&str], workload: &str, count: &str) -> Option<()> {
    let mut perf = Command::new("perf");
    let perf = perf
        .args(words)
        .args(["-o", "perf.data", "--", SWTCH, "workload", workload]);
    let Ok(output) = perf
        .args(["--count", count, "--quiet"])
        .current_dir(place.dir())
        .output()
    else {
        swtch_test::skipped("perf is not installed");
        return None;
    };
    assert!(output.status.success(), "{}", stderr(&output));
    Some(())
}

fn perf(place: &TraceDir, words: &[&str]) -> String {
    let mut perf = Command::new("perf");
    let output = perf
        .args(words)
        .args(["-i", "perf.data"])
        .current_dir(place.dir())
        .output();
    stdout(&output.unwrap())
}

/// For each CPU and microsecond, what perf says of the switch-outs: the delay before the run and
/// the run itself, in µs.
type Said = BTreeMap<(u64, u16), Vec<(f64, f64)>>;

fn timehist(place: &TraceDir) -> Said {
    let text = perf(place, &["sched", "timehist"]);
    let mut said = Said::new();
    for line in text.lines().filter(|line| !line.contains("<idle>")) {
        if let Some((place, lengths)) = timehist_row(line) {
            said.entry(place).or_default().push(lengths);
        }
    }
    said
}

fn timehist_row(line: &str) -> Option<((u64, u16), (f64, f64))> {
    let words: Vec<_> = line.split_ascii_whitespace().collect();
    let [time, cpu, .., _, delay, run] = words.as_slice() else {
        return None;
    };
    let (seconds, fraction) = time.split_once('.')?;
    let at = seconds.parse::<u64>().ok()? * 1_000_000 + fraction.parse::<u64>().ok()?;
    let cpu = cpu.trim_matches(['[', ']']).parse().ok()?;
    let us = |ms: &str| ms.parse::<f64>().ok().map(|ms| ms * 1e3);
    Some(((at, cpu), (us(delay)?, us(run)?)))
}

/// Every switch-out that perf's own reader shows is a row, with the same run time and wakeup
/// latency to the microsecond that perf prints.
#[test]
#[ignore = "needs root"]
fn root_an_import_agrees_with_perfs_own_reader() {
    let _machine = alone();
    let place = TraceDir::new();
    if recorded_by_perf(&place, &["sched", "record"], "sampler", "300").is_none() {
        return;
    }
    let output = import(&place, "perf.data");
    assert!(output.status.success(), "{}", stderr(&output));
    let recorded = TraceContents::new(Trace::open(&place.trace()).unwrap());
    let script = perf(&place, &["script", "-F", "cpu,event,trace"]);
    let (of_tasks, begun) = switches_in(&script);
    assert_eq!(recorded.switches.len(), of_tasks);
    let perfs = timehist(&place);
    assert_eq!(
        perfs.values().map(Vec::len).sum::<usize>(),
        of_tasks,
        "rows of perf sched timehist"
    );
    let text = perf(&place, &["script", "--ns"]);
    fs::write(place.dir().join("perf.txt"), text).unwrap();
    let again = TraceDir::new();
    fs::rename(place.dir().join("perf.txt"), again.dir().join("perf.txt")).unwrap();
    let (of_text, _) = imported_rows(&again, "perf.txt");
    let of_rows = |rows: &TraceContents| -> Vec<_> {
        let rows = rows.switches.iter();
        rows.map(|row| (row.ts, row.ran, row.wait.runq, row.evidence.state))
            .collect()
    };
    assert_eq!(
        of_rows(&of_text),
        of_rows(&recorded),
        "what perf script prints"
    );
    let (mut runs, mut delays) = (0, 0);
    for row in &recorded.switches {
        // Where perf did not see a run begin, it counts from any earlier event; here the run is
        // unknown.
        let Some(ran) = row.ran else { continue };
        let said = &perfs[&(row.ts.as_ns() / 1_000, row.cpu.get())];
        let is_near = |us: f64, ns: u64| (us - ns as f64 / 1e3).abs() < 1.01;
        // perf ignores a wakeup that came while the task was still leaving, and prints 0.
        let agrees = |(delay, run): &&(f64, f64)| {
            let runq = row.wait.runq.map(Nanos::as_ns);
            is_near(*run, ran.as_ns())
                && (*delay == 0.0 || runq.is_some_and(|ns| is_near(*delay, ns)))
        };
        let found = said.iter().find(agrees);
        let (delay, _) = found.unwrap_or_else(|| panic!("{row:?}: perf says {said:?} µs"));
        runs += 1;
        delays += usize::from(*delay > 0.0);
    }
    println!("{of_tasks} switches: {runs} runs and {delays} delays agree");
    assert_eq!(
        runs, begun,
        "every run whose begin is in the file, of {of_tasks}"
    );
    assert!(
        runs * 10 > of_tasks * 8 && delays * 10 > of_tasks,
        "{runs} {delays} of {of_tasks}"
    );
}

fn imported_rows(place: &TraceDir, file: &str) -> (TraceContents, String) {
    let output = import(place, file);
    assert!(output.status.success(), "{file}: {}", stderr(&output));
    let rows = TraceContents::new(Trace::open(&place.trace()).unwrap());
    fs::remove_dir_all(place.trace()).unwrap();
    (rows, stderr(&output))
}

/// With call chains, packed as people attach it, and cut.
#[test]
#[ignore = "needs root"]
fn root_what_perf_wrote_into_a_pipe_is_read_whole_packed_and_cut() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let line = format!(
        "perf record -q -a -g -e 'sched:*' -o - -- {SWTCH} workload sampler --count 300 --quiet > perf.data"
    );
    let recorded = Command::new("sh")
        .args(["-c", &line])
        .current_dir(place.dir())
        .output();
    let recorded = recorded.unwrap();
    if stderr(&recorded).contains("not found") {
        swtch_test::skip!("perf is not installed");
    }
    assert!(recorded.status.success(), "{}", stderr(&recorded));
    let (of_tasks, _) = switches_in(&perf(&place, &["script", "-G", "-F", "cpu,event,trace"]));
    let (whole, _) = imported_rows(&place, "perf.data");
    assert_eq!(whole.switches.len(), of_tasks);
    assert!(of_tasks > 300, "{of_tasks}");
    let bytes = fs::read(place.dir().join("perf.data")).unwrap();
    let put = |name: &str, bytes: &[u8]| fs::write(place.dir().join(name), bytes).unwrap();
    put("perf.data.zst", &zstd::encode_all(&bytes[..], 1).unwrap());
    let packed = Command::new("gzip")
        .args(["-k", "perf.data"])
        .current_dir(place.dir())
        .status();
    assert!(packed.unwrap().success());
    for packed in ["perf.data.gz", "perf.data.zst"] {
        let (rows, _) = imported_rows(&place, packed);
        assert_eq!(
            format!("{:?}", rows.switches),
            format!("{:?}", whole.switches),
            "{packed}"
        );
    }
    let gz = fs::read(place.dir().join("perf.data.gz")).unwrap();
    put("cut.data", &bytes[..bytes.len() / 10 * 9 + 3]);
    put("cut.data.gz", &gz[..gz.len() / 10 * 9]);
    for cut in ["cut.data", "cut.data.gz"] {
        let (rows, said) = imported_rows(&place, cut);
        assert!(said.contains("ends early"), "{cut}: {said}");
        assert!((1..of_tasks).contains(&rows.switches.len()), "{cut}");
    }
    // Before perf has described its events, no switch can be read.
    put("head.data", &bytes[..4_000]);
    let (code, said) = (
        import(&place, "head.data").status.code(),
        import(&place, "head.data"),
    );
    assert_eq!(code, Some(2), "{}", stderr(&said));
}

/// Each switch-out of a task that perf's own reader shows is a row, with what it says of the task.
#[test]
#[ignore = "needs root"]
fn root_switches_that_perf_adds_to_any_recording_are_read() {
    let _machine = beside_others();
    let place = TraceDir::new();
    for (words, own) in [
        (
            &[
                "record",
                "-q",
                "-a",
                "--switch-events",
                "-e",
                "sched:sched_waking",
            ][..],
            false,
        ),
        (
            &[
                "record",
                "-q",
                "--switch-events",
                "--sample-cpu",
                "-e",
                "dummy:u",
            ],
            true,
        ),
    ] {
        if recorded_by_perf(&place, words, "sampler", "300").is_none() {
            return;
        }
        let script = perf(&place, &["script", "--show-switch-events", "--ns"]);
        let outs = script.lines().filter(|line| {
            line.contains("PERF_RECORD_SWITCH")
                && line.contains(" OUT")
                && !line.contains("swapper")
        });
        let preempted = outs
            .clone()
            .filter(|line| line.contains("OUT preempt"))
            .count();
        let outs = outs.count();
        let (rows, _) = imported_rows(&place, "perf.data");
        let ended = |row: &&swtch_core::Switch| row.rule.reason == Reason::Exit;
        // The kernel tells no switch-out of an own thread that ends: its end is one.
        let ends = rows.switches.iter().filter(ended).count();
        assert_eq!(
            rows.switches.len() - if own { ends } else { 0 },
            outs,
            "{words:?}"
        );
        let could_run = rows
            .switches
            .iter()
            .filter(|row| row.evidence.state == 0)
            .count();
        assert_eq!(could_run, preempted, "{words:?}");
        assert!(outs > 300 && ends > 0, "{outs} {ends}");
        let woken = rows
            .switches
            .iter()
            .filter(|row| row.wait.runq.is_some())
            .count();
        assert!(own || woken * 2 > outs, "{woken} of {outs} have a wakeup");
    }
    if recorded_by_perf(
        &place,
        &["record", "-q", "--switch-events", "-e", "dummy:u"],
        "sampler",
        "9",
    )
    .is_some()
    {
        let said = stderr(&import(&place, "perf.data"));
        assert!(said.contains("--sample-cpu"), "{said}");
    }
}

/// The number of switch-outs of tasks in the output of `perf script`, and of those whose task is
/// seen to arrive: the previous switch of the CPU was to the task that leaves.
fn switches_in(script: &str) -> (usize, usize) {
    let pid_after = |line: &'_ str, key: &str| -> u32 {
        let at = line.rfind(key).unwrap_or_else(|| panic!("{key} in {line}"));
        let digits = line[at + key.len()..].split(' ').next().unwrap();
        digits.parse().unwrap()
    };
    let (mut all, mut begun) = (0, 0);
    let mut running = std::collections::HashMap::new();
    for line in script.lines().filter(|line| line.contains("sched_switch:")) {
        let cpu = line.split_ascii_whitespace().next().unwrap();
        let leaves = pid_after(line, " prev_pid=");
        let came = running.insert(cpu, pid_after(line, " next_pid="));
        if leaves != 0 {
            all += 1;
            begun += usize::from(came == Some(leaves));
        }
    }
    (all, begun)
}

/// perf's file does not contain the system call, so no reason may be derived from it.
#[test]
#[ignore = "needs root"]
fn root_an_import_is_marked_and_guesses_nothing() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let words = ["record", "-q", "-a", "-e", "sched:*"];
    if recorded_by_perf(&place, &words, "sampler", "300").is_none() {
        return;
    }
    let output = import(&place, "perf.data");
    assert!(output.status.success(), "{}", stderr(&output));
    let recorded = TraceContents::new(Trace::open(&place.trace()).unwrap());
    let known = [
        Reason::Exit,
        Reason::Stop,
        Reason::Class,
        Reason::Migrate,
        Reason::Throttle,
    ];
    for row in &recorded.switches {
        assert!(row.evidence.bits.has(EvidenceBits::NO_CALL));
        let reason = row.rule.reason;
        let could_run =
            row.evidence.state == 0 || row.evidence.bits.has(EvidenceBits::KERNEL_PREEMPT);
        let by_state = match could_run {
            true => Reason::Preempted,
            false => Reason::Blocked,
        };
        assert!(reason == by_state || known.contains(&reason), "{row:?}");
    }
    let imported = recorded.meta.imported.as_ref().expect("it is marked");
    assert!(
        imported
            .events
            .iter()
            .any(|event| event == "sched:sched_switch"),
        "{imported:?}"
    );
    let page = stdout(&report(&place.trace(), &["--by", "reason"]));
    assert!(page.contains("imported from perf.data"), "{page}");
    assert_eq!(
        page.matches("run times are lower bounds").count(),
        1,
        "{page}"
    );
    let json = report(&place.trace(), &["--by", "reason", "--format", "json"]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["trace"]["imported"]["file"], "perf.data");
}

#[test]
#[ignore = "needs root"]
fn root_a_file_without_switches_says_how_to_record_them() {
    let _machine = beside_others();
    let place = TraceDir::new();
    for (words, said) in [
        (
            &["record", "-q", "-e", "cpu-clock"][..],
            "no sched:sched_switch events, only cpu-clock",
        ),
        (
            &["record", "-q", "-e", "sched:sched_switch"],
            "for single tasks",
        ),
    ] {
        // One thread that only sleeps: whoever runs after it is never seen to leave.
        if recorded_by_perf(&place, words, "nanosleep", "100").is_none() {
            return;
        }
        let output = import(&place, "perf.data");
        assert_eq!(
            output.status.code(),
            Some(2),
            "{words:?}: {}",
            stderr(&output)
        );
        assert!(stderr(&output).contains(said), "{}", stderr(&output));
        assert!(!place.trace().exists());
    }
}
