//! Decides where the workers run and how the scheduler treats them: allowed CPUs, policy, slice.
//!
//! Most workloads put all their workers on one CPU under `SCHED_BATCH`. A batch task that is woken
//! preempts nobody but a task of `SCHED_IDLE` (`check_preempt_wakeup` in `kernel/sched/fair.c`,
//! v5.15; `check_preempt_wakeup_fair`, v6.18). So a task that wakes another and then blocks does
//! block, every time: that makes blocks countable. Threads inherit CPU and policy, so nothing has to
//! move them.

use std::mem;
use std::sync::OnceLock;
use std::time::Duration;

use crate::error::{Error, checked};

/// The CPUs that the calling thread may run on, in order.
pub(crate) fn allowed() -> Result<Vec<usize>, Error> {
    let set = affinity()?;
    let is_allowed = |cpu: &usize| {
        // SAFETY: CPU_ISSET reads a bit of a set that we own, and `cpu` is below its size.
        unsafe { libc::CPU_ISSET(*cpu, &set) }
    };
    Ok((0..mem::size_of::<libc::cpu_set_t>() * 8)
        .filter(is_allowed)
        .collect())
}

/// The CPU that workloads use: the last one, since the first one serves most interrupts.
pub(crate) fn workload_cpu() -> Result<usize, Error> {
    let last = allowed()?.last().copied();
    Ok(last.expect("invariant: the thread that asks is running on an allowed CPU"))
}

/// Lets the thread `tid` (0: the calling one) run on `cpu` only.
pub(crate) fn move_to(tid: u32, cpu: usize) -> Result<(), Error> {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // A number beyond the size of a set leaves the set empty, which the kernel refuses.
    if cpu < mem::size_of_val(&set) * 8 {
        // SAFETY: sets a bit of a set that we own, and `cpu` is below its size.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    set_affinity(tid, &set)
}

/// Longest time that a real-time member of a ring may run without blocking. It blocks at every hop;
/// the kernel ends one that does not (`RLIMIT_RTTIME`, `getrlimit(2)`), so that the machine stays
/// usable.
pub(crate) const LONGEST_REAL_TIME_RUN: Duration = Duration::from_millis(500);

/// Bounds how long the calling process may run under a real-time policy without blocking.
pub(crate) fn bound_real_time(longest: Duration) -> Result<(), Error> {
    let microseconds = u64::try_from(longest.as_micros()).unwrap_or(u64::MAX);
    let limit = libc::rlimit {
        rlim_cur: microseconds,
        rlim_max: microseconds,
    };
    // SAFETY: `limit` lives across the call, which only reads it.
    checked("setrlimit", unsafe {
        libc::setrlimit(libc::RLIMIT_RTTIME, &limit)
    })
    .map(drop)
}

/// The CPUs that this process could use before it moved itself.
static AT_FIRST: OnceLock<libc::cpu_set_t> = OnceLock::new();

/// As [`move_to`] for the calling thread, and remembers where it could run before, so that children
/// can be freed again by [`unpin`].
pub(crate) fn pin_and_remember(cpu: usize) -> Result<(), Error> {
    let before = affinity()?;
    AT_FIRST.get_or_init(|| before);
    move_to(0, cpu)
}

/// Lets the calling thread run wherever it could before [`pin_and_remember`].
pub(crate) fn unpin() -> Result<(), Error> {
    AT_FIRST.get().map_or(Ok(()), |set| set_affinity(0, set))
}

/// The way in which the scheduler treats a thread.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Policy {
    /// `SCHED_OTHER`: may preempt when it is woken.
    Other,
    /// `SCHED_BATCH`: does not preempt when woken.
    Batch,
    /// `SCHED_IDLE`: every other task preempts it.
    Idle,
    /// `SCHED_FIFO` at the lowest real-time priority.
    Fifo,
    /// `SCHED_RR` at the lowest real-time priority.
    RoundRobin,
}

