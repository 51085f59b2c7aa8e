//! Tests of what is said of locks, of queues and of idle workers.

use super::*;

fn named(mut row: Switch, waker: WakerKind) -> Switch {
    row.wait.wakeup.kind = Some(waker);
    row
}

/// Each thread waits at its own word, and is woken by another thread that waits so: a Java monitor.
#[test]
fn threads_that_wait_at_words_of_their_own_are_told_as_a_queue() {
    let events: Vec<_> = (1..=20).map(|key| seen(key, 10, 9 + key, "java")).collect();
    let mut drawing = DrawnMachine::of(&events);
    for turn in 0..400 {
        let (task, next) = (1 + turn % 20, 1 + (turn + 1) % 20);
        let wait = after(row(task, Reason::Futex), Reason::Futex, 5_000, 0);
        let word = 0x1000 * u64::from(task);
        drawing.run(on(woken_by(wait, next), word), 1_000, next);
    }
    let findings = drawing.findings();
    assert_eq!(findings[0].name, "futex_queue");
    assert_eq!(findings[0].switches, 400);
    let seen = &findings[0].seen;
    assert!(
        seen.starts_with("Threads wait for each other, at 20 futex words: 400 switches (100.0 %)"),
        "{seen}"
    );
    assert!(findings[0].change().unwrap().contains("--no-stacks"));
}

/// Workers wait, and a thread that never waits wakes them.
#[test]
fn idle_workers_are_told_apart_from_a_lock() {
    let events: Vec<_> = (1..=20).map(|key| seen(key, 10, 9 + key, "pool")).collect();
    let mut drawing = DrawnMachine::of(&events);
    for turn in 0..400 {
        let task = 2 + turn % 19;
        let wait = after(row(task, Reason::Futex), Reason::Futex, 5_000, 0);
        drawing.run(on(woken_by(wait, 1), 0x1000 * u64::from(task)), 1_000, 1);
    }
    let findings = drawing.findings();
    assert_eq!(findings[0].name, "futex_idle");
    assert_eq!(findings[0].places[1..], ["woken by: pool/10 100.0 %"]);
}

/// One lock beside the idle workers of another process: each names its own wakers.
#[test]
fn a_lock_is_not_blamed_on_the_wakers_of_others() {
    let events: Vec<_> = (1..=8)
        .map(|key| match key {
            1..=4 => seen(key, 10, 9 + key, "locked"),
            _ => seen(key, 20, 19 + key, "pool"),
        })
        .collect();
    let mut drawing = DrawnMachine::of(&events);
    for turn in 0..400 {
        let (task, next) = (1 + turn % 4, 1 + (turn + 1) % 4);
        let wait = after(row(task, Reason::Futex), Reason::Futex, 50_000, 0);
        drawing.run(on(woken_by(wait, next), 0xa0000), 1_000, next);
        let task = 6 + turn % 3;
        let wait = after(row(task, Reason::Futex), Reason::Futex, 5_000, 0);
        drawing.run(on(woken_by(wait, 5), 0x1000 * u64::from(task)), 1_000, 5);
    }
    let findings = drawing.findings();
    let named = |name| findings.iter().find(|one| one.name == name).unwrap();
    let places = |name| named(name).places.join("; ");
    assert!(
        !places("futex_contention").contains("pool"),
        "{findings:#?}"
    );
    assert_eq!(places("futex_idle"), "woken by: pool/24 100.0 %");
}

