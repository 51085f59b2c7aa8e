//! Drops privileges: they are needed to load the programs, and dropped right after. The priority of the threads that record
//! is set here, too: it takes a right, and outlives it.

use std::io;

use crate::error::Error;

/// Privileges to keep after the programs were loaded. The default is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptPrivileges {
    /// Capabilities for reading the rings; none are needed since Linux 5.19.
    pub rings: bool,
    /// `CAP_SYS_PTRACE`: to read other users' `/proc/PID/maps` when stacks are symbolised, or to
    /// see which files other processes have open.
    pub look_at_processes: bool,
    /// `CAP_DAC_READ_SEARCH`: to look into `/proc/PID/fd` of processes of other users, including
    /// root's.
    pub open_files_of_others: bool,
    /// `CAP_KILL`: to pass signals on to a command that belongs to another user than this process
    /// now.
    pub signal_others: bool,
    /// `CAP_SETUID` and `CAP_SETGID`: for a thread of a process that will change the user of all
    /// its threads. Each thread that is no longer root needs them for that.
    pub change_user: bool,
}

/// Numbers of capabilities in `include/uapi/linux/capability.h`.
const CAP_DAC_READ_SEARCH: u32 = 2;
const CAP_KILL: u32 = 5;
const CAP_SETGID: u32 = 6;
const CAP_SETUID: u32 = 7;
const CAP_SYS_PTRACE: u32 = 19;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// Kernels before this version required `CAP_BPF` even to read a map that is already open
/// (`kernel/bpf/syscall.c`, "refine `kernel.unprivileged_bpf_disabled` behaviour").
pub(crate) const MAPS_READ_FREELY: (u32, u32) = (5, 19);

#[repr(C)]
struct CapabilityHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapabilityData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Value of `_LINUX_CAPABILITY_VERSION_3` in `include/uapi/linux/capability.h`.
const VERSION_3: u32 = 0x2008_0522;

/// Nice value of a recorder that may choose it: one that waits its turn behind the tasks that it
/// records loses records.
const NICE: i32 = -10;

/// Lets the calling thread run before ordinary work. Without the right to do so nothing changes.
pub fn raise_priority() {
    // SAFETY: setpriority has no memory effects; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
}

/// Sets the nice value of the calling thread to 0: lower, if a thread with a raised priority has started it, which takes
/// no right. From a value above 0 it takes one, and without it nothing changes.
pub fn take_ordinary_priority() {
    // SAFETY: setpriority has no memory effects; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 0) };
}

/// Empties the bounding set of the calling thread, which cannot be undone: no program that it
/// executes can get a capability. A user who may not do that (it takes `CAP_SETPCAP`) would get
/// none by an exec either.
pub fn empty_bounding_set() {
    // SAFETY: these calls of prctl(2) take numbers only. The kernel refuses the first number that
    // is no capability.
    (0..u64::BITS)
        .take_while(|number| unsafe { libc::prctl(libc::PR_CAPBSET_READ, *number, 0, 0, 0) } >= 0)
        .for_each(|number| {
            // SAFETY: as above.
            unsafe { libc::prctl(libc::PR_CAPBSET_DROP, number, 0, 0, 0) };
        });
}

/// Drops every capability of the calling thread except those in `kept`; this cannot be undone. Of these it keeps what it
/// is permitted; `kernel` is its version, which says what reading the rings takes. A change of the user leaves no right in
/// effect: those kept are in effect again afterwards.
///
/// # Errors
/// When the kernel refuses.
pub fn drop_privileges(kept: KeptPrivileges, kernel: (u32, u32)) -> Result<(), Error> {
    let header = CapabilityHeader {
        version: VERSION_3,
        pid: 0,
    };
    let mut held = [CapabilityData::default(); 2];
    // SAFETY: version 3 reads one header and fills two data structs, which these are.
    if unsafe { libc::syscall(libc::SYS_capget, &raw const header, held.as_mut_ptr()) } != 0 {
        return Err(Error::Privileges(io::Error::last_os_error()));
    }
    let mut wanted = 0u64;
    if kept.look_at_processes {
        wanted |= 1 << CAP_SYS_PTRACE;
    }
    if kept.open_files_of_others {
        wanted |= 1 << CAP_DAC_READ_SEARCH;
    }
    if kept.signal_others {
        wanted |= 1 << CAP_KILL;
    }
    if kept.change_user {
        wanted |= 1 << CAP_SETUID | 1 << CAP_SETGID;
    }
    if kept.rings && kernel < MAPS_READ_FREELY {
        wanted |= 1 << CAP_BPF | 1 << CAP_PERFMON;
    }
    for (word, data) in held.iter_mut().enumerate() {
        let mask = u32::try_from(wanted >> (32 * word) & 0xffff_ffff).unwrap_or(0);
        *data = CapabilityData {
            effective: data.permitted & mask,
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
