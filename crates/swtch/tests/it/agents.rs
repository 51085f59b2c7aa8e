//! `swtch agent`: its metrics are those of a recording beside it, and a real Prometheus reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use swtch_report::opening;

use crate::machine::{
    OfflineCpu, SOON, TestCgroup, TestProcess, alone, beside_others, children_of, wait_until,
};
use crate::recording::{SWTCH, TraceContents, TraceDir, stderr, swtch};
use crate::tops::run_counted;

/// A port that nobody has just now.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// An answer: its status, and its text.
fn get(port: u16, path: &str, headers: &[&str]) -> std::io::Result<(u16, String)> {
    let (head, body) = get_bytes(port, path, headers)?;
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok());
    Ok((status.unwrap(), String::from_utf8(body).unwrap()))
}

/// An answer: its head, and its body as it was sent.
fn get_bytes(port: u16, path: &str, headers: &[&str]) -> std::io::Result<(String, Vec<u8>)> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(SOON))?;
    let mut request =
        format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n");
    for header in headers {
        request += &format!("{header}\r\n");
    }
    stream.write_all((request + "\r\n").as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let head_ends = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let body = answer.split_off(head_ends.unwrap() + 4);
    Ok((String::from_utf8(answer).unwrap(), body))
}

const TAKES_OPEN_METRICS: &str = "Accept: application/openmetrics-text;version=1.0.0";

pub struct TestAgent {
    process: TestProcess,
    port: u16,
}

impl TestAgent {
    pub fn start(words: &[&str]) -> Self {
        Self::start_by(swtch(["agent"]), words)
    }

    /// The command is followed by the options.
    fn start_by(mut command: Command, words: &[&str]) -> Self {
        let port = free_port();
        let listen = format!("--listen=127.0.0.1:{port}");
        let process = TestProcess::start(command.arg(listen).args(words));
        let agent = Self { process, port };
        wait_until("it serves", || get(port, "/metrics", &[]).is_ok());
        agent
    }

    fn metrics(&self) -> Metrics {
        let (status, text) = get(self.port, "/metrics", &[TAKES_OPEN_METRICS]).unwrap();
        assert_eq!(status, 200, "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
        Metrics(text)
    }

    /// The metrics when two more readings are in them. Each reading takes over how often it was asked.
    pub fn next_metrics(&self) -> Metrics {
        let mut metrics = self.metrics();
        for _ in 0..2 {
            let asked = metrics.sum("swtch_agent_scrapes_total", &[]);
            wait_until("the next reading", || {
                sleep(Duration::from_millis(50));
                metrics = self.metrics();
                metrics.sum("swtch_agent_scrapes_total", &[]) > asked
            });
        }
        metrics
    }

    pub fn end(mut self) {
        self.process.signal(libc::SIGTERM);
        let status = self.process.ends_within(SOON);
        assert!(status.success(), "{status}");
    }
}

/// The text of all metrics.
pub struct Metrics(String);

impl Metrics {
    /// The sum of all series of this name whose labels hold all of these.
    pub fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let series = self.0.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let named = series.strip_prefix(name)?;
            let is_it = named.is_empty() || named.starts_with('{');
            let has_all = labels.iter().all(|label| named.contains(label));
            (is_it && has_all).then(|| value.parse::<f64>().unwrap())
        });
        series.sum()
    }

    /// Switches of a cgroup by reason.
    fn reasons_of(&self, cgroup: &str) -> BTreeMap<String, u64> {
        let start = format!("swtch_cgroup_switches_total{{cgroup=\"{cgroup}\",reason=\"");
        let series = self.0.lines().filter_map(|line| line.strip_prefix(&start));
        series
            .map(|rest| {
                let (reason, number) = rest.split_once("\"} ").unwrap();
                (reason.to_owned(), number.parse().unwrap())
            })
            .collect()
    }
}

fn assert_within_one_percent(counted: f64, expected: f64, what: &str) {
    let apart = (counted - expected).abs();
    assert!(
        apart <= 0.01 * expected,
        "{what}: {counted} counted, {expected} expected"
    );
}

