//! The program `swtch`: records context switches on Linux and says why they happened. Each command
//! of the command line is one pipeline through the library crates.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stderr))]

mod built_for;
mod cli;
mod doctor;
mod explain;
#[cfg(test)]
mod fuzz;
mod manual;
mod python;
mod symbols;
mod user_switch;
mod workload;

use std::io::stdout;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser as _;
use nix::sys::prctl::set_name;
use swtch_capture::LaunchError;
use swtch_capture::limits::{LimitNamingAllocator, limit_behind, live_within_limits};
use swtch_capture::signals::{stop_on_signals, wait_for_children};

use swtch_live::{agent, fiber, summary, top};
use swtch_output::destination::check_directory;
use swtch_output::exit_code::{CHECK_FAILED, FAILED};
use swtch_output::message;
use swtch_output::text;
use swtch_record::{dump, record};
use swtch_report::report::{ExplainAsked, Extent};
use swtch_report::{export, import, opening, prices, report};
use swtch_view::page;

use cli::{AskedRecording, Cli, Question, Verb};
use explain::{AnswerForm, BillChoice};

#[global_allocator]
static ALLOCATOR: LimitNamingAllocator = LimitNamingAllocator;

fn main() -> ExitCode {
    // Processes that this program starts of itself, by /proc/self/exe, would be called "exe".
    set_name(c"swtch").expect("a short name is taken");
    wait_for_children();
    ExitCode::from(match live_within_limits() {
        Ok(()) => parse_and_run(),
        Err(error) => tell(&error.into()),
    })
}

/// A function of its own: the stack that it takes must not be part of `main`'s.
#[inline(never)]
fn parse_and_run() -> u8 {
    run(Cli::parse()).unwrap_or_else(|error| tell(&error))
}

/// Runs the command and returns its exit code.
fn run(cli: Cli) -> Result<u8> {
    match cli.verb {
        Verb::Record(words) => match words.to_recording()? {
            AskedRecording::Trace(request) => record::run_and_tell(&request),
            AskedRecording::Summary(request) => summary::run(&request),
            AskedRecording::Counters { .. } => unreachable!("counters make no recording"),
        },
        Verb::Explain(words) => {
            let bill = if words.no_bill {
                BillChoice::Without
            } else {
                BillChoice::With
            };
            let answer = AnswerForm {
                format: words.format,
                asked: ExplainAsked {
                    extent: match words.full {
                        true => Extent::Full,
                        false => Extent::Screen(text::page_width()),
                    },
                    units: words.unit,
                },
                bill,
            };
            match &words.trace {
                Some(trace) => explain::again(trace, answer),
                None => explain::run(&words.to_recording()?, answer),
            }
        }
        Verb::Dump(words) => dump::run(&words.to_request()),
        Verb::Report(words) => report(&words),
        Verb::Diff(words) => diff(&words),
        Verb::Export(words) => export::run(&words.to_request(), stop_on_signals),
        Verb::Import(words) => import::run(&words.to_request()),
        Verb::Cost(words) => match (
            words.compare.as_deref(),
            words.program.to_request(words.format)?,
        ) {
            (_, Some(request)) => swtch_cost::of::run(&request),
            (Some([before, after]), _) => swtch_cost::run_compare(before, after, words.format),
            _ => swtch_cost::run(&words.to_request()?),
        },
        Verb::View(words) => swtch_view::run(&words.to_request()),
        Verb::Fiber(words) => fiber::run(&words.to_request()),
        Verb::Agent(words) => agent::run(&words.to_request()?),
        Verb::Top(words) => top::run(&words.to_request()?),
        Verb::Lab(words) => swtch_lab::run(words.verb.as_ref()),
        Verb::LabPlay(words) => swtch_lab::lab_play(&words.load, &words.result),
        Verb::LabLevels(words) => swtch_lab::lab_levels(&words.load, &words.result),
        Verb::Lake(asked) => Err(python::answer(&asked.words)),
        Verb::Completions(words) => manual::complete(words.shell, &mut stdout()),
        Verb::ManPages(words) => manual::write_pages(&words.directory),
        Verb::FindSchedulers => record::find_schedulers(),
        Verb::FindContexts => record::find_contexts(),
        Verb::ReadStacks => swtch_record::stacks::read_stacks(),
        Verb::Doctor(words) => {
            let extent = match words.full {
                true => doctor::DoctorExtent::All,
                false => doctor::DoctorExtent::Main,
            };
            doctor::run(words.format, extent, &mut stdout()).map(|can| u8::from(!can))
        }
        Verb::Workload(words) => workload::run(words.name.as_deref(), words.count, words.quiet),
    }
}

