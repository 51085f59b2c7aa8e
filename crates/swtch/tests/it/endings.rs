//! Tests how a recording ends: with its command, by a signal, by a kill, or when its time is up. The command is not
//! affected, and its exit code becomes that of the program.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use swtch_capture::monotonic_ns;
use swtch_core::{Reason, TaskEventKind};
use swtch_report::opening;
use swtch_store::{Completeness, RecordingState, Trace};

use crate::machine::{
    OfflineCpu, Orphan, SOON, TestProcess, alone, beside_others, command_of, finder_of, is_alive,
    reader_of, send, wait_until,
};
use crate::recording::{
    Recording, SWTCH, TraceContents, TraceDir, minding_signals, report, start_recorder, stderr,
    stdout, swtch,
};

#[test]
#[ignore = "needs root"]
fn root_the_exit_code_of_the_command_is_passed_on() {
    let _machine = beside_others();
    let code = |script| {
        Recording::of(&["--", "sh", "-c", script])
            .output
            .status
            .code()
    };
    assert_eq!(code("exit 0"), Some(0));
    assert_eq!(code("exit 7"), Some(7));
    assert_eq!(code("kill -TERM $$"), Some(128 + libc::SIGTERM));
    assert_eq!(code("kill -KILL $$"), Some(128 + libc::SIGKILL));
}

/// The signal arrives when the thread ends that started the child, not when the process does.
#[test]
#[ignore = "needs root"]
fn root_a_command_that_asks_to_end_with_its_parent_goes_on_while_it_is_recorded() {
    let _machine = beside_others();
    let script = ["sh", "-c", "sleep 0.3; exit 7"];
    let words = [&["--", "setpriv", "--pdeathsig", "TERM"][..], &script].concat();
    let recording = Recording::of(&words);
    let said = stderr(&recording.output);
    assert_eq!(recording.output.status.code(), Some(7), "{said}");
}

#[test]
#[ignore = "needs root"]
fn root_explain_passes_the_exit_code_on_too() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let mut explain = swtch(["explain", "--no-bill", "-o"]);
    explain
        .arg(place.trace())
        .args(["--", "sh", "-c", "exit 7"]);
    let output = explain.output().unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
    assert!(stdout(&output).contains("verdict"), "{}", stdout(&output));
}

#[test]
#[ignore = "needs root"]
fn root_a_command_that_is_not_there_gives_127_and_leaves_nothing() {
    let _machine = beside_others();
    let recording = Recording::of(&["--", "/no/such/program"]);
    let said = stderr(&recording.output);
    assert_eq!(recording.output.status.code(), Some(127), "{said}");
    assert!(
        said.contains("/no/such/program") && said.contains("No such file"),
        "{said}"
    );
    assert!(!recording.place.trace().exists());
}

#[test]
#[ignore = "needs root"]
fn root_a_command_that_may_not_run_gives_126_and_leaves_nothing() {
    let _machine = beside_others();
    let recording = Recording::of(&["--", "/etc/passwd"]);
    let said = stderr(&recording.output);
    assert_eq!(recording.output.status.code(), Some(126), "{said}");
    assert!(said.contains("Permission denied"), "{said}");
    assert!(!recording.place.trace().exists());
}

/// From its exec to its last switch-out, which is the exit.
#[test]
#[ignore = "needs root"]
fn root_a_very_short_command_is_recorded_from_exec_to_exit() {
    let _machine = beside_others();
    let recording = Recording::of(&["--", "true"]);
    let recorded = recording.read();
    recorded.assert_balanced();
    let exec = recorded
        .tasks
        .iter()
        .find(|task| task.kind == TaskEventKind::Exec);
    let exec = exec.expect("the command executes");
    assert_eq!(exec.comm, b"true");
    let ids = (exec.pid.get(), exec.tid.get());
    let threads = recorded.by_thread();
    let rows = &threads[&ids];
    let last = rows.last().expect("it left once at least");
    assert_eq!(last.rule.reason, Reason::Exit);
    assert!(last.ts > exec.ts);
    let (rows, counted) = recorded
        .rows_and_kernel_count(ids, rows)
        .expect("its exit is recorded");
    assert_eq!(rows, counted, "from its start to its exit");
}

