//! Pictures of a trace: the threads over time, the rate of switches, and how long waits took.

use plotters::style::RGBColor;
use swtch_core::{Category, Distribution, Nanos, Reason};
use swtch_output::host::HostWords;
use swtch_plot::Picture;
use swtch_plot::content::{
    Axis, Chart, Content, Dot, Lane, LaneSpan as Drawn, Lanes, Line, Measure, Scale, SpanKind,
    Style,
};
use swtch_plot::palette::{Fill, Texture, category_colour, reason_colour};
use swtch_report::report::{Filter, host_words};

use crate::curves::{self, Length};
use crate::timeline::{LevelRows, StateTimes, ThreadState, Track};
use crate::{Loaded, Span, open_piece};

/// Threads that are shown at most: those with the most switches.
const MOST_LANES: usize = 30;

/// Number of bins of a lane that has too many pieces to draw: twice as many as can be told apart.
const BINS: u32 = 700;

/// A lane with more rows than this is drawn in bins.
const EXACT_ROWS: usize = 1000;

/// Reasons that have a line of their own: the most frequent ones.
const MOST_REASONS: usize = 6;

/// Number of points of a line over time.
const POINTS: u32 = 150;

/// All pictures of a trace; none if it has no switches.
pub fn of(loaded: &Loaded, filter: &Filter) -> Vec<Picture> {
    let tracks = loaded.tracks(filter);
    let span = span_of(loaded, filter);
    if !loaded.has_rows(&tracks, span) {
        return Vec::new();
    }
    let mut pictures = vec![timeline(loaded, &tracks, span), rate(loaded, &tracks, span)];
    pictures.push(lengths(loaded, &tracks, span));
    for picture in &mut pictures {
        describe(picture, loaded, filter);
    }
    pictures
}

/// The timeline of a trace alone; `None` if it has no switches.
pub fn timeline_of(loaded: &Loaded, filter: &Filter) -> Option<Picture> {
    let tracks = loaded.tracks(filter);
    let span = span_of(loaded, filter);
    loaded.has_rows(&tracks, span).then(|| {
        let mut picture = timeline(loaded, &tracks, span);
        describe(&mut picture, loaded, filter);
        picture
    })
}

/// Gives timelines that stand one above the other the same scale of time, at the same place.
pub fn align(pictures: &mut [Picture]) {
    let mut labels = Vec::new();
    let mut longest_ns = 0;
    for lanes in pictures.iter().filter_map(lanes_of) {
        labels.extend(lanes.lanes.iter().map(|lane| lane.label.clone()));
        longest_ns = longest_ns.max(lanes.length_ns);
    }
    for picture in pictures {
        let Content::Lanes(lanes) = &mut picture.content else {
            continue;
        };
        if lanes.length_ns < longest_ns {
            let length = Nanos::from_ns(lanes.length_ns);
            picture.notes.push(format!("it ended after {length}"));
        }
        lanes.length_ns = longest_ns;
        lanes.aligned_with.clone_from(&labels);
    }
}

const fn lanes_of(picture: &Picture) -> Option<&Lanes> {
    match &picture.content {
        Content::Lanes(lanes) => Some(lanes),
        _ => None,
    }
}

/// Adds what was recorded, and where.
fn describe(picture: &mut Picture, loaded: &Loaded, filter: &Filter) {
    picture.subtitle = subtitle(loaded);
    if !filter.reasons.is_empty() {
        picture
            .notes
            .push("all reasons are shown, whatever the tables are filtered by".to_owned());
    }
}

fn subtitle(loaded: &Loaded) -> String {
    let meta = loaded.trace.meta();
    let what = match meta.command.is_empty() {
        true => meta.scope.clone(),
        false => meta.command.join(" "),
    };
    let host = HostWords {
        machine: None,
        ..host_words(&meta.host)
    };
    format!("{} · {what}", host.to_line())
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
    let lanes: Vec<Lane> = lanes.collect();
    let mut notes = Vec::new();
    if tracks.len() > MOST_LANES {
        notes.push(format!(
            "the {MOST_LANES} threads with the most switches, of {}",
            tracks.len()
        ));
    }
    let lanes = Lanes {
        kinds: kinds_of(&lanes),
        lanes,
        length_ns: span.to_ns - span.from_ns,
        aligned_with: Vec::new(),
    };
    Picture {
        name: "timeline".to_owned(),
        title: "What the threads did".to_owned(),
        subtitle: String::new(),
        explanation:
            "a lane is a thread: full height it runs, lower it waits, in the colour of what for"
                .to_owned(),
        notes,
        content: Content::Lanes(lanes),
    }
}

/// The pieces, with the state the thread was still in when the trace ended, which is in no row.
fn with_open(loaded: &Loaded, track: Track, span: Span, mut spans: Vec<Drawn>) -> Vec<Drawn> {
    let open = loaded.open(track.task).map(|open| open_piece(loaded, open));
    let begins = spans.last().map_or(0, |last| last.to_ns);
    spans.extend(open.and_then(|piece| {
        let from_ns = piece.from_ns.saturating_sub(span.from_ns).max(begins);
        let to_ns = piece.to_ns.min(span.to_ns).checked_sub(span.from_ns)?;
        let kind = kind_of(piece.state);
        (from_ns < to_ns).then_some(Drawn {
            from_ns,
            to_ns,
            kind,
        })
    }));
    spans
}

