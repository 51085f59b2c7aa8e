//! Checks that loads run as they are described, by the kernel's own counters.
//!
//! ```text
//! cargo test -p swtch-bench --test loads            all
//! cargo test -p swtch-bench --test loads -- ring    those whose names contain "ring"
//! ```
//!
//! A load needs a process that has no other thread, so this program is its own harness.
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on has failed, in a harness of its own"
)]

use std::any::Any;
use std::panic::catch_unwind;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use swtch_bench::load::{
    ChainOperation, Class, Cpus, EventKind, Group, Load, LoadLockKind, LoadResults, LoadRingSpec,
    RingKind, Step, UsableCpus, calibrate,
};
use swtch_core::Nanos;
use swtch_core::cost::Members;

type Test = (&'static str, fn());

const TESTS: &[Test] = &[
    ("every_step_is_played", every_step_is_played),
    (
        "members_are_where_they_were_put",
        members_are_where_they_were_put,
    ),
    ("work_takes_its_cpu_time", work_takes_its_cpu_time),
    ("two_on_one_cpu_take_turns", two_on_one_cpu_take_turns),
    ("a_hop_of_a_ring_is_a_block", a_hop_of_a_ring_is_a_block),
    (
        "a_turn_of_a_ring_of_locks_is_a_block",
        a_turn_of_a_ring_of_locks_is_a_block,
    ),
    ("every_ring_goes_round", every_ring_goes_round),
    ("rings_reach_across_groups", rings_reach_across_groups),
    ("a_deadlock_ends_and_is_named", a_deadlock_ends_and_is_named),
    ("a_member_that_fails_ends_all", a_member_that_fails_ends_all),
    (
        "what_cannot_be_played_is_refused",
        what_cannot_be_played_is_refused,
    ),
    ("a_crowd_is_made_or_refused", a_crowd_is_made_or_refused),
    ("real_time_members_end", real_time_members_end),
];

fn main() -> ExitCode {
    let mut results = swtch_test::Results::from_args();
    for (name, test) in TESTS {
        if !results.asks_for(name) {
            continue;
        }
        let panicked = catch_unwind(test).err().map(|payload| said_by(&*payload));
        results.record(name, panicked.as_slice());
    }
    results.finish()
}

/// The message of a panic.
fn said_by(payload: &(dyn Any + Send)) -> String {
    let literal = payload.downcast_ref::<&str>().map(ToString::to_string);
    let said = payload.downcast_ref::<String>().cloned().or(literal);
    said.unwrap_or_else(|| "a panic without a text".to_owned())
}

/// A group on the last CPU.
fn group(name: &str, count: u32, body: Vec<Step>) -> Group {
    Group {
        name: name.to_owned(),
        members: Members::Threads,
        count,
        cpus: Cpus::Dealt(vec![last_cpu()]),
        class: Class::Other { nice: 0 },
        slice: None,
        body,
    }
}

fn last_cpu() -> u32 {
    *UsableCpus::here().unwrap().allowed.last().unwrap()
}

fn play(load: &Load) -> LoadResults {
    load.play().unwrap_or_else(|error| panic!("{error}"))
}

fn refusal(load: &Load) -> String {
    load.play().unwrap_err().to_string()
}

const fn spin(iterations: u64) -> Step {
    Step::Spin {
        kernel: ChainOperation::Add,
        iterations,
    }
}

fn name(word: &str) -> String {
    word.to_owned()
}

fn work(cpu_time: Duration) -> Step {
    let ns = u32::try_from(cpu_time.as_nanos()).unwrap();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it fits"
    )]
    let iterations = (f64::from(ns) / calibrate(ChainOperation::Add)) as u64;
    spin(iterations)
}

fn took(played: &LoadResults, member: usize) -> Duration {
    let member = &played.members[member];
    Duration::from_nanos(member.ended_ns - member.began_ns)
}

