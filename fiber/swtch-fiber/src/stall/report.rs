//! The report of a stall, the limit on reports, and the callbacks that receive them.

use std::collections::VecDeque;
use std::fmt;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use syscalls::Sysno;

use super::backtrace::Backtrace;
use super::deadlock::Deadlock;
use super::evidence::Call;
use super::verdict::{Numbers, StallVerdict};

/// Most reports in [`PERIOD`]: a program that stalls all the time is reported often enough by five.
const REPORTS: usize = 5;
const PERIOD: Duration = Duration::from_secs(60);

/// Most holders that are named in a report.
const HOLDERS: usize = 3;

/// A scheduler that made no progress, and the reason.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stall {
    /// Number of the scheduler in its runtime.
    pub scheduler: u32,
    /// The thread that holds the scheduler (`gettid`).
    pub tid: i32,
    /// The worker that runs; `None` when none does.
    pub offender: Option<StalledWorker>,
    /// The time without progress, so far.
    pub lasted: Duration,
    /// The reason for the stall.
    pub verdict: StallVerdict,
    /// The measurements that led to the verdict.
    pub numbers: Numbers,
    /// Call stack of the thread.
    pub backtrace: Backtrace,
    /// Workers that probably hold the `std` lock that the thread waits for.
    pub holders: Vec<LockHolder>,
    /// Stalls before this one that were not reported, because of the limit.
    pub unreported: u32,
}

/// The worker that runs during a stall.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StalledWorker {
    /// Number of the worker in the page.
    pub worker: u32,
    /// Id of the task that it runs.
    pub task: u64,
    /// Name of the task, or `#` and its id.
    pub name: String,
}

/// A worker that was probably switched out while it held a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    /// Number of the worker in the page.
    pub worker: u32,
    /// Name of its task, or `#` and the task's id.
    pub name: String,
}

impl fmt::Display for Stall {
    /// A block of text: the worker, how long, why, the measurements, advice, the backtrace.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scheduler, tid, .. } = self;
        let ms = self.lasted.as_secs_f64() * 1e3;
        let verdict = self.verdict;
        writeln!(
            f,
            "stall: scheduler {scheduler} (thread {tid}) without progress for {ms:.0} ms: {verdict}"
        )?;
        match &self.offender {
            Some(StalledWorker { worker, task, name }) => {
                let name = name.escape_debug();
                writeln!(f, "  worker {worker} runs task {task} \"{name}\"")?;
            }
            None => writeln!(f, "  no worker runs, though at least one is runnable")?,
        }
        writeln!(f, "  {}", self.numbers)?;
        self.call(f)?;
        self.holders(f)?;
        writeln!(f, "  {}", advice(self.verdict))?;
        writeln!(f, "  backtrace of thread {tid}:")?;
        write!(f, "{}", self.backtrace)?;
        match self.unreported {
            0 => Ok(()),
            n => writeln!(
                f,
                "  {n} stalls before were not reported (at most {REPORTS} a minute)"
            ),
        }
    }
}

impl Stall {
    /// Writes the system call that the thread is in, with its arguments.
    fn call(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Call::Inside {
            number, arguments, ..
        } = self.numbers.call
        else {
            return Ok(());
        };
        let name = usize::try_from(number).ok().and_then(Sysno::new);
        match name {
            Some(name) => write!(f, "  in system call {name}(")?,
            None => write!(f, "  in system call number {number}(")?,
        }
        for (number, argument) in arguments.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{argument:#x}")?;
        }
        writeln!(f, ")")
    }

    /// Writes the workers that probably hold the lock.
    fn holders(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for LockHolder { worker, name } in self.holders.iter().take(HOLDERS) {
            let name = name.escape_debug();
            writeln!(
                f,
                "  worker {worker} (task \"{name}\") probably holds that std lock over a yield"
            )?;
        }
        Ok(())
    }
}

/// The advice for each verdict.
fn advice(verdict: StallVerdict) -> &'static str {
    match verdict {
        StallVerdict::UserLoop => "let the loop call check_quantum or yield_now",
        StallVerdict::InsideKernel | StallVerdict::BlockedInCall => {
            "wrap such calls in preemptive(…), or use this crate's I/O and locks"
        }
        StallVerdict::NotScheduled => {
            "others use the CPU: fewer schedulers than CPUs, a larger cgroup quota, or a higher priority"
        }
        StallVerdict::StarvedByPreemptive => {
            "preemptive work competes for the scheduler's CPU: less of it at a time, or on other CPUs"
        }
        StallVerdict::QueueStalled => "the scheduler missed a wakeup: please report this as a bug",
    }
}

/// The callback of the program for stalls.
pub type OnStall = Arc<dyn Fn(&Stall) + Send + Sync>;

/// The callback of the program for deadlocks.
pub type OnDeadlock = Arc<dyn Fn(&Deadlock) + Send + Sync>;

/// The settings by which the monitor reports stalls and deadlocks.
#[derive(Clone, Debug)]
pub struct Reporting {
    /// The time without progress after which a stall is reported.
    pub threshold: Duration,
    pub reporter: Reporter,
}

/// Passes reports on to the callbacks, up to a limit. Clones share the limit.
#[derive(Clone)]
pub struct Reporter {
    on_stall: OnStall,
    on_deadlock: OnDeadlock,
    limit: Arc<Mutex<ReportLimit>>,
    /// Limited separately: a deadlock is reported only once, and must not be lost among stalls.
    deadlocks: Arc<Mutex<ReportLimit>>,
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reporter").finish_non_exhaustive()
    }
}

