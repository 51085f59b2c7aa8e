//! Turns tracepoints into the events that the recorder's kernel side would have made. The state
//! that it keeps per task and per CPU is kept here.
//!
//! ```text
//! sched_waking ─▶ which task woke it, and when                (per task, until it runs)
//! sched_switch ─▶ the task that comes: its run begins here    (per CPU)
//!              └▶ the task that leaves: Event::Switch, with all of that
//! ```
//!
//! No conclusion is drawn here. A loss ends all knowledge about waits: tasks may have run
//! meanwhile.

use rustc_hash::FxHashMap;
use swtch_core::{
    Cause, CgroupId, Class, CpuId, Event, Evidence, EvidenceBits as Bits, Gap, Level, Pid,
    SwitchEvent, TaskEvent, TaskEventKind, TaskKey, Tid, Timestamp, WaitEvidence, WakerKind,
    Wakeup,
};

/// `TASK_REPORT_MAX`: the task was preempted inside the kernel (`include/linux/sched.h`, since
/// v4.14).
const REPORT_PREEMPTED: i64 = 0x100;
/// `TASK_REPORT_IDLE`, and the raw state bits for it.
const REPORT_IDLE: i64 = 0x80;
const TASK_IDLE: u32 = 0x402;
/// States of a switch-out of which only a part is told.
const TASK_INTERRUPTIBLE: u32 = 0x1;
const EXIT_DEAD: u32 = 0x10;
/// Bits of `common_flags`: `TRACE_FLAG_HARDIRQ` and `TRACE_FLAG_SOFTIRQ`
/// (`include/linux/trace_events.h`).
pub const IN_INTERRUPT: i64 = 0x08;
pub const IN_SOFT_INTERRUPT: i64 = 0x10;
/// Thread id of `kthreadd`, the parent of all kernel threads.
const KTHREADD: u32 = 2;
/// What `perf_event_pid` says of a thread that was reaped before it left (`kernel/events/core.c`, v6.18).
const NO_THREAD: u32 = u32::MAX;
/// Priorities below this are real-time (`MAX_RT_PRIO`).
const FIRST_FAIR_PRIO: i64 = 100;

/// One side of a `sched_switch`: the task that leaves or comes.
#[derive(Clone, Copy, Debug)]
pub struct SwitchSide<'a> {
    /// Thread id; 0 is idle.
    pub tid: u32,
    /// Name of the task, without the terminating NUL.
    pub comm: &'a [u8],
    /// Priority in the kernel's numbers: 100 and above is fair.
    pub prio: i64,
}

/// The place and moment of an event, and the task that ran there.
#[derive(Clone, Copy, Debug)]
pub struct EventContext {
    /// Moment of the event, on the file's clock.
    pub ts: Timestamp,
    pub cpu: CpuId,
    /// Process id and thread id of the task that ran there.
    pub current: (u32, u32),
    /// The field `common_flags` of the tracepoint.
    pub flags: i64,
}

/// How a thread left, as far as `PERF_RECORD_SWITCH` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DepartureKind {
    /// It could have run on.
    Runnable,
    /// It slept, in a state that is not told.
    Asleep,
    /// It ended.
    Ended,
}

impl DepartureKind {
    fn to_evidence(self) -> Evidence {
        let voluntary = Bits::NO_CALL.with(Bits::VOLUNTARY);
        let (state, bits) = match self {
            Self::Runnable => (0, Bits::NO_CALL),
            Self::Asleep => (TASK_INTERRUPTIBLE, voluntary),
            Self::Ended => (EXIT_DEAD, voluntary),
        };
        Evidence {
            state,
            bits,
            cause: Cause::NoHook,
            ..Evidence::RUNNABLE
        }
    }
}

