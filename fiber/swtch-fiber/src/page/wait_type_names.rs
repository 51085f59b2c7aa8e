//! The names of the wait types in the page: a name that is added later is shown as well.

use std::sync::atomic::Ordering;

use swtch_observe::names;

use super::{WritablePage, page_if_there};
use crate::error::Error;
use crate::wait_type::{self, WaitType};

impl WaitType {
    /// The wait type called `name`, made if it does not exist. A name that begins with
    /// `PREEMPTIVE_` is customary for [`preemptive`](crate::preemptive) sections.
    ///
    /// # Errors
    /// [`Error::TooManyWaitTypes`] when all numbers are taken.
    pub fn named(name: &'static str) -> Result<Self, Error> {
        Self::known_or_added(name, |number| {
            if let Some(page) = page_if_there() {
                publish(page, number, name);
            }
        })
    }
}

/// Writes all names known so far into a page that is being set up.
pub(super) fn publish_all(page: &WritablePage) {
    wait_type::for_each_name(|(number, name)| publish(page, number, name));
}

fn publish(page: &WritablePage, number: usize, name: &str) {
    names::store(&page.wait_type_name(number).bytes, name);
    let used = &page.header().wait_type_names.used;
    let count = u32::try_from(number + 1).expect("there are at most 128 wait types");
    used.store(used.load(Ordering::Relaxed).max(count), Ordering::Release);
}
