//! A peer of a ring: a thread or a process beside the leader.

use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use swtch_core::cost::Members;

use super::message;
use crate::error::Error;
use crate::process::ForkedChild;

/// Stack of a thread, in bytes.
const STACK: usize = 256 * 1024;

/// The time that a peer may take to end after it was asked to.
const END_LIMIT: Duration = Duration::from_secs(2);

/// A peer: a member that is not the leader.
pub(super) enum Follower {
    Thread(Option<JoinHandle<()>>),
    Process(ForkedChild),
}

impl Follower {
    /// Starts a peer. A peer that fails reports why ([`message::fail`]) and ends its process, which
    /// for a thread is the leader's: otherwise the other members would wait for it forever.
    pub(super) fn start(
        members: Members,
        follow: impl FnOnce() -> Result<(), Error> + Send + 'static,
    ) -> Result<Self, Error> {
        match members {
            Members::Threads => {
                let follow = move || follow().unwrap_or_else(|error| message::fail(&error));
                let builder = Builder::new().stack_size(STACK);
                let handle = builder.spawn(follow).map_err(Error::calling("clone"))?;
                Ok(Self::Thread(Some(handle)))
            }
            Members::Processes => {
                let follow = || follow().inspect_err(|error| message::fail(error));
                ForkedChild::fork(follow).map(Self::Process)
            }
        }
    }

    /// Fails if the peer has ended. A thread that fails ends the leader itself.
    pub(super) fn check(&mut self) -> Result<(), Error> {
        let ended = match self {
            Self::Thread(_) => None,
            Self::Process(child) => child.try_wait()?,
        };
        ended.map_or(Ok(()), |status| {
            Err(Error::ProcessFailed {
                name: "peer".to_owned(),
                status,
            })
        })
    }

    /// Waits until the peer has ended.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        match self {
            Self::Thread(handle) => match handle.take().map(JoinHandle::join) {
                Some(Err(_panic)) => Err(Error::Panicked {
                    name: "peer".to_owned(),
                }),
                _ => Ok(()),
            },
            Self::Process(child) => {
                // A peer that has failed is reaped already, which is no error here.
                child.wait_at_most(END_LIMIT);
                Ok(())
            }
        }
    }
}
