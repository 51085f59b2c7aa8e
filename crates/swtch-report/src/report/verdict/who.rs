//! Names in the sentences of the verdict: programs, threads, calls, wakers, and who took the CPU.
//!
//! If only one process is involved, its threads are named, else the programs: a reader sees at once
//! that pgbench took the CPU 9,812 times, but not in ten pairs of its threads.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use rustc_hash::FxHashMap;
use swtch_core::{Reason, WakerKind};
use swtch_output::sheet::percent;
use swtch_output::text::{counted, grouped};

use super::super::ends::WaitEnds;
use super::super::group::{GroupKey, RowSyscall};
use super::super::stack::sign_in_words;
use super::super::waker::Waker;
use super::super::whose::is_of_interpreted;
use super::super::workers::sum_of;
use super::{MOST_PCT, NAMED, SPREAD_PCT, VerdictInput, share};
use swtch_core::Tally;

/// Pairs of threads are named if the main pair has at least this share.
const FEW_PCT: f64 = 10.0;

/// From this share on, a program makes nearly all of something, and need not be named again.
const NEARLY_ALL_PCT: f64 = 99.0;

/// From so many wakers on, of which one in many is looked at, the place of most of them is named.
const FEWEST_COPIES: u64 = 5;

/// Begins the line that says where tasks waited.
pub const WAITED_IN: &str = "waited in: ";

/// From this share of the time on, one function is where it passes.
const ONE_PLACE_PCT: f64 = 80.0;

/// Entries with a smaller share are not named beside larger ones.
const LEAST_PCT: f64 = 1.0;

/// Most functions that are named of a stack.
const FUNCTIONS_NAMED: usize = 3;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitEnder {
    /// A thread or a program, by its label.
    Task(String),
    /// The time limit of the wait, or a clock that the task set.
    Timer,
    /// An interrupt of another kind.
    Interrupt,
}

impl fmt::Display for WaitEnder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Task(label) => label,
            Self::Timer => "a timer",
            Self::Interrupt => "interrupts (network, disk, timers)",
        })
    }
}

/// A task that took the CPU and the one that lost it, by their labels, and how often.
pub struct PreemptionPair {
    pub taker: String,
    pub from: PreemptedTask,
    pub times: u64,
}

/// The task that the CPU was taken from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PreemptedTask {
    /// Another thread of the same process.
    Thread,
    /// Another process of the same program.
    Process,
    /// Another program, or another thread, by its label.
    Other(String),
}

impl PreemptionPair {
    /// The tasks that took the CPU: `threads of mu`, or `pgbench`.
    pub fn who(&self) -> String {
        match self.from {
            PreemptedTask::Thread => format!("threads of {}", self.taker),
            PreemptedTask::Process => format!("processes of {}", self.taker),
            PreemptedTask::Other(_) => self.taker.clone(),
        }
    }

    /// The tasks that lost the CPU: `each other`, or `postgres: alice`.
    pub fn whom(&self) -> &str {
        match &self.from {
            PreemptedTask::Thread | PreemptedTask::Process => "each other",
            PreemptedTask::Other(label) => label,
        }
    }

    fn words(&self) -> String {
        let times = counted(self.times, "time");
        format!("{} from {} {times}", self.who(), self.whom())
    }
}

