//! Looks at the stacks of threads that wait, and of those that end their waits: the user side of `bpf/looks.h` and
//! `bpf/wakers.h`.
//!
//! ```text
//! recorder: Capture::look_sources ─descriptors─▶ helper: Looks::look ─LookedThread─▶ unwound, and forgotten
//! ```
//!
//! The helper is a process of its own: it sees the memory of others, and the recorder does not.

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::mem::offset_of;
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Release};

use libbpf_rs::libbpf_sys;
use swtch_core::{Pid, TaskKey, Tid, Timestamp};

use crate::error::Error;
use crate::lasting::{PlainRow, row_at};
use crate::mapped::Mapped;
use crate::skeleton::recorder::types::{deep_copy, look_row, waker_copy};
use crate::tree::is_to_be_continued;

/// The bytes that are read at once: the kernel fills 32 KiB (`bpf_seq_read`, `kernel/bpf/bpf_iter.c`, v6.18).
const READ: usize = 32 << 10;

/// Numbers of `enum look_refusal` in `bpf/stack_copy.h`.
const ALLOWED: u32 = 0;
const OF_OTHER_USER: u32 = 1;
const NOT_DUMPABLE: u32 = 2;
const OF_32_BIT: u32 = 3;
const OF_KERNEL_THREAD: u32 = 5;

/// Numbers of `enum waker_slot_state` in `bpf/wakers.h`.
const SLOT_FREE: u64 = 0;
const SLOT_IS_FULL: u64 = 2;

/// Number of registers in a row, by their numbers in DWARF.
pub const LOOK_REGISTERS: usize =
    (offset_of!(look_row, kernel) - offset_of!(look_row, registers)) / size_of::<u64>();

/// What a helper needs to look, to be handed over to it.
#[derive(Debug)]
pub struct LookSources {
    /// The program that looks at all tasks, loaded.
    pub program: OwnedFd,
    /// The map in which wakers leave copies.
    pub wakers: OwnedFd,
    /// The number of copies that it holds.
    pub waker_slots: u32,
    /// The map for copies of large stacks.
    pub deep: OwnedFd,
    /// The number of copies that it holds.
    pub deep_slots: u32,
}

/// Reads stacks: each [`Looks::look`] runs the program for all tasks, and takes the copies of wakers.
pub struct Looks {
    program: OwnedFd,
    bytes: Vec<u8>,
    wakers: Mapped<waker_copy>,
    deep: Mapped<deep_copy>,
}

/// Whose stack was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookedRole {
    /// The one that waits.
    Waiter,
    /// The one that ended the wait.
    Waker,
}

/// A wait, and the thread that waits or that ended it.
#[derive(Clone, Copy, Debug)]
pub struct LookedThread<'a> {
    /// The thread that waits.
    pub task: TaskKey,
    /// Whose process and stacks the rest is of.
    pub role: LookedRole,
    /// The process.
    pub pid: Pid,
    /// The thread.
    pub tid: Tid,
    /// Where the thread's own variables are, by which a runtime knows it (`pthread_self`).
    pub thread_pointer: u64,
    /// How often it had got a CPU; `None` where the kernel does not count that. As long as this holds, the thread is
    /// where it was.
    pub runs: Option<u64>,
    /// Tells the address space of the process from another: it has a new one after it has executed a program.
    pub memory: u64,
    /// When it was looked at, or ended the wait, on the trace clock.
    pub ts: Timestamp,
    /// The switch-out that the wait began with.
    pub out: Timestamp,
    /// Addresses in the kernel, the innermost first.
    pub kernel: &'a [u64],
    /// Its registers and its stack, or why they were not read.
    pub stack: Result<LookedStack<'a>, LookRefusal>,
}

/// What a thread that waits will go on with.
#[derive(Clone, Copy, Debug)]
pub struct LookedStack<'a> {
    /// The next instruction.
    pub pc: u64,
    /// By their numbers in DWARF.
    pub registers: [u64; LOOK_REGISTERS],
    /// Address of the first byte: the stack's pointer, or below it, where a function may keep something.
    pub start: u64,
    /// The stack from there on, as far as it was copied.
    pub bytes: &'a [u8],
}

/// The reason for which a stack was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LookRefusal {
    /// The process belongs to another user than the one whom the recorder works for.
    OtherUser,
    /// The process does not let its memory be read (`PR_SET_DUMPABLE`), or gained rights when it was executed.
    NotDumpable,
    /// It is 32-bit code.
    Is32Bit,
    /// The stack pointer points at no memory, or at memory of a file, a device or another process.
    NoStack,
    /// It is a thread of the kernel, which has none.
    KernelThread,
}

impl Looks {
    /// Looks by what the recorder has handed over.
    ///
    /// # Errors
    /// When the copies of wakers cannot be mapped.
    pub fn new(sources: LookSources) -> Result<Self, Error> {
        let slots = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        Ok(Self {
            wakers: Mapped::of_descriptor(sources.wakers.as_fd(), slots(sources.waker_slots))?,
            deep: Mapped::of_descriptor(sources.deep.as_fd(), slots(sources.deep_slots))?,
            program: sources.program,
            bytes: Vec::with_capacity(2 * READ),
        })
    }

