//! One suite: a program with tests, or a script that runs some. It is started, read through a
//! pipe, and ended if it takes too long.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use swtch_test::ProcessTime;

use super::outcome::without_colours;
use super::{Rights, TestProgram};

/// A suite that takes longer hangs: the longest takes some ten minutes.
const LONGEST: Duration = Duration::from_secs(40 * 60);

/// The time for which a suite's processes may still print after the suite itself has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// True if the run is to end: somebody has pressed Ctrl-C, or asked it to end.
///
/// The suites begin with the default action for these signals, because a signal that is caught here
/// is not ignored there. In the background of a script, or under `nohup`, it would be, and tests that
/// end programs by it would wait for ever.
static IS_TO_END: LazyLock<Arc<AtomicBool>> = LazyLock::new(|| {
    let is_to_end = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let caught = signal_hook::flag::register(signal, Arc::clone(&is_to_end));
        caught.expect("these signals can be caught");
    }
    // Who has gone away is noticed when nothing can be printed any more.
    let gone = signal_hook::flag::register(SIGHUP, Arc::default());
    gone.expect("this signal can be caught");
    is_to_end
});

/// Programs whose tests load the CPUs or time what happens there: no other suite runs beside them.
/// Which of their tests may run beside each other is said by each test (`swtch_test::alone`).
const NEEDS_MACHINE: [(&str, &str); 7] = [
    ("swtch", "it"),
    ("swtch-capture", "it"),
    ("swtch-bench", "counters"),
    ("swtch-bench", "loads"),
    ("swtch-bench", "rings"),
    ("swtch-bench", "tails"),
    ("swtch-bench", "works"),
];

/// A suite that has not run yet.
#[derive(Clone, Debug)]
pub struct Suite {
    pub name: String,
    pub needs_machine: bool,
    words: Vec<String>,
    folder: PathBuf,
    /// Exit code 3 says that it cannot run here, which it has told.
    may_be_passed_over: bool,
    /// It prints a line `test result:`; one that does not has no tests, and its exit code counts.
    has_result: bool,
    /// One that takes longer is ended.
    longest: Duration,
}

/// The result of a suite.
#[derive(Debug)]
pub struct SuiteRun {
    pub suite: Suite,
    pub lines: Vec<String>,
    pub took: Duration,
    pub cpu: Duration,
    /// `None` when all is well with it, whatever its tests say.
    pub trouble: Option<String>,
}

impl Suite {
    /// A script of the project.
    pub fn script(root: &Path, name: &str, words: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            needs_machine: false,
            words: words.iter().map(|&word| word.to_owned()).collect(),
            folder: root.to_owned(),
            may_be_passed_over: true,
            has_result: true,
            longest: LONGEST,
        }
    }

    /// The pages of the API of a workspace, with warnings denied.
    pub fn rustdoc(root: &Path, folder: &str) -> Self {
        // Lints are told by the compilation of the tests, and need not be told again.
        let words = "env -u RUSTC_WORKSPACE_WRAPPER RUSTDOCFLAGS=-Dwarnings \
                     cargo doc --workspace --no-deps --locked --quiet";
        let words: Vec<&str> = words.split_whitespace().collect();
        let mut suite = Self::script(&root.join(folder), &format!("rustdoc {folder}"), &words);
        suite.may_be_passed_over = false;
        suite.has_result = false;
        suite
    }

    /// The rooms that need no kernel, type-checked where there is none.
    pub fn reading_half(root: &Path) -> Self {
        let words = [
            "env",
            "-u",
            "RUSTC_WORKSPACE_WRAPPER",
            "scripts/check-reading.sh",
        ];
        let mut suite = Self::script(root, "the half that reads", &words);
        suite.has_result = false;
        suite
    }

    /// Programs of which it is known where they lose time. Each has the machine for itself.
    pub fn causes(root: &Path, rights: &Rights) -> Self {
        let words = ["sudo", "-n", "-E", "tests/causes/run.py", "--quick"];
        let words = match rights {
            Rights::Sudo => &words[..],
            Rights::Root | Rights::None(_) => &words[3..],
        };
        let mut suite = Self::script(root, "the corpus of causes", words);
        suite.needs_machine = true;
        suite
    }

    /// The examples in the docs of the API of a workspace, which was built into `target`.
    pub fn examples_in_docs(root: &Path, folder: &str, target: &Path) -> Self {
        let words = "cargo test --workspace --locked --doc --no-fail-fast --target-dir";
        let target = target.display().to_string();
        let words: Vec<&str> = words.split_whitespace().chain([target.as_str()]).collect();
        let name = format!("examples in docs {folder}");
        let mut suite = Self::script(&root.join(folder), &name, &words);
        suite.may_be_passed_over = false;
        suite
    }

    /// The tests of a program; those that need root are a suite of their own where sudo runs them.
    pub fn of_program(program: &TestProgram, rights: &Rights) -> Vec<Self> {
        let path = program.path.display().to_string();
        let with = |words: &[&str]| Self {
            name: format!("{} {}", program.package, program.target),
            needs_machine: NEEDS_MACHINE.contains(&(&program.package, &program.target)),
            words: words.iter().map(|&word| word.to_owned()).collect(),
            folder: program.folder.clone(),
            may_be_passed_over: false,
            has_result: true,
            longest: LONGEST,
        };
        match rights {
            Rights::Root => vec![with(&[&path, "--include-ignored"])],
            Rights::None(_) => vec![with(&[&path])],
            Rights::Sudo => vec![
                with(&[&path]),
                with(&["sudo", "-n", "-E", &path, "--ignored"]),
            ],
        }
    }

    #[cfg(test)]
    pub fn may_take(&mut self, longest: Duration) {
        self.longest = longest;
    }

    /// One test of this program, by its whole name.
    pub fn only(&self, test: &str) -> Self {
        let mut suite = self.clone();
        suite.name = format!("{} {test}", self.name);
        let more = ["--exact", "--test-threads=1", test];
        suite.words.extend(more.map(str::to_owned));
        suite
    }

    /// Runs it to its end. `live` prints each line when it comes, otherwise all of them at the end.
    pub fn run(self, live: bool) -> SuiteRun {
        let start = Instant::now();
        if live {
            println!("\n=== {}", self.name);
        }
        let mut run = SuiteRun {
            suite: self,
            lines: Vec::new(),
            took: Duration::ZERO,
            cpu: Duration::ZERO,
            trouble: None,
        };
        if let Err(why) = run.go(live) {
            run.trouble = Some(format!(
                "{} cannot be run: {why}",
                run.suite.words.join(" ")
            ));
        }
        run.took = start.elapsed();
        if !live {
            run.print();
        }
        run
    }
}

