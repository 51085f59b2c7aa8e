//! A worker as a coroutine (fiber mode): `fiber` makes, resumes and suspends it.

use corosensei::{Coroutine, Yielder};

use crate::scheduler::mode::LeaveKind;
use crate::stack::PooledStack;

/// The coroutine in which a worker runs its tasks.
pub(crate) struct WorkerCoroutine {
    pub(crate) coroutine: Coroutine<(), LeaveKind, (), PooledStack>,
    /// Suspends the worker; null before its first run.
    pub(crate) yielder: *const Yielder<(), LeaveKind>,
}

impl std::fmt::Debug for WorkerCoroutine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("WorkerCoroutine")
            .field("done", &self.coroutine.done())
            .finish_non_exhaustive()
    }
}
