//! Sends the metrics to an `OpenTelemetry` collector: OTLP over HTTP, as protobuf.
//!
//! Metrics are cumulative, so what one export fails to bring, the next one does: it is tried a few times
//! and then counted as failed. A thread of its own does it, which holds the totals only while it
//! encodes them, so that neither counting nor a scrape waits for a collector.
//!
//! There is no TLS, and redirects are not followed: a collector on this machine sends on to wherever it
//! must, with TLS and credentials.

mod messages;

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use axum::body::Bytes;
use axum::http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use prost::Message as _;
use swtch_output::message;
use swtch_output::text::escaped;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::totals::AgentTotals;
use messages::{CollectorAnswer, request_of};

/// Where a collector takes metrics (OTLP specification, "OTLP/HTTP Request").
const PATH: &str = "/v1/metrics";

/// Port of OTLP over HTTP.
const PORT: u16 = 4318;

/// The longest that a collector may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The pauses after which a failed export is tried again.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];

/// The longest answer that is read.
const MOST_ANSWER_BYTES: usize = 64 << 10;

/// Where metrics are sent to, and how often.
#[derive(Clone, Debug)]
pub struct OtlpRequest {
    /// The collector.
    pub collector: Collector,
    /// The time between two exports.
    pub every: Duration,
}

/// The address of a collector.
#[derive(Clone, Debug)]
pub struct Collector {
    host: String,
    port: u16,
    /// The part of the request line.
    path: String,
}

/// Why an export failed, and whether it is worth trying again.
struct ExportError {
    why: anyhow::Error,
    may_pass: bool,
}

impl std::str::FromStr for Collector {
    type Err = anyhow::Error;

    fn from_str(words: &str) -> Result<Self> {
        let url: Uri = words.parse().context("it is no URL (http://HOST:4318)")?;
        match url.scheme_str() {
            Some("http") => {}
            Some("https") => bail!(
                "https is not spoken: give the address of a collector on this machine or network \
                 (http://HOST:4318), which sends on with TLS"
            ),
            _ => bail!("a URL of a collector begins with http:// (http://HOST:4318)"),
        }
        let authority = url.authority().context("it names no host")?;
        ensure!(
            !authority.as_str().contains('@'),
            "a name and password would be sent unencrypted: leave them out"
        );
        ensure!(url.query().is_none(), "it must not have a query");
        let path = url.path().trim_end_matches('/');
        Ok(Self {
            host: authority.host().to_owned(),
            port: authority.port_u16().unwrap_or(PORT),
            path: match path.ends_with(PATH) {
                true => path.to_owned(),
                false => format!("{path}{PATH}"),
            },
        })
    }
}

/// Sends metrics from now on, in a thread of its own.
///
/// # Errors
/// When the system refuses.
pub fn start(request: &OtlpRequest, totals: &Arc<Mutex<AgentTotals>>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("preparing to send metrics")?;
    let mut exporter = Exporter {
        request: request.clone(),
        totals: Arc::clone(totals),
        told: None,
    };
    thread::Builder::new()
        .name("swtch-otlp".to_owned())
        .spawn(move || runtime.block_on(exporter.run()))
        .context("starting a thread")?;
    Ok(())
}

struct Exporter {
    request: OtlpRequest,
    totals: Arc<Mutex<AgentTotals>>,
    /// The last error that was told.
    told: Option<String>,
}

impl Exporter {
    async fn run(&mut self) {
        loop {
            tokio::time::sleep(self.request.every).await;
            let body = {
                let totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
                Bytes::from(request_of(&totals, unix_ns()).encode_to_vec())
            };
            let sent = self.send_with_patience(&body).await;
            let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
            match &sent {
                Ok(rejected) => {
                    totals.otlp.taken += 1;
                    totals.otlp.rejected_points += rejected;
                }
                Err(_) => totals.otlp.failed += 1,
            }
            drop(totals);
            self.tell(sent.err());
        }
    }