impl Default for Reporter {
    /// Writes stalls and deadlocks to standard error.
    fn default() -> Self {
        Self {
            on_stall: Arc::new(|stall| write(&stall.to_string())),
            on_deadlock: Arc::new(|deadlock| write(&deadlock.to_string())),
            limit: Arc::default(),
            deadlocks: Arc::default(),
        }
    }
}

pub(crate) fn write(text: &str) {
    // If writing fails, there is no way left to report that.
    let _ = std::io::stderr().write_all(text.as_bytes());
}

impl Reporter {
    /// Calls `on_stall` with each stall, on a thread of its own.
    #[must_use]
    pub fn with_on_stall(mut self, on_stall: OnStall) -> Self {
        self.on_stall = on_stall;
        self
    }

    /// Calls `on_deadlock` with each deadlock, on a thread of its own.
    #[must_use]
    pub fn with_on_deadlock(mut self, on_deadlock: OnDeadlock) -> Self {
        self.on_deadlock = on_deadlock;
        self
    }

    /// Reports a deadlock, unless the limit is reached. Returns whether it did.
    pub fn report_deadlock(&self, deadlock: Deadlock, now: Instant) -> bool {
        let mut limit = self
            .deadlocks
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if limit.pass(now).is_none() {
            return false;
        }
        drop(limit);
        let thread = std::thread::Builder::new().name("swtch-stall".into());
        let on_deadlock = Arc::clone(&self.on_deadlock);
        thread.spawn(move || on_deadlock(&deadlock)).is_ok()
    }

    /// Reports a stall, unless the limit is reached. Returns whether it did.
    pub fn report(&self, mut stall: Stall, now: Instant) -> bool {
        let mut limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(unreported) = limit.pass(now) else {
            return false;
        };
        drop(limit);
        stall.unreported = unreported;
        let on_stall = Arc::clone(&self.on_stall);
        let thread = std::thread::Builder::new().name("swtch-stall".into());
        // If no thread can be started, the report is lost like one above the limit.
        let started = thread.spawn(move || on_stall(&stall));
        if started.is_err() {
            let mut limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner);
            limit.unreported += unreported + 1;
        }
        started.is_ok()
    }
}

/// Counts recent reports, to limit them.
#[derive(Debug, Default)]
struct ReportLimit {
    reported: VecDeque<Instant>,
    unreported: u32,
}

impl ReportLimit {
    /// Returns the number of reports held back since the last one, if one more may go out now.
    fn pass(&mut self, now: Instant) -> Option<u32> {
        while let Some(first) = self.reported.front()
            && now.saturating_duration_since(*first) >= PERIOD
        {
            self.reported.pop_front();
        }
        if self.reported.len() >= REPORTS {
            self.unreported += 1;
            return None;
        }
        self.reported.push_back(now);
        Some(std::mem::take(&mut self.unreported))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    fn stall() -> Stall {
        Stall {
            scheduler: 2,
            tid: 4242,
            offender: Some(StalledWorker {
                worker: 3,
                task: 17,
                name: "scan\n".into(),
            }),
            lasted: Duration::from_millis(31),
            verdict: StallVerdict::BlockedInCall,
            numbers: Numbers {
                elapsed: Duration::from_millis(14),
                call: Call::Inside {
                    number: libc::SYS_futex,
                    arguments: [0x7f00, 0x80, 2, 0, 0, 0],
                    stack_pointer: 0,
                    pc: 0,
                },
                ..Numbers::default()
            },
            backtrace: Backtrace {
                addresses: vec![0x10],
                missing: Some("nobody asked"),
            },
            holders: vec![LockHolder {
                worker: 5,
                name: "writer".into(),
            }],
            unreported: 2,
        }
    }

    /// One block of text has everything that a person needs, and no name breaks a line.
    #[test]
    fn a_report_says_who_why_and_what_helps() {
        let text = stall().to_string();
        assert_eq!(
            text,
            "stall: scheduler 2 (thread 4242) without progress for 31 ms: blocked in a system call
  worker 3 runs task 17 \"scan\\n\"
  in 14.0 ms, preemptive work 0.0 ms
  in system call futex(0x7f00, 0x80, 0x2, 0x0, 0x0, 0x0)
  worker 5 (task \"writer\") probably holds that std lock over a yield
  wrap such calls in preemptive(…), or use this crate's I/O and locks
  backtrace of thread 4242:
    0: 0x10
       (nobody asked)
  2 stalls before were not reported (at most 5 a minute)
"
        );
    }

    /// The sixth in a minute is held back, counted, and mentioned in the next report.
    #[test]
    fn five_a_minute_go_out() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut limit = ReportLimit::default();
        for second in 0..5 {
            assert_eq!(limit.pass(at(second)), Some(0));
        }
        assert_eq!(limit.pass(at(5)), None);
        assert_eq!(limit.pass(at(59)), None);
        assert_eq!(limit.pass(at(60)), Some(2));
        assert_eq!(limit.pass(at(60)), None);
        assert_eq!(limit.pass(at(61)), Some(1));
    }

    /// The monitor must not run the program's code, which could stall the monitor.
    #[test]
    fn the_callback_runs_on_another_thread() {
        let (send, receive) = mpsc::channel();
        let reporter = Reporter::default().with_on_stall(Arc::new(move |stall: &Stall| {
            send.send((std::thread::current().id(), stall.worker()))
                .unwrap();
        }));
        assert!(reporter.report(stall(), Instant::now()));
        let (thread, worker) = receive.recv().unwrap();
        assert_ne!(thread, std::thread::current().id());
        assert_eq!(worker, Some(3));
    }

    impl Stall {
        fn worker(&self) -> Option<u32> {
            self.offender.as_ref().map(|offender| offender.worker)
        }
    }
}
