//! The Firefox Profiler's processed profile, by the crate that samply uses.
//!
//! ```text
//! thread   samples   running ┬ stack of the wait ┬ running …     CPU time with each
//!          markers           ├──── futex ────────┤               reason, rule, waker …
//! ```
//!
//! A running thread has a sample "running", because the trace has no stacks of running code. Each
//! wait is a sample with its stack, as samply shows off-CPU time, and a marker with its evidence.
//!
//! CPU time is the time since the previous sample, in whole microseconds. The remainder goes to the
//! next sample, so that many short runs add up to their sum.
//!
//! The profiler holds a profile in memory, and so does this export: above [`MOST_WAITS`] it
//! refuses.

mod marker;

use std::io::Write;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, MarkerTiming, Profile,
    ReferenceTimestamp, SamplingInterval, StackHandle, ThreadHandle, Timestamp as ProfileTimestamp,
    WeightType,
};
use rustc_hash::FxHashMap;
use swtch_core::{Category, Level, Nanos, Reason, StackKind, Switch, TaskKey, Timestamp};
use swtch_output::text::{escaped, grouped};

use super::evidence::Vocabulary;
use super::life::{LastSwitchOuts, Moments, name_of_wait};
use super::rows::{ExportRows, ExportedParts};
use crate::report::{Names, Symbols};
use marker::WaitMarker;

/// This many waits took 222 MB of memory (1 M switches of `perf bench sched pipe`, no stacks).
const MOST_WAITS: u64 = 1_000_000;

/// Writes the profile.
///
/// # Errors
/// When the trace cannot be read or `out` not be written, and above the waits that the profiler can
/// hold.
pub fn write(rows: &mut ExportRows<'_>, out: &mut dyn Write) -> Result<()> {
    let mut builder = ProfileBuilder::new(rows)?;
    rows.scan(&mut |row, taken| match row.level {
        Level::Os if taken.switch || taken.wait => builder.take(row, taken),
        _ => Ok(()),
    })?;
    builder.close();
    serde_json::to_writer(out, &builder.profile).context("writing the profile")
}

struct ProfileBuilder {
    profile: Profile,
    start: Timestamp,
    names: Rc<Names>,
    symbols: Symbols,
    vocabulary: Vocabulary,
    last_switch_outs: LastSwitchOuts,
    threads: FxHashMap<TaskKey, ThreadHandle>,
    processes: FxHashMap<usize, fxprof_processed_profile::ProcessHandle>,
    categories: FxHashMap<Category, CategoryHandle>,
    running: CategoryHandle,
    waits: u64,
    /// CPU time that is not in a sample yet.
    owed: FxHashMap<TaskKey, Nanos>,
}

impl ProfileBuilder {
    fn new(rows: &ExportRows<'_>) -> Result<Self> {
        let meta = rows.meta();
        let since_start = meta.clock.monotonic_ns.saturating_sub(meta.start_ns);
        let began = meta.clock.realtime_ns.saturating_sub(since_start);
        let reference =
            ReferenceTimestamp::from_duration_since_unix_epoch(Duration::from_nanos(began));
        let scope = escaped(&meta.scope).into_owned();
        let product = format!("swtch: {scope}");
        // Every switch is a sample, so there is no interval; the profiler draws with this one.
        let interval = SamplingInterval::from_millis(1);
        let mut profile = Profile::new(&product, reference, interval);
        profile.set_symbolicated(true);
        let release = &meta.host.kernel_release;
        profile.set_os_name(&format!("Linux {}", escaped(release)));
        let running = profile.add_category("running", CategoryColor::Green);
        let categories = Category::ALL.iter().map(|category| {
            let handle = profile.add_category(category.as_str(), color(*category));
            (*category, handle)
        });
        Ok(Self {
            categories: categories.collect(),
            running,
            start: Timestamp::from_ns(meta.start_ns),
            names: rows.names(),
            symbols: rows.symbols()?,
            vocabulary: Vocabulary::new(rows)?,
            last_switch_outs: LastSwitchOuts::default(),
            threads: FxHashMap::default(),
            processes: FxHashMap::default(),
            waits: 0,
            owed: FxHashMap::default(),
            profile,
        })
    }

    fn take(&mut self, row: &Switch, taken: ExportedParts) -> Result<()> {
        let moments = Moments::of(row);
        let thread = self.thread(row.task, moments.first(row));
        let before = self.last_switch_outs.push(row);
        if let (true, Some(out), Some(start)) = (taken.wait, moments.wait_began(), moments.start) {
            self.waits += 1;
            if self.waits > MOST_WAITS {
                bail!(
                    "the Firefox Profiler holds a whole profile in memory, and these are more than {} \
                     waits: narrow it with --since, --until, --pid, --comm or --reason",
                    grouped(MOST_WAITS)
                );
            }
            let stack = self.stack_of_wait(thread, row);
            self.sample(row.task, out, stack);
            self.marker(thread, row, before.as_ref(), stack, (out, start));
        }
        if let (true, Some(start)) = (taken.switch, moments.start) {
            let stack = self.stack(thread, &["running".to_owned()], self.running);
            self.sample(row.task, start, stack);
        }
        if let (true, Some(ran)) = (taken.switch, row.ran) {
            *self.owed.entry(row.task).or_default() += ran;
        }
        Ok(())
    }

