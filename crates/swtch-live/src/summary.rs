//! `swtch record --summary`: switches are counted in the kernel, and told at the end.
//!
//! ```text
//! hold the command ─▶ attach ─▶ release it ─▶ give up rights ─▶ wait, collecting names of tasks
//!     ┌─────────────────────────────────────────────────────────────────┘
//!     └▶ detach ─▶ read the counts ─▶ rules ─▶ tables on stdout
//! ```
//!
//! While it records, this process reads only who started, ended or changed its name. There is no
//! trace, no guard (a recorder that is late loses no switch) and no look at user-mode schedulers.

use std::io::stdout;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustc_hash::{FxHashMap, FxHashSet};
use swtch_capture::{Capture, Counters, Settings, SpanChoice, require_proc};
use swtch_core::{GroupTotals, Pid, SwitchGroup, TaskEvent, TaskKey};
use swtch_output::answer;
use swtch_output::caller::Caller;
use swtch_output::exit_code::FAILED;
use swtch_output::format::Format;
use swtch_output::message;
use swtch_output::progress::ProgressLine;
use swtch_output::text::{counted, escaped};
use swtch_record::record::{
    AfterRecording, CaptureRequest, EndOfRecording, PROGRESS_EVERY, RecordingSession, StopSignals,
    WorkAhead, end_with, facts,
};
use swtch_report::report::{KernelSummary, is_failure, why_empty};
use swtch_store::{Meta, RecordingState};
use swtch_wire::{RawKind, decode_tasks};

use crate::counted_spans::CountedSpans;

/// The settings of one summary.
#[derive(Clone, Debug)]
pub struct SummaryRequest {
    /// Whose switches.
    pub capture: CaptureRequest,
    /// Stop after this time; `None` sets no limit.
    pub duration: Option<Duration>,
    /// The process that started this one, if the counting must end with it.
    pub with_parent: Option<Pid>,
    /// The format on stdout.
    pub format: Format,
    /// Space in the kernel, in groups of switches.
    pub groups: u32,
    /// Spans by which the counts are divided.
    pub spans: Vec<SpanChoice>,
}

/// The pause between two readings of the names of tasks. A ring has room for 7,000 of them, so that a CPU would have to
/// start and end 70,000 threads a second to lose one.
const PAUSE: Duration = Duration::from_millis(50);

/// Counts switches until the command ends, the time is up or a signal comes; writes the answer and
/// returns the exit code: the command's if that is not 0.
///
/// # Errors
/// When the capture cannot start, the counts cannot be read, or stdout cannot be written.
pub fn run(request: &SummaryRequest) -> Result<u8> {
    require_proc()?;
    let arch = facts::arch()?;
    let caller = Caller::of_sudo()?;
    let mut command = request.capture.target.hold()?;
    let signals = StopSignals::catch()?;
    let settings = Settings {
        summary: Some(request.groups),
        slots_per_cpu: 1,
        ..request.capture.settings(command.as_ref())?
    };
    let mut spans = CountedSpans::attach(&request.spans, &settings)?;
    let mut capture = Capture::start(&settings, arch)?;
    spans.begin();
    let mut meta = Meta {
        hooks: facts::hooks(&capture),
        ..facts::at_start(&request.capture.target, capture.started())
    };
    if let Some(command) = &mut command {
        command.release()?;
    }
    let ahead = WorkAhead {
        caller: caller.as_ref(),
        command: command.as_ref(),
        names_functions: false,
        afterwards: AfterRecording::Tells,
    };
    let confined = ahead
        .give_up_rights(|| Ok(()))
        .and_then(|()| request.with_parent.map_or(Ok(()), end_with));
    let session = RecordingSession {
        limit: request.duration,
        signals,
        command,
    };
    let mut tasks = NamedTasks::default();
    let mut ended = EndedThreads::new(request.groups);
    let ending = confined.and_then(|()| {
        let parts = (&mut capture, &mut spans, &mut tasks, &mut ended);
        wait(&session, parts)
    });
    spans.end();
    let _runnable = facts::at_end(&mut meta, &mut capture);
    capture.detach();
    spans.finish()?;
    let mut groups = capture
        .take_summary()
        .context("reading what the kernel counted")?;
    groups.extend(ended.groups.drain());
    tasks.take_from(&mut capture);
    complete(&mut meta, &capture, &groups);
    let exit_code = session.command_exit_code(ending.as_ref().err());
    ending?;
    let in_scope = meta.counts.stored;
    tell_doubts(&meta, capture.counters(), request.groups, in_scope);
    ended.tell();
    let is_failed = is_failure(&meta, in_scope);
    let told = KernelSummary::new(meta, arch, &groups, &tasks.in_order());
    let told = told.divided_by(spans.take_counted());
    answer::write(&told, request.format, &mut stdout())?;
    let own = if is_failed { FAILED } else { 0 };
    Ok(exit_code.filter(|code| *code != 0).unwrap_or(own))
}

