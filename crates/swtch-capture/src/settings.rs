//! The settings of a capture: what is recorded, and how.

use std::fmt;
use std::sync::Arc;

use crate::error::Error;
use crate::scope::RecordingScope;
use swtch_wire::layout::SwitchRecord;

/// The settings of a capture: what is recorded, and how.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The tasks whose switches are recorded.
    pub scope: RecordingScope,
    /// Number of switch records that fit into a CPU's ring; a power of two.
    pub slots_per_cpu: u32,
    /// Size of a CPU's ring of task records in bytes; a power of two, and pages.
    pub task_ring_bytes: u32,
    /// Count switches in the kernel, in a map of so many entries, and write no records; `None`
    /// writes records.
    pub summary: Option<u32>,
    /// Stacks of one task's switches can be asked for while a summary goes on.
    pub watches_stacks: bool,
    /// Find the threads that are blocked from the start of the capture to its end
    /// ([`crate::Capture::lasting_tasks`]).
    pub lasting_waits: bool,
    /// Whose stacks can be looked at while they wait ([`crate::Capture::look_sources`]); `None` if none are.
    pub looks: Option<LookedUsers>,
    /// Hooks to treat as missing, for tests of older kernels.
    pub without_hooks: Vec<String>,
    /// Hooks to attach to although eBPF on them can crash this kernel.
    pub with_hooks: Vec<String>,
    /// For tests: each record's `kernel_stack` is that of its own
    /// switch-out, and its `user_stack` the *kernel* stack of the request to reschedule. This is
    /// slow: two stacks per switch.
    pub oracle: bool,
    /// For tests: called between attaching the probes and walking the tasks to find those in scope.
    pub before_walk: Option<BeforeWalk>,
    /// For tests: number of slots for the states of tasks, a power of two; `None`: as many as the
    /// threads of the machine need.
    pub task_slots: Option<u32>,
    /// For tests: events that the recorder treats as if it had not seen them.
    pub missed: Option<MissedEvents>,
}

/// The users whose processes may be looked into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookedUsers {
    /// All, as root may.
    All,
    /// The one with this number.
    One(u32),
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
    /// Not a hook: the first slot of a task, which is then refused.
    Storage,
}

impl Settings {
    /// The defaults for this scope on a machine with this many CPUs. With two CPUs a ring holds
    /// half a second at 500,000 switches a second.
    pub fn new(scope: RecordingScope, cpus: usize) -> Self {
        let rings = RingSizes::of_share(RingSizes::default_share(cpus));
        Self {
            scope,
            slots_per_cpu: rings.slots,
            task_ring_bytes: rings.task_bytes,
            summary: None,
            watches_stacks: false,
            lasting_waits: false,
            looks: None,
            without_hooks: Vec::new(),
            with_hooks: Vec::new(),
            oracle: false,
            task_slots: None,
            missed: None,
            before_walk: None,
        }
    }

    /// Divides this much memory among the rings of this many CPUs, instead of the default.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`] names the least.
    pub fn set_buffer(&mut self, bytes: u64, cpus: usize) -> Result<(), Error> {
        let count = u64::try_from(cpus.max(1)).unwrap_or(u64::MAX);
        let share = bytes / count;
        if share < RingSizes::LEAST_SHARE {
            return Err(Error::BufferTooSmall {
                bytes,
                cpus,
                least: RingSizes::LEAST_SHARE * count,
            });
        }
        let rings = RingSizes::of_share(share);
        (self.slots_per_cpu, self.task_ring_bytes) = (rings.slots, rings.task_bytes);
        Ok(())
    }
}

/// Sizes of a CPU's two rings. Both are powers of two, so up to half of a share is left over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RingSizes {
    /// Switch records.
    slots: u32,
    /// Bytes of task records.
    task_bytes: u32,
}

impl RingSizes {
    /// The default size for all CPUs together on a small machine; below it, that for each CPU of a large one.
    const DEFAULT_OF_ALL: u64 = 112 << 20;
    const DEFAULT_OF_EACH: u64 = 1 << 20;
    /// The least of a CPU: 64 KiB of task records, which is one page on some arm64 kernels.
    const LEAST_SHARE: u64 = 128 << 10;
    const LEAST_TASK_BYTES: u64 = 64 << 10;
    /// 35,000 task records: those of as many threads that all end during a pause of the recorder.
    const MOST_TASK_BYTES: u64 = 4 << 20;
    const MOST_SLOTS: u64 = 1 << 22;

    fn default_share(cpus: usize) -> u64 {
        let count = u64::try_from(cpus.max(1)).unwrap_or(u64::MAX);
        (Self::DEFAULT_OF_ALL / count).max(Self::DEFAULT_OF_EACH)
    }

    /// An eighth is for task records, which are rare.
    fn of_share(bytes: u64) -> Self {
        let task_bytes =
            power_of_two_up_to(bytes / 8).clamp(Self::LEAST_TASK_BYTES, Self::MOST_TASK_BYTES);
        let slots = power_of_two_up_to((bytes - task_bytes) / SWITCH_BYTES).min(Self::MOST_SLOTS);
        let narrow = |number| u32::try_from(number).expect("below the most");
        Self {
            slots: narrow(slots),
            task_bytes: narrow(task_bytes),
        }
    }
}

/// Size of a switch record.
const SWITCH_BYTES: u64 = size_of::<SwitchRecord>() as u64;

/// The largest power of two that is not above `number`, which is not 0.
const fn power_of_two_up_to(number: u64) -> u64 {
    1 << number.ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(rings: RingSizes) -> u64 {
        u64::from(rings.slots) * SWITCH_BYTES + u64::from(rings.task_bytes)
    }

    #[test]
    fn rings_fill_their_share_to_more_than_a_third_and_never_exceed_it() {
        for share in [128 << 10, 200_000, 1 << 20, 3 << 20, 56 << 20, 500 << 20u64] {
            let rings = RingSizes::of_share(share);
            assert!(rings.slots.is_power_of_two() && rings.task_bytes.is_power_of_two());
            assert!(
                bytes(rings) <= share && bytes(rings) > share / 3,
                "{share} {rings:?}"
            );
        }
    }

    /// The figures of docs/METHODS.md.
    #[test]
    fn default_memory_grows_with_the_cpus_by_less_than_a_mebibyte_each() {
        let of_all = |cpus: u32| {
            let rings = RingSizes::of_share(RingSizes::default_share(cpus as usize));
            (rings.slots, (u64::from(cpus) * bytes(rings)) >> 20)
        };
        assert_eq!(of_all(2), (1 << 18, 100));
        assert_eq!(of_all(64), (1 << 13, 100));
        assert_eq!(of_all(256), (1 << 12, 216));
        assert_eq!(of_all(1024), (1 << 12, 864));
    }

    #[test]
    fn a_buffer_that_is_too_small_is_refused_with_the_least() {
        let mut settings = Settings::new(RecordingScope::All, 4);
        let Err(Error::BufferTooSmall { least, .. }) = settings.set_buffer(1000, 4) else {
            panic!("1,000 bytes are no buffer");
        };
        settings.set_buffer(least, 4).unwrap();
        assert_eq!(
            (settings.slots_per_cpu, settings.task_ring_bytes),
            (256, 64 << 10)
        );
    }
}
