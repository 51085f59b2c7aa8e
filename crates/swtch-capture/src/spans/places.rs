//! The places of programs between which spans are: functions, and markers that a program brings (USDT), found in its file.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::str::FromStr;
use std::{fmt, io};

use object::elf::PF_X;
use object::read::ReadCache;
use object::{
    Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _, SegmentFlags,
    SymbolKind,
};

use crate::go_functions::GoFunctions;

/// What is said of the form of a span.
const FORM: &str = "postgres, otel, FILE:FUNCTION (from its call to its return), or FILE:BEGIN..END, where BEGIN and END are \
                    functions or markers (usdt:PROVIDER:NAME)";

/// Where a program has its markers, and from where their addresses count (`sys/sdt.h`).
const MARKERS: &str = ".note.stapsdt";
const BASE: &str = ".stapsdt.base";
const OWNER: &[u8] = b"stapsdt\0";

/// The most bytes of markers that are read. `PostgreSQL` has 6 KB of them.
const MOST_BYTES: u64 = 16 << 20;

/// Spans to record: the words of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanChoice {
    /// Statements of `PostgreSQL`.
    Postgres,
    /// What threads work on, as programs publish it ([`crate::ContextCapture`]).
    Contexts,
    /// Between two places of a program.
    Between {
        /// The program, or a library.
        file: PathBuf,
        /// Where they begin.
        begin: PlaceInProgram,
        /// Where they end.
        end: PlaceInProgram,
    },
}

/// A place in a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlaceInProgram {
    /// The first instruction of a function.
    Function(String),
    /// Where a function returns.
    Return(String),
    /// A marker.
    Marker {
        /// The program, in the words of its author.
        provider: String,
        /// The name.
        name: String,
    },
}

/// Spans of one kind, and where in which file they begin and end.
#[derive(Debug)]
pub(super) struct SpanPlaces {
    pub name: String,
    /// The file in which the places were found: none that has come to its path since.
    pub file: Rc<File>,
    pub shown: PathBuf,
    pub begin: Vec<SpanProbe>,
    pub end: Vec<SpanProbe>,
}

/// What is asked of the kernel: to stop for a moment at this place of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpanProbe {
    /// In the file.
    pub offset: u64,
    /// Where in the file the program looks whether somebody listens; 0 if it does not ask.
    pub semaphore: u64,
    /// When the function there returns, not when it is called.
    pub is_return: bool,
}

/// A span that cannot be recorded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoSpan {
    /// The words have another form.
    #[error("a span is {FORM}")]
    Form,
    /// No such program runs.
    #[error(
        "no process runs {0} from a file of root's or yours that nobody else may write to: spans need its program; start it \
         first, or give the file: FILE:BEGIN..END"
    )]
    NotRunning(&'static str),
    /// The file cannot be read.
    #[error("cannot read {0}")]
    File(PathBuf, #[source] std::io::Error),
    /// It is no program.
    #[error("{0} is no program or library (ELF) of this kind of machine")]
    NoProgram(PathBuf),
    /// It lacks a place.
    #[error("{file} has no {place}; {hint}")]
    NoPlace {
        /// The file.
        file: PathBuf,
        /// The place.
        place: String,
        /// What to do.
        hint: &'static str,
    },
    /// What is between two places there is nobody's.
    #[error(
        "{0} is a program of Go: its goroutines go from thread to thread, so that what is between two places of a thread \
         would be of several, and a probe where a function returns would end the program"
    )]
    OfGo(PathBuf),
}

impl FromStr for SpanChoice {
    type Err = NoSpan;

    fn from_str(words: &str) -> Result<Self, NoSpan> {
        if words == "postgres" {
            return Ok(Self::Postgres);
        }
        if words == "otel" {
            return Ok(Self::Contexts);
        }
        let (file, places) = words.split_once(':').ok_or(NoSpan::Form)?;
        let (begin, end) = match places.split_once("..") {
            Some((begin, end)) => (begin.parse()?, end.parse()?),
            None if places.starts_with("usdt:") => return Err(NoSpan::Form),
            None => (places.parse()?, PlaceInProgram::Return(places.to_owned())),
        };
        (!file.is_empty()).then_some(()).ok_or(NoSpan::Form)?;
        let file = PathBuf::from(file);
        Ok(Self::Between { file, begin, end })
    }
}

impl FromStr for PlaceInProgram {
    type Err = NoSpan;

