//! A privileged process never acts on a path, a name or an answer that a lesser user controls: these
//! tests are that user. They listen in place of a recorder, put links where directories are expected,
//! exchange one for the other meanwhile, and name places in which they may not write.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use swtch_core::Reason;
use swtch_fixtures::{meta, row, seen};
use swtch_report::opening;
use swtch_store::{Meta, Trace, Writer};
use swtch_wire::WIRE_VERSION;

use crate::callers::USER;
use crate::forged::Forged;
use crate::machine::{SOON, TestProcess, beside_others, wait_until};
use crate::recording::{TraceDir, stderr, swtch};

/// Does this in a thread that has the rights of the lesser user.
fn as_user<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    let act = move || {
        let (user, group) = (Uid::from_raw(USER), Gid::from_raw(USER));
        set_thread_groups(&[]).unwrap();
        set_thread_res_gid(group, group, group).unwrap();
        set_thread_res_uid(user, user, user).unwrap();
        act()
    };
    thread::scope(|scope| scope.spawn(act).join().unwrap())
}

/// `swtch` as `sudo` starts it for the lesser user.
fn through_sudo(words: &[&str], dir: &Path) -> Output {
    let mut swtch = swtch(words);
    let numbers = ["SUDO_UID", "SUDO_GID"].map(|name| (name, USER.to_string()));
    swtch.envs(numbers).current_dir(dir).output().unwrap()
}

fn as_root(words: &[&str], dir: &Path) -> Output {
    swtch(words).current_dir(dir).output().unwrap()
}

fn assert_refused(output: &Output, why: &str, case: &str) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{case}: {said}");
    assert!(said.contains(why), "{case}: {said}");
}

/// A directory with something in it that must stay. It is root's and everybody may look into it, or it
/// is of whoever runs the tests.
struct Treasure {
    place: TraceDir,
}

impl Treasure {
    fn new() -> Self {
        let place = TraceDir::new();
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(place.dir(), mode).unwrap();
        for dir in ["x", "x/segments", "x/deep"] {
            fs::create_dir(place.dir().join(dir)).unwrap();
        }
        for file in ["precious", "x/records.raw", "x/deep/gold", "x/meta.json"] {
            fs::write(place.dir().join(file), "mine").unwrap();
        }
        Self { place }
    }

    fn dir(&self) -> &Path {
        self.place.dir()
    }

    /// All that is in it, with owner and contents.
    fn contents(&self) -> Vec<(PathBuf, u32, Vec<u8>)> {
        let (mut found, mut dirs) = (Vec::new(), vec![self.dir().to_owned()]);
        while let Some(dir) = dirs.pop() {
            for entry in fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                let facts = fs::symlink_metadata(&path).unwrap();
                let bytes = match facts.is_dir() {
                    true => Vec::new(),
                    false => fs::read(&path).unwrap(),
                };
                if facts.is_dir() {
                    dirs.push(path.clone());
                }
                found.push((path, facts.uid(), bytes));
            }
        }
        found.sort();
        found
    }
}

/// A recording as a flight recorder leaves it in a dump: its rows are still to be made.
fn put_recording(path: &Path) {
    let meta = meta();
    let mut writer = Writer::create_for_records(path, &meta, WIRE_VERSION).unwrap();
    writer.flush().unwrap();
}

/// A finished trace of some switches.
fn put_trace(path: &Path) {
    put_trace_from(path, meta().start_ns);
}

fn put_trace_from(path: &Path, start_ns: u64) {
    let meta = Meta {
        start_ns,
        end_ns: start_ns + 2_000_000_000,
        ..meta()
    };
    let mut writer = Writer::create(path, &meta).unwrap();
    writer.push_task(&seen(1, 10, 10, "worker")).unwrap();
    for reason in [Reason::Futex, Reason::Pipe] {
        writer.push_switch(&row(1, reason)).unwrap();
    }
    writer.finish(&meta, &mut |_, _| ()).unwrap();
}

/// Tells a thread to end when it is dropped, also because a test has failed.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Answers all who connect to this socket with these bytes, as long as the test runs `beside`.
fn answering<T>(socket: &Path, answer: &str, beside: impl FnOnce() -> T) -> T {
    let _ = fs::remove_file(socket);
    let listener = UnixListener::bind(socket).unwrap();
    // Whoever runs the program must be able to connect.
    fs::set_permissions(socket, fs::Permissions::from_mode(0o777)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let ended = AtomicBool::new(false);
    let serve = || {
        while !ended.load(Ordering::Relaxed) {
            let Ok((stream, _)) = listener.accept() else {
                thread::sleep(Duration::from_millis(1));
                continue;
            };
            stream.set_nonblocking(false).unwrap();
            let mut asked = String::new();
            // Who is refused by the other side closes before it asks.
            let read = BufReader::new(&stream).read_line(&mut asked);
            if read.is_ok() {
                let _ = (&stream).write_all(answer.as_bytes());
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(serve);
        let _ending = Ending(&ended);
        beside()
    })
}

/// As [`answering`], with a thread that exchanges what the two paths lead to, without an end.
fn exchanging<T>(one: &Path, other: &Path, beside: impl FnOnce() -> T) -> T {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE).unwrap();
                thread::yield_now();
            }
        });
        let _ending = Ending(&ended);
        beside()
    })
}

