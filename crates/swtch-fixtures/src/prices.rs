//! Price lists for the machine of [`meta`](crate::meta).

use swtch_core::cost::{
    Curve, Estimate, Members, Origin, PRICES_VERSION, Place, Point, Policy, Price, PriceList,
    PriceUnit, REFERENCE, Session,
};

/// Prices for the machine of [`meta`](crate::meta), between threads and between processes. They are
/// round numbers and were not measured.
pub fn prices() -> PriceList {
    let price = |kind: &str, members, point: f64| Price {
        kind: kind.to_owned(),
        section: "switch".to_owned(),
        members: Some(members),
        count: Some(2),
        place: Some(Place::SameCpu),
        policy: Some(Policy::Batch),
        hand_off_ns: estimate(point + 1000.0),
        // A wait for a futex has no baseline: its calls are part of the bill.
        baseline_ns: None,
        net_ns: Some(estimate(point)),
        voluntary_per_op: 1.0,
        involuntary_per_op: 0.0,
        per: PriceUnit::Switch,
        system_calls: None,
        relative: None,
        dropped_rounds: 0,
    };
    let kinds = [
        "futex-shared",
        "pipe",
        "socketpair",
        "epoll",
        "sysv-semaphore",
    ];
    let mut prices = vec![
        price("yield", Members::Threads, 500.0),
        price("yield", Members::Processes, 700.0),
    ];
    for kind in kinds {
        prices.push(price(kind, Members::Threads, 1000.0));
        prices.push(price(kind, Members::Processes, 2000.0));
    }
    PriceList {
        version: PRICES_VERSION,
        origin: origin(),
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

/// [`prices`] with a curve: a private cache full of data costs 10 µs.
pub fn prices_with_curve() -> PriceList {
    let point = |size, point| Point {
        size,
        net_ns: Estimate {
            low: point,
            high: point,
            ..estimate(point)
        },
        hot_ns: None,
    };
    let curve = Curve {
        name: "working-set-random-private".into(),
        label: "private".into(),
        figure: "working-set".into(),
        size_is: "working_set_bytes".into(),
        points: vec![point(4096.0, 1000.0), point(1_048_576.0, 11_000.0)],
    };
    PriceList {
        curves: vec![curve],
        ..prices()
    }
}

/// ± 10 %, in numbers that a file keeps to the last digit.
fn estimate(point: f64) -> Estimate {
    Estimate {
        point,
        low: point - point / 10.0,
        high: point + point / 10.0,
        confidence: 0.95,
        trees: 6,
        rounds: 60,
    }
}

fn origin() -> Origin {
    Origin {
        hostname: "db1".into(),
        kernel_release: "6.18.0".into(),
        kernel_version: "#1".into(),
        machine: "x86_64".into(),
        cpu_model: "drawn".into(),
        cpus: 2,
        boot_id: "drawn".into(),
        measured_at: "2026-01-01T00:00:00Z".into(),
        swtch_version: "0".into(),
    }
}
