//! Records the switches of user-mode schedulers in the recorded processes.
//!
//! ```text
//! task events ─▶ finder ─Page─▶ WatchedProcess ─┬─ words ─▶ kernel side: which worker a thread ran
//!  (processes)   (a process)     │              └─ events ─▶ merge ─▶ timeline ─▶ rows of `user`
//!                                └ lease: "go on writing for a second", ten times a second
//! ```
//!
//! A process without a scheduler is inspected a few times and then left alone. The contents of a
//! page are checked in `swtch_observe`; here they are only converted to rows. Losses at this
//! level are counted apart: they are not losses of the kernel's switches.

mod finder;
mod wait_types;
mod watched;

use std::time::{Duration, Instant};

use swtch_capture::{Capture, Drained, monotonic_ns};
use swtch_core::{Event, Gap, TaskEvent, Timestamp};
use swtch_store::{UserCounts, WaitTypeRow};

use wait_types::WaitTypes;
use watched::WatchedProcess;

pub use finder::{Finder, FinderReport, find_schedulers};

/// The time between two rounds that take over new pages, renew leases and look up threads.
const EVERY: Duration = Duration::from_millis(100);

/// At most this many reasons why a scheduler could not be watched are kept.
pub const MOST_REFUSED: usize = 20;

/// The user-mode schedulers of all recorded processes.
pub(crate) struct UserLevel {
    finder: Finder,
    watched: Vec<WatchedProcess>,
    wait_types: WaitTypes,
    first_stream: usize,
    streams: usize,
    counts: UserCounts,
    gaps: Vec<Gap>,
    looked: Instant,
}

impl UserLevel {
    /// Watches the processes that `finder` finds. Their events go to streams of the merge, from
    /// `first_stream` on.
    pub fn new(finder: Finder, first_stream: usize) -> Self {
        Self {
            finder,
            watched: Vec::new(),
            wait_types: WaitTypes::default(),
            first_stream,
            streams: 0,
            counts: UserCounts::default(),
            gaps: Vec::new(),
            looked: Instant::now(),
        }
    }

    /// Notes an event of a task: its process may have, or soon start, a scheduler.
    pub fn meet(&mut self, task: &TaskEvent) {
        self.finder.meet(task);
    }

    /// Watches schedulers that were found and renews the leases, if [`EVERY`] has passed since the
    /// last time.
    ///
    /// # Errors
    /// When the kernel side has no room for more threads.
    pub fn look(&mut self, capture: &mut Capture) -> Result<(), swtch_capture::Error> {
        self.finder.pass_on();
        if self.looked.elapsed() < EVERY {
            return Ok(());
        }
        self.looked = Instant::now();
        for met in self.finder.found() {
            match met {
                FinderReport::Page(page) => {
                    self.counts.processes += 1;
                    let (watched, refusal) = WatchedProcess::new(*page);
                    self.watched.push(watched);
                    self.refuse(refusal);
                }
                FinderReport::Refused(why) => self.refuse(Some(why)),
            }
        }
        self.open_rings();
        for watched in &mut self.watched {
            watched.renew_lease();
            watched.tell_words(capture)?;
        }
        // All that an ended process had left in its rings has been read.
        self.watched.retain(|watched| !watched.is_over());
        Ok(())
    }

    /// Returns true if any scheduler is watched. Its ring is smaller than those of the kernel side.
    pub const fn is_watching(&self) -> bool {
        !self.watched.is_empty()
    }

    /// Opens the rings of new schedulers in processes that are watched, so that the next
    /// [`Self::drain`] reads them.
    pub fn open_rings(&mut self) {
        for watched in &mut self.watched {
            let streams = &mut self.streams;
            watched.open_rings(|| {
                *streams += 1;
                self.first_stream + *streams - 1
            });
        }
    }

    /// Reads all rings. Each event is passed to `sink` with the stream of its scheduler.
    pub fn drain(&mut self, mut sink: impl FnMut(usize, Event)) -> Drained {
        let now = Timestamp::from_ns(monotonic_ns());
        let mut drained = Drained::default();
        for watched in &mut self.watched {
            drained = drained.and(watched.drain(
                now,
                &mut self.wait_types,
                &mut self.counts,
                &mut self.gaps,
                &mut sink,
            ));
        }
        drained
    }

    /// The gaps since the last call.
    pub fn take_gaps(&mut self) -> Vec<Gap> {
        std::mem::take(&mut self.gaps)
    }

    /// Names of wait types that are new since the last call.
    pub fn take_wait_types(&mut self) -> Vec<WaitTypeRow> {
        self.wait_types.take_fresh()
    }

    /// The counts so far; `None` if no scheduler was found.
    pub fn counts(&self) -> Option<UserCounts> {
        let is_any = self.counts.processes > 0 || !self.counts.refused.is_empty();
        is_any.then(|| self.counts.clone())
    }

    /// The process that looks for schedulers, whose cost is part of the overhead.
    pub const fn finder(&self) -> &Finder {
        &self.finder
    }

    /// Keeps a reason why something at this level is not recorded, if there is one.
    pub fn refuse(&mut self, why: Option<String>) {
        let refused = &mut self.counts.refused;
        refused.extend(why.filter(|_| refused.len() < MOST_REFUSED));
    }
}
