//! The answer of `swtch cost --of`: one sentence, a table, and what a reader must know to believe them.

use std::fmt::Write as _;
use std::io::stdout;

use anyhow::Result;
use serde_json::{Value, json};
use swtch_bench::cost::injection::InjectionLog;
use swtch_core::cost::injection::{
    EffectOfAct, InjectionEstimates, PriceForProgram, TouchedMemory,
};
use swtch_output::answer::{self, SheetAnswer};
use swtch_output::host::HostWords;
use swtch_output::message;
use swtch_output::text::{counted, escaped, grouped, nanos};
use swtch_report::report::{Cell, Sheet};
use swtch_store::Meta;

use super::super::UNRESOLVED;
use super::{JoinedMoments, ProgramCostRequest};

const COLUMNS: [&str; 6] = [
    "what",
    "touched_bytes",
    "cost_ns",
    "cost_low_ns",
    "cost_high_ns",
    "moments",
];

/// From this share of stolen time on it is told in words, in percent of what the program ran.
const MUCH_STOLEN_PCT: f64 = 1.0;

/// All that is said about one experiment.
pub(super) struct ExperimentAnswer {
    sentence: String,
    members: Value,
    sheet: Sheet,
    exit_code: u8,
}

impl ExperimentAnswer {
    /// The answer, of what was estimated and done.
    pub(super) fn new(
        request: &ProgramCostRequest,
        estimates: &InjectionEstimates,
        log: &InjectionLog,
        units: &JoinedMoments,
    ) -> Self {
        let ran = units.ran().as_ns().max(1) as f64;
        // What acts cost that met no unit is not known: as much as others.
        let acts = log.moments.len() as f64 / estimates.moments.max(1) as f64;
        let spent_ns = estimates.spent_ns * acts;
        let slowed_pct = (log.intruders_ran.as_ns() as f64 + spent_ns) / ran * 100.0;
        let took_s = log.took.as_secs_f64();
        let knows_direct = units.spans_in_unit.is_some() || !estimates.piled_up.is_clear;
        let mut answer = Self {
            sentence: sentence(estimates, knows_direct, took_s, slowed_pct),
            members: json!({
                "schema": "swtch.report.cost-of/1",
                "origin": swtch_host::origin(),
                "took_s": took_s,
                "budget_pct": request.budget_pct,
                "slowed_pct": slowed_pct,
                "moments_drawn": log.moments.len(),
                "moments": estimates.moments,
                "moments_late": units.late(),
                "units": units.units(),
                "unit_ns": estimates.unit_ns,
                "spans": request.spans,
                "spans_in_unit": units.spans_in_unit,
                "program_ran_ns": units.ran().as_ns(),
                "intruders_ran_ns": log.intruders_ran.as_ns(),
                "was_interrupted": false,
            }),
            sheet: sheet(estimates, knows_direct),
            exit_code: if knows_direct { 0 } else { UNRESOLVED },
        };
        answer.add_notes(estimates, units);
        if log.program_ended {
            answer.note("the program ended before the time was up".to_owned());
        }
        if slowed_pct > request.budget_pct * 1.1 {
            answer.note(format!(
                "the program was slowed by {slowed_pct:.1} %, more than the budget of {} %: what walks cost it was underestimated",
                request.budget_pct
            ));
        }
        answer
    }

    fn note(&mut self, words: String) {
        self.sheet.notes.push(words);
    }

    fn add_notes(&mut self, estimates: &InjectionEstimates, units: &JoinedMoments) {
        let unit = match units.spans_in_unit {
            None => "what a thread does from one block to the next".to_owned(),
            Some(1) => "a span".to_owned(),
            Some(count) => format!("{count} spans and what lies between them"),
        };
        self.note(format!(
            "a unit of work is {unit}: {} were seen whole, and those that were met took {} of CPU time on average; {} more \
             had ended when the act came",
            grouped(units.units()),
            nanos(estimates.unit_ns),
            grouped(units.late())
        ));
        if estimates.elsewhere.is_clear {
            let control = &estimates.elsewhere;
            self.note(format!(
                "the control, a task on another CPU, should cost nothing and costs {}: so much may be wrong with each price (of \
                 CPUs that share a core, one slows the other)",
                plus_minus(control)
            ));
            let largest = estimates.prices.iter().map(|price| price.cost.ns);
            if largest.fold(0.0, f64::max) < 2.0 * control.ns.abs() {
                self.exit_code = UNRESOLVED;
            }
        }
        // Of four prices that are nothing, one in five experiments would hold one whose interval says something else.
        if !estimates.prices.iter().any(|price| price.cost.is_clear) {
            self.exit_code = UNRESOLVED;
            self.note(
                "no price could be told from nothing: the units of work differ too much for so few moments. Measure longer \
                 (-d), allow more (--budget), or name a unit that is more alike (--span)"
                    .to_owned(),
            );
        }
        if estimates.piled_up.is_clear {
            let of_blocks = match units.spans_in_unit {
                None => {
                    ". A switch that touches nothing keeps it for a while, too, so its price is not told: name spans (--span)"
                }
                Some(_) => "",
            };
            self.note(format!(
                "kept from its CPU for as long as the largest walk takes, the program used {} more in the same unit: work that \
                 piled up, which is no part of what memory costs{of_blocks}",
                plus_minus(&estimates.piled_up)
            ));
        }
    }

