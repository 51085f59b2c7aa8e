//! The page of another process: mapped once, checked once.
//!
//! The checked values are kept here. The target may change its header afterwards, but the header's
//! tables are not read again. A file that could shrink under the mapping is refused, because
//! reading beyond its end would kill the reader with a signal; `F_SEAL_SHRINK` rules that out for
//! good (fcntl(2)).

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};

use super::error::Error;
use super::find::{PidfdProcess, system};
use super::lease::Lease;
use super::mapping::{Access, FileMapping, SharedRecord};
use super::ring::RingPosition;
use super::target_clock::{Clock, now_ns};
use super::threads::pid_in_namespace;
use crate::layout::{
    Header, MAGIC, RingEvent, RingHeader, SchedulerRecord, TableLayout, ThreadRecord, VERSION,
    WAIT_TYPES, WaitRecord, WaitTypeName, WorkerName, WorkerRecord, WorkerStack, thread_kind,
};
use crate::names;

/// A larger page is refused: a million workers take only 300 MB.
const MOST_BYTES: u64 = 8 << 30;

/// Most records that a table may have.
const MOST_RECORDS: u32 = 1 << 22;

/// The page of a process.
#[derive(Debug)]
pub struct Page {
    process: PidfdProcess,
    file: File,
    inode: u64,
    map: FileMapping,
    base_address: u64,
    pub(super) tables: Tables,
}

/// A table all of whose records lie inside the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableBounds {
    offset: usize,
    stride: usize,
    capacity: usize,
    /// Offset of the number of records in use, in the header.
    used_at: usize,
}

/// The checked tables of a page.
#[derive(Debug)]
pub(super) struct Tables {
    pub(super) wait_type_names: TableBounds,
    pub(super) schedulers: TableBounds,
    pub(super) threads: TableBounds,
    pub(super) workers: TableBounds,
    pub(super) worker_names: TableBounds,
    pub(super) worker_stacks: TableBounds,
    pub(super) waits: TableBounds,
    pub(super) rings: TableBounds,
}

impl Page {
    /// Opens the page of a running process.
    ///
    /// # Errors
    /// When there is no such process, it has no scheduler, access is not permitted, or its page has
    /// another version or fails a check.
    pub fn of_process(pid: u32) -> Result<Self, Error> {
        let process = PidfdProcess::open(pid)?;
        let mut refused = Error::NoScheduler { pid };
        for file in process.candidates()? {
            match Checked::new(pid, &file) {
                Ok(checked) => return Ok(checked.into_page(process, file)),
                Err(error) => refused = error,
            }
        }
        Err(refused)
    }