/// A program in a cgroup of its own is recorded, while the agent counts its switches.
#[test]
#[ignore = "needs root"]
fn root_metrics_of_a_cgroup_are_those_of_a_recording_beside_them() {
    let _alone = alone();
    let Some(cgroup) = TestCgroup::new() else {
        swtch_test::skip!("no hierarchy with the cpu controller");
    };
    let agent = TestAgent::start(&[]);
    let place = TraceDir::new();
    let procs = cgroup.path().join("cgroup.procs");
    let script = format!(
        "echo $$ > {}; exec {SWTCH} workload pipe --count 40000 --quiet",
        procs.display()
    );
    let recorded = place.record(&["--", "sh", "-c", &script]).output().unwrap();
    assert!(recorded.status.success(), "{}", stderr(&recorded));
    let contents = TraceContents::new(opening::open(&place.trace()).unwrap());
    let mut expected: BTreeMap<String, u64> = BTreeMap::new();
    for row in contents.by_thread().into_values().flatten() {
        let reason = row.rule.reason.as_str().to_owned();
        *expected.entry(reason).or_default() += 1;
    }
    let name = cgroup.path().file_name().unwrap().to_str().unwrap();
    let all = |by: &BTreeMap<String, u64>| by.values().sum::<u64>() as f64;
    // A machine that stands still for a moment delays a reading.
    wait_until("the agent has read them", || {
        let counted = agent.metrics().reasons_of(&format!("/{name}"));
        all(&counted) >= 0.99 * all(&expected)
    });
    let metrics = agent.next_metrics();
    let counted = metrics.reasons_of(&format!("/{name}"));
    assert!(all(&expected) > 70_000.0, "{expected:?}");
    assert_within_one_percent(all(&counted), all(&expected), "all");
    assert_within_one_percent(counted["pipe"] as f64, expected["pipe"] as f64, "pipe");
    // Each view has all switches, and the machine's has no fewer.
    let total = metrics.sum("swtch_switches_total", &[]);
    assert!((metrics.sum("swtch_cgroup_switches_total", &[]) - total).abs() < 0.5);
    assert!(metrics.sum("swtch_lost_switches_total", &[]) < 0.5);
    // A bucket counts all those below its edge.
    let of_cgroup = format!("cgroup=\"/{name}\"");
    let waits = metrics.sum("swtch_cgroup_run_queue_seconds_count", &[&of_cgroup]);
    let labels = [of_cgroup.as_str(), "le=\"+Inf\""];
    let infinite = metrics.sum("swtch_cgroup_run_queue_seconds_bucket", &labels);
    assert!(waits > 0.9 * all(&counted) && (waits - infinite).abs() < 0.5);
    agent.end();
}

/// The processes of an agent are called by its name, though they are started from `/proc/self/exe`.
#[test]
#[ignore = "needs root"]
fn root_all_processes_of_an_agent_have_its_name() {
    let _machine = beside_others();
    let agent = TestAgent::start(&[]);
    let names = || {
        let mut pids = vec![agent.process.pid()];
        let mut names = Vec::new();
        while let Some(pid) = pids.pop() {
            pids.extend(children_of(pid));
            names.push(fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default());
        }
        names
    };
    let both = ["swtch\n", "swtch-finder\n"];
    wait_until("it looks for schedulers", || names() == both);
    agent.end();
}

/// With room for one name, the switches of all other cgroups have one sum.
#[test]
#[ignore = "needs root"]
fn root_cgroups_beyond_the_bound_are_summed_and_counted() {
    let _machine = beside_others();
    let Some(cgroup) = TestCgroup::new() else {
        swtch_test::skip!("no hierarchy with the cpu controller");
    };
    let agent = TestAgent::start(&["--cgroups", "1"]);
    agent.next_metrics();
    let procs = cgroup.path().join("cgroup.procs");
    let script = format!(
        "echo $$ > {}; while :; do /bin/true; sleep 0.1; done",
        procs.display()
    );
    let _load = TestProcess::start(Command::new("sh").args(["-c", &script]));
    let of_others = ["cgroup=\"(others)\""];
    wait_until("switches of others are counted", || {
        let metrics = agent.metrics();
        assert!(metrics.sum("swtch_cgroups_named", &[]) < 1.5);
        metrics.sum("swtch_cgroups_in_others", &[]) > 0.5
            && metrics.sum("swtch_cgroup_switches_total", &of_others) > 20.0
    });
    agent.end();
}

