//! What the kernel says a quantum is: base slice, round-robin interval, tick.
//!
//! Sources: `kernel/sched/fair.c` (a slice that a task asks for is kept between 0.1 ms and 100 ms,
//! v6.12; the tick checks whether it is used up), `Documentation/admin-guide/sysctl/kernel.rst`
//! (`sched_rr_timeslice_ms`).

use std::fs;
use std::time::Duration;

use swtch_host::{self, FactValue};

/// The shortest and the longest slice that a task may ask for.
const SLICES: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(100));

const ROUND_ROBIN: &str = "/proc/sys/kernel/sched_rr_timeslice_ms";

/// What the kernel says of quanta. `None` where it does not.
#[derive(Clone, Copy, Debug, Default)]
pub struct KernelQuanta {
    base_slice: Option<Duration>,
    round_robin: Option<Duration>,
    /// Time from one timer interrupt to the next.
    pub tick: Option<Duration>,
}

impl KernelQuanta {
    /// Reads the values of this machine.
    pub fn read() -> Self {
        let facts = swtch_host::facts();
        let number = |name: &str| -> Option<f64> {
            let fact = facts.iter().find(|fact| fact.name == name)?;
            match &fact.value {
                FactValue::Known(value) => value.parse().ok(),
                FactValue::Unknown(_) => None,
            }
        };
        let round_robin = fs::read_to_string(ROUND_ROBIN).ok();
        let milliseconds = round_robin.and_then(|text| text.trim().parse().ok());
        Self {
            base_slice: number("base_slice_ns").map(|ns| Duration::from_secs_f64(ns / 1e9)),
            round_robin: milliseconds.map(Duration::from_millis),
            tick: number("tick_hz").map(|hz| Duration::from_secs_f64(1.0 / hz)),
        }
    }

    /// The quantum of a task of this name that may have asked for a slice; `None` when it has none
    /// (fifo), or the kernel does not say.
    pub fn quantum(&self, name: &str, slice: Option<Duration>) -> Option<Duration> {
        match (slice, name) {
            (Some(slice), _) => Some(slice.clamp(SLICES.0, SLICES.1)),
            (None, "fifo") => None,
            (None, "rr") => self.round_robin,
            (None, _) => self.base_slice,
        }
    }

    /// Number of ticks after which a slice ends; when the tick is not known, its length in ns.
    pub fn ticks(&self, slice: Duration) -> u128 {
        let slice = slice.clamp(SLICES.0, SLICES.1);
        self.tick.map_or(slice.as_nanos(), |tick| {
            slice.as_nanos().div_ceil(tick.as_nanos().max(1))
        })
    }

    /// All values in one sentence.
    pub fn sentence(&self) -> String {
        let words = |time: Option<Duration>| {
            time.map_or_else(|| "does not say".to_owned(), |time| format!("{time:?}"))
        };
        format!(
            "The kernel says: base slice {}, round-robin interval {}, tick {}. A turn ends at the first \
             tick after its slice is used up.",
            words(self.base_slice),
            words(self.round_robin),
            words(self.tick)
        )
    }

    /// Values of which only the tick is known.
    #[cfg(test)]
    pub fn of_tick(tick: Duration) -> Self {
        Self {
            tick: Some(tick),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_end_at_ticks() {
        let stated = KernelQuanta::of_tick(Duration::from_millis(4));
        let ticks = |ms| stated.ticks(Duration::from_millis(ms));
        assert_eq!([1, 4, 5, 30].map(ticks), [1, 1, 2, 8]);
        // The kernel takes no more than 100 ms.
        assert_eq!(ticks(500), 25);
    }

    #[test]
    fn fifo_has_no_quantum() {
        let stated = KernelQuanta {
            base_slice: Some(Duration::from_millis(3)),
            round_robin: Some(Duration::from_millis(100)),
            tick: None,
        };
        assert_eq!(stated.quantum("fifo", None), None);
        assert_eq!(stated.quantum("rr", None), Some(Duration::from_millis(100)));
        assert_eq!(
            stated.quantum("nice-5", None),
            Some(Duration::from_millis(3))
        );
        let asked = Some(Duration::from_micros(10));
        assert_eq!(
            stated.quantum("hog", asked),
            Some(Duration::from_micros(100))
        );
    }
}
