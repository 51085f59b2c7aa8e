//! Frames one after the other, without escape codes: for scripts, files and pipes.

use std::io::{ErrorKind, Write as _, stdout};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use swtch_core::Nanos;
use swtch_output::format::Format;
use swtch_output::message;
use swtch_output::sheet::{Cell, Sheet};
use swtch_output::text::{escaped, json_line, table_width};
use swtch_report::report::host_words;
use swtch_report::report::live::LiveView;

use super::TopRequest;
use super::session::{MadeFrame, TAKE_NAMES_EVERY, TopSession};
use swtch_record::record::Target;

/// Rows of a table, if nothing else is asked for.
const ROWS_OF_TABLE: usize = 20;

/// Writes frames until there are as many as were asked for, a signal comes, the processes have ended,
/// or nobody reads any more.
///
/// # Errors
/// When stdout cannot be written.
pub fn run(mut session: TopSession, request: &TopRequest, format: Format) -> Result<u8> {
    let mut frames = 0;
    if format == Format::Table && !write(&head(&session, request))? {
        return Ok(0);
    }
    while request.count.is_none_or(|count| frames < count) {
        let paused = pause(&mut session, request)?;
        if paused == FrameWait::Stopped {
            break;
        }
        // Of the whole system, a script asks for what happens: threads that sleep are many.
        let made = match &request.capture.target {
            Target::All => session.frame(&views(request, format), None)?,
            _ => session.frame(&views(request, format), Some(&|_, _| true))?,
        };
        let text = match format {
            Format::Table => table(&made, &session, request),
            Format::Csv => csv(&made, &session, request, frames == 0),
            Format::Json => json_line(&object(&made, &session, request)),
        };
        frames += 1;
        if !write(&text)? || paused == FrameWait::TargetsEnded {
            break;
        }
    }
    session.tell_missing();
    Ok(0)
}

/// The reason why a pause between two frames ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FrameWait {
    Through,
    Stopped,
    TargetsEnded,
}

fn pause(session: &mut TopSession, request: &TopRequest) -> Result<FrameWait> {
    loop {
        if session.signals.any() {
            return Ok(FrameWait::Stopped);
        }
        if session.targets_are_gone() {
            return Ok(FrameWait::TargetsEnded);
        }
        let left = session.until_frame(request.interval);
        if left.is_zero() {
            return Ok(FrameWait::Through);
        }
        let slept = session.signals.sleep(left.min(TAKE_NAMES_EVERY), None);
        slept.context("waiting for the next frame")?;
        session.keep_up()?;
    }
}

fn views(request: &TopRequest, format: Format) -> Vec<LiveView> {
    match format {
        Format::Json => LiveView::ALL.to_vec(),
        Format::Table | Format::Csv => vec![request.by],
    }
}

/// The lines above the first frame.
fn head(session: &TopSession, request: &TopRequest) -> String {
    let host = host_words(&session.host).to_line();
    let scope = swtch_record::record::facts::scope(&request.capture.target);
    let mut text = format!("host   {}\nscope  {}\n", escaped(&host), escaped(&scope));
    let absent = session.absent_hooks();
    if !absent.is_empty() {
        let absent = absent.join(", ");
        text += &format!(
            "note: without {absent} (missing in this kernel, or left out): reasons that need it are inferred\n"
        );
    }
    text
}

fn table(made: &MadeFrame, session: &TopSession, request: &TopRequest) -> String {
    let sheet = made.frame.sheet(request.by, session.names());
    let mut text = format!("\n{} · {}\n", made.at, made.rates_in_words());
    text += &format!("{} · {}\n", made.cost_in_words(), made.own_cost_in_words());
    made.spans_in_words()
        .for_each(|told| text += &format!("{told}\n"));
    if let Some(loss) = made.loss_in_words() {
        text += &format!("note: {loss}\n");
    }
    let most = request.top.unwrap_or(ROWS_OF_TABLE);
    text + &sheet.to_table_in(table_width(), most)
}

fn csv(made: &MadeFrame, session: &TopSession, request: &TopRequest, is_first: bool) -> String {
    let sheet = made.frame.sheet(request.by, session.names());
    let sheet = with_moment(sheet.with_most(request.top), made.at);
    if let Some(loss) = made.loss_in_words() {
        message!("swtch: {loss}");
    }
    if is_first {
        sheet.to_csv()
    } else {
        sheet.to_csv_rows()
    }
}

/// The sheet with the moment of its frame in the first column, since CSV has nothing above its rows.
fn with_moment(mut sheet: Sheet, at: Nanos) -> Sheet {
    sheet.columns.insert(0, "at_ns");
    for row in &mut sheet.rows {
        row.insert(0, Cell::Time(at));
    }
    sheet
}

fn object(made: &MadeFrame, session: &TopSession, request: &TopRequest) -> Value {
    let host = host_words(&session.host);
    let mut object = json!({
        "schema": "swtch.top/1",
        "host": {
            "hostname": host.hostname,
            "kernel_release": host.kernel_release,
            "machine": host.machine,
            "cpus": host.cpus,
        },
        "scope": swtch_record::record::facts::scope(&request.capture.target),
        "frame": made.to_json(),
        "absent_hooks": session.absent_hooks(),
    });
    for view in LiveView::ALL {
        let sheet = made
            .frame
            .sheet(view, session.names())
            .with_most(request.top);
        object[member(view)] = json!({
            "rows": sheet.to_json_rows(),
            "total": sheet.to_json_total(),
        });
    }
    object
}

const fn member(view: LiveView) -> &'static str {
    match view {
        LiveView::Process => "processes",
        LiveView::Thread => "threads",
        LiveView::Cgroup => "cgroups",
        LiveView::Reason => "reasons",
        LiveView::Pair => "preemptions",
        LiveView::Cpu => "cpus",
        LiveView::Lock => "locks",
    }
}

/// Writes and flushes; false if nobody reads any more.
fn write(text: &str) -> Result<bool> {
    let mut out = stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        result => result.map(|()| true).context("writing the frame"),
    }
}
