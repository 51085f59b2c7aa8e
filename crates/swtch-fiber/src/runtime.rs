//! A runtime: its schedulers, their threads, and how it starts and ends.

mod builder;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use swtch_observe::layout::{SchedulerRecord, scheduler_status, thread_kind};

pub use builder::Builder;

use crate::error::{Error, JoinError};
use crate::helpers::Helpers;
use crate::io::Io;
use crate::monitor::Monitor;
use crate::page::{self, SchedulerSlot, ThreadSlot};
use crate::scheduler::{Core, Scheduler};
use crate::stack::{StackPool, overflow};
use crate::stall::Reporter;
use crate::task::{self, JoinHandle, Task, TaskBuilder};
use crate::{affinity, baton, fiber};

/// How a runtime runs its workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// As coroutines on the scheduler's thread: a switch costs nanoseconds.
    #[default]
    Fiber,
    /// As OS threads that pass a baton: a switch costs a futex hand-off. Code that depends on its
    /// thread (thread-local state, foreign libraries) works as usual.
    Thread,
}

/// The state that all parts of a runtime share.
#[derive(Debug)]
pub(crate) struct RuntimeState {
    pub(crate) name: String,
    pub(crate) mode: Mode,
    pub(crate) accounting: bool,
    pub(crate) quantum: Duration,
    /// Where workers get their stacks (fiber mode).
    pub(crate) stacks: Option<&'static StackPool>,
    pub(crate) thread_stack_size: usize,
    pub(crate) workers_per_scheduler: usize,
    /// How sockets and files are driven; never [`Io::Auto`].
    pub(crate) io: Io,
    /// The number by which the page reports `io`.
    io_driver: u32,
    pub(crate) entries: OnceLock<Vec<SchedulerEntry>>,
    pub(crate) monitor: Monitor,
    /// The time without progress after which a stall is reported, and the reporter.
    pub(crate) stalls: Option<(Duration, Reporter)>,
    pub(crate) helpers: Helpers,
    /// Number of schedulers that sleep and could take tasks of others.
    idle_schedulers: AtomicUsize,
    /// Set when the runtime ends: no new tasks are accepted.
    ending: AtomicBool,
    /// Breaks ties between schedulers of equal load.
    turn: AtomicUsize,
}

/// Counts one scheduler as idle, while this value lives.
#[derive(Debug)]
pub(crate) struct IdleScheduler(Arc<RuntimeState>);

