//! Where things are in the memory of an interpreter: what it publishes itself from 3.13 on, and tables for 3.11 and 3.12,
//! whose layouts hold for the life of a minor version.
//!
//! Sources: `Include/internal/pycore_{runtime,interp,frame,runtime_structs}.h` and `Include/cpython/code.h` of 3.11.7,
//! 3.12.1 and 3.13.0; the numbers of the tables are what `offsetof` says of them on x86-64, where pointers and `long` have
//! 64 bits as on arm64.

use std::fmt;

use crate::ProcessMemory;

/// The versions whose layout is known, in words.
pub const SUPPORTED: &str = "CPython 3.11 to 3.13";

/// What the published table begins with.
const COOKIE: &[u8; 8] = b"xdebugpy";

/// Where things are. An offset is from the start of what it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offsets {
    pub interpreters_head: u64,
    pub interpreter_next: u64,
    pub threads_head: u64,
    pub thread_next: u64,
    pub thread_id: u64,
    /// From the state of a thread to its innermost frame, or to where that is counted from by the second.
    pub current_frame: (u64, Option<u64>),
    pub frame_previous: u64,
    pub frame_code: u64,
    pub frame_instruction: u64,
    pub entry: EntryMark,
    pub code_bytes: u64,
    pub code_name: u64,
    pub code_file: u64,
    pub code_lines: u64,
    pub code_first_line: u64,
    pub object_type: u64,
    pub type_name: u64,
    pub bytes_length: u64,
    pub bytes_start: u64,
    pub text_length: u64,
    pub text_state: u64,
    /// The bit of the state that the size of a character begins at.
    pub text_kind_bit: u32,
    pub ascii_bytes: u64,
    pub text_bytes: u64,
}

/// How a call of the interpreter by its own code shows in the list of frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryMark {
    /// The frame of the function that was called has a flag.
    Flag(u64),
    /// A frame of its own follows outwards: its owner has this number, or a larger one.
    OwnedByC {
        /// Where the owner is.
        owner: u64,
        /// `FRAME_OWNED_BY_CSTACK`.
        number: u8,
    },
}

/// An interpreter that is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownPython {
    /// Nothing says of which version it is.
    NoVersion,
    /// The layout of this version (`PY_VERSION_HEX`) is not known.
    Version(u32),
    /// It has no lock that all threads share, and another layout.
    FreeThreaded,
    /// What it says of its layout cannot be read.
    Unreadable,
}

impl UnknownPython {
    /// One that says that it is of another major version says nothing.
    fn of(version: Option<u32>) -> Self {
        match version {
            Some(version) if version >> 24 == 3 => Self::Version(version),
            _ => Self::NoVersion,
        }
    }
}

impl fmt::Display for UnknownPython {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoVersion => write!(f, "a Python that does not tell its version"),
            Self::Version(hex) => write!(f, "Python {}.{}", hex >> 24, hex >> 16 & 0xff),
            Self::FreeThreaded => write!(f, "free-threaded Python"),
            Self::Unreadable => write!(f, "a Python that does not tell its layout"),
        }
    }
}

/// What is common to all versions: objects, texts and bytes.
const COMMON: Offsets = Offsets {
    interpreters_head: 40,
    interpreter_next: 0,
    threads_head: 0,
    thread_next: 8,
    thread_id: 0,
    current_frame: (0, None),
    frame_previous: 8,
    frame_code: 0,
    frame_instruction: 56,
    entry: EntryMark::OwnedByC {
        owner: 70,
        number: 3,
    },
    code_bytes: 0,
    code_name: 128,
    code_file: 112,
    code_lines: 136,
    code_first_line: 68,
    object_type: 8,
    type_name: 24,
    bytes_length: 16,
    bytes_start: 32,
    text_length: 16,
    text_state: 32,
    text_kind_bit: 2,
    ascii_bytes: 40,
    text_bytes: 56,
};

