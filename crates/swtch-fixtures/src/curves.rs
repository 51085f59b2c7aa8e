//! Price lists with curves, of the shapes that real ones have.

use swtch_core::cost::{
    Curve, Estimate, Origin, PRICES_VERSION, Point, PriceFact, PriceList, Session,
};

const KIB: f64 = 1024.0;

/// A list as a quiet machine gives it: three figures, all resolved but a few points.
pub fn prices() -> PriceList {
    PriceList {
        version: PRICES_VERSION,
        origin: origin(),
        facts: facts(),
        session: session(),
        curves: [working_sets(), ring_sizes(), branches()].concat(),
        ..PriceList::default()
    }
}

/// Returns a list that is hard to draw: long names, lines that end at one place, wide intervals, points below 0, a size
/// of 0, a line with nothing above 0.
pub fn worst_case() -> PriceList {
    let crowd = (0..9).map(|number| {
        let name = format!("line {number} with a name that is far longer than there is room for");
        let at = |size: f64| 900.0 + size / 40.0 + f64::from(number);
        curve(
            &name,
            "working-set",
            "working_set_bytes",
            &sizes(12, 20),
            at,
            0.01,
        )
    });
    let mut noisy = curve(
        "noisy",
        "working-set",
        "working_set_bytes",
        &sizes(12, 20),
        |size| (size / KIB).ln() * 40.0 - 110.0,
        0.9,
    );
    noisy.points.push(point(0.0, 10.0, 1.0));
    let below = curve(
        "never above 0",
        "other",
        "things",
        &sizes(0, 5),
        |_| -3.0,
        1.0,
    );
    PriceList {
        curves: crowd.chain([noisy, below]).collect(),
        ..prices()
    }
}

fn origin() -> Origin {
    Origin {
        hostname: "bench".to_owned(),
        kernel_release: "6.18.5-generic".to_owned(),
        kernel_version: "#1 SMP PREEMPT_DYNAMIC".to_owned(),
        machine: "x86_64".to_owned(),
        cpu_model: "Intel(R) Core(TM) i7-13700K".to_owned(),
        cpus: 24,
        boot_id: "8d9f7a3e-0000-4000-8000-000000000000".to_owned(),
        measured_at: "2026-03-02T10:11:12Z".to_owned(),
        swtch_version: "0.1.0".to_owned(),
    }
}

fn session() -> Session {
    Session {
        effort: "default".to_owned(),
        id: "3f1c".to_owned(),
        took_s: 28.4,
        cpu: Some(2),
        reference: swtch_core::cost::REFERENCE.to_owned(),
        is_resolved: true,
        ..Session::default()
    }
}

fn facts() -> Vec<PriceFact> {
    [
        ("cache_l1d_bytes", "49152"),
        ("cache_l2_bytes", "2097152"),
        ("cache_l3_bytes", "37748736"),
        ("tlb_cliff_at", "5"),
    ]
    .map(|(name, value)| PriceFact {
        name: name.to_owned(),
        value: Some(value.to_owned()),
        source: "made up".to_owned(),
    })
    .to_vec()
}

/// Powers of two, given the first and the last exponent.
fn sizes(from: i32, to: i32) -> Vec<f64> {
    (from..=to).map(|power| 2_f64.powi(power)).collect()
}

fn working_sets() -> Vec<Curve> {
    let refill = |per_line: f64| {
        move |size: f64| {
            let lines = size / 64.0;
            let l1 = (size / (48.0 * KIB)).min(1.0);
            let l2 = (size / (2048.0 * KIB)).min(1.0);
            let l3 = (size / (36_864.0 * KIB)).min(1.0);
            let fades = if size > 36_864.0 * KIB { 0.25 } else { 1.0 };
            lines * per_line * (0.25 * l1 + 0.8 * l2 + 3.0 * l3) * fades + 12.0 * l1
        }
    };
    let all = sizes(12, 27);
    let make = |label: &str, shape: &dyn Fn(f64) -> f64, spread: f64| {
        curve(
            label,
            "working-set",
            "working_set_bytes",
            &all,
            shape,
            spread,
        )
    };
    vec![
        make("random, private", &refill(4.0), 0.06),
        make("sequential, private", &refill(1.1), 0.08),
        make(
            "random, shared",
            &|size: f64| (size / KIB).sqrt() * 0.3 - 2.0,
            0.8,
        ),
        make("random, huge pages", &refill(2.1), 0.05),
    ]
}

fn ring_sizes() -> Vec<Curve> {
    let ring: Vec<f64> = [2, 3, 4, 5, 6, 8, 12, 16].map(f64::from).to_vec();
    let cliff = |base: f64, height: f64| {
        move |size: f64| base + if size > 4.0 { height } else { 0.0 } + size
    };
    vec![
        curve(
            "256 pages",
            "tlb",
            "processes_in_ring",
            &ring,
            cliff(180.0, 2600.0),
            0.05,
        ),
        curve(
            "64 pages",
            "tlb",
            "processes_in_ring",
            &ring,
            cliff(90.0, 640.0),
            0.05,
        ),
        curve(
            "1 huge page",
            "tlb",
            "processes_in_ring",
            &ring,
            cliff(55.0, 12.0),
            0.1,
        ),
    ]
}

fn branches() -> Vec<Curve> {
    let all = sizes(6, 15);
    vec![
        curve(
            "after a switch",
            "branches",
            "branches",
            &all,
            |n| n * 0.9 + 30.0,
            0.08,
        ),
        curve(
            "after a miss, no switch",
            "branches",
            "branches",
            &all,
            |n| n * 0.02,
            0.5,
        ),
    ]
}

fn curve(
    label: &str,
    figure: &str,
    size_is: &str,
    sizes: &[f64],
    net_ns: impl Fn(f64) -> f64,
    spread: f64,
) -> Curve {
    let points = sizes.iter().map(|size| point(*size, net_ns(*size), spread));
    Curve {
        name: label.replace(' ', "-"),
        label: label.to_owned(),
        figure: figure.to_owned(),
        size_is: size_is.to_owned(),
        points: points.collect(),
    }
}

/// A point whose interval is `spread` of it, or of 10 ns, to both sides.
fn point(size: f64, net_ns: f64, spread: f64) -> Point {
    let half = spread * net_ns.abs().max(10.0);
    let estimate = |point: f64, half: f64| Estimate {
        point,
        low: point - half,
        high: point + half,
        confidence: 0.95,
        trees: 6,
        rounds: 240,
    };
    Point {
        size,
        net_ns: estimate(net_ns, half),
        hot_ns: Some(estimate(size * 0.02 + 4.0, 0.1)),
    }
}
