//! `swtch diff A B`: what changed between two traces, or between two sets of them.
//!
//! ```text
//! traces of A ─measure─▶ figures of each run ─┐
//! traces of B ─measure─▶ figures of each run ─┼─▶ comparable: is anything else different?
//!                                             ├─▶ judge: which figures surely changed?
//!                                             └─▶ answer: table, JSON, CSV, parts of a page
//! ```
//!
//! - `figure` names the figures and says which direction is worse.
//! - `measure` reads one trace in one pass.
//! - `comparable` finds what could explain a change by itself.
//! - `judge` chooses the figures and compares them, by [`swtch_core::compare`].
//! - `answer` writes what was found; `page` gives the same to a page, and the flame graph of both
//!   sides (`flame`).
//!
//! A run is a trace. With several on each side their spread is the noise; a single pair is judged
//! by stretches of its own time, and the answer says how weak that is.

mod answer;
mod comparable;
mod figure;
mod flame;
mod judge;
mod measure;
mod page;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use anyhow::{Context as _, Result, bail, ensure};
use swtch_core::cost::{Billing, PriceList};
use swtch_core::{Nanos, Timestamp};
use swtch_output::format::Format;
use swtch_output::message;
use swtch_output::text::escaped;
use swtch_store::{Meta, RecordingState};

use crate::opening;
use crate::report::{Filter, warnings};

pub use answer::DiffAnswer;
pub use flame::{FrameChange, FrameDiff, time_words};
pub use judge::Per;
pub use page::{DiffFlames, DiffPageParts};

use judge::Judgement;
use measure::{MeasuredRun, RunBlocks, measure};

/// A comparison that a person asked for.
#[derive(Debug)]
pub struct DiffRequest {
    /// The traces of A, before.
    pub a: Vec<PathBuf>,
    /// The traces of B, after.
    pub b: Vec<PathBuf>,
    /// The switches that count.
    pub filter: Filter,
    /// The unit by which amounts are divided; without, spans where all traces have some, else seconds.
    pub per: Option<Per>,
    /// The prices of switches; without, no price is compared.
    pub prices: Option<PriceList>,
    /// Fail if a figure is worse by more than this, in percent.
    pub fail_over_pct: Option<f64>,
    /// The format on stdout.
    pub format: Format,
    /// Show the figures that did not change, too.
    pub shows_all: bool,
}

/// The outcome of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiffOutcome {
    /// No figure is worse by more than the limit, or no limit was set.
    Passed,
    /// A figure is.
    Regressed,
}

/// Compares the traces.
///
/// # Errors
///
/// When a trace cannot be read or has no length, or when one recording is given twice.
pub fn compare(request: &DiffRequest) -> Result<DiffAnswer<'_>> {
    let billing = request.prices.as_ref().map(Billing::new);
    let is_pair = request.a.len() == 1 && request.b.len() == 1;
    let blocks = if is_pair {
        RunBlocks::Many
    } else {
        RunBlocks::Whole
    };
    let read = |paths: &[PathBuf]| -> Result<Vec<MeasuredRun>> {
        let runs = paths.iter();
        runs.map(|path| read(path, request, billing.as_ref(), blocks))
            .collect()
    };
    let (mut a, mut b) = (read(&request.a)?, read(&request.b)?);
    refuse_repeated(&a, &b)?;
    let (per, span) = unit_of(request.per, &mut a, &mut b)?;
    Ok(DiffAnswer {
        judgement: Judgement::of(&a, &b, per),
        differences: comparable::differences(&a, &b, per),
        a,
        b,
        per,
        span,
        request,
    })
}

