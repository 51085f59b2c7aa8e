//! Allocation of the page's records: they are taken, reset, used, and released.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use swtch_observe::clock;
use swtch_observe::layout::{
    SchedulerRecord, TableLayout, ThreadRecord, WAIT_TYPES, WaitRecord, WorkerRecord,
    scheduler_status, thread_kind, worker_state,
};

use super::{SCHEDULERS, THREADS, WORKERS, WritablePage};
use crate::atomics::lock;
use crate::error::Error;

/// The free records of one table: those released, and those never used.
#[derive(Debug)]
struct FreeRecords {
    what: &'static str,
    released: Vec<u32>,
    next: u32,
    most: u32,
}

impl FreeRecords {
    const fn new(what: &'static str, most: u32) -> Self {
        Self {
            what,
            released: Vec::new(),
            next: 0,
            most,
        }
    }

    fn take(&mut self, table: &TableLayout) -> Result<u32, Error> {
        if let Some(index) = self.released.pop() {
            return Ok(index);
        }
        if self.next == self.most {
            return Err(Error::PageFull {
                what: self.what,
                most: self.most,
            });
        }
        let index = self.next;
        self.next += 1;
        table.used.store(self.next, Ordering::Release);
        Ok(index)
    }
}

static FREE_SCHEDULERS: Mutex<FreeRecords> = Mutex::new(FreeRecords::new("scheduler", SCHEDULERS));
static FREE_THREADS: Mutex<FreeRecords> = Mutex::new(FreeRecords::new("thread", THREADS));
static FREE_WORKERS: Mutex<FreeRecords> = Mutex::new(FreeRecords::new("worker", WORKERS));

fn take(free: &Mutex<FreeRecords>, table: &TableLayout) -> Result<u32, Error> {
    lock(free).take(table)
}

fn release(free: &Mutex<FreeRecords>, index: u32) {
    lock(free).released.push(index);
}

/// The record of a scheduler and its wait statistics.
#[derive(Debug)]
pub(crate) struct SchedulerSlot {
    pub(crate) index: u32,
    pub(crate) record: &'static SchedulerRecord,
    pub(crate) waits: &'static [WaitRecord; WAIT_TYPES],
}

impl SchedulerSlot {
    /// Takes a record and sets its counters to 0. The caller fills in the rest, and the status
    /// last.
    pub(crate) fn take(page: &'static WritablePage) -> Result<Self, Error> {
        let index = take(&FREE_SCHEDULERS, &page.header().schedulers)?;
        page.header()
            .waits
            .used
            .fetch_max((index + 1) * 128, Ordering::Release);
        page.header()
            .rings
            .used
            .fetch_max(index + 1, Ordering::Release);
        let slot = Self {
            index,
            record: page.scheduler(index),
            waits: page.waits(index),
        };
        slot.reset(page);
        Ok(slot)
    }

    fn reset(&self, page: &WritablePage) {
        let record = self.record;
        record
            .status
            .store(scheduler_status::UNUSED, Ordering::Release);
        for counter in [
            &record.context_switches_count,
            &record.yield_count,
            &record.self_reselect_count,
            &record.preemptive_switches_count,
            &record.idle_switches_count,
            &record.total_scheduler_delay_ticks,
            &record.run_started_ticks,
            &record.last_timer_activity_ticks,
            &record.total_running_ticks,
            &record.total_idle_ticks,
            &record.tasks_completed_count,
            &record.os_interrupted_quanta_count,
            &record.quantum_expired_count,
            &record.stolen_tasks_count,
            &record.stalls_count,
        ] {
            counter.store(0, Ordering::Relaxed);
        }
        for gauge in [
            &record.cpu_plus_one,
            &record.is_idle,
            &record.runnable_tasks_count,
            &record.current_tasks_count,
            &record.current_workers_count,
            &record.active_workers_count,
            &record.work_queue_count,
            &record.pending_io_count,
            &record.load_factor,
            &record.failed_to_create_worker,
            &record.queued_preemptive_count,
            &record.io_driver,
            &record.active_worker_plus_one,
            &record.active_thread_plus_one,
        ] {
            gauge.store(0, Ordering::Relaxed);
        }
        record
            .created_ticks
            .store(clock::ticks(), Ordering::Relaxed);
        for wait in self.waits {
            // Skip unused entries, so that untouched pages of the table stay untouched.
            if wait.waiting_tasks_count.load(Ordering::Relaxed) != 0 {
                reset_wait(wait);
            }
        }
        let (ring, events) = page.ring(self.index);
        ring.capacity.store(events.len() as u64, Ordering::Relaxed);
    }
}

fn reset_wait(wait: &WaitRecord) {
    for counter in [
        &wait.waiting_tasks_count,
        &wait.completed_count,
        &wait.wait_ticks,
        &wait.max_wait_ticks,
        &wait.signal_wait_ticks,
    ] {
        counter.store(0, Ordering::Relaxed);
    }
    for bucket in &wait.histogram {
        bucket.store(0, Ordering::Relaxed);
    }
}

impl Drop for SchedulerSlot {
    /// Marks the record as ended. The counters stay readable until the record is used again.
    fn drop(&mut self) {
        self.record
            .status
            .store(scheduler_status::ENDED, Ordering::Release);
        release(&FREE_SCHEDULERS, self.index);
    }
}

