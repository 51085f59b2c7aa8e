//! The memory of a process, and plain values in it.

/// A way to read the memory of a process.
pub trait ProcessMemory {
    /// Fills `bytes` from this address on; false if not all of them can be read.
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool;

    /// The word at an address.
    fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)
            .then(|| u64::from_ne_bytes(bytes))
    }

    /// The number of 32 bits at an address.
    fn number(&self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)
            .then(|| u32::from_ne_bytes(bytes))
    }

    /// The number of 16 bits at an address.
    fn short(&self, address: u64) -> Option<u16> {
        let mut bytes = [0; 2];
        self.read(address, &mut bytes)
            .then(|| u16::from_ne_bytes(bytes))
    }

    /// So many bytes from an address on; `None` also if they are more than `most`.
    fn bytes(&self, address: u64, length: u64, most: usize) -> Option<Vec<u8>> {
        let length = usize::try_from(length).ok().filter(|one| *one <= most)?;
        let mut bytes = vec![0; length];
        self.read(address, &mut bytes).then_some(bytes)
    }
}
