//! The unwind tables of a file, read from its ELF sections.
//!
//! The file is one that another process maps, so it may say anything: what is too large, damaged or missing is
//! left out, and a chain ends there.

use std::fs::File;
use std::io::Read as _;
use std::ops::Range;

use flate2::read::ZlibDecoder;
use object::read::ReadCache;
use object::{CompressionFormat, Object, ObjectSection, ObjectSymbol as _};
use swtch_capture::{CodeIdentity, CodeMapping, CodeSegments, GoFunctions};
use swtch_runtimes::go::{GoPlaces, GoVersion, GoroutineList, reasons_in, version_in};
use swtch_runtimes::java::{self, JavaPlaces};
use swtch_unwind::{FrameList, ListedFrames, TableSection, UnwindTables, parts_of};

/// The most that is read of a section. The tables of a browser take 9 MB.
const MOST_BYTES: u64 = 64 << 20;

/// The parts of a file that are needed to find callers. Addresses are as the file states them.
#[derive(Debug)]
pub struct FileTables {
    segments: CodeSegments,
    index: Option<FileSection>,
    frames: Option<FileSection>,
    listed: Option<(FileSection, FrameList)>,
    text: Option<u64>,
    got: Option<u64>,
    /// Functions that begin stacks.
    starts: Vec<Range<u64>>,
    python: Option<PythonFile>,
    go: Option<GoPlaces>,
    java: Option<JavaPlaces>,
}

/// Where the interpreter of Python is in a file that has it. Addresses are as the file states them.
#[derive(Clone, Debug)]
pub struct PythonFile {
    /// Its state, `_PyRuntime`.
    pub runtime: u64,
    /// Its version, `Py_Version`.
    pub version: Option<u64>,
    /// The function that runs programs, in all its parts.
    pub run_loop: Vec<Range<u64>>,
}

/// A function of Python has a frame of this one, or shares it with its caller (`Python/ceval.c`, 3.11 and later).
const PYTHON_LOOP: &str = "_PyEval_EvalFrameDefault";

/// Functions of Go that begin a stack: those of a goroutine and of a thread, and that which leaves a goroutine for the
/// scheduler, whose caller is on the goroutine's stack (`TOPFRAME` and `SPWRITE` in `runtime/asm_amd64.s`, Go 1.26).
const GO_STARTS: [&str; 4] = [
    "runtime.goexit.abi0",
    "runtime.mcall",
    "runtime.mstart.abi0",
    "runtime.rt0_go.abi0",
];

#[derive(Debug)]
struct FileSection {
    address: u64,
    bytes: Box<[u8]>,
}

type ElfFile<'a> = object::File<'a, &'a ReadCache<File>>;

impl FileSection {
    fn of(file: &ElfFile<'_>, name: &str) -> Option<Self> {
        let section = file.section_by_name(name)?;
        let stored = section.compressed_data().ok()?;
        if stored.uncompressed_size > MOST_BYTES {
            return None;
        }
        let bytes = match stored.format {
            CompressionFormat::None => stored.data.into(),
            CompressionFormat::Zlib => {
                let mut bytes = Vec::new();
                let mut decoder = ZlibDecoder::new(stored.data).take(MOST_BYTES);
                decoder.read_to_end(&mut bytes).ok()?;
                bytes.into()
            }
            _ => return None,
        };
        Some(Self {
            address: section.address(),
            bytes,
        })
    }

    const fn at_its_address(&self) -> TableSection<'_> {
        TableSection {
            address: self.address,
            bytes: &self.bytes,
        }
    }
}

/// Functions of Go that begin stacks: by its symbols, or where these were left out, by the runtime's own list.
fn starts_of_go(object: &ElfFile<'_>) -> Vec<Range<u64>> {
    if !GoFunctions::are_in(object) {
        return Vec::new();
    }
    let starts = object.symbols().filter(|symbol| {
        let name = symbol.name();
        name.is_ok_and(|name| GO_STARTS.contains(&name))
    });
    let ranges =
        starts.map(|symbol| symbol.address()..symbol.address().saturating_add(symbol.size()));
    let ranges: Vec<_> = ranges.take(2 * GO_STARTS.len()).collect();
    if !ranges.is_empty() {
        return ranges;
    }
    let names = GO_STARTS.map(|name| name.trim_end_matches(".abi0"));
    GoFunctions::of(object).map_or_else(Vec::new, |functions| functions.named(&names))
}

/// Where a virtual machine of Java says how it is laid out, as the file states it.
fn java_of(object: &ElfFile<'_>) -> Option<JavaPlaces> {
    let mut found = [None; java::SYMBOLS.len()];
    for symbol in object.dynamic_symbols() {
        let name = symbol.name().unwrap_or_default();
        if let Some(place) = java::SYMBOLS.iter().position(|known| *known == name) {
            found[place] = Some(symbol.address());
        }
    }
    let mut places = [0; java::SYMBOLS.len()];
    for (place, address) in places.iter_mut().zip(found) {
        *place = address?;
    }
    Some(JavaPlaces(places))
}

