//! The child's side of a scan: workers or threads on one CPU, a hog that comes and goes, and both
//! levels' counters in windows.
//!
//! ```text
//!  the CPU     scheduler's thread (all workers)      hog
//!  elsewhere   monitor, and the thread that reads the counters
//! ```
//!
//! What reads the counters stays off that CPU if there is another: each reading would be a switch.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::{Pid, gettid};
use swtch_bench::load::UsableCpus;
use swtch_core::Tid;
use swtch_fiber::{Runtime, TaskBuilder, check_quantum};
use swtch_host::thread::read_counters;
use swtch_observe::{EventKind, Lease, Page, RingPosition, Snapshot, ThreadKind};

use super::script::{
    HogPhase, LevelCounts, Scan, Scanned, ScannerKind, UserRun, WINDOWS, WaitTypeTotals,
    WindowCounts,
};

/// Time to start workers, to touch pages, and until the first anchors of the scheduler's clock lie
/// far enough apart.
const WARM_UP: Duration = Duration::from_millis(300);

/// Numbers that are scanned between two yield points: 16 KiB.
const PORTION: usize = 2_048;

/// How long each renewal of the lease lasts. The scheduler records its switches only while the
/// lease holds.
const LEASE: Duration = Duration::from_secs(2);

/// Runs all phases of a scan in this process.
///
/// # Errors
/// A thread or the scheduler cannot be made, or its page not be read.
pub fn run(scan: &Scan) -> Result<Scanned> {
    let allowed = UsableCpus::here()?.allowed;
    let (home, others) = allowed.split_last().context("there is a CPU")?;
    if !others.is_empty() {
        bind(0, others)?;
    }
    let table: Arc<[u64]> = (0..u64::from(scan.megabytes) * 131_072).collect();
    let stop = Arc::new(AtomicBool::new(false));
    let mut scanners = Scanners::start(scan, *home, &table, &stop)?;
    thread::sleep(WARM_UP);
    let mut scanned = Scanned {
        threads: scanners.threads(),
        ..Scanned::default()
    };
    let waits_before = scanners.waits()?;
    for phase in HogPhase::ALL {
        let hog = (phase == HogPhase::Hog)
            .then(|| HogThread::start(*home))
            .transpose()?;
        if let Some(hog) = &hog {
            scanned.hog = (std::process::id(), hog.tid);
        }
        scanners.watch(phase, scan.phase, &mut scanned)?;
        drop(hog);
    }
    scanned.waits = waits_between(&waits_before, &scanners.waits()?);
    stop.store(true, Ordering::Relaxed);
    scanners.join()?;
    Ok(scanned)
}

/// The running scanners: workers of a scheduler, or threads.
enum Scanners {
    Workers {
        reader: Box<SchedulerReader>,
        runtime: Runtime,
        tasks: Vec<swtch_fiber::JoinHandle<()>>,
    },
    Threads {
        tids: Vec<u32>,
        threads: Vec<JoinHandle<()>>,
    },
}

/// The scheduler's page, and the ring in which it records its switches.
struct SchedulerReader {
    page: Page,
    scheduler: usize,
    tid: u32,
    ring: RingPosition,
    lease: Lease,
}

/// What one scanner scans: the whole table, from the part at which it begins, until `stop` is set.
#[derive(Clone)]
struct Scanner {
    number: usize,
    first: usize,
    table: Arc<[u64]>,
    stop: Arc<AtomicBool>,
}

impl Scanners {
    fn start(scan: &Scan, cpu: u32, table: &Arc<[u64]>, stop: &Arc<AtomicBool>) -> Result<Self> {
        let scanners = scan.scanners as usize;
        let parts = (0..scanners).map(|number| Scanner {
            number,
            first: table.len() / scanners * number,
            table: table.clone(),
            stop: stop.clone(),
        });
        match scan.who {
            ScannerKind::Workers => Self::start_workers(scan, cpu, parts),
            ScannerKind::Threads => {
                let started = parts.map(|part| on_cpu(cpu, move || part.scan(|| ())));
                let started: Vec<_> = started.collect::<Result<_>>()?;
                let (tids, threads) = started.into_iter().unzip();
                Ok(Self::Threads { tids, threads })
            }
        }
    }

