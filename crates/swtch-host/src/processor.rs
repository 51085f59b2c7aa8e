//! The processors and what runs below us: CPUs, SMT, frequency, mitigations, hypervisor.
//!
//! Sources: `Documentation/ABI/testing/sysfs-devices-system-cpu`,
//! `Documentation/admin-guide/hw-vuln/` (v6.18), `proc(5)`.

use std::collections::BTreeSet;
use std::fs;

use super::{Fact, SourcedValue, or_none, read};

const CPUS: &str = "/sys/devices/system/cpu";
const CPUINFO: &str = "/proc/cpuinfo";
const VULNERABILITIES: &str = "/sys/devices/system/cpu/vulnerabilities";

const NO_CPUFREQ: &str = "none: the hypervisor or the firmware decides";

/// `/proc/stat` counts in hundredths of a second (`USER_HZ`), whatever the tick rate is.
const USER_HZ: f64 = 100.0;

pub(super) fn facts() -> Vec<Fact> {
    let vulnerabilities = Vulnerabilities::read();
    vec![
        SourcedValue::in_file(CPUINFO, model)
            .named("cpu_model", "prices differ from model to model"),
        online().named(
            "cpus_online",
            "more runnable threads than this must take turns",
        ),
        SourcedValue::text_of(&format!("{CPUS}/isolated")).named(
            "cpus_isolated",
            "nothing is moved to these CPUs or away from them",
        ),
        SourcedValue::in_file_or(&format!("{CPUS}/nohz_full"), "none", |cpus| {
            Some(or_none(cpus))
        })
        .named(
            "cpus_nohz_full",
            "no tick there while one task runs: no preemption by slice",
        ),
        SourcedValue::in_file("/sys/devices/system/node/online", |nodes| {
            counted_list(nodes, "")
        })
        .named(
            "numa_nodes",
            "a move to another node leaves cache and memory behind",
        ),
        SourcedValue::in_file(&format!("{CPUS}/smt/control"), |control| {
            smt(control, read(&format!("{CPUS}/smt/active")).ok().as_deref())
        })
        .named(
            "smt",
            "two threads share one core: each slows the other without any switch",
        ),
        SourcedValue::in_file_or(
            &format!("{CPUS}/cpu0/cpufreq/scaling_driver"),
            NO_CPUFREQ,
            |driver| Some(or_none(driver)),
        )
        .named("cpufreq_driver", "who chooses the frequency"),
        governors().named(
            "cpufreq_governor",
            "a CPU that sleeps often is slow after each wakeup",
        ),
        turbo().named("turbo", "with it speed depends on what the other cores do"),
        idle_governor().named("cpuidle", "deep idle states add their exit to every wakeup"),
        vulnerabilities
            .summary()
            .named("mitigations", "part of the price of kernel entries"),
        vulnerabilities.at_switches().named(
            "mitigations_at_switch",
            "done when the process changes: part of the direct or indirect price of a switch",
        ),
        hypervisor().named(
            "hypervisor",
            "in a virtual machine wakeups of idle CPUs and timer ticks leave the guest",
        ),
        SourcedValue::in_file("/proc/stat", steal).named(
            "steal",
            "time in which the hypervisor ran others while we believed to run",
        ),
    ]
}

/// The processor's name; `None` if it has none that we can read.
pub fn model_name() -> Option<String> {
    model(&read(CPUINFO).ok()?)
}

/// The name of the first processor; ARM kernels give numbers instead.
fn model(cpuinfo: &str) -> Option<String> {
    let field = |name: &str| field(cpuinfo, name);
    if let Some(name) = field("model name").or_else(|| field("cpu model")) {
        return Some(name.to_owned());
    }
    let (implementer, part) = (field("CPU implementer")?, field("CPU part")?);
    Some(format!("implementer {implementer} part {part}"))
}

/// The value of the field `name` for the first processor.
pub(super) fn field<'a>(cpuinfo: &'a str, name: &str) -> Option<&'a str> {
    cpuinfo.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

/// Counts the CPUs that are online; `None` when that cannot be read.
pub(super) fn count_online() -> Option<usize> {
    count_of_list(&read(&format!("{CPUS}/online")).ok()?)
}

fn online() -> SourcedValue {
    let possible = read(&format!("{CPUS}/possible")).unwrap_or_default();
    SourcedValue::in_file(&format!("{CPUS}/online"), |online| {
        counted_list(online, &possible)
    })
}

