//! The words of a file, as serde reads them once `$NAME` is replaced. What is not here is refused.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use swtch_bench::load::{ChainOperation, EventKind, LoadLockKind, LoadPart};
use swtch_core::Nanos;
use swtch_core::cost::Members;
use toml::{Spanned, Value};

use super::source::Span;
use crate::parameters::ParameterValue;

/// A whole file. Its head is read by [`crate::experiment::ExperimentHead`].
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntries {
    #[serde(rename = "title")]
    _title: Option<IgnoredAny>,
    #[serde(rename = "about")]
    _about: Option<IgnoredAny>,
    #[serde(rename = "parameters")]
    _parameters: Option<IgnoredAny>,
    pub limit: Option<TimeEntry>,
    #[serde(default)]
    pub locks: BTreeMap<NameEntry, LoadLockKind>,
    #[serde(default)]
    pub events: BTreeMap<NameEntry, EventKind>,
    #[serde(default)]
    pub rings: BTreeMap<NameEntry, RingEntry>,
    pub group: Option<Spanned<Vec<Spanned<GroupEntry>>>>,
    pub variant: Option<Spanned<Vec<Spanned<VariantEntry>>>>,
}

/// `{ tokens = 2, by = "futex" }`, or `{ spare = 1, locks = "mutex" }`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RingEntry {
    pub tokens: Option<Spanned<u32>>,
    pub by: Option<Spanned<EventKind>>,
    pub spare: Option<Spanned<u32>>,
    pub locks: Option<LoadLockKind>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VariantEntry {
    pub name: NameEntry,
    #[serde(default)]
    pub about: String,
    pub group: Spanned<Vec<Spanned<GroupEntry>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupEntry {
    pub name: NameEntry,
    pub members: Option<Members>,
    pub count: Option<Spanned<u32>>,
    pub cpus: Option<Spanned<Value>>,
    pub class: Option<Spanned<ClassWord>>,
    pub nice: Option<Spanned<i32>>,
    pub priority: Option<Spanned<u32>>,
    pub slice: Option<Spanned<TimeEntry>>,
    pub body: Vec<Spanned<StepEntry>>,
}

/// Scheduling classes, one for each word of a file.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClassWord {
    Other,
    Batch,
    Idle,
    Fifo,
    #[serde(rename = "rr")]
    RoundRobin,
}

#[derive(Debug)]
pub enum StepEntry {
    Yield,
    Table(Box<StepTable>),
}

/// A step: one of the first thirteen words, with what belongs to it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepTable {
    pub spin: Option<u64>,
    pub work: Option<Spanned<TimeEntry>>,
    pub repeat: Option<u64>,
    pub lock: Option<String>,
    pub unlock: Option<String>,
    pub wait: Option<String>,
    pub signal: Option<String>,
    pub take: Option<String>,
    pub pass: Option<String>,
    pub sleep: Option<TimeEntry>,
    pub watch: Option<TimeEntry>,
    pub read: Option<String>,
    pub touch: Option<SizeEntry>,
    pub kernel: Option<ChainOperation>,
    pub body: Option<Vec<Spanned<StepEntry>>>,
    pub bytes: Option<SizeEntry>,
    pub stride: Option<SizeEntry>,
}

/// A name of at most 100 characters: tables and figures show it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct NameEntry(pub String);

/// A length of time with its unit.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Value")]
pub struct TimeEntry(pub Nanos);

/// A number of bytes, with a unit or without.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "Value")]
pub struct SizeEntry(pub u64);

impl TryFrom<String> for NameEntry {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        const MOST: usize = 100;
        match name.chars().count() {
            0..=MOST => Ok(Self(name)),
            characters => Err(format!(
                "this name has {characters} characters, and {MOST} is the limit"
            )),
        }
    }
}

impl TryFrom<Value> for TimeEntry {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        match ParameterValue::try_from(value) {
            Ok(ParameterValue::Time(time)) => u64::try_from(time.as_nanos())
                .map(|ns| Self(Nanos::from_ns(ns)))
                .map_err(|_| "this is too long"),
            _ => Err("a length of time is wanted here, such as \"500us\" or \"2s\""),
        }
    }
}

impl TryFrom<Value> for SizeEntry {
    type Error = &'static str;

    fn try_from(value: Value) -> Result<Self, Self::Error> {
        match ParameterValue::try_from(value) {
            Ok(ParameterValue::Size(bytes) | ParameterValue::Count(bytes)) => Ok(Self(bytes)),
            _ => Err("a size is wanted here, such as \"64KiB\""),
        }
    }
}

impl<'de> Deserialize<'de> for StepEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct StepVisitor;

        impl<'de> Visitor<'de> for StepVisitor {
            type Value = StepEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a step: \"yield\" or a table")
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<StepEntry, E> {
                match word {
                    "yield" => Ok(StepEntry::Yield),
                    word => Err(E::custom(format_args!(
                        "`{word}` is no step: \"yield\" is the only bare word"
                    ))),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<StepEntry, A::Error> {
                StepTable::deserialize(MapAccessDeserializer::new(map))
                    .map(|table| StepEntry::Table(Box::new(table)))
            }
        }

        deserializer.deserialize_any(StepVisitor)
    }
}

impl GroupEntry {
    /// Where the part that a fault is about is in the text; `None` if it is not there.
    pub fn span_of(&self, part: &LoadPart) -> Option<Span> {
        match part {
            LoadPart::Group => None,
            LoadPart::Count => self.count.as_ref().map(Spanned::span),
            LoadPart::Cpus => self.cpus.as_ref().map(Spanned::span),
            LoadPart::Class => {
                let nice = self.nice.as_ref().map(Spanned::span);
                let number = nice.or_else(|| self.priority.as_ref().map(Spanned::span));
                number.or_else(|| self.class.as_ref().map(Spanned::span))
            }
            LoadPart::Slice => self.slice.as_ref().map(Spanned::span),
            LoadPart::Step(path) => {
                let (mut steps, mut span) = (self.body.as_slice(), None);
                for index in path {
                    let Some(step) = steps.get(*index) else { break };
                    span = Some(step.span());
                    steps = match step.get_ref() {
                        StepEntry::Table(table) => table.body.as_deref().unwrap_or_default(),
                        StepEntry::Yield => &[],
                    };
                }
                span
            }
        }
    }
}
