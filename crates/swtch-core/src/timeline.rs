//! Turns events into rows: lengths are computed from moments, each wait is joined with the run that
//! it led to, and the rules decide the reason.
//!
//! The kernel side keeps what a task needs across its wait (when it left, who woke it), so each
//! event is nearly a row. Only the reason of the *previous* switch-out is missing, because reasons
//! are decided here. So this keeps one entry per task.
//!
//! A wakeup may be older than the switch-out it belongs to (`sched_waking` fires while the task is
//! still on its way out): the task was then runnable at once.
//!
//! ```text
//!   waking     out   in            waking   out      waking   in
//!  ────┼────────┼─────┼──▶          ┼───────┼──────────┼───────┼──▶
//!      └ woken at "out"              stale └ woken at the second
//! ```

mod threads;

use std::collections::HashMap;

use crate::event::{Event, LookEvent, LookedTask, SwitchEvent};
use crate::evidence::{Evidence, EvidenceBits};
use crate::ids::TaskKey;
use crate::reason::Reason;
use crate::rules::{Rule, UserRules, classify, classify_user};
use crate::stack::StackNumbers;
use crate::switch::{Open, Switch, TaskAtEnd, TaskEvent};
use crate::syscall::SyscallTable;
use crate::units::{Nanos, Timestamp};
use crate::user::{Level, UserSide, UserSwitchEvent, UserWaitType, UserWord};
use crate::wait::{Wait, WaitEvidence};
use threads::Threads;

/// Differences between wall and charged time of a run up to this length are not steal: the kernel
/// starts to charge a run a little after the switch, and reads the clock before it. Seen on 6.18:
/// below 3 µs in 99.99 % of runs.
const CHARGE_SKEW: Nanos = Nanos::from_ns(20_000);

/// A row of the trace, finished and ready to be written.
#[derive(Clone, Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly all steps are switches, and go by value from stage to stage"
)]
pub enum TraceRow {
    /// A row of the table `switch`.
    Switch(Switch),
    /// A row of the table `task`.
    Task(TaskEvent),
}

/// Turns events, in order of time, into rows.
#[derive(Debug)]
pub struct Timeline {
    calls: SyscallTable,
    restart_call: Option<u32>,
    last_out: Vec<Option<LastOut>>,
    unnamed: u64,
    backwards: u64,
    uncaught: u64,
    threads: Threads,
    user_rules: UserRules,
    unnamed_user: u64,
    /// User-mode switches of threads whose CPU is not known yet: the kernel has not reported them.
    unplaced: HashMap<TaskKey, Vec<UserSwitchEvent>>,
}

/// The most switches of one thread that wait for its CPU to become known. A new thread makes one or
/// two until it blocks; if it runs on, later ones are counted and given up, so memory stays
/// bounded.
const MOST_UNPLACED: usize = 64;

/// The longest time such a switch waits: whatever puts rows in order of time must hold all rows
/// that came meanwhile.
const LONGEST_UNPLACED: Nanos = Nanos::from_ns(1_000_000_000);

#[derive(Clone, Copy, Debug)]
struct LastOut {
    ts: Timestamp,
    reason: Reason,
    kernel_count: u64,
    in_scope: bool,
    was_runnable: bool,
    /// The last system call that the task was seen in; `restart_syscall` does not count.
    call: Option<u32>,
    /// What looks saw of the task since.
    seen: Option<WaitInLooks>,
    /// Where its waker was, and when.
    woken_from: Option<(StackNumbers, Timestamp)>,
}

/// What looks saw of a wait.
#[derive(Clone, Copy, Debug)]
struct WaitInLooks {
    stacks: StackNumbers,
    /// The time between the look that met it and the one before.
    between: Nanos,
    /// Where the task was that held what this one waited for.
    holder: Option<u32>,
}

impl Timeline {
    /// An empty time line that resolves system call numbers by `calls`.
    pub fn new(calls: SyscallTable) -> Self {
        Self {
            restart_call: calls.number_named("restart_syscall"),
            calls,
            last_out: Vec::new(),
            unnamed: 0,
            backwards: 0,
            uncaught: 0,
            threads: Threads::default(),
            user_rules: UserRules::default(),
            unnamed_user: 0,
            unplaced: HashMap::new(),
        }
    }

