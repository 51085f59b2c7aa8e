//! `swtch record --ring`: a flight recorder, which keeps the last part of what it records.
//!
//! ```text
//!       oldest                                 the one that is written
//! ring  ┌─────────┬─────────┬─────────┬────────┐
//!       │ sealed  │ sealed  │ sealed  │ ▒▒▒▒   │──▶ time
//!       └─────────┴─────────┴─────────┴────────┘
//!         │ dropped once the others hold enough
//! dump  ──┴── seals the one that is written; the files of all get further names
//! ```
//!
//! A sealed segment is a recording that has ended, and its `meta.json` says so, with the counts of its
//! time: whoever may read the ring can take it from there, without asking anybody (`swtch dump SEGMENT -o OUT.swtch`).
//!
//! Each segment can be read without those before it, so it begins with what they said and still
//! holds: the tasks that live, their command lines, names of wait types. Paths of cgroups are told
//! again when a record names one.

mod dumps;
mod watch;

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};
use swtch_capture::{Capture, monotonic_ns, process_cpu_ns};
use swtch_core::{Arch, CgroupId, Nanos, Pid, TaskEvent, Timestamp, Trigger};
use swtch_store::{
    CommandRow, Counts, Error, FiredSwitch, Meta, QuotaFacts, RecordingState, RingFacts, Segments,
    StreamKind, UserCounts, WaitTypeRow, Writer,
};
use swtch_wire::{LivingTasks, WIRE_VERSION};

use super::{facts, under_free_name};
use watch::TriggerWatch;

pub use dumps::{DumpAnswer, DumpAsk, DumpRequests, MOST_ASK_BYTES, SOCKET};
pub use watch::Firing;

/// A request for a flight recorder.
#[derive(Clone, Debug)]
pub struct RingRequest {
    /// The amount that is kept.
    pub size: KeptSize,
    /// The conditions for dumps that are made by themselves: whenever one of them holds.
    pub when: Vec<Trigger>,
    /// The shortest time between two dumps that are made by themselves or by a signal.
    pub dump_every: Duration,
    /// Number of dumps that are kept.
    pub keep_dumps: usize,
}

/// The amount that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptSize {
    /// All that was recorded in so much time.
    Time(Duration),
    /// So many bytes on disk.
    Bytes(u64),
}

impl KeptSize {
    /// A ring has about so many segments.
    const SEGMENTS: u32 = 16;
    /// The shortest time that a segment takes, unless a dump ends it.
    const SHORTEST: Duration = Duration::from_millis(500);
    /// The shortest ring.
    pub const LEAST_TIME: Duration = Duration::from_secs(1);
    /// The smallest ring.
    pub const LEAST_BYTES: u64 = 1 << 20;

    /// Returns true if a segment of this length and size is to be followed by the next.
    fn is_full(self, length: Duration, bytes: u64) -> bool {
        length >= Self::SHORTEST
            && match self {
                Self::Time(time) => length >= time / Self::SEGMENTS,
                Self::Bytes(most) => bytes >= most / u64::from(Self::SEGMENTS),
            }
    }
}

/// As it is given, and as `meta.json` says it.
impl fmt::Display for KeptSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Time(time) => match time.as_secs() {
                seconds if seconds >= 60 && seconds.is_multiple_of(60) => {
                    write!(f, "{}m", seconds / 60)
                }
                _ => write!(f, "{}s", time.as_secs_f64()),
            },
            Self::Bytes(bytes) => write!(f, "{}MB", bytes >> 20),
        }
    }
}

/// The ring of one recording. The pipeline writes into its newest segment.
pub struct FlightRing {
    size: KeptSize,
    /// The trace, which gets rows when the recording has ended.
    whole: Writer,
    segments: Segments,
    /// The facts about the trace at its start.
    meta: Meta,
    sealed: VecDeque<Sealed>,
    current: SegmentStart,
    known: StillTrue,
    /// `None` if no condition was given.
    watch: Option<TriggerWatch>,
    /// Names of the dumps that are there, the oldest first.
    dumps: VecDeque<String>,
    keep_dumps: usize,
    /// Number of switches that could not be written because the disk was full.
    dropped: u64,
}

