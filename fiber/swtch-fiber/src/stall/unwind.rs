//! Unwinds a stack: from registers and a copy of the stack to return addresses.
//!
//! The step from a frame to its caller is `swtch-unwind`'s, by the unwind rules of the loaded file that holds
//! its code; for a function without rules the frame pointer is tried. Only the copy of the stack is read, and
//! each access is checked against its bounds, so a stack that was caught in an odd state gives a short result
//! at worst.
//!
//! The walk ends at the root of the thread, whose caller the tables declare undefined, or at the
//! root of the worker's stack: the way from there to the scheduler is described by an expression
//! (corosensei), which is not followed.

use std::ffi::c_void;

use swtch_unwind::{CallerFrame, Registers, TableSection, UnwindScratch, UnwindTables};

/// Limit of frames, more than any reader needs.
const FRAMES: usize = 128;

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
    /// True if the last one is the root of its stack.
    pub reaches_root: bool,
}

/// Walks from the innermost frame outwards.
pub fn unwind(mut registers: Registers, stack: StackCopy<'_>) -> Frames {
    let word = |address| stack.word(address);
    let mut frames = Frames::default();
    let mut scratch = UnwindScratch::default();
    // The address to look up, one before the return address, which may belong to the next function.
    let mut place = registers.pc;
    while frames.addresses.len() < FRAMES && place != 0 {
        frames.addresses.push(place);
        let (caller, was_interrupted) = match beyond(place, &registers, &word, &mut scratch) {
            CallerFrame::Found {
                registers,
                was_interrupted,
            } => (registers, was_interrupted),
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
    word: &dyn Fn(u64) -> Option<u64>,
    scratch: &mut UnwindScratch,
) -> CallerFrame {
    let mut found = None;
    with_tables_of(place, |tables| {
        found = tables.caller(place, registers, word, scratch);
    });
    found.unwrap_or_else(|| {
        let caller = registers.caller_by_frame_pointer(word);
        caller.map_or(CallerFrame::Unknown, |registers| CallerFrame::Found {
            registers,
            was_interrupted: false,
        })
    })
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
            index: TableSection {
                address: index_address,
                bytes: index,
            },
            frames: None,
            text: None,
            got: None,
        });
    }
    1
}
