//! Unwinds a stack of this process: from registers and a copy of the stack to return addresses.
//!
//! The walk is `swtch-unwind`'s; here the tables of the loaded file that holds some code are found. Only the copy of
//! the stack is read, and each access is checked against its bounds, so a stack that was caught in an odd state gives
//! a short result at worst.
//!
//! The walk ends at the root of the thread, whose caller the tables declare undefined, or at the
//! root of the worker's stack (corosensei's, which leads to the scheduler).

use std::ffi::c_void;

use swtch_unwind::{
    Chain, CodeAt, Registers, StackCode, StackCopy, TableSection, UnwindTables, chain,
};

/// Limit of frames, more than any reader needs.
const FRAMES: usize = 128;

/// Walks from the innermost frame outwards.
pub fn unwind(registers: Registers, stack: StackCopy<'_>) -> Chain {
    chain(registers, stack, &OwnCode, FRAMES)
}

/// The code of this process. The loader holds its lock while tables are looked at, so no file is unloaded meanwhile.
struct OwnCode;

impl StackCode for OwnCode {
    fn at(&self, address: u64, look: &mut dyn FnMut(&UnwindTables<'_>, u64)) -> CodeAt {
        let mut search = TableSearch { address, look };
        // SAFETY: `visit` gets the argument that is passed here, and does not outlive the call.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
        // The loader does not know code that was made while the program runs.
        CodeAt::Code
    }
}

struct TableSearch<'a> {
    address: u64,
    look: &'a mut dyn FnMut(&UnwindTables<'_>, u64),
}

/// Checks one loaded file. Returns 1, which ends the search, when it contains the address.
extern "C" fn visit(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> i32 {
    // SAFETY: `at` passes it, and no other code uses it meanwhile.
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
        let index = TableSection {
            address: index_address,
            bytes: index,
        };
        let tables = UnwindTables {
            index: Some(index),
            ..UnwindTables::default()
        };
        // The loader has moved them already.
        (search.look)(&tables, 0);
    }
    1
}
