//! Checks a load before anything is started, and says where in the load a fault is.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;

use swtch_core::cost::Members;

use super::ring::RingKind;
use super::usable_cpus::UsableCpus;
use super::{Class, Cpus, Group, Load, Step};

/// Mappings that a thread needs: its stack and its signal stack (of Rust's library), each with a
/// guard. Seen with `vm.max_map_count` at 65,530: 16,364 to 16,398 threads, then `clone` fails.
const MAPPINGS_OF_A_THREAD: u64 = 4;

/// The reason why a load cannot run here, and the part of the load at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Name of the group; empty if the fault concerns the whole load.
    pub group: String,
    /// Index of the group in [`Load::groups`].
    pub number: usize,
    /// The part of the group at fault.
    pub at: LoadPart,
    /// The reason, as text for the user.
    pub why: String,
}

/// A part of the description of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadPart {
    /// The group as a whole.
    Group,
    /// The number of its members.
    Count,
    /// The CPUs of its members.
    Cpus,
    /// Its policy, nice value or priority.
    Class,
    /// The slice that it requests.
    Slice,
    /// A step of its body: its index, preceded by the indices of the enclosing repeats.
    Step(Vec<usize>),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            return f.write_str(&self.why);
        }
        write!(f, "group {}: {}", self.group, self.why)
    }
}

impl Load {
    /// Checks that this machine can run the load.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check(&self) -> Result<(), Fault> {
        let whole = |why: String| Fault {
            group: String::new(),
            number: 0,
            at: LoadPart::Group,
            why,
        };
        if self.groups.is_empty() {
            return Err(whole("a load has a group or more".to_owned()));
        }
        let cpus_here = UsableCpus::here().map_err(|error| whole(error.to_string()))?;
        for (number, group) in self.groups.iter().enumerate() {
            self.check_group(group, &cpus_here)
                .map_err(|(at, why)| Fault {
                    group: group.name.clone(),
                    number,
                    at,
                    why,
                })?;
        }
        let members: u64 = self.groups.iter().map(|group| u64::from(group.count)).sum();
        if let Some(most) = setting("kernel/pid_max").filter(|most| members >= *most) {
            return Err(whole(format!(
                "{members} members: this machine has no more than {most} tasks (kernel.pid_max)"
            )));
        }
        self.check_real_time(&cpus_here).map_err(whole)
    }

    fn check_group(&self, group: &Group, cpus_here: &UsableCpus) -> Result<(), (LoadPart, String)> {
        if group.count == 0 {
            return Err((LoadPart::Count, "count must be at least 1".to_owned()));
        }
        let mappings = MAPPINGS_OF_A_THREAD * u64::from(group.count);
        if group.members == Members::Threads
            && let Some(most) = setting("vm/max_map_count").filter(|most| mappings > *most)
        {
            let why = format!(
                "{} threads need {mappings} mappings, and a process has {most} at most \
                 (vm.max_map_count): take processes, or several groups",
                group.count
            );
            return Err((LoadPart::Count, why));
        }
        if let Cpus::Dealt(cpus) = &group.cpus {
            if cpus.is_empty() {
                return Err((LoadPart::Cpus, "no CPU is named".to_owned()));
            }
            if let Some(why) = cpus.iter().find_map(|cpu| cpus_here.why_not(*cpu)) {
                return Err((LoadPart::Cpus, why));
            }
        }
        check_class(group.class).map_err(|why| (LoadPart::Class, why))?;
        let is_sliced = matches!(group.class, Class::Other { .. } | Class::Batch { .. });
        if group.slice.is_some() && !is_sliced {
            let why = format!("a task under {} has no slice of its own", group.class);
            return Err((LoadPart::Slice, why));
        }
        if group.body.is_empty() {
            return Err((
                LoadPart::Step(Vec::new()),
                "the body has no steps".to_owned(),
            ));
        }
        let body = BodyChecker { load: self, group };
        body.check(&group.body, &mut Vec::new())
    }

    /// Refuses real-time members on all CPUs if the kernel reserves no time for other tasks: the
    /// machine would be out of reach.
    fn check_real_time(&self, cpus_here: &UsableCpus) -> Result<(), String> {
        let path = "/proc/sys/kernel/sched_rt_runtime_us";
        let keeps_nothing = fs::read_to_string(path).is_ok_and(|text| text.trim() == "-1");
        let real_time = self
            .groups
            .iter()
            .filter(|group| group.class.is_real_time());
        let mut taken: BTreeSet<u32> = BTreeSet::new();
        let mut free = 0;
        for group in real_time {
            match &group.cpus {
                Cpus::Free => free += group.count as usize,
                Cpus::Dealt(cpus) => taken.extend(cpus.iter().take(group.count as usize)),
            }
        }
        if keeps_nothing && taken.len() + free >= cpus_here.allowed.len() {
            return Err(
                "real-time members on all CPUs, and the kernel keeps no time for others: \
                 leave a CPU free, or set kernel.sched_rt_runtime_us to 950000"
                    .to_owned(),
            );
        }
        Ok(())
    }
}

