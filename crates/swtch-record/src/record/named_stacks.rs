//! The stacks that a recording names, and whose frames get names after its end.

use std::collections::BTreeMap;
use std::io;

use rustc_hash::FxHashSet;
use swtch_capture::{Capture, Stacks};
use swtch_core::{
    Frame, LookEvent, Nanos, Pid, Stack, StackKind, TaskEvent, TaskEventKind, TaskKey, Timestamp,
};
use swtch_output::text::counted;

use crate::helper::HelperProcess;
use crate::stacks::{NotRead, StackNews, StackReader};

/// The stacks that records name. They are looked up while their process lives.
#[derive(Debug)]
pub struct StacksToName {
    stacks: Stacks,
    /// The process of each task, by the task's key; `None` until a record names it.
    pids: Vec<Option<Pid>>,
    /// Stacks that are not looked up yet. A task may be named a little later than its switch, so
    /// the look-up is put off once.
    waiting: Vec<(StackKind, u32, Option<TaskKey>)>,
    put_off: Vec<(StackKind, u32, Option<TaskKey>)>,
    met: FxHashSet<(bool, u32)>,
    /// Reads stacks while threads wait; `None` where the kernel side takes them, and once the reader has ended.
    reader: Option<StackReader>,
    /// Number of processes of which stacks were not read, by the reason.
    not_read: BTreeMap<NotRead, u64>,
}

impl StacksToName {
    pub fn new(reader: Option<StackReader>) -> Self {
        let stacks = Stacks::new();
        // Looks tell of user stacks only.
        if reader.is_none() {
            stacks.read_kernel_symbols();
        }
        Self {
            stacks,
            pids: Vec::new(),
            waiting: Vec::new(),
            put_off: Vec::new(),
            met: FxHashSet::default(),
            reader,
            not_read: BTreeMap::new(),
        }
    }

    /// Returns true if records name stacks: where they are read while threads wait, none does.
    pub const fn are_in_records(&self) -> bool {
        self.reader.is_none()
    }

    /// Notes which process a task is of.
    pub fn name(&mut self, task: &TaskEvent) {
        if task.kind == TaskEventKind::Exit {
            return;
        }
        let index = index(task.task);
        if index >= self.pids.len() {
            self.pids.resize(index + 1, None);
        }
        self.pids[index] = Some(task.pid);
    }

    /// Notes the stacks that records name.
    pub fn meet(&mut self, named: impl Iterator<Item = (StackKind, u32, Option<TaskKey>)>) {
        for stack in named {
            if self.met.insert((stack.0 == StackKind::User, stack.1)) {
                self.waiting.push(stack);
            }
        }
    }

    /// Looks the stacks up that were noted.
    pub fn look_up(&mut self, capture: &Capture) {
        let put_off = std::mem::take(&mut self.put_off);
        for (kind, number, task) in put_off {
            let pid = self.pid(task);
            self.stacks.meet(capture, kind, number, pid);
        }
        for (kind, number, task) in std::mem::take(&mut self.waiting) {
            match self.pid(task) {
                None if task.is_some() => self.put_off.push((kind, number, task)),
                pid => self.stacks.meet(capture, kind, number, pid),
            }
        }
    }

    fn pid(&self, task: Option<TaskKey>) -> Option<Pid> {
        self.pids.get(index(task?)).copied().flatten()
    }

    /// Passes on where threads were seen to wait since the last call. Returns why there are no more looks, if the
    /// reader has ended.
    pub fn take_looks(&mut self, mut sink: impl FnMut(LookEvent)) -> io::Result<()> {
        let Some(reader) = &mut self.reader else {
            return Ok(());
        };
        let (stacks, not_read) = (&mut self.stacks, &mut self.not_read);
        let ended = reader.news(|news| match news {
            StackNews::Stack(found) => {
                stacks.add_user(found.number, Pid::new(found.pid), &found.addresses);
            }
            StackNews::Refused(why) => *not_read.entry(why).or_default() += 1,
            StackNews::Looks(looks) => looks.into_iter().for_each(|look| {
                sink(LookEvent {
                    ts: Timestamp::from_ns(look.ts),
                    task: TaskKey::new(look.task),
                    out: Timestamp::from_ns(look.out),
                    user_stack: look.stack,
                    between: Nanos::from_ns(look.between),
                });
            }),
        });
        if ended.is_err() {
            self.reader = None;
        }
        ended
    }

    /// Of which processes stacks were not read, and why, in words.
    pub fn not_read(&self) -> impl Iterator<Item = String> {
        self.not_read.iter().map(|(why, processes)| {
            let processes = counted(*processes, "process");
            format!("stacks of {processes} were not read: {}", why.in_words())
        })
    }

    /// The process that reads stacks, if there is one.
    pub fn reader(&self) -> Option<&HelperProcess> {
        self.reader.as_ref().map(StackReader::process)
    }

    /// The stacks that are new since the last call.
    pub fn take_fresh(&mut self) -> Vec<Stack> {
        self.stacks.take_fresh()
    }

    /// Finds the names of all frames, after the end.
    pub fn named_frames(self) -> Vec<Frame> {
        self.stacks.named_frames()
    }
}

fn index(task: TaskKey) -> usize {
    usize::try_from(task.get()).unwrap_or(usize::MAX)
}
