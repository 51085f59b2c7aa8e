//! Findings about limits of CPU time, about moves to other CPUs, and about tasks that gave the CPU away.

use std::cmp::Reverse;

use swtch_core::{CgroupId, Nanos, Reason, Spent, cgroup_words};
use swtch_output::text::grouped;
use swtch_store::QuotaFacts;

use super::advice;
use super::used_up::is_at_or_below;
use super::{CpuLimit, Finding, NAMED, Subject, VerdictInput, is_often, typical};
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
        // Of waits for locks that others held meanwhile no cgroup is known.
        if !named.is_empty() {
            let named = format!("throttled: {}", named.join(", "));
            finding.places.push(named);
        }
        finding.advice = (self.details.count_of("quota_used") > 0).then(|| {
            let holder = cgroups
                .first()
                .and_then(|(cgroup, _)| self.used_up(**cgroup));
            let of = holder.map_or_else(String::new, |quota| {
                format!(" of {}", cgroup_words(&quota.cgroup))
            });
            advice::QUOTA.told_with(&[("of", &of), ("time", &finding.time.to_string())])
        });
        Some(finding)
    }

    /// Tasks of `SCHED_DEADLINE` that had used up their own runtime of a period.
    pub(super) fn deadline_budget(&self, total: &Tally) -> Option<Finding> {
        let mut finding = self.limited(CpuLimit::Budget, "deadline_budget", total)?;
        finding.advice = Some(advice::BUDGET.told_with(&[("time", &finding.time.to_string())]));
        Some(finding)
    }

    /// Real-time tasks that had to leave the CPU to ordinary ones.
    pub(super) fn real_time_limit(&self, total: &Tally) -> Option<Finding> {
        self.limited(CpuLimit::RealTime, "real_time_limit", total)
    }

    /// The finding about tasks that had used up the CPU time that they may use, without advice.
    fn limited(&self, limit: CpuLimit, name: &'static str, total: &Tally) -> Option<Finding> {
        let tally = &self.details.limits[limit.index()];
        let through = match limit {
            CpuLimit::Quota => self.at_locks.through(Spent::Throttled),
            CpuLimit::Budget | CpuLimit::RealTime => Nanos::ZERO,
        };
        let (kind, time) = self.weighed(
            tally.runq + through,
            self.longest_of(&[Reason::Throttle]),
            tally.switches,
            total,
        )?;
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
        // Which threads these are, and the saving, are known of all limits together only.
        let is_all = tally.switches == self.reasons.of(Reason::Throttle).tally.switches;
        Some(Finding {
            name,
            kind,
            reason: Some(Reason::Throttle),
            subject: if is_all {
                Subject::Reason(Reason::Throttle)
            } else {
                Subject::Time
            },
            switches: tally.switches,
            time,
            seen: format!(
                "{what}: {}; waited {until} for {}.",
                self.switches(tally, total),
                self.lost_words(tally.runq + through)
            ),
            places: self
                .through_locks(Spent::Throttled, through, time)
                .into_iter()
                .chain(self.places(Reason::Throttle).into_iter().filter(|_| is_all))
                .collect(),
            advice: None,
        })
    }

    /// The cgroup, how long its tasks waited, and which quota was used up.
    fn throttled_cgroup(&self, cgroup: CgroupId, time: Nanos) -> String {
        let path = self.cgroups.get(&cgroup);
        let named = match path {
            Some(path) => cgroup_words(path),
            None => format!("cgroup {cgroup}").into(),
        };
        let Some(quota) = self.used_up(cgroup) else {
            return format!("{named} {time}");
        };
        let whose = if path == Some(&quota.cgroup) {
            "its quota".to_owned()
        } else {
            format!("the quota of {}", cgroup_words(&quota.cgroup))
        };
        let [of_quota, period] =
            [quota.quota_us, quota.period_us].map(|us| Nanos::from_ns(us.saturating_mul(1000)));
        format!("{named} {time} by {whose}, {of_quota} in {period}")
    }

    /// The quota that stopped CPUs longest, of those of a cgroup and of all above it.
    fn used_up(&self, cgroup: CgroupId) -> Option<&QuotaFacts> {
        let path = self.cgroups.get(&cgroup)?;
        let quotas = self.quotas.iter();
        let quotas = quotas.filter(|quota| is_at_or_below(path, &quota.cgroup));
        let worst = quotas.max_by_key(|quota| quota.throttled_ns);
        worst.filter(|quota| quota.throttled_ns > 0)
    }

    /// Tasks that were moved to another CPU.
    pub(super) fn migrate(&self, total: &Tally) -> Option<Finding> {
        let tally = self.of_programs(Reason::Migrate);
        let (kind, time) = self.weighed(
            tally.blocked,
            self.longest_of(&[Reason::Migrate]),
            tally.switches,
            total,
        )?;
        let own = self.details.count_of("affinity_change");
        let advice = (own > 0).then(|| advice::AFFINITY.told_with(&[("count", &grouped(own))]));
        Some(Finding {
            name: "migration",
            kind,
            reason: Some(Reason::Migrate),
            subject: Subject::Reason(Reason::Migrate),
            switches: tally.switches,
            time,
            seen: format!(
                "Moved to another CPU by force: {}, blocked {} in all until they were there.",
                self.switches(&tally, total),
                tally.blocked
            ),
            places: self.places(Reason::Migrate),
            advice,
        })
    }

    /// Time that threads which yield often waited for a CPU after that: they have given it away, which is a
    /// cause of its own. Who does so once in a while waits as others do.
    pub(super) fn yielded(&self, total: &Tally) -> Nanos {
        let tally = &self.reasons.of(Reason::Yield).tally;
        if is_often(tally.switches, total) {
            tally.runq
        } else {
            Nanos::ZERO
        }
    }

    /// Tasks that gave the CPU up by themselves, again and again.
    pub(super) fn yields(&self, total: &Tally) -> Option<Finding> {
        let one = self.reasons.of(Reason::Yield);
        let tally = &one.tally;
        let yielded = self.yielded(total);
        let (kind, time) = self.weighed(yielded, Nanos::ZERO, tally.switches, total)?;
        let run = typical(&one.lengths.run);
        Some(Finding {
            name: "yield",
            kind,
            reason: Some(Reason::Yield),
            subject: Subject::Reason(Reason::Yield),
            switches: tally.switches,
            time,
            seen: format!(
                "sched_yield: {}, after runs of {run} (median); until they had a CPU again it took {}.",
                self.switches(tally, total),
                self.lost_words(yielded),
            ),
            places: self.places(Reason::Yield),
            advice: Some(advice::YIELD.told()),
        })
    }

    /// Returns which tasks took the CPU from which, and [`Self::places`].
    pub(super) fn preemption_places(&self, reason: Reason) -> Vec<String> {
        let taken = self.took_the_cpu(reason);
        taken.into_iter().chain(self.places(reason)).collect()
    }
}
