//! The counters of a runtime, for the program itself. Another process reads the same counters from
//! the page (see [`observe`](crate::observe)).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use swtch_observe::clock;
use swtch_observe::layout::{WaitRecord, WorkerRecord, worker_state};

use crate::page::{self, WritablePage};
use crate::runtime::Runtime;
use crate::scheduler::SchedulerEntry;
use crate::wait_type::WaitType;

/// Attempts to read a scheduler at one moment, before an inconsistent reading is accepted.
const TRIES: usize = 1_000;

/// The counters of one scheduler. Names and meanings as in
/// [`SchedulerRow`](crate::observe::SchedulerRow). Times go up to the latest change of state, not to
/// now.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SchedulerCounters {
    /// Number of the scheduler within its runtime.
    pub scheduler_id: u32,
    /// Times that a worker was switched out. A yield after which the same worker runs on does not
    /// count.
    pub context_switches_count: u64,
    /// Times that a worker gave the scheduler up.
    pub yield_count: u64,
    /// Yields after which the same worker ran on.
    pub self_reselect_count: u64,
    /// Times that a worker left to run preemptively.
    pub preemptive_switches_count: u64,
    /// Times that nothing was runnable.
    pub idle_switches_count: u64,
    /// Tasks that ended on this scheduler.
    pub tasks_completed_count: u64,
    /// Unstarted tasks taken from others.
    pub stolen_tasks_count: u64,
    /// Tasks queued or bound here that have not ended. A new task goes to the scheduler with the
    /// fewest.
    pub load_factor: u32,
    /// Workers on the runnable queue.
    pub runnable_tasks_count: u32,
    /// Time that workers ran, up to the latest switch.
    pub total_running: Duration,
    /// Time in which nothing was runnable.
    pub total_idle: Duration,
    /// Time between one worker and the next.
    pub total_scheduler_delay: Duration,
    /// The workers that belong to this scheduler.
    pub workers: Vec<WorkerCounters>,
    /// Waits by type, those that have occurred.
    pub waits: Vec<WaitCounters>,
}

/// The counters of one worker. Names and meanings as in [`WorkerRow`](crate::observe::WorkerRow), but
/// times go up to the latest change of state, not to now.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerCounters {
    /// Id of its task; 0 for none.
    pub task_id: u64,
    /// Times it was switched out.
    pub context_switch_count: u64,
    /// Times it gave the scheduler up.
    pub yield_count: u64,
    /// Tasks that this worker has ended.
    pub tasks_processed_count: u32,
    /// Times in a row that it went to the head of the runnable queue.
    pub boost_count: u32,
    /// Present or latest wait type.
    pub wait_type: &'static str,
    /// True if it waits at this moment.
    pub is_suspended: bool,
    /// Time since its latest task was bound to it, up to its latest change of state.
    pub bound: Duration,
    /// Time spent running, in states that have ended.
    pub running: Duration,
    /// Time spent runnable, waiting for its turn.
    pub runnable: Duration,
    /// Time spent waiting, until it was signalled.
    pub suspended: Duration,
    /// Time spent outside of the scheduler.
    pub preemptive: Duration,
}

/// Waits of one type. Meanings as in [`WaitStatistics`](crate::observe::WaitStatistics).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WaitCounters {
    /// Name of the wait type, as the views show it.
    pub wait_type: &'static str,
    /// Waits that have begun, ended or not.
    pub waiting_tasks_count: u64,
    /// Waits that have ended, in any way.
    pub completed_count: u64,
    /// Time of ended waits, until the worker ran again.
    pub wait_time: Duration,
    /// The longest ended wait of this type.
    pub max_wait_time: Duration,
    /// The part of `wait_time` after the signal, in which the worker was runnable.
    pub signal_wait_time: Duration,
}

impl Runtime {
    /// The counters of its schedulers so far, each read at one moment if possible. The schedulers
    /// are not disturbed.
    #[must_use]
    pub fn counters(&self) -> Vec<SchedulerCounters> {
        let Some(page) = page::page_if_there() else {
            return Vec::new();
        };
        self.entries()
            .iter()
            .map(|entry| {
                let look = || read(page, entry);
                // A scheduler that switches without pause may never allow a consistent reading.
                entry.record.undisturbed(TRIES, look).unwrap_or_else(look)
            })
            .collect()
    }
}

fn read(page: &WritablePage, entry: &SchedulerEntry) -> SchedulerCounters {
    let record = entry.record;
    let workers = (0..page.header().workers.used.load(Ordering::Acquire))
        .map(|index| page.worker(index))
        .filter(|worker| load_u32(&worker.scheduler_plus_one) == entry.index + 1)
        .filter(|worker| load_u32(&worker.state) != worker_state::UNUSED)
        .map(worker)
        .collect();
    let waits = (0_u8..)
        .zip(page.waits(entry.index))
        .filter(|(_, waits)| load_u64(&waits.waiting_tasks_count) != 0)
        .map(|(number, waits)| wait(WaitType::of_number(number), waits))
        .collect();
    SchedulerCounters {
        scheduler_id: load_u32(&record.scheduler_id),
        context_switches_count: load_u64(&record.context_switches_count),
        yield_count: load_u64(&record.yield_count),
        self_reselect_count: load_u64(&record.self_reselect_count),
        preemptive_switches_count: load_u64(&record.preemptive_switches_count),
        idle_switches_count: load_u64(&record.idle_switches_count),
        tasks_completed_count: load_u64(&record.tasks_completed_count),
        stolen_tasks_count: load_u64(&record.stolen_tasks_count),
        load_factor: load_u32(&record.load_factor),
        runnable_tasks_count: load_u32(&record.runnable_tasks_count),
        total_running: load_duration(&record.total_running_ticks),
        total_idle: load_duration(&record.total_idle_ticks),
        total_scheduler_delay: load_duration(&record.total_scheduler_delay_ticks),
        workers,
        waits,
    }
}

fn worker(record: &WorkerRecord) -> WorkerCounters {
    let wait_type = u8::try_from(load_u32(&record.wait_type)).unwrap_or(u8::MAX);
    let bound_ticks = load_u64(&record.task_bound_ticks);
    let bound = load_u64(&record.state_since_ticks).saturating_sub(bound_ticks);
    WorkerCounters {
        task_id: load_u64(&record.task_id),
        context_switch_count: load_u64(&record.context_switch_count),
        yield_count: load_u64(&record.yield_count),
        tasks_processed_count: load_u32(&record.tasks_processed_count),
        boost_count: load_u32(&record.boost_count),
        wait_type: WaitType::of_number(wait_type).name(),
        is_suspended: load_u32(&record.state) == worker_state::SUSPENDED,
        bound: clock::rate().length(bound),
        running: load_duration(&record.running_ticks),
        runnable: load_duration(&record.runnable_ticks),
        suspended: load_duration(&record.suspended_ticks),
        preemptive: load_duration(&record.preemptive_ticks),
    }
}

fn wait(wait_type: WaitType, record: &WaitRecord) -> WaitCounters {
    WaitCounters {
        wait_type: wait_type.name(),
        waiting_tasks_count: load_u64(&record.waiting_tasks_count),
        completed_count: load_u64(&record.completed_count),
        wait_time: load_duration(&record.wait_ticks),
        max_wait_time: load_duration(&record.max_wait_ticks),
        signal_wait_time: load_duration(&record.signal_wait_ticks),
    }
}

fn load_u64(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn load_u32(counter: &AtomicU32) -> u32 {
    counter.load(Ordering::Relaxed)
}

fn load_duration(ticks: &AtomicU64) -> Duration {
    clock::rate().length(load_u64(ticks))
}
