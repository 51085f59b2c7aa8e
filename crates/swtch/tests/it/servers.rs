//! Running servers as targets: the processes below the named one are recorded with it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use swtch_core::{TaskEvent, TaskEventKind};
use swtch_store::Trace;

use crate::machine::{TestProcess, alone, beside_others, children_of, wait_until};
use crate::recording::{
    Recording, SWTCH, TraceContents, TraceDir, least_buffer, report, start_recorder, stderr, stdout,
};

/// A process group that is killed when the test ends.
struct Server {
    master: TestProcess,
}

impl Server {
    fn start(command: &mut Command) -> Self {
        Self {
            master: TestProcess::start(command.process_group(0)),
        }
    }

    fn pid(&self) -> u32 {
        self.master.pid()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let group = nix::unistd::Pid::from_raw(self.pid().cast_signed());
        // A group without processes cannot be signalled, and need not be.
        let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
    }
}

/// The ids of a process and of all processes below it.
fn tree_of(pid: u32) -> Vec<u32> {
    let below = children_of(pid).into_iter().flat_map(tree_of);
    let mut all: Vec<u32> = std::iter::once(pid).chain(below).collect();
    all.sort_unstable();
    all
}

/// The switches of all threads of these processes, by the kernel's count.
fn kernel_count(pids: &[u32]) -> u64 {
    let threads = pids.iter().flat_map(|pid| {
        let threads = fs::read_dir(format!("/proc/{pid}/task"));
        threads.into_iter().flatten().flatten()
    });
    let counts = threads.map(|thread| {
        let status = fs::read_to_string(thread.path().join("status")).unwrap_or_default();
        let lines = status
            .lines()
            .filter(|line| line.contains("voluntary_ctxt_switches:"));
        let numbers = lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        numbers.sum::<u64>()
    });
    counts.sum()
}

/// Records a server and compares the rows with the kernel's counts, those in the recording
/// (`meta.json`) and those of `/proc`. The processes must live until its end.
fn assert_recorded_as_counted(server: u32, seconds: &str) -> TraceContents {
    let place = TraceDir::new();
    let members = tree_of(server);
    let before = kernel_count(&members);
    let pid = server.to_string();
    let output = place.record(&["-d", seconds, "-p", &pid]).output().unwrap();
    let after = kernel_count(&members);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(tree_of(server), members, "nobody came or went");
    let recorded = TraceContents::new(Trace::open(&place.trace()).unwrap());
    recorded.assert_balanced();
    let threads = recorded.by_thread();
    let rows: usize = threads.values().map(Vec::len).sum();
    let rows = u64::try_from(rows).unwrap();
    let tree = recorded.meta.tree.expect("processes were recorded");
    println!(
        "{} processes: {rows} rows, the kernel counted {} inside and {} around the recording",
        members.len(),
        tree.switches,
        after - before
    );
    assert_eq!(tree.processes, u64::try_from(members.len()).unwrap());
    assert!(
        rows * 1000 >= tree.switches * 999,
        "{rows} rows of {}",
        tree.switches
    );
    assert!(
        rows <= after - before,
        "{rows} rows, {} counted",
        after - before
    );
    for pid in members.iter().filter(|pid| kernel_count(&[**pid]) > 0) {
        let is_there = threads.keys().any(|ids| ids.0 == *pid);
        println!(
            "  {pid}: {}",
            if is_there {
                "recorded"
            } else {
                "made no switch"
            }
        );
    }
    recorded
}

/// A master that waits, and workers, one of which forks again.
#[test]
#[ignore = "needs root"]
fn root_workers_that_live_already_are_recorded_as_the_kernel_counts() {
    let _machine = alone();
    // Longer than the test takes on any machine: they end when the test ends.
    let worker = |name: &str| format!("{SWTCH} workload {name} --quiet --count 1000000000 &");
    let names = ["nanosleep", "nanosleep", "pipe-processes"];
    let script = format!("{} wait", names.map(worker).concat());
    let server = Server::start(Command::new("sh").args(["-c", &script]));
    wait_until("all workers live", || tree_of(server.pid()).len() >= 6);
    thread::sleep(Duration::from_millis(300));
    let recorded = assert_recorded_as_counted(server.pid(), "0.7");
    let pids: BTreeSet<u32> = recorded.by_thread().into_keys().map(|ids| ids.0).collect();
    assert!(pids.len() >= 4, "two sleepers and two that talk: {pids:?}");
    assert!(
        !pids.contains(&server.pid()),
        "the master waits all the time"
    );
}

