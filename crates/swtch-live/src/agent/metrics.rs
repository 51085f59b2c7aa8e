//! All metrics of the agent. `docs/AGENT.md` has them as a table.
//!
//! ```text
//! AgentTotals ─▶ families: name, type, series ─▶ text of OpenMetrics or Prometheus
//! ```
//!
//! Histograms are classic ones: their buckets come ready from the kernel, as powers of two, of which
//! every second is an edge here; a stock Prometheus takes them without a setting.

use std::borrow::Cow;
use std::fmt;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use axum::body::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;
use rustc_hash::FxHashMap;
use swtch_core::{CgroupOwner, LengthHistogram, Nanos, Reason};
use swtch_report::report::live::{BeforeRunq, RowSums};

use super::host::Pressure;
use super::negotiation::MetricsFormat;
use super::totals::AgentTotals;

/// The name under which all cgroups without a name of their own are summed. A path begins with `/`.
const OTHERS: &str = "(others)";

/// The totals as metrics.
#[derive(Debug)]
pub struct AgentMetrics {
    registry: Registry,
    totals: Arc<Mutex<AgentTotals>>,
    /// The number of frames that the last texts hold.
    frames: u64,
    /// These texts, by their format and whether they are packed.
    made: FxHashMap<(MetricsFormat, bool), Bytes>,
}

impl AgentMetrics {
    /// Metrics of these totals.
    pub fn new(totals: Arc<Mutex<AgentTotals>>) -> Self {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(TotalsCollector(Arc::clone(&totals))));
        Self {
            registry,
            totals,
            frames: 0,
            made: FxHashMap::default(),
        }
    }

    /// The text in this format, packed by gzip if `is_packed`. It is made anew only if there was another frame.
    ///
    /// # Errors
    /// When the encoder fails.
    pub fn text(&mut self, format: MetricsFormat, is_packed: bool) -> Result<Bytes> {
        let frames = {
            let mut totals = self.totals.lock().unwrap_or_else(PoisonError::into_inner);
            totals.scrapes += 1;
            totals.frames
        };
        if frames != self.frames {
            self.made.clear();
            self.frames = frames;
        }
        self.made_text(format, is_packed)
    }

    fn made_text(&mut self, format: MetricsFormat, is_packed: bool) -> Result<Bytes> {
        if let Some(text) = self.made.get(&(format, is_packed)) {
            return Ok(text.clone());
        }
        let made = if is_packed {
            packed(&self.made_text(format, false)?)?
        } else {
            self.encoded(format)?
        };
        self.made.insert((format, is_packed), made.clone());
        Ok(made)
    }

    fn encoded(&self, format: MetricsFormat) -> Result<Bytes, fmt::Error> {
        let mut made = String::new();
        match format {
            MetricsFormat::OpenMetrics => text::encode(&mut made, &self.registry)?,
            MetricsFormat::PrometheusText => prometheus_text::encode(&mut made, &self.registry)?,
        }
        Ok(made.into())
    }
}

/// Packs quickly: a text of a megabyte becomes twenty times smaller, and hardly more by an effort.
fn packed(text: &[u8]) -> Result<Bytes> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text)?;
    Ok(encoder.finish()?.into())
}

#[derive(Debug)]
struct TotalsCollector(Arc<Mutex<AgentTotals>>);

impl Collector for TotalsCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let totals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let families = families(&totals);
        families.iter().try_for_each(|one| one.encode(&mut encoder))
    }
}

/// A metric with its series.
#[derive(Clone, Debug)]
pub struct MetricFamily<'a> {
    /// Its name, without the suffix that its type adds.
    pub name: &'static str,
    /// A line that explains it.
    pub help: &'static str,
    /// Says how its numbers behave.
    pub kind: MetricKind,
    /// One number or histogram for each set of labels.
    pub series: Vec<(Labels<'a>, MetricValue)>,
}

/// The behaviour of a metric's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// They only grow.
    Counter,
    /// They grow and shrink.
    Gauge,
    /// They are counts of lengths.
    Histogram,
}

