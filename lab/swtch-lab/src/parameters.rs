//! What may be changed about an experiment or a load: the `[parameters]` of its file.
//!
//! ```toml
//! [parameters.work]
//! about = "CPU time of each thread"
//! default = "1s"
//! quick = "200ms"          # with --quick; the default where there is none
//! ```
//!
//! The default says what kind a parameter is: a number, a length of time (`"1s"`), a size
//! (`"64KiB"`), a word, `true` or `false`, or a list of one of them, which is written with commas
//! on the command line.

use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;

/// The value of a parameter.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub enum ParameterValue {
    Count(u64),
    Time(Duration),
    /// A size in bytes, such as `64KiB`.
    Size(u64),
    Word(String),
    Flag(bool),
    /// Several values of the same kind.
    List(Vec<Self>),
}

/// A parameter as its file describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name: `--work` on the command line, `$work` in a load.
    pub name: String,
    /// What it is, in a few words.
    pub about: String,
    /// Its value when no other is given.
    pub default: ParameterValue,
    /// Its value with `--quick`; `None` if that changes nothing.
    pub quick: Option<ParameterValue>,
}

/// The parameters of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters(Vec<(String, ParameterValue)>);

impl fmt::Display for ParameterValue {
    /// Writes the value as it is typed on the command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(number) => number.fmt(f),
            Self::Time(time) => write!(f, "{time:?}"),
            Self::Size(bytes) => match bytes {
                0 => write!(f, "0B"),
                bytes if bytes % (1 << 20) == 0 => write!(f, "{}MiB", bytes >> 20),
                bytes if bytes % (1 << 10) == 0 => write!(f, "{}KiB", bytes >> 10),
                bytes => write!(f, "{bytes}B"),
            },
            Self::Word(word) => word.fmt(f),
            Self::Flag(flag) => flag.fmt(f),
            Self::List(values) => {
                let words: Vec<String> = values.iter().map(Self::to_string).collect();
                words.join(",").fmt(f)
            }
        }
    }
}

impl ParameterValue {
    /// Parses `words` of a command line as a value of the same kind as `self`.
    ///
    /// # Errors
    /// `words` is not of that kind.
    pub fn like(&self, words: &str) -> Result<Self> {
        Ok(match self {
            Self::Count(_) => Self::Count(
                words
                    .replace('_', "")
                    .parse()
                    .with_context(|| format!("`{words}` is no number"))?,
            ),
            Self::Time(_) => match Self::of_words(words) {
                time @ Self::Time(_) => time,
                _ => bail!("`{words}` is no length of time: give one such as 500ms or 2s"),
            },
            Self::Size(_) => match Self::of_words(words) {
                size @ Self::Size(_) => size,
                _ => bail!("`{words}` is no size: give one such as 64KiB or 1MiB"),
            },
            Self::Word(_) => Self::Word(words.to_owned()),
            Self::Flag(_) => Self::Flag(
                words
                    .parse()
                    .with_context(|| format!("`{words}` is neither true nor false"))?,
            ),
            Self::List(values) => {
                let first = values.first().cloned().unwrap_or(Self::Word(String::new()));
                let values = words.split(',').map(|word| first.like(word.trim()));
                Self::List(values.collect::<Result<_>>()?)
            }
        })
    }

    /// Parses a length of time or a size, known by its unit; anything else is a word.
    pub fn of_words(words: &str) -> Self {
        let digits = words.trim_end_matches(|c: char| c.is_alphabetic() || c == 'µ');
        let Ok(number) = digits.parse::<f64>() else {
            return Self::Word(words.to_owned());
        };
        let seconds = |unit: f64| {
            Duration::try_from_secs_f64(number * unit)
                .map_or_else(|_| Self::Word(words.to_owned()), Self::Time)
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a size that was typed; the cast saturates"
        )]
        let bytes = |unit: f64| Self::Size((number * unit) as u64);
        match &words[digits.len()..] {
            "ns" => seconds(1e-9),
            "us" | "µs" => seconds(1e-6),
            "ms" => seconds(1e-3),
            "s" => seconds(1.0),
            "B" => bytes(1.0),
            "KiB" => bytes(1024.0),
            "MiB" => bytes(1024.0 * 1024.0),
            "GiB" => bytes(1024.0 * 1024.0 * 1024.0),
            _ => Self::Word(words.to_owned()),
        }
    }
}

impl TryFrom<toml::Value> for ParameterValue {
    type Error = &'static str;

    fn try_from(value: toml::Value) -> Result<Self, Self::Error> {
        const WANTED: &str = "a number from 0 on, a length of time, a size, a word, true, false or a list is wanted here";
        Ok(match value {
            toml::Value::Integer(number) => Self::Count(u64::try_from(number).map_err(|_| WANTED)?),
            toml::Value::String(words) => Self::of_words(&words),
            toml::Value::Boolean(flag) => Self::Flag(flag),
            toml::Value::Array(values) => {
                let values = values.into_iter().map(Self::try_from);
                Self::List(values.collect::<Result<_, _>>()?)
            }
            _ => return Err(WANTED),
        })
    }
}

