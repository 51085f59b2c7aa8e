//! `CPython`: which functions the threads of an interpreter are in, and who holds its lock.
//!
//! ```text
//! _PyRuntime ─▶ interpreters ─▶ threads ─▶ frames ─▶ code ─▶ names, table of lines
//!                     └▶ lock: the thread that holds it
//! ```
//!
//! A thread is known by its thread pointer, from which `pthread_self` follows in the C libraries of Linux. Layouts are in
//! `offsets`. What does not look like what it should be has no name: a frame is told without its function then. `lines` and
//! `lock` read tables of lines and who holds the lock, `parked` what a thread waits for.

mod lines;
mod lock;
mod offsets;
mod parked;

use std::collections::BTreeMap;
use std::ops::Range;

use crate::{ProcessMemory, SourcePlace};
use offsets::{EntryMark, Offsets};

pub use offsets::{SUPPORTED, UnknownPython};

/// The most interpreters and threads that are walked through, and frames of one thread.
const MOST_INTERPRETERS: usize = 64;
const MOST_THREADS: usize = 4096;
const MOST_FRAMES: usize = 256;

/// How far behind `pthread_self` a thread pointer is: on x86-64 they are the same, on arm64 a `struct pthread` lies before it
/// (glibc and musl).
const POINTER_AFTER_NAME: Range<u64> = 0..if cfg!(target_arch = "aarch64") {
    4096
} else {
    1
};

/// The longest name of a function or file that is read, in characters, and the largest table of lines, in bytes.
const LONGEST_NAME: u64 = 1024;
const LARGEST_TABLE: usize = 256 << 10;

/// The bits of a reference that are no part of the address (`Include/internal/pycore_stackref.h`, 3.14).
const TAG: u64 = 3;

/// An interpreter that runs.
#[derive(Clone, Debug)]
pub struct Python {
    runtime: u64,
    offsets: Offsets,
}

/// A function that has not returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PythonFrame {
    /// Address of its code object.
    pub code: u64,
    /// The instruction that it has come to, in bytes from the start of the code.
    pub offset: u64,
    /// True if the interpreter's own code called it: the frame outside of it belongs to an outer call of the interpreter.
    pub is_entry: bool,
}

impl Python {
    /// The interpreter whose state is at this address. `version` is `Py_Version`, where the file has it.
    ///
    /// # Errors
    /// When its layout is not known.
    pub fn at(
        runtime: u64,
        version: Option<u32>,
        memory: &impl ProcessMemory,
    ) -> Result<Self, UnknownPython> {
        let offsets = Offsets::of(runtime, version, memory)?;
        Ok(Self { runtime, offsets })
    }

    /// The states of all threads, by what the runtime calls them: `pthread_self`.
    pub fn threads(&self, memory: &impl ProcessMemory) -> BTreeMap<u64, u64> {
        let offsets = &self.offsets;
        let head = self.runtime.wrapping_add(offsets.interpreters_head);
        let interpreters = list(memory, head, offsets.interpreter_next, MOST_INTERPRETERS);
        let states = interpreters.flat_map(move |interpreter| {
            let head = interpreter.wrapping_add(offsets.threads_head);
            list(memory, head, offsets.thread_next, MOST_THREADS)
        });
        let states = states.take(MOST_THREADS);
        let named = states.filter_map(|state| Some((self.name_of(state, memory)?, state)));
        named.collect()
    }

    /// The thread with this thread pointer among these: what the runtime calls it, and its state.
    pub fn state_at(thread_pointer: u64, threads: &BTreeMap<u64, u64>) -> Option<(u64, u64)> {
        let (name, state) = threads.range(..=thread_pointer).next_back()?;
        let is_its = POINTER_AFTER_NAME.contains(&(thread_pointer - name));
        is_its.then_some((*name, *state))
    }

    /// True if this is still the state of the thread that the runtime calls so.
    pub fn is_thread(&self, state: u64, name: u64, memory: &impl ProcessMemory) -> bool {
        self.name_of(state, memory) == Some(name)
    }

    fn name_of(&self, state: u64, memory: &impl ProcessMemory) -> Option<u64> {
        memory.word(state.wrapping_add(self.offsets.thread_id))
    }

