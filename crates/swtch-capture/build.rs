//! Compiles the eBPF programs with clang and generates their Rust skeleton into `OUT_DIR`.

use std::env;
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    for header in ["kernel.h", "record.h", "share.h", "summary.h", "tree.h"] {
        println!("cargo:rerun-if-changed=src/bpf/{header}");
    }
    println!("cargo:rerun-if-env-changed=CLANG");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for object in ["swtch", "share"] {
        compile(object, &out);
    }
}

/// Compiles `src/bpf/OBJECT.bpf.c` and generates its skeleton `OBJECT.skel.rs`.
fn compile(object: &str, out: &Path) {
    let source = format!("src/bpf/{object}.bpf.c");
    println!("cargo:rerun-if-changed={source}");
    let arch = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => "x86",
        Ok("aarch64") => "arm64",
        other => panic!("swtch records on x86_64 and aarch64, not on {other:?}"),
    };
    let mut builder = SkeletonBuilder::new();
    if let Some(clang) = clang() {
        builder.clang(clang);
    }
    builder
        .source(&source)
        .clang_args([
            &format!("-D__TARGET_ARCH_{arch}"),
            "-mcpu=v3",
            "-Wall",
            "-Werror",
        ])
        .build_and_generate(out.join(format!("{object}.skel.rs")))
        .unwrap_or_else(|error| {
            panic!(
                "compiling {source} with clang failed: {error:#}\n\
                 swtch needs clang 12 or later with the BPF target: `make setup` installs it \
                 (Debian, Ubuntu: clang; Fedora: clang llvm), or set CLANG to its path"
            )
        });
}

/// `$CLANG`, else `clang`, else the newest `clang-N`: some releases install only that name.
fn clang() -> Option<PathBuf> {
    if let Some(chosen) = env::var_os("CLANG") {
        return Some(chosen.into());
    }
    let names = ["clang".to_owned()]
        .into_iter()
        .chain((12..30).rev().map(|n| format!("clang-{n}")));
    let path = env::var_os("PATH")?;
    names
        .flat_map(|name| env::split_paths(&path).map(move |dir| dir.join(&name)))
        .find(|candidate| candidate.is_file())
}
