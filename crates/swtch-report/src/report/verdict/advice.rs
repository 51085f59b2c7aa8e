//! Advice on what to do about each cause, and when that is of no use or does harm: one table, the rows in the order in
//! which causes are looked for.
//!
//! A row is advice for the program that was recorded, never for a stranger's. What a row promises was tried on a
//! program of the corpus, before and after (`tests/causes/advice.py`); those that were not tried say so.

/// A row of the table. `{who}` and such words are filled in by the finding.
#[derive(Debug)]
pub struct Advice {
    change: &'static str,
    /// The cases in which that is of no use or does harm.
    unless: &'static str,
}

/// The advice of a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdviceText {
    /// The change to make.
    pub change: String,
    /// The cases in which that is of no use or does harm.
    pub unless: &'static str,
}

impl Advice {
    /// The row as it stands.
    pub(super) fn told(&self) -> AdviceText {
        self.told_with(&[])
    }

    /// The row, with each `{word}` replaced by what is said for it.
    pub(super) fn told_with(&self, words: &[(&str, &str)]) -> AdviceText {
        let mut change = self.change.to_owned();
        for (word, said) in words {
            change = change.replace(&format!("{{{word}}}"), said);
        }
        AdviceText {
            change,
            unless: self.unless,
        }
    }
}

const fn row(change: &'static str, unless: &'static str) -> Advice {
    Advice { change, unless }
}

// No CPU for threads that could run.

pub(super) const OVERSUBSCRIBED: Advice = row(
    "run no more busy threads than the {cpus} it uses (the size of a pool, -j, -threads, OMP_NUM_THREADS), or let \
     it use more CPUs",
    "only how much it does in all matters, and not how long one piece takes: with fewer threads the pieces are done \
     sooner, but hardly more of them",
);

pub(super) const WOKEN_EARLY: Advice = row(
    "if they take turns (a message to and fro), they need no more CPUs: wake the other last, or hand over more at once; \
     if each has work of its own, let them use more CPUs",
    "the switches are what it is about",
);

pub(super) const NEIGHBOUR: Advice = row(
    "give this program CPUs of its own (taskset, cpuset), or a greater share of them than {who} has (cpu.weight of \
     its cgroup; nice counts within a session only, where kernel.sched_autogroup_enabled is 1)",
    "this program waits for what the other does, as a server for its clients: then it would only wait longer for \
     that",
);

pub(super) const REAL_TIME: Advice = row(
    "keep {who} and those that wait on different CPUs (taskset, cpuset); if it need not be real time, make it an \
     ordinary task",
    "what the real-time task does must not wait, and there is one CPU only",
);

pub(super) const CROWDED: Advice = row(
    "run fewer busy ones at once, or give those that must not wait CPUs of their own (taskset, cpuset) or a greater \
     share (cpu.weight of its cgroup)",
    "all of them are work that is to be done, and none is more urgent: the CPUs are well used then",
);

pub(super) const PLACEMENT: Advice = row(
    "fewer wakeups: hand over more at once, or let fewer threads do it; each thread that is woken waits until \
     whoever runs there leaves, although another CPU is idle",
    "the waits are short beside what each thread does after them: see the mean in --full",
);

pub(super) const INVERSION: Advice = row(
    "a mutex that lends its holder the priority of those who wait (PTHREAD_PRIO_INHERIT), or no lock that both of \
     them need",
    "the thread of lower priority may run on another CPU: then it is enough to let it (taskset)",
);

pub(super) const QUOTA: Advice = row(
    "raise the quota{of} (cpu.max; cpu.cfs_quota_us in cgroup v1) or use less CPU at once: without it up to {time} \
     of waiting would go",
    "the quota is what this program is allowed: then fewer threads at once spread the waiting, and do not end it",
);

pub(super) const BUDGET: Advice = row(
    "each has asked for so much CPU time in a period and no more: give it more (sched_runtime of sched_setattr, \
     chrt --sched-runtime), or let it do less in each period: without that up to {time} of waiting would go",
    "other tasks have been promised the rest of the CPU",
);

pub(super) const IDLE: Advice = row(
    "forbid deep idle states (/dev/cpu_dma_latency; in a virtual machine, halt polling of its host), or let client \
     and server share a CPU (taskset)",
    "power or heat matter more than some µs of each wakeup; and two that compute at once must not share a CPU",
);

pub(super) const STEAL: Advice = row(
    "the host of this virtual machine is overcommitted: ask for dedicated CPUs, or use fewer",
    "the guest may use only a part of a CPU by contract",
);

// CPUs that were given away, and moves.

pub(super) const YIELD: Advice = row(
    "a loop around sched_yield burns CPU time until what it waits for happens: block instead (futex, mutex, condition \
     variable)",
    "two take turns on one CPU at each switch: to block was 1.2 times as slow there",
);

