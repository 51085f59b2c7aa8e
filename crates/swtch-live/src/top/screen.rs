//! Frames on the screen of a terminal.
//!
//! ```text
//! key ─▶ ScreenState ─┐
//!                     ├─ page: lines of text ─▶ ratatui ─▶ terminal
//! MadeFrame ─▶ Shown ─┘
//! ```
//!
//! What is shown is a list of lines, whatever the size of the terminal: nothing can be drawn beside
//! it. The terminal is put back in every way in which this can end.

mod detail;
mod help;
mod page;
mod rows;
mod state;
mod table;
mod terminal;

#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::widgets::Paragraph;
use swtch_output::message;
use swtch_report::report::host_words;
use swtch_report::report::live::{
    FrameNames, LiveTask, LiveTasks, LiveView, RateHistory, UserLevelRates,
};

use super::TopRequest;
use super::session::{LimitsById, MadeFrame, TAKE_NAMES_EVERY, TopSession};
use state::{Reaction, ScreenState};
use swtch_record::record::Target;
use terminal::{TerminalInput, TerminalScreen};

/// All that a page shows, apart from what was chosen with keys.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// The rates.
    pub made: &'a MadeFrame,
    /// Names of its rows.
    pub names: FrameNames<'a>,
    /// Rates of earlier frames.
    pub history: &'a RateHistory,
    /// The machine, and whose switches are counted; not escaped.
    pub heading: &'a str,
    /// Hooks that this kernel lacks.
    pub absent_hooks: &'a [String],
}

/// Above so many threads in a frame, only what is shown is made: other views begin, and have rows, with
/// the next frame after they are chosen.
const MOST_FOR_ALL_VIEWS: usize = 2_000;

/// Shows frames until a key or a signal ends it, or the processes have ended.
///
/// # Errors
/// When the terminal cannot be read or written.
pub fn run(session: TopSession, request: &TopRequest) -> Result<u8> {
    let mut live = LiveScreen::new(session, request);
    let ended = live.go_on(&mut TerminalScreen::enter()?)?;
    live.session.tell_missing();
    if ended == Reaction::TargetsEnded {
        message!("swtch: the processes have ended");
    }
    Ok(0)
}

/// A frame that is kept while the display is frozen, with the names of its rows.
struct FrozenFrame {
    made: MadeFrame,
    tasks: LiveTasks,
    limits: LimitsById,
    user_level: UserLevelRates,
}

struct LiveScreen<'a> {
    session: TopSession,
    request: &'a TopRequest,
    state: ScreenState,
    history: RateHistory,
    made: MadeFrame,
    frozen: Option<FrozenFrame>,
    heading: String,
    absent_hooks: Vec<String>,
}

impl<'a> LiveScreen<'a> {
    fn new(session: TopSession, request: &'a TopRequest) -> Self {
        let scope = swtch_record::record::facts::scope(&request.capture.target);
        let host = host_words(&session.host).to_line();
        Self {
            heading: format!("{scope} on {host}"),
            absent_hooks: session.absent_hooks(),
            state: ScreenState::new(request.by),
            history: RateHistory::default(),
            made: MadeFrame::default(),
            frozen: None,
            session,
            request,
        }
    }

    fn go_on(&mut self, screen: &mut TerminalScreen) -> Result<Reaction> {
        self.draw(screen)?;
        loop {
            if self.session.signals.any() {
                return Ok(Reaction::Leave);
            }
            if self.session.targets_are_gone() {
                return Ok(Reaction::TargetsEnded);
            }
            let left = self.session.until_frame(self.request.interval);
            if left.is_zero() {
                self.next_frame()?;
                self.draw(screen)?;
                continue;
            }
            // The terminal's events and the signals are noticed within this time.
            match self.react(left.min(TAKE_NAMES_EVERY))? {
                Reaction::Leave => return Ok(Reaction::Leave),
                Reaction::Suspend => screen.suspend()?,
                Reaction::Renew => screen.take_again()?,
                _ if screen.take_stop_request() => screen.suspend()?,
                Reaction::Nothing if !screen.take_resumption() => {
                    self.session.keep_up()?;
                    continue;
                }
                _ => {}
            }
            self.follow_freeze();
            self.session.watch(self.state.detail)?;
            self.draw(screen)?;
        }
    }

