//! The memory of another process, read for a limited time.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use nix::unistd::alarm;
use swtch_core::Pid;
use swtch_runtimes::ProcessMemory;

/// The longest that it is read at once.
const LONGEST_READ: Duration = Duration::from_millis(200);

/// Seconds after which this process is ended, because something that it reads does not come: another process may have to
/// hand it out (`userfaultfd(2)`). The recorder says that there are no more stacks, and goes on.
const LONGEST_CALL_S: u32 = 2;

/// Reads what another process may keep from coming.
pub fn watched<T>(read: impl FnOnce() -> T) -> T {
    alarm::set(LONGEST_CALL_S);
    let read = read();
    alarm::cancel();
    read
}

/// The memory of one address space: after its process has ended or executed another program, nothing is read.
#[derive(Debug)]
pub struct MemoryFile {
    file: File,
    begun: Instant,
}

impl MemoryFile {
    /// That which the process has now; `None` if it may not be read.
    pub fn of(pid: Pid) -> Option<Self> {
        let file = File::open(format!("/proc/{pid}/mem")).ok()?;
        let begun = Instant::now();
        Some(Self { file, begun })
    }

    /// Begins the time anew for which it is read.
    pub fn begin(&mut self) {
        self.begun = Instant::now();
    }
}

impl ProcessMemory for MemoryFile {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.begun.elapsed() < LONGEST_READ && self.file.read_exact_at(bytes, address).is_ok()
    }
}
