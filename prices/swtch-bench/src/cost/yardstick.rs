//! Operations without a switch, to compare switches with. What the calls of a hand-over cost without
//! a peer is not here: it is measured as the baseline of their ring.

use std::hint::black_box;

use serde::{Deserialize, Serialize};

use super::timed_operation::{TimedOperation, Timing, timed};
use crate::clock;
use crate::error::Error;

/// A well-known operation that serves for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Yardstick {
    /// An indirect call of an empty function.
    EmptyCall,
    /// A system call that does nothing: `getppid`, which no library answers by itself.
    SystemCall,
    /// A reading of `CLOCK_MONOTONIC` by `clock_gettime`.
    ClockRead,
    /// A copy of 64 KiB, with source and target in the cache.
    #[serde(rename = "copy_64_kib")]
    Copy64Kib,
}

impl Yardstick {
    /// All variants, in the order of their declaration.
    pub const ALL: &'static [Self] = &[
        Self::EmptyCall,
        Self::SystemCall,
        Self::ClockRead,
        Self::Copy64Kib,
    ];

    pub(super) fn timed_operation(self) -> Box<dyn TimedOperation> {
        match self {
            Self::EmptyCall => Box::new(Repeated(empty_call)),
            Self::SystemCall => Box::new(Repeated(system_call)),
            Self::ClockRead => Box::new(Repeated(clock_read)),
            Self::Copy64Kib => {
                let (from, mut to) = (vec![1_u8; COPY_BYTES], vec![2_u8; COPY_BYTES]);
                Box::new(Repeated(move |times| copy(&from, &mut to, times)))
            }
        }
    }
}

/// Bytes that [`Yardstick::Copy64Kib`] copies per operation.
const COPY_BYTES: usize = 64 * 1024;

/// A function that performs the operation a given number of times.
struct Repeated<F>(F);

impl<F: FnMut(u64)> TimedOperation for Repeated<F> {
    fn block(&mut self, operations: u64) -> Result<Timing, Error> {
        let warm_up = 1 + operations / 16;
        (self.0)(warm_up);
        timed(operations, || {
            (self.0)(operations);
            Ok(())
        })
    }
}

/// `black_box` hides the address every time, so that the compiler keeps each call; the call is
/// indirect because of that.
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

/// Reads `CLOCK_MONOTONIC`. Blocks are timed by another clock, `CLOCK_MONOTONIC_RAW`.
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
