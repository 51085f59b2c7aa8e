//! The counters are exact: they must show what follows from how a program is built.

mod sync_common;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use fastrand::Rng;
use swtch_fiber::sync::Event;
use swtch_fiber::{
    Mode, Runtime, SchedulerCounters, WaitType, WorkerCounters, preemptive, sleep, spawn, yield_now,
};
use sync_common::{in_both_modes, runtime, until};

/// The counters of the one scheduler, once this many tasks have ended and it is idle again.
fn settled(runtime: &Runtime, tasks: u64) -> SchedulerCounters {
    let ended = |scheduler: &SchedulerCounters| scheduler.tasks_completed_count;
    until("all tasks are counted", || {
        runtime.counters().iter().map(ended).sum::<u64>() == tasks
            && runtime
                .counters()
                .iter()
                .all(|scheduler| scheduler.load_factor == 0)
    });
    runtime.counters().remove(0)
}

fn waits(scheduler: &SchedulerCounters, wait_type: &str) -> (u64, u64) {
    let found = scheduler
        .waits
        .iter()
        .find(|waits| waits.wait_type == wait_type);
    found.map_or((0, 0), |waits| {
        (waits.waiting_tasks_count, waits.completed_count)
    })
}

/// A worker that yields and finds no other runnable has yielded, but has not been switched. This
/// rule is often misunderstood.
#[test]
fn yielding_alone_is_no_context_switch() {
    in_both_modes(|runtime| {
        runtime
            .run(|| (0..1000).for_each(|_| yield_now()))
            .expect("no panic");
        let scheduler = settled(runtime, 1);
        assert_eq!(scheduler.yield_count, 1000);
        assert_eq!(scheduler.self_reselect_count, 1000);
        assert_eq!(scheduler.context_switches_count, 1, "the end of the task");
        assert_eq!(waits(&scheduler, "SOS_SCHEDULER_YIELD"), (0, 0));
    });
}

/// With a second worker each yield is a switch.
#[test]
fn yielding_to_a_peer_is_a_context_switch_each() {
    in_both_modes(|runtime| {
        runtime
            .run(|| {
                let both_there = Arc::new(AtomicU64::new(0));
                let peers = [0, 1].map(|_| {
                    let there = both_there.clone();
                    let body = move || {
                        there.fetch_add(1, Ordering::Relaxed);
                        while there.load(Ordering::Relaxed) < 2 {
                            yield_now();
                        }
                        (0..500).for_each(|_| yield_now());
                    };
                    spawn(body).expect("inside of a runtime")
                });
                for peer in peers {
                    peer.join().expect("no panic");
                }
            })
            .expect("no panic");
        let scheduler = settled(runtime, 3);
        let yields = scheduler.yield_count - waits(&scheduler, "JOIN").0;
        assert!((1000..1010).contains(&yields), "{yields}");
        // The last yields of the worker that ends later find no other worker, or the parent.
        assert!(scheduler.self_reselect_count <= 2, "{scheduler:?}");
        let switched = yields - scheduler.self_reselect_count;
        assert_eq!(
            waits(&scheduler, "SOS_SCHEDULER_YIELD"),
            (switched, switched)
        );
    });
}

/// Idle is counted once each time that nothing is runnable, and is no context switch.
#[test]
fn each_time_that_nothing_is_runnable_is_one_idle_switch() {
    in_both_modes(|runtime| {
        let idle = || runtime.counters()[0].idle_switches_count;
        until("idle from the start", || idle() == 1);
        let event = Arc::new(Event::automatic());
        let theirs = event.clone();
        let task = runtime.spawn(move || (0..50).for_each(|_| theirs.wait()));
        for round in 0..50 {
            until("idle while it waits", || idle() == 2 + round);
            event.set();
        }
        task.expect("spawned").join().expect("no panic");
        let scheduler = settled(runtime, 1);
        until("idle at the end", || idle() == 52);
        assert_eq!(scheduler.context_switches_count, 51, "50 waits and the end");
        assert_eq!(scheduler.yield_count, 50);
        assert_eq!(waits(&scheduler, "EVENT"), (50, 50));
    });
}

/// Preemptive sections are counted separately, and come back through the queue.
#[test]
fn each_preemptive_section_is_one_preemptive_switch() {
    let wait_type = WaitType::named("PREEMPTIVE_TEST_COUNT").expect("there is room");
    in_both_modes(|runtime| {
        let sum = runtime.run(move || {
            (0..40)
                .map(|one| preemptive(wait_type, || one))
                .sum::<u64>()
        });
        assert_eq!(sum.expect("no panic"), 780);
        let scheduler = settled(runtime, 1);
        assert_eq!(scheduler.preemptive_switches_count, 40);
        assert_eq!(waits(&scheduler, wait_type.name()), (40, 40));
        assert_eq!(scheduler.yield_count, 40);
    });
}

