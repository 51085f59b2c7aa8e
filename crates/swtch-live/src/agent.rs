//! `swtch agent`: counts of context switches as metrics, for Prometheus and whoever reads its formats.
//!
//! ```text
//! kernel's table ─▶ RateFrame ─every second─▶ AgentTotals ◀─lock─ HTTP thread ─▶ /metrics
//!   (as for top)                                  ▲
//! /proc/stat, /proc/pressure, cpu.stat ───────────┘
//! ```
//!
//! Metrics are in layers, of which the first goes on without the second: what the kernel counts anyway; and
//! switches, which take the right to load programs. The agent writes no file: what happened is kept by a
//! flight recorder beside it (`swtch record --ring`).
//!
//! Metrics change once a second, and their text is made when somebody asks and something has changed:
//! a scraper costs little, however often it comes. `totals` bounds how many cgroups have metrics of
//! their own; `metrics` is the list of all metrics; `server` says who may read them, `negotiation` in which format.

mod host;
mod metrics;
mod named_cgroups;
mod negotiation;
mod server;
mod totals;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::time::ClockId;
use swtch_capture::limits::limit_behind;
use swtch_capture::require_proc;
use swtch_output::caller::Caller;
use swtch_output::message;
use swtch_output::text::escaped;
use swtch_report::report::live::LiveView;

use crate::top::{TAKE_NAMES_EVERY, TopRequest, TopSession};
use server::MetricsServer;
use swtch_record::record::{AfterRecording, StopSignals, WorkAhead};
use totals::AgentTotals;

/// A request for the agent.
#[derive(Clone, Debug)]
pub struct AgentRequest {
    /// Whose switches are counted, and their prices.
    pub top: TopRequest,
    /// The address at which metrics are served.
    pub listen: SocketAddr,
    /// The file with the token that a scraper must send; `None` answers everybody on this machine.
    pub token_file: Option<PathBuf>,
    /// Number of cgroups that have metrics of their own.
    pub most_cgroups: usize,
}

impl AgentRequest {
    /// The time between two readings of the kernel's table.
    pub const READ_EVERY: Duration = Duration::from_secs(1);

    /// The longest time between two of them.
    const READ_AT_LEAST_EVERY: Duration = Duration::from_secs(5);
}

/// A reading takes at most one part in so many of the time, as long as that is often enough.
const READING_SHARE: u32 = 200;

/// Serves metrics until a signal ends it; returns the exit code.
///
/// # Errors
/// When the port cannot be had, what was asked for does not exist, or the system refuses.
pub fn run(request: &AgentRequest) -> Result<u8> {
    require_proc()?;
    // A port below 1024 takes a right that is given up below, and one in use is told before anything starts.
    let server = MetricsServer::bind(request)?;
    let session = match TopSession::start(&request.top) {
        Ok(session) => Ok(session),
        Err(error) => Err(without_switches(error)?),
    };
    let totals = AgentTotals::new(request, session.as_ref().map_err(|lacking| *lacking));
    let totals = Arc::new(Mutex::new(totals));
    let url = server.url();
    server.start(Arc::clone(&totals))?;
    message!("swtch: metrics at {url}; SIGTERM or Ctrl-C ends it");
    match session {
        Ok(session) => count_switches(session, &totals),
        Err(_) => count_without_switches(&totals),
    }
}

/// Goes on with what the kernel counts anyway, if it is this machine that lets no switches be counted.
/// Returns what it lacks, in a word.
fn without_switches(error: anyhow::Error) -> Result<&'static str> {
    let lacking = error
        .downcast_ref()
        .and_then(swtch_capture::Error::lacking_on_machine);
    let why = format!("{error:#}");
    let Some(lacking) = lacking.filter(|_| limit_behind(&why).is_none()) else {
        return Err(error);
    };
    message!(
        "swtch: no switches are counted: {} (swtch doctor says what this machine allows). Metrics hold what the kernel \
         counts anyway",
        escaped(&why)
    );
    let caller = Caller::of_sudo()?;
    let ahead = WorkAhead {
        caller: caller.as_ref(),
        command: None,
        names_functions: false,
        afterwards: AfterRecording::Tells,
    };
    ahead.give_up_rights(|| Ok(()))?;
    Ok(lacking)
}

fn count_switches(mut session: TopSession, totals: &Mutex<AgentTotals>) -> Result<u8> {
    let mut every = AgentRequest::READ_EVERY;
    while !session.signals.any() {
        let left = session.until_frame(every);
        if !left.is_zero() {
            let slept = session.signals.sleep(left.min(TAKE_NAMES_EVERY), None);
            slept.context("waiting for the next reading")?;
            // A frame that is due reads the table itself.
            if !session.until_frame(every).is_zero() {
                session.keep_up()?;
            }
            continue;
        }
        let began = thread_cpu_time();
        let made = session.frame_without_quotas(&[LiveView::Cgroup], None)?;
        let lost_names = session.lost_names();
        let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
        totals.add(&made, lost_names);
        drop(totals);
        every = pause_after(thread_cpu_time().saturating_sub(began), made.groups);
        session.read_every(every);
    }
    Ok(0)
}

/// CPU time of this thread: a machine whose CPUs are busy must not make readings rarer.
fn thread_cpu_time() -> Duration {
    ClockId::CLOCK_THREAD_CPUTIME_ID
        .now()
        .map_or(Duration::ZERO, Duration::from)
}

/// The time until the next reading, after one that took so long: where many groups are counted, readings
/// are rarer. Places of tasks that have ended become free by a reading, so it comes soon where more than
/// half of the table is in use.
fn pause_after(took: Duration, (room, in_use): (u32, usize)) -> Duration {
    let is_roomy = in_use.saturating_mul(2) < usize::try_from(room).unwrap_or(usize::MAX);
    if is_roomy {
        (took * READING_SHARE).clamp(AgentRequest::READ_EVERY, AgentRequest::READ_AT_LEAST_EVERY)
    } else {
        AgentRequest::READ_EVERY
    }
}

fn count_without_switches(totals: &Mutex<AgentTotals>) -> Result<u8> {
    let signals = StopSignals::catch()?;
    while !signals.any() {
        let mut totals = totals.lock().unwrap_or_else(PoisonError::into_inner);
        totals.add_without_switches();
        drop(totals);
        let slept = signals.sleep(AgentRequest::READ_EVERY, None);
        slept.context("waiting for the next reading")?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readings_that_take_long_are_rare_while_the_table_has_room() {
        let pause = |took, in_use| pause_after(Duration::from_millis(took), (1_000, in_use));
        assert_eq!(pause(1, 10), Duration::from_secs(1));
        assert_eq!(pause(10, 10), Duration::from_secs(2));
        assert_eq!(pause(500, 10), Duration::from_secs(5));
        assert_eq!(pause(500, 500), Duration::from_secs(1));
    }
}
