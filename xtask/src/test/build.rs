//! Compiles all tests, and reads from cargo which programs it made.
//!
//! Where `RUSTC_WORKSPACE_WRAPPER` is clippy's driver (as in `.ci/run`), the same compilation tells
//! clippy's lints, too, as warnings.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde_json::Value;

use super::TestProgram;
use crate::check::WORKSPACES;

/// The result of the compilation.
#[derive(Debug)]
pub struct Built {
    pub programs: Vec<TestProgram>,
    /// False when something does not compile; the other programs can be run all the same.
    pub complete: bool,
    /// Warnings in packages of the workspace.
    pub warnings: usize,
    /// The build folder.
    pub target_dir: PathBuf,
}

/// Compiles tests, examples and benchmarks of all packages, into one folder: what two workspaces need is
/// compiled once.
///
/// # Errors
/// When cargo cannot be started or says something that is no JSON.
pub fn build(root: &Path) -> Result<Built> {
    let mut built = Built {
        programs: Vec::new(),
        complete: true,
        warnings: 0,
        target_dir: crate::check::target_dir(root)?,
    };
    for folder in WORKSPACES {
        built.complete &= built.build_workspace(folder, root)?;
    }
    built
        .programs
        .sort_by(|a, b| (&a.package, &a.target).cmp(&(&b.package, &b.target)));
    Ok(built)
}

impl Built {
    /// Compiles one workspace; false when something of it does not build.
    fn build_workspace(&mut self, folder: &str, root: &Path) -> Result<bool> {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut child = Command::new(cargo)
            .current_dir(root.join(folder))
            // `cargo test --no-run` compiles the same, but stops at the first package that fails.
            .args(["build", "--workspace", "--all-targets", "--locked"])
            .args(["--keep-going", "--message-format=json", "--target-dir"])
            .arg(&self.target_dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .context("starting cargo build")?;
        let answers = child.stdout.take().expect("it was piped just now");
        for line in BufReader::new(answers).lines() {
            let line = line.context("reading what cargo says")?;
            self.take(&line, root);
        }
        Ok(child.wait().context("waiting for cargo")?.success())
    }

    fn take(&mut self, line: &str, root: &Path) {
        let Ok(message) = serde_json::from_str::<Value>(line) else {
            return; // what a build script prints is no message
        };
        match message["reason"].as_str() {
            Some("compiler-artifact") => self.programs.extend(test_program(&message)),
            Some("compiler-message") => self.take_diagnostic(&message, root),
            _ => {}
        }
    }

    /// Prints a diagnostic, and counts it if it is a warning: an error fails the compilation anyway.
    fn take_diagnostic(&mut self, message: &Value, root: &Path) {
        let diagnostic = &message["message"];
        if let Some(text) = diagnostic["rendered"].as_str() {
            eprint!("{text}");
        }
        // The summary ("3 warnings emitted") has no place in the source.
        let spans = diagnostic["spans"].as_array();
        let is_placed = spans.is_some_and(|spans| !spans.is_empty());
        let is_warning = diagnostic["level"] == "warning" && is_placed;
        self.warnings += usize::from(is_warning && is_of_workspace(message, root));
    }
}

/// Diagnostics of other packages are the business of their authors.
fn is_of_workspace(message: &Value, root: &Path) -> bool {
    let manifest = message["manifest_path"].as_str();
    manifest.is_some_and(|path| Path::new(path).starts_with(root))
}

/// The program of an artifact that holds tests. Benchmarks are compiled, for the lints, but hold
/// none.
fn test_program(artifact: &Value) -> Option<TestProgram> {
    let kind = artifact["target"]["kind"].as_array()?;
    let is_test = artifact["profile"]["test"] == true && !kind.iter().any(|kind| kind == "bench");
    // `test = false` in a Cargo.toml: measured, not tested.
    if !is_test || artifact["target"]["test"] == false {
        return None;
    }
    let folder = Path::new(artifact["manifest_path"].as_str()?).parent()?;
    Some(TestProgram {
        package: folder.file_name()?.to_str()?.to_owned(),
        target: artifact["target"]["name"].as_str()?.to_owned(),
        path: PathBuf::from(artifact["executable"].as_str()?),
        folder: folder.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::Built;

    fn built_of(lines: &[String]) -> Built {
        let mut built = Built {
            programs: Vec::new(),
            complete: true,
            warnings: 0,
            target_dir: PathBuf::new(),
        };
        for line in lines {
            built.take(line, Path::new("/tree"));
        }
        built
    }

    fn artifact(kind: &str, is_run: bool) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","manifest_path":"/tree/crates/a/Cargo.toml","executable":"/b/{kind}",
            "target":{{"kind":["{kind}"],"name":"{kind}","test":{is_run}}},"profile":{{"test":true}}}}"#
        )
    }

    /// Benchmarks and what is measured only (`test = false`) are compiled, not run.
    #[test]
    fn programs_that_hold_tests_are_run() {
        let lines = [
            artifact("lib", true),
            artifact("bench", true),
            artifact("test", false),
            "a line of a build script".to_owned(),
        ];
        let built = built_of(&lines);
        let paths: Vec<_> = built.programs.iter().map(|program| &program.path).collect();
        assert_eq!(paths, [Path::new("/b/lib")]);
    }

    #[test]
    fn a_warning_in_the_workspace_is_counted_once() {
        let warning = |manifest: &str, spans: &str| {
            format!(
                r#"{{"reason":"compiler-message","manifest_path":"{manifest}","message":{{"level":"warning","spans":[{spans}]}}}}"#
            )
        };
        let lines = [
            warning("/tree/crates/a/Cargo.toml", r#"{"line":1}"#),
            warning("/tree/crates/a/Cargo.toml", ""),
            warning("/registry/b/Cargo.toml", r#"{"line":1}"#),
        ];
        assert_eq!(built_of(&lines).warnings, 1);
    }
}
