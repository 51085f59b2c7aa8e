//! Findings about threads that waited for each other on futexes.
//!
//! A futex word is where threads wait in the kernel: for a mutex, a condition, or the end of a
//! thread. The threads that wait and the threads that wake them show which of these it is:
//!
//! ```text
//! many threads at one word, woken by threads that wait there too    a lock
//! many threads at one word, woken by others                         work is handed over
//! a word for each thread, woken by threads that wait so too         a lock that queues its waiters
//! a word for each thread, woken by others                           idle workers
//! ```
//!
//! A lock may have several adjacent words: a mutex and its conditions, as in Python's global lock.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use swtch_core::{Arch, Meanwhile, Nanos, Reason, Spent, WaitObject, WakerKind};
use swtch_output::sheet::percent;
use swtch_output::text::counted;

use super::super::ends::WaitEnds;
use super::super::wait::{Object, ObjectKind, ObjectWaits, Objects};
use super::super::waker::Waker;
use super::advice::{self, AdviceText};
use super::who::main_of;
use super::{Finding, FindingKind, LOST_PCT, MOST_PCT, Subject, VerdictInput, is_often, share};
use swtch_core::Tally;

/// A share of waits on one lock that makes it worth naming.
const WORD_PCT: f64 = 25.0;

/// From this share of waits that a timer ended on, they were for a time. Python's threads look every 5 ms
/// whether its global lock is free, and half of their waits end so.
const TIMED_OUT_PCT: f64 = 80.0;

/// From this share of wakeups together with others on, an object is a barrier. Of three threads at one, two
/// are woken together, and the first of them has nobody before.
const BARRIER_PCT: f64 = 40.0;

/// From this share on, nearly all are of one kind.
const NEARLY_ALL_PCT: f64 = 80.0;

/// Most bytes between two adjacent words of one lock: the two conditions and mutexes of Python's
/// global lock take 176 bytes (`struct _gil_runtime_state`, `CPython` 3.11, with glibc's types).
const MOST_APART: u64 = 192;

/// The names that Java (`HotSpot`) gives the threads that collect garbage, as `jstack` lists them. `VM Thread` begins a
/// collection and ends it.
const COLLECTORS: [&str; 5] = ["GC Thread#", "G1 ", "ZWorker", "Shenandoah", "VM Thread"];

/// Returns true if a thread with this name collects Java's garbage.
pub(super) fn is_collector(name: &str) -> bool {
    COLLECTORS.iter().any(|known| name.starts_with(known))
}

/// Futex words at which several threads wait, side by side in one process; or those of several locks that are waited for
/// in one function, as each row of a table may have one: then the first is that of the longest waits.
#[derive(Debug)]
struct FutexWords<'a> {
    words: Vec<&'a (Object, ObjectWaits)>,
    /// How many locks these are.
    locks: u64,
    sum: Sum,
}

/// The counts of several futex words.
#[derive(Clone, Debug, Default)]
struct Sum {
    switches: u64,
    blocked: Nanos,
    /// The most threads at one of them.
    waiters: u64,
    woken_by_task: u64,
    woken_by_waiter: u64,
    woken_by_peer: u64,
    woken_together: u64,
    meanwhile: Meanwhile,
    ends: WaitEnds,
}

/// Returns true if an object at which so many threads wait is a lock: most of them are woken by others that wait there,
/// too.
fn is_lock(waiters: u64, woken_by_waiter: u64, woken_by_task: u64) -> bool {
    let by_waiter = percent(woken_by_waiter, woken_by_task);
    waiters > 1 && by_waiter.is_some_and(|share| share >= MOST_PCT)
}

/// Time at objects that are locks, of any kind: at a semaphore, a pipe of tokens or a futex word.
#[derive(Clone, Debug, Default)]
pub struct TimeAtLocks {
    /// The time for which threads were blocked there.
    blocked: Nanos,
    /// The time for which they were blocked in calls that wait for nothing but a lock.
    pub(super) in_calls: Nanos,
    /// Of both, what those did meanwhile who let go of them, as far as it is known.
    meanwhile: Meanwhile,
    /// The time for which threads waited at any futex for one of lower priority that had no CPU.
    pub(super) inverted: Nanos,
    /// Of [`Self::inverted`], the part at objects that are not known to be locks.
    inverted_elsewhere: Nanos,
    /// The time for which threads waited for others of their program, by what these did meanwhile, where nothing tells
    /// whether they waited for what these had, or for work: not at locks, nor where work is handed out to several.
    pub(super) elsewhere: Meanwhile,
    /// The time for which threads waited where work is handed out to several of them: they had none.
    pub(super) handed_out: Nanos,
    /// For each that a thread may be held up by: the lock at which most was waited for such threads.
    main: [Option<(Object, Nanos)>; Spent::ALL.len()],
}

