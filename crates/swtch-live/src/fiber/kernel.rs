//! The kernel's counters for the threads of a scheduler.

use std::ops::Add;

use swtch_core::{Nanos, Pid, Tid};
use swtch_host::thread::{ThreadCounters, read_counters};
use swtch_observe::{Snapshot, Tids};

/// The kernel's counters of each thread of a snapshot, in the order of the snapshot.
#[derive(Clone, Debug, Default)]
pub struct KernelCounters(Vec<SnapshotThread>);

/// One thread of the snapshot, with its kernel counters.
#[derive(Clone, Copy, Debug)]
pub struct SnapshotThread {
    /// Number of its scheduler in the snapshot; `None` if it belongs to none.
    pub scheduler: Option<usize>,
    /// Its id in our pid namespace; `None` if the thread is gone.
    pub tid: Option<u32>,
    /// `None` if the thread has ended, or its files cannot be read.
    pub counters: Option<ThreadCounters>,
}

impl KernelCounters {
    /// Reads the counters of every thread of the snapshot from procfs.
    pub fn read(pid: u32, snapshot: &Snapshot) -> Self {
        let mut tids = Tids::default();
        tids.look(pid);
        let threads = snapshot.threads.iter().map(|row| {
            let tid = tids.to_ours(row.os_thread_id);
            let counters = tid.and_then(|tid| read_counters(Pid::new(pid), Tid::new(tid)).ok()?);
            SnapshotThread {
                scheduler: row.scheduler,
                tid,
                counters: counters.map(|(_, counters)| counters),
            }
        });
        Self(threads.collect())
    }

    pub fn iter(&self) -> impl Iterator<Item = &SnapshotThread> {
        self.0.iter()
    }

    /// The sum for all threads of a scheduler: one thread in fiber mode, its workers in thread
    /// mode. `None` if none of them is left.
    pub fn of_scheduler(&self, scheduler: usize) -> Option<ThreadCounters> {
        let threads = self.0.iter();
        let own = threads.filter(|thread| thread.scheduler == Some(scheduler));
        own.filter_map(|thread| thread.counters).reduce(Add::add)
    }
}

/// CPU time; `None` if the kernel does not account for it.
pub fn cpu_time(counters: &ThreadCounters) -> Option<Nanos> {
    counters.runs.map(|runs| runs.ran)
}
