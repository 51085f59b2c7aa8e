//! Threads that wait for each other at a lock of the kernel, which they take by ordinary calls.
//!
//! ```text
//! first   │ in the call, with the lock │ preempted at the end of its slice … │ goes on
//! second  …                            │ calls, and blocks: the lock is taken …
//! ```
//!
//! All share one CPU and are nearly always in the call, so that nearly every slice ends in it. The number
//! of waits is what the kernel counted around the calls.

use std::fs::File;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use swtch_core::reason::Reason;

use super::Workload;
use crate::cpu::{CpuPolicyGuard, Policy};
use crate::error::{Error, checked};
use crate::needs::Needs;
use crate::outcome::{Expect, WorkloadOutcome};
use crate::workers::{LIFE_LOCKS, RunningWorker, blocks_in, start};

const THREADS: [&str; 4] = ["waiter-1", "waiter-2", "waiter-3", "waiter-4"];

/// Bytes that one `pwrite` writes: that takes the kernel some 100 µs.
const BYTES: usize = 1 << 20;

/// Bytes of a mapping whose protection is changed: only the entries of its pages are written.
const MAPPED_BYTES: usize = 32 << 20;

pub(super) const INODE: Workload = Workload {
    name: "inode-lock",
    about: "four threads write to one file in memory",
    needs: Needs::Nothing,
    default_count: 100,
    count_is: "waits",
    run: inode,
};

pub(super) const ADDRESS_SPACE: Workload = Workload {
    name: "address-space-lock",
    about: "four threads change the protection of their own pages",
    needs: Needs::Nothing,
    default_count: 100,
    count_is: "waits",
    run: address_space,
};

fn inode(wanted: u64) -> Result<WorkloadOutcome, Error> {
    let file = file_in_memory()?;
    let bytes = vec![0; BYTES];
    let write = &|| {
        let written = file.write_all_at(&bytes, 0);
        written.map_err(Error::calling("pwrite"))
    };
    // The first write creates the pages, so that later ones find them.
    write()?;
    contend(wanted, || Ok(write))
}

fn address_space(wanted: u64) -> Result<WorkloadOutcome, Error> {
    contend(wanted, || {
        let pages = PopulatedMapping::new()?;
        Ok(move || {
            pages.protect(libc::PROT_READ)?;
            pages.protect(libc::PROT_READ | libc::PROT_WRITE)
        })
    })
}

/// Every thread prepares its call and repeats it, until all together have waited `wanted` times.
fn contend<C>(
    wanted: u64,
    prepare: impl Fn() -> Result<C, Error> + Sync,
) -> Result<WorkloadOutcome, Error>
where
    C: FnMut() -> Result<(), Error>,
{
    let _policy = CpuPolicyGuard::on_workload_cpu(Policy::Batch)?;
    let all = AtomicU64::new(0);
    let work = || {
        let mut call = None;
        // What `prepare` waits for counts, too: the recorder sees it as well.
        let mut waited = blocks_in(|| {
            call = Some(prepare()?);
            Ok(())
        })?;
        while let Some(call) = call
            .as_mut()
            .filter(|_| all.load(Ordering::Relaxed) < wanted)
        {
            let waits = blocks_in(call)?;
            all.fetch_add(waits, Ordering::Relaxed);
            waited += waits;
        }
        Ok(waited)
    };
    thread::scope(|scope| {
        let workers: Vec<_> = THREADS
            .iter()
            .map(|name| start(scope, *name, work))
            .collect::<Result<_, _>>()?;
        let ended: Vec<_> = workers
            .into_iter()
            .map(RunningWorker::finish)
            .collect::<Result<_, _>>()?;
        let waits = ended.into_iter().map(|thread| {
            let because =
                "the kernel counted that many blocks in its calls; its start and end may wait, too";
            let waited = thread.value;
            let waits = Expect::between(Reason::Lock, waited, waited + LIFE_LOCKS, because);
            thread.expecting(vec![waits])
        });
        Ok(WorkloadOutcome {
            threads: waits.collect(),
        })
    })
}

fn file_in_memory() -> Result<File, Error> {
    // SAFETY: the name is a string that ends with 0, and lives across the call.
    let fd = unsafe { libc::memfd_create(c"swtch-inode-lock".as_ptr(), libc::MFD_CLOEXEC) };
    let fd = checked("memfd_create", fd)?;
    // SAFETY: it was opened just now, and nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into())
}

/// A mapping of its own whose pages are all there.
struct PopulatedMapping(ptr::NonNull<libc::c_void>);

impl PopulatedMapping {
    fn new() -> Result<Self, Error> {
        // SAFETY: asks for a mapping at any free address.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                MAPPED_BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(Error::last_call("mmap"));
        }
        let mapping = Self(ptr::NonNull::new(address).expect("invariant: mmap never returns 0"));
        // Huge pages have few entries, and the calls would be over at once.
        // SAFETY: the range is the mapping; this advice changes no contents.
        checked("madvise", unsafe {
            libc::madvise(address, MAPPED_BYTES, libc::MADV_NOHUGEPAGE)
        })?;
        Ok(mapping)
    }

    fn protect(&self, protection: libc::c_int) -> Result<(), Error> {
        // SAFETY: the range is the mapping, which nobody reads or writes.
        let result = unsafe { libc::mprotect(self.0.as_ptr(), MAPPED_BYTES, protection) };
        checked("mprotect", result).map(drop)
    }
}

impl Drop for PopulatedMapping {
    fn drop(&mut self) {
        // SAFETY: unmaps what `new` mapped; nobody has a pointer into it.
        unsafe { libc::munmap(self.0.as_ptr(), MAPPED_BYTES) };
    }
}
