//! Channels: messages from any number of senders to any number of receivers, each to one of them.
//!
//! A channel with a capacity makes senders wait while it is full; with capacity 0 each sender waits
//! until a receiver takes its message. Senders and receivers are served strictly in order. When the
//! last sender is gone, receivers get the remaining messages, then an error; when the last receiver
//! is gone, senders get their messages back. The errors are those of `std::sync::mpsc`.
//!
//! ```
//! use swtch_fiber::{Runtime, spawn, sync::channel};
//!
//! let runtime = Runtime::builder().schedulers(1).build()?;
//! let sum = runtime.run(|| {
//!     let (sender, receiver) = channel::bounded(2);
//!     for number in 0..3 {
//!         let sender = sender.clone();
//!         spawn(move || sender.send(number)).expect("inside of a runtime");
//!     }
//!     drop(sender);
//!     receiver.iter().sum::<i32>()
//! })?;
//! assert_eq!(sum, 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod core;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};
use std::time::Duration;

use crate::park::Deadline;
use core::{ChannelCore, NotReceived, NotSent};

/// A channel that holds `capacity` messages. With 0 it holds none, so a sender waits until a
/// receiver takes its message.
#[must_use]
pub fn bounded<Message>(capacity: usize) -> (Sender<Message>, Receiver<Message>) {
    channel(capacity)
}

/// A channel without a limit on messages: sending never waits.
#[must_use]
pub fn unbounded<Message>() -> (Sender<Message>, Receiver<Message>) {
    channel(usize::MAX)
}

fn channel<Message>(capacity: usize) -> (Sender<Message>, Receiver<Message>) {
    let shared = Arc::new(SharedChannel {
        core: ChannelCore::new(capacity),
        senders: AtomicUsize::new(1),
        receivers: AtomicUsize::new(1),
    });
    (
        Sender {
            shared: shared.clone(),
        },
        Receiver { shared },
    )
}

struct SharedChannel<Message> {
    core: ChannelCore<Message>,
    senders: AtomicUsize,
    receivers: AtomicUsize,
}

/// The sending end of a channel. Cloning it makes another sender.
pub struct Sender<Message> {
    shared: Arc<SharedChannel<Message>>,
}

/// The receiving end of a channel. Cloning it makes another receiver: each message goes to one of
/// them.
pub struct Receiver<Message> {
    shared: Arc<SharedChannel<Message>>,
}

/// The reason why a message was not sent in time. The error contains the message.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendTimeoutError<Message> {
    /// The channel stayed full for the whole time span.
    #[error("the channel stayed full")]
    Timeout(Message),
    /// The last receiver has been dropped.
    #[error("the channel has no receiver")]
    Disconnected(Message),
}

impl<Message> fmt::Debug for SendTimeoutError<Message> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout(_) => formatter.write_str("Timeout(..)"),
            Self::Disconnected(_) => formatter.write_str("Disconnected(..)"),
        }
    }
}

impl<Message> Sender<Message> {
    /// Sends `message`; waits while the channel is full.
    ///
    /// # Errors
    /// Returns the message when the last receiver is gone.
    pub fn send(&self, message: Message) -> Result<(), SendError<Message>> {
        self.shared
            .core
            .send(message, None)
            .map_err(|(_, message)| SendError(message))
    }

    /// As [`send`](Self::send), at most for `span`.
    ///
    /// # Errors
    /// Returns the message when the channel stayed full, or the last receiver is gone.
    pub fn send_timeout(
        &self,
        message: Message,
        span: Duration,
    ) -> Result<(), SendTimeoutError<Message>> {
        let deadline = Some(Deadline::after(span));
        let sent = self.shared.core.send(message, deadline);
        sent.map_err(|(why, message)| match why {
            NotSent::Full => SendTimeoutError::Timeout(message),
            NotSent::Disconnected => SendTimeoutError::Disconnected(message),
        })
    }

    /// Sends `message` if that is possible without waiting: there is room, or a receiver waits.
    ///
    /// # Errors
    /// Returns the message when the channel is full, or the last receiver is gone.
    pub fn try_send(&self, message: Message) -> Result<(), TrySendError<Message>> {
        let sent = self.shared.core.try_send(message);
        sent.map_err(|(why, message)| match why {
            NotSent::Full => TrySendError::Full(message),
            NotSent::Disconnected => TrySendError::Disconnected(message),
        })
    }

    /// Number of messages in the channel at this moment.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.core.len()
    }

    /// Returns true if the channel has no message at this moment.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<Message> Receiver<Message> {
    /// Takes the next message, and waits for one if there is none.
    ///
    /// # Errors
    /// When the channel is empty and the last sender is gone.
    pub fn recv(&self) -> Result<Message, RecvError> {
        self.shared.core.receive(None).map_err(|_| RecvError)
    }

    /// As [`recv`](Self::recv), at most for `span`.
    ///
    /// # Errors
    /// When no message came in time, or the channel is empty and the last sender is gone.
    pub fn recv_timeout(&self, span: Duration) -> Result<Message, RecvTimeoutError> {
        let received = self.shared.core.receive(Some(Deadline::after(span)));
        received.map_err(|why| match why {
            NotReceived::Empty => RecvTimeoutError::Timeout,
            NotReceived::Disconnected => RecvTimeoutError::Disconnected,
        })
    }

    /// Takes the next message, if there is one or a sender waits.
    ///
    /// # Errors
    /// When there is none; the variant tells whether one may still come.
    pub fn try_recv(&self) -> Result<Message, TryRecvError> {
        self.shared.core.try_receive().map_err(|why| match why {
            NotReceived::Empty => TryRecvError::Empty,
            NotReceived::Disconnected => TryRecvError::Disconnected,
        })
    }

    /// Takes all messages until the last sender is gone, and waits for each.
    pub fn iter(&self) -> impl Iterator<Item = Message> + '_ {
        std::iter::from_fn(|| self.recv().ok())
    }

    /// Number of messages in the channel at this moment.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shared.core.len()
    }

    /// Returns true if the channel has no message at this moment.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<Message> Clone for Sender<Message> {
    fn clone(&self) -> Self {
        self.shared.senders.fetch_add(1, Ordering::Relaxed);
        Self {
            shared: self.shared.clone(),
        }
    }
}

impl<Message> Clone for Receiver<Message> {
    fn clone(&self) -> Self {
        self.shared.receivers.fetch_add(1, Ordering::Relaxed);
        Self {
            shared: self.shared.clone(),
        }
    }
}

impl<Message> Drop for Sender<Message> {
    fn drop(&mut self) {
        if self.shared.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.core.senders_gone();
        }
    }
}

impl<Message> Drop for Receiver<Message> {
    fn drop(&mut self) {
        if self.shared.receivers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.core.receivers_gone();
        }
    }
}

impl<Message> fmt::Debug for Sender<Message> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<Message> fmt::Debug for Receiver<Message> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Receiver").finish_non_exhaustive()
    }
}
