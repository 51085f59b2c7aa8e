//! The web server: it listens on loopback, serves one person, and only reads.
//!
//! Other pages in the same browser, and other users of the machine, can reach a loopback port. So
//! the address holds a random token; `Host` must be ours, which stops DNS rebinding; and an
//! `Origin` other than ours is refused. Each failure gives 403.
//!
//! ```text
//! question ─▶ waits for its turn ─▶ is computed ─▶ answer
//!    its connection closes │              │
//!                          ▼              ▼
//!                     is dropped     ends at the next piece of rows
//! ```
//!
//! A connection has one question at a time, so that no more wait than there may be connections.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::{Arc, RwLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use axum::extract::{Path, Query as AxumQuery, Request as HttpRequest, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::get;
use axum::{Extension, Router};
use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use swtch_loopback::{TokenProof, connections, is_same, values_of};
use swtch_output::message;
use swtch_output::text::escaped;
use swtch_report::prices::{PriceListCache, ReadyPrices};
use swtch_report::report::{Asker, EmptySpan};
use tokio::sync::Semaphore;
use tokio::task::JoinError;

use super::loaded::Loaded;
use super::query::{Query, QueryError};
use super::{ViewRequest, answers, assets};

/// The most answers that are computed at the same time: each scan takes all of a CPU, and two pages
/// may ask for ten.
const MOST_ANSWERS: usize = 8;

/// The time between two checks of whether a trace that is being recorded has changed.
const LOOK: Duration = Duration::from_secs(2);

/// After a reading, pause for this many times as long as it took.
const READING_SHARE: u32 = 5;

/// The page may load nothing from elsewhere, and run only our code.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The server's state: one trace on one port.
#[derive(Debug)]
pub struct ServerState {
    path: PathBuf,
    prices: PriceListCache,
    address: SocketAddr,
    token: String,
    loaded: RwLock<Arc<Loaded>>,
    /// One for each answer that may be computed at the same time.
    turns: Arc<Semaphore>,
    /// The number of questions that a computation was begun for.
    #[cfg(test)]
    begun: std::sync::atomic::AtomicUsize,
}

impl ServerState {
    /// The state of a server for a trace that has been read.
    pub fn new(request: &ViewRequest, loaded: Loaded, address: SocketAddr, token: String) -> Self {
        Self {
            path: request.trace.clone(),
            prices: PriceListCache::new(request.prices.clone()),
            address,
            token,
            loaded: RwLock::new(Arc::new(loaded)),
            turns: Arc::new(Semaphore::new(MOST_ANSWERS)),
            #[cfg(test)]
            begun: 0.into(),
        }
    }

    /// Address of the page, with the token.
    pub fn url(&self) -> String {
        format!("http://{}/{}/", self.address, self.token)
    }

    /// The latest reading of the trace.
    pub fn loaded(&self) -> Arc<Loaded> {
        let loaded = self
            .loaded
            .read()
            .expect("no reader or writer panics with it");
        Arc::clone(&loaded)
    }

    /// The price list; without one, an error in words.
    pub fn prices(&self) -> Result<Arc<ReadyPrices>, String> {
        self.prices.ready()
    }

    /// The name of the trace: that of its directory.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// Reads the trace again whenever it has grown, until it is finished.
    fn follow(&self) {
        let mut told = None;
        let mut seen = self.loaded().stamp();
        let mut pause = LOOK;
        while self.loaded().is_growing() {
            thread::sleep(pause);
            let now = super::loaded::stamp_of(&self.path);
            if now == seen {
                continue;
            }
            let began = Instant::now();
            match self.loaded().read_again(&self.path) {
                Ok(loaded) => {
                    seen = loaded.stamp();
                    *self
                        .loaded
                        .write()
                        .expect("no reader or writer panics with it") = Arc::new(loaded);
                }
                Err(error) => {
                    let error = format!("{error:#}");
                    // The recorder may be moving the final files into place just now.
                    if told.as_ref() != Some(&error) {
                        message!(
                            "swtch: the trace could not be read again: {}",
                            escaped(&error)
                        );
                        told = Some(error);
                    }
                }
            }
            pause = LOOK.max(began.elapsed() * READING_SHARE);
        }
    }
}

