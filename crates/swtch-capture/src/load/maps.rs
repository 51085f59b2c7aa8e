//! The maps of the kernel side: how large each is, and what it holds at first.

use std::os::fd::{AsFd as _, AsRawFd as _};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use super::scope_plan::ScopePlan;
use crate::error::Error;
use crate::probe::threads_of_this_machine;
use crate::settings::Settings;
use crate::skeleton::recorder::{OpenSwtchSkel, SwtchSkel};
use crate::summary::places;

/// The most distinct stacks that are kept for the oracle, of each kind. Two stacks with the same hash cost it a verdict, so there are more.
const ORACLE_STACKS: u32 = 128 << 10;

/// Those of one task that is watched. More of them make it less likely that two have the same number.
const WATCHED_STACKS: u32 = 8 << 10;

/// Distinct switches of one task that is watched: each key of `bpf/summary_stacks.h` is one.
const STACK_SUMS: u32 = 4 << 10;

/// Sets how many entries each map can have.
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
        false if settings.watches_stacks => WATCHED_STACKS,
        false => 1,
    };
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
    let copies = settings.looks.map_or(1, |_| waker_slots(cpus));
    open.maps
        .waker_copies
        .set_max_entries(copies)
        .map_err(failed("waker_copies"))?;
    if settings.looks.is_none() {
        open.maps
            .deep_copies
            .set_max_entries(1)
            .map_err(failed("deep_copies"))?;
    }
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

/// Number of places for copies of wakers: `WAKER_SLOTS` of `bpf/wakers.h` for each CPU.
pub const fn waker_slots(cpus: u32) -> u32 {
    cpus.saturating_mul(4)
}

/// Fills in the rings and what is to be recorded.
pub fn fill_maps(skel: &SwtchSkel<'_>, plan: &ScopePlan, rings: &[MapHandle]) -> Result<(), Error> {
    let maps = &skel.maps;
    for (cpu, ring) in (0u32..).zip(rings) {
        let descriptor = ring.as_fd().as_raw_fd();
        maps.rings
            .update(&cpu.to_ne_bytes(), &descriptor.to_ne_bytes(), MapFlags::ANY)
            .map_err(failed("rings"))?;
    }
    for target in &plan.targets {
        let pid = target.pid.get().to_ne_bytes();
        maps.targets
            .update(&pid, &target.start_ticks.to_ne_bytes(), MapFlags::ANY)
            .map_err(failed("targets"))?;
    }
    for id in plan.cgroups.iter().flat_map(|cgroups| &cgroups.ids) {
        maps.scope_cgroups
            .update(&id.to_ne_bytes(), &[1], MapFlags::ANY)
            .map_err(failed("scope_cgroups"))?;
    }
    Ok(())
}

fn failed(map: &'static str) -> impl FnOnce(libbpf_rs::Error) -> Error {
    move |source| Error::Map { map, source }
}

/// Number of slots for the states of tasks, a power of two: at least four for each thread that there
/// is now. The least number takes 15 MB. A task is refused a slot when 32 in a row are taken
/// (`claim_probe` in `bpf/scope.h`): 6 in a million while half of all slots are taken, none while a
/// quarter is (simulated).
pub fn task_slots() -> u32 {
    let wanted = threads_of_this_machine().unwrap_or(0).saturating_mul(4);
    wanted.clamp(64 << 10, 1 << 20).next_power_of_two()
}

/// Makes a ring of records of tasks for each CPU.
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
