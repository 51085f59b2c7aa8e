//! Tasks: a closure, its result, and the handle to wait for it.

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering, fence};
use std::time::Duration;

use swtch_observe::clock;

use crate::error::{Error, JoinError, Panic};
use crate::pair::{PairOwner, pair};
use crate::park::{self, Cancelled, Deadline, WaitOutcome, Waiter};
use crate::request::{self, Request};
use crate::scheduler::SchedulerGroup;
use crate::scheduler::task::{ErasedClosure, Task};
use crate::scheduler::worker::{self, Phase, WorkerCell};
use crate::wait_type::WaitType;

/// The part of a task that does not depend on its types. It begins with the task's id: a joiner's
/// wait resource is this address, and the monitor reads there which task it waits for.
///
/// ```text
/// state:   RUNNING ──── finish ────────────────▶ DONE   the result is there
///             │ ▲                                 ▲
///      attach │ │ detach                          │
///             ▼ │                                 │
///           AWAITED ─── finish: signals joiner ───┘
/// ```
#[repr(C)]
struct Control {
    task: u64,
    state: AtomicU32,
    /// The task was asked to end.
    cancel: AtomicBool,
    /// The worker that the task is bound to, while it runs.
    worker: AtomicPtr<WorkerCell>,
    /// The waiter for the end. Written by the owner of the handle before AWAITED, read after it.
    joiner: UnsafeCell<Option<Waiter>>,
}

const RUNNING: u32 = 0;
const AWAITED: u32 = 1;
const DONE: u32 = 2;

// SAFETY: `joiner` is written by the handle's owner in the state RUNNING. It is read by the thread
// that ends the task after it has swapped AWAITED for DONE: the state hands it over.
unsafe impl Sync for Control {}

/// The task as the scheduler runs it. Reports of stalls find the root of a task by the name of this
/// module (`stall/backtrace.rs`).
struct Packet<Body, Output> {
    control: Control,
    /// Taken by the thread that runs or abandons the task: the one owner of its [`Task`].
    body: UnsafeCell<Option<Body>>,
    /// The request that the body serves. Read by that thread, too.
    request: Option<Request>,
    /// Written by that thread before DONE, taken after DONE by the one owner of the handle.
    result: UnsafeCell<Option<Result<Output, JoinError>>>,
}

// SAFETY: both cells have one owner at a time, as documented there; the state hands over the
// result.
unsafe impl<Body: Send, Output: Send> Sync for Packet<Body, Output> {}

impl<Body, Output> Packet<Body, Output> {
    /// # Safety
    ///
    /// The caller ends the task, once.
    unsafe fn finish(&self, result: Result<Output, JoinError>) {
        // SAFETY: the task's owner alone writes, before DONE.
        unsafe { *self.result.get() = Some(result) };
        self.control
            .worker
            .store(ptr::null_mut(), Ordering::Release);
        if self.control.state.swap(DONE, Ordering::AcqRel) == AWAITED {
            // SAFETY: after AWAITED the handle's owner does not write.
            if let Some(joiner) = unsafe { *self.control.joiner.get() } {
                joiner.signal();
            }
        }
    }

    /// # Safety
    /// The caller owns the task.
    unsafe fn take_body(&self) -> Option<Body> {
        // SAFETY: by the caller's promise.
        unsafe { (*self.body.get()).take() }
    }
}

impl<Body: FnOnce() -> Output, Output> Packet<Body, Output> {
    /// # Safety
    /// The caller owns the task, and the calling worker runs it.
    unsafe fn run_body(&self) {
        // SAFETY: by the caller's promise.
        let Some(body) = (unsafe { self.take_body() }) else {
            return;
        };
        let result = catch_unwind(AssertUnwindSafe(|| {
            request::serve(self.request.clone(), body)
        }))
        .map_err(ended_by);
        // SAFETY: by the caller's promise.
        unsafe { self.finish(result) };
    }
}

impl<Body, Output> ErasedClosure for Packet<Body, Output>
where
    Body: FnOnce() -> Output + Send,
    Output: Send,
{
    unsafe fn run(&self) {
        let cell = worker::current().expect("a worker runs it");
        if self.control.starts_on(cell) {
            // SAFETY: by the caller's promise.
            unsafe { self.run_body() };
        } else {
            // SAFETY: by the caller's promise.
            unsafe { self.abandon(JoinError::Cancelled) };
        }
        // SAFETY: the calling worker runs, and is on the same thread as before.
        unsafe { cell.own() }.cancel = ptr::null();
    }

    unsafe fn abandon(&self, why: JoinError) {
        // SAFETY: by the caller's promise.
        let body = unsafe { self.take_body() };
        // The closure's own Drop may panic; that counts as a panic of the task.
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(body)));
        // SAFETY: as above.
        unsafe { self.finish(Err(dropped.err().map_or(why, panicked))) };
    }

    fn cancel(&self) {
        self.control.cancel();
    }
}

