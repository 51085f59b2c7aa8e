//! The answer in words, as a table, and for programs.
//!
//! ```text
//! A, B            which side is which, how many runs, of what
//! comparable      what else differs, and why it matters
//! verdict         one sentence
//! ─────────
//! figures that surely changed, the largest change first
//! how many did not change, how many were too rare; what the intervals mean
//! ```

use std::io::Write;
use std::path::Path;
use std::rc::Rc;

use anyhow::Result;
use serde_json::{Value, json};
use swtch_core::Nanos;
use swtch_core::compare::CompareMethod;
use swtch_output::answer::{self, VerbAnswer};
use swtch_output::column::Column;
use swtch_output::message;
use swtch_output::sheet::{Cell, Sheet};
use swtch_output::text::{self, counted, escaped, grouped};

use super::comparable::{SideDifference, mean_length};
use super::figure::{AmountKey, FigureKey, FigureUnit};
use super::judge::{
    FigureVerdict, JudgedFigure, Judgement, LEAST_EVENTS, LEAST_OF_A_PAIR, NotJudgedReason, Per,
};
use super::measure::MeasuredRun;
use super::{DiffOutcome, DiffRequest};
use crate::report::group::or_missing;
use crate::report::head::host_words;
use crate::report::words;

/// Columns that people read.
const SHOWN: [&str; 7] = [
    "verdict",
    "figure",
    "before",
    "after",
    "change_pct",
    "from_pct",
    "to_pct",
];

/// The widest that a figure's name is shown; longer ones, of stacks, are cut.
const WIDEST_FIGURE: usize = 60;

/// Findings that the verdict names.
const NAMED_IN_VERDICT: usize = 2;

/// The two sides of a comparison, and what was found.
#[derive(Debug)]
pub struct DiffAnswer<'r> {
    pub(super) a: Vec<MeasuredRun>,
    pub(super) b: Vec<MeasuredRun>,
    pub(super) differences: Vec<SideDifference>,
    pub(super) judgement: Judgement,
    pub(super) per: Per,
    /// The kind of span by which amounts are divided.
    pub(super) span: Option<Rc<str>>,
    pub(super) request: &'r DiffRequest,
}

impl VerbAnswer for DiffAnswer<'_> {
    fn to_table(&self) -> String {
        let width = text::page_width();
        let hung = |label: &str, words: &str| text::hung(&format!("{label:<12}"), words, width);
        let mut lines = Vec::new();
        for (label, words) in self.sides() {
            lines.extend(hung(label, &words));
        }
        if let Some(words) = self.unit_words() {
            lines.extend(hung("per", &words));
        }
        lines.extend(hung("comparable", &self.comparability()));
        for difference in self.difference_lines() {
            lines.extend(hung("          -", &difference));
        }
        lines.extend(hung("verdict", &self.verdict()));
        if let Some(gate) = self.gate() {
            lines.extend(hung("", &gate));
        }
        let mut page = lines.join("\n") + "\n\n";
        let rows = self.shown_rows();
        if !rows.is_empty() {
            page += &self
                .people_sheet(&rows, WIDEST_FIGURE)
                .to_table_in(text::table_width(), usize::MAX);
            page.push('\n');
        }
        for note in self.notes() {
            for line in text::hung("", &note, width) {
                page += &format!("{line}\n");
            }
        }
        page
    }

    fn to_json(&self) -> Value {
        let judgement = &self.judgement;
        let figures: Vec<_> = self.all_rows().collect();
        let sheet = self.sheet();
        let mut rows = sheet.to_json_rows();
        for (row, figure) in rows.iter_mut().zip(&figures) {
            row["before_runs"] = figure.a.clone().into();
            row["after_runs"] = figure.b.clone().into();
        }
        let differences: Vec<_> = self.differences.iter().map(difference_to_json).collect();
        json!({
            "schema": "swtch.diff/1",
            "a": side_to_json(&self.a),
            "b": side_to_json(&self.b),
            "per": self.per.as_str(),
            "span": self.span.as_deref(),
            "filter": self.request.filter.to_words(),
            "differences": differences,
            "method": judgement.method.as_str(),
            "judged_together": judgement.judged(),
            "confidence_of_all": swtch_core::cost::CONFIDENCE,
            "verdict": self.verdict(),
            "hidden_in_half_pct": judgement.hidden_pct().map(|[_, half]| half),
            "fail_over_pct": self.request.fail_over_pct,
            "regressions": self.regressions().iter().map(|figure| figure.key.words()).collect::<Vec<_>>(),
            "columns": sheet.to_json_columns(),
            "rows": rows,
            "notes": self.notes(),
        })
    }

    fn to_csv(&self) -> Result<String> {
        for difference in &self.differences {
            message!("swtch: note: {}", escaped(&difference_line(difference)));
        }
        Ok(self.sheet().to_csv())
    }
}

