//! The ring of one CPU, which the kernel writes and this reads (`struct perf_event_mmap_page`).
//!
//! ```text
//! page 0          head: where the kernel writes next      tail: where we read next
//! pages 1 ...     records, one after the other; a record may go on at the beginning
//! ```

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use swtch_core::Timestamp;
use swtch_wire::{KERNEL_SWITCH_BYTES, PerfRecord, PerfRecordKind};

use super::counter::PerfEvent;
use crate::error::Error;

/// Pages of records: with the page before them 516 kB, which is what every user may lock for each
/// CPU (`kernel.perf_event_mlock_kb`).
const PAGES: usize = 128;

/// Fewer are enough where others of this user have locked memory, too.
const FEWEST_PAGES: usize = 8;

/// The offsets of `data_head` and `data_tail` in the first page.
const HEAD: usize = 1024;
const TAIL: usize = 1032;

/// Bytes of the header of a record: type, misc, size.
const HEADER_BYTES: usize = 8;

/// A mapped ring.
#[derive(Debug)]
pub(super) struct PerfRing {
    base: NonNull<u8>,
    page: usize,
    pages: usize,
    /// The event that the ring belongs to.
    event: File,
    index: usize,
    cpu: u16,
    /// Bytes of the record that is read.
    record: Vec<u8>,
    /// The moment of the last record that was read.
    last: Option<Timestamp>,
    /// Number of records that were lost before one of those that were read.
    lost: u64,
}

// SAFETY: the mapping belongs to the process, not to a thread; only its address is kept here.
unsafe impl Send for PerfRing {}

impl PerfRing {
    /// Maps the ring of an event on the `index`th CPU of the recording.
    pub fn map(event: &PerfEvent, index: usize, cpu: u16) -> Result<Self, Error> {
        // SAFETY: asks for a number.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let mut pages = PAGES;
        let base = loop {
            match map(event.fd(), (1 + pages) * page) {
                Ok(base) => break base,
                // EPERM says that the user has locked too much.
                Err(error) if error.raw_os_error() == Some(libc::EPERM) && pages > FEWEST_PAGES => {
                    pages /= 2;
                }
                Err(error) => return Err(Error::PerfRefused(error)),
            }
        };
        let event = event.try_clone().map_err(Error::PerfRefused);
        event.map(|event| Self {
            base,
            page,
            pages,
            event,
            index,
            cpu,
            record: Vec::new(),
            last: None,
            lost: 0,
        })
    }

    /// Returns the moment of the last record that was read.
    pub const fn last(&self) -> Option<Timestamp> {
        self.last
    }

    /// Number of lost records that those that were read tell of.
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    pub const fn cpu(&self) -> u16 {
        self.cpu
    }

    pub fn fd(&self) -> i32 {
        self.event.as_raw_fd()
    }

    /// The number under which its switch-outs, or its other records, are kept.
    pub const fn stream(&self, of_switch_outs: bool) -> usize {
        2 * self.index + of_switch_outs as usize
    }

    /// Number of records of switches that it has room for.
    pub const fn slots(&self) -> u64 {
        (self.pages * self.page / KERNEL_SWITCH_BYTES) as u64
    }

    /// Takes all records that it holds.
    pub fn take(&mut self, mut keep: impl FnMut(PerfRecord)) {
        // The kernel has written everything before the head (perf_output_put_handle).
        let head = self.position(HEAD).load(Ordering::Acquire);
        let mut tail = self.position(TAIL).load(Ordering::Relaxed);
        while tail < head {
            let length = self.read_record(tail);
            if length < HEADER_BYTES {
                // A header that cannot be would be read for ever.
                tail = head;
                break;
            }
            if let Some(record) = PerfRecord::of_kernel(&self.record) {
                self.last = Some(record.ts);
                if record.kind == PerfRecordKind::Lost {
                    self.lost += record.number;
                }
                keep(record);
            }
            tail += length as u64;
        }
        self.position(TAIL).store(tail, Ordering::Release);
    }

    /// Copies the record at this position, and returns its length.
    fn read_record(&mut self, at: u64) -> usize {
        self.record.clear();
        self.append(at, HEADER_BYTES);
        let length = usize::from(u16::from_ne_bytes([self.record[6], self.record[7]]));
        if length > HEADER_BYTES {
            self.append(at + HEADER_BYTES as u64, length - HEADER_BYTES);
        }
        length
    }

    /// Appends bytes of the ring to the record that is read.
    fn append(&mut self, at: u64, length: usize) {
        let size = self.pages * self.page;
        let start = usize::try_from(at % size as u64).expect("a place in the ring");
        let first = length.min(size - start);
        // SAFETY: the data lie behind the first page, and `start + first` is not beyond them. The
        // kernel does not write between tail and head.
        let data = unsafe { self.base.as_ptr().add(self.page) };
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(data.add(start), first) };
        self.record.extend_from_slice(bytes);
        // SAFETY: as above; what is left is shorter than the ring.
        let bytes = unsafe { std::slice::from_raw_parts(data, length - first) };
        self.record.extend_from_slice(bytes);
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: both positions are aligned 64-bit numbers of the first page, which is mapped as
        // long as self; kernel and program change them with whole stores.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }
}

impl Drop for PerfRing {
    fn drop(&mut self) {
        // SAFETY: unmaps what `map` mapped; nothing of it is referred to any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), (1 + self.pages) * self.page) };
    }
}

fn map(fd: i32, bytes: usize) -> io::Result<NonNull<u8>> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: maps a file at an address of the kernel's choice; the result is checked.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, fd, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(NonNull::new(base.cast()).expect("a mapping is not at address 0"))
}
