//! The waits as `perf script` prints samples: `stackcollapse-perf.pl`, speedscope and others read that.
//!
//! ```text
//! thread pid/tid [cpu] 5.000123456:     25000 offcpu-time:
//!                        0 [futex] ([swtch])
//!         ffffffff81000000 schedule+0x2c ([kernel.kallsyms])
//!                    401234 main+0x14 (/usr/bin/program)
//! ```
//!
//! A wait is a sample at the moment at which the thread ran again, and its length in ns the period; that is what
//! `perf record --off-cpu` calls `offcpu-time`. Its innermost frame is the reason. Frames follow where a stack was read.

use std::fmt::Write as _;
use std::io::Write;

use anyhow::Result;
use rustc_hash::FxHashMap;
use swtch_core::{Frame, Level, Nanos, StackKind};
use swtch_output::text::escaped;

use super::life::{Moments, name_of_wait};
use super::rows::ExportRows;
use crate::report::is_of_tracing;

/// Writes the samples.
///
/// # Errors
/// When the trace cannot be read or `out` not be written.
pub fn write(rows: &mut ExportRows<'_>, out: &mut dyn Write) -> Result<()> {
    let names = rows.names();
    let stacks = rows.stacks()?;
    let frames = stacks.frames.iter();
    let lines: FxHashMap<u32, String> = frames.map(|(id, frame)| (*id, line(frame))).collect();
    rows.scan(&mut |row, taken| {
        let length = row.wait.length().filter(|length| *length > Nanos::ZERO);
        let (Level::Os, true, Some(length)) = (row.level, taken.wait, length) else {
            return Ok(());
        };
        let index = names.index(row.task);
        let (thread, process) = (names.thread(index), names.process_of(index));
        let at = Moments::of(row).start.unwrap_or(row.ts).as_ns();
        let mut text = format!(
            "{:2} {}/{} [{:03}] {}.{:09}: {:9} offcpu-time:\n{:>25} [{}] ([swtch])\n",
            comm_word(&thread.comm),
            process.pid.map_or(0, |pid| pid.get()),
            thread.tid.map_or(0, |tid| tid.get()),
            row.cpu.get(),
            at / 1_000_000_000,
            at % 1_000_000_000,
            length.as_ns(),
            0,
            name_of_wait(row),
        );
        let read = row.wait.stacks;
        for (kind, stack) in [
            (StackKind::Kernel, read.kernel),
            (StackKind::User, read.user),
        ] {
            let numbers = stack.and_then(|stack| stacks.stacks.get(&(kind, stack)));
            for number in numbers.into_iter().flatten() {
                text += lines.get(number).map_or("", String::as_str);
            }
        }
        writeln!(out, "{text}")?;
        Ok(())
    })
}

/// The line of a frame, with its end; empty for those of tracing itself.
fn line(frame: &Frame) -> String {
    let symbol = frame.symbol.as_deref().unwrap_or("[unknown]");
    let module = match frame.module.as_deref() {
        Some("[kernel]") => "[kernel.kallsyms]",
        other => other.unwrap_or("[unknown]"),
    };
    let mut text = String::new();
    if !is_of_tracing(symbol) {
        let _ = write!(text, "{:>25x} {}", frame.address, escaped(symbol));
        if let (Some(_), Some(offset)) = (&frame.symbol, frame.offset) {
            let _ = write!(text, "+{offset:#x}");
        }
        let _ = writeln!(text, " ({})", escaped(module));
    }
    text
}

/// The name of a thread as one word that no reader takes for a comment, a number or several frames. Readers make
/// underscores of spaces, too.
fn comm_word(comm: &str) -> String {
    let word = escaped(comm).replace(' ', "_").replace(';', ":");
    match word.strip_prefix('#') {
        Some(rest) => format!("_{rest}"),
        None if word.is_empty() => "(unnamed)".to_owned(),
        None => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_make_lines_comments_or_frames() {
        assert_eq!(
            comm_word("#a;b 12/13 c\n\u{1b}[2J"),
            "_a:b_12/13_c\\x0a\\x1b[2J"
        );
        assert_eq!(comm_word(""), "(unnamed)");
    }

    #[test]
    fn frames_are_named_as_perf_names_them() {
        let frame = |symbol: Option<&str>, module: Option<&str>| Frame {
            address: 0x40_1234,
            symbol: symbol.map(str::to_owned),
            module: module.map(str::to_owned),
            offset: Some(0x14),
            ..Frame::default()
        };
        let told = |symbol, module| line(&frame(symbol, module)).trim_start().to_owned();
        assert_eq!(
            told(Some("main"), Some("/bin/a b")),
            "401234 main+0x14 (/bin/a b)\n"
        );
        assert_eq!(told(None, None), "401234 [unknown] ([unknown])\n");
        assert_eq!(
            told(Some("a\nb"), Some("[kernel]")),
            "401234 a\\x0ab+0x14 ([kernel.kallsyms])\n"
        );
        assert_eq!(told(Some("__traceiter_sched_switch"), None), "");
    }
}
