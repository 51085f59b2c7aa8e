//! `swtch dump`: asks a flight recorder, which goes on, for what it has.
//!
//! ```text
//! socket in the trace ─request─▶ recorder ─▶ dumps/WHEN.swtch      (hard links, made at once)
//!                     ◀─its name─┘               └▶ OUT.swtch      (with -o: rows in final form, made here)
//! ```

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use swtch_output::message;
use swtch_output::text::escaped;
use swtch_report::replay;
use swtch_store::Trace;

use crate::cli::Dump;
use crate::record::{DumpAnswer, DumpAsk, SOCKET};

/// How long the recorder may take: it looks at its socket several times a second, and making a dump
/// takes as long as giving some hundred files a name.
const PATIENCE: Duration = Duration::from_secs(30);

/// Asks for a dump, and says where it is.
///
/// # Errors
/// When the recorder cannot be reached, makes no dump, or the dump cannot be written to `-o`.
pub fn run(words: &Dump) -> Result<u8> {
    let ask = DumpAsk {
        last_ms: words.last.map(|last| last.as_ns().div_ceil(1_000_000)),
        because: words.because.clone(),
        after_ns: None,
    };
    let answer = match request(&words.trace, &ask) {
        Ok(answer) => answer,
        Err(error) => return Err(no_recorder(&words.trace, &error)),
    };
    let name = match answer {
        DumpAnswer::Dump(name) => name,
        DumpAnswer::Error(why) => bail!("the recorder made no dump: {why}"),
    };
    let mut path = words.trace.join(name);
    if let Some(output) = &words.output {
        finish(&path, output)?;
        path = output.clone();
    }
    message!("swtch: the dump is {}", escaped(&path.to_string_lossy()));
    Ok(0)
}

/// Sends a request to the recorder of a trace, and waits for its answer.
///
/// # Errors
/// When nobody answers.
pub fn request(trace: &Path, ask: &DumpAsk) -> io::Result<DumpAnswer> {
    let directory = File::open(trace)?;
    // A path of a socket has at most 107 bytes (unix(7)).
    let path = format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd());
    let mut stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut line = serde_json::to_vec(ask)?;
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    if answer.is_empty() {
        return Err(io::Error::other("it ended before it answered"));
    }
    Ok(serde_json::from_str(&answer)?)
}

/// Why no recorder can be asked, and what can be done.
fn no_recorder(trace: &Path, error: &io::Error) -> anyhow::Error {
    let shown = trace.display();
    match error.kind() {
        io::ErrorKind::NotFound if trace.join("meta.json").exists() => anyhow::anyhow!(
            "no flight recorder writes {shown}: it has ended, or was started without --ring. The trace can be read as \
             it is (swtch report {shown})"
        ),
        io::ErrorKind::ConnectionRefused => anyhow::anyhow!(
            "the recorder of {shown} was killed. What it kept can be read as it is (swtch report {shown})"
        ),
        _ => anyhow::anyhow!("asking the recorder of {shown} for a dump: {error}"),
    }
}

/// Writes a dump in its final form to `output`, and removes it where it was.
///
/// # Errors
/// When it cannot be read or written; the dump is still there then.
pub fn finish(dump: &Path, output: &Path) -> Result<()> {
    let writing = || {
        format!(
            "writing {}; the dump itself is {}",
            output.display(),
            dump.display()
        )
    };
    let recorded = Trace::open_recorded(dump).with_context(writing)?;
    let Some(records) = recorded.records() else {
        bail!(
            "{} holds no record: the ring has just begun",
            dump.display()
        );
    };
    replay::written(&recorded, records, output).with_context(writing)?;
    drop(recorded);
    std::fs::remove_dir_all(dump).with_context(|| format!("removing {}", dump.display()))
}
