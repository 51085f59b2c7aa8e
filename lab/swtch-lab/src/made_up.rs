//! Made-up outcomes of experiments, for tests.

use std::time::Duration;

use anyhow::Result;
use swtch_core::Nanos;
use swtch_core::cost::Origin;
use swtch_output::format::Format;
use swtch_plot::content::{Axis, Content, Dots, Measure, NamedDot, Picture, Scale};
use swtch_report::report::{Cell, Sheet};

use super::claim::{Answer, Verdict};
use super::command::ExperimentWords;
use super::context::ExperimentContext;
use super::experiment::Experiment;
use super::findings::{Findings, FindingsTable};
use super::outcome::Outcome;
use super::parameters::{ParameterValue, Parameters};

/// A made-up machine with four CPUs.
pub fn origin() -> Origin {
    Origin {
        hostname: "bench".to_owned(),
        kernel_release: "6.18.5-generic".to_owned(),
        kernel_version: "#1 SMP".to_owned(),
        machine: "x86_64".to_owned(),
        cpu_model: "a CPU".to_owned(),
        cpus: 4,
        boot_id: "8d9f7a3e".to_owned(),
        measured_at: "2026-03-02T10:11:12Z".to_owned(),
        swtch_version: "0.1.0".to_owned(),
    }
}

/// The arguments of an experiment when nothing is typed.
pub fn words() -> ExperimentWords {
    ExperimentWords {
        quick: false,
        no_record: false,
        plot: None,
        output: None,
        format: Format::Table,
    }
}

/// An experiment's outcome: one table, two figures, an answer that holds and one that is open.
pub fn outcome(name: &str) -> Outcome {
    Outcome {
        experiment: name.to_owned(),
        title: "Threads on too few CPUs".to_owned(),
        about: "What happens when there are\nmore threads than CPUs?\n\nEach counts to a total."
            .to_owned(),
        origin: origin(),
        parameters: vec![
            (
                "work".to_owned(),
                ParameterValue::Time(Duration::from_secs(1)),
            ),
            (
                "members".to_owned(),
                ParameterValue::List([1, 2, 4].map(ParameterValue::Count).to_vec()),
            ),
        ],
        findings: findings(name),
    }
}

/// Findings with one table, two figures and two answers.
fn findings(name: &str) -> Findings {
    let mut sheet = Sheet::new("threads", &["thread", "took_ns"]);
    let second = Nanos::from_ns(1_000_000_000);
    sheet.rows = vec![vec![Cell::text("worker-1"), Cell::Time(second)]];
    let answer = |claim, ours: &str, verdict| Answer {
        claim,
        ours: ours.to_owned(),
        verdict,
    };
    Findings {
        tables: vec![FindingsTable {
            title: "Completion times".to_owned(),
            sheet,
        }],
        pictures: vec![picture(name, "time"), picture(name, "lanes")],
        sentences: vec![
            "With one thread more than CPUs, two take 2.00 times as long (1.98 to 2.02) as the reference."
                .to_owned(),
        ],
        answers: vec![
            answer("A1", "1.00 × the reference (0.99 to 1.01)", Verdict::Holds),
            answer(
                "A2",
                "2.00 × (0.90 to 2.10)",
                Verdict::Undecided("the interval holds 1".to_owned()),
            ),
        ],
        notes: vec!["another program had 3 % of the CPUs".to_owned()],
        was_interrupted: false,
    }
}

/// A figure with two values.
fn picture(experiment: &str, what: &str) -> Picture {
    let dot = |label: &str, value| NamedDot {
        label: label.to_owned(),
        series: None,
        value,
        interval: None,
    };
    Picture {
        name: format!("{experiment}-{what}"),
        title: format!("The {what} of two threads"),
        subtitle: "bench · Linux 6.18.5 x86_64 · 4 CPUs · 2026-03-02".to_owned(),
        explanation: "a dot is the mean of 20 trials".to_owned(),
        notes: Vec::new(),
        content: Content::Dots(Dots {
            axis: Axis {
                name: "times as long".to_owned(),
                measure: Measure::Plain,
                scale: Scale::Linear,
            },
            rows: vec![dot("alone", 1.0), dot("with another", 2.0)],
        }),
    }
}

/// The file of an experiment.
const FILE: &str = "title = \"Threads on too few CPUs\"\nabout = \"What happens?\"\n";

/// An experiment that does what `run` does.
pub const fn experiment(
    name: &'static str,
    run: fn(&Parameters, &mut ExperimentContext) -> Result<Findings>,
) -> Experiment {
    Experiment {
        name,
        file: FILE,
        run,
    }
}

/// Returns the findings that [`outcome`] holds.
///
/// # Errors
/// Never.
pub fn succeeds(_: &Parameters, _: &mut ExperimentContext) -> Result<Findings> {
    Ok(findings("oversubscribe"))
}
