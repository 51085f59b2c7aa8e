//! A scheduler as seen by the monitor, through its records in the shared page.
//!
//! The monitor does not hold a scheduler, so it reads what an observer in another process reads.
//! Records may change while they are read, so values may be of two moments; the watch then notices
//! that progress has changed.

use std::ops::Range;
use std::sync::atomic::Ordering;

use swtch_observe::layout::{SchedulerRecord, ThreadRecord, thread_kind, worker_state};
use swtch_observe::layout::{WorkerRecord, scheduler_status};
use swtch_observe::names;

use super::evidence;
use super::report::StalledWorker;
use super::verdict::SchedulerDuty;
use super::watch::SuspectedScheduler;
use crate::page::WritablePage;
use crate::scheduler::{Scheduler, addresses};

/// Most workers whose stacks are searched: each takes some 10 µs of the monitor's time.
const SEARCHED: usize = 4096;

/// The records of one scheduler.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Records {
    page: &'static WritablePage,
    index: u32,
    record: &'static SchedulerRecord,
}

impl Records {
    /// The records of the scheduler with this index.
    pub(crate) fn new(page: &'static WritablePage, index: u32) -> Self {
        Self {
            page,
            index,
            record: page.scheduler(index),
        }
    }

    /// The number that shows progress, see [`SchedulerRecord::progress`].
    pub(crate) fn progress(self) -> u64 {
        self.record.progress()
    }

    /// Returns what the scheduler should be doing.
    pub(crate) fn duty(self, scheduler: &Scheduler) -> SchedulerDuty {
        let came_in = !scheduler.is_closing() && !scheduler.nothing_came_in();
        if self.record.is_idle.load(Ordering::SeqCst) != 0 {
            return if came_in {
                SchedulerDuty::Queued
            } else {
                SchedulerDuty::Idle
            };
        }
        let is_queued = came_in || self.record.runnable_tasks_count.load(Ordering::Relaxed) > 0;
        match self.running_worker() {
            Some(_) => SchedulerDuty::Running,
            None if is_queued => SchedulerDuty::Queued,
            None => SchedulerDuty::Idle,
        }
    }

    /// The worker that runs, with its number.
    fn running_worker(self) -> Option<(u32, &'static WorkerRecord)> {
        let active = self.record.active_worker_plus_one.load(Ordering::Relaxed);
        let worker = active.checked_sub(1)?;
        let record = self.page.worker(worker);
        // A worker that has left stays the active one until the next has entered, so check its
        // state too.
        let runs = record.state.load(Ordering::Relaxed) == worker_state::RUNNING;
        runs.then_some((worker, record))
    }

    /// The data for a report.
    pub(crate) fn subject(self) -> SuspectedScheduler<'static> {
        SuspectedScheduler {
            scheduler: self.record.scheduler_id.load(Ordering::Relaxed),
            tid: self.tid(),
            offender: self.running_worker().map(|(worker, record)| StalledWorker {
                worker,
                task: record.task_id.load(Ordering::Relaxed),
                name: self.task_name(worker),
            }),
            preemptive: self.preemptive(),
            switched_out: Box::new(self.switched_out().take(SEARCHED)),
            task_name: Box::new(move |worker| self.task_name(worker)),
        }
    }

    /// The thread that holds the scheduler.
    ///
    /// In thread mode the baton may have been passed to a thread that the OS does not schedule.
    /// Then that thread is returned, not the one that passed the baton and sleeps.
    fn tid(self) -> i32 {
        let holder = self.record.active_thread_plus_one.load(Ordering::Relaxed);
        let holder = holder.checked_sub(1).map_or(0, |index| {
            self.page.thread(index).tid.load(Ordering::Relaxed)
        });
        let holder = holder.cast_signed();
        if self.has_fibers() || self.running_worker().is_some() {
            return holder;
        }
        let preemptive = self.preemptive();
        let kinds = [thread_kind::WORKER, thread_kind::SCHEDULER];
        self.threads(&kinds)
            .map(|thread| thread.tid.load(Ordering::Relaxed).cast_signed())
            .find(|tid| !preemptive.contains(tid) && evidence::is_runnable(*tid))
            .unwrap_or(holder)
    }

    fn has_fibers(self) -> bool {
        self.record.status.load(Ordering::Relaxed) == scheduler_status::FIBER
    }

    /// The scheduler's threads that are of one of these kinds.
    fn threads(self, kinds: &[u32]) -> impl Iterator<Item = &'static ThreadRecord> {
        let used = self.page.header().threads.used.load(Ordering::Acquire);
        (0..used)
            .map(move |index| self.page.thread(index))
            .filter(move |thread| {
                let own = thread.scheduler_plus_one.load(Ordering::Relaxed) == self.index + 1;
                own && kinds.contains(&thread.kind.load(Ordering::Acquire))
            })
    }

    /// The scheduler's workers that are in one of these states.
    fn workers(self, states: &'static [u32]) -> impl Iterator<Item = (u32, &'static WorkerRecord)> {
        let used = self.page.header().workers.used.load(Ordering::Acquire);
        (0..used)
            .map(move |index| (index, self.page.worker(index)))
            .filter(move |(_, worker)| {
                let own = worker.scheduler_plus_one.load(Ordering::Relaxed) == self.index + 1;
                own && states.contains(&worker.state.load(Ordering::Relaxed))
            })
    }

    /// Ids of the threads that run preemptively on behalf of the scheduler.
    fn preemptive(self) -> Vec<i32> {
        let tid = |thread: &ThreadRecord| thread.tid.load(Ordering::Relaxed).cast_signed();
        if self.has_fibers() {
            return self
                .threads(&[thread_kind::HELPER])
                .filter(|thread| thread.word.load(Ordering::Relaxed) != 0)
                .map(tid)
                .collect();
        }
        self.workers(&[worker_state::PREEMPTIVE])
            .filter_map(|(_, worker)| self.thread_of(worker))
            .map(tid)
            .collect()
    }

    fn thread_of(self, worker: &WorkerRecord) -> Option<&'static ThreadRecord> {
        let index = worker.thread_plus_one.load(Ordering::Relaxed);
        Some(self.page.thread(index.checked_sub(1)?))
    }

    /// Returns true if pending I/O or a preemptive section may wake a worker.
    pub(crate) fn may_wake_by_itself(self) -> bool {
        self.record.pending_io_count.load(Ordering::Relaxed) != 0
            || self.workers(&[worker_state::PREEMPTIVE]).next().is_some()
    }

    /// Workers that may hold a lock while they do not run, with their stacks.
    fn switched_out(self) -> impl Iterator<Item = (u32, Range<usize>)> {
        self.workers(&[worker_state::RUNNABLE, worker_state::SUSPENDED])
            .map(move |(index, _)| (index, addresses::stack(self.page, index)))
    }

    /// The name of a worker's task, or `#` and the task's id.
    fn task_name(self, worker: u32) -> String {
        let name = names::load(&self.page.worker_name(worker).bytes);
        if name.is_empty() {
            let task = &self.page.worker(worker).task_id;
            return format!("#{}", task.load(Ordering::Relaxed));
        }
        name
    }
}
