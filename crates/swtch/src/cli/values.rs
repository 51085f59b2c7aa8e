//! Parsers for single values of the command line: words from a list, durations, ids.

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use swtch_capture::SpanChoice;
use swtch_core::{Nanos, Pid, Reason};
use swtch_report::export::ExportFormat;
use swtch_report::report::live::LiveView;
use swtch_report::report::{BillBy, By, Per};

use swtch_record::record::KeptSize;

/// All values of `--by`: those of reports, then those that only bills have.
pub fn by() -> PossibleValuesParser {
    let reports = By::ALL.map(By::as_str).into_iter();
    let bills = BillBy::ALL.map(BillBy::as_str).into_iter();
    PossibleValuesParser::new(reports.chain(bills.filter(|word| By::from_word(word).is_none())))
}

/// The views of `swtch top`.
pub fn live_view() -> impl TypedValueParser<Value = LiveView> {
    PossibleValuesParser::new(LiveView::ALL.map(LiveView::as_str))
        .map(|word| LiveView::from_word(&word).expect("it is one of the possible values"))
}

pub fn to() -> impl TypedValueParser<Value = ExportFormat> {
    PossibleValuesParser::new(ExportFormat::ALL.map(ExportFormat::as_str))
        .map(|word| ExportFormat::from_word(&word).expect("it is one of the possible values"))
}

pub fn per() -> impl TypedValueParser<Value = Per> {
    PossibleValuesParser::new(Per::ALL.map(Per::as_str))
        .map(|word| Per::from_word(&word).expect("it is one of the possible values"))
}

/// Parses a percentage: `5`, `5%`, `2.5%`.
pub fn percent(words: &str) -> Result<f64, String> {
    let number = words.trim_end_matches('%').trim_end().parse().ok();
    number
        .filter(|percent: &f64| (0.0..1e6).contains(percent))
        .ok_or_else(|| format!("`{words}` is no percentage: give 5 or 5%"))
}

/// Digits with which an id of a span begins, as W3C's Trace Context writes them: four to 32 of them, in small letters.
pub fn id_of_span(words: &str) -> Result<String, String> {
    let is_hexadecimal = words.bytes().all(|digit| digit.is_ascii_hexdigit());
    match is_hexadecimal && (4..=32).contains(&words.len()) {
        true => Ok(words.to_ascii_lowercase()),
        false => Err(format!(
            "`{words}` is no id of a span: give 4 to 32 hexadecimal digits, as swtch report --by span lists them"
        )),
    }
}

/// A span between two places of a program; `otel`, which is none, is refused for this reason.
fn span_of_places(words: &str, why_no_contexts: &str) -> Result<SpanChoice, String> {
    match words.parse().map_err(|error| format!("{error}"))? {
        SpanChoice::Contexts => Err(why_no_contexts.to_owned()),
        choice => Ok(choice),
    }
}

/// A span that is counted.
pub fn span_between_places(words: &str) -> Result<SpanChoice, String> {
    let why = "the ids that programs publish are read for each switch, and here switches are only counted";
    span_of_places(words, why)
}

/// The words of a span that is a unit of a program's work.
pub fn span_of_unit(words: &str) -> Result<String, String> {
    let why = "ids that programs publish tell no unit of work: name a function";
    span_of_places(words, why).map(|_| words.to_owned())
}

pub fn reason() -> impl TypedValueParser<Value = Reason> {
    PossibleValuesParser::new(Reason::ALL.iter().map(|reason| reason.as_str()))
        .map(|word| Reason::from_word(&word).expect("it is one of the possible values"))
}

/// The duration of a recording, which must be above 0: `10` and `10s` are seconds, `5m` minutes.
pub fn duration(words: &str) -> Result<Duration, String> {
    seconds_or_length(words)
        .filter(|length| !length.is_zero())
        .ok_or_else(|| {
            format!("`{words}` is no length of time to record for: give 10, 10s, 5m or 2h")
        })
}

/// The shortest interval that is accepted: reading the counters of many threads takes a while.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(10);

/// The time between two readings of the counters: `1` and `1s` are seconds, `200ms` milliseconds.
pub fn interval(words: &str) -> Result<Duration, String> {
    seconds_or_length(words)
        .filter(|interval| *interval >= SHORTEST_INTERVAL)
        .ok_or_else(|| {
            let least = SHORTEST_INTERVAL.as_secs_f64();
            format!("`{words}` is no time between two looks: {least} seconds or more")
        })
}

/// A number without a unit is one of seconds.
fn seconds_or_length(words: &str) -> Option<Duration> {
    match words.parse() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => Nanos::from_words(words).map(|length| Duration::from_nanos(length.as_ns())),
    }
}

/// A length of time with a unit: `0`, `800ns`, `50us`, `1.5ms`, `2s`.
pub fn length(words: &str) -> Result<Nanos, String> {
    Nanos::from_words(words).ok_or_else(|| {
        format!("`{words}` is no length of time: give a number with ns, us, ms, s, m or h")
    })
}

