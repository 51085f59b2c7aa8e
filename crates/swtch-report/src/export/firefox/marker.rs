//! A wait as a marker: its name is the reason, its fields the evidence.

use fxprof_processed_profile::{
    CategoryHandle, MarkerFieldFlags, MarkerFieldFormat, MarkerLocations, Profile,
    StaticSchemaMarker, StaticSchemaMarkerField, StringHandle,
};
use swtch_core::{Nanos, Switch};

use crate::export::evidence::{self, EvidenceValue, Facts, Label, Vocabulary};
use crate::export::life::name_of_wait;

/// Fields that are text, in the order of the schema.
const WORDS: [&str; 9] = [
    "certainty",
    "rule",
    "cause",
    "syscall",
    "wait_key",
    "next",
    "nominator",
    "waker",
    "waker_kind",
];
/// Fields that are lengths, after those.
const LENGTHS: [&str; 3] = ["off_ns", "blocked_ns", "runq_ns"];

/// The marker of a wait, with texts and lengths in the order of the schema.
#[derive(Debug)]
pub struct WaitMarker {
    name: StringHandle,
    category: CategoryHandle,
    words: [StringHandle; WORDS.len()],
    lengths: [Option<Nanos>; LENGTHS.len()],
}

impl WaitMarker {
    /// The wait before the run of `row`, which began with `before`.
    pub fn new(
        row: &Switch,
        before: Option<&Switch>,
        category: CategoryHandle,
        vocabulary: &Vocabulary,
        label: Label<'_>,
        profile: &mut Profile,
    ) -> Self {
        let mut facts = Facts::new();
        if let Some(before) = before {
            evidence::of_departure(before, vocabulary, label, &mut facts);
        }
        evidence::of_wait(row, label, &mut facts);
        let wait = &row.wait;
        Self {
            name: profile.intern_string(name_of_wait(row)),
            category,
            words: WORDS.map(|name| profile.intern_string(&word(&facts, name))),
            lengths: [wait.length(), wait.blocked(), wait.runq],
        }
    }
}

/// The value of a field; empty if the trace does not tell.
fn word(facts: &Facts, name: &str) -> String {
    let fact = facts.iter().find(|fact| fact.0 == name);
    match fact.map(|fact| &fact.1) {
        Some(EvidenceValue::Word(word)) => word.clone(),
        Some(EvidenceValue::Count(count)) => count.to_string(),
        Some(EvidenceValue::Address(address)) => format!("{address:#x}"),
        None => String::new(),
    }
}

const fn text(key: &'static str, label: &'static str) -> StaticSchemaMarkerField {
    StaticSchemaMarkerField {
        key,
        label,
        format: MarkerFieldFormat::String,
        flags: MarkerFieldFlags::SEARCHABLE,
    }
}

const fn length(key: &'static str, label: &'static str) -> StaticSchemaMarkerField {
    StaticSchemaMarkerField {
        key,
        label,
        format: MarkerFieldFormat::Nanoseconds,
        flags: MarkerFieldFlags::empty(),
    }
}

impl StaticSchemaMarker for WaitMarker {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "swtch.wait";
    const DESCRIPTION: Option<&'static str> =
        Some("A thread was off its CPU, from the moment it left until it ran again.");
    const LOCATIONS: MarkerLocations =
        MarkerLocations::MARKER_CHART.union(MarkerLocations::MARKER_TABLE);
    const CHART_LABEL: Option<&'static str> = Some("{marker.name}");
    const TABLE_LABEL: Option<&'static str> =
        Some("{marker.name} {marker.data.syscall} woken by {marker.data.waker}");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[
        text("certainty", "Certainty"),
        text("rule", "Rule"),
        text("cause", "Reschedule asked for by"),
        text("syscall", "System call"),
        text("wait_key", "Waits on"),
        text("next", "Who came"),
        text("nominator", "Nominator"),
        text("waker", "Waker"),
        text("waker_kind", "Woken by a"),
        length("off_ns", "Off the CPU"),
        length("blocked_ns", "Blocked"),
        length("runq_ns", "In the run queue"),
    ];

    fn name(&self, _profile: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _profile: &mut Profile) -> CategoryHandle {
        self.category
    }

    fn string_field_value(&self, field_index: u32) -> StringHandle {
        self.words[field_index as usize]
    }

    /// A length that is not known is NaN, which JSON writes as null.
    #[expect(clippy::cast_precision_loss, reason = "exact up to 104 days")]
    fn number_field_value(&self, field_index: u32) -> f64 {
        let length = self.lengths[field_index as usize - WORDS.len()];
        length.map_or(f64::NAN, |length| length.as_ns() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_in_the_order_of_the_schema() {
        let keys: Vec<_> = WaitMarker::FIELDS.iter().map(|field| field.key).collect();
        let expected: Vec<_> = WORDS.into_iter().chain(LENGTHS).collect();
        assert_eq!(keys, expected);
    }
}