/// The value of a series.
#[derive(Clone, Debug)]
pub enum MetricValue {
    /// A count.
    Count(u64),
    /// Any other number.
    Number(f64),
    /// Lengths in seconds: their sum, and how many are in each bucket, by its upper edge.
    Lengths {
        /// The sum of the lengths.
        sum_s: f64,
        /// Of each bucket its upper edge, and how many are in it. The last edge is infinite.
        buckets: Vec<(f64, u64)>,
    },
}

impl From<u64> for MetricValue {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<f64> for MetricValue {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl MetricFamily<'_> {
    fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let kind = match self.kind {
            MetricKind::Counter => MetricType::Counter,
            MetricKind::Gauge => MetricType::Gauge,
            MetricKind::Histogram => MetricType::Histogram,
        };
        let mut metric = encoder.encode_descriptor(self.name, self.help, None, kind)?;
        for (labels, value) in &self.series {
            let labels = labels.as_slice();
            let mut one = metric.encode_family(&labels)?;
            match (self.kind, value) {
                (MetricKind::Gauge, MetricValue::Count(count)) => one.encode_gauge(count)?,
                (MetricKind::Gauge, MetricValue::Number(number)) => one.encode_gauge(number)?,
                (_, MetricValue::Count(count)) => {
                    one.encode_counter::<NoLabelSet, u64, f64>(count, None)?;
                }
                (_, MetricValue::Number(number)) => {
                    one.encode_counter::<NoLabelSet, f64, f64>(number, None)?;
                }
                (_, MetricValue::Lengths { sum_s, buckets }) => {
                    let count = buckets.iter().map(|(_, count)| count).sum();
                    one.encode_histogram::<NoLabelSet>(*sum_s, count, buckets, None)?;
                }
            }
        }
        Ok(())
    }
}

/// All metrics, as of now.
pub fn families(totals: &AgentTotals) -> Vec<MetricFamily<'_>> {
    let mut page = MetricsPage(Vec::new());
    page.layers(totals);
    page.host(totals);
    if totals.counts_switches() {
        page.switches(totals);
        page.switches_by_cgroup(totals);
    }
    page.cgroups(totals);
    page.agent(totals);
    page.0
}

/// Labels of a series: names and values.
pub type Labels<'a> = Vec<(&'static str, Cow<'a, str>)>;

/// Collects metrics one after the other.
struct MetricsPage<'a>(Vec<MetricFamily<'a>>);

impl<'a> MetricsPage<'a> {
    /// Which layers of the metrics there are.
    fn layers(&mut self, totals: &'a AgentTotals) {
        self.gauges(
            "swtch_layer_up",
            "1 if this layer of the metrics is there; else what it lacks",
            totals.layers().into_iter().map(|(layer, lacks)| {
                let lacking = lacks.map(|lacks| ("lacks", lacks.into()));
                let labels = [("layer", layer.into())].into_iter().chain(lacking);
                (labels.collect(), u64::from(lacks.is_none()))
            }),
        );
    }

    /// Metrics that cost no tracing.
    fn host(&mut self, totals: &'a AgentTotals) {
        let host = &totals.host;
        self.counters(
            "swtch_host_context_switches",
            "Context switches since boot as the kernel counts them, with those to and from idle",
            host.ctxt.map(|ctxt| (Vec::new(), ctxt)),
        );
        self.counters(
            "swtch_host_steal_seconds",
            "Time for which the hypervisor ran others, of all CPUs",
            host.steal_s.map(|steal| (Vec::new(), steal)),
        );
        self.gauge("swtch_host_cpus", "CPUs that are online", host.cpus);
        if let Some(running) = host.running {
            self.gauge(
                "swtch_host_runnable_threads",
                "Threads that run or wait for a CPU",
                running,
            );
        }
        self.counters(
            "swtch_host_pressure_seconds",
            "Time in which some or all tasks waited for a resource (PSI)",
            host.pressure
                .iter()
                .map(|one| (of_pressure(one), one.total_s)),
        );
    }