/// A segment that is complete.
#[derive(Debug)]
struct Sealed {
    start: SegmentStart,
    ended: Timestamp,
    bytes: u64,
    /// Switches of it that found no room on the disk.
    not_written: u64,
}

/// The counts at the beginning of a segment.
#[derive(Clone, Debug)]
struct SegmentStart {
    number: u64,
    began: Timestamp,
    counts: Counts,
    more: SegmentCounts,
    ctxt: Option<u64>,
    recorder_cpu_ns: u64,
}

/// The counts beside those of the kernel side.
#[derive(Clone, Debug, Default)]
pub struct SegmentCounts {
    pub user: Option<UserCounts>,
    pub quotas: Vec<QuotaFacts>,
}

/// The facts that earlier segments said and that still hold.
#[derive(Default)]
struct StillTrue {
    tasks: LivingTasks,
    commands: FxHashMap<Pid, CommandRow>,
    wait_types: Vec<WaitTypeRow>,
    cgroups: FxHashMap<CgroupId, String>,
}

impl SegmentStart {
    fn now(number: u64, capture: &Capture, more: SegmentCounts) -> Self {
        Self {
            number,
            began: Timestamp::from_ns(monotonic_ns()),
            counts: facts::kernel_counts(capture),
            more,
            ctxt: facts::ctxt(),
            recorder_cpu_ns: process_cpu_ns(),
        }
    }
}

impl FlightRing {
    /// Makes a ring in the trace of `writer`, which becomes the writer of its first segment.
    pub fn begin(
        request: &RingRequest,
        writer: &mut Writer,
        meta: &Meta,
        arch: Arch,
        capture: &Capture,
    ) -> Result<Self, Error> {
        let mut meta = meta.clone();
        meta.ring = Some(RingFacts {
            kept: request.size.to_string(),
            began_ns: meta.start_ns,
            ..RingFacts::default()
        });
        let segments = Segments::create(writer.directory())?;
        let current = SegmentStart {
            began: Timestamp::from_ns(meta.start_ns),
            ..SegmentStart::now(0, capture, SegmentCounts::default())
        };
        let first = segments.begin(current.number, &meta, WIRE_VERSION)?;
        Ok(Self {
            size: request.size,
            whole: std::mem::replace(writer, first),
            segments,
            meta,
            sealed: VecDeque::new(),
            current,
            known: StillTrue::default(),
            watch: TriggerWatch::new(&request.when, arch),
            dumps: VecDeque::new(),
            keep_dumps: request.keep_dumps,
            dropped: 0,
        })
    }

    pub const fn whole(&self) -> &Writer {
        &self.whole
    }

    /// As [`Writer::check_that_it_is_there`], of the trace.
    pub fn check_that_it_is_there(&mut self) -> Result<(), Error> {
        self.whole.check_that_it_is_there()
    }

    /// The trace, to be given its rows.
    pub fn into_whole(self) -> Writer {
        self.whole
    }

    pub fn meet_tasks(&mut self, bytes: &[u8]) {
        self.known.tasks.meet(bytes);
    }

    /// Looks at switches for the conditions.
    pub fn look(&mut self, records: &[u8], count: u64) {
        if let Some(watch) = &mut self.watch {
            watch.look(records, count);
        }
    }

    /// The first condition that held since the last call.
    pub fn take_firing(&mut self) -> Option<Firing> {
        self.watch.as_mut()?.take()
    }

    /// Tells the conditions the names of a thread.
    pub fn meet(&mut self, task: &TaskEvent) {
        if let Some(watch) = &mut self.watch {
            watch.meet(task);
        }
    }

