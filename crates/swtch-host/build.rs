//! Tells the program how it is built: part of what its numbers mean.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let variable = |name: &str| env::var(name).unwrap_or_else(|_| "unknown".to_owned());
    let compiler = Command::new(variable("RUSTC")).arg("--version").output();
    let compiler = compiler.ok().filter(|output| output.status.success());
    let compiler = compiler.map_or_else(
        || "unknown".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    );
    println!("cargo:rustc-env=SWTCH_COMPILER={compiler}");
    println!("cargo:rustc-env=SWTCH_TARGET={}", variable("TARGET"));
    let (profile, level) = (variable("PROFILE"), variable("OPT_LEVEL"));
    println!("cargo:rustc-env=SWTCH_PROFILE={profile}, optimisation level {level}");
}
