//! Findings about time in which tasks could run and had no CPU, after whatever wait, and to the end of the
//! recording: who had the CPU meanwhile.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use swtch_core::{Category, CgroupId, Holder, Nanos, Pid, Reason, Spent};
use swtch_output::text::counted;

use super::{Finding, MOST_PCT, NAMED, Subject, VerdictInput, percent, share};
use swtch_core::Tally;

/// A holder with a smaller share of the time is not named.
const NAMED_PCT: f64 = 5.0;

/// Waking an idle CPU takes its time at each wakeup, and who sleeps again and again does not mind: from this
/// share of the recording on it is told.
const IDLE_PCT: f64 = 10.0;

/// Who had the CPU while tasks of the recorded programs could run.
#[derive(Debug, Default)]
struct Holders {
    /// Tasks of the program that waited.
    own: Nanos,
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
    /// Of [`Self::time`], as a real-time or deadline task.
    real_time: Nanos,
    /// The cgroup of the task that had the CPU for longest, and for how long.
    main: (Nanos, Option<CgroupId>),
}

impl Holders {
    fn is_mostly(&self, time: Nanos) -> bool {
        percent(time.as_ns(), self.all.as_ns()).is_some_and(|share| share >= MOST_PCT)
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
        let direct = self
            .without_cpu_by_tasks(&holders)
            .saturating_sub(self.held_back());
        let at_locks = self
            .at_locks
            .through(Spent::NoCpu)
            .saturating_sub(self.at_locks.inverted);
        let through = self.by_tasks(at_locks);
        let (kind, time) = self.weighed(direct + through, 0, total)?;
        let ranked = holders.ranked();
        let real_time: Nanos = ranked.iter().map(|(_, other)| other.real_time).sum();
        let strangers: Nanos = ranked.iter().map(|(_, other)| other.time).sum();
        let first = ranked.first().map(|(label, _)| label.as_str());
        let ran = self.lost.ran;
        let tenths = (u128::from(direct.as_ns()) * 10).checked_div(u128::from(ran.as_ns()));
        let times = match tenths {
            None | Some(0..5) => String::new(),
            Some(tenths) => format!(
                ", {}.{} times as long as they ran",
                tenths / 10,
                tenths % 10
            ),
        };
        let and_others = match through {
            Nanos::ZERO => String::new(),
            _ => format!(", and others waited {through} for these"),
        };
        let waited = format!(
            "threads that could run waited for a CPU for {direct}{and_others}: {} of the time in which its threads \
             had work{times}",
            share(time.as_ns(), self.lost.at_work().as_ns()),
        );
        let is_told = percent(holders.all.as_ns(), direct.as_ns());
        let is_told = is_told.is_some_and(|share| share >= MOST_PCT);
        let (name, what, advice) = if !is_told {
            ("no_cpu", "No CPU for threads that could run", None)
        } else if self.names.is_of_the_machine() && !holders.is_mostly(real_time) {
            (
                "crowded_machine",
                "Programs take the CPUs from each other",
                Some(
                    "run fewer busy ones at once, or give those that must not wait CPUs of their own (taskset, \
                     cpuset) or a greater share (cpu.weight, nice)"
                        .to_owned(),
                ),
            )
        } else if holders.is_mostly(real_time) {
            (
                "real_time",
                "A real-time task has the CPU",
                Some(format!(
                    "keep {} and this program on different CPUs (taskset, cpuset); if it need not be real time, make \
                     it an ordinary task",
                    first.unwrap_or("it")
                )),
            )
        } else if holders.is_mostly(strangers) {
            (
                "neighbour",
                "Other programs have the CPU",
                first.map(|first| {
                    format!(
                        "give this program CPUs of its own (taskset, cpuset), or a greater share of them than {first} \
                         has (cpu.weight, nice)"
                    )
                }),
            )
        } else if holders.is_mostly(holders.own) {
            let cpus = self
                .details
                .cpus_used()
                .clamp(1, u64::from(self.cpus.max(1)));
            (
                "oversubscribed",
                "More threads want to run than there are CPUs",
                Some(format!(
                    "run no more busy threads than the {} it uses (the size of a pool, -j, -threads, \
                     OMP_NUM_THREADS), or let it use more CPUs",
                    counted(cpus, "CPU"),
                )),
            )
        } else {
            ("no_cpu", "No CPU for threads that could run", None)
        };
        Some(Finding {
            name,
            kind,
            reason: None,
            subject: Subject::Time,
            switches: 0,
            time,
            seen: format!("{what}: {waited}."),
            places: self.no_cpu_places(&holders, through, time),
            advice,
        })
    }

