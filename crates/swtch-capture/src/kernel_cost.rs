//! Measures what the programs cost the kernel, by the kernel's own statistics of eBPF programs, which are switched on
//! for the beginning of a recording.
//!
//! The statistics (`bpf_enable_stats(2)` of libbpf; `__bpf_prog_run()` in `include/linux/filter.h`,
//! v6.18) read a clock before and after each run of each program of the machine. They stay on as
//! long as a descriptor is open, so a recorder that dies leaves nothing switched on. Their own share
//! is told by a program that does nothing, and taken off.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use libbpf_rs::skel::Skel;
use libbpf_rs::{Program, ProgramInput, ProgramMut, libbpf_sys};

use crate::skeleton::recorder::SwtchSkel;

/// The statistics are on until so many switches were seen, ...
const ENOUGH_SWITCHES: u64 = 20_000;
/// ... or for this long if at least [`FEWEST_SWITCHES`] were seen by then, ...
const LONG_ENOUGH: Duration = Duration::from_secs(1);
/// ... and no longer than this.
const TOO_LONG: Duration = Duration::from_secs(10);
/// Below this number of switches no mean is told.
const FEWEST_SWITCHES: u64 = 500;

/// Name of the empty program in `bpf/swtch.bpf.c`.
const DO_NOTHING: &str = "do_nothing";

/// Runs of the empty program: the first ones warm the caches and do not count.
const WARM_UP_RUNS: u32 = 200;
const EMPTY_RUNS: u32 = 1_000;

/// Mean time that a switch costs in the recorder's programs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelCost {
    /// Nanoseconds in all programs together, for one switch of the machine, whether it was recorded
    /// or not.
    pub ns_per_switch: f64,
    /// Runs of programs for one switch of the machine. The kernel's way to a program and back is
    /// not in `ns_per_switch`.
    pub runs_per_switch: f64,
    /// Number of switches that this is the mean of.
    pub switches: u64,
}

/// The measurement, from the loading of the programs until enough was seen.
pub(crate) struct KernelCostMeasurement {
    /// Open while the statistics are on.
    statistics: Option<OwnedFd>,
    /// The time that a run of an empty program seems to take.
    empty_run_ns: f64,
    since: Instant,
    found: Option<KernelCost>,
}

/// The kernel's counts for a program while the statistics were on.
#[derive(Clone, Copy, Default)]
struct RunTime {
    runs: u64,
    ns: u64,
}

impl KernelCostMeasurement {
    /// Switches the statistics on. Call it with full rights, before the programs are attached.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn start(skel: &SwtchSkel<'_>) -> io::Result<Self> {
        // SAFETY: the call takes a number only.
        let descriptor = unsafe { libbpf_sys::bpf_enable_stats(libbpf_sys::BPF_STATS_RUN_TIME) };
        if descriptor < 0 {
            return Err(io::Error::from_raw_os_error(-descriptor));
        }
        // SAFETY: the kernel has just opened it for us.
        let statistics = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Self {
            statistics: Some(statistics),
            empty_run_ns: empty_run_ns(&skel.progs.do_nothing)?,
            since: Instant::now(),
            found: None,
        })
    }

    /// Ends the measurement if it has seen enough. `seen` is the number of switches so far.
    ///
    /// # Errors
    /// As [`Self::end`].
    pub fn look(&mut self, skel: &SwtchSkel<'_>, seen: impl FnOnce() -> u64) -> io::Result<()> {
        if self.statistics.is_none() {
            return Ok(());
        }
        let (seen, elapsed) = (seen(), self.since.elapsed());
        let is_enough = seen >= ENOUGH_SWITCHES
            || (elapsed >= LONG_ENOUGH && seen >= FEWEST_SWITCHES)
            || elapsed >= TOO_LONG;
        if is_enough {
            self.end(skel, seen)
        } else {
            Ok(())
        }
    }

    /// Switches the statistics off and reads them; later calls do nothing.
    ///
    /// # Errors
    /// When the kernel does not tell them.
    pub fn end(&mut self, skel: &SwtchSkel<'_>, seen: u64) -> io::Result<()> {
        if self.statistics.take().is_none() || seen < FEWEST_SWITCHES {
            return Ok(());
        }
        let mut all = RunTime::default();
        for program in skel.object().progs().filter(|program| program.autoload()) {
            if program.name() != DO_NOTHING {
                let one = run_time(&program)?;
                all.runs += one.runs;
                all.ns += one.ns;
            }
        }
        self.found = Some(mean(all, self.empty_run_ns, seen));
        Ok(())
    }

    /// The result; `None` while the measurement goes on, or when too little was seen.
    pub const fn found(&self) -> Option<KernelCost> {
        self.found
    }
}

/// The mean over `switches` of what the programs took, without the part of the statistics.
#[expect(clippy::cast_precision_loss, reason = "a mean of nanoseconds")]
fn mean(programs: RunTime, empty_run_ns: f64, switches: u64) -> KernelCost {
    let net = programs.ns as f64 - programs.runs as f64 * empty_run_ns;
    KernelCost {
        ns_per_switch: net.max(0.0) / switches as f64,
        runs_per_switch: programs.runs as f64 / switches as f64,
        switches,
    }
}

/// Returns what the statistics say of a run of a program that does nothing: their own share.
#[expect(clippy::cast_precision_loss, reason = "a mean of nanoseconds")]
fn empty_run_ns(program: &ProgramMut<'_>) -> io::Result<f64> {
    let run = |times: u32| -> io::Result<RunTime> {
        for _ in 0..times {
            let done = program.test_run(ProgramInput::default());
            done.map_err(|error| io::Error::other(format!("running an empty program: {error}")))?;
        }
        run_time(program)
    };
    let before = run(WARM_UP_RUNS)?;
    let after = run(EMPTY_RUNS)?;
    Ok((after.ns - before.ns) as f64 / (after.runs - before.runs).max(1) as f64)
}

fn run_time(program: &Program<'_>) -> io::Result<RunTime> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut size = u32::try_from(size_of_val(&info)).expect("invariant: a few hundred bytes");
    let descriptor = program.as_fd().as_raw_fd();
    // SAFETY: `info` is ours to be written to, and `size` says how large it is.
    let refused =
        unsafe { libbpf_sys::bpf_prog_get_info_by_fd(descriptor, &raw mut info, &raw mut size) };
    if refused < 0 {
        return Err(io::Error::from_raw_os_error(-refused));
    }
    Ok(RunTime {
        runs: info.run_cnt,
        ns: info.run_time_ns,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_part_of_the_statistics_is_taken_off() {
        let programs = RunTime {
            runs: 2_500,
            ns: 250_000,
        };
        let cost = mean(programs, 30.0, 1_000);
        assert!((cost.ns_per_switch - 175.0).abs() < 1e-9, "{cost:?}");
        assert!((cost.runs_per_switch - 2.5).abs() < 1e-9, "{cost:?}");
        assert_eq!(cost.switches, 1_000);
    }

    /// A program may take less than an empty one seemed to, by chance.
    #[test]
    fn a_cost_is_never_negative() {
        let programs = RunTime { runs: 10, ns: 100 };
        assert_eq!(mean(programs, 30.0, 10).ns_per_switch.to_bits(), 0);
    }
}
