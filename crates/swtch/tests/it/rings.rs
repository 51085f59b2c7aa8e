//! Flight recorders (`record --ring`): what they keep is the end of what a recording beside them
//! holds, row by row, and dumps are parts of it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use swtch_core::Timestamp;
use swtch_report::opening;
use swtch_store::{Completeness, RecordingState};

use crate::machine::{Orphan, SOON, TestProcess, alone, beside_others, command_of, wait_until};
use crate::recording::{
    Ids, Recording, SWTCH, TraceContents, TraceDir, report, start_recorder, stderr, stdout, swtch,
};
use crate::stranger::Stranger;

/// The rules of each thread's switches, in order of time.
type RulesOfThreads = BTreeMap<Ids, Vec<&'static str>>;

fn rules_of(contents: &TraceContents) -> RulesOfThreads {
    let rules = |(ids, rows): (Ids, Vec<&swtch_core::Switch>)| {
        (ids, rows.iter().map(|row| row.rule.name).collect())
    };
    contents.by_thread().into_iter().map(rules).collect()
}

fn opened(path: &Path) -> TraceContents {
    TraceContents::new(opening::open(path).unwrap_or_else(|error| panic!("{error:#}")))
}

/// The dumps in a trace, by name.
fn dumps_of(trace: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(trace.join("dumps")) else {
        return Vec::new();
    };
    let mut dumps: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    dumps.sort();
    dumps
}

/// Number of sealed segments and the one that is written.
fn segments_of(trace: &Path) -> usize {
    fs::read_dir(trace.join("segments")).map_or(0, Iterator::count)
}

/// A flight recorder that goes on.
struct FlightRecorder {
    place: TraceDir,
    process: TestProcess,
}

impl FlightRecorder {
    /// Records with these options, and waits until it takes requests.
    fn start(options: &[&str]) -> Self {
        let place = TraceDir::new();
        let process = TestProcess::start(&mut place.record(options));
        let recorder = Self { place, process };
        let socket = recorder.trace().join("dump.socket");
        wait_until("it takes requests", || socket.exists());
        recorder
    }

    fn trace(&self) -> PathBuf {
        self.place.trace()
    }

    fn dump(&self, words: &[&str]) -> Output {
        let mut dump = swtch(["dump"]);
        dump.arg(self.trace()).args(words);
        dump.current_dir(self.place.dir()).output().unwrap()
    }

    fn end(mut self) -> TraceDir {
        self.process.signal(libc::SIGINT);
        assert!(self.process.ends_within(SOON).success());
        self.place
    }
}

