//! A barrier, at which workers wait for each other.

use std::sync::{Mutex, PoisonError};

use crate::park;
use crate::sync::line::{WaiterLine, wait_in_line};
use crate::wait_type::WaitType;

/// Makes workers wait until `count` of them have come. Then it can be used again. A worker that is
/// cancelled while it waits no longer counts.
#[derive(Debug)]
pub struct Barrier {
    count: usize,
    line: Mutex<WaiterLine<()>>,
}

/// The answer of [`Barrier::wait`] to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarrierWait {
    is_leader: bool,
}

impl BarrierWait {
    /// Returns true if the caller came last: true for exactly one of each group.
    #[must_use]
    pub fn is_leader(&self) -> bool {
        self.is_leader
    }
}

impl Barrier {
    /// A barrier for `count` workers; with 0 or 1 no worker waits.
    #[must_use]
    pub const fn new(count: usize) -> Self {
        Self {
            count,
            line: Mutex::new(WaiterLine::new()),
        }
    }

    /// Waits until `count` workers have come, this one included.
    pub fn wait(&self) -> BarrierWait {
        let waiter = {
            let mut line = self.lock();
            // Workers that were cancelled but have not left the line yet do not count.
            line.keep_open();
            if line.len() + 1 >= self.count {
                let claims = line.claim_all();
                *line = WaiterLine::new();
                drop(line);
                claims.wake();
                return BarrierWait { is_leader: true };
            }
            let waiter = park::prepare(WaitType::EVENT, std::ptr::from_ref(self).addr());
            line.push_back(waiter, ());
            waiter
        };
        let _signalled = wait_in_line(waiter, None, || self.lock().remove(waiter));
        BarrierWait { is_leader: false }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, WaiterLine<()>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
