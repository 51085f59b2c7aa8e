//! `swtch cost --of`: what a switch costs one program, by a randomised experiment on it.
//!
//! ```text
//! look (3 s, recorded, nothing is done) ─▶ say how long it takes and what it will tell
//!   ─▶ inject (moments, lots) ─┐
//!      record (runs, spans) ───┴▶ join, estimate (swtch_core::cost::injection) ─▶ answer
//! ```
//!
//! The recorder is a child, `swtch record`: it gives its rights up for good, and the injector needs them.

mod answer;
mod program;
mod recorder;

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsString;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use swtch_bench::cost::injection::{InjectionPlan, cost_of_moment, inject};
use swtch_capture::HeldCommand;
use swtch_capture::signals::stop_on_signals;
use swtch_core::cost::injection::{
    InjectedMoment, Injection, InjectionEstimates, UnitBounds, UnitsAtMoments, resolution,
};
use swtch_core::{CpuId, Nanos, Pid, ProgramSpan, TaskKey, ThreadSpans, Tid, Timestamp};
use swtch_output::format::Format;
use swtch_output::message;
use swtch_output::text::{counted, grouped, nanos};
use swtch_store::{Columns, SpanRow, Trace};

use answer::ExperimentAnswer;
use program::ReadProgram;
use recorder::ProgramRecorder;

/// The time for which the program is looked at before anything is done to it.
const LOOK: Duration = Duration::from_secs(3);

/// The mean time between the moments at which the look asks what unit of work it meets.
const LOOK_EVERY_NS: usize = 300_000;

/// The time from a look at the program to the act, before one has been measured: reading where a thread runs takes some 20
/// µs, and an interrupt 14 to 30 to come (seen on KVM, Linux 6.18).
const DELAY: Nanos = Nanos::from_ns(40_000);

/// A request of `swtch cost --of`.
#[derive(Clone, Debug)]
pub struct ProgramCostRequest {
    /// The program.
    pub program: MeasuredProgram,
    /// The share of its CPU time, in percent, by which it may be slowed.
    pub budget_pct: f64,
    /// For how long switches are injected.
    pub duration: Duration,
    /// The spans that are its units of work, as `swtch record --span` takes them. Without them a unit is what a thread
    /// does from one block to the next.
    pub spans: Vec<String>,
    /// The format of the answer.
    pub format: Format,
}

/// The program that is measured.
#[derive(Clone, Debug)]
pub enum MeasuredProgram {
    /// One that is started.
    Command(Vec<OsString>),
    /// One that runs, with the processes below it.
    Process(Pid),
}

/// What the look at the program has told.
struct ProgramLook {
    /// CPU time that it uses, in shares of one CPU.
    load: f64,
    /// Half the length of the interval that the price of a switch will have, in ns.
    resolution_ns: f64,
    /// The number of moments that will be drawn.
    moments: f64,
}

/// Measures, writes the answer, and returns the exit code.
///
/// # Errors
/// The program cannot be started, recorded or interrupted, or it does nothing of which a unit of work could be told.
pub fn run(request: &ProgramCostRequest) -> Result<u8> {
    let stop = stop_on_signals()?;
    let mut command = match &request.program {
        MeasuredProgram::Command(words) => Some(HeldCommand::start(words)?),
        MeasuredProgram::Process(_) => None,
    };
    if let Some(command) = &mut command {
        command.release()?;
    }
    let pid = match (&request.program, &command) {
        (MeasuredProgram::Process(pid), _) => *pid,
        (_, Some(command)) => command.pid(),
        (MeasuredProgram::Command(_), None) => unreachable!("it was started"),
    };
    let measured = measure(request, pid, &stop);
    if let Some(command) = &command
        && matches!(command.ended(), Ok(None))
    {
        message!("swtch: the command goes on (process {pid})");
    }
    measured?.write(request.format)
}

fn measure(request: &ProgramCostRequest, pid: Pid, stop: &AtomicBool) -> Result<ExperimentAnswer> {
    // A process that is not there is told before anything else.
    ReadProgram::of(pid)?;
    let cost_of_moment =
        cost_of_moment(stop).context("forcing switches upon a program takes root, and two CPUs")?;
    message!("swtch: looking at the program for {} s", LOOK.as_secs());
    let look = look(request, pid, cost_of_moment, stop)?;
    message!(
        "swtch: measuring for {} s, at about {} moments: they slow the program by {} % at most, recording comes on top, and \
         what a switch costs it will be known to ±{}",
        request.duration.as_secs(),
        grouped(Nanos::from_rounded(look.moments).as_ns()),
        request.budget_pct,
        nanos(look.resolution_ns),
    );
    let recorder = ProgramRecorder::start(pid, request.duration, &request.spans, stop)?;
    // The budget is of what it uses from here on.
    let mut program = ReadProgram::of(pid)?;
    let plan = InjectionPlan {
        duration: request.duration,
        budget: request.budget_pct / 100.0,
        seed: swtch_capture::monotonic_ns(),
    };
    let log = inject(plan, || program.read(), stop)?;
    let trace = recorder.end()?;
    let units = join(&trace, &log.moments, &request.spans)?;
    let estimates = InjectionEstimates::of(units.responses()).with_context(|| {
        format!(
            "after {:.0} s, {} and {} units of work of the program",
            log.took.as_secs_f64(),
            counted(log.moments.len() as u64, "moment"),
            grouped(units.units())
        )
    })?;
    let mut answer = ExperimentAnswer::new(request, &estimates, &log, &units);
    answer.add_facts_of(trace.meta(), look.load);
    if stop.load(Ordering::Relaxed) {
        answer.was_ended_early();
    }
    Ok(answer)
}

