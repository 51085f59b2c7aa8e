//! A working set: what a switch costs when the caches have to be refilled.
//!
//! Compare [`MemorySharing::Private`], where each member brings its own memory into the caches,
//! with [`MemorySharing::Shared`], where one member warms them for the next. The walks are the
//! same, so the difference is what the caches have lost to other members.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::mapping::{Mapping, PageSize, Visibility};
use super::random::SplitMix64;
use super::walk::{LINE, Walk, link};
use crate::error::Error;

/// The order in which lines are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// A random order that the CPU cannot predict, the same every time.
    Random,
    /// By address, so that the CPU prefetches.
    Sequential,
}

/// Says whether members share the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemorySharing {
    /// Each member has memory of its own.
    Private,
    /// All members have the same memory.
    Shared,
}

/// The memory that all members share, linked in one order.
pub(super) fn shared(bytes: u64, order: Order) -> Result<Arc<Mapping>, Error> {
    make(bytes, order, 0)
}

/// A member's walk over [`shared`].
pub(super) fn walk_shared(memory: &Arc<Mapping>, bytes: u64) -> Walk {
    Walk::new(Arc::clone(memory), 0, lines(bytes))
}

/// A walk over memory of the member's own, in an order of its own.
pub(super) fn private(bytes: u64, order: Order, member: usize) -> Result<Walk, Error> {
    let memory = make(bytes, order, member)?;
    Ok(Walk::new(memory, 0, lines(bytes)))
}

fn lines(bytes: u64) -> usize {
    usize::try_from(bytes / 64).expect("invariant: memory is addressed by usize")
}

/// Memory of `bytes` bytes whose lines form one cycle, so that a walk can start at the first line.
///
/// Private sets use shareable memory too, so that they differ from shared ones in nothing else: the
/// kernel allocates anonymous pages from elsewhere than pages that processes can share.
fn make(bytes: u64, order: Order, seed: usize) -> Result<Arc<Mapping>, Error> {
    let lines = lines(bytes);
    let memory = Mapping::new(lines * 64, Visibility::Shared, PageSize::Small)?;
    let mut places: Vec<_> = (0..lines).map(|line| line * LINE).collect();
    if order == Order::Random {
        SplitMix64::new(seed as u64).shuffle(&mut places);
    }
    link(&memory, &places);
    Ok(Arc::new(memory))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    /// For either order, the cycle returns to its start after as many steps as there are lines, and
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
