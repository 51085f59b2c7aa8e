//! Opens, sets up, loads and attaches the eBPF programs.
//!
//! The kernel's BTF says which hooks exist. A program whose hook is missing is not loaded, and
//! constants tell the other programs, so that missing features degrade and are named.

pub(crate) mod hooks;
mod maps;
mod programs;
mod scope_plan;

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::ptr;
use std::sync::atomic::AtomicU32;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, OpenObject};
use swtch_core::{Arch, CpuCounters, Event, Gap, TaskAtEnd, TaskKey, Timestamp};
use swtch_wire::decode_records;

use crate::clock::monotonic_ns;
use crate::counters::{Counters, CpuStates};
use crate::drain::{CaptureRings, Drained, RawRecords};
use crate::error::Error;
use crate::kernel_cost::{KernelCost, KernelCostMeasurement};
use crate::lasting::{LastingTasks, LastingWalks};
use crate::limits::{ResourceLimit, require};
use crate::looks::LookSources;
use crate::mapped::Mapped;
use crate::probe::NamingHierarchy;
use crate::refusal;
use crate::scope::TargetProcess;
use crate::settings::Settings;
use crate::skeleton::recorder::types::{deep_copy, waker_copy};
use crate::skeleton::recorder::{OpenSwtchSkel, SwtchSkel, SwtchSkelBuilder, types};
use crate::summary::{SummaryFlush, SummaryGroups, TaskStates, places};
use crate::tree::{RecordedTree, TreeCount};
use hooks::FoundHooks;
use maps::{fill_maps, make_rings, size_maps, task_slots};
use programs::{attach, choose_programs, set_constants};
use scope_plan::ScopePlan;

/// The least memory with which a recorder is started, in bytes: twice what a short recording on two CPUs took (30 MB
/// that could be written, 250 MB that were mapped). Where a recorder runs out of memory later, its error names the
/// limit as well.
const LEAST_DATA: u64 = 60 << 20;
const LEAST_MAPPED: u64 = 500 << 20;

/// Descriptors that a recorder needs on so many CPUs. Two for each CPU: the map that is its ring of task records, and
/// the epoll instance by which libbpf would wait for that. And twice the 80 that were open on two CPUs, for programs,
/// links, maps and files of the trace, because others are opened for a moment.
const fn descriptors(cpus: usize) -> u64 {
    160 + 2 * cpus as u64
}

/// Checks that the limits of this process leave room for a recorder.
fn require_limits(cpus: usize) -> Result<(), Error> {
    require(ResourceLimit::OpenFiles, descriptors(cpus))?;
    require(ResourceLimit::Data, LEAST_DATA)?;
    require(ResourceLimit::AddressSpace, LEAST_MAPPED)
}

/// What a summary is read from: the tables that the kernel side writes, and the walk that completes them.
struct SummarySources {
    groups: SummaryGroups,
    tasks: TaskStates,
    /// `None` once [`Capture::take_flush`] has handed it out.
    flush: Option<SummaryFlush>,
}

impl SummarySources {
    fn open(skel: &SwtchSkel<'_>, groups: u32, slots: u32) -> Result<Self, Error> {
        Ok(Self {
            groups: SummaryGroups::map(&skel.maps.summaries, places(groups))?,
            tasks: TaskStates::map(&skel.maps.tasks, slots)?,
            flush: Some(SummaryFlush::open(&skel.progs.flush_tasks)?),
        })
    }
}

/// A running capture. Dropping it detaches all programs.
pub struct Capture {
    skel: SwtchSkel<'static>,
    rings: CaptureRings,
    cpus: CpuStates,
    hooks: FoundHooks,
    targets: Vec<TargetProcess>,
    tree: Option<RecordedTree>,
    /// The walks that find waits that last; `None` unless the settings ask for them, and after
    /// [`Self::lasting_tasks`].
    lasting: Option<LastingWalks>,
    /// `None` unless switches are counted in the kernel.
    summary: Option<SummarySources>,
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
    /// Refuses what [`Self::start`] would refuse before it loads anything: to be called where something else is loaded
    /// first, whose own error would say less.
    ///
    /// # Errors
    /// When BTF, a needed hook or a target of the scope is missing, or a limit is too low.
    pub fn check(settings: &Settings) -> Result<(), Error> {
        FoundHooks::find(settings)?;
        require_limits(libbpf_rs::num_possible_cpus().map_err(Error::Load)?)?;
        ScopePlan::new(&settings.scope).map(drop)
    }

