//! The maps of the kernel side: how large each is.

use libbpf_rs::{MapHandle, MapType};

use super::ScopePlan;
use crate::error::Error;
use crate::probe::threads_of_this_machine;
use crate::settings::Settings;
use crate::skeleton::recorder::OpenSwtchSkel;
use crate::summary::places;

/// The most distinct stacks that are kept, of each kind.
const STACKS: u32 = 32 << 10;

/// The same for the oracle. Two stacks with the same hash cost it a verdict, so there are more.
const ORACLE_STACKS: u32 = 128 << 10;

/// Those of one task that is watched. More of them make it less likely that two have the same number.
const WATCHED_STACKS: u32 = 8 << 10;

/// Distinct switches of one task that is watched: each key of `bpf/summary_stacks.h` is one.
const STACK_SUMS: u32 = 4 << 10;

pub fn size_maps(
    open: &mut OpenSwtchSkel<'_>,
    settings: &Settings,
    plan: &ScopePlan,
    cpus: usize,
    task_slots: u32,
) -> Result<(), Error> {
    let cpus = u32::try_from(cpus).unwrap_or(u32::MAX);
    let stacks = match settings.oracle {
        true => ORACLE_STACKS,
        false if settings.wants_stacks() => STACKS,
        false if settings.watches_stacks => WATCHED_STACKS,
        false => 1,
    };
    let failed = |map| move |source| Error::Map { map, source };
    open.maps
        .targets
        .set_max_entries(plan.most_targets())
        .map_err(failed("targets"))?;
    open.maps
        .scope_cgroups
        .set_max_entries(plan.most_cgroups())
        .map_err(failed("scope_cgroups"))?;
    open.maps
        .cpus
        .set_max_entries(cpus)
        .map_err(failed("cpus"))?;
    open.maps
        .summaries
        .set_max_entries(places(settings.summary.unwrap_or(1)))
        .map_err(failed("summaries"))?;
    open.maps
        .tasks
        .set_max_entries(task_slots)
        .map_err(failed("tasks"))?;
    let slots = cpus.saturating_mul(settings.slots_per_cpu);
    open.maps
        .records
        .set_max_entries(slots)
        .map_err(failed("records"))?;
    open.maps
        .rings
        .set_max_entries(cpus)
        .map_err(failed("rings"))?;
    open.maps
        .kernel_stacks
        .set_max_entries(stacks)
        .map_err(failed("kernel_stacks"))?;
    open.maps
        .user_stacks
        .set_max_entries(stacks)
        .map_err(failed("user_stacks"))?;
    let sums = if settings.watches_stacks {
        STACK_SUMS
    } else {
        1
    };
    open.maps
        .stack_sums
        .set_max_entries(sums)
        .map_err(failed("stack_sums"))
}

/// Number of slots for the states of tasks, a power of two: at least four for each thread that there
/// is now. The least number takes 15 MB. A task is refused a slot when 32 in a row are taken
/// (`claim_probe` in `bpf/scope.h`): 6 in a million while half of all slots are taken, none while a
/// quarter is (simulated).
pub fn task_slots() -> u32 {
    let wanted = threads_of_this_machine().unwrap_or(0).saturating_mul(4);
    wanted.clamp(64 << 10, 1 << 20).next_power_of_two()
}

pub fn make_rings(bytes: u32, cpus: usize) -> Result<Vec<MapHandle>, Error> {
    let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>()
            as libbpf_rs::libbpf_sys::size_t,
        ..Default::default()
    };
    let make = |_| {
        MapHandle::create(MapType::RingBuf, Some("swtch_ring"), 0, 0, bytes, &options)
            .map_err(Error::of_load)
    };
    (0..cpus).map(make).collect()
}

pub fn ring_fd(ring: &MapHandle) -> [u8; 4] {
    use std::os::fd::{AsFd, AsRawFd};
    ring.as_fd().as_raw_fd().to_ne_bytes()
}