    /// Keeps a command line for later segments.
    pub fn keep_command(&mut self, command: &CommandRow) {
        self.known.commands.insert(command.pid, command.clone());
    }

    /// Keeps the name of a wait type for later segments.
    pub fn keep_wait_type(&mut self, wait_type: &WaitTypeRow) {
        self.known.wait_types.push(wait_type.clone());
    }

    /// Keeps the path of a cgroup, which may be removed.
    pub fn keep_cgroup(&mut self, cgroup: CgroupId, path: &str) {
        self.known.cgroups.insert(cgroup, path.to_owned());
    }

    /// Takes the cgroups out of `wanted` whose paths an earlier segment has told, with their paths.
    pub fn take_known_paths(&self, wanted: &mut FxHashSet<CgroupId>) -> Vec<(CgroupId, String)> {
        let paths = &self.known.cgroups;
        let known = wanted.extract_if(|cgroup| paths.contains_key(cgroup));
        known
            .map(|cgroup| (cgroup, paths[&cgroup].clone()))
            .collect()
    }

    /// Returns true if the newest segment, of so many bytes, is to be followed by the next.
    pub fn is_due(&self, bytes: u64) -> bool {
        let now = Timestamp::from_ns(monotonic_ns());
        let length = now.since(self.current.began).unwrap_or(Nanos::ZERO);
        self.size
            .is_full(Duration::from_nanos(length.as_ns()), bytes)
    }

    /// Begins the next segment, and drops those that are not needed any more. `full` has been
    /// flushed. `told_cgroups` are those that it names. Returns the writer of the next.
    pub fn rotate(
        &mut self,
        full: &Writer,
        told_cgroups: impl Fn(CgroupId) -> bool,
        capture: &Capture,
        counts: SegmentCounts,
        totals: RingTotals,
    ) -> Result<Writer, Error> {
        let start = SegmentStart::now(self.current.number + 1, capture, counts);
        let mut sealed = self.facts_between(&self.current, &start);
        let not_written = full.records_not_written().switches;
        sealed.counts.storage_failed = not_written;
        totals.add_to(&mut sealed);
        full.seal(&sealed)?;
        let mut meta = self.meta.clone();
        meta.start_ns = start.began.as_ns();
        let mut next = self.segments.begin(start.number, &meta, WIRE_VERSION)?;
        self.sealed.push_back(Sealed {
            ended: start.began,
            bytes: full.bytes_written(),
            not_written,
            start: std::mem::replace(&mut self.current, start),
        });
        self.tell_what_still_holds(&mut next)?;
        self.known.cgroups.retain(|cgroup, _| told_cgroups(*cgroup));
        self.drop_old()?;
        Ok(next)
    }

    /// The facts about the time from the start of one segment to that of another.
    fn facts_between(&self, first: &SegmentStart, end: &SegmentStart) -> Meta {
        let mut meta = self.meta.clone();
        meta.state = RecordingState::Finished;
        meta.end_ns = end.began.as_ns();
        meta.kernel.ctxt_after = end.ctxt;
        meta.counts = end.counts;
        meta.user.clone_from(&end.more.user);
        meta.quotas.clone_from(&end.more.quotas);
        meta.overhead.recorder_cpu_ns = end.recorder_cpu_ns;
        meta.overhead.recorder_peak_rss_bytes = facts::peak_memory_bytes("self");
        begin_with(&mut meta, first);
        meta
    }

    fn tell_what_still_holds(&mut self, next: &mut Writer) -> Result<(), Error> {
        let known = &mut self.known;
        // A command line may come after the end of a short-lived process was told.
        let alive: FxHashSet<Pid> = known.tasks.processes().collect();
        known.commands.retain(|pid, _| alive.contains(pid));
        let (count, tasks) = known.tasks.records_at(self.current.began);
        if count > 0 {
            next.record(StreamKind::LivingTasks, 0, count, &tasks)?;
        }
        for command in known.commands.values() {
            next.push_command(command)?;
        }
        for wait_type in &known.wait_types {
            next.push_wait_type(wait_type)?;
        }
        next.flush()
    }

