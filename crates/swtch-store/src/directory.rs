//! The directory of a trace, held by its descriptor.
//!
//! The path is used once, when the directory is created or opened. From then on each file is
//! reached through the descriptor. So a recorder that has dropped its privileges still reaches its
//! trace in a home directory that is closed to all other users. If the directory is moved away and
//! replaced while it is recorded, the recorder goes on writing into it and does not touch the new
//! one.
//!
//! A trace holds addresses of the kernel and the names of other users' processes, so its directory
//! has mode 0700 and its files 0600, as `perf.data` has.

use std::ffi::{CStr, CString, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags};

use crate::error::Error;
use crate::input;

/// Mode of the directory of a trace.
const DIRECTORY_MODE: Mode = Mode::RWXU;

/// Mode of the files of a trace.
const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

/// The directory of a trace. Clones share the descriptor.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
    descriptor: Arc<OwnedFd>,
    /// Absolute path when the directory was created; `None` without `/proc`, and for a directory
    /// that is only read.
    made_at: Option<PathBuf>,
    /// The directory above and the name in it, of one that was made by its path.
    above: Option<(Arc<OwnedFd>, OsString)>,
}

/// The state of a trace's directory: whether it is still where it was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DirectoryState {
    /// It is where it was created, as far as can be seen.
    InPlace,
    /// The directory, or one above it, was renamed; this is its path now.
    Moved(PathBuf),
    /// The directory was removed, so its files have no names any more.
    Removed,
}

impl Directory {
    /// Creates an empty directory with mode 0700.
    ///
    /// # Errors
    /// [`Error::Exists`] when the path is taken, [`Error::Write`] when it cannot be created.
    pub(crate) fn make(path: &Path) -> Result<Self, Error> {
        let Some(name) = path.file_name() else {
            // The root, or `..`.
            return Err(Error::Exists {
                path: path.to_owned(),
            });
        };
        let above = match path.parent() {
            Some(above) if !above.as_os_str().is_empty() => above,
            _ => Path::new("."),
        };
        let above = Self::open(above).map_err(|error| Error::write(path, error))?;
        let mut made = Self::make_at(&above, Path::new(name), path)?;
        made.made_at = made.current_path();
        made.above = Some((above.descriptor, name.to_owned()));
        Ok(made)
    }

    /// As [`Self::make`], in this directory.
    pub(crate) fn make_in(&self, name: &str) -> Result<Self, Error> {
        Self::make_at(self, Path::new(name), &self.path.join(name))
    }

    fn make_at(above: impl AsFd + Copy, name: &Path, path: &Path) -> Result<Self, Error> {
        rustix::fs::mkdirat(above, name, DIRECTORY_MODE).map_err(|error| match error {
            rustix::io::Errno::EXIST => Error::Exists {
                path: path.to_owned(),
            },
            _ => Error::write(path, error.into()),
        })?;
        Self::open_made(above, name, path).map_err(|error| Error::write(path, error))
    }

    /// Opens the directory that was just created at `name`, seen from `above`. A user who may write
    /// to the directory above can have replaced it meanwhile: a link is refused, and so is a
    /// directory that belongs to another user or is not empty.
    fn open_made(above: impl AsFd, name: &Path, path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW;
        let made = Self::open_at(above, name, path, flags)?;
        let is_empty = made.names_in_it()?.is_empty();
        if !is_empty || made.owner()? != user_of_files()? {
            return Err(io::Error::other(
                "somebody replaced the directory while it was made",
            ));
        }
        Ok(made)
    }

    /// Opens the directory of a trace to read it.
    ///
    /// # Errors
    /// Those of the system.
    pub fn open(path: &Path) -> io::Result<Self> {
        // To read files in it, a user need not be allowed to list them.
        Self::open_at(CWD, path, path, OFlags::PATH)
    }

    /// Opens a directory in this one, to list it, too; a link is refused.
    pub(crate) fn open_in(&self, name: &str) -> io::Result<Self> {
        let path = self.path.join(name);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW;
        Self::open_at(self, Path::new(name), &path, flags)
    }

