//! Samples of the kernel's counters for the threads of a set of processes.
//!
//! Threads come and go while they are sampled. A file that disappears between listing and reading
//! is the ordinary case and means that the thread ended; its last sample is kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use rustc_hash::FxHashMap;
use swtch_capture::Children;
use swtch_core::{Nanos, Pid, ProcessStat, Tid};
use swtch_host::thread::{Schedstat, Status, ThreadCounters, read_counters};

/// Start time of a process, in clock ticks since boot. Together with the id it identifies a process
/// even after the id has been used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StartTime(u64);

/// The fields of `/proc/PID/stat` that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    parent: Pid,
    started: StartTime,
    /// True for a zombie without other threads: no thread of it will run again.
    is_dead: bool,
}

impl Stat {
    fn read(pid: Pid) -> Option<Self> {
        Self::parse(&fs::read(format!("/proc/{pid}/stat")).ok()?)
    }

    fn parse(line: &[u8]) -> Option<Self> {
        let stat = ProcessStat::parse(line)?;
        Some(Self {
            parent: Pid::new(stat.parent()?),
            started: StartTime(stat.start_ticks()?),
            is_dead: stat.is_dead(),
        })
    }
}

/// The processes that are sampled.
#[derive(Debug)]
pub(super) struct Processes {
    members: BTreeMap<Pid, StartTime>,
    /// Says whether children of members become members: those of a command do.
    children: Children,
}

impl Processes {
    /// A command that was just started, and every process that it will start.
    pub(super) fn tree_of(root: Pid) -> Self {
        let root = Stat::read(root).map(|stat| (root, stat.started));
        Self {
            members: root.into_iter().collect(),
            children: Children::Recorded,
        }
    }

    /// Processes that are running already.
    ///
    /// # Errors
    ///
    /// If one of them does not exist, or is a thread and not a process.
    pub(super) fn running(pids: &[Pid], children: Children) -> Result<Self> {
        let members = pids.iter().map(|&pid| Ok((pid, running(pid)?)));
        Ok(Self {
            members: members.collect::<Result<_>>()?,
            children,
        })
    }

    pub(super) fn pids(&self) -> impl Iterator<Item = Pid> {
        self.members.keys().copied()
    }

    /// Counts the members that can still run.
    pub(super) fn count_running(&self) -> usize {
        let states = self.pids().filter_map(Stat::read);
        states.filter(|stat| !stat.is_dead).count()
    }

    /// Counts those of `asked` that have ended; the processes below them do not count.
    pub(super) fn count_ended(&self, asked: &[Pid]) -> usize {
        let is_running = |pid: &&Pid| {
            self.members.contains_key(pid) && Stat::read(**pid).is_some_and(|stat| !stat.is_dead)
        };
        asked.len() - asked.iter().filter(is_running).count()
    }

    /// Removes members that ended or whose id now belongs to another process, and adds new
    /// children.
    ///
    /// # Errors
    ///
    /// If `/proc` cannot be listed.
    pub(super) fn refresh(&mut self) -> io::Result<()> {
        if self.children == Children::Recorded {
            let all: BTreeMap<Pid, Stat> = numbered("/proc".as_ref())?
                .filter_map(|number| Some((Pid::new(number), Stat::read(Pid::new(number))?)))
                .collect();
            self.take_in(&all);
        } else {
            self.members.retain(|&pid, started| {
                Stat::read(pid).is_some_and(|stat| stat.started == *started && !stat.is_dead)
            });
        }
        Ok(())
    }

    /// This process may be below a member, as where the members are a shell that has started it. It
    /// is left out: to count makes switches, too.
    fn take_in(&mut self, all: &BTreeMap<Pid, Stat>) {
        let own = Pid::new(std::process::id());
        self.members
            .retain(|pid, started| all.get(pid).is_some_and(|stat| stat.started == *started));
        loop {
            let known = self.members.len();
            let children = all
                .iter()
                .filter(|(pid, stat)| **pid != own && self.members.contains_key(&stat.parent));
            let children: Vec<_> = children.map(|(&pid, stat)| (pid, stat.started)).collect();
            self.members.extend(children);
            if self.members.len() == known {
                return;
            }
        }
    }
}

/// The start time of a process.
fn running(pid: Pid) -> Result<StartTime> {
    let status = match fs::read(format!("/proc/{pid}/status")) {
        Ok(status) => status,
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!("no process {pid}"),
        Err(error) => return Err(error).with_context(|| format!("reading process {pid}")),
    };
    match Status::parse(&status).map(|status| status.pid) {
        Some(owner) if owner != pid => {
            bail!("{pid} is a thread of process {owner}: use -p {owner}")
        }
        _ => {}
    }
    match Stat::read(pid) {
        Some(stat) if !stat.is_dead => Ok(stat.started),
        _ => bail!("no process {pid}: it has ended"),
    }
}

/// The entries of a directory whose names are numbers.
fn numbered(directory: &Path) -> io::Result<impl Iterator<Item = u32> + use<>> {
    Ok(fs::read_dir(directory)?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()))
}

