//! The body of a member as a list of [`instructions`](super::instructions) that are bound to what
//! one member uses: locks, files, memory.

use std::fs::File;
use std::hint::black_box;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use super::Step;
use super::gap::LongestGaps;
use super::instructions::{UnboundInstruction, flat};
use super::resources::Resources;
use super::ring::RingAccess;
use crate::arch::ChainOperation;
use crate::error::Error;
use crate::lock::Lock;
use crate::token::Token;

/// The body of a member, ready to run.
pub(super) struct Program<'a> {
    instructions: Vec<Instruction<'a>>,
    counters: Vec<u64>,
    rings: Vec<RingAccess<'a>>,
    files: Vec<RereadFile>,
    memories: Vec<Memory>,
    gaps: LongestGaps,
}

enum Instruction<'a> {
    Begin {
        counter: usize,
        times: u64,
    },
    Again {
        counter: usize,
        from: usize,
    },
    Spin {
        kernel: ChainOperation,
        iterations: u64,
    },
    Lock(&'a dyn Lock),
    Unlock(&'a dyn Lock),
    Wait(&'a dyn Token),
    Signal(&'a dyn Token),
    Take(usize),
    Pass(usize),
    Sleep(Duration),
    Watch(u64),
    Yield,
    Read(usize),
    Touch(usize),
}

impl<'a> Program<'a> {
    /// The program of a member; `positions` tells the member's position in each ring that it uses.
    /// Opens files, fills memory and enters the rings, so it must be called in the member itself.
    pub(super) fn new(
        body: &[Step],
        resources: &'a Resources,
        positions: RingPositions<'_>,
    ) -> Result<Self, Error> {
        let mut program = Self {
            instructions: Vec::new(),
            counters: Vec::new(),
            rings: Vec::new(),
            files: Vec::new(),
            memories: Vec::new(),
            gaps: LongestGaps::default(),
        };
        let mut ring_names: Vec<&str> = Vec::new();
        for instruction in flat(body) {
            let instruction = match instruction {
                UnboundInstruction::Begin { counter, times } => {
                    program.counters.push(0);
                    Instruction::Begin { counter, times }
                }
                UnboundInstruction::Again { counter, from } => Instruction::Again { counter, from },
                UnboundInstruction::Do(Step::Take(ring)) => Instruction::Take(
                    program.ring_access(ring, &mut ring_names, resources, positions)?,
                ),
                UnboundInstruction::Do(Step::Pass(ring)) => Instruction::Pass(
                    program.ring_access(ring, &mut ring_names, resources, positions)?,
                ),
                UnboundInstruction::Do(step) => program.plain(step, resources)?,
            };
            program.instructions.push(instruction);
        }
        Ok(program)
    }

    fn ring_access<'s>(
        &mut self,
        ring: &'s str,
        ring_names: &mut Vec<&'s str>,
        resources: &'a Resources,
        positions: RingPositions<'_>,
    ) -> Result<usize, Error>
    where
        's: 's,
    {
        if let Some(known) = ring_names.iter().position(|known| *known == ring) {
            return Ok(known);
        }
        ring_names.push(ring);
        self.rings
            .push(resources.ring(ring).enter(positions(ring))?);
        Ok(ring_names.len() - 1)
    }

    fn plain(&mut self, step: &Step, resources: &'a Resources) -> Result<Instruction<'a>, Error> {
        Ok(match step {
            Step::Spin { kernel, iterations } => Instruction::Spin {
                kernel: *kernel,
                iterations: *iterations,
            },
            Step::Lock(name) => Instruction::Lock(resources.lock(name)),
            Step::Unlock(name) => Instruction::Unlock(resources.lock(name)),
            Step::Wait(name) => Instruction::Wait(resources.event(name)),
            Step::Signal(name) => Instruction::Signal(resources.event(name)),
            Step::Sleep(length) => Instruction::Sleep(Duration::from_nanos(length.as_ns())),
            Step::Watch(length) => Instruction::Watch(length.as_ns()),
            Step::Yield => Instruction::Yield,
            Step::Read { path, bytes } => {
                self.files.push(RereadFile::open(path, *bytes)?);
                Instruction::Read(self.files.len() - 1)
            }
            Step::Touch { bytes, stride } => {
                self.memories.push(Memory::new(*bytes, *stride)?);
                Instruction::Touch(self.memories.len() - 1)
            }
            Step::Repeat { .. } | Step::Take(_) | Step::Pass(_) => {
                unreachable!("these are no plain steps")
            }
        })
    }

    /// Gaps that the member saw while it watched the clock.
    pub(super) const fn gaps(&self) -> &LongestGaps {
        &self.gaps
    }

    /// Runs the program, and stores in `at` the index of the current instruction.
    pub(super) fn run(&mut self, at: &AtomicU32) -> Result<(), Error> {
        let mut next = 0;
        while let Some(instruction) = self.instructions.get(next) {
            at.store(u32::try_from(next).unwrap_or(u32::MAX), Ordering::Relaxed);
            next += 1;
            match instruction {
                Instruction::Begin { counter, times } => self.counters[*counter] = *times,
                Instruction::Again { counter, from } => {
                    let left = &mut self.counters[*counter];
                    *left -= 1;
                    if *left > 0 {
                        next = *from;
                    }
                }
                Instruction::Spin { kernel, iterations } => kernel.run(*iterations),
                Instruction::Lock(lock) => lock.lock()?,
                Instruction::Unlock(lock) => lock.unlock()?,
                Instruction::Wait(event) => event.take()?,
                Instruction::Signal(event) => event.pass()?,
                Instruction::Take(ring) => self.rings[*ring].take()?,
                Instruction::Pass(ring) => self.rings[*ring].pass()?,
                Instruction::Sleep(length) => thread::sleep(*length),
                Instruction::Watch(length_ns) => self.gaps.watch(*length_ns),
                Instruction::Yield => thread::yield_now(),
                Instruction::Read(file) => self.files[*file].read()?,
                Instruction::Touch(memory) => self.memories[*memory].touch(),
            }
        }
        Ok(())
    }
}

/// The member's position in a ring, by the name of the ring.
pub(super) type RingPositions<'a> = &'a dyn Fn(&str) -> usize;

/// A file that is read on from where the last read ended, and from its start again after its end.
struct RereadFile {
    file: File,
    path: PathBuf,
    at: u64,
    bytes: u64,
    into: Vec<u8>,
}

/// Most bytes that one call reads.
const READ_AT_ONCE: u64 = 1 << 20;

impl RereadFile {
    fn open(path: &Path, bytes: u64) -> Result<Self, Error> {
        let file = File::open(path).map_err(|source| Error::File {
            path: path.to_owned(),
            source,
        })?;
        let most = usize::try_from(bytes.min(READ_AT_ONCE)).unwrap_or(usize::MAX);
        Ok(Self {
            file,
            path: path.to_owned(),
            at: 0,
            bytes,
            into: vec![1; most],
        })
    }

    fn read(&mut self) -> Result<(), Error> {
        let mut left = self.bytes;
        let mut is_at_start = self.at == 0;
        while left > 0 {
            let most = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(self.into.len());
            let read = self.file.read_at(&mut self.into[..most], self.at);
            let read = read.map_err(|source| Error::File {
                path: self.path.clone(),
                source,
            })?;
            if read == 0 && is_at_start {
                return Err(Error::NotHere(format!("{} is empty", self.path.display())));
            }
            is_at_start = read == 0;
            self.at = if read == 0 { 0 } else { self.at + read as u64 };
            left -= read as u64;
        }
        Ok(())
    }
}

/// Memory that one member touches.
struct Memory {
    bytes: Vec<u8>,
    stride: usize,
}

impl Memory {
    /// Writes every byte: pages that are only read all map one shared zero page.
    fn new(bytes: u64, stride: u64) -> Result<Self, Error> {
        let count = usize::try_from(bytes).unwrap_or(usize::MAX);
        let mut memory = Vec::new();
        memory.try_reserve_exact(count).map_err(|_| {
            Error::NotHere(format!("{bytes} bytes of memory for one member to touch"))
        })?;
        memory.resize(count, 1);
        Ok(Self {
            bytes: memory,
            stride: usize::try_from(stride).unwrap_or(usize::MAX),
        })
    }

    fn touch(&mut self) {
        for byte in self.bytes.iter_mut().step_by(self.stride) {
            *byte = byte.wrapping_add(2);
        }
        // Without this the compiler could remove the writes, since nothing reads them.
        black_box(&mut self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touch_changes_a_byte_at_every_stride() {
        let mut memory = Memory::new(10, 4).unwrap();
        memory.touch();
        assert_eq!(memory.bytes, [3, 1, 1, 1, 3, 1, 1, 1, 3, 1]);
    }

    #[test]
    fn a_file_that_ends_is_read_again_from_its_start() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, b"abc").unwrap();
        let mut reading = RereadFile::open(file.path(), 5).unwrap();
        reading.read().unwrap();
        assert_eq!(reading.at, 2);
    }
}
