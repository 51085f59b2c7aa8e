//! Takes the tree of the requested processes and their descendants without missing one: the user
//! side of `bpf/tree.h`.
//!
//! ```text
//! hooks attached ─▶ take: every task is visited ─▶ records start ─▶ count ─ … ─▶ count ─▶ detach
//!                   (the hooks mark what is forked meanwhile)       └── the kernel's own ──┘
//! ```
//!
//! Both counts lie inside the time in which records are written, so no switch is counted that could
//! not be recorded.

use std::io::{self, Read as _};

use libbpf_rs::{Iter, Link};

use crate::error::Error;
use crate::load::tell;
use crate::scope::Children;
use crate::settings::BeforeWalk;
use crate::skeleton::recorder::types;

/// The kernel's own data on the processes that are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeCount {
    /// Processes in scope when the recording began: those requested, and their descendants.
    pub processes: u64,
    /// Switches that the kernel counted (`nvcsw + nivcsw`) during the recording, of those threads
    /// that live at its end. Threads that ended meanwhile are not included.
    pub switches: u64,
    /// Tasks that could not be examined when the tree was taken, because too many ended at that
    /// moment or no slot was free for their state. If it is not 0, processes may be missing.
    pub missed: u64,
}

/// The tree as it was taken, with the iterators for both counts.
pub(crate) struct RecordedTree {
    start: Iter,
    end: Iter,
    processes: u64,
    missed: u64,
}

impl RecordedTree {
    /// Marks the descendants of the targets, and opens the iterators for later counts: opening
    /// needs privilege, reading does not.
    pub fn take(
        link: &Link,
        shared: &mut types::bss,
        children: Children,
        before_walk: Option<&BeforeWalk>,
    ) -> Result<Self, Error> {
        let open = || Iter::new(link).map_err(|source| Error::TaskWalk(io::Error::other(source)));
        let (mut walk, start, end) = (open()?, open()?, open()?);
        set_taking(shared, children == Children::Recorded);
        if let Some(before_walk) = before_walk {
            before_walk.happen();
        }
        let walked = walk_all(&mut walk, shared);
        set_taking(shared, false);
        walked?;
        Ok(Self {
            start,
            end,
            processes: read(&raw const shared.tree_processes),
            missed: read(&raw const shared.tree_missed),
        })
    }

    /// Starts the count of switches here.
    pub fn count_at_start(&mut self, shared: &mut types::bss) -> Result<(), Error> {
        walk_all(&mut self.start, shared).map(drop)
    }

    /// Ends the count and returns it.
    pub fn count_at_end(mut self, shared: &mut types::bss) -> Result<TreeCount, Error> {
        let switches = walk_all(&mut self.end, shared)?;
        Ok(TreeCount {
            processes: self.processes,
            switches,
            missed: self.missed,
        })
    }
}

/// Makes the kernel side visit every task; returns the switches of those in scope since the walk
/// before.
fn walk_all(walk: &mut Iter, shared: &mut types::bss) -> Result<u64, Error> {
    for counter in [
        &raw mut shared.tree_processes,
        &raw mut shared.tree_switches,
    ] {
        // SAFETY: the variable is mapped for as long as the object is loaded, and the kernel side
        // writes it during a walk only.
        unsafe { counter.write_volatile(0) };
    }
    visit_all(walk)?;
    Ok(read(&raw const shared.tree_switches))
}

/// Reads an iterator over all tasks to its end, so that its program runs for each of them.
pub(crate) fn visit_all(walk: &mut Iter) -> Result<(), Error> {
    let mut nothing = [0; 64];
    loop {
        match walk.read(&mut nothing) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            // The kernel gives up its CPU from time to time (bpf_seq_read, kernel/bpf/bpf_iter.c).
            Err(error) if is_to_be_continued(&error) => {}
            Err(error) => return Err(Error::TaskWalk(error)),
        }
    }
}

pub(crate) fn is_to_be_continued(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, WouldBlock};
    matches!(error.kind(), Interrupted | WouldBlock)
}

/// Sets whether the kernel side checks a task's ancestors to decide if it is in scope.
fn set_taking(shared: &mut types::bss, on: bool) {
    tell(&mut shared.taking_tree, on);
}

fn read(counter: *const u64) -> u64 {
    // SAFETY: the pointer comes from a reference to the mapped variable.
    unsafe { counter.read_volatile() }
}
