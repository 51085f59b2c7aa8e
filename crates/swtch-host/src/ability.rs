//! Judges what swtch can do here, from what the kernel answered: why not, and the remedy.
//!
//! The trial decides whether recording works. Only when it failed are causes sought, and each cause
//! brings its own remedy. A remedy that would not help here is not shown (`sudo` to a process that
//! may gain no privileges, a newer kernel to one that lacks a capability).

use std::error::Error as _;
use std::fs;

use serde::Serialize;
use swtch_capture::PerfCapture;
use swtch_capture::probe::{
    Capability, KernelTypes, NEEDED_CAPABILITIES, Need, OLDEST_KERNEL, Privilege, Probe, Trial,
    TrialStep,
};
use swtch_output::text::shell_word;

/// One thing that swtch can do on some machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Ability {
    /// The key in JSON, such as `exact_causes`.
    pub name: &'static str,
    /// The description in words, for people.
    pub what: &'static str,
    /// True if it is possible here, if need be with a reservation.
    pub possible: bool,
    /// The reasons why it is not possible, or the reservations with which it is.
    pub why: Vec<String>,
    /// Remedies, most direct first.
    pub remedies: Vec<String>,
}

/// One cause that prevents recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Obstacle {
    /// A sentence that names the cause.
    pub why: String,
    /// Ways to remove it, the most direct first.
    pub remedies: Vec<String>,
}

impl Obstacle {
    fn new(why: impl Into<String>, remedies: &[&str]) -> Self {
        Self {
            why: why.into(),
            remedies: remedies.iter().map(|&remedy| remedy.to_owned()).collect(),
        }
    }
}

/// Judges everything that swtch can do on some machines, the most wanted first.
pub fn abilities(probe: &Probe) -> Vec<Ability> {
    vec![
        record(probe),
        exact_causes(probe),
        stacks(probe),
        everyone(probe),
        cgroup(probe),
        own_processes(PerfCapture::trial()),
        counters(fs::exists("/proc/self/schedstat").unwrap_or(false)),
    ]
}

/// The causes that prevent recording on this machine; empty if recording works.
pub fn obstacles(probe: &Probe) -> Vec<Obstacle> {
    if probe.can_record() {
        return Vec::new();
    }
    let mut found: Vec<_> = [too_old(probe), no_types(probe), missing_hooks(probe)]
        .into_iter()
        .flatten()
        .collect();
    if let Trial::Refused { step, errno } = probe.trial {
        found.push(refusal(probe, step, errno));
    }
    if found.is_empty() {
        found.push(Obstacle::new(
            "the trial could not be made: see the section on the kernel",
            &[],
        ));
    }
    found
}

fn too_old(probe: &Probe) -> Option<Obstacle> {
    let version = probe.version()?;
    (version < OLDEST_KERNEL).then(|| {
        Obstacle::new(
            format!("Linux {version} is older than {OLDEST_KERNEL}"),
            &["boot Linux 5.15 or later"],
        )
    })
}

fn no_types(probe: &Probe) -> Option<Obstacle> {
    let KernelTypes::Missing(unreadable) = &probe.types else {
        return None;
    };
    Some(Obstacle::new(
        format!("the kernel does not describe its types (BTF): {unreadable}"),
        &["boot a kernel built with CONFIG_DEBUG_INFO_BTF=y, as most distributions ship it"],
    ))
}

fn missing_hooks(probe: &Probe) -> Option<Obstacle> {
    let missing: Vec<_> = probe
        .missing(Need::Required)
        .map(|hook| hook.name)
        .collect();
    (!missing.is_empty()).then(|| {
        Obstacle::new(
            format!("this kernel lacks tracepoints: {}", missing.join(", ")),
            &["boot a kernel built with CONFIG_EVENT_TRACING=y"],
        )
    })
}

/// The cause for which the kernel refused the trial.
fn refusal(probe: &Probe, step: TrialStep, errno: i32) -> Obstacle {
    match (errno, &probe.privilege) {
        (libc::EPERM | libc::EACCES, Ok(privilege)) => not_permitted(*privilege),
        (libc::ENOSYS, _) => Obstacle::new(
            "this kernel has no bpf(2)",
            &["boot a kernel built with CONFIG_BPF_SYSCALL=y"],
        ),
        _ => {
            let error = std::io::Error::from_raw_os_error(errno);
            let why = format!("the kernel refused to {}: {error}", step.word());
            Obstacle::new(why, &["look for its message in the kernel log: sudo dmesg"])
        }
    }
}

