//! A price list applied to a trace: whether it fits the trace's machine, which prices are used, and
//! which of them are estimates.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde_json::{Value, json};
use swtch_core::Reason;
use swtch_core::cost::{
    Account, Basis, Billing, Case, Difference, EMPTY_PROGRAM, Origin, PriceList, Tariff,
};
use swtch_output::text::counted;
use swtch_store::{Meta, Overhead};

use crate::price_file;

/// A price list resolved for one trace.
#[derive(Debug)]
pub struct Prices<'l> {
    list: &'l PriceList,
    billing: Billing,
    warnings: Vec<String>,
    recording: Option<String>,
}

impl<'l> Prices<'l> {
    /// Resolves the prices, and compares the machine of the list with that of the trace.
    pub fn new(list: &'l PriceList, meta: &Meta) -> Self {
        Self {
            list,
            billing: Billing::new(list),
            warnings: warnings(&list.origin, meta),
            recording: cost_of_recording(list, &meta.overhead),
        }
    }

    pub const fn billing(&self) -> &Billing {
        &self.billing
    }

    /// Says what a reader must know about the list and the prices that these switches are billed at.
    pub fn notes(&self, account: &Account) -> Vec<String> {
        let mut notes = vec![self.origin()];
        notes.extend(self.warnings.iter().cloned());
        notes.extend(self.quality());
        notes.push("low and high assume that every price is off in the same direction".to_owned());
        notes.extend(self.estimates(account));
        notes.extend(self.unpriced(account));
        notes.push(self.indirect());
        notes.extend(self.recording.clone());
        notes
    }

    /// The host, effort and time of the measurement.
    fn origin(&self) -> String {
        let Origin {
            hostname,
            kernel_release,
            cpu_model,
            measured_at,
            ..
        } = &self.list.origin;
        let effort = &self.list.session.effort;
        format!(
            "prices of {hostname} ({cpu_model}, Linux {kernel_release}), {effort}, measured \
             {measured_at}"
        )
    }

    /// Says what makes the measurement less reliable, one sentence each.
    fn quality(&self) -> Vec<String> {
        let session = &self.list.session;
        let mut lines = Vec::new();
        if session.was_interrupted {
            lines.push("the measurement of the prices was ended early".to_owned());
        }
        if !session.is_resolved {
            lines
                .push("not every price of the list is resolved: its intervals are wide".to_owned());
        }
        let reasons = session.verdict.reasons().iter();
        lines.extend(reasons.map(|what| format!("when the prices were measured: {what}")));
        lines
    }

    /// Switches that are billed at a price measured for another kind, one line for each cause.
    fn estimates(&self, account: &Account) -> Vec<String> {
        let mut causes = Causes::default();
        for (case, tariff, switches) in self.used(account) {
            if let Ok(Tariff {
                basis: Basis::Estimated(whys),
                ..
            }) = tariff
            {
                whys.iter().for_each(|why| causes.add(why, case, switches));
            }
        }
        causes.lines("estimated")
    }

    /// Switches without a price, one line for each cause.
    fn unpriced(&self, account: &Account) -> Vec<String> {
        let mut causes = Causes::default();
        for (case, tariff, switches) in self.used(account) {
            if let Err(why) = tariff {
                causes.add(why, case, switches);
            }
        }
        causes.lines("not in the bill, which is a lower bound")
    }

    fn indirect(&self) -> String {
        match self.billing.displacement() {
            Ok(bound) => format!(
                "indirect: cold caches after a switch, between 0 and this upper bound (a private cache full \
                 of data, {}; no more than others had time to displace, and than the run was long)",
                bound.most()
            ),
            Err(why) => format!("what tasks lose afterwards (indirect) is not known: {why}"),
        }
    }

    fn used<'a>(
        &'a self,
        account: &'a Account,
    ) -> impl Iterator<Item = (Case, Result<&'a Tariff, &'a str>, u64)> {
        let cases = account.cases();
        cases.map(|(case, switches)| (case, self.billing.tariff(case), switches))
    }

    /// The `prices` object of a JSON report: the list, and what each case is billed at.
    pub fn to_json(&self, account: &Account) -> Value {
        let mut used: Vec<_> = self.used(account).collect();
        used.sort_by_key(|(case, _, switches)| (Reverse(*switches), *case));
        let tariffs = used
            .iter()
            .map(|(case, tariff, switches)| tariff_to_json(*case, *tariff, *switches));
        let displacement = self.billing.displacement();
        json!({
            "origin": self.list.origin,
            "session": self.list.session.id,
            "effort": self.list.session.effort,
            "warnings": self.warnings,
            "tariffs": tariffs.collect::<Vec<_>>(),
            "indirect": {
                "most_ns": displacement.ok().map(|bound| bound.most().as_ns()),
                "source": displacement.map_or_else(|why| why, |bound| bound.source()),
            },
        })
    }
}

