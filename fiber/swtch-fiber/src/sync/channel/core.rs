//! The messages in a channel, and the waiters at its two ends.
//!
//! A sender that waits leaves its message in the line. The receiver that takes the message out
//! claims the sender; a sender whose wait ends otherwise takes it back. A receiver that waits is
//! given a message together with the claim, and finds the message under its ticket. So a message is
//! always in exactly one place, and a wait that ended by deadline or cancellation has lost none.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::park::{self, Deadline, WaitOutcome, Waiter};
use crate::sync::line::{WaiterLine, wait_in_line};
use crate::wait_type::WaitType;

/// The state of a channel, as described above.
pub(super) struct ChannelCore<Message> {
    capacity: usize,
    state: Mutex<ChannelContents<Message>>,
}

struct ChannelContents<Message> {
    messages: VecDeque<Message>,
    /// Senders that wait for room, with their messages.
    senders: WaiterLine<Message>,
    /// Receivers that wait for a message.
    receivers: WaiterLine<()>,
    /// Messages given to receivers that have not run since.
    given: Vec<(Waiter, Message)>,
    senders_gone: bool,
    receivers_gone: bool,
}

pub(super) enum NotSent {
    Full,
    Disconnected,
}

pub(super) enum NotReceived {
    Empty,
    Disconnected,
}

impl<Message> ChannelCore<Message> {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            state: Mutex::new(ChannelContents {
                messages: VecDeque::new(),
                senders: WaiterLine::new(),
                receivers: WaiterLine::new(),
                given: Vec::new(),
                senders_gone: false,
                receivers_gone: false,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, ChannelContents<Message>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> usize {
        self.lock().messages.len()
    }

    pub(super) fn try_send(&self, message: Message) -> Result<(), (NotSent, Message)> {
        self.offer(self.lock(), message)
            .map_err(|(why, message, _)| (why, message))
    }

    /// Gives the message to a receiver, or puts it into the channel; if neither is possible,
    /// returns the message with the lock.
    fn offer<'core>(
        &self,
        mut state: MutexGuard<'core, ChannelContents<Message>>,
        message: Message,
    ) -> Result<
        (),
        (
            NotSent,
            Message,
            MutexGuard<'core, ChannelContents<Message>>,
        ),
    > {
        if state.receivers_gone {
            return Err((NotSent::Disconnected, message, state));
        }
        if let Some((receiver, (), claim)) = state.receivers.claim_first() {
            state.given.push((receiver, message));
            drop(state);
            claim.wake();
            return Ok(());
        }
        if state.messages.len() < self.capacity {
            state.messages.push_back(message);
            return Ok(());
        }
        Err((NotSent::Full, message, state))
    }

    pub(super) fn send(
        &self,
        message: Message,
        deadline: Option<Deadline>,
    ) -> Result<(), (NotSent, Message)> {
        let sender = match self.offer(self.lock(), message) {
            Ok(()) => return Ok(()),
            Err((NotSent::Disconnected, message, _)) => {
                return Err((NotSent::Disconnected, message));
            }
            Err((NotSent::Full, message, mut state)) => {
                let resource = std::ptr::from_ref(self).addr();
                let sender = park::prepare(WaitType::CHANNEL_SEND, resource);
                state.senders.push_back(sender, message);
                sender
            }
        };
        let mut back = None;
        let wake = wait_in_line(sender, deadline, || {
            back = self.lock().senders.remove(sender)
        });
        let why = match wake {
            WaitOutcome::TimedOut => NotSent::Full,
            WaitOutcome::Signalled => {
                // A receiver that claims a sender takes its message. Receivers that disconnect
                // leave it there.
                back = self.lock().senders.remove(sender);
                NotSent::Disconnected
            }
        };
        back.map_or(Ok(()), |message| Err((why, message)))
    }

    pub(super) fn try_receive(&self) -> Result<Message, NotReceived> {
        self.take(self.lock()).map_err(|(why, _)| why)
    }

    /// Takes the oldest message, and moves the next sender's message into the channel.
    fn take<'core>(
        &self,
        mut state: MutexGuard<'core, ChannelContents<Message>>,
    ) -> Result<Message, (NotReceived, MutexGuard<'core, ChannelContents<Message>>)> {
        let oldest = state.messages.pop_front();
        let Some((_, message, claim)) = state.senders.claim_first() else {
            return match oldest {
                Some(oldest) => Ok(oldest),
                None if state.senders_gone => Err((NotReceived::Disconnected, state)),
                None => Err((NotReceived::Empty, state)),
            };
        };
        let taken = match oldest {
            Some(oldest) => {
                state.messages.push_back(message);
                oldest
            }
            None => message,
        };
        drop(state);
        claim.wake();
        Ok(taken)
    }

    pub(super) fn receive(&self, deadline: Option<Deadline>) -> Result<Message, NotReceived> {
        let receiver = match self.take(self.lock()) {
            Ok(message) => return Ok(message),
            Err((NotReceived::Disconnected, _)) => return Err(NotReceived::Disconnected),
            Err((NotReceived::Empty, mut state)) => {
                let resource = std::ptr::from_ref(self).addr();
                let receiver = park::prepare(WaitType::CHANNEL_RECEIVE, resource);
                state.receivers.push_back(receiver, ());
                receiver
            }
        };
        let leave = || self.lock().receivers.remove(receiver);
        match wait_in_line(receiver, deadline, leave) {
            WaitOutcome::TimedOut => Err(NotReceived::Empty),
            // It was woken without a message, so the last sender is gone.
            WaitOutcome::Signalled => self.given_to(receiver).ok_or(NotReceived::Disconnected),
        }
    }

    fn given_to(&self, receiver: Waiter) -> Option<Message> {
        let mut state = self.lock();
        let place = state.given.iter().position(|(to, _)| to.is(receiver))?;
        Some(state.given.swap_remove(place).1)
    }

    /// Called when the last sender is gone: receivers that wait get no message.
    pub(super) fn senders_gone(&self) {
        let claims = {
            let mut state = self.lock();
            state.senders_gone = true;
            let claims = state.receivers.claim_all();
            state.receivers = WaiterLine::new();
            claims
        };
        claims.wake();
    }

    /// Called when the last receiver is gone: waiting senders take their messages back, the others
    /// are dropped.
    pub(super) fn receivers_gone(&self) {
        let (claims, messages) = {
            let mut state = self.lock();
            state.receivers_gone = true;
            let messages = std::mem::take(&mut state.messages);
            (state.senders.claim_all(), messages)
        };
        claims.wake();
        // Dropped without the lock, because their destructors may send.
        drop(messages);
    }
}
