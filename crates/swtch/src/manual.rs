//! Makes what shells and `man` know of the command line from its one definition ([`crate::cli`]).

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory as _;
use clap_complete::Shell;
use swtch_output::caller::as_caller;
use swtch_output::format::write_answer;

use crate::cli::Cli;

const NAME: &str = "swtch";

/// Writes the script that makes `shell` complete words.
///
/// # Errors
/// When `out` cannot be written. It is no error if its reader has gone away.
pub fn complete(shell: Shell, out: &mut dyn Write) -> Result<u8> {
    // The generator panics when its output cannot be written.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), NAME, &mut script);
    write_answer(out, &script).context("writing the script")?;
    Ok(0)
}

/// Writes a page for the program and one for each verb that users see.
///
/// # Errors
/// When a file cannot be written.
pub fn write_pages(directory: &Path) -> Result<u8> {
    // The same pages for every architecture.
    let command = Cli::command().long_version(None);
    as_caller(|| Ok(clap_mangen::generate_to(command, directory)?))
        .with_context(|| format!("writing manual pages into {}", directory.display()))?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_learns_the_verbs_and_their_values() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let mut script = Vec::new();
            complete(shell, &mut script).unwrap();
            let script = String::from_utf8(script).unwrap();
            for word in ["explain", "--ring", "preemptor", "perfetto"] {
                assert!(script.contains(word), "{shell}: {word}");
            }
        }
    }

    #[test]
    fn each_verb_has_a_page_and_hidden_ones_have_none() {
        let place = tempfile::tempdir().unwrap();
        write_pages(place.path()).unwrap();
        for verb in Cli::command().get_subcommands() {
            let page = place.path().join(format!("swtch-{}.1", verb.get_name()));
            assert_eq!(page.exists(), !verb.is_hide_set(), "{}", verb.get_name());
        }
        assert!(place.path().join("swtch.1").exists());
        assert!(write_pages(&place.path().join("none")).is_err());
    }
}
