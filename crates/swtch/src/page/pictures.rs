//! What a trace looks like: the threads over time, how often they switched, how long it took.

use swtch_core::{Category, Distribution, Nanos, Reason};

use crate::plot::Picture;
use crate::plot::content::{
    Axis, Chart, Content, Dot, Lane, Lanes, Line, Measure, Scale, Span as Drawn, Style,
};
use crate::report::Filter;
use crate::view::timeline::{Shares, State, Timeline, Track};
use crate::view::{Loaded, Span, open_piece};

/// Threads that are shown: those with the most switches.
const MOST_LANES: usize = 30;

/// Into how many bins a lane is cut when it has too many pieces: twice as many as columns are seen.
const BINS: u64 = 700;

/// Rows of a lane up to which its pieces are drawn one by one.
const EXACT_ROWS: usize = 1000;

/// Reasons that have a line of their own.
const MOST_REASONS: usize = 6;

/// Points of a line over time.
const POINTS: u32 = 150;

/// What the colours of lanes mean, in an order that gives them the colours which they have in
/// `swtch view`; `kind_of` follows it.
const KINDS: [&str; 8] = [
    "io",
    "in a run queue",
    "running",
    "synchronization",
    "wait",
    "memory",
    "unknown",
    "sleep",
];

/// The pictures; none of a trace without switches.
pub fn of(loaded: &Loaded, filter: &Filter) -> Vec<Picture> {
    let tracks = loaded.tracks(filter);
    let span = span_of(loaded, filter);
    if loaded.rows(&tracks, span).next().is_none() {
        return Vec::new();
    }
    let mut pictures = vec![timeline(loaded, &tracks, span), rate(loaded, &tracks, span)];
    pictures.push(lengths(loaded, &tracks, span));
    for picture in &mut pictures {
        picture.subtitle = subtitle(loaded);
        if !filter.reasons.is_empty() {
            picture
                .notes
                .push("all reasons are shown, whatever the tables are filtered by".to_owned());
        }
    }
    pictures
}

fn subtitle(loaded: &Loaded) -> String {
    let meta = loaded.trace.meta();
    let host = &meta.host;
    let what = match meta.command.is_empty() {
        true => meta.scope.clone(),
        false => meta.command.join(" "),
    };
    format!(
        "{} · Linux {} · {} CPUs · {what}",
        host.hostname, host.kernel_release, host.cpus
    )
}

fn span_of(loaded: &Loaded, filter: &Filter) -> Span {
    let end = loaded.duration_ns() + 1;
    let from_ns = filter
        .since
        .map_or(0, |moment| moment.0.as_ns())
        .min(end - 1);
    let to_ns = filter.until.map_or(end, |moment| moment.0.as_ns()).min(end);
    Span {
        from_ns,
        to_ns: to_ns.max(from_ns + 1),
    }
}

fn timeline(loaded: &Loaded, tracks: &[Track], span: Span) -> Picture {
    let os = &loaded.levels.os;
    let mut busiest: Vec<_> = tracks
        .iter()
        .map(|track| {
            (
                os.rows_between(*track, span.from_ns, span.to_ns).len(),
                *track,
            )
        })
        .collect();
    busiest.sort_by_key(|(rows, track)| (std::cmp::Reverse(*rows), track.first));
    let lanes = busiest.iter().take(MOST_LANES).map(|(_, track)| Lane {
        label: loaded.names.label(loaded.names.index(track.task)),
        spans: with_open(loaded, *track, span, spans(os, *track, span)),
    });
    let mut notes = Vec::new();
    if tracks.len() > MOST_LANES {
        notes.push(format!(
            "the {MOST_LANES} threads with the most switches, of {}",
            tracks.len()
        ));
    }
    let lanes = Lanes {
        lanes: lanes.collect(),
        kinds: KINDS.map(str::to_owned).to_vec(),
        length_ns: span.to_ns - span.from_ns,
    };
    Picture {
        name: "timeline".to_owned(),
        title: "What the threads did".to_owned(),
        subtitle: String::new(),
        explanation: "a lane is a thread; blocked time has the colour of its reason's category"
            .to_owned(),
        notes,
        content: Content::Lanes(lanes),
    }
}

