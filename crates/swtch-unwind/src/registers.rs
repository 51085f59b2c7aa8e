//! The registers of a frame, as far as they are known.

use gimli::Register;

use crate::chain::RuntimeFrame;

/// The differences between processors. Registers are numbered as in DWARF; `KEPT` are those that a called function
/// leaves as they were.
#[cfg(not(target_arch = "aarch64"))]
pub mod abi {
    /// Number of registers that DWARF counts (x86-64 psABI, figure 3.36).
    pub const REGISTERS: usize = 17;
    /// DWARF's number of the frame pointer.
    pub const FRAME_POINTER: u16 = 6;
    /// DWARF's number of the stack pointer.
    pub const STACK_POINTER: u16 = 7;
    /// DWARF's number of the register with the first argument of a call, of the system's too.
    pub const FIRST_ARGUMENT: u16 = 5;
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
pub mod abi {
    /// Number of registers that DWARF counts (DWARF for the Arm 64-bit Architecture, 4.1).
    pub const REGISTERS: usize = 32;
    /// DWARF's number of the frame pointer.
    pub const FRAME_POINTER: u16 = 29;
    /// DWARF's number of the stack pointer.
    pub const STACK_POINTER: u16 = 31;
    /// DWARF's number of the register with the first argument of a call, of the system's too.
    pub const FIRST_ARGUMENT: u16 = 0;
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

pub use abi::{FIRST_ARGUMENT, FRAME_POINTER, REGISTERS, STACK_POINTER};

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

    pub(crate) fn get(&self, register: Register) -> Option<u64> {
        *self.values.get(usize::from(register.0))?
    }

    pub(crate) fn set(&mut self, register: u16, value: Option<u64>) {
        if let Some(known) = self.values.get_mut(usize::from(register)) {
            *known = value;
        }
    }

    /// A register as expressions name it: on x86-64 the number of the return address is that of the program
    /// counter.
    pub(crate) fn get_or_pc(&self, register: Register) -> Option<u64> {
        let is_pc = register.0 == abi::RETURN_ADDRESS && !abi::IS_IN_REGISTER;
        if is_pc {
            Some(self.pc)
        } else {
            self.get(register)
        }
    }

    /// The registers of a caller that is known by where it is called back to and by its stack pointer alone: of the
    /// others, the frame pointer mostly is as it was.
    pub(crate) fn of_caller(&self, pc: u64, stack_pointer: u64) -> Self {
        let mut caller = Self::at(pc, stack_pointer);
        caller.set(abi::FRAME_POINTER, self.get(Register(abi::FRAME_POINTER)));
        caller
    }

    /// True if the frame pointer is not known, as of a thread of which the kernel tells the stack pointer alone.
    pub(crate) fn lacks_frame_pointer(&self) -> bool {
        self.get(Register(abi::FRAME_POINTER)).is_none()
    }

    /// The frame pointer, where it is known.
    pub(crate) fn frame_pointer(&self) -> Option<u64> {
        self.get(Register(FRAME_POINTER))
    }

    /// The caller of a frame of code that a runtime has made. Of other registers nothing is known there.
    pub(crate) fn caller_of_runtime(
        &self,
        made: RuntimeFrame,
        word: &dyn Fn(u64) -> Option<u64>,
    ) -> Option<Self> {
        let (pc, pointer, stack_pointer) = match made {
            RuntimeFrame::Sized(bytes) => {
                let end = self.stack_pointer()?.checked_add(bytes)?;
                (end.checked_sub(8)?, end.checked_sub(16)?, end)
            }
            RuntimeFrame::Interpreted => {
                let frame = self.frame_pointer()?;
                (frame.checked_add(8)?, frame, word(frame.checked_sub(8)?)?)
            }
        };
        let mut caller = Self::at(without_signature(word(pc)?), stack_pointer);
        caller.set(FRAME_POINTER, Some(word(pointer)?));
        Some(caller)
    }

    /// The caller by the frame pointer, for code without tables: it points at the caller's frame pointer, and
    /// the return address follows, on both processors. `word` reads the stack.
    pub fn caller_by_frame_pointer(&self, word: &dyn Fn(u64) -> Option<u64>) -> Option<Self> {
        let frame = self.get(Register(abi::FRAME_POINTER))?;
        // What points elsewhere is a value of the program's: the register holds one where no frame pointers are kept.
        let is_frame = frame % 8 == 0 && Some(frame) >= self.stack_pointer();
        is_frame.then_some(())?;
        let return_address = without_signature(word(frame.checked_add(8)?)?);
        let mut caller = Self::at(return_address, frame.checked_add(16)?);
        caller.set(abi::FRAME_POINTER, Some(word(frame)?));
        Some(caller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    }

    /// Code that keeps no frame pointers has values in that register.
    #[test]
    fn a_value_is_no_frame_pointer() {
        let everywhere = |_: u64| Some(0x1234);
        for value in [None, Some(0), Some(3), Some(0x6ff8), Some(0x7011)] {
            let mut registers = Registers::at(0x1000, 0x7000);
            registers.set(abi::FRAME_POINTER, value);
            assert_eq!(registers.caller_by_frame_pointer(&everywhere), None);
        }
    }

    #[test]
    fn an_address_without_a_signature_stays_as_it_is() {
        assert_eq!(without_signature(0x7fff_ffff_ffff), 0x7fff_ffff_ffff);
    }
}
