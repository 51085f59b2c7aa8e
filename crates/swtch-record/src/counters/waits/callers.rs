//! From where in its program a blocked thread called: its stack, read from outside.

use std::io::IoSliceMut;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use rustc_hash::{FxHashMap, FxHashSet};
use swtch_capture::Stacks;
use swtch_core::{Pid, Stack, StackKind};
use swtch_host::thread::BlockedAt;
use swtch_report::report::Symbols;
use swtch_unwind::{Registers, StackCopy, chain};

use crate::stacks::process_code::{CodeIs, ProcessCodes};

/// Stack that is read of a thread. More calls than fit into it are cut off.
const STACK_BYTES: usize = 16 * 1024;

/// Memory is read by pages, so that one which is not there ends the copy instead of spoiling it.
const PAGE: u64 = 4096;

/// Callers that are kept of a wait.
const DEEPEST: usize = 48;

/// Finds callers, and keeps what it has read of programs.
#[derive(Debug, Default)]
pub(super) struct Callers {
    codes: ProcessCodes,
    /// Numbers of the stacks of a process, by their addresses.
    seen: FxHashMap<Pid, FxHashMap<Vec<u64>, u32>>,
    names: Stacks,
    /// Frames of each distinct stack, and its number.
    stacks: FxHashMap<Vec<u32>, u32>,
}

impl Callers {
    /// Number of the stack in which a thread is blocked; `None` if nothing of it can be told.
    pub(super) fn of(&mut self, pid: Pid, at: BlockedAt) -> Option<u32> {
        if at.instruction == 0 {
            return None;
        }
        let addresses = self.addresses(pid, at);
        let seen = self.seen.entry(pid).or_default();
        if let Some(stack) = seen.get(&addresses) {
            return Some(*stack);
        }
        let frames = self.names.user_places(pid, &addresses);
        let next = u32::try_from(self.stacks.len()).unwrap_or(u32::MAX);
        let stack = *self.stacks.entry(frames).or_insert(next);
        seen.insert(addresses, stack);
        Some(stack)
    }

    /// Forgets what processes map that have ended; their stacks stay.
    pub(super) fn forget_others(&mut self, alive: &FxHashSet<Pid>) {
        self.codes.forget_others(alive);
        self.seen.retain(|pid, _| alive.contains(pid));
    }

    /// Finds the names of all frames.
    pub(super) fn symbols(mut self) -> Symbols {
        for (frames, id) in self.stacks {
            self.names.add(Stack {
                id,
                kind: StackKind::User,
                frames,
                ..Stack::default()
            });
        }
        let (stacks, frames) = self.names.named();
        Symbols::new(stacks, &frames)
    }

    /// Addresses inside of the functions that have not returned, the innermost first.
    fn addresses(&mut self, pid: Pid, at: BlockedAt) -> Vec<u64> {
        let Some((code, state)) = self.codes.of(pid) else {
            return vec![at.instruction];
        };
        if state == CodeIs::New {
            // The same address may be another function's now.
            self.seen.remove(&pid);
        }
        let bytes = stack_of(pid, at.stack_pointer);
        let stack = StackCopy {
            start: at.stack_pointer,
            bytes: &bytes,
        };
        let registers = Registers::at(at.instruction, at.stack_pointer);
        chain(registers, stack, code, DEEPEST).addresses
    }
}

/// The stack from its pointer on, as far as it can be read.
fn stack_of(pid: Pid, pointer: u64) -> Vec<u8> {
    let end = pointer.saturating_add(STACK_BYTES as u64);
    let mut pieces = Vec::new();
    let mut start = pointer;
    while start < end {
        let next = (start / PAGE + 1).saturating_mul(PAGE).min(end);
        let (Ok(base), Ok(len)) = (usize::try_from(start), usize::try_from(next - start)) else {
            break;
        };
        pieces.push(RemoteIoVec { base, len });
        start = next;
    }
    let mut bytes = vec![0; STACK_BYTES];
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid.get()).unwrap_or(i32::MAX));
    // A process that ended meanwhile, or one that may not be read, has no callers.
    let read = process_vm_readv(pid, &mut [IoSliceMut::new(&mut bytes)], &pieces).unwrap_or(0);
    bytes.truncate(read);
    bytes
}