impl Drop for IdleScheduler {
    fn drop(&mut self) {
        self.0.idle_schedulers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A scheduler of the runtime, and its record.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SchedulerEntry {
    pub(crate) scheduler: &'static Scheduler,
    pub(crate) record: &'static SchedulerRecord,
    /// Index of the record in the page.
    pub(crate) index: u32,
}

impl RuntimeState {
    pub(crate) fn entries(&self) -> &[SchedulerEntry] {
        self.entries.get().map_or(&[], Vec::as_slice)
    }

    /// Queues a task on the wanted scheduler, or on the one with the least load.
    pub(crate) fn enqueue(&self, task: Task, wanted: Option<u32>) -> Result<(), Error> {
        let SchedulerEntry {
            scheduler, record, ..
        } = *self.route(wanted)?;
        let by_holder = scheduler.runs_the_caller();
        // Counted before `ending` is read; the thread that ends the runtime does it the other way
        // round. (Tasks of the holder are safe without that, since the task that spawns has not
        // ended.)
        if by_holder {
            scheduler.load.count_by_holder();
        } else {
            scheduler.load.count_from_outside();
        }
        if self.ending.load(Ordering::SeqCst) {
            if by_holder {
                scheduler.load.count_end();
            } else {
                scheduler.load.take_back();
                self.ring_all();
            }
            return Err(Error::ShuttingDown);
        }
        let has_idle_scheduler = self.has_idle_scheduler();
        if by_holder && !has_idle_scheduler {
            // SAFETY: the calling worker holds the scheduler.
            unsafe { scheduler.enqueue_by_holder(task) };
        } else {
            scheduler.enqueue_from_outside(task);
            if has_idle_scheduler {
                // The scheduler it was routed to may be busy, so an idle one takes the task.
                self.ring_all();
            }
            // The holder updates this count too, but possibly only much later.
            record.work_queue_count.fetch_add(1, Ordering::Relaxed);
            // If the scheduler does not react to the alarm, the monitor must be awake to notice
            // that.
            self.monitor.scheduler_works();
        }
        Ok(())
    }

    /// Whether a scheduler has nothing to do, and could take tasks of others.
    #[inline(always)]
    pub(crate) fn has_idle_scheduler(&self) -> bool {
        self.idle_schedulers.load(Ordering::Relaxed) != 0
    }

    /// Counts the caller's scheduler as idle, while the returned value lives.
    pub(crate) fn count_as_idle(self: Arc<Self>) -> IdleScheduler {
        self.idle_schedulers.fetch_add(1, Ordering::Relaxed);
        IdleScheduler(self)
    }

    fn route(&self, wanted: Option<u32>) -> Result<&SchedulerEntry, Error> {
        let entries = self.entries();
        if let Some(wanted) = wanted {
            return entries.get(wanted as usize).ok_or(Error::Setting {
                setting: "on_scheduler",
                value: wanted.to_string(),
                why: "the runtime has no scheduler with this number; they count from 0",
            });
        }
        if let [only] = entries {
            return Ok(only);
        }
        // A lost update between two threads does no harm here.
        let first = self.turn.load(Ordering::Relaxed);
        self.turn.store(first.wrapping_add(1), Ordering::Relaxed);
        (0..entries.len())
            .map(|step| &entries[first.wrapping_add(step) % entries.len()])
            .min_by_key(|entry| entry.scheduler.load.tasks())
            .ok_or(Error::NoRuntime)
    }

    /// Takes a task that waits for a worker of another, busy scheduler. From now on it counts as
    /// the thief's.
    pub(crate) fn steal_for(&self, thief: &Scheduler) -> Option<Task> {
        let others = self
            .entries()
            .iter()
            .filter(|entry| !std::ptr::eq(entry.scheduler, thief));
        for entry in others {
            if let Some(task) = entry.scheduler.take_for_another() {
                thief.load.count_by_holder();
                entry.scheduler.load.take_back();
                return Some(task);
            }
        }
        None
    }

    /// Whether any task has not ended.
    pub(crate) fn has_tasks(&self) -> bool {
        self.entries()
            .iter()
            .any(|entry| entry.scheduler.load.tasks() != 0)
    }

    pub(crate) fn ring_all(&self) {
        for entry in self.entries() {
            entry.scheduler.alarm.ring();
        }
    }
}

/// A group of user-mode schedulers, by default one per CPU, and the threads they run on.
///
/// Dropping it cancels all tasks, waits until they have unwound, and ends its threads. A task that
/// neither waits nor yields delays this. A worker must not drop the runtime that runs it: it would
/// wait for its own end, so the process is aborted with that message.
#[derive(Debug)]
pub struct Runtime {
    shared: Arc<RuntimeState>,
    threads: Vec<thread::JoinHandle<()>>,
    monitor: Option<thread::JoinHandle<()>>,
}

impl Runtime {
    /// Starts with the default settings; end with [`Builder::build`].
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Starts a runtime with the default settings: fiber mode, one scheduler per CPU that this
    /// process may use, a quantum of 4 ms.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn new() -> Result<Self, Error> {
        Builder::default().build()
    }

    /// Runs `body` as a task and waits for its result. Tasks that it spawned and did not join go
    /// on.
    ///
    /// # Errors
    /// [`JoinError`] when it panicked or could not be run.
    pub fn run<Body, Output>(&self, body: Body) -> Result<Output, JoinError>
    where
        Body: FnOnce() -> Output + Send + 'static,
        Output: Send + 'static,
    {
        self.spawn(body).map_err(JoinError::NotStarted)?.join()
    }

    /// Starts a task from outside of the runtime. Use the handle to wait for it.
    ///
    /// # Errors
    /// As [`TaskBuilder::spawn`].
    pub fn spawn<Body, Output>(&self, body: Body) -> Result<JoinHandle<Output>, Error>
    where
        Body: FnOnce() -> Output + Send + 'static,
        Output: Send + 'static,
    {
        self.spawn_with(TaskBuilder::new(), body)
    }

    /// As [`spawn`](Self::spawn), with a name or a chosen scheduler.
    ///
    /// # Errors
    /// As [`TaskBuilder::spawn`].
    pub fn spawn_with<Body, Output>(
        &self,
        builder: TaskBuilder,
        body: Body,
    ) -> Result<JoinHandle<Output>, Error>
    where
        Body: FnOnce() -> Output + Send + 'static,
        Output: Send + 'static,
    {
        builder.spawn_in(&self.shared, task::fresh_ids(1).start, 0, body)
    }

    pub(crate) fn entries(&self) -> &[SchedulerEntry] {
        self.shared.entries()
    }

    /// Number of schedulers in this runtime.
    #[must_use]
    pub fn schedulers(&self) -> usize {
        self.shared.entries().len()
    }

    /// How sockets and files are driven here: [`Io::Uring`] or [`Io::Epoll`].
    #[must_use]
    pub fn io_driver(&self) -> Io {
        self.shared.io
    }

    fn start(shared: RuntimeState, cpus: Option<&[u32]>, schedulers: u32) -> Result<Self, Error> {
        let page = page::page()?;
        let shared = Arc::new(shared);
        let slots: Vec<_> = (0..schedulers)
            .map(|_| SchedulerSlot::take(page))
            .collect::<Result<_, _>>()?;
        let mut entries = Vec::new();
        for (number, slot) in (0..schedulers).zip(&slots) {
            let scheduler = Scheduler::take(shared.accounting).map_err(|source| Error::Idle {
                scheduler: number,
                source,
            })?;
            entries.push(SchedulerEntry {
                scheduler,
                record: slot.record,
                index: slot.index,
            });
        }
        shared.entries.set(entries).expect("set here only");
        let mut runtime = Self {
            shared,
            threads: Vec::new(),
            monitor: None,
        };
        for (number, slot) in (0..schedulers).zip(slots) {
            let cpu = cpus.map(|cpus| cpus[number as usize % cpus.len()]);
            let thread = runtime.start_scheduler(number, slot, cpu)?;
            runtime.threads.push(thread);
        }
        runtime.monitor = Some(Monitor::start(&runtime.shared)?);
        Ok(runtime)
    }

    fn start_scheduler(
        &self,
        number: u32,
        slot: SchedulerSlot,
        cpu: Option<u32>,
    ) -> Result<thread::JoinHandle<()>, Error> {
        let shared = self.shared.clone();
        let scheduler = shared.entries()[number as usize].scheduler;
        let name = format!("{}-s{number}", shared.name);
        let (ready, answer) = mpsc::channel();
        let body = move || match set_up(scheduler, shared, slot, number, cpu) {
            Ok((thread, _guard)) => {
                let told = ready.send(Ok(()));
                debug_assert!(told.is_ok(), "the runtime waits for the answer");
                hold(scheduler, &thread);
            }
            Err(error) => drop(ready.send(Err(error))),
        };
        let failed = |source| Error::Thread {
            name: name.clone(),
            source,
        };
        let thread = thread::Builder::new()
            .name(name.clone())
            .spawn(body)
            .map_err(failed)?;
        let vanished = |_| failed(std::io::Error::other("it ended before it was ready"));
        answer.recv().map_err(vanished)??;
        Ok(thread)
    }
}

/// What the thread of a scheduler does before it runs workers.
fn set_up(
    scheduler: &'static Scheduler,
    shared: Arc<RuntimeState>,
    slot: SchedulerSlot,
    number: u32,
    cpu: Option<u32>,
) -> Result<(ThreadSlot, Option<overflow::OverflowGuard>), Error> {
    if let Some(cpu) = cpu {
        affinity::bind_to(cpu).map_err(|source| Error::Bind {
            scheduler: number,
            cpu,
            source,
        })?;
    }
    let thread = ThreadSlot::take(page::page()?, thread_kind::SCHEDULER, Some(slot.index))?;
    let record = slot.record;
    record.scheduler_id.store(number, Ordering::Relaxed);
    record
        .cpu_plus_one
        .store(cpu.map_or(0, |cpu| cpu + 1), Ordering::Relaxed);
    record
        .runtime
        .store(shared.monitor.number(), Ordering::Relaxed);
    record
        .accounting
        .store(shared.accounting.into(), Ordering::Relaxed);
    record.io_driver.store(shared.io_driver, Ordering::Relaxed);
    let quantum = u64::try_from(shared.quantum.as_nanos()).unwrap_or(u64::MAX);
    record.quantum_ns.store(quantum, Ordering::Relaxed);
    let guard = guard_workers(&shared)?;
    let status = match shared.mode {
        Mode::Fiber => scheduler_status::FIBER,
        Mode::Thread => scheduler_status::THREAD,
    };
    // SAFETY: the calling thread is the first to hold it.
    unsafe { scheduler.init_core(Core::new(shared, slot)) };
    record.status.store(status, Ordering::Release);
    Ok((thread, guard))
}

/// Makes a stack overflow of a worker be reported with the name of its task. In thread mode each
/// worker's thread does that itself.
fn guard_workers(shared: &RuntimeState) -> Result<Option<overflow::OverflowGuard>, Error> {
    overflow::set_describe(page::describe_worker);
    if shared.mode == Mode::Thread {
        return Ok(None);
    }
    let failed = |source| Error::Thread {
        name: shared.name.clone(),
        source,
    };
    overflow::guard_this_thread().map(Some).map_err(failed)
}

fn hold(scheduler: &'static Scheduler, thread: &ThreadSlot) {
    // SAFETY: the calling thread holds the scheduler.
    match unsafe { scheduler.shared() }.mode {
        Mode::Fiber => fiber::run(scheduler, thread),
        Mode::Thread => baton::run(scheduler, thread),
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        crate::fork::refuse_in_child();
        let own = |entry: &SchedulerEntry| entry.scheduler.runs_the_caller();
        if self.shared.entries().iter().any(own) {
            crate::last_words::abort(
                "swtch-fiber: a worker drops the runtime that runs it, and would wait for its own end. \
                 Keep the runtime outside of its tasks.",
            );
        }
        self.shared.ending.store(true, Ordering::SeqCst);
        for entry in self.shared.entries() {
            entry.scheduler.close();
        }
        let started = self.threads.len();
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            debug_assert!(
                ended.is_ok(),
                "a scheduler's thread catches the panics of its tasks"
            );
        }
        self.shared.helpers.end();
        self.shared.monitor.end();
        if let Some(monitor) = self.monitor.take() {
            let ended = monitor.join();
            debug_assert!(ended.is_ok(), "the monitor does not panic");
        }
        for entry in &self.shared.entries()[..started] {
            // SAFETY: its thread has ended, no task is left to spawn into it, and `self` is gone.
            unsafe { entry.scheduler.give_back() };
        }
    }
}
