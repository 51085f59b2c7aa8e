//! Names of functions at a place in a file: from its symbols and its debug information, or from a file with the same
//! build id.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use blazesym::MaybeDefault;
use blazesym::symbolize::source::{Elf, Kernel, Source};
use blazesym::symbolize::{CodeInfo, InlinedFn, Input, Symbolized, Symbolizer};
use object::read::ReadCache;
use rustc_hash::FxHashMap;
use swtch_core::{Frame, Stack};

use crate::code_file::CodeIdentity;
use crate::demangle::demangled;
use crate::go_functions::GoFunctions;

/// Where distributions put debug information that is not in the file itself.
const SYSTEM_DIRECTORIES: [&str; 2] = ["/usr/lib/debug", "/lib/debug"];

/// The most functions at one place that were put into each other.
const MOST_INLINED: usize = 64;

/// The longest path of a source file that is kept.
const LONGEST_PATH: usize = 4096;

/// The most files of a directory that are looked at, and how deep.
const MOST_FILES: usize = 100_000;
const DEEPEST: usize = 8;

/// A place in a file.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PlaceInFile {
    /// By its offset.
    Offset(u64),
    /// By the address that the file's symbols state.
    Address(u64),
}

/// What is known of a place.
#[derive(Debug, Default)]
pub(crate) struct NamedPlace {
    /// The function, and the distance from its start.
    pub symbol: Option<(String, Option<u64>)>,
    line: SourceLine,
    /// Functions that a compiler has put into it, the outermost first.
    inlined: Vec<(String, SourceLine)>,
}

#[derive(Clone, Debug, Default)]
struct SourceLine {
    file: Option<String>,
    line: Option<u32>,
}

impl SourceLine {
    fn of(code: Option<&CodeInfo<'_>>) -> Self {
        let file = code.map(|code| code.to_path().to_string_lossy().into_owned());
        Self {
            file: file.filter(|file| file.len() <= LONGEST_PATH),
            line: code.and_then(|code| code.line),
        }
    }
}

impl NamedPlace {
    /// A file without the place, or that cannot be read, gives nothing.
    fn of(found: blazesym::Result<Symbolized<'_>>) -> Self {
        let Ok(Symbolized::Sym(symbol)) = found else {
            return Self::default();
        };
        // Names that are in a file of their own (dwz) are not found.
        let is_named = |function: &&InlinedFn<'_>| !function.name.is_empty();
        let inlined = symbol.inlined.iter().filter(is_named).take(MOST_INLINED);
        let inlined = inlined.map(|function| {
            let name = demangled(function.name.clone()).into_owned();
            (name, SourceLine::of(function.code_info.as_ref()))
        });
        Self {
            inlined: inlined.collect(),
            line: SourceLine::of(symbol.code_info.as_deref()),
            symbol: (!symbol.name.is_empty()).then(|| {
                (
                    demangled(symbol.name).into_owned(),
                    u64::try_from(symbol.offset).ok(),
                )
            }),
        }
    }

    /// This, with the function's name from there if it has one: symbols have whole names, while those in debug
    /// information lack what they are in. Where this tells no source, the other's is told.
    pub fn with_symbol_of(self, other: Self) -> Self {
        Self {
            symbol: other.symbol.or(self.symbol),
            line: match self.line.file {
                Some(_) => self.line,
                None => other.line,
            },
            ..self
        }
    }

    /// The frames of the place, the innermost first: what was inlined is a frame of its own.
    pub fn into_frames(self, place: Frame) -> Vec<Frame> {
        let (symbol, offset) = self.symbol.unzip();
        let frame = Frame {
            symbol: symbol.or(place.symbol),
            offset: offset.flatten().or(place.offset),
            file: self.line.file.or(place.file),
            line: self.line.line.or(place.line),
            ..place
        };
        let inlined = self.inlined.into_iter().rev();
        let inlined = inlined.map(|(name, at)| Frame {
            symbol: Some(name),
            offset: None,
            file: at.file,
            line: at.line,
            ..frame.clone()
        });
        let mut frames: Vec<_> = inlined.collect();
        frames.push(frame);
        frames
    }
}