impl DiffAnswer<'_> {
    /// Writes the answer in the format that was asked for.
    ///
    /// # Errors
    /// When `out` cannot be written.
    pub fn write(&self, out: &mut dyn Write) -> Result<()> {
        answer::write(self, self.request.format, out)
    }

    /// Returns [`DiffOutcome::Regressed`] if a figure is worse by more than the limit.
    pub fn outcome(&self) -> DiffOutcome {
        if self.regressions().is_empty() {
            DiffOutcome::Passed
        } else {
            DiffOutcome::Regressed
        }
    }

    /// Returns which side is which, and on which machine: labels and words.
    pub(super) fn sides(&self) -> Vec<(&'static str, String)> {
        let mut lines = vec![
            ("A  before", side_words(&self.a)),
            ("B  after", side_words(&self.b)),
        ];
        if !self.differs_in("host")
            && !self.differs_in("kernel")
            && let Some(run) = self.a.first()
        {
            lines.push(("host", host_words(&run.meta.host).to_line()));
        }
        lines
    }

    /// Says by which spans amounts are divided, and how many there were.
    pub(super) fn unit_words(&self) -> Option<String> {
        let kind = self.span.as_ref()?;
        let count = |runs: &[MeasuredRun]| {
            let all: f64 = runs.iter().map(MeasuredRun::all_units).sum();
            number_words(all)
        };
        Some(format!(
            "span {kind} (A {}, B {}; --per second compares rates)",
            count(&self.a),
            count(&self.b)
        ))
    }

    fn differs_in(&self, what: &str) -> bool {
        self.differences
            .iter()
            .any(|difference| difference.what == what)
    }

    /// Says whether the sides may be compared.
    pub(super) fn comparability(&self) -> String {
        match self.differences.len() {
            0 => "yes: the same host, kernel, CPUs and recording; nothing lost".to_owned(),
            some => format!(
                "with care: {} could explain a change by itself",
                counted(some as u64, "difference")
            ),
        }
    }

    /// Says what could explain a change by itself, and why.
    pub(super) fn difference_lines(&self) -> impl Iterator<Item = String> {
        self.differences.iter().map(difference_line)
    }

    /// One sentence, for a reader who has never seen this program.
    pub(super) fn verdict(&self) -> String {
        let judgement = &self.judgement;
        let judged = judgement.judged();
        let changed: Vec<_> = judgement.changed().collect();
        if judged == 0 {
            return "nothing could be judged: the runs are too short, or hold too few switches"
                .to_owned();
        }
        let figures = counted(judged as u64, "figure");
        if changed.is_empty() {
            return format!(
                "no sure change in any of {figures} compared{}",
                self.hidden()
            );
        }
        let count = |verdict| judgement.with(verdict).count();
        let (worse, better) = (count(FigureVerdict::Worse), count(FigureVerdict::Better));
        let neither = count(FigureVerdict::More) + count(FigureVerdict::Less);
        let lead = match (worse, better) {
            (0, 0) => "B differs from A, and is neither better nor worse",
            (_, 0) => "B is worse than A",
            (0, _) => "B is better than A",
            (_, _) => "B is worse than A in some figures and better in others",
        };
        let parts = [(worse, "worse"), (better, "better"), (neither, "neither")];
        let parts = parts.iter().filter(|(count, _)| *count > 0);
        let parts: Vec<_> = parts
            .map(|(count, word)| format!("{count} {word}"))
            .collect();
        let how = match judgement.method {
            CompareMethod::Blocks => "changed, as far as one run each can tell",
            _ => "surely changed",
        };
        // What is worse is named first.
        let mut named: Vec<_> = judgement.with(FigureVerdict::Worse).collect();
        let is_other = |figure: &&&JudgedFigure| figure.verdict() != FigureVerdict::Worse;
        named.extend(changed.iter().filter(is_other));
        let more = if named.len() > NAMED_IN_VERDICT {
            ", …"
        } else {
            ""
        };
        let named = named.iter().take(NAMED_IN_VERDICT);
        let named: Vec<_> = named.map(|figure| phrase(figure)).collect();
        format!(
            "{lead}: {} of {figures} {how} ({}): {}{more}",
            changed.len(),
            parts.join(", "),
            named.join(", ")
        )
    }

    /// Says which changes would not have been seen.
    fn hidden(&self) -> String {
        let Some([quarter, half]) = self.judgement.hidden_pct() else {
            return String::new();
        };
        format!(
            "; the noise could hide changes up to {} in the steadiest quarter of them, and up to {} in half",
            percent(quarter),
            percent(half)
        )
    }

    /// Says what `--fail-over` found; `None` without that option.
    pub(super) fn gate(&self) -> Option<String> {
        let limit = self.request.fail_over_pct?;
        let regressions = self.regressions();
        let limit = percent(limit);
        let weakness = match self.judgement.method {
            CompareMethod::Blocks => " (weak: one run on each side)",
            _ => "",
        };
        if regressions.is_empty() {
            return Some(format!(
                "passed: no figure is surely worse by more than {limit}{weakness}"
            ));
        }
        let named: Vec<_> = regressions.iter().map(|figure| phrase(figure)).collect();
        Some(format!(
            "FAILED: {} worse by more than {limit}{weakness}: {}",
            counted(regressions.len() as u64, "figure"),
            named.join("; ")
        ))
    }

    fn regressions(&self) -> Vec<&JudgedFigure> {
        let limit = self.request.fail_over_pct;
        limit.map_or_else(Vec::new, |limit| self.judgement.regressions(limit))
    }

    fn all_rows(&self) -> impl Iterator<Item = &JudgedFigure> {
        self.judgement.figures.iter()
    }

    pub(super) fn shown_rows(&self) -> Vec<&JudgedFigure> {
        let shows_all = self.request.shows_all;
        self.all_rows()
            .filter(|figure| shows_all || figure.verdict().is_change())
            .collect()
    }

    /// The rows for people. A figure's name is cut to `widest` columns.
    pub(super) fn people_sheet(&self, rows: &[&JudgedFigure], widest: usize) -> Sheet {
        let mut sheet = Sheet::new("diff", &SHOWN);
        let per = self.per;
        sheet.rows = rows
            .iter()
            .map(|figure| {
                let [before, after] = figure.means().map(|mean| {
                    mean.map_or(Cell::Missing, |mean| {
                        Cell::text(value_words(mean, &figure.key, per))
                    })
                });
                let [low, high] = figure
                    .interval_pct()
                    .map_or([None; 2], |ends| ends.map(Some));
                vec![
                    Cell::text(figure.verdict().as_str()),
                    Cell::text(text::cut(&figure.key.words(), widest)),
                    before,
                    after,
                    signed(figure.change_pct(), figure),
                    signed(low, figure),
                    signed(high, figure),
                ]
            })
            .collect();
        sheet
    }

    /// The rows for programs.
    fn sheet(&self) -> Sheet {
        let rows = self.all_rows().map(|figure| FigureRow {
            figure,
            per: self.per,
            limit: self.request.fail_over_pct,
        });
        Sheet::of("diff", &columns(), rows)
    }

    /// Says what a reader must know to read the numbers correctly, one paragraph each.
    pub(super) fn notes(&self) -> Vec<String> {
        let judgement = &self.judgement;
        let mut notes = vec![self.counts()];
        notes.push(match judgement.method {
            CompareMethod::Runs => "from … to: where the true change lies; 95 % sure for all figures \
                together (Welch's t over the runs, corrected by Holm)"
                .to_owned(),
            CompareMethod::OneAgainstRuns => "from … to: where the true change lies, 95 % sure for all \
                figures together, if the single run's side varies as the other side does; several runs \
                on both sides tell more"
                .to_owned(),
            CompareMethod::Blocks => format!(
                "weak: one run on each side. The intervals hold what varied inside these two runs, and {} \
                 more, but nobody knows how much runs of this program differ. Another pair may say \
                 something else: for a claim, record 5 runs of each, in turns",
                percent(LEAST_OF_A_PAIR * 100.0)
            ),
        });
        if matches!(self.per, Per::Turn | Per::Span) {
            notes.push(
                "the time for which tasks wait for messages or until a time is not compared: it follows from the load \
                 (--per second compares it)"
                    .to_owned(),
            );
        }
        if judgement
            .changed()
            .any(|figure| figure.change.is_ok_and(|change| change.is_by_difference))
        {
            notes.push(
                "a figure that is 0 in some run has no ratio there: it is compared as a difference, and \
                 its change is that difference in percent of A's mean"
                    .to_owned(),
            );
        }
        if self.request.prices.is_some() {
            notes.push(
                "price: both sides are billed by one price list, so an error of a price is the same in \
                 both and leaves the change as it is"
                    .to_owned(),
            );
        }
        notes
    }

    /// Says how many figures did not change, and how many were not compared.
    fn counts(&self) -> String {
        let judgement = &self.judgement;
        let unsure = judgement.with(FigureVerdict::NotSure).count() as u64;
        let mut parts = vec![format!(
            "{} without a sure change",
            counted(unsure, "figure")
        )];
        let because = |why| {
            let figures = judgement.figures.iter();
            figures.filter(|figure| figure.change == Err(why)).count() as u64
        };
        let rare = because(NotJudgedReason::Rare);
        if rare > 0 {
            parts.push(format!("{rare} too rare to judge (fewer than {LEAST_EVENTS} events in a run, or 500 for a p99)"));
        }
        let alone = because(NotJudgedReason::OneValue) + because(NotJudgedReason::Short);
        if alone > 0 {
            parts.push(format!("{alone} that one run on each side cannot tell"));
        }
        let further = [
            (
                judgement.further_pairs,
                "smaller pair of programs",
                "smaller pairs of programs",
            ),
            (
                judgement.further_stacks,
                "smaller place of waits",
                "smaller places of waits",
            ),
        ];
        for (count, one, many) in further {
            if count > 0 {
                let words = if count == 1 { one } else { many };
                parts.push(format!("{} {words} not compared", grouped(count as u64)));
            }
        }
        let how = if self.request.shows_all {
            ""
        } else {
            " (--full shows them)"
        };
        format!("besides: {}{how}", parts.join(", "))
    }
}

