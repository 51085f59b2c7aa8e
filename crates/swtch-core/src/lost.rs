//! Sums up where the time of threads went, which is what a verdict stands on.
//!
//! ```text
//!  a thread's time   ├─ running ─┤├─ could run, no CPU ─┤├─ blocked ─────────────────────────────────┤
//!                                                          in the middle of work (disk, memory, a lock)
//!                                                          for its own threads or processes
//!                                                          for others: work or an answer, not known which
//!                                                          until a time that it chose
//!                                                          not told
//! ```
//!
//! The parts sum to the whole, and open waits are in them. Time is *lost* where a thread could have worked:
//! without a CPU, or blocked in the middle of work. How often threads switch is another question.
//!
//! What a blocked thread waits for is decided by why it left and by who ended the wait, never by a name. What
//! ends only when the sums are known, whether an object is a lock, is corrected later
//! ([`LostTime::was_for_a_lock`]).

use crate::reason::{Category, Reason};
use crate::switch::{Open, Switch};
use crate::units::Nanos;

/// The thing that ended a wait, seen from the thread that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ender {
    /// A thread of the same program.
    Own,
    /// A thread of another program.
    Other,
    /// A timer: the wait's own limit, or a clock that the thread had set.
    Timer,
    /// Another interrupt: a device, or a packet.
    Interrupt,
    /// Nothing was seen to end it.
    Unseen,
}

/// The thing that a blocked thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AwaitedThing {
    /// It is in the middle of work: a disk, memory, a lock.
    Work,
    /// Threads or processes of its own program: work from them, a result, their end.
    Own,
    /// Others: work from them, or an answer. Nothing tells which.
    Others,
    /// A time that it chose: a sleep, a limit.
    Clock,
    /// Not told.
    Untold,
}

impl AwaitedThing {
    /// All things that tasks wait for, in order.
    pub const ALL: [Self; 5] = [
        Self::Work,
        Self::Own,
        Self::Others,
        Self::Clock,
        Self::Untold,
    ];

    /// Returns what a thread that left for this reason waited for, by what ended the wait.
    pub const fn of(reason: Reason, ender: Ender) -> Self {
        match reason {
            Reason::Io | Reason::Fault | Reason::Lock | Reason::Stop | Reason::Migrate => {
                return Self::Work;
            }
            // Who waits for a signal waits for whoever sends it.
            Reason::Sleep if !matches!(ender, Ender::Own | Ender::Other) => return Self::Clock,
            Reason::Child => return Self::Own,
            _ => {}
        }
        match (reason.category(), ender) {
            (Category::Preemption | Category::Unknown | Category::Exit, _) => Self::Untold,
            (_, Ender::Own) => Self::Own,
            (_, Ender::Other | Ender::Interrupt) => Self::Others,
            (_, Ender::Timer) => Self::Clock,
            (_, Ender::Unseen) => Self::Untold,
        }
    }
}

/// The time of some threads, by where it went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostTime {
    /// On a CPU.
    pub ran: Nanos,
    /// Runnable, without a CPU.
    pub no_cpu: Nanos,
    /// Of [`Self::no_cpu`], in waits that were open at the end.
    pub no_cpu_at_end: Nanos,
    /// Number of threads that had no CPU at the end.
    pub waiting_at_end: u64,
    /// Time of workers of a runtime's scheduler (goroutines) at its locks, and of those that could run and had no thread: no
    /// thread's time.
    pub workers: Nanos,
    blocked: [Nanos; AwaitedThing::ALL.len()],
}

impl LostTime {
    /// Adds a run.
    pub fn add_run(&mut self, ran: Nanos) {
        self.ran += ran;
    }

    /// Adds the wait before a row's run.
    pub fn add_wait(&mut self, row: &Switch, ender: Ender) {
        let Some(length) = row.wait.length() else {
            return;
        };
        let Some(runq) = row.wait.runq else {
            *self.blocked_mut(AwaitedThing::Untold) += length;
            return;
        };
        self.no_cpu += runq;
        let blocked = length.saturating_sub(runq);
        let reason = row.wait.reason.unwrap_or(Reason::Unknown);
        *self.blocked_mut(AwaitedThing::of(reason, ender)) += blocked;
    }

    /// Adds a run or a wait that no row tells.
    pub fn add_open(&mut self, open: &Open) {
        let Some(reason) = open.reason else {
            self.ran += open.lasted;
            return;
        };
        let runq = open.runq.unwrap_or(Nanos::ZERO);
        self.no_cpu += runq;
        self.no_cpu_at_end += runq;
        self.waiting_at_end += u64::from(runq > Nanos::ZERO);
        // What will end it is not known.
        let awaited = AwaitedThing::of(reason, Ender::Unseen);
        *self.blocked_mut(awaited) += open.lasted.saturating_sub(runq);
    }

