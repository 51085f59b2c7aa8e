//! One scheduler: its queues, its rules, and which thread may touch which part.
//!
//! At any time one thread *holds* a scheduler: in fiber mode always its own thread, in thread mode
//! the worker with the baton. Only the holder touches the [`Core`]. All other threads put workers
//! into the inbox or tasks into the queue, and ring the alarm.
//!
//! ```text
//! other threads ── signal ──▶ inbox ─┐          ┌─ timers: waits with a deadline
//!               ── spawn ───▶ queue ─┤ gather() │
//!                                    ▼          ▼
//!            signalled ──▶ head │ runnable │ tail ◀── yielded, new
//!                                    │ next()
//!                                    ▼
//!                                  runs
//! ```
//!
//! There is no dispatcher thread: scheduler code runs where the last worker stopped. Like the
//! control blocks of workers, `Scheduler` values are never freed, only reused.
//!
//! The files in this folder use only those further down in this list:
//!
//! ```text
//! scheduler, core, tasks, group,     one scheduler and the group it belongs to, which know each
//!   idle, completion                   other: tasks are routed and stolen
//! account, events, timers, driver    what the core consists of
//! waiter, inbox, addresses           how others reach a worker
//! worker                             a control block; it also names its scheduler, by a pointer
//! task, mode, deadline, alarm, asleep, load, monitor_sleep
//! ```
//!
//! A scheduler neither makes nor switches its workers, and only keeps what that takes:
//! [`AttachWorker`] gives a new worker its stack or its thread, and the layers above (`fiber`,
//! `baton`, `switch`, `park`) make the switch. It does not know who looks for stalls either: the
//! monitor reads its records and its atomics, and only its sleep is known here.

mod account;
pub(crate) mod addresses;
mod alarm;
mod asleep;
mod completion;
mod core;
mod deadline;
pub(crate) mod driver;
mod events;
mod group;
mod idle;
mod inbox;
mod load;
mod mode;
mod monitor_sleep;
pub(crate) mod task;
mod tasks;
mod timers;
mod waiter;
pub(crate) mod worker;

use std::cell::UnsafeCell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::atomics::lock;
use crate::error::JoinError;
use alarm::Alarm;
pub(crate) use core::{AttachWorker, Core};
pub(crate) use deadline::{Deadline, Limit};
pub(crate) use group::{GroupSettings, SchedulerEntry, SchedulerGroup};
use inbox::Inbox;
use load::SchedulerLoad;
pub(crate) use mode::LeaveKind;
pub use mode::Mode;
pub(crate) use monitor_sleep::MonitorSleep;
use tasks::OpenQueue;
pub(crate) use waiter::Waiter;
use worker::{Phase, WorkerCell};

use swtch_observe::clock;
use swtch_observe::layout::RUN_BITS;

/// A scheduler. The parts that other threads than the holder may touch are atomic or locked.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Scheduler {
    /// Set by the monitor at the end of the quantum; a yield point costs one load of it.
    pub(crate) need_yield: AtomicBool,
    /// True if clocks are read and times are measured.
    accounting: AtomicBool,
    inbox: Inbox,
    pub(crate) alarm: Alarm,
    /// Tasks that wait for a worker and that other schedulers may take.
    open: OpenQueue,
    /// Number of tasks that have not ended.
    pub(crate) load: SchedulerLoad,
    /// True if a worker was free, or could be made, when the holder last prepared to sleep.
    takes_tasks: AtomicBool,
    /// True if a wait had a deadline when the scheduler went idle, so that it will wake by itself.
    pub(crate) has_deadline: AtomicBool,
    /// Asked to end: all tasks are cancelled, and the holder ends when none is left.
    closing: AtomicBool,
    core: UnsafeCell<Option<Core>>,
}

// SAFETY: `core` is reached by the holder only (`Scheduler::core`), of which there is one.
unsafe impl Sync for Scheduler {}
// SAFETY: as above; the holder of a scheduler in fiber mode is one thread from beginning to end.
unsafe impl Send for Scheduler {}

/// Schedulers that have ended and can be reused.
static UNUSED: Mutex<Vec<&'static Scheduler>> = Mutex::new(Vec::new());

