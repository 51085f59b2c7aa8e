//! Memory of a chosen size, page size and visibility, for walks.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicUsize;

use serde::{Deserialize, Serialize};

use crate::error::{Error, checked};

/// Page size of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PageSize {
    /// 4 KiB pages (or the smallest that there are).
    Small,
    /// Transparent huge pages. If the kernel does not provide them, the work is not available.
    Huge,
}

/// Which processes see the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Visibility {
    /// Only the process that maps it.
    Private,
    /// Also the children of that process.
    Shared,
}

/// Size and alignment of a huge page: 2 MiB on machines with 4 KiB pages.
const HUGE: usize = 2 << 20;

/// A mapping that is unmapped when dropped. Children that are forked meanwhile share a
/// [`Visibility::Shared`] one, and get a copy of a private one.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<libc::c_void>,
    base_bytes: usize,
    first_word: NonNull<AtomicUsize>,
    word_count: usize,
}

// SAFETY: all access is atomic, and the mapping lives until no borrow is left.
unsafe impl Sync for Mapping {}
// SAFETY: a mapping belongs to no thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Memory of zeros, of which no page is allocated yet.
    pub(super) fn new(bytes: usize, visibility: Visibility, size: PageSize) -> Result<Self, Error> {
        // A huge page must be aligned to its size.
        let base_bytes = match size {
            PageSize::Small => bytes.max(1),
            PageSize::Huge => bytes.next_multiple_of(HUGE) + HUGE,
        };
        let base = map(base_bytes, visibility)?;
        let padding = match size {
            PageSize::Small => 0,
            PageSize::Huge => base.cast::<u8>().align_offset(HUGE),
        };
        // SAFETY: at most HUGE - 1 bytes, of which there are more.
        let start = unsafe { base.as_ptr().byte_add(padding) };
        let mapping = Self {
            base,
            base_bytes,
            first_word: NonNull::new(start.cast()).expect("invariant: inside of a mapping"),
            word_count: bytes / size_of::<AtomicUsize>(),
        };
        mapping.advise(size)?;
        Ok(mapping)
    }

    pub(super) fn words(&self) -> &[AtomicUsize] {
        // SAFETY: mapped, aligned to a page at least, zeroed, and living as long as `self`.
        unsafe { std::slice::from_raw_parts(self.first_word.as_ptr(), self.word_count) }
    }

    fn advise(&self, size: PageSize) -> Result<(), Error> {
        let advice = match size {
            PageSize::Small => libc::MADV_NOHUGEPAGE,
            PageSize::Huge => libc::MADV_HUGEPAGE,
        };
        // SAFETY: advice about a mapping of our own, which changes no contents.
        let advised = unsafe { libc::madvise(self.base.as_ptr(), self.base_bytes, advice) };
        match (size, checked("madvise", advised)) {
            // A kernel without transparent huge pages knows neither advice.
            (PageSize::Huge, Err(error)) => Err(Error::NotHere(format!("huge pages: {error}"))),
            _ => Ok(()),
        }
    }

    /// Fails if the kernel's entry for this memory (`/proc/self/smaps`, which may hold neighbouring
    /// mappings too) has fewer bytes in huge pages than it needs. It must have been written to.
    pub(super) fn check_huge(&self) -> Result<(), Error> {
        let bytes = self.word_count * size_of::<AtomicUsize>();
        let huge = anonymous_huge_bytes(self.first_word.as_ptr().addr())?;
        if huge < bytes {
            return Err(Error::NotHere(format!(
                "the kernel gave {huge} bytes in huge pages of {bytes} asked for (AnonHugePages)"
            )));
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: unmaps what `new` mapped; `self` is the only owner and all borrows have ended.
        unsafe { libc::munmap(self.base.as_ptr(), self.base_bytes) };
    }
}

fn map(bytes: usize, visibility: Visibility) -> Result<NonNull<libc::c_void>, Error> {
    let kind = match visibility {
        Visibility::Private => libc::MAP_PRIVATE,
        Visibility::Shared => libc::MAP_SHARED,
    };
    // SAFETY: asks for fresh memory anywhere, which nothing else uses.
    let address = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            kind | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(Error::last_call("mmap"));
    }
    Ok(NonNull::new(address).expect("invariant: mmap never returns 0"))
}

/// Bytes of the mapping around `address` that lie in huge pages: `AnonHugePages` in smaps.
fn anonymous_huge_bytes(address: usize) -> Result<usize, Error> {
    let smaps = File::open("/proc/self/smaps").map_err(Error::calling("open"))?;
    let mut is_ours = false;
    for line in BufReader::new(smaps).lines() {
        let line = line.map_err(Error::calling("read"))?;
        if let Some(range) = range_of(&line) {
            is_ours = range.contains(&address);
        } else if is_ours && let Some(rest) = line.strip_prefix("AnonHugePages:") {
            let kib = rest.trim().trim_end_matches(" kB").parse::<usize>();
            return kib.map(|kib| kib * 1024).map_err(|_| {
                Error::NotHere(format!("huge pages: /proc/self/smaps says {line:?}"))
            });
        }
    }
    Ok(0)
}

/// The addresses of the mapping that this line of smaps introduces; `None` for other lines.
fn range_of(line: &str) -> Option<std::ops::Range<usize>> {
    let (start, end) = line.split(' ').next()?.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    Some(number(start)?..number(end)?)
}
