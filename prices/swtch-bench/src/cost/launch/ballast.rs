//! Resident memory that makes `fork` copy more page tables.

use std::fs;
use std::path::Path;
use std::ptr;

use crate::error::{Error, checked};

/// Bytes of the smallest page: touching one byte in each reaches all pages.
const PAGE: usize = 4096;

const MIB: usize = 1 << 20;

/// Private memory that has been touched, in small pages.
#[derive(Debug)]
pub(super) struct Ballast {
    address: *mut libc::c_void,
    length: usize,
}

impl Ballast {
    /// Maps and touches `mib` MiB, if that is at most half of the available memory.
    pub(super) fn new(mib: u32) -> Result<Self, Error> {
        let length = mib as usize * MIB;
        if length == 0 {
            let address = ptr::null_mut();
            return Ok(Self { address, length });
        }
        let available_mib = available_mib()?.min(left_in_cgroup_mib().unwrap_or(u64::MAX));
        if u64::from(mib) > available_mib / 2 {
            return Err(Error::NotHere(format!(
                "{mib} MiB of ballast would be more than half of the memory that is available, \
                 {available_mib} MiB"
            )));
        }
        let ballast = Self::map(length)?;
        ballast.touch()?;
        Ok(ballast)
    }

    fn map(length: usize) -> Result<Self, Error> {
        // SAFETY: asks for fresh memory anywhere, which nothing else uses.
        let address = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if address == libc::MAP_FAILED {
            return Err(Error::last_call("mmap"));
        }
        Ok(Self { address, length })
    }

    /// Writes a byte to every page, since pages that are only read all map one zero page. Huge
    /// pages are disabled: memory that grows bit by bit consists of small ones.
    fn touch(&self) -> Result<(), Error> {
        // SAFETY: the range is what `map` mapped.
        let advised = unsafe { libc::madvise(self.address, self.length, libc::MADV_NOHUGEPAGE) };
        match checked("madvise", advised) {
            // A kernel without huge pages does not know this advice.
            Err(Error::Call { source, .. }) if source.raw_os_error() == Some(libc::EINVAL) => {}
            other => drop(other?),
        }
        for offset in (0..self.length).step_by(PAGE) {
            // SAFETY: within what `map` mapped.
            let byte = unsafe { self.address.cast::<u8>().add(offset) };
            // SAFETY: as above, and nothing else has a pointer to it.
            unsafe { byte.write_volatile(1) };
        }
        Ok(())
    }
}

impl Drop for Ballast {
    fn drop(&mut self) {
        if self.length > 0 {
            // SAFETY: unmaps what `map` mapped.
            unsafe { libc::munmap(self.address, self.length) };
        }
    }
}

/// `MemAvailable` of /proc/meminfo, in MiB.
fn available_mib() -> Result<u64, Error> {
    let path = "/proc/meminfo";
    let facts = fs::read_to_string(path).map_err(|source| Error::File {
        path: path.into(),
        source,
    })?;
    let kib = facts
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))
        .and_then(|rest| rest.trim().strip_suffix(" kB"))
        .and_then(|number| number.parse::<u64>().ok());
    Ok(kib.expect("invariant: every kernel since 3.14 writes it in kB") / 1024)
}

/// MiB that the memory limits of this cgroup and its ancestors leave; `None` without a limit.
fn left_in_cgroup_mib() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let left = |group: &Path| {
        let limit = number(&group.join("memory.max"))?;
        let used = number(&group.join("memory.current"))?;
        Some(limit.saturating_sub(used) >> 20)
    };
    let root = Path::new("/sys/fs/cgroup");
    root.join(own).ancestors().filter_map(left).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ballast_beyond_memory_is_refused() {
        let refused = Ballast::new(u32::MAX).map(drop).unwrap_err().to_string();
        assert!(
            refused.contains("more than half of the memory"),
            "{refused}"
        );
    }

    /// Touched memory must be resident.
    #[test]
    fn ballast_weighs_what_it_says() {
        let resident_kib = || {
            let status = fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find(|line| line.starts_with("RssAnon:"));
            let number = line.unwrap().split_whitespace().nth(1).unwrap();
            number.parse::<u64>().unwrap()
        };
        let before = resident_kib();
        let ballast = Ballast::new(32).unwrap();
        assert!(resident_kib() >= before + 30 * 1024);
        drop(ballast);
    }
}
