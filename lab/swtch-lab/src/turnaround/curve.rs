//! Turnaround and throughput over the number of processes, beside their ideal if nothing were lost,
//! and what the textbook says of the curves (D1 to D4).

use swtch_core::Nanos;
use swtch_plot::Picture;
use swtch_plot::content::{Axis, Chart, Content, Dot, Line, Mark, Measure, Scale, Style};
use swtch_report::report::{Cell, Sheet};

use super::jobs_result::JobsResult;
use super::{CpuChoice, CrowdSetting};
use crate::findings::{Findings, FindingsTable};
use crate::load_experiment::Rounds;
use crate::measured::LabNumber;
use crate::quantities::Quantities;

/// The share of the CPU time that goes unused from which a sentence tells of it.
const MUCH: f64 = 0.10;

/// The results of all settings and rounds.
pub struct Curves {
    cpus: usize,
    settings: Vec<CrowdSetting>,
    rounds: Rounds<JobsResult>,
}

/// Reads one number from the results of a play.
type Value = fn(&JobsResult) -> f64;

impl Curves {
    /// Curves from the rounds of these settings.
    pub const fn new(cpus: usize, settings: Vec<CrowdSetting>, rounds: Rounds<JobsResult>) -> Self {
        Self {
            cpus,
            settings,
            rounds,
        }
    }

    /// Tables and pictures.
    pub fn findings(&self, subtitle: &str) -> Findings {
        let cpu_choices = [CpuChoice::One, CpuChoice::All];
        let played = |cpu_choice: &CpuChoice| {
            self.settings
                .iter()
                .any(|setting| setting.cpu_choice == *cpu_choice)
        };
        let tables = cpu_choices.into_iter().filter(played);
        let mut findings = Findings {
            tables: tables.map(|cpu_choice| self.table(cpu_choice)).collect(),
            pictures: vec![
                self.picture(&TURNAROUND, subtitle),
                self.picture(&THROUGHPUT, subtitle),
            ],
            ..Findings::default()
        };
        findings.sentences.extend(self.idle_beside_waiting());
        findings
    }

    /// A sentence if CPU time went unused although there was a process for each CPU. Seen on 6.18:
    /// two stayed on one CPU for up to a tenth of a second while the other was idle, in one of ten
    /// to twenty plays.
    fn idle_beside_waiting(&self) -> Option<String> {
        let setting = self
            .index(CpuChoice::All, self.cpus)
            .filter(|_| self.cpus > 1)?;
        let unused = self.rounds.values(setting, JobsResult::overhead);
        let is_much = |share: &&f64| **share > MUCH;
        let worst = unused.iter().filter(is_much).copied().reduce(f64::max)?;
        Some(format!(
            "In {} of {} rounds with a process for each CPU, more than a tenth of the CPU time went unused ({:.0} \
             % at worst): the kernel left two on one CPU for a while, although another was idle.",
            unused.iter().filter(is_much).count(),
            unused.len(),
            worst * 100.0
        ))
    }

    fn index(&self, cpu_choice: CpuChoice, processes: usize) -> Option<usize> {
        let wanted = CrowdSetting {
            cpu_choice,
            processes,
        };
        self.settings.iter().position(|setting| *setting == wanted)
    }

    fn numbers_of_processes(&self, cpu_choice: CpuChoice) -> impl Iterator<Item = usize> {
        let settings = self.settings.iter();
        let of_choice = settings.filter(move |setting| setting.cpu_choice == cpu_choice);
        of_choice.map(|setting| setting.processes)
    }

    /// `value` at `processes` over that at `over` processes, for the same CPUs and round.
    fn ratio(
        &self,
        cpu_choice: CpuChoice,
        processes: usize,
        over: usize,
        value: Value,
    ) -> Option<LabNumber> {
        let (one, over) = (
            self.index(cpu_choice, processes)?,
            self.index(cpu_choice, over)?,
        );
        LabNumber::of(&self.rounds.ratios(one, over, value))
    }

