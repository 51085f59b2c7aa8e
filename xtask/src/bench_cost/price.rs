//! Reads those parts of the answer of `swtch cost --format json` that are judged here.

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::command::Runner;

/// Exit codes of `swtch cost` that come with an answer; 1 means that an interval is too wide.
const ANSWERED: [i32; 2] = [0, 1];

/// A value with its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ParsedEstimate {
    pub point: f64,
    pub low: f64,
    pub high: f64,
}

/// One price of the list.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedPrice {
    /// The primitive or operation, such as `pipe`.
    pub kind: String,
    /// `threads` or `processes`; `None` if it does not apply.
    pub members: Option<String>,
    /// Where the two run, such as `same-cpu`; `None` if it does not apply.
    pub place: Option<String>,
    /// Scheduling policy: `default`, `batch` or `fifo`; `None` if it does not apply.
    pub policy: Option<String>,
    /// Wall time of one operation, in ns.
    pub hand_off_ns: ParsedEstimate,
    /// `hand_off_ns` minus the cost of the calls alone; `None` if there is nothing to subtract.
    pub net_ns: Option<ParsedEstimate>,
    pub voluntary_per_op: f64,
    pub involuntary_per_op: f64,
}

/// Two arms that differ in one thing, or in none.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedContrast {
    /// The name of the comparison, such as `self-check-twin`.
    pub name: String,
    /// Time of the second arm minus that of the first.
    pub difference_ns: ParsedEstimate,
    /// Time of the second arm divided by that of the first.
    pub ratio: ParsedEstimate,
    /// `larger`, `smaller`, `none` or `unresolved`.
    pub verdict: String,
}

/// A price list, as far as it is judged here.
#[derive(Clone, Debug, PartialEq)]
pub struct ParsedPriceList {
    pub took_s: f64,
    pub prices: Vec<ParsedPrice>,
    /// Comparisons of arms that do the same.
    pub twins: Vec<ParsedContrast>,
    /// Comparisons of arms that differ in one thing.
    pub contrasts: Vec<ParsedContrast>,
    /// The whole answer, for the JSON file of this program.
    pub json: Value,
}

impl ParsedPriceList {
    /// Runs `words`, which must be a `swtch cost … --format json`, and reads the answer.
    ///
    /// # Errors
    /// When the command fails, or its output is no price list.
    pub fn measured_by(runner: &Runner<'_>, words: &[String]) -> Result<Self> {
        let answer = runner.run(words)?.expecting(&ANSWERED);
        let answer = answer.with_context(|| words.join(" "))?;
        Self::parse(&answer.stdout).with_context(|| format!("the answer of {}", words.join(" ")))
    }

    /// Reads a price list in JSON.
    ///
    /// # Errors
    /// When a part that is needed is missing.
    pub fn parse(text: &str) -> Result<Self> {
        let json: Value = serde_json::from_str(text).context("this is no JSON")?;
        let session = &json["session"];
        Ok(Self {
            took_s: number(session, "took_s")?,
            prices: all(&json["prices"], price).context("prices")?,
            twins: all(&session["twins"], contrast).context("session.twins")?,
            contrasts: all(&json["contrasts"], contrast).context("contrasts")?,
            json,
        })
    }
}

fn all<T>(list: &Value, read: fn(&Value) -> Result<T>) -> Result<Vec<T>> {
    let Value::Array(list) = list else {
        bail!("there is no such list");
    };
    list.iter().map(read).collect()
}

fn number(object: &Value, key: &str) -> Result<f64> {
    let value = object[key].as_f64();
    value.with_context(|| format!("there is no number {key}"))
}

fn word(object: &Value, key: &str) -> Result<String> {
    optional(object, key).with_context(|| format!("there is no word {key}"))
}

fn optional(object: &Value, key: &str) -> Option<String> {
    object[key].as_str().map(str::to_owned)
}

fn estimate(object: &Value, key: &str) -> Result<ParsedEstimate> {
    let read = |end| number(&object[key], end).with_context(|| key.to_owned());
    Ok(ParsedEstimate {
        point: read("point")?,
        low: read("low")?,
        high: read("high")?,
    })
}

fn price(row: &Value) -> Result<ParsedPrice> {
    let has_net = !row["net_ns"].is_null();
    Ok(ParsedPrice {
        kind: word(row, "kind")?,
        members: optional(row, "members"),
        place: optional(row, "place"),
        policy: optional(row, "policy"),
        hand_off_ns: estimate(row, "hand_off_ns")?,
        net_ns: has_net.then(|| estimate(row, "net_ns")).transpose()?,
        voluntary_per_op: number(row, "voluntary_per_op")?,
        involuntary_per_op: number(row, "involuntary_per_op")?,
    })
}

fn contrast(row: &Value) -> Result<ParsedContrast> {
    Ok(ParsedContrast {
        name: word(row, "name")?,
        difference_ns: estimate(row, "difference_ns")?,
        ratio: estimate(row, "ratio")?,
        verdict: word(row, "verdict")?,
    })
}

/// A small price list for the tests.
#[cfg(test)]
pub const FIXTURE: &str = r#"{
  "schema": "swtch.prices/1",
  "session": {
    "took_s": 2.1,
    "twins": [
      { "name": "self-check-twin", "about": "two arms that do the same", "p": 0.6,
        "difference_ns": { "point": 0.5, "low": -3.0, "high": 5.0, "confidence": 0.96 },
        "ratio": { "point": 1.0004, "low": 0.998, "high": 1.003 },
        "control_of": "self-check", "verdict": "none" }
    ]
  },
  "prices": [
    { "kind": "system-call", "members": null, "place": null, "policy": null,
      "hand_off_ns": { "point": 150.0, "low": 149.0, "high": 151.0 },
      "net_ns": null, "voluntary_per_op": 0.0, "involuntary_per_op": 0.0 },
    { "kind": "pipe", "members": "processes", "place": "same-cpu", "policy": "default",
      "hand_off_ns": { "point": 1500.0, "low": 1490.0, "high": 1512.0 },
      "net_ns": { "point": 1000.0, "low": 990.0, "high": 1010.0 },
      "voluntary_per_op": 0.5, "involuntary_per_op": 0.5 }
  ],
  "contrasts": [
    { "name": "injected-1-pct", "about": "a delay of known length", "p": 0.03,
      "difference_ns": { "point": 14.0, "low": 10.0, "high": 18.0 },
      "ratio": { "point": 1.0098, "low": 1.006, "high": 1.013 },
      "control_of": null, "verdict": "larger" }
  ]
}"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_far_as_it_is_judged() {
        let list = ParsedPriceList::parse(FIXTURE).unwrap();
        assert_eq!(list.twins[0].name, "self-check-twin");
        assert_eq!(list.twins[0].verdict, "none");
        assert_eq!(list.contrasts[0].ratio.low, 1.006);
        assert_eq!(list.prices[0].net_ns, None);
        assert_eq!(list.prices[1].net_ns.unwrap().point, 1000.0);
    }

    #[test]
    fn what_is_missing_is_named() {
        let why = |from: &str, to: &str| {
            let error = ParsedPriceList::parse(&FIXTURE.replace(from, to)).unwrap_err();
            format!("{error:#}")
        };
        assert_eq!(
            why("\"twins\"", "\"others\""),
            "session.twins: there is no such list"
        );
        let cut = why("\"verdict\": \"larger\"", "\"said\": 1");
        assert_eq!(cut, "contrasts: there is no word verdict");
        let point = why("\"point\": 0.5, ", "");
        assert_eq!(
            point,
            "session.twins: difference_ns: there is no number point"
        );
    }
}