/// Looks names up, and keeps what it has read of files.
#[derive(Debug)]
pub(crate) struct SymbolReader {
    symbolizer: Symbolizer,
    /// The functions of files of Go, as far as they were asked for.
    go: RefCell<FxHashMap<PathBuf, Option<GoFunctions>>>,
}

impl SymbolReader {
    pub fn new() -> Self {
        Self {
            symbolizer: Symbolizer::builder().enable_demangling(false).build(),
            go: RefCell::default(),
        }
    }

    /// What the kernel's symbols say.
    pub fn in_kernel(&self, address: u64) -> NamedPlace {
        // Only kallsyms is used: it is right for the running kernel, and small.
        let kernel = Source::Kernel(Kernel {
            vmlinux: MaybeDefault::None,
            debug_syms: false,
            ..Kernel::default()
        });
        NamedPlace::of(
            self.symbolizer
                .symbolize_single(&kernel, Input::AbsAddr(address)),
        )
    }

    /// What the file's own symbols say.
    pub fn by_symbols(&self, path: &Path, place: PlaceInFile) -> NamedPlace {
        self.in_file(path, place, false)
    }

    /// What the runtime of Go says in its own list, which is there also where symbols were left out.
    pub fn by_runtime(&self, path: &Path, address: u64) -> NamedPlace {
        let mut files = self.go.borrow_mut();
        let functions = files.entry(path.to_owned()).or_insert_with(|| {
            let cache = ReadCache::new(File::open(path).ok()?);
            GoFunctions::of(&object::File::parse(&cache).ok()?)
        });
        let function = functions
            .as_ref()
            .and_then(|functions| functions.at(address));
        function.map_or_else(NamedPlace::default, |function| NamedPlace {
            symbol: Some((function.name, address.checked_sub(function.start))),
            line: SourceLine {
                file: function.file,
                line: None,
            },
            inlined: Vec::new(),
        })
    }

    /// What debug information says, in the file or in one that it names; nothing where that is not installed.
    pub fn by_debug_information(&self, path: &Path, place: PlaceInFile) -> NamedPlace {
        self.in_file(path, place, true)
    }

    fn in_file(&self, path: &Path, place: PlaceInFile, debug_syms: bool) -> NamedPlace {
        let source = Source::Elf(Elf {
            debug_syms,
            ..Elf::new(path)
        });
        let input = match place {
            PlaceInFile::Offset(offset) => Input::FileOffset(offset),
            PlaceInFile::Address(address) => Input::VirtOffset(address),
        };
        NamedPlace::of(self.symbolizer.symbolize_single(&source, input))
    }
}

/// Files with symbols, found by their build ids.
#[derive(Debug, Default)]
pub struct FilesById {
    /// Directories that have a directory `.build-id`, as distributions arrange them.
    roots: Vec<PathBuf>,
    listed: FxHashMap<String, PathBuf>,
}

impl FilesById {
    /// Those that the system's packages have brought.
    pub fn of_system() -> Self {
        Self {
            roots: SYSTEM_DIRECTORIES.map(PathBuf::from).to_vec(),
            ..Self::default()
        }
    }

    /// All files in a directory and below it.
    ///
    /// # Errors
    /// When it cannot be listed.
    pub fn in_directory(directory: &Path) -> io::Result<Self> {
        let mut files = Self {
            roots: vec![directory.to_owned()],
            ..Self::default()
        };
        // What cannot be listed further down has no names.
        let mut below = vec![(directory.to_owned(), 0)];
        let mut looked_at = 0;
        fs::read_dir(directory)?;
        while let Some((directory, depth)) = below.pop() {
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                let Ok(kind) = entry.file_type() else {
                    continue;
                };
                if kind.is_dir() && depth < DEEPEST {
                    below.push((entry.path(), depth + 1));
                } else if kind.is_file() && looked_at < MOST_FILES {
                    looked_at += 1;
                    files.add(entry.path());
                }
            }
        }
        Ok(files)
    }

    fn add(&mut self, path: PathBuf) {
        let identity = File::open(&path)
            .ok()
            .and_then(|file| CodeIdentity::of(&file));
        let Some(id) = identity.and_then(|identity| identity.build_id) else {
            return;
        };
        // A file of debug information alone says more than the stripped one that it belongs to.
        let is_debug = path.extension() == Some(OsStr::new("debug"));
        if is_debug || !self.listed.contains_key(&id) {
            self.listed.insert(id, path);
        }
    }

    /// The file with this build id.
    pub fn path_of(&self, id: &str) -> Option<PathBuf> {
        if let Some(path) = self.listed.get(id) {
            return Some(path.clone());
        }
        // It is part of a path.
        let is_id = id.bytes().all(|digit| digit.is_ascii_hexdigit());
        let (start, rest) = id.split_at_checked(2).filter(|_| is_id)?;
        let mut paths = self.roots.iter().map(|root| {
            root.join(".build-id")
                .join(start)
                .join(format!("{rest}.debug"))
        });
        paths.find(|path| path.is_file())
    }
}

