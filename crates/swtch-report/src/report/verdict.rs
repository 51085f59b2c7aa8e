//! Tells in plain words what a person should know first: where the time of threads was lost, to whom, and what could be
//! changed.
//!
//! The measure is lost time ([`LostTime`]): a cause is numbered if threads that could have worked lost at
//! least 3 % of their time to it, and causes stand in the order of that time. How often a program
//! switches is another question. It is answered after that, without numbers: by reasons that make 10 % of the
//! switches or of the blocked time; unless switching itself takes as much of the CPU ([`super::worth`]), or
//! nobody lost time. A reason that stands out and has no rule of its own gets a plain sentence. Advice
//! follows from a number that is shown with it, never from the name of a reason alone.
//!
//! - [`advice`]: what to do about each cause, and when not to.
//! - [`no_cpu`]: tasks that could run, and had no CPU.
//! - [`preempted`]: limits of CPU time, moves, and tasks that gave the CPU away.
//! - [`locks`]: threads that waited for each other.
//! - [`lock_stacks`]: threads that waited for locks of Java and Python, as stacks tell.
//! - [`serial`]: threads of which only one works at a time.
//! - [`details`]: what is counted for all of these.
//! - [`nothing`]: what is said where no time is lost.
//! - [`asleep`]: programs that mostly wait until a time they chose.
//! - [`blocked`]: tasks that blocked for anything else.
//! - [`used_up`]: what disks and limits of memory say of that.
//! - [`workers`]: goroutines, of which threads say nothing.
//! - [`who`]: the programs, threads, calls and wakers that a sentence names.

mod advice;
mod asleep;
mod blocked;
mod details;
mod left_runnable;
mod lock_stacks;
mod locks;
mod no_cpu;
mod nothing;
mod serial;
mod turns;
mod used_up;
mod who;
mod workers;

pub use advice::AdviceText;
pub use blocked::BlockedLoops;
pub use details::{Details, LongestWait, PartFacts, is_recorder};
use lock_stacks::StackLock;
pub use lock_stacks::StackLockTime;
pub use locks::TimeAtLocks;
pub use nothing::BusiestThread;
pub use serial::SerialWork;
pub use turns::TurnTime;

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use swtch_core::{Arch, Category, CgroupId, Distribution, LostTime, Nanos, Pid, Reason};
use swtch_output::sheet::percent;
use swtch_output::text::grouped;
use swtch_store::{DiskFacts, MemoryLimitFacts, QuotaFacts};

use super::group::Groups;
use super::names::Names;
use super::preemptor::Preemptors;
use super::programs::Programs;
use super::reason::ByReason;
use super::stack::Symbols;
use super::wait::{Object, Objects};
use super::workers::WorkerTimes;
use super::worth::Saving;
use advice::Advice;
use details::CpuLimit;
use swtch_core::Tally;
use who::{WAITED_IN, main_of};

/// From this share of the switches on, a reason stands out by number.
const OFTEN_PCT: f64 = 10.0;

/// Fewer switches than this are not "often", whatever their share.
const FEWEST_SWITCHES: u64 = 100;

/// From this share of the time in which there was work on, a cause is numbered.
const LOST_PCT: f64 = 3.0;

/// From this share of all blocked time on, a reason stands out by blocked time.
const LONG_PCT: f64 = 10.0;

/// A program that hardly has any work may lose much of that little, in moments that nobody notices: from this share of
/// the recording on it is.
const MUCH_PCT: f64 = 10.0;

/// Less than that is noticed where one wait lasts so long.
const NOTICED_PCT: f64 = 2.0;
const LONG_WAIT: Nanos = Nanos::from_ns(50_000_000);

/// Less time than this is not costly, whatever its share.
const LEAST_TIME: Nanos = Nanos::from_ns(1_000_000);

/// From this share on, one of several is called the main one.
const MOST_PCT: f64 = 50.0;

/// From this share of the switches on, unknown reasons are mentioned.
const UNKNOWN_PCT: f64 = 1.0;

/// The number of threads, calls or pairs that a finding names.
pub const NAMED: usize = 3;

