//! The scheduler's own time, measured on a pair of threads that pass a byte back and forth.

use std::io::{PipeReader, PipeWriter, Read, Write, pipe};
use std::time::Instant;

use swtch_capture::{Error, KernelShare, MeasuredTasks};
use swtch_core::CpuId;

use crate::alone;

const ROUND_TRIPS: u64 = 50_000;

/// Switches of the pair by the kernel's count, and their length by the clock.
struct PairSwitches {
    switches: u64,
    ns_per_switch: f64,
}

/// Moves the calling thread to a CPU and makes it `SCHED_BATCH`: a hand-over is then one switch.
fn take_place(cpu: usize) {
    // SAFETY: an empty set is all zeros.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the set is ours, and the CPU is far below its size.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: reads the set, which lives across the call.
    let moved = unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) };
    assert_eq!(moved, 0);
    let priority = libc::sched_param { sched_priority: 0 };
    // SAFETY: reads the parameter, which lives across the call.
    let is_batch = unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const priority) };
    assert_eq!(is_batch, 0);
}

/// Voluntary and involuntary switches of the calling thread.
fn own_switches() -> u64 {
    // SAFETY: the numbers are valid as zeros.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the struct is ours to be written to.
    assert_eq!(0, unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage)
    });
    (usage.ru_nvcsw + usage.ru_nivcsw).unsigned_abs()
}

fn hand_over(to: &mut PipeWriter, from: &mut PipeReader, starts: bool) -> u64 {
    let before = own_switches();
    let mut byte = [0];
    for _ in 0..ROUND_TRIPS {
        if starts {
            to.write_all(&byte).expect("the pipe is open");
        }
        from.read_exact(&mut byte).expect("the pipe is open");
        if !starts {
            to.write_all(&byte).expect("the pipe is open");
        }
    }
    own_switches() - before
}

fn run_pair(cpu: usize) -> PairSwitches {
    let (mut there, mut to_peer) = pipe().expect("pipes can be made");
    let (mut back, mut to_us) = pipe().expect("pipes can be made");
    let lead = std::thread::spawn(move || {
        take_place(cpu);
        let start = Instant::now();
        let switches = hand_over(&mut to_peer, &mut back, true);
        (switches, start.elapsed())
    });
    let follow = std::thread::spawn(move || {
        take_place(cpu);
        hand_over(&mut to_us, &mut there, false)
    });
    let (switches, elapsed) = lead.join().expect("it has no reason to panic");
    let switches = switches + follow.join().expect("it has no reason to panic");
    PairSwitches {
        switches,
        ns_per_switch: elapsed.as_secs_f64() * 1e9 / switches as f64,
    }
}

/// A CPU that this process may use.
fn some_cpu() -> u16 {
    // SAFETY: sched_getcpu has no arguments.
    u16::try_from(unsafe { libc::sched_getcpu() }).expect("CPUs have small numbers")
}

/// Attaches the probes; `None` on kernels without the hooks, where the test is skipped.
fn attach(cpu: u16, policy: i32) -> Option<KernelShare> {
    let whose = MeasuredTasks::Policy(policy.unsigned_abs());
    match KernelShare::attach(CpuId::new(cpu), whose) {
        Err(error @ Error::NoShareHook(_)) => {
            swtch_test::skipped(&error.to_string());
            None
        }
        share => Some(share.expect("root may attach it")),
    }
}

/// The probes count the switches that the kernel counts, and the time that they measure is part of
/// a hand-over.
#[test]
#[ignore = "needs root"]
fn root_the_share_of_every_switch_is_counted() {
    let _turn = alone();
    let cpu = some_cpu();
    let Some(mut share) = attach(cpu, libc::SCHED_BATCH) else {
        return;
    };
    run_pair(cpu.into());
    assert_eq!(
        share.read().within.switches,
        0,
        "nothing counts before it is opened"
    );
    share.open();
    run_pair(cpu.into());
    share.reset();
    let pair = run_pair(cpu.into());
    share.close();
    let counted = share.read();
    run_pair(cpu.into());
    assert_eq!(share.read(), counted, "nothing counts after it was closed");

    let within = counted.within;
    let off = within.switches.abs_diff(pair.switches) as f64 / pair.switches as f64;
    assert!(
        off < 0.01,
        "{} of {} switches",
        within.switches,
        pair.switches
    );
    assert_eq!(within.echoes, within.switches, "each has its echo");
    let (share_ns, probe_ns) = (within.share_ns(), within.probe_ns());
    let (Some(share_ns), Some(probe_ns)) = (share_ns, probe_ns) else {
        panic!("the share is known: {share_ns:?} {probe_ns:?}")
    };
    let quantiles = [0.5, 0.99].map(|part| within.quantile_ns(part));
    println!(
        "share {share_ns:.0} ns, probes {probe_ns:.0} ns, with both {quantiles:?}; hand-off {:.0} ns; {off:.4} off",
        pair.ns_per_switch
    );
    assert!(probe_ns > 0.0 && share_ns > 0.0);
    assert!(share_ns < pair.ns_per_switch);
}

/// Only tasks of the requested policy count; these have another one.
#[test]
#[ignore = "needs root"]
fn root_switches_of_others_do_not_count() {
    let _turn = alone();
    let cpu = some_cpu();
    let Some(share) = attach(cpu, libc::SCHED_IDLE) else {
        return;
    };
    share.open();
    let pair = run_pair(cpu.into());
    let counted = share.read();
    let all = counted.within.switches + counted.across.switches;
    assert!(all * 100 < pair.switches, "{all}");
}
