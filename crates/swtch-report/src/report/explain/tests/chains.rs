//! Tests of whom a wait for another thread is charged to, and of threads of which only one works at a time.

use super::*;

/// A row that ends at `ts`, of a task that was woken by `waker` and ran for 1 µs.
fn ended_at(ts: u64, waits: (u32, Reason, u64), leaves: Reason, waker: Option<u32>) -> Switch {
    let (task, reason, blocked) = waits;
    let mut row = after(row(task, leaves), reason, blocked, 0);
    row.ts = Timestamp::from_ns(ts);
    row.ran = Some(Nanos::from_ns(1_000));
    match waker {
        Some(waker) => woken_by(row, waker),
        None => row,
    }
}

/// Three threads take a lock in turn, and whoever has it waits for the disk.
#[test]
fn a_lock_is_charged_to_what_its_holder_waits_for() {
    let events: Vec<_> = (1..=3).map(|key| seen(key, 10, 9 + key, "w")).collect();
    let mut drawing = DrawnMachine::of(&events);
    let turn = 2 * MS;
    for number in 3..300_u64 {
        let task = 1 + u32::try_from(number % 3).unwrap();
        let before = 1 + u32::try_from((number - 1) % 3).unwrap();
        let begins = number * turn;
        let has_it = (task, Reason::Futex, 2 * turn - 1_000);
        drawing.rows.push(on(
            ended_at(begins + 1_000, has_it, Reason::Io, Some(before)),
            7,
        ));
        let back = ended_at(
            begins + turn,
            (task, Reason::Io, turn - 2_000),
            Reason::Futex,
            None,
        );
        drawing.rows.push(on(back, 0xf00));
    }
    let explained = drawing.explained();
    let [disk, lock] = [0, 1].map(|place| &explained.findings[place]);
    assert_eq!((disk.name, disk.kind), ("block_io", FindingKind::Lost));
    assert!(
        disk.places[0].contains("at locks for one that was held up"),
        "{disk:?}"
    );
    assert!(disk.time.as_ns() > 297 * 2 * turn, "{disk:?}");
    // Two of three wait while the third has it, and what it had the CPU for is the lock's.
    assert_eq!(
        (lock.name, lock.kind),
        ("futex_contention", FindingKind::Frequent)
    );
    assert!(
        lock.places[0].starts_with("whoever had it meanwhile: waited for a file or disk 99"),
        "{lock:?}"
    );
}

/// Each waits at a word of its own, as for a monitor of Java.
#[test]
fn threads_that_work_in_turns_are_told_although_nobody_knows_for_what() {
    let mut drawing = DrawnMachine::new();
    for turn in 0..200 {
        let [task, other] = [1 + turn % 2, 2 - turn % 2];
        let wait = after(row(task, Reason::Futex), Reason::Futex, MS, 0);
        drawing.run(
            on(woken_by(wait, other), 0xf00 + u64::from(task) * 0x1000),
            MS,
            other,
        );
    }
    let explained = drawing.explained_of(Nanos::from_ns(200 * MS));
    let serial = &explained.findings[0];
    assert_eq!(
        (serial.name, serial.kind),
        ("serialised", FindingKind::Lost)
    );
    assert!(
        serial.seen.contains("one of 2 threads ran alone"),
        "{}",
        serial.seen
    );
    assert!(serial.time.as_ns() > 190 * MS, "{}", serial.time);
    // In ten times that time the program waits for something else, too: its threads have no work.
    let idle = drawing.explained_of(Nanos::from_ns(2_000 * MS));
    assert!(idle.findings.iter().all(|one| one.name != "serialised"));
}

/// One backend of a server is recorded, and another one wakes it.
#[test]
fn who_waits_for_its_own_kind_may_wait_for_a_lock() {
    let other = TaskEvent {
        in_scope: false,
        ..seen(3, 30, 30, "postgres")
    };
    let mut drawing = DrawnMachine::of(&[seen(1, 10, 10, "postgres"), other]);
    for _ in 0..100 {
        let wait = after(row(1, Reason::Poll), Reason::Poll, MS, 0);
        drawing.run(woken_by(wait, 3), 1_000, 0);
    }
    let first = drawing.explained().first_sentence().unwrap();
    assert!(
        first.starts_with(
            "It mostly waits for processes of its own kind that are not recorded (another postgres 100.0 %)"
        ),
        "{first}"
    );
}

