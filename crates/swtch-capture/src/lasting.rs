//! Threads that were blocked all the time, and those that could run at the end: the user side of
//! `bpf/lasting.h`.
//!
//! ```text
//! records start ─▶ first walk: who is blocked, and the kernel's count of its switches
//!       …
//! second walk: who is blocked, and that count again: a thread with the same count has not run in between;
//!              and threads that could run but have no CPU, and since when
//! ```
//!
//! What this does *not* see: a thread that ran for a moment in between, which makes a switch and is in
//! the records; and one that was started after the first walk, of which the records tell, too.

use std::io;

use libbpf_rs::{Iter, Link};
use rustc_hash::FxHashMap;
use swtch_core::{CpuId, Pid, TaskAtEnd, TaskKey, Tid, Timestamp};

use crate::error::Error;
use crate::load::tell;
use crate::skeleton::recorder::types::{self, lasting_name, lasting_runnable, lasting_thread};
use crate::tree::is_to_be_continued;

/// Numbers of `enum lasting_kind` in `bpf/lasting.h`.
const THREAD: u32 = 1;
const NAME: u32 = 2;
const RUNNABLE: u32 = 3;

/// The bytes that are read at once. For each read the kernel gathers rows in a buffer of eight pages, or until they are
/// as many bytes as were asked for (`bpf_seq_read`, `kernel/bpf/bpf_iter.c`, v6.18). With pages of 4 KB this is twice
/// that buffer, so a read leaves nothing behind; with larger pages the next read brings the rest.
const READ: usize = 64 << 10;

/// A thread that was blocked from before a recording began until its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastingWait {
    /// Its process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// Name of the process's first thread.
    pub program: Vec<u8>,
    /// The kernel's state bits, as in a switch.
    pub state: u32,
    /// Number of the system call that it is in; `None` for a kernel thread, outside of a call, as in a
    /// page fault, and in a call of 32-bit code.
    pub syscall: Option<u32>,
    /// True if it is a kernel thread, or a worker of `io_uring`.
    pub is_kthread: bool,
    /// The kernel's function that waits; `None` where the kernel did not tell.
    pub function: Option<String>,
    /// The moment at which it was last given a CPU, on the trace clock; `None` where the kernel does not tell. It may
    /// be before the machine's clock began, in a guest that was restored: then it is 0.
    pub ran: Option<Timestamp>,
}

/// The tasks that the walk at the end found.
#[derive(Clone, Debug, Default)]
pub struct LastingTasks {
    /// Threads that were blocked all the time.
    pub blocked: Vec<LastingWait>,
    /// Threads that could run and had no CPU.
    pub runnable: Vec<TaskAtEnd>,
}

/// Both walks over the tasks. Both are opened when the recording begins, because the recorder gives up the right
/// to open one before the second is made.
pub(crate) struct LastingWalks {
    first: Iter,
    second: Iter,
    /// The kernel's count of each thread that was blocked at the first walk.
    counts: FxHashMap<(u32, u64), u64>,
}

impl LastingWalks {
    pub fn open(link: &Link) -> Result<Self, Error> {
        let open = || Iter::new(link).map_err(|source| Error::TaskWalk(io::Error::other(source)));
        Ok(Self {
            first: open()?,
            second: open()?,
            counts: FxHashMap::default(),
        })
    }

    /// Notes who is blocked now.
    pub fn first_walk(&mut self, shared: &mut types::bss) -> Result<(), Error> {
        ask_where(shared, false);
        let counts = &mut self.counts;
        read_rows(&mut self.first, |row| {
            if let LastingRow::Thread(thread) = row {
                counts.insert((thread.tid, thread.start_boottime_ns), thread.count);
            }
        })
    }

    /// The threads that have been blocked since [`Self::first_walk`], and those that could run now.
    pub fn second_walk(mut self, shared: &mut types::bss) -> Result<LastingTasks, Error> {
        ask_where(shared, true);
        let mut names: FxHashMap<u64, String> = FxHashMap::default();
        let (mut unmoved, mut runnable) = (Vec::new(), Vec::new());
        let counts = &self.counts;
        read_rows(&mut self.second, |row| match row {
            LastingRow::Name(name) => {
                let text = text_of(&name.name);
                names.insert(name.function, String::from_utf8_lossy(&text).into_owned());
            }
            LastingRow::Thread(thread) => {
                let before = counts.get(&(thread.tid, thread.start_boottime_ns));
                if before == Some(&thread.count) {
                    unmoved.push(thread);
                }
            }
            LastingRow::Runnable(task) => runnable.push(at_end(&task)),
        })?;
        let named = unmoved.iter().map(|thread| LastingWait::of(thread, &names));
        Ok(LastingTasks {
            blocked: named.collect(),
            runnable,
        })
    }
}