    fn start_workers(scan: &Scan, cpu: u32, parts: impl Iterator<Item = Scanner>) -> Result<Self> {
        let runtime = Runtime::builder()
            .schedulers(1)
            .quantum(scan.quantum)
            .name("levels")
            // The hog is intended; a report of a stall would disturb.
            .stall_threshold(Duration::ZERO)
            .build()?;
        let reader = Box::new(SchedulerReader::open(cpu)?);
        let tasks = parts.map(|part| {
            let name = TaskBuilder::new().name(&format!("scan {}", part.number));
            runtime.spawn_with(name, move || {
                part.scan(|| {
                    check_quantum();
                });
            })
        });
        let tasks = tasks.collect::<Result<_, _>>()?;
        Ok(Self::Workers {
            reader,
            runtime,
            tasks,
        })
    }

    /// Process and thread id of each thread that the kernel sees.
    fn threads(&self) -> Vec<(u32, u32)> {
        let pid = std::process::id();
        match self {
            Self::Workers { reader, .. } => vec![(pid, reader.tid)],
            Self::Threads { tids, .. } => tids.iter().map(|tid| (pid, *tid)).collect(),
        }
    }

    /// Reads the counters of a phase, window by window.
    fn watch(&mut self, phase: HogPhase, length: Duration, scanned: &mut Scanned) -> Result<()> {
        let began = Instant::now();
        let (mut from_ns, mut before) = self.read_levels(scanned)?;
        for window in 1..=WINDOWS {
            let due = began + length * window / WINDOWS;
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let (to_ns, now) = self.read_levels(scanned)?;
            scanned.windows.push(WindowCounts {
                phase,
                from_ns,
                to_ns,
                growth: now.since(before),
            });
            (from_ns, before) = (to_ns, now);
        }
        Ok(())
    }

    /// The counters of both levels, with the time of the reading.
    fn read_levels(&mut self, scanned: &mut Scanned) -> Result<(u64, LevelCounts)> {
        let mut counts = LevelCounts::default();
        for (pid, tid) in self.threads() {
            let counters = read_counters(swtch_core::Pid::new(pid), Tid::new(tid))?;
            let (_, counters) = counters.context("a thread of the play has ended")?;
            counts.voluntary += counters.voluntary;
            counts.involuntary += counters.involuntary;
            counts.cpu_ns += counters.runs.map_or(0, |runs| runs.ran.as_ns());
        }
        let Self::Workers { reader, .. } = self else {
            return Ok((now_ns()?, counts));
        };
        let snapshot = reader.read(scanned)?;
        let row = snapshot.schedulers.iter();
        let mut row = row.filter(|row| row.scheduler == reader.scheduler);
        if let Some(row) = row.next() {
            counts.user = row.context_switches_count;
            counts.running_ns = row.total_running_ns;
            counts.delay_ns = row.total_scheduler_delay_ns;
        }
        Ok((snapshot.taken_monotonic_ns, counts))
    }

    fn waits(&self) -> Result<Vec<WaitTypeTotals>> {
        let Self::Workers { reader, .. } = self else {
            return Ok(Vec::new());
        };
        let rows = reader.page.snapshot()?.wait_stats;
        let waited = rows.into_iter().map(|row| WaitTypeTotals {
            wait_type: row.wait_type,
            count: row.completed_count,
            wait_ns: row.wait_time_ns,
            signal_ns: row.signal_wait_time_ns,
        });
        Ok(waited.collect())
    }

    fn join(self) -> Result<()> {
        match self {
            Self::Workers { runtime, tasks, .. } => {
                for task in tasks {
                    task.join().map_err(|error| anyhow!("a worker: {error}"))?;
                }
                drop(runtime);
            }
            Self::Threads { threads, .. } => {
                for thread in threads {
                    thread.join().map_err(|_| anyhow!("a thread panicked"))?;
                }
            }
        }
        Ok(())
    }
}

impl SchedulerReader {
    /// Opens the page of the only scheduler of this process, and puts its thread on the CPU.
    fn open(cpu: u32) -> Result<Self> {
        let page = Page::of_process(std::process::id())?;
        let snapshot = page.snapshot()?;
        let mut threads = snapshot.threads.iter();
        let thread = threads
            .find(|thread| thread.kind == ThreadKind::Scheduler)
            .context("a scheduler has a thread")?;
        bind(thread.os_thread_id, &[cpu])?;
        let scheduler = thread.scheduler.context("the thread has a scheduler")?;
        let reader = Self {
            ring: page.ring(scheduler).context("the scheduler has a ring")?,
            lease: page.lease()?,
            scheduler,
            tid: thread.os_thread_id,
            page,
        };
        reader.renew()?;
        Ok(reader)
    }

