//! One arm as a process: started, asked for blocks, ended.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child as Process, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use crate::arms::{Arm, Program};

/// An arm that says nothing for so long hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a block of operations came to.
#[derive(Clone, Copy, Debug)]
pub struct Block {
    /// Operations asked for.
    pub operations: u64,
    /// By the wall clock, ns.
    pub wall_ns: f64,
    /// CPU time of all threads of the arm, ns.
    pub cpu_ns: f64,
    /// What its tasks counted.
    pub user: f64,
    /// The kernel's switches of the arm.
    pub voluntary: f64,
    /// The same, involuntary ones.
    pub involuntary: f64,
}

/// A running arm. It ends when this is dropped.
#[derive(Debug)]
pub struct Child {
    process: Process,
    requests: Option<ChildStdin>,
    answers: Receiver<String>,
    /// What it calls itself, with version.
    pub about: String,
}

impl Child {
    /// Starts `arm` of `program` and waits until it is ready.
    ///
    /// # Errors
    /// When it does not start, or ends or hangs before it is ready.
    pub fn start(arm: &Arm, program: &Path) -> io::Result<Self> {
        let mut command = Command::new(program);
        if arm.program == Program::Ours {
            command.arg("--arm");
        }
        let mut process = command
            .arg(arm.name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (sender, answers) = mpsc::channel();
        let output = process.stdout.take();
        // A pipe has no deadline for reading, a channel has.
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

    /// Has a block of `operations` run.
    ///
    /// # Errors
    /// When the arm ends, hangs or answers something else.
    pub fn run(&mut self, operations: u64) -> io::Result<Block> {
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

impl Drop for Child {
    fn drop(&mut self) {
        // Its turn to end is the end of its input; one that hangs would never see it.
        self.requests = None;
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// Reads `N ns user voluntary involuntary cpu_ns`.
fn parse(line: &str) -> Option<Block> {
    let mut words = line.split(' ');
    let operations = words.next()?.parse().ok()?;
    let mut number = || words.next()?.parse().ok();
    Some(Block {
        operations,
        wall_ns: number()?,
        user: number()?,
        voluntary: number()?,
        involuntary: number()?,
        cpu_ns: number()?,
    })
}
