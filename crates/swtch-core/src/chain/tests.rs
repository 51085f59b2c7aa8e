use super::*;
use crate::ids::TaskKey;
use crate::rules::rule_named;
use crate::wait::Wait;

const US: u64 = 1_000;

const VICTIM: usize = 1;
const OTHER: usize = 2;
const THIRD: usize = 3;

/// A row of a task: it left at `out` for a reason, was woken, ran from `start` to `end`, in µs.
fn row(task: usize, reason: Reason, moments: [u64; 4]) -> Switch {
    let [out, woken, start, end] = moments.map(|us| us * US);
    Switch {
        ts: Timestamp::from_ns(end),
        task: TaskKey::new(u32::try_from(task).unwrap()),
        ran: Some(Nanos::from_ns(end - start)),
        wait: Wait {
            reason: Some(reason),
            off: Some(Nanos::from_ns(start - out)),
            runq: Some(Nanos::from_ns(start - woken)),
            ..Wait::default()
        },
        ..Switch::blank(rule_named("futex_call").unwrap())
    }
}

const fn ended(ender: Ender, own: Option<usize>) -> EndedBy {
    EndedBy { ender, own }
}

const NOBODY: EndedBy = ended(Ender::Interrupt, None);

fn by(own: usize) -> EndedBy {
    ended(Ender::Own, Some(own))
}

/// The waits that were divided: their tags and parts.
#[derive(Default)]
struct Divided(Vec<(usize, Meanwhile)>);

impl Divided {
    fn sink(&mut self) -> impl FnMut(usize, &Meanwhile) + '_ {
        |tag, meanwhile| self.0.push((tag, *meanwhile))
    }

    fn parts(&self, place: usize) -> [u64; Spent::ALL.len()] {
        Spent::ALL.map(|spent| self.0[place].1.of(spent).as_ns() / US)
    }
}

/// The picture of this module. After two rows of the other, by which its runs are known, comes the victim's, then that of
/// the third, and the other's last.
#[test]
fn a_wait_is_divided_by_what_its_chain_did() {
    let mut chains = Chains::new(4);
    let mut divided = Divided::default();
    let mut push = |row: Switch, task, ended, tag| {
        chains.push(
            &row,
            task,
            ended,
            (tag, ServedAs::Turn),
            &mut divided.sink(),
        );
    };
    push(row(OTHER, Reason::Net, [0, 1, 2, 5]), OTHER, NOBODY, None);
    push(row(OTHER, Reason::Io, [5, 40, 40, 45]), OTHER, NOBODY, None);
    let victims = row(VICTIM, Reason::Futex, [10, 110, 112, 115]);
    push(victims, VICTIM, by(OTHER), Some(0));
    push(
        row(THIRD, Reason::Pipe, [0, 20, 20, 120]),
        THIRD,
        NOBODY,
        None,
    );
    let others = row(OTHER, Reason::Futex, [45, 75, 90, 130]);
    push(others, OTHER, by(THIRD), None);
    // Ran 5 itself and 30 by the third, then 20 after it had waited 15 for a CPU.
    assert_eq!(divided.parts(0), [5 + 30 + 20, 15, 0, 30, 0, 0, 0, 0, 0]);
    assert_eq!(divided.0[0].1.whole().as_ns() / US, 100);
    assert_eq!(chains.served_in_turn(THIRD).as_ns() / US, 30);
    assert_eq!(chains.served_in_turn(OTHER).as_ns() / US, 25);
    assert_eq!(chains.waited_in_turn(VICTIM).as_ns() / US, 55);
}

/// Two wait for one that runs: its run is counted once.
#[test]
fn time_for_which_several_waited_is_served_once() {
    let mut chains = Chains::new(4);
    let mut divided = Divided::default();
    let mut push = |row: Switch, task, ended, tag| {
        chains.push(
            &row,
            task,
            ended,
            (tag, ServedAs::Turn),
            &mut divided.sink(),
        );
    };
    let wait = |task, out, woken| row(task, Reason::Futex, [out, woken, woken, woken + 1]);
    push(wait(VICTIM, 20, 60), VICTIM, by(OTHER), Some(0));
    push(wait(THIRD, 10, 70), THIRD, by(OTHER), Some(1));
    push(row(OTHER, Reason::Net, [0, 0, 0, 100]), OTHER, NOBODY, None);
    assert_eq!(divided.0.len(), 2);
    // From 20 to 60, then what lies before that, from 10 on, and after it, up to 70.
    assert_eq!(chains.served_in_turn(OTHER).as_ns() / US, 60);
    let turns: u64 = (chains.turns().iter())
        .filter_map(|(_, from, to)| Some(to.since(*from)?.as_ns() / US))
        .sum();
    assert_eq!((chains.turns().len(), turns), (3, 60));
    assert_eq!(divided.parts(1)[0], 60);
}

