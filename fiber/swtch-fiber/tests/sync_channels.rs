//! Channels: each message goes to one receiver, in order, and none is lost when a wait is given up.

mod sync_common;

use std::time::Duration;

use swtch_fiber::JoinError;
use swtch_fiber::sync::channel::{
    self, RecvError, RecvTimeoutError, SendTimeoutError, TryRecvError, TrySendError,
};
use sync_common::{in_all_shapes, until_waits};

const LONG: Duration = Duration::from_secs(1000);
const SHORT: Duration = Duration::from_millis(3);

/// The capacities differ in how the two sides wait: never, each for the other, sometimes.
#[test]
fn every_message_arrives_once_and_those_of_one_sender_in_order() {
    in_all_shapes(|runtime| {
        for capacity in [0, 1, 3, usize::MAX] {
            let (sender, receiver) = channel::bounded(capacity);
            let senders: Vec<_> = (0..3_u32)
                .map(|name| {
                    let sender = sender.clone();
                    let body = move || {
                        (0..100_u32).for_each(|number| sender.send((name, number)).expect("open"));
                    };
                    runtime.spawn(body).expect("spawned")
                })
                .collect();
            drop(sender);
            let receivers: Vec<_> = (0..2)
                .map(|_| {
                    let receiver = receiver.clone();
                    let body = move || receiver.iter().collect::<Vec<_>>();
                    runtime.spawn(body).expect("spawned")
                })
                .collect();
            // A thread that is not a worker takes part.
            let mut all: Vec<_> = receiver.iter().collect();
            for receiver in receivers {
                let part = receiver.join().expect("no panic");
                for name in 0..3 {
                    let of_one = part.iter().filter(|message| message.0 == name);
                    assert!(of_one.is_sorted(), "capacity {capacity}");
                }
                all.extend(part);
            }
            for sender in senders {
                sender.join().expect("no panic");
            }
            all.sort_unstable();
            let sent: Vec<_> = (0..3)
                .flat_map(|name| (0..100).map(move |number| (name, number)))
                .collect();
            assert_eq!(all, sent, "capacity {capacity}");
        }
    });
}

/// With capacity 0 the sender keeps its message until a receiver takes it.
#[test]
fn at_a_rendezvous_both_sides_meet() {
    in_all_shapes(|runtime| {
        let (sender, receiver) = channel::bounded(0);
        assert_eq!(sender.try_send(1), Err(TrySendError::Full(1)));
        assert_eq!(
            sender.send_timeout(1, SHORT),
            Err(SendTimeoutError::Timeout(1))
        );
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
        let theirs = receiver.clone();
        let receives = runtime.spawn(move || theirs.recv()).expect("spawned");
        until_waits(runtime, "CHANNEL_RECEIVE", 1);
        sender.try_send(2).expect("a receiver waits");
        assert_eq!(receives.join().expect("no panic"), Ok(2));
        let theirs = sender.clone();
        let sends = runtime.spawn(move || theirs.send(3)).expect("spawned");
        until_waits(runtime, "CHANNEL_SEND", 1);
        assert!(!sends.is_finished());
        assert_eq!(receiver.try_recv(), Ok(3));
        assert_eq!(sends.join().expect("no panic"), Ok(()));
    });
}

/// A receiver that times out or is cancelled has taken no message, and such a sender leaves none.
#[test]
fn those_who_give_up_swallow_nothing_and_leave_nothing() {
    in_all_shapes(|runtime| {
        let (sender, receiver) = channel::bounded(1);
        assert_eq!(receiver.recv_timeout(SHORT), Err(RecvTimeoutError::Timeout));
        let theirs = receiver.clone();
        let cancelled = runtime.spawn(move || theirs.recv()).expect("spawned");
        until_waits(runtime, "CHANNEL_RECEIVE", 1);
        cancelled.cancel();
        sender.send(1).expect("open");
        assert!(matches!(
            cancelled.join(),
            Err(JoinError::Cancelled) | Ok(Ok(1))
        ));
        // It was cancelled in time, or served before: in both cases there is room for one.
        let _may_be_gone = receiver.try_recv();
        sender.send(2).expect("open");
        let theirs = sender.clone();
        let cancelled = runtime.spawn(move || theirs.send(3)).expect("spawned");
        until_waits(runtime, "CHANNEL_SEND", 1);
        cancelled.cancel();
        assert!(matches!(cancelled.join(), Err(JoinError::Cancelled)));
        assert_eq!(receiver.recv(), Ok(2));
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    });
}

/// Once all ends of one side are dropped, the other side gets an error.
#[test]
fn when_one_side_is_gone_the_other_gets_an_error() {
    in_all_shapes(|runtime| {
        let (sender, receiver) = channel::bounded(1);
        sender.send(1).expect("open");
        let theirs = sender.clone();
        let waits = runtime.spawn(move || theirs.send(2)).expect("spawned");
        until_waits(runtime, "CHANNEL_SEND", 1);
        drop(receiver);
        let back = waits
            .join()
            .expect("no panic")
            .expect_err("nobody receives");
        assert_eq!(back.0, 2);
        assert_eq!(sender.try_send(3), Err(TrySendError::Disconnected(3)));
        assert_eq!(
            sender.send_timeout(3, LONG),
            Err(SendTimeoutError::Disconnected(3))
        );

        let (sender, receiver) = channel::unbounded();
        sender.send(1).expect("open");
        let theirs = receiver.clone();
        let waits = runtime.spawn(move || (theirs.recv(), theirs.recv()));
        until_waits(runtime, "CHANNEL_RECEIVE", 1);
        drop(sender);
        let waits = waits.expect("spawned").join().expect("no panic");
        assert_eq!(waits, (Ok(1), Err(RecvError)));
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
        assert_eq!(
            receiver.recv_timeout(LONG),
            Err(RecvTimeoutError::Disconnected)
        );
    });
}
