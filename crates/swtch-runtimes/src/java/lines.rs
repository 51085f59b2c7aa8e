//! The source file and line of a place in a method.

use super::layout::JavaLayout;
use super::numbers::{CodedNumbers, Coding};
use crate::ProcessMemory;

/// The most lines of a method.
const MOST_LINES: usize = 1 << 14;

/// What says that a method has a list of lines.
const HAS_LINES: u8 = 1;

/// The byte after which both steps are written in full.
const LONG_STEP: u8 = 0xff;

/// Where lists of lines are, as offsets from the part of a method that does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lines {
    flags: u64,
    bytecodes: u64,
    bytecodes_size: u64,
    coding: Coding,
}

impl Lines {
    /// Those of a virtual machine.
    pub fn of(layout: &JavaLayout, coding: Coding) -> Option<Self> {
        let field = |name| layout.field(&[("ConstMethod", name)]);
        Some(Self {
            flags: field("_flags._flags").or_else(|| field("_flags"))?,
            bytecodes: layout.size("ConstMethod")?,
            bytecodes_size: field("_code_size")?,
            coding,
        })
    }

    /// The line of a byte code of the method whose fixed part is at `fixed`.
    pub fn line(&self, fixed: u64, bytecode: u64, memory: &impl ProcessMemory) -> Option<u32> {
        let bytecodes = self.bytecodes_of(fixed, memory)?;
        let length = bytecodes.end.wrapping_sub(bytecodes.start);
        let mut flags = [0];
        memory
            .read(fixed.wrapping_add(self.flags), &mut flags)
            .then_some(())?;
        (bytecode < length && flags[0] & HAS_LINES != 0).then_some(())?;
        // Each line goes from its byte code to the next; they need not be in order.
        let mut best: Option<(i64, i64)> = None;
        let mut numbers = CodedNumbers::new(bytecodes.end, self.coding, memory);
        let wanted = i64::try_from(bytecode).ok()?;
        let (mut at, mut line) = (0_i64, 0_i64);
        for _ in 0..MOST_LINES {
            let (step, lines) = match numbers.byte()? {
                0 => break,
                LONG_STEP => (numbers.next_signed()?, numbers.next_signed()?),
                step => (i64::from(step >> 3), i64::from(step & 7)),
            };
            (at, line) = (at.wrapping_add(step), line.wrapping_add(lines));
            if at <= wanted && best.is_none_or(|(best, _)| best <= at) {
                best = Some((at, line));
            }
        }
        u32::try_from(best?.1).ok().filter(|line| *line > 0)
    }

    /// Which byte code of a method the address of one is.
    pub fn bytecode_at(
        &self,
        fixed: u64,
        address: u64,
        memory: &impl ProcessMemory,
    ) -> Option<u64> {
        let bytecodes = self.bytecodes_of(fixed, memory)?;
        let is_in = bytecodes.contains(&address);
        is_in.then(|| address.wrapping_sub(bytecodes.start))
    }

    /// Where its byte codes are; the list of lines follows.
    fn bytecodes_of(
        &self,
        fixed: u64,
        memory: &impl ProcessMemory,
    ) -> Option<std::ops::Range<u64>> {
        let size = memory.short(fixed.wrapping_add(self.bytecodes_size))?;
        let start = fixed.wrapping_add(self.bytecodes);
        Some(start..start.checked_add(u64::from(size))?)
    }
}
