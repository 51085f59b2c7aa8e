//! `api/rate` and `api/distribution`: how often tasks switch, and how long runs and waits last.

use serde_json::{Value, json};
use swtch_core::{Distribution, Nanos, Reason};
use swtch_report::report::Filter;

use super::loaded::Loaded;
use super::query::{QueryError, Span};
use super::timeline::{TableRow, Track};

/// Buckets of a drawn distribution between a length and its double.
const BUCKETS_PER_DOUBLING: u32 = 4;

/// Switches of the kernel by reason and bin of time.
pub fn counts(loaded: &Loaded, tracks: &[Track], span: Span, bins: u32) -> Vec<Vec<u32>> {
    let width = usize::try_from(bins).expect("at least 32-bit addresses");
    let mut counts = vec![vec![0_u32; width]; Reason::ALL.len()];
    loaded.each_row(tracks, span, |row| {
        let bin = span.bin_of(row.ended_ns, bins);
        counts[row.reason.index()][bin] += 1;
    });
    counts
}

/// Switches by bin of time and reason, as reports count them.
pub fn rate(loaded: &Loaded, span: Span, bins: u32) -> Value {
    let counts = counts(loaded, &loaded.tracks(&Filter::default()), span, bins);
    let seen = counts.iter().zip(Reason::ALL);
    let seen = seen.filter(|(counts, _)| counts.iter().any(|count| *count > 0));
    json!({
        "from_ns": span.from_ns,
        "to_ns": span.to_ns,
        "bin_ns": as_float(span.to_ns - span.from_ns) / f64::from(bins),
        "bins": bins,
        "reasons": seen
            .map(|(counts, reason)| json!({"id": reason.index(), "counts": counts}))
            .collect::<Vec<_>>(),
    })
}

/// One of the lengths that a row has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Length of the row's run.
    Ran,
    /// Length of the wait before the run.
    Off,
    /// Blocked time: the part of the wait before the wakeup.
    Blocked,
    /// Run-queue time: the part of the wait after the wakeup.
    Runq,
}

impl Length {
    /// The length of a row; `None` if it does not have it.
    fn of(self, row: &TableRow) -> Option<u64> {
        let TableRow { off, runq, .. } = *row;
        match self {
            Self::Ran => row.ran,
            Self::Off => off.or(runq),
            // A task that stayed runnable has no blocked time, rather than one of 0 ns.
            Self::Blocked => Some(off?.saturating_sub(runq?)).filter(|ns| *ns > 0),
            Self::Runq => runq,
        }
    }

    /// The reason under which the length counts.
    fn reason(self, row: &TableRow) -> Reason {
        match self {
            Self::Ran => row.reason,
            _ => row.off_reason.unwrap_or(Reason::Unknown),
        }
    }
}

/// The lengths of the rows of some tasks, for all reasons or for one, and the shortest length.
/// Reports use the same distribution, so the page and the command line have the same percentiles.
pub fn lengths(
    loaded: &Loaded,
    tracks: &[Track],
    span: Span,
    of: Length,
    reason: Option<Reason>,
) -> (Distribution, Option<u64>) {
    let mut lengths = Distribution::default();
    let mut shortest = None;
    loaded.each_row(tracks, span, |row| {
        let is_asked = reason.is_none_or(|reason| reason == of.reason(row));
        if let Some(ns) = of.of(row).filter(|_| is_asked) {
            lengths.record(Nanos::from_ns(ns));
            shortest = Some(shortest.map_or(ns, |least: u64| least.min(ns)));
        }
    });
    (lengths, shortest)
}

/// Returns the distribution of the lengths of runs or waits.
///
/// # Errors
/// When the question cannot be understood.
pub fn distribution(
    loaded: &Loaded,
    span: Span,
    of: &str,
    reason: Option<Reason>,
) -> Result<Value, QueryError> {
    let of_what = match of {
        "ran" => Length::Ran,
        "off" => Length::Off,
        "blocked" => Length::Blocked,
        "runq" => Length::Runq,
        _ => {
            return Err(QueryError(format!(
                "`of` is ran, off, blocked or runq, not `{of}`"
            )));
        }
    };
    let tracks = loaded.tracks(&Filter::default());
    let (lengths, shortest) = lengths(loaded, &tracks, span, of_what, reason);
    let percentile = |percent| lengths.percentile(percent).map(Nanos::as_ns);
    Ok(json!({
        "of": of,
        "count": lengths.count(),
        "sum_ns": lengths.sum().as_ns(),
        "min_ns": shortest,
        "max_ns": lengths.longest().map(Nanos::as_ns),
        "p50_ns": percentile(50.0),
        "p90_ns": percentile(90.0),
        "p99_ns": percentile(99.0),
        "buckets": buckets(&lengths),
    }))
}

/// Number of lengths in each bucket; the edges of the buckets grow by a constant factor.
fn buckets(lengths: &Distribution) -> Vec<Value> {
    let edge = |step: i32| 2_f64.powf(f64::from(step) / f64::from(BUCKETS_PER_DOUBLING));
    let step_of = |ns: u64| {
        let doublings = as_float(ns.max(1)).log2() * f64::from(BUCKETS_PER_DOUBLING);
        #[expect(clippy::cast_possible_truncation, reason = "at most 64 doublings")]
        let step = doublings.floor() as i32;
        step
    };
    let mut counts = std::collections::BTreeMap::<i32, u64>::new();
    for (length, count) in lengths.recorded() {
        *counts.entry(step_of(length.as_ns())).or_default() += count;
    }
    let shown = counts.iter().map(
        |(step, count)| json!({"from_ns": edge(*step), "to_ns": edge(step + 1), "count": count}),
    );
    shown.collect()
}

#[expect(clippy::cast_precision_loss, reason = "for a picture")]
const fn as_float(number: u64) -> f64 {
    number as f64
}