    /// Takes the next event, and passes on each row that comes of it.
    ///
    /// An event that cannot become a row is counted. A user-mode switch of a thread that has not
    /// left a CPU yet may not say its CPU: only the switch-out of the thread does. The event is kept
    /// until then, and passed on before the row of that switch-out, so rows come nearly in order of
    /// time.
    pub fn push(&mut self, event: Event, mut sink: impl FnMut(TraceRow)) {
        let row = match event {
            Event::Task(task) => {
                self.threads.name(&task);
                Some(TraceRow::Task(task))
            }
            Event::User(event) => self.user_switch(event).map(TraceRow::Switch),
            Event::Switch(event) => {
                self.place_threads(&event, &mut sink);
                self.switch(&event).map(TraceRow::Switch)
            }
            Event::Look(look) => {
                self.look(look);
                None
            }
        };
        row.into_iter().for_each(sink);
    }

    /// Number of switch-outs without a row, because the task could not be named.
    pub const fn unnamed(&self) -> u64 {
        self.unnamed
    }

    /// Number of lengths left out because they would have been negative: the clock went backwards
    /// between CPUs.
    pub const fn backwards(&self) -> u64 {
        self.backwards
    }

    /// Number of lost switches by the kernel's own count: `nvcsw + nivcsw` of tasks in scope grew
    /// by more than one between two rows of the same task.
    pub const fn uncaught(&self) -> u64 {
        self.uncaught
    }

    /// Number of user-mode switches without a row, because their thread could not be named or its
    /// CPU is not known.
    pub fn unnamed_user(&self) -> u64 {
        let unplaced: usize = self.unplaced.values().map(Vec::len).sum();
        self.unnamed_user + u64::try_from(unplaced).unwrap_or(u64::MAX)
    }

    /// Notes that both threads of a switch are on its CPU. If it is the first CPU known of a
    /// thread, its waiting user-mode switches become rows.
    fn place_threads(&mut self, event: &SwitchEvent, sink: &mut impl FnMut(TraceRow)) {
        let Some(leaving) = event.task else {
            return;
        };
        for task in [Some(leaving), event.next_task].into_iter().flatten() {
            if !self.threads.put(task, event.cpu) || self.unplaced.is_empty() {
                continue;
            }
            for waiting in self.unplaced.remove(&task).unwrap_or_default() {
                let age = event.ts.since(waiting.ts);
                let is_old = age.is_some_and(|age| age > LONGEST_UNPLACED);
                match self.user_switch(waiting).filter(|_| !is_old) {
                    Some(row) => sink(TraceRow::Switch(row)),
                    None => self.unnamed_user += 1,
                }
            }
        }
    }

    /// Returns what no row tells at `end`: waits of tasks in scope that had left their CPU, and runs. A task that is
    /// not in `known` is taken to wait still; whether it could run is not known.
    pub fn open_at(&self, end: Timestamp, known: &[TaskAtEnd]) -> Vec<Open> {
        let by_task: HashMap<TaskKey, &TaskAtEnd> =
            known.iter().map(|task| (task.task, task)).collect();
        let waits = self.last_out.iter().enumerate();
        let mut open: Vec<_> = waits
            .filter_map(|(index, last)| {
                let last = last.as_ref()?;
                if last.reason == Reason::Exit || !last.in_scope {
                    return None;
                }
                let task = TaskKey::new(u32::try_from(index).ok()?);
                // Another switch-out means that it came and went, and its record was lost.
                let known = by_task.get(&task).copied();
                let known = known.filter(|known| known.left == Some(last.ts));
                open_wait(task, last, known, end)
            })
            .collect();
        let runs = known.iter().filter_map(|known| {
            let since = known.runs_since?;
            Some(Open {
                task: known.task,
                reason: None,
                since,
                lasted: end.since(since)?,
                runq: None,
                cpu: Some(known.cpu),
            })
        });
        open.extend(runs);
        open
    }

    fn switch(&mut self, event: &SwitchEvent) -> Option<Switch> {
        let row = self.row(event)?;
        let call = row.evidence.syscall;
        let last = LastOut {
            ts: event.ts,
            reason: row.rule.reason,
            kernel_count: event.kernel_count,
            in_scope: event.in_scope,
            was_runnable: row.evidence.left_runnable(),
            call: call.or_else(|| self.last(row.task)?.call),
            seen: None,
            woken_from: None,
        };
        self.remember(row.task, last);
        Some(row)
    }

    /// Notes where a task waits or who ends its wait, if the switch-out that its wait began with has a row.
    fn look(&mut self, look: LookEvent) {
        let index = usize::try_from(look.task.get()).unwrap_or(usize::MAX);
        let last = self.last_out.get_mut(index).and_then(Option::as_mut);
        let Some(last) = last.filter(|last| last.ts == look.out) else {
            return;
        };
        match look.whose {
            LookedTask::Waiter { between, holder } => {
                // A stack that was cut is read again at the next look, which is not the one that met the wait.
                let between = last.seen.map_or(between, |seen| seen.between);
                last.seen = Some(WaitInLooks {
                    stacks: look.stacks,
                    between,
                    holder,
                });
            }
            LookedTask::Waker => last.woken_from = Some((look.stacks, look.ts)),
        }
    }

