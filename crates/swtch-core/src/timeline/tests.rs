//! Time lines as drawn: one task unless said otherwise, time in ns, `out` is a switch-out that is
//! pushed, `in` the start of the run that it ends.

use std::sync::Arc;

use super::*;
use crate::evidence::{Evidence, WakerKind};
use crate::ids::{CgroupId, CpuId};
use crate::stack::StackNumbers;
use crate::syscall::Arch;
use crate::user::{UserDeparture, UserWait};
use crate::wait::Wakeup;

const TASK: TaskKey = TaskKey::new(1);
const WAKER: TaskKey = TaskKey::new(2);
const STACKS_OF_WAKER: StackNumbers = StackNumbers {
    kernel: Some(5),
    user: Some(6),
};

fn ns(length: u64) -> Option<Nanos> {
    Some(Nanos::from_ns(length))
}

/// A run from `start` to `end` that ended because the task blocked in a fault.
fn run(start: u64, end: u64) -> SwitchEvent {
    SwitchEvent {
        ts: Timestamp::from_ns(end),
        cpu: CpuId::new(0),
        task: Some(TASK),
        next_task: Some(TaskKey::IDLE),
        run_start: Some(Timestamp::from_ns(start)),
        charged: None,
        irq: Nanos::ZERO,
        evidence: Evidence {
            state: 1,
            ..Evidence::RUNNABLE
        },
        cgroup: CgroupId::new(1),
        user_word: None,
        wait: WaitEvidence::default(),
        kernel_count: 1,
        in_scope: true,
    }
}

fn after(previous_out: u64, run: SwitchEvent) -> SwitchEvent {
    SwitchEvent {
        wait: WaitEvidence {
            out: Some(Timestamp::from_ns(previous_out)),
            ..run.wait
        },
        kernel_count: run.kernel_count + 1,
        ..run
    }
}

fn woken_at(moment: u64, run: SwitchEvent) -> SwitchEvent {
    SwitchEvent {
        wait: WaitEvidence {
            woken: Some(Timestamp::from_ns(moment)),
            wakeup: Wakeup {
                waker: Some(WAKER),
                kind: Some(WakerKind::Task),
                cpu: Some(CpuId::new(1)),
                waker_stacks: STACKS_OF_WAKER,
            },
            ..run.wait
        },
        ..run
    }
}

fn timeline() -> Timeline {
    Timeline::new(SyscallTable::of(Arch::X86_64))
}

/// The rows of the table `switch` that come of an event.
fn rows(timeline: &mut Timeline, event: Event) -> Vec<Switch> {
    let mut rows = Vec::new();
    timeline.push(event, |row| match row {
        TraceRow::Switch(switch) => rows.push(switch),
        TraceRow::Task(_) => {}
    });
    rows
}

fn row(timeline: &mut Timeline, event: SwitchEvent) -> Switch {
    match rows(timeline, Event::Switch(event)).as_slice() {
        [switch] => *switch,
        other => panic!("no row but {other:?}"),
    }
}

fn user_row(timeline: &mut Timeline, event: UserSwitchEvent) -> Switch {
    match rows(timeline, Event::User(event)).as_slice() {
        [switch] => *switch,
        other => panic!("no row but {other:?}"),
    }
}

/// ```text
///  in      out          woken      in        out
///  100     200           500       550       900
///          │◀── blocked ──▶│◀ runq ▶│
/// ```
#[test]
fn off_cpu_time_is_blocked_time_and_run_queue_time() {
    let mut line = timeline();
    let first = row(&mut line, run(100, 200));
    assert_eq!((first.ran, first.wait), (ns(100), Wait::default()));
    let second = row(&mut line, woken_at(500, after(200, run(550, 900))));
    assert_eq!(second.ran, ns(350));
    assert_eq!(second.wait.reason, Some(first.rule.reason));
    assert_eq!((second.wait.off, second.wait.runq), (ns(350), ns(50)));
    assert_eq!(second.wait.blocked(), ns(300));
    let wakeup = second.wait.wakeup;
    assert_eq!(
        (wakeup.waker, wakeup.cpu),
        (Some(WAKER), Some(CpuId::new(1)))
    );
    assert_eq!(wakeup.waker_stacks, STACKS_OF_WAKER);
}

