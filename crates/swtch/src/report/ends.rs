//! How waits went: in which functions they began, who ended them, and in which functions.

use rustc_hash::FxHashMap;
use swtch_core::Switch;

use super::names::Names;
use super::waker::Waker;

/// Counts of waits that belong together: those for one reason, or for one object.
#[derive(Clone, Debug, Default)]
pub struct Ends {
    /// Who ended them.
    pub wakers: FxHashMap<Waker, u64>,
    /// In which user stack the tasks waited.
    pub waited_in: FxHashMap<u32, u64>,
    /// In which user stack of its waker each was ended.
    pub woken_from: FxHashMap<u32, u64>,
}

impl Ends {
    /// Adds the wait before a row's run.
    pub fn add(&mut self, row: &Switch, names: &Names) {
        if let Some(stack) = row.wait.user_stack {
            *self.waited_in.entry(stack).or_default() += 1;
        }
        let Some(waker) = Waker::of(row, names) else {
            return;
        };
        *self.wakers.entry(waker).or_default() += 1;
        if let Some(stack) = row.wait.waker_user_stack {
            *self.woken_from.entry(stack).or_default() += 1;
        }
    }

    /// Adds what was counted of other waits.
    pub fn merge(&mut self, other: &Self) {
        for (waker, count) in &other.wakers {
            *self.wakers.entry(*waker).or_default() += count;
        }
        for (stack, count) in &other.waited_in {
            *self.waited_in.entry(*stack).or_default() += count;
        }
        for (stack, count) in &other.woken_from {
            *self.woken_from.entry(*stack).or_default() += count;
        }
    }
}
