//! The table of lines of a code object (`Objects/locations.md` of 3.11, `InternalDocs/code_objects.md` of 3.14; the same from
//! 3.11 to 3.15).
//!
//! An entry is of some instructions, which follow those of the entry before. It says how its line differs from the last
//! one, and the columns, which are passed over.

/// Bytes of an instruction.
const UNIT: u64 = 2;

/// Kinds of entries, in bits 3 to 6 of their first byte, which has bit 7; bits 0 to 2 are the number of instructions less
/// one. Below `ONE_LINE` the line is the last one, and a byte of columns follows; from there on it is `kind - ONE_LINE`
/// further, and two bytes of columns follow.
const ONE_LINE: u8 = 10;
/// A signed number of lines follows, and no columns.
const NO_COLUMNS: u8 = 13;
/// A signed number of lines follows, and three numbers of columns and lines.
const LONG: u8 = 14;
/// The instructions have no line.
const NO_LOCATION: u8 = 15;

/// The line of the instruction at this offset, in a function that begins at line `first`; `None` if it has none, or if
/// the table is damaged.
pub fn line_at(table: &[u8], first: u32, offset: u64) -> Option<u32> {
    let mut bytes = table.iter().copied();
    let mut line = i64::from(first);
    let mut end = 0;
    loop {
        let head = bytes.next().filter(|head| head & 0x80 != 0)?;
        let kind = head >> 3 & 15;
        end += UNIT * u64::from((head & 7) + 1);
        match kind {
            NO_LOCATION => {}
            LONG => {
                line = line.checked_add(signed(&mut bytes)?)?;
                for _ in 0..3 {
                    unsigned(&mut bytes)?;
                }
            }
            NO_COLUMNS => line = line.checked_add(signed(&mut bytes)?)?,
            ONE_LINE.. => {
                line = line.checked_add(i64::from(kind - ONE_LINE))?;
                bytes.nth(1)?;
            }
            _ => {
                bytes.next()?;
            }
        }
        if offset < end {
            return u32::try_from(line).ok().filter(|_| kind != NO_LOCATION);
        }
    }
}

/// A number of six bits a byte, the lowest first; a bit says that more follow.
fn unsigned(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let (mut number, mut shift) = (0_u64, 0_u32);
    loop {
        let byte = bytes.next()?;
        let part = u64::from(byte & 63);
        number |= part.checked_mul(1_u64.checked_shl(shift)?)?;
        if byte & 64 == 0 {
            return Some(number);
        }
        shift += 6;
    }
}

/// The same, with the sign in the lowest bit.
fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let number = unsigned(bytes)?;
    let magnitude = i64::try_from(number >> 1).ok()?;
    Some(if number & 1 == 1 {
        -magnitude
    } else {
        magnitude
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `co_linetable` of 3.12 says of a function at line 10: `x = a`, and a call over three lines.
    const TABLE: &[u8] = &[
        128, 0, 216, 6, 7, 128, 33, 220, 9, 10, 216, 4, 5, 216, 4, 5, 243, 5, 2, 10, 7, 240, 0, 2,
        3, 7,
    ];

    /// What `co_lines()` says of the same.
    #[test]
    fn an_instruction_has_its_line() {
        for (range, line) in [
            (0..2, 10),
            (2..6, 11),
            (6..16, 12),
            (16..18, 13),
            (18..20, 14),
            (20..30, 12),
        ] {
            for offset in range {
                assert_eq!(line_at(TABLE, 10, offset), Some(line), "{offset}");
            }
        }
        assert_eq!(line_at(TABLE, 10, 30), None);
    }

    #[test]
    fn a_table_that_is_cut_or_damaged_has_an_end() {
        for length in 0..TABLE.len() {
            let _ = line_at(&TABLE[..length], 10, u64::MAX);
        }
        assert_eq!(line_at(&[0x00; 8], 1, 0), None);
        assert_eq!(line_at(&[0xf0, 0xff, 0xff, 0xff], 1, 0), None);
        assert_eq!(line_at(&[0xff; 64], u32::MAX, 0), None);
        // The largest number that there is, and then two lines further.
        let largest = [
            &[0x80 | 13 << 3, 0x7e][..],
            &[0x7f; 9],
            &[0x0f, 0x80 | 12 << 3, 0, 0],
        ]
        .concat();
        assert_eq!(line_at(&largest, 0, 2), None);
        // One with a bit more than 64.
        let too_large = [&[0x80 | 13 << 3, 0x7e][..], &[0x7f; 9], &[0x1f]].concat();
        assert_eq!(line_at(&too_large, 0, 0), None);
    }
}
