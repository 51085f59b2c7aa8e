//! Opens, sets up, loads and attaches the eBPF programs.
//!
//! The kernel's BTF says which hooks exist. A program whose hook is missing is not loaded, and
//! constants tell the other programs, so that missing features degrade and are named.

mod hooks;
mod maps;

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU32;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, OpenObject};
use swtch_core::{
    Arch, CpuCounters, Event, Gap, Nanos, SyscallTable, TaskAtEnd, TaskKey, Timestamp,
};
use swtch_wire::decode_records;

use crate::clock::monotonic_ns;
use crate::counters::{Counters, CpuStates};
use crate::drain::{CaptureRings, Drained, RawRecords};
use crate::error::Error;
use crate::kernel_cost::{KernelCost, KernelCostMeasurement};
use crate::lasting::{LastingTasks, LastingWalks};
use crate::limits::{ResourceLimit, require};
use crate::probe::{NamingHierarchy, tick_irq};
use crate::refusal;
use crate::scope::{
    CgroupTargets, Children, RecordingScope, TargetProcess, naming_hierarchy, require_host_pids,
};
use crate::settings::Settings;
use crate::skeleton::recorder::{OpenSwtchSkel, SwtchSkel, SwtchSkelBuilder, types};
use crate::summary::{SummaryFlush, SummaryGroups, TaskStates, places};
use crate::tree::{RecordedTree, TreeCount};
use hooks::FoundHooks;
use maps::{make_rings, ring_fd, size_maps, task_slots};

/// Memory that a recorder needs, in bytes: twice what a short recording on two CPUs took at least (30 MB that
/// could be written, 250 MB that were mapped). What runs out of it later names the limit as well.
const LEAST_DATA: u64 = 60 << 20;
const LEAST_MAPPED: u64 = 500 << 20;

/// Descriptors that a recorder needs on so many CPUs: each has a ring. On two CPUs 80 were open, for programs,
/// links, maps and files of the trace; others are opened for a moment.
const fn descriptors(cpus: usize) -> u64 {
    160 + 2 * cpus as u64
}

/// The tables that the kernel side writes for a summary.
struct SummaryTables {
    groups: SummaryGroups,
    tasks: TaskStates,
}

/// A running capture. Dropping it detaches all programs.
pub struct Capture {
    skel: SwtchSkel<'static>,
    rings: CaptureRings,
    cpus: CpuStates,
    hooks: FoundHooks,
    targets: Vec<TargetProcess>,
    tree: Option<RecordedTree>,
    /// `None` unless they were asked for, and once they were told.
    lasting: Option<LastingWalks>,
    /// `None` unless switches are counted in the kernel.
    flush: Option<SummaryFlush>,
    /// `None` unless switches are counted in the kernel.
    tables: Option<SummaryTables>,
    cost: io::Result<KernelCostMeasurement>,
    started: Timestamp,
    naming: NamingHierarchy,
    /// Number of records that [`Self::drain`] could not decode.
    undecoded: u64,
}

impl fmt::Debug for Capture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture")
            .field("hooks", &self.hooks)
            .finish_non_exhaustive()
    }
}

