//! Computes what the switches of a page cost, and how much it would save to make the changes that its findings suggest.
//!
//! A finding is about the switches for one reason, or about those into waits for one object. Both
//! are billed. A saving is mentioned from [`LEAST_PCT`] of a CPU on, always with its interval and
//! with the part of it that is an estimate.

use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use swtch_core::cost::Amount;
use swtch_core::{Nanos, Reason, Switch};
use swtch_output::sheet::Sheet;
use swtch_output::text::grouped;

use super::accounts::{Accounts, BillContext, percent};
use super::bill::reason_columns;
use super::departure::{Departure, Departures};
use super::filter::CountedParts;
use super::names::Names;
use super::pricing::Prices;
use super::stack::Symbols;
use super::verdict::{Finding, Subject};
use super::wait::{Object, ObjectKind};

/// Savings below this share of one CPU are not mentioned.
const LEAST_PCT: f64 = 0.5;

/// A cost whose interval reaches further from its middle than this share of it is not mentioned.
const MOST_ERROR: f64 = 0.5;

/// Counts the switches that are billed on the page.
#[derive(Debug)]
pub struct SwitchPricing<'p> {
    prices: &'p Prices<'p>,
    departures: Departures,
    billed: BilledCounts,
}

#[derive(Debug, Default)]
struct BilledCounts {
    reasons: Accounts<Reason>,
    objects: Accounts<Object>,
    /// The number of times that each object was waited for in each user stack.
    places: FxHashMap<(Object, u32), u64>,
}

impl BilledCounts {
    fn add(&mut self, one: &Departure) {
        self.reasons.add(one.case.reason, one);
        if let Some(object) = one.object {
            self.objects.add(object, one);
            if let Some(stack) = one.stacks.0 {
                *self.places.entry((object, stack)).or_default() += 1;
            }
        }
    }
}

impl<'p> SwitchPricing<'p> {
    /// For a trace with these tasks; `is_complete` is as for [`Departures`].
    pub fn new(prices: &'p Prices<'p>, names: &Names, is_complete: bool) -> Self {
        Self {
            prices,
            departures: Departures::new(names, is_complete, prices.billing()),
            billed: BilledCounts::default(),
        }
    }

    /// Adds what counts of a row.
    pub fn add(&mut self, row: &Switch, task: usize, counted: CountedParts, names: &Names) {
        let billed = &mut self.billed;
        let each = &mut |one: &Departure| billed.add(one);
        self.departures.add(row, task, counted, names, each);
    }

    /// Adds the switches whose tasks did not come back.
    pub fn finish(&mut self) {
        let billed = &mut self.billed;
        self.departures.finish(&mut |one| billed.add(one));
    }

    /// The bill of the page, and what each finding is worth.
    pub fn conclude(
        &self,
        bill: &BillContext<'_>,
        findings: &[Finding],
        names: &Names,
        symbols: Option<&Symbols>,
    ) -> Billed {
        let reasons = &self.billed.reasons;
        let saving = |finding: &Finding| self.saving(finding.subject, bill, names, symbols);
        Billed {
            sheet: reasons.sheet("bill.reason", reason_columns(), bill, |reason| reason),
            prices: self.prices.to_json(&reasons.total().account),
            all: Saving::new(
                "all together".to_owned(),
                &self.prices.billing().amount(&reasons.total().account),
                bill.wall,
            ),
            savings: findings.iter().map(saving).collect(),
        }
    }

    fn saving(
        &self,
        subject: Subject,
        bill: &BillContext<'_>,
        names: &Names,
        symbols: Option<&Symbols>,
    ) -> Option<Saving> {
        let (what, line) = match subject {
            Subject::Reason(reason) => (reason.to_string(), self.billed.reasons.line(reason)?),
            Subject::Object(object) => (
                self.words_of(object, names, symbols),
                self.billed.objects.line(object)?,
            ),
            Subject::Time => return None,
        };
        Saving::new(
            what,
            &self.prices.billing().amount(&line.account),
            bill.wall,
        )
    }

    /// Names an object: `the futex at 0x7f… of server/10 (worker_loop+0x12 [server])`.
    fn words_of(&self, object: Object, names: &Names, symbols: Option<&Symbols>) -> String {
        let what = match object.kind {
            ObjectKind::Futex => format!("the futex at {:#x}", object.key),
            ObjectKind::File(_) | ObjectKind::Call => {
                format!("the {} {:#x}", object.kind.as_str(), object.key)
            }
        };
        let process = names.process(object.process).label();
        match symbols.and_then(|symbols| self.function_of(object, symbols)) {
            Some(function) => format!("{what} of {process} ({function})"),
            None => format!("{what} of {process}"),
        }
    }

