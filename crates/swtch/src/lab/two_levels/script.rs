//! What is played in the child, and what it tells.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Windows of a phase: a point of the picture each.
pub const WINDOWS: u32 = 10;

/// Who scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Who {
    /// Workers of one scheduler, on one thread.
    Workers,
    /// Threads, which the kernel schedules.
    Threads,
}

/// What is to be played.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Script {
    /// Scans, alone and beside a hog.
    Scan(Scan),
    /// So many events of each kind, for the counters.
    Count,
}

/// Scans on one CPU.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scan {
    /// Who scans.
    pub who: Who,
    /// How many of them.
    pub scanners: u32,
    /// How much memory.
    pub megabytes: u32,
    /// When a worker gives way.
    pub quantum: Duration,
    /// How long each phase lasts.
    pub phase: Duration,
}

/// What came of a script.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Told {
    /// Of scans.
    Scanned(Scanned),
    /// Of events.
    Counted(Vec<super::exact::Counted>),
}

/// A stretch of a play with or without the hog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// The hog is not there.
    Alone,
    /// It wants the CPU all the time.
    Hog,
}

impl Phase {
    /// The phases of a play.
    pub const ALL: [Self; 3] = [Self::Alone, Self::Hog, Self::Alone];

    /// In words.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Hog => "beside a hog",
        }
    }
}

/// What came of scans.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Scanned {
    /// Phases in windows, in order of time.
    pub windows: Vec<Window>,
    /// Runs of workers, by when they ended; none of threads.
    pub runs: Vec<UserRun>,
    /// Runs that could not be read in time.
    pub lost_runs: u64,
    /// What workers waited for in all phases.
    pub waits: Vec<Waited>,
    /// The process and thread that the workers run on; the threads in the other play.
    pub threads: Vec<(u32, u32)>,
    /// The hog's.
    pub hog: (u32, u32),
}

/// What both levels counted in a window.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Window {
    /// Which phase it belongs to.
    pub phase: Phase,
    /// From where, in ns of `CLOCK_MONOTONIC`.
    pub from_ns: u64,
    /// To where.
    pub to_ns: u64,
    /// Counts of that time.
    pub grown: Counts,
}

/// Counters of both levels, or what they grew by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// The scheduler switched to another worker.
    pub user: u64,
    /// Time that workers ran by the scheduler's books, ns.
    pub running_ns: u64,
    /// What the scheduler calls its delay, ns.
    pub delay_ns: u64,
    /// The kernel switched the threads out asleep.
    pub voluntary: u64,
    /// It switched them out runnable.
    pub involuntary: u64,
    /// CPU time that it gave them, ns.
    pub cpu_ns: u64,
}

impl Counts {
    /// What they grew by.
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            running_ns: self.running_ns.saturating_sub(earlier.running_ns),
            delay_ns: self.delay_ns.saturating_sub(earlier.delay_ns),
            voluntary: self.voluntary.saturating_sub(earlier.voluntary),
            involuntary: self.involuntary.saturating_sub(earlier.involuntary),
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
        }
    }

    /// Of two windows together.
    pub const fn plus(self, other: Self) -> Self {
        Self {
            user: self.user + other.user,
            running_ns: self.running_ns + other.running_ns,
            delay_ns: self.delay_ns + other.delay_ns,
            voluntary: self.voluntary + other.voluntary,
            involuntary: self.involuntary + other.involuntary,
            cpu_ns: self.cpu_ns + other.cpu_ns,
        }
    }

    /// The kernel's switches of both kinds.
    pub const fn os(&self) -> u64 {
        self.voluntary + self.involuntary
    }
}

/// A run of a worker, from switch-in to switch-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserRun {
    /// Its task.
    pub task: u64,
    /// From where, in ns of `CLOCK_MONOTONIC`.
    pub from_ns: u64,
    /// To where.
    pub to_ns: u64,
}

impl UserRun {
    /// How long it was.
    pub const fn length_ns(&self) -> u64 {
        self.to_ns - self.from_ns
    }
}

/// Waits of one type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waited {
    /// Its name.
    pub wait_type: String,
    /// How many ended.
    pub count: u64,
    /// How long they were, ns.
    pub wait_ns: u64,
    /// The part of it after the signal: for the turn alone.
    pub signal_ns: u64,
}

impl Window {
    /// How long it is.
    pub fn seconds(&self) -> f64 {
        self.to_ns.saturating_sub(self.from_ns) as f64 / 1e9
    }
}

impl Scanned {
    /// The windows of a phase.
    pub fn of(&self, phase: Phase) -> impl Iterator<Item = &Window> {
        self.windows
            .iter()
            .filter(move |window| window.phase == phase)
    }

    /// Lengths of the runs of a phase, ns.
    pub fn runs_of(&self, phase: Phase) -> Vec<f64> {
        let runs = self.runs.iter().filter(|run| self.is_in(phase, run));
        runs.map(|run| run.length_ns() as f64).collect()
    }

    /// Whether a run lies in windows of one phase from beginning to end.
    fn is_in(&self, phase: Phase, run: &UserRun) -> bool {
        let at = |moment| {
            let mut windows = self.windows.iter();
            windows.position(|window| window.from_ns <= moment && moment <= window.to_ns)
        };
        let (Some(first), Some(last)) = (at(run.from_ns), at(run.to_ns)) else {
            return false;
        };
        self.windows[first..=last]
            .iter()
            .all(|window| window.phase == phase)
    }
}
