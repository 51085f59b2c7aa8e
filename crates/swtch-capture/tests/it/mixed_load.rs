//! A load that makes every kind of switch, for a bounded time, on two CPUs of the machine.
//!
//! Each part is a small loop that stands for one cause. The parts run beside each other, so that
//! causes meet: a yield while a wakeup asks for the CPU, a slice that ends in a wakeup, a new
//! thread beside a busy one. The busy loops (hogs) stop at half time; the second half runs the
//! other parts where CPUs go idle.
//!
//! ```text
//!  CPU A   hogs, pipe pair, real-time waker, yield beside a sleeper
//!  CPU B   niced hogs, yield pair, mutex
//!  both    quota group, affinity flips, sockets, fork/exec, threads, messaging
//! ```

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The moment at which a part ends.
#[derive(Clone, Copy)]
struct PartEnd(Instant);

impl PartEnd {
    fn goes_on(self) -> bool {
        Instant::now() < self.0
    }
}

/// A part that this machine cannot run.
#[derive(Debug)]
pub enum LeftOut {
    /// No cgroup with a CPU quota can be made.
    Quota(#[expect(dead_code, reason = "shown by Debug")] io::Error),
    /// The program `perf` is not installed.
    Messaging,
}

/// The running load, in threads.
pub struct MixedLoad {
    parts: Vec<JoinHandle<()>>,
    left_out: Vec<LeftOut>,
}

impl MixedLoad {
    /// Starts all parts, which end after this time.
    pub fn start(duration: Duration) -> Self {
        let start = Instant::now();
        let (half, end) = (PartEnd(start + duration / 2), PartEnd(start + duration));
        let [a, b] = two_cpus();
        let mut load = Self {
            parts: Vec::new(),
            left_out: Vec::new(),
        };
        load.processor_parts(a, b, half, end);
        load.waiting_parts(a, b, end);
        load.process_parts(a, end);
        load
    }

    /// Waits for the end and says which parts this machine cannot run.
    pub fn finish(self) -> Vec<LeftOut> {
        for part in self.parts {
            part.join().expect("a part of the load failed");
        }
        self.left_out
    }

    fn add(&mut self, part: impl FnOnce() + Send + 'static) {
        self.parts.push(thread::spawn(part));
    }

    fn processor_parts(&mut self, a: usize, b: usize, half: PartEnd, end: PartEnd) {
        for _ in 0..3 {
            self.add(move || hog(Some(a), 0, half));
        }
        for nice in [0, 5, 10] {
            self.add(move || hog(Some(b), nice, half));
        }
        self.add(move || real_time_waker(a, end));
        self.add(move || round_robin_pair(b));
        for _ in 0..2 {
            self.add(move || yield_often(b, end));
        }
        self.add(move || yield_often(a, end));
        self.add(move || sleep_often(Some(a), end));
        self.add(move || sleep_often(None, end));
        self.add(move || flip_own_affinity([a, b], end));
        self.add(move || flip_affinity_of_a_hog([a, b], end));
        match QuotaGroup::make() {
            Ok(group) => self.add(move || hogs_in(&group, end)),
            Err(error) => self.left_out.push(LeftOut::Quota(error)),
        }
    }

    fn waiting_parts(&mut self, a: usize, b: usize, end: PartEnd) {
        self.add(move || pipe_ping_pong(Some(a), end));
        self.add(move || pipe_ping_pong(None, end));
        self.add(move || contended_mutex(b, end));
        self.add(move || condition_variable(end));
        self.add(move || unix_ping_pong(end));
        self.add(move || tcp_ping_pong(end));
        self.add(move || poll_with_timeout(end));
        self.add(move || read_uncached(end));
    }

