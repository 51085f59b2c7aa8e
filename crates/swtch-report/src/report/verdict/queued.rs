//! Findings about run-queue time in which no task had the CPU.

use swtch_core::Holder;
use swtch_output::text::counted;

use super::{Finding, Subject, VerdictInput, is_costly, share};
use swtch_core::Tally;

impl VerdictInput<'_> {
    pub(super) fn interrupts(&self, total: &Tally) -> Option<Finding> {
        let what = "Interrupts had the CPU while tasks were runnable";
        let advice = "spread the interrupts, or move them away from these CPUs \
                      (/proc/interrupts, /proc/irq/N/smp_affinity)";
        self.held("interrupts", Holder::Interrupts, what, advice, total)
    }

    pub(super) fn steal(&self, total: &Tally) -> Option<Finding> {
        let what = "The hypervisor ran other guests while tasks were runnable";
        let advice = "the host of this virtual machine is overcommitted: ask for dedicated CPUs, or use fewer";
        self.held("steal", Holder::Steal, what, advice, total)
    }

    pub(super) fn idle(&self, total: &Tally) -> Option<Finding> {
        let what = "The CPU was still idle while a task was runnable on it";
        let advice = "waking an idle CPU takes time: forbid deep idle states \
                      (/dev/cpu_dma_latency), or pin client and server to the same CPU (taskset)";
        self.held("idle_wakeup", Holder::Idle, what, advice, total)
    }

    /// A finding about run-queue time in which no task had the CPU.
    fn held(
        &self,
        name: &'static str,
        holder: Holder,
        what: &str,
        advice: &str,
        total: &Tally,
    ) -> Option<Finding> {
        let held = self.preemptors.other(holder);
        if !is_costly(held.time, total) {
            return None;
        }
        Some(Finding {
            name,
            reason: None,
            subject: Subject::Time,
            switches: 0,
            time: held.time,
            seen: format!(
                "{what}: {} in {}, {} of all run-queue time.",
                held.time,
                counted(held.waits, "wait"),
                share(held.time.as_ns(), self.preemptors.total().as_ns()),
            ),
            places: Vec::new(),
            advice: Some(advice.to_owned()),
        })
    }
}
