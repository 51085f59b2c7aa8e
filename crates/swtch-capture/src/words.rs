//! Threads of user-mode schedulers: which word of their memory says what runs on them.
//!
//! Who has such threads, and where the words lie, is for the caller to find out: this room knows
//! addresses and no scheduler. The kernel side reads the word each time such a thread leaves its
//! CPU; it looks a thread up once a generation, and the generation moves on with each change here.

use libbpf_rs::{MapCore, MapFlags};
use swtch_core::{Pid, Tid};

use crate::error::Error;
use crate::load::Capture;

impl Capture {
    /// From now on, has each switch-out of these threads of a process carry the word at the address, in the
    /// thread's own memory: [`swtch_core::SwitchEvent::user_word`]. A thread that was named before
    /// gets the new address.
    ///
    /// # Errors
    /// When there are more threads than the kernel side has room for.
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

    /// Forgets these threads: they have ended, and their ids may become others'.
    pub fn forget_words(&mut self, threads: impl IntoIterator<Item = Tid>) {
        for tid in threads {
            // One that is not there any more is what was asked for.
            let _ = self.words().delete(&tid.get().to_ne_bytes());
        }
        self.next_words_generation();
    }
}

/// A `watched_word` of `bpf/record.h`.
fn value(process: Pid, address: u64) -> [u8; 16] {
    let mut value = [0; 16];
    value[..8].copy_from_slice(&address.to_ne_bytes());
    value[8..12].copy_from_slice(&process.get().to_ne_bytes());
    value
}
