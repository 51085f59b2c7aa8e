//! Names of functions in stacks: of the file that the process runs, or none.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use swtch_capture::CodeMap;
use swtch_core::{Frame, Pid, StackKind};
use swtch_store::Trace;

use crate::machine::{TestProcess, beside_others, copy_program, wait_until};
use crate::recording::{Recording, SWTCH, TraceDir, report, stderr, stdout, swtch};

/// In the names of this program's functions, and of none of the system's programs.
const OWN_FUNCTION: &str = "swtch_bench::";

/// Starts a command, and waits until it has become this program.
fn start_program(command: &mut Command, program: &Path) -> TestProcess {
    let running = TestProcess::start(command);
    wait_until("the program runs", || {
        let exe = fs::read_link(format!("/proc/{}/exe", running.pid()));
        exe.is_ok_and(|exe| exe == program)
    });
    running
}

/// A recording of half a second of a process.
fn recorded(running: &TestProcess) -> Recording {
    let pid = running.pid().to_string();
    Recording::that_succeeds(&["-d", "1", "--stack-budget", "100", "-p", &pid])
}

/// The stacks in such a recording, as they are reported.
fn stacks_of(running: &TestProcess) -> String {
    let output = recorded(running).report(&["--by", "stack"]);
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

/// In a container, the path of a program leads to another file than here.
#[test]
#[ignore = "needs root"]
fn root_names_are_of_the_file_at_the_path_in_the_mount_namespace_of_the_process() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let [here, there] = ["here", "there"].map(|name| place.dir().join(name));
    for (dir, program) in [(&here, "/bin/sleep"), (&there, SWTCH)] {
        fs::create_dir(dir).unwrap();
        copy_program(program, &dir.join("prog"));
    }
    let script = "mount --bind there here; exec here/prog workload nanosleep --count 1000000";
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", script])
        .current_dir(place.dir());
    let running = start_program(&mut command, &here.join("prog"));
    let stacks = stacks_of(&running);
    assert!(stacks.contains(OWN_FUNCTION), "{stacks}");
}

/// One that has changed its root alone is told by its path from here.
#[test]
#[ignore = "needs root"]
fn root_names_are_those_of_a_program_with_another_root() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let program = compiled(&place, CALLS_AT_THE_END, &["-O1", "-static"]);
    let mut command = Command::new("chroot");
    command.arg(place.dir()).arg("/prog");
    let running = start_program(&mut command, &program);
    let stacks = stacks_of(&running);
    assert!(stacks.contains(" naps+"), "{stacks}");
}

/// After an upgrade, the path of a running program leads to the new one, which it does not run.
#[test]
#[ignore = "needs root"]
fn root_names_are_of_the_program_that_runs_and_not_of_the_one_that_replaced_it() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let program = place.dir().join("prog");
    copy_program(SWTCH, &program);
    let mut command = Command::new(&program);
    command.args(["workload", "nanosleep", "--count", "1000000"]);
    let running = start_program(&mut command, &program);
    let newer = place.dir().join("newer");
    fs::copy("/bin/sleep", &newer).unwrap();
    fs::rename(&newer, &program).unwrap();
    let stacks = stacks_of(&running);
    assert!(stacks.contains(OWN_FUNCTION), "{stacks}");
}

/// `main` ends with a call that never returns: what it would return to is behind `main`.
const CALLS_AT_THE_END: &str = "
#include <unistd.h>
__attribute__((noinline, noreturn)) void naps(void) { for (;;) usleep(1000); }
int main(void) { naps(); }
";

/// Compiles a program in C.
pub(crate) fn compiled(place: &TraceDir, text: &str, options: &[&str]) -> PathBuf {
    let program = place.dir().join("prog");
    let source = place.dir().join("prog.c");
    fs::write(&source, text).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(options).arg("-o").args([&program, &source]);
    done(&mut compiler);
    program
}

fn done(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", stderr(&output));
}

#[test]
#[ignore = "needs root"]
fn root_a_function_that_ends_with_a_call_is_named() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let options = ["-O1", "-fno-omit-frame-pointer"];
    let program = compiled(&place, CALLS_AT_THE_END, &options);
    let running = start_program(&mut Command::new(&program), &program);
    let stacks = stacks_of(&running);
    assert!(stacks.contains(" main+"), "{stacks}");
}