/// A number under `/proc/sys`; `None` if this kernel does not have the file.
fn setting(name: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
    text.trim().parse().ok()
}

fn check_class(class: Class) -> Result<(), String> {
    match class {
        Class::Other { nice } | Class::Batch { nice } if !(-20..=19).contains(&nice) => {
            Err(format!("nice is from -20 to 19, not {nice}"))
        }
        Class::Fifo { priority } | Class::RoundRobin { priority }
            if !(1..=98).contains(&priority) =>
        {
            Err(format!(
                "a real-time priority is from 1 to 98 (99 is the player's), not {priority}"
            ))
        }
        _ => Ok(()),
    }
}

/// Context for the checks of one body.
struct BodyChecker<'a> {
    load: &'a Load,
    group: &'a Group,
}

impl BodyChecker<'_> {
    /// Checks a body or a repeat: a lock that is taken inside must be released inside.
    fn check(&self, steps: &[Step], path: &mut Vec<usize>) -> Result<(), (LoadPart, String)> {
        self.check_within(steps, path, &mut Vec::new())
    }

    fn check_within<'s>(
        &self,
        steps: &'s [Step],
        path: &mut Vec<usize>,
        held: &mut Vec<(&'s str, Vec<usize>)>,
    ) -> Result<(), (LoadPart, String)> {
        let before = held.len();
        for (index, step) in steps.iter().enumerate() {
            path.push(index);
            let fault = |why: String| (LoadPart::Step(path.clone()), why);
            match step {
                Step::Repeat { body, .. } if body.is_empty() => {
                    return Err(fault("nothing is repeated".to_owned()));
                }
                Step::Repeat { body, .. } => self.check_within(body, path, held)?,
                Step::Lock(name) => {
                    if held.iter().any(|(lock, _)| lock == name) {
                        return Err(fault(format!("lock {name} is held already")));
                    }
                    held.push((name, path.clone()));
                }
                Step::Unlock(name) => {
                    let position = held[before..].iter().position(|(lock, _)| lock == name);
                    let Some(position) = position else {
                        return Err(fault(format!("lock {name} is not held here")));
                    };
                    held.remove(before + position);
                }
                step => self.check_step(step).map_err(fault)?,
            }
            path.pop();
        }
        match held.get(before) {
            Some((lock, path)) => Err((
                LoadPart::Step(path.clone()),
                format!("lock {lock} is never given back in this body"),
            )),
            None => Ok(()),
        }
    }

    fn check_step(&self, step: &Step) -> Result<(), String> {
        match step {
            Step::Spin { kernel, .. } if !kernel.is_supported() => Err(format!(
                "this CPU cannot run the kernel {}",
                kernel.as_str()
            )),
            Step::Wait(name) if !self.is_anywhere(|step| *step == Step::Signal(name.clone())) => {
                Err(format!("nobody signals the event {name}"))
            }
            Step::Take(name) | Step::Pass(name) => self.check_ring(name),
            Step::Read { bytes: 0, .. } => Err("0 bytes are nothing to read".to_owned()),
            Step::Read { path, .. } => match fs::metadata(path) {
                Ok(file) if file.is_dir() => Err(format!("{} is a directory", path.display())),
                Ok(_) => Ok(()),
                Err(error) => Err(format!("{}: {error}", path.display())),
            },
            Step::Touch { bytes, stride } if *stride == 0 || stride > bytes => Err(format!(
                "a stride is from 1 byte to the size of the memory, {bytes} bytes, not {stride}"
            )),
            _ => Ok(()),
        }
    }

    fn check_ring(&self, name: &str) -> Result<(), String> {
        let (take, pass) = (Step::Take(name.to_owned()), Step::Pass(name.to_owned()));
        let uses = |group: &&Group, step: &Step| any(&group.body, &|one| one == step);
        if !uses(&self.group, &take) || !uses(&self.group, &pass) {
            return Err(format!(
                "who takes from ring {name} also passes, and the other way round"
            ));
        }
        let groups = self.load.groups.iter().filter(|group| uses(group, &take));
        let members: u64 = groups.map(|group| u64::from(group.count)).sum();
        let spec = self.load.rings.get(name).copied().unwrap_or_default();
        if members < 2 {
            return Err(format!("ring {name} has one member; it takes two or more"));
        }
        if spec.tokens == 0 {
            return Err(format!("ring {name} has no token, so nobody can go on"));
        }
        let is_full = matches!(spec.kind, RingKind::Tokens(_)) && u64::from(spec.tokens) > members;
        if is_full {
            return Err(format!(
                "ring {name} has {} tokens for {members} members; it takes at most one each",
                spec.tokens
            ));
        }
        Ok(())
    }

    fn is_anywhere(&self, is_it: impl Fn(&Step) -> bool) -> bool {
        self.load
            .groups
            .iter()
            .any(|group| any(&group.body, &is_it))
    }
}

/// Returns true if a step is in a body, or in a repeat inside it.
fn any(body: &[Step], is_it: &dyn Fn(&Step) -> bool) -> bool {
    body.iter().any(|step| match step {
        Step::Repeat { body, .. } => any(body, is_it),
        step => is_it(step),
    })
}
