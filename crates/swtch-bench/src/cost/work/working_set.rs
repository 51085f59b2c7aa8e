//! A working set: what a switch costs when caches have to be filled again.
//!
//! Compare [`Sharing::Private`], where each member brings its own memory into the caches, with
//! [`Sharing::Shared`], where one member warms them for the next: the walks are the same, so the
//! difference is what the caches have lost to the others.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::mapping::{Backing, Mapping, PageSize};
use super::random::SplitMix;
use super::walk::{LINE, Walk, link};
use crate::error::Error;

/// In which order lines are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// One that the CPU cannot guess, the same every time.
    Random,
    /// By address: the CPU fetches ahead.
    Sequential,
}

/// Whose memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// Each member has its own.
    Private,
    /// All members have the same.
    Shared,
}

/// The set that all members share, walked in one order.
pub(super) fn shared(bytes: u64, order: Order) -> Result<Arc<Mapping>, Error> {
    make(bytes, order, 0)
}

/// A member's walk over [`shared`].
pub(super) fn walk_shared(memory: &Arc<Mapping>, bytes: u64) -> Walk {
    Walk::new(Arc::clone(memory), 0, lines(bytes))
}

/// A walk over a set that is the member's own, in an order of its own.
pub(super) fn private(bytes: u64, order: Order, member: usize) -> Result<Walk, Error> {
    let memory = make(bytes, order, member)?;
    Ok(Walk::new(memory, 0, lines(bytes)))
}

fn lines(bytes: u64) -> usize {
    usize::try_from(bytes / 64).expect("invariant: memory is addressed by usize")
}

/// Every line is on the cycle, so that it can be entered at the first.
///
/// It is memory of the same kind, whoever uses it, so that the control differs in nothing else: the
/// kernel takes anonymous pages from elsewhere than those that processes can share.
fn make(bytes: u64, order: Order, seed: usize) -> Result<Arc<Mapping>, Error> {
    let lines = lines(bytes);
    let memory = Mapping::new(lines * 64, Backing::Shared, PageSize::Small)?;
    let mut places: Vec<_> = (0..lines).map(|line| line * LINE).collect();
    if order == Order::Random {
        SplitMix::new(seed as u64).shuffle(&mut places);
    }
    link(&memory, &places);
    Ok(Arc::new(memory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    /// The cycle of either order comes back to its start after as many steps as there are lines, and
    /// not before.
    #[test]
    fn a_walk_reads_every_line_once() {
        for order in [Order::Random, Order::Sequential] {
            let memory = make(4096, order, 1).unwrap();
            let words = memory.words();
            let mut at = words[0].load(Ordering::Relaxed);
            let mut steps = 1;
            while at != 0 {
                at = words[at].load(Ordering::Relaxed);
                steps += 1;
            }
            assert_eq!(steps, 4096 / 64, "{order:?}");
        }
    }
}
