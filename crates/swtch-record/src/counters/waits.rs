//! Looks at what blocked threads wait for, about a hundred times a second, without privilege.
//!
//! A look at a blocked thread tells its system call, the call's arguments and where in the program
//! it is. The rules that judge recorded switches judge that, too. What is seen is time, not
//! switches: a wait is met the more often the longer it lasts, and each look stands for the time
//! since the look before. Short waits are seen rarely.
//!
//! Looks divide a time that is known: what passed, less what the thread ran and waited for a CPU, is
//! how long it was blocked. On a machine whose CPUs are all busy a look has to wait for a CPU as well,
//! comes when others have just gone to sleep, and finds them blocked too often. So what looks saw of a
//! thread is scaled to its blocked time ([`scaled`]).
//!
//! ```text
//!   thread   ──run──┤ futex ├─run─┤    read     ├──
//!   looks      ▲    ▲    ▲    ▲    ▲    ▲    ▲    ▲      at random distances: a program that
//!                   futex          read read read        does something every 10 ms is not
//!                                                        always met at the same place
//! ```
//!
//! A look that finds the thread where it was, without a run in between, is the same wait and costs
//! two small files. If the thread moved on before call and state were read, they may be of two waits:
//! that it was blocked counts, and for what is unknown. If it moved on afterwards, its stack is left out.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

use rustc_hash::{FxHashMap, FxHashSet};
use swtch_core::{
    Arch, Evidence, EvidenceBits, Nanos, Pid, Reason, StackEnd, StackKind, SyscallTable, Tid,
    Waits, classify,
};
use swtch_host::thread::{BlockedAt, Doing, has_stayed, read_doing, read_runs, read_state};
use swtch_report::report::Symbols;

mod object;

use crate::stacks::outside::OutsideStacks;
use object::{OpenFile, ProgramKind};

/// Mean time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// A blocked thread's wait, as one look saw it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SampledWait {
    /// The thread's name.
    comm: String,
    reason: Reason,
    call: Option<&'static str>,
    on: Option<String>,
    /// Number of the stack it was called from.
    callers: Option<u32>,
}

/// The number of times that something was seen, and the time that this stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub looks: u64,
    pub about: Nanos,
}

impl Seen {
    fn add(&mut self, other: Self) {
        self.looks += other.looks;
        self.about += other.about;
    }
}

impl SampledWait {
    /// A wait that ended while it was looked at.
    fn unknown(comm: &str) -> Self {
        Self {
            comm: comm.to_owned(),
            reason: Reason::Unknown,
            call: None,
            on: None,
            callers: None,
        }
    }
}

/// The result of a look at a thread.
#[derive(Debug)]
enum Looked {
    /// It runs, could run, or has ended.
    IsNotBlocked,
    /// It was blocked, and moved on before all was read.
    MovedOn,
    Waits(LastSeen),
}

/// The wait in which a thread was seen at the last look.
#[derive(Clone, Debug)]
struct LastSeen {
    pid: Pid,
    /// The number of times that it had got a CPU then; `None` where the kernel does not count it.
    runs: Option<u64>,
    wait: SampledWait,
}

/// The waits that looks saw of one thread.
#[derive(Debug, Default)]
struct ThreadLooks {
    waits: FxHashMap<SampledWait, Seen>,
    /// The time that all of them stand for.
    about: Nanos,
    /// That of the looks before the thread's last sample, up to which its blocked time is known.
    about_sampled: Nanos,
}

impl ThreadLooks {
    fn add(&mut self, wait: SampledWait, weight: Seen) {
        self.waits.entry(wait).or_default().add(weight);
        self.about += weight.about;
    }
}

/// All that was seen.
#[derive(Debug)]
pub(super) struct WaitLooks {
    /// The machine's system calls; `None` for one whose calls are not known.
    calls: Option<(Arch, SyscallTable)>,
    callers: OutsideStacks,
    seen: FxHashMap<(Pid, Tid), ThreadLooks>,
    now: FxHashMap<Tid, LastSeen>,
    restart_call: Option<u32>,
    /// The last call of each thread that was no `restart_syscall`.
    last_calls: FxHashMap<Tid, BlockedAt>,
    last_look: Option<Instant>,
    looks: u64,
    longest_gap: Duration,
    /// Looks that the kernel refused.
    refused: u64,
    /// Looks at which the thread moved on while it was looked at.
    moved_on: u64,
}

