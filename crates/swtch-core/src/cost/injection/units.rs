//! Units of work, and the drawn moments that they hold.

use std::collections::{BTreeMap, VecDeque};

use crate::ids::{CpuId, TaskKey};
use crate::spans::{ProgramSpan, ThreadSpans};
use crate::switch::Switch;
use crate::units::{Nanos, Timestamp};

use super::{InjectedMoment, Injection};

/// What bounds a unit of work.
#[derive(Clone, Debug)]
pub enum UnitBounds {
    /// A unit is what a thread does from one block to the next: for servers, what it does for the messages that it has.
    Blocks,
    /// A unit is a span that the program tells, or so many of them that follow each other. The units of a thread, one
    /// after the other.
    Spans(BTreeMap<TaskKey, VecDeque<ProgramSpan>>),
}

/// The shortest mean unit: an act takes some ten microseconds to come, and shorter ones would have ended by then.
const SHORTEST_UNIT: Nanos = Nanos::from_ns(200_000);

impl UnitBounds {
    /// Units of spans, each of as many as are long enough together: the work of a fixed number of requests. Also returns
    /// that number.
    pub fn of_spans(threads: impl IntoIterator<Item = ThreadSpans>) -> (Self, usize) {
        let threads: Vec<ThreadSpans> = threads.into_iter().collect();
        let all = || threads.iter().flat_map(ThreadSpans::outermost);
        let length: u64 = all().map(|span| span.length().as_ns()).sum();
        let count = all().count();
        let mean = length / u64::try_from(count).unwrap_or(1).max(1);
        let in_unit = SHORTEST_UNIT.as_ns().div_ceil(mean.max(1));
        let in_unit = usize::try_from(in_unit)
            .unwrap_or(usize::MAX)
            .min(count.max(1));
        let unit = |spans: &[ProgramSpan]| ProgramSpan {
            end: spans[spans.len() - 1].end,
            ..spans[0]
        };
        let units = threads.iter().map(|thread| {
            let units = thread.outermost().chunks_exact(in_unit).map(unit);
            (thread.task(), units.collect())
        });
        (Self::Spans(units.collect()), in_unit)
    }
}

/// The unit of work that holds a drawn moment, and was open when the act came.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnitResponse {
    /// What was drawn for the moment.
    pub injection: Injection,
    /// CPU time of the whole unit, in ns, without what the hypervisor gave to others.
    pub cpu_ns: f64,
    /// CPU time of the unit before the moment, in ns.
    pub before_ns: f64,
}

/// Finds, for each drawn moment, the unit of work that holds it. Rows come in the order of time.
#[derive(Debug)]
pub struct UnitsAtMoments {
    /// The moments that no row has reached yet, by CPU.
    ahead: BTreeMap<CpuId, VecDeque<InjectedMoment>>,
    bounds: UnitBounds,
    /// Of each thread: the unit that is open. `None` until its begin is seen.
    open: BTreeMap<TaskKey, Option<OpenUnit>>,
    found: FoundUnits,
    ran: Nanos,
}

/// The units that have ended.
#[derive(Debug, Default)]
struct FoundUnits {
    units: u64,
    responses: Vec<UnitResponse>,
    /// How long the last act took to come that came in time.
    delay: Option<Nanos>,
    /// The number of moments whose units had ended when the act came.
    late: u64,
}

/// A unit of which the end is not seen yet.
#[derive(Debug, Default)]
struct OpenUnit {
    ran: Nanos,
    /// The moments that it holds, and its CPU time before each.
    holds: Vec<(InjectedMoment, Nanos)>,
}

impl UnitsAtMoments {
    /// Looks for these moments, which come in the order of time.
    pub fn new(moments: &[InjectedMoment], bounds: UnitBounds) -> Self {
        let mut ahead: BTreeMap<CpuId, VecDeque<InjectedMoment>> = BTreeMap::new();
        for moment in moments {
            ahead.entry(moment.cpu).or_default().push_back(*moment);
        }
        Self {
            ahead,
            bounds,
            open: BTreeMap::new(),
            found: FoundUnits::default(),
            ran: Nanos::ZERO,
        }
    }

