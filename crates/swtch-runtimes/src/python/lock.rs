//! The global interpreter lock (GIL): who waits for it, and what the thread does that holds it.
//!
//! Source: `struct _gil_runtime_state` in `Include/internal/pycore_gil.h`, the same from 3.11 to 3.15 where threads share
//! a lock: how long to wait, the last holder, whether it is held, a count, and the conditions and mutexes of who waits.

use super::offsets::LockPlace;
use super::{Python, PythonFrame};
use crate::ProcessMemory;

const LAST_HOLDER: u64 = 8;
const LOCKED: u64 = 16;
const SWITCHES: u64 = 24;

/// The bytes of all of it. A condition takes 48; a mutex takes 40, and in glibc on arm64 48.
const BYTES: u64 = 32
    + 2 * (48
        + if cfg!(target_arch = "aarch64") {
            48
        } else {
            40
        });

impl Python {
    /// The address of the lock, if a thread with this state that waits at a futex word waits for it.
    pub fn lock_at(&self, word: u64, thread: u64, memory: &impl ProcessMemory) -> Option<u64> {
        let lock = match self.offsets.lock {
            LockPlace::OfProcess(offset) => self.runtime.wrapping_add(offset),
            LockPlace::OfInterpreter(offset) => {
                let interpreter = thread.wrapping_add(self.offsets.thread_interpreter);
                let interpreter = memory.word(interpreter)?;
                memory.word(interpreter.wrapping_add(offset))?
            }
        };
        (word.wrapping_sub(lock) < BYTES).then_some(lock)
    }

    /// The functions of the thread that holds a lock, the innermost first; empty if nobody holds it, or if it went on to
    /// another thread meanwhile.
    ///
    /// That thread may run while it is read. So it is read twice, and what is told are the functions that it was in both
    /// times; the innermost is where its code begins, since its line changes all the time.
    pub fn functions_of_holder(&self, lock: u64, memory: &impl ProcessMemory) -> Vec<PythonFrame> {
        let Some(holder) = self.holder_of(lock, memory) else {
            return Vec::new();
        };
        let mut frames = self.frames(holder, memory);
        let again = self.frames(holder, memory);
        if self.holder_of(lock, memory) != Some(holder) {
            return Vec::new();
        }
        let outwards = frames.iter().rev().zip(again.iter().rev());
        let same = outwards.take_while(|(one, other)| one.code == other.code);
        frames.drain(..frames.len() - same.count());
        if let Some(innermost) = frames.first_mut() {
            innermost.offset = 0;
        }
        frames
    }

    /// How often the lock had gone to another thread, if it is held: as long as this is so, the same thread has it, or had it
    /// back at once.
    pub fn holding_of(&self, lock: u64, memory: &impl ProcessMemory) -> Option<u64> {
        self.holder_of(lock, memory)?;
        memory.word(lock.wrapping_add(SWITCHES))
    }

    fn holder_of(&self, lock: u64, memory: &impl ProcessMemory) -> Option<u64> {
        let is_held = memory.number(lock.wrapping_add(LOCKED))? == 1;
        let holder = memory.word(lock.wrapping_add(LAST_HOLDER))?;
        (is_held && holder != 0).then_some(holder)
    }
}
