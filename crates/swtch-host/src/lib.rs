//! The facts of a host that change the answers: a switch means something else under full
//! preemption, in a virtual machine, or with half the CPUs taken by a quota.
//!
//! Each [`Fact`] says where it was read and why it matters. A fact that cannot be read has an
//! unknown value and the cause; no typical value is filled in. Every fact is read by one function
//! and parsed by another that is pure, so that the tests can show it the files of machines that we
//! do not have:
//!
//! ```text
//! /proc, /sys ──read──▶ text ──parser──▶ SourcedValue ──▶ Fact { name, value, source, note }
//! ```
//!
//! - `scheduler`: preemption model, tick, slice, features.
//! - `config`: options that the kernel was built with.
//! - `own`: policy, clamp and speculation of this process.
//! - `processor`: CPUs, SMT, frequency, mitigations, virtualisation.
//! - `topology`: NUMA nodes and SMT siblings.
//! - `clock`: the clock source, and what a time stamp costs.
//! - `cache`, `paging`, `idle`: caches, TLB and registers, idle states.
//! - `memory`: huge pages, swap, migration of pages.
//! - `pressure`, `cgroup`, `interference`: load, limits, and other work on this host.
//! - [`hierarchy`]: paths, quotas and throttling of any cgroup.
//! - `program`: how this program was built.
//!
//! Besides facts: [`ability`] judges what swtch can record here, and [`thread`] reads what the
//! kernel has counted of one thread.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

use std::fs;
use std::io::ErrorKind;

use serde::Serialize;
use swtch_capture::probe;
use swtch_core::cost;
use swtch_output::host::HostWords;

pub mod ability;
mod cache;
mod cgroup;
mod clock;
mod config;
pub mod hierarchy;
mod idle;
mod interference;
pub mod kernel;
mod memory;
mod own;
mod paging;
mod pressure;
mod processor;
mod program;
mod scheduler;
pub mod thread;
mod topology;
mod used_up;

pub use pressure::{LoadSums, pressure_total, steal};
pub use processor::model_name;
pub use topology::read_topology;
pub use used_up::{DiskSums, MemoryLimit};

/// One fact about the host, with its source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// A key in lower case that ends in its unit where it has one.
    pub name: &'static str,
    /// The value as text, or why it is not known.
    #[serde(flatten)]
    pub value: FactValue,
    /// The file or rule it was read from.
    pub source: String,
    /// The reason why it changes the answers.
    pub note: &'static str,
}

/// The value of a fact, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FactValue {
    /// The value as text, as it is shown.
    #[serde(rename = "value")]
    Known(String),
    /// The reason why the value could not be read.
    #[serde(rename = "unknown")]
    Unknown(String),
}

impl std::fmt::Display for FactValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Known(value) => f.pad(value),
            Self::Unknown(why) => f.pad(&format!("unknown: {why}")),
        }
    }
}

/// A value and where it was read: a [`Fact`] that has no name and note yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SourcedValue {
    value: FactValue,
    source: String,
}

impl SourcedValue {
    pub(crate) fn known(value: impl Into<String>, source: impl Into<String>) -> Self {
        Self {
            value: FactValue::Known(value.into()),
            source: source.into(),
        }
    }

    pub(crate) fn unknown(why: impl Into<String>, source: impl Into<String>) -> Self {
        Self {
            value: FactValue::Unknown(why.into()),
            source: source.into(),
        }
    }

    /// The value that `parse` finds in the file `path`; unknown if the file cannot be read or
    /// parsed.
    fn in_file(path: &str, parse: impl FnOnce(&str) -> Option<String>) -> Self {
        match read(path) {
            Ok(text) => match parse(&text) {
                Some(value) => Self::known(value, path),
                None => Self::unknown("not understood", path),
            },
            Err(why) => Self::unknown(why, path),
        }
    }

    /// As [`SourcedValue::in_file`], but a file that does not exist has the meaning `absent`.
    fn in_file_or(path: &str, absent: &str, parse: impl FnOnce(&str) -> Option<String>) -> Self {
        match fs::exists(path) {
            Ok(false) => Self::known(absent, format!("no {path}")),
            _ => Self::in_file(path, parse),
        }
    }

    /// The whole text of `path` as the value.
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

/// The text of a file without its last newline, or the reason why it cannot be read.
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

/// The identity of this host.
#[derive(Clone, Debug, Serialize)]
pub struct Host {
    /// The name of the host, as `uname -n` shows it.
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
    /// Reads these facts; those that cannot be read are `unknown`.
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

