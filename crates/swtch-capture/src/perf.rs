//! Records switches without root, by `perf_event_open(2)`: the kernel tells when own threads leave
//! a CPU and come back, and whether they could have run on.
//!
//! ```text
//! kernel: one event a CPU and process, inherited by its children, all events of a CPU in one ring
//!    └▶ rings ─▶ PerfRecord ─bytes─▶ caller              (PerfCapture::take)
//!                  bytes ─▶ PerfRecord ─▶ PerfThreads ─▶ Event      (after the recording)
//! ```
//!
//! That is allowed up to `kernel.perf_event_paranoid` 2 for processes that one may trace
//! (`ptrace(2)`). It tells less than eBPF: no wakeup, no system call, and nothing of who asked for
//! the CPU. So a blocked wait is not divided into blocked time and run-queue time, and a reason is
//! only "blocked" or "preempted".
//!
//! Source: `perf_event_switch` and `perf_iterate_sb`, `kernel/events/core.c`, v6.18.

mod counter;
mod record;
mod ring;
mod threads;

use std::collections::BTreeSet;
use std::fs;
use std::io;

use swtch_core::topology::cpus_of_list;
use swtch_core::{CpuId, Gap, Level, Pid, Timestamp};

pub use record::{PerfRecord, PerfRecordKind, decode_perf_records};
pub use threads::PerfThreads;

use crate::clock::monotonic_ns;
use crate::error::Error;
use crate::scope::{Children, RecordingScope, TargetProcess};
use counter::PerfEvent;
use ring::PerfRing;

/// Records that one ring had, ready to be kept.
#[derive(Clone, Copy, Debug)]
pub struct PerfBatch<'a> {
    /// Number of the ring; one more than the CPUs for what was found in `/proc`.
    pub ring: usize,
    /// Whether these are switch-outs. Each becomes a row.
    pub are_switch_outs: bool,
    /// Number of records.
    pub count: u64,
    /// The records, for [`decode_perf_records`].
    pub bytes: &'a [u8],
}

/// A recording without root that goes on.
#[derive(Debug)]
pub struct PerfCapture {
    rings: Vec<PerfRing>,
    /// Of each CPU and thread. A ring is written as long as they are open.
    events: Vec<PerfEvent>,
    targets: Vec<TargetProcess>,
    /// What `/proc` said of the threads that were there; taken with the first round.
    found: Vec<PerfRecord>,
    started: Timestamp,
    lost: u64,
    gaps: Vec<Gap>,
    /// Bytes of one batch.
    outs: Vec<u8>,
    others: Vec<u8>,
}

impl PerfCapture {
    /// Opens the events of these processes, and of those that they start later. A command must be
    /// held until this has returned.
    ///
    /// # Errors
    /// [`Error::PerfRefused`] where the kernel does not allow it, and [`Error::PerfScope`] for a
    /// scope that takes more rights.
    pub fn start(scope: &RecordingScope) -> Result<Self, Error> {
        let RecordingScope::Processes { pids, children } = scope else {
            return Err(Error::PerfScope);
        };
        let targets = pids.iter().map(|pid| TargetProcess::find(*pid));
        let targets = targets.collect::<Result<_, _>>()?;
        let mut capture = Self {
            rings: Vec::new(),
            events: Vec::new(),
            targets,
            found: Vec::new(),
            started: Timestamp::from_ns(monotonic_ns()),
            lost: 0,
            gaps: Vec::new(),
            outs: Vec::new(),
            others: Vec::new(),
        };
        let cpus = online_cpus();
        let mut known = BTreeSet::new();
        // A thread that is started while this looks inherits from one that is known, or is found by
        // the next look.
        loop {
            let threads = threads_of(pids, *children);
            let fresh: Vec<_> = threads.difference(&known).copied().collect();
            if fresh.is_empty() {
                return Ok(capture);
            }
            for (pid, tid) in fresh {
                capture.open_thread(pid, tid, &cpus)?;
                known.insert((pid, tid));
            }
        }
    }

    /// Tries whether the kernel lets this user record own processes.
    ///
    /// # Errors
    /// [`Error::PerfRefused`] where it does not.
    pub fn trial() -> Result<(), Error> {
        let cpu = online_cpus().first().copied().unwrap_or(0);
        let opened = PerfEvent::open(Pid::new(std::process::id()), cpu);
        opened.map(drop).map_err(Error::PerfRefused)
    }

    /// Opens the events of one thread. One that has ended meanwhile is passed over.
    fn open_thread(&mut self, pid: Pid, tid: Pid, cpus: &[u16]) -> Result<(), Error> {
        for (index, cpu) in cpus.iter().enumerate() {
            let event = match PerfEvent::open(tid, *cpu) {
                Ok(event) => event,
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
                // A CPU that went offline meanwhile has no switches.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => continue,
                Err(error) => return Err(Error::PerfRefused(error)),
            };
            match self.rings.iter().find(|ring| ring.cpu() == *cpu) {
                Some(ring) => event.write_to(ring).map_err(Error::PerfRefused)?,
                None => self.rings.push(PerfRing::map(&event, index, *cpu)?),
            }
            self.events.push(event);
        }
        let comm = fs::read(format!("/proc/{pid}/task/{tid}/comm")).unwrap_or_default();
        let ts = Timestamp::from_ns(monotonic_ns());
        self.found
            .push(PerfRecord::named(ts, pid, tid, comm.trim_ascii_end()));
        Ok(())
    }