/// Without a limit, two workers that signal each other would keep all others from running. `C`
/// counts the signals between two of its turns.
#[test]
fn a_signalled_worker_goes_to_the_head_a_thousand_times_in_a_row() {
    in_both_modes(|runtime| {
        let gaps = runtime.run(|| {
            let events = Arc::new([Event::automatic(), Event::automatic()]);
            let signals = Arc::new(AtomicU64::new(0));
            let pair = [0, 1].map(|own| {
                let (events, signals) = (events.clone(), signals.clone());
                let body = move || {
                    while signals.load(Ordering::Relaxed) < 20_000 {
                        events[own].wait();
                        signals.fetch_add(1, Ordering::Relaxed);
                        events[1 - own].set();
                    }
                };
                spawn(body).expect("inside of a runtime")
            });
            let theirs = signals.clone();
            let third = spawn(move || {
                let mut turns = Vec::new();
                while theirs.load(Ordering::Relaxed) < 20_000 {
                    turns.push(theirs.load(Ordering::Relaxed));
                    yield_now();
                }
                turns
            });
            // After these yields all three have started.
            (0..10).for_each(|_| yield_now());
            events[0].set();
            let turns = third.expect("spawned").join().expect("no panic");
            for one in pair {
                one.join().expect("no panic");
            }
            turns
                .windows(2)
                .map(|turns| turns[1] - turns[0])
                .collect::<Vec<_>>()
        });
        let gaps = gaps.expect("no panic");
        let long: Vec<_> = gaps.iter().copied().filter(|gap| *gap > 10).collect();
        assert!(long.len() >= 8, "{gaps:?}");
        // Two workers, each a thousand times at the head of the queue.
        assert!(
            long.iter().all(|gap| (1990..=2010).contains(gap)),
            "{long:?}"
        );
    });
}

/// One step of a random program, which must be found in the counters.
#[derive(Clone, Copy, Debug)]
enum ProgramStep {
    Yield,
    Sleep,
    Preemptive,
    Compute,
}

#[derive(Default)]
struct PerformedSteps {
    sleeps: u64,
    preemptive: u64,
    yields: u64,
    tids: Vec<PathBuf>,
    took: Duration,
}

fn perform(steps: &[ProgramStep], wait_type: WaitType) -> PerformedSteps {
    let begun = Instant::now();
    let mut done = PerformedSteps::default();
    for step in steps {
        done.tids.extend(std::fs::read_link("/proc/thread-self"));
        match step {
            ProgramStep::Yield => {
                done.yields += 1;
                yield_now();
            }
            ProgramStep::Sleep => {
                done.sleeps += 1;
                sleep(Duration::from_micros(100));
            }
            ProgramStep::Preemptive => {
                done.preemptive += 1;
                preemptive(wait_type, || std::hint::black_box(0));
            }
            ProgramStep::Compute => drop((0..20_000_u64).map(std::hint::black_box).sum::<u64>()),
        }
    }
    done.took = begun.elapsed();
    done
}

fn programs(random: &mut Rng) -> Vec<Vec<ProgramStep>> {
    let step = |random: &mut Rng| {
        [
            ProgramStep::Yield,
            ProgramStep::Sleep,
            ProgramStep::Preemptive,
            ProgramStep::Compute,
        ][random.usize(0..4)]
    };
    let program = |random: &mut Rng| (0..random.usize(1..60)).map(|_| step(random)).collect();
    (0..random.usize(1..20)).map(|_| program(random)).collect()
}

fn in_states(worker: &WorkerCounters) -> Duration {
    worker.running + worker.runnable + worker.suspended + worker.preemptive
}