    /// The descriptors through which the page is read, for a process that may not open it itself: a
    /// pid file descriptor of the target, and its memory file.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.process.handle(), self.file.as_fd()]
    }

    /// Opens the page of process `pid` by the [descriptors](Self::descriptors) that another process
    /// has sent. The checks of that process are not relied on: the page is checked as by
    /// [`Self::of_process`].
    ///
    /// # Errors
    /// When the page has another version or fails a check, or its process has ended.
    pub fn from_descriptors(pid: u32, [process, file]: [OwnedFd; 2]) -> Result<Self, Error> {
        let process = PidfdProcess::by_handle(pid, process);
        let file = File::from(file);
        let checked = Checked::new(pid, &file)?;
        Ok(checked.into_page(process, file))
    }

    /// The id of the process, in our pid namespace.
    pub const fn pid(&self) -> u32 {
        self.process.pid
    }

    /// Inode of the memory file. It differs after the process has executed another program.
    pub const fn inode(&self) -> u64 {
        self.inode
    }

    /// Returns true if the process has ended. Its page then stays as the process left it.
    pub fn has_ended(&self) -> bool {
        self.process.has_ended()
    }

    /// The target's clock; `None` while there are no two moments in both clocks yet.
    pub fn clock(&self) -> Option<Clock> {
        Clock::read(self.header()).map(Clock::sharpened)
    }

    /// The target's clock, for lengths up to now.
    pub(super) fn clock_and_now(&self) -> Result<(Clock, u64), Error> {
        let clock = self.clock().ok_or_else(|| {
            malformed(
                self.pid(),
                "its clock has no two moments yet: try again in a second",
            )
        })?;
        Ok((clock, clock.ticks(now_ns())))
    }

    /// Takes a lease, which has switches recorded. It needs write permission to the file.
    ///
    /// # Errors
    /// When the file may not be written.
    pub fn lease(&self) -> Result<Lease, Error> {
        let own = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        let file = File::options().read(true).write(true).open(own);
        let lease = file.and_then(|file| Lease::new(&file));
        lease.map_err(|source| system(self.pid(), "writing to the page", source))
    }

    /// Scheduler records that have been used since the process started.
    pub fn scheduler_count(&self) -> usize {
        self.used(self.tables.schedulers)
    }

    /// The CPU that a scheduler is bound to; `None` when it may run anywhere.
    pub fn scheduler_cpu(&self, scheduler: usize) -> Option<u32> {
        let record: &SchedulerRecord = self.record(self.tables.schedulers, scheduler)?;
        record.cpu_plus_one.load(Ordering::Relaxed).checked_sub(1)
    }

    /// A reader for the ring of a scheduler that starts at the next event.
    pub fn ring(&self, scheduler: usize) -> Option<RingPosition> {
        RingPosition::new(self, scheduler)
    }

    /// A reader for the ring of a scheduler that starts at its first event: for a scheduler that
    /// was created while the observer held a lease.
    pub fn ring_from_start(&self, scheduler: usize) -> Option<RingPosition> {
        RingPosition::new(self, scheduler).map(RingPosition::at_start)
    }

    /// Each thread that runs workers: its id in its own namespace, and the address *in the target*
    /// of the word that says which task runs on it.
    pub fn thread_words(&self) -> impl Iterator<Item = (u32, u64)> {
        let threads = self.tables.threads;
        (0..self.used(threads)).filter_map(move |index| {
            let record: &ThreadRecord = self.record(threads, index)?;
            let tid = record.tid.load(Ordering::Relaxed);
            let kind = record.kind.load(Ordering::Relaxed);
            let runs_workers = !matches!(kind, thread_kind::UNUSED | thread_kind::MONITOR);
            let in_file = threads.offset_of(index)? + std::mem::offset_of!(ThreadRecord, word);
            let address = self
                .base_address
                .checked_add(u64::try_from(in_file).ok()?)?;
            (runs_workers && tid != 0).then_some((tid, address))
        })
    }

    /// Name of a wait type; `None` for an unknown number.
    pub fn wait_type_name(&self, wait_type: u32) -> Option<String> {
        let index = usize::try_from(wait_type).ok()?;
        self.name(self.tables.wait_type_names, index)
    }

    pub(super) fn name(&self, table: TableBounds, index: usize) -> Option<String> {
        let record: &WaitTypeName = self.record(table, index)?;
        let name = names::load(&record.bytes);
        (!name.is_empty()).then_some(name)
    }

    /// Number of records in use, at most the capacity.
    pub(super) fn used(&self, table: TableBounds) -> usize {
        let used = self.map.at::<TableLayout>(table.used_at);
        let used = used.map_or(0, |table| table.used.load(Ordering::Acquire));
        usize::try_from(used)
            .unwrap_or(usize::MAX)
            .min(table.capacity)
    }

    /// One record; `None` when the index is not below the capacity.
    pub(super) fn record<T: SharedRecord>(&self, table: TableBounds, index: usize) -> Option<&T> {
        self.map.at(table.offset_of(index)?)
    }

    /// Header, offset of the first event and capacity of a ring. The events fill the end of the
    /// ring's stride.
    pub(super) fn events(&self, scheduler: usize) -> Option<(&RingHeader, usize, u64)> {
        let start = self.tables.rings.offset_of(scheduler)?;
        let header: &RingHeader = self.map.at(start)?;
        let capacity = header.capacity.load(Ordering::Relaxed);
        let events = usize::try_from(capacity).ok()?;
        let bytes = events.checked_mul(size_of::<RingEvent>())?;
        let fits = bytes.checked_add(size_of::<RingHeader>())? <= self.tables.rings.stride;
        let first = start + self.tables.rings.stride.checked_sub(bytes)?;
        (capacity.is_power_of_two() && fits).then_some((header, first, capacity))
    }

    pub(super) fn event_at(&self, offset: usize) -> Option<&RingEvent> {
        self.map.at(offset)
    }

    fn header(&self) -> &Header {
        self.map.at(0).expect("a header was checked to be there")
    }

    #[cfg(test)]
    pub(super) fn of_file(pid: u32, file: File) -> Result<Self, Error> {
        let process = PidfdProcess::open(pid)?;
        let checked = Checked::new(pid, &file)?;
        Ok(checked.into_page(process, file))
    }
}

// SAFETY: atomics alone, and padding that is an atomic.
unsafe impl SharedRecord for TableLayout {}

impl TableBounds {
    fn offset_of(self, index: usize) -> Option<usize> {
        (index < self.capacity).then(|| self.offset + index * self.stride)
    }
}

/// A mapping whose header passed all checks.
struct Checked {
    map: FileMapping,
    inode: u64,
    base_address: u64,
    tables: Tables,
}

