//! Blocked time by program, stack and reason: the tree that a flame graph draws.
//!
//! ```text
//! all ─▶ program ─▶ its functions, the outermost first ─▶ the kernel's functions ─▶ reason
//! ```
//!
//! The time of a frame is that of all waits below it. The tree gives frames no place and no colour:
//! `swtch view` and the page of `swtch diff` do.

use anyhow::Result;
use rustc_hash::FxHashMap;
use swtch_core::places::PlaceSums;
use swtch_core::{Nanos, Reason, StackKind};
use swtch_store::Columns;

use super::filtered_trace::FilteredTrace;
use super::names::{Names, Process};
use super::programs::{Programs, of_kernel};
use super::stack::{Stacks, Symbols, function_of, is_of_tracing, seen_at};

/// The kind of thing that a frame of the tree stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrameKind {
    /// Everything: the root.
    #[default]
    All,
    /// A program, whose waits may be of several processes; `process` in JSON.
    Process,
    /// A function of the program or of a library.
    User,
    /// A function of the kernel.
    Kernel,
    /// In place of functions, where no stack was taken.
    NoStack,
    /// The reason for which the task waited.
    Reason,
}

impl FrameKind {
    /// The word in JSON; the root has none.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "",
            Self::Process => "process",
            Self::User => "user",
            Self::Kernel => "kernel",
            Self::NoStack => "none",
            Self::Reason => "reason",
        }
    }
}

/// The way in which programs and functions are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlameNaming {
    /// As one trace has them: programs are told apart by what they do ([`Programs`]), and functions
    /// have offsets.
    OfOneTrace,
    /// As several traces share them. Command lines hold directories that differ from build to build,
    /// and offsets move when code changes, so a program is its name, and a frame is its function.
    AcrossRuns,
}

impl FlameNaming {
    /// The name of a function's frame; `None` if the frame is left out.
    fn of(self, frame: String) -> Option<String> {
        match self {
            Self::OfOneTrace => Some(frame),
            Self::AcrossRuns if is_of_tracing(&frame) => None,
            Self::AcrossRuns => Some(function_of(&frame)),
        }
    }
}

/// A frame, and the frames below it.
#[derive(Clone, Debug, Default)]
pub struct FlameNode {
    /// The kind of thing that it stands for.
    pub kind: FrameKind,
    /// Blocked time of the waits below it, in ns.
    pub ns: u64,
    /// Number of these waits.
    pub waits: u64,
    /// The frames below it, by name.
    pub children: FxHashMap<String, Self>,
}

impl FlameNode {
    /// The tree of the waits that a report on this trace counts.
    ///
    /// # Errors
    /// When the trace cannot be read.
    pub fn of(
        filtered: &mut FilteredTrace<'_>,
        symbols: &Symbols,
        naming: FlameNaming,
    ) -> Result<Self> {
        let programs = program_names(&filtered.names(), naming);
        let frames = |kind, stack| {
            let frames = symbols.frames(kind, stack).into_iter().rev();
            frames.filter_map(move |frame| naming.of(frame))
        };
        let mut root = Self::default();
        let places = places(filtered)?;
        let names = filtered.names();
        for ((task, reason), divided) in places.by_group() {
            let process = names.thread(*task).process;
            for (stacks, waits, [_, time]) in divided.into_parts() {
                let (user, kernel) = stacks.unwrap_or_default();
                if waits == 0 {
                    continue;
                }
                let mut path = vec![(FrameKind::Process, programs[process].clone())];
                path.extend(frames(StackKind::User, user).map(|frame| (FrameKind::User, frame)));
                path.extend(
                    frames(StackKind::Kernel, kernel).map(|frame| (FrameKind::Kernel, frame)),
                );
                if user.is_none() && kernel.is_none() {
                    path.push((FrameKind::NoStack, "(no stack taken)".to_owned()));
                }
                path.push((FrameKind::Reason, reason.as_str().to_owned()));
                root.add_waits(path, waits, time.as_ns());
            }
        }
        Ok(root)
    }

    /// Adds waits to this frame and to all frames of a path below it, the outermost first.
    pub fn add_waits(
        &mut self,
        path: impl IntoIterator<Item = (FrameKind, String)>,
        waits: u64,
        ns: u64,
    ) {
        self.add_to_this_frame(waits, ns);
        let mut node = self;
        for (kind, name) in path {
            node = node.children.entry(name).or_default();
            node.kind = kind;
            node.add_to_this_frame(waits, ns);
        }
    }

