//! What the kernel counted for the threads of a scheduler.

use std::ops::Add;

use swtch_core::{Nanos, Pid, Tid};
use swtch_fiber::observe::{Snapshot, Tids};

use crate::counters::{Counters, read_thread};

/// The kernel's counters of each thread of a snapshot, in its order.
#[derive(Clone, Debug, Default)]
pub struct Threads(Vec<Thread>);

/// A thread, as we number it.
#[derive(Clone, Copy, Debug)]
pub struct Thread {
    /// Its scheduler.
    pub scheduler: Option<usize>,
    /// Its id in our pid namespace; `None` when it is not there any more.
    pub tid: Option<u32>,
    /// Its counters; `None` when they cannot be had: it has ended.
    pub counters: Option<Counters>,
}

impl Threads {
    /// Reads them.
    pub fn read(pid: u32, snapshot: &Snapshot) -> Self {
        let mut tids = Tids::default();
        tids.look(pid);
        let threads = snapshot.threads.iter().map(|row| {
            let tid = tids.to_ours(row.os_thread_id);
            let counters = tid.and_then(|tid| read_thread(Pid::new(pid), Tid::new(tid)).ok()?);
            Thread {
                scheduler: row.scheduler,
                tid,
                counters: counters.map(|(_, counters)| counters),
            }
        });
        Self(threads.collect())
    }

    /// Of the threads of a snapshot.
    pub fn iter(&self) -> impl Iterator<Item = &Thread> {
        self.0.iter()
    }

    /// Of all threads of a scheduler together: one in fiber mode, its workers in thread mode. `None`
    /// when none is left.
    pub fn of_scheduler(&self, scheduler: usize) -> Option<Counters> {
        let threads = self.0.iter();
        let own = threads.filter(|thread| thread.scheduler == Some(scheduler));
        own.filter_map(|thread| thread.counters).reduce(Add::add)
    }
}

/// CPU time, as far as the kernel keeps it.
pub fn cpu_time(counters: &Counters) -> Option<Nanos> {
    counters.runs.map(|runs| runs.ran)
}