/// ```text
///  in   woken   out              in        out
///  100   180    200              550       900
///                │◀─── runq ─────▶│              runnable at once: never blocked
/// ```
#[test]
fn a_wakeup_before_the_switch_out_makes_the_whole_wait_run_queue_time() {
    let mut line = timeline();
    row(&mut line, run(100, 200));
    let second = row(&mut line, woken_at(180, after(200, run(550, 900))));
    assert_eq!((second.wait.off, second.wait.runq), (ns(350), ns(350)));
    assert_eq!(second.wait.blocked(), ns(0));
}

/// ```text
///  in      out                   in        out
///  100     200                   550       900
///          │◀──── off ───────────▶│              the wakeup was lost, or is older than the run
/// ```
#[test]
fn without_its_wakeup_a_wait_is_not_divided() {
    let mut line = timeline();
    row(&mut line, run(100, 200));
    let second = row(&mut line, after(200, run(550, 900)));
    assert_eq!((second.wait.off, second.wait.runq), (ns(350), None));
    assert_eq!(
        (second.wait.blocked(), second.wait.wakeup.waker),
        (None, None)
    );
}

/// ```text
///  in      out (runnable)        in        out
///  100     200                   550       900
///          │◀──── runq = off ────▶│              a wakeup of another wait does not count
/// ```
#[test]
fn who_left_runnable_waits_on_the_run_queue_all_the_time() {
    let mut line = timeline();
    let preempted = SwitchEvent {
        evidence: Evidence::RUNNABLE,
        ..run(100, 200)
    };
    row(&mut line, preempted);
    let woken = woken_at(50, after(200, run(550, 900)));
    let again = SwitchEvent {
        wait: WaitEvidence {
            was_runnable: true,
            ..woken.wait
        },
        ..woken
    };
    let second = row(&mut line, again);
    assert_eq!((second.wait.off, second.wait.runq), (ns(350), ns(350)));
    assert_eq!(second.wait.wakeup, Wakeup::default());
}

/// ```text
///  in      out       (in  out)      in        out
///  100     200        300 400       550       900
///                       lost │◀─ off ─▶│
/// ```
#[test]
fn a_wait_whose_switch_out_was_lost_has_no_reason_and_is_counted() {
    let mut line = timeline();
    row(&mut line, run(100, 200));
    let second = SwitchEvent {
        kernel_count: 3,
        ..woken_at(500, after(400, run(550, 900)))
    };
    let second = row(&mut line, second);
    assert_eq!(second.wait.reason, None);
    assert_eq!((second.wait.off, second.wait.runq), (ns(150), ns(50)));
    assert_eq!(line.uncaught(), 1);
}

/// ```text
///  in      out    …three rows…    out
///  count    1                      5
/// ```
#[test]
fn what_the_kernel_counted_between_two_rows_was_not_caught() {
    let mut line = timeline();
    for kernel_count in [1, 2, 6] {
        let event = SwitchEvent {
            kernel_count,
            ..run(100, 100 + kernel_count)
        };
        row(&mut line, event);
    }
    assert_eq!(line.uncaught(), 3);
}

/// Of a task out of scope, only the runs that another task waited for are recorded.
#[test]
fn holes_out_of_scope_are_not_counted() {
    let mut line = timeline();
    for (kernel_count, in_scope) in [(1, true), (5, false), (9, true)] {
        let event = SwitchEvent {
            kernel_count,
            in_scope,
            ..run(100, 100 + kernel_count)
        };
        row(&mut line, event);
    }
    assert_eq!(line.uncaught(), 0);
}

/// ```text
///  cpu 0   in      out
///          100     200
///  cpu 1                in      out
///                      190     900      its clock is behind
/// ```
#[test]
fn a_clock_behind_that_of_another_cpu_gives_no_length_and_is_counted() {
    let mut line = timeline();
    row(&mut line, run(100, 200));
    let second = row(&mut line, after(200, run(190, 900)));
    assert_eq!((second.wait.off, second.ran), (None, ns(710)));
    assert_eq!(line.backwards(), 1);
}

/// ```text
///  in      out    woken  moved     in        out
///  100     200     250    300      550       900
///                          │◀─────▶│            time on the queue where it ran
/// ```
#[test]
fn a_move_counts_from_the_moment_of_the_move_and_only_in_its_wait() {
    let mut line = timeline();
    row(&mut line, run(100, 200));
    let moved_at = |moment| {
        let mut event = woken_at(250, after(200, run(550, 900)));
        event.wait.moved = Some(Timestamp::from_ns(moment));
        event
    };
    assert_eq!(row(&mut line, moved_at(300)).wait.moved, ns(250));
    assert_eq!(row(&mut line, moved_at(150)).wait.moved, None);
}

