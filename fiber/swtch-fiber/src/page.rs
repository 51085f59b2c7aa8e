//! The page of counters of this process's schedulers, in shared memory for observers.
//!
//! There is one page per process. It is made with the first runtime and never unmapped, because
//! signallers, observers and signal handlers may hold addresses in it at any time. Most of it is
//! never touched and takes no memory.

mod slots;
mod wait_type_names;

use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use swtch_observe::layout::{
    Anchor, Header, MAGIC, RingEvent, RingHeader, SchedulerRecord, TableLayout, ThreadRecord,
    VERSION, WAIT_TYPES, WaitRecord, WaitTypeName, WorkerName, WorkerRecord, WorkerStack,
};
use swtch_observe::{clock, names};

use crate::error::Error;
use crate::fork;
pub(crate) use slots::{SchedulerSlot, ThreadSlot, WorkerSlot, gettid};

/// Most schedulers that a process can have.
pub(crate) const SCHEDULERS: u32 = 256;
/// Most OS threads that all its runtimes can have.
pub(crate) const THREADS: u32 = 32_768;
/// Most workers that a process can have.
pub(crate) const WORKERS: u32 = 1 << 18;
/// Events kept per scheduler: 1 MiB. At a million switches a second a reader has 16 ms to read
/// them.
pub(crate) const EVENTS: u32 = 1 << 14;

const PAGE: u64 = 4096;

/// The page of this process, mapped for writing.
#[derive(Debug)]
pub(crate) struct WritablePage {
    base: NonNull<u8>,
    places: TableOffsets,
    /// Kept open, because observers find the page as a file descriptor of this process.
    file: File,
}

// SAFETY: all that is reached through `base` are atomics.
unsafe impl Send for WritablePage {}
// SAFETY: as above.
unsafe impl Sync for WritablePage {}

/// Offsets of the tables in the file, bytes.
#[derive(Clone, Copy, Debug)]
struct TableOffsets {
    wait_type_names: u64,
    schedulers: u64,
    threads: u64,
    workers: u64,
    worker_names: u64,
    waits: u64,
    rings: u64,
    worker_stacks: u64,
    end: u64,
}

/// Bytes of one scheduler's ring.
const RING_STRIDE: u64 = PAGE + EVENTS as u64 * size_of::<RingEvent>() as u64;

static PAGE_OF_PROCESS: OnceLock<WritablePage> = OnceLock::new();

/// The page of this process, made at the first call.
///
/// # Errors
/// [`Error::Page`] when the kernel refuses memory.
pub(crate) fn page() -> Result<&'static WritablePage, Error> {
    if let Some(page) = PAGE_OF_PROCESS.get() {
        return Ok(page);
    }
    let page = WritablePage::new()?;
    // If two threads make one at the same time, the later one's is unmapped again.
    let page = PAGE_OF_PROCESS.get_or_init(|| page);
    let length = usize::try_from(page.places.end).expect("64-bit");
    // SAFETY: the page of the process is mapped from the beginning of its file, for good.
    let protected = unsafe { fork::protect(page.base, length, page.file.as_raw_fd()) };
    protected.map_err(|source| Error::Page {
        doing: "keeping children of fork from it",
        source,
    })?;
    Ok(page)
}

/// The page, if a runtime has been made.
pub(crate) fn page_if_there() -> Option<&'static WritablePage> {
    PAGE_OF_PROCESS.get()
}

/// Writes the task of a worker, for last words: `task 5 "scan" (worker 3)`. Safe in a signal
/// handler: it neither allocates nor locks.
pub(crate) fn describe_worker(index: u32, out: &mut dyn fmt::Write) -> fmt::Result {
    let Some(page) = page_if_there() else {
        return write!(out, "worker {index}");
    };
    let task = page.worker(index).task_id.load(Ordering::Relaxed);
    if task == 0 {
        return write!(out, "worker {index}, without a task,");
    }
    write!(out, "task {task} ")?;
    names::write(&page.worker_name(index).bytes, out)?;
    write!(out, "(worker {index})")
}

