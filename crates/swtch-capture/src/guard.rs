//! Keeps the thread that empties the rings from being starved by what it records.
//!
//! A task of a real-time class runs before every ordinary one, so a recorder of ordinary priority gets
//! what the kernel leaves it: 5 % of a CPU, in pieces of 50 ms a second (`sched_rt_runtime_us`; the
//! fair server since 6.12). The rings are full long before. To run the whole recorder at a real-time
//! priority would change what it watches, even where nobody starves it. So:
//!
//! ```text
//! guard (SCHED_DEADLINE)   looks at the rings: a quarter full?  no ─▶ sleeps on
//!                          └─ yes ─▶ waits for the lock, 8 ms at most ─▶ rests 2 ms ─▶ looks again
//! recorder (ordinary)      holds the lock all the time. While the guard waits for it, the kernel runs
//!                          the recorder at the guard's priority: priority inheritance, futex(2)
//! ```
//!
//! - It is bounded: the recorder runs at a borrowed priority for at most 8 ms of 8.5, on one CPU, and only while
//!   its rings are filling.
//! - It needs no right later: the guard takes its priority at the start and gives up every capability.
//! - Nothing is to be put back: when the guard ends, the recorder has the priority that it had before.
//!   The kernel neither passes a borrowed priority on to children (`sched_fork`, kernel/sched/core.c,
//!   v6.18: `p->prio = current->normal_prio`) nor the guard's own (`SCHED_FLAG_RESET_ON_FORK`).

use std::io;
use std::marker::PhantomData;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::clock::monotonic_ns;
use crate::confine::forbid_new_privileges;
use crate::counters::CpuStates;
use crate::error::Error;
use crate::load::{Capture, kernel_version};
use crate::privilege::{Kept, drop_privileges, empty_bounding_set};

/// Time between two looks at the rings, for each slot of a ring: at a million switches a second on one
/// CPU its ring is two fifths full at the next look. A look costs about 45 µs with the switches that it
/// takes (measured on 6.18 in a virtual machine), so there are at most 50 a second.
const LOOK_PER_SLOT: Duration = Duration::from_nanos(400);
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_millis(100);
const LOOK_AT_MOST_EVERY: Duration = Duration::from_millis(20);

/// How long the guard waits for the lock at a time, and how long it rests between: so the recorder cannot
/// have more than 80 % of one CPU at a borrowed priority, or 94 % while a ring is more than half full. The
/// kernel bounds real-time tasks at 95 % (`sched_rt_runtime_us`).
const LEND_FOR: Duration = Duration::from_millis(8);
const REST_FOR: Duration = Duration::from_millis(2);
const REST_WHEN_HALF_FULL: Duration = Duration::from_micros(500);

/// The guard's own budget in each period: it looks at two numbers a CPU.
const RUNTIME: Duration = Duration::from_millis(1);
const PERIOD: Duration = Duration::from_millis(20);

/// The priority from which the recorder borrows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardPriority {
    /// `SCHED_DEADLINE`: before every task of the other real-time policies.
    Deadline,
    /// `SCHED_FIFO` of this priority, where `SCHED_DEADLINE` is refused, as to a thread that may not run
    /// on every CPU. Tasks of the same or a higher priority can still starve the recorder.
    Fifo(u8),
    /// None: `CAP_SYS_NICE` and `RLIMIT_RTPRIO` allow no real-time priority.
    Ordinary,
}

/// How much the recorder borrowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lent {
    /// How often the rings were found filling.
    pub times: u64,
    /// For how long the recorder could run at the guard's priority.
    pub time: Duration,
}

/// A running guard. It belongs to the thread that empties the rings, and ends when it is dropped.
#[derive(Debug)]
pub struct Guard {
    priority: GuardPriority,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Lent>>,
    /// The lock is the calling thread's, so the guard must not be sent to another.
    of_one_thread: PhantomData<*const ()>,
}

impl Capture {
    /// Guards the calling thread, which is to empty the rings. To be called while there is the right to a
    /// real-time priority. The guard's own thread keeps only the rights that are named, none of which it
    /// can pass on to a program.
    ///
    /// # Errors
    /// When no thread can be started, or the kernel lets it keep rights that it gives up.
    pub fn guard(&self, kept: Kept) -> Result<Guard, Error> {
        let room = self.switch_rings().slots_per_cpu();
        Guard::start(self.cpu_states().clone(), room, kept)
    }
}

