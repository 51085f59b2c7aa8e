//! One arm as a process: it is started, asked for blocks, and ended.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child as Process, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::arms::{ArmProgram, BenchArm};

/// An arm that does not answer for this long has hung.
const PATIENCE: Duration = Duration::from_secs(20);

/// The results of one block of operations.
#[derive(Clone, Copy, Debug)]
pub struct BlockResult {
    /// The number of operations that was asked for.
    pub operations: u64,
    /// Wall-clock time of the block, ns.
    pub wall_ns: f64,
    /// CPU time of all threads of the arm, ns.
    pub cpu_ns: f64,
    /// Operations that the arm's tasks counted.
    pub user: f64,
    /// Voluntary switches of the arm, counted by the kernel.
    pub voluntary: f64,
    /// Involuntary switches of the arm, counted by the kernel.
    pub involuntary: f64,
}

/// A running arm. It ends when this is dropped.
#[derive(Debug)]
pub struct ArmProcess {
    process: Process,
    requests: Option<ChildStdin>,
    answers: Receiver<String>,
    /// The name by which it announces itself, with its version.
    pub about: String,
}

impl ArmProcess {
    /// Starts `arm` of `program` and waits until it is ready.
    ///
    /// # Errors
    /// When it does not start, or ends or hangs before it is ready.
    pub fn start(arm: &BenchArm, program: &Path) -> io::Result<Self> {
        let mut command = Command::new(program);
        if arm.program == ArmProgram::Ours {
            command.arg("--arm");
        }
        let mut process = command
            .arg(arm.name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (sender, answers) = mpsc::channel();
        let output = process.stdout.take();
        // A pipe has no deadline for reading, but a channel has.
        thread::spawn(move || {
            let lines = output
                .into_iter()
                .flat_map(|out| BufReader::new(out).lines());
            for line in lines.map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        let mut child = Self {
            requests: process.stdin.take(),
            process,
            answers,
            about: String::new(),
        };
        let line = child.answer()?;
        child.about = match line.split_once(' ') {
            Some(("ready", about)) => about.to_owned(),
            Some(("no", reason)) => return Err(io::Error::other(reason)),
            _ => return Err(io::Error::other(format!("it said {line:?}"))),
        };
        Ok(child)
    }

    /// Runs a block of `operations`.
    ///
    /// # Errors
    /// When the arm ends, hangs or gives another answer.
    pub fn run(&mut self, operations: u64) -> io::Result<BlockResult> {
        let gone = || io::Error::other("it has no input");
        writeln!(self.requests.as_mut().ok_or_else(gone)?, "run {operations}")?;
        let line = self.answer()?;
        parse(&line)
            .filter(|block| block.operations == operations)
            .ok_or_else(|| io::Error::other(format!("it answered {line:?}")))
    }

    fn answer(&mut self) -> io::Result<String> {
        match self.answers.recv_timeout(PATIENCE) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => Err(io::Error::other(format!(
                "it hangs: no answer in {} s",
                PATIENCE.as_secs()
            ))),
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.process.wait()?;
                Err(io::Error::other(format!("it ended: {status}")))
            }
        }
    }
}

impl Drop for ArmProcess {
    fn drop(&mut self) {
        // Normally it ends when its input ends; a hung arm would never notice that, so kill it.
        self.requests = None;
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Reads `N ns user voluntary involuntary cpu_ns`.
fn parse(line: &str) -> Option<BlockResult> {
    let mut words = line.split(' ');
    let operations = words.next()?.parse().ok()?;
    let mut number = || words.next()?.parse().ok();
    Some(BlockResult {
        operations,
        wall_ns: number()?,
        user: number()?,
        voluntary: number()?,
        involuntary: number()?,
        cpu_ns: number()?,
    })
}
