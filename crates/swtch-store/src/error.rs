//! Errors of reading and writing a trace, with advice.

use std::error::Error as StdError;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::column::{MOST_NAME_BYTES, Mismatch};

/// Reasons for which a trace could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The output path is taken. Nothing is ever overwritten.
    #[error("{} already exists", path.display())]
    Exists {
        /// The path that exists already.
        path: PathBuf,
    },
    /// The trace's directory or one of its files could not be created or written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file or directory concerned.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The trace was removed while it was being written.
    #[error("{} was removed while it was written", path.display())]
    Removed {
        /// The directory of the trace.
        path: PathBuf,
    },
    /// The dump that a recorder has named is not opened: its path leads out of the directory of dumps or
    /// through a link, or the directory there belongs to another user than the recorder.
    #[error("the recorder of {} names the dump {path:?}, which is not taken: {why}", trace.display())]
    RefusedDump {
        /// The directory of the trace.
        trace: PathBuf,
        /// The path that the recorder has named.
        path: String,
        /// The reason why it is not taken.
        why: String,
    },
    /// An earlier write failed, so this trace accepts no more rows.
    #[error("{} takes no more rows: an earlier write failed", path.display())]
    Stopped {
        /// The directory of the trace.
        path: PathBuf,
    },
    /// A file of the trace could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file that could not be read.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The path does not lead to a trace.
    #[error("{} is not a trace: it has no {missing}", path.display())]
    NotATrace {
        /// The path that was given.
        path: PathBuf,
        /// The missing file, which every trace has.
        missing: &'static str,
    },
    /// A file is not as it was written: bytes differ or are missing.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The file that is damaged.
        path: PathBuf,
        /// The damage, and its place, in words.
        what: String,
    },
    /// The trace still holds records, which this function does not decode.
    #[error("{} was not finished: its switches are still records of the kernel side", path.display())]
    NotDecoded {
        /// The directory of the trace.
        path: PathBuf,
    },
    /// The trace holds records that another version of the program wrote.
    #[error("{} holds {what}", path.display())]
    OtherRecords {
        /// The file with the records.
        path: PathBuf,
        /// The version or layout of the records that it holds, and of those that this program reads, in words.
        what: String,
    },
    /// The bytes are as written, but they are not a table of a trace.
    #[error("cannot decode {}", path.display())]
    Decode {
        /// The file that could not be decoded.
        path: PathBuf,
        /// Error of the Arrow or Parquet decoder.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// A batch of rows could not be encoded.
    #[error("cannot encode a batch of {}", path.display())]
    Encode {
        /// The file it was meant for.
        path: PathBuf,
        /// Error of the Arrow or Parquet encoder.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// A column holds something other than the schema says.
    #[error("column {column} of {}: {found}", path.display())]
    Column {
        /// The file with the column.
        path: PathBuf,
        /// Name of the column in the schema.
        column: &'static str,
        /// Description of what it holds.
        found: String,
    },
    /// A column holds a word that is in no list of this version. Lists only ever grow, so the trace is from a newer
    /// version.
    #[error(
        "column {column} of {} says {word:?}: the trace is from a newer swtch",
        path.display()
    )]
    NewerWord {
        /// The file with the column.
        path: PathBuf,
        /// Name of the column in the schema.
        column: &'static str,
        /// The word that is not known.
        word: String,
    },
    /// `meta.json` cannot be parsed as the facts of a trace.
    #[error("cannot understand {}", path.display())]
    Meta {
        /// Path of `meta.json` in the trace.
        path: PathBuf,
        /// Error of the JSON parser.
        source: serde_json::Error,
    },
}

impl Error {
    /// Returns true if there was no space on the disk, or the user may not take more of it.
    pub fn is_full_disk(&self) -> bool {
        let full = [ErrorKind::StorageFull, ErrorKind::QuotaExceeded];
        matches!(self, Self::Write { source, .. } if full.contains(&source.kind()))
    }

    /// Returns what the user can do about it; `None` where the message says everything.
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Exists { .. } => Some("choose another name, or remove the old trace first"),
            Self::Write { source, .. } => write_advice(source.kind()),
            Self::Stopped { .. } => Some("end the recording; what was flushed before is readable"),
            Self::Read { source, .. } => read_advice(source.kind()),
            Self::NotATrace { .. } => Some("a trace is the directory NAME.swtch itself"),
            Self::Damaged { .. } => {
                Some("copy the trace again from where it was recorded; check the disk")
            }
            Self::NotDecoded { .. } => Some("open it with a verb of swtch, which decodes them"),
            Self::OtherRecords { .. } => Some(
                "the recording was cut off, and only the swtch that recorded it can finish it: meta.json \
                 says its version",
            ),
            Self::NewerWord { .. } => Some("read it with the swtch that recorded it, or newer"),
            Self::Removed { .. }
            | Self::RefusedDump { .. }
            | Self::Decode { .. }
            | Self::Encode { .. }
            | Self::Column { .. }
            | Self::Meta { .. } => None,
        }
    }

    pub(crate) fn write(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        Self::Write { path, source }
    }

    pub(crate) fn read(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        Self::Read { path, source }
    }

    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            what: what.into(),
        }
    }

    pub(crate) fn decode(path: &Path, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Decode {
            path: path.to_owned(),
            source: source.into(),
        }
    }

    pub(crate) fn encode(path: &Path, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self::Encode {
            path: path.to_owned(),
            source: source.into(),
        }
    }

    pub(crate) fn column(path: &Path, column: &'static str, mismatch: Mismatch) -> Self {
        let path = path.to_owned();
        match mismatch {
            Mismatch::Word(word) => Self::NewerWord { path, column, word },
            Mismatch::Type(found) => Self::Column {
                path,
                column,
                found: format!("it holds {found}"),
            },
            Mismatch::TooLong(bytes) => Self::Column {
                path,
                column,
                found: format!(
                    "it holds a name of {bytes} bytes, and {MOST_NAME_BYTES} is the limit"
                ),
            },
            Mismatch::Null => Self::Column {
                path,
                column,
                found: "a value is missing".to_owned(),
            },
        }
    }
}

fn write_advice(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            Some("free some space or record to another disk; what was flushed before is readable")
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            Some("choose a directory that you may write to")
        }
        ErrorKind::NotFound => Some("make the directory above it first"),
        _ => None,
    }
}

fn read_advice(kind: ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::PermissionDenied => {
            Some("a trace belongs to whoever recorded it, and only that user and root may read it")
        }
        ErrorKind::NotFound => Some("a file of the trace is missing: copy the whole directory"),
        _ => None,
    }
}
