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
//! Each segment can be read without those before it, so it begins with what they said and still
//! holds: the tasks that live, their command lines, names of wait types. Paths of cgroups are told
//! again when a record names one.

mod dumps;
mod watch;

use std::collections::VecDeque;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};
use swtch_capture::{Capture, LivingTasks, WIRE_VERSION, monotonic_ns, process_cpu_ns};
use swtch_core::{Arch, CgroupId, Nanos, Pid, TaskEvent, TaskEventKind, Timestamp, Trigger};
use swtch_store::{
    CommandRow, Counts, Error, Meta, RecordingState, RingFacts, Segments, StreamKind, UserCounts,
    WaitTypeRow, Writer,
};

use super::facts;
use watch::TriggerWatch;

pub use dumps::{DumpAnswer, DumpAsk, DumpRequests, SOCKET};
pub use watch::Firing;

/// What is asked of a flight recorder.
#[derive(Clone, Debug)]
pub struct RingRequest {
    /// How much is kept.
    pub size: KeptSize,
    /// When a dump is made by itself: whenever one of them holds.
    pub when: Vec<Trigger>,
    /// The shortest time between two dumps that are made by themselves or by a signal.
    pub dump_every: Duration,
    /// Number of dumps that are kept.
    pub keep_dumps: usize,
}

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptSize {
    /// What was recorded in so much time.
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
    const LEAST_TIME: Duration = Duration::from_secs(1);
    /// The smallest ring.
    const LEAST_BYTES: u64 = 1 << 20;

    /// Whether a segment of this length and size is to be followed by the next.
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

/// `30s`, `5m`, `2h`, `512MB`, `4GB`.
impl FromStr for KeptSize {
    type Err = String;

    fn from_str(words: &str) -> Result<Self, String> {
        let refusal = || {
            format!(
                "`{words}` is no size of a ring: give a time (30s, 5m, 2h) or a size (512MB, 4GB)"
            )
        };
        let digits = words.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let number: f64 = digits.parse().map_err(|_| refusal())?;
        let time = |seconds: f64| {
            let time = Duration::try_from_secs_f64(number * seconds).map_err(|_| refusal())?;
            match time >= Self::LEAST_TIME {
                true => Ok(Self::Time(time)),
                false => Err(format!(
                    "`{words}` is too short for a ring: give at least 1s"
                )),
            }
        };
        match &words[digits.len()..] {
            "s" => time(1.0),
            "m" | "min" => time(60.0),
            "h" => time(3600.0),
            unit if unit.len() > 1 => match crate::cli::values::size(words) {
                Ok(bytes) if bytes >= Self::LEAST_BYTES => Ok(Self::Bytes(bytes)),
                Ok(_) => Err(format!(
                    "`{words}` is too small for a ring: give at least 1MB"
                )),
                Err(_) => Err(refusal()),
            },
            _ => Err(refusal()),
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
}

/// What had been counted when a segment began.
#[derive(Clone, Debug)]
struct SegmentStart {
    number: u64,
    began: Timestamp,
    counts: Counts,
    user: Option<UserCounts>,
    ctxt: Option<u64>,
    recorder_cpu_ns: u64,
}

/// What earlier segments said and still holds.
#[derive(Default)]
struct StillTrue {
    tasks: LivingTasks,
    commands: FxHashMap<Pid, CommandRow>,
    wait_types: Vec<WaitTypeRow>,
    cgroups: FxHashMap<CgroupId, String>,
}

impl SegmentStart {
    fn now(number: u64, capture: &Capture, user: Option<UserCounts>) -> Self {
        Self {
            number,
            began: Timestamp::from_ns(monotonic_ns()),
            counts: facts::kernel_counts(capture),
            user,
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
            ..SegmentStart::now(0, capture, None)
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

    /// The trace.
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

    /// Takes the bytes of task records.
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

    /// Forgets what is known of a process that has ended.
    pub fn meet(&mut self, task: &TaskEvent) {
        if let Some(watch) = &mut self.watch {
            watch.meet(task);
        }
        if task.kind == TaskEventKind::Exit && task.pid.get() == task.tid.get() {
            self.known.commands.remove(&task.pid);
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

    /// Whether the newest segment, of so many bytes, is to be followed by the next.
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
        user: Option<UserCounts>,
    ) -> Result<Writer, Error> {
        let start = SegmentStart::now(self.current.number + 1, capture, user);
        let mut meta = self.meta.clone();
        meta.start_ns = start.began.as_ns();
        let mut next = self.segments.begin(start.number, &meta, WIRE_VERSION)?;
        self.sealed.push_back(Sealed {
            ended: start.began,
            bytes: full.bytes_written(),
            start: std::mem::replace(&mut self.current, start),
        });
        self.tell_what_still_holds(&mut next)?;
        self.known.cgroups.retain(|cgroup, _| told_cgroups(*cgroup));
        self.drop_old()?;
        Ok(next)
    }

    fn tell_what_still_holds(&mut self, next: &mut Writer) -> Result<(), Error> {
        let known = &mut self.known;
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

    /// Makes a dump of the sealed segments, or of those of the last `last` alone. Returns its path.
    pub fn dump(
        &mut self,
        cause: &DumpCause,
        last: Option<Duration>,
        totals: RingTotals,
    ) -> Result<PathBuf, Error> {
        let end = self.current.began;
        let is_wanted = |segment: &&Sealed| {
            let age = end.since(segment.ended).unwrap_or(Nanos::ZERO);
            last.is_none_or(|last| Duration::from_nanos(age.as_ns()) < last)
        };
        let wanted: Vec<_> = self.sealed.iter().filter(is_wanted).collect();
        let numbers: Vec<_> = wanted.iter().map(|segment| segment.start.number).collect();
        let mut meta = self.meta.clone();
        if let Some(first) = wanted.first() {
            narrow(&mut meta, &first.start, &self.current);
        }
        meta.state = RecordingState::Finished;
        meta.end_ns = end.as_ns();
        meta.overhead.recorder_peak_rss_bytes = facts::peak_memory_bytes("self");
        self.add_totals(&mut meta, totals);
        if let Some(ring) = &mut meta.ring {
            ring.dumped_because = Some(cause.in_dump_from(meta.start_ns));
        }
        let trace = self.whole.directory();
        let now = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
        let mut nth = 1;
        let (name, path) = loop {
            let name = match nth {
                1 => format!("{now}.swtch"),
                _ => format!("{now}-{nth}.swtch"),
            };
            match self.segments.dump(trace, &name, &numbers, &meta) {
                Err(Error::Exists { .. }) if nth < super::MOST_OF_A_NAME => nth += 1,
                made => break (name, made?),
            }
        };
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
        subtract_before(meta, first);
        meta.start_ns = first.began.as_ns();
        meta.kernel.ctxt_before = first.ctxt;
        // The kernel's counts of processes are since the start.
        meta.tree = None;
        meta.ring.clone_from(&self.meta.ring);
        self.add_totals(meta, totals);
    }

    fn add_totals(&self, meta: &mut Meta, totals: RingTotals) {
        if let Some(ring) = &mut meta.ring {
            ring.switches = totals.switches;
            ring.lost = totals.lost;
        }
    }
}

/// Why a dump is made.
#[derive(Clone, Debug)]
pub struct DumpCause {
    what: String,
    /// When it happened, if it was a switch.
    at: Option<Timestamp>,
}

impl DumpCause {
    const fn asked(what: String) -> Self {
        Self { what, at: None }
    }

    fn of_firing(firing: &Firing) -> Self {
        let mut what = firing.what.clone();
        if firing.more > 0 {
            what += &format!("; and {} more switches", firing.more);
        }
        Self {
            what,
            at: Some(firing.at),
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

/// What was recorded since the start.
#[derive(Clone, Copy, Debug)]
pub struct RingTotals {
    pub switches: u64,
    pub lost: u64,
}

/// The facts of the time from the start of one segment to that of a later one.
fn narrow(meta: &mut Meta, first: &SegmentStart, end: &SegmentStart) {
    meta.start_ns = first.began.as_ns();
    meta.kernel.ctxt_before = first.ctxt;
    meta.kernel.ctxt_after = end.ctxt;
    meta.counts = end.counts;
    meta.user.clone_from(&end.user);
    meta.overhead.recorder_cpu_ns = end.recorder_cpu_ns;
    subtract_before(meta, first);
}

/// Takes off what had been counted before a segment began.
fn subtract_before(meta: &mut Meta, first: &SegmentStart) {
    let (counts, before) = (&mut meta.counts, &first.counts);
    for (count, before) in [
        (&mut counts.filtered, before.filtered),
        (&mut counts.lost, before.lost),
        (&mut counts.idle, before.idle),
        (&mut counts.untraced, before.untraced),
        (&mut counts.storage_refused, before.storage_refused),
        (&mut meta.overhead.recorder_cpu_ns, first.recorder_cpu_ns),
    ] {
        *count = count.saturating_sub(before);
    }
    if let (Some(user), Some(before)) = (&mut meta.user, &first.user) {
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

    #[test]
    fn a_ring_is_of_time_or_of_bytes() {
        let parse = |words: &str| words.parse::<KeptSize>();
        let seconds = |seconds| Ok(KeptSize::Time(Duration::from_secs(seconds)));
        assert_eq!(parse("30s"), seconds(30));
        assert_eq!(parse("5m"), seconds(300));
        assert_eq!(parse("1.5h"), seconds(5400));
        assert_eq!(parse("512MB"), Ok(KeptSize::Bytes(512 << 20)));
        assert_eq!(parse("2GiB"), Ok(KeptSize::Bytes(2 << 30)));
        for refused in [
            "", "5", "m", "0.5s", "900ms", "100KB", "5M", "-1s", "1e99h", "infs", "NaNs",
        ] {
            assert!(parse(refused).is_err(), "{refused}");
        }
    }

    /// What `meta.json` says is what was asked for.
    #[test]
    fn sizes_are_shown_as_they_are_given() {
        for words in ["30s", "1.5s", "5m", "90m", "512MB"] {
            let size: KeptSize = words.parse().unwrap();
            assert_eq!(size.to_string(), words);
        }
    }

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
