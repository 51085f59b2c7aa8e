//! The findings about locks of Java and Python at which each thread has futex words of its own: what the kernel sees does
//! not tell such a lock from a hand-over of work, and the stack does.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use swtch_core::{Arch, Nanos, StackKind, Tally};

use super::super::ends::scaled;
use super::super::stack::Symbols;
use super::super::wait::Objects;
use super::super::whose::function_name;
use super::super::workers::sum_of;
use super::advice::{self, Advice};
use super::locks::is_lock_object;
use super::who::WAITED_IN;
use super::{Finding, VerdictInput};

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

/// The methods of locks of Python for that, which swtch puts on the stack (`swtch-runtimes/python/parked.rs`), and the
/// function that waits for a message by taking a plain lock twice (`threading.py`).
const OF_PYTHON: [&str; 2] = [PLAIN, "_thread.RLock.acquire"];
const PLAIN: &str = "_thread.lock.acquire";
const CONDITION: &str = "Condition.wait";

/// A kind of lock that stacks tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StackLock {
    /// A monitor of Java.
    Monitor,
    /// Another lock of Java.
    Java,
    /// A lock of Python.
    Python,
}

/// What is said of such a lock.
struct LockWords {
    finding: &'static str,
    what: &'static str,
    kind: &'static str,
    advice: &'static Advice,
    without_names: &'static Advice,
}

impl StackLock {
    pub(super) const ALL: [Self; 3] = [Self::Monitor, Self::Java, Self::Python];

    /// What a thread with this stack waits for, if it is such a lock.
    fn of(stack: u32, symbols: &Symbols) -> Option<Self> {
        let frames = symbols.frames(StackKind::User, Some(stack));
        let enters = |frame: &String| ENTER.iter().any(|name| frame.starts_with(name));
        let pairs = || {
            let pairs = frames.windows(2);
            pairs.map(|pair| [&pair[0], &pair[1]].map(|frame| function_name(frame)))
        };
        let acquires = |[inner, outer]: [&str; 2]| {
            let is_outer = outer == ACQUIRE || outer.starts_with(REENTRANT);
            [ACQUIRE, ACQUIRE_QUEUED].contains(&inner) && is_outer
        };
        let takes = |[inner, outer]: [&str; 2]| {
            let is_for_message = inner == PLAIN && outer == CONDITION;
            OF_PYTHON.contains(&inner) && !is_for_message
        };
        match () {
            () if frames.iter().any(enters) => Some(Self::Monitor),
            () if pairs().any(acquires) => Some(Self::Java),
            () if pairs().any(takes) => Some(Self::Python),
            () => None,
        }
    }

    const fn words(self) -> LockWords {
        match self {
            Self::Monitor => LockWords {
                finding: "monitor",
                what: "a monitor of Java",
                kind: "synchronized",
                advice: &advice::LOCK_OF_JAVA,
                without_names: &advice::LOCK_WITHOUT_NAMES,
            },
            Self::Java => LockWords {
                finding: "java_lock",
                what: "a lock of Java",
                kind: "java.util.concurrent.locks",
                advice: &advice::LOCK_OF_JAVA,
                without_names: &advice::LOCK_WITHOUT_NAMES,
            },
            Self::Python => LockWords {
                finding: "python_lock",
                what: "a lock of Python",
                kind: "threading.Lock, RLock",
                advice: &advice::LOCK_OF_PYTHON,
                without_names: &advice::LOCK_OF_PYTHON,
            },
        }
    }
}

/// Time of threads that waited for such locks: in each user stack, in ns.
#[derive(Clone, Debug, Default)]
pub struct StackLockTime(BTreeMap<StackLock, FxHashMap<u32, u64>>);

impl StackLockTime {
    /// At objects that are not known to be locks otherwise.
    pub fn of(objects: &Objects, arch: Option<Arch>, symbols: Option<&Symbols>) -> Self {
        let mut time = Self::default();
        let Some(symbols) = symbols else {
            return time;
        };
        let mut known: FxHashMap<u32, Option<StackLock>> = FxHashMap::default();
        for (object, waited) in objects.ranked() {
            if is_lock_object(object, waited, arch) {
                continue;
            }
            for (stack, part) in scaled(&waited.ends.waited_in, waited.blocked) {
                let lock = known
                    .entry(stack)
                    .or_insert_with(|| StackLock::of(stack, symbols));
                if let Some(lock) = lock {
                    *time.0.entry(*lock).or_default().entry(stack).or_default() += part;
                }
            }
        }
        time
    }

    /// All of it.
    pub fn sum(&self) -> Nanos {
        self.0.values().map(sum_of).sum()
    }
}

impl VerdictInput<'_> {
    /// Threads that waited for locks of this kind.
    pub(super) fn lock_of_stacks(&self, lock: StackLock, total: &Tally) -> Option<Finding> {
        let stacks = self.stack_locks.0.get(&lock)?;
        let words = lock.words();
        let named = self.of_a_language(stacks);
        let place = named.as_ref().map(|named| self.in_function(named));
        let place = place.unwrap_or_default();
        let seen = format!("Threads wait for {}{place} ({})", words.what, words.kind);
        let mut finding = self.of_stacks(words.finding, stacks, &seen, total)?;
        let functions = named.as_ref().and_then(|named| self.main_functions(named));
        let functions = functions.map(|functions| format!("{WAITED_IN}{functions}"));
        finding.places = functions.into_iter().collect();
        let advice = named.map_or(words.without_names, |_| words.advice);
        finding.advice = Some(advice.told());
        Some(finding)
    }
}
