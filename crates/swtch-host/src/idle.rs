//! Idle states of the CPUs: how deep an idle CPU sleeps, which a wakeup from another CPU waits for.
//!
//! Sources: `Documentation/admin-guide/pm/cpuidle.rst`,
//! `Documentation/virt/guest-halt-polling.rst`, `kernel/power/qos.c` (v6.18).

use std::fs::File;
use std::io::Read;

use super::{Fact, SourcedValue, or_none, read};

const STATES: &str = "/sys/devices/system/cpu/cpu0/cpuidle";
const HALT_POLL: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";
const DMA_LATENCY: &str = "/dev/cpu_dma_latency";

/// `PM_QOS_CPU_LATENCY_DEFAULT_VALUE` in us: no process has requested a lower limit.
const NO_REQUEST_US: i32 = 2_000_000_000;

pub(super) fn facts() -> Vec<Fact> {
    vec![
        states().named(
            "cpuidle_states",
            "a wakeup on an idle CPU first waits for the exit from the state it is in",
        ),
        SourcedValue::in_file_or(HALT_POLL, "not in this kernel", nanoseconds).named(
            "guest_halt_poll",
            "where governor haltpoll is in use, a guest polls so long before it gives the CPU away",
        ),
        latency_limit().named(
            "idle_latency_limit",
            "states whose exit takes longer are not entered while somebody asks for this",
        ),
    ]
}

/// An idle state of a CPU.
#[derive(Debug)]
struct IdleState {
    name: String,
    latency_us: String,
    disable: String,
}

fn states() -> SourcedValue {
    let states: Vec<IdleState> = (0..16).map_while(IdleState::read).collect();
    if states.is_empty() {
        return SourcedValue::known("none: idle CPUs only halt", format!("no {STATES}/state0"));
    }
    let shown: Vec<String> = states.iter().map(IdleState::shown).collect();
    SourcedValue::known(shown.join(", "), format!("{STATES}/state*"))
}

impl IdleState {
    fn read(number: usize) -> Option<Self> {
        let file = |name: &str| read(&format!("{STATES}/state{number}/{name}")).ok();
        Some(Self {
            name: file("name")?,
            latency_us: file("latency")?,
            disable: file("disable").unwrap_or_default(),
        })
    }

    fn shown(&self) -> String {
        let disabled = match self.disable.as_str() {
            "" | "0" => "",
            _ => " (disabled)",
        };
        format!("{} {} us{disabled}", or_none(&self.name), self.latency_us)
    }
}

fn nanoseconds(text: &str) -> Option<String> {
    let ns: u64 = text.parse().ok()?;
    Some(format!("{ns} ns"))
}

/// Opening the file requests nothing; only writing to it would.
fn latency_limit() -> SourcedValue {
    let mut bytes = [0; 4];
    match File::open(DMA_LATENCY).and_then(|mut file| file.read_exact(&mut bytes)) {
        Ok(()) => SourcedValue::known(limit_text(i32::from_ne_bytes(bytes)), DMA_LATENCY),
        Err(error) => SourcedValue::unknown(error.to_string(), DMA_LATENCY),
    }
}

fn limit_text(limit_us: i32) -> String {
    if limit_us >= NO_REQUEST_US {
        "none".to_owned()
    } else {
        format!("{limit_us} us")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_shows_its_exit_latency_and_whether_it_is_off() {
        let mut state = IdleState {
            name: "C6".to_owned(),
            latency_us: "170".to_owned(),
            disable: "0".to_owned(),
        };
        assert_eq!(state.shown(), "C6 170 us");
        state.disable = "1".to_owned();
        assert_eq!(state.shown(), "C6 170 us (disabled)");
    }

    #[test]
    fn the_largest_latency_is_no_limit() {
        assert_eq!(limit_text(2_000_000_000), "none");
        assert_eq!(limit_text(0), "0 us");
    }
}