/// Makes at least so many switches in the cgroup at this path, and ends.
fn switch_in(cgroup: &Path, switches: u32) {
    let script = format!(
        "echo $$ > {}/cgroup.procs; exec {SWTCH} workload pipe --count {switches} --quiet",
        cgroup.display()
    );
    let ended = Command::new("sh").args(["-c", &script]).status().unwrap();
    assert!(ended.success());
}

/// A container is started again and again: its cgroup is removed and made anew under its path.
#[test]
#[ignore = "needs root"]
fn root_a_cgroup_that_is_made_again_has_one_series_that_goes_on() {
    let _machine = beside_others();
    let Some(cgroup) = TestCgroup::new() else {
        swtch_test::skip!("no hierarchy with the cpu controller");
    };
    let agent = TestAgent::start(&[]);
    let id = "3f2a".repeat(16);
    let service = cgroup.path().join(format!("docker-{id}.scope"));
    let of_container = format!("runtime=\"docker\",container_id=\"{id}\"");
    let of_service = [of_container.as_str()];
    let mut counted = 0.0;
    for round in 0..4 {
        fs::create_dir(&service).unwrap();
        switch_in(&service, 200);
        let has_grown = || {
            let metrics = agent.metrics();
            let mut seen = BTreeSet::new();
            for line in metrics.0.lines().filter(|line| !line.starts_with('#')) {
                let (series, _) = line.rsplit_once(' ').unwrap();
                assert!(seen.insert(series.to_owned()), "{series} is there twice");
            }
            let now = metrics.sum("swtch_cgroup_switches_total", &of_service);
            assert!(now >= counted, "round {round}: {counted}, then {now}");
            now >= counted + 200.0
        };
        wait_until("its switches are counted", has_grown);
        counted = agent
            .metrics()
            .sum("swtch_cgroup_switches_total", &of_service);
        // The last process may be on its way out.
        wait_until("it is removed", || fs::remove_dir(&service).is_ok());
    }
    agent.end();
}

/// A process moves itself, and executes nothing.
#[test]
#[ignore = "needs root"]
fn root_switches_count_in_the_cgroup_to_which_a_task_moved_itself() {
    let _machine = beside_others();
    let (Some(from), Some(to)) = (TestCgroup::new(), TestCgroup::new()) else {
        swtch_test::skip!("no hierarchy with the cpu controller");
    };
    let agent = TestAgent::start(&[]);
    let place = TraceDir::new();
    let script = format!(
        "mkfifo silent; exec 3<>silent; echo $$ > {}/cgroup.procs; read -t 3 -u 3; \
         echo $$ > {}/cgroup.procs; for ((i = 0; i < 3000; i++)); do read -t 0.001 -u 3; done; true",
        from.path().display(),
        to.path().display()
    );
    let mut mover = Command::new("bash");
    let (_, kernel) = run_counted(mover.args(["-c", &script]).current_dir(place.dir()));
    assert!(kernel >= 3_000, "{kernel}");
    let name = to.path().file_name().unwrap().to_str().unwrap();
    let of_cgroup = format!("cgroup=\"/{name}\"");
    wait_until("the agent has read them", || {
        let metrics = agent.metrics();
        metrics.sum("swtch_cgroup_switches_total", &[&of_cgroup]) >= 2_990.0
    });
    agent.end();
}

