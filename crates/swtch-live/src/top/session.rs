//! The capture below `swtch top`, and what was read of it so far.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustc_hash::FxHashMap;
use swtch_capture::probe::threads_of_this_machine;
use swtch_capture::{
    BlockedTask, Capture, PlaceReading, Settings, SummaryReader, monotonic_ns, process_cpu_ns,
};
use swtch_core::cost::Billing;
use swtch_core::{CgroupId, Distribution, Nanos, TaskEventKind, TaskKey};
use swtch_host::hierarchy::CgroupTree;
use swtch_output::caller::Caller;
use swtch_output::message;
use swtch_output::text::escaped;
use swtch_report::prices;
use swtch_report::report::live::{
    CgroupLimits, FrameNames, LiveCounts, LiveTask, LiveTasks, LiveView, RateFrame,
};
use swtch_report::report::lost_names_in_words;
use swtch_store::TraceHost;
use swtch_wire::{RawKind, decode_tasks};

use super::TopRequest;
use super::cgroups::CgroupQuotas;
use super::stacks::{ThreadPlaces, WatchedStacks};
use super::user_level::LiveSchedulers;
use crate::counted_spans::CountedSpans;
use swtch_record::record::user_level::Finder;
use swtch_record::record::{AfterRecording, StopSignals, WorkAhead, facts};

/// A running capture, and the counts of it.
pub(crate) struct TopSession {
    capture: Capture,
    reader: SummaryReader,
    counts: LiveCounts,
    tasks: LiveTasks,
    cgroups: CgroupQuotas,
    schedulers: LiveSchedulers,
    /// `None` unless there is a page that shows it.
    watched: Option<WatchedStacks>,
    billing: Option<Billing>,
    spans: CountedSpans,
    /// The machine.
    pub host: TraceHost,
    /// Signals that ask to stop.
    pub signals: StopSignals,
    /// Number of groups that the kernel's table has room for.
    groups: u32,
    began: Instant,
    frame_began: Instant,
    cpu_at_frame: u64,
    lost_names_at_frame: u64,
    last_reading: Instant,
    /// The table is read at least this often.
    read_every: Duration,
}

/// A frame, and what it took to make it.
#[derive(Clone, Debug, Default)]
pub struct MadeFrame {
    /// The rates.
    pub frame: RateFrame,
    /// Time from the start of the capture to the end of the frame.
    pub at: Nanos,
    /// Share of one CPU that this process used since the last frame, in percent.
    pub own_cpu_pct: f64,
    /// The time that a switch costs in the kernel side's programs; `None` while it is not known.
    pub kernel_ns_per_switch: Option<f64>,
    /// Records of tasks that were lost since the last frame.
    pub lost_names: u64,
    /// Groups that the kernel's table has room for, and how many of them are in use.
    pub groups: (u32, usize),
    /// How long spans took that ended since the last frame, by their kind.
    pub spans: Vec<(String, Distribution)>,
    /// True if switches have a price.
    pub has_prices: bool,
    /// The places where the thread that is watched left its CPU.
    pub places: Option<ThreadPlaces>,
}

/// Threads whose waits are looked at while they last.
pub type ThreadChoice<'a> = &'a dyn Fn(TaskKey, Option<&LiveTask>) -> bool;

/// The table is read at least this often, so that places of tasks that ended become free, whatever
/// the interval is. [`TopSession::read_every`] sets another time.
const READ_EVERY: Duration = Duration::from_secs(1);

/// The time after which names of tasks are taken from the kernel again. A ring has room for 7,000 of them at least.
pub const TAKE_NAMES_EVERY: Duration = Duration::from_millis(200);

impl TopSession {
    /// Attaches the programs and gives up the rights to do so.
    ///
    /// # Errors
    /// When the capture cannot start, or prices that were named cannot be read.
    pub fn start(request: &TopRequest) -> Result<Self> {
        let arch = facts::arch()?;
        let caller = Caller::of_sudo()?;
        let billing = billing(request)?;
        let signals = StopSignals::catch()?;
        let groups = request.groups.unwrap_or_else(groups_for_this_machine);
        let settings = Settings {
            summary: Some(groups),
            watches_stacks: request.watches_stacks(),
            slots_per_cpu: 1,
            ..request.capture.settings(None)?
        };
        // It inherits a right that is given up below.
        let finder = Finder::start().context("starting to look for user-mode schedulers")?;
        let mut spans = CountedSpans::attach(&request.spans, &settings)?;
        let mut capture = Capture::start(&settings, arch)?;
        spans.begin();
        capture.tell_futexes(request.begins_with_locks());
        let watched = request.watches_stacks().then(WatchedStacks::none);
        let ahead = WorkAhead {
            caller: caller.as_ref(),
            command: None,
            names_functions: request.stacks,
            afterwards: AfterRecording::Tells,
        };
        ahead.give_up_rights(|| Ok(()))?;
        let now = Instant::now();
        let cgroups = CgroupQuotas::of(CgroupTree::of(capture.naming()));
        Ok(Self {
            capture,
            reader: SummaryReader::default(),
            counts: LiveCounts::new(arch),
            tasks: LiveTasks::default(),
            cgroups,
            schedulers: LiveSchedulers::new(finder),
            watched,
            billing,
            spans,
            host: facts::host(),
            signals,
            groups,
            began: now,
            frame_began: now,
            cpu_at_frame: process_cpu_ns(),
            lost_names_at_frame: 0,
            last_reading: now,
            read_every: READ_EVERY,
        })
    }

