//! The walk: from the innermost frame outwards, one step after the other.

use std::cell::Cell;

use crate::registers::abi::FRAME_POINTER;
use crate::registers::{Registers, without_signature};
use crate::tables::{CallerFrame, UnwindScratch, UnwindTables};

/// A copy of a part of a stack.
#[derive(Clone, Copy, Debug)]
pub struct StackCopy<'a> {
    /// Address of the first byte in the stack.
    pub start: u64,
    /// Its bytes.
    pub bytes: &'a [u8],
}

impl StackCopy<'_> {
    /// The word at an address; `None` outside of the copy.
    pub fn word(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let bytes = self.bytes.get(offset..offset.checked_add(8)?)?;
        Some(u64::from_ne_bytes(*bytes.first_chunk()?))
    }
}

/// The code that a thread runs.
pub trait StackCode {
    /// Says what is at an address, and calls `look` with the tables of the file that it is in, if it is in one,
    /// and with the number to add to an address that the tables state.
    fn at(&self, address: u64, look: &mut dyn FnMut(&UnwindTables<'_>, u64)) -> CodeAt;

    /// Returns true if the instruction before an address is a call. Where this is not known, no caller is looked for
    /// beyond code without tables.
    fn is_after_call(&self, _address: u64) -> bool {
        false
    }

    /// How the frame of code at an address that no tables are of leads to its caller's, where its runtime tells it.
    fn runtime_frame(&self, _address: u64) -> Option<RuntimeFrame> {
        None
    }

    /// Returns true if two addresses are in code of one file.
    fn is_one_file(&self, _one: u64, _other: u64) -> bool {
        false
    }
}

/// How a frame of code that a runtime has made leads to its caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeFrame {
    /// It is so many bytes large, with the return address at its end, and below that the caller's frame pointer.
    Sized(u64),
    /// The frame pointer leads to the caller, whose stack pointer lies in the word below (the interpreter of `HotSpot`).
    Interpreted,
}

/// What is at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CodeAt {
    /// Code, of a file or made while the program runs.
    Code,
    /// Code of a function that has no caller by the rules of its language, whatever its tables say.
    Start,
    /// No code: what led there was no return address.
    Nothing,
}

/// The functions of a stack that have not returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Addresses in code, the innermost first. Each lies inside of the call that has not returned.
    pub addresses: Vec<u64>,
    /// The frame pointer in each of them, where it is known.
    pub frame_pointers: Vec<Option<u64>>,
    /// Why there are no more.
    pub end: ChainEnd,
    /// True if a part of the code has neither tables nor frame pointers, or the frame pointer was not known, and the caller
    /// of that part was found on the stack: what lies there is a return address, from which tables lead on as far as there
    /// are any.
    pub is_guessed: bool,
}

/// How a chain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainEnd {
    /// The last address is in the function that the thread or the coroutine began with.
    Root,
    /// The stack goes on beyond the copy.
    Cut,
    /// The code has no tables, and keeps no frame pointer.
    NoTables,
    /// A register or a word that the tables refer to is not known, or what they led to is no caller.
    Unknown,
    /// There are more frames than were asked for.
    TooDeep,
}

/// Walks outwards, over `most` frames at most.
pub fn chain(
    registers: Registers,
    stack: StackCopy<'_>,
    code: &impl StackCode,
    most: usize,
) -> Chain {
    let mut walk = StackWalk {
        code,
        stack,
        is_cut: Cell::new(false),
        stuck: None,
        scratch: UnwindScratch::default(),
    };
    // The address to look up in a caller is one before the return address, which may belong to the next function.
    let (mut frames, mut end) = walk.outwards(registers, registers.pc, most);
    let mut is_guessed = false;
    let is_open = matches!(end, ChainEnd::NoTables | ChainEnd::Unknown);
    if let Some((depth, frame)) = walk.stuck.filter(|_| is_open) {
        let from = frames.get(depth).map_or(registers.pc, |frame| frame.0);
        let left = most.saturating_sub(depth + 1);
        let found = walk.found_on_stack(from, &frame, left);
        let is_longer = |callers: &Frames| depth + 1 + callers.len() >= frames.len();
        if let Some((callers, found_end)) = found.filter(|(callers, _)| is_longer(callers)) {
            frames.truncate(depth + 1);
            frames.extend(callers);
            (end, is_guessed) = (found_end, true);
        }
    }
    let (addresses, frame_pointers) = frames.into_iter().unzip();
    Chain {
        addresses,
        frame_pointers,
        end,
        is_guessed,
    }
}

/// A step outwards.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and mostly the large one"
)]
enum WalkStep {
    To(CallingFrame),
    Ended(ChainEnd),
    NoCode,
}

struct CallingFrame {
    registers: Registers,
    was_interrupted: bool,
}

