//! Counts what else happened on the machine during a measurement: time that the hypervisor took, interrupts,
//! throttling. Read from counters that only grow, before and after.

use std::fs;

/// `/proc/stat` counts in hundredths of a second whatever the tick (`USER_HZ`).
const USER_HZ: f64 = 100.0;

/// Counters at one moment. `None` where this kernel or user cannot read them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MachineCounters {
    /// Seconds in which the hypervisor ran others, on all CPUs.
    pub steal_s: Option<f64>,
    /// Interrupts of the CPU that is measured on, without those that CPUs send each other.
    pub interrupts: Option<u64>,
    /// Periods in which a quota of our cgroup, or of one above it, was used up.
    pub throttled: Option<u64>,
}

impl MachineCounters {
    /// Reads the counters; interrupts are those of `cpu`.
    pub fn read(cpu: u32) -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let table = fs::read_to_string("/proc/interrupts").unwrap_or_default();
        Self {
            steal_s: steal(&stat),
            interrupts: interrupts(&table, cpu),
            throttled: swtch_host::throttled_periods(),
        }
    }

    /// Adds two periods together; a count is unknown where one of the two is.
    pub fn plus(self, other: Self) -> Self {
        Self {
            steal_s: self
                .steal_s
                .zip(other.steal_s)
                .map(|(one, other)| one + other),
            interrupts: self
                .interrupts
                .zip(other.interrupts)
                .map(|(one, other)| one + other),
            throttled: self
                .throttled
                .zip(other.throttled)
                .map(|(one, other)| one + other),
        }
    }

    /// Growth since `before`; unknown where one of the two is.
    pub fn since(self, before: Self) -> Self {
        let added = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        Self {
            steal_s: self
                .steal_s
                .zip(before.steal_s)
                .map(|(now, then)| now - then),
            interrupts: added(self.interrupts, before.interrupts),
            throttled: added(self.throttled, before.throttled),
        }
    }
}

/// The eighth number of the line of all CPUs (`proc_stat(5)`).
fn steal(stat: &str) -> Option<f64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: f64 = line.split_whitespace().nth(7)?.parse().ok()?;
    Some(ticks / USER_HZ)
}

/// Interrupts that CPUs send each other: remote wake-ups and shoot-downs, of which the measurement
/// makes many itself (`Documentation/filesystems/proc.rst`, v6.18).
const BETWEEN_CPUS: [&str; 3] = ["RES", "CAL", "TLB"];

/// The beginning of arm64's labels for interrupts between CPUs: `IPI0`, `IPI1` (`arch/arm64/kernel/smp.c`, v6.18).
const BETWEEN_CPUS_ON_ARM: &str = "IPI";

/// Sum of one CPU's column of `/proc/interrupts`, without those between CPUs.
fn interrupts(table: &str, cpu: u32) -> Option<u64> {
    let mut lines = table.lines();
    let name = format!("CPU{cpu}");
    let column = lines
        .next()?
        .split_whitespace()
        .position(|head| head == name)?;
    let of_cpu = lines.filter_map(|line| {
        let (label, counts) = line.split_once(':')?;
        let label = label.trim();
        let is_counted = !BETWEEN_CPUS.contains(&label) && !label.starts_with(BETWEEN_CPUS_ON_ARM);
        let count: u64 = counts.split_whitespace().nth(column)?.parse().ok()?;
        is_counted.then_some(count)
    });
    Some(of_cpu.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steal_is_the_eighth_number_of_all_cpus() {
        let stat = "cpu  1 2 3 4 5 6 7 250 0 0\ncpu0 1 1 1 1 1 1 1 9 0 0\n";
        assert_eq!(steal(stat), Some(2.5));
        assert_eq!(steal("nothing"), None);
    }

    /// Our own remote wake-ups are no disturbance.
    #[test]
    fn interrupts_between_cpus_do_not_count() {
        let table = "     CPU0  CPU1\n  4:  10  20  IO-APIC  ttyS0\nLOC:  5  7  Local timer interrupts\n\
            RES:  100  100  Rescheduling interrupts\nERR:  0\n";
        assert_eq!(interrupts(table, 1), Some(27));
        let arm = "     CPU0  CPU1\n 11:  530  681  GIC-0  27 Level  arch_timer\n\
            IPI0:  4  57  Rescheduling interrupts\nErr:  0\n";
        assert_eq!(interrupts(arm, 1), Some(681));
        assert_eq!(interrupts(table, 2), None);
    }

    #[test]
    fn what_cannot_be_read_stays_unknown() {
        let before = MachineCounters::default();
        let now = MachineCounters {
            steal_s: Some(1.0),
            ..before
        };
        assert_eq!(now.since(before), MachineCounters::default());
    }
}
