//! Turns records of perf, in order of time, into the events that the eBPF programs would have made,
//! as far as they go. What a thread did last is kept here.
//!
//! ```text
//!   in ──── run ────▶ out (blocked, preempted) ──── wait ────▶ in ──── run ────▶ out
//!                      └ Event::Switch, with the run before it and the wait before that
//! ```
//!
//! The last switch-out of a thread has no record, because its events are taken from it before. The
//! record of its exit stands for that: it comes some microseconds earlier.
//!
//! No conclusion is drawn here. After a loss nothing is known of any wait or run: a thread may have
//! run meanwhile.

use rustc_hash::FxHashMap;
use swtch_core::{
    Cause, CgroupId, Class, CpuId, Event, Evidence, EvidenceBits, LookEvent, LookedTask, Nanos,
    Pid, StackNumbers, SwitchEvent, TaskEvent, TaskEventKind, TaskKey, Tid, Timestamp,
    WaitEvidence,
};

use crate::perf_record::{PerfRecord, PerfRecordKind};

/// `TASK_INTERRUPTIBLE`: the record says that a thread sleeps, and not how.
const ASLEEP: u32 = 1;

/// The state in which a task leaves for ever (`include/linux/sched.h`).
const TASK_DEAD: u32 = 0x80;

/// The state of all threads.
#[derive(Debug, Default)]
pub struct PerfThreads {
    threads: FxHashMap<Pid, PerfThread>,
    last_key: u32,
    /// Number of switch-outs that were there a second time.
    twice: u64,
}

#[derive(Debug)]
struct PerfThread {
    key: TaskKey,
    pid: Pid,
    parent: Pid,
    comm: Vec<u8>,
    started: Timestamp,
    /// Number of switch-outs so far.
    switches: u64,
    place: Place,
    /// The wait before the run that goes on.
    before_run: WaitEvidence,
}

/// The place of a thread, by its last record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Nothing was seen yet, or records were lost since.
    NotSeen,
    /// On a CPU since this moment.
    Running(Timestamp),
    /// Off the CPU since this moment.
    Waiting { since: Timestamp, is_runnable: bool },
}

impl PerfThreads {
    /// Number of records of switch-outs that are no switches: the thread's events were opened twice.
    pub const fn twice(&self) -> u64 {
        self.twice
    }

    /// Takes the next record, and passes on the events that come of it.
    pub fn push(&mut self, record: &PerfRecord, mut keep: impl FnMut(Event)) {
        match record.kind {
            PerfRecordKind::In => self.come(record, &mut keep),
            PerfRecordKind::Blocked | PerfRecordKind::Preempted => self.leave(record, &mut keep),
            PerfRecordKind::Name => self.name(record, TaskEventKind::Rename, &mut keep),
            PerfRecordKind::Exec => self.name(record, TaskEventKind::Exec, &mut keep),
            PerfRecordKind::Fork => self.fork(record, &mut keep),
            PerfRecordKind::Exit => {
                let exit = self
                    .meet(record, &mut keep)
                    .told(record, TaskEventKind::Exit);
                keep(exit);
                self.leave(record, &mut keep);
            }
            PerfRecordKind::Look => self.look(record, &mut keep),
            PerfRecordKind::Lost => {
                for thread in self.threads.values_mut() {
                    thread.place = Place::NotSeen;
                }
            }
        }
    }

    fn come(&mut self, record: &PerfRecord, keep: &mut impl FnMut(Event)) {
        let thread = self.meet(record, keep);
        // A thread whose events were opened twice (it was started while its process was looked
        // through) has each record twice.
        thread.before_run = match thread.place {
            Place::Running(_) => return,
            Place::NotSeen => WaitEvidence::default(),
            Place::Waiting { since, is_runnable } => WaitEvidence {
                out: Some(since),
                was_runnable: is_runnable,
                ..WaitEvidence::default()
            },
        };
        thread.place = Place::Running(record.ts);
    }

    fn leave(&mut self, record: &PerfRecord, keep: &mut impl FnMut(Event)) {
        let is_runnable = record.kind == PerfRecordKind::Preempted;
        let thread = self.meet(record, keep);
        let run_start = match thread.place {
            Place::Waiting { .. } if record.kind != PerfRecordKind::Exit => {
                self.twice += 1;
                return;
            }
            Place::Waiting { .. } => None,
            Place::Running(since) => Some(since),
            Place::NotSeen => None,
        };
        thread.switches += 1;
        keep(Event::Switch(SwitchEvent {
            ts: record.ts,
            cpu: CpuId::new(record.cpu),
            task: Some(thread.key),
            next_task: None,
            run_start,
            charged: None,
            irq: Nanos::ZERO,
            evidence: evidence(record.kind),
            cgroup: CgroupId::new(0),
            user_word: None,
            wait: std::mem::take(&mut thread.before_run),
            kernel_count: thread.switches,
            in_scope: true,
        }));
        thread.place = Place::Waiting {
            since: record.ts,
            is_runnable,
        };
    }

