//! What is recorded, and how: the settings of a capture.

use std::fmt;
use std::sync::Arc;

use swtch_core::Nanos;

use crate::scope::RecordingScope;

/// What is recorded, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The tasks whose switches are recorded.
    pub scope: RecordingScope,
    /// Record stacks of waits that blocked for at least this long; `None` for no stacks.
    pub stacks: Option<Nanos>,
    /// Number of switch records that fit into a CPU's ring; a power of two.
    pub slots_per_cpu: u32,
    /// Hooks to treat as missing, for tests of older kernels.
    pub without_hooks: Vec<String>,
    /// Hooks to attach to although eBPF on them can crash this kernel.
    pub with_hooks: Vec<String>,
    /// For tests, and not with `stacks`: each record's `kernel_stack` is that of its own
    /// switch-out, and its `user_stack` the *kernel* stack of the request to reschedule. This is
    /// slow: two stacks per switch.
    pub oracle: bool,
    /// For tests: called between attaching the probes and walking the tasks to find those in scope.
    pub before_walk: Option<BeforeWalk>,
    /// For tests: events that the recorder treats as if it had not seen them.
    pub missed: Option<MissedEvents>,
}

/// A callback for tests of processes that come and go at that moment.
#[derive(Clone)]
pub struct BeforeWalk(Arc<dyn Fn() + Send + Sync>);

impl BeforeWalk {
    /// Wraps the function that is called then.
    pub fn new(happens: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(happens))
    }

    pub(crate) fn happen(&self) {
        (self.0)();
    }
}

impl fmt::Debug for BeforeWalk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BeforeWalk").finish_non_exhaustive()
    }
}

/// For tests of how a missed event affects later ones: each CPU misses one in `one_in` of the
/// events of these hooks.
#[derive(Clone, Copy, Debug)]
pub struct MissedEvents {
    /// The hooks whose events are missed.
    pub hooks: &'static [OptionalHook],
    /// One of this many events is missed, counted on each CPU.
    pub one_in: u32,
}

/// A hook whose events can be missed; the numbers are those of `enum hook` in `bpf/record.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum OptionalHook {
    /// Tracepoint `sched_switch`: a task replaces another.
    Switch,
    /// Tracepoint `sched_waking`: a wakeup begins.
    Waking,
    /// Tracepoint `sched_wakeup`: a woken task is runnable.
    Wakeup,
    /// Tracepoint `sched_wakeup_new`: a new task is runnable.
    WakeupNew,
    /// Tracepoint `sched_migrate_task`: a task is moved to another CPU.
    Migrate,
    /// Tracepoint `sched_set_need_resched_tp`: a reschedule is asked for.
    NeedResched,
    /// Tracepoint `sched_exit_tp`: `__schedule()` ends in the next task.
    SchedExit,
    /// Tracepoint `sched_process_fork`: a task is created.
    Fork,
    /// Tracepoint `local_timer_entry`: the timer interrupt begins.
    TimerEntry,
    /// Tracepoint `local_timer_exit`: the timer interrupt ends.
    TimerExit,
    /// Tracepoint `irq_handler_entry`: a device interrupt begins.
    IrqEntry,
    /// Tracepoint `irq_handler_exit`: a device interrupt ends.
    IrqExit,
    /// Tracepoint `softirq_entry`: a soft interrupt begins.
    SoftirqEntry,
    /// Tracepoint `softirq_exit`: a soft interrupt ends.
    SoftirqExit,
    /// Not a hook: the first storage of a task, which is then refused.
    Storage,
}

impl Settings {
    /// Slots of all CPUs together: 92 MiB. More if a CPU would otherwise get fewer than the least.
    const ALL_SLOTS: usize = 1 << 19;
    const LEAST_SLOTS: usize = 1 << 13;
    const MOST_SLOTS: usize = 1 << 18;

    /// The defaults for this scope on a machine with this many CPUs. With two CPUs a ring holds
    /// half a second at 500,000 switches a second.
    pub fn new(scope: RecordingScope, cpus: usize) -> Self {
        let share = Self::ALL_SLOTS / cpus.max(1).next_power_of_two();
        let slots = share.clamp(Self::LEAST_SLOTS, Self::MOST_SLOTS);
        Self {
            scope,
            stacks: None,
            slots_per_cpu: u32::try_from(slots).unwrap_or(u32::MAX),
            without_hooks: Vec::new(),
            with_hooks: Vec::new(),
            oracle: false,
            missed: None,
            before_walk: None,
        }
    }
}
