//! The destination of an export: a file that gets its name when it is complete, or stdout.
//!
//! Until the last byte is on the disk, a file is `NAME.….partial` in the same directory, so that an
//! error, a full disk, Ctrl-C or a kill leave nothing that looks complete.

use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use swtch_output::destination::{Destination, check_directory};

/// Bytes that are gathered before each call of `write`.
const CHUNK_BYTES: usize = 1 << 20;

/// The encoding of an export: text or binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportEncoding {
    /// Text that a terminal can show.
    Text,
    /// Bytes that a terminal cannot show.
    Binary,
}

/// The compression of an export while it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// The bytes are written as they are.
    None,
    /// The bytes are compressed with gzip (RFC 1952).
    Gzip,
}

/// An export that is being written.
#[derive(Debug)]
pub struct Sink {
    out: OutputStream,
}

#[derive(Debug)]
enum OutputStream {
    Plain(BufWriter<CountedTarget>),
    Gzip(Box<GzEncoder<BufWriter<CountedTarget>>>),
}

#[derive(Debug)]
struct CountedTarget {
    target: OutputTarget,
    interrupted: Arc<AtomicBool>,
    written: u64,
}

#[derive(Debug)]
enum OutputTarget {
    File(Destination, PathBuf),
    Stdout(io::Stdout),
}

impl Sink {
    /// Opens `path`, or stdout. When `interrupted` becomes true the next write fails, and no file
    /// is left behind.
    ///
    /// # Errors
    /// When the file cannot be made, and for binary bytes on a terminal.
    pub fn open(
        path: Option<&Path>,
        bytes: ExportEncoding,
        packing: Packing,
        interrupted: Arc<AtomicBool>,
    ) -> Result<Self> {
        let target = match path {
            Some(path) => {
                check_directory(path)?;
                OutputTarget::File(Destination::open(path)?, path.to_owned())
            }
            None if bytes == ExportEncoding::Binary && io::stdout().is_terminal() => bail!(
                "this format is binary and stdout is a terminal: give a file with -o FILE, or a pipe"
            ),
            None => OutputTarget::Stdout(io::stdout()),
        };
        let place = CountedTarget {
            target,
            interrupted,
            written: 0,
        };
        let plain = BufWriter::with_capacity(CHUNK_BYTES, place);
        let out = match packing {
            Packing::None => OutputStream::Plain(plain),
            Packing::Gzip => {
                OutputStream::Gzip(Box::new(GzEncoder::new(plain, Compression::fast())))
            }
        };
        Ok(Self { out })
    }

    /// Puts the file in its place, and returns the number of its bytes.
    ///
    /// # Errors
    /// When the last bytes cannot be written; then there is no file.
    pub fn finish(self) -> Result<u64> {
        let plain = match self.out {
            OutputStream::Plain(plain) => plain,
            OutputStream::Gzip(encoder) => encoder.finish()?,
        };
        let place = plain.into_inner();
        let mut place = place.map_err(io::IntoInnerError::into_error)?;
        place.flush()?;
        if let OutputTarget::File(file, path) = place.target {
            file.finish().with_context(|| no_export(&path))?;
        }
        Ok(place.written)
    }
}

impl OutputTarget {
    /// Adds the path to an error of the system.
    fn refused(&self, error: &io::Error) -> io::Error {
        let path = match self {
            Self::File(_, path) => path,
            Self::Stdout(_) => Path::new("to stdout"),
        };
        let words = match error.kind() {
            io::ErrorKind::BrokenPipe => {
                "the reader of the export went away before its end".to_owned()
            }
            _ => format!("{}: {error}", no_export(path)),
        };
        io::Error::new(error.kind(), words)
    }
}

fn no_export(path: &Path) -> String {
    format!("cannot write {}; no export was left behind", path.display())
}

impl Write for CountedTarget {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(io::Error::other("interrupted: no export was left behind"));
        }
        let written = match &mut self.target {
            OutputTarget::File(file, _) => file.write(bytes),
            OutputTarget::Stdout(stdout) => stdout.write(bytes),
        };
        match written {
            Ok(count) => {
                self.written += count as u64;
                Ok(count)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Err(error),
            Err(error) => Err(self.target.refused(&error)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let flushed = match &mut self.target {
            OutputTarget::File(file, _) => file.flush(),
            OutputTarget::Stdout(stdout) => stdout.flush(),
        };
        flushed.map_err(|error| self.target.refused(&error))
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.out {
            OutputStream::Plain(plain) => plain.write(bytes),
            OutputStream::Gzip(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.out {
            OutputStream::Plain(plain) => plain.flush(),
            OutputStream::Gzip(encoder) => encoder.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = dir.read_dir().unwrap().flatten();
        entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect()
    }

    /// A reader that looks meanwhile finds the complete old file.
    #[test]
    fn a_file_gets_its_name_when_it_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        fs::write(&path, "old").unwrap();
        let mut sink = Sink::open(
            Some(&path),
            ExportEncoding::Text,
            Packing::None,
            Arc::default(),
        )
        .unwrap();
        sink.write_all(b"new").unwrap();
        sink.flush().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        assert_eq!(sink.finish().unwrap(), 3);
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(names(dir.path()), ["a.json"]);
    }

    #[test]
    fn an_export_that_is_given_up_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        let mut sink = Sink::open(
            Some(&path),
            ExportEncoding::Binary,
            Packing::None,
            Arc::default(),
        )
        .unwrap();
        sink.write_all(b"half").unwrap();
        sink.flush().unwrap();
        drop(sink);
        assert!(names(dir.path()).is_empty());
    }

    #[test]
    fn a_packed_file_holds_what_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json.gz");
        let mut sink = Sink::open(
            Some(&path),
            ExportEncoding::Text,
            Packing::Gzip,
            Arc::default(),
        )
        .unwrap();
        sink.write_all(&[b'x'; 100_000]).unwrap();
        let bytes = sink.finish().unwrap();
        assert_eq!(bytes, fs::metadata(&path).unwrap().len());
        assert!(bytes < 10_000, "{bytes}");
        let mut unpacked = Vec::new();
        let mut decoder = flate2::read::GzDecoder::new(File::open(&path).unwrap());
        io::Read::read_to_end(&mut decoder, &mut unpacked).unwrap();
        assert_eq!(unpacked, [b'x'; 100_000]);
    }

    /// An error at the very end (a full disk, a place that is taken) names the file as well.
    #[test]
    fn the_last_step_names_the_file_that_it_could_not_make() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.json");
        let sink = Sink::open(
            Some(&path),
            ExportEncoding::Text,
            Packing::None,
            Arc::default(),
        )
        .unwrap();
        fs::create_dir(&path).unwrap();
        let said = sink.finish().unwrap_err().to_string();
        assert!(
            said.contains("cannot write") && said.contains("a.json"),
            "{said}"
        );
        assert_eq!(names(dir.path()), ["a.json"]);
    }

    /// `-o /dev/full` must fail, and must not replace the device by a file.
    #[test]
    fn a_device_is_written_as_it_stands() {
        let mut sink = Sink::open(
            Some(Path::new("/dev/full")),
            ExportEncoding::Text,
            Packing::None,
            Arc::default(),
        )
        .unwrap();
        sink.write_all(b"x").unwrap();
        let said = sink.finish().unwrap_err().to_string();
        assert!(
            said.contains("/dev/full") && said.contains("No space"),
            "{said}"
        );
        assert!(!fs::metadata("/dev/full").unwrap().is_file());
    }
}
