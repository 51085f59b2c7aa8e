//! `api/trace` and `api/threads`: facts about the trace, and the threads that have lanes.

use serde_json::{Value, json};
use swtch_core::{
    Coverage, CpuPlaces, CpuTopology, Gap, Level, Nanos, Reason, TaskEvent, TaskEventKind, TaskKey,
    Timestamp,
};
use swtch_report::report::{self, ReportedSwitches};
use swtch_store::{Completeness, RecordingState, WHOLE_SYSTEM};

use anyhow::Result;
use rustc_hash::FxHashMap;

use super::loaded::Loaded;
use super::timeline::{CpuLane, Track};

/// Most columns of the text by which the page names a process.
const TITLE_WIDTH: usize = 60;

/// The facts of the trace, with those that may change while the trace is not read again.
pub fn of_trace(loaded: &Loaded, name: &str, has_prices: bool) -> Result<Value> {
    let mut answer = loaded.facts()?.clone();
    answer["name"] = json!(name);
    answer["state"] = json!(state_of(loaded));
    answer["has_prices"] = json!(has_prices);
    Ok(answer)
}

/// Facts from one reading of the trace. They are made once, because tasks and gaps are on the disk.
pub fn of_reading(loaded: &Loaded) -> Result<Value> {
    let meta = loaded.trace.meta();
    let rows = rows_of(loaded);
    let duration = Nanos::from_ns(loaded.duration_ns());
    let first = report::first_lines(&loaded.trace, rows, duration)?;
    let places = meta.host.topology.as_ref().map(CpuTopology::places);
    let places = places.unwrap_or_default();
    let cpus = loaded.levels.os.cpus().iter();
    let reasons = Reason::ALL.iter().map(|reason| {
        json!({
            "id": reason.index(),
            "reason": reason.as_str(),
            "category": reason.category().as_str(),
            "help": reason.help(),
        })
    });
    let mut gaps = Vec::new();
    for level in Level::ALL {
        gaps.extend(loaded.trace.gaps_of(*level)?);
    }
    let note = match loaded.trace.completeness() {
        Completeness::Unfinished { why, .. } => Some(why),
        _ => meta.stop_reason.clone(),
    };
    Ok(json!({
        "schema": "swtch.view.trace/1",
        "generation": loaded.generation,
        "note": note,
        "head": first.lines,
        "wall_start": wall_start(loaded),
        "duration_ns": loaded.duration_ns(),
        "switches": rows.counted,
        "lost": first.lost,
        "untraced": first.untraced,
        "threads": loaded.levels.os.tracks().len(),
        "scope": meta.scope,
        "every_task": has_every_task(loaded),
        "cpus": cpus.map(|lane| of_cpu(loaded, lane, &places)).collect::<Vec<_>>(),
        "reasons": reasons.collect::<Vec<_>>(),
        "gaps": gaps.iter().map(|gap| of_gap(loaded, gap)).collect::<Vec<_>>(),
        "has_stacks": meta.stacks.is_some(),
        "has_spans": meta.spans.is_some(),
    }))
}

/// Returns true if a CPU on which nothing is recorded was idle. A trace that is being written does not tell what was
/// filtered away, but it does tell whether it covers the whole system.
fn has_every_task(loaded: &Loaded) -> bool {
    let is_of_all = loaded.trace.meta().scope == WHOLE_SYSTEM && loaded.everything_in_scope;
    is_of_all || loaded.coverage() == Coverage::EveryTask
}

/// A CPU, and the span in which it is known which task had it: from the start of its first run (or
/// from that run's end, if the start is not known) to the end of its last run. It has a node only
/// where there is more than one.
fn of_cpu(loaded: &Loaded, lane: &CpuLane, places: &CpuPlaces) -> Value {
    let os = &loaded.levels.os;
    let ends = lane.span_around(os, 0, u64::MAX);
    let first = ends.map(|(first_ended, _)| {
        let runs = lane.pieces(os, 0, first_ended);
        runs.first().map_or(first_ended, |run| run.from_ns)
    });
    json!({
        "cpu": lane.cpu.get(),
        "node": places.node(lane.cpu).filter(|_| places.has_nodes()),
        "core": places.core(lane.cpu),
        "switches": lane.len(),
        "first_ns": first,
        "last_ns": ends.map(|(_, last_ended)| last_ended),
    })
}

