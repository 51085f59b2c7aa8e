//! Workers that wait for ever are reported, with which waits for which; workers that may be woken
//! are not.
//!
//! "Nothing is left that could wake them" is decided for a whole process, so those programs run in
//! a process of their own each.

mod child;

use std::sync::{Arc, mpsc};
use std::time::Duration;

use child::{PATIENCE, end_with_parent, is_child, said_until};
use swtch_fiber::stall::{BlockedOn, Deadlock};
use swtch_fiber::sync::{Event, Mutex, RwLock, Semaphore, channel};
use swtch_fiber::{
    JoinError, JoinHandle, Mode, Runtime, TaskBuilder, WaitType, preemptive, scope, sleep, spawn,
    timeout, yield_now,
};

/// Long enough for the monitor to look once more.
const AGAIN: Duration = Duration::from_millis(1500);

/// Long enough for the monitor to look twice.
const LONG: Duration = Duration::from_millis(2500);

/// A runtime with one scheduler, one task that always has work, and its reported deadlocks.
fn busy(mode: Mode) -> (Runtime, mpsc::Receiver<Deadlock>) {
    let (send, deadlocks) = mpsc::channel();
    let runtime = Runtime::builder()
        .schedulers(1)
        .mode(mode)
        .on_deadlock(move |deadlock| drop(send.send(deadlock.clone())))
        .build()
        .expect("a runtime");
    let body = || {
        loop {
            sleep(Duration::from_millis(20));
        }
    };
    runtime.spawn(body).expect("it starts");
    (runtime, deadlocks)
}

/// The tasks of a cycle with what each blocker has to do, in the order of names.
fn members(deadlock: &Deadlock) -> Vec<(String, BlockedOn)> {
    let Deadlock::Cycle(cycle) = deadlock else {
        panic!("{deadlock}");
    };
    let next = cycle.iter().cycle().skip(1);
    let mut members: Vec<_> = cycle
        .iter()
        .zip(next)
        .map(|(waiting, next)| {
            let blocker = waiting.blocker.as_ref().expect("in a cycle");
            assert_eq!(blocker.task, next.task, "{deadlock}");
            (waiting.task.clone(), blocker.has_to)
        })
        .collect();
    members.sort_by(|(one, _), (other, _)| one.cmp(other));
    members
}

/// Runs `program` beside a task that sleeps and runs, in both modes. The cycle must be this one,
/// and must be reported once.
fn assert_cycle(expected: &[(&str, BlockedOn)], program: fn()) {
    in_both_modes(|mode| {
        let (runtime, deadlocks) = busy(mode);
        // As a task, which keeps the scheduler: otherwise the first may end before the second
        // starts.
        let program = runtime.spawn_with(TaskBuilder::new().name("program"), program);
        let deadlock = deadlocks.recv_timeout(PATIENCE).expect("a report");
        let expected: Vec<_> = expected
            .iter()
            .map(|(task, has_to)| ((*task).to_owned(), *has_to))
            .collect();
        assert_eq!(members(&deadlock), expected, "{mode:?}: {deadlock}");
        let again = deadlocks.recv_timeout(AGAIN);
        assert!(again.is_err(), "{mode:?}: reported twice: {again:?}");
        drop(program);
        // Dropping the runtime cancels all of them.
        drop(runtime);
    });
}

/// Calls `test` with each mode, at the same time: most of it is waiting for the monitor.
fn in_both_modes(test: impl Fn(Mode) + Sync) {
    std::thread::scope(|scope| {
        for mode in [Mode::Fiber, Mode::Thread] {
            let test = &test;
            scope.spawn(move || test(mode));
        }
    });
}

fn start(name: &str, body: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    TaskBuilder::new()
        .name(name)
        .spawn(body)
        .expect("it starts")
}

/// The classic case: two locks in two orders, while others sleep and run.
#[test]
fn two_mutexes_in_two_orders_are_a_cycle() {
    let expected = [("left", BlockedOn::Unlock), ("right", BlockedOn::Unlock)];
    assert_cycle(&expected, || {
        let locks = Arc::new([Mutex::new(()), Mutex::new(())]);
        for (first, name) in ["left", "right"].into_iter().enumerate() {
            let locks = locks.clone();
            start(name, move || {
                let _one = locks[first].lock();
                yield_now();
                let _other = locks[1 - first].lock();
            });
        }
    });
}

/// Two tasks that have each other's handle.
#[test]
fn two_tasks_that_join_each_other_are_a_cycle() {
    let expected = [("left", BlockedOn::End), ("right", BlockedOn::End)];
    assert_cycle(&expected, || {
        let (to_left, from_right) = channel::unbounded::<JoinHandle<()>>();
        let (to_right, from_left) = channel::unbounded::<JoinHandle<()>>();
        let left = start("left", move || drop(from_right.recv().unwrap().join()));
        let right = start("right", move || drop(from_left.recv().unwrap().join()));
        to_right.send(left).unwrap();
        to_left.send(right).unwrap();
    });
}

