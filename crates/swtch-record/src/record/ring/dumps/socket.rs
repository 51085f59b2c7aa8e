//! The socket by which a dump is asked for. It lies in the trace, whose directory belongs to the user
//! who records; who else reaches it is refused.
//!
//! A request is one line of JSON, `{"last_ms":10000,"because":"a slow request"}` or `{}`; the answer
//! is one, too: `{"dump":"dumps/20261125-101500.swtch"}` or `{"error":"..."}`.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use swtch_store::Directory;

use super::super::DumpPart;

/// Name of the socket in a trace.
pub const SOCKET: &str = "dump.socket";

/// The longest request.
pub const MOST_ASK_BYTES: usize = 4096;

/// Requests that have not come as a whole. When one more comes, the oldest is given up.
const MOST_WAITING: usize = 64;

/// Connections that are accepted at one look; the kernel lets no more than so many wait
/// (`net.core.somaxconn`), unless it was told otherwise.
const MOST_AT_ONCE: usize = 4096;

/// The time that a request may take to come.
const PATIENCE: Duration = Duration::from_secs(2);

/// A request for a dump.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DumpAsk {
    /// Only what was recorded in so many milliseconds; all that is kept if it is not given.
    pub last_ms: Option<u64>,
    /// The reason for which it is asked for, which the dump tells.
    pub because: Option<String>,
}

impl DumpAsk {
    /// Returns the part that is asked for.
    pub fn part(&self) -> DumpPart {
        match self.last_ms {
            Some(ms) => DumpPart::Last(Duration::from_millis(ms)),
            None => DumpPart::All,
        }
    }
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DumpAnswer {
    /// The dump, by its path in the trace.
    Dump(String),
    /// The reason why there is none.
    Error(String),
}

/// The socket of a recording.
pub struct DumpSocket {
    trace: Directory,
    listener: UnixListener,
    /// The oldest first.
    waiting: VecDeque<WaitingAsk>,
}

struct WaitingAsk {
    stream: UnixStream,
    bytes: Vec<u8>,
    since: Instant,
}

impl DumpSocket {
    /// Makes the socket.
    pub fn listen(trace: &Directory) -> io::Result<Self> {
        let path = trace.path_through_proc(SOCKET);
        let listener = UnixListener::bind(&path)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            trace: trace.clone(),
            listener,
            waiting: VecDeque::new(),
        })
    }

    /// The requests that have come as a whole.
    pub fn take(&mut self, now: Instant) -> Vec<(UnixStream, DumpAsk)> {
        let mut asked = Vec::new();
        for ask in std::mem::take(&mut self.waiting) {
            self.look_at(ask, now, &mut asked);
        }
        for _ in 0..MOST_AT_ONCE {
            let Ok((mut stream, _)) = self.listener.accept() else {
                break;
            };
            if let Err(why) = check_peer(&stream) {
                send(&mut stream, &DumpAnswer::Error(why));
            } else if stream.set_nonblocking(true).is_ok() {
                let ask = WaitingAsk {
                    stream,
                    bytes: Vec::new(),
                    since: now,
                };
                self.look_at(ask, now, &mut asked);
            }
        }
        asked
    }

    /// Reads what has come of a request. Who connects and says nothing keeps nobody else waiting.
    fn look_at(
        &mut self,
        mut ask: WaitingAsk,
        now: Instant,
        asked: &mut Vec<(UnixStream, DumpAsk)>,
    ) {
        match ask.read() {
            Some(Ok(request)) => asked.push((ask.stream, request)),
            Some(Err(why)) => send(&mut ask.stream, &DumpAnswer::Error(why)),
            None if now - ask.since < PATIENCE => {
                self.waiting.push_back(ask);
                if self.waiting.len() > MOST_WAITING {
                    self.waiting.pop_front().iter_mut().for_each(give_up);
                }
            }
            None => give_up(&mut ask),
        }
    }
}

fn give_up(ask: &mut WaitingAsk) {
    let why = "no request came: send one line of JSON, such as {}".to_owned();
    send(&mut ask.stream, &DumpAnswer::Error(why));
}

impl Drop for DumpSocket {
    fn drop(&mut self) {
        // Left behind it does no harm: who asks is told that nobody listens.
        let _ = std::fs::remove_file(self.trace.path_through_proc(SOCKET));
    }
}

