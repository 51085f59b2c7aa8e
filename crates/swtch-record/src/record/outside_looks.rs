//! Where the threads of a recording by perf events are blocked: `/proc` tells it to who may trace them.
//!
//! ```text
//! thread of looks: /proc ─▶ OutsideStacks ─PerfRecord─▶ recording ─▶ records.raw
//!                                 └──── at the end: stacks and frames ────▶ trace
//! ```
//!
//! A look finds blocked threads and not those in run queues, and each wait is met once. It counts if the thread has got
//! no CPU from the moment in which the kernel told where it is until its stack was read.

use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use nix::time::ClockId;
use rustc_hash::{FxHashMap, FxHashSet};
use swtch_capture::{RecordingScope, monotonic_ns, threads_in};
use swtch_core::{Frame, Nanos, Pid, Stack, Tid, Timestamp};
use swtch_host::thread::{Doing, has_stayed, read_doing, read_runs};
use swtch_output::text::counted;
use swtch_store::{Error, StreamKind, Writer};
use swtch_wire::PerfRecord;

use super::request::StackBudget;
use crate::stacks::budget::CpuBudget;
use crate::stacks::outside::OutsideStacks;

/// Number of the stream of looks, beside those of the rings of CPUs.
const STREAM: usize = u16::MAX as usize - 1;

/// How long a look that is under way is waited for at the end.
const LONGEST_LOOK: Duration = Duration::from_secs(5);

/// The looks of a recording, which a thread takes.
pub(super) struct OutsideLooks {
    /// Dropped to end them.
    go_on: Option<Sender<()>>,
    news: Receiver<LookNews>,
}

enum LookNews {
    /// Where threads are blocked, in the order of time.
    Looks(Vec<PerfRecord>),
    /// There are no more. So many processes were not read.
    Ended { refused: usize },
    /// The stacks that looks have named by number.
    Named(Vec<Stack>, Vec<Frame>),
}

impl OutsideLooks {
    /// Begins to look at all threads of a recording. Call it when all rights are given up: the thread has those of its
    /// caller.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn begin(scope: RecordingScope, budget: StackBudget) -> io::Result<Self> {
        let (go_on, ending) = mpsc::channel();
        let (tell, news) = mpsc::channel();
        let looking = move || look_until_end(&scope, budget, &ending, &tell);
        thread::Builder::new()
            .name("swtch-stacks".to_owned())
            .spawn(looking)?;
        Ok(Self {
            go_on: Some(go_on),
            news,
        })
    }

    /// Keeps what looks have found since the last call.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep(&self, writer: &mut Writer) -> Result<(), Error> {
        while let Ok(news) = self.news.try_recv() {
            if let LookNews::Looks(looks) = news {
                keep(writer, &looks)?;
            }
        }
        Ok(())
    }

    /// Ends the looks, and keeps what they have found and the stacks. Returns what there is to say of them.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn end(&mut self, writer: &mut Writer) -> Result<Option<String>> {
        self.go_on = None;
        loop {
            match self.news.recv_timeout(LONGEST_LOOK) {
                Ok(LookNews::Looks(looks)) => keep(writer, &looks)?,
                Ok(LookNews::Ended { refused }) => {
                    let named = self.news.recv();
                    if let Ok(LookNews::Named(stacks, frames)) = named {
                        stacks
                            .iter()
                            .try_for_each(|stack| writer.push_stack(stack))?;
                        frames
                            .iter()
                            .try_for_each(|frame| writer.push_frame(frame))?;
                    }
                    return Ok(refusal_in_words(refused));
                }
                _ => {
                    let words =
                        "the last look at stacks took too long, and all stacks are given up";
                    return Ok(Some(words.to_owned()));
                }
            }
        }
    }
}

fn refusal_in_words(refused: usize) -> Option<String> {
    let processes = counted(u64::try_from(refused).unwrap_or(u64::MAX), "process");
    (refused > 0).then(|| {
        format!(
            "stacks of {processes} were not read: the kernel does not let swtch trace them with the rights that it has \
             while it records (ptrace(2)); where kernel.yama.ptrace_scope is 1, only what it starts itself"
        )
    })
}

