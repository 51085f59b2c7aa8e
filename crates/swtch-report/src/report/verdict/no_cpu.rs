//! Findings about time in which tasks could run and had no CPU, after whatever wait, and to the end of the
//! recording: who had the CPU meanwhile.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;

use swtch_core::{
    Category, CgroupId, Holder, Nanos, Reason, Spent, Switch, Timestamp, cgroup_words,
};
use swtch_output::text::counted;

use super::advice::{self, Advice, AdviceText};
use super::details::is_recorder;
use super::{Finding, LEAST_TIME, MOST_PCT, NAMED, VerdictInput, percent, share};
use swtch_core::Tally;

/// A holder with a smaller share of the time is not named.
const NAMED_PCT: f64 = 5.0;

/// Waking an idle CPU takes its time at each wakeup, and who sleeps again and again does not mind: from this
/// share of the recording on it is told.
const IDLE_PCT: f64 = 10.0;

/// From this share on, others had the CPU; below it, the program's own threads are too many beside them.
const STRANGERS_PCT: f64 = 60.0;

/// From this share on, threads are woken too early, and are not too many.
const WAKER_PCT: f64 = 60.0;

/// From this share on in which CPUs were idle while threads waited for them, they were not too few.
const IDLE_MEANWHILE_PCT: f64 = 15.0;

/// A thread that waits shorter than this for a CPU waits until somebody leaves it, and not for the end of a time slice:
/// 1.4 ms and more on two CPUs (`sysctl_sched_base_slice`, `kernel/sched/fair.c`, v6.18).
const SHORT_QUEUE: Nanos = Nanos::from_ns(1_000_000);

/// A program with little work waits a moment for a CPU at each wakeup: such short waits are told from this share of the
/// recording on.
const SHORT_PCT: f64 = 25.0;

/// The time for which CPUs were busy is counted in hundredths of a second (`/proc/stat`): of less time than this it
/// says nothing.
const LONG_ENOUGH: Nanos = Nanos::from_ns(200_000_000);

/// Length of the windows for which it is asked whether threads waited for a CPU.
const WINDOW: Nanos = Nanos::from_ns(10_000_000);

/// Windows of a recording of eleven hours; waits after that are in no window.
const MOST_WINDOWS: usize = 1 << 22;

/// Waits of programs for a CPU, as far as they have ended.
#[derive(Debug, Default)]
pub(super) struct QueueTime {
    all: Nanos,
    /// Of `all`, in waits shorter than [`SHORT_QUEUE`].
    short: Nanos,
    /// Of `all`, while whoever had woken the thread kept the CPU.
    by_waker: Nanos,
    longest: Nanos,
    /// By the CPU on which they then ran.
    on: Vec<Nanos>,
    /// The moment at which the first window began.
    start: Option<Timestamp>,
    /// The time for which threads waited for a CPU, in waits that ended in each window.
    windows: Vec<Nanos>,
}

impl QueueTime {
    /// Adds the wait before a row's run, and how long of it whoever had woken the task kept that CPU.
    pub(super) fn add(&mut self, row: &Switch, by_waker: Nanos) {
        let (Some(queued), Some(ran)) = (row.wait.runq, row.ran) else {
            return;
        };
        self.all += queued;
        self.by_waker += by_waker;
        let cpu = usize::from(row.cpu.get());
        if cpu >= self.on.len() {
            self.on.resize(cpu + 1, Nanos::ZERO);
        }
        self.on[cpu] += queued;
        self.longest = self.longest.max(queued);
        if queued < SHORT_QUEUE {
            self.short += queued;
        }
        let ended = row.ts.before(ran);
        let start = *self.start.get_or_insert(ended);
        let since = ended.since(start).unwrap_or_default();
        let window = usize::try_from(since.as_ns() / WINDOW.as_ns()).unwrap_or(MOST_WINDOWS);
        if window < MOST_WINDOWS {
            if window >= self.windows.len() {
                self.windows.resize(window + 1, Nanos::ZERO);
            }
            self.windows[window] += queued;
        }
    }

    /// Returns true if most of this time was in short waits.
    fn is_short(&self) -> bool {
        percent(self.short.as_ns(), self.all.as_ns()).is_some_and(|share| share >= MOST_PCT)
    }

    /// The CPUs for which threads waited nearly all of this time.
    fn cpus(&self) -> Vec<usize> {
        let is_much =
            |on: &Nanos| percent(on.as_ns(), self.all.as_ns()).is_some_and(|pct| pct >= NAMED_PCT);
        let cpus = self.on.iter().enumerate();
        cpus.filter(|(_, on)| is_much(on))
            .map(|(cpu, _)| cpu)
            .collect()
    }