    fn process_parts(&mut self, a: usize, end: PartEnd) {
        self.add(move || thread_storm(end));
        self.add(move || exec_storm(200, end));
        self.add(move || stop_and_continue(a, end));
        let perf = Command::new("perf").arg("version").output();
        if perf.is_ok_and(|output| output.status.success()) {
            self.add(move || messaging(end));
        } else {
            self.left_out.push(LeftOut::Messaging);
        }
    }
}

// ---- the processor: slices, classes, yields, moves ----

fn spin(length: Duration) {
    let until = PartEnd(Instant::now() + length);
    while until.goes_on() {
        std::hint::spin_loop();
    }
}

fn hog(cpu: Option<usize>, nice: i32, until: PartEnd) {
    if let Some(cpu) = cpu {
        allow_cpus(&[cpu]);
    }
    set_nice(nice);
    while until.goes_on() {
        spin(Duration::from_millis(1));
    }
}

/// A real-time task that takes the CPU from the hogs 500 times a second.
fn real_time_waker(cpu: usize, until: PartEnd) {
    allow_cpus(&[cpu]);
    set_real_time(libc::SCHED_FIFO, 10);
    while until.goes_on() {
        thread::sleep(Duration::from_millis(2));
        spin(Duration::from_micros(50));
    }
}

/// `SCHED_RR` gives turns of 100 ms (`RR_TIMESLICE`): two tasks for 450 ms take a few.
fn round_robin_pair(cpu: usize) {
    let take_turns = || {
        allow_cpus(&[cpu]);
        set_real_time(libc::SCHED_RR, 5);
        spin(Duration::from_millis(450));
    };
    thread::scope(|scope| {
        scope.spawn(take_turns);
        take_turns();
    });
}

fn yield_often(cpu: usize, until: PartEnd) {
    allow_cpus(&[cpu]);
    while until.goes_on() {
        for _ in 0..20 {
            thread::yield_now();
            spin(Duration::from_micros(5));
        }
    }
}

fn sleep_often(cpu: Option<usize>, until: PartEnd) {
    if let Some(cpu) = cpu {
        allow_cpus(&[cpu]);
    }
    while until.goes_on() {
        thread::sleep(Duration::from_micros(300));
    }
}

fn flip_own_affinity(cpus: [usize; 2], until: PartEnd) {
    for cpu in cpus.iter().cycle() {
        if !until.goes_on() {
            return;
        }
        allow_cpus(&[*cpu]);
        spin(Duration::from_micros(300));
    }
}

fn flip_affinity_of_a_hog(cpus: [usize; 2], until: PartEnd) {
    let (tell_tid, tid) = std::sync::mpsc::channel();
    let hog = thread::spawn(move || {
        tell_tid.send(own_tid()).expect("the flipper waits for it");
        hog(None, 0, until);
    });
    let tid = tid.recv().expect("the hog says who it is");
    for cpu in cpus.iter().cycle() {
        if !until.goes_on() {
            break;
        }
        // The hog may end first; then there is nothing left to move.
        let _ = allow_cpus_of(tid, &[*cpu]);
        thread::sleep(Duration::from_millis(3));
    }
    hog.join().expect("the flipped hog failed");
}

fn hogs_in(group: &QuotaGroup, until: PartEnd) {
    let children = [Bounded::shell_loop(), Bounded::shell_loop()];
    for child in &children {
        group
            .admit(child.0.id())
            .expect("admitting a process to the quota group");
    }
    while until.goes_on() {
        thread::sleep(Duration::from_millis(20));
    }
}

/// A cgroup with 1 ms of CPU time every 20 ms. Removed when dropped.
struct QuotaGroup(PathBuf);

impl QuotaGroup {
    fn make() -> io::Result<Self> {
        let name = format!("swtch-oracle-{}", std::process::id());
        let v1 = Path::new("/sys/fs/cgroup/cpu");
        if v1.join("cpu.cfs_quota_us").exists() {
            let group = Self::at(v1.join(name))?;
            fs::write(group.0.join("cpu.cfs_period_us"), "20000")?;
            fs::write(group.0.join("cpu.cfs_quota_us"), "1000")?;
            return Ok(group);
        }
        let group = Self::at(Path::new("/sys/fs/cgroup").join(name))?;
        fs::write(group.0.join("cpu.max"), "1000 20000")?;
        Ok(group)
    }

    fn at(path: PathBuf) -> io::Result<Self> {
        fs::create_dir(&path)?;
        Ok(Self(path))
    }

