//! `swtch agent`: its metrics are those of a recording beside it, a real Prometheus reads them, and
//! what it writes down leaves no switch out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;
use swtch_core::{Pid, TaskEvent};
use swtch_report::opening;

use crate::machine::{
    OfflineCpu, SOON, TestCgroup, TestProcess, alone, beside_others, children_of, is_alive, send,
    wait_until,
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
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(SOON))?;
    let mut request =
        format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n");
    for header in headers {
        request += &format!("{header}\r\n");
    }
    stream.write_all((request + "\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok());
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    Ok((status.unwrap(), body.to_owned()))
}

/// An agent that serves.
struct TestAgent {
    process: TestProcess,
    port: u16,
}

impl TestAgent {
    fn start(words: &[&str]) -> Self {
        Self::start_by(swtch(["agent"]), words)
    }

    /// One that records into this directory.
    fn with_sink(sink: &Path, words: &[&str]) -> Self {
        let mut command = swtch(["agent", "--sink"]);
        command.arg(sink);
        Self::start_by(command, words)
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
        let (status, text) = get(self.port, "/metrics", &[]).unwrap();
        assert_eq!(status, 200, "{text}");
        assert!(text.ends_with("# EOF\n"), "{text}");
        Metrics(text)
    }

    /// The metrics when two more readings are in them.
    fn next_metrics(&self) -> Metrics {
        sleep(Duration::from_millis(2_200));
        self.metrics()
    }

    fn end(mut self) {
        self.process.signal(libc::SIGTERM);
        let status = self.process.ends_within(SOON);
        assert!(status.success(), "{status}");
    }
}

/// The text of all metrics.
struct Metrics(String);

impl Metrics {
    /// The sum of all series of this name whose labels hold all of these.
    fn sum(&self, name: &str, labels: &[&str]) -> f64 {
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
    let place = TraceDir::new();
    let sink = format!("--sink={}", place.dir().display());
    let agent = TestAgent::start(&[&sink]);
    let names = || {
        let mut pids = vec![agent.process.pid()];
        let mut names = Vec::new();
        while let Some(pid) = pids.pop() {
            pids.extend(children_of(pid));
            names.push(fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default());
        }
        names
    };
    wait_until("the flight recorder looks for schedulers", || {
        let names = names();
        let finders = names.iter().filter(|name| *name == "swtch-finder\n");
        finders.count() == 2
    });
    let names = names();
    assert!(
        names.len() == 5 && names.iter().all(|name| name.starts_with("swtch")),
        "{names:?}"
    );
    agent.end();
}

/// Where there is room for one name, the switches of all other cgroups have one sum.
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
        assert!(start.elapsed() < Duration::from_secs(40), "no answer");
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

fn segments_of(sink: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(sink.join("segments")).into_iter().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// ```text
/// the load     ├─────────────┤
/// segments  ├────┼────┼────┼────┤     each begins where the one before ends
/// ```
#[test]
#[ignore = "needs root"]
fn root_segments_leave_no_switch_out_and_count_none_twice() {
    let _alone = alone();
    let place = TraceDir::new();
    let sink = place.dir().join("sink");
    let words = [
        "--ring",
        "20s",
        "--segments",
        "1s",
        "--when",
        "comm = nobody-is-called-so",
    ];
    let start = || TestAgent::with_sink(&sink, &words);
    let agent = start();
    wait_until("the first segment", || !segments_of(&sink).is_empty());
    let mut load = swtch(["workload", "pipe", "--count", "30000", "--quiet"]);
    let (pid, kernel) = run_counted(&mut load);
    let pid = u32::try_from(pid).unwrap();
    let before = segments_of(&sink).len();
    wait_until("two more segments", || {
        segments_of(&sink).len() >= before + 2
    });
    let metrics = agent.metrics();
    assert!(metrics.sum("swtch_sink_recorder_up", &[]) > 0.5);
    assert!(metrics.sum("swtch_sink_missed_seconds_total", &[]) < 0.001);
    assert!(metrics.sum("swtch_sink_segments_written_total", &[]) > 2.5);
    let mut rows = 0;
    let mut last_end = None;
    for segment in segments_of(&sink) {
        let contents = TraceContents::new(opening::open(&segment).unwrap());
        let (start_ns, end_ns) = (contents.meta.start_ns, contents.meta.end_ns);
        assert!(last_end.is_none_or(|last| last == start_ns), "{segment:?}");
        last_end = Some(end_ns);
        let is_of_load =
            |task: &&TaskEvent| [task.pid, task.parent_pid].map(Pid::get).contains(&pid);
        let of_load: BTreeSet<u32> = contents
            .tasks
            .iter()
            .filter(is_of_load)
            .map(|task| task.pid.get())
            .collect();
        let threads = contents.by_thread().into_iter();
        let of_load = threads.filter(|((process, _), _)| of_load.contains(process));
        rows += of_load.map(|(_, rows)| rows.len()).sum::<usize>();
    }
    assert!(kernel > 50_000, "{kernel}");
    assert_within_one_percent(rows as f64, kernel as f64, "rows of all segments");
    agent.end();
    // A restart keeps what there was, and goes on.
    let segments = segments_of(&sink).len();
    let agent = start();
    wait_until("it goes on", || segments_of(&sink).len() > segments);
    assert!(sink.join("previous.swtch").exists());
    agent.end();
}

/// ```text
/// the load  ├───────────────────────────────┤
/// segments  ├─1 s─┤         ├─1 s─┤         ├─1 s─┤    every 3 s
/// ```
#[test]
#[ignore = "needs root"]
fn root_segments_of_a_part_of_the_time_say_which() {
    let _alone = alone();
    let place = TraceDir::new();
    let sink = place.dir().join("sink");
    let words = [
        "--ring",
        "20s",
        "--segments",
        "1s",
        "--segments-every",
        "3s",
    ];
    let agent = TestAgent::with_sink(&sink, &words);
    let mut load = swtch(["workload", "sampler", "--count", "1000", "--quiet"]);
    let mut load = load.spawn().unwrap();
    wait_until("three segments", || segments_of(&sink).len() >= 3);
    let metrics = agent.metrics();
    agent.end();
    let _ = load.kill();
    load.wait().unwrap();
    // What lies between was not asked for, so it was not missed.
    assert!(metrics.sum("swtch_sink_missed_seconds_total", &[]) < 0.001);
    assert!(metrics.sum("swtch_sink_segments_failed_total", &[]) < 0.5);
    let mut last_end = None;
    // The first one begins with the flight recorder, which may have begun earlier than the wait for it.
    for segment in segments_of(&sink).iter().skip(1) {
        let contents = TraceContents::new(opening::open(segment).unwrap());
        let (start_ns, end_ns) = (contents.meta.start_ns, contents.meta.end_ns);
        let length = (end_ns - start_ns) as f64 / 1e9;
        assert!((0.9..2.5).contains(&length), "{segment:?} holds {length} s");
        let pause = last_end.map(|last: u64| start_ns.saturating_sub(last) as f64 / 1e9);
        assert!(
            pause.is_none_or(|pause| pause > 1.5),
            "{pause:?} s before {segment:?}"
        );
        last_end = Some(end_ns);
    }
}

#[test]
fn segments_that_overlap_are_refused() {
    let words = [
        "--segments",
        "60s",
        "--segments-every",
        "30s",
        "--sink",
        "nowhere",
    ];
    let output = swtch(["agent"]).args(words).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(
        told.contains("--segments-every is shorter than --segments"),
        "{told}"
    );
    assert!(!Path::new("nowhere").exists());
}

/// The disk of the sink is a few megabytes: the oldest segments go, and metrics go on.
#[test]
#[ignore = "needs root"]
fn root_a_full_disk_costs_the_oldest_segments_and_no_metrics() {
    let _alone = alone();
    let place = TraceDir::new();
    let port = free_port();
    let script = format!(
        "mkdir sink && mount -t tmpfs -o size=6m none sink && \
         {{ {SWTCH} agent --listen 127.0.0.1:{port} --sink sink --ring 1MB --segments 1s & }} && agent=$! && \
         {SWTCH} workload pipe --count 700000 --quiet && sleep 2; \
         kill $agent; wait $agent; echo ended $?; ls sink/segments | wc -l"
    );
    let output = std::thread::scope(|scope| {
        let run = scope.spawn(|| place.run_with_own_mounts(&script));
        let mut last = Metrics(String::new());
        while !run.is_finished() {
            if let Ok((200, text)) = get(port, "/metrics", &[]) {
                last = Metrics(text);
            }
            sleep(Duration::from_millis(200));
        }
        assert!(last.sum("swtch_switches_total", &[]) > 700_000.0);
        let removed = last.sum("swtch_sink_segments_removed_total", &["disk_full"]);
        let failed = last.sum("swtch_sink_segments_failed_total", &[]);
        assert!(removed + failed > 0.5, "{}", last.0);
        run.join().unwrap()
    });
    let said = crate::recording::stdout(&output);
    assert!(said.contains("ended 0"), "{said} {}", stderr(&output));
}

/// The flight recorder below an agent: the child of what keeps it running.
fn flight_recorder_of(agent: u32) -> Option<u32> {
    let is_keeper = |child: &u32| {
        let words = fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        words.starts_with(b"swtch\0keep-recorder\0")
    };
    let keeper = children_of(agent).into_iter().find(is_keeper)?;
    children_of(keeper).into_iter().next()
}

#[test]
#[ignore = "needs root"]
fn root_a_flight_recorder_that_is_killed_is_started_again_and_ends_with_the_agent() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let mut command = swtch(["agent", "--ring", "20s", "--segments", "1s", "--sink"]);
    // A path from here: what is started again must find it, too.
    command.arg("sink").current_dir(place.dir());
    let mut agent = TestAgent::start_by(command, &[]);
    let sink = place.dir().join("sink");
    wait_until("the first segment", || !segments_of(&sink).is_empty());
    let first = flight_recorder_of(agent.process.pid()).unwrap();
    send(first, libc::SIGKILL);
    wait_until("it is started again", || {
        let metrics = agent.metrics();
        let restarts = metrics.sum("swtch_sink_recorder_restarts_total", &[]);
        (restarts - 1.0).abs() < 0.1 && metrics.sum("swtch_sink_recorder_up", &[]) > 0.5
    });
    assert!(sink.join("previous.swtch").exists());
    let before = segments_of(&sink).len();
    wait_until("segments go on", || segments_of(&sink).len() > before);
    wait_until("what was missed is counted", || {
        agent.metrics().sum("swtch_sink_missed_seconds_total", &[]) > 0.0
    });
    // However the agent ends, nothing of it goes on.
    let second = flight_recorder_of(agent.process.pid()).unwrap();
    agent.process.signal(libc::SIGKILL);
    agent.process.ends_within(SOON);
    wait_until("the flight recorder ends", || !is_alive(second));
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
    assert!(metrics.0.contains("loading eBPF programs is not permitted"));
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
        "echo $$ > {path}/cgroup.procs; i=0; while [ $i -lt 400 ]; do sleep 4 & i=$((i+1)); done; wait"
    );
    let sleepers = Command::new("sh").args(["-c", &script]).status().unwrap();
    assert!(sleepers.success());
    let metrics = agent.next_metrics();
    assert!(metrics.sum("swtch_lost_switches_total", &[]) > 300.0);
    assert!(groups() > 100.0, "{}", agent.metrics().0);
    let start = Instant::now();
    while groups() > 0.5 {
        assert!(
            start.elapsed() < Duration::from_secs(40),
            "{}",
            agent.metrics().0
        );
        sleep(Duration::from_secs(1));
    }
    agent.end();
}