/// If even the first has a smaller share, names would mislead, and only their number is given.
const SPREAD_PCT: f64 = 5.0;

/// The counts and facts of one trace from which the verdict is drawn.
#[derive(Debug)]
pub struct VerdictInput<'a> {
    pub reasons: &'a ByReason,
    pub processes: &'a Groups,
    pub threads: &'a Groups,
    pub calls: &'a Groups,
    /// The holders of the CPU during run-queue waits.
    pub preemptors: &'a Preemptors,
    /// The objects that tasks waited for.
    pub objects: &'a Objects,
    /// The counts that only the verdict needs, such as those of rules and of throttled cgroups.
    pub details: &'a Details,
    pub names: &'a Names,
    /// The program that each process belongs to.
    pub programs: &'a Programs,
    /// Functions of the stacks, where the recording has stacks.
    pub symbols: Option<&'a Symbols>,
    /// Architecture, for the names of system calls.
    pub arch: Option<Arch>,
    /// Paths of the cgroups, by id.
    pub cgroups: &'a FxHashMap<CgroupId, String>,
    /// Number of CPUs of the machine.
    pub cpus: u32,
    /// The share of the time for which they were busy, with whatever; `None` if it is not known.
    pub busy_pct: Option<f64>,
    /// Quotas of CPU time of these cgroups and of those above them, where the recording tells them.
    pub quotas: &'a [QuotaFacts],
    /// The facts about the machine's disks.
    pub disks: &'a [DiskFacts],
    /// Limits of memory that were reached.
    pub memory_limits: &'a [MemoryLimitFacts],
    /// The time of programs, by where it went.
    pub lost: LostTime,
    /// The part of it at locks, and what those did that had them.
    pub at_locks: TimeAtLocks,
    /// The time at locks that only stacks tell.
    pub stack_locks: StackLockTime,
    /// Threads of which one works at a time.
    pub serial: Option<SerialWork>,
    /// Event loops that block.
    pub loops: BlockedLoops,
    /// Time of event loops in the middle of a turn.
    pub turns: TurnTime,
    /// A thread that ran nearly all the time.
    pub busiest: Option<BusiestThread>,
    /// The time of goroutines.
    pub workers: &'a WorkerTimes,
    /// Length of the recording.
    pub wall: Nanos,
    /// Process id of the recorder.
    pub recorder: Option<Pid>,
}

/// The machine on which a trace was recorded.
#[derive(Clone, Copy, Debug)]
pub struct RecordedMachine<'a> {
    /// Number of its CPUs.
    pub cpus: u32,
    /// As in [`VerdictInput`].
    pub busy_pct: Option<f64>,
    /// The length of the recording.
    pub wall: Nanos,
    /// Process id of the recorder.
    pub recorder: Option<Pid>,
    /// As in [`VerdictInput`].
    pub quotas: &'a [QuotaFacts],
    /// As in [`VerdictInput`].
    pub disks: &'a [DiskFacts],
    /// As in [`VerdictInput`].
    pub memory_limits: &'a [MemoryLimitFacts],
}

/// The switches that a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// All switches for this reason.
    Reason(Reason),
    /// Switches into waits for this object.
    Object(Object),
    /// No switches: time that passed without one.
    Time,
}

/// The reason why a finding is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// Threads lost time to it that they could have worked.
    Lost,
    /// It happens often, or for long, and nothing says that it costs time.
    Frequent,
}

impl FindingKind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::Frequent => "frequent",
        }
    }
}

/// One cause that stands out.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// A stable name, such as `oversubscribed`.
    pub name: &'static str,
    /// The reason why it is told.
    pub kind: FindingKind,
    /// The reason that it is about.
    pub reason: Option<Reason>,
    /// The switches that it is about.
    pub subject: Subject,
    /// Number of switches that it explains.
    pub switches: u64,
    /// Time that threads lost by it; 0 unless [`FindingKind::Lost`].
    pub time: Nanos,
    /// Words for what was seen, with its numbers.
    pub seen: String,
    /// Lines on where it comes from, and on which tasks took the CPU.
    pub places: Vec<String>,
    /// Advice on what a person could change; `None` if the numbers suggest nothing.
    pub advice: Option<AdviceText>,
}

