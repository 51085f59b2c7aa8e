//! Turns of threads: from a message that ended a wait to the next wait for one. Where each message is a request, and the
//! answer is sent before the next is waited for, a turn is what a request took in this thread.
//!
//! ```text
//!   waits for a message ─┤ no CPU │ runs │ disk │ no CPU │ runs ├─ waits for a message
//!                        └──────────────── turn ────────────────┘
//! ```
//!
//! Nothing is asked of the program, so a turn is *inferred*: what comes while a thread is busy is served in the same turn,
//! for nothing says where one request ends (where its client took the CPU from it, that is counted: `perhaps_more`); and a wait for several descriptors (`epoll`) is one for the next request,
//! whatever it was for. A wait that the same program ended is in the middle of a turn: PostgreSQL waits for locks where it
//! waits for its clients, and loops for what they have handed to other threads. The parts of a turn sum to its length exactly; a turn of which a row is missing is counted apart.

use std::collections::BTreeMap;

use crate::ids::TaskKey;
use crate::reason::Reason;
use crate::switch::Switch;
use crate::units::{Nanos, Timestamp};

/// Parts of an octave by which lengths are told apart: each is kept within 3 %.
const PARTS_OF_OCTAVE: u32 = 32;

/// From so many turns on a thread is one that takes turns, and from this share of its waits for messages on it does so at
/// many descriptors: `percent` of both.
const FEWEST_TURNS: u64 = 3;
const FEWEST_AT_MANY_PCT: u64 = 5;

/// A thread that waits at several sockets in turn asks others in the middle of a request, and nothing tells which of them
/// its own requests come from: from this share of its waits on.
const MOST_OTHERS_PCT: u64 = 5;

/// What ended a wait for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageEnd {
    /// Others: a client, the network.
    Message,
    /// The same program: a result of what was handed to another thread, a lock that is free. What was begun goes on.
    Own,
    /// A limit, a clock, or what was not seen.
    Nothing,
}

/// Where a thread waits for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageWait {
    /// At several descriptors, by a call as `epoll_wait`.
    AtMany,
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
    /// Where it has waited since its last row.
    waits: Option<MessageWait>,
    at_many: TurnSeries,
    at_one: TurnSeries,
    /// The number of its waits at one socket, and of those that were at another than the one before.
    at_ones: u64,
    at_others: u64,
    last_socket: Option<u64>,
}

/// Turns that begin and end with waits of one kind.
#[derive(Clone, Debug, Default)]
struct TurnSeries {
    open: Option<OpenTurn>,
    /// A turn that has ended unless its own program goes on with it, and when.
    ended: Option<(OpenTurn, Timestamp)>,
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
    /// Adds a wait of which both parts are known.
    fn add_wait(&mut self, row: &Switch) -> Option<()> {
        let blocked = row.wait.blocked()?;
        self.sum.add_blocked(row.wait.reason?, blocked);
        self.sum.no_cpu += row.wait.runq?;
        Some(())
    }
}

/// Turns by their lengths.
#[derive(Clone, Debug, Default)]
pub struct TurnSums {
    by_length: BTreeMap<u32, TurnSum>,
    counted: u64,
    /// How often a turn was interrupted by the task whose message had begun it: perhaps that had its answer, and the next
    /// message came while the thread waited for a CPU.
    pub perhaps_more: u64,
    /// Turns of which a row is missing.
    pub broken: u64,
    /// Waits that ended without a message: by a limit, or a clock.
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
        let blocked: Nanos = self.blocked.iter().map(|(_, time)| *time).sum();
        self.ran + self.no_cpu + blocked
    }

    fn add_blocked(&mut self, reason: Reason, time: Nanos) {
        match self.blocked.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, sum)) => *sum += time,
            None if time > Nanos::ZERO => self.blocked.push((reason, time)),
            None => {}
        }
    }

    fn merge(&mut self, other: &Self) {
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
        let waited = std::mem::replace(&mut self.waits, waits);
        let is_at_many = |wait: Option<MessageWait>| wait == Some(MessageWait::AtMany);
        let is_at_one = |wait| matches!(wait, Some(MessageWait::AtOne(_)));
        let ended = |is_it: bool| is_it.then_some(end);
        self.at_many
            .add(row, ended(is_at_many(waited)), is_at_many(waits));
        self.at_one
            .add(row, ended(is_at_one(waited)), is_at_one(waits));
        if let Some(MessageWait::AtOne(socket)) = waits {
            self.at_ones += 1;
            let last = self.last_socket.replace(socket.unwrap_or_default());
            self.at_others += u64::from(last.is_some_and(|last| Some(last) != socket));
        }
    }

    /// After the last row: with nothing more to come, what has ended has.
    pub fn finish(&mut self) {
        self.at_many.close();
        self.at_one.close();
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
        if ended == Some(MessageEnd::Own)
            && let Some((turn, _)) = self.ended.take()
        {
            self.open = Some(turn);
        } else if let Some(ended) = ended {
            self.close();
            self.open = self.begun(row, ended);
        }
        let goes_on = ended.is_none_or(|ended| ended == MessageEnd::Own);
        let is_older = |open: &&mut OpenTurn| open.sum.switches > 0;
        if let Some(open) = self.open.as_mut().filter(is_older)
            && goes_on
            && open.add_wait(row).is_none()
        {
            // A row before this one is missing.
            self.give_up();
        }
        match (&mut self.open, row.ran) {
            (Some(open), Some(ran)) => {
                let is_by_client = row.rule.reason == Reason::Wakeup
                    && row.next_task.is_some()
                    && row.next_task == open.client;
                open.by_client += u64::from(is_by_client);
                open.sum.ran += ran;
                open.sum.switches += 1;
            }
            (Some(_), None) => self.give_up(),
            (None, _) => {}
        }
        if waits {
            self.ended = self.open.take().map(|open| (open, row.ts));
        }
    }

    /// Counts the turn that has ended.
    fn close(&mut self) {
        if let Some((turn, at)) = self.ended.take() {
            self.turns.add(turn, at);
        }
    }

    fn begun(&mut self, row: &Switch, ended: MessageEnd) -> Option<OpenTurn> {
        if ended == MessageEnd::Nothing {
            self.turns.without_message += 1;
            return None;
        }
        let runq = row.wait.runq?;
        let sum = TurnSum {
            turns: 1,
            no_cpu: runq,
            ..TurnSum::default()
        };
        let began = row.ts.before(row.ran?).before(runq);
        Some(OpenTurn {
            task: row.task,
            client: row.wait.wakeup.waker,
            by_client: 0,
            began,
            sum,
        })
    }

    fn give_up(&mut self) {
        self.open = None;
        self.turns.broken += 1;
    }
}

impl TurnSums {
    fn add(&mut self, open: OpenTurn, ended: Timestamp) {
        let length = ended.since(open.began);
        // If the parts are not the whole, rows in between were lost.
        let Some(length) = length.filter(|length| *length == open.sum.length()) else {
            self.broken += 1;
            return;
        };
        let longest = LongestTurn {
            task: open.task,
            began: open.began,
            length,
        };
        if self.longest.is_none_or(|known| known.length < length) {
            self.longest = Some(longest);
        }
        self.counted += 1;
        self.perhaps_more += open.by_client;
        self.by_length
            .entry(part_of(length))
            .or_default()
            .merge(&open.sum);
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

    /// The length that `percent` of all do not exceed, within 3 %; `None` without turns.
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
