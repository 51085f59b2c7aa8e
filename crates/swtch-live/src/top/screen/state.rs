//! Keeps what was chosen with keys. Pure: a key and the rows that are shown give the next state.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use swtch_core::{CgroupId, Pid, Reason, TaskKey};
use swtch_report::report::live::{LiveColumn, LiveTask, LiveView, RowKey};

/// The reaction to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reaction {
    /// Nothing is different.
    Nothing,
    /// The page must be drawn again.
    Redraw,
    /// The page must be drawn again, and the terminal may show something else than it was told.
    Renew,
    /// The program is to end.
    Leave,
    /// The program is to stop until the shell lets it go on.
    Suspend,
    /// The processes that were asked for have ended.
    TargetsEnded,
}

/// The threads that are shown, when a row was entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// The threads of a process.
    Process(Option<Pid>),
    /// The threads of a cgroup.
    Cgroup(Option<CgroupId>),
    /// The threads that left a CPU for this reason.
    Reason(Reason),
    /// The threads of a process that wait for a futex word.
    Lock(Option<Pid>, u64),
}

/// The column by which the rows of a view are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortOrder {
    /// Its place among the columns of the view.
    pub column: usize,
    /// True if the least comes first.
    pub is_ascending: bool,
}

/// The state of the screen.
#[derive(Clone, Debug)]
pub struct ScreenState {
    pub view: LiveView,
    orders: [SortOrder; LiveView::ALL.len()],
    /// Only rows whose names hold this text.
    pub filter: String,
    /// True if keys go into `filter`.
    pub is_typing: bool,
    /// The view that was entered from, and what was entered.
    pub within: Option<(LiveView, Within)>,
    /// The thread whose page is shown.
    pub detail: Option<TaskKey>,
    /// Lines of that page above the first that is shown.
    pub scrolled: usize,
    /// The first line of help that is shown; `None` while help is not open.
    pub help: Option<usize>,
    /// True if the numbers stand still.
    pub is_frozen: bool,
    /// True if processes stand below their parents.
    pub is_tree: bool,
    /// The row that is chosen; `None` for the first.
    pub selected: Option<RowKey>,
}

/// Rows that the keys for a page up and down go by.
const PAGE: usize = 10;

impl ScreenState {
    /// The first page: a view, sorted by switches.
    pub fn new(view: LiveView) -> Self {
        let by_switches = |view: LiveView| SortOrder {
            column: place_of_switches(view),
            is_ascending: false,
        };
        Self {
            view,
            orders: LiveView::ALL.map(by_switches),
            filter: String::new(),
            is_typing: false,
            within: None,
            detail: None,
            scrolled: 0,
            help: None,
            is_frozen: false,
            is_tree: false,
            selected: None,
        }
    }

    /// By what the rows of the view are sorted.
    pub fn order(&self) -> SortOrder {
        self.orders[place_of(self.view)]
    }

