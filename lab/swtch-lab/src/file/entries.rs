//! A table of a file while it is being read: every entry is asked for by its word, and an entry
//! that was not asked for is a mistake.

use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::source::{LoadFileError, SourceText, Span};
use crate::parameters::{ParameterValue, Parameters};

/// The longest name of a group, a variant, a lock, an event or a ring.
pub const MAX_NAME_CHARACTERS: usize = 100;

/// The text and the parameters that entries are read with.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The file, for messages that point into it.
    pub source: &'a SourceText,
    /// The values that `$NAME` stands for.
    pub parameters: &'a Parameters,
}

/// An entry of a table or an element of a list, with its place in the text.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    context: Context<'a>,
    value: &'a Spanned<DeValue<'a>>,
}

/// A table, with the words that were asked for so far.
#[derive(Debug)]
pub struct Entries<'a> {
    context: Context<'a>,
    table: &'a DeTable<'a>,
    span: Span,
    asked: Vec<&'static str>,
}

/// A plain value: the one in the text, or that of the parameter that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
enum PlainValue {
    /// A value that a parameter can be.
    Value(ParameterValue),
    /// A number below 0, which no parameter can be.
    Negative(i64),
}

impl<'a> Entries<'a> {
    /// Begins to read the table at `span`.
    pub const fn new(context: Context<'a>, table: &'a DeTable<'a>, span: Span) -> Self {
        Self {
            context,
            table,
            span,
            asked: Vec::new(),
        }
    }

    /// The bytes of the table in the text.
    pub fn span(&self) -> Span {
        self.span.clone()
    }