/// The waits that were seen, added up for reading.
#[derive(Debug)]
pub(super) struct WaitsSeen {
    pub looks: u64,
    pub longest_gap: Nanos,
    pub refused: u64,
    pub moved_on: u64,
    /// The time for which all threads together were blocked while they were sampled; `None` where the kernel does not
    /// account for it, and the lengths of groups are as they were seen.
    pub blocked: Option<Nanos>,
    /// The largest first.
    pub groups: Vec<WaitGroup>,
}

/// Threads of one name that waited for the same reason in the same system call.
#[derive(Debug)]
pub(super) struct WaitGroup {
    pub comm: String,
    pub reason: Reason,
    /// `None` outside of system calls.
    pub call: Option<&'static str>,
    pub seen: Seen,
    /// The things that they waited on, the largest first.
    pub on: Vec<(String, Seen)>,
    /// The places in which they waited, the largest first.
    pub waited_in: Vec<(PlaceOfWait, Seen)>,
}

/// A place in a program at which threads wait.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PlaceOfWait {
    /// The innermost first.
    pub frames: Vec<String>,
    pub ended: Option<StackEnd>,
    /// The program's own functions among them, in one line.
    pub functions: Option<String>,
}

/// Functions that are named of a place.
const FUNCTIONS_NAMED: usize = 3;

impl Default for WaitLooks {
    fn default() -> Self {
        let calls =
            Arch::from_machine(std::env::consts::ARCH).map(|arch| (arch, SyscallTable::of(arch)));
        Self {
            restart_call: calls
                .as_ref()
                .and_then(|(_, calls)| calls.number_named("restart_syscall")),
            calls,
            callers: OutsideStacks::default(),
            seen: FxHashMap::default(),
            now: FxHashMap::default(),
            last_calls: FxHashMap::default(),
            last_look: None,
            looks: 0,
            longest_gap: Duration::ZERO,
            refused: 0,
            moved_on: 0,
        }
    }
}

/// Returns the pause before the next look: around [`LOOK_EVERY`], never in step with the program.
pub(super) fn pause() -> Duration {
    LOOK_EVERY.mul_f64(0.5 + fastrand::f64())
}

