//! Helper threads of fiber mode: they run what workers do in preemptive sections.
//!
//! A helper per section at a time, kept for the next one. The kernel schedules them; the scheduler
//! whose worker waits for one runs others meanwhile.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use crate::error::Error;
use crate::page::layout::thread_kind;
use crate::page::{self, ThreadSlot};

/// A helper without work ends after this long.
const PATIENCE: Duration = Duration::from_secs(10);

/// Work for a helper: what to call, and the word of the worker that waits for it.
pub(crate) struct Job {
    pub(crate) body: Box<dyn FnOnce() + Send>,
    pub(crate) word: u64,
    pub(crate) scheduler: u32,
}

/// The helpers of a runtime.
#[derive(Debug)]
pub(crate) struct Helpers {
    state: Mutex<State>,
    work_or_end: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Helpers that wait for work.
    free: usize,
    /// Helpers made so far, for their names.
    made: usize,
    threads: Vec<thread::JoinHandle<()>>,
    ending: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (jobs, free) = (self.jobs.len(), self.free);
        formatter
            .debug_struct("State")
            .field("jobs", &jobs)
            .field("free", &free)
            .finish()
    }
}

impl Helpers {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State::default()),
            work_or_end: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a job to a helper; makes one if none is free.
    ///
    /// # Errors
    /// [`Error::Thread`] when there is no helper at all and none can be made; the job is dropped.
    pub(crate) fn run(
        &self,
        job: Job,
        shared: &std::sync::Arc<crate::runtime::Shared>,
    ) -> Result<(), Error> {
        let mut state = self.lock();
        state.jobs.push_back(job);
        if state.free >= state.jobs.len() {
            self.work_or_end.notify_one();
            return Ok(());
        }
        state.made += 1;
        let name = format!("{}-h{}", shared.name, state.made);
        let theirs = shared.clone();
        let started = thread::Builder::new()
            .name(name.clone())
            .spawn(move || help(&theirs));
        match started {
            Ok(thread) => {
                state.threads.retain(|thread| !thread.is_finished());
                state.threads.push(thread);
                Ok(())
            }
            // Helpers that are busy now will come to it.
            Err(_) if state.threads.iter().any(|thread| !thread.is_finished()) => Ok(()),
            Err(source) => {
                state.jobs.pop_back();
                Err(Error::Thread { name, source })
            }
        }
    }

    fn next_job(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.ending {
                return None;
            }
            state.free += 1;
            let waited = self.work_or_end.wait_timeout(state, PATIENCE);
            let (woken, result) = waited.unwrap_or_else(PoisonError::into_inner);
            state = woken;
            state.free -= 1;
            if result.timed_out() && state.jobs.is_empty() {
                return None;
            }
        }
    }

    /// Ends all helpers and waits for them. No job is left when a runtime ends: its worker would
    /// still wait.
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
}

/// What a helper's thread does.
fn help(shared: &crate::runtime::Shared) {
    // A helper without a record works as well; only a recorder does not learn whose work it does.
    let slot = page::page()
        .and_then(|page| ThreadSlot::take(page, thread_kind::HELPER, None))
        .ok();
    while let Some(job) = shared.helpers.next_job() {
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