/// A size of memory with a unit: `800KB`, `64MB`, `1.5GB`; each is 1,024 of the one before.
pub fn size(words: &str) -> Result<u64, String> {
    let digits = words.trim_end_matches(|c: char| c.is_alphabetic());
    let unit = match words[digits.len()..].to_ascii_lowercase().as_str() {
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return Err(format!("`{words}` needs a unit: KB, MB or GB")),
    };
    let number: f64 = digits
        .parse()
        .map_err(|_| format!("`{words}` is no size of memory"))?;
    let size = Duration::try_from_secs_f64(number)
        .map_err(|_| format!("`{words}` is no size of memory"))?;
    u64::try_from((size.as_nanos() << unit) / 1_000_000_000)
        .map_err(|_| format!("`{words}` is more memory than there is"))
}

/// How much a flight recorder keeps: `30s`, `5m`, `2h`, `512MB`, `4GB`.
pub fn kept(words: &str) -> Result<KeptSize, String> {
    let refusal = || {
        format!("`{words}` is no size of a ring: give a time (30s, 5m, 2h) or a size (512MB, 4GB)")
    };
    let digits = words.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    match &words[digits.len()..] {
        "s" | "m" | "min" | "h" => {
            let time = Nanos::from_words(words).ok_or_else(refusal)?;
            let time = Duration::from_nanos(time.as_ns());
            match time >= KeptSize::LEAST_TIME {
                true => Ok(KeptSize::Time(time)),
                false => Err(format!(
                    "`{words}` is too short for a ring: give at least 1s"
                )),
            }
        }
        // `5M` could be meant either way.
        unit if unit.len() > 1 => match size(words) {
            Ok(bytes) if bytes >= KeptSize::LEAST_BYTES => Ok(KeptSize::Bytes(bytes)),
            Ok(_) => Err(format!(
                "`{words}` is too small for a ring: give at least 1MB"
            )),
            Err(_) => Err(refusal()),
        },
        _ => Err(refusal()),
    }
}

/// Parses a process id; 0 is refused, since it stands for idle.
pub fn pid(words: &str) -> Result<Pid, String> {
    match words.parse() {
        Err(_) if is_name(words) => Err(format!(
            "`{words}` is no process id: pidof {words} tells those of a program"
        )),
        Ok(0) | Err(_) => Err(format!("`{words}` is no process id")),
        Ok(number) => Ok(Pid::new(number)),
    }
}

/// Whether the word may be the name of a program.
fn is_name(word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    word.starts_with(|c: char| c.is_ascii_alphabetic()) && word.chars().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_need_a_unit() {
        assert_eq!(length("50us"), Ok(Nanos::from_ns(50_000)));
        assert_eq!(length("1.5ms"), Ok(Nanos::from_ns(1_500_000)));
        assert_eq!(length("0"), Ok(Nanos::ZERO));
        assert_eq!(length("1m"), length("60s"));
        assert_eq!(length("0.5h"), length("30min"));
        assert!(length("5").is_err() && length("-1s").is_err() && length("ms").is_err());
    }

    #[test]
    fn a_duration_without_a_unit_is_of_seconds() {
        assert_eq!(duration("10"), duration("10s"));
        assert_eq!(duration("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(interval("200ms"), Ok(Duration::from_millis(200)));
        for refused in ["0", "0s", "-1", "10x", "s", "inf", "NaN", "1e99"] {
            assert!(duration(refused).is_err(), "{refused}");
        }
        assert!(interval("9ms").is_err() && interval("0").is_err());
    }

    #[test]
    fn percentages_may_have_their_sign() {
        assert_eq!(percent("5"), Ok(5.0));
        assert_eq!(percent("2.5%"), Ok(2.5));
        assert_eq!(percent("0"), Ok(0.0));
        for refused in ["", "%", "-1", "five", "NaN", "inf", "5%%x"] {
            assert!(percent(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn sizes_need_a_unit() {
        assert_eq!(size("64MB"), Ok(64 << 20));
        assert_eq!(size("1.5g"), Ok(3 << 29));
        assert_eq!(size("800KiB"), Ok(800 << 10));
        for refused in ["64", "MB", "-1MB", "1TB", "1e30GB", "64 M B", ""] {
            assert!(size(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn a_ring_is_of_time_or_of_bytes() {
        let seconds = |seconds| Ok(KeptSize::Time(Duration::from_secs(seconds)));
        assert_eq!(kept("30s"), seconds(30));
        assert_eq!(kept("5m"), seconds(300));
        assert_eq!(kept("1.5h"), seconds(5400));
        assert_eq!(kept("512MB"), Ok(KeptSize::Bytes(512 << 20)));
        assert_eq!(kept("2GiB"), Ok(KeptSize::Bytes(2 << 30)));
        for refused in [
            "", "5", "m", "0.5s", "900ms", "100KB", "5M", "-1s", "1e99h", "infs", "NaNs",
        ] {
            assert!(kept(refused).is_err(), "{refused}");
        }
    }

    /// What `meta.json` says is what was asked for.
    #[test]
    fn sizes_are_shown_as_they_are_given() {
        for words in ["30s", "1.5s", "5m", "90m", "512MB"] {
            let size = kept(words).unwrap();
            assert_eq!(size.to_string(), words);
        }
    }
}
