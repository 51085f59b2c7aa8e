//! The cost of a probe without a listener, and of noticing interruptions.
//!
//! Run it by `cargo bench -p swtch-fiber --bench watch`.
//!
//! Each figure is the median of interleaved blocks, in ns per call, beside an empty loop. The
//! machine's speed changes, so only figures of one line and one run can be compared.

use std::hint::black_box;
use std::time::Instant;

use swtch_fiber::internals::{Arguments, Marker, switch};

const CALLS: u64 = 200_000;
const ROUNDS: usize = 101;

/// The name of an arm, and the function that is called.
type Arm = (&'static str, Box<dyn FnMut(u64)>);

fn main() {
    let mut marker = Marker::for_this_thread();
    println!("{marker:?}");
    let mut seen = 0_u64;
    let mut arms: [Arm; 4] = [
        ("empty loop", Box::new(|n| _ = black_box(n))),
        (
            "probe, nobody listening",
            Box::new(|n| {
                switch(|| Arguments {
                    scheduler: 1,
                    worker: 2,
                    task: n,
                    wait_type: 4,
                    ns: 5,
                });
                black_box(n);
            }),
        ),
        (
            "was_interrupted",
            Box::new(move |n| {
                seen += u64::from(marker.was_interrupted());
                black_box((n, seen));
            }),
        ),
        (
            "getrusage(RUSAGE_THREAD)",
            Box::new(|n| {
                // SAFETY: a plain structure of numbers, for which zeros are valid.
                let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
                // SAFETY: `usage` is writable.
                unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
                black_box((n, usage.ru_nivcsw));
            }),
        ),
    ];
    let mut blocks = vec![Vec::with_capacity(ROUNDS); arms.len()];
    for _ in 0..ROUNDS {
        for ((_, arm), blocks) in arms.iter_mut().zip(&mut blocks) {
            let start = Instant::now();
            block(arm);
            blocks.push(start.elapsed().as_secs_f64() * 1e9 / CALLS as f64);
        }
    }
    for ((name, _), blocks) in arms.iter().zip(&mut blocks) {
        blocks.sort_by(f64::total_cmp);
        println!("{name:26} {:8.2} ns", blocks[ROUNDS / 2]);
    }
}

/// One block of calls. The indirect call is part of each arm, also of the empty one.
fn block(arm: &mut dyn FnMut(u64)) {
    for n in 0..CALLS {
        arm(n);
    }
}