    /// The row of a switch-out, which is forgotten at once: the next row of the task says nothing
    /// of it. For who looks at single switches while they are recorded, in any order.
    pub fn row(&mut self, event: &SwitchEvent) -> Option<Switch> {
        let Some(task) = event.task else {
            self.unnamed += 1;
            return None;
        };
        let mut evidence = self.with_restarted_call(event, task);
        let rule = classify(&evidence, &self.calls);
        let ran = self.length(event.run_start, event.ts);
        evidence.need_resched_delay = within_run(evidence.need_resched_delay, ran);
        let wait = self.wait(event, task);
        Some(Switch {
            ts: event.ts,
            cpu: event.cpu,
            task,
            ran,
            irq: event.irq,
            stolen: stolen(ran, event.charged, event.irq),
            rule,
            evidence,
            next_task: event.next_task,
            user_task: event.user_word.and_then(UserWord::task),
            level: Level::Os,
            user: UserSide {
                run: event.user_word.map(UserWord::run),
                ..UserSide::default()
            },
            cgroup: event.cgroup,
            wait,
        })
    }

    /// The row of a switch that a user-mode scheduler reported.
    fn user_switch(&mut self, event: UserSwitchEvent) -> Option<Switch> {
        let Some((task, place)) = self.threads.find(event.tid) else {
            self.unnamed_user += 1;
            return None;
        };
        let Some(cpu) = event.cpu.or(place.cpu) else {
            let waiting = self.unplaced.entry(task).or_default();
            match waiting.len() < MOST_UNPLACED {
                true => waiting.push(event),
                false => self.unnamed_user += 1,
            }
            return None;
        };
        let before = &event.before;
        let wait_rule = self.rule_of(event.wait_type.as_deref());
        // A first run comes after no departure that could have a reason.
        let rule_before = self.rule_of(before.wait_type.as_deref());
        let wait = Wait {
            reason: rule_before
                .filter(|_| before.out.is_some())
                .map(|rule| rule.reason),
            off: self.length(before.out, event.run_start),
            runq: self.length(Some(before.woken), event.run_start),
            ..Wait::default()
        };
        Some(Switch {
            ts: event.ts,
            cpu,
            task,
            ran: self.length(Some(event.run_start), event.ts),
            irq: Nanos::ZERO,
            stolen: Nanos::ZERO,
            rule: classify_user(event.departure, wait_rule),
            evidence: Evidence {
                // No user-mode scheduler takes the CPU away, so each of its switches is voluntary.
                bits: EvidenceBits::VOLUNTARY,
                ..Evidence::RUNNABLE
            },
            next_task: Some(task),
            user_task: event.word.task(),
            level: Level::User,
            user: UserSide {
                run: Some(event.word.run()),
                next_task: event.next_task,
                waker: before.waker,
                wait_type: event.wait_type.and_then(|wait_type| wait_type.number),
                off_wait_type: before
                    .wait_type
                    .as_ref()
                    .and_then(|wait_type| wait_type.number),
            },
            cgroup: place.cgroup,
            wait,
        })
    }

