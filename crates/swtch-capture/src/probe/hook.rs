//! The tracepoints the recorder attaches to, and which of them this kernel has.

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::Typedef;

/// How much the recorder depends on a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Without it there is no recording.
    Required,
    /// With it the cause of every preemption is known instead of inferred.
    ExactCause,
    /// It adds detail; nothing is wrong without it.
    Detail,
}

impl Need {
    /// One word for columns and keys.
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
    /// How much depends on it.
    pub need: Need,
    /// What answers lose where it is missing.
    pub without: &'static str,
    /// The only architecture that has it, in Rust's words; `None` when all do.
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

/// Every tracepoint of the recorder, with what its absence costs.
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
        "causes of preemption are inferred (kernels before about 6.17)",
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
    /// The hook.
    pub hook: &'static Hook,
    /// Whether the kernel's BTF names it; `None` when there is no BTF to ask.
    pub present: Option<bool>,
}

/// A tracepoint has a typedef `btf_trace_NAME`; that is where `tp_btf` programs attach.
pub(super) fn typedef_of(btf: &Btf<'_>, tracepoint: &str) -> Option<u32> {
    let typedef: Typedef<'_> = btf.type_by_name(&format!("btf_trace_{tracepoint}"))?;
    Some(typedef.type_id().into())
}

pub(super) fn hooks_in(btf: Option<&Btf<'_>>) -> Vec<HookPresence> {
    HOOKS
        .iter()
        .filter(|hook| hook.arch.is_none_or(|arch| arch == std::env::consts::ARCH))
        .map(|hook| HookPresence {
            hook,
            present: btf.map(|btf| typedef_of(btf, hook.name).is_some()),
        })
        .collect()
}
