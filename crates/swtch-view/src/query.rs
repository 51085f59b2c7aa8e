//! The question of the page, parsed from the query of an address: `from=…&to=…&by=…`.

use serde::Deserialize;
use swtch_core::{Level, Nanos, Pid, Reason, TaskKey};
use swtch_report::report::{Asker, Filter, Moment};

use super::lanes::{LaneId, MOST_LANES, MOST_PX, Window};
use super::loaded::Loaded;

/// Parameters of all questions. Each question uses those that it knows.
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
    /// The word for what a row of a report stands for.
    pub by: Option<String>,
    /// The word for the length that a distribution is of.
    pub of: Option<String>,
    /// The text to search for, as typed.
    pub q: Option<String>,
    reason: Option<String>,
    pid: Option<String>,
    comm: Option<String>,
    /// Most rows of the answer; `None` means the default.
    pub top: Option<usize>,
    /// The one who asks.
    #[serde(skip)]
    pub asker: Asker,
}

/// The reason why a question cannot be answered, in words.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct QueryError(pub String);

type Result<T> = std::result::Result<T, QueryError>;

/// A span of time, in ns since the start of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The first moment of the span.
    pub from_ns: u64,
    /// The first moment after the span.
    pub to_ns: u64,
}

impl Span {
    /// The begin of a bin, if the span is cut into `bins` of nearly equal length. The last one ends
    /// at `edge(bins, bins)`.
    pub fn edge(self, bin: u32, bins: u32) -> u64 {
        let length = u128::from(self.to_ns - self.from_ns);
        let offset = length * u128::from(bin) / u128::from(bins);
        self.from_ns + u64::try_from(offset).expect("less than the length, which is 64 bits")
    }

    /// The bin in which a moment of the span lies.
    pub fn bin_of(self, at_ns: u64, bins: u32) -> usize {
        let offset = u128::from(at_ns - self.from_ns);
        let bin = offset * u128::from(bins) / u128::from(self.to_ns - self.from_ns);
        usize::try_from(bin).expect("less than the number of bins")
    }
}

impl Query {
    /// The span that is asked for; the whole trace by default.
    pub fn span(&self, loaded: &Loaded) -> Result<Span> {
        let span = Span {
            from_ns: self.from.unwrap_or(0),
            // The end is one ns later, so that the last switch-out is part of the span.
            to_ns: self
                .to
                .unwrap_or_else(|| loaded.duration_ns().saturating_add(1)),
        };
        match span.from_ns < span.to_ns {
            true => Ok(span),
            false => Err(QueryError(
                "the span is empty: `to` must be after `from`".into(),
            )),
        }
    }

    /// The span and the number of pixels of a picture.
    pub fn window(&self, loaded: &Loaded) -> Result<Window> {
        let span = self.span(loaded)?;
        let px = self.px.unwrap_or(1000);
        if px == 0 || px > MOST_PX {
            return Err(QueryError(format!("`px` must be 1 to {MOST_PX}")));
        }
        Ok(Window { span, px })
    }

    /// The lanes that are asked for, at most [`MOST_LANES`].
    pub fn lanes(&self) -> Result<Vec<LaneId>> {
        let words = self.lanes.as_deref().unwrap_or_default().split(',');
        let lanes = words.filter(|word| !word.is_empty()).map(str::parse);
        let lanes: Vec<LaneId> = lanes
            .collect::<std::result::Result<_, _>>()
            .map_err(QueryError)?;
        match lanes.len() <= MOST_LANES {
            true => Ok(lanes),
            false => Err(QueryError(format!("at most {MOST_LANES} lanes at once"))),
        }
    }

    /// The number of bins of a curve; 200 by default.
    pub fn bins(&self) -> Result<u32> {
        match self.bins.unwrap_or(200) {
            bins @ 1..=MOST_PX => Ok(bins),
            _ => Err(QueryError(format!("`bins` must be 1 to {MOST_PX}"))),
        }
    }

    /// The level that is asked for; the kernel's by default.
    pub fn level(&self) -> Result<Level> {
        let word = self.level.as_deref().unwrap_or("os");
        Level::from_word(word).ok_or_else(|| QueryError(format!("`{word}` is no level")))
    }

    /// The number of a row; an error if it is missing.
    pub fn row(&self) -> Result<u32> {
        self.row
            .ok_or_else(|| QueryError("`row` is missing".into()))
    }

    /// The number of a row of the kernel's level. User-mode rows have no wakers in memory.
    pub fn os_row(&self) -> Result<u32> {
        match self.level()? {
            Level::Os => self.row(),
            Level::User => Err(QueryError(
                "only switches of the kernel are followed".into(),
            )),
        }
    }

    /// The key of a task; an error if it is missing.
    pub fn task(&self) -> Result<TaskKey> {
        let task = self.task.map(TaskKey::new);
        task.ok_or_else(|| QueryError("`task` is missing".into()))
    }

    /// The reason; `None` if none is named.
    pub fn reason(&self) -> Result<Option<Reason>> {
        let word = self.reason.as_deref().filter(|word| !word.is_empty());
        word.map(reason_of).transpose()
    }

    /// The filter, with the meaning of the options of `swtch report`.
    pub fn filter(&self) -> Result<Filter> {
        let moment = |ns: Option<u64>| ns.map(|ns| Moment(Nanos::from_ns(ns)));
        let comms = self.comm.iter().filter(|comm| !comm.is_empty());
        Ok(Filter {
            pids: listed(self.pid.as_deref(), pid_of)?,
            comms: comms.cloned().collect(),
            reasons: listed(self.reason.as_deref(), reason_of)?,
            since: moment(self.from),
            until: moment(self.to),
            min_wait: None,
            only_span: None,
            asker: self.asker.clone(),
        })
    }
}

/// Parses words that are separated by commas.
fn listed<T>(words: Option<&str>, one: impl Fn(&str) -> Result<T>) -> Result<Vec<T>> {
    let words = words.unwrap_or_default().split(',');
    words.filter(|word| !word.is_empty()).map(one).collect()
}

fn reason_of(word: &str) -> Result<Reason> {
    Reason::from_word(word).ok_or_else(|| QueryError(format!("`{word}` is no reason")))
}

fn pid_of(word: &str) -> Result<Pid> {
    let number = word.parse().map(Pid::new);
    number.map_err(|_| QueryError(format!("`{word}` is no process id")))
}
