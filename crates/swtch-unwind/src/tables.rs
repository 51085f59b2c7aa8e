//! One step outwards: from the registers of a frame to those of its caller, by the tables of the file that holds
//! its code.

use std::ops::Range;

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, DebugFrame, EhFrame, EhFrameHdr, Encoding, EndianSlice,
    FrameDescriptionEntry, NativeEndian, Register, RegisterRule, UnwindContext, UnwindSection,
    UnwindTableRow,
};

use crate::expression::{KnownOfFrame, value_of};
use crate::registers::{Registers, STACK_POINTER, abi, without_signature};

type Bytes<'a> = EndianSlice<'a, NativeEndian>;

/// A part of a file, with the address at which the file wants it.
#[derive(Clone, Copy, Debug)]
pub struct TableSection<'a> {
    /// Address of the first byte.
    pub address: u64,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// The unwind tables of a file. All addresses are as one side has them: as the file states them, or as they
/// are in memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct UnwindTables<'a> {
    /// `.eh_frame_hdr`, the index of the next.
    pub index: Option<TableSection<'a>>,
    /// `.eh_frame`; `None` if there is none, or if it follows the index in the same bytes, as linkers arrange them.
    pub frames: Option<TableSection<'a>>,
    /// Tables without an index of their own: `.debug_frame`, and an `.eh_frame` of a program that was linked
    /// without `.eh_frame_hdr`.
    pub listed: Option<ListedFrames<'a>>,
    /// Address of `.text`, if it is known.
    pub text: Option<u64>,
    /// Address of `.got`, likewise.
    pub got: Option<u64>,
}

/// Tables that were searched for all functions once.
#[derive(Clone, Copy, Debug)]
pub struct ListedFrames<'a> {
    /// The section.
    pub section: TableSection<'a>,
    /// Its functions.
    pub list: &'a FrameList,
}

/// The functions of a section of tables, by address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameList {
    kind: SectionKind,
    functions: Vec<ListedFunction>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SectionKind {
    ForExceptions,
    ForDebuggers,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ListedFunction {
    start: u64,
    end: u64,
    /// Place of its entry in the section.
    offset: usize,
}

/// The caller of a frame, or why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and mostly the large one"
)]
pub enum CallerFrame {
    /// The caller.
    Found {
        /// Its registers.
        registers: Registers,
        /// True if it was interrupted by a signal rather than making a call: then `pc` is the next instruction, and
        /// else the one after the call, which may belong to another function already.
        was_interrupted: bool,
    },
    /// There is no caller: the stack begins here.
    Root,
    /// It hangs on something that is not known.
    Unknown,
}

/// Memory in which rules are evaluated, kept between steps.
#[derive(Debug, Default)]
pub struct UnwindScratch(UnwindContext<usize>);

impl FrameList {
    /// Lists the functions of an `.eh_frame` without an index; what is damaged is left out.
    pub fn of_eh_frame(section: TableSection<'_>) -> Self {
        let bases = BaseAddresses::default().set_eh_frame(section.address);
        Self::of(&eh_frame(section.bytes), &bases, SectionKind::ForExceptions)
    }

    /// Lists the functions of a `.debug_frame`; what is damaged is left out.
    pub fn of_debug_frame(bytes: &[u8]) -> Self {
        let bases = BaseAddresses::default();
        Self::of(&debug_frame(bytes), &bases, SectionKind::ForDebuggers)
    }

    /// How much memory the list takes.
    pub const fn bytes(&self) -> usize {
        self.functions.len() * size_of::<ListedFunction>()
    }

    fn of<'a, S>(section: &S, bases: &BaseAddresses, kind: SectionKind) -> Self
    where
        S: UnwindSection<Bytes<'a>>,
        S::Offset: gimli::UnwindOffset<usize>,
    {
        let mut functions = Vec::new();
        let mut entries = section.entries(bases);
        while let Ok(Some(entry)) = entries.next() {
            let CieOrFde::Fde(partial) = entry else {
                continue;
            };
            let Ok(entry) = partial.parse(S::cie_from_offset) else {
                continue;
            };
            let start = entry.initial_address();
            // What the linker has thrown away has no address any more.
            if start != 0 && entry.len() > 0 {
                functions.push(ListedFunction {
                    start,
                    end: start.saturating_add(entry.len()),
                    offset: entry.offset(),
                });
            }
        }
        functions.sort_unstable_by_key(|function| (function.start, function.offset));
        Self { kind, functions }
    }

    /// Where the function begins and ends that an address is in.
    pub fn function_at(&self, address: u64) -> Option<Range<u64>> {
        self.listed_at(address)
            .map(|function| function.start..function.end)
    }

    fn offset_of(&self, address: u64) -> Option<usize> {
        self.listed_at(address).map(|function| function.offset)
    }

    fn listed_at(&self, address: u64) -> Option<&ListedFunction> {
        let next = self.functions.partition_point(|one| one.start <= address);
        let function = self.functions.get(next.checked_sub(1)?)?;
        (address < function.end).then_some(function)
    }

