//! Records switches without root, by `perf_event_open(2)`: the kernel tells when own threads leave
//! a CPU and come back, and whether they could have run on.
//!
//! ```text
//! kernel: one event a CPU and process, inherited by its children, all events of a CPU in one ring
//!    └▶ rings ─▶ PerfRecord ─bytes─▶ caller              (PerfCapture::take)
//!                  bytes ─▶ PerfRecord ─▶ PerfThreads ─▶ Event      (swtch_wire, after the recording)
//! ```
//!
//! That is allowed up to `kernel.perf_event_paranoid` 2 for processes that one may trace
//! (`ptrace(2)`). It tells less than eBPF: no wakeup, no system call, and nothing of who asked for
//! the CPU. So a blocked wait is not divided into blocked time and run-queue time, and a reason is
//! only "blocked" or "preempted".
//!
//! Where a ring was full, the kernel tells how many records were lost, of whatever kind. The number of switch-outs among
//! them is estimated (`most_switch_outs`).
//!
//! Source: `perf_event_switch` and `perf_iterate_sb`, `kernel/events/core.c`, v6.18.

mod counter;
mod ring;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use swtch_core::topology::cpus_of_list;
use swtch_core::{CpuId, Gap, Level, Pid, Timestamp};
use swtch_wire::{PerfRecord, PerfRecordKind};

use crate::clock::monotonic_ns;
use crate::error::Error;
use crate::limits::{ResourceLimit, require};
use crate::scope::{Children, RecordingScope, TargetProcess};
use counter::PerfEvent;
use ring::PerfRing;

/// Descriptors that a recorder needs besides those of events: files of the trace, pipes, and what is opened
/// for a moment.
const OTHER_DESCRIPTORS: u64 = 60;

/// Records that one ring had, ready to be kept.
#[derive(Clone, Copy, Debug)]
pub struct PerfBatch<'a> {
    /// Number of the ring; one more than the CPUs for what was found in `/proc`.
    pub ring: usize,
    /// True if these are switch-outs. Each becomes a row.
    pub are_switch_outs: bool,
    /// Number of records.
    pub count: u64,
    /// The records, for [`decode_perf_records`](swtch_wire::decode_perf_records).
    pub bytes: &'a [u8],
}

