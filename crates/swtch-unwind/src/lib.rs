//! From the registers of a thread and its stack to the functions that have not returned, by the unwind rules
//! that compilers write for exceptions and for debuggers (`.eh_frame`, `.debug_frame`), so that no frame
//! pointers are needed; where code has no rules, by its frame pointer.
//!
//! ```text
//! registers, as far as they are known ─┐
//! a copy of the stack                 ─┼─▶ chain ─▶ addresses, and how it ended
//! the tables of the files of its code ─┘     └ a step: UnwindTables::caller
//! ```
//!
//! Three walk with it: the recorder's reader of stacks and `--backend proc`, on stacks of other processes
//! (`swtch-record`), and the stall detector, on a copy of a stack of its own process (`swtch-fiber`). What hangs
//! on a register that is not known is not found: a chain may end early, and says so.
//!
//! Why not framehop: it takes the frame pointer for known, and follows it where a function has no entry in the
//! tables; and it carries instruction and stack pointer from frame to frame and one register beside, so that what
//! hangs on another one is lost. It is the oracle of the tests: where both find callers, they agree.
//!
//! Pure: no memory is read but what is handed in.
#![forbid(unsafe_code)]

mod call;
mod chain;
mod expression;
mod parts;
mod registers;
mod tables;

pub use call::{CALL_BYTES, is_call};
pub use chain::{Chain, ChainEnd, CodeAt, RuntimeFrame, StackCode, StackCopy, chain};
pub use parts::parts_of;
pub use registers::{
    FIRST_ARGUMENT, FRAME_POINTER, REGISTERS, Registers, STACK_POINTER, without_signature,
};
pub use tables::{CallerFrame, FrameList, ListedFrames, TableSection, UnwindScratch, UnwindTables};