    /// Returns true if whoever had woken a thread kept its CPU for most of this time.
    fn is_by_wakers(&self) -> bool {
        percent(self.by_waker.as_ns(), self.all.as_ns()).is_some_and(|share| share >= WAKER_PCT)
    }

    /// The windows in which threads waited for a CPU for a tenth of the time and longer, all together.
    fn crowded(&self) -> Nanos {
        let is_crowded = |queued: &&Nanos| queued.as_ns() >= WINDOW.as_ns() / 10;
        let windows = self.windows.iter().filter(is_crowded).count();
        Nanos::from_ns(WINDOW.as_ns() * u64::try_from(windows).unwrap_or(0))
    }
}

/// Returns how many times as long the one is; `None` if the other is nothing.
fn ratio(one: Nanos, other: Nanos) -> Option<f64> {
    percent(one.as_ns(), other.as_ns()).map(|percent| percent / 100.0)
}

/// The holders of the CPU while tasks of the recorded programs could run.
#[derive(Debug, Default)]
struct Holders {
    /// Tasks of the program that waited.
    own: Nanos,
    /// Of `all`, real-time or deadline tasks, and the one of them that had the CPU for longest.
    real_time: Nanos,
    main_real_time: (Nanos, Option<usize>),
    /// Other programs, by label.
    others: BTreeMap<String, OtherHolder>,
    /// Tasks of all programs.
    all: Nanos,
    /// The recorder and its helpers.
    recorder: Nanos,
}

#[derive(Clone, Copy, Debug, Default)]
struct OtherHolder {
    time: Nanos,
    /// The cgroup of the task that had the CPU for longest, and for how long.
    main: (Nanos, Option<CgroupId>),
}

/// The reason why threads that could run had no CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoCpu {
    /// It is not told who had it.
    Untold,
    /// Real-time tasks had it.
    RealTime,
    /// Others ran where they were woken, while CPUs were idle.
    Placement,
    /// In a recording of the whole machine, programs had it in turn.
    Machine,
    /// Other programs had it.
    Neighbour,
    /// The program's own threads had it, which had woken those that waited.
    Waker,
    /// The program's own threads had it.
    Own,
}

impl NoCpu {
    /// A stable name for the finding.
    const fn name(self) -> &'static str {
        match self {
            Self::Untold => "no_cpu",
            Self::RealTime => "real_time",
            Self::Placement => "placement",
            Self::Machine => "crowded_machine",
            Self::Neighbour => "neighbour",
            Self::Waker => "woken_early",
            Self::Own => "oversubscribed",
        }
    }

    const fn words(self) -> &'static str {
        match self {
            Self::Untold => "No CPU for threads that could run",
            Self::RealTime => "A real-time task has the CPU",
            Self::Placement => "Threads are woken where others run, while CPUs are idle",
            Self::Machine => "Programs take the CPUs from each other",
            Self::Neighbour => "Other programs have the CPU",
            Self::Waker => "Threads are woken by others that go on and keep the CPU",
            Self::Own => "More threads want to run than there are CPUs",
        }
    }
}

impl Holders {
    fn is_mostly(&self, time: Nanos, least: f64) -> bool {
        percent(time.as_ns(), self.all.as_ns()).is_some_and(|share| share >= least)
    }

    /// Other programs, those that had the CPU longest first.
    fn ranked(&self) -> Vec<(&String, &OtherHolder)> {
        let mut ranked: Vec<_> = self.others.iter().collect();
        ranked.sort_by_key(|(_, other)| Reverse(other.time));
        ranked
    }
}

