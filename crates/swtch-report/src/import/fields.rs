//! Finds where the fields of a tracepoint are in its bytes. Kernels differ in that, so perf copies the kernel's own
//! descriptions (`/sys/kernel/tracing/events/*/*/format`) into the file. They are parsed here.
//!
//! The layout of the section is in `tools/perf/util/trace-event-info.c` (v6.12): a head, two
//! descriptions of pages, the events of ftrace itself, then events by system. The bytes do not
//! describe themselves: a new field moves all that follow it.

use linux_perf_event_reader::Endianness;
use rustc_hash::{FxHashMap, FxHashSet};

use super::cursor::Cursor;

/// The begin of the section: three bytes that occur in no text, and a word.
const MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// A tracepoint's name, and where its fields are in its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TracepointFormat {
    /// Name of the tracepoint, without its system.
    pub name: String,
    fields: FxHashMap<String, FieldLayout>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FieldLayout {
    offset: usize,
    size: usize,
    is_signed: bool,
}

/// The tracepoints that a file describes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described {
    /// Tracepoints of the system `sched`, by number.
    pub formats: FxHashMap<u16, TracepointFormat>,
    /// Numbers of all other tracepoints.
    pub others: FxHashSet<u16>,
}

/// Reads the descriptions of a file's tracepoints.
pub fn described(section: &[u8], endian: Endianness) -> Option<Described> {
    let mut cursor = Cursor::new(section.strip_prefix(MAGIC)?, endian);
    // Version, byte order, size of a long, size of a page.
    cursor.text()?;
    cursor.take(1 + 1 + 4)?;
    for _ in 0..2 {
        cursor.text()?;
        cursor.sized()?;
    }
    for _ in 0..cursor.count()? {
        cursor.sized()?;
    }
    let mut found = Described::default();
    for _ in 0..cursor.count()? {
        let system = cursor.text()?;
        for _ in 0..cursor.count()? {
            let description = String::from_utf8_lossy(cursor.sized()?);
            match TracepointFormat::parse(&description) {
                Some((number, format)) if system == b"sched" => {
                    found.formats.insert(number, format);
                }
                Some((number, _)) => drop(found.others.insert(number)),
                None => {}
            }
        }
    }
    Some(found)
}

impl TracepointFormat {
    /// Reads number and format from a description.
    fn parse(description: &str) -> Option<(u16, Self)> {
        let mut format = Self::default();
        let mut number = None;
        for line in description.lines() {
            if let Some(name) = line.strip_prefix("name: ") {
                name.clone_into(&mut format.name);
            } else if let Some(id) = line.strip_prefix("ID: ") {
                number = id.trim().parse().ok();
            } else if let Some(field) = line.trim_start().strip_prefix("field:") {
                format.fields.extend(FieldLayout::parse(field));
            }
        }
        Some((number?, format))
    }

    /// The value of a numeric field, widened by its own sign.
    pub fn number(&self, name: &str, bytes: &[u8], endian: Endianness) -> Option<i64> {
        let field = self.fields.get(name)?;
        let bytes = field.of(bytes)?;
        let mut wide = [0; 8];
        let value = match endian {
            Endianness::LittleEndian => {
                wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
                i64::from_le_bytes(wide)
            }
            Endianness::BigEndian => {
                let start = wide.len().checked_sub(bytes.len())?;
                wide[start..].copy_from_slice(bytes);
                i64::from_be_bytes(wide)
            }
        };
        let unused = 64 - 8 * u32::try_from(bytes.len()).ok()?;
        let shifted = value.checked_shl(unused)?;
        Some(if field.is_signed {
            shifted >> unused
        } else {
            (shifted.cast_unsigned() >> unused).cast_signed()
        })
    }

    /// The value of a text field, up to its first NUL.
    pub fn text<'b>(&self, name: &str, bytes: &'b [u8]) -> Option<&'b [u8]> {
        let field = self.fields.get(name)?;
        let bytes = field.of(bytes)?;
        bytes.split(|byte| *byte == 0).next()
    }
}

impl FieldLayout {
    fn of<'b>(&self, bytes: &'b [u8]) -> Option<&'b [u8]> {
        bytes.get(self.offset..self.offset.checked_add(self.size)?)
    }

    /// `char prev_comm[16];  offset:8;  size:16;  signed:0;`, with tabs.
    fn parse(words: &str) -> Option<(String, Self)> {
        let mut parts = words.split(';').map(str::trim);
        let declaration = parts.next()?;
        let name = declaration.rsplit(' ').next()?.trim_start_matches('*');
        let name = name.split('[').next()?.to_owned();
        let (mut offset, mut size, mut is_signed) = (None, None, false);
        for part in parts {
            match part.split_once(':') {
                Some(("offset", number)) => offset = number.parse().ok(),
                Some(("size", number)) => size = number.parse().ok(),
                Some(("signed", number)) => is_signed = number != "0",
                _ => {}
            }
        }
        let field = Self {
            offset: offset?,
            size: size?,
            is_signed,
        };
        Some((name, field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DESCRIPTION: &str = "name: sched_waking\nID: 375\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:char comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
        \tfield:pid_t pid;\toffset:24;\tsize:4;\tsigned:1;\n\n\
        print fmt: \"comm=%s\", REC->comm\n";

    fn section(number: fn(u32) -> [u8; 4], length: fn(u64) -> [u8; 8]) -> Vec<u8> {
        let mut bytes = [MAGIC, b"0.6\0\0\x08\0\x10\0\0"].concat();
        for name in [&b"header_page\0"[..], b"header_event\0"] {
            bytes.extend([name, &length(2), b"xy"].concat());
        }
        bytes.extend([number(1), number(0)].concat()[..4].iter());
        bytes.extend([&length(3)[..], b"abc"].concat());
        bytes.extend([&number(1)[..], b"sched\0", &number(1)].concat());
        bytes.extend(length(DESCRIPTION.len() as u64));
        bytes.extend(DESCRIPTION.as_bytes());
        bytes
    }

    #[test]
    fn fields_are_where_the_kernel_says() {
        let little = section(u32::to_le_bytes, u64::to_le_bytes);
        let format = &described(&little, Endianness::LittleEndian)
            .unwrap()
            .formats[&375];
        assert_eq!(format.name, "sched_waking");
        let mut raw = vec![0; 28];
        raw[8..11].copy_from_slice(b"cat");
        raw[24..28].copy_from_slice(&(-7_i32).to_le_bytes());
        let little = Endianness::LittleEndian;
        assert_eq!(format.number("pid", &raw, little), Some(-7));
        assert_eq!(format.text("comm", &raw), Some(&b"cat"[..]));
        assert_eq!(format.number("prio", &raw, little), None);
        assert_eq!(format.number("pid", &raw[..27], little), None);
    }

    /// A file from a machine of the other byte order.
    #[test]
    fn the_other_byte_order_is_read_too() {
        let big = section(u32::to_be_bytes, u64::to_be_bytes);
        let format = &described(&big, Endianness::BigEndian).unwrap().formats[&375];
        let mut raw = vec![0; 28];
        raw[24..28].copy_from_slice(&(-7_i32).to_be_bytes());
        assert_eq!(format.number("pid", &raw, Endianness::BigEndian), Some(-7));
    }

    #[test]
    fn a_torn_section_is_none_and_no_panic() {
        let whole = section(u32::to_le_bytes, u64::to_le_bytes);
        for cut in 0..whole.len() {
            assert!(
                described(&whole[..cut], Endianness::LittleEndian).is_none(),
                "{cut}"
            );
        }
    }
}
