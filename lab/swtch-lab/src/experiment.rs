//! The type of an experiment, and the list of all experiments.

use std::fmt;

use anyhow::Result;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

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
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ExperimentHead {
    /// What it shows, in a line.
    pub title: String,
    /// Its question, and how it finds the answer.
    #[serde(default)]
    pub about: String,
    /// The parameters that a user may change, in the order of the file.
    #[serde(default, deserialize_with = "parameters_in_order")]
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
    pub fn read(text: &str) -> Result<Self, toml::de::Error> {
        let head: Self = toml::from_str(text)?;
        let about = head.about.trim().to_owned();
        Ok(Self { about, ..head })
    }
}

/// Reads `[parameters]`, which maps of serde would sort by name.
fn parameters_in_order<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Parameter>, D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct ParameterEntry {
        about: String,
        default: ParameterValue,
        quick: Option<ParameterValue>,
    }
    struct ParameterVisitor;

    impl<'de> Visitor<'de> for ParameterVisitor {
        type Value = Vec<Parameter>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a table of parameters")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut parameters = Vec::new();
            while let Some((name, entry)) = map.next_entry::<String, ParameterEntry>()? {
                parameters.push(Parameter {
                    name,
                    about: entry.about,
                    default: entry.default,
                    quick: entry.quick,
                });
            }
            Ok(parameters)
        }
    }

    deserializer.deserialize_map(ParameterVisitor)
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
