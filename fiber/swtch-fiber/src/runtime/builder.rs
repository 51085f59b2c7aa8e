//! The settings of a runtime, and the checks that refuse bad ones.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::Runtime;
use crate::affinity;
use crate::error::Error;
use crate::helper_pool::{self, HelperPool};
use crate::page::SCHEDULERS;
use crate::scheduler::driver::Io;
use crate::scheduler::{GroupSettings, Mode, SchedulerGroup};
use crate::stack::{DEFAULT_STACK_SIZE, LARGEST_STACK_SIZE, SMALLEST_STACK_SIZE, StackPool};
use crate::stall::{Deadlock, ProgressWatch, Reporter, Reporting, Stall};

/// Default quantum, that of SQL Server.
const QUANTUM: Duration = Duration::from_millis(4);

/// Smallest stack of a worker's thread, bytes: std and a panic need this much.
const LEAST_THREAD_STACK: usize = 128 << 10;

/// Settings of a runtime. Defaults: fiber mode, a scheduler per CPU, quantum 4 ms, accounting on.
#[derive(Clone, Debug)]
pub struct Builder {
    schedulers: Option<usize>,
    pinned: bool,
    mode: Mode,
    quantum: Duration,
    accounting: bool,
    stack_size: usize,
    workers: usize,
    helpers: usize,
    io: Io,
    name: String,
    stall_threshold: Option<Duration>,
    reporter: Reporter,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            schedulers: None,
            pinned: false,
            mode: Mode::default(),
            quantum: QUANTUM,
            accounting: true,
            stack_size: DEFAULT_STACK_SIZE,
            workers: 1 << 17,
            helpers: helper_pool::MOST,
            io: Io::Auto,
            name: "swtch".into(),
            stall_threshold: None,
            reporter: Reporter::default(),
        }
    }
}

impl Builder {
    /// Number of schedulers; by default the number of CPUs that this process may use, at most 256.
    #[must_use]
    pub fn schedulers(mut self, schedulers: usize) -> Self {
        self.schedulers = Some(schedulers);
        self
    }

    /// Binds each scheduler's thread to a CPU of its own, as long as there are enough CPUs. Off by
    /// default: the kernel then places the threads.
    #[must_use]
    pub fn pinned(mut self, pinned: bool) -> Self {
        self.pinned = pinned;
        self
    }

    /// Sets how workers run; [`Mode::Fiber`] by default.
    #[must_use]
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets how long a worker may run before [`check_quantum`](crate::check_quantum) yields; 4 ms by default.
    #[must_use]
    pub fn quantum(mut self, quantum: Duration) -> Self {
        self.quantum = quantum;
        self
    }

    /// Sets whether times are measured, which takes one reading of the clock per switch. Switches are counted in any
    /// case; without times no events are recorded.
    #[must_use]
    pub fn accounting(mut self, accounting: bool) -> Self {
        self.accounting = accounting;
        self
    }

