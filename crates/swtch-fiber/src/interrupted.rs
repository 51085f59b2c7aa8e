//! Did the OS take the CPU away during this run? Asked without privilege, at the price of one load.
//!
//! A thread that runs workers cannot see that the kernel switched it out and in again. The kernel
//! leaves one trace that costs nothing to look at: restartable sequences (`rseq`, Linux 4.18). A
//! thread may point the word `rseq_cs` of its registered area at a description of a critical
//! section; when the kernel switches the thread out and finds that it was not inside that section,
//! it sets the word to zero (`rseq_ip_fixup` in `kernel/rseq.c`, v6.18). So a description of a
//! section in which no thread can ever be serves as a marker:
//!
//! ```text
//! begin of a run           the kernel switches out, or something else      end of the run
//!   rseq_cs = &NOWHERE ───────────────▶ rseq_cs = 0 ──────────────────────▶ zero: ask the kernel
//! ```
//!
//! The kernel clears the word for other reasons as well: a signal, a call that blocks, and any work that
//! it does for the thread on the way back to user mode. Of the last, 3 to 5 a second were seen on 6.18 in
//! a thread that computed alone and got no signal, at multiples of 100 ms (the scan of concurrency ids,
//! `MM_CID_SCAN_DELAY`, comes that often). So a cleared word is only a hint, which is rare; the kernel's
//! count of involuntary switches (`getrusage`) then says whether the OS took the CPU away.
//!
//! glibc registers the area for each thread from 2.35 on; where there is none (musl, an older
//! glibc, `glibc.pthread.rseq=0`), or somebody else uses `rseq_cs` (tcmalloc, librseq), the
//! count is read instead, which is a system call and therefore done rarely.
//!
//! A run that blocks in a system call gave the CPU away by itself and is not counted: the monitor of
//! stalls is for those. The kernel books a `sched_yield` of the program as involuntary. Several
//! interruptions of one run count as one: the question is whether the run was whole.

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The counters of the kernel are read once in so many runs: a read takes some 200 ns, a run may
/// take 5.
const RUNS_PER_READ: u32 = 64;

/// Four bytes that must precede the abort address; the kernel compares them with what was given
/// at registration, and glibc gives these (`RSEQ_SIG`, `sysdeps/unix/sysv/linux/*/bits/rseq.h`).
#[cfg(target_arch = "x86_64")]
const SIGNATURE: u32 = 0x5305_3053;
/// See above: the instruction `brk #0x45e0`, little endian.
#[cfg(target_arch = "aarch64")]
const SIGNATURE: u32 = 0xd428_bc00;
/// No marker is parked on other processors: see [`rseq_word`].
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const SIGNATURE: u32 = 0;

/// A critical section that is data: no thread ever executes it, so none is ever inside.
#[repr(C)]
struct Nowhere {
    inside: u64,
    signature: u32,
    after: u32,
}

static NOWHERE: Nowhere = Nowhere {
    inside: 0,
    signature: SIGNATURE,
    after: 0,
};

/// `struct rseq_cs` of `include/uapi/linux/rseq.h`.
#[repr(C, align(32))]
struct Section {
    version: u32,
    flags: u32,
    start: *const u64,
    length: u64,
    abort: *const u32,
}

// SAFETY: read-only data, and addresses of read-only data.
unsafe impl Sync for Section {}

static SECTION: Section = Section {
    version: 0,
    flags: 0,
    start: &raw const NOWHERE.inside,
    length: 8,
    abort: &raw const NOWHERE.after,
};

/// Where `rseq_cs` lies in `struct rseq`, behind two numbers of the CPU.
const RSEQ_CS_OFFSET: isize = 8;

/// Notices that the OS interrupted the thread it was made for.
pub struct Marker {
    source: Source,
    /// The word belongs to one thread.
    thread: PhantomData<*const ()>,
}

/// What an answer rests on, and the kernel's count of this thread's involuntary switches when it was read
/// last.
enum Source {
    /// The kernel clears this word of the thread's `rseq` area.
    Rseq {
        word: &'static AtomicUsize,
        switches: i64,
    },
    /// The count alone, and runs since it was read.
    Counter { switches: i64, runs: u32 },
}

impl Marker {
    /// A marker for the calling thread, which must be the one that asks it.
    ///
    /// Only one marker of a thread can use the cheap source; a second one finds it taken.
    pub fn for_this_thread() -> Self {
        let source = rseq_word()
            .filter(|word| word.load(Ordering::Relaxed) == 0)
            .map_or_else(Source::counter, |word| Source::Rseq { word, switches: 0 });
        let mut marker = Self {
            source,
            thread: PhantomData,
        };
        marker.begin_after_a_sleep();
        marker
    }