fn check(
    runtime: &Runtime,
    done: &[PerformedSteps],
    wait_type: WaitType,
    wall: Duration,
    what: &str,
) {
    let sum = |of: fn(&PerformedSteps) -> u64| done.iter().map(of).sum::<u64>();
    settled(runtime, done.len() as u64);
    let all = runtime.counters();
    let total = |of: &dyn Fn(&SchedulerCounters) -> u64| all.iter().map(of).sum::<u64>();
    let (sleeps, preemptive) = (sum(|done| done.sleeps), sum(|done| done.preemptive));
    let slept = total(&|one| waits(one, "SLEEP_TASK").1);
    assert_eq!(slept, sleeps, "{what}");
    assert_eq!(
        total(&|one| one.preemptive_switches_count),
        preemptive,
        "{what}"
    );
    assert_eq!(
        total(&|one| waits(one, wait_type.name()).1),
        preemptive,
        "{what}"
    );
    assert_eq!(
        total(&|one| waits(one, "THREADPOOL").1),
        done.len() as u64,
        "{what}"
    );
    let yields = sum(|done| done.yields);
    assert_eq!(
        total(&|one| one.yield_count),
        yields + sleeps + preemptive,
        "{what}"
    );
    for one in &all {
        let of_workers = |of: fn(&WorkerCounters) -> u64| one.workers.iter().map(of).sum::<u64>();
        let switches = of_workers(|worker| worker.context_switch_count);
        assert_eq!(switches, one.context_switches_count, "{what}");
        assert_eq!(
            of_workers(|worker| worker.yield_count),
            one.yield_count,
            "{what}"
        );
        let given_up = one.yield_count - one.self_reselect_count + one.tasks_completed_count;
        assert_eq!(switches, given_up, "{what}");
        for waits in &one.waits {
            assert_eq!(waits.waiting_tasks_count, waits.completed_count, "{what}");
            assert!(waits.signal_wait_time <= waits.wait_time, "{what}");
        }
        let longest = wall.mul_f64(1.01);
        assert!(
            one.total_running <= longest,
            "{what}: {:?} > {wall:?}",
            one.total_running
        );
        let running: Duration = one.workers.iter().map(|worker| worker.running).sum();
        let difference = running.abs_diff(one.total_running);
        assert!(
            difference < Duration::from_micros(1),
            "{what}: {difference:?}"
        );
        for worker in one
            .workers
            .iter()
            .filter(|worker| worker.tasks_processed_count == 1)
        {
            let (states, bound) = (in_states(worker), worker.bound);
            let close = states.abs_diff(bound) <= bound / 100 + Duration::from_micros(20);
            assert!(close, "{what}: {states:?} in states, {bound:?} bound");
            assert!(states <= longest, "{what}: {states:?} in {wall:?}");
        }
    }
    for done in done {
        let first = done.tids.first();
        assert!(
            done.tids.iter().all(|tid| Some(tid) == first),
            "{what}: it changed its thread"
        );
    }
}

/// The sums hold for any program.
#[test]
fn counters_of_random_programs_add_up() {
    let wait_type = WaitType::named("PREEMPTIVE_TEST_RANDOM").expect("there is room");
    for seed in 0..12 {
        for (mode, schedulers) in [
            (Mode::Fiber, 1),
            (Mode::Fiber, 3),
            (Mode::Thread, 1),
            (Mode::Thread, 3),
        ] {
            let what = format!("seed {seed}, {mode:?}, {schedulers} schedulers");
            let mut random = Rng::with_seed(seed);
            let begun = Instant::now();
            let runtime = runtime(mode, schedulers);
            let tasks: Vec<_> = programs(&mut random)
                .into_iter()
                .map(|program| runtime.spawn(move || perform(&program, wait_type)))
                .collect();
            let done: Vec<_> = tasks
                .into_iter()
                .map(|task| task.expect("spawned").join().expect("no panic"))
                .collect();
            settled(&runtime, done.len() as u64);
            check(&runtime, &done, wait_type, begun.elapsed(), &what);
        }
    }
}

/// The times of a worker's states contain its task's life, and lie within what was measured
/// outside.
#[test]
fn the_states_of_a_worker_add_up_to_its_life() {
    in_both_modes(|runtime| {
        let begun = Instant::now();
        let steps = [
            ProgramStep::Sleep,
            ProgramStep::Compute,
            ProgramStep::Yield,
            ProgramStep::Preemptive,
        ]
        .repeat(20);
        let wait_type = WaitType::PREEMPTIVE_OTHER;
        let done = runtime
            .run(move || perform(&steps, wait_type))
            .expect("no panic");
        let scheduler = settled(runtime, 1);
        let (states, wall) = (in_states(&scheduler.workers[0]), begun.elapsed());
        assert!(
            states >= done.took.mul_f64(0.99),
            "{states:?} < {:?}",
            done.took
        );
        assert!(states <= wall.mul_f64(1.01), "{states:?} > {wall:?}");
    });
}

/// Number of threads that are named after the runtime.
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("procfs");
    tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok())
        .filter(|comm| comm.starts_with(name))
        .count()
}

/// After a runtime was dropped, neither its tasks nor its threads are left.
#[test]
fn nothing_is_left_of_a_runtime() {
    for mode in [Mode::Fiber, Mode::Thread] {
        let name = format!("gone{mode:?}");
        let runtime = Runtime::builder()
            .mode(mode)
            .schedulers(2)
            .name(&name[..5])
            .build();
        let runtime = runtime.expect("a runtime");
        let ended = Arc::new(Mutex::new(0));
        for _ in 0..10 {
            struct EndCounter(Arc<Mutex<u32>>);
            impl Drop for EndCounter {
                fn drop(&mut self) {
                    *self.0.lock().expect("not poisoned") += 1;
                }
            }
            let ends = EndCounter(ended.clone());
            let body = move || {
                let _ends = ends;
                preemptive(WaitType::PREEMPTIVE_OTHER, || ());
                sleep(Duration::from_secs(1000));
            };
            drop(runtime.spawn(body).expect("spawned"));
        }
        assert!(threads(&name[..5]) >= 2);
        drop(runtime);
        assert_eq!(*ended.lock().expect("not poisoned"), 10, "{mode:?}");
        until("its threads are gone", || threads(&name[..5]) == 0);
    }
}