/// A recording without root that goes on.
#[derive(Debug)]
pub struct PerfCapture {
    rings: Vec<PerfRing>,
    /// Of each CPU and thread. A ring is written as long as they are open.
    events: Vec<PerfEvent>,
    targets: Vec<TargetProcess>,
    /// The records made from `/proc` of the threads that were there; taken with the first round.
    found: Vec<PerfRecord>,
    started: Timestamp,
    /// Switch-outs that were lost, by the records that the rings tell of.
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
        let cpus = online_cpus(Path::new(ONLINE_CPUS))?;
        let mut known = BTreeSet::new();
        // A thread that is started while this looks inherits from one that is known, or is found by
        // the next look.
        loop {
            let threads = threads_of(pids, *children);
            let fresh: Vec<_> = threads.difference(&known).copied().collect();
            if fresh.is_empty() {
                return Ok(capture);
            }
            // Each thread has an event on each CPU, and each CPU a ring.
            let events = (known.len() + fresh.len() + 1) * cpus.len();
            require(ResourceLimit::OpenFiles, OTHER_DESCRIPTORS + events as u64)?;
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
        let own = Pid::new(std::process::id());
        for cpu in online_cpus(Path::new(ONLINE_CPUS))? {
            match PerfEvent::open(own, cpu) {
                // It went offline meanwhile.
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {}
                opened => return opened.map(drop).map_err(Error::PerfRefused),
            }
        }
        Ok(())
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

    /// Number of switch-outs that were lost because a ring had no space: an estimate, which the true number does not
    /// exceed.
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns when and where switch-outs were lost since the last call, with the estimates that [`Self::lost`] sums.
    pub fn take_gaps(&mut self) -> Vec<Gap> {
        std::mem::take(&mut self.gaps)
    }

    /// Returns true if none of the processes that were asked for runs any more.
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
                        let gap = gap(&record);
                        *lost += gap.lost;
                        gaps.push(gap);
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

    /// Counts what was lost at the end of a ring: a ring tells of a loss with the next record that
    /// finds room, and after these none came. The recording must be detached and its rings be taken.
    /// A kernel before 6.0 does not count the losses of an event, so that they are not known there.
    ///
    /// # Errors
    /// When the count of an event cannot be read.
    pub fn count_losses_at_end(&mut self) -> io::Result<()> {
        let end = Timestamp::from_ns(monotonic_ns());
        for ring in &self.rings {
            let mut counted = 0;
            for event in self.events.iter().filter(|event| event.cpu() == ring.cpu()) {
                counted += event.lost()?.unwrap_or(0);
            }
            let lost = most_switch_outs(counted.saturating_sub(ring.lost()));
            if lost > 0 {
                self.lost += lost;
                self.gaps.push(Gap {
                    cpu: CpuId::new(ring.cpu()),
                    start: ring.last().unwrap_or(self.started),
                    end,
                    lost,
                    level: Level::Os,
                });
            }
        }
        Ok(())
    }
}

/// The kernel tells of a loss with the next record that finds room, and not when it began.
fn gap(lost: &PerfRecord) -> Gap {
    Gap {
        cpu: CpuId::new(lost.cpu),
        start: lost.ts,
        end: lost.ts,
        lost: most_switch_outs(lost.number),
        level: Level::Os,
    }
}

/// The most switch-outs that so many consecutive records of a CPU can hold. On each CPU, a record of a thread that comes
/// follows one of a thread that leaves, so every other record is a switch-out. Records of names and of new threads make
/// it fewer.
const fn most_switch_outs(records: u64) -> u64 {
    records.div_ceil(2)
}

/// The file in which the kernel lists the CPUs that are online.
const ONLINE_CPUS: &str = "/sys/devices/system/cpu/online";

/// Numbers of the CPUs that are online, by this file. To guess them would leave switches out without
/// a word.
fn online_cpus(file: &Path) -> Result<Vec<u16>, Error> {
    let failed = |source| Error::OnlineCpus {
        file: file.to_owned(),
        source,
    };
    let list = fs::read_to_string(file).map_err(failed)?;
    let cpus = cpus_of_list(list.trim()).filter(|cpus| !cpus.is_empty());
    let cpus = cpus.ok_or_else(|| {
        let said = format!("{:?} is no list of CPUs", list.trim());
        failed(io::Error::new(io::ErrorKind::InvalidData, said))
    })?;
    Ok(cpus.into_iter().map(CpuId::get).collect())
}

/// The living threads of a recording by perf events, each with its process.
pub fn threads_in(scope: &RecordingScope) -> BTreeSet<(Pid, Pid)> {
    match scope {
        RecordingScope::Processes { pids, children } => threads_of(pids, *children),
        _ => BTreeSet::new(),
    }
}

/// The living threads of these processes, each with its process. The recorder may be below one of
/// them, as where a shell is recorded that has started it: it is left out with what it starts.
fn threads_of(pids: &[Pid], children: Children) -> BTreeSet<(Pid, Pid)> {
    let recorder = Pid::new(std::process::id());
    let mut threads = BTreeSet::new();
    let mut left = pids.to_vec();
    while let Some(pid) = left.pop() {
        for tid in numbers_in(&format!("/proc/{pid}/task")).unwrap_or_default() {
            if threads.insert((pid, Pid::new(tid))) && children == Children::Recorded {
                let children = children_of(pid, tid).into_iter();
                left.extend(children.filter(|child| *child != recorder));
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

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use swtch_wire::decode_perf_records;

    use super::*;

    /// The list of CPUs is never guessed: switches on those that are not guessed would be missing
    /// without a word.
    #[test]
    fn a_list_of_cpus_that_cannot_be_read_is_an_error_that_names_it() {
        let missing = Path::new("/no/such/list");
        let refusal = online_cpus(missing).unwrap_err();
        assert!(refusal.to_string().contains("/no/such/list"), "{refusal}");
        // Another file, which holds no list.
        let nonsense = online_cpus(Path::new("/proc/self/comm")).unwrap_err();
        assert!(matches!(nonsense, Error::OnlineCpus { .. }), "{nonsense:?}");
        assert!(!online_cpus(Path::new(ONLINE_CPUS)).unwrap().is_empty());
    }

    /// Rings that nobody empties are full after 16,000 records each, which are 8,000 switches. No record comes after
    /// those that found no room, so no record tells of them.
    #[test]
    #[expect(
        clippy::zombie_processes,
        reason = "wait4 waits for it, which tells what it used"
    )]
    fn what_is_lost_at_the_end_is_counted() {
        if let Err(refusal) = PerfCapture::trial() {
            swtch_test::skip!("perf events are not permitted: {refusal}");
        }
        let script = "read go; dd if=/dev/zero bs=64k count=30000 | dd bs=64k of=/dev/null";
        let mut command = Command::new("sh");
        let command = command.args(["-c", script]).stdin(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let scope = RecordingScope::Processes {
            pids: vec![Pid::new(child.id())],
            children: Children::Recorded,
        };
        let mut capture = PerfCapture::start(&scope).unwrap();
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let switches = switches_of_ended(child.id());
        capture.detach();
        let (mut kept, mut told) = (0, 0);
        capture.take(|batch| {
            decode_perf_records(batch.bytes, |record| match record.kind {
                PerfRecordKind::Lost => told += most_switch_outs(record.number),
                PerfRecordKind::Blocked | PerfRecordKind::Preempted | PerfRecordKind::Exit => {
                    kept += 1;
                }
                _ => {}
            });
        });
        assert_eq!(capture.lost(), told);
        capture.count_losses_at_end().unwrap();
        let lost = capture.lost();
        println!("{switches} switches: {kept} kept, {told} told as lost, {lost} lost");
        assert!(lost > 500, "{lost}: the rings should be full");
        // Names and forks may be among the records that were lost.
        assert!((kept + lost).abs_diff(switches) < 50);
        let lengths = capture.take_gaps();
        assert_eq!(lengths.iter().map(|gap| gap.lost).sum::<u64>(), lost);
    }

    /// Waits for a child, and returns how many switches the kernel counted of it and of its children.
    fn switches_of_ended(pid: u32) -> u64 {
        // SAFETY: a structure of numbers, all of which may be 0.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        let pid = libc::pid_t::try_from(pid).unwrap();
        // SAFETY: the structure lives across the call, which writes it.
        let ended = unsafe { libc::wait4(pid, std::ptr::null_mut(), 0, &raw mut usage) };
        assert_eq!(ended, pid);
        u64::try_from(usage.ru_nvcsw + usage.ru_nivcsw).unwrap()
    }
}