#[test]
#[ignore = "needs root"]
fn root_without_children_only_the_master_is_recorded_and_said_to_have_waited() {
    let _machine = beside_others();
    let script = "while :; do sleep 0.01; done & wait";
    let server = Server::start(Command::new("sh").args(["-c", script]));
    thread::sleep(Duration::from_millis(100));
    let pid = server.pid().to_string();
    let recording = Recording::of(&["-d", "0.3", "--no-children", "-p", &pid]);
    let said = stderr(&recording.output);
    assert!(recording.output.status.success(), "{said}");
    assert!(
        said.contains(&format!("Process {pid} made no switch in ")),
        "{said}"
    );
    assert!(
        said.contains("of other tasks were seen and left out"),
        "{said}"
    );
    let recorded = recording.read();
    assert_eq!(recorded.meta.tree.unwrap().processes, 1);
    let page = stdout(&recording.report(&[]));
    assert!(page.contains("made no switch in "), "{page}");
    assert!(!page.contains("Nothing stands out"), "{page}");
}

fn sleeps(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next();
    state.is_some_and(|rest| rest.starts_with('S'))
}

/// Children that all end at once, while the recorder has no CPU.
struct EndingAtOnce {
    children: BTreeSet<u32>,
    page: String,
    recorded: TraceContents,
}

impl EndingAtOnce {
    /// Records this many subshells that wait for the same FIFO to be opened, and end when it is.
    fn record(count: usize, shell: &[&str], options: &[&str]) -> Self {
        let place = TraceDir::new();
        let gate = place.dir().join("gate");
        let made = Command::new("mkfifo").arg(&gate).status().unwrap();
        assert!(made.success());
        let script = format!(
            "i=0; while [ $i -lt {count} ]; do (read x < {}) & i=$((i+1)); done; wait",
            gate.display()
        );
        let (program, words) = shell.split_first().unwrap();
        let mut server = Server::start(Command::new(program).args(words).args(["-c", &script]));
        wait_until("all children live", || {
            children_of(server.pid()).len() == count
        });
        let children = BTreeSet::from_iter(children_of(server.pid()));
        wait_until("all children wait", || {
            children.iter().all(|&it| sleeps(it))
        });
        let pid = server.pid().to_string();
        let mut recorder = start_recorder(&place, &[options, &["-p", &pid]].concat());
        recorder.signal(libc::SIGSTOP);
        drop(fs::OpenOptions::new().write(true).open(&gate).unwrap());
        server.master.ends_within(Duration::from_secs(60));
        recorder.signal(libc::SIGCONT);
        assert!(recorder.ends_within(Duration::from_secs(60)).success());
        Self {
            children,
            page: stdout(&report(&place.trace(), &[])),
            recorded: TraceContents::new(Trace::open(&place.trace()).unwrap()),
        }
    }
}

#[test]
#[ignore = "needs root"]
fn root_ten_thousand_children_are_all_recorded() {
    let _machine = alone();
    let ended = EndingAtOnce::record(10_000, &["sh"], &[]);
    let recorded = ended.recorded;
    assert_eq!(recorded.counts().lost, 0);
    assert_eq!(recorded.counts().lost_names, 0);
    let tree = recorded.meta.tree.unwrap();
    assert_eq!((tree.processes, tree.missed), (10_001, 0));
    let pids = BTreeSet::from_iter(recorded.by_thread().into_keys().map(|ids| ids.0));
    let missing: Vec<_> = ended.children.difference(&pids).collect();
    assert!(missing.is_empty(), "{missing:?} {:?}", recorded.counts());
    assert_eq!(pids.len(), 10_001, "all of them and their parent");
}

/// More than the least memory has room for.
#[test]
#[ignore = "needs root"]
fn root_names_that_were_lost_are_told() {
    let _machine = alone();
    let on_one_cpu = ["taskset", "-c", "0", "sh"];
    let ended = EndingAtOnce::record(2_000, &on_one_cpu, &["--buffer", &least_buffer()]);
    let counts = ended.recorded.counts();
    println!("{counts:?}");
    let ends = |event: &&TaskEvent| event.in_scope && event.kind == TaskEventKind::Exit;
    let told = ended.recorded.tasks.iter().filter(ends).count();
    let lost = usize::try_from(counts.lost_names).unwrap();
    assert!(told < 2_001 && told + lost >= 2_001, "{told} {lost}");
    let sentence = "records of tasks lost: some threads have no name";
    assert!(ended.page.contains(sentence), "{}", ended.page);
}

