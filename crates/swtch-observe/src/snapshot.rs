//! Reads all rows of a page at once.
//!
//! A scheduler's sequence word is odd while its rows are being changed. An observer reads the word,
//! the rows, and the word again. If a scheduler switches faster than all its rows can be read, each
//! row is read that way by itself; if even that fails, the row is marked as torn. The number of
//! attempts is bounded, because a target that died in the middle of a change leaves the word odd
//! for ever.

use std::sync::atomic::{AtomicU32, Ordering};

use super::error::Error;
use super::page::{Page, read, wait_index};
use super::rows::{
    Consistency, CurrentWait, IoDriver, Mode, SchedulerRow, TaskRow, ThreadKind, ThreadRow,
    WaitStatistics, WorkerRow, WorkerState,
};
use super::target_clock::Clock;
use crate::layout::{
    BUCKETS, RUN_BITS, SchedulerRecord, ThreadRecord, WAIT_TYPES, WaitRecord, WorkerRecord,
    WorkerStack,
};

/// Attempts to read a row before it counts as torn.
const TRIES_OF_A_ROW: usize = 64;

/// Attempts to read a scheduler with all its workers before they are read one by one.
const TRIES_OF_ALL: usize = 3;

/// More workers than this are not read in one attempt: that takes longer than the scheduler stays
/// unchanged.
const MOST_IN_ONE_LOOK: usize = 64;

/// All rows of a page.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The moment at which it was taken, `CLOCK_MONOTONIC` ns.
    pub taken_monotonic_ns: u64,
    /// True if the target had ended by then. Lengths up to now then end at its last change.
    pub has_ended: bool,
    /// One row per scheduler, in the order of the page.
    pub schedulers: Vec<SchedulerRow>,
    /// One row per registered OS thread.
    pub threads: Vec<ThreadRow>,
    /// One row per worker, by scheduler.
    pub workers: Vec<WorkerRow>,
    /// Wait statistics by scheduler and type, without types that were never waited for.
    pub wait_stats: Vec<WaitStatistics>,
}

impl Page {
    /// Reads all rows of the page.
    ///
    /// # Errors
    /// While the process is too young to have a clock.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        let (clock, now) = self.clock_and_now()?;
        let has_ended = self.has_ended();
        let look = SnapshotSource {
            page: self,
            clock,
            now,
            has_ended,
        };
        let (mut schedulers, mut workers) = (Vec::new(), Vec::new());
        let by_scheduler = look.workers_by_scheduler();
        for (index, of_scheduler) in by_scheduler.iter().enumerate() {
            look.scheduler(index, of_scheduler, &mut schedulers, &mut workers);
        }
        workers.sort_by_key(|worker| worker.worker);
        let wait_stats = (0..self.scheduler_count()).flat_map(|index| look.waits(index));
        Ok(Snapshot {
            taken_monotonic_ns: clock.monotonic_ns(now),
            has_ended,
            wait_stats: wait_stats.collect(),
            threads: (0..self.used(self.tables.threads))
                .filter_map(|index| look.thread(index))
                .collect(),
            schedulers,
            workers,
        })
    }
}

impl Snapshot {
    /// The tasks that have a worker. Tasks without one are only counted, in
    /// [`SchedulerRow::work_queue_count`].
    pub fn tasks(&self) -> impl Iterator<Item = TaskRow> {
        self.workers.iter().filter_map(|worker| {
            Some(TaskRow {
                task_id: worker.task_id?,
                name: worker.task_name.clone(),
                state: worker.state,
                scheduler: worker.scheduler,
                worker: worker.worker,
                parent_task_id: worker.parent_task_id,
                age_ns: worker.task_age_ns,
            })
        })
    }