/// The threads were started before what the ring kept, and still have their names.
#[test]
#[ignore = "needs root"]
fn root_a_ring_holds_the_end_of_what_a_recording_holds() {
    let _machine = alone();
    let _quiet = swtch_test::depends_on_quiet();
    let place = TraceDir::new();
    let ring = place.dir().join("ring.swtch");
    let inner = ["--", SWTCH, "record", "--ring", "2s", "-o"];
    let workload = [
        "--", SWTCH, "workload", "sampler", "--count", "6000", "--quiet",
    ];
    let mut both = place.record(&inner);
    let output = both.arg(&ring).args(workload).output().unwrap();
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    let (full, kept) = (opened(&place.trace()), opened(&ring));
    kept.assert_balanced();
    let length = Duration::from_nanos(kept.meta.end_ns - kept.meta.start_ns);
    assert!((2.0..4.0).contains(&length.as_secs_f64()), "{length:?}");
    assert_eq!(segments_of(&ring), 0, "its segments are gone");

    let (all, end) = (rules_of(&full), rules_of(&kept));
    let (mut compared, mut began_before) = (0, 0);
    // Both judge each switch for themselves, and some by the clock (`SAME_WAKEUP_NS` in `bpf/wakeups.h`), which
    // a busy machine may stop between the two. A row that is missing makes most that follow differ.
    let mut apart = Vec::new();
    for (ids, rules) in &end {
        let Some(all) = all.get(ids) else {
            // The inner recorder's own, before it executed the command.
            continue;
        };
        assert!(
            all.len() >= rules.len(),
            "{ids:?}: {} switches",
            rules.len()
        );
        let pairs = all[all.len() - rules.len()..].iter().zip(rules);
        apart.extend(pairs.filter(|(in_full, kept)| in_full != kept));
        began_before += usize::from(rules.len() < all.len());
        compared += rules.len();
    }
    assert!(apart.len() * 200 <= compared, "{apart:?} of {compared}");
    println!(
        "{apart:?}: {compared} rows of {} are the last ones of {}",
        kept.switches.len(),
        full.switches.len()
    );
    assert!(
        compared > 1000 && began_before > 3,
        "{compared} rows, {began_before} threads that began before"
    );
    for ids in end.keys() {
        let names: Vec<_> = kept.life_of(*ids).map(|task| task.comm.clone()).collect();
        assert!(
            names.iter().all(|name| !name.is_empty()) && !names.is_empty(),
            "{ids:?}"
        );
    }
    let facts = kept.meta.ring.as_ref().expect("it is a ring");
    assert_eq!((facts.kept.as_str(), facts.lost), ("2s", 0));
    assert!(facts.switches > kept.counts().stored, "{facts:?}");
    assert!(said.contains("which the ring kept"), "{said}");
    let commands = stdout(&report(&ring, &["--by", "process"]));
    assert!(commands.contains("workload sampler"), "{commands}");
}

/// A recorder that runs for days must not keep a line for each process that has ended.
#[test]
#[ignore = "needs root"]
fn root_command_lines_of_processes_that_ended_are_forgotten() {
    let _machine = beside_others();
    let script = "for i in $(seq 300); do /bin/true; done; sleep 5";
    let recording = Recording::of(&["--ring", "1s", "--", "sh", "-c", script]);
    let trace = opening::open(&recording.place.trace()).unwrap();
    let commands = trace.commands().unwrap();
    let of_short = commands.iter().filter(|row| row.command == "/bin/true");
    assert_eq!(of_short.count(), 0, "of {}", commands.len());
    assert!(commands.iter().any(|row| row.command == "sleep 5"));
}

/// Each dump is a part of the recording without a hole, and the recording has all of them.
#[test]
#[ignore = "needs root"]
fn root_dumps_while_recording_lose_nothing() {
    let _machine = alone();
    // It lasts until it is ended.
    let command = [
        SWTCH,
        "workload",
        "sampler",
        "--count",
        "100000000",
        "--quiet",
    ];
    let mut recorder = FlightRecorder::start(
        &[&["--ring", "1h", "--keep-dumps", "20", "--"][..], &command].concat(),
    );
    for nth in 0..12 {
        let because = format!("round {nth}");
        let asked = recorder.dump(&["--because", &because]);
        assert!(asked.status.success(), "{}", stderr(&asked));
        thread::sleep(Duration::from_millis(150));
    }
    recorder.process.signal(libc::SIGINT);
    recorder.process.ends_within(SOON);
    let whole = opened(&recorder.trace());
    whole.assert_balanced();
    let all = rules_of(&whole);
    let dumps = dumps_of(&recorder.trace());
    assert_eq!(dumps.len(), 12);
    let mut rows = Vec::new();
    for path in &dumps {
        let dump = opened(path);
        assert_eq!(dump.completeness, Completeness::Finished);
        dump.assert_balanced();
        rows.push(dump.switches.len());
        for (ids, rules) in rules_of(&dump) {
            assert!(all[&ids].starts_with(&rules), "{}: {ids:?}", path.display());
        }
    }
    rows.sort_unstable();
    println!(
        "rows of the dumps: {rows:?}; of the recording: {}",
        whole.switches.len()
    );
    let report = stdout(&report(&dumps[0], &[]));
    assert!(report.contains("dumped because: round"), "{report}");
}

