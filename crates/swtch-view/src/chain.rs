//! `api/chain` and `api/critical`: which threads a wait depended on.
//!
//! ```text
//!  A  ────┤ blocked              ├─ runs        chain of A's wait: B woke it, C woke B
//!  B  ────────┤ blocked ├─ runs ─┘wakes A
//!  C  ──── runs ────────┘wakes B                critical path of A: C's run, B's run, A's run
//! ```
//!
//! The critical path covers a span without holes. While the thread runs or waits for a CPU, the
//! path is the thread itself; while it was blocked, the path is that of its waker, back to where
//! the wait began.

use std::cmp::Reverse;

use serde_json::{Value, json};
use swtch_core::{Level, Reason, TaskKey};

use super::facts::of_thread;
use super::lanes::open_piece;
use super::loaded::Loaded;
use super::query::Span;
use super::states::longest_first;
use super::timeline::{LevelRows, Piece, ThreadState};

/// A longer chain is cut: it would be of no help to a person.
const MOST_HOPS: usize = 64;

/// Most pieces of a critical path; if there are more, the answer says that it is cut.
const MOST_PIECES: usize = 4096;

/// Follows wakers backwards from a row: who ended its wait, who ended the waker's wait, and so on.
pub fn chain(loaded: &Loaded, first: usize) -> Value {
    let timeline = &loaded.levels.os;
    let rows = timeline.rows();
    let (mut hops, mut row) = (Vec::new(), first);
    let ends = loop {
        let known = rows.row(row);
        let pieces = known.pieces();
        let Some(task) = timeline.track_of(row).map(|track| track.task) else {
            break "not recorded";
        };
        let waker = known.waker();
        let woken_ns = pieces.queued_from_ns;
        let waker_row = waker
            .zip(woken_ns)
            .and_then(|(waker, at)| timeline.row_at(waker, at));
        hops.push(json!({
            "row": loaded.id(Level::Os, row),
            "thread": of_thread(loaded, task),
            "wait_from_ns": pieces.left_ns,
            "woken_ns": woken_ns,
            "reason": pieces.off_reason.map(Reason::as_str),
            "waker": waker.map(|waker| of_thread(loaded, waker)),
        }));
        match (waker, waker_row) {
            (None, _) if pieces.left_ns.is_none() => break "the first that is seen of this thread",
            (None, _) if pieces.left_ns == woken_ns => {
                break "it was runnable all the time: nobody woke it";
            }
            (None, _) => break "an interrupt, a timer, or a wakeup that was not seen",
            (Some(_), None) => break "the waker's run is not in the trace",
            _ if hops.len() == MOST_HOPS => break "cut here: the chain goes on",
            (_, Some(next)) => row = next,
        }
    };
    json!({"schema": "swtch.view.chain/1", "hops": hops, "ends": ends})
}

/// A piece of a critical path.
#[derive(Clone, Copy, Debug, PartialEq)]
struct PathPiece {
    task: TaskKey,
    from_ns: u64,
    to_ns: u64,
    state: ThreadState,
    /// `None` for a wait or run that was open when the trace ended.
    row: Option<usize>,
}

/// The critical path of a thread in a span.
pub fn critical(loaded: &Loaded, task: TaskKey, span: Span) -> Value {
    let open = loaded.open(task).map(|open| open_piece(loaded, open));
    let (steps, ends) = path(&loaded.levels.os, task, span, open);
    let mut threads: Vec<(TaskKey, u64)> = Vec::new();
    for step in &steps {
        let ns = step.to_ns - step.from_ns;
        match threads.iter_mut().find(|sum| sum.0 == step.task) {
            Some(sum) => sum.1 += ns,
            None => threads.push((step.task, ns)),
        }
    }
    threads.sort_by_key(|sum| Reverse(sum.1));
    let times = steps
        .iter()
        .map(|step| (step.state, step.to_ns - step.from_ns));
    let pieces = steps.iter().rev().map(|step| {
        json!({
            "thread": of_thread(loaded, step.task),
            "from_ns": step.from_ns,
            "to_ns": step.to_ns,
            "state": step.state.number(),
            "row": step.row.map(|row| loaded.id(Level::Os, row)),
        })
    });
    let by_thread = threads
        .iter()
        .map(|(task, ns)| json!({"thread": of_thread(loaded, *task), "ns": ns}));
    json!({
        "schema": "swtch.view.critical/1",
        "pieces": pieces.collect::<Vec<_>>(),
        "by_state": longest_first(times),
        "by_thread": by_thread.collect::<Vec<_>>(),
        "covered_ns": threads.iter().map(|sum| sum.1).sum::<u64>(),
        "ends": ends,
    })
}

