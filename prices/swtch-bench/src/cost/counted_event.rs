//! A perf event that is opened and read by hand: of a thread, or of a CPU.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{FromRawFd as _, OwnedFd};

use crate::error::{Error, checked};

/// `struct perf_event_attr`, first version (`include/uapi/linux/perf_event.h`, v6.18): 64 bytes.
#[derive(Default)]
#[repr(C)]
struct FirstAttributes {
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
}

/// `PERF_FLAG_FD_CLOEXEC`: the descriptor is closed on exec.
const CLOSE_ON_EXEC: libc::c_ulong = 1 << 3;

/// Which event, by the kernel's `enum perf_type_id` and the numbers of that type.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventChoice {
    pub kind: u32,
    pub config: u64,
    /// Bits of the attributes, such as `exclude_kernel`.
    pub flags: u64,
}

/// An event that counts.
#[derive(Debug)]
pub(super) struct CountedEvent(File);

impl CountedEvent {
    /// Opens an event of a thread (0: the calling one, −1: all) on a CPU (−1: any).
    pub(super) fn open(choice: EventChoice, thread: i32, cpu: i32) -> Result<Self, Error> {
        let attributes = FirstAttributes {
            kind: choice.kind,
            size: u32::try_from(size_of::<FirstAttributes>()).expect("invariant: 64 fits"),
            config: choice.config,
            flags: choice.flags,
            ..FirstAttributes::default()
        };
        let no_group = -1;
        // SAFETY: the attributes have the layout that their size stands for and live across the
        // call, which only reads them.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                thread,
                cpu,
                no_group,
                CLOSE_ON_EXEC,
            )
        };
        let fd = checked("perf_event_open", fd)?;
        let fd = i32::try_from(fd).expect("invariant: a descriptor is an int");
        // SAFETY: the descriptor was just opened and nothing else owns it.
        Ok(Self(File::from(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    /// Reads the count; that of a CPU on that CPU, which is interrupted for it.
    pub(super) fn count(&self) -> Result<u64, Error> {
        let mut count = [0; 8];
        let read = (&self.0).read_exact(&mut count);
        read.map_err(Error::calling("read"))?;
        Ok(u64::from_ne_bytes(count))
    }
}
