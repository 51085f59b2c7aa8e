//! A measurement that is stopped, killed or paused: what it keeps and what it leaves.

use super::*;

/// Ids of the `SysV` semaphore sets of this machine.
fn semaphores() -> BTreeSet<String> {
    let text = fs::read_to_string("/proc/sysvipc/sem").unwrap_or_default();
    let number = |line: &str| line.split_whitespace().nth(1).map(str::to_owned);
    text.lines().skip(1).filter_map(number).collect()
}

/// A `swtch cost` that leads its own process group, as a shell starts it.
struct ProcessGroup(Child);

impl ProcessGroup {
    fn start(home: &PriceListHome, words: &[&str]) -> Self {
        let mut command = home.swtch(&[&["cost"], words].concat());
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(command.process_group(0).spawn().unwrap())
    }

    /// Sends a signal to all processes of the group, as the terminal does.
    fn signal(&self, signal: nix::sys::signal::Signal) {
        let group = nix::unistd::Pid::from_raw(self.0.id().cast_signed());
        nix::sys::signal::killpg(group, signal).unwrap();
    }

    /// Waits until it has had `count` children: the first two only test what is allowed, each
    /// further one is a measured run. On a busy machine one may take seconds.
    fn await_children(&self, count: usize) {
        await_children(self.0.id(), count);
    }

    /// The processes of the group that have not ended.
    fn members(&self) -> Vec<String> {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let stats =
            processes.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
        let group = self.0.id().to_string();
        let is_member = |stat: &String| {
            let mut fields = stat.rsplit(')').next().unwrap().split_whitespace();
            let state = fields.next();
            !matches!(state, Some("Z" | "X")) && fields.nth(1) == Some(&group)
        };
        stats.filter(is_member).collect()
    }