/// Reads names until the command has ended, the time is up, or a signal asks to stop.
fn wait(
    session: &RecordingSession,
    (capture, spans, tasks, ended): (
        &mut Capture,
        &mut CountedSpans,
        &mut NamedTasks,
        &mut EndedThreads,
    ),
) -> Result<()> {
    let start = Instant::now();
    let mut told = start;
    let mut end = EndOfRecording::new(start);
    let progress = ProgressLine::on_stderr();
    loop {
        tasks.take_from(capture);
        ended.make_room(capture, tasks);
        spans.take()?;
        let now = Instant::now();
        if now - told >= PROGRESS_EVERY {
            told = now;
            progress.show(|| tell_progress(now - start, capture.counters()));
        }
        if session.is_over(&mut end, now, || capture.targets_are_gone())? {
            progress.clear();
            return Ok(());
        }
        session.sleep(PAUSE.min(session.time_left(&end, now)))?;
    }
}

fn tell_progress(elapsed: Duration, counters: Counters) -> String {
    format!(
        "swtch: {} s, {} switches counted, {} lost",
        elapsed.as_secs(),
        counters.stored,
        counters.lost,
    )
}

/// Adds the counts. What is in no group is lost: also the last switch-out of a task that was about
/// to end when the recording did.
fn complete(meta: &mut Meta, capture: &Capture, groups: &[(SwitchGroup, GroupTotals)]) {
    facts::complete_counts(meta, capture);
    meta.state = RecordingState::Finished;
    let counts = &mut meta.counts;
    counts.stored = groups
        .iter()
        .map(|(_, totals)| totals.counts.switches)
        .sum();
    let in_scope = counts.switches_seen.saturating_sub(counts.filtered);
    counts.lost = in_scope.saturating_sub(counts.stored);
}

/// Reports what may be missing.
fn tell_doubts(meta: &Meta, counters: Counters, groups: u32, in_scope: u64) {
    let beyond = counters.lost.saturating_sub(counters.summary_unnamed);
    if beyond > 0 {
        message!(
            "swtch: the {groups} groups that a summary counts were all taken: {} lost; \
             --groups N makes room for more",
            counted(beyond, "switch")
        );
    }
    if let Some(why) = why_empty(meta, in_scope) {
        message!("swtch: {}", escaped(&why));
    }
}

/// The names of tasks, as far as they are known.
#[derive(Debug, Default)]
struct NamedTasks {
    events: Vec<TaskEvent>,
    /// Place in `events` of the newest event of each task.
    last: FxHashMap<TaskKey, usize>,
}

impl NamedTasks {
    fn take_from(&mut self, capture: &mut Capture) {
        capture.take(|raw| {
            if raw.kind == RawKind::Tasks {
                decode_tasks(raw.bytes).for_each(|event| self.meet(event));
            }
        });
    }

    /// Keeps an event that says something new: a task that ends keeps its name.
    fn meet(&mut self, event: TaskEvent) {
        let last = self.last.get(&event.task).map(|place| &self.events[*place]);
        let is_known = last.is_some_and(|last| {
            (last.tid, last.pid, &last.comm) == (event.tid, event.pid, &event.comm)
        });
        if !is_known {
            // They come CPU by CPU: where a task moved, an old name may come after the new one.
            if last.is_none_or(|last| last.ts <= event.ts) {
                self.last.insert(event.task, self.events.len());
            }
            self.events.push(event);
        }
    }

    /// The last name of a task, if it is known.
    fn name_of(&self, task: TaskKey) -> Option<&[u8]> {
        let place = self.last.get(&task)?;
        Some(&self.events[*place].comm)
    }

    /// The events in order of time: they came CPU by CPU.
    fn in_order(mut self) -> Vec<TaskEvent> {
        self.events.sort_by_key(|event| event.ts);
        self.events
    }
}

