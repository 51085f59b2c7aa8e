//! Rows and traces, short enough to see the time line in the test.

use swtch_core::rules::all_rules;
use swtch_core::{
    CgroupId, Class, CpuId, Evidence, EvidenceBits, Nanos, Pid, Reason, Switch, TaskEvent,
    TaskEventKind, TaskKey, Tid, Timestamp, Wait, WakerKind, Wakeup,
};
use swtch_store::{Counts, Meta, Overhead, RecordingState, Trace, TraceHost, Writer};
use tempfile::TempDir;

/// The event with which a task first appears in a trace.
pub fn seen(key: u32, pid: u32, tid: u32, comm: &str) -> TaskEvent {
    TaskEvent {
        ts: Timestamp::from_ns(0),
        kind: TaskEventKind::Seen,
        task: TaskKey::new(key),
        tid: Tid::new(tid),
        pid: Pid::new(pid),
        parent_pid: Pid::new(1),
        started_ns: u64::from(pid),
        comm: comm.as_bytes().to_vec(),
        cgroup: CgroupId::new(1),
        class: Class::Fair,
        prio: 120,
        is_kthread: false,
        in_scope: true,
        voluntary_switches: 0,
        involuntary_switches: 0,
    }
}

/// A switch-out on CPU 0 at 1 ms after a run of 100 µs.
pub fn row(task: u32, reason: Reason) -> Switch {
    let rule = all_rules().find(|rule| rule.reason == reason);
    let bits = if reason.category() == swtch_core::Category::Preemption {
        EvidenceBits::default()
    } else {
        EvidenceBits::VOLUNTARY
    };
    Switch {
        ts: Timestamp::from_ns(1_000_000),
        cpu: CpuId::new(0),
        task: TaskKey::new(task),
        ran: Some(Nanos::from_ns(100_000)),
        evidence: Evidence {
            bits,
            ..Evidence::RUNNABLE
        },
        next_task: Some(TaskKey::IDLE),
        cgroup: CgroupId::new(1),
        ..Switch::blank(rule.expect("every reason has a rule"))
    }
}

/// The row with a wait before its run: why the task had left, time blocked, time runnable.
pub fn after(row: Switch, reason: Reason, blocked_ns: u64, runq_ns: u64) -> Switch {
    let wait = Wait {
        reason: Some(reason),
        off: Some(Nanos::from_ns(blocked_ns + runq_ns)),
        runq: Some(Nanos::from_ns(runq_ns)),
        ..row.wait
    };
    Switch { wait, ..row }
}

/// The row with its task woken by `waker`.
pub fn woken_by(row: Switch, waker: u32) -> Switch {
    let wait = Wait {
        wakeup: Wakeup {
            waker: Some(TaskKey::new(waker)),
            kind: Some(WakerKind::Task),
            ..row.wait.wakeup
        },
        ..row.wait
    };
    Switch { wait, ..row }
}

/// The contents of `meta.json` for a trace of two seconds.
pub fn meta() -> Meta {
    Meta {
        state: RecordingState::Finished,
        host: TraceHost {
            hostname: "db1".into(),
            kernel_release: "6.18.0".into(),
            machine: "x86_64".into(),
            cpus: 2,
            ..TraceHost::default()
        },
        command: vec!["perf".into(), "bench".into()],
        start_ns: 1_000_000_000,
        end_ns: 3_000_000_000,
        counts: Counts {
            switches_seen: 15,
            stored: 13,
            filtered: 2,
            ..Counts::default()
        },
        overhead: Overhead {
            recorder_cpu_ns: 120_000_000,
            recorder_peak_rss_bytes: 45_000_000,
            bytes: 0,
            kernel_ns_per_switch: Some(171.6),
            kernel_runs_per_switch: Some(2.5),
            kernel_cost_switches: 20_000,
        },
        ..Meta::default()
    }
}

/// Four threads on two futex words, one switch per microsecond, 0.2 ms in all: two threads of one
/// process, one that the capture was not asked for, and one without a name.
pub fn handed_round() -> (Trace, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.swtch");
    let meta = meta();
    let mut writer = Writer::create(&path, &meta).unwrap();
    writer.push_task(&seen(1, 10, 10, "server")).unwrap();
    writer.push_task(&seen(2, 10, 11, "worker")).unwrap();
    let other = TaskEvent {
        in_scope: false,
        ..seen(3, 30, 30, "other")
    };
    writer.push_task(&other).unwrap();
    for number in 0..200_usize {
        // No event names task 77.
        let task = [1, 2, 3, 77][number % 4];
        let blocked_ns = (number * 370 % 3000) as u64;
        let mut row = after(row(task, Reason::Futex), Reason::Futex, blocked_ns, 50);
        row = woken_by(row, [2, 1, 2, 1][number % 4]);
        row.ran = Some(Nanos::from_ns(600));
        row.evidence.wait_key = Some([0xf00, 0xba0][number / 8 % 2]);
        row.ts = Timestamp::from_ns(meta.start_ns + number as u64 * 1000);
        row.wait.stacks.user = (number % 3 > 0).then_some(7);
        if number < 4 {
            row.wait = Wait::default();
        }
        writer.push_switch(&row).unwrap();
    }
    writer.finish(&meta, &mut |_, _| ()).unwrap();
    (Trace::open(&path).unwrap(), dir)
}