    /// Loads and attaches the programs; from then on switches are recorded.
    ///
    /// # Errors
    /// When privileges, BTF, a needed hook or a target of the scope is missing.
    pub fn start(settings: &Settings, arch: Arch) -> Result<Self, Error> {
        refusal::listen();
        let hooks = FoundHooks::find(settings)?;
        let cpus = libbpf_rs::num_possible_cpus().map_err(Error::Load)?;
        require_limits(cpus)?;
        let plan = ScopePlan::new(&settings.scope)?;
        let slots = settings.task_slots.unwrap_or_else(task_slots);
        let open = open_object(settings, &plan, &hooks, arch, cpus, slots)?;
        let ring_maps = make_rings(settings.task_ring_bytes, cpus)?;
        let mut skel = open.load().map_err(Error::of_load)?;
        fill_maps(&skel, &plan, &ring_maps)?;
        let cpu_states = CpuStates::map(&skel.maps.cpus, cpus)?;
        let rings = CaptureRings::open(&skel.maps.records, settings.slots_per_cpu, &ring_maps)?;
        let cost = KernelCostMeasurement::start(&skel);
        attach(&mut skel)?;
        let mut tree = plan.take_tree(&mut skel, settings)?;
        let summary = settings
            .summary
            .map(|groups| SummarySources::open(&skel, groups, slots))
            .transpose()?;
        let started = Timestamp::from_ns(monotonic_ns());
        tell(&mut shared(&mut skel).recording, true);
        if let Some(tree) = &mut tree {
            tree.count_at_start(shared(&mut skel))?;
        }
        let lasting = settings
            .lasting_waits
            .then(|| begin_lasting(&mut skel))
            .transpose()?;
        Ok(Self {
            skel,
            rings,
            cpus: cpu_states,
            hooks,
            targets: plan.targets,
            tree,
            lasting,
            summary,
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
        walks.second_walk(shared(&mut self.skel)).map(Some)
    }

    /// What the helper that reads stacks needs ([`Looks`]); `None` unless the settings ask for looks, and where the
    /// kernel cannot show them.
    ///
    /// # Errors
    /// When the kernel refuses.
    ///
    /// [`Looks`]: crate::Looks
    pub fn look_sources(&self) -> Result<Option<LookSources>, Error> {
        let program = &self.skel.progs.look;
        if !program.autoload() {
            return Ok(None);
        }
        let failed = |source| Error::Attach {
            program: "look".to_owned(),
            source,
        };
        let link = program.attach().map_err(failed)?;
        let maps = &self.skel.maps;
        let (wakers, deep) = (&maps.waker_copies, &maps.deep_copies);
        let owned = |fd: BorrowedFd<'_>| {
            fd.try_clone_to_owned()
                .map_err(|error| failed(error.into()))
        };
        Ok(Some(LookSources {
            program: owned(link.as_fd())?,
            wakers: owned(wakers.as_fd())?,
            waker_slots: wakers.max_entries(),
            deep: owned(deep.as_fd())?,
            deep_slots: deep.max_entries(),
        }))
    }

    /// Wipes what is left of stacks in the maps, when nobody looks any more.
    ///
    /// # Errors
    /// When they cannot be mapped.
    pub fn wipe_stack_copies(&self) -> Result<(), Error> {
        if !self.skel.progs.look.autoload() {
            return Ok(());
        }
        let maps = &self.skel.maps;
        let slots = |map: &libbpf_rs::Map<'_>| usize::try_from(map.max_entries()).unwrap_or(0);
        let (wakers, deep) = (&maps.waker_copies, &maps.deep_copies);
        Mapped::<waker_copy>::of_descriptor(wakers.as_fd(), slots(wakers))?.wipe();
        Mapped::<deep_copy>::of_descriptor(deep.as_fd(), slots(deep))?.wipe();
        Ok(())
    }

    /// The tasks that ran when the capture was detached. Call it after [`Self::detach`]: from then on the
    /// states of the CPUs do not change any more.
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
        let generation = &mut shared(&mut self.skel).words_generation;
        // A generation of 0 means that there are no words.
        let next = generation.wrapping_add(1).max(1);
        tell(generation, next);
    }

