//! Builds the peers, or tells why one is missing and what to install.
//!
//! The programs are in `peers/` of the target directory. A peer that was built before is used as it
//! is if it cannot be built again, so the benchmark runs without a network.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::arms::ArmProgram;

/// Directory with the sources of the peers.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peers");

/// The programs that exist, and the reason for each that does not.
#[derive(Debug, Default)]
pub struct PeerPrograms(BTreeMap<&'static str, Result<PathBuf, String>>);

impl PeerPrograms {
    /// Builds the peers; with `build` off, uses those that were built before.
    ///
    /// # Errors
    /// When the path of this program is unknown, or no directory can be made there.
    pub fn find(build: bool) -> io::Result<Self> {
        let exe = std::env::current_exe()?;
        // TARGET/release/deps/switches-HASH
        let target = exe.ancestors().nth(3).unwrap_or(Path::new("target"));
        let place = target.join("peers");
        fs::create_dir_all(&place)?;
        let mut all = Self::default();
        for program in ArmProgram::ALL {
            let found = match program {
                ArmProgram::Ours => Ok(exe.clone()),
                ArmProgram::Rust => rust(&place, build, &[]),
                ArmProgram::Glommio => rust(&place, build, &["--features", "glommio"]),
                ArmProgram::Boost => boost(&place, build),
                ArmProgram::Go => go(&place, build),
            };
            all.0.insert(key(program), found);
        }
        Ok(all)
    }

    /// Path of the program, or the reason why it does not exist.
    pub fn get(&self, program: ArmProgram) -> Result<&Path, &str> {
        match self.0.get(key(program)) {
            Some(Ok(path)) => Ok(path),
            Some(Err(reason)) => Err(reason),
            None => Err("it was not looked for"),
        }
    }
}

const fn key(program: ArmProgram) -> &'static str {
    match program {
        ArmProgram::Ours => "ours",
        ArmProgram::Rust => "rust",
        ArmProgram::Glommio => "glommio",
        ArmProgram::Boost => "boost",
        ArmProgram::Go => "go",
    }
}

/// Builds the package beside this file. With features it has a target directory of its own, so that
/// the two variants do not rebuild each other's dependencies in turn.
fn rust(place: &Path, build: bool, features: &[&str]) -> Result<PathBuf, String> {
    let target = place.join(if features.is_empty() {
        "rust"
    } else {
        "rust-all"
    });
    let program = target.join("release/swtch-fiber-peers");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["build", "--release", "--locked", "--manifest-path"])
        .arg(Path::new(SOURCES).join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target)
        .args(features);
    built(
        program,
        build,
        command,
        "cargo, and a network for the first build",
    )
}

fn boost(place: &Path, build: bool) -> Result<PathBuf, String> {
    let source = Path::new(SOURCES).join("boost_fiber.cpp");
    let program = place.join("boost_fiber");
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let mut command = Command::new(compiler);
    command.arg("-O2").arg("-o").arg(&program).arg(&source);
    command.args(["-lboost_fiber", "-lboost_context"]);
    let build = build && outdated(&program, &source);
    built(program, build, command, "g++ and libboost-fiber-dev")
}

fn go(place: &Path, build: bool) -> Result<PathBuf, String> {
    let source = Path::new(SOURCES).join("gosched.go");
    let program = place.join("gosched");
    let mut command = Command::new("go");
    // Use no other toolchain than the installed one, and do not look at the repository around.
    command
        .env("GOTOOLCHAIN", "local")
        .args(["build", "-buildvcs=false", "-o"])
        .arg(&program)
        .arg(&source);
    let build = build && outdated(&program, &source);
    built(program, build, command, "go, 1.22 or later")
}

fn outdated(program: &Path, source: &Path) -> bool {
    let changed = |path: &Path| fs::metadata(path).and_then(|data| data.modified());
    match (changed(program), changed(source)) {
        (Ok(program), Ok(source)) => program < source,
        _ => true,
    }
}

/// Runs `command` and checks whether `program` exists then. `needs` names what must be installed.
fn built(
    program: PathBuf,
    build: bool,
    mut command: Command,
    needs: &str,
) -> Result<PathBuf, String> {
    let trouble = if build { trouble(&mut command) } else { None };
    match (program.exists(), trouble) {
        (true, None) => Ok(program),
        (true, Some(trouble)) => {
            eprintln!("{}: built before, not now: {trouble}", program.display());
            Ok(program)
        }
        (false, Some(trouble)) => Err(format!("{trouble}; it needs {needs}")),
        (false, None) => Err(format!("not built yet; it needs {needs}")),
    }
}

/// The first line of the output that tells what went wrong, if something did.
fn trouble(command: &mut Command) -> Option<String> {
    let output = match command.output() {
        Ok(output) if output.status.success() => return None,
        Ok(output) => output,
        Err(error) => {
            let compiler = command.get_program().to_string_lossy();
            return Some(format!("{compiler} does not run: {error}"));
        }
    };
    let talk = String::from_utf8_lossy(&output.stderr);
    let line = talk.lines().find(|line| line.contains("error"));
    Some(
        line.or(talk.lines().next())
            .unwrap_or("it does not build")
            .trim()
            .to_owned(),
    )
}