    /// As [`Self::open_in`]; `None` if there is no such name.
    pub(crate) fn find_in(&self, name: &str) -> Result<Option<Self>, Error> {
        match self.open_in(name) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::read(&self.path.join(name), error)),
        }
    }

    fn open_at(above: impl AsFd, name: &Path, path: &Path, flags: OFlags) -> io::Result<Self> {
        let flags = flags | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self {
            path: path.to_owned(),
            descriptor: Arc::new(rustix::fs::openat(above, name, flags, Mode::empty())?),
            made_at: None,
            above: None,
        })
    }

    /// The user to whom it belongs.
    pub(crate) fn owner(&self) -> io::Result<u32> {
        Ok(rustix::fs::fstat(self)?.st_uid)
    }

    /// Names of what is in it, in no order.
    pub(crate) fn names(&self) -> io::Result<Vec<String>> {
        let names = self.names_in_it()?;
        let text = |name: &CString| name.to_string_lossy().into_owned();
        Ok(names.iter().map(text).collect())
    }

    fn names_in_it(&self) -> io::Result<Vec<CString>> {
        let mut found = Vec::new();
        let mut names = Dir::read_from(self)?;
        while let Some(entry) = names.read() {
            let entry = entry?;
            if ![c".", c".."].contains(&entry.file_name()) {
                found.push(entry.file_name().to_owned());
            }
        }
        Ok(found)
    }

    /// Gives its files the same names in another directory of this file system, too.
    pub(crate) fn link_files_to(&self, other: &Self) -> io::Result<()> {
        for name in self.names_in_it()? {
            rustix::fs::linkat(self, &*name, other, &*name, AtFlags::empty())?;
        }
        Ok(())
    }

    /// Removes a directory in this one, with all that is in it.
    pub(crate) fn remove_in(&self, name: &str) -> io::Result<()> {
        self.open_in(name)?.empty()?;
        self.remove_empty(name)
    }

    /// Removes all that is in this directory, by its descriptor: no link is followed, and a directory
    /// that is moved away meanwhile stays the one that is emptied.
    pub(crate) fn empty(&self) -> io::Result<()> {
        for name in self.names_in_it()? {
            self.remove_whatever(&name)?;
        }
        Ok(())
    }

    fn remove_whatever(&self, name: &CStr) -> io::Result<()> {
        match rustix::fs::unlinkat(self, name, AtFlags::empty()) {
            // Linux says so of a directory (unlink(2)).
            Err(rustix::io::Errno::ISDIR) => {}
            removed => return Ok(removed?),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let inner = Self {
            path: PathBuf::new(),
            descriptor: Arc::new(rustix::fs::openat(self, name, flags, Mode::empty())?),
            made_at: None,
            above: None,
        };
        inner.empty()?;
        Ok(rustix::fs::unlinkat(self, name, AtFlags::REMOVEDIR)?)
    }

    /// Removes an empty directory in this one.
    pub(crate) fn remove_empty(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(self, name, AtFlags::REMOVEDIR)?)
    }

    /// The path by which it was created or opened. It may have been moved since.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a name in it, however long its own path is and wherever it was moved to. It leads
    /// there in this process only.
    pub fn path_through_proc(&self, name: &str) -> PathBuf {
        let descriptor = self.descriptor.as_raw_fd();
        PathBuf::from(format!("/proc/self/fd/{descriptor}/{name}"))
    }

    /// Finds out whether the directory is still where it was created.
    pub fn state(&self) -> DirectoryState {
        let removed = rustix::fs::fstat(self).is_ok_and(|stat| stat.st_nlink == 0);
        if removed {
            return DirectoryState::Removed;
        }
        match (&self.made_at, self.current_path()) {
            (Some(made_at), Some(now)) if *made_at != now => DirectoryState::Moved(now),
            _ => DirectoryState::InPlace,
        }
    }

    /// Absolute path as the kernel knows it; `None` without `/proc`.
    fn current_path(&self) -> Option<PathBuf> {
        let link = format!("/proc/self/fd/{}", self.descriptor.as_raw_fd());
        std::fs::read_link(link).ok()
    }

    /// Creates a file with mode 0600. A file or link of this name is an error.
    pub(crate) fn create_file(&self, name: &str) -> io::Result<File> {
        let new = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let flags = OFlags::RDWR | new | OFlags::CLOEXEC;
        let file = rustix::fs::openat(self, name, flags, FILE_MODE)?;
        Ok(File::from(file))
    }

    /// Opens a file for appending to it.
    pub(crate) fn append_to_file(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(self, name, flags, Mode::empty())?;
        Ok(File::from(file))
    }

    /// Opens a regular file for reading, as [`input::open`] does.
    pub(crate) fn open_file(&self, name: &str) -> io::Result<File> {
        let never_waiting = OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = OFlags::RDONLY | never_waiting | OFlags::CLOEXEC;
        let file = rustix::fs::openat(self, name, flags, Mode::empty())?;
        input::regular(File::from(file))
    }

    /// Reads all of a regular file that has at most `most_bytes`, as [`input::read`] does.
    pub(crate) fn read_file(&self, name: &str, most_bytes: u64) -> io::Result<Vec<u8>> {
        input::read_opened(self.open_file(name)?, most_bytes)
    }

    /// Renames a file, replacing an older one if there is one.
    pub(crate) fn rename_file(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(self, from, self, to)?)
    }

    pub(crate) fn remove_file(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(self, name, AtFlags::empty())?)
    }

    /// Makes the names in the directory survive a power cut.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        let synced = rustix::fs::fsync(self);
        synced.map_err(|error| Error::write(&self.path, error.into()))
    }

    /// Removes what is in it, and then the directory where it was created. Another one that has its
    /// name by now is left alone unless it is empty.
    ///
    /// # Errors
    /// Those of the system.
    pub fn remove(&self) -> io::Result<()> {
        self.empty()?;
        match &self.above {
            Some((above, name)) => Ok(rustix::fs::unlinkat(above, name, AtFlags::REMOVEDIR)?),
            None => Err(io::Error::other("it was not made by its path")),
        }
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// The user to whom files belong that this thread makes, with whose rights it makes them: the owner of
/// a new pipe. No call asks for that user but setfsuid(2), which a recorder is refused.
fn user_of_files() -> io::Result<u32> {
    let (pipe, _) = io::pipe()?;
    Ok(rustix::fs::fstat(pipe)?.st_uid)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn open_made(path: &Path) -> io::Result<Directory> {
        Directory::open_made(CWD, path, path)
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn nobody_else_may_read_what_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.swtch");
        let made = Directory::make(&path).unwrap();
        made.create_file("a").unwrap();
        assert_eq!((mode(&path), mode(&path.join("a"))), (0o700, 0o600));
    }

    /// Another user who may write to the directory could have put a link there.
    #[test]
    fn a_file_is_never_made_through_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.swtch");
        let made = Directory::make(&path).unwrap();
        let victim = dir.path().join("victim");
        std::fs::write(&victim, "mine").unwrap();
        symlink(&victim, path.join("a")).unwrap();
        assert!(made.create_file("a").is_err());
        assert!(made.append_to_file("a").is_err());
        assert_eq!(std::fs::read_to_string(victim).unwrap(), "mine");
    }

    #[test]
    fn a_directory_that_holds_something_or_is_a_link_is_not_the_one_that_was_made() {
        let dir = tempfile::tempdir().unwrap();
        let (full, link) = (dir.path().join("full"), dir.path().join("link"));
        std::fs::create_dir(&full).unwrap();
        assert!(open_made(&full).is_ok());
        std::fs::write(full.join("a"), "").unwrap();
        assert!(open_made(&full).is_err());
        std::fs::create_dir(dir.path().join("empty")).unwrap();
        symlink("empty", &link).unwrap();
        assert!(open_made(&link).is_err());
    }

    /// The directory that has its name by then belongs to another user.
    #[test]
    fn what_is_moved_is_written_where_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let (path, away) = (dir.path().join("t.swtch"), dir.path().join("away.swtch"));
        let made = Directory::make(&path).unwrap();
        assert_eq!(made.state(), DirectoryState::InPlace);
        std::fs::rename(&path, &away).unwrap();
        std::fs::create_dir(&path).unwrap();
        let resolved = away.canonicalize().unwrap();
        assert_eq!(made.state(), DirectoryState::Moved(resolved));
        made.create_file("a").unwrap().write_all(b"1").unwrap();
        assert!(away.join("a").exists() && !path.join("a").exists());
        std::fs::remove_dir_all(&away).unwrap();
        assert_eq!(made.state(), DirectoryState::Removed);
    }
}
