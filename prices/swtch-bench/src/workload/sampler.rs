//! A sample program that makes every kind of switch, with thread names that say what each thread
//! does.
//!
//! It is meant for viewing, not for exact counts. All threads run at once for about two seconds,
//! the hogs on one CPU and the others where the kernel puts them, and each must show its own
//! reason. Real time and quota need root and are left out without it.

use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};
use std::thread::{self, Scope};
use std::time::Duration;

use swtch_core::reason::Reason;
use swtch_core::units::Timestamp;

use super::Workload;
use super::page_faults::ColdMapping;
use crate::clock;
use crate::cpu::{self, Policy};
use crate::cpu_group::{CgroupHierarchy, CpuGroup};
use crate::error::Error;
use crate::needs::Needs;
use crate::outcome::{Expect, ThreadOutcome, WorkloadOutcome};
use crate::process::ForkedChild;
use crate::scratch::{AlignedBlock, Scratch, offset_of_block};
use crate::token::{EpolledPipe, EventFd, Pipe, Token, UnixSocket};
use crate::workers::{RunningWorker, WorkerProcess, fork_locks, start, start_process};

/// The time for which a thread rests after each repetition of what it does. By default, that leaves a few hundred
/// repetitions.
const REST: Duration = Duration::from_millis(5);

/// Blocks of the files that are read and mapped.
const BLOCKS: u64 = 100;

pub(super) const SAMPLER: Workload = Workload {
    name: "sampler",
    about: "every kind of switch, by threads whose names say what they do",
    needs: Needs::Disk,
    default_count: 2000,
    count_is: "ms",
    run,
};

fn run(ms: u64) -> Result<WorkloadOutcome, Error> {
    let end = clock::after(Duration::from_millis(ms));
    let resources = SamplerResources::new()?;
    // Processes are started first, while the process has one thread: a fork copies only its caller.
    let parent = start_process("parent", || {
        let mut children = 0;
        until(end, || wait_for_a_child().inspect(|()| children += 1))?;
        Ok([children])
    })?;
    let stopped = start_process("stopped", || until(end, || Ok(())).map(|()| []))?;
    let throttled = Throttled::start(end)?;
    let mut threads = thread::scope(|scope| {
        let mut workers = SamplerThreads {
            scope,
            running: Vec::new(),
        };
        resources.enter(&mut workers, end)?;
        workers.add("stopper", Reason::Child, || {
            until(end, || {
                stopped
                    .child()
                    .stop()
                    .and_then(|()| stopped.child().resume())
            })
        })?;
        workers.finish()
    })?;
    let parent = parent.finish()?;
    let mut expect = shows(Reason::Child);
    let [children] = parent.value;
    expect.push(fork_locks(children));
    threads.push(parent.expecting(expect));
    threads.push(stopped.finish()?.expecting(shows(Reason::Stop)));
    if let Some(throttled) = throttled {
        threads.push(throttled.finish()?);
    }
    Ok(WorkloadOutcome { threads })
}

/// Objects that the threads share.
struct SamplerResources {
    pipes: [Pipe; 2],
    sockets: [UnixSocket; 2],
    polled: [EpolledPipe; 2],
    eventfds: [EventFd; 2],
    mutex: Mutex<()>,
    scratch: Scratch,
    mapping: ColdMapping,
}

impl SamplerResources {
    fn new() -> Result<Self, Error> {
        let mapped = Scratch::with_blocks(BLOCKS)?;
        Ok(Self {
            pipes: [Pipe::new()?, Pipe::new()?],
            sockets: [UnixSocket::new()?, UnixSocket::new()?],
            polled: [EpolledPipe::new()?, EpolledPipe::new()?],
            eventfds: [EventFd::new()?, EventFd::new()?],
            mutex: Mutex::new(()),
            mapping: ColdMapping::of(&mapped, BLOCKS)?,
            scratch: Scratch::with_blocks(BLOCKS)?,
        })
    }

