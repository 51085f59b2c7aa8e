//! `swtch explain`: records, keeps the trace, and says why threads left the CPU. Where recording is
//! not possible, the kernel's own counters give a first answer, which says that it is no recording.

use std::io::stdout;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use swtch_capture::probe::Probe;
use swtch_capture::require_host_pids;
use swtch_core::cost::PriceList;
use swtch_cost::FoundPrices;
use swtch_host::ability;
use swtch_host::ability::Obstacle;
use swtch_output::caller::Caller;
use swtch_output::format::Format;
use swtch_output::message;
use swtch_output::text;
use swtch_record::counters;
use swtch_record::record::{self, AfterRecording, RecordRequest, RecordingResult, Target};
use swtch_report::opening;
use swtch_report::prices;
use swtch_report::report::{self, By, ExplainAsked, Filter};
use swtch_store::Trace;

use crate::cli::AskedRecording;

/// The choice whether the page says what the switches cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BillChoice {
    /// It does. After a recording, prices that are missing are measured.
    With,
    Without,
}

/// The form and the extent of the answer.
#[derive(Clone, Copy, Debug)]
pub struct AnswerForm {
    pub format: Format,
    /// What the table shows.
    pub asked: ExplainAsked,
    /// The choice whether the answer says what the switches cost.
    pub bill: BillChoice,
}

/// Explains a trace that was recorded before, and returns the exit code 0. If the saved prices
/// cannot be read, it says so and explains without them.
///
/// # Errors
/// When the trace cannot be read.
pub fn again(path: &Path, answer: AnswerForm) -> Result<u8> {
    let trace = opening::open(path)?;
    let prices = match answer.bill {
        BillChoice::With => or_no_bill(prices::saved()),
        BillChoice::Without => None,
    };
    tell(&trace, answer, prices.as_ref())?;
    Ok(0)
}

/// Records and explains, and returns the command's exit code.
///
/// # Errors
/// When neither a recording nor a first answer can be had.
pub fn run(recording: &AskedRecording, answer: AnswerForm) -> Result<u8> {
    match recording {
        AskedRecording::Trace(request) => record_and_explain(request, answer),
        AskedRecording::Counters { target, duration } => {
            count(target, *duration, answer.format, &obstacles_here())
        }
        AskedRecording::Summary(_) => unreachable!("a summary is its own explanation"),
    }
}

fn record_and_explain(request: &RecordRequest, answer: AnswerForm) -> Result<u8> {
    let prices = match answer.bill {
        BillChoice::With => Some(swtch_cost::find_prices(Caller::of_sudo()?.as_ref())),
        BillChoice::Without => None,
    };
    let afterwards = match &prices {
        Some(found) if found.must_be_measured() => AfterRecording::MeasuresPrices,
        _ => AfterRecording::Tells,
    };
    match record::run(request, afterwards) {
        Ok(recorded) => explain(&recorded, answer, prices),
        Err(error) if record::is_refused(&error) && request.capture.target.is_of_tasks() => {
            let cause = text::escaped(&format!("{error:#}")).into_owned();
            message!("swtch: no recording here: {cause}");
            crate::tell_verdict(&error);
            let (target, duration) = (&request.capture.target, request.duration);
            count(target, duration, answer.format, &obstacles_of(&error))
        }
        Err(error) => Err(error),
    }
}

fn explain(
    recorded: &RecordingResult,
    answer: AnswerForm,
    prices: Option<FoundPrices>,
) -> Result<u8> {
    if !recorded.is_there {
        recorded.tell_path();
        return Ok(recorded.exit_code());
    }
    let trace = opening::open_in(&recorded.directory)?;
    let prices = prices.and_then(prices_of_here);
    tell(&trace, answer, prices.as_ref())?;
    recorded.tell_path();
    Ok(recorded.exit_code())
}

fn tell(trace: &Trace, answer: AnswerForm, prices: Option<&PriceList>) -> Result<()> {
    let request = report::ReportRequest {
        by: By::Reason,
        format: answer.format,
        filter: Filter::default(),
        top: None,
    };
    if let Some(list) = prices {
        prices::warn(trace, list);
    }
    report::explain(trace, &request, prices, answer.asked, &mut stdout())
}

/// The prices of this machine. A failure is reported, and the recording is explained without a
/// bill.
fn prices_of_here(found: FoundPrices) -> Option<PriceList> {
    or_no_bill(swtch_cost::prices_for_explain(found))
}

fn or_no_bill(prices: Result<Option<PriceList>>) -> Option<PriceList> {
    prices.unwrap_or_else(|error| {
        message!("swtch: no bill: {}", text::escaped(&format!("{error:#}")));
        None
    })
}

/// The causes for which a recording was refused. If the machine as a whole allows recording, the
/// cause is the refusal itself.
fn obstacles_of(refusal: &anyhow::Error) -> Vec<Obstacle> {
    let obstacles = ability::obstacles(&Probe::take());
    if !obstacles.is_empty() {
        return obstacles;
    }
    let advice = record::capture_advice(refusal);
    vec![Obstacle {
        why: format!("{refusal:#}"),
        remedies: advice.map(str::to_owned).into_iter().collect(),
    }]
}

/// Lists what stands in the way of recording by eBPF programs, where nothing was tried.
fn obstacles_here() -> Vec<Obstacle> {
    match require_host_pids() {
        Err(refusal) => obstacles_of(&refusal.into()),
        Ok(()) => ability::obstacles(&Probe::take()),
    }
}

fn count(
    target: &Target,
    limit: Option<Duration>,
    format: Format,
    obstacles: &[Obstacle],
) -> Result<u8> {
    match target {
        Target::Command(words) => {
            counters::explain_command(words, format, obstacles, &mut stdout())
        }
        Target::Processes { pids, children } => {
            let whose = (pids.as_slice(), *children);
            counters::explain_processes(whose, limit, format, obstacles, &mut stdout())?;
            Ok(0)
        }
        Target::Cgroups(_) | Target::All => unreachable!("only tasks have counters of their own"),
    }
}