    /// Adds a last sample for each thread, at the end of its last run.
    fn close(&mut self) {
        let left: Vec<Switch> = self.last_switch_outs.all().into_iter().copied().collect();
        for row in left {
            let thread = self.thread(row.task, row.ts);
            let reason = row.rule.reason;
            let category = self.categories[&reason.category()];
            let stack = self.stack(thread, &[format!("[{reason}]")], category);
            self.sample(row.task, row.ts, stack);
        }
    }

    fn sample(&mut self, task: TaskKey, at: Timestamp, stack: Option<StackHandle>) {
        let thread = self.thread(task, at);
        let owed = self.owed.entry(task).or_default();
        let below = owed.as_ns() % 1_000;
        let cpu = CpuDelta::from_nanos(owed.as_ns() - below);
        *owed = Nanos::from_ns(below);
        self.profile.add_sample(thread, self.at(at), stack, cpu, 1);
    }

    fn marker(
        &mut self,
        thread: ThreadHandle,
        row: &Switch,
        before: Option<&Switch>,
        stack: Option<StackHandle>,
        (out, start): (Timestamp, Timestamp),
    ) {
        let reason = row.wait.reason.unwrap_or(Reason::Unknown);
        let category = self.categories[&reason.category()];
        let names = Rc::clone(&self.names);
        let label = |task| escaped(&names.label(names.index(task))).into_owned();
        let profile = &mut self.profile;
        let marker = WaitMarker::new(row, before, category, &self.vocabulary, &label, profile);
        let timing = MarkerTiming::Interval(self.at(out), self.at(start));
        let handle = self.profile.add_marker(thread, timing, marker);
        self.profile.set_marker_stack(thread, handle, stack);
    }

    fn stack_of_wait(&mut self, thread: ThreadHandle, row: &Switch) -> Option<StackHandle> {
        let category = row.wait.reason.unwrap_or(Reason::Unknown).category();
        let stacks = row.wait.stacks;
        let user = self.symbols.frames(StackKind::User, stacks.user);
        let kernel = self.symbols.frames(StackKind::Kernel, stacks.kernel);
        let mut frames: Vec<_> = user
            .into_iter()
            .rev()
            .chain(kernel.into_iter().rev())
            .collect();
        frames.push(format!("[{}]", name_of_wait(row)));
        self.stack(thread, &frames, self.categories[&category])
    }

    /// Interns a stack, given its outermost frame first.
    fn stack(
        &mut self,
        thread: ThreadHandle,
        frames: &[String],
        category: CategoryHandle,
    ) -> Option<StackHandle> {
        let labels: Vec<_> = frames
            .iter()
            .map(|frame| FrameInfo {
                frame: Frame::Label(self.profile.intern_string(&escaped(frame))),
                category_pair: category.into(),
                flags: FrameFlags::empty(),
            })
            .collect();
        self.profile.intern_stack_frames(thread, labels.into_iter())
    }

    fn thread(&mut self, task: TaskKey, at: Timestamp) -> ThreadHandle {
        if let Some(thread) = self.threads.get(&task) {
            return *thread;
        }
        let index = self.names.index(task);
        let names = Rc::clone(&self.names);
        let (thread, process) = (names.thread(index), names.process_of(index));
        let pid = process.pid.map_or(0, |pid| pid.get());
        let tid = thread.tid.map_or(0, |tid| tid.get());
        let at = self.at(at);
        let profile = &mut self.profile;
        let process = *self
            .processes
            .entry(thread.process)
            .or_insert_with(|| profile.add_process(&escaped(&process.comm), pid, at));
        let handle = profile.add_thread(process, tid, at, pid == tid);
        profile.set_thread_name(handle, &escaped(&thread.comm));
        profile.set_thread_show_markers_in_timeline(handle, true);
        profile.set_thread_samples_weight_type(handle, WeightType::Samples);
        self.threads.insert(task, handle);
        handle
    }

    /// Moments before the start of the trace become the start: the format has no earlier time.
    fn at(&self, at: Timestamp) -> ProfileTimestamp {
        let since = at.since(self.start).unwrap_or_default();
        ProfileTimestamp::from_nanos_since_reference(since.as_ns())
    }
}

/// The colours of the profiler's own categories that are nearest in meaning.
const fn color(category: Category) -> CategoryColor {
    match category {
        Category::Preemption => CategoryColor::Red,
        Category::Yield => CategoryColor::LightRed,
        Category::Synchronization => CategoryColor::Orange,
        Category::Io => CategoryColor::Blue,
        Category::Sleep => CategoryColor::LightBlue,
        Category::Memory => CategoryColor::Purple,
        Category::Wait => CategoryColor::Yellow,
        Category::Exit => CategoryColor::DarkGray,
        Category::Unknown => CategoryColor::Gray,
    }
}
