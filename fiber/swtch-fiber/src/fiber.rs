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
use crate::request::ThreadVariable;
use crate::scheduler::worker::{self, WorkerCell, WorkerCoroutine};
use crate::scheduler::{Core, LeaveKind, Scheduler, addresses};
use crate::stack::StackHandle;

/// Gives a new worker its stack and its coroutine.
pub(crate) fn attach_stack(
    core: &mut Core,
    _scheduler: &'static Scheduler,
    cell: &'static WorkerCell,
) -> Result<(), Error> {
    // SAFETY: the caller holds the scheduler; the worker does not run.
    let index = unsafe { cell.slot() }.index;
    let pool = core.group.settings.stacks;
    let stack = pool.expect("a runtime in fiber mode has stacks").take()?;
    stack.set_owner(index);
    let handle = stack.handle();
    addresses::note_stack(index, stack.limit().get()..stack.base().get());
    let coroutine = Coroutine::with_stack(stack, move |yielder, ()| work(cell, handle, yielder));
    // SAFETY: as above.
    unsafe { cell.own() }.coroutine = Some(WorkerCoroutine {
        coroutine,
        yielder: std::ptr::null(),
    });
    Ok(())
}

/// The body of a worker's coroutine: runs tasks until it is resumed without one.
fn work(cell: &'static WorkerCell, stack: StackHandle, yielder: &Yielder<(), LeaveKind>) {
    // SAFETY: the calling worker runs.
    let own = unsafe { cell.own() };
    let own_coroutine = own.coroutine.as_mut();
    own_coroutine.expect("made by `attach_stack`").yielder = yielder;
    // SAFETY: as above, each time it is resumed.
    while let Some(task) = unsafe { cell.own() }.next_task.take() {
        task.run();
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
    let coroutine = unsafe { cell.own() }.coroutine.as_ref();
    let yielder = coroutine
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
    let published = ThreadVariable::of_this_thread();
    let mut now = scheduler.now();
    loop {
        // SAFETY: as above.
        let core = unsafe { scheduler.core() };
        let Some(cell) = core.next() else {
            thread
                .record
                .word
                .store(0, std::sync::atomic::Ordering::Relaxed);
            published.publish_request(None);
            if !scheduler.idle() {
                break;
            }
            // SAFETY: as above.
            unsafe { scheduler.core() }.slept();
            now = scheduler.now();
            continue;
        };
        scheduler.enters(cell, now);
        now = run_until_it_leaves(scheduler, cell, published);
    }
    // The marker belongs to this thread, and must not outlive it.
    // SAFETY: as above.
    unsafe { scheduler.core() }.marker = None;
    retire_all(scheduler);
}

/// Resumes a worker that has entered, and does the accounting when it leaves. Returns the time at
/// which it left.
#[inline(always)]
fn run_until_it_leaves(
    scheduler: &'static Scheduler,
    cell: &'static WorkerCell,
    published: ThreadVariable,
) -> u64 {
    loop {
        // SAFETY: the holder of the scheduler; the worker does not run.
        published.publish_request(unsafe { cell.own() }.request.as_ref());
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
    let coroutine: *mut WorkerCoroutine = unsafe { cell.own() }
        .coroutine
        .as_mut()
        .expect("made by `attach_stack`");
    // SAFETY: as above; the coroutine does not move while the worker lives.
    match unsafe { &mut (*coroutine).coroutine }.resume(()) {
        CoroutineResult::Yield(leave) => leave,
        CoroutineResult::Return(()) => unreachable!("a worker returns only when it is retired"),
    }
}

/// Lets all coroutines return, and recycles their control blocks.
fn retire_all(scheduler: &'static Scheduler) {
    // SAFETY: the calling thread holds the scheduler; no task is left.
    let workers = std::mem::take(&mut unsafe { scheduler.core() }.workers);
    for cell in workers {
        // SAFETY: the worker is idle.
        let coroutine = unsafe { cell.own() }.coroutine.as_mut();
        let coroutine: *mut WorkerCoroutine = coroutine.expect("made by `attach_stack`");
        // SAFETY: as in `resume`.
        let finished = unsafe { &mut (*coroutine).coroutine }.resume(());
        debug_assert!(
            matches!(finished, CoroutineResult::Return(())),
            "no task was bound"
        );
        // SAFETY: it has returned, and the scheduler has ended.
        unsafe { cell.recycle() };
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
