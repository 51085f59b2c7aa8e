//! A page for tests, in this process. It is laid out as `swtch-fiber` does it, and the tests may
//! write anything to it.

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::Ordering;

use super::error::Error;
use super::mapping::{Access, FileMapping, SharedRecord};
use super::page::Page;
use crate::layout::{
    Header, MAGIC, RingEvent, RingHeader, SchedulerRecord, TableLayout, ThreadRecord, VERSION,
    WAIT_TYPES, WaitRecord, WaitTypeName, WorkerName, WorkerRecord, WorkerStack, event_kind,
    scheduler_status, thread_kind,
};

/// A page and its owner's mapping.
pub(super) struct TestPage {
    file: File,
    map: FileMapping,
}

impl TestPage {
    pub(super) const SCHEDULERS: usize = 2;
    pub(super) const THREADS: usize = 4;
    pub(super) const WORKERS: usize = 8;
    pub(super) const EVENTS: usize = 8;

    pub(super) fn new() -> Self {
        let page = Self::unsealed();
        // SAFETY: seals a file that is open.
        let sealed = unsafe {
            libc::fcntl(
                page.file.as_raw_fd(),
                libc::F_ADD_SEALS,
                libc::F_SEAL_SHRINK,
            )
        };
        assert_eq!(sealed, 0);
        page
    }

    pub(super) fn unsealed() -> Self {
        // SAFETY: the name ends in NUL; the result is checked.
        let fd = unsafe { libc::memfd_create(c"swtch-test".as_ptr(), libc::MFD_ALLOW_SEALING) };
        assert!(fd >= 0);
        // SAFETY: the descriptor is new and has no other owner.
        let file = unsafe { File::from_raw_fd(fd) };
        let len = 1 << 20;
        file.set_len(len).unwrap();
        let map = FileMapping::new(&file, usize::try_from(len).unwrap(), Access::Write).unwrap();
        let page = Self { file, map };
        page.fill();
        page
    }

    fn fill(&self) {
        let header = self.header();
        let ring = 4096 + Self::EVENTS * size_of::<RingEvent>();
        let mut end = 4096;
        let mut put = |table: &TableLayout, stride: usize, records: usize| {
            table.offset.store(end, Ordering::Relaxed);
            table
                .stride
                .store(u32::try_from(stride).unwrap(), Ordering::Relaxed);
            table
                .capacity
                .store(u32::try_from(records).unwrap(), Ordering::Relaxed);
            table
                .used
                .store(u32::try_from(records).unwrap(), Ordering::Relaxed);
            end = (end + u64::try_from(stride * records).unwrap()).next_multiple_of(64);
        };
        put(
            &header.wait_type_names,
            size_of::<WaitTypeName>(),
            WAIT_TYPES,
        );
        put(
            &header.schedulers,
            size_of::<SchedulerRecord>(),
            Self::SCHEDULERS,
        );
        put(&header.threads, size_of::<ThreadRecord>(), Self::THREADS);
        put(&header.workers, size_of::<WorkerRecord>(), Self::WORKERS);
        put(&header.worker_names, size_of::<WorkerName>(), Self::WORKERS);
        put(
            &header.waits,
            size_of::<WaitRecord>(),
            Self::SCHEDULERS * WAIT_TYPES,
        );
        put(&header.rings, ring, Self::SCHEDULERS);
        put(
            &header.worker_stacks,
            size_of::<WorkerStack>(),
            Self::WORKERS,
        );
        header.version.store(VERSION, Ordering::Relaxed);
        header.pid.store(std::process::id(), Ordering::Relaxed);
        header
            .base_address
            .store(0x7000_0000_0000, Ordering::Relaxed);
        header.anchors[0].ticks.store(1_000, Ordering::Relaxed);
        header.anchors[0].monotonic_ns.store(500, Ordering::Relaxed);
        header.anchors[1].ticks.store(3_000, Ordering::Relaxed);
        header.anchors[1]
            .monotonic_ns
            .store(1_500, Ordering::Relaxed);
        for scheduler in 0..Self::SCHEDULERS {
            self.scheduler(scheduler)
                .status
                .store(scheduler_status::FIBER, Ordering::Relaxed);
            let capacity = u64::try_from(Self::EVENTS).unwrap();
            self.ring(scheduler)
                .capacity
                .store(capacity, Ordering::Relaxed);
        }
        let thread: &ThreadRecord = self.record(&header.threads, 0);
        thread.tid.store(std::process::id(), Ordering::Relaxed);
        thread.kind.store(thread_kind::SCHEDULER, Ordering::Relaxed);
        header.magic.store(MAGIC, Ordering::Release);
    }

    pub(super) fn header(&self) -> &Header {
        self.map.at(0).unwrap()
    }

    pub(super) fn scheduler(&self, index: usize) -> &SchedulerRecord {
        self.record(&self.header().schedulers, index)
    }

    pub(super) fn worker(&self, index: usize) -> &WorkerRecord {
        self.record(&self.header().workers, index)
    }

    pub(super) fn wait(&self, index: usize) -> &WaitRecord {
        self.record(&self.header().waits, index)
    }

    pub(super) fn wait_type_name(&self, index: usize) -> &WaitTypeName {
        self.record(&self.header().wait_type_names, index)
    }

    pub(super) fn ring(&self, scheduler: usize) -> &RingHeader {
        self.record(&self.header().rings, scheduler)
    }

    /// Writes an event as a scheduler does: the slot, then the count. `task` yields to the next.
    pub(super) fn write_event(&self, scheduler: usize, task: u64) {
        let ring = self.ring(scheduler);
        let written = ring.written.load(Ordering::Relaxed);
        let slot = usize::try_from(written).unwrap() % Self::EVENTS;
        let rings = &self.header().rings;
        let stride = u64::from(rings.stride.load(Ordering::Relaxed));
        let end =
            rings.offset.load(Ordering::Relaxed) + stride * (u64::try_from(scheduler).unwrap() + 1);
        let place = usize::try_from(end).unwrap() - (Self::EVENTS - slot) * size_of::<RingEvent>();
        let event: &RingEvent = self.map.at(place).unwrap();
        event.ticks.store(10 * task, Ordering::Relaxed);
        event.from_word.store(task << 24 | 7, Ordering::Relaxed);
        event.to_task.store(task + 1, Ordering::Relaxed);
        let packed = 4711 | u64::from(event_kind::YIELD) << 32 | 1 << 40;
        event.packed.store(packed, Ordering::Relaxed);
        ring.written.store(written + 1, Ordering::Release);
    }

    /// Fills everything behind the header with one byte.
    pub(super) fn spoil(&self, byte: u8) {
        use std::os::unix::fs::FileExt;
        let bytes = vec![byte; (1 << 20) - 4096];
        self.file.write_all_at(&bytes, 4096).unwrap();
    }

    fn record<T: SharedRecord>(&self, table: &TableLayout, index: usize) -> &T {
        let stride = usize::try_from(table.stride.load(Ordering::Relaxed)).unwrap();
        let offset = usize::try_from(table.offset.load(Ordering::Relaxed)).unwrap();
        self.map.at(offset + index * stride).unwrap()
    }

    /// Opens the page as an observer does.
    pub(super) fn observe(&self) -> Result<Page, Error> {
        Page::of_file(std::process::id(), self.file.try_clone().unwrap())
    }
}
