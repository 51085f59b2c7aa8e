//! Findings about tasks that blocked, and for what.

use std::cmp::Reverse;

use swtch_core::{Nanos, Reason};

use super::super::tally::Tally;
use super::super::wait::ObjectKind;
use super::super::waker::Waker;
use super::{
    Finding, MOST_PCT, Picture, Subject, is_often, main_of, percent, share, stands_out, typical,
};
use crate::text::counted;

/// A share of waits on one futex word that makes it worth naming.
const WORD_PCT: f64 = 25.0;

/// Messages that are answered within this are a conversation, not a wait for work.
const CONVERSATION: Nanos = Nanos::from_ns(100_000);

/// Sleeps shorter than this look like polling.
const POLLING_SLEEP: Nanos = Nanos::from_ns(10_000_000);

impl Picture<'_> {
    pub(super) fn futex(&self, total: &Tally) -> Option<Finding> {
        let one = self.reasons.of(Reason::Futex);
        let objects = self.objects.ranked();
        let words = objects
            .iter()
            .filter(|(object, _)| object.kind == ObjectKind::Futex);
        let (word, waited) = words
            .max_by_key(|(object, waited)| (waited.switches, waited.blocked, Reverse(*object)))?;
        let is_lock = percent(waited.woken_by_waiter, waited.woken_by_task)? >= MOST_PCT
            && waited.waiters > 1;
        // A worker blocked for work to do loses nothing by it; one blocked for a lock does.
        let time = if is_lock { waited.blocked } else { Nanos::ZERO };
        let is_one = percent(waited.switches, one.tally.switches)? >= WORD_PCT;
        if !is_one || !stands_out(waited.switches, time, total) {
            return None;
        }
        let process = self.names.process(word.process).label();
        let wakers = waited
            .last_wakers
            .iter()
            .map(|waker| waker.label(self.names));
        let mut places = self.places(Reason::Futex);
        places.push(format!(
            "last woken by {}",
            wakers.collect::<Vec<_>>().join(", ")
        ));
        let advice = if is_lock {
            format!(
                "{} of its wakeups came from threads that wait for it too, as with a lock: hold \
                 it shorter, or split it",
                share(waited.woken_by_waiter, waited.woken_by_task)
            )
        } else {
            "its wakers do not wait for it, as with a hand-over of work: hand over more at once"
                .to_owned()
        };
        Some(Finding {
            name: if is_lock {
                "futex_contention"
            } else {
                "futex_hand_over"
            },
            subject: Subject::Object(*word),
            switches: waited.switches,
            time,
            seen: format!(
                "One futex word, {:#x} in {process}: {} ({} of all, {} of those for a futex) by {}, \
                 blocked {} in all.",
                word.key,
                counted(waited.switches, "switch-out"),
                share(waited.switches, total.switches),
                share(waited.switches, one.tally.switches),
                counted(waited.waiters, "thread"),
                waited.blocked,
            ),
            places,
            advice: Some(advice),
        })
    }

    pub(super) fn pipe(&self, total: &Tally) -> Option<Finding> {
        self.conversation("pipe_conversation", Reason::Pipe, "a pipe", total)
    }

    pub(super) fn net(&self, total: &Tally) -> Option<Finding> {
        self.conversation("socket_conversation", Reason::Net, "a socket", total)
    }

    pub(super) fn ipc(&self, total: &Tally) -> Option<Finding> {
        let what = "a semaphore, message queue or eventfd";
        self.conversation("ipc_conversation", Reason::Ipc, what, total)
    }

    pub(super) fn poll(&self, total: &Tally) -> Option<Finding> {
        self.conversation(
            "poll_conversation",
            Reason::Poll,
            "any of several files",
            total,
        )
    }

    /// Short waits for messages from other tasks: each message costs a switch.
    fn conversation(
        &self,
        name: &'static str,
        reason: Reason,
        what: &str,
        total: &Tally,
    ) -> Option<Finding> {
        let one = self.reasons.of(reason);
        let is_short = one
            .off
            .percentile(50.0)
            .is_some_and(|median| median < CONVERSATION);
        if !is_short || !is_often(one.tally.switches, total) {
            return None;
        }
        let mut places = self.places(reason);
        places.extend(self.wake_pairs());
        Some(Finding {
            name,
            subject: Subject::Reason(reason),
            switches: one.tally.switches,
            time: Nanos::ZERO,
            seen: format!(
                "Short waits for {what}: {}, each over after {} (median), with {} of work before.",
                self.switches(&one.tally, total),
                typical(&one.off),
                typical(&one.run),
            ),
            places,
            advice: Some(
                "each message costs a switch: send or take several at once, or let one thread do \
                 both jobs"
                    .to_owned(),
            ),
        })
    }

    pub(super) fn sleep(&self, total: &Tally) -> Option<Finding> {
        let one = self.reasons.of(Reason::Sleep);
        let is_short = one
            .off
            .percentile(50.0)
            .is_some_and(|median| median < POLLING_SLEEP);
        if !is_short || !is_often(one.tally.switches, total) {
            return None;
        }
        Some(Finding {
            name: "short_sleeps",
            subject: Subject::Reason(Reason::Sleep),
            switches: one.tally.switches,
            time: Nanos::ZERO,
            seen: format!(
                "Short sleeps: {}, of {} (median).",
                self.switches(&one.tally, total),
                typical(&one.off)
            ),
            places: self.places(Reason::Sleep),
            advice: Some(
                "if they wait for something to happen, wait for the event itself (futex, eventfd, \
                 epoll) instead of looking again and again"
                    .to_owned(),
            ),
        })
    }

    pub(super) fn io(&self, total: &Tally) -> Option<Finding> {
        let advice = "read ahead, ask for more at once, or let the program do something else \
                      meanwhile (io_uring, threads)";
        self.blocked(
            "block_io",
            Reason::Io,
            "Blocked for files and disks",
            advice,
            total,
        )
    }

    pub(super) fn fault(&self, total: &Tally) -> Option<Finding> {
        let advice = "in no call: a page had to come from a file (MAP_POPULATE, madvise, mlock); \
                      in mmap, munmap or madvise: threads wait for the address space's lock";
        self.blocked("memory", Reason::Fault, "Blocked for memory", advice, total)
    }

    /// Blocked time that a program can seldom use.
    fn blocked(
        &self,
        name: &'static str,
        reason: Reason,
        what: &str,
        advice: &str,
        total: &Tally,
    ) -> Option<Finding> {
        let one = self.reasons.of(reason);
        if !stands_out(one.tally.switches, one.tally.blocked, total) {
            return None;
        }
        Some(Finding {
            name,
            subject: Subject::Reason(reason),
            switches: one.tally.switches,
            time: one.tally.blocked,
            seen: format!(
                "{what}: {}, {} in all, {} each (median).",
                self.switches(&one.tally, total),
                one.tally.blocked,
                typical(&one.off),
            ),
            places: self.places(reason),
            advice: Some(advice.to_owned()),
        })
    }

    /// Tasks that wake tasks, most often first.
    fn wake_pairs(&self) -> Option<String> {
        let mut pairs = self.wakers.ranked();
        pairs.retain(|((waker, _), _)| matches!(waker, Waker::Task(_)));
        let all: u64 = pairs.iter().map(|(_, woken)| woken.waits).sum();
        let named = pairs.iter().map(|((waker, task), woken)| {
            let (waker, task) = (waker.label(self.names), self.names.label(*task));
            let times = counted(woken.waits, "time");
            (format!("{waker} → {task} {times}"), woken.waits)
        });
        Some(format!("main wakeups: {}", main_of(named, all)?))
    }
}
