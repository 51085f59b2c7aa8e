//! `swtch export`: a trace in the formats that other tools read.
//!
//! ```text
//! Trace ─▶ ExportRows (those that the filter takes, as in reports)
//!            └─▶ perfetto │ firefox │ folded │ perf_script │ pprof │ otlp │ table ─▶ Sink
//! ```
//!
//! - `rows` chooses the rows, so that each format counts as a report with the same filter does.
//! - `life` joins the two rows that describe one wait; `evidence` names what is known about it.
//! - Each format is a file that takes rows one by one, because a trace may be larger than memory.
//!   Firefox is the exception, and has a limit.
//! - `sink` makes sure that an unfinished file is never taken for a whole one.
//!
//! No export has prices: they belong to a machine and a day, not to a trace.

mod evidence;
mod firefox;
mod folded;
mod life;
mod otlp;
mod perf_script;
mod perfetto;
mod pprof;
mod rows;
mod sink;
mod table;
mod wait_places;

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Result, bail};
use swtch_output::message;
use swtch_output::text::escaped;

use crate::opening;
use crate::report::Filter;
pub(crate) use perfetto::{UNKNOWN_STATE, is_not_recorded, message as perfetto_message};
use rows::ExportRows;
pub use sink::{ExportEncoding, Packing, Sink};

/// The format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExportFormat {
    /// Protobuf messages that Perfetto reads.
    Perfetto,
    /// JSON that the Firefox Profiler reads.
    Firefox,
    /// Folded stacks, for flame graphs.
    Folded,
    /// Samples as `perf script` prints them.
    PerfScript,
    /// A profile in pprof's format.
    Pprof,
    /// OTLP profiles.
    OtlpProfile,
    /// Comma-separated values, with one row per switch.
    Csv,
    /// A Parquet file with one row per switch.
    Parquet,
}

impl ExportFormat {
    /// In the order in which help and errors list them.
    pub const ALL: [Self; 8] = [
        Self::Perfetto,
        Self::Firefox,
        Self::Folded,
        Self::PerfScript,
        Self::Pprof,
        Self::OtlpProfile,
        Self::Csv,
        Self::Parquet,
    ];

    /// The word on the command line.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Perfetto => "perfetto",
            Self::Firefox => "firefox",
            Self::Folded => "folded",
            Self::PerfScript => "perf-script",
            Self::Pprof => "pprof",
            Self::OtlpProfile => "otlp-profile",
            Self::Csv => "csv",
            Self::Parquet => "parquet",
        }
    }

    /// The format with this word; `None` if there is none.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|to| to.as_str() == word)
    }

    const fn bytes(self) -> ExportEncoding {
        match self {
            Self::Perfetto | Self::Pprof | Self::OtlpProfile | Self::Parquet => {
                ExportEncoding::Binary
            }
            Self::Firefox | Self::Folded | Self::PerfScript | Self::Csv => ExportEncoding::Text,
        }
    }

    /// The ending of file names by which readers of the format know it.
    const fn suffix(self) -> &'static str {
        match self {
            Self::Perfetto => "pftrace",
            Self::Firefox => "json",
            Self::Folded => "folded",
            Self::PerfScript => "txt",
            Self::Pprof | Self::OtlpProfile => "pb",
            Self::Csv => "csv",
            Self::Parquet => "parquet",
        }
    }

    /// A hint on which programs read the format.
    const fn reader(self) -> &'static str {
        match self {
            Self::Perfetto => "open it at https://ui.perfetto.dev",
            Self::Firefox => "open it at https://profiler.firefox.com",
            Self::Folded => "flamegraph.pl draws it, speedscope.app opens it",
            Self::PerfScript => "stackcollapse-perf.pl and speedscope.app read it",
            Self::OtlpProfile => "OpenTelemetry's libraries read it (ProfilesData)",
            Self::Pprof => "go tool pprof and speedscope.app open it",
            Self::Csv | Self::Parquet => "DuckDB, pandas and others read it",
        }
    }

    /// Returns the compression of the file: gzip if its name ends in `.gz`; some formats refuse such a name, and profiles
    /// are always compressed.
    fn packing(self, output: Option<&Path>) -> Result<Packing> {
        if output.and_then(Path::extension) != Some(OsStr::new("gz")) {
            return Ok(match self {
                Self::Pprof => Packing::Gzip,
                _ => Packing::None,
            });
        }
        match self {
            Self::Folded => bail!("flamegraph.pl reads no gzip: give a name without .gz"),
            Self::PerfScript => {
                bail!("stackcollapse-perf.pl reads no gzip: give a name without .gz")
            }
            Self::Parquet => bail!("Parquet is compressed inside: give a name without .gz"),
            _ => Ok(Packing::Gzip),
        }
    }
}

/// A trace to export, its format, and the file that it goes to.
#[derive(Clone, Debug)]
pub struct ExportRequest {
    /// Directory of the trace to export.
    pub trace: PathBuf,
    /// The format of the file.
    pub to: ExportFormat,
    /// The file; stdout when `None`.
    pub output: Option<PathBuf>,
    /// The rows that are exported.
    pub filter: Filter,
}

/// Exports a trace, and returns the exit code. `catch_signals` is called when the output is opened;
/// when its flag becomes true the export ends with an error, and no file is left behind. Before, a
/// signal has its ordinary effect.
///
/// # Errors
/// When the trace cannot be read, signals cannot be caught, or the export cannot be written.
pub fn run(
    request: &ExportRequest,
    catch_signals: impl FnOnce() -> io::Result<Arc<AtomicBool>>,
) -> Result<u8> {
    let output = request.output.as_deref();
    let packing = request.to.packing(output)?;
    let trace = opening::open(&request.trace)?;
    let mut rows = ExportRows::open(&trace, &request.filter)?;
    let mut sink = Sink::open(output, request.to.bytes(), packing, catch_signals()?)?;
    match request.to {
        ExportFormat::Perfetto => perfetto::write(&mut rows, &mut sink)?,
        ExportFormat::Firefox => firefox::write(&mut rows, &mut sink)?,
        ExportFormat::Folded => folded::write(&mut rows, &mut sink)?,
        ExportFormat::PerfScript => perf_script::write(&mut rows, &mut sink)?,
        ExportFormat::Pprof => pprof::write(&mut rows, &mut sink)?,
        ExportFormat::OtlpProfile => otlp::write(&mut rows, &mut sink)?,
        ExportFormat::Csv => table::write_csv(&mut rows, &mut sink)?,
        ExportFormat::Parquet => {
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
fn tell(to: ExportFormat, output: &Path, bytes: u64) {
    let name = output.to_string_lossy();
    let megabytes = bytes as f64 / 1e6;
    message!(
        "swtch: {megabytes:.1} MB in {}: {}",
        escaped(&name),
        to.reader()
    );
    let suffix = format!(".{}", to.suffix());
    if !name.trim_end_matches(".gz").ends_with(&suffix) {
        message!("swtch: its readers know such files by names that end in {suffix}");
    }
}
