//! Tests of what is said of event loops by their stacks.

use std::num::NonZeroU64;

use super::*;

/// A thread that waits 10 ms in these functions, the innermost first, a hundred times.
fn waits_in(reason: Reason, functions: &[(&str, &str)]) -> Explanation {
    let mut drawing = DrawnMachine::new();
    drawing.in_functions(functions, Some(("/app/app.py", 8)));
    for _ in 0..100 {
        let mut wait = after(row(1, reason), reason, 10 * MS, 0);
        wait.wait.stacks.user = Some(0);
        wait.wait.wakeup.kind = Some(WakerKind::Timer);
        drawing.run(wait, 1_000, 0);
    }
    drawing.explained()
}

const CHARGE: (&str, &str) = ("charge", "[python]");
const TURN: (&str, &str) = ("Handle._run", "[python]");
const LOOP: (&str, &str) = ("BaseEventLoop._run_once", "[python]");

#[test]
fn a_sleep_in_a_turn_of_a_loop_is_lost() {
    let explained = waits_in(Reason::Sleep, &[CHARGE, TURN, LOOP]);
    let first = &explained.findings[0];
    assert_eq!(first.name, "blocked_turn");
    let words = "An event loop of asyncio waits in the middle of its work, in charge (app.py:8): ";
    assert!(first.seen.starts_with(words), "{}", first.seen);
    assert!(
        first.seen.contains("1.00 s: 100.0 % of the time"),
        "{}",
        first.seen
    );
}

#[test]
fn outside_of_a_turn_it_is_not() {
    for functions in [
        &[CHARGE, LOOP][..],
        &[CHARGE, TURN],
        &[CHARGE, LOOP, TURN],
        &[CHARGE, LOOP, TURN, LOOP],
    ] {
        let explained = waits_in(Reason::Sleep, functions);
        let first = explained.first_sentence().unwrap();
        let words = "It mostly sleeps in charge (app.py:8): 100 times, 10.0 ms each (mean), 1.00 s";
        assert!(first.starts_with(words), "{first}");
    }
}

#[test]
fn a_loop_of_node_waits_for_its_child_in_a_turn() {
    let node = "/usr/bin/node";
    let functions = [
        (
            "node::SyncProcessRunner::Spawn(v8::FunctionCallbackInfo<v8::Value> const&)",
            node,
        ),
        ("v8::Function::Call(v8::Local<v8::Context>)", node),
        ("uv_run", node),
        ("node::SpinEventLoopInternal(node::Environment*)", node),
    ];
    let first = waits_in(Reason::Poll, &functions).findings[0].clone();
    assert_eq!(first.name, "blocked_turn");
    let words = "An event loop of Node waits in the middle of its work, in node::SyncProcessRunner::Spawn: ";
    assert!(first.seen.starts_with(words), "{}", first.seen);
    assert!(
        first.places[1].contains("--perf-basic-prof"),
        "{:?}",
        first.places
    );
    let mut listed = functions.to_vec();
    listed.insert(1, ("convert", "[jit]"));
    let first = waits_in(Reason::Poll, &listed).findings[0].clone();
    assert_eq!(first.places, ["waited in: convert (app.py:8) 100.0 %"]);
    // The loop itself waits for many.
    let idle = waits_in(Reason::Poll, &functions[2..]);
    assert!(
        idle.findings
            .iter()
            .all(|finding| finding.name != "blocked_turn")
    );
}

/// Java waits at a word for a time, and nobody writes there.
#[test]
fn a_sleep_of_java_is_called_so() {
    let library = "/usr/lib/jvm/java-17/lib/server/libjvm.so";
    let told = |call: &str| {
        let explained = waits_in(Reason::Futex, &[(call, library), ("Shop.handle", "[java]")]);
        explained.first_sentence().unwrap()
    };
    let first = told("JVM_Sleep");
    let words = "It mostly sleeps in Shop.handle (app.py:8): 100 times, 10.0 ms each (mean), 1.00 s in all.";
    assert!(first.starts_with(words), "{first}");
    let first = told("Unsafe_Park");
    let words = "It mostly waits for what does not come before a time limit: 100 times";
    assert!(first.starts_with(words), "{first}");
}

