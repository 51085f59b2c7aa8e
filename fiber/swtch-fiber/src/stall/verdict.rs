//! Decides from two samples why a scheduler makes no progress.
//!
//! The table is that of error 17883 of SQL Server ("appears to be non-yielding"). It adds what that
//! monitor could only guess: what the OS did with the thread meanwhile.
//!
//! | the thread, between the samples | verdict |
//! |---|---|
//! | no worker ran, though one is runnable and the thread did not lack a CPU | queue stalled |
//! | had a CPU half of the time (a quarter, if it never blocked), mostly in user mode | user loop |
//! | the same, mostly in the kernel | inside the kernel |
//! | blocked | blocked in a system call |
//! | waited for a CPU, half of it used by own preemptive work | starved by preemptive work |
//! | waited for a CPU | not scheduled by the OS |

use std::fmt;
use std::time::Duration;

use super::evidence::{Call, ThreadSample};

/// The work that the scheduler should be doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedulerDuty {
    /// Nothing: no worker runs and none is runnable.
    Idle,
    /// A worker runs and should make progress.
    Running,
    /// No worker runs, and at least one is runnable.
    Queued,
}

/// The reason why a scheduler makes no progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StallVerdict {
    /// The worker computes and does not yield.
    UserLoop,
    /// The worker uses the CPU inside the kernel.
    InsideKernel,
    /// The worker blocks its thread, and with it all workers of the scheduler.
    BlockedInCall,
    /// The worker could run, but the OS gives the CPU to other threads.
    NotScheduled,
    /// The worker could run, but preemptive sections of its scheduler use the CPU.
    StarvedByPreemptive,
    /// A worker is runnable, and the scheduler does not run it.
    QueueStalled,
}

impl fmt::Display for StallVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::UserLoop => "user loop",
            Self::InsideKernel => "inside the kernel",
            Self::BlockedInCall => "blocked in a system call",
            Self::NotScheduled => "not scheduled by the OS",
            Self::StarvedByPreemptive => "starved by preemptive work",
            Self::QueueStalled => "queue stalled",
        })
    }
}

/// The measurements behind a verdict: differences between two samples. `None` means unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Numbers {
    /// Time between the two samples.
    pub elapsed: Duration,
    /// Time in which the thread had a CPU.
    pub cpu: Option<Duration>,
    /// The part of `cpu` in user mode.
    pub user: Option<Duration>,
    /// The part of `cpu` in the kernel.
    pub kernel: Option<Duration>,
    /// Time of ended waits for a CPU; a wait that still lasts is not included.
    pub queued: Option<Duration>,
    /// Switches in which the thread blocked.
    pub voluntary: Option<u64>,
    /// Switches in which the thread was preempted.
    pub involuntary: Option<u64>,
    /// CPU time of preemptive threads of this scheduler.
    pub preemptive: Duration,
    /// CPU time of the whole process.
    pub process: Option<Duration>,
    /// Idle time of all CPUs, in steps of 10 ms.
    pub idle: Option<Duration>,
    /// State of the thread at the second sample, a letter as in `/proc/…/stat`.
    pub state: Option<char>,
    /// System call of the thread at the second sample.
    pub call: Call,
    /// The kernel function in which it waited, at the second sample.
    pub waits_in: Option<String>,
    /// Says whether the signal interrupted the thread just behind a system call, at each sample.
    pub behind_call: [Option<bool>; 2],
}

impl Numbers {
    /// The differences between two samples of one thread.
    pub fn between(before: &ThreadSample, after: &ThreadSample) -> Self {
        let time = |pick: fn(&ThreadSample) -> Option<u64>| {
            Some(Duration::from_nanos(
                pick(after)?.saturating_sub(pick(before)?),
            ))
        };
        let count = |pick: fn(&ThreadSample) -> Option<u64>| {
            Some(pick(after)?.saturating_sub(pick(before)?))
        };
        // Both ends must come from one source, because the two count in different steps.
        let (user, kernel) = if before.usage.is_some() && after.usage.is_some() {
            (
                time(|sample| Some(sample.usage?.user_ns)),
                time(|sample| Some(sample.usage?.kernel_ns)),
            )
        } else {
            (
                time(|sample| sample.user_ns),
                time(|sample| sample.kernel_ns),
            )
        };
        Self {
            elapsed: Duration::from_nanos(after.at_ns.saturating_sub(before.at_ns)),
            cpu: time(|sample| sample.cpu_ns),
            user,
            kernel,
            queued: time(|sample| sample.queued_ns),
            voluntary: count(|sample| sample.voluntary),
            involuntary: count(|sample| sample.involuntary),
            preemptive: preemptive(before, after),
            process: time(|sample| sample.process_cpu_ns),
            idle: time(|sample| sample.idle_ns),
            state: after.state,
            call: after.call,
            waits_in: after.waits_in.clone(),
            behind_call: [before, after].map(|sample| Some(sample.usage?.behind_call)),
        }
    }

