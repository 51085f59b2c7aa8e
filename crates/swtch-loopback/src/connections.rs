//! Connections: how many there may be, and when one is closed.
//!
//! All users of the machine can connect to a loopback port, and each connection takes a file
//! descriptor of this process. To keep others from taking all of them:
//!
//! - a connection is closed when the head of its next request is not there within [`HEAD_TIMEOUT`];
//! - at most [`most_connections`] are open at once. For one more, the oldest connection that has
//!   not shown the token yet is closed. Connections that have shown it are kept.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use nix::sys::resource::{Resource, getrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::timeout;

/// Time for the head of a request to arrive. A browser sends it in one piece, and silently opens an
/// idle connection again when it was closed.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// The time that an answer may take that was under way when its connection's time was over.
const LAST_ANSWER: Duration = Duration::from_secs(10);

/// Most connections if descriptors are plentiful. A browser opens six for each host.
const PLENTY: u64 = 256;

/// Descriptors kept for everything else: the trace's files, the price list, the runtime.
const KEPT_DESCRIPTORS: u64 = 64;

/// The time for which accepting pauses when the system refuses a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// A flag that is set once a request on this connection had the token.
#[derive(Clone, Debug, Default)]
pub struct TokenProof(Arc<AtomicBool>);

impl TokenProof {
    /// Records that a request had it.
    pub fn give(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_given(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// An open connection, and the task that serves it.
#[derive(Debug)]
struct Connection {
    proof: TokenProof,
    task: AbortHandle,
}

/// Returns how many connections may be open at once, by this process's limit of descriptors.
pub fn most_connections() -> usize {
    // If the limit is not known, the kernel's default is assumed.
    let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
    let most = (descriptors.saturating_sub(KEPT_DESCRIPTORS) / 2).clamp(8, PLENTY);
    usize::try_from(most).expect("at most 256")
}

/// Accepts connections, and serves each with the router for no longer than `longest`, until the future
/// is dropped.
pub async fn serve(listener: TcpListener, router: Router, most: usize, longest: Option<Duration>) {
    let mut open: Vec<Connection> = Vec::new();
    loop {
        let accepted = listener.accept().await;
        open.retain(|connection| !connection.task.is_finished());
        match accepted {
            Ok((stream, _)) if open.len() < most || end_oldest_stranger(&mut open) => {
                open.push(start(stream, &router, longest));
            }
            // All connections have shown the token. The new one is closed.
            Ok(_) => {}
            // The process or the machine has no descriptor left.
            Err(_) => {
                end_oldest_stranger(&mut open);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Makes room for a connection; `false` if all connections have shown the token.
fn end_oldest_stranger(open: &mut Vec<Connection>) -> bool {
    let stranger = open
        .iter()
        .position(|connection| !connection.proof.is_given());
    match stranger {
        Some(place) => {
            open.remove(place).task.abort();
            true
        }
        None => false,
    }
}

fn start(stream: TcpStream, router: &Router, longest: Option<Duration>) -> Connection {
    let proof = TokenProof::default();
    let router = router.clone().layer(Extension(proof.clone()));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // Errors are the client's: it went away, or did not speak HTTP.
    let task = tokio::spawn(async move {
        let mut served = pin!(served);
        let Some(longest) = longest else {
            drop(served.await);
            return;
        };
        if timeout(longest, served.as_mut()).await.is_err() {
            // It ends between two requests: who asks at this moment, as scrapers do, gets the answer.
            served.as_mut().graceful_shutdown();
            drop(timeout(LAST_ANSWER, served).await);
        }
    });
    Connection {
        proof,
        task: task.abort_handle(),
    }
}