    /// Drops the oldest segments, as long as the others hold what is to be kept.
    fn drop_old(&mut self) -> Result<(), Error> {
        while self.has_enough_without_oldest()
            && let Some(oldest) = self.sealed.pop_front()
        {
            self.segments.remove(oldest.start.number)?;
        }
        Ok(())
    }

    fn has_enough_without_oldest(&self) -> bool {
        match self.size {
            KeptSize::Time(time) => {
                let oldest = self.sealed.front();
                let age = oldest.and_then(|oldest| self.current.began.since(oldest.ended));
                age.is_some_and(|age| Duration::from_nanos(age.as_ns()) >= time)
            }
            KeptSize::Bytes(most) => {
                // The next segment grows to its share.
                let sealed: u64 = self.sealed.iter().map(|segment| segment.bytes).sum();
                sealed + most / u64::from(KeptSize::SEGMENTS) > most
            }
        }
    }

    /// Drops the older half of the sealed segments, because the disk was full for the newest one;
    /// false if there is none to drop.
    pub fn make_room(&mut self, newest: &Writer) -> Result<bool, Error> {
        self.dropped += newest.records_not_written().switches;
        let older = self.sealed.len().div_ceil(2);
        for segment in self.sealed.drain(..older) {
            self.segments.remove(segment.start.number)?;
        }
        Ok(older > 0)
    }

    /// Number of switches that could not be written because the disk was full.
    pub const fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Makes a dump of this part of the sealed segments. Returns its path.
    pub fn dump(
        &mut self,
        cause: &DumpCause,
        part: DumpPart,
        totals: RingTotals,
    ) -> Result<PathBuf, Error> {
        let end = self.current.began;
        let is_wanted = |segment: &&Sealed| match part {
            DumpPart::All => true,
            DumpPart::Last(last) => {
                let age = end.since(segment.ended).unwrap_or(Nanos::ZERO);
                Duration::from_nanos(age.as_ns()) <= last
            }
        };
        let wanted: Vec<_> = self.sealed.iter().filter(is_wanted).collect();
        let numbers: Vec<_> = wanted.iter().map(|segment| segment.start.number).collect();
        let first = wanted.first().map_or(&self.current, |first| &first.start);
        let mut meta = self.facts_between(first, &self.current);
        meta.counts.storage_failed = wanted.iter().map(|segment| segment.not_written).sum();
        totals.add_to(&mut meta);
        if let Some(ring) = &mut meta.ring {
            ring.dumped_because = Some(cause.in_dump_from(meta.start_ns));
            ring.fired = cause.switch;
        }
        let trace = self.whole.directory();
        let (name, path) = under_free_name(|nth| {
            let name = facts::dated_name(nth);
            let path = self.segments.dump(trace, &name, &numbers, &meta)?;
            Ok((name, path))
        })?;
        self.dumps.push_back(name);
        self.remove_old_dumps();
        Ok(path)
    }

    fn remove_old_dumps(&mut self) {
        while self.dumps.len() > self.keep_dumps
            && let Some(oldest) = self.dumps.pop_front()
        {
            // The user may have moved or removed it, which is theirs to do.
            let _ = Segments::remove_dump(self.whole.directory(), &oldest);
        }
    }

    /// Makes the facts at the end of the recording those of the part that was kept.
    pub fn narrow_to_kept(&self, meta: &mut Meta, totals: RingTotals) {
        let first = self.sealed.front().map(|segment| &segment.start);
        let first = first.unwrap_or(&self.current);
        begin_with(meta, first);
        // The kernel's counts of processes are since the start.
        meta.tree = None;
        meta.ring.clone_from(&self.meta.ring);
        totals.add_to(meta);
    }
}

