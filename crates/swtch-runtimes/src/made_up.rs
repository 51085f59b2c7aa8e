//! Memory of processes that there are not, for tests.

use std::collections::BTreeMap;

use crate::ProcessMemory;

/// Words at addresses; what is not there is zero, up to `end`.
pub struct MadeUp {
    bytes: BTreeMap<u64, u8>,
    end: u64,
}

impl MadeUp {
    /// Nothing but zeros up to this address.
    pub fn up_to(end: u64) -> Self {
        Self {
            bytes: BTreeMap::new(),
            end,
        }
    }

    pub fn put(&mut self, address: u64, bytes: &[u8]) {
        self.bytes.extend((address..).zip(bytes.iter().copied()));
    }

    pub fn put_word(&mut self, address: u64, word: u64) {
        self.put(address, &word.to_ne_bytes());
    }
}

impl ProcessMemory for MadeUp {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        let Some(end) = address.checked_add(bytes.len() as u64) else {
            return false;
        };
        for (byte, at) in bytes.iter_mut().zip(address..) {
            *byte = self.bytes.get(&at).copied().unwrap_or(0);
        }
        end <= self.end
    }
}

/// Memory that is made up from the address: pointers into itself, now and then zero.
pub struct Wild(pub u64);

impl ProcessMemory for Wild {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        for (byte, at) in bytes.iter_mut().zip(0..) {
            let mixed = (address.wrapping_add(at) ^ self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            *byte = if mixed >> 60 == 0 {
                0
            } else {
                mixed.to_le_bytes()[5]
            };
        }
        (address ^ self.0).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 61 != 0
    }
}
