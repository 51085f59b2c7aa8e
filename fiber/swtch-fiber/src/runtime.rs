//! A runtime: its schedulers, their threads, and how it starts and ends.

mod builder;

use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread;

use swtch_observe::layout::{scheduler_status, thread_kind};

pub use builder::Builder;

use crate::error::{Error, JoinError};
use crate::page::{self, SchedulerSlot, ThreadSlot};
use crate::scheduler::driver::Io;
use crate::scheduler::task::fresh_ids;
use crate::scheduler::{Core, Mode, Scheduler, SchedulerEntry, SchedulerGroup};
use crate::stack::overflow;
use crate::stall::Reporting;
use crate::task::{JoinHandle, TaskBuilder};
use crate::{affinity, monitor, switch};

/// A group of user-mode schedulers, by default one per CPU, and the threads they run on.
///
/// Dropping it cancels all tasks, waits until they have unwound, and ends its threads. A task that
/// neither waits nor yields delays this. A worker must not drop the runtime that runs it: it would
/// wait for its own end, so the process is aborted with that message.
#[derive(Debug)]
pub struct Runtime {
    group: Arc<SchedulerGroup>,
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
        builder.spawn_in(&self.group, fresh_ids(1).start, 0, body)
    }

    pub(crate) fn entries(&self) -> &[SchedulerEntry] {
        self.group.entries()
    }

    /// Number of schedulers in this runtime.
    #[must_use]
    pub fn schedulers(&self) -> usize {
        self.group.entries().len()
    }

    /// Returns how sockets and files are driven here: [`Io::Uring`] or [`Io::Epoll`].
    #[must_use]
    pub fn io_driver(&self) -> Io {
        self.group.settings.io
    }

    fn start(
        group: SchedulerGroup,
        reporting: Option<Reporting>,
        cpus: Option<&[u32]>,
        schedulers: u32,
    ) -> Result<Self, Error> {
        let page = page::page()?;
        let group = Arc::new(group);
        let slots: Vec<_> = (0..schedulers)
            .map(|_| SchedulerSlot::take(page))
            .collect::<Result<_, _>>()?;
        let mut entries = Vec::new();
        for (number, slot) in (0..schedulers).zip(&slots) {
            let scheduler =
                Scheduler::take(group.settings.accounting).map_err(|source| Error::Idle {
                    scheduler: number,
                    source,
                })?;
            entries.push(SchedulerEntry {
                scheduler,
                record: slot.record,
                index: slot.index,
            });
        }
        group.set_entries(entries);
        let mut runtime = Self {
            group,
            threads: Vec::new(),
            monitor: None,
        };
        for (number, slot) in (0..schedulers).zip(slots) {
            let cpu = cpus.map(|cpus| cpus[number as usize % cpus.len()]);
            let thread = runtime.start_scheduler(number, slot, cpu)?;
            runtime.threads.push(thread);
        }
        runtime.monitor = Some(monitor::start(&runtime.group, reporting)?);
        Ok(runtime)
    }

    fn start_scheduler(
        &self,
        number: u32,
        slot: SchedulerSlot,
        cpu: Option<u32>,
    ) -> Result<thread::JoinHandle<()>, Error> {
        let group = self.group.clone();
        let scheduler = group.entries()[number as usize].scheduler;
        let name = format!("{}-s{number}", group.settings.name);
        let (ready, answer) = mpsc::channel();
        let body = move || match set_up(scheduler, group, slot, number, cpu) {
            Ok((thread, _guard)) => {
                let sent = ready.send(Ok(()));
                debug_assert!(sent.is_ok(), "the runtime waits for the answer");
                switch::run(scheduler, &thread);
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

/// Does what the thread of a scheduler must do before it runs workers.
fn set_up(
    scheduler: &'static Scheduler,
    group: Arc<SchedulerGroup>,
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
    let settings = &group.settings;
    let record = slot.record;
    record.scheduler_id.store(number, Ordering::Relaxed);
    record
        .cpu_plus_one
        .store(cpu.map_or(0, |cpu| cpu + 1), Ordering::Relaxed);
    record
        .runtime
        .store(group.monitor.number(), Ordering::Relaxed);
    record
        .accounting
        .store(settings.accounting.into(), Ordering::Relaxed);
    record
        .io_driver
        .store(settings.io_driver, Ordering::Relaxed);
    let quantum = u64::try_from(settings.quantum.as_nanos()).unwrap_or(u64::MAX);
    record.quantum_ns.store(quantum, Ordering::Relaxed);
    let guard = guard_workers(&group)?;
    let attach_worker = switch::attach_worker(settings.mode);
    let status = match settings.mode {
        Mode::Fiber => scheduler_status::FIBER,
        Mode::Thread => scheduler_status::THREAD,
    };
    // SAFETY: the calling thread is the first to hold it.
    unsafe { scheduler.init_core(Core::new(group, slot, attach_worker)) };
    record.status.store(status, Ordering::Release);
    Ok((thread, guard))
}

/// Makes a stack overflow of a worker be reported with the name of its task. In thread mode each
/// worker's thread does that itself.
fn guard_workers(group: &SchedulerGroup) -> Result<Option<overflow::OverflowGuard>, Error> {
    overflow::set_describe(page::describe_worker);
    if group.settings.mode == Mode::Thread {
        return Ok(None);
    }
    let failed = |source| Error::Thread {
        name: group.settings.name.clone(),
        source,
    };
    overflow::guard_this_thread().map(Some).map_err(failed)
}

impl Drop for Runtime {
    fn drop(&mut self) {
        crate::fork::refuse_in_child();
        let own = |entry: &SchedulerEntry| entry.scheduler.runs_the_caller();
        if self.group.entries().iter().any(own) {
            crate::last_words::abort(
                "swtch-fiber: a worker drops the runtime that runs it, and would wait for its own end. \
                 Keep the runtime outside of its tasks.",
            );
        }
        self.group.close();
        let started = self.threads.len();
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            debug_assert!(
                ended.is_ok(),
                "a scheduler's thread catches the panics of its tasks"
            );
        }
        self.group.helpers.end();
        self.group.monitor.end();
        if let Some(monitor) = self.monitor.take() {
            let ended = monitor.join();
            debug_assert!(ended.is_ok(), "the monitor does not panic");
        }
        for entry in &self.group.entries()[..started] {
            // SAFETY: its thread has ended, no task is left to spawn into it, and `self` is gone.
            unsafe { entry.scheduler.recycle() };
        }
    }
}
