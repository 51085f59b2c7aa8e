//! A ring of the kernel side's with records of one kind, which are taken as values.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use libbpf_rs::{MapCore, RingBuffer, RingBufferBuilder};

use crate::error::Error;

/// The most records that are taken at once: more than such a ring holds.
const MOST_AT_ONCE: usize = 1 << 17;

/// A ring, and what was read from it and not yet taken.
pub(crate) struct RecordRing<T> {
    ring: RingBuffer<'static>,
    inbox: Rc<RefCell<RecordInbox<T>>>,
    map: &'static str,
}

struct RecordInbox<T> {
    values: Vec<T>,
    /// Number of records that were too short.
    unreadable: u64,
}

impl<T: 'static> RecordRing<T> {
    /// The ring in this map, which is called so in errors. `value_of` reads a record; `None` if that is too short.
    pub fn of(
        ring: &dyn MapCore,
        map: &'static str,
        value_of: fn(&[u8]) -> Option<T>,
    ) -> Result<Self, Error> {
        let inbox = Rc::new(RefCell::new(RecordInbox {
            values: Vec::new(),
            unreadable: 0,
        }));
        let put = {
            let inbox = Rc::clone(&inbox);
            move |record: &[u8]| {
                let inbox = &mut *inbox.borrow_mut();
                match value_of(record) {
                    Some(value) => inbox.values.push(value),
                    None => inbox.unreadable += 1,
                }
                0
            }
        };
        let failed = |source| Error::Map { map, source };
        let mut builder = RingBufferBuilder::new();
        builder.add(ring, put).map_err(failed)?;
        let ring = builder.build().map_err(failed)?;
        Ok(Self { ring, inbox, map })
    }

    /// The values that have come since the last call.
    pub fn take(&mut self) -> Result<Vec<T>, Error> {
        // Without a limit this would go on for as long as records come faster than they are read.
        let read = self.ring.consume_raw_n(MOST_AT_ONCE);
        if read < 0 {
            return Err(Error::Map {
                map: self.map,
                source: io::Error::from_raw_os_error(-read).into(),
            });
        }
        Ok(std::mem::take(&mut self.inbox.borrow_mut().values))
    }

    /// Number of records that were too short, since the beginning.
    pub fn unreadable(&self) -> u64 {
        self.inbox.borrow().unreadable
    }
}

/// The word of 8 bytes at this place of a record.
pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The number of 4 bytes at this place of a record.
pub(crate) fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}