impl TableOffsets {
    fn new() -> Self {
        let mut end = 0;
        let mut table = |stride: usize, capacity: u64| {
            let begin = end;
            end = (begin + stride as u64 * capacity).next_multiple_of(PAGE);
            begin
        };
        table(size_of::<Header>(), 1);
        Self {
            wait_type_names: table(size_of::<WaitTypeName>(), WAIT_TYPES as u64),
            schedulers: table(size_of::<SchedulerRecord>(), SCHEDULERS.into()),
            threads: table(size_of::<ThreadRecord>(), THREADS.into()),
            workers: table(size_of::<WorkerRecord>(), WORKERS.into()),
            worker_names: table(size_of::<WorkerName>(), WORKERS.into()),
            waits: table(
                size_of::<WaitRecord>(),
                u64::from(SCHEDULERS) * WAIT_TYPES as u64,
            ),
            rings: table(1, u64::from(SCHEDULERS) * RING_STRIDE),
            worker_stacks: table(size_of::<WorkerStack>(), WORKERS.into()),
            end,
        }
    }
}

impl WritablePage {
    fn new() -> Result<Self, Error> {
        let places = TableOffsets::new();
        let file = memory_file(places.end)?;
        let base = map(&file, places.end)?;
        let page = Self { base, places, file };
        page.fill_header();
        Ok(page)
    }

    fn fill_header(&self) {
        let header = self.header();
        let places = &self.places;
        let set = |table: &TableLayout, offset: u64, stride: usize, capacity: u32| {
            table.offset.store(offset, Ordering::Relaxed);
            table.stride.store(
                stride.try_into().expect("records are small"),
                Ordering::Relaxed,
            );
            table.capacity.store(capacity, Ordering::Relaxed);
        };
        let wait_types = u32::try_from(WAIT_TYPES).expect("128");
        set(
            &header.wait_type_names,
            places.wait_type_names,
            size_of::<WaitTypeName>(),
            wait_types,
        );
        set(
            &header.schedulers,
            places.schedulers,
            size_of::<SchedulerRecord>(),
            SCHEDULERS,
        );
        set(
            &header.threads,
            places.threads,
            size_of::<ThreadRecord>(),
            THREADS,
        );
        set(
            &header.workers,
            places.workers,
            size_of::<WorkerRecord>(),
            WORKERS,
        );
        set(
            &header.worker_names,
            places.worker_names,
            size_of::<WorkerName>(),
            WORKERS,
        );
        set(
            &header.waits,
            places.waits,
            size_of::<WaitRecord>(),
            SCHEDULERS * wait_types,
        );
        let ring = usize::try_from(RING_STRIDE).expect("a megabyte");
        set(&header.rings, places.rings, ring, SCHEDULERS);
        set(
            &header.worker_stacks,
            places.worker_stacks,
            size_of::<WorkerStack>(),
            WORKERS,
        );

        header.version.store(VERSION, Ordering::Relaxed);
        header.pid.store(std::process::id(), Ordering::Relaxed);
        header.base_address.store(
            self.base.as_ptr().expose_provenance() as u64,
            Ordering::Relaxed,
        );
        let [first, second] = clock::rate().anchors();
        header
            .created_monotonic_ns
            .store(first.monotonic_ns, Ordering::Relaxed);
        store_anchor(&header.anchors[0], first);
        store_anchor(&header.anchors[1], second);
        wait_type_names::publish_all(self);
        header.magic.store(MAGIC, Ordering::Release);
    }

    /// Moves the later anchor to now, so that the rate becomes more precise with time.
    pub(crate) fn move_anchor(&self) {
        let header = self.header();
        let sequence = header.anchor_sequence.load(Ordering::Relaxed);
        // Runtimes share the page, so only one monitor may do this at a time.
        let taken = header.anchor_sequence.compare_exchange(
            sequence & !1,
            sequence | 1,
            Ordering::Acquire,
            Ordering::Relaxed,
        );
        if taken.is_ok() {
            store_anchor(&header.anchors[1], clock::moment());
            header
                .anchor_sequence
                .store((sequence & !1) + 2, Ordering::Release);
        }
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the header lies at the beginning of the mapping, which is never unmapped.
        unsafe { self.base.cast::<Header>().as_ref() }
    }

    pub(crate) fn wait_type_name(&self, number: usize) -> &WaitTypeName {
        assert!(number < WAIT_TYPES, "no wait type {number}");
        self.record(self.places.wait_type_names, number)
    }

    pub(crate) fn scheduler(&self, index: u32) -> &SchedulerRecord {
        assert!(index < SCHEDULERS, "no scheduler {index}");
        self.record(self.places.schedulers, index as usize)
    }