fn panicked(payload: Box<dyn Any + Send>) -> JoinError {
    JoinError::Panicked(Panic::new(payload))
}

/// The reason of a task's end, from its panic payload.
pub(crate) fn ended_by(payload: Box<dyn Any + Send>) -> JoinError {
    if payload.is::<Cancelled>() {
        JoinError::Cancelled
    } else {
        panicked(payload)
    }
}

impl Control {
    fn new(task: u64) -> Self {
        Self {
            task,
            state: AtomicU32::new(RUNNING),
            cancel: AtomicBool::new(false),
            worker: AtomicPtr::new(ptr::null_mut()),
            joiner: UnsafeCell::new(None),
        }
    }

    /// Notes that the task runs on the calling worker. False when it was cancelled before.
    fn starts_on(&self, cell: &'static WorkerCell) -> bool {
        self.worker
            .store(ptr::from_ref(cell).cast_mut(), Ordering::Release);
        // SAFETY: the calling worker runs.
        unsafe { cell.own() }.cancel = &raw const self.cancel;
        !self.cancel.load(Ordering::SeqCst)
    }

    fn is_done(&self) -> bool {
        self.state.load(Ordering::Acquire) == DONE
    }

    /// Asks the task to end: at its next wait, or out of the present one.
    ///
    /// A worker arms its wait and then reads the flag; here the flag is set first, and then the
    /// wait is read. So one of the two sees the other.
    fn cancel(&self) {
        self.cancel.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let bound = self.worker.load(Ordering::Acquire);
        // SAFETY: control blocks are never freed.
        let Some(cell) = (unsafe { bound.as_ref() }) else {
            return;
        };
        let Some(waiter) = Waiter::of(cell) else {
            // It runs, or will: make its next yield point yield, not only at the end of the
            // quantum.
            if let Some(scheduler) = cell.scheduler() {
                scheduler.need_yield.store(true, Ordering::Relaxed);
            }
            return;
        };
        // The task was still bound after the wait was seen open, and a ticket is used once: if the
        // wait is still open in `end`, it is a wait of this task.
        if self.worker.load(Ordering::Acquire) == bound && !cell.wait.is_uncancellable() {
            waiter.end(Phase::Cancelled);
        }
    }

    /// Waits until the task has ended. Called by the one owner of the handle.
    fn wait(&self, deadline: Option<Deadline>) -> WaitOutcome {
        while !self.is_done() {
            let waiter = park::prepare(WaitType::JOIN, ptr::from_ref(self).addr());
            let attached = Attached { control: self };
            // SAFETY: in the state RUNNING no other thread reads it, and the handle has one owner.
            unsafe { *self.joiner.get() = Some(waiter) };
            let order = (Ordering::AcqRel, Ordering::Acquire);
            if self
                .state
                .compare_exchange(RUNNING, AWAITED, order.0, order.1)
                .is_err()
            {
                // The task has ended, and did not see the waiter.
                let withdrawn = park::withdraw(waiter);
                debug_assert!(withdrawn, "nobody knew it");
                break;
            }
            if park::wait(waiter, deadline) == WaitOutcome::TimedOut {
                drop(attached);
                // If the end came after the deadline but before this check, it counts.
                return if self.is_done() {
                    WaitOutcome::Signalled
                } else {
                    WaitOutcome::TimedOut
                };
            }
        }
        WaitOutcome::Signalled
    }
}

/// Detaches the joiner, also when its wait unwinds.
struct Attached<'control> {
    control: &'control Control,
}

impl Drop for Attached<'_> {
    fn drop(&mut self) {
        // Fails when the task has ended: then the joiner is no longer needed.
        let _detached = self.control.state.compare_exchange(
            AWAITED,
            RUNNING,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
    }
}

/// A handle to a task that was started, and to its result.
///
/// Dropping the handle detaches the task, which goes on.
#[derive(Debug)]
pub struct JoinHandle<Output> {
    id: u64,
    packet: PairOwner<dyn Joinable<Output>>,
}

/// The part of a [`Packet`] that depends on the type of the result.
trait Joinable<Output>: Send + Sync {
    fn control(&self) -> &Control;
    /// # Safety
    /// The task has ended, and the caller owns the one handle.
    unsafe fn take_result(&self) -> Option<Result<Output, JoinError>>;
}

impl<Body: Send, Output: Send> Joinable<Output> for Packet<Body, Output> {
    fn control(&self) -> &Control {
        &self.control
    }

    unsafe fn take_result(&self) -> Option<Result<Output, JoinError>> {
        // SAFETY: by the caller's promise.
        unsafe { (*self.result.get()).take() }
    }
}

impl<Output> std::fmt::Debug for dyn Joinable<Output> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Packet").finish_non_exhaustive()
    }
}

