//! The shared memory through which one task gives orders to another and gets its results: a driver
//! to a leader, a leader to a peer of its ring, whether threads or processes.
//!
//! ```text
//! commander   wait for done, read result │ write order, pass start │ wait for done, read result …
//! member      write result, pass done    │ wait for start          │ obey, write result, pass done …
//! ```
//!
//! The first result says that the member is ready. Nobody touches the block while an order is
//! obeyed, so that it is no part of what is timed. The members of a load share another kind of memory (`load/control.rs`): up to a hundred thousand of
//! them are released by a single wake.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::error::Error;
use crate::futex::SharedScope;
use crate::shared::{Shared, SharedNumbers, Zeroed};
use crate::token::{FutexToken, Token};

/// The block of one member. An order has `ORDER` numbers, and a result has `RESULT` numbers.
#[derive(Debug)]
pub(super) struct ControlBlock<const ORDER: usize, const RESULT: usize>(
    Shared<ControlWords<ORDER, RESULT>>,
);

#[derive(Debug)]
struct ControlWords<const ORDER: usize, const RESULT: usize> {
    /// Passed to the member when there is an order, or when it must end.
    start: FutexToken<SharedScope>,
    /// Passed by the member when it is ready for its first order, and when it has obeyed one.
    done: FutexToken<SharedScope>,
    /// 1 when the member must end.
    is_over: AtomicU32,
    order: SharedNumbers<ORDER>,
    result: SharedNumbers<RESULT>,
}

// SAFETY: each field may be zero and may be used by several processes at once.
unsafe impl<const ORDER: usize, const RESULT: usize> Zeroed for ControlWords<ORDER, RESULT> {}

impl<const ORDER: usize, const RESULT: usize> ControlBlock<ORDER, RESULT> {
    /// A block without an order.
    pub(super) fn new() -> Result<Self, Error> {
        Shared::new().map(Self)
    }

    /// Gives an order. The member must be done with the one before.
    pub(super) fn order(&self, order: [u64; ORDER]) -> Result<(), Error> {
        self.0.order.set(order);
        self.0.start.pass()
    }

    /// Asks the member to end instead of giving it an order.
    pub(super) fn ask_to_end(&self) -> Result<(), Error> {
        self.0.is_over.store(1, Ordering::Release);
        self.0.start.pass()
    }

    /// Waits until the member is done, and returns its result.
    pub(super) fn wait_for_result(&self) -> Result<[u64; RESULT], Error> {
        self.0.done.take()?;
        Ok(self.0.result.get())
    }

    /// As [`Self::wait_for_result`], for a member that may fail. `check` is called after every
    /// `interval`, and returns an error if the member has ended.
    ///
    /// # Errors
    /// The error of `check`; [`Error::Stuck`] when there is no result after `limit`.
    pub(super) fn wait_for_result_and_check(
        &self,
        interval: Duration,
        limit: Duration,
        mut check: impl FnMut() -> Result<(), Error>,
    ) -> Result<[u64; RESULT], Error> {
        let mut waited = Duration::ZERO;
        while !self.0.done.take_within(interval)? {
            waited += interval;
            check()?;
            if waited >= limit {
                return Err(Error::Stuck { limit });
            }
        }
        Ok(self.0.result.get())
    }

    /// The loop of the member: tells that it is ready, with a first result, and obeys orders until
    /// it is asked to end.
    pub(super) fn serve(
        &self,
        ready: [u64; RESULT],
        mut obey: impl FnMut([u64; ORDER]) -> Result<[u64; RESULT], Error>,
    ) -> Result<(), Error> {
        let mut result = ready;
        loop {
            self.0.result.set(result);
            self.0.done.pass()?;
            self.0.start.take()?;
            if self.0.is_over.load(Ordering::Acquire) != 0 {
                return Ok(());
            }
            result = obey(self.0.order.get())?;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    const INTERVAL: Duration = Duration::from_millis(5);

    #[test]
    fn orders_are_obeyed_until_the_end() {
        let block: ControlBlock<2, 1> = ControlBlock::new().unwrap();
        thread::scope(|scope| {
            let member = scope.spawn(|| block.serve([7], |[one, other]| Ok([one + other])));
            assert_eq!(block.wait_for_result().unwrap(), [7]);
            for (one, other) in [(1, 2), (3, 4)] {
                block.order([one, other]).unwrap();
                assert_eq!(block.wait_for_result().unwrap(), [one + other]);
            }
            block.ask_to_end().unwrap();
            member.join().unwrap().unwrap();
        });
    }

    /// A member that has ended must be noticed, and so must one that takes too long.
    #[test]
    fn a_member_that_does_not_answer_is_an_error() {
        let block: ControlBlock<0, 0> = ControlBlock::new().unwrap();
        let ended = block.wait_for_result_and_check(INTERVAL, Duration::MAX, || {
            Err(Error::Member("ended".to_owned()))
        });
        assert!(matches!(ended, Err(Error::Member(_))), "{ended:?}");
        let stuck = block.wait_for_result_and_check(INTERVAL, 2 * INTERVAL, || Ok(()));
        assert!(matches!(stuck, Err(Error::Stuck { .. })), "{stuck:?}");
    }
}