/// Two conditions and a mutex, 48 bytes apart, at which all threads of a Python process wait.
#[test]
fn words_side_by_side_are_one_lock_and_pythons_has_a_name() {
    let told = |comm: &str, apart: u64| {
        let events: Vec<_> = (1..=4).map(|key| seen(key, 10, 9 + key, comm)).collect();
        let mut drawing = DrawnMachine::of(&events);
        for turn in 0..600 {
            let (task, next) = (1 + turn % 4, 1 + (turn + 1) % 4);
            let wait = after(row(task, Reason::Futex), Reason::Futex, 5_000, 0);
            let word = 0xa0000 + apart * u64::from(turn % 3);
            drawing.run(on(woken_by(wait, next), word), 1_000, next);
        }
        let findings = drawing.findings();
        let lock = findings.iter().find(|one| one.name == "futex_contention");
        let lock = lock.expect("all of its waiters wake each other").clone();
        (lock.name, lock.switches, lock.seen)
    };
    let (name, switches, seen) = told("python3", 48);
    assert_eq!((name, switches), ("futex_contention", 600));
    assert!(
        seen.contains("global interpreter lock (GIL): futex words side by side, 0xa0000"),
        "{seen}"
    );
    let (_, _, seen) = told("server", 48);
    assert!(
        seen.starts_with("Threads wait for each other, as at one lock: futex words side by side"),
        "{seen}"
    );
    let (_, switches, seen) = told("server", 4096);
    assert!(
        switches == 200
            && seen.starts_with("Threads wait for each other, as at one lock: futex word,"),
        "{seen}"
    );
}

/// A lock for each row of a table, all taken in `update_row` by four threads.
#[test]
fn locks_that_are_waited_for_in_one_function_are_told_together() {
    let told = |word_of: fn(u64) -> u64| {
        let events: Vec<_> = (1..=4).map(|key| seen(key, 10, 9 + key, "db")).collect();
        let mut drawing = DrawnMachine::of(&events);
        let frame = Frame {
            symbol: Some("update_row".to_owned()),
            module: Some("/app/db".to_owned()),
            ..Frame::default()
        };
        let stack = Stack {
            kind: StackKind::User,
            frames: vec![0],
            ..Stack::default()
        };
        drawing.symbols = Some(Symbols::new(vec![stack], &[frame]));
        for turn in 0..600 {
            let (task, next) = (1 + turn % 4, 1 + (turn + 1) % 4);
            let mut wait = after(row(task, Reason::Futex), Reason::Futex, 50_000, 0);
            wait.wait.stacks.user = Some(0);
            let word = 0xa0000 + 0x1000 * word_of(u64::from(turn));
            drawing.run(on(woken_by(wait, next), word), 1_000, next);
        }
        let findings = drawing.findings();
        let lock = findings.iter().find(|one| one.name == "futex_contention");
        let lock = lock.expect("all of its waiters wake each other");
        (lock.switches, lock.seen.clone())
    };
    let (switches, seen) = told(|turn| turn % 3);
    assert_eq!(switches, 600);
    assert!(
        seen.starts_with(
            "Threads wait for each other in update_row, as at 3 locks that are alike, most at futex word, 0xa"
        ),
        "{seen}"
    );
    // If one of them has most of it, it is the one to look at.
    let (switches, seen) = told(|turn| (turn % 10).saturating_sub(7));
    assert!((400..600).contains(&switches), "{switches}");
    assert!(
        seen.starts_with(
            "Threads wait for each other in update_row, as at one lock: futex word, 0xa0000"
        ),
        "{seen}"
    );
}

/// The collector's threads wake each other and, when they are done, the program's threads. Neither
/// is a lock.
#[test]
fn javas_collector_is_told_from_a_lock() {
    let told = |names: [&str; 3]| {
        let events: Vec<_> = (1..)
            .zip(names)
            .map(|(key, comm)| seen(key, 10, 9 + key, comm))
            .collect();
        let mut drawing = DrawnMachine::of(&events);
        for turn in 0..600 {
            let (task, next) = (1 + turn % 3, 1 + (turn + 1) % 3);
            let wait = after(row(task, Reason::Futex), Reason::Futex, 5_000, 0);
            drawing.run(
                on(woken_by(wait, next), 0x1000 * u64::from(task)),
                1_000,
                next,
            );
        }
        let first = drawing.findings().remove(0);
        (first.seen, first.advice.unwrap().change)
    };
    let (seen, advice) = told(["VM Thread", "GC Thread#0", "main"]);
    assert!(
        seen.contains("66.7 % of all wakeups from futexes came from Java's garbage collector"),
        "{seen}"
    );
    assert!(advice.contains("-Xlog:gc"), "{advice}");
    let (seen, advice) = told(["main", "worker", "VM Thread"]);
    assert!(!seen.contains("collector"), "{seen}");
    assert!(!advice.contains("-Xlog:gc"), "{advice}");
}

