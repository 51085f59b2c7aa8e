//! A trace in the browser (`swtch view`), and as one page to send ([`page`]).
//!
//! ```text
//! Trace ─▶ Loaded (names, rows in memory) ─▶ answers, reduced to the pixels asked for ─▶ page
//!             ▲ read again while it is being recorded      (`web/`, embedded)
//! ```
//!
//! - `server` answers only requests that have the token, and it only reads.
//! - `timeline` holds what is drawn; `lanes` encodes it for the page.
//! - The numbers in panels are those of `swtch report`, made by the same code.
//!
//! To add an answer: a file with a function from [`Loaded`] and a question to JSON, and its name in
//! `answers`.
//!
//! What it does not do: record, or need a kernel.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::print_stdout, clippy::print_stderr))]

mod answers;
pub mod assets;
mod chain;
mod curves;
mod detail;
#[cfg(test)]
mod drawn;
mod facts;
mod flame;
mod lanes;
mod loaded;
mod locks;
pub mod page;
mod query;
mod row_ids;
mod search;
mod server;
mod states;
mod timeline;

use std::io::{Write as _, stdout};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, Result};
use swtch_core::Nanos;
use swtch_output::message;
use swtch_output::text::{counted, escaped};
use tempfile::NamedTempFile;
use timeline::kept::RowsSource;

use lanes::open_piece;
pub use loaded::Loaded;
use query::Span;
pub use server::{ServerState, router};

/// A trace that a person asked to see.
#[derive(Clone, Debug)]
pub struct ViewRequest {
    /// Directory of the trace to show.
    pub trace: PathBuf,
    /// The port to listen on; any free one when `None`.
    pub port: Option<u16>,
    /// True if a browser is to be started.
    pub open: bool,
    /// A price list, instead of the saved one.
    pub prices: Option<PathBuf>,
}

/// Serves the trace until a signal ends the process.
///
/// # Errors
/// When the trace cannot be read or the port cannot be opened.
pub fn run(request: &ViewRequest) -> Result<u8> {
    let listener = listen(request.port)?;
    let address = listener.local_addr().context("asking for the port")?;
    let began = Instant::now();
    let loaded = Loaded::read(&request.trace, 1)?;
    tell_loaded(&loaded, began);
    let token = token()?;
    let state = Arc::new(ServerState::new(request, loaded, address, token));
    keep_rows(&state);
    let url = state.url();
    writeln!(stdout(), "{url}").context("writing the address")?;
    // Kept while the server runs, because the browser may be slow to read the file.
    let _door = match request.open {
        true => open_browser(&url)?,
        false => None,
    };
    if !assets::IS_BUILT {
        message!(
            "swtch: this program was built without its page: `make web` (Node.js 18.18 or later with npm), then build again"
        );
    }
    message!("swtch: serving on this machine only; Ctrl-C ends it");
    server::serve(state, listener)?;
    Ok(0)
}

fn listen(port: Option<u16>) -> Result<TcpListener> {
    let address = (Ipv4Addr::LOCALHOST, port.unwrap_or(0));
    TcpListener::bind(address).with_context(|| match port {
        Some(port) => format!(
            "listening on 127.0.0.1:{port} (leave --port out to take any port that is free)"
        ),
        None => "listening on 127.0.0.1".to_owned(),
    })
}

/// Says what was read, how long it took, and where the rows of a large trace are.
fn tell_loaded(loaded: &Loaded, began: Instant) {
    let rows = loaded.levels.os.rows().len() + loaded.levels.user.rows().len();
    let rows = counted(u64::try_from(rows).unwrap_or(u64::MAX), "context switch");
    let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let took = Nanos::from_ns(took);
    let shown = |path: &Path| escaped(&path.display().to_string()).into_owned();
    match &loaded.source {
        RowsSource::Memory => message!("swtch: read {rows} in {took}"),
        RowsSource::Kept(path) => {
            message!(
                "swtch: opened {rows} in {took}, prepared in {}",
                shown(path)
            );
        }
        RowsSource::Made(bytes, Some(path)) => message!(
            "swtch: read {rows} in {took}; prepared for the next time in {} ({}; it may be removed)",
            shown(path),
            gigabytes(*bytes)
        ),
        RowsSource::Made(bytes, None) => message!(
            "swtch: read {rows} in {took}, into a file of {} that goes with this program",
            gigabytes(*bytes)
        ),
    }
}

/// A size of at least a hundred megabytes.
fn gigabytes(bytes: u64) -> String {
    let tenths = bytes.div_ceil(100_000_000);
    format!("{}.{} GB", tenths / 10, tenths % 10)
}

/// Gives the file with the rows its name, when all of it is on the disk.
fn keep_rows(state: &Arc<ServerState>) {
    let loaded = state.loaded();
    let keep = move || {
        if let Some(unnamed) = &loaded.unnamed
            && let Err(error) = unnamed.keep()
        {
            message!("swtch: what was prepared could not be kept: {error}");
        }
    };
    // Without a thread the next opening prepares it again.
    let _ = thread::Builder::new()
        .name("swtch-keep".to_owned())
        .spawn(keep);
}

/// A token of 128 random bits; requests without it are refused.
fn token() -> Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).context("drawing a random token")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Starts the user's browser. If that is not possible, the user can open the address that was
/// printed.
///
/// All users of the machine can read command lines, so the browser is not given the address but a
/// file of this user that redirects to it.
fn open_browser(url: &str) -> Result<Option<NamedTempFile>> {
    if nix::unistd::geteuid().is_root() {
        message!("swtch: a browser is not started as root: open the address in yours");
        return Ok(None);
    }
    let mut door = tempfile::Builder::new()
        .prefix("swtch-view-")
        .suffix(".html")
        .tempfile()
        .context("writing the file that leads the browser to the page")?;
    let html = format!("<!doctype html><meta http-equiv=\"refresh\" content=\"0; url={url}\">");
    door.write_all(html.as_bytes())
        .and_then(|()| door.flush())
        .context("writing the file that leads the browser to the page")?;
    let mut browser = Command::new("xdg-open");
    browser
        .arg(door.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Ctrl-C ends the server, not the browser.
        .process_group(0);
    match browser.spawn() {
        // The child is waited for, so that it does not stay a zombie while the server runs.
        Ok(mut child) => drop(thread::spawn(move || child.wait())),
        Err(error) => {
            let error = error.to_string();
            message!(
                "swtch: no browser could be started (xdg-open: {}): open the address in yours",
                escaped(&error)
            );
        }
    }
    Ok(Some(door))
}
