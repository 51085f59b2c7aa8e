//! The sums are held against dividing every wait run by run.

use std::collections::VecDeque;

use super::cpu::RunCounts;
use super::*;
use crate::contention::Coverage;
use crate::contention::tests::{gap, moved, run, waited};
use crate::switch::Gap;

const TASKS: u32 = 7;

/// Tasks 5 and 6 share a place, as tasks without a name do.
fn place_of(task: TaskKey) -> usize {
    usize::try_from(task.get().min(5)).unwrap()
}

/// Tasks 1, 3 and 5 are one group, 0, 2 and 4 the other.
fn groups() -> Vec<usize> {
    (0..6).map(|place| place % 2).collect()
}

/// Trace and memory of a test.
#[derive(Clone)]
struct Drawn {
    rows: Vec<Switch>,
    gaps: Vec<Gap>,
    coverage: Coverage,
    runs_per_cpu: usize,
    window: usize,
}

impl Drawn {
    fn of(rows: &[Switch]) -> Self {
        Self {
            rows: rows.to_vec(),
            gaps: Vec::new(),
            coverage: Coverage::EveryTask,
            runs_per_cpu: 1000,
            window: 1000,
        }
    }

    fn contention(&self) -> Contention {
        Contention::with_memory(self.coverage, self.runs_per_cpu, &self.gaps)
    }

    /// The sums, how many waits reach beyond memory, and how many waits were divided run by run.
    fn summed(&self) -> (HolderTotals, u64, u64) {
        let mut sums = ContentionSums::new(self.contention(), &groups());
        sums.cpus.resize_with(3, || CpuSums {
            window: self.window,
            ..CpuSums::default()
        });
        for (number, row) in self.rows.iter().enumerate() {
            sums.push(row, number % 11 != 5, &place_of);
        }
        sums.finish(&place_of);
        let divided = sums.divided;
        (sums.totals, sums.contention.beyond_memory(), divided)
    }

    /// The totals where every wait is divided, and the number of divided waits.
    fn divided(&self) -> (HolderTotals, u64) {
        let mut contention = self.contention();
        let sums = ContentionSums::new(self.contention(), &groups());
        let (mut tasks, mut totals) = (sums.tasks, sums.totals);
        let mut add = |wait: Contended<'_>| {
            add_divided(&mut tasks, &mut totals, wait, &place_of);
        };
        for (number, row) in self.rows.iter().enumerate() {
            match number % 11 != 5 {
                true => contention.push(row, &mut add),
                false => contention.push_run(row, &mut add),
            }
        }
        contention.finish(&mut add);
        (totals, contention.beyond_memory())
    }

    /// Checks that both ways come to the same, and returns the sums and the number of divided waits.
    fn checked(&self) -> (HolderTotals, u64) {
        let (totals, beyond, divided) = self.summed();
        assert_eq!((&totals, beyond), (&self.divided().0, self.divided().1));
        (totals, divided)
    }
}

fn held(totals: &HolderTotals, place: usize) -> (u64, u64) {
    let held = totals.tasks()[place];
    (held.time.as_ns(), held.waits)
}

/// ```text
///        wait of 1:   10 ────────────────────────────── 80
///        wait of 4:             30 ─────────────────────────── 90
/// cpu 0  2 0 ─── 20  3 20 ─── 40  2 40 ─── 60  idle  70 3 ─ 80  1 ─ 90  4 ─ 95
/// ```
/// Task 2 ran twice in the wait of 1, which is one wait.
#[test]
fn a_task_that_ran_twice_in_a_wait_counts_once() {
    let rows = [
        run(0, 2, 0, 20, 3),
        run(0, 3, 20, 40, 2),
        run(0, 2, 40, 60, 0),
        run(0, 3, 70, 80, 1),
        waited(run(0, 1, 80, 90, 4), 70),
        run(1, 6, 0, 91, 0),
        waited(run(0, 4, 90, 95, 0), 60),
    ];
    let (totals, divided) = Drawn::of(&rows).checked();
    assert_eq!(divided, 0);
    assert_eq!(held(&totals, 2), (10 + 20 + 20, 2));
    assert_eq!(held(&totals, 3), (20 + 10 + 10 + 10, 2));
    assert_eq!(held(&totals, 1), (10, 1));
    let idle = totals.other(Holder::Idle);
    assert_eq!((idle.time.as_ns(), idle.waits), (20, 2));
    let split = totals.split(Reason::Futex);
    let ns = [split.own, split.others, split.rest].map(Nanos::as_ns);
    // Of 1's wait, 3 had 30 and 2 had 30; of 4's wait, 2 had 20, and 3 and 1 had 30.
    assert_eq!(ns, [30 + 20, 30 + 30, 20]);
    assert_eq!((totals.waits(), totals.runq().as_ns()), (2, 130));
}

