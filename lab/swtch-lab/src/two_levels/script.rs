//! The messages between the two processes: what the child is to do, and its results.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Windows of a phase; each is a point of the picture.
pub const WINDOWS: u32 = 10;

/// The kind of task that scans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScannerKind {
    /// Workers of one scheduler, on one thread.
    Workers,
    /// Threads, which the kernel schedules.
    Threads,
}

/// What the child is to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Script {
    /// Scans, alone and beside a hog.
    Scan(Scan),
    /// A known number of events of each kind, to check the counters.
    Count,
}

/// The settings of scans on one CPU.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Scan {
    pub who: ScannerKind,
    /// Number of workers or threads that scan.
    pub scanners: u32,
    /// Size of the table that is scanned, in MiB.
    pub megabytes: u32,
    /// Time after which a worker gives way.
    pub quantum: Duration,
    /// How long each phase lasts.
    pub phase: Duration,
}

/// The result of a script.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ScriptResult {
    Scanned(Scanned),
    Counted(Vec<super::exact::EventCounts>),
}

/// A part of a scan, with or without the hog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum HogPhase {
    /// The hog is not there.
    Alone,
    /// The hog wants the CPU all the time.
    Hog,
}

impl HogPhase {
    /// The phases of a scan, in order of time.
    pub const ALL: [Self; 3] = [Self::Alone, Self::Hog, Self::Alone];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alone => "alone",
            Self::Hog => "beside a hog",
        }
    }
}

/// What was observed in one scan.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Scanned {
    /// Phases in windows, in order of time.
    pub windows: Vec<WindowCounts>,
    /// Runs of workers, by when they ended; none of threads.
    pub runs: Vec<UserRun>,
    /// Runs that could not be read in time.
    pub lost_runs: u64,
    /// What workers waited for in all phases.
    pub waits: Vec<WaitTypeTotals>,
    /// Process and thread id of the thread that runs the workers, or of each scanning thread.
    pub threads: Vec<(u32, u32)>,
    /// Process and thread id of the hog.
    pub hog: (u32, u32),
}

/// The counts of both levels in a window.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct WindowCounts {
    /// Which phase it belongs to.
    pub phase: HogPhase,
    /// Begin of the window, in ns of `CLOCK_MONOTONIC`.
    pub from_ns: u64,
    /// End of the window, in ns of `CLOCK_MONOTONIC`.
    pub to_ns: u64,
    /// Growth of the counters in the window.
    pub growth: LevelCounts,
}

/// Counters of both levels, or what they grew by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelCounts {
    /// Switches of the scheduler to another worker.
    pub user: u64,
    /// Time that workers ran by the scheduler's counters, in ns.
    pub running_ns: u64,
    /// What the scheduler calls its delay, in ns.
    pub delay_ns: u64,
    /// Voluntary switches of the threads, as the kernel counted them.
    pub voluntary: u64,
    /// Involuntary switches of the threads, as the kernel counted them.
    pub involuntary: u64,
    /// CPU time that the kernel gave the threads, in ns.
    pub cpu_ns: u64,
}

impl LevelCounts {
    /// Growth of the counters since `earlier`.
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

    /// The counts of two windows together.
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
    /// Number of the task that the worker ran.
    pub task: u64,
    /// Switch-in, in ns of `CLOCK_MONOTONIC`.
    pub from_ns: u64,
    /// Switch-out, in ns of `CLOCK_MONOTONIC`.
    pub to_ns: u64,
}

impl UserRun {
    /// Length of the run, in ns.
    pub const fn length_ns(&self) -> u64 {
        self.to_ns - self.from_ns
    }
}

/// The waits of one type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitTypeTotals {
    pub wait_type: String,
    /// Number of waits that ended.
    pub count: u64,
    /// Length of all of them, in ns.
    pub wait_ns: u64,
    /// The part of it after the signal, in ns: waiting for the turn alone.
    pub signal_ns: u64,
}

impl WindowCounts {
    /// Length of the window in seconds.
    pub fn seconds(&self) -> f64 {
        self.to_ns.saturating_sub(self.from_ns) as f64 / 1e9
    }
}

impl Scanned {
    /// The windows of a phase.
    pub fn of(&self, phase: HogPhase) -> impl Iterator<Item = &WindowCounts> {
        self.windows
            .iter()
            .filter(move |window| window.phase == phase)
    }

    /// Lengths of the runs of a phase, in ns.
    pub fn runs_of(&self, phase: HogPhase) -> Vec<f64> {
        let runs = self.runs.iter().filter(|run| self.is_in(phase, run));
        runs.map(|run| run.length_ns() as f64).collect()
    }

    /// Whether a run lies in windows of one phase from beginning to end.
    fn is_in(&self, phase: HogPhase, run: &UserRun) -> bool {
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