/// The holder of a lock joins a task that wants the lock; it is held by readers or by a writer.
#[test]
fn a_cycle_may_be_of_several_kinds() {
    let expected = [
        ("joiner", BlockedOn::End),
        ("reader", BlockedOn::Unlock),
        ("writer", BlockedOn::Unlock),
    ];
    assert_cycle(&expected, || {
        let mutex = Arc::new(Mutex::new(()));
        let lock = Arc::new(RwLock::new(()));
        let (theirs, wanted) = (mutex.clone(), lock.clone());
        let [is_read, is_locked] = [(); 2].map(|()| Arc::new(Event::manual()));
        let (has_read, waits_for_lock) = (is_read.clone(), is_locked.clone());
        // Two may read: the one that waits for the mutex is in the cycle.
        let _idle_reader = start("bystander", {
            let lock = lock.clone();
            move || {
                let _read = lock.read();
                sleep(Duration::from_secs(3600));
            }
        });
        start("reader", move || {
            let _read = wanted.read();
            has_read.set();
            waits_for_lock.wait();
            let _mutex = theirs.lock();
        });
        start("joiner", move || {
            let _mutex = mutex.lock();
            is_locked.set();
            is_read.wait();
            let writer = start("writer", move || drop(lock.write()));
            writer.join().unwrap();
        });
    });
}

/// A writer waits between two read locks of one task: the case that the docs of `RwLock` warn of.
#[test]
fn a_second_read_lock_behind_a_writer_is_a_cycle() {
    let expected = [
        ("reader", BlockedOn::GoFirst),
        ("writer", BlockedOn::Unlock),
    ];
    assert_cycle(&expected, || {
        let lock = Arc::new(RwLock::new(()));
        let theirs = lock.clone();
        start("reader", move || {
            let _one = theirs.read();
            start("writer", move || drop(lock.write()));
            // A reader that comes is refused once the writer waits.
            while theirs.try_read().is_some() {
                yield_now();
            }
            let _other = theirs.read();
        });
    });
}

/// A scope waits for all of its tasks, so one that needs what its parent holds is enough.
#[test]
fn a_scope_that_holds_what_its_task_wants_is_a_cycle() {
    let expected = [("#", BlockedOn::Unlock), ("parent", BlockedOn::End)];
    for by_handle in [false, true] {
        let (runtime, deadlocks) = busy(Mode::Fiber);
        let parent = TaskBuilder::new().name("parent");
        let parent = runtime.spawn_with(parent, move || {
            let mutex = Mutex::new(());
            let _held = mutex.lock();
            scope(|scope| {
                let wants = scope.spawn(|| drop(mutex.lock())).unwrap();
                if by_handle {
                    wants.join().unwrap();
                }
            });
        });
        let deadlock = deadlocks.recv_timeout(PATIENCE).unwrap();
        let mut found = members(&deadlock);
        found[0].0.truncate(1);
        let expected = expected.map(|(task, has_to)| (task.to_owned(), has_to));
        assert_eq!(found, expected, "by handle {by_handle}: {deadlock}");
        drop(parent);
    }
}

/// This can be detected at once, so it is an error and no deadlock.
#[test]
fn a_task_that_joins_itself_gets_an_error() {
    in_both_modes(|mode| {
        let (runtime, _deadlocks) = busy(mode);
        let (send, receive) = channel::unbounded::<JoinHandle<()>>();
        let (send_result, results) = mpsc::channel();
        let task = runtime.spawn(move || {
            let own = receive.recv().unwrap();
            send_result.send(own.join()).unwrap();
        });
        send.send(task.unwrap()).unwrap();
        let result = results.recv_timeout(PATIENCE).unwrap();
        assert!(matches!(result, Err(JoinError::Itself)), "{result:?}");
    });
}

/// Waits that end by themselves are no deadlock: a lock with a time limit, a timeout around it, a
/// sleeper that holds what others want, a preemptive section, a semaphore, an event.
#[test]
fn waits_that_may_end_are_not_reported() {
    in_both_modes(|mode| {
        let (runtime, deadlocks) = busy(mode);
        let program = || {
            for limited in [false, true] {
                let locks = Arc::new([Mutex::new(()), Mutex::new(())]);
                for first in [0, 1] {
                    let locks = locks.clone();
                    start("limited", move || {
                        let _one = locks[first].lock();
                        yield_now();
                        let other = &locks[1 - first];
                        if first == 0 {
                            drop(other.lock());
                        } else if limited {
                            drop(other.lock_timeout(Duration::from_secs(3600)));
                        } else {
                            timeout(Duration::from_secs(3600), || drop(other.lock())).unwrap();
                        }
                    });
                }
            }
            let held = Arc::new(Mutex::new(()));
            let wanted = held.clone();
            start("sleeper", move || {
                let _held = held.lock();
                sleep(Duration::from_secs(3600));
            });
            start("patient", move || drop(wanted.lock()));
            let permits = Arc::new(Semaphore::new(0));
            start("permit", move || drop(permits.acquire()));
            let event = Arc::new(Event::manual());
            start("event", move || event.wait());
        };
        runtime.run(program).unwrap();
        let none = deadlocks.recv_timeout(LONG);
        assert!(none.is_err(), "{mode:?}: {}", none.unwrap());
    });
}