/// Compilers of one build take the CPU from each other: that is no other program.
#[test]
fn processes_of_one_program_are_its_own() {
    let mut drawing = DrawnMachine::of(&[seen(1, 10, 10, "cc1"), seen(2, 20, 20, "cc1")]);
    for turn in 0..8 {
        let (task, next) = (1 + turn % 2, 1 + (turn + 1) % 2);
        let taken = after(row(task, Reason::Slice), Reason::Slice, 0, 3 * MS);
        drawing.run(taken, 3 * MS, next);
    }
    let first = drawing.findings().remove(0);
    assert_eq!(first.name, "oversubscribed");
    assert_eq!(
        first.places[0],
        "had the CPU: its own threads 100.0 % (21.0 ms)"
    );
}

/// Waits of milliseconds in `epoll_wait`, ended by the network: the main reason is not passed over.
#[test]
fn waiting_for_a_client_is_told_and_blamed_on_nobody() {
    let mut drawing = DrawnMachine::new();
    for _ in 0..200 {
        let wait = after(row(1, Reason::Poll), Reason::Poll, 2 * MS, 1_000);
        drawing.run(in_call(named(wait, WakerKind::SoftIrq), 232), 10_000, 0);
    }
    let findings = drawing.findings();
    assert_eq!(findings[0].name, "poll_idle");
    assert_eq!(
        findings[0].places[1..],
        [
            "in: epoll_wait 100.0 %",
            "woken by: interrupts (network, disk, timers) 100.0 %"
        ]
    );
    assert!(
        findings[0]
            .change()
            .unwrap()
            .contains("look at whoever sends over the network")
    );
}

/// Read-ahead does not help a task that waits for its data to be on the disk.
#[test]
fn a_commit_is_no_read() {
    let advice = |call| {
        let mut drawing = DrawnMachine::new();
        for _ in 0..200 {
            let wait = after(row(1, Reason::Io), Reason::Io, 2 * MS, 1_000);
            drawing.run(in_call(wait, call), 10_000, 0);
        }
        drawing.findings().remove(0).advice.unwrap().change
    };
    assert!(
        advice(75).contains("group commit"),
        "fdatasync: {}",
        advice(75)
    );
    assert!(
        advice(17).starts_with("read ahead"),
        "pread64: {}",
        advice(17)
    );
    assert!(
        advice(87).starts_with("make fewer"),
        "unlink: {}",
        advice(87)
    );
}

/// A reason without a rule of its own gets a sentence, too.
#[test]
fn what_makes_a_tenth_of_the_switches_is_told() {
    for reason in Reason::ALL {
        let mut drawing = DrawnMachine::new();
        for _ in 0..200 {
            drawing.run(after(row(1, *reason), *reason, 2 * MS, 2 * MS), 10_000, 0);
        }
        let findings = drawing.findings();
        let is_told = |finding: &Finding| finding.reason == Some(*reason);
        assert!(findings.iter().any(is_told), "{reason}: {findings:?}");
    }
}

#[test]
fn kernel_threads_are_told_apart() {
    let worker = TaskEvent {
        is_kthread: true,
        ..seen(2, 20, 20, "kworker/0:1-events")
    };
    let mut drawing = DrawnMachine::of(&[seen(1, 10, 10, "server"), worker]);
    for _ in 0..200 {
        drawing.run(
            after(row(1, Reason::Pipe), Reason::Pipe, 50_000, 0),
            10_000,
            2,
        );
        drawing.run(
            after(row(2, Reason::Ipc), Reason::Ipc, 50_000, 0),
            10_000,
            1,
        );
    }
    assert_eq!(
        drawing.names_of_findings(),
        ["pipe_conversation", "kernel_threads"]
    );
    assert_eq!(drawing.findings()[1].places, ["threads: [kworker] 100.0 %"]);
}

