//! Conditions under which the program is started: ignored signals, closed descriptors, broken
//! pipes. In each of them a recording is complete, the exit code is the command's, and the command
//! finds the same conditions as without us. Where a resource limit is too low for that, it is named.

use std::fs;
use std::io;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use swtch_report::opening;
use swtch_store::{RecordingState, Trace};

use crate::machine::{TestProcess, beside_others, wait_until};
use crate::recording::{SWTCH, TraceContents, TraceDir};
use crate::stranger::Stranger;

/// One condition that differs from the usual.
#[derive(Clone, Copy, Debug)]
enum Oddity {
    Nothing,
    /// Signals that are ignored, in the syntax of env(1).
    Ignored(&'static str),
    /// Signals that are blocked, in the syntax of env(1).
    Blocked(&'static str),
    /// Descriptors that are closed, in the syntax of the shell.
    Closed(&'static str),
    /// Descriptors that are pipes whose other end is closed.
    Broken(&'static [u32]),
}

const ODDITIES: [Oddity; 16] = [
    Oddity::Nothing,
    Oddity::Ignored("HUP"),
    Oddity::Ignored("INT"),
    Oddity::Ignored("TERM"),
    Oddity::Ignored("CHLD"),
    Oddity::Ignored("PIPE"),
    Oddity::Ignored("HUP,INT,TERM,CHLD,PIPE,QUIT"),
    Oddity::Ignored("USR1,USR2,XFSZ,XCPU,PROF"),
    Oddity::Blocked("CHLD,PIPE,USR1"),
    Oddity::Closed("<&-"),
    Oddity::Closed(">&-"),
    Oddity::Closed("2>&-"),
    Oddity::Closed("<&- >&- 2>&-"),
    Oddity::Broken(&[1]),
    Oddity::Broken(&[2]),
    Oddity::Broken(&[0, 1, 2]),
];

/// The command prints which signals it ignores and blocks, and exits with 7.
const COMMAND: [&str; 3] = [
    "sh",
    "-c",
    "grep -E '^Sig(Ign|Blk)' /proc/self/status > signals; exit 7",
];

impl Oddity {
    /// Runs a program under this condition.
    fn run(self, place: &TraceDir, words: &[&str]) -> Output {
        let mut command = self.command(words);
        command.current_dir(place.dir()).stdin(Stdio::null());
        if let Self::Broken(descriptors) = self {
            for descriptor in descriptors {
                let (reader, writer) = io::pipe().unwrap();
                match descriptor {
                    // A pipe without a writer: the input ends at once.
                    0 => drop(command.stdin(reader)),
                    1 => drop(command.stdout(writer)),
                    _ => drop(command.stderr(writer)),
                }
            }
        }
        command.output().unwrap()
    }

    fn command(self, words: &[&str]) -> Command {
        // The conditions under which the tests themselves were started must not matter.
        let mut command = Command::new("env");
        command.arg("--default-signal");
        match self {
            Self::Ignored(signals) => drop(command.arg(format!("--ignore-signal={signals}"))),
            Self::Blocked(signals) => drop(command.arg(format!("--block-signal={signals}"))),
            Self::Closed(closed) => {
                command.args(["sh", "-c", &format!("exec \"$@\" {closed}"), "sh"]);
            }
            Self::Nothing | Self::Broken(_) => {}
        }
        command.args(words);
        command
    }

    /// Runs [`COMMAND`] under the program, or alone, and returns the signals that it found. Signals
    /// 32 and 33 are left out: the C library uses them in every program that has threads.
    fn signals_found(self, place: &TraceDir, swtch: &[&str]) -> Vec<u64> {
        let words = [swtch, &COMMAND].concat();
        let output = self.run(place, &words);
        assert_eq!(
            output.status.code(),
            Some(7),
            "{self:?} {words:?}: {output:?}"
        );
        let file = place.dir().join("signals");
        let found = fs::read_to_string(&file).expect("the command ran");
        fs::remove_file(file).unwrap();
        let sets = found.lines().map(|line| {
            let set = line.split_whitespace().last().unwrap();
            u64::from_str_radix(set, 16).unwrap() & !(0b11 << 31)
        });
        sets.collect()
    }

    fn breaks_stdout(self) -> bool {
        matches!(self, Self::Broken(descriptors) if descriptors.contains(&1))
    }
}

#[test]
#[ignore = "needs root"]
fn root_a_recording_is_whole_and_the_exit_code_is_the_commands_however_it_is_started() {
    let _machine = beside_others();
    for oddity in ODDITIES {
        let place = TraceDir::new();
        let expected = oddity.signals_found(&place, &[]);
        for verb in [&["record"][..], &["explain", "--no-bill"]] {
            let swtch = [&[SWTCH], verb, &["-o", "t.swtch", "--"]].concat();
            let found = oddity.signals_found(&place, &swtch);
            assert_eq!(found, expected, "{oddity:?} {verb:?}");
            let report = oddity.run(&place, &[SWTCH, "report", "t.swtch"]);
            assert_ne!(report.status.code(), Some(101), "{oddity:?} {report:?}");
            if !oddity.breaks_stdout() {
                assert_eq!(report.status.code(), Some(0), "{oddity:?} {report:?}");
            }
            TraceContents::new(Trace::open(&place.trace()).unwrap()).assert_balanced();
            fs::remove_dir_all(place.trace()).unwrap();
        }
    }
}

/// Without root, perf events or the kernel's counters answer; they start the command too.
#[test]
#[ignore = "needs root"]
fn root_a_first_answer_passes_the_exit_code_and_the_signals_on_however_it_is_started() {
    let _machine = beside_others();
    for oddity in ODDITIES {
        let place = TraceDir::new();
        let expected = oddity.signals_found(&place, &[]);
        let no_rights = [
            "setpriv",
            "--inh-caps=-all",
            "--bounding-set=-all",
            "--no-new-privs",
        ];
        for backend in ["proc", "perf"] {
            let swtch = [SWTCH, "explain", "--no-bill", "--backend", backend, "--"];
            let swtch = [&no_rights[..], &swtch[..]].concat();
            let found = oddity.signals_found(&place, &swtch);
            assert_eq!(found, expected, "{oddity:?} with {backend}");
        }
    }
}

/// `swtch completions bash | head -2`
#[test]
fn completions_whose_reader_has_gone_away_are_no_error() {
    let place = TraceDir::new();
    let output = Oddity::Broken(&[1]).run(&place, &[SWTCH, "completions", "bash"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}

/// A closed terminal ends neither of them, as nohup(1) promises.
#[test]
#[ignore = "needs root"]
fn root_a_signal_that_was_ignored_from_the_start_ends_nothing() {
    let _machine = beside_others();
    for (name, signal) in [("HUP", libc::SIGHUP), ("INT", libc::SIGINT)] {
        let place = TraceDir::new();
        let script = "sleep 1; touch mark; exit 7";
        let words = [SWTCH, "record", "-o", "t.swtch", "--", "sh", "-c", script];
        let mut command = Oddity::Ignored(name).command(&words);
        let mut recorder = TestProcess::start(command.current_dir(place.dir()));
        wait_until("the trace is there", || {
            place.trace().join("frame.arrows").exists()
        });
        thread::sleep(Duration::from_millis(200));
        recorder.signal(signal);
        let code = recorder.ends_within(Duration::from_secs(20)).code();
        assert_eq!(code, Some(7), "{name}");
        assert!(place.dir().join("mark").exists());
        let recorded = TraceContents::new(Trace::open(&place.trace()).unwrap());
        recorded.assert_balanced();
        let length = recorded.meta.end_ns - recorded.meta.start_ns;
        assert!(length > 1_000_000_000, "{name}: it ended after {length} ns");
    }
}

/// Resource limits, by their letter in `ulimit`, at values from too low for anything to more than enough.
const LIMITS: [(&str, &[&str]); 14] = [
    ("-f", &["0", "1", "100", "1000000"]),
    ("-s", &["64", "200", "1024", "unlimited"]),
    // With less than 8,000 the kernel cannot load the program: it ends before it begins.
    ("-d", &["10000", "40000", "70000", "2000000"]),
    ("-n", &["16", "24", "40", "1024"]),
    ("-u", &["1", "1000"]),
    ("-l", &["0", "64"]),
    ("-v", &["100000", "300000", "600000", "20000000"]),
    ("-m", &["1"]),
    ("-c", &["0"]),
    ("-t", &["1", "600"]),
    ("-e", &["0"]),
    ("-i", &["0"]),
    ("-q", &["0"]),
    ("-r", &["0"]),
];

/// Runs words of a command under a limit, soft and hard.
fn limited(place: &TraceDir, limit: (&str, &str), words: &[&str]) -> Output {
    let script = format!("ulimit {} {} && exec \"$@\"", limit.0, limit.1);
    let mut bash = Command::new("bash");
    bash.args(["-c", &script, "bash"]).args(words);
    bash.current_dir(place.dir()).stdin(Stdio::null());
    bash.output().unwrap()
}

/// Either it records to the end, and the command finds the limits that it would find without us; or the
/// limit is named, and what there is of a trace can be read.
#[test]
#[ignore = "needs root"]
fn root_under_each_resource_limit_it_records_or_names_the_limit() {
    let _machine = beside_others();
    // Builtins alone: a process of its own might find the limit itself.
    let command = ["sh", "-c", "ulimit -a; echo done"];
    let mut wrong = Vec::new();
    for (letter, values) in LIMITS {
        for limit in values.iter().map(|value| (letter, *value)) {
            let place = TraceDir::new();
            let alone = limited(&place, limit, &command);
            let record = [&[SWTCH, "record", "-o", "t.swtch", "--"][..], &command].concat();
            let output = limited(&place, limit, &record);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            let opened = opening::open(&place.trace());
            let is_right = match (output.status.code(), opened) {
                (Some(0), Ok(trace)) => {
                    TraceContents::new(trace).assert_balanced();
                    output.stdout == alone.stdout
                }
                (Some(2), Ok(trace)) => {
                    TraceContents::new(trace);
                    said.contains(&format!("(ulimit {letter}) is "))
                }
                (Some(2), Err(_)) => {
                    let is_left = place.trace().exists();
                    said.contains(&format!("(ulimit {letter}) is ")) && !is_left
                }
                _ => false,
            };
            println!("ulimit {letter} {}: {}: {said}", limit.1, output.status);
            if !is_right || said.contains("panicked") {
                wrong.push(format!("{limit:?}: {:?}: {said}", output.status));
            }
        }
    }
    assert_eq!(wrong, [""; 0]);
}

/// The limit on processes does not bind root.
#[test]
#[ignore = "needs root"]
fn root_a_user_who_may_start_no_process_is_told_so() {
    let _machine = beside_others();
    let stranger = Stranger::new();
    let mut record = Command::new("setpriv");
    record.args(Stranger::words(&[]));
    record.args(["bash", "-c", "ulimit -u 1 && exec \"$@\"", "bash"]);
    record.arg(stranger.program());
    record.args(["record", "--backend", "perf", "-o", "t.swtch", "--", "true"]);
    let output = record.current_dir(stranger.dir()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    // As a shell ends that cannot start its command.
    assert_eq!(output.status.code(), Some(126), "{said}");
    assert!(
        said.contains("(ulimit -u) is 1") && !said.contains("panicked"),
        "{said}"
    );
}

/// A limit that may be raised is no obstacle, and the command finds it as it was.
#[test]
#[ignore = "needs root"]
fn root_soft_limits_of_descriptors_and_stack_are_raised_and_handed_down_as_they_were() {
    let _machine = beside_others();
    for limit in [("-Sn", "16"), ("-Ss", "64")] {
        let place = TraceDir::new();
        let command = ["sh", "-c", "ulimit -Sn; ulimit -Ss; exit 7"];
        let alone = limited(&place, limit, &command);
        for verb in [
            &["record", "-o", "t.swtch"][..],
            &["explain", "--no-bill", "--backend", "proc"],
        ] {
            let words = [&[SWTCH], verb, &["--"], &command].concat();
            let output = limited(&place, limit, &words);
            assert_eq!(output.status.code(), Some(7), "{limit:?} {output:?}");
            assert!(
                output.stdout.starts_with(&alone.stdout),
                "{limit:?} {output:?}"
            );
        }
        TraceContents::new(Trace::open(&place.trace()).unwrap()).assert_balanced();
    }
}

/// Descriptors are what is missing, and not eBPF: no other way of recording takes its place.
#[test]
#[ignore = "needs root"]
fn root_too_few_descriptors_are_told_as_such_with_how_many_are_needed() {
    let _machine = beside_others();
    for value in ["24", "40"] {
        for verb in ["record", "explain"] {
            let place = TraceDir::new();
            let words = [SWTCH, verb, "-o", "t.swtch", "--", "touch", "mark"];
            let output = limited(&place, ("-n", value), &words);
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{said}");
            let sentence = format!("the limit on open files (ulimit -n) is {value}, and ");
            assert!(
                said.contains(&sentence) && said.contains(" are needed"),
                "{said}"
            );
            assert!(
                !said.contains("no eBPF here") && !said.contains("no recording here"),
                "{said}"
            );
            assert!(!place.trace().exists() && !place.dir().join("mark").exists());
        }
    }
}

/// They have a meaning for other programs, and `kill -USR2` for a recording with `--ring`.
#[test]
#[ignore = "needs root"]
fn root_signals_without_a_meaning_do_not_end_a_recording() {
    let _machine = beside_others();
    for (signal, ways) in [
        ("USR1", &[&["record"][..], &["record", "--ring", "1m"]][..]),
        ("USR2", &[&["record"], &["record", "--backend", "perf"]]),
    ] {
        for way in ways {
            let place = TraceDir::new();
            let script = format!("kill -{signal} $PPID; kill -{signal} $PPID; exit 7");
            let command = ["-o", "t.swtch", "--", "sh", "-c", &script];
            let output = Oddity::Nothing.run(&place, &[&[SWTCH], *way, &command].concat());
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(7), "{signal} {way:?}: {said}");
            let told = said.matches(&format!("swtch: SIG{signal} ")).count();
            assert_eq!(told, 1, "{signal} {way:?}: {said}");
            let meta = Trace::open(&place.trace()).unwrap().meta().clone();
            assert_eq!(meta.state, RecordingState::Finished);
        }
    }
    for verb in [
        &["record", "--summary"][..],
        &["explain", "--backend", "proc"],
    ] {
        let place = TraceDir::new();
        let command = [
            "--",
            "sh",
            "-c",
            "kill -USR1 $PPID; kill -USR2 $PPID; exit 7",
        ];
        let output = Oddity::Nothing.run(&place, &[&[SWTCH], verb, &command].concat());
        assert_eq!(output.status.code(), Some(7), "{verb:?}: {output:?}");
    }
}