    /// Returns the words in which lines describe this host.
    pub fn words(&self) -> HostWords<'_> {
        HostWords {
            hostname: &self.hostname,
            kernel_release: &self.kernel_release,
            machine: Some(&self.machine),
            cpu_model: None,
            cpus: Some(u64::try_from(self.cpus).unwrap_or(u64::MAX)),
            is_light: swtch_output::built::IS_LIGHT,
        }
    }
}

/// Number of periods so far in which a CPU quota above this process was used up; `None` if no
/// cgroup counts them.
pub fn throttled_periods() -> Option<u64> {
    cgroup::throttled_periods(probe::cgroups().ok().as_ref())
}

/// The CPU quotas of our cgroup and of those above it: `/a: 50000 of 100000 us`; `None` if there is
/// none.
pub fn cpu_limits() -> Option<String> {
    cgroup::limits(probe::cgroups().ok().as_ref())
}

/// The kernel's preemption model in one word, such as `none`, `full` or `lazy`; `None` where the
/// kernel does not tell it.
pub fn preemption_model() -> Option<String> {
    scheduler::preemption_model(config::KernelConfig::read().as_ref())
}

/// Size of the second-level cache, which a CPU shares at most with its sibling; `None` if the
/// kernel shows none.
pub fn private_cache_bytes() -> Option<u64> {
    cache::second_level_bytes()
}

/// Size of the largest cache; `None` where the kernel shows none.
pub fn last_level_cache_bytes() -> Option<u64> {
    cache::largest_bytes()
}

/// All facts, with those that people ask for first at the top.
pub fn facts() -> Vec<Fact> {
    let config = config::KernelConfig::read();
    let cgroups = probe::cgroups().ok();
    [
        scheduler::facts(config.as_ref()),
        config::facts(config.as_ref()),
        own::facts(),
        processor::facts(),
        topology::facts(),
        clock::facts(),
        cache::facts(),
        paging::facts(),
        idle::facts(),
        memory::facts(),
        pressure::facts(cgroups.as_ref()),
        cgroup::facts(cgroups.as_ref()),
        interference::facts(),
        program::facts(),
    ]
    .concat()
}

/// All facts in the form of a price list: a fact that is not known has no value, and its source
/// says why.
pub fn price_facts() -> Vec<cost::PriceFact> {
    facts().into_iter().map(Fact::for_prices).collect()
}

impl Fact {
    fn for_prices(self) -> cost::PriceFact {
        let (value, source) = match self.value {
            FactValue::Known(value) => (Some(value), self.source),
            FactValue::Unknown(why) => (None, format!("{}: {why}", self.source)),
        };
        cost::PriceFact {
            name: self.name.to_owned(),
            value,
            source,
        }
    }
}

/// The machine, kernel and boot for which prices measured now hold.
pub fn origin() -> cost::Origin {
    let host = Host::read();
    let unknown = || "unknown".to_owned();
    cost::Origin {
        hostname: host.hostname,
        kernel_release: host.kernel_release,
        kernel_version: host.kernel_version,
        machine: host.machine,
        cpu_model: processor::model_name().unwrap_or_else(unknown),
        cpus: host.cpus,
        boot_id: read("/proc/sys/kernel/random/boot_id").unwrap_or_else(|_| unknown()),
        measured_at: jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string(),
        swtch_version: swtch_output::built::VERSION.to_owned(),
    }
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
        let finding = SourcedValue::text_of("/proc/no/such/file");
        let why = "this kernel has no such file".to_owned();
        assert_eq!(finding.value, FactValue::Unknown(why));
    }

    #[test]
    fn an_unknown_fact_has_no_value_in_a_price_list_but_a_cause() {
        let fact = SourcedValue::unknown("permission denied", "/f").named("slice", "why");
        let expected = cost::PriceFact {
            name: "slice".to_owned(),
            value: None,
            source: "/f: permission denied".to_owned(),
        };
        assert_eq!(fact.for_prices(), expected);
        let known = SourcedValue::known("8", "/f")
            .named("slice", "why")
            .for_prices();
        assert_eq!(
            (known.value.as_deref(), known.source.as_str()),
            (Some("8"), "/f")
        );
    }

    #[test]
    fn an_origin_names_this_boot_and_the_moment_in_utc() {
        let origin = origin();
        assert_eq!(origin.boot_id.len(), 36);
        let measured_at: jiff::Timestamp = origin.measured_at.parse().unwrap();
        let age = jiff::Timestamp::now().duration_since(measured_at);
        assert!(age.as_secs() < 60, "{origin:?}");
    }

    #[test]
    fn an_unknown_fact_keeps_its_cause_in_json() {
        let fact = SourcedValue::unknown("permission denied", "/f").named("slice", "why");
        let json = serde_json::to_string(&fact).unwrap();
        assert_eq!(
            json,
            r#"{"name":"slice","unknown":"permission denied","source":"/f","note":"why"}"#
        );
    }
}
