//! A recording of which only the last part is kept: a ring of segments.
//!
//! ```text
//! NAME.swtch/
//!   meta.json, checksums.csv …   the trace; it has no rows before its end
//!   segments/00000017/           a recording of its own: records, command lines, paths of cgroups
//!   segments/00000018/           the one that is written
//!   dumps/WHEN.swtch/segments/   the same files under further names (hard links)
//! ```
//!
//! A segment that is complete (sealed) says so in its `meta.json`: it has the state `finished`, an end,
//! and counts of its time. It is not changed any more, so a dump needs no copy: the files have a
//! second name, and stay when the ring drops the first. A reader puts the records of all segments
//! one behind the other. Each begins with a record of every task that lives, since the ones that
//! named it may be gone.

use std::io;
use std::path::PathBuf;

use crate::checksums::CHECKSUMS;
use crate::directory::Directory;
use crate::error::Error;
use crate::meta::Meta;
use crate::trace::Trace;
use crate::writer::Writer;

/// Name of the directory of segments in a trace.
const SEGMENTS: &str = "segments";

/// Name of the directory of dumps in a trace.
const DUMPS: &str = "dumps";

/// The segments of one trace. They have numbers, which grow.
#[derive(Debug)]
pub struct Segments {
    dir: Directory,
}

impl Segments {
    /// Makes the place for segments in a trace.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`] if there is one; [`Error::Write`] when it cannot be made.
    pub fn create(trace: &Directory) -> Result<Self, Error> {
        let dir = trace.make_in(SEGMENTS)?;
        Ok(Self { dir })
    }

    /// Begins a segment, for records of version `wire`.
    ///
    /// # Errors
    ///
    /// As [`Writer::create_for_records`].
    pub fn begin(&self, number: u64, meta: &Meta, wire: u32) -> Result<Writer, Error> {
        Writer::create_for_records_in(&self.dir, &name_of(number), meta, wire)
    }

    /// Removes a segment. Dumps that hold it keep it.
    ///
    /// # Errors
    ///
    /// [`Error::Write`] when the system cannot remove it.
    pub fn remove(&self, number: u64) -> Result<(), Error> {
        let name = name_of(number);
        // Without its list it is none any more: whoever reads meanwhile, or after the recorder was killed, passes it over.
        let segment = self.dir.open_in(&name);
        let unlisted = segment.and_then(|segment| match segment.remove_file(CHECKSUMS) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        });
        let removed = unlisted.and_then(|()| self.dir.remove_in(&name));
        removed.map_err(|error| Error::write(&self.dir.path().join(name), error))
    }

    /// Makes a dump in `trace`: a trace of its own, called `name`, which has these segments. They
    /// are complete. Returns its path.
    ///
    /// # Errors
    ///
    /// [`Error::Exists`] when there is a dump of this name; [`Error::Write`] when there is no space
    /// for another directory. Then nothing of it is left.
    pub fn dump(
        &self,
        trace: &Directory,
        name: &str,
        numbers: &[u64],
        meta: &Meta,
    ) -> Result<PathBuf, Error> {
        let dumps = match trace.find_in(DUMPS)? {
            Some(dumps) => dumps,
            None => trace.make_in(DUMPS)?,
        };
        let writer = Writer::create_in(&dumps, name, meta)?;
        let path = writer.directory().path().to_owned();
        let linked = self.link(numbers, writer.directory());
        let dumped = linked.and_then(|()| writer.seal(meta));
        if dumped.is_err() {
            // The first error is the one to report.
            let _ = dumps.remove_in(name);
        }
        dumped.map(|()| path)
    }

    fn link(&self, numbers: &[u64], dump: &Directory) -> Result<(), Error> {
        let linked = Self::create(dump)?;
        for number in numbers {
            let name = name_of(*number);
            let to = linked.dir.make_in(&name)?;
            let from = self.dir.open_in(&name);
            let done = from.and_then(|from| from.link_files_to(&to));
            done.map_err(|error| Error::write(to.path(), error))?;
        }
        Ok(())
    }

    /// Removes a dump that [`Self::dump`] made in `trace`.
    ///
    /// # Errors
    ///
    /// [`Error::Write`] when the system cannot remove it.
    pub fn remove_dump(trace: &Directory, name: &str) -> Result<(), Error> {
        let removed = trace.open_in(DUMPS).and_then(|dumps| dumps.remove_in(name));
        removed.map_err(|error| Error::write(&trace.path().join(DUMPS).join(name), error))
    }
}

