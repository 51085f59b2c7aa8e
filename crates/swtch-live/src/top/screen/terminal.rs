//! The terminal: taken, given back for a while, and put back at the end.
//!
//! | ends by | put back by |
//! |---|---|
//! | a key, SIGINT, SIGTERM, SIGHUP, an error | `Drop` |
//! | a panic | the hook that `ratatui::try_init` sets |
//! | SIGTSTP, Ctrl-Z | [`TerminalScreen::suspend`], which stops the process then |
//! | SIGKILL, SIGSTOP | nobody can: `reset` does |

use std::fs::File;
use std::io::{IsTerminal as _, stdin, stdout};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{Signal, raise};
use nix::sys::time::TimeSpec;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{Clear, ClearType, EnterAlternateScreen, enable_raw_mode};
use ratatui::style::{Color, Modifier, Style};
use ratatui::{DefaultTerminal, Terminal};
use signal_hook::consts::{SIGCONT, SIGTSTP};

/// The way in which things are told apart: with colours, or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Colours of the terminal's own palette.
    Coloured,
    /// Bold, dim, underlined and reversed only (`NO_COLOR`).
    Plain,
}

impl Look {
    /// The user's choice (<https://no-color.org>).
    fn of_environment() -> Self {
        match std::env::var_os("NO_COLOR") {
            Some(words) if !words.is_empty() => Self::Plain,
            _ => Self::Coloured,
        }
    }

    /// Returns the style of what is chosen: a view, a row.
    pub fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// The column by which rows are sorted.
    pub fn sorted(self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED);
        self.coloured(style, Color::Cyan)
    }

    /// Numbers that the page is about.
    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Returns the style of what is less important.
    pub fn faint(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// Returns the style of what should be looked at: losses, throttling.
    pub fn alarm(self) -> Style {
        self.coloured(Style::new().add_modifier(Modifier::BOLD), Color::Red)
    }

    /// Small curves.
    pub fn curve(self) -> Style {
        self.coloured(Style::new(), Color::Cyan)
    }

    fn coloured(self, style: Style, colour: Color) -> Style {
        match self {
            Self::Coloured => style.fg(colour),
            Self::Plain => style,
        }
    }
}

/// The state of the terminal's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TerminalInput {
    /// Keys, a new size, a signal, or nothing.
    Maybe,
    /// It was closed: no key will ever come.
    Gone,
}

/// Waits until a key is pressed, or this time is over. crossterm must not be asked for keys of a
/// terminal that was closed: it then reads for ever (0.29, `UnixInternalEventSource::try_read`).
///
/// # Errors
/// When the system refuses to wait.
pub fn wait_for_input(wait: Duration) -> Result<TerminalInput> {
    let input = stdin();
    // Keys come from /dev/tty if stdin is something else, such as a pipe.
    let terminal = if input.is_terminal() {
        None
    } else {
        File::open("/dev/tty").ok()
    };
    let watched = terminal.as_ref().map_or_else(|| input.as_fd(), AsFd::as_fd);
    let mut watched = [PollFd::new(watched, PollFlags::POLLIN)];
    match ppoll(&mut watched, Some(TimeSpec::from_duration(wait)), None) {
        Ok(_) | Err(Errno::EINTR) => {}
        Err(error) => return Err(error).context("waiting for keys"),
    }
    let closed = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
    match watched[0].revents() {
        Some(events) if events.intersects(closed) => Ok(TerminalInput::Gone),
        _ => Ok(TerminalInput::Maybe),
    }
}

/// The terminal while it shows the screen.
pub struct TerminalScreen {
    terminal: DefaultTerminal,
    look: Look,
    stop_asked: Arc<AtomicBool>,
    resumed: Arc<AtomicBool>,
}

impl TerminalScreen {
    /// Takes the terminal: no echo, no lines, the second screen.
    ///
    /// # Errors
    /// When there is none, or signals cannot be caught.
    pub fn enter() -> Result<Self> {
        let flag = |signal| -> Result<Arc<AtomicBool>> {
            let flag = Arc::new(AtomicBool::new(false));
            signal_hook::flag::register(signal, Arc::clone(&flag)).context("catching signals")?;
            Ok(flag)
        };
        let (stop_asked, resumed) = (flag(SIGTSTP)?, flag(SIGCONT)?);
        let terminal = ratatui::try_init().context("taking the terminal")?;
        Ok(Self {
            terminal,
            look: Look::of_environment(),
            stop_asked,
            resumed,
        })
    }

    /// Returns the terminal to draw on.
    pub const fn terminal(&mut self) -> &mut DefaultTerminal {
        &mut self.terminal
    }

    /// Returns the way in which things are told apart on it.
    pub const fn look(&self) -> Look {
        self.look
    }

    /// Returns true if SIGTSTP came since the last time.
    pub fn take_stop_request(&self) -> bool {
        self.stop_asked.swap(false, Ordering::Relaxed)
    }

    /// Returns true if the process was stopped from outside (SIGSTOP) and goes on: the shell has used the terminal
    /// meanwhile, so it is taken anew.
    pub fn take_resumption(&mut self) -> bool {
        let was_stopped = self.resumed.swap(false, Ordering::Relaxed);
        if was_stopped {
            // An error comes again when the next page is drawn.
            let _ = self.take_again();
        }
        was_stopped
    }

    /// Gives the terminal back, stops this process, and takes the terminal when it goes on.
    ///
    /// # Errors
    /// When the terminal cannot be taken again.
    pub fn suspend(&mut self) -> Result<()> {
        ratatui::restore();
        // The shell shows what it shows for any job. Handlers stay as they are: SIGTSTP is caught.
        raise(Signal::SIGSTOP).context("stopping")?;
        self.resumed.store(false, Ordering::Relaxed);
        self.stop_asked.store(false, Ordering::Relaxed);
        self.take_again()
    }

    /// Takes the terminal whatever state it is in, and forgets what it shows: the next page is drawn
    /// whole. The hook for panics is set already.
    ///
    /// # Errors
    /// When the terminal cannot be taken.
    pub fn take_again(&mut self) -> Result<()> {
        enable_raw_mode().context("taking the terminal")?;
        execute!(stdout(), EnterAlternateScreen, Clear(ClearType::All))
            .context("clearing the terminal")?;
        // `Terminal::clear` would ask the terminal where its cursor is, and wait for the answer.
        let fresh = Terminal::new(CrosstermBackend::new(stdout()));
        self.terminal = fresh.context("taking the terminal")?;
        Ok(())
    }
}

impl Drop for TerminalScreen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}
