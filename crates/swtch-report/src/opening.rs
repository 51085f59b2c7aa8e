//! Opens the trace that a user named. If the path is not a trace, the error says what it is and
//! what to do.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use swtch_output::text::shell_word;
use swtch_store::{Directory, Trace};

use crate::import;
use crate::replay::replayed;

/// The file in a trace that lists the others; every trace has it.
pub const LIST_OF_FILES: &str = "checksums.csv";

/// The error for a path that is not a trace, with what it is instead.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct NoTrace {
    what: String,
    advice: String,
}

impl NoTrace {
    /// Says what the user can do instead.
    pub fn advice(&self) -> &str {
        &self.advice
    }
}

/// Opens a trace.
///
/// # Errors
/// [`NoTrace`] if the path does not exist or is something else; otherwise the error of reading it.
pub fn open(path: &Path) -> Result<Trace> {
    match Trace::open_recorded(path) {
        Ok(trace) => decoded(trace).with_context(|| format!("reading {}", path.display())),
        Err(error) => match no_trace(path) {
            Some(what) => Err(what.into()),
            None => Err(error).with_context(|| format!("reading {}", path.display())),
        },
    }
}

/// Opens the trace that this process has just recorded.
///
/// # Errors
/// The error of reading it.
pub fn open_in(directory: &Directory) -> Result<Trace> {
    Trace::open_recorded_in(directory)
        .map_err(Into::into)
        .and_then(decoded)
        .with_context(|| format!("reading {}", directory.path().display()))
}

/// The trace with its rows, which are made of records if it is a recording that was not finished.
fn decoded(trace: Trace) -> Result<Trace> {
    match trace.records() {
        Some(records) => replayed(&trace, records),
        None => Ok(trace),
    }
}

/// Says what a path is that is not a trace; `None` if the reader's own error says it best.
fn no_trace(path: &Path) -> Option<NoTrace> {
    let shown = path.display();
    let Ok(found) = fs::metadata(path) else {
        let is_gone = !path.try_exists().unwrap_or(true);
        return is_gone.then(|| NoTrace {
            what: format!("there is no {shown}"),
            advice: missing_advice(path),
        });
    };
    if found.is_dir() {
        return None;
    }
    if let Some(maker) = import::maker_of(path) {
        return Some(NoTrace {
            what: format!("{shown} is what {maker} recorded, and no trace"),
            advice: format!("import it first: swtch import {}", shell_word(path)),
        });
    }
    let inside = path.parent().filter(|dir| dir.join(LIST_OF_FILES).exists());
    Some(NoTrace {
        what: format!("{shown} is no trace: a trace is a directory"),
        advice: match inside {
            Some(trace) if trace.as_os_str().is_empty() => {
                "it is a file of the trace in this directory: give . instead".to_owned()
            }
            Some(trace) => format!("it is a file of one: give {} instead", trace.display()),
            None => "give the directory NAME.swtch that swtch record or swtch import made".into(),
        },
    })
}

/// The advice for a path that does not exist: its ending may be missing, or it may be what is to be recorded.
fn missing_advice(path: &Path) -> String {
    let word = path.to_str().filter(|word| !word.contains('/'));
    if let Some(pid) = word.and_then(|word| word.parse::<u32>().ok()) {
        return format!("to record the process with this id: swtch explain -p {pid}");
    }
    if word.is_some_and(is_a_command) {
        return format!(
            "to record the command: swtch explain -- {}",
            shell_word(path)
        );
    }
    let mut whole = path.as_os_str().to_owned();
    whole.push(".swtch");
    let whole = Path::new(&whole);
    if whole.is_dir() {
        format!("there is {}: give that", whole.display())
    } else {
        "swtch record and swtch explain say at their end where the trace is".to_owned()
    }
}

/// Returns true if a program of this name is where the shell looks for it.
fn is_a_command(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    !name.is_empty() && std::env::split_paths(&path).any(|place| place.join(name).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant_to_be_recorded_is_told_how() {
        let advice = |word: &str| missing_advice(Path::new(word));
        assert!(advice("5").ends_with("swtch explain -p 5"));
        assert!(advice("sh").ends_with("swtch explain -- sh"));
        assert!(advice("./nope").starts_with("swtch record and swtch explain say"));
    }
    use crate::report::drawn::head;
    use swtch_store::Writer;

    fn refusal(path: &Path) -> (String, String) {
        let error = open(path).unwrap_err();
        let why: &NoTrace = error.downcast_ref().unwrap();
        (why.to_string(), why.advice().to_owned())
    }

    /// The advice is complete, so that a user needs no further help.
    #[test]
    fn what_is_no_trace_is_named_with_the_way_to_one() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let (what, advice) = refusal(&at("nope.swtch"));
        assert!(what.starts_with("there is no ") && what.ends_with("nope.swtch"));
        assert!(advice.contains("swtch record"), "{advice}");
        for magic in ["PERFILE2 and more", "2ELIFREP"] {
            fs::write(at("perf.data"), format!("{magic:<16}")).unwrap();
            let (what, advice) = refusal(&at("perf.data"));
            assert!(what.contains("perf recorded"), "{what}");
            let expected = format!(
                "import it first: swtch import {}",
                at("perf.data").display()
            );
            assert_eq!(advice, expected);
        }
        fs::write(at("short"), "PERF").unwrap();
        assert!(refusal(&at("short")).1.contains("NAME.swtch"));
        // The FIFO has no writer, so reading it would never end.
        let made = std::process::Command::new("mkfifo")
            .arg(at("fifo"))
            .status();
        assert!(made.unwrap().success());
        assert!(refusal(&at("fifo")).0.contains("is no trace"));
    }

    #[test]
    fn a_name_without_its_end_and_a_file_of_a_trace_lead_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let trace = dir.path().join("t.swtch");
        let meta = head().meta;
        let writer = Writer::create(&trace, &meta).unwrap();
        writer.finish(&meta, &mut |_, _| ()).unwrap();
        assert!(open(&trace).is_ok());
        let shown = trace.display().to_string();
        let (_, advice) = refusal(&dir.path().join("t"));
        assert_eq!(advice, format!("there is {shown}: give that"));
        let (_, advice) = refusal(&trace.join("meta.json"));
        assert_eq!(advice, format!("it is a file of one: give {shown} instead"));
    }

    /// A directory that is a damaged trace is left to the reader, which can say more about it.
    #[test]
    fn a_directory_is_judged_by_the_reader() {
        let dir = tempfile::tempdir().unwrap();
        let error = open(dir.path()).unwrap_err();
        assert!(error.downcast_ref::<NoTrace>().is_none());
        assert!(error.downcast_ref::<swtch_store::Error>().is_some());
    }
}
