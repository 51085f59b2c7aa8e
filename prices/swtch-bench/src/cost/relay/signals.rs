//! The turn as a signal to one thread, which blocks the signal and takes it by `sigtimedwait`.
//!
//! At most one instance of a standard signal is pending, which is enough for a single turn.

use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

use super::Relay;
use crate::cost::work::Work;
use crate::error::{Error, checked, returned};
use crate::shared::Shared;
use crate::workers::own_id;

const TURN: libc::c_int = libc::SIGUSR2;

/// The threads to which the turn is sent.
pub(super) struct SignalRing {
    /// Process and thread id of each member.
    members: Vec<Shared<[AtomicU32; 2]>>,
    turn: libc::sigset_t,
}

impl SignalRing {
    /// A ring whose members will store their ids in `enter`.
    pub(super) fn new(count: u32) -> Result<Self, Error> {
        Ok(Self {
            members: (0..count)
                .map(|_| Shared::new())
                .collect::<Result<_, _>>()?,
            turn: only(TURN),
        })
    }

    /// Sends the turn to member number `to`.
    fn pass(&self, to: usize) -> Result<(), Error> {
        let [pid, tid] = self.members[to]
            .each_ref()
            .map(|slot| slot.load(Ordering::Relaxed));
        // SAFETY: no memory is involved, and the thread is one that has blocked the signal.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, TURN) };
        checked("tgkill", sent).map(drop)
    }

    /// Takes the turn that was sent to the calling thread.
    fn take(&self) -> Result<(), Error> {
        loop {
            // SAFETY: the set lives across the call; no information about the signal is requested,
            // and no timeout is given.
            let taken = unsafe { libc::sigtimedwait(&self.turn, ptr::null_mut(), ptr::null()) };
            match checked("rt_sigtimedwait", taken) {
                Ok(_) => return Ok(()),
                Err(Error::Call { source, .. }) if source.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Relay for SignalRing {
    fn enter(&self, me: usize) -> Result<(), Error> {
        // SAFETY: the set lives across the call, and the old one is not asked for.
        returned("pthread_sigmask", unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &self.turn, ptr::null_mut())
        })?;
        let id = own_id();
        for (slot, number) in self.members[me].iter().zip([id.pid, id.tid]) {
            slot.store(number, Ordering::Relaxed);
        }
        Ok(())
    }

    fn lead(&self, work: &mut dyn Work) -> Result<(), Error> {
        // The remainder as in `follow`, so that a lap is the same work for every member.
        self.pass(1 % self.members.len())?;
        self.take()?;
        work.run();
        Ok(())
    }

    fn follow(&self, me: usize, work: &mut dyn Work) -> Result<(), Error> {
        self.take()?;
        work.run();
        self.pass((me + 1) % self.members.len())
    }

    /// The leader sends the signal to itself.
    fn hand_over_alone(&self) -> Result<(), Error> {
        self.pass(0)?;
        self.take()
    }
}

/// A set that holds only `signal`.
fn only(signal: libc::c_int) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: the set is ours to be written to. It cannot fail.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the set is initialised, and the signal exists. It cannot fail.
    unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    // SAFETY: initialised by `sigemptyset`.
    unsafe { set.assume_init() }
}
