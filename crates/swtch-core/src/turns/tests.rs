use super::*;
use crate::rules::all_rules;
use crate::switch::Switch;
use crate::wait::Wait;

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
        let rule = all_rules().next().unwrap();
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
    fn turns(&mut self) -> TurnSums {
        self.turns.finish();
        self.turns.turns().cloned().unwrap()
    }

    /// A message after `idle`, which takes one run.
    fn served(&mut self, idle: u64, ran: u64, waits: Option<MessageWait>) {
        self.row((Reason::Net, idle, 5, ran), MessageEnd::Message, waits);
    }
}

/// A request with a wait for the disk and one without a CPU, whose parts are its length.
#[test]
fn the_parts_of_a_turn_are_its_length() {
    let mut drawn = DrawnThread::default();
    // Before the first wait for a message nothing is known of what began.
    drawn.row((Reason::Io, 100, 0, 50), MessageEnd::Nothing, MESSAGE);
    for _ in 0..3 {
        drawn.row((Reason::Net, 1_000, 20, 30), MessageEnd::Message, None);
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
    let mut row = drawn.row((Reason::Net, 100, 5, 50), MessageEnd::Message, MESSAGE);
    for client in [8, 9, 8] {
        row.ts = Timestamp::from_ns(row.ts.as_ns() + 155);
        row.rule = all_rules()
            .find(|rule| rule.reason == Reason::Wakeup)
            .unwrap();
        row.wait.wakeup.waker = Some(TaskKey::new(8));
        row.next_task = Some(TaskKey::new(client));
        drawn.turns.add(&row, MessageEnd::Message, None);
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
            [MessageEnd::Message, MessageEnd::Nothing][turn % 2],
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
    drawn.row((Reason::Net, 100, 5, 50), MessageEnd::Message, None);
    drawn.now += 1_000;
    drawn.row((Reason::Io, 100, 5, 50), MessageEnd::Nothing, MESSAGE);
    // The recorder says so itself where it knows it.
    drawn.row((Reason::Net, 100, 5, 50), MessageEnd::Message, None);
    let mut row = drawn.row((Reason::Io, 100, 5, 50), MessageEnd::Nothing, None);
    row.wait = Wait::default();
    drawn.turns.add(&row, MessageEnd::Nothing, None);
    drawn.served(100, 50, MESSAGE);
    let turns = drawn.turns();
    assert_eq!((turns.count(), turns.broken), (4, 2));
}

/// It waits for a lock where it waits for its clients; and a thread of its own may be the first to wake it.
#[test]
fn what_the_same_program_ended_is_in_the_middle_of_a_turn() {
    let mut drawn = DrawnThread::default();
    let many = Some(MessageWait::AtMany);
    drawn.row((Reason::Poll, 100, 0, 50), MessageEnd::Nothing, many);
    drawn.row((Reason::Poll, 100, 5, 10), MessageEnd::Own, many);
    for _ in 0..3 {
        drawn.row((Reason::Poll, 100, 5, 10), MessageEnd::Message, many);
        drawn.row((Reason::Poll, 300, 5, 10), MessageEnd::Own, many);
    }
    let (all, slowest) = drawn.turns().slowest(1.0);
    assert_eq!((all.turns, all.switches), (4, 7));
    assert_eq!(slowest.turns, 3);
    assert_eq!(slowest.length(), Nanos::from_ns(3 * 330));
    assert_eq!(slowest.blocked, [(Reason::Poll, Nanos::from_ns(900))]);
}

/// An event loop waits at many descriptors, and now and then at one in the middle of a turn.
#[test]
fn a_loop_takes_turns_between_its_waits_at_many() {
    let mut drawn = DrawnThread::default();
    let many = Some(MessageWait::AtMany);
    drawn.row((Reason::Poll, 100, 0, 50), MessageEnd::Message, many);
    for _ in 0..10 {
        drawn.row((Reason::Poll, 100, 5, 10), MessageEnd::Message, MESSAGE);
        drawn.row((Reason::Net, 60, 5, 10), MessageEnd::Message, many);
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
fn the_slowest_are_told_apart_and_lengths_are_within_three_percent() {
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