fn not_permitted(privilege: Privilege) -> Obstacle {
    if privilege.in_user_namespace {
        return Obstacle::new(
            "in a user namespace (a rootless container), where capabilities do not count",
            &["run swtch outside of the container, on the host"],
        );
    }
    if !privilege.effective.allows_tracing() {
        return without_capabilities(privilege);
    }
    let by_whom = if privilege.has_seccomp_filter {
        "a seccomp filter or a security module"
    } else {
        "a security module"
    };
    Obstacle::new(
        format!("bpf(2) is refused in spite of the capabilities: by {by_whom}"),
        &[
            "in a container: docker run --security-opt seccomp=unconfined …",
            "look for the refusal in the audit log: sudo dmesg, ausearch -m avc",
        ],
    )
}

fn without_capabilities(privilege: Privilege) -> Obstacle {
    let missing: Vec<_> = [Capability::Bpf, Capability::Perfmon]
        .into_iter()
        .filter(|capability| !privilege.effective.has(*capability))
        .map(Capability::name)
        .collect();
    let missing = missing.join(" and ");
    if !privilege.bounding.allows_tracing() {
        return Obstacle::new(
            format!("{missing} missing, and not to be had inside this container"),
            &[
                "docker run --cap-add=BPF --cap-add=PERFMON --security-opt seccomp=unconfined …",
                "run swtch outside of the container, on the host",
            ],
        );
    }
    if privilege.no_new_privileges {
        return Obstacle::new(
            format!("{missing} missing, and no_new_privs bars this process from gaining them"),
            &["start swtch from a shell without no_new_privs"],
        );
    }
    let setcap = format!("sudo setcap {NEEDED_CAPABILITIES}+ep {}", own_path());
    Obstacle::new(format!("{missing} missing"), &["sudo swtch …", &setcap])
}

/// The path of this program, quoted for a shell.
fn own_path() -> String {
    std::env::current_exe().map_or_else(
        |_| "$(command -v swtch)".to_owned(),
        |path| shell_word(&path),
    )
}

fn record(probe: &Probe) -> Ability {
    let obstacles = obstacles(probe);
    Ability {
        name: "record",
        what: "record every switch with its reason, waker and preemptor",
        possible: obstacles.is_empty(),
        why: obstacles
            .iter()
            .map(|obstacle| obstacle.why.clone())
            .collect(),
        remedies: obstacles
            .into_iter()
            .flat_map(|obstacle| obstacle.remedies)
            .collect(),
    }
}

/// Names what is possible without root, where the kernel allows it.
fn own_processes(trial: Result<(), swtch_capture::Error>) -> Ability {
    let refusal = trial.err();
    let advice = refusal.as_ref().and_then(swtch_capture::Error::advice);
    let why = match &refusal {
        None => "blocked or preempted, and for how long: not on what, by whom, or who woke it"
            .to_owned(),
        Some(error) => error
            .source()
            .map_or_else(|| error.to_string(), |source| format!("{error}: {source}")),
    };
    Ability {
        name: "own_processes",
        what: "record own processes without root (--backend perf)",
        possible: refusal.is_none(),
        why: vec![why],
        remedies: advice.map(str::to_owned).into_iter().collect(),
    }
}

const NEEDS_RECORDING: &str = "needs recording: see above";

/// An ability that is possible if recording is.
fn with_recording(probe: &Probe, name: &'static str, what: &'static str) -> Ability {
    let possible = probe.can_record();
    let why = if possible {
        Vec::new()
    } else {
        vec![NEEDS_RECORDING.to_owned()]
    };
    Ability {
        name,
        what,
        possible,
        why,
        remedies: Vec::new(),
    }
}

