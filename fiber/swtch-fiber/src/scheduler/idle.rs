//! Lets a scheduler look for work when nothing is runnable, then sleep in the kernel.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use swtch_observe::clock;

use super::Scheduler;

impl Scheduler {
    /// Returns when a worker is runnable (true), or when the scheduler is closing and has no task
    /// left (false). Called by the holder.
    pub(crate) fn idle(&'static self) -> bool {
        let began = self.now();
        // SAFETY: called by the holder.
        unsafe { self.core() }.accounts.idle_begins();
        let goes_on = self.wait_for_work();
        let now = self.now();
        // SAFETY: called by the holder.
        let core = unsafe { self.core() };
        let first = core.first_runnable();
        core.accounts.idle_ends(began, now, first);
        core.group.monitor.scheduler_works();
        goes_on
    }

    fn wait_for_work(&'static self) -> bool {
        loop {
            self.gather(self.now());
            // SAFETY: called by the holder, from here to the end.
            let core = unsafe { self.core() };
            if !core.nobody_runnable() {
                return true;
            }
            let closing = self.is_closing();
            if closing && !core.has_tasks() {
                // Other schedulers may have checked just before the last task ended.
                core.group.ring_all();
                return false;
            }
            core.count_tasks(self);
            core.shrink_queues();
            let takes_tasks = core.has_a_worker_to_spare();
            self.takes_tasks.store(takes_tasks, Ordering::Relaxed);
            if takes_tasks && core.steal_one(self) {
                continue;
            }
            let deadline = core.next_deadline();
            self.has_deadline
                .store(deadline.is_some(), Ordering::Relaxed);
            self.alarm.announce_sleep();
            let goes_on = self.is_closing() == closing && (!closing || core.has_tasks());
            if goes_on && self.nothing_came_in() {
                let _idle = takes_tasks.then(|| core.group.clone().count_as_idle());
                self.sleep(deadline.map(|deadline| deadline.monotonic_ns));
                // SAFETY: called by the holder.
                unsafe { self.core() }.timers.look_next_time();
            }
            self.alarm.awake();
        }
    }

    /// Sleeps until the alarm rings, an operation ends, or `until` (`CLOCK_MONOTONIC`, ns).
    fn sleep(&self, until: Option<u64>) {
        // SAFETY: called by the holder.
        let core = unsafe { self.core() };
        if core.io.pending() != 0 {
            core.io.sleep(until);
        } else {
            self.sleep_without_io(until);
        }
    }

    fn sleep_without_io(&self, until: Option<u64>) {
        let left = until
            .map(|until| Duration::from_nanos(until.saturating_sub(clock::monotonic_ns())))
            .map(|left| libc::timespec {
                tv_sec: left.as_secs().try_into().unwrap_or(libc::time_t::MAX),
                tv_nsec: left.subsec_nanos().into(),
            });
        let left = left.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let mut bell = libc::pollfd {
            fd: self.alarm.descriptor().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one descriptor; `left` is null or valid. The caller checks for work whatever this
        // returns.
        let rang = unsafe { libc::ppoll(&raw mut bell, 1, left, std::ptr::null()) };
        if rang > 0 {
            self.alarm.quiet();
        }
    }
}