    /// Returns how many points the collector rejected.
    async fn send_with_patience(&self, body: &Bytes) -> Result<u64> {
        let mut pauses = PAUSES.iter();
        loop {
            let sent = timeout(PATIENCE, send(&self.request.collector, body.clone()));
            let sent = sent.await.unwrap_or_else(|_| {
                Err(ExportError {
                    why: anyhow!("no answer within {} s", PATIENCE.as_secs()),
                    may_pass: true,
                })
            });
            let error = match sent {
                Ok(rejected) => return Ok(rejected),
                Err(error) => error,
            };
            match pauses.next() {
                Some(pause) if error.may_pass => tokio::time::sleep(*pause).await,
                _ => return Err(error.why),
            }
        }
    }

    /// Tells an error once, until there is another one or none.
    fn tell(&mut self, error: Option<anyhow::Error>) {
        let why = error.map(|error| format!("{error:#}"));
        if let Some(why) = why.as_ref().filter(|why| self.told.as_ref() != Some(*why)) {
            let Collector { host, port, path } = &self.request.collector;
            message!(
                "swtch: metrics were not sent to http://{host}:{port}{path}: {}; it is tried again every {} s",
                escaped(why),
                self.request.every.as_secs()
            );
        }
        self.told = why;
    }
}

/// Sends one request, and returns how many points the collector rejected.
async fn send(collector: &Collector, body: Bytes) -> Result<u64, ExportError> {
    let passing = |why: anyhow::Error| ExportError {
        why,
        may_pass: true,
    };
    let (status, answer) = post(collector, body).await.map_err(passing)?;
    if !status.is_success() {
        // "Retryable Response Codes" of the OTLP specification.
        let may_pass = matches!(status.as_u16(), 429 | 502 | 503 | 504);
        let why = anyhow!("it answered {status}");
        return Err(ExportError { why, may_pass });
    }
    // A collector that answers in other words has taken all.
    let rejected = CollectorAnswer::decode(answer)
        .ok()
        .and_then(|answer| answer.partial_success);
    Ok(rejected.map_or(0, |part| part.rejected_data_points.unsigned_abs()))
}

async fn post(collector: &Collector, body: Bytes) -> Result<(StatusCode, Bytes)> {
    let Collector { host, port, path } = collector;
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((name, *port))
        .await
        .context("connecting")?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    let request = Request::post(path.as_str())
        .header(header::HOST, format!("{host}:{port}"))
        .header(header::CONTENT_TYPE, "application/x-protobuf")
        .header(
            header::USER_AGENT,
            concat!("swtch/", env!("CARGO_PKG_VERSION")),
        )
        .body(Full::new(body))?;
    let answer = sender.send_request(request).await.context("sending")?;
    let status = answer.status();
    let read = Limited::new(answer.into_body(), MOST_ANSWER_BYTES)
        .collect()
        .await;
    connection.abort();
    let answer = read
        .map_err(|error| anyhow!(error))
        .context("reading the answer")?;
    Ok((status, answer.to_bytes()))
}

/// Now, since 1970.
fn unix_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_collectors_are_completed_and_others_refused() {
        let shown = |words: &str| {
            let Collector { host, port, path } = words.parse().unwrap();
            format!("{host} {port} {path}")
        };
        assert_eq!(shown("http://localhost"), "localhost 4318 /v1/metrics");
        assert_eq!(shown("http://[::1]:80/"), "[::1] 80 /v1/metrics");
        assert_eq!(shown("http://a/otlp/v1/metrics"), "a 4318 /otlp/v1/metrics");
        assert_eq!(shown("http://a/otlp"), "a 4318 /otlp/v1/metrics");
        for (words, why) in [
            ("https://a", "https is not spoken"),
            ("localhost:4318", "begins with http://"),
            ("http://u:p@a", "password"),
            ("http://a/?x=1", "query"),
            ("http://a b", "no URL"),
        ] {
            let error = words.parse::<Collector>().unwrap_err();
            assert!(format!("{error:#}").contains(why), "{words}: {error:#}");
        }
    }
}