/// A trace in which somebody listens, with a dump that is one.
fn trace_of_server() -> (TraceDir, PathBuf) {
    let place = TraceDir::new();
    let trace = place.dir().join("f.swtch");
    fs::create_dir_all(trace.join("dumps")).unwrap();
    put_recording(&trace.join("dumps/x"));
    (place, trace)
}

fn asked(place: &TraceDir) -> Output {
    as_root(&["dump", "f.swtch", "-o", "out.swtch"], place.dir())
}

#[test]
fn a_dump_is_a_name_in_the_dumps_of_its_trace_and_nothing_else() {
    let treasure = Treasure::new();
    let before = treasure.contents();
    let (place, trace) = trace_of_server();
    let absolute = treasure.dir().join("x");
    let absolute = absolute.to_str().unwrap();
    symlink(absolute, trace.join("dumps/link")).unwrap();
    symlink(treasure.dir(), trace.join("elsewhere")).unwrap();
    fs::write(trace.join("dumps/file"), "").unwrap();
    let long = "x".repeat(9_000);
    for name in [
        absolute,
        "../x",
        "x",
        "dumps",
        "dumps/",
        "dumps/.",
        "dumps/..",
        "dumps/../elsewhere/x",
        "dumps/x/segments",
        "dumps//x",
        "./dumps/x",
        "elsewhere/x",
        "dumps/link",
        "dumps/file",
        "dumps/none",
        "dumps/x\u{0}",
        &long,
    ] {
        let answer = format!("{}\n", serde_json::json!({ "dump": name }));
        let output = answering(&trace.join("dump.socket"), &answer, || asked(&place));
        assert_refused(&output, "error: ", name);
        assert!(!place.dir().join("out.swtch").exists(), "{name}");
        assert!(trace.join("dumps/x/records.raw").exists(), "{name}");
    }
    // A link in place of the directory itself.
    fs::rename(trace.join("dumps"), trace.join("away")).unwrap();
    symlink(treasure.dir(), trace.join("dumps")).unwrap();
    let answer = "{\"dump\":\"dumps/x\"}\n";
    let output = answering(&trace.join("dump.socket"), answer, || asked(&place));
    assert_refused(&output, "no directory", "a link in place of dumps");
    assert!(treasure.contents() == before);
    // All of this was refused for the names alone.
    fs::remove_file(trace.join("dumps")).unwrap();
    fs::rename(trace.join("away"), trace.join("dumps")).unwrap();
    let output = answering(&trace.join("dump.socket"), answer, || asked(&place));
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(opening::open(&place.dir().join("out.swtch")).is_ok());
    assert!(!trace.join("dumps/x").exists(), "it was taken");
}

/// The directory of dumps, the dump and a link to what is to be destroyed change places while the dump
/// is asked for, written and removed.
#[test]
fn a_dump_that_is_exchanged_for_a_link_meanwhile_is_never_followed() {
    let treasure = Treasure::new();
    let before = treasure.contents();
    let (place, trace) = trace_of_server();
    let (dumps, link) = (trace.join("dumps"), trace.join("link"));
    symlink(treasure.dir(), &link).unwrap();
    let answer = "{\"dump\":\"dumps/x\"}\n";
    let (mut taken, mut refused) = (0, 0);
    answering(&trace.join("dump.socket"), answer, || {
        for _ in 0..150 {
            let output = exchanging(&dumps, &link, || asked(&place));
            let is_link = |path: &Path| path.is_symlink();
            if is_link(&dumps) {
                renameat_with(CWD, &dumps, CWD, &link, RenameFlags::EXCHANGE).unwrap();
            }
            match output.status.success() {
                true => {
                    taken += 1;
                    let out = place.dir().join("out.swtch");
                    assert!(Trace::open(&out).is_ok());
                    fs::remove_dir_all(out).unwrap();
                    put_recording(&dumps.join("x"));
                }
                false => refused += 1,
            }
        }
    });
    println!("{taken} dumps were taken, {refused} refused");
    assert!(taken > 0 && refused > 0, "{taken} taken, {refused} refused");
    assert!(treasure.contents() == before);
}