/// The daemon keeps stdout open and goes on; the recording does not wait for it.
#[test]
#[ignore = "needs root"]
fn root_a_command_that_becomes_a_daemon_ends_the_recording() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let pid_file = place.dir().join("daemon");
    let script = format!(
        "setsid sh -c 'echo $$ > {}; exec sleep 60' &",
        pid_file.display()
    );
    let mut recorder = TestProcess::start(&mut place.record(&["--", "sh", "-c", &script]));
    assert!(recorder.ends_within(SOON).success());
    wait_until("the daemon says its number", || {
        fs::read_to_string(&pid_file).is_ok_and(|text| text.ends_with('\n'))
    });
    let pid = fs::read_to_string(&pid_file)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let _daemon = Orphan(pid);
    assert!(is_alive(pid));
    assert_eq!(
        Trace::open(&place.trace()).unwrap().meta().state,
        RecordingState::Finished
    );
}

#[test]
#[ignore = "needs root"]
fn root_a_time_limit_ends_the_recording_and_not_the_command() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let mark = place.dir().join("mark");
    let script = format!("sleep 4; echo done > {}", mark.display());
    let start = Instant::now();
    let mut recorder =
        TestProcess::start(&mut place.record(&["-d", "0.2", "--", "sh", "-c", &script]));
    assert!(recorder.ends_within(SOON).success());
    assert!(
        !mark.exists(),
        "the limit came first, after {:?}",
        start.elapsed()
    );
    let trace = Trace::open(&place.trace()).unwrap();
    assert_eq!(trace.meta().state, RecordingState::Finished);
    wait_until("the command went on to its end", || mark.exists());
}

/// Capabilities belong to threads: one thread that keeps them could give them back to the process.
/// Root regains them by executing a program, up to the bounding set, unless `no_new_privs` is set.
#[test]
#[ignore = "needs root"]
fn root_no_thread_of_a_recorder_keeps_a_privilege_or_can_get_one_back() {
    const CAP_KILL: u64 = 1 << 5;
    let _machine = beside_others();
    let of_sudo = ["SUDO_UID", "SUDO_GID"].map(|name| (name, "65534"));
    for numbers in [&[][..], &of_sudo] {
        let place = TraceDir::of(65534);
        let mut record = minding_signals(&place.record(&["--", "sleep", "60"]));
        let mut recorder = TestProcess::start(record.envs(numbers.iter().copied()));
        wait_until(&format!("{numbers:?}: it is confined"), || {
            let threads = statuses_of_threads(recorder.pid());
            // The first is the thread that empties the rings, which keeps capabilities; the guard
            // and the thread that waits for the command have none.
            let of_first = |status: &str| status.contains(&format!("\nPid:\t{}\n", recorder.pid()));
            let is_confined = |status: &String| {
                let kept = if of_first(status) { CAP_KILL } else { 0 };
                is_confined(status, kept)
            };
            threads.len() >= 3 && threads.iter().all(is_confined)
        });
        let _command = Orphan(command_of(recorder.pid()));
        let user = if numbers.is_empty() { "0" } else { "65534" };
        let finder = finder_of(recorder.pid()).expect("it runs while the recorder does");
        for pid in [recorder.pid(), finder] {
            let expected = format!("\nUid:\t{user}\t{user}\t{user}\t{user}\n");
            wait_until(&format!("{pid} is of user {user}"), || {
                let status = fs::read_to_string(format!("/proc/{pid}/status"));
                status.is_ok_and(|status| status.contains(&expected))
            });
        }
        recorder.signal(libc::SIGINT);
        assert_eq!(recorder.ends_within(SOON).code(), Some(128 + libc::SIGINT));
    }
}

/// Returns true if a thread has these capabilities alone, no way to others, and a filter of system calls.
fn is_confined(status: &str, kept: u64) -> bool {
    let is = |field: &str, value: &str| status.contains(&format!("\n{field}:\t{value}\n"));
    let (kept, none) = (format!("{kept:016x}"), format!("{:016x}", 0));
    is("CapPrm", &kept)
        && is("CapEff", &kept)
        && is("CapBnd", &none)
        && is("CapInh", &none)
        && is("CapAmb", &none)
        && is("NoNewPrivs", "1")
        && is("Seccomp", "2")
}

fn statuses_of_threads(pid: u32) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"));
    let threads = threads.into_iter().flatten().flatten();
    let read = threads.filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
    read.collect()
}

