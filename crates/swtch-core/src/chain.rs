//! Divides the wait for a thread of one's own program by what that thread did meanwhile.
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
//! remembered. So are stretches shorter than 20 µs for which a third would have to be looked up: there may be a hundred
//! thousand a second of them, and they sum to little. Every wait for a thread of the program is divided once, and sums
//! are kept along each life (`chain/life.rs`): who waits for a thousand runs of another need not look at each.
//!
//! Beside the parts, runs are counted during which others waited ([`Chains::served_in_turn`]): a lower bound.

mod counted;
mod life;
mod walk;

use life::{ChainStep, ChainTask};
use walk::{AwaitedStretch, ChainWalk};

use crate::lost::{AwaitedThing, Ender};
use crate::reason::Reason;
use crate::switch::{Open, Switch};
use crate::units::{Nanos, Timestamp};

/// Steps remembered over all tasks together, 128 bytes each; at least [`FEWEST_STEPS`] of each.
const STEPS_IN_MEMORY: usize = 1 << 18;

/// Steps remembered of each task at least, however many tasks there are.
const FEWEST_STEPS: usize = 32;

/// The most looks that are taken along the chain of one wait: at a task, or at a step of it that no sum holds yet, that
/// lies across an end of the wait, or whose priority matters.
const MOST_WALKED: u32 = 512;

/// The most looks where many waits have chains as long: so many for each row, on average, beside [`FIRST_WALKED`] and
/// [`FEWEST_WALKED`] of each wait. So the work grows with the rows.
const WALKED_EACH: u64 = 1;
const FIRST_WALKED: u64 = 1 << 20;
const FEWEST_WALKED: u32 = 4;

/// The longest chain that is followed.
const MOST_HOPS: u32 = 32;

/// Shorter waits are not followed.
const SHORTEST_NS: u64 = 20_000;

/// The most waits kept back until further rows come.
const MOST_KEPT: usize = 1 << 16;

/// The most stretches that are kept, 24 bytes each.
const MOST_TURNS: usize = 1 << 20;

/// A way in which a thread spends its time.
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
    /// All ways to spend time, in order.
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

    /// Returns how a blocked thread spent its time, without following a chain.
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

    /// Returns how a thread that could run spent its time, by why it had left.
    const fn queued(reason: Reason) -> Self {
        match reason {
            Reason::Throttle => Self::Throttled,
            _ => Self::NoCpu,
        }
    }
}

/// The time spent in each way of [`Spent::ALL`].
type Parts = [Nanos; Spent::ALL.len()];

/// The time for which threads waited for others, by how those spent it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Meanwhile {
    parts: Parts,
    /// Of the time without a CPU, that for which a task of higher priority waited.
    pub inverted: Nanos,
}

impl Meanwhile {
    /// Returns how much of the time was spent in this way.
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

    /// All parts together: what the waits sum to.
    pub fn whole(&self) -> Nanos {
        self.parts.iter().copied().sum()
    }
}

/// The purpose that a wait for another thread may have had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedAs {
    /// For its turn: at a futex.
    Turn,
    /// For a message, or for room to put one: at a pipe, a socket.
    Message,
}

/// The end of a wait: what ended it, and which task of the same program that was, by index.
#[derive(Clone, Copy, Debug)]
pub struct EndedBy {
    /// The thing that ended it.
    pub ender: Ender,
    /// The task; `None` if it was no task of the program.
    pub own: Option<usize>,
}

/// A wait that is to be divided.
#[derive(Clone, Copy, Debug)]
struct AskedWait {
    /// Whom its parts are for; of one without, only the sums need them.
    tag: Option<usize>,
    served: ServedAs,
    task: usize,
    /// Number of its step, counted from the task's first.
    step: usize,
    by: usize,
    from: u64,
    to: u64,
    prio: i16,
}

/// The lives of tasks, and the waits that ask for them.
#[derive(Debug)]
pub struct Chains {
    tasks: Vec<ChainTask>,
    most_steps: usize,
    /// Looks that may be taken still, beside the fewest of each wait.
    credit: u64,
    kept: usize,
    stretches: Vec<AwaitedStretch>,
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
            stretches: Vec::new(),
            turns: Vec::new(),
        }
    }

    /// Takes the next row of the task with this index, and what ended its wait. With a `tag`, `sink` gets the parts of
    /// the wait, now or later.
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
        let number = self.tasks[task].push(step, self.most_steps);
        if !self.tasks[task].kept.is_empty() {
            self.divide_kept(task, sink);
        }
        if let Some(by) = step.followed() {
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
        self.tasks[task].push(ChainStep::of_open(open), self.most_steps);
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

    /// Returns how long the task ran while others waited for it with [`ServedAs::Turn`]: at least so long.
    pub fn served_in_turn(&self, task: usize) -> Nanos {
        self.tasks[task].served_in_turn
    }

    /// Returns how long the task had no CPU while one of higher priority waited for it: at least so long.
    pub fn held_back(&self, task: usize) -> Nanos {
        self.tasks[task].held_back
    }

    /// Returns how long the task waited for one of lower priority that had no CPU.
    pub fn inverted(&self, task: usize) -> Nanos {
        self.tasks[task].inverted
    }

    /// Returns how long the task waited for others that ran meanwhile, with [`ServedAs::Turn`].
    pub fn waited_in_turn(&self, task: usize) -> Nanos {
        self.tasks[task].waited_in_turn
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

    /// Returns what the chain did during the wait. The error is the task of which a row is missing still.
    fn walked(&mut self, wait: &AskedWait, is_over: bool) -> Result<Meanwhile, usize> {
        let stretches = std::mem::take(&mut self.stretches);
        let most = match self.credit >= u64::from(MOST_WALKED) {
            true => MOST_WALKED,
            false => FEWEST_WALKED,
        };
        let mut walk = ChainWalk::new(&self.tasks, wait.prio, is_over, most, stretches);
        let walked = walk.along(wait.by, (wait.from, wait.to), MOST_HOPS);
        let sum = walk.sum(Nanos::from_ns(wait.to - wait.from));
        self.credit = self.credit.saturating_sub(u64::from(walk.looks()));
        self.stretches = walk.stretches;
        walked.map(|()| sum)
    }

    /// Keeps what is known of a wait, counts the stretches of the last walk, and hands it on.
    fn tell(&mut self, wait: &AskedWait, sum: &Meanwhile, sink: &mut dyn FnMut(usize, &Meanwhile)) {
        let waiting = &mut self.tasks[wait.task];
        waiting.know(wait.step, &sum.parts);
        let Some(tag) = wait.tag else { return };
        waiting.inverted += sum.inverted;
        if wait.served == ServedAs::Turn {
            waiting.waited_in_turn += sum.of(Spent::Ran);
        }
        for stretch in &self.stretches {
            let task = &mut self.tasks[stretch.task];
            if sum.inverted > Nanos::ZERO {
                task.count_held_back(stretch, wait.prio);
            }
            if wait.served == ServedAs::Turn {
                let turns = &mut self.turns;
                task.count_served(stretch, |from, to| {
                    if turns.len() < MOST_TURNS {
                        let [from, to] = [from, to].map(Timestamp::from_ns);
                        turns.push((stretch.task, from, to));
                    }
                });
            }
        }
        sink(tag, sum);
    }
}

#[cfg(test)]
mod tests;