    /// The entry `word`, if it is there.
    pub fn find(&mut self, word: &'static str) -> Option<Item<'a>> {
        self.asked.push(word);
        let context = self.context;
        self.table.get(word).map(|value| Item { context, value })
    }

    /// Marks these words as known; another reader takes them.
    pub fn pass_over(&mut self, words: &[&'static str]) {
        self.asked.extend(words);
    }

    /// The entry `word`, which must be there.
    ///
    /// # Errors
    /// The entry is missing.
    pub fn need(&mut self, word: &'static str) -> Result<Item<'a>, LoadFileError> {
        self.find(word).ok_or_else(|| {
            self.context
                .source
                .mistake(&self.span, format!("`{word}` is missing"))
        })
    }

    /// Checks that every entry was asked for.
    ///
    /// # Errors
    /// The table has an entry that was not asked for.
    pub fn finish(self) -> Result<(), LoadFileError> {
        let unknown = self
            .table
            .keys()
            .find(|key| !self.asked.contains(&key.get_ref().as_ref()));
        unknown.map_or(Ok(()), |key| {
            let why = format!(
                "`{}` is not known here; known are: {}",
                key.get_ref(),
                self.asked.join(", ")
            );
            Err(self.context.source.mistake(&key.span(), why))
        })
    }

    /// All entries with their words, for tables whose words the file chooses.
    pub fn all(&self) -> impl Iterator<Item = (&'a str, Item<'a>)> + use<'a> {
        let context = self.context;
        let entry = move |(key, value): (&'a Spanned<_>, &'a Spanned<DeValue<'a>>)| {
            let key: &'a std::borrow::Cow<'a, str> = key.get_ref();
            (&**key, Item { context, value })
        };
        self.table.iter().map(entry)
    }
}

impl<'a> Item<'a> {
    /// The bytes of it in the text.
    pub fn span(&self) -> Span {
        self.value.span()
    }

    /// A mistake that points at it.
    pub fn mistake(&self, why: impl Into<String>) -> LoadFileError {
        self.context.source.mistake(&self.span(), why)
    }

    /// The TOML value, before `$NAME` is replaced.
    pub fn raw(&self) -> &'a DeValue<'a> {
        self.value.get_ref()
    }

    /// Reads it as a table.
    ///
    /// # Errors
    /// It is not a table.
    pub fn entries(&self) -> Result<Entries<'a>, LoadFileError> {
        match self.raw() {
            DeValue::Table(table) => Ok(Entries::new(self.context, table, self.span())),
            _ => Err(self.mistake("a table is wanted here")),
        }
    }

    /// The elements of a list.
    ///
    /// # Errors
    /// It is not a list.
    pub fn elements(&self) -> Result<Vec<Self>, LoadFileError> {
        let DeValue::Array(array) = self.raw() else {
            return Err(self.mistake("a list is wanted here: […]"));
        };
        let context = self.context;
        Ok(array.iter().map(|value| Self { context, value }).collect())
    }

    /// Reads it as a word.
    ///
    /// # Errors
    /// It is not a word.
    pub fn word(&self) -> Result<String, LoadFileError> {
        match self.plain()? {
            PlainValue::Value(ParameterValue::Word(word)) => Ok(word),
            _ => Err(self.mistake("a word is wanted here, in quotes")),
        }
    }

    /// A word that names something. Names are short because tables and figures show them.
    ///
    /// # Errors
    /// It is not a word, or it is too long.
    pub fn name(&self) -> Result<String, LoadFileError> {
        let name = self.word()?;
        self.check_name(&name)?;
        Ok(name)
    }

    /// Checks a name, which may be the word that this entry has in the file.
    ///
    /// # Errors
    /// It is too long.
    pub fn check_name(&self, name: &str) -> Result<(), LoadFileError> {
        match name.chars().count() {
            0..=MAX_NAME_CHARACTERS => Ok(()),
            characters => Err(self.mistake(format!(
                "this name has {characters} characters, and {MAX_NAME_CHARACTERS} is the limit"
            ))),
        }
    }

    /// The value of one of several words.
    ///
    /// # Errors
    /// It is none of these words.
    pub fn one_of<T: Copy>(&self, known: &[(&str, T)]) -> Result<T, LoadFileError> {
        let found = match self.plain()? {
            PlainValue::Value(ParameterValue::Word(word)) => {
                known.iter().find(|(name, _)| *name == word).copied()
            }
            _ => None,
        };
        found.map(|(_, value)| value).ok_or_else(|| {
            let words: Vec<_> = known.iter().map(|(word, _)| *word).collect();
            self.mistake(format!("this is none of: {}", words.join(", ")))
        })
    }

    /// Reads it as a number from 0 on.
    ///
    /// # Errors
    /// It is not such a number.
    pub fn count(&self) -> Result<u64, LoadFileError> {
        match self.plain()? {
            PlainValue::Value(ParameterValue::Count(count)) => Ok(count),
            _ => Err(self.mistake("a number from 0 on is wanted here")),
        }
    }

    /// Reads it as a number that fits a `u32`.
    ///
    /// # Errors
    /// It is not such a number.
    pub fn small_count(&self) -> Result<u32, LoadFileError> {
        let count = self.count()?;
        u32::try_from(count).map_err(|_| self.mistake(format!("{count} is too large")))
    }

    /// Reads it as a number that may be below 0.
    ///
    /// # Errors
    /// It is not a number, or it does not fit.
    pub fn signed(&self) -> Result<i32, LoadFileError> {
        let number = match self.plain()? {
            PlainValue::Value(ParameterValue::Count(count)) => i32::try_from(count).ok(),
            PlainValue::Negative(number) => i32::try_from(number).ok(),
            // A parameter's default that begins with a minus is a word.
            PlainValue::Value(ParameterValue::Word(word)) => word.parse().ok(),
            PlainValue::Value(_) => None,
        };
        number.ok_or_else(|| self.mistake("a number is wanted here"))
    }

    /// Reads it as a length of time.
    ///
    /// # Errors
    /// It is not a length of time.
    pub fn time(&self) -> Result<Duration, LoadFileError> {
        match self.plain()? {
            PlainValue::Value(ParameterValue::Time(time)) => Ok(time),
            _ => Err(self.mistake("a length of time is wanted here, such as \"500us\" or \"2s\"")),
        }
    }

    /// Reads it as a number of bytes.
    ///
    /// # Errors
    /// It is not a size or a number.
    pub fn size(&self) -> Result<u64, LoadFileError> {
        match self.plain()? {
            PlainValue::Value(ParameterValue::Size(bytes) | ParameterValue::Count(bytes)) => {
                Ok(bytes)
            }
            _ => Err(self.mistake("a size is wanted here, such as \"64KiB\"")),
        }
    }

    /// Reads it as a value of any kind that a parameter can have.
    ///
    /// # Errors
    /// It is of another kind, or a number below 0.
    pub fn value(&self) -> Result<ParameterValue, LoadFileError> {
        match self.plain()? {
            PlainValue::Value(value) => Ok(value),
            PlainValue::Negative(_) => Err(self.mistake("a number from 0 on is wanted here")),
        }
    }

    fn plain(&self) -> Result<PlainValue, LoadFileError> {
        let value = match self.raw() {
            DeValue::String(words) => match words.strip_prefix('$') {
                Some(name) => self.parameter(name)?,
                None => ParameterValue::of_words(words),
            },
            DeValue::Integer(number) => {
                let digits = i64::from_str_radix(number.as_str(), number.radix());
                let number = digits.map_err(|_| self.mistake("this number is too large"))?;
                match u64::try_from(number) {
                    Ok(count) => ParameterValue::Count(count),
                    Err(_) => return Ok(PlainValue::Negative(number)),
                }
            }
            DeValue::Boolean(flag) => ParameterValue::Flag(*flag),
            DeValue::Array(_) => {
                let elements = self.elements()?;
                let values = elements.iter().map(Self::value);
                ParameterValue::List(values.collect::<Result<_, _>>()?)
            }
            _ => return Err(self.mistake("a number, a word or a list is wanted here")),
        };
        Ok(PlainValue::Value(value))
    }

    fn parameter(&self, name: &str) -> Result<ParameterValue, LoadFileError> {
        let parameters = self.context.parameters;
        parameters.find(name).cloned().ok_or_else(|| {
            let names = parameters.all().iter().map(|(name, _)| name.as_str());
            let names: Vec<_> = names.collect();
            let known = match names.as_slice() {
                [] => "there are none".to_owned(),
                names => format!("there are: {}", names.join(", ")),
            };
            self.mistake(format!("there is no parameter `{name}`; {known}"))
        })
    }
}