impl Checked {
    fn new(pid: u32, file: &File) -> Result<Self, Error> {
        let facts = file
            .metadata()
            .map_err(|error| system(pid, "asking for the page's size", error))?;
        // SAFETY: asks for a number of a file that is open.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
            return Err(Error::Unsealed { pid });
        }
        // The file never becomes smaller than it was after the seal was seen.
        let size = facts
            .len()
            .min(file.metadata().map_or(0, |facts| facts.len()));
        let len = usize::try_from(size).unwrap_or(usize::MAX);
        if size > MOST_BYTES || len < size_of::<Header>() {
            return Err(malformed(pid, format!("it is {size} bytes long")));
        }
        let map = FileMapping::new(file, len, Access::Read)
            .map_err(|error| system(pid, "mapping the page", error))?;
        let header: &Header = map.at(0).expect("the file holds a header");
        check_identity(pid, header)?;
        let tables = check_tables(pid, header, len)?;
        let base_address = header.base_address.load(Ordering::Relaxed);
        Ok(Self {
            inode: facts.ino(),
            base_address,
            tables,
            map,
        })
    }

    fn into_page(self, process: PidfdProcess, file: File) -> Page {
        Page {
            process,
            file,
            inode: self.inode,
            map: self.map,
            base_address: self.base_address,
            tables: self.tables,
        }
    }
}

fn check_identity(pid: u32, header: &Header) -> Result<(), Error> {
    if header.magic.load(Ordering::Acquire) != MAGIC {
        return Err(malformed(
            pid,
            "it does not begin with the word that a page begins with",
        ));
    }
    let version = header.version.load(Ordering::Relaxed);
    if version != VERSION {
        return Err(Error::OtherVersion { pid, version });
    }
    // A forked child holds the file of its parent, but does not have the parent's schedulers.
    let maker = header.pid.load(Ordering::Relaxed);
    match pid_in_namespace(pid) {
        Some(own) if own == maker => Ok(()),
        Some(_) => Err(Error::NoScheduler { pid }),
        None => Err(Error::NoProcess { pid }),
    }
}

fn check_tables(pid: u32, header: &Header, len: usize) -> Result<Tables, Error> {
    fn place<T>(
        pid: u32,
        header: &Header,
        table: &TableLayout,
        len: usize,
    ) -> Result<TableBounds, Error> {
        let used_at = std::ptr::from_ref(table).addr() - std::ptr::from_ref(header).addr();
        let (size, align) = (size_of::<T>(), align_of::<T>());
        TableBounds::checked(table, used_at, (size, align), len)
            .map_err(|what| malformed(pid, format!("the table at {used_at}: {what}")))
    }
    Ok(Tables {
        wait_type_names: place::<WaitTypeName>(pid, header, &header.wait_type_names, len)?,
        schedulers: place::<SchedulerRecord>(pid, header, &header.schedulers, len)?,
        threads: place::<ThreadRecord>(pid, header, &header.threads, len)?,
        workers: place::<WorkerRecord>(pid, header, &header.workers, len)?,
        worker_names: place::<WorkerName>(pid, header, &header.worker_names, len)?,
        worker_stacks: place::<WorkerStack>(pid, header, &header.worker_stacks, len)?,
        waits: place::<WaitRecord>(pid, header, &header.waits, len)?,
        rings: place::<RingHeader>(pid, header, &header.rings, len)?,
    })
}

impl TableBounds {
    fn checked(
        table: &TableLayout,
        used_at: usize,
        (size, align): (usize, usize),
        len: usize,
    ) -> Result<Self, &'static str> {
        let offset = usize::try_from(table.offset.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        let stride = usize::try_from(table.stride.load(Ordering::Relaxed)).unwrap_or(usize::MAX);
        let capacity = table.capacity.load(Ordering::Relaxed);
        if capacity > MOST_RECORDS {
            return Err("more records than make sense");
        }
        let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
        if stride < size || !stride.is_multiple_of(align) || !offset.is_multiple_of(align) {
            return Err("records too small, or not aligned");
        }
        let end = stride
            .checked_mul(capacity)
            .and_then(|bytes| offset.checked_add(bytes));
        if offset < size_of::<Header>() || end.is_none_or(|end| end > len) {
            return Err("not inside the file");
        }
        Ok(Self {
            offset,
            stride,
            capacity,
            used_at,
        })
    }
}

fn malformed(pid: u32, what: impl Into<String>) -> Error {
    Error::Malformed {
        pid,
        what: what.into(),
    }
}

/// Index of a scheduler's wait type in the table of waits.
pub(super) const fn wait_index(scheduler: usize, wait_type: usize) -> usize {
    scheduler * WAIT_TYPES + wait_type
}

