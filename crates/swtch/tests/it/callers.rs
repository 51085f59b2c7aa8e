//! Recordings through `sudo`: the program runs as a user runs it, in a home directory that is
//! closed to everybody else, and its files must belong to that user.
//!
//! Root reads and writes everywhere, so tests that run as root in directories of root cannot see
//! what a recorder loses when it gives up its rights.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use swtch_store::Trace;

use crate::machine::{Orphan, SOON, TestProcess, beside_others, command_of, wait_until};
use crate::recording::{SWTCH, TraceContents, TraceDir, stderr, stdout};

/// The user `nobody`, who owns the home directory of these tests.
pub const USER: u32 = 65534;

/// The way in which the program gets its rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Elevation {
    Sudo,
    /// Root with the variables that `sudo` sets, which also works where `sudo` is not installed.
    NumbersOfSudo,
    /// Root, in a directory of another user.
    Root,
}

impl Elevation {
    /// The user who must own the trace.
    const fn owner(self) -> u32 {
        match self {
            Self::Sudo | Self::NumbersOfSudo => USER,
            Self::Root => 0,
        }
    }
}

/// A home directory with mode 0700, and the program where its user can execute it.
struct UserHome {
    place: TraceDir,
    program: PathBuf,
    rules: PathBuf,
}

impl UserHome {
    fn new() -> Self {
        let place = TraceDir::new();
        let at = |name: &str| place.dir().join(name);
        let mode = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(place.dir(), 0o755);
        let (home, program, rules) = (at("home"), at("swtch"), at("sudoers"));
        fs::create_dir(&home).unwrap();
        mode(&home, 0o700);
        chown(&home, Some(USER), Some(USER)).unwrap();
        fs::hard_link(SWTCH, &program)
            .or_else(|_| fs::copy(SWTCH, &program).map(drop))
            .unwrap();
        fs::write(&rules, format!("#{USER} ALL=(ALL) NOPASSWD: ALL\n")).unwrap();
        mode(&rules, 0o440);
        Self {
            place,
            program,
            rules,
        }
    }

    fn dir(&self) -> PathBuf {
        self.place.dir().join("home")
    }

    /// `swtch` with these arguments, in the home directory.
    fn swtch(&self, way: Elevation, words: &[&str]) -> Command {
        let mut command = match way {
            // The rules of sudo are in /etc/sudoers, which is replaced for this process only.
            Elevation::Sudo => {
                let script = "mount --bind \"$1\" /etc/sudoers && shift && exec setpriv \
                              --reuid=65534 --regid=65534 --clear-groups sudo -n \"$@\"";
                let mut command = Command::new("unshare");
                command.args(["--mount", "sh", "-c", script, "sh"]);
                command.arg(&self.rules).arg(&self.program);
                command
            }
            Elevation::NumbersOfSudo | Elevation::Root => Command::new(&self.program),
        };
        command.args(words).current_dir(self.dir());
        let numbers = ["SUDO_UID", "SUDO_GID"];
        for name in numbers {
            command.env_remove(name);
        }
        if way == Elevation::NumbersOfSudo {
            command.envs(numbers.map(|name| (name, USER.to_string())));
        }
        command
    }

    fn run(&self, way: Elevation, words: &[&str]) -> Output {
        self.swtch(way, words).output().unwrap()
    }

    /// Runs `swtch` with these arguments as the user, without any capability.
    fn run_as_user(&self, words: &[&str]) -> Output {
        let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
        let mut command = Command::new("setpriv");
        command.args(user).arg(&self.program).args(words);
        command.current_dir(self.dir()).output().unwrap()
    }
}

fn has_sudo() -> bool {
    Command::new("sudo").arg("-V").output().is_ok()
}

/// Checks owner and permissions of a trace and of all its files.
fn assert_private(trace: &Path, owner: u32) {
    let of = |path: &Path| {
        let found = fs::symlink_metadata(path).unwrap();
        (found.uid(), found.mode() & 0o7777)
    };
    assert_eq!(of(trace), (owner, 0o700), "{}", trace.display());
    for entry in fs::read_dir(trace).unwrap() {
        let path = entry.unwrap().path();
        assert_eq!(of(&path), (owner, 0o600), "{}", path.display());
    }
}

#[test]
#[ignore = "needs root"]
fn root_through_sudo_a_recording_in_a_closed_home_directory_is_whole_and_the_callers() {
    if !has_sudo() {
        swtch_test::skip!("sudo is not installed");
    }
    assert_whole_and_owned(Elevation::Sudo);
}

#[test]
#[ignore = "needs root"]
fn root_with_the_numbers_of_sudo_a_recording_is_whole_and_the_callers() {
    assert_whole_and_owned(Elevation::NumbersOfSudo);
}

#[test]
#[ignore = "needs root"]
fn root_a_recording_of_root_in_a_directory_of_somebody_else_is_whole() {
    assert_whole_and_owned(Elevation::Root);
}

