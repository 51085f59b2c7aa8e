//! The HTTP server of the agent: one page, `/metrics`, for scrapers, and for who restarts an agent that hangs `/healthz`
//! and `/readyz`, which say nothing else and take no token.
//!
//! Names of cgroups and how busy they are is not for everybody who can reach a port. On a loopback
//! address everybody on this machine may read it, and `Host` must be a name of loopback, which stops
//! pages in a browser that let their own name lead there (DNS rebinding). On any other address, who
//! asks must send a token.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Extension, Router};
use swtch_loopback::{TokenProof, connections, is_same, values_of};
use swtch_store::input;

use super::AgentRequest;
use super::metrics::AgentMetrics;
use super::negotiation::{MetricsFormat, takes_gzip};
use super::totals::AgentTotals;

/// Most connections that are open at once: for one more, the oldest is closed. So a scraper that
/// connects and reads nothing keeps none away, and the memory of unread answers is bounded.
const MOST_CONNECTIONS: usize = 128;

/// A connection is closed after so long: who has not read an answer by then will not.
const LONGEST_CONNECTION: Duration = Duration::from_secs(60);

const MOST_TOKEN_BYTES: u64 = 4096;

/// Whether the agent is well is answered to everybody: what probes it may have no token.
const HEALTHY: &str = "/healthz";
const READY: &str = "/readyz";

/// Readings are at most five seconds apart. An agent without one for so long hangs.
const LONGEST_SILENCE: Duration = Duration::from_secs(60);

/// A port that is ours, on which nobody is served yet.
pub struct MetricsServer {
    listener: TcpListener,
    address: SocketAddr,
    token: Option<String>,
}

/// The metrics, and what requests for them are judged by.
struct ServedMetrics {
    metrics: Mutex<AgentMetrics>,
    totals: Arc<Mutex<AgentTotals>>,
    is_loopback: bool,
    token: Option<String>,
}

impl ServedMetrics {
    fn totals(&self) -> MutexGuard<'_, AgentTotals> {
        self.totals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl MetricsServer {
    /// Takes the port, and reads the token.
    ///
    /// # Errors
    /// When the port cannot be had, the token cannot be read, or others could reach the address and
    /// no token is asked for.
    pub fn bind(request: &AgentRequest) -> Result<Self> {
        let asked = request.listen;
        ensure!(
            asked.ip().is_loopback() || request.token_file.is_some(),
            "--listen {asked}: other machines can reach this address, and would read which cgroups there are and \
             how busy: give --token-file FILE, whose token scrapers must send, or listen on 127.0.0.1"
        );
        let token = request.token_file.as_deref().map(read_token).transpose()?;
        let listener = TcpListener::bind(asked).with_context(|| {
            format!(
                "listening on {asked} (another program may have the port: --listen takes another)"
            )
        })?;
        Ok(Self {
            address: listener.local_addr().context("asking for the port")?,
            listener,
            token,
        })
    }

    /// The address of the metrics.
    pub fn url(&self) -> String {
        format!("http://{}/metrics", self.address)
    }

    /// Serves in a thread of its own from now on.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn start(self, totals: Arc<Mutex<AgentTotals>>) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("starting the server")?;
        self.listener
            .set_nonblocking(true)
            .context("preparing the port")?;
        let listener = {
            let _inside = runtime.enter();
            tokio::net::TcpListener::from_std(self.listener).context("using the port")?
        };
        let router = router(Arc::new(ServedMetrics {
            metrics: Mutex::new(AgentMetrics::new(Arc::clone(&totals))),
            totals,
            is_loopback: self.address.ip().is_loopback(),
            token: self.token,
        }));
        thread::Builder::new()
            .name("swtch-http".to_owned())
            .spawn(move || {
                let most = connections::most_connections().min(MOST_CONNECTIONS);
                let longest = Some(LONGEST_CONNECTION);
                runtime.block_on(connections::serve(listener, router, most, longest));
            })
            .context("starting a thread")?;
        Ok(())
    }
}

fn router(served: Arc<ServedMetrics>) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route(HEALTHY, get(healthy))
        .route(READY, get(ready))
        .fallback(|| async { refused(StatusCode::NOT_FOUND, "the metrics are at /metrics") })
        .layer(middleware::from_fn_with_state(Arc::clone(&served), guard))
        .with_state(served)
}

async fn guard(
    State(served): State<Arc<ServedMetrics>>,
    Extension(proof): Extension<TokenProof>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    if served.is_loopback && served.token.is_none() && !is_to_loopback(headers) {
        return refused(
            StatusCode::FORBIDDEN,
            "this address answers to 127.0.0.1, [::1] and localhost only",
        );
    }
    let is_probe = [HEALTHY, READY].contains(&request.uri().path());
    if let Some(token) = served.token.as_ref().filter(|_| !is_probe) {
        if !has_token(headers, token) {
            return refused(
                StatusCode::UNAUTHORIZED,
                "send Authorization: Bearer and the token of --token-file",
            );
        }
        proof.give();
    }
    next.run(request).await
}