impl SuiteRun {
    fn go(&mut self, live: bool) -> std::io::Result<()> {
        if IS_TO_END.load(Ordering::Relaxed) {
            return Err(std::io::Error::other("the run was ended"));
        }
        let (read, write) = std::io::pipe()?;
        let mut child = Command::new(&self.suite.words[0])
            .args(&self.suite.words[1..])
            .current_dir(&self.suite.folder)
            .env("CARGO_MANIFEST_DIR", &self.suite.folder)
            .env("SWTCH_BUILT", "1")
            .stdin(Stdio::null())
            .stdout(write.try_clone()?)
            .stderr(write)
            .process_group(0)
            .spawn()?;
        let start = Instant::now();
        let pid = Pid::from_raw(child.id().cast_signed());
        let (sender, lines) = channel();
        // It ends when the last process has closed the pipe, or nobody takes the lines any more.
        std::thread::spawn(move || {
            let mut read = BufReader::new(read);
            let mut line = Vec::new();
            while read
                .read_until(b'\n', &mut line)
                .is_ok_and(|length| length > 0)
            {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                if sender.send(text).is_err() {
                    break;
                }
                line.clear();
            }
        });
        let is_over = self.read_until_end(&lines, pid, live);
        if !is_over {
            end_with_all_it_started(pid);
        }
        let _ = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
        self.cpu = ProcessTime::of(child.id()).map_or(Duration::ZERO, ProcessTime::cpu);
        let status = child.wait()?;
        self.trouble = match status.code() {
            _ if !is_over => Some(format!("it was ended after {:.0?}", start.elapsed())),
            Some(0) => None,
            Some(3) if self.suite.may_be_passed_over => None,
            _ => Some(format!("it ended with {status}")),
        };
        if self.suite.has_result && self.trouble.is_none() && !self.has_result_line() {
            self.trouble = Some("it ended without a result".to_owned());
        }
        Ok(())
    }

    /// False when the suite had to be given up.
    fn read_until_end(&mut self, lines: &Receiver<String>, pid: Pid, live: bool) -> bool {
        let deadline = Instant::now() + self.suite.longest;
        let mut ended: Option<Instant> = None;
        loop {
            match lines.recv_timeout(Duration::from_millis(200)) {
                Ok(line) => {
                    if live {
                        println!("{line}");
                    }
                    self.lines.push(line);
                }
                Err(RecvTimeoutError::Disconnected) => return true,
                Err(RecvTimeoutError::Timeout) => {
                    if ended.is_none() && has_ended(pid) {
                        ended = Some(Instant::now());
                    }
                }
            }
            if ended.is_some_and(|ended| ended.elapsed() > LAST_WORDS) {
                return true;
            }
            if Instant::now() > deadline || IS_TO_END.load(Ordering::Relaxed) {
                return false;
            }
        }
    }

    fn has_result_line(&self) -> bool {
        let mut lines = self.lines.iter().map(|line| without_colours(line));
        lines.any(|line| line.starts_with("test result: "))
    }

    /// One piece, so that suites side by side do not mix.
    fn print(&self) {
        let (took, cpu) = (self.took.as_secs_f64(), self.cpu.as_secs_f64());
        let mut text = format!(
            "\n=== {} ({took:.1} s, {cpu:.1} s of CPU)\n",
            self.suite.name
        );
        for line in &self.lines {
            text.push_str(line);
            text.push('\n');
        }
        print!("{text}");
    }
}

/// Ends a process group; one that sudo leads is root's, and only root may.
fn end_with_all_it_started(group: Pid) {
    if killpg(group, Signal::SIGKILL) == Err(Errno::EPERM) {
        let group = format!("-{group}");
        // What goes wrong here, sudo says itself.
        let _ = Command::new("sudo")
            .args(["-n", "kill", "-KILL", "--", &group])
            .status();
    }
}

fn has_ended(pid: Pid) -> bool {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
    !matches!(waitid(Id::Pid(pid), flags), Ok(WaitStatus::StillAlive))
}