/// Says what the recording added to each switch: the kernel's calls of its programs, at the price of
/// an empty program on that machine, and the time in them. `None` where either was not measured.
fn cost_of_recording(list: &PriceList, overhead: &Overhead) -> Option<String> {
    let mut contrasts = list.contrasts.iter();
    let of_one = contrasts.find(|contrast| {
        contrast.name == EMPTY_PROGRAM && contrast.verdict == Difference::Larger
    })?;
    let (runs, inside) = (
        overhead.kernel_runs_per_switch?,
        overhead.kernel_ns_per_switch?,
    );
    let of_one = &of_one.difference_ns;
    Some(format!(
        "recording added about {:.0} ns to a switch, which are in no price: {runs:.1} calls of its programs × {:.0} ns \
         ({:.0} to {:.0}; what an empty program costs), and {inside:.0} ns in them",
        runs.mul_add(of_one.point, inside),
        of_one.point,
        of_one.low,
        of_one.high,
    ))
}

/// Says what differs between the machine of the prices and that of the trace, one sentence each.
pub fn warnings(list: &Origin, meta: &Meta) -> Vec<String> {
    let mut traced = Origin {
        hostname: meta.host.hostname.clone(),
        kernel_release: meta.host.kernel_release.clone(),
        // A trace records no more about its host, so the other fields are taken from the list.
        ..list.clone()
    };
    if has_booted_since(list, meta) {
        traced.boot_id = "another".to_owned();
    }
    let mut differences = price_file::differences(list, &traced);
    if list.machine != meta.host.machine {
        let (was, is) = (&list.machine, &meta.host.machine);
        differences.push(format!("the architecture was {was}, and is {is}"));
    }
    let warning = |what| format!("the prices may not hold for this trace: {what}");
    differences.into_iter().map(warning).collect()
}

/// Returns true if the traced machine was booted after the prices were measured.
fn has_booted_since(list: &Origin, meta: &Meta) -> bool {
    let measured = list.measured_at.parse::<jiff::Timestamp>();
    let booted_ns = meta.clock.realtime_ns.checked_sub(meta.clock.boottime_ns);
    match (measured, booted_ns) {
        (Ok(measured), Some(booted_ns)) => measured.as_nanosecond() < i128::from(booted_ns),
        _ => false,
    }
}

fn tariff_to_json(case: Case, tariff: Result<&Tariff, &str>, switches: u64) -> Value {
    let (reason, successor) = (case.reason.as_str(), case.successor.as_str());
    match tariff {
        Ok(tariff) => json!({
            "reason": reason,
            "successor": successor,
            "switches": switches,
            "direct_ns": tariff.direct.point_ns,
            "direct_low_ns": tariff.direct.low_ns,
            "direct_high_ns": tariff.direct.high_ns,
            "source": tariff.source,
            "estimated_because": match &tariff.basis {
                Basis::Measured => None,
                Basis::Estimated(whys) => Some(whys),
            },
        }),
        Err(why) => json!({
            "reason": reason,
            "successor": successor,
            "switches": switches,
            "unpriced_because": why,
        }),
    }
}

/// Number of switches by cause, and for each cause by reason.
#[derive(Default)]
struct Causes<'a>(BTreeMap<&'a str, (u64, BTreeMap<Reason, u64>)>);

impl<'a> Causes<'a> {
    fn add(&mut self, why: &'a str, case: Case, switches: u64) {
        let (all, reasons) = self.0.entry(why).or_default();
        *all += switches;
        *reasons.entry(case.reason).or_default() += switches;
    }