/// `4 (0-3), 8 possible`: how many CPUs a list names, the list, and how many there could be.
fn counted_list(online: &str, possible: &str) -> Option<String> {
    let count = count_of_list(online)?;
    let more = match count_of_list(possible) {
        Some(all) if all != count => format!(", {all} possible"),
        _ => String::new(),
    };
    Some(format!("{count} ({online}){more}"))
}

/// Counts the numbers that a list such as `0-3,8` names.
fn count_of_list(list: &str) -> Option<usize> {
    list.split(',')
        .map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            last.checked_sub(first).map(|span| span + 1)
        })
        .sum()
}

fn smt(control: &str, active: Option<&str>) -> Option<String> {
    match (control, active) {
        ("notsupported" | "notimplemented", _) => Some("the kernel sees none".to_owned()),
        (_, Some("1")) => Some("active".to_owned()),
        (_, Some("0")) => Some(format!("not active ({control})")),
        _ => None,
    }
}

/// The frequency governors of all CPUs; different ones are listed side by side.
fn governors() -> SourcedValue {
    let source = format!("{CPUS}/cpu*/cpufreq/scaling_governor");
    let numbers = fs::read_dir(CPUS).into_iter().flatten().flatten();
    let governors: BTreeSet<String> = numbers
        .filter_map(|entry| {
            let path = entry.path().join("cpufreq/scaling_governor");
            Some(fs::read_to_string(path).ok()?.trim().to_owned())
        })
        .collect();
    if governors.is_empty() {
        return SourcedValue::known(NO_CPUFREQ, format!("no {source}"));
    }
    SourcedValue::known(governors.into_iter().collect::<Vec<_>>().join(", "), source)
}

fn turbo() -> SourcedValue {
    let intel = format!("{CPUS}/intel_pstate/no_turbo");
    let boost = format!("{CPUS}/cpufreq/boost");
    let as_word = |on: &str, off: &str, text: &str| match text {
        text if text == on => Some("on".to_owned()),
        text if text == off => Some("off".to_owned()),
        _ => None,
    };
    if fs::exists(&intel).unwrap_or(false) {
        return SourcedValue::in_file(&intel, |text| as_word("0", "1", text));
    }
    SourcedValue::in_file(&boost, |text| as_word("1", "0", text))
}

fn idle_governor() -> SourcedValue {
    let driver = read(&format!("{CPUS}/cpuidle/current_driver")).unwrap_or_default();
    let governor = format!("{CPUS}/cpuidle/current_governor_ro");
    SourcedValue::in_file(&governor, |governor| Some(idle_words(governor, &driver)))
}

fn idle_words(governor: &str, driver: &str) -> String {
    match driver {
        "" => governor.to_owned(),
        "none" => format!("{governor} without a driver: idle CPUs only halt"),
        driver => format!("{governor} with {driver}"),
    }
}

/// The state of each vulnerability of the processor by sysfs: `(name, state)`, sorted.
#[derive(Debug)]
struct Vulnerabilities(Vec<(String, String)>);

impl Vulnerabilities {
    fn read() -> Self {
        let files = fs::read_dir(VULNERABILITIES)
            .into_iter()
            .flatten()
            .flatten();
        let mut states: Vec<_> = files
            .filter_map(|file| {
                let state = fs::read_to_string(file.path()).ok()?.trim_end().to_owned();
                Some((file.file_name().to_string_lossy().into_owned(), state))
            })
            .collect();
        states.sort();
        Self(states)
    }

    fn summary(&self) -> SourcedValue {
        if self.0.is_empty() {
            return SourcedValue::unknown("this kernel lists no vulnerabilities", VULNERABILITIES);
        }
        let begins = |word: &str| {
            let affected = self.0.iter().filter(|(_, state)| state.starts_with(word));
            affected.map(|(name, _)| name.as_str()).collect::<Vec<_>>()
        };
        let (mitigated, vulnerable) = (begins("Mitigation"), begins("Vulnerable"));
        let listed = |count: &str, names: &[&str]| match names {
            [] => format!("0 {count}"),
            names => format!("{} {count} ({})", names.len(), names.join(", ")),
        };
        let value = format!(
            "{}, {}, {} listed",
            listed("mitigated", &mitigated),
            listed("vulnerable", &vulnerable),
            self.0.len()
        );
        SourcedValue::known(value, VULNERABILITIES)
    }

