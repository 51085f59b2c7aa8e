//! Quotas of cgroups, and names of cgroups: the one that throttles is named, wherever it is, and a
//! cgroup has its name in the hierarchy whose ids a trace has.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use swtch_report::opening;

use crate::machine::{TestCgroup, TestProcess, alone, beside_others, wait_until};
use crate::recording::{TraceDir, report, stderr, stdout, swtch};

/// Sets a quota in a period of 100 ms; false where the cgroup can have none.
fn set_quota(cgroup: &Path, quota_us: u32) -> bool {
    if cgroup.join("cpu.max").exists() {
        return fs::write(cgroup.join("cpu.max"), format!("{quota_us} 100000")).is_ok();
    }
    fs::write(cgroup.join("cpu.cfs_period_us"), "100000").is_ok()
        && fs::write(cgroup.join("cpu.cfs_quota_us"), quota_us.to_string()).is_ok()
}

/// The path of a cgroup as rows name it.
fn name_of(cgroup: &Path) -> String {
    let below = cgroup.strip_prefix("/sys/fs/cgroup").unwrap();
    let mut parts = below.components();
    if matches!(below.iter().next(), Some(first) if first == "cpu" || first == "unified") {
        parts.next();
    }
    format!("/{}", parts.as_path().display())
}

/// A shell that moves itself into the cgroup and uses the CPU.
fn burn_in(cgroup: &Path) -> String {
    format!(
        "echo $$ > {}/cgroup.procs; while :; do :; done",
        cgroup.display()
    )
}

/// ```text
/// /p         1 ms of 100 ms      used up by its child
/// /p/inner   no quota            the process is here
/// ```
#[test]
#[ignore = "needs root"]
fn root_the_verdict_names_the_cgroup_that_has_the_quota() {
    // Who has the CPU meanwhile is recorded, too, and so are the quotas of other tests.
    let _machine = alone();
    let Some(p) = TestCgroup::new().filter(|p| set_quota(p.path(), 1_000)) else {
        swtch_test::skip!("no quota can be set");
    };
    let inner = p.path().join("inner");
    fs::create_dir(&inner).unwrap();
    let place = TraceDir::new();
    let script = burn_in(&inner);
    let burn = ["--", "timeout", "2", "sh", "-c", &script];
    let recorded = place.record(&burn).output().unwrap();
    assert!(place.trace().exists(), "{}", stderr(&recorded));
    let trace = opening::open(&place.trace()).unwrap();
    let quotas = &trace.meta().quotas;
    let held: Vec<_> = quotas
        .iter()
        .map(|of| (of.cgroup.clone(), of.quota_us))
        .collect();
    assert_eq!(held, [(name_of(p.path()), 1_000)]);
    assert!(quotas[0].throttled_ns > 0, "{quotas:?}");
    let said = stdout(&report(&place.trace(), &["--format", "json"]));
    let answer: Value =
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
    let text = answer.to_string();
    let by = format!("by the quota of {}, 1.00 ms in 100 ms", name_of(p.path()));
    assert!(text.contains(&by), "{text}");
    let advice = format!("raise the quota of {} ", name_of(p.path()));
    assert!(text.contains(&advice), "{text}");
    wait_until("it is empty", || fs::remove_dir(&inner).is_ok());
}

/// ```text
/// /p          2 ms of 100 ms, used up by both
/// /p/a, /p/b  2 ms of 100 ms each
/// ```
#[test]
#[ignore = "needs root"]
fn root_top_names_the_cgroup_above_that_throttles() {
    let _machine = beside_others();
    let Some(p) = TestCgroup::new().filter(|p| set_quota(p.path(), 2_000)) else {
        swtch_test::skip!("no quota can be set");
    };
    // In v2 a child has the controller where the one above says so.
    let _ = fs::write(p.path().join("cgroup.subtree_control"), "+cpu");
    let children: Vec<PathBuf> = ["a", "b"].map(|name| p.path().join(name)).into();
    let loads: Vec<TestProcess> = children
        .iter()
        .map(|child| {
            fs::create_dir(child).unwrap();
            assert!(set_quota(child, 2_000));
            TestProcess::start(Command::new("sh").args(["-c", &burn_in(child)]))
        })
        .collect();
    let words = "top --by cgroup --count 1 --interval 3s --format json";
    let output = swtch(words.split(' ')).output().unwrap();
    let frame: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = frame["cgroups"]["rows"].as_array().unwrap();
    for child in &children {
        let name = name_of(child);
        let row = rows.iter().find(|row| row["cgroup"] == name.as_str());
        let row = row.unwrap_or_else(|| panic!("{name} is not in {frame}"));
        assert_eq!(row["quota_of"], name_of(p.path()).as_str(), "{row}");
        assert!(row["throttled_per_s"].as_f64().unwrap() > 1.0, "{row}");
        assert!(row["throttled_pct"].as_f64().unwrap() > 10.0, "{row}");
    }
    drop(loads);
    for child in &children {
        wait_until("it is empty", || fs::remove_dir(child).is_ok());
    }
}