/// A thread that sleeps again and again may try for something.
#[test]
fn sleep_that_takes_most_of_the_time_is_in_doubt() {
    let mut drawing = DrawnMachine::new();
    for _ in 0..100 {
        drawing.run(
            after(row(1, Reason::Sleep), Reason::Sleep, 10 * MS, 0),
            1_000,
            0,
        );
    }
    let first = drawing.explained().first_sentence().unwrap();
    assert!(
        first.starts_with(
            "It mostly sleeps: 100 times, 10.0 ms each (mean), 1.00 s in all. If these are tries"
        ),
        "{first}"
    );
}

/// If one thread does the work, the others have none.
#[test]
fn a_thread_that_is_busy_alone_is_named() {
    let mut drawing = DrawnMachine::new();
    for _ in 0..100 {
        let wait = after(row(2, Reason::Futex), Reason::Futex, MS, 0);
        drawing.run(on(woken_by(wait, 1), 0xf00), 1_000, 1);
        drawing.run(after(row(1, Reason::Pipe), Reason::Pipe, 1_000, 0), MS, 2);
    }
    let explained = drawing.explained_of(Nanos::from_ns(101 * MS));
    let first = explained.first_sentence().unwrap();
    assert!(
        first.starts_with(
            "server/10 ran 99.0 % of the time, and others wait for it: together they are as fast as"
        ),
        "{first}"
    );
}

/// A child that has inherited the locked file lets go of it at its end: it never waited for it itself.
#[test]
fn who_waits_in_flock_waits_for_a_lock_whoever_lets_go() {
    let mut drawing = DrawnMachine::new();
    for _ in 0..100 {
        let wait = after(row(1, Reason::Ipc), Reason::Ipc, 5 * MS, 0);
        drawing.run(in_call(woken_by(wait, 2), 73), 10_000, 0);
    }
    let first = drawing.findings().remove(0);
    assert_eq!(
        (first.name, first.kind),
        ("token_contention", FindingKind::Lost)
    );
    assert!(
        first.seen.contains("in flock(), as for a lock"),
        "{}",
        first.seen
    );
}

/// A run that began before the recording tells no length, and one that ends a wait that nobody saw tells none, either.
#[test]
fn a_run_counts_from_the_beginning_of_the_recording() {
    let began = Some(Timestamp::from_ns(0));
    let names = DrawnMachine::new().names;
    let mut details = Details::new(
        &names,
        PartFacts {
            began,
            ..PartFacts::default()
        },
    );
    let mut add = |task: u32, cpu: u16, at: u64| {
        let mut row = row(task, Reason::Slice);
        (row.ts, row.cpu, row.ran) = (Timestamp::from_ns(at), CpuId::new(cpu), None);
        let task = names.index(row.task);
        let counted = crate::report::filter::CountedParts {
            switch: true,
            wait: true,
        };
        details.add(&row, task, counted, &names);
        let time = details.lost_time(
            &TimeAtLocks::default(),
            &StackLockTime::default(),
            None,
            &BlockedLoops::default(),
        );
        time.ran.as_ns()
    };
    assert_eq!(add(1, 0, 100 * MS), 100 * MS);
    // It cannot have run on this CPU before.
    assert_eq!(add(2, 0, 130 * MS), 130 * MS);
    assert_eq!(add(1, 1, 200 * MS), 130 * MS);
}