pub(super) const AFFINITY: Advice = row(
    "{count} of them wait inside sched_setaffinity: set the allowed CPUs once, at the start",
    "the CPUs that it may use do change",
);

// Threads that wait for each other.

pub(super) const TIMED_OUT: Advice = row(
    "most of these waits ended by their own time limit: a longer one, or none, makes fewer switches",
    "something is to be done at these times",
);

pub(super) const BARRIER: Advice = row(
    "the slowest decides: give all the same amount of work, start no more of them than there are CPUs \
     (OMP_NUM_THREADS), or let them meet less often",
    "the work cannot be divided otherwise",
);

pub(super) const GIL: Advice = row(
    "only one thread of an interpreter runs Python code at a time: run what has it for long in processes of its own \
     (multiprocessing, ProcessPoolExecutor), let native code go of it while it waits or computes, or use a Python built \
     without the GIL",
    "the threads share much data that would have to be copied between processes",
);

pub(super) const LOCK_OF_JAVA: Advice = row(
    "hold it shorter: no sleep, file, query or call to others while it is held; split it, or let readers share it \
     (ReentrantReadWriteLock)",
    "what it guards can be done by one at a time only, and takes as long",
);

pub(super) const LOCK_WITHOUT_NAMES: Advice = row(
    "`jstack PID` shows in which methods (waiting to lock, locked): hold it shorter there, with no sleep, file, query or \
     call to others meanwhile; split it, or let readers share it (ReentrantReadWriteLock)",
    "what it guards can be done by one at a time only, and takes as long",
);

pub(super) const LOCK_OF_PYTHON: Advice = row(
    "hold it shorter: no sleep, file, query or call to others while it is held; split it, or give each thread data of its \
     own",
    "what it guards can be done by one at a time only, and takes as long",
);

pub(super) const GO_IDLE: Advice = row(
    "each of these switches is a wakeup of a thread: fewer and larger pieces of work make fewer, and so may a smaller \
     GOMAXPROCS",
    "goroutines wait for requests, for others or for the clock: then it is as it should be",
);

pub(super) const WORKER_LOCK: Advice = row(
    "hold the lock shorter: no sleep, file, query or call while it is held; split it, or let readers share it \
     (sync.RWMutex)",
    "what it guards can be done by one at a time only, and takes as long",
);

pub(super) const WORKER_NO_CPU: Advice = row(
    "let it use more CPUs (GOMAXPROCS, the quota of its cgroup), or start less work at a time",
    "the work comes in bursts, and may wait",
);

pub(super) const WORKER_NO_THREAD: Advice = row(
    "if all CPUs are busy that it may use, let it use more (GOMAXPROCS, the quota of its cgroup); else hand over more at \
     a time (buffered channels, larger pieces), and make fewer system calls between",
    "it is a moment each time, and nobody waits for the whole",
);

pub(super) const LOCK: Advice = row(
    "{share} of its wakeups came from threads that wait for it too, as with a lock: hold it shorter, or split \
     it{stacks}",
    "whoever has it sleeps or waits there by intent: then it is the order that takes the time, and not the lock",
);

pub(super) const LOCK_ASLEEP: Advice = row(
    "whoever has it keeps it while it sleeps or waits for others itself: let go of it before that; where it guards a few \
     of something (connections, buffers), have more of them",
    "nobody else may work meanwhile",
);

pub(super) const HAND_OVER: Advice = row(
    "its wakers do not wait for it, as with a hand-over of work: hand over more at once",
    "each piece has to be begun at once",
);

pub(super) const TOKEN: Advice = row(
    "whoever has it keeps it while the others wait: hold it shorter, or let there be more of them",
    "their number is a limit that protects something else",
);

pub(super) const SERIAL: Advice = row(
    "a lock, a queue or a limit lets only one of them work (a Java monitor, a lock of Go or Rust, GOMAXPROCS=1): \
     hold it shorter, split it, or hand over more at once{stacks}",
    "the work is a chain in which each step needs the one before: then fewer threads are as fast, and switch less",
);

pub(super) const QUEUE: Advice = row(
    "a lock: hold it shorter, split it, or let fewer threads meet there; a queue or a pool: hand over more at \
     once{stacks}",
    "no time is known to be lost by it",
);

pub(super) const WORKERS: Advice = row(
    "a thread that has nothing to do costs nothing; each hand-over costs a switch: hand over more at once, or let \
     fewer threads serve",
    "each piece has to be begun at once",
);

pub(super) const COLLECTOR: Advice = row(
    "the collector's log says how often it stops the program (-Xlog:gc): a larger heap (-Xmx), fewer allocations, \
     or a collector that runs beside the program (G1, ZGC)",
    "there is no more memory to give",
);

// Blocked for anything else.

pub(super) const CONVERSATION: Advice = row(
    "each message costs a switch: send or take several at once, or let one thread do both jobs",
    "the next message depends on the answer",
);

