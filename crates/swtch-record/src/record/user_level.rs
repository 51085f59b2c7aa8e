//! Records the switches of user-mode schedulers in the recorded processes.
//!
//! ```text
//! task events ─▶ finder ─Page─▶ WatchedProcess ─┬─ words ─▶ kernel side: which worker a thread ran
//!  (processes)   (a process)     │              └─ events ─▶ merge ─▶ timeline ─▶ rows of `user`
//!                                └ lease: "go on writing for a second", ten times a second
//! ```
//!
//! A process without a scheduler is inspected a few times and then left alone. The contents of a
//! page are checked in `swtch_observe`; here they are only converted to events, and `timeline` makes
//! rows of those. Losses at this level are counted apart, because they are not losses of the kernel's
//! switches.

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

/// The time between two rounds that take over new pages, renew leases and look up threads. A lease
/// lasts a second, so it survives if several rounds are late.
const EVERY: Duration = Duration::from_millis(100);

/// The recorder keeps at most this many reasons why a scheduler could not be watched.
pub const MOST_REFUSED: usize = 20;

/// The user-mode schedulers of all recorded processes.
pub(crate) struct UserLevel {
    finder: Finder,
    watched: Vec<WatchedProcess>,
    wait_types: WaitTypes,
    /// The first stream of the merge that is free for schedulers; those before are the kernel's.
    first_stream: usize,
    /// Number of streams that schedulers have taken so far.
    stream_count: usize,
    counts: UserCounts,
    /// Gaps that [`Self::take_gaps`] has not returned yet.
    gaps: Vec<Gap>,
    /// The start of the last round, which [`EVERY`] is measured from.
    last_round: Instant,
}

impl UserLevel {
    /// Watches the processes that `finder` finds. Each of their schedulers gets a stream of the
    /// merge, from `first_stream` on.
    pub fn new(finder: Finder, first_stream: usize) -> Self {
        Self {
            finder,
            watched: Vec::new(),
            wait_types: WaitTypes::default(),
            first_stream,
            stream_count: 0,
            counts: UserCounts::default(),
            gaps: Vec::new(),
            last_round: Instant::now(),
        }
    }

    /// Notes a task's event, which may hint that its process has a scheduler or will soon start one.
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
        if self.last_round.elapsed() < EVERY {
            return Ok(());
        }
        self.last_round = Instant::now();
        self.take_over_found();
        self.open_rings();
        for watched in &mut self.watched {
            watched.renew_lease();
            watched.tell_words(capture)?;
        }
        // A process is over only when it has ended and its rings have been read to the end, so no
        // event is lost here.
        self.watched.retain(|watched| !watched.is_over());
        Ok(())
    }

    /// Begins to watch the processes that the finder has found since the last round.
    fn take_over_found(&mut self) {
        for report in self.finder.found() {
            match report {
                FinderReport::Page(page) => {
                    self.counts.processes += 1;
                    let (watched, refusal) = WatchedProcess::new(*page);
                    self.watched.push(watched);
                    self.refuse(refusal);
                }
                FinderReport::Refused(why) => self.refuse(Some(why)),
            }
        }
    }

    /// Returns true if any process with a scheduler is watched. The rings must then be drained more
    /// often, because a scheduler's ring is smaller than those of the kernel side.
    pub const fn is_watching(&self) -> bool {
        !self.watched.is_empty()
    }

    /// Opens the rings of new schedulers in processes that are watched, so that the next
    /// [`Self::drain`] reads them.
    pub fn open_rings(&mut self) {
        for watched in &mut self.watched {
            watched.open_rings(|| {
                let stream = self.first_stream + self.stream_count;
                self.stream_count += 1;
                stream
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

    /// Returns the gaps since the last call.
    pub fn take_gaps(&mut self) -> Vec<Gap> {
        std::mem::take(&mut self.gaps)
    }

    /// Returns the names of the wait types that are new since the last call.
    pub fn take_wait_types(&mut self) -> Vec<WaitTypeRow> {
        self.wait_types.take_fresh()
    }

    /// Returns the counts so far; `None` if no scheduler was found and nothing was refused.
    pub fn counts(&self) -> Option<UserCounts> {
        let has_any = self.counts.processes > 0 || !self.counts.refused.is_empty();
        has_any.then(|| self.counts.clone())
    }

    /// The process that looks for schedulers, whose cost is part of the overhead.
    pub const fn finder(&self) -> &Finder {
        &self.finder
    }

    /// Keeps a reason why something at this level is not recorded, if there is one.
    pub fn refuse(&mut self, why: Option<String>) {
        let refused = &mut self.counts.refused;
        if let Some(why) = why
            && refused.len() < MOST_REFUSED
        {
            refused.push(why);
        }
    }
}
