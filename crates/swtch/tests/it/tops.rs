//! `swtch top`: its rates add up to what the kernel counted, its table does not fill, and scripts get
//! whole frames without escape codes.
//!
//! ```text
//! swtch top --format json   ──frame──frame──frame──frame──▶ sums by process
//!        the load                ├──────────────┤ reaped: wait4(2) says how often it switched
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::machine::{TestCgroup, TestProcess, alone, beside_others, copy_program, wait_until};
use crate::recording::{SWTCH, TraceDir, stderr, stdout, swtch};

/// A `swtch top` that writes JSON into a file while a load runs.
struct TopBeside {
    process: TestProcess,
    dir: TraceDir,
}

impl TopBeside {
    fn start(words: &[&str]) -> Self {
        let dir = TraceDir::new();
        let out = fs::File::create(dir.dir().join("frames")).unwrap();
        let mut command = swtch(["top", "--format", "json"]);
        let process = TestProcess::start_into(command.args(words), out);
        let beside = Self { process, dir };
        wait_until("the first frame", || !beside.frames().is_empty());
        beside
    }

    fn frames(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.dir.dir().join("frames")).unwrap();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let frames = whole.lines();
        frames
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Waits until so many more frames have been made.
    fn makes(&self, more: usize) {
        let wanted = self.frames().len() + more;
        wait_until("further frames", || self.frames().len() >= wanted);
    }

    /// The frames until now and two more.
    fn end(mut self) -> Vec<Value> {
        self.makes(2);
        self.process.signal(libc::SIGTERM);
        let status = self.process.ends_within(Duration::from_secs(20));
        assert!(status.success(), "{status}");
        self.frames()
    }
}

/// Runs a command to its end. Returns its process id, and how often it and the processes that it
/// waited for switched, as the kernel counted it: voluntarily and not.
#[expect(clippy::zombie_processes, reason = "wait4 waits for it")]
pub fn run_counted(command: &mut Command) -> (u64, u64) {
    let child = command.stdout(Stdio::null()).spawn().unwrap();
    let pid = libc::pid_t::try_from(child.id()).unwrap();
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the child is ours and nobody else waits for it; `usage` has room for one struct.
    let ended = unsafe { libc::wait4(pid, std::ptr::null_mut(), 0, usage.as_mut_ptr()) };
    assert_eq!(ended, pid);
    // SAFETY: all its fields are numbers, and wait4 filled them.
    let usage = unsafe { usage.assume_init() };
    let switches = usage.ru_nvcsw + usage.ru_nivcsw;
    (child.id().into(), u64::try_from(switches).unwrap())
}

fn sum<'a>(rows: impl Iterator<Item = &'a Value>, column: &str) -> u64 {
    rows.map(|row| row[column].as_u64().unwrap_or_else(|| panic!("{row}")))
        .sum()
}

fn rows<'a>(frames: &'a [Value], view: &'a str) -> impl Iterator<Item = &'a Value> {
    let rows = frames.iter().map(move |frame| &frame[view]["rows"]);
    rows.flat_map(|rows| rows.as_array().unwrap())
}

fn assert_within_one_percent(counted: u64, kernel: u64) {
    let apart = counted.abs_diff(kernel);
    assert!(apart * 100 <= kernel, "{counted} counted, kernel: {kernel}");
}

