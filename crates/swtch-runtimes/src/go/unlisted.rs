//! Programs of Go whose list of symbols was left out (`-ldflags=-s`), as most that are packed for containers are: what the
//! runtime keeps is found by what it must look like.

use std::collections::BTreeSet;

use crate::ProcessMemory;

use super::{MOST_BELIEVED, MOST_GOROUTINES, minor_of};

/// What the section begins with in which the linker says who built a program (`debug/buildinfo`, 1.18 and later), the
/// place of a byte whose second bit says that texts follow, and where they do.
const BUILT: &[u8] = b"\xff Go buildinf:";
const FLAGS: usize = 15;
const HAS_TEXTS: u8 = 2;
const VERSION: usize = 32;

/// Lengths of the first names of `waitReasonStrings`: of 1.20 to 1.25, and of 1.26 (`runtime/runtime2.go`).
const LENGTHS: [[u64; 5]; 2] = [[0, 17, 7, 23, 20], [0, 17, 7, 12, 18]];

/// The most memory that is looked through for the list of goroutines, and the part of it that is read at once.
const MOST_BYTES: u64 = 16 << 20;
const AT_ONCE: usize = 64 << 10;

/// The minor version of Go with which a program was built, by the section `.go.buildinfo`.
pub fn version_in(section: &[u8]) -> Option<u32> {
    let has_texts = section.get(FLAGS)? & HAS_TEXTS != 0;
    (section.starts_with(BUILT) && has_texts).then_some(())?;
    let length = usize::from(*section.get(VERSION)?);
    let text = section.get(VERSION + 1..)?.get(..length)?;
    minor_of(str::from_utf8(text).ok()?)
}

/// Where in a program's data the names of reasons for waiting are.
pub fn reasons_in(data: &[u8]) -> Option<usize> {
    // Of each text the address stands before the length, in words at places that a word can be at.
    let length = |at: usize, number: usize| {
        let bytes = data.get(at + 16 * number + 8..)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes))
    };
    let begins = |at: &usize| {
        let is_one = |lengths: &[u64; 5]| {
            let mut lengths = lengths.iter().enumerate();
            lengths.all(|(number, one)| length(*at, number) == Some(*one))
        };
        LENGTHS.iter().any(is_one)
    };
    (0..data.len()).step_by(8).find(begins)
}

/// Where the list of goroutines is, between these addresses: that of a list whose first is number 1, and which has a
/// number 2, none of them twice. `number_at` is where a goroutine has its number.
pub(super) fn list_of_goroutines(
    (start, end): (u64, u64),
    number_at: usize,
    memory: &impl ProcessMemory,
) -> Option<u64> {
    let mut blocks = (start..end.min(start.saturating_add(MOST_BYTES))).step_by(AT_ONCE);
    blocks.find_map(|from| {
        // A list that ends behind the block is read with it.
        let length = (end - from).min(AT_ONCE as u64 + 16);
        let block = memory.bytes(from, length, AT_ONCE + 16)?;
        let word = |at: usize| Some(u64::from_ne_bytes(*block.get(at..)?.first_chunk()?));
        let is_list = |at: &usize| {
            let words = || Some((word(*at)?, word(at + 8)?, word(at + 16)?));
            words().is_some_and(|list| is_list_of_goroutines(list, number_at, memory))
        };
        let mut places = (0..block.len().min(AT_ONCE)).step_by(8);
        places.find(is_list).map(|at| from + at as u64)
    })
}

fn is_list_of_goroutines(
    (list, length, room): (u64, u64, u64),
    number_at: usize,
    memory: &impl ProcessMemory,
) -> bool {
    if list == 0 || list % 8 != 0 || length == 0 || length > room || room > MOST_BELIEVED {
        return false;
    }
    let some = 0..length.min(MOST_GOROUTINES as u64);
    let numbers = some.map(|place| {
        let goroutine = memory.word(list.checked_add(8 * place)?)?;
        let (start, end) = (
            memory.word(goroutine)?,
            memory.word(goroutine.checked_add(8)?)?,
        );
        let number = memory.word(goroutine.checked_add(number_at as u64)?)?;
        (start < end || end == 0).then_some(number)
    });
    // That of the program is the first, and another is the runtime's own for ever. One that has ended has no stack.
    let Some(numbers) = numbers.collect::<Option<Vec<_>>>() else {
        return false;
    };
    let different: BTreeSet<_> = numbers.iter().collect();
    numbers[0] == 1 && numbers.contains(&2) && different.len() == numbers.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::{MadeUp, Wild};

    #[test]
    fn the_version_is_in_the_section_of_the_linker() {
        let mut section = BUILT.to_vec();
        section.extend([8, HAS_TEXTS]);
        section.resize(VERSION, 0);
        section.extend(b"\x08go1.26.8\x03mod");
        assert_eq!(version_in(&section), Some(26));
        assert_eq!(version_in(&section[..VERSION + 4]), None);
        // Before 1.18 addresses stood there.
        section[FLAGS] = 0;
        assert_eq!(version_in(&section), None);
    }

    #[test]
    fn reasons_are_found_by_their_lengths() {
        for lengths in LENGTHS {
            let mut data = vec![7; 40];
            for length in lengths {
                data.extend(0x1234_u64.to_le_bytes());
                data.extend(length.to_le_bytes());
            }
            data.extend([9; 24]);
            assert_eq!(reasons_in(&data), Some(40));
            assert_eq!(reasons_in(&data[..40 + 72]), None);
        }
    }

    #[test]
    fn the_list_is_where_goroutines_are_in_order() {
        let mut memory = MadeUp::up_to(0x40_0000);
        // A list of texts, one whose numbers are others, and one that is longer than its room.
        for (at, list, length, room) in [
            (0x1000, 0x5000, 3, 8),
            (0x1100, 0x6000, 3, 4),
            (0x1200, 0x7000, 3, 2),
            (0x1000 + AT_ONCE as u64 - 8, 0x7000, 3, 4),
        ] {
            for (place, word) in (0..).zip([list, length, room]) {
                memory.put_word(at + 8 * place, word);
            }
        }
        for (list, numbers) in [(0x6000, [1, 2, 2]), (0x7000, [1, 17, 2])] {
            for (place, number) in (0..).zip(numbers) {
                let goroutine = list + 0x100 * (place + 1);
                memory.put_word(goroutine + 8, 0x800);
                memory.put_word(list + 8 * place, goroutine);
                memory.put_word(goroutine + 152, number);
            }
        }
        let found = |end| list_of_goroutines((0x1000, end), 152, &memory);
        assert_eq!(found(0x10_0000), Some(0x1000 + AT_ONCE as u64 - 8));
        assert_eq!(found(0x8000), None);
        assert_eq!(list_of_goroutines((0x10_0000, 0x1000), 152, &memory), None);
    }

    #[test]
    fn any_memory_is_looked_through_to_its_end() {
        for seed in 0..50 {
            let found = list_of_goroutines((0, 0x4_0000), 152, &Wild(seed));
            assert_eq!(found, None);
        }
    }
}