    /// The functions of a thread that have not returned, the innermost first.
    pub fn frames(&self, thread: u64, memory: &impl ProcessMemory) -> Vec<PythonFrame> {
        let offsets = &self.offsets;
        let (first, second) = offsets.current_frame;
        let mut next = memory.word(thread.wrapping_add(first));
        if let Some(second) = second {
            next = next.and_then(|at| memory.word(at.wrapping_add(second)));
        }
        let mut frames: Vec<PythonFrame> = Vec::new();
        for _ in 0..2 * MOST_FRAMES {
            let address = next.filter(|address| *address != 0);
            let read = address.and_then(|address| FrameBytes::read(address, memory));
            let Some(frame) = read.filter(|_| frames.len() < MOST_FRAMES) else {
                break;
            };
            next = frame.word(offsets.frame_previous);
            match self.function_of(&frame) {
                Some(function) => frames.push(function),
                // One that stands for a call of the interpreter.
                None => {
                    if let Some(last) = frames.last_mut() {
                        last.is_entry = true;
                    }
                }
            }
        }
        if let Some(last) = frames.last_mut() {
            last.is_entry = true;
        }
        frames
    }

    /// The function of a frame; `None` for a frame that is none of the program's.
    fn function_of(&self, frame: &FrameBytes) -> Option<PythonFrame> {
        let offsets = &self.offsets;
        let is_entry = match offsets.entry {
            EntryMark::Flag(at) => frame.byte(at)? != 0,
            EntryMark::OwnedByC { owner, number } => {
                if frame.byte(owner)? >= number {
                    return None;
                }
                false
            }
        };
        let code = frame.word(offsets.frame_code)? & !TAG;
        let instruction = frame.word(offsets.frame_instruction)?;
        Some(PythonFrame {
            code,
            offset: instruction.saturating_sub(code.wrapping_add(offsets.code_bytes)),
            is_entry,
        })
    }

    /// Words by which a code object is known from another that has come to its address: its file, its names, and its table
    /// of lines.
    pub fn identity_of(&self, code: u64, memory: &impl ProcessMemory) -> Option<[u64; 4]> {
        let start = code.wrapping_add(self.offsets.code_file);
        let mut bytes = [0; 32];
        memory.read(start, &mut bytes).then(|| {
            let mut words = [0; 4];
            for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
                *word = u64::from_ne_bytes(*bytes);
            }
            words
        })
    }

    /// Where a frame is in the source; `None` if there is no code object of this kind.
    pub fn place_of(
        &self,
        frame: &PythonFrame,
        memory: &impl ProcessMemory,
    ) -> Option<SourcePlace> {
        let (offsets, code) = (&self.offsets, frame.code);
        // What is taken for code has to say that it is.
        let kind = memory.word(code.wrapping_add(offsets.object_type))?;
        let name = memory.word(kind.wrapping_add(offsets.type_name))?;
        (memory.bytes(name, 5, 5)? == b"code\0").then_some(())?;
        let text = |offset: u64| self.text(memory.word(code.wrapping_add(offset))?, memory);
        let line = memory.number(code.wrapping_add(offsets.code_first_line));
        let line = line.and_then(|first| {
            let table = memory.word(code.wrapping_add(offsets.code_lines))?;
            let length = memory.word(table.wrapping_add(offsets.bytes_length))?;
            let start = table.wrapping_add(offsets.bytes_start);
            let table = memory.bytes(start, length, LARGEST_TABLE)?;
            lines::line_at(&table, first, frame.offset)
        });
        let (function, file) = (text(offsets.code_name)?, text(offsets.code_file)?);
        // The interpreter's own, below one that begins an object (`_Py_InitCleanup`, 3.13).
        (file != "__init__").then_some(SourcePlace {
            function,
            file: Some(file),
            line,
        })
    }

    /// A text in its compact form, which names have.
    fn text(&self, address: u64, memory: &impl ProcessMemory) -> Option<String> {
        let offsets = &self.offsets;
        let length = memory.word(address.wrapping_add(offsets.text_length))?;
        let state = memory.number(address.wrapping_add(offsets.text_state))?;
        let bits = |shift: u32, mask: u32| state >> (offsets.text_kind_bit + shift) & mask;
        let (bytes_each, is_compact, is_ascii) = (bits(0, 7), bits(3, 1) == 1, bits(4, 1) == 1);
        if !is_compact || length > LONGEST_NAME {
            return None;
        }
        let start = if is_ascii {
            offsets.ascii_bytes
        } else {
            offsets.text_bytes
        };
        let most = usize::try_from(LONGEST_NAME).ok()? * 4;
        let bytes = memory.bytes(
            address.wrapping_add(start),
            length * u64::from(bytes_each),
            most,
        )?;
        match bytes_each {
            1 => Some(bytes.iter().map(|byte| char::from(*byte)).collect()),
            2 => {
                let units = bytes
                    .as_chunks()
                    .0
                    .iter()
                    .map(|unit| u16::from_ne_bytes(*unit));
                char::decode_utf16(units).collect::<Result<_, _>>().ok()
            }
            4 => {
                let units = bytes
                    .as_chunks()
                    .0
                    .iter()
                    .map(|unit| u32::from_ne_bytes(*unit));
                units.map(char::from_u32).collect()
            }
            _ => None,
        }
    }
}

