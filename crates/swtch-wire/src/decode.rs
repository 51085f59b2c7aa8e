//! Decodes records into events: the only file that reads the fields of [`layout`](crate::layout).

use swtch_core::{
    Cause, CgroupId, Class, CpuId, Event, Evidence, EvidenceBits, Nanos, Pid, StackNumbers,
    SwitchEvent, TaskEvent, TaskEventKind, TaskKey, Tid, Timestamp, UserWord, WaitEvidence,
    WaitObject, WakerKind, Wakeup,
};

use crate::layout::{RECORD_SWITCH, RECORD_TASK, SwitchRecord, TaskRecord, first};

/// Value of `charged_ns` when it is not known.
const NOT_CHARGED: u64 = u64::MAX;

/// Decodes a task record from its bytes; `None` for a record of an unknown kind or size.
pub(crate) fn decode_task(bytes: &[u8]) -> Option<Event> {
    let record = first::<TaskRecord>(bytes)?;
    if record.kind != RECORD_TASK {
        return None;
    }
    task_event(&record).map(Event::Task)
}

/// Decodes a switch record; `None` for one that was never written, or that holds a number which is
/// in no list.
pub(crate) fn decode_switch(record: &SwitchRecord) -> Option<Event> {
    if record.kind != RECORD_SWITCH {
        return None;
    }
    switch_event(record).map(Event::Switch)
}

fn switch_event(r: &SwitchRecord) -> Option<SwitchEvent> {
    Some(SwitchEvent {
        ts: Timestamp::from_ns(r.ts),
        cpu: CpuId::new(r.cpu),
        task: TaskKey::from_wire(r.task),
        next_task: TaskKey::from_wire(r.next_task),
        run_start: Timestamp::from_wire(r.run_start),
        charged: (r.charged_ns != NOT_CHARGED).then(|| Nanos::from_ns(r.charged_ns)),
        irq: Nanos::from_ns(u64::from(r.irq_ns)),
        evidence: evidence(r)?,
        cgroup: CgroupId::new(r.cgroup),
        user_word: (r.has_user_word != 0).then(|| UserWord::from_raw(r.user_word)),
        wait: wait(r)?,
        kernel_count: r.kernel_count,
        in_scope: r.in_scope != 0,
    })
}

fn evidence(r: &SwitchRecord) -> Option<Evidence> {
    let ts = Timestamp::from_ns(r.ts);
    Some(Evidence {
        state: r.state,
        bits: EvidenceBits(r.evidence),
        cause: pick(Cause::ALL, r.cause)?,
        nominator: TaskKey::from_wire(r.nominator),
        need_resched_delay: Timestamp::from_wire(r.cause_ts).and_then(|cause| ts.since(cause)),
        syscall: u32::try_from(r.syscall).ok(),
        args: r.args,
        wait_object: pick(WaitObject::ALL, r.wait_object)?,
        wait_key: (r.wait_key != 0).then_some(r.wait_key),
        class: pick(Class::ALL, r.class)?,
        prio: r.prio,
        next_class: pick(Class::ALL, r.next_class)?,
        next_prio: r.next_prio,
    })
}

fn wait(r: &SwitchRecord) -> Option<WaitEvidence> {
    Some(WaitEvidence {
        out: Timestamp::from_wire(r.out_ts),
        was_runnable: r.was_runnable != 0,
        woken: Timestamp::from_wire(r.wake_ts),
        wakeup: Wakeup {
            waker: TaskKey::from_wire(r.waker),
            kind: Some(pick(WakerKind::ALL, r.waker_kind)?),
            cpu: Some(CpuId::new(r.wake_cpu)),
            waker_stacks: stack_numbers(r.waker_kernel_stack, r.waker_user_stack),
        },
        moved: Timestamp::from_wire(r.moved_ts),
        stacks: stack_numbers(r.kernel_stack, r.user_stack),
    })
}

/// A negative number is an error of the kernel's, or no stack was asked for.
pub fn stack_numbers(kernel: i32, user: i32) -> StackNumbers {
    StackNumbers {
        kernel: u32::try_from(kernel).ok(),
        user: u32::try_from(user).ok(),
    }
}

