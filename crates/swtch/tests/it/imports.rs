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
        ("what goes into a pipe", whole.with(8, &long(16)), "-o FILE"),
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
