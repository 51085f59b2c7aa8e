//! Leaving the scheduler for code that blocks or takes long, so that other workers run meanwhile.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::helper_pool::Job;
use crate::request::{self, Request};
use crate::scheduler::worker::{self, WorkerCell};
use crate::scheduler::{LeaveKind, Mode, Scheduler};
use crate::wait_type::WaitType;
use crate::{baton, fiber, park};

/// Runs `body` outside of the scheduler: only the kernel schedules it, and the scheduler's other
/// workers run at the same time. For blocking system calls, foreign code, and long computations.
///
/// In thread mode the calling worker's thread hands over the baton and runs `body` itself. In fiber
/// mode a helper thread runs `body`, so it must not rely on thread-local state. Afterwards the
/// worker must be chosen again before it continues. All this time is counted under `wait_type`,
/// whose name should begin with `PREEMPTIVE_`, see [`WaitType::named`].
///
/// The number of helper threads is limited ([`Builder::helpers`](crate::Builder::helpers)): further
/// sections wait for one. No task can be spawned inside of `body`, where no worker runs
/// ([`Error::NoRuntime`](crate::Error::NoRuntime)); spawn before it, or send the work to a task.
///
/// Cancelling the task does not interrupt `body`. On a thread that is not a worker, `body` is
/// simply called.
///
/// # Panics
/// With the panic of `body`; and when no helper thread can be started.
pub fn preemptive<Body, Output>(wait_type: WaitType, body: Body) -> Output
where
    Body: FnOnce() -> Output + Send,
    Output: Send,
{
    let Some((cell, scheduler)) =
        worker::current().and_then(|cell| Some((cell, cell.scheduler()?)))
    else {
        return body();
    };
    // SAFETY: the calling worker holds the scheduler.
    let result = match unsafe { scheduler.group() }.settings.mode {
        Mode::Fiber => on_a_helper(scheduler, cell, wait_type, body),
        Mode::Thread => without_the_baton(scheduler, cell, wait_type, body),
    };
    result.unwrap_or_else(|payload| resume_unwind(payload))
}

fn on_a_helper<Body, Output>(
    scheduler: &'static Scheduler,
    cell: &'static WorkerCell,
    wait_type: WaitType,
    body: Body,
) -> Result<Output, Box<dyn Any + Send>>
where
    Body: FnOnce() -> Output + Send,
    Output: Send,
{
    let mut result = None;
    let waiter = park::prepare_uncancellable(wait_type, 0);
    let place = &mut result;
    let request = Request::current();
    let work: Box<dyn FnOnce() + Send + '_> = Box::new(move || {
        *place = Some(catch_unwind(AssertUnwindSafe(|| {
            request::serve(request, body)
        })));
        let waits = waiter.signal();
        debug_assert!(waits, "nobody else ends this wait");
    });
    // SAFETY: only the lifetime changes. What the job borrows lies on this stack, which is not left
    // before the job has run: the wait below has no deadline and cannot be cancelled, and its only
    // signal is the last thing the job does with it. A job that is refused is dropped in `run`.
    let work: Box<dyn FnOnce() + Send + 'static> = unsafe { std::mem::transmute(work) };
    // SAFETY: the calling worker holds the scheduler.
    let word = unsafe { cell.own() }.word;
    // SAFETY: as above.
    let core = unsafe { scheduler.core() };
    let helpers = core.group.helpers.clone();
    let job = Job {
        body: work,
        word,
        scheduler: core.accounts.index(),
    };
    if let Err(error) = helpers.run(job) {
        let withdrawn = park::withdraw(waiter);
        debug_assert!(withdrawn, "the job was dropped");
        panic!("a preemptive section needs a helper thread: {error}");
    }
    fiber::leave(cell, LeaveKind::Preemptive);
    result.expect("the job has run")
}

fn without_the_baton<Body, Output>(
    scheduler: &'static Scheduler,
    cell: &'static WorkerCell,
    wait_type: WaitType,
    body: Body,
) -> Result<Output, Box<dyn Any + Send>>
where
    Body: FnOnce() -> Output,
{
    let waiter = park::prepare_uncancellable(wait_type, 0);
    baton::leave(scheduler, cell, LeaveKind::Preemptive);
    let result = catch_unwind(AssertUnwindSafe(body));
    let waits = waiter.signal();
    debug_assert!(waits, "nobody else ends this wait");
    baton::come_back(scheduler, cell);
    result
}
