//! Operations without a switch, to compare switches with. What each primitive costs when nobody is
//! there to take the turn is act 1 of its ring.

use std::hint::black_box;

use serde::{Deserialize, Serialize};

use super::act::{Act, Timing, timed};
use crate::clock;
use crate::error::Error;

/// An operation that everybody has a feeling for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Yardstick {
    /// A call of an empty function.
    EmptyCall,
    /// A system call that does nothing: `getppid`, which no library answers.
    SystemCall,
    /// A look at `CLOCK_MONOTONIC`.
    ClockRead,
    /// A copy of 64 KiB that are in the cache to 64 KiB that are there too.
    #[serde(rename = "copy_64_kib")]
    Copy64Kib,
}

impl Yardstick {
    /// All of them.
    pub const ALL: &'static [Self] = &[
        Self::EmptyCall,
        Self::SystemCall,
        Self::ClockRead,
        Self::Copy64Kib,
    ];

    pub(crate) fn act(self) -> Box<dyn Act> {
        match self {
            Self::EmptyCall => Box::new(Repeated(empty_call)),
            Self::SystemCall => Box::new(Repeated(system_call)),
            Self::ClockRead => Box::new(Repeated(clock_read)),
            Self::Copy64Kib => {
                let (from, mut to) = (vec![1_u8; COPIED], vec![2_u8; COPIED]);
                Box::new(Repeated(move |times| copy(&from, &mut to, times)))
            }
        }
    }
}

/// Bytes of [`Yardstick::Copy64Kib`].
const COPIED: usize = 64 * 1024;

/// A function that does the operation so many times.
struct Repeated<F>(F);

impl<F: FnMut(u64)> Act for Repeated<F> {
    fn block(&mut self, operations: u64) -> Result<Timing, Error> {
        (self.0)(1 + operations / 16);
        timed(operations, || {
            (self.0)(operations);
            Ok(())
        })
    }
}

/// The address goes through `black_box` every time, so that each call is a call.
fn empty_call(times: u64) {
    for _ in 0..times {
        black_box(empty as fn())();
    }
}

#[inline(never)]
fn empty() {}

fn system_call(times: u64) {
    for _ in 0..times {
        // SAFETY: getppid has no arguments and cannot fail.
        unsafe { libc::syscall(libc::SYS_getppid) };
    }
}

fn clock_read(times: u64) {
    for _ in 0..times {
        black_box(clock::now());
    }
}

fn copy(from: &[u8], to: &mut [u8], times: u64) {
    for _ in 0..times {
        to.copy_from_slice(black_box(from));
        black_box(&mut *to);
    }
}
