//! Shows the rates of both levels again and again, until the target ends or the user stops it.

use std::io::{IsTerminal as _, stdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use swtch_capture::signals::stop_on_signals;
use swtch_core::Nanos;
use swtch_observe::{Mode, Page, Snapshot};
use swtch_output::format::Format;
use swtch_output::message;
use swtch_output::text::wrapped;
use swtch_report::report::Sheet;

use super::head::{FiberHead, name};
use super::lines::{self, LevelLayout};
use super::price::LevelPrices;
use super::rates::{COLUMNS, LevelsReading, Rates};
use super::{FiberRequest, View, tell, write};

/// A request to stop, or the end of the target, is noticed within this time.
const STEP: Duration = Duration::from_millis(50);

/// On a stream, the head is written again after this many lines.
const LINES_A_HEAD: usize = 40;

const CLEAR: &str = "\x1b[H\x1b[2J";

/// Shows the rates until the target ends, the requested number is reached, or a signal arrives.
///
/// # Errors
/// If there is no living scheduler, or stdout cannot be written.
pub fn show(page: &Page, request: &FiberRequest) -> Result<()> {
    let first = LevelsReading::at(page)?;
    let modes: Vec<Mode> = first
        .snapshot
        .schedulers
        .iter()
        .map(|row| row.mode)
        .collect();
    let mut show = LiveDisplay {
        page,
        name: name(page.pid()),
        request,
        prices: LevelPrices::find(&modes, request.user_switch_ns),
        began_ns: first.snapshot.taken_monotonic_ns,
        sheet: sheet(request.format),
        lines: 0,
    };
    show.prices_in_words();
    show.go_on(first)
}

fn sheet(format: Format) -> Sheet {
    let mut sheet = Sheet::new("rates", &COLUMNS);
    if format != Format::Csv {
        sheet.notes.push(
            "a switch of the scheduler was tried out by two workers of this program; one of the kernel is \
             the saved price of a preemption (swtch cost --save)"
                .to_owned(),
        );
    }
    sheet
}

struct LiveDisplay<'a> {
    page: &'a Page,
    /// The name of the target, read while it was alive.
    name: String,
    request: &'a FiberRequest,
    prices: LevelPrices,
    began_ns: u64,
    /// The sheet that JSON and CSV are written from.
    sheet: Sheet,
    /// Lines of the table that were written so far.
    lines: usize,
}

/// The reason why a pause between two readings ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Paused {
    Through,
    Stopped,
    TargetEnded,
}

