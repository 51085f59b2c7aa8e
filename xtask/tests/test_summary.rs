//! The last line of `make test` is right: `scripts/test.sh` runs with a stub of `cargo` that prints
//! what test runs print, both when they pass and when they fail.

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

/// Runs the script with a cargo that, asked to test, prints `said` and exits with `code`. The page
/// and the Python package have no tests here.
fn test_script(said: &str, code: u8) -> Output {
    run_with(said, code, "exit 0").expect("scripts/test.sh starts")
}

/// Runs the scripts in a tree of their own, where `scripts/web.sh` does what `page` says.
fn run_with(said: &str, code: u8, page: &str) -> io::Result<Output> {
    let tree = tempfile::tempdir()?;
    let bin = tree.path();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let scripts = tree.path().join("scripts");
    fs::create_dir(&scripts)?;
    for name in ["test.sh", "env.sh", "setup.sh"] {
        fs::copy(root.join("scripts").join(name), scripts.join(name))?;
    }
    fs::copy(root.join("Cargo.toml"), tree.path().join("Cargo.toml"))?;
    for (name, does) in [("web.sh", page), ("python.sh", "exit 0")] {
        let script = scripts.join(name);
        let text = format!("#!/bin/sh\n[ \"$1\" = test ] || exit 0\n{does}\n");
        fs::write(&script, text)?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
    }
    let cargo = bin.join("cargo");
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && echo 'cargo 999.0.0 (stub)' && exit\n\
         cat <<'SAID'\n{said}\nSAID\nexit {code}\n"
    );
    fs::write(&cargo, script)?;
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755))?;
    let path = env::var("PATH").unwrap_or_default();
    // Started through bash: executing the copy itself fails with ETXTBSY while a child that another
    // test has forked meanwhile still holds the descriptor with which it was written.
    Command::new("bash")
        .arg(scripts.join("test.sh"))
        .env("PATH", format!("{}:{path}", bin.display()))
        // The environment of the tests may ask for recordings on other kernels, too.
        .env_remove("SWTCH_VM")
        .output()
}

fn last_line(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().last().unwrap_or_default().to_owned()
}

/// The first two counts of the last line; what is skipped depends on the user who runs the tests.
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

/// The script makes one pass as root, and two with a sudo that needs no password.
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

/// The page's tests count like all others, and without Node.js they are reported as skipped.
#[test]
fn tests_of_the_page_are_summed_too() {
    let line = |text: &str| format!("echo 'test result: {text}; the page'");
    let run = |page: &str| run_with(&result(3, 0, 0), 0, page).expect("scripts/test.sh starts");
    let passed = run(&line("ok. 5 passed; 0 failed; 0 skipped"));
    assert!(passed.status.success());
    assert_eq!(
        counts(&passed),
        format!("{} passed, 0 failed", 3 * passes() + 5)
    );
    let failed = run(&format!(
        "{}\nexit 1",
        line("FAILED. 5 passed; 2 failed; 0 skipped")
    ));
    assert!(!failed.status.success());
    assert_eq!(
        counts(&failed),
        format!("{} passed, 2 failed", 3 * passes() + 5)
    );
    let without = run(&format!(
        "echo 'test the page ... skipped: there is no Node.js'\n{}\nexit 3",
        line("ok. 0 passed; 0 failed; 1 skipped")
    ));
    assert!(without.status.success());
    assert!(
        last_line(&without).ends_with(", 1 skipped"),
        "{}",
        last_line(&without)
    );
}

/// A test that finds out while it runs that it cannot run here passes for cargo. `swtch-test`
/// prints a line for it, which is subtracted from the passed tests.
#[test]
fn test_that_could_not_run_is_skipped_and_not_passed() {
    let said = format!(
        "test it::a ... ok\n\ntest it::b ... skipped: perf is not installed\ntest it::b ... ok\n{}",
        result(5, 0, 0)
    );
    let output = test_script(&said, 0);
    assert!(output.status.success());
    let skipped = passes();
    assert_eq!(
        counts(&output),
        format!("{} passed, 0 failed", 4 * passes())
    );
    assert!(
        last_line(&output).ends_with(&format!(", {skipped} skipped")),
        "{}",
        last_line(&output)
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let end = text.split_once("could not run here").expect("a heading").1;
    assert!(end.contains("  it::b: perf is not installed\n"), "{end}");
}

/// A test program with a harness of its own counts what it skips in its result, as the page's
/// suites do.
#[test]
fn what_a_result_counts_as_skipped_is_not_taken_off_the_passed_twice() {
    let said = "test throttled ... skipped: it needs root\n\
                test result: ok. 5 passed; 0 failed; 1 skipped; counters";
    let output = test_script(said, 0);
    assert_eq!(
        counts(&output),
        format!("{} passed, 0 failed", 5 * passes())
    );
    assert!(last_line(&output).ends_with(&format!(", {} skipped", passes())));
}

/// Escape sequences for colours may stand between the words.
#[test]
fn coloured_results_are_read() {
    let coloured = result(5, 0, 0).replace("ok", "\u{1b}[32mok\u{1b}[m");
    assert_eq!(
        counts(&test_script(&coloured, 0)),
        format!("{} passed, 0 failed", 5 * passes())
    );
}