#[test]
#[ignore = "needs root"]
fn root_a_recorder_of_another_user_is_not_believed() {
    let treasure = Treasure::new();
    let before = treasure.contents();
    let (place, trace) = trace_of_server();
    let socket = trace.join("dump.socket");
    for path in [place.dir(), &trace, &trace.join("dumps")] {
        chown(path, Some(USER), Some(USER)).unwrap();
    }
    // Whoever made it must be looked at, too.
    let open = fs::Permissions::from_mode(0o755);
    fs::set_permissions(trace.join("dumps/x"), open).unwrap();
    let absolute = treasure.dir().join("x");
    let answer = format!("{}\n", serde_json::json!({ "dump": absolute }));
    let output = beside_server_of_user(&socket, &answer, || asked(&place));
    assert_refused(&output, &format!("user {USER}"), "root asks");
    // Under sudo it is the caller's own, whose rights are all that is left: what root may read is not
    // the caller's to give away, and to remove.
    let own = "{\"dump\":\"dumps/x\"}\n";
    for (answer, why) in [
        (answer.as_str(), "no name in its directory"),
        (own, "user 0"),
    ] {
        let asked = || through_sudo(&["dump", "f.swtch", "-o", "out.swtch"], place.dir());
        let output = beside_server_of_user(&socket, answer, asked);
        assert_refused(&output, why, answer);
    }
    assert!(trace.join("dumps/x/records.raw").exists());
    assert!(treasure.contents() == before);
}

/// Runs `beside` as root while the lesser user answers at this socket.
fn beside_server_of_user<T: Send>(
    socket: &Path,
    answer: &str,
    beside: impl FnOnce() -> T + Send,
) -> T {
    let (begun, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            as_user(|| {
                answering(socket, answer, || {
                    begun.store(true, Ordering::Relaxed);
                    while !ended.load(Ordering::Relaxed) {
                        thread::sleep(Duration::from_millis(1));
                    }
                });
            });
        });
        let _ending = Ending(&ended);
        wait_until("the lesser user listens", || begun.load(Ordering::Relaxed));
        beside()
    })
}

#[test]
#[ignore = "needs root"]
fn root_through_sudo_nothing_is_made_where_the_caller_may_not_write() {
    let _machine = beside_others();
    let treasure = Treasure::new();
    let before = treasure.contents();
    let place = TraceDir::new();
    fs::set_permissions(place.dir(), fs::Permissions::from_mode(0o777)).unwrap();
    let at = |name: &str| place.dir().join(name);
    put_trace(&at("t.swtch"));
    put_trace_from(&at("u.swtch"), 7_000_000_000);
    fs::write(at("perf.data"), Forged::new(&[]).bytes).unwrap();
    let mark = at("mark");
    let touch = ["--", "touch", mark.to_str().unwrap()];
    let to = |name: &str| treasure.dir().join(name).to_str().unwrap().to_owned();
    let (dir, json, html, svg) = (to("x.service.d"), to("a.json"), to("a.html"), to("a.svg"));
    let precious = to("precious");
    let cases: &[&[&str]] = &[
        &["record", "-o", &dir, touch[0], touch[1], touch[2]],
        &[
            "record", "--ring", "1m", "-o", &dir, touch[0], touch[1], touch[2],
        ],
        &[
            "record",
            "--backend",
            "perf",
            "-o",
            &dir,
            touch[0],
            touch[1],
            touch[2],
        ],
        &[
            "explain",
            "--no-bill",
            "-o",
            &dir,
            touch[0],
            touch[1],
            touch[2],
        ],
        &["import", "perf.data", "-o", &dir],
        &["export", "t.swtch", "--to", "perfetto", "-o", &json],
        &["export", "t.swtch", "--to", "perfetto", "-o", &precious],
        &["report", "t.swtch", "-o", &html],
        &["report", "t.swtch", "-o", &svg],
        &["diff", "t.swtch", "u.swtch", "-o", &html],
        &["man-pages", treasure.dir().to_str().unwrap()],
    ];
    for words in cases {
        let case = words.join(" ");
        let output = through_sudo(words, place.dir());
        assert_refused(&output, "SUDO_UID", &case);
        assert!(!mark.exists(), "{case}: the command was run");
        assert!(treasure.contents() == before, "{case}");
    }
    // Where the caller may write, all of it is the caller's.
    for words in [
        &["import", "perf.data", "-o", "i.swtch"][..],
        &["export", "t.swtch", "--to", "perfetto", "-o", "a.json"],
        &["report", "t.swtch", "-o", "a.html"],
    ] {
        let output = through_sudo(words, place.dir());
        assert!(output.status.success(), "{words:?}: {}", stderr(&output));
        let made = at(words.last().unwrap());
        assert_eq!(made.metadata().unwrap().uid(), USER, "{words:?}");
    }
    for entry in fs::read_dir(at("i.swtch")).unwrap() {
        assert_eq!(entry.unwrap().metadata().unwrap().uid(), USER);
    }
}

