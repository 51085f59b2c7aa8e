//! The parts of a function. A compiler puts what is seldom needed elsewhere, where a symbol table has another name for it,
//! or none after it was stripped: `-freorder-blocks-and-partition` of GCC.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::FrameList;

/// From so many jumps into the middle of a function on, what jumps there is a part of it. Bytes that only look like one
/// are rare: of a program of 4 MB and a function of 56 KB less than one is expected.
const FEWEST_JUMPS: usize = 3;

/// The parts of a function, itself among them, as jumps tell them: `code` lies at `address`, and the tables of the same
/// file list where functions and their parts begin and end.
pub fn parts_of(
    function: Range<u64>,
    code: &[u8],
    address: u64,
    functions: &FrameList,
) -> Vec<Range<u64>> {
    let mut jumps: BTreeMap<u64, (u64, usize)> = BTreeMap::new();
    for (from, to) in jumps_in(code, address) {
        let is_into = function.start < to && to < function.end && !function.contains(&from);
        let part = is_into.then(|| functions.function_at(from)).flatten();
        if let Some(part) = part {
            jumps.entry(part.start).or_insert((part.end, 0)).1 += 1;
        }
    }
    let parts = jumps
        .into_iter()
        .filter(|(_, (_, count))| *count >= FEWEST_JUMPS);
    let parts = parts.map(|(start, (end, _))| start..end);
    std::iter::once(function).chain(parts).collect()
}

/// What may be a direct jump, and where it leads.
///
/// x86-64: `E9 rel32` and `0F 8x rel32` (Intel SDM, volume 2A, JMP and Jcc); arm64: `B` (Arm ARM, C6.2).
fn jumps_in(code: &[u8], address: u64) -> impl Iterator<Item = (u64, u64)> {
    #[cfg(target_arch = "aarch64")]
    {
        let places = (0_u64..)
            .step_by(4)
            .map(move |place| address.wrapping_add(place));
        let words = code.as_chunks().0.iter().zip(places);
        words.filter_map(|(bytes, at)| {
            let word = u32::from_le_bytes(*bytes);
            // 26 bits with a sign, in words.
            let far = (word.cast_signed() << 6) >> 4;
            (word >> 26 == 0b00_0101).then(|| (at, at.wrapping_add_signed(far.into())))
        })
    }
    #[cfg(not(target_arch = "aarch64"))]
    {
        code.windows(5)
            .zip((0_u64..).map(move |place| address.wrapping_add(place)))
            .enumerate()
            .filter_map(move |(place, (bytes, at))| {
                let is_conditional = || {
                    let before = place.checked_sub(1).and_then(|before| code.get(before));
                    bytes[0] >> 4 == 8 && before == Some(&0x0f)
                };
                let is_jump = bytes[0] == 0xe9 || is_conditional();
                let far = i32::from_le_bytes(*bytes[1..].first_chunk()?);
                is_jump.then(|| (at, at.wrapping_add(5).wrapping_add_signed(far.into())))
            })
    }
}

#[cfg(all(test, not(target_arch = "aarch64")))]
mod tests {
    use super::*;

    /// A jump at this place of the code, which lies at 0x1000.
    fn jump(code: &mut [u8], at: u16, is_conditional: bool, to: u64) {
        let form: &[u8] = if is_conditional {
            &[0x0f, 0x84]
        } else {
            &[0xe9]
        };
        let next = 0x1000 + u64::from(at) + 5 + u64::from(is_conditional);
        let far = to.wrapping_sub(next).to_le_bytes();
        let bytes = [form, &far[..4]].concat();
        code[usize::from(at)..][..bytes.len()].copy_from_slice(&bytes);
    }

    #[test]
    fn what_jumps_into_the_middle_of_a_function_is_a_part_of_it() {
        let functions = FrameList::of_ranges(&[0x1000..0x1100, 0x1100..0x1200, 0x1200..0x1300]);
        let function = 0x1100..0x1200;
        let mut code = vec![0x90; 0x300];
        for (at, is_conditional) in [(0x10, false), (0x40, true), (0x80, false)] {
            jump(&mut code, at, is_conditional, 0x1150);
        }
        // Whoever jumps to its start calls it, and twice may be chance.
        for at in [0x210, 0x220, 0x230] {
            jump(&mut code, at, false, 0x1100);
        }
        jump(&mut code, 0x240, false, 0x1101);
        jump(&mut code, 0x250, false, 0x11ff);
        let parts = parts_of(function.clone(), &code, 0x1000, &functions);
        assert_eq!(parts, [function.clone(), 0x1000..0x1100]);
        assert_eq!(
            parts_of(function.clone(), &[], 0x1000, &functions),
            [function]
        );
    }
}
