//! Files with symbols, found by the build ids that they share with the programs that they describe.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustc_hash::FxHashMap;

use crate::code_file::CodeIdentity;

/// Where distributions put debug information that is not in the file itself.
const SYSTEM_DIRECTORIES: [&str; 2] = ["/usr/lib/debug", "/lib/debug"];

/// The most files of a directory and those below it that are looked at.
const MOST_FILES: usize = 100_000;

/// How many directories deep files are looked for.
const DEEPEST: usize = 8;

/// Files with symbols, found by their build ids.
#[derive(Debug, Default)]
pub struct FilesById {
    /// Directories that have a directory `.build-id`, as distributions arrange them.
    roots: Vec<PathBuf>,
    listed: FxHashMap<String, PathBuf>,
}

impl FilesById {
    /// Those that the system's packages have brought.
    pub fn of_system() -> Self {
        Self {
            roots: SYSTEM_DIRECTORIES.map(PathBuf::from).to_vec(),
            ..Self::default()
        }
    }

    /// All files in a directory and below it.
    ///
    /// # Errors
    /// When it cannot be listed.
    pub fn in_directory(directory: &Path) -> io::Result<Self> {
        let mut files = Self {
            roots: vec![directory.to_owned()],
            ..Self::default()
        };
        // Directories further down that cannot be listed are passed over, but not the one that was asked for.
        fs::read_dir(directory)?;
        let mut below = vec![(directory.to_owned(), 0)];
        let mut looked_at = 0;
        while let Some((directory, depth)) = below.pop() {
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                let Ok(kind) = entry.file_type() else {
                    continue;
                };
                if kind.is_dir() && depth < DEEPEST {
                    below.push((entry.path(), depth + 1));
                } else if kind.is_file() && looked_at < MOST_FILES {
                    looked_at += 1;
                    files.add(entry.path());
                }
            }
        }
        Ok(files)
    }

    fn add(&mut self, path: PathBuf) {
        let identity = File::open(&path)
            .ok()
            .and_then(|file| CodeIdentity::of(&file));
        let Some(id) = identity.and_then(|identity| identity.build_id) else {
            return;
        };
        // A file of debug information alone says more than the stripped one that it belongs to.
        let is_debug = path.extension() == Some(OsStr::new("debug"));
        if is_debug || !self.listed.contains_key(&id) {
            self.listed.insert(id, path);
        }
    }

    /// Returns the file with this build id.
    pub fn path_of(&self, id: &str) -> Option<PathBuf> {
        if let Some(path) = self.listed.get(id) {
            return Some(path.clone());
        }
        // The id comes from a trace and becomes part of a path, so it may hold hexadecimal digits only.
        let is_id = id.bytes().all(|digit| digit.is_ascii_hexdigit());
        let (start, rest) = id.split_at_checked(2).filter(|_| is_id)?;
        let mut paths = self.roots.iter().map(|root| {
            root.join(".build-id")
                .join(start)
                .join(format!("{rest}.debug"))
        });
        paths.find(|path| path.is_file())
    }
}