    /// Metrics of all switches that are counted.
    fn switches(&mut self, totals: &'a AgentTotals) {
        let total = &totals.total;
        self.counters(
            "swtch_switches",
            "Context switches away from a thread, by reason",
            Reason::ALL.iter().map(|reason| {
                let labels = vec![
                    ("reason", reason.as_str().into()),
                    ("category", reason.category().as_str().into()),
                ];
                (labels, total.tally.reasons[reason.index()])
            }),
        );
        self.counters(
            "swtch_voluntary_switches",
            "Switches that the kernel marks as voluntary",
            [(Vec::new(), total.tally.voluntary)],
        );
        self.counters(
            "swtch_switches_from_idle",
            "A thread came onto a CPU that had nothing to do",
            [(Vec::new(), totals.from_idle)],
        );
        self.counters(
            "swtch_preemptions",
            "Switches in which another thread took the CPU, by whose it is",
            takers(total).map(|(taker, number)| (vec![("by", taker.into())], number)),
        );
        self.counters(
            "swtch_blocked_seconds",
            "Time blocked, of waits that have ended, by reason",
            Reason::ALL.iter().filter_map(|reason| {
                let blocked = total.blocked_by_reason[reason.index()];
                let labels = vec![("reason", reason.as_str().into())];
                (blocked > Nanos::ZERO).then_some((labels, seconds(blocked)))
            }),
        );
        self.counters(
            "swtch_on_cpu_seconds",
            "Time on a CPU, of runs that have ended",
            [(Vec::new(), seconds(total.tally.ran))],
        );
        self.histograms(
            "swtch_run_queue_seconds",
            "Time from being able to run to running",
            [(Vec::new(), total)],
        );
        self.counters(
            "swtch_switching_seconds",
            "What the switches cost by the price list: the estimate, and the ends of its interval",
            totals
                .has_prices
                .then_some([
                    ("low", total.cost.low_ns),
                    ("point", total.cost.point_ns),
                    ("high", total.cost.high_ns),
                ])
                .into_iter()
                .flatten()
                .map(|(estimate, ns)| (vec![("estimate", estimate.into())], ns / 1e9)),
        );
        self.counters(
            "swtch_unpriced_switches",
            "Switches without a price",
            totals.has_prices.then_some((Vec::new(), total.unpriced)),
        );
        self.gauge(
            "swtch_switching_threads",
            "Threads that switched in the last reading",
            u64::try_from(totals.threads).unwrap_or(u64::MAX),
        );
        self.counters(
            "swtch_lost_switches",
            "Switches that found no room in the kernel's table, and are in no other metric",
            [(Vec::new(), totals.lost)],
        );
        self.counters(
            "swtch_untraced_switches",
            "Switches that the kernel made and did not report to tracing; they are in no other metric",
            [(Vec::new(), totals.untraced)],
        );
    }

