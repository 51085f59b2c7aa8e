//! Stacks: where they are is known while recording, names are found after it.
//!
//! The helper that reads stacks turns addresses into offsets in files while the process still lives, and hands the files
//! over. Names are found after the capture, when time does not matter.
//!
//! `swtch top` has the kernel side take the stacks of one thread. That follows frame pointers in user mode, so stacks of
//! code that was built without are short; what it takes for a caller there is cut off if no code is at its address.

use std::cell::{Cell, OnceCell};
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore, MapFlags};
use rustc_hash::FxHashMap;
use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use swtch_core::{Frame, Pid, Stack, StackEnd, StackKind};

use crate::code::{CodeFile, CodeMap, is_at};
use crate::code_file::{
    CodeIdentity, MOST_UNPACKED, has_debug_information, names_others, packed_symbols,
};
use crate::compiled::CompiledFunctions;
use crate::load::Capture;
use crate::symbols::{FilesById, NamedPlace, PlaceInFile, SymbolReader, number_of, put_frames};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum CodeAddress {
    Kernel(u64),
    /// An offset in the file of this number.
    File(usize, u64),
    Nowhere(u64),
    /// The number of a place in a program that an interpreter runs.
    Script(usize),
    /// Code without a file of a process, which may list its functions.
    Compiled(Pid, u64),
}

/// The files that stacks are in, by number.
#[derive(Debug, Default)]
struct NamingFiles {
    numbers: FxHashMap<CodeFile, usize>,
    files: Vec<NamingFile>,
}

/// A file that may have the names of functions.
#[derive(Debug)]
struct NamingFile {
    /// Its path in the process's world.
    path: String,
    /// The source that it can be read from; `None` as long as it could not be opened.
    source: Option<NamingSource>,
}

#[derive(Debug)]
struct NamingSource {
    path: PathBuf,
    /// Stays open where the process's path does not lead to the file from here, or others may change what is there.
    open: Option<File>,
    /// By which another machine can find the same code.
    identity: OnceCell<Option<CodeIdentity>>,
    /// Of a file that others may change: a copy of it that is as it was, if it names no others.
    copy: OnceCell<Option<File>>,
    /// Symbols that it has packed, if it has none that are not.
    unpacked: OnceCell<Option<File>>,
}

/// The most bytes of files of others that are copied for their debug information, and of symbols that are unpacked, all
/// together.
const MOST_COPIED: u64 = 512 << 20;

impl NamingFiles {
    fn number(&mut self, file: &CodeFile, pid: Pid) -> usize {
        let number = *self.numbers.entry(file.clone()).or_insert_with(|| {
            self.files.push(NamingFile {
                path: file.path().to_owned(),
                source: None,
            });
            self.files.len() - 1
        });
        // A process that ended meanwhile could not open it, the next one can.
        let known = &mut self.files[number];
        if known.source.is_none() {
            known.source = NamingSource::of(file, pid);
        }
        number
    }
}

impl NamingSource {
    fn of(file: &CodeFile, pid: Pid) -> Option<Self> {
        let open = file.open(pid).ok()?;
        Some(Self::of_open(open, Path::new(file.path())))
    }

    fn of_open(open: File, here: &Path) -> Self {
        let is_here = is_at(&open, here);
        let path = match is_here {
            true => here.to_owned(),
            false => path_of_open(&open),
        };
        Self {
            path,
            open: (!is_here).then_some(open),
            identity: OnceCell::new(),
            copy: OnceCell::new(),
            unpacked: OnceCell::new(),
        }
    }

    /// The path of a file with the symbols that it has packed.
    fn path_of_unpacked(&self, copied_before: &Cell<u64>) -> Option<PathBuf> {
        let unpack = || {
            let here;
            let file = match &self.open {
                Some(open) => open,
                None => {
                    here = File::open(&self.path).ok()?;
                    &here
                }
            };
            let left = MOST_COPIED.saturating_sub(copied_before.get());
            let packed = packed_symbols(file)?.take(left.min(MOST_UNPACKED));
            let unpacked = copied(packed);
            // What is damaged has cost as much.
            let length = unpacked
                .as_ref()
                .map_or(MOST_UNPACKED, |(_, length)| *length);
            copied_before.set(copied_before.get() + length);
            Some(unpacked.ok()?.0)
        };
        self.unpacked.get_or_init(unpack).as_ref().map(path_of_open)
    }

