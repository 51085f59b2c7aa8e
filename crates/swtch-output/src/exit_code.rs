//! Exit codes of the program, besides 0 and that of a command that it ran.

/// A check that was asked for, and failed.
pub const CHECK_FAILED: u8 = 1;

/// An error, or an answer that could not be given.
pub const FAILED: u8 = 2;
