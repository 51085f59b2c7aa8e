//! Privilege is needed to load; it is dropped right after.

use std::io;

use crate::error::Error;

/// What must be kept for the rest of the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Nothing.
    Nothing,
    /// `CAP_SYS_PTRACE`: to read other users' `/proc/PID/maps` when stacks are symbolised.
    ReadMaps,
    /// `CAP_SYS_PTRACE`, and nothing for a capture, on no kernel: to see what others hold open.
    LookAtProcesses,
}

/// `include/uapi/linux/capability.h`.
const CAP_SYS_PTRACE: u32 = 19;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Kernels before this asked for `CAP_BPF` even to read a map that is open already
/// (`kernel/bpf/syscall.c`, "refine `kernel.unprivileged_bpf_disabled` behaviour").
const MAPS_READ_FREELY: (u32, u32) = (5, 19);

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Data {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// `_LINUX_CAPABILITY_VERSION_3`.
const VERSION_3: u32 = 0x2008_0522;

/// Nice value of a recorder that may choose it: one that waits its turn behind what it records
/// loses records.
const NICE: i32 = -10;

/// Lets the calling thread run before ordinary work. Without the right to it nothing changes.
pub fn raise_priority() {
    // SAFETY: setpriority has no memory effects; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

/// Drops every capability of the calling thread, for good.
pub(crate) fn drop_all_privileges() {
    drop_privileges(Kept::Nothing, MAPS_READ_FREELY)
        .expect("invariant: a thread may always give up its own rights (capset(2))");
}

/// Drops every capability of the calling thread but those named, for good.
///
/// # Errors
/// When the kernel refuses.
pub fn drop_privileges(kept: Kept, kernel: (u32, u32)) -> Result<(), Error> {
    let header = Header {
        version: VERSION_3,
        pid: 0,
    };
    let mut held = [Data::default(); 2];
    // SAFETY: version 3 reads one header and fills two data structs, which these are.
    if unsafe { libc::syscall(libc::SYS_capget, &raw const header, held.as_mut_ptr()) } != 0 {
        return Err(Error::Privileges(io::Error::last_os_error()));
    }
    let mut wanted = 0u64;
    if kept != Kept::Nothing {
        wanted |= 1 << CAP_SYS_PTRACE;
    }
    if kernel < MAPS_READ_FREELY && kept != Kept::LookAtProcesses {
        wanted |= 1 << CAP_BPF | 1 << CAP_PERFMON;
    }
    for (word, data) in held.iter_mut().enumerate() {
        let mask = u32::try_from(wanted >> (32 * word) & 0xffff_ffff).unwrap_or(0);
        *data = Data {
            effective: data.effective & mask,
            permitted: data.permitted & mask,
            inheritable: 0,
        };
    }
    // SAFETY: version 3 reads one header and two data structs, which these are.
    if unsafe { libc::syscall(libc::SYS_capset, &raw const header, held.as_ptr()) } != 0 {
        return Err(Error::Privileges(io::Error::last_os_error()));
    }
    Ok(())
}