    /// The program's function in which the object is waited for most often.
    fn function_of(&self, object: Object, symbols: &Symbols) -> Option<String> {
        let places = self.billed.places.iter();
        let places = places.filter(|((of, _), _)| *of == object);
        let (stack, _) = places.max_by_key(|((_, stack), count)| (**count, *stack))?;
        symbols.first_own(stack.1)
    }
}

/// The bill of a page.
#[derive(Debug)]
pub struct Billed {
    /// The bill by reason, the most expensive first.
    pub sheet: Sheet,
    /// The prices at which the switches are billed, as JSON.
    pub prices: Value,
    /// The cost of all switches; `None` if it is below [`LEAST_PCT`] or not known.
    pub all: Option<Saving>,
    /// The saving that each finding suggests; `None` if it is below [`LEAST_PCT`] or not known.
    pub savings: Vec<Option<Saving>>,
}

/// The most that could be saved if some switches did not happen.
#[derive(Clone, Debug, PartialEq)]
pub struct Saving {
    /// Names the reason or the object behind the switches.
    what: String,
    switches_per_s: f64,
    /// Direct cost, as a share of one CPU in percent.
    direct_pct: f64,
    direct_low_pct: f64,
    direct_high_pct: f64,
    indirect_high_pct: Option<f64>,
    /// Share of the direct cost whose price was measured for this kind of switch.
    measured_pct: f64,
    /// Switches that have no price.
    unpriced: u64,
    /// Length of the recording.
    wall: Nanos,
}

impl Saving {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    fn new(what: String, amount: &Amount, wall: Nanos) -> Option<Self> {
        let direct_pct = percent(amount.direct.point_ns, wall)?;
        if direct_pct < LEAST_PCT {
            return None;
        }
        let [low_pct, high_pct] = [
            percent(amount.direct.low_ns, wall)?,
            percent(amount.direct.high_ns, wall)?,
        ];
        // `3.0 % ± 3.8 %` tells nobody anything.
        if high_pct - low_pct > 2.0 * MOST_ERROR * direct_pct {
            return None;
        }
        let indirect = amount.indirect_high.map(|high| high.as_ns() as f64);
        Some(Self {
            what,
            switches_per_s: amount.switches as f64 * 1e9 / wall.as_ns() as f64,
            direct_pct,
            direct_low_pct: low_pct,
            direct_high_pct: high_pct,
            indirect_high_pct: indirect.and_then(|high| percent(high, wall)),
            measured_pct: amount.measured_pct()?,
            unpriced: amount.unpriced,
            wall,
        })
    }

    /// CPU time that the switches took, at the lower end of its interval; 0 below this share of one CPU.
    pub fn at_least(&self, least_pct: f64) -> Nanos {
        if self.direct_low_pct >= least_pct {
            Nanos::from_rounded(self.wall.as_ns() as f64 * self.direct_low_pct / 100.0)
        } else {
            Nanos::ZERO
        }
    }

    /// The saving in words: `the futex at 0xf00 of server/10: 12,345 switches a second, which take
    /// 3.1 % ± 0.6 % of one CPU`, and what of it was not measured.
    pub fn to_words(&self) -> String {
        let rate = Nanos::from_rounded(self.switches_per_s).as_ns();
        let below = self.direct_pct - self.direct_low_pct;
        let error = below.max(self.direct_high_pct - self.direct_pct);
        let mut words = format!(
            "{}: {} switches a second, which take {:.1} % ± {error:.1} % of one CPU",
            self.what,
            grouped(rate),
            self.direct_pct,
        );
        if self.measured_pct < 99.95 {
            words += &format!(" ({:.0} % of it estimated)", 100.0 - self.measured_pct);
        }
        if let Some(high) = self.indirect_high_pct.filter(|high| *high >= 0.05) {
            words += &format!(", and up to {high:.1} % more where caches were cold");
        }
        if self.unpriced > 0 {
            words += &format!("; {} of them have no price", grouped(self.unpriced));
        }
        words
    }