/// Where the runtime of Go is, as the file states it, by its symbols.
fn go_by_symbols(object: &ElfFile<'_>) -> Option<GoPlaces> {
    let names = [
        "runtime.allgs",
        "runtime.waitReasonStrings",
        "runtime.buildVersion",
    ];
    let mut found = [None; 3];
    for symbol in object.symbols() {
        let name = symbol.name().unwrap_or_default();
        if let Some(place) = names.iter().position(|known| *known == name) {
            found[place] = Some(symbol.address());
        }
    }
    let [goroutines, reasons, version] = found;
    Some(GoPlaces {
        goroutines: GoroutineList::At(goroutines?),
        reasons: reasons?,
        version: GoVersion::At(version?),
    })
}

/// The same where its symbols were left out: `None` if it is of a Go that does not say with what it was built.
fn go_by_sections(object: &ElfFile<'_>) -> Option<GoPlaces> {
    let built = FileSection::of(object, ".go.buildinfo")?;
    let data = FileSection::of(object, ".data")?;
    let zeroed = object.section_by_name(".bss")?;
    let end = zeroed.address().checked_add(zeroed.size())?;
    Some(GoPlaces {
        goroutines: GoroutineList::Within(data.address, end),
        reasons: data.address.checked_add(reasons_in(&data.bytes)? as u64)?,
        version: GoVersion::Minor(version_in(&built.bytes)?),
    })
}

fn python_of(object: &ElfFile<'_>, frames: Option<&FileSection>) -> Option<PythonFile> {
    let runtime = object.section_by_name(".PyRuntime")?.address();
    let named = |name: &str| {
        let mut symbols = object.dynamic_symbols().chain(object.symbols());
        symbols.find(|symbol| symbol.name() == Ok(name))
    };
    let symbol = named(PYTHON_LOOP)?;
    let start = symbol.address();
    let run_loop = start..start.saturating_add(symbol.size());
    let parts = || {
        let (code, tables) = (FileSection::of(object, ".text")?, frames?);
        let functions = FrameList::of_eh_frame(tables.at_its_address());
        let parts = parts_of(run_loop.clone(), &code.bytes, code.address, &functions);
        Some(parts)
    };
    Some(PythonFile {
        runtime,
        version: named("Py_Version").map(|symbol| symbol.address()),
        run_loop: parts().unwrap_or_else(|| vec![run_loop.clone()]),
    })
}

impl FileTables {
    /// Reads a file's tables; `None` if it is no ELF file of this machine's kind.
    pub fn read(file: File) -> Option<Self> {
        let segments = CodeIdentity::of(&file)?.segments;
        let file = ReadCache::new(file);
        let object = ElfFile::parse(&file).ok()?;
        (object.is_64() && object.is_little_endian() == cfg!(target_endian = "little"))
            .then_some(())?;
        let start = |name: &str| Some(object.section_by_name(name)?.address());
        let index = FileSection::of(&object, ".eh_frame_hdr");
        let frames = FileSection::of(&object, ".eh_frame");
        let has_index = index.is_some() && frames.is_some();
        let python = python_of(&object, frames.as_ref());
        let starts = starts_of_go(&object);
        let listed = || {
            let section = FileSection::of(&object, ".debug_frame")?;
            let list = FrameList::of_debug_frame(&section.bytes);
            Some((section, list))
        };
        let (frames, listed) = match frames {
            Some(section) if !has_index => {
                let list = FrameList::of_eh_frame(section.at_its_address());
                (None, Some((section, list)))
            }
            frames => (frames, listed()),
        };
        Some(Self {
            segments,
            index: index.filter(|_| has_index),
            frames,
            listed,
            text: start(".text"),
            got: start(".got"),
            go: (!starts.is_empty())
                .then(|| go_by_symbols(&object).or_else(|| go_by_sections(&object)))
                .flatten(),
            starts,
            python,
            java: java_of(&object),
        })
    }

    /// How large they are.
    pub fn bytes(&self) -> usize {
        let listed = self.listed.as_ref().map(|(section, _)| section);
        let sections = [self.index.as_ref(), self.frames.as_ref(), listed];
        let sections = sections.iter().flatten();
        let list = self.listed.as_ref().map_or(0, |(_, list)| list.bytes());
        sections.map(|section| section.bytes.len()).sum::<usize>() + list
    }

    /// True for an address, as the file states it, in a function that begins stacks.
    pub fn begins_stacks_at(&self, address: u64) -> bool {
        self.starts
            .iter()
            .any(|function| function.contains(&address))
    }

    /// The interpreter of Python, if it is in this file and its function that runs programs has this address.
    pub fn python_at(&self, address: u64) -> Option<&PythonFile> {
        self.python
            .as_ref()
            .filter(|python| python.run_loop.iter().any(|part| part.contains(&address)))
    }

    /// Where the runtime of Go is, if it is in this file.
    pub const fn go(&self) -> Option<GoPlaces> {
        self.go
    }

    /// Where a virtual machine of Java says how it is laid out, if it is in this file.
    pub const fn java(&self) -> Option<JavaPlaces> {
        self.java
    }

    /// The tables, for the walk.
    pub fn tables(&self) -> UnwindTables<'_> {
        UnwindTables {
            index: self.index.as_ref().map(FileSection::at_its_address),
            frames: self.frames.as_ref().map(FileSection::at_its_address),
            listed: self.listed.as_ref().map(|(section, list)| ListedFrames {
                section: section.at_its_address(),
                list,
            }),
            text: self.text,
            got: self.got,
        }
    }

    /// The number to add to an address that the file states, to have the one in a process that maps it so.
    pub fn moved_by(&self, mapping: &CodeMapping) -> Option<u64> {
        self.segments.moved_by(mapping)
    }
}