/// Runs `body` in a process whose only other thread waits for it, until another process ends this
/// one: a sleeping thread in this one could wake a worker.
fn play_until_it_is_over(mode: Mode, body: fn()) {
    let runtime = Runtime::builder()
        .schedulers(2)
        .mode(mode)
        .build()
        .expect("a runtime");
    let main = runtime.spawn_with(TaskBuilder::new().name("main"), body);
    end_with_parent();
    drop(main.expect("it starts").join());
}

/// All workers wait, and the thread that started them waits for their end. Nothing can wake them,
/// which is reported by default, once, with what each waits for.
#[test]
fn all_waiting_with_nobody_left_is_reported_on_standard_error() {
    const NAME: &str = "all_waiting_with_nobody_left_is_reported_on_standard_error";
    if is_child(NAME) {
        play_until_it_is_over(Mode::Fiber, || {
            let holder = start("holder", || {
                let held = Arc::new(Mutex::new(()));
                let wanted = held.clone();
                let _held = held.lock();
                start("wants", move || drop(wanted.lock()));
                Event::manual().wait();
            });
            holder.join().unwrap();
        });
    }
    const REPORT: &str = "deadlock: all 3 workers";
    let parts = [
        REPORT,
        "(task \"holder\") waits for EVENT",
        "(task \"wants\") waits for MUTEX",
        "held by worker",
        "(task \"main\") waits for JOIN",
        "the end of worker",
    ];
    let text = said_until(NAME, &[], &parts, AGAIN);
    assert_eq!(text.matches(REPORT).count(), 1, "{text}");
}

/// In thread mode the threads of workers wait in the kernel too.
#[test]
fn all_waiting_in_thread_mode_is_reported() {
    const NAME: &str = "all_waiting_in_thread_mode_is_reported";
    if is_child(NAME) {
        play_until_it_is_over(Mode::Thread, || {
            let (_send, receive) = channel::unbounded::<()>();
            receive.recv().unwrap();
        });
    }
    let report = "(task \"main\") waits for CHANNEL_RECEIVE";
    said_until(NAME, &[], &[report], Duration::ZERO);
}

/// One worker waits for a task that has no free worker.
#[test]
fn a_task_without_a_worker_is_part_of_the_report() {
    const NAME: &str = "a_task_without_a_worker_is_part_of_the_report";
    if is_child(NAME) {
        let runtime = Runtime::builder().schedulers(1).workers(1).build().unwrap();
        let main = runtime
            .spawn(|| drop(spawn(|| ()).unwrap().join()))
            .unwrap();
        end_with_parent();
        drop(main.join());
    }
    let report = "tasks that wait for a worker: 1";
    said_until(NAME, &[], &[report], Duration::ZERO);
}

/// Each of these could wake a worker: a sleeper, a preemptive section, a socket, a thread that
/// sleeps, a thread in a system call, another runtime.
#[test]
fn all_waiting_while_somebody_could_wake_them_is_not_reported() {
    const NAME: &str = "all_waiting_while_somebody_could_wake_them_is_not_reported";
    const WAITS: &str = "all wait";
    let others: [(&str, fn()); 6] = [
        ("sleeper", || {
            spawn(|| sleep(Duration::from_secs(3600))).unwrap();
        }),
        ("preemptive", || {
            let foreign = || std::thread::sleep(Duration::from_secs(3600));
            spawn(move || preemptive(WaitType::PREEMPTIVE_OTHER, foreign)).unwrap();
        }),
        ("socket", || {
            let listener = swtch_fiber::net::TcpListener::bind("127.0.0.1:0").unwrap();
            spawn(move || drop(listener.accept())).unwrap();
        }),
        ("thread that sleeps", || {
            std::thread::spawn(|| std::thread::sleep(Duration::from_secs(3600)));
        }),
        ("thread in a call", || {
            std::thread::spawn(|| {
                let mut ends = [0; 2];
                // SAFETY: room for two descriptors.
                unsafe { libc::pipe(ends.as_mut_ptr()) };
                // SAFETY: room for a byte.
                unsafe { libc::read(ends[0], (&raw mut ends).cast(), 1) };
            });
        }),
        ("another runtime", || {
            std::mem::forget(Runtime::builder().schedulers(1).build().unwrap());
        }),
    ];
    if is_child(NAME) {
        let number: usize = std::env::var("SWTCH_FIBER_OTHER").unwrap().parse().unwrap();
        let other = others[number].1;
        let runtime = Runtime::builder().schedulers(1).build().unwrap();
        end_with_parent();
        let main = runtime.spawn(move || {
            other();
            eprintln!("{WAITS}");
            Event::manual().wait();
        });
        drop(main.unwrap().join());
    }
    let children: Vec<_> = (0..others.len())
        .map(|number| {
            std::thread::spawn(move || {
                let number = number.to_string();
                let with = [("SWTCH_FIBER_OTHER", &*number)];
                said_until(NAME, &with, &[WAITS], LONG)
            })
        })
        .collect();
    for ((what, _), child) in others.iter().zip(children) {
        let text = child.join().unwrap();
        assert!(!text.contains("deadlock"), "{what}: {text}");
    }
}