    fn next_frame(&mut self) -> Result<()> {
        let views = self.views();
        let state = &self.state;
        // Of a whole machine, most threads sleep: a row is for those that were opened.
        self.made = match (&self.request.capture.target, state.has_opened()) {
            (Target::All, false) => self.session.frame(&views, None)?,
            (Target::All, true) => {
                let is_looked_at = |task, of: Option<&LiveTask>| state.looks_at(task, of);
                self.session.frame(&views, Some(&is_looked_at))?
            }
            _ => self.session.frame(&views, Some(&|_, _| true))?,
        };
        self.history.meet(&self.made.frame);
        Ok(())
    }

    fn views(&self) -> Vec<LiveView> {
        let mut views = match (self.made.frame.threads, self.state.detail) {
            (..=MOST_FOR_ALL_VIEWS, _) => LiveView::ALL.to_vec(),
            (_, None) => vec![self.state.view, LiveView::Lock],
            (_, Some(_)) => vec![LiveView::Thread, LiveView::Pair, LiveView::Lock],
        };
        // Locks make many more groups in the kernel, so they are told apart only while somebody looks.
        let looks_at_locks = self.state.looks_at_locks();
        views.retain(|view| *view != LiveView::Lock || looks_at_locks);
        views
    }

    /// Takes the keys that were pressed within this time, all that wait at once.
    fn react(&mut self, wait: Duration) -> Result<Reaction> {
        let mut reaction = Reaction::Nothing;
        if terminal::wait_for_input(wait)? == TerminalInput::Gone {
            return Ok(Reaction::Leave);
        }
        let begin = Instant::now();
        while event::poll(Duration::ZERO).context("waiting for keys")? {
            match event::read().context("reading keys")? {
                Event::Key(key) if key.kind != KeyEventKind::Release => {
                    let rows = self.keys_of_rows();
                    let answer = self.state.press(key, &rows);
                    if answer != Reaction::Nothing {
                        reaction = answer;
                    }
                    if matches!(answer, Reaction::Leave | Reaction::Suspend) {
                        break;
                    }
                }
                Event::Resize(..) => reaction = Reaction::Redraw,
                _ => {}
            }
            // Somebody who holds a key must see what it does.
            if begin.elapsed() > TAKE_NAMES_EVERY {
                break;
            }
        }
        Ok(reaction)
    }

    fn keys_of_rows(&self) -> Vec<swtch_report::report::live::RowKey> {
        let shown = self.shown();
        let rows = rows::chosen(&self.state, &shown);
        rows.iter().map(|row| row.row.key).collect()
    }

    /// Keeps the frame that is shown when the display is frozen, and lets it go afterwards.
    fn follow_freeze(&mut self) {
        match (self.state.is_frozen, self.frozen.is_some()) {
            (true, false) => {
                let names = self.session.names();
                self.frozen = Some(FrozenFrame {
                    made: self.made.clone(),
                    tasks: names.tasks.clone(),
                    limits: names.cgroups.clone(),
                    user_level: names.user_level.clone(),
                });
            }
            (false, true) => self.frozen = None,
            _ => {}
        }
    }

    fn shown(&self) -> Shown<'_> {
        let (made, names) = match &self.frozen {
            Some(frozen) => (
                &frozen.made,
                FrameNames {
                    tasks: &frozen.tasks,
                    cgroups: &frozen.limits,
                    user_level: &frozen.user_level,
                },
            ),
            None => (&self.made, self.session.names()),
        };
        Shown {
            made,
            names,
            history: &self.history,
            heading: &self.heading,
            absent_hooks: &self.absent_hooks,
        }
    }

    fn draw(&mut self, screen: &mut TerminalScreen) -> Result<()> {
        let look = screen.look();
        let shown = self.shown();
        let state = &self.state;
        let drawn = screen.terminal().draw(|frame| {
            let area = frame.area();
            let lines = page::lines(state, &shown, look, area.width, area.height);
            frame.render_widget(Paragraph::new(lines), area);
        });
        drawn.context("drawing on the terminal").map(|_| ())
    }
}
