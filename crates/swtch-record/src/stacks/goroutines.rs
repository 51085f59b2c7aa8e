//! Goroutines without a thread, read at each look: what they wait for, and their stacks.

use std::path::Path;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use swtch_capture::{LOOK_REGISTERS, LookedThread};
use swtch_core::Pid;
use swtch_runtimes::ProcessMemory as _;
use swtch_runtimes::go::{Go, GoPlaces, Goroutine, UnknownGo};
use swtch_unwind::{FRAME_POINTER, STACK_POINTER};

use super::memory::{MemoryFile, watched};

/// The most processes whose goroutines are read: each takes a descriptor.
const MOST_PROCESSES: usize = 64;

/// How often goroutines are looked for in a program that does not say where they are: it may have begun only now.
const MOST_TRIES: u32 = 8;
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

/// The most of a stack that is read.
const MOST_STACK: usize = 16 << 10;

/// The longest that a look is at goroutines of all processes. Of many it then reads some, which chance takes.
const LONGEST_READ: Duration = Duration::from_millis(50);

/// The Go runtimes of all processes that were met.
#[derive(Debug, Default)]
pub struct Goroutines {
    processes: FxHashMap<Pid, GoProcess>,
    /// Runtimes that are not read, and were not asked for yet.
    unknown: Vec<UnknownGo>,
}

#[derive(Debug)]
struct GoProcess {
    /// Of which address space.
    memory: u64,
    /// Why it is not read, if it is not.
    read: Result<(Go, MemoryFile), UnknownGo>,
    /// How often it was tried, and when last.
    tries: u32,
    tried: Instant,
    /// The names of reasons, as far as they were met; `None` for one of the runtime's own.
    reasons: FxHashMap<u8, Option<String>>,
}

/// Goroutines of a process.
#[derive(Debug)]
pub struct ReadGoroutines {
    pub pid: Pid,
    /// How many each of these stands for, in thousandths.
    pub each: u64,
    pub goroutines: Vec<ReadGoroutine>,
}

/// A goroutine without a thread.
#[derive(Debug)]
pub struct ReadGoroutine {
    /// What it waits for, in the words of its runtime; `None` for one that could run.
    pub reason: Option<String>,
    /// What it goes on with, by numbers of DWARF.
    pub pc: u64,
    pub registers: [u64; LOOK_REGISTERS],
    /// Where its stack begins, and the bytes from there on.
    pub start: u64,
    pub stack: Vec<u8>,
}

impl Goroutines {
    /// Meets the process of a thread, whose runtime is at these places. Returns false if that was not possible now.
    pub fn meet(&mut self, thread: &LookedThread<'_>, places: GoPlaces) -> bool {
        let known = self.processes.get(&thread.pid);
        let known = known.filter(|known| known.memory == thread.memory);
        if known.is_some_and(|known| !known.may_be_found_yet()) {
            return true;
        }
        if known.is_some_and(|known| known.tried.elapsed() < BETWEEN_TRIES) {
            return false;
        }
        let tries = known.map_or(0, |known| known.tries);
        // A child of vfork(2) has the memory of its parent until it executes a program.
        let mut others = self.processes.iter();
        if others.any(|(pid, other)| *pid != thread.pid && other.memory == thread.memory) {
            return false;
        }
        self.processes.retain(|pid, process| process.is_there(*pid));
        if self.processes.len() >= MOST_PROCESSES {
            return false;
        }
        let Some(memory) = MemoryFile::of_thread(thread) else {
            return false;
        };
        let go = watched(|| Go::at(places, &memory));
        let process = GoProcess {
            memory: thread.memory,
            read: go.map(|go| (go, memory)),
            tries: tries + 1,
            tried: Instant::now(),
            reasons: FxHashMap::default(),
        };
        let is_met = !process.may_be_found_yet();
        self.unknown
            .extend(process.read.as_ref().err().filter(|_| is_met).cloned());
        self.processes.insert(thread.pid, process);
        is_met
    }

    /// Forgets what was known of a process that runs another program now.
    pub fn see(&mut self, thread: &LookedThread<'_>) {
        let known = self.processes.get(&thread.pid);
        if known.is_some_and(|known| known.memory != thread.memory) {
            self.processes.remove(&thread.pid);
        }
    }

    /// The runtimes that were met since the last call, and that are not read.
    pub fn take_unknown(&mut self) -> Vec<UnknownGo> {
        std::mem::take(&mut self.unknown)
    }

    /// Reads the goroutines of all processes that were met.
    pub fn read(&mut self) -> Vec<ReadGoroutines> {
        let begun = Instant::now();
        let mut processes: Vec<_> = self.processes.iter_mut().collect();
        fastrand::shuffle(&mut processes);
        let (all, mut taken) = (processes.len() as u64, 0);
        let mut read = Vec::new();
        for (pid, process) in processes {
            if begun.elapsed() >= LONGEST_READ {
                break;
            }
            taken += 1;
            read.extend(process.goroutines(*pid));
        }
        // Those that were read stand for the others as well.
        for one in &mut read {
            one.each = one.each * all / taken;
        }
        read
    }
}

impl GoProcess {
    /// True if its goroutines may be found later: it has begun only now.
    fn may_be_found_yet(&self) -> bool {
        self.read.as_ref().err() == Some(&UnknownGo::NoList) && self.tries < MOST_TRIES
    }

    /// False once its program has ended.
    fn is_there(&self, pid: Pid) -> bool {
        let read = |(go, memory): &(Go, MemoryFile)| {
            memory.begin();
            watched(|| go.is_there(memory))
        };
        match &self.read {
            Ok(known) => read(known),
            Err(_) => Path::new(&format!("/proc/{pid}")).exists(),
        }
    }

    fn goroutines(&mut self, pid: Pid) -> Option<ReadGoroutines> {
        let (go, memory) = self.read.as_mut().ok()?;
        memory.begin();
        watched(|| {
            let some = go.goroutines(memory, |all| fastrand::u64(..all));
            let read = some.idle.iter().filter_map(|one| {
                let reason = match one.reason {
                    None => None,
                    Some(number) => {
                        let name = || go.reason(number, memory);
                        let known = self.reasons.entry(number).or_insert_with(name);
                        Some(known.clone()?)
                    }
                };
                read_goroutine(go, one, reason, memory)
            });
            let goroutines: Vec<_> = read.collect();
            (!goroutines.is_empty()).then_some(ReadGoroutines {
                pid,
                each: 1000 * some.all / some.read.max(1),
                goroutines,
            })
        })
    }
}

/// `None` if it has run on meanwhile.
fn read_goroutine(
    go: &Go,
    one: &Goroutine,
    reason: Option<String>,
    memory: &MemoryFile,
) -> Option<ReadGoroutine> {
    let (start, end) = one.stack;
    let length = (end - start).min(MOST_STACK as u64);
    let stack = memory.bytes(start, length, MOST_STACK)?;
    go.is_as_it_was(one, memory).then_some(())?;
    let mut registers = [0; LOOK_REGISTERS];
    registers[usize::from(STACK_POINTER)] = start;
    registers[usize::from(FRAME_POINTER)] = one.frame_pointer;
    Some(ReadGoroutine {
        reason,
        pc: one.pc,
        registers,
        start,
        stack,
    })
}