/// A dump in a trace that somebody else may be writing, found by what its recorder said. It is held by
/// descriptors: what is read and removed is this directory, whatever has its name by then.
#[derive(Debug)]
pub struct FoundDump {
    dumps: Directory,
    dump: Directory,
    name: String,
}

impl FoundDump {
    /// Opens the dump that has this path in `trace`, `dumps/NAME`. `owner` is the user who made it.
    ///
    /// # Errors
    ///
    /// [`Error::RefusedDump`] if the path is another one, or leads through a link or to a directory of
    /// somebody else; [`Error::Read`] when it cannot be opened.
    pub fn find(trace: &Directory, path: &str, owner: u32) -> Result<Self, Error> {
        let refused = |why: &str| Error::RefusedDump {
            trace: trace.path().to_owned(),
            path: path.to_owned(),
            why: why.to_owned(),
        };
        let name = path
            .strip_prefix(DUMPS)
            .and_then(|rest| rest.strip_prefix('/'));
        let name = name.filter(|name| !name.contains('/') && !matches!(*name, "" | "." | ".."));
        let name = name.ok_or_else(|| refused("it is no name in its directory dumps"))?;
        let open = |above: &Directory, name: &str| {
            let opened = above.open_in(name).map_err(|error| match error.kind() {
                // So a link is refused where a directory is wanted (open(2)).
                io::ErrorKind::NotADirectory => refused("a part of it is no directory"),
                _ => Error::read(&above.path().join(name), error),
            })?;
            let of = opened.owner();
            match of.map_err(|error| Error::read(opened.path(), error))? {
                of if of == owner => Ok(opened),
                of => Err(refused(&format!(
                    "{} belongs to user {of}, and the recorder is of user {owner}",
                    opened.path().display()
                ))),
            }
        };
        let dumps = open(trace, DUMPS)?;
        let dump = open(&dumps, name)?;
        Ok(Self {
            dumps,
            dump,
            name: name.to_owned(),
        })
    }

    /// Its directory.
    pub const fn directory(&self) -> &Directory {
        &self.dump
    }

    /// Removes it.
    ///
    /// # Errors
    ///
    /// [`Error::Write`] when the system cannot remove it.
    pub fn remove(self) -> Result<(), Error> {
        let emptied = self.dump.empty();
        let removed = emptied.and_then(|()| self.dumps.remove_empty(&self.name));
        removed.map_err(|error| Error::write(self.dump.path(), error))
    }
}

fn name_of(number: u64) -> String {
    format!("{number:08}")
}

/// The segments of a trace, in order; none if it is no ring. The recorder may go on meanwhile.
pub(crate) fn open_all(trace: &Directory) -> Result<Vec<Trace>, Error> {
    let Some(dir) = trace.find_in(SEGMENTS)? else {
        return Ok(Vec::new());
    };
    let failed = |error| Error::read(dir.path(), error);
    let mut names = dir.names().map_err(failed)?;
    // Of equal length, up to 99,999,999 of them.
    names.sort_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
    let newest = names.last().cloned();
    let mut segments = Vec::new();
    for name in names {
        let opened = match dir.open_in(&name) {
            Ok(segment) => Trace::open_segment_in(&segment),
            Err(error) => Err(Error::read(&dir.path().join(&name), error)),
        };
        match opened {
            Ok(segment) => segments.push(segment),
            // It was dropped since, or the recorder is about to make it.
            Err(_) if dir.find_in(&name)?.is_none() => {}
            Err(Error::NotATrace { .. }) if Some(&name) == newest.as_ref() => {}
            // It is being dropped, or the recorder was killed while it did that: the oldest go first.
            Err(Error::NotATrace { .. }) if segments.is_empty() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(segments)
}

/// Removes all segments, once they are no longer needed.
pub(crate) fn remove_all(trace: &Directory) -> Result<(), Error> {
    if trace.find_in(SEGMENTS)?.is_none() {
        return Ok(());
    }
    let removed = trace.remove_in(SEGMENTS);
    removed.map_err(|error| Error::write(&trace.path().join(SEGMENTS), error))
}
