//! How the members of a ring hand the turn on: a relay for each primitive.

use std::sync::Arc;

use swtch_core::cost::{Members, Primitive};

use super::arm::RingSpec;
use super::leader;
use super::work::Work;
use crate::error::Error;
use crate::token::{
    Condition, EpolledPipe, EventFd, Futex, MessageQueue, Pipe, SemaphoreToken, SharedFutex,
    SysvSemaphore, Tcp, UnixSocket,
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
    fn alone(&self) -> Result<(), Error>;
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
            TokenRing::relay(count, || Ok(Futex::default()))
        }
        (Primitive::FutexShared, _) => TokenRing::relay(count, SharedFutex::new),
        (Primitive::Pipe, _) => TokenRing::relay(count, Pipe::new),
        (Primitive::SocketPair, _) => TokenRing::relay(count, UnixSocket::new),
        (Primitive::Tcp, _) => TokenRing::relay(count, Tcp::new),
        (Primitive::Eventfd, _) => TokenRing::relay(count, EventFd::new),
        (Primitive::Epoll, _) => TokenRing::relay(count, EpolledPipe::new),
        (Primitive::Condvar, _) => TokenRing::relay(count, Condition::new),
        (Primitive::PosixSemaphore, _) => TokenRing::relay(count, SemaphoreToken::new),
        (Primitive::SysvSemaphore, _) => TokenRing::relay(count, || {
            SysvSemaphore::new().inspect(leader::register_semaphore_set)
        }),
        (Primitive::MessageQueue, _) => TokenRing::relay(count, MessageQueue::new),
        (Primitive::Signal, _) => Ok(Arc::new(SignalRing::new(count)?)),
        (Primitive::Yield, _) => Ok(Arc::new(YieldRelay)),
        (Primitive::MutexRing, _) => Ok(Arc::new(MutexRing::new(count)?)),
    }
}
