//! What the other one did meanwhile: the wait for a thread of one's own program, divided by what that thread
//! did.
//!
//! ```text
//!  victim  ──┬────────────────── blocked, until the other wakes it ──────────────┬──▶
//!            │                                                                   │
//!  other   ──┼── blocked: disk ──┬── blocked: a third ──┬── no CPU ──┬── ran ────┴──▶
//!  third   ──┼───────────────────┼──── ran ─────────────┴──────────────────────────▶
//!            └───── disk ────────┴──── ran ─────────────┴── no CPU ──┴── ran ────┘   the parts sum to the wait
//! ```
//!
//! Blame follows the chain of wakers: what a thread waited for that waited itself is looked up in the life of
//! the third. A row tells what its task did before the moment at which it left, so a wait is divided when the
//! rows of all of its chain have come, which may be later than its own.
//!
//! Time that no row tells is **untold**: before the recording, after a lost switch, beyond the steps that are
//! remembered or walked.
//!
//! Beside the parts, runs are counted during which others waited ([`Chains::served`]): a lower bound, because
//! what lies before a stretch that was counted already is not counted again.

use std::collections::VecDeque;

use crate::lost::{AwaitedThing, Ender};
use crate::reason::Reason;
use crate::switch::{Open, Switch};
use crate::units::{Nanos, Timestamp};

/// Steps remembered over all tasks together, 72 bytes each; at least [`FEWEST_STEPS`] of each.
const STEPS_IN_MEMORY: usize = 1 << 20;

/// Steps remembered of each task at least, however many tasks there are.
const FEWEST_STEPS: usize = 32;

/// The most steps that are walked for one wait: a wait of seconds may span a million runs of the other.
const MOST_WALKED: u32 = 512;

/// The longest chain that is followed.
const MOST_HOPS: u32 = 32;

/// The most waits kept back until further rows come.
const MOST_KEPT: usize = 1 << 16;

/// The most stretches that are kept, 24 bytes each.
const MOST_TURNS: usize = 1 << 20;

/// What a thread spent its time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spent {
    /// Running.
    Ran,
    /// Runnable, without a CPU.
    NoCpu,
    /// Without a CPU, because its quota or budget was used up.
    Throttled,
    /// Blocked for a file or disk.
    Disk,
    /// Blocked for memory.
    Memory,
    /// Blocked for a lock of the kernel, or stopped.
    KernelLock,
    /// Asleep until a time that it chose.
    Clock,
    /// Blocked for other programs, or for what comes from outside.
    Others,
    /// Not told.
    Untold,
}

impl Spent {
    /// All of them, in order.
    pub const ALL: [Self; 9] = [
        Self::Ran,
        Self::NoCpu,
        Self::Throttled,
        Self::Disk,
        Self::Memory,
        Self::KernelLock,
        Self::Clock,
        Self::Others,
        Self::Untold,
    ];

    /// What a blocked thread spent its time on, without following a chain.
    const fn blocked(reason: Reason, ender: Ender) -> Self {
        match AwaitedThing::of(reason, ender) {
            AwaitedThing::Work => match reason {
                Reason::Io => Self::Disk,
                Reason::Fault => Self::Memory,
                _ => Self::KernelLock,
            },
            AwaitedThing::Clock => Self::Clock,
            AwaitedThing::Others => Self::Others,
            AwaitedThing::Own | AwaitedThing::Untold => Self::Untold,
        }
    }

    /// What a thread that could run spent its time on, by why it had left.
    const fn queued(reason: Reason) -> Self {
        match reason {
            Reason::Throttle => Self::Throttled,
            _ => Self::NoCpu,
        }
    }
}

/// What threads spent the time on for which others waited for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meanwhile {
    parts: [Nanos; Spent::ALL.len()],
    /// Of the time without a CPU, that for which a task of higher priority waited.
    pub inverted: Nanos,
}

impl Meanwhile {
    /// How long it was this.
    pub const fn of(&self, spent: Spent) -> Nanos {
        self.parts[spent as usize]
    }

    /// Adds another one.
    pub fn add(&mut self, other: &Self) {
        for (sum, more) in self.parts.iter_mut().zip(other.parts) {
            *sum += more;
        }
        self.inverted += other.inverted;
    }

    /// All of it: what the waits sum to.
    pub fn whole(&self) -> Nanos {
        self.parts.iter().copied().sum()
    }

    const fn of_mut(&mut self, spent: Spent) -> &mut Nanos {
        &mut self.parts[spent as usize]
    }
}