    /// Adds the times of another tree, frame by frame.
    pub fn add(&mut self, other: Self) {
        self.kind = other.kind;
        self.add_to_this_frame(other.waits, other.ns);
        for (name, child) in other.children {
            self.children.entry(name).or_default().add(child);
        }
    }

    const fn add_to_this_frame(&mut self, waits: u64, ns: u64) {
        self.waits += waits;
        self.ns += ns;
    }
}

/// The name of each process's program, by its place in [`Names::process`].
fn program_names(names: &Names, naming: FlameNaming) -> Vec<String> {
    let processes = names.processes();
    match naming {
        FlameNaming::OfOneTrace => {
            let programs = Programs::new(names);
            let labels = (0..processes.len()).map(|place| programs.label(place).to_owned());
            labels.collect()
        }
        FlameNaming::AcrossRuns => processes.iter().map(name_across_runs).collect(),
    }
}

fn name_across_runs(process: &Process) -> String {
    if process.is_kernel {
        of_kernel(&process.comm)
    } else {
        process.comm.clone()
    }
}

/// Off-CPU and blocked time of each thread, by reason and place.
fn places(filtered: &mut FilteredTrace<'_>) -> Result<PlaceSums<(usize, Reason), Stacks, 2>> {
    let columns = Columns::OFF_REASON | Columns::OFF | Columns::RUNQ | Columns::STACKS;
    let mut places = PlaceSums::default();
    filtered.scan(columns, &mut |row, task, counted| {
        let blocked = row.wait.blocked().filter(|_| counted.wait);
        let Some(blocked) = blocked.filter(|blocked| *blocked > Nanos::ZERO) else {
            return;
        };
        let reason = row.wait.reason.unwrap_or(Reason::Unknown);
        let off = row.wait.off.unwrap_or(blocked);
        places.add((task, reason), [off, blocked], seen_at(row, off));
    })?;
    Ok(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of threads and the places of functions differ from run to run.
    #[test]
    fn runs_share_the_names_of_programs_and_functions() {
        let (trace, _dir) = swtch_fixtures::handed_round();
        let mut session = FilteredTrace::open(&trace, &super::super::Filter::default()).unwrap();
        let symbols = session.symbols().unwrap();
        let tree = FlameNode::of(&mut session, &symbols, FlameNaming::AcrossRuns).unwrap();
        let sum: u64 = tree.children.values().map(|program| program.ns).sum();
        assert_eq!(tree.ns, sum);
        assert!(tree.children.contains_key("server"), "{:?}", tree.children);
        let mut names = tree.children["server"].children.keys();
        let expected = ["(no stack taken)", "(stack lost)"];
        assert!(names.all(|name| expected.contains(&name.as_str())));
    }

    #[test]
    fn a_frame_has_no_offset_across_runs_and_none_is_of_tracing() {
        let name = |naming: FlameNaming, frame: &str| naming.of(frame.to_owned());
        let across = |frame| name(FlameNaming::AcrossRuns, frame);
        assert_eq!(
            across("lock+0x12 [server]").as_deref(),
            Some("lock [server]")
        );
        assert_eq!(across("__traceiter_sched_exit_tp+0x4d [kernel]"), None);
        let own = name(FlameNaming::OfOneTrace, "lock+0x12 [server]");
        assert_eq!(own.as_deref(), Some("lock+0x12 [server]"));
    }

    #[test]
    fn trees_add_up_frame_by_frame() {
        let path = |frame: &str| [(FrameKind::User, frame.to_owned())];
        let mut sum = FlameNode::default();
        sum.add_waits(path("lock"), 1, 10);
        let mut other = FlameNode::default();
        other.add_waits(path("lock"), 2, 5);
        other.add_waits(path("read"), 1, 3);
        sum.add(other);
        assert_eq!((sum.waits, sum.ns), (4, 18));
        let lock = &sum.children["lock"];
        assert_eq!((lock.kind, lock.waits, lock.ns), (FrameKind::User, 3, 15));
        assert_eq!(sum.children["read"].ns, 3);
    }
}
