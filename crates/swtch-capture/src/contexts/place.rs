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

use object::elf::{self, ProgramHeader64};
use object::read::ReadCache;
use object::read::elf::{ElfFile64, FileHeader as _, ProgramHeader as _, Sym as _};
use object::{
    Endianness, Object as _, ObjectSection as _, RelocationFlags, RelocationTarget, SymbolIndex,
};
use swtch_core::Pid;

use crate::code::{CodeMap, CodeMapping};
use crate::code_file::CodeIdentity;

/// The variable of each thread: a pointer to what is published.
pub const CONTEXT_VARIABLE: &str = "otel_thread_ctx_v1";

/// The most bytes of a file that is looked into, of the names of its symbols, and the most symbols.
const MOST_BYTES: u64 = 1 << 30;
const MOST_NAMES: u64 = 64 << 20;
const MOST_SYMBOLS: usize = 4_000_000;

/// The most relocations of a library that are looked at.
const MOST_RELOCATIONS: usize = 4_000_000;

/// Numbers of libraries with blocks, and places in these, are smaller.
const MOST_MODULES: u64 = 4096;
const MOST_OFFSET: u64 = 1 << 32;

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
    /// Where it writes the number of the library, and behind that the variable's place in the block, if that is not
    /// known already.
    Module(u64, Option<u64>),
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

/// An ELF file that is read piece by piece.
type ReadElf<'a> = ElfFile64<'a, Endianness, &'a ReadCache<&'a File>>;

impl ContextVariable {
    /// The variable of a file; `None` if it has none.
    pub fn of(file: &File) -> Option<Self> {
        (file.metadata().ok()?.len() <= MOST_BYTES).then_some(())?;
        let cache = ReadCache::new(file);
        let object: ReadElf<'_> = ElfFile64::parse(&cache).ok()?;
        let endian = object.endian();
        let (index, value) = symbol_of(&object, file)?;
        let header = object.elf_header();
        let segments = header.program_headers(endian, &cache).ok()?;
        if is_program(&object, segments) {
            let mut blocks = segments.iter();
            let block = blocks.find(|one| one.p_type(endian) == elf::PT_TLS)?;
            let is_there = value < block.p_memsz(endian);
            let distance = distance(block, endian, value);
            return (is_there && is_distance(distance)).then_some(Self::OfProgram(distance));
        }
        Self::of_library(&object, index, value)
    }

    fn of_library<'a>(object: &ReadElf<'a>, index: SymbolIndex, value: u64) -> Option<Self> {
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
                    Some(Self::Module(address, has_no_name.then_some(value)))
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
        let moved = || CodeIdentity::of(file)?.segments.moved_by(mapping);
        let in_block = |module: u64, offset: u64| {
            let makes_sense = (1..MOST_MODULES).contains(&module) && offset < MOST_OFFSET;
            (makes_sense && has_glibc(map)).then_some(ContextPlace { module, offset })
        };
        match self {
            Self::OfProgram(distance) => Some(at_pointer(distance)),
            Self::Distance(address) => {
                let distance = word(moved()?.wrapping_add(address))?;
                is_distance(distance).then(|| at_pointer(distance))
            }
            Self::Module(address, bound) => {
                // Of several libraries with the variable, another one's may be meant: then both words are of that.
                let address = moved()?.wrapping_add(address);
                let offset = bound.map_or_else(|| word(address.wrapping_add(8)), Some);
                in_block(word(address)?, offset?)
            }
            Self::Descriptor(address) => {
                // A function, and what it is given: the distance, or where number and offset are.
                let given = word(moved()?.wrapping_add(address).wrapping_add(8))?;
                if is_distance(given) {
                    return Some(at_pointer(given));
                }
                in_block(word(given)?, word(given.wrapping_add(8))?)
            }
        }
    }
}

