//! Functions of Python in the place of the interpreter's own, read while the thread sleeps.
//!
//! ```text
//! read ─ queue_get ─ loop ─ call_method ─ loop ─ main        a chain, with two calls of the interpreter's loop
//! read ─ queue_get ─ get ─ consume ─ call_method ─ run ─ main
//! ```

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use nix::unistd::alarm;
use rustc_hash::FxHashMap;
use swtch_capture::LookedThread;
use swtch_core::Pid;
use swtch_host::thread::read_runs;
use swtch_runtimes::python::{Python, PythonFrame, UnknownPython};
use swtch_runtimes::{ProcessMemory, SourcePlace};

use super::file_tables::PythonFile;

/// The most threads of a process whose state is known again, and places of its code.
const MOST_KNOWN: usize = 1 << 14;

/// Seconds after which this process is ended, because memory that it reads does not come: another process may have to hand
/// it out (`userfaultfd(2)`). The recorder says that there are no more stacks, and goes on.
const LONGEST_READ_S: u32 = 2;

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
    /// The states of threads by their thread pointers.
    threads: FxHashMap<u64, u64>,
    /// The places of frames, which hold as long as the code object there is the same.
    places: FxHashMap<PythonFrame, KnownPlace>,
}

/// What was read of a place, and of which code object.
type KnownPlace = (Option<[u64; 4]>, Option<SourcePlace>);

/// The functions of one call of the interpreter's loop, the innermost first.
pub type LoopFrames = Vec<SourcePlace>;

struct MemoryFile(File);

impl MemoryFile {
    fn of(pid: Pid) -> Option<Self> {
        File::open(format!("/proc/{pid}/mem")).ok().map(Self)
    }
}

impl ProcessMemory for MemoryFile {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.0.read_exact_at(bytes, address).is_ok()
    }
}

impl Pythons {
    /// The functions of the thread in each call of the interpreter's loop, the innermost call first; `None` if its process
    /// was not met, if they are not known, or if the thread has run on meanwhile.
    pub fn loops_of(&mut self, thread: &LookedThread<'_>) -> Option<Vec<LoopFrames>> {
        let process = self.processes.get_mut(&thread.pid)?;
        let is_read = process.memory == thread.memory && process.python.is_some();
        let memory = is_read.then(|| MemoryFile::of(thread.pid)).flatten()?;
        alarm::set(LONGEST_READ_S);
        let loops = process.loops(thread, &memory);
        alarm::cancel();
        let runs = read_runs(thread.pid, thread.tid).ok()?;
        loops.filter(|_| thread.runs.is_some() && runs == thread.runs)
    }

    /// Meets the process of a thread that is in the interpreter of this file. Returns false if it was met before.
    pub fn meet(&mut self, thread: &LookedThread<'_>, file: &PythonFile, moved_by: u64) -> bool {
        let known = self.processes.get(&thread.pid);
        let is_new = known.is_none_or(|known| known.memory != thread.memory);
        if is_new && let Some(memory) = MemoryFile::of(thread.pid) {
            alarm::set(LONGEST_READ_S);
            let version = file.version.map(|at| at.wrapping_add(moved_by));
            let version = version.and_then(|at| memory.number(at));
            let python = Python::at(file.runtime.wrapping_add(moved_by), version, &memory);
            alarm::cancel();
            self.unknown.extend(python.as_ref().err());
            let process = PythonProcess {
                memory: thread.memory,
                python: python.ok(),
                threads: FxHashMap::default(),
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

impl PythonProcess {
    fn loops(&mut self, thread: &LookedThread<'_>, memory: &MemoryFile) -> Option<Vec<LoopFrames>> {
        let state = self.state_of(thread.thread_pointer, memory)?;
        let frames = self.python.as_ref()?.frames(state, memory);
        let mut loops = Vec::new();
        let mut current = LoopFrames::new();
        for frame in &frames {
            current.extend(self.place_of(frame, memory));
            if frame.is_entry {
                loops.push(std::mem::take(&mut current));
            }
        }
        Some(loops)
    }

    fn state_of(&mut self, thread_pointer: u64, memory: &MemoryFile) -> Option<u64> {
        let python = self.python.as_ref()?;
        if let Some(state) = self.threads.get(&thread_pointer)
            && python.is_thread(*state, thread_pointer, memory)
        {
            return Some(*state);
        }
        if self.threads.len() >= MOST_KNOWN {
            self.threads.clear();
        }
        let state = python.thread_at(thread_pointer, memory)?;
        self.threads.insert(thread_pointer, state);
        Some(state)
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
