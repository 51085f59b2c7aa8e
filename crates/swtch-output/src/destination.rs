//! Output files other than stdout: paths are checked before minutes are spent on an answer, files
//! are written whole or not at all, and further files get names beside the one that was given.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat, readlinkat};
use rustix::io::Errno;
use tempfile::NamedTempFile;

use crate::caller::{as_caller, user_of_files};
use crate::text::escaped;

/// Refuses a file whose directory does not exist.
///
/// # Errors
/// If the directory does not exist.
pub fn check_directory(path: &Path) -> Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() && !parent.is_dir() => {
            bail!(
                "cannot write {}: there is no such directory",
                path.display()
            )
        }
        _ => Ok(()),
    }
}

/// A file that is being written: it gets its name when it is whole. What is no regular file (a device,
/// a FIFO) is written directly, because renaming a file onto it would remove it.
///
/// It is made with the rights of the user who called `sudo`, if one did (see [`crate::caller`]).
#[derive(Debug)]
pub enum Destination {
    /// A temporary file beside the place where it goes.
    Draft(NamedTempFile, PathBuf),
    /// The device or FIFO.
    Direct(File),
}

impl Destination {
    /// Opens what `path` leads to. A link is followed, unless it is of another user.
    ///
    /// # Errors
    /// If the file cannot be made there.
    pub fn open(path: &Path) -> Result<Self> {
        as_caller(|| Self::open_with_own_rights(path))
    }

    /// As [`Self::open`], for a place that no other user has named.
    fn open_with_own_rights(path: &Path) -> Result<Self> {
        let shown = || format!("cannot write {}", path.display());
        let place = link_target(path).with_context(shown)?;
        match fs::symlink_metadata(&place) {
            Ok(found) if found.is_dir() => bail!("{}: it is a directory", shown()),
            Ok(found) if !found.is_file() => Ok(Self::Direct(device(&place).with_context(shown)?)),
            _ => Ok(Self::Draft(draft(&place).with_context(shown)?, place)),
        }
    }

    /// Waits until the file is on the disk, and gives it its name.
    ///
    /// # Errors
    /// If the system refuses. There is no new file then, and an older one is still there.
    pub fn finish(self) -> Result<()> {
        as_caller(|| self.finish_with_own_rights())
    }

    fn finish_with_own_rights(self) -> Result<()> {
        if let Self::Draft(draft, place) = self {
            draft.as_file().sync_all()?;
            draft.persist(&place).map_err(|refused| refused.error)?;
        }
        Ok(())
    }
}

impl Write for Destination {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Draft(draft, _) => draft.as_file_mut().write(bytes),
            Self::Direct(file) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Draft(draft, _) => draft.as_file_mut().flush(),
            Self::Direct(file) => file.flush(),
        }
    }
}

/// Opens a device or FIFO to write to it.
fn device(place: &Path) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(openat(CWD, place, flags, Mode::empty())?);
    if file.metadata()?.is_file() {
        // Somebody put it there since: its beginning must not be written over.
        Err(io::Error::other("another file has taken its place"))
    } else {
        Ok(file)
    }
}

/// Creates a temporary file beside `path`, to be renamed over it when it is complete. Its name is
/// random and it is created with `O_EXCL`, so that nobody can have put a link there before.
fn draft(path: &Path) -> io::Result<NamedTempFile> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    tempfile::Builder::new()
        .prefix(&format!("{name}."))
        .suffix(".partial")
        // The mode of ordinary new files; the umask is applied to it.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(directory_of(path))
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Follows a chain of links to its end. Each link is held by its descriptor while it is judged and read.
///
/// # Errors
/// If one of the links is neither root's nor of the user with whose rights this thread makes files:
/// it was put there so that somebody else's file is replaced.
fn link_target(path: &Path) -> io::Result<PathBuf> {
    let mut place = path.to_owned();
    for _ in 0..MOST_LINKS {
        let handle = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(found) = openat(CWD, &place, handle, Mode::empty()) else {
            return Ok(place);
        };
        let facts = fstat(&found)?;
        if FileType::from_raw_mode(facts.st_mode) != FileType::Symlink {
            return Ok(place);
        }
        if facts.st_uid != 0 && facts.st_uid != user_of_files().as_raw() {
            let shown = place.display();
            let what = format!(
                "{shown} is a link of user {}, and is not followed",
                facts.st_uid
            );
            return Err(io::Error::other(what));
        }
        let target = readlinkat(&found, c"", Vec::new())?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        place = directory_of(&place).join(target);
    }
    Err(Errno::LOOP.into())
}

/// Links that are followed, one behind the other: as many as the kernel follows (`MAXSYMLINKS`).
const MOST_LINKS: usize = 40;

/// Writes a file whole or not at all, as [`Destination`] says.
///
/// # Errors
/// If it cannot be written. An older file is still there then.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    as_caller(|| write_whole_with_own_rights(path, bytes))
}

/// As [`write_whole`], for a place that no other user has named.
///
/// # Errors
/// As [`write_whole`].
pub fn write_whole_with_own_rights(path: &Path, bytes: &[u8]) -> Result<()> {
    let shown = || format!("writing {}", path.display());
    let mut place = Destination::open_with_own_rights(path)?;
    place.write_all(bytes).with_context(shown)?;
    place.finish_with_own_rights().with_context(shown)
}

/// The path of a further file: `a/b.csv` with `curves` gives `a/b-curves.csv`. If `what` begins
/// with the stem, it is not repeated: `b` gives `a/b.csv`, and `b-curves` gives `a/b-curves.csv`.
pub fn beside(path: &Path, what: &str) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let what = match what.strip_prefix(&*stem) {
        Some("") => return path.to_owned(),
        Some(rest) => rest.strip_prefix('-').unwrap_or(what),
        None => what,
    };
    let ending = path.extension().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{stem}-{what}.{ending}"))
}

/// Reports on stderr that a file was written.
pub fn tell_written(path: &Path) {
    crate::message!("swtch: wrote {}", escaped(&path.to_string_lossy()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_files_are_named_after_the_first() {
        let path = |what| beside(Path::new("a/b.csv"), what);
        assert_eq!(path("b"), Path::new("a/b.csv"));
        assert_eq!(path("b-curves"), Path::new("a/b-curves.csv"));
        let path = path("curves");
        assert_eq!(path, Path::new("a/b-curves.csv"));
    }

    /// Anybody who may write to the directory could put links at names that can be foreseen.
    #[test]
    fn a_file_is_replaced_whole_and_through_no_name_that_can_be_foreseen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("q.json");
        let drafts: Vec<_> = (0..2).map(|_| draft(&path).unwrap()).collect();
        assert_ne!(drafts[0].path(), drafts[1].path());
        drop(drafts);
        write_whole(&path, b"one").unwrap();
        let link = dir.path().join("link.json");
        std::os::unix::fs::symlink("q.json", &link).unwrap();
        write_whole(&link, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert!(link.is_symlink(), "the link stays");
        assert!(write_whole(dir.path(), b"three").is_err());
        assert!(write_whole(Path::new("/dev/full"), b"four").is_err());
        assert_eq!(
            dir.path().read_dir().unwrap().count(),
            2,
            "nothing else is left"
        );
    }

    #[test]
    fn a_directory_that_is_not_there_is_found_before_it_is_needed() {
        assert!(check_directory(Path::new("here.json")).is_ok());
        let refusal = check_directory(Path::new("/no/such/place/a.json")).unwrap_err();
        assert!(refusal.to_string().contains("no such directory"));
    }
}
