//! Models of the protocols between threads: `loom` executes every order of their steps, up to a
//! limit on how often a thread is interrupted, and every value that a weakly ordered load may
//! return.
//!
//! The files of the crate are compiled here as they are. Only their base is replaced: the atomics
//! and locks of std by those of `loom`, and `park`, with waiters and deadlines, by a version without
//! a scheduler. A wait in the
//! model is that of a thread that is not a worker: it may continue as soon as it is decided, which
//! is the strictest case. A deadline may be at any moment: the waiter tries to give up each time it
//! runs.
//!
//! `loom` does not model one total order of sequentially consistent loads and stores, only of
//! fences, so the protocols here are written with fences.
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
    #[path = "../../src/sync/wait_queue.rs"]
    pub(crate) mod wait_queue;
}

#[path = "."]
mod scheduler {
    #[path = "../../src/scheduler/asleep.rs"]
    pub(crate) mod asleep;
    // Its own tests are run by `cargo test -p swtch-fiber`.
    #[path = "../../src/scheduler/inbox.rs"]
    pub(crate) mod inbox;

    #[path = "."]
    pub(crate) mod worker {
        //! The part of a control block that other threads see.

        #[path = "../../src/scheduler/worker/wait_word.rs"]
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
            /// Replaces the futex of the crate.
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
}

mod wait_type {
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct WaitType;

    impl WaitType {
        pub(crate) const MUTEX: Self = Self;
        pub(crate) const EVENT: Self = Self;
    }
}

/// Runs `model` in every order with at most `interruptions` of threads that could continue.
fn check(interruptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(model);
}