/// A figure and its change, inside a sentence.
fn phrase(figure: &JudgedFigure) -> String {
    let name = text::cut(&figure.key.words(), WIDEST_FIGURE);
    match (figure.change_pct(), figure.interval_pct()) {
        (Some(change), Some([low, high])) => format!(
            "{name} {} ({} to {})",
            signed_percent(change),
            signed_percent(low),
            signed_percent(high)
        ),
        _ => format!("{name} is new"),
    }
}

/// A row for programs.
struct FigureRow<'a> {
    figure: &'a JudgedFigure,
    per: Per,
    /// The change from which on a figure that is worse is a regression, in percent.
    limit: Option<f64>,
}

impl FigureRow<'_> {
    /// The ends of the interval of the change, in percent.
    fn end_pct(&self, end: usize) -> Cell {
        let ends = self.figure.interval_pct();
        or_missing(ends, |ends| Cell::Percent(ends[end]))
    }

    fn mean(&self, side: usize) -> Cell {
        or_missing(self.figure.means()[side], Cell::Ratio)
    }
}

/// The columns for programs. Values are in the unit that the row names.
fn columns<'a>() -> [Column<FigureRow<'a>>; 18] {
    [
        Column::new(words::VERDICT, |row| {
            Cell::text(row.figure.verdict().as_str())
        }),
        Column::new(words::FIGURE, |row| Cell::text(row.figure.key.words())),
        Column::new(
            words::KIND.saying("kind of figure: a length, a rate, a share of time"),
            |row| Cell::text(row.figure.key.kind()),
        ),
        Column::new(words::REASON, |row| {
            let reason = row.figure.key.reason();
            or_missing(reason, |reason| Cell::text(reason.as_str()))
        }),
        Column::new(words::TAKER, |row| match &row.figure.key {
            FigureKey::Amount(AmountKey::Pair { taker, .. }) => Cell::text(&**taker),
            _ => Cell::Missing,
        }),
        Column::new(words::VICTIM, |row| match &row.figure.key {
            FigureKey::Amount(AmountKey::Pair { victim, .. }) => Cell::text(&**victim),
            _ => Cell::Missing,
        }),
        Column::new(words::STACK, |row| match &row.figure.key {
            FigureKey::Amount(AmountKey::Stack(place)) => Cell::text(&*place.folded),
            _ => Cell::Missing,
        }),
        Column::new(words::UNIT, |row| {
            Cell::text(unit_word(&row.figure.key, row.per))
        }),
        Column::new(words::BEFORE, |row| row.mean(0)),
        Column::new(words::AFTER, |row| row.mean(1)),
        Column::new(words::CHANGE, |row| {
            or_missing(row.figure.change_pct(), Cell::Percent)
        }),
        Column::new(words::CHANGE_LOW, |row| row.end_pct(0)),
        Column::new(words::CHANGE_HIGH, |row| row.end_pct(1)),
        Column::new(words::ADJUSTED_P, |row| {
            let change = row.figure.change.ok();
            or_missing(change, |change| Cell::Ratio(change.p))
        }),
        Column::new(words::SCALE, |row| {
            let change = row.figure.change.ok();
            or_missing(change, |change| {
                Cell::text(if change.is_by_difference {
                    "difference"
                } else {
                    "ratio"
                })
            })
        }),
        Column::new(words::WORSE_IS, |row| {
            Cell::text(if row.figure.key.is_worse_if_more() {
                "more"
            } else {
                "neither"
            })
        }),
        Column::new(words::IS_REGRESSION, |row| {
            let is_regression = row
                .limit
                .is_some_and(|limit| row.figure.is_regression(limit));
            Cell::text(if is_regression { "yes" } else { "no" })
        }),
        Column::new(words::NOT_JUDGED_BECAUSE, |row| {
            let why = row.figure.change.err();
            or_missing(why, |why: NotJudgedReason| Cell::text(why.as_str()))
        }),
    ]
}