    fn from_str(words: &str) -> Result<Self, NoSpan> {
        let Some(marker) = words.strip_prefix("usdt:") else {
            let is_name = !words.is_empty() && !words.contains(char::is_whitespace);
            return is_name
                .then(|| Self::Function(words.to_owned()))
                .ok_or(NoSpan::Form);
        };
        let (provider, name) = marker.split_once(':').ok_or(NoSpan::Form)?;
        let is_named = !provider.is_empty() && !name.is_empty();
        is_named.then_some(()).ok_or(NoSpan::Form)?;
        Ok(Self::marker(provider, name))
    }
}

impl fmt::Display for PlaceInProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Function(name) => write!(f, "function {name}"),
            Self::Return(name) => write!(f, "return of {name}"),
            Self::Marker { provider, name } => write!(f, "marker {provider}:{name}"),
        }
    }
}

impl PlaceInProgram {
    fn marker(provider: &str, name: &str) -> Self {
        Self::Marker {
            provider: provider.to_owned(),
            name: name.to_owned(),
        }
    }
}

impl SpanChoice {
    /// Finds the places in the files; `open` opens one that was named.
    pub(super) fn places(
        &self,
        open: impl Fn(&Path) -> io::Result<File>,
    ) -> Result<Vec<SpanPlaces>, NoSpan> {
        match self {
            Self::Postgres => {
                let files = running("postgres");
                if files.is_empty() {
                    return Err(NoSpan::NotRunning("postgres"));
                }
                let mut places = Vec::new();
                for (path, file) in files {
                    // Statements of the extended protocol, prepared ones above all, are told as what they execute.
                    for (name, begin, end) in [
                        ("query", "query__start", "query__done"),
                        ("execute", "query__execute__start", "query__execute__done"),
                    ] {
                        let marker = |name| PlaceInProgram::marker("postgresql", name);
                        let (begin, end) = (marker(begin), marker(end));
                        places.push(places_in((&path, &file), name, &begin, &end)?);
                    }
                }
                Ok(places)
            }
            // These have no place in a file.
            Self::Contexts => Ok(Vec::new()),
            Self::Between { file, begin, end } => {
                let name = match (begin, end) {
                    (PlaceInProgram::Function(begin), PlaceInProgram::Return(_)) => begin.clone(),
                    _ => format!("{begin} to {end}"),
                };
                let path = in_path(file);
                let opened = open(&path).map_err(|error| NoSpan::File(path.clone(), error))?;
                let opened = Rc::new(opened);
                Ok(vec![places_in((&path, &opened), &name, begin, end)?])
            }
        }
    }
}

/// The files that processes run whose program is called so, each once. Anybody may call his program so: only files that
/// nobody but root and the user of this process may have written are believed.
fn running(name: &str) -> Vec<(PathBuf, Rc<File>)> {
    let mut found: BTreeMap<(u64, u64), (PathBuf, Rc<File>)> = BTreeMap::new();
    // SAFETY: it takes nothing, and always succeeds.
    let own = unsafe { libc::geteuid() };
    for process in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let program = process.path().join("exe");
        let Ok(path) = fs::read_link(&program) else {
            continue;
        };
        let file = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
        // So a file is called that was replaced, as by an update.
        if file.strip_suffix(" (deleted)").unwrap_or(file) != name {
            continue;
        }
        let opened = || {
            let file = File::open(&program).ok()?;
            let facts = file.metadata().ok()?;
            let is_trusted = [0, own].contains(&facts.uid()) && facts.mode() & 0o022 == 0;
            is_trusted.then_some(((facts.dev(), facts.ino()), file))
        };
        if let Some((number, file)) = opened() {
            found.entry(number).or_insert((path, Rc::new(file)));
        }
    }
    found.into_values().collect()
}

/// A name without a directory is looked for where commands are.
fn in_path(file: &Path) -> PathBuf {
    if file.components().count() > 1 {
        return file.to_owned();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|directory| directory.join(file));
    places
        .find(|place| place.is_file())
        .unwrap_or_else(|| file.to_owned())
}