    /// Takes a key. `rows` are the rows that are shown, in order.
    pub fn press(&mut self, key: KeyEvent, rows: &[RowKey]) -> Reaction {
        let with_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c') if with_control => return Reaction::Leave,
            KeyCode::Char('z') if with_control => return Reaction::Suspend,
            KeyCode::Char('l') if with_control => return Reaction::Renew,
            KeyCode::Char(_) if with_control => return Reaction::Nothing,
            _ => {}
        }
        if self.is_typing {
            return self.type_filter(key.code);
        }
        if let Some(line) = self.help {
            return self.read_help(key.code, line);
        }
        match key.code {
            KeyCode::Char('q') => Reaction::Leave,
            KeyCode::Esc | KeyCode::Backspace => self.go_back(),
            KeyCode::Char('?' | 'h') | KeyCode::F(1) => redraw(|| self.help = Some(0)),
            KeyCode::Char(' ') => redraw(|| self.is_frozen = !self.is_frozen),
            code if self.detail.is_some() => self.scroll(code),
            KeyCode::Char('/') => redraw(|| self.is_typing = true),
            KeyCode::Char('t') => redraw(|| self.is_tree = !self.is_tree),
            KeyCode::Char('r') => redraw(|| self.order_mut().is_ascending ^= true),
            KeyCode::Char(digit @ '1'..='7') => self.show_view(digit),
            KeyCode::Tab => self.step_view(1),
            KeyCode::BackTab => self.step_view(LiveView::ALL.len() - 1),
            KeyCode::Left | KeyCode::Char('<') => self.step_column(false),
            KeyCode::Right | KeyCode::Char('>') => self.step_column(true),
            KeyCode::Enter => self.enter(rows),
            code => self.move_selection(code, rows),
        }
    }

    fn order_mut(&mut self) -> &mut SortOrder {
        &mut self.orders[place_of(self.view)]
    }

    fn type_filter(&mut self, code: KeyCode) -> Reaction {
        /// A filter is typed by hand.
        const LONGEST: usize = 60;
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(c) if self.filter.chars().count() < LONGEST => self.filter.push(c),
            _ => return Reaction::Nothing,
        }
        Reaction::Redraw
    }

    /// Moves the page of a thread. How far it goes is known only where it is drawn: see `detail`.
    fn scroll(&mut self, code: KeyCode) -> Reaction {
        self.scrolled = match code {
            KeyCode::Down | KeyCode::Char('j') => self.scrolled + 1,
            KeyCode::Up | KeyCode::Char('k') => self.scrolled.saturating_sub(1),
            KeyCode::PageDown => self.scrolled + PAGE,
            KeyCode::PageUp => self.scrolled.saturating_sub(PAGE),
            KeyCode::Home => 0,
            _ => return Reaction::Nothing,
        };
        Reaction::Redraw
    }

    fn read_help(&mut self, code: KeyCode, line: usize) -> Reaction {
        self.help = match code {
            KeyCode::Down | KeyCode::Char('j') => Some(line + 1),
            KeyCode::Up | KeyCode::Char('k') => Some(line.saturating_sub(1)),
            KeyCode::PageDown | KeyCode::Char(' ') => Some(line + PAGE),
            KeyCode::PageUp => Some(line.saturating_sub(PAGE)),
            KeyCode::Home => Some(0),
            _ => None,
        };
        Reaction::Redraw
    }

    /// Closes what was opened last; with nothing open, the program ends.
    fn go_back(&mut self) -> Reaction {
        if self.detail.take().is_some() {
            return Reaction::Redraw;
        }
        if let Some((view, _)) = self.within.take() {
            self.view = view;
            self.selected = None;
            return Reaction::Redraw;
        }
        if !self.filter.is_empty() {
            self.filter.clear();
            return Reaction::Redraw;
        }
        Reaction::Leave
    }

    fn show_view(&mut self, digit: char) -> Reaction {
        let place = digit.to_digit(10).and_then(|n| usize::try_from(n).ok());
        let view = place.and_then(|place| LiveView::ALL.get(place.checked_sub(1)?));
        if let Some(view) = view {
            self.view = *view;
            self.within = None;
            self.selected = None;
        }
        Reaction::Redraw
    }

    fn step_view(&mut self, by: usize) -> Reaction {
        self.view = LiveView::ALL[(place_of(self.view) + by) % LiveView::ALL.len()];
        self.within = None;
        self.selected = None;
        Reaction::Redraw
    }

    fn step_column(&mut self, is_right: bool) -> Reaction {
        let last = LiveColumn::of(self.view).len() - 1;
        let order = self.order_mut();
        order.column = if is_right {
            (order.column + 1).min(last)
        } else {
            order.column.saturating_sub(1)
        };
        Reaction::Redraw
    }

    /// Returns true if a thread, or the threads of a row, are opened.
    pub const fn has_opened(&self) -> bool {
        self.within.is_some() || self.detail.is_some()
    }

    /// Returns true if what is shown needs locks to be told apart.
    pub const fn looks_at_locks(&self) -> bool {
        let within_lock = matches!(self.within, Some((_, Within::Lock(..))));
        matches!(self.view, LiveView::Lock) || within_lock || self.detail.is_some()
    }

    /// Returns true if this thread is shown also if it only waits.
    pub fn looks_at(&self, key: TaskKey, task: Option<&LiveTask>) -> bool {
        let pid = task.map(|task| task.pid);
        let is_within = match self.within {
            Some((_, Within::Process(of) | Within::Lock(of, _))) => pid == of,
            Some((_, Within::Cgroup(id))) => task.map(|task| task.cgroup) == id,
            Some((_, Within::Reason(_))) | None => false,
        };
        is_within || self.detail == Some(key)
    }

    /// A process, cgroup, reason or lock shows its threads; a thread, its page; a pair, that of the thread
    /// that lost its CPU.
    fn enter(&mut self, rows: &[RowKey]) -> Reaction {
        let Some(key) = rows.get(self.place(rows)).copied() else {
            return Reaction::Nothing;
        };
        let within = match key {
            RowKey::Thread(task) | RowKey::Pair(_, task, _) => {
                self.detail = Some(task);
                self.scrolled = 0;
                return Reaction::Redraw;
            }
            RowKey::Process(pid) => Within::Process(pid),
            RowKey::Cgroup(id) => Within::Cgroup(id),
            RowKey::Reason(reason) => Within::Reason(reason),
            RowKey::Lock(pid, futex) => Within::Lock(pid, futex),
            RowKey::Cpu(_) => return Reaction::Nothing,
        };
        self.within = Some((self.view, within));
        self.view = LiveView::Thread;
        self.selected = None;
        Reaction::Redraw
    }

    /// The place of the row that is chosen; that of the first if it is not there any more.
    pub fn place(&self, rows: &[RowKey]) -> usize {
        let place = self.selected;
        let place = place.and_then(|key| rows.iter().position(|row| *row == key));
        place.unwrap_or(0)
    }

    fn move_selection(&mut self, code: KeyCode, rows: &[RowKey]) -> Reaction {
        let Some(last) = rows.len().checked_sub(1) else {
            return Reaction::Nothing;
        };
        let place = self.place(rows);
        let place = match code {
            KeyCode::Down | KeyCode::Char('j') => (place + 1).min(last),
            KeyCode::Up | KeyCode::Char('k') => place.saturating_sub(1),
            KeyCode::PageDown => (place + PAGE).min(last),
            KeyCode::PageUp => place.saturating_sub(PAGE),
            KeyCode::Home => 0,
            KeyCode::End => last,
            _ => return Reaction::Nothing,
        };
        // The first row is whichever is first, not the one that is there now.
        self.selected = (place > 0).then(|| rows[place]);
        Reaction::Redraw
    }
}

