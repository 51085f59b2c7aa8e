//! `report --by level`: how often the kernel and a user-mode scheduler switch, and how the runs of
//! the two levels nest.
//!
//! ```text
//! user  ├──── 7 ────┤├─ 9 ─┤├──── 7 ────┤      a user run, and OS switches inside it: 1, 0, 0
//! os    ├─ thread ─┤   ├───── thread ──────┤   an OS run, and user switches inside it:  0, 2
//! ```
//!
//! This is the only report that reads rows of both levels. It never adds them: it exists because a
//! count at one level says nothing about the other.

use std::io::Write;

use anyhow::Result;
use rustc_hash::FxHashMap;
use serde_json::json;
use swtch_core::{Distribution, Level, Nanos, Reason, Switch, Timestamp};
use swtch_output::column::{Column, Word};
use swtch_output::sheet::{Cell, Sheet, percent};
use swtch_output::text::{counted, grouped};
use swtch_store::{Columns, Trace, UserCounts};

use super::filtered_trace::FilteredTrace;
use super::group::or_missing;
use super::tally::{self, OfTally};
use super::{ReportAnswer, ReportRequest, WAIT, report_sheet, words};
use swtch_core::Tally;

/// A row of the table of levels.
struct LevelRow<'a> {
    level: Level,
    of: &'a OneLevel,
    duration: Option<Nanos>,
}

impl OfTally for LevelRow<'_> {
    fn tally(&self) -> &Tally {
        &self.of.tally
    }

    /// Levels are never added up.
    fn all(&self) -> u64 {
        self.of.tally.switches
    }
}

impl LevelRow<'_> {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    fn per_second(&self) -> Option<f64> {
        let seconds = self.duration?.as_ns() as f64 / 1e9;
        (seconds > 0.0).then(|| self.of.tally.switches as f64 / seconds)
    }

    fn mean_run(&self) -> Option<Nanos> {
        let mean = self.of.tally.ran.as_ns().checked_div(self.of.run.count());
        mean.map(Nanos::from_ns)
    }
}

fn columns<'a>() -> Vec<Column<LevelRow<'a>>> {
    let [switches, _] = tally::counts();
    let [ran, waits, off, blocked, runq, ..] = tally::times();
    let mut columns: Vec<Column<LevelRow<'_>>> = vec![
        Column::new(words::LEVEL, |row| Cell::text(row.level.as_str())),
        switches,
        Column::new(words::PER_S, |row| {
            or_missing(row.per_second(), Cell::Ratio)
        }),
    ];
    columns.extend(tally::kinds());
    columns.extend(tally::main_reason());
    let rest: [Column<LevelRow<'_>>; 8] = [
        ran,
        Column::new(words::RUN_MEAN, |row| Cell::time(row.mean_run())),
        Column::new(words::RUN_P50, |row| {
            Cell::time(row.of.run.percentile(50.0))
        }),
        Column::new(words::RUN_P99, |row| {
            Cell::time(row.of.run.percentile(99.0))
        }),
        waits,
        off,
        blocked,
        runq,
    ];
    columns.extend(rest);
    columns
}

/// Writes the report.
///
/// # Errors
///
/// As [`super::report`].
pub fn report(trace: &Trace, request: &ReportRequest, out: &mut dyn Write) -> Result<()> {
    let mut filtered = FilteredTrace::open(trace, &request.filter)?;
    let columns = Columns::TS
        | Columns::RULE
        | Columns::BITS
        | Columns::RAN
        | Columns::LEVEL
        | Columns::USER_TASK
        | Columns::USER
        | WAIT;
    let start = Timestamp::from_ns(trace.meta().start_ns);
    let mut levels = LevelStatistics::new(start);
    let rows = filtered.scan_levels(columns, &mut |row, task, counted| {
        levels.add(row, task, counted.switch, counted.wait);
    })?;
    let head = filtered.head();
    let seconds = request.filter.is_of_all_time().then(|| head.duration());
    let mut sheet = levels.sheet(seconds);
    sheet.notes = levels.notes(trace.meta().user.as_ref());
    let parts = levels.parts();
    let more = parts
        .iter()
        .map(|part| (part.key.to_owned(), part.sheet.to_json_rows().into()));
    let mut more: serde_json::Map<_, _> = more.collect();
    more.insert("attribution".into(), levels.attribution.to_json());
    more.insert("user".into(), json!(trace.meta().user));
    let below = parts
        .iter()
        .map(|part| format!("\n{}\n{}", part.title, part.sheet.to_table(usize::MAX)));
    let answer = ReportAnswer {
        head,
        rows,
        sheet,
        top: request.top,
        table: Sheet::to_table,
        below: below.collect(),
        more: more.into(),
    };
    answer.write(request.format, out)
}