/// The sealed segments in a trace, by number: all but the one that is written.
fn sealed_segments_of(trace: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(trace.join("segments")).unwrap();
    let mut segments: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    segments.sort();
    segments.pop();
    segments
}

/// Returns when each thread left a CPU, in order of time.
fn moments_of(contents: &TraceContents) -> BTreeMap<Ids, Vec<Timestamp>> {
    let moments = |(ids, rows): (Ids, Vec<&swtch_core::Switch>)| {
        (ids, rows.iter().map(|row| row.ts).collect())
    };
    contents.by_thread().into_iter().map(moments).collect()
}

/// Nobody is asked for them, and one after the other they hold what the recording holds.
#[test]
#[ignore = "needs root"]
fn root_sealed_segments_are_traces_that_follow_one_another() {
    let _machine = beside_others();
    let script = "exec 3<> <(:); while :; do read -t 0.001 -u 3; done";
    let load = TestProcess::start(Command::new("bash").args(["-c", script]));
    let pid = load.pid().to_string();
    let recorder = FlightRecorder::start(&["--ring", "1h", "-p", &pid]);
    for _ in 0..6 {
        assert!(recorder.dump(&[]).status.success());
        thread::sleep(Duration::from_millis(100));
    }
    let segments = sealed_segments_of(&recorder.trace());
    assert_eq!(segments.len(), 6);
    let mut ended = 0;
    let mut taken: BTreeMap<Ids, Vec<Timestamp>> = BTreeMap::new();
    for (nth, segment) in segments.iter().enumerate() {
        let written = [format!("{nth}a.swtch"), format!("{nth}b.swtch")];
        let [once, again] = written.map(|name| {
            let mut dump = swtch(["dump", "-o", &name]);
            let output = dump.arg(segment).current_dir(recorder.place.dir()).output();
            let output = output.unwrap();
            assert!(output.status.success(), "{}", stderr(&output));
            recorder.place.dir().join(name)
        });
        for file in ["meta.json", "checksums.csv"] {
            let [once, again] = [&once, &again].map(|trace| fs::read(trace.join(file)).unwrap());
            assert!(once == again, "{file} of {} differs", segment.display());
        }
        let part = opened(&once);
        part.assert_balanced();
        assert_eq!(part.meta.state, RecordingState::Finished);
        let ring = part.meta.ring.as_ref().unwrap();
        assert!(ring.switches >= part.counts().stored, "{ring:?}");
        assert!(ended == 0 || part.meta.start_ns == ended, "no hole between");
        ended = part.meta.end_ns;
        for (ids, moments) in moments_of(&part) {
            taken.entry(ids).or_default().extend(moments);
        }
    }
    let place = recorder.end();
    let whole = moments_of(&opened(&place.trace()));
    assert!(taken.values().map(Vec::len).sum::<usize>() > 200);
    for (ids, moments) in taken {
        assert!(whole[&ids].starts_with(&moments), "{ids:?}");
    }
}

/// A recording that was killed says why it ends, also in its final form.
#[test]
#[ignore = "needs root"]
fn root_what_a_killed_recorder_left_gets_its_final_form() {
    let _machine = beside_others();
    let mut recorder = FlightRecorder::start(&["-a", "--ring", "1s"]);
    wait_until("two segments are sealed", || {
        segments_of(&recorder.trace()) > 2
    });
    recorder.process.signal(libc::SIGKILL);
    recorder.process.ends_within(SOON);
    let asked = recorder.dump(&["-o", "out.swtch"]);
    assert!(asked.status.success(), "{}", stderr(&asked));
    let out = recorder.place.dir().join("out.swtch");
    let (kept, written) = (opened(&recorder.trace()), opened(&out));
    assert_eq!(written.completeness, Completeness::Finished);
    assert_eq!(written.meta.state, RecordingState::StoppedEarly);
    let why = written.meta.stop_reason.as_deref().unwrap_or_default();
    assert!(why.contains("its recorder was killed"), "{why}");
    assert_eq!(moments_of(&written), moments_of(&kept));
    assert_balanced_and_not_complete(&out, &written);
    let again = recorder.dump(&["-o", "out.swtch"]);
    assert_eq!(again.status.code(), Some(2), "{}", stderr(&again));
    let mut of_whole = swtch(["dump", "-o", "no.swtch"]);
    let refused = of_whole
        .arg(&out)
        .current_dir(recorder.place.dir())
        .output();
    let refused = stderr(&refused.unwrap());
    assert!(refused.contains("in its final form already"), "{refused}");
}

