//! The last line of `make test` tells the truth: `scripts/test.sh` under a `cargo` of ours that says
//! what a test run says, in good and in bad luck.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

/// Runs the script with a cargo that, asked to test, says `said` and exits with `code`.
fn test_script(said: &str, code: u8) -> Output {
    run_with_cargo(said, code).expect("scripts/test.sh starts")
}

fn run_with_cargo(said: &str, code: u8) -> io::Result<Output> {
    let bin = tempfile::tempdir()?;
    let cargo = bin.path().join("cargo");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && echo 'cargo 999.0.0 (stub)' && exit\n\
         cat <<'SAID'\n{said}\nSAID\nexit {code}\n"
    );
    fs::write(&cargo, script)?;
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755))?;
    let path = env::var("PATH").unwrap_or_default();
    Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/test.sh"))
        .env("PATH", format!("{}:{path}", bin.path().display()))
        .output()
}

fn last_line(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().last().unwrap_or_default().to_owned()
}

/// The first two counts; what is skipped depends on who runs the tests.
fn counts(output: &Output) -> String {
    last_line(output)
        .split(", ")
        .take(2)
        .collect::<Vec<_>>()
        .join(", ")
}

fn result(passed: u32, failed: u32, ignored: u32) -> String {
    format!(
        "test result: ok. {passed} passed; {failed} failed; {ignored} ignored; \
         0 measured; 0 filtered out; finished in 0.08s"
    )
}

/// Runs as root are one pass, runs with a sudo that does not ask are two.
fn passes() -> u32 {
    let is_root = nix::unistd::geteuid().is_root();
    let sudo = || Command::new("sudo").args(["-n", "true"]).output();
    let has_sudo = !is_root && sudo().is_ok_and(|output| output.status.success());
    if has_sudo { 2 } else { 1 }
}

#[test]
fn results_of_all_binaries_are_summed() {
    let output = test_script(
        &format!("{}\nnoise\n{}", result(3, 0, 0), result(4, 0, 0)),
        0,
    );
    assert!(output.status.success());
    assert_eq!(
        counts(&output),
        format!("{} passed, 0 failed", 7 * passes())
    );
}

#[test]
fn failed_test_fails_the_run() {
    let output = test_script(&result(3, 2, 0), 101);
    assert!(!output.status.success());
    assert_eq!(
        counts(&output),
        format!("{} passed, {} failed", 3 * passes(), 2 * passes())
    );
}

/// A test binary that does not build, or is killed, prints no result line.
#[test]
fn binary_without_a_result_counts_as_failed() {
    let output = test_script(
        &format!("{}\nerror: could not compile", result(3, 0, 0)),
        101,
    );
    assert!(!output.status.success());
    assert_eq!(
        counts(&output),
        format!("{} passed, 1 failed", 3 * passes())
    );
}

#[test]
fn run_without_tests_fails() {
    let output = test_script("Finished", 0);
    assert!(!output.status.success());
}

/// Colours of a terminal stand between the words.
#[test]
fn coloured_results_are_read() {
    let coloured = result(5, 0, 0).replace("ok", "\u{1b}[32mok\u{1b}[m");
    assert_eq!(
        counts(&test_script(&coloured, 0)),
        format!("{} passed, 0 failed", 5 * passes())
    );
}
