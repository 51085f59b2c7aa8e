//! Names of functions at a place: of the kernel, and of a file from its symbols, its debug information and the list of
//! Go's runtime.
//!
//! `files_by_id` finds the file that describes a program, `named_by` names the frames of a trace anew.

use std::cell::RefCell;
use std::fs::File;
use std::path::{Path, PathBuf};

use blazesym::MaybeDefault;
use blazesym::symbolize::source::{Elf, Kernel, Source};
use blazesym::symbolize::{CodeInfo, InlinedFn, Input, Symbolized, Symbolizer};
use object::read::ReadCache;
use rustc_hash::FxHashMap;
use swtch_core::Frame;

use crate::demangle::demangled;
use crate::go_functions::GoFunctions;

mod files_by_id;
mod named_by;

pub use files_by_id::FilesById;
pub use named_by::{NamedByFiles, named_by};
pub(crate) use named_by::{number_of, put_frames};

/// The most functions at one place that were put into each other.
const MOST_INLINED: usize = 64;

/// The longest path of a source file that is kept.
const LONGEST_PATH: usize = 4096;

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

    /// Takes the function's name from `other` if that has one, and its source where this has none. Symbols hold
    /// qualified names; debug information holds only the last part.
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

    /// Returns the function at an address of the kernel, by the kernel's symbols.
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

    /// Returns the function at a place of a file, by the file's own symbols.
    pub fn by_symbols(&self, path: &Path, place: PlaceInFile) -> NamedPlace {
        self.in_file(path, place, false)
    }

    /// Returns the function at an address of a program of Go, and its source file. They come from a list that the
    /// runtime of Go needs, so it is there also where symbols were left out.
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

    /// Returns the function at a place of a file, its source line and the functions that were inlined there, by debug
    /// information in the file or in one that it names; nothing where that is not installed.
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