    /// Adds what D1 to D4 ask.
    pub fn add_to(&self, all: &mut Quantities) {
        let (cpus, twice) = (self.cpus, 2 * self.cpus);
        let on_one = |value: Value| {
            let more = self.numbers_of_processes(CpuChoice::One).filter(|n| *n > 1);
            more.map(move |n| (n, self.ratio(CpuChoice::One, n, 1, value)))
        };
        let labelled = |(n, ratio): (usize, Option<LabNumber>)| (n.to_string(), ratio);
        all.list("turnaround", on_one(JobsResult::mean).map(labelled));
        all.list("throughput", on_one(JobsResult::throughput).map(labelled));
        let by_number = on_one(JobsResult::mean).map(|(n, ratio)| {
            let by_number = ratio.map(|ratio| ratio.scaled(1.0 / n as f64, 0.0));
            (n.to_string(), by_number)
        });
        all.list("in-proportion", by_number);
        all.words("cpus", cpus);
        all.words("twice", twice);
        if cpus == 1 {
            for claim in ["D3", "D4"] {
                all.cannot(
                    claim,
                    "all CPUs are one CPU here",
                    "one CPU only may be used",
                );
            }
        }
        let ratio = |to, from, value| self.ratio(CpuChoice::All, to, from, value);
        all.number("slowly", ratio(cpus, 1, JobsResult::mean));
        all.number("markedly", ratio(twice, cpus, JobsResult::mean));
        let rises = ratio(cpus, 1, JobsResult::throughput);
        all.number("rises", rises);
        all.number(
            "of-ideal",
            rises.map(|rises| rises.scaled(1.0 / cpus as f64, 0.0)),
        );
        all.number("stays", ratio(twice, cpus, JobsResult::throughput));
    }

    fn table(&self, cpu_choice: CpuChoice) -> FindingsTable {
        let (name, title) = match cpu_choice {
            CpuChoice::One => ("one_cpu", "on one CPU"),
            CpuChoice::All => ("all_cpus", "on all CPUs"),
        };
        let mut sheet = Sheet::new(name, &COLUMNS);
        for processes in self.numbers_of_processes(cpu_choice) {
            let Some(index) = self.index(cpu_choice, processes) else {
                continue;
            };
            let of = |value: Value| LabNumber::of(&self.rounds.values(index, value));
            let (Some(mean), Some(throughput)) = (of(JobsResult::mean), of(JobsResult::throughput))
            else {
                continue;
            };
            let time = |ns: Option<f64>| Cell::time(ns.map(Nanos::from_rounded));
            let point = |value: Value| of(value).map(|one| one.point);
            let number = |value: Option<f64>| value.map_or(Cell::Missing, Cell::Ratio);
            let percent = |share: f64| Cell::Percent(share * 100.0);
            sheet.rows.push(vec![
                Cell::Count(processes as u64),
                time(Some(mean.point)),
                time(mean.ends().map(|ends| ends.0)),
                time(mean.ends().map(|ends| ends.1)),
                time(point(JobsResult::p95)),
                time(point(JobsResult::makespan)),
                Cell::Ratio(throughput.point),
                number(throughput.ends().map(|ends| ends.0)),
                number(throughput.ends().map(|ends| ends.1)),
                number(point(JobsResult::fairness)),
                number(point(|jobs| jobs.switches)),
                point(JobsResult::overhead).map_or(Cell::Missing, percent),
                mean.rounds_cell(),
            ]);
        }
        FindingsTable::new(
            format!("busy processes {title}: turnaround and throughput"),
            sheet,
        )
    }

    fn picture(&self, what: &CurveOf, subtitle: &str) -> Picture {
        let mut lines = Vec::new();
        for cpu_choice in [CpuChoice::One, CpuChoice::All] {
            let label = cpu_choice.as_str();
            let Some(one) = self.index(cpu_choice, 1) else {
                continue;
            };
            let single = LabNumber::of(&self.rounds.values(one, what.value));
            let ideal = self
                .numbers_of_processes(cpu_choice)
                .filter_map(|processes| {
                    let cpus = CrowdSetting {
                        cpu_choice,
                        processes,
                    }
                    .usable_cpus(self.cpus);
                    let y = single?.point * (what.ideal)(processes as f64, cpus as f64);
                    Some(dot(processes, y, None))
                });
            let measured = self
                .numbers_of_processes(cpu_choice)
                .filter_map(|processes| {
                    let values = self
                        .rounds
                        .values(self.index(cpu_choice, processes)?, what.value);
                    let measured = LabNumber::of(&values)?;
                    Some(dot(processes, measured.point, measured.ends()))
                });
            lines.push(Line::new(format!("{label}, ideal"), Style::Ideal, ideal));
            lines.push(Line::new(label, Style::Measured, measured));
        }
        Picture {
            name: what.name.to_owned(),
            title: what.title.to_owned(),
            subtitle: subtitle.to_owned(),
            explanation: "a point: median of the rounds; bars: 95 % interval of the median"
                .to_owned(),
            notes: Vec::new(),
            content: Content::Chart(Chart {
                x: Axis::new("processes", Measure::Count, Scale::Linear),
                y: Axis::new(what.axis, what.measure, Scale::Linear),
                lines,
                marks: vec![Mark {
                    at: self.cpus as f64,
                    label: "CPUs".to_owned(),
                }],
            }),
        }
    }
}

