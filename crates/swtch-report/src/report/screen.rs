//! The first answer of `explain`: one screen that leads from the number of switches to their
//! causes, and to what can be changed.
//!
//! ```text
//! what was recorded, how many switches, and whether all are there      3 lines
//! how well the CPUs were used                                          2 lines
//! verdict                                                              as many causes as fit
//! which programs switched, and why                                     2 short tables
//! where all the rest is                                                2 lines
//! ```
//!
//! It has 24 lines where that is enough for two causes with all that is said of them, and never more than 40.

use std::path::Path;

use swtch_core::{AwaitedThing, Nanos, Reason};
use swtch_output::column::{Column, Word};
use swtch_output::sheet::{Cell, Sheet, percent};
use swtch_output::text::{self, counted, cut, escaped, grouped, hung, shell_word};

use super::explain::{BESIDES, Explanation, FindingText};
use super::group::or_missing;
use super::head::{ReportedSwitches, TraceHead, host_words};
use super::programs::ProgramCounts;
use super::tally::{self, OfTally};
use super::verdict::in_words;
use super::{report_sheet, words};
use swtch_core::Tally;

/// A recording that is not longer than this shows only a moment.
const SHORT: Nanos = Nanos::from_ns(200_000_000);

/// Lines of the screen: it should not scroll away on a large terminal.
const LINES: usize = 40;

/// Lines of a small terminal. Tables are left out, and then shortened, for its sake.
const FEW_LINES: usize = 24;

/// Findings without a number that are told where there are causes, and where there is none.
const BESIDES_CAUSES: usize = 1;
const BESIDES_NONE: usize = 3;

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

/// Most lines that say where a further cause comes from.
const PLACES_OF_FURTHER: usize = 2;

/// Most lines that say where something comes from that is listed without a number.
const PLACES_BESIDES: usize = 1;

/// Lines of a table that is shown beside long causes, its heads included.
const MOST_BESIDE_CAUSES: usize = 7;

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

