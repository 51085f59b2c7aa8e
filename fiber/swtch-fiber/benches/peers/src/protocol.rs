//! The protocol between an arm and the benchmark: one line each way, over stdin and stdout.
//!
//! ```text
//! arm                                 benchmark
//! ready WHAT_AND_VERSION        ──▶              or: no REASON
//!                               ◀──   run N
//! N ns user voluntary involuntary cpu_ns ──▶
//!                               ◀──   (end of file: the arm ends)
//! ```
//!
//! `ns` is wall-clock time, `cpu_ns` what all threads of the process used. `user` counts the
//! operations as seen by the arm (its tasks count, not its loop). The last two are the kernel's
//! counters of the process. An arm lives on between runs, asleep in a read, so that its blocks can
//! be interleaved with those of others.

use std::io::{self, BufRead, Write};
use std::time::{Duration, Instant};

/// The results of one block of N operations.
#[derive(Clone, Copy, Debug)]
pub struct MeterReading {
    wall: Duration,
    cpu: Duration,
    user: u64,
    voluntary: i64,
    involuntary: i64,
}

/// Clocks and counters at the beginning of a block.
///
/// It is started and stopped where the tasks run, so that the way there is not part of a block.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    voluntary: i64,
    involuntary: i64,
    cpu: Duration,
    wall: Instant,
}

impl Meter {
    /// Reads all clocks, the most important one last.
    pub fn start() -> Self {
        let (voluntary, involuntary) = os_switches();
        Self {
            voluntary,
            involuntary,
            cpu: cpu_time(),
            wall: Instant::now(),
        }
    }

    /// The block since [`Meter::start`], in which `user` operations happened.
    pub fn stop(self, user: u64) -> MeterReading {
        let wall = self.wall.elapsed();
        let cpu = cpu_time() - self.cpu;
        let (voluntary, involuntary) = os_switches();
        MeterReading {
            wall,
            cpu,
            user,
            voluntary: voluntary - self.voluntary,
            involuntary: involuntary - self.involuntary,
        }
    }
}

/// Announces `about`, then runs blocks until stdin ends.
///
/// # Errors
/// When a line cannot be read, understood or written.
pub fn serve(about: &str, mut run: impl FnMut(u64) -> MeterReading) -> io::Result<()> {
    let mut answer = io::stdout().lock();
    writeln!(answer, "ready {about}")?;
    answer.flush()?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let operations = line
            .strip_prefix("run ")
            .and_then(|number| number.parse().ok())
            .ok_or_else(|| io::Error::other(format!("not a request: {line:?}")))?;
        let block = run(operations);
        writeln!(
            answer,
            "{operations} {} {} {} {} {}",
            block.wall.as_nanos(),
            block.user,
            block.voluntary,
            block.involuntary,
            block.cpu.as_nanos(),
        )?;
        answer.flush()?;
    }
    Ok(())
}

/// Voluntary and involuntary switches of all threads of this process, as the kernel counts them.
fn os_switches() -> (i64, i64) {
    // SAFETY: `rusage` is plain numbers, for which zeros are good values.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live `rusage`, which the call fills.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    (usage.ru_nvcsw, usage.ru_nivcsw)
}

/// CPU time of all threads of this process.
fn cpu_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live `timespec`, which the call fills.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}