/// The pieces, and what the thread was still at when the trace ended, which is in no row.
fn with_open(loaded: &Loaded, track: Track, span: Span, mut spans: Vec<Drawn>) -> Vec<Drawn> {
    let open = loaded.open(track.task).map(|open| open_piece(loaded, open));
    let begins = spans.last().map_or(0, |last| last.to_ns);
    spans.extend(open.and_then(|piece| {
        let from_ns = piece.from_ns.saturating_sub(span.from_ns).max(begins);
        let to_ns = piece.to_ns.min(span.to_ns).checked_sub(span.from_ns)?;
        let kind = kind_of(piece.state.number());
        (from_ns < to_ns).then_some(Drawn {
            from_ns,
            to_ns,
            kind,
        })
    }));
    spans
}

/// What a thread did, in pieces no finer than can be seen.
fn spans(os: &Timeline, track: Track, span: Span) -> Vec<Drawn> {
    let rows = os.rows_between(track, span.from_ns, span.to_ns);
    let mut spans = Vec::new();
    if rows.len() <= EXACT_ROWS {
        for row in rows {
            os.rows().pieces(row).each(|from_ns, to_ns, state| {
                let (from_ns, to_ns) = (from_ns.max(span.from_ns), to_ns.min(span.to_ns));
                if from_ns < to_ns {
                    spans.push(Drawn {
                        from_ns: from_ns - span.from_ns,
                        to_ns: to_ns - span.from_ns,
                        kind: kind_of(state.number()),
                    });
                }
            });
        }
        return spans;
    }
    let length = span.to_ns - span.from_ns;
    let bins = BINS.min(length);
    let edge = |bin: u64| u64::try_from(u128::from(length) * u128::from(bin) / u128::from(bins));
    let edge = |bin: u64| edge(bin).expect("less than the length, which is 64 bits");
    let mut shares = Shares::default();
    for bin in 0..bins {
        let (from_ns, to_ns) = (edge(bin), edge(bin + 1));
        os.add_shares(
            track,
            span.from_ns + from_ns,
            span.from_ns + to_ns,
            &mut shares,
        );
        // One after the other in their bin: too narrow to be told apart, they are drawn as shares.
        let mut at = from_ns;
        shares.drain(|state, ns| {
            let end = (at + ns).min(to_ns);
            if at < end {
                spans.push(Drawn {
                    from_ns: at,
                    to_ns: end,
                    kind: kind_of(state),
                });
            }
            at = end;
        });
    }
    spans
}

/// The place in [`KINDS`] of a state.
fn kind_of(number: u8) -> usize {
    if number == State::Running.number() {
        return 2;
    }
    let blocked = Reason::ALL
        .iter()
        .find(|reason| State::Blocked(**reason).number() == number);
    blocked.map_or(1, |reason| match reason.category() {
        Category::Io => 0,
        Category::Synchronization => 3,
        Category::Wait => 4,
        Category::Memory => 5,
        Category::Sleep => 7,
        _ => 6,
    })
}