/// Switches that reports count, and those of tasks that were recorded because others waited for
/// them.
fn rows_of(loaded: &Loaded) -> ReportedSwitches {
    let mut rows = ReportedSwitches::default();
    for track in loaded.levels.os.tracks() {
        let in_scope = loaded.names.thread(loaded.names.index(track.task)).in_scope;
        let count = u64::try_from(track.len).expect("a length fits 64 bits");
        match in_scope {
            true => rows.counted += count,
            false => rows.out_of_scope += count,
        }
    }
    rows
}

fn of_gap(loaded: &Loaded, gap: &Gap) -> Value {
    json!({
        "cpu": gap.cpu.get(),
        "from_ns": loaded.since_start(gap.start),
        "to_ns": loaded.since_start(gap.end),
        "lost": gap.lost,
        "level": gap.level.as_str(),
    })
}

fn state_of(loaded: &Loaded) -> &'static str {
    match (loaded.trace.completeness(), loaded.trace.meta().state) {
        (Completeness::Finished, _) => "finished",
        // Its facts say that it is finished, but its files are not in place yet.
        (_, RecordingState::Recording | RecordingState::Finished) if loaded.is_fresh() => {
            "recording"
        }
        _ => "cut",
    }
}

/// The start in wall-clock time, as RFC 3339; `None` if the trace does not tell.
fn wall_start(loaded: &Loaded) -> Option<String> {
    let meta = loaded.trace.meta();
    let offset = i128::from(meta.clock.realtime_ns) - i128::from(meta.clock.monotonic_ns);
    let start = i128::from(meta.start_ns) + offset;
    let moment = jiff::Timestamp::from_nanosecond(start).ok()?;
    (meta.clock.realtime_ns > 0).then(|| moment.to_string())
}

/// The threads that have rows, in the order of their first row, as one array per column.
pub fn of_threads(loaded: &Loaded) -> Value {
    let mut columns = ThreadColumns::default();
    for track in loaded.levels.os.tracks() {
        columns.push(loaded, *track);
    }
    json!({
        "schema": "swtch.view.threads/1",
        "generation": loaded.generation,
        "task": columns.task,
        "tid": columns.tid,
        "pid": columns.pid,
        "name": columns.name,
        "process": columns.process,
        "parent": columns.parent,
        "first_ns": columns.first_ns,
        "last_ns": columns.last_ns,
        "forked_ns": columns.forked_ns,
        "exited_ns": columns.exited_ns,
        "run_ns": columns.run_ns,
        "switches": columns.switches,
        "blocked_ns": columns.blocked_ns,
        "runq_ns": columns.runq_ns,
        "kernel": columns.kernel,
        "in_scope": columns.in_scope,
        "user": columns.user,
    })
}

/// The begin and end of a task, as far as the capture saw them.
#[derive(Clone, Copy, Debug, Default)]
pub struct TaskLifetime {
    forked: Option<Timestamp>,
    exited: Option<Timestamp>,
}

/// The lifetimes of tasks that began or ended during the capture, from events in order of time.
pub fn lives_of(events: &[TaskEvent]) -> FxHashMap<TaskKey, TaskLifetime> {
    let mut lives: FxHashMap<TaskKey, TaskLifetime> = FxHashMap::default();
    for event in events {
        match event.kind {
            TaskEventKind::Fork => lives.entry(event.task).or_default().forked = Some(event.ts),
            TaskEventKind::Exit => lives.entry(event.task).or_default().exited = Some(event.ts),
            TaskEventKind::Seen | TaskEventKind::Exec | TaskEventKind::Rename => {}
        }
    }
    lives
}

