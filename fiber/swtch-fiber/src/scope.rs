//! Tasks that may borrow from the caller, which waits for their end.

use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::{Error, JoinError};
use crate::park::WaitOutcome;
use crate::scheduler::worker;
use crate::sync::owners::Owners;
use crate::sync::wait_queue::{Cancelling, WaitQueue};
use crate::task::{JoinHandle, TaskBuilder, ended_by};
use crate::wait_type::WaitType;

/// Runs `body`, which may start tasks that borrow what lives longer than the call, and waits until
/// all of them have ended. Like `std::thread::scope`, with tasks instead of threads.
///
/// When `body` panics, or its task is cancelled while it or the scope waits, the tasks are
/// cancelled and waited for, and then the unwinding goes on: no task outlives what it borrows.
///
/// # Panics
/// With the panic of `body`; and when a task panicked and its result was not taken.
pub fn scope<'env, Body, Output>(body: Body) -> Output
where
    Body: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> Output,
{
    let scope = Scope {
        state: Arc::new(ScopeState::new()),
        scope: PhantomData,
        env: PhantomData,
    };
    let scope_state = &*scope.state;
    let mut result = catch_unwind(AssertUnwindSafe(|| body(&scope)));
    if result.is_ok() {
        let waited = catch_unwind(AssertUnwindSafe(|| scope_state.wait(Cancelling::Ends)));
        if let Err(payload) = waited {
            result = Err(payload);
        }
    }
    if result.is_err() {
        scope_state.cancel();
        // The panic has been caught, so the worker may wait here.
        scope_state.wait(Cancelling::Waits);
    }
    match result {
        Ok(_) if scope_state.has_panicked.load(Ordering::Relaxed) => {
            panic!("a task of the scope panicked")
        }
        Ok(output) => output,
        Err(payload) => resume_unwind(payload),
    }
}

/// The scope in which [`scope`]'s body starts tasks.
#[derive(Debug)]
pub struct Scope<'scope, 'env: 'scope> {
    state: Arc<ScopeState>,
    /// Makes both lifetimes invariant, so neither can be shortened or lengthened.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

/// The state of a scope and its tasks.
#[derive(Debug)]
#[repr(C)]
struct ScopeState {
    /// The tasks that run. It is the first field, because the monitor reads there which tasks a
    /// parent waits for.
    running: Owners,
    /// Number of tasks that have not ended.
    living: AtomicUsize,
    /// Tasks are cancelled as soon as they are started.
    is_cancelled: AtomicBool,
    /// A task panicked, and its result was not taken.
    has_panicked: AtomicBool,
    /// The scope's own wait for `living` to become 0.
    parent: WaitQueue,
    members: Mutex<Vec<JoinHandle<()>>>,
}

impl ScopeState {
    fn new() -> Self {
        Self {
            running: Owners::of_group(),
            living: AtomicUsize::new(0),
            is_cancelled: AtomicBool::new(false),
            has_panicked: AtomicBool::new(false),
            parent: WaitQueue::new(),
            members: Mutex::default(),
        }
    }

    fn wait(&self, cancelling: Cancelling) {
        let all_ended = || self.living.load(Ordering::Acquire) == 0;
        let what = (WaitType::JOIN, std::ptr::from_ref(&self.running).addr());
        let wake = self.parent.wait_until(what, None, cancelling, all_ended);
        debug_assert_eq!(wake, WaitOutcome::Signalled, "it has no deadline");
    }

    fn members(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, member: JoinHandle<()>) {
        let mut members = self.members();
        if members.len() == members.capacity() {
            members.retain(|member| !member.is_finished());
        }
        // Checked under the lock: either `cancel` finds this task, or this sees the flag.
        if self.is_cancelled.load(Ordering::Relaxed) {
            member.cancel();
        }
        members.push(member);
    }

    fn cancel(&self) {
        let members = self.members();
        self.is_cancelled.store(true, Ordering::Relaxed);
        for member in &*members {
            member.cancel();
        }
    }
}

/// Counts a task as living until it is dropped, which is the last thing done for the task.
struct LivingTask(Arc<ScopeState>);

impl LivingTask {
    fn new(scope_state: &Arc<ScopeState>) -> Self {
        scope_state.living.fetch_add(1, Ordering::Relaxed);
        Self(scope_state.clone())
    }
}

impl Drop for LivingTask {
    fn drop(&mut self) {
        if self.0.living.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.parent.signal_all();
        }
    }
}

/// The result that a task leaves for its handle.
#[repr(C)]
struct TaskResult<Output> {
    /// The task's id, once it runs. It is the first field, because the monitor reads there which
    /// task a joiner waits for.
    task: AtomicU64,
    scope_state: Arc<ScopeState>,
    ended: AtomicBool,
    result: Mutex<Option<Result<Output, JoinError>>>,
    joiner: WaitQueue,
}

