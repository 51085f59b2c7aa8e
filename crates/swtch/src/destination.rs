//! Files that an answer goes to besides stdout: names checked before minutes are spent, further files
//! beside the one that was named.

use std::fs::{self, File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use tempfile::NamedTempFile;

use crate::plot::Picture;
use crate::text::escaped;

/// Refuses a file whose directory is not there.
///
/// # Errors
/// It is not.
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

/// Makes a file beside `path` that can be put in its place when it is whole. Its name is random and it
/// is made anew, so that nobody can have put a link there before.
///
/// # Errors
/// It cannot be made.
pub fn draft(path: &Path) -> Result<NamedTempFile> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let draft = tempfile::Builder::new()
        .prefix(&format!("{name}."))
        .suffix(".partial")
        // As other files that a person makes; the umask takes from it.
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(directory);
    draft.with_context(|| format!("cannot write {}", path.display()))
}

/// Writes a file whole or not at all. A link is followed; a device or FIFO is written as it stands.
///
/// # Errors
/// It cannot be written, and then an older file is still there.
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

/// `a/b.csv` with `curves`: `a/b-curves.csv`; with `b` or `b-curves`, which say it themselves: `a/b.csv`,
/// `a/b-curves.csv`.
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

/// Writes pictures: one to the file itself, several each to a file of its own beside it; and says which.
///
/// # Errors
/// One cannot be drawn or written.
pub fn write_pictures(pictures: &[Picture], path: &Path) -> Result<()> {
    for picture in pictures {
        let place = match pictures {
            [_] => path.to_owned(),
            _ => beside(path, &picture.name),
        };
        picture.write(&place)?;
        tell_written(&place);
    }
    Ok(())
}

/// Says that a file was written.
pub fn tell_written(path: &Path) {
    talk!("swtch: wrote {}", escaped(&path.to_string_lossy()));
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

    /// Whoever may write to the directory could put links at names that can be foreseen.
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