/// Which segments a dump is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpPart {
    /// All that are kept.
    All,
    /// Those of so much time before the dump.
    Last(Duration),
}

/// The cause of a dump.
#[derive(Clone, Debug)]
pub struct DumpCause {
    what: String,
    /// The moment at which it happened, if it was a switch.
    at: Option<Timestamp>,
    /// That switch.
    switch: Option<FiredSwitch>,
}

impl DumpCause {
    const fn asked(what: String) -> Self {
        Self {
            what,
            at: None,
            switch: None,
        }
    }

    fn of_firing(firing: &Firing) -> Self {
        let mut what = firing.what.clone();
        if firing.more > 0 {
            what += &format!("; and {} more switches", firing.more);
        }
        Self {
            what,
            at: Some(firing.at),
            switch: Some(firing.switch),
        }
    }

    /// In words, with its moment as the reports of a dump count time.
    fn in_dump_from(&self, start_ns: u64) -> String {
        let since = self
            .at
            .and_then(|at| at.since(Timestamp::from_ns(start_ns)));
        match since {
            Some(since) => format!("{} ({since} after the start)", self.what),
            None => self.what.clone(),
        }
    }
}

/// The counts since the start.
#[derive(Clone, Copy, Debug)]
pub struct RingTotals {
    pub switches: u64,
    pub lost: u64,
    pub untraced: u64,
}

impl RingTotals {
    const fn add_to(self, meta: &mut Meta) {
        if let Some(ring) = &mut meta.ring {
            ring.switches = self.switches;
            ring.lost = self.lost;
            ring.untraced = self.untraced;
        }
    }
}

/// Makes facts that are known to the end those of the time from the start of a segment on: takes
/// off what had been counted before.
fn begin_with(meta: &mut Meta, first: &SegmentStart) {
    meta.start_ns = first.began.as_ns();
    meta.kernel.ctxt_before = first.ctxt;
    let (counts, before) = (&mut meta.counts, &first.counts);
    for (count, before) in [
        (&mut counts.filtered, before.filtered),
        (&mut counts.lost, before.lost),
        (&mut counts.idle, before.idle),
        (&mut counts.untraced, before.untraced),
        (&mut counts.storage_refused, before.storage_refused),
        (&mut counts.lost_names, before.lost_names),
        (&mut meta.overhead.recorder_cpu_ns, first.recorder_cpu_ns),
    ] {
        *count = count.saturating_sub(before);
    }
    for quota in &mut meta.quotas {
        let mut before = first.more.quotas.iter();
        if let Some(before) = before.find(|before| before.cgroup == quota.cgroup) {
            quota.throttled_periods -= before.throttled_periods.min(quota.throttled_periods);
            quota.throttled_ns -= before.throttled_ns.min(quota.throttled_ns);
        }
    }
    if let (Some(count), Some(before)) = (&mut counts.untraced_in_scope, before.untraced_in_scope) {
        *count = count.saturating_sub(before);
    }
    if let (Some(user), Some(before)) = (&mut meta.user, &first.more.user) {
        for (count, before) in [
            (&mut user.written, before.written),
            (&mut user.idle, before.idle),
            (&mut user.lost, before.lost),
            (&mut user.words_unread, before.words_unread),
        ] {
            *count = count.saturating_sub(before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring holds at least what was asked for: it drops a segment when the others cover it.
    #[test]
    fn segments_are_a_sixteenth_and_never_shorter_than_half_a_second() {
        let time = KeptSize::Time(Duration::from_secs(160));
        assert!(!time.is_full(Duration::from_secs(9), u64::MAX));
        assert!(time.is_full(Duration::from_secs(10), 0));
        let bytes = KeptSize::Bytes(16 << 20);
        assert!(!bytes.is_full(Duration::from_secs(3600), 1 << 19));
        assert!(!bytes.is_full(Duration::from_millis(400), 1 << 20));
        assert!(bytes.is_full(Duration::from_millis(500), 1 << 20));
    }
}