/// People read the name that `docker ps` has, scripts the whole id.
#[test]
#[ignore = "needs root"]
fn root_a_container_is_named_where_its_cgroup_is_shown() {
    let _machine = beside_others();
    let Some(p) = TestCgroup::new() else {
        swtch_test::skip!("no hierarchy with the cpu controller");
    };
    let id = "3f2a9c1b7d5e".repeat(5) + "0123";
    let container = p.path().join(format!("docker-{id}.scope"));
    fs::create_dir(&container).unwrap();
    let script = format!(
        "echo $$ > {}/cgroup.procs; while :; do sleep 0.01; done",
        container.display()
    );
    let load = TestProcess::start(Command::new("sh").args(["-c", &script]));
    let place = TraceDir::new();
    let words = ["--cgroup", container.to_str().unwrap(), "-d", "1"];
    let recorded = place.record(&words).output().unwrap();
    assert!(recorded.status.success(), "{}", stderr(&recorded));
    for by in ["cgroup", "neighbour"] {
        let table = stdout(&report(&place.trace(), &["--by", by]));
        assert!(table.contains("docker:3f2a9c1b7d5e"), "{table}");
        let words = ["--by", by, "--format", "csv"];
        let csv = stdout(&report(&place.trace(), &words));
        let of_container = format!("docker,{id}");
        assert!(csv.contains(&name_of(&container)), "{csv}");
        assert!(csv.contains(&of_container), "{csv}");
    }
    let mut top = swtch(["top", "--by", "cgroup", "--count", "1", "--cgroup"]);
    let shown = stdout(&top.arg(&container).output().unwrap());
    assert!(shown.contains("docker:3f2a9c1b7d5e"), "{shown}");
    drop(load);
    wait_until("it is empty", || fs::remove_dir(&container).is_ok());
}

/// A host with both hierarchies names cgroups by v1; one of v2 that is asked for has its own name.
#[test]
#[ignore = "needs root"]
fn root_a_cgroup_of_v2_has_its_name_in_v2() {
    let _machine = beside_others();
    let v2 = Path::new("/sys/fs/cgroup/unified");
    if !v2.join("cgroup.procs").exists() || !Path::new("/sys/fs/cgroup/cpu").exists() {
        swtch_test::skip!("there are not both hierarchies");
    }
    let cgroup = v2.join(format!("swtch-test-named-{}", std::process::id()));
    fs::create_dir(&cgroup).unwrap();
    let script = format!(
        "echo $$ > {}/cgroup.procs; while :; do sleep 0.01; done",
        cgroup.display()
    );
    let load = TestProcess::start(Command::new("sh").args(["-c", &script]));
    let place = TraceDir::new();
    let words = ["--cgroup", cgroup.to_str().unwrap(), "-d", "1"];
    let recorded = place.record(&words).output().unwrap();
    assert!(recorded.status.success(), "{}", stderr(&recorded));
    let rows = stdout(&report(
        &place.trace(),
        &["--by", "cgroup", "--format", "csv"],
    ));
    assert!(rows.contains(&name_of(&cgroup)), "{rows}");
    let mut top = swtch([
        "top", "--by", "cgroup", "--count", "1", "--format", "csv", "--cgroup",
    ]);
    let shown = stdout(&top.arg(&cgroup).output().unwrap());
    assert!(shown.contains(&name_of(&cgroup)), "{shown}");
    let doctor = stdout(&swtch(["doctor", "--full"]).output().unwrap());
    assert!(
        doctor.contains("/sys/fs/cgroup/cpu (v1, controller cpu)"),
        "{doctor}"
    );
    drop(load);
    wait_until("it is empty", || fs::remove_dir(&cgroup).is_ok());
}
