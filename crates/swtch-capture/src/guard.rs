//! Keeps the thread that empties the rings from being starved by the tasks that it records.
//!
//! Tasks of a real-time class run before ordinary ones, so a recorder of ordinary priority gets
//! what the kernel leaves: 5 % of a CPU, in pieces of 50 ms a second (`sched_rt_runtime_us`; the
//! fair server since 6.12). The rings are full long before that. Running the whole recorder at a
//! real-time priority would change what it observes, even where nothing starves it. So:
//!
//! ```text
//! guard (SCHED_DEADLINE)   looks at the rings: a quarter full?  no ─▶ sleeps on
//!                          └─ yes ─▶ waits for the lock, 8 ms at most ─▶ rests 2 ms ─▶ looks again
//! recorder (ordinary)      holds the lock all the time. While the guard waits for it, the kernel
//!                          runs the recorder at the guard's priority (priority inheritance)
//! ```
//!
//! - It is bounded: the recorder runs at a borrowed priority for at most 8 ms of 8.5, on one CPU,
//!   and only while its rings are filling.
//! - It needs no privilege later: the guard takes its priority at the start and gives up every
//!   capability that is not named as kept.
//! - There is nothing to restore: when the guard ends, the recorder has the priority that it had
//!   before. Neither a borrowed priority (`sched_fork`, kernel/sched/core.c, v6.18: `p->prio =
//!   current->normal_prio`) nor the guard's own (`SCHED_FLAG_RESET_ON_FORK`) is passed on to
//!   children.

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
use crate::load::Capture;
use crate::privilege::{KeptPrivileges, drop_privileges, empty_bounding_set};
use crate::probe::kernel_version;

/// Time between two checks of the rings, per slot of a ring: at a million switches a second on one
/// CPU its ring is two fifths full at the next check. A check costs about 45 µs including its
/// switches (measured on 6.18 in a virtual machine), and there are at most 50 a second.
const LOOK_PER_SLOT: Duration = Duration::from_nanos(400);
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_millis(100);
const LOOK_AT_MOST_EVERY: Duration = Duration::from_millis(20);

/// The time for which the guard waits for the lock at once, and below it those for which it rests between. So the
/// recorder cannot have more than 80 % of one CPU at a borrowed priority, or 94 % while a ring is more than half full.
/// The kernel bounds real-time tasks at 95 % (`sched_rt_runtime_us`).
const LEND_FOR: Duration = Duration::from_millis(8);
const REST_FOR: Duration = Duration::from_millis(2);
const REST_WHEN_HALF_FULL: Duration = Duration::from_micros(500);

/// The guard's own budget in each period: it reads two numbers per CPU.
const RUNTIME: Duration = Duration::from_millis(1);
const PERIOD: Duration = Duration::from_millis(20);

/// The priority that the recorder can borrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuardPriority {
    /// `SCHED_DEADLINE`: before every task of the other real-time policies.
    Deadline,
    /// `SCHED_FIFO` of this priority (1 to 99), where `SCHED_DEADLINE` is refused, as for a thread
    /// that may not run on every CPU. Tasks of the same or a higher priority can still starve the
    /// recorder.
    Fifo(u8),
    /// No real-time priority: `CAP_SYS_NICE` and `RLIMIT_RTPRIO` allow none.
    Ordinary,
}

/// The use that the recorder made of the guard's priority.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuardUse {
    /// The number of times that the rings were found filling.
    pub times: u64,
    /// Time in which the recorder could run at the guard's priority.
    pub time: Duration,
}

/// A running guard. It belongs to the thread that empties the rings, and ends when it is dropped.
#[derive(Debug)]
pub struct Guard {
    priority: GuardPriority,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<GuardUse>>,
    /// The calling thread holds the lock, so the guard must not be sent to another thread.
    of_one_thread: PhantomData<*const ()>,
}

impl Capture {
    /// Guards the calling thread, which must be the one that empties the rings. Call it while the
    /// process may take a real-time priority. The guard's own thread keeps only the rights in
    /// `kept`, none of which it can pass on to a program.
    ///
    /// # Errors
    /// When no thread can be started, or the kernel refuses to take rights away from it.
    pub fn guard(&self, kept: KeptPrivileges) -> Result<Guard, Error> {
        let room = self.slots_per_cpu();
        Guard::start(self.cpu_states().clone(), room, kept)
    }
}

