//! One unbroken chain of `sched_switch` per CPU, made from rows that may have holes between them.
//!
//! ```text
//! rows     ├── A ──┤           ├── B ──┤├── C ──┤
//! chain  ▒▒├── A ──┤▒▒▒▒▒▒▒▒▒▒▒├── B ──┤├── C ──┤▒▒     ▒ filler: idle, or not recorded
//! ```
//!
//! Perfetto's reader assumes that the next task of a switch runs until the next switch, and counts
//! an error if a different task leaves then. Most runs of tasks that were not asked for are in no
//! row. So a task is named as the next one only if its own row says that it ran from that moment
//! on; the next task according to the kernel is an argument of the wait's slice. Each switch is
//! therefore held back until the next row of its CPU.

use rustc_hash::FxHashMap;
use swtch_core::{CpuId, Switch, TaskKey, Timestamp};

use super::ftrace_state;
use super::message::{FtraceEvent, SchedSwitch};

/// Nice 0, as the kernel numbers it (`MAX_RT_PRIO` + 20).
const PRIO_OF_NICE_0: i32 = 120;

/// The state of a task that left runnable.
const RUNNABLE: i64 = 0;

/// The occupant of a CPU, as the chain of its switches names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CpuOccupant {
    /// A task with a row of its own.
    Task(TaskKey),
    /// The idle task, on a CPU of which every switch was recorded.
    Idle,
    /// Either idle, or a task whose run is in no row.
    NotRecorded(CpuId),
}

/// The meaning of the time between two rows, after a switch to idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdleSpan {
    /// Every switch is in the trace: the CPU was idle.
    Idle,
    /// Other tasks may have run without a row.
    NotRecorded,
}

/// Gives the thread id and name that are written to events.
pub type LabelFn<'a> = &'a dyn Fn(CpuOccupant) -> (i32, String);

/// Says whether the trace tells what a thread did after a switch-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Continuation {
    /// The next row of the thread joins this one, or there is none: the thread stayed in the state
    /// in which it left.
    Known,
    /// The next row does not join this one, so the trace does not tell.
    Unknown,
}

/// The chains of all CPUs.
#[derive(Debug)]
pub struct CpuChains {
    /// The last switch-out of each CPU, until it is known what follows it.
    held: FxHashMap<CpuId, HeldSwitch>,
    /// The meaning of the time after a switch to idle, until the next row.
    between: IdleSpan,
}

/// A switch-out that waits for the next row of its CPU, which decides what follows it.
#[derive(Debug)]
struct HeldSwitch {
    row: Switch,
    then: Continuation,
    /// Wakeups of this task at the moment of its switch-out, to be written after it.
    after: Vec<FtraceEvent>,
}

/// A task that leaves or comes in a switch.
#[derive(Clone, Copy, Debug)]
struct SwitchedTask {
    who: CpuOccupant,
    prio: i32,
}

/// Takes each event when it is complete, with the CPU on which it happened.
pub type EventSink<'a> = &'a mut dyn FnMut(CpuId, FtraceEvent);

impl CpuChains {
    /// Chains without any row yet.
    pub fn new(between: IdleSpan) -> Self {
        Self {
            held: FxHashMap::default(),
            between,
        }
    }

    /// Takes the next row of the trace, in order of time.
    pub fn push(
        &mut self,
        row: &Switch,
        then: Continuation,
        names: LabelFn<'_>,
        out: EventSink<'_>,
    ) {
        let cpu = row.cpu;
        let task = SwitchedTask {
            who: CpuOccupant::Task(row.task),
            prio: i32::from(row.evidence.prio),
        };
        let start = row.ran.map(|ran| row.ts.before(ran));
        match (self.held.remove(&cpu), start) {
            // The run began where the last one ended, so there is no hole to fill.
            (Some(held), Some(start)) if held.row.ts == start => {
                held.release(task, names, out);
            }
            (Some(held), start) => {
                // Rows of one CPU do not overlap; the clamp keeps a damaged one from turning time
                // back.
                let start = start.unwrap_or(row.ts).max(held.row.ts);
                let filler = self.filler(&held.row);
                held.release(filler, names, out);
                out(cpu, switch(start, filler, RUNNABLE, task, names));
            }
            // This is the first row of its CPU.
            (None, start) => {
                let start = start.unwrap_or(row.ts);
                out(cpu, switch(start, unknown(cpu), RUNNABLE, task, names));
            }
        }
        let held = HeldSwitch {
            row: *row,
            then,
            after: Vec::new(),
        };
        self.held.insert(cpu, held);
    }

    /// Keeps a wakeup that has the same moment as its task's switch-out, to write it after that.
    /// Returns the wakeup if the switch-out was written already.
    pub fn attach(&mut self, left: &Switch, wakeup: FtraceEvent) -> Option<FtraceEvent> {
        let held = self.held.get_mut(&left.cpu);
        match held.filter(|held| held.row.task == left.task && held.row.ts == left.ts) {
            Some(held) => {
                held.after.push(wakeup);
                None
            }
            None => Some(wakeup),
        }
    }

    /// Ends all chains. `running` gives the task that was running on a CPU at the end.
    pub fn finish(
        &mut self,
        names: LabelFn<'_>,
        running: impl Fn(CpuId) -> Option<TaskKey>,
        out: EventSink<'_>,
    ) {
        let mut held: Vec<_> = self.held.drain().collect();
        held.sort_by_key(|(cpu, _)| *cpu);
        for (cpu, held) in held {
            let next = match running(cpu) {
                Some(next) => SwitchedTask {
                    who: CpuOccupant::Task(next),
                    prio: i32::from(held.row.evidence.next_prio),
                },
                None => self.filler(&held.row),
            };
            held.release(next, names, out);
        }
    }

