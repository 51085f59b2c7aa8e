//! The sum is right, of suites that really run: shell scripts that print what tests print.

use std::path::Path;
use std::time::Duration;

use super::outcome::TestOutcome;
use super::suite::Suite;

/// A suite that is this shell script.
fn suite(script: &str) -> Suite {
    Suite::script(Path::new("/"), "a suite", &["sh", "-c", script, "sh"])
}

/// A script that prints this and ends with this code.
fn prints(said: &str, code: u8) -> Suite {
    suite(&format!("cat <<'SAID'\n{said}\nSAID\nexit {code}"))
}

fn result(passed: u32, failed: u32) -> String {
    format!(
        "test result: ok. {passed} passed; {failed} failed; 0 ignored; \
         0 measured; 0 filtered out; finished in 0.08s"
    )
}

fn sum_of(suites: &[Suite]) -> String {
    let mut outcome = TestOutcome::default();
    for suite in suites {
        outcome.add(suite.clone().run(false));
    }
    outcome.sum(None)
}

#[test]
fn results_of_all_suites_are_summed() {
    let said = format!("{}\nnoise\n{}", result(3, 0), result(4, 0));
    let suites = [prints(&said, 0), prints(&result(5, 0), 0)];
    assert_eq!(sum_of(&suites), "12 passed, 0 failed");
}

#[test]
fn a_failed_test_fails_the_run_and_is_counted_once() {
    let suites = [prints(&result(3, 2), 101), prints(&result(3, 0), 0)];
    assert_eq!(sum_of(&suites), "6 passed, 2 failed");
}

/// A program that is killed, or whose output is lost, prints no result line.
#[test]
fn a_suite_without_a_result_has_failed() {
    assert_eq!(
        sum_of(&[prints("running 3 tests", 0)]),
        "0 passed, 1 failed"
    );
    let killed = suite(&format!("echo '{}'; kill -9 $$", result(3, 0)));
    assert_eq!(sum_of(&[killed]), "3 passed, 1 failed");
    let absent = Suite::script(Path::new("/"), "absent", &["/nowhere/to/be/found"]);
    assert_eq!(sum_of(&[absent]), "0 passed, 1 failed");
}

/// A process that a test left behind holds the pipe open; nobody waits for it.
#[test]
fn a_process_that_is_left_behind_does_not_hold_up_the_run() {
    let script = format!("sleep 60 & echo '{}'; kill -0 $! && exit 0", result(1, 0));
    let run = suite(&script).run(false);
    assert!(run.took < Duration::from_secs(30), "{:?}", run.took);
    assert!(run.trouble.is_none(), "{:?}", run.trouble);
}

/// One that goes on printing is ended all the same, when its time is over.
#[test]
fn a_suite_that_prints_without_end_is_ended() {
    let mut endless = suite("while :; do echo more; done");
    endless.may_take(Duration::from_secs(1));
    let run = endless.run(false);
    let why = run.trouble.as_deref().unwrap_or_default();
    assert!(why.starts_with("it was ended"), "{why}");
}

#[test]
fn a_suite_that_cannot_run_here_is_passed_over() {
    let said = "test the page ... skipped: there is no Node.js\n\
                test result: ok. 0 passed; 0 failed; 1 skipped; the page";
    let suites = [prints(said, 3), prints(&result(3, 0), 0)];
    assert_eq!(sum_of(&suites), "3 passed, 0 failed, 1 skipped");
}

/// A test that finds out while it runs that it cannot run here passes for the standard harness.
#[test]
fn a_test_that_could_not_run_is_skipped_and_not_passed() {
    let said = format!(
        "test it::a ... ok\n\ntest it::b ... skipped: no perf\ntest it::b ... ok\n{}",
        result(5, 0)
    );
    assert_eq!(sum_of(&[prints(&said, 0)]), "4 passed, 0 failed, 1 skipped");
}

/// A harness of its own counts what it skips in its result, as the page's suites do.
#[test]
fn what_a_result_counts_as_skipped_is_not_taken_off_the_passed_twice() {
    let said = "test throttled ... skipped: it needs root\n\
                test result: ok. 5 passed; 0 failed; 1 skipped; counters";
    assert_eq!(sum_of(&[prints(said, 0)]), "5 passed, 0 failed, 1 skipped");
}

#[test]
fn coloured_results_are_read() {
    let coloured = result(5, 0).replace("ok", "\u{1b}[32mok\u{1b}[m");
    let coloured = coloured.replace("test result", "\u{1b}[1mtest result");
    assert_eq!(sum_of(&[prints(&coloured, 0)]), "5 passed, 0 failed");
}