/// The recorder restricts only itself: the command has the rights that it would have without it.
#[test]
#[ignore = "needs root"]
fn root_the_command_keeps_all_rights_of_who_started_it() {
    let _machine = beside_others();
    let rights = |words: &[&str]| {
        let place = TraceDir::of(65534);
        let script =
            "grep -E '^(Cap|NoNewPrivs|Seccomp|Uid|Gid|Groups)' /proc/self/status > rights";
        let command = [words, &["sh", "-c", script]].concat();
        let mut start = Command::new(command[0]);
        start.args(&command[1..]).current_dir(place.dir());
        let output = start
            .env("SUDO_UID", "65534")
            .env("SUDO_GID", "65534")
            .output();
        assert!(output.unwrap().status.success());
        fs::read_to_string(place.dir().join("rights")).unwrap()
    };
    assert_eq!(rights(&[SWTCH, "record", "--"]), rights(&["env"]));
}

/// Inspecting the files and the memory of other users takes a right. The processes that have it do nothing
/// else and have no other right.
#[test]
#[ignore = "needs root"]
fn root_helpers_keep_the_right_to_look_at_processes_and_no_other() {
    const CAP_SYS_PTRACE: u64 = 1 << 19;
    const CAP_DAC_READ_SEARCH: u64 = 1 << 2;
    let _machine = beside_others();
    let place = TraceDir::new();
    let record = place.record(&["--", "sleep", "60"]);
    // The reader opens programs in homes that are closed to others.
    let of_reader = CAP_SYS_PTRACE | CAP_DAC_READ_SEARCH;
    let mut recorder = TestProcess::start(&mut minding_signals(&record));
    let has_only = |helper: Option<u32>, rights| {
        helper.is_some_and(|helper| {
            let threads = statuses_of_threads(helper);
            threads.len() == 1 && is_confined(&threads[0], rights)
        })
    };
    wait_until("the finder has one right", || {
        has_only(finder_of(recorder.pid()), CAP_SYS_PTRACE)
    });
    wait_until("the reader has two", || {
        has_only(reader_of(recorder.pid()), of_reader)
    });
    recorder.signal(libc::SIGINT);
    recorder.ends_within(SOON);
}

/// Once the recorder is gone, no process is left with a right, even if nobody could clean up.
#[test]
#[ignore = "needs root"]
fn root_helpers_end_with_their_recorder_however_that_ends() {
    let _machine = beside_others();
    for signal in [libc::SIGTERM, libc::SIGKILL] {
        let place = TraceDir::new();
        let mut recorder = start_recorder(&place, &["--", "sleep", "60"]);
        let helpers = [finder_of, reader_of].map(|helper_of| helper_of(recorder.pid()));
        let _command = Orphan(command_of(recorder.pid()));
        recorder.signal(signal);
        recorder.ends_within(SOON);
        for helper in helpers {
            let helper = helper.expect("it runs while the recorder does");
            wait_until("the helper has ended", || !is_alive(helper));
        }
    }
}

/// `systemctl kill -s USR2` and Ctrl-C reach all processes of a recording; the finder leaves them to the
/// recorder.
#[test]
#[ignore = "needs root"]
fn root_the_finder_leaves_signals_to_its_recorder() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let mut recorder = start_recorder(&place, &["-d", "4", "--", "sleep", "60"]);
    let finder = finder_of(recorder.pid()).expect("it runs while the recorder does");
    wait_until("the finder is ready", || {
        fs::read_to_string(format!("/proc/{finder}/comm")).unwrap() == "swtch-finder\n"
    });
    for signal in [libc::SIGUSR2, libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        send(finder, signal);
    }
    let _command = Orphan(command_of(recorder.pid()));
    assert!(recorder.ends_within(SOON).success());
    let recorded = TraceContents::new(Trace::open(&place.trace()).unwrap());
    let refused = recorded.meta.user.map(|user| user.refused);
    assert_eq!(refused.unwrap_or_default(), [""; 0]);
}

