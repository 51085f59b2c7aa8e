//! The hooks that a recording attaches to, as this kernel has them.

use libbpf_rs::btf::{
    Btf,
    types::{Enum, Typedef},
};

use crate::error::Error;
use crate::probe::{HOOKS, UNKNOWN_VERSION, can_crash, kernel_version};
use crate::settings::Settings;

/// Hooks without which nothing can be recorded.
const NEEDED: &[&str] = &[
    "sched_switch",
    "sched_waking",
    "sched_wakeup",
    "sched_wakeup_new",
    "sched_process_fork",
    "sched_process_exec",
    "sched_process_exit",
    "sched_process_free",
    "task_rename",
];

/// Hooks that may be missing; the programs on them are then left out.
const OPTIONAL: &[&str] = &[
    "sched_set_need_resched_tp",
    "sched_migrate_task",
    "local_timer_entry",
    "irq_handler_entry",
    "softirq_entry",
];

/// The optional hooks that a kernel of this architecture can have. Others are not missing.
fn optional_here() -> impl Iterator<Item = &'static str> {
    let is_of_another = |name: &str| {
        let mut hooks = HOOKS.iter().filter(|hook| hook.name == name);
        hooks.any(|hook| !hook.is_of_this_architecture())
    };
    OPTIONAL
        .iter()
        .copied()
        .filter(move |name| !is_of_another(name))
}

/// The optional hooks, as this kernel has them.
#[derive(Debug)]
pub struct FoundHooks {
    pub attached: Vec<String>,
    pub missing: Vec<String>,
    /// Hooks that are present, but on which eBPF can crash this kernel.
    pub left_out: Vec<String>,
    pub has_state_argument: bool,
    /// The stacks of threads that wait can be read.
    pub can_look: bool,
}

impl FoundHooks {
    pub fn find(settings: &Settings) -> Result<Self, Error> {
        let version = kernel_version();
        if version != UNKNOWN_VERSION && version < OLDEST_VERSION {
            return Err(Error::KernelTooOld(version));
        }
        let path = "/sys/kernel/btf/vmlinux";
        std::fs::metadata(path).map_err(Error::NoBtf)?;
        let btf = Btf::from_path(path).map_err(Error::Load)?;
        let exists = |hook: &str| {
            btf.type_by_name::<Typedef<'_>>(&format!("btf_trace_{hook}"))
                .is_some()
                && !names(&settings.without_hooks, hook)
        };
        if let Some(hook) = NEEDED.iter().find(|hook| !exists(hook)) {
            return Err(Error::MissingHook(hook));
        }
        let is_left_out =
            |hook: &str| can_crash(hook, version, &btf) && !names(&settings.with_hooks, hook);
        let (present, missing): (Vec<&str>, Vec<&str>) =
            optional_here().partition(|hook| exists(hook));
        let (left_out, attached): (Vec<&str>, Vec<&str>) =
            present.into_iter().partition(|hook| is_left_out(hook));
        let owned = |hooks: Vec<&str>| hooks.into_iter().map(str::to_owned).collect();
        Ok(Self {
            attached: owned(attached),
            missing: owned(missing),
            left_out: owned(left_out),
            has_state_argument: version >= STATE_ARGUMENT_SINCE,
            can_look: can_look(&btf) && !names(&settings.without_hooks, LOOK),
        })
    }

    pub fn has(&self, hook: &str) -> bool {
        names(&self.attached, hook)
    }
}

/// What looks need most, as `--without-hook` calls it: a program that sleeps, and reads the memory of another task. It came
/// with iterators that may sleep (Linux 5.18).
const LOOK: &str = "copy_from_user_task";

pub fn can_look(btf: &Btf<'_>) -> bool {
    let helpers = btf.type_by_name::<Enum<'_>>("bpf_func_id");
    let helper = format!("BPF_FUNC_{LOOK}");
    helpers.is_some_and(|helpers| {
        let mut names = helpers.iter().filter_map(|member| member.name);
        names.any(|name| name == helper.as_str())
    })
}

fn names(hooks: &[String], hook: &str) -> bool {
    hooks.iter().any(|named| named == hook)
}

/// The first version with everything that recording needs; the last to come was `bpf_task_pt_regs`.
const OLDEST_VERSION: (u32, u32) = (5, 15);

/// `sched_switch` passes `prev_state` since this version (fa2c3254d7cf, and 9c2136be0878 moved it
/// to the end before the release).
const STATE_ARGUMENT_SINCE: (u32, u32) = (5, 18);
