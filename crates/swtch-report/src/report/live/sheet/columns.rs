//! The columns of the views of `swtch top`: key, head, what it says and its cell, once for the screen, its help and
//! all formats; and which view has which.

use swtch_output::sheet::Cell;

use super::super::frame::RowKey;
use super::{LiveColumn, nth};

macro_rules! column {
    ($name:ident, $key:literal, $head:literal, $help:literal, $cell:expr) => {
        const $name: LiveColumn = LiveColumn {
            key: $key,
            head: $head,
            help: $help,
            cell: $cell,
        };
    };
}

column!(
    SWITCHES_PER_S,
    "switches_per_s",
    "switch/s",
    "Context switches a second: how often a thread left a CPU.",
    |source| source.rate(source.sums.switches())
);
column!(
    SWITCHES,
    "switches",
    "switches",
    "Switches in this frame.",
    |source| Cell::Count(source.sums.switches())
);
column!(
    VOLUNTARY_PER_S,
    "voluntary_per_s",
    "vol/s",
    "Of them, those that the kernel calls voluntary: the thread blocked or ended.",
    |source| source.rate(source.sums.tally.voluntary)
);
column!(
    INVOLUNTARY_PER_S,
    "involuntary_per_s",
    "invol/s",
    "Of them, the others: the CPU was taken away, or the thread yielded.",
    |source| source.rate(source.sums.tally.involuntary())
);
column!(
    MAIN_REASON,
    "main_reason",
    "reason",
    "The reason of most of these switches (view 4 has all of them).",
    |source| source
        .sums
        .tally
        .main_reason()
        .map_or(Cell::Missing, |(reason, _)| Cell::text(reason.as_str()))
);
column!(
    ON_CPU_PCT,
    "on_cpu_pct",
    "on CPU%",
    "Time on a CPU in runs that ended in this frame: 100 is one CPU. A run that is longer than the frame \
     counts in the frame in which it ends.",
    |source| source.share(source.sums.tally.ran)
);
column!(
    RUNQ_P50,
    "runq_p50_below_ns",
    "runq p50",
    "Half of the waits for a CPU, once runnable, were shorter than this power of two.",
    |source| Cell::time(source.sums.runq_lengths.percentile_below(50))
);
column!(
    RUNQ_P99,
    "runq_p99_below_ns",
    "runq p99",
    "99 % of the waits for a CPU, once runnable, were shorter than this power of two.",
    |source| Cell::time(source.sums.runq_lengths.percentile_below(99))
);
column!(
    RUNQ_PCT,
    "runq_pct",
    "runq%",
    "Time spent runnable and waiting for a CPU: 100 is one thread that waits all the time.",
    |source| source.share(source.sums.tally.runq)
);
column!(
    BLOCKED_PCT,
    "blocked_pct",
    "blocked%",
    "Time spent blocked, of waits that ended: 100 is one thread that is blocked all the time. A wait that \
     is longer than the frame counts in the frame in which it ends, so this may exceed 100 for one thread.",
    |source| source.share(source.sums.tally.blocked)
);
column!(
    BLOCKED_ON,
    "blocked_on",
    "blocked on",
    "The reason of most of the blocked time (Enter shows all reasons of one row).",
    |source| source
        .sums
        .blocked_on()
        .map_or(Cell::Missing, |reason| Cell::text(reason.as_str()))
);
column!(
    OWN_PROCESS_PER_S,
    "own_process_per_s",
    "own/s",
    "Preemptions by another thread of the same process: fewer threads than CPUs end them.",
    |source| source.rate(source.sums.by_own_process)
);
column!(
    OWN_CGROUP_PER_S,
    "own_cgroup_per_s",
    "group/s",
    "Preemptions by another process of the same cgroup.",
    |source| source.rate(source.sums.by_own_cgroup)
);
column!(
    FOREIGN_PER_S,
    "foreign_per_s",
    "foreign/s",
    "Preemptions by a process of another cgroup, the kernel's threads among them: somebody else's work.",
    |source| source.rate(source.sums.by_foreign)
);
column!(
    COST_PCT,
    "cost_pct",
    "cost%",
    "What the switches themselves take, as a share of one CPU, by the saved price list of this machine: \
     whether they are too many. 10 ms a second are 1 %. It leaves out what caches lose.",
    |source| source.cost(source.sums.cost.point_ns)
);
column!(
    COST_LOW_PCT,
    "cost_low_pct",
    "cost≥",
    "The lower end of the interval of the cost.",
    |source| source.cost(source.sums.cost.low_ns)
);
column!(
    COST_HIGH_PCT,
    "cost_high_pct",
    "cost≤",
    "The upper end of the interval of the cost.",
    |source| source.cost(source.sums.cost.high_ns)
);
column!(
    COST_PER_S,
    "cost_per_s_ns",
    "cost/s",
    "The same as a time: so much of every second is spent switching.",
    |source| {
        if source.sums.cost.high_ns > 0.0 {
            Cell::Estimated(source.frame.share_pct(source.sums.cost.point_ns) * 1e7)
        } else {
            Cell::Missing
        }
    }
);
column!(
    PROCESS_NAME,
    "process",
    "process",
    "The process, by the name of its first thread.",
    |source| match source.key {
        Some(RowKey::Process(_) | RowKey::Lock(..)) => nth(source.process(), 0),
        _ => nth(source.own_thread(), 2),
    }
);
column!(PID, "pid", "pid", "Its process id.", |source| {
    match source.key {
        Some(RowKey::Process(_) | RowKey::Lock(..)) => nth(source.process(), 1),
        _ => nth(source.own_thread(), 3),
    }
});
column!(
    USER_PER_S,
    "user_switches_per_s",
    "user/s",
    "Switches a second between workers of a user-mode scheduler (swtch-fiber) in it: no work for the kernel, \
     which does not see them. Compare with switch/s.",
    |source| source.user_level()
);
column!(
    WAITING,
    "waiting_threads",
    "waiting",
    "Threads of it that are blocked at the end of the frame.",
    |source| match source.key {
        Some(RowKey::Process(Some(pid))) =>
            source.frame.waiting(pid).map_or(Cell::Missing, Cell::Count),
        _ => Cell::Missing,
    }
);
column!(
    WAITS_FOR,
    "waits_for",
    "waits for",
    "What it is blocked on at the end of the frame; none if it runs, or waits for a CPU.",
    |source| source
        .open_wait()
        .map_or(Cell::Missing, |wait| Cell::text(wait.reason.as_str()))
);
column!(
    WAIT_LASTS,
    "wait_lasts_ns",
    "so far",
    "For how long it has been blocked, at the end of the frame.",
    |source| Cell::time(source.open_wait().map(|wait| wait.lasts))
);
column!(
    LOCK_WORD,
    "lock",
    "lock",
    "The futex word that threads wait for: the address of a mutex, condition variable or join in the memory of \
     the process. Enter shows who waits; swtch record -p PID and report --by wait show who lets them go on.",
    |source| source.lock()
);
column!(
    MEAN_BLOCKED,
    "mean_blocked_ns",
    "mean wait",
    "How long a wait that ended was blocked, on average.",
    |source| source.mean_blocked()
);
column!(
    THREAD_NAME,
    "thread",
    "thread",
    "The thread, by its own name.",
    |source| nth(source.own_thread(), 0)
);
column!(TID, "tid", "tid", "Its thread id.", |source| nth(
    source.own_thread(),
    1
));
column!(
    CGROUP_PATH,
    "cgroup",
    "cgroup",
    "The cgroup of the threads, as of their last switch: the container, if it is one, else the path.",
    |source| source.cgroup_of_process()
);
column!(
    QUOTA_CPUS,
    "quota_cpus",
    "quota",
    "The CPUs that it may use on average (cpu.max), by its own quota or that of a cgroup above: of several the \
     one that stopped CPUs longest, else the smallest.",
    |source| source
        .limits()
        .and_then(|limits| limits.quota_cpus)
        .map_or(Cell::Missing, Cell::Ratio)
);
column!(
    QUOTA_OF,
    "quota_of",
    "quota of",
    "The cgroup that has this quota.",
    |source| source
        .limits()
        .and_then(|limits| limits.quota_of.clone())
        .map_or(Cell::Missing, Cell::Cgroup)
);
column!(
    THROTTLED_PER_S,
    "throttled_per_s",
    "throttled/s",
    "How often that quota was used up, so that a CPU stopped running what is below it (cpu.stat, nr_throttled).",
    |source| source
        .limits()
        .and_then(|limits| limits.throttled)
        .map_or(Cell::Missing, |number| source.rate(number))
);
column!(
    THROTTLED_PCT,
    "throttled_pct",
    "throttled%",
    "For how long CPUs were stopped by that quota: 100 is one CPU that was stopped all the time (cpu.stat).",
    |source| source
        .limits()
        .and_then(|limits| limits.throttled_for)
        .map_or(Cell::Missing, |time| source.share(time))
);
column!(
    REASON_WORD,
    "reason",
    "reason",
    "Why threads left their CPU (swtch's reasons: see docs/GLOSSARY.md).",
    |source| match source.key {
        Some(RowKey::Reason(reason) | RowKey::Pair(.., reason)) => Cell::text(reason.as_str()),
        _ => Cell::Missing,
    }
);
column!(
    CATEGORY,
    "category",
    "category",
    "The kind of reason.",
    |source| match source.key {
        Some(RowKey::Reason(reason)) => Cell::text(reason.category().as_str()),
        _ => Cell::Missing,
    }
);
column!(
    PREEMPTOR,
    "preemptor",
    "preemptor",
    "The thread that took the CPU.",
    |source| nth(source.preemptor(), 0)
);
column!(
    PREEMPTOR_TID,
    "preemptor_tid",
    "tid",
    "Its thread id.",
    |source| nth(source.preemptor(), 1)
);
column!(
    PREEMPTOR_PROCESS,
    "preemptor_process",
    "of process",
    "Its process.",
    |source| nth(source.preemptor(), 2)
);
column!(
    PREEMPTED,
    "preempted",
    "preempted",
    "The thread that lost the CPU.",
    |source| nth(source.own_thread(), 0)
);
column!(
    PREEMPTED_TID,
    "preempted_tid",
    "its tid",
    "Its thread id.",
    |source| nth(source.own_thread(), 1)
);
column!(
    PREEMPTED_PROCESS,
    "preempted_process",
    "its process",
    "Its process.",
    |source| nth(source.own_thread(), 2)
);
column!(
    RELATION,
    "relation",
    "relation",
    "Whether both are of one process (own process), of one cgroup (own cgroup), or neither (foreign).",
    |source| source.relation()
);
column!(CPU_NUMBER, "cpu", "CPU", "The CPU.", |source| {
    match source.key {
        Some(RowKey::Cpu(number)) => Cell::Id(number as u64),
        _ => Cell::Missing,
    }
});
column!(
    FROM_IDLE_PER_S,
    "from_idle_per_s",
    "from idle/s",
    "How often a thread came onto a CPU that had nothing to do. These are no switches of a thread, and are \
     counted apart.",
    |source| source.rate(source.from_idle)
);