/// A table below the first.
struct LevelTable {
    /// Heading above the table, for people.
    title: &'static str,
    /// Name of its member in the JSON object.
    key: &'static str,
    sheet: Sheet,
}

#[derive(Debug)]
struct LevelStatistics {
    start: Timestamp,
    of: [OneLevel; Level::ALL.len()],
    threads: FxHashMap<usize, ThreadOpenRuns>,
    attribution: Attribution,
    os_in_user_run: Histogram,
    user_in_os_run: Histogram,
}

#[derive(Debug, Default)]
struct OneLevel {
    tally: Tally,
    run: Distribution,
    /// Yields after which the same worker ran on, which are not switches.
    alone: u64,
}

/// The runs of one thread that have not ended, at both levels, and the switches seen in them.
#[derive(Debug, Default)]
struct ThreadOpenRuns {
    /// The user run in which OS switches were seen: worker and number of the run.
    user_run: Option<(u64, u32)>,
    os_switches: u64,
    /// User switches since the last OS switch; `None` before the first one of either.
    user_switches: Option<u64>,
    /// True if the OS run began after the first user switch was seen.
    is_whole: bool,
}

/// OS switches of threads that belong to user-mode schedulers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Attribution {
    /// Switches while a worker ran, which stopped that worker, too.
    with_worker: u64,
    /// Switches while no worker ran: the scheduler was idle.
    without_worker: u64,
}

impl LevelStatistics {
    fn new(start: Timestamp) -> Self {
        Self {
            start,
            of: std::array::from_fn(|_| OneLevel::default()),
            threads: FxHashMap::default(),
            attribution: Attribution::default(),
            os_in_user_run: Histogram::default(),
            user_in_os_run: Histogram::default(),
        }
    }

    /// Adds a row of `thread`. `counts` is about its switch, `wait_counts` about its wait.
    fn add(&mut self, row: &Switch, thread: usize, counts: bool, wait_counts: bool) {
        let level = &mut self.of[row.level.index()];
        if wait_counts {
            level.tally.add_wait(row);
        }
        if !counts {
            return;
        }
        if row.level == Level::User
            && row.user_task.is_some()
            && row.user_task == row.user.next_task
        {
            level.alone += 1;
            return;
        }
        level.tally.add_switch(row);
        if let Some(ran) = row.ran {
            level.run.record(ran);
        }
        match row.level {
            Level::Os => self.add_os(row, thread),
            Level::User => self.add_user(row, thread),
        }
    }

    fn add_os(&mut self, row: &Switch, thread: usize) {
        if let Some(run) = row.user.run {
            let state = self.threads.entry(thread).or_default();
            match row.user_task {
                Some(task) => {
                    self.attribution.with_worker += 1;
                    if state.user_run.replace((task, run)) != Some((task, run)) {
                        state.os_switches = 0;
                    }
                    state.os_switches += 1;
                }
                None => self.attribution.without_worker += 1,
            }
        }
        let Some(state) = self.threads.get_mut(&thread) else {
            return;
        };
        if let Some(switches) = &mut state.user_switches {
            let inside = std::mem::take(switches);
            if std::mem::replace(&mut state.is_whole, true) {
                self.user_in_os_run.add(inside);
            }
        }
    }

