//! One step outwards on a stack of another process, by a file's tables.
//!
//! Of a blocked thread the kernel tells the stack pointer and the next instruction alone. Every
//! other register is unknown until a frame is met that has put it on the stack, and what hangs on an
//! unknown one is not found. So a chain may end early, and holds no caller that is none.

use std::ops::Range;
use std::rc::Rc;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, NativeEndian, Register, RegisterRule,
    UnwindContext, UnwindSection, UnwindTableRow,
};

/// Registers that the tables speak of, numbered as in DWARF, and those that a called function leaves
/// as they were (System V ABI for AMD64, 3.2.1; AAPCS64, 6.1.1).
#[cfg(target_arch = "x86_64")]
mod abi {
    pub const REGISTERS: usize = 17;
    pub const STACK_POINTER: u16 = 7;
    pub const RETURN_ADDRESS: u16 = 16;
    pub const KEPT: &[u16] = &[3, 6, 12, 13, 14, 15];
}

#[cfg(target_arch = "aarch64")]
mod abi {
    pub const REGISTERS: usize = 32;
    pub const STACK_POINTER: u16 = 31;
    pub const RETURN_ADDRESS: u16 = 30;
    pub const KEPT: &[u16] = &[19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29];
}

/// A section of a file, where the file wants it to be.
#[derive(Clone, Debug)]
pub struct TableSection {
    pub place: Range<u64>,
    pub bytes: Rc<[u8]>,
}

/// The tables of a file, with addresses as the file states them.
#[derive(Clone, Debug)]
pub struct FileTables {
    pub eh_frame: TableSection,
    pub eh_frame_hdr: TableSection,
    pub text: Option<u64>,
    pub got: Option<u64>,
}

/// What is known of a frame: its registers, and the address in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameState {
    /// Address in code: the next instruction, or where a call will return to.
    pub instruction: u64,
    registers: [Option<u64>; abi::REGISTERS],
}

impl FrameState {
    pub fn new(instruction: u64, stack_pointer: u64) -> Self {
        let mut state = Self {
            instruction,
            registers: [None; abi::REGISTERS],
        };
        state.set(abi::STACK_POINTER, Some(stack_pointer));
        state
    }

    pub fn stack_pointer(&self) -> Option<u64> {
        self.get(Register(abi::STACK_POINTER))
    }

    fn get(&self, register: Register) -> Option<u64> {
        *self.registers.get(usize::from(register.0))?
    }

    fn set(&mut self, register: u16, value: Option<u64>) {
        if let Some(known) = self.registers.get_mut(usize::from(register)) {
            *known = value;
        }
    }
}

impl FileTables {
    /// The frame that called this one. `lookup` is an address inside of the function, as the file
    /// states it; `word` reads the stack. `None` at the end of the stack, and where the way outwards
    /// hangs on something that is not known.
    pub fn caller(
        &self,
        lookup: u64,
        frame: &FrameState,
        word: &dyn Fn(u64) -> Option<u64>,
    ) -> Option<FrameState> {
        let bases = self.bases();
        let eh_frame = EhFrame::new(&self.eh_frame.bytes, NativeEndian);
        let header = EhFrameHdr::new(&self.eh_frame_hdr.bytes, NativeEndian);
        // The tables of a file that is damaged lead nowhere, as those that are not there.
        let header = header.parse(&bases, 8).ok()?;
        let mut context = UnwindContext::new();
        let row = header.table()?.unwind_info_for_address(
            &eh_frame,
            &bases,
            &mut context,
            lookup,
            EhFrame::cie_from_offset,
        );
        by_row(row.ok()?, frame, word)
    }

    fn bases(&self) -> BaseAddresses {
        let bases = BaseAddresses::default()
            .set_eh_frame(self.eh_frame.place.start)
            .set_eh_frame_hdr(self.eh_frame_hdr.place.start);
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

fn by_row(
    row: &UnwindTableRow<usize>,
    frame: &FrameState,
    word: &dyn Fn(u64) -> Option<u64>,
) -> Option<FrameState> {
    // An expression is used where a signal came in, and in stubs: not followed.
    let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else {
        return None;
    };
    let outer = frame.get(*register)?.checked_add_signed(*offset)?;
    let mut caller = FrameState::new(0, outer);
    for register in abi::KEPT {
        caller.set(*register, frame.get(Register(*register)));
    }
    let mut return_address = match abi::RETURN_ADDRESS {
        // No register of this processor holds it: without a rule there is no caller.
        16 => None,
        register => frame.get(Register(register)),
    };
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
            other => caller.set(other, value),
        }
    }
    caller.instruction = return_address.filter(|address| *address != 0)?;
    Some(caller)
}
