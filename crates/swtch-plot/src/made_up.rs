//! Made-up pictures, of the shapes that real ones have, for tests.

use super::content::{
    Axis, Chart, Content, Dot, Dots, Lane, LaneSpan, Lanes, Line, Mark, Measure, NamedDot, Picture,
    Scale, SpanKind, Style,
};
use super::palette::{Fill, appearance_of};

/// Pictures of every content and style, as the lab draws them.
pub fn pictures() -> Vec<Picture> {
    vec![
        picture(
            "turnaround",
            "Turnaround grows with the number of processes",
            turnaround(),
        ),
        picture(
            "runs",
            "How long a hog runs before it loses the CPU",
            runs(),
        ),
        picture("lanes", "Five threads on four CPUs", five_on_four()),
        picture(
            "crowd",
            "Two threads that take turns for eight seconds",
            crowd(),
        ),
        picture("primitives", "An uncontended call", primitives()),
        picture("ratios", "What one thing adds", ratios()),
        picture("empty", "Nothing was measured", nothing()),
    ]
}

fn picture(name: &str, title: &str, content: Content) -> Picture {
    Picture {
        name: name.to_owned(),
        title: title.to_owned(),
        subtitle: "bench · Linux 6.18.5 x86_64 · 4 CPUs · 2026-03-02".to_owned(),
        explanation: "points are means of 20 trials; bars are 95 % intervals of the mean; dashed is what an ideal scheduler would give without any switch that costs time".to_owned(),
        notes: vec!["another program had 3 % of the CPUs meanwhile".to_owned()],
        content,
    }
}

fn axis(name: &str, measure: Measure, scale: Scale) -> Axis {
    Axis {
        name: name.to_owned(),
        measure,
        scale,
    }
}

fn line_of(label: &str, style: Style, points: impl Iterator<Item = (f64, f64, f64)>) -> Line {
    let dot = |(x, y, half): (f64, f64, f64)| Dot {
        x,
        y,
        interval: (half > 0.0).then_some((y - half, y + half)),
    };
    Line {
        label: label.to_owned(),
        style,
        colour: None,
        points: points.map(dot).collect(),
    }
}

fn turnaround() -> Content {
    let members = || (1..=9).map(f64::from);
    let ideal = |n: f64| 2e8 * (n / 4.0).max(1.0);
    let noisy = |n: f64| ideal(n) * (1.02 + 0.02 * (n * 7.0).sin());
    let jobs = (1..=9).flat_map(move |n| {
        (0..n).map(move |job| {
            (
                f64::from(n),
                noisy(f64::from(n)) * (1.0 - 0.07 * f64::from(job)),
                0.0,
            )
        })
    });
    Content::Chart(Chart {
        x: axis("processes", Measure::Count, Scale::Linear),
        y: axis("turnaround", Measure::Time, Scale::Linear),
        lines: vec![
            line_of(
                "mean",
                Style::Measured,
                members().map(move |n| (n, noisy(n), 1.5e7)),
            ),
            line_of(
                "p95",
                Style::Measured,
                members().map(move |n| (n, noisy(n) * 1.1, 3e7)),
            ),
            line_of(
                "ideal",
                Style::Ideal,
                members().map(move |n| (n, ideal(n), 0.0)),
            ),
            line_of("single jobs", Style::Scattered, jobs),
        ],
        marks: vec![Mark {
            at: 4.0,
            label: "4 CPUs".to_owned(),
        }],
    })
}

fn runs() -> Content {
    let steps = |median: f64, spread: f64| {
        (0..=400).map(move |n| {
            let share = f64::from(n) / 400.0;
            let x = median * ((share * 0.99 + 0.005) / (1.0 - share * 0.99)).powf(spread);
            (x, share * 100.0, 0.0)
        })
    };
    Content::Chart(Chart {
        x: axis("length of a run", Measure::Time, Scale::Logarithmic),
        y: axis(
            "runs that are at most so long",
            Measure::Percent,
            Scale::Linear,
        ),
        lines: vec![
            line_of("other, nice 0", Style::Steps, steps(4e6, 0.1)),
            line_of("batch", Style::Steps, steps(4.1e6, 0.12)),
            line_of("slice 0.1 ms", Style::Steps, steps(9e5, 0.4)),
            line_of("RR", Style::Steps, steps(1e8, 0.01)),
        ],
        marks: [
            ("slice 2.8 ms", 2.8e6),
            ("tick 4 ms", 4e6),
            ("RR slice 100 ms", 1e8),
        ]
        .map(|(label, at)| Mark {
            at,
            label: label.to_owned(),
        })
        .to_vec(),
    })
}

