//! The wait types: a small closed list, and the names that programs add.
//!
//! The names are those of SQL Server's wait types where the meaning is the same
//! (`sys.dm_os_wait_stats`), otherwise the name of our own primitive.

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use swtch_observe::layout::WAIT_TYPES;
use swtch_observe::names;

use crate::error::Error;

use crate::page;

/// What a worker waits for. Built-in types are constants; [`WaitType::named`] makes more.
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
    /// The wait type called `name`, made if it does not exist. A name that begins with
    /// `PREEMPTIVE_` is customary for [`preemptive`](crate::preemptive) sections.
    ///
    /// # Errors
    /// [`Error::TooManyWaitTypes`] when all numbers are taken.
    pub fn named(name: &'static str) -> Result<Self, Error> {
        if let Some(number) = BUILT_IN.iter().position(|built_in| *built_in == name) {
            return Ok(Self::numbered(number));
        }
        let mut added = ADDED
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
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
        if let Some(page) = page::page_if_there() {
            publish(page, number, name);
        }
        Ok(Self::numbered(number))
    }

    /// The name that was given or built in, such as `MUTEX`.
    #[must_use]
    pub fn name(self) -> &'static str {
        let number = usize::from(self.0);
        if let Some(name) = BUILT_IN.get(number) {
            return name;
        }
        let added = ADDED
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        added
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

/// Writes all names known so far into a page that is being set up.
pub(crate) fn publish_all(page: &page::WritablePage) {
    let added = ADDED
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    for (number, name) in BUILT_IN.iter().chain(added.iter()).enumerate() {
        publish(page, number, name);
    }
}

fn publish(page: &page::WritablePage, number: usize, name: &str) {
    names::store(&page.wait_type_name(number).bytes, name);
    let used = &page.header().wait_type_names.used;
    let count = u32::try_from(number + 1).expect("there are at most 128 wait types");
    used.store(used.load(Ordering::Relaxed).max(count), Ordering::Release);
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