/// A thread that was seen in at least one sample.
#[derive(Clone, Debug)]
pub(super) struct SampledThread {
    pub pid: Pid,
    pub tid: Tid,
    pub name: String,
    /// True if it was gone at the last sample: its last moments are not counted.
    pub ended: bool,
    first: ThreadCounters,
    last: ThreadCounters,
    /// The moment of its first sample, and what that said.
    met: (Instant, Option<Schedstat>),
    last_at: Instant,
}

impl SampledThread {
    /// The growth of its counters while it was sampled.
    pub(super) fn counters(&self) -> ThreadCounters {
        self.last - self.first
    }

    /// Returns how long it was blocked between its first sample and its last one; `None` where the kernel does not
    /// account for the rest of the time.
    pub(super) fn blocked(&self) -> Option<Nanos> {
        let (met_at, met) = self.met;
        let passed = super::length(self.last_at - met_at);
        Some(self.last.runs?.blocked_since(met?, passed))
    }

    /// True if the kernel leaves out its last switch when it adds up the threads of its process: a
    /// thread is added when it ends, before it leaves the CPU for ever (`__exit_signal`,
    /// `kernel/exit.c`, v6.18). The first one is added when its process is waited for.
    pub(super) fn lacks_last_switch(&self) -> bool {
        self.ended && self.tid.get() != self.pid.get()
    }
}

/// From which values the counters of a thread are counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Baseline {
    /// From zero: the thread was started after sampling began.
    #[default]
    Zero,
    /// From its first sample: it ran before sampling began.
    FirstSample,
}

/// All threads that were seen, those that ended included.
#[derive(Debug, Default)]
pub(super) struct SeenThreads {
    alive: FxHashMap<Tid, SampledThread>,
    ended: Vec<SampledThread>,
    /// The baseline for threads that are seen for the first time in the next sample.
    baseline: Baseline,
    /// Samples that failed for another cause than the end of the thread.
    pub unreadable: u64,
}

impl SeenThreads {
    /// For processes that run already: what they did before the first sample does not count.
    pub(super) fn of_running() -> Self {
        Self {
            baseline: Baseline::FirstSample,
            ..Self::default()
        }
    }

    /// Looks at every thread of these processes.
    pub(super) fn sample(&mut self, pids: impl Iterator<Item = Pid>) {
        let mut seen = BTreeSet::new();
        for pid in pids {
            // A process that ended after it was listed has no task directory.
            for tid in numbered(format!("/proc/{pid}/task").as_ref())
                .into_iter()
                .flatten()
            {
                let at = Instant::now();
                match read_counters(pid, Tid::new(tid)) {
                    Ok(Some((name, counters))) => {
                        seen.insert(Tid::new(tid));
                        self.note((pid, Tid::new(tid)), name, counters, at);
                    }
                    Ok(None) => {}
                    Err(_) => self.unreadable += 1,
                }
            }
        }
        self.let_go_of_others(&seen);
        // A thread that appears from now on was started after sampling began.
        self.baseline = Baseline::Zero;
    }

    fn note(&mut self, (pid, tid): (Pid, Tid), name: String, now: ThreadCounters, at: Instant) {
        if let Some(thread) = self.alive.get_mut(&tid)
            && thread.pid == pid
            && thread.last.is_before(&now)
        {
            (thread.last, thread.last_at) = (now, at);
            thread.name = name;
            return;
        }
        let first = match self.baseline {
            Baseline::Zero => ThreadCounters::default(),
            Baseline::FirstSample => now,
        };
        let thread = SampledThread {
            pid,
            tid,
            name,
            ended: false,
            first,
            last: now,
            met: (at, now.runs),
            last_at: at,
        };
        if let Some(earlier) = self.alive.insert(tid, thread) {
            self.ended.push(SampledThread {
                ended: true,
                ..earlier
            });
        }
    }

    fn let_go_of_others(&mut self, seen: &BTreeSet<Tid>) {
        let gone: Vec<_> = self
            .alive
            .keys()
            .filter(|tid| !seen.contains(tid))
            .copied()
            .collect();
        for tid in gone {
            if let Some(thread) = self.alive.remove(&tid) {
                self.ended.push(SampledThread {
                    ended: true,
                    ..thread
                });
            }
        }
    }

    /// The threads that lived at the last sample, with their names.
    pub(super) fn alive(&self) -> impl Iterator<Item = (Pid, Tid, &str)> {
        let alive = self.alive.values();
        alive.map(|thread| (thread.pid, thread.tid, thread.name.as_str()))
    }

    /// All threads, those with the most switches first.
    pub(super) fn threads(&self) -> Vec<&SampledThread> {
        let mut threads: Vec<_> = self.alive.values().chain(&self.ended).collect();
        threads.sort_by_key(|thread| {
            (
                std::cmp::Reverse(thread.counters().switches()),
                thread.pid,
                thread.tid,
            )
        });
        threads
    }

    pub(super) fn sum(&self) -> ThreadCounters {
        let threads = self.alive.values().chain(&self.ended);
        threads
            .map(SampledThread::counters)
            .fold(ThreadCounters::default(), std::ops::Add::add)
    }

    pub(super) fn ended(&self) -> usize {
        self.ended.len()
    }