    /// Forgets what happened so far: a run begins, after a time in which interruptions do not
    /// count. One store where the source is the cheap one: what was switched meanwhile is forgotten at
    /// the next reading of the kernel's count, and may make something else look like an interruption
    /// once.
    #[inline]
    pub fn begin(&mut self) {
        match &self.source {
            Source::Rseq { word, .. } => word.store(parked(), Ordering::Relaxed),
            Source::Counter { .. } => self.begin_after_a_sleep(),
        }
    }

    /// As [`begin`](Self::begin), where there is time to read the kernel's count.
    pub fn begin_after_a_sleep(&mut self) {
        let now = involuntary_switches();
        match &mut self.source {
            Source::Rseq { word, switches } => {
                word.store(parked(), Ordering::Relaxed);
                *switches = now;
            }
            Source::Counter { switches, runs } => {
                *switches = now;
                *runs = 0;
            }
        }
    }

    /// Whether the OS took the CPU away since the last question (or [`begin`](Self::begin)), and
    /// begins anew.
    ///
    /// With the kernel's counters as the source, the answer is `false` except for one run in
    /// 64, which answers for all of them: what is counted is then a lower bound.
    #[inline]
    pub fn was_interrupted(&mut self) -> bool {
        match &mut self.source {
            Source::Rseq { word, .. } => {
                if word.load(Ordering::Relaxed) == parked() {
                    return false;
                }
                self.moved()
            }
            Source::Counter { runs, .. } => {
                *runs += 1;
                *runs >= RUNS_PER_READ && self.counted()
            }
        }
    }

    /// The word is not what was parked there.
    #[cold]
    fn moved(&mut self) -> bool {
        let Source::Rseq { word, .. } = &self.source else {
            return false;
        };
        if word.load(Ordering::Relaxed) == 0 {
            word.store(parked(), Ordering::Relaxed);
            return self.counted();
        }
        // Somebody else has begun to use it since (an allocator loaded later): it is theirs.
        self.source = Source::counter();
        false
    }

    /// Reads the kernel's count, and says whether it moved.
    #[cold]
    fn counted(&mut self) -> bool {
        let now = involuntary_switches();
        let switches = match &mut self.source {
            Source::Rseq { switches, .. } => switches,
            Source::Counter { switches, runs } => {
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

impl Drop for Marker {
    /// Leaves the word as it was found, so that the next marker of this thread may have it.
    fn drop(&mut self) {
        if let Source::Rseq { word, .. } = &self.source
            && word.load(Ordering::Relaxed) == parked()
        {
            word.store(0, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match self.source {
            Source::Rseq { .. } => "rseq",
            Source::Counter { .. } => "getrusage",
        };
        f.debug_struct("Marker").field("source", &source).finish()
    }
}

impl Source {
    /// The kernel's count, from now on.
    fn counter() -> Self {
        Self::Counter {
            switches: involuntary_switches(),
            runs: 0,
        }
    }
}

/// The value of the word while nothing has happened.
#[inline]
fn parked() -> usize {
    (&raw const SECTION).addr()
}

/// How often the OS took the CPU away from the calling thread so far.
fn involuntary_switches() -> i64 {
    // SAFETY: a plain structure of numbers, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is writable; the call fails only for a bad address.
    unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nivcsw
}

/// The word `rseq_cs` of the calling thread, where the C library has registered an area.
fn rseq_word() -> Option<&'static AtomicUsize> {
    if SIGNATURE == 0 {
        return None;
    }
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
    // SAFETY: the area lies in the thread's control block, which lives until the thread ends, and
    // a `Marker` (not `Send`) is only used on its thread. The kernel changes the word, hence atomic.
    Some(unsafe { &*word })
}

/// Address of a variable that the C library may have.
fn symbol<T>(name: &std::ffi::CStr) -> Option<*const T> {
    // SAFETY: looks a name up; the name ends with a zero.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!address.is_null()).then_some(address.cast_const().cast())
}

/// What the offsets of thread-local variables count from.
fn thread_pointer() -> *const u8 {
    let pointer: *const u8;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the first word of the thread's control block is its own address (x86-64 psABI, TLS).
    unsafe {
        std::arch::asm!("mov {}, fs:0", out(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads a register.
    unsafe {
        std::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags, nomem));
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    {
        pointer = std::ptr::null();
    }
    pointer
}

#[cfg(test)]
mod tests;