/// ```text
/// cgroup of the process   its shell's │ a                │ b                  it executes nothing
/// switches                            ├─1,500 sleeps─────┼─1,500 sleeps───┤
/// ```
#[test]
#[ignore = "needs root"]
fn root_switches_count_in_the_cgroup_to_which_a_task_moved() {
    let _machine = beside_others();
    let (Some(a), Some(b)) = (TestCgroup::new(), TestCgroup::new()) else {
        swtch_test::skip!("no hierarchy with the cpu controller");
    };
    let top = TopBeside::start(&["--interval", "0.25"]);
    let procs = [&a, &b].map(|of| of.path().join("cgroup.procs"));
    let script = format!(
        "mkfifo silent; exec 3<>silent; \
         for to in {} {}; do echo $$ > $to; \
         for ((i = 0; i < 1500; i++)); do read -t 0.001 -u 3; done; done; true",
        procs[0].display(),
        procs[1].display()
    );
    let place = TraceDir::new();
    let mut mover = Command::new("bash");
    let (_, kernel) = run_counted(mover.args(["-c", &script]).current_dir(place.dir()));
    assert!(kernel >= 3_000, "{kernel}");
    let frames = top.end();
    let paths = [&a, &b].map(|of| {
        let name = of.path().file_name().unwrap().to_str().unwrap();
        format!("/{name}")
    });
    let of_frame = |frame: &Value| {
        paths.clone().map(|path| {
            let of_cgroup = rows(std::slice::from_ref(frame), "cgroups");
            sum(
                of_cgroup.filter(|row| row["cgroup"] == path.as_str()),
                "switches",
            )
        })
    };
    let counted: Vec<_> = frames.iter().map(of_frame).collect();
    let [first, second] = [0, 1].map(|at| counted.iter().map(|counts| counts[at]).sum::<u64>());
    let said = format!("{first} and {second} counted, and {kernel} in all");
    // In the frame of a move all switches are those of the new cgroup.
    let most_in_a_frame = counted.iter().map(|counts| counts[0] + counts[1]).max();
    assert!(first + most_in_a_frame.unwrap() >= 1_500, "{said}");
    assert!(second >= 1_450 && first + second >= 2_950, "{said}");
}

#[test]
#[ignore = "needs root"]
fn root_rates_of_a_process_add_up_to_what_the_kernel_counted() {
    let _alone = alone();
    let top = TopBeside::start(&["--interval", "0.25"]);
    let mut load = swtch(["workload", "pipe", "--count", "60000", "--quiet"]);
    let (pid, kernel) = run_counted(&mut load);
    let frames = top.end();
    let of_load = |view| rows(&frames, view).filter(|row| row["pid"] == pid);
    assert_within_one_percent(sum(of_load("processes"), "switches"), kernel);
    assert_within_one_percent(sum(of_load("threads"), "switches"), kernel);
    assert!(kernel > 100_000, "{kernel}");
    let all = frames.iter().map(|frame| &frame["frame"]);
    assert_eq!(sum(all.clone(), "lost"), 0);
    // Each view has all switches; a rate is switches by the time between two readings.
    for frame in &frames {
        let (made, total) = (&frame["frame"], &frame["threads"]["total"]);
        assert_eq!(made["switches"], total["switches"]);
        let reasons = frame["reasons"]["rows"].as_array().unwrap().iter();
        assert_eq!(sum(reasons, "switches"), made["switches"].as_u64().unwrap());
        let seconds = made["interval_ns"].as_f64().unwrap() / 1e9;
        let rate = made["switches"].as_f64().unwrap() / seconds;
        let shown = made["switches_per_s"].as_f64().unwrap();
        assert!(
            (rate - shown).abs() <= 0.001 * rate + 0.01,
            "{rate} {shown}"
        );
    }
    let main = of_load("threads").max_by_key(|row| row["switches"].as_u64());
    assert_eq!(main.unwrap()["main_reason"], "pipe");
}

/// Each of these processes takes several places in the table, and all of them more than it has.
#[test]
#[ignore = "needs root"]
fn root_places_of_ended_processes_are_used_again() {
    let _alone = alone();
    let _quiet = swtch_test::depends_on_quiet();
    let script = "i=0; while [ $i -lt 4000 ]; do /bin/true; i=$((i+1)); done";
    let top = TopBeside::start(&["--interval", "0.1", "--groups", "4096"]);
    // By a name of its own: others run shells, too.
    let place = TraceDir::new();
    let shell = place.dir().join("many-sh");
    copy_program("/bin/sh", &shell);
    let (_, kernel) = run_counted(Command::new(&shell).args(["-c", script]));
    let frames = top.end();
    let made = || frames.iter().map(|frame| &frame["frame"]);
    assert_eq!(sum(made(), "lost"), 0);
    let in_use = made().map(|made| made["groups_in_use"].as_u64().unwrap());
    assert!(in_use.max().unwrap() < 4096);
    let last = frames.last().unwrap()["frame"]["groups_in_use"].clone();
    assert!(last.as_u64().unwrap() < 1_500, "{last}");
    let mut by_name: BTreeMap<&str, u64> = BTreeMap::new();
    for row in rows(&frames, "threads") {
        let name = row["thread"].as_str().unwrap();
        *by_name.entry(name).or_default() += row["switches"].as_u64().unwrap();
    }
    let counted = by_name["many-sh"] + by_name["true"];
    println!("{kernel} by the kernel, by name: {by_name:?}");
    assert!(kernel >= 8_000, "{kernel}");
    assert_within_one_percent(counted, kernel);
}

