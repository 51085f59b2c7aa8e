//! A few numbers that a child process returns to its parent.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;
use crate::shared::Shared;

/// `N` numbers, shared with every child that is forked while they exist.
#[derive(Debug)]
pub(crate) struct SharedPage<const N: usize>(Shared<[AtomicU64; N]>);

impl<const N: usize> SharedPage<N> {
    /// Numbers that are all 0.
    pub(crate) fn new() -> Result<Self, Error> {
        Shared::new().map(Self)
    }

    pub(crate) fn set(&self, values: [u64; N]) {
        for (slot, value) in self.0.iter().zip(values) {
            slot.store(value, Ordering::Release);
        }
    }

    /// The numbers that were stored last.
    pub(crate) fn get(&self) -> [u64; N] {
        self.0.each_ref().map(|slot| slot.load(Ordering::Acquire))
    }
}