    fn add_user(&mut self, row: &Switch, thread: usize) {
        let state = self.threads.entry(thread).or_default();
        *state.user_switches.get_or_insert(0) += 1;
        let run = row.user_task.zip(row.user.run);
        let inside = match state.user_run.take() {
            seen if seen == run => state.os_switches,
            _ => 0,
        };
        state.os_switches = 0;
        // OS switches before the trace began have no row, so a run that began earlier is left out.
        let began = row
            .ran
            .and_then(|ran| row.ts.as_ns().checked_sub(ran.as_ns()));
        if began.is_some_and(|ns| ns >= self.start.as_ns()) {
            self.os_in_user_run.add(inside);
        }
    }

    fn of(&self, level: Level) -> &OneLevel {
        &self.of[level.index()]
    }

    fn sheet(&self, duration: Option<Nanos>) -> Sheet {
        let shown = Level::ALL
            .iter()
            .filter(|level| **level == Level::Os || !self.of(**level).tally.is_empty());
        let rows = shown.map(|level| LevelRow {
            level: *level,
            of: self.of(*level),
            duration,
        });
        report_sheet("level", &columns(), rows)
    }

    fn parts(&self) -> Vec<LevelTable> {
        let mut parts = vec![LevelTable {
            title: "switches by reason",
            key: "reasons",
            sheet: self.reasons(),
        }];
        if !self.of(Level::User).tally.is_empty() {
            parts.push(LevelTable {
                title: "OS switches inside one user run",
                key: "os_switches_in_user_run",
                sheet: self
                    .os_in_user_run
                    .sheet(words::OS_SWITCHES, words::USER_RUNS),
            });
            parts.push(LevelTable {
                title: "user switches inside one OS run of a scheduler's thread",
                key: "user_switches_in_os_run",
                sheet: self
                    .user_in_os_run
                    .sheet(words::USER_SWITCHES, words::OS_RUNS),
            });
        }
        parts
    }

    fn reasons(&self) -> Sheet {
        let count = |level: Level, reason: Reason| self.of(level).tally.reasons[reason.index()];
        let rows = Reason::ALL.iter().map(|reason| ReasonOfLevels {
            reason: *reason,
            os: count(Level::Os, *reason),
            user: count(Level::User, *reason),
        });
        let columns: [Column<ReasonOfLevels>; 4] = [
            Column::new(words::REASON, |row| Cell::text(row.reason.as_str())),
            Column::new(words::CATEGORY, |row| {
                Cell::text(row.reason.category().as_str())
            }),
            Column::new(words::OS, |row| Cell::Count(row.os)),
            Column::new(words::USER, |row| Cell::Count(row.user)),
        ];
        report_sheet("level", &columns, rows.filter(|row| row.os + row.user > 0))
    }

    /// Says what a reader must know to read the numbers correctly.
    fn notes(&self, user: Option<&UserCounts>) -> Vec<String> {
        let mut notes = vec![
            "the two levels are never one count: the kernel does not know of the switches of the other"
                .to_owned(),
        ];
        notes.extend(self.attribution.in_words());
        if self.of(Level::User).alone > 0 {
            notes.push(format!(
                "{} found nobody else runnable: no switch",
                counted(self.of(Level::User).alone, "yield")
            ));
        }
        if !self.of(Level::User).tally.is_empty() {
            notes.push(
                "a worker's run ends when the worker leaves, not when its thread does: it contains the time in \
                 which the kernel let others run, and may be longer than any run of its thread"
                    .to_owned(),
            );
        }
        let Some(user) = user else {
            notes.push("no user-mode scheduler was met".to_owned());
            return notes;
        };
        notes.push(format!(
            "user level: {} written by {} = {} stored + {} idle + {} lost + {} unnamed + {} not on disk",
            counted(user.written, "event"),
            counted(user.processes, "process"),
            grouped(user.stored),
            grouped(user.idle),
            grouped(user.lost),
            grouped(user.unnamed),
            grouped(user.storage_failed),
        ));
        if user.words_unread > 0 {
            notes.push(format!(
                "at {} OS switches the worker could not be read",
                grouped(user.words_unread)
            ));
        }
        notes.extend(user.refused.iter().cloned());
        notes
    }
}

