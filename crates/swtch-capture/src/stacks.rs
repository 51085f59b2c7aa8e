//! Stacks: addresses are read while recording, names are found after it.
//!
//! The kernel side stores each distinct stack once and gives it a number. When a number is seen for
//! the first time, its stack is looked up at once, and its user addresses are turned into offsets
//! in files while the process still lives. Names are found after the capture, when time does not
//! matter.
//!
//! What this does *not* do: unwind code that was built without frame pointers. The kernel follows
//! frame pointers in user mode, so such stacks are short.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use blazesym::normalize::{Normalizer, UserMeta};
use blazesym::symbolize::source::{Elf, Kernel, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use blazesym::{MaybeDefault, Pid as BlazePid};
use libbpf_rs::{MapCore, MapFlags};
use rustc_hash::{FxHashMap, FxHashSet};
use swtch_core::{Frame, Pid, Stack, StackKind};

use crate::load::Capture;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum CodeAddress {
    Kernel(u64),
    File(Rc<PathBuf>, u64),
    Nowhere(u64),
}

/// All stacks of one capture, with their frames.
#[derive(Debug)]
pub struct Stacks {
    normalizer: Normalizer,
    symbolizer: Symbolizer,
    frames: FxHashMap<CodeAddress, Frame>,
    known: FxHashSet<(StackKind, u32)>,
    fresh: Vec<Stack>,
    unread: u64,
}

impl Default for Stacks {
    fn default() -> Self {
        Self::new()
    }
}

impl Stacks {
    /// An empty collection of stacks.
    pub fn new() -> Self {
        Self {
            normalizer: Normalizer::builder().enable_vma_caching(false).build(),
            symbolizer: Symbolizer::new(),
            frames: FxHashMap::default(),
            known: FxHashSet::default(),
            fresh: Vec::new(),
            unread: 0,
        }
    }

    /// Reads the kernel's symbols. Call it while privileged, because other processes see zeros.
    pub fn read_kernel_symbols(&self) {
        // Any address makes it read the table. A kernel that hides its symbols leaves addresses
        // without names; they are shown as such.
        let _ = self
            .symbolizer
            .symbolize_single(&kernel(), Input::AbsAddr(u64::MAX));
    }

    /// Looks a stack up if its number is new.
    pub fn meet(&mut self, capture: &Capture, kind: StackKind, id: u32, pid: Option<Pid>) {
        if !self.known.insert((kind, id)) {
            return;
        }
        let addresses = match kind {
            StackKind::Kernel => addresses(capture.kernel_stacks(), id),
            StackKind::User => addresses(capture.user_stacks(), id),
        };
        let Some(addresses) = addresses else {
            self.unread += 1;
            return;
        };
        let frames = self.frames_of(kind, &addresses, pid);
        let pid = pid.filter(|_| kind == StackKind::User);
        self.fresh.push(Stack {
            id,
            kind,
            pid,
            frames,
        });
    }

    /// Numbers of the frames at these addresses, in the same order. The addresses are looked up in
    /// what the process maps now; their names are found by [`Self::named_frames`].
    pub fn user_frames(&mut self, pid: Pid, addresses: &[u64]) -> Vec<u32> {
        self.frames_of(StackKind::User, addresses, Some(pid))
    }

    fn frames_of(&mut self, kind: StackKind, addresses: &[u64], pid: Option<Pid>) -> Vec<u32> {
        let places = match (kind, pid) {
            (StackKind::Kernel, _) => addresses.iter().map(|a| CodeAddress::Kernel(*a)).collect(),
            (StackKind::User, Some(pid)) => self.places(pid, addresses),
            (StackKind::User, None) => addresses.iter().map(|a| CodeAddress::Nowhere(*a)).collect(),
        };
        let placed = places.into_iter().zip(addresses);
        placed.map(|(p, a)| self.frame(p, *a)).collect()
    }

    /// Names of the kernel functions of a stack, the innermost first; `None` when the map has lost
    /// it. For tests that check the kernel side by its stacks ([`Settings::oracle`]).
    ///
    /// [`Settings::oracle`]: crate::Settings::oracle
    #[doc(hidden)]
    pub fn kernel_functions(&self, capture: &Capture, id: u32) -> Option<Vec<String>> {
        let name = |address: &u64| {
            let mut frame = Frame::default();
            self.name(&CodeAddress::Kernel(*address), &mut frame);
            frame.symbol.unwrap_or_else(|| format!("{address:#x}"))
        };
        let addresses = addresses(capture.kernel_stacks(), id)?;
        Some(addresses.iter().map(name).collect())
    }

    /// The stacks that are new since the last call.
    pub fn take_fresh(&mut self) -> Vec<Stack> {
        std::mem::take(&mut self.fresh)
    }

    /// Number of stacks that could not be read.
    pub const fn unread(&self) -> u64 {
        self.unread
    }

    /// Finds the names of all frames. Call it once, after the capture.
    pub fn named_frames(mut self) -> Vec<Frame> {
        let mut frames: Vec<_> = self.frames.drain().collect();
        frames.sort_by_key(|(_, frame)| frame.id);
        for (place, frame) in &mut frames {
            self.name(place, frame);
        }
        frames.into_iter().map(|(_, frame)| frame).collect()
    }

    fn frame(&mut self, place: CodeAddress, address: u64) -> u32 {
        let next = u32::try_from(self.frames.len()).unwrap_or(u32::MAX);
        self.frames
            .entry(place)
            .or_insert_with(|| Frame {
                id: next,
                address,
                ..Frame::default()
            })
            .id
    }

    /// Offsets in files, as the process maps them now; plain addresses if it has already ended.
    fn places(&self, pid: Pid, addresses: &[u64]) -> Vec<CodeAddress> {
        let nowhere = || addresses.iter().map(|a| CodeAddress::Nowhere(*a)).collect();
        let Ok(found) = self
            .normalizer
            .normalize_user_addrs(BlazePid::from(pid.get()), addresses)
        else {
            return nowhere();
        };
        let files: Vec<_> = found
            .meta
            .iter()
            .map(|meta| match meta {
                UserMeta::Elf(elf) => Some(Rc::new(elf.path.clone())),
                _ => None,
            })
            .collect();
        found
            .outputs
            .iter()
            .zip(addresses)
            .map(|((offset, meta), address)| match files.get(*meta) {
                Some(Some(path)) => CodeAddress::File(Rc::clone(path), *offset),
                _ => CodeAddress::Nowhere(*address),
            })
            .collect()
    }

    fn in_file(&self, path: &Path, offset: u64, debug_syms: bool) -> SymbolizedFrame<'_> {
        let source = Source::Elf(Elf {
            debug_syms,
            ..Elf::new(path)
        });
        self.symbolizer
            .symbolize_single(&source, Input::FileOffset(offset))
    }

    fn name(&self, place: &CodeAddress, frame: &mut Frame) {
        let found = match place {
            CodeAddress::Kernel(address) => {
                frame.module = Some("[kernel]".to_owned());
                self.symbolizer
                    .symbolize_single(&kernel(), Input::AbsAddr(*address))
            }
            CodeAddress::File(path, offset) => {
                frame.module = Some(path.to_string_lossy().into_owned());
                // A file that refers to separate debug information which is not installed is an
                // error; its own symbols are still good.
                self.in_file(path, *offset, true)
                    .or_else(|_| self.in_file(path, *offset, false))
            }
            CodeAddress::Nowhere(_) => return,
        };
        // If the file is gone or has no symbols, the frame stays without a name.
        if let Ok(Symbolized::Sym(symbol)) = found {
            frame.symbol = Some(symbol.name.into_owned());
            frame.offset = u64::try_from(symbol.offset).ok();
            if let Some(code) = symbol.code_info {
                frame.file = Some(code.file.to_string_lossy().into_owned());
                frame.line = code.line;
            }
        }
    }
}

type SymbolizedFrame<'a> = blazesym::Result<Symbolized<'a>>;

fn kernel() -> Source<'static> {
    // Only kallsyms is used: it is right for the running kernel, and small.
    Source::Kernel(Kernel {
        vmlinux: MaybeDefault::None,
        debug_syms: false,
        ..Kernel::default()
    })
}

/// The return addresses of a stack, the innermost first; `None` when the map has lost it.
fn addresses(map: &impl MapCore, id: u32) -> Option<Vec<u64>> {
    let bytes = map.lookup(&id.to_ne_bytes(), MapFlags::ANY).ok()??;
    let words = bytes.chunks_exact(8).filter_map(|word| word.first_chunk());
    Some(
        words
            .map(|word| u64::from_ne_bytes(*word))
            .take_while(|word| *word != 0)
            .collect(),
    )
}
