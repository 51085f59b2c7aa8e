//! The first answer of `explain`: one screen that leads from the number of switches to their
//! causes, and to what can be changed.
//!
//! ```text
//! what was recorded, how many switches, and whether all are there      3 lines
//! which programs switched, and why                                     2 short tables
//! verdict                                                              as many causes as fit
//! where all the rest is                                                2 lines
//! ```

use std::path::Path;

use swtch_core::{Nanos, Reason};
use swtch_output::column::{Column, Word};
use swtch_output::sheet::{Cell, Sheet};
use swtch_output::text::{self, counted, cut, escaped, grouped, hung, shell_word};

use super::explain::{Explanation, FindingText};
use super::group::or_missing;
use super::head::{ReportedSwitches, TraceHead, host_words};
use super::programs::ProgramCounts;
use super::tally::{self, OfTally};
use super::verdict::in_words;
use super::{report_sheet, words};
use swtch_core::Tally;

/// Lines of the screen: it should not scroll away on a large terminal.
const LINES: usize = 40;

/// Most columns of the command that was recorded, which may be megabytes long.
const LONGEST_COMMAND: usize = 200;

/// Programs in the first table.
const PROGRAMS: usize = 4;

/// Reasons in the second table.
const REASONS: usize = 5;

/// On a narrower screen, the words beside a reason would leave no room for anything else.
const WIDE_ENOUGH_FOR_WORDS: usize = 70;

/// Most lines that say where the first cause comes from.
const PLACES: usize = 4;

/// Most such lines for each further cause.
const PLACES_OF_FURTHER: usize = 2;

/// Rows below this share are not on the screen.
const LEAST_PCT: f64 = 1.0;

/// A row of a table.
struct ScreenRow<'a> {
    label: String,
    tally: &'a Tally,
    all: u64,
    length: Nanos,
}

impl OfTally for ScreenRow<'_> {
    fn tally(&self) -> &Tally {
        self.tally
    }

    fn all(&self) -> u64 {
        self.all
    }
}

/// What a row is about, how many switches there were, and two lengths.
fn columns<'a>(label: Word, lengths: [Column<ScreenRow<'a>>; 2]) -> [Column<ScreenRow<'a>>; 6] {
    let [switches, share] = tally::counts();
    let per_second = Column::new(words::PER_SECOND, |row: &ScreenRow<'_>| {
        or_missing(per_second(row.tally.switches, row.length), Cell::Count)
    });
    let [first, second] = lengths;
    let label = Column::new(label, |row: &ScreenRow<'_>| Cell::text(&row.label));
    [label, switches, share, per_second, first, second]
}

/// Tallies of the screen's tables.
#[derive(Debug, Default)]
pub struct Screen {
    programs: Vec<ProgramCounts>,
    reasons: Vec<(Reason, Tally)>,
    total: Tally,
}

impl Screen {
    /// Takes programs and reasons with the most switches first.
    pub fn new(programs: Vec<ProgramCounts>, reasons: Vec<(Reason, Tally)>, total: Tally) -> Self {
        Self {
            programs,
            reasons,
            total,
        }
    }

    fn programs(&self, length: Nanos) -> Sheet {
        let columns = columns(
            words::PROGRAM,
            [
                Column::new(words::ON_CPU, |row| Cell::Time(row.tally.ran)),
                Column::new(words::CPU_WAIT, |row| Cell::Time(row.tally.runq)),
            ],
        );
        let programs = self.programs.iter();
        let rows = programs.map(|program| self.row(program.words(), &program.tally, length));
        report_sheet("program", &columns, rows)
    }

    fn reasons(&self, length: Nanos, width: usize) -> Sheet {
        let columns = columns(
            words::WHY_THREADS_LEFT,
            [
                Column::new(words::BLOCKED, |row| tally::blocked_cell(row.tally)),
                Column::new(words::CPU_WAIT, |row| tally::runq_cell(row.tally)),
            ],
        );
        let rows = self.reasons.iter().map(|(reason, tally)| {
            let words = match width < WIDE_ENOUGH_FOR_WORDS {
                true => reason.to_string(),
                false => format!("{reason:<8} {}", in_words(*reason)),
            };
            self.row(words, tally, length)
        });
        report_sheet("reason", &columns, rows)
    }

    const fn row<'a>(&self, label: String, tally: &'a Tally, length: Nanos) -> ScreenRow<'a> {
        ScreenRow {
            label,
            tally,
            all: self.total.switches,
            length,
        }
    }
}

/// Events per second; `None` if `length` is zero.
fn per_second(count: u64, length: Nanos) -> Option<u64> {
    let per_s = u128::from(count) * 1_000_000_000 / u128::from(length.as_ns()).max(1);
    (length > Nanos::ZERO).then(|| u64::try_from(per_s).unwrap_or(u64::MAX))
}

