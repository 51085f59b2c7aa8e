//! Wakes a sleeping scheduler, by an eventfd that it polls.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd};

use super::asleep::Asleep;

/// The eventfd of one scheduler, and whether the scheduler sleeps.
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
        // SAFETY: a new descriptor without another owner.
        let event = unsafe { File::from_raw_fd(descriptor) };
        Ok(Self {
            asleep: Asleep::new(),
            event,
        })
    }

    /// Wakes the scheduler if it sleeps. Call it after the work was put in place.
    pub(crate) fn ring(&self) {
        if self.asleep.must_be_woken() {
            // The counter cannot overflow: it is written once per sleep.
            let _written = (&self.event).write(&1_u64.to_ne_bytes());
        }
    }

    /// Announces that the scheduler is going to sleep. It must check for work once more before it
    /// sleeps.
    pub(crate) fn announce_sleep(&self) {
        self.asleep.announce();
    }

    /// Called when the scheduler is awake, or did not sleep after all.
    pub(crate) fn awake(&self) {
        self.asleep.end();
    }

    /// Resets the eventfd after it woke the scheduler.
    pub(crate) fn quiet(&self) {
        let mut count = [0; 8];
        // The error `WouldBlock` means that it was reset already.
        let _read = (&self.event).read(&mut count);
    }

    /// The descriptor to poll for reading.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}