    /// The mitigations that act at a switch, or make the time after one slower.
    fn at_switches(&self) -> SourcedValue {
        let acts = [
            ("spectre_v2", "IBPB"),
            ("spectre_v2", "STIBP"),
            ("spectre_v2", "RSB filling"),
            ("meltdown", "PTI"),
            ("l1tf", "cache flushes"),
            ("mds", "Clear CPU buffers"),
            ("tsa", "Clear CPU buffers"),
            ("retbleed", "untrained return thunk"),
            ("spec_rstack_overflow", "Safe RET"),
            ("spec_rstack_overflow", "IBPB"),
        ];
        if self.0.is_empty() {
            return self.summary();
        }
        let found: Vec<_> = acts
            .into_iter()
            .filter_map(|(name, act)| Some(format!("{name}: {}", self.part_with(name, act)?)))
            .collect();
        SourcedValue::known(or_none(&found.join("; ")), VULNERABILITIES)
    }

    /// The part of a state that names `act`: `IBPB: conditional` out of a longer line.
    fn part_with(&self, name: &str, act: &str) -> Option<&str> {
        let (_, state) = self.0.iter().find(|(known, _)| known == name)?;
        state
            .split([';', ','])
            .map(|part| part.trim().trim_start_matches("Mitigation: "))
            .find(|part| part.contains(act))
    }
}

/// The texts by which a hypervisor can be recognized.
#[derive(Debug, Default)]
struct Virtualisation {
    cpuinfo: String,
    /// The text of `/sys/hypervisor/type`; only Xen has the file.
    kind: Option<String>,
    /// Vendor and product of the machine, by its firmware.
    product: Option<String>,
    clocksources: String,
}

fn hypervisor() -> SourcedValue {
    let firmware = |name: &str| read(&format!("/sys/class/dmi/id/{name}")).ok();
    let product = match (firmware("sys_vendor"), firmware("product_name")) {
        (Some(vendor), Some(product)) => Some(format!("{vendor} {product}")),
        (one, other) => one.or(other),
    };
    Virtualisation {
        cpuinfo: read(CPUINFO).unwrap_or_default(),
        kind: read("/sys/hypervisor/type").ok(),
        product,
        clocksources: read("/sys/devices/system/clocksource/clocksource0/available_clocksource")
            .unwrap_or_default(),
    }
    .found()
}

impl Virtualisation {
    fn found(&self) -> SourcedValue {
        let product = self
            .product
            .as_deref()
            .map(|name| format!(" ({name})"))
            .unwrap_or_default();
        if let Some(kind) = &self.kind {
            return SourcedValue::known(format!("{kind}{product}"), "/sys/hypervisor/type");
        }
        let Some(flags) = field(&self.cpuinfo, "flags") else {
            return SourcedValue::unknown(
                format!("this architecture's cpuinfo has no flag for it{product}"),
                CPUINFO,
            );
        };
        if !flags.split_whitespace().any(|flag| flag == "hypervisor") {
            return SourcedValue::known(format!("none seen{product}"), "flags in /proc/cpuinfo");
        }
        let kind = self.kind_by_clock().unwrap_or("of a kind it does not tell");
        SourcedValue::known(
            format!("yes, {kind}{product}"),
            "flags in /proc/cpuinfo, clocksources, DMI",
        )
    }

    /// The hypervisor, by its paravirtual clock, which bears its name.
    fn kind_by_clock(&self) -> Option<&'static str> {
        [
            ("kvm-clock", "KVM"),
            ("hyperv_clocksource", "Hyper-V"),
            ("xen", "Xen"),
            ("vmware", "VMware"),
        ]
        .into_iter()
        .find(|(clock, _)| self.clocksources.contains(clock))
        .map(|(_, kind)| kind)
    }
}