impl Finding {
    /// One about time, and about no reason or object.
    fn of_time(name: &'static str, (kind, time): (FindingKind, Nanos), seen: String) -> Self {
        Self {
            name,
            kind,
            reason: None,
            subject: Subject::Time,
            switches: 0,
            time,
            seen,
            places: Vec::new(),
            advice: None,
        }
    }

    /// Returns what a person could change.
    pub fn change(&self) -> Option<&str> {
        self.advice.as_ref().map(|advice| advice.change.as_str())
    }

    /// The finding as a JSON object, with the saving, and the longest wait for its reason.
    pub fn to_json(
        &self,
        number: Option<usize>,
        all: u64,
        lost: &LostTime,
        saving: Option<&Saving>,
        longest: Value,
    ) -> Value {
        json!({
            "name": self.name,
            "number": number,
            "kind": self.kind.as_str(),
            "reason": self.reason.map(Reason::as_str),
            "switches": self.switches,
            "share_pct": percent(self.switches, all),
            "time_ns": self.time.as_ns(),
            "time_share_pct": percent(self.time.as_ns(), lost.at_work().as_ns()),
            "seen": self.seen,
            "places": self.places,
            "advice": self.change(),
            "advice_unless": self.advice.as_ref().map(|advice| advice.unless),
            "worth": saving.map(Saving::to_json),
            "longest": longest,
        })
    }
}

/// The findings about all causes that stand out: those by which time was lost, the dearest first, and then
/// those that happen often.
pub fn findings(input: &VerdictInput<'_>) -> Vec<Finding> {
    let rules = [
        VerdictInput::no_cpu,
        VerdictInput::throttle,
        VerdictInput::deadline_budget,
        VerdictInput::real_time_limit,
        VerdictInput::migrate,
        VerdictInput::yields,
        VerdictInput::priority_inversion,
        VerdictInput::one_lock,
        VerdictInput::worker_locks,
        VerdictInput::worker_no_thread,
        VerdictInput::serialised,
        VerdictInput::parked,
        VerdictInput::tokens,
        VerdictInput::pipe,
        VerdictInput::blocked_loop,
        VerdictInput::blocked_turn,
        VerdictInput::no_room,
        VerdictInput::net,
        VerdictInput::ipc,
        VerdictInput::poll,
        VerdictInput::sleep,
        VerdictInput::io,
        VerdictInput::fault,
        VerdictInput::kernel_lock,
        VerdictInput::stopped,
        VerdictInput::child,
        VerdictInput::exit,
        VerdictInput::kernel_threads,
        VerdictInput::idle,
        VerdictInput::interrupts,
        VerdictInput::steal,
        VerdictInput::unknown,
    ];
    let total = input.reasons.total();
    let stack_locks = StackLock::ALL.iter();
    let stack_locks = stack_locks.filter_map(|lock| input.lock_of_stacks(*lock, &total));
    let findings = rules.iter().filter_map(|rule| rule(input, &total));
    let mut findings: Vec<_> = findings.chain(stack_locks).collect();
    let is_told = |reason| {
        let is_about = |finding: &Finding| finding.reason == Some(reason);
        findings.iter().any(is_about)
    };
    let untold: Vec<_> = Reason::ALL
        .iter()
        .filter(|reason| !is_told(**reason))
        .collect();
    findings.extend(
        untold
            .iter()
            .filter_map(|reason| input.plain(**reason, &total)),
    );
    findings.sort_by_key(|finding| {
        let is_lost = finding.kind == FindingKind::Lost;
        (!is_lost, Reverse(finding.time), Reverse(finding.switches))
    });
    findings
}

/// The sentence for a trace in which no rule finds anything.
pub fn nothing_stands_out() -> String {
    format!(
        "Nothing stands out: no reason makes {OFTEN_PCT} % of the switches or {LONG_PCT} % of the \
         blocked time."
    )
}

