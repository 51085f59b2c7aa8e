//! `swtch dump`: asks a flight recorder, which goes on, for what it has.
//!
//! ```text
//! socket in the trace ─request─▶ recorder ─▶ dumps/WHEN.swtch      (hard links, made at once)
//!                     ◀─its name─┘               └▶ OUT.swtch      (with -o: rows in final form, made here)
//! ```
//!
//! Where nobody records (a segment of a ring, what a killed recorder left), `-o` is made of what is on disk.
//!
//! Whoever may write to a trace can listen there, put links into it and answer anything. So the answer
//! is believed only of root, of this user, or of the user who called `sudo`; it is short, and comes in
//! time; and what it names is a directory of that user's in the trace's own `dumps`, which is opened
//! without following a link, and read and removed by its descriptor.

use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::fs::{FileType, Mode, OFlags, fstat, openat};
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use swtch_capture::{KeptPrivileges, drop_privileges, kernel_version};
use swtch_core::Nanos;
use swtch_output::caller::{Caller, as_caller};
use swtch_output::message;
use swtch_output::text::{escaped, grouped};
use swtch_report::replay;
use swtch_store::{Completeness, Directory, RecordingState, Trace};

use crate::record::{DumpAnswer, DumpAsk, MOST_ASK_BYTES, SOCKET};

/// The time that the recorder may take: it looks at its socket several times a second, and making a dump takes as long
/// as giving some hundred files a name.
const PATIENCE: Duration = Duration::from_secs(30);

/// The longest answer. An honest one has a name, or the words of an error.
const MOST_ANSWER_BYTES: usize = 8192;

/// A request for a dump.
#[derive(Clone, Debug)]
pub struct DumpRequest {
    /// The trace that the recorder writes.
    pub trace: PathBuf,
    /// Only what was recorded in so much time, and a little more; all that is kept when `None`.
    pub last: Option<Nanos>,
    /// The reason, in words; the dump says it.
    pub because: Option<String>,
    /// The place where the dump goes, in its final form; into the trace, as it was recorded, when `None`.
    pub output: Option<PathBuf>,
}

/// Asks for a dump, and says where it is.
///
/// # Errors
/// When the recorder cannot be reached, makes no dump, or the dump cannot be written to `-o`.
pub fn run(request: &DumpRequest) -> Result<u8> {
    let ask = DumpAsk {
        last_ms: request.last.map(|last| last.as_ns().div_ceil(1_000_000)),
        because: request.because.clone(),
    };
    let caller = Caller::of_sudo()?;
    let told =
        RecorderOfTrace::reach(&request.trace, caller.as_ref(), PATIENCE).and_then(|recorder| {
            let answer = recorder.ask(&ask, PATIENCE)?;
            Ok((recorder, answer))
        });
    let (recorder, answer) = match told {
        Ok(told) => told,
        Err(error) => match request.of_all_on_disk().filter(|_| is_nobody_there(&error)) {
            Some(output) => return take_from_disk(&request.trace, output),
            None => return Err(no_recorder(&request.trace, &error)),
        },
    };
    if let Some(caller) = caller.filter(|caller| caller.user.as_raw() == recorder.user) {
        // Nothing of it takes the rights of root.
        caller.switch_to_user()?;
        drop_privileges(KeptPrivileges::default(), kernel_version())?;
    }
    let name = match answer {
        DumpAnswer::Dump(name) => name,
        DumpAnswer::Error(why) => bail!("the recorder made no dump: {why}"),
    };
    let dump = swtch_store::FoundDump::find(&recorder.trace, &name, recorder.user)?;
    let mut path = dump.directory().path().to_owned();
    if let Some(output) = &request.output {
        finish(dump, output)?;
        path.clone_from(output);
    }
    message!("swtch: the dump is {}", escaped(&path.to_string_lossy()));
    Ok(0)
}

impl DumpRequest {
    /// Returns where a dump of all that is on disk would go, if that is an answer to what is asked.
    fn of_all_on_disk(&self) -> Option<&Path> {
        let is_of_all = self.last.is_none() && self.because.is_none();
        self.output.as_deref().filter(|_| is_of_all)
    }
}

/// Returns true if no recorder listens: none was started there, or it has ended or was killed.
fn is_nobody_there(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}