    /// The time in which the thread had no CPU.
    fn off_cpu(&self) -> Duration {
        self.elapsed.saturating_sub(self.cpu.unwrap_or_default())
    }

    /// Returns true if the thread had a CPU for long enough to come to a yield point.
    ///
    /// Yield points have been asking for the CPU since the end of the quantum, before the first
    /// sample, and a worker that reaches one yields within microseconds. So on a busy machine, a
    /// thread that never blocked counts as a loop even if it did not have most of the time.
    fn had_cpu(&self) -> bool {
        let part = if self.voluntary == Some(0) { 4 } else { 2 };
        self.cpu.is_some_and(|cpu| cpu * part >= self.elapsed)
    }

    /// Returns true if the CPU time was mostly spent in the kernel.
    ///
    /// The kernel itself only samples this split, at its ticks (4 ms at 250 Hz). If no tick fell
    /// into the time, the two places where the signals interrupted the thread decide.
    fn is_mostly_kernel(&self) -> bool {
        let (user, kernel) = (
            self.user.unwrap_or_default(),
            self.kernel.unwrap_or_default(),
        );
        if user + kernel >= Duration::from_millis(4) {
            return kernel > user;
        }
        self.behind_call[1] == Some(true) && self.behind_call[0] != Some(false)
    }

    /// Returns true if the thread, while it was off the CPU, mostly waited for one.
    fn waited_for_cpu(&self, is_blocked: bool) -> bool {
        if is_blocked {
            // It is blocked now, but waits for a CPU before that may have been longer.
            return self
                .queued
                .is_some_and(|queued| queued * 2 > self.off_cpu());
        }
        // It is runnable and never blocked, so all the time off the CPU was a wait for one,
        // including the present wait, which `schedstat` does not show yet.
        self.voluntary.unwrap_or(0) == 0
            || self
                .queued
                .is_some_and(|queued| queued * 2 > self.off_cpu())
    }
}

/// CPU time of the threads that were preemptive at both samples.
fn preemptive(before: &ThreadSample, after: &ThreadSample) -> Duration {
    let used = |(tid, end): &(i32, u64)| {
        let (_, start) = before.preemptive.iter().find(|(other, _)| other == tid)?;
        Some(end.saturating_sub(*start))
    };
    Duration::from_nanos(after.preemptive.iter().filter_map(used).sum())
}

/// The reason why a scheduler with that duty made no progress between two samples of its thread.
pub fn judge(
    duty: SchedulerDuty,
    before: &ThreadSample,
    after: &ThreadSample,
) -> (StallVerdict, Numbers) {
    let numbers = Numbers::between(before, after);
    let has_cpu = numbers.had_cpu();
    let lacks_cpu = !has_cpu && numbers.waited_for_cpu(after.is_blocked());
    let verdict = if lacks_cpu {
        if numbers.preemptive * 2 >= numbers.off_cpu() {
            StallVerdict::StarvedByPreemptive
        } else {
            StallVerdict::NotScheduled
        }
    } else if duty == SchedulerDuty::Queued {
        StallVerdict::QueueStalled
    } else if !has_cpu {
        StallVerdict::BlockedInCall
    } else if numbers.is_mostly_kernel() {
        StallVerdict::InsideKernel
    } else {
        StallVerdict::UserLoop
    };
    (verdict, numbers)
}

impl fmt::Display for Numbers {
    /// One line with everything that is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in {}", Ms(self.elapsed))?;
        let times = [
            ("on CPU", self.cpu),
            ("user", self.user),
            ("kernel", self.kernel),
            ("run queue", self.queued),
            ("preemptive work", Some(self.preemptive)),
            ("process", self.process),
            ("CPUs idle", self.idle),
        ];
        for (name, time) in times {
            if let Some(time) = time {
                write!(f, ", {name} {}", Ms(time))?;
            }
        }
        let counts = [
            ("voluntary", self.voluntary),
            ("involuntary", self.involuntary),
        ];
        for (name, count) in counts {
            if let Some(count) = count {
                write!(f, ", {count} {name} switches")?;
            }
        }
        if let Some(state) = self.state {
            write!(f, ", state {state}")?;
        }
        if let Some(place) = &self.waits_in {
            write!(f, " in {}", place.trim().escape_debug())?;
        }
        Ok(())
    }
}

/// Displays a length in milliseconds, with one decimal.
struct Ms(Duration);

impl fmt::Display for Ms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} ms", self.0.as_secs_f64() * 1e3)
    }
}

#[cfg(test)]
mod tests;
