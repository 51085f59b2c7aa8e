//! Puts the values of parameters where a file says `$NAME`, before serde reads it.

use std::borrow::Cow;

use toml::Spanned;
use toml::de::DeValue;

use super::source::{LoadFileError, SourceText};
use crate::parameters::{ParameterValue, Parameters};

/// The values that `$NAME` stands for, each with its words: numbers are read from these.
pub struct Replacements(Vec<(String, ParameterValue, String)>);

impl Replacements {
    pub fn new(parameters: &Parameters) -> Self {
        let all = parameters.all().iter().cloned();
        Self(
            all.map(|(name, value)| (name, value.clone(), value.to_string()))
                .collect(),
        )
    }

    /// Replaces each `$NAME` in a value of a file. What replaces it has the place of the name, so
    /// that mistakes point there.
    ///
    /// # Errors
    /// There is no such parameter.
    pub fn apply<'a>(
        &'a self,
        source: &SourceText,
        value: &mut Spanned<DeValue<'a>>,
    ) -> Result<(), LoadFileError> {
        let span = value.span();
        match value.get_mut() {
            DeValue::Table(table) => {
                let mut values = table.iter_mut().map(|(_, value)| value);
                values.try_for_each(|value| self.apply(source, value))
            }
            DeValue::Array(list) => {
                let mut values = list.iter_mut();
                values.try_for_each(|value| self.apply(source, value))
            }
            DeValue::String(word) => {
                if let Some(name) = word.strip_prefix('$') {
                    let found = self.0.iter().find(|(known, ..)| known == name);
                    let (_, known, words) =
                        found.ok_or_else(|| source.mistake(&span, self.unknown(name)))?;
                    *value.get_mut() = toml_of(known, words);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn unknown(&self, name: &str) -> String {
        let names: Vec<_> = self.0.iter().map(|(name, ..)| name.as_str()).collect();
        let known = match names.as_slice() {
            [] => "there are none".to_owned(),
            names => format!("there are: {}", names.join(", ")),
        };
        format!("there is no parameter `{name}`; {known}")
    }
}

/// The value as a file has it.
fn toml_of<'a>(value: &'a ParameterValue, words: &'a str) -> DeValue<'a> {
    let text = |text: String| DeValue::String(Cow::Owned(text));
    match value {
        // No parameter is below 0: such a default is a word.
        ParameterValue::Count(_) | ParameterValue::Word(_)
            if words
                .parse::<i128>()
                .is_ok_and(|number| number.to_string() == words) =>
        {
            DeValue::parse(words).map_or(DeValue::String(words.into()), Spanned::into_inner)
        }
        ParameterValue::Count(_) | ParameterValue::Word(_) => DeValue::String(words.into()),
        ParameterValue::Time(time) => text(format!("{}ns", time.as_nanos())),
        ParameterValue::Size(bytes) => text(format!("{bytes}B")),
        ParameterValue::Flag(flag) => DeValue::Boolean(*flag),
        ParameterValue::List(values) => {
            let values = values.iter().zip(words.split(','));
            let values = values.map(|(value, words)| Spanned::new(0..0, toml_of(value, words)));
            DeValue::Array(values.collect())
        }
    }
}