/// Writes what is on disk of a recording to `output`, in its final form.
fn take_from_disk(path: &Path, output: &Path) -> Result<u8> {
    let reading = || format!("reading {}", path.display());
    let recorded = Trace::open_recorded(path).with_context(reading)?;
    let Some(records) = recorded.records() else {
        bail!("{} is in its final form already", path.display());
    };
    let mut meta = recorded.meta().clone();
    if let Completeness::Unfinished {
        why,
        unreadable_bytes,
    } = recorded.completeness()
        && (meta.state == RecordingState::Recording || unreadable_bytes > 0)
    {
        meta.state = RecordingState::StoppedEarly;
        meta.stop_reason.get_or_insert(why);
    }
    let written = as_caller(|| replay::written(&recorded, records, meta, output));
    let trace = written.with_context(|| format!("writing {}", output.display()))?;
    message!(
        "swtch: nobody records into it: {} is made of what is on disk, {} switches",
        escaped(&output.to_string_lossy()),
        grouped(trace.row_count())
    );
    Ok(0)
}

/// The recorder of a trace.
struct RecorderOfTrace {
    trace: Directory,
    stream: UnixStream,
    /// As whom it runs.
    user: u32,
}

impl RecorderOfTrace {
    /// Reaches who listens in a trace, if it is root, this user or the user who called `sudo`.
    fn reach(trace: &Path, caller: Option<&Caller>, patience: Duration) -> io::Result<Self> {
        let trace = Directory::open(trace)?;
        let handle = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let socket = openat(&trace, SOCKET, handle, Mode::empty())?;
        if FileType::from_raw_mode(fstat(&socket)?.st_mode) != FileType::Socket {
            return Err(io::Error::other(format!("{SOCKET} in it is no socket")));
        }
        let stream = socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )?;
        // Also for the connection: nobody may be there to accept it.
        set_socket_timeout(&stream, Timeout::Send, Some(patience))?;
        // A path of a socket has at most 107 bytes (unix(7)).
        let path = format!("/proc/self/fd/{}", socket.as_raw_fd());
        connect(&stream, &SocketAddrUnix::new(path)?).map_err(|error| in_time(error.into()))?;
        let peer = socket_peercred(&stream)?.uid;
        let is_of_caller = caller.is_some_and(|caller| caller.user.as_raw() == peer.as_raw());
        if !peer.is_root() && peer != rustix::process::geteuid() && !is_of_caller {
            let user = peer.as_raw();
            return Err(io::Error::other(format!(
                "it is answered by a process of user {user}, which is not believed: ask as that user \
                 (sudo -u '#{user}' swtch dump ...)"
            )));
        }
        Ok(Self {
            trace,
            stream: stream.into(),
            user: peer.as_raw(),
        })
    }

    fn ask(&self, ask: &DumpAsk, patience: Duration) -> io::Result<DumpAnswer> {
        let mut line = serde_json::to_vec(ask)?;
        line.push(b'\n');
        if line.len() > MOST_ASK_BYTES {
            let why = format!("a request has at most {MOST_ASK_BYTES} bytes (--because)");
            return Err(io::Error::other(why));
        }
        let until = Instant::now() + patience;
        let sent = (&self.stream).write_all(&line).map_err(in_time);
        // Who refuses this user answers before it was asked, and closes.
        let answer = match (sent, self.first_line(until)) {
            (_, Ok(answer)) => answer,
            (Err(error), _) | (_, Err(error)) => return Err(error),
        };
        serde_json::from_slice(&answer)
            .map_err(|error| io::Error::other(format!("its answer is none: {error}")))
    }

    /// The first line that comes, until this moment.
    fn first_line(&self, until: Instant) -> io::Result<Vec<u8>> {
        let mut line = Vec::new();
        let mut buffer = [0; 1024];
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(in_time(io::ErrorKind::WouldBlock.into()));
            }
            self.stream.set_read_timeout(Some(left))?;
            let come = match (&self.stream).read(&mut buffer) {
                Ok(0) if line.is_empty() => {
                    return Err(io::Error::other("it ended before it answered"));
                }
                Ok(0) => return Ok(line),
                Ok(count) => &buffer[..count],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(in_time(error)),
            };
            let end = come.iter().position(|byte| *byte == b'\n');
            line.extend_from_slice(&come[..end.unwrap_or(come.len())]);
            if line.len() > MOST_ANSWER_BYTES {
                let why = format!("its answer has more than {MOST_ANSWER_BYTES} bytes");
                return Err(io::Error::other(why));
            }
            if end.is_some() {
                return Ok(line);
            }
        }
    }
}

/// The words for a time-out, which the system calls "try again".
fn in_time(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => io::Error::new(
            io::ErrorKind::TimedOut,
            "it did not answer in time: it may be stopped, or be no recorder",
        ),
        _ => error,
    }
}