/// A recording goes on without the finder, and the trace says that no more schedulers were found.
#[test]
#[ignore = "needs root"]
fn root_a_finder_that_was_killed_is_missed_and_said() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let mut recorder = start_recorder(&place, &["-d", "4", "--", "sleep", "60"]);
    let finder = finder_of(recorder.pid()).expect("it runs while the recorder does");
    send(finder, libc::SIGKILL);
    let _command = Orphan(command_of(recorder.pid()));
    assert!(recorder.ends_within(SOON).success());
    let recorded = TraceContents::new(Trace::open(&place.trace()).unwrap());
    recorded.assert_balanced();
    let refused = recorded.meta.user.unwrap().refused;
    assert!(
        refused
            .iter()
            .any(|why| why.contains("not looked for any more")),
        "{refused:?}"
    );
}

/// A recording goes on without the reader, and says that stacks are read no more.
#[test]
#[ignore = "needs root"]
fn root_a_reader_of_stacks_that_was_killed_is_missed_and_said() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let (said, trace) = (place.dir().join("said"), place.trace());
    let record = r#"exec "$1" record -d 2 -o "$2" -- sleep 60 2> "$3""#;
    let mut shell = Command::new("sh");
    shell
        .args(["-c", record, "sh", SWTCH])
        .args([&trace, &said]);
    let mut recorder = TestProcess::start(&mut shell);
    wait_until("the recording goes on", || {
        fs::read_dir(&trace).is_ok() && reader_of(recorder.pid()).is_some()
    });
    send(reader_of(recorder.pid()).unwrap(), libc::SIGKILL);
    let _command = Orphan(command_of(recorder.pid()));
    assert!(recorder.ends_within(SOON).success());
    let said = fs::read_to_string(said).unwrap();
    assert!(said.contains("stacks are not read any more"), "{said}");
    TraceContents::new(Trace::open(&place.trace()).unwrap()).assert_balanced();
}

/// Rows of other tasks, which had the CPU while the command waited for it, are in the trace but in
/// no count.
#[test]
#[ignore = "needs root"]
fn root_the_last_line_counts_what_reports_count() {
    let _machine = alone();
    let busy = || TestProcess::start(Command::new("sh").args(["-c", "while :; do :; done"]));
    let _others: Vec<_> = (0..4).map(|_| busy()).collect();
    let words = [
        "sh",
        "-c",
        "for i in 1 2 3 4 5 6 7 8 9; do sleep 0.01; done",
    ];
    let recording = Recording::of(&[["--"].as_slice(), &words].concat());
    let said = stderr(&recording.output);
    let answer = recording.report(&["--by", "reason", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&stdout(&answer)).unwrap();
    let counted = json["total"]["switches"].as_u64().unwrap();
    assert!(
        said.contains(&format!("swtch: {counted} switches, ")),
        "{said}"
    );
    let stored = recording.read().meta.counts.stored;
    assert!(stored > counted, "nobody else had the CPU");
    let others = format!("swtch: {} more are those of others", stored - counted);
    assert!(said.contains(&others), "{said}");
}

#[test]
#[ignore = "needs root"]
fn root_a_recording_of_processes_ends_when_they_have_ended() {
    let _machine = beside_others();
    let mut running = TestProcess::start(Command::new("sleep").arg("60"));
    let place = TraceDir::new();
    let pid = running.pid().to_string();
    let mut recorder = start_recorder(&place, &["-p", &pid]);
    thread::sleep(Duration::from_millis(300));
    assert!(is_alive(recorder.pid()), "not before they end");
    running.signal(libc::SIGTERM);
    running.ends_within(SOON);
    assert!(recorder.ends_within(SOON).success());
    let recorded = TraceContents::new(Trace::open(&place.trace()).unwrap());
    recorded.assert_balanced();
    assert_eq!(recorded.switches.last().unwrap().rule.reason, Reason::Exit);
}

#[test]
#[ignore = "needs root"]
fn root_a_process_that_does_nothing_gives_an_empty_trace() {
    let _machine = beside_others();
    let stopped = TestProcess::start(Command::new("sleep").arg("60"));
    stopped.signal(libc::SIGSTOP);
    wait_until("it is stopped", || {
        let status = fs::read_to_string(format!("/proc/{}/status", stopped.pid()));
        status.is_ok_and(|status| status.contains("\nState:\tT"))
    });
    let pid = stopped.pid().to_string();
    let recording = Recording::that_succeeds(&["-d", "0.2", "-p", &pid]);
    let recorded = recording.read();
    recorded.assert_balanced();
    assert_eq!(recorded.switches.len(), 0);
    let page = recording.report(&[]);
    assert!(page.status.success(), "{}", stderr(&page));
    assert!(
        stdout(&page).contains("0 context switches"),
        "{}",
        stdout(&page)
    );
}

#[test]
#[ignore = "needs root"]
fn root_signals_finish_the_trace() {
    let _machine = beside_others();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let place = TraceDir::new();
        let mut recorder = start_recorder(&place, &["-a"]);
        recorder.signal(signal);
        assert!(recorder.ends_within(SOON).success(), "{signal}");
        let recorded = TraceContents::new(Trace::open(&place.trace()).unwrap());
        recorded.assert_accounted();
    }
}