impl Scheduler {
    /// Takes a scheduler that has no holder yet.
    pub(crate) fn take(accounting: bool) -> Result<&'static Self, std::io::Error> {
        let unused = lock(&UNUSED).pop();
        let scheduler = match unused {
            Some(scheduler) => scheduler,
            None => Box::leak(Box::new(Self {
                need_yield: AtomicBool::new(false),
                accounting: AtomicBool::new(false),
                inbox: Inbox::new(),
                alarm: Alarm::new()?,
                open: OpenQueue::new(),
                load: SchedulerLoad::default(),
                takes_tasks: AtomicBool::new(true),
                has_deadline: AtomicBool::new(false),
                closing: AtomicBool::new(false),
                core: UnsafeCell::new(None),
            })),
        };
        scheduler.accounting.store(accounting, Ordering::Relaxed);
        scheduler.closing.store(false, Ordering::Relaxed);
        scheduler.load.reset();
        Ok(scheduler)
    }

    /// Sets its core, before any thread holds it.
    ///
    /// # Safety
    /// It has no holder, and no task has been queued.
    pub(crate) unsafe fn init_core(&self, core: Core) {
        // SAFETY: by the caller's promise no other code accesses it.
        unsafe { *self.core.get() = Some(core) };
    }

    /// Drops its core and lets it be used again.
    ///
    /// # Safety
    /// It has no holder any more, all its tasks have ended, and no thread spawns into it.
    pub(crate) unsafe fn recycle(&'static self) {
        // SAFETY: by the caller's promise no other code accesses it.
        unsafe { *self.core.get() = None };
        lock(&UNUSED).push(self);
    }

    /// Its core, for a short access.
    ///
    /// Two mutable references to the core must not exist at a time, not even in one thread: the
    /// compiler assumes that what one of them reads is not written through the other. So a method
    /// of [`Core`], and what it calls, takes the core as an argument and never calls this.
    ///
    /// # Safety
    /// The caller holds the scheduler, and uses no reference obtained before.
    #[expect(clippy::mut_from_ref, reason = "the holder is the only one")]
    #[inline(always)]
    pub(crate) unsafe fn core(&self) -> &mut Core {
        // SAFETY: by the caller's promise no other code accesses it.
        let core = unsafe { &mut *self.core.get() };
        core.as_mut()
            .expect("a scheduler has a core while it is held")
    }

    /// The schedulers of its runtime.
    ///
    /// # Safety
    /// The caller holds the scheduler. The reference is valid while a task of the runtime lives. It
    /// points outside of the core, which may be changed meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn group(&self) -> &SchedulerGroup {
        // SAFETY: by the caller's promise.
        &unsafe { self.core() }.group
    }

    /// The present time in ticks; 0 without accounting.
    #[inline(always)]
    pub(crate) fn now(&self) -> u64 {
        if self.accounting.load(Ordering::Relaxed) {
            clock::ticks()
        } else {
            0
        }
    }

    /// The id of the task that the calling worker works on.
    pub(crate) fn task_of(&self, cell: &'static WorkerCell) -> u64 {
        // SAFETY: the calling worker runs.
        unsafe { cell.own() }.word >> RUN_BITS
    }

    // --- called by workers that run -------------------------------------------------------------

    /// Returns true if nothing else could run, so that a yield of the calling worker is no switch; counts that yield.
    #[inline(always)]
    pub(crate) fn reselects(&self, cell: &'static WorkerCell) -> bool {
        // SAFETY: the calling worker holds the scheduler.
        let core = unsafe { self.core() };
        let nothing_else = core.nobody_runnable()
            && self.nothing_to_gather(core)
            && core.timers.is_empty()
            && core.io.nothing_to_do();
        if nothing_else {
            core.reselect(self, cell);
        }
        nothing_else
    }

    /// Ends the wait of the calling worker at `deadline`, unless it was decided before.
    pub(crate) fn add_timer(&'static self, deadline: Deadline, waiter: Waiter) {
        // SAFETY: the calling worker holds the scheduler.
        unsafe { self.core() }.timers.add(deadline, waiter);
    }

    // --- called by any thread -------------------------------------------------------------------

    /// Makes a worker runnable. The caller has decided its wait.
    pub(crate) fn wake(&'static self, cell: &'static WorkerCell) {
        cell.signalled_ticks.store(self.now(), Ordering::Relaxed);
        let signaller = worker::current();
        let (task, number) = signaller.map_or((0, 0), |signaller| {
            // SAFETY: the calling worker runs.
            let own = unsafe { signaller.own() };
            (
                own.word >> RUN_BITS,
                own.slot.as_ref().map_or(0, |slot| slot.index + 1),
            )
        });
        cell.signaller_task.store(task, Ordering::Relaxed);
        cell.signaller_worker.store(number, Ordering::Relaxed);
        let holds_it = signaller.is_some_and(|signaller| {
            signaller
                .scheduler()
                .is_some_and(|own| std::ptr::eq(own, self))
                && !std::ptr::eq(signaller, cell)
        });
        if holds_it {
            // SAFETY: the calling worker holds this scheduler, and `cell` is suspended.
            unsafe { self.core() }.signalled(cell);
        } else {
            self.inbox.push(cell);
            self.alarm.ring();
        }
    }

    /// Cancels all tasks, and asks the holder to end when none is left.
    pub(crate) fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.alarm.ring();
    }

    /// Returns true if the scheduler was asked to end.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::SeqCst)
    }

    // --- called by the holder -------------------------------------------------------------------

    /// Returns true if inbox and task queues are empty, so that gathering can be skipped.
    #[inline(always)]
    fn nothing_to_gather(&self, core: &Core) -> bool {
        self.inbox.is_empty()
            && !self.closing.load(Ordering::Relaxed)
            && self.open.length() == 0
            && core.near.is_empty()
    }

    /// `now`, or the present tick where no times are measured.
    #[inline(always)]
    fn ticks(&self, now: u64) -> u64 {
        if self.accounting.load(Ordering::Relaxed) {
            now
        } else {
            clock::ticks()
        }
    }

    /// Does the accounting for a worker that leaves, and queues it. False when it yielded and no
    /// other worker is runnable: then it has not left.
    #[inline(always)]
    pub(crate) fn leaves(
        &'static self,
        cell: &'static WorkerCell,
        leave: LeaveKind,
        now: u64,
    ) -> bool {
        if leave == LeaveKind::Yield {
            self.gather(now);
        }
        // SAFETY: called by the holder.
        let core = unsafe { self.core() };
        if leave == LeaveKind::Yield && core.nobody_runnable() {
            core.reselect(self, cell);
            return false;
        }
        core.note_interruption(cell);
        core.accounts.left(cell, leave, now);
        match leave {
            LeaveKind::Yield => core.queue_at_tail(cell),
            LeaveKind::Suspend | LeaveKind::Preemptive => self.gather(now),
            LeaveKind::Done => {
                core.becomes_idle(self, cell);
                self.gather(now);
            }
        }
        true
    }

    /// Does the accounting for a worker that was chosen to run.
    #[inline(always)]
    pub(crate) fn enters(&'static self, cell: &'static WorkerCell, now: u64) {
        // SAFETY: called by the holder.
        let core = unsafe { self.core() };
        core.count_runnable();
        if core.left_at != 0 {
            let left = std::mem::take(&mut core.left_at);
            core.accounts.handed_over(left, now);
        }
        core.accounts.entered(cell, now);
        self.need_yield.store(false, Ordering::Relaxed);
    }

    /// Returns true if nothing came in since the sleep was announced. Tasks count only if there is a worker for them;
    /// otherwise they must wait until another task ends.
    pub(crate) fn nothing_came_in(&self) -> bool {
        let takes_tasks = self.takes_tasks.load(Ordering::Relaxed);
        self.inbox.is_empty() && !(takes_tasks && self.has_open_tasks())
    }

    /// Collects what came from outside since the last call: expired timers, I/O, signals, tasks.
    #[inline(always)]
    pub(crate) fn gather(&'static self, now: u64) {
        // SAFETY: called by the holder.
        let core = unsafe { self.core() };
        if !core.timers.is_empty() && core.timers.may_be_overdue(self.ticks(now)) {
            core.end_overdue_waits(self, now);
        }
        if !core.io.nothing_to_do() {
            core.drive_io(self);
        }
        if !self.nothing_to_gather(core) {
            self.gather_what_is_there(now);
        }
    }

    /// Cancels all tasks: those that wait for a worker and those in other waits now, all others at
    /// their next wait. No tasks come in once a scheduler is closing.
    ///
    /// # Safety
    /// The caller holds the scheduler.
    unsafe fn cancel_all(&'static self) {
        // SAFETY: by the caller's promise.
        while let Some(task) = unsafe { self.core() }.next_task(self) {
            task.abandon(JoinError::Cancelled);
            // SAFETY: as above.
            unsafe { self.core() }.task_ended(self);
        }
        // SAFETY: as above.
        let core = unsafe { self.core() };
        if std::mem::replace(&mut core.all_cancelled, true) {
            return;
        }
        for cell in core.workers.clone() {
            // SAFETY: the holder may look at its workers.
            let own = unsafe { cell.own() };
            if let Some(task) = &own.next_task {
                task.cancel();
            }
            let flag = own.cancel;
            // SAFETY: not null while the worker has a task, which keeps the flag alive.
            let Some(flag) = (unsafe { flag.as_ref() }) else {
                continue;
            };
            flag.store(true, Ordering::SeqCst);
            let waiter = Waiter::of(cell).filter(|_| !cell.wait.is_uncancellable());
            if waiter.is_some_and(|waiter| waiter.decide(Phase::Cancelled)) {
                self.wake(cell);
            }
        }
    }

    #[cold]
    fn gather_what_is_there(&'static self, now: u64) {
        if self.is_closing() {
            // SAFETY: called by the holder.
            unsafe { self.cancel_all() };
        }
        if !self.inbox.is_empty() {
            for cell in self.inbox.take() {
                // SAFETY: called by the holder; the wait of `cell` is decided, so it is suspended.
                unsafe { self.core() }.signalled(cell);
            }
        }
        // SAFETY: called by the holder.
        let core = unsafe { self.core() };
        core.share_near_tasks(self);
        if core.waiting_tasks(self) != 0 {
            core.bind_one(self, now);
        }
    }
}