impl Capture {
    /// Loads and attaches the programs; from then on switches are recorded.
    ///
    /// # Errors
    /// When privileges, BTF, a needed hook or a target of the scope is missing.
    pub fn start(settings: &Settings, arch: Arch) -> Result<Self, Error> {
        refusal::listen();
        let hooks = FoundHooks::find(settings)?;
        let cpus = libbpf_rs::num_possible_cpus().map_err(Error::Load)?;
        require(ResourceLimit::OpenFiles, descriptors(cpus))?;
        require(ResourceLimit::Data, LEAST_DATA)?;
        require(ResourceLimit::AddressSpace, LEAST_MAPPED)?;
        let plan = ScopePlan::new(&settings.scope)?;
        // The object must outlive everything that borrows from it; a process has one capture.
        let storage: &'static mut MaybeUninit<OpenObject> =
            Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = SwtchSkelBuilder::default()
            .open(storage)
            .map_err(Error::of_load)?;
        let task_slots = settings.task_slots.unwrap_or_else(task_slots);
        set_constants(&mut open, settings, &plan, &hooks, arch, task_slots);
        choose_programs(&mut open, settings, &plan, &hooks);
        size_maps(&mut open, settings, &plan, cpus, task_slots)?;
        let ring_maps = make_rings(settings.task_ring_bytes, cpus)?;
        let mut skel = open.load().map_err(Error::of_load)?;
        for (index, ring) in (0u32..).zip(&ring_maps) {
            update(
                &skel.maps.rings,
                "rings",
                &index.to_ne_bytes(),
                &ring_fd(ring),
            )?;
        }
        for target in &plan.targets {
            let pid = target.pid.get().to_ne_bytes();
            update(
                &skel.maps.targets,
                "targets",
                &pid,
                &target.start_ticks.to_ne_bytes(),
            )?;
        }
        for id in plan.cgroups.iter().flat_map(|cgroups| &cgroups.ids) {
            let maps = &skel.maps;
            update(
                &maps.scope_cgroups,
                "scope_cgroups",
                &id.to_ne_bytes(),
                &[1],
            )?;
        }
        let states = CpuStates::map(&skel.maps.cpus, cpus)?;
        let rings = CaptureRings::open(&skel.maps.records, settings.slots_per_cpu, ring_maps)?;
        let cost = KernelCostMeasurement::start(&skel);
        attach(&mut skel)?;
        let mut tree = plan.take_tree(&mut skel, settings)?;
        let (flush, tables) = match settings.summary {
            Some(wanted) => (
                Some(SummaryFlush::open(&skel.progs.flush_tasks)?),
                Some(SummaryTables {
                    groups: SummaryGroups::map(&skel.maps.summaries, places(wanted))?,
                    tasks: TaskStates::map(&skel.maps.tasks, task_slots)?,
                }),
            ),
            None => (None, None),
        };
        let started = Timestamp::from_ns(monotonic_ns());
        set_recording(&mut skel, true);
        if let Some(tree) = &mut tree {
            tree.count_at_start(shared(&mut skel))?;
        }
        let lasting = match settings.lasting_waits {
            true => Some(begin_lasting(&mut skel)?),
            false => None,
        };
        Ok(Self {
            skel,
            rings,
            cpus: states,
            hooks,
            targets: plan.targets,
            tree,
            lasting,
            flush,
            tables,
            cost,
            started,
            naming: plan.naming,
            undecoded: 0,
        })
    }

    /// Start of the capture, on the trace clock. No switch in it is older.
    pub const fn started(&self) -> Timestamp {
        self.started
    }

    /// The hierarchy whose directories have the ids of the cgroups in the records.
    pub const fn naming(&self) -> NamingHierarchy {
        self.naming
    }

    /// Returns true if all processes that were asked for have ended. Their children may still run.
    pub fn targets_are_gone(&self) -> bool {
        !self.targets.is_empty() && self.targets.iter().all(|target| target.is_gone())
    }

    /// The kernel's own counts for the recorded processes; `None` if the scope is not made of
    /// processes. Call it once, before [`Self::detach`]: switches counted until then are in the
    /// rings, too.
    ///
    /// # Errors
    /// When the kernel refuses to walk the tasks.
    pub fn count_tree(&mut self) -> Result<Option<TreeCount>, Error> {
        let Some(tree) = self.tree.take() else {
            return Ok(None);
        };
        tree.count_at_end(shared(&mut self.skel)).map(Some)
    }

    /// The threads in scope that have been blocked since the capture began, and those that could run now;
    /// `None` unless the settings ask for them. Call it once, before [`Self::detach`].
    ///
    /// # Errors
    /// When the kernel refuses to walk the tasks.
    pub fn lasting_tasks(&mut self) -> Result<Option<LastingTasks>, Error> {
        let Some(walks) = self.lasting.take() else {
            return Ok(None);
        };
        walks.end(shared(&mut self.skel)).map(Some)
    }