/// The states of a thread over time, in pieces no finer than can be seen.
fn spans(os: &LevelRows, track: Track, span: Span) -> Vec<Drawn> {
    let rows = os.rows_between(track, span.from_ns, span.to_ns);
    let mut spans = Vec::new();
    if rows.len() <= EXACT_ROWS {
        os.rows().each(rows, |_, row| {
            row.pieces().each(|from_ns, to_ns, state| {
                let (from_ns, to_ns) = (from_ns.max(span.from_ns), to_ns.min(span.to_ns));
                if from_ns < to_ns {
                    spans.push(Drawn {
                        from_ns: from_ns - span.from_ns,
                        to_ns: to_ns - span.from_ns,
                        kind: kind_of(state),
                    });
                }
            });
        });
        return spans;
    }
    let mut shares = StateTimes::default();
    for bin in 0..BINS {
        let (begin, end) = (span.edge(bin, BINS), span.edge(bin + 1, BINS));
        os.add_shares(track, begin, end, &mut shares);
        let (from_ns, to_ns) = (begin - span.from_ns, end - span.from_ns);
        // The states of a bin are drawn one after the other, each as long as its share of the bin:
        // the pieces themselves are too narrow to be told apart.
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

/// The kinds of pieces for the legend; [`kind_of`] gives the index of each state.
fn kinds_of(lanes: &[Lane]) -> Vec<SpanKind> {
    let mut seen = [false; 1 + 3 * Category::ALL.len()];
    for span in lanes.iter().flat_map(|lane| &lane.spans) {
        seen[span.kind] = true;
    }
    let mut kinds = vec![SpanKind {
        name: seen[0].then(|| "running".to_owned()),
        fill: Fill::RUNNING,
    }];
    for category in Category::ALL {
        let first = kinds.len();
        let is_seen = seen[first..first + TEXTURES.len()].contains(&true);
        kinds.extend(TEXTURES.map(|texture| SpanKind {
            name: (is_seen && texture == Texture::Plain).then(|| category.to_string()),
            fill: Fill::wait(category_colour(*category), texture),
        }));
    }
    // Each texture stands in the legend once, in the colour of a category in which it is common.
    let texture = |name: &str, texture, category| SpanKind {
        name: Some(name.to_owned()),
        fill: Fill::wait(category_colour(category), texture),
    };
    let is_met = |texture| {
        kinds
            .iter()
            .zip(seen)
            .any(|(kind, seen)| seen && kind.fill.texture == texture)
    };
    let (hatched, pale) = (is_met(Texture::Hatched), is_met(Texture::Pale));
    kinds.extend(hatched.then(|| {
        let name = "in a run queue: by why it had left";
        texture(name, Texture::Hatched, Category::Preemption)
    }));
    kinds.extend(pale.then(|| {
        let name = "off, not known when it could run again";
        texture(name, Texture::Pale, Category::Synchronization)
    }));
    kinds
}

/// The textures of a category: blocked, in a run queue, unknown which of the two.
const TEXTURES: [Texture; 3] = [Texture::Plain, Texture::Hatched, Texture::Pale];

/// The index of a state in what [`kinds_of`] gives.
fn kind_of(state: ThreadState) -> usize {
    let (reason, texture) = match state {
        ThreadState::Running => return 0,
        ThreadState::Blocked(reason) => (reason, 0),
        ThreadState::InQueue(reason) => (reason.unwrap_or(Reason::Unknown), 1),
        ThreadState::Off(reason) => (reason, 2),
    };
    1 + TEXTURES.len() * reason.category().index() + texture
}

fn rate(loaded: &Loaded, tracks: &[Track], span: Span) -> Picture {
    let counts = curves::counts(loaded, tracks, span, POINTS);
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
    let bin_ns = as_float(span.to_ns - span.from_ns) / f64::from(POINTS);
    let lines = reasons.iter().map(|reason| Line {
        label: reason.as_str().to_owned(),
        style: Style::Steps,
        colour: Some(reason_colour(**reason)),
        points: (0_u32..)
            .zip(&counts[reason.index()])
            .map(|(bin, count)| dot(f64::from(bin) * bin_ns, f64::from(*count) * 1e9 / bin_ns))
            .collect(),
    });
    let words: Vec<_> = left_out.iter().map(|reason| reason.as_str()).collect();
    Picture {
        name: "rate".to_owned(),
        title: "How often threads left the CPU, and why".to_owned(),
        subtitle: String::new(),
        explanation: format!(
            "switches per second in bins of {}",
            swtch_output::text::nanos(bin_ns)
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
    let lines = [
        ("runs", Length::Ran, Some(Fill::RUNNING.colour)),
        ("run-queue waits", Length::Runq, None),
        ("blocked", Length::Blocked, None),
    ];
    let lines = lines.map(|(label, length, colour)| {
        let (lengths, _) = curves::lengths(loaded, tracks, span, length, None);
        (label, lengths, colour)
    });
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
                .map(|(label, lengths, colour)| cumulative(label, lengths, *colour))
                .collect(),
            marks: Vec::new(),
        }),
    }
}

fn cumulative(label: &str, lengths: &Distribution, colour: Option<RGBColor>) -> Line {
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
        colour,
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