/// What a wait for another thread may have been for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedAs {
    /// For its turn: at a futex.
    Turn,
    /// For a message, or for room to put one: at a pipe, a socket.
    Message,
}

/// What ended a wait, and which task of the same program it was, by index.
#[derive(Clone, Copy, Debug)]
pub struct EndedBy {
    /// What ended it.
    pub ender: Ender,
    /// The task; `None` if it was no task of the program.
    pub own: Option<usize>,
}

/// One wait and the run after it.
#[derive(Clone, Copy, Debug)]
struct ChainStep {
    out: Timestamp,
    woken: Timestamp,
    start: Timestamp,
    end: Timestamp,
    /// Up to here the run is counted as one for which others waited, with [`ServedAs::Turn`] and at all.
    turn_counted: Timestamp,
    run_counted: Timestamp,
    /// The same of the time without a CPU, and of others with a higher priority.
    queue_counted: Timestamp,
    by: Option<u32>,
    prio: i16,
    blocked: Spent,
    queued: Spent,
}

impl ChainStep {
    fn of(row: &Switch, ended: EndedBy) -> Self {
        // If the length of the run is not known, it is not known either when the wait was.
        let is_placed = row.ran.is_some();
        let placed = |time: Option<Nanos>| time.filter(|_| is_placed).unwrap_or_default();
        let start = row.ts.before(placed(row.ran));
        let off = placed(row.wait.length());
        let runq = placed(row.wait.runq);
        let is_split = row.wait.runq.is_some();
        let reason = row.wait.reason.unwrap_or(Reason::Unknown);
        Self {
            out: start.before(off),
            woken: start.before(runq),
            start,
            end: row.ts,
            turn_counted: start,
            run_counted: start,
            queue_counted: start.before(runq),
            by: ended.own.and_then(|task| u32::try_from(task).ok()),
            prio: row.evidence.prio,
            blocked: match is_split {
                true => Spent::blocked(reason, ended.ender),
                false => Spent::Untold,
            },
            queued: Spent::queued(reason),
        }
    }

    fn of_open(open: &Open) -> Self {
        let end = Timestamp::from_ns(open.since.as_ns() + open.lasted.as_ns());
        let runq = open.runq.unwrap_or(Nanos::ZERO);
        let reason = open.reason.unwrap_or(Reason::Unknown);
        let (woken, start) = match open.reason {
            Some(_) => (end.before(runq), end),
            None => (open.since, open.since),
        };
        Self {
            out: open.since,
            woken,
            start,
            end,
            turn_counted: start,
            run_counted: start,
            queue_counted: woken,
            by: None,
            // Nobody is above it: its priority is not told.
            prio: i16::MIN,
            blocked: Spent::blocked(reason, Ender::Unseen),
            queued: Spent::queued(reason),
        }
    }
}

/// What is known of one task.
#[derive(Debug, Default)]
struct ChainTask<T> {
    steps: VecDeque<ChainStep>,
    /// Number of steps that are no longer in memory.
    dropped: usize,
    /// Waits that cannot be divided before the task's next row.
    kept: Vec<AskedWait<T>>,
    /// How long it ran while others waited for it: with [`ServedAs::Turn`], and at all.
    served_in_turn: Nanos,
    served: Nanos,
    /// How long it had no CPU while a task of higher priority waited for it.
    held_back: Nanos,
    /// How long it waited for one of lower priority that had no CPU.
    inverted: Nanos,
    /// How long it waited for others that ran, with [`ServedAs::Turn`].
    waited_in_turn: Nanos,
}

/// A wait that is to be divided.
#[derive(Clone, Copy, Debug)]
struct AskedWait<T> {
    tag: T,
    served: ServedAs,
    task: usize,
    by: usize,
    from: Timestamp,
    to: Timestamp,
    prio: i16,
}

/// A stretch of a step that belongs to a wait for its task.
#[derive(Clone, Copy, Debug)]
struct ChainMark {
    task: usize,
    /// Number of the step, counted from the task's first.
    step: usize,
    spent: Spent,
    from: Timestamp,
    to: Timestamp,
}

/// The lives of tasks, and the waits that ask for them.
#[derive(Debug)]
pub struct Chains<T> {
    tasks: Vec<ChainTask<T>>,
    most_steps: usize,
    kept: usize,
    marks: Vec<ChainMark>,
    /// See [`Self::turns`].
    turns: Vec<(usize, Timestamp, Timestamp)>,
}

