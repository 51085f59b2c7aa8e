//! The settings that decide when a task loses the CPU: the preemption model, the tick, the slice,
//! and a loaded BPF scheduler.
//!
//! Sources: `kernel/sched/core.c` and `debug.c`, `init/Makefile` (v6.18); `sched_ext.rst`.

use super::config::{KernelConfig, NO_CONFIG};
use super::{Fact, FactValue, SourcedValue, config, read};

const DEBUG_PREEMPT: &str = "/sys/kernel/debug/sched/preempt";
const DEBUG_BASE_SLICE: &str = "/sys/kernel/debug/sched/base_slice_ns";
const DEBUG_FEATURES: &str = "/sys/kernel/debug/sched/features";
const OWN_SCHED: &str = "/proc/self/sched";

pub(super) fn facts(config: Option<&KernelConfig>) -> Vec<Fact> {
    vec![
        preemption().found(config).named(
            "preemption_model",
            "when a task in the kernel must give way: at once (full), at chosen points, or on its \
             way to user mode (none)",
        ),
        tick(config).named(
            "tick_hz",
            "slices end on a tick: one that is shorter than 1/HZ lasts until the next tick",
        ),
        base_slice().named(
            "base_slice_ns",
            "how long a task may run before another that is equal gets its turn",
        ),
        SourcedValue::text_of(DEBUG_FEATURES).named(
            "scheduler_features",
            "WAKEUP_PREEMPTION, RUN_TO_PARITY and others decide who may preempt whom",
        ),
        extension().named(
            "sched_ext",
            "with a BPF scheduler loaded, its rules and not the kernel's decide",
        ),
        SourcedValue::in_file("/proc/sys/kernel/sched_autogroup_enabled", on_or_off).named(
            "autogroup",
            "each session is a group of its own: nice counts only within it",
        ),
        realtime_limit().named(
            "realtime_limit",
            "what real-time tasks may take of each period before others get a share",
        ),
        config::on_or_off(config, "IRQ_TIME_ACCOUNTING").named(
            "irq_time_accounting",
            "without it the kernel charges interrupts to the task that they interrupt",
        ),
    ]
}

/// The texts of the three places that tell the preemption model, the most reliable first.
#[derive(Debug, Default)]
struct Preemption {
    /// `none (voluntary) full lazy`: the model in parentheses is in force.
    debugfs: Option<String>,
    command_line: String,
    /// The kernel's build, as `uname -v` shows it.
    build: String,
}

/// The preemption model in one word, without its source; `None` where it is not known.
pub(super) fn preemption_model(config: Option<&KernelConfig>) -> Option<String> {
    match preemption().found(config).value {
        FactValue::Known(model) => model.split_whitespace().next().map(str::to_owned),
        FactValue::Unknown(_) => None,
    }
}

fn preemption() -> Preemption {
    Preemption {
        debugfs: read(DEBUG_PREEMPT).ok(),
        command_line: read("/proc/cmdline").unwrap_or_default(),
        build: read("/proc/sys/kernel/version").unwrap_or_default(),
    }
}

impl Preemption {
    fn found(&self, config: Option<&KernelConfig>) -> SourcedValue {
        const BUILD: &str = "uname -v";
        if let Some(model) = self.debugfs.as_deref().and_then(in_parentheses) {
            return SourcedValue::known(model, DEBUG_PREEMPT);
        }
        if self.is_built("PREEMPT_RT") {
            return SourcedValue::known("full (real-time kernel)", BUILD);
        }
        if self.is_built("PREEMPT_DYNAMIC") {
            return self.chosen_at_boot(config);
        }
        if self.is_built("PREEMPT") {
            return SourcedValue::known("full", BUILD);
        }
        config.map_or_else(
            || SourcedValue::unknown("none or voluntary: uname -v does not tell which", BUILD),
            configured,
        )
    }