impl Policy {
    /// Makes this the policy of the calling thread.
    pub(crate) fn adopt(self) -> Result<(), Error> {
        let (policy, priority) = match self {
            Self::Other => (libc::SCHED_OTHER, 0),
            Self::Batch => (libc::SCHED_BATCH, 0),
            Self::Idle => (libc::SCHED_IDLE, 0),
            Self::Fifo => (libc::SCHED_FIFO, 1),
            Self::RoundRobin => (libc::SCHED_RR, 1),
        };
        let param = libc::sched_param {
            sched_priority: priority,
        };
        set_policy(policy, &param)
    }
}

/// Sets policy and priority of the calling thread. Its nice value and slice stay.
fn set_policy(policy: libc::c_int, param: &libc::sched_param) -> Result<(), Error> {
    // SAFETY: `param` lives across the call, which only reads it; 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, policy, param) };
    checked("sched_setscheduler", result).map(drop)
}

/// Policy and priority of the calling thread.
fn policy_and_priority() -> Result<(libc::c_int, libc::sched_param), Error> {
    // SAFETY: no memory is involved; 0 is the calling thread.
    let policy = checked("sched_getscheduler", unsafe { libc::sched_getscheduler(0) })?;
    let mut param = libc::sched_param { sched_priority: 0 };
    // SAFETY: `param` is ours to be written to; 0 is the calling thread.
    checked("sched_getparam", unsafe {
        libc::sched_getparam(0, &mut param)
    })?;
    Ok((policy, param))
}

/// Sets the priority of a real-time thread; 0 is the calling one. It is only used on threads that a
/// workload starts and that end with it.
pub(crate) fn set_fifo_priority(tid: u32, priority: i32) -> Result<(), Error> {
    let param = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: `param` lives across the call, which only reads it.
    let result = unsafe { libc::sched_setparam(tid.cast_signed(), &param) };
    checked("sched_setparam", result).map(drop)
}

/// Keeps the main thread on one CPU under one policy; the workers that it starts inherit both.
/// Dropping it restores the CPUs and the policy that it found, or else the ordinary policy.
#[derive(Debug)]
pub(crate) struct CpuPolicyGuard {
    cpus_before: Box<libc::cpu_set_t>,
    policy_before: (libc::c_int, libc::sched_param),
    pub(crate) cpu: usize,
}

impl CpuPolicyGuard {
    /// Moves the calling thread to [`workload_cpu`] and sets its policy.
    pub(crate) fn on_workload_cpu(policy: Policy) -> Result<Self, Error> {
        let guard = Self {
            cpus_before: Box::new(affinity()?),
            policy_before: policy_and_priority()?,
            cpu: workload_cpu()?,
        };
        move_to(0, guard.cpu)?;
        policy.adopt()?;
        Ok(guard)
    }
}

impl Drop for CpuPolicyGuard {
    fn drop(&mut self) {
        let (policy, priority) = &self.policy_before;
        // A policy that a more powerful user gave to this process (real-time, deadline) cannot be set
        // again without the right to it: then it is the ordinary one.
        let policy = set_policy(*policy, priority).or_else(|_| Policy::Other.adopt());
        let affinity = set_affinity(0, &self.cpus_before);
        debug_assert!(
            policy.and(affinity).is_ok(),
            "invariant: the ordinary policy and the former CPUs may always be set"
        );
    }
}

/// Asks for a slice of `slice` (Linux 6.12 and later; before, the kernel ignores it). A task that
/// wakes may end the running task's slice early if its own slice is shorter (`PREEMPT_SHORT`,
/// `kernel/sched/fair.c`, v6.12). Also sets `SCHED_OTHER` and nice 0.
pub(crate) fn ask_for_slice(slice: Duration) -> Result<(), Error> {
    SchedAttr {
        runtime_ns: u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX),
        ..SchedAttr::default()
    }
    .adopt()
}

