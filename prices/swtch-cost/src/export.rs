//! Exports a price list as flat tables for further computation: CSV and Parquet.
//!
//! ```text
//! PriceList ─▶ prices_table ─▶ one row a price   ┐   to_csv         (rows only)
//!           └▶ curves_table ─▶ one row a point   ┘   write_parquet  (origin, session, facts too)
//! ```
//!
//! Columns end in their unit; an interval is three of them: `net_ns`, `net_ns_low`, `net_ns_high`.
//! In Parquet, what holds for all rows is in the footer under `origin.…`, `session.…` and `fact.…`.
//! JSON needs no table: it is the [`PriceList`] itself.

use std::io;

use serde::Serialize;
use swtch_core::cost::{Curve, Estimate, NamedContrast, Point, Price, PriceList, PriceUnit};
use swtch_output::csv::{self, CsvWriter};
use swtch_store::{PlainColumn, PlainTable};

/// The prices, one row each.
pub fn prices_table(list: &PriceList) -> PlainTable {
    let rows = list.prices.as_slice();
    let mut columns = vec![
        text("section", rows, |price| Some(price.section.clone())),
        text("kind", rows, |price| Some(price.kind.clone())),
        text("members", rows, |price| price.members.map(word)),
        count("count", rows, |price| price.count.map(i64::from)),
        text("place", rows, |price| price.place.map(word)),
        text("policy", rows, |price| price.policy.map(word)),
    ];
    columns.extend(estimate(HAND_OFF, rows, |price| Some(price.hand_off_ns)));
    columns.extend(estimate(BASELINE, rows, |price| price.baseline_ns));
    columns.extend(estimate(NET, rows, |price| price.net_ns));
    columns.extend([
        number("confidence", rows, |price| {
            Some(price.hand_off_ns.confidence)
        }),
        count("trees", rows, |price| whole(price.hand_off_ns.trees)),
        count("rounds", rows, |price| whole(price.hand_off_ns.rounds)),
        count("dropped_rounds", rows, |price| whole(price.dropped_rounds)),
        number("voluntary_per_op", rows, |price| {
            Some(price.voluntary_per_op)
        }),
        number("involuntary_per_op", rows, |price| {
            Some(price.involuntary_per_op)
        }),
        flag("is_per_switch", rows, |price| {
            Some(price.per == PriceUnit::Switch)
        }),
        text("per_operation_because", rows, reason),
        number("system_calls", rows, |price| price.system_calls),
    ]);
    columns.extend(estimate(RELATIVE, rows, |price| price.relative));
    PlainTable {
        columns,
        metadata: metadata(list),
    }
}

/// The curves, one row for each point.
pub fn curves_table(list: &PriceList) -> PlainTable {
    type Row<'a> = (&'a Curve, &'a Point);
    let rows: Vec<Row<'_>> = list
        .curves
        .iter()
        .flat_map(|curve| curve.points.iter().map(move |point| (curve, point)))
        .collect();
    let rows = rows.as_slice();
    let mut columns = vec![
        text("figure", rows, |(curve, _)| Some(curve.figure.clone())),
        text("curve", rows, |(curve, _)| Some(curve.name.clone())),
        text("label", rows, |(curve, _)| Some(curve.label.clone())),
        text("size_is", rows, |(curve, _)| Some(curve.size_is.clone())),
        number("size", rows, |(_, point)| Some(point.size)),
    ];
    columns.extend(estimate(NET, rows, |(_, point)| Some(point.net_ns)));
    columns.extend(estimate(HOT, rows, |(_, point)| point.hot_ns));
    columns.extend([
        number("confidence", rows, |(_, point)| {
            Some(point.net_ns.confidence)
        }),
        count("trees", rows, |(_, point)| whole(point.net_ns.trees)),
        count("rounds", rows, |(_, point)| whole(point.net_ns.rounds)),
    ]);
    PlainTable {
        columns,
        metadata: metadata(list),
    }
}

/// The contrasts, one row each; the last ones are the pairs of arms that do the same.
pub fn contrasts_table(list: &PriceList) -> PlainTable {
    let rows: Vec<&NamedContrast> = list.contrasts.iter().chain(&list.session.twins).collect();
    let rows = rows.as_slice();
    let mut columns = vec![
        text("contrast", rows, |one| Some(one.name.clone())),
        text("about", rows, |one| Some(one.about.clone())),
        text("control_of", rows, |one| one.control_of.clone()),
        text("proof", rows, |one| one.proof.clone()),
    ];
    columns.extend(estimate(DIFFERENCE, rows, |one| Some(one.difference_ns)));
    columns.extend(estimate(RATIO, rows, |one| Some(one.ratio)));
    columns.extend([
        number("p", rows, |one| Some(one.p)),
        text("verdict", rows, |one| Some(one.verdict.to_string())),
        number("confidence", rows, |one| Some(one.ratio.confidence)),
        count("trees", rows, |one| whole(one.ratio.trees)),
    ]);
    PlainTable {
        columns,
        metadata: metadata(list),
    }
}

