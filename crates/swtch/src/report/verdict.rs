//! What a person should know first, in plain words: the causes that stand out, where they come
//! from, who took the CPU, and what could be changed.
//!
//! Each rule looks at counts and says nothing unless they stand out: 10 % of the switches, or 1 %
//! of the time in which tasks ran or wanted to run. Advice follows from a number that stands
//! beside it, never from the name of a reason alone. No rule knows what the program is *for*: a
//! switch that stands out may be the right one.

use std::cmp::Reverse;

use rustc_hash::FxHashMap;
use serde_json::{Map, Value, json};
use swtch_core::{Arch, CgroupId, Distribution, Holder, Nanos, Reason, Rule, Switch};

use super::group::{Groups, Key};
use super::names::Names;
use super::preemptor::Preemptors;
use super::reason::ByReason;
use super::sheet::percent;
use super::tally::Tally;
use super::wait::{Object, ObjectKind, Objects};
use super::waker::{Waker, Wakers};
use super::worth::Saving;
use crate::text::{counted, grouped};

/// A reason stands out by number from this share of the switches on.
const OFTEN_PCT: f64 = 10.0;

/// Fewer switches than this are not "often", whatever their share.
const FEWEST_SWITCHES: u64 = 100;

/// A cause stands out by time from this share of run time and run-queue time on.
const COSTLY_PCT: f64 = 1.0;

/// Less time than this is not costly, whatever its share.
const LEAST_TIME: Nanos = Nanos::from_ns(1_000_000);

/// Shares from which one of several is "the" one.
const MOST_PCT: f64 = 50.0;

/// A share of waits on one futex word that makes it worth naming.
const WORD_PCT: f64 = 25.0;

/// Unknown reasons are said from this share on.
const UNKNOWN_PCT: f64 = 1.0;

/// Messages that are answered within this are a conversation, not a wait for work.
const CONVERSATION: Nanos = Nanos::from_ns(100_000);

/// Sleeps shorter than this look like polling.
const POLLING_SLEEP: Nanos = Nanos::from_ns(10_000_000);

/// How many threads, calls or pairs a finding names.
const NAMED: usize = 3;

/// Where even the first has a smaller share, names would mislead: the many are counted.
const SPREAD_PCT: f64 = 5.0;

/// What the reports of one trace found, from which the verdict is drawn.
#[derive(Debug)]
pub struct Picture<'a> {
    /// By reason.
    pub reasons: &'a ByReason,
    /// By thread.
    pub threads: &'a Groups,
    /// By system call.
    pub calls: &'a Groups,
    /// Who had the CPU.
    pub preemptors: &'a Preemptors,
    /// Who woke whom.
    pub wakers: &'a Wakers,
    /// What was waited for.
    pub objects: &'a Objects,
    /// Which rules decided, and which cgroups were throttled.
    pub details: &'a Details,
    /// Who the tasks are.
    pub names: &'a Names,
    /// Of system call numbers.
    pub arch: Option<Arch>,
    /// Paths of cgroups.
    pub cgroups: &'a FxHashMap<CgroupId, String>,
    /// CPUs of the machine.
    pub cpus: u32,
}

/// Counts that only the verdict needs.
#[derive(Debug, Default)]
pub struct Details {
    rules: FxHashMap<&'static str, (&'static Rule, u64)>,
    throttled: FxHashMap<CgroupId, Nanos>,
}

impl Details {
    /// Adds a switch-out that counts.
    pub fn add_switch(&mut self, row: &Switch) {
        self.rules.entry(row.rule.name).or_insert((row.rule, 0)).1 += 1;
    }

    /// Adds a wait that counts.
    pub fn add_wait(&mut self, row: &Switch) {
        if row.wait.reason == Some(Reason::Throttle) {
            let runq = row.wait.runq.unwrap_or(Nanos::ZERO);
            *self.throttled.entry(row.cgroup).or_default() += runq;
        }
    }

