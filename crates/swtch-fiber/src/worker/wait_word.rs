//! How a wait stands, and who may decide it: signal, deadline or cancellation, and one of them alone.
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

/// Where a wait stands: the low bits of the wait word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Phase {
    /// It waits for nothing.
    AtWork = 0,
    /// It waits, or is about to.
    Armed = 1,
    /// What it waited for has happened.
    Signalled = 2,
    /// The deadline came first.
    TimedOut = 3,
    /// It is to end.
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

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct WaitWord {
    word: AtomicU64,
    /// The wait at hand must not be cut short.
    uncancellable: AtomicBool,
    /// The wait at hand has no deadline. Said after it was armed: until then it is not known.
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

    /// Whether cancelling the task leaves the wait at hand alone. Asked after its ticket.
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
        // The flag that asks the task to end is read after it; whoever sets that flag has a fence
        // between it and the look at this word.
        fence(Ordering::SeqCst);
        ticket
    }

    /// The wait that was armed last has no deadline.
    #[inline(always)]
    pub(crate) fn has_no_deadline(&self) {
        self.endless.store(true, Ordering::Relaxed);
    }

    /// The ticket of the wait at hand, while it is undecided and known to have no deadline.
    pub(crate) fn endless_ticket(&self) -> Option<u64> {
        let ticket = self.open_ticket()?;
        let endless = self.endless.load(Ordering::Relaxed);
        // Said of this wait only if that is still the one at hand.
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

    /// The ticket of the wait at hand, while it is undecided.
    pub(crate) fn open_ticket(&self) -> Option<u64> {
        let word = self.word.load(Ordering::Acquire);
        (Phase::of(word) == Phase::Armed).then_some(word >> PHASE_BITS)
    }

    /// How the wait stands.
    pub(crate) fn phase(&self) -> Phase {
        Phase::of(self.word.load(Ordering::Acquire))
    }

    /// Whether the wait with this ticket is undecided.
    pub(crate) fn is_open(&self, ticket: u64) -> bool {
        self.open_ticket() == Some(ticket)
    }
}

/// What the word says while the wait with this ticket is undecided.
fn armed(ticket: u64) -> u64 {
    ticket << PHASE_BITS | Phase::Armed as u64
}