/// Frames and stacks that name them, after the frames were looked up again.
#[derive(Debug)]
pub struct NamedByFiles {
    /// The stacks.
    pub stacks: Vec<Stack>,
    /// Their frames.
    pub frames: Vec<Frame>,
    /// How many places have a name that they had not before.
    pub named: usize,
    /// Files of which places have no name, with their build ids: no file has these.
    pub missing: BTreeSet<(String, String)>,
}

/// Looks up the frames of a trace that lack a name or a line, in files with the same build ids.
pub fn named_by(files: &FilesById, stacks: Vec<Stack>, frames: Vec<Frame>) -> NamedByFiles {
    let reader = SymbolReader::new();
    let mut named = NamedByFiles {
        stacks,
        frames: Vec::with_capacity(frames.len()),
        named: 0,
        missing: BTreeSet::new(),
    };
    let mut paths: FxHashMap<String, Option<PathBuf>> = FxHashMap::default();
    let mut frames_at: FxHashMap<u32, Range<u32>> = FxHashMap::default();
    for frame in frames {
        let (number, first) = (frame.id, named.frames.len());
        match (frame.build_id.clone(), frame.file_address) {
            (Some(id), Some(address)) if lacks_names(&frame) => {
                let path = paths.entry(id).or_insert_with_key(|id| files.path_of(id));
                let place = path.as_deref().map(|path| {
                    let place = PlaceInFile::Address(address);
                    let debug = reader.by_debug_information(path, place);
                    debug.with_symbol_of(reader.by_symbols(path, place))
                });
                named.add(frame, place);
            }
            _ => named.frames.push(frame),
        }
        frames_at.insert(number, number_of(first)..number_of(named.frames.len()));
    }
    put_frames(&mut named.stacks, &mut named.frames, |number| {
        frames_at.get(&number).cloned()
    });
    named
}

/// A function that was inlined has a name and no distance from a start of its own.
const fn lacks_names(frame: &Frame) -> bool {
    frame.symbol.is_none() || (frame.file.is_none() && frame.offset.is_some())
}

impl NamedByFiles {
    /// Adds the frames of a place; `place` is `None` if no file has the build id.
    fn add(&mut self, frame: Frame, place: Option<NamedPlace>) {
        let was_named = frame.symbol.is_some();
        match place {
            Some(place) => {
                self.named += usize::from(!was_named && place.symbol.is_some());
                self.frames.extend(place.into_frames(frame));
            }
            None => {
                if let (false, Some(module), Some(id)) = (was_named, &frame.module, &frame.build_id)
                {
                    self.missing.insert((module.clone(), id.clone()));
                }
                self.frames.push(frame);
            }
        }
    }
}

/// Stands for a frame that is in no table.
const LOST: u32 = u32::MAX;

/// Numbers the frames as they lie there, and puts those of each place into the stacks, which have numbers of places.
pub(crate) fn put_frames(
    stacks: &mut [Stack],
    frames: &mut [Frame],
    at_place: impl Fn(u32) -> Option<Range<u32>>,
) {
    for (index, frame) in frames.iter_mut().enumerate() {
        frame.id = number_of(index);
    }
    for stack in stacks {
        let places = std::mem::take(&mut stack.frames);
        for place in places {
            match at_place(place) {
                Some(frames) => stack.frames.extend(frames),
                None => stack.frames.push(LOST),
            }
        }
    }
}

pub(crate) fn number_of(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
