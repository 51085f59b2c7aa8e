//! `swtch export`: a trace in the formats that other tools read.
//!
//! ```text
//! Trace ─▶ Rows (the filter's, as in reports) ─▶ perfetto │ chrome │ firefox │ folded │ csv │ parquet ─▶ Sink
//! ```
//!
//! - [`rows`] chooses; a format never counts otherwise than a report with the same filter.
//! - [`life`] joins what two rows tell of one wait; [`evidence`] names what is known of it.
//! - Each format is a file that takes rows one by one: a trace may be larger than memory. Firefox's is
//!   the exception, and has a limit.
//! - [`sink`] lets nobody mistake a part for the whole.
//!
//! Prices are in no export: they are of a machine and a day, not of a trace.

mod chrome;
mod evidence;
mod firefox;
mod folded;
mod life;
mod perfetto;
mod rows;
mod sink;
mod table;

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::opening;
use crate::report::Filter;
use crate::text::escaped;
use rows::Rows;
pub use sink::{Bytes, Packing, Sink};

/// The formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// Perfetto's protobuf.
    Perfetto,
    /// Chrome's JSON.
    Chrome,
    /// The Firefox Profiler's JSON.
    Firefox,
    /// Folded stacks, for flame graphs.
    Folded,
    /// A row a switch.
    Csv,
    /// A row a switch.
    Parquet,
}

impl To {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Perfetto,
        Self::Chrome,
        Self::Firefox,
        Self::Folded,
        Self::Csv,
        Self::Parquet,
    ];

    /// The word on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Perfetto => "perfetto",
            Self::Chrome => "chrome",
            Self::Firefox => "firefox",
            Self::Folded => "folded",
            Self::Csv => "csv",
            Self::Parquet => "parquet",
        }
    }

    /// The one with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|to| to.as_str() == word)
    }

    const fn bytes(self) -> Bytes {
        match self {
            Self::Perfetto | Self::Parquet => Bytes::Binary,
            Self::Chrome | Self::Firefox | Self::Folded | Self::Csv => Bytes::Text,
        }
    }

    /// How a file of it is called, so that its readers know it.
    const fn suffix(self) -> &'static str {
        match self {
            Self::Perfetto => "pftrace",
            Self::Chrome | Self::Firefox => "json",
            Self::Folded => "folded",
            Self::Csv => "csv",
            Self::Parquet => "parquet",
        }
    }

    /// What opens it.
    const fn reader(self) -> &'static str {
        match self {
            Self::Perfetto => "open it at https://ui.perfetto.dev",
            Self::Chrome => {
                "open it at https://ui.perfetto.dev, chrome://tracing or speedscope.app"
            }
            Self::Firefox => "open it at https://profiler.firefox.com",
            Self::Folded => "flamegraph.pl draws it, speedscope.app opens it",
            Self::Csv | Self::Parquet => "DuckDB, pandas and others read it",
        }
    }

    /// Whether the file is compressed, as its name asks.
    fn packing(self, output: Option<&Path>) -> Result<Packing> {
        if output.and_then(Path::extension) != Some(OsStr::new("gz")) {
            return Ok(Packing::None);
        }
        match self {
            Self::Perfetto | Self::Chrome | Self::Firefox | Self::Csv => Ok(Packing::Gzip),
            Self::Folded => bail!("flamegraph.pl reads no gzip: give a name without .gz"),
            Self::Parquet => bail!("Parquet is compressed inside: give a name without .gz"),
        }
    }
}

/// What to export.
#[derive(Clone, Debug)]
pub struct Request {
    /// The trace.
    pub trace: PathBuf,
    /// The format.
    pub to: To,
    /// The file; stdout when `None`.
    pub output: Option<PathBuf>,
    /// What of it.
    pub filter: Filter,
}

/// Exports; the exit code.
///
/// # Errors
/// When the trace cannot be read or the export not be written.
pub fn run(request: &Request) -> Result<u8> {
    let output = request.output.as_deref();
    let packing = request.to.packing(output)?;
    let trace = opening::open(&request.trace)?;
    let mut rows = Rows::open(&trace, &request.filter)?;
    let mut sink = Sink::open(output, request.to.bytes(), packing)?;
    match request.to {
        To::Perfetto => perfetto::write(&mut rows, &mut sink)?,
        To::Chrome => chrome::write(&mut rows, &mut sink)?,
        To::Firefox => firefox::write(&mut rows, &mut sink)?,
        To::Folded => folded::write(&mut rows, &mut sink)?,
        To::Csv => table::write_csv(&mut rows, &mut sink)?,
        To::Parquet => {
            let shown = request.output.as_deref().unwrap_or(Path::new("stdout"));
            sink = table::write_parquet(&mut rows, sink, shown)?;
        }
    }
    let bytes = sink.finish()?;
    rows.tell_missing();
    if let Some(output) = output {
        tell(request.to, output, bytes);
    }
    Ok(0)
}

#[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
fn tell(to: To, output: &Path, bytes: u64) {
    let name = output.to_string_lossy();
    let megabytes = bytes as f64 / 1e6;
    talk!(
        "swtch: {megabytes:.1} MB in {}: {}",
        escaped(&name),
        to.reader()
    );
    let suffix = format!(".{}", to.suffix());
    if !name.trim_end_matches(".gz").ends_with(&suffix) {
        talk!("swtch: its readers know such files by names that end in {suffix}");
    }
}
