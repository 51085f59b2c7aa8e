use super::*;
use crate::rules::all_rules;
use crate::switch::Switch;
use crate::wait::Wait;

/// A message from the client with this key.
const FROM_CLIENT: MessageEnd = MessageEnd::Message(Some(TaskKey::new(8)));

const MESSAGE: Option<MessageWait> = Some(MessageWait::AtOne(Some(7)));

/// A thread that is drawn row by row: each waits, runs, and leaves the CPU.
#[derive(Default)]
struct DrawnThread {
    now: u64,
    turns: ThreadTurns,
}

impl DrawnThread {
    /// A wait for a reason, without a CPU after it, and a run, in ns; a message ended it, and then it waits for one.
    fn row(
        &mut self,
        (reason, blocked, runq, ran): (Reason, u64, u64, u64),
        end: MessageEnd,
        waits: Option<MessageWait>,
    ) -> Switch {
        self.now += blocked + runq + ran;
        let leaves = match waits {
            Some(MessageWait::AtMany(_)) => Reason::Poll,
            Some(MessageWait::AtOne(_)) => Reason::Net,
            None => Reason::Io,
        };
        let rule = all_rules().find(|rule| rule.reason == leaves).unwrap();
        let mut row = Switch::blank(rule);
        row.ts = Timestamp::from_ns(self.now);
        row.task = TaskKey::new(1);
        row.ran = Some(Nanos::from_ns(ran));
        row.wait = Wait {
            reason: Some(reason),
            off: Some(Nanos::from_ns(blocked + runq)),
            runq: Some(Nanos::from_ns(runq)),
            ..Wait::default()
        };
        self.turns.add(&row, end, waits);
        row
    }

    /// What is known after all.
    fn turns(&self) -> TurnSums {
        self.turns.turns().cloned().unwrap()
    }

    /// A message after `idle`, which takes one run.
    fn served(&mut self, idle: u64, ran: u64, waits: Option<MessageWait>) {
        self.row((Reason::Net, idle, 5, ran), FROM_CLIENT, waits);
    }
}

/// A request with a wait for the disk and one without a CPU, whose parts are its length.
#[test]
fn the_parts_of_a_turn_are_its_length() {
    let mut drawn = DrawnThread::default();
    // Before the first wait for a message nothing is known of what began.
    drawn.row((Reason::Io, 100, 0, 50), MessageEnd::Nothing, MESSAGE);
    for _ in 0..3 {
        drawn.row((Reason::Net, 1_000, 20, 30), FROM_CLIENT, None);
        drawn.row((Reason::Io, 400, 10, 40), MessageEnd::Nothing, None);
        drawn.row((Reason::Slice, 0, 300, 50), MessageEnd::Nothing, MESSAGE);
    }
    let turns = drawn.turns();
    let (all, slowest) = turns.slowest(1.0);
    assert_eq!(all, slowest);
    let blocked = vec![(Reason::Io, Nanos::from_ns(1_200))];
    let expected = TurnSum {
        turns: 3,
        switches: 9,
        ran: Nanos::from_ns(3 * 120),
        no_cpu: Nanos::from_ns(3 * 330),
        blocked,
    };
    assert_eq!(all, expected);
    assert_eq!(all.length(), Nanos::from_ns(3 * 850));
    let longest = turns.longest.unwrap();
    assert_eq!(longest.length, Nanos::from_ns(850));
    assert_eq!(longest.began, Timestamp::from_ns(1_150));
    assert_eq!((turns.broken, turns.without_message), (0, 0));
}

/// A client on the same CPU runs as soon as it has its answer, and its next message is there before the server waits.
#[test]
fn what_may_be_several_requests_is_counted() {
    let mut drawn = DrawnThread::default();
    drawn.row((Reason::Net, 100, 0, 50), MessageEnd::Nothing, MESSAGE);
    let mut row = drawn.row((Reason::Net, 100, 5, 50), FROM_CLIENT, MESSAGE);
    for client in [8, 9, 8] {
        row.ts = Timestamp::from_ns(row.ts.as_ns() + 155);
        row.rule = all_rules()
            .find(|rule| rule.reason == Reason::Wakeup)
            .unwrap();
        row.wait.wakeup.waker = Some(TaskKey::new(8));
        row.next_task = Some(TaskKey::new(client));
        drawn.turns.add(&row, FROM_CLIENT, None);
    }
    drawn.now = row.ts.as_ns();
    for _ in 0..3 {
        drawn.row((Reason::Wakeup, 0, 5, 50), MessageEnd::Nothing, MESSAGE);
        drawn.served(100, 50, MESSAGE);
    }
    assert_eq!(drawn.turns().perhaps_more, 2);
}

/// What a message did not begin is no request: a limit, a clock.
#[test]
fn a_wait_that_no_message_ended_begins_no_turn() {
    let mut drawn = DrawnThread::default();
    drawn.row((Reason::Net, 100, 0, 50), MessageEnd::Nothing, MESSAGE);
    for turn in 0..8 {
        drawn.row(
            (Reason::Net, 100, 5, 50),
            [FROM_CLIENT, MessageEnd::Nothing][turn % 2],
            MESSAGE,
        );
    }
    let turns = drawn.turns();
    assert_eq!((turns.count(), turns.without_message), (4, 4));
}