impl Attribution {
    const fn all(self) -> u64 {
        self.with_worker + self.without_worker
    }

    fn in_words(self) -> Option<String> {
        let share = percent(self.with_worker, self.all())?;
        Some(format!(
            "of {} OS switches of schedulers' threads, {} ({share:.1} %) came while a worker ran, which \
             they carry, and {} while the scheduler ran none",
            grouped(self.all()),
            grouped(self.with_worker),
            grouped(self.without_worker),
        ))
    }

    fn to_json(self) -> serde_json::Value {
        json!({
            "os_switches_of_scheduler_threads": self.all(),
            "with_worker": self.with_worker,
            "without_worker": self.without_worker,
            "with_worker_pct": percent(self.with_worker, self.all()),
        })
    }
}

/// A row of the table of reasons.
struct ReasonOfLevels {
    reason: Reason,
    os: u64,
    user: u64,
}

/// A row of the table of a histogram.
struct BucketRow {
    ends: (u64, u64),
    count: u64,
    all: u64,
}

/// Counts of numbers, by size: 0, 1, 2–3, 4–7, ….
#[derive(Clone, Debug)]
struct Histogram([u64; Self::BUCKETS]);

impl Default for Histogram {
    fn default() -> Self {
        Self([0; Self::BUCKETS])
    }
}

impl Histogram {
    const BUCKETS: usize = 65;

    fn add(&mut self, number: u64) {
        let bucket = number.checked_ilog2().map_or(0, |log| log as usize + 1);
        self.0[bucket] += 1;
    }

    /// The smallest and the largest number of a bucket.
    const fn ends(bucket: usize) -> (u64, u64) {
        match bucket {
            0 => (0, 0),
            _ => (1 << (bucket - 1), u64::MAX >> (64 - bucket)),
        }
    }