/// The recorder drops the oldest part of what it keeps: its list first, then its other files.
#[test]
#[ignore = "needs root"]
fn root_a_recorder_that_is_killed_while_it_drops_a_part_leaves_the_others() {
    let _machine = beside_others();
    let mut recorder = FlightRecorder::start(&["-a", "--ring", "2s"]);
    wait_until("two segments are sealed", || {
        segments_of(&recorder.trace()) > 2
    });
    recorder.process.signal(libc::SIGKILL);
    recorder.process.ends_within(SOON);
    let segments = recorder.trace().join("segments");
    let mut names: Vec<_> = fs::read_dir(&segments)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.join("checksums.csv").exists())
        .collect();
    names.sort();
    fs::remove_file(names[0].join("checksums.csv")).unwrap();
    let asked = recorder.dump(&["-o", "out.swtch"]);
    assert!(asked.status.success(), "{}", stderr(&asked));
    let written = opened(&recorder.place.dir().join("out.swtch"));
    assert!(written.counts().stored > 0);
}

/// Nobody knows what the recorder had not written yet.
fn assert_balanced_and_not_complete(path: &Path, written: &TraceContents) {
    let counts = written.counts();
    assert!(counts.stored > 0, "{counts:?}");
    assert_eq!(counts.switches_seen, counts.stored + counts.filtered);
    let answer = report(path, &["--by", "reason", "--format", "json"]);
    let answer: serde_json::Value = serde_json::from_str(&stdout(&answer)).unwrap();
    assert_eq!(answer["trace"]["complete"], false, "{answer}");
}

/// The facts of a recording that goes on do not count its rows: the copy does.
#[test]
#[ignore = "needs root"]
fn root_what_a_killed_recording_left_is_not_called_complete() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let script = "while :; do sleep 0.001; done";
    let mut recorder = start_recorder(&place, &["--", "sh", "-c", script]);
    let _command = Orphan(command_of(recorder.pid()));
    let records = place.trace().join("records.raw");
    wait_until("records are in the file", || {
        fs::metadata(&records).is_ok_and(|file| file.len() > 10_000)
    });
    recorder.signal(libc::SIGKILL);
    recorder.ends_within(SOON);
    let out = place.dir().join("out.swtch");
    let mut dump = swtch(["dump", "-o"]);
    let dumped = dump.arg(&out).arg(place.trace()).output().unwrap();
    assert!(dumped.status.success(), "{}", stderr(&dumped));
    assert_balanced_and_not_complete(&out, &opened(&out));
}

#[test]
#[ignore = "needs root"]
fn root_a_signal_asks_for_a_dump_and_further_ones_wait() {
    let _machine = beside_others();
    let recorder = FlightRecorder::start(&["-a", "--ring", "1m", "--dump-every", "2s"]);
    for _ in 0..100 {
        recorder.process.signal(libc::SIGUSR2);
    }
    wait_until("there is a dump", || {
        !dumps_of(&recorder.trace()).is_empty()
    });
    recorder.process.signal(libc::SIGUSR2);
    wait_until("the second comes", || {
        dumps_of(&recorder.trace()).len() >= 2
    });
    let place = recorder.end();
    let ends = dumps_of(&place.trace()).into_iter();
    let ends: Vec<_> = ends.map(|dump| opened(&dump).meta.end_ns).collect();
    let apart = |two: &[u64]| two[1] - two[0] >= 1_900_000_000;
    assert!(ends.windows(2).all(apart), "the others wait: {ends:?}");
}

