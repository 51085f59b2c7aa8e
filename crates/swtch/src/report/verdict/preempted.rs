//! Findings about tasks that lost their CPU, or gave it away, and could have run on.

use std::cmp::Reverse;

use swtch_core::{CgroupId, Nanos, Reason};

use super::super::tally::Tally;
use super::{
    Finding, MOST_PCT, NAMED, OFTEN_PCT, Picture, Subject, main_of, percent, share, stands_out,
    typical,
};
use crate::text::{counted, grouped};

impl Picture<'_> {
    pub(super) fn throttle(&self, total: &Tally) -> Option<Finding> {
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

    pub(super) fn slice(&self, total: &Tally) -> Option<Finding> {
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

    pub(super) fn wakeup(&self, total: &Tally) -> Option<Finding> {
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

    pub(super) fn class(&self, total: &Tally) -> Option<Finding> {
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

    pub(super) fn migrate(&self, total: &Tally) -> Option<Finding> {
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

    pub(super) fn yields(&self, total: &Tally) -> Option<Finding> {
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
}

fn is_most(part: Nanos, whole_ns: u64) -> bool {
    percent(part.as_ns(), whole_ns).is_some_and(|share| share >= MOST_PCT)
}