    pub(crate) fn thread(&self, index: u32) -> &ThreadRecord {
        assert!(index < THREADS, "no thread {index}");
        self.record(self.places.threads, index as usize)
    }

    pub(crate) fn worker(&self, index: u32) -> &WorkerRecord {
        assert!(index < WORKERS, "no worker {index}");
        self.record(self.places.workers, index as usize)
    }

    pub(crate) fn worker_name(&self, index: u32) -> &WorkerName {
        assert!(index < WORKERS, "no worker {index}");
        self.record(self.places.worker_names, index as usize)
    }

    pub(crate) fn worker_stack(&self, index: u32) -> &WorkerStack {
        assert!(index < WORKERS, "no worker {index}");
        self.record(self.places.worker_stacks, index as usize)
    }

    pub(crate) fn waits(&self, scheduler: u32) -> &[WaitRecord; WAIT_TYPES] {
        assert!(scheduler < SCHEDULERS, "no scheduler {scheduler}");
        self.record(self.places.waits, scheduler as usize)
    }

    pub(crate) fn ring(&self, scheduler: u32) -> (&RingHeader, &[RingEvent; EVENTS as usize]) {
        assert!(scheduler < SCHEDULERS, "no scheduler {scheduler}");
        let begin = self.places.rings + u64::from(scheduler) * RING_STRIDE;
        (self.record(begin, 0), self.record(begin + PAGE, 0))
    }

    /// The record `index` of the table at `offset`; callers have checked that it has that many.
    fn record<Record>(&self, offset: u64, index: usize) -> &Record {
        let offset = usize::try_from(offset).expect("64-bit") + index * size_of::<Record>();
        // SAFETY: tables lie within the mapping, one after the other (`TableOffsets`), and `index`
        // is below the capacity.
        let record = unsafe { self.base.add(offset) }.cast::<Record>();
        // SAFETY: tables begin at page borders, records are multiples of their alignment; they are
        // made of atomics, for which any bytes are valid; the mapping is never unmapped.
        unsafe { record.as_ref() }
    }
}

impl Drop for WritablePage {
    fn drop(&mut self) {
        let length = usize::try_from(self.places.end).expect("64-bit");
        // SAFETY: only a page that lost the race for `PAGE_OF_PROCESS` is dropped, before any
        // record was taken from it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), length) };
    }
}

fn store_anchor(anchor: &Anchor, moment: clock::ClockReading) {
    anchor.ticks.store(moment.ticks, Ordering::Relaxed);
    anchor
        .monotonic_ns
        .store(moment.monotonic_ns, Ordering::Relaxed);
}

/// A file in memory whose size is fixed for good, so that no access of an observer can fail.
fn memory_file(size: u64) -> Result<File, Error> {
    let failed = |doing| {
        move || Error::Page {
            doing,
            source: io::Error::last_os_error(),
        }
    };
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string without interior zeros.
    let descriptor = unsafe { libc::memfd_create(c"swtch-fiber".as_ptr(), flags) };
    if descriptor < 0 {
        return Err(failed("memfd_create")());
    }
    // SAFETY: a new descriptor without another owner.
    let file = unsafe { File::from_raw_fd(descriptor) };
    file.set_len(size).map_err(|source| Error::Page {
        doing: "setting its size",
        source,
    })?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: F_ADD_SEALS takes an int.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } < 0 {
        return Err(failed("sealing its size")());
    }
    Ok(file)
}

fn map(file: &File, size: u64) -> Result<NonNull<u8>, Error> {
    let length = usize::try_from(size).expect("64-bit");
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let address = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            protection,
            flags,
            file.as_raw_fd(),
            0,
        )
    };
    if address == libc::MAP_FAILED {
        return Err(Error::Page {
            doing: "mapping it",
            source: io::Error::last_os_error(),
        });
    }
    Ok(NonNull::new(address.cast()).expect("a mapping is never at address 0 by itself"))
}

/// Adds to a counter that has one writer at a time. A plain load and store: a locked instruction
/// would cost as much as the switch.
#[inline(always)]
pub(crate) fn add(counter: &std::sync::atomic::AtomicU64, amount: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(amount),
        Ordering::Relaxed,
    );
}

/// As [`add`], for small counters.
#[inline(always)]
pub(crate) fn add_small(counter: &std::sync::atomic::AtomicU32, amount: u32) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(amount),
        Ordering::Relaxed,
    );
}