/// Serves until a signal asks the process to end.
///
/// # Errors
/// When the server cannot be started.
pub fn serve(state: Arc<ServerState>, listener: TcpListener) -> Result<()> {
    let follower = Arc::clone(&state);
    thread::Builder::new()
        .name("swtch-follow".to_owned())
        .spawn(move || follower.follow())
        .context("starting a thread")?;
    listener
        .set_nonblocking(true)
        .context("preparing the port")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(MOST_ANSWERS)
        .enable_all()
        .build()
        .context("starting the server")?;
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("catching signals")?;
    let (sender, ended) = mpsc::channel();
    let of_server = sender.clone();
    runtime.spawn(async move {
        let served = async {
            let listener = tokio::net::TcpListener::from_std(listener).context("using the port")?;
            connections::serve(
                listener,
                router(state),
                connections::most_connections(),
                None,
            )
            .await;
            Ok(())
        };
        // If a signal came first, nobody receives this any more.
        let _ = of_server.send(served.await);
    });
    thread::spawn(move || {
        if signals.forever().next().is_some() {
            let _ = sender.send(Ok(()));
        }
    });
    let result = ended.recv().context("the server ended without a word")?;
    runtime.shutdown_background();
    result
}

/// The routes of the server.
pub fn router(state: Arc<ServerState>) -> Router {
    Router::new()
        .route("/{token}", get(page_below))
        .route("/{token}/", get(page))
        .route("/{token}/{*path}", get(file_or_answer))
        .fallback(nothing_here)
        .layer(middleware::from_fn_with_state(Arc::clone(&state), guard))
        .with_state(state)
}

/// Answers only requests that come by our address and with our token.
async fn guard(
    State(state): State<Arc<ServerState>>,
    Extension(proof): Extension<TokenProof>,
    request: HttpRequest,
    next: Next,
) -> Response {
    let answer = match refused(&state, request.headers(), request.uri()) {
        Some(why) => refuse(StatusCode::FORBIDDEN, why, None),
        None => {
            proof.give();
            next.run(request).await
        }
    };
    harmless(answer)
}

/// Says why a request is refused; `None` if it is not.
fn refused(state: &ServerState, headers: &HeaderMap, uri: &Uri) -> Option<&'static str> {
    let texts = |name| values_of(headers, name);
    let ours = names_of(state.address.port());
    let is_ours = |host: &str| ours.iter().any(|our| our == host);
    // A request has exactly one `Host`. A target in absolute form names the host once more (RFC
    // 9112, section 3.2).
    let has_one_host = texts(header::HOST).count() == 1;
    let is_for_us = uri.authority().is_none_or(|host| is_ours(host.as_str()));
    if !has_one_host || !texts(header::HOST).all(is_ours) || !is_for_us {
        return Some("this server answers to 127.0.0.1 and localhost only");
    }
    let is_our_origin = |origin: &str| origin.strip_prefix("http://").is_some_and(is_ours);
    if !texts(header::ORIGIN).all(is_our_origin) {
        return Some("another page may not ask this server");
    }
    let token = uri.path().split('/').nth(1).unwrap_or_default();
    if !is_same(token.as_bytes(), state.token.as_bytes()) {
        return Some("the address needs the token that `swtch view` printed");
    }
    None
}

/// Values of `Host` that browsers send to this server. They omit the port if it is 80.
fn names_of(port: u16) -> Vec<String> {
    let hosts = ["127.0.0.1", "localhost"];
    let mut names = hosts.map(|host| format!("{host}:{port}")).to_vec();
    if port == 80 {
        names.extend(hosts.map(str::to_owned));
    }
    names
}