    /// A list of functions without entries, for tests.
    #[cfg(test)]
    pub(crate) fn of_ranges(functions: &[Range<u64>]) -> Self {
        let functions = functions.iter().map(|range| ListedFunction {
            start: range.start,
            end: range.end,
            offset: 0,
        });
        Self {
            kind: SectionKind::ForExceptions,
            functions: functions.collect(),
        }
    }
}

fn eh_frame(bytes: &[u8]) -> EhFrame<Bytes<'_>> {
    let mut section = EhFrame::new(bytes, NativeEndian);
    section.set_vendor(abi::VENDOR);
    section
}

fn debug_frame(bytes: &[u8]) -> DebugFrame<Bytes<'_>> {
    let mut section = DebugFrame::new(bytes, NativeEndian);
    section.set_address_size(8);
    section.set_vendor(abi::VENDOR);
    section
}

impl UnwindTables<'_> {
    /// The caller of a frame. `inside` is an address inside of the function, `word` reads the stack. `None`
    /// when the tables say nothing of that address, as damaged ones do.
    pub fn caller(
        &self,
        inside: u64,
        frame: &Registers,
        word: &dyn Fn(u64) -> Option<u64>,
        scratch: &mut UnwindScratch,
    ) -> Option<CallerFrame> {
        let known = KnownOfFrame { frame, word };
        self.by_index(inside, known, scratch)
            .or_else(|| self.by_list(inside, known, scratch))
    }

    fn by_index(
        &self,
        inside: u64,
        known: KnownOfFrame<'_>,
        scratch: &mut UnwindScratch,
    ) -> Option<CallerFrame> {
        let section = self.index?;
        let bases = self.bases().set_eh_frame_hdr(section.address);
        let index = EhFrameHdr::new(section.bytes, NativeEndian);
        let index = index.parse(&bases, 8).ok()?;
        let gimli::Pointer::Direct(stated) = index.eh_frame_ptr() else {
            return None;
        };
        let frames = match self.frames {
            Some(frames) => frames,
            None => {
                let offset = usize::try_from(stated.checked_sub(section.address)?).ok()?;
                TableSection {
                    address: stated,
                    bytes: section.bytes.get(offset..)?,
                }
            }
        };
        let bases = bases.set_eh_frame(frames.address);
        let frames = eh_frame(frames.bytes);
        // What `fde_for_address` does, which takes for granted that the section begins before its entries.
        let found = index.table()?.lookup(inside, &bases).ok()?.direct().ok()?;
        let offset = usize::try_from(found.checked_sub(stated)?).ok()?;
        let entry = frames
            .fde_from_offset(&bases, offset.into(), EhFrame::cie_from_offset)
            .ok()
            .filter(|entry| entry.contains(inside))?;
        by_entry(&entry, &frames, &bases, inside, known, scratch)
    }

    fn by_list(
        &self,
        inside: u64,
        known: KnownOfFrame<'_>,
        scratch: &mut UnwindScratch,
    ) -> Option<CallerFrame> {
        let ListedFrames { section, list } = self.listed?;
        let offset = list.offset_of(inside)?;
        match list.kind {
            SectionKind::ForExceptions => {
                let bases = self.bases().set_eh_frame(section.address);
                let frames = eh_frame(section.bytes);
                let entry = frames
                    .fde_from_offset(&bases, offset.into(), EhFrame::cie_from_offset)
                    .ok()?;
                by_entry(&entry, &frames, &bases, inside, known, scratch)
            }
            SectionKind::ForDebuggers => {
                let bases = self.bases();
                let frames = debug_frame(section.bytes);
                let entry = frames
                    .fde_from_offset(&bases, offset.into(), DebugFrame::cie_from_offset)
                    .ok()?;
                by_entry(&entry, &frames, &bases, inside, known, scratch)
            }
        }
    }

    fn bases(&self) -> BaseAddresses {
        let bases = BaseAddresses::default();
        let bases = match self.text {
            Some(text) => bases.set_text(text),
            None => bases,
        };
        match self.got {
            Some(got) => bases.set_got(got),
            None => bases,
        }
    }
}

/// Applies the rules that an entry has for an address.
fn by_entry<'a, S>(
    entry: &FrameDescriptionEntry<Bytes<'a>>,
    section: &S,
    bases: &BaseAddresses,
    inside: u64,
    known: KnownOfFrame<'_>,
    scratch: &mut UnwindScratch,
) -> Option<CallerFrame>
where
    S: UnwindSection<Bytes<'a>>,
{
    let row = entry
        .unwind_info_for_address(section, bases, &mut scratch.0, inside)
        .ok()?;
    let rules = Rules {
        row,
        section,
        encoding: entry.cie().encoding(),
        known,
    };
    Some(rules.apply(entry.is_signal_trampoline()))
}

/// The rules for one address.
struct Rules<'a, S> {
    row: &'a UnwindTableRow<usize>,
    section: &'a S,
    encoding: Encoding,
    known: KnownOfFrame<'a>,
}

