//! The watch over one scheduler: when to take samples, and when to report.

use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::backtrace;
use super::evidence::ThreadSample;
use super::holder;
use super::report::{LockHolder, Stall, StalledWorker};
use super::verdict::{SchedulerDuty, StallVerdict, judge};

/// The data of a scheduler that is suspected of a stall.
pub struct SuspectedScheduler<'a> {
    /// Number of the scheduler in its runtime.
    pub scheduler: u32,
    /// The thread that holds it (`gettid`).
    pub tid: i32,
    /// The worker that runs; `None` when none does.
    pub offender: Option<StalledWorker>,
    /// Threads that run preemptively on behalf of this scheduler (`gettid`).
    pub preemptive: Vec<i32>,
    /// The workers that do not run, by number, with their stacks.
    pub switched_out: Box<dyn Iterator<Item = (u32, Range<usize>)> + 'a>,
    /// Returns the name of a worker's task.
    pub task_name: Box<dyn Fn(u32) -> String + 'a>,
}

impl fmt::Debug for SuspectedScheduler<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SuspectedScheduler")
            .field("scheduler", &self.scheduler)
            .field("tid", &self.tid)
            .field("offender", &self.offender)
            .finish_non_exhaustive()
    }
}

/// Watches the progress of one scheduler.
#[derive(Debug)]
pub struct ProgressWatch {
    threshold: Duration,
    seen: Option<Observations>,
}

/// The observations since progress last changed.
#[derive(Debug)]
struct Observations {
    progress: u64,
    duty: SchedulerDuty,
    since: Instant,
    before: Option<(Instant, i32, ThreadSample)>,
    is_reported: bool,
}

impl ProgressWatch {
    /// 25 ms: more than six quanta of 4 ms, less than a person notices. Seastar uses the same.
    pub const DEFAULT_THRESHOLD: Duration = Duration::from_millis(25);

    /// Starts without observations. The threshold should be a few times the quantum, and
    /// [`look`](Self::look) should be called at least every quarter of it.
    pub fn new(threshold: Duration) -> Self {
        Self {
            threshold,
            seen: None,
        }
    }

    /// Takes the present progress of a scheduler, a number that changes whenever a worker gives the
    /// scheduler up or is switched in. Returns a stall once, when it is detected.
    ///
    /// `subject` is called only for a suspect: twice in each stall.
    pub fn look<'a>(
        &mut self,
        now: Instant,
        progress: u64,
        duty: SchedulerDuty,
        subject: impl FnOnce() -> SuspectedScheduler<'a>,
    ) -> Option<Stall> {
        let seen = match &mut self.seen {
            Some(seen) if seen.progress == progress && seen.duty == duty => seen,
            seen => {
                *seen = Some(Observations {
                    progress,
                    duty,
                    since: now,
                    before: None,
                    is_reported: false,
                });
                return None;
            }
        };
        let lasted = now.saturating_duration_since(seen.since);
        if duty == SchedulerDuty::Idle || seen.is_reported || lasted * 2 < self.threshold {
            return None;
        }
        let Some((taken, tid, before)) = &seen.before else {
            let subject = subject();
            let mut sample = ThreadSample::take(subject.tid, &subject.preemptive);
            sample.usage = backtrace::usage(subject.tid, &sample);
            seen.before = Some((now, subject.tid, sample));
            return None;
        };
        // If the monitor comes late (the OS does not schedule it), its first sample is late. The
        // second one must then not follow at once.
        let window = now.saturating_duration_since(*taken);
        if lasted < self.threshold || window * 4 < self.threshold {
            return None;
        }
        let subject = subject();
        if subject.tid != *tid {
            // The baton was just passed on, and the progress number has not changed yet.
            seen.before = None;
            return None;
        }
        seen.is_reported = true;
        Some(stall(subject, duty, before, lasted))
    }
}

/// Takes the second sample, and decides.
fn stall(
    subject: SuspectedScheduler<'_>,
    duty: SchedulerDuty,
    before: &ThreadSample,
    lasted: Duration,
) -> Stall {
    let mut after = ThreadSample::take(subject.tid, &subject.preemptive);
    let (backtrace, usage) = backtrace::take(subject.tid, &after);
    after.usage = usage;
    let (verdict, numbers) = judge(duty, before, &after);
    let address = holder::waited_at(after.call).filter(|_| verdict == StallVerdict::BlockedInCall);
    let holders = address.map(|address| holder::find(address, subject.switched_out));
    let holders = holders.unwrap_or_default().into_iter();
    Stall {
        scheduler: subject.scheduler,
        tid: subject.tid,
        offender: subject.offender,
        lasted,
        verdict,
        numbers,
        backtrace,
        holders: holders
            .map(|worker| LockHolder {
                worker,
                name: (subject.task_name)(worker),
            })
            .collect(),
        unreported: 0,
    }
}

#[cfg(test)]
mod tests;
