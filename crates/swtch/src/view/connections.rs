//! Connections to the viewer's server: how many there may be, and when one is ended.
//!
//! Anybody on the machine can connect to a loopback port, and each connection takes a file descriptor of this
//! process. So that nobody can take all of them:
//!
//! - a connection is ended when the head of its next request is not there within [`HEAD_TIMEOUT`];
//! - there are at most [`most_connections`] at once. When one more comes, the oldest connection on which nobody
//!   has shown the token yet makes room for it. Those of the person who has the token stay.

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

/// For the head of a request to come. A browser sends one in one piece; an idle connection that is ended is
/// opened again by the browser without a word.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// The most connections where descriptors are plenty. A browser opens six for each host.
const PLENTY: u64 = 256;

/// Descriptors for all else: the trace's files, the price list, the runtime.
const KEPT_DESCRIPTORS: u64 = 64;

/// How long accepting pauses when the system refuses a connection.
const PAUSE: Duration = Duration::from_millis(100);

/// Whether a request on this connection had the token.
#[derive(Clone, Debug, Default)]
pub struct Proof(Arc<AtomicBool>);

impl Proof {
    /// It had.
    pub fn give(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_given(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A connection that is open.
#[derive(Debug)]
struct Connection {
    proof: Proof,
    task: AbortHandle,
}

/// How many connections there may be at once, by the limit of descriptors of this process.
pub fn most_connections() -> usize {
    // What is not known is assumed to be the kernel's default.
    let descriptors = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
    let most = (descriptors.saturating_sub(KEPT_DESCRIPTORS) / 2).clamp(8, PLENTY);
    usize::try_from(most).expect("at most 256")
}

/// Accepts connections and lets the router answer what comes on them, until it is dropped.
pub async fn serve(listener: TcpListener, router: Router, most: usize) {
    let mut open: Vec<Connection> = Vec::new();
    loop {
        let accepted = listener.accept().await;
        open.retain(|connection| !connection.task.is_finished());
        match accepted {
            Ok((stream, _)) if open.len() < most || end_oldest_stranger(&mut open) => {
                open.push(start(stream, &router));
            }
            // All belong to the person who has the token. The new one is closed.
            Ok(_) => {}
            // The process or the machine has no descriptor left.
            Err(_) => {
                end_oldest_stranger(&mut open);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Makes room; `false` where there is nobody without the token.
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

fn start(stream: TcpStream, router: &Router) -> Connection {
    let proof = Proof::default();
    let router = router.clone().layer(Extension(proof.clone()));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    // Errors are those of the other side: it went away, or did not speak HTTP.
    let task = tokio::spawn(async move { drop(served.await) });
    Connection {
        proof,
        task: task.abort_handle(),
    }
}
