//! The formats of an answer on stdout.

use std::io::{self, ErrorKind, Write};

use clap::builder::{PossibleValuesParser, TypedValueParser};

/// The format of an answer on stdout.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// Aligned columns for people, in the units they would choose.
    #[default]
    Table,
    /// One JSON object, all columns in raw units.
    Json,
    /// CSV by RFC 4180, all columns in raw units. Names are escaped as in tables
    /// ([`crate::text::escaped`]): this, too, is looked at on terminals. JSON has them exactly.
    Csv,
}

impl Format {
    /// In the order in which help and errors list them.
    pub const ALL: [Self; 3] = [Self::Table, Self::Json, Self::Csv];

    /// The word on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Json => "json",
            Self::Csv => "csv",
        }
    }

    /// The format with this word; `None` if there is none.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.as_str() == word)
    }

    /// Parses the word on the command line; help lists the possible ones.
    pub fn parser() -> impl TypedValueParser<Value = Self> {
        PossibleValuesParser::new(Self::ALL.map(Self::as_str))
            .map(|word| Self::from_word(&word).expect("it is one of the possible values"))
    }
}

/// Writes a whole answer. It is no error if the reader closes the pipe early (`swtch … | head`).
///
/// # Errors
///
/// If `out` cannot be written for any other cause, such as a full disk.
pub fn write_answer(out: &mut dyn Write, answer: &[u8]) -> io::Result<()> {
    match out.write_all(answer).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails every write with this kind of error.
    struct Refusing(ErrorKind);

    impl Write for Refusing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_went_away_is_no_error() {
        assert!(write_answer(&mut Refusing(ErrorKind::BrokenPipe), b"x").is_ok());
        assert!(write_answer(&mut Refusing(ErrorKind::StorageFull), b"x").is_err());
    }
}