fn redraw(change: impl FnOnce()) -> Reaction {
    change();
    Reaction::Redraw
}

fn place_of(view: LiveView) -> usize {
    let mut views = LiveView::ALL.iter();
    views
        .position(|one| *one == view)
        .expect("the list has all views")
}

fn place_of_switches(view: LiveView) -> usize {
    let mut columns = LiveColumn::of(view).iter();
    columns
        .position(|column| column.key == "switches_per_s")
        .expect("each view has this column")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pressed(state: &mut ScreenState, codes: &[KeyCode], rows: &[RowKey]) -> Reaction {
        let press = |code: &KeyCode| state.press(KeyEvent::from(*code), rows);
        codes.iter().map(press).last().unwrap()
    }

    fn chars(text: &str) -> Vec<KeyCode> {
        text.chars().map(KeyCode::Char).collect()
    }

    #[test]
    fn escape_closes_what_was_opened_last_and_leaves_at_the_end() {
        let mut state = ScreenState::new(LiveView::Process);
        let process = RowKey::Process(Some(Pid::new(7)));
        pressed(&mut state, &[KeyCode::Enter], &[process]);
        assert_eq!(state.view, LiveView::Thread);
        let thread = RowKey::Thread(TaskKey::new(1));
        pressed(&mut state, &[KeyCode::Enter], &[thread]);
        assert_eq!(state.detail, Some(TaskKey::new(1)));
        assert_eq!(pressed(&mut state, &[KeyCode::Esc], &[]), Reaction::Redraw);
        assert_eq!(pressed(&mut state, &[KeyCode::Esc], &[]), Reaction::Redraw);
        assert_eq!((state.view, state.within), (LiveView::Process, None));
        assert_eq!(pressed(&mut state, &[KeyCode::Esc], &[]), Reaction::Leave);
    }

    /// `q` in a filter is a letter.
    #[test]
    fn keys_go_into_the_filter_while_it_is_typed() {
        let mut state = ScreenState::new(LiveView::Thread);
        assert_eq!(pressed(&mut state, &chars("/postq"), &[]), Reaction::Redraw);
        pressed(&mut state, &[KeyCode::Backspace, KeyCode::Enter], &[]);
        assert_eq!((state.filter.as_str(), state.is_typing), ("post", false));
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        state.is_typing = true;
        assert_eq!(state.press(control_c, &[]), Reaction::Leave);
    }

    #[test]
    fn the_chosen_row_is_followed_when_it_moves() {
        let rows = [1, 2, 3].map(|key| RowKey::Thread(TaskKey::new(key)));
        let mut state = ScreenState::new(LiveView::Thread);
        pressed(&mut state, &[KeyCode::Down], &rows);
        assert_eq!(state.place(&rows), 1);
        let moved = [rows[1], rows[0], rows[2]];
        assert_eq!(state.place(&moved), 0);
        assert_eq!(state.place(&[rows[2]]), 0, "it is gone");
        pressed(&mut state, &[KeyCode::End], &rows);
        assert_eq!(state.place(&rows), 2);
        assert_eq!(
            pressed(&mut state, &[KeyCode::Down], &[]),
            Reaction::Nothing
        );
    }

    #[test]
    fn any_key_is_taken_in_any_state() {
        let rows = [RowKey::Cpu(0), RowKey::Reason(Reason::Futex)];
        let codes = [
            KeyCode::Enter,
            KeyCode::Esc,
            KeyCode::Tab,
            KeyCode::BackTab,
            KeyCode::Left,
            KeyCode::Right,
            KeyCode::PageUp,
            KeyCode::PageDown,
            KeyCode::Home,
            KeyCode::End,
            KeyCode::F(1),
            KeyCode::Null,
        ];
        let letters = ('!'..='~').map(KeyCode::Char);
        let all: Vec<_> = letters.chain(codes).collect();
        for first in &all {
            for second in &all {
                let mut state = ScreenState::new(LiveView::Pair);
                for code in [first, second, first] {
                    state.press(KeyEvent::from(*code), &rows);
                }
                assert!(state.order().column < LiveColumn::of(state.view).len());
            }
        }
    }
}