impl Guard {
    fn start(states: CpuStates, room: u64, kept: Kept) -> Result<Self, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let loan = Loan::held_by_caller();
        let (tell, told) = channel();
        let is_over = Arc::clone(&stop);
        let guard = move || {
            let priority = take_priority();
            // A priority that was taken stays when the right to take it is gone.
            let confined = give_up_rights(kept);
            let is_needed = confined.is_ok() && priority != GuardPriority::Ordinary;
            // Its receiver waits for it.
            let _ = tell.send(confined.map(|()| priority));
            match is_needed {
                true => watch(&states, room, &loan, &is_over),
                false => Lent::default(),
            }
        };
        let thread = thread::Builder::new()
            .name("swtch-guard".to_owned())
            .spawn(guard)
            .map_err(Error::Guard)?;
        let told = told.recv();
        let priority = told.map_err(|error| Error::Guard(io::Error::other(error)))??;
        Ok(Self {
            priority,
            stop,
            thread: Some(thread),
            of_one_thread: PhantomData,
        })
    }

    /// The priority that it has to lend.
    pub const fn priority(&self) -> GuardPriority {
        self.priority
    }

    /// Ends it; how much it lent.
    pub fn end(mut self) -> Lent {
        self.join()
    }

    fn join(&mut self) -> Lent {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else {
            return Lent::default();
        };
        thread.thread().unpark();
        // It calls nothing that panics; without it, nothing was lent.
        thread.join().unwrap_or_default()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.join();
    }
}

/// What the recorder does for its own thread: capabilities and what gives some belong to a thread.
fn give_up_rights(kept: Kept) -> Result<(), Error> {
    empty_bounding_set();
    drop_privileges(kept, kernel_version())?;
    forbid_new_privileges()
}

/// Looks at the rings and lends while they fill.
fn watch(states: &CpuStates, room: u64, loan: &Loan, is_over: &AtomicBool) -> Lent {
    let mut lent = Lent::default();
    let mut helps = false;
    while !is_over.load(Ordering::Relaxed) {
        let was_helping = helps;
        let most = states.most_in_a_ring();
        helps = needs_help(was_helping, most, room);
        if !helps {
            thread::park_timeout(look_every(room));
            continue;
        }
        lent.times += u64::from(!was_helping);
        let begun = Instant::now();
        loan.lend(LEND_FOR);
        lent.time += begun.elapsed();
        thread::sleep(if most > room / 2 {
            REST_WHEN_HALF_FULL
        } else {
            REST_FOR
        });
    }
    lent
}

/// Time between two looks at rings with room for so many records.
fn look_every(room: u64) -> Duration {
    let slots = u32::try_from(room).unwrap_or(u32::MAX);
    (LOOK_PER_SLOT * slots).clamp(LOOK_AT_MOST_EVERY, LOOK_AT_LEAST_EVERY)
}

/// Whether the recorder needs help, when its fullest ring holds so many records of those that it has room
/// for: from a quarter on, until a sixteenth is left.
const fn needs_help(has_help: bool, most: u64, room: u64) -> bool {
    let least = if has_help { room / 16 } else { room / 4 };
    most >= least
}

/// A lock that one thread holds all the time: who waits for it lends that thread its priority.
struct Loan {
    /// The word of a `PTHREAD_PRIO_INHERIT` mutex: the holder's thread id (futex(2), "PI futexes").
    holder: AtomicU32,
}

/// `include/uapi/linux/futex.h`, Linux 5.14: as `FUTEX_LOCK_PI`, with a limit on `CLOCK_MONOTONIC`, which
/// nobody can set back.
const FUTEX_LOCK_PI2: libc::c_int = 13;

impl Loan {
    fn held_by_caller() -> Self {
        // SAFETY: gettid has no memory effects.
        let tid = unsafe { libc::gettid() };
        Self {
            holder: AtomicU32::new(tid.cast_unsigned()),
        }
    }