/// The columns of a table: what a row is about, how many switches there were, and two lengths.
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
            let words = if width < WIDE_ENOUGH_FOR_WORDS {
                reason.to_string()
            } else {
                format!("{reason:<8} {}", in_words(*reason))
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
pub fn per_second(count: u64, length: Nanos) -> Option<u64> {
    let per_s = u128::from(count) * 1_000_000_000 / u128::from(length.as_ns()).max(1);
    (length > Nanos::ZERO).then(|| u64::try_from(per_s).unwrap_or(u64::MAX))
}

/// The lines of the screen, with sentences about units of work. None is wider than `width`, unless a single word is.
/// `trace` is the path that the suggested commands name.
pub fn lines(
    explained: &Explanation,
    head: &TraceHead,
    rows: ReportedSwitches,
    besides: &[String],
    trace: &Path,
    width: usize,
) -> Vec<String> {
    let mut lines = beginning(explained, head, rows, besides, width);
    let end = ending(trace, width);
    let room = LINES.saturating_sub(lines.len() + end.len());
    lines.extend(verdict(explained, room, width));
    let room = LINES.saturating_sub(lines.len() + end.len());
    let few = FEW_LINES.saturating_sub(lines.len() + end.len());
    lines.extend(tables(explained, head.duration(), few, room, width));
    lines.extend(end);
    lines
}

fn beginning(
    explained: &Explanation,
    head: &TraceHead,
    rows: ReportedSwitches,
    besides: &[String],
    width: usize,
) -> Vec<String> {
    let length = head.duration();
    let what = format!(
        "{}, for {length}, on {}",
        cut(&escaped(&head.what()), LONGEST_COMMAND),
        host_words(&head.meta.host).to_bracketed()
    );
    let rate = per_second(rows.counted, length);
    let rate = rate.map_or_else(String::new, |rate| format!(", {} a second", grouped(rate)));
    let switches = counted(rows.counted, "context switch");
    let of_others = head.untraced_of_others();
    let complete = match (head.is_complete(), &of_others) {
        (true, _) => "; complete: no switch was lost".to_owned(),
        (false, Some((untraced, _))) => format!(
            "; none of them was lost ({} of other tasks not traced)",
            grouped(*untraced)
        ),
        (false, None) => String::new(),
    };
    let mut lines = hung("", &what, width);
    lines.extend(hung("", &format!("{switches}{rate}{complete}."), width));
    if let Some(used) = utilisation(explained, head) {
        lines.extend(hung("", &used, width));
    }
    for words in besides {
        lines.extend(hung("", &escaped(words), width));
    }
    if is_short(head) {
        let words = format!("{length} is too short to say what is usual: record for longer (-d 5)");
        lines.extend(hung("note: ", &words, width));
    }
    let is_said = |warning: &String| {
        of_others
            .as_ref()
            .is_some_and(|(_, words)| words == warning)
    };
    for warning in head.warnings(rows).iter().filter(|one| !is_said(one)) {
        lines.extend(hung("note: ", warning, width));
    }
    for wait in explained.lasting() {
        lines.extend(hung("blocked: ", &escaped(wait), width));
    }
    lines
}

/// Returns true if only so little was recorded of what went on for longer: a command that ends is recorded as a whole.
fn is_short(head: &TraceHead) -> bool {
    let meta = &head.meta;
    let is_recording = meta.imported.is_none() && meta.ring.is_none();
    is_recording && meta.command.is_empty() && head.duration() < SHORT
}

/// `On average 1.4 of its threads ran, 11.3 wanted a CPU and had none; …`: how well CPUs were used.
fn utilisation(explained: &Explanation, head: &TraceHead) -> Option<String> {
    let lost = &explained.lost;
    let wall = head.duration().as_ns();
    if wall == 0 || lost.whole() == Nanos::ZERO {
        return None;
    }
    let mean = |time: Nanos| in_hundredths(time.as_ns(), wall);
    let mut words = format!(
        "On average {} of its threads ran, {} wanted a CPU and had none, {} were blocked in the middle of work",
        mean(lost.ran),
        mean(lost.no_cpu),
        mean(lost.blocked(AwaitedThing::Work)),
    );
    if lost.workers > Nanos::ZERO {
        words += &format!(
            "; {} of its goroutines waited for a lock or for a thread",
            mean(lost.workers)
        );
    }
    if let Some(busy) = head.busy_pct().filter(|_| head.filter.is_none()) {
        let cpus = u64::from(head.meta.host.cpus);
        let own = percent(lost.ran.as_ns(), wall.saturating_mul(cpus)).unwrap_or(0.0);
        words += &format!(
            "; the {} were {busy:.1} % busy, {:.1} % with it",
            counted(cpus, "CPU"),
            own.min(busy),
        );
    }
    words.push('.');
    for told in explained.beside_causes() {
        words += &format!(" {told}");
    }
    Some(words)
}

/// A number with two digits behind the point.
pub fn in_hundredths(part: u64, whole: u64) -> String {
    let hundredths = (u128::from(part) * 100 + u128::from(whole) / 2) / u128::from(whole.max(1));
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// The tables, as far as there is room: on a small terminal the first rows of why threads left, and that of
/// programs where there are several.
fn tables(
    explained: &Explanation,
    length: Nanos,
    few: usize,
    room: usize,
    width: usize,
) -> Vec<String> {
    let screen = &explained.screen;
    let mut lines = Vec::new();
    let programs = screen.programs(length);
    let is_one = programs.rows.len() < 2;
    let reasons = screen.reasons(length, width);
    let mut wanted = vec![(reasons, REASONS)];
    if !is_one {
        wanted.push((programs, PROGRAMS));
    }
    for (place, (sheet, most)) in wanted.into_iter().enumerate() {
        // Also counts a blank line, the heads and their rule, and how many rows are left out.
        let limit = match place {
            0 => few.max(room.min(MOST_BESIDE_CAUSES)),
            _ => few.max(room.min(lines.len() + MOST_BESIDE_CAUSES)),
        };
        let free = limit.saturating_sub(lines.len() + 4);
        let is_shown =
            |row: &&Vec<Cell>| !matches!(row[2], Cell::Percent(share) if share < LEAST_PCT);
        let shown = sheet.rows.iter().take_while(is_shown).count();
        let most = shown.clamp(1, most).min(free);
        if most > 0 && !sheet.rows.is_empty() {
            lines.push(String::new());
            lines.extend(sheet.fitted(most, width));
        }
    }
    lines
}

/// One sentence for each cause. As many causes as fit into `room` lines, and at least the first,
/// also say where they come from and what can be changed.
fn verdict(explained: &Explanation, room: usize, width: usize) -> Vec<String> {
    let told = explained.told();
    let numbered = told.iter().filter(|one| one.number.is_some()).count();
    let mut lines = vec![String::new(), "verdict".to_owned()];
    if let Some(fired) = &explained.fired {
        lines.extend(hung("this dump: ", &escaped(fired), width));
    }
    if let Some(first) = explained.first_sentence() {
        lines.extend(hung("", &first, width));
    }
    let cost = explained.cost();
    let cost = cost.map(|cost| format!("What switching itself costs: {cost}."));
    let last = cost.map_or_else(Vec::new, |cost| hung("", &cost, width));
    let (causes, besides) = told.split_at(numbered);
    let besides_shown = match numbered {
        0 => BESIDES_NONE,
        _ => BESIDES_CAUSES,
    };
    let mut short: Vec<_> = causes.iter().map(|one| sentence(one, width)).collect();
    let mut left_out = besides.len().saturating_sub(besides_shown);
    for (place, one) in causes.iter().enumerate() {
        let whole = cause(one, width);
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
        if lines.len() + short[place].len() + last.len() + 2 > room {
            left_out += causes.len() - place;
            break;
        }
        lines.append(&mut short[place]);
    }
    let mut is_first = true;
    for one in besides.iter().take(besides_shown) {
        let more = cause(one, width);
        if lines.len() + more.len() + last.len() + 4 > room {
            left_out += 1;
            continue;
        }
        if is_first {
            lines.push(String::new());
            lines.extend(hung("", BESIDES, width));
        }
        is_first = false;
        lines.extend(more);
    }
    if left_out > 0 {
        let all = format!("({left_out} more in --full, see below)");
        lines.extend(hung("", &all, width));
    }
    lines.extend(last);
    lines
}

fn sentence(one: &FindingText, width: usize) -> Vec<String> {
    let mark = match one.number {
        Some(number) => format!("{number}. "),
        None => "- ".to_owned(),
    };
    hung(&mark, &one.seen, width)
}

fn cause(one: &FindingText, width: usize) -> Vec<String> {
    let mut lines = sentence(one, width);
    let most = match one.number {
        Some(1) => PLACES,
        Some(_) => PLACES_OF_FURTHER,
        None => PLACES_BESIDES,
    };
    for line in one.places.iter().take(most) {
        lines.extend(hung("   ", &escaped(line), width));
    }
    if one.number.is_none() {
        return lines;
    }
    if let Some(worth) = &one.worth {
        lines.extend(hung("   costs: ", worth, width));
    }
    if let Some(advice) = &one.advice {
        lines.extend(hung("   to change it: ", &advice.change, width));
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