impl VerdictInput<'_> {
    fn unknown(&self, total: &Tally) -> Option<Finding> {
        let tally = self.of_programs(Reason::Unknown);
        percent(tally.switches, total.switches).filter(|share| *share >= UNKNOWN_PCT)?;
        let rules = self.details.rules_of(Reason::Unknown);
        let words = rules.iter().take(NAMED);
        let words =
            words.map(|(rule, count)| format!("{} {}: {}", grouped(*count), rule.name, rule.help));
        let mut places: Vec<String> = words.collect();
        places.extend(self.places(Reason::Unknown));
        let blocked = self.details.count_of("call_without_rule");
        let advice = percent(blocked, tally.switches).filter(|share| *share >= MOST_PCT);
        let advice = advice.map(|_| advice::STACKS.told());
        Some(Finding {
            name: "unknown",
            kind: FindingKind::Frequent,
            reason: Some(Reason::Unknown),
            subject: Subject::Reason(Reason::Unknown),
            switches: tally.switches,
            time: Nanos::ZERO,
            seen: format!("The reason is not known: {}.", self.switches(&tally, total)),
            places,
            advice,
        })
    }

    /// Kernel threads sleep until there is work for them, which costs nothing; those that block in
    /// the middle of their work wait uninterruptibly.
    fn kernel_threads(&self, total: &Tally) -> Option<Finding> {
        let mut sum = Tally::default();
        for tally in &self.details.kernel {
            sum.add(tally);
        }
        if !is_often(sum.switches, total) {
            return None;
        }
        let is_kernel = |place: &usize| self.names.process(*place).is_kernel;
        let mut programs = self.programs.ranked(self.processes, |tally| tally.switches);
        programs.retain(|program| program.places.iter().all(is_kernel));
        let named = programs.iter().map(|program| {
            let count = program.tally.switches;
            (
                format!("{} {}", program.words(), share(count, sum.switches)),
                count,
            )
        });
        Some(Finding {
            name: "kernel_threads",
            kind: FindingKind::Frequent,
            reason: None,
            subject: Subject::Time,
            switches: sum.switches,
            time: Nanos::ZERO,
            seen: format!(
                "Threads of the kernel itself: {}, on the CPU for {} in all. They sleep until there is work \
                 for them.",
                self.switches(&sum, total),
                sum.ran,
            ),
            places: main_of(named, sum.switches)
                .map(|words| format!("threads: {words}"))
                .into_iter()
                .collect(),
            advice: Some(advice::KERNEL_THREADS.told()),
        })
    }

    /// The finding for a reason that stands out and has no rule of its own.
    fn plain(&self, reason: Reason, total: &Tally) -> Option<Finding> {
        let one = self.reasons.of(reason);
        let tally = self.of_programs(reason);
        let is_preempted = reason.category() == Category::Preemption;
        if !is_often(tally.switches, total) && (is_preempted || !self.is_long(tally.blocked)) {
            return None;
        }
        let places = if is_preempted {
            self.preemption_places(reason)
        } else {
            // The function is what a screen with little room has to show.
            let mut places = self.places_and_wakers(reason);
            places.sort_by_key(|line| !line.starts_with(WAITED_IN));
            places
        };
        Some(Finding {
            name: "reason",
            kind: FindingKind::Frequent,
            reason: Some(reason),
            subject: Subject::Reason(reason),
            switches: tally.switches,
            time: Nanos::ZERO,
            seen: format!(
                "{}: {}, {} each (median).",
                capitalised(in_words(reason)),
                self.switches(&tally, total),
                typical(&one.lengths.off)
            ),
            places,
            advice: untold(reason).map(Advice::told),
        })
    }

    /// Returns how a cause is told by which so much time was lost, with the time that counts; `None` if neither the
    /// time nor the number of switches stands out. `longest` is the longest of these waits.
    fn weighed(
        &self,
        time: Nanos,
        longest: Nanos,
        switches: u64,
        total: &Tally,
    ) -> Option<(FindingKind, Nanos)> {
        let is_much = |least: f64, whole: Nanos| {
            percent(time.as_ns(), whole.as_ns()).is_none_or(|share| share >= least)
        };
        let noticed = if longest >= LONG_WAIT {
            NOTICED_PCT
        } else {
            MUCH_PCT
        };
        let is_lost = is_much(LOST_PCT, self.lost.at_work()) && is_much(noticed, self.wall);
        let decides = self.busiest.as_ref().is_some_and(BusiestThread::decides);
        if time >= LEAST_TIME && is_lost && !decides {
            return Some((FindingKind::Lost, time));
        }
        is_often(switches, total).then_some((FindingKind::Frequent, Nanos::ZERO))
    }

    /// The longest wait for one of these reasons.
    fn longest_of(&self, reasons: &[Reason]) -> Nanos {
        let longest = reasons
            .iter()
            .filter_map(|reason| self.details.longest(*reason));
        longest
            .map(|longest| longest.length)
            .max()
            .unwrap_or_default()
    }

    /// `1.20 s: 34.0 % of the time in which there was work`
    fn lost_words(&self, time: Nanos) -> String {
        let share = share(time.as_ns(), self.lost.at_work().as_ns());
        let whose = match self.lost.workers {
            Nanos::ZERO => "threads",
            _ => "threads and goroutines",
        };
        format!("{time}: {share} of the time in which its {whose} had work")
    }

    /// Returns true if this is a large part of the time that programs were blocked.
    fn is_long(&self, blocked: Nanos) -> bool {
        let all: Nanos = Reason::ALL
            .iter()
            .map(|reason| self.of_programs(*reason).blocked)
            .sum();
        let share = percent(blocked.as_ns(), all.as_ns());
        blocked >= LEAST_TIME && share.is_some_and(|share| share >= LONG_PCT)
    }
}

