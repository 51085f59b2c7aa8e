//! Findings about tasks that blocked, except for another thread's lock.

use swtch_core::{Arch, Nanos, Reason, Spent, Tally};
use swtch_output::text::counted;

use super::super::group::RowSyscall;
use super::advice::{self, Advice, AdviceText};
use super::who::{WAITED_IN, WaitEnder};
use super::{
    Details, Finding, FindingKind, MOST_PCT, OFTEN_PCT, Subject, VerdictInput, is_often, percent,
    typical,
};

/// Waits for messages that are shorter than this are a conversation; longer ones are waits for
/// work.
const CONVERSATION: Nanos = Nanos::from_ns(100_000);

/// Sleeps shorter than this look like polling.
const POLLING_SLEEP: Nanos = Nanos::from_ns(100_000_000);

/// A thread that has waited in epoll so often is an event loop.
const FEWEST_TURNS: u64 = 3;

/// An event loop waits in epoll this often for each hundred of its other waits: who used epoll once, and waits for jobs
/// at a pipe, is none.
const FEWEST_TURNS_PCT: f64 = 5.0;

/// Calls that wait until data is on the disk.
const COMMITS: [&str; 7] = [
    "fsync",
    "fdatasync",
    "sync",
    "syncfs",
    "sync_file_range",
    "msync",
    "io_uring_enter",
];

/// Calls that wait for data to come from the disk.
const READS: [&str; 6] = [
    "read",
    "pread64",
    "readv",
    "preadv",
    "preadv2",
    "getdents64",
];

