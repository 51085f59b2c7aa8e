//! Command line of `swtch lab`. Experiments and their parameters come from the files in `lab/`.

use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, Subcommand};
use swtch_output::format::Format;

use super::context::RecordingChoice;
use super::experiment::{EXPERIMENTS, Experiment};
use super::parameters::ParameterValue;

/// What `swtch lab` is to do.
#[derive(Debug)]
pub enum LabVerb {
    /// Run one of the experiments.
    Experiment(ChosenExperiment),
    /// Play the load of a file.
    Run(RunWords),
    /// All experiments, and a verdict on every claim.
    Claims(ClaimsWords),
    /// Write the file of an experiment, to change it.
    Show(ShowWords),
}

/// An experiment, with what was typed.
#[derive(Debug)]
pub struct ChosenExperiment {
    pub name: String,
    /// Parameters that were typed: the name, and the value as typed.
    pub given: Vec<(String, String)>,
    /// How and where the answer goes.
    pub words: ExperimentWords,
}

/// What every experiment takes.
#[derive(Debug, Args)]
pub struct ExperimentWords {
    /// Run shorter; the intervals get wider.
    #[arg(long)]
    pub quick: bool,
    /// Record no trace, even with the rights to.
    #[arg(long)]
    pub no_record: bool,
    /// Draw the figures: FILE.svg or FILE.png, one file each.
    #[arg(long, value_name = "FILE")]
    pub plot: Option<PathBuf>,
    /// Write all results to a file: .json holds all of it, .csv the tables (further ones beside it).
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Format of the output (csv: the first table).
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = Format::parser())]
    pub format: Format,
}

impl ExperimentWords {
    /// Whether plays are to be recorded.
    pub const fn recording(&self) -> RecordingChoice {
        recording(self.no_record)
    }
}

const fn recording(no_record: bool) -> RecordingChoice {
    if no_record {
        RecordingChoice::Unwanted
    } else {
        RecordingChoice::Wanted
    }
}

/// Run the load that a file describes.
#[derive(Debug, Args)]
pub struct RunWords {
    /// Description of the load (its format: docs/LOADS.md).
    #[arg(value_name = "FILE.toml")]
    pub file: PathBuf,
    /// Give a parameter of the file another value.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub set: Vec<String>,
    /// Run only this variant of the file.
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// What every experiment takes.
    #[command(flatten)]
    pub words: ExperimentWords,
}

/// Run all experiments, and say of each claim of the textbooks whether it holds here.
#[derive(Debug, Args)]
pub struct ClaimsWords {
    /// Run shorter: about four minutes on two CPUs.
    #[arg(long)]
    pub quick: bool,
    /// Record no trace, even with the rights to.
    #[arg(long)]
    pub no_record: bool,
    /// Write tables and figures as one HTML file.
    #[arg(long, value_name = "FILE.html")]
    pub html: Option<PathBuf>,
    /// Run only these experiments.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Write all results to a file: FILE.json or FILE.csv.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Format of the output.
    #[arg(long, value_name = "FORMAT", default_value = "table", value_parser = Format::parser())]
    pub format: Format,
}

impl ClaimsWords {
    /// Whether plays are to be recorded.
    pub const fn recording(&self) -> RecordingChoice {
        recording(self.no_record)
    }
}

/// Print the file of an experiment, to change it and run it with `lab run`.
#[derive(Debug, Args)]
pub struct ShowWords {
    /// Name of the experiment.
    pub name: String,
}

impl Subcommand for LabVerb {
    fn augment_subcommands(command: Command) -> Command {
        let command = EXPERIMENTS.iter().fold(command, |command, experiment| {
            command.subcommand(experiment_command(experiment))
        });
        let claims = ClaimsWords::augment_args(Command::new("claims"));
        let run = RunWords::augment_args(Command::new("run"));
        let show = ShowWords::augment_args(Command::new("show"));
        command.subcommands([claims, run, show])
    }

    fn augment_subcommands_for_update(command: Command) -> Command {
        Self::augment_subcommands(command)
    }

    fn has_subcommand(name: &str) -> bool {
        matches!(name, "claims" | "run" | "show") || Experiment::named(name).is_some()
    }
}

impl FromArgMatches for LabVerb {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let Some((name, matches)) = matches.subcommand() else {
            return Err(clap::Error::new(ErrorKind::MissingSubcommand));
        };
        Ok(match name {
            "claims" => Self::Claims(ClaimsWords::from_arg_matches(matches)?),
            "run" => Self::Run(RunWords::from_arg_matches(matches)?),
            "show" => Self::Show(ShowWords::from_arg_matches(matches)?),
            name => Self::Experiment(asked(name, matches)?),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn experiment_command(experiment: &Experiment) -> Command {
    let head = experiment.head();
    let command = ExperimentWords::augment_args(Command::new(experiment.name))
        .about(head.title)
        .long_about(head.about);
    head.parameters
        .into_iter()
        .fold(command, |command, parameter| {
            let about = match &parameter.quick {
                Some(quick) => format!(
                    "{} [default: {}; quick: {quick}]",
                    parameter.about, parameter.default
                ),
                None => format!("{} [default: {}]", parameter.about, parameter.default),
            };
            let argument = Arg::new(parameter.name.clone())
                .long(parameter.name)
                .help(about)
                .action(ArgAction::Set)
                .help_heading("Parameters");
            command.arg(match parameter.default {
                ParameterValue::Flag(_) => argument.num_args(0..=1).default_missing_value("true"),
                ParameterValue::List(_) => argument.value_name("A,B,…"),
                _ => argument.value_name("VALUE"),
            })
        })
}

fn asked(name: &str, matches: &ArgMatches) -> Result<ChosenExperiment, clap::Error> {
    let experiment = Experiment::named(name).expect("invariant: clap knows only these");
    let parameters = experiment.head().parameters;
    let given = parameters.into_iter().filter_map(|parameter| {
        let words = matches.get_one::<String>(&parameter.name)?;
        Some((parameter.name, words.clone()))
    });
    Ok(ChosenExperiment {
        name: name.to_owned(),
        given: given.collect(),
        words: ExperimentWords::from_arg_matches(matches)?,
    })
}
