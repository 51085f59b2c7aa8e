//! Made-up outcomes of experiments, for tests.

use std::time::Duration;

use anyhow::Result;
use swtch_core::Nanos;
use swtch_core::cost::Origin;

use super::claim::{Answer, Verdict};
use super::command::ExperimentWords;
use super::experiment::Experiment;
use super::findings::{Findings, Table};
use super::outcome::Outcome;
use super::parameters::{Parameters, Value};
use super::room::Room;
use crate::format::Format;
use crate::plot::made_up::pictures;
use crate::report::{Cell, Sheet};

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
            ("work".to_owned(), Value::Time(Duration::from_secs(1))),
            (
                "members".to_owned(),
                Value::List([1, 2, 4].map(Value::Count).to_vec()),
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
    let named = |index: usize, what: &str| {
        let mut picture = pictures().swap_remove(index);
        picture.name = format!("{name}-{what}");
        picture
    };
    let answer = |claim, ours: &str, verdict| Answer {
        claim,
        ours: ours.to_owned(),
        verdict,
    };
    Findings {
        tables: vec![Table {
            title: "Completion times".to_owned(),
            sheet,
        }],
        pictures: vec![named(0, "time"), named(2, "lanes")],
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

/// The file of an experiment.
const FILE: &str = "title = \"Threads on too few CPUs\"\nabout = \"What happens?\"\n";

/// An experiment that does what `run` does.
pub const fn experiment(
    name: &'static str,
    run: fn(&Parameters, &mut Room) -> Result<Findings>,
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
pub fn succeeds(_: &Parameters, _: &mut Room) -> Result<Findings> {
    Ok(findings("oversubscribe"))
}