    /// Switches that the kernel's sum over a process leaves out, of the threads that were seen.
    pub(super) fn last_switches(&self) -> u64 {
        let ended = self.ended.iter();
        ended.filter(|thread| thread.lacks_last_switch()).count() as u64
    }

    /// Returns how long each thread was blocked while it was sampled; those of which it is not known are missing.
    pub(super) fn blocked(&self) -> FxHashMap<(Pid, Tid), Nanos> {
        let mut blocked = FxHashMap::default();
        for thread in self.alive.values().chain(&self.ended) {
            if let Some(time) = thread.blocked() {
                *blocked.entry((thread.pid, thread.tid)).or_default() += time;
            }
        }
        blocked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn counters(voluntary: u64, involuntary: u64) -> ThreadCounters {
        ThreadCounters {
            voluntary,
            involuntary,
            runs: None,
        }
    }

    fn stat(parent: u32, started: u64) -> Stat {
        Stat {
            parent: Pid::new(parent),
            started: StartTime(started),
            is_dead: false,
        }
    }

    fn family(processes: &[(u32, Stat)]) -> BTreeMap<Pid, Stat> {
        processes
            .iter()
            .map(|&(pid, stat)| (Pid::new(pid), stat))
            .collect()
    }

    fn tree(root: u32, started: u64) -> Processes {
        Processes {
            members: BTreeMap::from([(Pid::new(root), StartTime(started))]),
            children: Children::Recorded,
        }
    }

    fn pids(processes: &Processes) -> Vec<u32> {
        processes.pids().map(Pid::get).collect()
    }

    /// A grandchild may have a lower id than its parent, after ids have wrapped around.
    #[test]
    fn grandchildren_join_whatever_their_number() {
        let mut tree = tree(500, 1);
        tree.take_in(&family(&[
            (500, stat(1, 1)),
            (900, stat(500, 2)),
            (20, stat(900, 3)),
            (21, stat(1, 3)),
        ]));
        assert_eq!(pids(&tree), [20, 500, 900]);
    }

    /// A shell that is counted has started the process that counts.
    #[test]
    fn who_counts_is_not_counted() {
        let own = std::process::id();
        let mut tree = tree(500, 1);
        tree.take_in(&family(&[
            (500, stat(1, 1)),
            (501, stat(500, 1)),
            (own, stat(500, 2)),
        ]));
        assert_eq!(pids(&tree), [500, 501]);
    }

    #[test]
    fn an_orphan_stays_in_the_tree_it_was_seen_in() {
        let mut tree = tree(500, 1);
        tree.take_in(&family(&[(500, stat(1, 1)), (501, stat(500, 2))]));
        tree.take_in(&family(&[(501, stat(1, 2))]));
        assert_eq!(pids(&tree), [501]);
    }

    #[test]
    fn an_id_that_names_another_process_now_is_let_go() {
        let mut tree = tree(500, 1);
        tree.take_in(&family(&[(500, stat(1, 99))]));
        assert_eq!(pids(&tree), [0; 0]);
    }

    fn note(tally: &mut SeenThreads, tid: u32, now: ThreadCounters) {
        tally.note(
            (Pid::new(1), Tid::new(tid)),
            "x".into(),
            now,
            Instant::now(),
        );
    }

    #[test]
    fn a_thread_of_a_running_process_counts_from_its_first_sample() {
        let mut tally = SeenThreads::of_running();
        note(&mut tally, 1, counters(100, 10));
        tally.baseline = Baseline::Zero;
        note(&mut tally, 1, counters(105, 12));
        note(&mut tally, 2, counters(3, 0));
        assert_eq!(tally.sum(), counters(8, 2));
    }

    #[test]
    fn a_reused_id_is_another_thread() {
        let mut tally = SeenThreads::default();
        note(&mut tally, 1, counters(100, 10));
        note(&mut tally, 1, counters(2, 0));
        assert_eq!(tally.sum(), counters(102, 10));
        assert_eq!(tally.ended(), 1);
    }

    #[test]
    fn a_thread_that_ended_keeps_its_last_sample() {
        let mut tally = SeenThreads::default();
        note(&mut tally, 1, counters(7, 1));
        note(&mut tally, 2, counters(5, 1));
        tally.let_go_of_others(&BTreeSet::from([Tid::new(2)]));
        assert_eq!(tally.sum(), counters(12, 2));
        let threads = tally.threads();
        assert!(threads[0].ended && threads[0].tid == Tid::new(1) && !threads[1].ended);
    }

    #[test]
    fn a_thread_is_no_process() {
        let own = std::process::id();
        let (tell, told) = std::sync::mpsc::channel();
        let (leave, left) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            let link = fs::read_link("/proc/thread-self").unwrap();
            let tid: u32 = link.file_name().unwrap().to_str().unwrap().parse().unwrap();
            tell.send(tid).unwrap();
            left.recv().unwrap_err();
        });
        let refusal = running(Pid::new(told.recv().unwrap()))
            .unwrap_err()
            .to_string();
        assert!(refusal.contains(&format!("use -p {own}")), "{refusal}");
        drop(leave);
        other.join().unwrap();
    }
}
