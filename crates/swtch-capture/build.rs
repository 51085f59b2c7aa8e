//! Takes the eBPF programs for the target's architecture and generates their Rust skeletons into `OUT_DIR`.
//!
//! In a clone they are compiled with clang. A packed crate brings them compiled, below `ebpf/`
//! (`scripts/dist.sh --crates` puts them there), so that it installs without clang; with `CLANG` set it
//! compiles them, too.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use libbpf_cargo::SkeletonBuilder;

/// The programs: `src/bpf/NAME.bpf.c`.
const PROGRAMS: [&str; 4] = ["swtch", "share", "spans", "contexts"];

fn main() {
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let packed = packed_objects();
    let origin = match &packed {
        Some(objects) => format!("packed: compiled by {}", objects.compiler),
        None => format!("compiled by {}", Clang::find().version()),
    };
    for program in PROGRAMS {
        let object = out.join(format!("{program}.bpf.o"));
        match &packed {
            Some(objects) => {
                let from = objects.directory.join(format!("{program}.bpf.o"));
                println!("cargo:rerun-if-changed={}", from.display());
                fs::copy(&from, &object)
                    .unwrap_or_else(|error| panic!("copying {}: {error}", from.display()));
            }
            None => compile(program, &object),
        }
        SkeletonBuilder::new()
            .obj(&object)
            .generate(out.join(format!("{program}.skel.rs")))
            .unwrap_or_else(|error| panic!("reading {}: {error:#}", object.display()));
    }
    println!("cargo:rustc-env=SWTCH_EBPF_ORIGIN={origin}");
    // Tests run this program again, elsewhere and for other architectures.
    let own = env::current_exe().expect("Linux tells a program its path");
    println!("cargo:rustc-env=SWTCH_EBPF_BUILDER={}", own.display());
}

/// Objects that came with the crate.
struct PackedObjects {
    directory: PathBuf,
    compiler: String,
}

/// The objects that came with the crate for this architecture; `None` in a clone, and when the
/// user names a clang.
fn packed_objects() -> Option<PackedObjects> {
    let packed = Path::new("ebpf");
    if env::var_os("CLANG").is_some() || !packed.exists() {
        return None;
    }
    let compiler = packed.join("compiler");
    let compiler = fs::read_to_string(&compiler)
        .unwrap_or_else(|error| panic!("reading {}: {error}", compiler.display()));
    Some(PackedObjects {
        directory: packed.join(architecture()),
        compiler: compiler.trim().to_owned(),
    })
}

/// The target's architecture, as libbpf's headers name it.
fn architecture() -> &'static str {
    match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => "x86",
        Ok("aarch64") => "arm64",
        other => panic!("swtch records on x86_64 and aarch64, not on {other:?}"),
    }
}

/// Compiles `src/bpf/PROGRAM.bpf.c`. The object is the same wherever the crate lies: the files and lines
/// that it quotes, for what the kernel's verifier says, are named from here. clang reads those lines
/// by that name, so it must lead to them.
fn compile(program: &str, object: &Path) {
    let source = format!("src/bpf/{program}.bpf.c");
    let root = env::current_dir().expect("cargo runs this in the crate");
    SkeletonBuilder::new()
        .clang(Clang::find().path)
        .source(&source)
        .obj(object)
        .clang_args([
            &format!("-D__TARGET_ARCH_{}", architecture()),
            &format!("-fdebug-prefix-map={}=.", root.display()),
            "-mcpu=v3",
            "-Wall",
            "-Werror",
        ])
        .build()
        .unwrap_or_else(|error| {
            panic!("compiling {source} with clang failed: {error:#}\n{NEEDED}")
        });
}

/// The advice for when there is no such clang.
const NEEDED: &str = "swtch needs clang 12 or later with the BPF target: `make setup` installs it \
    (Debian, Ubuntu: clang; Fedora: clang llvm), or set CLANG to its path";

struct Clang {
    path: PathBuf,
}

impl Clang {
    /// `$CLANG`, else `clang`, else the newest `clang-N`: some releases install only that name.
    fn find() -> Self {
        if let Some(path) = env::var_os("CLANG") {
            return Self { path: path.into() };
        }
        let names = ["clang".to_owned()]
            .into_iter()
            .chain((12..30).rev().map(|n| format!("clang-{n}")));
        let search = env::var_os("PATH").unwrap_or_default();
        let path = names
            .flat_map(|name| env::split_paths(&search).map(move |dir| dir.join(&name)))
            .find(|candidate| candidate.is_file())
            .unwrap_or_else(|| panic!("there is no clang in PATH.\n{NEEDED}"));
        Self { path }
    }

    /// Its name and version: `clang 14.0.6`.
    fn version(&self) -> String {
        let output = Command::new(&self.path)
            .arg("-dumpversion")
            .output()
            .unwrap_or_else(|error| panic!("running {}: {error}\n{NEEDED}", self.path.display()));
        format!("clang {}", String::from_utf8_lossy(&output.stdout).trim())
    }
}