fn exact_causes(probe: &Probe) -> Ability {
    let mut ability = with_recording(
        probe,
        "exact_causes",
        "tell the exact cause of every preemption, not an inferred one",
    );
    if probe.tells_causes() {
        if !ability.possible {
            ability
                .why
                .push("the kernel has all hooks for it".to_owned());
        }
        return ability;
    }
    ability.possible = false;
    let missing: Vec<_> = probe
        .missing(Need::ExactCause)
        .map(|hook| hook.name)
        .collect();
    if !missing.is_empty() {
        let why = format!(
            "{} missing: causes are inferred and marked so",
            missing.join(", ")
        );
        ability.why.push(why);
        ability
            .remedies
            .push("boot Linux 6.17, 6.18 or 6.19".to_owned());
    }
    for hook in probe.left_out() {
        let name = hook.name;
        ability.why.push(format!(
            "{name} is left out, because eBPF on it can crash this kernel: causes are inferred and marked so"
        ));
        ability.remedies.push(format!(
            "swtch record --with-hook {name} (at the risk of a crash)"
        ));
    }
    ability
}

fn stacks(probe: &Probe) -> Ability {
    let mut ability = with_recording(probe, "stacks", "record where threads wait (stacks)");
    if !probe.can_look {
        ability.possible = false;
        let why = "this kernel lets no program read the stack of another task: Linux 5.18 does";
        ability.why.push(why.to_owned());
        return ability;
    }
    if !shows_kernel_names(probe) {
        ability
            .why
            .push("names of kernel functions are hidden: kernel frames are numbers".to_owned());
        if ability.possible {
            ability.remedies.push("sudo swtch …".to_owned());
        }
        ability
            .remedies
            .push("sudo sysctl kernel.perf_event_paranoid=1 kernel.kptr_restrict=0".to_owned());
    }
    if !holds(probe, Capability::SysPtrace) {
        ability
            .why
            .push("other users' programs cannot be read: their frames are numbers".to_owned());
    }
    ability
}

/// True if `/proc/kallsyms` shows addresses to us (`kallsyms_show_value`, `kernel/ksyms_common.c`,
/// v6.18).
fn shows_kernel_names(probe: &Probe) -> bool {
    let (Ok(restrict), Ok(paranoid)) = (&probe.kptr_restrict, &probe.perf_event_paranoid) else {
        return false;
    };
    match restrict {
        0 => *paranoid <= 1 || holds(probe, Capability::Syslog),
        1 => holds(probe, Capability::Syslog),
        _ => false,
    }
}

fn holds(probe: &Probe, capability: Capability) -> bool {
    probe
        .privilege
        .as_ref()
        .is_ok_and(|privilege| privilege.effective.has(capability))
}

fn everyone(probe: &Probe) -> Ability {
    with_recording(probe, "everyone", "record all tasks of the machine (-a)")
}

fn cgroup(probe: &Probe) -> Ability {
    let mut ability = with_recording(probe, "cgroup", "record the tasks of one cgroup (--cgroup)");
    let has_v2 = probe
        .cgroups
        .as_ref()
        .is_ok_and(|cgroups| cgroups.v2.is_some());
    if !has_v2 {
        ability.possible = false;
        ability
            .why
            .push("cgroup v2 is not mounted, by which the kernel names a task's cgroup".into());
        ability
            .remedies
            .push("sudo mount -t cgroup2 none /mnt".to_owned());
    }
    ability
}

