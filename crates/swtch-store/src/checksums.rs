//! `checksums.csv`: the files of a trace, with a checksum for each part of them.
//!
//! A line is `file,offset,length,crc32`. While recording, a line is appended after each batch, so
//! the lines name exactly what can be read. When the trace is finished, one rename replaces the
//! list by one of the final files: the list that is present decides which files belong to the
//! trace.
//!
//! Names in the list are compared with the names of tables and never opened as paths.

use std::fmt::Write;

pub(crate) const CHECKSUMS: &str = "checksums.csv";

const HEADER: &str = "file,offset,length,crc32";

/// A part of a file that was written at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chunk {
    pub(crate) offset: u64,
    pub(crate) length: u64,
    pub(crate) crc32: u32,
}

impl Chunk {
    pub(crate) fn of(offset: u64, bytes: &[u8]) -> Self {
        Self {
            offset,
            length: u64::try_from(bytes.len()).expect("a length fits 64 bits"),
            crc32: crc32fast::hash(bytes),
        }
    }

    pub(crate) const fn end(&self) -> u64 {
        self.offset.saturating_add(self.length)
    }

    pub(crate) fn is_of(&self, bytes: &[u8]) -> bool {
        *self == Self::of(self.offset, bytes)
    }

    /// The line for this chunk, with the newline.
    pub(crate) fn line(&self, file: &str) -> String {
        let Self {
            offset,
            length,
            crc32,
        } = self;
        format!("{file},{offset},{length},{crc32:08x}\n")
    }
}

/// The list of all chunks, in the order in which they were written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checksums {
    lines: Vec<(String, Chunk)>,
    /// Number of lines that could not be parsed.
    pub(crate) odd_lines: usize,
}

impl Checksums {
    /// Parses a list. A line that is torn or malformed is counted and left out.
    pub(crate) fn parse(csv: &[u8]) -> Self {
        let mut list = Self::default();
        let mut lines = csv.split(|byte| *byte == b'\n');
        // The rest after the last newline is empty unless the file is torn.
        let is_torn = lines.next_back().is_none_or(|rest| !rest.is_empty());
        let has_header = lines.next() == Some(HEADER.as_bytes());
        list.odd_lines = usize::from(is_torn) + usize::from(!has_header);
        for line in lines {
            match parse_line(line) {
                Some(entry) => list.lines.push(entry),
                None => list.odd_lines += 1,
            }
        }
        list
    }

    pub(crate) fn add(&mut self, file: &str, chunk: Chunk) {
        self.lines.push((file.to_owned(), chunk));
    }

    /// The parts of a file, in the order in which they were written.
    pub(crate) fn of_file<'a>(&'a self, file: &'a str) -> impl Iterator<Item = Chunk> + 'a {
        let lines = self.lines.iter();
        lines.filter(move |line| line.0 == file).map(|line| line.1)
    }

    /// Returns true if the list names Parquet files, which only a finished trace has.
    pub(crate) fn is_of_finished_trace(&self) -> bool {
        self.lines.iter().any(|line| line.0.ends_with(".parquet"))
    }

    pub(crate) fn to_csv(&self) -> String {
        let mut csv = format!("{HEADER}\n");
        for (file, chunk) in &self.lines {
            csv.write_str(&chunk.line(file))
                .expect("a string takes all that is written to it");
        }
        csv
    }
}

fn parse_line(line: &[u8]) -> Option<(String, Chunk)> {
    let mut fields = std::str::from_utf8(line).ok()?.split(',');
    let file = fields.next()?.to_owned();
    let offset = fields.next()?.parse().ok()?;
    let length = fields.next()?.parse().ok()?;
    let crc32 = fields.next().filter(|digits| digits.len() == 8)?;
    let crc32 = u32::from_str_radix(crc32, 16).ok()?;
    let chunk = Chunk {
        offset,
        length,
        crc32,
    };
    fields.next().is_none().then_some((file, chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list() -> Checksums {
        let mut list = Checksums::default();
        list.add("meta.json", Chunk::of(0, b"{}"));
        list.add("switch.arrows", Chunk::of(0, b"abc"));
        list.add("switch.arrows", Chunk::of(3, b"defg"));
        list
    }

    #[test]
    fn a_list_survives_its_file() {
        assert_eq!(Checksums::parse(list().to_csv().as_bytes()), list());
    }

    /// The last line may be half written when the recorder is killed.
    #[test]
    fn a_torn_line_is_left_out() {
        let csv = list().to_csv();
        let torn = Checksums::parse(&csv.as_bytes()[..csv.len() - 1]);
        assert_eq!(torn.odd_lines, 1);
        assert_eq!(torn.of_file("switch.arrows").count(), 1);
    }

    #[test]
    fn an_empty_file_is_no_whole_list() {
        assert_eq!(Checksums::parse(b"").odd_lines, 1);
    }

    #[test]
    fn an_odd_line_is_counted() {
        let csv = list()
            .to_csv()
            .replace("switch.arrows,3,", "switch.arrows,x,");
        let odd = Checksums::parse(csv.as_bytes());
        assert_eq!(
            (odd.odd_lines, odd.of_file("switch.arrows").count()),
            (1, 1)
        );
    }
}