fn places_in(
    (path, file): (&Path, &Rc<File>),
    name: &str,
    begin: &PlaceInProgram,
    end: &PlaceInProgram,
) -> Result<SpanPlaces, NoSpan> {
    let cache = ReadCache::new(&**file);
    let object = object::File::parse(&cache).ok();
    let object = object.filter(|object| object.is_64() && object.is_little_endian());
    let object = object.ok_or_else(|| NoSpan::NoProgram(path.to_owned()))?;
    if GoFunctions::are_in(&object) {
        return Err(NoSpan::OfGo(path.to_owned()));
    }
    let probes = |place: &PlaceInProgram| {
        let found = probes_at(&object, place);
        let hint = match place {
            PlaceInProgram::Marker { .. } => "readelf -n lists the markers that a program brings",
            _ => {
                "nm lists the functions of a program that has symbols (mangled, as they stand there)"
            }
        };
        match found.is_empty() {
            true => Err(NoSpan::NoPlace {
                file: path.to_owned(),
                place: place.to_string(),
                hint,
            }),
            false => Ok(found),
        }
    };
    Ok(SpanPlaces {
        name: name.to_owned(),
        file: Rc::clone(file),
        shown: path.to_owned(),
        begin: probes(begin)?,
        end: probes(end)?,
    })
}

type ElfFile<'a> = object::File<'a, &'a ReadCache<&'a File>>;

fn probes_at(object: &ElfFile<'_>, place: &PlaceInProgram) -> Vec<SpanProbe> {
    let (name, is_return) = match place {
        PlaceInProgram::Function(name) => (name, false),
        PlaceInProgram::Return(name) => (name, true),
        PlaceInProgram::Marker { provider, name } => return markers(object, provider, name),
    };
    let symbols = object.symbols().chain(object.dynamic_symbols());
    // A library may have a function in several versions, and a program several of its own files' with one name.
    let addresses = symbols.filter_map(|symbol| {
        let is_it = symbol.kind() == SymbolKind::Text && symbol.name() == Ok(name);
        (is_it && symbol.is_definition()).then(|| symbol.address())
    });
    let addresses: BTreeSet<u64> = addresses.collect();
    let probe = |address: u64| {
        Some(SpanProbe {
            offset: offset_of(object, address, IsCode::Yes)?,
            semaphore: 0,
            is_return,
        })
    };
    addresses.into_iter().filter_map(probe).collect()
}

/// The places of a marker: a compiler may have put the function with it into several others.
fn markers(object: &ElfFile<'_>, provider: &str, name: &str) -> Vec<SpanProbe> {
    let section = object.section_by_name(MARKERS);
    let Some(section) = section.filter(|section| section.size() <= MOST_BYTES) else {
        return Vec::new();
    };
    let base = object.section_by_name(BASE).map(|base| base.address());
    let notes = Notes(section.data().unwrap_or_default());
    let marks = notes.filter(|mark| (mark.provider, mark.name) == (provider, name));
    let probe = |mark: ProgramMarker<'_>| {
        // The file may have been moved as a whole since it was linked.
        let moved_by = base.map_or(0, |base| base.wrapping_sub(mark.base));
        let at = |address: u64, is_code| offset_of(object, address.wrapping_add(moved_by), is_code);
        Some(SpanProbe {
            offset: at(mark.address, IsCode::Yes)?,
            semaphore: match mark.semaphore {
                0 => 0,
                address => at(address, IsCode::No)?,
            },
            is_return: false,
        })
    };
    marks.filter_map(probe).collect()
}

/// Whether what is looked for is code. A probe changes what is there: among data it would change these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IsCode {
    Yes,
    No,
}

/// Where in the file lies what is at an address when the program runs.
fn offset_of(object: &ElfFile<'_>, address: u64, is_code: IsCode) -> Option<u64> {
    object.segments().find_map(|segment| {
        let (offset, length) = segment.file_range();
        let within = address.checked_sub(segment.address())?;
        let SegmentFlags::Elf { p_flags, .. } = segment.flags() else {
            return None;
        };
        let may_be_run = p_flags.contains(PF_X);
        let is_there = within < length && (may_be_run || is_code == IsCode::No);
        is_there.then(|| offset.checked_add(within))?
    })
}

/// A marker, as a note tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProgramMarker<'a> {
    address: u64,
    base: u64,
    semaphore: u64,
    provider: &'a str,
    name: &'a str,
}

/// The notes of a section that are left.
struct Notes<'a>(&'a [u8]);

impl<'a> Iterator for Notes<'a> {
    type Item = ProgramMarker<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (owner, note, rest) = note_of(self.0)?;
            self.0 = rest;
            if let Some(marker) = marker_of(note).filter(|_| owner == OWNER) {
                return Some(marker);
            }
        }
    }
}

