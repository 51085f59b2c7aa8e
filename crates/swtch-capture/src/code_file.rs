//! What an ELF file with code says of itself, before anything is looked up in it.
//!
//! Any file may be met here, so what is damaged or missing is left out.

use std::fmt::Write as _;
use std::fs::File;
use std::io::{Cursor, Read};
use std::os::unix::fs::FileExt as _;

use lzma_rust2::XzReader;
use object::elf::{self, FileHeader64};
use object::read::ReadCache;
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{Endianness, Object as _, ObjectSection as _};

use crate::code::CodeMapping;

/// A mapping begins at a page, the segment perhaps within it.
const PAGE: u64 = 4096;

/// The most bytes of a build id that are kept. Linkers write 20 at most, a SHA-1.
const LONGEST_ID: usize = 32;

/// Sections with names of files that hold debug information, in GNU's words and in those of DWARF 5.
const LINKS: [&str; 3] = [".gnu_debuglink", ".gnu_debugaltlink", ".debug_sup"];

/// The most program headers of a file, and the most bytes of notes: what says more is no program of a compiler's.
const MOST_HEADERS: u16 = 1024;
const MOST_NOTES: u64 = 64 << 10;

/// Debug information that is in the file itself, also compressed in the older way.
const OWN: [&str; 2] = [".debug_info", ".zdebug_info"];

/// Returns true if an ELF file names other files that have its debug information; it must not be too large to be read.
pub fn names_others(file: &File) -> bool {
    has_any(file, &LINKS)
}

/// Returns true if an ELF file, which must not be too large to be read, has debug information.
pub fn has_debug_information(file: &File) -> bool {
    has_any(file, &OWN)
}

/// The most bytes of symbols that a file has packed, and of memory to unpack them. Those of a browser take 9 MB.
const MOST_PACKED: u64 = 16 << 20;
const UNPACKING_KIB: u32 = 64 << 10;

/// The most bytes of a file that has them, and of what is unpacked.
const MOST_BYTES: u64 = 1 << 30;
pub const MOST_UNPACKED: u64 = 64 << 20;

/// The ELF file with the names of functions that a stripped file has packed, as distributions of the family of Fedora
/// make it (`MiniDebugInfo`, the manual of gdb); `None` if it has none, or too large a one.
pub fn packed_symbols(file: &File) -> Option<impl Read + '_> {
    // Its other symbols are read as well.
    (file.metadata().ok()?.len() <= MOST_BYTES).then_some(())?;
    let cache = ReadCache::new(file);
    let object = object::File::parse(&cache).ok()?;
    let (offset, size) = object.section_by_name(".gnu_debugdata")?.file_range()?;
    let size = usize::try_from(Some(size).filter(|size| *size <= MOST_PACKED)?).ok()?;
    let mut packed = vec![0; size];
    file.read_exact_at(&mut packed, offset).ok()?;
    Some(XzReader::new_mem_limit(
        Cursor::new(packed),
        false,
        UNPACKING_KIB,
    ))
}

fn has_any(file: &File, sections: &[&str]) -> bool {
    let cache = ReadCache::new(file);
    object::File::parse(&cache).is_ok_and(|object| {
        let mut sections = sections.iter();
        sections.any(|name| object.section_by_name(name).is_some())
    })
}

/// The same code is known again by this, on any machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeIdentity {
    /// The build id in hexadecimal digits, if the file has one.
    pub build_id: Option<String>,
    /// Where its code is.
    pub segments: CodeSegments,
}

/// The segments of code of a file: its bytes, and the addresses that its symbols state for them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CodeSegments(Vec<CodeSegment>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CodeSegment {
    offset: u64,
    length: u64,
    address: u64,
}

impl CodeIdentity {
    /// Reads it, from the program headers alone: sections may be as large as their author likes. `None` if the file is
    /// no 64-bit ELF file.
    pub fn of(file: &File) -> Option<Self> {
        let cache = ReadCache::new(file);
        let header = FileHeader64::<Endianness>::parse(&cache).ok()?;
        let endian = header.endian().ok()?;
        if header.e_phnum(endian) > MOST_HEADERS {
            return None;
        }
        let headers = header.program_headers(endian, &cache).ok()?;
        let code = headers.iter().filter(|one| {
            one.p_type(endian) == elf::PT_LOAD && one.p_flags(endian).contains(elf::PF_X)
        });
        let segments = code.map(|one| CodeSegment {
            offset: one.p_offset(endian),
            length: one.p_filesz(endian),
            address: one.p_vaddr(endian),
        });
        let notes = headers
            .iter()
            .filter(|one| one.p_filesz(endian) <= MOST_NOTES);
        let notes = notes.filter_map(|one| one.notes(endian, &cache).ok().flatten());
        let mut ids = notes.filter_map(|mut notes| {
            while let Ok(Some(note)) = notes.next() {
                let is_id =
                    note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID;
                if is_id && !note.desc().is_empty() {
                    return Some(digits_of(note.desc()));
                }
            }
            None
        });
        Some(Self {
            build_id: ids.next(),
            segments: CodeSegments(segments.collect()),
        })
    }
}

fn digits_of(id: &[u8]) -> String {
    let mut digits = String::new();
    for byte in id.iter().take(LONGEST_ID) {
        // Writing to a string does not fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

impl CodeSegments {
    /// The address that the file's symbols state for what is at this offset.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let segment = self
            .0
            .iter()
            .find(|segment| segment.offset <= offset && offset - segment.offset < segment.length)?;
        segment.address.checked_add(offset - segment.offset)
    }

    /// The number to add to an address that the file states, to have the one in a process that maps it so.
    pub fn moved_by(&self, mapping: &CodeMapping) -> Option<u64> {
        let holds = |segment: &&CodeSegment| {
            // The page where one segment ends and the next begins is in both.
            segment.offset / PAGE * PAGE <= mapping.offset
                && mapping.offset < segment.offset.saturating_add(segment.length)
        };
        let segment = self.0.iter().find(holds)?;
        let start = mapping.range.start.wrapping_sub(mapping.offset);
        Some(
            start
                .wrapping_add(segment.offset)
                .wrapping_sub(segment.address),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_in_the_file_has_the_address_that_symbols_state() {
        let own = File::open("/proc/self/exe").unwrap();
        let identity = CodeIdentity::of(&own).unwrap();
        let cache = ReadCache::new(&own);
        let object = object::File::parse(&cache).unwrap();
        let entry = object.entry();
        let offset = identity.segments.0.iter().find_map(|segment| {
            let inside = entry.checked_sub(segment.address)?;
            (inside < segment.length).then_some(segment.offset + inside)
        });
        assert_eq!(identity.segments.address_of(offset.unwrap()), Some(entry));
        assert_eq!(identity.segments.address_of(u64::MAX), None);
    }

    #[test]
    fn what_is_no_elf_file_has_none() {
        let text = File::open("/proc/self/maps").unwrap();
        assert_eq!(CodeIdentity::of(&text), None);
    }
}
