//! Runs a ring of locks and logs every move. The thread that makes a move logs it while it holds
//! both locks. So the entries of one lock are in the order in which it was held, and with one spare
//! lock all entries are in order.
//!
//! These runs are not compared with other arms: logging costs time, and all threads contend for one
//! counter.

use std::io::{BufRead, BufReader, PipeReader, pipe};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};
use swtch_core::units::Nanos;

use super::super::message::{self, Message};
use super::{FIRST_TURNS, HandOver, LockKind, LockRing, LockRingSpec, warm_turns};
use crate::clock;
use crate::error::Error;
use crate::futex::PrivateScope;
use crate::lock::{ConditionLock, FutexLock, Lock, PthreadMutex};
use crate::outcome::SwitchCounts;
use crate::process::ForkedChild;

/// What was observed of a ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// All moves from the first on, in the order of the log.
    pub hand_overs: Vec<HandOver>,
    /// Number of moves over which switches were counted: the last ones of each thread.
    pub counted_hand_overs: u64,
    /// Switches of all threads over these moves.
    pub counted: SwitchCounts,
    /// Wall time of all moves.
    pub elapsed: Nanos,
    /// CPU time of all threads meanwhile; divided by `elapsed`, the number of busy CPUs.
    pub cpu_time: Nanos,
}

/// Runs a new ring in a process of its own, for `turns` turns of each thread after those that warm
/// it up.
///
/// # Errors
///
/// The ring is invalid, or its threads cannot be started.
pub fn observe(spec: &LockRingSpec, turns: u64) -> Result<Observed, Error> {
    spec.check()?;
    let (reader, writer) = pipe().map_err(Error::calling("pipe2"))?;
    let mut writer = Some(writer);
    let mut child = ForkedChild::fork(|| {
        let writer = writer.take().expect("invariant: the child runs this once");
        message::set_members_fd(writer.as_raw_fd());
        let observed = match spec.lock {
            LockKind::Mutex => watch::<PthreadMutex>(spec, turns),
            LockKind::Futex => watch::<FutexLock<PrivateScope>>(spec, turns),
            LockKind::Condvar => watch::<ConditionLock>(spec, turns),
        };
        match observed {
            Ok(observed) => message::report(writer, &observed),
            Err(error) => message::fail(&error),
        }
    })?;
    drop(writer);
    let observed = read(reader);
    child.wait()?;
    observed
}

/// The moves that were logged so far.
struct MoveLog {
    next: AtomicUsize,
    /// Thread number in the upper half, lock number in the lower.
    entries: Vec<AtomicU64>,
}

fn watch<L: Lock + Default + 'static>(spec: &LockRingSpec, turns: u64) -> Result<Observed, Error> {
    spec.take_place()?;
    let moves = (FIRST_TURNS + warm_turns(turns) + turns) * spec.lap();
    let log = Arc::new(MoveLog {
        next: AtomicUsize::new(0),
        entries: (0..moves).map(|_| AtomicU64::new(0)).collect(),
    });
    let writer = Arc::clone(&log);
    let write_down = move |thread: usize, lock: usize| {
        let index = writer.next.fetch_add(1, Ordering::Relaxed);
        writer.entries[index].store((thread as u64) << 32 | lock as u64, Ordering::Relaxed);
    };
    let mut ring = LockRing::<L, _>::start(spec, write_down)?;
    let (cpu_time, start) = (clock::process_cpu_time(), clock::raw());
    let timing = ring.turns(turns)?;
    Ok(Observed {
        elapsed: clock::raw().since(start).unwrap_or_default(),
        cpu_time: clock::process_cpu_time().saturating_sub(cpu_time),
        counted_hand_overs: timing.counted_over,
        counted: timing.counted,
        hand_overs: log.entries.iter().map(hand_over).collect(),
    })
}

fn hand_over(entry: &AtomicU64) -> HandOver {
    let entry = entry.load(Ordering::Relaxed);
    let half = |bits: u64| u32::try_from(bits & 0xffff_ffff).expect("invariant: 32 bits are left");
    HandOver {
        thread: half(entry >> 32),
        lock: half(entry),
    }
}

fn read(reader: PipeReader) -> Result<Observed, Error> {
    for line in BufReader::new(reader).lines() {
        match Message::from_line(&line.map_err(Error::calling("read"))?)? {
            Message::Report(observed) => return Ok(observed),
            Message::Failed { why } => return Err(Error::Member(why)),
            Message::SemaphoreSet { .. } => {}
        }
    }
    Err(Error::Member(
        "the process that is watched is gone".to_owned(),
    ))
}
