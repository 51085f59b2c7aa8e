//! Perfetto's own format: the scheduler's events as the kernel's ftrace would write them, and for
//! each thread slices that say why it did not run.
//!
//! ```text
//! rows ─┬▶ lanes ─▶ sched_switch ─┐
//!       ├─ woken ─▶ sched_waking ─┴▶ ftrace bundles, one CPU each   tables `sched`, `thread_state`
//!       ├─ wait ──▶ a slice on the thread's track: reason, rule …   table `slice`
//!       └─ user ──▶ a slice on the worker's track
//! spans ──────────▶ slices on a track below the thread's
//! ```
//!
//! What Perfetto's trace processor computes from the events must equal our sums: a run is one row
//! of `sched`, and blocked and run-queue time are the rows of `thread_state` between runs.
//! [`cpu_chains`], [`ftrace_state`] and [`unknown_spans`] explain what that takes. Moments are written
//! on `CLOCK_BOOTTIME`, the format's own clock.

mod cpu_chains;
mod ftrace_state;
mod intern;
pub mod message;
mod packets;
mod slices;
mod threads;
mod unknown_spans;

use std::io::Write;

use anyhow::Result;
use swtch_core::{CpuId, Gap, Level, Switch, TaskKey, Timestamp, WakerKind};
use swtch_output::text::counted;

use super::life::{LastSwitchOuts, Moments, was_woken};
use super::rows::{ExportRows, ExportedParts};
pub use ftrace_state::UNKNOWN_STATE;
pub use threads::is_not_recorded;

use cpu_chains::{Continuation, CpuChains, CpuOccupant, IdleSpan};
use message::{FtraceEvent, SchedProcessFree, SchedWaking, TaskState, TracePacket};
use packets::Packets;
use slices::Slices;
use threads::NamedThreads;
use unknown_spans::UnknownSpans;

/// The kernel's `TRACE_FLAG_HARDIRQ` and `TRACE_FLAG_SOFTIRQ` (`include/linux/trace_events.h`).
const IN_INTERRUPT: u32 = 0x08;
const IN_SOFT_INTERRUPT: u32 = 0x10;
/// States of a task: `TaskStateEnum`, defined in `generic_kernel/generic_task.proto`.
const TASK_STATE_RUNNABLE: i32 = 2;
const TASK_STATE_INTERRUPTIBLE_SLEEP: i32 = 4;

/// Writes the trace.
///
/// # Errors
/// When the trace cannot be read or `out` not be written.
pub fn write(rows: &mut ExportRows<'_>, out: &mut dyn Write) -> Result<()> {
    let between = if rows.are_all() {
        IdleSpan::Idle
    } else {
        IdleSpan::NotRecorded
    };
    let gaps = rows.gaps()?;
    let unknown = UnknownSpans::find(rows)?;
    let slices = Slices::new(rows)?;
    let mut writer = PerfettoWriter {
        packets: Packets::new(rows.meta(), out),
        threads: NamedThreads::new(rows.names()),
        chains: CpuChains::new(between),
        slices,
        last_switch_outs: LastSwitchOuts::default(),
        unknown,
        rows: 0,
    };
    writer.packets.write_head(rows.meta())?;
    rows.scan(&mut |row, taken| match row.level {
        Level::Os => writer.take(row, taken),
        Level::User => writer.take_user(row, taken),
    })?;
    writer.finish(rows, &gaps)
}

/// The parts of the export, and what they keep from row to row.
struct PerfettoWriter<'a> {
    packets: Packets<'a>,
    threads: NamedThreads,
    chains: CpuChains,
    slices: Slices,
    last_switch_outs: LastSwitchOuts,
    unknown: UnknownSpans,
    /// Rows of the kernel's level that were taken so far.
    rows: usize,
}