/// Reads a counter without ordering.
pub(super) fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::super::test_page::TestPage;
    use super::*;

    fn refusal(spoil: impl Fn(&Header)) -> String {
        let page = TestPage::new();
        spoil(page.header());
        page.observe().map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn a_page_of_another_version_is_refused_with_its_number() {
        let text = refusal(|header| header.version.store(77, Ordering::Relaxed));
        assert!(text.contains("version 77"), "{text}");
    }

    /// A memory file of any process can have this name.
    #[test]
    fn what_is_no_page_is_refused() {
        let text = refusal(|header| header.magic.store(1, Ordering::Relaxed));
        assert!(text.contains("begins with"), "{text}");
        let text = refusal(|header| header.pid.store(u32::MAX, Ordering::Relaxed));
        assert!(text.contains("no user-mode scheduler"), "{text}");
    }

    /// A reader of a file that shrinks is killed by a signal.
    #[test]
    fn a_page_that_may_shrink_is_refused() {
        let page = TestPage::unsealed();
        let error = page.observe().map(|_| ()).unwrap_err();
        assert!(matches!(error, Error::Unsealed { .. }), "{error}");
        assert!(error.advice().is_some());
    }

    /// Sets every number of every table to values that an attacker might choose.
    #[test]
    fn a_table_outside_of_the_file_is_refused() {
        type Pick = fn(&Header) -> &TableLayout;
        let tables: [Pick; 8] = [
            |h| &h.wait_type_names,
            |h| &h.schedulers,
            |h| &h.threads,
            |h| &h.workers,
            |h| &h.worker_names,
            |h| &h.worker_stacks,
            |h| &h.waits,
            |h| &h.rings,
        ];
        for table in tables {
            for offset in [0, 1, 8, u64::MAX, u64::MAX - 63, 1 << 40] {
                refusal(|header| table(header).offset.store(offset, Ordering::Relaxed));
            }
            for stride in [0, 1, 9, u32::MAX, 1 << 31] {
                refusal(|header| table(header).stride.store(stride, Ordering::Relaxed));
            }
            for capacity in [u32::MAX, 1 << 22, MOST_RECORDS + 1] {
                refusal(|header| table(header).capacity.store(capacity, Ordering::Relaxed));
            }
        }
    }

    /// `used` is read each time: the target may set it to anything.
    #[test]
    fn more_records_in_use_than_there_are_do_not_count() {
        let test = TestPage::new();
        let page = test.observe().unwrap();
        for table in [&test.header().schedulers, &test.header().threads] {
            table.used.store(u32::MAX, Ordering::Relaxed);
        }
        assert_eq!(page.scheduler_count(), TestPage::SCHEDULERS);
        assert!(page.thread_words().count() <= TestPage::THREADS);
        assert!(page.ring(usize::MAX).is_none());
        assert!(page.scheduler_cpu(TestPage::SCHEDULERS).is_none());
    }

    /// The header is read once; later changes of it do not move the tables.
    #[test]
    fn tables_stay_where_they_were_checked() {
        let test = TestPage::new();
        let page = test.observe().unwrap();
        let before: Vec<_> = page.thread_words().collect();
        assert!(!before.is_empty());
        test.header()
            .threads
            .offset
            .store(u64::MAX, Ordering::Relaxed);
        test.header().threads.stride.store(3, Ordering::Relaxed);
        assert_eq!(page.thread_words().collect::<Vec<_>>(), before);
    }

    /// A process that may not open the file can read it through descriptors, and sees the target
    /// end.
    #[test]
    fn a_page_can_be_handed_on_as_descriptors() {
        let test = TestPage::new();
        let page = test.observe().unwrap();
        let copies = page
            .descriptors()
            .map(|fd| fd.try_clone_to_owned().unwrap());
        let handed_on = Page::from_descriptors(page.pid(), copies).unwrap();
        assert_eq!(handed_on.inode(), page.inode());
        assert_eq!(handed_on.scheduler_count(), page.scheduler_count());
        assert!(!handed_on.has_ended());
        let turned_round = page
            .descriptors()
            .map(|fd| fd.try_clone_to_owned().unwrap());
        let [process, file] = turned_round;
        assert!(Page::from_descriptors(page.pid(), [file, process]).is_err());
    }

    #[test]
    fn the_address_of_a_word_is_that_of_the_target() {
        let test = TestPage::new();
        let page = test.observe().unwrap();
        let base = test.header().base_address.load(Ordering::Relaxed);
        let (tid, address) = page.thread_words().next().unwrap();
        assert_eq!(tid, std::process::id());
        assert_eq!(
            address - base,
            test.header().threads.offset.load(Ordering::Relaxed)
        );
    }
}
