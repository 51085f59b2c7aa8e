//! Decides what is counted when: every change of a worker's state goes through this file, in both modes.
//!
//! ```text
//!             bound                entered                 left(Yield)
//!   IDLE ──────────────▶ RUNNABLE ────────────▶ RUNNING ─────────────────▶ RUNNABLE
//!    ▲                      ▲                    │ │ │
//!    │                      │ signalled          │ │ └── reselected: counts a yield, no switch
//!    │                  SUSPENDED ◀──left(Suspend)─┘ │
//!    │                  PREEMPTIVE ◀─left(Preemptive)┘
//!    └────────────────────────────────── left(Done)
//! ```
//!
//! A span of time ends where a state ends. So the times of a worker's states add up to the lives of
//! its tasks, and the times of the runs add up to the scheduler's running time. Each change reads
//! the clock once.

use std::sync::atomic::Ordering;
use std::time::Duration;

use swtch_observe::clock;
use swtch_observe::layout::{
    BUCKETS, RUN_BITS, SchedulerRecord, ThreadRecord, WaitRecord, event_kind, worker_state,
};
use swtch_observe::names;

use super::LeaveKind;
use super::events::{RingWriter, UserSwitchOut};
use super::task::Task;
use super::worker::{PreviousWait, SchedulerData, WorkerCell};
use crate::page::{self, SchedulerSlot, add, add_small};
use crate::probes::{self, Arguments};
use crate::wait_type::WaitType;

/// Times in a row that a signalled worker goes to the head of the runnable queue; then it goes to
/// the tail once (`sys.dm_os_workers`, remarks).
pub(super) const BOOSTS_IN_A_ROW: u32 = 1000;

/// The counters and times of one scheduler.
#[derive(Debug)]
pub(crate) struct SchedulerAccounts {
    /// True if clocks are read and times measured.
    timed: bool,
    slot: SchedulerSlot,
    ring: Option<RingWriter>,
    /// Index and record of the thread that holds the scheduler.
    thread: Option<(u32, &'static ThreadRecord)>,
    /// The ring has the latest switch-out, and its successor is not known yet.
    is_departure_open: bool,
}

impl SchedulerAccounts {
    pub(crate) fn new(timed: bool, slot: SchedulerSlot) -> Self {
        let page = page::page_if_there().expect("a slot comes from the page");
        // Without clocks there are no events either, because they would have no time.
        let ring = timed.then(|| RingWriter::new(page, slot.index));
        Self {
            timed,
            slot,
            ring,
            thread: None,
            is_departure_open: false,
        }
    }

    pub(crate) fn index(&self) -> u32 {
        self.slot.index
    }

    #[inline(always)]
    pub(crate) fn record(&self) -> &'static SchedulerRecord {
        self.slot.record
    }

    /// Records which thread holds the scheduler from now on.
    pub(crate) fn held_by(&mut self, index: u32, thread: &'static ThreadRecord) {
        self.thread = Some((index, thread));
        self.record()
            .active_thread_plus_one
            .store(index + 1, Ordering::Relaxed);
    }

    /// Begins a change: makes the sequence odd, so that readers of the records retry.
    #[inline(always)]
    fn begin(&self) {
        let sequence = &self.record().sequence;
        sequence.store(
            sequence.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Relaxed,
        );
        std::sync::atomic::fence(Ordering::Release);
    }

    /// Ends a change: makes the sequence even again, so that readers accept the records.
    #[inline(always)]
    fn end(&self) {
        let sequence = &self.record().sequence;
        sequence.store(
            sequence.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Release,
        );
    }

