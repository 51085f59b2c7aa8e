//! The schedulers of a runtime: their settings, and how tasks get from one to the other.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use swtch_observe::layout::SchedulerRecord;

use super::driver::Io;
use super::task::Task;
use super::{Mode, MonitorSleep, Scheduler};
use crate::error::Error;
use crate::helper_pool::HelperPool;
use crate::stack::StackPool;

/// The settings that all schedulers of a runtime share.
#[derive(Debug)]
pub(crate) struct GroupSettings {
    pub(crate) name: String,
    pub(crate) mode: Mode,
    pub(crate) accounting: bool,
    pub(crate) quantum: Duration,
    /// The pool from which workers get their stacks (fiber mode).
    pub(crate) stacks: Option<&'static StackPool>,
    pub(crate) thread_stack_size: usize,
    pub(crate) workers_per_scheduler: usize,
    /// The driver of sockets and files; never [`Io::Auto`].
    pub(crate) io: Io,
    /// The number by which the page reports `io`.
    pub(crate) io_driver: u32,
}

/// The schedulers of a runtime, and what they share.
#[derive(Debug)]
pub(crate) struct SchedulerGroup {
    pub(crate) settings: GroupSettings,
    entries: OnceLock<Vec<SchedulerEntry>>,
    /// Runs preemptive sections (fiber mode).
    pub(crate) helpers: Arc<HelperPool>,
    pub(crate) monitor: MonitorSleep,
    /// Number of schedulers that sleep and could take tasks of others.
    idle_schedulers: AtomicUsize,
    /// Set when the runtime ends: no new tasks are accepted.
    ending: AtomicBool,
    /// Breaks ties between schedulers of equal load.
    turn: AtomicUsize,
}

/// Counts one scheduler as idle, while this value lives.
#[derive(Debug)]
pub(crate) struct IdleScheduler(Arc<SchedulerGroup>);

impl Drop for IdleScheduler {
    fn drop(&mut self) {
        self.0.idle_schedulers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A scheduler of the runtime, and its record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SchedulerEntry {
    pub(crate) scheduler: &'static Scheduler,
    pub(crate) record: &'static SchedulerRecord,
    /// Index of the record in the page.
    pub(crate) index: u32,
}

impl SchedulerGroup {
    pub(crate) fn new(settings: GroupSettings, helpers: Arc<HelperPool>) -> Self {
        Self {
            settings,
            helpers,
            monitor: MonitorSleep::new(),
            entries: OnceLock::new(),
            idle_schedulers: AtomicUsize::new(0),
            ending: AtomicBool::new(false),
            turn: AtomicUsize::new(0),
        }
    }

    /// Sets its schedulers, once.
    pub(crate) fn set_entries(&self, entries: Vec<SchedulerEntry>) {
        self.entries.set(entries).expect("set once");
    }

    /// Its schedulers; none before they are set.
    pub(crate) fn entries(&self) -> &[SchedulerEntry] {
        self.entries.get().map_or(&[], Vec::as_slice)
    }

    /// Queues a task on the wanted scheduler, or on the one with the least load.
    pub(crate) fn enqueue(&self, task: Task, wanted: Option<u32>) -> Result<(), Error> {
        let SchedulerEntry {
            scheduler, record, ..
        } = *self.route(wanted)?;
        let by_holder = scheduler.runs_the_caller();
        // Counted before `ending` is read; the thread that ends the runtime does it the other way
        // round. (Tasks of the holder are safe without that, since the task that spawns has not
        // ended.)
        if by_holder {
            scheduler.load.count_by_holder();
        } else {
            scheduler.load.count_from_outside();
        }
        if self.ending.load(Ordering::SeqCst) {
            if by_holder {
                scheduler.load.count_end();
            } else {
                scheduler.load.take_back();
                self.ring_all();
            }
            return Err(Error::ShuttingDown);
        }
        let has_idle_scheduler = self.has_idle_scheduler();
        if by_holder && !has_idle_scheduler {
            // SAFETY: the calling worker holds the scheduler.
            unsafe { scheduler.enqueue_by_holder(task) };
        } else {
            scheduler.enqueue_from_outside(task);
            if has_idle_scheduler {
                // The scheduler it was routed to may be busy, so an idle one takes the task.
                self.ring_all();
            }
            // The holder updates this count too, but possibly only much later.
            record.work_queue_count.fetch_add(1, Ordering::Relaxed);
            // If the scheduler does not react to the alarm, the monitor must be awake to notice
            // that.
            self.monitor.scheduler_works();
        }
        Ok(())
    }

    /// Returns true if a scheduler has nothing to do, and could take tasks of others.
    #[inline(always)]
    pub(crate) fn has_idle_scheduler(&self) -> bool {
        self.idle_schedulers.load(Ordering::Relaxed) != 0
    }

    /// Counts the caller's scheduler as idle, while the returned value lives.
    pub(crate) fn count_as_idle(self: Arc<Self>) -> IdleScheduler {
        self.idle_schedulers.fetch_add(1, Ordering::Relaxed);
        IdleScheduler(self)
    }

    fn route(&self, wanted: Option<u32>) -> Result<&SchedulerEntry, Error> {
        let entries = self.entries();
        if let Some(wanted) = wanted {
            return entries.get(wanted as usize).ok_or(Error::Setting {
                setting: "on_scheduler",
                value: wanted.to_string(),
                why: "the runtime has no scheduler with this number; they count from 0",
            });
        }
        if let [only] = entries {
            return Ok(only);
        }
        // A lost update between two threads does no harm here.
        let first = self.turn.load(Ordering::Relaxed);
        self.turn.store(first.wrapping_add(1), Ordering::Relaxed);
        (0..entries.len())
            .map(|step| &entries[first.wrapping_add(step) % entries.len()])
            .min_by_key(|entry| entry.scheduler.load.tasks())
            .ok_or(Error::NoRuntime)
    }

    /// Takes a task that waits for a worker of another, busy scheduler. From now on it counts as
    /// the thief's.
    pub(crate) fn steal_for(&self, thief: &Scheduler) -> Option<Task> {
        let others = self
            .entries()
            .iter()
            .filter(|entry| !std::ptr::eq(entry.scheduler, thief));
        for entry in others {
            if let Some(task) = entry.scheduler.take_for_another() {
                thief.load.count_by_holder();
                entry.scheduler.load.take_back();
                return Some(task);
            }
        }
        None
    }

    /// Returns true if any task has not ended.
    pub(crate) fn has_tasks(&self) -> bool {
        self.entries()
            .iter()
            .any(|entry| entry.scheduler.load.tasks() != 0)
    }

    /// Refuses new tasks, cancels those that there are, and asks the schedulers to end.
    pub(crate) fn close(&self) {
        self.ending.store(true, Ordering::SeqCst);
        for entry in self.entries() {
            entry.scheduler.close();
        }
    }

    pub(crate) fn ring_all(&self) {
        for entry in self.entries() {
            entry.scheduler.alarm.ring();
        }
    }
}