    /// Adds what is counted of the switches of each cgroup.
    fn switches_by_cgroup(&mut self, totals: &'a AgentTotals) {
        let cgroups = &totals.cgroups;
        // Of some only the kernel's own counters are known.
        let named = cgroups.named().filter(|(_, one)| one.sums.switches() > 0);
        let rows: Vec<(Labels<'a>, &RowSums)> = named
            .map(|(label, one)| (of_cgroup(label), &one.sums))
            .chain([(of_cgroup(OTHERS), cgroups.others())])
            .collect();
        self.counters(
            "swtch_cgroup_switches",
            "Context switches away from threads of a cgroup, by reason",
            rows.iter().flat_map(|(cgroup, sums)| {
                let reasons = Reason::ALL.iter();
                reasons.filter_map(|reason| {
                    let number = sums.tally.reasons[reason.index()];
                    (number > 0).then(|| (with(cgroup, "reason", reason.as_str()), number))
                })
            }),
        );
        self.counters(
            "swtch_cgroup_preemptions",
            "Switches in which another thread took the CPU from one of the cgroup, by whose it is",
            rows.iter().flat_map(|(cgroup, sums)| {
                takers(sums).map(|(taker, number)| (with(cgroup, "by", taker), number))
            }),
        );
        self.counters(
            "swtch_cgroup_run_queue_after_seconds",
            "Time in a run queue, by what came before: a wakeup (who had the CPU is not counted), or who took the CPU",
            rows.iter().flat_map(|(cgroup, sums)| {
                BeforeRunq::ALL.iter().filter_map(|before| {
                    let time = sums.runq_after[*before as usize];
                    let labels = || with(cgroup, "after", before.as_str());
                    (time > Nanos::ZERO).then(|| (labels(), seconds(time)))
                })
            }),
        );
        for (name, help, of) in CGROUP_SECONDS {
            if *name == "swtch_cgroup_switching_seconds" && !totals.has_prices {
                continue;
            }
            let series = rows.iter();
            let series = series.map(|(cgroup, sums)| (cgroup.clone(), of(sums)));
            self.counters(name, help, series);
        }
        self.histograms(
            "swtch_cgroup_run_queue_seconds",
            "Time from being able to run to running, of threads of a cgroup",
            rows.iter().map(|(cgroup, sums)| (cgroup.clone(), *sums)),
        );
        self.gauge(
            "swtch_cgroups_in_others",
            "Cgroups that were summed with others in the last reading",
            u64::try_from(cgroups.others_now()).unwrap_or(u64::MAX),
        );
    }

    /// Adds what the kernel counts of each cgroup anyway.
    fn cgroups(&mut self, totals: &'a AgentTotals) {
        let cgroups = &totals.cgroups;
        let throttled = || {
            let counters = cgroups.counters();
            counters.filter_map(|(label, of)| Some((of_cgroup(label), of.throttled()?)))
        };
        self.counters(
            "swtch_cgroup_throttled_seconds",
            "Time for which CPUs were stopped by the quota of this cgroup, in it and in all below it",
            throttled().map(|(labels, of)| (labels, seconds(of.time))),
        );
        self.counters(
            "swtch_cgroup_throttled_periods",
            "Periods in which the quota of this cgroup was used up",
            throttled().map(|(labels, of)| (labels, of.periods)),
        );
        self.gauges(
            "swtch_cgroup_quota_cpus",
            "CPUs that the quota of this cgroup allows on average, to it and to all below it",
            cgroups
                .counters()
                .filter_map(|(label, of)| Some((of_cgroup(label), of.quota?.cpus()))),
        );
        self.counters(
            "swtch_cgroup_pressure_seconds",
            "Time in which some or all tasks of a cgroup waited for a CPU (PSI)",
            cgroups.counters().flat_map(|(label, of)| {
                of.pressure().into_iter().map(move |one| {
                    let mut labels = of_pressure(&one);
                    labels.extend(of_cgroup(label));
                    (labels, one.total_s)
                })
            }),
        );
        let number = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        self.gauge(
            "swtch_cgroups_named",
            "Cgroups that have metrics of their own",
            number(cgroups.named().count()),
        );
        self.gauge(
            "swtch_cgroups_named_limit",
            "Most cgroups that have metrics of their own (--cgroups)",
            number(cgroups.most()),
        );
    }

    /// Adds what the agent itself does and costs.
    fn agent(&mut self, totals: &'a AgentTotals) {
        self.counters(
            "process_cpu_seconds",
            "CPU time of the agent",
            [(Vec::new(), totals.own_cpu_s)],
        );
        self.gauge(
            "process_resident_memory_bytes",
            "Memory of the agent",
            totals.own_memory_bytes,
        );
        if let Some(ns) = totals.kernel_ns_per_switch {
            self.gauge(
                "swtch_agent_kernel_seconds_per_switch",
                "Mean time of a switch in the agent's programs, measured when it began",
                ns / 1e9,
            );
        }
        self.counters(
            "swtch_agent_scrapes",
            "Number of times that the metrics were read, as of the last second",
            [(Vec::new(), totals.scrapes)],
        );
        if totals.counts_switches() {
            self.kernel_side(totals);
        }
        let versions = vec![
            ("version", env!("CARGO_PKG_VERSION").into()),
            ("kernel", totals.kernel_release.as_str().into()),
        ];
        self.gauges(
            "swtch_agent_build_info",
            "The program and the kernel",
            [(versions, 1_u64)],
        );
    }

    /// The table in which the kernel's side counts.
    fn kernel_side(&mut self, totals: &'a AgentTotals) {
        let (room, in_use) = totals.groups;
        self.gauge(
            "swtch_agent_groups",
            "Groups of equal switches in the kernel's table",
            u64::try_from(in_use).unwrap_or(u64::MAX),
        );
        self.gauge(
            "swtch_agent_groups_limit",
            "Groups that the kernel's table has room for (--groups)",
            u64::from(room),
        );
        self.counters(
            "swtch_agent_lost_names",
            "Records of tasks that were lost: some threads are in no cgroup, or in an old one",
            [(Vec::new(), totals.lost_names)],
        );
        let hooks = totals.absent_hooks.iter();
        let hooks = hooks.map(|hook| (vec![("hook", hook.as_str().into())], 1_u64));
        self.gauges(
            "swtch_agent_absent_hook",
            "A hook that is missing: reasons that need it are inferred",
            hooks,
        );
    }

    fn counters<V: Into<MetricValue>>(
        &mut self,
        name: &'static str,
        help: &'static str,
        series: impl IntoIterator<Item = (Labels<'a>, V)>,
    ) {
        self.each(name, help, MetricKind::Counter, series);
    }

    fn gauge(&mut self, name: &'static str, help: &'static str, value: impl Into<MetricValue>) {
        self.gauges(name, help, [(Vec::new(), value)]);
    }

    fn gauges<V: Into<MetricValue>>(
        &mut self,
        name: &'static str,
        help: &'static str,
        series: impl IntoIterator<Item = (Labels<'a>, V)>,
    ) {
        self.each(name, help, MetricKind::Gauge, series);
    }

    /// Histograms of run-queue times.
    fn histograms<'s>(
        &mut self,
        name: &'static str,
        help: &'static str,
        series: impl IntoIterator<Item = (Labels<'a>, &'s RowSums)>,
    ) {
        let lengths = |row: &RowSums| MetricValue::Lengths {
            sum_s: seconds(row.tally.runq),
            buckets: buckets(&row.runq_lengths),
        };
        let series = series.into_iter();
        let series = series.map(|(labels, row)| (labels, lengths(row)));
        self.each(name, help, MetricKind::Histogram, series);
    }

    /// A metric with its series; it is left out if there are none.
    fn each<V: Into<MetricValue>>(
        &mut self,
        name: &'static str,
        help: &'static str,
        kind: MetricKind,
        series: impl IntoIterator<Item = (Labels<'a>, V)>,
    ) {
        let series = series.into_iter();
        let series: Vec<_> = series
            .map(|(labels, value)| (labels, value.into()))
            .collect();
        if !series.is_empty() {
            self.0.push(MetricFamily {
                name,
                help,
                kind,
                series,
            });
        }
    }
}

/// A time of a cgroup's switches: name, help, and where it stands.
type SecondsOfRow = (&'static str, &'static str, fn(&RowSums) -> f64);

const CGROUP_SECONDS: &[SecondsOfRow] = &[
    (
        "swtch_cgroup_on_cpu_seconds",
        "Time on a CPU, of runs that have ended",
        |row| seconds(row.tally.ran),
    ),
    (
        "swtch_cgroup_blocked_seconds",
        "Time blocked, of waits that have ended",
        |row| seconds(row.tally.blocked),
    ),
    (
        "swtch_cgroup_switching_seconds",
        "What the switches cost by the price list",
        |row| row.cost.point_ns / 1e9,
    ),
];

fn takers(row: &RowSums) -> impl Iterator<Item = (&'static str, u64)> + use<> {
    [
        ("own_process", row.by_own_process),
        ("own_cgroup", row.by_own_cgroup),
        ("foreign", row.by_foreign),
    ]
    .into_iter()
}

fn of_pressure(one: &Pressure) -> Labels<'static> {
    vec![("resource", one.resource.into()), ("kind", one.kind.into())]
}

/// The labels of a cgroup, by its escaped path: whose it is follows from that, so they make no more series. An empty
/// label is the same to Prometheus as none.
fn of_cgroup(path: &str) -> Labels<'_> {
    let owner = CgroupOwner::of(path);
    let runtime = owner.runtime.map(|runtime| runtime.as_str().into());
    let labels = [
        ("cgroup", Some(path.into())),
        ("runtime", runtime),
        ("container_id", owner.container_id),
        ("pod_uid", owner.pod_uid),
    ];
    let labels = labels.into_iter();
    labels
        .filter_map(|(name, value)| Some((name, value?)))
        .collect()
}

/// The labels of a cgroup and one more.
fn with<'a>(cgroup: &Labels<'a>, name: &'static str, value: &'static str) -> Labels<'a> {
    let mut labels = cgroup.clone();
    labels.push((name, value.into()));
    labels
}

