//! The walk: from the innermost frame outwards, one step after the other.

use std::cell::Cell;

use crate::registers::Registers;
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
    /// Why there are no more.
    pub end: ChainEnd,
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
        scratch: UnwindScratch::default(),
    };
    let mut addresses = Vec::new();
    let mut frame = registers;
    // The address to look up, one before the return address, which may belong to the next function.
    let mut inside = registers.pc;
    let end = loop {
        if addresses.len() == most {
            break ChainEnd::TooDeep;
        }
        let caller = match walk.caller(inside, &frame) {
            WalkStep::NoCode if addresses.is_empty() => {
                // A thread is where it is: in memory that is no code any more, or not yet known.
                addresses.push(inside);
                break ChainEnd::NoTables;
            }
            WalkStep::NoCode => break ChainEnd::Unknown,
            WalkStep::Ended(end) => {
                addresses.push(inside);
                break end;
            }
            WalkStep::To(caller) => caller,
        };
        addresses.push(inside);
        if !caller.is_beyond(&frame, addresses.len() == 1) {
            break ChainEnd::Unknown;
        }
        inside = caller.inside();
        frame = caller.registers;
    };
    Chain { addresses, end }
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
    scratch: UnwindScratch,
}

impl<C: StackCode> StackWalk<'_, C> {
    fn caller(&mut self, inside: u64, frame: &Registers) -> WalkStep {
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
            Some(CallerFrame::Unknown) => WalkStep::Ended(ChainEnd::Unknown),
            None => match frame.caller_by_frame_pointer(&word) {
                Some(caller) if caller.pc == 0 => WalkStep::Ended(ChainEnd::Root),
                Some(registers) => WalkStep::To(CallingFrame {
                    registers,
                    was_interrupted: false,
                }),
                // A register that points beyond the copy need not be a frame pointer.
                None => WalkStep::Ended(ChainEnd::NoTables),
            },
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
}
