//! The call stack of the thread that stalls, or the reason why there is none.
//!
//! There are three cases, the least intrusive first:
//!
//! 1. A blocked thread does not move, and `/proc` shows its stack pointer: its stack is read from
//!    outside, and the thread is not disturbed. Its callee-saved registers are not known, so the
//!    walk may end early.
//! 2. If the kernel restarts what a signal interrupts, the thread is asked by a signal (`capture`).
//! 3. A thread that does not run cannot answer; then only the backtrace of case 1 is available.
//!
//! Names are looked up when the backtrace is shown, not before: reading symbol tables takes up to
//! seconds, and the monitor has quanta to end meanwhile.

use std::fmt::{self, Write};
use std::time::Duration;

use blazesym::Pid;
use blazesym::symbolize::source::{Process, Source};
use blazesym::symbolize::{CodeInfo, Input, Symbolized, Symbolizer};

use super::capture::{self, ThreadSnapshot, Usage};
use super::evidence::{Call, ThreadSample};
use super::memory;
use super::unwind::unwind;
use swtch_unwind::{Chain, ChainEnd, Registers, StackCopy};

/// The time that a running thread may take to answer. It answers at its next return to user mode, which an interrupt
/// brings about at once; the monitor cannot wait longer.
const PATIENCE: Duration = Duration::from_millis(4);

/// Most frames that are shown.
const SHOWN: usize = 32;

/// Part of the name of the function that runs a task's closure. All frames beyond it belong to this
/// crate and are the same in each report.
const ROOT_OF_TASK: &str = "swtch_fiber::task::";

/// Part of the name of the functions between that one and the closure, inlined into one frame.
const CATCHES_PANICS: &str = "AssertUnwindSafe";

/// The call stack of a thread, as addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backtrace {
    /// Addresses in code, the innermost first; each lies inside of its call instruction.
    pub addresses: Vec<u64>,
    /// The reason why frames are missing; `None` when the root of the stack was reached.
    pub missing: Option<&'static str>,
}

/// Takes the backtrace of a thread whose state was just sampled, and its own CPU times if it
/// answered.
pub fn take(tid: i32, sample: &ThreadSample) -> (Backtrace, Option<Usage>) {
    let outside = from_outside(sample.call);
    let is_asked = match sample.call {
        Call::Running | Call::Unknown => true,
        Call::Inside { number, .. } => {
            capture::restarts(number) && outside.as_ref().is_none_or(|b| b.missing.is_some())
        }
        // The signal would be delivered only when the page is there.
        Call::Fault { .. } => false,
    };
    if is_asked && let Some(capture) = capture::capture(tid, PATIENCE) {
        return (of_capture(&capture), Some(capture.usage));
    }
    let missing = if is_asked {
        "the thread did not run to tell more"
    } else {
        "the rest would take a signal, which would interrupt what the thread waits for"
    };
    let mut backtrace = outside.unwrap_or_default();
    backtrace.missing = backtrace.missing.map(|_| missing);
    if backtrace.addresses.is_empty() {
        backtrace.missing = Some(missing);
    }
    (backtrace, None)
}

/// A thread's own CPU times, if it may be asked.
pub fn usage(tid: i32, sample: &ThreadSample) -> Option<Usage> {
    let is_asked = matches!(sample.call, Call::Running | Call::Unknown);
    let capture = is_asked.then(|| capture::capture(tid, PATIENCE));
    Some(capture.flatten()?.usage)
}

/// Reads the stack of a blocked thread.
fn from_outside(call: Call) -> Option<Backtrace> {
    let (Call::Inside {
        stack_pointer, pc, ..
    }
    | Call::Fault { stack_pointer, pc }) = call
    else {
        return None;
    };
    let start = usize::try_from(stack_pointer).ok()?;
    let mut bytes = vec![0; capture::STACK_BYTES];
    let read = memory::read(start, &mut bytes);
    bytes.truncate(read);
    let registers = Registers::at(pc, stack_pointer);
    let stack = StackCopy {
        start: stack_pointer,
        bytes: &bytes,
    };
    Some(unwind(registers, stack).into())
}

/// Unwinds the stack that the thread has copied.
fn of_capture(capture: &ThreadSnapshot) -> Backtrace {
    let stack = StackCopy {
        start: capture.stack_start as u64,
        bytes: &capture.stack,
    };
    unwind(capture.registers, stack).into()
}

impl From<Chain> for Backtrace {
    fn from(chain: Chain) -> Self {
        let missing = match chain.end {
            ChainEnd::Root => None,
            ChainEnd::Cut => Some("the stack is deeper than was copied"),
            ChainEnd::TooDeep => Some("there are more frames"),
            ChainEnd::NoTables | ChainEnd::Unknown => {
                Some("the rest has no unwind tables that lead on from here")
            }
        };
        Self {
            addresses: chain.addresses,
            missing,
        }
    }
}

impl fmt::Display for Backtrace {
    /// One line per frame: function, file and line if they are known, otherwise the address.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let symbolizer = Symbolizer::new();
        let mut process = Process::new(Pid::Slf);
        // The other way to open the files needs CAP_SYS_ADMIN.
        process.map_files = false;
        let names = symbolizer.symbolize(&Source::from(process), Input::AbsAddr(&self.addresses));
        let names = names.unwrap_or_default();
        for (number, address) in self.addresses.iter().enumerate() {
            if number == SHOWN {
                let more = self.addresses.len() - SHOWN;
                return writeln!(f, "       (and {more} more)");
            }
            let Some(Symbolized::Sym(symbol)) = names.get(number) else {
                writeln!(f, "  {number:>3}: {address:#x}")?;
                continue;
            };
            let inlined = symbol.inlined.iter().rev();
            let mut calls: Vec<(&str, Option<&CodeInfo<'_>>)> = inlined
                .map(|call| (&*call.name, call.code_info.as_ref()))
                .collect();
            calls.push((&symbol.name, symbol.code_info.as_deref()));
            let is_root_of_task = calls.iter().any(|(name, _)| name.contains(ROOT_OF_TASK));
            if is_root_of_task {
                let own = calls
                    .iter()
                    .position(|(name, _)| name.contains(CATCHES_PANICS));
                calls.truncate(own.unwrap_or(0));
            }
            for (name, place) in calls {
                frame(f, number, name, place)?;
            }
            if is_root_of_task {
                return Ok(());
            }
        }
        self.missing
            .map_or(Ok(()), |missing| writeln!(f, "       ({missing})"))
    }
}

/// Text from a file, with control characters escaped, because a terminal would obey them.
struct Visible<'a>(&'a str);

impl fmt::Display for Visible<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            if character.is_control() {
                write!(f, "{}", character.escape_default())?;
            } else {
                f.write_char(character)?;
            }
        }
        Ok(())
    }
}

/// Writes one frame, or a function that was inlined into it and so has the same number.
fn frame(
    f: &mut fmt::Formatter<'_>,
    number: usize,
    name: &str,
    place: Option<&CodeInfo<'_>>,
) -> fmt::Result {
    write!(f, "  {number:>3}: {}", Visible(name))?;
    if let Some(place) = place {
        let path = place.to_path();
        write!(f, " at {}", Visible(&path.to_string_lossy()))?;
        if let Some(line) = place.line {
            write!(f, ":{line}")?;
        }
    }
    writeln!(f)
}