impl VerdictInput<'_> {
    pub(super) fn pipe(&self, total: &Tally) -> Option<Finding> {
        self.messages(Reason::Pipe, "on a pipe", total)
    }

    pub(super) fn net(&self, total: &Tally) -> Option<Finding> {
        self.messages(Reason::Net, "on a socket", total)
    }

    pub(super) fn ipc(&self, total: &Tally) -> Option<Finding> {
        self.messages(
            Reason::Ipc,
            "on a semaphore, message queue or eventfd",
            total,
        )
    }

    pub(super) fn poll(&self, total: &Tally) -> Option<Finding> {
        self.messages(Reason::Poll, "in epoll, poll or select", total)
    }

    /// Waits for messages from other tasks, or from outside: each message costs a switch.
    fn messages(&self, reason: Reason, what: &str, total: &Tally) -> Option<Finding> {
        let one = self.reasons.of(reason);
        let tally = self.of_programs(reason);
        let is_much = is_often(tally.switches, total) || self.is_long(tally.blocked);
        let median = one.lengths.off.percentile(50.0).filter(|_| is_much)?;
        let places = self.places_and_wakers(reason);
        let switches = self.switches(&tally, total);
        let (kind, seen, advice) = if median < CONVERSATION {
            (
                MessagePattern::Conversation,
                format!(
                    "Short waits {what}: {switches}, each over after {median} (median), with {} of work \
                     before.",
                    typical(&one.lengths.run),
                ),
                advice::CONVERSATION.told(),
            )
        } else {
            let until = match reason {
                Reason::Ipc => "posts",
                _ if self.is_mostly_for_room(reason) => "reads",
                _ => "sends",
            };
            (
                MessagePattern::Idle,
                format!(
                    "Waiting {what} until somebody {until}: {switches}, each {median} (median), {} in all.",
                    tally.blocked,
                ),
                self.advice_on_waiting(reason),
            )
        };
        Some(Finding {
            name: kind.name(reason),
            kind: FindingKind::Frequent,
            reason: Some(reason),
            subject: Subject::Reason(reason),
            switches: tally.switches,
            time: Nanos::ZERO,
            seen,
            places,
            advice: Some(advice),
        })
    }

    /// Returns true if most switches for this reason were in calls that hand over data.
    fn is_mostly_for_room(&self, reason: Reason) -> bool {
        let calls = self.calls_of(reason);
        let all: u64 = calls.iter().map(|(_, count)| count).sum();
        let hands_over = |call: &RowSyscall| match call {
            RowSyscall::Number(number) => self.arch.is_some_and(|arch| arch.hands_over(*number)),
            _ => false,
        };
        let writes = calls.iter().filter(|(call, _)| hands_over(call));
        let writes = writes.map(|(_, count)| count).sum();
        percent(writes, all).is_some_and(|share| share >= MOST_PCT)
    }

    /// Advice for tasks that wait for another side: who ends their waits decides what helps.
    fn advice_on_waiting(&self, reason: Reason) -> AdviceText {
        let enders = self.wakers_in(self.details.ends_of(reason));
        let all: u64 = enders.iter().map(|(_, count)| count).sum();
        let main = enders.first();
        let main =
            main.filter(|(_, count)| percent(*count, all).is_some_and(|pct| pct >= OFTEN_PCT));
        let whom = match main.map(|main| &main.0) {
            Some(WaitEnder::Timer) => {
                return advice::TIMED_OUT.told();
            }
            Some(WaitEnder::Task(label)) => label,
            Some(WaitEnder::Interrupt) => "whoever sends over the network",
            None => "whom it waits for",
        };
        advice::OTHER_SIDE.told_with(&[("whom", whom)])
    }

    pub(super) fn sleep(&self, total: &Tally) -> Option<Finding> {
        let one = self.reasons.of(Reason::Sleep);
        let tally = self.of_programs(Reason::Sleep);
        let median = one.lengths.off.percentile(50.0)?;
        let is_polling = median < POLLING_SLEEP && is_often(tally.switches, total);
        if !is_polling && !is_often(tally.switches, total) && !self.is_long(tally.blocked) {
            return None;
        }
        let switches = self.switches(&tally, total);
        let (name, seen, advice) = if is_polling {
            (
                "short_sleeps",
                format!("Short sleeps: {switches}, of {median} (median)."),
                Some(advice::POLLING.told()),
            )
        } else {
            (
                "sleeps",
                format!(
                    "Asleep on purpose: {switches}, of {median} (median), {} in all.",
                    tally.blocked
                ),
                None,
            )
        };
        let at_work = self.asleep_at_work(tally.blocked);
        Some(Finding {
            name: if at_work.is_some() {
                "sleeps_at_work"
            } else {
                name
            },
            kind: FindingKind::Frequent,
            reason: Some(Reason::Sleep),
            subject: Subject::Reason(Reason::Sleep),
            switches: tally.switches,
            time: Nanos::ZERO,
            seen,
            advice: at_work.as_ref().map(|_| advice::ASLEEP.told()).or(advice),
            places: at_work
                .into_iter()
                .chain(self.places(Reason::Sleep))
                .collect(),
        })
    }

    /// Says so if most of this sleep was in threads that serve others: whoever comes meanwhile has to wait.
    pub(super) fn asleep_at_work(&self, all: Nanos) -> Option<String> {
        let asleep = |task: usize| {
            let seen = &self.details.seen[task];
            if seen.serves_others() {
                seen.asleep
            } else {
                Nanos::ZERO
            }
        };
        let sum: Nanos = (0..self.names.thread_count()).map(asleep).sum();
        percent(sum.as_ns(), all.as_ns()).filter(|share| *share >= MOST_PCT)?;
        let who = self.longest(asleep, "").unwrap_or_default();
        Some(format!(
            "of that, {sum} in threads that at other times wait for others, as an event loop does, or a worker ({who}): \
             what comes while they sleep has to wait"
        ))
    }

    pub(super) fn io(&self, total: &Tally) -> Option<Finding> {
        let calls = self.calls_of(Reason::Io);
        let all: u64 = calls.iter().map(|(_, count)| count).sum();
        let is_mostly = |names: &[&str]| {
            let is_one = |call: &RowSyscall| names.contains(&call.name(self.arch).as_str());
            let count = calls
                .iter()
                .filter(|(call, _)| is_one(call))
                .map(|(_, count)| count)
                .sum();
            percent(count, all).is_some_and(|share| share >= MOST_PCT)
        };
        let (what, advice) = if is_mostly(&COMMITS) {
            (
                "Waiting until data is on the disk (commit)",
                &advice::COMMIT,
            )
        } else if is_mostly(&READS) {
            ("Waiting for data from files and disks", &advice::READ)
        } else {
            ("Blocked in file system calls", &advice::FILE_CALL)
        };
        let mut finding = self.blocked("block_io", Reason::Io, what, advice, total)?;
        finding.places.extend(self.busiest_disk(Reason::Io));
        Some(finding)
    }

    pub(super) fn fault(&self, total: &Tally) -> Option<Finding> {
        let limit = self.memory_limit();
        let advice = match limit {
            Some(_) => &advice::MEMORY_LIMIT,
            None => &advice::MEMORY,
        };
        let what = "Blocked for memory";
        let mut finding = self.blocked("memory", Reason::Fault, what, advice, total)?;
        finding.places.extend(limit);
        finding.places.extend(self.busiest_disk(Reason::Fault));
        Some(finding)
    }

    /// Waits for the kernel's own locks: those of files and address spaces are the program's doing.
    pub(super) fn kernel_lock(&self, total: &Tally) -> Option<Finding> {
        let rules = self.details.rules_of(Reason::Lock);
        let all: u64 = rules.iter().map(|(_, count)| count).sum();
        let is_mostly = |names: &[&str]| {
            let of_them = rules.iter().filter(|(rule, _)| names.contains(&rule.name));
            let count = of_them.map(|(_, count)| count).sum();
            percent(count, all).is_some_and(|share| share >= MOST_PCT)
        };
        let (name, what, advice) = if is_mostly(&["inode_lock"]) {
            (
                "file_lock",
                "Threads wait for each other at the lock of a file",
                &advice::FILE_LOCK,
            )
        } else if is_mostly(&["address_space_lock", "memory_call"]) {
            (
                "address_space_lock",
                "Threads wait for each other at the lock of their address space",
                &advice::ADDRESS_SPACE,
            )
        } else {
            (
                "kernel_lock",
                "Waiting for locks of the kernel",
                &advice::KERNEL_LOCK,
            )
        };
        let finding = self.blocked(name, Reason::Lock, what, advice, total)?;
        Some(Finding {
            places: self.places_and_wakers(Reason::Lock),
            ..finding
        })
    }

    /// Event loops that block in the middle of a turn.
    pub(super) fn blocked_loop(&self, total: &Tally) -> Option<Finding> {
        let loops = &self.loops;
        let (kind, time) = self.weighed(loops.time, loops.longest, 0, total)?;
        let threads = counted(
            u64::try_from(loops.tasks.len()).unwrap_or(u64::MAX),
            "thread",
        );
        Some(Finding {
            name: "blocked_loop",
            kind,
            reason: Some(Reason::Net),
            subject: Subject::Time,
            switches: loops.waits,
            time,
            seen: format!(
                "An event loop waits in the middle of its work ({threads}), for one socket or pipe at a time: {}, {}.",
                counted(loops.waits, "wait"),
                self.lost_words(time),
            ),
            places: self
                .longest(|task| self.loop_time(task), "in: ")
                .into_iter()
                .chain(self.places_and_wakers(Reason::Net))
                .collect(),
            advice: Some(advice::LOOP.told()),
        })
    }

    /// Waits in calls that hand over data, until others have read enough of it: there is more to do, and it cannot.
    pub(super) fn no_room(&self, total: &Tally) -> Option<Finding> {
        let waits = &self.details.for_room;
        let weight = self.weighed(waits.sum(), waits.longest, 0, total)?;
        let programs = self.by_program(waits);
        let whom = programs.first().map_or("it", |(label, _)| *label);
        let read_by = self.ended_by_programs(waits);
        let seen = format!(
            "Threads wait until what they wrote to a pipe or a socket has been read, by {whom}: {}.",
            self.lost_words(weight.1)
        );
        Some(Finding {
            places: read_by
                .map(|who| format!("read by: {who}"))
                .into_iter()
                .collect(),
            advice: Some(advice::NO_ROOM.told_with(&[("whom", whom)])),
            ..Finding::of_time("no_room", weight, seen)
        })
    }

    fn loop_time(&self, task: usize) -> Nanos {
        if self.loops.tasks.contains(&task) {
            self.details.seen[task].at_one
        } else {
            Nanos::ZERO
        }
    }

    pub(super) fn stopped(&self, total: &Tally) -> Option<Finding> {
        let what = "Stopped by a signal or a debugger";
        let finding = self.blocked("stopped", Reason::Stop, what, &advice::STOPPED, total)?;
        let lets_go_on = self.wakers_in(self.details.ends_of(Reason::Stop));
        let lets_go_on = lets_go_on.into_iter().find_map(|(ender, _)| match ender {
            WaitEnder::Task(label) => Some(label),
            _ => None,
        });
        Some(match lets_go_on {
            Some(label) => Finding {
                seen: format!("{} Who lets it go on is {label}.", finding.seen),
                ..finding
            },
            None => finding,
        })
    }

    pub(super) fn child(&self, total: &Tally) -> Option<Finding> {
        let what = "Waiting for child processes";
        let tally = self.of_programs(Reason::Child);
        let is_much = is_often(tally.switches, total) || self.is_long(tally.blocked);
        let kind = (FindingKind::Frequent, Nanos::ZERO);
        is_much.then(|| {
            self.waited(
                "children",
                Reason::Child,
                what,
                kind,
                &advice::CHILDREN,
                total,
            )
        })
    }

    pub(super) fn exit(&self, total: &Tally) -> Option<Finding> {
        let tally = self.of_programs(Reason::Exit);
        if !is_often(tally.switches, total) {
            return None;
        }
        Some(Finding {
            name: "short_lives",
            kind: FindingKind::Frequent,
            reason: Some(Reason::Exit),
            subject: Subject::Reason(Reason::Exit),
            switches: tally.switches,
            time: Nanos::ZERO,
            seen: format!(
                "Threads and processes that ended: {}.",
                self.switches(&tally, total)
            ),
            places: self.who(Reason::Exit).into_iter().collect(),
            advice: Some(advice::SHORT_LIVES.told()),
        })
    }

    /// Waits in the middle of work, all of which is lost.
    fn blocked(
        &self,
        name: &'static str,
        reason: Reason,
        what: &str,
        advice: &Advice,
        total: &Tally,
    ) -> Option<Finding> {
        let tally = self.of_programs(reason);
        let spent = match reason {
            Reason::Io => Some(Spent::Disk),
            Reason::Fault => Some(Spent::Memory),
            Reason::Lock => Some(Spent::KernelLock),
            _ => None,
        };
        let through = spent.map_or(Nanos::ZERO, |spent| self.at_locks.through(spent));
        let time = tally.blocked_in_all() + through;
        let weight = self.weighed(time, self.longest_of(&[reason]), tally.switches, total)?;
        let mut finding = self.waited(name, reason, what, weight, advice, total);
        let at_locks = spent.and_then(|spent| self.through_locks(spent, through, time));
        let siblings = spent.and_then(|spent| self.through_siblings(spent, time));
        // The function is what a screen with little room has to show.
        let places = &mut finding.places;
        let in_function = places.iter().position(|place| place.starts_with(WAITED_IN));
        let after = in_function.map_or(0, |place| place + 1);
        places.splice(after..after, at_locks.into_iter().chain(siblings));
        Some(finding)
    }

    fn waited(
        &self,
        name: &'static str,
        reason: Reason,
        what: &str,
        (kind, time): (FindingKind, Nanos),
        advice: &Advice,
        total: &Tally,
    ) -> Finding {
        let one = self.reasons.of(reason);
        let tally = self.of_programs(reason);
        let blocked = match kind {
            FindingKind::Lost => self.lost_words(time),
            FindingKind::Frequent => format!("{} in all", tally.blocked),
        };
        Finding {
            name,
            kind,
            reason: Some(reason),
            subject: Subject::Reason(reason),
            switches: tally.switches,
            time,
            seen: format!(
                "{what}: {}, {blocked}; {} each (median).",
                self.switches(&tally, total),
                typical(&one.lengths.off),
            ),
            places: self.places(reason),
            advice: Some(advice.told()),
        }
    }
}

