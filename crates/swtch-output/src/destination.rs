//! Output files other than stdout: paths are checked before minutes are spent on an answer, files
//! are written whole or not at all, and further files get names beside the one that was given.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use tempfile::NamedTempFile;

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

/// Creates a temporary file beside `path`, to be renamed over it when it is complete. Its name is
/// random and it is created with `O_EXCL`, so that nobody can have put a link there before.
///
/// # Errors
/// If it cannot be created.
pub fn draft(path: &Path) -> Result<NamedTempFile> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let draft = tempfile::Builder::new()
        .prefix(&format!("{name}."))
        .suffix(".partial")
        // The mode of ordinary new files; the umask is applied to it.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(directory);
    draft.with_context(|| format!("cannot write {}", path.display()))
}

/// Writes a file whole or not at all. A link is followed; a device or FIFO is written directly.
///
/// # Errors
/// If it cannot be written. An older file is still there then.
pub fn write_whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let shown = || format!("writing {}", path.display());
    let found = fs::metadata(path);
    if found
        .as_ref()
        .is_ok_and(|found| !found.is_file() && !found.is_dir())
    {
        let file = File::options().write(true).open(path);
        return file
            .and_then(|mut file| file.write_all(bytes))
            .with_context(shown);
    }
    let place = match found {
        Ok(_) => fs::canonicalize(path).with_context(shown)?,
        Err(_) => path.to_owned(),
    };
    let mut draft = draft(&place)?;
    draft.write_all(bytes).with_context(shown)?;
    draft.as_file().sync_all().with_context(shown)?;
    draft
        .persist(&place)
        .map_err(|refused| refused.error)
        .with_context(shown)?;
    Ok(())
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