/// Sets the headers that protect the page: policy, no sniffing, no referrer, no caching.
fn harmless(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let mut say = |name, value| headers.insert(name, HeaderValue::from_static(value));
    say(header::CONTENT_SECURITY_POLICY, POLICY);
    say(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    say(header::REFERRER_POLICY, "no-referrer");
    say(header::CACHE_CONTROL, "no-store");
    response
}

async fn page() -> Response {
    file("index.html")
}

/// Redirects to the address with the final `/`, from which the page's relative paths are resolved.
async fn page_below(State(state): State<Arc<ServerState>>) -> Redirect {
    Redirect::to(&format!("/{}/", state.token))
}

async fn nothing_here() -> Response {
    refuse(
        StatusCode::NOT_FOUND,
        "there is nothing at this address",
        None,
    )
}

async fn file_or_answer(
    State(state): State<Arc<ServerState>>,
    Path((_, path)): Path<(String, String)>,
    query: std::result::Result<AxumQuery<Query>, axum::extract::rejection::QueryRejection>,
) -> Response {
    let Some(name) = path.strip_prefix("api/") else {
        return file(&path);
    };
    let query = match query {
        Ok(AxumQuery(query)) => query,
        Err(error) => return refuse(StatusCode::BAD_REQUEST, &error.body_text(), None),
    };
    match computed(state, name.to_owned(), query).await {
        Ok(Ok(answers::ResponseBody::Json(bytes))) => typed("application/json", bytes),
        Ok(Ok(answers::ResponseBody::Bytes(bytes))) => typed("application/octet-stream", bytes),
        Ok(Err(problem)) => of_problem(&problem),
        Err(panic) => {
            message!("swtch: an answer failed: {}", escaped(&panic.to_string()));
            refuse(
                StatusCode::INTERNAL_SERVER_ERROR,
                "the server failed at this question",
                None,
            )
        }
    }
}

/// Computes an answer when it is its turn. When the connection closes, this future is dropped, and with it
/// the question.
async fn computed(
    state: Arc<ServerState>,
    name: String,
    query: Query,
) -> std::result::Result<Result<answers::ResponseBody>, JoinError> {
    let turn = Arc::clone(&state.turns).acquire_owned().await;
    let turn = turn.expect("the semaphore is never closed");
    let _leaving = LeftQuestion(query.asker.clone());
    // Answers read files and take CPU time, so they do not run on the threads that serve
    // connections.
    let answer = move || {
        #[cfg(test)]
        state
            .begun
            .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let answer = answers::answer(&state, &name, &query);
        drop(turn);
        answer
    };
    tokio::task::spawn_blocking(answer).await
}

/// Says that who asked is gone, when it is dropped.
struct LeftQuestion(Asker);

impl Drop for LeftQuestion {
    fn drop(&mut self) {
        self.0.leave();
    }
}

fn of_problem(problem: &anyhow::Error) -> Response {
    match problem.downcast_ref::<answers::NotHere>() {
        Some(answers::NotHere { what, advice }) => {
            refuse(StatusCode::NOT_FOUND, what, advice.as_deref())
        }
        None => {
            let is_asked_wrong = problem.is::<QueryError>() || problem.is::<EmptySpan>();
            let status = match is_asked_wrong {
                true => StatusCode::BAD_REQUEST,
                false => StatusCode::INTERNAL_SERVER_ERROR,
            };
            refuse(status, &format!("{problem:#}"), None)
        }
    }
}

fn file(path: &str) -> Response {
    match assets::find(path) {
        Some(asset) => typed(asset.media_type(), asset.bytes.to_vec()),
        None => refuse(StatusCode::NOT_FOUND, "there is no such file", None),
    }
}

fn typed(media_type: &'static str, bytes: Vec<u8>) -> Response {
    ([(header::CONTENT_TYPE, media_type)], bytes).into_response()
}

fn refuse(status: StatusCode, error: &str, advice: Option<&str>) -> Response {
    let body = json!({"error": error, "advice": advice}).to_string();
    (status, typed("application/json", body.into_bytes())).into_response()
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{Ipv4Addr, TcpStream};
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::drawn::handed_round;

    /// A page that is zoomed fast asks and gives up again and again. What counts is what was begun, and
    /// not how long it took.
    #[test]
    fn questions_that_were_given_up_are_not_computed() {
        const GIVEN_UP: usize = 200;
        let (loaded, dir) = handed_round();
        let request = ViewRequest {
            trace: dir.path().to_owned(),
            port: None,
            open: false,
            prices: None,
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let state = ServerState::new(&request, loaded, address, "token".to_owned());
        let state = Arc::new(state);
        let of_others = state.turns.try_acquire_many(8).unwrap();
        assert_eq!(state.turns.available_permits(), 0);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let router = router(Arc::clone(&state));
        runtime.spawn(async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            connections::serve(listener, router, 2 * GIVEN_UP, None).await;
        });
        let ask = |ending: &str| {
            let mut stream = TcpStream::connect(address).unwrap();
            let path = "/token/api/explain";
            write!(
                stream,
                "GET {path} HTTP/1.1\r\nHost: {address}\r\n{ending}\r\n"
            )
            .unwrap();
            stream
        };
        // Each question that waits holds the semaphore.
        let wait_for = |waiting: usize| {
            let late = Instant::now() + Duration::from_secs(60);
            while Arc::strong_count(&state.turns) != 1 + waiting {
                assert!(
                    Instant::now() < late,
                    "{} wait",
                    Arc::strong_count(&state.turns) - 1
                );
                thread::sleep(Duration::from_millis(1));
            }
        };
        let given_up: Vec<_> = (0..GIVEN_UP).map(|_| ask("")).collect();
        wait_for(GIVEN_UP);
        drop(given_up);
        wait_for(0);
        drop(of_others);
        let mut answer = String::new();
        let mut last = ask("Connection: close\r\n");
        last.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert_eq!(state.begun.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn the_port_of_http_may_be_left_out() {
        let both = ["127.0.0.1:80", "localhost:80", "127.0.0.1", "localhost"];
        assert_eq!(names_of(80), both);
        assert_eq!(names_of(8080), ["127.0.0.1:8080", "localhost:8080"]);
    }
}
