//! The kernel's build configuration, and those of its options that change what a switch costs.
//!
//! Sources: `kernel/Kconfig.preempt`, `init/Kconfig`, `lib/Kconfig.debug` (v6.18).

use std::fs::File;
use std::io::Read;

use flate2::read::GzDecoder;

use super::{Fact, SourcedValue, or_none, read};

/// The reason given for every option if no configuration can be read.
pub(super) const NO_CONFIG: &str =
    "the kernel's configuration is neither in /proc/config.gz nor in /boot or /lib/modules";

/// Debugging options that slow every switch or wakeup down.
const SLOW: &[&str] = &[
    "DEBUG_ATOMIC_SLEEP",
    "DEBUG_KMEMLEAK",
    "DEBUG_LIST",
    "DEBUG_LOCK_ALLOC",
    "DEBUG_MUTEXES",
    "DEBUG_OBJECTS",
    "DEBUG_PAGEALLOC",
    "DEBUG_PREEMPT",
    "DEBUG_RT_MUTEXES",
    "DEBUG_SPINLOCK",
    "DEBUG_VM",
    "KASAN",
    "KCSAN",
    "KMSAN",
    "LOCK_STAT",
    "PROVE_LOCKING",
    "SCHED_STACK_END_CHECK",
    "SLUB_DEBUG_ON",
    "UBSAN",
];

/// Options that are on or off: name of the fact, option, why it matters.
const ON_OFF_OPTIONS: &[(&str, &str, &str)] = &[
    (
        "core_scheduling",
        "SCHED_CORE",
        "where tasks have cookies, siblings wait until they match; without cookies it is a check",
    ),
    (
        "rt_group_scheduling",
        "RT_GROUP_SCHED",
        "a group without a real-time budget refuses SCHED_FIFO, even to root",
    ),
    (
        "utilisation_clamping",
        "UCLAMP_TASK",
        "enqueueing a task updates its clamp, which can raise the frequency",
    ),
    (
        "context_tracking",
        "CONTEXT_TRACKING_USER",
        "on nohz_full CPUs each entry and exit of the kernel is accounted",
    ),
    (
        "schedstats",
        "SCHEDSTATS",
        "where kernel.sched_schedstats is on, each wait is timed",
    ),
];

pub(super) fn facts(config: Option<&KernelConfig>) -> Vec<Fact> {
    let mut facts: Vec<Fact> = ON_OFF_OPTIONS
        .iter()
        .map(|(name, option, note)| on_or_off(config, option).named(name, note))
        .collect();
    facts.push(slow_options(config).named(
        "debug_options",
        "checks inside the kernel: each switch and each wakeup pays for them",
    ));
    facts
}

/// The text of the kernel's build configuration.
#[derive(Debug)]
pub(super) struct KernelConfig {
    pub(super) text: String,
    pub(super) path: String,
}

impl KernelConfig {
    /// Reads it from the kernel itself, otherwise from where distributions keep it.
    pub(super) fn read() -> Option<Self> {
        let release = read("/proc/sys/kernel/osrelease").ok()?;
        Self::in_kernel().or_else(|| {
            [
                format!("/boot/config-{release}"),
                format!("/usr/lib/modules/{release}/config"),
                format!("/lib/modules/{release}/config"),
                format!("/usr/lib/ostree-boot/config-{release}"),
            ]
            .into_iter()
            .find_map(|path| {
                Some(Self {
                    text: read(&path).ok()?,
                    path,
                })
            })
        })
    }

    fn in_kernel() -> Option<Self> {
        const PATH: &str = "/proc/config.gz";
        let mut text = String::new();
        GzDecoder::new(File::open(PATH).ok()?)
            .read_to_string(&mut text)
            .ok()?;
        Some(Self {
            text,
            path: PATH.to_owned(),
        })
    }

    /// The value of an option named without `CONFIG_`.
    pub(super) fn value(&self, option: &str) -> Option<&str> {
        self.text.lines().find_map(|line| {
            line.strip_prefix("CONFIG_")?
                .strip_prefix(option)?
                .strip_prefix('=')
        })
    }

    pub(super) fn is_set(&self, option: &str) -> bool {
        self.value(option) == Some("y")
    }

    pub(super) fn source(&self, option: &str) -> String {
        format!("CONFIG_{option} in {}", self.path)
    }
}

/// `on` if an option is built in, otherwise `off`; unknown without a configuration.
pub(super) fn on_or_off(config: Option<&KernelConfig>, option: &str) -> SourcedValue {
    config.map_or_else(
        || SourcedValue::unknown(NO_CONFIG, format!("CONFIG_{option}")),
        |config| {
            let word = if config.is_set(option) { "on" } else { "off" };
            SourcedValue::known(word, config.source(option))
        },
    )
}

fn slow_options(config: Option<&KernelConfig>) -> SourcedValue {
    let Some(config) = config else {
        return SourcedValue::unknown(NO_CONFIG, "CONFIG_DEBUG_*");
    };
    let set: Vec<&str> = SLOW
        .iter()
        .copied()
        .filter(|option| config.is_set(option))
        .collect();
    SourcedValue::known(or_none(&set.join(" ")), config.path.clone())
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

    #[test]
    fn an_option_is_not_taken_for_one_it_begins_with() {
        let config = config("CONFIG_HZ_250=y\nCONFIG_HZ=250\nCONFIG_PREEMPT_COUNT=y\n");
        assert_eq!(config.value("HZ"), Some("250"));
        assert!(!config.is_set("PREEMPT"));
    }

    #[test]
    fn options_that_slow_a_switch_are_listed() {
        let fedora_debug = config("CONFIG_PROVE_LOCKING=y\nCONFIG_KASAN=y\nCONFIG_HZ=1000\n");
        let expected = FactValue::Known("KASAN PROVE_LOCKING".into());
        assert_eq!(slow_options(Some(&fedora_debug)).value, expected);
        let plain = config("# CONFIG_KASAN is not set\n");
        assert_eq!(
            slow_options(Some(&plain)).value,
            FactValue::Known("none".into())
        );
    }

    #[test]
    fn without_a_configuration_no_option_is_guessed() {
        for fact in facts(None) {
            assert_eq!(
                fact.value,
                FactValue::Unknown(NO_CONFIG.into()),
                "{}",
                fact.name
            );
        }
        let on = config("CONFIG_SCHED_CORE=y\n");
        assert_eq!(
            on_or_off(Some(&on), "SCHED_CORE"),
            SourcedValue::known("on", "CONFIG_SCHED_CORE in /boot/config")
        );
        assert_eq!(
            on_or_off(Some(&on), "UCLAMP_TASK").value,
            FactValue::Known("off".into())
        );
    }
}