/// A percentage in a table. A figure that was judged but has no ratio is new.
fn signed(value: Option<f64>, figure: &JudgedFigure) -> Cell {
    match value {
        Some(value) if value.is_finite() && value < 1e5 => Cell::Percent(value),
        Some(_) => Cell::Missing,
        None if figure.change.is_ok() => Cell::text("new"),
        None => Cell::Missing,
    }
}

fn percent(value: f64) -> String {
    let digits = if value.abs() < 10.0 { 1 } else { 0 };
    let words = format!("{value:.digits$}");
    format!("{} %", words.trim_end_matches(".0"))
}

pub fn signed_percent(value: f64) -> String {
    format!("{value:+.1} %")
}

/// A value with its unit.
fn value_words(value: f64, key: &FigureKey, per: Per) -> String {
    let time = || Nanos::from_rounded(value).to_string();
    match (key.unit(), per) {
        (FigureUnit::Length, _) | (FigureUnit::TimeShare, Per::Run) => time(),
        (FigureUnit::Events, Per::Run) => number_words(value),
        (FigureUnit::TimeShare, Per::Second) => format!("{}/s", time()),
        (FigureUnit::Events, Per::Second) => format!("{}/s", number_words(value)),
        (FigureUnit::TimeShare, Per::Turn | Per::Span) => format!("{}/{}", time(), per.as_str()),
        (FigureUnit::Events, Per::Turn | Per::Span) => {
            format!("{}/{}", number_words(value), per.as_str())
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a number of events is not negative; a cast from float saturates"
)]
fn number_words(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        small if small < 10.0 => format!("{small:.2}"),
        medium if medium < 100.0 => format!("{medium:.1}"),
        large => grouped(large.round() as u64),
    }
}