    fn admit(&self, pid: u32) -> io::Result<()> {
        fs::write(self.0.join("cgroup.procs"), pid.to_string())
    }
}

impl Drop for QuotaGroup {
    fn drop(&mut self) {
        // Processes that were killed leave their group a little later.
        for _ in 0..100 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        eprintln!("{} could not be removed", self.0.display());
    }
}

// ---- waits ----

fn pipe_ping_pong(cpu: Option<usize>, until: PartEnd) {
    let (mut to_peer, from_us) = pipe();
    let (to_us, mut from_peer) = pipe();
    let (mut from_us, mut to_us) = (from_us, to_us);
    let pin = move || {
        if let Some(cpu) = cpu {
            allow_cpus(&[cpu]);
        }
    };
    let peer = thread::spawn(move || {
        pin();
        let mut token = [0];
        // The peer ends when the pipe is closed.
        while from_us.read_exact(&mut token).is_ok() && to_us.write_all(&token).is_ok() {}
    });
    pin();
    let mut token = [0];
    while until.goes_on() {
        to_peer.write_all(&token).expect("the peer reads");
        from_peer.read_exact(&mut token).expect("the peer answers");
        spin(Duration::from_micros(20));
    }
    drop(to_peer);
    peer.join().expect("the peer of the pipe failed");
}

fn pipe() -> (io::PipeWriter, io::PipeReader) {
    let (reader, writer) = io::pipe().expect("a pipe");
    (writer, reader)
}

fn contended_mutex(cpu: usize, until: PartEnd) {
    let lock = Mutex::new(());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                allow_cpus(&[cpu]);
                while until.goes_on() {
                    let guard = lock.lock().expect("nobody panics with it");
                    spin(Duration::from_micros(30));
                    drop(guard);
                    spin(Duration::from_micros(30));
                }
            });
        }
    });
}

fn condition_variable(until: PartEnd) {
    let turn = (Mutex::new(false), Condvar::new());
    let play = |mine: bool| {
        while until.goes_on() {
            let guard = turn.0.lock().expect("nobody panics with it");
            // The other thread may have ended: look at the clock from time to time.
            let wait = turn
                .1
                .wait_timeout_while(guard, Duration::from_millis(10), |t| *t != mine);
            *wait.expect("nobody panics with it").0 = !mine;
            turn.1.notify_one();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| play(true));
        play(false);
    });
}

fn ping_pong(mut ours: impl Read + Write, mut theirs: impl Read + Write + Send, until: PartEnd) {
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut token = [0];
            // The peer ends when the socket is closed.
            while theirs.read_exact(&mut token).is_ok() && theirs.write_all(&token).is_ok() {}
        });
        let mut token = [0];
        while until.goes_on() {
            ours.write_all(&token).expect("the peer reads");
            ours.read_exact(&mut token).expect("the peer answers");
            spin(Duration::from_micros(50));
        }
        drop(ours);
    });
}

fn unix_ping_pong(until: PartEnd) {
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    ping_pong(ours, theirs, until);
}

fn tcp_ping_pong(until: PartEnd) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a loopback port");
    let address = listener.local_addr().expect("the port has a number");
    let accept = thread::spawn(move || listener.accept().expect("a connection").0);
    let ours = TcpStream::connect(address).expect("the listener is there");
    let theirs = accept.join().expect("accepting failed");
    ping_pong(ours, theirs, until);
}

fn poll_with_timeout(until: PartEnd) {
    let (ours, _theirs) = UnixStream::pair().expect("a pair of sockets");
    while until.goes_on() {
        let mut wanted = libc::pollfd {
            fd: ours.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one descriptor that lives, in one struct.
        let ready = unsafe { libc::poll(&raw mut wanted, 1, 1) };
        assert_eq!(ready, 0, "nobody writes");
    }
}

/// Reads this program's own file from the disk, by `O_DIRECT` where the file system has it.
fn read_uncached(until: PartEnd) {
    #[repr(align(4096))]
    struct DirectReadBuffer([u8; 4096]);
    let path = std::env::current_exe().expect("the test has a file");
    let direct = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path);
    let file = direct
        .or_else(|_| File::open(&path))
        .expect("the test's file can be read");
    let pages = file.metadata().expect("the file is there").len() / 4096;
    let mut page = DirectReadBuffer([0; 4096]);
    for number in (0..pages).step_by(7).cycle() {
        if !until.goes_on() {
            return;
        }
        file.read_exact_at(&mut page.0, number * 4096)
            .expect("a page of the file");
        thread::sleep(Duration::from_millis(2));
    }
}