/// All steps, and all kernels that this CPU has, by threads and by processes.
fn every_step_is_played() {
    let kernels = ChainOperation::ALL.iter().filter(|one| one.is_supported());
    let mut body: Vec<Step> = kernels
        .map(|kernel| Step::Spin {
            kernel: *kernel,
            iterations: 1000,
        })
        .collect();
    let touch = Step::Touch {
        bytes: 1 << 16,
        stride: 64,
    };
    let read = Step::Read {
        path: "/proc/self/status".into(),
        bytes: 100_000,
    };
    body.extend([
        Step::Lock(name("m")),
        Step::Unlock(name("m")),
        Step::Repeat {
            times: 3,
            body: vec![Step::Signal(name("e")), Step::Wait(name("e"))],
        },
        Step::Repeat {
            times: 5,
            body: vec![Step::Take(name("r")), Step::Pass(name("r"))],
        },
        Step::Sleep(Nanos::from_ns(1_000_000)),
        Step::Yield,
        touch,
        read,
    ]);
    for members in [Members::Threads, Members::Processes] {
        let played = play(&Load::of(vec![Group {
            members,
            ..group("all", 3, body.clone())
        }]));
        assert_eq!(played.members.len(), 3);
        for (number, member) in played.members.iter().enumerate() {
            assert!(member.voluntary >= 1, "a sleep is a block: {member:?}");
            assert!(
                took(&played, number) >= Duration::from_millis(1),
                "{member:?}"
            );
            assert!(member.began_ns >= played.started_ns, "{member:?}");
            let is_thread = member.tid.get() != member.pid.get();
            assert_eq!(is_thread, members == Members::Threads, "{member:?}");
        }
        assert_eq!(played.notes, Vec::<String>::new());
    }
}

/// Members are dealt round robin over the allowed CPUs.
fn members_are_where_they_were_put() {
    let allowed = UsableCpus::here().unwrap().allowed;
    let played = play(&Load::of(vec![Group {
        cpus: Cpus::Dealt(allowed.clone()),
        ..group("put", 5, vec![spin(1000)])
    }]));
    let cpus: Vec<_> = played.members.iter().map(|member| member.cpu).collect();
    let dealt: Vec<_> = allowed.iter().copied().cycle().take(5).map(Some).collect();
    assert_eq!(cpus, dealt);
}

/// The speed of a shared CPU changes between the measurement of one iteration and the run, in
/// either direction. Both are repeated in turns; others only ever make them longer, so that the
/// least of each approach the true ones. A run is as short as a block of the measurement: the CPU
/// time of a longer one has time in it that the hypervisor took, in every run of a busy machine.
fn work_takes_its_cpu_time() {
    const ITERATIONS: u32 = 2_000_000;
    let (mut iteration_ns, mut run_ns) = (f64::INFINITY, f64::INFINITY);
    let mut ratio = f64::NAN;
    for _ in 0..100 {
        iteration_ns = iteration_ns.min(calibrate(ChainOperation::Add));
        let played = play(&Load::of(vec![group(
            "one",
            1,
            vec![spin(ITERATIONS.into())],
        )]));
        let cpu_time = Duration::from_nanos(played.members[0].cpu_time.as_ns());
        // Two clocks: that of CPU time is not slowed or hastened by who sets the time (`adjtimex`).
        assert!(took(&played, 0) * 101 / 100 >= cpu_time, "{played:?}");
        run_ns = run_ns.min(cpu_time.as_secs_f64() * 1e9);
        ratio = run_ns / (iteration_ns * f64::from(ITERATIONS));
        if (0.9..1.5).contains(&ratio) {
            return;
        }
    }
    panic!("{ratio} of the time asked for");
}

/// Each takes as long as both together need, and is preempted.
fn two_on_one_cpu_take_turns() {
    let played = play(&Load::of(vec![group(
        "two",
        2,
        vec![work(Duration::from_millis(60))],
    )]));
    let cpu: u64 = played
        .members
        .iter()
        .map(|member| member.cpu_time.as_ns())
        .sum();
    for (number, member) in played.members.iter().enumerate() {
        assert!(member.involuntary >= 3, "{member:?}");
        assert!(
            took(&played, number).as_nanos() > u128::from(cpu) * 8 / 10,
            "{played:?}"
        );
    }
}

fn ring(name: &str, members: u32, laps: u64) -> Group {
    let body = vec![Step::Take(name.to_owned()), Step::Pass(name.to_owned())];
    let class = Class::Batch { nice: 0 };
    Group {
        class,
        ..group(name, members, vec![Step::Repeat { times: laps, body }])
    }
}