#[test]
fn tests_that_need_root_are_counted_as_skipped_where_they_cannot_run() {
    let said = "test it::root_a ... ignored, needs root\n\
                test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured";
    let mut outcome = TestOutcome::default();
    outcome.add(prints(said, 0).run(false));
    assert_eq!(
        outcome.sum(Some("no sudo")),
        "5 passed, 0 failed, 1 skipped"
    );
}

/// A program with one test, `it::a`, that fails disturbed; run alone (`--exact`), it does `alone`.
fn disturbed(alone: &str) -> Suite {
    let line = "test it::a ... disturbed: others took 40.0 % of the CPUs, 0.0 % was stolen";
    let failed = format!(
        "echo 'test it::a ... FAILED'; echo '{}'; exit 101",
        result(0, 1)
    );
    suite(&format!(
        "if [ \"$1\" = --exact ]; then {alone}\nfi\necho '{line}'; {failed}"
    ))
}

/// The sum after disturbed tests ran again, with what was remembered of earlier runs.
fn sum_with_memory(suite: Suite, memory: &Path) -> String {
    let mut outcome = TestOutcome::default();
    outcome.add(suite.run(false));
    super::run_disturbed_again(&mut outcome, memory).expect("the memory can be written");
    outcome.sum(None)
}

#[test]
fn a_disturbed_test_runs_again_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let memory = folder.path().join("disturbed");
    let passes = format!("echo 'test it::a ... ok'; echo '{}'; exit 0", result(1, 0));
    let sum = sum_with_memory(disturbed(&passes), &memory);
    assert_eq!(sum, "1 passed, 0 failed");
    // Still disturbed: told, and no failure.
    let sum = sum_with_memory(disturbed(":"), &memory);
    assert_eq!(sum, "0 passed, 0 failed, 1 skipped");
    // The third run in a row: the test itself is at fault.
    let sum = sum_with_memory(disturbed(&passes), &memory);
    assert_eq!(sum, "1 passed, 1 failed");
}

#[test]
fn a_test_that_fails_alone_and_undisturbed_has_failed() {
    let folder = tempfile::tempdir().expect("a folder");
    let fails = format!(
        "echo 'test it::a ... FAILED'; echo '{}'; exit 101",
        result(0, 1)
    );
    let sum = sum_with_memory(disturbed(&fails), &folder.path().join("disturbed"));
    assert_eq!(sum, "0 passed, 1 failed");
}

/// A run in which a test is not disturbed ends its row.
#[test]
fn runs_in_which_a_test_is_disturbed_are_counted_in_a_row() {
    let folder = tempfile::tempdir().expect("a folder");
    let memory = folder.path().join("disturbed");
    for suite in [disturbed(":"), disturbed(":"), prints(&result(1, 0), 0)] {
        sum_with_memory(suite, &memory);
    }
    let sum = sum_with_memory(disturbed(":"), &memory);
    assert_eq!(sum, "0 passed, 0 failed, 1 skipped");
}

/// A failure beside a disturbed test stays one.
#[test]
fn a_test_that_was_not_disturbed_fails_at_once() {
    let said = format!(
        "test it::a ... disturbed: others took 40.0 %\ntest it::a ... FAILED\n\
         test it::b ... FAILED\n{}",
        result(0, 2)
    );
    let folder = tempfile::tempdir().expect("a folder");
    let sum = sum_with_memory(prints(&said, 101), &folder.path().join("disturbed"));
    assert_eq!(sum, "0 passed, 1 failed, 1 skipped");
}

/// A program that is killed after a disturbed test has failed in tests that nobody saw.
#[test]
fn a_suite_that_is_killed_beside_a_disturbed_test_has_failed() {
    let said = "test it::a ... disturbed: others took 40.0 %\ntest it::a ... FAILED";
    let mut outcome = TestOutcome::default();
    outcome.add(suite(&format!("echo '{said}'; kill -9 $$")).run(false));
    assert_eq!(outcome.failures().len(), 1, "{:?}", outcome.failures());
}

/// Whoever has only the end of a long output reads there what failed, and why.
#[test]
fn what_failed_is_named_at_the_end_with_its_reason() {
    let said = format!(
        "test it::a ... FAILED\n\n---- it::a stdout ----\n\nthread 'it::a' (12) panicked at a.rs:1:5:\n\
         left is not right\n  left: 1\nstack backtrace:\n   0: rust_begin_unwind\n\n\
         test it::b ... FAILED: assert 1 == 2\n{}",
        result(0, 4)
    );
    let mut outcome = TestOutcome::default();
    outcome.add(prints(&said, 101).run(false));
    assert_eq!(
        outcome.failures(),
        [
            "a suite it::a: a.rs:1:5: left is not right   left: 1",
            "a suite it::b: assert 1 == 2",
            "a suite: 2 failed without a name (see above)",
        ]
    );
}