/// Sends a line to the socket of a recording; returns the answer.
fn ask(trace: &Path, line: &str) -> Value {
    let mut stream = UnixStream::connect(trace.join("dump.socket")).unwrap();
    stream.write_all(line.as_bytes()).unwrap();
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).unwrap();
    serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
}

#[test]
#[ignore = "needs root"]
fn root_a_hundred_who_ask_at_once_are_all_answered() {
    let _machine = beside_others();
    let recorder = FlightRecorder::start(&["-a", "--ring", "1m", "--keep-dumps", "3"]);
    let trace = recorder.trace();
    let silent = UnixStream::connect(trace.join("dump.socket")).unwrap();
    let answers: Vec<_> = (0..100)
        .map(|nth| {
            let trace = trace.clone();
            let line = format!("{{\"because\":\"{nth}\",\"last_ms\":1000}}\n");
            thread::spawn(move || ask(&trace, &line))
        })
        .collect();
    for answer in answers {
        let answer = answer.join().unwrap();
        let dump = answer["dump"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer}"));
        assert!(dump.starts_with("dumps/"), "{dump}");
    }
    assert!(
        ask(&trace, "dump!\n")["error"]
            .as_str()
            .unwrap()
            .contains("no request")
    );
    assert!(dumps_of(&trace).len() <= 3);
    drop(silent);
    let place = recorder.end();
    assert!(!place.trace().join("dump.socket").exists());
    opened(&place.trace()).assert_balanced();
}

/// The directory of the trace keeps others out; who got in all the same is refused.
#[test]
#[ignore = "needs root"]
fn root_another_user_gets_no_dump() {
    use std::os::unix::fs::PermissionsExt as _;
    let _machine = beside_others();
    let recorder = FlightRecorder::start(&["-a", "--ring", "1m"]);
    let (trace, stranger) = (recorder.trace(), Stranger::new());
    let words = ["dump", trace.to_str().unwrap()];
    let kept_out = stderr(&stranger.run(&[], &words));
    assert!(kept_out.contains("Permission denied"), "{kept_out}");
    for (path, mode) in [
        (recorder.place.dir(), 0o755),
        (&trace, 0o755),
        (&trace.join("dump.socket"), 0o777),
    ] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let refused = stderr(&stranger.run(&[], &words));
    assert!(refused.contains("belongs to another user"), "{refused}");
    assert!(dumps_of(&trace).is_empty());
    recorder.end();
}

/// All that the ring had kept can be read, by every verb, and nobody is waited for.
#[test]
#[ignore = "needs root"]
fn root_a_killed_flight_recorder_leaves_what_it_kept() {
    let _machine = beside_others();
    let _quiet = swtch_test::depends_on_quiet();
    let mut recorder = FlightRecorder::start(&["-a", "--ring", "2s"]);
    thread::sleep(Duration::from_secs(4));
    let live = opened(&recorder.trace());
    assert!(!live.switches.is_empty());
    recorder.process.signal(libc::SIGKILL);
    recorder.process.ends_within(SOON);
    let trace = recorder.trace();
    let kept = opened(&trace);
    let Completeness::Unfinished { why, .. } = &kept.completeness else {
        panic!("it did not end");
    };
    assert!(why.contains("its recorder was killed"), "{why}");
    assert!(!kept.switches.is_empty() && kept.counts().unnamed == 0);
    let (oldest, newest) = kept.span_ns();
    assert!(
        newest - oldest < 4_000_000_000,
        "only the last part is kept"
    );
    assert!(report(&trace, &["--by", "thread"]).status.success());
    let asked = recorder.dump(&[]);
    let said = stderr(&asked);
    assert_eq!(asked.status.code(), Some(2));
    assert!(
        said.contains("was killed") && said.contains("swtch report"),
        "{said}"
    );
}

