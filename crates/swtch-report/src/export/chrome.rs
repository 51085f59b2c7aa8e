//! Chrome's trace event format: JSON that `chrome://tracing`, Perfetto and many others open.
//!
//! ```text
//! process "CPUs"     lane per CPU      ├─ A/12 ─┤├─ B/13 ─┤
//! process of A       lane per thread   ├ running ┤├ futex ──┤├ runnable ┤├ running ┤
//!                                                     B wakes ⤴ (flow arrow)
//! ```
//!
//! A wait is two slices: one while blocked, named by its reason, and one while runnable, in the run
//! queue. Workers of user-mode schedulers are asynchronous slices of their process. Moments are µs
//! with three decimals, counted from the start of the trace, so that a double holds every
//! nanosecond.

mod events;

use std::io::Write;
use std::rc::Rc;

use anyhow::Result;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::json;
use swtch_core::{CpuId, Gap, Level, Reason, Switch, TaskKey, Timestamp, WakerKind};
use swtch_output::text::escaped;

use super::evidence::{self, EvidenceValue, Facts, Vocabulary};
use super::life::{LastSwitchOuts, Moments, was_woken};
use super::rows::{ExportRows, ExportedParts};
use crate::report::Names;
use events::{ChromeLane, Events, SliceSpan};

/// The kernel assigns no process id from here on (`PID_MAX_LIMIT`). These numbers stand for the
/// process of the CPUs, and for tasks without an id.
const CPUS: u64 = 1 << 22;
const UNNAMED: u64 = CPUS + (1 << 17);

/// Writes the trace.
///
/// # Errors
/// When the trace cannot be read or `out` not be written.
pub fn write(rows: &mut ExportRows<'_>, out: &mut dyn Write) -> Result<()> {
    let host = &rows.meta().host;
    let about = json!({
        "source": "swtch",
        "hostname": escaped(&host.hostname),
        "kernel": escaped(&host.kernel_release),
        "scope": escaped(&rows.meta().scope),
        "start_ns": rows.meta().start_ns,
    });
    let start = Timestamp::from_ns(rows.meta().start_ns);
    let mut writer = ChromeWriter {
        events: Events::begin(out, start, &about)?,
        names: rows.names(),
        vocabulary: Vocabulary::new(rows)?,
        last_switch_outs: LastSwitchOuts::default(),
        met: FxHashSet::default(),
        cpus: FxHashSet::default(),
        arrows: 0,
        pending: FxHashMap::default(),
        drawn: FxHashSet::default(),
    };
    rows.scan(&mut |row, taken| match row.level {
        Level::Os => writer.take(row, taken),
        Level::User if taken.switch => writer.take_worker(row),
        Level::User => Ok(()),
    })?;
    for gap in rows.gaps()? {
        writer.lost(&gap)?;
    }
    writer.events.end()
}

struct ChromeWriter<'a> {
    events: Events<'a>,
    names: Rc<Names>,
    vocabulary: Vocabulary,
    last_switch_outs: LastSwitchOuts,
    met: FxHashSet<TaskKey>,
    cpus: FxHashSet<CpuId>,
    arrows: u64,
    /// Wakeups by tasks whose run at that moment is not written yet.
    pending: FxHashMap<TaskKey, Vec<Arrow>>,
    /// Threads whose last run was written as a slice.
    drawn: FxHashSet<TaskKey>,
}

/// A wakeup: its moment, and the lane and start of the run that followed.
#[derive(Clone, Copy, Debug)]
struct Arrow {
    woken: Timestamp,
    to: ChromeLane,
    start: Timestamp,
}

