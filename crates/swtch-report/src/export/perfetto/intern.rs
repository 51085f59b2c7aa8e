//! Interned strings: each is written once, and packets refer to it by its number, which Perfetto
//! calls `iid`. A number is valid to the end of its sequence of packets. A new string is written
//! with the packet that uses it first.

use rustc_hash::FxHashMap;

use super::message::{Interned, InternedData};

/// The strings of one sequence of packets. Perfetto numbers each kind of string on its own, so there
/// is a table for each.
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
    /// Strings that have a number, but were not yet written.
    fresh: Vec<Interned>,
}

impl InternedStrings {
    /// Returns the number of a category, and assigns one if the category is new. So do the other
    /// three for their kinds.
    pub fn category(&mut self, text: &str) -> u64 {
        self.categories.number(text)
    }

    /// Returns the number of an event's name.
    pub fn name(&mut self, text: &str) -> u64 {
        self.names.number(text)
    }

    /// Returns the number of an argument's name.
    pub fn argument(&mut self, text: &str) -> u64 {
        self.arguments.number(text)
    }

    /// Returns the number of an argument's value.
    pub fn value(&mut self, text: &str) -> u64 {
        self.values.number(text)
    }

    /// Returns the strings that are new since the last call; `None` if there are none.
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
    /// Returns the number of a string, and assigns the next one if the string is new.
    fn number(&mut self, text: &str) -> u64 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        // Numbers begin at 1, because Perfetto reads 0 as "not set".
        let number = self.numbers.len() as u64 + 1;
        self.numbers.insert(text.to_owned(), number);
        self.fresh.push(Interned {
            iid: Some(number),
            text: Some(text.to_owned()),
        });
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writing a string with every packet that uses it would undo what interning saves.
    #[test]
    fn a_string_is_written_once() {
        let mut strings = InternedStrings::default();
        assert_eq!(
            [strings.name("a"), strings.name("b"), strings.name("a")],
            [1, 2, 1]
        );
        let fresh = strings.take_fresh().unwrap();
        assert_eq!(fresh.event_names.len(), 2);
        strings.name("b");
        assert!(strings.take_fresh().is_none());
    }
}
