//! A worker's control block: what signallers need to wake it, and its scheduler's private data.
//!
//! Blocks are never freed, only reused. A signaller may therefore keep a reference for any time:
//! the *ticket* in the wait word tells it whether the wait that it meant has ended. (The kernel
//! does the same where readers take no lock, `SLAB_TYPESAFE_BY_RCU`.)

mod coroutine;
mod wait_word;

use std::cell::{Cell, UnsafeCell};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use swtch_observe::layout::RUN_BITS;

use super::Scheduler;
use super::deadline::Limit;
use super::task::BoundTask;
use crate::atomics::lock;
use crate::page::WorkerSlot;
use crate::request::Request;
use crate::wait_type::WaitType;
pub(crate) use coroutine::WorkerCoroutine;
pub(crate) use wait_word::Phase;
use wait_word::WaitWord;

/// The control block of a worker, or of a thread that is not a worker and waits.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct WorkerCell {
    /// State of its wait, see [`WaitWord`].
    pub(crate) wait: WaitWord,
    /// Links the workers in a scheduler's inbox.
    pub(crate) inbox_next: AtomicPtr<Self>,
    /// The scheduler it belongs to; null for a thread that is not a worker.
    scheduler: AtomicPtr<Scheduler>,
    /// The moment at which the wait was decided, in ticks.
    pub(crate) signalled_ticks: AtomicU64,
    /// The task that decided the wait; 0 for none.
    pub(crate) signaller_task: AtomicU64,
    /// The worker of that task, plus one; 0 for none.
    pub(crate) signaller_worker: AtomicU32,
    /// The futex that its thread sleeps on in thread mode.
    pub(crate) baton: AtomicU32,
    /// The futex of a thread that is not a worker. It is a word of its own and not the baton,
    /// because a signaller may wake late, when the block has another owner. That owner then only
    /// checks its wait once more.
    pub(crate) bell: AtomicU32,
    /// For the holder of the scheduler, and for the worker itself while it runs.
    own: UnsafeCell<SchedulerData>,
}

// SAFETY: `own` is reached only by the holder of the scheduler (see `WorkerCell::own`); all else is
// atomic.
unsafe impl Sync for WorkerCell {}
// SAFETY: as above; what `own` holds of a thread (its coroutine) never leaves that thread, because
// a worker never changes its OS thread.
unsafe impl Send for WorkerCell {}

/// The scheduler's private data of a worker.
#[derive(Debug)]
pub(crate) struct SchedulerData {
    /// Its record in the page; `None` for a thread that is not a worker.
    pub(crate) slot: Option<WorkerSlot>,
    /// The coroutine, in fiber mode.
    pub(crate) coroutine: Option<WorkerCoroutine>,
    /// The task that was bound and has not started yet.
    pub(crate) next_task: Option<BoundTask>,
    /// The value of the thread's word while it runs: `task << RUN_BITS | run`.
    pub(crate) word: u64,
    /// The moment at which it was last switched in, ticks.
    pub(crate) in_ticks: u64,
    /// The moment at which it was last switched out, ticks; 0 before the first run of a task.
    pub(crate) out_ticks: u64,
    /// The moment at which it entered its present state, ticks.
    pub(crate) since_ticks: u64,
    /// Present or latest wait type.
    pub(crate) wait_type: WaitType,
    /// The wait that came before the present run.
    pub(crate) before: PreviousWait,
    /// The earliest of the timeouts around its waits.
    pub(crate) limit: Option<Limit>,
    /// Points to the flag that asks its task to end; null without a task.
    pub(crate) cancel: *const AtomicBool,
    /// The request that its task serves.
    pub(crate) request: Option<Request>,
}

/// The wait that came before a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PreviousWait {
    pub(crate) wait_type: WaitType,
    pub(crate) off_ticks: u64,
    pub(crate) queued_ticks: u64,
    pub(crate) waker_task: u64,
}

/// Blocks without an owner, which can be reused.
static UNUSED: Mutex<Vec<&'static WorkerCell>> = Mutex::new(Vec::new());

thread_local! {
    /// The worker that runs on this thread; null in scheduler code, in preemptive sections, and on
    /// other threads. Never kept across a switch: a worker stays on its thread, but the thread then
    /// runs other workers.
    static CURRENT: Cell<*const WorkerCell> = const { Cell::new(ptr::null()) };
}

