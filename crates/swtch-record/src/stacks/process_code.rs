//! The code that processes map, with the tables of its files: what a walk over a stack looks up.

use std::fs;
use std::ops::Range;
use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};
use swtch_capture::{CodeFile, CodeMap};
use swtch_core::Pid;
use swtch_unwind::{CodeAt, StackCode, UnwindTables};

use super::file_tables::FileTables;

/// The code of all processes that were asked for, and the tables of each file once.
#[derive(Debug, Default)]
pub struct ProcessCodes {
    /// `None` for a file that has none, or that could not be opened.
    files: FxHashMap<CodeFile, Option<Rc<FileTables>>>,
    processes: FxHashMap<Pid, ProcessCode>,
}

/// The code that a process maps.
#[derive(Debug)]
pub struct ProcessCode {
    /// The text that this was made from: as long as it stays the same, so does this.
    maps: String,
    /// In the order of their addresses.
    mappings: Vec<MappedCode>,
}

/// Code at its place in a process.
#[derive(Debug)]
struct MappedCode {
    range: Range<u64>,
    /// `None` for code without a file, such as a compiler makes while the program runs.
    tables: Option<TablesInPlace>,
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
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
        let is_known = self
            .processes
            .get(&pid)
            .is_some_and(|known| known.maps == maps);
        if !is_known {
            let mappings = self.mapped(pid, &maps);
            self.processes.insert(pid, ProcessCode { maps, mappings });
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

    fn mapped(&mut self, pid: Pid, maps: &str) -> Vec<MappedCode> {
        let map = CodeMap::parse(maps);
        let mappings = map.mappings().map(|mapping| {
            let tables = mapping.file.as_ref().and_then(|file| {
                let read = || FileTables::read(file.open(pid).ok()?).map(Rc::new);
                let known = self.files.entry(file.clone()).or_insert_with(read);
                let file = Rc::clone(known.as_ref()?);
                let moved_by = file.moved_by(mapping)?;
                Some(TablesInPlace { file, moved_by })
            });
            MappedCode {
                range: mapping.range.clone(),
                tables,
            }
        });
        mappings.collect()
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

impl StackCode for ProcessCode {
    fn at(&self, address: u64, look: &mut dyn FnMut(&UnwindTables<'_>, u64)) -> CodeAt {
        let next = self
            .mappings
            .partition_point(|one| one.range.end <= address);
        let mapping = self.mappings.get(next);
        let Some(mapping) = mapping.filter(|one| one.range.contains(&address)) else {
            return CodeAt::Nothing;
        };
        if let Some(tables) = &mapping.tables {
            look(&tables.file.tables(), tables.moved_by);
        }
        CodeAt::Code
    }
}
