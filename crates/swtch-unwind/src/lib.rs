//! One step outwards on a stack: from the registers of a frame to those of its caller, by the unwind rules in
//! `.eh_frame`, which compilers write for exceptions, so that no frame pointers are needed.
//!
//! ```text
//! registers of a frame, as far as they are known ─┐
//! the tables of the file that holds its code     ─┼─▶ UnwindTables::caller ─▶ CallerFrame
//! a way to read words of the stack               ─┘
//! ```
//!
//! Two rooms walk with it: the recorder, on stacks of other processes, whose registers are not known but for
//! two (`swtch-record`), and the stall detector, on a copy of a stack of its own process (`swtch-fiber`). What
//! hangs on a register that is not known is not found: a chain may end early, and holds no caller that is none.
//!
//! Why not framehop: it takes the frame pointer for known, and follows it where a function has no entry in the
//! tables.
//!
//! Pure: no memory is read but what is handed in.
#![forbid(unsafe_code)]

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, NativeEndian, Register, RegisterRule,
    UnwindContext, UnwindSection as _, UnwindTableRow,
};

/// The differences between processors. Registers are numbered as in DWARF; `KEPT` are those that a called function
/// leaves as they were.
#[cfg(not(target_arch = "aarch64"))]
mod abi {
    /// Number of registers that DWARF counts (x86-64 psABI, figure 3.36).
    pub const REGISTERS: usize = 17;
    pub const FRAME_POINTER: u16 = 6;
    /// DWARF's number of the stack pointer.
    pub const STACK_POINTER: u16 = 7;
    /// A number without a register.
    pub const RETURN_ADDRESS: u16 = 16;
    pub const IS_IN_REGISTER: bool = false;
    /// System V ABI for AMD64, 3.2.1.
    pub const KEPT: &[u16] = &[3, 6, 12, 13, 14, 15];
    /// Whose DWARF instructions beyond the common ones the tables have: nobody's.
    pub const VENDOR: gimli::Vendor = gimli::Vendor::Default;
    /// Bits of a return address: they are not signed.
    pub const ADDRESS_BITS: u64 = u64::MAX;
}

#[cfg(target_arch = "aarch64")]
mod abi {
    /// Number of registers that DWARF counts (DWARF for the Arm 64-bit Architecture, 4.1).
    pub const REGISTERS: usize = 32;
    pub const FRAME_POINTER: u16 = 29;
    /// DWARF's number of the stack pointer.
    pub const STACK_POINTER: u16 = 31;
    pub const RETURN_ADDRESS: u16 = 30;
    pub const IS_IN_REGISTER: bool = true;
    /// AAPCS64, 6.1.1.
    pub const KEPT: &[u16] = &[19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29];
    /// The instruction that says that a return address is signed has the number of another one of SPARC.
    pub const VENDOR: gimli::Vendor = gimli::Vendor::AArch64;
    /// Bits of a return address: those above hold the signature of a function compiled with
    /// `-mbranch-protection`. A process has 48 bits of addresses unless it asks for more
    /// (`Documentation/arch/arm64/memory.rst`, v6.18).
    pub const ADDRESS_BITS: u64 = (1 << 48) - 1;
}

pub use abi::{REGISTERS, STACK_POINTER};

/// A return address without its signature.
pub const fn without_signature(address: u64) -> u64 {
    address & abi::ADDRESS_BITS
}

/// The registers of a frame that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// Address in code: the next instruction, or where a call will return to.
    pub pc: u64,
    values: [Option<u64>; REGISTERS],
}

impl Registers {
    /// The program counter, and the others by their numbers in DWARF.
    pub const fn new(pc: u64, values: [Option<u64>; REGISTERS]) -> Self {
        Self { pc, values }
    }

    /// Only program counter and stack pointer are known, as of a thread that the kernel tells of.
    pub fn at(pc: u64, stack_pointer: u64) -> Self {
        let mut registers = Self::new(pc, [None; REGISTERS]);
        registers.set(STACK_POINTER, Some(stack_pointer));
        registers
    }

    /// The stack pointer, if it is known.
    pub fn stack_pointer(&self) -> Option<u64> {
        self.get(Register(STACK_POINTER))
    }

    fn get(&self, register: Register) -> Option<u64> {
        *self.values.get(usize::from(register.0))?
    }

    fn set(&mut self, register: u16, value: Option<u64>) {
        if let Some(known) = self.values.get_mut(usize::from(register)) {
            *known = value;
        }
    }