    /// Rules that decided for a reason, most often first.
    fn rules_of(&self, reason: Reason) -> Vec<(&'static Rule, u64)> {
        let rules = self.rules.values().copied();
        let mut rules: Vec<_> = rules.filter(|rule| rule.0.reason == reason).collect();
        rules.sort_by_key(|(rule, count)| (Reverse(*count), rule.name));
        rules
    }

    fn count_of(&self, rule: &str) -> u64 {
        self.rules.get(rule).map_or(0, |rule| rule.1)
    }
}

/// Which switches a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// All for this reason.
    Reason(Reason),
    /// Those into waits for this object.
    Object(Object),
    /// None: time that passed without a switch.
    Time,
}

/// One thing that stands out.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// A name that stays: `wakeup_preemption`.
    pub name: &'static str,
    /// The switches that it is about.
    pub subject: Subject,
    /// Switches that it made.
    pub switches: u64,
    /// Time in which tasks did not run because of it.
    pub time: Nanos,
    /// What was seen, with its numbers.
    pub seen: String,
    /// Where it comes from, and who took the CPU.
    pub places: Vec<String>,
    /// What a person could change; `None` where the numbers suggest nothing.
    pub advice: Option<String>,
}

impl Finding {
    /// The finding as a JSON object, with what removing it would save.
    pub fn to_json(&self, all: u64, saving: Option<&Saving>) -> Value {
        json!({
            "name": self.name,
            "switches": self.switches,
            "share_pct": percent(self.switches, all),
            "time_ns": self.time.as_ns(),
            "seen": self.seen,
            "places": self.places,
            "advice": self.advice,
            "worth": saving.map(Saving::to_json),
        })
    }
}

/// Reasons by number and by time, as the verdict's first lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Reasons with the most switches.
    pub by_switches: Vec<(Reason, u64)>,
    /// Reasons after which tasks waited longest in run queues.
    pub by_runq: Vec<(Reason, Nanos)>,
    /// Reasons for which tasks were blocked longest.
    pub by_blocked: Vec<(Reason, Nanos)>,
    /// Whether switches are unknown; if not, time after unknown ones is that of new tasks.
    has_unknown: bool,
}

impl Summary {
    /// The three main reasons of each kind.
    pub fn new(reasons: &ByReason) -> Self {
        let tally = |reason| &reasons.of(reason).tally;
        Self {
            by_switches: largest(|reason| tally(reason).switches),
            by_runq: largest(|reason| tally(reason).runq),
            by_blocked: largest(|reason| tally(reason).blocked),
            has_unknown: tally(Reason::Unknown).switches > 0,
        }
    }

    /// What came before a wait, in words.
    fn word(&self, reason: Reason) -> &'static str {
        match reason {
            Reason::Unknown if !self.has_unknown => "their start",
            known => known.as_str(),
        }
    }

    /// The lines for people.
    pub fn lines(&self, total: &Tally) -> Vec<String> {
        let switches = self.by_switches.iter().map(|(reason, count)| {
            format!(
                "{reason} {} ({})",
                share(*count, total.switches),
                grouped(*count)
            )
        });
        let time = |times: &[(Reason, Nanos)], all: Nanos| {
            let times = times.iter();
            let words = times.map(|(reason, time)| {
                let share = share(time.as_ns(), all.as_ns());
                format!("{} {share} ({time})", self.word(*reason))
            });
            words.collect::<Vec<_>>().join(", ")
        };
        let mut lines = Vec::new();
        if total.switches > 0 {
            let switches: Vec<_> = switches.collect();
            lines.push(format!("Most switches: {}.", switches.join(", ")));
        }
        if total.runq > Nanos::ZERO {
            let runq = time(&self.by_runq, total.runq);
            lines.push(format!(
                "Most time runnable but not running, after: {runq}."
            ));
        }
        if total.blocked > Nanos::ZERO {
            let blocked = time(&self.by_blocked, total.blocked);
            lines.push(format!("Most time blocked, for: {blocked}."));
        }
        lines
    }

    /// The summary as a JSON object.
    pub fn to_json(&self) -> Value {
        let count = |pairs: &[(Reason, u64)]| -> Value {
            pairs
                .iter()
                .map(|(r, n)| (r.to_string(), Value::from(*n)))
                .collect::<Map<_, _>>()
                .into()
        };
        let time = |pairs: &[(Reason, Nanos)]| -> Value {
            let pairs: Vec<_> = pairs.iter().map(|(r, time)| (*r, time.as_ns())).collect();
            count(&pairs)
        };
        json!({
            "switches_by_reason": count(&self.by_switches),
            "runq_ns_by_reason": time(&self.by_runq),
            "blocked_ns_by_reason": time(&self.by_blocked),
        })
    }
}

