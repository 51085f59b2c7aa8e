//! The columns of reports: the key of each, what it holds and what it means, once for all tables.
//! Tables are lists of these with a cell each ([`Column`](swtch_output::column::Column)).

use swtch_output::column::{Holds, Word};

/// Defines the words: `NAME "key" Holds "meaning";`.
macro_rules! words {
    ($($name:ident $key:literal $holds:ident $help:literal;)*) => {
        $(pub const $name: Word = Word::new($key, Holds::$holds, $help);)*

        /// All words that are defined here.
        pub const ALL: &[Word] = &[$($name),*];
    };
}

words! {
    THREAD "thread" Text "name of the thread; a process may choose any name, so it is data";
    PROCESS "process" Text "name of the process; a process may choose any name, so it is data";
    COMMAND "command" Text "command line of the process";
    EARLIER_NAMES "earlier_names" Texts "names that it had before";
    TID "tid" Id "thread id";
    PID "pid" Id "process id";
    CPU "cpu" Id "number of the CPU";
    NODE "node" Id "its NUMA node, on a machine with several";
    CORE_CPUS "core_cpus" Text "the CPUs of its core, on a machine with SMT";
    CGROUP "cgroup" Text "path of the cgroup; tables name its container, where it is one";
    CGROUP_ID "cgroup_id" Id "the kernel's number of the cgroup";
    RUNTIME "runtime" Text "who made the cgroup, where its path tells: a container runtime, or systemd";
    CONTAINER_ID "container_id" Text "id of the container, or its name where it has no other";
    POD_UID "pod_uid" Text "uid of the Kubernetes pod";
    POD_QOS "pod_qos" Text "class of the pod: Guaranteed, Burstable or BestEffort";
    SPAN "span" Text "what the span is called";
    TRACE_ID "trace_id" Text "the trace that a program has published for it";
    SYSCALL "syscall" Text "the system call";
    SYSCALL_NUMBER "number" Id "the kernel's number of the system call";
    NEIGHBOUR "neighbour" Text "path of the cgroup that had the CPU, which tables name likewise, or what else had it";
    NEIGHBOUR_ID "neighbour_id" Id "the kernel's number of that cgroup";
    NEIGHBOUR_RUNTIME "neighbour_runtime" Text "who made that cgroup";
    NEIGHBOUR_CONTAINER_ID "neighbour_container_id" Text "id of its container";
    NEIGHBOUR_POD_UID "neighbour_pod_uid" Text "uid of its pod";
    NEIGHBOUR_POD_QOS "neighbour_pod_qos" Text "class of its pod";
    KIND "kind" Text "what kind of thing the row is about";
    PREEMPTOR "preemptor" Text "the task that took the CPU";
    PREEMPTOR_TID "preemptor_tid" Id "thread id of the task that took the CPU";
    PREEMPTED "preempted" Text "the task that lost the CPU";
    PREEMPTED_TID "preempted_tid" Id "thread id of the task that lost the CPU";
    WAKER "waker" Text "who made a blocked thread runnable";
    WAKER_TID "waker_tid" Id "its thread id";
    WAKER_PID "waker_pid" Id "its process id";
    WOKEN "woken" Text "the thread that was made runnable";
    WOKEN_TID "woken_tid" Id "its thread id";
    WOKEN_PID "woken_pid" Id "its process id";
    NEXT "next" Text "the thread that ran next on the CPU";
    NEXT_TID "next_tid" Id "its thread id";
    NEXT_PID "next_pid" Id "its process id";

    REASON "reason" Text "why threads left their CPUs";
    CATEGORY "category" Text "kind of reason";
    MAIN_REASON "main_reason" Text "the reason of most of these switches";
    MAIN_REASON_PCT "main_reason_pct" Percent "its share of these switches";
    RULE "rule" Text "the rule that gave the reason";
    CERTAINTY "certainty" Text "whether the kernel said the reason, or it was inferred";
    CAUSE "cause" Text "who asked for the reschedule";
    USER_FRAMES "user_frames" Texts "functions of the process, innermost first";
    KERNEL_FRAMES "kernel_frames" Texts "functions of the kernel, innermost first";
    REASONS "reasons" Texts "the reasons of these waits, the most frequent first";
    PROCESSES "processes" Texts "names of the first processes that waited there";
    WAIT_KEY "wait_key" Address "address of the futex word, or inode number of the file";
    WAITERS "waiters" Count "threads that waited for it";
    WOKEN_BY_WAITERS "woken_by_waiters_pct" Percent "share of the wakeups by tasks that came from its own waiters";
    LAST_WAKERS "last_wakers" Texts "the last tasks or interrupts that ended a wait for it";
    WOKEN_FROM "woken_from" Text "where wakers were when they ended the wait";
    PROGRAM "program" Text "name of the process; a process may choose any name, so it is data";
    THREADS "threads" Count "number of threads";
    PROCESS_COUNT "process_count" Count "number of processes";
    STATE "state" Text "state of the threads, as /proc has it: S sleeps, D sleeps and takes no signal, T is stopped";
    KERNEL_FUNCTION "kernel_function" Text "the function of the kernel that waits";
    LAST_RAN_BEFORE "last_ran_before_ns" Time "how long before the recording the last of them ran";
    FIRST_RAN_BEFORE "first_ran_before_ns" Time "how long before the recording the first of them ran";
    PIDS "pids" Texts "ids of the first 16 processes";
    TIDS "tids" Texts "ids of the first 16 threads";
    LEVEL "level" Text "os: the kernel switches threads; user: a user-mode scheduler switches workers";
    FOLDED "folded" Text "both stacks in one line, outermost first";

    SWITCHES "switches" Count "context switches: how often the threads left a CPU";
    SHARE "share_pct" Percent "share of all that the table counts";
    CERTAIN "certain_pct" Percent "share of the switches whose reason the kernel said";
    VOLUNTARY "voluntary" Count "of these, those that the kernel counts as voluntary: left to sleep";
    INVOLUNTARY "involuntary" Count "of these, those that left while they could run on";
    BY_ITS_WAKEUP "by_its_wakeup" Count "switches that its wakeup asked for";
    WAITS "waits" Count "waits that ended in a run";
    OPEN_WAITS "open_waits" Count "waits that had not ended when the recording did";

    RAN "ran_ns" Time "time on a CPU";
    OFF "off_ns" Time "time off the CPU: blocked_ns and runq_ns, and waits whose wakeup was not seen";
    OFF_LOW "off_low_ns" Time "off_ns is this at least (95 %): it is exact where the stack of each wait was taken";
    OFF_HIGH "off_high_ns" Time "off_ns is this at most (95 %)";
    BLOCKED "blocked_ns" Time "time until somebody woke them";
    RUNQ "runq_ns" Time "time runnable without a CPU (run-queue wait, CPU wait)";
    OPEN "open_ns" Time "how long the open waits had lasted";
    BEGAN "began_ns" Time "when it began, since the recording did";
    LENGTH "length_ns" Time "how long it took; of a published trace, all its stretches together";
    LONGEST_WAIT "longest_wait_ns" Time "its longest wait until somebody woke it";
    WAITED_IN "waited_in" Text "functions in which it waited longest, the innermost first";
    LONGEST_RUNQ "longest_runq_ns" Time "its longest time runnable without a CPU at once";
    IRQ "irq_ns" Time "time that interrupts took of the runs";

    PER_S "per_s" Number "switches a second";
    WHY_THREADS_LEFT "why_threads_left_the_cpu" Text "the reason, and what it means";
    PER_SECOND "per_second" Count "switches a second";
    ON_CPU "on_cpu_ns" Time "time on a CPU";
    CPU_WAIT "cpu_wait_ns" Time "time runnable without a CPU";
    RUN_MEAN "run_mean_ns" Time "mean length of the runs";
    OS "os" Count "switches of the kernel's scheduler";
    USER "user" Count "switches of user-mode schedulers";
    OS_SWITCHES "os_switches" Text "number of switches of the kernel inside one run of a worker";
    USER_RUNS "user_runs" Count "number of runs of workers that had so many";
    USER_SWITCHES "user_switches" Text "number of switches of workers inside one run of a thread";
    OS_RUNS "os_runs" Count "number of runs of threads that had so many";
    FROM "from" Count "the least number that this row counts";
    TO "to" Count "the largest number that this row counts";

    RUN_P50 "run_p50_ns" Time "half of the runs were not longer";
    RUN_P90 "run_p90_ns" Time "90 % of the runs were not longer";
    RUN_P99 "run_p99_ns" Time "99 % of the runs were not longer";
    RUN_P99_9 "run_p99_9_ns" Time "99.9 % of the runs were not longer";
    RUN_MAX "run_max_ns" Time "the longest run";
    RUNQ_P50 "runq_p50_ns" Time "half of the waits were runnable for no longer";
    RUNQ_P90 "runq_p90_ns" Time "90 % of the waits were runnable for no longer";
    RUNQ_P99 "runq_p99_ns" Time "99 % of the waits were runnable for no longer";
    RUNQ_P99_9 "runq_p99_9_ns" Time "99.9 % of the waits were runnable for no longer";
    RUNQ_MAX "runq_max_ns" Time "the longest time runnable in one wait";
    OFF_P50 "off_p50_ns" Time "half of the waits were not longer";
    OFF_P90 "off_p90_ns" Time "90 % of the waits were not longer";
    OFF_P99 "off_p99_ns" Time "99 % of the waits were not longer";
    OFF_P99_9 "off_p99_9_ns" Time "99.9 % of the waits were not longer";
    OFF_MAX "off_max_ns" Time "the longest wait";
    OFF_P50_BELOW "off_p50_below_ns" Time "half of the waits were below this power of two";
    OFF_P99_BELOW "off_p99_below_ns" Time "99 % of the waits were below this power of two";
    RUNQ_P50_BELOW "runq_p50_below_ns" Time "half of the waits were runnable for less than this power of two";
    RUNQ_P99_BELOW "runq_p99_below_ns" Time "99 % of the waits were runnable for less than this power of two";

    VERDICT "verdict" Text "whether the figure changed, and for better or worse";
    FIGURE "figure" Text "what is compared, in words";
    TAKER "taker" Text "the program that took the CPU";
    VICTIM "victim" Text "the program that lost it";
    STACK "stack" Text "where threads waited, outermost function first";
    UNIT "unit" Text "unit of before and after";
    BEFORE "before" Number "mean of the runs of A";
    AFTER "after" Number "mean of the runs of B";
    CHANGE "change_pct" Percent "how much more B has than A";
    CHANGE_LOW "low_pct" Percent "lower end of the interval of the change, 95 % sure for all figures together";
    CHANGE_HIGH "high_pct" Percent "upper end of the interval of the change";
    ADJUSTED_P "adjusted_p" Number "probability of such a change by chance, corrected for all that is compared (Holm)";
    SCALE "scale" Text "whether A and B were compared as a ratio or, where a run has 0, as a difference";
    WORSE_IS "worse_is" Text "more, where more of it is worse";
    IS_REGRESSION "is_regression" Text "yes if it is worse by more than --fail-over";
    NOT_JUDGED_BECAUSE "not_judged_because" Text "why it was not judged";

    DIRECT "direct_ns" Time "what the switches themselves took: the estimate";
    DIRECT_LOW "direct_low_ns" Time "the same, lower end of the interval";
    DIRECT_HIGH "direct_high_ns" Time "the same, upper end of the interval";
    INDIRECT_HIGH "indirect_high_ns" Time "the most that tasks lost afterwards in caches; the least is 0";
    SHARE_OF_WALL "share_of_wall_pct" Percent "direct_ns as a share of one CPU for the whole time";
    SHARE_OF_CPU "share_of_cpu_pct" Percent "direct_ns as a share of ran_ns";
    MEASURED "measured_pct" Percent "share of direct_ns whose price was measured; else estimated";
    UNPRICED "unpriced" Count "switches for which the price list has no price; they are in no cost";
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fs;
    use std::path::Path;

    use serde_json::json;

    use super::*;

    /// A reader of JSON or CSV has only the key to tell the unit.
    #[test]
    fn keys_are_single_and_end_in_their_unit() {
        let keys: HashSet<_> = ALL.iter().map(|word| word.key).collect();
        assert_eq!(keys.len(), ALL.len());
        for word in ALL {
            let is_time = word.key.ends_with("_ns");
            let is_share = word.key.ends_with("_pct");
            assert_eq!(word.holds == Holds::Time, is_time, "{}", word.key);
            assert_eq!(word.holds == Holds::Percent, is_share, "{}", word.key);
            assert!(
                !word.help.is_empty() && !word.help.ends_with('.'),
                "{}",
                word.key
            );
        }
    }

    /// The JSON schemas take what columns mean from a file, which is kept in the tree.
    #[test]
    fn the_file_of_columns_is_as_the_code_says() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas/columns.json");
        let lines = ALL.iter().map(|word| {
            let said = json!({"holds": word.holds.as_str(), "help": word.help});
            format!("  {}: {said}", json!(word.key))
        });
        let text = format!("{{\n{}\n}}\n", lines.collect::<Vec<_>>().join(",\n"));
        if std::env::var_os("SWTCH_BLESS").is_some() {
            fs::write(&path, &text).unwrap();
        }
        let kept = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == text,
            "docs/schemas/columns.json is stale; renew it: make schema"
        );
    }
}
