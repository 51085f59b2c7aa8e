//! The tree of a process, taken while it changes: between attaching the probes and walking the
//! tasks, the loader lets the tests change the tree.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use swtch_capture::{
    BeforeWalk, Capture, Children, Error, RecordingScope, Settings, TargetProcess,
};
use swtch_core::{Arch, Event, Pid};

use crate::alone;

/// A shell that is killed with everything it started, even if that has another parent by then.
struct ShellTree(Child);

impl ShellTree {
    fn start(script: &str) -> Self {
        use std::os::unix::process::CommandExt as _;
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).process_group(0);
        shell.stdin(Stdio::piped()).stdout(Stdio::piped());
        Self(shell.spawn().expect("there is a shell"))
    }

    fn pid(&self) -> Pid {
        Pid::new(self.0.id())
    }
}

impl Drop for ShellTree {
    fn drop(&mut self) {
        let group = libc::pid_t::try_from(self.0.id()).expect("ids are positive");
        // SAFETY: kill has no memory effects; the group is that of our child, which is not reaped
        // yet.
        unsafe { libc::kill(-group, libc::SIGKILL) };
        self.0.wait().expect("it is our child");
    }
}

fn settings(pid: Pid, children: Children, happens: impl Fn() + Send + Sync + 'static) -> Settings {
    let scope = RecordingScope::Processes {
        pids: vec![pid],
        children,
    };
    Settings {
        before_walk: Some(BeforeWalk::new(happens)),
        ..Settings::new(scope, 2)
    }
}

fn arch() -> Arch {
    Arch::from_machine(std::env::consts::ARCH).expect("a known architecture")
}

fn kill(pid: u32) {
    let pid = libc::pid_t::try_from(pid).expect("ids are positive");
    // SAFETY: kill has no memory effects.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// The number in the next line that a shell writes.
fn next_number(told: &mut impl BufRead) -> u32 {
    let mut line = String::new();
    told.read_line(&mut line).expect("the shell writes");
    line.trim().parse().expect("a number")
}

/// The parent of a process: field 4 of its `stat`.
fn parent(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it lives");
    let fields = stat.rsplit(')').next().expect("it has a name");
    let parent = fields.split_whitespace().nth(1).expect("field 4");
    parent.parse().expect("a number")
}

/// Processes in scope that switched in half a second.
fn processes_in_scope(capture: &mut Capture) -> BTreeSet<u32> {
    thread::sleep(Duration::from_millis(500));
    let mut pids = BTreeSet::new();
    capture.drain(|_, event| {
        if let Event::Task(task) = event
            && task.in_scope
        {
            pids.insert(task.pid.get());
        }
    });
    pids
}

/// ```text
/// master ─┬─ middle ── lives        middle is killed in the window: `lives` is init's child then
///         └─ later                  forked in the window, by master
/// ```
#[test]
#[ignore = "needs root"]
fn root_a_tree_that_changes_while_it_is_taken_is_whole() {
    let _turn = alone();
    let busy = "while :; do sleep 0.005; done";
    let middle = format!("sh -c '{busy}' & echo $!; wait");
    let script = format!(
        "sh -c \"{middle}\" & echo $!; read x; sh -c '{busy}' & echo $!; wait",
        middle = middle.replace('$', "\\$")
    );
    let mut family = ShellTree::start(&script);
    let mut told = BufReader::new(family.0.stdout.take().expect("it is piped"));
    let (one, other) = (next_number(&mut told), next_number(&mut told));
    // The two shells write in any order.
    let (middle, lives) = if parent(one) == other {
        (other, one)
    } else {
        (one, other)
    };
    assert_eq!(parent(lives), middle);
    let stdin = family.0.stdin.take().expect("it is piped");
    let (told, later) = (Mutex::new(told), Arc::new(AtomicU32::new(0)));
    let forked = Arc::clone(&later);
    let change = move || {
        kill(middle);
        while parent(lives) == middle {
            thread::sleep(Duration::from_millis(1));
        }
        (&stdin).write_all(b"\n").expect("the shell reads");
        let mut told = told.lock().expect("nobody panicked");
        forked.store(next_number(&mut *told), Ordering::Relaxed);
    };
    let settings = settings(family.pid(), Children::Recorded, change);
    let mut capture = Capture::start(&settings, arch()).expect("capturing needs root");
    let later = later.load(Ordering::Relaxed);
    let found = processes_in_scope(&mut capture);
    assert!(
        found.contains(&lives),
        "the orphan {lives} is missing: {found:?}"
    );
    assert!(
        found.contains(&later),
        "the child {later} is missing: {found:?}"
    );
    let count = capture
        .count_tree()
        .expect("the kernel answers")
        .expect("processes");
    assert!(
        count.processes >= 3,
        "master, the orphan and the later child: {count:?}"
    );
    assert_eq!(count.missed, 0);
    assert!(
        count.switches > 20,
        "two loops of 5 ms for half a second: {count:?}"
    );
}

#[test]
#[ignore = "needs root"]
fn root_without_children_nothing_below_is_recorded() {
    let _turn = alone();
    let script = "while :; do sleep 0.005; done & while :; do sleep 0.005; done";
    let family = ShellTree::start(script);
    thread::sleep(Duration::from_millis(50));
    let settings = settings(family.pid(), Children::LeftOut, || ());
    let mut capture = Capture::start(&settings, arch()).expect("capturing needs root");
    let found = processes_in_scope(&mut capture);
    assert_eq!(found, BTreeSet::from([family.pid().get()]));
    let count = capture
        .count_tree()
        .expect("the kernel answers")
        .expect("processes");
    assert_eq!(count.processes, 1);
}

#[test]
#[ignore = "needs root"]
fn root_a_process_that_ends_before_the_recording_begins_is_an_error() {
    let _turn = alone();
    let family = ShellTree::start("read x");
    let pid = family.pid();
    let end = move || {
        kill(pid.get());
        while TargetProcess::find(pid).is_ok_and(|target| !target.is_gone()) {
            thread::sleep(Duration::from_millis(1));
        }
    };
    let settings = settings(pid, Children::Recorded, end);
    let error = Capture::start(&settings, arch()).expect_err("its only process is gone");
    assert!(
        matches!(error, Error::EndedBefore { pid: gone } if gone == pid.get()),
        "{error:?}"
    );
}