fn report(words: &cli::Report) -> Result<u8> {
    let question = words.question()?;
    if let Some(file) = &words.output {
        write_report(words, file)?;
        return Ok(0);
    }
    let mut trace = opening::open(&words.trace)?;
    if let Some(directory) = &words.symbols {
        symbols::show(&mut trace, directory)?;
    }
    let request = report::ReportRequest {
        by: match question {
            Question::By(by) => by,
            Question::Page | Question::Bill(_) => report::By::Reason,
        },
        format: words.format,
        filter: words.to_filter(),
        top: words.top,
    };
    match question {
        Question::Page => {
            report::explain(&trace, &request, None, Extent::Full, &mut stdout())?;
        }
        Question::By(_) => report::report(&trace, &request, &mut stdout())?,
        Question::Bill(by) => {
            let list = prices::chosen(words.prices.as_deref())?;
            prices::warn(&trace, &list);
            report::bill(&trace, by, &request, &list, &mut stdout())?;
        }
    }
    Ok(0)
}

/// Writes a page or pictures, by the ending of the file's name.
fn write_report(words: &cli::Report, file: &Path) -> Result<()> {
    let filter = words.chosen.to_filter();
    if !is_page(file) {
        ensure!(
            words.prices.is_none(),
            "pictures show no prices: leave out --prices, or write a page (-o FILE.html)"
        );
        return page::plot(&words.trace, &filter, file);
    }
    let prices = prices::chosen_or_saved(words.prices.as_deref())?;
    page::write(
        &words.trace,
        &filter,
        prices.as_ref(),
        file,
        stop_on_signals()?,
    )
}

fn is_page(file: &Path) -> bool {
    file.extension().is_some_and(|ending| ending == "html")
}

/// Compares traces. A regression that was asked for is no error, and has an exit code of its own.
fn diff(words: &cli::Diff) -> Result<u8> {
    let (a, b) = words.sides()?;
    let prices = prices::chosen_or_saved(words.prices.as_deref())?;
    let request = report::DiffRequest {
        a,
        b,
        filter: words.chosen.to_filter(),
        per: words.per,
        prices,
        fail_over_pct: words.fail_over,
        format: words.format,
        shows_all: words.full,
    };
    if let Some(file) = &words.output {
        ensure!(
            is_page(file),
            "{}: the name of a page ends in .html",
            file.display()
        );
        check_directory(file)?;
    }
    let answer = report::compare(&request)?;
    answer.write(&mut stdout())?;
    if let Some(file) = &words.output {
        page::comparison::write(&answer, &request.filter, file, stop_on_signals()?)?;
    }
    Ok(match answer.outcome() {
        report::DiffOutcome::Passed => 0,
        report::DiffOutcome::Regressed => CHECK_FAILED,
    })
}

/// Shows the last lines of the kernel's verifier if it refused a program.
fn tell_verdict(error: &anyhow::Error) {
    let Some(error) = error.downcast_ref::<swtch_capture::Error>() else {
        return;
    };
    for line in error.verdict() {
        message!("  | {}", text::escaped(&line.replace('\t', " ")));
    }
}

/// Reports an error on stderr, with advice if there is some, and returns the exit code.
fn tell(error: &anyhow::Error) -> u8 {
    match error.downcast_ref::<swtch_lab::LoadFileError>() {
        // The message shows a line of the file below itself, so it has line breaks.
        Some(mistake) => message!("error: {}", text::escaped_lines(&mistake.to_string())),
        None => message!("error: {}", text::escaped(&format!("{error:#}"))),
    }
    if let Some(limit) = limit_behind(&format!("{error:#}")) {
        message!("  {limit}");
    }
    tell_verdict(error);
    let of_capture = record::capture_advice(error);
    let of_store = error
        .downcast_ref::<swtch_store::Error>()
        .and_then(|e| e.advice());
    let of_fiber = error
        .downcast_ref::<swtch_observe::Error>()
        .and_then(|e| e.advice());
    let of_opening = error.downcast_ref().map(opening::NoTrace::advice);
    if let Some(advice) = of_capture.or(of_store).or(of_fiber).or(of_opening) {
        message!("  {}", text::escaped(advice));
    }
    error
        .downcast_ref::<LaunchError>()
        .map_or(FAILED, LaunchError::exit_code)
}
