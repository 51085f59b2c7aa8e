//! Names of functions in stacks: of the file that the process runs, or none.

use std::fs;
use std::path::Path;
use std::process::Command;

use swtch_capture::CodeMap;
use swtch_core::{Pid, StackKind};
use swtch_store::Trace;

use crate::machine::{TestProcess, beside_others, copy_program, wait_until};
use crate::recording::{Recording, SWTCH, TraceDir, stderr, stdout};

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

#[test]
#[ignore = "needs root"]
fn root_a_function_that_ends_with_a_call_is_named() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let program = place.dir().join("prog");
    let source = place.dir().join("prog.c");
    fs::write(&source, CALLS_AT_THE_END).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(["-O1", "-fno-omit-frame-pointer", "-o"]);
    let compiled = compiler.args([&program, &source]).output().unwrap();
    assert!(compiled.status.success(), "{}", stderr(&compiled));
    let running = start_program(&mut Command::new(&program), &program);
    let stacks = stacks_of(&running);
    assert!(stacks.contains(" main+"), "{stacks}");
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
    for frame in frames.iter().filter(|frame| numbers.contains(&frame.id)) {
        assert!(map.at(frame.address).is_some(), "{frame:?}");
    }
}
