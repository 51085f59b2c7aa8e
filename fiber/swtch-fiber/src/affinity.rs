//! Which CPUs the calling thread may use, and binding it to one.

use std::io;

/// CPUs that the calling thread may use, ascending.
///
/// # Errors
/// The kernel's error (`sched_getaffinity(2)`): `EINVAL` where there may be more CPUs than the 1024 for
/// which a set has bits.
pub(crate) fn allowed_cpus() -> io::Result<Vec<u32>> {
    // SAFETY: plain bits.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is valid for writing, of the size given.
    if unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let most = u32::try_from(libc::CPU_SETSIZE).expect("CPU_SETSIZE is 1024");
    // SAFETY: the CPU is below CPU_SETSIZE.
    Ok((0..most)
        .filter(|cpu| unsafe { libc::CPU_ISSET(*cpu as usize, &set) })
        .collect())
}

/// Binds the calling thread to `cpu`.
///
/// # Errors
/// The kernel's error (`sched_setaffinity(2)`).
pub(crate) fn bind_to(cpu: u32) -> io::Result<()> {
    // SAFETY: plain bits.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: CPUs come from `allowed_cpus`, so below CPU_SETSIZE.
    unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    // SAFETY: `set` is valid, of the size given.
    if unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