fn seconds(time: Nanos) -> f64 {
    time.as_ns() as f64 / 1e9
}

/// The edges of buckets: 1.024 µs times four again and again, up to 1.07 s.
const EDGES: usize = 11;

/// The lengths by buckets, each with its upper edge in seconds.
fn buckets(lengths: &LengthHistogram) -> Vec<(f64, u64)> {
    // Slot n of the kernel's histogram ends below 2^(n+8) ns, so the first three are below 1.024 µs.
    let (first, rest) = lengths.0.split_at(3);
    let (inner, last) = rest.split_at(2 * (EDGES - 1));
    let counts = std::iter::once(first)
        .chain(inner.chunks(2))
        .map(|slots| slots.iter().sum());
    let edges = (0..EDGES).map(|place| (1_024_u64 << (2 * place)) as f64 / 1e9);
    edges
        .zip(counts)
        .chain([(f64::INFINITY, last.iter().sum())])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_of_a_container_has_labels_to_join_by() {
        let uid = "9f1c0d2e-3b4a-4c5d-8e6f-7a8b9c0d1e2f";
        let id = "3f2a9c1b7d5e".repeat(5) + "0123";
        let path = format!(
            "/kubepods.slice/kubepods-pod{}.slice/crio-{id}.scope",
            uid.replace('-', "_")
        );
        let labels = of_cgroup(&path);
        let expected = [
            ("cgroup", &*path),
            ("runtime", "cri-o"),
            ("container_id", &id),
            ("pod_uid", uid),
        ];
        assert_eq!(labels, expected.map(|(name, value)| (name, value.into())));
        assert_eq!(of_cgroup(OTHERS), [("cgroup", OTHERS.into())]);
    }

    /// Every length is in one bucket, and none above its edge.
    #[test]
    fn buckets_hold_every_slot_of_the_kernel_once() {
        for slot in 0..32 {
            let mut lengths = LengthHistogram::default();
            lengths.0[slot] = 7;
            let buckets = buckets(&lengths);
            assert_eq!(buckets.len(), EDGES + 1);
            let filled: Vec<_> = buckets.iter().filter(|(_, count)| *count > 0).collect();
            let [(edge, 7)] = filled[..] else {
                panic!("slot {slot}: {filled:?}")
            };
            let slot_ends_s = (256_u64 << slot) as f64 / 1e9;
            assert!(
                slot_ends_s <= *edge,
                "slot {slot} ends at {slot_ends_s}, {edge}"
            );
            assert!(*edge <= 4.0 * slot_ends_s || slot < 1 || edge.is_infinite());
        }
    }
}