/// A real-time task takes the CPU of a task that wakes every 5 ms, for 60 ms.
#[test]
#[ignore = "needs root"]
fn root_a_stall_is_written_down_with_what_came_before() {
    let _machine = alone();
    let _quiet = swtch_test::depends_on_quiet();
    let sleeper = "for i in $(seq 1000); do sleep 0.005; done";
    let mut recorder = FlightRecorder::start(&[
        "--ring",
        "1m",
        "--when",
        "runq > 30ms & comm ~ ^s",
        "--dump-every",
        "100s",
        "--",
        "taskset",
        "-c",
        "0",
        "sh",
        "-c",
        sleeper,
    ]);
    thread::sleep(Duration::from_secs(1));
    assert!(dumps_of(&recorder.trace()).is_empty(), "nothing stalls yet");
    // `timeout` itself stays outside: on that CPU, at that priority, it would never end the other.
    let stall = Command::new("timeout")
        .args([
            "--signal=KILL",
            "0.06",
            "taskset",
            "-c",
            "0",
            "chrt",
            "-f",
            "50",
        ])
        .args(["sh", "-c", "while :; do :; done"])
        .status();
    assert!(stall.is_ok());
    wait_until("it was noticed", || dumps_of(&recorder.trace()).len() == 1);
    recorder.process.signal(libc::SIGTERM);
    recorder.process.ends_within(SOON);
    let dump = opened(&dumps_of(&recorder.trace())[0]);
    let why = dump
        .meta
        .ring
        .as_ref()
        .and_then(|ring| ring.dumped_because.clone())
        .unwrap();
    println!("{why}");
    assert!(why.starts_with("runq > 30ms & comm ~ ^s: s"), "{why}");
    let stalled = dump
        .switches
        .iter()
        .filter(|row| row.wait.runq.is_some_and(|runq| runq.as_ns() > 30_000_000));
    assert!(stalled.count() >= 1);
    assert!(
        dump.switches.len() > 500,
        "what came before is there: {}",
        dump.switches.len()
    );
}

/// The disk of the ring is filled by another; the ring drops its oldest part and goes on.
#[test]
#[ignore = "needs root"]
fn root_a_ring_goes_on_when_its_disk_is_full() {
    let _machine = alone();
    let _quiet = swtch_test::depends_on_quiet();
    let place = TraceDir::new();
    // Some 0.6 MB a second is recorded; what is left is full after two seconds.
    let script = format!(
        "mkdir small && mount -t tmpfs -o size=12m none small || exit 99
         head -c 9m /dev/zero > small/filler
         {SWTCH} record -o small/t.swtch --ring 16s -- {SWTCH} workload sampler --count 8000 --quiet 2> said
         code=$?
         cat said >&2
         cp -r small/t.swtch t.swtch
         exit $code"
    );
    let output = place.run_with_own_mounts(&script);
    let said = stderr(&output);
    println!("{said}");
    assert!(said.contains("goes on without its oldest part"), "{said}");
    let kept = opened(&place.trace());
    assert!(kept.switches.len() > 1000, "{said}");
    let counts = kept.counts();
    // Mostly records are what could not be written. It may as well have been a name, and then none is missing.
    let went = counts.stored + counts.filtered + counts.lost + counts.storage_failed;
    assert_eq!(counts.switches_seen, went, "{counts:?}");
    let (_, last) = kept.span_ns();
    assert!(
        kept.meta.end_ns - last < 500_000_000,
        "it was recorded to the end"
    );
}

