//! Stacks of other processes: a file of code that says anything, and registers and a stack that hold anything.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use fastrand::Rng;
use swtch_capture::CodeMapping;
use swtch_record::stacks::file_tables::FileTables;
use swtch_unwind::{
    CALL_BYTES, CodeAt, REGISTERS, Registers, STACK_POINTER, StackCode, StackCopy, UnwindTables,
    chain, is_call,
};

use super::{FuzzSubject, mutate};

/// Where the code of the file is taken to be in memory, and where the stack.
const CODE: u64 = 0x7f00_0000_0000;
const STACK: u64 = 0x7ffc_0000_0000;
const STACK_BYTES: usize = 4096;

/// The stack, the registers and the instruction, behind the file.
const BEHIND: usize = STACK_BYTES + (REGISTERS + 1) * 8;

/// The most frames of a stack that are asked for.
const MOST_FRAMES: usize = 256;

/// The dynamic linker, with stacks that may be in it.
#[derive(Debug)]
pub struct ReadStacks {
    whole: Vec<u8>,
    file: PathBuf,
}

impl ReadStacks {
    /// The damaged file is written to this directory.
    pub fn new(directory: &Path) -> Self {
        let maps = fs::read_to_string("/proc/self/maps").expect("it is there");
        let linker = maps.lines().find_map(|line| {
            let path = line.split(' ').next_back()?;
            path.rsplit('/').next()?.starts_with("ld-").then_some(path)
        });
        // A program without one has a file of code, too.
        let linker = linker.unwrap_or("/proc/self/exe");
        Self {
            whole: fs::read(linker).expect("a file that is mapped"),
            file: directory.join("code"),
        }
    }
}

/// The file at its place in memory.
struct MappedFile<'a> {
    tables: FileTables,
    moved_by: u64,
    bytes: u64,
    code: &'a [u8],
}

impl StackCode for MappedFile<'_> {
    fn at(&self, address: u64, look: &mut dyn FnMut(&UnwindTables<'_>, u64)) -> CodeAt {
        if !(CODE..CODE + self.bytes).contains(&address) {
            return CodeAt::Nothing;
        }
        if self
            .tables
            .begins_stacks_at(address.wrapping_sub(self.moved_by))
        {
            return CodeAt::Start;
        }
        look(&self.tables.tables(), self.moved_by);
        CodeAt::Code
    }

    fn is_after_call(&self, address: u64) -> bool {
        let end = address
            .checked_sub(CODE)
            .and_then(|at| usize::try_from(at).ok());
        let before = end.and_then(|end| self.code.get(end.saturating_sub(CALL_BYTES)..end));
        before.is_some_and(is_call)
    }

    fn is_one_file(&self, _one: u64, _other: u64) -> bool {
        true
    }
}

impl FuzzSubject for ReadStacks {
    fn draw(&mut self, random: &mut Rng) -> Vec<u8> {
        let mut bytes = self.whole.clone();
        for _ in 0..random.usize(..8) {
            mutate::bytes(random, &mut bytes);
        }
        for _ in 0..BEHIND / 8 {
            let word = match random.u32(..8) {
                0..=3 => CODE + random.u64(..self.whole.len() as u64),
                4..=5 => STACK + random.u64(..2 * STACK_BYTES as u64),
                6 => random.u64(..4096),
                _ => mutate::number(random),
            };
            bytes.extend(word.to_ne_bytes());
        }
        bytes
    }

    fn run(&mut self, input: &[u8]) {
        let Some((code, behind)) = input.len().checked_sub(BEHIND).map(|at| input.split_at(at))
        else {
            return;
        };
        fs::write(&self.file, code).expect("a scratch file");
        let Some(tables) = FileTables::read(File::open(&self.file).expect("a scratch file")) else {
            return;
        };
        let (stack, words) = behind.split_at(STACK_BYTES);
        let mut words = words
            .chunks_exact(8)
            .filter_map(|word| Some(u64::from_ne_bytes(*word.first_chunk()?)));
        let bytes = code.len() as u64;
        let mapping = |offset| CodeMapping {
            range: CODE + offset..CODE + bytes,
            offset,
            file: None,
            is_vdso: false,
        };
        let pages = (0..bytes).step_by(4096);
        let moved_by = pages.filter_map(|offset| tables.moved_by(&mapping(offset)));
        let Some(moved_by) = moved_by.min() else {
            return;
        };
        let mapped = MappedFile {
            tables,
            moved_by,
            bytes,
            code,
        };
        let pc = words.next().unwrap_or(CODE);
        let mut values = [None; REGISTERS];
        for value in &mut values {
            *value = words.next();
        }
        values[usize::from(STACK_POINTER)] = Some(STACK);
        let copy = StackCopy {
            start: STACK,
            bytes: stack,
        };
        let found = chain(Registers::new(pc, values), copy, &mapped, MOST_FRAMES);
        assert!((1..=MOST_FRAMES).contains(&found.addresses.len()));
    }
}
