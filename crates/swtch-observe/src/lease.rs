//! The lease: while a recorder renews it, the target writes its switches into its rings.
//!
//! The lease is a moment in the future, in one word of the target's header. When the recorder dies,
//! that moment passes and writing ends by itself; a target never waits for a recorder.

use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};

use super::mapping::{Access, FileMapping};
use crate::layout::Header;

/// The right to have switches recorded. It has a small mapping of its own, the only memory of a
/// target that an observer can change. Nothing makes a lease shorter, and dropping this does not end it.
#[derive(Debug)]
pub struct Lease {
    header: FileMapping,
}

impl Lease {
    /// Maps the header of a checked page for writing.
    pub(super) fn new(file: &File) -> std::io::Result<Self> {
        let header = FileMapping::new(file, size_of::<Header>(), Access::Write)?;
        Ok(Self { header })
    }

    /// Has switches written until this tick of the target's clock, or longer if another recorder
    /// has asked for more.
    pub fn renew(&self, until_ticks: u64) {
        self.until().fetch_max(until_ticks, Ordering::Relaxed);
    }

    fn until(&self) -> &AtomicU64 {
        let header: Option<&Header> = self.header.at(0);
        &header.expect("a header was mapped").record_until_ticks
    }
}