/// Steal time since boot, in seconds and as a share of all time of all CPUs.
fn steal(stat: &str) -> Option<String> {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    // user nice system idle iowait irq softirq steal; guest time is part of user.
    let ticks: Vec<f64> = all
        .split_whitespace()
        .take(8)
        .map(str::parse)
        .collect::<Result<_, _>>()
        .ok()?;
    let stolen = *ticks.get(7)?;
    let total: f64 = ticks.iter().sum();
    let share = if total > 0.0 {
        100.0 * stolen / total
    } else {
        0.0
    };
    Some(format!(
        "{:.2} s since boot ({share:.2} % of CPU time)",
        stolen / USER_HZ
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FactValue;

    #[test]
    fn an_arm_processor_is_named_by_its_numbers() {
        let graviton =
            "processor\t: 0\nBogoMIPS\t: 243.75\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n";
        assert_eq!(model(graviton), Some("implementer 0x41 part 0xd0c".into()));
        let xeon = "processor : 0\nmodel\t: 85\nmodel name\t: Intel(R) Xeon(R) @ 2.00GHz\n";
        assert_eq!(model(xeon), Some("Intel(R) Xeon(R) @ 2.00GHz".into()));
    }

    #[test]
    fn lists_of_cpus_are_counted() {
        assert_eq!(count_of_list("0-3,8,10-11"), Some(7));
        assert_eq!(count_of_list(""), None);
        assert_eq!(count_of_list("3-0"), None);
        assert_eq!(
            counted_list("0-3", "0-7"),
            Some("4 (0-3), 8 possible".into())
        );
        assert_eq!(counted_list("0", "0"), Some("1 (0)".into()));
    }

    #[test]
    fn smt_that_is_possible_is_not_smt_that_is_active() {
        assert_eq!(smt("on", Some("1")), Some("active".into()));
        assert_eq!(smt("off", Some("0")), Some("not active (off)".into()));
        assert_eq!(
            smt("notsupported", Some("0")),
            Some("the kernel sees none".into())
        );
        assert_eq!(smt("on", None), None);
    }

    fn skylake() -> Vulnerabilities {
        let state = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        Vulnerabilities(vec![
            state("itlb_multihit", "KVM: Mitigation: VMX disabled"),
            state(
                "l1tf",
                "Mitigation: PTE Inversion; VMX: conditional cache flushes, SMT vulnerable",
            ),
            state("mds", "Mitigation: Clear CPU buffers; SMT vulnerable"),
            state("meltdown", "Mitigation: PTI"),
            state(
                "mmio_stale_data",
                "Vulnerable: Clear CPU buffers attempted, no microcode",
            ),
            state(
                "spectre_v2",
                "Mitigation: IBRS; IBPB: conditional; STIBP: conditional; RSB filling",
            ),
            state("tsx_async_abort", "Not affected"),
        ])
    }

    #[test]
    fn mitigations_that_act_at_a_switch_are_singled_out() {
        let expected = "spectre_v2: IBPB: conditional; spectre_v2: STIBP: conditional; \
                        spectre_v2: RSB filling; meltdown: PTI; \
                        l1tf: VMX: conditional cache flushes; mds: Clear CPU buffers";
        assert_eq!(
            skylake().at_switches().value,
            FactValue::Known(expected.into())
        );
    }

    #[test]
    fn the_summary_of_mitigations_names_the_open_ones() {
        let expected = "4 mitigated (l1tf, mds, meltdown, spectre_v2), \
                        1 vulnerable (mmio_stale_data), 7 listed";
        assert_eq!(skylake().summary().value, FactValue::Known(expected.into()));
        let none = Vulnerabilities(Vec::new());
        assert!(matches!(none.summary().value, FactValue::Unknown(_)));
        assert!(matches!(none.at_switches().value, FactValue::Unknown(_)));
    }

    #[test]
    fn a_virtual_machine_is_told_by_flag_clock_and_firmware() {
        let amazon = Virtualisation {
            cpuinfo: "flags\t\t: fpu vme hypervisor sse\n".into(),
            kind: None,
            product: Some("Amazon EC2 m5.large".into()),
            clocksources: "kvm-clock tsc acpi_pm".into(),
        };
        assert_eq!(
            amazon.found().value,
            FactValue::Known("yes, KVM (Amazon EC2 m5.large)".into())
        );
        let xen = Virtualisation {
            kind: Some("xen".into()),
            ..Virtualisation::default()
        };
        assert_eq!(xen.found().value, FactValue::Known("xen".into()));
        let laptop = Virtualisation {
            cpuinfo: "flags : fpu vme sse\n".into(),
            product: Some("LENOVO 20XW".into()),
            ..Virtualisation::default()
        };
        assert_eq!(
            laptop.found().value,
            FactValue::Known("none seen (LENOVO 20XW)".into())
        );
        let arm = Virtualisation {
            cpuinfo: "Features : fp\n".into(),
            ..Virtualisation::default()
        };
        assert!(matches!(arm.found().value, FactValue::Unknown(_)));
    }

    #[test]
    fn steal_is_the_eighth_number_of_the_first_line() {
        let stat = "cpu  100 0 100 700 0 0 0 100 50 0\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(
            steal(stat),
            Some("1.00 s since boot (10.00 % of CPU time)".into())
        );
        assert_eq!(steal("cpu  1 2 3\n"), None);
        assert_eq!(steal("intr 5\n"), None);
    }

    #[test]
    fn an_idle_governor_without_driver_only_halts() {
        assert_eq!(
            idle_words("menu", "none"),
            "menu without a driver: idle CPUs only halt"
        );
        assert_eq!(idle_words("menu", "intel_idle"), "menu with intel_idle");
    }
}