    /// Bytes of each worker's stack, 64 KiB by default; in thread mode at least 128 KiB.
    #[must_use]
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = bytes;
        self
    }

    /// Limit of workers per scheduler, 131,072 by default. Further tasks wait for one.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Limit of helper threads for [`preemptive`](crate::preemptive) sections of fiber mode, 512 by
    /// default. Further sections wait for a free helper, and sections that wait for each other need
    /// one each. When all helpers are busy for long while sections wait, this is reported like a
    /// deadlock.
    #[must_use]
    pub fn helpers(mut self, helpers: usize) -> Self {
        self.helpers = helpers;
        self
    }

    /// Sets how sockets and files are driven; [`Io::Auto`] by default.
    #[must_use]
    pub fn io(mut self, io: Io) -> Self {
        self.io = io;
        self
    }

    /// Prefix of the names of its threads: `NAME-s0`. The default is `swtch`.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// The time without progress of a scheduler after which a stall is reported: by default 25 ms,
    /// or four quanta if that is more. [`Duration::ZERO`] switches this off, and with it all other
    /// checks (deadlocks, signal handlers that would run on workers' stacks).
    #[must_use]
    pub fn stall_threshold(mut self, threshold: Duration) -> Self {
        self.stall_threshold = Some(threshold);
        self
    }

    /// Called for each stall, at most five times a minute, on a thread of its own. By default
    /// stalls are written to standard error.
    #[must_use]
    pub fn on_stall(mut self, on_stall: impl Fn(&Stall) + Send + Sync + 'static) -> Self {
        self.reporter = self.reporter.with_on_stall(Arc::new(on_stall));
        self
    }

    /// Called once when workers wait for each other in a cycle, or when all wait and nothing is
    /// left that could wake them: within some seconds, at most five times a minute, on a thread of
    /// its own. By default deadlocks are written to standard error. Not looked for when stalls are
    /// not.
    ///
    /// A wait with a deadline is not part of a cycle. At most four readers of a read-write lock, or
    /// tasks of a scope, are tracked.
    #[must_use]
    pub fn on_deadlock(mut self, on_deadlock: impl Fn(&Deadlock) + Send + Sync + 'static) -> Self {
        self.reporter = self.reporter.with_on_deadlock(Arc::new(on_deadlock));
        self
    }

    /// Starts the threads of the runtime.
    ///
    /// # Errors
    /// [`Error::Setting`] for a setting that is out of range; otherwise what the kernel refused.
    pub fn build(self) -> Result<Runtime, Error> {
        let schedulers = self.check()?;
        let reporting = self.reporting();
        let stacks = self.stacks()?;
        let cpus = self.pinned.then(affinity::allowed_cpus).transpose();
        let cpus = cpus.map_err(|source| Error::Page {
            doing: "asking for the CPUs",
            source,
        })?;
        let (io, io_driver) = self.io.choose(self.mode)?;
        let helpers = Arc::new(HelperPool::new(&self.name, self.helpers));
        let settings = GroupSettings {
            name: self.name,
            mode: self.mode,
            accounting: self.accounting,
            quantum: self.quantum,
            stacks,
            thread_stack_size: self.stack_size.max(LEAST_THREAD_STACK),
            workers_per_scheduler: self.workers,
            io,
            io_driver,
        };
        let group = SchedulerGroup::new(settings, helpers);
        Runtime::start(group, reporting, cpus.as_deref(), schedulers)
    }

    /// The threshold of stalls and the reporter; `None` when stalls are not looked for.
    fn reporting(&self) -> Option<Reporting> {
        let default = ProgressWatch::DEFAULT_THRESHOLD.max(self.quantum.saturating_mul(4));
        let threshold = self.stall_threshold.unwrap_or(default);
        (!threshold.is_zero()).then(|| Reporting {
            threshold,
            reporter: self.reporter.clone(),
        })
    }

    /// The pool of workers' stacks; `None` in thread mode, where threads bring their own.
    fn stacks(&self) -> Result<Option<&'static StackPool>, Error> {
        let pool = || StackPool::of_size(self.stack_size);
        Ok((self.mode == Mode::Fiber).then(pool).transpose()?)
    }

    /// The number of schedulers, if all settings are valid.
    fn check(&self) -> Result<u32, Error> {
        let refuse = |setting, value: String, why| {
            Err(Error::Setting {
                setting,
                value,
                why,
            })
        };
        let schedulers = match self.schedulers {
            Some(schedulers) => schedulers,
            None => thread::available_parallelism()
                .map_or(1, usize::from)
                .min(SCHEDULERS as usize),
        };
        if schedulers == 0 {
            return refuse(
                "schedulers",
                "0".into(),
                "at least one is needed to run anything",
            );
        }
        if schedulers > SCHEDULERS as usize {
            return refuse(
                "schedulers",
                schedulers.to_string(),
                "there can be 256 at most",
            );
        }
        if self.workers == 0 {
            return refuse(
                "workers",
                "0".into(),
                "at least one is needed to run anything",
            );
        }
        if self.helpers == 0 {
            return refuse(
                "helpers",
                "0".into(),
                "at least one is needed for preemptive sections",
            );
        }
        if self.quantum < Duration::from_micros(100) {
            let value = format!("{:?}", self.quantum);
            return refuse(
                "quantum",
                value,
                "at least 100 µs: the monitor wakes once a quantum",
            );
        }
        if let Some(threshold) = self.stall_threshold
            && !threshold.is_zero()
            && threshold < self.quantum.saturating_mul(2)
        {
            let value = format!("{threshold:?}");
            return refuse(
                "stall_threshold",
                value,
                "at least two quanta: a run may take one",
            );
        }
        if self.stack_size < SMALLEST_STACK_SIZE {
            let value = format!("{} bytes", self.stack_size);
            return refuse(
                "stack_size",
                value,
                "a panic needs 32 KiB of stack to be reported",
            );
        }
        if self.stack_size > LARGEST_STACK_SIZE {
            let value = format!("{} bytes", self.stack_size);
            return refuse("stack_size", value, "too large: 1 GiB is the most");
        }
        Ok(u32::try_from(schedulers).expect("256 at most"))
    }
}