/// Whose the first note is, what it says, and what comes after it.
fn note_of(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let length = |at: usize| {
        let length = u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?);
        usize::try_from(length).ok()
    };
    let (owner, note) = (length(0)?, length(4)?);
    let rest = bytes.get(12..)?;
    let (owner, rest) = (rest.get(..owner)?, rest.get(owner.next_multiple_of(4)..)?);
    let after = rest.get(note.next_multiple_of(4)..).unwrap_or_default();
    Some((owner, rest.get(..note)?, after))
}

fn marker_of(note: &[u8]) -> Option<ProgramMarker<'_>> {
    let word = |at: usize| Some(u64::from_le_bytes(*note.get(at..)?.first_chunk()?));
    let mut texts = note.get(24..)?.split(|byte| *byte == 0);
    let mut text = || str::from_utf8(texts.next()?).ok();
    Some(ProgramMarker {
        address: word(0)?,
        base: word(8)?,
        semaphore: word(16)?,
        provider: text()?,
        name: text()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_tell_a_file_and_two_places() {
        let choice = |words: &str| words.parse::<SpanChoice>();
        assert_eq!(choice("postgres").unwrap(), SpanChoice::Postgres);
        assert_eq!(choice("otel").unwrap(), SpanChoice::Contexts);
        let function = |name: &str| PlaceInProgram::Function(name.to_owned());
        let between = |begin, end| SpanChoice::Between {
            file: "/bin/x".into(),
            begin,
            end,
        };
        let to_return = PlaceInProgram::Return("serve".to_owned());
        assert_eq!(
            choice("/bin/x:serve").unwrap(),
            between(function("serve"), to_return)
        );
        assert_eq!(
            choice("/bin/x:a..b").unwrap(),
            between(function("a"), function("b"))
        );
        let marker = PlaceInProgram::marker("x", "done");
        assert_eq!(
            choice("/bin/x:a..usdt:x:done").unwrap(),
            between(function("a"), marker)
        );
        for words in [
            "",
            "x",
            "x:",
            ":f",
            "x:..b",
            "x:a..",
            "x:a b",
            "x:usdt:p:n",
            "x:usdt:p..b",
            "x:usdt::n..b",
        ] {
            assert!(choice(words).is_err(), "{words}");
        }
    }

    fn note(owner: &[u8], words: [u64; 3], texts: &[u8]) -> Vec<u8> {
        let length = 24 + u32::try_from(texts.len()).unwrap();
        let owned = u32::try_from(owner.len()).unwrap();
        let mut bytes = [owned, length, 3].map(u32::to_le_bytes).concat();
        bytes.extend(owner);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes.extend(words.map(u64::to_le_bytes).concat());
        bytes.extend(texts);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn markers_are_read_from_notes_and_what_is_cut_is_none() {
        let notes = [
            note(b"GNU\0", [1, 2, 3], b"x\0y\0\0"),
            note(
                OWNER,
                [0x10, 0x20, 0x30],
                b"postgresql\0query__start\0-8@%rax\0",
            ),
        ]
        .concat();
        let found: Vec<_> = Notes(&notes).collect();
        let marker = ProgramMarker {
            address: 0x10,
            base: 0x20,
            semaphore: 0x30,
            provider: "postgresql",
            name: "query__start",
        };
        assert_eq!(found, [marker]);
        for length in 0..notes.len() {
            let _ = Notes(&notes[..length]).count();
        }
        for at in 0..notes.len() {
            let mut changed = notes.clone();
            changed[at] = 0xff;
            let _ = Notes(&changed).count();
        }
    }

    #[test]
    fn a_program_of_its_own_has_its_functions() {
        let own = std::env::current_exe().unwrap();
        let choice = SpanChoice::Between {
            file: own.clone(),
            begin: PlaceInProgram::Function("main".to_owned()),
            end: PlaceInProgram::Return("main".to_owned()),
        };
        let places = choice.places(|path| File::open(path)).unwrap();
        assert_eq!((places.len(), places[0].name.as_str()), (1, "main"));
        let (begin, end) = (places[0].begin[0], places[0].end[0]);
        assert_eq!((begin.offset, begin.is_return), (end.offset, false));
        assert!(end.is_return && begin.offset > 0);
        let choice = SpanChoice::Between {
            file: own,
            begin: PlaceInProgram::marker("nobody", "nothing"),
            end: PlaceInProgram::Function("main".to_owned()),
        };
        let error = choice
            .places(|path| File::open(path))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("has no marker nobody:nothing; readelf -n"),
            "{error}"
        );
    }
}
