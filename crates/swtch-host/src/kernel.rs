//! The settings of the kernel that decide what a recorder may do, as facts.

use std::path::Path;

use swtch_capture::probe::{
    Capability, Cgroups, CpuController, KernelTypes, Privilege, Probe, Trial, Unreadable,
    VMLINUX_BTF,
};

use super::{Fact, SourcedValue};

/// The facts that decide what may be recorded, each with what depends on it.
pub fn facts(probe: &Probe) -> Vec<Fact> {
    let mut facts = vec![
        trial(&probe.trial).named("trial", "the verdict: a smallest program for sched_switch"),
        types(&probe.types).named("kernel_types", "the recorder reads tasks by them"),
        found(&probe.privilege, "/proc/self/status", privilege).named(
            "capabilities",
            "cap_bpf and cap_perfmon are enough to record",
        ),
        found(&probe.lockdown, "/sys/kernel/security/lockdown", |mode| {
            mode.word().to_owned()
        })
        .named(
            "lockdown",
            "confidentiality refuses bpf_probe_read_kernel, even to root",
        ),
        sysctl(&probe.perf_event_paranoid, "kernel.perf_event_paranoid").named(
            "perf_event_paranoid",
            "above 1 it hides names of kernel functions in stacks",
        ),
        sysctl(&probe.kptr_restrict, "kernel.kptr_restrict").named(
            "kptr_restrict",
            "above 0 it hides names of kernel functions in stacks",
        ),
        sysctl(
            &probe.unprivileged_bpf_disabled,
            "kernel.unprivileged_bpf_disabled",
        )
        .named(
            "unprivileged_bpf_disabled",
            "tracing programs need capabilities whatever it says",
        ),
        found(&probe.tracefs, "/proc/self/mounts", |at| {
            tracefs(at.as_deref())
        })
        .named("tracefs", "swtch does not need it; perf and trace-cmd do"),
        found(&probe.cgroups, "/proc/self/mounts", naming).named(
            "cgroup_names",
            "the cgroup of a switch is named in this hierarchy; with --cgroup, in that of the path",
        ),
    ];
    if let Some(bytes) = probe.memlock_limit {
        let limit = SourcedValue::known(format!("{bytes} bytes"), "/proc/self/limits");
        facts.push(limit.named("memlock", "before Linux 5.11 it limits the recorder's maps"));
    }
    facts
}

fn found<T>(
    answer: &Result<T, Unreadable>,
    source: &str,
    shown: impl FnOnce(&T) -> String,
) -> SourcedValue {
    match answer {
        Ok(answer) => SourcedValue::known(shown(answer), source),
        Err(Unreadable { path, why }) => SourcedValue::unknown(why, path.display().to_string()),
    }
}

fn sysctl(answer: &Result<i64, Unreadable>, name: &str) -> SourcedValue {
    found(answer, &format!("sysctl {name}"), ToString::to_string)
}

fn trial(trial: &Trial) -> SourcedValue {
    const SOURCE: &str = "bpf(2)";
    match trial {
        Trial::Works => SourcedValue::known("loaded, attached and taken away again", SOURCE),
        Trial::Refused { step, errno } => {
            let error = std::io::Error::from_raw_os_error(*errno);
            SourcedValue::known(format!("refused to {}: {error}", step.word()), SOURCE)
        }
        Trial::NotTried { why } => SourcedValue::unknown(why, SOURCE),
    }
}

fn types(types: &KernelTypes) -> SourcedValue {
    match types {
        KernelTypes::Present { bytes } => {
            SourcedValue::known(format!("{bytes} bytes"), VMLINUX_BTF)
        }
        KernelTypes::Missing(Unreadable { path, why }) => {
            SourcedValue::known(format!("missing: {why}"), path.display().to_string())
        }
    }
}

fn privilege(privilege: &Privilege) -> String {
    let held: Vec<_> = Capability::ALL
        .into_iter()
        .filter(|capability| privilege.effective.has(*capability))
        .map(Capability::name)
        .collect();
    let mut shown = if held.is_empty() {
        "none that matters".to_owned()
    } else {
        held.join(" ")
    };
    let limits = [
        (privilege.no_new_privileges, "no_new_privs"),
        (privilege.in_user_namespace, "in a user namespace"),
        (privilege.has_seccomp_filter, "seccomp filter"),
    ];
    for (_, limit) in limits.into_iter().filter(|(applies, _)| *applies) {
        shown.push_str("; ");
        shown.push_str(limit);
    }
    shown
}

fn tracefs(at: Option<&Path>) -> String {
    at.map_or(
        "not mounted: sudo mount -t tracefs nodev /sys/kernel/tracing".to_owned(),
        |at| at.display().to_string(),
    )
}

/// The hierarchy that names cgroups where none is asked for.
fn naming(cgroups: &Cgroups) -> String {
    let (version, at) = match (&cgroups.cpu, &cgroups.v2) {
        (CpuController::V1(at), _) => ("v1, controller cpu", at),
        (_, Some(at)) => ("v2", at),
        (_, None) => return "none is mounted".to_owned(),
    };
    format!("{} ({version})", at.display())
}

#[cfg(test)]
mod tests {
    use swtch_capture::probe::Capabilities;

    use super::*;

    #[test]
    fn capabilities_are_shown_by_name_with_what_limits_them() {
        let held = Privilege {
            effective: Capabilities::from_bits(1 << 38 | 1 << 39),
            has_seccomp_filter: true,
            ..Privilege::default()
        };
        assert_eq!(privilege(&held), "cap_perfmon cap_bpf; seccomp filter");
        assert_eq!(privilege(&Privilege::default()), "none that matters");
    }

    #[test]
    fn a_refusal_says_what_was_tried() {
        let refused = Trial::Refused {
            step: swtch_capture::probe::TrialStep::Load,
            errno: libc::EPERM,
        };
        let expected = "refused to load a BPF program: Operation not permitted (os error 1)";
        assert_eq!(trial(&refused), SourcedValue::known(expected, "bpf(2)"));
    }
}