/// A thread that waits in `write` for room has more to say, and is held up by its reader; one that waits in `read` may
/// have nothing to do.
#[test]
fn who_waits_for_room_is_held_up_by_the_reader() {
    let reader = TaskEvent {
        in_scope: false,
        ..seen(3, 30, 30, "reader")
    };
    let first_of = |call| {
        let mut drawing = DrawnMachine::of(&[seen(1, 10, 10, "server"), reader.clone()]);
        for _ in 0..100 {
            let wait = after(row(1, Reason::Pipe), Reason::Pipe, MS, 0);
            drawing.run(in_call(woken_by(wait, 3), call), 10_000, 0);
        }
        drawing.findings().remove(0)
    };
    let first = first_of(1);
    assert_eq!((first.name, first.kind), ("no_room", FindingKind::Lost));
    assert!(first.seen.contains("has been read, by reader"), "{first:?}");
    assert_eq!(
        first.time.as_ns(),
        99 * MS,
        "the first row's wait began unseen"
    );
    assert_eq!(first_of(0).name, "pipe_idle");
}

/// Two workers wait at one word for jobs, which a third hands out; it waits for others itself.
#[test]
fn threads_to_which_work_is_handed_out_had_none() {
    let client = TaskEvent {
        in_scope: false,
        ..seen(4, 30, 30, "client")
    };
    let server: Vec<_> = (1..=3)
        .map(|key| seen(key, 10, 9 + key, "server"))
        .collect();
    let mut drawing = DrawnMachine::of(&[&server[..], &[client]].concat());
    for turn in 0..200 {
        let worker = 1 + turn % 2;
        let wait = after(row(worker, Reason::Futex), Reason::Futex, 10 * MS, 0);
        drawing.run(on(woken_by(wait, 3), 0xf00), 1_000, 3);
        let wait = after(row(3, Reason::Poll), Reason::Poll, 4 * MS, 0);
        drawing.run(woken_by(wait, 4), 1_000, 0);
    }
    let first = drawing.explained().first_sentence().unwrap();
    assert!(
        first.starts_with("It mostly waits for others, for work or an answer: client 100.0 %, 800 ms in all. In the"),
        "{first}"
    );
    assert!(
        first.contains("waited 1.98 s for work that others of them hand out"),
        "{first}"
    );
}

/// Two threads take turns on one CPU: each is woken by the other half a millisecond before that one leaves. Three that
/// wait for each other as long are too many.
#[test]
fn threads_that_are_woken_early_are_not_too_many() {
    let first_of = |threads: u32| {
        let events: Vec<_> = (1..=threads)
            .map(|key| seen(key, 10, 9 + key, "w"))
            .collect();
        let mut drawing = DrawnMachine::of(&events);
        for turn in 0..300 {
            let (task, waker) = (1 + turn % threads, 1 + (turn + 1) % threads);
            let wait = after(row(task, Reason::Pipe), Reason::Pipe, MS, 500_000);
            drawing.run(woken_by(wait, waker), MS, 1 + (turn + 1) % threads);
        }
        drawing.findings().remove(0)
    };
    let two = first_of(2);
    assert_eq!((two.name, two.kind), ("woken_early", FindingKind::Lost));
    let places = two.places.join("; ");
    assert!(
        places.contains("of that it was whoever had woken the thread"),
        "{places}"
    );
    assert_eq!(first_of(3).name, "oversubscribed");
}

/// A backend of a server waits in epoll for another one, which waits for its client.
#[test]
fn processes_of_one_program_that_wait_for_each_other_wait_for_whom_these_wait() {
    let client = TaskEvent {
        in_scope: false,
        ..seen(3, 30, 30, "client")
    };
    let backend = TaskEvent {
        parent_pid: Pid::new(10),
        ..seen(2, 11, 11, "server")
    };
    let mut drawing = DrawnMachine::of(&[seen(1, 10, 10, "server"), backend, client]);
    for _ in 0..100 {
        drawing.run(row(3, Reason::Pipe), 10 * MS, 2);
        let wait = after(row(2, Reason::Poll), Reason::Poll, 10 * MS, 0);
        drawing.run(woken_by(wait, 3), 10_000, 1);
        let wait = after(row(1, Reason::Poll), Reason::Poll, 10 * MS, 0);
        drawing.run(woken_by(wait, 2), 10_000, 0);
    }
    let first = drawing.explained().first_sentence().unwrap();
    assert!(
        first.starts_with("It mostly waits for others, for work or an answer: client 100.0 %, 1.00 s in all. For 9"),
        "{first}"
    );
    assert!(
        first.contains("others of its threads waited for those that did so"),
        "{first}"
    );
}