/// The task was named as the next one, but a hole follows that others than it cannot explain.
#[test]
fn a_hole_after_a_switch_to_the_waiter_is_idle_for_it_only() {
    let rows = [
        run(0, 2, 0, 20, 1),
        run(0, 3, 40, 60, 1),
        waited(run(0, 1, 60, 70, 4), 50),
        waited(run(0, 4, 70, 80, 0), 60),
    ];
    let (totals, divided) = Drawn::of(&rows).checked();
    assert_eq!(divided, 1);
    assert_eq!(totals.other(Holder::Idle).time.as_ns(), 20);
    assert_eq!(totals.other(Holder::Unaccounted).time.as_ns(), 20);
}

/// A wait that was spent on two CPUs is divided, and one on a CPU whose runs overlap, too.
#[test]
fn odd_waits_are_divided() {
    let of_two = [
        run(1, 2, 0, 160, 1),
        moved(waited(run(1, 1, 160, 170, 0), 60), Some(0), 20),
        run(0, 3, 0, 900, 0),
    ];
    assert_eq!(Drawn::of(&of_two).checked().1, 1);
    let overlapping = [
        run(0, 2, 0, 50, 3),
        run(0, 3, 40, 80, 1),
        waited(run(0, 1, 80, 90, 0), 70),
    ];
    assert_eq!(Drawn::of(&overlapping).checked().1, 1);
}

/// Random traces: runs that follow each other, idle between them, and now and then what a damaged
/// or lossy trace has.
fn random_trace(random: &mut fastrand::Rng, odd_pct: u32) -> Drawn {
    let cpus = random.u16(1..=3);
    let mut ends = [1000_u64; 3];
    let mut left = [0_u64; TASKS as usize];
    let mut rows = Vec::new();
    let is_odd = |random: &mut fastrand::Rng| random.u32(0..100) < odd_pct;
    for _ in 0..random.usize(1..400) {
        let (cpu, task) = (random.u16(0..cpus), random.u32(1..TASKS));
        let end = &mut ends[usize::from(cpu)];
        let idle = if random.bool() { random.u64(0..30) } else { 0 };
        let start = match is_odd(random) {
            true => end.saturating_sub(random.u64(0..60)),
            false => (*end + idle).max(left[task as usize]),
        };
        let next = if random.bool() {
            0
        } else {
            random.u32(0..TASKS)
        };
        let mut row = run(cpu, task, start, start + random.u64(0..40), next);
        row.next_task = row.next_task.filter(|_| !is_odd(random));
        let waits = [random.u64(0..10), random.u64(0..100), random.u64(0..5000)];
        let longest = match is_odd(random) {
            true => u64::MAX,
            false => start - left[task as usize].min(start),
        };
        if random.u32(0..4) > 0 {
            row = waited(row, waits[random.usize(0..3)].min(longest));
        }
        if is_odd(random) {
            row.wait.reason = [None, Some(Reason::Throttle)][random.usize(0..2)];
        }
        if is_odd(random) {
            row = moved(
                row,
                random.bool().then(|| random.u16(0..cpus)),
                random.u64(0..60),
            );
        }
        if is_odd(random) {
            row.ran = None;
        }
        if random.u32(0..8) == 0 {
            row.irq = Nanos::from_ns(random.u64(0..50));
            row.stolen = Nanos::from_ns(random.u64(0..50));
        }
        (*end, left[task as usize]) = (row.ts.as_ns(), row.ts.as_ns());
        rows.push(row);
    }
    if !is_odd(random) {
        rows.sort_by_key(|row| row.ts);
    }
    let gaps = (0..random.usize(0..3)).map(|_| {
        let start = random.u64(900..3000);
        gap(random.u16(0..cpus), start, start + random.u64(0..50))
    });
    let gaps = gaps.collect();
    Drawn {
        rows,
        gaps,
        coverage: [Coverage::EveryTask, Coverage::RecordedTasks][random.usize(0..2)],
        runs_per_cpu: [1, 2, 5, 70, 1000][random.usize(0..5)],
        window: [1, 4, 30, 1000][random.usize(0..4)],
    }
}