    /// Only a wait of which the beginning is known has a place.
    fn look(&self, record: &PerfRecord, keep: &mut impl FnMut(Event)) {
        let Some(thread) = self.threads.get(&record.tid) else {
            return;
        };
        let Place::Waiting { since, .. } = thread.place else {
            return;
        };
        let (stack, between) = record.look();
        keep(Event::Look(LookEvent {
            ts: record.ts,
            task: thread.key,
            out: since,
            whose: LookedTask::Waiter {
                between,
                holder: None,
            },
            stacks: StackNumbers {
                kernel: None,
                user: Some(stack),
            },
        }));
    }

    fn name(&mut self, record: &PerfRecord, kind: TaskEventKind, keep: &mut impl FnMut(Event)) {
        let is_known = self.threads.contains_key(&record.tid);
        let thread = self.thread(record);
        record.name().clone_into(&mut thread.comm);
        thread.pid = record.pid;
        let kind = if is_known { kind } else { TaskEventKind::Seen };
        keep(thread.told(record, kind));
    }

    /// A new thread, even if its id was used before.
    fn fork(&mut self, record: &PerfRecord, keep: &mut impl FnMut(Event)) {
        let parent = Pid::new(u32::try_from(record.number).unwrap_or(0));
        // The name of the thread that made it is not told: that of the first of its process is.
        let maker = self.threads.get(&parent);
        let comm = maker.map_or_else(Vec::new, |maker| maker.comm.clone());
        self.threads.remove(&record.tid);
        let thread = self.thread(record);
        (thread.parent, thread.comm, thread.started) = (parent, comm, record.ts);
        keep(thread.told(record, TaskEventKind::Fork));
    }

    /// The thread of a switch, which is told of when it is met first.
    fn meet(&mut self, record: &PerfRecord, keep: &mut impl FnMut(Event)) -> &mut PerfThread {
        let is_new = !self.threads.contains_key(&record.tid);
        let thread = self.thread(record);
        if is_new {
            keep(thread.told(record, TaskEventKind::Seen));
        }
        thread
    }

    fn thread(&mut self, record: &PerfRecord) -> &mut PerfThread {
        let last_key = &mut self.last_key;
        self.threads.entry(record.tid).or_insert_with(|| {
            *last_key += 1;
            PerfThread {
                key: TaskKey::new(*last_key),
                pid: record.pid,
                parent: Pid::new(0),
                comm: Vec::new(),
                started: Timestamp::default(),
                switches: 0,
                place: Place::NotSeen,
                before_run: WaitEvidence::default(),
            }
        })
    }
}

impl PerfThread {
    fn told(&self, record: &PerfRecord, kind: TaskEventKind) -> Event {
        Event::Task(TaskEvent {
            ts: record.ts,
            kind,
            task: self.key,
            tid: Tid::new(record.tid.get()),
            pid: self.pid,
            parent_pid: self.parent,
            started_ns: self.started.as_ns(),
            comm: self.comm.clone(),
            cgroup: CgroupId::new(0),
            class: Class::Fair,
            prio: 120,
            is_kthread: false,
            in_scope: true,
            voluntary_switches: 0,
            involuntary_switches: 0,
        })
    }
}