/// What a frame begins with, as far as something is read of it in some version: at once, since each reading takes a system
/// call.
struct FrameBytes([u8; 96]);

impl FrameBytes {
    fn read(address: u64, memory: &impl ProcessMemory) -> Option<Self> {
        let mut bytes = [0; 96];
        memory.read(address, &mut bytes).then_some(Self(bytes))
    }

    /// The word at this offset; `None` beyond what was read.
    fn word(&self, offset: u64) -> Option<u64> {
        let offset = usize::try_from(offset).ok()?;
        Some(u64::from_ne_bytes(*self.0.get(offset..)?.first_chunk()?))
    }

    fn byte(&self, offset: u64) -> Option<u8> {
        self.0.get(usize::try_from(offset).ok()?).copied()
    }
}

/// The elements of a linked list, at most so many.
fn list(
    memory: &impl ProcessMemory,
    head: u64,
    next: u64,
    most: usize,
) -> impl Iterator<Item = u64> {
    let element = |at: u64| memory.word(at).filter(|element| *element != 0);
    let follow = move |element: &u64| {
        memory
            .word(element.wrapping_add(next))
            .filter(|one| *one != 0)
    };
    std::iter::successors(element(head), follow).take(most)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::made_up::{MadeUp, Wild};

    /// A text of bytes, as 3.12 keeps it.
    fn put_text(memory: &mut MadeUp, address: u64, text: &str, kind_and_flags: u32) {
        memory.put_word(address + 16, text.len() as u64);
        memory.put(address + 32, &(kind_and_flags << 2).to_ne_bytes());
        memory.put(address + 40, text.as_bytes());
    }

    const RUNTIME: u64 = 0x1000;
    const THREAD: u64 = 0x3000;
    const POINTER: u64 = 0x7f00;
    const ASCII: u32 = 1 | 1 << 3 | 1 << 4;

    /// A process with 3.12, in which `take` was called by `run`, both in one call of the interpreter.
    fn process() -> MadeUp {
        let mut memory = MadeUp::up_to(0x10_0000);
        let (interpreter, call, frames, entry) = (0x2000, 0x4000, [0x5000, 0x5100], 0x5200);
        memory.put_word(RUNTIME + 40, interpreter);
        memory.put_word(interpreter + 72, THREAD);
        memory.put_word(THREAD + 136, POINTER);
        memory.put_word(THREAD + 56, call);
        memory.put_word(call, frames[0]);
        memory.put_word(frames[0] + 8, frames[1]);
        memory.put_word(frames[1] + 8, entry);
        memory.put(entry + 70, &[3]);
        for (place, name) in [(0, "take"), (1, "run")] {
            let code = 0x6000 + place * 0x1000;
            let frame = frames[usize::try_from(place).unwrap()];
            memory.put_word(frame, code);
            memory.put_word(frame + 56, code + 192 + 4);
            memory.put_word(code + 8, 0xa000);
            memory.put_word(code + 112, 0xb000);
            memory.put_word(code + 128, 0xc000 + place * 0x100);
            memory.put_word(code + 136, 0xd000);
            memory.put(code + 68, &7_u32.to_ne_bytes());
            put_text(&mut memory, 0xc000 + place * 0x100, name, ASCII);
        }
        memory.put_word(0xa000 + 24, 0xe000);
        memory.put(0xe000, b"code\0");
        put_text(&mut memory, 0xb000, "/app/worker.py", ASCII);
        // Two instructions of the first line, then some of the next but one.
        let table = [0x80 | 13 << 3 | 1, 0, 0x80 | 13 << 3 | 7, 4];
        memory.put_word(0xd000 + 16, table.len() as u64);
        memory.put(0xd000 + 32, &table);
        memory
    }

    fn python(memory: &MadeUp) -> Python {
        Python::at(RUNTIME, Some(0x030c_01f0), memory).unwrap()
    }

    fn names(memory: &MadeUp) -> Vec<(String, Option<u32>, bool)> {
        let python = python(memory);
        let (_, thread) = Python::state_at(POINTER, &python.threads(memory)).unwrap();
        let frames = python.frames(thread, memory).into_iter();
        let named = frames.filter_map(|frame| {
            let place = python.place_of(&frame, memory)?;
            assert_eq!(place.file.as_deref(), Some("/app/worker.py"));
            Some((place.function, place.line, frame.is_entry))
        });
        named.collect()
    }

    #[test]
    fn the_functions_of_a_thread_are_found_with_their_lines() {
        let memory = process();
        let (take, run) = ("take".to_owned(), "run".to_owned());
        assert_eq!(
            names(&memory),
            [(take, Some(9), false), (run, Some(9), true)]
        );
        let threads = python(&memory).threads(&memory);
        assert_eq!(Python::state_at(POINTER + 8192, &threads), None);
    }

    /// Thread, interpreter and lock of [`process`], with a lock that the thread holds.
    fn locked() -> (MadeUp, u64) {
        let (mut memory, lock) = (process(), 0xf000);
        memory.put_word(THREAD + 16, 0x2000);
        memory.put_word(0x2000 + 384, lock);
        memory.put_word(lock + 8, THREAD);
        memory.put(lock + 16, &[1]);
        (memory, lock)
    }

    #[test]
    fn who_holds_the_lock_is_known() {
        let (mut memory, lock) = locked();
        let python = python(&memory);
        // The words of its conditions and mutexes, and none beside.
        for (word, is_its) in [
            (lock + 40, true),
            (lock + 207, true),
            (lock - 4, false),
            (lock + 224, false),
        ] {
            assert_eq!(
                python.lock_at(word, THREAD, &memory),
                is_its.then_some(lock),
                "{word:#x}"
            );
        }
        let functions = |memory: &MadeUp| {
            let frames = python.functions_of_holder(lock, memory).into_iter();
            let places = frames.filter_map(|frame| python.place_of(&frame, memory));
            let named = places.map(|place| (place.function, place.line));
            named.collect::<Vec<_>>()
        };
        // The innermost is told by where it begins.
        let held = [("take".to_owned(), Some(7)), ("run".to_owned(), Some(9))];
        assert_eq!(functions(&memory), held);
        memory.put(lock + 16, &[0]);
        assert_eq!(functions(&memory), []);
    }

    #[test]
    fn what_the_holder_left_meanwhile_is_not_told() {
        let (memory, lock) = locked();
        let python = python(&memory);
        let functions = |changed: u64, to: u64| {
            let changed = (changed, to, Cell::new(false));
            let moving = Moving {
                memory: &memory,
                changed,
            };
            python.functions_of_holder(lock, &moving).len()
        };
        // It has returned from `take`, and then another thread holds the lock.
        assert_eq!(functions(0x4000, 0x5100), 1);
        assert_eq!(functions(lock + 8, 0x3100), 0);
    }

    /// A process in which a word changes once it was read.
    struct Moving<'a> {
        memory: &'a MadeUp,
        changed: (u64, u64, Cell<bool>),
    }

    impl ProcessMemory for Moving<'_> {
        fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
            let (changed, to, was_read) = &self.changed;
            if address == *changed && was_read.replace(true) {
                bytes.copy_from_slice(&to.to_ne_bytes());
                return true;
            }
            self.memory.read(address, bytes)
        }
    }

    /// The words of a table as 3.13, 3.14 and 3.15 publish it, with the layout of [`process`].
    #[test]
    fn the_layout_is_what_the_interpreter_publishes() {
        let starts = [
            (0x030d, 14, 19, 5, 28, 34, 44, 46),
            (0x030e, 15, 22, 5, 31, 39, 50, 52),
            (0x030f, 15, 22, 8, 39, 47, 58, 60),
        ];
        for (version, lock, thread, thread_id, frame, code, object, kind) in starts {
            let mut memory = process();
            memory.put(RUNTIME, b"xdebugpy");
            memory.put_word(RUNTIME + 0x800, 0x2000);
            memory.put_word(0x3800, 0x5000);
            let words = [
                (1, version << 16 | 0xf0),
                (2, 0),
                (5, 0x800),
                (8, 0),
                (9, 72),
                (lock, 384),
                (thread + 2, 8),
                (thread + 3, 16),
                (thread + 4, 0x800),
                (thread + thread_id, 136),
                (frame + 1, 8),
                (frame + 2, 0),
                (frame + 3, 56),
                (frame + 5, 70),
                (code + 1, 112),
                (code + 3, 128),
                (code + 4, 136),
                (code + 5, 68),
                (code + 9, 192),
                (object + 1, 8),
                (kind + 1, 24),
            ];
            for (place, word) in words {
                memory.put_word(RUNTIME + 8 * place, word);
            }
            let python = Python::at(RUNTIME, None, &memory).unwrap();
            let (_, state) = Python::state_at(POINTER, &python.threads(&memory)).unwrap();
            let frames = python.frames(state, &memory).into_iter();
            let places = frames.filter_map(|frame| python.place_of(&frame, &memory));
            let names: Vec<_> = places.map(|place| place.function).collect();
            assert_eq!(names, ["take", "run"], "{version:#x}");
            memory.put_word(RUNTIME + 16, 1);
            let refused = Python::at(RUNTIME, None, &memory).unwrap_err();
            assert_eq!(refused.to_string(), "free-threaded Python");
        }
    }

    #[test]
    fn what_is_no_code_has_no_name() {
        let mut memory = process();
        memory.put(0xe000, b"dict\0");
        assert_eq!(names(&memory), []);
        let mut memory = process();
        memory.put_word(0xc000 + 16, u64::MAX);
        assert_eq!(names(&memory).len(), 1);
    }

    #[test]
    fn circles_have_an_end() {
        let mut memory = process();
        memory.put_word(0x5100 + 8, 0x5000);
        memory.put_word(THREAD + 8, THREAD);
        memory.put_word(0x2000, 0x2000);
        assert_eq!(names(&memory).len(), MOST_FRAMES);
        assert_eq!(python(&memory).threads(&memory).len(), 1);
    }

    #[test]
    fn a_version_that_is_not_known_is_told() {
        let memory = process();
        let unknown = |version| {
            Python::at(RUNTIME, version, &memory)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(unknown(Some(0x030a_0bf0)), "Python 3.10");
        assert_eq!(unknown(None), "a Python that does not tell its version");
        let mut memory = process();
        memory.put(RUNTIME, b"xdebugpy");
        memory.put_word(RUNTIME + 8, 0x0310_00f0);
        let published = Python::at(RUNTIME, None, &memory).unwrap_err();
        assert_eq!(published.to_string(), "Python 3.16");
    }

    #[test]
    fn any_memory_is_read_to_an_end() {
        for seed in 0..2_000 {
            let memory = Wild(seed);
            for version in [0x030b_07f0, 0x030c_01f0] {
                let python = Python::at(seed << 12, Some(version), &memory).unwrap();
                assert!(python.threads(&memory).len() <= MOST_THREADS);
                let frames = python.frames(seed << 20, &memory);
                assert!(frames.len() <= MOST_FRAMES);
                let holder = python.functions_of_holder(seed << 16, &memory);
                assert!(holder.len() <= MOST_FRAMES);
                let _ = python.lock_at(seed, seed << 8, &memory);
                for frame in &frames {
                    let _ = python.place_of(frame, &memory);
                }
            }
        }
    }
}