/// In a container, the ids of `-p` and of a command are not those of the kernel.
#[test]
#[ignore = "needs root"]
fn root_in_a_process_id_namespace_the_way_out_is_named() {
    let _machine = beside_others();
    let place = TraceDir::new();
    let inside = |words: &[&str]| {
        let mut unshare = Command::new("unshare");
        unshare
            .args(["--pid", "--fork", "--mount-proc", SWTCH])
            .args(words);
        unshare.current_dir(place.dir()).output().unwrap()
    };
    let refused = inside(&["record", "--backend", "ebpf", "-d", "0.1", "-p", "1"]);
    assert_eq!(refused.status.code(), Some(2));
    // Perf events tell the ids of the namespace that asks.
    let recorded = inside(&["record", "-o", "t.swtch", "--", "sleep", "0.1"]);
    assert!(recorded.status.success());
    for said in [stderr(&refused), stderr(&recorded)] {
        assert!(
            said.contains("--pid=host") && said.contains("--cgroup"),
            "{said}"
        );
    }
    let recorded = TraceContents::new(Trace::open(&place.trace()).unwrap());
    assert!(!recorded.switches.is_empty());
    let explained = inside(&["explain", "--backend", "proc", "-d", "0.1", "-p", "1"]);
    let answer = stdout(&explained);
    assert!(answer.contains("process id namespace"), "{answer}");
    assert!(answer.contains("--pid=host"), "{answer}");
    assert!(!answer.contains("nothing stands in the way"), "{answer}");
}

/// A PostgreSQL server with a socket in its own directory, and its load.
struct Postgres {
    programs: PathBuf,
    dir: tempfile::TempDir,
    _server: Server,
}

/// The directory of `initdb` on Debian, on Fedora, or of a local build.
fn postgres_programs() -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let mut places: Vec<_> = versions.map(|version| version.path().join("bin")).collect();
    places.extend(["/usr/bin", "/usr/local/pgsql/bin"].map(PathBuf::from));
    places.into_iter().find(|bin| {
        ["initdb", "postgres", "pgbench"]
            .iter()
            .all(|name| bin.join(name).exists())
    })
}

impl Postgres {
    /// The server refuses to run as root, so it runs as nobody.
    fn as_nobody(program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(program);
        command
    }

    fn start(programs: PathBuf) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).unwrap();
        let data = dir.path().join("data");
        let made = Self::as_nobody(&programs.join("initdb"))
            .args(["--no-sync", "-A", "trust", "-U", "bench", "-D"])
            .arg(&data)
            .current_dir(dir.path())
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", stderr(&made));
        let mut postgres = Self::as_nobody(&programs.join("postgres"));
        postgres.arg("-D").arg(&data).arg("-k").arg(dir.path());
        postgres.args([
            "-c",
            "listen_addresses=",
            "-c",
            "fsync=off",
            "-c",
            "autovacuum=off",
        ]);
        let server = Server::start(postgres.current_dir(dir.path()));
        let new = Self {
            programs,
            dir,
            _server: server,
        };
        let socket = new.dir.path().join(".s.PGSQL.5432");
        wait_until("the server listens", || socket.exists());
        thread::sleep(Duration::from_millis(500));
        let filled = new.pgbench(&["-i", "-q", "-s", "1"]).output().unwrap();
        assert!(filled.status.success(), "{}", stderr(&filled));
        new
    }

    fn pgbench(&self, words: &[&str]) -> Command {
        let mut pgbench = Self::as_nobody(&self.programs.join("pgbench"));
        pgbench
            .arg("-h")
            .arg(self.dir.path())
            .args(["-U", "bench"])
            .args(words)
            .arg("postgres");
        pgbench.current_dir(self.dir.path());
        pgbench
    }

    /// The first line of the server's pid file.
    fn postmaster(&self) -> u32 {
        let path = self.dir.path().join("data/postmaster.pid");
        let text = fs::read_to_string(path).unwrap();
        text.lines().next().unwrap().parse().unwrap()
    }
}

#[test]
#[ignore = "needs root"]
fn root_a_postmaster_is_recorded_with_its_backends_as_the_kernel_counts() {
    const CLIENTS: usize = 8;
    let Some(programs) = postgres_programs() else {
        swtch_test::skip!(
            "PostgreSQL with pgbench is not installed (apt install postgresql-contrib)"
        );
    };
    let _machine = alone();
    let postgres = Postgres::start(programs);
    let postmaster = postgres.postmaster();
    let mut load = postgres.pgbench(&["-c", "8", "-j", "2", "-T", "600", "-n"]);
    let _load = TestProcess::start(load.stdin(Stdio::null()));
    // The command lines of its backends contain the user's name.
    let backends = || {
        let mut members = tree_of(postmaster);
        members.retain(|pid| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).starts_with("postgres: bench ")
        });
        members
    };
    wait_until("all backends live", || backends().len() == CLIENTS);
    thread::sleep(Duration::from_millis(500));
    let recorded = assert_recorded_as_counted(postmaster, "1");
    let threads = recorded.by_thread();
    let backends = backends();
    assert_eq!(backends.len(), CLIENTS);
    for backend in backends {
        let rows = threads.get(&(backend, backend)).map_or(0, Vec::len);
        assert!(rows > 100, "backend {backend}: {rows} rows");
    }
}
