//! The stacks of a recording, and the process that reads them. Their frames get names after the end.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use swtch_capture::{LookSources, Stacks};
use swtch_core::{
    Frame, LookEvent, LookedTask, Nanos, Pid, Stack, StackEnd, StackNumbers, TaskKey, Timestamp,
};
use swtch_output::text::counted;
use swtch_store::WaitingWorkersRow;

use super::request::StackBudget;
use crate::helper::HelperProcess;
use crate::stacks::{FoundLook, FoundWorkers, NotRead, StackNews, StackReader};

/// The stacks that were read so far.
#[derive(Debug)]
pub struct StacksToName {
    stacks: Stacks,
    budget: StackBudget,
    /// `None` once the reader has ended.
    reader: Option<StackReader>,
    /// Number of processes of which stacks were not read, by the reason.
    not_read: BTreeMap<NotRead, u64>,
    /// True if there were more stacks than are kept.
    is_full: bool,
    /// Runtimes that are not read, in words.
    unknown: Vec<String>,
    /// Workers that were told and not asked for yet.
    workers: Vec<WaitingWorkersRow>,
    /// Number of files that were handed over and did not arrive.
    without_room: u64,
    /// True if the last look was not waited for to its end.
    gave_up: bool,
}

/// How long a look that is under way is waited for at the end of a recording: the first one reads the tables of all
/// files.
const LONGEST_LOOK: Duration = Duration::from_millis(500);

/// Whether looks go on after what they have found is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LooksGo {
    On,
    /// This is all that is taken. What the process has cost can still be asked for.
    ToTheirEnd,
}

impl StacksToName {
    /// Starts the process that reads them. Call it while privileged: the kernel shows its symbols to nobody else.
    ///
    /// # Errors
    /// When no process can be started.
    pub fn start(budget: StackBudget) -> io::Result<Self> {
        let reader = StackReader::start()?;
        let stacks = Stacks::new();
        stacks.read_kernel_symbols();
        Ok(Self {
            stacks,
            budget,
            reader: Some(reader),
            not_read: BTreeMap::new(),
            is_full: false,
            unknown: Vec::new(),
            workers: Vec::new(),
            without_room: 0,
            gave_up: false,
        })
    }

    /// Lets the process look.
    ///
    /// # Errors
    /// When it has ended.
    pub fn begin(&self, sources: &LookSources) -> io::Result<()> {
        let reader = self.reader.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        reader.begin(sources, self.budget.cpu_thousandths)
    }

    /// Passes on where threads were seen to wait since the last call, and where their wakers were. Returns why there are
    /// no more looks, if the reader has ended.
    pub fn take_looks(&mut self, when: LooksGo, mut sink: impl FnMut(LookEvent)) -> io::Result<()> {
        let Some(reader) = &mut self.reader else {
            return Ok(());
        };
        let (stacks, not_read) = (&mut self.stacks, &mut self.not_read);
        let (is_full, without_room) = (&mut self.is_full, &mut self.without_room);
        let (unknown, workers) = (&mut self.unknown, &mut self.workers);
        let take = |news, beside: Vec<OwnedFd>| match news {
            StackNews::File(file) => {
                let open = beside.into_iter().next().map(File::from);
                *without_room += u64::from(file.is_beside && open.is_none());
                stacks.add_file(file.number, file.path, open);
            }
            StackNews::Stack(found) => {
                let end = StackEnd::ALL.get(found.end).copied();
                stacks.add_user(found.number, Pid::new(found.pid), &found.frames, end);
            }
            StackNews::Compiled(pid) => {
                if let Some(list) = beside.into_iter().next() {
                    stacks.add_compiled(Pid::new(pid), File::from(list));
                }
            }
            StackNews::Script(place) => stacks.add_script(place),
            StackNews::KernelStack(found) => stacks.add_kernel(found.number, &found.addresses),
            StackNews::Refused(why) => *not_read.entry(why).or_default() += 1,
            StackNews::Looks(looks) => looks.iter().map(event_of).for_each(&mut sink),
            StackNews::UnknownRuntime(words) => unknown.push(words),
            StackNews::Workers(some) => workers.extend(some.into_iter().map(row_of)),
            StackNews::Full => *is_full = true,
            StackNews::Done => {}
        };
        let ended = match when {
            LooksGo::On => reader.news(take),
            LooksGo::ToTheirEnd => reader.last_news(LONGEST_LOOK, take).map(|is_done| {
                self.gave_up = !is_done;
            }),
        };
        if ended.is_err() {
            self.reader = None;
        }
        ended
    }

    /// The workers of runtimes' schedulers that were met since the last call.
    pub fn take_workers(&mut self) -> Vec<WaitingWorkersRow> {
        std::mem::take(&mut self.workers)
    }

    /// Of which processes stacks were not read, and why, in words.
    pub fn not_read(&self) -> impl Iterator<Item = String> {
        let refused = self.not_read.iter().map(|(why, processes)| {
            let processes = counted(*processes, "process");
            format!("stacks of {processes} were not read: {}", why.in_words())
        });
        let full = "there were more distinct stacks than are kept: waits in those that came later have no place";
        let late =
            "the last look at stacks took too long and was given up: what it met has no place";
        let others = [(self.is_full, full), (self.gave_up, late)];
        let others = others.into_iter().filter(|(is_so, _)| *is_so);
        let unnamed = (self.without_room > 0).then(|| {
            let files = counted(self.without_room, "file");
            format!(
                "functions of {files} have no names: the limit of open files is too low (ulimit -n)"
            )
        });
        let others = others.map(|(_, words)| words.to_owned());
        let unknown = self.unknown.iter().cloned();
        refused.chain(others).chain(unnamed).chain(unknown)
    }

    /// The process that reads stacks, if there is one.
    pub fn reader(&self) -> Option<&HelperProcess> {
        self.reader.as_ref().map(StackReader::process)
    }

    /// All stacks, and their frames with names, after the end.
    pub fn named(&mut self) -> (Vec<Stack>, Vec<Frame>) {
        std::mem::take(&mut self.stacks).named()
    }
}

fn row_of(workers: FoundWorkers) -> WaitingWorkersRow {
    WaitingWorkersRow {
        ts: Timestamp::from_ns(workers.ts),
        pid: Pid::new(workers.pid),
        reason: workers.reason,
        stack: workers.stack,
        thousandths: workers.thousandths,
        between: Nanos::from_ns(workers.between),
    }
}

const fn event_of(look: &FoundLook) -> LookEvent {
    let whose = match look.between {
        Some(between) => LookedTask::Waiter {
            between: Nanos::from_ns(between),
            holder: look.holder,
        },
        None => LookedTask::Waker,
    };
    LookEvent {
        ts: Timestamp::from_ns(look.ts),
        task: TaskKey::new(look.task),
        out: Timestamp::from_ns(look.out),
        whose,
        stacks: StackNumbers {
            kernel: look.kernel,
            user: look.user,
        },
    }
}
