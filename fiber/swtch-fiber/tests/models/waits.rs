//! One wait and its end; the way of a worker to its scheduler; a scheduler that falls asleep.

use std::sync::atomic::AtomicUsize as Count;

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use loom::thread;

use crate::check;
use crate::park::{Deadline, WaitOutcome, Waiter};
use crate::scheduler::asleep::Asleep;
use crate::scheduler::inbox::Inbox;
use crate::scheduler::worker::{Phase, WorkerCell};
use crate::sync::wait_queue::{Cancelling, WaitQueue};
use crate::wait_type::WaitType;

fn armed() -> Waiter {
    let cell = WorkerCell::take(None);
    Waiter {
        cell,
        ticket: cell.wait.arm(false),
    }
}

/// If two threads ended the same wait, the worker would be in two queues; if none did, it would
/// sleep on.
#[test]
fn of_signal_deadline_and_cancellation_one_wins() {
    check(4, || {
        let waiter = armed();
        let ends = [Phase::Signalled, Phase::TimedOut, Phase::Cancelled];
        let threads = ends.map(|phase| thread::spawn(move || waiter.end(phase)));
        let won = threads.map(|thread| thread.join().expect("no panic"));
        assert_eq!(won.iter().filter(|won| **won).count(), 1);
        let place = won.iter().position(|won| *won).expect("one");
        assert_eq!(waiter.cell.wait.phase(), ends[place]);
    });
}

/// A signaller that is one wait late must not end the next one.
#[test]
fn a_late_signal_does_not_end_the_next_wait() {
    check(4, || {
        let waiter = armed();
        let late = thread::spawn(move || waiter.end(Phase::Signalled));
        let timed_out = waiter.end(Phase::TimedOut);
        if timed_out {
            let next = waiter.cell.wait.arm(false);
            assert!(
                !late.join().expect("no panic"),
                "it ended a wait it did not mean"
            );
            assert!(waiter.cell.wait.is_open(next));
        } else {
            assert!(late.join().expect("no panic"));
        }
    });
}

/// The worker arms and reads the flag, the canceller sets the flag and looks for a wait. One must
/// see the other, otherwise the task sleeps on although it was cancelled.
#[test]
fn a_task_that_is_cancelled_while_it_arms_hears_of_it() {
    check(4, || {
        let cell = WorkerCell::take(None);
        let flag = Arc::new(AtomicBool::new(false));
        let asked = flag.clone();
        let canceller = thread::spawn(move || {
            // As `Control::cancel` in `task.rs`.
            asked.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            cell.wait.open_ticket().is_some()
        });
        cell.wait.arm(false);
        let sees_the_flag = flag.load(Ordering::Relaxed);
        let sees_the_wait = canceller.join().expect("no panic");
        assert!(sees_the_flag || sees_the_wait);
    });
}

/// A worker that is lost on its way to the scheduler never runs again.
#[test]
fn the_inbox_loses_nobody() {
    check(3, || {
        let inbox = Arc::new(Inbox::new());
        let pushers = [0, 1].map(|_| {
            let inbox = inbox.clone();
            thread::spawn(move || inbox.push(WorkerCell::take(None)))
        });
        let mut taken = inbox.take().count();
        for pusher in pushers {
            pusher.join().expect("no panic");
        }
        taken += inbox.take().count();
        assert_eq!(taken, 2);
    });
}

/// The model ends only if the sleeper is woken or sees what was pushed: if all sleep, `loom`
/// reports a deadlock.
#[test]
fn a_scheduler_does_not_fall_asleep_over_a_signal() {
    check(4, || {
        let shared = Arc::new((Inbox::new(), Asleep::new(), loom::sync::Notify::new()));
        let theirs = shared.clone();
        let waker = thread::spawn(move || {
            let (inbox, asleep, bell) = &*theirs;
            inbox.push(WorkerCell::take(None));
            if asleep.must_be_woken() {
                bell.notify();
            }
        });
        let (inbox, asleep, bell) = &*shared;
        loop {
            asleep.announce();
            if inbox.is_empty() {
                bell.wait();
            }
            asleep.end();
            if inbox.take().count() == 1 {
                break;
            }
        }
        waker.join().expect("no panic");
    });
}

/// The model ends only if who waits in the queue is woken or sees the condition, which itself may be set
/// without any ordering.
#[test]
fn who_waits_for_a_condition_hears_of_it() {
    check(3, || {
        let shared = Arc::new((WaitQueue::new(), AtomicBool::new(false)));
        let theirs = shared.clone();
        let signaller = thread::spawn(move || {
            theirs.1.store(true, Ordering::Relaxed);
            theirs.0.signal_all();
        });
        let ready = || shared.1.load(Ordering::Relaxed);
        let wake = shared
            .0
            .wait_until((WaitType::EVENT, 0), None, Cancelling::Ends, ready);
        assert_eq!(wake, WaitOutcome::Signalled);
        signaller.join().expect("no panic");
    });
}

/// One of two waiters gives up while one signal comes: the other one must get it.
#[test]
fn a_waiter_that_gives_up_swallows_no_signal() {
    static TIMED_OUT: Count = Count::new(0);
    check(3, || {
        let shared = Arc::new((WaitQueue::new(), AtomicUsize::new(0)));
        let take = |shared: &(WaitQueue, AtomicUsize), deadline| {
            let taken = || {
                let order = (Ordering::AcqRel, Ordering::Relaxed);
                shared.1.compare_exchange(1, 0, order.0, order.1).is_ok()
            };
            shared
                .0
                .wait_until((WaitType::EVENT, 0), deadline, Cancelling::Ends, taken)
        };
        let (patient, hasty) = (shared.clone(), shared.clone());
        let hasty = thread::spawn(move || take(&hasty, Some(Deadline)));
        let patient = thread::spawn(move || {
            let wake = take(&patient, None);
            assert_eq!(wake, WaitOutcome::Signalled);
        });
        let give = || {
            shared.1.fetch_add(1, Ordering::AcqRel);
            shared.0.signal_one();
        };
        give();
        if hasty.join().expect("no panic") == WaitOutcome::Signalled {
            give();
        } else {
            TIMED_OUT.fetch_add(1, Ordering::Relaxed);
        }
        patient.join().expect("no panic");
    });
    assert!(
        TIMED_OUT.load(Ordering::Relaxed) > 0,
        "the race was never played"
    );
}
