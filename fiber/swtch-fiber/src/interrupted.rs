//! Tells whether the OS took the CPU away during a run: without privilege, for one load.
//!
//! A thread that runs workers cannot see that the kernel switched it out and in again. The kernel
//! leaves one trace that is cheap to read: restartable sequences (`rseq`, Linux 4.18). A thread may
//! point the word `rseq_cs` of its registered area at a description of a critical section. When the
//! kernel switches the thread out and finds that it was not inside that section, it sets the word
//! to zero (`rseq_ip_fixup` in `kernel/rseq.c`, v6.18). So the description of a section that no
//! thread ever executes serves as a marker:
//!
//! ```text
//! begin of a run           the kernel switches out, or something else      end of the run
//!   rseq_cs = &NOWHERE ───────────────▶ rseq_cs = 0 ──────────────────────▶ zero: ask the kernel
//! ```
//!
//! The kernel clears the word for other reasons as well: a signal, a call that blocks, and any work
//! that it does for the thread on the way back to user mode. Such work was seen 3 to 5 times a
//! second on 6.18, in a thread that only computed and got no signal, at multiples of 100 ms (the
//! interval of the scan of concurrency ids, `MM_CID_SCAN_DELAY`). So a cleared word is only a hint,
//! and a rare one; the kernel's count of involuntary switches (`getrusage`) then says whether the
//! OS took the CPU away.
//!
//! glibc registers the area for each thread from 2.35 on. Where there is none (musl, an older
//! glibc, `glibc.pthread.rseq=0`), or where other code uses `rseq_cs` (tcmalloc, librseq), the
//! count is read instead. That is a system call and therefore done rarely.
//!
//! A run that blocks in a system call gave the CPU away by itself and is not counted; the stall
//! monitor detects those. The kernel counts a `sched_yield` of the program as involuntary. Several
//! interruptions of one run count as one: the question is whether the run was interrupted at all.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::arch::{RSEQ_SIGNATURE, thread_pointer};

/// Without `rseq`, the kernel's counters are read once in this many runs: a read takes some 200 ns,
/// a run may take only 5.
const RUNS_PER_READ: u32 = 64;

/// A critical section that is data: no thread ever executes it, so none is ever inside.
#[repr(C)]
struct UnusedCriticalSection {
    inside: u64,
    signature: u32,
    after: u32,
}

static NOWHERE: UnusedCriticalSection = UnusedCriticalSection {
    inside: 0,
    signature: RSEQ_SIGNATURE,
    after: 0,
};

/// Layout of `struct rseq_cs`, from `include/uapi/linux/rseq.h`.
#[repr(C, align(32))]
struct RseqCriticalSection {
    version: u32,
    flags: u32,
    start: *const u64,
    length: u64,
    abort: *const u32,
}

// SAFETY: read-only data, and addresses of read-only data.
unsafe impl Sync for RseqCriticalSection {}

static SECTION: RseqCriticalSection = RseqCriticalSection {
    version: 0,
    flags: 0,
    start: &raw const NOWHERE.inside,
    length: 8,
    abort: &raw const NOWHERE.after,
};

/// Offset of `rseq_cs` in `struct rseq`, behind two numbers of the CPU.
const RSEQ_CS_OFFSET: isize = 8;

/// Detects that the OS interrupted the thread that it was made for.
pub struct Marker {
    source: InterruptSource,
    /// The word belongs to one thread.
    thread: PhantomData<*const ()>,
}

/// The source of the answer, with the kernel's count of this thread's involuntary switches at the last reading.
enum InterruptSource {
    /// The kernel clears this word of the thread's `rseq` area.
    Rseq {
        word: &'static AtomicUsize,
        switches: i64,
    },
    /// Only the kernel's count, and the number of runs since it was read.
    Counter { switches: i64, runs: u32 },
}

impl Marker {
    /// Makes a marker for the calling thread, which must be the one that asks it.
    ///
    /// Only one marker of a thread can use the cheap source; a second one finds it taken.
    pub fn for_this_thread() -> Self {
        let source = rseq_word()
            .filter(|word| word.load(Ordering::Relaxed) == 0)
            .map_or_else(InterruptSource::counter, |word| InterruptSource::Rseq {
                word,
                switches: 0,
            });
        let mut marker = Self {
            source,
            thread: PhantomData,
        };
        marker.begin_after_a_sleep();
        marker
    }

    /// Starts a run and forgets what happened before it, such as a time in which interruptions do
    /// not count. With `rseq` this is one store: switches since the last reading of the kernel's
    /// count are only discarded at the next reading, and may make one other event look like an
    /// interruption.
    #[inline]
    pub fn begin(&mut self) {
        match &self.source {
            InterruptSource::Rseq { word, .. } => word.store(parked(), Ordering::Relaxed),
            InterruptSource::Counter { .. } => self.begin_after_a_sleep(),
        }
    }

