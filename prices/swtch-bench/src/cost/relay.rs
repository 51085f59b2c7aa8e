//! The ways in which the members of a ring hand the turn on: a relay for each primitive.

use std::sync::Arc;

use swtch_core::cost::{Members, Primitive};

use super::message;
use super::ring_spec::RingSpec;
use super::work::Work;
use crate::error::Error;
use crate::futex::{PrivateScope, SharedScope};
use crate::shared::Shared;
use crate::token::{
    Condition, EpolledPipe, EventFd, FutexToken, MessageQueue, Pipe, SemaphoreToken, SysvSemaphore,
    Tcp, UnixSocket,
};

mod mutex_ring;
mod signals;
mod token_ring;
mod yields;

use mutex_ring::MutexRing;
use signals::SignalRing;
use token_ring::TokenRing;
use yields::YieldRelay;

/// Hands the turn on between the members of a ring.
pub(crate) trait Relay: Send + Sync {
    /// Called once by each member. No lap begins before all members have returned from it.
    fn enter(&self, _me: usize) -> Result<(), Error> {
        Ok(())
    }

    /// One lap of the leader: hands the turn on, waits for its return, works.
    fn lead(&self, work: &mut dyn Work) -> Result<(), Error>;

    /// One lap of peer number `me`, from 1: waits for the turn, works, hands it on.
    fn follow(&self, me: usize, work: &mut dyn Work) -> Result<(), Error>;

    /// The calls of one hop, made by the leader without a peer.
    fn hand_over_alone(&self) -> Result<(), Error>;
}

/// The relay for the primitive of `spec`.
pub(super) fn relay(spec: &RingSpec) -> Result<Arc<dyn Relay>, Error> {
    let count = spec.count;
    if count < 2 {
        return Err(Error::Senseless("a ring has two members or more"));
    }
    match (spec.primitive, spec.members) {
        (Primitive::FutexPrivate, Members::Processes) => Err(Error::Senseless(
            "processes cannot wake each other by a private futex; take the shared one",
        )),
        (Primitive::FutexPrivate, Members::Threads) => {
            TokenRing::new_relay(count, || Ok(FutexToken::<PrivateScope>::default()))
        }
        (Primitive::FutexShared, _) => {
            TokenRing::new_relay(count, Shared::<FutexToken<SharedScope>>::new)
        }
        (Primitive::Pipe, _) => TokenRing::new_relay(count, Pipe::new),
        (Primitive::SocketPair, _) => TokenRing::new_relay(count, UnixSocket::new),
        (Primitive::Tcp, _) => TokenRing::new_relay(count, Tcp::new),
        (Primitive::Eventfd, _) => TokenRing::new_relay(count, EventFd::new),
        (Primitive::Epoll, _) => TokenRing::new_relay(count, EpolledPipe::new),
        (Primitive::Condvar, _) => TokenRing::new_relay(count, Condition::new),
        (Primitive::PosixSemaphore, _) => TokenRing::new_relay(count, SemaphoreToken::new),
        (Primitive::SysvSemaphore, _) => TokenRing::new_relay(count, || {
            SysvSemaphore::new().inspect(message::register_semaphore_set)
        }),
        (Primitive::MessageQueue, _) => TokenRing::new_relay(count, MessageQueue::new),
        (Primitive::Signal, _) => Ok(Arc::new(SignalRing::new(count)?)),
        (Primitive::Yield, _) => Ok(Arc::new(YieldRelay)),
        (Primitive::MutexRing, _) => Ok(Arc::new(MutexRing::new(count)?)),
    }
}