pub(super) const PROCESS: &[LiveColumn] = &[
    PROCESS_NAME,
    PID,
    SWITCHES_PER_S,
    USER_PER_S,
    COST_PCT,
    MAIN_REASON,
    RUNQ_P99,
    BLOCKED_PCT,
    BLOCKED_ON,
    WAITING,
    ON_CPU_PCT,
    FOREIGN_PER_S,
    INVOLUNTARY_PER_S,
    VOLUNTARY_PER_S,
    RUNQ_P50,
    RUNQ_PCT,
    OWN_PROCESS_PER_S,
    OWN_CGROUP_PER_S,
    COST_PER_S,
    COST_LOW_PCT,
    COST_HIGH_PCT,
    SWITCHES,
];

pub(super) const THREAD: &[LiveColumn] = &[
    THREAD_NAME,
    TID,
    SWITCHES_PER_S,
    USER_PER_S,
    WAITS_FOR,
    WAIT_LASTS,
    COST_PCT,
    MAIN_REASON,
    RUNQ_P99,
    BLOCKED_PCT,
    BLOCKED_ON,
    ON_CPU_PCT,
    FOREIGN_PER_S,
    INVOLUNTARY_PER_S,
    VOLUNTARY_PER_S,
    RUNQ_P50,
    RUNQ_PCT,
    OWN_PROCESS_PER_S,
    OWN_CGROUP_PER_S,
    PROCESS_NAME,
    PID,
    COST_PER_S,
    COST_LOW_PCT,
    COST_HIGH_PCT,
    SWITCHES,
];