/// The record of an OS thread, for as long as the thread lives.
#[derive(Debug)]
pub(crate) struct ThreadSlot {
    pub(crate) index: u32,
    pub(crate) record: &'static ThreadRecord,
}

impl ThreadSlot {
    /// Takes a record and fills it in for the calling thread.
    pub(crate) fn take(
        page: &'static WritablePage,
        kind: u32,
        scheduler: Option<u32>,
    ) -> Result<Self, Error> {
        let slot = Self::reserve(page)?;
        slot.register(kind, scheduler);
        Ok(slot)
    }

    /// Takes a record for a thread that is still to be started.
    pub(crate) fn reserve(page: &'static WritablePage) -> Result<Self, Error> {
        let index = take(&FREE_THREADS, &page.header().threads)?;
        let record = page.thread(index);
        Ok(Self { index, record })
    }

    /// Fills the record in for the calling thread.
    pub(crate) fn register(&self, kind: u32, scheduler: Option<u32>) {
        let record = self.record;
        record.word.store(0, Ordering::Relaxed);
        record.tid.store(gettid(), Ordering::Relaxed);
        record
            .scheduler_plus_one
            .store(scheduler.map_or(0, |index| index + 1), Ordering::Relaxed);
        record
            .started_ticks
            .store(clock::ticks(), Ordering::Relaxed);
        let (low, high) = stack_of_this_thread();
        record.stack_low.store(low, Ordering::Relaxed);
        record.stack_high.store(high, Ordering::Relaxed);
        record.generation.fetch_add(1, Ordering::Relaxed);
        record.kind.store(kind, Ordering::Release);
    }
}

impl Drop for ThreadSlot {
    fn drop(&mut self) {
        self.record
            .kind
            .store(thread_kind::UNUSED, Ordering::Release);
        self.record.word.store(0, Ordering::Relaxed);
        release(&FREE_THREADS, self.index);
    }
}

/// The calling thread's id, in its own pid namespace.
pub(crate) fn gettid() -> u32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::gettid() }.cast_unsigned()
}

/// Bounds of the calling thread's stack; zeros when the C library cannot tell.
fn stack_of_this_thread() -> (u64, u64) {
    // SAFETY: plain data, filled in by the call below.
    let mut attributes: libc::pthread_attr_t = unsafe { std::mem::zeroed() };
    // SAFETY: the calling thread exists; `attributes` is valid for writing.
    if unsafe { libc::pthread_getattr_np(libc::pthread_self(), &raw mut attributes) } != 0 {
        return (0, 0);
    }
    let mut low = std::ptr::null_mut();
    let mut size = 0;
    // SAFETY: `attributes` was initialised above; both results are valid for writing.
    let failed =
        unsafe { libc::pthread_attr_getstack(&raw const attributes, &raw mut low, &raw mut size) };
    // SAFETY: initialised above, not used afterwards.
    unsafe { libc::pthread_attr_destroy(&raw mut attributes) };
    let low = low.addr() as u64;
    if failed == 0 {
        (low, low + size as u64)
    } else {
        (0, 0)
    }
}

/// The record of a worker, taken for as long as this lives.
#[derive(Debug)]
pub(crate) struct WorkerSlot {
    pub(crate) index: u32,
    pub(crate) record: &'static WorkerRecord,
}

impl WorkerSlot {
    /// Takes a record and sets its counters to 0 and its state to idle.
    pub(crate) fn take(page: &'static WritablePage, scheduler: u32) -> Result<Self, Error> {
        let index = take(&FREE_WORKERS, &page.header().workers)?;
        page.header()
            .worker_names
            .used
            .fetch_max(index + 1, Ordering::Release);
        page.header()
            .worker_stacks
            .used
            .fetch_max(index + 1, Ordering::Release);
        page.worker_stack(index)
            .bytes_used
            .store(0, Ordering::Relaxed);
        let record = page.worker(index);
        for counter in [
            &record.task_id,
            &record.running_ticks,
            &record.runnable_ticks,
            &record.suspended_ticks,
            &record.preemptive_ticks,
            &record.context_switch_count,
            &record.yield_count,
            &record.wait_resource,
            &record.task_bound_ticks,
            &record.parent_task_id,
        ] {
            counter.store(0, Ordering::Relaxed);
        }
        let small: [&AtomicU32; 6] = [
            &record.wait_type,
            &record.thread_plus_one,
            &record.signal_worker_plus_one,
            &record.boost_count,
            &record.tasks_processed_count,
            &record.os_interrupted_quanta_count,
        ];
        for counter in small {
            counter.store(0, Ordering::Relaxed);
        }
        let now = clock::ticks();
        record.created_ticks.store(now, Ordering::Relaxed);
        record.state_since_ticks.store(now, Ordering::Relaxed);
        record
            .scheduler_plus_one
            .store(scheduler + 1, Ordering::Relaxed);
        record.state.store(worker_state::IDLE, Ordering::Release);
        Ok(Self { index, record })
    }
}

impl Drop for WorkerSlot {
    fn drop(&mut self) {
        self.record
            .state
            .store(worker_state::UNUSED, Ordering::Release);
        release(&FREE_WORKERS, self.index);
    }
}