    /// Lends the caller's priority to the holder for this long.
    fn lend(&self, length: Duration) {
        let end = Duration::from_nanos(monotonic_ns()) + length;
        let end = libc::timespec {
            tv_sec: libc::time_t::try_from(end.as_secs()).unwrap_or(libc::time_t::MAX),
            tv_nsec: libc::c_long::from(end.subsec_nanos().cast_signed()),
        };
        let operation = FUTEX_LOCK_PI2 | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word and the time outlive the call. The holder does not let go of the lock while the
        // guard lives, so the call ends when the time is over; any other end of it lends nothing, and the
        // caller rests before it tries again.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.holder.as_ptr(),
                operation,
                0,
                &raw const end,
                ptr::null::<u32>(),
                0,
            )
        };
    }
}

/// `struct sched_attr`, its first version: `include/uapi/linux/sched/types.h`.
#[repr(C)]
#[derive(Default)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime_ns: u64,
    deadline_ns: u64,
    period_ns: u64,
}

const SCHED_FLAG_RESET_ON_FORK: u64 = 1;

/// `CONFIG_HZ`-independent limits of `SCHED_FIFO`: `MAX_RT_PRIO - 1` is the highest that may be asked for.
const HIGHEST_FIFO: u8 = 99;

/// Gives the calling thread the highest real-time priority that it may have.
fn take_priority() -> GuardPriority {
    let ns = |length: Duration| u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    let deadline = SchedAttr {
        policy: libc::SCHED_DEADLINE.cast_unsigned(),
        runtime_ns: ns(RUNTIME),
        deadline_ns: ns(PERIOD),
        period_ns: ns(PERIOD),
        ..SchedAttr::default()
    };
    if set_scheduler(deadline) {
        return GuardPriority::Deadline;
    }
    let fifo = |priority: u8| SchedAttr {
        policy: libc::SCHED_FIFO.cast_unsigned(),
        priority: u32::from(priority),
        ..SchedAttr::default()
    };
    [HIGHEST_FIFO, highest_allowed()]
        .into_iter()
        .find(|priority| *priority > 0 && set_scheduler(fifo(*priority)))
        .map_or(GuardPriority::Ordinary, GuardPriority::Fifo)
}

/// Whether the kernel gave the calling thread this policy.
fn set_scheduler(attr: SchedAttr) -> bool {
    let attr = SchedAttr {
        size: u32::try_from(size_of::<SchedAttr>()).unwrap_or(0),
        flags: SCHED_FLAG_RESET_ON_FORK,
        ..attr
    };
    // SAFETY: reads the struct, whose size it names; 0 is the calling thread.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) == 0 }
}

/// The priority that `RLIMIT_RTPRIO` allows; 0 for none.
fn highest_allowed() -> u8 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: fills the struct, which outlives the call.
    let result = unsafe { libc::getrlimit(libc::RLIMIT_RTPRIO, &raw mut limit) };
    match result {
        0 => u8::try_from(limit.rlim_cur.min(u64::from(HIGHEST_FIFO))).unwrap_or(0),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Help that ended at the level at which it begins would be given and taken away all the time.
    #[test]
    fn help_begins_at_a_quarter_and_ends_at_a_sixteenth() {
        assert!(!needs_help(false, 0, 1024));
        assert!(!needs_help(false, 255, 1024));
        assert!(needs_help(false, 256, 1024));
        assert!(needs_help(true, 64, 1024));
        assert!(!needs_help(true, 63, 1024));
    }

    #[test]
    fn small_rings_are_looked_at_more_often() {
        assert_eq!(look_every(1 << 18), Duration::from_millis(100));
        assert_eq!(look_every(100_000), Duration::from_millis(40));
        assert_eq!(look_every(1 << 13), Duration::from_millis(20));
    }

    /// The time limit is the bound of what the recorder can borrow.
    #[test]
    fn waiting_for_a_lock_that_is_never_let_go_of_ends_in_time() {
        let loan = Loan::held_by_caller();
        let waited = thread::spawn(move || {
            let begun = Instant::now();
            loan.lend(Duration::from_millis(30));
            begun.elapsed()
        });
        let waited = waited.join().expect("it does not panic");
        assert!(waited >= Duration::from_millis(29), "{waited:?}");
        assert!(waited < Duration::from_secs(5), "{waited:?}");
    }
}
