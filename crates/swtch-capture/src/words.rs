//! Threads of user-mode schedulers: the word in their memory that names the worker they run.
//!
//! The caller finds such threads and the addresses of the words; this file knows no scheduler. The
//! kernel side reads the word each time such a thread leaves its CPU. It looks a thread up once per
//! generation, and each change here starts a new generation.

use libbpf_rs::{MapCore, MapFlags};
use swtch_core::{Pid, Tid};

use crate::error::Error;
use crate::load::Capture;

impl Capture {
    /// From now on, each switch-out of these threads carries the word at the thread's address, read
    /// from its own memory: [`swtch_core::SwitchEvent::user_word`]. A thread that was given before
    /// gets the new address.
    ///
    /// # Errors
    /// The first of an update, such as when there are more threads than the kernel side has room for. The others are given
    /// all the same.
    pub fn watch_words(
        &mut self,
        process: Pid,
        threads: impl IntoIterator<Item = (Tid, u64)>,
    ) -> Result<(), Error> {
        let words = self.words();
        let mut result = Ok(());
        for (tid, address) in threads {
            let value = value(process, address);
            let updated = words.update(&tid.get().to_ne_bytes(), &value, MapFlags::ANY);
            result = result.and(updated.map_err(|source| Error::Map {
                map: "words",
                source,
            }));
        }
        self.next_words_generation();
        result
    }

    /// Removes these threads: they have ended, and their ids may be reused.
    pub fn forget_words(&mut self, threads: impl IntoIterator<Item = Tid>) {
        for tid in threads {
            // A missing entry is fine: it was to be removed.
            let _ = self.words().delete(&tid.get().to_ne_bytes());
        }
        self.next_words_generation();
    }
}

/// The bytes of a `watched_word` of `bpf/record.h`.
fn value(process: Pid, address: u64) -> [u8; 16] {
    let mut value = [0; 16];
    value[..8].copy_from_slice(&address.to_ne_bytes());
    value[8..12].copy_from_slice(&process.get().to_ne_bytes());
    value
}
