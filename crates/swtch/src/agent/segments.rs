//! Takes what the flight recorder has recorded, part by part, and writes each as a trace in its final
//! form: Parquet, for a lake.
//!
//! ```text
//! ring.swtch ─"what came after the last part"─▶ dump (hard links) ─rows─▶ .unfinished/WHEN.swtch
//!                                                                            └─rename─▶ segments/WHEN.swtch
//! ```
//!
//! So whatever is in `segments` is whole. Two parts that follow each other have no switch in common and
//! leave none out, as long as a part is taken before it leaves the ring; what was missed is counted.
//!
//! Where only a part of the time is asked for, the parts between are dumps, too, that nobody reads:
//!
//! ```text
//! ├─length─┼──── pause ────┼─length─┼──── pause ────┤
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use swtch_output::message;
use swtch_output::text::escaped;
use swtch_store::Trace;

use super::recorder::SinkRequest;
use super::totals::{AgentTotals, SinkCounts};
use crate::dump;
use crate::record::{DumpAnswer, DumpAsk};

/// Where segments are, in the directory of the sink.
pub const SEGMENTS: &str = "segments";

/// Where a segment is while it is written.
pub const UNFINISHED: &str = ".unfinished";

/// How often dumps are counted.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// How often segments are written, and how much disk they may take.
#[derive(Clone, Copy, Debug)]
pub struct SegmentsRequest {
    /// The time that a segment holds.
    pub length: Duration,
    /// From the end of one to the begin of the next; zero if all is written.
    pub pause: Duration,
    /// The most that all of them may take on disk.
    pub most_bytes: u64,
}

/// Starts the thread that writes segments, and counts dumps.
///
/// # Errors
/// When the system refuses.
pub fn start(sink: &SinkRequest, totals: &Arc<Mutex<AgentTotals>>) -> Result<()> {
    let mut taker = SegmentTaker {
        sink: sink.clone(),
        totals: Arc::clone(totals),
        after_ns: 0,
        told: None,
    };
    thread::Builder::new()
        .name("swtch-segments".to_owned())
        .spawn(move || taker.run())
        .context("starting a thread")?;
    Ok(())
}

struct SegmentTaker {
    sink: SinkRequest,
    totals: Arc<Mutex<AgentTotals>>,
    /// The end of the last part that was taken.
    after_ns: u64,
    /// The last error that was told.
    told: Option<String>,
}

impl SegmentTaker {
    fn run(&mut self) {
        loop {
            let Some(asked) = self.sink.segments else {
                self.wait(LOOK_EVERY);
                continue;
            };
            self.wait(asked.length);
            // One that could not be made is made again before the pause, of what there is by then.
            if !self.round(asked) || asked.pause.is_zero() {
                continue;
            }
            self.wait(asked.pause);
            while !self.went_well(Self::pass_over) {
                self.wait(LOOK_EVERY);
            }
        }
    }

    /// Waits, and counts dumps meanwhile.
    fn wait(&self, time: Duration) {
        let mut left = time;
        while left > Duration::ZERO {
            let step = left.min(LOOK_EVERY);
            thread::sleep(step);
            left -= step;
            let dumps = number_in(&self.sink.ring().join("dumps"));
            self.count(|counts| counts.dumps = dumps);
        }
    }

    /// Whether a segment was written. The oldest go beyond the bound on all of them.
    fn round(&mut self, asked: SegmentsRequest) -> bool {
        let is_written = self.went_well(Self::take_part);
        let removed = self.remove_down_to(asked.most_bytes);
        let bytes = size_of(&self.segments());
        self.count(|counts| {
            counts.written += u64::from(is_written);
            counts.removed_for_size += removed;
            counts.bytes = bytes;
        });
        is_written
    }

    /// Whether this went well. What went wrong is counted, and told once.
    fn went_well(&mut self, act: impl FnOnce(&mut Self) -> Result<()>) -> bool {
        let Err(error) = act(self) else {
            self.told = None;
            return true;
        };
        self.count(|counts| counts.failed += 1);
        let why = format!("{error:#}");
        if self.told.as_ref() != Some(&why) {
            message!("swtch: no segment: {}; metrics go on", escaped(&why));
            self.told = Some(why);
        }
        false
    }

