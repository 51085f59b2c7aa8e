//! An experiment that plays loads: its file, read once, and its settings, each played once a round.
//!
//! ```text
//!            setting 1   setting 2   setting 3     each round in another order (a Latin square):
//! round 0       ▪           ▪           ▪          a machine that drifts affects all settings
//! round 1       ▪           ▪           ▪          alike, and ratios are taken within a round
//! ```
//!
//! When told to stop, it keeps what is done. The notes of the plays are gathered, each once.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use swtch_bench::load::{LoadResults, UsableCpus};
use swtch_core::cost::LatinSquare;
use swtch_output::text;

use super::claim::Verdict;
use super::context::{ExperimentContext, RecordingChoice};
use super::evidence::LoadRuns;
use super::file::LoadFile;
use super::findings::Findings;
use super::parameters::{ParameterValue, Parameters};

/// A running experiment: its load file, its parameters, and the notes of its plays.
pub struct LoadExperiment<'a> {
    context: &'a ExperimentContext,
    file: LoadFile,
    parameters: Parameters,
    /// Records that the recorder lost, in all plays.
    lost: u64,
    /// How many plays each note is of.
    note_counts: BTreeMap<String, u64>,
    disturbances: Disturbances,
    was_interrupted: bool,
}

/// The number of plays, and what disturbed some of them.
#[derive(Debug, Default)]
pub struct Disturbances {
    plays: u64,
    what: Vec<String>,
}

/// If more than this share of the plays was disturbed, a claim that fails becomes undecided.
const DISTURBED: f64 = 0.2;

/// Parameters that must not be 0; in others, 0 is a choice with a meaning.
const NOT_ZERO: [&str; 3] = ["rounds", "repeats", "processes"];

/// A load that was played, with what its trace says.
#[derive(Debug)]
pub struct PlayResult {
    /// When it began, the times and counters of its members, and notes.
    pub played: LoadResults,
    /// What its trace says; `None` when it was not recorded.
    pub evidence: Option<LoadRuns>,
    /// The name of the group of each member.
    pub names: Vec<String>,
}

/// The result of each setting in each round; `None` where a round was not played.
#[derive(Debug)]
pub struct Rounds<T>(Vec<Vec<Option<T>>>);

impl<'a> LoadExperiment<'a> {
    /// Reads the file of an experiment.
    ///
    /// # Errors
    /// It describes no load that could be played here, or a parameter leaves nothing to do.
    pub fn open(
        name: &str,
        text: &str,
        parameters: &Parameters,
        context: &'a ExperimentContext,
    ) -> Result<Self> {
        for (name, value) in parameters.all() {
            let is_none = NOT_ZERO.contains(&name.as_str()) && *value == ParameterValue::Count(0);
            ensure!(
                !is_none && !has_no_length(value),
                "--{name} {value}: nothing would be done; give more than 0"
            );
        }
        Ok(Self {
            context,
            file: LoadFile::read(&format!("{name}.toml"), text)?,
            parameters: parameters.clone(),
            lost: 0,
            note_counts: BTreeMap::new(),
            disturbances: Disturbances::default(),
            was_interrupted: false,
        })
    }

    /// Plays a variant of the file with some parameters changed; `None` when told to stop.
    ///
    /// # Errors
    /// It cannot be played, or its trace not be read.
    pub fn play(
        &mut self,
        variant: &str,
        changed: &[(&str, ParameterValue)],
        recording: RecordingChoice,
    ) -> Result<Option<PlayResult>> {
        let parameters = changed
            .iter()
            .fold(self.parameters.clone(), |parameters, (name, value)| {
                parameters.with(name, value.clone())
            });
        let load = self
            .file
            .load(variant, &parameters, &self.context.calibration)?;
        let Some(play) = self.context.play(&load, recording)? else {
            self.was_interrupted = true;
            return Ok(None);
        };
        self.disturbances.add(play.disturbance.clone());
        for note in &play.played.notes {
            *self.note_counts.entry(note.clone()).or_default() += 1;
        }
        let evidence = play.trace.as_ref();
        let evidence = evidence
            .map(|trace| LoadRuns::read(trace, &play.played.members))
            .transpose()?;
        self.lost += evidence.as_ref().map_or(0, |evidence| evidence.lost);
        let members = play.played.members.iter();
        let names = members.map(|member| load.groups[member.group].name.clone());
        Ok(Some(PlayResult {
            names: names.collect(),
            played: play.played,
            evidence,
        }))
    }

    /// Plays each setting once in each of `rounds` rounds; ends early when told to stop.
    ///
    /// # Errors
    /// As `play`.
    pub fn rounds<S: std::fmt::Display, T>(
        &mut self,
        settings: &[S],
        rounds: u64,
        mut play: impl FnMut(&mut Self, &S) -> Result<Option<T>>,
    ) -> Result<Rounds<T>> {
        let mut done: Vec<Vec<Option<T>>> = settings.iter().map(|_| Vec::new()).collect();
        let square = LatinSquare::new(settings.len(), u64::from(std::process::id()));
        for round in 0..usize::try_from(rounds)? {
            done.iter_mut().for_each(|setting| setting.push(None));
            for index in square.row(round) {
                let setting = &settings[index];
                self.context
                    .progress(&format!("round {} of {rounds}: {setting}", round + 1));
                match play(self, setting)? {
                    Some(result) => done[index][round] = Some(result),
                    None => return Ok(Rounds(done)),
                }
            }
        }
        self.context.progress_done();
        Ok(Rounds(done))
    }

