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
//! remembered or walked. So are stretches shorter than 20 µs for which a third would have to be looked up: there may be
//! a hundred thousand a second of them, and they sum to little. What is known of a wait is kept with it, so that whoever
//! waits for all of it need not go that way again.
//!
//! Beside the parts, runs are counted during which others waited ([`Chains::served_in_turn`]): a lower bound, because
//! what lies before a stretch that was counted already is not counted again.

use std::collections::VecDeque;

use crate::lost::{AwaitedThing, Ender};
use crate::reason::Reason;
use crate::switch::{Open, Switch};
use crate::units::{Nanos, Timestamp};

/// Steps remembered over all tasks together, 160 bytes each; at least [`FEWEST_STEPS`] of each.
const STEPS_IN_MEMORY: usize = 1 << 18;

/// Steps remembered of each task at least, however many tasks there are.
const FEWEST_STEPS: usize = 32;

/// The most steps that are walked for one wait: a wait of seconds may span a million runs of the other.
const MOST_WALKED: u32 = 512;

/// And the most where many waits were as long: so many for each row, on average, beside [`FIRST_WALKED`] and
/// [`FEWEST_WALKED`] of each wait. So the work grows with the rows.
const WALKED_EACH: u64 = 4;
const FIRST_WALKED: u64 = 1 << 18;
const FEWEST_WALKED: u32 = 16;

/// The longest chain that is followed.
const MOST_HOPS: u32 = 32;

/// Shorter waits are not followed.
const SHORTEST_NS: u64 = 20_000;

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

/// One wait and the run after it; moments are in ns on the trace clock.
#[derive(Clone, Copy, Debug)]
struct ChainStep {
    out: u64,
    woken: u64,
    start: u64,
    end: u64,
    /// Up to here the run is counted as one for which others waited with [`ServedAs::Turn`].
    run_counted: u64,
    /// The same of the time without a CPU, and of others with a higher priority.
    queue_counted: u64,
    by: Option<u32>,
    prio: i16,
    blocked: Spent,
    queued: Spent,
    /// What those did who ended the wait, once that is known.
    meanwhile: Option<Meanwhile>,
}

impl ChainStep {
    fn of(row: &Switch, ended: EndedBy) -> Self {
        // If the length of the run is not known, it is not known either when the wait was.
        let is_placed = row.ran.is_some();
        let placed = |time: Option<Nanos>| match time {
            Some(time) if is_placed => time.as_ns(),
            _ => 0,
        };
        let end = row.ts.as_ns();
        let start = end.saturating_sub(placed(row.ran));
        let woken = start.saturating_sub(placed(row.wait.runq));
        let reason = row.wait.reason.unwrap_or(Reason::Unknown);
        Self {
            out: start.saturating_sub(placed(row.wait.length())),
            woken,
            start,
            end,
            run_counted: start,
            queue_counted: woken,
            by: ended.own.and_then(|task| u32::try_from(task).ok()),
            prio: row.evidence.prio,
            blocked: match row.wait.runq {
                Some(_) => Spent::blocked(reason, ended.ender),
                None => Spent::Untold,
            },
            queued: Spent::queued(reason),
            meanwhile: None,
        }
    }

    fn of_open(open: &Open) -> Self {
        let out = open.since.as_ns();
        let end = open.end().as_ns();
        let runq = open.runq.unwrap_or(Nanos::ZERO).as_ns();
        let reason = open.reason.unwrap_or(Reason::Unknown);
        let (woken, start) = match open.reason {
            Some(_) => (end.saturating_sub(runq), end),
            None => (out, out),
        };
        Self {
            out,
            woken,
            start,
            end,
            run_counted: start,
            queue_counted: woken,
            by: None,
            // Nobody is above it: its priority is not told.
            prio: i16::MIN,
            blocked: Spent::blocked(reason, Ender::Unseen),
            queued: Spent::queued(reason),
            meanwhile: None,
        }
    }
}

/// What is known of one task.
#[derive(Debug, Default)]
struct ChainTask {
    steps: VecDeque<ChainStep>,
    /// Number of steps that are no longer in memory.
    dropped: usize,
    /// Waits that cannot be divided before the task's next row.
    kept: Vec<AskedWait>,
    /// How long it ran while others waited for it with [`ServedAs::Turn`].
    served_in_turn: Nanos,
    /// How long it had no CPU while a task of higher priority waited for it.
    held_back: Nanos,
    /// How long it waited for one of lower priority that had no CPU.
    inverted: Nanos,
    /// How long it waited for others that ran, with [`ServedAs::Turn`].
    waited_in_turn: Nanos,
}