/// A stock Prometheus scrapes the agent, and answers queries with its figures.
#[test]
#[ignore = "needs root"]
fn root_prometheus_reads_the_metrics() {
    let _machine = beside_others();
    if Command::new("prometheus")
        .arg("--version")
        .output()
        .is_err()
    {
        swtch_test::skip!("prometheus is not installed (apt install prometheus)");
    }
    let agent = TestAgent::start(&[]);
    let place = TraceDir::new();
    let config = place.dir().join("prometheus.yml");
    let scrape = format!(
        "global: {{scrape_interval: 1s}}\n\
         scrape_configs: [{{job_name: swtch, static_configs: [{{targets: ['127.0.0.1:{}']}}]}}]\n",
        agent.port
    );
    fs::write(&config, scrape).unwrap();
    let port = free_port();
    let mut prometheus = Command::new("prometheus");
    prometheus
        .arg(format!("--config.file={}", config.display()))
        .arg(format!(
            "--storage.tsdb.path={}",
            place.dir().join("data").display()
        ))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"));
    let mut prometheus = TestProcess::start(&mut prometheus);
    let query = |words: &str| -> Vec<Value> {
        let path = format!("/api/v1/query?query={words}");
        let Ok((200, body)) = get(port, &path, &[]) else {
            return Vec::new();
        };
        // A long answer comes in chunks.
        let (start, end) = (body.find('{').unwrap(), body.rfind('}').unwrap());
        let answer: Value = serde_json::from_str(&body[start..=end]).unwrap();
        answer["data"]["result"].as_array().unwrap().clone()
    };
    let start = Instant::now();
    let value = loop {
        // A quantile takes buckets, and a rate two scrapes.
        let rows = query("histogram_quantile(0.99,rate(swtch_run_queue_seconds_bucket[10s]))");
        let value = rows
            .first()
            .map(|row| row["value"][1].as_str().unwrap().to_owned());
        match value.as_deref() {
            Some("NaN") | None => {}
            Some(value) => break value.parse::<f64>().unwrap(),
        }
        assert!(start.elapsed() < Duration::from_secs(120), "no answer");
        sleep(Duration::from_millis(500));
    };
    assert!(value > 0.0 && value <= 1.1, "{value}");
    let up = query("up");
    assert_eq!(up[0]["value"][1], "1", "{up:?}");
    let reasons = query("sum(swtch_switches_total)by(reason)");
    assert!(reasons.len() > 10, "{reasons:?}");
    prometheus.signal(libc::SIGTERM);
    prometheus.ends_within(SOON);
    agent.end();
}

/// Who asks for `OpenMetrics` gets it, everybody else the text that all scrapers read, and both packed if they like.
#[test]
#[ignore = "needs root"]
fn root_each_scraper_gets_the_format_and_the_packing_that_it_takes() {
    let _machine = beside_others();
    let agent = TestAgent::start(&[]);
    let place = TraceDir::new();
    let packed = place.dir().join("metrics.gz");
    let names = |text: &str| {
        let heads = text.lines().filter(|line| line.starts_with("# "));
        heads.map(str::to_owned).collect::<Vec<_>>()
    };
    // More metrics come with the first reading.
    agent.next_metrics();
    let open = (
        "application/openmetrics-text; version=1.0.0",
        "# TYPE swtch_switches counter",
    );
    let text = (
        "text/plain; version=0.0.4",
        "# TYPE swtch_switches_total counter",
    );
    for (accept, (kind, metric)) in [
        (TAKES_OPEN_METRICS, open),
        ("Accept: text/plain;version=0.0.4", text),
        ("User-Agent: curl", text),
    ] {
        let (head, plain) = get_bytes(agent.port, "/metrics", &[accept]).unwrap();
        let plain = String::from_utf8(plain).unwrap();
        assert!(head.contains(&format!("content-type: {kind}; charset=utf-8\r\n")));
        assert!(head.contains("vary: Accept, Accept-Encoding\r\n"), "{head}");
        assert!(!head.contains("content-encoding"), "{head}");
        assert!(names(&plain).iter().any(|line| line == metric), "{plain}");
        assert_eq!(plain.ends_with("# EOF\n"), accept == TAKES_OPEN_METRICS);
        let takes = [accept, "Accept-Encoding: gzip"];
        let (head, body) = get_bytes(agent.port, "/metrics", &takes).unwrap();
        assert!(head.contains(&format!("content-type: {kind}; charset=utf-8\r\n")));
        assert!(head.contains("content-encoding: gzip\r\n"), "{head}");
        assert!(2 * body.len() < plain.len(), "{} bytes", body.len());
        fs::write(&packed, body).unwrap();
        let unpacked = Command::new("gunzip").arg("-c").arg(&packed).output();
        let unpacked = String::from_utf8(unpacked.unwrap().stdout).unwrap();
        assert_eq!(names(&unpacked), names(&plain));
    }
    agent.end();
}