impl<T: Copy> Chains<T> {
    /// For so many tasks, which have an index each.
    pub fn new(tasks: usize) -> Self {
        let task = || ChainTask {
            steps: VecDeque::new(),
            dropped: 0,
            kept: Vec::new(),
            served_in_turn: Nanos::ZERO,
            served: Nanos::ZERO,
            held_back: Nanos::ZERO,
            inverted: Nanos::ZERO,
            waited_in_turn: Nanos::ZERO,
        };
        Self {
            tasks: std::iter::repeat_with(task).take(tasks).collect(),
            most_steps: (STEPS_IN_MEMORY / tasks.max(1)).max(FEWEST_STEPS),
            kept: 0,
            marks: Vec::new(),
            turns: Vec::new(),
        }
    }

    /// Takes the next row of the task with this index, and what ended its wait. With a `tag` the wait is
    /// divided, now or later: `sink` gets each wait that is.
    pub fn push(
        &mut self,
        row: &Switch,
        task: usize,
        ended: EndedBy,
        (tag, served): (Option<T>, ServedAs),
        sink: &mut impl FnMut(T, &Meanwhile),
    ) {
        let step = ChainStep::of(row, ended);
        self.remember(task, step);
        if !self.tasks[task].kept.is_empty() {
            let mut due = std::mem::take(&mut self.tasks[task].kept);
            self.kept -= due.len();
            due.sort_by_key(|wait| wait.to);
            for wait in due {
                self.divide(wait, sink);
            }
        }
        let Some((tag, by)) = tag.zip(ended.own) else {
            return;
        };
        if step.out < step.woken {
            let wait = AskedWait {
                tag,
                served,
                task,
                by,
                from: step.out,
                to: step.woken,
                prio: step.prio,
            };
            self.divide(wait, sink);
        }
    }

    /// Takes a wait or a run of the task that was open at the end: first waits, then runs.
    pub fn push_open(&mut self, open: &Open, task: usize) {
        self.remember(task, ChainStep::of_open(open));
    }

    /// Divides the waits that are kept back still, because no further row comes.
    pub fn finish(&mut self, sink: &mut impl FnMut(T, &Meanwhile)) {
        for task in 0..self.tasks.len() {
            let mut due = std::mem::take(&mut self.tasks[task].kept);
            due.sort_by_key(|wait| wait.to);
            for wait in due {
                self.divide_now(wait, sink);
            }
        }
        self.kept = 0;
    }

    /// Stretches in which a task ran while others waited for it with [`ServedAs::Turn`], each moment once; the first
    /// million of them.
    pub fn turns(&self) -> &[(usize, Timestamp, Timestamp)] {
        &self.turns
    }

    /// How long the task ran while others waited for it: at least so long.
    pub fn served(&self, task: usize) -> Nanos {
        self.tasks[task].served
    }

    /// The same for waits with [`ServedAs::Turn`].
    pub fn served_in_turn(&self, task: usize) -> Nanos {
        self.tasks[task].served_in_turn
    }

    /// How long the task had no CPU while one of higher priority waited for it: at least so long.
    pub fn held_back(&self, task: usize) -> Nanos {
        self.tasks[task].held_back
    }

    /// How long the task waited for one of lower priority that had no CPU.
    pub fn inverted(&self, task: usize) -> Nanos {
        self.tasks[task].inverted
    }

    /// How long the task waited for others that ran meanwhile, with [`ServedAs::Turn`].
    pub fn waited_in_turn(&self, task: usize) -> Nanos {
        self.tasks[task].waited_in_turn
    }

    fn remember(&mut self, task: usize, step: ChainStep) {
        let most = self.most_steps;
        let task = &mut self.tasks[task];
        if task.steps.len() >= most {
            task.steps.pop_front();
            task.dropped += 1;
        }
        task.steps.push_back(step);
    }

    fn divide(&mut self, wait: AskedWait<T>, sink: &mut impl FnMut(T, &Meanwhile)) {
        match self.walked(&wait, false) {
            Ok(sum) => {
                self.count(&wait, &sum);
                sink(wait.tag, &sum);
            }
            Err(_) if self.kept >= MOST_KEPT => self.divide_now(wait, sink),
            Err(task) => {
                self.kept += 1;
                self.tasks[task].kept.push(wait);
            }
        }
    }

    /// Divides a wait by what is known.
    fn divide_now(&mut self, wait: AskedWait<T>, sink: &mut impl FnMut(T, &Meanwhile)) {
        if let Ok(sum) = self.walked(&wait, true) {
            self.count(&wait, &sum);
            sink(wait.tag, &sum);
        }
    }