#[test]
fn sums_are_those_of_all_waits_divided() {
    let mut random = fastrand::Rng::with_seed(17);
    let (mut waits, mut divided) = (0, 0);
    for _ in 0..2000 {
        let (totals, of_these) = random_trace(&mut random, 0).checked();
        waits += totals.waits();
        divided += of_these;
    }
    assert!(waits > 100_000, "{waits}");
    assert!(divided * 2 < waits, "{divided} of {waits}");
}

/// Whatever a trace says: overlapping runs, waits longer than the trace, rows out of order.
#[test]
fn sums_of_odd_traces_are_those_of_all_waits_divided() {
    let mut random = fastrand::Rng::with_seed(18);
    for round in 0..4000 {
        random_trace(&mut random, 1 + round % 30).checked();
    }
}

/// Beyond a block of counts, and beyond a block of blocks.
#[test]
fn counts_after_a_run_are_exact_over_blocks() {
    let mut random = fastrand::Rng::with_seed(19);
    let mut counts = RunCounts::default();
    let mut plain: VecDeque<u64> = VecDeque::new();
    let mut first = 0;
    for _ in 0..20_000 {
        counts.push();
        plain.push_back(0);
        let offset = random.usize(0..plain.len());
        counts.add_one(first + offset);
        plain[offset] += 1;
        if random.u32(0..3) == 0 {
            assert_eq!(Some(counts.pop()), plain.pop_front());
            first += 1;
        }
        let offset = match random.bool() {
            true => random.usize(0..plain.len().max(1)),
            false => plain.len().saturating_sub(random.usize(1..200)),
        };
        if random.u32(0..10) == 0 && offset < plain.len() {
            let exact: u64 = plain.range(offset + 1..).sum();
            assert_eq!(counts.after(first + offset), exact);
        }
    }
}

/// Each wait spans 2999 runs: divided one by one, they would be 600 million parts.
#[test]
fn time_of_a_row_does_not_grow_with_the_tasks_that_wait() {
    let mut sums =
        ContentionSums::new(Contention::new(Coverage::EveryTask, 1, &[]), &vec![0; 3001]);
    let place = |task: TaskKey| usize::try_from(task.get()).unwrap();
    let (rows, tasks) = (200_000_u64, 3000);
    for number in 0..rows {
        let (task, next) = (number % tasks, (number + 1) % tasks);
        let [task, next] = [task, next].map(|task| u32::try_from(task + 1).unwrap());
        let start = number * 10;
        let row = run(0, task, start, start + 10, next);
        let runq = if number < tasks { 0 } else { 10 * (tasks - 1) };
        sums.push(&waited(row, runq), true, &place);
    }
    sums.finish(&place);
    // Until the window has grown to 3000 runs.
    assert!(sums.divided < 10_000, "{}", sums.divided);
    assert_eq!(sums.totals().waits(), rows - tasks);
    let waits: u64 = sums.totals().tasks().iter().map(|held| held.waits).sum();
    assert_eq!(waits, (rows - tasks) * (tasks - 1));
}
