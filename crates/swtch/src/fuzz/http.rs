//! Requests to the viewer's server, as bytes on a connection.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use swtch_fixtures::prices;
use swtch_loopback::connections;
use swtch_report::price_file;
use swtch_store::RecordingState;
use swtch_view::{Loaded, ServerState, ViewRequest};
use tokio::runtime::Runtime;

use super::{FuzzSubject, mutate, trace};

/// The token that a valid address contains.
const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// After this long without a byte, the server is taken to wait for more of the request.
const INCOMPLETE_AFTER: Duration = Duration::from_millis(100);

/// A placeholder: requests are drawn before the port is known.
const PORT: &str = "PORT";

/// The server must answer or close the connection within this time.
const ANSWER_DEADLINE: Duration = Duration::from_secs(20);

/// The start of an answer that gives something away.
const SUCCESS: &[u8] = b"HTTP/1.1 200 OK";

/// Questions that the server answers, and some that it does not know.
const ENDPOINTS: [&str; 18] = [
    "trace",
    "threads",
    "report",
    "explain",
    "bill",
    "lanes",
    "detail",
    "chain",
    "critical",
    "states",
    "rate",
    "distribution",
    "flame",
    "locks",
    "search",
    "nothing",
    "",
    "../../etc/passwd",
];

const KEYS: [&str; 16] = [
    "from", "to", "px", "lanes", "bins", "row", "level", "task", "by", "of", "q", "reason", "pid",
    "comm", "top", "x",
];

const VALUES: [&str; 30] = [
    "0",
    "1",
    "2",
    "7",
    "23",
    "100",
    "1000",
    "4000",
    "100000",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "-1",
    "1.5",
    "",
    "os",
    "user",
    "futex",
    "c0",
    "t1,t2,c0,c1,u1",
    "t4294967295",
    "reason",
    "stack",
    "process",
    "ran",
    "runq",
    "%00%ff",
    "server",
    "%F0%9F%98%80",
];

const HEADERS: [&str; 12] = [
    "Host: localhost:PORT",
    "Host: evil.example",
    "Origin: http://localhost:PORT",
    "Origin: null",
    "Connection: close",
    "Connection: Upgrade, HTTP2-Settings",
    "Content-Length: 5",
    "Content-Length: 18446744073709551615",
    "Transfer-Encoding: chunked",
    "Expect: 100-continue",
    "Range: bytes=0-",
    "Cookie: \u{ff}",
];

/// A viewer's server with a small trace.
#[derive(Debug)]
pub struct HttpSubject {
    address: SocketAddr,
    /// The server runs as long as this is kept.
    _runtime: Runtime,
}

impl HttpSubject {
    /// Starts the server; its trace and price list are made in this directory.
    pub fn new(directory: &Path) -> Self {
        let path = directory.join("t.swtch");
        // After a crash a new worker starts in the same directory.
        drop(std::fs::remove_dir_all(&path));
        trace::write_trace(&path, RecordingState::Finished, 300, true);
        let list = directory.join("prices.json");
        price_file::write(&prices(), &list).expect("a scratch file");
        let request = ViewRequest {
            trace: path.clone(),
            port: None,
            open: false,
            prices: Some(list),
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        listener.set_nonblocking(true).expect("a socket");
        let loaded = Loaded::read(&path, 1).expect("a trace that was just written");
        let state = Arc::new(ServerState::new(
            &request,
            loaded,
            address,
            TOKEN.to_owned(),
        ));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("it listens");
            connections::serve(listener, swtch_view::router(state), 64, None).await;
        });
        Self {
            address,
            _runtime: runtime,
        }
    }

    /// Sends bytes and returns all that comes back. After `idle_timeout` without a byte, the sending
    /// side is shut down: the server need not wait for the rest of an incomplete request, but may
    /// also give up an answer to a complete one.
    fn ask(&self, request: &[u8], idle_timeout: Duration) -> Vec<u8> {
        let mut stream = TcpStream::connect(self.address).expect("the server listens");
        stream
            .set_read_timeout(Some(idle_timeout))
            .and_then(|()| stream.set_write_timeout(Some(ANSWER_DEADLINE)))
            .expect("a socket");
        // The server may end the connection at any byte.
        drop(stream.write_all(request));
        let mut answer = Vec::new();
        if read_to_end(&mut stream, &mut answer) == ConnectionEnd::StillOpen {
            // The server waits for more of the request.
            drop(stream.shutdown(Shutdown::Write));
            stream
                .set_read_timeout(Some(ANSWER_DEADLINE))
                .expect("a socket");
            let ended = read_to_end(&mut stream, &mut answer);
            assert!(
                ended == ConnectionEnd::Ended,
                "no answer, and no end of the connection"
            );
        }
        answer
    }
}

