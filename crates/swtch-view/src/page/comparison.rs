//! `swtch diff -o FILE.html`: a comparison as one page to send.
//!
//! ```text
//! traces ─┬▶ swtch diff ─▶ comparable, verdict, figures, notes ─┐
//!         ├▶ one trace of each side ─▶ timelines ───────────────┼▶ page (at most 5 MB)
//!         └▶ stacks of all ─▶ one tree ─▶ flame graphs ─────────┘
//! ```
//!
//! Its words and numbers are those of the other formats of `swtch diff`, made by the same code.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Result;
use maud::{Markup, html};
use swtch_plot::Picture;
use swtch_report::html::{self, shown, table};
use swtch_report::report::{
    DiffAnswer, DiffFlames, DiffOutcome, DiffPageParts, Filter, FrameDiff, Per, time_words,
};

use super::flames::{FlameGraph, WidthSide, legend};
use super::{MOST_DRAWN_BYTES, figure, footer, pictures, save};
use crate::Loaded;

/// Writes the page of a comparison, unless `stop` is set meanwhile.
///
/// # Errors
/// If a trace cannot be read, or the file cannot be written.
pub fn write(
    answer: &DiffAnswer<'_>,
    filter: &Filter,
    file: &Path,
    stop: Arc<AtomicBool>,
) -> Result<()> {
    let parts = answer.page_parts()?;
    let text = page(&parts, &Timelines::read(&parts.typical, filter)?)?;
    save(&text, "--since, --until, --comm", file, stop)
}

fn page(parts: &DiffPageParts, timelines: &Timelines) -> Result<String> {
    let body = html! {
        header {
            h1 { "Context switches compared" }
            @for (label, words) in &parts.head {
                p.machine { strong { (label) } " · " (shown(words)) }
            }
            (contents())
        }
        main {
            (comparable(parts))
            (changes(parts))
            (timelines.section(parts.runs)?)
            (blocked(parts)?)
        }
        (footer("swtch diff -o"))
    };
    Ok(html::page("Context switches compared", &body))
}

fn contents() -> Markup {
    html! {
        nav aria-label="Contents" {
            a href="#comparable" { "Comparable?" } " · " a href="#changes" { "What changed" } " · "
            a href="#timelines" { "Over time" } " · " a href="#blocked" { "Where they were blocked" }
        }
    }
}

fn comparable(parts: &DiffPageParts) -> Markup {
    html! {
        section #comparable {
            h2 { "Are they comparable?" }
            p { (shown(&parts.comparable)) }
            @if !parts.differences.is_empty() {
                ul { @for difference in &parts.differences { li { (shown(difference)) } } }
            }
        }
    }
}

fn changes(parts: &DiffPageParts) -> Markup {
    let class = match parts.outcome {
        DiffOutcome::Passed => "holds",
        DiffOutcome::Regressed => "fails",
    };
    html! {
        section #changes {
            h2 { "What changed" }
            p.summary { (shown(&parts.verdict)) }
            @if let Some(gate) = &parts.gate { p.verdict { span class=(class) { (shown(gate)) } } }
            @if !parts.figures.rows.is_empty() {
                (table("A before, B after", &parts.figures, usize::MAX))
            }
            @for note in &parts.notes { p.aside { (shown(note)) } }
        }
    }
}

/// The timelines of one trace of each side.
#[derive(Debug)]
struct Timelines {
    /// The timelines of the sides that have switches.
    pictures: Vec<Picture>,
    /// The sides that have no switches.
    empty: Vec<&'static str>,
}

impl Timelines {
    fn read(typical: &[PathBuf; 2], filter: &Filter) -> Result<Self> {
        let (mut drawn, mut empty) = (Vec::new(), Vec::new());
        for (side, path) in ["A", "B"].into_iter().zip(typical) {
            let loaded = Loaded::read(path, 1)?;
            match pictures::timeline_of(&loaded, filter) {
                Some(picture) => drawn.push(Picture {
                    title: format!("{side}: {}", path.display()),
                    ..picture
                }),
                None => empty.push(side),
            }
        }
        pictures::align(&mut drawn);
        Ok(Self {
            pictures: drawn,
            empty,
        })
    }

    fn section(&self, runs: [usize; 2]) -> Result<Markup> {
        let figures = self.pictures.iter();
        let figures = figures.map(|picture| figure(picture, MOST_DRAWN_BYTES));
        let figures = figures.collect::<Result<Vec<_>>>()?;
        Ok(html! {
            section #timelines {
                h2 { "Over time" }
                p {
                    @if runs == [1, 1] { "Both runs" }
                    @else { "One run of each side, whose number of switches is nearest to the median of its side" }
                    ", on one scale of time."
                }
                @for figure in &figures { (figure) }
                @for side in &self.empty { p { "No switch of " (side) " is counted here." } }
            }
        })
    }
}

fn blocked(parts: &DiffPageParts) -> Result<Markup> {
    let graphs = match &parts.flames {
        DiffFlames::Missing(why) => html! { p { (shown(why)) } },
        DiffFlames::Frames(root) => flame_graphs(root, parts.per)?,
    };
    Ok(html! {
        section #blocked {
            h2 { "Where they were blocked" }
            (graphs)
        }
    })
}

fn flame_graphs(root: &FrameDiff, per: Per) -> Result<Markup> {
    let together = match per {
        Per::Second => "the runs of a side together, divided by their lengths",
        Per::Run => "the runs of a side together, divided by their number",
        Per::Turn => "the runs of a side together, divided by their turns",
        Per::Span => "the runs of a side together, divided by their spans",
    };
    Ok(html! {
        p {
            "A frame is a program, below it the functions in which its threads were blocked, at last why. Its \
             width is the time blocked, without time in run queues (" (together) "); its colour is how B differs from A:"
        }
        (legend())
        p {
            "Rest the pointer on a frame to see both times and their difference. Frames are not tested one by one, and some \
             differ by chance: only the figures of the table have intervals."
        }
        (flame_graph(root, WidthSide::B, per)?)
        (flame_graph(root, WidthSide::A, per)?)
    })
}

fn flame_graph(root: &FrameDiff, side: WidthSide, per: Per) -> Result<Markup> {
    let letter = side.as_str();
    let Some(graph) = FlameGraph::of(root, side, per)? else {
        return Ok(html! { p { "No thread of " (letter) " was blocked." } });
    };
    Ok(html! {
        h3 { "Width: time blocked in " (letter) ", " (time_words(side.ns(root), per)) " in all" }
        p.aside {
            @match side {
                WidthSide::A => "The same frames once more: those that only A has are not in the graph above.",
                WidthSide::B => "Frames that only A has are in the graph below.",
            }
            " Frames narrower than " (format!("{:.2}", graph.narrowest_pct)) " % of the whole are left out."
        }
        figure { (graph.svg) }
    })
}
