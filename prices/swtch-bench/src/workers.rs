//! The workers of a workload: named threads and processes that run a function and then report what
//! the kernel counted for them.
//!
//! A thread reads its own counters last. What follows (the exit, and perhaps a preemption before
//! it) is in the trace but not in the count; the module `outcome` allows for it. The counters of a
//! process are read once more from outside, after it has ended.

use std::fs;
use std::io::{self, Write as _};
use std::thread::{self, Builder, Scope, ScopedJoinHandle};
use std::time::Duration;

use swtch_core::reason::Reason;

use crate::error::{Error, checked};
use crate::outcome::{Expect, SleepCounts, SwitchCounts, ThreadId, ThreadOutcome};
use crate::process::{self, ForkedChild};
use crate::shared::{Shared, SharedNumbers};

/// The number of times that the start and the end of a thread may sleep for the lock of the address space, when others
/// start and end beside it. It is taken ten times: for the allocator's arena and a signal stack (`strace`: two `mmap`,
/// two `mprotect`, three `munmap`), for the stack that is given back (`madvise`), for the first touch of the arena, and
/// by the kernel at the end. Who is woken and finds the lock taken again sleeps once more, and then has it
/// (`rwsem_down_write_slowpath` in `kernel/locking/rwsem.c`). Seen: 6, of 8 threads.
pub(crate) const LIFE_LOCKS: u64 = 20;

/// How often a process that forks may wait for locks: a fork takes the lock of each file that is mapped, as
/// the C library is by nearly all processes (`dup_mmap` in `mm/mmap.c`: `i_mmap_lock_write`). Seen: 13 waits
/// in 281 forks, beside the page's tests.
pub(crate) fn fork_locks(children: u64) -> Expect {
    let because = "a fork takes the locks of mapped files, which other processes may hold";
    Expect::between(Reason::Lock, 0, LIFE_LOCKS + children, because)
}

/// The result of a worker, and what the kernel counted for it.
#[derive(Debug)]
pub(crate) struct WorkerResult<T> {
    name: String,
    id: ThreadId,
    /// Switches that the kernel counted for it until it read its counters, after its function.
    pub(crate) counted: SwitchCounts,
    /// Switches between that count and the end of the task; 0 for threads, where nothing can read
    /// it.
    leaving: u64,
    pub(crate) value: T,
}

impl<T> WorkerResult<T> {
    /// The outcome for this thread; the expectation that it exits once is added.
    pub(crate) fn expecting(self, expect: Vec<Expect>) -> ThreadOutcome {
        together(&self.name.clone(), [self], expect)
    }
}

/// One outcome for several threads that are judged together.
pub(crate) fn together<T>(
    name: &str,
    workers: impl IntoIterator<Item = WorkerResult<T>>,
    mut expect: Vec<Expect>,
) -> ThreadOutcome {
    let (mut ids, mut counted, mut leaving) = (Vec::new(), SwitchCounts::default(), 0);
    for one in workers {
        ids.push(one.id);
        counted = counted.plus(one.counted);
        leaving += one.leaving;
    }
    let threads = u64::try_from(ids.len()).unwrap_or(u64::MAX);
    expect.push(Expect::exactly(
        Reason::Exit,
        threads,
        "each task ends once",
    ));
    if !expect.iter().any(|one| one.reasons.contains(&Reason::Lock)) {
        let because =
            "to start and to end takes the lock of the address space, which others may hold";
        expect.push(Expect::between(
            Reason::Lock,
            0,
            LIFE_LOCKS * threads,
            because,
        ));
    }
    ThreadOutcome {
        name: name.escape_default().to_string(),
        ids,
        counted,
        leaving,
        expect,
    }
}

/// A worker thread that is running.
#[derive(Debug)]
pub(crate) struct RunningWorker<'scope, T> {
    name: String,
    handle: ScopedJoinHandle<'scope, Result<WorkerResult<T>, Error>>,
}

/// Starts a thread. It inherits CPU and policy from the starter ([`crate::cpu::CpuPolicyGuard`]).
pub(crate) fn start<'scope, 'env, T: Send + 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    name: impl Into<String>,
    run: impl FnOnce() -> Result<T, Error> + Send + 'scope,
) -> Result<RunningWorker<'scope, T>, Error> {
    start_small(scope, name, 256 * 1024, run)
}

/// As [`start`], with a stack of `stack` bytes.
pub(crate) fn start_small<'scope, 'env, T: Send + 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    name: impl Into<String>,
    stack: usize,
    run: impl FnOnce() -> Result<T, Error> + Send + 'scope,
) -> Result<RunningWorker<'scope, T>, Error> {
    let name = name.into();
    let known_as = name.clone();
    let run_and_count = move || {
        let value = run()?;
        Ok(WorkerResult {
            name: known_as,
            id: own_id(),
            value,
            counted: own_switches()?,
            leaving: 0,
        })
    };
    let builder = Builder::new().name(name.clone()).stack_size(stack);
    let handle = builder
        .spawn_scoped(scope, run_and_count)
        .map_err(Error::calling("clone"))?;
    Ok(RunningWorker { name, handle })
}