/// The critical path, latest piece first, and why it does not reach the begin of the span, if it
/// does not. `open` is the thread's wait or run that was open when the trace ended.
fn path(
    timeline: &LevelRows,
    task: TaskKey,
    span: Span,
    open: Option<Piece>,
) -> (Vec<PathPiece>, Option<&'static str>) {
    let mut steps = Vec::new();
    let mut at = last_known(timeline, task, span, open, &mut steps);
    // The threads whose waits are being covered, and where each of these waits began.
    let mut covering = vec![(task, span.from_ns)];
    while let Some(&(task, floor)) = covering.last() {
        if at <= floor {
            covering.pop();
            continue;
        }
        if steps.len() == MOST_PIECES {
            return (
                steps,
                Some("cut here: the path has more pieces than can be shown"),
            );
        }
        let Some(row) = timeline.row_at(task, at - 1) else {
            // Nothing is known of this thread at that time, so the wait of the thread that it woke
            // is shown.
            match (covering.pop(), covering.last()) {
                (_, None) => return (steps, Some("nothing is known of the thread before")),
                (Some(_), Some(&(waiter, _))) => {
                    let Some(step) = own_wait(timeline, waiter, floor, at) else {
                        return (steps, Some("nothing is known of the thread before"));
                    };
                    at = floor;
                    steps.push(step);
                    continue;
                }
                (None, Some(_)) => unreachable!("the last one was there to be looked at"),
            }
        };
        let (mut from_ns, mut state) = (floor, ThreadState::Running);
        let known = timeline.rows().row(row);
        known.pieces().each(|from, to, what| {
            if from < at && at <= to {
                (from_ns, state) = (from.max(floor), what);
            }
        });
        let woken_here = known.pieces().queued_from_ns == Some(at);
        let waker = known.waker().filter(|waker| woken_here && *waker != task);
        match (state, waker) {
            // The moment of the wakeup is known only if the wait is split.
            (ThreadState::Blocked(_), Some(waker)) if covering.len() < MOST_HOPS => {
                covering.push((waker, from_ns))
            }
            _ => {
                steps.push(PathPiece {
                    task,
                    from_ns,
                    to_ns: at,
                    state,
                    row: Some(row),
                });
                at = from_ns;
            }
        }
    }
    (steps, None)
}

/// Returns where the path begins: at the end of the span or, if the thread has no row there, at the end of its last
/// row. A wait or run that was open then is the first piece.
fn last_known(
    timeline: &LevelRows,
    task: TaskKey,
    span: Span,
    open: Option<Piece>,
    steps: &mut Vec<PathPiece>,
) -> u64 {
    let end = span.to_ns;
    if timeline.row_at(task, end - 1).is_some() {
        return end;
    }
    let last = timeline.last_ended(task, end).unwrap_or(span.from_ns);
    let from_ns = last.max(span.from_ns);
    if let Some(open) = open.filter(|open| from_ns < open.to_ns.min(end)) {
        steps.push(PathPiece {
            task,
            from_ns,
            to_ns: open.to_ns.min(end),
            state: open.state,
            row: None,
        });
    }
    from_ns
}