    fn renew(&self) -> Result<()> {
        let clock = self.page.clock().context("the page has a clock")?;
        let ahead = u64::try_from(LEASE.as_nanos())?;
        self.lease.renew(clock.ticks(now_ns()? + ahead));
        Ok(())
    }

    /// Keeps the switches since the last reading, and takes a snapshot.
    fn read(&mut self, scanned: &mut Scanned) -> Result<Snapshot> {
        self.renew()?;
        let clock = self.page.clock().context("the page has a clock")?;
        let read = self.ring.read(&self.page, u64::MAX, |switch| {
            if switch.kind != EventKind::Idle {
                let to_ns = clock.monotonic_ns(switch.ticks);
                scanned.runs.push(UserRun {
                    task: switch.task,
                    from_ns: to_ns.saturating_sub(clock.length_ns(switch.ran_ticks)),
                    to_ns,
                });
            }
        });
        scanned.lost_runs += read.lost;
        Ok(self.page.snapshot()?)
    }
}

/// A thread that wants the CPU all the time, while it lives.
struct HogThread {
    tid: u32,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl HogThread {
    fn start(cpu: u32) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let (tid, thread) = on_cpu(cpu, move || {
            while !told.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        })?;
        Ok(Self {
            tid,
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for HogThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It only spins, so it cannot have failed.
            drop(thread.join());
        }
    }
}

/// Starts a thread on a CPU; returns its id and its handle.
fn on_cpu(cpu: u32, body: impl FnOnce() + Send + 'static) -> Result<(u32, JoinHandle<()>)> {
    let (tell, told) = std::sync::mpsc::channel();
    let thread = thread::Builder::new().spawn(move || {
        let bound = bind(0, &[cpu]).map(|()| gettid().as_raw().unsigned_abs());
        let is_bound = bound.is_ok();
        if tell.send(bound).is_ok() && is_bound {
            body();
        }
    });
    let thread = thread.context("starting a thread")?;
    let tid = told.recv().context("a thread ended before it began")??;
    Ok((tid, thread))
}

/// Lets a thread (0: the calling one) run on these CPUs only.
fn bind(tid: u32, cpus: &[u32]) -> Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus {
        set.set(*cpu as usize).context("choosing a CPU")?;
    }
    let tid = Pid::from_raw(i32::try_from(tid)?);
    sched_setaffinity(tid, &set).context("choosing a CPU")
}

impl Scanner {
    /// Sums up the table over and over, starting at a place of its own.
    fn scan(&self, yield_point: impl Fn()) {
        let (head, tail) = self.table.split_at(self.first);
        while !self.stop.load(Ordering::Relaxed) {
            for portion in tail.chunks(PORTION).chain(head.chunks(PORTION)) {
                black_box(portion.iter().copied().fold(0, u64::wrapping_add));
                yield_point();
                if self.stop.load(Ordering::Relaxed) {
                    return;
                }
            }
        }
    }
}

/// The present time, in ns of `CLOCK_MONOTONIC`.
fn now_ns() -> Result<u64> {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC)?;
    Ok(u64::try_from(now.tv_sec())? * 1_000_000_000 + u64::try_from(now.tv_nsec())?)
}

/// Growth of the waits of each type; types that did not grow are left out.
fn waits_between(before: &[WaitTypeTotals], after: &[WaitTypeTotals]) -> Vec<WaitTypeTotals> {
    let growth = after.iter().map(|now| {
        let mut before = before.iter();
        let before = before.find(|before| before.wait_type == now.wait_type);
        let less =
            |now: u64, then: fn(&WaitTypeTotals) -> u64| now - before.map_or(0, then).min(now);
        WaitTypeTotals {
            wait_type: now.wait_type.clone(),
            count: less(now.count, |waited| waited.count),
            wait_ns: less(now.wait_ns, |waited| waited.wait_ns),
            signal_ns: less(now.signal_ns, |waited| waited.signal_ns),
        }
    });
    growth.filter(|waited| waited.count > 0).collect()
}
