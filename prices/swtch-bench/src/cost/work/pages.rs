//! One line of each of many pages: what a switch costs when the TLB has to be refilled.
//!
//! Compare rings of processes with rings of threads, over the number of pages (ns per page) and
//! over the number of members: the kernel keeps only a few address spaces per CPU in the TLB
//! (`TLB_NR_DYN_ASIDS`, `arch/x86/mm/tlb.c`), and the cost rises sharply when a ring has more.

use std::sync::Arc;

use super::mapping::{Mapping, PageSize, Visibility};
use super::random::SplitMix64;
use super::walk::{LINE, Walk, link};
use crate::error::Error;

/// Words in a page of 4 KiB.
const PAGE: usize = 4096 / size_of::<usize>();

/// A walk over `pages` pages, in an order of the member's own.
pub(super) fn walk(pages: u32, size: PageSize, member: usize) -> Result<Walk, Error> {
    let mut places: Vec<_> = (0..pages as usize).map(place).collect();
    SplitMix64::new(member as u64).shuffle(&mut places);
    let memory = Mapping::new(places.len() * 4096, Visibility::Private, size)?;
    link(&memory, &places);
    if size == PageSize::Huge {
        memory.check_huge()?;
    }
    let first = places.first().copied().unwrap_or_default();
    Ok(Walk::new(Arc::new(memory), first, places.len()))
}

/// The word of page number `page`: another line in each page, because the same line of every page
/// would fall into one set of the first-level cache, and the cache would be measured instead of the
/// TLB.
const fn place(page: usize) -> usize {
    page * PAGE + page % (PAGE / LINE) * LINE
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn lines_of_64_pages_are_all_different() {
        let lines: BTreeSet<_> = (0..64).map(|page| place(page) % PAGE / LINE).collect();
        assert_eq!(lines.len(), 64);
        assert!((0..1024).all(|page| place(page) / PAGE == page));
    }

    #[test]
    fn no_pages_are_a_walk_of_no_steps() {
        use super::super::Work;
        walk(0, PageSize::Small, 0).unwrap().run();
    }
    /// The kernel is asked whether it provided huge pages; it is not assumed.
    #[test]
    fn huge_pages_come_or_are_said_to_be_missing() {
        if let Err(error) = walk(1024, PageSize::Huge, 0) {
            assert!(error.to_string().contains("huge pages"), "{error}");
        }
    }
}