impl TimeAtLocks {
    /// After all rows, and what was open at the end.
    pub fn of(
        objects: &Objects,
        arch: Option<Arch>,
        runs_goroutines: impl Fn(usize) -> bool,
    ) -> Self {
        let mut time = Self {
            elsewhere: *objects.between_processes(),
            ..Self::default()
        };
        for (object, waited) in objects.ranked() {
            let inverted = waited.meanwhile.inverted;
            time.inverted += inverted;
            let mut sum = Sum::default();
            sum.add(waited);
            if object.kind == ObjectKind::Futex && sum.hands_out() {
                time.handed_out += waited.blocked;
            }
            // A thread without a goroutine has nothing to do, whatever goroutines wait for.
            if waited.waiters < 2
                && object.kind == ObjectKind::Futex
                && runs_goroutines(object.process)
            {
                continue;
            }
            if !sum.is_lock_at(object, arch) {
                time.inverted_elsewhere += inverted;
                if sum.waiters < 2 {
                    time.elsewhere.add(&waited.meanwhile);
                }
                continue;
            }
            if object.is_lock_call(arch) {
                time.in_calls += waited.blocked;
            } else {
                time.blocked += waited.blocked;
            }
            time.meanwhile.add(&waited.meanwhile);
            for (main, spent) in time.main.iter_mut().zip(Spent::ALL) {
                let here = waited.meanwhile.of(spent);
                if here > main.map_or(Nanos::ZERO, |main| main.1) {
                    *main = Some((*object, here));
                }
            }
        }
        time
    }

    /// Time that threads lost by waiting for others: at locks, and for one of lower priority without a CPU.
    pub fn lost(&self) -> Nanos {
        self.blocked + self.inverted_elsewhere
    }

    /// Returns how long threads waited at locks for others that were held up by this.
    pub(super) const fn through(&self, spent: Spent) -> Nanos {
        self.meanwhile.of(spent)
    }
}

/// Returns true if threads that wait for each other show that this object is a lock.
pub fn is_lock_object(object: &Object, waited: &ObjectWaits, arch: Option<Arch>) -> bool {
    let mut sum = Sum::default();
    sum.add(waited);
    sum.is_lock_at(object, arch)
}

impl Sum {
    fn add(&mut self, waited: &ObjectWaits) {
        self.switches += waited.switches;
        self.blocked += waited.blocked;
        self.waiters = self.waiters.max(waited.waiters);
        self.woken_by_task += waited.woken_by_task;
        self.woken_by_waiter += waited.woken_by_waiter;
        self.woken_by_peer += waited.woken_by_peer;
        self.woken_together += waited.woken_together;
        self.meanwhile.add(&waited.meanwhile);
        self.ends.merge(&waited.ends);
    }

    /// Returns true if looks saw who held it: the runtime says that it is its global lock.
    fn is_known_holder(&self) -> bool {
        !self.ends.held_in.is_empty()
    }

    /// Returns true if the wakers wait there, too. If no task was seen to wake, there is no sign of a lock.
    fn is_lock(&self) -> bool {
        let by_wakers = is_lock(self.waiters, self.woken_by_waiter, self.woken_by_task);
        self.is_known_holder() || (!self.is_timed_out() && by_wakers)
    }

    /// Returns true if the object at which all of these waits were is a lock. Two that hand something to and fro by a
    /// file have a conversation.
    fn is_lock_at(&self, object: &Object, arch: Option<Arch>) -> bool {
        let is_lock = match object.kind {
            ObjectKind::Futex => self.is_lock(),
            ObjectKind::File(_) | ObjectKind::Call => {
                object.may_be_a_lock() && self.waiters > 2 && self.is_lock()
            }
        };
        is_lock || object.is_lock_call(arch)
    }