    /// Who had the CPU, who waited to the end, and which tasks took it most often.
    fn no_cpu_places(&self, holders: &Holders, through: Nanos, all: Nanos) -> Vec<String> {
        let mut places: Vec<_> = self.holders_in_words(holders).into_iter().collect();
        places.extend(self.through_locks(Spent::NoCpu, through, all));
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
            let own = match self.names.is_of_the_machine() {
                true => "other threads of the program that waited",
                false => "its own threads",
            };
            named.push((holders.own, part(own, holders.own)));
        }
        let others = holders.ranked();
        let others = others.iter().filter(|(_, other)| is_named(other.time));
        named.extend(others.map(|(label, other)| {
            let label = match self.cgroup_words(other) {
                Some(cgroup) => format!("{label} (cgroup {cgroup})"),
                None => (*label).clone(),
            };
            (other.time, part(&label, other.time))
        }));
        named.sort_by_key(|(held, _)| Reverse(*held));
        let named: Vec<_> = named.into_iter().take(NAMED).map(|one| one.1).collect();
        (!named.is_empty()).then(|| format!("had the CPU: {}", named.join(", ")))
    }

    /// The same, for another finding.
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

    /// Path of the holder's cgroup, if it is not the one in which all are that were put in no other.
    fn cgroup_words(&self, other: &OtherHolder) -> Option<&str> {
        let path = self.cgroups.get(&other.main.1?)?;
        (path != "/").then_some(path.as_str())
    }

    fn holders(&self) -> Holders {
        let mut holders = Holders::default();
        let is_of_the_machine = self.names.is_of_the_machine();
        for (index, time) in self.preemptors.held_by_tasks() {
            if self.is_recorder(index) {
                holders.recorder += time;
                continue;
            }
            holders.all += time;
            let thread = self.names.thread(index);
            if thread.in_scope && !is_of_the_machine {
                holders.own += time;
                continue;
            }
            let seen = self.details.seen[index];
            let label = self.programs.label(thread.process).to_owned();
            let other = holders.others.entry(label).or_default();
            other.time += time;
            if seen.is_real_time {
                other.real_time += time;
            }
            if time > other.main.0 {
                other.main = (time, seen.cgroup);
            }
        }
        if is_of_the_machine {
            self.take_own_from(&mut holders);
        }
        holders
    }

    /// Whether the task is of the recorder: what it takes is no cause of the program's.
    fn is_recorder(&self, index: usize) -> bool {
        let process = self.names.process_of(index);
        let is_it = |pid: Option<Pid>| pid.is_some() && pid == self.recorder;
        is_it(process.pid) || is_it(process.parent) && !self.names.thread(index).in_scope
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
            other.real_time = other.real_time.saturating_sub(of_own(other.real_time));
        }
    }

    pub(super) fn interrupts(&self, total: &Tally) -> Option<Finding> {
        let what = "Interrupts had the CPU while threads could run";
        self.held("interrupts", Holder::Interrupts, what, None, total)
    }

    pub(super) fn steal(&self, total: &Tally) -> Option<Finding> {
        let what = "The hypervisor ran other guests while threads could run";
        let advice = "the host of this virtual machine is overcommitted: ask for dedicated CPUs, or use fewer";
        self.held("steal", Holder::Steal, what, Some(advice), total)
    }

    /// Threads that were woken to an idle CPU, which had to be woken itself.
    pub(super) fn idle(&self, total: &Tally) -> Option<Finding> {
        let time = self.preemptors.held_by(Holder::Idle);
        percent(time.as_ns(), self.wall.as_ns()).filter(|share| *share >= IDLE_PCT)?;
        let what = "CPUs that were idle had to wake up before threads could run";
        let advice = "forbid deep idle states (/dev/cpu_dma_latency; in a virtual machine, halt polling of its \
                      host), or let client and server share a CPU (taskset)";
        self.held("idle_wakeup", Holder::Idle, what, Some(advice), total)
    }

    /// A finding about time in which threads could run and no task had the CPU.
    fn held(
        &self,
        name: &'static str,
        holder: Holder,
        what: &str,
        advice: Option<&str>,
        total: &Tally,
    ) -> Option<Finding> {
        let (kind, time) = self.weighed(self.preemptors.held_by(holder), 0, total)?;
        Some(Finding {
            name,
            kind,
            reason: None,
            subject: Subject::Time,
            switches: 0,
            time,
            seen: format!("{what}: {}.", self.lost_words(time)),
            places: Vec::new(),
            advice: advice.map(str::to_owned),
        })
    }
}