/// The disk of the dump is full: that is said, and the recording goes on.
#[test]
#[ignore = "needs root"]
fn root_a_dump_without_space_is_told_and_the_recording_goes_on() {
    let _machine = beside_others();
    let recorder = FlightRecorder::start(&["-a", "--ring", "1m"]);
    let script = format!(
        "mkdir small && mount -t tmpfs -o size=16k none small || exit 99
         {SWTCH} dump t.swtch -o small/out.swtch
         code=$?
         ls small
         exit $code"
    );
    let output = recorder.place.run_with_own_mounts(&script);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("No space left on device"), "{said}");
    assert!(said.contains("the dump itself is t.swtch/dumps/"), "{said}");
    assert_eq!(stdout(&output), "", "nothing is left there");
    assert!(recorder.dump(&["-o", "out.swtch"]).status.success());
    let place = recorder.end();
    opened(&place.dir().join("out.swtch")).assert_balanced();
    opened(&place.trace()).assert_balanced();
}

#[test]
fn mistakes_are_told_before_anything_starts() {
    let said = |words: &[&str]| {
        let output = swtch(words).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        stderr(&output)
    };
    let ring = ["record", "--ring", "5m", "--when"];
    let trigger = said(&[&ring[..], &["runq > 20", "--", "true"]].concat());
    assert!(
        trigger.contains("a length of time with a unit"),
        "{trigger}"
    );
    assert!(trigger.contains("  runq > 20\n         ^^"), "{trigger}");
    let size = said(&["record", "--ring", "5", "--", "true"]);
    assert!(size.contains("30s, 5m, 2h"), "{size}");
    let alone = said(&["record", "--when", "runq > 20ms", "--", "true"]);
    assert!(alone.contains("--ring"), "{alone}");
    let backend = said(&["record", "--ring", "5m", "--backend", "perf", "--", "true"]);
    assert!(backend.contains("leave out --backend"), "{backend}");
    let nobody = said(&["dump", "/no/such.swtch"]);
    assert!(nobody.contains("/no/such.swtch"), "{nobody}");
}

/// A recording that is no ring has nobody to ask, and says so.
#[test]
#[ignore = "needs root"]
fn root_only_a_flight_recorder_can_be_asked() {
    let _machine = beside_others();
    let recording = Recording::of(&["--", "true"]);
    let mut dump = swtch(["dump"]);
    let output = dump.arg(recording.place.trace()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(said.contains("no flight recorder writes"), "{said}");
    assert_eq!(recording.read().meta.state, RecordingState::Finished);
}

/// A thread that hangs makes no switch, and is told all the same, once.
#[test]
#[ignore = "needs root"]
fn root_a_wait_that_lasts_fires_before_it_ends() {
    let _machine = beside_others();
    let place = TraceDir::new();
    // A reader of a pipe into which nobody writes, until the writer is ended.
    let script = "{ echo $BASHPID > writer; exec sleep 600; } | { read line; }; true";
    let when = ["--when", "off > 2s & reason = pipe"];
    let words = [&["--ring", "1m"][..], &when, &["--", "bash", "-c", script]].concat();
    let record = place.record(&words);
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$@\" 2> said", "sh"]);
    command.arg(record.get_program()).args(record.get_args());
    command.env_remove("SUDO_UID").env_remove("SUDO_GID");
    let mut recorder = TestProcess::start(command.current_dir(place.dir()));
    let read = |file: &str| fs::read_to_string(place.dir().join(file)).unwrap_or_default();
    wait_until("somebody is to write", || read("writer").ends_with('\n'));
    let writer = Orphan(read("writer").trim().parse().unwrap());
    wait_until("it was noticed", || !dumps_of(&place.trace()).is_empty());
    drop(writer);
    assert!(recorder.ends_within(SOON).success(), "{}", read("said"));
    let said = read("said");
    let told: Vec<_> = said
        .lines()
        .filter(|line| line.contains("and still is"))
        .collect();
    assert_eq!(told.len(), 1, "{said}");
    assert!(told[0].contains("bash (pid"), "{said}");
    assert!(told[0].contains("left by pipe"), "{said}");
    let dumps = dumps_of(&place.trace());
    assert_eq!(dumps.len(), 1);
    assert!(!opened(&dumps[0]).switches.is_empty());
}