    /// Returns true if most of these waits ended by their own limit, so that nobody has let go of anything.
    fn is_timed_out(&self) -> bool {
        let all: u64 = self.ends.wakers.values().sum();
        let timer = self.ends.wakers.get(&Waker::Other(WakerKind::Timer));
        let by_timer = percent(timer.copied().unwrap_or(0), all);
        // Python's threads look again every 5 ms, however long one of them holds its lock.
        !self.is_known_holder() && by_timer.is_some_and(|share| share >= TIMED_OUT_PCT)
    }

    /// Returns true if others hand out work there.
    fn hands_out(&self) -> bool {
        let by_others = self.woken_by_task.saturating_sub(self.woken_by_waiter);
        let all: u64 = self.ends.wakers.values().sum();
        let by_others = percent(by_others, all);
        self.waiters > 1 && by_others.is_some_and(|share| share >= MOST_PCT)
    }

    /// Returns true if those who have it mostly sleep meanwhile, or wait for others.
    fn is_held_asleep(&self) -> bool {
        let asleep = self.meanwhile.of(Spent::Clock) + self.meanwhile.of(Spent::Others);
        let share = percent(asleep.as_ns(), self.meanwhile.whole().as_ns());
        share.is_some_and(|share| share >= MOST_PCT)
    }

    /// Returns true if those who wait are mostly woken together, by one of them that came last. A pool without work is
    /// woken together, too, but by others.
    fn is_barrier(&self) -> bool {
        let together = percent(self.woken_together, self.woken_by_task);
        self.is_lock() && self.waiters > 2 && together.is_some_and(|share| share >= BARRIER_PCT)
    }
}

impl FutexWords<'_> {
    fn with(mut self, other: Self) -> Self {
        for word in other.words {
            self.sum.add(&word.1);
            self.words.push(word);
        }
        self.locks += other.locks;
        self
    }
}

/// As [`VerdictInput::parked_words`], of threads of which it is known that they run goroutines.
fn parked_by_go(sum: &Sum, where_: &str, count: &str) -> (&'static str, String, AdviceText) {
    let seen = format!(
        "Threads of Go's runtime sleep until a goroutine can run, at {where_}: {count}, blocked {} in all.",
        sum.blocked,
    );
    ("futex_idle", seen, advice::GO_IDLE.told())
}

