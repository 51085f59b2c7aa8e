//! Hogs: threads that only use the CPU, so that only the end of a slice takes it from them.

use std::cmp::Ordering;
use std::thread;
use std::time::Duration;

use swtch_core::reason::Reason;

use super::Workload;
use crate::clock;
use crate::cpu::{self, CpuPolicyGuard, Policy};
use crate::error::Error;
use crate::needs::Needs;
use crate::outcome::{Expect, ThreadOutcome, WorkloadOutcome};
use crate::workers::{RunningWorker, WorkerResult, start};

/// Longest slice of a fair task (`kernel/sched/fair.c`, v5.15 to v6.18: 0.75 ms times up to 4).
const LONGEST_SLICE: Duration = Duration::from_millis(3);

/// The tick at the lowest rate a kernel can be built with, 100 Hz.
const LONGEST_TICK: Duration = Duration::from_millis(10);

pub(super) const HOGS: Workload = Workload {
    name: "hogs",
    about: "three threads share one CPU and never block",
    needs: Needs::Nothing,
    default_count: 1000,
    count_is: "ms",
    run: hogs,
};

pub(super) const OWN_CLOCK: Workload = Workload {
    name: "own-clock",
    about: "two threads share one CPU, and one asks for its CPU time all the time",
    needs: Needs::Nothing,
    default_count: 1000,
    count_is: "ms",
    run: own_clock,
};

pub(super) const ROUND_ROBIN: Workload = Workload {
    name: "round-robin",
    about: "two SCHED_RR threads share one CPU and never block",
    needs: Needs::Root,
    default_count: 1500,
    count_is: "ms",
    run: round_robin,
};

fn hogs(ms: u64) -> Result<WorkloadOutcome, Error> {
    let hogs = ["hog-1", "hog-2", "hog-3"].map(|name| (name, OnTheSide::Nothing));
    let workers = spin_together(&hogs, Policy::Batch, ms)?;
    Ok(WorkloadOutcome {
        threads: workers.into_iter().map(fair_hog).collect(),
    })
}

/// The kernel charges the run time when a thread asks for it, and so finds the slice used up in that call
/// and not in a tick (`task_sched_runtime`, `kernel/sched/core.c`, v6.18).
fn own_clock(ms: u64) -> Result<WorkloadOutcome, Error> {
    let hogs = [
        ("asks-nothing", OnTheSide::Nothing),
        ("asks-cpu-time", OnTheSide::AsksCpuTime),
    ];
    let workers = spin_together(&hogs, Policy::Batch, ms)?;
    Ok(WorkloadOutcome {
        threads: workers.into_iter().map(fair_hog).collect(),
    })
}

fn round_robin(ms: u64) -> Result<WorkloadOutcome, Error> {
    let hogs = ["turn-1", "turn-2"].map(|name| (name, OnTheSide::Nothing));
    let workers = spin_together(&hogs, Policy::RoundRobin, ms)?;
    Ok(WorkloadOutcome {
        threads: workers.into_iter().map(turn_taker).collect(),
    })
}

/// The measurements of one hog: its CPU time, and the round-robin interval (for real-time tasks).
#[derive(Clone, Copy, Debug)]
struct HogTimes {
    cpu_time: Duration,
    turn: Duration,
}

/// The side work of a hog while it spins.
#[derive(Clone, Copy, Debug)]
enum OnTheSide {
    Nothing,
    AsksCpuTime,
}

/// All inherit the policy from the starter. A thread that took a real-time policy by itself would
/// keep the CPU from a starter that has not yet started the others.
fn spin_together(
    hogs: &[(&str, OnTheSide)],
    policy: Policy,
    ms: u64,
) -> Result<Vec<WorkerResult<HogTimes>>, Error> {
    let _policy = CpuPolicyGuard::on_workload_cpu(policy)?;
    let end = clock::after(Duration::from_millis(ms));
    let spin = move |on_the_side: OnTheSide| {
        let turn = cpu::round_robin_interval()?;
        match on_the_side {
            OnTheSide::Nothing => clock::spin_until(end),
            OnTheSide::AsksCpuTime => {
                while clock::now() < end {
                    clock::cpu_time();
                }
            }
        }
        Ok(HogTimes {
            cpu_time: clock::cpu_time(),
            turn,
        })
    };
    thread::scope(|scope| {
        let workers: Vec<_> = hogs
            .iter()
            .map(|&(name, on_the_side)| start(scope, name, move || spin(on_the_side)))
            .collect::<Result<_, _>>()?;
        workers.into_iter().map(RunningWorker::finish).collect()
    })
}

fn fair_hog(hog: WorkerResult<HogTimes>) -> ThreadOutcome {
    let fewest = runs_in(hog.value.cpu_time, LONGEST_SLICE + LONGEST_TICK);
    hog.expecting(vec![
        Expect::at_least(
            Reason::Slice,
            fewest,
            "no run outlasts a slice of 3 ms and a tick of 10 ms while others wait",
        ),
        // A bystander that wakes may take the CPU first.
        Expect::share_of_runnable(Reason::Slice, 99, "a hog leaves only when it is preempted")
            .or(Reason::Wakeup)
            .or(Reason::Class),
    ])
}

fn turn_taker(thread: WorkerResult<HogTimes>) -> ThreadOutcome {
    let HogTimes { cpu_time, turn } = thread.value;
    let fewest = runs_in(cpu_time, turn + LONGEST_TICK);
    thread.expecting(vec![
        Expect::at_least(
            Reason::Slice,
            fewest,
            "no turn outlasts the round-robin interval and a tick while the other waits",
        ),
        // The kernel reserves 5 % of the CPU for fair tasks: by throttling real-time tasks, or (6.8
        // and later) by a deadline server, which is a higher class.
        Expect::share_of_runnable(Reason::Slice, 99, "it leaves at the end of its turn")
            .or(Reason::Class)
            .or(Reason::Throttle),
    ])
}

/// Whole runs of length `longest` in `time`, without the last one, which ends by the exit.
fn runs_in(time: Duration, longest: Duration) -> u64 {
    match time.cmp(&longest) {
        Ordering::Less => 0,
        _ => u64::try_from(time.as_nanos() / longest.as_nanos()).unwrap_or(u64::MAX) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_run_ends_by_the_exit_and_is_not_counted() {
        let ms = Duration::from_millis;
        assert_eq!(runs_in(ms(5), ms(13)), 0);
        assert_eq!(runs_in(ms(13), ms(13)), 0);
        assert_eq!(runs_in(ms(40), ms(13)), 2);
    }
}
