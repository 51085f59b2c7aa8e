//! `--symbols`: names for the stacks of a trace that was recorded where the programs have none.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use swtch_capture::{FilesById, named_by};
use swtch_output::message;
use swtch_output::text::{self, counted};
use swtch_store::Trace;

/// The most files that are named in a message.
const FILES_NAMED: usize = 3;

/// Looks up the places in a trace in the files of a directory that have the same build ids, and shows what they say.
/// The trace itself stays as it is.
///
/// # Errors
/// When the directory or the trace cannot be read, or the trace has no build ids.
pub fn show(trace: &mut Trace, directory: &Path) -> Result<()> {
    let files = FilesById::in_directory(directory);
    let files = files.with_context(|| format!("listing {}", directory.display()))?;
    let (stacks, frames) = (trace.stacks()?, trace.frames()?);
    ensure!(
        frames.iter().any(|frame| frame.build_id.is_some()),
        "{} has no build ids, by which --symbols finds files: its stacks are of no files that have one, or it was \
         recorded without stacks or before swtch kept them",
        trace.path().display()
    );
    let found = named_by(&files, stacks, frames);
    let (named, missing) = (found.named, found.missing);
    trace.show_named(found.stacks, found.frames);
    message!(
        "swtch: {} got a name from {}",
        counted(u64::try_from(named).unwrap_or(u64::MAX), "place"),
        text::escaped(&directory.display().to_string())
    );
    for (module, id) in missing.iter().take(FILES_NAMED) {
        let words = format!("{module}, {id}");
        message!(
            "swtch: no file there has the build id of {}",
            text::escaped(&words)
        );
    }
    if let Some(more @ 1..) = missing.len().checked_sub(FILES_NAMED) {
        message!("swtch: nor those of {more} more");
    }
    Ok(())
}
