//! `xtask check`: what the docs promise about the source tree is true.
//!
//! There are five checks, each a pure function from text to a list of complaints, applied here to
//! the real tree. What clippy can check (`unwrap`, printing in libraries) is left to clippy.

mod dependencies;
mod layers;
mod links;
mod named_paths;
mod type_names;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// The folders of the workspaces: the recorder with what goes with it, and the user-mode scheduler.
pub const WORKSPACES: [&str; 2] = [".", "fiber"];

/// Runs all checks, prints every complaint, and returns exit code 1 if there is one.
///
/// # Errors
/// When the tree cannot be read or cargo cannot describe it.
pub fn run() -> Result<ExitCode> {
    let root = root();
    let checks = [
        ("layers", check_layers(&root)?),
        ("names in the docs", check_docs(&root)?),
        ("links in the docs", check_links(&root)?),
        ("type names", check_type_names(&root)?),
        ("dependencies", check_dependencies(&root)?),
    ];
    let mut holds = true;
    for (name, complaints) in checks {
        if complaints.is_empty() {
            println!("{name}: good");
        }
        for complaint in complaints {
            holds = false;
            println!("{name}: {complaint}");
        }
    }
    Ok(if holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(1)
    })
}

/// The root of the workspace: the directory above this package.
pub fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package
        .parent()
        .expect("xtask lies inside the workspace")
        .to_owned()
}

fn check_layers(root: &Path) -> Result<Vec<String>> {
    let page = read(&root.join("ARCHITECTURE.md"))?;
    let metadata = WORKSPACES.map(|folder| cargo_metadata(&root.join(folder), &["--no-deps"]));
    let metadata = metadata.into_iter().collect::<Result<Vec<_>>>()?;
    Ok(layers::complaints(
        &layers::allowed(&page)?,
        &layers::found(&metadata)?,
    ))
}

fn check_docs(root: &Path) -> Result<Vec<String>> {
    let tree = named_paths::TreePaths::read(root)?;
    let targets = named_paths::make_targets(&read(&root.join("Makefile"))?);
    let mut complaints = Vec::new();
    for page in tree.pages() {
        let text = read(&root.join(page))?;
        complaints.extend(named_paths::complaints(page, &text, &tree, &targets));
    }
    Ok(complaints)
}

fn check_links(root: &Path) -> Result<Vec<String>> {
    let tree = named_paths::TreePaths::read(root)?;
    let with_text = |page| Ok((page, read(&root.join(page))?));
    let pages: Vec<(&str, String)> = tree.pages().map(with_text).collect::<Result<_>>()?;
    let mut complaints = links::complaints(&pages, &tree);
    complaints.extend(links::unlisted(&pages));
    Ok(complaints)
}

fn check_type_names(root: &Path) -> Result<Vec<String>> {
    let tree = named_paths::TreePaths::read(root)?;
    let with_text = |path| Ok((path, read(&root.join(path))?));
    let files: Vec<(&str, String)> = tree.sources().map(with_text).collect::<Result<_>>()?;
    let files = files.iter().map(|(path, text)| (*path, text.as_str()));
    Ok(type_names::complaints(files))
}

fn check_dependencies(root: &Path) -> Result<Vec<String>> {
    let mut declared = dependencies::declared(&read(&root.join("Cargo.toml"))?)?;
    let fiber = read(&root.join("fiber/swtch-fiber/Cargo.toml"))?;
    declared.extend(dependencies::declared(&fiber)?);
    let argued_for = dependencies::argued_for(&read(&root.join("docs/DEPENDENCIES.md"))?);
    Ok(dependencies::complaints(&declared, &argued_for))
}

fn cargo_metadata(root: &Path, options: &[&str]) -> Result<Value> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(root)
        .args(["metadata", "--format-version", "1", "--locked"])
        .args(options)
        .output()
        .context("starting cargo metadata")?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo metadata failed: {stderr}");
    serde_json::from_slice(&output.stdout).context("reading the answer of cargo metadata")
}

/// Returns where cargo builds (`CARGO_TARGET_DIR` and cargo's configuration may move it).
///
/// # Errors
/// When cargo cannot describe the tree.
pub fn target_dir(root: &Path) -> Result<PathBuf> {
    let metadata = cargo_metadata(root, &["--no-deps"])?;
    let folder = metadata["target_directory"].as_str();
    Ok(folder.context("cargo names no build folder")?.into())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}
