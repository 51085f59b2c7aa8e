//! What the page asks, as it stands in an address: `from=…&to=…&by=…`.

use serde::Deserialize;
use swtch_core::{Level, Nanos, Pid, Reason, TaskKey};

use super::lanes::{Lane, MOST_LANES, MOST_PX, Window};
use super::loaded::Loaded;
use crate::report::{Filter, Moment};

/// Words of all questions; each takes those it knows.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Query {
    from: Option<u64>,
    to: Option<u64>,
    px: Option<u32>,
    lanes: Option<String>,
    bins: Option<u32>,
    row: Option<u32>,
    level: Option<String>,
    task: Option<u32>,
    /// What a row of a report stands for.
    pub by: Option<String>,
    /// Which length a distribution is of.
    pub of: Option<String>,
    /// Words to search for.
    pub q: Option<String>,
    reason: Option<String>,
    pid: Option<String>,
    comm: Option<String>,
    /// The number of rows.
    pub top: Option<usize>,
}

/// A question that cannot be answered, and why.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

type Result<T> = std::result::Result<T, Refusal>;

/// A span of time, since the start of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first moment.
    pub from_ns: u64,
    /// The moment after the last.
    pub to_ns: u64,
}

impl Span {
    /// When a bin begins, of so many of much the same length. The last one ends at `edge(bins, bins)`.
    pub fn edge(self, bin: u32, bins: u32) -> u64 {
        let length = u128::from(self.to_ns - self.from_ns);
        let offset = length * u128::from(bin) / u128::from(bins);
        self.from_ns + u64::try_from(offset).expect("less than the length, which is 64 bits")
    }

    /// The bin that a moment of the span lies in.
    pub fn bin_of(self, at_ns: u64, bins: u32) -> usize {
        let offset = u128::from(at_ns - self.from_ns);
        let bin = offset * u128::from(bins) / u128::from(self.to_ns - self.from_ns);
        usize::try_from(bin).expect("less than the number of bins")
    }
}

impl Query {
    /// The span; all of the trace where nothing is said.
    pub fn span(&self, loaded: &Loaded) -> Result<Span> {
        let span = Span {
            from_ns: self.from.unwrap_or(0),
            // The last switch-out is part of the trace.
            to_ns: self
                .to
                .unwrap_or_else(|| loaded.duration_ns().saturating_add(1)),
        };
        match span.from_ns < span.to_ns {
            true => Ok(span),
            false => Err(Refusal(
                "the span is empty: `to` must be after `from`".into(),
            )),
        }
    }

    /// The part of a picture.
    pub fn window(&self, loaded: &Loaded) -> Result<Window> {
        let span = self.span(loaded)?;
        let px = self.px.unwrap_or(1000);
        if px == 0 || px > MOST_PX {
            return Err(Refusal(format!("`px` must be 1 to {MOST_PX}")));
        }
        Ok(Window { span, px })
    }

    /// The lanes.
    pub fn lanes(&self) -> Result<Vec<Lane>> {
        let words = self.lanes.as_deref().unwrap_or_default().split(',');
        let lanes = words.filter(|word| !word.is_empty()).map(str::parse);
        let lanes: Vec<Lane> = lanes
            .collect::<std::result::Result<_, _>>()
            .map_err(Refusal)?;
        match lanes.len() <= MOST_LANES {
            true => Ok(lanes),
            false => Err(Refusal(format!("at most {MOST_LANES} lanes at once"))),
        }
    }

    /// How many bins a curve has.
    pub fn bins(&self) -> Result<u32> {
        match self.bins.unwrap_or(200) {
            bins @ 1..=MOST_PX => Ok(bins),
            _ => Err(Refusal(format!("`bins` must be 1 to {MOST_PX}"))),
        }
    }

    /// The level; the kernel's where nothing is said.
    pub fn level(&self) -> Result<Level> {
        let word = self.level.as_deref().unwrap_or("os");
        Level::from_word(word).ok_or_else(|| Refusal(format!("`{word}` is no level")))
    }

    /// The number of a row.
    pub fn row(&self) -> Result<usize> {
        let row = self.row.ok_or_else(|| Refusal("`row` is missing".into()))?;
        Ok(usize::try_from(row).expect("at least 32-bit addresses"))
    }

    /// The number of a row of the kernel's level: user-mode rows have no wakers in memory.
    pub fn os_row(&self) -> Result<usize> {
        match self.level()? {
            Level::Os => self.row(),
            Level::User => Err(Refusal("only switches of the kernel are followed".into())),
        }
    }

    /// The task.
    pub fn task(&self) -> Result<TaskKey> {
        let task = self.task.map(TaskKey::new);
        task.ok_or_else(|| Refusal("`task` is missing".into()))
    }

    /// The reason, if one is named.
    pub fn reason(&self) -> Result<Option<Reason>> {
        let word = self.reason.as_deref().filter(|word| !word.is_empty());
        word.map(reason_of).transpose()
    }

    /// The same as the options of `swtch report`.
    pub fn filter(&self) -> Result<Filter> {
        let moment = |ns: Option<u64>| ns.map(|ns| Moment(Nanos::from_ns(ns)));
        let comms = self.comm.iter().filter(|comm| !comm.is_empty());
        Ok(Filter {
            pids: listed(self.pid.as_deref(), pid_of)?,
            comms: comms.cloned().collect(),
            reasons: listed(self.reason.as_deref(), reason_of)?,
            since: moment(self.from),
            until: moment(self.to),
        })
    }
}

/// Words with commas between them.
fn listed<T>(words: Option<&str>, one: impl Fn(&str) -> Result<T>) -> Result<Vec<T>> {
    let words = words.unwrap_or_default().split(',');
    words.filter(|word| !word.is_empty()).map(one).collect()
}

fn reason_of(word: &str) -> Result<Reason> {
    Reason::from_word(word).ok_or_else(|| Refusal(format!("`{word}` is no reason")))
}

fn pid_of(word: &str) -> Result<Pid> {
    let number = word.parse().map(Pid::new);
    number.map_err(|_| Refusal(format!("`{word}` is no process id")))
}