async fn metrics(State(served): State<Arc<ServedMetrics>>, headers: HeaderMap) -> Response {
    let (format, is_packed) = (MetricsFormat::of(&headers), takes_gzip(&headers));
    let mut metrics = served
        .metrics
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    match metrics.text(format, is_packed) {
        Ok(text) => {
            let kind = [
                (header::CONTENT_TYPE, format.content_type()),
                (header::VARY, "Accept, Accept-Encoding"),
            ];
            let packing = is_packed.then_some([(header::CONTENT_ENCODING, "gzip")]);
            (kind, packing, text).into_response()
        }
        Err(_) => refused(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the metrics could not be written",
        ),
    }
}

async fn healthy(State(served): State<Arc<ServedMetrics>>) -> Response {
    let silence = served.totals().read.elapsed();
    probed(
        silence < LONGEST_SILENCE,
        "there was no reading for a minute",
    )
}

async fn ready(State(served): State<Arc<ServedMetrics>>) -> Response {
    probed(served.totals().frames > 0, "there was no reading yet")
}

fn probed(is_well: bool, else_why: &'static str) -> Response {
    if is_well {
        "ok\n".into_response()
    } else {
        refused(StatusCode::SERVICE_UNAVAILABLE, else_why)
    }
}

fn refused(status: StatusCode, why: &'static str) -> Response {
    (status, format!("{why}\n")).into_response()
}

/// Returns true if the request names this machine: any port, since it may have come through a tunnel.
fn is_to_loopback(headers: &HeaderMap) -> bool {
    let mut hosts = values_of(headers, header::HOST);
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return false;
    };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let own = ["127.0.0.1", "localhost", "[::1]"];
    own.iter().any(|own| name.eq_ignore_ascii_case(own))
}

fn has_token(headers: &HeaderMap, token: &str) -> bool {
    let sent = headers.get(header::AUTHORIZATION);
    let sent = sent.and_then(|sent| sent.to_str().ok()?.strip_prefix("Bearer "));
    sent.is_some_and(|sent| is_same(sent.as_bytes(), token.as_bytes()))
}

/// The first line of the file, which is regular and short.
fn read_token(path: &Path) -> Result<String> {
    let shown = path.display();
    let text = input::read_text(path, MOST_TOKEN_BYTES);
    let text = text.with_context(|| format!("reading the token {shown}"))?;
    let token = text.lines().next().unwrap_or_default().trim();
    ensure!(
        token.len() >= 16,
        "the token in {shown} has {} characters: it needs 16 or more (openssl rand -hex 32)",
        token.len()
    );
    ensure!(
        token.bytes().all(|byte| byte.is_ascii_graphic()),
        "the token in {shown} has characters that no request can send: it needs visible ones of ASCII \
         (openssl rand -hex 32)"
    );
    Ok(token.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: header::HeaderName, values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(name.clone(), value.parse().unwrap());
        }
        headers
    }

    /// A page of another site may send its own name to this port, and nothing else.
    #[test]
    fn a_host_that_is_not_this_machine_is_refused() {
        let host = |values: &[&str]| is_to_loopback(&headers(header::HOST, values));
        for ours in [
            "127.0.0.1:9464",
            "localhost",
            "localhost:80",
            "LOCALHOST",
            "LocalHost:9464",
            "[::1]:9464",
            "[::1]",
        ] {
            assert!(host(&[ours]), "{ours}");
        }
        for other in [
            "example.com:9464",
            "127.0.0.1.example.com",
            "",
            "localhost:9464x",
        ] {
            assert!(!host(&[other]), "{other}");
        }
        assert!(!host(&[]) && !host(&["localhost", "example.com"]));
    }

    #[test]
    fn a_token_is_a_line_of_a_short_regular_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let told = |text: &[u8]| {
            std::fs::write(&path, text).unwrap();
            read_token(&path).map_err(|error| format!("{error:#}"))
        };
        assert_eq!(
            told(b" 0123456789abcdef\n"),
            Ok("0123456789abcdef".to_owned())
        );
        let long = vec![b'a'; 4097];
        for (text, why) in [
            (&b""[..], "has 0 characters"),
            (b"\n0123456789abcdef\n", "has 0 characters"),
            (&[0; 64], "no request can send"),
            ("0123456789abcdé".as_bytes(), "no request can send"),
            (&long, "more than 4096 bytes"),
        ] {
            let error = told(text).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        let refused = |path: &Path| format!("{:#}", read_token(path).unwrap_err());
        assert!(refused(Path::new("/dev/zero")).contains("not a regular file"));
        let fifo = dir.path().join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.unwrap().success());
        assert!(
            refused(&fifo).contains("not a regular file"),
            "and it does not wait"
        );
    }

    #[test]
    fn only_the_whole_token_is_taken() {
        let token = "0123456789abcdef";
        let has = |sent: &str| has_token(&headers(header::AUTHORIZATION, &[sent]), token);
        assert!(has("Bearer 0123456789abcdef"));
        assert!(!has("Bearer 0123456789abcde") && !has("0123456789abcdef") && !has("Bearer "));
        assert!(!has_token(&HeaderMap::new(), token));
    }
}