impl WaitLooks {
    /// Looks at each of these threads.
    pub(super) fn look<'a>(&mut self, threads: impl Iterator<Item = (Pid, Tid, &'a str)>) {
        let begun = Instant::now();
        let gap = self
            .last_look
            .replace(begun)
            .map_or(Duration::ZERO, |last| begun - last);
        self.longest_gap = self.longest_gap.max(gap);
        self.looks += 1;
        let weight = Seen {
            looks: 1,
            about: super::length(gap),
        };
        let (mut there, mut processes) = (FxHashSet::default(), FxHashSet::default());
        for (pid, tid, comm) in threads {
            there.insert(tid);
            processes.insert(pid);
            match self.look_at(pid, tid, comm) {
                Ok(Looked::Waits(last)) => {
                    let thread = self.seen.entry((pid, tid)).or_default();
                    thread.add(last.wait.clone(), weight);
                    self.now.insert(tid, last);
                }
                Ok(Looked::MovedOn) => {
                    self.moved_on += 1;
                    let thread = self.seen.entry((pid, tid)).or_default();
                    thread.add(SampledWait::unknown(comm), weight);
                    self.now.remove(&tid);
                }
                Ok(Looked::IsNotBlocked) => {
                    self.now.remove(&tid);
                }
                Err(_) => {
                    self.refused += 1;
                    self.now.remove(&tid);
                }
            }
        }
        self.now.retain(|tid, _| there.contains(tid));
        self.last_calls.retain(|tid, _| there.contains(tid));
        self.callers.forget_others(&processes);
    }

    /// Notes that a sample of these threads was taken: how long they were blocked is known up to here.
    pub(super) fn sampled<'a>(&mut self, threads: impl Iterator<Item = (Pid, Tid, &'a str)>) {
        for (pid, tid, _) in threads {
            if let Some(thread) = self.seen.get_mut(&(pid, tid)) {
                thread.about_sampled = thread.about;
            }
        }
    }

    fn look_at(&mut self, pid: Pid, tid: Tid, comm: &str) -> io::Result<Looked> {
        // Asked first: a thread that was woken and has no CPU yet has the same number of runs.
        let Some(Doing::Blocked(at)) = read_doing(pid, tid)? else {
            return Ok(Looked::IsNotBlocked);
        };
        let runs = read_runs(pid, tid)?;
        if let Some(last) = self.now.get(&tid)
            && runs.is_some()
            && (last.pid, last.runs) == (pid, runs)
        {
            return Ok(Looked::Waits(last.clone()));
        }
        let Some(state) = read_state(pid, tid)? else {
            return Ok(Looked::IsNotBlocked);
        };
        if !has_stayed(pid, tid, at, runs)? || state_bits(state) == 0 {
            return Ok(Looked::MovedOn);
        }
        let continued = self.with_restarted_call(tid, at);
        let mut wait = self.judged((pid, tid), comm, continued, state);
        if !has_stayed(pid, tid, at, runs)? {
            // The call was told at once. Its stack was read afterwards, and may be another one by then.
            wait.callers = None;
        }
        Ok(Looked::Waits(LastSeen { pid, runs, wait }))
    }

    /// Replaces `restart_syscall` by the call that it continues, as for recorded switches: after a
    /// signal or a stop the kernel resumes a call with its arguments.
    fn with_restarted_call(&mut self, tid: Tid, at: BlockedAt) -> BlockedAt {
        let Some(number) = at.call else {
            return at;
        };
        if self.restart_call != Some(number) {
            self.last_calls.insert(tid, at);
            return at;
        }
        match self.last_calls.get(&tid) {
            Some(last) if last.args == at.args => BlockedAt {
                call: last.call,
                ..at
            },
            _ => at,
        }
    }

    fn judged(
        &mut self,
        (pid, tid): (Pid, Tid),
        comm: &str,
        at: BlockedAt,
        state: char,
    ) -> SampledWait {
        let program = ProgramKind::of(pid);
        // A 32-bit program's calls have numbers of another table; a kernel thread has none.
        let calls = self.calls.as_ref();
        let calls = calls.filter(|_| program == ProgramKind::Native);
        let waits = match (calls, at.call) {
            (Some((_, calls)), Some(number)) => calls.waits(number),
            _ => Waits::Untold,
        };
        let file = waits
            .is_on_file()
            .then(|| OpenFile::of(pid, tid, at.args[0]))
            .flatten();
        let evidence = Evidence {
            state: state_bits(state),
            bits: EvidenceBits::VOLUNTARY.with(program.bits()),
            syscall: at.call,
            args: at.args,
            wait_object: file
                .as_ref()
                .map_or(Evidence::RUNNABLE.wait_object, |file| file.kind),
            ..Evidence::RUNNABLE
        };
        let reason = match calls {
            Some((_, calls)) => classify(&evidence, calls).reason,
            None => Reason::Blocked,
        };
        let call = match (calls, at.call) {
            (Some((arch, _)), Some(number)) => arch.syscall_name(number),
            _ => None,
        };
        let callers = match program {
            ProgramKind::Native => self.callers.number_of(pid, at),
            ProgramKind::Other | ProgramKind::Kernel => None,
        };
        SampledWait {
            comm: comm.to_owned(),
            reason,
            call,
            on: match waits {
                Waits::Futex => Some(format!("word {:#x} of process {pid}", at.args[0])),
                _ => file.map(|file| file.name),
            },
            callers,
        }
    }

    /// Adds up what was seen, and finds the names of functions. `blocked` is how long each thread was
    /// blocked between its first sample and its last one.
    pub(super) fn added_up(self, blocked: &FxHashMap<(Pid, Tid), Nanos>) -> WaitsSeen {
        let (stacks, frames) = self.callers.named();
        let ends: FxHashMap<_, _> = stacks.iter().map(|stack| (stack.id, stack.end)).collect();
        let symbols = Symbols::new(stacks, &frames).of_whole_stacks();
        let mut groups: FxHashMap<_, Vec<_>> = FxHashMap::default();
        for (thread, looks) in self.seen {
            let known = blocked.get(&thread);
            for (wait, seen) in looks.waits {
                let key = (wait.comm.clone(), wait.reason, wait.call);
                let about = known.map_or(seen.about, |blocked| {
                    scaled(seen.about, looks.about_sampled, *blocked)
                });
                let seen = Seen { about, ..seen };
                groups.entry(key).or_default().push((wait, seen));
            }
        }
        let groups = groups.into_iter().map(|((comm, reason, call), waits)| {
            let mut seen = Seen::default();
            let (mut on, mut waited_in) = (BTreeMap::new(), BTreeMap::new());
            for (wait, part) in waits {
                seen.add(part);
                if let Some(object) = wait.on {
                    add_to(&mut on, object, part);
                }
                if let Some(stack) = wait.callers {
                    let place = PlaceOfWait {
                        frames: symbols.frames(StackKind::User, Some(stack)),
                        ended: ends.get(&stack).copied().flatten(),
                        functions: symbols.functions_in_line(stack, FUNCTIONS_NAMED),
                    };
                    add_to(&mut waited_in, place, part);
                }
            }
            WaitGroup {
                comm,
                reason,
                call,
                seen,
                on: largest_first(on),
                waited_in: largest_first(waited_in),
            }
        });
        let mut groups: Vec<_> = groups.collect();
        groups.sort_by(|a, b| {
            let size = |group: &WaitGroup| std::cmp::Reverse((group.seen.about, group.seen.looks));
            let name = |group: &WaitGroup| (group.comm.clone(), group.reason.index(), group.call);
            (size(a), name(a)).cmp(&(size(b), name(b)))
        });
        WaitsSeen {
            looks: self.looks,
            longest_gap: super::length(self.longest_gap),
            refused: self.refused,
            moved_on: self.moved_on,
            blocked: (!blocked.is_empty()).then(|| blocked.values().copied().sum()),
            groups,
        }
    }
}

