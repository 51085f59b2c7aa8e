//! The clock source: what reading the time costs, and whether it stays right across sleep and
//! changes of frequency.
//!
//! Sources: `Documentation/timers/timekeeping.rst`, `arch/x86/kernel/tsc.c` (v6.18).

use super::processor::field;
use super::{Fact, SourcedValue, or_none};

const CLOCKSOURCE: &str = "/sys/devices/system/clocksource/clocksource0";

/// Processor flags that make the time stamp counter usable as a clock.
const TSC_FLAGS: &[&str] = &[
    "tsc",
    "constant_tsc",
    "nonstop_tsc",
    "tsc_reliable",
    "tsc_known_freq",
];

pub(super) fn facts() -> Vec<Fact> {
    vec![
        SourcedValue::in_file(&format!("{CLOCKSOURCE}/current_clocksource"), |clock| {
            Some(or_none(clock))
        })
        .named(
            "clocksource",
            "hpet and acpi_pm are slow to read: recording and measuring cost more",
        ),
        SourcedValue::in_file("/proc/cpuinfo", tsc).named(
            "tsc_flags",
            "without constant_tsc and nonstop_tsc the counter runs with the frequency, or stops",
        ),
    ]
}

/// The flags of the first processor that concern its time stamp counter.
fn tsc(cpuinfo: &str) -> Option<String> {
    let flags: Vec<&str> = field(cpuinfo, "flags")?.split_whitespace().collect();
    let found: Vec<&str> = TSC_FLAGS
        .iter()
        .copied()
        .filter(|flag| flags.contains(flag))
        .collect();
    Some(or_none(&found.join(" ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_the_counter_are_singled_out() {
        let xeon = "flags : fpu tsc msr constant_tsc rep_good nonstop_tsc cpuid\n";
        assert_eq!(tsc(xeon), Some("tsc constant_tsc nonstop_tsc".into()));
        assert_eq!(tsc("flags : fpu\n"), Some("none".into()));
        assert_eq!(tsc("Features : fp asimd\n"), None);
    }
}
