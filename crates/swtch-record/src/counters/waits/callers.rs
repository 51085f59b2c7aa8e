//! From where in its program a blocked thread called: its stack, read from outside and followed by
//! the tables that compilers write for exceptions (`.eh_frame`), so that no frame pointers are
//! needed.

use std::fs::{self, File};
use std::io::IoSliceMut;
use std::ops::Range;
use std::rc::Rc;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use object::read::ReadCache;
use object::{Object, ObjectSection, ObjectSegment};
use rustc_hash::{FxHashMap, FxHashSet};
use swtch_capture::{CodeFile, CodeMap, CodeMapping, Stacks};
use swtch_core::{Pid, Stack, StackKind};
use swtch_host::thread::BlockedAt;
use swtch_report::report::Symbols;
use swtch_unwind::{CallerFrame, Registers, TableSection, UnwindScratch, UnwindTables};

/// Stack that is read of a thread. More calls than fit into it are cut off.
const STACK_BYTES: usize = 16 * 1024;

/// Memory is read by pages, so that one which is not there ends the copy instead of spoiling it.
const PAGE: u64 = 4096;

/// Callers that are kept of a wait.
const DEEPEST: usize = 48;

/// Finds callers, and keeps what it has read of programs.
#[derive(Default)]
pub(super) struct Callers {
    files: FxHashMap<CodeFile, Option<Rc<MappedFile>>>,
    processes: FxHashMap<Pid, MappedCode>,
    names: Stacks,
    /// Frames of each distinct stack, and its number.
    stacks: FxHashMap<Vec<u32>, u32>,
}

impl std::fmt::Debug for Callers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Callers")
            .field("processes", &self.processes.len())
            .finish_non_exhaustive()
    }
}

/// The code that a process maps.
struct MappedCode {
    /// The text that this was made from: as long as it stays the same, so does this.
    maps: String,
    modules: Vec<CodeModule>,
    /// Numbers of the stacks that were seen, by their addresses.
    stacks: FxHashMap<Vec<u64>, u32>,
}

/// Code of a file with tables, at its place in a process.
struct CodeModule {
    range: Range<u64>,
    /// The number to add to an address that the file states.
    moved_by: u64,
    file: Rc<MappedFile>,
}

/// The parts of a file that are needed to find callers. Addresses are as the file states them.
struct MappedFile {
    /// Of each segment of code: offset in the file, length, and its address.
    segments: Vec<(u64, u64, u64)>,
    frames: FileSection,
    index: FileSection,
    text: Option<u64>,
    got: Option<u64>,
}

/// A section of a file.
struct FileSection {
    address: u64,
    bytes: Box<[u8]>,
}

impl FileSection {
    fn of<'a>(file: &object::File<'a, &'a ReadCache<File>>, name: &str) -> Option<Self> {
        let section = file.section_by_name(name)?;
        Some(Self {
            address: section.address(),
            bytes: section.data().ok()?.into(),
        })
    }

    const fn at_its_address(&self) -> TableSection<'_> {
        TableSection {
            address: self.address,
            bytes: &self.bytes,
        }
    }
}

impl Callers {
    /// Number of the stack in which a thread is blocked; `None` if nothing of it can be told.
    pub(super) fn of(&mut self, pid: Pid, at: BlockedAt) -> Option<u32> {
        if at.instruction == 0 {
            return None;
        }
        let addresses = self.addresses(pid, at);
        let process = self.processes.get_mut(&pid);
        if let Some(stack) = process.as_ref().and_then(|one| one.stacks.get(&addresses)) {
            return Some(*stack);
        }
        let frames = self.names.user_frames(pid, &addresses);
        let next = u32::try_from(self.stacks.len()).unwrap_or(u32::MAX);
        let stack = *self.stacks.entry(frames).or_insert(next);
        if let Some(process) = process {
            process.stacks.insert(addresses, stack);
        }
        Some(stack)
    }

    /// Forgets what processes map that have ended; their stacks stay.
    pub(super) fn forget_others(&mut self, alive: &FxHashSet<Pid>) {
        self.processes.retain(|pid, _| alive.contains(pid));
    }

    /// Finds the names of all frames.
    pub(super) fn symbols(self) -> Symbols {
        let stacks = self.stacks.into_iter().map(|(frames, id)| Stack {
            id,
            kind: StackKind::User,
            pid: None,
            frames,
        });
        Symbols::new(stacks.collect(), &self.names.named_frames())
    }

