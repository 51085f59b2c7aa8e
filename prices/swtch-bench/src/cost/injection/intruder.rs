//! A thread that takes its CPU when it is woken, touches memory of its own, and sleeps again.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use swtch_core::cost::injection::TouchedMemory;
use swtch_core::{Nanos, Timestamp};

use crate::clock;
use crate::cpu::{self, Policy};
use crate::error::Error;
use crate::futex::{self, PrivateScope};

/// Bytes of a cache line, and its words.
const LINE: usize = 64;
const WORDS: usize = LINE / size_of::<AtomicU64>();

/// What the intruder does on its CPU.
#[derive(Clone, Copy, Debug)]
pub(super) enum IntruderAct {
    /// It sleeps again at once.
    Nothing,
    /// It reads each line of memory of this size.
    Touch(TouchedMemory),
    /// It reads the clock for so long.
    Hold(Nanos),
}

/// When the intruder had its CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct IntruderRun {
    pub(super) began: Timestamp,
    ended: Timestamp,
}

impl IntruderRun {
    /// How long it had it.
    pub(super) fn length(&self) -> Nanos {
        self.ended.since(self.began).unwrap_or(Nanos::ZERO)
    }
}

/// What the intruder is asked for and what it answers. Its fields lie in one cache line, so that an intruder that touches
/// nothing brings little more into the cache than the kernel does.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Errand {
    /// The number of the last request; the futex.
    asked: AtomicU32,
    /// The number of the last request that was answered.
    answered: AtomicU32,
    /// [`NOTHING`], [`END`], [`HOLD`], or [`TOUCH`] and the number of the memory.
    act: AtomicU32,
    hold_ns: AtomicU64,
    began_ns: AtomicU64,
    ended_ns: AtomicU64,
}

const NOTHING: u32 = 0;
const END: u32 = 1;
const HOLD: u32 = 2;
const TOUCH: u32 = 3;

/// An intruder that sleeps on its CPU. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Intruder {
    errand: Arc<Errand>,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl Intruder {
    /// Starts the intruder of a CPU, and waits until it sleeps there.
    pub(super) fn start(cpu: u32) -> Result<Self, Error> {
        let errand = Arc::new(Errand::default());
        let own = Arc::clone(&errand);
        let builder = thread::Builder::new().name("swtch-intruder".to_owned());
        let thread = builder.spawn(move || live(cpu, &own));
        let started = Self {
            errand,
            thread: Some(thread.map_err(Error::calling("clone"))?),
        };
        started.wake(IntruderAct::Nothing)?;
        const PATIENCE: Duration = Duration::from_secs(2);
        if started.last_run(PATIENCE).is_none() {
            return Err(started.why_it_failed());
        }
        Ok(started)
    }

    /// Wakes the intruder for this.
    pub(super) fn wake(&self, act: IntruderAct) -> Result<(), Error> {
        let number = match act {
            IntruderAct::Nothing => NOTHING,
            IntruderAct::Touch(memory) => TOUCH + memory as u32,
            IntruderAct::Hold(time) => {
                self.errand.hold_ns.store(time.as_ns(), Ordering::Relaxed);
                HOLD
            }
        };
        self.ask(number)
    }

    fn ask(&self, act: u32) -> Result<(), Error> {
        self.errand.act.store(act, Ordering::Relaxed);
        self.errand.asked.fetch_add(1, Ordering::Release);
        futex::wake::<PrivateScope>(&self.errand.asked, 1)
    }

    /// When it ran last; `None` if it has not answered within this time.
    pub(super) fn last_run(&self, patience: Duration) -> Option<IntruderRun> {
        let errand = &self.errand;
        let deadline = clock::after(patience);
        let asked = errand.asked.load(Ordering::Relaxed);
        while errand.answered.load(Ordering::Acquire) != asked {
            if clock::now() >= deadline {
                return None;
            }
            thread::sleep(Duration::from_micros(200));
        }
        Some(IntruderRun {
            began: Timestamp::from_ns(errand.began_ns.load(Ordering::Relaxed)),
            ended: Timestamp::from_ns(errand.ended_ns.load(Ordering::Relaxed)),
        })
    }

    /// The error of an intruder that does not answer.
    fn why_it_failed(mut self) -> Error {
        let has_ended = |thread: &JoinHandle<_>| thread.is_finished();
        match self
            .thread
            .take_if(|thread| has_ended(thread))
            .map(JoinHandle::join)
        {
            Some(Ok(Err(error))) => error,
            Some(Err(_)) => Error::Panicked {
                name: "swtch-intruder".to_owned(),
            },
            _ => Error::NotHere("an intruder got no CPU for two seconds".to_owned()),
        }
    }
}

