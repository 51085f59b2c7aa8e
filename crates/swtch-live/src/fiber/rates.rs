//! Rates of both levels: the growth of the counters of a scheduler and of its threads between two
//! readings.

use std::time::Duration;

use swtch_core::Nanos;
use swtch_host::thread::ThreadCounters;
use swtch_observe::{Mode, Page, SchedulerRow, Snapshot};
use swtch_report::report::Cell;

use super::kernel::{KernelCounters, cpu_time};
use super::price::LevelPrices;

/// One reading of the counters of both levels.
#[derive(Clone, Debug)]
pub struct LevelsReading {
    /// The contents of the process's page.
    pub snapshot: Snapshot,
    threads: KernelCounters,
}

impl LevelsReading {
    /// Reads both levels, one right after the other.
    ///
    /// # Errors
    /// As [`Page::snapshot`].
    pub fn at(page: &Page) -> Result<Self, swtch_observe::Error> {
        let snapshot = page.snapshot()?;
        let threads = KernelCounters::read(page.pid(), &snapshot);
        Ok(Self { snapshot, threads })
    }

    /// The rates of each living scheduler since an earlier reading. A scheduler that was started in
    /// between has no rates yet.
    pub fn since(&self, earlier: &Self, prices: &LevelPrices) -> Vec<Rates> {
        let passed = self.snapshot.taken_monotonic_ns - earlier.snapshot.taken_monotonic_ns;
        let passed = Duration::from_nanos(passed);
        let rows = self.snapshot.schedulers.iter();
        let living = rows.filter(|row| row.mode != Mode::Ended);
        living
            .filter_map(|row| {
                let before = earlier.snapshot.schedulers.iter();
                // The same place in the page may be used by another runtime now.
                let mut before = before
                    .filter(|old| (old.scheduler, old.runtime) == (row.scheduler, row.runtime));
                let os = self.threads.of_scheduler(row.scheduler);
                let os_before = earlier.threads.of_scheduler(row.scheduler);
                let os = os.zip(os_before).map(|(now, before)| now - before);
                Some(Rates::between(before.next()?, row, os, passed, prices))
            })
            .collect()
    }
}

/// The rates of one scheduler, at both levels.
#[derive(Clone, Debug, PartialEq)]
pub struct Rates {
    pub(super) scheduler: usize,
    pub(super) mode: Mode,
    pub(super) user_per_s: f64,
    pub(super) yields_per_s: f64,
    pub(super) reselects_per_s: f64,
    pub(super) user_ns: Option<f64>,
    /// Share of one CPU that the scheduler's switches take, in percent.
    pub(super) user_pct: Option<f64>,
    pub(super) os: Option<OsRates>,
    pub(super) os_ns: Option<f64>,
    pub(super) runnable: u32,
    pub(super) delay_ns_per_s: f64,
}

/// The rates of the kernel's switches of its threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct OsRates {
    pub(super) voluntary_per_s: f64,
    pub(super) involuntary_per_s: f64,
    pub(super) cpu_pct: Option<f64>,
}

/// Columns of JSON and CSV; the table has them in the same order.
pub const COLUMNS: [&str; 16] = [
    "at_ns",
    "scheduler",
    "mode",
    "user_switches_per_s",
    "yields_per_s",
    "self_reselects_per_s",
    "user_switch_ns",
    "user_switching_pct",
    "os_voluntary_per_s",
    "os_involuntary_per_s",
    "os_switch_ns",
    "os_switching_pct",
    "cpu_pct",
    "runnable_tasks_count",
    "scheduler_delay_ns_per_s",
    "os_per_user_switch",
];

impl Rates {
    fn between(
        before: &SchedulerRow,
        now: &SchedulerRow,
        os: Option<ThreadCounters>,
        passed: Duration,
        prices: &LevelPrices,
    ) -> Self {
        let seconds = passed.as_secs_f64().max(1e-9);
        let rate = |before: u64, now: u64| now.saturating_sub(before) as f64 / seconds;
        let user_per_s = rate(before.context_switches_count, now.context_switches_count);
        let user_ns = prices.user_ns(now.mode);
        Self {
            scheduler: now.scheduler,
            mode: now.mode,
            user_per_s,
            yields_per_s: rate(before.yield_count, now.yield_count),
            reselects_per_s: rate(before.self_reselect_count, now.self_reselect_count),
            user_ns,
            user_pct: user_ns.map(|ns| percent_of_cpu(user_per_s, ns)),
            os: os.map(|grown| OsRates {
                voluntary_per_s: grown.voluntary as f64 / seconds,
                involuntary_per_s: grown.involuntary as f64 / seconds,
                cpu_pct: cpu_time(&grown).map(|ran| ran.as_ns() as f64 / seconds / 1e7),
            }),
            os_ns: prices.os_ns,
            runnable: now.runnable_tasks_count,
            delay_ns_per_s: rate(
                before.total_scheduler_delay_ns,
                now.total_scheduler_delay_ns,
            ),
        }
    }

