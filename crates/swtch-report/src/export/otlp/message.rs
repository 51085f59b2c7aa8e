//! The messages of an OTLP profile that an export needs: `opentelemetry/proto/profiles/v1development/profiles.proto` and
//! `common/v1/common.proto` of <https://github.com/open-telemetry/opentelemetry-proto> (ac2c4b5, August 2026), with their
//! numbers. Texts, functions, locations, stacks and attributes are places in the dictionary, whose first entries are empty.

use prost::Message;

/// A file of profiles (`ProfilesData`). The request to a collector has the same fields.
#[derive(Clone, PartialEq, Message)]
pub struct OtlpProfiles {
    #[prost(message, repeated, tag = "1")]
    pub resource_profiles: Vec<OtlpResourceProfiles>,
    #[prost(message, optional, tag = "2")]
    pub dictionary: Option<OtlpDictionary>,
}

/// What profiles refer to (`ProfilesDictionary`).
#[derive(Clone, PartialEq, Message)]
pub struct OtlpDictionary {
    /// Nothing but the empty mapping.
    #[prost(message, repeated, tag = "1")]
    pub mapping_table: Vec<()>,
    #[prost(message, repeated, tag = "2")]
    pub location_table: Vec<OtlpLocation>,
    #[prost(message, repeated, tag = "3")]
    pub function_table: Vec<OtlpFunction>,
    #[prost(message, repeated, tag = "4")]
    pub link_table: Vec<OtlpLink>,
    #[prost(string, repeated, tag = "5")]
    pub string_table: Vec<String>,
    #[prost(message, repeated, tag = "6")]
    pub attribute_table: Vec<OtlpAttribute>,
    #[prost(message, repeated, tag = "7")]
    pub stack_table: Vec<OtlpStack>,
}

/// Profiles of one machine (`ResourceProfiles`).
#[derive(Clone, PartialEq, Message)]
pub struct OtlpResourceProfiles {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<OtlpResource>,
    #[prost(message, repeated, tag = "2")]
    pub scope_profiles: Vec<OtlpScopeProfiles>,
}

/// The machine (`Resource`).
#[derive(Clone, PartialEq, Message)]
pub struct OtlpResource {
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<OtlpKeyValue>,
}

/// What is known of the machine (`KeyValue`).
#[derive(Clone, PartialEq, Message)]
pub struct OtlpKeyValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<OtlpValue>,
}

/// A text or a number (`AnyValue`).
#[derive(Clone, PartialEq, Message)]
pub struct OtlpValue {
    #[prost(string, optional, tag = "1")]
    pub string_value: Option<String>,
    #[prost(int64, optional, tag = "3")]
    pub int_value: Option<i64>,
}

/// Profiles that one program made (`ScopeProfiles`).
#[derive(Clone, PartialEq, Message)]
pub struct OtlpScopeProfiles {
    #[prost(message, optional, tag = "1")]
    pub scope: Option<OtlpScope>,
    #[prost(message, repeated, tag = "2")]
    pub profiles: Vec<OtlpProfile>,
}

/// This program (`InstrumentationScope`).
#[derive(Clone, PartialEq, Message)]
pub struct OtlpScope {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
}

/// Values of one kind (`Profile`).
#[derive(Clone, PartialEq, Message)]
pub struct OtlpProfile {
    #[prost(message, optional, tag = "1")]
    pub sample_type: Option<OtlpValueType>,
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<OtlpSample>,
    #[prost(fixed64, tag = "3")]
    pub time_unix_nano: u64,
    #[prost(uint64, tag = "4")]
    pub duration_nano: u64,
}

/// What a value is, and its unit (`ValueType`).
#[derive(Clone, PartialEq, Message)]
pub struct OtlpValueType {
    #[prost(int32, tag = "1")]
    pub type_strindex: i32,
    #[prost(int32, tag = "2")]
    pub unit_strindex: i32,
}

/// The value of one stack and its attributes (`Sample`).
#[derive(Clone, PartialEq, Message)]
pub struct OtlpSample {
    #[prost(int32, tag = "1")]
    pub stack_index: i32,
    #[prost(int32, repeated, tag = "2")]
    pub attribute_indices: Vec<i32>,
    #[prost(int64, repeated, tag = "4")]
    pub values: Vec<i64>,
}

/// A stack, the innermost frame first (`Stack`).
#[derive(Clone, PartialEq, Message)]
pub struct OtlpStack {
    #[prost(int32, repeated, tag = "1")]
    pub location_indices: Vec<i32>,
}

/// A frame (`Location`).
#[derive(Clone, PartialEq, Message)]
pub struct OtlpLocation {
    #[prost(uint64, tag = "2")]
    pub address: u64,
    #[prost(message, repeated, tag = "3")]
    pub lines: Vec<OtlpLine>,
}

/// The place of a frame in the source (`Line`).
#[derive(Clone, PartialEq, Message)]
pub struct OtlpLine {
    #[prost(int32, tag = "1")]
    pub function_index: i32,
    #[prost(int64, tag = "2")]
    pub line: i64,
}

/// A function (`Function`).
#[derive(Clone, PartialEq, Message)]
pub struct OtlpFunction {
    #[prost(int32, tag = "1")]
    pub name_strindex: i32,
    #[prost(int32, tag = "2")]
    pub system_name_strindex: i32,
    #[prost(int32, tag = "3")]
    pub filename_strindex: i32,
}

/// A span of a trace (`Link`): here only that of no span.
#[derive(Clone, PartialEq, Message)]
pub struct OtlpLink {
    #[prost(bytes = "vec", tag = "1")]
    pub trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    pub span_id: Vec<u8>,
}

/// A text or a number that samples carry (`KeyValueAndUnit`).
#[derive(Clone, PartialEq, Message)]
pub struct OtlpAttribute {
    #[prost(int32, tag = "1")]
    pub key_strindex: i32,
    #[prost(message, optional, tag = "2")]
    pub value: Option<OtlpValue>,
}
