//! The ways in which workers run, and in which they leave their scheduler.

/// The way in which a runtime runs its workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// As coroutines on the scheduler's thread: a switch costs nanoseconds.
    #[default]
    Fiber,
    /// As OS threads that pass a baton: a switch costs a futex hand-off. Code that depends on its
    /// thread (thread-local state, foreign libraries) works as usual.
    Thread,
}

/// The way in which a worker leaves the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaveKind {
    /// It goes to the tail of the runnable queue.
    Yield,
    /// It waits for what its control block says.
    Suspend,
    /// It runs on outside of the scheduler.
    Preemptive,
    /// The worker's task has ended.
    Done,
}
