//! The pool of helper threads, which run the preemptive sections of workers in fiber mode.
//!
//! Each running section has a helper, which is kept for the next section. There are at most
//! [`MOST`] helpers (or what the builder says); further sections wait in a queue, first come, first
//! served. The kernel schedules the helpers. The scheduler whose worker waits for a section runs
//! its other workers meanwhile.
//!
//! Sections that wait for each other need a helper each. If all running sections wait for one that
//! is still queued, nothing can proceed; the monitor reports this when no helper has become free
//! for [`LONG`].

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use swtch_observe::layout::thread_kind;

use crate::error::Error;
use crate::page::{self, ThreadSlot};
use crate::stack::overflow;

/// Default limit of helpers per runtime. A thread costs some 10 kB and 2 of the 65,530 mappings that
/// a process may have (`vm.max_map_count`). Tokio allows as many threads for blocking calls.
pub(crate) const MOST: usize = 512;

/// The monitor makes a report if no helper has become free for this long while sections wait.
pub(crate) const LONG: Duration = Duration::from_secs(5);

/// A helper without work ends after this time.
const PATIENCE: Duration = Duration::from_secs(10);

/// A preemptive section that a helper runs.
pub(crate) struct Job {
    /// The section itself. It catches its panics and wakes the worker that waits for it.
    pub(crate) body: Box<dyn FnOnce() + Send>,
    /// The word of that worker, by which a recorder knows whose work the helper does.
    pub(crate) word: u64,
    /// The index of that worker's scheduler.
    pub(crate) scheduler: u32,
}

impl Job {
    /// Adds `more` to the number of waiting jobs in the scheduler's record. A negative number is
    /// subtracted, because the addition wraps.
    fn count_queued(&self, more: i32) {
        if let Some(page) = page::page_if_there() {
            let queued = &page.scheduler(self.scheduler).queued_preemptive_count;
            queued.fetch_add(more.cast_unsigned(), Ordering::Relaxed);
        }
    }
}

/// The helpers of a runtime.
#[derive(Debug)]
pub(crate) struct HelperPool {
    /// Prefix of the names of its threads.
    name: String,
    state: Mutex<PoolState>,
    work_or_end: Condvar,
    /// The most helpers that may live at a time.
    most: usize,
}

#[derive(Default)]
struct PoolState {
    jobs: VecDeque<Job>,
    /// The moment at which a job was last taken, or was added to an empty queue.
    moved: Option<Instant>,
    /// Helpers that wait for work.
    free: usize,
    /// Helpers that have been started and have not ended.
    living: usize,
    /// Helpers started so far, for their names.
    made: usize,
    threads: Vec<thread::JoinHandle<()>>,
    ending: bool,
}

impl std::fmt::Debug for PoolState {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("PoolState")
            .field("jobs", &self.jobs.len())
            .field("free", &self.free)
            .field("living", &self.living)
            .finish_non_exhaustive()
    }
}

/// Jobs that wait while all allowed helpers exist and are busy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Queued {
    /// Helpers, all of them busy.
    pub(crate) helpers: usize,
    /// Jobs that wait for a helper.
    pub(crate) jobs: usize,
    /// For how long no helper has become free.
    pub(crate) lasted: Duration,
}

impl HelperPool {
    /// Creates a pool of at most `most` helpers, none of which is started yet.
    pub(crate) fn new(name: &str, most: usize) -> Self {
        Self {
            name: name.into(),
            state: Mutex::new(PoolState::default()),
            work_or_end: Condvar::new(),
            most,
        }
    }

    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a job to a helper, and starts one if none is free and the limit allows it. Otherwise
    /// the job waits.
    ///
    /// # Errors
    /// [`Error::Thread`] when there is no helper at all and none can be started; the job is
    /// dropped.
    pub(crate) fn run(self: &Arc<Self>, job: Job) -> Result<(), Error> {
        let mut state = self.lock();
        if state.jobs.is_empty() {
            state.moved = Some(Instant::now());
        }
        job.count_queued(1);
        state.jobs.push_back(job);
        if state.free >= state.jobs.len() {
            self.work_or_end.notify_one();
            return Ok(());
        }
        if state.living >= self.most {
            return Ok(());
        }
        self.start_helper(&mut state)
    }

    /// Starts a helper for the job that was queued last.
    ///
    /// # Errors
    /// As [`Self::run`].
    fn start_helper(self: &Arc<Self>, state: &mut PoolState) -> Result<(), Error> {
        state.made += 1;
        let name = format!("{}-h{}", self.name, state.made);
        let pool = self.clone();
        let started = thread::Builder::new()
            .name(name.clone())
            .spawn(move || pool.work());
        match started {
            Ok(thread) => {
                state.living += 1;
                state.threads.retain(|thread| !thread.is_finished());
                state.threads.push(thread);
                Ok(())
            }
            // A helper that is busy now will take the job later.
            Err(_) if state.living > 0 => Ok(()),
            Err(source) => {
                if let Some(job) = state.jobs.pop_back() {
                    job.count_queued(-1);
                }
                Err(Error::Thread { name, source })
            }
        }
    }

    /// The waiting jobs, if all helpers are busy and the limit is reached.
    pub(crate) fn queued(&self) -> Option<Queued> {
        let state = self.lock();
        let waits = !state.jobs.is_empty() && state.free == 0 && state.living >= self.most;
        waits.then(|| Queued {
            helpers: state.living,
            jobs: state.jobs.len(),
            lasted: state.moved.map_or(Duration::ZERO, |moved| moved.elapsed()),
        })
    }

    /// Waits for a job and takes it. Returns `None` when the helper must end; it is then no longer
    /// counted as living.
    fn next_job(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                state.moved = Some(Instant::now());
                job.count_queued(-1);
                return Some(job);
            }
            if state.ending {
                state.living -= 1;
                return None;
            }
            state.free += 1;
            let waited = self.work_or_end.wait_timeout(state, PATIENCE);
            let (woken, result) = waited.unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.free -= 1;
            if result.timed_out() && state.jobs.is_empty() {
                state.living -= 1;
                return None;
            }
        }
    }

    /// Ends all helpers and waits for them. Called when the runtime ends: no job is left then,
    /// because the worker that waits for it would keep the runtime alive.
    pub(crate) fn end(&self) {
        let threads = {
            let mut state = self.lock();
            state.ending = true;
            std::mem::take(&mut state.threads)
        };
        self.work_or_end.notify_all();
        for thread in threads {
            let ended = thread.join();
            debug_assert!(ended.is_ok(), "jobs catch their panics");
        }
    }

    /// The body of a helper's thread.
    fn work(&self) {
        // Without the guard an overflow is reported by Rust's library, with the name of the thread.
        let _guard = overflow::guard_one_of_many().ok();
        // A helper also works without a record; a recorder then cannot tell whose work it does.
        let slot = page::page()
            .and_then(|page| ThreadSlot::take(page, thread_kind::HELPER, None))
            .ok();
        while let Some(job) = self.next_job() {
            if let Some(slot) = &slot {
                slot.record
                    .scheduler_plus_one
                    .store(job.scheduler + 1, Ordering::Relaxed);
                slot.record.word.store(job.word, Ordering::Relaxed);
            }
            (job.body)();
            if let Some(slot) = &slot {
                slot.record.word.store(0, Ordering::Relaxed);
            }
        }
    }
}