impl VerdictInput<'_> {
    /// The lock at which most time is lost, or with the most waits, if it accounts for enough of those for futexes.
    pub(super) fn one_lock(&self, total: &Tally) -> Option<Finding> {
        let lock = self.main_lock(total)?;
        let FutexWords { words, locks, sum } = lock;
        let (first, _) = *words.first()?;
        let process = self.names.process(first.process).label();
        let of_futexes = self.of_programs(Reason::Futex).switches;
        let is_known = sum.is_known_holder();
        let is_python =
            is_known || (words.len() > 1 && locks == 1 && self.is_python(first.process));
        let is_barrier = sum.is_barrier() && !is_python;
        let alike = format!("as at {locks} locks that are alike, most at futex word");
        let what = match (words.len(), sum.is_lock()) {
            _ if is_known => "for Python's global interpreter lock (GIL)",
            _ if locks > 1 && !is_barrier => alike.as_str(),
            _ if is_barrier => "Threads wait for the last of them, as at a barrier: futex word",
            _ if is_python => {
                "Threads wait for each other, most likely for Python's global interpreter lock (GIL): futex words side by \
                 side"
            }
            (1, true) => "as at one lock: futex word",
            (_, true) => "as at one lock: futex words side by side",
            (1, false) => "One futex word",
            (_, false) => "Futex words side by side, as those of one lock and its conditions",
        };
        let (whose, held) = match what {
            _ if is_known => {
                let held = self.one_place(&sum.ends.held_in);
                let held = held.map(|functions| format!(", which is held in {functions}"));
                let whose = "Threads wait for each other, ".to_owned();
                (whose, format!("{}: futex word", held.unwrap_or_default()))
            }
            _ if what.starts_with("as at") => {
                let place = self.in_function(&sum.ends.waited_in);
                (
                    format!("Threads wait for each other{place}, "),
                    String::new(),
                )
            }
            _ => Default::default(),
        };
        let advice = match (sum.is_lock(), is_python) {
            _ if sum.is_timed_out() => advice::TIMED_OUT.told(),
            _ if is_barrier => advice::BARRIER.told(),
            (true, true) => advice::GIL.told(),
            (true, false) if sum.is_held_asleep() => advice::LOCK_ASLEEP.told(),
            (true, false) => advice::LOCK.told_with(&[
                ("share", &share(sum.woken_by_waiter, sum.woken_by_task)),
                ("stacks", self.how_to_name_it()),
            ]),
            (false, _) => advice::HAND_OVER.told(),
        };
        let lost = if sum.is_lock() {
            sum.blocked.saturating_sub(self.held_up(&sum.meanwhile))
        } else {
            // A worker without work loses nothing by being blocked; one that waits for a lock does.
            Nanos::ZERO
        };
        let (kind, time) = self
            .weighed(lost, self.longest_of(&[Reason::Futex]), sum.switches, total)
            .unwrap_or((FindingKind::Frequent, Nanos::ZERO));
        let blocked = match kind {
            FindingKind::Lost if time == sum.blocked => {
                format!("blocked {}", self.lost_words(time))
            }
            FindingKind::Lost => format!(
                "blocked {} in all, and for nothing but this {}",
                sum.blocked,
                self.lost_words(time)
            ),
            FindingKind::Frequent => format!("blocked {} in all", sum.blocked),
        };
        // Who ended a wait of Python's threads for its lock is mostly the clock, and did not hold it.
        let who_had_it = self.who_had_it(&sum).filter(|_| sum.is_lock() && !is_known);
        let mut places: Vec<_> = who_had_it.into_iter().collect();
        places.extend(self.course(&sum.ends));
        Some(self.blamed_on_collector(Finding {
            name: if sum.is_timed_out() {
                "futex_timeout"
            } else if is_barrier {
                "futex_barrier"
            } else if sum.is_lock() {
                "futex_contention"
            } else {
                "futex_hand_over"
            },
            kind,
            reason: Some(Reason::Futex),
            subject: match words.len() {
                1 => Subject::Object(*first),
                _ => Subject::Reason(Reason::Futex),
            },
            switches: sum.switches,
            time,
            seen: format!(
                "{whose}{what}{held}, {:#x} in {process}: {} ({} of all, {} of those for a futex) by {}, {blocked}.",
                first.key,
                counted(sum.switches, "context switch"),
                share(sum.switches, total.switches),
                share(sum.switches, of_futexes),
                match locks {
                    1 => counted(sum.waiters, "thread"),
                    _ => format!("up to {} at each", counted(sum.waiters, "thread")),
                },
            ),
            places,
            advice: Some(advice),
        }))
    }

    /// The part of waits at locks that is charged to what held up those who had them, and not to the locks.
    fn held_up(&self, meanwhile: &Meanwhile) -> Nanos {
        let no_cpu = meanwhile
            .of(Spent::NoCpu)
            .saturating_sub(meanwhile.inverted);
        let others = [
            Spent::Throttled,
            Spent::Disk,
            Spent::Memory,
            Spent::KernelLock,
        ];
        let others: Nanos = others.iter().map(|spent| meanwhile.of(*spent)).sum();
        self.by_tasks(no_cpu) + meanwhile.inverted + others
    }

    /// `whoever had it meanwhile: ran 80.0 %, slept 12.0 %`
    fn who_had_it(&self, sum: &Sum) -> Option<String> {
        let words = self.spent_in_words(&sum.meanwhile)?;
        Some(format!("whoever had it meanwhile: {words}"))
    }

    /// `ran 80.0 %, slept 12.0 %`
    pub(super) fn spent_in_words(&self, meanwhile: &Meanwhile) -> Option<String> {
        let whole = meanwhile.whole();
        if whole == Nanos::ZERO {
            return None;
        }
        let mut parts = [
            (Spent::Ran, "ran"),
            (Spent::NoCpu, "had no CPU"),
            (Spent::Throttled, "had used up its CPU quota"),
            (Spent::Disk, "waited for a file or disk"),
            (Spent::Memory, "waited for memory"),
            (Spent::KernelLock, "waited for a lock of the kernel"),
            (Spent::Clock, "slept, or waited for a time limit"),
            (Spent::Others, "waited for others, or for the network"),
            (Spent::Untold, "did what is not told"),
        ]
        .map(|(spent, words)| (meanwhile.of(spent), words));
        parts.sort_by_key(|part| Reverse(part.0));
        let named = parts.iter().map(|(time, words)| {
            let words = format!("{words} {}", share(time.as_ns(), whole.as_ns()));
            (words, time.as_ns())
        });
        main_of(named, whole.as_ns())
    }

    /// Tells of waits that may be for work, for those that were held up by this; `None` if they are short beside
    /// `whole`.
    pub(super) fn through_siblings(&self, spent: Spent, whole: Nanos) -> Option<String> {
        let time = self.at_locks.elsewhere.of(spent);
        percent(time.as_ns(), whole.as_ns()).filter(|share| *share >= MOST_PCT)?;
        Some(format!(
            "besides, for {time} others of its threads waited for those that did so: for what these had (a lock), or for \
             work"
        ))
    }

    /// Tells of waits at locks for others that were held up by this; `None` if it is too little.
    pub(super) fn through_locks(&self, spent: Spent, time: Nanos, whole: Nanos) -> Option<String> {
        percent(time.as_ns(), whole.as_ns()).filter(|share| *share >= LOST_PCT)?;
        let (object, _) = self.at_locks.main[spent as usize]?;
        let process = self.names.process(object.process).label();
        Some(format!(
            "of that, {time} in threads that waited at locks for one that was held up by this, most {} in {process}",
            match object.kind {
                ObjectKind::Futex => format!("at futex word {:#x}", object.key),
                ObjectKind::File(_) => format!("at file {:#x}", object.key),
                ObjectKind::Call => self.call_words(object.key),
            }
        ))
    }

    /// `in flock()`
    fn call_words(&self, number: u64) -> String {
        let number = u32::try_from(number).ok();
        let name = number.and_then(|number| self.arch?.syscall_name(number));
        name.map_or_else(|| "in one call".to_owned(), |name| format!("in {name}()"))
    }

    /// Returns how long tasks had no CPU while one of higher priority waited for them.
    pub(super) fn held_back(&self) -> Nanos {
        let tasks = 0..self.names.thread_count();
        tasks.map(|task| self.objects.held_back(task)).sum()
    }

    /// The threads with the most of some time, as `waited: a/12 80.0 %, b/13 20.0 %`.
    pub(super) fn longest(&self, time: impl Fn(usize) -> Nanos, what: &str) -> Option<String> {
        let tasks = (0..self.names.thread_count()).map(|task| (task, time(task)));
        let mut tasks: Vec<_> = tasks.filter(|(_, time)| *time > Nanos::ZERO).collect();
        tasks.sort_by_key(|(task, time)| (Reverse(*time), *task));
        let all: Nanos = tasks.iter().map(|(_, time)| *time).sum();
        let named = tasks.iter().map(|(task, time)| {
            let share = share(time.as_ns(), all.as_ns());
            (format!("{} {share}", self.names.label(*task)), time.as_ns())
        });
        Some(format!("{what}{}", main_of(named, all.as_ns())?))
    }

    /// Threads that waited for one of lower priority, which had no CPU.
    pub(super) fn priority_inversion(&self, total: &Tally) -> Option<Finding> {
        let waited = self.at_locks.inverted;
        let held_back = self.held_back();
        let longest = self.longest_of(&[Reason::Futex]);
        let weight = self.weighed(waited + held_back, longest, 0, total)?;
        let objects = self.objects.ranked();
        let (object, _) = objects
            .iter()
            .max_by_key(|(_, waited)| waited.meanwhile.inverted)?;
        let process = self.names.process(object.process).label();
        let seen = format!(
            "Threads wait for others of lower priority that have no CPU (priority inversion): they waited {waited}, and \
             those had no CPU for {held_back}; together {}.",
            self.lost_words(weight.1)
        );
        Some(Finding {
            places: self
                .longest(|task| self.objects.inverted(task), "waited: ")
                .into_iter()
                .chain(self.longest(|task| self.objects.held_back(task), "had no CPU: "))
                .chain([format!("most at futex word {:#x} in {process}", object.key)])
                .chain(self.who_had_the_cpu())
                .collect(),
            advice: Some(advice::INVERSION.told()),
            ..Finding::of_time("priority_inversion", weight, seen)
        })
    }

    /// Threads that wait at a file, or in a call, and are woken by others that wait there, too: whoever has what comes
    /// out of it may work.
    pub(super) fn tokens(&self, total: &Tally) -> Option<Finding> {
        let objects = self.objects.ranked();
        let mut sum = Sum::default();
        let mut main: Option<(&Object, Nanos)> = None;
        let is_one = |object: &Object| object.kind == ObjectKind::Call || object.holds_tokens();
        for (object, waited) in objects.iter().filter(|(object, _)| is_one(object)) {
            let mut one = Sum::default();
            one.add(waited);
            if !one.is_lock_at(object, self.arch) {
                continue;
            }
            if main.is_none_or(|(_, blocked)| blocked < one.blocked) {
                main = Some((object, one.blocked));
            }
            sum.add(waited);
        }
        let (object, _) = main?;
        let lost = sum.blocked.saturating_sub(self.held_up(&sum.meanwhile));
        let (kind, time) = self.weighed(
            lost,
            self.longest_of(&[Reason::Pipe, Reason::Net, Reason::Ipc]),
            sum.switches,
            total,
        )?;
        Some(Finding {
            name: "token_contention",
            kind,
            reason: None,
            subject: Subject::Object(*object),
            switches: sum.switches,
            time,
            seen: format!(
                "Threads wait for each other {}, as for a {} that only one can have: {} by {}, {}.",
                match object.kind {
                    ObjectKind::File(WaitObject::Fifo) => "at a pipe".to_owned(),
                    ObjectKind::File(WaitObject::Socket) => "at a socket".to_owned(),
                    ObjectKind::Call => self.call_words(object.key),
                    _ => "at an eventfd".to_owned(),
                },
                match object.kind {
                    ObjectKind::Call => "lock",
                    _ => "token",
                },
                counted(sum.switches, "switch"),
                counted(sum.waiters, "thread"),
                self.lost_words(time),
            ),
            places: self
                .who_had_it(&sum)
                .into_iter()
                .chain(self.course(&sum.ends))
                .collect(),
            advice: Some(advice::TOKEN.told()),
        })
    }

    /// Threads that each wait at a futex word of their own.
    pub(super) fn parked(&self, total: &Tally) -> Option<Finding> {
        let main = self.main_lock(total);
        let is_of_main = |object: &Object| {
            main.as_ref()
                .is_some_and(|main| main.words.iter().any(|(word, _)| word == object))
        };
        let objects = self.objects.ranked();
        let rest = objects
            .iter()
            .filter(|(object, _)| object.kind == ObjectKind::Futex && !is_of_main(object));
        let mut sum = Sum::default();
        let (mut words, mut of_go) = (0, Nanos::ZERO);
        for (object, waited) in rest {
            sum.add(waited);
            words += 1;
            if self.is_of_go(object) {
                of_go += waited.blocked;
            }
        }
        let is_of_go = percent(of_go.as_ns(), sum.blocked.as_ns());
        let is_of_go = is_of_go.is_some_and(|share| share >= NEARLY_ALL_PCT);
        // What stacks tell to be for locks is told as that.
        let at_locks = percent(self.stack_locks.sum().as_ns(), sum.blocked.as_ns());
        let is_of_locks = at_locks.is_some_and(|share| share >= NEARLY_ALL_PCT);
        if !self.is_much(sum.switches, sum.blocked, total) || is_of_locks {
            return None;
        }
        // If there is a lock besides, the list of threads that wait for any futex says nothing
        // about these.
        let who = self.who(Reason::Futex).filter(|_| main.is_none());
        let mut places: Vec<_> = who.into_iter().collect();
        places.extend(self.course(&sum.ends));
        let count = self.switches(
            &Tally {
                switches: sum.switches,
                ..Tally::default()
            },
            total,
        );
        let where_ = counted(words, "futex word");
        let (name, seen, advice) = match is_of_go {
            true => parked_by_go(&sum, &where_, &count),
            false => self.parked_words(&sum, &where_, &count),
        };
        Some(self.blamed_on_collector(Finding {
            name,
            kind: FindingKind::Frequent,
            reason: Some(Reason::Futex),
            // The saving is for all futex waits, so it is given for one of the two findings only.
            subject: match main {
                Some(_) => Subject::Time,
                None => Subject::Reason(Reason::Futex),
            },
            switches: sum.switches,
            time: Nanos::ZERO,
            seen,
            places,
            advice: Some(advice),
        }))
    }

    /// Name, observation and advice for futex waits of which none is that of the main lock. Whether
    /// the threads queue for something or wait for work is told by who wakes them.
    fn parked_words(
        &self,
        sum: &Sum,
        where_: &str,
        count: &str,
    ) -> (&'static str, String, AdviceText) {
        if sum.is_timed_out() {
            let seen = format!(
                "Threads wait until a time they chose, at {where_}: {count}, blocked {} in all.",
                sum.blocked
            );
            return ("futex_timeout", seen, advice::TIMED_OUT.told());
        }
        let is_queue =
            percent(sum.woken_by_peer, sum.woken_by_task).is_some_and(|share| share >= MOST_PCT);
        if is_queue {
            (
                "futex_queue",
                format!(
                    "Threads wait for each other, at {where_}: {count}, blocked {} in all. {} of these wakeups \
                     came from threads that wait so too: for a lock that queues its waiters (a Java monitor, a \
                     lock of Go, Rust or PostgreSQL), or for work that they hand to each other.",
                    sum.blocked,
                    share(sum.woken_by_peer, sum.woken_by_task),
                ),
                advice::QUEUE.told_with(&[("stacks", self.how_to_name_it())]),
            )
        } else {
            (
                "futex_idle",
                format!(
                    "Threads wait for work, at {where_}: {count}, blocked {} in all. Those who wake them do \
                     not wait so themselves.",
                    sum.blocked,
                ),
                advice::WORKERS.told(),
            )
        }
    }

    /// If most wakeups came from Java's garbage collector, says so, and changes the advice: these
    /// waits are not for a lock of the program. The collector's threads hand work to each other,
    /// and wake the program's threads when they are done.
    fn blamed_on_collector(&self, mut finding: Finding) -> Finding {
        let wakers = &self.details.ends_of(Reason::Futex).wakers;
        let is_collector = |waker: &Waker| match waker {
            Waker::Task(task) => is_collector(&self.names.thread(*task).comm),
            Waker::Other(_) => false,
        };
        let all: u64 = wakers.values().sum();
        let by_it = wakers.iter().filter(|(waker, _)| is_collector(waker));
        let by_it: u64 = by_it.map(|(_, count)| count).sum();
        if percent(by_it, all).is_some_and(|share| share >= MOST_PCT) {
            let words = format!(
                " {} of all wakeups from futexes came from Java's garbage collector (GC threads, VM Thread).",
                share(by_it, all)
            );
            finding.seen.push_str(&words);
            finding.advice = Some(advice::COLLECTOR.told());
        }
        finding
    }

    /// The adjacent futex words at which most of the time was lost that is lost at locks, if these are a large part of it;
    /// else those with the most waits, if these are a large part of all futex waits.
    fn main_lock(&self, total: &Tally) -> Option<FutexWords<'_>> {
        let locks = self.joined_if_alike(self.locks());
        let lost = |lock: &FutexWords<'_>| match lock.sum.is_lock() {
            true => lock.sum.blocked,
            false => Nanos::ZERO,
        };
        let is_much = |lock: &FutexWords<'_>| self.is_much(lock.sum.switches, lost(lock), total);
        let longest = locks
            .iter()
            .enumerate()
            .max_by_key(|(_, lock)| (lost(lock), lock.sum.switches, Reverse(lock.words[0].0)));
        let most = locks.iter().enumerate().max_by_key(|(_, lock)| {
            (
                lock.sum.switches,
                lock.sum.blocked,
                Reverse(lock.words[0].0),
            )
        });
        let at_locks = self.at_locks.lost().as_ns();
        let of_futexes = self.of_programs(Reason::Futex).switches;
        let is_large = |part, whole| percent(part, whole).is_some_and(|share| share >= WORD_PCT);
        let longest =
            longest.filter(|(_, lock)| is_large(lost(lock).as_ns(), at_locks) && is_much(lock));
        let most =
            most.filter(|(_, lock)| is_large(lock.sum.switches, of_futexes) && is_much(lock));
        let main = longest.or(most).map(|(place, _)| place)?;
        locks.into_iter().nth(main)
    }

    /// Joins the locks of a process that are waited for in one function with the same callers, unless one of them has most
    /// of these waits. A function that takes a lock for whoever calls it says nothing by itself.
    fn joined_if_alike<'a>(&self, locks: Vec<FutexWords<'a>>) -> Vec<FutexWords<'a>> {
        let mut rest = Vec::new();
        let mut alike: BTreeMap<(usize, String), Vec<FutexWords<'a>>> = BTreeMap::new();
        for lock in locks {
            let place = self.one_place(&lock.sum.ends.waited_in);
            match (lock.words.first(), place) {
                (Some(first), Some(place)) if lock.sum.is_lock() => {
                    alike
                        .entry((first.0.process, place))
                        .or_default()
                        .push(lock);
                }
                _ => rest.push(lock),
            }
        }
        for mut group in alike.into_values() {
            group.sort_by_key(|lock| Reverse(lock.sum.blocked));
            let all: Nanos = group.iter().map(|lock| lock.sum.blocked).sum();
            let is_main = |lock: &FutexWords<'_>| {
                percent(lock.sum.blocked.as_ns(), all.as_ns()).is_none_or(|share| share >= MOST_PCT)
            };
            match group.first() {
                Some(first) if !is_main(first) => {
                    rest.extend(group.into_iter().reduce(FutexWords::with))
                }
                _ => rest.extend(group),
            }
        }
        rest
    }

    /// Futex words; adjacent words at which several threads wait are joined.
    fn locks(&self) -> Vec<FutexWords<'_>> {
        let mut words = self.objects.ranked();
        words.retain(|(object, waited)| {
            // Each thread of Go's runtime sleeps at a word of its own.
            let is_of_go = waited.waiters < 2 && self.is_of_go(object);
            object.kind == ObjectKind::Futex && waited.switches > 0 && !is_of_go
        });
        words.sort_by_key(|(object, _)| *object);
        let mut locks: Vec<FutexWords<'_>> = Vec::new();
        let mut shared_until: Option<(usize, u64)> = None;
        for word in words {
            let (object, waited) = word;
            let is_shared = waited.waiters > 1 || !waited.ends.held_in.is_empty();
            let is_beside = shared_until.is_some_and(|(process, key)| {
                is_shared && process == object.process && object.key - key <= MOST_APART
            });
            shared_until = is_shared.then_some((object.process, object.key));
            if !is_beside {
                locks.push(FutexWords {
                    words: Vec::new(),
                    locks: 1,
                    sum: Sum::default(),
                });
            }
            if let Some(lock) = locks.last_mut() {
                lock.words.push(word);
                lock.sum.add(waited);
            }
        }
        locks
    }

    /// Returns true if the switches are many, or the blocked time is long.
    fn is_much(&self, switches: u64, blocked: Nanos, total: &Tally) -> bool {
        is_often(switches, total) || self.is_long(blocked)
    }

    /// Returns true for an object of a process whose goroutines are known.
    fn is_of_go(&self, object: &Object) -> bool {
        let process = self.names.process(object.process);
        self.workers.are_known_of(process.pid)
    }

    /// Returns true if the program or its main thread is called `python…`.
    fn is_python(&self, process: usize) -> bool {
        let process = self.names.process(process);
        let command = process.command.as_deref().unwrap_or_default();
        let program = command.split(' ').next().unwrap_or_default();
        let program = program.rsplit('/').next().unwrap_or_default();
        [program, &process.comm]
            .iter()
            .any(|name| name.starts_with("python"))
    }

    /// A hint for traces without stacks, in which nothing tells which lock it is.
    pub(super) fn how_to_name_it(&self) -> &'static str {
        match self.symbols {
            Some(_) => "",
            None => {
                "; record without --no-stacks, to see in which functions it is taken and let go"
            }
        }
    }
}