#[test]
#[ignore = "needs root"]
fn root_a_signal_is_passed_on_to_the_command() {
    let _machine = beside_others();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let place = TraceDir::new();
        let mut recorder = start_recorder(&place, &["--", "sleep", "60"]);
        recorder.signal(signal);
        let code = recorder.ends_within(SOON).code();
        assert_eq!(code, Some(128 + signal));
        let recorded = TraceContents::new(Trace::open(&place.trace()).unwrap());
        recorded.assert_balanced();
    }
}

/// A command that catches the signal goes on; the recording ends a little later nevertheless.
#[test]
#[ignore = "needs root"]
fn root_a_command_that_ignores_the_signal_goes_on_unrecorded() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let script = "trap '' TERM; while :; do sleep 0.1; done";
    let mut recorder = start_recorder(&place, &["--", "sh", "-c", script]);
    let command = Orphan(command_of(recorder.pid()));
    // It takes a moment until the shell has set its trap.
    thread::sleep(Duration::from_millis(300));
    recorder.signal(libc::SIGTERM);
    recorder.ends_within(SOON);
    assert!(is_alive(command.0));
    assert_eq!(
        Trace::open(&place.trace()).unwrap().meta().state,
        RecordingState::Finished
    );
}

/// Number of kills at different moments: 4, or the value of `SWTCH_TEST_KILLS`.
fn kills() -> u64 {
    std::env::var("SWTCH_TEST_KILLS").map_or(4, |kills| kills.parse().unwrap())
}

/// At most this much of the recording may be missing. An unoptimised recorder falls behind its
/// rings under this load, and further behind if other work loads the machine.
const MOST_MISSING_NS: u64 = if cfg!(debug_assertions) {
    3_000_000_000
} else {
    1_000_000_000
};

#[test]
#[ignore = "needs root"]
fn root_a_killed_recorder_costs_a_second_at_most() {
    let _machine = alone();
    for nth in 0..kills() {
        let mut quiet = swtch_test::depends_on_quiet();
        let place = TraceDir::new();
        let words = ["--", SWTCH, "workload", "pipe", "--count", "100000000"];
        let mut recorder = start_recorder(&place, &words);
        let records = place.trace().join("records.raw");
        wait_until("records are in the file, not only its header", || {
            fs::metadata(&records).is_ok_and(|file| file.len() > 10_000)
        });
        let command = Orphan(command_of(recorder.pid()));
        // The kills are spread over the time between flushes, which happen twice a second.
        thread::sleep(Duration::from_millis(400 + nth * 377 % 1000));
        quiet.ends_here();
        recorder.signal(libc::SIGKILL);
        let killed = monotonic_ns();
        assert!(!recorder.ends_within(SOON).success());
        thread::sleep(Duration::from_millis(50));
        assert!(is_alive(command.0), "the command goes on");
        let recorded = TraceContents::new(opening::open(&place.trace()).unwrap());
        assert!(
            matches!(recorded.completeness, Completeness::Unfinished { .. }),
            "{:?}",
            recorded.completeness
        );
        let last = recorded.switches.last().expect("there are rows").ts.as_ns();
        let missing = killed.saturating_sub(last);
        println!(
            "kill {nth}: {} rows, {missing} ns missing",
            recorded.switches.len()
        );
        assert!(missing <= MOST_MISSING_NS, "{missing} ns are missing");
        let page = report(&place.trace(), &[]);
        assert!(page.status.success(), "{}", stderr(&page));
        assert!(stdout(&page).contains("unfinished"), "{}", stdout(&page));
    }
}

