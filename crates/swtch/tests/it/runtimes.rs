//! Programs of languages with a runtime of their own: their functions stand in the place of the interpreter's.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::process::Command;

use swtch_core::{Frame, Reason, StackKind};
use swtch_store::Trace;

use crate::machine::beside_others;
use crate::recording::{Recording, TraceDir, stderr};

/// Three workers take jobs from a queue, and write one after the other; each reason to wait is in functions of its own.
const WORKERS: &str = "
import queue, threading, time
jobs, lock = queue.Queue(), threading.Lock()
class Worker(threading.Thread):
    def run(self):
        self.consume()
    def consume(self):
        while jobs.get() is not None:
            self.save()
    def save(self):
        with lock:
            time.sleep(0.004)
def pause():
    time.sleep(0.003)
def produce():
    for job in range(400):
        jobs.put(job)
        pause()
def end(workers):
    for worker in workers:
        jobs.put(None)
    for worker in workers:
        worker.join()
workers = [Worker() for _ in range(3)]
for worker in workers:
    worker.start()
produce()
end(workers)
";

/// Blocked time of the waits that were seen, by reason and by the innermost of the program's own functions; `None` where
/// none is on the stack.
fn time_by_function(recording: &Recording) -> BTreeMap<(Reason, Option<String>), u64> {
    let trace = Trace::open(&recording.place.trace()).unwrap();
    let frames = trace.frames().unwrap().into_iter();
    let frames: HashMap<u32, Frame> = frames.map(|frame| (frame.id, frame)).collect();
    let stacks = trace.stacks().unwrap().into_iter();
    let of_users = stacks.filter(|stack| stack.kind == StackKind::User);
    let own = of_users.map(|stack| {
        let mut own = stack.frames.iter().filter_map(|id| {
            let frame = frames.get(id)?;
            let is_own = frame.file.as_deref()?.ends_with("/workers.py");
            is_own.then(|| frame.symbol.clone().unwrap())
        });
        (stack.id, own.next())
    });
    let own: HashMap<u32, Option<String>> = own.collect();
    let mut times = BTreeMap::new();
    for row in recording.read().switches {
        let (Some(stack), Some(reason)) = (row.wait.stacks.user, row.wait.reason) else {
            continue;
        };
        if let (Some(time), Some(own)) = (row.wait.seen_for, own.get(&stack)) {
            *times.entry((reason, own.clone())).or_default() += time.as_ns();
        }
    }
    times
}

/// What the system calls `python3`, and those that pyenv has built, of the versions that are read.
fn pythons() -> Vec<String> {
    let built = Command::new("sh")
        .args([
            "-c",
            "ls -d \"$(pyenv root)\"/versions/3.1[123].*/bin/python3",
        ])
        .output()
        .unwrap();
    let built = String::from_utf8(built.stdout).unwrap();
    let all = built.lines().chain(["/usr/bin/python3"]);
    let is_read = |python: &&str| {
        let asked = Command::new(python)
            .args(["-c", "import sys; print(*sys.version_info[:2])"])
            .output();
        let version = asked.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
        version.is_ok_and(|version| ["3 11", "3 12", "3 13"].contains(&version.as_str()))
    };
    all.filter(is_read).map(str::to_owned).collect()
}

#[test]
#[ignore = "needs root"]
fn root_waits_of_python_are_in_the_functions_that_wait() {
    let _machine = beside_others();
    let pythons = pythons();
    if pythons.is_empty() {
        swtch_test::skip!("there is no python3 from 3.11 to 3.13");
    }
    for python in pythons {
        let place = TraceDir::new();
        let program = place.dir().join("workers.py");
        fs::write(&program, WORKERS).unwrap();
        let recording = Recording::that_succeeds(&["--", &python, program.to_str().unwrap()]);
        let times = time_by_function(&recording);
        let said = stderr(&recording.output);
        println!("{python}: {times:?}");
        let (mut all, mut named, mut right) = (0, 0, 0);
        for ((reason, function), time) in times {
            all += time;
            named += if function.is_some() { time } else { 0 };
            let places: &[&str] = match reason {
                Reason::Sleep => &["Worker.save", "pause"],
                Reason::Futex => &["Worker.save", "Worker.consume", "produce", "pause", "end"],
                _ => continue,
            };
            if function.is_some_and(|function| places.contains(&function.as_str())) {
                right += time;
            }
        }
        // Who has run on while the others were read has no function; how many these are depends on the machine.
        assert!(named * 2 > all, "{python}: {named} of {all} ns: {said}");
        assert!(named > 500_000_000, "{python}: {named} ns: {said}");
        assert!(
            right * 100 >= named * 95,
            "{python}: {right} of {named} ns: {said}"
        );
    }
}