/// One program takes the CPU from ten processes of another.
#[test]
fn preemptions_are_summed_by_program() {
    let mut events = vec![seen(1, 5, 5, "pgbench")];
    events.extend((2..=11).map(|key| seen(key, 10 * key, 10 * key, "postgres")));
    let mut drawing = DrawnMachine::of(&events);
    for turn in 0..400 {
        let from = 2 + turn % 10;
        drawing.run(
            after(row(from, Reason::Wakeup), Reason::Wakeup, 0, 1_000),
            1_000,
            1,
        );
        drawing.run(row(1, Reason::Sleep), 1_000, from);
    }
    let findings = drawing.findings();
    let wakeup = findings
        .iter()
        .find(|finding| finding.reason == Some(Reason::Wakeup))
        .unwrap();
    assert_eq!(
        wakeup.places[1],
        "programs: postgres (10 processes) 100.0 %"
    );
    assert_eq!(
        wakeup.places[0],
        "took the CPU: pgbench from postgres 400 times"
    );
}

fn screen(drawing: &DrawnMachine, width: usize) -> Vec<String> {
    let rows = ReportedSwitches {
        counted: 13,
        out_of_scope: 0,
    };
    screen::lines(
        &drawing.explained(),
        &head(),
        rows,
        &[],
        Path::new("run.swtch"),
        width,
    )
}

#[test]
fn the_first_answer_fits_on_one_screen() {
    let mut drawing = DrawnMachine::new();
    for _ in 0..100 {
        for reason in [
            Reason::Wakeup,
            Reason::Slice,
            Reason::Futex,
            Reason::Poll,
            Reason::Io,
            Reason::Exit,
        ] {
            drawing.run(after(row(1, reason), reason, 2 * MS, 2 * MS), 10_000, 3);
        }
    }
    for (width, most) in [(40, 60), (80, 40), (100, 40)] {
        let lines = screen(&drawing, width);
        assert!(
            lines.len() <= most,
            "{} lines at {width}: {lines:#?}",
            lines.len()
        );
        let is_too_wide = |line: &&String| text::width(line) > width;
        assert_eq!(lines.iter().find(is_too_wide), None, "at {width}");
    }
    let lines = screen(&drawing, 100);
    assert_eq!(
        lines[0],
        "perf bench, for 2.00 s, on db1 (Linux 6.18.0, 2 CPUs)"
    );
    assert_eq!(
        lines[1],
        "13 context switches, 6 a second; complete: no switch was lost."
    );
    let last = "All tables: swtch explain run.swtch --full. On a time line: swtch view run.swtch";
    assert_eq!(lines.last().map(String::as_str), Some(last));
}

/// In 20 of 21 recordings of a machine whose kernel hides switches of some threads, up to 426 were in no
/// row, and the screen said that none was lost.
#[test]
fn a_screen_says_how_many_switches_were_not_traced() {
    let mut head = head();
    head.meta.counts.untraced = 426;
    let rows = ReportedSwitches::default();
    let explained = DrawnMachine::new().explained();
    let lines = screen::lines(&explained, &head, rows, &[], Path::new("x"), 200);
    assert_eq!(lines[1], "0 context switches, 0 a second.");
    assert_eq!(
        lines[2],
        "note: the kernel made 426 context switches that it did not report to tracing: they are in no \
         row, so counts and sums are lower bounds"
    );
    let json = explained.to_json(&head, rows, None);
    assert_eq!(json["trace"]["complete"], false);
    assert_eq!(json["trace"]["untraced"], 426);
}

#[test]
fn a_screen_of_an_incomplete_recording_does_not_say_complete() {
    let mut head = head();
    head.meta.counts.lost = 5;
    let drawing = DrawnMachine::new();
    let lines = screen::lines(
        &drawing.explained(),
        &head,
        ReportedSwitches::default(),
        &[],
        Path::new("x"),
        100,
    );
    assert_eq!(lines[1], "0 context switches, 0 a second.");
}

