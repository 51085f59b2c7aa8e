//! Unwinds a stack: from registers and a copy of the stack to return addresses.
//!
//! The unwind rules of each function are in its file's `.eh_frame`, which exceptions and panics use
//! too; gimli reads it. For a function without rules a frame pointer is tried. Only the copy of the
//! stack is read, and each access is checked against its bounds, so a stack that was caught in an
//! odd state gives a short result at worst.
//!
//! The walk ends at the root of the thread, whose caller the tables declare undefined, or at the
//! root of the worker's stack: the way from there to the scheduler is described by an expression
//! (corosensei), which is not followed.

use std::ffi::c_void;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, NativeEndian, Register, RegisterRule,
    UnwindContext, UnwindSection, UnwindTableRow,
};

use crate::arch::{self, FRAME_POINTER, REGISTERS, RETURN_ADDRESS, STACK_POINTER};

/// Limit of frames, more than any reader needs.
const FRAMES: usize = 128;

/// The known registers of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    pc: u64,
    values: [Option<u64>; REGISTERS],
}

impl Registers {
    /// Registers of which none is known.
    pub const UNKNOWN: Self = Self {
        pc: 0,
        values: [None; REGISTERS],
    };

    /// Only program counter and stack pointer are known.
    pub fn at(pc: u64, stack_pointer: u64) -> Self {
        let mut registers = Self::UNKNOWN;
        registers.pc = pc;
        registers.values[STACK_POINTER] = Some(stack_pointer);
        registers
    }

    /// All registers, from the context of a signal handler.
    pub fn of(context: &libc::ucontext_t) -> Self {
        let (pc, values) = arch::registers(context);
        Self { pc, values }
    }

    fn value(&self, register: Register) -> Option<u64> {
        *self.values.get(usize::from(register.0))?
    }

    /// Program counter; 0 when unknown.
    pub fn pc(&self) -> u64 {
        self.pc
    }

    /// The stack pointer, 0 when it is not known.
    pub fn stack_pointer(&self) -> u64 {
        self.values[STACK_POINTER].unwrap_or_default()
    }
}

/// A copy of a part of a stack.
#[derive(Clone, Copy, Debug)]
pub struct StackCopy<'a> {
    /// Address of the first byte in the stack.
    pub start: u64,
    pub bytes: &'a [u8],
}

impl StackCopy<'_> {
    /// The word at an address; `None` outside of the copy.
    fn word(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address.checked_sub(self.start)?).ok()?;
        let bytes = self.bytes.get(offset..offset.checked_add(8)?)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }
}

/// The frames that were found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frames {
    /// Addresses in code, the innermost first. Each lies inside of the call that has not returned.
    pub addresses: Vec<u64>,
    /// Whether the last one is the root of its stack.
    pub reaches_root: bool,
}

/// The caller of a frame, or why there is none.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and mostly the large one"
)]
enum CallerFrame {
    /// The registers of its caller, and whether the caller was interrupted rather than making a
    /// call.
    Caller(Registers, bool),
    /// No caller, because the stack begins here.
    Root,
    /// The caller cannot be found.
    Unknown,
}

/// Walks from the innermost frame outwards.
pub fn unwind(mut registers: Registers, stack: StackCopy<'_>) -> Frames {
    let mut frames = Frames::default();
    let mut context = UnwindContext::new();
    // The address to look up, one before the return address, which may belong to the next function.
    let mut place = registers.pc;
    while frames.addresses.len() < FRAMES && place != 0 {
        frames.addresses.push(place);
        let (caller, was_interrupted) = match beyond(place, &registers, stack, &mut context) {
            CallerFrame::Caller(caller, was_interrupted) => (caller, was_interrupted),
            CallerFrame::Root => {
                frames.reaches_root = true;
                break;
            }
            CallerFrame::Unknown => break,
        };
        let grows = caller.stack_pointer() > registers.stack_pointer();
        if !grows && (frames.addresses.len() > 1 || caller.pc == registers.pc) {
            break;
        }
        registers = caller;
        place = caller.pc.saturating_sub(u64::from(!was_interrupted));
    }
    frames
}

fn beyond(
    place: u64,
    registers: &Registers,
    stack: StackCopy<'_>,
    context: &mut UnwindContext<usize>,
) -> CallerFrame {
    let mut found = None;
    with_tables_of(place, |tables| {
        found = tables.row(place, context, |row, is_signal_frame| {
            by_row(row, is_signal_frame, registers, stack)
        });
    });
    found.unwrap_or_else(|| {
        let caller = by_frame_pointer(registers, stack);
        caller.map_or(CallerFrame::Unknown, |caller| {
            CallerFrame::Caller(caller, false)
        })
    })
}

/// Applies the rules of a row of the tables.
fn by_row(
    row: &UnwindTableRow<usize>,
    is_signal_frame: bool,
    registers: &Registers,
    stack: StackCopy<'_>,
) -> CallerFrame {
    let return_rule = row.register(Register(RETURN_ADDRESS));
    if matches!(return_rule, Some(RegisterRule::Undefined)) {
        return CallerFrame::Root;
    }
    let CfaRule::RegisterAndOffset { register, offset } = row.cfa() else {
        // Both a coroutine's root and the kernel's return from a signal handler describe the
        // interrupted frame by an expression, but only the latter also restores registers that way.
        let is_root = is_signal_frame && matches!(return_rule, Some(RegisterRule::Offset(_)));
        return if is_root {
            CallerFrame::Root
        } else {
            CallerFrame::Unknown
        };
    };
    let frame = registers.value(*register);
    let frame = frame.and_then(|value| value.checked_add_signed(*offset));
    let caller = frame.and_then(|frame| caller(row, frame, registers, stack));
    caller.map_or(CallerFrame::Unknown, |caller| {
        CallerFrame::Caller(caller, is_signal_frame)
    })
}

