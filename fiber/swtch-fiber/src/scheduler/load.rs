//! The number of tasks of a scheduler, counted by several threads with little contention.
//!
//! Spawning and ending a task costs mostly locked instructions, 5 ns each (AMD EPYC). So the holder
//! of the scheduler counts in words of its own, with plain stores, and only other threads use
//! locked instructions, on theirs.

use std::sync::atomic::{AtomicU64, Ordering};

/// Tasks that were queued minus tasks that have ended.
#[derive(Debug, Default)]
pub(crate) struct SchedulerLoad {
    /// Queued by threads that do not hold the scheduler, minus those taken away by other
    /// schedulers.
    by_others: AtomicU64,
    /// Queued or stolen by the holder.
    by_holder: AtomicU64,
    ended: AtomicU64,
}

fn plus_one(counter: &AtomicU64, order: Ordering) {
    let count = counter.load(Ordering::Relaxed);
    counter.store(count.wrapping_add(1), order);
}

impl SchedulerLoad {
    /// Sets all counts to 0.
    pub(crate) fn reset(&self) {
        for counter in [&self.by_others, &self.by_holder, &self.ended] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    /// Counts a task queued by a thread that does not hold the scheduler.
    pub(crate) fn count_from_outside(&self) {
        self.by_others.fetch_add(1, Ordering::SeqCst);
    }

    /// Undoes [`count_from_outside`](Self::count_from_outside): the task was not queued after all,
    /// or was taken away.
    pub(crate) fn take_back(&self) {
        self.by_others.fetch_sub(1, Ordering::SeqCst);
    }

    /// Counts a task queued by the holder.
    pub(crate) fn count_by_holder(&self) {
        plus_one(&self.by_holder, Ordering::Release);
    }

    /// Counts the end of a task; called by the holder, also for a task it counted but did not
    /// queue.
    pub(crate) fn count_end(&self) {
        plus_one(&self.ended, Ordering::Release);
    }

    /// Tasks that have not ended, never fewer than there are: the ended ones are read first, and a
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

    /// New tasks are routed by the load, and a runtime ends when it is 0.
    #[test]
    fn what_was_queued_and_has_not_ended_is_the_load() {
        let load = SchedulerLoad::default();
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
