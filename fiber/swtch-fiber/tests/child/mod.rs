//! Programs that end badly, or that need a process of their own: a test starts itself again as a
//! child, which runs the case.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::Read;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Tells a test that it is the child.
const VARIABLE: &str = "SWTCH_FIBER_CHILD";

/// Tells the test `child` which of its cases to run.
const CASE: &str = "SWTCH_FIBER_CASE";

/// Time limit for anything on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(240);

/// Returns true if this process is the child that was started for `name`.
pub fn is_child(name: &str) -> bool {
    std::env::var(VARIABLE).is_ok_and(|child| child == name)
}

/// The case that the test `child` is to run; `None` in the program that starts the children.
pub fn case() -> Option<String> {
    std::env::var(CASE).ok()
}

/// The variable with which the test `child` runs the case `name`.
pub fn with_case(name: &str) -> (&'static str, &str) {
    (CASE, name)
}

/// Runs the case `name` in a process whose only test is `child`; returns how it ended, and its
/// standard error.
pub fn run_case(name: &str) -> (Output, String) {
    let variables = [with_case(name), ("RUST_BACKTRACE", "1")];
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
    let mut child = start(name, options, variables);
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

fn start(name: &str, options: &[&str], variables: &[(&str, &str)]) -> Child {
    let this = std::env::current_exe().expect("a test has a file");
    Command::new(this)
        .args(["--exact", name, "--nocapture", "--include-ignored"])
        .args(options)
        .env(VARIABLE, name)
        .env("RUST_BACKTRACE", "0")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts")
}

/// Runs the test `name` of this file in a process of its own, on the harness's main thread, and ends
/// it this long `after` its standard error contains all of these `words`; returns what it said.
///
/// # Panics
/// When they have not come after [`PATIENCE`], or the process ends by itself.
pub fn said_until(
    name: &str,
    variables: &[(&str, &str)],
    words: &[&str],
    after: Duration,
) -> String {
    let mut child = EndedChild(start(name, &["--test-threads=1"], variables));
    let mut from = child.0.stderr.take().expect("piped");
    let said = Arc::new(Mutex::new(Vec::new()));
    let all = said.clone();
    let reader = thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            all.lock().expect("not poisoned").extend(&bytes[..count]);
        }
    });
    let text = || String::from_utf8_lossy(&said.lock().expect("not poisoned")).into_owned();
    let end = Instant::now() + PATIENCE;
    while !words.iter().all(|word| text().contains(word)) {
        assert!(Instant::now() < end, "{name} says only:\n{}", text());
        let ended = child.0.try_wait().expect("it is our child");
        assert!(
            ended.is_none(),
            "{name} has ended and says only:\n{}",
            text()
        );
        thread::sleep(Duration::from_millis(10));
    }
    thread::sleep(after);
    drop(child);
    reader.join().expect("it reads");
    text()
}

/// A child that is killed at the end, however the test ends.
struct EndedChild(Child);

impl Drop for EndedChild {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Has the calling process, which waits for ever, end with the thread that started it.
pub fn end_with_parent() {
    // SAFETY: a setting of this process.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Reads the output meanwhile, since a full pipe would keep the child from ending.
fn collect(mut from: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut all = Vec::new();
        from.read_to_end(&mut all).expect("a pipe");
        all
    })
}
