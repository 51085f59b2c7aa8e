//! The page of help: keys, and what each column of the view says.

use ratatui::text::Line;
use swtch_output::text::{cut, hung, wrapped};
use swtch_report::report::live::LiveColumn;

use super::state::ScreenState;
use super::terminal::Look;

const KEYS: [(&str, &str); 12] = [
    ("1 to 7, Tab", "the views"),
    (
        "up, down, PgUp, PgDn",
        "choose a row; it is followed when it moves. On the page of a thread: scroll",
    ),
    (
        "Enter",
        "open the row: threads of a process (also those that only wait), one thread with its reasons and stacks",
    ),
    ("Esc, Backspace", "back; on the first page, quit"),
    ("left, right", "sort by the column beside (underlined)"),
    ("r", "reverse the order"),
    (
        "/",
        "show only rows whose names hold a text, or whose id is a number",
    ),
    ("t", "put processes below their parents"),
    ("space", "freeze the numbers, or let them go on"),
    ("Ctrl-L", "draw the screen anew"),
    ("Ctrl-Z", "stop; fg goes on"),
    ("q, Ctrl-C", "quit"),
];

/// Notes that hold for all columns.
const NOTES: [&str; 5] = [
    "All numbers are of the last frame, per second or as a share of it. A wait and the run before it count \
     when the thread leaves its CPU the next time. Threads that only wait have a row where they are few: \
     those of a row that was opened, and of the processes that were asked for (-p).",
    "Locks are counted from the moment on when you look at their view or at a thread. Two processes that \
     share a lock have a row each.",
    "Lengths of waits are counted by powers of two: p99 4.19 ms says that 99 of 100 were shorter than that.",
    "Reasons come from the kernel's own events, as those of swtch record. Who held a lock, who woke whom \
     and a time line need a recording: swtch record -p PID.",
    "The page of a thread has its stacks, from the moment on in which the page was opened. User stacks are \
     followed by frame pointers: code that was built without them ends one early.",
];

/// The page from this line on.
pub fn lines(
    state: &ScreenState,
    look: Look,
    first: usize,
    wide: usize,
    high: usize,
) -> Vec<Line<'static>> {
    let wide = wide.max(1);
    let title = "swtch top: help (down, up; any other key closes it)";
    let mut lines = vec![Line::styled(cut(title, wide), look.strong())];
    let body = body(state, look, wide);
    let most = high.saturating_sub(1);
    let first = first.min(body.len().saturating_sub(most));
    lines.extend(body.into_iter().skip(first).take(most));
    lines
}

fn body(state: &ScreenState, look: Look, wide: usize) -> Vec<Line<'static>> {
    let mut body = vec![Line::default()];
    for (key, what) in KEYS {
        body.extend(labelled(&format!("{key:<22}"), what, wide));
    }
    let view = state.view.as_str();
    body.push(Line::default());
    let title = format!("columns of the view by {view}");
    body.push(Line::styled(cut(&title, wide), look.strong()));
    for column in LiveColumn::of(state.view) {
        body.extend(labelled(&format!("{:<13}", column.head), column.help, wide));
    }
    let trend = "Switches a second in the last frames, as high as the highest of them.";
    body.extend(labelled(&format!("{:<13}", "trend"), trend, wide));
    body.push(Line::default());
    for note in NOTES {
        body.extend(
            wrapped(note, wide)
                .iter()
                .map(|line| Line::raw(cut(line, wide))),
        );
    }
    body
}

/// On a narrow screen the label gets a line of its own.
fn labelled(label: &str, text: &str, wide: usize) -> Vec<Line<'static>> {
    let lines = if wide >= 40 {
        hung(label, text, wide)
    } else {
        let mut lines = vec![label.trim_end().to_owned()];
        lines.extend(wrapped(text, wide));
        lines
    };
    lines
        .iter()
        .map(|line| Line::raw(cut(line, wide)))
        .collect()
}
