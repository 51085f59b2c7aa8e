//! The monitor's part in finding stalls and deadlocks.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::helper_pool;
use crate::page::{self, add};
use crate::probes::{self, Arguments};
use crate::scheduler::{SchedulerEntry, SchedulerGroup};
use crate::stall::records::Records;
use crate::stall::waits::WaitGraph;
use crate::stall::{Deadlock, ProgressWatch, Reporting, SchedulerDuty, Stall, outside};

/// Longest time between two looks while some scheduler is not idle.
const LONGEST_NAP: Duration = Duration::from_millis(100);

/// The watches over all schedulers; empty when stalls are not looked for.
#[derive(Debug)]
pub(super) struct StallWatch {
    reporting: Option<Reporting>,
    watches: Vec<ProgressWatch>,
    /// Numbers of the deadlocks that were reported and still exist.
    reported: Vec<u64>,
    /// The lack of a free helper was reported and still holds.
    helpers_reported: bool,
    /// Cycles are not looked for before this time.
    cycles_from: Option<Instant>,
}

impl StallWatch {
    pub(super) fn new(group: &SchedulerGroup, reporting: Option<Reporting>) -> Self {
        let watched = reporting.iter().flat_map(|reporting| {
            let new = move |_| ProgressWatch::new(reporting.threshold);
            group.entries().iter().map(new)
        });
        Self {
            watches: watched.collect(),
            reporting,
            reported: Vec::new(),
            helpers_reported: false,
            cycles_from: None,
        }
    }

    /// Reports cycles of waiters, each once. The schedulers need not be idle for that.
    ///
    /// With very many workers a search takes long, and the monitor must end quanta in time:
    /// searches take at most one two-hundredth of its time.
    pub(super) fn find_cycles(&mut self, group: &SchedulerGroup) {
        let began = Instant::now();
        if self.reporting.is_none() || self.cycles_from.is_some_and(|from| began < from) {
            return;
        }
        if let Some(waits) = waits(group) {
            self.report_cycles(&waits);
        }
        self.look_for_helpers(group);
        let now = Instant::now();
        self.cycles_from = Some(now + now.duration_since(began) * 200);
    }

    /// Returns true if preemptive sections wait for a helper. Reports it, once, when that lasts for long.
    fn look_for_helpers(&mut self, group: &SchedulerGroup) -> bool {
        let queued = group.helpers.queued();
        let lasts = queued.filter(|queued| queued.lasted >= helper_pool::LONG);
        if let (Some(queued), false) = (lasts, self.helpers_reported)
            && let Some(reporting) = &self.reporting
        {
            let deadlock = Deadlock::NoHelper {
                helpers: queued.helpers,
                queued: queued.jobs,
                lasted: queued.lasted,
            };
            self.helpers_reported = reporting.reporter.report_deadlock(deadlock, Instant::now());
        }
        if lasts.is_none() {
            self.helpers_reported = false;
        }
        queued.is_some()
    }

    fn report_cycles(&mut self, waits: &WaitGraph) -> bool {
        let found = waits.cycles();
        let is_there = |number: &u64| found.iter().any(|(cycle, _)| cycle == number);
        self.reported.retain(is_there);
        let any = !found.is_empty();
        for (number, deadlock) in found {
            self.report_once(number, deadlock);
        }
        any
    }

    /// Called when all schedulers have been idle for a while: reports it, once, if that cannot end.
    /// True when the caller should look again, because a thread outside could wake a worker but may
    /// not do so.
    pub(super) fn look_while_all_are_idle(
        &mut self,
        group: &SchedulerGroup,
        stays_quiet: impl Fn() -> bool,
    ) -> bool {
        let (Some(page), Some(waits)) = (page::page_if_there(), waits(group)) else {
            return false;
        };
        if self.reporting.is_none() {
            return false;
        }
        if self.look_for_helpers(group) {
            return true;
        }
        if waits.is_empty() {
            return false;
        }
        let entries = || group.entries().iter();
        let wakes_by_itself = |entry: &SchedulerEntry| {
            let has_deadline = entry.scheduler.has_deadline.load(Ordering::Relaxed);
            has_deadline || Records::new(page, entry.index).may_wake_by_itself()
        };
        if self.report_cycles(&waits) || entries().any(wakes_by_itself) {
            return false;
        }
        if outside::could_wake(page, group.monitor.number()) {
            return true;
        }
        // If a scheduler worked during the reading, the values are not of one moment.
        if stays_quiet() {
            let tasks: u64 = entries().map(|entry| entry.scheduler.load.tasks()).sum();
            let (number, deadlock) = waits.all(tasks);
            self.report_once(number, deadlock);
        }
        false
    }

    fn report_once(&mut self, number: u64, deadlock: Deadlock) {
        if let Some(reporting) = &self.reporting
            && !self.reported.contains(&number)
            && reporting.reporter.report_deadlock(deadlock, Instant::now())
        {
            self.reported.push(number);
        }
    }

    /// Looks at each scheduler, and reports those that stall. Returns when to look again; `None`
    /// while all are idle.
    pub(super) fn look(&mut self, group: &SchedulerGroup) -> Option<Duration> {
        let reporting = self.reporting.as_ref()?;
        let page = page::page_if_there()?;
        let mut again = None;
        for (entry, watch) in group.entries().iter().zip(&mut self.watches) {
            let records = Records::new(page, entry.index);
            let duty = records.duty(entry.scheduler);
            let (now, progress) = (Instant::now(), records.progress());
            if let Some(stall) = watch.look(now, progress, duty, || records.subject()) {
                add(&entry.record.stalls_count, 1);
                probe(&stall);
                reporting.reporter.report(stall, now);
            }
            if duty != SchedulerDuty::Idle {
                again = Some((reporting.threshold / 4).min(LONGEST_NAP));
            }
        }
        again
    }
}

/// Which worker of this runtime waits for which, now.
fn waits(group: &SchedulerGroup) -> Option<WaitGraph> {
    let own = group.entries().iter().map(|entry| entry.index);
    Some(WaitGraph::look(page::page_if_there()?, own))
}

fn probe(stall: &Stall) {
    probes::stall(|| Arguments {
        scheduler: stall.scheduler.into(),
        worker: stall.offender.as_ref().map_or(0, |who| who.worker.into()),
        task: stall.offender.as_ref().map_or(0, |who| who.task),
        wait_type: 0,
        ns: u64::try_from(stall.lasted.as_nanos()).unwrap_or(u64::MAX),
    });
}