/// Says why no recorder can be asked, and what can be done.
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

/// Writes a dump of this user's in its final form to `output`, and removes it where it was.
///
/// # Errors
/// When it cannot be read or written; the dump is still there then.
fn finish(dump: swtch_store::FoundDump, output: &Path) -> Result<()> {
    let directory = dump.directory();
    let shown = directory.path().display().to_string();
    let writing = || format!("writing {}; the dump itself is {shown}", output.display());
    let recorded = Trace::open_recorded_in(directory).with_context(writing)?;
    let Some(records) = recorded.records() else {
        bail!("{shown} holds no record: the ring has just begun");
    };
    let meta = recorded.meta().clone();
    as_caller(|| replay::written(&recorded, records, meta, output)).with_context(writing)?;
    drop(recorded);
    Ok(dump.remove()?)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::os::unix::net::UnixListener;
    use std::thread;

    use super::*;

    /// Returns what a recorder that answers by `serve` is taken for, by somebody who waits this long.
    fn told_by(
        patience: Duration,
        serve: impl FnOnce(UnixStream) + Send + 'static,
    ) -> io::Result<DumpAnswer> {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join(SOCKET)).unwrap();
        let server = thread::spawn(move || {
            let stream = listener.accept().unwrap().0;
            let mut asked = String::new();
            BufReader::new(&stream).read_line(&mut asked).unwrap();
            serve(stream);
        });
        let recorder = RecorderOfTrace::reach(dir.path(), None, patience).unwrap();
        let answer = recorder.ask(&DumpAsk::default(), patience);
        drop(recorder);
        server.join().unwrap();
        answer
    }

    fn refusal(patience: Duration, serve: impl FnOnce(UnixStream) + Send + 'static) -> String {
        told_by(patience, serve).unwrap_err().to_string()
    }

    const LONG: Duration = Duration::from_secs(600);

    #[test]
    fn an_answer_is_the_first_line_however_it_comes() {
        let pieces = |mut stream: UnixStream| {
            for piece in ["{\"dump\":", "\"dumps/a\"}", "\nmore"] {
                stream.write_all(piece.as_bytes()).unwrap();
            }
        };
        let expected = DumpAnswer::Dump("dumps/a".to_owned());
        assert_eq!(told_by(LONG, pieces).unwrap(), expected);
        let told = refusal(LONG, |mut stream| stream.write_all(b"dump\n").unwrap());
        assert!(told.contains("its answer is none"), "{told}");
        assert!(refusal(LONG, drop).contains("it ended before it answered"));
    }

    #[test]
    fn an_answer_without_an_end_is_given_up_after_some_kilobytes() {
        let told = refusal(LONG, |mut stream| {
            let sent = (0..).take_while(|_| stream.write_all(&[b'x'; 1024]).is_ok());
            // A socket's buffers take some hundred kB that nobody reads.
            assert!(sent.count() < 10_000, "the client went on reading");
        });
        assert!(told.contains("more than 8192 bytes"), "{told}");
    }

    /// Each byte comes in time, and all of them never would.
    #[test]
    fn a_recorder_that_is_silent_or_slow_is_given_up() {
        let short = Duration::from_millis(300);
        let silent = refusal(short, |mut stream| {
            // Until the client has gone away.
            drop(io::copy(&mut stream, &mut io::sink()));
        });
        let slow = refusal(short, |mut stream| {
            while stream.write_all(b" ").is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        });
        for told in [silent, slow] {
            assert!(told.contains("did not answer in time"), "{told}");
        }
    }

    /// The kernel lets so many wait as the listener says, and then whoever comes.
    #[test]
    fn a_listener_that_accepts_nobody_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let listener = socket_with(
            AddressFamily::UNIX,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        let address = SocketAddrUnix::new(dir.path().join(SOCKET)).unwrap();
        rustix::net::bind(&listener, &address).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let patience = Duration::from_millis(300);
        let reach = || RecorderOfTrace::reach(dir.path(), None, patience);
        let _first = reach().unwrap();
        let told = reach().map(drop).unwrap_err().to_string();
        assert!(told.contains("did not answer in time"), "{told}");
    }

    #[test]
    fn a_link_in_place_of_the_socket_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let _listener = UnixListener::bind(dir.path().join("other")).unwrap();
        std::os::unix::fs::symlink("other", dir.path().join(SOCKET)).unwrap();
        let told = RecorderOfTrace::reach(dir.path(), None, LONG).map(drop);
        let told = told.unwrap_err().to_string();
        assert!(told.contains("is no socket"), "{told}");
    }
}