    #[inline(always)]
    fn wait(&self, wait_type: WaitType) -> &'static WaitRecord {
        &self.slot.waits[wait_type.index()]
    }

    /// A worker yielded, and runs on because no other is runnable.
    pub(crate) fn reselected(&self, cell: &WorkerCell, now: u64) {
        // SAFETY: called by the holder.
        let worker = unsafe { cell.slot() }.record;
        let scheduler = self.record();
        self.begin();
        add(&scheduler.yield_count, 1);
        add(&scheduler.self_reselect_count, 1);
        add(&worker.yield_count, 1);
        let started = scheduler.run_started_ticks.load(Ordering::Relaxed);
        scheduler.run_started_ticks.store(now, Ordering::Relaxed);
        self.end();
        // SAFETY: called by the holder.
        let own = unsafe { cell.own() };
        probes::yield_(|| self.arguments(own, WaitType::NONE, now.saturating_sub(started)));
    }

    /// A worker left the scheduler.
    #[inline(always)]
    pub(crate) fn left(&mut self, cell: &WorkerCell, leave: LeaveKind, now: u64) {
        // SAFETY: called by the holder.
        let own = unsafe { cell.own() };
        let worker = own.slot.as_ref().expect("a worker has a record").record;
        let scheduler = self.record();
        self.begin();
        add(&scheduler.context_switches_count, 1);
        add(&worker.context_switch_count, 1);
        let (state, kind) = match leave {
            LeaveKind::Yield => (worker_state::RUNNABLE, event_kind::YIELD),
            LeaveKind::Suspend => (worker_state::SUSPENDED, event_kind::SUSPEND),
            LeaveKind::Preemptive => (worker_state::PREEMPTIVE, event_kind::PREEMPTIVE),
            LeaveKind::Done => (worker_state::IDLE, event_kind::DONE),
        };
        match leave {
            LeaveKind::Yield => {
                own.wait_type = WaitType::SOS_SCHEDULER_YIELD;
                // It goes to the tail of the queue, which ends its row of boosts.
                worker.boost_count.store(0, Ordering::Relaxed);
            }
            LeaveKind::Suspend => {}
            LeaveKind::Preemptive => add(&scheduler.preemptive_switches_count, 1),
            LeaveKind::Done => {
                add(&scheduler.tasks_completed_count, 1);
                add_small(&worker.tasks_processed_count, 1);
                worker.task_id.store(0, Ordering::Relaxed);
                own.wait_type = WaitType::NONE;
            }
        }
        if leave != LeaveKind::Done {
            add(&scheduler.yield_count, 1);
            add(&worker.yield_count, 1);
            add(&self.wait(own.wait_type).waiting_tasks_count, 1);
            worker
                .wait_type
                .store(own.wait_type.number().into(), Ordering::Relaxed);
        }
        // Release, so that the monitor, which looks for deadlocks, sees the wait type with the
        // state.
        worker.state.store(state, Ordering::Release);
        if self.timed {
            let ran = now.saturating_sub(own.in_ticks);
            add(&worker.running_ticks, ran);
            add(&scheduler.total_running_ticks, ran);
            worker.state_since_ticks.store(now, Ordering::Relaxed);
            own.since_ticks = now;
            own.out_ticks = now;
            if let Some(ring) = self.recording_ring(now) {
                ring.begin(&UserSwitchOut {
                    ticks: now,
                    ran_ticks: ran,
                    word: own.word,
                    before: own.before,
                    kind,
                    wait_type: own.wait_type.number(),
                    tid: self.tid(),
                });
                self.is_departure_open = true;
            }
        }
        self.end();
        self.probe_departure(own, leave, now);
    }

    /// Hits the probes for a worker that left: two loads while there are no listeners.
    #[inline(always)]
    fn probe_departure(&self, own: &SchedulerData, leave: LeaveKind, now: u64) {
        let ran = now.saturating_sub(own.in_ticks);
        let left = || self.arguments(own, own.wait_type, ran);
        let waits = || self.arguments(own, own.wait_type, 0);
        probes::switch(left);
        match leave {
            LeaveKind::Yield => probes::yield_(left),
            LeaveKind::Suspend => probes::wait_begin(waits),
            LeaveKind::Preemptive => {
                probes::preempt_begin(waits);
                probes::wait_begin(waits);
            }
            LeaveKind::Done => probes::task_done(left),
        }
    }

    /// Hits the probes for a worker that runs from now on: at most one load while there are no
    /// listeners.
    #[inline(always)]
    fn probe_arrival(&self, own: &SchedulerData, now: u64) {
        let since = |ticks: u64| {
            if ticks == 0 {
                0
            } else {
                now.saturating_sub(ticks)
            }
        };
        match own.wait_type {
            WaitType::NONE => probes::task_start(|| {
                let slot = own.slot.as_ref().expect("a worker has a record");
                let bound = slot.record.task_bound_ticks.load(Ordering::Relaxed);
                self.arguments(own, WaitType::NONE, since(bound))
            }),
            WaitType::SOS_SCHEDULER_YIELD => {}
            waited_for => {
                probes::wait_end(|| self.arguments(own, waited_for, since(own.out_ticks)));
            }
        }
    }

    /// The arguments of a probe for this worker.
    #[cold]
    #[inline(never)]
    fn arguments(&self, own: &SchedulerData, wait_type: WaitType, ticks: u64) -> Arguments {
        let number = own.slot.as_ref().map_or(0, |slot| slot.index);
        Arguments {
            scheduler: self.record().scheduler_id.load(Ordering::Relaxed).into(),
            worker: number.into(),
            task: own.word >> RUN_BITS,
            wait_type: wait_type.number().into(),
            ns: self.nanoseconds(ticks),
        }
    }

    /// Converts a length for the probes to ns; 0 where no clock is read.
    #[cold]
    fn nanoseconds(&self, ticks: u64) -> u64 {
        let length = if self.timed {
            clock::rate().length(ticks)
        } else {
            Duration::ZERO
        };
        u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
    }

    /// The OS took the CPU away from the worker that runs or has just left.
    #[cold]
    pub(crate) fn interrupted(&self, cell: &WorkerCell) {
        // SAFETY: called by the holder.
        let worker = unsafe { cell.slot() }.record;
        self.begin();
        add(&self.record().os_interrupted_quanta_count, 1);
        add_small(&worker.os_interrupted_quanta_count, 1);
        self.end();
    }

    fn tid(&self) -> u32 {
        self.thread
            .map_or(0, |(_, thread)| thread.tid.load(Ordering::Relaxed))
    }

    /// A worker runs from now on.
    #[inline(always)]
    pub(crate) fn entered(&mut self, cell: &WorkerCell, now: u64) {
        // SAFETY: called by the holder.
        let own = unsafe { cell.own() };
        let slot = own.slot.as_ref().expect("a worker has a record");
        let (worker, scheduler) = (slot.record, self.record());
        self.begin();
        own.word = with_next_run(own.word);
        // Stored before everything else. The run began at `now`, when the previous one ended, and
        // until this store a recorder still sees the worker that left. In between only the
        // scheduler's own short code runs, so few switches of the kernel fall between the clock
        // reading and the store.
        if let Some((_, thread)) = self.thread {
            thread.word.store(own.word, Ordering::Relaxed);
        }
        // A signal from another thread may be later than the clock reading.
        let now = now.max(own.since_ticks);
        if self.timed {
            let queued = now.saturating_sub(own.since_ticks);
            add(&worker.runnable_ticks, queued);
            worker.state_since_ticks.store(now, Ordering::Relaxed);
            let off = if own.out_ticks == 0 {
                0
            } else {
                now.saturating_sub(own.out_ticks)
            };
            if own.wait_type != WaitType::NONE {
                wait_ended(self.wait(own.wait_type), off, queued);
            }
            let waker_task = match own.wait_type {
                WaitType::NONE | WaitType::SOS_SCHEDULER_YIELD => 0,
                _ => cell.signaller_task.load(Ordering::Relaxed),
            };
            let wait_type = own.wait_type;
            own.before = PreviousWait {
                wait_type,
                off_ticks: off,
                queued_ticks: queued,
                waker_task,
            };
            own.in_ticks = now;
        }
        worker.state.store(worker_state::RUNNING, Ordering::Relaxed);
        scheduler.run_started_ticks.store(now, Ordering::Relaxed);
        scheduler
            .active_worker_plus_one
            .store(slot.index + 1, Ordering::Relaxed);
        if let Some((index, _)) = self.thread {
            worker.thread_plus_one.store(index + 1, Ordering::Relaxed);
        }
        if self.is_departure_open {
            self.complete_departure(own.word >> RUN_BITS);
        }
        self.end();
        self.probe_arrival(own, now);
    }

    /// The ring, while a recorder is active.
    #[inline(always)]
    fn recording_ring(&self, now: u64) -> Option<&RingWriter> {
        self.ring.as_ref().filter(|ring| ring.is_recording(now))
    }

    #[cold]
    fn complete_departure(&mut self, to_task: u64) {
        self.is_departure_open = false;
        if let Some(ring) = &self.ring {
            ring.complete(to_task);
        }
    }

    /// A worker's wait was decided, so it is runnable. Returns how many times in a row it has gone
    /// to the head of the queue, this time included; more than [`BOOSTS_IN_A_ROW`] means that it
    /// must go to the tail.
    pub(crate) fn signalled(&mut self, cell: &WorkerCell) -> u32 {
        // SAFETY: called by the holder.
        let own = unsafe { cell.own() };
        let worker = own.slot.as_ref().expect("a worker has a record").record;
        self.begin();
        if self.timed {
            // A signal from another thread may come before the worker has completely left.
            let at = cell
                .signalled_ticks
                .load(Ordering::Relaxed)
                .max(own.since_ticks);
            let length = at - own.since_ticks;
            if worker.state.load(Ordering::Relaxed) == worker_state::PREEMPTIVE {
                add(&worker.preemptive_ticks, length);
                probes::preempt_end(|| self.arguments(own, own.wait_type, length));
            } else {
                add(&worker.suspended_ticks, length);
            }
            own.since_ticks = at;
            worker.state_since_ticks.store(at, Ordering::Relaxed);
        }
        worker
            .state
            .store(worker_state::RUNNABLE, Ordering::Relaxed);
        let signaller = cell.signaller_worker.load(Ordering::Relaxed);
        worker
            .signal_worker_plus_one
            .store(signaller, Ordering::Relaxed);
        let boosts = worker.boost_count.load(Ordering::Relaxed) + 1;
        let kept = if boosts > BOOSTS_IN_A_ROW { 0 } else { boosts };
        worker.boost_count.store(kept, Ordering::Relaxed);
        self.end();
        boosts
    }

    /// A task was bound to a worker, which is runnable now.
    pub(crate) fn bound(&mut self, cell: &WorkerCell, task: &Task, now: u64) {
        // SAFETY: called by the holder; the worker has no task.
        let own = unsafe { cell.own() };
        let slot = own.slot.as_ref().expect("a worker has a record");
        let worker = slot.record;
        self.begin();
        // Time without a task belongs to no state.
        own.since_ticks = now;
        own.out_ticks = 0;
        own.word = task.id << RUN_BITS;
        own.wait_type = WaitType::NONE;
        worker.task_id.store(task.id, Ordering::Relaxed);
        worker.parent_task_id.store(task.parent, Ordering::Relaxed);
        worker.task_bound_ticks.store(now, Ordering::Relaxed);
        worker.state_since_ticks.store(now, Ordering::Relaxed);
        worker
            .state
            .store(worker_state::RUNNABLE, Ordering::Relaxed);
        let waits = self.wait(WaitType::THREADPOOL);
        add(&waits.waiting_tasks_count, 1);
        if self.timed {
            wait_ended(waits, now.saturating_sub(task.queued_ticks), 0);
        }
        self.end();
        let page = page::page_if_there().expect("a slot comes from the page");
        let name = &page.worker_name(slot.index).bytes;
        // Most tasks have no name, and a table that is never touched takes no memory.
        if task.name.is_some() || name[0].load(Ordering::Relaxed) != 0 {
            names::store(name, task.name.as_deref().unwrap_or_default());
        }
    }

    /// No worker is runnable: the scheduler goes to wait in the kernel.
    pub(crate) fn idle_begins(&mut self) {
        let scheduler = self.record();
        self.begin();
        add(&scheduler.idle_switches_count, 1);
        scheduler.is_idle.store(1, Ordering::Relaxed);
        scheduler.run_started_ticks.store(0, Ordering::Relaxed);
        scheduler.active_worker_plus_one.store(0, Ordering::Relaxed);
        if self.is_departure_open {
            self.complete_departure(0);
        }
        self.end();
    }

    /// The idle time ends. `first` is the worker that is runnable now, if any; the idle time lasted
    /// until it became runnable.
    pub(crate) fn idle_ends(&mut self, began: u64, now: u64, first: Option<&WorkerCell>) {
        let scheduler = self.record();
        self.begin();
        // SeqCst, because the monitor reads this before it goes to sleep.
        scheduler.is_idle.store(0, Ordering::SeqCst);
        if self.timed {
            // SAFETY: called by the holder.
            let runnable_since = first.map_or(now, |cell| unsafe { cell.own() }.since_ticks);
            let idle_until = runnable_since.clamp(began, now);
            add(&scheduler.total_idle_ticks, idle_until - began);
            add(&scheduler.total_scheduler_delay_ticks, now - idle_until);
            if let Some(ring) = self.recording_ring(now) {
                let nobody = UserSwitchOut {
                    ticks: now,
                    ran_ticks: now - began,
                    word: 0,
                    before: PreviousWait::default(),
                    kind: event_kind::IDLE,
                    wait_type: 0,
                    tid: self.tid(),
                };
                // SAFETY: called by the holder.
                let task = first.map_or(0, |cell| unsafe { cell.own() }.word >> RUN_BITS);
                ring.begin(&nobody);
                ring.complete(task);
            }
        }
        self.end();
        probes::idle(|| Arguments {
            scheduler: self.record().scheduler_id.load(Ordering::Relaxed).into(),
            ns: self.nanoseconds(now - began),
            ..Arguments::default()
        });
    }

    /// The baton went from one thread to another; the time between is scheduler delay.
    pub(crate) fn handed_over(&self, left: u64, now: u64) {
        if self.timed {
            let delay = now.saturating_sub(left);
            add(&self.record().total_scheduler_delay_ticks, delay);
        }
    }

    pub(crate) fn looked_at_timers(&self, now: u64) {
        self.record()
            .last_timer_activity_ticks
            .store(now, Ordering::Relaxed);
    }

    /// Records the tasks of this scheduler that have not ended, and how many of them wait for a
    /// worker.
    pub(crate) fn count_tasks(&self, tasks: u64, waiting: u32) {
        let record = self.record();
        let tasks = u32::try_from(tasks).unwrap_or(u32::MAX);
        record.load_factor.store(tasks, Ordering::Relaxed);
        record.current_tasks_count.store(tasks, Ordering::Relaxed);
        record.work_queue_count.store(waiting, Ordering::Relaxed);
    }

    pub(crate) fn count_workers(&self, workers: usize) {
        let workers = u32::try_from(workers).unwrap_or(u32::MAX);
        self.record()
            .current_workers_count
            .store(workers, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn count_runnable(&self, runnable: usize) {
        let runnable = u32::try_from(runnable).unwrap_or(u32::MAX);
        self.record()
            .runnable_tasks_count
            .store(runnable, Ordering::Relaxed);
    }

    pub(crate) fn failed_to_create_worker(&self) {
        add_small(&self.record().failed_to_create_worker, 1);
    }

    pub(crate) fn stole(&self, tasks: u32) {
        add(&self.record().stolen_tasks_count, tasks.into());
    }
}

/// The word of a task in its next run. The count of runs wraps when its bits are used up (in a
/// second, at 50 ns a yield), because the bits above belong to the task.
#[inline(always)]
fn with_next_run(word: u64) -> u64 {
    let runs = (1 << RUN_BITS) - 1;
    word & !runs | word.wrapping_add(1) & runs
}

/// Counts a wait that has ended: `length` in all, of which the last `queued` were spent waiting for
/// the turn.
#[inline(always)]
fn wait_ended(waits: &WaitRecord, length: u64, queued: u64) {
    add(&waits.completed_count, 1);
    add(&waits.wait_ticks, length);
    add(&waits.signal_wait_ticks, queued);
    if length > waits.max_wait_ticks.load(Ordering::Relaxed) {
        waits.max_wait_ticks.store(length, Ordering::Relaxed);
    }
    let bucket = (length.max(1).ilog2() as usize).min(BUCKETS - 1);
    add(&waits.histogram[bucket], 1);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A task that yields without end has more runs than the word has bits for. Without the wrap a
    /// recorder would see the number of another task.
    #[test]
    fn runs_do_not_count_into_the_task() {
        assert_eq!(with_next_run(7 << RUN_BITS), 7 << RUN_BITS | 1);
        let last = (8 << RUN_BITS) - 1;
        assert_eq!(with_next_run(last), 7 << RUN_BITS);
    }
}