    /// Adds what the trace says of the machine and of the recorder meanwhile.
    pub(super) fn add_facts_of(&mut self, meta: &Meta, load: f64) {
        self.members["load_before_pct"] = json!(load * 100.0);
        self.members["lost"] = json!(meta.counts.lost);
        self.members["steal_ns"] = json!(meta.load.steal_ns());
        self.members["recording_ns"] = json!(meta.overhead.kernel_ns_per_switch);
        if meta.counts.lost > 0 {
            self.note(format!(
                "{} lost: the units of work around them are left out",
                counted(meta.counts.lost, "switch")
            ));
        }
        if let Some(ns) = meta.overhead.kernel_ns_per_switch {
            self.note(format!(
                "recording is part of each price: about {} a switch",
                nanos(ns)
            ));
        }
        let lasted = meta.end_ns.saturating_sub(meta.start_ns).max(1) as f64;
        let stolen = meta.load.steal_ns().map(|ns| ns as f64 / lasted * 100.0);
        match stolen {
            Some(pct) if pct >= MUCH_STOLEN_PCT => self.note(format!(
                "the hypervisor gave {pct:.1} % of a CPU to others meanwhile, which widens the intervals"
            )),
            Some(_) => {}
            None => self.note("it is not known what the hypervisor gave to others".to_owned()),
        }
    }

    /// Says that it was ended by a signal.
    pub(super) fn was_ended_early(&mut self) {
        self.members["was_interrupted"] = json!(true);
        self.note("ended early: with more moments the intervals are narrower".to_owned());
    }

    /// Writes the answer, and returns the exit code.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn write(&self, format: swtch_output::format::Format) -> Result<u8> {
        let origin = swtch_host::origin();
        let host = HostWords::of_origin(&origin).to_line();
        let head = format!("host   {}\n\n{}\n\n", escaped(&host), self.sentence);
        let answer = SheetAnswer {
            head,
            members: self.members.clone(),
            sheet: &self.sheet,
        };
        answer::write(&answer, format, &mut stdout())?;
        if self.exit_code == UNRESOLVED {
            message!("swtch: unresolved (exit code {UNRESOLVED}): see the notes");
        }
        Ok(self.exit_code)
    }
}

/// The answer in a sentence. Where the price of a switch itself is not known, what memory adds to it.
fn sentence(
    estimates: &InjectionEstimates,
    knows_direct: bool,
    took_s: f64,
    slowed_pct: f64,
) -> String {
    let mut words = match estimates.prices.first() {
        Some(direct) if knows_direct => format!(
            "A switch to a task that touches nothing costs this program {}",
            cost_in_words(&direct.cost)
        ),
        _ => "What a switch to a task that touches nothing costs this program is not known (see the notes)".to_owned(),
    };
    for price in &estimates.prices {
        let (Some(touched), Some(memory)) = (price.touched, &price.memory) else {
            continue;
        };
        let size = words_of(touched);
        words += &match knows_direct {
            true => format!(
                "; to one that touches {size} of memory {}",
                cost_in_words(&price.cost)
            ),
            false => format!(
                "; the memory of one that touches {size} adds {}",
                cost_in_words(memory)
            ),
        };
    }
    write!(
        words,
        ". Measured at {} moments in {took_s:.0} s; the acts slowed the program by {slowed_pct:.1} % meanwhile.",
        grouped(estimates.moments as u64)
    )
    .expect("writing to a string cannot fail");
    words
}

/// A cost with its interval; where the interval holds 0, the most that it can be.
fn cost_in_words(cost: &EffectOfAct) -> String {
    if !cost.interval.contains(0.0) {
        return plus_minus(cost);
    }
    format!(
        "at most {} (not to be told from nothing)",
        nanos(cost.interval.high.max(0.0))
    )
}

fn plus_minus(cost: &EffectOfAct) -> String {
    format!("{} ± {}", nanos(cost.ns), nanos(cost.half_width_ns()))
}

const fn words_of(memory: TouchedMemory) -> &'static str {
    match memory {
        TouchedMemory::Small => "64 KiB",
        TouchedMemory::Medium => "512 KiB",
        TouchedMemory::Large => "2 MiB",
    }
}

