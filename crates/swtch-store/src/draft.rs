//! A file that gets its name when it is whole and on the disk. Until then it is `NAME.tmp`, which
//! no reader looks at; one that is never published is removed.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::checksums::Chunk;
use crate::error::Error;

/// Length of the parts that a file is checked in: what a reader fetches at least.
const PART_BYTES: usize = 64 * 1024;

/// A file being written.
#[derive(Debug)]
pub(crate) struct Draft {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
    part: Vec<u8>,
    chunks: Vec<Chunk>,
    is_published: bool,
}

impl Draft {
    /// Begins the file that is to be `path`.
    pub(crate) fn create(path: &Path) -> Result<Self, Error> {
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".tmp");
        let temporary = PathBuf::from(temporary);
        let file = File::create(&temporary).map_err(|err| Error::write(path, err))?;
        Ok(Self {
            path: path.to_owned(),
            temporary,
            file,
            part: Vec::with_capacity(PART_BYTES),
            chunks: Vec::new(),
            is_published: false,
        })
    }

    /// Puts the file in its place, in that of an older one if need be; gives back the checksums
    /// of its parts.
    pub(crate) fn publish(mut self) -> Result<Vec<Chunk>, Error> {
        self.put_in_place()
            .map_err(|err| Error::write(&self.path, err))?;
        self.is_published = true;
        Ok(std::mem::take(&mut self.chunks))
    }

    fn put_in_place(&mut self) -> io::Result<()> {
        self.write_part()?;
        self.file.sync_all()?;
        fs::rename(&self.temporary, &self.path)
    }

    fn write_part(&mut self) -> io::Result<()> {
        if self.part.is_empty() {
            return Ok(());
        }
        let offset = self.chunks.last().map_or(0, Chunk::end);
        self.file.write_all(&self.part)?;
        self.chunks.push(Chunk::of(offset, &self.part));
        self.part.clear();
        Ok(())
    }
}

impl Write for Draft {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(PART_BYTES - self.part.len());
        self.part.extend_from_slice(&bytes[..count]);
        if self.part.len() == PART_BYTES {
            self.write_part()?;
        }
        Ok(count)
    }

    /// Parts are of one length, so what is begun waits for [`Draft::publish`].
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_published {
            // A reader passes over what is left if this fails, and there is nobody to tell.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// Writes a whole file as a draft.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<Vec<Chunk>, Error> {
    let mut draft = Draft::create(path)?;
    draft
        .write_all(bytes)
        .map_err(|err| Error::write(path, err))?;
    draft.publish()
}

/// Makes the names in a directory last beyond a power cut.
pub(crate) fn sync_directory(dir: &Path) -> Result<(), Error> {
    let sync = || File::open(dir)?.sync_all();
    sync().map_err(|err| Error::write(dir, err))
}