fn counters(has_schedstat: bool) -> Ability {
    let mut ability = Ability {
        name: "counters",
        what: "count the switches of a command or a process without any privilege",
        possible: true,
        why: vec![
            "no single switches, nobody named: the kernel's counters, and what long waits are for"
                .to_owned(),
        ],
        remedies: Vec::new(),
    };
    if !has_schedstat {
        ability
            .why
            .push("no run-queue time: this kernel is built without CONFIG_SCHED_INFO".into());
    }
    ability
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use swtch_capture::probe::{Capabilities, Cgroups, HOOKS, HookPresence, Lockdown, Unreadable};

    use super::*;

    const ALL: u64 = u64::MAX;

    fn unreadable() -> Unreadable {
        Unreadable {
            path: PathBuf::from("/sys/x"),
            why: "not there".to_owned(),
        }
    }

    fn privilege(effective: u64, bounding: u64) -> Privilege {
        Privilege {
            effective: Capabilities::from_bits(effective),
            bounding: Capabilities::from_bits(bounding),
            ..Privilege::default()
        }
    }

    /// A machine on which everything works.
    fn healthy() -> Probe {
        let hooks = HOOKS.iter().map(|hook| HookPresence {
            hook,
            present: Some(true),
            can_crash: false,
        });
        Probe {
            release: Ok("6.18.0".to_owned()),
            types: KernelTypes::Present { bytes: 5_000_000 },
            hooks: hooks.collect(),
            foreign_programs: None,
            can_look: true,
            privilege: Ok(privilege(ALL, ALL)),
            lockdown: Ok(Lockdown::None),
            perf_event_paranoid: Ok(2),
            unprivileged_bpf_disabled: Ok(2),
            kptr_restrict: Ok(0),
            tracefs: Ok(None),
            cgroups: Ok(Cgroups {
                v2: Some("/sys/fs/cgroup".into()),
                ..Cgroups::default()
            }),
            memlock_limit: None,
            trial: Trial::Works,
        }
    }

    fn refused(errno: i32, privilege: Privilege) -> Probe {
        Probe {
            privilege: Ok(privilege),
            trial: Trial::Refused {
                step: TrialStep::Load,
                errno,
            },
            ..healthy()
        }
    }

    fn without(names: &[&str]) -> Probe {
        let mut probe = healthy();
        for seen in &mut probe.hooks {
            seen.present = Some(!names.contains(&seen.hook.name));
        }
        probe
    }

    fn ability(probe: &Probe, name: &str) -> Ability {
        abilities(probe)
            .into_iter()
            .find(|ability| ability.name == name)
            .unwrap()
    }

    #[test]
    fn stacks_need_a_kernel_on_which_programs_read_other_tasks() {
        assert!(stacks(&healthy()).possible);
        let older = Probe {
            can_look: false,
            ..healthy()
        };
        let ability = stacks(&older);
        assert!(
            !ability.possible && ability.why[0].contains("5.18"),
            "{ability:?}"
        );
    }

    #[test]
    fn a_healthy_machine_can_do_everything() {
        for ability in abilities(&healthy()) {
            assert!(
                ability.possible && ability.remedies.is_empty(),
                "{ability:?}"
            );
        }
        assert_eq!(obstacles(&healthy()), []);
    }

    #[test]
    fn a_user_without_capabilities_is_told_of_sudo_and_setcap() {
        let probe = refused(libc::EPERM, privilege(0, ALL));
        let record = ability(&probe, "record");
        assert!(!record.possible);
        assert_eq!(record.why, ["cap_bpf and cap_perfmon missing"]);
        assert_eq!(record.remedies[0], "sudo swtch …");
        assert!(record.remedies[1].starts_with("sudo setcap cap_bpf,cap_perfmon+ep "));
        assert!(ability(&probe, "counters").possible);
        assert!(!ability(&probe, "everyone").possible);
    }

    #[test]
    fn only_the_missing_capability_is_named() {
        let probe = refused(libc::EPERM, privilege(1 << 39, ALL));
        assert_eq!(obstacles(&probe)[0].why, "cap_perfmon missing");
    }

    /// `sudo` does not help root in a container.
    #[test]
    fn a_remedy_that_would_not_help_is_not_shown() {
        let in_docker = privilege(0xa804_25fb, 0xa804_25fb);
        let barred = Privilege {
            no_new_privileges: true,
            ..privilege(0, ALL)
        };
        let rootless = Privilege {
            in_user_namespace: true,
            ..privilege(ALL, ALL)
        };
        for (privilege, remedy) in [
            (in_docker, "--cap-add=BPF"),
            (barred, "without no_new_privs"),
            (rootless, "outside of the container"),
        ] {
            let obstacles = obstacles(&refused(libc::EPERM, privilege));
            let remedies = obstacles[0].remedies.join("\n");
            assert!(remedies.contains(remedy), "{remedies}");
            assert!(!remedies.contains("sudo"), "{remedies}");
        }
    }

    #[test]
    fn a_refusal_in_spite_of_capabilities_points_at_filters() {
        let filtered = Privilege {
            has_seccomp_filter: true,
            ..privilege(ALL, ALL)
        };
        let obstacles = obstacles(&refused(libc::EPERM, filtered));
        assert!(obstacles[0].why.contains("seccomp"), "{obstacles:?}");
        assert!(obstacles[0].remedies[0].contains("seccomp=unconfined"));
    }

    #[test]
    fn an_unforeseen_error_is_shown_as_the_kernel_gave_it() {
        let obstacles = obstacles(&refused(libc::E2BIG, privilege(ALL, ALL)));
        assert!(
            obstacles[0].why.contains("Argument list too long"),
            "{obstacles:?}"
        );
    }

    #[test]
    fn a_kernel_without_types_cannot_record() {
        let mut probe = healthy();
        probe.types = KernelTypes::Missing(unreadable());
        probe.trial = Trial::NotTried {
            why: "no types".to_owned(),
        };
        for seen in &mut probe.hooks {
            seen.present = None;
        }
        let record = ability(&probe, "record");
        assert!(!record.possible);
        assert!(
            record.remedies[0].contains("CONFIG_DEBUG_INFO_BTF=y"),
            "{record:?}"
        );
        assert!(!ability(&probe, "exact_causes").possible);
    }

    #[test]
    fn an_old_kernel_and_a_missing_hook_are_both_named() {
        let mut probe = without(&["sched_waking"]);
        probe.release = Ok("4.19.0-26-amd64".to_owned());
        let why = ability(&probe, "record").why;
        assert_eq!(
            why,
            [
                "Linux 4.19 is older than 5.15",
                "this kernel lacks tracepoints: sched_waking"
            ]
        );
    }

    /// The trial passes from 5.5 on, but the recorder needs more than the trial.
    #[test]
    fn a_trial_that_passes_does_not_make_an_old_kernel_new() {
        let mut probe = healthy();
        probe.release = Ok("5.10.0-30-amd64".to_owned());
        assert!(!ability(&probe, "record").possible);
        probe.release = Ok("5.15.0-25-generic".to_owned());
        assert!(ability(&probe, "record").possible);
    }

    #[test]
    fn before_6_17_causes_are_inferred_but_recording_works() {
        let probe = without(&["sched_set_need_resched_tp", "sched_exit_tp"]);
        assert!(ability(&probe, "record").possible);
        let causes = ability(&probe, "exact_causes");
        assert!(!causes.possible && causes.remedies == ["boot Linux 6.17, 6.18 or 6.19"]);
    }

    #[test]
    fn a_hook_that_can_crash_the_kernel_is_left_out_and_said_to_be() {
        let mut probe = healthy();
        let crashing = probe
            .hooks
            .iter_mut()
            .find(|seen| seen.hook.name == "sched_set_need_resched_tp");
        crashing.unwrap().can_crash = true;
        assert!(ability(&probe, "record").possible);
        let causes = ability(&probe, "exact_causes");
        assert!(
            !causes.possible && causes.why[0].contains("crash"),
            "{:?}",
            causes.why
        );
        assert!(causes.remedies[0].contains("--with-hook sched_set_need_resched_tp"));
    }

    #[test]
    fn kernel_names_follow_the_rule_of_kallsyms() {
        let shown = |restrict, paranoid, effective| {
            let mut probe = healthy();
            probe.kptr_restrict = Ok(restrict);
            probe.perf_event_paranoid = Ok(paranoid);
            probe.privilege = Ok(privilege(effective, ALL));
            shows_kernel_names(&probe)
        };
        let syslog = 1 << 34;
        assert!(shown(0, 1, 0) && shown(0, 2, syslog) && shown(1, 4, syslog));
        assert!(!shown(0, 2, 0) && !shown(1, 1, 0) && !shown(2, 0, ALL));
    }

    #[test]
    fn without_cgroup_v2_no_cgroup_can_be_followed() {
        let mut probe = healthy();
        probe.cgroups = Ok(Cgroups::default());
        assert!(!ability(&probe, "cgroup").possible);
        probe.cgroups = Err(unreadable());
        assert!(!ability(&probe, "cgroup").possible);
    }

    #[test]
    fn counters_say_what_they_do_not_tell() {
        assert_eq!(counters(true).why.len(), 1);
        assert!(counters(false).why[1].contains("CONFIG_SCHED_INFO"));
    }
}
