//! Locks of Python 3.14 and later: a thread that waits for one is parked at a word of its own, on its stack, so that the
//! word does not tell the lock.

use super::Python;
use crate::ProcessMemory;

/// Before the semaphore at which a thread is parked stands the address for which it is (`struct wait_entry` in
/// `Python/parking_lot.c`).
const ADDRESS_BEFORE: u64 = 8;

/// Where in an object the lock is, and the object's type; and in a type its name (`Modules/_threadmodule.c`,
/// `Include/object.h`; not of builds without the interpreter's lock, whose objects begin otherwise).
const LOCK_IN_OBJECT: u64 = 16;
const TYPE_IN_OBJECT: u64 = 8;
const NAME_IN_TYPE: u64 = 24;

/// Names of types of locks, and what is called to take one.
const LOCKS: [(&[u8], &str); 2] = [
    (b"_thread.lock\0", "_thread.lock.acquire"),
    (b"_thread.RLock\0", "_thread.RLock.acquire"),
];

impl Python {
    /// The built-in method that a thread is in which waits at a futex word, if it waits for a lock of the program's.
    pub fn parked_in(word: u64, memory: &impl ProcessMemory) -> Option<&'static str> {
        let lock = memory.word(word.checked_sub(ADDRESS_BEFORE)?)?;
        let object = lock.checked_sub(LOCK_IN_OBJECT)?;
        let kind = memory.word(object.checked_add(TYPE_IN_OBJECT)?)?;
        let name = memory.word(kind.checked_add(NAME_IN_TYPE)?)?;
        let mut locks = LOCKS.iter();
        let found = locks.find(|(known, _)| {
            let bytes = memory.bytes(name, known.len() as u64, known.len());
            bytes.as_deref() == Some(known)
        });
        found.map(|(_, method)| *method)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up::{MadeUp, Wild};

    #[test]
    fn a_lock_is_told_by_the_type_of_its_object() {
        let mut memory = MadeUp::up_to(0x10_000);
        for (at, word) in [
            (0x1000 - ADDRESS_BEFORE, 0x2000 + LOCK_IN_OBJECT),
            (0x2000 + TYPE_IN_OBJECT, 0x3000),
            (0x3000 + NAME_IN_TYPE, 0x4000),
        ] {
            memory.put_word(at, word);
        }
        for (name, method) in [
            ("_thread.lock\0", Some("_thread.lock.acquire")),
            ("_thread.RLock\0", Some("_thread.RLock.acquire")),
            ("_thread.lockless\0", None),
            ("_queue.SimpleQueue\0", None),
        ] {
            memory.put(0x4000, name.as_bytes());
            assert_eq!(Python::parked_in(0x1000, &memory), method, "{name}");
        }
        assert_eq!(Python::parked_in(0, &memory), None);
        for seed in 0..500 {
            assert_eq!(Python::parked_in(seed << 12, &Wild(seed)), None);
        }
    }
}
