//! Findings about tasks that lost their CPU, or gave it away, and could have run on.

use std::cmp::Reverse;

use swtch_core::{CgroupId, Nanos, Reason};
use swtch_output::text::{counted, grouped};
use swtch_store::QuotaFacts;

use super::who::{PreemptedTask, PreemptionPair};
use super::{
    CpuLimit, Finding, MOST_PCT, NAMED, OFTEN_PCT, Subject, VerdictInput, percent, share,
    stands_out, typical,
};
use swtch_core::Tally;

impl VerdictInput<'_> {
    /// Tasks whose cgroup had used up its quota.
    pub(super) fn throttle(&self, total: &Tally) -> Option<Finding> {
        let mut cgroups: Vec<_> = self.details.throttled.iter().collect();
        cgroups.sort_by_key(|(cgroup, time)| (Reverse(**time), **cgroup));
        let named = cgroups.iter().take(NAMED);
        let named: Vec<_> = named
            .map(|(cgroup, time)| self.throttled_cgroup(**cgroup, **time))
            .collect();
        let mut finding = self.limited(CpuLimit::Quota, "throttle", total)?;
        finding
            .places
            .push(format!("throttled: {}", named.join(", ")));
        finding.advice = (self.details.count_of("quota_used") > 0).then(|| {
            let holder = cgroups
                .first()
                .and_then(|(cgroup, _)| self.used_up(**cgroup));
            let of = holder.map_or_else(String::new, |quota| format!(" of {}", quota.cgroup));
            format!(
                "raise the quota{of} (cpu.max; cpu.cfs_quota_us in cgroup v1) or use less CPU at \
                 once: without it up to {} of waiting would go",
                finding.time
            )
        });
        Some(finding)
    }

    /// Tasks of `SCHED_DEADLINE` that had used up their own runtime of a period.
    pub(super) fn deadline_budget(&self, total: &Tally) -> Option<Finding> {
        let mut finding = self.limited(CpuLimit::Budget, "deadline_budget", total)?;
        finding.advice = Some(format!(
            "each has asked for so much CPU time in a period and no more: give it more (sched_runtime of \
             sched_setattr, chrt --sched-runtime), or let it do less in each period: without that up to {} of \
             waiting would go",
            finding.time
        ));
        Some(finding)
    }

    /// Real-time tasks that had to leave the CPU to ordinary ones.
    pub(super) fn real_time_limit(&self, total: &Tally) -> Option<Finding> {
        self.limited(CpuLimit::RealTime, "real_time_limit", total)
    }

    /// The finding about tasks that had used up the CPU time that they may use, without advice.
    fn limited(&self, limit: CpuLimit, name: &'static str, total: &Tally) -> Option<Finding> {
        let tally = &self.details.limits[limit.index()];
        if !stands_out(tally.switches, tally.runq, total) {
            return None;
        }
        let (what, until) = match limit {
            CpuLimit::Quota => ("CPU quota used up", "until the next period"),
            CpuLimit::Budget => (
                "SCHED_DEADLINE tasks used up their own budget (sched_runtime)",
                "until the next period",
            ),
            CpuLimit::RealTime => (
                "Real-time tasks had to leave the CPU to ordinary ones (real-time throttling, or the fair server)",
                "for the CPU",
            ),
        };
        // Which threads these are, and the saving, are known of the reason as a whole only.
        let is_all = tally.switches == self.reasons.of(Reason::Throttle).tally.switches;
        Some(Finding {
            name,
            reason: Some(Reason::Throttle),
            subject: match is_all {
                true => Subject::Reason(Reason::Throttle),
                false => Subject::Time,
            },
            switches: tally.switches,
            time: tally.runq,
            seen: format!(
                "{what}: {}, and {} of waiting {until}.",
                self.switches(tally, total),
                tally.runq
            ),
            places: match is_all {
                true => self.places(Reason::Throttle),
                false => Vec::new(),
            },
            advice: None,
        })
    }

    /// The cgroup, how long its tasks waited, and which quota was used up.
    fn throttled_cgroup(&self, cgroup: CgroupId, time: Nanos) -> String {
        let named = match self.cgroups.get(&cgroup) {
            Some(path) => path.clone(),
            None => format!("cgroup {cgroup}"),
        };
        let Some(quota) = self.used_up(cgroup) else {
            return format!("{named} {time}");
        };
        let whose = match quota.cgroup == named {
            true => "its quota".to_owned(),
            false => format!("the quota of {}", quota.cgroup),
        };
        let [of_quota, period] =
            [quota.quota_us, quota.period_us].map(|us| Nanos::from_ns(us.saturating_mul(1000)));
        format!("{named} {time} by {whose}, {of_quota} in {period}")
    }

    /// The quota that stopped CPUs longest, of those of a cgroup and of all above it.
    fn used_up(&self, cgroup: CgroupId) -> Option<&QuotaFacts> {
        let path = self.cgroups.get(&cgroup)?;
        let limits = |holder: &str| {
            let below = path.strip_prefix(holder.trim_end_matches('/'));
            below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
        };
        let quotas = self.quotas.iter().filter(|quota| limits(&quota.cgroup));
        let worst = quotas.max_by_key(|quota| quota.throttled_ns);
        worst.filter(|quota| quota.throttled_ns > 0)
    }

    pub(super) fn slice(&self, total: &Tally) -> Option<Finding> {
        let tally = &self.reasons.of(Reason::Slice).tally;
        if !stands_out(tally.switches, tally.runq, total) {
            return None;
        }
        Some(Finding {
            name: "slice_preemption",
            reason: Some(Reason::Slice),
            subject: Subject::Reason(Reason::Slice),
            switches: tally.switches,
            time: tally.runq,
            seen: format!(
                "Time slice used up while others waited: {}, and {} of waiting for a CPU after them.",
                self.switches(tally, total),
                tally.runq
            ),
            places: self.preemption_places(Reason::Slice),
            advice: self.advice_on_crowding(),
        })
    }

    /// Advice for tasks that wait until others have used up their slices.
    fn advice_on_crowding(&self) -> Option<String> {
        let split = self.preemptors.split(Reason::Slice);
        let all = (split.own + split.others + split.rest).as_ns();
        if is_most(split.own, all) {
            return Some(format!(
                "the program's own threads and processes had the CPU for {} of that time: run no \
                 more busy ones than the {} it has (the size of a pool, make -j), or give batch \
                 work a longer slice (sched_runtime of sched_setattr, Linux 6.12 and later)",
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
            reason: Some(Reason::Wakeup),
            subject: Subject::Reason(Reason::Wakeup),
            switches: tally.switches,
            time: tally.runq,
            seen: format!(
                "Preempted by tasks that were just woken: {}, and {} of waiting for a CPU after them.",
                self.switches(tally, total),
                tally.runq
            ),
            places: self.preemption_places(Reason::Wakeup),
            advice: Some(self.advice_on_wakeups()),
        })
    }

    /// Advice for running tasks that lose the CPU to woken ones.
    fn advice_on_wakeups(&self) -> String {
        let taken = self.taken(Reason::Wakeup);
        let all: u64 = taken.iter().map(|one| one.times).sum();
        let main = taken.first();
        let main = main.filter(|one| percent(one.times, all).is_some_and(|pct| pct >= OFTEN_PCT));
        let Some(main) = main else {
            return "wake threads less often (hand over several messages at once), or give those that are \
                    woken the policy SCHED_BATCH (chrt --batch), which does not preempt when it wakes"
                .to_owned();
        };
        let taker = &main.taker;
        if main.is_kernel {
            return of_the_kernel(taker);
        }
        let pinned = match main.from {
            PreemptedTask::Thread | PreemptedTask::Process => "",
            PreemptedTask::Other(_) => "pin the two to different CPUs (taskset), ",
        };
        format!(
            "wake {} less often (hand over several messages at once), {pinned}or give {taker} the policy \
             SCHED_BATCH (chrt --batch), which does not preempt when it wakes",
            main.who(),
        )
    }

    pub(super) fn class(&self, total: &Tally) -> Option<Finding> {
        let tally = &self.reasons.of(Reason::Class).tally;
        if !stands_out(tally.switches, tally.runq, total) {
            return None;
        }
        let taken = self.taken(Reason::Class);
        let all: u64 = taken.iter().map(|one| one.times).sum();
        let is_main =
            |one: &&PreemptionPair| percent(one.times, all).is_some_and(|pct| pct >= OFTEN_PCT);
        let advice = taken.first().filter(is_main).map(|main| {
            let taker = &main.taker;
            if main.is_kernel {
                return of_the_kernel(taker);
            }
            format!(
                "{taker} runs in a higher class (real time or deadline): if it need not, make it an \
                 ordinary task; else keep its CPU apart (taskset, cpuset)"
            )
        });
        Some(Finding {
            name: "class_preemption",
            reason: Some(Reason::Class),
            subject: Subject::Reason(Reason::Class),
            switches: tally.switches,
            time: tally.runq,
            seen: format!(
                "Preempted by tasks of a higher class: {}, and {} of waiting for a CPU after them.",
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
            reason: Some(Reason::Migrate),
            subject: Subject::Reason(Reason::Migrate),
            switches: tally.switches,
            time: tally.runq,
            seen: format!(
                "Moved to another CPU by force: {}, and {} of waiting for a CPU after them.",
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
        let run = typical(&one.lengths.run);
        Some(Finding {
            name: "yield",
            reason: Some(Reason::Yield),
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

    /// Which tasks took the CPU from which, and [`Self::places`].
    fn preemption_places(&self, reason: Reason) -> Vec<String> {
        let taken = self.took_the_cpu(reason);
        taken.into_iter().chain(self.places(reason)).collect()
    }
}

/// Advice for a kernel thread that takes the CPU, whose policy is not for users to set.
fn of_the_kernel(taker: &str) -> String {
    match taker.starts_with("[migration") {
        true => format!(
            "{taker} moves threads between CPUs: set which CPUs a thread may use once, at its start (taskset, \
             cpuset), and start fewer programs"
        ),
        false => format!(
            "{taker} is the kernel itself at work for programs and devices: fewer requests (disk, network, \
             memory) wake it less often"
        ),
    }
}

fn is_most(part: Nanos, whole_ns: u64) -> bool {
    percent(part.as_ns(), whole_ns).is_some_and(|share| share >= MOST_PCT)
}
