//! Unpacks a file that was compressed as a whole, as people attach it to a report.

use std::fs::File;
use std::io::{self, Read, Seek as _, Write as _};

use anyhow::{Context as _, Result, bail};

/// What a file of any size may become.
const MOST_BYTES: u64 = 256 << 20;

/// A larger file may become this many times its size: text of ftrace comes to about 15.
const MOST_RATIO: u64 = 64;

/// As many bytes as tell what wrote a file.
const FIRST_BYTES: u64 = 4096;

/// Bytes that are copied at a time.
const PIECE_BYTES: usize = 256 << 10;

/// A file that is not packed, or not any more.
#[derive(Debug)]
pub struct UnpackedFile {
    /// The file itself, or a temporary file without a name.
    pub file: File,
    /// True if the packed file ends early.
    pub is_cut: bool,
}

/// Unpacks a file, as far as it goes.
///
/// # Errors
/// When it is damaged, or would become absurdly large.
pub fn unpacked(file: File) -> Result<UnpackedFile> {
    let limit = MOST_BYTES.max(file.metadata()?.len().saturating_mul(MOST_RATIO));
    match Packed::of(file)? {
        Packed::Not(file) => Ok(UnpackedFile {
            file,
            is_cut: false,
        }),
        Packed::By(packed) => copied(packed, limit),
    }
}

/// The first bytes of a file, of what was packed if it is packed.
///
/// # Errors
/// When it cannot be read.
pub fn first_bytes(file: File) -> Result<Vec<u8>> {
    let mut first = Vec::new();
    let mut reader: Box<dyn Read> = match Packed::of(file)? {
        Packed::Not(file) => Box::new(file),
        Packed::By(packed) => packed,
    };
    reader.by_ref().take(FIRST_BYTES).read_to_end(&mut first)?;
    Ok(first)
}

/// A file, and what unpacks it.
enum Packed {
    Not(File),
    By(Box<dyn Read>),
}

impl Packed {
    fn of(mut file: File) -> Result<Self> {
        let mut magic = Vec::new();
        Read::by_ref(&mut file).take(4).read_to_end(&mut magic)?;
        file.rewind()?;
        Ok(match magic.as_slice() {
            [0x1f, 0x8b, ..] => Self::By(Box::new(flate2::read::MultiGzDecoder::new(file))),
            [0x28, 0xb5, 0x2f, 0xfd] => Self::By(Box::new(zstd::Decoder::new(file)?)),
            _ => Self::Not(file),
        })
    }
}

fn copied(mut packed: impl Read, limit: u64) -> Result<UnpackedFile> {
    let mut copy = tempfile::tempfile().context("making a temporary file for what is packed")?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut length = 0;
    let mut is_cut = false;
    loop {
        let count = match packed.read(&mut piece) {
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && length > 0 => {
                is_cut = true;
                0
            }
            Err(error) => return Err(error).context("it is damaged: it cannot be unpacked"),
        };
        length += count as u64;
        if length > limit {
            bail!(
                "it is damaged: unpacked it has more than {} MB",
                limit / 1_000_000
            );
        }
        let part = piece.get(..count).unwrap_or_default();
        copy.write_all(part)
            .context("writing a temporary file of what is packed")?;
        if count == 0 {
            copy.rewind()?;
            return Ok(UnpackedFile { file: copy, is_cut });
        }
    }
}
