//! `swtch lab claims`: what the textbooks say, and whether it holds on this machine.
//!
//! ```text
//! lab/claims.toml ─▶ articles, claims ─────────────────────────────┐
//! experiments, one after the other ─▶ attempts ─▶ answers ─▶ review┴▶ table | json | csv | page
//!                                        └ one that failed costs its own claims, no others
//! ```
//!
//! It does not judge: the verdicts come from the experiments and their intervals.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use anyhow::{Context as _, Result, anyhow, bail};
use swtch_output::destination::check_directory;

use super::command::ClaimsWords;
use super::context::ExperimentContext;
use super::experiment::{EXPERIMENTS, Experiment};
use super::outcome::{Outcome, OutcomeFileFormat};
use super::outcome_of;
use super::parameters::Parameters;

pub mod list;
mod page;
mod review;
mod table;

use review::{Attempt, AttemptEnding, Review};

/// Runs the experiments, writes the answers, and returns the exit code.
///
/// # Errors
/// An experiment is not known, or an answer cannot be written. A failed experiment is in the
/// answer.
pub fn run(words: &ClaimsWords) -> Result<u8> {
    check_files(words)?;
    let experiments = chosen(EXPERIMENTS, &words.only)?;
    let mut context = ExperimentContext::open(words.quick, words.recording())?;
    let begun = Instant::now();
    let review = Review {
        articles: list::ARTICLES.clone(),
        is_whole: words.only.is_empty(),
        origin: swtch_host::origin(),
        attempts: run_all(&experiments, &mut context),
        took: begun.elapsed(),
    };
    review.write(words)
}

/// Refuses output files that cannot be written, before minutes are spent on measuring.
fn check_files(words: &ClaimsWords) -> Result<()> {
    if let Some(path) = &words.output {
        OutcomeFileFormat::of(path)?;
        check_directory(path)?;
    }
    if let Some(path) = &words.html {
        check_directory(path)?;
        if path.extension().is_none_or(|end| end != "html") {
            bail!("{}: the name of a page ends in .html", path.display());
        }
    }
    Ok(())
}

/// The experiments of these names, or all.
fn chosen<'a>(known: &'a [Experiment], only: &[String]) -> Result<Vec<&'a Experiment>> {
    if only.is_empty() {
        return Ok(known.iter().collect());
    }
    let of_name = |name: &String| {
        known.iter().find(|one| one.name == name).with_context(|| {
            let names: Vec<&str> = known.iter().map(|one| one.name).collect();
            format!(
                "there is no experiment `{name}`; there are: {}",
                names.join(", ")
            )
        })
    };
    only.iter().map(of_name).collect()
}

/// Runs one experiment after the other; after a stop, none begins.
fn run_all(experiments: &[&Experiment], context: &mut ExperimentContext) -> Vec<Attempt> {
    let mut attempts = Vec::new();
    for (number, experiment) in experiments.iter().enumerate() {
        let ending = if context.must_stop() {
            AttemptEnding::NotBegun
        } else {
            context.progress(&format!(
                "experiment {} of {}: {}",
                number + 1,
                experiments.len(),
                experiment.name
            ));
            match run_one(experiment, context) {
                Ok(outcome) => AttemptEnding::Made(Box::new(outcome)),
                Err(error) => AttemptEnding::Failed(format!("{error:#}")),
            }
        };
        attempts.push(Attempt {
            experiment: experiment.name,
            ending,
        });
    }
    context.progress_done();
    attempts
}

/// Runs one experiment with its default parameters. A panic counts as a failure, so that the
/// outcomes of earlier experiments are not lost.
fn run_one(experiment: &Experiment, context: &mut ExperimentContext) -> Result<Outcome> {
    let made = catch_unwind(AssertUnwindSafe(|| {
        let head = experiment.head();
        let parameters = Parameters::chosen(&head.parameters, context.is_quick, &[])?;
        outcome_of(experiment, head, &parameters, context)
    }));
    made.unwrap_or_else(|_| Err(anyhow!("it panicked, which is an error in swtch")))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::Ordering;

    use swtch_output::format::Format;

    use super::super::context::RecordingChoice;
    use super::super::findings::Findings;
    use super::super::made_up::{experiment, succeeds};
    use super::*;

    fn fails(_: &Parameters, _: &mut ExperimentContext) -> Result<Findings> {
        bail!("no CPU is free")
    }

    fn panics(_: &Parameters, _: &mut ExperimentContext) -> Result<Findings> {
        panic!("for the test")
    }

    /// An experiment during which Ctrl-C is pressed.
    fn is_stopped(_: &Parameters, context: &mut ExperimentContext) -> Result<Findings> {
        context.stop.store(true, Ordering::Relaxed);
        Ok(Findings {
            was_interrupted: true,
            ..Findings::default()
        })
    }

    fn attempts(experiments: &[Experiment]) -> Vec<Attempt> {
        let mut context = ExperimentContext::open(true, RecordingChoice::Unwanted).unwrap();
        let all: Vec<&Experiment> = experiments.iter().collect();
        run_all(&all, &mut context)
    }

    #[test]
    fn an_experiment_that_fails_costs_no_other() {
        let attempts = attempts(&[
            experiment("turnaround", fails),
            experiment("mutex", panics),
            experiment("oversubscribe", succeeds),
        ]);
        let failed = |attempt: &Attempt| match &attempt.ending {
            AttemptEnding::Failed(why) => why.clone(),
            other => format!("{other:?}"),
        };
        assert_eq!(
            failed(&attempts[0]),
            "experiment turnaround: no CPU is free"
        );
        assert_eq!(
            failed(&attempts[1]),
            "it panicked, which is an error in swtch"
        );
        assert!(matches!(attempts[2].ending, AttemptEnding::Made(_)));
    }

    #[test]
    fn after_ctrl_c_what_is_done_is_kept_and_nothing_begins() {
        let attempts = attempts(&[
            experiment("oversubscribe", succeeds),
            experiment("mutex", is_stopped),
            experiment("turnaround", succeeds),
        ]);
        assert!(matches!(attempts[0].ending, AttemptEnding::Made(_)));
        assert!(matches!(attempts[1].ending, AttemptEnding::Made(_)));
        assert!(matches!(attempts[2].ending, AttemptEnding::NotBegun));
    }

    #[test]
    fn only_known_experiments_can_be_chosen() {
        let known = [experiment("mutex", fails), experiment("launch", fails)];
        let names = |only: &[&str]| {
            let only: Vec<String> = only.iter().map(|&name| name.to_owned()).collect();
            let chosen = chosen(&known, &only);
            chosen.map(|all| all.iter().map(|one| one.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).unwrap(), ["mutex", "launch"]);
        assert_eq!(names(&["launch"]).unwrap(), ["launch"]);
        assert_eq!(
            names(&["lunch"]).unwrap_err().to_string(),
            "there is no experiment `lunch`; there are: mutex, launch"
        );
    }

    #[test]
    fn a_page_that_could_not_be_written_is_refused_before() {
        let refused = |html: &str| {
            let words = ClaimsWords {
                quick: true,
                no_record: true,
                html: Some(PathBuf::from(html)),
                only: Vec::new(),
                output: None,
                format: Format::Table,
            };
            check_files(&words).unwrap_err().to_string()
        };
        assert!(refused("/no/such/a.html").contains("no such directory"));
        assert!(refused("a.pdf").contains("ends in .html"));
    }
}
