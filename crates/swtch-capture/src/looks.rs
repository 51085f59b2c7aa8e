//! Looks at the stacks of threads that wait: the user side of `bpf/looks.h`.
//!
//! ```text
//! recorder: Capture::look_program ─descriptor─▶ helper: Looks::look ─LookedThread─▶ unwound, and forgotten
//! ```
//!
//! The helper is a process of its own: it sees the memory of others, and the recorder does not.

use std::fs::File;
use std::io::{self, Read as _};
use std::mem::offset_of;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

use libbpf_rs::libbpf_sys;
use swtch_core::{Pid, TaskKey, Timestamp};

use crate::error::Error;
use crate::lasting::{PlainRow, row_at};
use crate::skeleton::recorder::types::look_row;
use crate::tree::is_to_be_continued;

/// The bytes that are read at once: the kernel fills 32 KiB (`bpf_seq_read`, `kernel/bpf/bpf_iter.c`, v6.18).
const READ: usize = 32 << 10;

/// Numbers of `enum look_refusal` in `bpf/looks.h`.
const ALLOWED: u32 = 0;
const OF_OTHER_USER: u32 = 1;
const NOT_DUMPABLE: u32 = 2;
const OF_32_BIT: u32 = 3;

/// Number of registers in a row, by their numbers in DWARF.
pub const LOOK_REGISTERS: usize =
    (offset_of!(look_row, memory) - offset_of!(look_row, registers)) / size_of::<u64>();

/// The program that looks, loaded: each [`Looks::look`] runs it for all tasks.
#[derive(Debug)]
pub struct Looks {
    program: OwnedFd,
    bytes: Vec<u8>,
}

/// A thread that waits.
#[derive(Clone, Copy, Debug)]
pub struct LookedThread<'a> {
    /// The thread.
    pub task: TaskKey,
    /// Its process.
    pub pid: Pid,
    /// Tells the address space of the process from another: it has a new one after it has executed a program.
    pub memory: u64,
    /// When it was looked at, on the trace clock.
    pub ts: Timestamp,
    /// The switch-out that its wait began with.
    pub out: Timestamp,
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
    /// The stack from its pointer on, as far as it was copied.
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
}

impl Looks {
    /// Looks by a program that was loaded.
    pub fn new(program: OwnedFd) -> Self {
        Self {
            program,
            bytes: Vec::with_capacity(2 * READ),
        }
    }

    /// Looks at each thread in scope that waits and was not looked at since it began to.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn look(&mut self, mut take: impl FnMut(LookedThread<'_>)) -> Result<(), Error> {
        let mut walk = self.walk().map_err(Error::TaskWalk)?;
        let mut filled = 0;
        self.bytes.resize(2 * READ, 0);
        let ended = loop {
            match walk.read(&mut self.bytes[filled..filled + READ]) {
                Ok(0) => break Ok(()),
                Ok(read) => {
                    let there = filled + read;
                    let taken = take_rows(&self.bytes[..there], &mut take);
                    self.bytes.copy_within(taken..there, 0);
                    filled = there - taken;
                }
                Err(error) if is_to_be_continued(&error) => {}
                Err(error) => break Err(Error::TaskWalk(error)),
            }
        };
        // Nothing of the stacks stays here.
        self.bytes.fill(0);
        std::hint::black_box(&self.bytes);
        ended
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
fn take_rows(bytes: &[u8], take: &mut impl FnMut(LookedThread<'_>)) -> usize {
    let mut at = 0;
    while let Some((row, length)) = row_at::<look_row>(&bytes[at..]) {
        let start = at + length;
        let end = start + row.bytes as usize;
        let Some(stack) = bytes.get(start..end) else {
            break;
        };
        take(LookedThread::of(&row, stack));
        at = end;
    }
    at
}

impl PlainRow for look_row {}

impl<'a> LookedThread<'a> {
    fn of(row: &look_row, bytes: &'a [u8]) -> Self {
        let stack = match row.refusal {
            ALLOWED => Ok(LookedStack {
                pc: row.pc,
                registers: row.registers,
                bytes,
            }),
            OF_OTHER_USER => Err(LookRefusal::OtherUser),
            NOT_DUMPABLE => Err(LookRefusal::NotDumpable),
            OF_32_BIT => Err(LookRefusal::Is32Bit),
            _ => Err(LookRefusal::NoStack),
        };
        Self {
            task: TaskKey::new(row.task),
            pid: Pid::new(row.pid),
            memory: row.memory,
            ts: Timestamp::from_ns(row.ts),
            out: Timestamp::from_ns(row.out_ts),
            stack,
        }
    }
}
