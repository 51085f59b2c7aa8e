//! The profile of [`super::pprof`] as a file of OTLP profiles (the signal's alpha, `v1development`).
//!
//! OTLP has one profile for each kind of value where pprof has one with all, and numbers its tables from 0, where an
//! empty entry stands. So numbers of functions and locations, which pprof counts from 1, and of texts stay as they are.

mod message;

use std::io::Write;

use anyhow::{Context as _, Result};
use prost::Message as _;
use rustc_hash::FxHashMap;
use swtch_output::text::escaped;
use swtch_store::Meta;

use super::pprof::message::{Function, Label, Location, Profile};
use super::pprof::{self, LabelKeys};
use super::rows::ExportRows;
use message::{
    OtlpAttribute, OtlpDictionary, OtlpFunction, OtlpKeyValue, OtlpLine, OtlpLink, OtlpLocation,
    OtlpProfile, OtlpProfiles, OtlpResource, OtlpResourceProfiles, OtlpSample, OtlpScope,
    OtlpScopeProfiles, OtlpStack, OtlpValue, OtlpValueType,
};

/// The names of OpenTelemetry's semantic conventions, where they have one.
const KEYS: LabelKeys = LabelKeys {
    process: "process.title",
    pid: "process.pid",
    thread: "thread.name",
    tid: "thread.id",
    reason: "swtch.reason",
    cgroup: "process.linux.cgroup",
};

/// Writes the profiles.
///
/// # Errors
/// When the trace cannot be read, there is more in it than the format can number, or `out` cannot be written.
pub fn write(rows: &mut ExportRows<'_>, out: &mut dyn Write) -> Result<()> {
    let profile = pprof::profile(rows, KEYS)?;
    let profiles = profiles(profile, rows.meta())
        .context("OTLP numbers 2,147,483,647 texts or places, and the trace has more")?;
    out.write_all(&profiles.encode_to_vec())?;
    Ok(())
}

/// Values that are numbered from 0, where the empty one is.
struct Numbered<T>(FxHashMap<T, i32>);

impl<T: std::hash::Hash + Eq> Numbered<T> {
    /// The number of a value, and whether it is new.
    fn number(&mut self, value: T) -> Result<(i32, bool)> {
        let next = i32::try_from(self.0.len() + 1)?;
        let number = *self.0.entry(value).or_insert(next);
        Ok((number, number == next))
    }
}

fn profiles(profile: Profile, meta: &Meta) -> Result<OtlpProfiles> {
    let (stack_table, attribute_table, samples) = samples(&profile)?;
    let of_kind = |(place, kind): (usize, &pprof::message::ValueType)| {
        let with_value = samples.iter().filter(|sample| sample.values[place] > 0);
        Ok(OtlpProfile {
            sample_type: Some(OtlpValueType {
                type_strindex: i32::try_from(kind.r#type)?,
                unit_strindex: i32::try_from(kind.unit)?,
            }),
            samples: with_value
                .map(|sample| OtlpSample {
                    values: vec![sample.values[place]],
                    ..sample.clone()
                })
                .collect(),
            time_unix_nano: u64::try_from(profile.time_nanos)?,
            duration_nano: u64::try_from(profile.duration_nanos)?,
        })
    };
    let kinds = profile.sample_type.iter().enumerate();
    let of_machine = [
        ("host.name", escaped(&meta.host.hostname).into_owned()),
        ("os.type", "linux".to_owned()),
    ];
    let resource = OtlpResourceProfiles {
        resource: Some(OtlpResource {
            attributes: of_machine.map(key_value).to_vec(),
        }),
        scope_profiles: vec![OtlpScopeProfiles {
            scope: Some(OtlpScope {
                name: "swtch".to_owned(),
                version: escaped(&meta.swtch_version).into_owned(),
            }),
            profiles: kinds.map(of_kind).collect::<Result<_>>()?,
        }],
    };
    let dictionary = OtlpDictionary {
        mapping_table: vec![()],
        location_table: after_empty(profile.location.iter().map(location))?,
        function_table: after_empty(profile.function.iter().map(function))?,
        link_table: vec![OtlpLink {
            trace_id: vec![0; 16],
            span_id: vec![0; 8],
        }],
        attribute_table,
        stack_table,
        string_table: profile.string_table,
    };
    Ok(OtlpProfiles {
        resource_profiles: vec![resource],
        dictionary: Some(dictionary),
    })
}

type SamplesWithTables = (Vec<OtlpStack>, Vec<OtlpAttribute>, Vec<OtlpSample>);

/// The samples with all their values, and the stacks and attributes that they have.
fn samples(profile: &Profile) -> Result<SamplesWithTables> {
    let (mut stacks, mut labels) = (
        Numbered(FxHashMap::default()),
        Numbered(FxHashMap::default()),
    );
    let mut stack_table = vec![OtlpStack::default()];
    let mut attribute_table = vec![OtlpAttribute::default()];
    let mut samples = Vec::new();
    for sample in &profile.sample {
        let (stack_index, is_new) = stacks.number(sample.location_id.as_slice())?;
        if is_new {
            let numbers = sample.location_id.iter().copied();
            stack_table.push(OtlpStack {
                location_indices: numbers.map(i32::try_from).collect::<Result<_, _>>()?,
            });
        }
        let mut attribute_indices = Vec::new();
        for label in &sample.label {
            let (number, is_new) = labels.number((label.key, label.str, label.num))?;
            if is_new {
                attribute_table.push(attribute(label, &profile.string_table)?);
            }
            attribute_indices.push(number);
        }
        samples.push(OtlpSample {
            stack_index,
            attribute_indices,
            values: sample.value.clone(),
        });
    }
    Ok((stack_table, attribute_table, samples))
}

/// Here texts of attributes stand in them.
fn attribute(label: &Label, texts: &[String]) -> Result<OtlpAttribute> {
    let text = texts[usize::try_from(label.str)?].clone();
    let is_text = label.str != 0;
    Ok(OtlpAttribute {
        key_strindex: i32::try_from(label.key)?,
        value: Some(OtlpValue {
            string_value: is_text.then_some(text),
            int_value: (!is_text).then_some(label.num),
        }),
    })
}

fn location(location: &Location) -> Result<OtlpLocation> {
    let lines = location.line.iter().map(|line| {
        Ok(OtlpLine {
            function_index: i32::try_from(line.function_id)?,
            line: line.line,
        })
    });
    Ok(OtlpLocation {
        address: location.address,
        lines: lines.collect::<Result<_>>()?,
    })
}

fn function(function: &Function) -> Result<OtlpFunction> {
    Ok(OtlpFunction {
        name_strindex: i32::try_from(function.name)?,
        system_name_strindex: i32::try_from(function.system_name)?,
        filename_strindex: i32::try_from(function.filename)?,
    })
}

/// A table: the empty entry, then these.
fn after_empty<T: Default>(entries: impl Iterator<Item = Result<T>>) -> Result<Vec<T>> {
    std::iter::once(Ok(T::default())).chain(entries).collect()
}

fn key_value((key, value): (&str, String)) -> OtlpKeyValue {
    OtlpKeyValue {
        key: key.to_owned(),
        value: Some(OtlpValue {
            string_value: Some(value),
            int_value: None,
        }),
    }
}
