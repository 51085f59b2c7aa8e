//! `swtch cost --tails`: how long single hops take, as percentiles.
//!
//! A mean hides the hop that took a millisecond. Here every hop is timed by itself, which takes two
//! reads of the clock per hop; so this is a mode of its own, and none of its numbers goes into a
//! price list. The rings take turns in several slices, so that a change of the machine's speed
//! affects all of them.

use std::fmt::Write as _;
use std::io::stdout;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::json;
use swtch_bench::cost::{
    Neighbour, RingSpec, Tails, check_cpu, home, neighbours, passes_a_turn, tails,
};
use swtch_capture::signals::stop_on_signals;
use swtch_core::cost::{Members, Place, Policy, Primitive};
use swtch_core::{Distribution, Nanos};
use swtch_output::answer::{self, SheetAnswer};
use swtch_output::host::HostWords;
use swtch_output::text::{counted, escaped};
use swtch_report::report::{Cell, Sheet};

use super::{CostRequest, Effort};

/// Primitives that are measured when none is named: the barest, and the one that everybody
/// measures.
const KINDS: [Primitive; 2] = [Primitive::FutexShared, Primitive::Pipe];

/// Slices in which each ring is measured.
const SLICES: u64 = 8;

const COLUMNS: [&str; 11] = [
    "kind",
    "between",
    "where",
    "policy",
    "p50_ns",
    "p90_ns",
    "p99_ns",
    "p99_9_ns",
    "longest_ns",
    "hops",
    "clock_ns",
];

/// Measures the tails, writes them, and returns the exit code.
///
/// # Errors
/// A kind is not known, no ring can be measured, or the answer cannot be written.
pub(crate) fn run(request: &CostRequest) -> Result<u8> {
    let stop = stop_on_signals()?;
    let cpu = request.cpu.map_or_else(home, Ok)?;
    check_cpu(cpu)?;
    let mut rings = Rings::of(&primitives(&request.kinds)?, cpu)?;
    let start = Instant::now();
    rings.measure(hops(request.effort), &stop);
    if rings.rows.iter().all(TailsRow::is_empty) {
        bail!("no hop was measured: {}", rings.notes.join("; "));
    }
    let session = TailsSession {
        cpu,
        took: start.elapsed(),
        was_interrupted: stop.load(Ordering::Relaxed),
    };
    let answer = SheetAnswer {
        head: head(&session),
        members: json!({
            "schema": "swtch.report.cost-tails/1",
            "origin": swtch_host::origin(),
            "cpu": session.cpu,
            "took_s": session.took.as_secs_f64(),
            "was_interrupted": session.was_interrupted,
        }),
        sheet: &rings.sheet(),
    };
    answer::write(&answer, request.format, &mut stdout())?;
    Ok(0)
}

/// Hops of each ring. One in a thousand is beyond the last percentile, 99.9 %: 200 hops by default,
/// 20 with `--quick`.
const fn hops(effort: Effort) -> u64 {
    match effort {
        Effort::Quick => 20_000,
        Effort::Default => 200_000,
        Effort::Thorough => 2_000_000,
    }
}

/// The primitives with these words; the usual ones, when none is named.
fn primitives(words: &[String]) -> Result<Vec<Primitive>> {
    if words.is_empty() {
        return Ok(KINDS.to_vec());
    }
    let has_hops = |primitive: &Primitive| passes_a_turn(*primitive);
    let primitive = |word: &String| {
        let primitive = Primitive::from_word(word).filter(has_hops);
        primitive.with_context(|| {
            let all = Primitive::ALL.iter().copied().filter(has_hops);
            let all: Vec<_> = all.map(Primitive::as_str).collect();
            format!(
                "there are no tails of `{word}`; there are of: {}",
                all.join(", ")
            )
        })
    };
    words.iter().map(primitive).collect()
}

/// The session in which the tails were measured.
struct TailsSession {
    cpu: u32,
    took: Duration,
    was_interrupted: bool,
}

/// A ring and its hops so far.
struct TailsRow {
    spec: RingSpec,
    tails: Tails,
    /// True after it failed; a note says why.
    is_out: bool,
}

impl TailsRow {
    fn is_empty(&self) -> bool {
        self.tails.by_member().iter().all(|one| one.count() == 0)
    }

    fn describe(&self) -> String {
        let spec = &self.spec;
        format!(
            "{} ({}, {}, {})",
            spec.primitive, spec.members, spec.place, spec.policy
        )
    }
}

/// All rings, and what could not be measured.
struct Rings {
    rows: Vec<TailsRow>,
    notes: Vec<String>,
}

impl Rings {
    /// Pairs by each primitive: on one CPU and across, threads and processes, batch and default.
    fn of(primitives: &[Primitive], cpu: u32) -> Result<Self> {
        let mut rings = Self {
            rows: Vec::new(),
            notes: Vec::new(),
        };
        let mut spots = vec![(Place::SameCpu, cpu)];
        for Neighbour { place, cpu: other } in neighbours(cpu)? {
            match other {
                Ok(other) => spots.push((place, other)),
                Err(why) => rings.notes.push(format!("not here: {place}: {why}")),
            }
        }
        for primitive in primitives {
            for (place, other) in &spots {
                rings.add(*primitive, *place, (cpu, *other));
            }
        }
        Ok(rings)
    }