    /// The tasks that ran when the capture was detached. Call it after [`Self::detach`]: the states are
    /// still then.
    pub fn running_at_end(&self) -> impl Iterator<Item = TaskAtEnd> {
        self.cpus.running()
    }

    /// Hooks that this kernel lacks, so that some values are inferred or not known.
    pub fn missing_hooks(&self) -> &[String] {
        &self.hooks.missing
    }

    /// Hooks that were not attached to, because eBPF on them can crash this kernel.
    pub fn left_out_hooks(&self) -> &[String] {
        &self.hooks.left_out
    }

    /// Number of rings that [`Self::drain`] numbers; streams from this number on are free for other
    /// sources.
    pub fn streams(&self) -> usize {
        self.rings.count()
    }

    /// Takes the records from the rings and passes their bytes on.
    pub fn take(&mut self, sink: impl FnMut(RawRecords<'_>)) -> Drained {
        let seen = || self.cpus.totals().seen;
        keep_error(&mut self.cost, |cost| cost.look(&self.skel, seen));
        self.rings.take(&self.cpus, sink)
    }

    /// As [`Self::take`], and decodes each record: for tests, which look at single events.
    pub fn drain(&mut self, mut sink: impl FnMut(usize, Event)) -> Drained {
        let mut unreadable = 0;
        let drained = self.take(|raw| {
            unreadable += decode_records(raw.kind, raw.bytes, |event| sink(raw.ring, event));
        });
        self.undecoded += unreadable;
        drained
    }

    /// Returns true if the rings of switches are empty.
    pub fn is_drained(&self) -> bool {
        self.cpus.most_in_a_ring() == 0
    }

    /// Returns what a switch costs in the recorder's programs; `None` if too few switches were seen.
    ///
    /// # Errors
    /// When the kernel did not tell.
    pub const fn kernel_cost(&self) -> Result<Option<KernelCost>, &io::Error> {
        match &self.cost {
            Ok(cost) => Ok(cost.found()),
            Err(error) => Err(error),
        }
    }

    /// Number of records that could not be read, since the start.
    pub fn unreadable(&self) -> u64 {
        self.rings.unreadable() + self.undecoded
    }

    /// The counters since the start of the capture.
    pub fn counters(&self) -> Counters {
        self.cpus.totals()
    }

    /// The counters of each CPU since the start of the capture, by its number.
    pub fn cpu_counters(&self) -> impl Iterator<Item = CpuCounters> {
        self.cpus.by_cpu()
    }

    /// The gaps of all CPUs since the last call.
    pub fn take_gaps(&self) -> impl Iterator<Item = Gap> {
        self.cpus.take_gaps()
    }

    /// Number of switch records that fit into a CPU's ring.
    pub fn slots_per_cpu(&self) -> u64 {
        self.rings.slots_per_cpu()
    }

    pub(crate) const fn cpu_states(&self) -> &CpuStates {
        &self.cpus
    }

    pub(crate) const fn words(&self) -> &impl MapCore {
        &self.skel.maps.words
    }

    /// Makes the kernel side look its threads up again.
    pub(crate) fn next_words_generation(&mut self) {
        let shared = shared(&mut self.skel);
        // A generation of 0 means that there are no words.
        let generation = shared.words_generation.wrapping_add(1).max(1);
        // SAFETY: the variable is mapped for as long as the object is loaded; the kernel side
        // only reads it, and reads it anew at each switch.
        unsafe { (&raw mut shared.words_generation).write_volatile(generation) };
    }

    pub(crate) const fn take_flush(&mut self) -> Option<SummaryFlush> {
        self.flush.take()
    }

    pub(crate) const fn groups(&self) -> Option<&SummaryGroups> {
        match &self.tables {
            Some(tables) => Some(&tables.groups),
            None => None,
        }
    }

    pub(crate) const fn task_states(&self) -> Option<&TaskStates> {
        match &self.tables {
            Some(tables) => Some(&tables.tasks),
            None => None,
        }
    }

    /// Sets whether a summary tells the futex words apart for which threads wait. Each is a group of its own, so this
    /// is on only while somebody looks.
    pub fn tell_futexes(&mut self, on: bool) {
        let shared = shared(&mut self.skel);
        // SAFETY: the variable is mapped for as long as the object is loaded; the kernel side only
        // reads it, and reads it anew at each switch.
        unsafe { (&raw mut shared.tell_futexes).write_volatile(on) };
    }

    /// Number of groups with a futex word that are in use.
    pub(crate) fn futex_groups(&mut self) -> &AtomicU32 {
        let count = &raw mut shared(&mut self.skel).futex_groups;
        // SAFETY: the variable is aligned and mapped as long as the object is loaded, and both sides
        // change it with atomic instructions.
        unsafe { AtomicU32::from_ptr(count) }
    }

    pub(crate) const fn kernel_stacks(&self) -> &impl MapCore {
        &self.skel.maps.kernel_stacks
    }

    pub(crate) const fn user_stacks(&self) -> &impl MapCore {
        &self.skel.maps.user_stacks
    }

    pub(crate) const fn stack_sums_map(&self) -> &impl MapCore {
        &self.skel.maps.stack_sums
    }

    /// The task whose stacks a summary takes, and since when.
    pub(crate) fn set_watched(&mut self, task: TaskKey, since: u64) {
        let shared = shared(&mut self.skel);
        // SAFETY: the variable is mapped for as long as the object is loaded; the kernel side only
        // reads it, and reads it anew at each switch.
        unsafe { (&raw mut shared.watched_since).write_volatile(since) };
        // SAFETY: as above.
        unsafe { (&raw mut shared.watched_task).write_volatile(task.get()) };
    }

    /// Detaches the probes; records in the rings can still be drained.
    pub fn detach(&mut self) {
        // Recording stops first: without the markers of programs that are detached before it,
        // `sched_switch` would name wrong causes.
        set_recording(&mut self.skel, false);
        let seen = self.cpus.totals().seen;
        keep_error(&mut self.cost, |cost| cost.end(&self.skel, seen));
        self.skel.links = Default::default();
    }
}

/// Goes on with the measurement unless it has failed before.
fn keep_error(
    cost: &mut io::Result<KernelCostMeasurement>,
    go_on: impl FnOnce(&mut KernelCostMeasurement) -> io::Result<()>,
) {
    if let Ok(measurement) = cost
        && let Err(error) = go_on(measurement)
    {
        *cost = Err(error);
    }
}

/// The scope in the form that the kernel side compares tasks with.
struct ScopePlan {
    all: bool,
    targets: Vec<TargetProcess>,
    children: Children,
    cgroups: Option<CgroupTargets>,
    /// The hierarchy that names the cgroups of tasks.
    naming: NamingHierarchy,
}

impl ScopePlan {
    /// Space in the map `targets` for children of processes that end while the tree is taken.
    const ORPHANS: usize = 4096;

