//! Takes bytes of perf's file from the front, in its byte order. `None` means too few are left.

use linux_perf_event_reader::Endianness;

/// The rest of a slice of bytes.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'s> {
    bytes: &'s [u8],
    endian: Endianness,
}

impl<'s> Cursor<'s> {
    pub fn new(bytes: &'s [u8], endian: Endianness) -> Self {
        Self { bytes, endian }
    }

    /// Returns the number of bytes that are left.
    pub fn left(&self) -> usize {
        self.bytes.len()
    }

    /// The next `count` bytes; `None` if fewer are left.
    pub fn take(&mut self, count: usize) -> Option<&'s [u8]> {
        let (taken, rest) = self.bytes.split_at_checked(count)?;
        self.bytes = rest;
        Some(taken)
    }

    /// The bytes up to the next NUL, which is skipped.
    pub fn text(&mut self) -> Option<&'s [u8]> {
        let end = self.bytes.iter().position(|byte| *byte == 0)?;
        let text = self.take(end)?;
        self.take(1)?;
        Some(text)
    }

    /// A number of 2 bytes.
    pub fn short(&mut self) -> Option<u16> {
        let bytes = self.take(2)?.try_into().ok()?;
        Some(match self.endian {
            Endianness::LittleEndian => u16::from_le_bytes(bytes),
            Endianness::BigEndian => u16::from_be_bytes(bytes),
        })
    }

    /// A number of 4 bytes.
    pub fn count(&mut self) -> Option<u32> {
        let bytes = self.take(4)?.try_into().ok()?;
        Some(match self.endian {
            Endianness::LittleEndian => u32::from_le_bytes(bytes),
            Endianness::BigEndian => u32::from_be_bytes(bytes),
        })
    }

    /// A number of 8 bytes.
    pub fn long(&mut self) -> Option<u64> {
        let bytes = self.take(8)?.try_into().ok()?;
        Some(match self.endian {
            Endianness::LittleEndian => u64::from_le_bytes(bytes),
            Endianness::BigEndian => u64::from_be_bytes(bytes),
        })
    }

    /// A length of 8 bytes, and then that many bytes.
    pub fn sized(&mut self) -> Option<&'s [u8]> {
        let length = self.long()?;
        self.take(usize::try_from(length).ok()?)
    }
}