    fn identity(&self) -> Option<&CodeIdentity> {
        let identity = self.identity.get_or_init(|| match &self.open {
            Some(open) => CodeIdentity::of(open),
            None => CodeIdentity::of(&File::open(&self.path).ok()?),
        });
        identity.as_ref()
    }

    /// The path by which debug information is read. A file may name another one that has it, and reading opens that,
    /// whatever it is. So of one that others may change, a copy is read that names none.
    fn path_of_debug_information(&self, copied_before: &Cell<u64>) -> Option<PathBuf> {
        let Some(open) = &self.open else {
            return Some(self.path.clone());
        };
        let copy = self.copy.get_or_init(|| {
            let left = MOST_COPIED.saturating_sub(copied_before.get());
            let length = open.metadata().ok()?.len();
            if length > left || !has_debug_information(open) {
                return None;
            }
            // Its place in the file is this process's own: it was opened here, or handed over for this.
            let mut whole: &File = open;
            whole.rewind().ok()?;
            let (copy, length) = copied(whole.take(length)).ok()?;
            copied_before.set(copied_before.get() + length);
            (!names_others(&copy)).then_some(copy)
        });
        copy.as_ref().map(path_of_open)
    }
}

fn path_of_open(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// A copy in memory, which only this process has, and its length.
fn copied(mut from: impl io::Read) -> io::Result<(File, u64)> {
    let mut copy = File::from(memfd_create("code", MemfdFlags::CLOEXEC)?);
    let length = io::copy(&mut from, &mut copy)?;
    Ok((copy, length))
}

/// The functions that a process has compiled.
#[derive(Debug)]
struct ListedFunctions {
    list: File,
    functions: OnceCell<CompiledFunctions>,
}

/// The most bytes of lists of functions that are read, all together.
const MOST_LISTED: u64 = 128 << 20;

impl ListedFunctions {
    fn functions(&self, read_before: &Cell<u64>) -> &CompiledFunctions {
        self.functions.get_or_init(|| {
            let left = MOST_LISTED.saturating_sub(read_before.get());
            let (functions, read) = CompiledFunctions::of(&self.list, left);
            read_before.set(read_before.get() + read);
            functions
        })
    }
}

/// All stacks of one capture, with their frames.
#[derive(Debug)]
pub struct Stacks {
    symbols: SymbolReader,
    debug_files: FilesById,
    /// Bytes of files of others that were copied.
    copied: Cell<u64>,
    files: NamingFiles,
    scripts: Vec<ScriptPlace>,
    /// The lists of functions that processes have compiled.
    compiled: FxHashMap<Pid, ListedFunctions>,
    /// Bytes of these lists that were read.
    listed: Cell<u64>,
    /// Number of each place, and an address in a process that had it.
    places: FxHashMap<CodeAddress, (u32, u64)>,
    /// With the numbers of places as frames.
    stacks: Vec<Stack>,
}

/// A frame of a user stack. Its names are short where it is sent: a packet holds hundreds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum UserFrame {
    /// Code without a file, at this address.
    #[serde(rename = "a")]
    At(u64),
    /// Code of a file: its address in the process, the number of the file, and the offset there.
    #[serde(rename = "f")]
    InFile(u64, u32, u64),
    /// A place in a program that an interpreter runs, by its number.
    #[serde(rename = "s")]
    Script(u32),
}

/// A place in a program that an interpreter runs, or a virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ScriptPlace {
    /// What runs it.
    pub runtime: ScriptRuntime,
    /// The function.
    pub function: String,
    /// The file of its source, where the runtime says it.
    pub file: Option<String>,
    /// The line there.
    pub line: Option<u32>,
}

/// What runs programs that are not in the processor's language, or were not until it made them so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ScriptRuntime {
    /// `CPython`.
    Python,
    /// `HotSpot`.
    Java,
}

impl ScriptRuntime {
    /// What stands for the module of such a place.
    const fn module(self) -> &'static str {
        match self {
            Self::Python => "[python]",
            Self::Java => "[java]",
        }
    }
}

/// What stands for the module of a function that was compiled while the program ran.
const COMPILED: &str = "[jit]";

impl Default for Stacks {
    fn default() -> Self {
        Self::new()
    }
}

