//! A token behind a mutex and a condition variable. Both are futexes inside.

use std::sync::{Condvar, Mutex, PoisonError};

use super::Token;
use crate::error::Error;

/// Whether the token is there, and who waits for it.
#[derive(Debug, Default)]
pub(crate) struct Condition {
    is_present: Mutex<bool>,
    came: Condvar,
}

impl Token for Condition {
    fn pass(&self) -> Result<(), Error> {
        *self
            .is_present
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = true;
        // The mutex is free again, so that who is woken does not wait a second time.
        self.came.notify_one();
        Ok(())
    }

    fn take(&self) -> Result<(), Error> {
        let guard = self
            .is_present
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let absent = |is_present: &mut bool| !*is_present;
        let mut guard = self
            .came
            .wait_while(guard, absent)
            .unwrap_or_else(PoisonError::into_inner);
        *guard = false;
        Ok(())
    }
}