/// The wait of the thread itself, for a time in which nothing is known of its waker.
fn own_wait(timeline: &LevelRows, task: TaskKey, from_ns: u64, to_ns: u64) -> Option<PathPiece> {
    let row = timeline.row_at(task, to_ns - 1)?;
    let reason = timeline.rows().row(row).off_reason;
    let reason = reason.unwrap_or(Reason::Unknown);
    Some(PathPiece {
        task,
        from_ns,
        to_ns,
        state: ThreadState::Blocked(reason),
        row: Some(row),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{LevelTimelines, NO_ROW, NOBODY};
    use swtch_core::{Nanos, Switch, Timestamp};
    use swtch_fixtures::{after, meta, row, woken_by};
    use swtch_store::{Trace, Writer};

    const START: u64 = 1_000_000_000;

    fn at(end: u64, ran: u64, row: Switch) -> Switch {
        Switch {
            ts: Timestamp::from_ns(START + end),
            ran: Some(Nanos::from_ns(ran)),
            ..row
        }
    }

    /// ```text
    ///       0      100     200     300   320    400
    ///  A(1) ├ run ─┤ futex              ├q─┤ run ┤
    ///  B(2)        ├─ futex ──────┤ run ─┘wakes A, goes on to 380
    ///  C(3)        ├─ run ────────┘wakes B
    /// ```
    fn drawn() -> LevelTimelines {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.swtch");
        let meta = meta();
        let mut writer = Writer::create(&path, &meta).unwrap();
        let rows = [
            at(100, 100, row(1, Reason::Futex)),
            at(100, 50, row(2, Reason::Futex)),
            at(260, 160, row(3, Reason::Sleep)),
            at(
                380,
                180,
                woken_by(after(row(2, Reason::Sleep), Reason::Futex, 100, 0), 3),
            ),
            at(
                400,
                80,
                woken_by(after(row(1, Reason::Sleep), Reason::Futex, 200, 20), 2),
            ),
        ];
        for row in &rows {
            writer.push_switch(row).unwrap();
        }
        writer.finish(&meta, &mut |_, _| ()).unwrap();
        LevelTimelines::read(&Trace::open(&path).unwrap(), Timestamp::from_ns(START)).unwrap()
    }

    /// A piece of a path as the tests compare it: task, from, to (ns), state.
    type ComparedPiece = (u32, u64, u64, ThreadState);

    fn pieces(task: u32, from_ns: u64, to_ns: u64) -> (Vec<ComparedPiece>, Option<&'static str>) {
        let levels = drawn();
        let span = Span { from_ns, to_ns };
        let (steps, ends) = path(&levels.os, TaskKey::new(task), span, open());
        let steps = steps.iter().rev();
        let steps = steps.map(|step| (step.task.get(), step.from_ns, step.to_ns, step.state));
        (steps.collect(), ends)
    }

    #[test]
    fn a_blocked_thread_rests_on_its_wakers() {
        let queue = ThreadState::InQueue(Some(Reason::Futex));
        assert_eq!(
            pieces(1, 0, 400),
            (
                vec![
                    (1, 0, 100, ThreadState::Running),
                    (3, 100, 200, ThreadState::Running),
                    (2, 200, 300, ThreadState::Running),
                    (1, 300, 320, queue),
                    (1, 320, 400, ThreadState::Running),
                ],
                None
            )
        );
    }

    /// A's last wait, which was still open when the trace ended.
    fn open() -> Option<Piece> {
        Some(Piece {
            from_ns: 400,
            to_ns: 1000,
            row: NO_ROW,
            who: NOBODY,
            state: ThreadState::Blocked(Reason::Sleep),
        })
    }

    /// A person looks at the whole trace first, and no row reaches to its end.
    #[test]
    fn a_path_begins_with_what_was_going_on_at_the_end() {
        let (steps, ends) = pieces(1, 0, 1001);
        assert_eq!(
            steps.last(),
            Some(&(1, 400, 1000, ThreadState::Blocked(Reason::Sleep)))
        );
        assert_eq!((steps.len(), ends), (6, None));
    }

    /// A path covers all of its span, and nothing outside.
    #[test]
    fn a_path_covers_its_span() {
        for (from, to) in [(0, 400), (50, 350), (150, 310), (210, 250)] {
            let (steps, ends) = pieces(1, from, to);
            let sum: u64 = steps.iter().map(|step| step.2 - step.1).sum();
            assert_eq!((sum, ends), (to - from, None), "{from}..{to}: {steps:?}");
        }
    }
}