/// Prometheus' own check finds nothing to say about names, types and help.
#[test]
#[ignore = "needs root"]
fn root_promtool_has_nothing_against_the_metrics() {
    let _machine = beside_others();
    if Command::new("promtool").arg("--version").output().is_err() {
        swtch_test::skip!("promtool is not installed (apt install prometheus)");
    }
    let agent = TestAgent::start(&[]);
    agent.next_metrics();
    let (_, text) = get(agent.port, "/metrics", &[]).unwrap();
    let place = TraceDir::new();
    let path = place.dir().join("metrics");
    fs::write(&path, text).unwrap();
    let mut check = Command::new("promtool");
    check.args(["check", "metrics"]);
    let checked = check.stdin(fs::File::open(&path).unwrap()).output();
    let checked = checked.unwrap();
    assert!(checked.status.success(), "{}", stderr(&checked));
    agent.end();
}

/// Scrapers that ask and never read, and one that comes all the time, keep nobody away.
#[test]
#[ignore = "needs root"]
fn root_a_scraper_that_never_reads_keeps_nobody_away() {
    let _machine = beside_others();
    // Without a stdout, and with a pipe that nobody reads as stderr.
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$@\" >&-", "sh", SWTCH, "agent"]);
    let agent = TestAgent::start_by(command, &[]);
    let ask = format!(
        "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n\r\n",
        agent.port
    );
    let stuck: Vec<TcpStream> = (0..60)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", agent.port)).unwrap();
            // So many requests that their answers fill the socket. It may be closed meanwhile.
            let _ = stream.write_all(ask.repeat(400).as_bytes());
            stream
        })
        .collect();
    for _ in 0..20 {
        agent.metrics();
        sleep(Duration::from_millis(100));
    }
    agent.end();
    drop(stuck);
}

/// Many who scrape at the same moment are all served.
#[test]
#[ignore = "needs root"]
fn root_sixty_four_scrapers_at_once_are_served() {
    let _machine = beside_others();
    let agent = TestAgent::start(&[]);
    let port = agent.port;
    let all_at_once = std::sync::Arc::new(std::sync::Barrier::new(64));
    let scrapers: Vec<_> = (0..64)
        .map(|_| {
            let all_at_once = std::sync::Arc::clone(&all_at_once);
            std::thread::spawn(move || {
                // Connections of all of them are open before the first one asks.
                let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
                all_at_once.wait();
                let request = format!(
                    "GET /metrics HTTP/1.1\r\nHost: LOCALHOST\r\n{TAKES_OPEN_METRICS}\r\nConnection: close\r\n\r\n"
                );
                stream.write_all(request.as_bytes()).unwrap();
                let mut answer = String::new();
                stream.read_to_string(&mut answer).unwrap();
                answer
            })
        })
        .collect();
    for scraper in scrapers {
        let answer = scraper.join().unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(answer.contains("# EOF\n"), "{answer}");
    }
    agent.end();
}

