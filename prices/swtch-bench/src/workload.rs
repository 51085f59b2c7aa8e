//! The list of all workloads, and the type that describes one.

use std::fmt;

use crate::error::Error;
use crate::needs::Needs;
use crate::outcome::WorkloadOutcome;

mod affinity;
mod children;
mod contention;
mod crowd;
mod disk;
mod exits;
mod forks;
mod hogs;
mod kernel_locks;
mod page_faults;
mod periodic;
mod ping_pong;
mod policy;
mod quota;
mod renamer;
mod sampler;
mod sleeps;
mod stop;
mod storm;
mod yields;

/// Seconds after which the watchdog ends a workload: at least ten times as long as any takes by
/// default.
const LIMIT_SECONDS: u32 = 120;

/// A workload: it makes switches of a known kind and number.
pub struct Workload {
    /// Its name on the command line.
    pub name: &'static str,
    /// A description of one line.
    pub about: &'static str,
    /// The need that must be met to run it.
    pub needs: Needs,
    /// The count (repetitions or a length) if none is given.
    pub default_count: u64,
    /// The unit of the count: "rounds", "ms".
    pub count_is: &'static str,
    run: fn(u64) -> Result<WorkloadOutcome, Error>,
}

impl Workload {
    /// Makes the switches, and returns what a trace of them must contain.
    ///
    /// Call it in a process that has no other thread. Whatever it changes about the process
    /// (affinity, policy) is restored when it returns. A watchdog ends the process by `SIGALRM`
    /// after two minutes.
    ///
    /// # Errors
    ///
    /// [`Error::Missing`] when [`Self::needs`] is not met; otherwise the call that the kernel
    /// refused.
    pub fn run(&self, count: u64) -> Result<WorkloadOutcome, Error> {
        if !self.needs.are_met() {
            return Err(Error::Missing {
                workload: self.name,
                needs: self.needs,
            });
        }
        let _watchdog = Watchdog::start();
        (self.run)(count)
    }
}

impl fmt::Debug for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workload")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

static WORKLOADS: &[Workload] = &[
    hogs::HOGS,
    hogs::OWN_CLOCK,
    hogs::ROUND_ROBIN,
    periodic::WAKEUP,
    periodic::WAKEUP_OVER_IDLE,
    periodic::FIFO,
    policy::POLICY,
    quota::QUOTA_USED,
    affinity::FLIPPED,
    affinity::SELF_FLIPS,
    yields::ALONE,
    yields::PAIR,
    ping_pong::FUTEX,
    ping_pong::CONDVAR,
    ping_pong::SEMAPHORE,
    contention::MUTEX,
    ping_pong::SYSV_SEMAPHORE,
    ping_pong::MESSAGE_QUEUE,
    ping_pong::EVENTFD,
    contention::FILE_LOCK,
    kernel_locks::INODE,
    kernel_locks::ADDRESS_SPACE,
    disk::DIRECT_READ,
    disk::FSYNC,
    ping_pong::PIPE_THREADS,
    ping_pong::PIPE_PROCESSES,
    ping_pong::UNIX_SOCKET,
    ping_pong::TCP,
    ping_pong::EPOLL,
    ping_pong::POLL,
    sleeps::NANOSLEEP,
    sleeps::POLL_SLEEP,
    sleeps::TIMERFD,
    page_faults::PAGE_FAULTS,
    children::WAIT,
    children::SPAWN,
    stop::STOP,
    exits::THREADS,
    exits::PROCESSES,
    sampler::SAMPLER,
    storm::STORM,
    crowd::CROWD,
    forks::FORKS,
    renamer::RENAMER,
];

/// All workloads, in the order of the reasons that they show.
pub const fn workloads() -> &'static [Workload] {
    WORKLOADS
}

/// The workload with this name; `None` if there is none.
pub fn workload_named(name: &str) -> Option<&'static Workload> {
    workloads().iter().find(|workload| workload.name == name)
}

/// Ends the process when workers wait for one another forever, as they do after one of them has
/// failed.
struct Watchdog;

impl Watchdog {
    fn start() -> Self {
        // SAFETY: no memory is involved, and it cannot fail.
        unsafe { libc::alarm(LIMIT_SECONDS) };
        Self
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // SAFETY: as above; 0 takes the alarm back.
        unsafe { libc::alarm(0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_is_found_by_its_name_and_no_name_is_used_twice() {
        for workload in workloads() {
            let found = workload_named(workload.name).unwrap();
            assert!(
                std::ptr::eq(found, workload),
                "{} is used twice",
                workload.name
            );
        }
    }
}
