//! Containers of Podman: the agent and reports name them, say how long they ran, and who took the CPU from whom.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::agents::TestAgent;
use crate::machine::alone;
use crate::recording::{TraceDir, report, stderr, stdout};

/// A root directory in which there is nothing but a shell; `None` where there is no busybox to make it of.
fn root_with_shell(place: &TraceDir) -> Option<String> {
    let root = place.dir().join("root");
    for dir in ["bin", "dev", "etc", "proc", "sys", "tmp"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    fs::copy("/bin/busybox", root.join("bin/sh")).ok()?;
    symlink("sh", root.join("bin/true")).unwrap();
    Some(root.to_str().unwrap().to_owned())
}

/// Podman with a runtime. Limits are set, since without `CAP_SYS_RESOURCE` nobody may raise them.
fn podman_run(runtime: &str, root: &str, words: &str) -> String {
    format!(
        "podman --log-level error --cgroup-manager cgroupfs --runtime {runtime} run --network none --cpuset-cpus 0 \
         --ulimit nofile=1024:1024 --ulimit nproc=1024:1024 {words} --rootfs {root}"
    )
}

fn shell(script: &str) -> Output {
    Command::new("sh").args(["-c", script]).output().unwrap()
}

/// Containers that are removed at the end.
struct NamedContainers([String; 2]);

impl Drop for NamedContainers {
    fn drop(&mut self) {
        shell(&format!("podman rm --force --time 0 {}", self.0.join(" ")));
    }
}

fn rows(trace: &Path, by: &str) -> Vec<Value> {
    let output = report(trace, &["--by", by, "--format", "json"]);
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    report["rows"].as_array().unwrap().clone()
}

fn assert_within_five_percent(told: f64, truth: f64, what: &str) {
    assert!(
        (told - truth).abs() <= 0.05 * truth,
        "{what}: {told}, {truth}"
    );
}

/// Two containers compute on one CPU, one of them with four times the weight of the other.
#[test]
#[ignore = "needs root"]
fn root_a_noisy_container_is_named_as_the_one_that_another_waits_for() {
    let _machine = alone();
    let place = TraceDir::new();
    let Some(root) = root_with_shell(&place) else {
        swtch_test::skip!("busybox is not installed (apt install busybox-static)");
    };
    let can_run = |runtime: &&str| {
        let script = podman_run(runtime, &root, "--rm") + " /bin/true";
        shell(&script).status.success()
    };
    let Some(runtime) = ["crun", "runc"].into_iter().find(can_run) else {
        swtch_test::skip!("podman runs no container here (apt install podman crun runc)");
    };
    let names = ["noisy", "quiet"].map(|name| format!("swtch-{name}-{}", std::process::id()));
    let agent = TestAgent::start(&[]);
    let _removed = NamedContainers(names.clone());
    let start = |name: &str, shares: u32| {
        let words = format!("--detach --name {name} --cpu-shares {shares}");
        podman_run(runtime, &root, &words)
            + " /bin/sh -c 'while :; do :; done' >/dev/null || exit 9"
    };
    // What the kernel says of their processes is read while these are stopped: at no other moment do all agree.
    let [noisy, quiet] = &names;
    let script = format!(
        "{}\n{}\nsleep 4\npids=$(podman inspect --format '{{{{.State.Pid}}}}' {noisy} {quiet})\n\
         kill -STOP $pids\nsleep 0.2\nfor pid in $pids; do cat /proc/$pid/schedstat; done\n\
         podman inspect --format '{{{{.Id}}}}' {noisy} {quiet}",
        start(noisy, 4096),
        start(quiet, 1024)
    );
    let recorded = place.record(&["--", "sh", "-c", &script]).output();
    let recorded = recorded.unwrap();
    assert!(recorded.status.success(), "{}", stderr(&recorded));
    let said = stdout(&recorded);
    let lines: Vec<&str> = said.lines().collect();
    let [of_noisy, of_quiet, noisy, quiet] = lines[..] else {
        panic!("{said}")
    };
    let metrics = agent.next_metrics();
    let cgroups = rows(&place.trace(), "cgroup");
    for (schedstat, id) in [(of_noisy, noisy), (of_quiet, quiet)] {
        let truth: Vec<f64> = schedstat.split(' ').map(|ns| ns.parse().unwrap()).collect();
        let row = cgroups.iter().find(|row| row["container_id"] == id);
        let row = row.unwrap_or_else(|| panic!("{id}: {cgroups:?}"));
        assert_eq!(row["runtime"], "podman");
        let ns = |key: &str| row[key].as_f64().unwrap();
        assert_within_five_percent(ns("ran_ns"), truth[0], "the report: ran");
        assert_within_five_percent(ns("runq_ns"), truth[1], "the report: run queue");
        let labels = ["runtime=\"podman\"", &format!("container_id=\"{id}\"")];
        let of_agent = |name| 1e9 * metrics.sum(name, &labels);
        let ran = of_agent("swtch_cgroup_on_cpu_seconds_total");
        assert_within_five_percent(ran, truth[0], "the agent: ran");
        let runq = of_agent("swtch_cgroup_run_queue_seconds_sum");
        assert_within_five_percent(runq, truth[1], "the agent: run queue");
    }
    let waits: Vec<Value> = rows(&place.trace(), "neighbour");
    let had = |of: &str, waits_for: &str| {
        let is_it =
            |row: &&Value| row["container_id"] == of && row["neighbour_container_id"] == waits_for;
        let row = waits.iter().find(is_it);
        row.map_or(0.0, |row| row["runq_ns"].as_f64().unwrap())
    };
    assert!(had(quiet, noisy) > 2.0 * had(noisy, quiet), "{waits:?}");
    assert!(had(noisy, quiet) > 0.0, "{waits:?}");
    agent.end();
}