fn five_on_four() -> Content {
    let alone = |cpu: usize| {
        vec![LaneSpan {
            from_ns: 3_000_000,
            to_ns: 1_000_000_000,
            kind: cpu,
        }]
    };
    let turns = |first: u64| {
        let span = |turn: u64| LaneSpan {
            from_ns: turn * 20_000_000,
            to_ns: (turn + 1) * 20_000_000,
            kind: 0,
        };
        (0..100)
            .filter(|turn| turn % 2 == first)
            .map(span)
            .collect()
    };
    let spans = [turns(0), alone(1), alone(2), alone(3), turns(1)];
    let lane = |(number, spans): (usize, Vec<LaneSpan>)| Lane {
        label: format!("counter-{}", number + 1),
        spans,
    };
    Content::Lanes(Lanes {
        lanes: spans.into_iter().enumerate().map(lane).collect(),
        kinds: (0..4)
            .map(|cpu| {
                SpanKind::named(
                    &format!("on CPU {cpu}"),
                    Fill::plain(appearance_of(cpu).colour),
                )
            })
            .collect(),
        length_ns: 2_000_000_000,
        aligned_with: Vec::new(),
    })
}

/// Ten thousand switches on each of twenty lanes.
fn crowd() -> Content {
    let spans = |first: u64| {
        let span = |turn: u64| LaneSpan {
            from_ns: turn * 400_000,
            to_ns: turn * 400_000 + 395_000 + turn % 5_000,
            kind: usize::from(!(turn + first).is_multiple_of(3)),
        };
        (0..20_000).map(span).collect()
    };
    let lane = |number| Lane {
        label: format!("worker-{number} with a long name of its own"),
        spans: spans(number),
    };
    Content::Lanes(Lanes {
        lanes: (0..20).map(lane).collect(),
        kinds: vec![
            SpanKind::named("running", Fill::RUNNING),
            SpanKind::named("waiting for the CPU", Fill::QUEUED),
        ],
        length_ns: 8_000_000_000,
        aligned_with: Vec::new(),
    })
}

fn named(label: &str, series: Option<&str>, value: f64) -> NamedDot {
    NamedDot {
        label: label.to_owned(),
        series: series.map(str::to_owned),
        value,
        interval: Some((value * 0.93, value * 1.06)),
    }
}

fn primitives() -> Content {
    let names = [
        "mutex",
        "rwlock, to read",
        "condition variable, signal",
        "POSIX semaphore",
        "System V semaphore",
        "eventfd",
        "futex system call",
        "pipe, write and read",
    ];
    let rows = names.iter().enumerate().flat_map(|(number, name)| {
        let value = 9.0 * 2.2_f64.powi(i32::try_from(number).unwrap());
        [
            named(name, Some("threads"), value),
            named(name, Some("processes"), value * 1.3),
        ]
    });
    Content::Dots(Dots {
        axis: axis("time per call", Measure::Time, Scale::Logarithmic),
        rows: rows.collect(),
    })
}

fn ratios() -> Content {
    Content::Dots(Dots {
        axis: axis("times as long", Measure::Plain, Scale::Linear),
        rows: vec![
            named("another address space", None, 1.2),
            named("AVX-512 registers in use", None, 1.04),
            named("cold cache", None, 2.7),
        ],
    })
}

fn nothing() -> Content {
    Content::Chart(Chart {
        x: axis("threads", Measure::Count, Scale::Linear),
        y: axis("time", Measure::Time, Scale::Linear),
        lines: Vec::new(),
        marks: Vec::new(),
    })
}