impl Stacks {
    /// An empty collection of stacks.
    pub fn new() -> Self {
        Self {
            symbols: SymbolReader::new(),
            debug_files: FilesById::of_system(),
            copied: Cell::new(0),
            files: NamingFiles::default(),
            scripts: Vec::new(),
            compiled: FxHashMap::default(),
            listed: Cell::new(0),
            places: FxHashMap::default(),
            stacks: Vec::new(),
        }
    }

    /// Reads the kernel's symbols. Call it while privileged, because other processes see zeros.
    pub fn read_kernel_symbols(&self) {
        // Any address makes it read the table. A kernel that hides its symbols leaves addresses
        // without names; they are shown as such.
        let _ = self.symbols.in_kernel(u64::MAX);
    }

    /// Adds a file that stacks name by this number. It can be named once it is `open`.
    pub fn add_file(&mut self, number: u32, path: String, open: Option<File>) {
        let files = &mut self.files.files;
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        // They are numbered as they come.
        if number == files.len() {
            files.push(NamingFile { path, source: None });
        }
        if let (Some(file), Some(open)) = (files.get_mut(number), open) {
            file.source = Some(NamingSource::of_open(open, Path::new(&file.path)));
        }
    }

    /// Adds a stack of a process.
    pub fn add_user(&mut self, id: u32, pid: Pid, frames: &[UserFrame], end: Option<StackEnd>) {
        let index = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        let frames = frames.iter().map(|frame| match *frame {
            UserFrame::InFile(address, file, offset) if index(file) < self.files.files.len() => {
                self.frame(CodeAddress::File(index(file), offset), address)
            }
            UserFrame::Script(number) if index(number) < self.scripts.len() => {
                self.frame(CodeAddress::Script(index(number)), 0)
            }
            UserFrame::At(address) => self.frame(CodeAddress::Compiled(pid, address), address),
            UserFrame::InFile(address, ..) => self.frame(CodeAddress::Nowhere(address), address),
            UserFrame::Script(_) => self.frame(CodeAddress::Nowhere(0), 0),
        });
        let frames = frames.collect();
        self.stacks.push(Stack {
            id,
            kind: StackKind::User,
            pid: Some(pid),
            frames,
            end,
        });
    }

    /// Adds a place in a program that an interpreter runs. Stacks name it by its number: it is that of the places before.
    pub fn add_script(&mut self, place: ScriptPlace) {
        self.scripts.push(place);
    }

    /// Adds the file in which a process lists the functions that it has compiled. It is read when names are looked up:
    /// by then there are more.
    pub fn add_compiled(&mut self, pid: Pid, list: File) {
        let listed = ListedFunctions {
            list,
            functions: OnceCell::new(),
        };
        self.compiled.insert(pid, listed);
    }

    /// Adds a stack of the kernel.
    pub fn add_kernel(&mut self, id: u32, addresses: &[u64]) {
        let frames = self.frames_of(StackKind::Kernel, addresses, None);
        self.stacks.push(Stack {
            id,
            kind: StackKind::Kernel,
            pid: None,
            frames,
            end: None,
        });
    }

    /// Numbers of the places at these addresses, in the same order, as the process maps them now.
    pub fn user_places(&mut self, pid: Pid, addresses: &[u64]) -> Vec<u32> {
        self.frames_of(StackKind::User, addresses, Some(pid))
    }

    /// Adds a stack whose frames are such places.
    pub fn add(&mut self, stack: Stack) {
        self.stacks.push(stack);
    }

    fn frames_of(&mut self, kind: StackKind, addresses: &[u64], pid: Option<Pid>) -> Vec<u32> {
        let places = self.places_of(kind, addresses, pid);
        let placed = places.into_iter().zip(addresses);
        placed.map(|(p, a)| self.frame(p, *a)).collect()
    }

    /// The frames of a stack with the names that symbol tables give them, the innermost first; `None`
    /// when the map has lost it. For a stack that is shown at once: debug information, which can take
    /// seconds to read, is not asked.
    pub fn frames_now(
        &mut self,
        capture: &Capture,
        kind: StackKind,
        id: u32,
        pid: Option<Pid>,
    ) -> Option<Vec<Frame>> {
        let addresses = addresses_of(capture, kind, id)?;
        let places = self.places_of(kind, &addresses, pid);
        let named = |(place, address): (CodeAddress, &u64)| {
            let mut frame = Frame {
                address: *address,
                ..Frame::default()
            };
            let found = self.name(&place, &mut frame, false);
            found.into_frames(frame)
        };
        Some(places.into_iter().zip(&addresses).flat_map(named).collect())
    }

