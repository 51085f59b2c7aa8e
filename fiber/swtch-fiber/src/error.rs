//! The errors of this crate: what failed, on which object, and what to do.

mod stack;

use std::any::Any;
use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};

pub use stack::StackError;

/// The reason why a runtime, a task or a wait type could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting of the builder is out of its range.
    #[error("{setting} is {value}: {why}")]
    Setting {
        /// The setting, by the name of the builder's method.
        setting: &'static str,
        /// The value that was asked for.
        value: String,
        /// The reason why it is refused, or the values that are possible.
        why: &'static str,
    },
    /// All numbers of wait types are taken.
    #[error("no room for the wait type {name}: there are {most} already")]
    TooManyWaitTypes {
        /// The name that was asked for.
        name: &'static str,
        /// The largest number of them.
        most: usize,
    },
    /// A table of the shared page is full.
    #[error("no room for another {what}: this process has {most} already")]
    PageFull {
        /// Names what the table holds: schedulers, threads or workers.
        what: &'static str,
        /// The largest number of them.
        most: u32,
    },
    /// The shared page could not be made.
    #[error("making the page of counters: {doing}: {source}")]
    Page {
        /// The step that failed, for the message.
        doing: &'static str,
        /// The kernel's error at that step.
        source: io::Error,
    },
    /// A worker cannot have a stack.
    #[error("making a worker's stack: {0}; {advice}", advice = .0.advice())]
    Stack(#[from] StackError),
    /// A thread could not be started.
    #[error("starting the thread {name}: {source}")]
    Thread {
        /// The name that the thread would have got.
        name: String,
        /// The kernel's error when starting the thread.
        source: io::Error,
    },
    /// A thread could not be bound to its CPU.
    #[error("binding scheduler {scheduler} to CPU {cpu}: {source}")]
    Bind {
        /// Number of the scheduler within its runtime.
        scheduler: u32,
        /// Number of the CPU, as the kernel counts.
        cpu: u32,
        /// The kernel's error, of `sched_setaffinity(2)`.
        source: io::Error,
    },
    /// A scheduler could not get a file descriptor to sleep on.
    #[error("setting up the idle state of scheduler {scheduler}: {source}")]
    Idle {
        /// Number of the scheduler within its runtime.
        scheduler: u32,
        /// The kernel's error, of `eventfd(2)`.
        source: io::Error,
    },
    /// `io_uring` was asked for, and this machine refuses it.
    #[error(
        "setting up io_uring: {source} (`Io::Auto` takes epoll then; see sysctl kernel.io_uring_disabled)"
    )]
    IoUring {
        /// The kernel's answer to the setup.
        source: io::Error,
    },
    /// The runtime is being shut down and takes no new tasks.
    #[error("the runtime is shutting down and takes no new tasks")]
    ShuttingDown,
    /// The calling thread is no worker of a runtime.
    #[error("this needs a runtime: call it inside of `Runtime::run` or a spawned task")]
    NoRuntime,
}

/// The reason why a task has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The task panicked; the payload is inside.
    #[error("the task panicked: {0}")]
    Panicked(Panic),
    /// It was cancelled, by its handle or because its runtime ended.
    #[error("the task was cancelled")]
    Cancelled,
    /// No worker could be made for it.
    #[error("no worker could be made for the task: {0}")]
    NoWorker(String),
    /// The handle belongs to the calling task, which would wait for ever. The task goes on without
    /// the handle.
    #[error("a task cannot wait for its own end")]
    Itself,
    /// The task could not be queued.
    #[error("the task was not started: {0}")]
    NotStarted(Error),
}

/// The panic of a task: the payload that `std::thread::JoinHandle::join` would give, wrapped so that threads can share
/// the error.
pub struct Panic {
    /// A payload is `Send` but need not be `Sync`; the lock makes sharing it safe.
    payload: Mutex<Box<dyn Any + Send>>,
}

impl Panic {
    pub(crate) fn new(payload: Box<dyn Any + Send>) -> Self {
        Self {
            payload: Mutex::new(payload),
        }
    }

    /// The payload, for `std::panic::resume_unwind` or for inspection.
    #[must_use]
    pub fn into_payload(self) -> Box<dyn Any + Send> {
        self.payload
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Panic {
    /// The message of the panic, where it has one.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let payload = self.payload.lock().unwrap_or_else(PoisonError::into_inner);
        let text = payload
            .downcast_ref::<&'static str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        formatter.write_str(text.unwrap_or("(payload is no text)"))
    }
}

impl fmt::Debug for Panic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Panic({:?})", self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs hand errors on with `?` into boxes and crates that want both.
    #[test]
    fn errors_may_be_sent_and_shared() {
        fn both<Value: Send + Sync + 'static>() {}
        both::<Error>();
        both::<JoinError>();
    }

    /// The message of the panic is what a person looks for.
    #[test]
    fn a_panic_says_its_message() {
        let error = JoinError::Panicked(Panic::new(Box::new(String::from("no such page"))));
        assert_eq!(error.to_string(), "the task panicked: no such page");
        let JoinError::Panicked(panic) = error else {
            unreachable!("made above");
        };
        assert!(panic.into_payload().is::<String>());
    }
}
