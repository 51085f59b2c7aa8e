//! Files that an answer goes to besides stdout: names checked before minutes are spent, further files
//! beside the one that was named.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use crate::plot::Picture;

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

/// Writes pictures: one to the file itself, several each to a file of its own beside it.
///
/// # Errors
/// One cannot be drawn or written.
pub fn write_pictures(pictures: &[Picture], path: &Path) -> Result<()> {
    if let [picture] = pictures {
        return picture.write(path);
    }
    pictures
        .iter()
        .try_for_each(|picture| picture.write(&beside(path, &picture.name)))
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

    #[test]
    fn a_directory_that_is_not_there_is_found_before_it_is_needed() {
        assert!(check_directory(Path::new("here.json")).is_ok());
        let refusal = check_directory(Path::new("/no/such/place/a.json")).unwrap_err();
        assert!(refusal.to_string().contains("no such directory"));
    }
}