    /// A line for each cause, that of most switches first.
    fn lines(&self, what: &str) -> Vec<String> {
        let mut causes: Vec<_> = self.0.iter().collect();
        causes.sort_by_key(|(why, (all, _))| (Reverse(*all), **why));
        let line = |(why, (all, reasons)): (&&str, &(u64, BTreeMap<Reason, u64>))| {
            let mut reasons: Vec<_> = reasons.iter().collect();
            reasons.sort_by_key(|(reason, switches)| (Reverse(**switches), **reason));
            let reasons: Vec<_> = reasons.iter().map(|(reason, _)| reason.as_str()).collect();
            let switches = counted(*all, "context switch");
            format!("{what}: {switches} ({}): {why}", reasons.join(", "))
        };
        causes.into_iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use swtch_core::cost::{Estimate, NamedContrast};

    use super::*;
    use crate::report::drawn::{head, prices};

    fn meta() -> Meta {
        head().meta
    }

    /// 2.5 calls at 80 ns, and 171.6 ns in the programs; nothing is said where the price is not known.
    #[test]
    fn a_recording_costs_its_calls_and_what_its_programs_take() {
        let overhead = Overhead {
            kernel_ns_per_switch: Some(171.6),
            kernel_runs_per_switch: Some(2.5),
            ..Overhead::default()
        };
        let mut list = prices();
        list.contrasts.clear();
        assert_eq!(cost_of_recording(&list, &overhead), None);
        let of = |ns: f64, low, high| Estimate {
            point: ns,
            low,
            high,
            confidence: 0.95,
            trees: 18,
            rounds: 18,
        };
        list.contrasts.push(NamedContrast {
            name: EMPTY_PROGRAM.to_owned(),
            about: String::new(),
            difference_ns: of(80.0, 60.0, 100.0),
            ratio: of(1.03, 1.02, 1.04),
            p: 0.001,
            control_of: None,
            proof: None,
            verdict: Difference::Larger,
        });
        let told = cost_of_recording(&list, &overhead).unwrap();
        assert!(
            told.starts_with("recording added about 372 ns to a switch"),
            "{told}"
        );
        assert!(
            told.contains("2.5 calls of its programs × 80 ns (60 to 100"),
            "{told}"
        );
        let uncounted = Overhead {
            kernel_runs_per_switch: None,
            ..overhead
        };
        assert_eq!(cost_of_recording(&list, &uncounted), None);
        list.contrasts[0].verdict = Difference::Unresolved;
        assert_eq!(cost_of_recording(&list, &overhead), None);
    }

    #[test]
    fn prices_of_the_same_machine_need_no_warning() {
        assert!(warnings(&prices().origin, &meta()).is_empty());
    }

    #[test]
    fn another_host_kernel_or_architecture_is_named() {
        let mut origin = prices().origin;
        origin.hostname = "db2".into();
        origin.kernel_release = "6.1.0".into();
        origin.machine = "aarch64".into();
        let expected = [
            "the prices may not hold for this trace: the host was db2, and is db1",
            "the prices may not hold for this trace: the kernel was 6.1.0, and is 6.18.0",
            "the prices may not hold for this trace: the architecture was aarch64, and is x86_64",
        ];
        assert_eq!(warnings(&origin, &meta()), expected);
    }

    /// Measured in 2026, booted in 2027.
    #[test]
    fn prices_from_before_the_boot_of_the_trace_are_named() {
        let mut meta = meta();
        meta.clock.realtime_ns = 1_800_000_000_000_000_000;
        meta.clock.boottime_ns = 60_000_000_000;
        let warnings = warnings(&prices().origin, &meta);
        assert_eq!(warnings.len(), 1);
        assert!(
            warnings[0].contains("has booted since 2026-01-01"),
            "{}",
            warnings[0]
        );
        // A list whose date cannot be read is not warned about.
        let undated = Origin {
            measured_at: "yesterday".into(),
            ..prices().origin
        };
        assert!(super::warnings(&undated, &meta).is_empty());
    }

    #[test]
    fn a_poor_measurement_is_said() {
        let mut list = prices();
        list.session.was_interrupted = true;
        list.session.is_resolved = false;
        list.session.verdict =
            swtch_core::cost::MeasurementVerdict::Noisy(vec![swtch_core::cost::Reason::Stolen {
                pct: 12.0,
            }]);
        let notes = Prices::new(&list, &meta())
            .notes(&Account::default())
            .join("\n");
        for said in [
            "ended early",
            "not every price",
            "measured: the hypervisor gave 12.0 % of the time",
        ] {
            assert!(notes.contains(said), "{said}: {notes}");
        }
    }
}