/// Groups of threads that have ended, taken out of the kernel where its room was half used. Threads
/// of one name are counted as one from then on: the memory that this takes hangs on how many names
/// there are, and not on how long it records.
#[derive(Debug)]
struct EndedThreads {
    groups: FxHashMap<SwitchGroup, GroupTotals>,
    /// The thread that stands for all of its name.
    by_name: FxHashMap<Vec<u8>, TaskKey>,
    /// Number of threads that were taken out.
    threads: u64,
    /// Number of groups that were taken out.
    taken: u64,
    /// Room is made when so many groups are in use ...
    look_at: u64,
    /// ... and the next time when so many more are, if that made no room.
    step: u64,
}

impl EndedThreads {
    fn new(groups: u32) -> Self {
        Self {
            groups: FxHashMap::default(),
            by_name: FxHashMap::default(),
            threads: 0,
            taken: 0,
            look_at: u64::from(groups / 2),
            step: u64::from(groups / 16),
        }
    }

    /// Takes the groups of threads that have ended, if many are in use. Reading all of them takes
    /// some 20 ms, so it is not done again before as many as a sixteenth of the room are new.
    fn make_room(&mut self, capture: &mut Capture, tasks: &NamedTasks) {
        let made = capture.counters().summary_groups;
        if made.saturating_sub(self.taken) < self.look_at {
            return;
        }
        let ended = capture.take_ended_groups();
        self.taken += u64::try_from(ended.len()).unwrap_or(u64::MAX);
        let in_use = made.saturating_sub(self.taken);
        self.look_at = self.look_at.max(in_use + self.step);
        // All groups of a thread come at once.
        let threads: FxHashSet<_> = ended.iter().map(|(group, _)| group.task).collect();
        self.threads += u64::try_from(threads.len()).unwrap_or(u64::MAX);
        for (group, totals) in ended {
            let task = self.representative(group.task, tasks);
            let of_name = SwitchGroup { task, ..group };
            self.groups.entry(of_name).or_default().add(&totals);
        }
    }

    fn representative(&mut self, task: TaskKey, tasks: &NamedTasks) -> TaskKey {
        match tasks.name_of(task) {
            Some(name) => *self.by_name.entry(name.to_owned()).or_insert(task),
            None => task,
        }
    }

    fn tell(&self) {
        if self.threads > 0 {
            message!(
                "swtch: {} that ended are counted by name, each name as its first thread: there were too many \
                 to be counted one by one (--groups N counts more)",
                counted(self.threads, "thread")
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use swtch_core::{Evidence, GroupCounts, TaskEventKind};
    use swtch_fixtures::seen;

    /// Short-lived threads have one name each thousand, and memory must not grow with them.
    #[test]
    fn ended_threads_of_one_name_are_one_group() {
        let mut tasks = NamedTasks::default();
        for (key, name) in [(1, "sh"), (2, "make"), (3, "sh")] {
            tasks.meet(seen(key, key, key, name));
        }
        let mut ended = EndedThreads::new(64);
        let of: Vec<_> = [1, 2, 3, 9]
            .map(|key| ended.representative(TaskKey::new(key), &tasks).get())
            .into();
        assert_eq!(of, [1, 2, 1, 9]);
        let group = SwitchGroup {
            task: TaskKey::new(1),
            next_task: Some(TaskKey::IDLE),
            futex: 0,
            evidence: Evidence::RUNNABLE,
        };
        let totals = GroupTotals {
            counts: GroupCounts {
                switches: 2,
                ..GroupCounts::default()
            },
            ..GroupTotals::default()
        };
        for _ in 0..2 {
            ended.groups.entry(group).or_default().add(&totals);
        }
        assert_eq!(
            (ended.groups.len(), ended.groups[&group].counts.switches),
            (1, 4)
        );
    }

    #[test]
    fn an_event_that_says_nothing_new_is_not_kept() {
        let mut tasks = NamedTasks::default();
        tasks.meet(seen(1, 10, 10, "sh"));
        tasks.meet(TaskEvent {
            kind: TaskEventKind::Exit,
            ..seen(1, 10, 10, "sh")
        });
        tasks.meet(seen(1, 10, 10, "make"));
        assert_eq!(tasks.name_of(TaskKey::new(1)), Some(&b"make"[..]));
        assert_eq!(tasks.in_order().len(), 2);
    }
}
