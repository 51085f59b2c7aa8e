//! The timeout of a socket's operations.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A time span that may be changed while other threads use the socket; 0 ns stands for no limit.
#[derive(Debug, Default)]
pub(super) struct Timeout(AtomicU64);

impl Timeout {
    pub(super) fn get(&self) -> Option<Duration> {
        let nanoseconds = self.0.load(Ordering::Relaxed);
        (nanoseconds != 0).then(|| Duration::from_nanos(nanoseconds))
    }

    /// # Errors
    /// For a span of 0, as std does, since 0 could mean "no limit" or "at once".
    pub(super) fn set(&self, span: Option<Duration>) -> io::Result<()> {
        if span.is_some_and(|span| span.is_zero()) {
            let why = "a timeout of 0 is none";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let nanoseconds = span.map_or(0, |span| span.as_nanos().try_into().unwrap_or(u64::MAX));
        self.0.store(nanoseconds, Ordering::Relaxed);
        Ok(())
    }
}

impl Clone for Timeout {
    fn clone(&self) -> Self {
        Self(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }
}