/// A server takes a message, waits for the disk, and waits again; every hundredth time it has no CPU first.
#[test]
fn turns_and_their_slowest_are_told_and_what_a_unit_took() {
    let mut drawing = DrawnMachine::beside_a_stranger();
    drawing.run(row(1, Reason::Poll), 1_000, 3);
    for turn in 0..200 {
        let runq = if turn % 100 == 50 { 9 * MS } else { 0 };
        drawing.run(row(3, Reason::Slice), MS + runq, 1);
        let message = after(row(1, Reason::Io), Reason::Poll, MS, runq);
        drawing.run(woken_by(message, 3), 100_000, 3);
        drawing.run(row(3, Reason::Slice), 300_000, 1);
        drawing.run(
            after(row(1, Reason::Poll), Reason::Io, 300_000, 0),
            100_000,
            0,
        );
    }
    let explained = drawing.explained();
    let head = head();
    let told = explained.turns(&head).remove(0);
    for words in [
        "From a message to the next wait for one, server took 500 µs (median), 500 µs (99 %), 9.50 ms (longest: server/10 at",
        "200 turns, ",
        " of 2.00 switches each",
        "The slowest 1.0 %: without a CPU 94.7 %; the others: blocked (io) 60.0 %, on a CPU 40.0 %.",
    ] {
        assert!(told.contains(words), "{told}");
    }
    let per_unit = PerUnit {
        units: NonZeroU64::new(100).unwrap(),
        reasons: &explained.of_programs,
        lost: &explained.lost,
        wall: Nanos::from_ns(1_000 * MS),
    };
    let words = "Each of 100 units (100 a second), of all that was recorded: 4.01 switches (2.01 waited in epoll, poll or select, 2.00 waited for a \
                 file or disk); 400 µs on a CPU, 180 µs without one, 600 µs blocked in the middle of work.";
    assert_eq!(per_unit.words(), words);
    assert_eq!(per_unit.to_json()["ran_ns"], 40_001_000);
}

/// Of turns that are all alike, none is the slowest.
#[test]
fn turns_that_are_alike_are_told_together() {
    let mut drawing = DrawnMachine::beside_a_stranger();
    drawing.run(row(1, Reason::Poll), 1_000, 3);
    for _ in 0..200 {
        drawing.run(row(3, Reason::Slice), MS, 1);
        let message = after(row(1, Reason::Poll), Reason::Poll, MS, 0);
        drawing.run(woken_by(message, 3), 100_000, 3);
    }
    let told = drawing.explained().turns(&head()).remove(0);
    assert!(
        told.ends_with("). All of them: on a CPU 100.0 %."),
        "{told}"
    );
}

/// A pool's threads wait for tasks with a time limit, and tasks may wait without a thread.
#[test]
fn threads_of_a_pool_wait_for_tasks_and_virtual_threads_are_not_known() {
    let park = ("Unsafe_Park", "/usr/lib/jvm/java-21/lib/server/libjvm.so");
    let pool = ("java.util.concurrent.ForkJoinPool.awaitWork", "[java]");
    let first = waits_in(Reason::Futex, &[park, pool]).first_sentence();
    let first = first.unwrap();
    assert!(first.starts_with("Hardly any time is lost: "), "{first}");
    assert!(
        first.contains("They waited 1.00 s until a time they chose."),
        "{first}"
    );

    for (name, has, tells) in [
        (
            "VirtualThread-u",
            "Java (process 10) has virtual threads",
            "jcmd 10 Thread.dump_to_file FILE",
        ),
        (
            "ForkJoinPool-1-",
            "Java (process 10) may have virtual threads",
            "jcmd 10 Thread.dump_to_file FILE",
        ),
        (
            "1_scheduler",
            "Erlang (process 10) has processes of its own",
            "i(). in its shell",
        ),
    ] {
        let mut drawing = DrawnMachine::of(&[seen(1, 10, 10, "server"), seen(2, 10, 11, name)]);
        for _ in 0..100 {
            drawing.run(
                after(row(1, Reason::Futex), Reason::Futex, 10 * MS, 0),
                MS,
                0,
            );
        }
        let first = drawing.explained().first_sentence().unwrap();
        for words in [
            format!("{has}, which wait without a thread of the kernel, for "),
            format!("{tells} tells. Else hardly any time is lost"),
        ] {
            assert!(first.contains(&words), "{first}");
        }
    }
}

/// Of 200 spans, each with a wait for the disk, every hundredth has no CPU before.
#[test]
fn spans_are_told_before_turns_and_the_slowest_apart() {
    let mut drawing = DrawnMachine::beside_a_stranger();
    let mut now = MS;
    for span in 0..200 {
        let runq = if span % 100 == 50 { 9 * MS } else { 0 };
        drawing.run(row(3, Reason::Slice), MS + runq, 1);
        drawing.run(
            after(row(1, Reason::Io), Reason::Sleep, MS, runq),
            100_000,
            3,
        );
        drawing.run(row(3, Reason::Slice), 300_000, 1);
        drawing.run(
            after(row(1, Reason::Sleep), Reason::Io, 300_000, 0),
            100_000,
            0,
        );
        now += MS + runq + 500_000;
        let begin = now - 500_000 - runq;
        drawing.spans.push(SpanRow {
            begin: Timestamp::from_ns(begin),
            end: Timestamp::from_ns(now - 50_000),
            pid: Pid::new(10),
            tid: Tid::new(10),
            name: "query".to_owned(),
            ..SpanRow::default()
        });
    }
    let explained = drawing.explained();
    let told = explained.turns(&head()).remove(0);
    for words in [
        "query (in server) took 450 µs (median), 450 µs (99 %), 9.45 ms (longest: server/10 at",
        "200 spans, ",
        " of 1.00 switches each. The slowest 1.0 %: without a CPU 95.2 %; the others: blocked (io) 66.7 %, on a CPU 33.3 %.",
        " Longest at a time, in 2 of the 2 slowest: without a CPU.",
    ] {
        assert!(told.contains(words), "{told}");
    }
}