fn with_ring(load: Load, name: &str, kind: RingKind, tokens: u32) -> Load {
    let mut load = load;
    load.rings
        .insert(name.to_owned(), LoadRingSpec { kind, tokens });
    load
}

/// Under `SCHED_BATCH` on one CPU, a member that passes keeps the CPU until it blocks itself.
fn a_hop_of_a_ring_is_a_block() {
    const LAPS: u64 = 500;
    for members in [2, 8] {
        let load = Load::of(vec![ring("r", members, LAPS)]);
        let load = with_ring(load, "r", RingKind::Tokens(EventKind::Futex), 1);
        let played = play(&load);
        let hops = LAPS * u64::from(members);
        let blocks: u64 = played.members.iter().map(|member| member.voluntary).sum();
        // Each member takes one token that is present already, and a bystander may spare some
        // blocks.
        assert!(
            blocks * 100 >= hops * 95 && blocks <= hops + 8,
            "{blocks} of {hops}"
        );
    }
}

/// A member moves once for each spare lock, then waits for the one ahead, however many there are.
fn a_turn_of_a_ring_of_locks_is_a_block() {
    const TURNS: u64 = 40;
    for (members, spare) in [(2, 1), (64, 2), (64, 16), (1024, 1)] {
        for kind in [
            LoadLockKind::Mutex,
            LoadLockKind::Futex,
            LoadLockKind::Semaphore,
        ] {
            let load = Load::of(vec![ring("r", members, TURNS * u64::from(spare))]);
            let load = with_ring(load, "r", RingKind::Locks(kind), spare);
            // With more than one spare lock, who preempts a member makes two movable until the end.
            let is_judged = |played: &LoadResults| {
                spare == 1 || played.members.iter().all(|member| member.involuntary == 0)
            };
            let mut plays = std::iter::repeat_with(|| play(&load)).take(5);
            let Some(played) = plays.find(is_judged) else {
                println!("    {members} members, {spare} spare, {kind:?}: preempted: not judged");
                continue;
            };
            let blocks: u64 = played.members.iter().map(|member| member.voluntary).sum();
            let turns = TURNS * u64::from(members);
            assert!(
                blocks.abs_diff(turns) <= u64::from(members),
                "{members} members, {spare} spare, {kind:?}: {blocks} blocks in {turns} turns"
            );
        }
    }
}

fn every_ring_goes_round() {
    let kinds = EventKind::ALL
        .map(|(_, kind)| RingKind::Tokens(kind))
        .into_iter();
    // A member that spins for a lock on the CPU of its holder waits for a whole slice: that is
    // slow.
    let locks = LoadLockKind::ALL.into_iter().map(|(_, kind)| kind);
    let locks = locks.filter(|kind| *kind != LoadLockKind::Spin);
    for kind in kinds.chain(locks.map(RingKind::Locks)) {
        for (members, tokens) in [(2, 1), (7, 3), (7, 7)] {
            for processes in [Members::Threads, Members::Processes] {
                let load = Load::of(vec![Group {
                    members: processes,
                    ..ring("r", members, 20)
                }]);
                let load = with_ring(load, "r", kind, tokens);
                assert_eq!(play(&load).members.len(), members as usize);
            }
        }
    }
}

fn rings_reach_across_groups() {
    let mut other = ring("r", 2, 50);
    other.members = Members::Processes;
    let played = play(&Load::of(vec![ring("r", 1, 50), other]));
    let groups: Vec<_> = played.members.iter().map(|member| member.group).collect();
    assert_eq!(groups, [0, 1, 1]);
}

fn a_deadlock_ends_and_is_named() {
    let (m, n, e, f) = (name("m"), name("n"), name("e"), name("f"));
    let one = vec![
        Step::Lock(m.clone()),
        Step::Signal(f.clone()),
        Step::Wait(e.clone()),
        Step::Lock(n.clone()),
        Step::Unlock(n.clone()),
        Step::Unlock(m.clone()),
    ];
    let other = vec![
        Step::Lock(n.clone()),
        Step::Signal(e),
        Step::Wait(f),
        Step::Lock(m.clone()),
        Step::Unlock(m),
        Step::Unlock(n),
    ];
    let mut load = Load::of(vec![group("one", 1, one), group("other", 1, other)]);
    load.limit = Nanos::from_ns(1_000_000_000);
    assert_eq!(
        refusal(&load),
        "the load is not done after 1.00 s: one-0 waits for lock n, other-0 waits for lock m"
    );
}