/// The caller's registers, by the rules of a row and the address of the frame that they refer to.
fn caller(
    row: &UnwindTableRow<usize>,
    frame: u64,
    registers: &Registers,
    stack: StackCopy<'_>,
) -> Option<Registers> {
    let mut caller = *registers;
    if usize::from(RETURN_ADDRESS) == REGISTERS - 1 {
        // On x86-64 no register holds it: without a rule there is no caller.
        caller.values[REGISTERS - 1] = None;
    }
    for (register, rule) in row.registers() {
        let Some(known) = caller.values.get_mut(usize::from(register.0)) else {
            continue;
        };
        *known = match rule {
            RegisterRule::SameValue => registers.value(*register),
            RegisterRule::Offset(n) => frame.checked_add_signed(*n).and_then(|at| stack.word(at)),
            RegisterRule::ValOffset(n) => frame.checked_add_signed(*n),
            RegisterRule::Register(other) => registers.value(*other),
            _ => None,
        };
    }
    caller.values[STACK_POINTER] = Some(frame);
    caller.pc = arch::without_signature(caller.value(Register(RETURN_ADDRESS))?);
    Some(caller)
}

/// For code without tables: the frame pointer points at the caller's frame pointer, and the return
/// address follows it, on both processors. Only the bounds of the stack are checked.
fn by_frame_pointer(registers: &Registers, stack: StackCopy<'_>) -> Option<Registers> {
    let frame = registers.values[FRAME_POINTER]?;
    let mut caller = Registers::UNKNOWN;
    caller.values[FRAME_POINTER] = Some(stack.word(frame)?);
    caller.pc = arch::without_signature(stack.word(frame.checked_add(8)?)?);
    caller.values[STACK_POINTER] = Some(frame.checked_add(16)?);
    Some(caller)
}

/// The unwind tables of a loaded file: the index, and the memory that contains the other tables.
struct UnwindTables<'a> {
    index_address: u64,
    index: &'a [u8],
}

impl UnwindTables<'_> {
    /// Calls `use_row` with the rules for an address; `None` when there are none.
    fn row<T>(
        &self,
        address: u64,
        context: &mut UnwindContext<usize>,
        use_row: impl FnOnce(&UnwindTableRow<usize>, bool) -> T,
    ) -> Option<T> {
        let bases = BaseAddresses::default().set_eh_frame_hdr(self.index_address);
        let header = EhFrameHdr::new(self.index, NativeEndian)
            .parse(&bases, 8)
            .ok()?;
        let gimli::Pointer::Direct(frames_address) = header.eh_frame_ptr() else {
            return None;
        };
        // `.eh_frame` follows its index in the same segment; linkers arrange them so.
        let offset = usize::try_from(frames_address.checked_sub(self.index_address)?).ok()?;
        let mut frames = EhFrame::new(self.index.get(offset..)?, NativeEndian);
        frames.set_vendor(arch::VENDOR);
        let bases = bases.set_eh_frame(frames_address);
        let description = header
            .table()?
            .fde_for_address(&frames, &bases, address, EhFrame::cie_from_offset)
            .ok()?;
        let is_signal_frame = description.is_signal_trampoline();
        let row = description
            .unwind_info_for_address(&frames, &bases, context, address)
            .ok()?;
        Some(use_row(row, is_signal_frame))
    }
}

/// Calls `look` with the tables of the file that contains an address. The loader holds its lock
/// meanwhile, so the file cannot be unloaded.
fn with_tables_of(address: u64, mut look: impl FnMut(&UnwindTables<'_>)) {
    let mut search = TableSearch {
        address,
        look: &mut look,
    };
    // SAFETY: `visit` gets the argument that is passed here, and does not outlive the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
}

struct TableSearch<'a> {
    address: u64,
    look: &'a mut dyn FnMut(&UnwindTables<'_>),
}

/// Checks one loaded file. Returns 1, which ends the search, when it contains the address.
extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> i32 {
    // SAFETY: `with_tables_of` passes it, and no other code uses it meanwhile.
    let search = unsafe { &mut *search.cast::<TableSearch<'_>>() };
    // SAFETY: the loader passes a valid description.
    let info = unsafe { &*info };
    if info.dlpi_phdr.is_null() {
        return 0;
    }
    let count = usize::from(info.dlpi_phnum);
    // SAFETY: this many headers lie there, for as long as the file is loaded.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, count) };
    let start = |header: &libc::Elf64_Phdr| info.dlpi_addr.wrapping_add(header.p_vaddr);
    let loaded = |address: u64| {
        headers.iter().find(|header| {
            header.p_type == libc::PT_LOAD
                && header.p_flags & libc::PF_R != 0
                && address.wrapping_sub(start(header)) < header.p_memsz
        })
    };
    if loaded(search.address).is_none() {
        return 0;
    }
    let index = headers
        .iter()
        .find(|header| header.p_type == libc::PT_GNU_EH_FRAME);
    if let Some(index_address) = index.map(start)
        && let Some(segment) = loaded(index_address)
        && let Ok(len) = usize::try_from(start(segment) + segment.p_filesz - index_address)
        && let Ok(from) = usize::try_from(index_address)
    {
        let from = std::ptr::with_exposed_provenance::<u8>(from);
        // SAFETY: up to its end, the loaded segment is readable and never written; it stays while
        // the loader's lock is held.
        let index = unsafe { std::slice::from_raw_parts(from, len) };
        (search.look)(&UnwindTables {
            index_address,
            index,
        });
    }
    1
}