    /// Adds a run of the program.
    pub fn add(&mut self, row: &Switch) {
        let unit = self.open.entry(row.task).or_insert(None);
        let Some(ran) = row.ran else {
            // Its begin was not seen, and so its unit is not known whole.
            *unit = None;
            return;
        };
        self.ran += ran;
        let begin = row.ts.before(ran);
        let run = RunWithMoments {
            begin,
            end: row.ts,
            stolen: row.stolen.min(ran),
            moments: self.ahead.get_mut(&row.cpu).map_or_else(Vec::new, |ahead| {
                taken_before(ahead, row.ts)
                    .filter(|moment| moment.at >= begin)
                    .collect()
            }),
        };
        match &mut self.bounds {
            UnitBounds::Blocks => {
                if let Some(unit) = unit {
                    unit.add(&run, run.begin, run.end);
                }
                if !row.evidence.left_runnable() {
                    // The first of a thread is left out: it may have begun before the recording.
                    self.found.close(unit.replace(OpenUnit::default()), row.ts);
                }
            }
            UnitBounds::Spans(spans) => {
                let spans = spans.entry(row.task).or_default();
                while let Some(span) = spans.front().filter(|span| span.begin < run.end) {
                    if span.begin >= run.begin {
                        *unit = Some(OpenUnit::default());
                    }
                    if let Some(unit) = unit {
                        unit.add(&run, span.begin.max(run.begin), span.end.min(run.end));
                    }
                    if span.end > run.end {
                        break;
                    }
                    self.found.close(unit.take(), span.end);
                    spans.pop_front();
                }
            }
        }
    }

    /// What the moments have met.
    pub fn responses(&self) -> &[UnitResponse] {
        &self.found.responses
    }

    /// The number of moments that met a unit which had ended when the act came, or would have come.
    pub const fn late(&self) -> u64 {
        self.found.late
    }

    /// The number of units that were seen whole.
    pub const fn units(&self) -> u64 {
        self.found.units
    }

    /// CPU time of all runs.
    pub const fn ran(&self) -> Nanos {
        self.ran
    }
}

/// Takes the moments before this one.
fn taken_before(
    ahead: &mut VecDeque<InjectedMoment>,
    end: Timestamp,
) -> impl Iterator<Item = InjectedMoment> {
    let count = ahead.partition_point(|moment| moment.at < end);
    ahead.drain(..count)
}

impl FoundUnits {
    fn close(&mut self, unit: Option<OpenUnit>, end: Timestamp) {
        let Some(unit) = unit else {
            return;
        };
        self.units += 1;
        for (moment, before) in unit.holds {
            let came = moment.began;
            match came {
                // Also of one that came too late: else those without an act would keep units that others lose.
                Some(came) => self.delay = came.since(moment.at),
                None if moment.injection.takes_the_cpu() => {
                    self.late += 1;
                    continue;
                }
                None => {}
            }
            // Before the first act it is not known how long one takes.
            let Some(comes) = came.or_else(|| Some(moment.at.after(self.delay?))) else {
                continue;
            };
            if comes >= end {
                self.late += 1;
                continue;
            }
            self.responses.push(UnitResponse {
                injection: moment.injection,
                cpu_ns: ns(unit.ran),
                before_ns: ns(before),
            });
        }
    }
}

/// A run, and the moments within it.
struct RunWithMoments {
    begin: Timestamp,
    end: Timestamp,
    stolen: Nanos,
    moments: Vec<InjectedMoment>,
}

impl OpenUnit {
    /// Adds a part of a run. What was stolen from a run is not known by the moment: it is taken from the part that ends
    /// the run.
    fn add(&mut self, run: &RunWithMoments, from: Timestamp, to: Timestamp) {
        let length = |until: Timestamp| until.since(from).unwrap_or(Nanos::ZERO);
        for moment in &run.moments {
            if from <= moment.at && moment.at < to {
                self.holds.push((*moment, self.ran + length(moment.at)));
            }
        }
        self.ran += length(to);
        if to == run.end {
            self.ran = self.ran.saturating_sub(run.stolen);
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "CPU time of a unit is far below 2⁵³ ns, 104 days"
)]
const fn ns(length: Nanos) -> f64 {
    length.as_ns() as f64
}
