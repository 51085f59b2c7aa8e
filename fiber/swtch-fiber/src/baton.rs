//! Thread mode: workers are OS threads and pass a baton; the thread that has it holds the
//! scheduler.
//!
//! The model is SQL Server's default. There is no dispatcher thread: the worker that leaves does
//! the accounting, chooses the next worker, wakes it by futex, and sleeps on its own futex. When no
//! worker is runnable, the one that left last waits in the kernel and keeps the baton. A worker
//! that goes preemptive gives the baton to the next runnable worker, or else to the *host*, the
//! thread that started the scheduler.

use std::cell::Cell;
use std::sync::atomic::Ordering;
use std::thread;

use swtch_observe::layout::{ThreadRecord, thread_kind};

use crate::error::Error;
use crate::futex;
use crate::interrupted;
use crate::page::{self, ThreadSlot};
use crate::scheduler::worker::{self, WorkerCell};
use crate::scheduler::{Core, LeaveKind, Scheduler, addresses};
use crate::stack::overflow;

thread_local! {
    /// The calling thread's index and record, once it works for a scheduler.
    static RECORD: Cell<Option<(u32, &'static ThreadRecord)>> = const { Cell::new(None) };
}

/// Starts the thread of a new worker. It sleeps until it gets the baton.
pub(crate) fn start_worker(
    core: &mut Core,
    scheduler: &'static Scheduler,
    cell: &'static WorkerCell,
) -> Result<(), Error> {
    let settings = &core.group.settings;
    let scheduler_index = core.accounts.index();
    // SAFETY: the caller holds the scheduler; the worker does not run.
    let number = unsafe { cell.slot() }.index;
    // The thread has its own stack. Clear the entry, because a coroutine may have had this index
    // before.
    addresses::note_stack(number, 0..0);
    let name = format!("{}-w{number}", settings.name);
    // The slot is reserved here, so that nothing can fail on the new thread. A caller that waited
    // for an answer of the new thread would keep the baton until the OS schedules that thread (29
    // ms were seen on a full machine).
    let slot = ThreadSlot::reserve(page::page()?)?;
    let builder = thread::Builder::new()
        .name(name.clone())
        .stack_size(settings.thread_stack_size);
    let thread = builder
        .spawn(move || {
            slot.register(thread_kind::WORKER, Some(scheduler_index));
            // Without the guard an overflow is reported by Rust's library, with the name of the
            // thread.
            let _guard = overflow::guard_one_of_many().ok();
            RECORD.set(Some((slot.index, slot.record)));
            work(scheduler, cell);
        })
        .map_err(|source| Error::Thread { name, source })?;
    core.threads.push(thread);
    Ok(())
}

/// The body of a worker's thread: runs tasks until it gets the baton without one.
fn work(scheduler: &'static Scheduler, cell: &'static WorkerCell) {
    wait_for_baton(cell);
    // SAFETY: the calling thread got the baton; or the scheduler ends and has no holder.
    while let Some(task) = unsafe { cell.own() }.next_task.take() {
        enter(scheduler, cell);
        task.run();
        leave(scheduler, cell, LeaveKind::Done);
    }
}

/// Marks the worker as running. The calling thread has the baton.
fn enter(scheduler: &'static Scheduler, cell: &'static WorkerCell) {
    take_over(scheduler);
    scheduler.enters(cell, scheduler.now());
    interrupted::begin_on_this_thread();
    worker::set_current(Some(cell));
}

/// Records that the calling thread holds the scheduler now.
fn take_over(scheduler: &'static Scheduler) {
    if let Some((index, record)) = RECORD.get() {
        // SAFETY: the calling thread has the baton.
        unsafe { scheduler.core() }.accounts.held_by(index, record);
    }
}

/// The calling worker leaves the scheduler, and returns when it is chosen again. Two cases differ:
/// [`LeaveKind::Preemptive`] returns at once, without the baton, and [`LeaveKind::Done`] also
/// returns when the worker is retired.
pub(crate) fn leave(scheduler: &'static Scheduler, cell: &'static WorkerCell, leave: LeaveKind) {
    let now = scheduler.now();
    worker::set_current(None);
    if !scheduler.leaves(cell, leave, now) {
        // A yield that finds no other worker runnable is no switch: the worker goes on.
        worker::set_current(Some(cell));
        return;
    }
    if leave == LeaveKind::Preemptive {
        hand_to_next_or_host(scheduler, now);
        return;
    }
    let is_chosen = pass_on_and_wait(scheduler, cell, now);
    if leave != LeaveKind::Done {
        debug_assert!(is_chosen, "only workers without a task are retired");
        enter(scheduler, cell);
    }
}

/// Waits for the baton. The calling worker went preemptive and has signalled itself.
pub(crate) fn come_back(scheduler: &'static Scheduler, cell: &'static WorkerCell) {
    wait_for_baton(cell);
    enter(scheduler, cell);
}

/// Chooses the next worker, hands the baton to it, and waits until it comes back to `cell`; at once
/// if `cell` itself is next. False when the scheduler ends instead.
fn pass_on_and_wait(
    scheduler: &'static Scheduler,
    cell: &'static WorkerCell,
    left_at: u64,
) -> bool {
    // SAFETY: the calling thread has the baton, until it hands it on.
    while unsafe { scheduler.core() }.nobody_runnable() {
        if !scheduler.idle() {
            // SAFETY: as above.
            let host = unsafe { scheduler.core() }.host;
            hand_to(host.expect("there from the beginning to the end"));
            wait_for_baton(cell);
            return false;
        }
    }
    // SAFETY: as above.
    let next = unsafe { scheduler.core() }
        .next()
        .expect("somebody is runnable");
    if !std::ptr::eq(next, cell) {
        // SAFETY: as above.
        unsafe { scheduler.core() }.left_at = left_at;
        hand_to(next);
        wait_for_baton(cell);
    }
    true
}

/// Gives the baton to the next worker, or to the host if no worker is runnable.
fn hand_to_next_or_host(scheduler: &'static Scheduler, left_at: u64) {
    // SAFETY: the calling thread has the baton.
    let core = unsafe { scheduler.core() };
    core.left_at = left_at;
    let next = core.next().or(core.host);
    hand_to(next.expect("the host is there from the beginning to the end"));
}

fn hand_to(cell: &'static WorkerCell) {
    cell.baton.store(1, Ordering::Release);
    futex::wake(&cell.baton);
}

fn wait_for_baton(cell: &'static WorkerCell) {
    while cell.baton.swap(0, Ordering::Acquire) == 0 {
        futex::wait(&cell.baton, 0, None);
    }
}

/// The host's loop: holds the scheduler while no worker does, and ends it.
pub(crate) fn run(scheduler: &'static Scheduler, thread: &ThreadSlot) {
    let host = WorkerCell::take(None);
    // SAFETY: the calling thread holds the scheduler from the beginning.
    unsafe { scheduler.core() }.host = Some(host);
    RECORD.set(Some((thread.index, thread.record)));
    take_over(scheduler);
    loop {
        // SAFETY: the calling thread has the baton.
        if let Some(next) = unsafe { scheduler.core() }.next() {
            // SAFETY: as above.
            unsafe { scheduler.core() }.left_at = scheduler.now();
            hand_to(next);
            wait_for_baton(host);
            take_over(scheduler);
        } else if !scheduler.idle() {
            break;
        }
    }
    retire_all(scheduler);
    // SAFETY: the scheduler has ended.
    unsafe { host.recycle() };
}

/// Ends the threads of all workers. None of them has a task.
fn retire_all(scheduler: &'static Scheduler) {
    // SAFETY: the host has the baton, and no other thread gets it any more.
    let core = unsafe { scheduler.core() };
    let (workers, threads) = (
        std::mem::take(&mut core.workers),
        std::mem::take(&mut core.threads),
    );
    for cell in &workers {
        hand_to(cell);
    }
    for thread in threads {
        // A worker's thread catches the panics of its tasks.
        let ended = thread.join();
        debug_assert!(ended.is_ok(), "a worker's thread does not panic");
    }
    for cell in workers {
        // SAFETY: its thread has ended.
        unsafe { cell.recycle() };
    }
}
