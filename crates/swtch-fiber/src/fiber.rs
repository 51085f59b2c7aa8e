//! Fiber mode: all workers of a scheduler are coroutines on one OS thread.
//!
//! The scheduler's loop resumes a worker. The worker runs until it leaves, which suspends it and
//! returns into the loop. Both are one `corosensei` transfer. The loop, not the worker, does the
//! accounting, so that a worker's stack needs no room for it. The pairing of `call` and `ret` also
//! stays intact for the processor's return-address predictor.

use corosensei::stack::Stack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::error::Error;
use crate::interrupted::Marker;
use crate::page::ThreadSlot;
use crate::runtime::RuntimeState;
use crate::scheduler::{LeaveKind, Scheduler};
use crate::stack::{PooledStack, StackHandle};
use crate::stall::places;
use crate::worker::{self, WorkerCell};

/// A worker as a coroutine.
pub(crate) struct Fiber {
    coroutine: Coroutine<(), LeaveKind, (), PooledStack>,
    /// Suspends the worker; null before its first run.
    yielder: *const Yielder<(), LeaveKind>,
}

impl std::fmt::Debug for Fiber {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Fiber")
            .field("done", &self.coroutine.done())
            .finish_non_exhaustive()
    }
}

/// Gives a new worker its stack and its coroutine.
pub(crate) fn attach_stack(
    cell: &'static WorkerCell,
    worker_index: u32,
    shared: &RuntimeState,
) -> Result<(), Error> {
    let pool = shared.stacks.expect("a runtime in fiber mode has stacks");
    let stack = pool.take()?;
    stack.set_owner(worker_index);
    let handle = stack.handle();
    places::note_stack(worker_index, stack.limit().get()..stack.base().get());
    let coroutine = Coroutine::with_stack(stack, move |yielder, ()| work(cell, handle, yielder));
    // SAFETY: the caller holds the scheduler; the worker does not run.
    unsafe { cell.own() }.fiber = Some(Fiber {
        coroutine,
        yielder: std::ptr::null(),
    });
    Ok(())
}

/// The body of a worker's coroutine: runs tasks until it is resumed without one.
fn work(cell: &'static WorkerCell, stack: StackHandle, yielder: &Yielder<(), LeaveKind>) {
    // SAFETY: the calling worker runs.
    let own = unsafe { cell.own() };
    own.fiber.as_mut().expect("made by `furnish`").yielder = yielder;
    // SAFETY: as above, each time it is resumed.
    while let Some(task) = unsafe { cell.own() }.next_task.take() {
        task.run(cell);
        stack.trim_periodically();
        let scheduler = cell.scheduler().expect("a worker has a scheduler");
        if !scheduler.goes_on(cell) {
            yielder.suspend(LeaveKind::Done);
        }
    }
}

/// The calling worker leaves the scheduler, and returns when it is chosen again.
///
/// A worker that is unwinding cannot leave: std counts panics per thread, and other workers would
/// run with that count. Then a yield does nothing, and a wait ends the process with the reason.
#[inline(always)]
pub(crate) fn leave(cell: &'static WorkerCell, leave: LeaveKind) {
    if std::thread::panicking() {
        if leave == LeaveKind::Yield {
            return;
        }
        abort_since_unwinding();
    }
    // SAFETY: the calling worker runs.
    let fiber = unsafe { cell.own() }.fiber.as_ref();
    let yielder = fiber
        .expect("a worker in fiber mode is a coroutine")
        .yielder;
    // SAFETY: set by `work`, further down on this very stack.
    unsafe { &*yielder }.suspend(leave);
}

/// Runs workers until the scheduler is closed and no task is left. The calling thread holds the
/// scheduler until this returns.
pub(crate) fn run(scheduler: &'static Scheduler, thread: &ThreadSlot) {
    // SAFETY: the calling thread holds the scheduler, here and below.
    unsafe { scheduler.core() }
        .accounts
        .held_by(thread.index, thread.record);
    // SAFETY: as above.
    unsafe { scheduler.core() }.marker = Some(Marker::for_this_thread());
    let mut now = scheduler.now();
    loop {
        // SAFETY: as above.
        let core = unsafe { scheduler.core() };
        let Some(cell) = core.next() else {
            thread
                .record
                .word
                .store(0, std::sync::atomic::Ordering::Relaxed);
            if !scheduler.idle() {
                break;
            }
            // SAFETY: as above.
            unsafe { scheduler.core() }.slept();
            now = scheduler.now();
            continue;
        };
        scheduler.enters(cell, now);
        now = run_until_it_leaves(scheduler, cell);
    }
    // The marker belongs to this thread, and must not outlive it.
    // SAFETY: as above.
    unsafe { scheduler.core() }.marker = None;
    retire_all(scheduler);
}

/// Resumes a worker that has entered, and does the accounting when it leaves. Returns the time at
/// which it left.
#[inline(always)]
fn run_until_it_leaves(scheduler: &'static Scheduler, cell: &'static WorkerCell) -> u64 {
    loop {
        worker::set_current(Some(cell));
        let leave = resume(cell);
        worker::set_current(None);
        let now = scheduler.now();
        if scheduler.leaves(cell, leave, now) {
            return now;
        }
    }
}

#[inline(always)]
fn resume(cell: &'static WorkerCell) -> LeaveKind {
    // SAFETY: the holder resumes a worker that does not run. The worker reaches other parts of
    // `SchedulerData` meanwhile, never its coroutine.
    let fiber: *mut Fiber = unsafe { cell.own() }
        .fiber
        .as_mut()
        .expect("made by `furnish`");
    // SAFETY: as above; the fiber does not move while the worker lives.
    match unsafe { &mut (*fiber).coroutine }.resume(()) {
        CoroutineResult::Yield(leave) => leave,
        CoroutineResult::Return(()) => unreachable!("a worker returns only when it is retired"),
    }
}

/// Lets all coroutines return, and gives their control blocks back.
fn retire_all(scheduler: &'static Scheduler) {
    // SAFETY: the calling thread holds the scheduler; no task is left.
    let workers = std::mem::take(&mut unsafe { scheduler.core() }.workers);
    for cell in workers {
        // SAFETY: the worker is idle.
        let fiber = unsafe { cell.own() }.fiber.as_mut();
        let fiber: *mut Fiber = fiber.expect("made by `furnish`");
        // SAFETY: as in `resume`.
        let finished = unsafe { &mut (*fiber).coroutine }.resume(());
        debug_assert!(
            matches!(finished, CoroutineResult::Return(())),
            "no task was bound"
        );
        // SAFETY: it has returned, and the scheduler has ended.
        unsafe { cell.give_back() };
    }
}

#[cold]
fn abort_since_unwinding() -> ! {
    crate::last_words::abort(
        "swtch-fiber: a destructor waits while its task unwinds (panic or cancellation). In fiber mode \
         that would let other workers run with the panic count of this one. Do not block in `Drop`, \
         or use thread mode.",
    )
}
