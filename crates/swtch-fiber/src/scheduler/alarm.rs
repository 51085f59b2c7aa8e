//! How a scheduler sleeps in the kernel and is woken.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd};

use super::asleep::Asleep;

/// The bell of one scheduler.
#[derive(Debug)]
pub(crate) struct Alarm {
    asleep: Asleep,
    event: File,
}

impl Alarm {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: takes plain numbers.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that nobody else owns.
        let event = unsafe { File::from_raw_fd(descriptor) };
        Ok(Self {
            asleep: Asleep::new(),
            event,
        })
    }

    /// Wakes the scheduler if it sleeps. Call it after what it is to find was put in place.
    pub(crate) fn ring(&self) {
        if self.asleep.must_be_woken() {
            // The counter cannot overflow: it is written once per sleep.
            let _written = (&self.event).write(&1_u64.to_ne_bytes());
        }
    }

    /// The sleeper's announcement. It must look once more before it sleeps.
    pub(crate) fn announce_sleep(&self) {
        self.asleep.announce();
    }

    /// The sleeper is awake, or did not sleep after all.
    pub(crate) fn awake(&self) {
        self.asleep.end();
    }

    /// Empties the bell after it woke somebody.
    pub(crate) fn quiet(&self) {
        let mut count = [0; 8];
        // "Would block" means that it was empty.
        let _read = (&self.event).read(&mut count);
    }

    /// What to poll for reading.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
