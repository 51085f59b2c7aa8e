//! The server of `swtch view`: access, answers, and that the answers are those of the command line.
//! The page itself is tested in a browser (`web/e2e`).

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::machine::beside_others;
use crate::output::REPORTS;
use crate::recording::{Recording, SWTCH, TraceDir, report, stderr, stdout, swtch};

/// A small recording that is kept in the source tree.
fn kept_trace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../swtch-store/tests/format-1.swtch")
}

/// A server process that is killed when the test ends.
struct ViewServer {
    process: Child,
    /// The address and port that it serves: `127.0.0.1:PORT`.
    host: String,
    /// The path of the page, which contains the token: `/TOKEN/`.
    base: String,
}

impl Drop for ViewServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct HttpResponse {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl ViewServer {
    fn of(trace: &Path) -> Self {
        Self::started(swtch(["view", "--no-open"]).arg(trace))
    }

    /// The server that this command starts, once it has printed its address.
    fn started(command: &mut std::process::Command) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut process = command.spawn().unwrap();
        let mut url = String::new();
        BufReader::new(process.stdout.as_mut().unwrap())
            .read_line(&mut url)
            .unwrap();
        let address = url
            .trim()
            .strip_prefix("http://")
            .expect("an address is printed");
        let (host, token) = address.split_once('/').unwrap();
        Self {
            host: host.to_owned(),
            base: format!("/{token}"),
            process,
        }
    }

    fn connected(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.host).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        stream
    }

    fn ask(&self, path: &str, headers: &[&str]) -> HttpResponse {
        let mut stream = self.connected();
        let mut request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n");
        for header in headers {
            request += &format!("{header}\r\n");
        }
        stream.write_all((request + "\r\n").as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .expect("a head");
        let head = String::from_utf8(answer[..end].to_vec()).unwrap();
        HttpResponse {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            body: answer[end + 4..].to_vec(),
            head,
        }
    }

    /// A request with the token and host that the page sends.
    fn get(&self, path: &str) -> HttpResponse {
        self.ask(
            &format!("{}{path}", self.base),
            &[&format!("Host: {}", self.host)],
        )
    }

    fn json(&self, path: &str) -> Value {
        let answer = self.get(path);
        assert_eq!(
            answer.status,
            200,
            "{path}: {}",
            String::from_utf8_lossy(&answer.body)
        );
        serde_json::from_slice(&answer.body).unwrap()
    }
}

/// Other users of the machine and other pages in the browser can reach the port, but not the page.
#[test]
fn only_who_knows_the_address_is_let_in() {
    let server = ViewServer::of(&kept_trace());
    let host = format!("Host: {}", server.host);
    let own = server.base.as_str();
    let api = format!("{own}api/trace");
    for (path, headers, expected) in [
        (own, vec![host.as_str()], 200),
        (&api, vec![&host], 200),
        (
            &api,
            vec![&host, &format!("Origin: http://{}", server.host)],
            200,
        ),
        ("/", vec![&host], 403),
        ("/api/trace", vec![&host], 403),
        (
            "/00000000000000000000000000000000/api/trace",
            vec![&host],
            403,
        ),
        (&own[..own.len() - 2], vec![&host], 403),
        (&own[..own.len() - 1], vec![&host], 303),
        (&api, vec![&host, "Origin: http://example.com"], 403),
        (&api, vec![&host, "Origin: null"], 403),
        (&api, vec!["Host: example.com"], 403),
        // With two Host headers, a proxy may use one and the server the other.
        (&api, vec![&host, "Host: example.com"], 403),
        (&api, vec![&host, &host], 403),
        (
            &api,
            vec![
                &host,
                &format!("Origin: http://{}", server.host),
                "Origin: http://example.com",
            ],
            403,
        ),
        (&format!("http://{}{api}", server.host), vec![&host], 200),
        (&format!("http://example.com{api}"), vec![&host], 403),
        (&api, vec!["Host: 127.0.0.1"], 403),
        (&api, vec![], 400),
    ] {
        let answer = server.ask(path, &headers);
        // HTTP/1.1 requires a Host header; the request may be refused at either of two places.
        let is_refused = expected == 400 && answer.status == 403;
        assert!(
            answer.status == expected || is_refused,
            "{path} {headers:?}: {}",
            answer.head
        );
    }
}