#[test]
fn a_turn_of_which_a_row_is_missing_is_counted_apart() {
    let mut drawn = DrawnThread::default();
    drawn.served(100, 50, MESSAGE);
    for _ in 0..4 {
        drawn.served(100, 50, MESSAGE);
    }
    // A row in the middle was lost: the parts are not the whole.
    drawn.row((Reason::Net, 100, 5, 50), FROM_CLIENT, None);
    drawn.now += 1_000;
    drawn.row((Reason::Io, 100, 5, 50), MessageEnd::Nothing, MESSAGE);
    // The recorder says so itself where it knows it.
    drawn.row((Reason::Net, 100, 5, 50), FROM_CLIENT, None);
    let mut row = drawn.row((Reason::Io, 100, 5, 50), MessageEnd::Nothing, None);
    row.wait = Wait::default();
    drawn.turns.add(&row, MessageEnd::Nothing, None);
    drawn.served(100, 50, MESSAGE);
    let turns = drawn.turns();
    assert_eq!((turns.count(), turns.broken), (4, 2));
}

/// PostgreSQL waits for locks at a descriptor of `epoll` that is not the one at which it waits for its client.
#[test]
fn a_wait_at_another_list_is_in_the_middle_of_a_turn() {
    let mut drawn = DrawnThread::default();
    let [client, lock] = [3, 4].map(|at| Some(MessageWait::AtMany(Some(at))));
    drawn.row((Reason::Poll, 100, 0, 50), MessageEnd::Nothing, client);
    for _ in 0..4 {
        drawn.row((Reason::Poll, 100, 5, 10), FROM_CLIENT, client);
    }
    for _ in 0..3 {
        drawn.row((Reason::Poll, 100, 5, 10), FROM_CLIENT, lock);
        drawn.row((Reason::Poll, 300, 5, 10), FROM_CLIENT, client);
    }
    let (all, slowest) = drawn.turns().slowest(1.0);
    assert_eq!((all.turns, all.switches), (7, 10));
    assert_eq!(slowest.turns, 3);
    assert_eq!(slowest.length(), Nanos::from_ns(3 * 330));
    assert_eq!(slowest.blocked, [(Reason::Poll, Nanos::from_ns(900))]);
}

/// The rest of a turn whose first row was lost is none.
#[test]
fn what_is_left_of_a_turn_is_none() {
    let mut drawn = DrawnThread::default();
    drawn.served(100, 50, MESSAGE);
    for _ in 0..3 {
        drawn.served(100, 50, MESSAGE);
    }
    // It left for a message; the next row that is there is that of its wait for the disk, or says nothing of its wait.
    drawn.row((Reason::Io, 100, 5, 50), FROM_CLIENT, MESSAGE);
    let mut row = drawn.row((Reason::Io, 100, 5, 50), FROM_CLIENT, MESSAGE);
    row.wait.reason = None;
    drawn.turns.add(&row, FROM_CLIENT, MESSAGE);
    assert_eq!(drawn.turns().count(), 3);
}

/// An event loop waits at many descriptors, and now and then at one in the middle of a turn.
#[test]
fn a_loop_takes_turns_between_its_waits_at_many() {
    let mut drawn = DrawnThread::default();
    let many = Some(MessageWait::AtMany(Some(3)));
    drawn.row((Reason::Poll, 100, 0, 50), FROM_CLIENT, many);
    for _ in 0..10 {
        drawn.row((Reason::Poll, 100, 5, 10), FROM_CLIENT, MESSAGE);
        drawn.row((Reason::Net, 60, 5, 10), FROM_CLIENT, many);
    }
    let turns = drawn.turns();
    let (all, _) = turns.slowest(1.0);
    assert_eq!((all.turns, all.switches), (10, 20));
    assert_eq!(all.blocked, [(Reason::Net, Nanos::from_ns(600))]);
}

/// One that asks several others tells nobody which of them its requests come from.
#[test]
fn a_thread_that_waits_at_several_sockets_in_turn_is_not_understood() {
    let mut drawn = DrawnThread::default();
    for turn in 0..10 {
        drawn.served(100, 50, Some(MessageWait::AtOne(Some(turn % 2))));
    }
    assert!(drawn.turns.turns().is_none());
    assert!(ThreadTurns::default().turns().is_none());
}

#[test]
fn the_slowest_are_told_apart_and_lengths_are_within_four_percent() {
    let mut drawn = DrawnThread::default();
    drawn.served(100, 50, MESSAGE);
    for turn in 0..1_000 {
        let ran = if turn % 100 == 0 {
            1_000_000
        } else {
            10_000 + turn
        };
        drawn.served(100, ran, MESSAGE);
    }
    let turns = drawn.turns();
    let (all, slowest) = turns.slowest(1.0);
    assert_eq!((all.turns, slowest.turns), (1_000, 10));
    assert_eq!(slowest.ran, Nanos::from_ns(10_000_000));
    for (percent, exact) in [(50.0, 10_505), (99.5, 1_000_005)] {
        let told = turns.percentile(percent).unwrap().as_ns();
        assert!(told.abs_diff(exact) * 100 <= exact * 3, "{percent}: {told}");
    }
    assert!(TurnSums::default().percentile(50.0).is_none());
}

#[test]
fn lengths_rise_with_their_parts_of_octaves() {
    let parts = (0..64).flat_map(|bit| [1_u64 << bit, (1_u64 << bit) + (1_u64 << bit) / 2]);
    let parts: Vec<_> = parts.map(|ns| part_of(Nanos::from_ns(ns))).collect();
    assert!(parts.is_sorted(), "{parts:?}");
    assert_eq!(part_of(Nanos::from_ns(31)), 31);
    assert_eq!(part_of(Nanos::from_ns(32)), 32);
    assert_eq!(part_of(Nanos::from_ns(64)), 64);
}
