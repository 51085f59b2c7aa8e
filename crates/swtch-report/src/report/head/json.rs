//! The head as objects of JSON reports.

use serde_json::{Value, json};
use swtch_core::Gap;
use swtch_store::Meta;

use super::{ReportedSwitches, TraceHead};

impl TraceHead {
    /// The `host` object of a JSON report.
    pub fn to_json_host(&self) -> Value {
        let host = &self.meta.host;
        json!({
            "hostname": host.hostname,
            "kernel_release": host.kernel_release,
            "machine": host.machine,
            "cpus": host.cpus,
            "usable_cpus": host.usable_cpus,
            "topology": host.topology,
        })
    }

    /// The `trace` object of a JSON report.
    pub fn to_json_trace(&self, rows: ReportedSwitches) -> Value {
        let meta = &self.meta;
        let gaps: Vec<_> = self.gaps.iter().map(gap_to_json).collect();
        json!({
            "path": self.path.to_string_lossy(),
            "command": meta.command,
            "scope": meta.scope,
            "imported": meta.imported,
            "duration_ns": self.duration().as_ns(),
            "switches": rows.counted,
            "rows": self.rows,
            "rows_out_of_scope": rows.out_of_scope,
            "filter": self.filter,
            "lost": self.lost(),
            "untraced": meta.counts.untraced,
            "untraced_in_scope": meta.counts.untraced_in_scope,
            "complete": self.is_complete(),
            "gaps": gaps,
            "incomplete": self.incomplete,
            "stop_reason": meta.stop_reason,
            "rules_version": meta.rules_version,
            "missing_hooks": meta.hooks.missing,
            "left_out_hooks": meta.hooks.left_out,
            "overhead": {
                "recorder_cpu_ns": meta.overhead.recorder_cpu_ns,
                "recorder_peak_rss_bytes": meta.overhead.recorder_peak_rss_bytes,
                "bytes": meta.overhead.bytes,
                "kernel_ns_per_switch": meta.overhead.kernel_ns_per_switch,
                "kernel_runs_per_switch": meta.overhead.kernel_runs_per_switch,
                "kernel_cost_switches": meta.overhead.kernel_cost_switches,
            },
        })
    }

    /// The `balance` object of a JSON report.
    pub fn to_json_balance(&self) -> Value {
        let Meta { counts, kernel, .. } = &self.meta;
        json!({
            "switches_seen": counts.switches_seen,
            "stored": counts.stored,
            "filtered": counts.filtered,
            "lost": counts.lost,
            "unnamed": counts.unnamed,
            "storage_failed": counts.storage_failed,
            "storage_refused": counts.storage_refused,
            "lost_names": counts.lost_names,
            "idle": counts.idle,
            "kernel_ctxt_before": kernel.ctxt_before,
            "kernel_ctxt_after": kernel.ctxt_after,
        })
    }
}

fn gap_to_json(gap: &Gap) -> Value {
    json!({
        "cpu": gap.cpu.get(),
        "start_ns": gap.start.as_ns(),
        "end_ns": gap.end.as_ns(),
        "lost": gap.lost,
    })
}
