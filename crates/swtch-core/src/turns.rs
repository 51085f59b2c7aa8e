//! Turns of threads: from a message that ended a wait to the next wait for one. Where each message is a request, and the
//! answer is sent before the next is waited for, a turn is what a request took in this thread.
//!
//! ```text
//!   waits for a message ─┤ no CPU │ runs │ disk │ no CPU │ runs ├─ waits for a message
//!                        └──────────────── turn ────────────────┘
//! ```
//!
//! Nothing is asked of the program, so a turn is *inferred*: what comes while a thread is busy is served in the same turn,
//! for nothing says where one request ends. Where the task that had begun it took the CPU from it, that is counted
//! (`perhaps_more`). The turns of a thread that waits by `epoll` are between its waits at one such descriptor: PostgreSQL
//! waits for locks at another. The parts of a turn sum to its length exactly; a turn of which a row is missing is counted
//! apart.

use std::collections::BTreeMap;

use crate::ids::TaskKey;
use crate::reason::Reason;
use crate::switch::Switch;
use crate::units::{Nanos, Timestamp};

/// Parts of an octave by which lengths are told apart: each is kept within 4 %.
const PARTS_OF_OCTAVE: u32 = 32;

/// From so many turns on a thread is one that takes turns, and from this share of its waits for messages on it does so at
/// many descriptors, in percent of both.
const FEWEST_TURNS: u64 = 3;
const FEWEST_AT_MANY_PCT: u64 = 5;

/// A thread that waits at several sockets in turn asks others in the middle of a request, and nothing tells which of them
/// its own requests come from: from this share of its waits on.
const MOST_OTHERS_PCT: u64 = 5;

/// What ended a wait for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageEnd {
    /// A message, or what a thread of the same program has handed over; and the program's task that sent it, if it is
    /// known.
    Message(Option<TaskKey>),
    /// A limit, a clock, or what was not seen.
    Nothing,
}

/// Where a thread waits for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageWait {
    /// At several descriptors, by a call as `epoll_wait`: at this descriptor of `epoll`, or at another list.
    AtMany(Option<u64>),
    /// At one socket, whose inode this is.
    AtOne(Option<u64>),
}

/// The waits between which a thread takes turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnKind {
    /// Those at several descriptors.
    AtMany,
    /// Those at one socket.
    AtOne,
}

/// Turns of one thread.
#[derive(Clone, Debug, Default)]
pub struct ThreadTurns {
    /// Where it has waited since its last row, and for which reason.
    waits: Option<(MessageWait, Reason)>,
    at_many: TurnSeries,
    at_one: TurnSeries,
    /// The descriptor of `epoll` at which it waits most, by votes.
    main: Option<u64>,
    votes: u64,
    /// The number of its waits at one socket, and of those that were at another than the one before.
    at_ones: u64,
    at_others: u64,
    last_socket: Option<u64>,
}

/// Turns that begin and end with waits of one kind.
#[derive(Clone, Debug, Default)]
struct TurnSeries {
    open: Option<OpenTurn>,
    turns: TurnSums,
}

/// A turn that has not ended.
#[derive(Clone, Debug)]
struct OpenTurn {
    task: TaskKey,
    client: Option<TaskKey>,
    /// How often that took the CPU from the thread.
    by_client: u64,
    began: Timestamp,
    sum: TurnSum,
}

impl OpenTurn {
    /// One that begins with the wakeup before a row's run.
    fn begun(row: &Switch, client: Option<TaskKey>) -> Option<Self> {
        let runq = row.wait.runq?;
        let sum = TurnSum {
            turns: 1,
            no_cpu: runq,
            ..TurnSum::default()
        };
        Some(Self {
            task: row.task,
            client,
            by_client: 0,
            began: row.ts.before(row.ran?).before(runq),
            sum,
        })
    }

    /// Adds a wait of which both parts are known.
    fn add_wait(&mut self, row: &Switch) -> Option<()> {
        let blocked = row.wait.blocked()?;
        self.sum.add_blocked(row.wait.reason?, blocked);
        self.sum.no_cpu += row.wait.runq?;
        Some(())
    }

    /// Adds the run that a row ends.
    fn add_run(&mut self, row: &Switch) -> Option<()> {
        self.sum.ran += row.ran?;
        self.sum.switches += 1;
        let is_by_client = row.rule.reason == Reason::Wakeup
            && row.next_task.is_some()
            && row.next_task == self.client;
        self.by_client += u64::from(is_by_client);
        Some(())
    }
}