/// Threads that wait for many at once, by epoll, and at other times for one alone: nothing else is served meanwhile.
#[derive(Debug, Default)]
pub struct BlockedLoops {
    tasks: Vec<usize>,
    /// The time for which they waited for one alone.
    pub(super) time: Nanos,
    waits: u64,
    longest: Nanos,
}

impl BlockedLoops {
    /// After all rows.
    pub fn of(details: &Details, arch: Option<Arch>) -> Self {
        let mut loops = Self::default();
        for (task, seen) in details.seen.iter().enumerate() {
            let call = seen.poll_call.and_then(|call| arch?.syscall_name(call));
            let is_epoll = call.is_some_and(|name| name.starts_with("epoll"));
            let turns = percent(seen.polls, seen.waits_at_one);
            let is_loop = turns.is_some_and(|share| share >= FEWEST_TURNS_PCT);
            if is_epoll && is_loop && seen.polls >= FEWEST_TURNS {
                loops.tasks.push(task);
                loops.time += seen.at_one;
                loops.waits += seen.waits_at_one;
                loops.longest = loops.longest.max(seen.longest_at_one);
            }
        }
        loops
    }
}

/// The pattern of the waits for messages.
enum MessagePattern {
    /// Each message is answered within [`CONVERSATION`].
    Conversation,
    /// Messages are further apart than [`CONVERSATION`].
    Idle,
}

impl MessagePattern {
    /// A stable name for the finding.
    const fn name(&self, reason: Reason) -> &'static str {
        match (self, reason) {
            (Self::Conversation, Reason::Pipe) => "pipe_conversation",
            (Self::Conversation, Reason::Net) => "socket_conversation",
            (Self::Conversation, Reason::Ipc) => "ipc_conversation",
            (Self::Conversation, _) => "poll_conversation",
            (Self::Idle, Reason::Pipe) => "pipe_idle",
            (Self::Idle, Reason::Net) => "socket_idle",
            (Self::Idle, Reason::Ipc) => "ipc_idle",
            (Self::Idle, _) => "poll_idle",
        }
    }
}
