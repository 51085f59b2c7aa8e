//! Requests that ask a flight recorder for a dump.
//!
//! ```text
//! kill -USR2 PID                   a person, a script, the application itself
//! swtch dump NAME.swtch            a request over the socket in the trace, which is answered
//! --when 'runq > 20ms'             a condition that a switch met
//! ```
//!
//! All that is asked for at one time gets one dump. Between two dumps that nobody waits for lies at
//! least `--dump-every`: a signal is served later then, a condition not at all.

mod socket;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use signal_hook::consts::SIGUSR2;
use swtch_capture::Capture;
use swtch_capture::signals::not_ignored;
use swtch_output::message;
use swtch_output::text::escaped;
use swtch_store::Directory;

use super::super::pipeline::Pipeline;
use super::{DumpCause, DumpPart, RingRequest};
use socket::DumpSocket;

pub use socket::{DumpAnswer, DumpAsk, MOST_ASK_BYTES, SOCKET};

/// The time between two looks at the socket.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Waits for requests, and has dumps made.
pub struct DumpRequests {
    signalled: Arc<AtomicBool>,
    /// `None` where there can be none.
    socket: Option<DumpSocket>,
    looked: Instant,
    every: Duration,
    /// The last dump that nobody waited for.
    last: Option<Instant>,
}

impl DumpRequests {
    /// Catches the signal from now on, to the end of the process.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn catch(request: &RingRequest) -> Result<Self> {
        let signalled = Arc::new(AtomicBool::new(false));
        for signal in not_ignored(&[SIGUSR2]) {
            signal_hook::flag::register(signal, Arc::clone(&signalled))
                .context("catching SIGUSR2")?;
        }
        Ok(Self {
            signalled,
            socket: None,
            looked: Instant::now(),
            every: request.dump_every,
            last: None,
        })
    }

    /// Takes requests by the socket in the trace. Without it there is still the signal.
    pub fn listen(&mut self, trace: &Directory) {
        match DumpSocket::listen(trace) {
            Ok(socket) => self.socket = Some(socket),
            Err(error) => message!(
                "swtch: swtch dump cannot reach this recording ({}); kill -USR2 {} can",
                escaped(&error.to_string()),
                std::process::id()
            ),
        }
    }

    /// Has a dump made if one is asked for.
    ///
    /// # Errors
    /// When the recording cannot go on. A dump that could not be made is told, and is no error.
    pub fn serve(&mut self, pipeline: &mut Pipeline, capture: &Capture) -> Result<()> {
        let now = Instant::now();
        let firing = pipeline.take_firing();
        if now - self.looked >= LOOK_EVERY {
            self.looked = now;
            self.serve_socket(pipeline, capture, now)?;
        }
        let may_dump = self.last.is_none_or(|last| now - last >= self.every);
        if !may_dump {
            return Ok(());
        }
        let cause = match firing {
            Some(firing) => DumpCause::of_firing(&firing),
            None if self.signalled.swap(false, Ordering::Relaxed) => {
                DumpCause::asked("SIGUSR2 asked for it".to_owned())
            }
            None => return Ok(()),
        };
        self.last = Some(now);
        dump(pipeline, capture, &cause, DumpPart::All).map(drop)
    }

    /// Answers all who ask over the socket with one dump.
    fn serve_socket(
        &mut self,
        pipeline: &mut Pipeline,
        capture: &Capture,
        now: Instant,
    ) -> Result<()> {
        let socket = self.socket.as_mut();
        let asked = socket.map_or_else(Vec::new, |socket| socket.take(now));
        let Some(part) = widest(asked.iter().map(|(_, ask)| ask.part())) else {
            return Ok(());
        };
        let because = asked.iter().find_map(|(_, ask)| ask.because.clone());
        let because = because.unwrap_or_else(|| "swtch dump asked for it".to_owned());
        let dumped = dump(pipeline, capture, &DumpCause::asked(because), part)?;
        let answer = match dumped {
            Ok(path) => DumpAnswer::Dump(path_in_trace(&path, pipeline.directory())),
            Err(why) => DumpAnswer::Error(why),
        };
        for (mut stream, _) in asked {
            socket::send(&mut stream, &answer);
        }
        Ok(())
    }
}

/// Returns the part that holds each of these; `None` if there is none.
fn widest(parts: impl Iterator<Item = DumpPart>) -> Option<DumpPart> {
    parts.reduce(|widest, part| match (widest, part) {
        (DumpPart::Last(one), DumpPart::Last(other)) => DumpPart::Last(one.max(other)),
        _ => DumpPart::All,
    })
}

/// The path of the dump, or why there is none.
type Dumped = std::result::Result<std::path::PathBuf, String>;

fn dump(
    pipeline: &mut Pipeline,
    capture: &Capture,
    cause: &DumpCause,
    part: DumpPart,
) -> Result<Dumped> {
    let dumped = pipeline.dump(capture, cause, part)?;
    match &dumped {
        Ok(path) => message!(
            "swtch: dump {} ({})",
            escaped(&path.to_string_lossy()),
            escaped(&cause.what)
        ),
        Err(error) => message!("swtch: no dump: {}; the recording goes on", escaped(error)),
    }
    Ok(dumped)
}

/// Returns the path inside of the trace: whoever asks may know the trace by another path.
fn path_in_trace(path: &Path, trace: &Directory) -> String {
    let inside = path.strip_prefix(trace.path()).unwrap_or(path);
    inside.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_at_the_same_time_gets_what_the_longest_needs() {
        let last = |seconds| DumpPart::Last(Duration::from_secs(seconds));
        assert_eq!(widest([last(1), last(9)].into_iter()), Some(last(9)));
        let with_all = [last(1), DumpPart::All].into_iter();
        assert_eq!(widest(with_all), Some(DumpPart::All));
        assert_eq!(widest(std::iter::empty()), None);
    }
}