impl LastingWait {
    fn of(thread: &lasting_thread, names: &FxHashMap<u64, String>) -> Self {
        Self {
            pid: Pid::new(thread.pid),
            tid: Tid::new(thread.tid),
            program: text_of(&thread.program),
            state: thread.state,
            syscall: u32::try_from(thread.syscall).ok(),
            is_kthread: thread.is_kthread != 0,
            function: names.get(&thread.function).cloned(),
            ran: (thread.ran_ts != 0).then(|| Timestamp::from_ns(trace_time(thread.ran_ts))),
        }
    }
}

fn at_end(row: &lasting_runnable) -> TaskAtEnd {
    let known = |ts| (ts != 0).then(|| Timestamp::from_ns(ts));
    TaskAtEnd {
        task: TaskKey::new(row.task),
        in_scope: true,
        cpu: CpuId::new(u16::try_from(row.cpu).unwrap_or(u16::MAX)),
        left: known(row.out_ts),
        woken: known(row.wake_ts),
        runs_since: None,
    }
}

/// A time that may lie before the trace clock began, where the kernel side's difference is negative.
const fn trace_time(ts: u64) -> u64 {
    if ts > i64::MAX as u64 { 0 } else { ts }
}

/// A row of the iterator.
enum LastingRow {
    Thread(lasting_thread),
    Name(lasting_name),
    Runnable(lasting_runnable),
}

/// Reads an iterator to its end. The kernel never cuts a row in two, but a read may.
fn read_rows(walk: &mut Iter, mut take: impl FnMut(LastingRow)) -> Result<(), Error> {
    use io::Read as _;
    let mut bytes = Vec::with_capacity(READ);
    let mut buffer = vec![0; READ];
    loop {
        match walk.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => {
                bytes.extend_from_slice(&buffer[..read]);
                let taken = take_rows(&bytes, &mut take);
                bytes.drain(..taken);
            }
            Err(error) if is_to_be_continued(&error) => {}
            Err(error) => return Err(Error::TaskWalk(error)),
        }
    }
}

/// Takes the whole rows; returns how many bytes they are.
fn take_rows(bytes: &[u8], take: &mut impl FnMut(LastingRow)) -> usize {
    let mut at = 0;
    while let Some(kind) = bytes[at..].first_chunk() {
        let rest = &bytes[at..];
        let row = match u32::from_ne_bytes(*kind) {
            THREAD => row_at(rest).map(|(row, length)| (LastingRow::Thread(row), length)),
            NAME => row_at(rest).map(|(row, length)| (LastingRow::Name(row), length)),
            RUNNABLE => row_at(rest).map(|(row, length)| (LastingRow::Runnable(row), length)),
            kind => unreachable!("the kernel side writes no rows of kind {kind}"),
        };
        let Some((row, length)) = row else {
            break;
        };
        take(row);
        at += length;
    }
    at
}

/// Types of rows that iterators write.
///
/// # Safety
/// Every sequence of bytes of its size is a value of the type.
pub(crate) unsafe trait PlainRow: Copy {}
// SAFETY: its fields are numbers.
unsafe impl PlainRow for lasting_thread {}
// SAFETY: its fields are numbers.
unsafe impl PlainRow for lasting_name {}
// SAFETY: its fields are numbers.
unsafe impl PlainRow for lasting_runnable {}

/// The row at the start, and its length; `None` if not all of it is there.
pub(crate) fn row_at<Row: PlainRow>(bytes: &[u8]) -> Option<(Row, usize)> {
    let row = bytes.get(..size_of::<Row>())?;
    // SAFETY: as many bytes as the type has are there, and any bytes are a value of it.
    let value = unsafe { row.as_ptr().cast::<Row>().read_unaligned() };
    Some((value, row.len()))
}

/// The bytes before the first NUL of an array of C's `char`.
fn text_of(text: &[i8]) -> Vec<u8> {
    let bytes = text.iter().map(|c| c.to_ne_bytes()[0]);
    bytes.take_while(|c| *c != 0).collect()
}

/// Sets whether the kernel side asks where threads wait.
fn ask_where(shared: &mut types::bss, on: bool) {
    tell(&mut shared.lasting_asks_where, on);
}
