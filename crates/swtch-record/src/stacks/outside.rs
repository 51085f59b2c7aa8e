//! The stacks of blocked threads, read by who has no eBPF: `/proc` tells where they are, and lets who may trace them read
//! their memory.

use std::collections::hash_map::Entry;
use std::fs::File;
use std::os::unix::fs::FileExt as _;

use rustc_hash::{FxHashMap, FxHashSet};
use swtch_capture::Stacks;
use swtch_core::{Frame, Pid, Stack, StackEnd, StackKind};
use swtch_host::thread::BlockedAt;
use swtch_unwind::{Registers, StackCopy, chain};

use super::end_of;
use super::process_code::{CodeIs, ProcessCodes};

/// Stack that is read of a thread. More calls than fit into it are cut off.
const STACK_BYTES: usize = 16 * 1024;

/// Stack below the pointer, where a function that calls no other may keep something (System V ABI, AMD64, 3.2.2).
const RED_ZONE: u64 = 128;

/// Frames that are kept of a stack.
const DEEPEST: usize = 64;

/// The most distinct stacks.
const MOST_STACKS: u32 = 1 << 20;

/// Finds callers, and keeps what it has read of programs.
#[derive(Debug, Default)]
pub struct OutsideStacks {
    codes: ProcessCodes,
    /// Processes whose code was read since the last [`Self::forget_others`].
    read: FxHashSet<Pid>,
    /// Numbers of the stacks of a process, by their addresses and how they end.
    seen: FxHashMap<Pid, FxHashMap<(Vec<u64>, StackEnd), u32>>,
    names: Stacks,
    /// Frames of each distinct stack and how they end, and its number.
    stacks: FxHashMap<(Vec<u32>, StackEnd), u32>,
}

impl OutsideStacks {
    /// Number of the stack in which a thread is blocked; `None` if nothing of it can be told.
    pub fn number_of(&mut self, pid: Pid, at: BlockedAt) -> Option<u32> {
        if at.instruction == 0 {
            return None;
        }
        let place = self.addresses(pid, at);
        let seen = self.seen.entry(pid).or_default();
        if let Some(stack) = seen.get(&place) {
            return Some(*stack);
        }
        let next = u32::try_from(self.stacks.len()).ok();
        let frames = self.names.user_places(pid, &place.0);
        let stack = match self.stacks.entry((frames, place.1)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => *new.insert(next.filter(|next| *next < MOST_STACKS)?),
        };
        seen.insert(place, stack);
        Some(stack)
    }

    /// CPU time that reading files took since the last call.
    pub fn take_reading_ns(&self) -> u64 {
        self.codes.take_reading_ns()
    }

    /// Ends a look at all threads: what ended processes mapped is forgotten, and what the others map is read again at the
    /// next look. All stacks stay.
    pub fn forget_others(&mut self, alive: &FxHashSet<Pid>) {
        self.read.clear();
        self.codes.forget_others(alive);
        self.seen.retain(|pid, _| alive.contains(pid));
    }

    /// All stacks, and their frames with names.
    pub fn named(mut self) -> (Vec<Stack>, Vec<Frame>) {
        for ((frames, end), id) in self.stacks {
            self.names.add(Stack {
                id,
                kind: StackKind::User,
                frames,
                end: Some(end),
                ..Stack::default()
            });
        }
        self.names.named()
    }

    /// Addresses inside of the functions that have not returned, the innermost first.
    fn addresses(&mut self, pid: Pid, at: BlockedAt) -> (Vec<u64>, StackEnd) {
        let unknown = (vec![at.instruction], StackEnd::Unknown);
        if self.read.insert(pid) {
            let Some((_, state)) = self.codes.of(pid) else {
                return unknown;
            };
            if state == CodeIs::New {
                // The same address may be another function's now.
                self.seen.remove(&pid);
            }
        }
        let Some(code) = self.codes.known(pid) else {
            return unknown;
        };
        let mut start = at.stack_pointer.saturating_sub(RED_ZONE);
        let mut bytes = stack_of(pid, start);
        if bytes.is_empty() {
            // The pointer may be at the end of what is mapped.
            (start, bytes) = (at.stack_pointer, stack_of(pid, at.stack_pointer));
        }
        if bytes.is_empty() {
            return unknown;
        }
        let stack = StackCopy {
            start,
            bytes: &bytes,
        };
        let registers = Registers::at(at.instruction, at.stack_pointer);
        let chain = chain(registers, stack, code, DEEPEST);
        // Nothing of the stack stays here.
        bytes.fill(0);
        std::hint::black_box(&bytes);
        let end = end_of(&chain);
        (chain.addresses, end)
    }
}

/// The stack from there on, as far as it can be read.
fn stack_of(pid: Pid, start: u64) -> Vec<u8> {
    let mut bytes = vec![0; STACK_BYTES];
    // A process that ended meanwhile, or one that may not be read, has no callers.
    let memory = File::open(format!("/proc/{pid}/mem"));
    let read = memory.and_then(|memory| memory.read_at(&mut bytes, start));
    bytes.truncate(read.unwrap_or(0));
    bytes
}