// ---- threads and processes ----

fn thread_storm(until: PartEnd) {
    while until.goes_on() {
        let barrier = Arc::new(Barrier::new(8));
        let meet = |_| {
            let barrier = Arc::clone(&barrier);
            thread::spawn(move || barrier.wait().is_leader())
        };
        let threads: Vec<_> = (0..8).map(meet).collect();
        let leaders = threads
            .into_iter()
            .map(|t| t.join().expect("a short thread failed"));
        assert_eq!(leaders.filter(|is_leader| *is_leader).count(), 1);
        thread::sleep(Duration::from_millis(5));
    }
}

fn exec_storm(times: u32, until: PartEnd) {
    for _ in (0..times).take_while(|_| until.goes_on()) {
        let status = Command::new("sh")
            .args(["-c", "true"])
            .status()
            .expect("sh runs");
        assert!(status.success());
    }
}

/// A child process that is killed when dropped.
struct Bounded(Child);

impl Bounded {
    fn shell_loop() -> Self {
        let mut command = Command::new("sh");
        command
            .args(["-c", "while :; do :; done"])
            .stdin(Stdio::null());
        Self(command.spawn().expect("sh runs"))
    }
}

impl Drop for Bounded {
    fn drop(&mut self) {
        // It may have ended already; then both fail, which is fine.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn stop_and_continue(cpu: usize, until: PartEnd) {
    let child = Bounded::shell_loop();
    let pid = libc::pid_t::try_from(child.0.id()).expect("a process id");
    allow_cpus_of(pid, &[cpu]).expect("the child is there");
    for signal in [libc::SIGSTOP, libc::SIGCONT].iter().cycle() {
        if !until.goes_on() {
            return;
        }
        // SAFETY: signals a child that has not been waited for, so the id is still its own.
        assert_eq!(unsafe { libc::kill(pid, *signal) }, 0);
        thread::sleep(Duration::from_millis(10));
    }
}

fn messaging(until: PartEnd) {
    while until.goes_on() {
        let bench = ["bench", "sched", "messaging", "-g", "4", "-l", "50"];
        let output = Command::new("perf")
            .args(bench)
            .output()
            .expect("perf runs");
        assert!(output.status.success(), "{output:?}");
        thread::sleep(Duration::from_millis(200));
    }
}

// ---- asking the kernel ----

/// The first two CPUs that this process may use; the same twice on a machine with one.
fn two_cpus() -> [usize; 2] {
    // SAFETY: an all-zero set is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: fills a set of the size that is given.
    let result = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
    let limit = usize::try_from(libc::CPU_SETSIZE).expect("1024");
    // SAFETY: the number is below the set's size.
    let mut allowed = (0..limit).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) });
    let first = allowed.next().expect("this thread runs on some CPU");
    [first, allowed.next().unwrap_or(first)]
}

fn allow_cpus(cpus: &[usize]) {
    allow_cpus_of(0, cpus).expect("the CPU is one of the allowed");
}

fn allow_cpus_of(tid: libc::pid_t, cpus: &[usize]) -> io::Result<()> {
    // SAFETY: an all-zero set is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for cpu in cpus {
        // SAFETY: the number came out of a set of this size.
        unsafe { libc::CPU_SET(*cpu, &mut set) };
    }
    // SAFETY: reads a set of the size that is given.
    match unsafe { libc::sched_setaffinity(tid, size_of_val(&set), &raw const set) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets the niceness of the calling thread.
pub fn set_nice(nice: i32) {
    // SAFETY: plain numbers; 0 is the calling thread.
    let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// Gives the calling thread a real-time policy and priority.
pub fn set_real_time(policy: i32, priority: i32) {
    let parameters = libc::sched_param {
        sched_priority: priority,
    };
    // SAFETY: reads one struct; 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

fn own_tid() -> libc::pid_t {
    // SAFETY: has no arguments and cannot fail.
    unsafe { libc::gettid() }
}
