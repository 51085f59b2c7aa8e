//! The times at which waits end at the latest.

use std::time::Duration;

use swtch_observe::clock;

/// The time at which a wait ends at the latest, on `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Deadline {
    pub(crate) monotonic_ns: u64,
}

impl Deadline {
    /// `span` from now; the largest time where that would overflow.
    pub(crate) fn after(span: Duration) -> Self {
        let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        Self {
            monotonic_ns: clock::monotonic_ns().saturating_add(span),
        }
    }
}

/// The deadline of a [`timeout`](crate::timeout) around all waits of a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) deadline: Deadline,
    /// Tells nested timeouts of a worker apart.
    pub(crate) number: u64,
}