    fn add(&mut self, primitive: Primitive, place: Place, cpus: (u32, u32)) {
        // A word that is private to a process cannot wake another one.
        let all_members = match primitive {
            Primitive::FutexPrivate => &[Members::Threads],
            _ => Members::ALL,
        };
        for members in all_members {
            for policy in [Policy::Batch, Policy::Default] {
                let spec = RingSpec {
                    place,
                    cpus: Some(cpus),
                    ..RingSpec::pair(primitive, *members, policy, cpus.0)
                };
                self.rows.push(TailsRow {
                    spec,
                    tails: Tails::default(),
                    is_out: false,
                });
            }
        }
    }

    /// Measures about `hops` hops of each ring; ends early when `stop` is set.
    fn measure(&mut self, hops: u64, stop: &AtomicBool) {
        for _ in 0..SLICES {
            for row in self.rows.iter_mut().filter(|row| !row.is_out) {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                match tails(&row.spec, hops / SLICES, stop) {
                    Ok(more) => row.tails.merge(&more),
                    Err(why) => {
                        row.is_out = true;
                        self.notes
                            .push(format!("not here: {}: {why}", row.describe()));
                    }
                }
            }
        }
    }

    fn sheet(self) -> Sheet {
        let mut sheet = Sheet::new("cost-tails", &COLUMNS);
        let measured = self.rows.iter().filter(|row| !row.is_empty());
        let cells = |row: &TailsRow| cells(&row.spec, &row.tails.all(), row.tails.clock());
        sheet.rows = measured.map(cells).collect();
        sheet.notes.push(
            "a hop: from before the turn is passed to after it is taken, and one read of the clock \
             (column clock) is in it. Not to be mixed with prices, which are means of blocks \
             without a clock inside."
                .to_owned(),
        );
        let backwards: u64 = self.rows.iter().map(|row| row.tails.backwards()).sum();
        if backwards > 0 {
            sheet.notes.push(format!(
                "{} without a length: the clocks of two CPUs disagree",
                counted(backwards, "hop")
            ));
        }
        sheet.notes.extend(self.notes);
        sheet
    }
}

fn cells(spec: &RingSpec, all: &Distribution, clock: Nanos) -> Vec<Cell> {
    let mut cells: Vec<Cell> = [
        spec.primitive.as_str(),
        spec.members.as_str(),
        spec.place.as_str(),
        spec.policy.as_str(),
    ]
    .map(Cell::text)
    .to_vec();
    let percentiles = Distribution::PERCENTILES.map(|(percent, _)| all.percentile(percent));
    cells.extend(percentiles.map(Cell::time));
    cells.extend([
        Cell::time(all.longest()),
        Cell::Count(all.count()),
        Cell::Time(clock),
    ]);
    cells
}

/// The head: the machine, the duration, and whether it was ended early.
fn head(session: &TailsSession) -> String {
    let origin = swtch_host::origin();
    let host = HostWords {
        cpus: None,
        ..HostWords::of_origin(&origin)
    };
    let mut head = format!("host   {}\n", escaped(&host.to_line()));
    let cut = if session.was_interrupted {
        ", ended early"
    } else {
        ""
    };
    writeln!(
        head,
        "tails  single hops of pairs, {:.0} s, leader on CPU {}{cut} · {}\n",
        session.took.as_secs_f64(),
        session.cpu,
        origin.measured_at
    )
    .expect("writing to a string cannot fail");
    head
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_primitive_is_refused_with_those_that_are() {
        for word in ["telepathy", "yield"] {
            let why = primitives(&[word.to_owned()]).unwrap_err().to_string();
            assert!(why.ends_with("message-queue, signal"), "{why}");
        }
        assert_eq!(primitives(&["tcp".to_owned()]).unwrap(), [Primitive::Tcp]);
        assert_eq!(primitives(&[]).unwrap(), KINDS);
    }

    #[test]
    fn a_private_word_has_rings_of_threads_only() {
        let mut rings = Rings {
            rows: Vec::new(),
            notes: Vec::new(),
        };
        rings.add(Primitive::FutexPrivate, Place::SameCpu, (0, 0));
        let described: Vec<_> = rings.rows.iter().map(TailsRow::describe).collect();
        let expected = ["batch", "default"]
            .map(|policy| format!("futex-private (threads, same-cpu, {policy})"));
        assert_eq!(described, expected);
    }

    #[test]
    fn a_row_has_a_cell_for_each_column() {
        let spec = RingSpec::pair(Primitive::Pipe, Members::Threads, Policy::Batch, 0);
        let mut all = Distribution::default();
        (1..=1000).for_each(|ns| all.record(Nanos::from_ns(ns)));
        let cells = cells(&spec, &all, Nanos::from_ns(27));
        assert_eq!(cells.len(), COLUMNS.len());
        assert_eq!(cells[8], Cell::Time(Nanos::from_ns(1000)));
        assert_eq!(cells[9], Cell::Count(1000));
    }
}
