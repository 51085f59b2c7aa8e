//! The call stack of the thread that stalls, or why there is none.
//!
//! Three ways, the gentlest first:
//!
//! 1. A thread that is blocked stands still, and `/proc` tells its stack pointer: its stack is
//!    read from outside, and the thread notices nothing. Registers that a caller keeps are not
//!    known, so the walk may end early.
//! 2. Where the kernel restarts what a signal interrupts, the thread is asked (`capture`).
//! 3. A thread that does not run cannot answer; then there is no backtrace but of way 1.
//!
//! Names are found when the backtrace is shown, not before: reading symbol tables takes up to
//! seconds, and the monitor has quanta to end meanwhile.

use std::fmt::{self, Write};
use std::time::Duration;

use blazesym::Pid;
use blazesym::symbolize::source::{Process, Source};
use blazesym::symbolize::{CodeInfo, Input, Symbolized, Symbolizer};

use super::capture::{self, Capture, Usage};
use super::evidence::{Call, Sample};
use super::memory;
use super::unwind::{self, Frames, Registers, Stack};

/// How long a running thread may take to answer. It answers at its next return to user mode, where
/// an interrupt takes it at once; the monitor has other things to do.
const PATIENCE: Duration = Duration::from_millis(4);

/// Frames that are shown at most.
const SHOWN: usize = 32;

/// Part of the name of what runs a task's closure: all beyond is this crate's, and the same in each
/// report.
const ROOT_OF_TASK: &str = "swtch_fiber::task::";

/// Part of the name of what stands between that and the closure, inlined all into one frame.
const CATCHES_PANICS: &str = "AssertUnwindSafe";

/// A call stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backtrace {
    /// Addresses in code, the innermost first; each lies inside of its call.
    pub addresses: Vec<u64>,
    /// What is missing, in words; `None` when it reaches the root of the stack.
    pub missing: Option<&'static str>,
}

/// Takes the backtrace of a thread whose state was just sampled, and what it said of itself.
pub fn take(tid: i32, sample: &Sample) -> (Backtrace, Option<Usage>) {
    let outside = from_outside(sample.call);
    let is_asked = match sample.call {
        Call::Running | Call::Unknown => true,
        Call::Inside { number, .. } => {
            capture::restarts(number) && outside.as_ref().is_none_or(|b| b.missing.is_some())
        }
        // The signal would wait until the page is there.
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

/// What a thread says of itself, if it is one that may be asked.
pub fn usage(tid: i32, sample: &Sample) -> Option<Usage> {
    let is_asked = matches!(sample.call, Call::Running | Call::Unknown);
    let capture = is_asked.then(|| capture::capture(tid, PATIENCE));
    Some(capture.flatten()?.usage)
}

/// Reads the stack of a thread that stands still.
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
    let stack = Stack {
        start: stack_pointer,
        bytes: &bytes,
    };
    Some(unwind::unwind(registers, stack).into())
}

/// Unwinds what the thread has copied.
fn of_capture(capture: &Capture) -> Backtrace {
    let stack = Stack {
        start: capture.stack_start as u64,
        bytes: &capture.stack,
    };
    unwind::unwind(capture.registers, stack).into()
}

impl From<Frames> for Backtrace {
    fn from(frames: Frames) -> Self {
        Self {
            addresses: frames.addresses,
            missing: (!frames.reaches_root)
                .then_some("the rest has no unwind tables, or the stack is deeper than was copied"),
        }
    }
}

impl fmt::Display for Backtrace {
    /// A line a frame: function, file and line where they are known, else the address.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let symbolizer = Symbolizer::new();
        let mut process = Process::new(Pid::Slf);
        // Its other way into the files needs CAP_SYS_ADMIN.
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

/// Text of a file, as it is but for what a terminal would obey.
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

/// One frame, or a function that was inlined into it and so has the same number.
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