/// `doze` and `wait_turn` are parts of `handle` after they were compiled.
const INLINES: &str = "
#include <unistd.h>
static inline __attribute__((always_inline)) void doze(void) { usleep(1000); }
static inline __attribute__((always_inline)) void wait_turn(void) { doze(); __asm__ volatile(\"\"); }
__attribute__((noinline)) void handle(void) { wait_turn(); __asm__ volatile(\"\"); }
int main(void) { for (;;) handle(); }
";

/// Says whether these functions call each other in a report of stacks, the innermost first.
fn are_in_line(stacks: &str, functions: &[&str]) -> bool {
    let mut rest = stacks;
    functions.iter().all(|function| {
        let found = rest.find(function);
        rest = &rest[found.unwrap_or(rest.len())..];
        found.is_some()
    })
}

#[test]
#[ignore = "needs root"]
fn root_inlined_functions_are_frames_and_a_stripped_program_is_named_by_its_build_id() {
    const INNERMOST_FIRST: [&str; 4] = [" doze [prog]", " wait_turn [prog]", " handle+", " main+"];
    let _machine = beside_others();
    let place = TraceDir::new();
    let program = compiled(&place, INLINES, &["-O2", "-g", "-Wl,--build-id"]);
    let running = start_program(&mut Command::new(&program), &program);
    let stacks = stacks_of(&running);
    assert!(are_in_line(&stacks, &INNERMOST_FIRST), "{stacks}");
    drop(running);

    let symbols = place.dir().join("symbols");
    fs::create_dir(&symbols).unwrap();
    fs::copy(&program, symbols.join("of-another-name")).unwrap();
    done(Command::new("strip").arg(&program));
    let running = start_program(&mut Command::new(&program), &program);
    let recording = recorded(&running);
    let stacks = stdout(&recording.report(&["--by", "stack"]));
    assert!(
        !stacks.contains(" handle+") && stacks.contains(" [prog]"),
        "{stacks}"
    );
    let directory = symbols.to_str().unwrap();
    let output = recording.report(&["--by", "stack", "--symbols", directory]);
    let stacks = stdout(&output);
    assert!(
        are_in_line(&stacks, &INNERMOST_FIRST),
        "{stacks}{}",
        stderr(&output)
    );
    // What has no file there is said.
    let elsewhere = place.dir().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    let output = recording.report(&["--by", "stack", "--symbols", elsewhere.to_str().unwrap()]);
    assert!(
        stderr(&output).contains("no file there has the build id"),
        "{}",
        stderr(&output)
    );
}

/// As Fedora strips its programs: the names of functions are packed into the file.
#[test]
#[ignore = "needs root"]
fn root_a_stripped_program_is_named_by_symbols_that_it_has_packed() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let program = compiled(&place, INLINES, &["-O2", "-Wl,--build-id"]);
    let symbols = place.dir().join("symbols");
    done(
        Command::new("objcopy")
            .arg("--only-keep-debug")
            .args([&program, &symbols]),
    );
    done(Command::new("strip").arg(&program));
    let is_named = |program: &Path| {
        let running = start_program(&mut Command::new(program), program);
        stacks_of(&running).contains(" handle+")
    };
    assert!(!is_named(&program));
    done(Command::new("xz").arg(&symbols));
    let section = format!(".gnu_debugdata={}.xz", symbols.display());
    let add = ["--add-section", &section];
    done(Command::new("objcopy").args(add).arg(&program));
    assert!(is_named(&program));
}

/// A program says in which file its debug information is. If others can write there, that is not opened, not even by
/// root: who opens a FIFO waits for its writer.
#[test]
#[ignore = "needs root"]
fn root_debug_information_is_not_opened_where_another_user_may_write() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let program = compiled(&place, INLINES, &["-O2", "-g"]);
    let debug = place.dir().join("prog.debug");
    done(
        Command::new("objcopy")
            .arg("--only-keep-debug")
            .args([&program, &debug]),
    );
    done(Command::new("strip").arg(&program));
    let link = format!("--add-gnu-debuglink={}", debug.display());
    done(Command::new("objcopy").arg(link).arg(&program));
    let running = start_program(&mut Command::new(&program), &program);
    let stacks = stacks_of(&running);
    assert!(stacks.contains(" wait_turn [prog]"), "{stacks}");
    drop(running);

    fs::remove_file(&debug).unwrap();
    done(Command::new("mkfifo").arg(&debug));
    chown(&program, Some(65534), None).unwrap();
    let running = start_program(&mut Command::new(&program), &program);
    let trace = place.trace();
    let pid = running.pid().to_string();
    let mut recorder = TestProcess::start(&mut swtch([
        "record",
        "-d",
        "1",
        "-p",
        &pid,
        "-o",
        trace.to_str().unwrap(),
    ]));
    assert!(recorder.ends_within(Duration::from_secs(60)).success());
    let stacks = stdout(&report(&trace, &["--by", "stack"]));
    assert!(stacks.contains(" [prog]"), "{stacks}");
}

/// The kernel takes what lies at the frame pointer for a caller, where code uses the register for
/// something else. A stack ends before what is no code; each frame that is left is in a mapping of code.
#[test]
#[ignore = "needs root"]
fn root_a_stack_holds_code_only() {
    let _machine = beside_others();
    if !Path::new("/usr/bin/python3").exists() {
        swtch_test::skip!("the system has no python3");
    }
    let words = ["-c", "import time\nwhile True: time.sleep(0.001)"];
    let running = TestProcess::start(Command::new("/usr/bin/python3").args(words));
    let recording = recorded(&running);
    let map = CodeMap::of(Pid::new(running.pid())).unwrap();
    let trace = Trace::open(&recording.place.trace()).unwrap();
    let frames = trace.frames().unwrap();
    let stacks = trace.stacks().unwrap();
    let user = stacks.iter().filter(|stack| stack.kind == StackKind::User);
    let numbers: Vec<u32> = user.flat_map(|stack| stack.frames.clone()).collect();
    assert!(!numbers.is_empty(), "it waits in a call of the program");
    // A function of Python is at no address.
    let is_native = |frame: &&Frame| frame.module.as_deref() != Some("[python]");
    let frames = frames.iter().filter(|frame| numbers.contains(&frame.id));
    for frame in frames.filter(is_native) {
        assert!(map.at(frame.address).is_some(), "{frame:?}");
    }
}