    fn is_built(&self, word: &str) -> bool {
        self.build.split_whitespace().any(|token| token == word)
    }

    /// The model of a dynamic kernel: from `preempt=` on its command line, otherwise its
    /// configuration.
    fn chosen_at_boot(&self, config: Option<&KernelConfig>) -> SourcedValue {
        let asked = self.command_line.split_whitespace().rev();
        if let Some(model) = asked
            .filter_map(|word| word.strip_prefix("preempt="))
            .next()
        {
            return SourcedValue::known(format!("{model} (chosen at boot)"), "/proc/cmdline");
        }
        config.map_or_else(
            || SourcedValue::unknown(NO_CONFIG, DEBUG_PREEMPT),
            configured,
        )
    }
}

fn configured(config: &KernelConfig) -> SourcedValue {
    let models = [
        ("PREEMPT_NONE", "none"),
        ("PREEMPT_VOLUNTARY", "voluntary"),
        ("PREEMPT_LAZY", "lazy"),
        ("PREEMPT", "full"),
    ];
    let Some((option, model)) = models.into_iter().find(|(option, _)| config.is_set(option)) else {
        return SourcedValue::unknown("no PREEMPT option is set", config.path.clone());
    };
    let dynamic = if config.is_set("PREEMPT_DYNAMIC") {
        " (default of a dynamic kernel)"
    } else {
        ""
    };
    SourcedValue::known(format!("{model}{dynamic}"), config.source(option))
}

fn in_parentheses(text: &str) -> Option<&str> {
    Some(text.split_once('(')?.1.split_once(')')?.0)
}

fn tick(config: Option<&KernelConfig>) -> SourcedValue {
    let Some(config) = config else {
        return SourcedValue::unknown(NO_CONFIG, "CONFIG_HZ");
    };
    match config.value("HZ") {
        Some(hz) => SourcedValue::known(hz, config.source("HZ")),
        None => SourcedValue::unknown("CONFIG_HZ is not set", config.path.clone()),
    }
}

fn base_slice() -> SourcedValue {
    let exact = SourcedValue::text_of(DEBUG_BASE_SLICE);
    if matches!(exact.value, super::FactValue::Known(_)) {
        return exact;
    }
    // The slice of this process is the base slice unless another was set for it (sched_setattr,
    // 6.12).
    match read(OWN_SCHED).ok().as_deref().and_then(own_slice) {
        Some(slice) => SourcedValue::known(slice, format!("se.slice in {OWN_SCHED}")),
        None => exact,
    }
}

fn own_slice(sched: &str) -> Option<String> {
    let line = sched.lines().find(|line| line.starts_with("se.slice"))?;
    let slice: u64 = line.split_once(':')?.1.trim().parse().ok()?;
    Some(slice.to_string())
}

fn extension() -> SourcedValue {
    const STATE: &str = "/sys/kernel/sched_ext/state";
    const OPS: &str = "/sys/kernel/sched_ext/root/ops";
    // The file exists only while a BPF scheduler is loaded.
    let ops = read(OPS).map_or(String::new(), |ops| format!(": {ops}"));
    SourcedValue::in_file_or(STATE, "not in this kernel", |state| {
        Some(format!("{state}{ops}"))
    })
}

fn on_or_off(text: &str) -> Option<String> {
    match text {
        "0" => Some("off".to_owned()),
        "1" => Some("on".to_owned()),
        _ => None,
    }
}

fn realtime_limit() -> SourcedValue {
    const RUNTIME: &str = "/proc/sys/kernel/sched_rt_runtime_us";
    let period = read("/proc/sys/kernel/sched_rt_period_us").unwrap_or_default();
    SourcedValue::in_file(RUNTIME, |runtime| realtime_share(runtime, &period))
}

