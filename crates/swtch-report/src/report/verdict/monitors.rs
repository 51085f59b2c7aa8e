//! The finding about monitors of Java, at which each thread has futex words of its own: what the kernel sees does not tell
//! a lock from a hand-over of work, and the stack does.

use rustc_hash::FxHashMap;
use swtch_core::{Arch, Nanos, StackKind, Tally};
use swtch_output::sheet::percent;

use super::super::stack::Symbols;
use super::super::wait::Objects;
use super::super::whose::is_of_interpreted;
use super::super::workers::sum_of;
use super::locks::is_lock_object;
use super::who::WAITED_IN;
use super::{Finding, MOST_PCT, VerdictInput, advice};

/// What a thread is in while it waits for a monitor that another has, also one that it had given up in `Object.wait`
/// (`HotSpot`, `src/hotspot/share/runtime/objectMonitor.cpp`, JDK 17 and 25).
const ENTER: [&str; 3] = [
    "ObjectMonitor::enter(",
    "ObjectMonitor::ReenterI(",
    "ObjectMonitor::reenter_internal(",
];

/// Time of threads that waited for monitors.
#[derive(Clone, Debug, Default)]
pub struct MonitorTime {
    /// In each user stack, in ns.
    stacks: FxHashMap<u32, u64>,
}

impl MonitorTime {
    /// At objects that are not known to be locks otherwise.
    pub fn of(objects: &Objects, arch: Option<Arch>, symbols: Option<&Symbols>) -> Self {
        let mut time = Self::default();
        let Some(symbols) = symbols else {
            return time;
        };
        let mut known: FxHashMap<u32, bool> = FxHashMap::default();
        let is_enter = |stack: u32| {
            let frames = symbols.frames(StackKind::User, Some(stack));
            let mut names = ENTER.iter();
            names.any(|name| frames.iter().any(|frame| frame.starts_with(name)))
        };
        for (object, waited) in objects.ranked() {
            if is_lock_object(object, waited, arch) {
                continue;
            }
            for (stack, ns) in &waited.ends.waited_in {
                if *known.entry(*stack).or_insert_with(|| is_enter(*stack)) {
                    *time.stacks.entry(*stack).or_default() += ns;
                }
            }
        }
        time
    }

    /// All of it.
    pub fn sum(&self) -> Nanos {
        sum_of(&self.stacks)
    }
}

impl VerdictInput<'_> {
    /// Threads that waited for a monitor of Java.
    pub(super) fn monitors(&self, total: &Tally) -> Option<Finding> {
        let stacks = &self.monitors.stacks;
        let symbols = self.symbols?;
        let is_named = |stack: &u32| {
            let first = symbols.first_own(*stack);
            first.is_some_and(|frame| is_of_interpreted(&frame))
        };
        let named: FxHashMap<u32, u64> = stacks
            .iter()
            .filter(|(stack, _)| is_named(stack))
            .map(|(stack, ns)| (*stack, *ns))
            .collect();
        let are_named = percent(sum_of(&named).as_ns(), sum_of(stacks).as_ns());
        let are_named = are_named.is_some_and(|share| share >= MOST_PCT);
        let place = self.one_place(&named).filter(|_| are_named);
        let place = place.map_or_else(String::new, |functions| {
            let innermost = functions.split(" < ").next().unwrap_or(&functions);
            format!(" in {innermost}")
        });
        let seen = format!("Threads wait for a monitor of Java{place} (synchronized)");
        let mut finding = self.of_stacks("monitor", stacks, &seen, total)?;
        let functions = self.main_functions(&named).filter(|_| are_named);
        let functions = functions.map(|functions| format!("{WAITED_IN}{functions}"));
        finding.places = functions.into_iter().collect();
        finding.advice = Some(match are_named {
            true => advice::MONITOR.told(),
            false => advice::MONITOR_WITHOUT_NAMES.told(),
        });
        Some(finding)
    }
}