    /// One row per bucket, up to the last that is not empty.
    fn sheet(&self, number: Word, what: Word) -> Sheet {
        let all = self.0.iter().sum();
        let used = self.0.iter().rposition(|count| *count > 0);
        let rows = (0..used.map_or(0, |last| last + 1)).map(|bucket| BucketRow {
            ends: Self::ends(bucket),
            count: self.0[bucket],
            all,
        });
        let columns: [Column<BucketRow>; 5] = [
            Column::new(number, |row| match row.ends {
                (from, to) if from == to => Cell::text(grouped(from)),
                (from, to) => Cell::text(format!("{}–{}", grouped(from), grouped(to))),
            }),
            Column::new(words::FROM, |row| Cell::Count(row.ends.0)),
            Column::new(words::TO, |row| Cell::Count(row.ends.1)),
            Column::new(what, |row| Cell::Count(row.count)),
            Column::new(words::SHARE, |row| Cell::share(row.count, row.all)),
        ];
        let mut sheet = report_sheet("level", &columns, rows);
        sheet.not_in_tables = &["from", "to"];
        sheet
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn::row;

    const THREAD: usize = 1;

    /// An OS switch at `us` µs, during this run of this worker.
    fn os(us: u64, word: Option<(u64, u32)>) -> Switch {
        let mut row = row(1, Reason::Slice);
        row.ts = Timestamp::from_ns(us * 1_000);
        row.user_task = word.map(|word| word.0).filter(|task| *task > 0);
        row.user.run = word.map(|word| word.1);
        row
    }

    /// A user switch at `us` µs that ends a run of 10 µs.
    fn user(us: u64, task: u64, run: u32, next: u64) -> Switch {
        let mut row = row(1, Reason::Yield);
        row.level = Level::User;
        row.ts = Timestamp::from_ns(us * 1_000);
        row.ran = Some(Nanos::from_ns(10_000));
        row.user_task = Some(task);
        row.user.run = Some(run);
        row.user.next_task = Some(next);
        row
    }

    fn levels(rows: &[Switch]) -> LevelStatistics {
        let mut levels = LevelStatistics::new(Timestamp::from_ns(0));
        rows.iter()
            .for_each(|row| levels.add(row, THREAD, true, true));
        levels
    }

    /// ```text
    /// user  ├─ 7 ─────────┤├─ 9 ─┤├─ 7 ───────┤
    /// os         ✕  ✕                 ✕   ✕ idle
    /// ```
    #[test]
    fn os_switches_are_counted_in_the_run_that_they_interrupt() {
        let levels = levels(&[
            os(12, Some((7, 1))),
            os(14, Some((7, 1))),
            user(20, 7, 1, 9),
            user(30, 9, 1, 7),
            os(35, Some((7, 2))),
            os(38, Some((0, 0))),
            user(40, 7, 2, 9),
        ]);
        let buckets = &levels.os_in_user_run.0;
        assert_eq!((buckets[0], buckets[1], buckets[2]), (1, 1, 1));
        assert_eq!(
            levels.attribution,
            Attribution {
                with_worker: 3,
                without_worker: 1
            }
        );
    }

    /// The first OS run began before the first user switch was seen.
    #[test]
    fn user_switches_are_counted_in_whole_os_runs() {
        let levels = levels(&[
            user(20, 7, 1, 9),
            os(25, Some((9, 1))),
            user(30, 9, 1, 7),
            user(40, 7, 2, 9),
            user(50, 9, 2, 7),
            os(55, Some((7, 3))),
            os(58, Some((7, 3))),
        ]);
        let buckets = &levels.user_in_os_run.0;
        assert_eq!((buckets[0], buckets[1], buckets[2]), (1, 0, 1));
    }

    /// If the end of a run was lost, its OS switches must not be counted in the next run.
    #[test]
    fn a_run_without_an_end_counts_nowhere() {
        let levels = levels(&[
            os(12, Some((7, 1))),
            os(14, Some((7, 1))),
            os(25, Some((9, 1))),
            user(30, 9, 1, 7),
        ]);
        let buckets = &levels.os_in_user_run.0;
        assert_eq!((buckets[0], buckets[1], buckets[2]), (0, 1, 0));
    }

    #[test]
    fn levels_are_counted_apart_and_a_yield_alone_is_no_switch() {
        let levels = levels(&[
            os(5, None),
            user(20, 7, 1, 9),
            user(30, 9, 1, 9),
            user(40, 9, 2, 7),
        ]);
        let sheet = levels.sheet(Some(Nanos::from_ns(2_000_000_000)));
        let rows = sheet.to_json_rows();
        assert_eq!(
            (&rows[0]["level"], &rows[0]["switches"]),
            (&json!("os"), &json!(1))
        );
        assert_eq!(
            (&rows[1]["level"], &rows[1]["switches"]),
            (&json!("user"), &json!(2))
        );
        assert_eq!(rows[1]["per_s"], 1.0);
        assert_eq!(
            (&rows[1]["voluntary"], &rows[1]["run_mean_ns"]),
            (&json!(2), &json!(10_000))
        );
        assert_eq!(levels.of(Level::User).alone, 1);
        assert_eq!(levels.reasons().rows.len(), 2);
    }

    /// A thread without a scheduler has neither words nor user switches.
    #[test]
    fn a_trace_without_schedulers_has_one_level() {
        let levels = levels(&[os(5, None), os(9, None)]);
        assert_eq!(levels.sheet(None).rows.len(), 1);
        assert_eq!(levels.parts().len(), 1);
        assert_eq!(levels.attribution.in_words(), None);
    }

    #[test]
    fn a_bucket_holds_a_power_of_two_of_numbers() {
        let mut histogram = Histogram::default();
        for number in [0, 1, 2, 3, 4, u64::MAX] {
            histogram.add(number);
        }
        assert_eq!(&histogram.0[..4], [1, 1, 2, 1]);
        assert_eq!((Histogram::ends(2), Histogram::ends(3)), ((2, 3), (4, 7)));
        assert_eq!(Histogram::ends(64).1, u64::MAX);
        assert_eq!(histogram.0[64], 1);
    }
}
