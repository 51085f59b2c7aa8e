//! Where things are in the memory of an interpreter: what it publishes itself from 3.13 on, in a form that each minor version
//! has anew, and tables for 3.11 and 3.12. They hold for the life of a minor version.
//!
//! Sources: `Include/internal/pycore_{runtime,interp,frame,runtime_structs}.h` and `Include/cpython/code.h` of 3.11.7,
//! 3.12.1 and 3.13.0; the numbers of the tables are what `offsetof` says of them on x86-64, where pointers and `long` have
//! 64 bits as on arm64.

use std::fmt;

use crate::ProcessMemory;

/// The versions whose layout is known, in words.
pub const SUPPORTED: &str = "CPython 3.11 to 3.15";

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
    pub thread_interpreter: u64,
    pub lock: LockPlace,
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

/// Where the lock is that threads need to run code of Python.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockPlace {
    /// In the state of the runtime: the process has one.
    OfProcess(u64),
    /// The state of an interpreter points at it: interpreters may have one each.
    OfInterpreter(u64),
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
        /// The first that is no owner of a function: `FRAME_OWNED_BY_CSTACK`, from 3.14 on `FRAME_OWNED_BY_INTERPRETER`.
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
    thread_interpreter: 16,
    lock: LockPlace::OfInterpreter(384),
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
    lock: LockPlace::OfProcess(360),
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

/// Where the parts begin of the table that an interpreter publishes, as words from its start (`_Py_DebugOffsets`). Each
/// begins with the size of what it is of.
struct Published {
    version: u32,
    interpreter_lock: u64,
    thread: u64,
    /// Within the part of a thread.
    thread_id: u64,
    frame: u64,
    code: u64,
    object: u64,
    kind: u64,
}

/// `Include/internal/pycore_runtime.h` of 3.13.0, `Include/internal/pycore_debug_offsets.h` of 3.14.10 and 3.15.2.
const PUBLISHED: [Published; 3] = [
    Published {
        version: 0x030d,
        interpreter_lock: 14,
        thread: 19,
        thread_id: 5,
        frame: 28,
        code: 34,
        object: 44,
        kind: 46,
    },
    Published {
        version: 0x030e,
        interpreter_lock: 15,
        thread: 22,
        thread_id: 5,
        frame: 31,
        code: 39,
        object: 50,
        kind: 52,
    },
    Published {
        version: 0x030f,
        interpreter_lock: 15,
        thread: 22,
        thread_id: 8,
        frame: 39,
        code: 47,
        object: 58,
        kind: 60,
    },
];

/// Places that are the same in each of them.
mod published {
    pub const VERSION: u64 = 1;
    pub const FREE_THREADED: u64 = 2;
    pub const INTERPRETERS_HEAD: u64 = 5;
    pub const INTERPRETER_NEXT: u64 = 8;
    pub const THREADS_HEAD: u64 = 9;
    // Within the part of a thread.
    pub const THREAD_NEXT: u64 = 2;
    pub const THREAD_INTERPRETER: u64 = 3;
    pub const CURRENT_FRAME: u64 = 4;
    // Within the part of a frame.
    pub const FRAME_PREVIOUS: u64 = 1;
    pub const FRAME_CODE: u64 = 2;
    pub const FRAME_INSTRUCTION: u64 = 3;
    pub const FRAME_OWNER: u64 = 5;
    // Within the part of a code object.
    pub const CODE_FILE: u64 = 1;
    pub const CODE_NAME: u64 = 3;
    pub const CODE_LINES: u64 = 4;
    pub const CODE_FIRST_LINE: u64 = 5;
    pub const CODE_BYTES: u64 = 9;
    // Within the parts of an object and of a type.
    pub const OBJECT_TYPE: u64 = 1;
    pub const TYPE_NAME: u64 = 1;
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
        let is_its = |known: &&Published| version.is_some_and(|hex| hex >> 16 == known.version);
        let Some(table) = PUBLISHED.iter().find(is_its) else {
            return Err(UnknownPython::of(version));
        };
        if at(published::FREE_THREADED) != Some(0) {
            return Err(UnknownPython::FreeThreaded);
        }
        let thread = |place: u64| at(table.thread + place);
        let frame = |place: u64| at(table.frame + place);
        let code = |place: u64| at(table.code + place);
        let read = || {
            Some(Self {
                interpreters_head: at(published::INTERPRETERS_HEAD)?,
                interpreter_next: at(published::INTERPRETER_NEXT)?,
                threads_head: at(published::THREADS_HEAD)?,
                thread_next: thread(published::THREAD_NEXT)?,
                thread_id: thread(table.thread_id)?,
                thread_interpreter: thread(published::THREAD_INTERPRETER)?,
                lock: LockPlace::OfInterpreter(at(table.interpreter_lock)?),
                current_frame: (thread(published::CURRENT_FRAME)?, None),
                frame_previous: frame(published::FRAME_PREVIOUS)?,
                frame_code: frame(published::FRAME_CODE)?,
                frame_instruction: frame(published::FRAME_INSTRUCTION)?,
                entry: EntryMark::OwnedByC {
                    owner: frame(published::FRAME_OWNER)?,
                    number: 3,
                },
                code_bytes: code(published::CODE_BYTES)?,
                code_name: code(published::CODE_NAME)?,
                code_file: code(published::CODE_FILE)?,
                code_lines: code(published::CODE_LINES)?,
                code_first_line: code(published::CODE_FIRST_LINE)?,
                object_type: at(table.object + published::OBJECT_TYPE)?,
                type_name: at(table.kind + published::TYPE_NAME)?,
                ..COMMON
            })
        };
        read().ok_or(UnknownPython::Unreadable)
    }
}