/// The symbol of the variable that a file defines, and its value. Names are not read one by one: a file may have as many,
/// and as long ones, as its author likes.
fn symbol_of(object: &ReadElf<'_>, file: &File) -> Option<(SymbolIndex, u64)> {
    let (begin, length) = object.section_by_name(".dynstr")?.file_range()?;
    let mut names = vec![0; usize::try_from(length.min(MOST_NAMES)).ok()?];
    file.read_exact_at(&mut names, begin).ok()?;
    let wanted = [CONTEXT_VARIABLE.as_bytes(), &[0]].concat();
    // Also within a longer name that ends so.
    let places = names.windows(wanted.len()).enumerate();
    let places: Vec<_> = places
        .filter_map(|(at, name)| (name == wanted).then_some(at))
        .collect();
    let endian = object.endian();
    let table = object.elf_dynamic_symbol_table();
    let mut symbols = table.enumerate().take(MOST_SYMBOLS);
    let (index, symbol) = symbols.find(|(_, symbol)| {
        let name = symbol.st_name(endian) as usize;
        places.binary_search(&name).is_ok() && symbol.st_shndx(endian) != elf::SHN_UNDEF
    })?;
    Some((index, symbol.st_value(endian)))
}

/// Returns true for a program, and false for a library, which may be one that can be executed.
fn is_program(object: &ReadElf<'_>, segments: &[ProgramHeader64<Endianness>]) -> bool {
    let endian = object.endian();
    let has_interpreter = segments
        .iter()
        .any(|one| one.p_type(endian) == elf::PT_INTERP);
    let sections = object.elf_section_table();
    let entries = sections.dynamic(endian, object.data()).ok().flatten();
    let entries = entries.map_or(&[][..], |(entries, _)| entries);
    let has = |tag, bits: u64| {
        let mut entries = entries.iter();
        entries.any(|one| {
            one.d_tag.get(endian) == tag && (bits == 0 || one.d_val.get(endian) & bits != 0)
        })
    };
    object.elf_header().e_type.get(endian) == elf::ET_EXEC
        || has(elf::DT_FLAGS_1, elf::DF_1_PIE.0)
        || (has_interpreter && !has(elf::DT_SONAME, 0))
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

/// Returns true if a word may be a distance from the thread pointer, and not an address: memory of a program begins above
/// these.
fn is_distance(word: u64) -> bool {
    #[cfg(target_arch = "x86_64")]
    let distances = -(1_i64 << 31)..0;
    #[cfg(target_arch = "aarch64")]
    let distances = 16_i64..1 << 16;
    distances.contains(&word.cast_signed())
}

/// Returns true if the process has a C library whose list of blocks has the form that is read.
fn has_glibc(map: &CodeMap) -> bool {
    let files = map.mappings().filter_map(|mapping| mapping.file.as_ref());
    files.into_iter().any(|file| {
        let path = file.path();
        let name = path.rsplit('/').next().unwrap_or(path);
        let name = name.strip_suffix(" (deleted)").unwrap_or(name);
        // The file's own name, before and since glibc 2.34.
        name == "libc.so.6" || (name.starts_with("libc-2.") && name.ends_with(".so"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_no_distances() {
        let brk_of_a_program_that_is_not_moved = 0x01b3_c2a0;
        assert!(!is_distance(brk_of_a_program_that_is_not_moved));
        assert!(!is_distance(0x7f12_3456_7890));
        #[cfg(target_arch = "x86_64")]
        assert!(is_distance(0x40_u64.wrapping_neg()) && !is_distance(0));
        #[cfg(target_arch = "aarch64")]
        assert!(is_distance(0x40) && !is_distance(0));
    }

    #[test]
    fn the_c_library_is_known_by_either_name() {
        let has = |path: &str| {
            let line = format!("7f00000000-7f00001000 r-xp 00000000 08:01 7 {path}\n");
            has_glibc(&CodeMap::parse(&line))
        };
        assert!(has("/usr/lib/x86_64-linux-gnu/libc.so.6"));
        assert!(has("/lib/x86_64-linux-gnu/libc-2.31.so"));
        assert!(has("/usr/lib64/libc.so.6 (deleted)"));
        assert!(!has("/lib/ld-musl-x86_64.so.1") && !has("/usr/lib/libc-client.so.2007"));
    }

    #[test]
    fn a_file_without_the_variable_has_none() {
        let own = File::open("/proc/self/exe").unwrap();
        assert_eq!(ContextVariable::of(&own), None);
        let text = File::open(file!().replace("crates/swtch-capture/", "")).unwrap();
        assert_eq!(ContextVariable::of(&text), None);
    }
}
