//! Findings about goroutines, of which the kernel's threads say nothing, and what is said of those of other runtimes.

use rustc_hash::FxHashMap;
use swtch_core::{Nanos, Tally};
use swtch_output::sheet::percent;

use super::super::screen::in_hundredths;
use super::super::workers::sum_of;
use super::who::WAITED_IN;
use super::{Finding, FindingKind, NAMED, VerdictInput, advice, share};

/// From this share of the machine's CPUs on that a program uses, its goroutines wait for CPUs.
const USED_PCT: f64 = 80.0;

/// Threads of a runtime's own, of which nothing is read.
struct UnreadWorkers {
    runtime: &'static str,
    /// True for the name of a thread of the kernel that only such a program has.
    is_sign: fn(&str) -> bool,
    has: &'static str,
    awaited: &'static str,
    /// What tells what they wait for.
    tells: &'static str,
}

/// The surer ones first. Threads that bring virtual threads of Java back which waited for a time or a monitor are called
/// `VirtualThread-unparker` and `-unblocker`, those that run them as those of any pool but the common one, `ForkJoinPool.c`
/// (`VirtualThread.java`, JDK 21 and 25); the schedulers of BEAM `1_scheduler`, from Erlang/OTP 26 on `erts_sched_1`.
const UNREAD: [UnreadWorkers; 3] = [
    UnreadWorkers {
        runtime: "Java",
        is_sign: |name| name.starts_with("VirtualThread-u"),
        has: "has virtual threads",
        awaited: "locks",
        tells: "jcmd PID Thread.dump_to_file FILE",
    },
    UnreadWorkers {
        runtime: "Erlang",
        is_sign: |name| name == "1_scheduler" || name == "erts_sched_1",
        has: "has processes of its own",
        awaited: "each other",
        tells: "i(). in its shell",
    },
    UnreadWorkers {
        runtime: "Java",
        is_sign: |name| name.starts_with("ForkJoinPool-"),
        has: "may have virtual threads",
        awaited: "locks",
        tells: "jcmd PID Thread.dump_to_file FILE",
    },
];

impl VerdictInput<'_> {
    /// Goroutines that waited for a lock.
    pub(super) fn worker_locks(&self, total: &Tally) -> Option<Finding> {
        let stacks = &self.workers.at_locks;
        let place = self.in_function(stacks);
        let seen = format!("Goroutines wait for a lock{place} (sync.Mutex, sync.RWMutex)");
        let mut finding = self.of_stacks("worker_lock", stacks, &seen, total)?;
        finding.advice = Some(advice::WORKER_LOCK.told());
        Some(finding)
    }

    /// Goroutines that could run, and had no thread.
    pub(super) fn worker_no_thread(&self, total: &Tally) -> Option<Finding> {
        let whole = self.wall.as_ns().saturating_mul(self.cpus.into());
        let used = percent(self.lost.ran.as_ns(), whole);
        let is_used = used.is_some_and(|share| share >= USED_PCT);
        let (seen, advice) = match is_used && !self.names.is_of_the_machine() {
            true => (
                "More goroutines can run than the runtime runs at once (GOMAXPROCS)",
                &advice::WORKER_NO_CPU,
            ),
            false => (
                "Goroutines that could run were not run at once: as many ran as may at a time (GOMAXPROCS), or they waited \
                 behind others, whose thread was in a system call or had yet to wake up",
                &advice::WORKER_NO_THREAD,
            ),
        };
        let stacks = &self.workers.runnable;
        let mut finding = self.of_stacks("worker_no_thread", stacks, seen, total)?;
        finding.advice = Some(advice.told());
        Some(finding)
    }

    /// One by which threads or goroutines lost time in these stacks; `None` if it is not worth telling.
    pub(super) fn of_stacks(
        &self,
        name: &'static str,
        stacks: &FxHashMap<u32, u64>,
        seen: &str,
        total: &Tally,
    ) -> Option<Finding> {
        let time = sum_of(stacks);
        let weight = self.weighed(time, Nanos::ZERO, 0, total)?;
        (weight.0 == FindingKind::Lost).then_some(())?;
        let seen = format!(
            "{seen}: {} at a time on average, {}.",
            in_hundredths(time.as_ns(), self.wall.as_ns()),
            self.lost_words(time),
        );
        let functions = self.main_functions(stacks);
        Some(Finding {
            places: functions
                .map(|functions| format!("{WAITED_IN}{functions}"))
                .into_iter()
                .collect(),
            ..Finding::of_time(name, weight, seen)
        })
    }

    /// `Its goroutines waited for: IO wait 70.0 %, select 20.0 %.`
    pub(super) fn workers_waited(&self) -> Option<String> {
        let reasons = self.workers.reasons();
        let all: Nanos = reasons.iter().map(|(_, time)| *time).sum();
        let named = reasons.iter().take(NAMED);
        let named =
            named.map(|(name, time)| format!("{name} {}", share(time.as_ns(), all.as_ns())));
        let named: Vec<_> = named.collect();
        (!named.is_empty()).then(|| {
            format!(
                "Its goroutines waited, in the words of Go, for: {}.",
                named.join(", ")
            )
        })
    }
    /// Says of a program that has threads of its own kind, or may have, that these wait without one of the kernel's, and are
    /// not read.
    pub fn unread_workers(&self) -> Option<String> {
        // Of a machine somebody's threads may be called anything.
        (!self.names.is_of_the_machine()).then_some(())?;
        let pid = |kind: &UnreadWorkers| {
            let threads = 0..self.names.thread_count();
            let is_recorded = |index: &usize| {
                let thread = self.names.thread(*index);
                thread.in_scope && (kind.is_sign)(&thread.comm)
            };
            let of = threads.filter(is_recorded);
            of.filter_map(|index| self.names.process_of(index).pid)
                .min()
        };
        let mut kinds = UNREAD.iter();
        let (pid, kind) = kinds.find_map(|kind| Some((pid(kind)?, kind)))?;
        let tells = kind.tells.replace("PID", &pid.to_string());
        Some(format!(
            "{} (process {pid}) {}, which wait without a thread of the kernel, for {}, too. For what is not read here: \
             {tells} tells.",
            kind.runtime, kind.has, kind.awaited
        ))
    }
}
