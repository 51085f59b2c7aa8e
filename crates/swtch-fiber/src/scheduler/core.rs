//! What only the holder of a scheduler touches: who is runnable, who waits for a time, who is idle.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::Scheduler;
use super::account::Accounts;
use super::timers::Timers;
use crate::clock;
use crate::error::{Error, JoinError};
use crate::interrupted::Marker;
use crate::io::driver::Driver;
use crate::page::{self, SchedulerSlot, WorkerSlot};
use crate::park::Deadline;
use crate::runtime::{Mode, Shared};
use crate::stall::places;
use crate::task::{self, Task};
use crate::worker::{Phase, WorkerCell};
use crate::{baton, fiber};

/// Times in a row that a signalled worker goes to the head of the runnable queue; then it goes to
/// the tail once (`sys.dm_os_workers`, remarks).
pub(crate) const BOOSTS_IN_A_ROW: u32 = 1000;

/// The inner state of a scheduler.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) shared: Arc<Shared>,
    pub(crate) accounts: Accounts,
    runnable: VecDeque<&'static WorkerCell>,
    /// Tasks of own workers that wait for a worker; see `tasks`.
    pub(crate) near: VecDeque<Task>,
    /// Which queue of tasks is looked at first this time.
    pub(crate) near_first: bool,
    /// Ids for tasks that are spawned here.
    ids: Range<u64>,
    pub(crate) timers: Timers,
    /// Input and output that was started here.
    pub(crate) io: Driver,
    /// All workers, with or without a task.
    pub(crate) workers: Vec<&'static WorkerCell>,
    /// Workers without a task, the one that worked last at the end: its stack is warm.
    idle_workers: Vec<&'static WorkerCell>,
    /// No more workers than this are made here.
    workers_at_most: usize,
    /// Threads of workers (thread mode).
    pub(crate) threads: Vec<thread::JoinHandle<()>>,
    /// The block of the thread that holds the scheduler while no worker can (thread mode).
    pub(crate) host: Option<&'static WorkerCell>,
    /// When the baton was handed on (thread mode), 0 when it was not.
    pub(crate) left_at: u64,
    /// Closing: all tasks have been told.
    pub(crate) all_cancelled: bool,
    /// Notices that the OS interrupted the scheduler's thread (fiber mode); threads of workers have
    /// one each.
    pub(crate) marker: Option<Marker>,
}

impl Core {
    pub(crate) fn new(shared: Arc<Shared>, slot: SchedulerSlot) -> Self {
        let workers_at_most = shared.workers_per_scheduler;
        let io = Driver::new(shared.io, shared.mode);
        Self {
            accounts: Accounts::new(shared.accounting, slot),
            shared,
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

    /// Who runs next.
    #[inline(always)]
    pub(crate) fn next(&mut self) -> Option<&'static WorkerCell> {
        self.runnable.pop_front()
    }

    /// Who would run next.
    pub(crate) fn first_runnable(&self) -> Option<&'static WorkerCell> {
        self.runnable.front().copied()
    }

    /// A worker that yielded waits for its turn behind all others.
    #[inline(always)]
    pub(crate) fn queue_at_tail(&mut self, cell: &'static WorkerCell) {
        self.runnable.push_back(cell);
    }

    /// Counts a yield of the worker that runs on, because nobody else is runnable.
    pub(crate) fn reselect(&mut self, scheduler: &Scheduler, cell: &'static WorkerCell) {
        let now = scheduler.now();
        scheduler.need_yield.store(false, Ordering::Relaxed);
        self.note_interruption(cell);
        self.accounts.reselected(cell, now);
    }

    /// Counts a run, which ends here, if the OS took the CPU away in it.
    #[inline(always)]
    pub(crate) fn note_interruption(&mut self, cell: &'static WorkerCell) {
        let was_interrupted = match &mut self.marker {
            Some(marker) => marker.was_interrupted(),
            None => baton::was_interrupted(),
        };
        if was_interrupted {
            self.accounts.interrupted(cell);
        }
    }

    /// The scheduler's thread slept because nothing was runnable: that is no interruption.
    pub(crate) fn slept(&mut self) {
        if let Some(marker) = &mut self.marker {
            marker.begin_after_a_sleep();
        }
    }

    /// A worker whose wait was decided becomes runnable.
    pub(crate) fn signalled(&mut self, cell: &'static WorkerCell) {
        let boosts = self.accounts.signalled(cell);
        if boosts <= BOOSTS_IN_A_ROW {
            self.runnable.push_front(cell);
        } else {
            self.runnable.push_back(cell);
        }
        self.count_runnable();
    }

