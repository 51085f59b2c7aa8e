//! Resources that the tests share: turns on the machine, processes, cgroups and CPUs, and their
//! cleanup.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

pub use swtch_test::{alone, beside_others};

/// Runs before the first test. A background job of a script ignores SIGINT, and so do the programs
/// that it starts: tests of Ctrl-C would wait forever for programs that behave correctly.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = end_on_signals;

extern "C" fn end_on_signals() {
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the default action runs no code of ours.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
}

/// The time within which all that is asked to end must be gone, on a loaded machine too.
pub const SOON: Duration = Duration::from_secs(60);

/// Copies a program that is to be started. Another process writes it: a descriptor of ours would be handed to whatever
/// another test starts at that moment, and a program that is open for writing cannot be executed.
pub fn copy_program(from: impl AsRef<Path>, to: &Path) {
    let copied = Command::new("cp").arg(from.as_ref()).arg(to).status();
    assert!(copied.unwrap().success(), "{}", to.display());
}

/// A process that is killed when the test ends, however the test ends.
#[derive(Debug)]
pub struct TestProcess(Child);

impl TestProcess {
    /// Starts the command without any output.
    pub fn start(command: &mut Command) -> Self {
        Self::start_into(command, Stdio::null())
    }

    /// Starts the command with this as its stdout, and without any other output.
    pub fn start_into(command: &mut Command, out: impl Into<Stdio>) -> Self {
        let quiet = command.stdin(Stdio::null()).stderr(Stdio::null());
        Self(quiet.stdout(out).spawn().unwrap())
    }

    /// Starts the command at this terminal.
    pub fn start_at(command: &mut Command, terminal: &fs::File) -> Self {
        let end = || terminal.try_clone().unwrap();
        command.stdin(end()).stdout(end()).stderr(end());
        Self(command.spawn().unwrap())
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn signal(&self, signal: i32) {
        send(self.pid(), signal);
    }

    /// Waits for the process to end; panics if it still runs after `limit`.
    pub fn ends_within(&mut self, limit: Duration) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < limit, "it still runs after {limit:?}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for TestProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A process that is not our child and must not outlive the test: a command whose recorder is gone.
#[derive(Debug)]
pub struct Orphan(pub u32);

impl Drop for Orphan {
    fn drop(&mut self) {
        if is_alive(self.0) {
            send(self.0, libc::SIGKILL);
        }
    }
}

pub fn send(pid: u32, signal: i32) {
    let pid = nix::unistd::Pid::from_raw(pid.cast_signed());
    let signal = nix::sys::signal::Signal::try_from(signal).unwrap();
    // A process that has just ended cannot be signalled, and need not be.
    let _ = nix::sys::signal::kill(pid, signal);
}

/// True if the process exists and is not a zombie.
pub fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap().split_whitespace().next();
    state.is_some_and(|state| state != "Z" && state != "X")
}

/// Waits until `is_so`; panics with `what` when that takes longer than a minute.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "not so: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// The children of a process, started by any of its threads.
pub fn children_of(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else {
        return Vec::new();
    };
    let lists = threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .map(|pid| pid.parse().unwrap())
                .collect::<Vec<u32>>()
        })
        .collect()
}

/// Waits until the process has had so many children.
pub fn await_children(pid: u32, count: usize) {
    let mut seen = BTreeSet::new();
    wait_until("it has had its children", || {
        seen.extend(children_of(pid));
        seen.len() >= count
    });
}

/// The command that a recorder has started; its other children help it.
pub fn command_of(recorder: u32) -> u32 {
    let helpers = [FINDER, READER].map(|words| helper_of(recorder, words));
    let children = children_of(recorder).into_iter();
    let mut others = children.filter(|child| !helpers.contains(&Some(*child)));
    others.next().expect("a recorder has started its command")
}

const FINDER: &[u8] = b"swtch\0find-schedulers\0";
const READER: &[u8] = b"swtch\0read-stacks\0";

/// The process in which a recorder searches for user-mode schedulers.
pub fn finder_of(recorder: u32) -> Option<u32> {
    helper_of(recorder, FINDER)
}

/// The process in which a recorder reads stacks.
pub fn reader_of(recorder: u32) -> Option<u32> {
    helper_of(recorder, READER)
}

fn helper_of(recorder: u32, command_line: &[u8]) -> Option<u32> {
    children_of(recorder).into_iter().find(|child| {
        let words = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        words == command_line
    })
}

/// A cgroup in the hierarchy with the cpu controller. Dropping it kills its processes.
#[derive(Debug)]
pub struct TestCgroup(PathBuf);

impl TestCgroup {
    /// `None` if neither version of cgroups has the controller.
    pub fn new() -> Option<Self> {
        let roots = ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup"].map(Path::new);
        let root = roots
            .into_iter()
            .find(|root| root.join("cgroup.procs").exists())?;
        // Tests run beside each other.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = root.join(format!("swtch-test-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Some(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TestCgroup {
    fn drop(&mut self) {
        let processes = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        for pid in processes.lines().filter_map(|pid| pid.parse().ok()) {
            send(pid, libc::SIGKILL);
        }
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        eprintln!("warning: {} is left behind", self.0.display());
    }
}

/// The last CPU, taken offline until this is dropped.
#[derive(Debug)]
pub struct OfflineCpu(PathBuf);

impl OfflineCpu {
    /// Takes the CPU offline; `None` if that is not possible.
    pub fn take() -> Option<Self> {
        let last = std::thread::available_parallelism().ok()?.get() - 1;
        let path = PathBuf::from(format!("/sys/devices/system/cpu/cpu{last}/online"));
        fs::write(&path, "0").ok()?;
        Some(Self(path))
    }
}

impl Drop for OfflineCpu {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.0, "1") {
            eprintln!("warning: {} stays offline: {error}", self.0.display());
        }
    }
}