/// Turns by their lengths.
#[derive(Clone, Debug, Default)]
pub struct TurnSums {
    by_length: BTreeMap<u32, TurnSum>,
    counted: u64,
    /// How often the task whose message had begun a turn took the CPU in it: perhaps that had its answer, and its next
    /// message came while the thread waited for a CPU.
    pub perhaps_more: u64,
    /// Turns of which a row is missing.
    pub broken: u64,
    /// Waits that no message ended, as far as was seen: a limit, a clock.
    pub without_message: u64,
    /// The longest one.
    pub longest: Option<LongestTurn>,
}

/// The longest turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongestTurn {
    /// The thread.
    pub task: TaskKey,
    /// When it began.
    pub began: Timestamp,
    /// How long it took.
    pub length: Nanos,
}

/// Sums over turns. The times are all of it: they sum to the lengths of these turns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TurnSum {
    /// The number of turns.
    pub turns: u64,
    /// The switch-outs in them: the last one of each is that with which it ended.
    pub switches: u64,
    /// Time on a CPU.
    pub ran: Nanos,
    /// Time without one.
    pub no_cpu: Nanos,
    /// Time in waits for these reasons.
    pub blocked: Vec<(Reason, Nanos)>,
}

impl TurnSum {
    /// The lengths of all of these.
    pub fn length(&self) -> Nanos {
        self.ran + self.no_cpu + self.all_blocked()
    }

    /// Time in waits for all reasons.
    pub fn all_blocked(&self) -> Nanos {
        self.blocked.iter().map(|(_, time)| *time).sum()
    }

    pub(crate) fn add_blocked(&mut self, reason: Reason, time: Nanos) {
        match self.blocked.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, sum)) => *sum += time,
            None if time > Nanos::ZERO => self.blocked.push((reason, time)),
            None => {}
        }
    }

    /// Adds the sums of others.
    pub fn merge(&mut self, other: &Self) {
        self.turns += other.turns;
        self.switches += other.switches;
        self.ran += other.ran;
        self.no_cpu += other.no_cpu;
        for (reason, time) in &other.blocked {
            self.add_blocked(*reason, *time);
        }
    }
}

impl ThreadTurns {
    /// Adds a row of this thread: what ended the wait before the run, if that was for a message, and where it waits for
    /// one now.
    pub fn add(&mut self, row: &Switch, end: MessageEnd, waits: Option<MessageWait>) {
        let waited = self.waits.take();
        // If it had left for another reason, a row before this one is missing.
        let waited = waited.filter(|(_, reason)| row.wait.reason == Some(*reason));
        self.waits = waits.map(|wait| (wait, row.rule.reason));
        let waited = waited.map(|(wait, _)| wait);
        let [was_at_many, is_at_many] = [waited, waits]
            .map(|wait| matches!(wait, Some(MessageWait::AtMany(at)) if self.is_main(at)));
        let is_at_one = |wait| matches!(wait, Some(MessageWait::AtOne(_)));
        self.at_many
            .add(row, was_at_many.then_some(end), is_at_many);
        self.at_one
            .add(row, is_at_one(waited).then_some(end), is_at_one(waits));
        match waits {
            Some(MessageWait::AtOne(socket)) => {
                self.at_ones += 1;
                let last = self.last_socket.replace(socket.unwrap_or_default());
                self.at_others += u64::from(last.is_some_and(|last| Some(last) != socket));
            }
            Some(MessageWait::AtMany(at)) => self.vote(at),
            None => {}
        }
    }

    fn is_main(&self, at: Option<u64>) -> bool {
        self.votes == 0 || self.main == at
    }

    /// The majority wins: whoever waits at one more than at all others, has it.
    fn vote(&mut self, at: Option<u64>) {
        if self.votes == 0 {
            self.main = at;
        }
        match self.main == at {
            true => self.votes += 1,
            false => self.votes -= 1,
        }
    }

    /// The turns of this thread; `None` if it takes none, or if it is not known which of its waits are for requests.
    pub fn turns(&self) -> Option<&TurnSums> {
        Some(self.of(self.kind()?))
    }

    /// The turns of a kind that have ended so far.
    pub const fn of(&self, kind: TurnKind) -> &TurnSums {
        &self.series(kind).turns
    }

    const fn series(&self, kind: TurnKind) -> &TurnSeries {
        match kind {
            TurnKind::AtMany => &self.at_many,
            TurnKind::AtOne => &self.at_one,
        }
    }

    /// Which turns are this thread's; `None` where [`Self::turns`] is.
    pub fn kind(&self) -> Option<TurnKind> {
        let many = self.at_many.turns.count();
        let is_at_many = many * 100 >= (many + self.at_ones) * FEWEST_AT_MANY_PCT;
        if many >= FEWEST_TURNS && is_at_many {
            return Some(TurnKind::AtMany);
        }
        let is_known = self.at_others * 100 <= self.at_ones * MOST_OTHERS_PCT;
        let is_many = self.at_one.turns.count() >= FEWEST_TURNS;
        (is_many && is_known).then_some(TurnKind::AtOne)
    }
}