    fn places_of(
        &mut self,
        kind: StackKind,
        addresses: &[u64],
        pid: Option<Pid>,
    ) -> Vec<CodeAddress> {
        match (kind, pid) {
            (StackKind::Kernel, _) => addresses.iter().map(|a| CodeAddress::Kernel(*a)).collect(),
            (StackKind::User, Some(pid)) => self.places(pid, addresses),
            (StackKind::User, None) => addresses.iter().map(|a| CodeAddress::Nowhere(*a)).collect(),
        }
    }

    /// Names of the kernel functions of a stack, the innermost first; `None` when the map has lost
    /// it. For tests that check the kernel side by its stacks ([`Settings::oracle`]).
    ///
    /// [`Settings::oracle`]: crate::Settings::oracle
    #[doc(hidden)]
    pub fn kernel_functions(&self, capture: &Capture, id: u32) -> Option<Vec<String>> {
        let name = |address: &u64| {
            let found = self.symbols.in_kernel(*address).symbol;
            found.map_or_else(|| format!("{address:#x}"), |(name, _)| name)
        };
        let addresses = addresses_of(capture, StackKind::Kernel, id)?;
        Some(addresses.iter().map(name).collect())
    }

    /// Finds the names of all frames, after the capture. What a compiler has put into its caller is a frame of its own.
    pub fn named(mut self) -> (Vec<Stack>, Vec<Frame>) {
        let mut places: Vec<_> = self.places.drain().collect();
        places.sort_unstable_by_key(|(_, (number, _))| *number);
        let mut frames: Vec<Frame> = Vec::with_capacity(places.len());
        let mut at_place = Vec::with_capacity(places.len());
        for (place, (_, address)) in &places {
            let first = number_of(frames.len());
            let mut frame = Frame {
                address: *address,
                ..Frame::default()
            };
            let found = self.name(place, &mut frame, true);
            frames.extend(found.into_frames(frame));
            at_place.push(first..number_of(frames.len()));
        }
        put_frames(&mut self.stacks, &mut frames, |place| {
            at_place.get(usize::try_from(place).ok()?).cloned()
        });
        (self.stacks, frames)
    }

    fn frame(&mut self, place: CodeAddress, address: u64) -> u32 {
        let next = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        self.places.entry(place).or_insert((next, address)).0
    }

    /// Offsets in files, as the process maps them now; plain addresses if it has already ended.
    fn places(&mut self, pid: Pid, addresses: &[u64]) -> Vec<CodeAddress> {
        let Ok(map) = CodeMap::of(pid) else {
            return addresses.iter().map(|a| CodeAddress::Nowhere(*a)).collect();
        };
        let files = &mut self.files;
        // The kernel guesses callers by frame pointers: the first address outside of code is a wrong guess, and so is
        // all that follows it. The frames are fewer then.
        let code = addresses.iter().map_while(|a| Some((*a, map.at(*a)?)));
        code.map(|(address, mapping)| match &mapping.file {
            Some(file) => {
                let offset = address - mapping.range.start + mapping.offset;
                CodeAddress::File(files.number(file, pid), offset)
            }
            None => CodeAddress::Nowhere(address),
        })
        .collect()
    }