/// The name of a directory of the caller's leads, every other moment, into one of root's.
#[test]
#[ignore = "needs root"]
fn root_through_sudo_a_directory_that_is_exchanged_for_a_link_gives_nothing_away() {
    let treasure = Treasure::new();
    let before = treasure.contents();
    let place = TraceDir::new();
    let at = |name: &str| place.dir().join(name);
    put_trace(&at("t.swtch"));
    fs::write(at("perf.data"), Forged::new(&[]).bytes).unwrap();
    fs::create_dir(at("own")).unwrap();
    symlink(treasure.dir(), at("link")).unwrap();
    for path in [place.dir(), &at("own")] {
        chown(path, Some(USER), Some(USER)).unwrap();
    }
    let mut made = 0;
    for round in 0..100 {
        let words = match round % 2 {
            0 => ["import", "perf.data", "-o", "own/new.swtch"].as_slice(),
            _ => &[
                "export",
                "t.swtch",
                "--to",
                "perfetto",
                "-o",
                "own/precious",
            ],
        };
        let run = || through_sudo(words, place.dir());
        made += u32::from(exchanging(&at("own"), &at("link"), run).status.success());
        if at("own").is_symlink() {
            renameat_with(CWD, at("own"), CWD, at("link"), RenameFlags::EXCHANGE).unwrap();
        }
        let _ = fs::remove_dir_all(at("own/new.swtch"));
    }
    println!("{made} of 100 were written");
    assert!(
        made > 0,
        "the caller's own directory is a place to write to"
    );
    assert!(treasure.contents() == before);
}

/// A file of root's is not replaced because somebody put a link to it where root writes.
#[test]
#[ignore = "needs root"]
fn root_a_link_of_another_user_is_not_followed_to_what_it_would_replace() {
    let treasure = Treasure::new();
    let before = treasure.contents();
    let place = TraceDir::new();
    let at = |name: &str| place.dir().join(name);
    put_trace(&at("t.swtch"));
    fs::set_permissions(place.dir(), fs::Permissions::from_mode(0o1777)).unwrap();
    let precious = treasure.dir().join("precious");
    as_user(|| symlink(&precious, at("a.json")).unwrap());
    let words = ["export", "t.swtch", "--to", "perfetto", "-o", "a.json"];
    let output = as_root(&words, place.dir());
    assert_refused(&output, &format!("a link of user {USER}"), "export");
    assert!(treasure.contents() == before);
    // Root's own link leads where root wants it to.
    fs::remove_file(at("a.json")).unwrap();
    fs::write(at("aim"), "old").unwrap();
    symlink("aim", at("a.json")).unwrap();
    let output = as_root(&words, place.dir());
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(at("a.json").is_symlink());
    assert_ne!(fs::read(at("aim")).unwrap(), b"old");
}

/// Root records into a directory of another user, who moves the trace away and puts a link there, to
/// a directory that has files and directories of the names that a recorder writes and removes.
#[test]
#[ignore = "needs root"]
fn root_a_trace_that_is_exchanged_for_a_link_is_ended_where_it_is() {
    let _machine = beside_others();
    for ring in [&[][..], &["--ring", "1m"]] {
        let treasure = Treasure::new();
        let before = treasure.contents();
        let place = TraceDir::new();
        chown(place.dir(), Some(USER), Some(USER)).unwrap();
        let script = "until [ -e go ]; do sleep 0.02; done";
        let words = [ring, &["--", "sh", "-c", script]].concat();
        let mut recorder = TestProcess::start(&mut place.record(&words));
        let moved = place.dir().join("moved");
        wait_until(&format!("it records: {words:?}"), || {
            match ring.is_empty() {
                true => place.trace().join("frame.arrows").exists(),
                false => place.trace().join("dump.socket").exists(),
            }
        });
        as_user(|| {
            fs::rename(place.trace(), &moved).unwrap();
            symlink(treasure.dir().join("x"), place.trace()).unwrap();
        });
        if !ring.is_empty() {
            recorder.signal(libc::SIGUSR2);
            wait_until("there is a dump", || {
                fs::read_dir(moved.join("dumps")).is_ok_and(|mut dumps| dumps.next().is_some())
            });
        }
        fs::write(place.dir().join("go"), "").unwrap();
        assert!(recorder.ends_within(SOON).success(), "{ring:?}");
        assert!(Trace::open(&moved).is_ok(), "{ring:?}");
        assert!(treasure.contents() == before, "{ring:?}");
    }
}