impl CallingFrame {
    /// An address inside of the function that called.
    const fn inside(&self) -> u64 {
        match self.was_interrupted {
            true => self.registers.pc,
            false => self.registers.pc.saturating_sub(1),
        }
    }

    /// Stacks grow downwards, so a caller's frame lies above; a signal may have its own stack. On processors that
    /// keep the return address in a register the innermost function may have no frame.
    fn is_beyond(&self, frame: &Registers, is_first: bool) -> bool {
        self.was_interrupted
            || self.registers.stack_pointer() > frame.stack_pointer()
            || (is_first
                && self.registers.stack_pointer() == frame.stack_pointer()
                && self.registers.pc != frame.pc)
    }
}

struct StackWalk<'a, C> {
    code: &'a C,
    stack: StackCopy<'a>,
    /// True once a word beyond the end of the copy was asked for.
    is_cut: Cell<bool>,
    /// The first frame of code without tables, or of which tables need a frame pointer that is not known, by its place in
    /// the chain.
    stuck: Option<(usize, Registers)>,
    scratch: UnwindScratch,
}

/// An address inside of each function, with the frame pointer there.
type Frames = Vec<(u64, Option<u64>)>;

/// How far up the stack the caller of code without tables is looked for: functions of a C library that wait are small.
const MOST_SCANNED: u64 = 512;

