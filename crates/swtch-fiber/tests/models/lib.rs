//! Models of the protocols between threads: `loom` plays every order of their steps, up to a bound on
//! how often a thread is interrupted, and every value that a weakly ordered load may see.
//!
//! The files of the crate are compiled here as they are; only what they rest on is exchanged: `loom`'s
//! atomics and locks for those of std, and for `park` one that has no scheduler under it. A wait in
//! the model is that of a thread outside: it may go on as soon as it is decided, which is the strictest
//! case. A deadline is a moment that may be any: the waiter tries to give up each time it is let run.
//!
//! `loom` does not model one total order of sequentially consistent loads and stores, only of fences:
//! so the protocols here are written with fences.
#![cfg(test)]
#![allow(
    dead_code,
    reason = "the files are compiled whole, the models use what is shared"
)]

mod atomics;
mod locks;
mod park;
mod waits;

#[path = "."]
mod sync {
    #[path = "../../src/sync/line.rs"]
    pub(crate) mod line;
    #[path = "../../src/sync/permits.rs"]
    pub(crate) mod permits;
    #[path = "../../src/sync/raw_mutex.rs"]
    pub(crate) mod raw_mutex;
}

#[path = "."]
mod scheduler {
    #[path = "../../src/scheduler/asleep.rs"]
    pub(crate) mod asleep;
    // Its own tests are played by `cargo test -p swtch-fiber`.
    #[path = "../../src/scheduler/inbox.rs"]
    pub(crate) mod inbox;
}

#[path = "../../src/wait_queue.rs"]
mod wait_queue;

#[path = "."]
mod worker {
    //! A control block as far as other threads see it.

    #[path = "../../src/worker/wait_word.rs"]
    mod wait_word;

    use loom::sync::Notify;
    use loom::sync::atomic::AtomicPtr;
    pub(crate) use wait_word::Phase;
    use wait_word::WaitWord;

    pub(crate) const OUTSIDE: u64 = u64::MAX;

    pub(crate) fn task_here() -> u64 {
        OUTSIDE
    }

    pub(crate) struct WorkerCell {
        pub(crate) wait: WaitWord,
        pub(crate) inbox_next: AtomicPtr<Self>,
        /// In place of the futex.
        pub(crate) bell: Notify,
    }

    impl std::fmt::Debug for WorkerCell {
        fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            formatter.write_str("WorkerCell")
        }
    }

    impl WorkerCell {
        /// A block that is never freed, as in the crate.
        pub(crate) fn take(_outside: Option<()>) -> &'static Self {
            Box::leak(Box::new(Self {
                wait: WaitWord::new(),
                inbox_next: AtomicPtr::new(std::ptr::null_mut()),
                bell: Notify::new(),
            }))
        }
    }
}

mod wait_type {
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct WaitType;

    impl WaitType {
        pub(crate) const MUTEX: Self = Self;
        pub(crate) const EVENT: Self = Self;
    }
}

/// Plays `model` in every order with at most `interruptions` of a thread that could go on.
fn play(interruptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(model);
}
