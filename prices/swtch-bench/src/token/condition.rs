//! Tokens behind a mutex and a condition variable of the C library. Both are futexes inside.
//!
//! Without a peer, none of the calls of a hand-over enters the kernel: the signal finds no waiter,
//! and the token is already there when it is taken. So the cost of a hand-over's system calls is
//! part of the difference between it and [`Token::hand_over_alone`], together with the switch.

use std::sync::atomic::{AtomicU32, Ordering};

use super::Token;
use crate::error::Error;
use crate::lock::{ConditionVariable, Lock, PthreadMutex};
use crate::shared::{Shared, Zeroed};

/// The number of tokens, and a condition variable for threads or processes that wait for one.
#[derive(Debug)]
pub(crate) struct Condition(Shared<ConditionState>);

#[derive(Debug)]
struct ConditionState {
    mutex: PthreadMutex,
    came: ConditionVariable,
    /// Only read and written while `mutex` is held.
    tokens: AtomicU32,
}

// SAFETY: each field may be zero (no token) and may be used by several processes at once.
unsafe impl Zeroed for ConditionState {}

impl Condition {
    /// A condition without a token.
    pub(crate) fn new() -> Result<Self, Error> {
        let state: Shared<ConditionState> = Shared::new()?;
        state.mutex.init_shared()?;
        state.came.init_shared()?;
        Ok(Self(state))
    }
}

impl Token for Condition {
    fn pass(&self) -> Result<(), Error> {
        self.0.mutex.lock()?;
        let tokens = self.0.tokens.load(Ordering::Relaxed);
        self.0.tokens.store(tokens + 1, Ordering::Relaxed);
        self.0.mutex.unlock()?;
        // The mutex is free again, so that the woken task does not block a second time.
        self.0.came.signal()
    }

    fn take(&self) -> Result<(), Error> {
        self.0.mutex.lock()?;
        while self.0.tokens.load(Ordering::Relaxed) == 0 {
            self.0.came.wait(&self.0.mutex)?;
        }
        let tokens = self.0.tokens.load(Ordering::Relaxed);
        self.0.tokens.store(tokens - 1, Ordering::Relaxed);
        self.0.mutex.unlock()
    }
}
