//! The code that processes map, with the tables of its files: what a walk over a stack looks up.

use std::cell::{Cell, OnceCell, RefCell};
use std::os::unix::fs::FileExt as _;
use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};
use swtch_capture::{CodeFile, CodeMap, CodeMapping, own_vdso, process_cpu_ns};
use swtch_core::Pid;
use swtch_runtimes::go::GoPlaces;
use swtch_runtimes::java::JavaPlaces;
use swtch_unwind::{CALL_BYTES, CodeAt, RuntimeFrame, StackCode, UnwindTables, is_call};

use super::file_tables::{FileTables, PythonFile};
use super::javas::JavaProcess;

/// The bytes of unwind tables from which on no more are read. Those of a browser are 10 MB.
pub const MOST_TABLE_BYTES: usize = 256 << 20;

/// The code of all processes that were asked for, and the tables of each file once.
#[derive(Debug, Default)]
pub struct ProcessCodes {
    files: Rc<ReadFiles>,
    processes: FxHashMap<Pid, ProcessCode>,
}

/// The tables of files that were read: a file is read when a walk first meets its code, since most of what a process
/// maps is on no stack.
#[derive(Debug, Default)]
struct ReadFiles {
    /// `None` for a file that has none.
    tables: RefCell<FxHashMap<CodeFile, Option<Rc<FileTables>>>>,
    vdso: OnceCell<Option<Rc<FileTables>>>,
    bytes: Cell<usize>,
    /// CPU time that reading took.
    cpu_ns: Cell<u64>,
}

/// The code that a process maps.
#[derive(Debug)]
pub struct ProcessCode {
    /// In the order of their addresses.
    mappings: Vec<MappedCode>,
    files: Rc<ReadFiles>,
    /// The virtual machine of Java that makes code without a file here.
    java: RefCell<Option<Rc<JavaProcess>>>,
}

/// Code at its place in a process.
#[derive(Debug)]
struct MappedCode {
    pid: Pid,
    mapping: CodeMapping,
    /// Whether the instruction before an address is a call, for those that were asked for.
    calls: RefCell<FxHashMap<u64, bool>>,
    /// Empty until a walk asks for them; `None` for code without a file, such as a compiler makes while the program
    /// runs, and for a file without tables.
    tables: OnceCell<Option<TablesInPlace>>,
}

/// The tables of a file, and by how much the process has moved the file's addresses.
#[derive(Debug)]
struct TablesInPlace {
    file: Rc<FileTables>,
    moved_by: u64,
}

impl ProcessCodes {
    /// The code of a process as it was when it was asked for last, if it was.
    pub fn known(&self, pid: Pid) -> Option<&ProcessCode> {
        self.processes.get(&pid)
    }

    /// The code of a process as it is now, and whether it is as it was when it was asked for last; `None` if the
    /// process has ended or may not be looked into.
    pub fn of(&mut self, pid: Pid) -> Option<(&ProcessCode, CodeIs)> {
        let mapped = CodeMap::of(pid).ok()?;
        let is_known = self.processes.get(&pid).is_some_and(|known| {
            let known = known.mappings.iter().map(|one| &one.mapping);
            known.eq(mapped.mappings())
        });
        if !is_known {
            let mappings = mapped.mappings().map(|mapping| MappedCode {
                pid,
                mapping: mapping.clone(),
                calls: RefCell::default(),
                tables: OnceCell::new(),
            });
            let code = ProcessCode {
                mappings: mappings.collect(),
                files: Rc::clone(&self.files),
                java: RefCell::default(),
            };
            self.processes.insert(pid, code);
        }
        let code = self.processes.get(&pid)?;
        Some((
            code,
            if is_known {
                CodeIs::AsBefore
            } else {
                CodeIs::New
            },
        ))
    }

    /// Forgets what other processes map; the tables of their files stay.
    pub fn forget_others(&mut self, alive: &FxHashSet<Pid>) {
        self.processes.retain(|pid, _| alive.contains(pid));
    }

    /// How large the tables are that were read.
    pub fn bytes_of_tables(&self) -> usize {
        self.files.bytes.get()
    }

    /// CPU time that reading files took since the last call.
    pub fn take_reading_ns(&self) -> u64 {
        self.files.cpu_ns.take()
    }
}

impl ReadFiles {
    /// The tables of a file that a process maps; `None` if it has none, or cannot be opened, as when the process has
    /// ended.
    fn tables_of(&self, file: &CodeFile, pid: Pid) -> Option<Rc<FileTables>> {
        if let Some(known) = self.tables.borrow().get(file) {
            return known.clone();
        }
        // The rest of a look has to do without; before the next, all are forgotten.
        if self.bytes.get() >= MOST_TABLE_BYTES {
            return None;
        }
        let before = process_cpu_ns();
        let tables = FileTables::read(file.open(pid).ok()?).map(Rc::new);
        let used = process_cpu_ns().saturating_sub(before);
        self.cpu_ns.set(self.cpu_ns.get().saturating_add(used));
        let bytes = tables.as_ref().map_or(0, |tables| tables.bytes());
        self.bytes.set(self.bytes.get().saturating_add(bytes));
        self.tables
            .borrow_mut()
            .insert(file.clone(), tables.clone());
        tables
    }
}

/// The most addresses in a mapping of which it is kept whether a call is before them.
const MOST_CALLS: usize = 4096;