/// The three reasons with the largest number, without those that have none.
fn largest<N: Ord + Copy + Default>(number: impl Fn(Reason) -> N) -> Vec<(Reason, N)> {
    let numbers = Reason::ALL.iter().map(|reason| (*reason, number(*reason)));
    let mut numbers: Vec<_> = numbers.filter(|one| one.1 > N::default()).collect();
    numbers.sort_by_key(|(reason, number)| (Reverse(*number), *reason));
    numbers.truncate(NAMED);
    numbers
}

/// What stands out, the weightiest first.
pub fn findings(picture: &Picture<'_>) -> Vec<Finding> {
    let rules = [
        Picture::throttle,
        Picture::slice,
        Picture::wakeup,
        Picture::class,
        Picture::migrate,
        Picture::yields,
        Picture::futex,
        Picture::pipe,
        Picture::net,
        Picture::ipc,
        Picture::poll,
        Picture::sleep,
        Picture::io,
        Picture::fault,
        Picture::interrupts,
        Picture::steal,
        Picture::idle,
        Picture::unknown,
    ];
    let total = picture.reasons.total();
    let mut findings: Vec<_> = rules
        .iter()
        .filter_map(|rule| rule(picture, &total))
        .collect();
    // Shares of switches and of time, added: a cause may weigh by either.
    let weight = |finding: &Finding| {
        let demand = total.ran + total.runq + finding.time;
        let switches = parts_per_million(finding.switches, total.switches);
        switches + parts_per_million(finding.time.as_ns(), demand.as_ns())
    };
    findings.sort_by_key(|finding| Reverse(weight(finding)));
    findings
}

/// The words when no rule speaks.
pub fn nothing_stands_out() -> String {
    format!(
        "Nothing stands out: no cause that could be changed makes {OFTEN_PCT} % of the switches \
         or costs {COSTLY_PCT} % of the time in which tasks ran or wanted to run."
    )
}