const PYTHON_3_11: Offsets = Offsets {
    threads_head: 16,
    thread_id: 152,
    current_frame: (56, Some(8)),
    frame_previous: 48,
    frame_code: 32,
    entry: EntryMark::Flag(68),
    code_bytes: 184,
    code_first_line: 72,
    ascii_bytes: 48,
    text_bytes: 72,
    ..COMMON
};

const PYTHON_3_12: Offsets = Offsets {
    threads_head: 72,
    thread_id: 136,
    current_frame: (56, Some(0)),
    code_bytes: 192,
    ..COMMON
};

/// Places in the table that 3.13 publishes, as words from its start (`_Py_DebugOffsets`).
mod published {
    pub const VERSION: u64 = 1;
    pub const FREE_THREADED: u64 = 2;
    pub const INTERPRETERS_HEAD: u64 = 5;
    pub const INTERPRETER_NEXT: u64 = 8;
    pub const THREADS_HEAD: u64 = 9;
    pub const THREAD_NEXT: u64 = 21;
    pub const CURRENT_FRAME: u64 = 23;
    pub const THREAD_ID: u64 = 24;
    pub const FRAME_PREVIOUS: u64 = 29;
    pub const FRAME_CODE: u64 = 30;
    pub const FRAME_INSTRUCTION: u64 = 31;
    pub const FRAME_OWNER: u64 = 33;
    pub const CODE_FILE: u64 = 35;
    pub const CODE_NAME: u64 = 37;
    pub const CODE_LINES: u64 = 38;
    pub const CODE_FIRST_LINE: u64 = 39;
    pub const CODE_BYTES: u64 = 43;
    pub const OBJECT_TYPE: u64 = 45;
    pub const TYPE_NAME: u64 = 47;
}

impl Offsets {
    /// Those of the interpreter whose state is at this address.
    pub fn of(
        runtime: u64,
        version: Option<u32>,
        memory: &impl ProcessMemory,
    ) -> Result<Self, UnknownPython> {
        let mut cookie = [0; 8];
        if memory.read(runtime, &mut cookie) && cookie == *COOKIE {
            return Self::published(runtime, memory);
        }
        match version.map(|version| version >> 16) {
            Some(0x030b) => Ok(PYTHON_3_11),
            Some(0x030c) => Ok(PYTHON_3_12),
            _ => Err(UnknownPython::of(version)),
        }
    }

    fn published(runtime: u64, memory: &impl ProcessMemory) -> Result<Self, UnknownPython> {
        let at = |place: u64| memory.word(runtime.wrapping_add(8 * place));
        let version = at(published::VERSION).and_then(|version| u32::try_from(version).ok());
        if version.is_none_or(|version| version >> 16 != 0x030d) {
            return Err(UnknownPython::of(version));
        }
        if at(published::FREE_THREADED) != Some(0) {
            return Err(UnknownPython::FreeThreaded);
        }
        let read = || {
            let owner = at(published::FRAME_OWNER)?;
            Some(Self {
                interpreters_head: at(published::INTERPRETERS_HEAD)?,
                interpreter_next: at(published::INTERPRETER_NEXT)?,
                threads_head: at(published::THREADS_HEAD)?,
                thread_next: at(published::THREAD_NEXT)?,
                thread_id: at(published::THREAD_ID)?,
                current_frame: (at(published::CURRENT_FRAME)?, None),
                frame_previous: at(published::FRAME_PREVIOUS)?,
                frame_code: at(published::FRAME_CODE)?,
                frame_instruction: at(published::FRAME_INSTRUCTION)?,
                entry: EntryMark::OwnedByC { owner, number: 3 },
                code_bytes: at(published::CODE_BYTES)?,
                code_name: at(published::CODE_NAME)?,
                code_file: at(published::CODE_FILE)?,
                code_lines: at(published::CODE_LINES)?,
                code_first_line: at(published::CODE_FIRST_LINE)?,
                object_type: at(published::OBJECT_TYPE)?,
                type_name: at(published::TYPE_NAME)?,
                ..COMMON
            })
        };
        read().ok_or(UnknownPython::Unreadable)
    }
}
