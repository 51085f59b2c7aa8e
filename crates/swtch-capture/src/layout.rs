//! Tests that the records of `bpf/record.h` are those that `swtch-wire` reads: that they have the same fields,
//! and a version that changes with them. No compiler sees both sides.

mod words;

use swtch_wire::WIRE_VERSION;
use swtch_wire::layout::{SwitchRecord, TaskRecord};

use crate::skeleton::recorder::types::{switch_record, task_record};

const HEADER: &str = include_str!("bpf/record.h");

/// A version of the records, and the hash of `bpf/record.h` in this version: of the text up to
/// `struct watched_word`, without comments and spaces. No record is described after that.
const VERSION_AND_HASH: (u32, u64) = (3, 0x8acf_0479_bb15_3eae);

/// FNV-1a (G. Fowler, L. C. Noll, K.-P. Vo), 64 bits.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn without_comments_and_spaces(text: &str) -> String {
    let parts = text.split("/*").enumerate();
    let code = parts.map(|(nth, part)| match nth {
        0 => part,
        _ => part.split_once("*/").expect("a comment ends").1,
    });
    code.flat_map(str::split_ascii_whitespace).collect()
}

/// A change of the records must change their version, or a file of an older program would be decoded wrongly.
#[test]
fn the_version_changes_with_the_records() {
    let (records, _) = HEADER
        .split_once("struct watched_word {")
        .expect("it is there");
    assert_eq!(
        (WIRE_VERSION, fnv1a(&without_comments_and_spaces(records))),
        VERSION_AND_HASH,
        "record.h has changed: add one to WIRE_VERSION, and put both here"
    );
}

/// Names and sizes of the fields of a struct of the header.
fn fields_in_c(name: &str) -> Vec<(&'static str, usize)> {
    let start = format!("\nstruct {name} {{");
    let (_, rest) = HEADER.split_once(&start).expect("the struct is there");
    let (body, _) = rest.split_once("\n}").expect("a struct ends");
    let fields = body.lines().filter_map(|line| line.split_once(';'));
    fields
        .map(|(declaration, _)| {
            let (kind, field) = declaration.trim().split_once(' ').expect("type and name");
            let bytes = match kind {
                "__u64" => 8,
                "__u32" | "__s32" => 4,
                "__u16" | "__s16" => 2,
                "__u8" | "char" => 1,
                other => panic!("what is {other}?"),
            };
            match field.split_once('[') {
                None => (field, bytes),
                Some((field, count)) => {
                    let count: usize = count.trim_end_matches(']').parse().expect("a number");
                    (field, bytes * count)
                }
            }
        })
        .collect()
}

/// Neither side has padding, so fields of the same sizes in the same order lie at the same places.
#[test]
fn records_have_the_same_fields_in_c_and_in_rust() {
    assert_eq!(fields_in_c("switch_record"), SwitchRecord::FIELDS);
    assert_eq!(fields_in_c("task_record"), TaskRecord::FIELDS);
    assert_eq!(size_of::<switch_record>(), size_of::<SwitchRecord>());
    assert_eq!(size_of::<task_record>(), size_of::<TaskRecord>());
}
