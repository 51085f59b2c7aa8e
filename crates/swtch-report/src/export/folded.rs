//! Folded stacks, as flame graph programs read them: one line for each distinct stack at which
//! tasks waited, with its off-CPU time in nanoseconds.
//!
//! ```text
//! process;thread;outermost frame;…;innermost frame;kernel frame_[k];[futex] 1234567
//! ```
//!
//! The sum of all lines is the off-CPU time of `swtch report` with the same filter. Without stacks
//! in the trace, a line is process, thread and reason.

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Result;
use swtch_core::{Nanos, StackKind};
use swtch_output::text::escaped;

use super::rows::ExportRows;
use super::wait_places;
use crate::report::{Names, Symbols};

/// Thread, user stack, kernel stack, and why the thread did not run.
type FoldedKey = (usize, Option<u32>, Option<u32>, &'static str);

/// Writes the lines, in the order of their words.
///
/// # Errors
/// When the trace cannot be read or `out` not be written.
pub fn write(rows: &mut ExportRows<'_>, out: &mut dyn Write) -> Result<()> {
    let places = wait_places::sum(rows)?;
    let names = rows.names();
    let symbols = rows.symbols()?;
    // Threads with the same name, in processes with the same name, share a line.
    let mut lines: BTreeMap<String, Nanos> = BTreeMap::new();
    for ((task, reason, _), divided) in places.by_group() {
        for (stacks, _, [length, ..]) in divided.into_parts() {
            let (user, kernel) = stacks.unwrap_or_default();
            if length > Nanos::ZERO {
                let line = line((*task, user, kernel, reason), &names, &symbols);
                *lines.entry(line).or_default() += length;
            }
        }
    }
    for (line, length) in lines {
        writeln!(out, "{line} {}", length.as_ns())?;
    }
    Ok(())
}

fn line((task, user, kernel, reason): FoldedKey, names: &Names, symbols: &Symbols) -> String {
    let mut words = vec![
        clean(&names.process_of(task).comm),
        clean(&names.thread(task).comm),
    ];
    let user = symbols.frames(StackKind::User, user);
    words.extend(user.iter().rev().map(|frame| clean(frame)));
    let kernel = symbols.frames(StackKind::Kernel, kernel);
    let kernel = kernel.iter().rev();
    words.extend(kernel.map(|frame| format!("{}_[k]", clean(frame))));
    words.push(format!("[{reason}]"));
    words.join(";")
}

/// Removes what would break the format: a semicolon ends a frame, and a newline ends the line.
fn clean(frame: &str) -> String {
    escaped(&frame.replace(';', ":")).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn::seen;
    use swtch_core::TaskKey;

    #[test]
    fn a_name_cannot_make_frames_or_lines() {
        let names = Names::new(&[seen(1, 10, 10, "a;b c\n\u{1b}[2J")]);
        let task = names.index(TaskKey::new(1));
        let line = line((task, None, None, "io"), &names, &Symbols::default());
        assert_eq!(line, "a:b c\\x0a\\x1b[2J;a:b c\\x0a\\x1b[2J;[io]");
    }
}