/// Each connection uses one of the server's descriptors. Strangers who keep connections open must
/// not block the user who has the token.
#[test]
fn strangers_cannot_take_all_connections() {
    let limited = "ulimit -n 128; exec \"$0\" \"$@\"";
    let mut command = std::process::Command::new("sh");
    command.args(["-c", limited, SWTCH, "view", "--no-open"]);
    let server = ViewServer::started(command.arg(kept_trace()));
    let own = server.connected();
    let strangers: Vec<_> = (0..200)
        .map(|number| {
            let mut stream = server.connected();
            // Half of them send nothing, the others begin a request and never end it.
            if number % 2 == 0 {
                drop(stream.write_all(b"GET / HTTP/1.1\r\nHost: "));
            }
            stream
        })
        .collect();
    let began = Instant::now();
    assert_eq!(server.get("api/trace").status, 200);
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    drop((own, strangers));
}

/// A request that never ends keeps its connection only for a limited time.
#[test]
fn half_a_request_is_not_waited_for_without_end() {
    let server = ViewServer::of(&kept_trace());
    for beginning in ["", "GET / HTTP/1.1\r\nHost: "] {
        let began = Instant::now();
        let mut stream = server.connected();
        stream.write_all(beginning.as_bytes()).unwrap();
        let mut answer = Vec::new();
        // The connection ends; a 408 may come before that.
        stream.read_to_end(&mut answer).unwrap();
        let took = began.elapsed();
        assert!(
            took > Duration::from_secs(5) && took < Duration::from_secs(40),
            "{took:?}"
        );
    }
}

/// The policy tells the browser that the page uses nothing from elsewhere.
#[test]
fn every_answer_carries_its_policy() {
    let server = ViewServer::of(&kept_trace());
    for path in ["", "api/trace", "no/such/file"] {
        let head = server.get(path).head.to_lowercase();
        assert!(
            head.contains("content-security-policy: default-src 'none'"),
            "{head}"
        );
        assert!(head.contains("x-content-type-options: nosniff"), "{head}");
        assert!(head.contains("referrer-policy: no-referrer"), "{head}");
    }
}

/// The page is a list of files inside the program: no path leads out of it.
#[test]
fn paths_do_not_lead_out_of_the_page() {
    let server = ViewServer::of(&kept_trace());
    for path in [
        "../../../../../../etc/passwd",
        "..%2f..%2f..%2fetc%2fpasswd",
        "assets/../../../etc/passwd",
        "meta.json",
        "api/../meta.json",
        "%00",
    ] {
        let answer = server.get(path);
        assert!(
            (400..500).contains(&answer.status),
            "{path}: {}",
            answer.head
        );
        assert!(
            !String::from_utf8_lossy(&answer.body).contains("root:"),
            "{path}"
        );
    }
}

fn assert_reports_agree<'a>(
    server: &ViewServer,
    trace: &Path,
    reports: impl IntoIterator<Item = &'a str>,
) {
    for by in reports {
        let printed = report(trace, &["--by", by, "--format", "json"]);
        let answer = server.get(&format!("api/report?by={by}"));
        assert_eq!(
            stdout(&printed),
            String::from_utf8(answer.body).unwrap(),
            "{by}"
        );
    }
}

/// Panels show exactly what the command line shows.
#[test]
fn reports_are_those_of_the_command_line() {
    let trace = kept_trace();
    let server = ViewServer::of(&trace);
    assert_reports_agree(&server, &trace, REPORTS.iter().copied().chain(["level"]));
    let half = server.json("api/trace")["duration_ns"].as_u64().unwrap() / 2;
    let since = format!("{half}ns");
    let printed = report(
        &trace,
        &[
            "--by",
            "thread",
            "--since",
            &since,
            "--reason",
            "futex,pipe",
            "--format",
            "json",
        ],
    );
    let answer = server.get(&format!(
        "api/report?by=thread&from={half}&reason=futex,pipe"
    ));
    assert_eq!(stdout(&printed), String::from_utf8(answer.body).unwrap());
}

/// The same switches, counted in three ways.
#[test]
fn curves_and_threads_count_what_reports_count() {
    let server = ViewServer::of(&kept_trace());
    let total = &server.json("api/report?by=reason")["total"];
    let switches = total["switches"].as_u64().unwrap();
    assert!(switches > 0);
    let rate = server.json("api/rate?bins=37");
    let bins = rate["reasons"].as_array().unwrap().iter();
    let counts = bins.flat_map(|reason| reason["counts"].as_array().unwrap());
    assert_eq!(
        counts.map(|count| count.as_u64().unwrap()).sum::<u64>(),
        switches
    );
    let threads = server.json("api/threads");
    let in_scope = threads["in_scope"].as_array().unwrap().iter();
    let of_threads = threads["switches"].as_array().unwrap().iter().zip(in_scope);
    let counted = of_threads.filter(|(_, asked)| asked.as_bool().unwrap());
    assert_eq!(
        counted
            .map(|(count, _)| count.as_u64().unwrap())
            .sum::<u64>(),
        switches
    );
    let waits = server.json("api/distribution?of=off");
    assert_eq!(waits["sum_ns"], total["off_ns"]);
}