/// The parent may have ended before the recorder asked for a signal at its end: then none arrives.
#[test]
#[ignore = "needs root"]
fn root_a_recorder_whose_parent_has_ended_already_ends_too() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let mut recorder =
        TestProcess::start(&mut place.record(&["--with-parent", "1", "--", "sleep", "60"]));
    recorder.ends_within(SOON);
    assert!(Trace::open(&place.trace()).is_ok(), "the trace is whole");
}

/// If the recorder is killed while it writes the final files, the records are still readable.
#[test]
#[ignore = "needs root"]
fn root_a_recorder_killed_while_it_finishes_leaves_a_readable_trace() {
    let _machine = alone();
    let place = TraceDir::new();
    let words = [
        "-d",
        "1",
        "--",
        SWTCH,
        "workload",
        "pipe",
        "--count",
        "100000000",
    ];
    let mut recorder = start_recorder(&place, &words);
    let _command = Orphan(command_of(recorder.pid()));
    wait_until("it finishes", || {
        place.trace().join("switch.parquet.tmp").exists()
    });
    recorder.signal(libc::SIGKILL);
    recorder.ends_within(SOON);
    let recorded = TraceContents::new(opening::open(&place.trace()).unwrap());
    assert!(recorded.switches.len() > 1000);
}

#[test]
#[ignore = "needs root"]
fn root_recordings_beside_each_other_do_not_disturb() {
    let _machine = alone();
    let place = TraceDir::new();
    let mut other = start_recorder(&place, &["-a"]);
    let recording = Recording::of(&["--", SWTCH, "workload", "futex"]);
    other.signal(libc::SIGINT);
    assert!(other.ends_within(SOON).success());
    recording.read().assert_balanced();
    let all = TraceContents::new(Trace::open(&place.trace()).unwrap());
    all.assert_accounted();
    let inner = recording.read().switches.len();
    assert!(all.switches.len() > inner, "the other saw these, too");
}

/// Taking a CPU offline moves all threads, so this runs only if `SWTCH_TEST_HOTPLUG` is set.
#[test]
#[ignore = "needs root"]
fn root_a_cpu_that_goes_and_comes_costs_no_switch() {
    let _machine = alone();
    if std::env::var_os("SWTCH_TEST_HOTPLUG").is_none() {
        swtch_test::skip!("SWTCH_TEST_HOTPLUG is not set");
    }
    let place = TraceDir::new();
    // Processes that may run on any CPU, and leave nothing behind when they are killed.
    let script = "while :; do sleep 0.001; done";
    let words = ["-d", "2", "--", "sh", "-c", script];
    let mut recorder = start_recorder(&place, &words);
    let _command = Orphan(command_of(recorder.pid()));
    let cpu = OfflineCpu::take().expect("root may take the last CPU offline");
    thread::sleep(Duration::from_millis(500));
    drop(cpu);
    assert!(recorder.ends_within(SOON).success());
    TraceContents::new(Trace::open(&place.trace()).unwrap()).assert_balanced();
}

/// Neither a recording that ended nor one that was killed leaves programs in the kernel.
#[test]
#[ignore = "needs root"]
fn root_nothing_stays_in_the_kernel() {
    let _machine = alone();
    let Some(before) = loaded_programs() else {
        swtch_test::skip!("bpftool is not installed");
    };
    assert!(Recording::of(&["--", "true"]).output.status.success());
    let place = TraceDir::new();
    let mut recorder = start_recorder(&place, &["-a"]);
    let during = loaded_programs().unwrap();
    assert!(
        during.iter().any(|id| !before.contains(id)),
        "it loads some"
    );
    recorder.signal(libc::SIGKILL);
    recorder.ends_within(SOON);
    // The kernel frees programs a little after their last user is gone. Other users may load
    // theirs.
    wait_until("its programs are gone", || {
        let now = loaded_programs().unwrap();
        during
            .iter()
            .all(|id| before.contains(id) || !now.contains(id))
    });
}

/// Ids of all loaded eBPF programs; `None` without bpftool.
fn loaded_programs() -> Option<Vec<u64>> {
    let output = Command::new("bpftool")
        .args(["prog", "show", "-j"])
        .output()
        .ok()?;
    let programs: Vec<serde_json::Value> = serde_json::from_slice(&output.stdout).ok()?;
    Some(
        programs
            .iter()
            .filter_map(|program| program["id"].as_u64())
            .collect(),
    )
}
