//! The type of an experiment, and the list of all experiments.

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::context::ExperimentContext;
use super::findings::Findings;
use super::parameters::{Parameter, ParameterValue, Parameters};
use super::{
    footprint, launch, lock_ring, mutex, oversubscribe, pipe_token, primitives, quantum,
    turnaround, two_levels,
};

/// An experiment: its file in `lab/`, and the function that runs and analyses it.
#[derive(Clone, Copy)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// The text of its file in `lab/`.
    pub file: &'static str,
    /// Runs the experiment and analyses what it measured.
    pub run: fn(&Parameters, &mut ExperimentContext) -> Result<Findings>,
}

/// The head of the file of an experiment or a load: title, description, parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExperimentHead {
    /// What it shows, in a line.
    pub title: String,
    /// Its question, and how it finds the answer.
    pub about: String,
    /// The parameters that a user may change.
    pub parameters: Vec<Parameter>,
}

/// All experiments, in the order in which they are best taught.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "oversubscribe",
        file: oversubscribe::FILE,
        run: oversubscribe::run,
    },
    Experiment {
        name: "turnaround",
        file: turnaround::FILE,
        run: turnaround::run,
    },
    Experiment {
        name: "mutex",
        file: mutex::FILE,
        run: mutex::run,
    },
    Experiment {
        name: "quantum",
        file: quantum::FILE,
        run: quantum::run,
    },
    Experiment {
        name: "two-levels",
        file: two_levels::FILE,
        run: two_levels::run,
    },
    Experiment {
        name: "pipe-token",
        file: include_str!("../experiments/pipe-token.toml"),
        run: pipe_token::run,
    },
    Experiment {
        name: "lock-ring",
        file: lock_ring::FILE,
        run: lock_ring::run,
    },
    Experiment {
        name: "primitives",
        file: include_str!("../experiments/primitives.toml"),
        run: primitives::run,
    },
    Experiment {
        name: "launch",
        file: include_str!("../experiments/launch.toml"),
        run: launch::run,
    },
    Experiment {
        name: "footprint",
        file: include_str!("../experiments/footprint.toml"),
        run: footprint::run,
    },
];

impl Experiment {
    /// Finds an experiment by its name.
    pub fn named(name: &str) -> Option<&'static Self> {
        EXPERIMENTS.iter().find(|one| one.name == name)
    }

    /// Reads the head of its file.
    ///
    /// # Panics
    /// The file is malformed, which the tests would have found.
    pub fn head(&self) -> ExperimentHead {
        ExperimentHead::read(self.file)
            .expect("invariant: the tests read the head of every file of lab/")
    }
}

impl ExperimentHead {
    /// Reads the head of a file; the rest is left alone.
    ///
    /// # Errors
    /// The text is not TOML, or its head is malformed.
    pub fn read(text: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct ExperimentFile {
            title: String,
            #[serde(default)]
            about: String,
            #[serde(default)]
            parameters: toml::Table,
        }
        let read: ExperimentFile = toml::from_str(text)?;
        let parameters = read.parameters.iter();
        let parameters = parameters
            .map(|(name, value)| {
                parameter(name, value).with_context(|| format!("[parameters.{name}]"))
            })
            .collect::<Result<_>>()?;
        Ok(Self {
            title: read.title,
            about: read.about.trim().to_owned(),
            parameters,
        })
    }
}

fn parameter(name: &str, value: &toml::Value) -> Result<Parameter> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct ParameterEntry {
        about: String,
        default: toml::Value,
        quick: Option<toml::Value>,
    }
    let read: ParameterEntry = value.clone().try_into()?;
    let understood = |value: &toml::Value| {
        ParameterValue::of_toml(value)
            .context("a parameter is a number from 0 on, a length of time, a size, a word, true, false or a list")
    };
    Ok(Parameter {
        name: name.to_owned(),
        about: read.about,
        default: understood(&read.default)?,
        quick: read.quick.as_ref().map(understood).transpose()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_experiment_has_a_head_and_a_name_of_its_own() {
        for (index, experiment) in EXPERIMENTS.iter().enumerate() {
            let head = ExperimentHead::read(experiment.file).unwrap();
            assert!(!head.title.is_empty() && !head.about.is_empty());
            assert!(
                EXPERIMENTS[..index]
                    .iter()
                    .all(|earlier| earlier.name != experiment.name)
            );
        }
    }
}
