//! Stacks: how a row names them, and what they consist of.
//!
//! A row holds only the numbers of its stacks, because few stacks occur many times. Kernel and user
//! stacks are numbered apart.

use std::fmt;

use crate::ids::Pid;
use crate::reason::words;

words! {
    /// The part of a stack that frames belong to.
    #[derive(Default)]
    StackKind {
        #[default]
        Kernel = "kernel": "frames in the kernel",
        User = "user": "frames in the process",
    }
}

words! {
    /// Where the frames of a user stack end, outwards.
    StackEnd {
        Start = "start": "where the thread began: the stack is whole",
        Guessed = "guessed": "where the thread began, or near it; a caller was found on the stack, past code without unwind tables or a frame pointer that is not known",
        Cut = "cut": "the stack was larger than the copy of it",
        NoTables = "no_tables": "code that no unwind tables describe, and that keeps no frame pointer",
        Unknown = "unknown": "what the tables led to was no caller",
        Deep = "deep": "as many frames as are kept",
    }
}

/// The numbers of the stacks at one place in a task: its part in the kernel and its part in the
/// process. Either may be missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StackNumbers {
    /// Number of the kernel stack.
    pub kernel: Option<u32>,
    /// Number of the user stack.
    pub user: Option<u32>,
}

impl StackNumbers {
    /// The numbers that are there, each with its kind.
    pub fn iter(self) -> impl Iterator<Item = (StackKind, u32)> {
        let kinds = [
            (StackKind::Kernel, self.kernel),
            (StackKind::User, self.user),
        ];
        kinds
            .into_iter()
            .filter_map(|(kind, number)| Some((kind, number?)))
    }
}

/// One distinct stack, as a list of frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stack {
    /// Number of the stack, by which rows name it.
    pub id: u32,
    /// The kind of the frames: the kernel's or the process's.
    pub kind: StackKind,
    /// The process whose addresses these are; `None` for a kernel stack.
    pub pid: Option<Pid>,
    /// Numbers of the frames, the innermost (leaf) first.
    pub frames: Vec<u32>,
    /// Where they end, if it is known: that of the kernel and of older traces is not.
    pub end: Option<StackEnd>,
}

/// One distinct frame. Fields that symbolisation could not fill are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame {
    /// Number of the frame, by which stacks name it.
    pub id: u32,
    /// Address in the address space where it was first seen; that of a caller is inside of its call.
    pub address: u64,
    /// Name of the function, demangled; `None` when there is no symbol.
    pub symbol: Option<String>,
    /// Path of the executable or library that contains it, or `[kernel]`.
    pub module: Option<String>,
    /// Address in the file that contains it, as the file's symbols state addresses.
    pub file_address: Option<u64>,
    /// Build id of that file, in hexadecimal digits: another machine finds the same code by it.
    pub build_id: Option<String>,
    /// Distance from the start of the function, in bytes; `None` for one that was inlined into the next frame.
    pub offset: Option<u64>,
    /// Source file of the function's code, from debug information.
    pub file: Option<String>,
    /// Line in the source file, from 1.
    pub line: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_stacks_that_are_there_are_listed() {
        let stacks = StackNumbers {
            kernel: None,
            user: Some(7),
        };
        assert_eq!(stacks.iter().collect::<Vec<_>>(), [(StackKind::User, 7)]);
        assert_eq!(StackNumbers::default().iter().count(), 0);
    }
}