    fn addresses(&mut self, pid: Pid, at: BlockedAt) -> Vec<u64> {
        let Ok(maps) = fs::read_to_string(format!("/proc/{pid}/maps")) else {
            return vec![at.instruction];
        };
        if self
            .processes
            .get(&pid)
            .is_none_or(|known| known.maps != maps)
        {
            let modules = self.modules_of(pid, &maps);
            let code = MappedCode {
                maps,
                modules,
                stacks: FxHashMap::default(),
            };
            self.processes.insert(pid, code);
        }
        let stack = stack_of(pid, at.stack_pointer);
        let word = |address| word_at(&stack, at.stack_pointer, address);
        chain(&self.processes[&pid].modules, at, &word)
    }

    fn modules_of(&mut self, pid: Pid, maps: &str) -> Vec<CodeModule> {
        let mut modules = Vec::new();
        for mapping in CodeMap::parse(maps).mappings() {
            let Some(file) = &mapping.file else {
                continue;
            };
            let read = || MappedFile::read(file.open(pid).ok()?).map(Rc::new);
            let known = self.files.entry(file.clone());
            // A file without tables is not followed.
            if let Some(file) = known.or_insert_with(read)
                && let Some(moved_by) = file.moved_by(mapping)
            {
                modules.push(CodeModule {
                    range: mapping.range.clone(),
                    moved_by,
                    file: Rc::clone(file),
                });
            }
        }
        modules
    }
}

/// Addresses inside of the functions that have not returned, the innermost first.
fn chain(modules: &[CodeModule], at: BlockedAt, word: &dyn Fn(u64) -> Option<u64>) -> Vec<u64> {
    let mut frame = Registers::at(at.instruction, at.stack_pointer);
    let mut scratch = UnwindScratch::default();
    let mut addresses = vec![at.instruction];
    while addresses.len() < DEEPEST {
        // The address after a call may belong to the next function already.
        let inside = addresses[addresses.len() - 1];
        let Some(module) = modules.iter().find(|one| one.range.contains(&inside)) else {
            break;
        };
        let stated = inside.wrapping_sub(module.moved_by);
        let found = module
            .file
            .tables()
            .caller(stated, &frame, word, &mut scratch);
        let Some(CallerFrame::Found {
            registers: caller,
            was_interrupted,
        }) = found
        else {
            break;
        };
        // Stacks grow downwards, so a caller's frame lies above.
        let is_above = caller.stack_pointer() > frame.stack_pointer();
        let is_code = modules.iter().any(|one| one.range.contains(&caller.pc));
        if !is_above || !is_code {
            break;
        }
        addresses.push(caller.pc - u64::from(!was_interrupted));
        frame = caller;
    }
    addresses
}

impl MappedFile {
    /// Reads a file's tables; `None` if it has none or cannot be read.
    fn read(file: File) -> Option<Self> {
        let file = ReadCache::new(file);
        let object = object::File::parse(&file).ok()?;
        let start = |name: &str| Some(object.section_by_name(name)?.address());
        // The page where one segment ends and the next begins is in both.
        let code = object
            .segments()
            .filter(|segment| segment.permissions().executable());
        let segments = code.map(|segment| {
            let (offset, length) = segment.file_range();
            (offset, length, segment.address())
        });
        Some(Self {
            segments: segments.collect(),
            frames: FileSection::of(&object, ".eh_frame")?,
            index: FileSection::of(&object, ".eh_frame_hdr")?,
            text: start(".text"),
            got: start(".got"),
        })
    }

    const fn tables(&self) -> UnwindTables<'_> {
        UnwindTables {
            index: self.index.at_its_address(),
            frames: Some(self.frames.at_its_address()),
            text: self.text,
            got: self.got,
        }
    }

    /// By how much a mapping has moved the file's addresses.
    fn moved_by(&self, mapping: &CodeMapping) -> Option<u64> {
        let holds = |&&(offset, length, _): &&(u64, u64, u64)| {
            // A mapping begins at a page, the segment perhaps within it.
            offset / PAGE * PAGE <= mapping.offset && mapping.offset < offset + length
        };
        let (offset, _, address) = self.segments.iter().find(holds)?;
        let start = mapping.range.start - mapping.offset;
        Some(start.wrapping_add(*offset).wrapping_sub(*address))
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

fn word_at(stack: &[u8], pointer: u64, address: u64) -> Option<u64> {
    let start = usize::try_from(address.checked_sub(pointer)?).ok()?;
    let word = stack.get(start..start.checked_add(8)?)?;
    word.first_chunk().map(|word| u64::from_ne_bytes(*word))
}
