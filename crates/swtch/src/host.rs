//! The facts of a host that change the answers: a switch means something else under full
//! preemption, in a virtual machine, or with half the CPUs taken by a quota.
//!
//! Each [`Fact`] says where it was read and why it matters. What cannot be read is an unknown value
//! with the cause; nothing is filled in from what such machines usually have. Every fact is read by
//! one function and understood by another that is pure, so that the tests can show it the files of
//! machines we do not have:
//!
//! ```text
//!   /proc, /sys ──read──▶ text ──pure parser──▶ Value ──▶ Fact { name, value, source, note }
//! ```
//!
//! - [`scheduler`]: preemption model, tick, slice, features.
//! - [`processor`]: CPUs, SMT, frequency, mitigations, virtualisation, clock.
//! - [`pressure`]: memory, load, pressure, cgroups, quotas, containers.

use std::fs;
use std::io::ErrorKind;

use serde::Serialize;

mod pressure;
mod processor;
mod scheduler;

/// One fact, with its origin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// A key in lower case that ends in its unit where it has one.
    pub name: &'static str,
    /// What was found.
    #[serde(flatten)]
    pub value: Value,
    /// The file or rule it was read from.
    pub source: String,
    /// Why it changes the answers.
    pub note: &'static str,
}

/// The value of a fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Value {
    /// It is this.
    #[serde(rename = "value")]
    Known(String),
    /// It could not be had, for this reason.
    #[serde(rename = "unknown")]
    Unknown(String),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Known(value) => f.pad(value),
            Self::Unknown(why) => f.pad(&format!("unknown: {why}")),
        }
    }
}

/// A value with the place where it was found, or why there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    value: Value,
    source: String,
}

impl Finding {
    pub(crate) fn known(value: impl Into<String>, source: impl Into<String>) -> Self {
        Self {
            value: Value::Known(value.into()),
            source: source.into(),
        }
    }

    pub(crate) fn unknown(why: impl Into<String>, source: impl Into<String>) -> Self {
        Self {
            value: Value::Unknown(why.into()),
            source: source.into(),
        }
    }

    /// What `parse` makes of the text of `path`; unknown when either does not work out.
    fn in_file(path: &str, parse: impl FnOnce(&str) -> Option<String>) -> Self {
        match read(path) {
            Ok(text) => match parse(&text) {
                Some(value) => Self::known(value, path),
                None => Self::unknown("not understood", path),
            },
            Err(why) => Self::unknown(why, path),
        }
    }

    /// As [`Finding::in_file`], where it is an answer that the file is not there.
    fn in_file_or(path: &str, absent: &str, parse: impl FnOnce(&str) -> Option<String>) -> Self {
        match fs::exists(path) {
            Ok(false) => Self::known(absent, format!("no {path}")),
            _ => Self::in_file(path, parse),
        }
    }

    /// The text of `path` as it is.
    fn text_of(path: &str) -> Self {
        Self::in_file(path, |text| Some(or_none(text)))
    }

    pub(crate) fn named(self, name: &'static str, note: &'static str) -> Fact {
        Fact {
            name,
            value: self.value,
            source: self.source,
            note,
        }
    }
}

/// The kernel writes an empty line for an empty list.
fn or_none(text: &str) -> String {
    if text.is_empty() { "none" } else { text }.to_owned()
}

/// The text of a file without its last newline, or why it cannot be had.
fn read(path: &str) -> Result<String, String> {
    match fs::read(path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).trim_end().to_owned()),
        Err(error) => Err(match error.kind() {
            ErrorKind::NotFound if path.starts_with("/sys/kernel/debug/") => {
                "no such file: sudo mount -t debugfs none /sys/kernel/debug may show it".to_owned()
            }
            ErrorKind::NotFound => "this kernel has no such file".to_owned(),
            ErrorKind::PermissionDenied => "permission denied".to_owned(),
            _ => error.to_string(),
        }),
    }
}

/// Which host this is.
#[derive(Clone, Debug, Serialize)]
pub struct Host {
    /// Its name.
    pub hostname: String,
    /// The kernel's release, as `uname -r` shows it.
    pub kernel_release: String,
    /// The kernel's build, as `uname -v` shows it.
    pub kernel_version: String,
    /// The architecture, as `uname -m` shows it.
    pub machine: String,
    /// CPUs that are online; 0 when that cannot be read.
    pub cpus: usize,
}

impl Host {
    /// Reads it; what is missing reads `unknown`.
    pub fn read() -> Self {
        let kernel = |name: &str| {
            read(&format!("/proc/sys/kernel/{name}")).unwrap_or_else(|_| "unknown".to_owned())
        };
        Self {
            hostname: kernel("hostname"),
            kernel_release: kernel("osrelease"),
            kernel_version: kernel("version"),
            machine: std::env::consts::ARCH.to_owned(),
            cpus: processor::count_online().unwrap_or_default(),
        }
    }
}

/// All facts, in the order in which a person would ask for them.
pub fn facts() -> Vec<Fact> {
    let mut facts = scheduler::facts();
    facts.extend(processor::facts());
    facts.extend(pressure::facts());
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fact_has_a_name_of_its_own_and_a_reason() {
        let facts = facts();
        for (index, fact) in facts.iter().enumerate() {
            assert!(!fact.note.is_empty() && !fact.source.is_empty(), "{fact:?}");
            assert!(
                facts[..index]
                    .iter()
                    .all(|earlier| earlier.name != fact.name),
                "{fact:?}"
            );
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_unknown_and_says_why() {
        let finding = Finding::text_of("/proc/no/such/file");
        let why = "this kernel has no such file".to_owned();
        assert_eq!(finding.value, Value::Unknown(why));
    }

    #[test]
    fn an_unknown_fact_keeps_its_cause_in_json() {
        let fact = Finding::unknown("permission denied", "/f").named("slice", "why");
        let json = serde_json::to_string(&fact).unwrap();
        assert_eq!(
            json,
            r#"{"name":"slice","unknown":"permission denied","source":"/f","note":"why"}"#
        );
    }
}
