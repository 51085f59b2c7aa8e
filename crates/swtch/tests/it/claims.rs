//! `swtch lab` from outside: what it lists, and what it refuses before it spends minutes.

use std::process::Command;

use crate::recording::{SWTCH, stderr, stdout, swtch};

/// An experiment takes far more than the two seconds of CPU time that this leaves for a refusal.
fn assert_refused_at_once(words: &[&str], why: &str) {
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -t 2; exec \"$@\"", "sh", SWTCH, "lab"]);
    let output = limited.args(words).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(why), "{said}");
    assert_eq!(stdout(&output), "");
}

#[test]
fn without_a_word_it_lists_what_there_is() {
    let output = swtch(["lab"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    for word in ["claims", "run FILE.toml", "show NAME"] {
        assert!(stdout(&output).contains(word), "{}", stdout(&output));
    }
}

#[test]
fn files_that_could_not_be_written_are_refused_before_measuring() {
    let place = "no such directory";
    assert_refused_at_once(&["claims", "--html", "/no/such/page.html"], place);
    assert_refused_at_once(&["claims", "-o", "/no/such/list.json"], place);
    assert_refused_at_once(&["claims", "-o", "list.xml"], ".json (all of it) or .csv");
    assert_refused_at_once(&["claims", "--html", "page.pdf"], "ends in .html");
}

#[test]
fn an_experiment_that_is_not_there_is_refused_with_those_that_are() {
    let why = "there is no experiment `alchemy`; there are:";
    assert_refused_at_once(&["claims", "--only", "alchemy"], why);
    assert_refused_at_once(&["show", "alchemy"], why);
}