impl Picture<'_> {
    fn throttle(&self, total: &Tally) -> Option<Finding> {
        let tally = &self.reasons.of(Reason::Throttle).tally;
        if !stands_out(tally.switches, tally.runq, total) {
            return None;
        }
        let mut cgroups: Vec<_> = self.details.throttled.iter().collect();
        cgroups.sort_by_key(|(cgroup, time)| (Reverse(**time), **cgroup));
        let path = |cgroup: &CgroupId| match self.cgroups.get(cgroup) {
            Some(path) => path.clone(),
            None => format!("cgroup {cgroup}"),
        };
        let named = cgroups.iter().take(NAMED);
        let named: Vec<_> = named
            .map(|(cgroup, time)| format!("{} {time}", path(cgroup)))
            .collect();
        let advice = (self.details.count_of("quota_used") > 0).then(|| {
            format!(
                "raise the quota (cpu.max; cpu.cfs_quota_us in cgroup v1) or use less CPU at \
                 once: without it up to {} of waiting would go",
                tally.runq
            )
        });
        let mut places = self.places(Reason::Throttle);
        places.push(format!("throttled: {}", named.join(", ")));
        Some(Finding {
            name: "throttle",
            subject: Subject::Reason(Reason::Throttle),
            switches: tally.switches,
            time: tally.runq,
            seen: format!(
                "CPU quota used up: {}, and {} of waiting until the next period.",
                self.switches(tally, total),
                tally.runq
            ),
            places,
            advice,
        })
    }

    fn slice(&self, total: &Tally) -> Option<Finding> {
        let tally = &self.reasons.of(Reason::Slice).tally;
        if !stands_out(tally.switches, tally.runq, total) {
            return None;
        }
        Some(Finding {
            name: "slice_preemption",
            subject: Subject::Reason(Reason::Slice),
            switches: tally.switches,
            time: tally.runq,
            seen: format!(
                "Time slice used up while others waited: {}, and {} in the run queue after them.",
                self.switches(tally, total),
                tally.runq
            ),
            places: self.preemption_places(Reason::Slice),
            advice: self.advice_on_crowding(),
        })
    }

    /// For tasks that wait for each other to use up their slices.
    fn advice_on_crowding(&self) -> Option<String> {
        let split = self.preemptors.split(Reason::Slice);
        let all = (split.own + split.others + split.rest).as_ns();
        if is_most(split.own, all) {
            return Some(format!(
                "the program's own threads had the CPU for {} of that time: run no more busy \
                 threads than the {} it has, or give batch work a longer slice (sched_runtime of \
                 sched_setattr, Linux 6.12 and later)",
                share(split.own.as_ns(), all),
                counted(u64::from(self.cpus), "CPU"),
            ));
        }
        if is_most(split.others, all) {
            return Some(format!(
                "other programs had the CPU for {} of that time: keep them on other CPUs \
                 (taskset, cpuset) or lower their weight (nice, cpu.weight)",
                share(split.others.as_ns(), all),
            ));
        }
        None
    }

    fn wakeup(&self, total: &Tally) -> Option<Finding> {
        let tally = &self.reasons.of(Reason::Wakeup).tally;
        if !stands_out(tally.switches, tally.runq, total) {
            return None;
        }
        Some(Finding {
            name: "wakeup_preemption",
            subject: Subject::Reason(Reason::Wakeup),
            switches: tally.switches,
            time: tally.runq,
            seen: format!(
                "Preempted by tasks that were just woken: {}, and {} in the run queue after them.",
                self.switches(tally, total),
                tally.runq
            ),
            places: self.preemption_places(Reason::Wakeup),
            advice: Some(self.advice_on_wakeups()),
        })
    }

    /// For tasks that take the CPU as they are woken.
    fn advice_on_wakeups(&self) -> String {
        let pairs = self.preemptors.pairs(Reason::Wakeup);
        let all: u64 = pairs.iter().map(|pair| pair.2).sum();
        let main = pairs.first();
        let main = main.filter(|pair| percent(pair.2, all).is_some_and(|pct| pct >= OFTEN_PCT));
        let Some((taker, from, count)) = main else {
            return "wake tasks less often (hand over several messages at once), or make those \
                    that are woken SCHED_BATCH, which does not preempt when it wakes"
                .to_owned();
        };
        let (taker, from) = (self.names.label(*taker), self.names.label(*from));
        format!(
            "{taker} took the CPU from {from} {} as it was woken: wake it less often (hand over \
             several messages at once), let the two run on different CPUs, or make {taker} \
             SCHED_BATCH, which does not preempt when it wakes",
            counted(*count, "time"),
        )
    }

    fn class(&self, total: &Tally) -> Option<Finding> {
        let tally = &self.reasons.of(Reason::Class).tally;
        if !stands_out(tally.switches, tally.runq, total) {
            return None;
        }
        let pairs = self.preemptors.pairs(Reason::Class);
        let advice = pairs.first().map(|(taker, _, _)| {
            format!(
                "{} runs in a higher class (real time or deadline): if it need not, make it an \
                 ordinary task; else keep its CPU apart (taskset, cpuset)",
                self.names.label(*taker)
            )
        });
        Some(Finding {
            name: "class_preemption",
            subject: Subject::Reason(Reason::Class),
            switches: tally.switches,
            time: tally.runq,
            seen: format!(
                "Preempted by tasks of a higher class: {}, and {} in the run queue after them.",
                self.switches(tally, total),
                tally.runq
            ),
            places: self.preemption_places(Reason::Class),
            advice,
        })
    }

    fn migrate(&self, total: &Tally) -> Option<Finding> {
        let tally = &self.reasons.of(Reason::Migrate).tally;
        if !stands_out(tally.switches, tally.runq, total) {
            return None;
        }
        let own = self.details.count_of("affinity_change");
        let advice = (own > 0).then(|| {
            format!(
                "{} of them wait inside sched_setaffinity: set the allowed CPUs once, at the start",
                grouped(own)
            )
        });
        Some(Finding {
            name: "migration",
            subject: Subject::Reason(Reason::Migrate),
            switches: tally.switches,
            time: tally.runq,
            seen: format!(
                "Moved to another CPU by force: {}, and {} in the run queue after them.",
                self.switches(tally, total),
                tally.runq
            ),
            places: self.places(Reason::Migrate),
            advice,
        })
    }

    fn yields(&self, total: &Tally) -> Option<Finding> {
        let one = self.reasons.of(Reason::Yield);
        let tally = &one.tally;
        if !stands_out(tally.switches, tally.runq, total) {
            return None;
        }
        let run = typical(&one.run);
        Some(Finding {
            name: "yield",
            subject: Subject::Reason(Reason::Yield),
            switches: tally.switches,
            time: tally.runq,
            seen: format!(
                "sched_yield: {}, after runs of {run} (median).",
                self.switches(tally, total),
            ),
            places: self.places(Reason::Yield),
            advice: Some(
                "a loop around sched_yield is a lock that costs a switch at each try: block \
                 instead (futex, mutex, condition variable)"
                    .to_owned(),
            ),
        })
    }

    fn futex(&self, total: &Tally) -> Option<Finding> {
        let one = self.reasons.of(Reason::Futex);
        let objects = self.objects.ranked();
        let words = objects
            .iter()
            .filter(|(object, _)| object.kind == ObjectKind::Futex);
        let (word, waited) = words
            .max_by_key(|(object, waited)| (waited.switches, waited.blocked, Reverse(*object)))?;
        let is_lock = percent(waited.woken_by_waiter, waited.woken_by_task)? >= MOST_PCT
            && waited.waiters > 1;
        // A worker blocked for work to do loses nothing by it; one blocked for a lock does.
        let time = if is_lock { waited.blocked } else { Nanos::ZERO };
        let is_one = percent(waited.switches, one.tally.switches)? >= WORD_PCT;
        if !is_one || !stands_out(waited.switches, time, total) {
            return None;
        }
        let process = self.names.process(word.process).label();
        let wakers = waited
            .last_wakers
            .iter()
            .map(|waker| waker.label(self.names));
        let mut places = self.places(Reason::Futex);
        places.push(format!(
            "last woken by {}",
            wakers.collect::<Vec<_>>().join(", ")
        ));
        let advice = if is_lock {
            format!(
                "{} of its wakeups came from threads that wait for it too, as with a lock: hold \
                 it shorter, or split it",
                share(waited.woken_by_waiter, waited.woken_by_task)
            )
        } else {
            "its wakers do not wait for it, as with a hand-over of work: hand over more at once"
                .to_owned()
        };
        Some(Finding {
            name: if is_lock {
                "futex_contention"
            } else {
                "futex_hand_over"
            },
            subject: Subject::Object(*word),
            switches: waited.switches,
            time,
            seen: format!(
                "One futex word, {:#x} in {process}: {} ({} of all, {} of those for a futex) by {}, \
                 blocked {} in all.",
                word.key,
                counted(waited.switches, "switch-out"),
                share(waited.switches, total.switches),
                share(waited.switches, one.tally.switches),
                counted(waited.waiters, "thread"),
                waited.blocked,
            ),
            places,
            advice: Some(advice),
        })
    }

    fn pipe(&self, total: &Tally) -> Option<Finding> {
        self.conversation("pipe_conversation", Reason::Pipe, "a pipe", total)
    }

    fn net(&self, total: &Tally) -> Option<Finding> {
        self.conversation("socket_conversation", Reason::Net, "a socket", total)
    }

    fn ipc(&self, total: &Tally) -> Option<Finding> {
        let what = "a semaphore, message queue or eventfd";
        self.conversation("ipc_conversation", Reason::Ipc, what, total)
    }

    fn poll(&self, total: &Tally) -> Option<Finding> {
        self.conversation(
            "poll_conversation",
            Reason::Poll,
            "any of several files",
            total,
        )
    }

    /// Short waits for messages from other tasks: each message costs a switch.
    fn conversation(
        &self,
        name: &'static str,
        reason: Reason,
        what: &str,
        total: &Tally,
    ) -> Option<Finding> {
        let one = self.reasons.of(reason);
        let is_short = one
            .off
            .percentile(50.0)
            .is_some_and(|median| median < CONVERSATION);
        if !is_short || !is_often(one.tally.switches, total) {
            return None;
        }
        let mut places = self.places(reason);
        places.extend(self.wake_pairs());
        Some(Finding {
            name,
            subject: Subject::Reason(reason),
            switches: one.tally.switches,
            time: Nanos::ZERO,
            seen: format!(
                "Short waits for {what}: {}, each over after {} (median), with {} of work before.",
                self.switches(&one.tally, total),
                typical(&one.off),
                typical(&one.run),
            ),
            places,
            advice: Some(
                "each message costs a switch: send or take several at once, or let one thread do \
                 both jobs"
                    .to_owned(),
            ),
        })
    }

    fn sleep(&self, total: &Tally) -> Option<Finding> {
        let one = self.reasons.of(Reason::Sleep);
        let is_short = one
            .off
            .percentile(50.0)
            .is_some_and(|median| median < POLLING_SLEEP);
        if !is_short || !is_often(one.tally.switches, total) {
            return None;
        }
        Some(Finding {
            name: "short_sleeps",
            subject: Subject::Reason(Reason::Sleep),
            switches: one.tally.switches,
            time: Nanos::ZERO,
            seen: format!(
                "Short sleeps: {}, of {} (median).",
                self.switches(&one.tally, total),
                typical(&one.off)
            ),
            places: self.places(Reason::Sleep),
            advice: Some(
                "if they wait for something to happen, wait for the event itself (futex, eventfd, \
                 epoll) instead of looking again and again"
                    .to_owned(),
            ),
        })
    }

    fn io(&self, total: &Tally) -> Option<Finding> {
        let advice = "read ahead, ask for more at once, or let the program do something else \
                      meanwhile (io_uring, threads)";
        self.blocked(
            "block_io",
            Reason::Io,
            "Blocked for files and disks",
            advice,
            total,
        )
    }

    fn fault(&self, total: &Tally) -> Option<Finding> {
        let advice = "in no call: a page had to come from a file (MAP_POPULATE, madvise, mlock); \
                      in mmap, munmap or madvise: threads wait for the address space's lock";
        self.blocked("memory", Reason::Fault, "Blocked for memory", advice, total)
    }

    /// Blocked time that a program can seldom use.
    fn blocked(
        &self,
        name: &'static str,
        reason: Reason,
        what: &str,
        advice: &str,
        total: &Tally,
    ) -> Option<Finding> {
        let one = self.reasons.of(reason);
        if !stands_out(one.tally.switches, one.tally.blocked, total) {
            return None;
        }
        Some(Finding {
            name,
            subject: Subject::Reason(reason),
            switches: one.tally.switches,
            time: one.tally.blocked,
            seen: format!(
                "{what}: {}, {} in all, {} each (median).",
                self.switches(&one.tally, total),
                one.tally.blocked,
                typical(&one.off),
            ),
            places: self.places(reason),
            advice: Some(advice.to_owned()),
        })
    }

    fn interrupts(&self, total: &Tally) -> Option<Finding> {
        let what = "Interrupts had the CPU while tasks were runnable";
        let advice = "spread the interrupts, or move them away from these CPUs \
                      (/proc/interrupts, /proc/irq/N/smp_affinity)";
        self.held("interrupts", Holder::Interrupts, what, advice, total)
    }

    fn steal(&self, total: &Tally) -> Option<Finding> {
        let what = "The hypervisor ran other guests while tasks were runnable";
        let advice = "the machine below is overcommitted: ask for dedicated CPUs, or use fewer";
        self.held("steal", Holder::Steal, what, advice, total)
    }

    fn idle(&self, total: &Tally) -> Option<Finding> {
        let what = "The CPU was still idle while a task was runnable on it";
        let advice = "waking an idle CPU takes time: forbid deep idle states \
                      (/dev/cpu_dma_latency), or keep the two ends of a conversation on one CPU";
        self.held("idle_wakeup", Holder::Idle, what, advice, total)
    }

    /// Run-queue time in which no task had the CPU.
    fn held(
        &self,
        name: &'static str,
        holder: Holder,
        what: &str,
        advice: &str,
        total: &Tally,
    ) -> Option<Finding> {
        let held = self.preemptors.other(holder);
        if !is_costly(held.time, total) {
            return None;
        }
        Some(Finding {
            name,
            subject: Subject::Time,
            switches: 0,
            time: held.time,
            seen: format!(
                "{what}: {} in {}, {} of all run-queue time.",
                held.time,
                counted(held.waits, "wait"),
                share(held.time.as_ns(), self.preemptors.total().as_ns()),
            ),
            places: Vec::new(),
            advice: Some(advice.to_owned()),
        })
    }

    fn unknown(&self, total: &Tally) -> Option<Finding> {
        let tally = &self.reasons.of(Reason::Unknown).tally;
        percent(tally.switches, total.switches).filter(|share| *share >= UNKNOWN_PCT)?;
        let rules = self.details.rules_of(Reason::Unknown);
        let words = rules.iter().take(NAMED);
        let words =
            words.map(|(rule, count)| format!("{} {}: {}", grouped(*count), rule.name, rule.help));
        let mut places: Vec<String> = words.collect();
        places.extend(self.places(Reason::Unknown));
        let blocked =
            self.details.count_of("kernel_thread") + self.details.count_of("call_without_rule");
        let advice = percent(blocked, tally.switches).filter(|share| *share >= MOST_PCT);
        let advice =
            advice.map(|_| "record with --stacks: the stacks show where they wait".to_owned());
        Some(Finding {
            name: "unknown",
            subject: Subject::Reason(Reason::Unknown),
            switches: tally.switches,
            time: Nanos::ZERO,
            seen: format!("The reason is not known: {}.", self.switches(tally, total)),
            places,
            advice,
        })
    }

    /// `1,234 switches (12.3 %)`
    fn switches(&self, tally: &Tally, total: &Tally) -> String {
        let plural = if tally.switches == 1 { "" } else { "es" };
        let count = grouped(tally.switches);
        format!(
            "{count} switch{plural} ({})",
            share(tally.switches, total.switches)
        )
    }

    /// Threads and system calls in which tasks leave for a reason.
    fn places(&self, reason: Reason) -> Vec<String> {
        let threads = main_groups(self.threads, reason, |key| match key {
            Key::Thread(index) => self.names.label(index),
            _ => String::new(),
        });
        let calls = main_groups(self.calls, reason, |key| match key {
            Key::Syscall(call) => call.name(self.arch),
            _ => String::new(),
        });
        let threads = threads.map(|words| format!("threads: {words}"));
        let calls = calls.map(|words| format!("in: {words}"));
        threads.into_iter().chain(calls).collect()
    }

    /// As [`Self::places`], with who took the CPU from whom.
    fn preemption_places(&self, reason: Reason) -> Vec<String> {
        let mut places = self.places(reason);
        let pairs = self.preemptors.pairs(reason);
        let all: u64 = pairs.iter().map(|pair| pair.2).sum();
        let named = pairs.iter().map(|(taker, from, count)| {
            let (taker, from) = (self.names.label(*taker), self.names.label(*from));
            (
                format!("{taker} from {from} {}", counted(*count, "time")),
                *count,
            )
        });
        places.extend(main_of(named, all).map(|words| format!("took the CPU: {words}")));
        places
    }

    /// Tasks that wake tasks, most often first.
    fn wake_pairs(&self) -> Option<String> {
        let mut pairs = self.wakers.ranked();
        pairs.retain(|((waker, _), _)| matches!(waker, Waker::Task(_)));
        let all: u64 = pairs.iter().map(|(_, woken)| woken.waits).sum();
        let named = pairs.iter().map(|((waker, task), woken)| {
            let (waker, task) = (waker.label(self.names), self.names.label(*task));
            let times = counted(woken.waits, "time");
            (format!("{waker} → {task} {times}"), woken.waits)
        });
        Some(format!("main wakeups: {}", main_of(named, all)?))
    }
}

