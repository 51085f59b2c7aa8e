//! A task that wakes periodically on the CPU of a hog. The kind of the sleeper determines the
//! reason why the hog leaves.
//!
//! The hog's heartbeat shows whether it had the CPU when the sleeper's timer expired. Only those
//! wakeups are counted.

use std::thread;
use std::time::Duration;

use swtch_core::reason::Reason;

use super::Workload;
use crate::clock::{self, Heartbeat};
use crate::cpu::{self, CpuPolicyGuard, Policy};
use crate::error::Error;
use crate::needs::Needs;
use crate::outcome::{Expect, SleepCounts, WorkloadOutcome};
use crate::workers::{WorkerResult, sleep, start};

const PERIOD: Duration = Duration::from_millis(4);

/// Shorter than any slice that the kernel gives by default, and the shortest one that may be
/// requested (`__setparam_fair`, `kernel/sched/syscalls.c`, v6.12).
const SHORT_SLICE: Duration = Duration::from_micros(100);

/// Time after which the hog gives up if the sleeper does not stop it.
const HOG_LIMIT: Duration = Duration::from_secs(60);

pub(super) const WAKEUP: Workload = Workload {
    name: "wakeup",
    about: "a fair task wakes every 4 ms on the CPU of a fair hog",
    needs: Needs::Nothing,
    default_count: 200,
    count_is: "wakeups",
    run: |wakeups| {
        let workers = run(wakeups, Policy::Other, || cpu::ask_for_slice(SHORT_SLICE))?;
        // Before 6.12 a slice cannot be requested, and the hog may keep the CPU until the protected
        // part of its own slice is over: then the tick takes the CPU from it, or the kernel notices
        // it when it queues the sleeper.
        let expect = |displaced| {
            let because = "it had the CPU when the sleeper's time came, and lost it";
            Expect::at_least(Reason::Wakeup, displaced, because).or(Reason::Slice)
        };
        Ok(workers.outcome(wakeups, expect))
    },
};

pub(super) const WAKEUP_OVER_IDLE: Workload = Workload {
    name: "wakeup-over-idle",
    about: "a fair task wakes every 4 ms on the CPU of a SCHED_IDLE hog",
    needs: Needs::Nothing,
    default_count: 200,
    count_is: "wakeups",
    run: |wakeups| {
        let workers = run(wakeups, Policy::Idle, || Ok(()))?;
        let expect = |displaced| {
            let because = "a SCHED_IDLE task is preempted by every other that wakes";
            // If bystanders are queued too, `update_curr` finds the hog's slice over while the
            // woken task is being queued, and asks for the reschedule before the wakeup does
            // (v6.18).
            Expect::at_least(Reason::Wakeup, displaced, because).or(Reason::Slice)
        };
        Ok(workers.outcome(wakeups, expect))
    },
};

pub(super) const FIFO: Workload = Workload {
    name: "fifo",
    about: "a SCHED_FIFO task wakes every 4 ms on the CPU of a fair hog",
    needs: Needs::Root,
    default_count: 200,
    count_is: "wakeups",
    run: |wakeups| {
        let workers = run(wakeups, Policy::Other, || Policy::Fifo.adopt())?;
        let expect = |displaced| {
            let because = "real time is a higher class, which takes the CPU at once";
            Expect::at_least(Reason::Class, displaced, because)
        };
        Ok(workers.outcome(wakeups, expect))
    },
};

/// Sums over the periods of the sleeper.
#[derive(Clone, Copy, Default)]
struct Periods {
    /// Number of periods at whose end it took the CPU from the hog.
    displaced: u64,
    /// The counts of its sleeps.
    slept: SleepCounts,
}

struct PeriodicResults {
    hog: WorkerResult<()>,
    sleeper: WorkerResult<Periods>,
}

fn run(
    wakeups: u64,
    hog_policy: Policy,
    prepare_sleeper: impl FnOnce() -> Result<(), Error> + Send,
) -> Result<PeriodicResults, Error> {
    let _policy = CpuPolicyGuard::on_workload_cpu(Policy::Other)?;
    let heartbeat = Heartbeat::default();
    thread::scope(|scope| {
        let hog = start(scope, "hog", || {
            hog_policy.adopt()?;
            heartbeat.beat(HOG_LIMIT);
            Ok(())
        })?;
        let sleeper = start(scope, "sleeper", || {
            let _stops = heartbeat.stop_when_done();
            prepare_sleeper()?;
            let mut periods = Periods::default();
            (0..wakeups).try_for_each(|_| periods.sleep_through_one(&heartbeat))?;
            Ok(periods)
        })?;
        Ok(PeriodicResults {
            sleeper: sleeper.finish()?,
            hog: hog.finish()?,
        })
    })
}

impl Periods {
    /// Sleeps for one period. If the hog had the CPU when the timer expired, it has lost it since:
    /// the sleeper runs now.
    fn sleep_through_one(&mut self, heartbeat: &Heartbeat) -> Result<(), Error> {
        let deadline = clock::after(PERIOD);
        self.slept += sleep(PERIOD)?;
        self.displaced += u64::from(heartbeat.ran_at_timer(deadline));
        Ok(())
    }
}

impl PeriodicResults {
    fn outcome(self, wakeups: u64, hog_expects: impl FnOnce(u64) -> Expect) -> WorkloadOutcome {
        // A bystander may wake at the same instant and be preferred to the sleeper.
        let Periods { displaced, slept } = self.sleeper.value;
        let certain = displaced - displaced / 20;
        let sleeps = Expect::sleeps(wakeups, slept, self.sleeper.counted.involuntary).into();
        WorkloadOutcome {
            threads: vec![
                self.hog.expecting(vec![hog_expects(certain)]),
                self.sleeper.expecting(sleeps),
            ],
        }
    }
}
