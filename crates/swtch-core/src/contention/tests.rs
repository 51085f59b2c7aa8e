use super::*;
use crate::rules::rule_named;
use crate::user::Level;
use crate::wait::{Wait, Wakeup};

const T: u32 = 1;
const A: u32 = 2;
const B: u32 = 3;

/// A run of `task` on `cpu` from `start` to `end`; `next` comes after it.
pub(super) fn run(cpu: u16, task: u32, start: u64, end: u64, next: u32) -> Switch {
    Switch {
        ts: Timestamp::from_ns(end),
        cpu: CpuId::new(cpu),
        task: TaskKey::new(task),
        ran: Some(Nanos::from_ns(end - start)),
        next_task: Some(TaskKey::new(next)),
        ..Switch::blank(rule_named("futex_call").expect("a rule of the table"))
    }
}

pub(super) fn waited(row: Switch, runq: u64) -> Switch {
    let wait = Wait {
        reason: Some(Reason::Futex),
        off: Some(Nanos::from_ns(runq)),
        runq: Some(Nanos::from_ns(runq)),
        ..row.wait
    };
    Switch { wait, ..row }
}

pub(super) fn moved(row: Switch, woken_to: Option<u16>, here: u64) -> Switch {
    let wait = Wait {
        wakeup: Wakeup {
            cpu: woken_to.map(CpuId::new),
            ..row.wait.wakeup
        },
        moved: Some(Nanos::from_ns(here)),
        ..row.wait
    };
    Switch { wait, ..row }
}

pub(super) fn gap(cpu: u16, start: u64, end: u64) -> Gap {
    Gap {
        cpu: CpuId::new(cpu),
        start: Timestamp::from_ns(start),
        end: Timestamp::from_ns(end),
        lost: 1,
        level: Level::Os,
    }
}

/// Feeds the rows, checks that the parts of each wait sum to it, and returns the parts of T's
/// waits.
fn split_with(mut contention: Contention, rows: &[Switch]) -> Vec<(Holder, u64)> {
    let mut told = Vec::new();
    let mut sink = |wait: Contended<'_>| {
        let mut parts = Vec::new();
        wait.for_each_part(|holder, time| parts.push((holder, time.as_ns())));
        let sum: u64 = parts.iter().map(|part| part.1).sum();
        assert_eq!(sum, wait.runq.as_ns(), "{parts:?}");
        if wait.task == TaskKey::new(T) {
            told.append(&mut parts);
        }
    };
    for row in rows {
        contention.push(row, &mut sink);
    }
    contention.finish(&mut sink);
    told
}

fn split(rows: &[Switch]) -> Vec<(Holder, u64)> {
    split_with(Contention::new(Coverage::EveryTask, 2, &[]), rows)
}

fn task(key: u32) -> Holder {
    Holder::Task(TaskKey::new(key))
}

/// Its wait is in the times of its thread, and must be here, too: those sum to these.
#[test]
fn a_wait_before_a_run_of_unknown_length_is_nobodys() {
    let row = Switch {
        ran: None,
        ..waited(run(0, T, 200, 210, 0), 100)
    };
    let rows = [run(0, A, 50, 200, T), row];
    assert_eq!(split(&rows), [(Holder::Unaccounted, 100)]);
}

/// ```text
///          wait of T: 100 ─────────────────── 200
/// cpu 0  A ──────── 130  B ─── 150  idle  180 A ── 200  T ── 210
/// ```
#[test]
fn a_wait_is_split_among_runs_and_idle() {
    let rows = [
        run(0, A, 50, 130, B),
        run(0, B, 130, 150, 0),
        run(0, A, 180, 200, T),
        waited(run(0, T, 200, 210, 0), 100),
    ];
    let parts = [
        (task(A), 20),
        (Holder::Idle, 30),
        (task(B), 20),
        (task(A), 30),
    ];
    assert_eq!(split(&rows), parts);
}

/// Half of A's run lies in the wait: so does half of its interrupts, rounded down.
#[test]
fn interrupts_and_steal_are_taken_in_proportion() {
    let hog = Switch {
        irq: Nanos::from_ns(11),
        stolen: Nanos::from_ns(20),
        ..run(0, A, 0, 200, T)
    };
    let rows = [hog, waited(run(0, T, 200, 210, 0), 100)];
    let parts = [(Holder::Interrupts, 5), (Holder::Steal, 10), (task(A), 85)];
    assert_eq!(split(&rows), parts);
}

/// Charged time is a difference of two clocks and can exceed the run.
#[test]
fn interrupts_and_steal_never_exceed_the_run() {
    let hog = Switch {
        irq: Nanos::from_ns(80),
        stolen: Nanos::from_ns(80),
        ..run(0, A, 0, 100, T)
    };
    let rows = [hog, waited(run(0, T, 100, 110, 0), 100)];
    assert_eq!(
        split(&rows),
        [(Holder::Interrupts, 80), (Holder::Steal, 20)]
    );
}

#[test]
fn a_throttled_wait_is_throttle_whoever_ran() {
    let mut row = waited(run(0, T, 200, 210, 0), 100);
    row.wait.reason = Some(Reason::Throttle);
    let rows = [run(0, A, 0, 200, T), row];
    assert_eq!(split(&rows), [(Holder::Throttle, 100)]);
}

/// ```text
///           queue of cpu 0: 100 ─ 140 │ queue of cpu 1: 140 ─ 160
/// cpu 0  A 0 ──────────────────────────────────────────────────────── 900 (a later row)
/// cpu 1  B 0 ────────────────────────────────────── 160  T ── 170
/// ```
#[test]
fn a_moved_wait_is_split_on_both_cpus() {
    let rows = [
        run(1, B, 0, 160, T),
        moved(waited(run(1, T, 160, 170, 0), 60), Some(0), 20),
        run(0, A, 0, 900, 0),
    ];
    assert_eq!(split(&rows), [(task(B), 20), (task(A), 40)]);
}

