//! How many tasks a scheduler has, counted by many without getting in each other's way.
//!
//! Spawning and ending a task is mostly locked instructions, 5 ns each (AMD EPYC). So whoever holds
//! the scheduler counts in words of its own, with plain stores, and only others lock theirs.

use std::sync::atomic::{AtomicU64, Ordering};

/// Tasks that were queued less tasks that have ended.
#[derive(Debug, Default)]
pub(crate) struct Load {
    /// Queued by threads that do not hold the scheduler, less those taken away by other schedulers.
    by_others: AtomicU64,
    /// Queued or taken over by the holder.
    by_holder: AtomicU64,
    ended: AtomicU64,
}

fn plus_one(counter: &AtomicU64, order: Ordering) {
    let count = counter.load(Ordering::Relaxed);
    counter.store(count.wrapping_add(1), order);
}

impl Load {
    /// Begins anew.
    pub(crate) fn reset(&self) {
        for counter in [&self.by_others, &self.by_holder, &self.ended] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    /// A thread that does not hold the scheduler queues a task.
    pub(crate) fn count_from_outside(&self) {
        self.by_others.fetch_add(1, Ordering::SeqCst);
    }

    /// What [`count_from_outside`](Self::count_from_outside) counted is not queued after all, or was
    /// taken away.
    pub(crate) fn take_back(&self) {
        self.by_others.fetch_sub(1, Ordering::SeqCst);
    }

    /// The holder queues a task.
    pub(crate) fn count_by_holder(&self) {
        plus_one(&self.by_holder, Ordering::Release);
    }

    /// The holder has seen a task end, or does not queue what it counted.
    pub(crate) fn count_end(&self) {
        plus_one(&self.ended, Ordering::Release);
    }

    /// Tasks that have not ended. Never less than there are: what has ended is read first, and a
    /// task that spawns another ends after that.
    pub(crate) fn tasks(&self) -> u64 {
        let ended = self.ended.load(Ordering::Acquire);
        let by_holder = self.by_holder.load(Ordering::Acquire);
        let by_others = self.by_others.load(Ordering::SeqCst);
        by_others.wrapping_add(by_holder).wrapping_sub(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// New tasks are routed by it, and a runtime ends when it is 0.
    #[test]
    fn what_was_queued_and_has_not_ended_is_the_load() {
        let load = Load::default();
        load.count_from_outside();
        load.count_by_holder();
        assert_eq!(load.tasks(), 2);
        load.count_end();
        load.take_back();
        assert_eq!(
            load.tasks(),
            0,
            "also when another scheduler took what others had queued"
        );
        load.take_back();
        load.count_by_holder();
        assert_eq!(
            load.tasks(),
            0,
            "also when it took what the holder had queued"
        );
    }
}