    /// Returns what occupies the CPU after a switch-out if no row begins there.
    fn filler(&self, left: &Switch) -> SwitchedTask {
        match (left.next_task, self.between) {
            (Some(TaskKey::IDLE), IdleSpan::Idle) => SwitchedTask {
                who: CpuOccupant::Idle,
                prio: PRIO_OF_NICE_0,
            },
            _ => unknown(left.cpu),
        }
    }
}

impl HeldSwitch {
    /// Writes the switch from the held task to `next`, and then the wakeups that were kept for it.
    fn release(self, next: SwitchedTask, names: LabelFn<'_>, out: EventSink<'_>) {
        let Self { row, then, after } = self;
        let left = SwitchedTask {
            who: CpuOccupant::Task(row.task),
            prio: i32::from(row.evidence.prio),
        };
        let state = match then {
            Continuation::Known => ftrace_state::of_departure(&row),
            Continuation::Unknown => ftrace_state::UNKNOWN_STATE,
        };
        out(row.cpu, switch(row.ts, left, state, next, names));
        for wakeup in after {
            out(row.cpu, wakeup);
        }
    }
}

/// The filler where the trace does not tell who ran. Its priority is not known either.
fn unknown(cpu: CpuId) -> SwitchedTask {
    SwitchedTask {
        who: CpuOccupant::NotRecorded(cpu),
        prio: PRIO_OF_NICE_0,
    }
}

fn switch(
    ts: Timestamp,
    left: SwitchedTask,
    state: i64,
    next: SwitchedTask,
    names: LabelFn<'_>,
) -> FtraceEvent {
    let (prev_pid, prev_comm) = names(left.who);
    let (next_pid, next_comm) = names(next.who);
    FtraceEvent {
        timestamp: Some(ts.as_ns()),
        pid: Some(prev_pid.cast_unsigned()),
        sched_switch: Some(SchedSwitch {
            prev_comm: Some(prev_comm),
            prev_pid: Some(prev_pid),
            prev_prio: Some(left.prio),
            prev_state: Some(state),
            next_comm: Some(next_comm),
            next_pid: Some(next_pid),
            next_prio: Some(next.prio),
        }),
        ..FtraceEvent::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn;
    use swtch_core::{Nanos, Reason};

    fn numbers(who: CpuOccupant) -> (i32, String) {
        let number = match who {
            CpuOccupant::Task(task) => task.get().cast_signed(),
            CpuOccupant::Idle => 0,
            CpuOccupant::NotRecorded(_) => -1,
        };
        (number, String::new())
    }

    fn row(task: u32, start: u64, end: u64, next: u32) -> Switch {
        Switch {
            ts: Timestamp::from_ns(end),
            ran: Some(Nanos::from_ns(end - start)),
            next_task: Some(TaskKey::new(next)),
            ..drawn::row(task, Reason::Futex)
        }
    }

    /// Each switch of the chain: moment, task that left, task that came.
    fn chain(between: IdleSpan, rows: &[Switch], running: Option<u32>) -> Vec<(u64, i32, i32)> {
        let mut chains = CpuChains::new(between);
        let mut events = Vec::new();
        let mut take = |_: CpuId, event: FtraceEvent| {
            let switch = event.sched_switch.unwrap();
            let pids = (switch.prev_pid.unwrap(), switch.next_pid.unwrap());
            events.push((event.timestamp.unwrap(), pids.0, pids.1));
        };
        for row in rows {
            chains.push(row, Continuation::Known, &numbers, &mut take);
        }
        chains.finish(&numbers, |_| running.map(TaskKey::new), &mut take);
        events
    }

    #[test]
    fn who_leaves_is_always_who_had_come() {
        let rows = [
            row(1, 10, 20, 2),
            row(2, 20, 30, 0),
            row(3, 40, 50, 7),
            row(4, 60, 70, 9),
        ];
        let events = chain(IdleSpan::Idle, &rows, None);
        assert!(
            events.windows(2).all(|pair| pair[0].2 == pair[1].1),
            "{events:?}"
        );
        let expected = [
            (10, -1, 1),
            (20, 1, 2),
            (30, 2, 0),
            (40, 0, 3),
            (50, 3, -1),
            (60, -1, 4),
            (70, 4, -1),
        ];
        assert_eq!(events, expected);
    }

    /// With a scope, a switch to idle says nothing about the time until the next row.
    #[test]
    fn idle_is_not_claimed_for_time_in_which_others_may_have_run() {
        let rows = [row(1, 10, 20, 0), row(1, 40, 50, 2)];
        let events = chain(IdleSpan::NotRecorded, &rows, Some(2));
        assert_eq!(events, [(10, -1, 1), (20, 1, -1), (40, -1, 1), (50, 1, 2)]);
    }

    #[test]
    fn a_run_without_a_start_is_a_slice_without_a_length() {
        let first = Switch {
            ran: None,
            ..row(1, 0, 20, 2)
        };
        let events = chain(IdleSpan::Idle, &[first, row(2, 20, 30, 0)], None);
        assert_eq!(events, [(20, -1, 1), (20, 1, 2), (30, 2, 0)]);
    }
}