const COLUMNS: [&str; 13] = [
    "processes",
    "turnaround_ns",
    "low_ns",
    "high_ns",
    "p95_ns",
    "makespan_ns",
    "jobs_per_s",
    "jobs_low",
    "jobs_high",
    "fairness",
    "switches",
    "overhead_pct",
    "rounds",
];

/// The quantity that a picture shows.
struct CurveOf {
    name: &'static str,
    title: &'static str,
    axis: &'static str,
    measure: Measure,
    value: Value,
    /// Ideal value for (processes, CPUs), relative to one process.
    ideal: fn(f64, f64) -> f64,
}

const TURNAROUND: CurveOf = CurveOf {
    name: "turnaround",
    title: "Mean turnaround of N busy processes",
    axis: "mean turnaround",
    measure: Measure::Time,
    value: JobsResult::mean,
    ideal: |processes, cpus| f64::max(1.0, processes / cpus),
};

const THROUGHPUT: CurveOf = CurveOf {
    name: "throughput",
    title: "Throughput of N busy processes",
    axis: "jobs per second",
    measure: Measure::Plain,
    value: JobsResult::throughput,
    ideal: f64::min,
};

const fn dot(processes: usize, y: f64, interval: Option<(f64, f64)>) -> Dot {
    Dot {
        x: processes as f64,
        y,
        interval,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim::Verdict;

    /// Six rounds of equal plays, given the number of jobs and the time that each takes.
    fn rounds(played: &[(CpuChoice, usize, f64)]) -> Curves {
        let setting = |(cpu_choice, processes, _): &(CpuChoice, usize, f64)| CrowdSetting {
            cpu_choice: *cpu_choice,
            processes: *processes,
        };
        let plays = |(_, processes, time): &(CpuChoice, usize, f64)| {
            let jobs = JobsResult {
                turnarounds: vec![*time; *processes],
                cpu_ns: vec![100.0; *processes],
                switches: 0.0,
                used_cpus: 1.0,
            };
            vec![Some(jobs); 6]
        };
        Curves::new(
            2,
            played.iter().map(setting).collect(),
            Rounds::of_plays(played.iter().map(plays).collect()),
        )
    }

    fn verdicts(curves: &Curves) -> Vec<Verdict> {
        let mut all = Quantities::of_loads();
        curves.add_to(&mut all);
        let claims = ["D1", "D2", "D3", "D4"];
        claims.map(|claim| all.answer(claim).verdict).to_vec()
    }

    #[test]
    fn fair_sharing_is_what_the_textbook_says() {
        let curves = rounds(&[
            (CpuChoice::One, 1, 100.0),
            (CpuChoice::One, 4, 396.0),
            (CpuChoice::All, 1, 100.0),
            (CpuChoice::All, 2, 104.0),
            (CpuChoice::All, 4, 205.0),
        ]);
        assert_eq!(verdicts(&curves), vec![Verdict::Holds; 4]);
    }

    /// Two CPUs that are hyperthreads of one core, which give 1.2 times the work of one.
    #[test]
    fn cpus_that_share_a_core_do_not_double_the_throughput() {
        let curves = rounds(&[
            (CpuChoice::All, 1, 100.0),
            (CpuChoice::All, 2, 167.0),
            (CpuChoice::All, 4, 334.0),
        ]);
        let verdicts = verdicts(&curves);
        assert!(matches!(verdicts[0], Verdict::CannotBeTested(_)));
        assert_eq!(verdicts[2..], vec![Verdict::DoesNotHold; 2]);
    }
}