    fn os_per_s(&self) -> Option<f64> {
        self.os.map(|os| os.voluntary_per_s + os.involuntary_per_s)
    }

    /// Share of one CPU that the kernel's switches take, in percent.
    pub(super) fn os_pct(&self) -> Option<f64> {
        Some(percent_of_cpu(self.os_per_s()?, self.os_ns?))
    }

    /// A cell for each of [`COLUMNS`].
    pub fn cells(&self, at: Nanos) -> Vec<Cell> {
        let number = |value: Option<f64>| value.map_or(Cell::Missing, Cell::Ratio);
        let percent = |value: Option<f64>| value.map_or(Cell::Missing, Cell::Percent);
        let length = |value: Option<f64>| value.map_or(Cell::Missing, Cell::Estimated);
        let per_user = self.os_per_s().filter(|_| self.user_per_s > 0.0);
        vec![
            Cell::Time(at),
            Cell::Id(self.scheduler as u64),
            Cell::text(self.mode.as_str()),
            number(Some(self.user_per_s)),
            number(Some(self.yields_per_s)),
            number(Some(self.reselects_per_s)),
            length(self.user_ns),
            percent(self.user_pct),
            number(self.os.map(|os| os.voluntary_per_s)),
            number(self.os.map(|os| os.involuntary_per_s)),
            length(self.os_ns),
            percent(self.os_pct()),
            percent(self.os.and_then(|os| os.cpu_pct)),
            Cell::Count(self.runnable.into()),
            length(Some(self.delay_ns_per_s)),
            number(per_user.map(|os| os / self.user_per_s)),
        ]
    }
}

fn percent_of_cpu(per_s: f64, ns: f64) -> f64 {
    per_s * ns / 1e7
}

#[cfg(test)]
mod tests {
    use swtch_host::thread::Schedstat;

    use super::*;

    fn row(switches: u64, delay_ns: u64) -> SchedulerRow {
        let runtime = swtch_fiber::Runtime::builder()
            .schedulers(1)
            .build()
            .unwrap();
        let page = Page::of_process(std::process::id()).unwrap();
        let snapshot = page.snapshot().unwrap();
        drop(runtime);
        SchedulerRow {
            scheduler: 3,
            mode: Mode::Fiber,
            context_switches_count: switches,
            total_scheduler_delay_ns: delay_ns,
            ..snapshot.schedulers[0].clone()
        }
    }

    /// 500 switches in 2 s at both levels: of 1 µs each they take 0.025 % of a CPU.
    #[test]
    fn growth_over_time_is_a_rate_and_times_the_price_a_share() {
        let os = ThreadCounters {
            voluntary: 100,
            involuntary: 400,
            runs: Some(Schedstat {
                ran: Nanos::from_ns(1_000_000_000),
                ..Schedstat::default()
            }),
        };
        let prices = LevelPrices {
            os_ns: Some(1_000.0),
            ..LevelPrices::default()
        };
        let passed = Duration::from_secs(2);
        let rates = Rates::between(
            &row(1_000, 0),
            &row(1_500, 8_000),
            Some(os),
            passed,
            &prices,
        );
        assert!((rates.user_per_s - 250.0).abs() < 1e-9);
        assert!((rates.os_pct().unwrap() - 0.025).abs() < 1e-9);
        assert_eq!(rates.os.unwrap().cpu_pct, Some(50.0));
        assert!((rates.delay_ns_per_s - 4_000.0).abs() < 1e-9);
        assert_eq!(rates.cells(Nanos::ZERO).len(), COLUMNS.len());
        // `None`: the price of a switch of this scheduler is not known.
        assert_eq!(rates.user_pct, None);
    }
}