    /// What the chain did during the wait, or the task of which a row is missing still.
    fn walked(&mut self, wait: &AskedWait<T>, is_over: bool) -> Result<Meanwhile, usize> {
        let mut marks = std::mem::take(&mut self.marks);
        marks.clear();
        let mut walk = ChainWalk {
            tasks: &self.tasks,
            prio: wait.prio,
            is_over,
            sum: Meanwhile::default(),
            marks,
            left: MOST_WALKED,
        };
        let walked = walk.along(wait.by, wait.from, wait.to, MOST_HOPS);
        let sum = walk.sum;
        self.marks = walk.marks;
        walked.map(|()| sum)
    }

    /// Counts the stretches of the last walk.
    fn count(&mut self, wait: &AskedWait<T>, sum: &Meanwhile) {
        let waiting = &mut self.tasks[wait.task];
        waiting.inverted += sum.inverted;
        if wait.served == ServedAs::Turn {
            waiting.waited_in_turn += sum.of(Spent::Ran);
        }
        for mark in self.marks.drain(..) {
            let task = &mut self.tasks[mark.task];
            let Some(step) = task.steps.get_mut(mark.step - task.dropped) else {
                continue;
            };
            let count = |counted: &mut Timestamp, sum: &mut Nanos| {
                let from = mark.from.max(*counted);
                *sum += length(from, mark.to);
                *counted = mark.to.max(*counted);
                from
            };
            match mark.spent {
                Spent::Ran => {
                    count(&mut step.run_counted, &mut task.served);
                    if wait.served == ServedAs::Turn {
                        let from = count(&mut step.turn_counted, &mut task.served_in_turn);
                        if from < mark.to && self.turns.len() < MOST_TURNS {
                            self.turns.push((mark.task, from, mark.to));
                        }
                    }
                }
                _ => {
                    count(&mut step.queue_counted, &mut task.held_back);
                }
            }
        }
    }
}

/// One way along a chain.
struct ChainWalk<'a, T> {
    tasks: &'a [ChainTask<T>],
    /// Priority of the task that waits.
    prio: i16,
    /// Whether no further row comes.
    is_over: bool,
    sum: Meanwhile,
    marks: Vec<ChainMark>,
    /// Steps that may be walked still.
    left: u32,
}

impl<T> ChainWalk<'_, T> {
    /// Adds what a task did from then to then. The error is the task of which a row is missing.
    fn along(
        &mut self,
        task: usize,
        from: Timestamp,
        to: Timestamp,
        hops: u32,
    ) -> Result<(), usize> {
        let known = &self.tasks[task];
        let is_known = known.steps.back().is_some_and(|last| last.end >= to);
        if !is_known && !self.is_over {
            return Err(task);
        }
        let mut upto = to;
        let after = known.steps.partition_point(|step| step.out < to);
        for (place, step) in known.steps.iter().enumerate().take(after).rev() {
            if upto <= from || self.left == 0 {
                break;
            }
            self.left -= 1;
            self.give(Spent::Untold, step.end.max(from), &mut upto);
            let step_number = known.dropped + place;
            self.ran(task, step_number, step.start.max(from), &mut upto);
            let is_inverted = self.prio < step.prio && step.queued == Spent::NoCpu;
            if is_inverted && step.woken.max(from) < upto {
                self.sum.inverted += length(step.woken.max(from), upto);
                self.mark(task, step_number, Spent::NoCpu, step.woken.max(from), upto);
            }
            self.give(step.queued, step.woken.max(from), &mut upto);
            let began = step.out.max(from);
            match step.by.and_then(|task| usize::try_from(task).ok()) {
                Some(third) if hops > 0 && began < upto => {
                    self.along(third, began, upto, hops - 1)?;
                    upto = began;
                }
                _ => self.give(step.blocked, began, &mut upto),
            }
        }
        self.give(Spent::Untold, from, &mut upto);
        Ok(())
    }

    fn ran(&mut self, task: usize, step: usize, from: Timestamp, upto: &mut Timestamp) {
        if from < *upto {
            self.mark(task, step, Spent::Ran, from, *upto);
        }
        self.give(Spent::Ran, from, upto);
    }

    /// Gives the time from here up to `upto`, which moves back.
    fn give(&mut self, spent: Spent, from: Timestamp, upto: &mut Timestamp) {
        *self.sum.of_mut(spent) += length(from, *upto);
        *upto = from.min(*upto);
    }

    fn mark(&mut self, task: usize, step: usize, spent: Spent, from: Timestamp, to: Timestamp) {
        self.marks.push(ChainMark {
            task,
            step,
            spent,
            from,
            to,
        });
    }
}

fn length(from: Timestamp, to: Timestamp) -> Nanos {
    to.since(from).unwrap_or_default()
}

#[cfg(test)]
mod tests;