fn keep(writer: &mut Writer, looks: &[PerfRecord]) -> Result<(), Error> {
    let mut bytes = Vec::new();
    looks.iter().for_each(|look| look.encode(&mut bytes));
    let count = u64::try_from(looks.len()).unwrap_or(u64::MAX);
    writer.record(StreamKind::PerfOthers, STREAM, count, &bytes)
}

/// The work of the thread. It ends when the recording has ended, or does not listen any more.
fn look_until_end(
    scope: &RecordingScope,
    budget: StackBudget,
    ending: &Receiver<()>,
    tell: &Sender<LookNews>,
) {
    let mut budget = CpuBudget::new(budget.cpu_thousandths, monotonic_ns());
    let mut threads = LookedThreads::default();
    let mut looked = monotonic_ns();
    loop {
        let (before, now) = (cpu_time(), monotonic_ns());
        let between = Nanos::from_ns(now.saturating_sub(std::mem::replace(&mut looked, now)));
        let looks = threads.look(scope, between);
        if !looks.is_empty() && tell.send(LookNews::Looks(looks)).is_err() {
            return;
        }
        // What is read once, tables of files above all, is not part of what a look costs.
        let once = Duration::from_nanos(threads.stacks.take_reading_ns());
        let used = cpu_time().saturating_sub(before + once);
        let used = u64::try_from(used.as_nanos()).unwrap_or(u64::MAX);
        let pause = budget.pause_after(used, monotonic_ns());
        if ending.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    let refused = threads.not_read();
    let is_heard = tell.send(LookNews::Ended { refused }).is_ok();
    if is_heard {
        let (stacks, frames) = threads.stacks.named();
        // Who does not listen any more has no use for them.
        let _ = tell.send(LookNews::Named(stacks, frames));
    }
}

fn cpu_time() -> Duration {
    let used = ClockId::CLOCK_THREAD_CPUTIME_ID.now();
    used.map_or(Duration::ZERO, Duration::from)
}

/// The threads that were looked at.
#[derive(Default)]
struct LookedThreads {
    stacks: OutsideStacks,
    /// How often a thread had got a CPU when it was met in a wait.
    met: FxHashMap<Pid, u64>,
    /// How often a process was refused since it was read: any may be once, a moment before its end.
    refused: FxHashMap<Pid, u32>,
}

impl LookedThreads {
    /// How many processes were refused, and not read since.
    fn not_read(&self) -> usize {
        self.refused.values().filter(|times| **times > 1).count()
    }

    /// Where threads are blocked that were not met before in this wait.
    fn look(&mut self, scope: &RecordingScope, between: Nanos) -> Vec<PerfRecord> {
        let mut looks = Vec::new();
        let (mut processes, mut threads) = (FxHashSet::default(), FxHashSet::default());
        let mut refused = FxHashSet::default();
        for (pid, tid) in threads_in(scope) {
            processes.insert(pid);
            threads.insert(tid);
            match self.look_at(pid, tid) {
                Ok(None) => {}
                Ok(Some((ts, stack))) => {
                    self.refused.remove(&pid);
                    looks.push(PerfRecord::looked_at(ts, (pid, tid), stack, between));
                }
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    refused.insert(pid);
                }
                // It has ended.
                Err(_) => {}
            }
        }
        for pid in refused {
            *self.refused.entry(pid).or_default() += 1;
        }
        self.met.retain(|tid, _| threads.contains(tid));
        self.stacks.forget_others(&processes);
        looks
    }

    /// The stack in which a thread is blocked, and a moment at which it was, unless it was met in this wait before.
    fn look_at(&mut self, pid: Pid, tid: Pid) -> io::Result<Option<(Timestamp, u32)>> {
        let thread = Tid::new(tid.get());
        let runs = read_runs(pid, thread)?;
        if runs.is_some() && self.met.get(&tid).copied() == runs {
            return Ok(None);
        }
        let Some(Doing::Blocked(at)) = read_doing(pid, thread)? else {
            return Ok(None);
        };
        let ts = Timestamp::from_ns(monotonic_ns());
        let Some(stack) = self.stacks.number_of(pid, at) else {
            return Ok(None);
        };
        if !has_stayed(pid, thread, at, runs)? {
            return Ok(None);
        }
        self.met.extend(runs.map(|runs| (tid, runs)));
        Ok(Some((ts, stack)))
    }
}
