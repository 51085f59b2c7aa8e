//! Does `swtch cost` find a difference where there is none, and one where there is? This runs its
//! self-check many times, which times two equal arms and one with 1 % more to do.

use std::path::Path;

use anyhow::{Result, ensure};

use super::command::Runner;
use super::hogs::Hogs;
use super::price::{ParsedContrast, ParsedEstimate, ParsedPriceList};
use super::share::Share;
use crate::bench_record::summary::Spread;
use crate::bench_record::table::{NOTHING, TextTable, spread};

/// The comparison of two arms that do the same.
const TWIN: &str = "self-check-twin";

/// The comparison of an arm that has 1 % more to do with one that has not.
const INJECTED: &str = "injected-1-pct";

/// Other work on the machine during a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackgroundLoad {
    /// No load that we start.
    Idle,
    /// One task on each CPU that does nothing but use it.
    Hogs,
}

impl BackgroundLoad {
    /// The words for the load in tables.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Idle => "no load of ours",
            Self::Hogs => "a CPU hog on each CPU",
        }
    }
}

/// All runs of the self-check under one load.
#[derive(Debug)]
pub struct SelfCheckRuns {
    pub load: BackgroundLoad,
    /// The price list of each run.
    pub lists: Vec<ParsedPriceList>,
}

/// Runs the self-check `runs` times.
///
/// # Errors
/// When it fails or lacks the expected names, or on Ctrl-C.
pub fn measure(
    runner: &Runner<'_>,
    swtch: &Path,
    (cpu, cpus): (u32, &[u32]),
    load: BackgroundLoad,
    runs: usize,
) -> Result<SelfCheckRuns> {
    let cpu = cpu.to_string();
    let line = ["cost", "self-check", "--cpu", &cpu, "--format", "json"];
    let mut words = vec![swtch.to_string_lossy().into_owned()];
    words.extend(line.map(str::to_owned));
    let mut lists = Vec::new();
    for run in 0..runs {
        eprintln!("self-check, {}: run {}/{runs}", load.title(), run + 1);
        let _hogs = match load {
            BackgroundLoad::Idle => None,
            BackgroundLoad::Hogs => Some(Hogs::start(cpus, runner.limit())?),
        };
        let list = ParsedPriceList::measured_by(runner, &words)?;
        ensure!(
            !named(&list, TWIN).is_empty(),
            "the check has no {TWIN}: is this swtch too old?"
        );
        lists.push(list);
    }
    Ok(SelfCheckRuns { load, lists })
}

/// The comparisons with this name, among twins and contrasts.
fn named<'l>(list: &'l ParsedPriceList, name: &str) -> Vec<&'l ParsedContrast> {
    let all = list.twins.iter().chain(&list.contrasts);
    all.filter(|contrast| contrast.name == name).collect()
}

fn is_claim(contrast: &ParsedContrast) -> bool {
    matches!(contrast.verdict.as_str(), "larger" | "smaller")
}

impl SelfCheckRuns {
    fn contrasts(&self, name: &str) -> impl Iterator<Item = &ParsedContrast> {
        self.lists.iter().flat_map(move |list| named(list, name))
    }

    /// How often equal arms were reported to differ.
    pub fn false_alarms(&self) -> Share {
        Share::of(self.contrasts(TWIN).map(is_claim))
    }

    /// How often the delay of 1 % was found.
    pub fn found(&self) -> Share {
        Share::of(
            self.contrasts(INJECTED)
                .map(|contrast| contrast.verdict == "larger"),
        )
    }

    /// By how much the second arm was measured to be longer, in percent.
    fn longer_pct(&self, name: &str) -> Option<Spread> {
        let pct = |contrast: &ParsedContrast| (contrast.ratio.point - 1.0) * 100.0;
        Spread::of(self.contrasts(name).map(pct))
    }

    /// Half the interval of the difference between equal arms, in percent of the net price of the
    /// same run.
    pub fn half_widths_pct(&self) -> Option<Spread> {
        let of_run = |list: &ParsedPriceList| {
            let net = list.prices.iter().find_map(|price| price.net_ns)?.point;
            let twin = *named(list, TWIN).first()?;
            let half = (twin.difference_ns.high - twin.difference_ns.low) / 2.0;
            Some(half / net.abs() * 100.0)
        };
        Spread::of(self.lists.iter().filter_map(of_run))
    }

    fn took_s(&self) -> Option<Spread> {
        Spread::of(self.lists.iter().map(|list| list.took_s))
    }