/// A label in Japanese takes two columns of the terminal for each character.
#[test]
fn wide_names_keep_the_columns_in_line() {
    let mut drawing = DrawnMachine::of(&[seen(1, 10, 10, "サーバー"), seen(2, 20, 20, "b")]);
    for _ in 0..100 {
        drawing.run(
            after(row(1, Reason::Pipe), Reason::Pipe, 5_000, 0),
            1_000,
            2,
        );
        drawing.run(
            after(row(2, Reason::Pipe), Reason::Pipe, 5_000, 0),
            1_000,
            1,
        );
    }
    let lines = screen(&drawing, 100);
    let ends: Vec<_> = lines
        .iter()
        .filter(|line| line.starts_with("サーバー") || line.starts_with("b "))
        .collect();
    let [first, second] = ends[..] else {
        panic!("{lines:#?}")
    };
    assert_eq!(text::width(first), text::width(second), "{lines:#?}");
}

/// Four threads meet at one word: the last of them wakes the three others, each time another one.
#[test]
fn a_barrier_is_told_from_a_lock() {
    let events: Vec<_> = (1..=4).map(|key| seen(key, 10, 9 + key, "w")).collect();
    let mut drawing = DrawnMachine::of(&events);
    for round in 0..200_u32 {
        let last = 1 + round % 4;
        for other in (1..=4).filter(|key| *key != last) {
            let wait = after(row(other, Reason::Futex), Reason::Futex, 40_000, 3_000);
            // As long that no thread waits since before it left.
            drawing.run(on(woken_by(wait, last), 0xf00), 50_000, last);
        }
    }
    let barrier = drawing.findings().remove(0);
    assert_eq!(
        (barrier.name, barrier.kind),
        ("futex_barrier", FindingKind::Lost)
    );
    assert!(
        barrier
            .seen
            .starts_with("Threads wait for the last of them"),
        "{}",
        barrier.seen
    );
    assert!(!barrier.change().unwrap().contains("split"));
}

/// A pool without work is woken together, too, by a thread that does not wait there.
#[test]
fn a_pool_that_is_woken_together_is_no_barrier() {
    let events: Vec<_> = (1..=4).map(|key| seen(key, 10, 9 + key, "w")).collect();
    let mut drawing = DrawnMachine::of(&events);
    for _ in 0..200 {
        for idle in 2..=4 {
            let wait = after(row(idle, Reason::Futex), Reason::Futex, 40_000, 0);
            drawing.run(on(woken_by(wait, 1), 0xf00), 1_000, 1);
        }
    }
    let pool = drawing.findings().remove(0);
    assert_eq!(
        (pool.name, pool.kind),
        ("futex_hand_over", FindingKind::Frequent)
    );
}

/// `pthread_cond_timedwait` of 2 ms that nobody signals: no lock, and nothing to hand over.
#[test]
fn a_wait_that_ends_by_its_own_limit_is_for_nobody() {
    let mut drawing = DrawnMachine::new();
    for turn in 0..200 {
        let task = 1 + turn % 2;
        let mut wait = after(row(task, Reason::Futex), Reason::Futex, 2 * MS, 0);
        wait = woken_by(wait, 2);
        wait.wait.wakeup.kind = Some(WakerKind::Timer);
        drawing.run(on(wait, 0xf00), 1_000, 0);
    }
    let explained = drawing.explained();
    let timed = &explained.findings[0];
    assert_eq!(
        (timed.name, timed.kind),
        ("futex_timeout", FindingKind::Frequent)
    );
    assert!(timed.change().unwrap().contains("their own time limit"));
    let first = explained.first_sentence().unwrap();
    assert!(
        first.starts_with(
            "It mostly waits for what does not come before a time limit: 200 times, 2.00 ms each (mean), 400 ms in all."
        ),
        "{first}"
    );
    assert!(
        first.contains("Else hardly any time is lost: its threads had work for 200 µs"),
        "{first}"
    );
}