fn assert_whole_and_owned(way: Elevation) {
    let _machine = beside_others();
    let home = UserHome::new();
    for verb in [
        &["record"][..],
        &["record", "--no-stacks"],
        &["explain", "--no-bill"],
    ] {
        let case = format!("{way:?} {verb:?}");
        let command = ["-o", "t.swtch", "--", "sh", "-c", "sleep 0.05; exit 7"];
        let output = home.run(way, &[verb, &command].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(7), "{case}: {said}");
        assert!(said.contains("the trace is t.swtch"), "{case}: {said}");
        assert!(!said.contains("stopped early"), "{case}: {said}");
        let answer = stdout(&output);
        assert_eq!(answer.contains("verdict"), verb[0] == "explain", "{case}");
        let trace = home.dir().join("t.swtch");
        assert_private(&trace, way.owner());
        TraceContents::new(Trace::open(&trace).unwrap()).assert_balanced();
        let report = match way {
            Elevation::Root => home.run(way, &["report", "t.swtch"]),
            _ => home.run_as_user(&["report", "t.swtch"]),
        };
        assert!(report.status.success(), "{case}: {}", stderr(&report));
        fs::remove_dir_all(trace).unwrap();
    }
}

/// `sudo -i` sets its variables in a shell whose working directory is root's.
#[test]
#[ignore = "needs root"]
fn root_where_the_caller_may_not_write_the_refusal_names_the_way_to_record_as_root() {
    let _machine = beside_others();
    let home = UserHome::new();
    let closed = home.place.dir().join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    for verb in [&["record"][..], &["explain", "--no-bill"]] {
        let command = ["--", "sh", "-c", "touch mark; sleep 0.05; exit 7"];
        let words = [verb, &["-o", "t.swtch"], &command].concat();
        let mut swtch = home.swtch(Elevation::NumbersOfSudo, &words);
        let output = swtch.current_dir(&closed).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains(&format!("user {USER}")) && said.contains("unset SUDO_UID"),
            "{said}"
        );
        let nothing = fs::read_dir(&closed).unwrap().count();
        assert_eq!(nothing, 0, "the command was not run");
        // As the refusal says.
        let mut swtch = home.swtch(Elevation::Root, &words);
        let output = swtch.current_dir(&closed).output().unwrap();
        assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
        let trace = closed.join("t.swtch");
        TraceContents::new(Trace::open(&trace).unwrap()).assert_balanced();
        assert_private(&trace, 0);
        fs::remove_dir_all(trace).unwrap();
        fs::remove_file(closed.join("mark")).unwrap();
    }
}

#[test]
#[ignore = "needs root"]
fn root_a_command_that_is_not_there_leaves_nothing_in_a_directory_of_somebody_else() {
    let _machine = beside_others();
    let home = UserHome::new();
    for way in [Elevation::NumbersOfSudo, Elevation::Root] {
        let output = home.run(way, &["record", "--", "/no/such/program"]);
        assert_eq!(output.status.code(), Some(127), "{}", stderr(&output));
        assert_eq!(fs::read_dir(home.dir()).unwrap().count(), 0, "{way:?}");
    }
}

/// The command runs as root, the recorder as the caller.
#[test]
#[ignore = "needs root"]
fn root_a_signal_is_passed_on_to_a_command_of_root() {
    let _machine = beside_others();
    let home = UserHome::new();
    let words = ["record", "-o", "t.swtch", "--", "sleep", "60"];
    let mut recorder = TestProcess::start(&mut home.swtch(Elevation::NumbersOfSudo, &words));
    let status = format!("/proc/{}/status", recorder.pid());
    wait_until("the recorder is the caller's", || {
        let status = fs::read_to_string(&status).unwrap_or_default();
        status.contains(&format!("\nUid:\t{USER}\t{USER}\t{USER}\t{USER}\n"))
    });
    let command = Orphan(command_of(recorder.pid()));
    let of_command = fs::metadata(format!("/proc/{}", command.0)).unwrap();
    assert_eq!(of_command.uid(), 0, "the command keeps the rights of root");
    recorder.signal(libc::SIGTERM);
    let code = recorder
        .ends_within(std::time::Duration::from_secs(20))
        .code();
    assert_eq!(code, Some(128 + libc::SIGTERM));
}

#[test]
#[ignore = "needs root"]
fn root_numbers_that_are_none_are_refused_with_the_remedy() {
    let _machine = beside_others();
    let home = UserHome::new();
    for odd in ["", "-1", "4294967295", "root"] {
        let mut swtch = home.swtch(Elevation::NumbersOfSudo, &["record", "--", "touch", "mark"]);
        let output = swtch.env("SUDO_UID", odd).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{odd:?}");
        assert!(
            stderr(&output).contains("unset SUDO_UID"),
            "{}",
            stderr(&output)
        );
        assert_eq!(fs::read_dir(home.dir()).unwrap().count(), 0, "{odd:?}");
    }
}

#[test]
#[ignore = "needs root"]
fn root_through_sudo_a_flight_recorder_in_a_closed_home_directory_keeps_segments_of_the_caller() {
    let home = UserHome::new();
    let way = match has_sudo() {
        true => Elevation::Sudo,
        false => Elevation::NumbersOfSudo,
    };
    let words = ["record", "-a", "--ring", "20s", "-o", "flight.swtch"];
    let mut recorder = TestProcess::start(&mut home.swtch(way, &words));
    let segments = home.dir().join("flight.swtch/segments");
    let first = || fs::read_dir(&segments).ok()?.flatten().next();
    wait_until("a segment", || first().is_some());
    assert_private(&first().unwrap().path(), way.owner());
    recorder.signal(libc::SIGINT);
    let status = recorder.ends_within(SOON);
    assert!(status.success(), "{status}");
}