impl TurnSeries {
    /// Adds a row: what ended its wait, if that was one for a message, and whether it waits for one again.
    fn add(&mut self, row: &Switch, ended: Option<MessageEnd>, waits: bool) {
        match ended {
            Some(MessageEnd::Nothing) => {
                self.turns.without_message += 1;
                self.open = None;
            }
            Some(MessageEnd::Message(client)) => {
                let turn = OpenTurn::begun(row, client);
                self.turns.broken += u64::from(turn.is_none());
                self.open = turn;
            }
            None => {
                if self
                    .open
                    .as_mut()
                    .is_some_and(|open| open.add_wait(row).is_none())
                {
                    self.give_up();
                }
            }
        }
        if self
            .open
            .as_mut()
            .is_some_and(|open| open.add_run(row).is_none())
        {
            self.give_up();
        }
        if waits && let Some(open) = self.open.take() {
            self.turns.add_open(&open, row.ts);
        }
    }

    fn give_up(&mut self) {
        self.open = None;
        self.turns.broken += 1;
    }
}

impl TurnSums {
    fn add_open(&mut self, open: &OpenTurn, ended: Timestamp) {
        let length = ended.since(open.began).unwrap_or(Nanos::ZERO);
        let is_whole = self.add(open.task, open.began, length, &open.sum);
        self.perhaps_more += if is_whole { open.by_client } else { 0 };
    }

    /// Adds one that took so long, and what it is made of. If the parts are not the whole, rows in between were lost: then
    /// this returns false, and it is counted apart.
    pub fn add(&mut self, task: TaskKey, began: Timestamp, length: Nanos, sum: &TurnSum) -> bool {
        if length != sum.length() {
            self.broken += 1;
            return false;
        }
        let longest = LongestTurn {
            task,
            began,
            length,
        };
        if self.longest.is_none_or(|known| known.length < length) {
            self.longest = Some(longest);
        }
        self.counted += 1;
        let alike = self.by_length.entry(part_of(length)).or_default();
        alike.merge(sum);
        true
    }

    /// Adds the turns of others.
    pub fn merge(&mut self, other: &Self) {
        for (part, sum) in &other.by_length {
            self.by_length.entry(*part).or_default().merge(sum);
        }
        self.counted += other.counted;
        self.perhaps_more += other.perhaps_more;
        self.broken += other.broken;
        self.without_message += other.without_message;
        let both = [self.longest, other.longest].into_iter().flatten();
        self.longest = both.max_by_key(|longest| longest.length);
    }

    /// The number of turns.
    pub const fn count(&self) -> u64 {
        self.counted
    }

    /// All of them, and those of them that took longest: about `percent` of all, and more where others are as long.
    pub fn slowest(&self, percent: f64) -> (TurnSum, TurnSum) {
        let mut all = TurnSum::default();
        self.by_length.values().for_each(|sum| all.merge(sum));
        let mut slowest = TurnSum::default();
        for sum in self.by_length.values().rev() {
            #[expect(clippy::cast_precision_loss, reason = "a share of counts")]
            if slowest.turns as f64 * 100.0 >= percent * all.turns as f64 {
                break;
            }
            slowest.merge(sum);
        }
        (all, slowest)
    }

    /// The length that `percent` of all do not exceed, within 4 %; `None` without turns.
    pub fn percentile(&self, percent: f64) -> Option<Nanos> {
        let all = self.count();
        let mut seen = 0;
        let (_, sum) = self.by_length.iter().find(|(_, sum)| {
            seen += sum.turns;
            #[expect(clippy::cast_precision_loss, reason = "a share of counts")]
            let is_there = seen as f64 * 100.0 >= percent * all as f64;
            is_there
        })?;
        Some(Nanos::from_ns(sum.length().as_ns() / sum.turns.max(1)))
    }
}

/// The part of an octave that a length is in: numbers rise with lengths.
fn part_of(length: Nanos) -> u32 {
    let ns = length.as_ns();
    let exact = u64::from(PARTS_OF_OCTAVE);
    if ns < exact {
        return u32::try_from(ns).unwrap_or(u32::MAX);
    }
    let octave = ns.ilog2();
    let part = (ns >> (octave - PARTS_OF_OCTAVE.ilog2())) & (exact - 1);
    let first = (octave - PARTS_OF_OCTAVE.ilog2() + 1) * PARTS_OF_OCTAVE;
    first + u32::try_from(part).unwrap_or(0)
}

#[cfg(test)]
mod tests;
