//! The stacks of a thread that is watched: as many switches at each place as were made there while it was
//! watched, and none of before, of afterwards, or of another thread.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use swtch_capture::{Capture, Children, RecordingScope, Settings, StackSums, Stacks};
use swtch_core::{Arch, Nanos, Pid, TaskKey};
use swtch_wire::{RawKind, decode_tasks};

/// The calls that a sleeper is to make.
#[derive(Clone, Copy)]
struct Naps {
    /// Calls of `nanosleep`, and of `poll` without a file; both sleep.
    sleeps: u64,
    polls: u64,
}

const NAP: Duration = Duration::from_micros(200);

/// The sleeps that a sleeper has done.
#[derive(Clone, Copy)]
struct Napped {
    tid: u32,
    /// Switches of its sleeps and of its polls, by the kernel's own count. Now and then there is one less
    /// than there were calls: a timer that ends before the thread has left the CPU ends the call.
    sleeps: u64,
    polls: u64,
}

/// A thread that sleeps where it is told to, so often.
struct Sleeper {
    orders: Sender<Naps>,
    done: Receiver<Napped>,
}

/// Voluntary switches of the calling thread.
fn own_switches() -> u64 {
    // SAFETY: a plain structure, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is a value of this frame.
    let answer = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    assert_eq!(answer, 0);
    usage.ru_nvcsw.unsigned_abs()
}

impl Sleeper {
    fn start() -> Self {
        let (orders, taken) = channel::<Naps>();
        let (done, answers) = channel();
        thread::spawn(move || {
            // SAFETY: gettid has no memory effects.
            let tid = unsafe { libc::gettid() }.unsigned_abs();
            for naps in taken {
                let before = own_switches();
                (0..naps.sleeps).for_each(|_| thread::sleep(NAP));
                let between = own_switches();
                // SAFETY: poll of no file only waits.
                (0..naps.polls).for_each(|_| unsafe {
                    libc::poll(std::ptr::null_mut(), 0, 1);
                });
                let napped = Napped {
                    tid,
                    sleeps: between - before,
                    polls: own_switches() - between,
                };
                done.send(napped).expect("somebody waits");
            }
        });
        Self {
            orders,
            done: answers,
        }
    }

    /// Returns when it has slept so often, and waits for orders again.
    fn nap(&self, sleeps: u64, polls: u64) -> Napped {
        self.orders.send(Naps { sleeps, polls }).expect("it lives");
        let napped = self.done.recv().expect("it lives");
        assert!(napped.sleeps >= sleeps * 9 / 10 && napped.polls >= polls * 9 / 10);
        thread::sleep(Duration::from_millis(20));
        napped
    }
}

fn key_of(capture: &mut Capture, tid: u32) -> TaskKey {
    let mut found = None;
    capture.take(|raw| {
        if raw.kind == RawKind::Tasks {
            let mut events = decode_tasks(raw.bytes);
            found = found.or(events
                .find(|event| event.tid.get() == tid)
                .map(|of| of.task));
        }
    });
    found.expect("the thread has switched, so it was announced")
}

/// All waits that the kernel counted are in the sums, but those whose end the tracepoint did not report:
/// how long they were is not known. Virtual machines have such switches now and then
/// (`resume_untraced`, src/bpf/swtch.bpf.c), and their number is told.
fn assert_all(waits: u64, counted: u64, capture: &Capture) {
    let untraced = capture.counters().untraced;
    assert!(
        waits <= counted && waits + untraced >= counted,
        "{waits} of {counted} waits; {untraced} switches were not traced"
    );
}

/// Switches in which the thread blocked in this function, and the time of these waits.
fn blocked_in(capture: &Capture, function: &str) -> (u64, Nanos) {
    let names = Stacks::new();
    names.read_kernel_symbols();
    let is_there = |sums: &&StackSums| {
        let id = sums.stacks.kernel.expect("each wait has a kernel stack");
        let functions = names.kernel_functions(capture, id).expect("a stack");
        sums.group.evidence.state != 0 && functions.iter().any(|one| one == function)
    };
    let sums = capture.stack_sums().expect("the sums");
    let here = sums.iter().filter(is_there);
    here.fold((0, Nanos::ZERO), |(switches, off), one| {
        (switches + one.switches, off + one.off)
    })
}

#[test]
#[ignore = "needs root"]
fn root_a_watched_thread_has_all_its_switches_by_place() {
    let _alone = crate::alone();
    let own = RecordingScope::Processes {
        pids: vec![Pid::new(std::process::id())],
        children: Children::Recorded,
    };
    let settings = Settings {
        summary: Some(1 << 12),
        watches_stacks: true,
        slots_per_cpu: 1,
        ..Settings::new(own, 1)
    };
    let arch = Arch::from_machine(std::env::consts::ARCH).expect("a known architecture");
    let mut capture = Capture::start(&settings, arch).expect("a capture");
    let [sleeper, other] = [Sleeper::start(), Sleeper::start()];
    let task = key_of(&mut capture, sleeper.nap(20, 0).tid);
    assert!(
        capture.stack_sums().expect("the sums").is_empty(),
        "nobody is watched"
    );

    capture.watch_stacks(Some(task)).expect("watching");
    other.nap(50, 50);
    let napped = sleeper.nap(200, 100);
    let (sleeps, slept) = blocked_in(&capture, "do_nanosleep");
    assert_all(sleeps, napped.sleeps, &capture);
    assert!(slept >= Nanos::from_ns(sleeps * 200_000), "{slept}");
    let (polls, polled) = blocked_in(&capture, "do_sys_poll");
    assert_all(polls, napped.polls, &capture);
    assert!(polled >= Nanos::from_ns(polls * 1_000_000), "{polled}");
    // The wait for the first order began before the thread was watched, that for the next one lasts.
    let sums = capture.stack_sums().expect("the sums");
    assert!(sums.iter().all(|one| one.group.task == task));
    let (orders, _) = blocked_in(&capture, "__x64_sys_futex");
    assert_eq!(orders, 0);

    capture.watch_stacks(None).expect("watching");
    sleeper.nap(50, 0);
    assert!(capture.stack_sums().expect("the sums").is_empty());

    capture.watch_stacks(Some(task)).expect("watching");
    let napped = sleeper.nap(30, 0);
    let (sleeps, _) = blocked_in(&capture, "do_nanosleep");
    assert_all(sleeps, napped.sleeps, &capture);
    assert_eq!(capture.counters().stack_failed, 0);
}