/// The others wait for an event that will never come, so the failure must end them.
fn a_member_that_fails_ends_all() {
    // The kernel maps no page at 0.
    let read = Step::Read {
        path: "/proc/self/mem".into(),
        bytes: 1,
    };
    for members in [Members::Threads, Members::Processes] {
        let start = Instant::now();
        let mut load = Load::of(vec![
            group("waits", 2, vec![Step::Wait(name("e"))]),
            Group {
                members,
                ..group("fails", 1, vec![read.clone(), Step::Signal(name("e"))])
            },
        ]);
        // Far more than it takes: the failure ends them, and not the limit.
        load.limit = Nanos::from_ns(300_000_000_000);
        let error = refusal(&load);
        assert!(error.starts_with("fails-0: /proc/self/mem: "), "{error}");
        assert!(start.elapsed() < Duration::from_secs(300));
    }
}

fn what_cannot_be_played_is_refused() {
    let lock = || Step::Lock(name("m"));
    let bodies = [
        (vec![lock()], "lock m is never given back in this body"),
        (vec![lock(), lock()], "lock m is held already"),
        (vec![Step::Unlock(name("m"))], "lock m is not held here"),
        (vec![Step::Wait(name("e"))], "nobody signals the event e"),
        (
            vec![Step::Take(name("r")), Step::Pass(name("r"))],
            "ring r has one member; it takes two or more",
        ),
    ];
    for (body, why) in bodies {
        let load = Load::of(vec![group("a", 1, body)]);
        assert_eq!(refusal(&load), format!("group a: {why}"));
    }
    let none = Load::of(vec![group("a", 0, vec![Step::Yield])]);
    assert_eq!(refusal(&none), "group a: count must be at least 1");
    let elsewhere = Load::of(vec![Group {
        cpus: Cpus::Dealt(vec![9999]),
        ..group("a", 1, vec![Step::Yield])
    }]);
    let error = refusal(&elsewhere);
    assert!(
        error.starts_with("group a: there is no CPU 9999: this machine has 0"),
        "{error}"
    );
}

/// If the crowd cannot be made, the error names the limit, and no process remains.
fn a_crowd_is_made_or_refused() {
    let start = Instant::now();
    for (members, count) in [
        (Members::Threads, 100_000),
        (Members::Processes, 5_000_000),
        (Members::Threads, 10_000),
    ] {
        let load = Load::of(vec![Group {
            members,
            ..group("crowd", count, vec![Step::Yield])
        }]);
        let limits = ["vm.max_map_count", "kernel.pid_max", "pids.max"];
        match load.play() {
            Ok(played) => assert_eq!(played.members.len(), count as usize),
            Err(error) => {
                let error = error.to_string();
                assert!(limits.iter().any(|limit| error.contains(limit)), "{error}");
            }
        }
    }
    assert!(start.elapsed() < Duration::from_secs(60));
    let after = play(&Load::of(vec![group("after", 1, vec![Step::Yield])]));
    assert_eq!(after.members.len(), 1);
}

/// Members on all CPUs, with or without the permission; without it, a note says so.
fn real_time_members_end() {
    let cpus = UsableCpus::here().unwrap().allowed;
    let count = u32::try_from(cpus.len()).unwrap();
    let played = play(&Load::of(vec![Group {
        class: Class::Fifo { priority: 1 },
        cpus: Cpus::Dealt(cpus),
        ..group("rt", count, vec![work(Duration::from_millis(20))])
    }]));
    assert_eq!(played.members.len(), count as usize);
    let is_noted = played.notes.iter().any(|note| note.contains("SCHED_FIFO"));
    let is_preempted = played.members.iter().all(|member| member.involuntary > 50);
    assert!(is_noted || !is_preempted, "{played:?}");
}