    /// Looks at the clock and ends waits whose deadline is over.
    #[inline(never)]
    pub(crate) fn end_overdue_waits(&mut self, scheduler: &Scheduler, now: u64) {
        let monotonic_ns = clock::monotonic_ns();
        self.accounts.looked_at_timers(now);
        while let Some((waiter, deadline)) = self.timers.take_overdue(monotonic_ns) {
            let cell = waiter.cell();
            if cell.wait.decide(waiter.ticket(), Phase::TimedOut) {
                // It could have run from its deadline on. What came after, until somebody looked, is
                // waiting for the turn, and not part of the sleep.
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

    /// How long nothing can happen by itself.
    pub(crate) fn next_deadline(&mut self) -> Option<Deadline> {
        self.timers.earliest()
    }

    /// Takes a task that waits for a worker elsewhere. A task that has started is never taken: its
    /// stack belongs to its thread.
    pub(crate) fn steal_one(&mut self, scheduler: &'static Scheduler) -> bool {
        let Some(task) = self.shared.steal_for(scheduler) else {
            return false;
        };
        self.accounts.stole(1);
        self.near.push_back(task);
        true
    }

    /// Binds the task that waits longest to a worker, if there is one or one can be made. One at a
    /// time: a thousand short tasks then need one worker, not a thousand.
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

    /// Gives a worker without a task this one.
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

    /// Whether a task could be bound at once.
    pub(crate) fn has_a_worker_to_spare(&self) -> bool {
        !self.idle_workers.is_empty() || self.workers.len() < self.workers_at_most
    }

    /// A worker without a task; made if there is none and one may be made.
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
        // SAFETY: nobody else knows the block yet.
        unsafe { cell.own() }.slot = Some(slot);
        places::note_cell(index, cell);
        let made = match self.shared.mode {
            Mode::Fiber => fiber::furnish(cell, index, &self.shared),
            // It brings its own stack: the number may have been a coroutine's.
            Mode::Thread => {
                places::note_stack(index, 0..0);
                baton::start_worker(scheduler, self.accounts.index(), cell, &self.shared)
                    .map(|thread| self.threads.push(thread))
            }
        };
        if let Err(error) = made {
            // SAFETY: it was never runnable.
            unsafe { cell.give_back() };
            return Err(error);
        }
        self.workers.push(cell);
        self.accounts.count_workers(self.workers.len());
        Ok(cell)
    }

    /// Tasks wait for the workers that there are; where there is none, they have failed.
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

    /// The worker's task has ended: it waits for another.
    pub(crate) fn becomes_idle(&mut self, scheduler: &Scheduler, cell: &'static WorkerCell) {
        self.idle_workers.push(cell);
        self.task_ended(scheduler);
    }

    /// A task of this scheduler has ended.
    pub(crate) fn task_ended(&mut self, scheduler: &Scheduler) {
        scheduler.load.count_end();
        self.count_tasks(scheduler);
    }

    /// Gives back what queues took when very many waited at a time: 64 bytes a task were seen to stay.
    pub(crate) fn shrink_queues(&mut self) {
        shrink(&mut self.near);
        shrink(&mut self.runnable);
    }

    /// Says how many tasks there are, and how many of them wait for a worker.
    pub(crate) fn count_tasks(&self, scheduler: &Scheduler) {
        let waiting = self.waiting_tasks(scheduler);
        self.accounts.count_tasks(scheduler.load.tasks(), waiting);
    }

    /// The id of a task that is spawned here. They are fetched in dozens, because fetching locks.
    pub(crate) fn next_task_id(&mut self) -> u64 {
        self.ids.next().unwrap_or_else(|| {
            self.ids = task::fresh_ids(48);
            self.ids.next().expect("dozens are fetched")
        })
    }

    /// Whether any task of the runtime is left: it may still spawn here.
    pub(crate) fn has_tasks(&self) -> bool {
        self.shared.has_tasks()
    }

    #[inline(always)]
    pub(crate) fn count_runnable(&self) {
        self.accounts.count_runnable(self.runnable.len());
    }
}

/// Leaves room for twice as many as there are, where there is room for very many more.
fn shrink<Item>(queue: &mut VecDeque<Item>) {
    const FEW: usize = 1024;
    if queue.capacity() > FEW && queue.capacity() / 4 > queue.len() {
        queue.shrink_to(FEW.max(queue.len() * 2));
    }
}
