//! What can fail, on which object, and what to do.

use std::any::Any;
use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};

use crate::stack::StackError;

/// Why a runtime or a task could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting that makes no sense.
    #[error("{setting} is {value}: {why}")]
    Setting {
        /// The setting, as the method of the builder is called.
        setting: &'static str,
        /// What was asked for.
        value: String,
        /// What would be possible.
        why: &'static str,
    },
    /// All numbers of wait types are taken.
    #[error("no room for the wait type {name}: there are {most} already")]
    TooManyWaitTypes {
        /// The name that was asked for.
        name: &'static str,
        /// How many there can be.
        most: usize,
    },
    /// A table of the shared page is full.
    #[error("no room for another {what}: this process has {most} already")]
    PageFull {
        /// Schedulers, threads or workers.
        what: &'static str,
        /// How many there can be.
        most: u32,
    },
    /// The shared page could not be made.
    #[error("making the page of counters: {doing}: {source}")]
    Page {
        /// The step that failed.
        doing: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A worker cannot have a stack.
    #[error("making a worker's stack: {0}; {advice}", advice = .0.advice())]
    Stack(#[from] StackError),
    /// A thread could not be started.
    #[error("starting the thread {name}: {source}")]
    Thread {
        /// Its name.
        name: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// A thread could not be bound to its CPU.
    #[error("binding scheduler {scheduler} to CPU {cpu}: {source}")]
    Bind {
        /// Number of the scheduler.
        scheduler: u32,
        /// The CPU.
        cpu: u32,
        /// What the kernel said.
        source: io::Error,
    },
    /// A scheduler could not get a file descriptor to sleep on.
    #[error("setting up the idle state of scheduler {scheduler}: {source}")]
    Idle {
        /// Number of the scheduler.
        scheduler: u32,
        /// What the kernel said.
        source: io::Error,
    },
    /// `io_uring` was asked for, and this machine refuses it.
    #[error(
        "setting up io_uring: {source} (`Io::Auto` takes epoll then; see sysctl kernel.io_uring_disabled)"
    )]
    IoUring {
        /// What the kernel said.
        source: io::Error,
    },
    /// The runtime is being shut down and takes no new tasks.
    #[error("the runtime is shutting down and takes no new tasks")]
    ShuttingDown,
    /// The calling thread is no worker of a runtime.
    #[error("this needs a runtime: call it inside of `Runtime::run` or a spawned task")]
    NoRuntime,
}

/// Why a task has no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// It panicked.
    #[error("the task panicked: {0}")]
    Panicked(Panic),
    /// It was cancelled, by its handle or because its runtime ended.
    #[error("the task was cancelled")]
    Cancelled,
    /// No worker could be made for it.
    #[error("no worker could be made for the task: {0}")]
    NoWorker(String),
    /// It is the calling task, which would wait for ever. It goes on without its handle.
    #[error("a task cannot wait for its own end")]
    Itself,
    /// It could not be queued.
    #[error("the task was not started: {0}")]
    NotStarted(Error),
}

/// What a task panicked with: what `std::thread::JoinHandle::join` would give, made fit to be an
/// error that threads share.
pub struct Panic {
    /// A payload may be sent and not shared; the lock is what makes that safe.
    payload: Mutex<Box<dyn Any + Send>>,
}

impl Panic {
    pub(crate) fn new(payload: Box<dyn Any + Send>) -> Self {
        Self {
            payload: Mutex::new(payload),
        }
    }

    /// The payload, to be unwound with again (`std::panic::resume_unwind`) or looked at.
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

    /// A panic's message is what a person looks for.
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
