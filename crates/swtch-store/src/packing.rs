//! Makes records shorter without knowing what they say: fast enough for a recorder that keeps up.
//!
//! Records of one CPU are like each other: most numbers are those of the record before, or a little
//! larger. So each word of 8 bytes is kept as its difference to the same word of the record before,
//! without leading zero bytes.
//!
//! ```text
//! record   lengths, half a byte a word    bytes of the differences, low ones first
//!          ├ 3 0 1 0 0 8 …                ├ 3 bytes, 1 byte, 8 bytes …
//! ```
//!
//! A prototype in C, on records of 184 bytes (AMD EPYC virtual machine with other work on it, best of 5):
//! 70 bytes a record and 33 ns for `perf bench sched pipe`, 51 bytes and 44 ns for `messaging`.
//! `zstd -b --fast=1` makes 20 and 17 bytes of them; for `messaging` it took 270 ns a record.

/// The longest record that is packed.
const MOST_WORDS: usize = 64;

/// Room for the lengths and bytes of one record, and for the end of the last word.
const ROOM: usize = MOST_WORDS / 2 + 8 * MOST_WORDS + 8;

/// Returns true if records of this many bytes can be packed.
pub(crate) const fn can_pack(width: usize) -> bool {
    width > 0 && width.is_multiple_of(8) && width / 8 <= MOST_WORDS
}

/// A packing of records, each as its difference from the record before.
#[derive(Clone, Debug)]
pub(crate) struct WordPacking {
    before: [u64; MOST_WORDS],
}

impl WordPacking {
    /// The packing of a block, before its first record.
    pub(crate) const fn new() -> Self {
        Self {
            before: [0; MOST_WORDS],
        }
    }

    /// Appends the packed form of records of `width` bytes each.
    pub(crate) fn pack(&mut self, width: usize, records: &[u8], packed: &mut Vec<u8>) {
        let words = width / 8;
        let mut room = [0; ROOM];
        for record in records.chunks_exact(width) {
            let lengths = words.div_ceil(2);
            room[..lengths].fill(0);
            let mut end = lengths;
            let numbers = record.chunks_exact(8).zip(&mut self.before);
            for (index, (bytes, before)) in numbers.enumerate() {
                let number = u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
                let difference = to_short(number.wrapping_sub(*before));
                *before = number;
                let [length, ..] = (8 - difference.leading_zeros() / 8).to_le_bytes();
                room[end..end + 8].copy_from_slice(&difference.to_le_bytes());
                end += usize::from(length);
                room[index / 2] |= length << (index % 2 * 4);
            }
            packed.extend_from_slice(&room[..end]);
        }
    }

    /// The records of a block; `None` if it does not hold just as many of this width.
    pub(crate) fn unpack(width: usize, count: usize, mut packed: &[u8]) -> Option<Vec<u8>> {
        let words = width / 8;
        let mut before = [0; MOST_WORDS];
        let mut records = vec![0; width * count];
        for record in records.chunks_exact_mut(width) {
            let (lengths, mut rest) = packed.split_at_checked(words.div_ceil(2))?;
            let numbers = record.chunks_exact_mut(8).zip(&mut before);
            for (index, (number, before)) in numbers.enumerate() {
                let length = usize::from(lengths[index / 2] >> (index % 2 * 4) & 15);
                if length > 0 {
                    *before = of_short(first_bytes(rest, length)?).wrapping_add(*before);
                    rest = &rest[length..];
                }
                number.copy_from_slice(&before.to_le_bytes());
            }
            packed = rest;
        }
        packed.is_empty().then_some(records)
    }
}

/// The number in the first `length` of these bytes; `None` if there are fewer, or it would be longer
/// than 8. In all but the last words of a block, 8 bytes are read at once.
fn first_bytes(bytes: &[u8], length: usize) -> Option<u64> {
    match bytes.first_chunk() {
        Some(eight) if length <= 8 => {
            Some(u64::from_le_bytes(*eight) & (u64::MAX >> (64 - 8 * length)))
        }
        _ => {
            let mut number = [0; 8];
            number
                .get_mut(..length)?
                .copy_from_slice(bytes.get(..length)?);
            Some(u64::from_le_bytes(number))
        }
    }
}

/// A difference with its sign in the lowest bit, so that small ones of both signs are short.
const fn to_short(difference: u64) -> u64 {
    (difference << 1) ^ ((difference.cast_signed() >> 63).cast_unsigned())
}

const fn of_short(short: u64) -> u64 {
    (short >> 1) ^ (short & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(width: usize, records: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        // In two parts, as two readings of a ring.
        let middle = records.len() / width / 2 * width;
        let mut packing = WordPacking::new();
        packing.pack(width, &records[..middle], &mut bytes);
        packing.pack(width, &records[middle..], &mut bytes);
        bytes
    }

    /// Numbers of all lengths, growing, shrinking and wrapping.
    fn records(width: usize, count: u64) -> Vec<u8> {
        let words = (0..count).flat_map(|record| {
            (0..width as u64 / 8).map(move |word| match word % 4 {
                0 => record.wrapping_mul(1_000),
                1 => u64::MAX.wrapping_mul(record % 3),
                2 => 7,
                _ => record.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (record % 64),
            })
        });
        words.flat_map(u64::to_le_bytes).collect()
    }

    #[test]
    fn records_of_all_widths_survive() {
        for width in [8, 16, 24, 88, 184, 8 * MOST_WORDS] {
            assert!(can_pack(width));
            let records = records(width, 301);
            let packed = packed(width, &records);
            assert_eq!(
                WordPacking::unpack(width, 301, &packed),
                Some(records),
                "{width}"
            );
        }
        assert!(!can_pack(0) && !can_pack(12) && !can_pack(8 * MOST_WORDS + 8));
    }

    #[test]
    fn what_is_like_the_record_before_is_short() {
        let records: Vec<_> = (0..100u64)
            .flat_map(|n| [1_000_000_000_000 + 500 * n, 7, 0x5555_5555_5555_5555])
            .flat_map(u64::to_le_bytes)
            .collect();
        let packed = packed(24, &records);
        assert!(packed.len() < 100 * 5, "{}", packed.len());
    }

    #[test]
    fn bytes_that_are_no_records_are_refused() {
        let records = records(24, 20);
        let packed = packed(24, &records);
        for cut in 0..packed.len() {
            assert_eq!(WordPacking::unpack(24, 20, &packed[..cut]), None, "{cut}");
        }
        assert_eq!(WordPacking::unpack(24, 19, &packed), None);
        let mut odd = packed;
        odd[0] = 0xff;
        assert_eq!(WordPacking::unpack(24, 20, &odd), None);
    }
}
