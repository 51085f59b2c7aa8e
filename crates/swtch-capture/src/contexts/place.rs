//! Where a process keeps the variable in which each of its threads publishes what it works on.
//!
//! ```text
//!   program                    at the thread pointer + what the file says
//!   library, there at start    at the thread pointer + what the dynamic linker has written into the library
//!   library, loaded later      in a block of its own; its number the linker has written there
//! ```
//!
//! What the linker writes stands where the library's relocations say (ELF's handling of thread-local storage, Drepper
//! 2013; TLSDESC, Oliva 2006). Any file and any memory may be met here: what makes no sense is no place.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use object::elf::{self, FileHeader64, ProgramHeader64};
use object::read::ReadCache;
use object::read::elf::{ElfFile64, FileHeader as _, ProgramHeader as _};
use object::{
    Endianness, Object as _, ObjectSymbol as _, RelocationFlags, RelocationTarget, SymbolIndex,
};
use swtch_core::Pid;

use crate::code::{CodeMap, CodeMapping};

/// The variable of each thread: a pointer to what is published.
pub const CONTEXT_VARIABLE: &str = "otel_thread_ctx_v1";

/// The most bytes of a file that is looked into: what is larger is no program.
const MOST_BYTES: u64 = 4 << 30;

/// The most relocations of a library that are looked at.
const MOST_RELOCATIONS: usize = 4_000_000;

/// Numbers of libraries with blocks, and places in these, are smaller.
const MOST_MODULES: u64 = 4096;
const MOST_OFFSET: u64 = 1 << 32;

/// The C library whose list of blocks has the form that is read.
const GLIBC: &str = "/libc.so.6";

/// Where a thread has the variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextPlace {
    /// The number of the library whose block it is in; 0 if it is at the thread pointer.
    pub module: u64,
    /// From there.
    pub offset: u64,
}

/// What a file says of the variable that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextVariable {
    /// It is the program's own, and this far from the thread pointer.
    OfProgram(u64),
    /// It is a library's: where the dynamic linker writes a descriptor, as an address of the file.
    Descriptor(u64),
    /// Where it writes the number of the library, and the variable's place in the block.
    Module(u64, u64),
    /// Where it writes how far the variable is from the thread pointer.
    Distance(u64),
}

/// Kinds of relocations, of this architecture.
struct RelocationKinds {
    descriptor: elf::RelocationType,
    module: elf::RelocationType,
    distance: elf::RelocationType,
}

#[cfg(target_arch = "x86_64")]
const KINDS: RelocationKinds = RelocationKinds {
    descriptor: elf::R_X86_64_TLSDESC,
    module: elf::R_X86_64_DTPMOD64,
    distance: elf::R_X86_64_TPOFF64,
};

#[cfg(target_arch = "aarch64")]
const KINDS: RelocationKinds = RelocationKinds {
    descriptor: elf::R_AARCH64_TLSDESC,
    module: elf::R_AARCH64_TLS_DTPMOD,
    distance: elf::R_AARCH64_TLS_TPREL,
};

impl ContextVariable {
    /// The variable of a file; `None` if it has none.
    pub fn of(file: &File) -> Option<Self> {
        (file.metadata().ok()?.len() <= MOST_BYTES).then_some(())?;
        let cache = ReadCache::new(file);
        let object: ElfFile64<'_, Endianness, _> = ElfFile64::parse(&cache).ok()?;
        let variable = object.dynamic_symbols().find(|symbol| {
            !symbol.is_undefined() && symbol.name_bytes() == Ok(CONTEXT_VARIABLE.as_bytes())
        })?;
        let (value, index) = (variable.address(), variable.index());
        let header = object.elf_header();
        let segments = header.program_headers(object.endian(), &cache).ok()?;
        let has = |kind| {
            segments
                .iter()
                .any(|one| one.p_type(object.endian()) == kind)
        };
        let is_program = header.e_type.get(object.endian()) == elf::ET_EXEC || has(elf::PT_INTERP);
        if is_program {
            let block = segments
                .iter()
                .find(|one| one.p_type(object.endian()) == elf::PT_TLS)?;
            return Some(Self::OfProgram(distance(block, object.endian(), value)));
        }
        Self::of_library(&object, index, value)
    }

