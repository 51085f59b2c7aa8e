//! Numbers of one to five bytes, as the virtual machine writes its lists (`src/hotspot/share/utilities/unsigned5.hpp`).

use crate::ProcessMemory;

/// How numbers are written, which has changed in JDK 20: no byte of one is zero since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coding {
    least_byte: u32,
}

/// A byte from this on is followed by another of the same number, which counts 64 times as much.
const FIRST_THAT_GOES_ON: u8 = 192;

/// The most bytes of a number.
const MOST_BYTES: u32 = 5;

impl Coding {
    /// That of a version of Java.
    pub const fn of_version(major: u32) -> Self {
        Self {
            least_byte: if major < 20 { 0 } else { 1 },
        }
    }
}

/// The numbers from an address on.
pub struct CodedNumbers<'a, M> {
    at: u64,
    coding: Coding,
    memory: &'a M,
}

impl<'a, M: ProcessMemory> CodedNumbers<'a, M> {
    /// Those from this address on.
    pub const fn new(at: u64, coding: Coding, memory: &'a M) -> Self {
        Self { at, coding, memory }
    }

    /// The next byte as it is.
    pub fn byte(&mut self) -> Option<u8> {
        let mut byte = [0];
        self.memory.read(self.at, &mut byte).then_some(())?;
        self.at = self.at.wrapping_add(1);
        Some(byte[0])
    }

    /// The next number.
    pub fn next(&mut self) -> Option<u32> {
        let mut number = 0_u32;
        for place in 0..MOST_BYTES {
            let byte = self.byte()?;
            let value = u32::from(byte).checked_sub(self.coding.least_byte)?;
            number = number.wrapping_add(value << (6 * place));
            if byte < FIRST_THAT_GOES_ON {
                break;
            }
        }
        Some(number)
    }

    /// The next number with a sign, which is its lowest bit.
    pub fn next_signed(&mut self) -> Option<i64> {
        let number = i64::from(self.next()?);
        Some((number >> 1) ^ -(number & 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::MadeUp;

    fn numbers(major: u32, bytes: &[u8]) -> Vec<u32> {
        let mut memory = MadeUp::up_to(bytes.len() as u64);
        memory.put(0, bytes);
        let mut numbers = CodedNumbers::new(0, Coding::of_version(major), &memory);
        std::iter::from_fn(|| numbers.next()).collect()
    }

    #[test]
    fn numbers_have_one_to_five_bytes() {
        // 192 + 64 * 1, and the largest there is: 255 * (1 + 64 + 64² + 64³ + 64⁴) in 32 bits.
        assert_eq!(numbers(17, &[0, 191, 192, 1]), [0, 191, 256]);
        assert_eq!(numbers(17, &[255; 5]), [255_u32.wrapping_mul(0x0104_1041)]);
        assert_eq!(numbers(21, &[1, 191, 192, 1]), [0, 190, 191]);
        // No number of the newer kind has a zero in it.
        assert!(numbers(21, &[0]).is_empty());
        assert!(numbers(21, &[200, 0]).is_empty());
    }

    #[test]
    fn the_lowest_bit_is_the_sign() {
        let mut memory = MadeUp::up_to(8);
        memory.put(0, &[0, 1, 2, 3]);
        let mut numbers = CodedNumbers::new(0, Coding::of_version(11), &memory);
        let signed = std::iter::from_fn(|| numbers.next_signed()).take(4);
        assert_eq!(signed.collect::<Vec<_>>(), [0, -1, 1, -2]);
    }
}
