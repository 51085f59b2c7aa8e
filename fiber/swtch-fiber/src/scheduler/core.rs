//! The state that only the holder of a scheduler touches: runnable workers, timers, idle workers.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use swtch_observe::clock;

use super::account::{BOOSTS_IN_A_ROW, SchedulerAccounts};
use super::driver::Driver;
use super::task::{self, Task};
use super::timers::Timers;
use super::worker::{Phase, WorkerCell};
use super::{Deadline, Scheduler, SchedulerGroup, addresses};
use crate::error::{Error, JoinError};
use crate::interrupted::{self, Marker};
use crate::page::{self, SchedulerSlot, WorkerSlot};

/// Gives a new worker what it runs on, a stack or a thread, in the way of the runtime's mode. Called
/// by the holder. It must reach the core by its argument only: the scheduler's own way to it would be
/// a second exclusive reference.
pub(crate) type AttachWorker =
    fn(&mut Core, &'static Scheduler, &'static WorkerCell) -> Result<(), Error>;

/// The state of a scheduler that belongs to its holder.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) group: Arc<SchedulerGroup>,
    attach_worker: AttachWorker,
    pub(crate) accounts: SchedulerAccounts,
    runnable: VecDeque<&'static WorkerCell>,
    /// Tasks that wait for a worker: spawned by this scheduler's workers, or stolen; see `tasks`.
    pub(crate) near: VecDeque<Task>,
    /// Which queue of tasks is checked first this time.
    pub(crate) near_first: bool,
    /// Reserved ids for tasks that are spawned here.
    ids: Range<u64>,
    pub(crate) timers: Timers,
    /// The driver for I/O that was started here.
    pub(crate) io: Driver,
    /// All workers, with or without a task.
    pub(crate) workers: Vec<&'static WorkerCell>,
    /// Workers without a task. The one that worked last is at the end, because its stack is warm.
    idle_workers: Vec<&'static WorkerCell>,
    /// Limit of workers on this scheduler.
    workers_at_most: usize,
    /// Threads of the workers (thread mode).
    pub(crate) threads: Vec<thread::JoinHandle<()>>,
    /// The control block of the host thread, which holds the scheduler while no worker does (thread
    /// mode).
    pub(crate) host: Option<&'static WorkerCell>,
    /// The moment at which the baton was handed on (thread mode), 0 when it was not.
    pub(crate) left_at: u64,
    /// All tasks have been cancelled, because the scheduler is closing.
    pub(crate) all_cancelled: bool,
    /// Notices that the OS interrupted the scheduler's thread (fiber mode). In thread mode each
    /// worker's thread has its own.
    pub(crate) marker: Option<Marker>,
}

impl Core {
    pub(crate) fn new(
        group: Arc<SchedulerGroup>,
        slot: SchedulerSlot,
        attach_worker: AttachWorker,
    ) -> Self {
        let settings = &group.settings;
        let workers_at_most = settings.workers_per_scheduler;
        let io = Driver::new(settings.io, settings.mode);
        Self {
            accounts: SchedulerAccounts::new(settings.accounting, slot),
            group,
            attach_worker,
            runnable: VecDeque::new(),
            near: VecDeque::new(),
            near_first: false,
            ids: 0..0,
            timers: Timers::default(),
            io,
            workers: Vec::new(),
            idle_workers: Vec::new(),
            workers_at_most,
            threads: Vec::new(),
            host: None,
            left_at: 0,
            all_cancelled: false,
            marker: None,
        }
    }

    #[inline(always)]
    pub(crate) fn nobody_runnable(&self) -> bool {
        self.runnable.is_empty()
    }

