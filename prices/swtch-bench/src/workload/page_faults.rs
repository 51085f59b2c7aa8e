//! A mapped file whose pages are not in memory: each first access waits for the disk, without any
//! system call.

use std::os::fd::AsRawFd;
use std::ptr;
use std::thread;

use swtch_core::reason::Reason;

use super::Workload;
use crate::cpu::{CpuPolicyGuard, Policy};
use crate::error::{Error, checked};
use crate::needs::Needs;
use crate::outcome::{Expect, WorkloadOutcome};
use crate::scratch::{BLOCK, Scratch};
use crate::workers::{own_switches, start};

/// Bytes of the smallest page that a machine has. Where pages are larger, the first touch of a page blocks and the
/// others find it in memory.
const PAGE: usize = 4096;

pub(super) const PAGE_FAULTS: Workload = Workload {
    name: "page-faults",
    about: "a thread touches pages of a mapped file that are not in memory",
    needs: Needs::Disk,
    default_count: 100,
    count_is: "blocking faults",
    run,
};

/// Touches pages until `wanted` accesses have blocked. A virtual disk on a busy host may answer
/// before the task is asleep, so the file has a whole block of pages for each access that is wanted.
fn run(wanted: u64) -> Result<WorkloadOutcome, Error> {
    let scratch = Scratch::with_blocks(wanted)?;
    let mapping = ColdMapping::of(&scratch, wanted)?;
    let _policy = CpuPolicyGuard::on_workload_cpu(Policy::Batch)?;
    thread::scope(|scope| {
        let toucher = start(scope, "page-toucher", || {
            let before = own_switches()?.voluntary;
            let mut blocked = 0;
            for page in mapping.pages() {
                if blocked >= wanted {
                    break;
                }
                mapping.touch(page);
                blocked = own_switches()?.voluntary - before;
            }
            Ok(blocked)
        })?;
        let toucher = toucher.finish()?;
        let blocked = toucher.value;
        let because = "only the faults can block it, and it goes on until enough have";
        let faults = Expect::between(Reason::Fault, wanted, blocked.max(wanted), because);
        Ok(WorkloadOutcome {
            threads: vec![toucher.expecting(vec![faults])],
        })
    })
}

/// A mapped file of which no page is in memory, without read-ahead.
pub(super) struct ColdMapping {
    address: ptr::NonNull<u8>,
    bytes: usize,
}

// SAFETY: through a shared reference the mapping is only read, and nobody writes the file any more. It is
// unmapped by `drop`, when no reference is left.
unsafe impl Sync for ColdMapping {}

impl ColdMapping {
    /// Maps a file of `blocks` blocks that is on the disk.
    pub(super) fn of(scratch: &Scratch, blocks: u64) -> Result<Self, Error> {
        let bytes = usize::try_from(blocks)
            .unwrap_or(usize::MAX)
            .saturating_mul(BLOCK);
        let fd = scratch.file.as_raw_fd();
        // SAFETY: asks for a mapping at any free address; the descriptor is open.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ,
                libc::MAP_SHARED,
                fd,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(Error::last_call("mmap"));
        }
        let start = ptr::NonNull::new(address.cast()).expect("invariant: mmap never returns 0");
        let mapping = Self {
            address: start,
            bytes,
        };
        // SAFETY: the range is the mapping; this advice changes no contents.
        checked("madvise", unsafe {
            libc::madvise(address, bytes, libc::MADV_RANDOM)
        })?;
        scratch.evict()?;
        Ok(mapping)
    }

    /// Offsets of the pages, in bytes.
    pub(super) fn pages(&self) -> impl Iterator<Item = usize> + use<> {
        (0..self.bytes).step_by(PAGE)
    }

    /// Reads the byte at `offset`.
    pub(super) fn touch(&self, offset: usize) {
        assert!(
            offset < self.bytes,
            "invariant: only offsets of the mapping are touched"
        );
        // SAFETY: the offset is inside the mapping.
        let byte = unsafe { self.address.add(offset) };
        // SAFETY: the mapping is readable and the file is as long as the mapping.
        unsafe { byte.read_volatile() };
    }
}

impl Drop for ColdMapping {
    fn drop(&mut self) {
        // SAFETY: unmaps what `of` mapped; all borrows have ended.
        unsafe { libc::munmap(self.address.as_ptr().cast(), self.bytes) };
    }
}