impl Parameters {
    /// The values of one run: those that were `given`, else those of `--quick`, else the defaults.
    ///
    /// # Errors
    /// A given value is not of its parameter's kind, or its parameter is not known.
    pub fn chosen(known: &[Parameter], is_quick: bool, given: &[(String, String)]) -> Result<Self> {
        for (name, _) in given {
            if !known.iter().any(|parameter| parameter.name == *name) {
                let names: Vec<&str> = known.iter().map(|one| one.name.as_str()).collect();
                let names = match names.as_slice() {
                    [] => "there are none".to_owned(),
                    names => format!("there are: {}", names.join(", ")),
                };
                bail!("there is no parameter `{name}`; {names}");
            }
        }
        let value = |parameter: &Parameter| {
            let words = given.iter().rev().find(|(name, _)| *name == parameter.name);
            match (words, &parameter.quick) {
                (Some((name, words)), _) => parameter
                    .default
                    .like(words)
                    .with_context(|| format!("parameter {name}")),
                (None, Some(quick)) if is_quick => Ok(quick.clone()),
                _ => Ok(parameter.default.clone()),
            }
        };
        let pairs = known
            .iter()
            .map(|parameter| Ok((parameter.name.clone(), value(parameter)?)));
        pairs.collect::<Result<_>>().map(Self)
    }

    /// All parameters, in the order of the file.
    pub fn all(&self) -> &[(String, ParameterValue)] {
        &self.0
    }

    /// The parameters with another value for `name`, which is added if it was not there.
    #[must_use]
    pub fn with(mut self, name: &str, value: ParameterValue) -> Self {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value,
            None => self.0.push((name.to_owned(), value)),
        }
        self
    }

    /// The value of the parameter `name`, if there is one.
    pub fn find(&self, name: &str) -> Option<&ParameterValue> {
        let pair = self.0.iter().find(|(known, _)| known == name)?;
        Some(&pair.1)
    }

    /// The value of the number `name`.
    ///
    /// # Panics
    /// An experiment's own file has no such number.
    pub fn count(&self, name: &str) -> u64 {
        match self.find(name) {
            Some(ParameterValue::Count(count)) => *count,
            other => unreachable!("the experiment's file has a number {name}: {other:?}"),
        }
    }

    /// The value of the length of time `name`.
    ///
    /// # Panics
    /// As [`Self::count`].
    pub fn time(&self, name: &str) -> Duration {
        match self.find(name) {
            Some(ParameterValue::Time(time)) => *time,
            other => unreachable!("the experiment's file has a length of time {name}: {other:?}"),
        }
    }

    /// The values of the list `name`, which holds numbers or sizes.
    ///
    /// # Panics
    /// As [`Self::count`].
    pub fn counts(&self, name: &str) -> Vec<u64> {
        let Some(ParameterValue::List(values)) = self.find(name) else {
            unreachable!("the experiment's file has a list {name}");
        };
        let number = |value: &ParameterValue| match value {
            ParameterValue::Count(number) | ParameterValue::Size(number) => *number,
            other => {
                unreachable!("the list {name} of the experiment's file is of numbers: {other:?}")
            }
        };
        values.iter().map(number).collect()
    }

    /// The values of the list `name`, which holds lengths of time.
    ///
    /// # Panics
    /// As [`Self::count`].
    pub fn times(&self, name: &str) -> Vec<Duration> {
        let Some(ParameterValue::List(values)) = self.find(name) else {
            unreachable!("the experiment's file has a list {name}");
        };
        let time = |value: &ParameterValue| match value {
            ParameterValue::Time(time) => *time,
            other => {
                unreachable!("the list {name} of the experiment's file is of times: {other:?}")
            }
        };
        values.iter().map(time).collect()
    }

    /// The value of the flag `name`.
    ///
    /// # Panics
    /// As [`Self::count`].
    pub fn flag(&self, name: &str) -> bool {
        match self.find(name) {
            Some(ParameterValue::Flag(flag)) => *flag,
            other => unreachable!("the experiment's file says yes or no to {name}: {other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> Vec<Parameter> {
        let parameter = |name: &str, default, quick| Parameter {
            name: name.to_owned(),
            about: String::new(),
            default,
            quick,
        };
        let time = |ms| ParameterValue::Time(Duration::from_millis(ms));
        vec![
            parameter("work", time(1000), Some(time(200))),
            parameter(
                "members",
                ParameterValue::List(vec![ParameterValue::Count(2)]),
                None,
            ),
        ]
    }

    fn given(name: &str, words: &str) -> Vec<(String, String)> {
        vec![(name.to_owned(), words.to_owned())]
    }

    #[test]
    fn what_is_given_comes_before_quick_and_quick_before_the_default() {
        let work = |is_quick, given: &[_]| {
            Parameters::chosen(&known(), is_quick, given)
                .unwrap()
                .time("work")
                .as_millis()
        };
        assert_eq!(work(false, &[]), 1000);
        assert_eq!(work(true, &[]), 200);
        assert_eq!(work(true, &given("work", "50ms")), 50);
    }

    #[test]
    fn lists_are_written_with_commas() {
        let parameters = Parameters::chosen(&known(), false, &given("members", "2, 4,1_024"));
        assert_eq!(parameters.unwrap().counts("members"), [2, 4, 1024]);
    }

    #[test]
    fn words_of_another_kind_are_refused_with_an_example() {
        let error = Parameters::chosen(&known(), false, &given("work", "5")).unwrap_err();
        assert_eq!(
            format!("{error:#}"),
            "parameter work: `5` is no length of time: give one such as 500ms or 2s"
        );
        let error = Parameters::chosen(&known(), false, &given("wrk", "5s")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no parameter `wrk`; there are: work, members"
        );
    }

    #[test]
    fn units_tell_times_from_sizes() {
        assert_eq!(
            ParameterValue::of_words("64KiB"),
            ParameterValue::Size(65_536)
        );
        assert_eq!(
            ParameterValue::of_words("1.5us"),
            ParameterValue::Time(Duration::from_nanos(1500))
        );
        assert_eq!(
            ParameterValue::of_words("add"),
            ParameterValue::Word("add".to_owned())
        );
        assert_eq!(
            ParameterValue::of_words("5"),
            ParameterValue::Word("5".to_owned())
        );
    }
}