/// State of all tasks and CPUs.
#[derive(Debug, Default)]
pub struct SchedulerState {
    tasks: FxHashMap<u32, ImportedTask>,
    cpus: FxHashMap<CpuId, CpuState>,
    last_key: u32,
    /// True if switches are told by records of the threads that were asked for, which do not say who comes next.
    only_own: bool,
    /// Events that go on to the time line, in order.
    events: Vec<Event>,
    /// The counts so far.
    pub counts: ImportCounts,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct ImportCounts {
    /// Switches at which a task left.
    pub switches: u64,
    /// Switches at which the idle task left.
    pub idle: u64,
    /// Switches at which a different task left than the one that had come.
    pub untraced: u64,
    /// Switch-outs of tasks whose run was not seen to begin.
    pub unstarted: u64,
}

#[derive(Clone, Copy, Debug)]
struct CpuState {
    running: Option<(u32, Timestamp)>,
    last: Timestamp,
}

#[derive(Debug)]
struct ImportedTask {
    key: TaskKey,
    pid: u32,
    parent: u32,
    comm: Vec<u8>,
    started: Timestamp,
    is_told: bool,
    is_ending: bool,
    switches: u64,
    /// The wait that is going on, or the wakeup that came before the task has left.
    wait: WaitEvidence,
    /// The wait before its current run; `None` while it does not run.
    before_run: Option<WaitEvidence>,
}

impl SchedulerState {
    /// The events since the last call.
    pub fn take_events(&mut self) -> std::vec::Drain<'_, Event> {
        self.events.drain(..)
    }

    /// Takes a `sched_switch`; `state` is its `prev_state`.
    pub fn switch(
        &mut self,
        at: EventContext,
        prev: SwitchSide<'_>,
        state: i64,
        next: SwitchSide<'_>,
    ) {
        let coming = (next.tid != 0).then(|| self.meet(next.tid, None, next.comm, at.ts));
        let coming = coming.unwrap_or(TaskKey::IDLE);
        let pid = (at.current.1 == prev.tid).then_some(at.current.0);
        self.leave(at, prev, pid, Some(coming), |state_of| {
            state_of.evidence(prev, state, next)
        });
        self.come(at, next.tid);
    }

    /// Takes a `PERF_RECORD_SWITCH` of the thread that leaves. `next` is told in recordings of whole CPUs only.
    pub fn depart(&mut self, at: EventContext, how: DepartureKind, next: Option<u32>) {
        let (pid, tid) = at.current;
        self.only_own |= next.is_none();
        let coming = next.map(|tid| match tid {
            0 => TaskKey::IDLE,
            tid => self.meet(tid, None, &[], at.ts),
        });
        let running = self.cpus.get(&at.cpu).and_then(|lane| lane.running);
        let (tid, pid) = match running {
            Some((running, _)) if tid == NO_THREAD => (running, None),
            _ => (tid, Some(pid)),
        };
        let how = match self.tasks.get(&tid) {
            Some(task) if task.is_ending && how == DepartureKind::Asleep => DepartureKind::Ended,
            _ => how,
        };
        let prev = SwitchSide {
            tid,
            comm: &[],
            prio: FIRST_FAIR_PRIO,
        };
        self.leave(at, prev, pid, coming, |_| how.to_evidence());
        self.cpus.insert(
            at.cpu,
            CpuState {
                running: None,
                last: at.ts,
            },
        );
    }

    /// Takes a `PERF_RECORD_SWITCH` of the thread that comes.
    pub fn arrive(&mut self, at: EventContext) {
        let (pid, tid) = at.current;
        if tid != 0 {
            self.meet(tid, Some(pid), &[], at.ts);
        }
        self.come(at, tid);
    }

    /// A thread leaves its CPU.
    fn leave(
        &mut self,
        at: EventContext,
        prev: SwitchSide<'_>,
        pid: Option<u32>,
        coming: Option<TaskKey>,
        evidence: impl FnOnce(&Self) -> Evidence,
    ) {
        let lane = self.cpus.get(&at.cpu).and_then(|lane| lane.running);
        let since = lane.filter(|lane| lane.0 == prev.tid).map(|lane| lane.1);
        self.counts.untraced += u64::from(lane.is_some() && since.is_none());
        if prev.tid == 0 {
            self.counts.idle += 1;
            return;
        }
        self.counts.switches += 1;
        self.counts.unstarted += u64::from(since.is_none());
        let leaving = self.meet(prev.tid, pid, prev.comm, at.ts);
        let evidence = evidence(self);
        let event = SwitchEvent {
            task: Some(leaving),
            next_task: coming,
            ..self.switch_out(at, prev.tid, since, evidence)
        };
        self.events.push(Event::Switch(event));
    }

