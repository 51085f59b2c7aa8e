//! Verbs that the Python package answers: words are handed on as they are, and what is missing is named.

use std::fs;

use crate::recording::{TraceDir, stderr, stdout, swtch};

/// A package `swtch` that says what it was asked, and exits with 7.
fn package(dir: &TraceDir) -> std::path::PathBuf {
    let path = dir.dir().join("packages");
    fs::create_dir_all(path.join("swtch")).unwrap();
    fs::write(path.join("swtch/__init__.py"), "").unwrap();
    let main = "import os\n\
        def main(words, program):\n    \
            print(program, words, os.environ['SWTCH'], flush=True)\n    \
            return 7\n";
    fs::write(path.join("swtch/query.py"), main).unwrap();
    path
}

#[test]
fn words_options_and_the_exit_code_are_handed_on() {
    let dir = TraceDir::new();
    let output = swtch(["lake", "add", "--help", "it's \"x\"", "--", "-z"])
        .env("PYTHONPATH", package(&dir))
        .env_remove("SWTCH")
        .output()
        .unwrap();
    let said = stdout(&output);
    assert!(
        said.starts_with("swtch lake ['add', '--help', 'it\\'s \"x\"', '--', '-z'] /"),
        "{said}{}",
        stderr(&output)
    );
    assert_eq!(output.status.code(), Some(7));
}

/// The directory that the user is in may be anybody's.
#[test]
fn nothing_is_imported_from_the_working_directory() {
    let dir = TraceDir::new();
    let output = swtch(["lake", "query", "SELECT 1", "x.swtch"])
        .current_dir(package(&dir))
        .env_remove("PYTHONPATH")
        .output()
        .unwrap();
    assert_ne!(output.status.code(), Some(7), "{}", stdout(&output));
}

#[test]
fn a_package_or_python_that_is_missing_is_named() {
    let dir = TraceDir::new();
    let empty = dir.dir().join("empty");
    fs::create_dir_all(empty.join("swtch")).unwrap();
    fs::write(empty.join("swtch/__init__.py"), "").unwrap();
    let lacking = swtch(["lake", "fleet", "hosts"])
        .env("PYTHONPATH", &empty)
        .output()
        .unwrap();
    let said = stderr(&lacking);
    assert!(said.starts_with("error: Python ("), "{said}");
    assert!(
        said.contains("swtch.query") && said.contains("pip install swtch-*.whl"),
        "{said}"
    );
    assert_eq!(lacking.status.code(), Some(2));
    let none = swtch(["lake", "mcp"]).env("PATH", &empty).output().unwrap();
    let said = stderr(&none);
    assert!(said.contains("package python3"), "{said}");
    assert_eq!(none.status.code(), Some(2));
}