fn rate(loaded: &Loaded, tracks: &[Track], span: Span) -> Picture {
    let rows = loaded.levels.os.rows();
    let length = span.to_ns - span.from_ns;
    let bins = u128::from(POINTS);
    let mut counts = vec![[0_u32; POINTS as usize]; Reason::ALL.len()];
    for row in loaded.rows(tracks, span) {
        let bin = u128::from(rows.ended_ns[row] - span.from_ns) * bins / u128::from(length);
        let bin = usize::try_from(bin).expect("less than the number of bins");
        counts[rows.reason(row).index()][bin] += 1;
    }
    let sum = |reason: &Reason| {
        counts[reason.index()]
            .iter()
            .map(|n| u64::from(*n))
            .sum::<u64>()
    };
    let mut reasons: Vec<_> = Reason::ALL
        .iter()
        .filter(|reason| sum(reason) > 0)
        .collect();
    reasons.sort_by_key(|reason| std::cmp::Reverse(sum(reason)));
    let left_out = reasons.split_off(reasons.len().min(MOST_REASONS));
    let bin_ns = as_float(length) / f64::from(POINTS);
    let lines = reasons.iter().map(|reason| Line {
        label: reason.as_str().to_owned(),
        style: Style::Steps,
        points: (0..)
            .zip(counts[reason.index()])
            .map(|(bin, count): (u32, u32)| {
                dot(f64::from(bin) * bin_ns, f64::from(count) * 1e9 / bin_ns)
            })
            .collect(),
    });
    let words: Vec<_> = left_out.iter().map(|reason| reason.as_str()).collect();
    Picture {
        name: "rate".to_owned(),
        title: "How often threads left the CPU, and why".to_owned(),
        subtitle: String::new(),
        explanation: format!(
            "switches per second in bins of {}",
            crate::text::nanos(bin_ns)
        ),
        notes: match words.is_empty() {
            true => Vec::new(),
            false => vec![format!("rarer reasons are not drawn: {}", words.join(", "))],
        },
        content: Content::Chart(Chart {
            x: Axis {
                name: "since the start of the span".to_owned(),
                measure: Measure::Time,
                scale: Scale::Linear,
            },
            y: Axis {
                name: "switches per second".to_owned(),
                measure: Measure::Count,
                scale: Scale::Linear,
            },
            lines: lines.collect(),
            marks: Vec::new(),
        }),
    }
}

fn lengths(loaded: &Loaded, tracks: &[Track], span: Span) -> Picture {
    let rows = loaded.levels.os.rows();
    let (mut ran, mut blocked, mut runq) = <(Distribution, Distribution, Distribution)>::default();
    let record = |lengths: &mut Distribution, ns: Option<u64>| {
        ns.into_iter()
            .for_each(|ns| lengths.record(Nanos::from_ns(ns)));
    };
    for row in loaded.rows(tracks, span) {
        let (off, queued) = (rows.off.get(row), rows.runq.get(row));
        let slept = off
            .zip(queued)
            .map(|(off, queued)| off.saturating_sub(queued));
        record(&mut ran, rows.ran.get(row));
        record(&mut runq, queued);
        record(&mut blocked, slept.filter(|ns| *ns > 0));
    }
    let lines = [
        ("runs", ran),
        ("run-queue waits", runq),
        ("blocked", blocked),
    ];
    let lines = lines.iter().filter(|line| line.1.count() > 0);
    Picture {
        name: "lengths".to_owned(),
        title: "How long runs and waits last".to_owned(),
        subtitle: String::new(),
        explanation: "the part of all that is at most so long".to_owned(),
        notes: Vec::new(),
        content: Content::Chart(Chart {
            x: Axis {
                name: "length".to_owned(),
                measure: Measure::Time,
                scale: Scale::Logarithmic,
            },
            y: Axis {
                name: "of all".to_owned(),
                measure: Measure::Percent,
                scale: Scale::Linear,
            },
            lines: lines
                .map(|(label, lengths)| cumulative(label, lengths))
                .collect(),
            marks: Vec::new(),
        }),
    }
}

fn cumulative(label: &str, lengths: &Distribution) -> Line {
    let all = as_float(lengths.count());
    let mut seen = 0;
    let points = lengths.recorded().map(|(length, count)| {
        seen += count;
        dot(
            as_float(length.as_ns().max(1)),
            as_float(seen) * 100.0 / all,
        )
    });
    Line {
        label: label.to_owned(),
        style: Style::Steps,
        points: points.collect(),
    }
}

const fn dot(x: f64, y: f64) -> Dot {
    Dot {
        x,
        y,
        interval: None,
    }
}

#[expect(clippy::cast_precision_loss, reason = "for a picture")]
const fn as_float(number: u64) -> f64 {
    number as f64
}