    /// Waits for its end, and for the end of all that it started.
    fn finish(mut self, before: &BTreeSet<String>) -> Output {
        let (stdout, stderr) = (self.0.stdout.take(), self.0.stderr.take());
        let read = |pipe: Option<Box<dyn std::io::Read>>| {
            let mut bytes = Vec::new();
            pipe.unwrap().read_to_end(&mut bytes).unwrap();
            bytes
        };
        let output = Output {
            stdout: read(stdout.map(|pipe| Box::new(pipe) as _)),
            stderr: read(stderr.map(|pipe| Box::new(pipe) as _)),
            status: self.0.wait().unwrap(),
        };
        wait_until("no process is left", || self.members().is_empty());
        wait_until("no semaphore is left", || semaphores().is_subset(before));
        output
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let group = nix::unistd::Pid::from_raw(self.0.id().cast_signed());
        // After a successful test the group is empty.
        let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

/// Two runs of each kind are enough for an answer, which says how sure it is.
#[test]
fn signals_keep_what_was_measured_and_leave_nothing() {
    use nix::sys::signal::Signal::{SIGHUP, SIGINT, SIGTERM};
    let _machine = alone();
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let (home, before) = (PriceListHome::new(), semaphores());
        let words = ["sysv-semaphore", "--thorough", "--format", "json"];
        let group = ProcessGroup::start(&home, &words);
        group.await_children(5);
        group.signal(signal);
        let output = group.finish(&before);
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let list: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(list["session"]["was_interrupted"], true);
        let prices = list["prices"].as_array().unwrap();
        let is_kept = |price: &Value| price["kind"] == "sysv-semaphore";
        assert!(prices.iter().any(is_kept), "{signal}: {list}");
    }
}

/// If nothing was measured yet, the answer says so.
#[test]
fn ctrl_c_at_once_is_an_answer_too() {
    let _machine = alone();
    let (home, before) = (PriceListHome::new(), semaphores());
    let group = ProcessGroup::start(&home, &["sysv-semaphore", "--thorough"]);
    group.await_children(1);
    group.signal(nix::sys::signal::Signal::SIGINT);
    let output = group.finish(&before);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let page = stdout(&output);
    assert!(page.contains("ended early"), "{page}");
    assert!(page.contains("not here: sysv-semaphore"), "{page}");
}

/// An incomplete list does not replace a complete one.
#[test]
fn ctrl_c_keeps_the_list_that_was_saved_before() {
    sample();
    let _machine = alone();
    let (home, before) = (PriceListHome::with(sample()), semaphores());
    let group = ProcessGroup::start(&home, &["yield", "--thorough", "--save"]);
    group.await_children(5);
    group.signal(nix::sys::signal::Signal::SIGINT);
    let output = group.finish(&before);
    assert!(
        stderr(&output).contains("is not kept"),
        "{}",
        stderr(&output)
    );
    assert_eq!(fs::read_to_string(home.list()).unwrap(), sample());
}

/// The measuring processes notice that their parent is gone, and clean up.
#[test]
fn a_killed_measurement_leaves_no_process_and_no_semaphore() {
    let _machine = alone();
    let (home, before) = (PriceListHome::new(), semaphores());
    let group = ProcessGroup::start(&home, &["sysv-semaphore", "--thorough"]);
    group.await_children(4);
    crate::machine::send(group.0.id(), libc::SIGKILL);
    let output = group.finish(&before);
    assert_eq!(output.status.code(), None);
}

/// A measurement that a shell stops for a while goes on, and the pause is not part of a price.
#[test]
fn a_stopped_measurement_goes_on() {
    use nix::sys::signal::Signal::{SIGCONT, SIGSTOP};
    let _machine = alone();
    let (home, before) = (PriceListHome::new(), semaphores());
    let group = ProcessGroup::start(&home, &["futex-shared", "--quick", "--format", "json"]);
    group.await_children(4);
    group.signal(SIGSTOP);
    thread::sleep(Duration::from_millis(500));
    group.signal(SIGCONT);
    let output = group.finish(&before);
    assert_measured(&output);
    let list: Value = serde_json::from_slice(&output.stdout).unwrap();
    let longest = list["prices"].as_array().unwrap().iter();
    let longest = longest.filter_map(|price| price["hand_off_ns"]["point"].as_f64());
    assert!(longest.fold(0.0, f64::max) < 1e6, "{list}");
}

/// Cgroups that we made, below the directories where we make them.
fn cgroups() -> BTreeSet<PathBuf> {
    let roots = [
        "/sys/fs/cgroup/cpu",
        "/sys/fs/cgroup/cpu,cpuacct",
        "/sys/fs/cgroup",
    ];
    let entries = roots.iter().flat_map(fs::read_dir).flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.strip_prefix("swtch-")
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    paths.filter(is_ours).collect()
}

/// Neither Ctrl-C nor a kill leaves a cgroup.
#[test]
#[ignore = "needs root"]
fn root_no_cgroup_is_left_behind() {
    use nix::sys::signal::Signal::{SIGINT, SIGKILL};
    let _machine = alone();
    for signal in [SIGINT, SIGKILL] {
        let (home, before, sets) = (PriceListHome::new(), cgroups(), semaphores());
        let group = ProcessGroup::start(&home, &["cgroup", "--thorough"]);
        wait_until("groups are made", || !cgroups().is_subset(&before));
        match signal {
            SIGKILL => crate::machine::send(group.0.id(), libc::SIGKILL),
            _ => group.signal(signal),
        }
        group.finish(&sets);
        wait_until("no cgroup is left", || cgroups().is_subset(&before));
    }
}

/// Prices of another machine are used, with a warning that says so.
#[test]
#[ignore = "needs root"]
fn root_a_saved_list_of_another_machine_or_boot_warns() {
    sample();
    let _machine = beside_others();
    let recording = Recording::of(&["--", SWTCH, "workload", "pipe", "--count", "100", "--quiet"]);
    let warned = |change: fn(&mut Value), what: &str| {
        let home = PriceListHome::with(&changed(change));
        let trace = recording.place.trace();
        let words = ["report", trace.to_str().unwrap(), "--bill"];
        let output = home.swtch(&words).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        for text in [stderr(&output), stdout(&output)] {
            assert!(text.contains("may not hold for this trace"), "{text}");
            assert!(text.contains(what), "{what}: {text}");
        }
    };
    warned(
        |list| list["origin"]["hostname"] = json!("else\u{1b}where"),
        "else\\x1bwhere",
    );
    warned(
        |list| list["origin"]["kernel_release"] = json!("5.4.0-old"),
        "5.4.0-old",
    );
    warned(
        |list| list["origin"]["measured_at"] = json!("2001-01-01T00:00:00Z"),
        "has booted since 2001-01-01",
    );
}

/// Each error about missing prices says how to get some.
#[test]
#[ignore = "needs root"]
fn root_a_bill_without_prices_names_the_remedy() {
    let _machine = beside_others();
    let recording = Recording::of(&["--", "true"]);
    let trace = recording.place.trace();
    let trace = trace.to_str().unwrap();
    let bill = |home: &PriceListHome| home.swtch(&["report", trace, "--bill"]).output().unwrap();
    assert_refused(&bill(&PriceListHome::new()), "`swtch cost --save` measures");
    assert_refused(&bill(&PriceListHome::with("garbage")), "measures them anew");
    assert_refused(
        &report(Path::new(trace), &["--bill", "--prices", "/no.json"]),
        "/no.json",
    );
    assert_refused(
        &report(Path::new(trace), &["--prices", "/no.json"]),
        "--bill",
    );
    assert_refused(&report(Path::new(trace), &["--by", "pair"]), "add --bill");
    assert_refused(
        &report(Path::new(trace), &["--by", "cpu", "--bill"]),
        "cannot be by cpu",
    );
}

/// The page uses the saved list, or does without it if it is damaged: the trace matters more.
#[test]
#[ignore = "needs root"]
fn root_explain_takes_the_saved_list_or_does_without() {
    sample();
    let _machine = beside_others();
    let explained = |list: &str| {
        let home = PriceListHome::with(list);
        let output = home
            .swtch(&["explain", "--full", "--", "true"])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(!stderr(&output).contains("measuring what switches cost"));
        assert_eq!(fs::read_to_string(home.list()).unwrap(), list);
        output
    };
    let output = explained(sample());
    assert!(
        stdout(&output).contains("what the switches cost"),
        "{}",
        stdout(&output)
    );
    let output = explained("garbage");
    assert!(
        !stdout(&output).contains("what the switches cost"),
        "{}",
        stdout(&output)
    );
    let said = stderr(&output);
    assert!(
        said.contains("no bill") && said.contains("swtch cost --save"),
        "{said}"
    );
}

/// With `--no-bill` nothing is measured or kept for a bill.
#[test]
#[ignore = "needs root"]
fn root_explain_without_a_bill_measures_nothing() {
    let _machine = beside_others();
    let home = PriceListHome::new();
    let output = home
        .swtch(&["explain", "--full", "--no-bill", "--", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        !stdout(&output).contains("what the switches cost"),
        "{}",
        stdout(&output)
    );
    assert!(!home.list().exists());
}