/// It is answered for each wait who had the CPU, and summed over the whole trace: both must agree.
#[test]
fn who_had_the_cpu_sums_to_the_report() {
    let trace = kept_trace();
    let server = ViewServer::of(&trace);
    let threads = server.json("api/threads");
    let counts = threads["switches"].as_array().unwrap().iter();
    let rows: u64 = counts.map(|count| count.as_u64().unwrap()).sum();
    let mut asked = BTreeMap::new();
    for row in 0..rows {
        let detail = server.json(&format!("api/detail?row={row}"));
        for part in detail["wait"]["had_cpu"].as_array().into_iter().flatten() {
            let who = match part["thread"]["tid"].as_u64() {
                Some(tid) => tid.to_string(),
                None => part["what"].as_str().unwrap().to_owned(),
            };
            *asked.entry(who).or_insert(0) += part["ns"].as_u64().unwrap();
        }
    }
    let printed = report(&trace, &["--by", "preemptor", "--format", "json"]);
    let printed: Value = serde_json::from_str(&stdout(&printed)).unwrap();
    let held = printed["rows"].as_array().unwrap().iter().map(|row| {
        let who = row["tid"].as_u64().map(|tid| tid.to_string());
        let who = who.unwrap_or_else(|| row["kind"].as_str().unwrap().to_owned());
        (who, row["runq_ns"].as_u64().unwrap())
    });
    let held: BTreeMap<_, _> = held.filter(|(_, ns)| *ns > 0).collect();
    assert!(!held.is_empty());
    assert_eq!(asked, held);
}

/// Requests that the page cannot have made are refused with a message, and never end the server.
#[test]
fn questions_that_make_no_sense_are_refused() {
    let server = ViewServer::of(&kept_trace());
    for (question, status) in [
        ("lanes?from=5&to=5&px=10&lanes=c0", 400),
        ("lanes?px=0&lanes=c0", 400),
        ("lanes?px=99999&lanes=c0", 400),
        ("lanes?px=10&lanes=x1", 400),
        ("lanes?px=10&lanes=t", 400),
        ("lanes?from=abc", 400),
        ("lanes?from=-1", 400),
        ("detail", 400),
        ("detail?row=4294967295", 404),
        ("detail?row=1&level=both", 400),
        ("chain?row=0&level=user", 400),
        ("chain?row=4294967295", 404),
        ("critical", 400),
        ("critical?task=99999", 404),
        // Idle is not a task of its own.
        ("critical?task=0", 404),
        ("rate?bins=0", 400),
        ("distribution?of=age", 400),
        ("report?by=weather", 404),
        ("report?from=5&to=5", 400),
        ("report?from=9000000000000", 400),
        ("locks?from=5&to=1", 400),
        ("report?pid=x", 400),
        ("nothing", 404),
    ] {
        let answer = server.get(&format!("api/{question}"));
        let body = String::from_utf8(answer.body).unwrap();
        assert_eq!(answer.status, status, "{question}: {body}");
        let json: Value = serde_json::from_str(&body).unwrap();
        assert!(
            json["error"]
                .as_str()
                .is_some_and(|words| !words.is_empty()),
            "{question}: {body}"
        );
    }
    assert_eq!(server.get("api/trace").status, 200);
}

/// A real trace, with all kinds of switches: panels say what the command line says, every row has
/// details, and who had the CPU sums to the wait.
#[test]
#[ignore = "needs root"]
fn root_what_is_asked_of_a_real_trace_agrees() {
    let _machine = beside_others();
    let recording = Recording::of(&["--", SWTCH, "workload", "sampler", "--quiet"]);
    let trace = recording.place.trace();
    let server = ViewServer::of(&trace);
    let some = ["reason", "process", "thread", "preemptor", "wait", "stack"];
    assert_reports_agree(&server, &trace, some);
    let threads = server.json("api/threads");
    let counts = threads["switches"].as_array().unwrap().iter();
    let rows: u64 = counts.map(|count| count.as_u64().unwrap()).sum();
    let mut waits = 0;
    for row in (0..rows).step_by(37) {
        let detail = server.json(&format!("api/detail?row={row}"));
        let wait = &detail["wait"];
        let Some(runq) = wait["runq_ns"]
            .as_u64()
            .filter(|_| !detail["run"]["ns"].is_null())
        else {
            continue;
        };
        let held = wait["had_cpu"].as_array().unwrap().iter();
        let held: u64 = held.map(|part| part["ns"].as_u64().unwrap()).sum();
        assert_eq!(held, runq, "row {row}: {detail}");
        waits += 1;
    }
    assert!(waits > 50, "{waits} waits of {rows} rows");
}