impl<Output> JoinHandle<Output> {
    /// The task's id: unique in this process, and shown as `user_task` in a trace.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns true if the task has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.packet.control().is_done()
    }

    /// Asks the task to end. The task unwinds out of its present wait, or out of its next wait or
    /// yield; destructors run. A task that neither waits nor yields is not interrupted.
    pub fn cancel(&self) {
        self.packet.control().cancel();
    }

    /// Waits until the task has ended, and takes its result. A worker that calls it waits without
    /// blocking its thread; any other thread sleeps.
    ///
    /// # Errors
    /// [`JoinError`] when the task panicked, was cancelled, never got a worker, or is the calling
    /// task.
    pub fn join(self) -> Result<Output, JoinError> {
        if self.id == worker::task_here() {
            return Err(JoinError::Itself);
        }
        let WaitOutcome::Signalled = self.wait(None) else {
            unreachable!("without a deadline nothing times out")
        };
        self.result()
    }

    /// As [`join`](Self::join), at most for `span`.
    ///
    /// # Errors
    /// Gives the handle back when the task has not ended by then.
    pub fn join_timeout(self, span: Duration) -> Result<Result<Output, JoinError>, Self> {
        match self.wait(Some(Deadline::after(span))) {
            WaitOutcome::Signalled => Ok(self.result()),
            WaitOutcome::TimedOut => Err(self),
        }
    }

    fn wait(&self, deadline: Option<Deadline>) -> WaitOutcome {
        self.packet.control().wait(deadline)
    }

    fn result(&self) -> Result<Output, JoinError> {
        // SAFETY: the handle has one owner, who has seen the end.
        let result = unsafe { self.packet.take_result() };
        result.expect("a task that has ended has a result, and a handle is asked once")
    }
}

/// The settings of a new task: its name, and its scheduler.
///
/// ```
/// let runtime = swtch_fiber::Runtime::builder().schedulers(1).build()?;
/// let sum = runtime.run(|| {
///     let halves = swtch_fiber::TaskBuilder::new().name("halves").spawn(|| 21)?;
///     halves.join().map(|half| half * 2).map_err(|error| error.to_string().into())
/// })?;
/// # let sum: Result<i32, Box<dyn std::error::Error + Send + Sync>> = sum;
/// assert_eq!(sum.expect("joined"), 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct TaskBuilder {
    name: Option<Arc<str>>,
    scheduler: Option<u32>,
}

impl TaskBuilder {
    /// A task without a name, on the scheduler with the least load.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The name in views and reports; the shared page keeps 32 bytes of it.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Binds it to the scheduler with this number (from 0). It is then never stolen.
    #[must_use]
    pub fn on_scheduler(mut self, scheduler: u32) -> Self {
        self.scheduler = Some(scheduler);
        self
    }

    /// Starts a task in the runtime of the calling worker.
    ///
    /// # Errors
    /// [`Error::NoRuntime`] outside of a worker, [`Error::ShuttingDown`], [`Error::Setting`] for a
    /// scheduler that does not exist.
    pub fn spawn<Body, Output>(self, body: Body) -> Result<JoinHandle<Output>, Error>
    where
        Body: FnOnce() -> Output + Send + 'static,
        Output: Send + 'static,
    {
        let cell = worker::current().ok_or(Error::NoRuntime)?;
        let scheduler = cell.scheduler().ok_or(Error::NoRuntime)?;
        let parent = scheduler.task_of(cell);
        // SAFETY: the calling worker holds the scheduler.
        let id = unsafe { scheduler.core() }.next_task_id();
        // SAFETY: as above; queueing a task needs another part of it.
        let group = unsafe { scheduler.group() };
        self.spawn_in(group, id, parent, body)
    }

    pub(crate) fn spawn_in<Body, Output>(
        self,
        group: &SchedulerGroup,
        id: u64,
        parent: u64,
        body: Body,
    ) -> Result<JoinHandle<Output>, Error>
    where
        Body: FnOnce() -> Output + Send + 'static,
        Output: Send + 'static,
    {
        let (closure, packet) = pair(Packet {
            control: Control::new(id),
            body: UnsafeCell::new(Some(body)),
            request: Request::current(),
            result: UnsafeCell::new(None),
        });
        // SAFETY: it is the coercion.
        let closure: PairOwner<dyn ErasedClosure> = unsafe { closure.unsized_by(|packet| packet) };
        // SAFETY: it is the coercion.
        let packet: PairOwner<dyn Joinable<Output>> = unsafe { packet.unsized_by(|packet| packet) };
        let task = Task {
            id,
            parent,
            name: self.name,
            queued_ticks: if group.settings.accounting {
                clock::ticks()
            } else {
                0
            },
            placed: self.scheduler.is_some(),
            closure,
        };
        group.enqueue(task, self.scheduler)?;
        Ok(JoinHandle { id, packet })
    }
}

/// Starts a task in the runtime of the calling worker, on the scheduler with the least load.
///
/// # Errors
/// As [`TaskBuilder::spawn`].
pub fn spawn<Body, Output>(body: Body) -> Result<JoinHandle<Output>, Error>
where
    Body: FnOnce() -> Output + Send + 'static,
    Output: Send + 'static,
{
    TaskBuilder::new().spawn(body)
}