    /// The saving as a JSON object.
    pub fn to_json(&self) -> Value {
        json!({
            "words": self.to_words(),
            "what": self.what,
            "switches_per_s": self.switches_per_s,
            "direct_share_of_wall_pct": self.direct_pct,
            "direct_low_share_of_wall_pct": self.direct_low_pct,
            "direct_high_share_of_wall_pct": self.direct_high_pct,
            "indirect_high_share_of_wall_pct": self.indirect_high_pct,
            "measured_pct": self.measured_pct,
            "unpriced": self.unpriced,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::drawn::{after, head, names, prices, prices_with_curve, row};
    use swtch_core::cost::PriceList;
    use swtch_core::{Frame, Stack, StackKind, TaskKey, Timestamp};

    const MS: u64 = 1_000_000;

    /// Two threads of a server leave for one futex word in turn, 200 times, each in stack 7.
    fn contended() -> Vec<Switch> {
        let turn = |turn: u64| {
            let (task, other) = if turn.is_multiple_of(2) {
                (1, 2)
            } else {
                (2, 1)
            };
            let mut row = after(row(task, Reason::Futex), Reason::Futex, 900, 100);
            row.ts = Timestamp::from_ns(MS + turn * 1000);
            row.next_task = Some(TaskKey::new(other));
            row.evidence.wait_key = Some(0xf00);
            row.wait.stacks.user = Some(7);
            row
        };
        (0..200).map(turn).collect()
    }

    fn symbols() -> Symbols {
        let frame = |frame, symbol: &str, module: &str| Frame {
            id: frame,
            address: 0x1000,
            symbol: Some(symbol.to_owned()),
            module: Some(module.to_owned()),
            ..Frame::default()
        };
        let frames = [
            frame(1, "__futex_abstimed_wait", "/lib/libc.so.6"),
            frame(2, "std::sync::Mutex::lock", "/bin/server"),
            frame(3, "take_job\u{1b}", "/bin/server"),
        ];
        let stack = Stack {
            id: 7,
            kind: StackKind::User,
            frames: vec![1, 2, 3],
            ..Stack::default()
        };
        Symbols::new(vec![stack], &frames)
    }

    fn word() -> Subject {
        Subject::Object(Object {
            process: names().thread(names().index(TaskKey::new(1))).process,
            kind: ObjectKind::Futex,
            key: 0xf00,
        })
    }

    /// Returns what removing the subject's switches would save in a recording of `wall_ms` ms.
    fn saving(list: &PriceList, rows: &[Switch], subject: Subject, wall_ms: u64) -> Option<Saving> {
        let meta = head().meta;
        let (names, prices) = (names(), Prices::new(list, &meta));
        let mut worth = SwitchPricing::new(&prices, &names, true);
        let counted = CountedParts {
            switch: true,
            wait: true,
        };
        for row in rows {
            worth.add(row, names.index(row.task), counted, &names);
        }
        worth.finish();
        let bill = BillContext {
            prices: &prices,
            wall: Nanos::from_ns(wall_ms * MS),
            lost: None,
        };
        worth.saving(subject, &bill, &names, Some(&symbols()))
    }

    /// 200 switches of 1 µs ± 10 % in 20 ms.
    #[test]
    fn a_contended_word_is_worth_its_switches_and_named_by_its_function() {
        let saving = saving(&prices(), &contended(), word(), 20).unwrap();
        let expected = "the futex at 0xf00 of server/10 (take_job\u{1b} [server]): 10,000 \
                        switches a second, which take 1.0 % ± 0.1 % of one CPU";
        assert_eq!(saving.to_words(), expected);
        assert_eq!(saving.to_json()["measured_pct"], 100.0);
        assert_eq!(saving.to_json()["direct_high_share_of_wall_pct"], 1.1);
    }

    #[test]
    fn less_than_half_a_percent_of_a_cpu_is_not_worth_a_word() {
        assert_eq!(saving(&prices(), &contended(), word(), 1000), None);
        // Nor is there a saving in a recording of unknown length, or for time without a switch.
        assert_eq!(saving(&prices(), &contended(), word(), 0), None);
        assert_eq!(saving(&prices(), &contended(), Subject::Time, 20), None);
    }

    /// 198 came back after 1 µs on their CPU; the last two did not: 198 µs of 20 ms.
    /// Measured in the middle of a build, a switch takes 1 µs ± 1 µs.
    #[test]
    fn a_price_that_says_nothing_is_not_mentioned() {
        let mut list = prices();
        for price in &mut list.prices {
            let net = price.net_ns.as_mut().expect("each of these has one");
            (net.low, net.high) = (0.0, 2.0 * net.point);
        }
        assert_eq!(saving(&list, &contended(), word(), 20), None);
    }

    #[test]
    fn what_caches_lose_is_a_bound_beside_the_direct_cost() {
        let saving = saving(&prices_with_curve(), &contended(), word(), 20).unwrap();
        let words = saving.to_words();
        assert!(
            words.ends_with("of one CPU, and up to 1.0 % more where caches were cold"),
            "{words}"
        );
    }

    #[test]
    fn what_is_an_estimate_is_named() {
        let slices: Vec<_> = (0..100)
            .map(|_| after(row(1, Reason::Slice), Reason::Slice, 0, 1000))
            .collect();
        let subject = Subject::Reason(Reason::Slice);
        let words = saving(&prices(), &slices, subject, 5).unwrap().to_words();
        let expected = "slice: 20,000 switches a second, which take 1.0 % ± 0.1 % of one CPU \
                        (100 % of it estimated)";
        assert_eq!(words, expected);
    }

    #[test]
    fn without_a_price_nothing_is_worth_anything() {
        let mut none = prices();
        none.prices.clear();
        assert_eq!(saving(&none, &contended(), word(), 20), None);
    }
}
