//! `swtch fiber`: what it shows of the schedulers of another process, and what it refuses.
//!
//! The target is the load of `swtch lab two-levels`: three workers that scan memory on one
//! scheduler.

use std::fs;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::recording::{SWTCH, stderr, stdout, swtch};

/// The time that a target may take to make its scheduler, on a machine with much other work.
const PATIENCE: Duration = Duration::from_secs(30);

/// A process with a scheduler, for a minute at most. Dropping it ends it.
struct FiberProcess {
    child: Child,
    _dir: tempfile::TempDir,
}

impl FiberProcess {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script.json");
        let text = r#"{"Scan":{"who":"Workers","scanners":3,"megabytes":1,
            "quantum":{"secs":0,"nanos":4000000},"phase":{"secs":20,"nanos":0}}}"#;
        fs::write(&script, text).unwrap();
        let mut command = Command::new(SWTCH);
        command.arg("lab-levels").arg(&script);
        command.arg(dir.path().join("result.json"));
        let child = command.stdout(Stdio::null()).spawn().unwrap();
        let target = Self { child, _dir: dir };
        let began = Instant::now();
        while !stdout(&target.fiber(&["tasks"])).contains("scan 2") {
            assert!(began.elapsed() < PATIENCE, "the target has no tasks");
            thread::sleep(Duration::from_millis(50));
        }
        target
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// Runs `swtch fiber` on the target, with further arguments.
    fn fiber(&self, words: &[&str]) -> Output {
        let pid = self.pid();
        let words = ["fiber", &pid].into_iter().chain(words.iter().copied());
        swtch(words).output().unwrap()
    }

    fn json(&self, words: &[&str]) -> Value {
        let words: Vec<&str> = words.iter().copied().chain(["--format", "json"]).collect();
        let output = self.fiber(&words);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for FiberProcess {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

const VIEWS: [&str; 7] = [
    "schedulers",
    "workers",
    "tasks",
    "threads",
    "wait_stats",
    "waiting_tasks",
    "os_switches",
];

/// Each answer is one object, named after its rows, with the identity of the target.
#[test]
fn every_view_has_all_formats() {
    let target = FiberProcess::start();
    for view in VIEWS {
        let json = target.json(&[view]);
        assert_eq!(json["schema"], format!("swtch.fiber.{view}/1"));
        assert_eq!(json["target"]["pid"], target.child.id());
        assert!(json["host"]["kernel_release"].is_string());
        let csv = stdout(&target.fiber(&[view, "--format", "csv"]));
        let head: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
        for row in json["rows"].as_array().unwrap() {
            let keys: Vec<&String> = row.as_object().unwrap().keys().collect();
            assert_eq!(keys, head, "{view}");
        }
        let table = stdout(&target.fiber(&[view]));
        assert!(table.contains("counted since they started"), "{table}");
    }
}

/// The counters of the scheduler agree with those of its workers: three scans, one at a time.
#[test]
fn workers_add_up_to_their_scheduler() {
    let target = FiberProcess::start();
    let workers = target.json(&["workers"]);
    let workers = workers["rows"].as_array().unwrap();
    assert_eq!(workers.len(), 3);
    let running = workers.iter().filter(|row| row["state"] == "running");
    assert!(running.count() <= 1, "{workers:?}");
    let threads = target.json(&["threads"]);
    let threads = threads["rows"].as_array().unwrap().iter();
    let schedulers = threads.filter(|row| row["kind"] == "scheduler");
    for thread in schedulers {
        let tid = thread["os_thread_id"].as_u64().unwrap();
        let task = format!("/proc/{}/task/{tid}", target.pid());
        assert!(fs::exists(&task).unwrap(), "the kernel knows it by {tid}");
    }
}

#[test]
fn rates_come_once_an_interval_and_the_target_goes_on() {
    let target = FiberProcess::start();
    let words = ["--interval", "0.1", "--count", "3", "--format", "csv"];
    let output = target.fiber(&words);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert!(lines[0].starts_with("at_ns,scheduler,mode,user_switches_per_s"));
    let json = target.json(&["--interval", "0.1"]);
    assert_eq!(json["rows"].as_array().unwrap().len(), 1);
    let before = target.json(&["schedulers"])["rows"][0]["total_running_ns"].clone();
    let began = Instant::now();
    while target.json(&["schedulers"])["rows"][0]["total_running_ns"] == before {
        assert!(began.elapsed() < PATIENCE, "it has stopped");
    }
}

/// The death of a target is not an error of the process that inspects it.
#[test]
fn a_target_that_ends_leaves_its_last_state() {
    let mut target = FiberProcess::start();
    let pid = target.pid();
    let words = ["fiber", &pid, "--interval", "0.05"];
    let looking = swtch(words)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    thread::sleep(Duration::from_millis(500));
    target.child.kill().unwrap();
    let output = looking.wait_with_output().unwrap();
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(text.contains("these counters are final"), "{text}");
    assert!(text.contains("context switches count"), "{text}");
}

#[test]
fn a_process_with_a_scheduler_is_in_the_list() {
    let target = FiberProcess::start();
    let output = swtch(["fiber", "--format", "json"]).output().unwrap();
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = json["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["pid"] == target.child.id());
    assert_eq!(row.unwrap()["mode"][0], "fiber");
}

/// Each refusal says what is wrong and what to do.
#[test]
fn what_cannot_be_looked_at_is_refused_with_the_remedy() {
    let refusal = |words: &[&str]| {
        let words = ["fiber"].into_iter().chain(words.iter().copied());
        let output = swtch(words).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert_eq!(stdout(&output), "");
        stderr(&output)
    };
    let said = refusal(&["4194305"]);
    assert!(said.contains("there is no process 4194305"), "{said}");
    let own = std::process::id().to_string();
    let said = refusal(&[&own]);
    assert!(said.contains("no user-mode scheduler"), "{said}");
    assert!(said.contains("has one once it has started"), "{said}");
    let said = refusal(&[&own, "moon"]);
    assert!(said.contains("wait_stats"), "{said}");
    refusal(&["schedulers"]);
    refusal(&[&own, "tasks", "--count", "3"]);
    for interval in ["0", "0.001", "-1", "soon"] {
        let said = refusal(&[&own, &format!("--interval={interval}")]);
        assert!(said.contains("0.01 seconds or more"), "{said}");
    }
}

#[test]
fn a_thread_is_told_from_its_process() {
    let target = FiberProcess::start();
    let threads = target.json(&["threads"]);
    let rows = threads["rows"].as_array().unwrap();
    let tid = rows[0]["os_thread_id"].to_string();
    let output = swtch(["fiber", &tid]).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2));
    assert!(said.contains(&format!("give {}", target.pid())), "{said}");
}
