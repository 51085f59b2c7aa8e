//! `swtch cost --compare A B`: two saved lists, as far as they can be compared.
//!
//! Two sessions are a sequential comparison: the machine's speed may have changed between them, and
//! here it does, by up to 1.7 times, while steal time stays 0. Every round of both has the
//! reference, a fixed loop in user mode; so prices are compared in multiples of it, paired round by
//! round. A price without the reference is refused, and so are lists of different processors, on
//! which the loop is another measure.

use anyhow::{Result, bail};
use swtch_core::cost::{Estimate, Price, PriceList};
use swtch_report::price_file;
use swtch_report::report::{Cell, Sheet};

/// A smaller relative change counts as none, whatever the intervals: two sessions of the same
/// kernel differ by that much (memory, placement), which no interval within one session shows.
const LEAST_CHANGE: f64 = 0.05;

/// The change of a price between two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Dearer,
    Cheaper,
    None,
    /// The intervals allow several of these.
    Unresolved,
}

impl Change {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Dearer => "dearer",
            Self::Cheaper => "cheaper",
            Self::None => "no change",
            Self::Unresolved => "unresolved",
        }
    }
}

/// Columns of the comparison's table.
const COLUMNS: [&str; 10] = [
    "kind",
    "between",
    "where",
    "policy",
    "before_ns",
    "after_ns",
    "ratio",
    "ratio_low",
    "ratio_high",
    "change",
];

/// The comparison: one row per price that both have.
#[derive(Debug)]
pub struct Comparison {
    pub sheet: Sheet,
    /// True if any price became dearer.
    pub is_worse: bool,
}

/// Compares `after` with `before`.
///
/// # Errors
///
/// The lists have no reference in common, or no price.
pub fn compare(before: &PriceList, after: &PriceList) -> Result<Comparison> {
    refuse_incomparable(before, after)?;
    let mut sheet = Sheet::new("cost-compare", &COLUMNS);
    let mut refused = Vec::new();
    let mut is_worse = false;
    for new in &after.prices {
        let Some(old) = before.prices.iter().find(|old| is_same(old, new)) else {
            continue;
        };
        match (&old.relative, &new.relative) {
            (Some(old_relative), Some(new_relative)) => {
                let (ratio, change) = change(old_relative, new_relative);
                is_worse |= change == Change::Dearer;
                sheet.rows.push(row(old, new, &ratio, change));
            }
            _ => refused.push(new.kind.clone()),
        }
    }
    if sheet.rows.is_empty() && refused.is_empty() {
        bail!("the two lists have no price in common: measure the same kinds");
    }
    sheet.notes = notes(before, after, &refused);
    Ok(Comparison { sheet, is_worse })
}

fn refuse_incomparable(before: &PriceList, after: &PriceList) -> Result<()> {
    let (old, new) = (&before.origin, &after.origin);
    if before.session.reference != after.session.reference {
        bail!(
            "the lists have no reference arm in common ({} and {}): measure both with the same swtch",
            before.session.reference,
            after.session.reference
        );
    }
    if old.cpu_model != new.cpu_model || old.machine != new.machine {
        bail!(
            "the lists are of different processors ({} and {}): the reference loop is another measure on each",
            old.cpu_model,
            new.cpu_model
        );
    }
    Ok(())
}

fn is_same(one: &Price, other: &Price) -> bool {
    let key = |price: &Price| {
        (
            price.kind.clone(),
            price.members,
            price.count,
            price.place,
            price.policy,
        )
    };
    key(one) == key(other)
}

/// After over before, and what that means. The far ends of both intervals are combined, so the
/// interval is wider than it need be.
fn change(before: &Estimate, after: &Estimate) -> (Estimate, Change) {
    let ratio = Estimate {
        point: after.point / before.point,
        low: after.low / before.high,
        high: after.high / before.low,
        confidence: before.confidence.min(after.confidence),
        trees: before.trees.min(after.trees),
        rounds: before.rounds.min(after.rounds),
    };
    let change = if ratio.low > 1.0 + LEAST_CHANGE {
        Change::Dearer
    } else if ratio.high < 1.0 - LEAST_CHANGE {
        Change::Cheaper
    } else if (ratio.point - 1.0).abs() <= LEAST_CHANGE {
        Change::None
    } else {
        Change::Unresolved
    };
    (ratio, change)
}

fn row(old: &Price, new: &Price, ratio: &Estimate, change: Change) -> Vec<Cell> {
    let word = |word: Option<&'static str>| word.map_or(Cell::Missing, Cell::text);
    vec![
        Cell::text(&new.kind),
        word(new.members.map(|members| members.as_str())),
        word(new.place.map(|place| place.as_str())),
        word(new.policy.map(|policy| policy.as_str())),
        Cell::Estimated(old.hand_off_ns.point),
        Cell::Estimated(new.hand_off_ns.point),
        Cell::Ratio(ratio.point),
        Cell::Ratio(ratio.low),
        Cell::Ratio(ratio.high),
        Cell::text(change.as_str()),
    ]
}

fn notes(before: &PriceList, after: &PriceList, refused: &[String]) -> Vec<String> {
    let mut notes = vec![format!(
        "ratios are of prices in multiples of {}, which stood in every round of both sessions; what slows the loop as well does not show",
        after.session.reference
    )];
    notes.extend(price_file::differences(&before.origin, &after.origin));
    notes.extend(
        refused
            .iter()
            .map(|kind| format!("{kind} is not compared: the reference is missing beside it")),
    );
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(point: f64, half: f64) -> Estimate {
        Estimate {
            point,
            low: point - half,
            high: point + half,
            confidence: 0.95,
            trees: 6,
            rounds: 60,
        }
    }

    #[test]
    fn only_what_both_intervals_exclude_is_a_change() {
        let change = |old, new| change(&old, &new).1;
        assert_eq!(change(around(10.0, 0.1), around(11.0, 0.1)), Change::Dearer);
        assert_eq!(change(around(10.0, 0.1), around(9.0, 0.1)), Change::Cheaper);
        assert_eq!(change(around(10.0, 0.1), around(10.3, 0.1)), Change::None);
        assert_eq!(
            change(around(10.0, 0.8), around(11.0, 0.8)),
            Change::Unresolved
        );
    }
}