    fn of_library<'a>(
        object: &ElfFile64<'a, Endianness, &'a ReadCache<&'a File>>,
        index: SymbolIndex,
        value: u64,
    ) -> Option<Self> {
        let relocations = object.dynamic_relocations()?.take(MOST_RELOCATIONS);
        let mut found = relocations.filter_map(|(address, relocation)| {
            let RelocationFlags::Elf { r_type } = relocation.flags() else {
                return None;
            };
            let is_its = relocation.target() == RelocationTarget::Symbol(index);
            // One that the linker has bound to the library has no name, and the variable's place beside it.
            let has_no_name = matches!(relocation.target(), RelocationTarget::Absolute)
                || relocation.target() == RelocationTarget::Symbol(SymbolIndex(0));
            let is_bound = has_no_name && relocation.addend().cast_unsigned() == value;
            match r_type {
                kind if kind == KINDS.descriptor && (is_its || is_bound) => {
                    Some(Self::Descriptor(address))
                }
                kind if kind == KINDS.distance && (is_its || is_bound) => {
                    Some(Self::Distance(address))
                }
                kind if kind == KINDS.module && (is_its || has_no_name) => {
                    Some(Self::Module(address, value))
                }
                _ => None,
            }
        });
        found.next()
    }

    /// The place in a process that maps the file here; `None` as long as the dynamic linker has not told it.
    fn place(
        self,
        memory: &File,
        mapping: &CodeMapping,
        file: &File,
        map: &CodeMap,
    ) -> Option<ContextPlace> {
        let at_pointer = |distance| ContextPlace {
            module: 0,
            offset: distance,
        };
        let word = |address: u64| {
            let mut bytes = [0; 8];
            memory.read_exact_at(&mut bytes, address).ok()?;
            Some(u64::from_ne_bytes(bytes))
        };
        let moved = || moved_by(file, mapping);
        let in_block = |module: u64, offset: u64| {
            let makes_sense = (1..MOST_MODULES).contains(&module) && offset < MOST_OFFSET;
            (makes_sense && has_glibc(map)).then_some(ContextPlace { module, offset })
        };
        match self {
            Self::OfProgram(distance) => Some(at_pointer(distance)),
            Self::Distance(address) => {
                let distance = word(moved()?.wrapping_add(address))?;
                (is_distance(distance) && distance != 0).then(|| at_pointer(distance))
            }
            Self::Module(address, offset) => {
                in_block(word(moved()?.wrapping_add(address))?, offset)
            }
            Self::Descriptor(address) => {
                // A function, and what it is given: the distance, or where number and offset are.
                let given = word(moved()?.wrapping_add(address).wrapping_add(8))?;
                if is_distance(given) {
                    return (given != 0).then(|| at_pointer(given));
                }
                in_block(word(given)?, word(given.wrapping_add(8))?)
            }
        }
    }
}

/// The place in a process, by what is known of its files; `None` if it has no such variable, or none yet.
pub fn place_in(
    pid: Pid,
    map: &CodeMap,
    mut variable: impl FnMut(&CodeMapping) -> Option<(ContextVariable, File)>,
) -> Option<ContextPlace> {
    let mut found = map.mappings().filter_map(|mapping| {
        let (variable, file) = variable(mapping)?;
        let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
        variable.place(&memory, mapping, &file, map)
    });
    found.next()
}

/// How far what lies in a program's block is from the thread pointer: below it, or above two words of the C library's.
fn distance(block: &ProgramHeader64<Endianness>, endian: Endianness, value: u64) -> u64 {
    let align = block.p_align(endian).max(1);
    let size = block.p_memsz(endian);
    // Both ends of the block count, for it is as aligned in memory as in the file (glibc, `_dl_determine_tlsoffset`).
    let first = block.p_vaddr(endian).wrapping_neg() & (align - 1);
    #[cfg(target_arch = "x86_64")]
    let begin = {
        let up = size.saturating_sub(first).next_multiple_of(align);
        (up + first).wrapping_neg()
    };
    #[cfg(target_arch = "aarch64")]
    let begin = {
        let _ = size;
        16_u64.saturating_sub(first).next_multiple_of(align) + first
    };
    begin.wrapping_add(value)
}

/// Returns true if a word may be a distance from the thread pointer, and not an address.
fn is_distance(word: u64) -> bool {
    let near = 1_i64 << 31;
    (-near..near).contains(&word.cast_signed())
}

/// How far a file has been moved in memory.
fn moved_by(file: &File, mapping: &CodeMapping) -> Option<u64> {
    let cache = ReadCache::new(file);
    let header: &FileHeader64<Endianness> = FileHeader64::parse(&cache).ok()?;
    let endian = header.endian().ok()?;
    let mut segments = header.program_headers(endian, &cache).ok()?.iter();
    let segment = segments.find(|one| {
        // A mapping begins at a page, the segment perhaps within it.
        let last = one.p_offset(endian).saturating_add(one.p_filesz(endian));
        one.p_type(endian) == elf::PT_LOAD
            && one.p_flags(endian).contains(elf::PF_X)
            && (mapping.offset..last).contains(&one.p_offset(endian))
    })?;
    let within = segment.p_offset(endian) - mapping.offset;
    let address = segment.p_vaddr(endian).wrapping_sub(within);
    Some(mapping.range.start.wrapping_sub(address))
}

fn has_glibc(map: &CodeMap) -> bool {
    let files = map.mappings().filter_map(|mapping| mapping.file.as_ref());
    files.into_iter().any(|file| file.path().ends_with(GLIBC))
}
