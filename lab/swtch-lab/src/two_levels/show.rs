//! The results of the scans as sentences, tables and the figure over time.

use swtch_core::Nanos;
use swtch_output::text;
use swtch_plot::content::{Axis, Chart, Content, Dot, Line, Mark, Measure, Scale, Style};
use swtch_plot::{self, Picture};
use swtch_report::report::{Cell, Sheet};

use super::exact::{EventCounts, SchedulerEvent};
use super::script::{HogPhase, LevelCounts, Scanned, ScannerKind, WindowCounts};
use super::{TwoLevelsResults, mode_name};
use crate::findings::FindingsTable;
use crate::measured::rate_in_words;

const LEVELS: [&str; 9] = [
    "who",
    "phase",
    "user_switches_per_s",
    "median_run_ns",
    "ran_by_its_books_pct",
    "os_voluntary_per_s",
    "os_involuntary_per_s",
    "cpu_pct",
    "os_per_user_switch",
];

const COUNTERS: [&str; 10] = [
    "mode",
    "event",
    "made",
    "yields",
    "switches",
    "self_reselects",
    "preemptive",
    "idle",
    "os_switches",
    "as_meant",
];

impl TwoLevelsResults {
    pub fn sentences(&self) -> Vec<String> {
        let mut sentences = Vec::new();
        let (hog, seconds) = self.sum(ScannerKind::Workers, HogPhase::Hog);
        if seconds > 0.0 {
            sentences.push(format!(
                "Beside the hog the scheduler's books say that its workers ran {:.0} % of the time, and the kernel \
                 gave their thread {:.0} %: the scheduler does not know that it was off the CPU, and its delay \
                 ({}) does not tell.",
                hog.running_ns as f64 / seconds / 1e7,
                hog.cpu_ns as f64 / seconds / 1e7,
                Nanos::from_ns(hog.delay_ns),
            ));
        }
        let rate = |who, phase| self.rate(who, phase, LevelCounts::os);
        let [alone, hog] =
            [HogPhase::Alone, HogPhase::Hog].map(|phase| rate(ScannerKind::Threads, phase));
        if alone.seconds > 0.0 {
            sentences.push(format!(
                "The same scans as threads of the kernel: {} OS switches alone and {} beside the hog, of which every \
                 one is a switch between workers, too.",
                rate_in_words(&alone),
                rate_in_words(&hog)
            ));
        }
        let preemptive = self.counted.iter();
        let preemptive: Vec<String> = preemptive
            .filter(|counted| counted.event == SchedulerEvent::Preemptive)
            .map(|counted| {
                format!(
                    "{} of {} came to {} preemptive switches",
                    text::counted(counted.made, "section"),
                    mode_name(counted),
                    counted.counts.preemptive
                )
            })
            .collect();
        if !preemptive.is_empty() {
            sentences.push(format!(
                "Work outside of the scheduler is counted apart: {}.",
                preemptive.join(", ")
            ));
        }
        sentences
    }

    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let lost: u64 = self.workers.iter().map(|scan| scan.lost_runs).sum();
        if lost > 0 {
            let runs = text::counted(lost, "run");
            notes.push(format!(
                "{runs} of workers were overwritten before they were read"
            ));
        }
        let odd = self
            .counted
            .iter()
            .filter(|counted| !counted.is_as_expected());
        notes.extend(odd.map(|counted| {
            format!(
                "{} × {} of {} were counted otherwise than meant",
                counted.made,
                counted.event.as_str(),
                mode_name(counted)
            )
        }));
        notes
    }

    pub fn levels(&self) -> FindingsTable {
        let mut sheet = Sheet::new("two-levels", &LEVELS);
        for who in [ScannerKind::Workers, ScannerKind::Threads] {
            for phase in [HogPhase::Alone, HogPhase::Hog] {
                let (sum, seconds) = self.sum(who, phase);
                if seconds > 0.0 {
                    sheet.rows.push(self.level_row(who, phase, sum, seconds));
                }
            }
        }
        FindingsTable::new("Both levels, per second", sheet)
    }

    fn level_row(
        &self,
        who: ScannerKind,
        phase: HogPhase,
        sum: LevelCounts,
        seconds: f64,
    ) -> Vec<Cell> {
        let per_s = |count: u64| Cell::Ratio(count as f64 / seconds);
        let percent = |ns: u64| Cell::Percent(ns as f64 / seconds / 1e7);
        let is_scheduler = who == ScannerKind::Workers;
        let of_scheduler = |cell: Cell| if is_scheduler { cell } else { Cell::Missing };
        let runs = self.runs(phase);
        let median = swtch_core::stats::median(&runs).filter(|_| is_scheduler);
        vec![
            Cell::text(who.to_string()),
            Cell::text(phase.as_str()),
            of_scheduler(per_s(sum.user)),
            Cell::time(median.map(Nanos::from_rounded)),
            of_scheduler(percent(sum.running_ns)),
            per_s(sum.voluntary),
            per_s(sum.involuntary),
            percent(sum.cpu_ns),
            match sum.user {
                0 => Cell::Missing,
                user => Cell::Ratio(sum.os() as f64 / user as f64),
            },
        ]
    }

    pub fn counters(&self) -> FindingsTable {
        let mut sheet = Sheet::new("counters", &COUNTERS);
        let row = |counted: &EventCounts| {
            vec![
                Cell::text(mode_name(counted)),
                Cell::text(counted.event.as_str()),
                Cell::Count(counted.made),
                Cell::Count(counted.counts.yields),
                Cell::Count(counted.counts.switches),
                Cell::Count(counted.counts.reselects),
                Cell::Count(counted.counts.preemptive),
                Cell::Count(counted.counts.idle),
                Cell::Count(counted.os),
                Cell::text(if counted.is_as_expected() {
                    "yes"
                } else {
                    "no"
                }),
            ]
        };
        sheet.rows = self.counted.iter().map(row).collect();
        FindingsTable::new("Known numbers of events, and who counted them", sheet)
    }

    pub fn picture(&self) -> Picture {
        let lines = [
            (
                "user switches of workers",
                ScannerKind::Workers,
                user as fn(&LevelCounts) -> u64,
            ),
            (
                "OS switches, same thread",
                ScannerKind::Workers,
                LevelCounts::os,
            ),
            (
                "OS switches of threads",
                ScannerKind::Threads,
                LevelCounts::os,
            ),
        ];
        let lines = lines.map(|(label, who, count)| {
            Line::new(label, Style::Measured, series(self.scans(who), count))
        });
        let lines: Vec<Line> = lines
            .into_iter()
            .filter(|line| !line.points.is_empty())
            .collect();
        Picture {
            name: "two-levels".to_owned(),
            title: "One thread, two counts: a hog comes and goes".to_owned(),
            subtitle: swtch_plot::subtitle(&swtch_host::origin()),
            explanation: "switches in each window over its length; medians of all rounds"
                .to_owned(),
            notes: Vec::new(),
            content: Content::Chart(Chart {
                x: Axis::new("time", Measure::Time, Scale::Linear),
                y: Axis::new("switches per second", Measure::Count, Scale::Linear),
                lines,
                marks: self.hog_marks(),
            }),
        }
    }

    fn hog_marks(&self) -> Vec<Mark> {
        let Some(scan) = self.workers.first().or_else(|| self.threads.first()) else {
            return Vec::new();
        };
        let Some(start) = scan.windows.first().map(|window| window.from_ns) else {
            return Vec::new();
        };
        let at = |moment: u64| (moment - start) as f64;
        let hog: Vec<_> = scan.of(HogPhase::Hog).collect();
        let mark = |at, label: &str| Mark {
            at,
            label: label.to_owned(),
        };
        let comes = hog
            .first()
            .map(|window| mark(at(window.from_ns), "hog comes"));
        let goes = hog.last().map(|window| mark(at(window.to_ns), "hog goes"));
        comes.into_iter().chain(goes).collect()
    }
}

const fn user(counts: &LevelCounts) -> u64 {
    counts.user
}

/// The rate in each window, as the median of all scans, at the middle of the window.
fn series(scans: &[Scanned], count: fn(&LevelCounts) -> u64) -> Vec<Dot> {
    let Some(first) = scans.first() else {
        return Vec::new();
    };
    let start = first.windows.first().map_or(0, |window| window.from_ns);
    let dot = |(place, window): (usize, &WindowCounts)| {
        let same = scans.iter().filter_map(|scan| scan.windows.get(place));
        let rates: Vec<f64> = same
            .filter(|window| window.seconds() > 0.0)
            .map(|window| count(&window.growth) as f64 / window.seconds())
            .collect();
        Some(Dot {
            x: (window.from_ns.midpoint(window.to_ns) - start) as f64,
            y: swtch_core::stats::median(&rates)?,
            interval: None,
        })
    };
    first.windows.iter().enumerate().filter_map(dot).collect()
}