#[derive(Default)]
struct ThreadColumns {
    task: Vec<u32>,
    tid: Vec<Option<u32>>,
    pid: Vec<Option<u32>>,
    name: Vec<String>,
    process: Vec<String>,
    /// Id of the parent of the thread's process.
    parent: Vec<Option<u32>>,
    first_ns: Vec<u64>,
    last_ns: Vec<u64>,
    forked_ns: Vec<Option<u64>>,
    exited_ns: Vec<Option<u64>>,
    run_ns: Vec<u64>,
    switches: Vec<usize>,
    blocked_ns: Vec<u64>,
    runq_ns: Vec<u64>,
    kernel: Vec<bool>,
    in_scope: Vec<bool>,
    user: Vec<bool>,
}

impl ThreadColumns {
    fn push(&mut self, loaded: &Loaded, track: Track) {
        let timeline = &loaded.levels.os;
        let rows = timeline.rows();
        let index = loaded.names.index(track.task);
        let thread = loaded.names.thread(index);
        let process = loaded.names.process_of(index);
        let times = timeline.times(track.task);
        let first = rows.row(track.first);
        let last = rows.row(track.rows().end - 1);
        self.task.push(track.task.get());
        self.tid.push(thread.tid.map(swtch_core::Tid::get));
        self.pid.push(process.pid.map(swtch_core::Pid::get));
        self.name.push(thread.comm.clone());
        self.process.push(process.title(TITLE_WIDTH));
        self.parent.push(process.parent.map(swtch_core::Pid::get));
        self.first_ns
            .push(first.pieces().first_ns().unwrap_or(first.ended_ns));
        let last_ns = last.ended_ns;
        self.last_ns.push(last_ns);
        let life = loaded.lives.get(&track.task).copied().unwrap_or_default();
        let since_start = |moment| loaded.since_start(moment);
        self.forked_ns.push(life.forked.map(since_start));
        // A task that has announced its end still runs until it leaves its CPU for good.
        let has_left = last.reason == Reason::Exit;
        let exited = life.exited.map(since_start).or(has_left.then_some(last_ns));
        self.exited_ns
            .push(exited.map(|exited| exited.max(last_ns)));
        self.run_ns.push(times.ran_ns);
        self.switches.push(track.len);
        self.blocked_ns.push(times.blocked_ns);
        self.runq_ns.push(times.runq_ns);
        self.kernel
            .push(loaded.kernel_threads.contains(&track.task));
        self.in_scope.push(thread.in_scope);
        self.user
            .push(loaded.levels.user.track(track.task).is_some());
    }
}

/// A thread, as every answer names it.
pub fn of_thread(loaded: &Loaded, task: TaskKey) -> Value {
    let index = loaded.names.index(task);
    let thread = loaded.names.thread(index);
    let process = loaded.names.process_of(index);
    json!({
        "task": task.get(),
        "tid": thread.tid.map(swtch_core::Tid::get),
        "pid": process.pid.map(swtch_core::Pid::get),
        "name": thread.comm,
    })
}

#[cfg(test)]
mod tests {
    use swtch_fixtures::seen;

    use super::*;

    /// A task that began before the capture, or outlived it, has no moment there, so that the page
    /// claims none.
    #[test]
    fn a_life_is_known_as_far_as_it_was_seen() {
        let at = |ns, kind, key| TaskEvent {
            ts: Timestamp::from_ns(ns),
            kind,
            ..seen(key, 10, 10, "child")
        };
        let lives = lives_of(&[
            at(10, TaskEventKind::Fork, 1),
            at(20, TaskEventKind::Seen, 2),
            at(30, TaskEventKind::Exec, 1),
            at(40, TaskEventKind::Exit, 2),
        ]);
        let life = |key| {
            let life = lives.get(&TaskKey::new(key)).copied().unwrap_or_default();
            (
                life.forked.map(Timestamp::as_ns),
                life.exited.map(Timestamp::as_ns),
            )
        };
        assert_eq!(life(1), (Some(10), None));
        assert_eq!(life(2), (None, Some(40)));
        assert_eq!(life(3), (None, None));
    }
}
