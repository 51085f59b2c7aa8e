//! The functions of programs in languages with a runtime of their own, read from the memory of the process.
//!
//! ```text
//! where the runtime is ─┐
//! a way to read memory ─┼─▶ Python ─▶ frames of a thread ─▶ function, file, line
//!                       ├─▶ Go ─▶ goroutines without a thread ─▶ what they wait for, their stacks
//!                       └─▶ Java ─▶ code that it has made ─▶ size of its frame, method
//! ```
//!
//! Pure: memory is read only through [`ProcessMemory`]. The process may have written anything there, so each walk has an
//! end, each text a length, and what does not fit together is left out.
#![forbid(unsafe_code)]

pub mod go;
pub mod java;
#[cfg(test)]
mod made_up;
mod memory;
pub mod python;

pub use memory::ProcessMemory;

/// Where a program is, in its language.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourcePlace {
    /// The function, with what it is in: `Worker.run`.
    pub function: String,
    /// The file of its source, as the runtime knows it; `None` where it does not say it.
    pub file: Option<String>,
    /// The line of the call that has not returned; `None` where the runtime does not say it.
    pub line: Option<u32>,
}