/// Names of cgroups are not for pages of other sites, nor for other machines.
#[test]
#[ignore = "needs root"]
fn root_others_need_a_token_and_other_sites_are_refused() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let token = place.dir().join("token");
    fs::write(&token, "0123456789abcdef0123\n").unwrap();
    let agent = {
        let port = free_port();
        let listen = format!("0.0.0.0:{port}");
        let mut command = swtch(["agent", "--listen", &listen, "--token-file"]);
        let process = TestProcess::start(command.arg(&token));
        wait_until("it serves", || get(port, "/metrics", &[]).is_ok());
        TestAgent { process, port }
    };
    let status = |headers: &[&str]| get(agent.port, "/metrics", headers).unwrap().0;
    assert_eq!(status(&[]), 401);
    assert_eq!(status(&["Authorization: Bearer 0123456789abcdef0124"]), 401);
    assert_eq!(status(&["Authorization: Bearer 0123456789abcdef0123"]), 200);
    // Who restarts an agent that hangs has no token, and is told nothing else.
    let probe = |path| get(agent.port, path, &[]).unwrap();
    let ok = (200, "ok\n".to_owned());
    wait_until("there was a reading", || probe("/readyz") == ok);
    assert_eq!(probe("/healthz"), ok);
    assert_eq!(probe("/healthz/").0, 401);
    agent.end();
}

#[test]
fn a_port_that_is_taken_and_an_address_for_all_are_refused() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    for (listen, expected) in [
        (listen.as_str(), "another program may have the port"),
        ("0.0.0.0:9464", "give --token-file FILE"),
    ] {
        let output = swtch(["agent", "--listen", listen]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let said = stderr(&output);
        assert!(said.contains(expected) && said.contains(listen), "{said}");
    }
}