/// Says whether the other side has ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConnectionEnd {
    Ended,
    StillOpen,
}

/// Reads until the connection is ended or its timeout has passed.
fn read_to_end(stream: &mut TcpStream, answer: &mut Vec<u8>) -> ConnectionEnd {
    match stream.read_to_end(answer) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => ConnectionEnd::StillOpen,
        // A reset ends the connection as well.
        _ => ConnectionEnd::Ended,
    }
}

impl FuzzSubject for HttpSubject {
    fn draw(&mut self, random: &mut Rng) -> Vec<u8> {
        let mut request = Vec::new();
        for _ in 0..random.u32(1..=3) {
            request.extend(one_request(random).as_bytes());
        }
        if random.u32(..3) == 0 {
            mutate::bytes(random, &mut request);
        }
        // If all requests before it are complete, this one makes the server close the connection.
        request.extend(b"GET /end HTTP/1.1\r\nHost: localhost:PORT\r\nConnection: close\r\n\r\n");
        request
    }

    fn run(&mut self, input: &[u8]) {
        let port = self.address.port().to_string();
        let request = replaced(input, PORT.as_bytes(), port.as_bytes());
        let answer = self.ask(&request, INCOMPLETE_AFTER);
        let has_token = request
            .windows(TOKEN.len())
            .any(|window| window == TOKEN.as_bytes());
        let has_success = answer
            .windows(SUCCESS.len())
            .any(|window| window == SUCCESS);
        assert!(has_token || !has_success, "let in without the token");
        // The server must still answer the person who has the token.
        let own = format!(
            "GET /{TOKEN}/api/threads HTTP/1.1\r\nHost: localhost:{port}\r\nConnection: close\r\n\r\n"
        );
        let answer = self.ask(own.as_bytes(), ANSWER_DEADLINE);
        assert!(answer.starts_with(SUCCESS), "no answer any more");
    }
}

/// One request, most often a complete one.
fn one_request(random: &mut Rng) -> String {
    let pick = |random: &mut Rng, list: &[&'static str]| list[random.usize(..list.len())];
    let methods = [
        "GET", "GET", "GET", "GET", "HEAD", "POST", "OPTIONS", "CONNECT", "BREW",
    ];
    let method = pick(random, &methods);
    let token = match random.u32(..8) {
        0 => "",
        1 => "fedcba9876543210fedcba9876543210",
        _ => TOKEN,
    };
    let mut target = format!("/{token}/api/{}", pick(random, &ENDPOINTS));
    match random.u32(..10) {
        0 => {
            target = format!(
                "/{token}/{}",
                pick(random, &["", "index.html", "..%2f", "%"])
            )
        }
        1 => target = format!("http://localhost:PORT{target}"),
        2 => target = format!("http://evil.example{target}"),
        _ => {}
    }
    for number in 0..random.usize(..7) {
        let value = match random.u32(..30) {
            0 => "9".repeat(random.usize(..20_000)),
            1 => random.u64(..).to_string(),
            _ => pick(random, &VALUES).to_owned(),
        };
        let separator = if number == 0 { '?' } else { '&' };
        target += &format!("{separator}{}={value}", pick(random, &KEYS));
    }
    let mut request = format!("{method} {target} HTTP/1.1\r\n");
    if random.u32(..12) > 0 {
        request += "Host: 127.0.0.1:PORT\r\n";
    }
    for _ in 0..random.u32(..3) {
        request += &format!("{}\r\n", pick(random, &HEADERS));
    }
    if random.u32(..60) == 0 {
        request += &"X-Many: 1\r\n".repeat(random.usize(..4_000));
    }
    request += "\r\n";
    if random.u32(..8) == 0 {
        request += "5\r\nhello\r\n0\r\n\r\n";
    }
    request
}

fn replaced(bytes: &[u8], old: &[u8], new: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = rest.windows(old.len()).position(|window| window == old) {
        out.extend(&rest[..at]);
        out.extend(new);
        rest = &rest[at + old.len()..];
    }
    out.extend(rest);
    out
}
