//! The compiled eBPF programs: the same bytes wherever the crate lies, and no clang for a crate that
//! brings them. The build script is run again here as cargo runs it, in copies of its sources.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// The build script, and what it made of this tree.
const BUILDER: &str = env!("SWTCH_EBPF_BUILDER");
const BUILT: &str = env!("OUT_DIR");

const OBJECTS: [&str; 4] = [
    "swtch.bpf.o",
    "share.bpf.o",
    "spans.bpf.o",
    "contexts.bpf.o",
];

/// A copy of what the build script reads, somewhere else.
struct Copy {
    place: TempDir,
}

impl Copy {
    fn new() -> Self {
        let place = tempfile::tempdir().expect("a temporary directory");
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bpf");
        let copies = place.path().join("src/bpf");
        fs::create_dir_all(&copies).expect("room for the sources");
        fs::create_dir(place.path().join("out")).expect("room for objects");
        for source in fs::read_dir(sources).expect("the sources") {
            let source = source.expect("a source").path();
            let name = source.file_name().expect("listed by its name");
            fs::copy(&source, copies.join(name)).expect("a copy of a source");
        }
        Self { place }
    }

    fn out(&self) -> PathBuf {
        self.place.path().join("out")
    }

    /// Puts the objects of this tree into the copy, as a packed crate has them.
    fn pack(&self) {
        let objects = match std::env::consts::ARCH {
            "x86_64" => "ebpf/x86",
            _ => "ebpf/arm64",
        };
        let objects = self.place.path().join(objects);
        fs::create_dir_all(&objects).expect("room for objects");
        for object in OBJECTS {
            fs::copy(Path::new(BUILT).join(object), objects.join(object)).expect("a copy");
        }
        fs::write(self.place.path().join("ebpf/compiler"), "clang 0\n").expect("a file");
    }

    fn build_for(&self, architecture: &str) -> Command {
        let mut command = Command::new(BUILDER);
        command
            .current_dir(self.place.path())
            .env("OUT_DIR", self.out())
            .env("CARGO_CFG_TARGET_ARCH", architecture);
        command
    }

    /// Runs the build script where no program is found.
    fn build_without_clang(&self) -> Output {
        self.build_for(std::env::consts::ARCH)
            .env_remove("CLANG")
            .env("PATH", "/nonexistent")
            .output()
            .expect("the build script starts")
    }
}

#[track_caller]
fn assert_built(output: &Output) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[track_caller]
fn assert_same_objects(left: &Path, right: &Path) {
    for object in OBJECTS {
        let (left, right) = (left.join(object), right.join(object));
        let read = |path| fs::read(path).expect("an object");
        let same = read(&left) == read(&right);
        assert!(same, "{} and {} differ", left.display(), right.display());
    }
}

/// The packed objects can be compared with their sources only if the place of the sources is not in them.
#[test]
fn objects_are_the_same_wherever_they_are_compiled() {
    for architecture in ["x86_64", "aarch64"] {
        let (one, other) = (Copy::new(), Copy::new());
        for copy in [&one, &other] {
            assert_built(&copy.build_for(architecture).output().unwrap());
        }
        assert_same_objects(&one.out(), &other.out());
        if architecture == std::env::consts::ARCH {
            assert_same_objects(&one.out(), Path::new(BUILT));
        }
    }
}

/// The kernel's verifier quotes the source beside each instruction.
#[test]
fn objects_quote_their_source() {
    let object = fs::read(Path::new(BUILT).join("share.bpf.o")).unwrap();
    let quotes = |text: &str| {
        object
            .windows(text.len())
            .any(|part| part == text.as_bytes())
    };
    assert!(quotes("./src/bpf/share.bpf.c"));
    assert!(quotes("s->start_ns = bpf_ktime_get_ns();"));
    assert!(!quotes(env!("CARGO_MANIFEST_DIR")));
}

#[test]
fn a_packed_crate_needs_no_clang() {
    let copy = Copy::new();
    copy.pack();
    let output = copy.build_without_clang();
    assert_built(&output);
    assert_same_objects(&copy.out(), Path::new(BUILT));
    assert!(copy.out().join("swtch.skel.rs").exists());
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains("SWTCH_EBPF_ORIGIN=packed: compiled by clang 0"),
        "{said}"
    );
}

#[test]
fn a_clone_without_clang_says_what_to_install() {
    let output = Copy::new().build_without_clang();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("there is no clang in PATH"), "{said}");
    assert!(said.contains("make setup"), "{said}");
}

/// Whoever names a clang wants it used.
#[test]
fn a_packed_crate_is_compiled_by_the_clang_that_is_named() {
    let copy = Copy::new();
    copy.pack();
    let output = copy
        .build_for(std::env::consts::ARCH)
        .env("CLANG", OsStr::new("/nonexistent/clang"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(said.contains("/nonexistent/clang"), "{said}");
}