/// The unit by which amounts are divided. Of spans, those count of which all runs have some; of several kinds, the one
/// with the most.
fn unit_of(
    asked: Option<Per>,
    a: &mut [MeasuredRun],
    b: &mut [MeasuredRun],
) -> Result<(Per, Option<Rc<str>>)> {
    if asked.is_some_and(|per| per != Per::Span) {
        return Ok((asked.unwrap_or(Per::Second), None));
    }
    let runs = || a.iter().chain(b.iter());
    let count = |kind: &Rc<str>| -> f64 {
        let counts = runs().filter_map(|run| run.spans.get(kind));
        counts.flatten().sum()
    };
    let kinds = runs().next().into_iter().flat_map(|run| run.spans.keys());
    let has = |run: &MeasuredRun, kind| {
        let counts = run.spans.get(kind);
        counts.is_some_and(|counts| counts.iter().sum::<f64>() > 0.0)
    };
    let in_all = kinds.filter(|kind| runs().all(|run| has(run, *kind)));
    let most = in_all.max_by(|one, other| count(one).total_cmp(&count(other)));
    let Some(kind) = most.cloned() else {
        ensure!(
            asked.is_none(),
            "not every trace has spans of one kind: record each with the same --span, or compare by --per turn or second"
        );
        return Ok((Per::Second, None));
    };
    for run in a.iter_mut().chain(b) {
        run.units = run.spans.remove(&kind).unwrap_or_default();
    }
    Ok((Per::Span, Some(kind)))
}

fn read(
    path: &Path,
    request: &DiffRequest,
    billing: Option<&Billing>,
    blocks: RunBlocks,
) -> Result<MeasuredRun> {
    let trace = opening::open(path)?;
    if let Some(list) = &request.prices {
        for warning in warnings(&trace, list) {
            message!("swtch: {}", escaped(&warning));
        }
    }
    ensure!(
        request.per != Some(Per::Turn) || request.filter.reasons.is_empty(),
        "--per turn needs the switches for all reasons, of which turns consist: leave out --reason"
    );
    let run = measure(&trace, &request.filter, billing, (blocks, request.per))
        .with_context(|| format!("comparing {}", path.display()))?;
    ensure!(
        run.length > Nanos::ZERO,
        "{} has no length, so it has no rates: it was stopped before the first switch; record it again",
        path.display()
    );
    ensure!(
        request.per != Some(Per::Turn) || run.all_units() > 0.0,
        "{} has no turns: none of its threads was seen to wait for messages three times, or goroutines of Go were read there; --per second or \
         run compares",
        path.display()
    );
    for line in &run.missing {
        let line = format!("{}: {line}", path.display());
        message!("swtch: note: {}", escaped(&line));
    }
    if trace.meta().state == RecordingState::Recording {
        let line = format!(
            "{} is still being recorded, or its recorder was killed: it is compared as far as it has come",
            path.display()
        );
        message!("swtch: warning: {}", escaped(&line));
    }
    Ok(run)
}

/// Refuses a recording that is given twice: beside itself it would look like a second run that
/// agrees perfectly.
fn refuse_repeated(a: &[MeasuredRun], b: &[MeasuredRun]) -> Result<()> {
    let mut seen: HashMap<RecordingMark, (&Path, char)> = HashMap::new();
    let sides = a
        .iter()
        .map(|run| (run, 'A'))
        .chain(b.iter().map(|run| (run, 'B')));
    for (run, side) in sides {
        let Some((other, of)) = seen.insert(mark(&run.meta), (&run.path, side)) else {
            continue;
        };
        let (one, other) = (run.path.display(), other.display());
        if of == side {
            bail!(
                "{other} and {one} are the same recording, and both are on side {side}: give each run once"
            );
        } else {
            bail!(
                "{other} is on side {of}, and the same recording is on side {side} as {one}: give each run to one side"
            );
        }
    }
    Ok(())
}

/// A mark that two recordings never share, but a copy does: where and when it began, and of what.
type RecordingMark = (String, Timestamp, u64, String);

fn mark(meta: &Meta) -> RecordingMark {
    (
        meta.host.hostname.clone(),
        Timestamp::from_ns(meta.start_ns),
        meta.clock.realtime_ns,
        meta.command.join(" ") + &meta.scope,
    )
}
