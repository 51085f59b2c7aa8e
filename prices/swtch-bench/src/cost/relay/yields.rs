//! Members that only yield: there is no turn, and the scheduler decides which member runs next.
//!
//! A lap of a member is one `sched_yield`. Its manual page calls the outcome unspecified for
//! `SCHED_OTHER`, so the number of switches per yield is what the kernel counts (as involuntary).

use super::Relay;
use crate::cost::work::Work;
use crate::error::{Error, checked};

/// A relay without shared state.
pub(super) struct YieldRelay;

impl Relay for YieldRelay {
    fn lead(&self, work: &mut dyn Work) -> Result<(), Error> {
        sched_yield()?;
        work.run();
        Ok(())
    }

    fn follow(&self, _me: usize, work: &mut dyn Work) -> Result<(), Error> {
        self.lead(work)
    }

    fn hand_over_alone(&self) -> Result<(), Error> {
        sched_yield()
    }
}

fn sched_yield() -> Result<(), Error> {
    // SAFETY: no arguments.
    checked("sched_yield", unsafe { libc::sched_yield() }).map(drop)
}