/// A table as CSV: a record of column names, then one per row; null is an empty field.
pub fn to_csv(table: &PlainTable) -> String {
    csv::text_of(|csv| {
        let names: Vec<&str> = table.columns.iter().map(|(name, _)| *name).collect();
        csv.record(&names)?;
        for row in 0..table.rows() {
            for (_, column) in &table.columns {
                write_value(csv, column, row)?;
            }
            csv.end_record()?;
        }
        Ok(())
    })
}

fn write_value(csv: &mut CsvWriter<'_>, column: &PlainColumn, row: usize) -> io::Result<()> {
    match column {
        PlainColumn::Text(values) => values[row].as_ref().map(|text| csv.text(text)),
        PlainColumn::Number(values) => values[row].map(|number| csv.plain(number)),
        PlainColumn::Count(values) => values[row].map(|count| csv.plain(count)),
        PlainColumn::Flag(values) => values[row].map(|flag| csv.plain(flag)),
    }
    .unwrap_or_else(|| csv.empty())
}

type Column = (&'static str, PlainColumn);

/// Names of an estimate's point, low end and high end.
type Names = [&'static str; 3];
const HAND_OFF: Names = ["hand_off_ns", "hand_off_ns_low", "hand_off_ns_high"];
const BASELINE: Names = ["baseline_ns", "baseline_ns_low", "baseline_ns_high"];
const NET: Names = ["net_ns", "net_ns_low", "net_ns_high"];
const RELATIVE: Names = ["references", "references_low", "references_high"];
const DIFFERENCE: Names = ["difference_ns", "difference_ns_low", "difference_ns_high"];
const RATIO: Names = ["ratio", "ratio_low", "ratio_high"];
const HOT: Names = ["hot_ns", "hot_ns_low", "hot_ns_high"];

fn text<R>(name: &'static str, rows: &[R], get: impl Fn(&R) -> Option<String>) -> Column {
    (name, PlainColumn::Text(rows.iter().map(get).collect()))
}

fn number<R>(name: &'static str, rows: &[R], get: impl Fn(&R) -> Option<f64>) -> Column {
    (name, PlainColumn::Number(rows.iter().map(get).collect()))
}

fn count<R>(name: &'static str, rows: &[R], get: impl Fn(&R) -> Option<i64>) -> Column {
    (name, PlainColumn::Count(rows.iter().map(get).collect()))
}

fn flag<R>(name: &'static str, rows: &[R], get: impl Fn(&R) -> Option<bool>) -> Column {
    (name, PlainColumn::Flag(rows.iter().map(get).collect()))
}

fn estimate<R>(
    [point, low, high]: Names,
    rows: &[R],
    get: impl Fn(&R) -> Option<Estimate>,
) -> [Column; 3] {
    [
        number(point, rows, |row| get(row).map(|estimate| estimate.point)),
        number(low, rows, |row| get(row).map(|estimate| estimate.low)),
        number(high, rows, |row| get(row).map(|estimate| estimate.high)),
    ]
}

fn word(word: impl ToString) -> String {
    word.to_string()
}

fn whole(count: usize) -> Option<i64> {
    i64::try_from(count).ok()
}

fn reason(price: &Price) -> Option<String> {
    match &price.per {
        PriceUnit::Switch => None,
        PriceUnit::Operation(because) => Some(because.clone()),
    }
}

/// Lists what holds for all rows, as keys and values. An unknown fact has no key.
fn metadata(list: &PriceList) -> Vec<(String, String)> {
    let mut pairs = vec![("swtch.prices_version".to_owned(), list.version.to_string())];
    pairs.extend(fields("origin", &list.origin));
    pairs.extend(fields("session", &list.session));
    pairs.extend(list.facts.iter().filter_map(|fact| {
        let value = fact.value.clone()?;
        Some((format!("fact.{}", fact.name), value))
    }));
    pairs
}

/// The fields of `object` as they are in JSON, text without its quotes; null has no key.
fn fields(prefix: &str, object: &impl Serialize) -> Vec<(String, String)> {
    let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(object) else {
        return Vec::new();
    };
    let known = fields.into_iter().filter(|(_, value)| !value.is_null());
    known
        .map(|(name, value)| {
            let text = value
                .as_str()
                .map_or_else(|| value.to_string(), str::to_owned);
            (format!("{prefix}.{name}"), text)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use swtch_core::cost::{Members, Place, Policy};
    use swtch_fixtures::curves;

    use super::*;

    fn estimate_of(point: f64) -> Estimate {
        Estimate {
            point,
            low: point - 1.0,
            high: point + 1.5,
            confidence: 0.95,
            trees: 6,
            rounds: 240,
        }
    }

    fn list() -> PriceList {
        let ring = Price {
            kind: "pipe".to_owned(),
            section: "hand-off".to_owned(),
            members: Some(Members::Threads),
            count: Some(2),
            place: Some(Place::SameCpu),
            policy: Some(Policy::Batch),
            hand_off_ns: estimate_of(1200.0),
            baseline_ns: Some(estimate_of(388.0)),
            net_ns: Some(estimate_of(812.0)),
            voluntary_per_op: 1.0,
            involuntary_per_op: 0.0,
            per: PriceUnit::Switch,
            system_calls: Some(11.5),
            relative: Some(estimate_of(0.02)),
            dropped_rounds: 3,
        };
        let call = Price {
            kind: "getppid, \"empty\"".to_owned(),
            section: "calls".to_owned(),
            members: None,
            count: None,
            place: None,
            policy: None,
            hand_off_ns: estimate_of(104.0),
            baseline_ns: None,
            net_ns: None,
            voluntary_per_op: 0.0,
            per: PriceUnit::judge(0.0, 0.0),
            system_calls: None,
            relative: None,
            dropped_rounds: 0,
            ..ring.clone()
        };
        PriceList {
            prices: vec![ring, call],
            ..curves::prices()
        }
    }

    #[test]
    fn a_price_is_one_flat_row() {
        let csv = to_csv(&prices_table(&list()));
        let expected = "section,kind,members,count,place,policy,\
            hand_off_ns,hand_off_ns_low,hand_off_ns_high,baseline_ns,baseline_ns_low,baseline_ns_high,\
            net_ns,net_ns_low,net_ns_high,confidence,trees,rounds,dropped_rounds,voluntary_per_op,\
            involuntary_per_op,is_per_switch,per_operation_because,system_calls,\
            references,references_low,references_high\r\n\
            hand-off,pipe,threads,2,same-cpu,batch,1200,1199,1201.5,388,387,389.5,812,811,813.5,\
            0.95,6,240,3,1,0,true,,11.5,0.02,-0.98,1.52\r\n\
            calls,\"getppid, \"\"empty\"\"\",,,,,104,103,105.5,,,,,,,0.95,6,240,0,0,0,false,\
            no switch is expected,,,,\r\n";
        assert_eq!(csv, expected);
    }

    #[test]
    fn a_point_is_one_flat_row() {
        let list = curves::prices();
        let table = curves_table(&list);
        let points: usize = list.curves.iter().map(|curve| curve.points.len()).sum();
        assert_eq!(table.rows(), points);
        let csv = to_csv(&table);
        let head = "figure,curve,label,size_is,size,net_ns,net_ns_low,net_ns_high,\
            hot_ns,hot_ns_low,hot_ns_high,confidence,trees,rounds\r\n\
            working-set,\"random,-private\",\"random, private\",working_set_bytes,4096,";
        assert!(csv.starts_with(head), "{csv}");
    }

    #[test]
    fn origin_session_and_facts_travel_with_a_table() {
        let metadata = prices_table(&list()).metadata;
        let value = |key: &str| {
            let found = metadata.iter().find(|(name, _)| name == key);
            found.map(|(_, value)| value.as_str())
        };
        assert_eq!(value("swtch.prices_version"), Some("1"));
        assert_eq!(value("origin.kernel_release"), Some("6.18.5-generic"));
        assert_eq!(value("origin.cpus"), Some("24"));
        assert_eq!(value("session.is_resolved"), Some("true"));
        assert_eq!(value("fact.cache_l1d_bytes"), Some("49152"));
    }

    #[test]
    fn both_tables_are_written_as_parquet() {
        let dir = tempfile::tempdir().unwrap();
        for (name, table) in [
            ("prices", prices_table(&list())),
            ("curves", curves_table(&list())),
        ] {
            let path = dir.path().join(name).with_extension("parquet");
            let bytes = table.write_parquet(Vec::new(), &path).unwrap();
            assert!(bytes.starts_with(b"PAR1"));
        }
    }
}