impl VerdictInput<'_> {
    /// Tasks that could run and had no CPU, because tasks had it.
    pub(super) fn no_cpu(&self, total: &Tally) -> Option<Finding> {
        let holders = self.holders();
        let direct = self.without_cpu_by_tasks(&holders);
        let direct = direct.saturating_sub(self.held_back());
        let at_locks = self.at_locks.through(Spent::NoCpu);
        let through = self.by_tasks(at_locks.saturating_sub(self.at_locks.inverted));
        let who = self.whose(&holders, direct);
        let lost = match who {
            // While its own threads have the CPU, the program goes on, and CPUs are enough.
            NoCpu::Placement => holders.all.saturating_sub(holders.own).min(direct),
            _ => direct + through,
        };
        let (kind, time) = self.weighed(lost, self.longest_queue(), 0, total)?;
        let of_all = percent(time.as_ns(), self.wall.as_ns());
        if self.details.queue.is_short() && of_all.is_some_and(|share| share < SHORT_PCT) {
            return None;
        }
        let seen = match who {
            NoCpu::Placement => format!(
                "{}: threads that could run waited for a CPU for {direct}, and while other programs had it {}.",
                who.words(),
                self.lost_words(time),
            ),
            _ => format!(
                "{}: threads that could run waited for a CPU for {direct}{}{}: {} of the time in which its threads had \
                 work{}.",
                who.words(),
                self.for_which(),
                if through < LEAST_TIME {
                    String::new()
                } else {
                    format!(", and others waited {through} for these")
                },
                share(time.as_ns(), self.lost.at_work().as_ns()),
                self.times_as_long(direct),
            ),
        };
        Some(Finding {
            places: self.no_cpu_places(who, &holders, through, time),
            advice: self.advice_without_cpu(who, &holders),
            ..Finding::of_time(who.name(), (kind, time), seen)
        })
    }

    /// `, all for CPU 1 of 2`, where threads waited for a part of the machine's CPUs.
    fn for_which(&self) -> String {
        let cpus = self.details.queue.cpus();
        let are_few = u64::try_from(cpus.len()).is_ok_and(|few| few < u64::from(self.cpus));
        let are_few = are_few && (1..=NAMED).contains(&cpus.len());
        let named: Vec<_> = cpus.iter().map(usize::to_string).collect();
        if are_few {
            format!(
                ", all for CPU {} of {} (bound by affinity, or a cpuset?)",
                named.join(", "),
                self.cpus
            )
        } else {
            String::new()
        }
    }

    /// Finds who mostly had the CPU in this time without one.
    fn whose(&self, holders: &Holders, time: Nanos) -> NoCpu {
        let is_told = percent(holders.all.as_ns(), time.as_ns());
        let strangers: Nanos = holders.others.values().map(|other| other.time).sum();
        if !is_told.is_some_and(|share| share >= MOST_PCT) {
            NoCpu::Untold
        } else if holders.is_mostly(holders.real_time, MOST_PCT) {
            NoCpu::RealTime
        } else if self.idle_meanwhile().is_some() {
            NoCpu::Placement
        } else if self.names.is_of_the_machine() {
            NoCpu::Machine
        } else if holders.is_mostly(strangers, STRANGERS_PCT) {
            NoCpu::Neighbour
        } else if self.details.queue.is_by_wakers() {
            NoCpu::Waker
        } else {
            NoCpu::Own
        }
    }

    /// Returns for which share of the time in which threads waited for a CPU these were idle, at least: all that they
    /// were busy may have been then. Only if the program uses all CPUs, which are enough for its threads on average,
    /// and mostly waits for a moment, until whoever ran where a thread was woken has left. A crowd waits for whole time
    /// slices.
    fn idle_meanwhile(&self) -> Option<f64> {
        let uses_all = self.details.cpus_used() >= u64::from(self.cpus);
        let crowded = Some(self.details.queue.crowded()).filter(|time| *time >= LONG_ENOUGH)?;
        let busy = self.busy_pct? * ratio(self.wall, crowded)?;
        let idle = 100.0 - busy;
        let wanted = ratio(self.lost.ran + self.lost.no_cpu, crowded)?;
        let is_enough = wanted <= f64::from(self.cpus);
        (uses_all && is_enough && self.details.queue.is_short() && idle >= IDLE_MEANWHILE_PCT)
            .then_some(idle)
    }

    /// The longest wait for a CPU; of those that were open at the end, their mean.
    fn longest_queue(&self) -> Nanos {
        let open = self.lost.no_cpu_at_end.as_ns();
        let open = open.checked_div(self.lost.waiting_at_end).unwrap_or(0);
        self.details.queue.longest.max(Nanos::from_ns(open))
    }

    /// `, 2.7 times as long as they ran`; nothing if it is little beside that.
    fn times_as_long(&self, time: Nanos) -> String {
        let tenths = u128::from(time.as_ns()) * 10;
        match tenths.checked_div(u128::from(self.lost.ran.as_ns())) {
            None | Some(0..5) => String::new(),
            Some(tenths) => format!(
                ", {}.{} times as long as they ran",
                tenths / 10,
                tenths % 10
            ),
        }
    }

    fn advice_without_cpu(&self, who: NoCpu, holders: &Holders) -> Option<AdviceText> {
        let ranked = holders.ranked();
        let first = ranked.first().map_or("it", |(label, _)| label.as_str());
        let cpus = self.details.cpus_used();
        let cpus = counted(cpus.clamp(1, u64::from(self.cpus.max(1))), "CPU");
        match who {
            NoCpu::Untold => None,
            NoCpu::RealTime => {
                let (_, task) = holders.main_real_time;
                let label = task.map_or_else(|| "it".to_owned(), |task| self.names.label(task));
                Some(advice::REAL_TIME.told_with(&[("who", &label)]))
            }
            NoCpu::Placement => Some(advice::PLACEMENT.told()),
            NoCpu::Machine => Some(advice::CROWDED.told()),
            NoCpu::Neighbour => Some(advice::NEIGHBOUR.told_with(&[("who", first)])),
            NoCpu::Waker => Some(advice::WOKEN_EARLY.told()),
            NoCpu::Own => Some(advice::OVERSUBSCRIBED.told_with(&[("cpus", &cpus)])),
        }
    }

    /// Says who had the CPU, who waited to the end, and which tasks took it most often.
    fn no_cpu_places(
        &self,
        who: NoCpu,
        holders: &Holders,
        through: Nanos,
        all: Nanos,
    ) -> Vec<String> {
        let mut places: Vec<_> = self.holders_in_words(holders).into_iter().collect();
        if who == NoCpu::Waker {
            let by_waker = self.details.queue.by_waker;
            places.push(format!(
                "for {by_waker} of that it was whoever had woken the thread, or whom it had woken itself"
            ));
        }
        places.extend(self.through_locks(Spent::NoCpu, through, all));
        if let Some(idle) = self.idle_meanwhile() {
            places.push(format!(
                "the CPUs were idle meanwhile for {idle:.0} % of the time, at least: inferred, for windows of {WINDOW}"
            ));
        }
        let is_named = |held: Nanos| {
            percent(held.as_ns(), holders.all.as_ns()).is_some_and(|pct| pct >= NAMED_PCT)
        };
        let untold = self.preemptors.held_by(Holder::Unaccounted);
        let share_untold = percent(untold.as_ns(), (untold + holders.all).as_ns());
        if share_untold.is_some_and(|share| share >= NAMED_PCT) {
            places.push(format!("who had the CPU for {untold} of that is not told"));
        }
        if is_named(holders.recorder) {
            places.push(format!(
                "besides, the recorder had it for {}",
                holders.recorder
            ));
        }
        let at_end = self.lost.no_cpu_at_end;
        if is_named(at_end) {
            places.push(format!(
                "to the end of the recording: {} had no CPU, {at_end} in all",
                counted(self.lost.waiting_at_end, "thread"),
            ));
        }
        let is_preemption = |reason: &&Reason| reason.category() == Category::Preemption;
        let most = Reason::ALL
            .iter()
            .filter(is_preemption)
            .max_by_key(|reason| self.reasons.of(**reason).tally.switches);
        places.extend(most.and_then(|reason| self.took_the_cpu(*reason)));
        places
    }

    /// `had the CPU: its own threads 73.7 % (5.32 s), hog 22.3 % (1.61 s)`
    fn holders_in_words(&self, holders: &Holders) -> Option<String> {
        let time = holders.all;
        let part = |label: &str, held: Nanos| {
            format!("{label} {} ({held})", share(held.as_ns(), time.as_ns()))
        };
        let is_named =
            |held: Nanos| percent(held.as_ns(), time.as_ns()).is_some_and(|pct| pct >= NAMED_PCT);
        let mut named = Vec::new();
        if is_named(holders.own) {
            let own = if self.names.is_of_the_machine() {
                "other threads of the program that waited"
            } else {
                "its own threads"
            };
            named.push((holders.own, part(own, holders.own)));
        }
        let others = holders.ranked();
        let others = others.iter().filter(|(_, other)| is_named(other.time));
        named.extend(others.map(|(label, other)| {
            let label = match self.holders_cgroup(other) {
                Some(cgroup) => format!("{label} (cgroup {cgroup})"),
                None => (*label).clone(),
            };
            (other.time, part(&label, other.time))
        }));
        named.sort_by_key(|(held, _)| Reverse(*held));
        let named: Vec<_> = named.into_iter().take(NAMED).map(|one| one.1).collect();
        (!named.is_empty()).then(|| format!("had the CPU: {}", named.join(", ")))
    }

    /// Returns who had the CPU meanwhile, in words, for another finding.
    pub(super) fn who_had_the_cpu(&self) -> Option<String> {
        self.holders_in_words(&self.holders())
    }

    /// Time without a CPU that other tasks had.
    fn without_cpu_by_tasks(&self, holders: &Holders) -> Nanos {
        let elsewhere = [
            Holder::Throttle,
            Holder::Steal,
            Holder::Interrupts,
            Holder::Idle,
        ];
        let elsewhere: Nanos = elsewhere
            .iter()
            .map(|holder| self.preemptors.held_by(*holder))
            .sum();
        let total = self.reasons.total();
        let elsewhere = elsewhere + self.yielded(&total) + holders.recorder;
        self.lost.no_cpu.saturating_sub(elsewhere)
    }

    /// The part of time that others waited for tasks without a CPU in which tasks had it, and it was not an idle
    /// one that had to wake up: in proportion to the waits of these themselves.
    pub(super) fn by_tasks(&self, time: Nanos) -> Nanos {
        let throttled = self.preemptors.held_by(Holder::Throttle);
        let all = self.lost.no_cpu.saturating_sub(throttled);
        let by_tasks = self.without_cpu_by_tasks(&self.holders());
        let part = u128::from(time.as_ns()) * u128::from(by_tasks.as_ns());
        let part = part.checked_div(u128::from(all.as_ns())).unwrap_or(0);
        Nanos::from_ns(u64::try_from(part).unwrap_or(u64::MAX)).min(time)
    }

    /// The holder's cgroup, if it is not the one in which all are that were put in no other.
    fn holders_cgroup(&self, other: &OtherHolder) -> Option<Cow<'_, str>> {
        let path = self.cgroups.get(&other.main.1?)?;
        (path != "/").then(|| cgroup_words(path))
    }

    fn holders(&self) -> Holders {
        let mut holders = Holders::default();
        let is_of_the_machine = self.names.is_of_the_machine();
        for (index, time) in self.preemptors.held_by_tasks() {
            if is_recorder(index, self.names, self.recorder) {
                holders.recorder += time;
                continue;
            }
            holders.all += time;
            let thread = self.names.thread(index);
            let seen = self.details.seen[index];
            if seen.is_real_time {
                holders.real_time += time;
                if time > holders.main_real_time.0 {
                    holders.main_real_time = (time, Some(index));
                }
            }
            if thread.in_scope && !is_of_the_machine {
                holders.own += time;
                continue;
            }
            let label = self.programs.label(thread.process).to_owned();
            let other = holders.others.entry(label).or_default();
            other.time += time;
            if time > other.main.0 {
                other.main = (time, seen.cgroup);
            }
        }
        if is_of_the_machine {
            self.take_own_from(&mut holders);
        }
        holders
    }

    /// In a recording of the whole machine everybody is recorded, and so it is asked of each wait whether the
    /// program of the task that waited had the CPU. The time is taken from all programs in proportion.
    fn take_own_from(&self, holders: &mut Holders) {
        let splits = Reason::ALL
            .iter()
            .map(|reason| self.preemptors.split(*reason));
        let (own, others) = splits.fold((Nanos::ZERO, Nanos::ZERO), |(own, others), split| {
            (own + split.own, others + split.others)
        });
        let all = u128::from((own + others).as_ns().max(1));
        let of_own = |time: Nanos| {
            let part = u128::from(time.as_ns()) * u128::from(own.as_ns()) / all;
            Nanos::from_ns(u64::try_from(part).unwrap_or(u64::MAX))
        };
        for other in holders.others.values_mut() {
            let part = of_own(other.time);
            holders.own += part;
            other.time = other.time.saturating_sub(part);
        }
    }

    pub(super) fn interrupts(&self, total: &Tally) -> Option<Finding> {
        let what = "Interrupts had the CPU while threads could run";
        self.held("interrupts", Holder::Interrupts, what, None, total)
    }

    pub(super) fn steal(&self, total: &Tally) -> Option<Finding> {
        let what = "The hypervisor ran other guests while threads could run";
        self.held("steal", Holder::Steal, what, Some(&advice::STEAL), total)
    }

    /// Threads that were woken to an idle CPU, which had to be woken itself.
    pub(super) fn idle(&self, total: &Tally) -> Option<Finding> {
        let time = self.preemptors.held_by(Holder::Idle);
        percent(time.as_ns(), self.wall.as_ns()).filter(|share| *share >= IDLE_PCT)?;
        let what = "CPUs that were idle had to wake up before threads could run";
        self.held(
            "idle_wakeup",
            Holder::Idle,
            what,
            Some(&advice::IDLE),
            total,
        )
    }

    /// A finding about time in which threads could run and no task had the CPU.
    fn held(
        &self,
        name: &'static str,
        holder: Holder,
        what: &str,
        advice: Option<&Advice>,
        total: &Tally,
    ) -> Option<Finding> {
        let weight = self.weighed(self.preemptors.held_by(holder), Nanos::ZERO, 0, total)?;
        let seen = format!("{what}: {}.", self.lost_words(weight.1));
        Some(Finding {
            advice: advice.map(Advice::told),
            ..Finding::of_time(name, weight, seen)
        })
    }
}
