//! Several files as one input, so that a trace that failed can be kept as one file.
//!
//! Each file is stored as a line `NAME LENGTH`, its bytes, and a newline.

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Archive {
    pub files: Vec<(String, Vec<u8>)>,
}

impl Archive {
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (name, file) in &self.files {
            bytes.extend(format!("{name} {}\n", file.len()).as_bytes());
            bytes.extend(file);
            bytes.push(b'\n');
        }
        bytes
    }

    /// Reads what [`Self::to_bytes`] wrote.
    ///
    /// # Panics
    /// When the bytes are not an archive: only this module writes them.
    pub fn from_bytes(mut bytes: &[u8]) -> Self {
        let mut archive = Self::default();
        while !bytes.is_empty() {
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let (line, rest) = bytes.split_at(end.expect("every file has a line before it"));
            let line = std::str::from_utf8(line).expect("names are ASCII");
            let (name, length) = line.split_once(' ').expect("a name and a length");
            let length: usize = length.parse().expect("a length");
            archive
                .files
                .push((name.to_owned(), rest[1..=length].to_vec()));
            bytes = &rest[length + 2..];
        }
        archive
    }
}

#[test]
fn files_come_back_as_they_went_in() {
    let files = [("a.json", &b"{}\n"[..]), ("empty", b""), ("b", b"\n\n")];
    let files = files.map(|(name, bytes)| (name.to_owned(), bytes.to_vec()));
    let archive = Archive {
        files: files.to_vec(),
    };
    assert_eq!(Archive::from_bytes(&archive.to_bytes()), archive);
}