    fn rule_of(&mut self, wait_type: Option<&UserWaitType>) -> Option<&'static Rule> {
        wait_type.map(|wait_type| self.user_rules.of_wait_type(wait_type))
    }

    /// Replaces `restart_syscall` by the call it continues: the kernel resumes a call that a signal
    /// or a stop interrupted, with the same arguments (`do_signal` in `arch/*/kernel/signal.c`).
    fn with_restarted_call(&self, event: &SwitchEvent, task: TaskKey) -> Evidence {
        let mut evidence = event.evidence;
        if evidence.syscall.is_some() && evidence.syscall == self.restart_call {
            evidence.syscall = self
                .last(task)
                .and_then(|last| last.call)
                .or(evidence.syscall);
        }
        evidence
    }

    fn last(&self, task: TaskKey) -> Option<LastOut> {
        let index = usize::try_from(task.get()).unwrap_or(usize::MAX);
        self.last_out.get(index).copied().flatten()
    }

    fn wait(&mut self, event: &SwitchEvent, task: TaskKey) -> Wait {
        let seen = &event.wait;
        let Some(start) = event.run_start else {
            return Wait::default();
        };
        let Some(out) = seen.out else {
            return self.first_wait(seen, start);
        };
        let last = self.last(task);
        // Another moment means that the row of that switch-out was lost or out of scope.
        let last = last.filter(|last| last.ts == out);
        let reason = last.map(|last| last.reason);
        let looked = last.and_then(|last| last.seen);
        let off = self.length(Some(out), start);
        let moved = seen.moved.filter(|moved| *moved > out);
        let wait = Wait {
            reason,
            off,
            moved: moved.and_then(|moved| start.since(moved)),
            stacks: looked.map_or(seen.stacks, |looked| looked.stacks),
            seen_for: looked.and_then(|looked| Some(looked.between.max(off?))),
            holder_stack: looked.and_then(|looked| looked.holder),
            ..Wait::default()
        };
        if seen.was_runnable {
            return Wait { runq: off, ..wait };
        }
        // A wakeup before the run that led to `out` belongs to an earlier wait.
        let Some(woken) = seen.woken else {
            return Wait {
                moved: None,
                ..wait
            };
        };
        let runq = self.length(Some(woken.max(out)), start);
        let mut wakeup = seen.wakeup;
        let woken_from = last.and_then(|last| last.woken_from);
        // A task can be woken twice before it runs: the last one counts.
        if let Some((stacks, _)) = woken_from.filter(|(_, ts)| *ts == woken) {
            wakeup.waker_stacks = stacks;
        }
        Wait {
            runq,
            wakeup,
            // A task that was moved in its sleep was in no run queue then.
            moved: wait
                .moved
                .filter(|moved| runq.is_some_and(|runq| *moved <= runq)),
            ..wait
        }
    }

    /// The wait of a new task for its first run: it never left a CPU, so it has no off-CPU time.
    fn first_wait(&mut self, seen: &WaitEvidence, start: Timestamp) -> Wait {
        let Some(woken) = seen.woken else {
            return Wait::default();
        };
        Wait {
            runq: self.length(Some(woken), start),
            wakeup: seen.wakeup,
            ..Wait::default()
        }
    }

    fn remember(&mut self, task: TaskKey, last: LastOut) {
        let index = usize::try_from(task.get()).unwrap_or(usize::MAX);
        if index >= self.last_out.len() {
            self.last_out.resize(index + 1, None);
        }
        let before = self.last_out[index].replace(last);
        // Out of scope only some runs are recorded, so the count has holes by design.
        if let Some(before) = before.filter(|before| before.in_scope && last.in_scope) {
            let between = last.kernel_count.saturating_sub(before.kernel_count);
            self.uncaught += between.saturating_sub(1);
        }
    }

    fn length(&mut self, start: Option<Timestamp>, end: Timestamp) -> Option<Nanos> {
        let length = end.since(start?);
        if length.is_none() {
            self.backwards += 1;
        }
        length
    }
}

/// The wait that began with a task's last switch-out: until `end`, or until the run that was open then.
fn open_wait(
    task: TaskKey,
    last: &LastOut,
    known: Option<&TaskAtEnd>,
    end: Timestamp,
) -> Option<Open> {
    let until = known.and_then(|known| known.runs_since).unwrap_or(end);
    let lasted = until.since(last.ts)?;
    // Who is not known may run, or be blocked or not.
    let runq = known.and_then(|known| {
        let woken = match last.was_runnable {
            true => last.ts,
            false => known.woken?.max(last.ts),
        };
        until.since(woken)
    });
    Some(Open {
        task,
        reason: Some(last.reason),
        since: last.ts,
        lasted,
        runq,
        cpu: known.map(|known| known.cpu),
    })
}

/// A wakeup that asks for the CPU may have begun before the run that it ends (on another CPU), and it is
/// its beginning that the kernel side writes down.
fn within_run(delay: Option<Nanos>, ran: Option<Nanos>) -> Option<Nanos> {
    delay.map(|delay| ran.map_or(delay, |ran| delay.min(ran)))
}

/// Time of a run that the kernel charged neither to the task nor, as far as was seen, to
/// interrupts. Kernels with `CONFIG_IRQ_TIME_ACCOUNTING` leave interrupts out of the charge. Others
/// charge them; there the result is too small by the interrupt time, never too large.
fn stolen(ran: Option<Nanos>, charged: Option<Nanos>, irq: Nanos) -> Nanos {
    let (Some(ran), Some(charged)) = (ran, charged) else {
        return Nanos::ZERO;
    };
    let missing = ran.saturating_sub(charged).saturating_sub(irq);
    if missing > CHARGE_SKEW {
        missing
    } else {
        Nanos::ZERO
    }
}

#[cfg(test)]
mod tests;
