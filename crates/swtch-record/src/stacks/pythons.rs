//! Functions of Python in the place of the interpreter's own, read while the thread sleeps.
//!
//! ```text
//! read ─ queue_get ─ loop ─ call_method ─ loop ─ main        a chain, with two calls of the interpreter's loop
//! read ─ queue_get ─ get ─ consume ─ call_method ─ run ─ main
//! ```

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use swtch_capture::LookedThread;
use swtch_core::Pid;
use swtch_host::thread::read_runs;
use swtch_runtimes::python::{Python, PythonFrame, UnknownPython};
use swtch_runtimes::{ProcessMemory as _, SourcePlace};
use swtch_unwind::FIRST_ARGUMENT;

use super::file_tables::PythonFile;
use super::memory::{MemoryFile, watched};

/// The most places of a process's code that are known again.
const MOST_KNOWN: usize = 1 << 11;

/// The interpreters of all processes that were met.
#[derive(Debug, Default)]
pub struct Pythons {
    processes: FxHashMap<Pid, PythonProcess>,
    /// Interpreters that are not read, and were not asked for yet.
    unknown: Vec<UnknownPython>,
}

/// The interpreter of a process.
#[derive(Debug)]
struct PythonProcess {
    /// Of which address space.
    memory: u64,
    /// `None` if its layout is not known.
    python: Option<Python>,
    /// The states of threads by what the runtime calls them.
    threads: BTreeMap<u64, u64>,
    /// True if all threads were listed in this look: who is not among them is none of Python's.
    is_listed: bool,
    /// The lock that was met last, the number of its holder, and the functions of that one.
    lock: Option<((u64, u64), LoopFrames)>,
    /// The places of frames, which hold as long as the code object there is the same.
    places: FxHashMap<PythonFrame, KnownPlace>,
}

/// What was read of a place, and of which code object.
type KnownPlace = (Option<[u64; 4]>, Option<SourcePlace>);

/// The functions of one call of the interpreter's loop, the innermost first.
pub type LoopFrames = Vec<SourcePlace>;

/// What the interpreter knows of a thread that waits.
#[derive(Debug)]
pub struct PythonThread {
    /// Its functions in each call of the interpreter's loop, the innermost call first.
    pub loops: Vec<LoopFrames>,
    /// The functions of who holds the global interpreter lock, if this thread waits for it and if that is known.
    pub holder: LoopFrames,
}

impl Pythons {
    /// Begins a look at all threads.
    pub fn begin_look(&mut self) {
        for process in self.processes.values_mut() {
            process.is_listed = false;
            process.lock = None;
        }
    }

    /// What the interpreter knows of the thread; `None` if its process was not met, if it is none of Python's, or if it
    /// has run on meanwhile.
    pub fn thread(&mut self, thread: &LookedThread<'_>) -> Option<PythonThread> {
        let process = self.processes.get_mut(&thread.pid)?;
        let is_read = process.memory == thread.memory && process.python.is_some();
        let memory = is_read.then(|| MemoryFile::of(thread.pid)).flatten()?;
        let read = watched(|| process.thread(thread, &memory));
        let runs = read_runs(thread.pid, thread.tid).ok()?;
        read.filter(|_| thread.runs.is_some() && runs == thread.runs)
    }

    /// Meets the process of a thread that is in the interpreter of this file. Returns false if it was met before.
    pub fn meet(&mut self, thread: &LookedThread<'_>, file: &PythonFile, moved_by: u64) -> bool {
        let known = self.processes.get(&thread.pid);
        let is_new = known.is_none_or(|known| known.memory != thread.memory);
        if is_new && let Some(memory) = MemoryFile::of_thread(thread) {
            let version = file.version.map(|at| at.wrapping_add(moved_by));
            let runtime = file.runtime.wrapping_add(moved_by);
            let python = watched(|| {
                let version = version.and_then(|at| memory.number(at));
                Python::at(runtime, version, &memory)
            });
            self.unknown.extend(python.as_ref().err());
            let process = PythonProcess {
                memory: thread.memory,
                python: python.ok(),
                threads: BTreeMap::new(),
                is_listed: false,
                lock: None,
                places: FxHashMap::default(),
            };
            self.processes.insert(thread.pid, process);
        }
        is_new
    }

    /// The interpreters that were met since the last call, and that are not read.
    pub fn take_unknown(&mut self) -> Vec<UnknownPython> {
        std::mem::take(&mut self.unknown)
    }

    /// Forgets what was read of all processes.
    pub fn forget(&mut self) {
        self.processes.clear();
    }
}

/// A method that is no function of the program.
fn built_in(method: &str) -> SourcePlace {
    SourcePlace {
        function: method.to_owned(),
        file: None,
        line: None,
    }
}

impl PythonProcess {
    fn thread(&mut self, thread: &LookedThread<'_>, memory: &MemoryFile) -> Option<PythonThread> {
        let state = self.state_of(thread.thread_pointer, memory)?;
        let frames = self.python.as_ref()?.frames(state, memory);
        if frames.is_empty() {
            // A state that was freed is still there.
            self.threads.retain(|_, known| *known != state);
        }
        let mut loops = Vec::new();
        let mut current = LoopFrames::new();
        for frame in &frames {
            current.extend(self.place_of(frame, memory));
            if frame.is_entry {
                loops.push(std::mem::take(&mut current));
            }
        }
        let word = thread.stack.ok()?.registers[usize::from(FIRST_ARGUMENT)];
        if let (Some(method), Some(innermost)) =
            (Python::parked_in(word, memory), loops.first_mut())
        {
            innermost.insert(0, built_in(method));
        }
        let holder = self.functions_of_holder(state, word, memory);
        let holder = holder.unwrap_or_default();
        Some(PythonThread { loops, holder })
    }

    /// The functions of who holds the lock that this thread waits for.
    fn functions_of_holder(
        &mut self,
        state: u64,
        word: u64,
        memory: &MemoryFile,
    ) -> Option<LoopFrames> {
        let python = self.python.as_ref()?;
        let lock = python.lock_at(word, state, memory)?;
        let holding = (lock, python.holding_of(lock, memory)?);
        if let Some((_, functions)) = self.lock.as_ref().filter(|(known, _)| *known == holding) {
            return Some(functions.clone());
        }
        let frames = python.functions_of_holder(lock, memory);
        let functions = frames
            .iter()
            .filter_map(|frame| self.place_of(frame, memory));
        let functions: LoopFrames = functions.collect();
        self.lock = Some((holding, functions.clone()));
        Some(functions)
    }

    fn state_of(&mut self, thread_pointer: u64, memory: &MemoryFile) -> Option<u64> {
        let python = self.python.as_ref()?;
        let known = Python::state_at(thread_pointer, &self.threads);
        if let Some((name, state)) = known
            && python.is_thread(state, name, memory)
        {
            return Some(state);
        }
        if std::mem::replace(&mut self.is_listed, true) {
            return None;
        }
        self.threads = python.threads(memory);
        Python::state_at(thread_pointer, &self.threads).map(|(_, state)| state)
    }

    fn place_of(&mut self, frame: &PythonFrame, memory: &MemoryFile) -> Option<SourcePlace> {
        let python = self.python.as_ref()?;
        let is_of = python.identity_of(frame.code, memory);
        if let Some((known, place)) = self.places.get(frame)
            && *known == is_of
        {
            return place.clone();
        }
        if self.places.len() >= MOST_KNOWN {
            self.places.clear();
        }
        let place = python.place_of(frame, memory);
        self.places.insert(*frame, (is_of, place.clone()));
        place
    }
}