impl PerfettoWriter<'_> {
    fn take(&mut self, row: &Switch, taken: ExportedParts) -> Result<()> {
        let moments = Moments::of(row);
        let first = moments.first(row);
        self.meet(row.task, row.cpu, first)?;
        let last = self.last_switch_outs.last(row.task).map(|last| last.ts);
        let before = self.last_switch_outs.push(row);
        if moments.out > last {
            self.leave(row, &moments)?;
        }
        if was_woken(row) {
            self.wake(row, &moments, before.as_ref())?;
        }
        let then = if self.unknown.follows(self.rows) {
            Continuation::Unknown
        } else {
            Continuation::Known
        };
        self.rows += 1;
        let (packets, threads) = (&mut self.packets, &self.threads);
        let mut failed = None;
        self.chains
            .push(row, then, &|who| threads.called(who), &mut |cpu, event| {
                failed = failed.take().or(packets.event(cpu, event).err());
            });
        failed.map_or(Ok(()), Err)?;
        if taken.wait {
            let packets = &mut self.packets;
            let slices = &mut self.slices;
            slices.wait(row, before.as_ref(), &moments, &self.threads, packets)?;
        }
        Ok(())
    }

    fn take_user(&mut self, row: &Switch, taken: ExportedParts) -> Result<()> {
        if taken.switch {
            self.meet(row.task, row.cpu, Moments::of(row).first(row))?;
            let packets = &mut self.packets;
            self.slices.worker(row, &self.threads, packets)?;
        }
        Ok(())
    }

    /// Names a task when it first occurs. If another task had its thread id before, that task is
    /// ended: the reader would take both for one thread.
    fn meet(&mut self, task: TaskKey, cpu: CpuId, at: Timestamp) -> Result<()> {
        let Some(met) = self.threads.meet(task) else {
            return Ok(());
        };
        if met.takes_the_place_of_another {
            let free = FtraceEvent {
                timestamp: Some(at.as_ns().saturating_sub(1)),
                pid: Some(0),
                sched_process_free: Some(SchedProcessFree {
                    pid: Some(self.threads.tid(task)),
                }),
                ..FtraceEvent::default()
            };
            self.packets.event(cpu, free)?;
        }
        self.packets.write_at(
            at,
            TracePacket {
                process_tree: Some(met.tree),
                ..TracePacket::default()
            },
        )?;
        for descriptor in met.tracks {
            self.packets.descriptor(at, descriptor)?;
        }
        Ok(())
    }

    /// Writes the moment at which a thread left when only its next row tells it, because the row of
    /// that switch-out was lost or is outside the time that was asked for. Without the run there is
    /// no event of ftrace for it, so a task state is written.
    fn leave(&mut self, row: &Switch, moments: &Moments) -> Result<()> {
        let (Some(out), true) = (moments.out, moments.woken.is_some()) else {
            return Ok(());
        };
        let state = if was_woken(row) {
            TASK_STATE_INTERRUPTIBLE_SLEEP
        } else {
            TASK_STATE_RUNNABLE
        };
        let (tid, comm) = self.threads.called(CpuOccupant::Task(row.task));
        let state = TaskState {
            comm: Some(comm),
            tid: Some(i64::from(tid)),
            state: Some(state),
            prio: Some(i32::from(row.evidence.prio)),
        };
        self.packets.write_at(
            out,
            TracePacket {
                generic_kernel_task_state_event: Some(state),
                ..TracePacket::default()
            },
        )
    }

    fn wake(&mut self, row: &Switch, moments: &Moments, before: Option<&Switch>) -> Result<()> {
        let Some(woken) = moments.woken else {
            return Ok(());
        };
        let waker = row.wait.wakeup.waker.unwrap_or(TaskKey::IDLE);
        if !waker.is_idle() {
            self.meet(waker, row.cpu, woken)?;
        }
        let target = row.wait.wakeup.cpu.unwrap_or(row.cpu);
        let event = self.waking(row, woken, waker, target);
        // The task was woken while it was leaving: the wakeup is written after the switch-out.
        if let Some(before) = before.filter(|before| before.ts == woken) {
            return match self.chains.attach(before, event) {
                Some(event) => self.packets.event(before.cpu, event),
                None => Ok(()),
            };
        }
        self.packets.event(target, event)
    }

    fn waking(&self, row: &Switch, at: Timestamp, waker: TaskKey, target: CpuId) -> FtraceEvent {
        let (tid, comm) = self.threads.called(CpuOccupant::Task(row.task));
        let waker = if waker.is_idle() {
            0
        } else {
            self.threads.tid(waker).cast_unsigned()
        };
        FtraceEvent {
            timestamp: Some(at.as_ns()),
            pid: Some(waker),
            common_flags: match row.wait.wakeup.kind {
                Some(WakerKind::Timer | WakerKind::Interrupt) => Some(IN_INTERRUPT),
                Some(WakerKind::SoftIrq) => Some(IN_SOFT_INTERRUPT),
                _ => None,
            },
            sched_waking: Some(SchedWaking {
                comm: Some(comm),
                pid: Some(tid),
                prio: Some(i32::from(row.evidence.prio)),
                success: Some(1),
                target_cpu: Some(i32::from(target.get())),
            }),
            ..FtraceEvent::default()
        }
    }

    fn finish(mut self, rows: &ExportRows<'_>, gaps: &[Gap]) -> Result<()> {
        let (packets, threads, unknown) = (&mut self.packets, &self.threads, &self.unknown);
        let mut failed = None;
        let mut out = |cpu, event| failed = failed.take().or(packets.event(cpu, event).err());
        // A task without a row has no process in the export either.
        let running = |cpu| unknown.running(cpu).filter(|task| threads.is_met(*task));
        self.chains
            .finish(&|who| threads.called(who), running, &mut out);
        failed.map_or(Ok(()), Err)?;
        for left in self.last_switch_outs.still_waiting() {
            if rows.takes_open(left) && !unknown.runs_on(left.task) {
                self.slices.open(left, &self.threads, packets)?;
            }
        }
        if unknown.waits() > 0 {
            let waits = counted(unknown.waits(), "wait");
            swtch_output::message!(
                "swtch: note: the trace does not tell how long {waits} lasted, or until when the thread \
                 blocked; Perfetto shows them in state PI (\"Parked + Idle\"), which is used for nothing else"
            );
        }
        self.slices.spans(&rows.spans()?, threads, packets)?;
        self.slices.losses(gaps, packets)?;
        packets.lost_on(gaps)?;
        packets.flush()
    }
}