/// Three threads read one token from a pipe in turn, work, and write it back.
#[test]
fn a_pipe_at_which_readers_wake_each_other_holds_a_token() {
    let events: Vec<_> = (1..=3).map(|key| seen(key, 10, 9 + key, "w")).collect();
    let mut drawing = DrawnMachine::of(&events);
    for turn in 0..300_u32 {
        let (task, before) = (1 + turn % 3, 1 + (turn + 2) % 3);
        let mut wait = after(row(task, Reason::Pipe), Reason::Pipe, 2 * MS, 0);
        wait.evidence.wait_object = swtch_core::WaitObject::Fifo;
        drawing.run(on(woken_by(wait, before), 77), 1_000, 0);
    }
    let explained = drawing.explained();
    let token = &explained.findings[0];
    assert_eq!(
        (token.name, token.kind),
        ("token_contention", FindingKind::Lost)
    );
    assert!(
        token.seen.contains("at a pipe, as for a token"),
        "{}",
        token.seen
    );
    assert_eq!(explained.lost.blocked(AwaitedThing::Work), token.time);
}

/// A look saw who has Python's global lock: then it is that one, also if all waits end by their limit of 5 ms.
#[test]
fn who_holds_pythons_lock_is_told() {
    let events: Vec<_> = (1..=4).map(|key| seen(key, 10, 9 + key, "app")).collect();
    let mut drawing = DrawnMachine::of(&events);
    let frame = |id, name: &str| Frame {
        id,
        symbol: Some(name.to_owned()),
        module: Some("[python]".to_owned()),
        file: Some("/app/jobs.py".to_owned()),
        line: Some(12),
        ..Frame::default()
    };
    let stack = |id| Stack {
        id,
        kind: StackKind::User,
        frames: vec![id],
        ..Stack::default()
    };
    let symbols = Symbols::new(
        vec![stack(0), stack(1)],
        &[frame(0, "serve"), frame(1, "hash_all")],
    );
    drawing.symbols = Some(symbols);
    for turn in 0..600 {
        let mut wait = after(row(1 + turn % 3, Reason::Futex), Reason::Futex, 50_000, 0);
        wait.wait.wakeup.kind = Some(WakerKind::Timer);
        wait.wait.stacks.user = Some(0);
        wait.wait.holder_stack = (turn % 2 == 0).then_some(1);
        drawing.run(on(wait, 0xa0000), 1_000, 4);
    }
    let findings = drawing.findings();
    let lock = findings.iter().find(|one| one.name == "futex_contention");
    let lock = lock.expect("it is a lock");
    assert!(
        lock.seen.starts_with(
            "Threads wait for each other, for Python's global interpreter lock (GIL), which is held in hash_all \
             (jobs.py:12): futex word, 0xa0000"
        ),
        "{}",
        lock.seen
    );
    assert_eq!(
        lock.places[..2],
        [
            "waited in: serve (jobs.py:12) 100.0 %",
            "held meanwhile in: hash_all (jobs.py:12) 100.0 %"
        ]
    );
}

/// Threads of Go's runtime are idle while six of its goroutines wait for a lock.
#[test]
fn what_goroutines_wait_for_is_told_where_threads_say_nothing() {
    let told = |reason: Option<&str>| {
        let mut drawing = DrawnMachine::of(&[seen(1, 10, 10, "shop"), seen(2, 10, 11, "shop")]);
        let frame = Frame {
            symbol: Some("main.charge".to_owned()),
            module: Some("/app/shop".to_owned()),
            file: Some("/src/shop/main.go".to_owned()),
            line: Some(6),
            ..Frame::default()
        };
        let stack = Stack {
            kind: StackKind::User,
            frames: vec![0],
            ..Stack::default()
        };
        drawing.symbols = Some(Symbols::new(vec![stack], &[frame]));
        for turn in 0..200 {
            let wait = after(row(1 + turn % 2, Reason::Futex), Reason::Futex, 500_000, 0);
            let word = 0xa0000 + 0x1000 * u64::from(turn % 2);
            drawing.run(on(woken_by(wait, 2 - turn % 2), word), 1_000, 0);
        }
        let looks = (0..50).map(|look| WaitingWorkersRow {
            ts: Timestamp::from_ns(look * 20 * MS),
            pid: Pid::new(10),
            reason: reason.map(str::to_owned),
            stack: Some(0),
            thousandths: 6_000,
            between: Nanos::from_ns(20 * MS),
        });
        drawing.workers = looks.collect();
        let explained = drawing.explained_of(Nanos::from_ns(1_000 * MS));
        let first = explained.findings.first().cloned().unwrap();
        (first.name, first.seen, explained.nothing)
    };
    let (name, seen, _) = told(Some("sync.Mutex.Lock"));
    assert_eq!(name, "worker_lock");
    assert_eq!(
        seen,
        "Goroutines wait for a lock in main.charge (main.go:6) (sync.Mutex, sync.RWMutex): 6.00 at a time on average, \
         6.00 s: 100.0 % of the time in which its threads and goroutines had work."
    );
    assert_eq!(told(None).0, "worker_no_thread");
    let (name, seen, nothing) = told(Some("IO wait"));
    assert_eq!(name, "futex_idle");
    assert!(
        seen.starts_with("Threads of Go's runtime sleep until a goroutine can run"),
        "{seen}"
    );
    assert!(
        nothing.ends_with("Its goroutines waited, in the words of Go, for: IO wait 100.0 %."),
        "{nothing}"
    );
}

