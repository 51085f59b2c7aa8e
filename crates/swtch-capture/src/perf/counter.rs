//! One event of `perf_event_open(2)`: it counts nothing, and makes the kernel write a record at
//! each switch of a thread on a CPU.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use swtch_core::Pid;

use super::ring::PerfRing;

/// `struct perf_event_attr`, version 5 (`include/uapi/linux/perf_event.h`): 112 bytes, up to the
/// clock.
#[derive(Default)]
#[repr(C)]
struct EventAttributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

/// `PERF_TYPE_SOFTWARE` and `PERF_COUNT_SW_DUMMY`.
const SOFTWARE: u32 = 1;
const DUMMY: u64 = 9;

/// `PERF_SAMPLE_TID`, `PERF_SAMPLE_TIME` and `PERF_SAMPLE_CPU`: what every record ends with
/// (`sample_id_all`). A switch record itself names no thread.
const NAMED_PLACE: u64 = 1 << 1 | 1 << 2 | 1 << 7;

/// `PERF_FORMAT_LOST` (since 6.0): reading an event tells how many of its records were lost, those of
/// the events that were inherited from it included (`__perf_output_begin`,
/// `kernel/events/ring_buffer.c`, v6.18).
const TELL_LOST: u64 = 1 << 4;

/// Bits of `perf_event_attr` in the order of its bit fields.
const INHERIT: u64 = 1 << 1;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HYPERVISOR: u64 = 1 << 6;
const NAMES: u64 = 1 << 9;
const TASKS: u64 = 1 << 13;
const SAMPLE_ID_ALL: u64 = 1 << 18;
const COMM_EXEC: u64 = 1 << 24;
const USE_CLOCK: u64 = 1 << 25;
const SWITCHES: u64 = 1 << 26;

/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;

/// `PERF_EVENT_IOC_DISABLE` and `PERF_EVENT_IOC_SET_OUTPUT`: `_IO('$', 1)` and `_IO('$', 5)`.
const DISABLE: libc::c_ulong = 0x2401;
const SET_OUTPUT: libc::c_ulong = 0x2405;

/// An open event.
#[derive(Debug)]
pub(super) struct PerfEvent {
    file: File,
    cpu: u16,
    /// True if the kernel counts its losses.
    tells_lost: bool,
}

impl PerfEvent {
    /// Opens the event of a thread on one CPU; tasks that it starts later inherit it.
    pub fn open(tid: Pid, cpu: u16) -> io::Result<Self> {
        let open = |tells_lost| {
            open_file(tid, cpu, tells_lost).map(|file| Self {
                file,
                cpu,
                tells_lost,
            })
        };
        match open(true) {
            // Before 6.0 the kernel does not know what it is asked to tell.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => open(false),
            opened => opened,
        }
    }

    /// The CPU whose switches it tells.
    pub const fn cpu(&self) -> u16 {
        self.cpu
    }

    /// Returns how many of its records found no room in the ring; `None` where the kernel does not count it.
    pub fn lost(&self) -> io::Result<Option<u64>> {
        if !self.tells_lost {
            return Ok(None);
        }
        // The event's value, which is 0, and its lost records; both in one read, or the kernel refuses.
        let mut told = [0; 16];
        (&self.file).read_exact(&mut told)?;
        let (numbers, _) = told.as_chunks();
        Ok(Some(u64::from_ne_bytes(numbers[1])))
    }

    /// Lets the kernel write the records of this event into a ring of the same CPU.
    pub fn write_to(&self, ring: &PerfRing) -> io::Result<()> {
        // SAFETY: takes two descriptors, and changes no memory of ours.
        match unsafe { libc::ioctl(self.fd(), SET_OUTPUT, ring.fd()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Ends the records of this event and of those that were inherited from it.
    pub fn disable(&self) {
        // The only failure is that of a wrong descriptor.
        // SAFETY: changes no memory of ours.
        unsafe { libc::ioctl(self.fd(), DISABLE, 0) };
    }

    pub fn fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// A second descriptor of the same event, which keeps a ring alive.
    pub fn try_clone(&self) -> io::Result<File> {
        self.file.try_clone()
    }
}

fn open_file(tid: Pid, cpu: u16, tells_lost: bool) -> io::Result<File> {
    let attributes = EventAttributes {
        kind: SOFTWARE,
        size: u32::try_from(size_of::<EventAttributes>()).expect("invariant: 112 fits"),
        config: DUMMY,
        sample_type: NAMED_PLACE,
        read_format: if tells_lost { TELL_LOST } else { 0 },
        flags: INHERIT
            | EXCLUDE_KERNEL
            | EXCLUDE_HYPERVISOR
            | NAMES
            | TASKS
            | SAMPLE_ID_ALL
            | COMM_EXEC
            | USE_CLOCK
            | SWITCHES,
        clock: libc::CLOCK_MONOTONIC,
        ..EventAttributes::default()
    };
    let tid = libc::pid_t::try_from(tid.get()).map_err(io::Error::other)?;
    let no_group = -1;
    // SAFETY: the attributes have the layout that their size stands for and live across the
    // call, which only reads them.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            tid,
            libc::c_int::from(cpu),
            no_group,
            CLOSE_ON_EXEC,
        )
    };
    match i32::try_from(fd) {
        // SAFETY: the kernel has just given this descriptor to us alone.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }.into()),
        _ => Err(io::Error::last_os_error()),
    }
}
