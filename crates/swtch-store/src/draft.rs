//! A file that gets its name only when it is whole and on the disk. Until then it is `NAME.tmp`,
//! which readers ignore; a draft that is never published is removed.

use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use crate::checksums::Chunk;
use crate::directory::Directory;
use crate::error::Error;

/// Length of the parts that have a checksum each, and so the least that a reader fetches.
const PART_BYTES: usize = 64 * 1024;

/// A file that is being written and has no final name yet.
#[derive(Debug)]
pub(crate) struct Draft {
    directory: Directory,
    name: String,
    temporary: String,
    file: File,
    part: Vec<u8>,
    chunks: Vec<Chunk>,
    is_published: bool,
}

impl Draft {
    /// Creates the draft of the file `name` in the directory.
    pub(crate) fn create(directory: &Directory, name: &str) -> Result<Self, Error> {
        let temporary = format!("{name}.tmp");
        let file = directory.create_file(&temporary);
        let file = file.map_err(|err| Error::write(&directory.path().join(name), err))?;
        Ok(Self {
            directory: directory.clone(),
            name: name.to_owned(),
            temporary,
            file,
            part: Vec::with_capacity(PART_BYTES),
            chunks: Vec::new(),
            is_published: false,
        })
    }

    /// Gives the file its name, replacing an older file if there is one; returns the checksums of
    /// its parts.
    pub(crate) fn publish(mut self) -> Result<Vec<Chunk>, Error> {
        self.put_in_place()
            .map_err(|err| Error::write(&self.path(), err))?;
        self.is_published = true;
        Ok(std::mem::take(&mut self.chunks))
    }

    /// The final path, for error messages.
    fn path(&self) -> PathBuf {
        self.directory.path().join(&self.name)
    }

    fn put_in_place(&mut self) -> io::Result<()> {
        self.write_part()?;
        self.file.sync_all()?;
        self.directory.rename_file(&self.temporary, &self.name)
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

    /// Does nothing: parts have one length, so an incomplete one waits for [`Draft::publish`].
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_published {
            // If this fails, readers ignore the rest, and there is no one to report it to.
            let _ = self.directory.remove_file(&self.temporary);
        }
    }
}

/// Writes a whole file as a draft and publishes it.
pub(crate) fn replace(
    directory: &Directory,
    name: &str,
    bytes: &[u8],
) -> Result<Vec<Chunk>, Error> {
    let mut draft = Draft::create(directory, name)?;
    let written = draft.write_all(bytes);
    written.map_err(|err| Error::write(&draft.path(), err))?;
    draft.publish()
}