impl Drop for Intruder {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take()
            && self.ask(END).is_ok()
        {
            // What it failed with was told when it did not answer.
            drop(thread.join());
        }
    }
}

/// The life of an intruder. A request that comes while it answers another is seen when it has done so.
fn live(cpu: u32, errand: &Errand) -> Result<(), Error> {
    cpu::move_to(0, cpu as usize)?;
    Policy::Fifo.adopt()?;
    let memories = TouchedMemory::ALL.map(OwnMemory::new);
    let mut answered = 0;
    loop {
        let asked = errand.asked.load(Ordering::Acquire);
        if asked == answered {
            futex::wait_while::<PrivateScope>(&errand.asked, asked)?;
            continue;
        }
        let began = clock::now();
        match errand.act.load(Ordering::Relaxed) {
            NOTHING => {}
            END => return Ok(()),
            HOLD => {
                let hold = Nanos::from_ns(errand.hold_ns.load(Ordering::Relaxed));
                clock::spin_until(began.after(hold));
            }
            touch => memories[(touch - TOUCH) as usize].touch(),
        }
        errand.began_ns.store(began.as_ns(), Ordering::Relaxed);
        errand
            .ended_ns
            .store(clock::now().as_ns(), Ordering::Relaxed);
        answered = asked;
        errand.answered.store(asked, Ordering::Release);
    }
}

/// Memory that only the intruder of one CPU uses.
#[derive(Debug)]
struct OwnMemory {
    words: Vec<AtomicU64>,
}

impl OwnMemory {
    /// Memory of which each page is written, so that it is not the zero page.
    fn new(size: TouchedMemory) -> Self {
        let words = size.bytes() / size_of::<AtomicU64>();
        Self {
            words: (1..=words as u64).map(AtomicU64::new).collect(),
        }
    }

    /// Reads one word of each line. The addresses do not depend on what was read, so that several reads are on their way
    /// at once and the walk is short.
    fn touch(&self) {
        let words = lines_in_order(self.words.len() / WORDS).map(|line| &self.words[line * WORDS]);
        // Used, so that no compiler leaves the reads out.
        black_box(words.fold(0, |sum, word| sum ^ word.load(Ordering::Relaxed)));
    }
}

/// The numbers of all lines, once each: page by page, so that each page is looked up once, and in an order that the CPU
/// does not predict, in which an odd step comes to every number below a power of two.
fn lines_in_order(lines: usize) -> impl Iterator<Item = usize> {
    /// Lines of a page of 4 KiB.
    const PAGE: usize = 4096 / LINE;
    stepped(lines / PAGE).flat_map(|page| stepped(PAGE).map(move |line| page * PAGE + line))
}

/// The numbers below a power of two, once each, of which neighbours in time are far apart.
fn stepped(count: usize) -> impl Iterator<Item = usize> {
    // The golden section of the whole.
    let step = (count * 618 / 1000) | 1;
    (0..count).scan(0, move |at, _| {
        let now = *at;
        *at = (now + step) & (count - 1);
        Some(now)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_walk_comes_to_every_line_once() {
        for size in TouchedMemory::ALL {
            let lines = size.bytes() / LINE;
            let mut met = vec![false; lines];
            lines_in_order(lines).for_each(|line| {
                assert!(!std::mem::replace(&mut met[line], true), "{line} twice");
            });
            assert!(met.iter().all(|met| *met), "{size:?}");
        }
    }
}