/// An agent that may not load programs says so, and tells what the kernel counts anyway.
#[test]
#[ignore = "needs root"]
fn root_without_rights_the_counters_of_the_kernel_are_served() {
    let _machine = beside_others();
    let Some(cgroup) = TestCgroup::new() else {
        swtch_test::skip!("no hierarchy with the cpu controller");
    };
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all", "--inh-caps=-all", SWTCH, "agent"]);
    let agent = TestAgent::start_by(command, &[]);
    let metrics = agent.next_metrics();
    let up = |layer: &str| metrics.sum("swtch_layer_up", &[&format!("layer=\"{layer}\"")]);
    assert!(up("host") > 0.5 && up("switches") < 0.5, "{}", metrics.0);
    for lacking in [
        "layer=\"switches\",lacks=\"rights\"",
        "layer=\"prices\",lacks=\"switches\"",
    ] {
        assert!(metrics.0.contains(lacking), "{}", metrics.0);
    }
    assert!(metrics.sum("swtch_host_context_switches_total", &[]) > 1e3);
    assert!(!metrics.0.contains("swtch_switches_total") && !metrics.0.contains("(others)"));
    let name = cgroup.path().file_name().unwrap().to_str().unwrap();
    let of_cgroup = format!("cgroup=\"/{name}\"");
    assert!(metrics.0.contains(&of_cgroup), "{}", metrics.0);
    agent.end();
    // What was asked for and is not there is an error with rights and without.
    let output = swtch(["agent", "--listen", "127.0.0.1:0", "--cgroup", "/tmp"]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

/// Of the cgroups that were not chosen there is what the kernel counts anyway, and no switch.
#[test]
#[ignore = "needs root"]
fn root_switches_of_a_chosen_cgroup_are_counted_and_counters_of_all_told() {
    let _machine = beside_others();
    let Some(cgroup) = TestCgroup::new() else {
        swtch_test::skip!("no hierarchy with the cpu controller");
    };
    let path = cgroup.path();
    let (inner, other) = (path.join("chosen"), path.join("other"));
    fs::create_dir(&inner).unwrap();
    fs::create_dir(&other).unwrap();
    let agent = TestAgent::start(&["--cgroup", inner.to_str().unwrap()]);
    for of in [&inner, &other] {
        let script = format!(
            "echo $$ > {}/cgroup.procs; exec {SWTCH} workload pipe --count 2000 --quiet",
            of.display()
        );
        assert!(
            Command::new("sh")
                .args(["-c", &script])
                .status()
                .unwrap()
                .success()
        );
    }
    let metrics = agent.next_metrics();
    let total = metrics.sum("swtch_switches_total", &[]);
    let of_chosen = metrics.sum("swtch_cgroup_switches_total", &["/chosen"]);
    assert!(
        total > 3_000.0 && (total - of_chosen).abs() < 0.5,
        "{}",
        metrics.0
    );
    assert!(metrics.sum("swtch_cgroup_switches_total", &["/other"]) < 0.5);
    // Cgroups are looked for in a hundredth of the time.
    let is_told = |name: &str| {
        let Metrics(text) = agent.metrics();
        let mut lines = text.lines();
        lines.any(|line| line.starts_with("swtch_cgroup_throttled") && line.contains(name))
    };
    wait_until("both are told", || {
        is_told("/chosen\"") && is_told("/other\"")
    });
    agent.end();
    fs::remove_dir(&inner).unwrap();
    fs::remove_dir(&other).unwrap();
}

/// ```text
/// agent   ├───────── stopped ├──── a CPU less ├────────
/// load          ├────────────────────────────────┤        all of it is counted
/// ```
#[test]
#[ignore = "needs root"]
fn root_an_agent_that_is_stopped_and_a_cpu_that_goes_lose_no_switch() {
    let _alone = alone();
    let agent = TestAgent::start(&[]);
    let before = agent.next_metrics();
    let run = |of: &str| {
        let mut load = swtch(["workload", "pipe", "--count", "20000", "--quiet"]);
        let (_, kernel) = run_counted(&mut load);
        assert!(kernel > 30_000, "{of}: {kernel}");
        kernel
    };
    agent.process.signal(libc::SIGSTOP);
    let mut kernel = run("stopped");
    sleep(Duration::from_secs(2));
    agent.process.signal(libc::SIGCONT);
    let cpus = before.sum("swtch_host_cpus", &[]);
    if let Some(cpu) = OfflineCpu::take() {
        kernel += run("with a CPU less");
        assert!(agent.next_metrics().sum("swtch_host_cpus", &[]) < cpus - 0.5);
        drop(cpu);
    }
    kernel += run("with all CPUs");
    let after = agent.next_metrics();
    let counted = after.sum("swtch_switches_total", &[]) - before.sum("swtch_switches_total", &[]);
    assert!(counted >= kernel as f64, "{counted} counted, {kernel} made");
    assert!(after.sum("swtch_lost_switches_total", &[]) < 0.5);
    assert!((after.sum("swtch_host_cpus", &[]) - cpus).abs() < 0.5);
    agent.end();
}

/// The first switches of 400 processes take all places, so that none is free for their last one, which
/// would say that they have ended.
#[test]
#[ignore = "needs root"]
fn root_places_of_those_that_ended_while_the_table_was_full_become_free() {
    let _machine = beside_others();
    let Some(cgroup) = TestCgroup::new() else {
        swtch_test::skip!("no hierarchy with the cpu controller");
    };
    let path = cgroup.path().to_str().unwrap();
    let agent = TestAgent::start(&["--groups", "256", "--cgroup", path]);
    let groups = || agent.metrics().sum("swtch_agent_groups", &[]);
    let script = format!(
        "echo $$ > {path}/cgroup.procs; i=0; while [ $i -lt 400 ]; do sleep 60 & all=\"$all $!\" i=$((i+1)); done; \
         sleep 1; kill $all; wait; true"
    );
    let sleepers = Command::new("sh").args(["-c", &script]).status().unwrap();
    assert!(sleepers.success());
    let metrics = agent.next_metrics();
    assert!(metrics.sum("swtch_lost_switches_total", &[]) > 300.0);
    assert!(groups() > 100.0, "{}", agent.metrics().0);
    let start = Instant::now();
    while groups() > 0.5 {
        assert!(
            start.elapsed() < Duration::from_secs(120),
            "{}",
            agent.metrics().0
        );
        sleep(Duration::from_millis(200));
    }
    agent.end();
}