/// The part of a thread's blocked time that these looks stand for: as large a part as they are of all
/// looks that found it blocked while it was sampled. Where no look did, nothing is known to divide, and
/// they stand for what passed between them.
fn scaled(looks: Nanos, all_looks: Nanos, blocked: Nanos) -> Nanos {
    if all_looks == Nanos::ZERO {
        return looks;
    }
    let part = u128::from(looks.as_ns()) * u128::from(blocked.as_ns());
    let part = part / u128::from(all_looks.as_ns());
    Nanos::from_ns(u64::try_from(part).unwrap_or(u64::MAX))
}

/// The bits of `task->__state` that a letter stands for (`task_state_array`, `fs/proc/array.c`,
/// v6.18).
const fn state_bits(letter: char) -> u32 {
    match letter {
        'S' => 0x1,
        'D' => 0x2,
        'T' => 0x4,
        't' => 0x8,
        'X' => 0x10,
        'Z' => 0x20,
        'P' => 0x40,
        'I' => 0x402,
        _ => 0,
    }
}

fn add_to<K: Ord>(sums: &mut BTreeMap<K, Seen>, key: K, part: Seen) {
    sums.entry(key).or_default().add(part);
}

fn largest_first<K: Ord>(sums: BTreeMap<K, Seen>) -> Vec<(K, Seen)> {
    let mut sums: Vec<_> = sums.into_iter().collect();
    sums.sort_by_key(|(_, seen)| std::cmp::Reverse((seen.about, seen.looks)));
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(number: u64) -> Nanos {
        Nanos::from_ns(number * 1_000_000)
    }

    /// Looks found the thread blocked for 1.6 s of 0.8 s: half of each is true, and the sum is exact.
    #[test]
    fn looks_divide_the_time_that_the_thread_was_blocked() {
        let all = ms(1_600);
        let parts = [ms(1_200), ms(400)].map(|part| scaled(part, all, ms(800)));
        assert_eq!(parts, [ms(600), ms(200)]);
        assert_eq!(scaled(ms(400), ms(400), ms(500)), ms(500), "met too seldom");
    }

    /// A thread that lived between two samples: nothing says how long it was blocked.
    #[test]
    fn looks_without_a_sample_stand_for_the_time_between_them() {
        assert_eq!(scaled(ms(30), Nanos::ZERO, Nanos::ZERO), ms(30));
    }

    /// Looks after the last sample count as those before it: with a part of the blocked time.
    #[test]
    fn looks_after_the_last_sample_are_scaled_as_the_others() {
        assert_eq!(scaled(ms(100), ms(50), ms(25)), ms(50));
    }
}