/// The lines of the screen. None is wider than `width`, unless a single word is. `trace` is the
/// path that the suggested commands name.
pub fn lines(
    explained: &Explanation,
    head: &TraceHead,
    rows: ReportedSwitches,
    trace: &Path,
    width: usize,
) -> Vec<String> {
    let mut lines = beginning(explained, head, rows, width);
    let end = ending(trace, width);
    let room = LINES.saturating_sub(lines.len() + end.len());
    lines.extend(verdict(explained, room, width));
    lines.extend(end);
    lines
}

fn beginning(
    explained: &Explanation,
    head: &TraceHead,
    rows: ReportedSwitches,
    width: usize,
) -> Vec<String> {
    let screen = &explained.screen;
    let length = head.duration();
    let what = format!(
        "{}, for {length}, on {}",
        cut(&escaped(&head.what()), LONGEST_COMMAND),
        host_words(&head.meta.host).to_bracketed()
    );
    let rate = per_second(rows.counted, length);
    let rate = rate.map_or_else(String::new, |rate| format!(", {} a second", grouped(rate)));
    let switches = counted(rows.counted, "context switch");
    let complete = match head.is_complete() {
        true => "; complete: no switch was lost",
        false => "",
    };
    let mut lines = hung("", &what, width);
    lines.extend(hung("", &format!("{switches}{rate}{complete}."), width));
    for warning in head.warnings(rows) {
        lines.extend(hung("note: ", &warning, width));
    }
    for wait in explained.lasting() {
        lines.extend(hung("blocked: ", &escaped(wait), width));
    }
    for (sheet, most) in [
        (screen.programs(length), PROGRAMS),
        (screen.reasons(length, width), REASONS),
    ] {
        if !sheet.rows.is_empty() {
            lines.push(String::new());
            let is_shown =
                |row: &&Vec<Cell>| !matches!(row[2], Cell::Percent(share) if share < LEAST_PCT);
            let shown = sheet.rows.iter().take_while(is_shown).count();
            lines.extend(sheet.fitted(shown.clamp(1, most), width));
        }
    }
    lines
}

/// One sentence for each cause. As many causes as fit into `room` lines, and at least the first,
/// also say where they come from and what can be changed.
fn verdict(explained: &Explanation, room: usize, width: usize) -> Vec<String> {
    let told = explained.told();
    let mut lines = vec![String::new(), "verdict".to_owned()];
    if told.is_empty() {
        lines.extend(hung("", &explained.without_findings, width));
    }
    let cost = explained.cost();
    let cost = cost.map(|cost| format!("What switching itself costs: {cost}."));
    let last = cost.map_or_else(Vec::new, |cost| hung("", &cost, width));
    let mut short: Vec<_> = told
        .iter()
        .enumerate()
        .map(|(place, one)| sentence(place, one, width))
        .collect();
    let mut cut_off = false;
    for (place, one) in told.iter().enumerate() {
        let whole = cause(place, one, width);
        let rest: usize = short[place + 1..].iter().map(Vec::len).sum();
        // Also counts a blank line, and the line that says where the rest is.
        let needed = lines.len() + whole.len() + rest + last.len() + 3;
        if place == 0 || needed <= room {
            if place > 0 {
                lines.push(String::new());
            }
            lines.extend(whole);
            continue;
        }
        cut_off = true;
        if lines.len() + short[place].len() + last.len() + 2 > room {
            break;
        }
        lines.append(&mut short[place]);
    }
    if cut_off {
        let causes = counted(u64::try_from(told.len()).unwrap_or(u64::MAX), "cause");
        let all = format!("(all {causes}, and what can be changed about each: --full, see below)");
        lines.extend(hung("", &all, width));
    }
    lines.extend(last);
    lines
}

fn sentence(place: usize, one: &FindingText, width: usize) -> Vec<String> {
    hung(&format!("{}. ", place + 1), &one.seen, width)
}

fn cause(place: usize, one: &FindingText, width: usize) -> Vec<String> {
    let mut lines = sentence(place, one, width);
    let most = if place == 0 {
        PLACES
    } else {
        PLACES_OF_FURTHER
    };
    for line in one.places.iter().take(most) {
        lines.push(cut(&format!("   {}", escaped(line)), width));
    }
    if let Some(worth) = &one.worth {
        lines.extend(hung("   costs: ", worth, width));
    }
    if let Some(advice) = &one.advice {
        lines.extend(hung("   to change it: ", advice, width));
    }
    lines
}

fn ending(trace: &Path, width: usize) -> Vec<String> {
    let trace = shell_word(trace);
    let hints = [
        ("All tables:", format!("swtch explain {trace} --full")),
        ("On a time line:", format!("swtch view {trace}")),
    ];
    let whole = hints
        .each_ref()
        .map(|(what, command)| format!("{what} {command}"));
    let is_fitting = |line: &String| text::width(line) <= width;
    let one_line = whole.join(". ");
    let mut lines = vec![String::new()];
    if is_fitting(&one_line) {
        lines.push(one_line);
    } else if whole.iter().all(is_fitting) {
        lines.extend(whole);
    } else {
        // Commands are not wrapped: they are for copying, and a path in them may have spaces.
        for (what, command) in hints {
            lines.extend([what.to_owned(), command]);
        }
    }
    lines
}