    /// Looks at each thread in scope that waits and was not looked at since it began to, and at those who ended waits
    /// and have left a copy since. `take` gets as many as there are at a time.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn look(&mut self, mut take: impl FnMut(&[LookedThread<'_>])) -> Result<(), Error> {
        let mut walk = self.walk().map_err(Error::TaskWalk)?;
        let mut filled = 0;
        self.bytes.resize(2 * READ, 0);
        let ended = loop {
            match walk.read(&mut self.bytes[filled..filled + READ]) {
                Ok(0) => break Ok(()),
                Ok(read) => {
                    let there = filled + read;
                    let taken = take_rows(&self.bytes[..there], &self.deep, &mut take);
                    self.bytes.copy_within(taken..there, 0);
                    filled = there - taken;
                }
                Err(error) if is_to_be_continued(&error) => {}
                Err(error) => break Err(Error::TaskWalk(error)),
            }
        };
        self.take_wakers(&mut take);
        self.wipe_deep_copies();
        // Nothing of the stacks stays here.
        self.bytes.fill(0);
        std::hint::black_box(&self.bytes);
        ended
    }

    /// Takes the copies out of the slots that are full, wipes them, and gives the slots back.
    fn take_wakers(&mut self, take: &mut impl FnMut(&[LookedThread<'_>])) {
        const STATE: usize = offset_of!(waker_copy, state);
        for slot in 0..self.wakers.len() {
            let state = self.wakers.word(slot, STATE);
            if state.load(Acquire) != SLOT_IS_FULL {
                continue;
            }
            let copy = self.wakers.at(slot).as_ptr();
            // SAFETY: the slot is mapped, and nobody else reads or writes one that is full. A row is plain numbers.
            let row = unsafe { (&raw const (*copy).row).read() };
            // SAFETY: as above; the bytes are those of an array.
            let stack = unsafe { &mut (*copy).stack };
            let length = usize::try_from(row.bytes).unwrap_or(usize::MAX);
            take(&[LookedThread::of(
                &row,
                &stack[..length.min(stack.len())],
                LookedRole::Waker,
            )]);
            stack.fill(0);
            state.store(SLOT_FREE, Release);
        }
    }

    /// Also those of threads that ran meanwhile, whose rows were not told.
    fn wipe_deep_copies(&self) {
        for slot in 0..self.deep.len() {
            let state = self.deep.word(slot, offset_of!(deep_copy, is_full));
            if state.load(Acquire) == 0 {
                continue;
            }
            let copy = self.deep.at(slot).as_ptr();
            // SAFETY: the slot is mapped; the kernel side fills one during a look only, and none that is full.
            unsafe { (&raw mut (*copy).stack).write_bytes(0, 1) };
            state.store(0, Release);
        }
    }

    fn walk(&self) -> io::Result<File> {
        // SAFETY: the call takes a number, and returns a descriptor that nobody else has, or an error.
        let walk = unsafe { libbpf_sys::bpf_iter_create(self.program.as_raw_fd()) };
        if walk < 0 {
            return Err(io::Error::from_raw_os_error(-walk));
        }
        // SAFETY: as above.
        Ok(unsafe { File::from_raw_fd(walk) })
    }
}

/// Takes the whole rows; returns how many bytes they are.
fn take_rows(
    bytes: &[u8],
    deep: &Mapped<deep_copy>,
    take: &mut impl FnMut(&[LookedThread<'_>]),
) -> usize {
    let mut rows = Vec::new();
    let mut at = 0;
    while let Some((row, length)) = row_at::<look_row>(&bytes[at..]) {
        let start = at + length;
        let copied = usize::try_from(row.bytes).unwrap_or(usize::MAX);
        let slot = usize::try_from(row.deep_slot).unwrap_or(usize::MAX);
        let (stack, end) = match slot.checked_sub(1) {
            Some(slot) => (deep_stack(deep, slot, copied), start),
            None => match bytes.get(start..start.saturating_add(copied)) {
                Some(stack) => (stack, start + copied),
                None => break,
            },
        };
        rows.push((row, stack));
        at = end;
    }
    let threads = rows
        .iter()
        .map(|(row, stack)| LookedThread::of(row, stack, LookedRole::Waiter));
    take(&threads.collect::<Vec<_>>());
    at
}

/// The stack in a slot that a row names.
fn deep_stack(deep: &Mapped<deep_copy>, slot: usize, bytes: usize) -> &[u8] {
    if slot >= deep.len() {
        return &[];
    }
    let copy = deep.at(slot).as_ptr();
    // SAFETY: the slot is mapped as long as `deep` is, and the kernel side writes into none that is full; the bytes are
    // those of an array.
    let stack = unsafe { &(*copy).stack };
    &stack[..bytes.min(stack.len())]
}

// SAFETY: its fields are numbers.
unsafe impl PlainRow for look_row {}

impl fmt::Debug for Looks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Looks").finish_non_exhaustive()
    }
}

impl<'a> LookedThread<'a> {
    fn of(row: &'a look_row, bytes: &'a [u8], role: LookedRole) -> Self {
        let frames = usize::try_from(row.kernel_frames).unwrap_or(usize::MAX);
        let stack = match row.refusal {
            ALLOWED => Ok(LookedStack {
                pc: row.pc,
                registers: row.registers,
                start: row.start,
                bytes,
            }),
            OF_OTHER_USER => Err(LookRefusal::OtherUser),
            NOT_DUMPABLE => Err(LookRefusal::NotDumpable),
            OF_32_BIT => Err(LookRefusal::Is32Bit),
            OF_KERNEL_THREAD => Err(LookRefusal::KernelThread),
            _ => Err(LookRefusal::NoStack),
        };
        Self {
            task: TaskKey::new(row.task),
            role,
            kernel: &row.kernel[..frames.min(row.kernel.len())],
            pid: Pid::new(row.pid),
            tid: Tid::new(row.tid),
            thread_pointer: row.thread_pointer,
            runs: (row.runs > 0).then_some(row.runs),
            memory: row.memory,
            ts: Timestamp::from_ns(row.ts),
            out: Timestamp::from_ns(row.out_ts),
            stack,
        }
    }
}
