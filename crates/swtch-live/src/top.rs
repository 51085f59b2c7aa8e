//! `swtch top`: rates of context switches while they happen, on a screen or as lines for scripts.
//!
//! ```text
//! attach, as record --summary does ─▶ give up rights ─▶ every second: read the kernel's table
//!     ┌──────────────────────────────────────────────────────────┘ (the programs go on)
//!     └▶ RateFrame: what was added, per second ─┬▶ screen, at a terminal
//!                                           └▶ table, csv, json: one frame after the other
//! ```
//!
//! Nothing is kept of a single switch, and nothing is written to a disk.

mod cgroups;
mod head;
mod screen;
mod session;
mod stacks;
mod stream;
mod user_level;

use std::io::{IsTerminal as _, stdin, stdout};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use swtch_capture::{SpanChoice, require_proc};
use swtch_output::format::Format;
use swtch_report::report::live::LiveView;

pub(crate) use session::{MadeFrame, TAKE_NAMES_EVERY, TopSession};
use swtch_record::record::CaptureRequest;

/// A request of `swtch top`.
#[derive(Clone, Debug)]
pub struct TopRequest {
    /// Whose switches are counted.
    pub capture: CaptureRequest,
    /// True if the right is kept to look at what other users' processes have mapped.
    pub stacks: bool,
    /// The time between two frames.
    pub interval: Duration,
    /// Stop after so many frames; `None` goes on until a signal comes or the processes end.
    pub count: Option<u64>,
    /// The format of frames; `None` shows them on the screen where there is one.
    pub format: Option<Format>,
    /// The thing that a row stands for, in a table and in CSV; on the screen, the first view.
    pub by: LiveView,
    /// Number of rows; `None` means 20 in a table, and all in other formats.
    pub top: Option<usize>,
    /// The price list; `None` for this machine's saved one.
    pub prices: Option<PathBuf>,
    /// Spans by which the counts of each frame are divided.
    pub spans: Vec<SpanChoice>,
    /// Space in the kernel, in groups of switches; `None` for what the threads that there are need.
    pub groups: Option<u32>,
}

/// Shows rates until it is asked to stop; returns the exit code.
///
/// # Errors
/// When the capture cannot start, prices that were named cannot be read, or stdout cannot be written.
pub fn run(request: &TopRequest) -> Result<u8> {
    require_proc()?;
    let session = TopSession::start(request)?;
    match request.output() {
        FrameOutput::Screen => screen::run(session, request),
        FrameOutput::Stream(format) => stream::run(session, request, format),
    }
}

/// The place where frames go.
enum FrameOutput {
    Screen,
    Stream(Format),
}

impl TopRequest {
    /// Returns true if stacks of a thread can be asked for: on a screen, and where it was said.
    fn watches_stacks(&self) -> bool {
        self.stacks || matches!(self.output(), FrameOutput::Screen)
    }

    /// Returns true if the first frame has the view of locks.
    fn begins_with_locks(&self) -> bool {
        self.by == LiveView::Lock || self.format == Some(Format::Json)
    }

    /// The screen, at a terminal that can show one, unless frames or a format were asked for.
    fn output(&self) -> FrameOutput {
        let is_terminal = stdin().is_terminal() && stdout().is_terminal();
        let can_move = std::env::var_os("TERM").is_some_and(|kind| kind != "dumb");
        match (self.format, self.count) {
            (None, None) if is_terminal && can_move => FrameOutput::Screen,
            (format, _) => FrameOutput::Stream(format.unwrap_or_default()),
        }
    }
}