/// A wait that is to be divided.
#[derive(Clone, Copy, Debug)]
struct AskedWait {
    tag: usize,
    served: ServedAs,
    task: usize,
    /// Number of its step, counted from the task's first.
    step: usize,
    by: usize,
    from: u64,
    to: u64,
    prio: i16,
}

/// A stretch of a step that belongs to a wait for its task.
#[derive(Clone, Copy, Debug)]
struct ChainMark {
    task: usize,
    /// As in [`AskedWait`].
    step: usize,
    is_run: bool,
    from: u64,
    to: u64,
}

/// The lives of tasks, and the waits that ask for them.
#[derive(Debug)]
pub struct Chains {
    tasks: Vec<ChainTask>,
    most_steps: usize,
    /// Steps that may be walked still, beside the fewest of each wait.
    credit: u64,
    kept: usize,
    marks: Vec<ChainMark>,
    /// See [`Self::turns`].
    turns: Vec<(usize, Timestamp, Timestamp)>,
}

impl Chains {
    /// For so many tasks, which have an index each.
    pub fn new(tasks: usize) -> Self {
        Self {
            tasks: std::iter::repeat_with(ChainTask::default)
                .take(tasks)
                .collect(),
            most_steps: (STEPS_IN_MEMORY / tasks.max(1)).max(FEWEST_STEPS),
            credit: FIRST_WALKED,
            kept: 0,
            marks: Vec::new(),
            turns: Vec::new(),
        }
    }

