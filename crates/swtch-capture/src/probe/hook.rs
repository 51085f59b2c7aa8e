//! The tracepoints the recorder attaches to, and which of them this kernel has.

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Struct, Typedef};

/// The degree to which the recorder depends on a hook.
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
    /// The degree to which the recorder depends on it.
    pub need: Need,
    /// The information that is lost where the hook is missing.
    pub without: &'static str,
    /// The only architecture that has it, as in Rust's `ARCH`; `None` when all have it.
    pub arch: Option<&'static str>,
}

impl Hook {
    /// Returns true if a kernel of the architecture that this program was built for can have it.
    pub fn is_of_this_architecture(&self) -> bool {
        self.arch.is_none_or(|arch| arch == std::env::consts::ARCH)
    }
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
        "sched_process_free",
        Need::Required,
        "what is kept of a task is never let go",
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

/// The presence of a hook in this kernel.
#[derive(Clone, Copy, Debug)]
pub struct HookPresence {
    /// The hook of [`HOOKS`] concerned.
    pub hook: &'static Hook,
    /// True if the kernel's BTF names it; `None` when there is no BTF.
    pub present: Option<bool>,
    /// True if eBPF on it can crash this kernel, so that the recorder attaches to it only on demand.
    pub can_crash: bool,
}

/// Returns true if eBPF on this hook can crash a kernel of this version.
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
        .filter(|hook| hook.is_of_this_architecture())
        .map(|hook| HookPresence {
            hook,
            present: btf.map(|btf| typedef_of(btf, hook.name).is_some()),
            can_crash: btf.is_some_and(|btf| can_crash(hook.name, version, btf)),
        })
        .collect()
}

/// Number of the interrupt that the ticks of all CPUs come with, where they come as an interrupt
/// like any other: arm64's generic timer (`drivers/clocksource/arm_arch_timer.c`, v6.18). `None` on
/// x86, where they have hooks of their own, and where the table cannot be read: any interrupt that
/// asks for a reschedule is then taken for the tick.
pub(crate) fn tick_irq() -> Option<i32> {
    tick_irq_of(&std::fs::read_to_string("/proc/interrupts").ok()?)
}

fn tick_irq_of(table: &str) -> Option<i32> {
    let line = table
        .lines()
        .find(|line| line.split_whitespace().next_back() == Some("arch_timer"))?;
    line.split_once(':')?.0.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seen on 6.1.176 for arm64 and on 6.18 for x86-64.
    #[test]
    fn the_tick_of_arm64_is_found_by_its_name() {
        let arm = "           CPU0       CPU1\n 11:        530        681 GIC-0  27 Level     arch_timer\n \
            13:          0          0 GIC-0  33 Level     uart-pl011\nIPI0:  4  57  Rescheduling interrupts\n";
        assert_eq!(tick_irq_of(arm), Some(11));
        let x86 = "           CPU0\n  4:  10  IO-APIC   4-edge      ttyS0\nLOC:  5  Local timer interrupts\n";
        assert_eq!(tick_irq_of(x86), None);
    }
}