/// A machine with more groups than there is room for must not look quieter than it is.
#[test]
#[ignore = "needs root"]
fn root_a_full_table_is_told() {
    let _beside = beside_others();
    let output = swtch(["top", "--count", "1", "--groups", "1"])
        .output()
        .unwrap();
    let table = stdout(&output);
    assert!(table.contains("not counted: the 1 groups"), "{table}");
    assert!(table.contains("--groups N makes room"), "{table}");
}

#[test]
#[ignore = "needs root"]
fn root_a_frame_for_scripts_has_no_escape_codes() {
    let _beside = beside_others();
    for (format, start) in [
        ("table", "host "),
        ("csv", "at_ns,thread,tid,"),
        ("json", "{\"schema\":\"swtch.top/1\""),
    ] {
        let words = [
            "top",
            "--count",
            "2",
            "--interval",
            "0.2",
            "--format",
            format,
        ];
        let output = swtch(words).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let text = stdout(&output);
        assert!(text.starts_with(start), "{format}: {text}");
        assert!(!text.contains('\u{1b}'), "{format}: {text}");
        if format == "json" {
            assert_eq!(text.lines().count(), 2, "one object a line");
        }
        if format == "csv" {
            assert_eq!(text.matches("at_ns,").count(), 1, "one head");
        }
    }
}

#[test]
#[ignore = "needs root"]
fn root_top_ends_when_its_processes_or_its_reader_do() {
    let _beside = beside_others();
    let mut sleeper = TestProcess::start(Command::new("sleep").arg("4"));
    let pid = sleeper.pid().to_string();
    let output = swtch(["top", "-p", &pid, "--format", "csv"]).output();
    assert!(output.unwrap().status.success());
    sleeper.ends_within(Duration::from_secs(10));
    let mut command = Command::new(SWTCH);
    command.args(["top", "--interval", "0.1", "--format", "csv"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 1];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    // The reader is gone now.
    assert!(child.wait().unwrap().success());
}

/// `swtch top` on a terminal of the test's own.
struct TopOnTerminal {
    process: TestProcess,
    terminal: fs::File,
    /// Kept open, so that its settings can be read when the program has ended.
    slave: fs::File,
    written: Arc<Mutex<String>>,
}

impl TopOnTerminal {
    fn start(words: &[&str]) -> Self {
        let size = window(80, 24);
        let pty = nix::pty::openpty(&size, None).unwrap();
        let (terminal, slave) = (fs::File::from(pty.master), fs::File::from(pty.slave));
        let mut command = swtch(["top"]);
        command
            .args(words)
            .env("TERM", "xterm")
            .env_remove("NO_COLOR");
        let process = TestProcess::start_at(&mut command, &slave);
        let written = Arc::new(Mutex::new(String::new()));
        let (mut reader, kept) = (terminal.try_clone().unwrap(), Arc::clone(&written));
        // It ends when nobody has the other side any more.
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]);
                kept.lock().unwrap().push_str(&text);
            }
        });
        Self {
            process,
            terminal,
            slave,
            written,
        }
    }

    fn text(&self) -> String {
        self.written.lock().unwrap().clone()
    }

    fn shows(&self, words: &str) {
        wait_until(words, || self.text().contains(words));
    }

    fn press(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    fn settings(&self) -> nix::sys::termios::LocalFlags {
        nix::sys::termios::tcgetattr(&self.slave)
            .unwrap()
            .local_flags
    }

    fn resize(&self, wide: u16, high: u16) {
        use std::os::fd::AsRawFd as _;
        let size = window(wide, high);
        // SAFETY: the request reads one struct, which this is.
        let done =
            unsafe { libc::ioctl(self.terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const size) };
        assert_eq!(done, 0);
        self.process.signal(libc::SIGWINCH);
    }
}