impl<T> RunningWorker<'_, T> {
    /// Waits until the thread has ended.
    pub(crate) fn finish(self) -> Result<WorkerResult<T>, Error> {
        let name = self.name;
        self.handle
            .join()
            .map_err(|_panic| Error::Panicked { name })?
    }
}

/// A worker process that is running, and reports `N` numbers. Dropping it kills the process.
#[derive(Debug)]
pub(crate) struct WorkerProcess<const N: usize> {
    name: String,
    child: ForkedChild,
    found: Shared<SharedNumbers<N>>,
    counted: Shared<SharedNumbers<2>>,
}

/// Starts a process with a single thread.
pub(crate) fn start_process<const N: usize>(
    name: &str,
    run: impl FnOnce() -> Result<[u64; N], Error>,
) -> Result<WorkerProcess<N>, Error> {
    let found: Shared<SharedNumbers<N>> = Shared::new()?;
    let counted: Shared<SharedNumbers<2>> = Shared::new()?;
    let run_and_count = || {
        process::set_own_name(name.as_bytes());
        found.set(run()?);
        let switches = own_switches()?;
        counted.set([switches.voluntary, switches.involuntary]);
        Ok(())
    };
    // The parent only learns that the child failed. A closed stderr must not cause a panic.
    let explain = |error: &Error| {
        let _ = writeln!(io::stderr(), "error: process {name}: {error}");
    };
    let child = ForkedChild::fork(|| run_and_count().inspect_err(explain))?;
    Ok(WorkerProcess {
        name: name.to_owned(),
        child,
        found,
        counted,
    })
}

impl<const N: usize> WorkerProcess<N> {
    pub(crate) const fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// The process itself, for signals.
    pub(crate) const fn child(&self) -> &ForkedChild {
        &self.child
    }

    /// Waits until the process has ended.
    pub(crate) fn finish(mut self) -> Result<WorkerResult<[u64; N]>, Error> {
        let pid = self.pid();
        self.child.wait_without_reaping()?;
        let at_end = switches_of(pid)?;
        let status = self.child.wait()?;
        if status != 0 {
            return Err(Error::ProcessFailed {
                name: self.name,
                status,
            });
        }
        let [voluntary, involuntary] = self.counted.get();
        let counted = SwitchCounts {
            voluntary,
            involuntary,
        };
        Ok(WorkerResult {
            name: self.name,
            id: ThreadId { pid, tid: pid },
            counted,
            // A process that is throttled by a quota leaves its CPU often on its way out.
            leaving: at_end.total().saturating_sub(counted.total()),
            value: self.found.get(),
        })
    }
}

/// Process and thread id of the calling thread.
pub(crate) fn own_id() -> ThreadId {
    // SAFETY: gettid has no arguments and cannot fail.
    let tid = unsafe { libc::gettid() };
    ThreadId {
        pid: std::process::id(),
        tid: tid.unsigned_abs(),
    }
}

/// Reads what the kernel has counted for the calling thread so far.
pub(crate) fn own_switches() -> Result<SwitchCounts, Error> {
    let usage = own_usage()?;
    Ok(SwitchCounts {
        voluntary: usage.ru_nvcsw.unsigned_abs(),
        involuntary: usage.ru_nivcsw.unsigned_abs(),
    })
}

/// Counts the blocks of the calling thread during `work`, as the kernel counts them.
pub(crate) fn blocks_in(work: impl FnOnce() -> Result<(), Error>) -> Result<u64, Error> {
    let before = own_switches()?;
    work()?;
    Ok(own_switches()?.since(before).voluntary)
}

/// Returns how the calling thread slept in `nap`. It did not block if the time was over before it had left its CPU. A
/// preemption may use up the time, and so may an interrupt or a hypervisor, which the thread's counters do not show
/// (seen: a sleep of 50 µs in a virtual machine).
pub(crate) fn slept_in(nap: impl FnOnce() -> Result<(), Error>) -> Result<SleepCounts, Error> {
    let blocks = blocks_in(nap)?;
    Ok(SleepCounts {
        blocked: blocks.min(1),
        blocks,
    })
}

/// Sleeps, and counts as [`slept_in`].
pub(crate) fn sleep(time: Duration) -> Result<SleepCounts, Error> {
    slept_in(|| {
        thread::sleep(time);
        Ok(())
    })
}

/// Reads what the kernel has counted for another process with a single thread.
pub(crate) fn switches_of(pid: u32) -> Result<SwitchCounts, Error> {
    let path = format!("/proc/{pid}/status");
    let status = fs::read_to_string(&path).map_err(|source| Error::File {
        path: path.into(),
        source,
    })?;
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse().ok())
            .expect("invariant: every kernel since 2.6.23 writes both counters as numbers")
    };
    Ok(SwitchCounts {
        voluntary: field("voluntary_ctxt_switches:"),
        involuntary: field("nonvoluntary_ctxt_switches:"),
    })
}

fn own_usage() -> Result<libc::rusage, Error> {
    // SAFETY: an all-zero rusage is a valid one.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is ours to be written to.
    checked("getrusage", unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage)
    })?;
    Ok(usage)
}