    /// Lets go of what came after the last part: the next one begins now.
    fn pass_over(&mut self) -> Result<()> {
        let dump = self.dump_of_next()?;
        let end_ns = Trace::open_recorded(&dump).map(|trace| trace.meta().end_ns);
        fs::remove_dir_all(&dump).with_context(|| format!("removing {}", dump.display()))?;
        self.after_ns = end_ns.context("reading the dump")?;
        Ok(())
    }

    /// Takes what came after the last part.
    fn take_part(&mut self) -> Result<()> {
        let dump = self.dump_of_next()?;
        let written = self.write(&dump);
        if written.is_err() {
            // It is not among the dumps that the recorder removes. The first error is the one to report.
            let _ = fs::remove_dir_all(&dump);
        }
        written
    }

    /// A dump of what came after the last part.
    fn dump_of_next(&self) -> Result<PathBuf> {
        let ask = DumpAsk {
            after_ns: Some(self.after_ns),
            because: Some("the next segment".to_owned()),
            ..DumpAsk::default()
        };
        let ring = self.sink.ring();
        let answer = dump::request(&ring, &ask).context("asking the flight recorder")?;
        match answer {
            DumpAnswer::Dump(name) => Ok(ring.join(name)),
            DumpAnswer::Error(why) => bail!("the flight recorder made no dump: {why}"),
        }
    }

    fn write(&mut self, dump: &Path) -> Result<()> {
        let (start_ns, end_ns) = {
            let trace = Trace::open_recorded(dump).context("reading the dump")?;
            (trace.meta().start_ns, trace.meta().end_ns)
        };
        let before = self.after_ns;
        self.after_ns = end_ns;
        let written = self.finish(dump);
        let missed_from = match &written {
            Ok(()) => start_ns,
            Err(_) => end_ns,
        };
        let missed = match before {
            // The recorder had just begun.
            0 if written.is_ok() => 0,
            0 => end_ns - start_ns,
            _ => missed_from.saturating_sub(before),
        };
        self.count(|counts| counts.missed_s += missed as f64 / 1e9);
        written
    }

    /// Writes a segment. As long as the disk is full, the oldest ones go.
    fn finish(&self, dump: &Path) -> Result<()> {
        let name = dump.file_name().context("a dump has a name")?;
        let unfinished = self.sink.directory.join(UNFINISHED).join(name);
        while let Err(error) = dump::finish(dump, &unfinished) {
            let oldest = names_in(&self.segments()).into_iter().next();
            let Some(oldest) = oldest.filter(|_| is_disk_full(&error)) else {
                return Err(error);
            };
            fs::remove_dir_all(&oldest)
                .with_context(|| format!("removing {}", oldest.display()))?;
            self.count(|counts| counts.removed_for_space += 1);
        }
        let segment = self.segments().join(name);
        fs::rename(&unfinished, &segment).with_context(|| format!("writing {}", segment.display()))
    }

    /// Removes the oldest segments until all take no more than this; returns how many.
    fn remove_down_to(&self, most: u64) -> u64 {
        let segments = names_in(&self.segments());
        let sizes: Vec<u64> = segments.iter().map(|path| size_of(path)).collect();
        let mut left: u64 = sizes.iter().sum();
        let mut removed = 0;
        for (path, size) in segments.iter().zip(sizes) {
            if left <= most {
                break;
            }
            // Who uploads them may remove them, too.
            let _ = fs::remove_dir_all(path);
            left -= size;
            removed += 1;
        }
        removed
    }

    fn segments(&self) -> PathBuf {
        self.sink.directory.join(SEGMENTS)
    }

    fn count(&self, change: impl FnOnce(&mut SinkCounts)) {
        let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut totals.sink);
    }
}

fn is_disk_full(error: &anyhow::Error) -> bool {
    let kinds = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>());
    let mut kinds = kinds.map(io::Error::kind);
    kinds.any(|kind| {
        matches!(
            kind,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        )
    })
}

/// What is in this directory, in the order of names, which is that of time.
fn names_in(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.path()).collect();
    names.sort_unstable();
    names
}

fn number_in(directory: &Path) -> u64 {
    u64::try_from(names_in(directory).len()).unwrap_or(u64::MAX)
}

/// Bytes of all files below.
fn size_of(path: &Path) -> u64 {
    let Ok(of) = fs::symlink_metadata(path) else {
        return 0;
    };
    match of.is_dir() {
        true => names_in(path).iter().map(|below| size_of(below)).sum(),
        false => of.len(),
    }
}