/// A change of its allowed CPUs moves a task that sleeps, too: seen as a time of 1.9 s on a run queue
/// in a wait that had 64 ms of run-queue time.
///
/// ```text
///  in      out    moved  woken     in        out
///  100     200     250    300      550       900
///                          │◀─────▶│            its time in a run queue
/// ```
#[test]
fn a_task_that_is_moved_in_its_sleep_is_in_no_run_queue() {
    let mut line = timeline();
    row(&mut line, run(100, 200));
    let moved = |mut event: SwitchEvent| {
        event.wait.moved = Some(Timestamp::from_ns(250));
        event
    };
    let asleep = row(&mut line, moved(woken_at(300, after(200, run(550, 900)))));
    assert_eq!((asleep.wait.runq, asleep.wait.moved), (ns(250), None));
    let not_seen = row(&mut line, moved(after(900, run(950, 990))));
    assert_eq!((not_seen.wait.runq, not_seen.wait.moved), (None, None));
}

/// ```text
///  another CPU   │ wakes a task … asks │
///                80                   120
///  this CPU             in            out
///                       100           130
/// ```
#[test]
fn a_request_is_not_older_than_the_run_that_it_ends() {
    let mut line = timeline();
    let asked = |start| {
        let mut event = run(start, 130);
        event.evidence.need_resched_delay = ns(50);
        event
    };
    let delay = |row: Switch| row.evidence.need_resched_delay;
    assert_eq!(delay(row(&mut line, asked(100))), ns(30));
    assert_eq!(delay(row(&mut line, asked(10))), ns(50));
}

/// The hypervisor had the CPU, unless the difference is the kernel's own delay in charging.
#[test]
fn time_that_was_not_charged_was_stolen() {
    let charged = |length| SwitchEvent {
        charged: ns(length),
        ..run(100_000, 300_000)
    };
    let mut line = timeline();
    assert_eq!(
        row(&mut line, charged(150_000)).stolen,
        Nanos::from_ns(50_000)
    );
    assert_eq!(row(&mut line, charged(190_000)).stolen, Nanos::ZERO);
    assert_eq!(row(&mut line, charged(210_000)).stolen, Nanos::ZERO);
}

/// ```text
///  task 1   in   out ─────────────── end      open
///  task 2   in   out (dead)                   ended
///  task 3   in   out (out of scope)           not asked for
/// ```
#[test]
fn waits_that_are_open_at_the_end_are_those_of_tasks_that_may_come_back() {
    let mut line = timeline();
    row(&mut line, run(100, 200));
    let dead = Evidence {
        state: 0x80,
        ..Evidence::RUNNABLE
    };
    let others = [(2, dead, true), (3, Evidence::RUNNABLE, false)];
    for (key, evidence, in_scope) in others {
        let event = SwitchEvent {
            task: Some(TaskKey::new(key)),
            evidence,
            in_scope,
            ..run(100, 200)
        };
        row(&mut line, event);
    }
    let expected = Open {
        task: TASK,
        reason: Some(Reason::Fault),
        since: Timestamp::from_ns(200),
        lasted: Nanos::from_ns(800),
        runq: None,
        cpu: None,
    };
    assert_eq!(line.open_at(Timestamp::from_ns(1000), &[]), [expected]);
}