    fn enter<'scope>(
        &'scope self,
        workers: &mut SamplerThreads<'scope, '_>,
        end: Timestamp,
    ) -> Result<(), Error> {
        self.enter_runners(workers, end)?;
        self.enter_sleepers(workers, end)?;
        workers.add_pair(
            ["pipe-writer", "pipe-reader"],
            Reason::Pipe,
            &self.pipes,
            end,
        )?;
        workers.add_pair(["client", "server"], Reason::Net, &self.sockets, end)?;
        workers.add_pair(
            ["event-source", "event-loop"],
            Reason::Poll,
            &self.polled,
            end,
        )?;
        workers.add_pair(["asker", "answerer"], Reason::Ipc, &self.eventfds, end)
    }

    /// Threads that want the CPU and lose it.
    fn enter_runners<'scope>(
        &'scope self,
        workers: &mut SamplerThreads<'scope, '_>,
        end: Timestamp,
    ) -> Result<(), Error> {
        let home = cpu::workload_cpu()?;
        for name in ["hog-1", "hog-2", "hog-3"] {
            workers.add(name, Reason::Slice, move || {
                cpu::move_to(0, home)?;
                clock::spin_until(end);
                Ok(())
            })?;
        }
        workers.add("yielder", Reason::Yield, move || {
            cpu::move_to(0, home)?;
            until(end, || {
                thread::yield_now();
                Ok(())
            })
        })?;
        if let [first, second, ..] = cpu::allowed()?[..] {
            workers.add("flipper", Reason::Migrate, move || {
                until(end, || {
                    cpu::move_to(0, first).and_then(|()| cpu::move_to(0, second))
                })
            })?;
        }
        if Needs::Root.are_met() {
            workers.add("real-time", Reason::Sleep, move || {
                cpu::move_to(0, home)?;
                Policy::Fifo.adopt()?;
                until(end, || Ok(()))
            })?;
        }
        Ok(())
    }

    /// Threads that wait for a lock, for the disk, for memory and for time.
    fn enter_sleepers<'scope>(
        &'scope self,
        workers: &mut SamplerThreads<'scope, '_>,
        end: Timestamp,
    ) -> Result<(), Error> {
        for name in ["locker-1", "locker-2"] {
            workers.add(name, Reason::Futex, move || {
                while clock::now() < end {
                    let guard = self.mutex.lock().unwrap_or_else(PoisonError::into_inner);
                    thread::sleep(REST);
                    drop(guard);
                    thread::sleep(REST / 5);
                }
                Ok(())
            })?;
        }
        let direct = self.scratch.reopen_direct()?;
        let mut block = AlignedBlock::new();
        workers.add("disk-reader", Reason::Io, move || {
            let mut offsets = (0..BLOCKS).cycle().map(offset_of_block);
            until(end, || {
                let offset = offsets.next().expect("invariant: a cycle has no end");
                direct
                    .read_exact_at(&mut block.0, offset)
                    .map_err(Error::calling("pread64"))
            })
        })?;
        workers.add("page-toucher", Reason::Fault, move || {
            let mut pages = self.mapping.pages();
            until(end, || {
                pages
                    .next()
                    .into_iter()
                    .for_each(|page| self.mapping.touch(page));
                Ok(())
            })
        })?;
        workers.add("sleeper", Reason::Sleep, move || until(end, || Ok(())))
    }
}

/// The running threads, each with the reason that it must show.
struct SamplerThreads<'scope, 'env> {
    scope: &'scope Scope<'scope, 'env>,
    running: Vec<(RunningWorker<'scope, ()>, Reason)>,
}

impl<'scope> SamplerThreads<'scope, '_> {
    fn add(
        &mut self,
        name: &str,
        reason: Reason,
        run: impl FnOnce() -> Result<(), Error> + Send + 'scope,
    ) -> Result<(), Error> {
        self.running.push((start(self.scope, name, run)?, reason));
        Ok(())
    }

    /// Adds one thread that rests, passes and waits for the answer, and one that answers.
    fn add_pair<T: Token>(
        &mut self,
        [asks, answers]: [&str; 2],
        reason: Reason,
        [ping, pong]: &'scope [T; 2],
        end: Timestamp,
    ) -> Result<(), Error> {
        let left_ns = end.since(clock::now()).map_or(0, |left| left.as_ns());
        let rounds = u128::from(left_ns) / REST.as_nanos() / 2;
        let rounds = u64::try_from(rounds).expect("invariant: less than it was made from");
        self.add(asks, reason, move || {
            (0..rounds).try_for_each(|_| {
                thread::sleep(REST);
                ping.pass()?;
                pong.take()
            })
        })?;
        self.add(answers, reason, move || {
            (0..rounds).try_for_each(|_| {
                ping.take()?;
                // The other thread waits meanwhile.
                clock::spin(REST / 50);
                pong.pass()
            })
        })
    }

    fn finish(self) -> Result<Vec<ThreadOutcome>, Error> {
        let outcomes = self
            .running
            .into_iter()
            .map(|(running, reason)| Ok(running.finish()?.expecting(shows(reason))));
        outcomes.collect()
    }
}

/// A hog in a cgroup with a quota.
struct Throttled {
    hog: WorkerProcess<0>,
    _group: CpuGroup,
}

impl Throttled {
    /// Starts the hog; `None` without root or without the controller.
    fn start(end: Timestamp) -> Result<Option<Self>, Error> {
        if !Needs::CpuController.are_met() {
            return Ok(None);
        }
        let Some(hierarchy) = CgroupHierarchy::find() else {
            return Ok(None);
        };
        let (quota, period) = (Duration::from_millis(5), Duration::from_millis(50));
        let group = CpuGroup::with_quota(&hierarchy, quota, period)?;
        let hog = start_process("hog-on-quota", || {
            clock::spin_until(end);
            Ok([])
        })?;
        group.admit(hog.pid())?;
        Ok(Some(Self { hog, _group: group }))
    }

    fn finish(self) -> Result<ThreadOutcome, Error> {
        Ok(self.hog.finish()?.expecting(shows(Reason::Throttle)))
    }
}

fn wait_for_a_child() -> Result<(), Error> {
    let mut child = ForkedChild::fork(|| {
        clock::spin(Duration::from_millis(1));
        Ok(())
    })?;
    child.wait().map(drop)
}

/// Repeats `operation`, each time followed by a rest, until `end`.
fn until(end: Timestamp, mut operation: impl FnMut() -> Result<(), Error>) -> Result<(), Error> {
    while clock::now() < end {
        operation()?;
        thread::sleep(REST);
    }
    Ok(())
}

fn shows(reason: Reason) -> Vec<Expect> {
    vec![
        Expect::at_least(reason, 1, "its name says so"),
        Expect::at_least(Reason::Sleep, 0, "it rests between its operations"),
        Expect::balancing(),
    ]
}
