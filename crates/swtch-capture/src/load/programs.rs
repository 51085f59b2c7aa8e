//! The programs: which are loaded, what they are told, and in which order they are attached.

use swtch_core::{Arch, SyscallTable};

use super::hooks::FoundHooks;
use super::scope_plan::ScopePlan;
use crate::error::Error;
use crate::probe::{NamingHierarchy, tick_irq};
use crate::scope::Children;
use crate::settings::{LookedUsers, Settings};
use crate::skeleton::recorder::{OpenSwtchSkel, SwtchSkel};
use crate::summary::places;

/// The time between two copies of wakers on a CPU where there are two, on average. With more CPUs it is longer: a hundred
/// a second tell where waits end, and reading one takes 10 to 20 µs.
const WAKERS_EVERY_NS: u64 = 20_000_000;

/// Sets the constants, by which the kernel side knows what is wanted and what this kernel has.
pub fn set_constants(
    open: &mut OpenSwtchSkel<'_>,
    settings: &Settings,
    plan: &ScopePlan,
    hooks: &FoundHooks,
    arch: Arch,
    task_slots: u32,
    cpus: u32,
) {
    let calls = SyscallTable::of(arch);
    let Some(constants) = open.maps.rodata_data.as_deref_mut() else {
        unreachable!("the object has constants")
    };
    constants.scope_all = plan.all;
    constants.has_targets = !plan.targets.is_empty();
    constants.with_children = plan.children == Children::Recorded;
    constants.recorder_pid = std::process::id();
    constants.has_cgroups = plan.cgroups.is_some();
    constants.cgroup_is_v2 = plan.naming == NamingHierarchy::V2;
    constants.has_need_resched = hooks.has("sched_set_need_resched_tp");
    constants.has_tick_hook = hooks.has("local_timer_entry");
    if !constants.has_tick_hook {
        constants.tick_irq = tick_irq().unwrap_or(-1);
    }
    constants.has_state_argument = hooks.has_state_argument;
    constants.watches_stacks = settings.watches_stacks;
    constants.want_oracle = settings.oracle;
    if let Some(looks) = settings.looks.filter(|_| hooks.can_look) {
        constants.wakers_every_ns = WAKERS_EVERY_NS * u64::from(cpus.div_ceil(2));
        constants.look_at_all_users = looks == LookedUsers::All;
        if let LookedUsers::One(user) = looks {
            constants.look_at_user = user;
        }
    }
    constants.slots_per_cpu = settings.slots_per_cpu;
    constants.task_slots = task_slots;
    constants.summary = settings.summary.is_some();
    constants.summary_places = places(settings.summary.unwrap_or(1));
    if let Some(missed) = settings.missed {
        let bits = missed.hooks.iter().map(|hook| 1u32 << *hook as u8);
        constants.missed_hooks = bits.fold(0, |all, bit| all | bit);
        constants.miss_one_in = missed.one_in.max(1);
    }
    let clone3 = calls
        .number_named("clone3")
        .and_then(|number| i32::try_from(number).ok());
    constants.syscall_clone3 = clone3.unwrap_or(-1);
    let restart = calls
        .number_named("restart_syscall")
        .and_then(|number| i32::try_from(number).ok());
    constants.syscall_restart = restart.unwrap_or(-1);
    set_bits(&mut constants.syscalls_on_files, calls.numbers_on_files());
    set_bits(
        &mut constants.syscalls_on_futexes,
        calls.numbers_on_futexes(),
    );
    set_bits(
        &mut constants.syscalls_with_arguments,
        calls.numbers_with_arguments(),
    );
}

/// Sets the bits with these numbers; those beyond the end are left out.
fn set_bits(bytes: &mut [u8], numbers: impl Iterator<Item = u32>) {
    for number in numbers {
        let index = usize::try_from(number / 8).unwrap_or(usize::MAX);
        if let Some(byte) = bytes.get_mut(index) {
            *byte |= 1 << (number % 8);
        }
    }
}

/// Leaves out the programs whose hook is missing or that the settings do not need.
pub fn choose_programs(
    open: &mut OpenSwtchSkel<'_>,
    settings: &Settings,
    plan: &ScopePlan,
    hooks: &FoundHooks,
) {
    let progs = &mut open.progs;
    progs.walk_tasks.set_autoload(!plan.targets.is_empty());
    progs.flush_tasks.set_autoload(settings.summary.is_some());
    progs.list_blocked.set_autoload(settings.lasting_waits);
    progs
        .look
        .set_autoload(settings.looks.is_some() && hooks.can_look);
    progs
        .sched_set_need_resched
        .set_autoload(hooks.has("sched_set_need_resched_tp"));
    progs
        .sched_migrate_task
        .set_autoload(hooks.has("sched_migrate_task"));
    progs
        .local_timer_entry
        .set_autoload(hooks.has("local_timer_entry"));
    progs
        .local_timer_exit
        .set_autoload(hooks.has("local_timer_entry"));
    progs
        .irq_handler_entry
        .set_autoload(hooks.has("irq_handler_entry"));
    progs
        .irq_handler_exit
        .set_autoload(hooks.has("irq_handler_entry"));
    progs.softirq_entry.set_autoload(hooks.has("softirq_entry"));
    progs.softirq_exit.set_autoload(hooks.has("softirq_entry"));
}

/// Attaches all loaded programs; they write no record before `Capture::start` sets `recording`.
///
/// The exit of an interrupt is attached before its entry, so that no entry is seen without its
/// exit; between the two the CPU may be in a softirq. (The next switch would correct it.)
pub fn attach(skel: &mut SwtchSkel<'static>) -> Result<(), Error> {
    macro_rules! attach {
        ($($program:ident),+ $(,)?) => {
            $(if skel.progs.$program.autoload() {
                skel.links.$program = Some(skel.progs.$program.attach().map_err(|source| {
                    Error::Attach { program: stringify!($program).to_owned(), source }
                })?);
            })+
        };
    }
    attach!(
        local_timer_exit,
        local_timer_entry,
        irq_handler_exit,
        irq_handler_entry,
        softirq_exit,
        softirq_entry,
        sched_process_fork,
        sched_process_exec,
        sched_process_exit,
        sched_process_free,
        task_rename,
        sched_migrate_task,
        sched_set_need_resched,
        sched_waking,
        sched_wakeup,
        sched_wakeup_new,
        sched_switch,
    );
    Ok(())
}