    /// As [`begin`](Self::begin), and reads the kernel's count as well, where there is time for it.
    pub fn begin_after_a_sleep(&mut self) {
        let now = involuntary_switches();
        match &mut self.source {
            InterruptSource::Rseq { word, switches } => {
                word.store(parked(), Ordering::Relaxed);
                *switches = now;
            }
            InterruptSource::Counter { switches, runs } => {
                *switches = now;
                *runs = 0;
            }
        }
    }

    /// Returns true if the OS took the CPU away since the last call of this or of [`begin`](Self::begin). Begins anew.
    ///
    /// With the kernel's counters as the source, the answer is `false` except for one run in 64,
    /// which answers for all of them, so the count of interrupted runs is a lower bound.
    #[inline]
    pub fn was_interrupted(&mut self) -> bool {
        match &mut self.source {
            InterruptSource::Rseq { word, .. } => {
                if word.load(Ordering::Relaxed) == parked() {
                    return false;
                }
                self.moved()
            }
            InterruptSource::Counter { runs, .. } => {
                *runs += 1;
                *runs >= RUNS_PER_READ && self.counted()
            }
        }
    }

    /// Handles a word that is not what this marker stored.
    #[cold]
    fn moved(&mut self) -> bool {
        let InterruptSource::Rseq { word, .. } = &self.source else {
            return false;
        };
        if word.load(Ordering::Relaxed) == 0 {
            word.store(parked(), Ordering::Relaxed);
            return self.counted();
        }
        // Other code has begun to use the word since (an allocator loaded later), so leave it
        // alone.
        self.source = InterruptSource::counter();
        false
    }

    /// Reads the kernel's count, and returns whether it has grown.
    #[cold]
    fn counted(&mut self) -> bool {
        let now = involuntary_switches();
        let switches = match &mut self.source {
            InterruptSource::Rseq { switches, .. } => switches,
            InterruptSource::Counter { switches, runs } => {
                *runs = 0;
                switches
            }
        };
        let more = now - std::mem::replace(switches, now);
        #[cfg(test)]
        tests::note_switches_of_one_run(more);
        more != 0
    }
}

thread_local! {
    /// The marker of a thread that runs one worker (thread mode).
    static OF_THIS_THREAD: RefCell<Marker> = RefCell::new(Marker::for_this_thread());
}

/// [`Marker::begin`] for the calling thread's own marker.
pub(crate) fn begin_on_this_thread() {
    OF_THIS_THREAD.with_borrow_mut(Marker::begin);
}

/// Returns true if the OS took the CPU away from the calling thread so far in this run, by its own marker.
pub(crate) fn was_this_thread_interrupted() -> bool {
    OF_THIS_THREAD.with_borrow_mut(Marker::was_interrupted)
}

impl Drop for Marker {
    /// Resets the word to what it was, so that the next marker of this thread can use it.
    fn drop(&mut self) {
        if let InterruptSource::Rseq { word, .. } = &self.source
            && word.load(Ordering::Relaxed) == parked()
        {
            word.store(0, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match self.source {
            InterruptSource::Rseq { .. } => "rseq",
            InterruptSource::Counter { .. } => "getrusage",
        };
        f.debug_struct("Marker").field("source", &source).finish()
    }
}

impl InterruptSource {
    /// Starts counting from the kernel's present count.
    fn counter() -> Self {
        Self::Counter {
            switches: involuntary_switches(),
            runs: 0,
        }
    }
}

/// The value that the word keeps while nothing has happened.
#[inline]
fn parked() -> usize {
    (&raw const SECTION).addr()
}

/// Involuntary switches of the calling thread so far.
fn involuntary_switches() -> i64 {
    // SAFETY: a plain structure of numbers, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is writable; the call fails only for a bad address.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nivcsw
}

/// The word `rseq_cs` of the calling thread, where the C library has registered an area.
fn rseq_word() -> Option<&'static AtomicUsize> {
    let offset = symbol::<isize>(c"__rseq_offset")?;
    let size = symbol::<u32>(c"__rseq_size")?;
    // SAFETY: the C library defines it as `const ptrdiff_t`, set before `main`.
    let offset = unsafe { offset.read() };
    // SAFETY: likewise, `const unsigned int`; 0 when the registration failed or is switched off.
    let size = unsafe { size.read() };
    if size == 0 {
        return None;
    }
    let word = thread_pointer()
        .wrapping_byte_offset(offset)
        .wrapping_byte_offset(RSEQ_CS_OFFSET)
        .cast::<AtomicUsize>();
    // SAFETY: the area lies in the thread's control block, which lives until the thread ends, and a
    // `Marker` (not `Send`) is only used on its thread. The kernel changes the word, hence atomic.
    Some(unsafe { &*word })
}

/// Address of a variable that the C library may define.
fn symbol<T>(name: &std::ffi::CStr) -> Option<*const T> {
    // SAFETY: looks a name up; the name ends with a zero.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address.cast_const().cast())
}

#[cfg(test)]
mod tests;