/// `struct sched_attr`, first version (`include/uapi/linux/sched/types.h`). All zero:
/// `SCHED_OTHER`, nice 0.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct SchedAttr {
    /// Size of this struct, in bytes.
    pub(crate) size: u32,
    /// A number such as `SCHED_OTHER` or `SCHED_FIFO`.
    pub(crate) policy: u32,
    /// Always 0: no flag is used here.
    pub(crate) flags: u64,
    /// Nice value, for `SCHED_OTHER` and `SCHED_BATCH`.
    pub(crate) nice: i32,
    /// Real-time priority, for `SCHED_FIFO` and `SCHED_RR`.
    pub(crate) priority: u32,
    /// The slice (Linux 6.12 and later); 0 leaves it to the kernel.
    pub(crate) runtime_ns: u64,
    /// Only for `SCHED_DEADLINE`, as the next field.
    pub(crate) deadline_ns: u64,
    pub(crate) period_ns: u64,
}

impl Default for SchedAttr {
    fn default() -> Self {
        Self {
            size: u32::try_from(mem::size_of::<Self>()).expect("invariant: 48 fits"),
            policy: libc::SCHED_OTHER.unsigned_abs(),
            flags: 0,
            nice: 0,
            priority: 0,
            runtime_ns: 0,
            deadline_ns: 0,
            period_ns: 0,
        }
    }
}

impl SchedAttr {
    /// Applies the attributes to the calling thread.
    pub(crate) fn adopt(self) -> Result<(), Error> {
        // SAFETY: `self` has the layout of struct sched_attr, says its size and lives across the
        // call, which only reads it; 0 is the calling thread.
        let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const self, 0) };
        checked("sched_setattr", result).map(drop)
    }

    /// The attributes of the calling thread.
    pub(crate) fn of_calling_thread() -> Result<Self, Error> {
        let mut own = Self::default();
        let size = own.size;
        // SAFETY: `own` is ours to be written to, and its size is passed; 0 is the calling thread.
        let result = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut own, size, 0) };
        checked("sched_getattr", result).map(|_| own)
    }
}

/// Returns how long a `SCHED_RR` task may run before others of its priority get a turn.
pub(crate) fn round_robin_interval() -> Result<Duration, Error> {
    let mut interval = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `interval` is ours to be written to; 0 is the calling thread.
    checked("sched_rr_get_interval", unsafe {
        libc::sched_rr_get_interval(0, &mut interval)
    })?;
    Ok(Duration::new(interval.tv_sec.unsigned_abs(), 0)
        + Duration::from_nanos(interval.tv_nsec.unsigned_abs()))
}

fn affinity() -> Result<libc::cpu_set_t, Error> {
    // SAFETY: an all-zero cpu_set_t is the empty set.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: `set` is ours, and its size is passed; 0 is the calling thread.
    let result = unsafe { libc::sched_getaffinity(0, mem::size_of_val(&set), &mut set) };
    checked("sched_getaffinity", result).map(|_| set)
}

fn set_affinity(tid: u32, set: &libc::cpu_set_t) -> Result<(), Error> {
    // SAFETY: `set` lives across the call, which only reads it; its size is passed.
    let result = unsafe { libc::sched_setaffinity(tid.cast_signed(), mem::size_of_val(set), set) };
    checked("sched_setaffinity", result).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A workload must not change how the program that runs it is scheduled (`chrt --batch`).
    #[test]
    fn a_guard_restores_the_policy_and_the_cpus_that_it_found() {
        std::thread::spawn(|| {
            for (before, number) in [
                (Policy::Batch, libc::SCHED_BATCH),
                (Policy::Other, libc::SCHED_OTHER),
            ] {
                before.adopt().unwrap();
                let cpus = allowed().unwrap();
                let guard = CpuPolicyGuard::on_workload_cpu(Policy::Batch).unwrap();
                assert_eq!(policy_and_priority().unwrap().0, libc::SCHED_BATCH);
                assert_eq!(allowed().unwrap(), [guard.cpu]);
                drop(guard);
                assert_eq!(policy_and_priority().unwrap().0, number);
                assert_eq!(allowed().unwrap(), cpus);
            }
        })
        .join()
        .unwrap();
    }
}