    pub(crate) fn take_flush(&mut self) -> Option<SummaryFlush> {
        self.summary.as_mut()?.flush.take()
    }

    pub(crate) fn groups(&self) -> Option<&SummaryGroups> {
        self.summary.as_ref().map(|summary| &summary.groups)
    }

    pub(crate) fn task_states(&self) -> Option<&TaskStates> {
        self.summary.as_ref().map(|summary| &summary.tasks)
    }

    /// Sets whether a summary tells the futex words apart for which threads wait. Each is a group of its own, so this
    /// is on only while somebody looks.
    pub fn tell_futexes(&mut self, on: bool) {
        tell(&mut shared(&mut self.skel).tell_futexes, on);
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

    /// Sets the task whose stacks a summary takes, and the time from which on its switch-outs count.
    pub(crate) fn set_watched(&mut self, task: TaskKey, since: u64) {
        let shared = shared(&mut self.skel);
        tell(&mut shared.watched_since, since);
        tell(&mut shared.watched_task, task.get());
    }

    /// Detaches the probes; records in the rings can still be drained.
    pub fn detach(&mut self) {
        // Recording stops first: without the markers of programs that are detached before it,
        // `sched_switch` would name wrong causes.
        tell(&mut shared(&mut self.skel).recording, false);
        let seen = self.cpus.totals().seen;
        keep_error(&mut self.cost, |cost| cost.end(&self.skel, seen));
        self.skel.links = Default::default();
    }
}

/// Opens the object, and sets all that must be known before it is loaded: its constants, which programs it has, and how
/// large its maps are. `slots` are those of tasks.
fn open_object(
    settings: &Settings,
    plan: &ScopePlan,
    hooks: &FoundHooks,
    arch: Arch,
    cpus: usize,
    slots: u32,
) -> Result<OpenSwtchSkel<'static>, Error> {
    // The object must outlive everything that borrows from it; a process has one capture.
    let storage: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = SwtchSkelBuilder::default()
        .open(storage)
        .map_err(Error::of_load)?;
    // Of the CPUs that are possible, only those that are online wake others.
    // SAFETY: sysconf takes and returns numbers only.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    let online = u32::try_from(online).unwrap_or(1);
    set_constants(&mut open, settings, plan, hooks, arch, slots, online);
    choose_programs(&mut open, settings, plan, hooks);
    size_maps(&mut open, settings, plan, cpus, slots)?;
    Ok(open)
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

/// Notes which threads in scope are blocked now.
fn begin_lasting(skel: &mut SwtchSkel<'static>) -> Result<LastingWalks, Error> {
    let link = skel.progs.list_blocked.attach();
    let link = link.map_err(|source| Error::Attach {
        program: "list_blocked".to_owned(),
        source,
    })?;
    let mut walks = LastingWalks::open(&link)?;
    walks.first_walk(shared(skel))?;
    Ok(walks)
}

/// The variables that both sides see.
fn shared<'a>(skel: &'a mut SwtchSkel<'static>) -> &'a mut types::bss {
    let Some(shared) = skel.maps.bss_data.as_deref_mut() else {
        unreachable!("the object has variables")
    };
    shared
}

/// Writes a variable that the kernel side reads anew at each event.
pub(crate) fn tell<T>(variable: &mut T, value: T) {
    // SAFETY: what is borrowed can be written. A plain write could be left out or put off, because nothing here
    // reads the variable; the kernel side does, and only reads it.
    unsafe { ptr::from_mut(variable).write_volatile(value) };
}