impl<C: StackCode> StackWalk<'_, C> {
    /// The addresses from a frame on, and how they end.
    fn outwards(&mut self, from: Registers, at: u64, most: usize) -> (Frames, ChainEnd) {
        let mut frames = Frames::new();
        let (mut frame, mut inside) = (from, at);
        let end = loop {
            if frames.len() == most {
                break ChainEnd::TooDeep;
            }
            let this = (inside, frame.frame_pointer());
            let caller = match self.caller(inside, &frame, frames.len()) {
                WalkStep::NoCode if frames.is_empty() => {
                    // A thread is where it is: in memory that is no code any more, or not yet known.
                    frames.push(this);
                    break ChainEnd::NoTables;
                }
                WalkStep::NoCode => break ChainEnd::Unknown,
                WalkStep::Ended(end) => {
                    frames.push(this);
                    break end;
                }
                WalkStep::To(caller) => caller,
            };
            frames.push(this);
            if !caller.is_beyond(&frame, frames.len() == 1) {
                break ChainEnd::Unknown;
            }
            inside = caller.inside();
            frame = caller.registers;
        };
        (frames, end)
    }

    /// The callers of a frame at `from` of which nothing tells where its own caller is: the first word on the stack that
    /// is a return address, and from which tables lead on, from call to call, to where the thread began, or to further
    /// code without tables. If that is in the same file, it is the C library's, which also starts threads.
    fn found_on_stack(
        &mut self,
        from: u64,
        frame: &Registers,
        most: usize,
    ) -> Option<(Frames, ChainEnd)> {
        let pointer = frame.stack_pointer()?;
        (0..MOST_SCANNED).step_by(8).find_map(|above| {
            let place = pointer.checked_add(above)?;
            let address = without_signature(self.stack.word(place)?);
            self.code.is_after_call(address).then_some(())?;
            let mut caller = frame.of_caller(address, place.checked_add(8)?);
            if frame.lacks_frame_pointer() {
                // Where frames have one, it lies below the return address.
                let below = place
                    .checked_sub(8)
                    .and_then(|below| self.stack.word(below));
                caller.set(FRAME_POINTER, below);
            }
            self.stuck = None;
            let (mut callers, mut end) = self.outwards(caller, address - 1, most);
            match self.stuck {
                None if end == ChainEnd::Root => {}
                None | Some((0, _)) => return None,
                Some((last, _)) => {
                    callers.truncate(last + 1);
                    let is_start = self.code.is_one_file(from, callers.last()?.0);
                    end = if is_start {
                        ChainEnd::Root
                    } else {
                        ChainEnd::NoTables
                    };
                }
            }
            let mut returns = callers.iter().map(|(inside, _)| inside + 1);
            let are_calls = returns.all(|address| self.code.is_after_call(address));
            are_calls.then_some((callers, end))
        })
    }

    fn caller(&mut self, inside: u64, frame: &Registers, depth: usize) -> WalkStep {
        let (stack, is_cut) = (self.stack, &self.is_cut);
        let word = |address: u64| {
            let word = stack.word(address);
            is_cut.set(is_cut.get() || (word.is_none() && address >= stack.start));
            word
        };
        let scratch = &mut self.scratch;
        let mut by_tables = None;
        let code = self.code.at(inside, &mut |tables, moved_by| {
            by_tables = tables.caller(inside.wrapping_sub(moved_by), frame, &word, scratch);
        });
        match code {
            CodeAt::Nothing => return WalkStep::NoCode,
            CodeAt::Start => return WalkStep::Ended(ChainEnd::Root),
            CodeAt::Code => {}
        }
        match by_tables {
            Some(CallerFrame::Found {
                registers,
                was_interrupted,
            }) => WalkStep::To(CallingFrame {
                registers,
                was_interrupted,
            }),
            Some(CallerFrame::Root) => WalkStep::Ended(ChainEnd::Root),
            Some(CallerFrame::Unknown) if is_cut.get() => WalkStep::Ended(ChainEnd::Cut),
            Some(CallerFrame::Unknown) => {
                if frame.lacks_frame_pointer() {
                    self.stuck.get_or_insert((depth, *frame));
                }
                WalkStep::Ended(ChainEnd::Unknown)
            }
            None => {
                let made = self.code.runtime_frame(inside);
                let made = made.and_then(|made| frame.caller_of_runtime(made, &word));
                if let Some(registers) = made {
                    return WalkStep::To(CallingFrame {
                        registers,
                        was_interrupted: false,
                    });
                }
                self.stuck.get_or_insert((depth, *frame));
                match frame.caller_by_frame_pointer(&word) {
                    Some(caller) if caller.pc == 0 => WalkStep::Ended(ChainEnd::Root),
                    Some(registers) => WalkStep::To(CallingFrame {
                        registers,
                        was_interrupted: false,
                    }),
                    // A register that points beyond the copy need not be a frame pointer.
                    None => WalkStep::Ended(ChainEnd::NoTables),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::REGISTERS;

    /// Two functions; what lies at the stack pointer of the outer one is an address in code by chance.
    struct StartsAt(u64);

    impl StackCode for StartsAt {
        fn at(&self, address: u64, _: &mut dyn FnMut(&UnwindTables<'_>, u64)) -> CodeAt {
            match address {
                address if address / 0x100 == self.0 / 0x100 => CodeAt::Start,
                0x1000..0x2000 => CodeAt::Code,
                _ => CodeAt::Nothing,
            }
        }
    }

    #[test]
    fn a_chain_ends_with_a_function_that_has_no_caller() {
        let words: [u64; 4] = [0x7010, 0x1210, 0, 0x1310];
        let bytes = words.map(u64::to_ne_bytes).concat();
        let stack = StackCopy {
            start: 0x7000,
            bytes: &bytes,
        };
        let mut values = [None; REGISTERS];
        values[usize::from(crate::STACK_POINTER)] = Some(0x7000);
        let mut registers = Registers::new(0x1110, values);
        registers.set(crate::registers::abi::FRAME_POINTER, Some(0x7000));
        let found = chain(registers, stack, &StartsAt(0x1200), 8);
        assert_eq!(
            (found.addresses, found.end),
            (vec![0x1110, 0x120f], ChainEnd::Root)
        );
        let found = chain(registers, stack, &StartsAt(0x9000), 8);
        assert_eq!(found.addresses, [0x1110, 0x120f, 0x130f]);
    }

    /// Code that a runtime has made: at 0x1100 with frames of 32 bytes, at 0x1200 its interpreter.
    struct Made;

    impl StackCode for Made {
        fn at(&self, address: u64, _: &mut dyn FnMut(&UnwindTables<'_>, u64)) -> CodeAt {
            match address {
                0x1300..0x1400 => CodeAt::Start,
                0x1000..0x2000 => CodeAt::Code,
                _ => CodeAt::Nothing,
            }
        }

        fn runtime_frame(&self, address: u64) -> Option<RuntimeFrame> {
            match address {
                0x1100..0x1200 => Some(RuntimeFrame::Sized(32)),
                0x1200..0x1300 => Some(RuntimeFrame::Interpreted),
                _ => None,
            }
        }
    }

    /// ```text
    ///   7000  compiled: 32 bytes, at their end the interpreter's frame pointer and the return address
    ///   7020  interpreted: the frame pointer is at 7038, below it lies the stack pointer of the caller
    ///   7050  where the thread began
    /// ```
    #[test]
    fn frames_of_a_runtimes_code_lead_to_their_callers() {
        let words: [u64; 11] = [1, 2, 0x7038, 0x1210, 0, 0, 0x7050, 0x77, 0x1310, 0, 0];
        let bytes = words.map(u64::to_ne_bytes).concat();
        let stack = StackCopy {
            start: 0x7000,
            bytes: &bytes,
        };
        let registers = Registers::at(0x1110, 0x7000);
        let found = chain(registers, stack, &Made, 8);
        assert_eq!(
            (found.addresses, found.end),
            (vec![0x1110, 0x120f, 0x130f], ChainEnd::Root)
        );
        assert_eq!(found.frame_pointers, [None, Some(0x7038), Some(0x77)]);
    }
}