fn window(wide: u16, high: u16) -> nix::pty::Winsize {
    nix::pty::Winsize {
        ws_row: high,
        ws_col: wide,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

/// The sequence that leaves the second screen of a terminal.
const LEAVES_SCREEN: &str = "\u{1b}[?1049l";

#[test]
#[ignore = "needs root"]
fn root_the_terminal_is_put_back_however_it_ends() {
    let _beside = beside_others();
    for (keys, signal) in [
        ("q", 0),
        ("\u{3}", 0),
        ("", libc::SIGTERM),
        ("", libc::SIGHUP),
    ] {
        let mut top = TopOnTerminal::start(&["--interval", "0.2"]);
        let before = top.settings();
        top.shows("switches/s");
        assert_ne!(top.settings(), before, "keys come one by one");
        match signal {
            0 => top.press(keys),
            signal => top.process.signal(signal),
        }
        let status = top.process.ends_within(Duration::from_secs(10));
        assert!(status.success(), "{keys:?} {signal}: {status}");
        top.shows(LEAVES_SCREEN);
        assert_eq!(top.settings(), before, "{keys:?} {signal}");
    }
}

/// Its window is closed, or the connection breaks, and no signal says so.
#[test]
#[ignore = "needs root"]
fn root_it_ends_with_its_terminal() {
    let _beside = beside_others();
    let pty = nix::pty::openpty(&window(80, 24), None).unwrap();
    let (terminal, slave) = (fs::File::from(pty.master), fs::File::from(pty.slave));
    // A copy of it in the program would keep it open.
    rustix::io::fcntl_setfd(&terminal, rustix::io::FdFlags::CLOEXEC).unwrap();
    let mut command = swtch(["top", "--interval", "0.5"]);
    let mut process = TestProcess::start_at(command.env("TERM", "xterm"), &slave);
    drop((command, slave));
    let mut first = [0; 1];
    (&terminal).read_exact(&mut first).unwrap();
    drop(terminal);
    process.ends_within(Duration::from_secs(10));
}

#[test]
#[ignore = "needs root"]
fn root_a_terminal_may_shrink_and_the_program_be_stopped() {
    let _beside = beside_others();
    let mut top = TopOnTerminal::start(&["--interval", "0.1"]);
    let before = top.settings();
    top.shows("switches/s");
    for (wide, high) in [(20, 5), (1, 1), (300, 100), (80, 24)] {
        top.resize(wide, high);
        sleep(Duration::from_millis(300));
    }
    top.press("2/swtch\r?");
    sleep(Duration::from_millis(300));
    // Ctrl-Z gives the terminal back before the program stops.
    top.press("\u{1a}");
    let stat = format!("/proc/{}/stat", top.process.pid());
    wait_until("it has stopped", || {
        let stat = fs::read_to_string(&stat).unwrap();
        stat.rsplit_once(')').unwrap().1.starts_with(" T")
    });
    assert_eq!(top.settings(), before);
    top.process.signal(libc::SIGCONT);
    wait_until("it has the terminal again", || top.settings() != before);
    top.press("q\u{3}");
    assert!(top.process.ends_within(Duration::from_secs(10)).success());
    assert_eq!(top.settings(), before);
}

#[test]
#[ignore = "needs root"]
fn root_own_preemptions_are_no_foreign_ones() {
    let _alone = alone();
    let _quiet = swtch_test::depends_on_quiet();
    let top = TopBeside::start(&["--interval", "0.25"]);
    let (pid, _) = run_counted(&mut swtch([
        "workload", "hogs", "--count", "1500", "--quiet",
    ]));
    let frames = top.end();
    let of_load: Vec<_> = rows(&frames, "threads")
        .filter(|row| row["pid"] == pid)
        .collect();
    let per_s = |column: &str| -> f64 {
        let rates = of_load.iter().map(|row| row[column].as_f64().unwrap());
        rates.sum()
    };
    let own = per_s("own_process_per_s");
    assert!(
        own > 20.0 && own > 2.0 * per_s("foreign_per_s"),
        "{of_load:?}"
    );
}

/// Waits for so many microseconds for each of these futex words, one after the other.
fn wait_for_each(words: &[AtomicU32], micros: i64) {
    let time = libc::timespec {
        tv_sec: micros / 1_000_000,
        tv_nsec: micros % 1_000_000 * 1_000,
    };
    for word in words {
        // SAFETY: the word and the time live as long as the call, which only reads them.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                0,
                &raw const time,
            )
        };
    }
}

fn words(number: usize) -> Vec<AtomicU32> {
    (0..number).map(|_| AtomicU32::new(0)).collect()
}