impl ReadFiles {
    /// Those of this process's own, which is that of the others.
    fn tables_of_vdso(&self) -> Option<Rc<FileTables>> {
        let read = || {
            let vdso = own_vdso().ok()?;
            FileTables::read(vdso).map(Rc::new)
        };
        self.vdso.get_or_init(read).clone()
    }
}

impl MappedCode {
    fn is_after_call(&self, address: u64) -> bool {
        let mut calls = self.calls.borrow_mut();
        if calls.len() >= MOST_CALLS {
            calls.clear();
        }
        *calls.entry(address).or_insert_with(|| {
            let before = address
                .saturating_sub(CALL_BYTES as u64)
                .max(self.mapping.range.start);
            let mut bytes = vec![0; usize::try_from(address - before).unwrap_or(0)];
            let offset = before - self.mapping.range.start + self.mapping.offset;
            let file = self
                .mapping
                .file
                .as_ref()
                .and_then(|file| file.open(self.pid).ok());
            let read = file.is_some_and(|file| file.read_exact_at(&mut bytes, offset).is_ok());
            read && is_call(&bytes)
        })
    }

    fn tables(&self, files: &ReadFiles) -> Option<&TablesInPlace> {
        let tables = self.tables.get_or_init(|| {
            let file = match &self.mapping.file {
                Some(file) => files.tables_of(file, self.pid)?,
                None if self.mapping.is_vdso => files.tables_of_vdso()?,
                None => return None,
            };
            let moved_by = file.moved_by(&self.mapping)?;
            Some(TablesInPlace { file, moved_by })
        });
        tables.as_ref()
    }
}

/// Whether what was known of a process's code still holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeIs {
    /// The process maps what it did.
    AsBefore,
    /// It is a new process, or it maps other code.
    New,
}

impl ProcessCode {
    /// The file that has the code at an address, and where it is there; `None` for code without a file.
    pub fn place_of(&self, address: u64) -> Option<(&CodeFile, u64)> {
        let mapping = &self.mapping_of(address)?.mapping;
        let offset = address - mapping.range.start + mapping.offset;
        Some((mapping.file.as_ref()?, offset))
    }

    /// True for code that the process has made while it ran.
    pub fn is_made_at(&self, address: u64) -> bool {
        let mapping = self.mapping_of(address).map(|one| &one.mapping);
        mapping.is_some_and(|mapping| mapping.file.is_none() && !mapping.is_vdso)
    }

    /// The interpreter of Python whose function that runs programs has this address, and by how much the process has moved
    /// it.
    pub fn python_at(&self, address: u64) -> Option<(&PythonFile, u64)> {
        let TablesInPlace { file, moved_by } = self.mapping_of(address)?.tables(&self.files)?;
        Some((file.python_at(address.wrapping_sub(*moved_by))?, *moved_by))
    }

    /// Where the runtime of Go is in the memory of the process, if it has one: in the program itself, which an address in
    /// one of its functions tells.
    pub fn go_at(&self, address: u64) -> Option<GoPlaces> {
        let TablesInPlace { file, moved_by } = self.mapping_of(address)?.tables(&self.files)?;
        Some(file.go()?.moved_by(*moved_by))
    }

    /// Where a virtual machine of Java says how it is laid out, in the memory of the process, if it has one.
    pub fn java(&self) -> Option<JavaPlaces> {
        let is_its = |one: &&MappedCode| {
            let file = one.mapping.file.as_ref();
            file.is_some_and(|file| file.path().ends_with("/libjvm.so"))
        };
        let mapped = self.mappings.iter().find(is_its)?;
        let TablesInPlace { file, moved_by } = mapped.tables(&self.files)?;
        let mut places = file.java()?;
        for place in &mut places.0 {
            *place = place.wrapping_add(*moved_by);
        }
        Some(places)
    }

    /// From now on frames of code without a file are those of this virtual machine.
    pub fn set_java(&self, java: Option<&Rc<JavaProcess>>) {
        *self.java.borrow_mut() = java.cloned();
    }

    fn mapping_of(&self, address: u64) -> Option<&MappedCode> {
        let next = self
            .mappings
            .partition_point(|one| one.mapping.range.end <= address);
        let found = self.mappings.get(next);
        found.filter(|one| one.mapping.range.contains(&address))
    }
}

impl StackCode for ProcessCode {
    fn at(&self, address: u64, look: &mut dyn FnMut(&UnwindTables<'_>, u64)) -> CodeAt {
        let Some(mapping) = self.mapping_of(address) else {
            return CodeAt::Nothing;
        };
        let Some(TablesInPlace { file, moved_by }) = mapping.tables(&self.files) else {
            return CodeAt::Code;
        };
        if file.begins_stacks_at(address.wrapping_sub(*moved_by)) {
            return CodeAt::Start;
        }
        look(&file.tables(), *moved_by);
        CodeAt::Code
    }

    fn is_after_call(&self, address: u64) -> bool {
        let mapping = address
            .checked_sub(1)
            .and_then(|inside| self.mapping_of(inside));
        mapping.is_some_and(|mapping| mapping.is_after_call(address))
    }

    fn runtime_frame(&self, address: u64) -> Option<RuntimeFrame> {
        let java = self.java.borrow();
        self.is_made_at(address)
            .then(|| java.as_ref()?.frame_at(address))
            .flatten()
    }

    fn is_one_file(&self, one: u64, other: u64) -> bool {
        let file = |address| Some(self.place_of(address)?.0);
        file(one).is_some_and(|of_one| file(other) == Some(of_one))
    }
}
