//! Recordings that begin while every CPU is busy with interrupts: wakers and interrupt times must
//! be right from the first switch on.
//!
//! Attaching takes a millisecond, one hook after the other, so a recording always begins inside
//! some interrupt. Each kind of wait of the load has one kind of waker that can end it; a marker
//! that is stuck shows as thousands of impossible ones.

use std::collections::{BTreeMap, HashMap};
use std::thread;
use std::time::{Duration, Instant};

use swtch_capture::{Capture, Children, RecordingScope, Settings};
use swtch_core::{Arch, Event, Pid, SwitchEvent, TaskKey, WakerKind};

use crate::interrupt_load::{InterruptLoad, ThreadRole};
use crate::mixed_load::set_nice;

/// Number of recordings that are started; `SWTCH_STARTS` sets another.
fn starts() -> u32 {
    std::env::var("SWTCH_STARTS").map_or(15, |number| number.parse().expect("a number"))
}

/// The length of each recording.
const LENGTH: Duration = Duration::from_millis(150);

/// Waker kinds that can end a wait of this role. A timer may end any wait that has a time-out, and
/// a sender or locker that is only preempted is not woken at all.
fn possible_wakers(role: ThreadRole) -> &'static [WakerKind] {
    use WakerKind::{Interrupt, Sender, SoftIrq, Task, Timer};
    match role {
        ThreadRole::Locker | ThreadRole::Writer => &[Task],
        ThreadRole::Sleeper => &[Timer],
        ThreadRole::Receiver => &[Sender, SoftIrq, Timer],
        ThreadRole::Reader => &[Interrupt, SoftIrq, Timer, Task],
        ThreadRole::Sender => &[],
    }
}

/// Results of all recordings of a test.
#[derive(Debug, Default)]
struct InterruptFindings {
    wakes: BTreeMap<(ThreadRole, &'static str), u64>,
    impossible: BTreeMap<(u32, ThreadRole, &'static str), u64>,
    /// Recordings, and CPUs of them, without interrupt time although the CPU had some.
    without_interrupt_time: Vec<(u32, u16)>,
    /// Runs with more time in interrupts than they lasted.
    too_long: u64,
}

/// Sums over one CPU of one recording.
#[derive(Default)]
struct PerCpu {
    ran_ns: u64,
    irq_ns: u64,
}

fn record(scope: RecordingScope, arch: Arch) -> (Vec<SwitchEvent>, HashMap<TaskKey, u32>) {
    let settings = Settings {
        slots_per_cpu: 1 << 16,
        ..Settings::new(scope, cpus())
    };
    let mut capture = Capture::start(&settings, arch).expect("capturing needs root");
    let (mut events, mut tids) = (Vec::new(), HashMap::new());
    let mut take = |_, event| match event {
        Event::Switch(switch) => events.push(switch),
        Event::Task(task) => {
            tids.insert(task.task, task.tid.get());
        }
        Event::User(_) | Event::Look(_) => {}
    };
    let start = Instant::now();
    while start.elapsed() < LENGTH {
        capture.drain(&mut take);
        thread::sleep(Duration::from_millis(5));
    }
    capture.detach();
    while capture.drain(&mut take).switches > 0 {}
    assert_eq!(capture.counters().lost, 0);
    (events, tids)
}

fn cpus() -> usize {
    thread::available_parallelism()
        .expect("the number of CPUs")
        .get()
}

impl InterruptFindings {
    fn add(&mut self, start: u32, event: &SwitchEvent, role: ThreadRole) {
        let wait = &event.wait;
        let Some(kind) = wait.woken.and(wait.wakeup.kind) else {
            return;
        };
        let word = kind.as_str();
        *self.wakes.entry((role, word)).or_default() += 1;
        if !possible_wakers(role).contains(&kind) {
            *self.impossible.entry((start, role, word)).or_default() += 1;
        }
    }

    fn add_times(&mut self, start: u32, events: &[SwitchEvent]) {
        let mut cpus: BTreeMap<u16, PerCpu> = BTreeMap::new();
        for event in events {
            let Some(ran) = event.run_start.and_then(|start| event.ts.since(start)) else {
                continue;
            };
            let cpu = cpus.entry(event.cpu.get()).or_default();
            cpu.ran_ns += ran.as_ns();
            cpu.irq_ns += event.irq.as_ns();
            self.too_long += u64::from(event.irq > ran);
        }
        for (cpu, times) in cpus {
            // A tick comes every 1 to 10 ms.
            if times.ran_ns > 40_000_000 && times.irq_ns == 0 {
                self.without_interrupt_time.push((start, cpu));
            }
        }
    }
}

fn wakers_are_right(scope: impl Fn() -> RecordingScope) {
    let _turn = crate::alone();
    let quiet = swtch_test::depends_on_quiet();
    let arch = Arch::from_machine(std::env::consts::ARCH).expect("a known architecture");
    let load = InterruptLoad::start();
    set_nice(-15); // the load starves this thread otherwise, and the rings run full
    thread::sleep(Duration::from_millis(50));
    let roles: HashMap<u32, ThreadRole> = load.roles().collect();
    let mut findings = InterruptFindings::default();
    for start in 0..starts() {
        let (events, tids) = record(scope(), arch);
        findings.add_times(start, &events);
        for event in &events {
            let tid = event.task.and_then(|task| tids.get(&task));
            if let Some(role) = tid.and_then(|tid| roles.get(tid)) {
                findings.add(start, event, *role);
            }
        }
    }
    drop(load);
    println!("{} starts: {:?}", starts(), findings.wakes);
    for role in [
        ThreadRole::Locker,
        ThreadRole::Writer,
        ThreadRole::Sleeper,
        ThreadRole::Receiver,
    ] {
        let of_role = findings.wakes.iter().filter(|((of, _), _)| *of == role);
        let number: u64 = of_role.map(|(_, number)| number).sum();
        assert!(number >= 100, "the load made {number} waits of a {role:?}");
    }
    // What follows holds however busy the machine is.
    drop(quiet);
    assert_eq!(findings.impossible, BTreeMap::new());
    assert_eq!(findings.without_interrupt_time, []);
    assert_eq!(findings.too_long, 0);
}

/// Records every switch of the machine.
#[test]
#[ignore = "needs root"]
fn root_recordings_begun_under_interrupts_name_every_waker() {
    wakers_are_right(|| RecordingScope::All);
}

/// Records one process, as `-p` and a command do.
#[test]
#[ignore = "needs root"]
fn root_scoped_recordings_begun_under_interrupts_name_every_waker() {
    wakers_are_right(|| RecordingScope::Processes {
        pids: vec![Pid::new(std::process::id())],
        children: Children::Recorded,
    });
}