pub(super) const NO_ROOM: Advice = row(
    "it can go on only as fast as {whom} reads: see what {whom} waits for, or write from a thread of its own, less, or \
     to a file",
    "it has to wait, and must not run ahead of its reader",
);

pub(super) const OTHER_SIDE: Advice = row(
    "it waits for the other side: to make it faster, look at {whom}; to switch less, let more come with each \
     message (batches, pipelining)",
    "it is idle, and there is nothing to make faster",
);

pub(super) const LOOP: Advice = row(
    "nothing else is served meanwhile: let the loop wait for this, too (an async client), or give it to a thread \
     (run_in_executor, spawn_blocking, worker_threads)",
    "it has nothing else to serve",
);

pub(super) const ONE_WORKS: Advice = row(
    "give the others a part of what it does, or let it keep what they wait for (a lock) for a shorter time{stacks}",
    "its work has to be done first, and cannot be divided",
);

pub(super) const POLLING: Advice = row(
    "if they wait for something to happen, wait for the event itself (futex, eventfd, epoll) instead of looking \
     again and again",
    "something is to be done at these times",
);

pub(super) const ASLEEP: Advice = row(
    "a thread that serves others must not sleep in the middle of it: let the event loop wake it by a timer (an async \
     sleep, setTimeout), or give what has to wait to another thread (spawn_blocking)",
    "nothing comes meanwhile",
);

pub(super) const COMMIT: Advice = row(
    "commit several changes at once (group commit), allow the last moments to be lost (PostgreSQL: \
     synchronous_commit = off), or put the log on a faster device",
    "each change has to be safe before the next begins: then only a faster device helps",
);

pub(super) const READ: Advice = row(
    "read ahead (posix_fadvise), ask for more at once, keep more in memory, or let the program do something else \
     meanwhile (io_uring, threads)",
    "the disk is at its limit: more requests at once wait longer then",
);

pub(super) const FILE_CALL: Advice = row(
    "make fewer of these calls, ask for more in each, or let the program do something else meanwhile (io_uring, \
     threads)",
    "the disk is at its limit: more requests at once wait longer then",
);

pub(super) const MEMORY: Advice = row(
    "a page had to come from a file, or memory had to be freed first: have pages there before they are needed \
     (MAP_POPULATE, madvise, mlock), or use less memory",
    "memory is short: then pages that are locked push out others",
);

pub(super) const MEMORY_LIMIT: Advice = row(
    "if the program is in that cgroup, raise its limit (memory.max, memory.high; memory.limit_in_bytes in cgroup v1), or \
     use less: the kernel takes pages back that are read again",
    "the machine has no more memory, either",
);

pub(super) const FILE_LOCK: Advice = row(
    "the kernel lets one thread at a time write to a file: write to files of their own, or let one thread write for \
     all",
    "the order of what they write matters",
);

pub(super) const ADDRESS_SPACE: Advice = row(
    "mmap, munmap, mprotect, madvise and the end of a thread take it for themselves, and page faults wait for them: \
     keep memory instead of giving it back (a larger M_TRIM_THRESHOLD and M_MMAP_THRESHOLD, pools), map more at \
     once, or use processes instead of threads",
    "memory is short, and what is freed must go back",
);

pub(super) const KERNEL_LOCK: Advice = row(
    "whoever makes the same calls, for the same file, directory or device, waits for each other: the kernel's \
     functions say for which lock (swtch report --by stack)",
    "the calls are needed as they are",
);

pub(super) const STOPPED: Advice = row(
    "a debugger (gdb, strace) or whoever sends SIGSTOP stops it: without that it goes on",
    "it is being looked at on purpose",
);

pub(super) const CHILDREN: Advice = row(
    "the work is done by the children: their lines say what holds them up",
    "they are what it is meant to wait for",
);

pub(super) const SHORT_LIVES: Advice = row(
    "to start and end one costs far more than a switch (swtch cost launch): keep workers and hand them work, \
     instead of starting one for each piece",
    "each piece is long beside its start, or needs a process of its own",
);

pub(super) const KERNEL_THREADS: Advice = row(
    "what they do is done for programs (disk, network, memory): fewer requests make fewer of these switches",
    "the requests are needed as they are",
);

// Recordings that do not tell enough.

pub(super) const STACKS: Advice = row(
    "record without --no-stacks: the stacks show where they wait",
    "the switches are few",
);

pub(super) const RECORD_BLOCKED: Advice = row(
    "record it by eBPF (as root: sudo swtch explain …): that tells what they waited for, and who ended the wait",
    "the recording is of another machine",
);

pub(super) const RECORD_PREEMPTED: Advice = row(
    "record it by eBPF (as root: sudo swtch explain …): that tells who took the CPU, and why",
    "the recording is of another machine",
);