    /// So much of the time for own threads was for a lock, and so in the middle of work. Who looks from time to
    /// time whether it is free, as Python's threads do, has waited until a time it chose.
    pub fn was_for_a_lock(&mut self, time: Nanos) {
        self.was_in_work(time, &[AwaitedThing::Own, AwaitedThing::Clock]);
    }

    /// So much of the time for these was in the middle of work; it is taken from the first of them, as far as that
    /// goes.
    pub fn was_in_work(&mut self, time: Nanos, from: &[AwaitedThing]) {
        let mut left = time;
        for awaited in from.iter().copied() {
            let part = self.blocked_mut(awaited);
            let moved = left.min(*part);
            *part = part.saturating_sub(moved);
            left = left.saturating_sub(moved);
            *self.blocked_mut(AwaitedThing::Work) += moved;
        }
    }

    /// Returns how long threads were blocked for this.
    pub const fn blocked(&self, awaited: AwaitedThing) -> Nanos {
        self.blocked[awaited as usize]
    }

    const fn blocked_mut(&mut self, awaited: AwaitedThing) -> &mut Nanos {
        &mut self.blocked[awaited as usize]
    }

    /// Time in which threads and workers could have worked and did not.
    pub fn lost(&self) -> Nanos {
        self.no_cpu + self.blocked(AwaitedThing::Work) + self.workers
    }

    /// Time in which there was work: done or lost.
    pub fn at_work(&self) -> Nanos {
        self.ran + self.lost()
    }

    /// All of the time of threads: on a CPU, without one, and blocked.
    pub fn whole(&self) -> Nanos {
        let blocked: Nanos = self.blocked.iter().copied().sum();
        self.ran + self.no_cpu + blocked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TaskKey;
    use crate::units::Timestamp;

    fn open(reason: Option<Reason>, lasted: u64, runq: Option<u64>) -> Open {
        Open {
            task: TaskKey::new(1),
            reason,
            since: Timestamp::from_ns(0),
            lasted: Nanos::from_ns(lasted),
            runq: runq.map(Nanos::from_ns),
            cpu: None,
        }
    }

    /// Starved for 70 of 100, a run of 40, asleep, and an idle thread of which nothing else is known.
    #[test]
    fn open_times_are_in_the_parts_and_the_parts_are_the_whole() {
        let mut time = LostTime::default();
        time.add_open(&open(Some(Reason::Futex), 100, Some(70)));
        time.add_open(&open(None, 40, None));
        time.add_open(&open(Some(Reason::Sleep), 50, None));
        time.add_open(&open(Some(Reason::Poll), 60, None));
        assert_eq!((time.no_cpu.as_ns(), time.waiting_at_end), (70, 1));
        assert_eq!((time.ran.as_ns(), time.lost().as_ns()), (40, 70));
        let blocked = AwaitedThing::ALL.map(|awaited| time.blocked(awaited).as_ns());
        assert_eq!(blocked, [0, 0, 0, 50, 90]);
        assert_eq!(time.whole().as_ns(), 250);
    }

    #[test]
    fn who_ended_a_wait_tells_what_it_was_for() {
        let of = AwaitedThing::of;
        assert_eq!(of(Reason::Futex, Ender::Timer), AwaitedThing::Clock);
        assert_eq!(of(Reason::Futex, Ender::Own), AwaitedThing::Own);
        assert_eq!(of(Reason::Poll, Ender::Interrupt), AwaitedThing::Others);
        assert_eq!(of(Reason::Io, Ender::Interrupt), AwaitedThing::Work);
        assert_eq!(of(Reason::Sleep, Ender::Timer), AwaitedThing::Clock);
        assert_eq!(of(Reason::Sleep, Ender::Own), AwaitedThing::Own);
        assert_eq!(of(Reason::Blocked, Ender::Unseen), AwaitedThing::Untold);
    }

    #[test]
    fn time_at_a_lock_is_taken_from_that_for_own_threads_and_no_more() {
        let mut time = LostTime::default();
        *time.blocked_mut(AwaitedThing::Own) = Nanos::from_ns(30);
        *time.blocked_mut(AwaitedThing::Clock) = Nanos::from_ns(5);
        *time.blocked_mut(AwaitedThing::Others) = Nanos::from_ns(9);
        time.was_for_a_lock(Nanos::from_ns(40));
        assert_eq!(time.blocked(AwaitedThing::Work).as_ns(), 35);
        assert_eq!(time.whole().as_ns(), 44);
    }
}