/// The groups with the most switches for a reason: `worker/12 34.5 %`.
fn main_groups(groups: &Groups, reason: Reason, label: impl Fn(Key) -> String) -> Option<String> {
    let count = |tally: &Tally| tally.reasons[reason.index()];
    let mut ranked = groups.ranked();
    let all: u64 = ranked.iter().map(|(_, tally)| count(tally)).sum();
    ranked.retain(|(_, tally)| count(tally) > 0);
    ranked.sort_by_key(|(key, tally)| (Reverse(count(tally)), *key));
    let named = ranked.iter().map(|(key, tally)| {
        let words = format!("{} {}", label(*key), share(count(tally), all));
        (words, count(tally))
    });
    main_of(named, all)
}

/// The first of many, which come in order of their counts, in words. Where the counts are spread
/// thin, how many there are.
fn main_of(ranked: impl Iterator<Item = (String, u64)>, all: u64) -> Option<String> {
    let mut ranked = ranked.peekable();
    let first = percent(ranked.peek()?.1, all)?;
    if first < SPREAD_PCT {
        let many = u64::try_from(ranked.count()).unwrap_or(u64::MAX);
        return Some(format!(
            "{}, none with more than {first:.1} %",
            grouped(many)
        ));
    }
    let words: Vec<_> = ranked.take(NAMED).map(|one| one.0).collect();
    Some(words.join(", "))
}

fn stands_out(switches: u64, time: Nanos, total: &Tally) -> bool {
    is_often(switches, total) || is_costly(time, total)
}

fn is_often(switches: u64, total: &Tally) -> bool {
    let share = percent(switches, total.switches);
    switches >= FEWEST_SWITCHES && share.is_some_and(|share| share >= OFTEN_PCT)
}

fn is_costly(time: Nanos, total: &Tally) -> bool {
    let share = percent(time.as_ns(), (total.ran + total.runq).as_ns());
    time >= LEAST_TIME && share.is_some_and(|share| share >= COSTLY_PCT)
}

fn is_most(part: Nanos, whole_ns: u64) -> bool {
    percent(part.as_ns(), whole_ns).is_some_and(|share| share >= MOST_PCT)
}

fn share(part: u64, whole: u64) -> String {
    percent(part, whole).map_or_else(|| "-".to_owned(), |share| format!("{share:.1} %"))
}

fn typical(lengths: &Distribution) -> String {
    let median = lengths.percentile(50.0);
    median.map_or_else(|| "unknown length".to_owned(), |median| median.to_string())
}

fn parts_per_million(part: u64, whole: u64) -> u128 {
    u128::from(part) * 1_000_000 / u128::from(whole.max(1))
}