    /// Takes the next row of the task with this index, and what ended its wait. With a `tag` the wait is
    /// divided, now or later, and `sink` gets the parts.
    pub fn push(
        &mut self,
        row: &Switch,
        task: usize,
        ended: EndedBy,
        (tag, served): (Option<usize>, ServedAs),
        sink: &mut dyn FnMut(usize, &Meanwhile),
    ) {
        self.credit += WALKED_EACH;
        let step = ChainStep::of(row, ended);
        let number = self.remember(task, step);
        if !self.tasks[task].kept.is_empty() {
            self.divide_kept(task, sink);
        }
        if let Some((tag, by)) = tag.zip(ended.own)
            && step.woken - step.out >= SHORTEST_NS
        {
            let wait = AskedWait {
                tag,
                served,
                task,
                step: number,
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
    pub fn finish(&mut self, sink: &mut dyn FnMut(usize, &Meanwhile)) {
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

    /// How long the task ran while others waited for it with [`ServedAs::Turn`]: at least so long.
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

    /// Returns the number of the step.
    fn remember(&mut self, task: usize, step: ChainStep) -> usize {
        let most = self.most_steps;
        let task = &mut self.tasks[task];
        if task.steps.len() >= most {
            task.steps.pop_front();
            task.dropped += 1;
        }
        task.steps.push_back(step);
        task.dropped + task.steps.len() - 1
    }

    fn divide_kept(&mut self, task: usize, sink: &mut dyn FnMut(usize, &Meanwhile)) {
        let mut due = std::mem::take(&mut self.tasks[task].kept);
        self.kept -= due.len();
        due.sort_by_key(|wait| wait.to);
        for wait in due {
            self.divide(wait, sink);
        }
    }

    fn divide(&mut self, wait: AskedWait, sink: &mut dyn FnMut(usize, &Meanwhile)) {
        match self.walked(&wait, false) {
            Ok(sum) => self.tell(&wait, &sum, sink),
            Err(_) if self.kept >= MOST_KEPT => self.divide_now(wait, sink),
            Err(task) => {
                self.kept += 1;
                self.tasks[task].kept.push(wait);
            }
        }
    }

    /// Divides a wait by what is known.
    fn divide_now(&mut self, wait: AskedWait, sink: &mut dyn FnMut(usize, &Meanwhile)) {
        if let Ok(sum) = self.walked(&wait, true) {
            self.tell(&wait, &sum, sink);
        }
    }

    /// What the chain did during the wait, or the task of which a row is missing still.
    fn walked(&mut self, wait: &AskedWait, is_over: bool) -> Result<Meanwhile, usize> {
        let mut marks = std::mem::take(&mut self.marks);
        marks.clear();
        let most = match self.credit >= u64::from(MOST_WALKED) {
            true => MOST_WALKED,
            false => FEWEST_WALKED,
        };
        let mut walk = ChainWalk {
            tasks: &self.tasks,
            prio: wait.prio,
            is_over,
            sum: Meanwhile::default(),
            marks,
            left: most,
        };
        let walked = walk.along(wait.by, wait.from, wait.to, MOST_HOPS);
        let sum = walk.sum;
        self.credit = self.credit.saturating_sub(u64::from(most - walk.left));
        self.marks = walk.marks;
        walked.map(|()| sum)
    }

    /// Keeps what is known of a wait, counts the stretches of the last walk, and hands it on.
    fn tell(&mut self, wait: &AskedWait, sum: &Meanwhile, sink: &mut dyn FnMut(usize, &Meanwhile)) {
        let waiting = &mut self.tasks[wait.task];
        if let Some(step) = wait.step.checked_sub(waiting.dropped) {
            waiting.steps[step].meanwhile = Some(*sum);
        }
        waiting.inverted += sum.inverted;
        if wait.served == ServedAs::Turn {
            waiting.waited_in_turn += sum.of(Spent::Ran);
        }
        for mark in self.marks.drain(..) {
            let task = &mut self.tasks[mark.task];
            let step = &mut task.steps[mark.step - task.dropped];
            if !mark.is_run {
                count(&mark, &mut step.queue_counted, &mut task.held_back);
                continue;
            }
            if wait.served == ServedAs::Turn {
                let from = count(&mark, &mut step.run_counted, &mut task.served_in_turn);
                if from < mark.to && self.turns.len() < MOST_TURNS {
                    let [from, to] = [from, mark.to].map(Timestamp::from_ns);
                    self.turns.push((mark.task, from, to));
                }
            }
        }
        sink(wait.tag, sum);
    }
}

/// Counts the part of a stretch that is not counted yet; returns where it begins.
fn count(mark: &ChainMark, counted: &mut u64, sum: &mut Nanos) -> u64 {
    let from = mark.from.max(*counted);
    *sum += Nanos::from_ns(mark.to.saturating_sub(from));
    *counted = mark.to.max(*counted);
    from
}

/// One way along a chain.
struct ChainWalk<'a> {
    tasks: &'a [ChainTask],
    /// Priority of the task that waits.
    prio: i16,
    /// Whether no further row comes.
    is_over: bool,
    sum: Meanwhile,
    marks: Vec<ChainMark>,
    /// Steps that may be walked still.
    left: u32,
}

impl ChainWalk<'_> {
    /// Adds what a task did from then to then. The error is the task of which a row is missing.
    fn along(&mut self, task: usize, from: u64, to: u64, hops: u32) -> Result<(), usize> {
        let known = &self.tasks[task];
        let mut upto = to;
        let mut place = known.steps.len();
        if !self.is_over && known.steps.back().is_none_or(|last| last.end < to) {
            return Err(task);
        }
        while upto > from && self.left > 0 && place > 0 {
            place -= 1;
            let step = &known.steps[place];
            if step.out >= upto {
                continue;
            }
            self.left -= 1;
            self.give(Spent::Untold, step.end.max(from), &mut upto);
            let began = step.start.max(from);
            if began < upto {
                self.mark(task, known.dropped + place, true, began, upto);
                self.give(Spent::Ran, began, &mut upto);
            }
            let began = step.woken.max(from);
            if began < upto {
                if self.prio < step.prio && step.queued == Spent::NoCpu {
                    self.sum.inverted += Nanos::from_ns(upto - began);
                    self.mark(task, known.dropped + place, false, began, upto);
                }
                self.give(step.queued, began, &mut upto);
            }
            let began = step.out.max(from);
            if began < upto {
                self.blocked(step, began, upto, hops)?;
                upto = began;
            }
        }
        self.give(Spent::Untold, from, &mut upto);
        Ok(())
    }

    /// Adds what a stretch of a step's wait was for.
    fn blocked(&mut self, step: &ChainStep, from: u64, to: u64, hops: u32) -> Result<(), usize> {
        let mut upto = to;
        match (step.by, &step.meanwhile) {
            (Some(_), Some(meanwhile)) if from == step.out && to == step.woken => {
                // Whether that is an inversion depends on who waits.
                let inverted = self.sum.inverted;
                self.sum.add(meanwhile);
                self.sum.inverted = inverted;
            }
            (Some(third), _) if hops > 0 && to - from >= SHORTEST_NS => {
                let third = usize::try_from(third).unwrap_or(usize::MAX);
                self.along(third, from, to, hops - 1)?;
            }
            _ => self.give(step.blocked, from, &mut upto),
        }
        Ok(())
    }

    /// Gives the time from here up to `upto`, which moves back.
    fn give(&mut self, spent: Spent, from: u64, upto: &mut u64) {
        *self.sum.of_mut(spent) += Nanos::from_ns(upto.saturating_sub(from));
        *upto = from.min(*upto);
    }

    fn mark(&mut self, task: usize, step: usize, is_run: bool, from: u64, to: u64) {
        self.marks.push(ChainMark {
            task,
            step,
            is_run,
            from,
            to,
        });
    }
}

#[cfg(test)]
mod tests;