impl VerdictInput<'_> {
    /// Returns what was counted for a reason of programs.
    pub fn of_programs(&self, reason: Reason) -> Tally {
        self.details.of_programs(self.reasons, reason)
    }

    /// The count with its share, as `1,234 switches (12.3 %)`.
    pub fn switches(&self, tally: &Tally, total: &Tally) -> String {
        let share = share(tally.switches, total.switches);
        format!("{} ({share})", counted(tally.switches, "switch"))
    }

    /// [`Self::places`], and what ends these waits, in which functions.
    pub fn places_and_wakers(&self, reason: Reason) -> Vec<String> {
        let ends = self.details.ends_of(reason);
        let ended = [self.woken_by(ends), self.woken_from(ends)];
        let mut places = self.places(reason);
        places.extend(ended.into_iter().flatten());
        places
    }

    /// Says in which functions these waits began, where the lock was held meanwhile, what ended them, and in which
    /// functions.
    pub fn course(&self, ends: &WaitEnds) -> Vec<String> {
        let held_in = self.main_functions(&ends.held_in);
        let places = [
            self.waited_in(ends),
            held_in.map(|functions| format!("held meanwhile in: {functions}")),
            self.woken_by(ends),
            self.woken_from(ends),
        ];
        places.into_iter().flatten().collect()
    }

    /// Says which tasks leave for a reason, in which functions, and in which system calls.
    pub fn places(&self, reason: Reason) -> Vec<String> {
        let ends = self.details.ends_of(reason);
        let places = [self.who(reason), self.waited_in(ends), self.calls(reason)];
        places.into_iter().flatten().collect()
    }

    /// Names threads if a single process leaves for a reason, else programs. A program that makes
    /// nearly all switches of the recording is not named again.
    pub fn who(&self, reason: Reason) -> Option<String> {
        let count = |tally: &Tally| tally.reasons[reason.index()];
        let programs = self.programs.ranked(self.processes, count);
        let all = programs.iter().map(|program| count(&program.tally)).sum();
        let first = programs.first()?;
        if programs.len() == 1 && first.processes == 1 {
            return Some(format!("threads: {}", self.threads(reason, all)?));
        }
        let is_nearly_all =
            |part, whole| percent(part, whole).is_some_and(|share| share >= NEARLY_ALL_PCT);
        let switches = self.reasons.total().switches;
        if is_nearly_all(count(&first.tally), all) && is_nearly_all(first.tally.switches, switches)
        {
            return None;
        }
        let named = programs.iter().map(|program| {
            let count = count(&program.tally);
            (format!("{} {}", program.words(), share(count, all)), count)
        });
        Some(format!("programs: {}", main_of(named, all)?))
    }

    fn threads(&self, reason: Reason, all: u64) -> Option<String> {
        let count = |tally: &Tally| tally.reasons[reason.index()];
        let mut ranked = self.threads.ranked();
        ranked.retain(|(_, tally)| count(tally) > 0);
        ranked.sort_by_key(|(key, tally)| (Reverse(count(tally)), *key));
        let label = |key| match key {
            GroupKey::Thread(index) => self.names.label(index),
            _ => unreachable!("these groups are threads"),
        };
        let named = ranked.iter().map(|(key, tally)| {
            (
                format!("{} {}", label(*key), share(count(tally), all)),
                count(tally),
            )
        });
        main_of(named, all)
    }

    /// System calls in which tasks leave for a reason; `None` if they are not recorded.
    pub fn calls(&self, reason: Reason) -> Option<String> {
        let mut calls = self.calls_of(reason);
        calls.retain(|(call, _)| *call != RowSyscall::NotRecorded);
        let all = calls.iter().map(|(_, count)| count).sum();
        let named = calls.iter().map(|(call, count)| {
            let name = match call {
                RowSyscall::None => "user code (no system call)".to_owned(),
                call => call.name(self.arch),
            };
            (format!("{name} {}", share(*count, all)), *count)
        });
        Some(format!("in: {}", main_of(named, all)?))
    }

    /// System calls in which tasks leave for a reason, most often first.
    pub fn calls_of(&self, reason: Reason) -> Vec<(RowSyscall, u64)> {
        let ranked = self.calls.ranked();
        let counts = ranked.iter().filter_map(|(key, tally)| match key {
            GroupKey::Syscall(call) => Some((*call, tally.reasons[reason.index()])),
            _ => None,
        });
        let mut counts: Vec<_> = counts.filter(|(_, count)| *count > 0).collect();
        counts.sort_by_key(|(call, count)| (Reverse(*count), *call));
        counts
    }

    /// Returns what ends waits, the most frequent first: threads of one process, or programs, or interrupts.
    pub fn wakers_in(&self, ends: &WaitEnds) -> Vec<(WaitEnder, u64)> {
        let wakers = &ends.wakers;
        let process = |waker: &Waker| match waker {
            Waker::Task(index) => Some(self.names.thread(*index).process),
            Waker::Other(_) => None,
        };
        let mut processes = wakers.keys().filter_map(process);
        let first = processes.next();
        let is_one = processes.all(|process| Some(process) == first);
        let mut counts: BTreeMap<WaitEnder, u64> = BTreeMap::new();
        for (waker, count) in wakers {
            let ender = match (waker, is_one) {
                (Waker::Task(index), true) => WaitEnder::Task(self.names.label(*index)),
                (Waker::Task(index), false) => {
                    let process = self.names.thread(*index).process;
                    WaitEnder::Task(self.programs.label(process).to_owned())
                }
                (Waker::Other(WakerKind::Timer), _) => WaitEnder::Timer,
                (Waker::Other(_), _) => WaitEnder::Interrupt,
            };
            *counts.entry(ender).or_default() += count;
        }
        let mut ranked: Vec<_> = counts.into_iter().collect();
        ranked.sort_by_key(|(_, count)| Reverse(*count));
        ranked
    }

    /// `woken by: pgbench 97.0 %, a timer 2.0 %`
    fn woken_by(&self, ends: &WaitEnds) -> Option<String> {
        let ranked = self.wakers_in(ends);
        let all = ranked.iter().map(|(_, count)| count).sum();
        let named = ranked
            .iter()
            .map(|(ender, count)| (format!("{ender} {}", share(*count, all)), *count));
        Some(format!("woken by: {}", main_of(named, all)?))
    }

    /// ` in take_ticket (server.c:88)`: the program's function in which most of this time passed; nothing where that is
    /// not known, or where it is several.
    pub fn in_function(&self, stacks: &FxHashMap<u32, u64>) -> String {
        let Some(functions) = self.one_place(stacks) else {
            return String::new();
        };
        let innermost = functions.split(" < ").next().unwrap_or(&functions);
        format!(" in {innermost}")
    }

    /// The program's functions in which nearly all of this passed, the innermost first; `None` if that is not known, or
    /// where it is several places.
    pub fn one_place(&self, stacks: &FxHashMap<u32, u64>) -> Option<String> {
        let (functions, count, all) = self.main_place(stacks)?;
        let is_one = percent(count, all).is_some_and(|share| share >= ONE_PLACE_PCT);
        (is_one && sign_in_words(&functions).is_none()).then_some(functions)
    }

    /// Those of these stacks in which the innermost function that tells is one of a language with a runtime; `None` unless
    /// most of the time is in them.
    pub(super) fn of_a_language(
        &self,
        stacks: &FxHashMap<u32, u64>,
    ) -> Option<FxHashMap<u32, u64>> {
        let first = |stack: u32| self.symbols?.first_own(stack);
        let is_named = |stack: u32| first(stack).is_some_and(|frame| is_of_interpreted(&frame));
        let named = stacks.iter().filter(|(stack, _)| is_named(**stack));
        let named: FxHashMap<u32, u64> = named.map(|(stack, ns)| (*stack, *ns)).collect();
        let share = percent(sum_of(&named).as_ns(), sum_of(stacks).as_ns())?;
        (share >= MOST_PCT).then_some(named)
    }

    /// Says where tasks wait: `runtime.usleep < runtime.findRunnable 61.0 %`.
    fn waited_in(&self, ends: &WaitEnds) -> Option<String> {
        let functions = self.main_functions(&ends.waited_in)?;
        Some(format!("{WAITED_IN}{functions}"))
    }

    /// Says where wakers end the waits: `LWLockRelease < XLogFlush < CommitTransaction 61.0 %`.
    fn woken_from(&self, ends: &WaitEnds) -> Option<String> {
        let copies: u64 = ends.woken_from.values().sum();
        if copies < FEWEST_COPIES {
            return None;
        }
        let functions = self.main_functions(&ends.woken_from)?;
        Some(format!("woken from: {functions}"))
    }

    /// The functions of the program in most of these stacks, the innermost first, and their share.
    pub(super) fn main_functions(&self, stacks: &FxHashMap<u32, u64>) -> Option<String> {
        let (functions, count, all) = self.main_place(stacks)?;
        if percent(count, all)? < SPREAD_PCT {
            return None;
        }
        let sign = sign_in_words(&functions);
        let sign = sign.map_or_else(String::new, |words| format!(" ({words})"));
        Some(format!("{functions} {}{sign}", share(count, all)))
    }

    /// The functions that most of this passed in, how much, and of how much.
    fn main_place(&self, stacks: &FxHashMap<u32, u64>) -> Option<(String, u64, u64)> {
        let symbols = self.symbols?;
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        let mut all = 0;
        for (stack, count) in stacks {
            all += count;
            if let Some(functions) = symbols.functions_with_line(*stack, FUNCTIONS_NAMED) {
                *counts.entry(functions).or_default() += count;
            }
        }
        let (functions, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        Some((functions, count, all))
    }

    /// Returns which tasks took the CPU from which for a reason, most often first: threads of one process, or programs.
    pub fn taken(&self, reason: Reason) -> Vec<PreemptionPair> {
        let pairs = self.preemptors.pairs(reason);
        let process = |index: usize| self.names.thread(index).process;
        let all: u64 = pairs.iter().map(|pair| pair.2).sum();
        let main = pairs.first().map_or(0, |pair| pair.2);
        // Threads are named if the main pair has a large share, and not if many take turns.
        let is_of_few = percent(main, all).is_some_and(|share| share >= FEW_PCT);
        let first = pairs.first().map(|pair| process(pair.0));
        let is_one = |(taker, from, _): &(usize, usize, u64)| {
            Some(process(*taker)) == first && Some(process(*from)) == first
        };
        let is_within_one = is_of_few && pairs.iter().all(is_one);
        let label = |index: usize| {
            if is_within_one {
                self.names.label(index)
            } else {
                self.programs.label(process(index)).to_owned()
            }
        };
        let mut sums: BTreeMap<(String, PreemptedTask), u64> = BTreeMap::new();
        for (taker, from, times) in pairs {
            let robbed = match (label(taker), label(from)) {
                _ if !is_within_one && process(taker) == process(from) => PreemptedTask::Thread,
                (taker, from) if taker == from => PreemptedTask::Process,
                (_, from) => PreemptedTask::Other(from),
            };
            *sums.entry((label(taker), robbed)).or_default() += times;
        }
        let mut taken: Vec<_> = sums
            .into_iter()
            .map(|((taker, from), times)| PreemptionPair { taker, from, times })
            .collect();
        taken.sort_by_key(|one| Reverse(one.times));
        taken
    }

    /// `took the CPU: pgbench from postgres: bench 9,812 times`
    pub fn took_the_cpu(&self, reason: Reason) -> Option<String> {
        let taken = self.taken(reason);
        let all = taken.iter().map(|one| one.times).sum();
        let named = taken.iter().map(|one| (one.words(), one.times));
        Some(format!("took the CPU: {}", main_of(named, all)?))
    }
}

/// The first names of a list that is sorted by count. If the counts are spread thin, only the
/// number of names.
pub fn main_of(ranked: impl Iterator<Item = (String, u64)>, all: u64) -> Option<String> {
    let mut ranked = ranked.peekable();
    let first = percent(ranked.peek()?.1, all)?;
    if first < SPREAD_PCT {
        let many = u64::try_from(ranked.count()).unwrap_or(u64::MAX);
        return Some(format!(
            "spread over {}, none above {first:.1} %",
            grouped(many)
        ));
    }
    let is_named =
        |one: &(String, u64)| percent(one.1, all).is_some_and(|share| share >= LEAST_PCT);
    let words: Vec<_> = ranked
        .take(NAMED)
        .take_while(is_named)
        .map(|one| one.0)
        .collect();
    Some(words.join(", "))
}