const fn unit_word(key: &FigureKey, per: Per) -> &'static str {
    match (key.unit(), per) {
        (FigureUnit::Length, _) => "ns",
        (FigureUnit::TimeShare, Per::Second) => "ns_per_s",
        (FigureUnit::TimeShare, Per::Run) => "ns_per_run",
        (FigureUnit::Events, Per::Second) => "per_s",
        (FigureUnit::Events, Per::Run) => "per_run",
        (FigureUnit::TimeShare, Per::Turn) => "ns_per_turn",
        (FigureUnit::Events, Per::Turn) => "per_turn",
        (FigureUnit::TimeShare, Per::Span) => "ns_per_span",
        (FigureUnit::Events, Per::Span) => "per_span",
    }
}

/// Number of runs, their length, what was recorded, and the traces.
fn side_words(runs: &[MeasuredRun]) -> String {
    let mean = mean_length(runs);
    let lengths = || runs.iter().map(|run| run.length);
    let length = match (lengths().min(), lengths().max()) {
        (Some(least), Some(most)) if least != most => format!("{mean} ({least} to {most})"),
        _ => mean.to_string(),
    };
    let meta = runs.first().map(|run| &run.meta);
    let what = meta.map_or_else(String::new, |meta| {
        if meta.command.is_empty() {
            meta.scope.clone()
        } else {
            meta.command.join(" ")
        }
    });
    let count = counted(runs.len() as u64, "run");
    format!(
        "{count} of {length} · {} · {}",
        text::cut(&what, WIDEST_FIGURE),
        paths(runs)
    )
}