    fn new(scope: &RecordingScope) -> Result<Self, Error> {
        let nothing = Self {
            all: false,
            targets: Vec::new(),
            children: Children::LeftOut,
            cgroups: None,
            naming: naming_hierarchy(),
        };
        match scope {
            RecordingScope::All => Ok(Self {
                all: true,
                ..nothing
            }),
            RecordingScope::Cgroups(paths) => {
                let cgroups = CgroupTargets::find(paths)?;
                let naming = cgroups.as_ref().map(|cgroups| cgroups.hierarchy);
                Ok(Self {
                    naming: naming.unwrap_or(nothing.naming),
                    cgroups,
                    ..nothing
                })
            }
            RecordingScope::Processes { pids, children } => {
                require_host_pids()?;
                let targets = pids
                    .iter()
                    .map(|pid| TargetProcess::find(*pid))
                    .collect::<Result<_, _>>()?;
                Ok(Self {
                    targets,
                    children: *children,
                    ..nothing
                })
            }
        }
    }

    /// Number of cgroups for which the map `scope_cgroups` must have space: a map has one place at least.
    fn most_cgroups(&self) -> u32 {
        let wanted = self.cgroups.as_ref().map_or(1, |cgroups| cgroups.ids.len());
        u32::try_from(wanted).unwrap_or(u32::MAX)
    }

