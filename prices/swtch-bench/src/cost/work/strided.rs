//! Lines at a fixed distance: what a switch costs when few lines are spread over much memory.
//!
//! Compare strides over the same extent. Twice the stride means half the lines. The loss per line
//! tells whether the caches could use all their sets: lines at a distance of a power of two share
//! few sets, and from 4 KiB on each line needs its own TLB entry.

use std::sync::Arc;

use super::mapping::{Mapping, PageSize, Visibility};
use super::random::SplitMix64;
use super::walk::{Walk, link};
use crate::error::Error;

/// A walk over the member's own memory, in an order of its own.
pub(super) fn walk(bytes: u64, stride: u64, member: usize) -> Result<Walk, Error> {
    let mut places = places(bytes, stride)?;
    let length = usize::try_from(bytes).expect("invariant: memory is addressed by usize");
    let memory = Mapping::new(length, Visibility::Shared, PageSize::Small)?;
    SplitMix64::new(member as u64).shuffle(&mut places);
    link(&memory, &places);
    let first = places.first().copied().unwrap_or_default();
    Ok(Walk::new(Arc::new(memory), first, places.len()))
}

/// Indices of the first words of the lines.
fn places(bytes: u64, stride: u64) -> Result<Vec<usize>, Error> {
    if stride == 0 || !stride.is_multiple_of(64) || bytes < stride {
        return Err(Error::Senseless(
            "a stride is a multiple of 64 bytes, and no longer than the memory",
        ));
    }
    let word = |at: u64| usize::try_from(at / 8).expect("invariant: memory is addressed by usize");
    Ok((0..bytes / stride)
        .map(|line| word(line * stride))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_lie_a_stride_apart_within_the_reach() {
        assert_eq!(places(1024, 256).unwrap(), [0, 32, 64, 96]);
        assert_eq!(places(1000, 256).unwrap(), [0, 32, 64]);
    }

    #[test]
    fn half_a_line_is_no_stride() {
        for (bytes, stride) in [(1024, 0), (1024, 96), (64, 128)] {
            assert!(matches!(places(bytes, stride), Err(Error::Senseless(_))));
        }
    }
}