    /// What is known of a place, in a frame and apart from it. Debug information is asked if that is wanted.
    fn name(&self, place: &CodeAddress, frame: &mut Frame, is_detailed: bool) -> NamedPlace {
        let (number, offset) = match place {
            CodeAddress::Kernel(address) => {
                frame.module = Some("[kernel]".to_owned());
                return self.symbols.in_kernel(*address);
            }
            CodeAddress::File(number, offset) => (*number, *offset),
            CodeAddress::Script(number) => {
                let place = &self.scripts[*number];
                frame.module = Some(place.runtime.module().to_owned());
                frame.symbol = Some(place.function.clone());
                frame.file.clone_from(&place.file);
                frame.line = place.line;
                return NamedPlace::default();
            }
            CodeAddress::Compiled(pid, address) => {
                let listed = self.compiled.get(pid);
                let found = listed.and_then(|listed| listed.functions(&self.listed).at(*address));
                if let Some(function) = found {
                    frame.module = Some(COMPILED.to_owned());
                    frame.symbol = Some(function.name);
                    frame.file = function.file;
                    frame.line = function.line;
                }
                return NamedPlace::default();
            }
            CodeAddress::Nowhere(_) => return NamedPlace::default(),
        };
        let file = &self.files.files[number];
        frame.module = Some(file.path.clone());
        let Some(source) = &file.source else {
            return NamedPlace::default();
        };
        if let Some(identity) = source.identity() {
            frame.build_id.clone_from(&identity.build_id);
            frame.file_address = identity.segments.address_of(offset);
        }
        let place = PlaceInFile::Offset(offset);
        let plain = self.by_symbols(source, frame, place);
        if !is_detailed {
            return plain;
        }
        self.detailed(source, frame, place).with_symbol_of(plain)
    }

    /// What symbols say: those of the file, those that it has packed, or those that its runtime has.
    fn by_symbols(&self, source: &NamingSource, frame: &Frame, place: PlaceInFile) -> NamedPlace {
        let plain = self.symbols.by_symbols(&source.path, place);
        if plain.symbol.is_some() {
            return plain;
        }
        match (source.path_of_unpacked(&self.copied), frame.file_address) {
            (Some(path), Some(address)) => self
                .symbols
                .by_symbols(&path, PlaceInFile::Address(address)),
            (None, Some(address)) => self.symbols.by_runtime(&source.path, address),
            _ => plain,
        }
    }

    /// What debug information says: that of the file, or that which the system has for its build id.
    fn detailed(&self, source: &NamingSource, frame: &Frame, place: PlaceInFile) -> NamedPlace {
        if let Some(path) = source.path_of_debug_information(&self.copied) {
            return self.symbols.by_debug_information(&path, place);
        }
        let of_system = frame
            .build_id
            .as_deref()
            .and_then(|id| self.debug_files.path_of(id));
        match (of_system, frame.file_address) {
            (Some(path), Some(address)) => {
                let place = PlaceInFile::Address(address);
                self.symbols.by_debug_information(&path, place)
            }
            _ => NamedPlace::default(),
        }
    }
}

/// Addresses inside of the functions that have not returned, the innermost first; `None` when the map
/// has lost the stack.
fn addresses_of(capture: &Capture, kind: StackKind, id: u32) -> Option<Vec<u64>> {
    let (key, flags) = (id.to_ne_bytes(), MapFlags::ANY);
    let found = match kind {
        StackKind::Kernel => capture.kernel_stacks().lookup(&key, flags),
        StackKind::User => capture.user_stacks().lookup(&key, flags),
    };
    let bytes = found.ok()??;
    let words = bytes.chunks_exact(8).filter_map(|word| word.first_chunk());
    let addresses = words
        .map(|word| u64::from_ne_bytes(*word))
        .take_while(|word| *word != 0);
    // All but the first are where a call returns to. If the call is a function's last instruction, as
    // that of a function which never returns, the next function is there already.
    let calls = addresses.enumerate().map(|(nth, word)| match nth {
        0 => word,
        _ => word - 1,
    });
    Some(calls.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[unsafe(no_mangle)]
    extern "C" fn d() -> u32 {
        std::hint::black_box(1)
    }

    #[unsafe(no_mangle)]
    extern "C" fn w() -> u32 {
        std::hint::black_box(2)
    }

    /// As types in a C++ name, they would be `double` and `wchar_t`.
    #[test]
    fn functions_with_names_of_one_letter_keep_them() {
        let functions: [(&str, extern "C" fn() -> u32); 2] = [("d", d), ("w", w)];
        let mut stacks = Stacks::new();
        let addresses = functions.map(|(_, function)| function as usize as u64);
        let places = stacks.places(Pid::new(std::process::id()), &addresses);
        assert_eq!(places.len(), functions.len());
        for ((name, _), place) in functions.into_iter().zip(&places) {
            for is_detailed in [false, true] {
                let found = stacks.name(place, &mut Frame::default(), is_detailed);
                let symbol = found.symbol.map(|(name, _)| name);
                assert_eq!(symbol.as_deref(), Some(name), "{is_detailed}");
            }
        }
    }
}
