//! The messages of OTLP that metrics take. Numbers of fields are those of `metrics.proto`, `common.proto`,
//! `resource.proto` and `metrics_service.proto` (opentelemetry-proto 1.0 and later, which changes none).

use prost::{Message, Oneof};

use crate::agent::metrics::{Labels, MetricFamily, MetricKind, MetricValue, families};
use crate::agent::totals::AgentTotals;

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`: counts are since the start.
const CUMULATIVE: i32 = 2;

/// `ExportMetricsServiceRequest`.
#[derive(Clone, PartialEq, Message)]
pub struct MetricsExport {
    #[prost(message, repeated, tag = "1")]
    resource_metrics: Vec<ResourceMetrics>,
}

/// `ExportMetricsServiceResponse`.
#[derive(Clone, PartialEq, Message)]
pub struct CollectorAnswer {
    /// What was not taken.
    #[prost(message, optional, tag = "1")]
    pub partial_success: Option<PartialSuccess>,
}

/// `ExportMetricsPartialSuccess`.
#[derive(Clone, PartialEq, Message)]
pub struct PartialSuccess {
    /// Number of points.
    #[prost(int64, tag = "1")]
    pub rejected_data_points: i64,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_metrics: Vec<ScopeMetrics>,
}

#[derive(Clone, PartialEq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeMetrics {
    #[prost(message, optional, tag = "1")]
    scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    metrics: Vec<Metric>,
}

#[derive(Clone, PartialEq, Message)]
struct InstrumentationScope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct AnyValue {
    #[prost(string, optional, tag = "1")]
    string_value: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    description: String,
    #[prost(string, tag = "3")]
    unit: String,
    #[prost(oneof = "MetricData", tags = "5, 7, 9")]
    data: Option<MetricData>,
}

#[derive(Clone, PartialEq, Oneof)]
enum MetricData {
    #[prost(message, tag = "5")]
    Gauge(GaugeData),
    #[prost(message, tag = "7")]
    Sum(SumData),
    #[prost(message, tag = "9")]
    Histogram(HistogramData),
}

#[derive(Clone, PartialEq, Message)]
struct GaugeData {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<NumberPoint>,
}

#[derive(Clone, PartialEq, Message)]
struct SumData {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<NumberPoint>,
    #[prost(int32, tag = "2")]
    aggregation_temporality: i32,
    #[prost(bool, tag = "3")]
    is_monotonic: bool,
}

#[derive(Clone, PartialEq, Message)]
struct HistogramData {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<HistogramPoint>,
    #[prost(int32, tag = "2")]
    aggregation_temporality: i32,
}

#[derive(Clone, PartialEq, Message)]
struct NumberPoint {
    #[prost(fixed64, tag = "3")]
    time_unix_nano: u64,
    #[prost(oneof = "PointValue", tags = "4, 6")]
    value: Option<PointValue>,
    #[prost(message, repeated, tag = "7")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, Copy, PartialEq, Oneof)]
enum PointValue {
    #[prost(double, tag = "4")]
    Number(f64),
    #[prost(sfixed64, tag = "6")]
    Count(i64),
}

#[derive(Clone, PartialEq, Message)]
struct HistogramPoint {
    #[prost(fixed64, tag = "3")]
    time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    count: u64,
    #[prost(double, optional, tag = "5")]
    sum: Option<f64>,
    #[prost(fixed64, repeated, tag = "6")]
    bucket_counts: Vec<u64>,
    #[prost(double, repeated, tag = "7")]
    explicit_bounds: Vec<f64>,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
}

/// All metrics as of `now_ns` since 1970. Points say no start: some counters began with the kernel, others
/// with the agent, and who reads them takes the first point as the base, as of scraped ones.
pub fn request_of(totals: &AgentTotals, now_ns: u64) -> MetricsExport {
    let families = families(totals);
    let version = env!("CARGO_PKG_VERSION");
    MetricsExport {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes: vec![
                    attribute("service.name", "swtch-agent"),
                    attribute("service.version", version),
                    attribute("host.name", &totals.host_name),
                ],
            }),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(InstrumentationScope {
                    name: "swtch".to_owned(),
                    version: version.to_owned(),
                }),
                metrics: families.iter().map(|one| metric(one, now_ns)).collect(),
            }],
        }],
    }
}

fn metric(family: &MetricFamily<'_>, now_ns: u64) -> Metric {
    let data = match family.kind {
        MetricKind::Gauge => MetricData::Gauge(GaugeData {
            data_points: numbers(family, now_ns),
        }),
        MetricKind::Counter => MetricData::Sum(SumData {
            data_points: numbers(family, now_ns),
            aggregation_temporality: CUMULATIVE,
            is_monotonic: true,
        }),
        MetricKind::Histogram => MetricData::Histogram(HistogramData {
            data_points: histograms(family, now_ns),
            aggregation_temporality: CUMULATIVE,
        }),
    };
    Metric {
        name: family.name.to_owned(),
        description: family.help.to_owned(),
        unit: unit_of(family.name).to_owned(),
        data: Some(data),
    }
}

fn numbers(family: &MetricFamily<'_>, now_ns: u64) -> Vec<NumberPoint> {
    let series = family.series.iter();
    let point = |(labels, value): &(Labels<'_>, MetricValue)| {
        let value = match value {
            MetricValue::Count(count) => {
                PointValue::Count(i64::try_from(*count).unwrap_or(i64::MAX))
            }
            MetricValue::Number(number) => PointValue::Number(*number),
            MetricValue::Lengths { .. } => return None,
        };
        Some(NumberPoint {
            time_unix_nano: now_ns,
            value: Some(value),
            attributes: attributes(labels),
        })
    };
    series.filter_map(point).collect()
}

fn histograms(family: &MetricFamily<'_>, now_ns: u64) -> Vec<HistogramPoint> {
    let series = family.series.iter();
    let point = |(labels, value): &(Labels<'_>, MetricValue)| {
        let MetricValue::Lengths { sum_s, buckets } = value else {
            return None;
        };
        let edges = buckets.iter().map(|(edge, _)| *edge);
        Some(HistogramPoint {
            time_unix_nano: now_ns,
            count: buckets.iter().map(|(_, count)| count).sum(),
            sum: Some(*sum_s),
            bucket_counts: buckets.iter().map(|(_, count)| *count).collect(),
            // The last bucket has no upper bound.
            explicit_bounds: edges.filter(|edge| edge.is_finite()).collect(),
            attributes: attributes(labels),
        })
    };
    series.filter_map(point).collect()
}

fn attributes(labels: &Labels<'_>) -> Vec<KeyValue> {
    let labels = labels.iter();
    labels.map(|(name, value)| attribute(name, value)).collect()
}

fn attribute(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            string_value: Some(value.to_owned()),
        }),
    }
}

/// The unit in UCUM that a name ends in, as collectors expect it.
fn unit_of(name: &str) -> &'static str {
    match name.rsplit('_').next() {
        Some("seconds") => "s",
        Some("bytes") => "By",
        _ => "",
    }
}