impl<'bytes, S: UnwindSection<Bytes<'bytes>>> Rules<'_, S> {
    fn apply(&self, is_signal_frame: bool) -> CallerFrame {
        let return_rule = self.row.register(Register(abi::RETURN_ADDRESS));
        let is_computed = matches!(self.row.cfa(), CfaRule::Expression(_));
        // A coroutine's root and the kernel's return from a signal handler both say that they are no calls, and
        // describe the interrupted frame by an expression; only the latter finds the registers that way, too.
        let is_coroutine = matches!(return_rule, Some(RegisterRule::Offset(_)));
        let is_root = matches!(return_rule, Some(RegisterRule::Undefined))
            || (is_signal_frame && is_computed && is_coroutine);
        if is_root {
            return CallerFrame::Root;
        }
        let registers = self.outer().and_then(|outer| self.caller(outer));
        match registers {
            // The kernel and most runtimes put a 0 where the first function would return to.
            Some(registers) if registers.pc == 0 => CallerFrame::Root,
            Some(registers) => CallerFrame::Found {
                registers,
                was_interrupted: is_signal_frame,
            },
            None => CallerFrame::Unknown,
        }
    }

    /// The address that the rules of all registers refer to: the stack pointer before the call.
    fn outer(&self) -> Option<u64> {
        match self.row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => {
                self.known.frame.get(*register)?.checked_add_signed(*offset)
            }
            CfaRule::Expression(expression) => {
                value_of(expression, self.section, self.encoding, None, self.known)
            }
        }
    }

    /// The caller's registers; `None` if it is not known where it goes on.
    fn caller(&self, outer: u64) -> Option<Registers> {
        let frame = self.known.frame;
        let mut caller = Registers::at(0, outer);
        for register in abi::KEPT {
            caller.set(*register, frame.get(Register(*register)));
        }
        // Where no register holds it there is no caller without a rule.
        let in_register = frame.get(Register(abi::RETURN_ADDRESS));
        let mut return_address = in_register.filter(|_| abi::IS_IN_REGISTER);
        for (register, rule) in self.row.registers() {
            let value = self.by_rule(*register, rule, outer);
            match register.0 {
                abi::RETURN_ADDRESS => return_address = value,
                // It may differ only where the kernel made the frame: the interrupted function has its stack elsewhere.
                STACK_POINTER if *rule == RegisterRule::SameValue => {}
                STACK_POINTER => caller.set(STACK_POINTER, value),
                other => caller.set(other, value),
            }
        }
        caller.pc = without_signature(return_address?);
        Some(caller)
    }

    fn by_rule(&self, register: Register, rule: &RegisterRule<usize>, outer: u64) -> Option<u64> {
        let value = |expression| {
            value_of(
                expression,
                self.section,
                self.encoding,
                Some(outer),
                self.known,
            )
        };
        match rule {
            RegisterRule::SameValue => self.known.frame.get(register),
            RegisterRule::Offset(offset) => (self.known.word)(outer.checked_add_signed(*offset)?),
            RegisterRule::ValOffset(offset) => outer.checked_add_signed(*offset),
            RegisterRule::Register(other) => self.known.frame.get_or_pc(*other),
            RegisterRule::Expression(expression) => (self.known.word)(value(expression)?),
            RegisterRule::ValExpression(expression) => value(expression),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Damaged tables say nothing.
    #[test]
    fn what_is_not_known_gives_no_caller() {
        let registers = Registers::at(0x1000, 0x7000);
        let no_stack = |_: u64| None;
        for bytes in [&[][..], &[1, 0x1b, 3, 0x3b], &[0xff; 64]] {
            let section = TableSection {
                address: 0x2000,
                bytes,
            };
            let lists = [
                FrameList::of_eh_frame(section),
                FrameList::of_debug_frame(bytes),
            ];
            for list in lists {
                let tables = UnwindTables {
                    index: Some(section),
                    listed: Some(ListedFrames {
                        section,
                        list: &list,
                    }),
                    ..UnwindTables::default()
                };
                let mut scratch = UnwindScratch::default();
                let found = tables.caller(0x1000, &registers, &no_stack, &mut scratch);
                assert_eq!(found, None);
            }
        }
    }
    /// An index whose entry lies before the section that it is an index of.
    #[test]
    fn an_entry_before_its_section_is_none() {
        let numbers = |words: &[u64]| words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        // Version 1; 8 bytes for the section's address, 4 for the number of entries, 8 for each of the table's.
        let mut bytes = vec![1, 0x04, 0x03, 0x04];
        let section: Vec<u8> = numbers(&[0x9000]);
        let table: Vec<u8> = numbers(&[0x1000, 0x100]);
        bytes.extend(section);
        bytes.extend(1_u32.to_ne_bytes());
        bytes.extend(table);
        let tables = UnwindTables {
            index: Some(TableSection {
                address: 0x2000,
                bytes: &bytes,
            }),
            frames: Some(TableSection {
                address: 0x9000,
                bytes: &[0; 16],
            }),
            ..UnwindTables::default()
        };
        let registers = Registers::at(0x1000, 0x7000);
        let found = tables.caller(0x1000, &registers, &|_| None, &mut UnwindScratch::default());
        assert_eq!(found, None);
    }
}
