//! The memory of another process, read for a limited time.

use std::cell::Cell;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use nix::unistd::alarm;
use swtch_capture::LookedThread;
use swtch_core::Pid;
use swtch_host::thread::read_runs;
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
    begun: Cell<Instant>,
}

impl MemoryFile {
    /// That which the process has now; `None` if it may not be read.
    pub fn of(pid: Pid) -> Option<Self> {
        let file = File::open(format!("/proc/{pid}/mem")).ok()?;
        let begun = Cell::new(Instant::now());
        Some(Self { file, begun })
    }

    /// That of the program which a thread is in, that was just looked at; `None` if it has run on since, and so may be in
    /// another, or another process may have the number.
    pub fn of_thread(thread: &LookedThread<'_>) -> Option<Self> {
        let memory = Self::of(thread.pid)?;
        let runs = read_runs(thread.pid, thread.tid).ok().flatten();
        (runs.is_some() && runs == thread.runs).then_some(memory)
    }

    /// False once it was read for as long as it may be.
    pub fn is_in_time(&self) -> bool {
        self.begun.get().elapsed() < LONGEST_READ
    }

    /// Begins the time anew for which it is read.
    pub fn begin(&self) {
        self.begun.set(Instant::now());
    }
}

impl ProcessMemory for MemoryFile {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        self.is_in_time() && self.file.read_exact_at(bytes, address).is_ok()
    }
}