    /// Number of processes for which the map `targets` must have space.
    fn most_targets(&self) -> u32 {
        let orphans = match self.children {
            Children::Recorded => Self::ORPHANS,
            Children::LeftOut => 1,
        };
        u32::try_from(self.targets.len() + orphans).unwrap_or(u32::MAX)
    }

    /// Takes the tree of the processes that were asked for, once the probes are attached; `None`
    /// for a scope that is not made of processes.
    fn take_tree(
        &self,
        skel: &mut SwtchSkel<'static>,
        settings: &Settings,
    ) -> Result<Option<RecordedTree>, Error> {
        if self.targets.is_empty() {
            return Ok(None);
        }
        let link = skel
            .progs
            .walk_tasks
            .attach()
            .map_err(|source| Error::Attach {
                program: "walk_tasks".to_owned(),
                source,
            })?;
        let tree = RecordedTree::take(
            &link,
            shared(skel),
            self.children,
            settings.before_walk.as_ref(),
        )?;
        match self.targets.iter().find(|target| target.is_gone()) {
            Some(gone) => Err(Error::EndedBefore {
                pid: gone.pid.get(),
            }),
            None => Ok(Some(tree)),
        }
    }
}

fn set_constants(
    open: &mut OpenSwtchSkel<'_>,
    settings: &Settings,
    plan: &ScopePlan,
    hooks: &FoundHooks,
    arch: Arch,
    task_slots: u32,
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
    constants.has_exit_hook = hooks.has("sched_exit_tp");
    constants.has_tick_hook = hooks.has("local_timer_entry");
    if !constants.has_tick_hook {
        constants.tick_irq = tick_irq().unwrap_or(-1);
    }
    constants.has_state_argument = hooks.has_state_argument;
    constants.want_stacks = settings.wants_stacks();
    constants.watches_stacks = settings.watches_stacks;
    constants.stacks_min_blocked_ns = settings.stacks.map_or(0, Nanos::as_ns);
    constants.want_oracle = settings.oracle;
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
fn choose_programs(
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
        .sched_set_need_resched
        .set_autoload(hooks.has("sched_set_need_resched_tp"));
    progs
        .sched_exit
        .set_autoload(settings.wants_stacks() && hooks.has("sched_exit_tp"));
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

fn update(map: &impl MapCore, name: &'static str, key: &[u8], value: &[u8]) -> Result<(), Error> {
    map.update(key, value, MapFlags::ANY)
        .map_err(|source| Error::Map { map: name, source })
}

/// Notes which threads in scope are blocked now.
fn begin_lasting(skel: &mut SwtchSkel<'static>) -> Result<LastingWalks, Error> {
    let link = skel.progs.list_blocked.attach();
    let link = link.map_err(|source| Error::Attach {
        program: "list_blocked".to_owned(),
        source,
    })?;
    let mut walks = LastingWalks::open(&link)?;
    walks.begin(shared(skel))?;
    Ok(walks)
}

/// The variables that both sides see.
fn shared<'a>(skel: &'a mut SwtchSkel<'static>) -> &'a mut types::bss {
    let Some(shared) = skel.maps.bss_data.as_deref_mut() else {
        unreachable!("the object has variables")
    };
    shared
}

/// Starts or stops the writing of records.
fn set_recording(skel: &mut SwtchSkel<'static>, on: bool) {
    let shared = shared(skel);
    // SAFETY: the variable is mapped for as long as the object is loaded; the kernel side only
    // reads it, and reads it anew at each event.
    unsafe { (&raw mut shared.recording).write_volatile(on) };
}

/// Attaches all loaded programs; they write no record before [`set_recording`].
///
/// The exit of an interrupt is attached before its entry, so that no entry is seen without its
/// exit; between the two the CPU may be in a softirq. (The next switch would correct it.)
fn attach(skel: &mut SwtchSkel<'static>) -> Result<(), Error> {
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
        sched_exit,
        sched_switch,
    );
    Ok(())
}