fn realtime_share(runtime_us: &str, period_us: &str) -> Option<String> {
    let runtime: i64 = runtime_us.parse().ok()?;
    if runtime < 0 {
        return Some("no limit".to_owned());
    }
    let period: i64 = period_us.parse().ok()?;
    Some(format!("{runtime} of {period} us"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FactValue;

    fn config(text: &str) -> KernelConfig {
        KernelConfig {
            text: text.to_owned(),
            path: "/boot/config".to_owned(),
        }
    }

    fn model(build: &str, command_line: &str, text: Option<&str>) -> FactValue {
        let preemption = Preemption {
            debugfs: None,
            command_line: command_line.to_owned(),
            build: build.to_owned(),
        };
        preemption.found(text.map(config).as_ref()).value
    }

    const UBUNTU: &str = "#45-Ubuntu SMP PREEMPT_DYNAMIC Fri Aug 30 12:02:04 UTC 2024";
    const DEBIAN: &str = "#1 SMP PREEMPT_DYNAMIC Debian 6.1.106-3 (2024-08-26)";
    const RHEL_8: &str = "#1 SMP Tue Aug 8 12:00:00 EDT 2023";

    #[test]
    fn debugfs_has_the_last_word_on_preemption() {
        let preemption = Preemption {
            debugfs: Some("none voluntary (full) lazy".to_owned()),
            command_line: "preempt=none".to_owned(),
            build: UBUNTU.to_owned(),
        };
        assert_eq!(
            preemption.found(None),
            SourcedValue::known("full", DEBUG_PREEMPT)
        );
    }

    #[test]
    fn the_last_preempt_on_the_command_line_wins() {
        let value = model(UBUNTU, "quiet preempt=none preempt=full", None);
        assert_eq!(value, FactValue::Known("full (chosen at boot)".into()));
    }

    #[test]
    fn a_dynamic_kernel_falls_back_on_its_configuration() {
        let text = "# CONFIG_PREEMPT_NONE is not set\nCONFIG_PREEMPT_VOLUNTARY=y\n\
                    CONFIG_PREEMPT_DYNAMIC=y\n";
        let value = model(DEBIAN, "quiet", Some(text));
        assert_eq!(
            value,
            FactValue::Known("voluntary (default of a dynamic kernel)".into())
        );
    }

    #[test]
    fn a_dynamic_kernel_without_configuration_is_not_guessed() {
        assert_eq!(
            model(DEBIAN, "quiet", None),
            FactValue::Unknown(NO_CONFIG.into())
        );
    }

    #[test]
    fn a_kernel_that_says_nothing_is_none_or_voluntary() {
        assert!(matches!(model(RHEL_8, "", None), FactValue::Unknown(_)));
        assert_eq!(
            model(RHEL_8, "", Some("CONFIG_PREEMPT_NONE=y")),
            FactValue::Known("none".into())
        );
    }

    #[test]
    fn a_real_time_kernel_is_fully_preemptible() {
        let value = model("#1 SMP PREEMPT_RT Debian 6.1.106-3", "", None);
        assert_eq!(value, FactValue::Known("full (real-time kernel)".into()));
    }

    #[test]
    fn the_tick_is_a_number_and_not_the_choice_of_it() {
        let config = config("CONFIG_HZ_250=y\nCONFIG_HZ=250\n");
        assert_eq!(
            tick(Some(&config)),
            SourcedValue::known("250", "CONFIG_HZ in /boot/config")
        );
    }

    #[test]
    fn our_own_slice_stands_in_for_the_base_slice() {
        let sched = "prio           :    120\nse.slice       :   2800000\n";
        assert_eq!(own_slice(sched), Some("2800000".into()));
        assert_eq!(own_slice("prio : 120\n"), None);
    }

    #[test]
    fn a_negative_realtime_runtime_is_no_limit() {
        assert_eq!(realtime_share("-1", "1000000"), Some("no limit".into()));
        assert_eq!(
            realtime_share("950000", "1000000"),
            Some("950000 of 1000000 us".into())
        );
        assert_eq!(realtime_share("950000", ""), None);
    }
}
