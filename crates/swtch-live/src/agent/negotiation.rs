//! In which format and how packed a scraper takes the metrics, by its `Accept` and `Accept-Encoding` (RFC 9110, 12.5).

use axum::http::{HeaderMap, header};
use swtch_loopback::values_of;

/// A text in which metrics are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetricsFormat {
    /// `OpenMetrics` 1.0, for those that ask for it.
    OpenMetrics,
    /// The text format of Prometheus, which everybody reads.
    PrometheusText,
}

impl MetricsFormat {
    /// The format that a request prefers: `OpenMetrics` only where it has that name.
    pub fn of(headers: &HeaderMap) -> Self {
        let weight = |name, version| weight_of(headers, header::ACCEPT, name, version);
        let text = [("text/plain", "0.0.4"), ("text/*", ""), ("*/*", "")];
        let text = text
            .iter()
            .find_map(|(name, version)| weight(name, version));
        match weight("application/openmetrics-text", "1.0.0") {
            Some(open) if open > 0.0 && open >= text.unwrap_or(0.0) => Self::OpenMetrics,
            _ => Self::PrometheusText,
        }
    }

    /// The type of the text.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::PrometheusText => prometheus_client::encoding::prometheus_text::CONTENT_TYPE,
        }
    }
}

/// Returns true if a request takes an answer packed by gzip, and does not prefer one that is not packed.
pub fn takes_gzip(headers: &HeaderMap) -> bool {
    let weight = |name| weight_of(headers, header::ACCEPT_ENCODING, name, "");
    let gzip = ["gzip", "x-gzip", "*"].into_iter().find_map(weight);
    gzip.is_some_and(|gzip| gzip > 0.0 && gzip >= weight("identity").unwrap_or(0.0))
}

/// The weight that a request gives to a name: 1 where it says none; `None` where it does not have the name, or only
/// in other versions. The greatest counts. A weight that is no number is 0.
fn weight_of(
    headers: &HeaderMap,
    list: header::HeaderName,
    name: &str,
    version: &str,
) -> Option<f32> {
    let elements = values_of(headers, list).flat_map(|value| value.split(','));
    let weights = elements.filter_map(|element| {
        let mut words = element.split(';').map(str::trim);
        let is_it = words.next()?.eq_ignore_ascii_case(name);
        let mut weight = 1.0;
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            match key.to_ascii_lowercase().as_str() {
                "q" => weight = value.parse().unwrap_or(0.0),
                "version" if value.trim_matches('"') != version => return None,
                _ => {}
            }
        }
        is_it.then_some(weight)
    });
    weights.reduce(f32::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(name: header::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, value.parse().unwrap())])
    }

    /// The headers of Prometheus 2.42 and 3.5, of curl and of a browser among them.
    #[test]
    fn the_format_is_the_one_that_a_scraper_prefers() {
        let open = [
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
             text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
             application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;q=0.3,*/*;q=0.1",
            "application/openmetrics-text",
            "text/plain;q=0.3, Application/OpenMetrics-Text; Version=\"1.0.0\"; Q=0.3",
            "application/openmetrics-text;q=0.5, text/plain;q=0.4, */*",
        ];
        let text = [
            "*/*",
            "text/plain;version=0.0.4",
            "text/html,application/xhtml+xml,*/*;q=0.8",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=many",
            "application/openmetrics-text;version=2.0.0",
            "text/plain;version=0.0.4;q=0.5,application/openmetrics-text;version=1.0.0;q=0.4",
            "application/openmetrics-text;q=0.5, text/*",
            "application/openmetrics-text;q=0.5, */*;q=0.6",
            "",
            ";;,,=",
        ];
        for accept in open {
            let format = MetricsFormat::of(&headers(header::ACCEPT, accept));
            assert_eq!(format, MetricsFormat::OpenMetrics, "{accept}");
        }
        for accept in text {
            let format = MetricsFormat::of(&headers(header::ACCEPT, accept));
            assert_eq!(format, MetricsFormat::PrometheusText, "{accept}");
        }
        let nothing = MetricsFormat::of(&HeaderMap::new());
        assert_eq!(nothing, MetricsFormat::PrometheusText);
    }

    #[test]
    fn only_who_takes_gzip_gets_it() {
        let takes = |value| takes_gzip(&headers(header::ACCEPT_ENCODING, value));
        assert!(takes("gzip") && takes("deflate, GZIP;q=0.5, br"));
        assert!(takes("*") && takes("identity;q=0, *;q=0.1") && takes("x-gzip"));
        assert!(takes("gzip;q=0.5, *;q=0") && takes("identity;q=0.5, gzip"));
        assert!(!takes("gzip;q=0.1, identity") && !takes("gzip;q=0, *") && !takes("*;q=0"));
        assert!(!takes("gzip;q=0") && !takes("identity") && !takes("") && !takes("gzipped"));
        assert!(!takes_gzip(&HeaderMap::new()));
    }
}