fn paths(runs: &[MeasuredRun]) -> String {
    let shown = |run: &MeasuredRun| run.path.display().to_string();
    match runs {
        [first, .., last] => format!("{} … {}", shown(first), shown(last)),
        [one] => shown(one),
        [] => String::new(),
    }
}

fn difference_line(difference: &SideDifference) -> String {
    let SideDifference { what, a, b, why } = difference;
    if a == b {
        format!("{what}: {a} on both sides; {why}")
    } else {
        format!("{what}: A {a}, B {b}; {why}")
    }
}

fn difference_to_json(difference: &SideDifference) -> Value {
    json!({
        "what": difference.what,
        "a": difference.a,
        "b": difference.b,
        "why": difference.why,
    })
}

fn side_to_json(runs: &[MeasuredRun]) -> Value {
    let run_to_json = |run: &MeasuredRun| {
        let host = &run.meta.host;
        json!({
            "path": Path::to_string_lossy(&run.path),
            "hostname": host.hostname,
            "kernel_release": host.kernel_release,
            "preemption": host.preemption,
            "cpu_model": host.cpu_model,
            "cpu_pressure_ns": run.meta.load.cpu_pressure_ns(),
            "steal_ns": run.meta.load.steal_ns(),
            "cpus": host.cpus,
            "usable_cpus": host.usable_cpus,
            "command": run.meta.command,
            "scope": run.meta.scope,
            "duration_ns": run.length.as_ns(),
            "lost": run.lost,
            "missing": run.missing,
        })
    };
    json!({ "runs": runs.iter().map(run_to_json).collect::<Vec<_>>() })
}