    /// How often an interval holds the median of the points of all runs, for each kind of number.
    /// For equal arms also how often it holds 1, which is known to be true.
    pub fn coverage(&self) -> [(&'static str, Share); 5] {
        let first = |list: &ParsedPriceList| {
            list.prices
                .iter()
                .find(|price| price.net_ns.is_some())
                .cloned()
        };
        let prices: Vec<_> = self.lists.iter().filter_map(first).collect();
        let ratios = |name| -> Vec<ParsedEstimate> {
            let contrasts = self.contrasts(name);
            contrasts.map(|contrast| contrast.ratio).collect()
        };
        let hand_offs: Vec<_> = prices.iter().map(|price| price.hand_off_ns).collect();
        let nets: Vec<_> = prices.iter().filter_map(|price| price.net_ns).collect();
        let twins = ratios(TWIN);
        let holds_one = |ratio: &ParsedEstimate| holds(ratio, 1.0);
        [
            ("hand-off", covered(&hand_offs)),
            ("net", covered(&nets)),
            ("ratio of arms that do the same", covered(&twins)),
            ("the same: holds 1", Share::of(twins.iter().map(holds_one))),
            ("ratio with 1 % more to do", covered(&ratios(INJECTED))),
        ]
    }
}

const fn holds(estimate: &ParsedEstimate, value: f64) -> bool {
    estimate.low <= value && value <= estimate.high
}

/// How many of the intervals hold the median of all points.
fn covered(estimates: &[ParsedEstimate]) -> Share {
    let Some(points) = Spread::of(estimates.iter().map(|one| one.point)) else {
        return Share::default();
    };
    Share::of(estimates.iter().map(|one| holds(one, points.median)))
}

/// The table of false alarms: how often equal arms are reported to differ.
pub fn alarms_table(all: &[SelfCheckRuns]) -> TextTable {
    let mut table = TextTable::new(&[
        "load",
        "said to differ (95 % interval)",
        "second longer by, %",
        "a run, s",
    ]);
    for runs in all {
        table.push(vec![
            runs.load.title().to_owned(),
            runs.false_alarms().to_string(),
            spread(runs.longer_pct(TWIN), 2),
            spread(runs.took_s(), 1),
        ]);
    }
    table
}

/// The table of resolution: how narrow the interval between equal arms is.
pub fn resolution_table(all: &[SelfCheckRuns]) -> TextTable {
    let mut table = TextTable::new(&["load", "half-width, % of net: median", "worst", "runs"]);
    for runs in all {
        let widths = runs.half_widths_pct();
        let shown = |value: fn(Spread) -> f64| {
            widths.map_or(NOTHING.to_owned(), |one| format!("{:.2}", value(one)))
        };
        table.push(vec![
            runs.load.title().to_owned(),
            shown(|widths| widths.median),
            shown(|widths| widths.max),
            runs.lists.len().to_string(),
        ]);
    }
    table
}

/// The table of injected delays: how often 1 % more is found.
pub fn injected_table(all: &[SelfCheckRuns]) -> TextTable {
    let mut table = TextTable::new(&["load", "found (95 % interval)", "seen as, %"]);
    for runs in all {
        table.push(vec![
            runs.load.title().to_owned(),
            runs.found().to_string(),
            spread(runs.longer_pct(INJECTED), 2),
        ]);
    }
    table
}

/// The table of coverage: how often intervals hold the median of many runs.
pub fn coverage_table(all: &[SelfCheckRuns]) -> TextTable {
    let mut table = TextTable::new(&[
        "load",
        "number",
        "holds the median of all runs (95 % interval)",
    ]);
    for runs in all {
        for (what, share) in runs.coverage() {
            let load = runs.load.title().to_owned();
            table.push(vec![load, what.to_owned(), share.to_string()]);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench_cost::price::FIXTURE;

    /// Two runs: the fixture, and one in which everything that is judged goes wrong.
    fn runs() -> SelfCheckRuns {
        let good = FIXTURE;
        let bad = FIXTURE
            .replace("\"verdict\": \"none\"", "\"verdict\": \"smaller\"")
            .replace("\"verdict\": \"larger\"", "\"verdict\": \"unresolved\"")
            .replace("\"low\": -3.0", "\"low\": -15.0")
            .replace(
                "\"point\": 1000.0, \"low\": 990.0",
                "\"point\": 1200.0, \"low\": 1199.0",
            );
        let lists = [good, &bad].map(|text| ParsedPriceList::parse(text).unwrap());
        SelfCheckRuns {
            load: BackgroundLoad::Idle,
            lists: lists.to_vec(),
        }
    }

    #[test]
    fn a_claim_between_arms_that_do_the_same_is_a_false_alarm() {
        assert_eq!(runs().false_alarms(), Share { hits: 1, of: 2 });
    }

    #[test]
    fn a_delay_that_is_unresolved_is_not_found() {
        assert_eq!(runs().found(), Share { hits: 1, of: 2 });
        let seen = runs().longer_pct(INJECTED).unwrap();
        assert!((seen.median - 0.98).abs() < 1e-9, "{seen:?}");
    }

    /// Half-widths of 4 in 1000 ns, and of 10 in 1200 ns.
    #[test]
    fn the_half_width_is_in_per_cent_of_the_net_price_of_its_run() {
        let widths = runs().half_widths_pct().unwrap();
        assert!((widths.min - 0.4).abs() < 1e-9, "{widths:?}");
        assert!((widths.max - 10.0 / 12.0).abs() < 1e-9, "{widths:?}");
    }

    /// The median of the net prices is 1100, which neither [990, 1010] nor [1199, 1010] holds.
    #[test]
    fn an_interval_that_misses_the_long_run_median_does_not_cover() {
        let [hand_off, net, _, one, _] = runs().coverage();
        assert_eq!(one.1, Share { hits: 2, of: 2 });
        assert_eq!(hand_off, ("hand-off", Share { hits: 2, of: 2 }));
        assert_eq!(net, ("net", Share { hits: 0, of: 2 }));
    }

    #[test]
    fn every_table_has_a_row_for_each_load() {
        let all = [runs()];
        assert!(alarms_table(&all).to_markdown().contains("1 of 2"));
        assert!(resolution_table(&all).to_markdown().contains("0.83"));
        assert!(injected_table(&all).to_markdown().contains("0.98"));
        assert!(coverage_table(&all).to_markdown().contains("net"));
    }
}
