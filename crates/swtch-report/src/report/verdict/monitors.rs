//! The finding about locks of Java, at which each thread has futex words of its own: what the kernel sees does not tell a
//! lock from a hand-over of work, and the stack does.

use rustc_hash::FxHashMap;
use swtch_core::{Arch, Nanos, StackKind, Tally};

use super::super::ends::scaled;
use super::super::stack::Symbols;
use super::super::wait::Objects;
use super::super::whose::function_name;
use super::super::workers::sum_of;
use super::locks::is_lock_object;
use super::who::WAITED_IN;
use super::{Finding, VerdictInput, advice};

/// What a thread is in while it waits for a monitor that another has, also one that it had given up in `Object.wait`
/// (`HotSpot`, `src/hotspot/share/runtime/objectMonitor.cpp`, JDK 17 and 25).
const ENTER: [&str; 3] = [
    "ObjectMonitor::enter(",
    "ObjectMonitor::ReenterI(",
    "ObjectMonitor::reenter_internal(",
];

/// What a thread is in while it waits for a lock of `java.util.concurrent.locks` for itself alone: one calls the other, and
/// for semaphores, latches and conditions nobody calls both (`AbstractQueuedSynchronizer.java`, JDK 11, 17 and 25).
const ACQUIRE: &str = "java.util.concurrent.locks.AbstractQueuedSynchronizer.acquire";
const REENTRANT: &str = "java.util.concurrent.locks.Reentrant";
const ACQUIRE_QUEUED: &str = "java.util.concurrent.locks.AbstractQueuedSynchronizer.acquireQueued";

/// Time of threads that waited for locks of Java.
#[derive(Clone, Debug, Default)]
pub struct MonitorTime {
    /// For monitors, in each user stack, in ns.
    monitors: FxHashMap<u32, u64>,
    /// For locks of `java.util.concurrent`.
    locks: FxHashMap<u32, u64>,
}

/// What a stack says that its thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JavaWait {
    Monitor,
    Lock,
    Other,
}

impl JavaWait {
    fn of(stack: u32, symbols: &Symbols) -> Self {
        let frames = symbols.frames(StackKind::User, Some(stack));
        let enters = |frame: &String| ENTER.iter().any(|name| frame.starts_with(name));
        let acquires = |pair: &[String]| {
            let [inner, outer] = [&pair[0], &pair[1]].map(|frame| function_name(frame));
            let is_outer = outer == ACQUIRE || outer.starts_with(REENTRANT);
            [ACQUIRE, ACQUIRE_QUEUED].contains(&inner) && is_outer
        };
        match () {
            () if frames.iter().any(enters) => Self::Monitor,
            () if frames.windows(2).any(acquires) => Self::Lock,
            () => Self::Other,
        }
    }
}

impl MonitorTime {
    /// At objects that are not known to be locks otherwise.
    pub fn of(objects: &Objects, arch: Option<Arch>, symbols: Option<&Symbols>) -> Self {
        let mut time = Self::default();
        let Some(symbols) = symbols else {
            return time;
        };
        let mut known: FxHashMap<u32, JavaWait> = FxHashMap::default();
        for (object, waited) in objects.ranked() {
            if is_lock_object(object, waited, arch) {
                continue;
            }
            for (stack, part) in scaled(&waited.ends.waited_in, waited.blocked) {
                let wait = known
                    .entry(stack)
                    .or_insert_with(|| JavaWait::of(stack, symbols));
                let stacks = match wait {
                    JavaWait::Monitor => &mut time.monitors,
                    JavaWait::Lock => &mut time.locks,
                    JavaWait::Other => continue,
                };
                *stacks.entry(stack).or_default() += part;
            }
        }
        time
    }

    /// All of it.
    pub fn sum(&self) -> Nanos {
        sum_of(&self.monitors) + sum_of(&self.locks)
    }
}

impl VerdictInput<'_> {
    /// Threads that waited for a monitor of Java.
    pub(super) fn monitors(&self, total: &Tally) -> Option<Finding> {
        let what = "a monitor of Java";
        self.of_java(
            "monitor",
            &self.monitors.monitors,
            what,
            "synchronized",
            total,
        )
    }

    /// Threads that waited for another lock of Java.
    pub(super) fn locks_of_java(&self, total: &Tally) -> Option<Finding> {
        let (what, kind) = ("a lock of Java", "java.util.concurrent.locks");
        self.of_java("java_lock", &self.monitors.locks, what, kind, total)
    }

    fn of_java(
        &self,
        name: &'static str,
        stacks: &FxHashMap<u32, u64>,
        what: &str,
        kind: &str,
        total: &Tally,
    ) -> Option<Finding> {
        let named = self.of_a_language(stacks);
        let place = named.as_ref().map(|named| self.in_function(named));
        let place = place.unwrap_or_default();
        let seen = format!("Threads wait for {what}{place} ({kind})");
        let mut finding = self.of_stacks(name, stacks, &seen, total)?;
        let functions = named.as_ref().and_then(|named| self.main_functions(named));
        let functions = functions.map(|functions| format!("{WAITED_IN}{functions}"));
        finding.places = functions.into_iter().collect();
        finding.advice = Some(match named {
            Some(_) => advice::MONITOR.told(),
            None => advice::MONITOR_WITHOUT_NAMES.told(),
        });
        Some(finding)
    }
}