impl LiveDisplay<'_> {
    fn go_on(&mut self, mut before: LevelsReading) -> Result<()> {
        let stop = stop_on_signals()?;
        // A JSON object must end, so if no number of readings was asked for, there is one.
        let looks = match (self.request.count, self.request.format) {
            (None, Format::Json) => Some(1),
            (count, _) => count,
        };
        let mut done = 0;
        let mut paused = Paused::Through;
        while paused == Paused::Through && looks.is_none_or(|looks| done < looks) {
            paused = self.pause(&stop);
            if paused != Paused::Through {
                break;
            }
            let now = LevelsReading::at(self.page)?;
            if now.snapshot.has_ended {
                paused = Paused::TargetEnded;
                break;
            }
            self.show_rates(&before, &now)?;
            before = now;
            done += 1;
        }
        self.end(paused)
    }

    fn pause(&self, stop: &AtomicBool) -> Paused {
        let until = Instant::now() + self.request.interval;
        loop {
            if stop.load(Ordering::Relaxed) {
                return Paused::Stopped;
            }
            if self.page.has_ended() {
                return Paused::TargetEnded;
            }
            match until.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return Paused::Through,
                left => thread::sleep(left.min(STEP)),
            }
        }
    }

    fn show_rates(&mut self, before: &LevelsReading, now: &LevelsReading) -> Result<()> {
        let at = Nanos::from_ns(now.snapshot.taken_monotonic_ns - self.began_ns);
        let rates = now.since(before, &self.prices);
        match self.request.format {
            Format::Table => self.show_lines(&rates, at, now),
            Format::Csv => {
                let head_is_due = self.lines == 0;
                self.lines += 1;
                self.sheet.rows = rates.iter().map(|rates| rates.cells(at)).collect();
                let csv = if head_is_due {
                    self.sheet.to_csv()
                } else {
                    self.sheet.to_csv_rows()
                };
                tell(csv.as_bytes())
            }
            Format::Json => {
                self.sheet
                    .rows
                    .extend(rates.iter().map(|rates| rates.cells(at)));
                Ok(())
            }
        }
    }

    /// On a terminal the screen is written over; elsewhere lines are appended.
    fn show_lines(&mut self, rates: &[Rates], at: Nanos, now: &LevelsReading) -> Result<()> {
        let mut text = String::new();
        let is_screen = stdout().is_terminal();
        let columns = is_screen.then(screen_columns).flatten();
        if is_screen {
            text += CLEAR;
        }
        if is_screen || self.lines == 0 {
            let head = self.head(&now.snapshot).to_text();
            head.lines()
                .for_each(|line| text += &lines_of(line, columns));
        }
        if LevelLayout::fitting(columns) == LevelLayout::Stacked {
            text += &lines::stacked(rates, at);
        } else {
            if is_screen || self.lines.is_multiple_of(LINES_A_HEAD) {
                text += &lines::head();
            }
            rates
                .iter()
                .for_each(|rates| text += &lines::line(rates, at));
        }
        self.lines += rates.len();
        if rates.is_empty() {
            text += "no scheduler is at work in this process now\n";
        }
        if is_screen {
            text += &self.below(columns);
        }
        tell(text.as_bytes())
    }

    /// The lines below the table on a terminal, where everything printed before is overwritten.
    fn below(&self, columns: Option<u16>) -> String {
        let prices = match self.prices.os_ns {
            Some(_) => {
                "each: what one switch takes; the scheduler's as tried out here, the kernel's from the saved \
                 prices. cost %: of one CPU"
            }
            None => {
                "each: what one switch takes, the scheduler's as tried out here; the kernel's is not known: \
                 `swtch cost --save` measures it. cost %: of one CPU"
            }
        };
        let notes = [prices, "Ctrl-C ends this; the process goes on"];
        let lines = notes.map(|note| lines_of(note, columns));
        format!("\n{}{}", lines[0], lines[1])
    }

    fn head(&self, snapshot: &Snapshot) -> FiberHead {
        FiberHead::of(self.page.pid(), &self.name, snapshot)
    }

    /// The last output: the JSON object, or the state in which a target left its counters.
    fn end(&self, paused: Paused) -> Result<()> {
        let snapshot = self.page.snapshot()?;
        let head = self.head(&snapshot);
        if self.request.format == Format::Json {
            return write(&self.sheet, &head, Format::Json);
        }
        if paused == Paused::Stopped
            && self.request.format == Format::Table
            && stdout().is_terminal()
        {
            // The terminal has shown ^C, and the shell's prompt would follow in the same line.
            return tell(b"\n");
        }
        if paused != Paused::TargetEnded {
            return Ok(());
        }
        if self.request.format == Format::Csv {
            message!("swtch: process {} has ended", self.page.pid());
            return Ok(());
        }
        tell(b"\n")?;
        let threads = super::KernelCounters::read(self.page.pid(), &snapshot);
        write(
            &View::Schedulers.sheet(&snapshot, &threads),
            &head,
            Format::Table,
        )
    }

    /// On a stream the notes come first, since it may have no end. A terminal shows them below.
    fn prices_in_words(&self) {
        if self.request.format == Format::Table && !stdout().is_terminal() {
            for note in &self.sheet.notes {
                message!("swtch: {note}");
            }
        }
    }
}

/// The width of the terminal now: it may have changed since the last reading.
fn screen_columns() -> Option<u16> {
    let size = rustix::termios::tcgetwinsize(stdout()).ok()?;
    Some(size.ws_col).filter(|columns| *columns > 0)
}

/// A text of ours, broken between words at the width of the terminal.
fn lines_of(line: &str, columns: Option<u16>) -> String {
    match columns {
        Some(columns) if line.chars().count() > usize::from(columns) => {
            wrapped(line, columns.into()).join("\n") + "\n"
        }
        _ => format!("{line}\n"),
    }
}