/// A preempted task is not woken: it waits first where it had run.
#[test]
fn a_preempted_task_waited_first_where_it_last_ran() {
    let rows = [
        run(0, T, 50, 100, A),
        run(1, B, 0, 160, T),
        moved(waited(run(1, T, 160, 170, 0), 60), None, 20),
        run(0, A, 100, 900, 0),
    ];
    assert_eq!(split(&rows), [(task(B), 20), (task(A), 40)]);
}

#[test]
fn a_moved_wait_is_unaccounted_where_no_row_follows() {
    let rows = [
        run(0, B, 0, 90, A),
        run(1, B, 120, 160, T),
        moved(waited(run(1, T, 160, 170, 0), 60), Some(0), 40),
    ];
    assert_eq!(split(&rows), [(task(B), 40), (Holder::Unaccounted, 20)]);
}

/// ```text
///         wait of T: 100 ──────────── 200
/// cpu 0  A ── 120   (lost: 150)   170 B ── 200
/// ```
#[test]
fn a_hole_near_a_gap_is_unaccounted() {
    let rows = [
        run(0, A, 50, 120, 0),
        run(0, B, 170, 200, T),
        waited(run(0, T, 200, 210, 0), 100),
    ];
    let parts = [(task(B), 30), (Holder::Idle, 50), (task(A), 20)];
    assert_eq!(split(&rows), parts);
    let lossy = Contention::new(Coverage::EveryTask, 2, &[gap(0, 150, 160)]);
    let parts = [(task(B), 30), (Holder::Unaccounted, 50), (task(A), 20)];
    assert_eq!(split_with(lossy, &rows), parts);
}

#[test]
fn a_gap_on_another_cpu_or_before_the_wait_changes_nothing() {
    let rows = [waited(run(0, T, 200, 210, 0), 100)];
    let gaps = [gap(1, 150, 160), gap(0, 10, 90)];
    let contention = Contention::new(Coverage::EveryTask, 2, &gaps);
    assert_eq!(split_with(contention, &rows), [(Holder::Idle, 100)]);
}

/// A's row names B as the next, and B's row is missing though nothing is known to be lost.
#[test]
fn a_successor_without_a_row_is_unaccounted() {
    let rows = [run(0, A, 50, 120, B), waited(run(0, T, 200, 210, 0), 100)];
    assert_eq!(split(&rows), [(Holder::Unaccounted, 80), (task(A), 20)]);
}

/// The capture began inside A's run, so its length is not known, but nothing else ran.
#[test]
fn a_run_of_unknown_length_covers_the_time_since_the_last_row() {
    let cut = Switch {
        ran: None,
        ..run(0, A, 150, 150, T)
    };
    let rows = [cut, waited(run(0, T, 150, 160, 0), 100)];
    assert_eq!(split(&rows), [(task(A), 100)]);
}

#[test]
fn what_fell_out_of_memory_is_unaccounted_and_counted() {
    let mut contention = Contention::with_memory(Coverage::EveryTask, 1, &[]);
    let mut parts = Vec::new();
    let rows = [
        run(0, A, 0, 130, B),
        run(0, B, 130, 200, T),
        waited(run(0, T, 200, 210, 0), 100),
    ];
    for row in rows {
        contention.push(&row, &mut |wait| {
            wait.for_each_part(|holder, time| parts.push((holder, time)));
        });
    }
    let (seventy, thirty) = (Nanos::from_ns(70), Nanos::from_ns(30));
    assert_eq!(parts, [(task(B), seventy), (Holder::Unaccounted, thirty)]);
    assert_eq!(contention.beyond_memory(), 1);
}

/// In a trace of one command, what others did on the first CPU after the move is not recorded.
#[test]
fn in_a_scoped_trace_a_hole_before_a_move_is_unaccounted() {
    let rows = [
        run(0, B, 0, 90, 0),
        run(1, B, 120, 160, T),
        moved(waited(run(1, T, 160, 170, 0), 60), Some(0), 40),
        run(0, T, 500, 600, 0),
    ];
    let everywhere = [(task(B), 40), (Holder::Idle, 20)];
    assert_eq!(split(&rows), everywhere);
    let scoped = Contention::new(Coverage::RecordedTasks, 2, &[]);
    let parts = [(task(B), 40), (Holder::Unaccounted, 20)];
    assert_eq!(split_with(scoped, &rows), parts);
}

#[test]
fn its_own_run_is_never_a_part_of_a_wait() {
    let rows = [
        run(0, T, 50, 120, A),
        run(0, A, 120, 200, T),
        waited(run(0, T, 200, 210, 0), 100),
    ];
    assert_eq!(split(&rows), [(task(A), 80), (Holder::Unaccounted, 20)]);
}

/// A wait cannot be longer than the machine is up; the sum holds all the same.
#[test]
fn an_impossible_wait_is_unaccounted_beyond_boot() {
    let rows = [waited(run(0, T, 200, 210, 0), 1000)];
    assert_eq!(
        split(&rows),
        [(Holder::Idle, 200), (Holder::Unaccounted, 800)]
    );
    let rows = [
        moved(waited(run(1, T, 200, 210, 0), 1000), Some(0), 100),
        run(0, A, 0, 900, 0),
    ];
    let parts = [
        (Holder::Idle, 100),
        (task(A), 100),
        (Holder::Unaccounted, 800),
    ];
    assert_eq!(split(&rows), parts);
}