#[test]
#[ignore = "needs root"]
fn root_each_lock_has_its_waits() {
    let _beside = beside_others();
    let _quiet = swtch_test::depends_on_quiet();
    let own = std::process::id().to_string();
    let top = TopBeside::start(&["--interval", "0.25", "-p", &own]);
    let two = words(2);
    for _ in 0..100 {
        wait_for_each(&two[..1], 2_000);
        wait_for_each(&two, 1_000);
    }
    let frames = top.end();
    let of = |word: &AtomicU32| {
        let address = format!("{:p}", word.as_ptr());
        let own = rows(&frames, "locks").filter(|row| row["lock"] == address.as_str());
        own.cloned().collect::<Vec<_>>()
    };
    let (first, second) = (of(&two[0]), of(&two[1]));
    assert_eq!(sum(first.iter(), "switches"), 200);
    assert_eq!(sum(second.iter(), "switches"), 100);
    let mean = second[0]["mean_blocked_ns"].as_u64().unwrap();
    assert!((1_000_000..3_000_000).contains(&mean), "{second:?}");
}

/// More locks than there is room for lose no switch, and the room is used again.
#[test]
#[ignore = "needs root"]
fn root_locks_that_nobody_waits_for_make_room() {
    let _beside = beside_others();
    let _quiet = swtch_test::depends_on_quiet();
    let own = std::process::id().to_string();
    let top = TopBeside::start(&["--interval", "0.1", "--groups", "2048", "-p", &own]);
    let many = words(3_000);
    wait_for_each(&many, 50);
    // The rest of the frame in which they waited, ten readings without a wait, and one more that frees
    // their places.
    top.makes(13);
    let few = words(20);
    wait_for_each(&few, 50);
    let frames = top.end();
    let made = || frames.iter().map(|frame| &frame["frame"]);
    assert_eq!(sum(made(), "lost"), 0);
    let locks: Vec<_> = rows(&frames, "locks").collect();
    let of_many = locks.iter().filter(|row| row["lock"] == "(more locks)");
    assert!(sum(of_many.copied(), "switches") > 2_000, "{locks:?}");
    let addresses: Vec<String> = many
        .iter()
        .chain(&few)
        .map(|word| format!("{:p}", word.as_ptr()))
        .collect();
    let is_ours = |row: &&&Value| {
        let lock = row["lock"].as_str().unwrap();
        lock == "(more locks)" || addresses.iter().any(|address| address == lock)
    };
    let ours = sum(locks.iter().filter(is_ours).copied(), "switches");
    // A wait whose time was over before it began does not switch.
    assert!((2_950..3_100).contains(&ours), "{ours}");
    let told = few.iter().map(|word| format!("{:p}", word.as_ptr()));
    let told = told.filter(|address| locks.iter().any(|row| row["lock"] == address.as_str()));
    assert!(told.count() >= 18, "{locks:?}");
    let in_use = made().next_back().unwrap()["groups_in_use"]
        .as_u64()
        .unwrap();
    assert!(in_use < 200, "{in_use}");
}

/// Threads that live on and take the CPU from each other, in pairs that are others all the time, lose no
/// switch either: the room of pairs that are not seen any more is used again.
#[test]
#[ignore = "needs root"]
fn root_pairs_that_do_not_come_again_make_room() {
    let _alone = alone();
    // Room is made when top reads: where it gets no CPU for some readings, switches are lost, and counted.
    let _quiet = swtch_test::depends_on_quiet();
    let own = std::process::id().to_string();
    let top = TopBeside::start(&["--interval", "0.03", "--groups", "2048", "-p", &own]);
    let in_use = |frames: &[Value]| -> Vec<u64> {
        let made = frames.iter().map(|frame| &frame["frame"]);
        made.map(|made| made["groups_in_use"].as_u64().unwrap())
            .collect()
    };
    let taken = |frames: &[Value]| -> u64 {
        let in_use = in_use(frames);
        let pairs = in_use.windows(2);
        pairs.map(|two| two[1].saturating_sub(two[0])).sum()
    };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = EndsThreads(&is_over);
        for number in 0..56u64 {
            let is_over = &is_over;
            scope.spawn(move || {
                let mut length = number;
                while !is_over.load(Ordering::Relaxed) {
                    length = length * 37 % 101;
                    sleep(Duration::from_micros(2_000 + 60 * length));
                    spin(Duration::from_micros(20 + length));
                }
            });
        }
        wait_until("more pairs than there is room for", || {
            sleep(Duration::from_millis(100));
            taken(&top.frames()) > 2_048
        });
    });
    let frames = top.end();
    let made = frames.iter().map(|frame| &frame["frame"]);
    assert_eq!(sum(made, "lost"), 0, "{:?}", in_use(&frames));
}