/// A real-time task waits for one whose CPU somebody else has.
#[test]
fn who_waits_for_a_task_of_lower_priority_without_a_cpu_is_told_apart() {
    let mut chains = Chains::new(4);
    let mut divided = Divided::default();
    let mut above = row(VICTIM, Reason::Futex, [10, 60, 60, 61]);
    above.evidence.prio = 49;
    let mut below = row(OTHER, Reason::Wakeup, [20, 20, 55, 70]);
    below.evidence.prio = 98;
    for (row, task, ended, tag) in [
        (above, VICTIM, by(OTHER), Some(0)),
        (below, OTHER, NOBODY, None),
    ] {
        chains.push(
            &row,
            task,
            ended,
            (tag, ServedAs::Turn),
            &mut divided.sink(),
        );
    }
    let meanwhile = divided.0[0].1;
    assert_eq!(meanwhile.of(Spent::NoCpu).as_ns() / US, 35);
    assert_eq!(meanwhile.inverted.as_ns() / US, 35);
    assert_eq!(chains.held_back(OTHER).as_ns() / US, 35);
    assert_eq!(chains.inverted(VICTIM).as_ns() / US, 35);
    assert_eq!(meanwhile.of(Spent::Untold).as_ns() / US, 10);
}

/// The other never reports: what is open at the end tells, or nothing.
#[test]
fn a_row_that_never_comes_is_untold_time() {
    for is_open in [false, true] {
        let mut chains = Chains::new(4);
        let mut divided = Divided::default();
        let wait = row(VICTIM, Reason::Futex, [10, 60, 60, 61]);
        chains.push(
            &wait,
            VICTIM,
            by(OTHER),
            (Some(0), ServedAs::Turn),
            &mut divided.sink(),
        );
        if is_open {
            let run = Open {
                task: TaskKey::new(2),
                reason: None,
                since: Timestamp::from_ns(30 * US),
                lasted: Nanos::from_ns(70 * US),
                runq: None,
                cpu: None,
            };
            chains.push_open(&run, OTHER);
        }
        chains.finish(&mut divided.sink());
        let ran = if is_open { 30 } else { 0 };
        assert_eq!(divided.parts(0), [ran, 0, 0, 0, 0, 0, 0, 0, 50 - ran]);
    }
}

/// Whatever comes, the parts of each wait sum to it, and each wait comes out once.
#[test]
fn parts_sum_to_the_wait_whatever_the_rows_say() {
    let mut state = 7_u64;
    let mut next = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    let mut chains = Chains::new(6);
    let mut asked = Vec::new();
    let mut told = Vec::new();
    let mut now = 1_000;
    for number in 0..5_000_usize {
        now += next(50);
        let task = usize::try_from(next(6)).unwrap();
        let ran = next(40);
        let runq = next(30);
        let blocked = next(200);
        let start = now - ran;
        let [out, woken] = [start - runq - blocked, start - runq];
        let other = usize::try_from(next(6)).unwrap();
        let ended = if other == task { NOBODY } else { by(other) };
        asked.push(blocked);
        let row = row(task, Reason::Futex, [out, woken, start, now]);
        // Shorter ones are not followed.
        let tag = (blocked >= 20 && other != task).then_some(number);
        chains.push(
            &row,
            task,
            ended,
            (tag, ServedAs::Turn),
            &mut |tag, sum: &Meanwhile| {
                told.push((tag, sum.whole().as_ns() / US));
            },
        );
        if tag.is_none() {
            told.push((number, blocked));
        }
    }
    chains.finish(&mut |tag, sum| told.push((tag, sum.whole().as_ns() / US)));
    told.sort_unstable();
    let asked = asked.into_iter().enumerate();
    let wrong: Vec<_> = asked
        .zip(told)
        .filter(|(one, other)| one != other)
        .take(3)
        .collect();
    assert_eq!(wrong, []);
}

/// A wait that is open at the end says of itself that it had no CPU for longer than it lasted.
#[test]
fn an_open_wait_that_contradicts_itself_is_taken_in_order() {
    let mut chains = Chains::new(4);
    let open = Open {
        task: TaskKey::new(2),
        reason: Some(Reason::Futex),
        since: Timestamp::from_ns(100 * US),
        lasted: Nanos::from_ns(10 * US),
        runq: Some(Nanos::from_ns(90 * US)),
        cpu: None,
    };
    chains.push_open(&open, OTHER);
    let wait = row(VICTIM, Reason::Futex, [50, 105, 105, 106]);
    let mut divided = Divided::default();
    let tag = (Some(0), ServedAs::Turn);
    chains.push(&wait, VICTIM, by(OTHER), tag, &mut divided.sink());
    chains.finish(&mut divided.sink());
    assert_eq!(divided.0[0].1.whole().as_ns() / US, 55);
}

/// One task serves many, whose waits span thousands of its runs: each wait is told whole, however many ask.
#[test]
fn waits_that_span_many_runs_of_the_other_are_told_whole() {
    let mut chains = Chains::new(64);
    let mut told = Vec::new();
    let mut asked = 0;
    for turn in 0..200_000_u64 {
        let now = turn * 100;
        let run = row(OTHER, Reason::Net, [now, now + 40, now + 70, now + 100]);
        chains.push(&run, OTHER, NOBODY, (None, ServedAs::Turn), &mut |_, _| {});
        if let Some(from) = now.checked_sub(2_000 * 100) {
            let task = 3 + usize::try_from(turn % 60).unwrap();
            let wait = row(task, Reason::Futex, [from, now + 100, now + 100, now + 101]);
            let tag = (Some(asked), ServedAs::Message);
            chains.push(&wait, task, by(OTHER), tag, &mut |_, sum| told.push(*sum));
            asked += 1;
        }
    }
    assert_eq!(told.len(), asked);
    for sum in told {
        assert_eq!(sum.of(Spent::Untold), Nanos::ZERO, "{sum:?}");
        assert_eq!(sum.of(Spent::Ran).as_ns() / US, 2_001 * 30);
    }
}