/// The worker that runs on the calling thread and holds its scheduler.
#[inline(always)]
pub(crate) fn current() -> Option<&'static WorkerCell> {
    // SAFETY: set only by `set_current`, from a reference that lives for ever.
    unsafe { CURRENT.get().as_ref() }
}

/// The answer of [`task_here`] on a thread that is not a worker.
pub(crate) const OUTSIDE: u64 = u64::MAX;

/// The id of the task that runs here; [`OUTSIDE`] on a thread that is not a worker.
#[inline]
pub(crate) fn task_here() -> u64 {
    // SAFETY: the calling worker runs.
    current().map_or(OUTSIDE, |cell| unsafe { cell.own() }.word >> RUN_BITS)
}

/// Sets which worker runs on this thread from now on.
#[inline(always)]
pub(crate) fn set_current(cell: Option<&'static WorkerCell>) {
    CURRENT.set(cell.map_or(ptr::null(), ptr::from_ref));
}

impl WorkerCell {
    fn new() -> Self {
        Self {
            wait: WaitWord::new(),
            inbox_next: AtomicPtr::new(ptr::null_mut()),
            scheduler: AtomicPtr::new(ptr::null_mut()),
            signalled_ticks: AtomicU64::new(0),
            signaller_task: AtomicU64::new(0),
            signaller_worker: AtomicU32::new(0),
            baton: AtomicU32::new(0),
            bell: AtomicU32::new(0),
            own: UnsafeCell::new(SchedulerData::default()),
        }
    }

    /// Takes a block for a worker of `scheduler`, or for a thread that is not a worker.
    pub(crate) fn take(scheduler: Option<&'static Scheduler>) -> &'static Self {
        let cell = Self::unused();
        let scheduler = scheduler.map_or(ptr::null_mut(), |known| ptr::from_ref(known).cast_mut());
        cell.scheduler.store(scheduler, Ordering::Release);
        cell.baton.store(0, Ordering::Relaxed);
        cell
    }

    /// Takes an unused block. They are allocated 24 at a time: one by one, each would pay for its
    /// alignment.
    fn unused() -> &'static Self {
        let mut unused = lock(&UNUSED);
        if unused.is_empty() {
            let more: &'static [Self; 24] =
                Box::leak(Box::new(std::array::from_fn(|_| Self::new())));
            unused.extend(more);
        }
        unused.pop().expect("some were added")
    }

    /// Lets the block be used again. Its ticket keeps counting, so that late signallers fail.
    ///
    /// # Safety
    /// The caller holds the block's scheduler or is its thread, and no code runs on it.
    pub(crate) unsafe fn recycle(&'static self) {
        // SAFETY: by the caller's promise no other code accesses it.
        unsafe { *self.own.get() = SchedulerData::default() };
        lock(&UNUSED).push(self);
    }

    /// The private data of the worker, for a short access.
    ///
    /// # Safety
    /// The caller holds the worker's scheduler, or is the worker and runs. No reference obtained
    /// before may be used afterwards.
    #[expect(
        clippy::mut_from_ref,
        reason = "the holder of the scheduler is the only one"
    )]
    #[inline(always)]
    pub(crate) unsafe fn own(&self) -> &mut SchedulerData {
        // SAFETY: by the caller's promise no other code accesses it.
        unsafe { &mut *self.own.get() }
    }

    /// The scheduler it belongs to; `None` for a thread that is not a worker.
    #[inline(always)]
    pub(crate) fn scheduler(&self) -> Option<&'static Scheduler> {
        // SAFETY: schedulers are never freed.
        unsafe { self.scheduler.load(Ordering::Acquire).as_ref() }
    }

    /// Its record in the page, for the holder of the scheduler.
    ///
    /// # Safety
    /// As for [`WorkerCell::own`].
    #[inline(always)]
    pub(crate) unsafe fn slot(&self) -> &WorkerSlot {
        // SAFETY: by the caller's promise.
        let own = unsafe { self.own() };
        own.slot
            .as_ref()
            .expect("a worker has a record until its block is recycled")
    }
}

impl Default for SchedulerData {
    fn default() -> Self {
        Self {
            slot: None,
            coroutine: None,
            next_task: None,
            word: 0,
            in_ticks: 0,
            out_ticks: 0,
            since_ticks: 0,
            wait_type: WaitType::NONE,
            before: PreviousWait::default(),
            limit: None,
            cancel: ptr::null(),
            request: None,
        }
    }
}