    /// How many CPUs plays may use.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn cpus(&self) -> Result<usize> {
        Ok(UsableCpus::here()?.allowed.len())
    }

    /// True if a play was cut short because it was told to stop.
    pub const fn was_interrupted(&self) -> bool {
        self.was_interrupted
    }

    /// Where and when it is measured, for a picture.
    pub fn subtitle(&self) -> String {
        swtch_plot::subtitle(&swtch_host::origin())
    }

    /// Why plays are not recorded; `None` if they are.
    pub fn why_unrecorded(&self) -> Option<&str> {
        self.context.why_unrecorded()
    }

    /// Adds the notes of all plays to the findings.
    pub fn close(self, findings: &mut Findings) {
        let plays = self.disturbances.plays;
        self.disturbances.note(findings);
        for (note, count) in self.note_counts {
            let of = match count {
                count if count == plays => String::new(),
                count => format!(" ({count} of {})", text::counted(plays, "play")),
            };
            findings.notes.push(format!("{note}{of}"));
        }
        if self.lost > 0 {
            findings
                .notes
                .push(format!("{} were lost", text::counted(self.lost, "record")));
        }
        findings.was_interrupted |= self.was_interrupted;
    }
}

impl Disturbances {
    /// Counts a play, and keeps what disturbed it.
    pub fn add(&mut self, disturbance: Option<String>) {
        self.plays += 1;
        self.what.extend(disturbance);
    }

    /// Adds to findings that plays were disturbed. If many were (see [`DISTURBED`]), a claim that
    /// does not hold becomes undecided, because others may be the reason.
    pub fn note(&self, findings: &mut Findings) {
        let Some(last) = self.what.last() else {
            return;
        };
        let count = self.what.len();
        let plays = text::counted(self.plays, "play");
        let busy =
            format!("the machine was busy: {count} of {plays} were disturbed, such as: {last}");
        if count as f64 > DISTURBED * self.plays as f64 {
            for answer in &mut findings.answers {
                if answer.verdict == Verdict::DoesNotHold {
                    answer.verdict = Verdict::Undecided(busy.clone());
                }
            }
        }
        findings.notes.push(busy);
    }
}

impl<T> Rounds<T> {
    /// Rounds of given plays, indexed by setting, then by round.
    #[cfg(test)]
    pub const fn of_plays(plays: Vec<Vec<Option<T>>>) -> Self {
        Self(plays)
    }

    /// The results of a setting in the order of the rounds; rounds that were not played are left
    /// out.
    pub fn of(&self, setting: usize) -> impl Iterator<Item = &T> {
        self.0[setting].iter().flatten()
    }

    /// The results of two settings in the same rounds.
    pub fn pairs(&self, one: usize, other: usize) -> impl Iterator<Item = (&T, &T)> {
        let both = self.0[one].iter().zip(&self.0[other]);
        both.filter_map(|(one, other)| one.as_ref().zip(other.as_ref()))
    }

    /// `value` of each round of a setting.
    pub fn values(&self, setting: usize, value: impl Fn(&T) -> f64) -> Vec<f64> {
        self.of(setting).map(value).collect()
    }

    /// `value` of one setting divided by that of another, for each round that has both.
    pub fn ratios(&self, one: usize, over: usize, value: impl Fn(&T) -> f64) -> Vec<f64> {
        let pairs = self.pairs(one, over);
        pairs.map(|(one, over)| value(one) / value(over)).collect()
    }
}

/// True for a length of time of 0, and for a list that holds one.
pub fn has_no_length(value: &ParameterValue) -> bool {
    match value {
        ParameterValue::Time(time) => time.is_zero(),
        ParameterValue::List(values) => values.iter().any(has_no_length),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_that_leave_nothing_to_do_are_refused() {
        let context = ExperimentContext::open(true, RecordingChoice::Unwanted).unwrap();
        let refused = |name: &str, value| {
            let parameters = Parameters::default().with(name, value);
            LoadExperiment::open("a", "title = \"a\"", &parameters, &context)
                .err()
                .map(|error| error.to_string())
        };
        let of_zero = |name: &str| format!("--{name} 0: nothing would be done; give more than 0");
        assert_eq!(
            refused("rounds", ParameterValue::Count(0)),
            Some(of_zero("rounds"))
        );
        let zero = ParameterValue::Time(std::time::Duration::ZERO);
        assert!(
            refused("slices", ParameterValue::List(vec![zero]))
                .unwrap()
                .starts_with("--slices 0ns: ")
        );
        assert!(
            !refused("most", ParameterValue::Count(0)).is_some_and(|why| why.starts_with("--most"))
        );
    }

    /// A round that was cut short must not shift the pairs of those after it.
    #[test]
    fn settings_are_compared_within_a_round() {
        let rounds = Rounds(vec![
            vec![Some(2.0), Some(4.0), Some(6.0)],
            vec![Some(1.0), None, Some(3.0)],
        ]);
        assert_eq!(rounds.ratios(0, 1, |value| *value), [2.0, 2.0]);
        assert_eq!(rounds.values(1, |value| *value), [1.0, 3.0]);
    }
}
