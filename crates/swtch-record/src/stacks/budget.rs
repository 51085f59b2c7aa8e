//! How often looks come: as often as the CPU time that they may take lets them.

use std::time::Duration;

/// The least time between two looks, on average: a thread that is looked at more often tells little more.
const LEAST_BETWEEN: Duration = Duration::from_millis(20);

/// The CPU time that looks may take. What is not used is saved up to a limit, which is there at the start: a first look
/// takes longer than the others, and a short recording needs some.
#[derive(Clone, Copy, Debug)]
pub struct CpuBudget {
    thousandths: u64,
    saved_ns: i64,
    counted_until: u64,
}

impl CpuBudget {
    /// As much as 50 looks at ten threads take.
    const MOST_SAVED_NS: i64 = 20_000_000;

    /// All of it is saved at the start.
    pub const fn new(thousandths: u32, now: u64) -> Self {
        Self {
            thousandths: if thousandths == 0 {
                1
            } else {
                thousandths as u64
            },
            saved_ns: Self::MOST_SAVED_NS,
            counted_until: now,
        }
    }

    /// How long to rest after a look that has used so much, until the next: around what earns it. Looks come at random
    /// distances: a program that does something every 20 ms is not always met at the same place.
    pub fn pause_after(&mut self, used_ns: u64, now: u64) -> Duration {
        let between = self.earned_after(used_ns, now).max(LEAST_BETWEEN);
        between.mul_f64(0.5 + fastrand::f64())
    }

    fn earned_after(&mut self, used_ns: u64, now: u64) -> Duration {
        let passed = now.saturating_sub(std::mem::replace(&mut self.counted_until, now));
        let earned = passed.saturating_mul(self.thousandths) / 1000;
        let as_signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        let saved = self.saved_ns.saturating_add(as_signed(earned));
        self.saved_ns = saved.min(Self::MOST_SAVED_NS) - as_signed(used_ns);
        let owed = u64::try_from(-self.saved_ns).unwrap_or(0);
        Duration::from_nanos(owed.saturating_mul(1000) / self.thousandths)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks of 1 ms each, at 1 % of a CPU: what is saved is used first, then 100 ms pass between two.
    #[test]
    fn looks_take_their_share_of_a_cpu_and_not_more() {
        let mut budget = CpuBudget::new(10, 0);
        let (mut now, mut used): (u64, u64) = (0, 0);
        let mut pauses = Vec::new();
        while now < 60_000_000_000 {
            used += 1_000_000;
            let pause = budget.earned_after(1_000_000, now).max(LEAST_BETWEEN);
            pauses.push(pause.as_millis());
            now += u64::try_from(pause.as_nanos()).unwrap();
        }
        assert_eq!(pauses[0], 20);
        assert_eq!(pauses.last(), Some(&100));
        assert!(used < 60_000_000_000 / 100 + 21_000_000, "{used}");
    }
}