    /// A thread runs on this CPU from now on.
    pub fn come(&mut self, at: EventContext, tid: u32) {
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.before_run = Some(std::mem::take(&mut task.wait));
        }
        let running = Some((tid, at.ts));
        let last = at.ts;
        self.cpus.insert(at.cpu, CpuState { running, last });
    }

    /// Takes a `sched_waking`, `sched_wakeup` or `sched_wakeup_new`.
    pub fn wake(&mut self, at: EventContext, woken: SwitchSide<'_>, target: CpuId) {
        let waker = match at.current.1 {
            0 => TaskKey::IDLE,
            tid => self.meet(tid, Some(at.current.0), &[], at.ts),
        };
        self.meet(woken.tid, None, woken.comm, at.ts);
        let kind = if at.flags & IN_INTERRUPT != 0 {
            WakerKind::Interrupt
        } else if at.flags & IN_SOFT_INTERRUPT != 0 {
            WakerKind::SoftIrq
        } else {
            WakerKind::Task
        };
        if let Some(task) = self
            .tasks
            .get_mut(&woken.tid)
            .filter(|task| !task.is_woken())
        {
            task.wait.woken = Some(at.ts);
            task.wait.wakeup = Wakeup {
                waker: Some(waker),
                kind: Some(kind),
                cpu: Some(target),
                ..Wakeup::default()
            };
        }
    }

    /// The file does not tell what follows the last switch-out of this thread.
    pub fn forget_wait(&mut self, tid: u32) {
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.wait = WaitEvidence::default();
        }
    }

    /// Takes a `sched_migrate_task` of this thread.
    pub fn migrate(&mut self, at: EventContext, tid: u32) {
        if let Some(task) = self.tasks.get_mut(&tid) {
            task.wait.moved = Some(at.ts);
        }
    }

    /// A new thread. If `ts` is 0, perf found it in `/proc`: it was there before.
    pub fn fork(&mut self, ts: Timestamp, tid: u32, pid: u32, parent: u32) {
        self.last_key += 1;
        let key = TaskKey::new(self.last_key);
        let comm = self
            .tasks
            .get(&parent)
            .map_or_else(Vec::new, |task| task.comm.clone());
        let is_new = ts > Timestamp::default();
        let task = ImportedTask {
            pid,
            parent,
            comm,
            started: ts,
            ..ImportedTask::new(key)
        };
        self.tasks.insert(tid, task);
        if is_new {
            self.tell(tid, TaskEventKind::Fork, ts);
        }
    }

    /// Takes the name of a thread, as perf recorded it.
    pub fn name(&mut self, ts: Timestamp, tid: u32, pid: u32, comm: &[u8], kind: TaskEventKind) {
        let task = self.task(tid);
        task.pid = pid;
        comm.clone_into(&mut task.comm);
        if task.is_told {
            self.tell(tid, kind, ts);
        }
    }

    /// A thread is about to end: its last switch-out is still to come, except where only own switches are told (`at` is
    /// the place of the record, if that is known).
    pub fn exit(&mut self, ts: Timestamp, tid: u32, at: Option<EventContext>) {
        let Some(task) = self.tasks.get_mut(&tid).filter(|task| task.is_told) else {
            return;
        };
        task.is_ending = true;
        self.tell(tid, TaskEventKind::Exit, ts);
        if let Some(at) = at.filter(|_| self.only_own) {
            self.depart(at, DepartureKind::Ended, None);
        }
    }

    /// Records were lost, on this CPU if it is known.
    pub fn lose(&mut self, ts: Timestamp, cpu: Option<CpuId>, lost: u64) -> Gap {
        let lane = cpu.and_then(|cpu| self.cpus.get(&cpu));
        let start = lane.map_or(ts, |lane| lane.last.min(ts));
        match cpu {
            Some(cpu) => drop(self.cpus.remove(&cpu)),
            None => self.cpus.clear(),
        }
        for task in self.tasks.values_mut() {
            task.wait = WaitEvidence::default();
        }
        Gap {
            cpu: cpu.unwrap_or_default(),
            start,
            end: ts,
            lost,
            level: Level::Os,
        }
    }

    /// The switch-out, without the two tasks.
    fn switch_out(
        &mut self,
        at: EventContext,
        tid: u32,
        since: Option<Timestamp>,
        evidence: Evidence,
    ) -> SwitchEvent {
        let mut kernel_count = 0;
        let mut wait = None;
        if let Some(task) = self.tasks.get_mut(&tid) {
            wait = task.before_run.take().filter(|_| since.is_some());
            task.switches += 1;
            kernel_count = task.switches;
            task.wait.out = Some(at.ts);
            task.wait.was_runnable = evidence.state == 0 || evidence.bits.has(Bits::KERNEL_PREEMPT);
            // The start of this run was not seen, so the last wakeup may belong to this run. Seen
            // with `perf sched record -- CMD`, which moves itself and then sleeps until CMD ends.
            if since.is_none() && !task.wait.was_runnable {
                task.wait.woken = None;
            }
        }
        SwitchEvent {
            ts: at.ts,
            cpu: at.cpu,
            task: None,
            next_task: None,
            run_start: since,
            charged: None,
            irq: swtch_core::Nanos::ZERO,
            evidence,
            cgroup: CgroupId::new(0),
            user_word: None,
            wait: wait.unwrap_or_default(),
            kernel_count,
            in_scope: true,
        }
    }

    fn evidence(&self, prev: SwitchSide<'_>, state: i64, next: SwitchSide<'_>) -> Evidence {
        let mut bits = Bits::NO_CALL;
        let raw = raw_state(state);
        if state & REPORT_PREEMPTED != 0 {
            bits = bits.with(Bits::KERNEL_PREEMPT);
        } else if raw != 0 {
            bits = bits.with(Bits::VOLUNTARY);
        }
        if self.is_kthread(prev.tid) {
            bits = bits.with(Bits::KTHREAD);
        }
        let next_class = self.class(next);
        if next_class == Class::Stop {
            bits = bits.with(Bits::NEXT_STOPPER);
        }
        Evidence {
            state: raw,
            bits,
            cause: Cause::NoHook,
            class: self.class(prev),
            prio: narrow(prev.prio),
            next_class,
            next_prio: narrow(next.prio),
            ..Evidence::RUNNABLE
        }
    }

    /// The scheduling class, by priority. The stopper has the priority of a real-time task, and a
    /// name that counts only if it is a kernel thread.
    fn class(&self, side: SwitchSide<'_>) -> Class {
        if side.tid == 0 {
            return Class::Idle;
        }
        let is_stopper = side.prio == 0 && side.comm.starts_with(b"migration/");
        match side.prio {
            _ if is_stopper && self.is_kthread(side.tid) => Class::Stop,
            ..0 => Class::Deadline,
            0..FIRST_FAIR_PRIO => Class::RealTime,
            _ => Class::Fair,
        }
    }

    fn is_kthread(&self, tid: u32) -> bool {
        let parent = self.tasks.get(&tid).map(|task| task.parent);
        tid == KTHREADD || parent == Some(KTHREADD)
    }

    /// The task with this id, which is reported at its first switch or wakeup.
    fn meet(&mut self, tid: u32, pid: Option<u32>, comm: &[u8], ts: Timestamp) -> TaskKey {
        let task = self.task(tid);
        let key = task.key;
        let is_renamed = !comm.is_empty() && task.comm != comm;
        let is_moved = pid.is_some_and(|pid| task.pid != pid);
        if is_renamed {
            comm.clone_into(&mut task.comm);
        }
        task.pid = pid.unwrap_or(if task.pid == 0 { tid } else { task.pid });
        if !task.is_told {
            self.tell(tid, TaskEventKind::Seen, ts);
        } else if is_renamed || is_moved {
            self.tell(tid, TaskEventKind::Rename, ts);
        }
        key
    }

    fn tell(&mut self, tid: u32, kind: TaskEventKind, ts: Timestamp) {
        let is_kthread = self.is_kthread(tid);
        let Some(task) = self.tasks.get_mut(&tid) else {
            return;
        };
        task.is_told = true;
        self.events.push(Event::Task(TaskEvent {
            ts,
            kind,
            task: task.key,
            tid: Tid::new(tid),
            pid: Pid::new(task.pid),
            parent_pid: Pid::new(task.parent),
            started_ns: task.started.as_ns(),
            comm: task.comm.clone(),
            cgroup: CgroupId::new(0),
            class: Class::Fair,
            prio: 120,
            is_kthread,
            in_scope: true,
            voluntary_switches: 0,
            involuntary_switches: 0,
        }));
    }

    fn task(&mut self, tid: u32) -> &mut ImportedTask {
        self.tasks.entry(tid).or_insert_with(|| {
            self.last_key += 1;
            ImportedTask::new(TaskKey::new(self.last_key))
        })
    }
}