    /// The waits that have not ended.
    pub fn waiting_tasks(&self) -> impl Iterator<Item = CurrentWait> {
        let waits = self.workers.iter().filter(|worker| {
            matches!(
                worker.state,
                WorkerState::Suspended | WorkerState::Preemptive
            )
        });
        waits.filter_map(|worker| {
            Some(CurrentWait {
                task_id: worker.task_id?,
                name: worker.task_name.clone(),
                worker: worker.worker,
                scheduler: worker.scheduler,
                wait_type: worker.wait_type.clone(),
                resource: worker.wait_resource,
                wait_duration_ns: worker.state_ns,
                last_signal_task_id: worker.signal_worker.and_then(|index| self.task_of(index)),
            })
        })
    }

    fn task_of(&self, worker: usize) -> Option<u64> {
        let found = self.workers.binary_search_by_key(&worker, |row| row.worker);
        self.workers[found.ok()?].task_id
    }
}

/// The data for one snapshot: page, clock and present time.
struct SnapshotSource<'a> {
    page: &'a Page,
    clock: Clock,
    now: u64,
    has_ended: bool,
}

impl SnapshotSource<'_> {
    /// The workers of each scheduler; those without a scheduler are read with the first.
    fn workers_by_scheduler(&self) -> Vec<Vec<usize>> {
        let mut by_scheduler = vec![Vec::new(); self.page.scheduler_count()];
        for index in 0..self.page.used(self.page.tables.workers) {
            let Some(record) = self.worker_record(index) else {
                continue;
            };
            let owner = one_less(&record.scheduler_plus_one).unwrap_or(0);
            if let Some(workers) = by_scheduler.get_mut(owner) {
                workers.push(index);
            }
        }
        by_scheduler
    }

    fn scheduler(
        &self,
        index: usize,
        workers: &[usize],
        schedulers: &mut Vec<SchedulerRow>,
        rows: &mut Vec<WorkerRow>,
    ) {
        let Some(record) = self.scheduler_record(index) else {
            return;
        };
        let of_workers = |consistency| {
            let rows = workers
                .iter()
                .filter_map(|worker| self.worker(*worker, consistency));
            rows.collect::<Vec<_>>()
        };
        let tries = if workers.len() <= MOST_IN_ONE_LOOK {
            TRIES_OF_ALL
        } else {
            0
        };
        let whole = record.undisturbed(tries, || {
            (
                self.scheduler_row(index, record),
                of_workers(Consistency::Whole),
            )
        });
        if let Some((row, of_workers)) = whole {
            schedulers.extend(row);
            rows.extend(of_workers);
            return;
        }
        let row = record.undisturbed(TRIES_OF_A_ROW, || self.scheduler_row(index, record));
        let (row, consistency) = match row {
            Some(row) => (row, Consistency::Rows),
            None => (self.scheduler_row(index, record), Consistency::Torn),
        };
        schedulers.extend(row.map(|row| SchedulerRow { consistency, ..row }));
        for worker in workers {
            let one = || self.worker(*worker, Consistency::Rows);
            let row = record.undisturbed(TRIES_OF_A_ROW, one);
            rows.extend(row.unwrap_or_else(|| self.worker(*worker, Consistency::Torn)));
        }
    }

    fn scheduler_record(&self, index: usize) -> Option<&SchedulerRecord> {
        self.page.record(self.page.tables.schedulers, index)
    }

    fn worker_record(&self, index: usize) -> Option<&WorkerRecord> {
        self.page.record(self.page.tables.workers, index)
    }

    /// Converts ticks to a length in ns.
    fn ns(&self, ticks: u64) -> u64 {
        self.clock.length_ns(ticks)
    }

    /// Length from a moment until now, ns; 0 after the target has ended.
    fn since(&self, ticks: u64) -> u64 {
        match self.has_ended {
            true => 0,
            false => self.ns(self.now.saturating_sub(ticks)),
        }
    }

    fn scheduler_row(&self, index: usize, record: &SchedulerRecord) -> Option<SchedulerRow> {
        let started = read(&record.run_started_ticks);
        Some(SchedulerRow {
            scheduler: index,
            mode: Mode::from_number(small(&record.status))?,
            runtime: small(&record.runtime),
            scheduler_id: small(&record.scheduler_id),
            cpu_id: small(&record.cpu_plus_one).checked_sub(1),
            is_idle: small(&record.is_idle) != 0,
            accounting: small(&record.accounting) != 0,
            context_switches_count: read(&record.context_switches_count),
            yield_count: read(&record.yield_count),
            self_reselect_count: read(&record.self_reselect_count),
            preemptive_switches_count: read(&record.preemptive_switches_count),
            idle_switches_count: read(&record.idle_switches_count),
            total_scheduler_delay_ns: self.ns(read(&record.total_scheduler_delay_ticks)),
            runnable_tasks_count: small(&record.runnable_tasks_count),
            current_tasks_count: small(&record.current_tasks_count),
            current_workers_count: small(&record.current_workers_count),
            active_workers_count: small(&record.active_workers_count),
            work_queue_count: small(&record.work_queue_count),
            io_driver: IoDriver::from_number(small(&record.io_driver)),
            queued_preemptive_count: small(&record.queued_preemptive_count),
            pending_io_count: small(&record.pending_io_count),
            load_factor: small(&record.load_factor),
            failed_to_create_worker: small(&record.failed_to_create_worker),
            active_worker: one_less(&record.active_worker_plus_one),
            active_thread: one_less(&record.active_thread_plus_one),
            quantum_ns: read(&record.quantum_ns),
            current_run_ns: (started != 0).then(|| self.since(started)),
            total_running_ns: self.ns(read(&record.total_running_ticks)),
            total_idle_ns: self.ns(read(&record.total_idle_ticks)),
            last_timer_activity_ns: self.since(read(&record.last_timer_activity_ticks)),
            tasks_completed_count: read(&record.tasks_completed_count),
            os_interrupted_quanta_count: read(&record.os_interrupted_quanta_count),
            quantum_expired_count: read(&record.quantum_expired_count),
            stolen_tasks_count: read(&record.stolen_tasks_count),
            stalls_count: read(&record.stalls_count),
            age_ns: self.since(read(&record.created_ticks)),
            consistency: Consistency::Whole,
        })
    }

    fn worker(&self, index: usize, consistency: Consistency) -> Option<WorkerRow> {
        let record = self.worker_record(index)?;
        let state = WorkerState::from_number(small(&record.state))?;
        let task_id = read(&record.task_id);
        let in_state = self.since(read(&record.state_since_ticks));
        let spent = |counter, of: WorkerState| {
            let open = if state == of { in_state } else { 0 };
            self.ns(read(counter)).saturating_add(open)
        };
        let name = || self.page.name(self.page.tables.worker_names, index);
        Some(WorkerRow {
            worker: index,
            scheduler: one_less(&record.scheduler_plus_one),
            thread: one_less(&record.thread_plus_one),
            state,
            state_ns: in_state,
            task_id: (task_id != 0).then_some(task_id),
            task_name: (task_id != 0).then(name).flatten(),
            parent_task_id: Some(read(&record.parent_task_id)).filter(|id| *id != 0),
            task_age_ns: self.since(read(&record.task_bound_ticks)),
            running_ns: spent(&record.running_ticks, WorkerState::Running),
            runnable_ns: spent(&record.runnable_ticks, WorkerState::Runnable),
            suspended_ns: spent(&record.suspended_ticks, WorkerState::Suspended),
            preemptive_ns: spent(&record.preemptive_ticks, WorkerState::Preemptive),
            context_switch_count: read(&record.context_switch_count),
            yield_count: read(&record.yield_count),
            wait_type: self.page.wait_type_name(small(&record.wait_type)),
            wait_resource: read(&record.wait_resource),
            signal_worker: one_less(&record.signal_worker_plus_one),
            boost_count: small(&record.boost_count),
            stack_bytes_used: self.stack_bytes_used(index),
            tasks_processed_count: small(&record.tasks_processed_count),
            os_interrupted_quanta_count: small(&record.os_interrupted_quanta_count),
            age_ns: self.since(read(&record.created_ticks)),
            consistency,
        })
    }

    fn stack_bytes_used(&self, worker: usize) -> Option<u32> {
        let stack: &WorkerStack = self.page.record(self.page.tables.worker_stacks, worker)?;
        Some(small(&stack.bytes_used)).filter(|bytes| *bytes != 0)
    }

    fn thread(&self, index: usize) -> Option<ThreadRow> {
        let record: &ThreadRecord = self.page.record(self.page.tables.threads, index)?;
        let word = read(&record.word);
        let (low, high) = (read(&record.stack_low), read(&record.stack_high));
        Some(ThreadRow {
            thread: index,
            os_thread_id: small(&record.tid),
            kind: ThreadKind::from_number(small(&record.kind))?,
            scheduler: one_less(&record.scheduler_plus_one),
            task_id: Some(word >> RUN_BITS).filter(|task| *task != 0),
            run: u32::try_from(word & ((1 << RUN_BITS) - 1)).unwrap_or(u32::MAX),
            age_ns: self.since(read(&record.started_ticks)),
            stack_bytes: high.saturating_sub(low),
        })
    }

    /// The wait types of a scheduler that have been waited for.
    fn waits(&self, scheduler: usize) -> Vec<WaitStatistics> {
        let bucket_ns = std::array::from_fn(|bucket| self.ns(1 << bucket));
        let row = |wait_type: usize| {
            let index = wait_index(scheduler, wait_type);
            let record: &WaitRecord = self.page.record(self.page.tables.waits, index)?;
            let waiting_tasks_count = read(&record.waiting_tasks_count);
            let number = u32::try_from(wait_type).ok()?;
            (waiting_tasks_count > 0).then(|| WaitStatistics {
                scheduler,
                wait_type: self
                    .page
                    .wait_type_name(number)
                    .unwrap_or_else(|| format!("WAIT_TYPE_{number}")),
                waiting_tasks_count,
                completed_count: read(&record.completed_count),
                wait_time_ns: self.ns(read(&record.wait_ticks)),
                max_wait_time_ns: self.ns(read(&record.max_wait_ticks)),
                signal_wait_time_ns: self.ns(read(&record.signal_wait_ticks)),
                histogram: histogram(record),
                bucket_ns,
            })
        };
        (0..WAIT_TYPES).filter_map(row).collect()
    }
}