fn sheet(estimates: &InjectionEstimates, knows_direct: bool) -> Sheet {
    let mut sheet = Sheet::new("cost-of", &COLUMNS);
    sheet.not_in_tables = &["touched_bytes"];
    for price in &estimates.prices {
        match (knows_direct, price.touched, &price.memory) {
            (true, ..) => sheet.rows.extend(rows_of(price)),
            (false, Some(touched), Some(memory)) => {
                let what = format!("what the {} add that it touches", words_of(touched));
                sheet
                    .rows
                    .push(row(&what, price.touched, memory, Some(price)));
            }
            (false, ..) => {}
        }
    }
    let others = [
        (
            "an interrupt alone, no part of the above",
            estimates.interrupt,
        ),
        ("control: a task on another CPU", estimates.elsewhere),
    ];
    for (what, cost) in others {
        sheet.rows.push(row(what, None, &cost, None));
    }
    sheet
}

/// The price, and what of it the memory is.
fn rows_of(price: &PriceForProgram) -> Vec<Vec<Cell>> {
    let what = price.touched.map_or_else(
        || "a switch to a task that touches nothing".to_owned(),
        |memory| format!("a switch to a task that touches {}", words_of(memory)),
    );
    let mut rows = vec![row(&what, price.touched, &price.cost, Some(price))];
    if let (Some(memory), Some(cost)) = (price.touched, &price.memory) {
        let what = format!("  of which the {}", words_of(memory));
        rows.push(row(&what, price.touched, cost, None));
    }
    rows
}

fn row(
    what: &str,
    touched: Option<TouchedMemory>,
    cost: &EffectOfAct,
    price: Option<&PriceForProgram>,
) -> Vec<Cell> {
    let bytes = touched.map(|memory| Cell::Count(memory.bytes() as u64));
    vec![
        Cell::text(what),
        bytes.unwrap_or_default(),
        Cell::Estimated(cost.ns),
        Cell::Estimated(cost.interval.low),
        Cell::Estimated(cost.interval.high),
        price.map_or(Cell::Missing, |price| Cell::Count(price.moments as u64)),
    ]
}

#[cfg(test)]
mod tests {
    use swtch_core::stats::ConfidenceInterval;

    use super::*;

    fn cost(ns: f64, low: f64, high: f64) -> EffectOfAct {
        EffectOfAct {
            ns,
            interval: ConfidenceInterval { low, high },
            is_clear: low > 0.0,
        }
    }

    fn estimates() -> InjectionEstimates {
        let price = |touched, cost: EffectOfAct| PriceForProgram {
            touched,
            cost,
            memory: touched.map(|_| cost),
            moments: 800,
        };
        InjectionEstimates {
            prices: vec![
                price(None, cost(1100.0, 800.0, 1400.0)),
                price(Some(TouchedMemory::Small), cost(900.0, -100.0, 1900.0)),
                price(
                    Some(TouchedMemory::Large),
                    cost(12_000.0, 10_000.0, 14_000.0),
                ),
            ],
            interrupt: cost(9000.0, 8500.0, 9500.0),
            elsewhere: cost(10.0, -400.0, 420.0),
            piled_up: cost(0.0, -900.0, 900.0),
            unit_ns: 85_000.0,
            moments: 5600,
            spent_ns: 1e6,
        }
    }

    #[test]
    fn the_sentence_says_each_price_with_its_interval() {
        let said = sentence(&estimates(), true, 40.2, 0.94);
        let expected = "A switch to a task that touches nothing costs this program 1100 ns ± 300 ns; to one that touches \
                        64 KiB of memory at most 1900 ns (not to be told from nothing); to one that touches 2 MiB of memory \
                        12.0 µs ± 2000 ns. Measured at 5,600 moments in 40 s; the acts slowed the program by 0.9 % meanwhile.";
        assert_eq!(said, expected);
    }

    /// Work that piles up while a program is kept from its CPU would be taken for the price of the switch.
    #[test]
    fn a_price_that_may_be_work_is_not_told() {
        let said = sentence(&estimates(), false, 40.2, 0.94);
        assert!(said.contains("is not known (see the notes)"), "{said}");
        assert!(!said.contains("1100 ns"), "{said}");
        assert!(said.contains("touches 2 MiB adds 12.0 µs"), "{said}");
        let sheet = sheet(&estimates(), false);
        assert_eq!(sheet.rows.len(), 2 + 2);
        assert!(
            sheet
                .rows
                .iter()
                .all(|row| row[0] != Cell::text("a switch to a task that touches nothing"))
        );
    }

    #[test]
    fn each_row_has_a_cell_for_each_column() {
        let sheet = sheet(&estimates(), true);
        assert_eq!(sheet.rows.len(), 3 + 2 + 2);
        assert!(sheet.rows.iter().all(|row| row.len() == COLUMNS.len()));
    }
}