    /// Does what is due between two frames: takes names and spans, and reads the table if that was long ago.
    ///
    /// # Errors
    /// When spans cannot be read.
    pub fn keep_up(&mut self) -> Result<()> {
        if self.last_reading.elapsed() >= self.read_every {
            self.read();
        }
        self.take_names();
        self.schedulers.look();
        self.spans.take()
    }

    /// Reads the table at least this often from now on.
    pub const fn read_every(&mut self, time: Duration) {
        self.read_every = time;
    }

    /// Returns true if all processes that were asked for have ended.
    pub fn targets_are_gone(&self) -> bool {
        self.capture.targets_are_gone()
    }

    /// The time until the next frame is due.
    pub fn until_frame(&self, interval: Duration) -> Duration {
        (self.frame_began + interval).saturating_duration_since(Instant::now())
    }

    /// Takes the stacks of this thread from now on, and of no other.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn watch(&mut self, task: Option<TaskKey>) -> Result<()> {
        match &mut self.watched {
            Some(watched) => watched.watch(&mut self.capture, task),
            None => Ok(()),
        }
    }

    /// Returns what is known of the thread that is watched. `wait` is the one that it is in.
    fn places(&mut self, wait: Option<&BlockedTask>) -> Result<Option<ThreadPlaces>> {
        match &mut self.watched {
            Some(watched) => watched.places(&self.capture, &self.counts, &self.tasks, wait),
            None => Ok(None),
        }
    }

    /// Ends a frame and begins the next one. Locks are told apart from the frame on that has their view. Of
    /// the threads that are looked at, those that are blocked have rows, whether they switched or not.
    /// Looks at the quotas of the cgroups that have rows.
    ///
    /// # Errors
    /// When the kernel does not tell the stacks of the thread that is watched.
    pub fn frame(
        &mut self,
        views: &[LiveView],
        looked_at: Option<ThreadChoice<'_>>,
    ) -> Result<MadeFrame> {
        let made = self.frame_without_quotas(views, looked_at)?;
        self.cgroups.look_at(made.frame.rows(LiveView::Cgroup));
        Ok(made)
    }

    /// As [`Self::frame`], without a look at quotas.
    ///
    /// # Errors
    /// As [`Self::frame`].
    pub fn frame_without_quotas(
        &mut self,
        views: &[LiveView],
        looked_at: Option<ThreadChoice<'_>>,
    ) -> Result<MadeFrame> {
        self.capture.tell_futexes(views.contains(&LiveView::Lock));
        self.read();
        self.spans.take()?;
        let end = self.last_reading;
        // What a task is called is said before its first switch is counted.
        self.take_names();
        let interval = length(end - self.frame_began);
        let mut frame = RateFrame::of(
            &self.counts,
            &self.tasks,
            self.billing.as_ref(),
            views,
            interval,
        );
        let watched_wait = looked_at.and_then(|is| self.add_open_waits(&mut frame, is));
        let places = self.places(watched_wait.as_ref())?;
        self.counts.end_frame();
        self.tasks.end_frame();
        self.frame_began = end;
        self.schedulers.end_frame();
        let cpu = process_cpu_ns() + self.schedulers.cpu_time().as_ns();
        let used = cpu.saturating_sub(self.cpu_at_frame);
        self.cpu_at_frame = cpu;
        let lost_names = self.lost_names();
        let lost_before = std::mem::replace(&mut self.lost_names_at_frame, lost_names);
        let kernel_cost = self.capture.kernel_cost().ok().flatten();
        Ok(MadeFrame {
            lost_names: lost_names - lost_before,
            own_cpu_pct: frame.share_pct(used as f64),
            at: length(end - self.began),
            kernel_ns_per_switch: kernel_cost.map(|cost| cost.ns_per_switch),
            groups: (self.groups, self.reader.in_use()),
            spans: self.spans.take_counted(),
            has_prices: self.has_prices(),
            places,
            frame,
        })
    }

    /// Returns what rows are named by.
    pub fn names(&self) -> FrameNames<'_> {
        FrameNames {
            tasks: &self.tasks,
            cgroups: self.cgroups.limits(),
            user_level: self.schedulers.rates(),
        }
    }

    /// Returns true if switches have a price.
    pub const fn has_prices(&self) -> bool {
        self.billing.is_some()
    }

    /// The hierarchy in which cgroups have their names; `None` where there is none.
    pub const fn cgroup_tree(&self) -> Option<&CgroupTree> {
        self.cgroups.tree()
    }

    /// Number of task records that were lost: some threads have no name, or an old one.
    pub fn lost_names(&self) -> u64 {
        self.capture.counters().lost_task_records
    }

    /// Says what is missing of the frames, once nothing else is written on the terminal.
    pub fn tell_missing(&self) {
        if let Some(lost) = lost_names_in_words(self.lost_names()) {
            message!("swtch: {lost}");
        }
        self.schedulers.tell_refused();
        self.spans.tell_missing();
    }

    /// Hooks that this kernel lacks, or that were left out: some reasons are inferred.
    pub fn absent_hooks(&self) -> Vec<String> {
        let missing = self.capture.missing_hooks().iter();
        missing
            .chain(self.capture.left_out_hooks())
            .cloned()
            .collect()
    }

    fn read(&mut self) {
        self.last_reading = Instant::now();
        let counts = &mut self.counts;
        self.reader
            .read(&mut self.capture, |place, reading| match reading {
                PlaceReading::Grown(group, totals) => counts.meet(place, group, totals),
                PlaceReading::Freed => counts.free(place),
            });
        self.counts.meet_cpus(self.capture.cpu_counters());
    }

    /// Returns the wait of the thread whose stacks are taken, if it is in one.
    fn add_open_waits(
        &self,
        frame: &mut RateFrame,
        is_looked_at: ThreadChoice<'_>,
    ) -> Option<BlockedTask> {
        let now = monotonic_ns();
        let mut of_watched = None;
        let waits = self.capture.blocked_tasks().inspect(|wait| {
            let watched = self.watched.as_ref();
            if watched.is_some_and(|watched| watched.is_watched(wait)) {
                of_watched = Some(*wait);
            }
        });
        let waits = waits.filter(|wait| {
            let task = wait.group.task;
            is_looked_at(task, self.tasks.get(task))
        });
        let waits = waits.map(|wait| {
            let lasts = now.saturating_sub(wait.since.as_ns());
            (wait.group, Nanos::from_ns(lasts))
        });
        frame.add_open_waits(&self.counts, &self.tasks, waits);
        of_watched
    }

    fn take_names(&mut self) {
        let (tasks, reader) = (&mut self.tasks, &mut self.reader);
        let schedulers = &mut self.schedulers;
        self.capture.take(|raw| {
            if raw.kind != RawKind::Tasks {
                return;
            }
            for event in decode_tasks(raw.bytes) {
                match (event.kind, event.in_scope) {
                    (TaskEventKind::Exit, true) => reader.note_end_of_counted(event.task),
                    (TaskEventKind::Exit, false) => reader.note_end(event.task),
                    _ => {}
                }
                tasks.meet(&event);
                schedulers.meet(&event);
            }
        });
    }
}

/// Prices that were named must be there; saved ones may be.
fn billing(request: &TopRequest) -> Result<Option<Billing>> {
    if let Some(path) = &request.prices {
        return Ok(Some(Billing::new(&prices::chosen(Some(path))?)));
    }
    match prices::saved() {
        Ok(list) => Ok(list.as_ref().map(Billing::new)),
        Err(error) => {
            let why = format!("{error:#}");
            message!("swtch: no switch has a price: {}", escaped(&why));
            Ok(None)
        }
    }
}

/// Room for the groups of the threads that there are now, and more. A thread has two or three groups,
/// and one for each that takes the CPU from it.
fn groups_for_this_machine() -> u32 {
    const LEAST: u32 = 16 << 10;
    const MOST: u32 = 1 << 20;
    let threads = threads_of_this_machine().unwrap_or(0);
    threads.saturating_mul(8).clamp(LEAST, MOST)
}

fn length(time: Duration) -> Nanos {
    Nanos::from_ns(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// The limits of cgroups, for the names of a frame.
pub type LimitsById = FxHashMap<CgroupId, CgroupLimits>;
