//! What can go wrong with a trace, and what to do about it.

use std::error::Error as StdError;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use crate::column::{MOST_NAME_BYTES, Mismatch};

/// Why a trace could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The output path is taken. Nothing is ever overwritten.
    #[error("{} already exists", path.display())]
    Exists {
        /// The path.
        path: PathBuf,
    },
    /// The trace's directory or one of its files could not be made or written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The trace was removed while it was written.
    #[error("{} was removed while it was written", path.display())]
    Removed {
        /// The trace.
        path: PathBuf,
    },
    /// The trace could not be given to another user.
    #[error("{} cannot be given to user {user}", path.display())]
    Owner {
        /// The trace.
        path: PathBuf,
        /// The user's number.
        user: u32,
        /// What the system said.
        source: io::Error,
    },
    /// An earlier write failed, so that this trace takes no more rows.
    #[error("{} takes no more rows: an earlier write failed", path.display())]
    Stopped {
        /// The trace.
        path: PathBuf,
    },
    /// A file of the trace could not be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The path is no trace.
    #[error("{} is not a trace: it has no {missing}", path.display())]
    NotATrace {
        /// The path.
        path: PathBuf,
        /// The file that makes a directory a trace.
        missing: &'static str,
    },
    /// A file is not as it was written: bytes differ or are missing.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong, and where.
        what: String,
    },
    /// The bytes are as written, and yet no table of a trace.
    #[error("cannot decode {}", path.display())]
    Decode {
        /// The file.
        path: PathBuf,
        /// What the decoder said.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// A batch could not be encoded.
    #[error("cannot encode a batch of {}", path.display())]
    Encode {
        /// The file.
        path: PathBuf,
        /// What the encoder said.
        source: Box<dyn StdError + Send + Sync>,
    },
    /// A column holds something else than the schema says.
    #[error("column {column} of {}: {found}", path.display())]
    Column {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
        /// What it holds.
        found: String,
    },
    /// The trace uses a word that this version does not know.
    #[error(
        "column {column} of {} says {word:?}: the trace is from a newer swtch",
        path.display()
    )]
    NewerWord {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
        /// The word.
        word: String,
    },
    /// `meta.json` is not what it should be.
    #[error("cannot understand {}", path.display())]
    Meta {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        source: serde_json::Error,
    },
}

impl Error {
    /// What a person can do about it; `None` where the message says all.
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
            Self::NewerWord { .. } => Some("read it with the swtch that recorded it, or newer"),
            Self::Removed { .. }
            | Self::Owner { .. }
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
            Some("a trace belongs to who recorded it, and only that user and root may read it")
        }
        ErrorKind::NotFound => Some("a file of the trace is missing: copy the whole directory"),
        _ => None,
    }
}