/// Records the program for a while, and finds out what its units of work are.
fn look(
    request: &ProgramCostRequest,
    pid: Pid,
    cost_of_moment: Nanos,
    stop: &AtomicBool,
) -> Result<ProgramLook> {
    let recorder = ProgramRecorder::start(pid, LOOK, &request.spans, stop)?;
    let trace = recorder.record_for(LOOK, stop)?;
    if stop.load(Ordering::Relaxed) {
        bail!("ended before anything was measured");
    }
    let units = join(&trace, &moments_of_look(&trace), &request.spans)?;
    let meta = trace.meta();
    let lasted = meta.end_ns.saturating_sub(meta.start_ns).max(1) as f64;
    let load = units.ran().as_ns() as f64 / lasted;
    let budget_ns = request.budget_pct / 100.0 * load * request.duration.as_nanos() as f64;
    // Of moments that meet a unit, the share at which it is still open when the act comes.
    let met = units.responses().len() as f64;
    let in_time = met / (met + units.late() as f64).max(1.0);
    let moments = in_time * budget_ns / cost_of_moment.as_ns().max(1) as f64;
    let Some(resolution_ns) = resolution(units.responses(), moments) else {
        bail!("{}", why_no_units(request, &units, load));
    };
    Ok(ProgramLook {
        load,
        resolution_ns,
        moments,
    })
}

/// Why the look has met no units of work, and what can be done about it.
fn why_no_units(request: &ProgramCostRequest, units: &UnitsAtMoments, load: f64) -> String {
    let seconds = LOOK.as_secs();
    if load < 0.001 {
        return format!(
            "the program used {:.2} % of a CPU in {seconds} s: measure it while it works",
            load * 100.0
        );
    }
    if !request.spans.is_empty() {
        return format!(
            "{} seen whole in {seconds} s: is {} what the program calls?",
            counted(units.units(), "span"),
            request.spans.join(", ")
        );
    }
    format!(
        "the program used {:.0} % of a CPU in {seconds} s and blocked {} times: what it does from one block to the next is \
         too long to be a unit of work. Name one that it does often: --span FILE:FUNCTION",
        load * 100.0,
        units.units()
    )
}

/// Moments at which nothing was done, on each CPU of the recording, to see what acts would have met.
fn moments_of_look(trace: &Trace) -> Vec<InjectedMoment> {
    let meta = trace.meta();
    let cpus = u16::try_from(swtch_host::origin().cpus).unwrap_or(u16::MAX);
    let every = (meta.start_ns..meta.end_ns).step_by(LOOK_EVERY_NS);
    every
        .flat_map(|at| {
            (0..cpus).map(move |cpu| InjectedMoment {
                at: Timestamp::from_ns(at),
                cpu: CpuId::new(cpu),
                injection: Injection::Switch,
                began: Some(Timestamp::from_ns(at).after(DELAY)),
            })
        })
        .collect()
}

/// The units of work of a trace, and what the moments have met.
struct JoinedMoments {
    units: UnitsAtMoments,
    /// The number of spans that are a unit together; `None` where units end with blocks.
    spans_in_unit: Option<usize>,
}

impl Deref for JoinedMoments {
    type Target = UnitsAtMoments;

    fn deref(&self) -> &UnitsAtMoments {
        &self.units
    }
}

/// Joins the runs of a trace with the moments.
fn join(trace: &Trace, moments: &[InjectedMoment], spans: &[String]) -> Result<JoinedMoments> {
    let (bounds, spans_in_unit) = match spans {
        [] => (UnitBounds::Blocks, None),
        _ => {
            let (bounds, in_unit) = UnitBounds::of_spans(spans_of(trace)?);
            (bounds, Some(in_unit))
        }
    };
    let mut units = UnitsAtMoments::new(moments, bounds);
    let columns = [
        Columns::CPU,
        Columns::TASK,
        Columns::RAN,
        Columns::STOLEN,
        Columns::STATE,
        Columns::BITS,
    ];
    let columns = columns.into_iter().fold(Columns::TS, Columns::and);
    // The trace has those, too, that had a CPU while the program waited for it.
    let tasks = trace.tasks()?;
    let of_program = tasks.iter().filter(|task| task.in_scope);
    let of_program: HashSet<TaskKey> = of_program.map(|task| task.task).collect();
    trace.scan(columns, None, &mut |row| {
        if of_program.contains(&row.task) {
            units.add(row);
        }
    })?;
    Ok(JoinedMoments {
        units,
        spans_in_unit,
    })
}

/// The spans of each thread of a trace.
fn spans_of(trace: &Trace) -> Result<Vec<ThreadSpans>> {
    let tasks = trace.tasks()?;
    let keys: BTreeMap<(Pid, Tid), TaskKey> = tasks
        .iter()
        .map(|task| ((task.pid, task.tid), task.task))
        .collect();
    let mut spans: BTreeMap<TaskKey, Vec<ProgramSpan>> = BTreeMap::new();
    trace.each_span(&mut |row: &SpanRow| {
        if let Some(task) = keys.get(&(row.pid, row.tid)) {
            spans.entry(*task).or_default().push(ProgramSpan {
                begin: row.begin,
                end: row.end,
                trace: None,
            });
        }
    })?;
    let threads = spans.into_iter();
    Ok(threads
        .map(|(task, spans)| ThreadSpans::new(task, spans))
        .collect())
}