impl<Output> TaskResult<Output> {
    fn set(&self, result: Result<Output, JoinError>) {
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        self.ended.store(true, Ordering::Release);
        self.joiner.signal_all();
    }

    fn take(&self) -> Result<Output, JoinError> {
        let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        result.take().unwrap_or(Err(JoinError::Cancelled))
    }
}

impl<Output> Drop for TaskResult<Output> {
    fn drop(&mut self) {
        let result = self
            .result
            .get_mut()
            .unwrap_or_else(PoisonError::into_inner);
        if matches!(result, Some(Err(JoinError::Panicked(_)))) {
            self.scope_state.has_panicked.store(true, Ordering::Relaxed);
        }
    }
}

/// A task of a scope. Its fields are dropped in their order, also when it never runs.
struct ScopedTask<Body, Output> {
    body: Option<Body>,
    result: UnsentResult<Output>,
    living: LivingTask,
}

/// The task's reference to its result: on drop it marks the task as ended in any case.
struct UnsentResult<Output>(Arc<TaskResult<Output>>);

impl<Output> Drop for UnsentResult<Output> {
    fn drop(&mut self) {
        if !self.0.ended.load(Ordering::Relaxed) {
            self.0.set(Err(JoinError::Cancelled));
        }
    }
}

impl<Body: FnOnce() -> Output, Output> ScopedTask<Body, Output> {
    fn run(mut self) {
        if let Some(body) = self.body.take() {
            self.result
                .0
                .task
                .store(worker::task_here(), Ordering::Relaxed);
            let scope_state = self.living.0.clone();
            let named = scope_state.running.add();
            let result = catch_unwind(AssertUnwindSafe(body)).map_err(ended_by);
            scope_state.running.remove(named);
            self.result.0.set(result);
        }
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a task that the scope waits for, in the runtime of the calling worker.
    ///
    /// # Errors
    /// As [`TaskBuilder::spawn`].
    pub fn spawn<Body, Output>(
        &'scope self,
        body: Body,
    ) -> Result<ScopedJoinHandle<'scope, Output>, Error>
    where
        Body: FnOnce() -> Output + Send + 'scope,
        Output: Send + 'scope,
    {
        self.spawn_with(TaskBuilder::new(), body)
    }

    /// As [`spawn`](Self::spawn), with a name or a chosen scheduler.
    ///
    /// # Errors
    /// As [`TaskBuilder::spawn`].
    pub fn spawn_with<Body, Output>(
        &'scope self,
        builder: TaskBuilder,
        body: Body,
    ) -> Result<ScopedJoinHandle<'scope, Output>, Error>
    where
        Body: FnOnce() -> Output + Send + 'scope,
        Output: Send + 'scope,
    {
        let result = Arc::new(TaskResult {
            task: AtomicU64::new(0),
            scope_state: self.state.clone(),
            ended: AtomicBool::new(false),
            result: Mutex::new(None),
            joiner: WaitQueue::new(),
        });
        let member = ScopedTask {
            body: Some(body),
            result: UnsentResult(result.clone()),
            living: LivingTask::new(&self.state),
        };
        let work: Box<dyn FnOnce() + Send + 'scope> = Box::new(move || member.run());
        // SAFETY: only the lifetime changes. Whether the closure runs, unwinds, or is dropped
        // without running, `living` is the last of its captures to be dropped. `scope` does not
        // return or unwind before all of those are dropped; its waits cannot be cut short. After
        // that only the box of the closure is left, which is freed without a look inside.
        let work: Box<dyn FnOnce() + Send + 'static> = unsafe { std::mem::transmute(work) };
        let task = builder.spawn(work)?;
        let id = task.id();
        self.state.add(task);
        Ok(ScopedJoinHandle {
            id,
            result,
            scope: PhantomData,
        })
    }
}

/// A handle to a task of a [`scope`], and to its result. It need not be joined.
pub struct ScopedJoinHandle<'scope, Output> {
    id: u64,
    result: Arc<TaskResult<Output>>,
    scope: PhantomData<&'scope ()>,
}

impl<Output> ScopedJoinHandle<'_, Output> {
    /// The task's id: unique in this process.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Returns true if the task has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.result.ended.load(Ordering::Acquire)
    }

    /// Waits until the task has ended, and takes its result.
    ///
    /// # Errors
    /// [`JoinError`] when the task panicked, was cancelled, or is the calling task.
    pub fn join(self) -> Result<Output, JoinError> {
        if self.id == worker::task_here() {
            return Err(JoinError::Itself);
        }
        let ended = || self.is_finished();
        let what = (WaitType::JOIN, std::ptr::from_ref(&self.result.task).addr());
        let wake = self
            .result
            .joiner
            .wait_until(what, None, Cancelling::Ends, ended);
        debug_assert_eq!(wake, WaitOutcome::Signalled, "it has no deadline");
        self.result.take()
    }
}

impl<Output> std::fmt::Debug for ScopedJoinHandle<'_, Output> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("ScopedJoinHandle")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
