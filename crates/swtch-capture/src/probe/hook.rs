//! The tracepoints the recorder attaches to, and which of them this kernel has.

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Struct, Typedef};

/// How much the recorder depends on a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// There is no recording without it.
    Required,
    /// With it the cause of every preemption is known, without it inferred.
    ExactCause,
    /// It adds detail; nothing is wrong without it.
    Detail,
}

impl Need {
    /// A word for columns and keys.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Required => "required",
            Self::ExactCause => "exact_cause",
            Self::Detail => "detail",
        }
    }
}

/// A tracepoint that the recorder attaches to when the kernel has it.
#[derive(Debug)]
pub struct Hook {
    /// Name of the tracepoint, as in `TRACE_EVENT(name, …)`.
    pub name: &'static str,
    /// How much the recorder depends on it.
    pub need: Need,
    /// The information that is lost where the hook is missing.
    pub without: &'static str,
    /// The only architecture that has it, as in Rust's `ARCH`; `None` when all have it.
    pub arch: Option<&'static str>,
}

const fn hook(name: &'static str, need: Need, without: &'static str) -> Hook {
    Hook {
        name,
        need,
        without,
        arch: None,
    }
}

const fn x86_hook(name: &'static str, need: Need, without: &'static str) -> Hook {
    Hook {
        arch: Some("x86_64"),
        ..hook(name, need, without)
    }
}

/// All tracepoints of the recorder, and the information that is lost without each.
pub const HOOKS: &[Hook] = &[
    hook("sched_switch", Need::Required, "no switches at all"),
    hook(
        "sched_waking",
        Need::Required,
        "no wakers, no end of blocked time",
    ),
    hook("sched_wakeup", Need::Required, "no start of run-queue time"),
    hook(
        "sched_wakeup_new",
        Need::Required,
        "no first run-queue wait of a task",
    ),
    hook(
        "sched_process_fork",
        Need::Required,
        "threads and children are not followed",
    ),
    hook(
        "sched_process_exec",
        Need::Required,
        "processes keep the name from before exec",
    ),
    hook(
        "sched_process_exit",
        Need::Required,
        "ends of tasks are not seen",
    ),
    hook(
        "task_rename",
        Need::Required,
        "threads keep their first name",
    ),
    hook(
        "sched_set_need_resched_tp",
        Need::ExactCause,
        "causes of preemption are inferred (before 6.17, and where it is unused because eBPF on it can crash the kernel)",
    ),
    hook(
        "sched_exit_tp",
        Need::ExactCause,
        "a reschedule asked for inside the scheduler is not told from others",
    ),
    hook(
        "sched_migrate_task",
        Need::Detail,
        "moves between CPUs are seen only at the next run",
    ),
    x86_hook(
        "local_timer_entry",
        Need::ExactCause,
        "ticks are not told from other interrupts",
    ),
    x86_hook(
        "local_timer_exit",
        Need::ExactCause,
        "ticks are not told from other interrupts",
    ),
    hook(
        "irq_handler_entry",
        Need::Detail,
        "device interrupts are not told from the task's time",
    ),
    hook(
        "irq_handler_exit",
        Need::Detail,
        "device interrupts are not told from the task's time",
    ),
    hook(
        "softirq_entry",
        Need::Detail,
        "soft interrupts are not told from the task's time",
    ),
    hook(
        "softirq_exit",
        Need::Detail,
        "soft interrupts are not told from the task's time",
    ),
];

/// Whether this kernel has a hook.
#[derive(Clone, Copy, Debug)]
pub struct HookPresence {
    /// The hook of [`HOOKS`] concerned.
    pub hook: &'static Hook,
    /// Whether the kernel's BTF names it; `None` when there is no BTF.
    pub present: Option<bool>,
    /// Whether eBPF on it can crash this kernel, so that the recorder attaches to it only on
    /// demand.
    pub can_crash: bool,
}

/// Whether eBPF on this hook can crash a kernel of this version.
///
/// `set_tsk_need_resched` calls the tracepoint before it sets the flag that prevents a second call
/// (`include/linux/sched.h`), and `rcu_read_unlock_special` calls that function
/// (`kernel/rcu/tree_plugin.h`). From 7.0 on `__bpf_trace_run` enters an RCU read-side section
/// before it checks whether the program runs already, and leaves it in any case
/// (`kernel/trace/bpf_trace.c`): leaving calls the tracepoint, which enters and leaves, until the
/// stack is used up. Seen on 7.3.4. Up to 6.19 it checks first, and the second call is the last. It
/// takes read-side sections that can be preempted: without `CONFIG_PREEMPT_RCU` a task has no
/// `rcu_read_unlock_special`.
pub(crate) fn can_crash(hook: &str, version: (u32, u32), btf: &Btf<'_>) -> bool {
    hook == "sched_set_need_resched_tp" && version >= (7, 0) && has_preemptible_readers(btf)
}

fn has_preemptible_readers(btf: &Btf<'_>) -> bool {
    let task: Option<Struct<'_>> = btf.type_by_name("task_struct");
    task.is_some_and(|task| {
        task.iter().any(|member| {
            member
                .name
                .is_some_and(|name| name == "rcu_read_unlock_special")
        })
    })
}

/// The type id of a tracepoint's typedef `btf_trace_NAME`, to which `tp_btf` programs attach.
pub(super) fn typedef_of(btf: &Btf<'_>, tracepoint: &str) -> Option<u32> {
    let typedef: Typedef<'_> = btf.type_by_name(&format!("btf_trace_{tracepoint}"))?;
    Some(typedef.type_id().into())
}

pub(super) fn hooks_in(btf: Option<&Btf<'_>>, version: (u32, u32)) -> Vec<HookPresence> {
    HOOKS
        .iter()
        .filter(|hook| hook.arch.is_none_or(|arch| arch == std::env::consts::ARCH))
        .map(|hook| HookPresence {
            hook,
            present: btf.map(|btf| typedef_of(btf, hook.name).is_some()),
            can_crash: btf.is_some_and(|btf| can_crash(hook.name, version, btf)),
        })
        .collect()
}