#[test]
fn a_port_in_use_is_said_with_the_remedy() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let mut command = swtch(["view", "--no-open", "--port", &port]);
    let output = command.arg(kept_trace()).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains(&port) && said.contains("leave --port out"),
        "{said}"
    );
}

#[test]
fn two_viewers_of_one_trace_answer_the_same_and_each_to_its_own_address() {
    let [one, other] = [(); 2].map(|()| ViewServer::of(&kept_trace()));
    assert_ne!((&one.host, &one.base), (&other.host, &other.base));
    for question in ["api/report?by=reason", "api/threads", "api/explain"] {
        assert_eq!(one.json(question), other.json(question), "{question}");
    }
    let strange = one.ask(&other.base, &[&format!("Host: {}", one.host)]);
    assert_eq!(strange.status, 403);
}

#[test]
fn what_is_no_trace_is_refused_before_anything_is_served() {
    let place = TraceDir::new();
    fs::create_dir(place.trace()).unwrap();
    let output = swtch(["view", "--no-open"])
        .arg(place.trace())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    assert!(output.stdout.is_empty());
}

/// Rows that are recorded after the page was opened are shown, and the end of the recording is
/// noticed.
#[test]
#[ignore = "needs root"]
fn root_a_trace_that_is_being_recorded_is_followed() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let script = "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do sleep 0.5; done";
    let mut recorder = place.record(&["--", "sh", "-c", script]);
    let mut recorder = recorder
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let limit = Instant::now() + Duration::from_secs(60);
    while !place.trace().join("checksums.csv").exists() {
        assert!(Instant::now() < limit, "no trace appears");
        std::thread::sleep(Duration::from_millis(50));
    }
    let server = ViewServer::of(&place.trace());
    let first_rows = || -> Vec<Value> {
        let detail = |row| server.json(&format!("api/detail?row={row}"));
        let rows = (0..10).map(detail);
        rows.map(|row| json!([row["row"], row["thread"]["task"], row["run"]["to_ns"]]))
            .collect()
    };
    let mut shown = Vec::new();
    let (mut states, mut switches) = (Vec::new(), Vec::new());
    while states.last() != Some(&"finished".to_owned()) {
        assert!(
            Instant::now() < limit,
            "its end is not noticed: {states:?} {switches:?}"
        );
        let trace = server.json("api/trace");
        states.push(trace["state"].as_str().unwrap().to_owned());
        switches.push(trace["switches"].as_u64().unwrap());
        if shown.is_empty() && switches.last() >= Some(&10) {
            shown = first_rows();
        }
        std::thread::sleep(Duration::from_millis(300));
    }
    recorder.wait().unwrap();
    assert_eq!(states[0], "recording");
    assert!(switches.is_sorted(), "{switches:?}");
    switches.dedup();
    assert!(
        switches.len() > 2,
        "it grew while it was watched: {switches:?}"
    );
    // The rows that a user had selected meanwhile are unchanged.
    assert_eq!(first_rows(), shown);
    let printed = report(&place.trace(), &["--by", "reason", "--format", "json"]);
    let printed: Value = serde_json::from_str(&stdout(&printed)).unwrap();
    assert_eq!(
        printed["total"]["switches"].as_u64(),
        switches.last().copied()
    );
}

/// A page to send is one file, and an incomplete one is never left.
#[test]
fn a_page_is_written_whole_or_not_at_all() {
    let place = TraceDir::new();
    let page = place.dir().join("page.html");
    let run = |file: &Path| {
        swtch(["report", "-o"])
            .arg(file)
            .arg(kept_trace())
            .output()
            .unwrap()
    };
    let output = run(&page);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = fs::read_to_string(&page).unwrap();
    assert!(
        text.starts_with("<!DOCTYPE html>") && text.ends_with("</html>"),
        "{SWTCH}"
    );
    let output = run(&place.dir().join("no/such/page.html"));
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    let left: Vec<_> = fs::read_dir(place.dir())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["page.html"]);
}