impl ImportedTask {
    /// Returns true if it was woken since it left: another wakeup before it runs changes nothing. A wakeup from before
    /// it left is replaced by the next one, as the task may have gone on running.
    fn is_woken(&self) -> bool {
        let is_since_it_left = |woken| self.wait.out.is_none_or(|out| woken >= out);
        self.before_run.is_none() && self.wait.woken.is_some_and(is_since_it_left)
    }

    fn new(key: TaskKey) -> Self {
        Self {
            key,
            pid: 0,
            parent: 0,
            comm: Vec::new(),
            started: Timestamp::default(),
            is_told: false,
            is_ending: false,
            switches: 0,
            wait: WaitEvidence::default(),
            before_run: None,
        }
    }
}

/// The scheduler's state bits for those that the tracepoint reports.
fn raw_state(state: i64) -> u32 {
    if state & REPORT_PREEMPTED != 0 {
        return 0;
    }
    if state & REPORT_IDLE != 0 {
        return TASK_IDLE;
    }
    u32::try_from(state & 0x7f).unwrap_or(0)
}

fn narrow(prio: i64) -> i16 {
    i16::try_from(prio).unwrap_or(i16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use swtch_core::timeline::TraceRow;
    use swtch_core::{Arch, Certainty, Reason, Switch, SyscallTable, Timeline};

    const RUNNABLE: i64 = 0;
    const SLEEPS: i64 = 1;
    const DEAD: i64 = 0x10;

    fn side(tid: u32) -> SwitchSide<'static> {
        SwitchSide {
            tid,
            comm: b"a",
            prio: 120,
        }
    }

    fn at(us: u64, cpu: u16, current: u32) -> EventContext {
        EventContext {
            ts: Timestamp::from_ns(us * 1_000),
            cpu: CpuId::new(cpu),
            current: (current, current),
            flags: 0,
        }
    }

    fn rows(scheduler: &mut SchedulerState) -> Vec<Switch> {
        let mut timeline = Timeline::new(SyscallTable::of(Arch::X86_64));
        let mut rows = Vec::new();
        for event in scheduler.take_events() {
            timeline.push(event, |row| match row {
                TraceRow::Switch(switch) => rows.push(switch),
                TraceRow::Task(_) => {}
            });
        }
        rows
    }

    fn us(length: Option<swtch_core::Nanos>) -> Option<u64> {
        length.map(|length| length.as_ns() / 1_000)
    }

    /// ```text
    /// cpu 0  ├ 1 ┤10 ─ idle ─ 60├ 1 ┤90        2 on cpu 1 wakes 1 at 50
    /// ```
    #[test]
    fn a_wait_is_split_at_the_wakeup() {
        let mut scheduler = SchedulerState::default();
        scheduler.switch(at(0, 0, 0), side(0), RUNNABLE, side(1));
        scheduler.switch(at(10, 0, 1), side(1), SLEEPS, side(0));
        scheduler.wake(at(50, 1, 2), side(1), CpuId::new(0));
        scheduler.switch(at(60, 0, 0), side(0), RUNNABLE, side(1));
        scheduler.switch(at(90, 0, 1), side(1), DEAD, side(0));
        let rows = rows(&mut scheduler);
        let [first, second] = rows.as_slice() else {
            panic!("two rows, not {}", rows.len())
        };
        assert_eq!(us(first.ran), Some(10));
        assert_eq!(first.rule.name, "call_not_told");
        assert_eq!(first.rule.reason, Reason::Blocked);
        assert_eq!(us(second.ran), Some(30));
        assert_eq!(
            [us(second.wait.off), us(second.wait.runq)],
            [Some(50), Some(10)]
        );
        assert_eq!(second.rule.reason, Reason::Exit);
        assert_eq!(scheduler.counts.idle, 2);
    }

    /// The first wakeup makes it runnable.
    #[test]
    fn a_second_wakeup_before_the_run_changes_nothing() {
        let mut scheduler = SchedulerState::default();
        scheduler.switch(at(0, 0, 0), side(0), RUNNABLE, side(1));
        // It was still about to sleep, and went on: this wakeup is forgotten.
        scheduler.wake(at(5, 1, 2), side(1), CpuId::new(0));
        scheduler.switch(at(10, 0, 1), side(1), SLEEPS, side(0));
        scheduler.wake(at(40, 1, 2), side(1), CpuId::new(0));
        scheduler.wake(at(55, 1, 2), side(1), CpuId::new(0));
        scheduler.switch(at(60, 0, 0), side(0), RUNNABLE, side(1));
        scheduler.switch(at(90, 0, 1), side(1), SLEEPS, side(0));
        assert_eq!(us(rows(&mut scheduler)[1].wait.runq), Some(20));
    }

    /// It is not known whether the CPU was taken or offered, but the task did not block.
    #[test]
    fn who_left_runnable_left_involuntarily() {
        let mut scheduler = SchedulerState::default();
        scheduler.switch(at(0, 0, 0), side(0), RUNNABLE, side(1));
        scheduler.switch(at(10, 0, 1), side(1), RUNNABLE, side(2));
        let rows = rows(&mut scheduler);
        assert_eq!(rows[0].rule.reason, Reason::Preempted);
        assert_eq!(rows[0].rule.certainty, Certainty::Inferred);
        let real_time = SwitchSide {
            prio: 50,
            ..side(3)
        };
        scheduler.switch(at(20, 0, 2), side(2), RUNNABLE, real_time);
        assert_eq!(self::rows(&mut scheduler)[0].rule.reason, Reason::Class);
    }

    /// The task may have run and left again within the loss.
    #[test]
    fn no_length_reaches_over_a_loss() {
        let mut scheduler = SchedulerState::default();
        scheduler.switch(at(0, 0, 0), side(0), RUNNABLE, side(1));
        scheduler.switch(at(10, 0, 1), side(1), SLEEPS, side(2));
        let gap = scheduler.lose(Timestamp::from_ns(50_000), Some(CpuId::new(0)), 7);
        assert_eq!((gap.start.as_ns(), gap.lost), (10_000, 7));
        scheduler.switch(at(60, 0, 2), side(2), SLEEPS, side(1));
        scheduler.switch(at(90, 0, 1), side(1), SLEEPS, side(0));
        let rows = rows(&mut scheduler);
        let lengths: Vec<_> = rows
            .iter()
            .map(|row| (us(row.ran), us(row.wait.off)))
            .collect();
        assert_eq!(lengths, [(Some(10), None), (None, None), (Some(30), None)]);
    }

    /// Anybody can choose a name; only a kernel thread is the stopper.
    #[test]
    fn a_name_alone_makes_no_stopper() {
        let mut scheduler = SchedulerState::default();
        let stopper = SwitchSide {
            comm: b"migration/0",
            prio: 0,
            ..side(18)
        };
        scheduler.switch(at(0, 0, 0), side(0), RUNNABLE, side(1));
        scheduler.switch(at(10, 0, 1), side(1), RUNNABLE, stopper);
        assert_eq!(rows(&mut scheduler)[0].rule.reason, Reason::Class);
        scheduler.fork(Timestamp::default(), 18, 18, KTHREADD);
        scheduler.switch(at(20, 0, 18), stopper, SLEEPS, side(1));
        scheduler.switch(at(30, 0, 1), side(1), RUNNABLE, stopper);
        assert_eq!(rows(&mut scheduler)[1].rule.reason, Reason::Migrate);
    }
}