/// Returns advice on how to learn what an import or a recording without root does not tell of a reason.
const fn untold(reason: Reason) -> Option<&'static Advice> {
    match reason {
        Reason::Blocked => Some(&advice::RECORD_BLOCKED),
        Reason::Preempted => Some(&advice::RECORD_PREEMPTED),
        _ => None,
    }
}

/// Says in a few words why threads left the CPU.
pub const fn in_words(reason: Reason) -> &'static str {
    match reason {
        Reason::Slice => "time slice used up",
        Reason::Wakeup => "preempted by a woken thread",
        Reason::Class => "preempted by a real-time task",
        Reason::Throttle => "CPU quota or budget used up",
        Reason::Migrate => "moved to another CPU",
        Reason::Other => "preempted for a rare reason",
        Reason::Yield => "called sched_yield",
        Reason::Futex => "waited for another thread (lock)",
        Reason::Ipc => "waited for a semaphore or eventfd",
        Reason::Io => "waited for a file or disk",
        Reason::Pipe => "waited for a pipe",
        Reason::Net => "waited for a socket",
        Reason::Poll => "waited in epoll, poll or select",
        Reason::Sleep => "slept, or waited for a signal",
        Reason::Fault => "waited for memory",
        Reason::Child => "waited for a child process",
        Reason::Stop => "stopped (debugger, job control)",
        Reason::Exit => "ended",
        Reason::Unknown => "not known",
        Reason::Preemptive => "left its user-mode scheduler",
        Reason::Policy => "changed its own priority",
        Reason::Blocked => "blocked (not told on what)",
        Reason::Preempted => "preempted (not told why)",
        Reason::Lock => "waited for a lock of the kernel",
    }
}

fn capitalised(words: &str) -> String {
    let mut letters = words.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).collect()
}

fn is_often(switches: u64, total: &Tally) -> bool {
    let share = percent(switches, total.switches);
    switches >= FEWEST_SWITCHES && share.is_some_and(|share| share >= OFTEN_PCT)
}

pub fn share(part: u64, whole: u64) -> String {
    percent(part, whole).map_or_else(|| "-".to_owned(), |share| format!("{share:.1} %"))
}

fn typical(lengths: &Distribution) -> String {
    let median = lengths.percentile(50.0);
    median.map_or_else(|| "unknown length".to_owned(), |median| median.to_string())
}