/// Ends the threads of a test that look at this flag, however it ends.
struct EndsThreads<'a>(&'a AtomicBool);

impl Drop for EndsThreads<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn spin(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {}
}

/// A hang switches no more: it is in no counter, and yet it is what one looks for.
#[test]
#[ignore = "needs root"]
fn root_a_thread_that_hangs_is_shown_with_its_wait() {
    let _beside = beside_others();
    let sleeper = TestProcess::start(Command::new("sleep").arg("60"));
    let pid = sleeper.pid().to_string();
    let output = swtch([
        "top",
        "--count",
        "2",
        "--interval",
        "0.5",
        "--format",
        "json",
    ])
    .args(["-p", &pid])
    .output()
    .unwrap();
    let text = stdout(&output);
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    // Its only switch was before: nothing is known of it, and nothing is claimed.
    assert_eq!(
        last["threads"]["rows"].as_array().unwrap().len(),
        0,
        "{last}"
    );
    sleeper.signal(libc::SIGKILL);
    let mut top = TopBeside::start(&["--interval", "0.25", "-p", &std::process::id().to_string()]);
    let (word, begins) = (Arc::new(words(1)), Instant::now());
    let theirs = Arc::clone(&word);
    let hang = std::thread::spawn(move || {
        // SAFETY: reads a number.
        let tid = unsafe { libc::gettid() };
        wait_for_each(&theirs, 120_000_000);
        tid
    });
    let mut waiting = Vec::new();
    wait_until("its wait is shown", || {
        let frame = top.frames().pop().unwrap();
        let longest = u64::try_from(begins.elapsed().as_nanos()).unwrap();
        let rows = frame["threads"]["rows"].as_array().unwrap().iter();
        let lasting = |row: &&Value| {
            let lasts = row["wait_lasts_ns"].as_u64().unwrap_or_default();
            row["waits_for"] == "futex"
                && (1_000_000_000..longest).contains(&lasts)
                && row["switches"] == 0
        };
        waiting = rows.filter(lasting).cloned().collect();
        !waiting.is_empty()
    });
    // SAFETY: the word lives as long as the call, which does not read it.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word[0].as_ptr(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            1,
        )
    };
    let tid = hang.join().unwrap();
    assert!(waiting.iter().any(|row| row["tid"] == tid), "{waiting:?}");
    top.process.signal(libc::SIGTERM);
    assert!(top.process.ends_within(Duration::from_secs(20)).success());
}

/// The page of a thread shows its stacks from the moment on in which it is opened.
#[test]
#[ignore = "needs root"]
fn root_the_page_of_a_thread_says_where_it_waits() {
    let _beside = beside_others();
    let mut load = swtch(["workload", "pipe", "--count", "100000000", "--quiet"]);
    let load = TestProcess::start(&mut load);
    let pid = load.pid().to_string();
    let mut top = TopOnTerminal::start(&["--by", "thread", "--interval", "0.3", "-p", &pid]);
    top.shows("switches/s");
    top.resize(140, 50);
    // The first row is one of the two threads of the pipe, once there are rates.
    wait_until("a page with stacks", || {
        top.press("\r");
        sleep(Duration::from_millis(700));
        // Drawn anew as a whole: otherwise only cells that are different are written.
        top.press("\u{c}");
        sleep(Duration::from_millis(300));
        top.text().contains("pipe_read < vfs_read")
    });
    top.press("q");
    assert!(top.process.ends_within(Duration::from_secs(20)).success());
}

/// The switches that the kernel does not see stand beside those that it does.
#[test]
#[ignore = "needs root"]
fn root_user_level_switches_stand_beside_those_of_the_kernel() {
    let _alone = alone();
    let top = TopBeside::start(&["--interval", "0.25"]);
    let mut load = swtch(["workload", "range-scan", "--count", "3", "--quiet"]);
    let (pid, _) = run_counted(&mut load);
    let frames = top.end();
    let of_load = |view| rows(&frames, view).filter(|row| row["pid"] == pid);
    for view in ["processes", "threads"] {
        let rates = of_load(view).filter_map(|row| row["user_switches_per_s"].as_f64());
        let highest = rates.fold(0.0, f64::max);
        assert!(highest > 100.0, "{view}: {highest}");
    }
}
