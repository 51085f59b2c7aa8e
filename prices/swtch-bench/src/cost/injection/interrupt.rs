//! An interrupt of another CPU after which the same task goes on.
//!
//! A perf event of a CPU is read on that CPU: the reader sends it an interrupt and waits for the answer
//! (`perf_event_read` in `kernel/events/core.c`, v6.18: `smp_call_function_single`). The event counts nothing (`DUMMY`),
//! so it takes no counter of the hardware. Seen on 6.18 (KVM): 10,000 reads, 10,000 more function call interrupts of that
//! CPU, none of another.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::FromRawFd as _;

use crate::error::{Error, checked};

/// `PERF_TYPE_SOFTWARE`, `PERF_COUNT_SW_DUMMY` and the size of the first version of `struct perf_event_attr`
/// (`include/uapi/linux/perf_event.h`).
const SOFTWARE: u32 = 1;
const DUMMY: u64 = 9;
const FIRST_SIZE: u32 = 64;
/// `PERF_FLAG_FD_CLOEXEC`.
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;

/// The first version of `struct perf_event_attr`.
#[repr(C)]
struct DummyEvent {
    kind: u32,
    size: u32,
    config: u64,
    others: [u64; 6],
}

/// A CPU that can be interrupted.
#[derive(Debug)]
pub(super) struct InterruptedCpu {
    event: File,
}

impl InterruptedCpu {
    /// Opens the event of a CPU, which takes root or `CAP_PERFMON`.
    pub(super) fn open(cpu: u32) -> Result<Self, Error> {
        let attributes = DummyEvent {
            kind: SOFTWARE,
            size: FIRST_SIZE,
            config: DUMMY,
            others: [0; 6],
        };
        let no_group = -1_i32;
        // SAFETY: the attributes live across the call and say their size; the rest are numbers.
        let opened = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                -1_i32,
                cpu.cast_signed(),
                no_group,
                CLOSE_ON_EXEC,
            )
        };
        let opened = checked("perf_event_open", opened)?;
        let descriptor = i32::try_from(opened).expect("invariant: descriptors are small");
        // SAFETY: the kernel has just made it, and nobody else has it.
        let event = unsafe { File::from_raw_fd(descriptor) };
        Ok(Self { event })
    }

    /// Interrupts the CPU, and returns when it has answered.
    pub(super) fn interrupt(&self) -> Result<(), Error> {
        let mut count = [0; 8];
        let read = (&self.event).read_exact(&mut count);
        read.map_err(Error::calling("read"))
    }
}
