//! The state of a wait. Exactly one of signal, deadline and cancellation decides it.
//!
//! ```text
//! wait word:   ticket << 3 | phase
//!
//!              arm()                signal / timer / cancel: one of them wins
//!   AT_WORK ──────────────▶ ARMED ──────────────▶ SIGNALLED, TIMED_OUT or CANCELLED
//!      ▲                                                     │ the winner makes it runnable
//!      └──────────────────────── runs again ◀────────────────┘
//! ```

use crate::atomics::{AtomicBool, AtomicU64, Ordering, const_new, fence};

/// Phase of a wait: the low bits of the wait word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// There is no wait; the worker runs.
    AtWork = 0,
    /// The worker waits, or is about to wait.
    Armed = 1,
    /// The resource signalled the waiter.
    Signalled = 2,
    /// The deadline passed before a signal came.
    TimedOut = 3,
    /// The wait was ended by cancelling the task.
    Cancelled = 4,
}

const PHASE_BITS: u32 = 3;

impl Phase {
    fn of(word: u64) -> Self {
        match word & ((1 << PHASE_BITS) - 1) {
            0 => Self::AtWork,
            1 => Self::Armed,
            2 => Self::Signalled,
            3 => Self::TimedOut,
            _ => Self::Cancelled,
        }
    }
}

/// Ticket and phase of the latest wait, as drawn above.
#[derive(Debug)]
pub(crate) struct WaitWord {
    word: AtomicU64,
    /// Cancelling the task must not end the present wait.
    uncancellable: AtomicBool,
    /// The present wait has no deadline. Set after the wait was armed; until then that is unknown.
    endless: AtomicBool,
}

impl WaitWord {
    const_new! {
        pub(crate) fn new() -> Self {
            Self {
                word: AtomicU64::new(0),
                uncancellable: AtomicBool::new(false),
                endless: AtomicBool::new(false),
            }
        }
    }

    /// Returns true if cancelling the task leaves the present wait alone. Read it after the ticket.
    pub(crate) fn is_uncancellable(&self) -> bool {
        self.uncancellable.load(Ordering::Relaxed)
    }

    /// Begins a wait. Returns its ticket.
    pub(crate) fn arm(&self, uncancellable: bool) -> u64 {
        self.uncancellable.store(uncancellable, Ordering::Relaxed);
        self.endless.store(false, Ordering::Relaxed);
        let ticket = (self.word.load(Ordering::Relaxed) >> PHASE_BITS) + 1;
        self.word.store(
            ticket << PHASE_BITS | Phase::Armed as u64,
            Ordering::Release,
        );
        // The flag that asks the task to end is read after this fence. The thread that sets that
        // flag has a fence between it and its read of this word.
        fence(Ordering::SeqCst);
        ticket
    }

    /// Records that the wait armed last has no deadline.
    #[inline(always)]
    pub(crate) fn has_no_deadline(&self) {
        self.endless.store(true, Ordering::Relaxed);
    }

    /// The ticket of the present wait, while it is undecided and known to have no deadline.
    pub(crate) fn endless_ticket(&self) -> Option<u64> {
        let ticket = self.open_ticket()?;
        let endless = self.endless.load(Ordering::Relaxed);
        // The flag belongs to this wait only if it is still the present one.
        fence(Ordering::Acquire);
        (endless && self.is_open(ticket)).then_some(ticket)
    }

    /// Decides the wait with this ticket. False when it was decided already.
    pub(crate) fn decide(&self, ticket: u64, phase: Phase) -> bool {
        let decided = ticket << PHASE_BITS | phase as u64;
        let order = (Ordering::AcqRel, Ordering::Acquire);
        self.word
            .compare_exchange(armed(ticket), decided, order.0, order.1)
            .is_ok()
    }

    /// The ticket of the present wait, while it is undecided.
    pub(crate) fn open_ticket(&self) -> Option<u64> {
        let word = self.word.load(Ordering::Acquire);
        (Phase::of(word) == Phase::Armed).then_some(word >> PHASE_BITS)
    }

    /// Phase of the latest wait.
    pub(crate) fn phase(&self) -> Phase {
        Phase::of(self.word.load(Ordering::Acquire))
    }

    /// Returns true if the wait with this ticket is undecided.
    pub(crate) fn is_open(&self, ticket: u64) -> bool {
        self.open_ticket() == Some(ticket)
    }
}

/// Value of the word while the wait with this ticket is undecided.
fn armed(ticket: u64) -> u64 {
    ticket << PHASE_BITS | Phase::Armed as u64
}
