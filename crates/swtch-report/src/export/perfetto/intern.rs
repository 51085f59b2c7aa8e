//! Strings that are written once and then referred to by number. The numbers of one sequence of
//! packets are valid to its end; a new string is written with the packet that uses it first.

use rustc_hash::FxHashMap;

use super::message::{Interned, InternedData};

/// The strings of one sequence of packets.
#[derive(Debug, Default)]
pub struct InternedStrings {
    categories: InternTable,
    names: InternTable,
    arguments: InternTable,
    values: InternTable,
}

#[derive(Debug, Default)]
struct InternTable {
    numbers: FxHashMap<String, u64>,
    fresh: Vec<Interned>,
}

impl InternedStrings {
    /// The number of a category.
    pub fn category(&mut self, word: &str) -> u64 {
        self.categories.number(word)
    }

    /// The number of an event's name.
    pub fn name(&mut self, word: &str) -> u64 {
        self.names.number(word)
    }

    /// The number of an argument's name.
    pub fn argument(&mut self, word: &str) -> u64 {
        self.arguments.number(word)
    }

    /// The number of an argument's value.
    pub fn value(&mut self, word: &str) -> u64 {
        self.values.number(word)
    }

    /// Strings that are new since the last call; `None` without any.
    pub fn take_fresh(&mut self) -> Option<InternedData> {
        let fresh = InternedData {
            event_categories: std::mem::take(&mut self.categories.fresh),
            event_names: std::mem::take(&mut self.names.fresh),
            debug_annotation_names: std::mem::take(&mut self.arguments.fresh),
            debug_annotation_string_values: std::mem::take(&mut self.values.fresh),
        };
        (fresh != InternedData::default()).then_some(fresh)
    }
}

impl InternTable {
    fn number(&mut self, word: &str) -> u64 {
        if let Some(number) = self.numbers.get(word) {
            return *number;
        }
        // On the wire, 0 means "not set".
        let number = self.numbers.len() as u64 + 1;
        self.numbers.insert(word.to_owned(), number);
        self.fresh.push(Interned {
            iid: Some(number),
            text: Some(word.to_owned()),
        });
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_written_once() {
        let mut words = InternedStrings::default();
        assert_eq!(
            [words.name("a"), words.name("b"), words.name("a")],
            [1, 2, 1]
        );
        let fresh = words.take_fresh().unwrap();
        assert_eq!(fresh.event_names.len(), 2);
        words.name("b");
        assert!(words.take_fresh().is_none());
    }
}
