//! The order in which threads must take the locks of a ring, and a check that they did.
//!
//! ```text
//!  3 threads, 4 locks      lock 0   lock 1   lock 2   lock 3
//!  at first                  0        1        2        ·
//!  then, by lock             2 1 0 …  0 2 1 …  1 0 2 …  2 1 0 …     always the thread behind
//!  one spare lock, all:      2→3  1→2  0→1  2→0  1→3 …              the whole order is fixed
//! ```
//!
//! A lock must be taken by the thread behind its last holder; a spare lock first by the last
//! thread. With one spare lock the moves of all threads together have one fixed order, too.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::LockRingSpec;

/// A move: a thread has taken a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandOver {
    /// Number of the thread, from 0.
    pub thread: u32,
    /// Number of the lock, from 0.
    pub lock: u32,
}

/// The first move that breaks the order. `Display` is a sentence without its full stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Index of the move, from 0.
    pub index: usize,
    /// The move that was observed.
    pub seen: HandOver,
    /// The move that the order requires.
    pub due: HandOver,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { index, seen, due } = self;
        write!(
            f,
            "hand-over {index}: thread {} took lock {}, and thread {} was to take lock {}",
            seen.thread, seen.lock, due.thread, due.lock
        )
    }
}

/// The first move of a new ring that breaks the order; `None` when all keep it.
pub fn order_violation(spec: &LockRingSpec, moves: &[HandOver]) -> Option<Violation> {
    let threads = spec.count;
    let behind = |thread: u32| thread.checked_sub(1).unwrap_or(threads - 1);
    let locks = u32::try_from(spec.locks()).unwrap_or(u32::MAX);
    // The thread that takes each lock next. For the spare ones it is the last thread.
    let mut due_at: Vec<u32> = (0..locks).map(|lock| behind(lock.min(threads))).collect();
    let mut last: Option<HandOver> = None;
    for (index, seen) in moves.iter().copied().enumerate() {
        let Some(thread) = due_at.get_mut(seen.lock as usize) else {
            return Some(violation(index, seen, seen));
        };
        // With one spare lock, each move frees the lock that the next one takes.
        let lock = match (spec.spare, last) {
            (1, Some(last)) => last.lock.checked_sub(1).unwrap_or(locks - 1),
            (1, None) => threads,
            _ => seen.lock,
        };
        let due = HandOver {
            thread: *thread,
            lock,
        };
        if seen != due {
            return Some(violation(index, seen, due));
        }
        *thread = behind(*thread);
        last = Some(seen);
    }
    None
}

const fn violation(index: usize, seen: HandOver, due: HandOver) -> Violation {
    Violation { index, seen, due }
}

#[cfg(test)]
mod tests {
    use swtch_core::cost::Policy;

    use super::super::LockKind;
    use super::*;

    fn ring(count: u32, spare: u32) -> LockRingSpec {
        LockRingSpec {
            lock: LockKind::Mutex,
            count,
            spare,
            policy: Policy::Batch,
            cpu: None,
        }
    }

    fn moves(pairs: &[(u32, u32)]) -> Vec<HandOver> {
        let hand_over = |(thread, lock): &(u32, u32)| HandOver {
            thread: *thread,
            lock: *lock,
        };
        pairs.iter().map(hand_over).collect()
    }

    /// The example in the drawing at the top of this file.
    #[test]
    fn with_one_spare_lock_the_whole_order_is_fixed() {
        let right = [(2, 3), (1, 2), (0, 1), (2, 0), (1, 3), (0, 2), (2, 1)];
        assert_eq!(order_violation(&ring(3, 1), &moves(&right)), None);
        let mut swapped = right;
        swapped.swap(1, 2);
        let found = order_violation(&ring(3, 1), &moves(&swapped)).unwrap();
        assert_eq!(
            found.to_string(),
            "hand-over 1: thread 0 took lock 1, and thread 0 was to take lock 2"
        );
    }

    /// Two threads may move at once, so only the holders of each lock have an order.
    #[test]
    fn with_more_spare_locks_each_lock_keeps_its_order() {
        let turns = [(2, 3), (2, 4), (1, 2), (1, 3), (0, 1), (0, 2), (2, 0)];
        let mixed = [(2, 3), (1, 2), (2, 4), (0, 1), (1, 3), (0, 2), (2, 0)];
        for right in [turns, mixed] {
            assert_eq!(order_violation(&ring(3, 2), &moves(&right)), None);
        }
        let overtaken = moves(&[(2, 3), (0, 3)]);
        let found = order_violation(&ring(3, 2), &overtaken).unwrap();
        assert_eq!((found.index, found.due.thread), (1, 1));
    }

    #[test]
    fn a_lock_that_is_not_there_is_a_violation() {
        assert!(order_violation(&ring(2, 1), &moves(&[(1, 3)])).is_some());
    }
}
