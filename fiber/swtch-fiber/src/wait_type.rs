//! The wait types: a small closed list, and the names that programs add.
//!
//! The names are those of SQL Server's wait types where the meaning is the same
//! (`sys.dm_os_wait_stats`), otherwise the name of our own primitive. `page::wait_type_names` shows
//! them to observers.

use std::sync::Mutex;

use swtch_observe::layout::WAIT_TYPES;

use crate::atomics::lock;
use crate::error::Error;

/// A kind of thing that a worker waits for. Built-in types are constants; [`WaitType::named`] makes more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WaitType(u8);

macro_rules! wait_types {
    ($($number:literal $name:ident: $doc:literal;)+) => {
        impl WaitType {
            $(#[doc = $doc] pub const $name: Self = Self($number);)+
        }

        /// Names of the built-in wait types, in the order of their numbers.
        const BUILT_IN: &[&str] = &[$(stringify!($name)),+];
    };
}

wait_types! {
    0 NONE: "No wait yet.";
    1 SOS_SCHEDULER_YIELD: "The worker yielded and waits for its turn.";
    2 THREADPOOL: "A task waits for a worker.";
    3 SLEEP_TASK: "The worker sleeps until a timer goes off.";
    4 MUTEX: "Another worker holds the mutex.";
    5 RWLOCK_SHARED: "Wants to read what another worker writes.";
    6 RWLOCK_EXCLUSIVE: "Wants to write what other workers read or write.";
    7 SEMAPHORE: "No permit is left.";
    8 EVENT: "The event has not happened.";
    9 CHANNEL_SEND: "The channel is full.";
    10 CHANNEL_RECEIVE: "The channel is empty.";
    11 JOIN: "The task it waits for has not ended.";
    12 CONDITION: "The condition has not been notified.";
    13 ASYNC_IO_COMPLETION: "Input or output of a file.";
    14 ASYNC_NETWORK_IO: "Input or output of a socket.";
    15 PREEMPTIVE_OTHER: "Runs outside of the scheduler, for a reason without a name.";
}

/// Names that programs added, in the order of their numbers after the built-in ones.
static ADDED: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

impl Default for WaitType {
    fn default() -> Self {
        Self::NONE
    }
}

impl WaitType {
    /// The wait type called `name`, added to the names if it does not exist. `was_added` gets the
    /// number of a new one, while no other can be added.
    ///
    /// # Errors
    /// [`Error::TooManyWaitTypes`] when all numbers are taken.
    pub(crate) fn known_or_added(
        name: &'static str,
        was_added: impl FnOnce(usize),
    ) -> Result<Self, Error> {
        if let Some(number) = BUILT_IN.iter().position(|built_in| *built_in == name) {
            return Ok(Self::numbered(number));
        }
        let mut added = lock(&ADDED);
        if let Some(place) = added.iter().position(|known| *known == name) {
            return Ok(Self::numbered(BUILT_IN.len() + place));
        }
        let number = BUILT_IN.len() + added.len();
        if number >= WAIT_TYPES {
            return Err(Error::TooManyWaitTypes {
                name,
                most: WAIT_TYPES,
            });
        }
        added.push(name);
        was_added(number);
        Ok(Self::numbered(number))
    }

    /// The name that was given or built in, such as `MUTEX`.
    #[must_use]
    pub fn name(self) -> &'static str {
        let number = usize::from(self.0);
        if let Some(name) = BUILT_IN.get(number) {
            return name;
        }
        lock(&ADDED)
            .get(number - BUILT_IN.len())
            .copied()
            .unwrap_or("UNKNOWN")
    }

    /// Its index in the tables of the page.
    pub(crate) fn number(self) -> u8 {
        self.0
    }

    /// The wait type with this index in the tables of the page.
    pub(crate) fn of_number(number: u8) -> Self {
        Self(number)
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }

    fn numbered(number: usize) -> Self {
        Self(u8::try_from(number).expect("there are at most 128 wait types"))
    }
}

/// Calls `visit` with each number and name known so far, in the order of the numbers.
pub(crate) fn for_each_name(visit: impl FnMut((usize, &&'static str))) {
    let added = lock(&ADDED);
    BUILT_IN
        .iter()
        .chain(added.iter())
        .enumerate()
        .for_each(visit);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables are indexed by the number: two names for one number, or two numbers for one name,
    /// would mix statistics.
    #[test]
    fn a_name_has_one_number() {
        let first = WaitType::named("PREEMPTIVE_TEST_A").expect("there is room");
        let second = WaitType::named("PREEMPTIVE_TEST_B").expect("there is room");
        assert_ne!(first, second);
        assert_eq!(WaitType::named("PREEMPTIVE_TEST_A").expect("known"), first);
        assert_eq!(first.name(), "PREEMPTIVE_TEST_A");
    }

    /// A program that names a built-in type means that type.
    #[test]
    fn a_built_in_name_is_the_built_in_type() {
        assert_eq!(WaitType::named("MUTEX").expect("built in"), WaitType::MUTEX);
        assert_eq!(WaitType::MUTEX.name(), "MUTEX");
    }
}