fn task_event(r: &TaskRecord) -> Option<TaskEvent> {
    let comm: Vec<u8> = r.comm.iter().copied().take_while(|c| *c != 0).collect();
    Some(TaskEvent {
        ts: Timestamp::from_ns(r.ts),
        kind: pick(TaskEventKind::ALL, u8::try_from(r.event).ok()?)?,
        task: TaskKey::new(r.task),
        tid: Tid::new(r.tid),
        pid: Pid::new(r.pid),
        parent_pid: Pid::new(r.parent_pid),
        started_ns: r.start_boottime_ns,
        comm,
        cgroup: CgroupId::new(r.cgroup),
        class: pick(Class::ALL, r.class)?,
        prio: r.prio,
        is_kthread: r.is_kthread != 0,
        in_scope: r.in_scope != 0,
        voluntary_switches: r.nvcsw,
        involuntary_switches: r.nivcsw,
    })
}

/// The word with this number. `None` for a number that is not in the list: both sides are of one
/// build, so the record is damaged, and any word would be a guess.
fn pick<T: Copy>(words: &[T], number: u8) -> Option<T> {
    words.get(usize::from(number)).copied()
}

#[cfg(test)]
mod tests {
    use zerocopy::IntoBytes as _;

    use super::*;

    #[test]
    fn a_switch_record_keeps_its_moments_and_evidence() {
        let record = SwitchRecord {
            kind: RECORD_SWITCH,
            cpu: 1,
            ts: 900,
            run_start: 500,
            cause_ts: 850,
            cause: 4,
            task: 7,
            next_task: u32::MAX,
            syscall: -1,
            kernel_stack: -17,
            ..Default::default()
        };
        let Some(Event::Switch(event)) = decode_switch(&record) else {
            panic!("a switch")
        };
        assert_eq!(event.evidence.cause, Cause::Tick);
        assert_eq!(event.evidence.need_resched_delay, Some(Nanos::from_ns(50)));
        assert_eq!((event.task, event.next_task), (Some(TaskKey::new(7)), None));
        assert_eq!(
            (event.evidence.syscall, event.wait.stacks.kernel),
            (None, None)
        );
    }

    /// A word of 0 means a scheduler's thread that runs no worker; any other thread has no word.
    #[test]
    fn a_word_of_zero_is_not_no_word() {
        let word = |has_user_word| {
            let record = SwitchRecord {
                kind: RECORD_SWITCH,
                user_word: 0,
                has_user_word,
                ..Default::default()
            };
            match decode_switch(&record) {
                Some(Event::Switch(event)) => event.user_word,
                _ => panic!("a switch"),
            }
        };
        assert_eq!((word(0), word(1)), (None, Some(UserWord::default())));
    }

    /// An unknown class once became `idle`, and no count showed it.
    #[test]
    fn a_number_that_no_list_has_makes_a_record_unreadable() {
        let good = SwitchRecord {
            kind: RECORD_SWITCH,
            ..Default::default()
        };
        assert!(decode_switch(&good).is_some());
        let fields: [fn(&mut SwitchRecord) -> &mut u8; 5] = [
            |record| &mut record.class,
            |record| &mut record.next_class,
            |record| &mut record.cause,
            |record| &mut record.wait_object,
            |record| &mut record.waker_kind,
        ];
        for (index, field) in fields.iter().enumerate() {
            let mut record = good;
            *field(&mut record) = 200;
            assert!(decode_switch(&record).is_none(), "field {index}");
        }
        let mut task = TaskRecord {
            kind: RECORD_TASK,
            ..Default::default()
        };
        assert!(decode_task(task.as_bytes()).is_some());
        task.class = 200;
        assert!(decode_task(task.as_bytes()).is_none());
    }

    #[test]
    fn a_slot_that_was_never_written_is_no_switch() {
        assert!(decode_switch(&SwitchRecord::default()).is_none());
    }

    #[test]
    fn a_name_ends_at_its_first_nul() {
        let mut record = TaskRecord {
            kind: RECORD_TASK,
            task: 3,
            ..Default::default()
        };
        for (to, from) in record.comm.iter_mut().zip(*b"\x1b[31m\0rest") {
            *to = from;
        }
        let Some(Event::Task(event)) = decode_task(record.as_bytes()) else {
            panic!("a task")
        };
        assert_eq!(event.comm, b"\x1b[31m");
    }

    #[test]
    fn a_torn_or_unknown_task_record_is_refused() {
        let record = TaskRecord {
            kind: RECORD_TASK,
            ..Default::default()
        };
        let bytes = record.as_bytes().to_vec();
        for cut in 0..bytes.len() {
            assert!(decode_task(&bytes[..cut]).is_none(), "{cut}");
        }
        assert!(decode_task(&[9; 256]).is_none());
    }
}
