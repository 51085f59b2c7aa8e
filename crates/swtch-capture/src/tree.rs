//! The processes below those that were asked for, taken without a gap: the user side of `bpf/tree.h`.
//!
//! ```text
//! hooks attached ─▶ take: every task is visited ─▶ records are written ─▶ count ─ … ─▶ count ─▶ detach
//!                   (the hooks mark what is forked meanwhile)             └── the kernel's own ──┘
//! ```
//!
//! Both counts lie inside the time in which records are written, so that no switch is counted that
//! could not be recorded.

use std::io::{self, Read as _};

use libbpf_rs::{Iter, Link};

use crate::error::Error;
use crate::load::BeforeWalk;
use crate::scope::Children;
use crate::skeleton::recorder::types;

/// What the kernel knows of the processes that are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeCount {
    /// Processes in scope when the recording began: those that were asked for and those below them.
    pub processes: u64,
    /// How often the kernel counted a switch (`nvcsw + nivcsw`) during the recording, of the threads
    /// that live at its end. Threads that have ended meanwhile are not in it.
    pub switches: u64,
    /// Tasks that could not be looked at when the tree was taken, because too many ended at that moment
    /// or the kernel refused storage: when it is not 0, processes may be missing.
    pub missed: u64,
}

/// The tree as it was taken, with what is needed to count once more.
pub(crate) struct ProcessTree {
    start: Iter,
    end: Iter,
    processes: u64,
    missed: u64,
}

impl ProcessTree {
    /// Marks the processes below the targets, and opens what later counts need: that takes privilege,
    /// reading it does not.
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

    /// Counts from here on.
    pub fn count_at_start(&mut self, shared: &mut types::bss) -> Result<(), Error> {
        walk_all(&mut self.start, shared).map(drop)
    }

    /// What came of it.
    pub fn count_at_end(mut self, shared: &mut types::bss) -> Result<TreeCount, Error> {
        let switches = walk_all(&mut self.end, shared)?;
        Ok(TreeCount {
            processes: self.processes,
            switches,
            missed: self.missed,
        })
    }
}

/// Has the kernel side visit every task; the switches of those in scope since the walk before.
fn walk_all(walk: &mut Iter, shared: &mut types::bss) -> Result<u64, Error> {
    for counter in [
        &raw mut shared.tree_processes,
        &raw mut shared.tree_switches,
    ] {
        // SAFETY: the variable is mapped for as long as the object is loaded, and the kernel side
        // writes it during a walk only.
        unsafe { counter.write_volatile(0) };
    }
    let mut nothing = [0; 64];
    loop {
        match walk.read(&mut nothing) {
            Ok(0) => return Ok(read(&raw const shared.tree_switches)),
            Ok(_) => {}
            // The kernel gives up its CPU now and then (bpf_seq_read, kernel/bpf/bpf_iter.c).
            Err(error) if is_to_be_continued(&error) => {}
            Err(error) => return Err(Error::TaskWalk(error)),
        }
    }
}

fn is_to_be_continued(error: &io::Error) -> bool {
    use io::ErrorKind::{Interrupted, WouldBlock};
    matches!(error.kind(), Interrupted | WouldBlock)
}

/// From here on ancestors are asked whether a task is in scope, or no longer.
fn set_taking(shared: &mut types::bss, on: bool) {
    // SAFETY: the variable is mapped for as long as the object is loaded; the kernel side only reads
    // it, and reads it anew at each event.
    unsafe { (&raw mut shared.taking_tree).write_volatile(on) };
}

fn read(counter: *const u64) -> u64 {
    // SAFETY: the pointer comes from a reference to the mapped variable.
    unsafe { counter.read_volatile() }
}
