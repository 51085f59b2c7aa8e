//! Programs that end badly, or that need a process of their own: a test starts itself again as a
//! child, which runs the case.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::Read;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Tells a test that it is the child.
const VARIABLE: &str = "SWTCH_FIBER_CHILD";

/// Tells the test `child` which of its cases to run.
const CASE: &str = "SWTCH_FIBER_CASE";

/// Time limit for anything on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// Whether this process is the child that was started for `name`.
pub fn is_child(name: &str) -> bool {
    std::env::var(VARIABLE).is_ok_and(|child| child == name)
}

/// The case that the test `child` is to run; `None` in the program that starts the children.
pub fn case() -> Option<String> {
    std::env::var(CASE).ok()
}

/// Runs the case `name` in a process whose only test is `child`; returns how it ended, and its
/// standard error.
pub fn run_case(name: &str) -> (Output, String) {
    let variables = [(CASE, name), ("RUST_BACKTRACE", "1")];
    let output = in_a_child_with("child", &["--test-threads=1"], &variables, PATIENCE);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said)
}

/// Runs the test `name` of this file in a process of its own, with further options for the harness.
///
/// # Panics
/// When it has not ended after `patience`; then it is killed.
pub fn in_a_child(name: &str, options: &[&str], patience: Duration) -> Output {
    in_a_child_with(name, options, &[], patience)
}

/// As [`in_a_child`], with further environment variables.
pub fn in_a_child_with(
    name: &str,
    options: &[&str],
    variables: &[(&str, &str)],
    patience: Duration,
) -> Output {
    let this = std::env::current_exe().expect("a test has a file");
    let mut child = Command::new(this)
        .args(["--exact", name, "--nocapture", "--include-ignored"])
        .args(options)
        .env(VARIABLE, name)
        .env("RUST_BACKTRACE", "0")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let stdout = collect(child.stdout.take().expect("piped"));
    let stderr = collect(child.stderr.take().expect("piped"));
    let end = Instant::now() + patience;
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            break status;
        }
        if Instant::now() > end {
            child.kill().expect("it is our child");
            child.wait().expect("it is our child");
            let said = String::from_utf8_lossy(&stderr.join().expect("it reads")).into_owned();
            panic!("{name} had not ended after {patience:?}:\n{said}");
        }
        thread::sleep(Duration::from_millis(10));
    };
    Output {
        status,
        stdout: stdout.join().expect("it reads"),
        stderr: stderr.join().expect("it reads"),
    }
}

/// Reads the output meanwhile, since a full pipe would keep the child from ending.
fn collect(mut from: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        from.read_to_end(&mut all).expect("a pipe");
        all
    })
}
