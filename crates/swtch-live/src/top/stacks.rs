//! The stacks of the thread whose page is shown: where it left its CPU, and for how long.
//!
//! The kernel side takes stacks of this thread only, from the moment in which its page was opened, and
//! adds equal ones up. Names are found when a stack is met for the first time.

use std::collections::BTreeMap;
use std::rc::Rc;

use anyhow::Result;
use rustc_hash::FxHashMap;
use swtch_capture::{BlockedTask, Capture, StackSums, Stacks, monotonic_ns};
use swtch_core::{Frame, Nanos, Pid, Reason, Stack, StackKind, StackNumbers, TaskKey, Timestamp};
use swtch_report::report::live::{LiveCounts, LiveTasks};
use swtch_report::report::{Symbols, frame_words};

/// One place in which a thread left its CPU.
#[derive(Clone, Debug, Default)]
pub struct ThreadPlace {
    /// Frames in the process, the innermost first.
    pub user: Rc<[String]>,
    /// Frames in the kernel, the innermost first.
    pub kernel: Rc<[String]>,
    /// The program's own functions, the innermost first, in one line.
    pub functions: Option<Rc<str>>,
}

/// Functions of a place that are named in its line.
pub const FUNCTIONS_NAMED: usize = 12;

/// The switches of a thread that left its CPU at one place for one reason.
#[derive(Clone, Debug)]
pub struct PlaceRates {
    /// The reason for which it left.
    pub reason: Reason,
    /// Number of switches.
    pub switches: u64,
    /// Time that it was blocked there.
    pub blocked: Nanos,
    /// The place where it left.
    pub place: ThreadPlace,
}

/// The places of one thread since its page was opened.
#[derive(Clone, Debug)]
pub struct ThreadPlaces {
    /// The thread.
    pub task: TaskKey,
    /// The time since then.
    pub watched: Nanos,
    /// The places, those with the most blocked time first, then those with the most switches.
    pub rates: Vec<PlaceRates>,
    /// The place where it is blocked now, if it has been so since the page was opened.
    pub now: Option<ThreadPlace>,
    /// True if frames of the process could be looked up in its files.
    pub has_names: bool,
}

/// The thread whose stacks are taken, and what was looked up of them.
pub struct WatchedStacks {
    task: Option<TaskKey>,
    since: Timestamp,
    stacks: Stacks,
    known: FxHashMap<(StackKind, u32), KnownStack>,
}

/// A stack that was looked up.
#[derive(Clone, Default)]
struct KnownStack {
    frames: Rc<[String]>,
    /// True if it is known of any frame in which file it is.
    has_files: bool,
    functions: Option<Rc<str>>,
}

impl KnownStack {
    fn of(kind: StackKind, mut frames: Vec<Frame>) -> Self {
        let numbers = 0..u32::try_from(frames.len()).unwrap_or(u32::MAX);
        for (frame, number) in frames.iter_mut().zip(numbers.clone()) {
            frame.id = number;
        }
        let stack = Stack {
            kind,
            frames: numbers.collect(),
            ..Stack::default()
        };
        let functions = Symbols::new(vec![stack], &frames).functions_in_line(0, FUNCTIONS_NAMED);
        Self {
            functions: functions.map(Rc::from),
            frames: frames.iter().map(frame_words).collect(),
            has_files: frames.iter().any(|frame| frame.module.is_some()),
        }
    }
}

impl WatchedStacks {
    /// No thread is watched. Call it while privileged: see [`Stacks::read_kernel_symbols`].
    pub fn none() -> Self {
        let stacks = Stacks::new();
        stacks.read_kernel_symbols();
        Self {
            task: None,
            since: Timestamp::from_ns(0),
            stacks,
            known: FxHashMap::default(),
        }
    }

    /// Watches this thread from now on, if it is not watched already, and no other.
    pub fn watch(&mut self, capture: &mut Capture, task: Option<TaskKey>) -> Result<()> {
        if self.task != task {
            self.known.clear();
            self.since = capture.watch_stacks(task)?;
            self.task = task;
        }
        Ok(())
    }

    /// Returns true if this is a wait of the thread whose stacks were taken.
    pub fn is_watched(&self, wait: &BlockedTask) -> bool {
        self.task == Some(wait.group.task) && wait.since >= self.since
    }

    /// Returns what is known by now of the thread; `None` if none is watched.
    pub fn places(
        &mut self,
        capture: &Capture,
        counts: &LiveCounts,
        tasks: &LiveTasks,
        now: Option<&BlockedTask>,
    ) -> Result<Option<ThreadPlaces>> {
        let Some(task) = self.task else {
            return Ok(None);
        };
        let pid = tasks.get(task).map(|of| of.pid);
        let sums = capture.stack_sums()?;
        let sums = sums.iter().filter(|sums| sums.group.task == task);
        let mut rates: Vec<PlaceRates> = added_up(sums, counts)
            .into_iter()
            .map(|(reason, stacks, switches, blocked)| PlaceRates {
                reason,
                switches,
                blocked,
                place: self.place(capture, stacks, pid),
            })
            .collect();
        rates.sort_by_key(|row| std::cmp::Reverse((row.blocked, row.switches)));
        let now = now.map(|wait| self.place(capture, wait.stacks, pid));
        let mut user_stacks = self
            .known
            .iter()
            .filter(|(key, _)| key.0 == StackKind::User);
        Ok(Some(ThreadPlaces {
            task,
            watched: Nanos::from_ns(monotonic_ns().saturating_sub(self.since.as_ns())),
            rates,
            now,
            has_names: user_stacks.all(|(_, known)| known.has_files),
        }))
    }

    fn place(&mut self, capture: &Capture, stacks: StackNumbers, pid: Option<Pid>) -> ThreadPlace {
        let mut place = ThreadPlace::default();
        for (kind, id) in stacks.iter() {
            // A stack that the kernel side has no more is met again with its next switch.
            let known = self.known.entry((kind, id)).or_insert_with(|| {
                let found = self.stacks.frames_now(capture, kind, id, pid);
                KnownStack::of(kind, found.unwrap_or_default())
            });
            let frames = Rc::clone(&known.frames);
            match kind {
                StackKind::Kernel => place.kernel = frames,
                StackKind::User => {
                    place.user = frames;
                    place.functions.clone_from(&known.functions);
                }
            }
        }
        place
    }
}

/// Adds up groups that differ in what the page does not show, such as who took the CPU.
fn added_up<'a>(
    sums: impl Iterator<Item = &'a StackSums>,
    counts: &LiveCounts,
) -> Vec<(Reason, StackNumbers, u64, Nanos)> {
    let mut places: BTreeMap<_, (u64, Nanos)> = BTreeMap::new();
    for one in sums {
        let StackNumbers { kernel, user } = one.stacks;
        let key = (counts.reason_of(&one.group), kernel, user);
        let (switches, blocked) = places.entry(key).or_default();
        *switches += one.switches;
        *blocked += one.off.saturating_sub(one.runq);
    }
    let places = places.into_iter();
    places
        .map(|((reason, kernel, user), (switches, blocked))| {
            (reason, StackNumbers { kernel, user }, switches, blocked)
        })
        .collect()
}