    /// The start of the recording, on the trace clock.
    pub const fn started(&self) -> Timestamp {
        self.started
    }

    /// Number of records that a ring has room for.
    pub fn slots_per_cpu(&self) -> u64 {
        self.rings.iter().map(PerfRing::slots).min().unwrap_or(0)
    }

    /// Number of records that were lost because a ring had no space. A switch has two: one where a
    /// thread leaves and one where it comes back.
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// When and where records were lost since the last call.
    pub fn take_gaps(&mut self) -> Vec<Gap> {
        std::mem::take(&mut self.gaps)
    }

    /// Whether none of the processes that were asked for runs any more.
    pub fn targets_are_gone(&self) -> bool {
        self.targets.iter().all(|target| target.is_gone())
    }

    /// Empties the rings once. Returns how many switch-outs there were, and how many records the
    /// fullest ring had.
    pub fn take(&mut self, mut keep: impl FnMut(PerfBatch<'_>)) -> (u64, u64) {
        let (mut switches, mut most) = (0, 0);
        let found = std::mem::take(&mut self.found);
        if !found.is_empty() {
            self.others.clear();
            found
                .iter()
                .for_each(|record| record.encode(&mut self.others));
            keep(PerfBatch {
                ring: usize::from(u16::MAX),
                are_switch_outs: false,
                count: found.len() as u64,
                bytes: &self.others,
            });
        }
        for ring in &mut self.rings {
            self.outs.clear();
            self.others.clear();
            let (mut outs, mut others) = (0, 0);
            let (lost, gaps) = (&mut self.lost, &mut self.gaps);
            let (out_bytes, other_bytes) = (&mut self.outs, &mut self.others);
            ring.take(|record| match record.kind {
                PerfRecordKind::Blocked | PerfRecordKind::Preempted | PerfRecordKind::Exit => {
                    outs += 1;
                    record.encode(out_bytes);
                }
                kind => {
                    if kind == PerfRecordKind::Lost {
                        *lost += record.number;
                        gaps.push(gap(&record));
                    }
                    others += 1;
                    record.encode(other_bytes);
                }
            });
            let batches = [(true, outs, &self.outs), (false, others, &self.others)];
            for (are_switch_outs, count, bytes) in batches.into_iter().filter(|batch| batch.1 > 0) {
                keep(PerfBatch {
                    ring: ring.stream(are_switch_outs),
                    are_switch_outs,
                    count,
                    bytes,
                });
            }
            switches += outs;
            most = most.max(outs + others);
        }
        (switches, most)
    }

    /// Ends the recording: nothing more is written into the rings.
    pub fn detach(&mut self) {
        self.events.iter().for_each(PerfEvent::disable);
    }
}

/// The kernel tells of a loss with the next record that finds room, and not when it began.
fn gap(lost: &PerfRecord) -> Gap {
    Gap {
        cpu: CpuId::new(lost.cpu),
        start: lost.ts,
        end: lost.ts,
        lost: lost.number,
        level: Level::Os,
    }
}

/// Numbers of the CPUs that are online.
fn online_cpus() -> Vec<u16> {
    let list = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let cpus = cpus_of_list(list.trim()).filter(|cpus| !cpus.is_empty());
    cpus.map_or_else(
        || vec![0],
        |cpus| cpus.into_iter().map(CpuId::get).collect(),
    )
}

/// The living threads of these processes, each with its process.
fn threads_of(pids: &[Pid], children: Children) -> BTreeSet<(Pid, Pid)> {
    let mut threads = BTreeSet::new();
    let mut left = pids.to_vec();
    while let Some(pid) = left.pop() {
        for tid in numbers_in(&format!("/proc/{pid}/task")).unwrap_or_default() {
            if threads.insert((pid, Pid::new(tid))) && children == Children::Recorded {
                left.extend(children_of(pid, tid));
            }
        }
    }
    threads
}

/// The processes that a thread has started and that live (`CONFIG_PROC_CHILDREN`).
fn children_of(pid: Pid, tid: u32) -> Vec<Pid> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).unwrap_or_default();
    let children = list.split_ascii_whitespace();
    children
        .filter_map(|child| child.parse().ok().map(Pid::new))
        .collect()
}

/// The entries of a directory that are numbers.
fn numbers_in(directory: &str) -> io::Result<Vec<u32>> {
    let entries = fs::read_dir(directory)?.flatten();
    Ok(entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect())
}