pub(super) const CGROUP: &[LiveColumn] = &[
    CGROUP_PATH,
    SWITCHES_PER_S,
    COST_PCT,
    QUOTA_CPUS,
    QUOTA_OF,
    THROTTLED_PER_S,
    THROTTLED_PCT,
    FOREIGN_PER_S,
    RUNQ_P99,
    MAIN_REASON,
    ON_CPU_PCT,
    BLOCKED_PCT,
    BLOCKED_ON,
    INVOLUNTARY_PER_S,
    VOLUNTARY_PER_S,
    RUNQ_P50,
    RUNQ_PCT,
    OWN_PROCESS_PER_S,
    OWN_CGROUP_PER_S,
    COST_PER_S,
    COST_LOW_PCT,
    COST_HIGH_PCT,
    SWITCHES,
];

pub(super) const REASON: &[LiveColumn] = &[
    REASON_WORD,
    CATEGORY,
    SWITCHES_PER_S,
    COST_PCT,
    BLOCKED_PCT,
    RUNQ_P99,
    RUNQ_PCT,
    ON_CPU_PCT,
    RUNQ_P50,
    OWN_PROCESS_PER_S,
    OWN_CGROUP_PER_S,
    FOREIGN_PER_S,
    COST_PER_S,
    COST_LOW_PCT,
    COST_HIGH_PCT,
    SWITCHES,
];

pub(super) const PAIR: &[LiveColumn] = &[
    PREEMPTOR,
    PREEMPTOR_TID,
    PREEMPTED,
    PREEMPTED_TID,
    SWITCHES_PER_S,
    RELATION,
    REASON_WORD,
    RUNQ_P99,
    COST_PCT,
    RUNQ_P50,
    RUNQ_PCT,
    PREEMPTOR_PROCESS,
    PREEMPTED_PROCESS,
    COST_PER_S,
    COST_LOW_PCT,
    COST_HIGH_PCT,
    SWITCHES,
];

pub(super) const LOCK: &[LiveColumn] = &[
    LOCK_WORD,
    PROCESS_NAME,
    PID,
    SWITCHES_PER_S,
    BLOCKED_PCT,
    MEAN_BLOCKED,
    RUNQ_P99,
    COST_PCT,
    RUNQ_P50,
    RUNQ_PCT,
    ON_CPU_PCT,
    COST_PER_S,
    COST_LOW_PCT,
    COST_HIGH_PCT,
    SWITCHES,
];

pub(super) const CPU: &[LiveColumn] = &[CPU_NUMBER, SWITCHES_PER_S, FROM_IDLE_PER_S, SWITCHES];
