//! The parts of a scheduler's accounting, one at a time: clocks, counters, events.
//!
//! Each runs in a loop that does nothing else, so these are costs in the best case. Stores go to
//! memory that the compiler cannot know, by relaxed atomics as on the shared page.

use std::hint::black_box;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Instant;

use crate::protocol::{Meter, serve as speak};

/// Events of the ring that [`serve`]`("event-64")` writes: 256 KiB.
const EVENTS: u64 = 4096;

/// One cache line of eight words.
#[derive(Default)]
#[repr(C, align(64))]
struct CacheLine([AtomicU64; 8]);

/// Serves the primitive called `arm`.
pub fn serve(arm: &str) -> io::Result<()> {
    let word = AtomicU64::new(0);
    match arm {
        "sentinel" => repeat("a fixed sum", |round| {
            black_box((0..64).fold(round, |sum, step| black_box(sum) * 3 + step));
        }),
        #[cfg(target_arch = "x86_64")]
        "rdtsc" => repeat("rdtsc", |_| {
            // SAFETY: reads a register; nothing else is touched.
            black_box(unsafe { core::arch::x86_64::_rdtsc() });
        }),
        "clock-gettime" => repeat("CLOCK_MONOTONIC", |_| {
            black_box(Instant::now());
        }),
        "store" => repeat("relaxed store", |round| {
            black_box(&word).store(round, Ordering::Relaxed);
        }),
        "load-store" => repeat("relaxed load, +1, store", |_| {
            let word = black_box(&word);
            word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }),
        "fetch-add" => repeat("relaxed fetch_add", |_| {
            black_box(&word).fetch_add(1, Ordering::Relaxed);
        }),
        "compare-exchange" => repeat("acquire-release compare_exchange", |_| {
            let word = black_box(&word);
            let exchanged = word.compare_exchange(0, 0, Ordering::AcqRel, Ordering::Relaxed);
            black_box(exchanged).ok();
        }),
        "store-fence" => repeat("relaxed store, sequentially consistent fence", |round| {
            black_box(&word).store(round, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }),
        "event-64" => event(),
        _ => Err(io::Error::other("there is no such arm")),
    }
}

/// Stores of whole cache lines, one after the other through a ring.
fn event() -> io::Result<()> {
    let ring: Vec<CacheLine> = (0..EVENTS).map(|_| CacheLine::default()).collect();
    let written = AtomicU64::new(0);
    repeat("8 relaxed stores and the count of events", |round| {
        let number = written.load(Ordering::Relaxed);
        let event = &ring[(number % EVENTS) as usize];
        for word in &event.0 {
            word.store(round, Ordering::Relaxed);
        }
        written.store(number + 1, Ordering::Release);
    })
}

/// Runs blocks of `operation`, which gets the number of the round in the block.
fn repeat(about: &str, mut operation: impl FnMut(u64)) -> io::Result<()> {
    speak(about, |operations| {
        let meter = Meter::start();
        for round in 0..operations {
            operation(round);
        }
        meter.stop(operations)
    })
}
