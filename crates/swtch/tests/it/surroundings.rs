//! Conditions under which the program is started: ignored signals, closed descriptors, broken
//! pipes. In each of them a recording is complete, the exit code is the command's, and the command
//! finds the same conditions as without us.

use std::fs;
use std::io;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use swtch_store::Trace;

use crate::machine::{TestProcess, beside_others, wait_until};
use crate::recording::{SWTCH, TraceContents, TraceDir};

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

const ODDITIES: [Oddity; 15] = [
    Oddity::Nothing,
    Oddity::Ignored("HUP"),
    Oddity::Ignored("INT"),
    Oddity::Ignored("TERM"),
    Oddity::Ignored("CHLD"),
    Oddity::Ignored("PIPE"),
    Oddity::Ignored("HUP,INT,TERM,CHLD,PIPE,QUIT"),
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