/// Each of four threads of Java has a word of its own; what they wait for is told by these functions, the innermost first.
#[test]
fn waits_for_locks_of_java_and_python_are_told_by_their_stacks() {
    let told = |functions: &[(&str, &str)]| {
        let events: Vec<_> = (1..=4).map(|key| seen(key, 10, 9 + key, "java")).collect();
        let mut drawing = DrawnMachine::of(&events);
        drawing.in_functions(functions, None);
        for turn in 0..600 {
            let (task, next) = (1 + turn % 4, 1 + (turn + 1) % 4);
            let mut wait = after(row(task, Reason::Futex), Reason::Futex, 50_000, 0);
            wait.wait.stacks.user = Some(0);
            let word = 0xa0000 + 0x1000 * u64::from(task);
            drawing.run(on(woken_by(wait, next), word), 1_000, next);
        }
        let first = drawing.findings().first().cloned().unwrap();
        (first.name, first.seen, first.places)
    };
    let library = "/usr/lib/jvm/java-17/lib/server/libjvm.so";
    let enter = ("ObjectMonitor::enter(JavaThread*)", library);
    let book = ("shop.Ledger.book", "[java]");
    let (name, seen, places) = told(&[enter, book]);
    assert_eq!(name, "monitor");
    let first = "Threads wait for a monitor of Java in shop.Ledger.book (synchronized): ";
    assert!(seen.starts_with(first), "{seen}");
    assert_eq!(places, ["waited in: shop.Ledger.book 100.0 %"]);
    let (name, seen, places) = told(&[enter]);
    assert_eq!(name, "monitor");
    let first = "Threads wait for a monitor of Java (synchronized): ";
    assert!(seen.starts_with(first), "{seen}");
    assert!(places.is_empty(), "{places:?}");
    // What takes a lock for itself alone calls another of that name; a semaphore or a condition does not.
    let acquire = (
        "java.util.concurrent.locks.AbstractQueuedSynchronizer.acquire",
        "[java]",
    );
    let (name, seen, _) = told(&[acquire, acquire, book]);
    assert_eq!(name, "java_lock");
    let first =
        "Threads wait for a lock of Java in shop.Ledger.book (java.util.concurrent.locks): ";
    assert!(seen.starts_with(first), "{seen}");
    assert_ne!(told(&[acquire, book]).0, "java_lock");
    // So for a lock of Python; a condition waits for a message at such a one.
    let (lock, charge) = (("_thread.lock.acquire", "[python]"), ("charge", "[python]"));
    let (name, seen, _) = told(&[lock, charge]);
    assert_eq!(name, "python_lock");
    let first = "Threads wait for a lock of Python in charge (threading.Lock, RLock): ";
    assert!(seen.starts_with(first), "{seen}");
    let condition = ("Condition.wait", "[python]");
    assert_ne!(told(&[lock, condition, charge]).0, "python_lock");
    // A queue that is empty is none.
    let wait = ("ObjectMonitor::wait(long, bool, JavaThread*)", library);
    assert_ne!(told(&[wait, book]).0, "monitor");
}