    /// The caller by the frame pointer, for code without tables: it points at the caller's frame pointer, and
    /// the return address follows, on both processors. `word` reads the stack.
    pub fn caller_by_frame_pointer(&self, word: &dyn Fn(u64) -> Option<u64>) -> Option<Self> {
        let frame = self.get(Register(abi::FRAME_POINTER))?;
        let return_address = without_signature(word(frame.checked_add(8)?)?);
        let mut caller = Self::at(return_address, frame.checked_add(16)?);
        caller.set(abi::FRAME_POINTER, Some(word(frame)?));
        Some(caller)
    }
}

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
#[derive(Clone, Copy, Debug)]
pub struct UnwindTables<'a> {
    /// `.eh_frame_hdr`, the index.
    pub index: TableSection<'a>,
    /// `.eh_frame`; `None` if it follows the index in the same bytes, as linkers arrange them.
    pub frames: Option<TableSection<'a>>,
    /// Address of `.text`, if it is known.
    pub text: Option<u64>,
    /// Address of `.got`, likewise.
    pub got: Option<u64>,
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
        let bases = self.bases();
        let index = EhFrameHdr::new(self.index.bytes, NativeEndian);
        let index = index.parse(&bases, 8).ok()?;
        let gimli::Pointer::Direct(stated) = index.eh_frame_ptr() else {
            return None;
        };
        let (address, bytes) = match self.frames {
            Some(frames) => (frames.address, frames.bytes),
            None => {
                let offset = usize::try_from(stated.checked_sub(self.index.address)?).ok()?;
                (stated, self.index.bytes.get(offset..)?)
            }
        };
        let bases = bases.set_eh_frame(address);
        let mut frames = EhFrame::new(bytes, NativeEndian);
        frames.set_vendor(abi::VENDOR);
        let description = index
            .table()?
            .fde_for_address(&frames, &bases, inside, EhFrame::cie_from_offset)
            .ok()?;
        let is_signal_frame = description.is_signal_trampoline();
        let row = description
            .unwind_info_for_address(&frames, &bases, &mut scratch.0, inside)
            .ok()?;
        Some(by_row(row, is_signal_frame, frame, word))
    }

    fn bases(&self) -> BaseAddresses {
        let bases = BaseAddresses::default().set_eh_frame_hdr(self.index.address);
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

/// Applies the rules of a row of the tables.
fn by_row(
    row: &UnwindTableRow<usize>,
    is_signal_frame: bool,
    frame: &Registers,
    word: &dyn Fn(u64) -> Option<u64>,
) -> CallerFrame {
    let return_rule = row.register(Register(abi::RETURN_ADDRESS));
    if matches!(return_rule, Some(RegisterRule::Undefined)) {
        return CallerFrame::Root;
    }
    let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else {
        // Both a coroutine's root and the kernel's return from a signal handler describe the interrupted
        // frame by an expression, which is not followed; but only the latter also restores registers that way.
        let is_root = is_signal_frame && matches!(return_rule, Some(RegisterRule::Offset(_)));
        return match is_root {
            true => CallerFrame::Root,
            false => CallerFrame::Unknown,
        };
    };
    let outer = frame.get(*register);
    let outer = outer.and_then(|value| value.checked_add_signed(*offset));
    let registers = outer.and_then(|outer| caller(row, outer, frame, word));
    registers.map_or(CallerFrame::Unknown, |registers| CallerFrame::Found {
        registers,
        was_interrupted: is_signal_frame,
    })
}

/// The caller's registers, by the rules of a row and the address of the frame that they refer to.
fn caller(
    row: &UnwindTableRow<usize>,
    outer: u64,
    frame: &Registers,
    word: &dyn Fn(u64) -> Option<u64>,
) -> Option<Registers> {
    let mut caller = Registers::at(0, outer);
    for register in abi::KEPT {
        caller.set(*register, frame.get(Register(*register)));
    }
    // Where no register holds it there is no caller without a rule.
    let in_register = frame.get(Register(abi::RETURN_ADDRESS));
    let mut return_address = in_register.filter(|_| abi::IS_IN_REGISTER);
    for (register, rule) in row.registers() {
        let value = match rule {
            RegisterRule::SameValue => frame.get(*register),
            RegisterRule::Offset(offset) => outer.checked_add_signed(*offset).and_then(word),
            RegisterRule::ValOffset(offset) => outer.checked_add_signed(*offset),
            RegisterRule::Register(other) => frame.get(*other),
            _ => None,
        };
        match register.0 {
            abi::RETURN_ADDRESS => return_address = value,
            STACK_POINTER => {}
            other => caller.set(other, value),
        }
    }
    caller.pc = without_signature(return_address.filter(|address| *address != 0)?);
    Some(caller)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Damaged tables say nothing, and a frame pointer is followed only within the stack.
    #[test]
    fn what_is_not_known_gives_no_caller() {
        let registers = Registers::at(0x1000, 0x7000);
        let no_stack = |_: u64| None;
        for bytes in [&[][..], &[1, 0x1b, 3, 0x3b], &[0xff; 64]] {
            let tables = UnwindTables {
                index: TableSection {
                    address: 0x2000,
                    bytes,
                },
                frames: None,
                text: None,
                got: None,
            };
            let mut scratch = UnwindScratch::default();
            let found = tables.caller(0x1000, &registers, &no_stack, &mut scratch);
            assert_eq!(found, None);
        }
        assert_eq!(registers.caller_by_frame_pointer(&no_stack), None);
    }

    /// ```text
    /// frame pointer ─▶ │ caller's frame pointer │ return address │ …
    /// ```
    #[test]
    fn a_frame_pointer_leads_to_the_caller() {
        let mut registers = Registers::at(0x1000, 0x7000);
        registers.set(abi::FRAME_POINTER, Some(0x7010));
        let stack = |address: u64| match address {
            0x7010 => Some(0x7100),
            0x7018 => Some(0x1234),
            _ => None,
        };
        let caller = registers.caller_by_frame_pointer(&stack).unwrap();
        assert_eq!((caller.pc, caller.stack_pointer()), (0x1234, Some(0x7020)));
        assert_eq!(caller.get(Register(abi::FRAME_POINTER)), Some(0x7100));
        assert_eq!(without_signature(0x7fff_ffff_ffff), 0x7fff_ffff_ffff);
    }
}