/// Returns what a switch-out says of its reason.
fn evidence(kind: PerfRecordKind) -> Evidence {
    let voluntary = EvidenceBits::NO_CALL.with(EvidenceBits::VOLUNTARY);
    let (state, bits) = match kind {
        PerfRecordKind::Preempted => (0, EvidenceBits::NO_CALL),
        PerfRecordKind::Exit => (TASK_DEAD, voluntary),
        _ => (ASLEEP, voluntary),
    };
    Evidence {
        state,
        bits,
        cause: Cause::NoHook,
        ..Evidence::RUNNABLE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use swtch_core::timeline::TraceRow;
    use swtch_core::{Arch, Reason, Switch, SyscallTable, Timeline};

    fn record(ns: u64, kind: PerfRecordKind, tid: u32) -> PerfRecord {
        PerfRecord {
            kind,
            cpu: 1,
            ..PerfRecord::named(Timestamp::from_ns(ns), Pid::new(7), Pid::new(tid), b"work")
        }
    }

    /// The rows that come of these records.
    fn rows(records: &[PerfRecord]) -> (Vec<Switch>, Vec<TaskEvent>) {
        let mut threads = PerfThreads::default();
        let mut timeline = Timeline::new(SyscallTable::of(Arch::X86_64));
        let (mut switches, mut tasks) = (Vec::new(), Vec::new());
        for record in records {
            threads.push(record, |event| {
                timeline.push(event, |row| match row {
                    TraceRow::Switch(switch) => switches.push(switch),
                    TraceRow::Task(task) => tasks.push(task),
                });
            });
        }
        assert_eq!(timeline.uncaught(), 0);
        (switches, tasks)
    }

    use PerfRecordKind::{Blocked, Exec, Exit, Fork, In, Lost, Name, Preempted};

    #[test]
    fn runs_and_waits_have_their_lengths() {
        let (switches, tasks) = rows(&[
            record(0, Name, 7),
            record(10, In, 7),
            record(30, Blocked, 7),
            record(100, In, 7),
            record(140, Preempted, 7),
            record(150, In, 7),
            record(160, Blocked, 7),
        ]);
        let lengths: Vec<_> = switches
            .iter()
            .map(|s| {
                (
                    s.ran.map(Nanos::as_ns),
                    s.wait.off.map(Nanos::as_ns),
                    s.wait.runq.map(Nanos::as_ns),
                )
            })
            .collect();
        assert_eq!(
            lengths,
            [
                (Some(20), None, None),
                (Some(40), Some(70), None),
                // It could run all the time that it waited.
                (Some(10), Some(10), Some(10)),
            ]
        );
        let reasons: Vec<_> = switches.iter().map(|s| s.rule.reason).collect();
        assert_eq!(
            reasons,
            [Reason::Blocked, Reason::Preempted, Reason::Blocked]
        );
        assert_eq!(tasks.len(), 1);
        assert_eq!(tasks[0].comm, b"work");
    }

    /// The recording begins in the middle of a run.
    #[test]
    fn a_run_that_began_before_has_no_length() {
        let (switches, tasks) = rows(&[
            record(30, Blocked, 7),
            record(40, In, 7),
            record(50, Blocked, 7),
        ]);
        assert_eq!(switches[0].ran, None);
        assert_eq!(switches[1].ran, Some(Nanos::from_ns(10)));
        assert_eq!(tasks[0].kind, TaskEventKind::Seen);
    }

    /// A look at a thread that has come back meanwhile, or of which nothing is known, is of no wait.
    #[test]
    fn a_wait_has_the_place_in_which_it_was_seen() {
        let look = |ns, tid, stack| {
            let thread = (Pid::new(7), Pid::new(tid));
            let between = Nanos::from_ns(20_000_000);
            PerfRecord::looked_at(Timestamp::from_ns(ns), thread, stack, between)
        };
        let (switches, _) = rows(&[
            look(5, 7, 1),
            record(10, Blocked, 7),
            look(20, 7, 2),
            record(30, In, 7),
            look(40, 7, 3),
            record(50, Blocked, 7),
            record(60, In, 7),
            record(70, Blocked, 7),
        ]);
        let seen = switches.iter().map(|switch| {
            let seen_for = switch.wait.seen_for.map(Nanos::as_ns);
            (switch.wait.stacks.user, seen_for)
        });
        let seen: Vec<_> = seen.collect();
        assert_eq!(
            seen,
            [(None, None), (Some(2), Some(20_000_000)), (None, None)]
        );
    }

    #[test]
    fn records_that_come_twice_count_once() {
        let twice: Vec<_> = [
            record(10, In, 7),
            record(30, Blocked, 7),
            record(40, In, 7),
            record(45, Preempted, 7),
        ]
        .into_iter()
        .flat_map(|record| {
            [
                record,
                PerfRecord {
                    ts: Timestamp::from_ns(record.ts.as_ns() + 1),
                    ..record
                },
            ]
        })
        .collect();
        let (switches, _) = rows(&twice);
        let lengths: Vec<_> = switches.iter().map(|s| s.ran.map(Nanos::as_ns)).collect();
        assert_eq!(lengths, [Some(20), Some(5)]);
        let mut threads = PerfThreads::default();
        twice.iter().for_each(|record| threads.push(record, |_| {}));
        assert_eq!(threads.twice(), 2);
    }

    #[test]
    fn after_a_loss_no_length_is_told() {
        let (switches, _) = rows(&[
            record(10, In, 7),
            record(20, Lost, 7),
            record(30, Blocked, 7),
            record(35, Lost, 7),
            record(40, In, 7),
            record(50, Blocked, 7),
        ]);
        assert_eq!(switches[0].ran, None);
        assert_eq!(
            (switches[1].ran, switches[1].wait.off),
            (Some(Nanos::from_ns(10)), None)
        );
    }

    /// An id that is used again within a recording is another task.
    #[test]
    fn a_thread_id_that_is_used_again_is_another_task() {
        let fork = PerfRecord {
            number: 7,
            ..record(5, Fork, 8)
        };
        let (switches, tasks) = rows(&[
            record(0, Name, 7),
            fork,
            record(6, In, 8),
            record(7, Exec, 8),
            record(9, Exit, 8),
            PerfRecord {
                ts: Timestamp::from_ns(20),
                ..fork
            },
            record(21, In, 8),
            record(22, Blocked, 8),
        ]);
        let keys: Vec<_> = switches.iter().map(|s| s.task.get()).collect();
        assert_eq!(keys, [2, 3]);
        assert_eq!(switches[0].rule.reason, Reason::Exit);
        assert_eq!(switches[0].ran, Some(Nanos::from_ns(3)));
        assert_eq!(switches[1].wait.off, None, "it has not run before");
        let kinds: Vec<_> = tasks.iter().map(|task| task.kind).collect();
        use TaskEventKind as Kind;
        assert_eq!(
            kinds,
            [Kind::Seen, Kind::Fork, Kind::Exec, Kind::Exit, Kind::Fork]
        );
        assert_eq!(
            tasks[1].comm, b"work",
            "a new task has the name of the one that made it"
        );
    }
}