/// ```text
///  task 1   out at 200   woken at 300                                      │ end at 1000
///  task 2   out at 200, runnable                                           │
///  task 3   out at 200   woken at 300   runs from 400 on                   │
///  task 4   out at 200, and again later, of which the record was lost      │
///  task 5   (never seen to leave) runs from 100 on, was not asked for      │
/// ```
#[test]
fn who_could_run_at_the_end_is_told_apart_from_who_was_blocked() {
    let mut line = timeline();
    for key in 1..=4 {
        let event = SwitchEvent {
            task: Some(TaskKey::new(key)),
            evidence: match key {
                2 => Evidence::RUNNABLE,
                _ => run(100, 200).evidence,
            },
            ..run(100, 200)
        };
        row(&mut line, event);
    }
    let ts = Timestamp::from_ns;
    let at_end = |task, left: Option<u64>, woken: Option<u64>, runs_since: Option<u64>| TaskAtEnd {
        task: TaskKey::new(task),
        in_scope: task < 5,
        cpu: CpuId::new(7),
        left: left.map(ts),
        woken: woken.map(ts),
        runs_since: runs_since.map(ts),
    };
    let known = [
        at_end(1, Some(200), Some(300), None),
        at_end(2, Some(200), None, None),
        at_end(3, Some(200), Some(300), Some(400)),
        at_end(4, Some(900), Some(950), None),
        at_end(5, None, None, Some(100)),
    ];
    let told: Vec<_> = line
        .open_at(ts(1000), &known)
        .iter()
        .map(|open| {
            let runq = open.runq.map(Nanos::as_ns);
            (open.task.get(), open.reason, open.lasted.as_ns(), runq)
        })
        .collect();
    let (fault, left) = (Some(Reason::Fault), Some(Reason::Unknown));
    let expected = [
        (1, fault, 800, Some(700)),
        (2, left, 800, Some(800)),
        (3, fault, 200, Some(100)),
        (4, fault, 800, None),
        (3, None, 600, None),
        (5, None, 900, None),
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_switch_out_of_nobody_makes_no_row_and_is_counted() {
    let mut line = timeline();
    let nobody = SwitchEvent {
        task: None,
        ..run(100, 200)
    };
    assert!(rows(&mut line, Event::Switch(nobody)).is_empty());
    assert_eq!(line.unnamed(), 1);
}

/// ```text
///  nanosleep   stopped     restart_syscall
///  out         out         out
/// ```
#[test]
fn a_restarted_call_is_shown_as_the_call_that_it_goes_on_with() {
    let in_call = |number: &str, run: SwitchEvent| {
        let syscall = SyscallTable::of(Arch::X86_64).number_named(number);
        SwitchEvent {
            evidence: Evidence {
                syscall,
                ..run.evidence
            },
            ..run
        }
    };
    let mut line = timeline();
    let first = row(&mut line, in_call("clock_nanosleep", run(100, 200)));
    let restarted = in_call("restart_syscall", after(200, run(300, 400)));
    let second = row(&mut line, restarted);
    assert_eq!(second.rule.reason, Reason::Sleep);
    assert_eq!(second.evidence.syscall, first.evidence.syscall);
    let mut unseen = timeline();
    assert_eq!(row(&mut unseen, restarted).rule.reason, Reason::Unknown);
}

/// Interrupts that the kernel does not charge to the task are not steal.
#[test]
fn time_of_interrupts_is_not_counted_as_stolen_too() {
    let event = SwitchEvent {
        charged: ns(400_000),
        irq: Nanos::from_ns(600_000),
        ..run(0, 1_000_000)
    };
    // A moment of 0 is a moment here: `from_wire` has turned the 0 of the wire into `None` before.
    assert_eq!(row(&mut timeline(), event).stolen, Nanos::ZERO);
}

fn named(tid: u32) -> Event {
    Event::Task(TaskEvent {
        ts: Timestamp::from_ns(1),
        kind: crate::switch::TaskEventKind::Seen,
        task: TASK,
        tid: crate::ids::Tid::new(tid),
        pid: crate::ids::Pid::new(tid),
        parent_pid: crate::ids::Pid::new(1),
        started_ns: 0,
        comm: Vec::new(),
        cgroup: CgroupId::new(9),
        class: crate::evidence::Class::Fair,
        prio: 120,
        is_kthread: false,
        in_scope: true,
        voluntary_switches: 0,
        involuntary_switches: 0,
    })
}

/// Worker 7 left at 100, was runnable at 130, ran from 150 to 200, and yields to 8.
fn user_switch(tid: u32, cpu: Option<u16>) -> UserSwitchEvent {
    let at = Timestamp::from_ns;
    let wait_type = |number, name: &str| {
        let (number, name) = (Some(number), name.to_owned());
        Some(Arc::new(UserWaitType { number, name }))
    };
    UserSwitchEvent {
        ts: at(200),
        tid: crate::ids::Tid::new(tid),
        cpu: cpu.map(CpuId::new),
        word: UserWord::new(7, 3),
        next_task: Some(8),
        run_start: at(150),
        departure: UserDeparture::Yield,
        wait_type: wait_type(1, "SOS_SCHEDULER_YIELD"),
        before: UserWait {
            out: Some(at(100)),
            woken: at(130),
            wait_type: wait_type(2, "SLEEP_TASK"),
            waker: Some(5),
        },
    }
}

/// ```text
///   out    woken   in        out
///  ──┼───────┼──────┼─────────┼──▶
///   100     130    150       200
/// ```
#[test]
fn a_user_switch_is_a_row_of_its_thread() {
    let mut timeline = Timeline::new(SyscallTable::of(Arch::X86_64));
    rows(&mut timeline, named(70));
    let row = user_row(&mut timeline, user_switch(70, Some(3)));
    assert_eq!(
        (row.level, row.task, row.cpu),
        (Level::User, TASK, CpuId::new(3))
    );
    assert_eq!((row.user_task, row.user.next_task), (Some(7), Some(8)));
    assert_eq!(
        (row.ran, row.wait.off, row.wait.runq),
        (ns(50), ns(50), ns(20))
    );
    assert_eq!((row.user.run, row.user.waker), (Some(3), Some(5)));
    let types = (row.user.wait_type, row.user.off_wait_type);
    assert_eq!(types, (Some(1), Some(2)));
    assert_eq!(row.cgroup, CgroupId::new(9));
}

/// The scheduler says how a worker left and what it waited for; the rules make reasons of that.
#[test]
fn a_user_switch_has_the_reasons_of_its_evidence() {
    let mut timeline = Timeline::new(SyscallTable::of(Arch::X86_64));
    rows(&mut timeline, named(70));
    let yields = user_row(&mut timeline, user_switch(70, Some(3)));
    assert_eq!(yields.rule.reason, Reason::Yield);
    assert_eq!(yields.wait.reason, Some(Reason::Sleep));
    let mut first = user_switch(70, Some(3));
    first.departure = UserDeparture::Done;
    first.before.out = None;
    let first = user_row(&mut timeline, first);
    assert_eq!(first.rule.reason, Reason::Exit);
    assert_eq!(first.wait.reason, None);
}

/// A scheduler that may run anywhere does not know its CPU; the kernel says where the thread was,
/// even if only later, at the end of the thread's first run.
#[test]
fn a_user_switch_is_where_its_thread_was_last() {
    let mut timeline = Timeline::new(SyscallTable::of(Arch::X86_64));
    rows(&mut timeline, named(70));
    let early = rows(&mut timeline, Event::User(user_switch(70, None)));
    assert!(early.is_empty());
    assert_eq!(timeline.unnamed_user(), 1, "as long as nothing is known");
    let on_1 = |start, end| {
        Event::Switch(SwitchEvent {
            cpu: CpuId::new(1),
            ..run(start, end)
        })
    };
    let placed = rows(&mut timeline, on_1(10, 220));
    let cpus: Vec<_> = placed.iter().map(|row| (row.level, row.cpu)).collect();
    let here = CpuId::new(1);
    assert_eq!(
        cpus,
        [(Level::User, here), (Level::Os, here)],
        "older first"
    );
    let later = user_row(&mut timeline, user_switch(70, None));
    assert_eq!(later.cpu, here);
    assert_eq!(rows(&mut timeline, on_1(230, 240)).len(), 1, "once");
    assert_eq!(timeline.unnamed_user(), 0);
}

/// Older rows would have to be sorted in before everything that was written since.
#[test]
fn a_user_switch_waits_a_second_for_its_cpu() {
    let mut timeline = Timeline::new(SyscallTable::of(Arch::X86_64));
    rows(&mut timeline, named(70));
    rows(&mut timeline, Event::User(user_switch(70, None)));
    let late = rows(&mut timeline, Event::Switch(run(10, 2_000_000_000)));
    assert_eq!(late.len(), 1, "the kernel's own");
    assert_eq!(timeline.unnamed_user(), 1);
}

/// A thread that runs for long neither fills the memory nor takes the room of others.
#[test]
fn few_user_switches_of_a_thread_wait_for_its_cpu() {
    let mut timeline = Timeline::new(SyscallTable::of(Arch::X86_64));
    rows(&mut timeline, named(70));
    for _ in 0..1000 {
        rows(&mut timeline, Event::User(user_switch(70, None)));
    }
    assert_eq!(timeline.unnamed_user(), 1000);
    assert_eq!(
        rows(&mut timeline, Event::Switch(run(10, 500))).len(),
        64 + 1
    );
    assert_eq!(timeline.unnamed_user(), 1000 - 64);
}

/// The wait of a thread in the kernel has nothing to do with that of a worker on it.
#[test]
fn a_user_switch_changes_no_wait_of_the_kernel() {
    let mut timeline = Timeline::new(SyscallTable::of(Arch::X86_64));
    rows(&mut timeline, named(70));
    row(&mut timeline, run(10, 50));
    user_row(&mut timeline, user_switch(70, Some(0)));
    let row = row(&mut timeline, after(50, run(260, 300)));
    assert_eq!(
        (row.wait.off, row.wait.reason),
        (ns(210), Some(Reason::Fault))
    );
    assert_eq!(timeline.uncaught(), 0);
}

/// The word of a thread that runs no worker still says that the thread belongs to a scheduler.
#[test]
fn an_os_switch_carries_the_worker_that_the_word_named() {
    let mut timeline = Timeline::new(SyscallTable::of(Arch::X86_64));
    let mut row = |user_word| {
        let event = SwitchEvent {
            user_word,
            ..run(1, 2)
        };
        let row = row(&mut timeline, event);
        (row.user_task, row.user.run, row.level)
    };
    assert_eq!(
        row(Some(UserWord::new(4, 2))),
        (Some(4), Some(2), Level::Os)
    );
    assert_eq!(row(Some(UserWord::default())), (None, Some(0), Level::Os));
    assert_eq!(row(None), (None, None, Level::Os));
}

fn look_at(moment: u64, out: u64) -> Event {
    Event::Look(LookEvent {
        ts: Timestamp::from_ns(moment),
        task: TASK,
        out: Timestamp::from_ns(out),
        whose: LookedTask::Waiter {
            between: Nanos::from_ns(15),
            holder: Some(4),
        },
        stacks: StackNumbers {
            kernel: Some(3),
            user: Some(9),
        },
    })
}

/// ```text
///   out      look     out
/// ───┼────────┼────────┼──▶
///    └── the wait has the stack that was seen
/// ```
#[test]
fn a_wait_is_where_it_was_seen() {
    let mut timeline = timeline();
    row(&mut timeline, run(0, 10));
    assert!(rows(&mut timeline, look_at(20, 10)).is_empty());
    let seen = row(&mut timeline, after(10, run(30, 40)));
    assert_eq!(
        (
            seen.wait.stacks.user,
            seen.wait.seen_for,
            seen.wait.holder_stack
        ),
        (Some(9), ns(20), Some(4))
    );
    // The next wait was not seen.
    let unseen = row(&mut timeline, after(40, run(50, 60)));
    assert_eq!(
        (unseen.wait.stacks.user, unseen.wait.seen_for),
        (None, None)
    );
    // A short wait stands for the time between two looks.
    rows(&mut timeline, look_at(65, 60));
    let short = row(&mut timeline, after(60, run(70, 80)));
    assert_eq!(short.wait.seen_for, ns(15));
}

/// A waker that was copied at another wakeup than the last says nothing of the one that counts.
#[test]
fn a_wait_knows_where_its_waker_was() {
    let mut timeline = timeline();
    row(&mut timeline, run(0, 10));
    let mut woken_at = |copied: u64, out: u64| {
        let waker = Event::Look(LookEvent {
            ts: Timestamp::from_ns(copied),
            task: TASK,
            out: Timestamp::from_ns(out),
            whose: LookedTask::Waker,
            stacks: StackNumbers {
                kernel: None,
                user: Some(7),
            },
        });
        rows(&mut timeline, waker);
        let mut next = after(out, run(out + 20, out + 30));
        next.wait.woken = Some(Timestamp::from_ns(out + 15));
        row(&mut timeline, next).wait
    };
    let known = woken_at(25, 10);
    assert_eq!(
        (known.wakeup.waker_stacks.user, known.stacks.user),
        (Some(7), None)
    );
    assert_eq!(woken_at(50, 40).wakeup.waker_stacks.user, None);
}

/// The look was at a wait whose beginning was lost, or that had ended when the look arrived.
#[test]
fn a_look_at_another_wait_tells_nothing() {
    let mut timeline = timeline();
    rows(&mut timeline, look_at(5, 1));
    row(&mut timeline, run(0, 10));
    rows(&mut timeline, look_at(20, 8));
    let row = row(&mut timeline, after(10, run(30, 40)));
    assert_eq!(row.wait.stacks.user, None);
}
