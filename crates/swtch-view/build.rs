//! Embeds the page of the viewer.

use std::env;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    embed_page();
}

/// Writes the list of the viewer's files into the program's source: those that `make web` has
/// built, or none. A tree without Node.js builds, too.
fn embed_page() {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    // A packed crate has it in a folder of its own.
    let folders = [root.join("page"), root.join("../../web/dist")];
    let dist = folders
        .iter()
        .find_map(|folder| folder.canonicalize().ok())
        .unwrap_or_else(|| panic!("the page is in none of {folders:?}"));
    println!("cargo:rerun-if-changed={}", dist.display());
    let mut paths = Vec::new();
    collect_files(&dist, &mut paths);
    paths.retain(|path| path.file_name() != Some("README.md".as_ref()));
    paths.sort();
    let mut list = String::from("const ASSETS: &[Asset] = &[\n");
    for path in paths {
        let name = path.strip_prefix(&dist).expect("found below it");
        let (name, path) = (name.display().to_string(), path.display().to_string());
        writeln!(
            list,
            "    Asset {{ path: {name:?}, bytes: include_bytes!({path:?}) }},"
        )
        .expect("a string takes all");
    }
    list.push_str("];\n");
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    fs::write(out.join("web_assets.rs"), list).expect("cargo's own folder can be written");
}

fn collect_files(folder: &Path, paths: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        match entry.path() {
            path if path.is_dir() => collect_files(&path, paths),
            path => paths.push(path),
        }
    }
}