    /// Removes the worker that runs next.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Option<&'static WorkerCell> {
        self.runnable.pop_front()
    }

    /// The worker that would run next.
    pub(crate) fn first_runnable(&self) -> Option<&'static WorkerCell> {
        self.runnable.front().copied()
    }

    /// Queues a worker that yielded behind all others.
    #[inline(always)]
    pub(crate) fn queue_at_tail(&mut self, cell: &'static WorkerCell) {
        self.runnable.push_back(cell);
    }

    /// Counts a yield after which the worker runs on, because no other is runnable.
    pub(crate) fn reselect(&mut self, scheduler: &Scheduler, cell: &'static WorkerCell) {
        let now = scheduler.now();
        scheduler.need_yield.store(false, Ordering::Relaxed);
        self.note_interruption(cell);
        self.accounts.reselected(cell, now);
    }

    /// Counts the run that ends here as interrupted, if the OS took the CPU away in it.
    #[inline(always)]
    pub(crate) fn note_interruption(&mut self, cell: &'static WorkerCell) {
        let was_interrupted = match &mut self.marker {
            Some(marker) => marker.was_interrupted(),
            None => interrupted::was_this_thread_interrupted(),
        };
        if was_interrupted {
            self.accounts.interrupted(cell);
        }
    }

    /// Restarts the marker after the scheduler's thread slept with nothing runnable, which is no
    /// interruption.
    pub(crate) fn slept(&mut self) {
        if let Some(marker) = &mut self.marker {
            marker.begin_after_a_sleep();
        }
    }

    /// Makes a worker runnable whose wait was decided.
    pub(crate) fn signalled(&mut self, cell: &'static WorkerCell) {
        let boosts = self.accounts.signalled(cell);
        if boosts <= BOOSTS_IN_A_ROW {
            self.runnable.push_front(cell);
        } else {
            self.runnable.push_back(cell);
        }
        self.count_runnable();
    }

    /// Reads the clock and ends waits whose deadline has passed.
    #[inline(never)]
    pub(crate) fn end_overdue_waits(&mut self, scheduler: &Scheduler, now: u64) {
        let monotonic_ns = clock::monotonic_ns();
        self.accounts.looked_at_timers(now);
        while let Some((waiter, deadline)) = self.timers.take_overdue(monotonic_ns) {
            let cell = waiter.cell();
            if waiter.decide(Phase::TimedOut) {
                // The worker could have run from its deadline on. The time from then until this
                // check counts as waiting for the turn, and not as part of the sleep.
                let late = Duration::from_nanos(monotonic_ns - deadline.monotonic_ns);
                let at = scheduler.now().saturating_sub(clock::rate().ticks_in(late));
                cell.signalled_ticks.store(at, Ordering::Relaxed);
                cell.signaller_task.store(0, Ordering::Relaxed);
                cell.signaller_worker.store(0, Ordering::Relaxed);
                self.signalled(cell);
            }
        }
        self.timers.looked(clock::ticks(), monotonic_ns);
    }

    /// The earliest deadline of an open wait; `None` when there is none.
    pub(crate) fn next_deadline(&mut self) -> Option<Deadline> {
        self.timers.earliest()
    }

    /// Takes a task that waits for a worker of another scheduler. A task that has started is never
    /// taken: its stack belongs to its thread.
    pub(crate) fn steal_one(&mut self, scheduler: &'static Scheduler) -> bool {
        let Some(task) = self.group.steal_for(scheduler) else {
            return false;
        };
        self.accounts.stole(1);
        self.near.push_back(task);
        true
    }

    /// Binds the next waiting task to a worker, if there is one or one can be made. One at a time:
    /// a thousand short tasks then need one worker, not a thousand.
    pub(crate) fn bind_one(&mut self, scheduler: &'static Scheduler, now: u64) {
        let Some(cell) = self.idle_worker(scheduler) else {
            return;
        };
        let Some(task) = self.next_task(scheduler) else {
            self.idle_workers.push(cell);
            return;
        };
        self.bind(scheduler, cell, task, now);
        self.runnable.push_back(cell);
        self.count_runnable();
    }

    /// Binds a task to a worker that has none.
    pub(crate) fn bind(
        &mut self,
        scheduler: &Scheduler,
        cell: &'static WorkerCell,
        task: Task,
        now: u64,
    ) {
        self.accounts.bound(cell, &task, now);
        // SAFETY: the holder may change a worker that has no task.
        unsafe { cell.own() }.next_task = Some(task.bound());
        self.count_tasks(scheduler);
    }

    /// Returns true if a task could get a worker at once.
    pub(crate) fn has_a_worker_to_spare(&self) -> bool {
        !self.idle_workers.is_empty() || self.workers.len() < self.workers_at_most
    }

    /// A worker without a task; made if there is none and the limit allows one.
    fn idle_worker(&mut self, scheduler: &'static Scheduler) -> Option<&'static WorkerCell> {
        if let Some(cell) = self.idle_workers.pop() {
            return Some(cell);
        }
        if self.workers.len() >= self.workers_at_most {
            return None;
        }
        match self.make_worker(scheduler) {
            Ok(cell) => Some(cell),
            Err(error) => {
                self.no_worker(scheduler, &error);
                None
            }
        }
    }

    fn make_worker(&mut self, scheduler: &'static Scheduler) -> Result<&'static WorkerCell, Error> {
        let slot = WorkerSlot::take(page::page()?, self.accounts.index())?;
        let index = slot.index;
        let cell = WorkerCell::take(Some(scheduler));
        // SAFETY: no other code knows the block yet.
        unsafe { cell.own() }.slot = Some(slot);
        addresses::note_cell(index, cell);
        if let Err(error) = (self.attach_worker)(self, scheduler, cell) {
            // SAFETY: it was never runnable.
            unsafe { cell.recycle() };
            return Err(error);
        }
        self.workers.push(cell);
        self.accounts.count_workers(self.workers.len());
        Ok(cell)
    }

    /// No further worker can be made: tasks wait for the existing ones. If there is none, they
    /// fail.
    fn no_worker(&mut self, scheduler: &'static Scheduler, error: &Error) {
        self.accounts.failed_to_create_worker();
        self.workers_at_most = self.workers.len().max(1);
        if self.workers.is_empty() {
            while let Some(task) = self.next_task(scheduler) {
                task.abandon(JoinError::NoWorker(error.to_string()));
                self.task_ended(scheduler);
            }
        }
    }

    /// Makes a worker available again after its task has ended.
    pub(crate) fn becomes_idle(&mut self, scheduler: &Scheduler, cell: &'static WorkerCell) {
        self.idle_workers.push(cell);
        self.task_ended(scheduler);
    }

    /// Counts the end of a task of this scheduler.
    pub(crate) fn task_ended(&mut self, scheduler: &Scheduler) {
        scheduler.load.count_end();
        self.count_tasks(scheduler);
    }

    /// Frees memory that the queues took when very many tasks waited: 64 bytes a task were seen to
    /// stay.
    pub(crate) fn shrink_queues(&mut self) {
        shrink(&mut self.near);
        shrink(&mut self.runnable);
    }

    /// Records how many tasks there are, and how many of them wait for a worker.
    pub(crate) fn count_tasks(&self, scheduler: &Scheduler) {
        let waiting = self.waiting_tasks(scheduler);
        self.accounts.count_tasks(scheduler.load.tasks(), waiting);
    }

    /// The id of a task that is spawned here. Ids are reserved 48 at a time, because that takes a
    /// locked instruction.
    pub(crate) fn next_task_id(&mut self) -> u64 {
        self.ids.next().unwrap_or_else(|| {
            self.ids = task::fresh_ids(48);
            self.ids.next().expect("dozens are fetched")
        })
    }

    /// Returns true if any task of the runtime is left, which could still spawn here.
    pub(crate) fn has_tasks(&self) -> bool {
        self.group.has_tasks()
    }

    #[inline(always)]
    pub(crate) fn count_runnable(&self) {
        self.accounts.count_runnable(self.runnable.len());
    }
}

/// Shrinks a queue that has much more room than items, to twice its length.
fn shrink<Item>(queue: &mut VecDeque<Item>) {
    const FEW: usize = 1024;
    if queue.capacity() > FEW && queue.capacity() / 4 > queue.len() {
        queue.shrink_to(FEW.max(queue.len() * 2));
    }
}