impl ChromeWriter<'_> {
    fn take(&mut self, row: &Switch, taken: ExportedParts) -> Result<()> {
        let moments = Moments::of(row);
        let before = self.last_switch_outs.push(row);
        let lane = self.meet(row.task)?;
        self.meet_cpu(row.cpu)?;
        if taken.wait {
            self.wait(row, before.as_ref(), &moments, lane)?;
        }
        if let Some(from) = moments.start {
            self.run(row, SliceSpan { from, to: row.ts }, lane, taken)?;
        }
        // Both ends of an arrow need a slice that is written before them.
        if taken.wait && taken.switch {
            self.arrow(row, &moments, lane)?;
        }
        self.arrows_from(row, lane, taken.switch)
    }

    fn run(
        &mut self,
        row: &Switch,
        span: SliceSpan,
        lane: ChromeLane,
        taken: ExportedParts,
    ) -> Result<()> {
        let label = self.label(row.task);
        let on_cpu = ChromeLane {
            pid: CPUS,
            tid: cpu_lane(row.cpu),
        };
        let mut facts: Facts = vec![("left_for", word(row.rule.reason.as_str()))];
        self.events.slice(on_cpu, span, &label, "cpu", &facts)?;
        // A run that the filter does not take is shown on the lane of its CPU only.
        if taken.switch {
            facts.push(("cpu", EvidenceValue::Count(u64::from(row.cpu.get()))));
            self.events
                .slice(lane, span, "running", "running", &facts)?;
        }
        Ok(())
    }

    fn wait(
        &mut self,
        row: &Switch,
        before: Option<&Switch>,
        moments: &Moments,
        lane: ChromeLane,
    ) -> Result<()> {
        let (Some(began), Some(start)) = (moments.wait_began(), moments.start) else {
            return Ok(());
        };
        let reason = row.wait.reason.unwrap_or(Reason::Unknown);
        let names = Rc::clone(&self.names);
        let label = |task| label_of(&names, task);
        let mut facts = Facts::new();
        if let Some(before) = before {
            evidence::of_departure(before, &self.vocabulary, &label, &mut facts);
        }
        evidence::of_wait(row, &label, &mut facts);
        let runnable_since = moments.woken.unwrap_or(start);
        let was_blocked = row.wait.off.is_some() && began < runnable_since;
        if was_blocked {
            let span = SliceSpan {
                from: began,
                to: runnable_since,
            };
            // Without the wakeup, no report knows how much of this time the thread was blocked.
            let category = match row.wait.runq {
                Some(_) => reason.category().as_str(),
                None => "not split",
            };
            let name = reason.as_str();
            self.events.slice(lane, span, name, category, &facts)?;
        }
        if row.wait.runq.is_some() {
            let span = SliceSpan {
                from: runnable_since,
                to: start,
            };
            let name = match (row.wait.off, was_blocked) {
                (None, _) => "runnable (new thread)".to_owned(),
                (_, true) => "runnable (woken)".to_owned(),
                (_, false) => format!("runnable ({reason})"),
            };
            self.events.slice(lane, span, &name, "runnable", &facts)?;
        }
        Ok(())
    }

    /// Draws an arrow from the waker's run to the run that followed. An arrow needs a slice at both
    /// ends, so one that would start in a run without a slice is left out.
    fn arrow(&mut self, row: &Switch, moments: &Moments, to: ChromeLane) -> Result<()> {
        let (Some(woken), Some(start), Some(waker)) =
            (moments.woken, moments.start, row.wait.wakeup.waker)
        else {
            return Ok(());
        };
        let is_by_task = was_woken(row) && row.wait.wakeup.kind.is_some_and(WakerKind::is_task);
        if !is_by_task || waker.is_idle() || start == row.ts {
            return Ok(());
        }
        let arrow = Arrow { woken, to, start };
        match self.last_switch_outs.last(waker) {
            Some(last) if is_within(woken, last) && self.drawn.contains(&waker) => {
                let from = self.meet(waker)?;
                self.draw(from, arrow)
            }
            Some(last) if woken < last.ts => Ok(()),
            _ => {
                self.pending.entry(waker).or_default().push(arrow);
                Ok(())
            }
        }
    }

    /// Draws the arrows that waited for this run to be written.
    fn arrows_from(&mut self, row: &Switch, lane: ChromeLane, is_written: bool) -> Result<()> {
        match is_written {
            true => self.drawn.insert(row.task),
            false => self.drawn.remove(&row.task),
        };
        let waiting = self.pending.remove(&row.task).unwrap_or_default();
        let mut drawn = waiting
            .into_iter()
            .filter(|arrow| is_written && is_within(arrow.woken, row));
        drawn.try_for_each(|arrow| self.draw(lane, arrow))
    }

    fn draw(&mut self, from: ChromeLane, arrow: Arrow) -> Result<()> {
        self.arrows += 1;
        self.events.flow("s", self.arrows, from, arrow.woken)?;
        self.events.flow("f", self.arrows, arrow.to, arrow.start)
    }

    fn take_worker(&mut self, row: &Switch) -> Result<()> {
        let (Some(start), Some(worker)) = (Moments::of(row).start, row.user_task) else {
            return Ok(());
        };
        let lane = self.meet(row.task)?;
        let mut facts: Facts = vec![
            ("thread", EvidenceValue::Word(self.label(row.task))),
            ("left_for", word(row.rule.reason.as_str())),
        ];
        evidence::of_worker(row, &self.vocabulary, &mut facts);
        self.events.worker("b", worker, lane, start, &facts)?;
        self.events.worker("e", worker, lane, row.ts, &Facts::new())
    }

    fn lost(&mut self, gap: &Gap) -> Result<()> {
        self.meet_cpu(gap.cpu)?;
        let lane = ChromeLane {
            pid: CPUS,
            tid: cpu_lane(gap.cpu),
        };
        let facts: Facts = vec![
            ("lost", EvidenceValue::Count(gap.lost)),
            ("level", word(gap.level.as_str())),
            ("until_ns", EvidenceValue::Count(gap.end.as_ns())),
        ];
        self.events.instant("lost records", gap.start, lane, &facts)
    }

    /// Names a thread when it first occurs.
    fn meet(&mut self, task: TaskKey) -> Result<ChromeLane> {
        let index = self.names.index(task);
        let process = self.names.process_of(index);
        let thread = self.names.thread(index);
        let unnamed = UNNAMED + u64::from(task.get());
        let lane = ChromeLane {
            pid: process.pid.map_or(unnamed, |pid| u64::from(pid.get())),
            tid: thread.tid.map_or(unnamed, |tid| u64::from(tid.get())),
        };
        if self.met.insert(task) {
            self.events.name("process_name", lane, &process.comm)?;
            self.events.name("thread_name", lane, &thread.comm)?;
        }
        Ok(lane)
    }

    fn meet_cpu(&mut self, cpu: CpuId) -> Result<()> {
        if !self.cpus.insert(cpu) {
            return Ok(());
        }
        let lane = ChromeLane {
            pid: CPUS,
            tid: cpu_lane(cpu),
        };
        self.events.name("process_name", lane, "CPUs")?;
        self.events.name("thread_name", lane, &format!("CPU {cpu}"))
    }

    fn label(&self, task: TaskKey) -> String {
        label_of(&self.names, task)
    }
}

/// Whether the moment is inside the run that ended with this row.
fn is_within(at: Timestamp, row: &Switch) -> bool {
    row.ran
        .is_some_and(|ran| row.ts.before(ran) <= at && at < row.ts)
}

fn label_of(names: &Names, task: TaskKey) -> String {
    escaped(&names.label(names.index(task))).into_owned()
}

fn cpu_lane(cpu: CpuId) -> u64 {
    CPUS + 1 + u64::from(cpu.get())
}

fn word(text: &str) -> EvidenceValue {
    EvidenceValue::Word(text.to_owned())
}