impl Guard {
    fn start(states: CpuStates, room: u64, kept: KeptPrivileges) -> Result<Self, Error> {
        let stop = Arc::new(AtomicBool::new(false));
        let loan = Loan::held_by_caller();
        let (tell, told) = channel();
        let is_over = Arc::clone(&stop);
        let guard = move || {
            let priority = take_priority();
            // The priority stays when the right to take it is dropped.
            let confined = give_up_rights(kept);
            let is_needed = confined.is_ok() && priority != GuardPriority::Ordinary;
            // The receiver waits until this is sent.
            let _ = tell.send(confined.map(|()| priority));
            match is_needed {
                true => watch(&states, room, &loan, &is_over),
                false => GuardUse::default(),
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

    /// The priority that the guard can lend.
    pub const fn priority(&self) -> GuardPriority {
        self.priority
    }

    /// Ends the guard; returns how much it lent.
    pub fn end(mut self) -> GuardUse {
        self.join()
    }

    fn join(&mut self) -> GuardUse {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else {
            return GuardUse::default();
        };
        thread.thread().unpark();
        // The thread calls nothing that panics; if it did, nothing was lent.
        thread.join().unwrap_or_default()
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.join();
    }
}

/// Gives up rights as the recorder does in its own thread: capabilities, the bounding set and
/// `no_new_privs` belong to a thread.
fn give_up_rights(kept: KeptPrivileges) -> Result<(), Error> {
    empty_bounding_set();
    drop_privileges(kept, kernel_version())?;
    forbid_new_privileges()
}

/// Checks the rings and lends the priority while they fill.
fn watch(states: &CpuStates, room: u64, loan: &Loan, is_over: &AtomicBool) -> GuardUse {
    let mut lent = GuardUse::default();
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

/// Time between two checks of rings with room for this many records.
fn look_every(room: u64) -> Duration {
    let slots = u32::try_from(room).unwrap_or(u32::MAX);
    (LOOK_PER_SLOT * slots).clamp(LOOK_AT_MOST_EVERY, LOOK_AT_LEAST_EVERY)
}

/// Returns true if the recorder needs help when its fullest ring holds `most` of `room` records: from a quarter on,
/// until it falls below a sixteenth.
const fn needs_help(has_help: bool, most: u64, room: u64) -> bool {
    let least = if has_help { room / 16 } else { room / 4 };
    most >= least
}

/// A lock that one thread holds all the time: a thread that waits for it lends its priority.
struct Loan {
    /// The word of a `PTHREAD_PRIO_INHERIT` mutex: the holder's thread id (futex(2), "PI futexes").
    holder: AtomicU32,
}

/// `include/uapi/linux/futex.h`, Linux 5.14: as `FUTEX_LOCK_PI`, with a time limit on
/// `CLOCK_MONOTONIC`, which cannot be set back.
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
        // SAFETY: the word and the time outlive the call. The holder does not release the lock
        // while the guard lives, so the call ends when the time is over; any other end of it lends
        // nothing, and the caller rests before it tries again.
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

/// The attributes of an ordinary thread, from which the others are made. Threads that this one
/// starts do not inherit what is set.
fn ordinary() -> libc::sched_attr {
    libc::sched_attr {
        size: u32::try_from(size_of::<libc::sched_attr>()).unwrap_or(0),
        sched_policy: libc::SCHED_OTHER.cast_unsigned(),
        sched_flags: SCHED_FLAG_RESET_ON_FORK,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    }
}

/// `include/uapi/linux/sched.h`.
const SCHED_FLAG_RESET_ON_FORK: u64 = 1;

/// `MAX_RT_PRIO - 1`, the highest priority of `SCHED_FIFO`.
const HIGHEST_FIFO: u8 = 99;

/// Gives the calling thread the highest real-time priority that it may have.
fn take_priority() -> GuardPriority {
    let ns = |length: Duration| u64::try_from(length.as_nanos()).unwrap_or(u64::MAX);
    let deadline = libc::sched_attr {
        sched_policy: libc::SCHED_DEADLINE.cast_unsigned(),
        sched_runtime: ns(RUNTIME),
        sched_deadline: ns(PERIOD),
        sched_period: ns(PERIOD),
        ..ordinary()
    };
    if set_scheduler(&deadline) {
        return GuardPriority::Deadline;
    }
    let fifo = |priority: u8| libc::sched_attr {
        sched_policy: libc::SCHED_FIFO.cast_unsigned(),
        sched_priority: u32::from(priority),
        ..ordinary()
    };
    [HIGHEST_FIFO, highest_allowed()]
        .into_iter()
        .find(|priority| *priority > 0 && set_scheduler(&fifo(*priority)))
        .map_or(GuardPriority::Ordinary, GuardPriority::Fifo)
}

/// Sets the policy of the calling thread; true if the kernel allowed it.
fn set_scheduler(attr: &libc::sched_attr) -> bool {
    // SAFETY: reads the struct, whose size it names; 0 is the calling thread.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const *attr, 0) == 0 }
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

    /// Help that ended at the level where it begins would start and stop all the time.
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

    /// The time limit bounds how much the recorder can borrow.
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
