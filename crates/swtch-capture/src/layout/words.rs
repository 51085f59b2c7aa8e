//! Checks that both sides of the wire have the same words with the same numbers: the enums of
//! `bpf/record.h` against the lists of `swtch-core`. The numbers are also those of files, so a word
//! in the wrong place would change the meaning of old traces, and no compiler sees both lists.

use swtch_core::{Cause, Class, EvidenceBits, TaskEventKind, WaitObject, WakerKind};

use swtch_wire::layout::{RECORD_SWITCH, RECORD_TASK};

use super::HEADER;

/// Names and numbers of one enum in the header; names in lower case, without their prefix.
fn enum_in_c(name: &str, prefix: &str) -> Vec<(String, u32)> {
    let start = format!("\nenum {name} {{");
    let (_, rest) = HEADER
        .split_once(&start)
        .unwrap_or_else(|| panic!("no enum {name}"));
    let (body, _) = rest.split_once('}').expect("an enum ends");
    let mut next = 0;
    let mut words = Vec::new();
    for entry in body
        .split(',')
        .map(str::trim)
        .filter(|entry| !entry.is_empty())
    {
        let (word, number) = match entry.split_once('=') {
            Some((word, number)) => (word.trim(), number_of(number.trim())),
            None => (entry, next),
        };
        let word = word.strip_prefix(prefix);
        let word = word.unwrap_or_else(|| panic!("{entry} does not begin with {prefix}"));
        words.push((word.to_ascii_lowercase(), number));
        next = number + 1;
    }
    words
}

/// Parses `5` or `1 << 5`.
fn number_of(expression: &str) -> u32 {
    let number = |text: &str| text.trim().parse::<u32>();
    match expression.split_once("<<") {
        Some((one, shift)) => number(one).expect("a number") << number(shift).expect("a number"),
        None => number(expression).expect("a number"),
    }
}

/// Words in the order of their numbers, from 0.
fn numbered(words: impl Iterator<Item = &'static str>) -> Vec<(String, u32)> {
    (0..)
        .zip(words)
        .map(|(number, word)| (word.to_owned(), number))
        .collect()
}

#[test]
fn words_have_the_same_numbers_in_c_and_in_rust() {
    macro_rules! assert_same {
        ($list:ty, $name:literal, $prefix:literal) => {
            let words = <$list>::ALL.iter().map(|word| word.as_str());
            assert_eq!(enum_in_c($name, $prefix), numbered(words), "enum {}", $name);
        };
    }
    assert_same!(Cause, "cause", "CAUSE_");
    assert_same!(Class, "class", "CLASS_");
    assert_same!(WaitObject, "wait_object", "OBJECT_");
    assert_same!(WakerKind, "waker_kind", "WAKER_");
    assert_same!(TaskEventKind, "task_event", "TASK_");
}

/// Rust's list has further bits that the kernel side never sets: those of imports.
#[test]
fn evidence_has_the_same_bits_in_c_and_in_rust() {
    const OF_IMPORTS: EvidenceBits = EvidenceBits::NO_CALL;
    let table = EvidenceBits::TABLE.iter();
    let rust: Vec<_> = table
        .map(|(bit, word, _)| ((*word).to_owned(), 1 << bit))
        .filter(|(_, mask)| OF_IMPORTS.0 & mask == 0)
        .collect();
    assert_eq!(enum_in_c("evidence", "EVIDENCE_"), rust);
}

#[test]
fn records_have_the_same_kinds_in_c_and_in_rust() {
    let kinds = [
        ("switch".to_owned(), RECORD_SWITCH),
        ("task".to_owned(), RECORD_TASK),
    ];
    assert_eq!(enum_in_c("record_kind", "RECORD_"), kinds);
}
