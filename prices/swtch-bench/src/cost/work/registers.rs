//! Registers that are live, or cleared, when the turn is handed on.
//!
//! ```text
//! arm live       … take │ read XINUSE │ clear │ touch │ pass, take …   registers to save
//! arm cleared    … take │ read XINUSE │ touch │ clear │ pass, take …   nothing to save
//! ```
//!
//! Compare the two arms of one state. A plain process is no baseline: after string functions of the
//! C library, masks and zmm16 to 31 are in use although the program never asked for it.
//!
//! XINUSE is read first, right after the turn was taken: the kernel has just restored what was live
//! when it switched away. So the reading shows what the switch has carried, including what the code
//! between work and switch may have left.

use serde::{Deserialize, Serialize};

use super::Work;
use crate::arch::{self, ExtendedRegisters};
use crate::error::Error;

/// Says what the last instructions before the hand-over do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RegisterEnding {
    /// They write the register state, which stays live.
    Live,
    /// They clear the state, by the instructions that `Live` executes first.
    Cleared,
}

/// Register components that were in use: bits of XINUSE on x86-64 (SSE is bit 1, AVX 2, AVX-512 5
/// to 7, tiles 17 and 18).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LiveRegisters {
    /// Components that were in use at every hand-over.
    pub always: u64,
    /// Components that were in use at one or more hand-overs.
    pub ever: u64,
}

impl LiveRegisters {
    /// The value before any reading.
    const UNSEEN: Self = Self {
        always: u64::MAX,
        ever: 0,
    };

    /// Encodes the value as two numbers, `None` included.
    pub(crate) fn to_pair(of: Option<Self>) -> [u64; 2] {
        let Self { always, ever } = of.unwrap_or(Self::UNSEEN);
        [always, ever]
    }

    /// Decodes the numbers of [`Self::to_pair`].
    pub(crate) fn from_pair([always, ever]: [u64; 2]) -> Option<Self> {
        Some(Self { always, ever }).filter(|live| *live != Self::UNSEEN)
    }

    /// Combines two readings. If one of them is `None`, the other is the result.
    pub fn of_both(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        let [[always, ever], [more_always, more_ever]] = [one, other].map(Self::to_pair);
        Self::from_pair([always & more_always, ever | more_ever])
    }
}

pub(super) struct RegisterWork {
    registers: ExtendedRegisters,
    ending: RegisterEnding,
    live: LiveRegisters,
}

impl RegisterWork {
    pub(super) fn new(registers: ExtendedRegisters, ending: RegisterEnding) -> Result<Self, Error> {
        if !arch::is_supported(registers) {
            return Err(Error::NotHere(format!(
                "this CPU, or the kernel, has no {registers:?} registers that can be set back"
            )));
        }
        arch::permit(registers)?;
        Ok(Self {
            registers,
            ending,
            live: LiveRegisters::UNSEEN,
        })
    }
}

impl Work for RegisterWork {
    fn run(&mut self) {
        if let Some(live) = arch::live_components() {
            self.live.always &= live;
            self.live.ever |= live;
        }
        match self.ending {
            RegisterEnding::Live => arch::leave_live(self.registers),
            RegisterEnding::Cleared => arch::leave_cleared(self.registers),
        }
    }

    fn take_live(&mut self) -> Option<LiveRegisters> {
        let live = std::mem::replace(&mut self.live, LiveRegisters::UNSEEN);
        Some(live).filter(|live| *live != LiveRegisters::UNSEEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member that could not read the registers must not erase what another saw.
    #[test]
    fn what_members_saw_is_put_together() {
        let one = LiveRegisters {
            always: 0b110,
            ever: 0b111,
        };
        let other = LiveRegisters {
            always: 0b011,
            ever: 0b1011,
        };
        let both = LiveRegisters::of_both(Some(one), Some(other)).unwrap();
        assert_eq!((both.always, both.ever), (0b010, 0b1111));
        assert_eq!(LiveRegisters::of_both(Some(one), None), Some(one));
        assert_eq!(LiveRegisters::of_both(None, None), None);
    }

    #[test]
    fn a_reading_is_of_the_hand_overs_since_the_last() {
        let mut work = match RegisterWork::new(ExtendedRegisters::Init, RegisterEnding::Cleared) {
            Ok(work) => work,
            Err(Error::NotHere(why)) => swtch_test::skip!("{why}"),
            Err(error) => panic!("{error}"),
        };
        work.run();
        assert_eq!(
            work.take_live().is_some(),
            arch::live_components().is_some()
        );
        assert_eq!(work.take_live(), None);
    }
}
