//! `swtch lab`: runs the classic experiments on context switching on this machine.
//!
//! ```text
//!  experiments/NAME.toml ─parameters─▶ experiment ─▶ Findings ─▶ table | json | csv | figures
//!  (title, parameters, load)      │   │          └─▶ answers ─▶ claims: a verdict on each
//!            plays loads, recorded ┘   └ times arms side by side (as `swtch cost` does)
//! ```
//!
//! An experiment is a file in `experiments/` (its question, its parameters, and the load if it plays one)
//! and an analysis here (what was found, and what that says about the claims of the textbooks).
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

use std::io::stdout;
use std::path::Path;

use anyhow::{Context as _, Result};

mod calibration;
mod claim;
mod claims;
mod command;
mod context;
mod cpu_choice;
mod evidence;
mod experiment;
mod file;
mod findings;
mod footprint;
mod launch;
mod load_experiment;
mod lock_ring;
#[cfg(test)]
mod made_up;
mod measured;
mod mutex;
mod outcome;
mod oversubscribe;
mod parameters;
mod pipe_token;
mod primitives;
mod quantities;
mod quantum;
mod run_file;
mod smt;
mod timed;
mod turnaround;
mod two_levels;

use swtch_output::format::write_answer;
use swtch_output::text::{hung, page_width};

pub use command::LabVerb;
pub use context::lab_play;
pub use file::LoadFileError;
pub use file::read_every_variant;

use command::{ChosenExperiment, ShowWords};
use context::ExperimentContext;
use experiment::{EXPERIMENTS, Experiment, ExperimentHead};
use findings::Findings;
use outcome::Outcome;
use parameters::Parameters;

/// Runs a verb of `swtch lab` and returns the exit code.
///
/// # Errors
/// As each verb.
pub fn run(verb: Option<&LabVerb>) -> Result<u8> {
    match verb {
        None => print(&list(page_width())),
        Some(LabVerb::Experiment(chosen)) => run_chosen(chosen),
        Some(LabVerb::Run(words)) => run_file::run(words),
        Some(LabVerb::Claims(words)) => claims::run(words),
        Some(LabVerb::Show(words)) => show(words),
    }
}

/// Runs one experiment and writes its outcome.
fn run_chosen(chosen: &ChosenExperiment) -> Result<u8> {
    let experiment = find_experiment(&chosen.name)?;
    let words = &chosen.words;
    outcome::check_files(words)?;
    let head = experiment.head();
    let parameters = Parameters::chosen(&head.parameters, words.quick, &chosen.given)?;
    let mut context = ExperimentContext::open(words.quick, words.recording())?;
    outcome_of(experiment, head, &parameters, &mut context)?.write(words)
}

/// Runs an experiment and returns its outcome.
fn outcome_of(
    experiment: &Experiment,
    head: ExperimentHead,
    parameters: &Parameters,
    context: &mut ExperimentContext,
) -> Result<Outcome> {
    let run = |context: &mut ExperimentContext| {
        (experiment.run)(parameters, context)
            .with_context(|| format!("experiment {}", experiment.name))
    };
    outcome_with(experiment.name, head, parameters, context, run)
}

/// Calls `run`, and adds to its findings what a reader needs: host, parameters, and the notes of
/// `context`.
fn outcome_with(
    name: &str,
    head: ExperimentHead,
    parameters: &Parameters,
    context: &mut ExperimentContext,
    run: impl FnOnce(&mut ExperimentContext) -> Result<Findings>,
) -> Result<Outcome> {
    let origin = swtch_host::origin();
    let findings = run(context);
    context.progress_done();
    let mut findings = findings?;
    for note in context.notes() {
        if !findings.notes.contains(&note) {
            findings.notes.push(note);
        }
    }
    Ok(Outcome {
        experiment: name.to_owned(),
        title: head.title,
        about: head.about,
        origin,
        parameters: parameters.all().to_vec(),
        findings,
    })
}

/// Runs a script of the experiment `two-levels`: `swtch lab-levels SCRIPT RESULT`.
///
/// # Errors
/// The script cannot be read, or the result not be written.
pub fn lab_levels(script: &Path, result: &Path) -> Result<u8> {
    context::run_as_child(script, result, two_levels::run_script)
}

/// The list of experiments and verbs, wrapped to `width` columns.
fn list(width: usize) -> String {
    let verbs = [
        (
            "claims",
            "all of them, and a verdict on every claim of the textbooks",
        ),
        ("run FILE.toml", "play a load that a file describes"),
        ("show NAME", "write the file of an experiment, to change it"),
    ];
    let experiments = EXPERIMENTS
        .iter()
        .map(|one| (one.name.to_owned(), one.head().title));
    let verbs = verbs.map(|(name, what)| (name.to_owned(), what.to_owned()));
    let rows: Vec<(String, String)> = experiments.chain(verbs).collect();
    let widest = rows.iter().map(|(name, _)| name.chars().count()).max();
    let widest = widest.unwrap_or_default();
    let lines = rows
        .iter()
        .flat_map(|(name, what)| hung(&format!("swtch lab {name:<widest$}  "), what, width));
    let mut page: String = lines.map(|line| line + "\n").collect();
    page.push_str(
        "\n--help after a name shows what may be changed about it; --quick makes it shorter\n",
    );
    page
}

/// Prints the TOML file of an experiment.
fn show(words: &ShowWords) -> Result<u8> {
    print(find_experiment(&words.name)?.file)
}

fn print(answer: &str) -> Result<u8> {
    write_answer(&mut stdout(), answer.as_bytes()).context("writing the answer")?;
    Ok(0)
}

fn find_experiment(name: &str) -> Result<&'static Experiment> {
    let experiment = Experiment::named(name);
    experiment.with_context(|| {
        let names: Vec<&str> = EXPERIMENTS.iter().map(|one| one.name).collect();
        format!(
            "there is no experiment `{name}`; there are: {}",
            names.join(", ")
        )
    })
}

/// The texts of the files in `experiments/`, which are part of the program.
pub fn texts() -> impl Iterator<Item = &'static str> {
    EXPERIMENTS.iter().map(|experiment| experiment.file)
}

#[cfg(test)]
mod tests {
    use super::context::RecordingChoice;
    use super::made_up::{experiment, succeeds};
    use super::*;

    #[test]
    fn every_experiment_and_every_other_verb_is_listed() {
        let page = list(100);
        for experiment in EXPERIMENTS {
            assert!(page.contains(&format!("swtch lab {}", experiment.name)));
        }
        for verb in ["claims", "run FILE.toml", "show NAME"] {
            assert!(page.contains(&format!("swtch lab {verb}")), "{page}");
        }
    }

    #[test]
    fn an_unknown_experiment_is_refused_by_name() {
        let words = ShowWords {
            name: "nothing".to_owned(),
        };
        let error = show(&words).unwrap_err().to_string();
        assert!(error.starts_with("there is no experiment `nothing`; there are:"));
    }

    #[test]
    fn notes_on_the_machine_are_in_the_outcome_once() {
        let mut context = ExperimentContext::open(true, RecordingChoice::Unwanted).unwrap();
        let experiment = experiment("oversubscribe", succeeds);
        let outcome = |context: &mut ExperimentContext| {
            outcome_of(
                &experiment,
                experiment.head(),
                &Parameters::default(),
                context,
            )
            .unwrap()
        };
        let notes = outcome(&mut context).findings.notes;
        let is_ours = |note: &&String| note.contains("--no-record");
        assert_eq!(notes.iter().filter(is_ours).count(), 1, "{notes:?}");
    }
}