fn histogram(record: &WaitRecord) -> [u64; BUCKETS] {
    std::array::from_fn(|bucket| read(&record.histogram[bucket]))
}

fn small(counter: &AtomicU32) -> u32 {
    counter.load(Ordering::Relaxed)
}

/// Decodes an index that is stored plus one; `None` for 0.
fn one_less(counter: &AtomicU32) -> Option<usize> {
    usize::try_from(small(counter).checked_sub(1)?).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, fence};

    use super::super::test_page::TestPage;
    use super::*;
    use crate::layout::{WaitTypeName, worker_state};

    fn name(record: &WaitTypeName, text: &str) {
        for (word, bytes) in record.bytes.iter().zip(text.as_bytes().chunks(8)) {
            let mut eight = [0; 8];
            eight[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(eight), Ordering::Relaxed);
        }
    }

    /// Sets up one worker that waits, and the one that woke it before.
    fn two_workers(test: &TestPage) {
        name(test.wait_type_name(3), "MUTEX");
        for (index, task, state) in [
            (0, 41, worker_state::SUSPENDED),
            (1, 42, worker_state::RUNNING),
        ] {
            let worker = test.worker(index);
            worker.task_id.store(task, Ordering::Relaxed);
            worker.state.store(state, Ordering::Relaxed);
            worker.scheduler_plus_one.store(1, Ordering::Relaxed);
            worker.wait_type.store(3, Ordering::Relaxed);
            worker.running_ticks.store(2_000, Ordering::Relaxed);
        }
        test.worker(0)
            .signal_worker_plus_one
            .store(2, Ordering::Relaxed);
        test.worker(0)
            .wait_resource
            .store(0xbeef, Ordering::Relaxed);
    }

    #[test]
    fn a_live_wait_says_for_what_and_who_woke_it_last() {
        let test = TestPage::new();
        two_workers(&test);
        let snapshot = test.observe().unwrap().snapshot().unwrap();
        let waits: Vec<_> = snapshot.waiting_tasks().collect();
        assert_eq!(waits.len(), 1);
        assert_eq!((waits[0].task_id, waits[0].resource), (41, 0xbeef));
        assert_eq!(waits[0].wait_type.as_deref(), Some("MUTEX"));
        assert_eq!(waits[0].last_signal_task_id, Some(42));
        assert_eq!(snapshot.tasks().count(), 2);
        assert!(!snapshot.has_ended);
    }

    /// The clock of this page has two ticks a nanosecond.
    #[test]
    fn times_are_in_ns_and_waits_keep_their_histogram() {
        let test = TestPage::new();
        two_workers(&test);
        let wait = test.wait(wait_index(1, 3));
        wait.waiting_tasks_count.store(5, Ordering::Relaxed);
        wait.wait_ticks.store(600, Ordering::Relaxed);
        wait.histogram[4].store(5, Ordering::Relaxed);
        let snapshot = test.observe().unwrap().snapshot().unwrap();
        assert_eq!(snapshot.workers[0].running_ns, 1_000);
        let [row] = snapshot.wait_stats.as_slice() else {
            panic!("one wait type: {:?}", snapshot.wait_stats)
        };
        assert_eq!(
            (row.scheduler, row.wait_time_ns, row.histogram[4]),
            (1, 300, 5)
        );
        assert_eq!(row.bucket_ns[4], 8);
    }

    /// This is how a target leaves its page when it is killed in the middle of a change.
    #[test]
    fn a_sequence_that_stays_odd_is_read_as_torn() {
        let test = TestPage::new();
        two_workers(&test);
        test.scheduler(0).sequence.store(7, Ordering::Relaxed);
        let snapshot = test.observe().unwrap().snapshot().unwrap();
        assert_eq!(snapshot.schedulers[0].consistency, Consistency::Torn);
        assert_eq!(snapshot.schedulers[1].consistency, Consistency::Whole);
        assert_eq!(snapshot.workers[0].consistency, Consistency::Torn);
    }

    /// Both counters grow together under the sequence word: a whole row never shows them apart.
    #[test]
    fn a_row_that_is_not_torn_is_of_one_moment() {
        let test = TestPage::new();
        let page = test.observe().unwrap();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let record = test.scheduler(0);
                let mut count = 0;
                while !is_done.load(Ordering::Relaxed) {
                    count += 1;
                    record.sequence.store(2 * count - 1, Ordering::Relaxed);
                    fence(Ordering::Release);
                    record
                        .context_switches_count
                        .store(count, Ordering::Relaxed);
                    record.yield_count.store(count, Ordering::Relaxed);
                    record.sequence.store(2 * count, Ordering::Release);
                }
            });
            for _ in 0..2_000 {
                let snapshot = page.snapshot().unwrap();
                let row = &snapshot.schedulers[0];
                if row.consistency != Consistency::Torn {
                    assert_eq!(row.context_switches_count, row.yield_count);
                }
            }
            is_done.store(true, Ordering::Relaxed);
        });
    }

    /// Fills every byte behind the header with values that make the largest numbers.
    #[test]
    fn a_page_full_of_nonsense_is_shown_without_panic() {
        for byte in [0xff_u8, 0x80, 0x01, 0x05] {
            let test = TestPage::new();
            let page = test.observe().unwrap();
            test.spoil(byte);
            page.snapshot().unwrap();
            for index in 0..=TestPage::SCHEDULERS {
                if let Some(mut ring) = page.ring(index) {
                    ring.read(&page, u64::MAX, |_| ());
                }
            }
            page.thread_words().for_each(drop);
        }
    }
}
