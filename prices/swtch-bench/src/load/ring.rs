//! Rings in which members hand tokens on. There are two kinds.
//!
//! ```text
//! of tokens    member 0 ─▶ member 1 ─▶ member 2 ─▶  take: wait for a token of my own
//!              token       –           –            pass: give it to the next member
//!
//! of locks     lock 0    1    2    spare             take: lock the one after mine
//!              member 0  1    2                      pass: unlock mine; the other is now mine
//! ```
//!
//! A ring of locks has more locks than members. Each spare lock is a token, and moves from the last
//! member to the first.

use serde::{Deserialize, Serialize};

use super::event::EventKind;
use super::lock::LoadLockKind;
use crate::error::Error;
use crate::lock::Lock;
use crate::token::Token;

/// The kind of a ring, and its number of tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadRingSpec {
    /// The objects that hand a token on.
    pub kind: RingKind,
    /// Number of tokens; those of [`RingKind::Tokens`] start at the first members.
    pub tokens: u32,
}

/// The objects that hand a token on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RingKind {
    /// One event for each member.
    Tokens(EventKind),
    /// One lock for each member, and one for each token.
    Locks(LoadLockKind),
}

impl Default for LoadRingSpec {
    /// One token, a byte that goes from pipe to pipe.
    fn default() -> Self {
        Self {
            kind: RingKind::Tokens(EventKind::Pipe),
            tokens: 1,
        }
    }
}

pub(super) enum Ring {
    Tokens(Vec<Box<dyn Token + Send>>),
    Locks(Vec<Box<dyn Lock>>),
}

impl Ring {
    /// A ring for `members` members.
    pub(super) fn new(spec: LoadRingSpec, members: usize) -> Result<Self, Error> {
        let tokens = spec.tokens as usize;
        Ok(match spec.kind {
            RingKind::Tokens(kind) => {
                let events = (0..members).map(|_| kind.make());
                let events: Vec<_> = events.collect::<Result<_, _>>()?;
                events
                    .iter()
                    .take(tokens)
                    .try_for_each(|event| event.pass())?;
                Self::Tokens(events)
            }
            RingKind::Locks(kind) => {
                let locks = (0..members + tokens).map(|_| kind.make());
                Self::Locks(locks.collect::<Result<_, _>>()?)
            }
        })
    }

    /// The calling member's access to the ring, at `position`. In a ring of locks this
    /// acquires the member's first lock, so each member calls it once, before any member takes.
    pub(super) fn enter(&self, position: usize) -> Result<RingAccess<'_>, Error> {
        Ok(match self {
            Self::Tokens(events) => RingAccess::Tokens {
                mine: &*events[position],
                next: &*events[(position + 1) % events.len()],
            },
            Self::Locks(locks) => {
                locks[position].lock()?;
                RingAccess::Locks {
                    locks,
                    held: position,
                    has_next: false,
                }
            }
        })
    }
}

/// One member's access to a ring.
pub(super) enum RingAccess<'a> {
    Tokens {
        mine: &'a dyn Token,
        next: &'a dyn Token,
    },
    Locks {
        locks: &'a [Box<dyn Lock>],
        held: usize,
        has_next: bool,
    },
}

impl RingAccess<'_> {
    pub(super) fn take(&mut self) -> Result<(), Error> {
        match self {
            Self::Tokens { mine, .. } => mine.take(),
            Self::Locks { has_next: true, .. } => Err(Error::Senseless(
                "in a ring of locks, pass comes after each take",
            )),
            Self::Locks {
                locks,
                held,
                has_next,
            } => {
                locks[(*held + 1) % locks.len()].lock()?;
                *has_next = true;
                Ok(())
            }
        }
    }

    pub(super) fn pass(&mut self) -> Result<(), Error> {
        match self {
            Self::Tokens { next, .. } => next.pass(),
            Self::Locks {
                has_next: false, ..
            } => Err(Error::Senseless(
                "in a ring of locks, take comes before each pass",
            )),
            Self::Locks {
                locks,
                held,
                has_next,
            } => {
                locks[*held].unlock()?;
                *held = (*held + 1) % locks.len();
                *has_next = false;
                Ok(())
            }
        }
    }
}
