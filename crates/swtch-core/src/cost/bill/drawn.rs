//! Price lists made up for the tests of the bill.

use super::{Case, Successor};
use crate::cost::{
    Curve, Estimate, Members, Origin, PRICES_VERSION, Place, Point, Policy, Price, PriceFact,
    PriceList, PriceUnit, REFERENCE, Session,
};
use crate::reason::Reason;

/// An estimate from low end, point and high end.
pub fn estimate([low, point, high]: [f64; 3]) -> Estimate {
    Estimate {
        point,
        low,
        high,
        confidence: 0.95,
        trees: 6,
        rounds: 60,
    }
}

pub const fn case(reason: Reason, successor: Successor) -> Case {
    Case { reason, successor }
}

/// The price of a ring of two on one CPU: kind, members, net cost.
pub fn price(kind: &str, members: &str, net: [f64; 3]) -> Price {
    Price {
        kind: kind.to_owned(),
        section: "switch".to_owned(),
        members: Members::from_word(members),
        count: Some(2),
        place: Some(Place::SameCpu),
        policy: Some(Policy::Batch),
        // The calls are the program's own: a bill must never use this number.
        hand_off_ns: estimate([1e9; 3]),
        baseline_ns: None,
        net_ns: Some(estimate(net)),
        voluntary_per_op: 1.0,
        involuntary_per_op: 0.0,
        per: PriceUnit::Switch,
        system_calls: None,
        relative: None,
        dropped_rounds: 0,
    }
}

/// A list of the prices that [`price`] makes.
pub fn list(prices: &[(&str, &str, [f64; 3])]) -> PriceList {
    let prices = prices.iter().map(|(k, m, net)| price(k, m, *net)).collect();
    PriceList {
        version: PRICES_VERSION,
        origin: Origin {
            hostname: "drawn".into(),
            kernel_release: "6.18".into(),
            kernel_version: "#1".into(),
            machine: "x86_64".into(),
            cpu_model: "drawn".into(),
            cpus: 2,
            boot_id: "drawn".into(),
            measured_at: "2026-01-01T00:00:00Z".into(),
            swtch_version: "0".into(),
        },
        session: Session {
            effort: "quick".into(),
            id: "drawn".into(),
            took_s: 1.0,
            reference: REFERENCE.into(),
            cpu: Some(0),
            is_resolved: true,
            ..Session::default()
        },
        prices,
        ..PriceList::default()
    }
}

/// The list with a working-set curve: size in bytes and net cost.
pub fn with_curve(list: PriceList, points: &[(f64, [f64; 3])]) -> PriceList {
    let point = |(size, net): &(f64, [f64; 3])| Point {
        size: *size,
        net_ns: estimate(*net),
        hot_ns: None,
    };
    let curve = Curve {
        name: super::displacement::CURVE.into(),
        label: "private".into(),
        figure: "working-set".into(),
        size_is: "working_set_bytes".into(),
        points: points.iter().map(point).collect(),
    };
    PriceList {
        curves: vec![curve],
        ..list
    }
}

/// The list of a machine with an L2 cache of this many bytes.
pub fn with_l2(list: PriceList, bytes: &str) -> PriceList {
    let fact = PriceFact {
        name: super::displacement::L2.into(),
        value: Some(bytes.into()),
        source: "drawn".into(),
    };
    PriceList {
        facts: vec![fact],
        ..list
    }
}