impl WaitingAsk {
    /// The request, or what is wrong with it; `None` if it has not come as a whole.
    fn read(&mut self) -> Option<Result<DumpAsk, String>> {
        let mut buffer = [0; MOST_ASK_BYTES];
        loop {
            let is_whole = match self.stream.read(&mut buffer) {
                Ok(0) => true,
                Ok(count) => {
                    self.bytes.extend_from_slice(&buffer[..count]);
                    self.bytes.contains(&b'\n')
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => false,
                Err(error) => return Some(Err(error.to_string())),
            };
            if self.bytes.len() > MOST_ASK_BYTES {
                return Some(Err(format!("a request has at most {MOST_ASK_BYTES} bytes")));
            }
            if is_whole {
                let line = self.bytes.split(|byte| *byte == b'\n').next();
                let request = serde_json::from_slice(line.unwrap_or_default());
                return Some(request.map_err(|error| format!("this is no request: {error}")));
            }
        }
    }
}

/// Refuses another user than the one who records, and root.
fn check_peer(stream: &UnixStream) -> Result<(), String> {
    let own = rustix::process::geteuid();
    match rustix::net::sockopt::socket_peercred(stream) {
        Ok(peer) if peer.uid == own || peer.uid.is_root() => Ok(()),
        Ok(_) => Err("this recording belongs to another user".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Sends an answer. Whoever has gone away does not get it.
pub fn send(stream: &mut UnixStream, answer: &DumpAnswer) {
    if let Ok(mut line) = serde_json::to_vec(answer) {
        line.push(b'\n');
        let _ = stream.write_all(&line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (UnixStream, WaitingAsk) {
        let (client, stream) = UnixStream::pair().unwrap();
        stream.set_nonblocking(true).unwrap();
        let ask = WaitingAsk {
            stream,
            bytes: Vec::new(),
            since: Instant::now(),
        };
        (client, ask)
    }

    /// A request is heard at the next look, however many others are connected.
    #[test]
    fn idle_connections_do_not_keep_a_request_waiting() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.swtch");
        let meta = swtch_fixtures::meta();
        let writer = swtch_store::Writer::create(&path, &meta).unwrap();
        let mut socket = DumpSocket::listen(writer.directory()).unwrap();
        let now = Instant::now();
        let connect = || UnixStream::connect(path.join(SOCKET)).unwrap();
        let mut idle = Vec::new();
        for _ in 0..3 {
            // As many as the kernel lets wait.
            idle.extend((0..100).map(|_| connect()));
            assert!(socket.take(now).is_empty());
        }
        idle.extend((0..100).map(|_| connect()));
        let mut client = connect();
        client.write_all(b"{}\n").unwrap();
        assert_eq!(socket.take(now).len(), 1);
        assert_eq!(socket.waiting.len(), MOST_WAITING, "the newest ones");
        let mut told = String::new();
        idle[0].read_to_string(&mut told).unwrap();
        assert!(told.contains("no request came"), "{told}");
        assert!(socket.take(now + PATIENCE).is_empty());
        assert!(socket.waiting.is_empty());
    }

    #[test]
    fn a_request_may_come_in_pieces() {
        let (mut client, mut ask) = pair();
        assert!(ask.read().is_none());
        client.write_all(b"{\"last_ms\":50,").unwrap();
        assert!(ask.read().is_none());
        client.write_all(b"\"because\":\"slow\"}\n").unwrap();
        let expected = DumpAsk {
            last_ms: Some(50),
            because: Some("slow".to_owned()),
        };
        assert_eq!(ask.read(), Some(Ok(expected)));
    }

    #[test]
    fn the_end_of_the_stream_ends_a_request() {
        let (client, mut ask) = pair();
        (&client).write_all(b"{}").unwrap();
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(ask.read(), Some(Ok(DumpAsk::default())));
    }

    #[test]
    fn what_is_no_request_is_told() {
        for (sent, expected) in [
            (b"dump please\n".to_vec(), "this is no request"),
            (b"{\"lsat_ms\":5}\n".to_vec(), "unknown field `lsat_ms`"),
            (vec![b'x'; MOST_ASK_BYTES + 1], "at most 4096 bytes"),
        ] {
            let (mut client, mut ask) = pair();
            client.write_all(&sent).unwrap();
            let why = ask.read().expect("it is whole").unwrap_err();
            assert!(why.contains(expected), "{why}");
        }
    }

    #[test]
    fn an_answer_is_a_line_of_json() {
        let (mut client, mut ask) = pair();
        send(
            &mut ask.stream,
            &DumpAnswer::Dump("dumps/a.swtch".to_owned()),
        );
        drop(ask);
        let mut line = String::new();
        client.read_to_string(&mut line).unwrap();
        assert_eq!(line, "{\"dump\":\"dumps/a.swtch\"}\n");
    }
}
