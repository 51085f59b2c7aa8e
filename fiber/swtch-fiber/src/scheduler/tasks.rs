//! Tasks that wait for a worker: two queues, one of them without a lock.
//!
//! Tasks that a worker spawns for its own scheduler go to the *near* queue, which only the holder
//! touches: no lock, no alarm. All others go to the *open* queue. Other threads may put tasks
//! there, and other schedulers may take tasks from it while this one is busy. While another
//! scheduler is idle, the near queue is emptied into the open one at the next switch.
//!
//! ```text
//! own workers ── none idle ──────▶ near ─┐
//!             └─ some idle ───┐          ├─ in turn ─▶ a worker, one task at a switch
//! other threads ──────────────┴──▶ open ─┤
//!                                        └─▶ another scheduler with nothing to do
//! ```

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::task::Task;
use super::worker::{self, WorkerCell};
use super::{Core, LeaveKind, Scheduler};
use crate::atomics::lock;
use crate::fork;

/// The queue of tasks that other threads may reach.
#[derive(Debug)]
pub(crate) struct OpenQueue {
    tasks: Mutex<VecDeque<Task>>,
    /// Length of the queue: a thread that reads 0 need not take the lock.
    length: AtomicU32,
}

impl OpenQueue {
    pub(crate) const fn new() -> Self {
        Self {
            tasks: Mutex::new(VecDeque::new()),
            length: AtomicU32::new(0),
        }
    }

    #[inline(always)]
    pub(crate) fn length(&self) -> u32 {
        self.length.load(Ordering::Relaxed)
    }

    fn with<Result>(&self, change: impl FnOnce(&mut VecDeque<Task>) -> Result) -> Result {
        let mut tasks = lock(&self.tasks);
        let result = change(&mut tasks);
        let length = u32::try_from(tasks.len()).unwrap_or(u32::MAX);
        self.length.store(length, Ordering::Relaxed);
        result
    }

    fn take(&self, choose: impl FnOnce(&mut VecDeque<Task>) -> Option<Task>) -> Option<Task> {
        if self.length() == 0 {
            return None;
        }
        self.with(choose)
    }
}

impl Scheduler {
    /// Queues a task from another thread. The load counts it already.
    pub(crate) fn enqueue_from_outside(&self, task: Task) {
        fork::refuse_in_child();
        self.open.with(|tasks| tasks.push_back(task));
        self.alarm.ring();
    }

    /// Queues a task of the holder. The load counts it already.
    ///
    /// # Safety
    /// The caller holds the scheduler.
    pub(crate) unsafe fn enqueue_by_holder(&self, task: Task) {
        fork::refuse_in_child();
        // SAFETY: by the caller's promise.
        unsafe { self.core() }.near.push_back(task);
    }

    /// Returns true if the calling thread is a worker of this scheduler, and so holds it.
    pub(crate) fn runs_the_caller(&self) -> bool {
        let caller = worker::current().and_then(WorkerCell::scheduler);
        caller.is_some_and(|scheduler| std::ptr::eq(scheduler, self))
    }

    /// Takes the oldest task that may run on another scheduler.
    pub(crate) fn take_for_another(&self) -> Option<Task> {
        self.open.take(|tasks| {
            let place = tasks.iter().position(|task| !task.placed)?;
            tasks.remove(place)
        })
    }

    pub(crate) fn has_open_tasks(&self) -> bool {
        self.open.length() != 0
    }

    /// Called when the calling worker's task has ended. If no other worker is runnable and a task
    /// is in the near queue, the worker continues with that task, without a switch of stacks, and
    /// this returns true.
    pub(crate) fn goes_on(&'static self, cell: &'static WorkerCell) -> bool {
        // SAFETY: the calling worker holds the scheduler.
        let core = unsafe { self.core() };
        if core.near.is_empty() || !core.nobody_runnable() || !self.nothing_but_near_tasks(core) {
            return false;
        }
        let Some(task) = core.near.pop_front() else {
            return false;
        };
        let now = self.now();
        core.note_interruption(cell);
        core.accounts.left(cell, LeaveKind::Done, now);
        core.task_ended(self);
        core.bind(self, cell, task, now);
        self.enters(cell, now);
        true
    }

    /// Returns true if there is nothing but near tasks, so that a full switch can be skipped.
    fn nothing_but_near_tasks(&self, core: &Core) -> bool {
        self.inbox.is_empty()
            && !self.closing.load(Ordering::Relaxed)
            && self.open.length() == 0
            && core.timers.is_empty()
            && core.io.nothing_to_do()
            && !core.group.has_idle_scheduler()
    }
}

impl Core {
    /// Removes the next task that waits for a worker, from both queues in turn, so that neither
    /// starves.
    pub(crate) fn next_task(&mut self, scheduler: &Scheduler) -> Option<Task> {
        self.near_first = !self.near_first;
        let open = || scheduler.open.take(VecDeque::pop_front);
        if self.near_first {
            self.near.pop_front().or_else(open)
        } else {
            open().or_else(|| self.near.pop_front())
        }
    }

    /// Lets other schedulers take the tasks that wait here, if one of them has nothing to do.
    pub(crate) fn share_near_tasks(&mut self, scheduler: &Scheduler) {
        let nothing_waits = self.near.is_empty() && !scheduler.has_open_tasks();
        if nothing_waits || !self.group.has_idle_scheduler() {
            return;
        }
        if !self.near.is_empty() {
            scheduler.open.with(|tasks| tasks.append(&mut self.near));
        }
        self.group.ring_all();
    }

    /// Number of tasks that wait here for a worker.
    pub(crate) fn waiting_tasks(&self, scheduler: &Scheduler) -> u32 {
        let near = u32::try_from(self.near.len()).unwrap_or(u32::MAX);
        near.saturating_add(scheduler.open.length())
    }
}
